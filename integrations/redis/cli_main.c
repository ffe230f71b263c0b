/*
 * weft-redis-cli URI COMMAND…: requests by Weft to a redis-server with the module.
 *   get KEY | set KEY VALUE | del KEY    as redis-cli
 *   read KEY [SECONDS]   leases the value and reads it one-sidedly, until the key has changed
 *   lease KEY COUNT      leases the value, COUNT times; prints "leased" when it has the first
 *   traffic SECONDS      sets and gets, and checks every value; prints how many
 *   latency COUNT        round trips of a get of 3 bytes; prints the median in µs
 *   batch COUNT          gets of 3 bytes, 16 at a time, COUNT times; prints gets a second
 *   together KEY COUNT   gets of the key, 16 at a time, COUNT times; prints how many bytes
 *   unread KEY COUNT [BYTES]  gets of the key, COUNT at once, or sets of BYTES bytes, and another
 *                        one for each line of the input, at whose end the replies are read; prints
 *                        the last status
 *   mixed COUNT          sets, and gets of a value, of nothing, of a list, 1 to 40 at once, COUNT
 *                        times; checks that each get saw the set before it; prints how many
 *   order BYTES          a set of that many bytes, a set and a get at once; prints "in order" if
 *                        the get saw the second
 *   refused KEY          what a client must not do: prints how each is answered
 *   malformed COUNT      requests of random headers and lengths; prints how many, and the endpoints
 *                        that were closed
 */
#include "weft_redis.h"

#include "protocol.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "weft-redis-cli URI get|set|del|read|lease|traffic|latency|batch|together|unread|mixed|order|"
    "refused|malformed ARGUMENT…\n";

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int print_status(weft_status_t status) {
    puts(weft_status_name(status));
    return status < 0;
}

static int get(weft_redis_t *redis, const char *key) {
    static char value[16 << 20];
    size_t len = sizeof value;
    weft_status_t st = weft_redis_get_wait(redis, key, strlen(key), value, &len);
    if (st < 0) return print_status(st);
    printf("%.*s\n", (int)len, value);
    return 0;
}

/* Each value that is read is printed; the end of the lease is, too. */
static int read_leased(weft_redis_t *redis, const char *key, double seconds) {
    weft_redis_lease_t *lease;
    char value[256], last[256] = "";
    weft_status_t st = weft_redis_lease_wait(redis, key, strlen(key), &lease);
    if (st < 0) return print_status(st);
    size_t len = weft_redis_lease_len(lease) < 255 ? weft_redis_lease_len(lease) : 255;
    double end = now() + seconds;
    do {
        memset(value, 0, sizeof value);
        st = weft_redis_lease_read_wait(lease, value, len);
        if (st == WEFT_OK && strcmp(value, last) != 0) puts(value), fflush(stdout);
        strcpy(last, value);
    } while (st == WEFT_OK && now() < end);
    weft_redis_lease_release(lease);
    return st < 0 ? print_status(st) : 0;
}

static int lease_often(weft_redis_t *redis, const char *key, size_t count) {
    weft_status_t st = WEFT_OK;
    for (size_t i = 0; st == WEFT_OK && i < count; i++) {
        weft_redis_lease_t *lease;
        st = weft_redis_lease_wait(redis, key, strlen(key), &lease);
        if (st == WEFT_OK) weft_redis_lease_release(lease);
        if (st == WEFT_OK && i == 0) puts("leased"), fflush(stdout);
    }
    return print_status(st);
}

static int traffic(weft_redis_t *redis, double seconds) {
    static char value[100000], got[sizeof value];
    char key[32];
    uint64_t n = 0;
    double end = now() + seconds;
    while (now() < end) {
        size_t len = n % 10 == 0 ? sizeof value : n % 1000, room = sizeof got;
        snprintf(key, sizeof key, "traffic%" PRIu64, n % 50);
        memset(value, (int)('a' + n % 26), len);
        weft_status_t st = weft_redis_set_wait(redis, key, strlen(key), value, len);
        if (st == WEFT_OK) st = weft_redis_get_wait(redis, key, strlen(key), got, &room);
        if (st < 0) return print_status(st);
        if (room != len || memcmp(value, got, len) != 0) return puts("another value"), 1;
        n++;
    }
    printf("%" PRIu64 " values\n", n);
    return 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int latency(weft_redis_t *redis, size_t count) {
    double *us = calloc(count, sizeof *us);
    char value[8];
    weft_status_t st = weft_redis_set_wait(redis, "latency", 7, "abc", 3);
    for (size_t i = 0; us && st == WEFT_OK && i < count; i++) {
        size_t len = sizeof value;
        double begin = now();
        st = weft_redis_get_wait(redis, "latency", 7, value, &len);
        us[i] = (now() - begin) * 1e6;
    }
    if (!us || st < 0) return free(us), print_status(st);
    qsort(us, count, sizeof *us, by_size);
    printf("%.1f us\n", us[count / 2]);
    free(us);
    return 0;
}

enum { BATCH = 16 };

struct batch {
    unsigned left, wrong;
};

static void on_got(weft_status_t status, const void *data, size_t len, void *arg) {
    struct batch *batch = arg;
    batch->left--;
    batch->wrong += status != WEFT_OK || len != 3 || memcmp(data, "abc", 3) != 0;
}

static int batches(weft_redis_t *redis, weft_worker_t *worker, size_t count) {
    struct batch batch = {0};
    weft_status_t st = weft_redis_set_wait(redis, "latency", 7, "abc", 3);
    double begin = now();
    for (size_t i = 0; st >= 0 && i < count; i++) {
        for (int k = 0; st >= 0 && k < BATCH; k++) {
            st = weft_redis_get(redis, "latency", 7, on_got, &batch);
            if (st >= 0) batch.left++;
        }
        while (batch.left) (void)weft_worker_wait(worker, -1);
    }
    if (st < 0 || batch.wrong) return print_status(st < 0 ? st : WEFT_ERR_REJECTED);
    printf("%.0f a second\n", (double)count * BATCH / (now() - begin));
    return 0;
}

struct together {
    unsigned left;
    weft_status_t status;
    uint64_t bytes;
};

static void on_one_of_many(weft_status_t status, const void *data, size_t len, void *arg) {
    struct together *all = arg;
    all->left--;
    all->bytes += len;
    if (status < 0) all->status = status;
}

static int together(weft_redis_t *redis, weft_worker_t *worker, const char *key, size_t count) {
    struct together all = {0};
    weft_status_t st = WEFT_OK;
    for (size_t i = 0; st >= 0 && i < count; i++) {
        for (int k = 0; st >= 0 && k < BATCH; k++) {
            st = weft_redis_get(redis, key, strlen(key), on_one_of_many, &all);
            if (st >= 0) all.left++;
        }
        while (all.left) (void)weft_worker_wait(worker, -1);
        if (st >= 0) st = all.status;
    }
    if (st < 0) return print_status(st);
    printf("%" PRIu64 " bytes\n", all.bytes);
    return 0;
}

/* A client that asks and does not read. */
static int leave_unread(weft_redis_t *redis, weft_worker_t *worker, const char *key, size_t count,
                        size_t bytes) {
    struct together all = {0};
    char line[16], *value = bytes ? calloc(1, bytes) : NULL;
    size_t room = 0;
    weft_status_t st = weft_redis_get_wait(redis, key, strlen(key), NULL, &room); /* it is up */
    if (st == WEFT_ERR_TRUNCATED) st = WEFT_OK;
    for (size_t i = 0; st >= 0 && (i < count || fgets(line, sizeof line, stdin)); i++) {
        st = bytes ? weft_redis_set(redis, key, strlen(key), value, bytes, on_one_of_many, &all)
                   : weft_redis_get(redis, key, strlen(key), on_one_of_many, &all);
        if (st >= 0) all.left++;
        if (i + 1 >= count) (void)weft_worker_progress(worker, 0); /* they leave */
    }
    while (all.left) (void)weft_worker_wait(worker, -1);
    free(value);
    return print_status(st < 0 ? st : all.status);
}

/* Some keys are longer than what the module keeps of GETs that come together. */
enum { MIXED_MOST = 40, LONG_KEY = 5000 };

struct mixed {
    weft_redis_t *redis;
    char long_key[LONG_KEY], value[24];
    size_t posted, left, wrong;
};

struct mixed_get {
    struct mixed *of;
    weft_status_t status;
    char value[24];
};

static void on_mixed(weft_status_t status, const void *data, size_t len, void *arg) {
    struct mixed_get *get = arg;
    get->of->left--;
    bool as_expected = status == get->status && len == strlen(get->value) &&
                       (len == 0 || memcmp(data, get->value, len) == 0);
    get->of->wrong += !as_expected;
    free(get);
}

static weft_status_t post_mixed(struct mixed *mixed, size_t k) {
    static const char *const nothing[] = {"no such key", "list"};
    struct mixed_get *get = malloc(sizeof *get);
    if (!get) return WEFT_ERR_NO_MEMORY;
    *get = (struct mixed_get){.of = mixed};
    weft_redis_t *redis = mixed->redis;
    weft_status_t st;
    if (k % 9 == 4) {
        snprintf(mixed->value, sizeof mixed->value, "value %zu", mixed->posted);
        st = weft_redis_set(redis, "mixed", 5, mixed->value, strlen(mixed->value), on_mixed, get);
    } else if (k % 3 == 2) {
        const char *key = nothing[k % 2];
        get->status = WEFT_ERR_NOT_FOUND;
        st = weft_redis_get(redis, key, strlen(key), on_mixed, get);
    } else if (k % 13 == 12) {
        strcpy(get->value, "long");
        st = weft_redis_get(redis, mixed->long_key, LONG_KEY, on_mixed, get);
    } else {
        strcpy(get->value, mixed->value);
        st = weft_redis_get(redis, "mixed", 5, on_mixed, get);
    }
    mixed->left += st >= 0;
    mixed->posted += st >= 0;
    if (st < 0) free(get);
    return st;
}

static int mix(weft_redis_t *redis, weft_worker_t *worker, size_t count) {
    struct mixed mixed = {.redis = redis, .value = "first"};
    memset(mixed.long_key, 'k', LONG_KEY);
    weft_status_t st = weft_redis_set_wait(redis, "mixed", 5, "first", 5);
    if (st >= 0) st = weft_redis_set_wait(redis, mixed.long_key, LONG_KEY, "long", 4);
    for (size_t i = 0; st >= 0 && i < count; i++) {
        size_t n = 1 + i * 7 % MIXED_MOST;
        for (size_t k = 0; st >= 0 && k < n; k++) st = post_mixed(&mixed, i + k);
        while (mixed.left) (void)weft_worker_wait(worker, -1);
    }
    if (st < 0 || mixed.wrong) return print_status(st < 0 ? st : WEFT_ERR_REJECTED);
    printf("%zu requests\n", mixed.posted);
    return 0;
}

/* The first of three requests is for the key's longer value, the others for its last one. */
static weft_status_t post_in_order(struct mixed *mixed, int i, const char *longer, size_t bytes) {
    struct mixed_get *get = calloc(1, sizeof *get);
    if (!get) return WEFT_ERR_NO_MEMORY;
    weft_status_t st;
    get->of = mixed;
    if (i < 2) {
        st = weft_redis_set(mixed->redis, "order", 5, i == 0 ? longer : "last", i == 0 ? bytes : 4,
                            on_mixed, get);
    } else {
        strcpy(get->value, "last");
        st = weft_redis_get(mixed->redis, "order", 5, on_mixed, get);
    }
    mixed->left += st >= 0;
    if (st < 0) free(get);
    return st;
}

/* The module may have to fetch the longer value, and has the requests behind it at once. */
static int order(weft_redis_t *redis, weft_worker_t *worker, size_t bytes) {
    struct mixed mixed = {.redis = redis};
    char *longer = calloc(1, bytes);
    weft_status_t st = longer ? WEFT_OK : WEFT_ERR_NO_MEMORY;
    for (int i = 0; st >= 0 && i < 3; i++) st = post_in_order(&mixed, i, longer, bytes);
    while (mixed.left) (void)weft_worker_wait(worker, -1);
    free(longer);
    if (st < 0) return print_status(st);
    puts(mixed.wrong ? "another value" : "in order");
    return mixed.wrong != 0;
}

struct within {
    weft_redis_t *redis;
    const char *key;
    bool over;
    weft_status_t get, set, delete, lease;
};

static void wait_within(weft_status_t status, const void *data, size_t len, void *arg) {
    struct within *within = arg;
    weft_redis_t *redis = within->redis;
    const char *key = within->key;
    size_t key_len = strlen(key), room = 0;
    weft_redis_lease_t *lease;
    within->get = weft_redis_get_wait(redis, key, key_len, NULL, &room);
    within->set = weft_redis_set_wait(redis, key, key_len, "within", 6);
    within->delete = weft_redis_delete_wait(redis, key, key_len);
    within->lease = weft_redis_lease_wait(redis, key, key_len, &lease);
    within->over = true;
}

/* Another worker has its client, one at a time. */
static weft_status_t connect_twice(const char *uri, weft_status_t *second_p) {
    weft_context_t *context = NULL;
    weft_worker_t *worker = NULL;
    weft_redis_t *redis;
    weft_status_t st = weft_context_create(NULL, &context);
    if (st == WEFT_OK) st = weft_worker_create(context, NULL, &worker);
    for (int i = 0; st == WEFT_OK && i < 2; i++) {
        weft_redis_t *second;
        st = weft_redis_connect(worker, uri, &redis);
        if (st < 0) break;
        *second_p = weft_redis_connect(worker, uri, &second);
        weft_redis_close(redis);
    }
    weft_worker_destroy(worker);
    if (context) (void)weft_context_destroy(context);
    return st;
}

static int refused(weft_redis_t *redis, weft_worker_t *worker, const char *uri, const char *key) {
    struct within within = {.redis = redis, .key = key};
    weft_status_t second = WEFT_OK, st = connect_twice(uri, &second);
    if (st >= 0) st = weft_redis_get(redis, key, strlen(key), wait_within, &within);
    if (st < 0) return print_status(st);
    while (!within.over) (void)weft_worker_wait(worker, -1);
    printf("second %s, get %s, set %s, del %s, lease %s\n", weft_status_name(second),
           weft_status_name(within.get), weft_status_name(within.set),
           weft_status_name(within.delete), weft_status_name(within.lease));
    return get(redis, key);
}

/* ---- a client that is broken, or hostile ----------------------------------------------------- */

static size_t n_under_way;

static void on_malformed_sent(weft_status_t status, void *bytes) {
    n_under_way--;
    free(bytes);
}

static void on_malformed_lost(weft_ep_t *ep, weft_status_t status, void *of) {
    *(weft_ep_t **)of = NULL;
    (void)weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

/* Of `most`, in most cases a few. */
static size_t some(size_t most) {
    return (size_t)rand() % (rand() % 8 ? 40 : most);
}

static void send_malformed(weft_ep_t *ep) {
    size_t len = some(rand() % 4 ? 70000 : 3 << 20), key_len = some(len + 41);
    size_t head_len = rand() % 50 ? sizeof(struct redis_request) : some(100);
    char head[100] = {0}, *bytes = malloc(len + 1);
    if (!bytes) return;
    const struct redis_request request = {rand() % 20 ? REDIS_VERSION : (uint16_t)rand(),
                                          (uint16_t)(rand() % (rand() % 20 ? REDIS_N_WHAT : 9)),
                                          (uint32_t)rand(), (uint32_t)key_len, 0};
    if (request.what != REDIS_SET && rand() % 2 && key_len < len) len = key_len;
    memcpy(head, &request, sizeof request);
    memset(bytes, 'a' + rand() % 3, len + 1);
    static const uint32_t flags[] = {WEFT_AM_RENDEZVOUS, WEFT_AM_NO_REPLY};
    weft_op_t op = {.done = on_malformed_sent,
                    .arg = bytes,
                    .flags = rand() % 30 ? 0 : flags[rand() % 2],
                    .deadline_ms = rand() % 30 ? 0 : (uint32_t)rand() % 20};
    n_under_way++;
    weft_status_t st =
        weft_am_send(ep, REDIS_REQUEST_ID, head, head_len, &(weft_iov_t){bytes, len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_malformed_sent(st, bytes);
}

static int malformed(weft_worker_t *worker, const char *uri, size_t count) {
    enum { ENDPOINTS = 4, UNDER_WAY = 64 };
    weft_ep_t *ep[ENDPOINTS] = {0};
    size_t n_closed = 0;
    weft_status_t st = WEFT_OK;
    for (size_t i = 0; st >= 0 && i < count; i++) {
        weft_ep_t **at = &ep[rand() % ENDPOINTS];
        weft_ep_params_t params = {.on_error = on_malformed_lost, .arg = at};
        if (!*at) st = weft_connect(worker, uri, &params, at);
        if (st >= 0) send_malformed(*at);
        while (n_under_way > UNDER_WAY) (void)weft_worker_wait(worker, 100);
        if (i % 4 == 0) (void)weft_worker_progress(worker, 0);
        if (!*at || rand() % 500) continue;
        (void)weft_ep_close(*at, rand() % 2 ? WEFT_CLOSE_ABORT : WEFT_CLOSE_FLUSH, NULL);
        *at = NULL;
        n_closed++;
    }
    for (int i = 0; i < ENDPOINTS; i++)
        if (ep[i]) (void)weft_ep_close(ep[i], WEFT_CLOSE_ABORT, NULL);
    while (n_under_way) (void)weft_worker_wait(worker, 100);
    if (st < 0) return print_status(st);
    printf("%zu requests, %zu endpoints closed\n", count, n_closed);
    return 0;
}

static int run(weft_redis_t *redis, weft_worker_t *worker, int argc, char **argv) {
    const char *what = argv[2];
    if (argc == 4 && strcmp(what, "get") == 0) return get(redis, argv[3]);
    if (argc == 5 && strcmp(what, "set") == 0)
        return print_status(
            weft_redis_set_wait(redis, argv[3], strlen(argv[3]), argv[4], strlen(argv[4])));
    if (argc == 4 && strcmp(what, "del") == 0)
        return print_status(weft_redis_delete_wait(redis, argv[3], strlen(argv[3])));
    if (argc >= 4 && strcmp(what, "read") == 0)
        return read_leased(redis, argv[3], argc > 4 ? atof(argv[4]) : 0);
    if (argc == 5 && atoi(argv[4]) > 0 && strcmp(what, "lease") == 0)
        return lease_often(redis, argv[3], (size_t)atoi(argv[4]));
    if (argc == 4 && strcmp(what, "traffic") == 0) return traffic(redis, atof(argv[3]));
    if (argc == 4 && atoi(argv[3]) > 0 && strcmp(what, "latency") == 0)
        return latency(redis, (size_t)atoi(argv[3]));
    if (argc == 4 && atoi(argv[3]) > 0 && strcmp(what, "batch") == 0)
        return batches(redis, worker, (size_t)atoi(argv[3]));
    if (argc == 5 && atoi(argv[4]) > 0 && strcmp(what, "together") == 0)
        return together(redis, worker, argv[3], (size_t)atoi(argv[4]));
    if (argc >= 5 && atoi(argv[4]) > 0 && strcmp(what, "unread") == 0)
        return leave_unread(redis, worker, argv[3], (size_t)atoi(argv[4]),
                            argc > 5 ? (size_t)atoi(argv[5]) : 0);
    if (argc == 4 && atoi(argv[3]) > 0 && strcmp(what, "mixed") == 0)
        return mix(redis, worker, (size_t)atoi(argv[3]));
    if (argc == 4 && atoi(argv[3]) > 0 && strcmp(what, "order") == 0)
        return order(redis, worker, (size_t)atoi(argv[3]));
    if (argc == 4 && atoi(argv[3]) > 0 && strcmp(what, "malformed") == 0)
        return malformed(worker, argv[1], (size_t)atoi(argv[3]));
    if (argc == 4 && strcmp(what, "refused") == 0) return refused(redis, worker, argv[1], argv[3]);
    return fputs(usage, stderr), 2;
}

int main(int argc, char **argv) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_redis_t *redis;
    if (argc < 4) return fputs(usage, stderr), 2;
    weft_status_t st = weft_context_create(NULL, &context);
    if (st == WEFT_OK) st = weft_worker_create(context, NULL, &worker);
    if (st == WEFT_OK) st = weft_redis_connect(worker, argv[1], &redis);
    if (st < 0) return print_status(st);
    int code = run(redis, worker, argc, argv);
    weft_redis_close(redis);
    weft_worker_destroy(worker);
    (void)weft_context_destroy(context);
    return code;
}

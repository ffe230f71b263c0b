/*
 * usage_cost: what tracking use costs a short message, by a ring, by the mailbox and over tcp: two
 * pairs of workers in one process, one with "lanes.switch" on (and no lane to be won) and one
 * without, send bursts in turns; the median of a pair's rounds, and of the differences between two
 * rounds that follow each other. Blocks allocated during them, and the tracker's memory.
 *
 * usage_cost WAY on|off BURSTS: so many, and nothing else: for a tool that counts instructions.
 * WAY: ring, mailbox, tcp.
 */
#include "cores.h"
#include <endpoints/lanes/usage.h>
#include <string.h>
#include <talloc.h>
#include <weft/weft.h>

enum { BURST = 48, PER_ROUND = 400, ROUNDS = 201, WAYS = 3 };

static const struct way {
    const char *name, *transports, *rings;
} ways[WAYS] = {{"ring", "shm", "64"}, {"mailbox", "shm", "0"}, {"tcp", "tcp", "0"}};

struct pair {
    weft_context_t *context;
    weft_worker_t *a, *b;
    weft_ep_t *ep;
    bool ready;
};

static uint64_t received;

static void die(const char *what) {
    fprintf(stderr, "usage_cost: %s\n", what);
    exit(1);
}

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}
static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct pair *)arg)->ready = true;
}
static void on_endpoint(weft_ep_t *ep, void *arg) {}

static void open_pair(struct pair *p, const struct way *way, bool on) {
    const weft_setting_t settings[] = {{"shm.rings", way->rings},
                                       {"lanes.switch", on ? "on" : "off"},
                                       {"lanes.capacity", "0"},
                                       {"calibration", "off"}};
    weft_worker_params_t params = {.transports = way->transports, .on_endpoint = on_endpoint};
    char address[256];
    size_t len = sizeof address;
    *p = (struct pair){0};
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 4},
                            &p->context) < 0 ||
        weft_worker_create(p->context, &params, &p->a) < 0 ||
        weft_worker_create(p->context, &params, &p->b) < 0 ||
        weft_worker_address(p->b, address, &len) < 0)
        die("no workers");
    weft_am_handler_set(p->b, 1, on_am, NULL);
    if (weft_connect_address(p->a, address, len,
                             &(weft_ep_params_t){.on_ready = on_ready, .arg = p}, &p->ep) < 0)
        die("no endpoint");
    while (!p->ready) weft_worker_progress(p->a, 0), weft_worker_progress(p->b, 0);
}

static void close_pair(struct pair *p) {
    weft_worker_destroy(p->a);
    weft_worker_destroy(p->b);
    weft_context_destroy(p->context);
}

/* A burst, until it has arrived. Apart, so that tools may count it alone. */
static __attribute__((noinline)) void burst(struct pair *p) {
    uint64_t end = received + BURST;
    weft_iov_t iov = {"8 bytes", 8};
    for (int i = 0; i < BURST; i++)
        if (weft_am_send(p->ep, 1, NULL, 0, &iov, 1, NULL) < 0) die("a send failed");
    do {
        weft_worker_progress(p->a, 0);
        weft_worker_progress(p->b, 0);
    } while (received < end);
}

static double round_ns(struct pair *p) {
    double begin = now_ns();
    for (int i = 0; i < PER_ROUND; i++) burst(p);
    return (now_ns() - begin) / (PER_ROUND * BURST);
}

static double median(double *values) {
    sort_figures(values, ROUNDS);
    return values[ROUNDS / 2];
}

static void measure(const struct way *way) {
    static double off[ROUNDS], on[ROUNDS], more[ROUNDS];
    struct pair without, with;
    open_pair(&without, way, false);
    open_pair(&with, way, true);
    for (int i = 0; i < 5; i++) round_ns(&without), round_ns(&with);
    uint64_t allocations = weft_worker_count(with.a, "worker.allocations");
    for (int r = 0; r < ROUNDS; r++) { /* who is first takes turns too */
        if (r % 2) on[r] = round_ns(&with);
        off[r] = round_ns(&without);
        if (r % 2 == 0) on[r] = round_ns(&with);
        more[r] = on[r] - off[r];
    }
    allocations = weft_worker_count(with.a, "worker.allocations") - allocations;
    printf("  \"%s\": {\"off_ns\": %.2f, \"on_ns\": %.2f, \"difference_ns\": %.2f, "
           "\"allocations\": %llu},\n",
           way->name, median(off), median(on), median(more), (unsigned long long)allocations);
    close_pair(&without);
    close_pair(&with);
}

static size_t memory(size_t n_keys) {
    static char key[100000];
    struct usage *u = weft__usage_new(NULL, &(struct usage_params){.capacity = 64}, NULL, 0);
    if (!u) die("no memory");
    for (uint64_t now = 0; now < 10; now++) {
        for (size_t i = 0; i < n_keys; i++) weft__usage_touch(u, &key[i], 64, 4096);
        weft__usage_tick(u, now * 100000000);
    }
    size_t size = talloc_total_size(u);
    talloc_free(u);
    return size;
}

static int count_only(const char *name, const char *on, const char *bursts) {
    for (int i = 0; i < WAYS; i++) {
        struct pair p;
        if (strcmp(ways[i].name, name) != 0) continue;
        open_pair(&p, &ways[i], strcmp(on, "on") == 0);
        for (long n = atol(bursts); n > 0; n--) burst(&p);
        close_pair(&p);
        return 0;
    }
    die("ring, mailbox or tcp");
    return 1;
}

int main(int argc, char **argv) {
    if (argc == 4) return count_only(argv[1], argv[2], argv[3]);
    printf("{\n");
    for (int i = 0; i < WAYS; i++) measure(&ways[i]);
    printf("  \"tracker_bytes\": {\"of_10\": %zu, \"of_100000\": %zu}\n}\n", memory(10),
           memory(100000));
    return 0;
}

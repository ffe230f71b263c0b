/* The client: requests by number, replies to them, and leases. */
#include "weft_redis.h"

#include "protocol.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct request {
    struct request *next;
    uint32_t number;
    weft_redis_done_fn done;
    void *arg;
    char *payload; /* key and value, until they are sent */
    bool sent, answered;
};

struct weft_redis {
    weft_worker_t *worker;
    weft_ep_t *ep;
    struct request *requests, **requests_end; /* oldest first: replies come in that order */
    uint32_t last_number;
    weft_status_t lost; /* OK while the server is there */
    struct large *large;
    weft_redis_t *next;
};

/* A payload that is being fetched. */
struct large {
    weft_redis_t *redis; /* NULL: the client is closed */
    struct redis_reply head;
    size_t len;
    struct large *next;
    char bytes[];
};

/* ---- requests -------------------------------------------------------------------------------- */

static void free_request(struct request *request) {
    if (!request->sent || !request->answered) return;
    free(request->payload);
    free(request);
}

static struct request *take_request(weft_redis_t *redis, uint32_t number) {
    for (struct request **at = &redis->requests; *at; at = &(*at)->next) {
        struct request *found = *at;
        if (found->number != number) continue;
        *at = found->next;
        if (redis->requests_end == &found->next) redis->requests_end = at;
        return found;
    }
    return NULL;
}

static void answer(struct request *request, weft_status_t status, const void *data, size_t len) {
    request->answered = true;
    request->done(status, data, len, request->arg);
    free_request(request);
}

static void end_all(weft_redis_t *redis, weft_status_t status) {
    while (redis->requests) {
        struct request *first = redis->requests;
        redis->requests = first->next;
        if (!first->next) redis->requests_end = &redis->requests;
        answer(first, status, NULL, 0);
    }
}

static void on_sent(weft_status_t status, void *arg) {
    struct request *request = arg;
    request->sent = true;
    free_request(request); /* the endpoint's on_error reports a failed send */
}

static weft_status_t post(weft_redis_t *redis, enum redis_what what, const void *key,
                          size_t key_len, const void *value, size_t len, weft_redis_done_fn done,
                          void *arg) {
    if (!redis || (!key && key_len) || (!value && len) || !done) return WEFT_ERR_INVALID_PARAM;
    if (key_len > REDIS_KEY_MOST || len > REDIS_VALUE_MOST) return WEFT_ERR_TOO_BIG;
    if (redis->lost < 0) return WEFT_ERR_CLOSED;
    struct request *request = calloc(1, sizeof *request);
    char *payload = malloc(key_len + len + 1);
    if (!request || !payload) {
        free(request);
        free(payload);
        return WEFT_ERR_NO_MEMORY;
    }
    if (key_len) memcpy(payload, key, key_len);
    if (len) memcpy(payload + key_len, value, len);
    *request = (struct request){
        .number = ++redis->last_number, .done = done, .arg = arg, .payload = payload};
    const struct redis_request head = {REDIS_VERSION, (uint16_t)what, request->number,
                                       (uint32_t)key_len, 0};
    weft_op_t op = {.done = on_sent, .arg = request};
    weft_status_t st = weft_am_send(redis->ep, REDIS_REQUEST_ID, &head, sizeof head,
                                    &(weft_iov_t){payload, key_len + len}, 1, &op);
    if (st < 0) {
        request->sent = request->answered = true;
        free_request(request);
        return st;
    }
    request->sent = st == WEFT_OK;
    *redis->requests_end = request;
    redis->requests_end = &request->next;
    return WEFT_IN_PROGRESS;
}

/* ---- replies --------------------------------------------------------------------------------- */

/* A lease's caller needs the numbers of the head, too: they are before the bytes. */
struct leased {
    uint64_t address, len;
};

static void on_answer(weft_redis_t *redis, const struct redis_reply *head, const void *data,
                      size_t len) {
    struct request *request = take_request(redis, head->number);
    if (request) answer(request, head->status, data, len);
}

static void on_fetched(weft_status_t status, void *arg) {
    struct large *large = arg;
    weft_redis_t *redis = large->redis;
    if (redis) {
        struct large **at = &redis->large;
        while (*at != large) at = &(*at)->next;
        *at = large->next;
        if (status < 0) large->head.status = status;
        on_answer(redis, &large->head, large->bytes, status < 0 ? 0 : large->len);
    }
    free(large);
}

static void fetch(weft_redis_t *redis, weft_am_t *am, const struct redis_reply *head) {
    struct large *large = malloc(sizeof *large + am->len);
    if (!large) {
        struct redis_reply failed = {.number = head->number, .status = WEFT_ERR_NO_MEMORY};
        on_answer(redis, &failed, NULL, 0);
        return; /* which refuses the payload */
    }
    *large = (struct large){.redis = redis, .head = *head, .len = am->len, .next = redis->large};
    redis->large = large;
    weft_op_t op = {.done = on_fetched, .arg = large};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){large->bytes, am->len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_fetched(st, large);
}

/* Leases find the place of their value in front of the remote key. */
static void on_reply(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_redis_t *redis = arg;
    struct redis_reply head;
    char leased[sizeof(struct leased) + WEFT_RKEY_MAX];
    if (am->header_len != sizeof head) return;
    memcpy(&head, am->header, sizeof head);
    if (!am->data) {
        fetch(redis, am, &head);
    } else if (head.address && am->len <= WEFT_RKEY_MAX) {
        memcpy(leased, &(struct leased){head.address, head.len}, sizeof(struct leased));
        memcpy(leased + sizeof(struct leased), am->data, am->len);
        on_answer(redis, &head, leased, sizeof(struct leased) + am->len);
    } else {
        on_answer(redis, &head, am->data, am->len);
    }
}

/* ---- clients --------------------------------------------------------------------------------- */

/* Of all threads. A worker has one handler of replies, and so one client. */
static pthread_mutex_t clients_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_redis_t *clients;

static weft_status_t add_client(weft_redis_t *redis) {
    pthread_mutex_lock(&clients_lock);
    weft_redis_t *other = clients;
    while (other && other->worker != redis->worker) other = other->next;
    if (!other) {
        redis->next = clients;
        clients = redis;
    }
    pthread_mutex_unlock(&clients_lock);
    return other ? WEFT_ERR_EXISTS : WEFT_OK;
}

static void remove_client(weft_redis_t *redis) {
    pthread_mutex_lock(&clients_lock);
    weft_redis_t **at = &clients;
    while (*at != redis) at = &(*at)->next;
    *at = redis->next;
    pthread_mutex_unlock(&clients_lock);
}

/* ---- the calls ------------------------------------------------------------------------------- */

static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft_redis_t *redis = arg;
    redis->lost = status;
    end_all(redis, status);
}

weft_status_t weft_redis_connect(weft_worker_t *worker, const char *uri, weft_redis_t **redis_p) {
    if (!worker || !uri || !redis_p) return WEFT_ERR_INVALID_PARAM;
    weft_redis_t *redis = calloc(1, sizeof *redis);
    if (!redis) return WEFT_ERR_NO_MEMORY;
    redis->worker = worker;
    redis->requests_end = &redis->requests;
    weft_status_t st = add_client(redis);
    if (st < 0) {
        free(redis);
        return st;
    }
    weft_ep_params_t params = {.on_error = on_lost, .arg = redis};
    st = weft_am_handler_set(worker, REDIS_REPLY_ID, on_reply, redis);
    if (st == WEFT_OK) st = weft_connect(worker, uri, &params, &redis->ep);
    if (st < 0) {
        (void)weft_am_handler_set(worker, REDIS_REPLY_ID, NULL, NULL);
        remove_client(redis);
        free(redis);
        return st;
    }
    *redis_p = redis;
    return WEFT_OK;
}

void weft_redis_close(weft_redis_t *redis) {
    if (!redis) return;
    (void)weft_am_handler_set(redis->worker, REDIS_REPLY_ID, NULL, NULL);
    weft_ep_on_error(redis->ep, NULL, NULL);
    (void)weft_ep_close(redis->ep, WEFT_CLOSE_FLUSH, NULL);
    for (struct large *large = redis->large; large; large = large->next) large->redis = NULL;
    end_all(redis, WEFT_ERR_CLOSED);
    remove_client(redis);
    free(redis);
}

weft_status_t weft_redis_get(weft_redis_t *redis, const void *key, size_t key_len,
                             weft_redis_done_fn done, void *arg) {
    return post(redis, REDIS_GET, key, key_len, NULL, 0, done, arg);
}
weft_status_t weft_redis_set(weft_redis_t *redis, const void *key, size_t key_len,
                             const void *value, size_t len, weft_redis_done_fn done, void *arg) {
    return post(redis, REDIS_SET, key, key_len, value, len, done, arg);
}
weft_status_t weft_redis_delete(weft_redis_t *redis, const void *key, size_t key_len,
                                weft_redis_done_fn done, void *arg) {
    return post(redis, REDIS_DELETE, key, key_len, NULL, 0, done, arg);
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct waiting {
    bool over;
    weft_status_t status;
    char *to;
    size_t room, len;
};

static void on_waited(weft_status_t status, const void *data, size_t len, void *arg) {
    struct waiting *w = arg;
    w->over = true;
    w->status = status;
    w->len = len;
    size_t taken = len < w->room ? len : w->room;
    if (taken) memcpy(w->to, data, taken);
}

/* A turn, which a callback cannot have. So nothing is posted that could not be waited for. */
static weft_status_t check_wait(const weft_redis_t *redis) {
    if (!redis) return WEFT_ERR_INVALID_PARAM;
    int handled = weft_worker_progress(redis->worker, 0);
    return handled < 0 ? (weft_status_t)handled : WEFT_OK;
}

/* Its reply is ignored. */
static void withdraw(weft_redis_t *redis, const struct waiting *w) {
    struct request *request = redis->requests;
    while (request && request->arg != w) request = request->next;
    if (!request) return;
    (void)take_request(redis, request->number);
    request->answered = true;
    free_request(request);
}

static weft_status_t wait_for(weft_redis_t *redis, weft_status_t posted, struct waiting *w) {
    if (posted < 0) return posted;
    weft_status_t st = WEFT_OK;
    while (!w->over && st >= 0) st = weft_worker_wait(redis->worker, -1);
    if (w->over) return w->status;
    withdraw(redis, w);
    return st;
}

weft_status_t weft_redis_get_wait(weft_redis_t *redis, const void *key, size_t key_len, void *value,
                                  size_t *len_p) {
    if (!len_p || (!value && *len_p)) return WEFT_ERR_INVALID_PARAM;
    struct waiting w = {.to = value, .room = *len_p};
    weft_status_t st = check_wait(redis);
    if (st < 0) return st;
    st = wait_for(redis, weft_redis_get(redis, key, key_len, on_waited, &w), &w);
    if (st == WEFT_OK && w.len > w.room) st = WEFT_ERR_TRUNCATED;
    *len_p = w.len;
    return st;
}
weft_status_t weft_redis_set_wait(weft_redis_t *redis, const void *key, size_t key_len,
                                  const void *value, size_t len) {
    struct waiting w = {0};
    weft_status_t st = check_wait(redis);
    if (st < 0) return st;
    return wait_for(redis, weft_redis_set(redis, key, key_len, value, len, on_waited, &w), &w);
}
weft_status_t weft_redis_delete_wait(weft_redis_t *redis, const void *key, size_t key_len) {
    struct waiting w = {0};
    weft_status_t st = check_wait(redis);
    if (st < 0) return st;
    return wait_for(redis, weft_redis_delete(redis, key, key_len, on_waited, &w), &w);
}

/* ---- leases ---------------------------------------------------------------------------------- */

struct weft_redis_lease {
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *rkey; /* NULL: the value is empty */
    struct leased at;
};

weft_status_t weft_redis_lease_wait(weft_redis_t *redis, const void *key, size_t key_len,
                                    weft_redis_lease_t **lease_p) {
    char bytes[sizeof(struct leased) + WEFT_RKEY_MAX];
    struct waiting w = {.to = bytes, .room = sizeof bytes};
    if (!lease_p) return WEFT_ERR_INVALID_PARAM;
    weft_status_t st = check_wait(redis);
    if (st < 0) return st;
    st = post(redis, REDIS_LEASE, key, key_len, NULL, 0, on_waited, &w);
    st = wait_for(redis, st, &w);
    if (st < 0) return st;
    weft_redis_lease_t *lease = calloc(1, sizeof *lease);
    if (!lease) return WEFT_ERR_NO_MEMORY;
    lease->worker = redis->worker;
    lease->ep = redis->ep;
    if (w.len > sizeof lease->at) {
        memcpy(&lease->at, bytes, sizeof lease->at);
        st = weft_rkey_unpack(redis->ep, bytes + sizeof lease->at, w.len - sizeof lease->at,
                              &lease->rkey);
    }
    if (st < 0) {
        free(lease);
        return st;
    }
    *lease_p = lease;
    return WEFT_OK;
}

size_t weft_redis_lease_len(const weft_redis_lease_t *lease) {
    return lease ? lease->at.len : 0;
}

weft_status_t weft_redis_lease_read_wait(weft_redis_lease_t *lease, void *to, size_t len) {
    if (!lease || (!to && len) || len > lease->at.len) return WEFT_ERR_INVALID_PARAM;
    if (len == 0) return WEFT_OK;
    /* Where the value is mapped, a get is a copy, and a turn of the worker sees that the key has
     * changed. */
    weft_status_t st = (weft_status_t)weft_worker_progress(lease->worker, 0);
    return st < 0 ? st : weft_get_wait(lease->ep, to, len, lease->at.address, lease->rkey);
}

void weft_redis_lease_release(weft_redis_lease_t *lease) {
    if (!lease) return;
    if (lease->rkey) weft_rkey_release(lease->rkey);
    free(lease);
}

/*
 * Puts, gets and atomics on the other side's memory. put_lat is a ping-pong by
 * memory: each side puts into the other one's and polls its own; gets and
 * fetching atomics go one at a time; the others as many as a window holds.
 */
#include "perf.h"
#include <string.h>

static const uint64_t map_spin_ns = 100000000;

/* A key as it crosses: where the region is, then the packed key. */
struct key {
    uint64_t base;
    uint8_t packed[WEFT_RKEY_MAX];
};

/* One side's region, and its keys to the other side's region. */
static struct side {
    weft_mem_t *mem;
    uint8_t *own;
    size_t size;
    uint64_t remote;
    weft_rkey_t *rkey;
    uint64_t in_progress;
    uint8_t awaited; /* put_lat: the byte that comes next */
    bool echo;
} asking, answering;
static uint64_t old;

static void on_asked(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "one-sided operation");
    asking.in_progress--;
}
static void on_answered(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "put");
    answering.in_progress--;
}
static const weft_op_t asked = {.done = on_asked}, put_back = {.done = on_answered};

/* ---- regions and keys ------------------------------------------------------------------------ */

static void open_region(struct perf *p, struct side *side, size_t size) {
    weft_mem_info_t info;
    size_t room = size > sizeof(uint64_t) ? size : sizeof(uint64_t);
    perf_must(
        weft_mem_alloc(p->worker, room, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &side->mem),
        "region");
    perf_must(weft_mem_describe(side->mem, &info), "region");
    memset(info.base, 0, room);
    side->own = info.base;
    side->size = size;
    side->awaited = 1;
}

static uint32_t write_key(const struct side *side, uint8_t *bytes) {
    struct key key = {.base = (uintptr_t)side->own};
    size_t len = sizeof key.packed;
    perf_must(weft_mem_pack(side->mem, key.packed, &len), "key");
    len += offsetof(struct key, packed);
    memcpy(bytes, &key, len);
    return (uint32_t)len;
}

static void read_key(struct side *side, weft_ep_t *ep, const uint8_t *bytes, size_t len) {
    struct key key;
    if (len < offsetof(struct key, packed) || len > sizeof key) perf_die("key", WEFT_ERR_PROTOCOL);
    memcpy(&key, bytes, len);
    perf_must(weft_rkey_unpack(ep, key.packed, len - offsetof(struct key, packed), &side->rkey),
              "key");
    side->remote = key.base;
}

static void on_released(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "release");
}

/* The memory goes when the other side has let go as well. */
static void let_go(struct side *side) {
    weft_rkey_release(side->rkey);
    perf_must(weft_mem_release(side->mem, &(weft_op_t){.done = on_released}), "release");
    *side = (struct side){0};
}

/* Where it can be mapped, operations before that take another way. */
static void wait_for_mapping(struct perf *p, struct side *side) {
    void *at;
    uint64_t end = perf_now() + map_spin_ns;
    while (perf_now() < end && weft_rkey_pointer(side->rkey, side->remote, &at) == WEFT_ERR_BUSY)
        weft_worker_progress(p->worker, 0);
}

/* ---- put_lat --------------------------------------------------------------------------------- */

/* The last byte shows that all came: puts write upwards. */
static bool has_come(const struct side *side) {
    return __atomic_load_n(&side->own[side->size - 1], __ATOMIC_ACQUIRE) == side->awaited;
}

static void put_turn(weft_ep_t *ep, struct side *side, uint8_t *bytes, const weft_op_t *op) {
    bytes[side->size - 1] = side->awaited;
    weft_status_t st = weft_put(ep, bytes, side->size, side->remote, side->rkey, op);
    perf_must(st, "put");
    side->in_progress += st == WEFT_IN_PROGRESS;
}

static void put_round_trips(struct perf *p, uint64_t n) {
    for (; n > 0; n--) {
        put_turn(p->ep, &asking, p->out, &asked);
        while (!has_come(&asking) || asking.in_progress > 0) perf_turn(p);
        asking.awaited++;
    }
}

/* What came goes back from where it is. */
static void poll_onesided(struct perf *p) {
    if (!answering.echo || !has_come(&answering) || answering.in_progress > 0) return;
    put_turn(p->asker, &answering, answering.own, &put_back);
    answering.awaited++;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Goes on when at most `most` operations are under way. */
static inline void posted(struct perf *p, weft_status_t st, uint64_t most) {
    if (st == WEFT_OK) return;
    perf_must(st, "one-sided operation");
    asking.in_progress++;
    while (asking.in_progress > most) perf_turn(p);
}

static void put_many(struct perf *p, uint64_t n) {
    for (; n > 0; n--)
        posted(p, weft_put(p->ep, p->out, asking.size, asking.remote, asking.rkey, &asked),
               p->options.window - 1);
}

static void get_each(struct perf *p, uint64_t n) {
    for (; n > 0; n--)
        posted(p, weft_get(p->ep, p->in, asking.size, asking.remote, asking.rkey, &asked), 0);
}

static void get_many(struct perf *p, uint64_t n) {
    for (; n > 0; n--)
        posted(p, weft_get(p->ep, p->in, asking.size, asking.remote, asking.rkey, &asked),
               p->options.window - 1);
}

static void fetch_each(struct perf *p, uint64_t n) {
    for (; n > 0; n--)
        posted(p,
               weft_atomic_fetch(p->ep, WEFT_ATOMIC_ADD, asking.size, 1, 0, &old, asking.remote,
                                 asking.rkey, &asked),
               0);
}

static void add_many(struct perf *p, uint64_t n) {
    for (; n > 0; n--)
        posted(p,
               weft_atomic_post(p->ep, WEFT_ATOMIC_ADD, asking.size, 1, asking.remote, asking.rkey,
                                &asked),
               p->options.window - 1);
}

/* ---- one measurement ------------------------------------------------------------------------- */

static struct perf_loop loop_of(const struct perf_options *options) {
    uint64_t window = options->window;
    switch (options->test) {
    case TEST_PUT_LAT: return (struct perf_loop){put_round_trips, 1, NULL};
    case TEST_PUT_BW: return (struct perf_loop){put_many, window, NULL};
    case TEST_GET_LAT: return (struct perf_loop){get_each, 1, NULL};
    case TEST_GET_BW: return (struct perf_loop){get_many, window, NULL};
    case TEST_ATOMIC_LAT: return (struct perf_loop){fetch_each, 1, NULL};
    default: return (struct perf_loop){add_many, window, NULL};
    }
}

/* What was posted counts when it is performed. */
static void flush_onesided(struct perf *p) {
    weft_op_t op = {.done = on_asked, .flags = WEFT_FLUSH_REMOTE};
    posted(p, weft_ep_flush(p->ep, &op), 0);
}

static void measure_onesided(struct perf *p, size_t size, struct perf_result *result_p) {
    struct perf_loop loop = loop_of(&p->options);
    struct perf_order order = {.command = PERF_BEGIN, .size = size};
    weft_rkey_info_t info;
    if (size == 0) perf_die("size 0", WEFT_ERR_INVALID_PARAM);
    open_region(p, &asking, size);
    order.n_bytes = write_key(&asking, order.bytes);
    const struct perf_answer *answer = perf_ask(p, &order);
    read_key(&asking, p->ep, answer->bytes, answer->n_bytes);
    wait_for_mapping(p, &asking);
    loop.finish = flush_onesided;
    perf_loop(p, size, &loop, result_p);
    if (weft_rkey_describe(asking.rkey, &info) == WEFT_OK)
        perf_note(result_p, "mapped", strcmp(info.put, "mapped") == 0);
    let_go(&asking);
}

static void begin_onesided(struct perf *p, const struct perf_order *order) {
    struct perf_answer answer = {0};
    if (order->size == 0) perf_die("size 0", WEFT_ERR_INVALID_PARAM);
    open_region(p, &answering, order->size);
    read_key(&answering, p->asker, order->bytes, order->n_bytes);
    answering.echo = order->test == TEST_PUT_LAT;
    answer.n_bytes = write_key(&answering, answer.bytes);
    perf_answer(p, &answer);
}

/* Each atomic added one: what they made says how many there were. */
static uint64_t performed(const struct perf_order *order) {
    uint64_t sum = 0;
    if (!(perf_tests[order->test].flags & PERF_WORDS)) return order->count;
    memcpy(&sum, answering.own, answering.size);
    if (answering.size == sizeof(uint32_t) && sum == (uint32_t)order->count) return order->count;
    return sum;
}

static void end(struct perf *p, const struct perf_order *order) {
    perf_answer(p, &(struct perf_answer){.count = performed(order)});
    let_go(&answering);
}

extern const struct perf_family perf_onesided;
const struct perf_family perf_onesided = {
    .measure = measure_onesided, .begin = begin_onesided, .end = end, .turn = poll_onesided};

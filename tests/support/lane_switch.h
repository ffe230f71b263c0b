/* Two workers with a link of two lanes that is driven to and fro, under traffic of every kind in
 * both directions. */
#ifndef WEFT_TESTS_SUPPORT_LANE_SWITCH_H
#define WEFT_TESTS_SUPPORT_LANE_SWITCH_H

#include "sim_workers.h"
#include <endpoints/lanes/switch_local.h>
#include <tests/support/clock.h>
#include <time.h>

enum { SIDES = 2, SLOTS = 16, LARGEST = 120000, REGION = 65536 };

/* One direction: what its sender has sent, and its receiver seen. */
struct flow {
    struct pair *pair;
    weft_ep_t *ep; /* the sender's */
    weft_worker_t *from, *to;
    uint64_t am_sent, am_done, am_seen, am_taken;
    uint64_t tag_sent, tag_done, tag_posted, tag_seen;
    uint64_t out, out_done, in;
    weft_mem_t *mem; /* the receiver's */
    weft_rkey_t *rkey;
    uint64_t *
        /* of it: two that a fence stands between, one that is added to, one that is fetched and
         * added to */
        words;
    uint64_t rma_sent, rma_done, asked, fetched;
    uint64_t flushes, flushed;
    weft_request_t *flush; /* to be cancelled */
    uint64_t old;
    bool gets;
    uint8_t got[REGION / 2];
};

struct pair {
    weft_context_t *context;
    struct reactor_clock *clock; /* NULL: real time */
    struct sim_fabric *fabric;
    weft_worker_t *worker[SIDES];
    struct flow flow[SIDES];
    int ready, errors;
    weft_status_t error;
    uint64_t wrong, failed, rounds;
    uint32_t number;
    unsigned kinds; /* of traffic */
};
enum { FLOW_AM = 1, FLOW_TAG = 2, FLOW_STREAM = 4, FLOW_RMA = 8, FLOW_FLUSH = 16, FLOW_ALL = 31 };

static uint8_t pattern_bytes[LARGEST + 256];
static __attribute__((constructor)) void switching_begin(void) {
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "64k", 0);
    setenv("WEFT_CALIBRATION", "off", 0);
    for (size_t i = 0; i < sizeof pattern_bytes; i++)
        pattern_bytes[i] = (uint8_t)(i * 131 + (i >> 8) * 17);
}
static size_t size_of(uint64_t n) {
    static const size_t size[] = {0, 8, 200, 3000, 8000, 30000, LARGEST, 8, 8, 100, 64};
    return size[n * 2654435761u % 4294967291u % 11];
}

/* ---- time */

static bool pair_turn(struct pair *p) {
    if (p->clock) return weft__clock_turn(p->clock);
    for (int i = 0; i < SIDES; i++)
        if (p->worker[i]) weft_worker_progress(p->worker[i], 0);
    return true;
}
static double pair_now(struct pair *p) {
    return p->clock ? (double)weft__clock_now(p->clock) * 1e-9 : test_now();
}
#define UNTIL(p, cond)                             \
    do {                                           \
        double until_end = pair_now(p) + 20;       \
        while (!(cond) && pair_now(p) < until_end) \
            if (!pair_turn(p)) break;              \
        CHECK(cond);                               \
    } while (0)

static void wrong(struct pair *p, int line) {
    if (p->wrong++ < 3)
        printf("  wrong at line %d, round %llu\n", line, (unsigned long long)p->rounds);
}

/* ---- active messages */

struct am_take {
    struct flow *flow;
    uint64_t n;
    uint8_t bytes[LARGEST];
};
static struct am_take am_takes[SIDES][SLOTS];

static void am_came(struct flow *f, uint64_t n, const void *bytes) {
    if (size_of(n) && memcmp(bytes, pattern_bytes + n % 256, size_of(n)) != 0)
        wrong(f->pair, __LINE__);
    f->am_taken++;
}
static void am_fetched(weft_status_t status, void *arg) {
    struct am_take *t = arg;
    if (status == WEFT_OK) am_came(t->flow, t->n, t->bytes);
    t->flow = NULL;
}
/* Handlers run in the order sent; payloads that are fetched come when they come. */
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct flow *f = arg;
    uint64_t n = 0;
    if (am->header_len == sizeof n) memcpy(&n, am->header, sizeof n);
    if (n != f->am_seen || am->len != size_of(n)) wrong(f->pair, __LINE__);
    f->am_seen++;
    if (am->data || am->len == 0) {
        am_came(f, n, am->data);
        return;
    }
    struct am_take *t = am_takes[f - f->pair->flow];
    while (t->flow) t++;
    t->flow = f;
    t->n = n;
    weft_op_t op = {.done = am_fetched, .arg = t};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){t->bytes, am->len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) am_fetched(st, t);
}
static void am_left(weft_status_t status, void *arg) {
    ((struct flow *)arg)->am_done++;
}
static void flow_am(struct flow *f) {
    while (f->am_sent - f->am_taken < SLOTS && f->am_sent - f->am_done < SLOTS) {
        weft_iov_t iov = {pattern_bytes + f->am_sent % 256, size_of(f->am_sent)};
        weft_op_t op = {.done = am_left, .arg = f};
        weft_status_t st = weft_am_send(f->ep, 3, &f->am_sent, sizeof f->am_sent, &iov, 1, &op);
        if (st < 0) return;
        f->am_done += st == WEFT_OK;
        f->am_sent++;
    }
}

/* ---- tagged messages */

static uint8_t tag_bytes[SIDES][SLOTS][LARGEST];
static void tag_came(weft_status_t status, void *arg) {
    if (status == WEFT_OK) ((struct flow *)arg)->tag_seen++;
}
static void tag_check(struct flow *f, uint64_t n) {
    if (memcmp(tag_bytes[f - f->pair->flow][n % SLOTS], pattern_bytes + n % 256, size_of(n + 5)) !=
        0)
        wrong(f->pair, __LINE__);
}
static void tag_left(weft_status_t status, void *arg) {
    ((struct flow *)arg)->tag_done++;
}
/* The batch that was received last. */
static void tag_check_batch(struct flow *f) {
    uint64_t first = f->tag_posted - (f->tag_posted ? SLOTS : 0);
    for (uint64_t n = first; n < f->tag_posted; n++) tag_check(f, n);
}
/* In batches: all of one are received before the next begins. */
static void flow_tag(struct flow *f, uint64_t direction) {
    if (f->tag_seen < f->tag_posted || f->tag_done < f->tag_sent) return;
    tag_check_batch(f);
    for (int i = 0; i < SLOTS; i++, f->tag_posted++) {
        weft_iov_t iov = {tag_bytes[direction][f->tag_posted % SLOTS], LARGEST};
        weft_op_t op = {.done = tag_came, .arg = f};
        (void)weft_tag_recv(f->to, direction << 40, UINT64_MAX, &iov, 1, NULL, &op);
    }
    for (int i = 0; i < SLOTS; i++, f->tag_sent++) {
        weft_iov_t iov = {pattern_bytes + f->tag_sent % 256, size_of(f->tag_sent + 5)};
        weft_op_t op = {.done = tag_left, .arg = f};
        f->tag_done += weft_tag_send(f->ep, direction << 40, &iov, 1, &op) != WEFT_IN_PROGRESS;
    }
}

/* ---- streams */

static void stream_left(weft_status_t status, void *arg) {
    ((struct flow *)arg)->out_done++;
}
static const size_t stream_piece[] = {1, 100, 5000, 60000, 13};
/* Each piece began with the pattern, from its offset in the stream modulo 256 on. */
static void stream_take(struct flow *f, weft_ep_t *receiver) {
    const void *data;
    size_t len;

    while (weft_stream_take(receiver, &data, &len) == WEFT_OK && len) {
        for (size_t i = 0; i < len;) {
            static uint64_t at[SIDES], piece_n[SIDES], piece_at[SIDES];
            int d = (int)(f - f->pair->flow);
            if (f->in == 0 && i == 0) at[d] = piece_n[d] = piece_at[d] = 0;
            size_t left = stream_piece[piece_n[d] % 5] - at[d],
                   take = len - i < left ? len - i : left;
            if (memcmp((const uint8_t *)data + i, pattern_bytes + piece_at[d] % 256 + at[d],
                       take) != 0)
                wrong(f->pair, __LINE__);
            i += take;
            at[d] += take;
            if (at[d] == stream_piece[piece_n[d] % 5]) {
                piece_at[d] += at[d];
                piece_n[d]++;
                at[d] = 0;
            }
        }
        f->in += len;
        weft_stream_release(f->to, data);
    }
}

static void flow_stream(struct flow *f, weft_ep_t *receiver) {
    static uint64_t posted[SIDES];
    uint64_t *n = &posted[f - f->pair->flow];
    if (f->out == 0) *n = f->out_done = 0;
    while (f->out - f->in < 300000 && *n - f->out_done < SLOTS) {
        weft_iov_t iov = {pattern_bytes + f->out % 256, stream_piece[*n % 5]};
        weft_op_t op = {.done = stream_left, .arg = f};
        weft_status_t st = weft_stream_send(f->ep, &iov, 1, &op);
        if (st < 0) return;
        f->out_done += st == WEFT_OK;
        f->out += iov.len;
        ++*n;
    }
    stream_take(f, receiver);
}
/* ---- one-sided operations */

static void rma_left(weft_status_t status, void *arg) {
    struct flow *f = arg;
    f->pair->failed += status < 0; /* which must have been the link's end */
    f->rma_done++;
}
static void fetched(weft_status_t status, void *arg) {
    struct flow *f = arg;
    if (f->old != f->fetched++ && status == WEFT_OK) wrong(f->pair, __LINE__);
    rma_left(status, arg);
}
static void got(weft_status_t status, void *arg) {
    struct flow *f = arg;
    f->gets = false;
    if (status == WEFT_OK && memcmp(f->got, pattern_bytes, sizeof f->got) != 0)
        wrong(f->pair, __LINE__);
    rma_left(status, arg);
}
static void count_rma(struct flow *f, weft_status_t st, void (*done)(weft_status_t, void *)) {
    f->rma_sent++;
    if (st != WEFT_IN_PROGRESS) done(st, f);
}
static void flow_rma(struct flow *f) {
    uint64_t base = (uint64_t)(uintptr_t)f->words;
    uint64_t second = __atomic_load_n(&f->words[1], __ATOMIC_ACQUIRE),
             first = __atomic_load_n(&f->words[0], __ATOMIC_ACQUIRE);
    if (second > first) wrong(f->pair, __LINE__);
    static uint64_t values[SIDES][64];
    if (f->rma_sent - f->rma_done > 8) return;
    uint64_t n = f->rma_sent + 1, *value = &values[f - f->pair->flow][n % 64];
    *value = n;
    weft_op_t op = {.done = rma_left, .arg = f, .flags = n % 4 ? 0 : WEFT_RMA_REMOTE};
    weft_op_t get = {.done = got, .arg = f}, fetch = {.done = fetched, .arg = f};
    count_rma(f, weft_put(f->ep, value, 8, base, f->rkey, &op), rma_left);
    (void)weft_ep_fence(f->ep);
    count_rma(f, weft_put(f->ep, value, 8, base + 8, f->rkey, &op), rma_left);
    count_rma(f, weft_atomic_post(f->ep, WEFT_ATOMIC_ADD, 8, 1, base + 16, f->rkey, &op), rma_left);
    if (f->rma_sent - f->rma_done == 0 || f->fetched * 4 <= f->rma_done) {
        if (f->asked == f->fetched) {
            f->asked++;
            count_rma(f,
                      weft_atomic_fetch(f->ep, WEFT_ATOMIC_ADD, 8, 1, 0, &f->old, base + 24,
                                        f->rkey, &fetch),
                      fetched);
        }
    }
    if (f->gets) return;
    f->gets = true;
    count_rma(f, weft_get(f->ep, f->got, sizeof f->got, base + REGION / 2, f->rkey, &get), got);
}

/* ---- flushes */

static void flushed(weft_status_t status, void *arg) {
    struct flow *f = arg;
    f->pair->failed += status < 0; /* nothing that was sent is ever lost */
    f->flushed++;
}
static void flush_cancelled(weft_status_t status, void *arg) {
    struct flow *f = arg;
    f->flush = NULL;
    flushed(status == WEFT_ERR_CANCELLED ? WEFT_OK : status, arg);
}
/* Every fifth is cancelled when the next is due. */
static void flow_flush(struct flow *f) {
    if (f->flush) weft_request_cancel(f->flush);
    f->flush = NULL;
    if (f->flushes - f->flushed > 4) return;
    weft_op_t op = {.done = flushed, .arg = f, .flags = f->flushes % 3 ? 0 : WEFT_FLUSH_REMOTE};
    if (f->flushes % 5 == 0) op.done = flush_cancelled, op.request_p = &f->flush;
    weft_status_t st = weft_ep_flush(f->ep, &op);
    f->flushes++;
    if (st != WEFT_IN_PROGRESS) flushed(st, f);
}

/* ---- life */

static void on_endpoint(weft_ep_t *ep, void *arg) {
    ((struct pair *)arg)->flow[1].ep = ep;
}
static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct pair *)arg)->ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct pair *p = arg;
    p->errors++;
    p->error = status;
}
static void on_closed(weft_status_t status, void *arg) {
    *(weft_worker_t **)arg = NULL;
}

static void pair_begin(struct pair *p, const char *transports, const weft_setting_t *settings,
                       size_t n, const struct sim_profile *profile, uint64_t seed) {
    memset(p, 0, sizeof *p);
    memset(am_takes, 0, sizeof am_takes);
    p->kinds = FLOW_ALL;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = n},
                                 &p->context),
             0);
    if (profile) {
        CHECK(p->clock = weft__clock_create(NULL, seed));
        CHECK(p->fabric = weft__sim_create(p->clock, seed, profile));
        weft__sim_use(p->fabric);
    }
    for (int i = 0; i < SIDES; i++) {
        weft_worker_params_t params = {
            .transports = transports, .on_endpoint = on_endpoint, .on_error = on_error, .arg = p};
        p->worker[i] = sim_worker(p->context, p->clock, &params);
    }
}

static void pair_flows(struct pair *p) {
    for (int i = 0; i < SIDES; i++) {
        struct flow *f = &p->flow[i];
        weft_mem_info_t info;
        char key[WEFT_RKEY_MAX];
        size_t len = sizeof key;
        f->pair = p;
        f->from = p->worker[i];
        f->to = p->worker[!i];
        CHECK_EQ(weft_am_handler_set(f->to, 3, on_am, f), 0);
        CHECK_EQ(
            weft_mem_alloc(f->to, REGION, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &f->mem),
            0);
        CHECK_EQ(weft_mem_describe(f->mem, &info), 0);
        f->words = info.base;
        memset(f->words, 0, REGION);
        memcpy((char *)f->words + REGION / 2, pattern_bytes, REGION / 2);
        CHECK_EQ(weft_mem_pack(f->mem, key, &len), 0);
        CHECK_EQ(weft_rkey_unpack(f->ep, key, len, &f->rkey), 0);
    }
}

/* The first transport of `where` ("tcp://…") or NULL, by address. */
static void pair_up(struct pair *p, const char *where) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_params_t params = {.on_ready = on_ready, .on_error = on_error, .arg = p};
    if (where) {
        weft_listener_t *l;
        weft_listen_params_t listen = {.on_endpoint = on_endpoint, .on_error = on_error, .arg = p};
        CHECK_EQ(weft_listen(p->worker[1], where, &listen, &l), 0);
        CHECK_EQ(weft_connect(p->worker[0], weft_listener_uri(l), &params, &p->flow[0].ep), 0);
    } else {
        CHECK_EQ(weft_worker_address(p->worker[1], address, &len), 0);
        CHECK_EQ(weft_connect_address(p->worker[0], address, len, &params, &p->flow[0].ep), 0);
    }
    UNTIL(p, p->ready && p->flow[1].ep);
    pair_flows(p);
}

static void pair_traffic(struct pair *p) {
    for (int i = 0; i < SIDES; i++) {
        struct flow *f = &p->flow[i];
        if (p->kinds & FLOW_AM) flow_am(f);
        if (p->kinds & FLOW_TAG) flow_tag(f, (uint64_t)i);
        if (p->kinds & FLOW_STREAM) flow_stream(f, p->flow[!i].ep);
        if (p->kinds & FLOW_RMA) flow_rma(f);
        if (p->kinds & FLOW_FLUSH) flow_flush(f);
    }
}

static bool pair_quiet(struct pair *p) {
    for (int i = 0; i < SIDES; i++) {
        struct flow *f = &p->flow[i];
        if (f->am_taken < f->am_sent || f->am_done < f->am_sent || f->tag_seen < f->tag_posted ||
            f->tag_done < f->tag_sent || f->in < f->out || f->rma_done < f->rma_sent ||
            f->flushed < f->flushes)
            return false;
    }
    return true;
}

/* All has come, once and in order. */
static void pair_finish(struct pair *p) {
    double end = pair_now(p) + 20;
    while (!pair_quiet(p) && pair_now(p) < end) {
        for (int i = 0; i < SIDES; i++) stream_take(&p->flow[i], p->flow[!i].ep);
        if (!pair_turn(p)) break;
    }
    CHECK(pair_quiet(p));
    for (int i = 0; i < SIDES; i++) tag_check_batch(&p->flow[i]);
    CHECK_EQ(p->wrong + p->failed, 0);
    CHECK_EQ(p->errors, 0);
}

static void pair_end(struct pair *p) {
    for (int i = 0; i < SIDES; i++) {
        if (p->flow[i].rkey) weft_rkey_release(p->flow[i].rkey);
        CHECK_EQ(
            weft_worker_close(p->worker[i], &(weft_op_t){.done = on_closed, .arg = &p->worker[i]}),
            WEFT_IN_PROGRESS);
    }
    double end = pair_now(p) + 60;
    while ((p->worker[0] || p->worker[1]) && pair_now(p) < end)
        if (!pair_turn(p)) break;
    CHECK(!p->worker[0] && !p->worker[1]);
    if (p->clock) {
        for (int i = 0; i < 10; i++) weft__clock_turn(p->clock);
        talloc_free(p->clock);
    }
    CHECK_EQ(weft_context_destroy(p->context), 0);
}

/* ---- the switch */

static struct link *link_of(struct pair *p, int side) {
    return p->flow[side].ep->link;
}
static unsigned state_of(struct pair *p, int side) {
    struct link *l = link_of(p, side);
    return !l                    ? SWITCH_OVER
           : !l->more->switching ? SWITCH_ALONE
                                 : l->more->switching->core.fsm.state;
}
static bool both_in(struct pair *p, unsigned state) {
    return state_of(p, 0) == state && state_of(p, 1) == state;
}
static uint32_t epoch_of(struct pair *p, int side) {
    return link_of(p, side)->more->switching->core.epoch_out;
}

/* `dialer` dials the other lane by `name`. */
static weft_status_t pair_join(struct pair *p, int dialer, const char *name, bool scarce) {
    char address[96];
    size_t len = sizeof address;
    struct iface *here = weft__worker_iface(p->worker[dialer], name, strlen(name)),
                 *there = weft__worker_iface(p->worker[!dialer], name, strlen(name));
    CHECK_EQ(there->ops->address(there, address, &len), 0);
    weft_status_t st = weft__switch_expect(link_of(p, !dialer), there, ++p->number);
    if (st == WEFT_OK)
        st = weft__switch_dial(link_of(p, dialer), here, address, len, scarce, p->number);
    return st;
}
static bool is_away(struct pair *p, uint32_t epoch) {
    return both_in(p, SWITCH_BESIDE) && epoch_of(p, 0) > epoch && epoch_of(p, 1) > epoch;
}

/* Switches there and back, with traffic during both. */
static inline void pair_round(struct pair *p, const char *name, bool scarce) {
    uint32_t epoch = link_of(p, 0)->more->switching ? epoch_of(p, 0) : 0;
    int dialer = (int)(p->rounds % 2), back = (int)(p->rounds / 2 % 3);
    CHECK_EQ(pair_join(p, dialer, name, scarce), 0);
    double end = pair_now(p) + 20;
    while (!is_away(p, epoch) && pair_now(p) < end && !p->errors) {
        pair_traffic(p);
        pair_turn(p);
    }
    CHECK(is_away(p, epoch));
    for (uint64_t i = 0; i < p->rounds % 5; i++) {
        pair_traffic(p);
        pair_turn(p);
    }
    if (back != 1) CHECK_EQ(weft__switch_back(link_of(p, 0)), 0);
    if (back != 0) CHECK(weft__switch_back(link_of(p, 1)) <= 0);
    while (!both_in(p, SWITCH_ALONE) && pair_now(p) < end && !p->errors) {
        pair_traffic(p);
        pair_turn(p);
    }
    CHECK(both_in(p, SWITCH_ALONE));
    p->rounds++;
}

#endif

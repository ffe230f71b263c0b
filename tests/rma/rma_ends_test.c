/*
 * Every kind of one-sided operation meets every way to end it while it is under way, over each
 * transport and by messages: it completes once, with a status that is written down. And memory runs
 * out at each allocation in turn.
 */
#include <tests/support/rma_peers.h>

#include <reactor/reactor.h>

enum kind {
    PUT,
    PUT_REMOTE,
    GET,
    FETCH,
    ADD_REMOTE,
    PUT_PIECES,
    GET_PIECES,
    BEHIND_FENCE,
    REMOTE_FLUSH,
    REVOKE,
    N_KINDS
};
enum way {
    CANCEL,
    DEADLINE,
    ABORT,
    FLUSH_CLOSE,
    PEER_CLOSES,
    PEER_GONE,
    WORKER_GONE,
    RELEASED,
    N_WAYS
};
static const char *const kind_name[] = {"put",          "remote put", "get",        "fetch",
                                        "remote add",   "put pieces", "get pieces", "behind fence",
                                        "remote flush", "revoke"};
static const char *const way_name[] = {"cancel",          "deadline",        "close, abort",
                                       "close, flush",    "the peer closes", "the peer goes",
                                       "the worker goes", "the region goes"};

enum { BIG = 1 << 20, PIECES = 300 };
static char *memory;

struct meeting {
    struct rma r;
    struct tally op, closed;
    weft_request_t *request;
    uint64_t old;
};

static void op_done(weft_status_t status, void *arg) {
    struct meeting *m = arg;
    tally(status, &m->op);
    m->request = NULL;
}

static weft_status_t begin(struct meeting *m, enum kind kind, enum way way) {
    weft_ep_t *ep = m->r.t.ep;
    weft_op_t op = {.done = op_done,
                    .arg = m,
                    .request_p = &m->request,
                    .deadline_ms = way == DEADLINE ? 3 : 0};
    uint64_t at = rma_at(&m->r, 0);
    weft_rkey_t *rkey = m->r.rkey;
    weft_local_t local = {memory, 1000, 2000, PIECES, NULL};
    weft_remote_t range = {at, 1000 * PIECES, 0, 0, rkey};
    op.flags = kind == PUT_REMOTE || kind == ADD_REMOTE || kind == PUT_PIECES ? WEFT_RMA_REMOTE : 0;
    switch (kind) {
    case PUT:
    case PUT_REMOTE: return weft_put(ep, memory, BIG, at, rkey, &op);
    case GET: return weft_get(ep, memory, BIG, at, rkey, &op);
    case FETCH: return weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &m->old, at, rkey, &op);
    case ADD_REMOTE: return weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, at, rkey, &op);
    case PUT_PIECES: return weft_put_pieces(ep, &local, 1, &range, 1, &op);
    case GET_PIECES:
        local = (weft_local_t){memory, 1000 * PIECES, 0, 0, NULL};
        range = (weft_remote_t){at, 1000, 2000, PIECES, rkey};
        return weft_get_pieces(ep, &local, 1, &range, 1, &op);
    case BEHIND_FENCE:
        (void)weft_get(ep, memory, BIG, at, rkey, NULL);
        CHECK_EQ(weft_ep_fence(ep), 0);
        return weft_put(ep, memory, 100, at, rkey, &op);
    case REMOTE_FLUSH:
        (void)weft_put(ep, memory, BIG, at, rkey, NULL);
        op.flags = WEFT_FLUSH_REMOTE;
        return weft_ep_flush(ep, &op);
    case REVOKE:
        (void)weft_get(ep, memory, BIG, at, rkey, NULL);
        for (int i = 0; i < 3; i++) two_turn(&m->r.t);
        return weft_mem_revoke(m->r.mem, &op);
    case N_KINDS: break;
    }
    return WEFT_OK;
}

static void end(struct meeting *m, enum way way) {
    struct two *t = &m->r.t;
    switch (way) {
    case CANCEL: weft_request_cancel(m->request); break;
    case DEADLINE: usleep(4000); break;
    case ABORT:
        CHECK_EQ(weft_ep_close(t->ep, WEFT_CLOSE_ABORT, OP(&m->closed)), WEFT_IN_PROGRESS);
        break;
    case FLUSH_CLOSE:
        CHECK_EQ(weft_ep_close(t->ep, WEFT_CLOSE_FLUSH, OP(&m->closed)), WEFT_IN_PROGRESS);
        break;
    case PEER_CLOSES:
        CHECK_EQ(weft_ep_close(t->back, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
        break;
    case PEER_GONE:
        weft_worker_destroy(t->b);
        t->b = NULL;
        break;
    case WORKER_GONE:
        weft_worker_destroy(t->a);
        t->a = NULL;
        break;
    case RELEASED: (void)weft_mem_release(m->r.mem, NULL); break;
    case N_WAYS: break;
    }
}

static void meet(const char *transport, bool messages, enum kind kind, enum way way, int turns) {
    struct meeting m = {0};
    weft_setting_t quiet[] = {{"log.level", "none"}};
    if (!strcmp(transport, "self") && way == PEER_GONE) return;
    if (kind == REVOKE && way == RELEASED) return;
    rma_up(&m.r, transport, messages, BIG, WEFT_MEM_ALL, quiet, 1);
    weft_status_t st = begin(&m, kind, way);
    CHECK(st >= 0);
    if (way == WORKER_GONE || way == ABORT) weft_rkey_release(m.r.rkey);
    for (int i = 0; i < turns && !m.op.calls; i++) two_turn(&m.r.t);
    int before = m.op.calls;
    if (st == WEFT_IN_PROGRESS && !before) {
        end(&m, way);
        /* never inside */
        if (way == CANCEL || way == ABORT || way == FLUSH_CLOSE) CHECK_EQ(m.op.calls, 0);
        struct worker_of {
            weft_worker_t *w;
        } owner = {kind == REVOKE ? two_b(&m.r.t) : m.r.t.a};
        if (owner.w) UNTIL(&m.r.t, m.op.calls == 1);
        CHECK_EQ(m.op.calls, 1);
        st = m.op.status;
        bool known = st == WEFT_OK || st == WEFT_ERR_CANCELLED || st == WEFT_ERR_TIMED_OUT ||
                     st == WEFT_ERR_CLOSED || st == WEFT_ERR_PEER_CLOSED ||
                     st == WEFT_ERR_PEER_FAILED || st == WEFT_ERR_REVOKED;
        if (!known)
            printf("  %s: %s, %s: %s\n", transport, kind_name[kind], way_name[way],
                   weft_status_name(st));
        CHECK(known);
    }
    for (int i = 0; i < 20; i++) two_turn(&m.r.t);
    two_down(&m.r.t);
    CHECK(m.op.calls <= 1);
}

/* After 0, 1 and 3 turns; without the 1 where every worker that is opened is emulated. */
TEST_WAYS(every_operation_ends_once_whatever_ends_it) {
    bool emulated = test_timeout(1) > 1;
    memory = malloc(BIG);
    for (enum kind kind = 0; kind < N_KINDS; kind++)
        for (enum way way = 0; way < N_WAYS; way++)
            for (int turns = 0; turns < 4; turns += emulated ? 3 : 1 + turns)
                meet(transport, messages, kind, way, turns);
    free(memory);
}

/* ---- memory runs out */

static int posted, completed;
static void count(weft_status_t status, void *arg) {
    completed++;
}

static void turn_both(weft_worker_t *a, weft_worker_t *b, int n) {
    while (n-- > 0) {
        if (a) weft_worker_progress(a, 0);
        if (b) weft_worker_progress(b, 0);
    }
}

struct life {
    weft_context_t *context;
    weft_worker_t *a, *b;
    weft_ep_t *ep;
    weft_mem_t *mem, *cached;
    weft_rkey_t *rkey;
    int ready, lost;
};
static void life_ready(weft_ep_t *ep, void *arg) {
    ((struct life *)arg)->ready++;
}
static void life_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct life *)arg)->lost++;
}

/* `wait`: the most seconds for the endpoint. Where memory runs out, none may come. */
static void live(struct life *l, const char *transport, bool messages, double wait) {
    static char big[300000], key[WEFT_RKEY_MAX];
    char address[256];
    size_t len = sizeof address, key_len = sizeof key;
    weft_setting_t settings[] = {
        {"rma.max_keys", messages ? "0" : "8"}, {"log.level", "none"}, {"close.timeout", "4ms"}};
    weft_mem_info_t info;
    uint64_t old;
    weft_op_t op = {.done = count};
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 3},
                            &l->context) < 0)
        return;
    if (weft_worker_create(l->context, &(weft_worker_params_t){.transports = transport}, &l->a) < 0)
        return;
    if (weft_worker_create(l->context, &(weft_worker_params_t){.transports = transport}, &l->b) < 0)
        return;
    if (weft_worker_address(l->b, address, &len) < 0) return;
    if (weft_connect_address(
            l->a, address, len,
            &(weft_ep_params_t){.on_ready = life_ready, .on_error = life_lost, .arg = l},
            &l->ep) < 0)
        return;
    double stop = test_now() + wait;
    while (!l->ready && !l->lost && test_now() < stop) turn_both(l->a, l->b, 10);
    if (!l->ready) return;
    if (weft_mem_alloc(l->b, sizeof big, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &l->mem) < 0)
        return;
    if (weft_mem_get(l->a, big, sizeof big, 0, &l->cached) == WEFT_OK) weft_mem_put(l->cached);
    (void)weft_mem_invalidate(l->a, big, sizeof big, NULL);
    if (weft_mem_describe(l->mem, &info) < 0 || weft_mem_pack(l->mem, key, &key_len) < 0) return;
    if (weft_rkey_unpack(l->ep, key, key_len, &l->rkey) < 0) return;
    turn_both(l->a, l->b, 30);
    uint64_t at = (uint64_t)(uintptr_t)info.base;
    weft_local_t local = {big, 100, 200, 50, NULL};
    weft_remote_t remote = {at, 5000, 0, 0, l->rkey};
    posted += weft_put(l->ep, big, sizeof big, at, l->rkey, &op) == WEFT_IN_PROGRESS;
    op.flags = WEFT_RMA_REMOTE;
    posted += weft_put(l->ep, big, 10, at, l->rkey, &op) == WEFT_IN_PROGRESS;
    posted += weft_put_pieces(l->ep, &local, 1, &remote, 1, &op) == WEFT_IN_PROGRESS;
    op.flags = 0;
    (void)weft_ep_fence(l->ep);
    posted += weft_get(l->ep, big, sizeof big, at, l->rkey, &op) == WEFT_IN_PROGRESS;
    posted += weft_atomic_fetch(l->ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, l->rkey, &op) ==
              WEFT_IN_PROGRESS;
    op.flags = WEFT_FLUSH_REMOTE;
    posted += weft_worker_flush(l->a, &op) == WEFT_IN_PROGRESS;
    op.flags = 0;
    turn_both(l->a, l->b, 100);
    posted += weft_mem_revoke(l->mem, &op) == WEFT_IN_PROGRESS;
    turn_both(l->a, l->b, 30);
    posted += weft_mem_release(l->mem, &op) == WEFT_IN_PROGRESS;
    turn_both(l->a, l->b, 30);
}

static void free_later(struct life *l) {
    if (l->a) weft_worker_destroy(l->a);
    if (l->b) weft_worker_destroy(l->b);
    if (l->context) CHECK_EQ(weft_context_destroy(l->context), 0);
}

TEST_WAYS(memory_runs_out_anywhere_and_all_that_was_accepted_ends) {
    if (!strcmp(transport, "self")) return;
    struct life l = {0};
    posted = completed = 0;
    weft__alloc_fail_at(0);
    live(&l, transport, messages, test_timeout(20));
    uint64_t n = weft__alloc_fail_at(0);
    CHECK(l.ready && l.rkey);
    free_later(&l);
    CHECK_EQ(completed, posted);
    for (uint64_t k = 1; k <= n; k++) {
        memset(&l, 0, sizeof l);
        posted = completed = 0;
        weft__alloc_fail_at(k);
        live(&l, transport, messages, 2);
        weft__alloc_fail_at(0);
        free_later(&l);
        CHECK_EQ(completed, posted);
    }
    printf("  %s: each of %lu allocations failed in turn\n", transport, (unsigned long)n);
}

/* The peer has it mapped, so that its release goes on. */
TEST(a_registration_that_is_being_released_is_no_local_piece) {
    enum { LEN = 16 << 20 };
    struct rma r;
    struct tally got = {0}, released = {0};
    weft_mem_t *mem;
    weft_mem_info_t info;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_rkey_t *back;
    rma_up(&r, "shm", false, LEN, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_alloc(r.t.a, LEN, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(r.t.back, key, len, &back), 0);
    UNTIL(&r.t, back->key->status == WEFT_OK);
    weft_local_t here = {.base = info.base, .len = LEN, .mem = mem};
    weft_remote_t there = {.base = rma_at(&r, 0), .len = LEN, .rkey = r.rkey};
    CHECK_EQ(RMA_WAIT(&r, &got, weft_get_pieces(r.t.ep, &here, 1, &there, 1, OP(&got))), 0);
    CHECK_EQ(weft_mem_release(mem, OP(&released)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_get_pieces(r.t.ep, &here, 1, &there, 1, OP(&got)), WEFT_ERR_BUSY);
    UNTIL(&r.t, released.calls);
    weft_rkey_release(back);
    rma_down(&r);
}

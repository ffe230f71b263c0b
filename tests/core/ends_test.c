/*
 * Each kind of pending operation meets each way to end it, over each transport: it completes once,
 * with a status that is written down, and its memory belongs to the program again.
 */
#include <tests/support/worker_pair.h>

enum kind { UNCONNECTED, FULL_LANE, OFFERED, HALF_WAY, POSTED, FLUSH, FETCHING, N_KINDS };
enum way { CANCEL, DEADLINE, ABORT, FLUSH_CLOSE, PEER_CLOSES, PEER_GONE, WORKER_GONE, N_WAYS };
static const char *const kind_name[] = {"before the connection",
                                        "behind a full lane",
                                        "offered",
                                        "half way",
                                        "posted",
                                        "flush",
                                        "fetching"};
static const char *const way_name[] = {"cancel",         "deadline",        "close, abort",
                                       "close, flush",   "the peer closes", "the peer goes",
                                       "the worker goes"};

enum { BIG = 600000, SMALL = 4000 };
struct meeting {
    struct two t;
    const char *transport;
    enum kind kind;
    enum way way;
    /* the one watched; the endpoint's close; the other side's operation */
    struct tally op, closed, theirs;
    weft_request_t *request;
    char *memory, *other; /* what the operation uses; what the other side does */
    size_t len;
    bool returned; /* the operation ended at once */
    int arrived, spoiled;
};

static void op_done(weft_status_t status, void *arg) {
    struct meeting *m = arg;
    m->op.calls++;
    m->op.status = status;
    /* It is ours again: whatever the peer still gets must not be this. */
    if (m->kind != POSTED && m->kind != FETCHING) memset(m->memory, 0xee, m->len);
    m->request = NULL;
}
static const weft_op_t *op_of(struct meeting *m) {
    static weft_op_t op;
    op = (weft_op_t){.done = op_done, .arg = m, .request_p = &m->request};
    if (m->way == DEADLINE) op.deadline_ms = 5;
    return &op;
}

/* The peer's handlers: what arrives whole must be what was sent. */
static void on_whole(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct meeting *m = arg;
    m->arrived++;
    if (am->data && !is_pattern(am->data, am->len, 1)) m->spoiled++;
}
static void on_theirs(weft_status_t status, void *arg) {
    struct meeting *m = arg;
    m->theirs.calls++;
    m->theirs.status = status;
    if (status == WEFT_OK && m->kind != FETCHING && !is_pattern(m->other, BIG, 1)) m->spoiled++;
}
/* Of FETCHING: what the peer offers is taken here, by the operation that is watched. */
static void on_offer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct meeting *m = arg;
    m->arrived++;
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){m->memory, m->len}, 1, op_of(m));
    m->returned = st != WEFT_IN_PROGRESS;
}

static void turn_a(struct meeting *m, int n) {
    while (n-- > 0 && m->t.a) weft_worker_progress(m->t.a, 0);
}
static void turns(struct meeting *m, int n) {
    while (n-- > 0) two_turn(&m->t);
}

/* The operation is accepted, and as far as its kind says. */
static void begin(struct meeting *m) {
    struct two *t = &m->t;
    weft_iov_t iov = {m->memory, BIG};
    weft_status_t st = WEFT_OK;
    m->len = BIG;
    switch (m->kind) {
    case UNCONNECTED:
        two_dial(t);
        m->len = iov.len = SMALL;
        st = weft_am_send(t->ep, 1, NULL, 0, &iov, 1, op_of(m));
        break;
    case FULL_LANE:
        m->len = iov.len = SMALL;
        for (int i = 0; i < 100000 && st == WEFT_OK; i++)
            st = weft_am_send(t->ep, 1, NULL, 0, &iov, 1, op_of(m));
        break;
    case OFFERED: st = weft_tag_send(t->ep, 5, &iov, 1, op_of(m)); break;
    case HALF_WAY:
        CHECK_EQ(weft_tag_recv(two_b(t), 5, UINT64_MAX, &(weft_iov_t){m->other, BIG}, 1, NULL,
                               &(weft_op_t){.done = on_theirs, .arg = m}),
                 WEFT_IN_PROGRESS);
        st = weft_tag_send(t->ep, 5, &iov, 1, op_of(m));
        /* The offer goes over, the request comes back; a part may be on its way. */
        turn_a(m, 1);
        if (t->b) weft_worker_progress(t->b, 0), weft_worker_progress(t->b, 0);
        turn_a(m, 1);
        break;
    case POSTED: st = weft_tag_recv(t->a, 6, UINT64_MAX, &iov, 1, NULL, op_of(m)); break;
    case FLUSH:
        for (int i = 0; i < 200; i++)
            CHECK(weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){m->memory, SMALL}, 1, NULL) >= 0);
        st = weft_ep_flush(t->ep, op_of(m));
        m->len = 0;
        break;
    case FETCHING:
        CHECK_EQ(weft_am_send(t->back, 2, NULL, 0, &(weft_iov_t){m->other, BIG}, 1,
                              &(weft_op_t){.done = on_theirs, .arg = m}),
                 WEFT_IN_PROGRESS);
        UNTIL(t, m->arrived == 1);
        st = m->returned ? WEFT_OK : WEFT_IN_PROGRESS;
        break;
    case N_KINDS: break;
    }
    m->returned = st == WEFT_OK;
    CHECK(st >= 0);
}

static void end(struct meeting *m) {
    struct two *t = &m->t;
    weft_op_t closed = {.done = tally, .arg = &m->closed};
    switch (m->way) {
    case CANCEL: weft_request_cancel(m->request); break;
    case DEADLINE: usleep(6000); break;
    case ABORT: CHECK_EQ(weft_ep_close(t->ep, WEFT_CLOSE_ABORT, &closed), WEFT_IN_PROGRESS); break;
    case FLUSH_CLOSE:
        CHECK_EQ(weft_ep_close(t->ep, WEFT_CLOSE_FLUSH, &closed), WEFT_IN_PROGRESS);
        break;
    case PEER_CLOSES:
        if (t->back) CHECK_EQ(weft_ep_close(t->back, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
        break;
    case PEER_GONE:
        weft_worker_destroy(t->b);
        t->b = NULL;
        break;
    case WORKER_GONE:
        weft_worker_destroy(t->a);
        t->a = NULL;
        CHECK_EQ(m->op.calls, 1);
        break;
    case N_WAYS: break;
    }
}

static bool documented(const struct meeting *m) {
    weft_status_t st = m->op.status;
    /* past recall */
    if (st == WEFT_OK) return true;
    /* no listener */
    if (m->kind == UNCONNECTED && m->way == PEER_GONE && st == WEFT_ERR_REFUSED) return true;
    switch (m->way) {
    case CANCEL: return st == WEFT_ERR_CANCELLED;
    case DEADLINE: return st == WEFT_ERR_TIMED_OUT;
    case ABORT: return st == WEFT_ERR_CLOSED;
    case FLUSH_CLOSE: return st == WEFT_ERR_TIMED_OUT;
    case PEER_CLOSES:
    case PEER_GONE:
        return st == WEFT_ERR_PEER_CLOSED || st == WEFT_ERR_PEER_FAILED || st == WEFT_ERR_CANCELLED;
    case WORKER_GONE: return st == WEFT_ERR_CLOSED;
    case N_WAYS: break;
    }
    return false;
}

/* Does this way end that kind by itself? A receive that is posted belongs to no endpoint. */
static bool must_end(const struct meeting *m) {
    if (m->way == CANCEL || m->way == DEADLINE || m->way == WORKER_GONE) return true;
    if (m->kind == POSTED) return false;
    return m->way != PEER_CLOSES || m->t.back;
}

static void meet(const char *transport, enum kind kind, enum way way, weft_setting_t extra) {
    struct meeting m = {.transport = transport, .kind = kind, .way = way};
    weft_setting_t settings[] = {{"close.timeout", "15ms"}, {"log.level", "none"}, extra};
    /* The worker's own peer goes with it. */
    if (!strcmp(transport, "self") && way == PEER_GONE) return;
    m.memory = malloc(BIG);
    m.other = malloc(BIG);
    pattern(m.memory, BIG, 1);
    pattern(m.other, BIG, kind == FETCHING);
    two_workers(&m.t, transport, settings, extra.name ? 3 : 2);
    CHECK_EQ(weft_am_handler_set(two_b(&m.t), 1, on_whole, &m), 0);
    CHECK_EQ(weft_am_handler_set(m.t.a, 2, on_offer, &m), 0);
    if (kind != UNCONNECTED) {
        two_dial(&m.t);
        UNTIL(&m.t, m.t.ready && m.t.back);
    }
    begin(&m);
    if (!m.returned) {
        CHECK(m.op.calls == 0 || kind == FETCHING || kind == HALF_WAY || kind == FLUSH);
        int before = m.op.calls;
        end(&m);
        if (m.t.a && way != DEADLINE) CHECK_EQ(m.op.calls, before); /* never inside the call */
        /* First this side alone: a peer that stands still holds up nothing but what it may be
         * touching. */
        double limit = test_now() + 0.3;
        if (m.t.a && must_end(&m))
            while (!m.op.calls && test_now() < limit) turn_a(&m, 1);
        if (must_end(&m) && m.t.a) UNTIL(&m.t, m.op.calls == 1);
        /* Who was promised the rest of it waits no more. */
        if (kind == HALF_WAY && m.t.a && way != PEER_CLOSES && way != PEER_GONE)
            UNTIL(&m.t, m.theirs.calls == 1);
        turns(&m, 30);
    }
    /* The worker can go with nothing left, whatever state it is in. */
    if (m.t.a) weft_worker_destroy(m.t.a);
    m.t.a = NULL;
    if (!m.returned) CHECK_EQ(m.op.calls, 1);
    if (!m.returned && must_end(&m)) {
        if (!documented(&m))
            printf("  %s: %s, %s: %s\n", transport, kind_name[kind], way_name[way],
                   weft_status_name(m.op.status));
        CHECK(documented(&m));
    }
    for (int i = 0; i < 30; i++) two_turn(&m.t);
    if (m.t.b) weft_worker_destroy(m.t.b);
    m.t.b = NULL;
    CHECK_EQ(weft_context_destroy(m.t.context), 0);
    if ((way == ABORT || way == FLUSH_CLOSE) && !m.returned) CHECK_EQ(m.closed.calls, 1);
    CHECK_EQ(m.op.calls, !m.returned);
    CHECK(m.theirs.calls <= 1);
    if (m.spoiled)
        printf("  %s: %s, %s: the peer saw memory that was ours\n", transport, kind_name[kind],
               way_name[way]);
    CHECK_EQ(m.spoiled, 0);
    free(m.memory);
    free(m.other);
}

static void meet_all(const char *transport, enum kind kind, weft_setting_t extra) {
    for (enum way way = 0; way < N_WAYS; way++) {
        if (getenv("WEFT_TEST_VERBOSE")) printf("  %s: %s\n", kind_name[kind], way_name[way]);
        meet(transport, kind, way, extra);
    }
}
#define TEST_KIND(name, kind)                                          \
    TEST(name##_self) {                                                \
        meet_all("self", kind, (weft_setting_t){0});                   \
    }                                                                  \
    TEST(name##_shm) {                                                 \
        meet_all("shm", kind, (weft_setting_t){"shm.copy", "staged"}); \
    }                                                                  \
    TEST(name##_shm_vm) {                                              \
        meet_all("shm", kind, (weft_setting_t){"shm.copy", "vm"});     \
    }                                                                  \
    TEST(name##_tcp) {                                                 \
        meet_all(test_network(), kind, (weft_setting_t){0});           \
    }
TEST_KIND(a_send_before_the_connection_ends_once, UNCONNECTED)
TEST_KIND(a_send_behind_a_full_lane_ends_once, FULL_LANE)
TEST_KIND(an_offered_send_ends_once, OFFERED)
TEST_KIND(a_send_half_way_ends_once, HALF_WAY)
TEST_KIND(a_posted_receive_ends_once, POSTED)
TEST_KIND(a_flush_ends_once, FLUSH)
TEST_KIND(a_fetch_ends_once, FETCHING)

/* A worker with a thread of its own, whose program is away: a peer that floods waits, and the
 * others are served. */
#include <poll.h>
#include <tests/support/threads.h>

enum { LEN = 1000, FLOOD = 60000, UNDER_WAY = 256 };

/* b is the target, a the peer that is served, and c the one that floods. */
struct flood {
    struct pair p;
    weft_worker_t *c;
    weft_ep_t *from_c;
    weft_mem_t *mem;
    unsigned sent, under_way;
    uint64_t added; /* to words[0] */
    int lost, c_ready, failed;
};

static uint64_t words[64];

static void on_flood(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct pair *p = arg;
    unsigned i;
    if (!pthread_equal(pthread_self(), p->main)) p->elsewhere++;
    memcpy(&i, am->header, sizeof i);
    if (i != p->next[0]++ || am->len != LEN || !is_pattern(am->data, am->len, i)) p->disorder++;
    p->arrived++;
}

static void on_c_ready(weft_ep_t *ep, void *arg) {
    ((struct flood *)arg)->c_ready++;
}
static void on_c_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct flood *)arg)->lost++;
}

static void on_c_endpoint(weft_ep_t *ep, void *arg) {
    ((struct flood *)arg)->from_c = ep;
}

static weft_error_mode_t errors_mode; /* of c's endpoint */
static unsigned heartbeat_ms;         /* not 0: b dials c, with this heartbeat */

static void c_dials(struct flood *f) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(f->p.b, address, &len), 0);
    weft_ep_params_t ep = {
        .on_ready = on_c_ready, .on_error = on_c_error, .arg = f, .error_mode = errors_mode};
    CHECK_EQ(weft_connect_address(f->c, address, len, &ep, &f->from_c), 0);
}
static void b_dials(struct flood *f) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(f->c, address, &len), 0);
    weft_ep_params_t ep = {
        .on_ready = on_c_ready, .on_error = on_c_error, .arg = f, .heartbeat_ms = heartbeat_ms};
    CHECK_EQ(weft_connect_address(f->p.b, address, len, &ep, &f->p.to_a), 0);
}

static void flood_make(struct flood *f, const char *transport, const char *rings) {
    char packed[WEFT_RKEY_MAX];
    size_t packed_len = sizeof packed;
    memset(f, 0, sizeof *f);
    weft_setting_t settings[] = {{"thread.max_pending_bytes", "1m"},
                                 {"shm.rma", "message"},
                                 {"close.timeout", "500ms"},
                                 {"window.bytes", "512k"},
                                 {"shm.rings", rings}};
    pair_make(&f->p, transport, settings, sizeof settings / sizeof *settings);
    struct pair *p = &f->p;
    CHECK_EQ(weft_am_handler_set(p->b, ECHO, on_flood, p), 0);
    weft_worker_params_t c = {.transports = transport, .on_endpoint = on_c_endpoint, .arg = f};
    CHECK_EQ(weft_worker_create(p->context, &c, &f->c), 0);
    (heartbeat_ms ? b_dials : c_dials)(f);
    int accepted = heartbeat_ms ? 1 : 2;
    for (double end = test_now() + test_timeout(60);
         !(f->c_ready && f->from_c && p->accepted == accepted) && test_now() < end;
         test_idle(drive(p)))
        weft_worker_progress(f->c, 0);
    CHECK(f->c_ready && f->from_c);
    memset(words, 0, sizeof words);
    CHECK_EQ(weft_mem_register(p->b, words, sizeof words,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &f->mem),
             0);
    CHECK_EQ(weft_mem_pack(f->mem, packed, &packed_len), 0);
    CHECK_EQ(weft_rkey_unpack(p->to_b, packed, packed_len, &p->key), 0);
    CHECK_EQ(
        weft_worker_start_thread(p->b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
}

static void flood_end(struct flood *f) {
    weft_rkey_release(f->p.key);
    if (f->c) weft_worker_destroy(f->c);
    pair_end(&f->p);
}

static void was_sent(weft_status_t status, void *arg) {
    struct flood *f = arg;
    f->under_way--;
    f->failed += status < 0;
}

static void on_own(weft_ep_t *ep, weft_am_t *am, void *arg) {
    unsigned i, *next = arg;
    memcpy(&i, am->header, sizeof i);
    CHECK_EQ(i, (*next)++);
}

static bool send_one(struct flood *f, uint32_t flags) {
    static char data[2 * UNDER_WAY][LEN];
    weft_op_t op = {.done = was_sent, .arg = f, .flags = flags};
    unsigned i = f->sent;
    if (f->under_way == UNDER_WAY || i == FLOOD || f->lost) return false;
    pattern(data[i % (2 * UNDER_WAY)], LEN, i);
    f->sent++;
    f->under_way++;
    weft_iov_t iov = {data[i % (2 * UNDER_WAY)], LEN};
    weft_status_t st = weft_am_send(f->from_c, ECHO, &i, sizeof i, &iov, 1, &op);
    CHECK(st >= 0);
    if (st != WEFT_IN_PROGRESS) f->under_way--;
    return true;
}

/* Until c is kept waiting for a while. */
static void flood(struct flood *f, uint32_t flags) {
    for (double last = test_now(); f->sent < FLOOD && test_now() - last < test_timeout(0.1);
         test_idle(weft_worker_progress(f->c, 0) > 0))
        while (send_one(f, flags)) last = test_now();
    CHECK(f->sent < FLOOD);
    CHECK_EQ(f->failed + f->lost, 0);
}

/* a's operations, while the program of b is away. */
static void others_are_served(struct flood *f) {
    struct pair *p = &f->p;
    uint64_t old = 0, back[64], at = (uint64_t)(uintptr_t)words;
    for (int n = 0; n < test_fewer(100); n++) {
        struct tally fetched = {0}, got = {0};
        weft_status_t st =
            weft_atomic_fetch(p->to_b, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, p->key, OP(&fetched));
        for (double end = test_now() + test_timeout(60);
             st == WEFT_IN_PROGRESS && !fetched.calls && test_now() < end;)
            test_idle(weft_worker_progress(p->a, 0) > 0);
        CHECK(fetched.calls && fetched.status == WEFT_OK);
        if (!fetched.calls) return;
        CHECK_EQ(old, f->added++);
        st = weft_get(p->to_b, back, sizeof back, at, p->key, OP(&got));
        for (double end = test_now() + test_timeout(60);
             st == WEFT_IN_PROGRESS && !got.calls && test_now() < end;)
            test_idle(weft_worker_progress(p->a, 0) > 0);
        CHECK(got.calls && got.status == WEFT_OK);
        CHECK_EQ(back[0], f->added);
    }
    CHECK_EQ(p->arrived, 0);
}

/* The program is there again: the rest of what was sent, and some more. */
static void all_arrive(struct flood *f, unsigned more, uint32_t flags) {
    struct pair *p = &f->p;
    unsigned all = f->sent + more;
    for (double end = test_now() + test_timeout(60); p->arrived < (int)all && test_now() < end;
         test_idle(drive(p))) {
        while (f->sent < all && send_one(f, flags)) continue;
        weft_worker_progress(f->c, 0);
    }
    CHECK_EQ(p->arrived, all);
    CHECK_EQ(p->disorder + p->elsewhere + p->errors + f->lost + f->failed, 0);
}

static void others_while_one_floods(const char *transport, const char *rings, uint32_t flags) {
    struct flood f;
    flood_make(&f, transport, rings);
    for (int i = 0; i == 0 || i < test_fewer(3); i++) {
        flood(&f, flags);
        others_are_served(&f);
        all_arrive(&f, (unsigned)test_fewer(3000), flags);
        f.p.arrived = f.sent = f.p.next[0] = 0;
    }
    bool any_rings = strcmp(transport, "shm") == 0 && strcmp(rings, "0") != 0;
    CHECK_EQ(weft_worker_count(f.c, "lanes.promoted") > 0, any_rings); /* it began by the mailbox */
    flood_end(&f);
}

TEST(others_are_served_while_one_floods_and_goes_on_to_a_ring) {
    others_while_one_floods("shm", "64", 0);
}
TEST(others_are_served_while_one_floods_by_the_mailbox) {
    others_while_one_floods("shm", "0", 0);
}
TEST(others_are_served_while_one_floods_tcp) {
    others_while_one_floods(test_network(), "0", 0);
}
TEST(others_are_served_while_one_that_survives_its_lanes_floods) {
    errors_mode = WEFT_ERRORS_FAILOVER;
    others_while_one_floods(test_network(), "0", 0);
    errors_mode = 0;
}
TEST(others_are_served_while_one_floods_with_messages_that_want_no_reply_shm) {
    others_while_one_floods("shm", "0", WEFT_AM_NO_REPLY);
}
TEST(others_are_served_while_one_floods_with_messages_that_want_no_reply_tcp) {
    others_while_one_floods(test_network(), "0", WEFT_AM_NO_REPLY);
}

/* What the program sends to its own worker and does not come for: that waits, too, and for the
 * program alone. */
TEST(others_are_served_while_a_worker_floods_itself) {
    enum { OWN = 9, MESSAGES = 20000 };
    static const char data[LEN];
    struct flood f;
    unsigned came = 0;
    char address[256];
    size_t len = sizeof address;
    flood_make(&f, "self,tcp", "0");
    weft_worker_t *b = f.p.b;
    weft_ep_t *own;
    CHECK_EQ(weft_worker_stop_thread(b), 0);
    CHECK_EQ(weft_am_handler_set(b, OWN, on_own, &came), 0);
    CHECK_EQ(weft_worker_address(b, address, &len), 0);
    CHECK_EQ(weft_connect_address(b, address, len, &(weft_ep_params_t){0}, &own), 0);
    UNTIL_PAIR(&f.p, f.p.accepted == 3);
    CHECK_EQ(
        weft_worker_start_thread(b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    for (unsigned i = 0; i < MESSAGES; i++)
        CHECK(weft_am_send(own, OWN, &i, sizeof i, &(weft_iov_t){(void *)data, LEN}, 1, NULL) >= 0);
    others_are_served(&f);
    CHECK_EQ(came, 0);
    UNTIL_PAIR(&f.p, came == MESSAGES);
    flood_end(&f);
}

/* The program takes it over, without the thread. */
static void stopped_while_one_waits(const char *transport, const char *rings) {
    struct flood f;
    flood_make(&f, transport, rings);
    struct pollfd fd = {.fd = weft_worker_fd(f.p.b), .events = POLLIN};
    flood(&f, 0);
    CHECK_EQ(weft_worker_stop_thread(f.p.b), 0);
    for (double end = test_now() + test_timeout(60); f.p.arrived < (int)f.sent && test_now() < end;
         weft_worker_progress(f.c, 0))
        if (poll(&fd, 1, 10) == 1) CHECK(weft_worker_progress(f.p.b, 7) >= 0);
    all_arrive(&f, (unsigned)test_fewer(1000), 0);
    flood_end(&f);
}

TEST(a_flood_goes_on_when_the_thread_ends_ring) {
    stopped_while_one_waits("shm", "64");
}
TEST(a_flood_goes_on_when_the_thread_ends_mailbox) {
    stopped_while_one_waits("shm", "0");
}
TEST(a_flood_goes_on_when_the_thread_ends_tcp) {
    stopped_while_one_waits(test_network(), "0");
}

/* With what it was kept waiting for: what was taken is in its order, and then its end is
 * reported. */
static void gone_while_it_waits(const char *transport, const char *rings) {
    struct flood f;
    flood_make(&f, transport, rings);
    flood(&f, 0);
    weft_worker_destroy(f.c);
    f.c = NULL;
    others_are_served(&f);
    for (double end = test_now() + test_timeout(60); !f.p.errors && test_now() < end;)
        test_idle(drive(&f.p));
    CHECK_EQ(f.p.errors, 1);
    CHECK(f.p.arrived > 0);
    CHECK_EQ(f.p.disorder + f.p.elsewhere, 0);
    flood_end(&f);
}

TEST(one_that_floods_and_goes_is_received_to_the_end_ring) {
    gone_while_it_waits("shm", "64");
}
TEST(one_that_floods_and_goes_is_received_to_the_end_mailbox) {
    gone_while_it_waits("shm", "0");
}
TEST(one_that_floods_and_goes_is_received_to_the_end_tcp) {
    gone_while_it_waits(test_network(), "0");
}

/* What the target's program has for it leaves all the same, and its thread is woken when there
 * is room. */
static void on_return(weft_ep_t *ep, weft_am_t *am, void *arg) {
    unsigned i, *next = arg;
    memcpy(&i, am->header, sizeof i);
    CHECK(i == (*next)++ && is_pattern(am->data, am->len, i));
}
static void sent_to_while_it_waits(const char *transport, const char *rings) {
    enum { RETURNS = 600 };
    static char data[RETURNS][3 * LEN];
    struct flood f;
    unsigned came = 0;
    flood_make(&f, transport, rings);
    CHECK_EQ(weft_am_handler_set(f.c, ECHO, on_return, &came), 0);
    flood(&f, 0);
    for (unsigned i = 0; i < RETURNS; i++) {
        pattern(data[i], sizeof data[i], i);
        weft_iov_t iov = {data[i], sizeof data[i]};
        CHECK_EQ(weft_am_send(f.p.to_a, ECHO, &i, sizeof i, &iov, 1, NULL), WEFT_IN_PROGRESS);
    }
    usleep(
        (useconds_t)test_timeout(20000)); /* the thread has come to its end of room, and sleeps */
    for (double end = test_now() + test_timeout(60); came < RETURNS && test_now() < end;)
        test_idle(weft_worker_progress(f.c, 0) > 0);
    CHECK_EQ(came, RETURNS);
    CHECK_EQ(f.p.arrived, 0);
    all_arrive(&f, 0, 0);
    flood_end(&f);
}

TEST(one_that_floods_is_sent_to_meanwhile_ring) {
    sent_to_while_it_waits("shm", "64");
}
TEST(one_that_floods_is_sent_to_meanwhile_mailbox) {
    sent_to_while_it_waits("shm", "0");
}
TEST(one_that_floods_is_sent_to_meanwhile_tcp) {
    sent_to_while_it_waits(test_network(), "0");
}

/* What it says is not looked at: that is no silence of its own. */
static void asked_whether_it_lives(const char *transport, const char *rings) {
    struct flood f;
    heartbeat_ms = (unsigned)test_timeout(250);
    flood_make(&f, transport, rings);
    heartbeat_ms = 0;
    flood(&f, 0);
    for (double end = test_now() + test_timeout(1.2); test_now() < end;
         weft_worker_progress(f.p.a, 0))
        test_idle(weft_worker_progress(f.c, 0) > 0);
    all_arrive(&f, (unsigned)test_fewer(1000), 0);
    flood_end(&f);
}

TEST(one_that_floods_is_not_dead_ring) {
    asked_whether_it_lives("shm", "64");
}
TEST(one_that_floods_is_not_dead_mailbox) {
    asked_whether_it_lives("shm", "0");
}
TEST(one_that_floods_is_not_dead_tcp) {
    asked_whether_it_lives(test_network(), "0");
}

/* The target is lost: the waiter learns of it. */
static void target_gone(const char *transport, const char *rings) {
    struct flood f;
    flood_make(&f, transport, rings);
    flood(&f, 0);
    weft_worker_destroy(f.p.b);
    f.p.b = NULL;
    for (double end = test_now() + test_timeout(60); !f.lost && test_now() < end;)
        test_idle(weft_worker_progress(f.c, 0) > 0);
    CHECK_EQ(f.lost, 1);
    weft_rkey_release(f.p.key);
    weft_worker_destroy(f.c);
    weft_worker_destroy(f.p.a);
    CHECK_EQ(weft_context_destroy(f.p.context), 0);
}

TEST(a_worker_ends_while_one_that_floods_waits_ring) {
    target_gone("shm", "64");
}
TEST(a_worker_ends_while_one_that_floods_waits_mailbox) {
    target_gone("shm", "0");
}
TEST(a_worker_ends_while_one_that_floods_waits_tcp) {
    target_gone(test_network(), "0");
}

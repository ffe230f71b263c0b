/* A peer that says what it likes about links that outlive their lanes: tickets, counts,
 * acknowledgements. */
#include <tests/support/raw_peer.h>

#include <base/host.h>
#include <endpoints/wire/lane_ctrl.h>

#include <tests/sockets.h>

static struct raw raw;

/* The worker's answer has a ticket. */
static struct wire_hello handshake(struct wire_hello hello) {
    struct wire_message m;
    struct wire_hello answer = {0};
    raw.n_received = 0;
    hello.version = WIRE_VERSION;
    if (!hello.worker) hello.worker = RAW_ID;
    weft__wire_hello(&m, hello);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, received(&raw, WIRE_HELLO)); /* also when it is refused */
    for (unsigned i = 0; i < raw.n_received; i++)
        if (raw.received[i].id == WIRE_HELLO)
            (void)weft__wire_read_hello(raw.received[i].bytes, raw.received[i].len, &answer);
    return answer;
}

static struct wire_hello begin_over(const char *transports) {
    raw_open(&raw, transports, NULL, 0);
    raw_dial(&raw, "tcp");
    struct wire_hello answer =
        handshake((struct wire_hello){.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES});
    CHECK(weft__hello_has_ticket(&answer) && answer.flags & WIRE_HELLO_SURVIVES);
    open_half(&raw);
    return answer;
}
static struct wire_hello begin(void) {
    return begin_over("tcp");
}

/* Another lane, while the first one stands. */
static struct lane *dial_again(void) {
    struct lane *first = raw.lane;
    raw.lane = NULL;
    raw_dial(&raw, "tcp");
    return first;
}

static void end(struct lane *first) {
    if (first) first->ops->close(first, false);
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    raw_close(&raw);
}

static struct wire_hello resume(const struct wire_hello *notified, uint32_t epoch,
                                uint64_t delivered) {
    struct wire_hello hello = {.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME,
                               .epoch = epoch,
                               .delivered = delivered};
    memcpy(hello.ticket, notified->ticket, sizeof hello.ticket);
    return hello;
}

/* ---- tickets --------------------------------------------------------------------------------- */

TEST(a_ticket_that_was_made_up_gets_nothing) {
    struct wire_hello notified = begin();
    struct lane *first = dial_again();
    notified.ticket[3] ^= 1;
    struct wire_hello answer = handshake(resume(&notified, 1, 0));
    CHECK(!(answer.flags & WIRE_HELLO_RESUME));
    RAW_UNTIL(&raw, raw.down);
    CHECK_EQ(raw.victim_errors, 0);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 0);
    end(first);
}

TEST(a_ticket_of_another_worker_gets_nothing) {
    struct wire_hello notified = begin();
    struct lane *first = dial_again();
    struct wire_hello stolen = resume(&notified, 1, 0);
    stolen.worker = RAW_ID + 1;
    CHECK(!(handshake(stolen).flags & WIRE_HELLO_RESUME));
    CHECK_EQ(raw.victim_errors, 0);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 0);
    end(first);
}

/* What the worker sent is counted: ACCEPT, and the word about its process. */
TEST(a_ticket_takes_over_once_for_each_try) {
    struct wire_hello notified = begin();
    struct lane *first = dial_again();
    struct wire_hello answer = handshake(resume(&notified, 5, 0));
    /* our OPEN */
    CHECK(answer.flags & WIRE_HELLO_RESUME && answer.epoch == 5 && answer.delivered == 1);
    /* again */
    RAW_UNTIL(&raw, received(&raw, WIRE_ACCEPT));
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 1);
    struct lane *second = dial_again();
    CHECK(!(handshake(resume(&notified, 5, 0)).flags & WIRE_HELLO_RESUME)); /* late */
    RAW_UNTIL(&raw, raw.down);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 1);
    CHECK_EQ(raw.victim_errors, 0);
    first->ops->close(first, false);
    end(second);
}

TEST(counts_that_cannot_be_lose_the_link) {
    struct wire_hello notified = begin();
    struct lane *first = dial_again();
    (void)handshake(resume(&notified, 1, 1000));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
    end(first);
}

/* What is kept is as long, and sent as, the first lane's transport allows. */
TEST(a_ticket_takes_over_no_lane_of_another_transport) {
    static char bytes[20000];
    struct wire_hello notified = begin_over("tcp,shm");
    struct iface *tcp = raw.iface, *shm = raw_iface(&raw, "shm");
    struct lane *first = raw.lane;
    CHECK(weft_am_send(raw.victim, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, NULL) >= 0);
    raw.iface = shm;
    raw.lane = NULL;
    raw_dial(&raw, "shm");
    struct wire_hello answer = handshake(resume(&notified, 1, 0));
    for (int i = 0; i < 100; i++) {
        if (raw.victim) (void)weft_am_send(raw.victim, 1, NULL, 0, NULL, 0, NULL);
        raw_turn(&raw);
    }
    CHECK(!(answer.flags & WIRE_HELLO_RESUME));
    CHECK_EQ(raw.victim_errors, 0);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 0);
    raw_hang_up(&raw);
    raw.iface = tcp;
    first->ops->close(first, false);
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    shm->ops->close(shm);
    end(NULL);
}

/* ---- a try whose bytes come late ------------------------------------------------------------- */

static void send_resume_and_hang_up(const struct wire_hello *notified, uint32_t epoch) {
    struct wire_message m;
    struct wire_hello hello = resume(notified, epoch, 0);
    hello.version = WIRE_VERSION;
    hello.worker = RAW_ID;
    weft__wire_hello(&m, hello);
    CHECK(send_message(&raw, &m));
    /* it leaves before the goodbye */
    for (int i = 0; i < 10; i++) weft__reactor_progress(raw.reactor, 0);
    raw_hang_up(&raw);
}

/* Its dialer gave it up meanwhile, closed it in good order, and tries again. */
TEST(a_resume_that_comes_late_with_the_end_of_its_lane_behind_it_is_a_lost_try) {
    for (int tries = 1; tries <= 3; tries++) {
        struct wire_hello notified = begin();
        struct lane *first = raw.lane;
        for (int i = 0; i < tries; i++) {
            (void)dial_again();
            send_resume_and_hang_up(&notified, (uint32_t)i + 1);
            for (int n = 0; n < 100; n++) raw_turn(&raw);
            CHECK_EQ(raw.victim_errors, 0);
        }
        (void)dial_again();
        CHECK(handshake(resume(&notified, (uint32_t)tries + 1, 0)).flags & WIRE_HELLO_RESUME);
        CHECK_EQ(raw.victim_errors, 0);
        end(first);
    }
}

/* A dialer that uses the lane acknowledges by it; then its end is the link's, and no side waits
 * for another. */
TEST(a_goodbye_by_a_lane_that_was_resumed_and_used_ends_the_link) {
    struct wire_message m;
    struct wire_hello notified = begin();
    struct lane *first = dial_again();
    CHECK(handshake(resume(&notified, 1, 0)).flags & WIRE_HELLO_RESUME);
    RAW_UNTIL(&raw, raw.down); /* the first */
    raw.down = 0;
    weft__lane_count(&m, LANE_ACK, 0);
    CHECK(send_message(&raw, &m));
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    raw_hang_up(&raw);
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PEER_CLOSED);
    end(first);
}

/* ---- a resume in the turn in which the failover timeout ends --------------------------------- */

enum { TIMEOUT_MS = 300 };

static double seconds(int ms) {
    return (double)ms * 1e-3;
}

/* Both ends of the connection that was made after `before` was taken. */
static void kill_others(const int *before, int n_before) {
    int fd[64], n = connected(fd, 64);
    for (int i = 0; i < n; i++) {
        bool is_old = false;
        for (int k = 0; k < n_before; k++) is_old |= before[k] == fd[i];
        if (!is_old) kill_socket(fd[i], true);
    }
}

/* The worker's socket is readable, and its timer is due, when its next turn begins. The turn
 * looks at sockets first. */
TEST(a_resume_that_is_read_in_the_turn_in_which_the_failover_timeout_ends_is_refused) {
    weft_setting_t settings[] = {{"failover.timeout", "300ms"}}; /* TIMEOUT_MS */
    int before[64];
    raw_open(&raw, "tcp", settings, 1);
    int n_before = connected(before, 64);
    raw_dial(&raw, "tcp");
    struct wire_hello notified =
        handshake((struct wire_hello){.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES});
    open_half(&raw);
    kill_others(before, n_before);
    RAW_UNTIL(&raw, weft_worker_count(raw.t.a, "lanes.lost") == 1);
    double lost_at = test_now();
    struct lane *first = dial_again();
    first->ops->close(first, false);

    struct wire_message m;
    struct wire_hello hello = resume(&notified, 1, 0);
    hello.version = WIRE_VERSION;
    hello.worker = RAW_ID;
    weft__wire_hello(&m, hello);
    while (test_now() < lost_at + seconds(TIMEOUT_MS / 2)) raw_turn(&raw);
    CHECK(send_message(&raw, &m));
    while (test_now() < lost_at + seconds(TIMEOUT_MS + 50)) weft__reactor_progress(raw.reactor, 0);

    RAW_UNTIL(&raw, raw.victim_errors == 1 && raw.down);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_worker_count(raw.t.a, "lanes.resumed"), 0);
    end(NULL);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void word_loses_the_link(const struct wire_message *m) {
    (void)begin();
    CHECK(send_message(&raw, m));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
    end(NULL);
}

TEST(who_acknowledges_what_was_not_sent_is_cut) {
    struct wire_message m;
    weft__lane_count(&m, LANE_ACK, 1000);
    word_loses_the_link(&m);
    weft__lane_count(&m, LANE_ACK, UINT64_MAX);
    word_loses_the_link(&m);
}

TEST(who_takes_an_acknowledgement_back_is_cut) {
    struct wire_message m;
    (void)begin();
    weft__lane_count(&m, LANE_ACK, 1);
    CHECK(send_message(&raw, &m));
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    weft__lane_count(&m, LANE_ACK, 0);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_PROTOCOL);
    end(NULL);
}

TEST(words_that_are_garbled_are_cut) {
    static const enum lane_kind kinds[] = {LANE_ACK, LANE_ACK_ASK, LANE_HEARTBEAT_ASK,
                                           LANE_HEARTBEAT, LANE_PROCESS};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct wire_message m;
        weft__lane_count(&m, kinds[i], 1);
        m.len -= 1;
        word_loses_the_link(&m);
    }
}

TEST(who_names_a_process_of_its_own_choice_harms_itself_at_most) {
    static const uint32_t pids[] = {1, 0x7fffffff};
    for (int i = 0; i < 2; i++) {
        struct wire_message m;
        struct wire_hello notified = begin();
        weft__lane_process(&m, (struct lane_process){.host = weft__host_id("pid"), .pid = pids[i]});
        CHECK(send_message(&raw, &m));
        struct lane *first = dial_again();
        CHECK(handshake(resume(&notified, 1, 0)).flags & WIRE_HELLO_RESUME);
        CHECK_EQ(raw.victim_errors, 0);
        end(first);
    }
}

/* ---- handshakes of a peer that was dialed ---------------------------------------------------- */

/* The second one has no ticket. What the first one made the link keep is given back all the
 * same. */
TEST(a_second_hello_ends_the_link_and_every_operation_on_it) {
    static char bytes[200000];
    struct tl_listener *listener;
    struct wire_message m;
    struct tally sent = {0};
    weft_ep_t *ep;
    raw_open(&raw, "tcp", NULL, 0);
    CHECK_EQ(raw.iface->ops->listen(raw.iface, "127.0.0.1:0", &(struct listen_how){.backlog = 4},
                                    NULL, &listener),
             0);
    weft_ep_params_t params = {.error_mode = WEFT_ERRORS_FAILOVER,
                               .on_error = two_on_error,
                               .arg = &raw.t,
                               .on_ready = two_on_ready};
    CHECK_EQ(weft_connect(raw.t.a, raw.iface->ops->listener_uri(listener), &params, &ep), 0);
    RAW_UNTIL(&raw, received(&raw, WIRE_HELLO));
    struct wire_hello hello = {.version = WIRE_VERSION,
                               .flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES,
                               .worker = RAW_ID,
                               .ticket = {1}};
    weft__wire_hello(&m, hello);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, received(&raw, WIRE_OPEN));
    struct wire_open open = {0};
    for (unsigned i = 0; i < raw.n_received; i++)
        if (raw.received[i].id == WIRE_OPEN)
            CHECK(weft__wire_read_open(raw.received[i].bytes, raw.received[i].len, &open));
    weft__wire_accept(&m, (struct wire_accept){open.from, 0x00100007, 1 << 20, 1 << 20});
    int ready = raw.t.ready;
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.t.ready == ready + 1);
    CHECK_EQ(weft_stream_send(ep, &(weft_iov_t){bytes, sizeof bytes}, 1, OP(&sent)),
             WEFT_IN_PROGRESS);
    memset(hello.ticket, 0, sizeof hello.ticket);
    weft__wire_hello(&m, hello);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.t.errors == 1 && sent.calls == 1);
    CHECK_EQ(raw.t.error, WEFT_ERR_PROTOCOL);
    CHECK_EQ(sent.status, WEFT_ERR_PROTOCOL);
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
    raw.t.errors = 0;
    raw.iface->ops->listener_close(listener);
    end(NULL);
}

/* ---- a peer that was dialed, and breaks each connection when it has answered ----------------- */

/* The handshake that came last, or one of zeros. */
static struct wire_hello received_hello(void) {
    struct wire_hello hello = {0};
    for (unsigned i = 0; i < raw.n_received && i < RECEIVED; i++)
        if (raw.received[i].id == WIRE_HELLO)
            (void)weft__wire_read_hello(raw.received[i].bytes, raw.received[i].len, &hello);
    return hello;
}

static void answer_hello(struct wire_hello hello) {
    struct wire_message m;
    hello.version = WIRE_VERSION;
    hello.worker = RAW_ID;
    hello.ticket[0] = 1;
    raw.n_received = 0;
    weft__wire_hello(&m, hello);
    (void)send_message(&raw, &m);
}

struct dialed {
    struct tl_listener *listener;
    weft_ep_t *ep;
    int before[64], n_before; /* sockets of others */
};

static void begin_dialed(struct dialed *d, const weft_setting_t *settings, size_t n) {
    raw_open(&raw, "tcp", settings, n);
    d->n_before = connected(d->before, 64);
    CHECK_EQ(raw.iface->ops->listen(raw.iface, "127.0.0.1:0", &(struct listen_how){.backlog = 4},
                                    NULL, &d->listener),
             0);
    weft_ep_params_t params = {
        .error_mode = WEFT_ERRORS_FAILOVER, .on_error = two_on_error, .arg = &raw.t};
    CHECK_EQ(weft_connect(raw.t.a, raw.iface->ops->listener_uri(d->listener), &params, &d->ep), 0);
    RAW_UNTIL(&raw, received(&raw, WIRE_HELLO));
    answer_hello((struct wire_hello){.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES});
    RAW_UNTIL(&raw, received(&raw, WIRE_OPEN));
}

static void end_dialed(struct dialed *d) {
    weft_ep_close(d->ep, WEFT_CLOSE_ABORT, NULL);
    raw.iface->ops->listener_close(d->listener);
    raw.t.errors = 0;
    end(NULL);
}

static uint64_t n_resumed(void) {
    return weft_worker_count(raw.t.a, "lanes.resumed");
}

/* Breaks its connection, and answers on the next one. */
static void break_and_answer(const struct dialed *d) {
    uint64_t resumed = n_resumed();
    kill_others(d->before, d->n_before);
    RAW_UNTIL(&raw, !raw.lane || raw.down);
    raw_hang_up(&raw);
    RAW_UNTIL(&raw, raw.t.errors || (raw.lane && received_hello().flags & WIRE_HELLO_RESUME));
    if (raw.t.errors) return;
    answer_hello(
        (struct wire_hello){.flags = WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME,
                            .epoch = received_hello().epoch});
    RAW_UNTIL(&raw, raw.t.errors || n_resumed() == resumed + 1);
}

/* Its answers prove nothing: while no message gets through, the dialer waits longer each time. */
TEST(no_peer_makes_a_dialer_dial_as_often_as_it_likes) {
    enum { MS = 300, MOST = 20 };
    struct dialed d;
    begin_dialed(&d, NULL, 0);
    for (double end = test_now() + seconds(MS); test_now() < end;) break_and_answer(&d);
    printf("  resumed %llu times\n", (unsigned long long)n_resumed());
    CHECK(n_resumed() < MOST);
    CHECK_EQ(raw.t.errors, 0);
    end_dialed(&d);
}

TEST(a_link_whose_lanes_bring_nothing_ends_after_its_timeout) {
    static const weft_setting_t settings[] = {{"failover.timeout", "300ms"}};
    struct dialed d;
    begin_dialed(&d, settings, 1);
    for (double end = test_now() + test_timeout(60); !raw.t.errors && test_now() < end;)
        break_and_answer(&d);
    CHECK_EQ(raw.t.errors, 1);
    CHECK_EQ(raw.t.error, WEFT_ERR_PEER_FAILED);
    CHECK(n_resumed() > 1);
    end_dialed(&d);
}

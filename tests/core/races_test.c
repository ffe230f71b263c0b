/* Ends that meet other ends: what was decided stays decided, and what is outstanding completes. */
#include <tests/support/worker_pair.h>

#include <endpoints/core/worker.h>

static void workers(struct two *t, const char *transport, const char *name, const char *value) {
    weft_setting_t settings[] = {{"close.timeout", "50ms"}, {"log.level", "none"}, {name, value}};
    two_workers(t, transport, settings, name ? 3 : 2);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

/* The message is here, the callback is due, and then comes the cancel: the message is not lost. */
static weft_request_t *late_request;
static int handled;
static void cancel_now(weft_ep_t *ep, weft_am_t *am, void *arg) {
    handled++;
    if (late_request) weft_request_cancel(late_request);
}
static void ended(weft_status_t status, void *arg) {
    tally(status, arg);
    late_request = NULL;
}
TEST_EACH(a_cancel_after_the_match_changes_nothing) {
    struct two t;
    workers(&t, transport, NULL, NULL);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 1, cancel_now, NULL), 0);
    for (int i = 0; i < 20; i++) {
        struct tally got = {0};
        char in[8] = "";
        weft_op_t op = {.done = ended, .arg = &got, .request_p = &late_request};
        handled = 0;
        CHECK_EQ(
            weft_tag_recv(two_b(&t), 3, UINT64_MAX, &(weft_iov_t){in, sizeof in}, 1, NULL, &op),
            WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(t.ep, 3, &(weft_iov_t){"message", 8}, 1, NULL), WEFT_OK);
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL), WEFT_OK);
        UNTIL(&t, handled == 1 && got.calls == 1);
        CHECK_EQ(got.status, WEFT_OK);
        CHECK(!strcmp(in, "message"));
    }
    two_down(&t);
}

/* An offer that was taken out of matching and then withdrawn gives its credit back. */
TEST(taken_offers_that_are_withdrawn_cost_nothing) {
    struct two t;
    static char big[100000];
    char in[4];
    workers(&t, "tcp", "tag.unexpected_bytes", "256"); /* four offers, or one message and two */
    CHECK_EQ(weft_am_handler_set(t.b, 1, cancel_now, NULL), 0);
    for (int i = 0; i < 30; i++) {
        struct tally sent = {0};
        weft_request_t *request;
        weft_tag_message_t *message;
        weft_tag_info_t info;
        CHECK_EQ(weft_tag_send(t.ep, 9, &(weft_iov_t){big, sizeof big}, 1,
                               &(weft_op_t){.done = tally, .arg = &sent, .request_p = &request}),
                 WEFT_IN_PROGRESS);
        UNTIL(&t, weft_tag_probe(t.b, 9, UINT64_MAX, &info) == WEFT_OK);
        CHECK_EQ(weft_tag_take(t.b, 9, UINT64_MAX, &info, &message), WEFT_OK);
        weft_request_cancel(request);
        UNTIL(&t, sent.calls == 1);
        handled = 0;
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL), WEFT_OK);
        UNTIL(&t, handled == 1); /* it came behind the withdrawal */
        CHECK(weft_tag_message_recv(t.b, message, &(weft_iov_t){in, 4}, 1, NULL) < 0);
    }
    two_down(&t);
}

/* Until nothing more fits for 300 ms: the kernel's buffers grow while they are filled. */
static void fill(struct two *t) {
    static struct tally last;
    static char bytes[8000];
    weft_request_t *request;
    weft_status_t st = WEFT_OK;
    weft_op_t op = {.done = tally, .arg = &last, .request_p = &request};
    for (int n = 1; n > 0;) {
        n = 0;
        while ((st = weft_am_send(t->ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, &op)) ==
               WEFT_OK)
            n++;
        if (st == WEFT_IN_PROGRESS) weft_request_cancel(request);
        for (double until = test_now() + 0.3; test_now() < until;) weft_worker_progress(t->a, 0);
    }
    CHECK_EQ(st, WEFT_IN_PROGRESS);
}

/* The lane has taken everything and cannot be rid of it: the flush still ends in time. */
TEST(a_flush_ends_at_its_deadline_before_a_peer_that_stands_still) {
    struct two t;
    struct tally flushed;
    workers(&t, "tcp", NULL, NULL);
    double end = test_now() + test_timeout(60);
    do { /* the kernel makes room later on, too, and takes what was waiting */
        flushed = (struct tally){0};
        fill(&t);
        weft_status_t st =
            weft_ep_flush(t.ep, &(weft_op_t){.done = tally, .arg = &flushed, .deadline_ms = 30});
        if (st == WEFT_OK) continue;
        CHECK_EQ(st, WEFT_IN_PROGRESS);
        while (!flushed.calls && test_now() < end) weft_worker_progress(t.a, 0);
        CHECK_EQ(flushed.calls, 1);
    } while (flushed.status == WEFT_OK && test_now() < end);
    CHECK_EQ(flushed.status, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(flushed.calls, 1);
    /* And another one is answered when the peer goes on. */
    CHECK_EQ(weft_ep_flush(t.ep, OP(&flushed)), WEFT_IN_PROGRESS);
    UNTIL(&t, flushed.calls == 2);
    CHECK_EQ(flushed.status, WEFT_OK);
    two_down(&t);
}

/* A close in good order waits for the connection, but no longer than it was given. */
TEST_EACH(a_close_ends_at_its_deadline_before_the_connection) {
    struct two t;
    struct tally sent = {0}, closed = {0};
    weft_setting_t settings[] = {{"log.level", "none"}, {"connect.timeout", "60s"}};
    if (!strcmp(transport, "self")) return; /* it connects within its own turns */
    two_workers(&t, transport, settings, 2);
    two_dial(&t);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){"x", 1}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    double begun = test_now();
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH,
                           &(weft_op_t){.done = tally, .arg = &closed, .deadline_ms = 30}),
             WEFT_IN_PROGRESS);
    while (!closed.calls && test_now() < begun + 20) weft_worker_progress(t.a, 0);
    CHECK_EQ(closed.status, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(sent.calls, 1);
    CHECK_EQ(sent.status, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(t.errors, 0);
    two_down(&t);
}

/* The peer answers a dialer that no longer waits: the peer's half must not stay. */
TEST_EACH(who_gives_up_connecting_leaves_no_half) {
    struct two t;
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *late;
    weft_ep_params_t params = {.on_error = two_on_error, .connect_timeout_ms = 5};
    if (!strcmp(transport, "self")) return; /* it connects within its own turns */
    two_up(&t, transport);
    params.arg = &t;
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    CHECK_EQ(weft_connect_address(t.a, address, len, &params, &late), 0);
    for (double until = test_now() + test_timeout(60); !t.errors && test_now() < until;)
        weft_worker_progress(t.a, 0);
    CHECK_EQ(t.error, WEFT_ERR_TIMED_OUT);
    UNTIL(&t, t.endpoints == 2);
    UNTIL(&t, t.back_errors == 1); /* although the program has not closed what failed */
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(t.errors, 1);
    two_down(&t);
}

/* Whenever it looks, its time for the handshake is over, and what came meanwhile buys time: the
 * proof, with the first words behind. */
TEST(an_acceptor_that_is_always_late_receives_the_first_words) {
    weft_setting_t little[] = {{"tcp.handshake_timeout", "10ms"}};
    for (int late = 0; late < 3; late++) {
        struct two t;
        two_workers(&t, "tcp", little, 1);
        two_dial(&t);
        for (double end = test_now() + test_timeout(60); !t.ready && test_now() < end;) {
            for (int i = 0; i < 100; i++) weft_worker_progress(t.a, 0);
            usleep(11000);
            weft_worker_progress(t.b, late);
        }
        CHECK(t.ready);
        two_down(&t);
    }
}

/* A receive that was cut says what cut it, also when its message would not have fitted. */
TEST(a_cut_receive_is_not_called_truncated) {
    struct two t;
    struct tally got = {0}, sent = {0};
    weft_request_t *request;
    static char big[100000], in[90000];
    workers(&t, "tcp", NULL, NULL);
    CHECK_EQ(weft_tag_recv(t.b, 4, UINT64_MAX, &(weft_iov_t){in, sizeof in}, 1, NULL,
                           &(weft_op_t){.done = tally, .arg = &got, .request_p = &request}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 4, &(weft_iov_t){big, sizeof big}, 1, OP(&sent)),
             WEFT_IN_PROGRESS);
    for (int i = 0; i < 200 && !got.calls; i++) weft_worker_progress(t.a, 0);
    for (int i = 0; i < 20; i++) weft_worker_progress(t.b, 0); /* it asks, and no answer comes */
    CHECK_EQ(got.calls, 0);
    weft_request_cancel(request);
    UNTIL(&t, got.calls == 1 && sent.calls == 1);
    CHECK_EQ(got.status, WEFT_ERR_CANCELLED);
    CHECK_EQ(sent.status, WEFT_OK); /* it sends what it was asked for, to a dead peer */
    two_down(&t);
}

enum { CUT_LEN = 32 << 20, CUT_TURNS = 12 };
static char *cut_out, *cut_in;
static struct tally cut_got;
static weft_request_t *cut_request;
static uint32_t cut_deadline_ms;

static weft_op_t cut_op(void) {
    return (weft_op_t){
        .done = tally, .arg = &cut_got, .request_p = &cut_request, .deadline_ms = cut_deadline_ms};
}
static void receive_what_may_be_cut(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_op_t op = cut_op();
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){cut_in, CUT_LEN}, 1, &op), WEFT_IN_PROGRESS);
}

/* A large message whose receive ends early after so many turns; 0: it was received. */
static weft_status_t cut_after(struct two *t, int turns, bool by_am, bool by_deadline,
                               weft_status_t *sent_p) {
    struct tally sent = {0};
    weft_iov_t out = {cut_out, CUT_LEN}, in = {cut_in, CUT_LEN};
    cut_got = (struct tally){0};
    cut_request = NULL;
    cut_deadline_ms = by_deadline ? 1 : 0;
    weft_status_t st = by_am ? weft_am_send(t->ep, 1, NULL, 0, &out, 1, OP(&sent))
                             : weft_tag_send(t->ep, 1, &out, 1, OP(&sent));
    CHECK_EQ(st, WEFT_IN_PROGRESS);
    UNTIL(t, by_am ? cut_request != NULL : weft_tag_probe(t->b, 1, UINT64_MAX, NULL) == WEFT_OK);
    weft_op_t op = cut_op();
    if (!by_am) CHECK_EQ(weft_tag_recv(t->b, 1, UINT64_MAX, &in, 1, NULL, &op), WEFT_IN_PROGRESS);
    for (int i = 0; i < turns && !cut_got.calls; i++) {
        weft_worker_progress(t->a, 0);
        weft_worker_progress(t->b, 0);
    }
    if (!cut_got.calls && !by_deadline) weft_request_cancel(cut_request);
    UNTIL(t, cut_got.calls && sent.calls);
    *sent_p = sent.status;
    return cut_got.status;
}

/* Who reads the sender's memory says that it has stopped; who asked for the bytes throws away
 * what comes. */
static void cut(const char *transport, const char *copy, weft_status_t notified) {
    struct two t;
    int n_cut = 0;
    cut_out = calloc(1, CUT_LEN), cut_in = malloc(CUT_LEN);
    two_workers(&t, transport, &(weft_setting_t){"shm.copy", copy}, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    CHECK_EQ(weft_am_handler_set(t.b, 1, receive_what_may_be_cut, NULL), 0);
    for (int i = 0; i < 4 * CUT_TURNS; i++) {
        weft_status_t sent, got = cut_after(&t, i / 4, i % 2, i / 2 % 2, &sent);
        if (got < 0) {
            n_cut++;
            CHECK_EQ(got, i / 2 % 2 ? WEFT_ERR_TIMED_OUT : WEFT_ERR_CANCELLED);
        }
        CHECK_EQ(sent, got < 0 ? notified : WEFT_OK);
    }
    CHECK(n_cut > 0);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
    free(cut_out), free(cut_in);
}
TEST(a_sender_whose_memory_is_read_is_notified_when_its_receiver_gives_up) {
    cut("shm", "vm", WEFT_ERR_CANCELLED);
}
TEST(a_sender_that_was_asked_for_the_bytes_is_not_notified_that_its_receiver_gave_up_shm) {
    cut("shm", "staged", WEFT_OK);
}
TEST(a_sender_that_was_asked_for_the_bytes_is_not_notified_that_its_receiver_gave_up_tcp) {
    cut("tcp", "auto", WEFT_OK);
}

/* By the number of the offer that it took, a receive is found when the sender takes its message
 * back. */
enum { OFFERS = 40, LARGE = 100000 };
static char large[LARGE];
static struct tally taken_back;
static int asked;
static void ask_for_it(weft_ep_t *ep, weft_am_t *am, void *arg) {
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){large, LARGE}, 1, OP(&taken_back)), WEFT_IN_PROGRESS);
    asked++;
}

static int n_takers(const weft_worker_t *worker) {
    return (int)worker->offers.takers.n;
}

TEST(receives_that_took_an_offer_are_kept_by_its_number_until_they_end) {
    weft_request_t *requests[OFFERS];
    struct tally sent = {0};
    struct two t;
    weft_op_t op = {.done = tally, .arg = &sent, .flags = WEFT_AM_RENDEZVOUS};
    workers(&t, "shm", "shm.copy", "staged");
    asked = 0;
    taken_back = (struct tally){0};
    CHECK_EQ(weft_am_handler_set(t.b, 1, ask_for_it, NULL), 0);
    for (int i = 0; i < OFFERS; i++) {
        op.request_p = &requests[i];
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){large, LARGE}, 1, &op),
                 WEFT_IN_PROGRESS);
    }
    for (double end = test_now() + test_timeout(60); asked < OFFERS && test_now() < end;)
        weft_worker_progress(t.b, 0);
    CHECK_EQ(asked, OFFERS);
    CHECK_EQ(n_takers(t.b), OFFERS);
    for (int i = 0; i < OFFERS; i++) weft_request_cancel(requests[i]);
    UNTIL(&t, taken_back.calls == OFFERS && sent.calls == OFFERS);
    CHECK(taken_back.status == WEFT_ERR_CANCELLED && sent.status == WEFT_ERR_CANCELLED);
    CHECK_EQ(n_takers(t.b), 0);
    two_down(&t);
}

/* Messages from lent memory into lent memory: both sides copy, each when it has time, and no byte is missing or anybody else's. */
#include "lent.h"

#include <endpoints/rendezvous.h>
#include <endpoints/worker.h>
#include <transports/shm/shm.h>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static void post(struct into_pair *p, size_t len, size_t offset, struct tally *sent, struct tally *received) {
    memset(p->in - EDGE, 0x5a, LEN + 2 * EDGE);
    *sent = *received = (struct tally){0};
    CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &(weft_iov_t){p->in + offset, len}, 1, NULL, OP(received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p->l.t.ep, 1, &(weft_iov_t){p->l.out + offset / 2, len}, 1, OP(sent)), WEFT_IN_PROGRESS);
}

static void cross_jointly(struct into_pair *p, size_t len, size_t offset) {
    struct tally sent, received;
    post(p, len, offset, &sent, &received);
    UNTIL(&p->l.t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    check_room(p, len, offset);
}

/* Messages until the sender wrote a part of one. */
static void until_helped(struct into_pair *p) {
    uint64_t before = helped(p);
    double end = two_now() + test_patience(20);
    while (helped(p) == before && two_now() < end) cross_jointly(p, LARGE, 0);
    CHECK(helped(p) > before);
}

/* One that both are at for so many turns. */
static void begin(struct into_pair *p, int turns, struct tally *sent, struct tally *received) {
    into_up(p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    until_helped(p);
    post(p, LEN, 0, sent, received);
    for (int i = 0; i < turns; i++) two_turn(&p->l.t);
}

TEST(messages_of_any_length_are_copied_by_both_sides) {
    static const size_t lengths[] = {98304,  98305,         100000,          131072,           200001,
                                     262144, 262144 + 4095, 512 * 1024 + 63, 1024 * 1024 - 11, 1 << 20};
    struct into_pair p;
    into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    until_helped(&p);
    CHECK_EQ(peers_of(p.room), 1);
    for (size_t offset = 0; offset < 200; offset += 33)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            uint64_t before = helped(&p);
            cross_jointly(&p, lengths[i], offset);
            CHECK(helped(&p) <= before + lengths[i]); /* of a short one there may be nothing left */
            if (lengths[i] > 300000) CHECK(helped(&p) > before);
        }
    cross_jointly(&p, LEN - 100, 50);
    uint64_t before = helped(&p);
    cross_jointly(&p, 65535, 0); /* shorter ones are read by the receiver alone */
    CHECK_EQ(helped(&p), before);
    into_down(&p);
}

TEST(memory_that_is_lent_for_reading_only_is_written_by_nobody_else) {
    struct into_pair p;
    into_up(&p, 1, WEFT_MEM_READ);
    for (int i = 0; i < 20; i++) cross_jointly(&p, LARGE, 0);
    CHECK(read_in_place(&p.l) > 0 && helped(&p) == 0 && peers_of(p.room) == 0);
    into_down(&p);
}

/* Each by a key of its own. */
TEST(memory_that_was_lent_for_reading_is_lent_for_writing_when_that_is_wanted) {
    struct into_pair p;
    char *elsewhere = malloc(LARGE);
    into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    double end = two_now() + test_patience(20);
    while (weft_worker_count(p.l.t.a, "protocol.get") == 0 && two_now() < end) { /* it is sent out of */
        struct tally sent = {0}, received = {0};
        weft_iov_t to = {elsewhere, LARGE}, from = {p.in, LARGE};
        CHECK_EQ(weft_tag_recv(p.l.t.a, 1, UINT64_MAX, &to, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(p.l.t.back, 1, &from, 1, OP(&sent)), WEFT_IN_PROGRESS);
        UNTIL(&p.l.t, sent.calls && received.calls);
    }
    CHECK_EQ(peers_of(p.room), 1);
    until_helped(&p); /* and received into */
    CHECK_EQ(peers_of(p.room), 2);
    free(elsewhere);
    into_down(&p);
}

TEST(none_are_where_the_setting_says_so) {
    struct into_pair p;
    setenv("WEFT_SHM_JOINT", "0", 1);
    into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    for (int i = 0; i < 20; i++) cross_jointly(&p, LARGE, 0);
    CHECK(read_in_place(&p.l) > 0 && helped(&p) == 0);
    into_down(&p);
    unsetenv("WEFT_SHM_JOINT");
}

/* ---- one side has no time ---------------------------------------------------------------------------------------------- */

/* The receiver alone reads all of it, whatever it has asked. */
TEST(a_sender_that_is_away_is_not_waited_for) {
    struct into_pair p;
    struct tally sent, received;
    into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    until_helped(&p);
    uint64_t before = helped(&p);
    post(&p, LEN, 0, &sent, &received);
    double end = two_now() + test_patience(20);
    while (!received.calls && two_now() < end) weft_worker_progress(p.l.t.b, 0);
    CHECK(received.calls == 1 && received.status == WEFT_OK && sent.calls == 0);
    check_room(&p, LEN, 0);
    memset(p.in, 0, LEN); /* it is the receiver's again: who comes late writes nothing */
    for (int i = 0; i < 100; i++) two_turn(&p.l.t);
    CHECK(sent.calls == 1 && helped(&p) == before);
    for (size_t i = 0; i < LEN; i++) CHECK(p.in[i] == 0);
    cross_jointly(&p, LEN, 0);
    into_down(&p);
}

/* Once it has been asked, the sender alone writes what is left. */
TEST(a_receiver_that_is_away_finds_the_rest_written) {
    for (int turns = 1; turns < 12; turns++) {
        struct into_pair p;
        struct tally sent, received;
        into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
        until_helped(&p);
        uint64_t before = helped(&p);
        post(&p, LEN, 0, &sent, &received);
        for (int i = 0; i < turns; i++) weft_worker_progress(p.l.t.b, 0);
        for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.a, 0);
        CHECK(received.calls == 0 && sent.calls == 0);
        if (turns == 2) CHECK(helped(&p) - before > LEN / 2);
        UNTIL(&p.l.t, sent.calls && received.calls);
        check_room(&p, LEN, 0);
        into_down(&p);
    }
}

/* ---- a sender that is in the middle of a piece ------------------------------------------------------------------------ */

static struct iface *iface_of(const struct weft_worker *worker) {
    return worker->iface[0];
}

/* The test helps in the sender's place, who is away: it has taken the last piece and not written it when the receiver has all else. */
static struct joint take_last(struct into_pair *p, struct tally *sent, struct tally *received, int *piece_p) {
    struct joint helper;
    begin(p, 0, sent, received);
    struct shm_iface *iface = (struct shm_iface *)iface_of(p->l.t.b);
    double end = two_now() + test_patience(20);
    while (!iface->joints && two_now() < end) weft_worker_progress(p->l.t.b, 1);
    CHECK_EQ(iface->joints, 1);
    CHECK(joint_init(&helper, weft__hall_board(&iface->place)->words, iface->joint_serial, LEN));
    *piece_p = joint_from_back(&helper);
    CHECK_EQ(*piece_p, (int)helper.n - 1);
    for (int i = 0; i < 1000; i++) weft_worker_progress(p->l.t.b, 0);
    CHECK(received->calls == 0 && iface->owed);
    return helper;
}

TEST(a_message_is_received_when_the_last_piece_is_there_and_not_before) {
    struct into_pair p;
    struct tally sent, received;
    size_t len;
    int piece;
    struct joint helper = take_last(&p, &sent, &received, &piece);
    size_t at = joint_at(&helper, piece, &len);
    iface_of(p.l.t.b)->ops->helped(iface_of(p.l.t.b)); /* which is not true */
    for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.b, 0);
    CHECK_EQ(received.calls, 0);
    memcpy(p.in + at, p.l.out + at, len);
    CHECK(joint_wrote(&helper)); /* it is waited for */
    iface_of(p.l.t.b)->ops->helped(iface_of(p.l.t.b));
    UNTIL(&p.l.t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    check_room(&p, LEN, 0);
    into_down(&p);
}

TEST(a_piece_that_never_comes_is_waited_for_until_the_link_ends) {
    for (int cancel = 0; cancel < 2; cancel++) {
        struct into_pair p;
        struct tally sent, received, closed = {0};
        int piece;
        (void)take_last(&p, &sent, &received, &piece);
        if (cancel) CHECK(weft_ep_close(p.l.t.back, WEFT_CLOSE_ABORT, OP(&closed)) >= 0);
        for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.b, 0);
        CHECK_EQ(received.calls, 0); /* its memory is not the program's yet */
        into_down(&p);
        CHECK(received.calls == 1 && received.status < 0 && sent.calls == 1);
    }
}

/* More than either side has words for. */
TEST(of_many_at_once_each_is_whole) {
    enum { MANY = 150, EACH = 100001 };
    struct into_pair p;
    struct tally sent = {0}, received = {0};
    into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    until_helped(&p);
    weft_mem_t *wide = region_for(p.l.t.b, (size_t)MANY * EACH, WEFT_MEM_READ | WEFT_MEM_WRITE, 1);
    char *in = base_of(wide);
    for (int round = 0; round < 4; round++) {
        memset(in, 0, (size_t)MANY * EACH);
        sent = received = (struct tally){0};
        for (int i = 0; i < MANY; i++) {
            weft_iov_t to = {in + (size_t)i * EACH, EACH}, from = {p.l.out + i * 4099, EACH};
            CHECK_EQ(weft_tag_recv(p.l.t.b, (uint64_t)i, UINT64_MAX, &to, 1, NULL, OP(&received)),
                     WEFT_IN_PROGRESS);
            CHECK_EQ(weft_tag_send(p.l.t.ep, (uint64_t)i, &from, 1, OP(&sent)), WEFT_IN_PROGRESS);
        }
        UNTIL(&p.l.t, sent.calls == MANY && received.calls == MANY);
        for (int i = 0; i < MANY; i++) CHECK(memcmp(in + (size_t)i * EACH, p.l.out + i * 4099, EACH) == 0);
    }
    into_down(&p);
}

/* ---- how one ends early ------------------------------------------------------------------------------------------------ */

/* Who ends it, and after how many turns of both. The receiver's memory is its own when it was told. */
static void cancel_after(struct into_pair *p, int turns, bool sender) {
    struct tally sent = {0}, received = {0}, again = {0};
    weft_request_t *send = NULL, *receive = NULL;
    weft_op_t out = {.done = tally, .arg = &sent, .request_p = &send};
    weft_op_t in = {.done = tally, .arg = &received, .request_p = &receive};
    weft_iov_t to = {p->in, LEN}, from = {p->l.out, LEN};
    CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &to, 1, NULL, &in), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p->l.t.ep, 1, &from, 1, &out), WEFT_IN_PROGRESS);
    for (int i = 0; i < turns; i++) two_turn(&p->l.t);
    if (sender && !sent.calls) weft_request_cancel(send);
    if (!sender && !received.calls) weft_request_cancel(receive);
    for (int i = 0; i < 50; i++) two_turn(&p->l.t);
    if (sender && !received.calls) weft_request_cancel(receive);
    UNTIL(&p->l.t, received.calls == 1);
    if (received.status == WEFT_OK) CHECK(memcmp(p->in, p->l.out, LEN) == 0);
    memset(p->in, 0x33, LEN);
    for (int i = 0; i < 100; i++) two_turn(&p->l.t);
    for (size_t i = 0; i < LEN; i++) CHECK(p->in[i] == 0x33);
    if (!sent.calls) /* its receive was cancelled before it was found */
        CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &to, 1, NULL, OP(&again)), WEFT_IN_PROGRESS);
    UNTIL(&p->l.t, sent.calls == 1);
    CHECK(sent.calls == 1 && received.calls == 1 && again.calls <= 1);
}

TEST(either_side_may_cancel_at_any_time) {
    struct into_pair p;
    into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    until_helped(&p);
    for (int turns = 0; turns < 16; turns++) {
        cancel_after(&p, turns, true);
        cancel_after(&p, turns, false);
        cross_jointly(&p, LARGE, 0);
    }
    into_down(&p);
}

/* What cannot be read in place any more comes in pieces; what cannot be written by the sender is read by the receiver. */
TEST(either_region_may_be_revoked_under_it) {
    for (int turns = 0; turns < 24; turns++) {
        struct into_pair p;
        struct tally sent, received, revoked = {0};
        begin(&p, turns / 2, &sent, &received);
        CHECK(weft_mem_revoke(turns % 2 ? p.room : p.l.mem, OP(&revoked)) >= 0);
        UNTIL(&p.l.t, sent.calls && received.calls && revoked.calls);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && revoked.status == WEFT_OK);
        check_room(&p, LEN, 0);
        into_down(&p);
    }
}

TEST(an_endpoint_may_be_closed_under_it) {
    for (int turns = 0; turns < 24; turns++) {
        struct into_pair p;
        struct tally sent, received, closed = {0};
        begin(&p, turns / 2, &sent, &received);
        weft_ep_t *ep = turns % 2 ? p.l.t.back : p.l.t.ep;
        CHECK(weft_ep_close(ep, WEFT_CLOSE_ABORT, OP(&closed)) >= 0);
        UNTIL(&p.l.t, sent.calls);
        if (received.calls && received.status == WEFT_OK) check_room(&p, LEN, 0);
        memset(p.in, 0x33, LEN);
        for (int i = 0; received.calls && i < 100; i++) two_turn(&p.l.t);
        for (size_t i = 0; received.calls && i < LEN; i++) CHECK(p.in[i] == 0x33);
        into_down(&p);
        CHECK(sent.calls == 1 && received.calls == 1);
    }
}

/* Its messages move to a ring meanwhile, and with them the lane by which the memory is mapped. */
static void count_small(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(uint64_t *)arg;
}
TEST(both_copy_while_messages_move_to_another_lane) {
    struct into_pair p;
    uint64_t small = 0, sent = 0;
    into_up(&p, 1, WEFT_MEM_READ | WEFT_MEM_WRITE);
    until_helped(&p);
    CHECK_EQ(weft_am_handler_set(p.l.t.b, 3, count_small, &small), 0);
    double end = two_now() + test_patience(20);
    while (weft_worker_count(p.l.t.a, "lanes.promoted") == 0 && two_now() < end) {
        if (weft_am_send(p.l.t.ep, 3, NULL, 0, &(weft_iov_t){p.l.out, 8}, 1, NULL) >= 0) sent++;
        if (sent % 200 == 0) cross_jointly(&p, LARGE, sent % 999);
        two_turn(&p.l.t);
    }
    CHECK_EQ(weft_worker_count(p.l.t.a, "lanes.promoted"), 1);
    UNTIL(&p.l.t, small == sent);
    until_helped(&p);
    into_down(&p);
}

/* ---- a reader that means harm ------------------------------------------------------------------------------------------- */

/* The sender is in the middle of its part. Returns the receive. */
static struct weft_request *until_both_are_at_it(struct into_pair *p, struct tally *sent, struct tally *received) {
    begin(p, 0, sent, received);
    uint64_t before = helped(p);
    for (int i = 0; i < 2; i++) weft_worker_progress(p->l.t.b, 0);
    double end = two_now() + test_patience(20);
    while (helped(p) == before && two_now() < end) weft_worker_progress(p->l.t.a, 0);
    CHECK(helped(p) > before && helped(p) - before < LEN / 4 && sent->calls == 0);
    return list_of(p->l.t.back->requests.next, struct weft_request, of_ep);
}

/* It gives the memory back, which is the sender's program's from then on, and leaves the word standing by which it is helped. */
TEST(a_reader_that_says_early_that_it_has_read_is_helped_no_more) {
    struct into_pair p;
    struct tally sent, received;
    const struct weft_request *reads = until_both_are_at_it(&p, &sent, &received);
    weft__refuse_offer(p.l.t.back->link, reads->peer_id, WEFT_OK);
    double end = two_now() + test_patience(20);
    while (!sent.calls && two_now() < end) weft_worker_progress(p.l.t.a, 0);
    CHECK(sent.calls == 1 && sent.status == WEFT_OK);
    uint64_t until = helped(&p);
    for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.a, 0);
    CHECK_EQ(helped(&p), until);
    into_down(&p);
}

TEST(help_that_is_asked_for_again_is_a_breach) {
    struct into_pair p;
    struct tally sent, received;
    struct wire_message m;
    const struct weft_request *reads = until_both_are_at_it(&p, &sent, &received);
    struct link *link = p.l.t.back->link;
    struct wire_help again = {
        .request = reads->peer_id, .token = 1, .address = (uint64_t)(uintptr_t)p.in, .len = LEN};
    weft__wire_help(&m, again);
    CHECK_EQ(weft__link_say(link, link->tx, &m), WEFT_OK);
    UNTIL(&p.l.t, p.l.t.errors == 1 && sent.calls == 1);
    CHECK_EQ(p.l.t.error, WEFT_ERR_PROTOCOL);
    into_down(&p);
}

/* ---- at once ------------------------------------------------------------------------------------------------------------ */

struct player {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    char *out, *in;
    int ready;
    bool sleeps; /* in between, until it is woken */
};

static void player_ready(weft_ep_t *ep, void *arg) {
    ((struct player *)arg)->ready++;
}
static void player_endpoint(weft_ep_t *ep, void *arg) {
    ((struct player *)arg)->ep = ep;
}

static void player_open(struct player *s, bool sleeps) {
    weft_setting_t settings[] = {{"shm.copy", "staged"}};
    *s = (struct player){.sleeps = sleeps};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1}, &s->context), 0);
    weft_worker_params_t params = {.transports = "shm", .on_endpoint = player_endpoint, .arg = s};
    CHECK_EQ(weft_worker_create(s->context, &params, &s->worker), 0);
    s->out = base_of(region_for(s->worker, LEN, WEFT_MEM_READ | WEFT_MEM_WRITE, 1));
    s->in = base_of(region_for(s->worker, LEN, WEFT_MEM_READ | WEFT_MEM_WRITE, 1));
}

/* As an event loop does, for which nobody else looks. */
static void doze(const struct player *s) {
    struct pollfd p = {.fd = weft_worker_fd(s->worker), .events = POLLIN};
    CHECK(poll(&p, 1, 20000) == 1);
}

/* Each sends the other a message of every length, and checks what it gets against what the other must have sent. */
static void play(struct player *s, uint32_t seed, uint32_t other) {
    enum { ROUNDS = 150 };
    char *expected = malloc(LEN);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct tally sent = {0}, received = {0};
        size_t len = 65536 + (size_t)round * 2654435761u % (LEN - 65536);
        number(s->out, len, seed + round);
        weft_iov_t in = {s->in, LEN};
        weft_status_t st = weft_tag_recv(s->worker, round, UINT64_MAX, &in, 1, NULL, OP(&received));
        if (st == WEFT_OK) received.calls = 1; /* it had come, and was read at once */
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(s->ep, round, &(weft_iov_t){s->out, len}, 1, OP(&sent)), WEFT_IN_PROGRESS);
        double end = two_now() + test_patience(30);
        while ((!sent.calls || !received.calls) && two_now() < end)
            if (weft_worker_progress(s->worker, 0) == 0 && s->sleeps) doze(s);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && received.calls == 1);
        number(expected, len, other + round);
        CHECK(memcmp(s->in, expected, len / 4 * 4) == 0);
    }
    /* On a busy machine it may be little, or nothing. */
    printf("  %llu bytes written for the other\n", (unsigned long long)weft_worker_count(s->worker, "shm.helped"));
    free(expected);
}

static void player_down(struct player *s) {
    weft_worker_destroy(s->worker);
    CHECK_EQ(weft_context_destroy(s->context), 0);
}

static void other_process(bool sleeps, int out, int in) {
    struct player s;
    char address[256];
    size_t len = sizeof address;
    player_open(&s, sleeps);
    if (weft_worker_address(s.worker, address, &len) || write(out, address, len) != (ssize_t)len) _exit(1);
    while (!s.ep) weft_worker_progress(s.worker, 0);
    play(&s, 2000, 1000);
    while (read(in, address, 1) > 0) {
    } /* the other has all of ours */
    player_down(&s);
    _exit(0);
}

static void two_processes(bool sleep) {
    struct player s;
    int up[2], down[2], status;
    char address[256];
    CHECK_EQ(pipe(up), 0);
    CHECK_EQ(pipe(down), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(down[1]);
        other_process(sleep, up[1], down[0]);
    }
    ssize_t len = read(up[0], address, sizeof address);
    CHECK(len > 0);
    player_open(&s, sleep);
    weft_ep_params_t params = {.on_ready = player_ready, .arg = &s};
    CHECK_EQ(weft_connect_address(s.worker, address, (size_t)len, &params, &s.ep), 0);
    double end = two_now() + test_patience(20);
    while (!s.ready && two_now() < end) weft_worker_progress(s.worker, 0);
    play(&s, 1000, 2000);
    close(down[1]);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    player_down(&s);
    close(down[0]);
    close(up[0]);
    close(up[1]);
}

TEST(two_processes_that_send_at_once_help_each_other) {
    two_processes(false);
}
TEST(and_wake_each_other_where_they_sleep) {
    two_processes(true);
}

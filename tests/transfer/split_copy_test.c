/* Messages from exposed memory into exposed memory: both sides copy, each when it has time, and no
 * byte is missing or anybody else's. */
#include <tests/support/one_worker.h>
#include <tests/support/recv_buffer.h>

#include <endpoints/transfer/rendezvous.h>

#include <poll.h>

TEST(messages_of_any_length_are_copied_by_both_sides) {
    static const size_t lengths[] = {
        98304,  98305,         100000,          131072,           200001,
        262144, 262144 + 4095, 512 * 1024 + 63, 1024 * 1024 - 11, 1 << 20};
    struct into_pair p;
    into_up(&p, 1, RIGHTS);
    until_put_done(&p);
    CHECK_EQ(peers_of(p.room), 1);
    for (size_t offset = 0; offset < 200; offset += 33)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            uint64_t before = put_done(&p);
            cross_into(&p, lengths[i], offset);
            /* of a short one there may be nothing left */
            CHECK(put_done(&p) <= before + lengths[i]);
            if (lengths[i] > 300000) CHECK(put_done(&p) > before);
        }
    cross_into(&p, LEN - 100, 50);
    uint64_t before = put_done(&p);
    cross_into(&p, 65535, 0); /* shorter ones are read by the receiver alone */
    CHECK_EQ(put_done(&p), before);
    into_down(&p);
}

TEST(memory_that_is_exposed_for_reading_only_is_written_by_no_one_else) {
    struct into_pair p;
    into_up(&p, 1, WEFT_MEM_READ);
    for (int i = 0; i < 20; i++) cross_into(&p, LARGE, 0);
    CHECK(read_in_place(&p.l) > 0 && put_done(&p) == 0 && peers_of(p.room) == 0);
    into_down(&p);
}

/* Each by a key of its own. */
TEST(memory_that_is_exposed_for_reading_is_exposed_for_writing_when_that_is_wanted) {
    struct into_pair p;
    char *elsewhere = malloc(LARGE);
    into_up(&p, 1, RIGHTS);
    double end = test_now() + test_timeout(60);
    /* it is sent out of */
    while (weft_worker_count(p.l.t.a, "protocol.get") == 0 && test_now() < end) {
        struct tally sent = {0}, received = {0};
        weft_iov_t to = {elsewhere, LARGE}, from = {p.in, LARGE};
        CHECK_EQ(weft_tag_recv(p.l.t.a, 1, UINT64_MAX, &to, 1, NULL, OP(&received)),
                 WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(p.l.t.back, 1, &from, 1, OP(&sent)), WEFT_IN_PROGRESS);
        UNTIL(&p.l.t, sent.calls && received.calls);
    }
    CHECK_EQ(peers_of(p.room), 1);
    until_put_done(&p); /* and received into */
    CHECK_EQ(peers_of(p.room), 2);
    free(elsewhere);
    into_down(&p);
}

TEST(none_are_where_the_setting_forbids_them) {
    struct into_pair p;
    setenv("WEFT_SHM_SPLIT_COPY", "0", 1);
    into_up(&p, 1, RIGHTS);
    for (int i = 0; i < 20; i++) cross_into(&p, LARGE, 0);
    CHECK(read_in_place(&p.l) > 0 && put_done(&p) == 0);
    into_down(&p);
    unsetenv("WEFT_SHM_SPLIT_COPY");
}

/* ---- one side has no time -------------------------------------------------------------------- */

/* The receiver alone reads all of it, whatever it has asked. */
TEST(a_sender_that_is_away_is_not_waited_for) {
    struct into_pair p;
    struct tally sent, received;
    into_up(&p, 1, RIGHTS);
    until_put_done(&p);
    uint64_t before = put_done(&p);
    post(&p, LEN, 0, &sent, &received);
    double end = test_now() + test_timeout(60);
    while (!received.calls && test_now() < end) weft_worker_progress(p.l.t.b, 0);
    CHECK(received.calls == 1 && received.status == WEFT_OK && sent.calls == 0);
    check_room(&p, LEN, 0);
    memset(p.in, 0, LEN); /* it is the receiver's again: who comes late writes nothing */
    for (int i = 0; i < 100; i++) two_turn(&p.l.t);
    CHECK(sent.calls == 1 && put_done(&p) == before);
    for (size_t i = 0; i < LEN; i++) CHECK(p.in[i] == 0);
    cross_into(&p, LEN, 0);
    into_down(&p);
}

/* Once it has been asked, the sender alone writes what is left. */
TEST(a_receiver_that_is_away_finds_the_rest_written) {
    for (int turns = 1; turns < 12; turns++) {
        struct into_pair p;
        struct tally sent, received;
        into_up(&p, 1, RIGHTS);
        until_put_done(&p);
        uint64_t before = put_done(&p);
        post(&p, LEN, 0, &sent, &received);
        for (int i = 0; i < turns; i++) weft_worker_progress(p.l.t.b, 0);
        for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.a, 0);
        CHECK(received.calls == 0 && sent.calls == 0);
        if (turns == 2) CHECK(put_done(&p) - before > LEN / 2);
        UNTIL(&p.l.t, sent.calls && received.calls);
        check_room(&p, LEN, 0);
        into_down(&p);
    }
}

/* ---- a sender that is in the middle of a piece ----------------------------------------------- */

/* The test helps in the sender's place, who is away: it has taken the last piece and not written
 * it when the receiver has all else. */
static struct split take_last(struct into_pair *p, struct tally *sent, struct tally *received,
                              int *piece_p) {
    begin(p, 1, 0, sent, received);
    struct split helper = take_piece(p, piece_p);
    for (int i = 0; i < 1000; i++) weft_worker_progress(p->l.t.b, 0);
    CHECK(received->calls == 0 && ((struct shm_iface *)p->l.t.b->iface[0])->md->outstanding);
    return helper;
}

TEST(a_message_is_received_when_the_last_piece_is_there_and_not_before) {
    struct into_pair p;
    struct tally sent, received;
    size_t len;
    int piece;
    struct split helper = take_last(&p, &sent, &received, &piece);
    size_t at = split_at(&helper, piece, &len);
    struct iface *iface = p.l.t.b->iface[0];
    iface->ops->bulk->put_done(iface); /* which is not true */
    for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.b, 0);
    CHECK_EQ(received.calls, 0);
    memcpy(p.in + at, p.l.out + at, len);
    CHECK(split_wrote(&helper)); /* it is waited for */
    iface->ops->bulk->put_done(iface);
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
    struct into_pair p;
    into_up(&p, 1, RIGHTS);
    until_put_done(&p);
    many_at_once(&p, 4, p.l.out);
    into_down(&p);
}

/* ---- how one ends early ---------------------------------------------------------------------- */

TEST(either_side_may_cancel_at_any_time) {
    struct into_pair p;
    into_up(&p, 1, RIGHTS);
    until_put_done(&p);
    for (int turns = 0; turns < 16; turns++) {
        cancel_after(&p, turns, true);
        cancel_after(&p, turns, false);
        cross_into(&p, LARGE, 0);
    }
    into_down(&p);
}

/* What cannot be read in place any more comes in pieces; what cannot be written by the sender is
 * read by the receiver. */
TEST(either_region_may_be_revoked_under_it) {
    for (int turns = 0; turns < 24; turns++) {
        struct into_pair p;
        struct tally sent, received, revoked = {0};
        begin(&p, 1, turns / 2, &sent, &received);
        CHECK(weft_mem_revoke(turns % 2 ? p.room : p.l.mem, OP(&revoked)) >= 0);
        UNTIL(&p.l.t, sent.calls && received.calls && revoked.calls);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && revoked.status == WEFT_OK);
        check_room(&p, LEN, 0);
        into_down(&p);
    }
}

TEST(an_endpoint_may_be_closed_under_it) {
    for (int turns = 0; turns < 12; turns++) {
        close_after(1, turns, false);
        close_after(1, turns, true);
    }
}

TEST(both_copy_while_messages_move_to_another_lane) {
    cross_while_messages_move(1);
}

/* ---- a reader that means harm ---------------------------------------------------------------- */

/* The sender is in the middle of its part. Returns the receive. */
static struct weft_request *until_both_are_at_it(struct into_pair *p, struct tally *sent,
                                                 struct tally *received) {
    begin(p, 1, 0, sent, received);
    uint64_t before = put_done(p);
    for (int i = 0; i < 2; i++) weft_worker_progress(p->l.t.b, 0);
    double end = test_now() + test_timeout(60);
    while (put_done(p) == before && test_now() < end) weft_worker_progress(p->l.t.a, 0);
    CHECK(put_done(p) > before && put_done(p) - before < LEN / 4 && sent->calls == 0);
    return list_of(p->l.t.back->requests.next, struct weft_request, of_ep);
}

/* It gives the memory back, which is the sender's program's from then on, and leaves the word
 * standing by which it is helped. */
TEST(a_reader_that_sends_fin_early_gets_no_more_put_done) {
    struct into_pair p;
    struct tally sent, received;
    const struct weft_request *reads = until_both_are_at_it(&p, &sent, &received);
    weft__offer_fin(p.l.t.back->link, reads->peer_id, WEFT_OK);
    double end = test_now() + test_timeout(60);
    while (!sent.calls && test_now() < end) weft_worker_progress(p.l.t.a, 0);
    CHECK(sent.calls == 1 && sent.status == WEFT_OK);
    uint64_t until = put_done(&p);
    for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.a, 0);
    CHECK_EQ(put_done(&p), until);
    into_down(&p);
}

TEST(put_req_that_is_asked_for_again_is_a_breach) {
    struct into_pair p;
    struct tally sent, received;
    struct wire_message m;
    const struct weft_request *reads = until_both_are_at_it(&p, &sent, &received);
    struct link *link = p.l.t.back->link;
    struct wire_put_req again = {
        .request = reads->peer_id, .token = 1, .address = (uint64_t)(uintptr_t)p.in, .len = LEN};
    weft__wire_put_req(&m, again);
    CHECK_EQ(weft__link_send_ctrl(link, link->tx, &m), WEFT_OK);
    UNTIL(&p.l.t, p.l.t.errors == 1 && sent.calls == 1);
    CHECK_EQ(p.l.t.error, WEFT_ERR_PROTOCOL);
    into_down(&p);
}

/* ---- at once --------------------------------------------------------------------------------- */

static void player_open(struct side *s) {
    weft_setting_t settings[] = {{"shm.copy", "staged"}};
    side_open(s, "shm", settings, 1);
    s->out = base_of(region_for(s->worker, LEN, RIGHTS, 1));
    s->in = base_of(region_for(s->worker, LEN, RIGHTS, 1));
}

/* As an event loop does, without another poller. */
static void doze(const struct side *s) {
    struct pollfd p = {.fd = weft_worker_fd(s->worker), .events = POLLIN};
    CHECK(poll(&p, 1, (int)test_timeout(20000)) == 1);
}

/* Each sends the other a message of every length, and checks what it gets against what the other
 * must have sent. Who sleeps does so in between, until it is woken. */
static void play(struct side *s, bool sleeps, uint32_t seed, uint32_t other) {
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
        CHECK_EQ(weft_tag_send(s->ep, round, &(weft_iov_t){s->out, len}, 1, OP(&sent)),
                 WEFT_IN_PROGRESS);
        double end = test_now() + test_timeout(30);
        while ((!sent.calls || !received.calls) && test_now() < end)
            if (weft_worker_progress(s->worker, 0) == 0 && sleeps) doze(s);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && received.calls == 1);
        number(expected, len, other + round);
        CHECK(memcmp(s->in, expected, len / 4 * 4) == 0);
    }
    /* On a busy machine it may be little, or nothing. */
    printf("  %llu bytes written for the other\n",
           (unsigned long long)weft_worker_count(s->worker, "shm.put_bytes"));
    free(expected);
}

struct game {
    bool sleep;
    int over[2]; /* closed when the parent has all that the child sent */
};

static void other_process(int out, const void *arg) {
    const struct game *game = arg;
    struct side s;
    char byte;
    close(game->over[1]);
    player_open(&s);
    side_meet(&s, out);
    play(&s, game->sleep, 2000, 1000);
    while (read(game->over[0], &byte, 1) > 0) continue;
    side_close(&s);
    _exit(0);
}

static void two_processes(bool sleep) {
    struct game game = {.sleep = sleep};
    struct child child;
    struct side s;
    CHECK_EQ(pipe(game.over), 0);
    child_start(&child, other_process, &game);
    player_open(&s);
    child_dial(&child, &s);
    play(&s, sleep, 1000, 2000);
    close(game.over[1]);
    int status = child_end(&child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    side_close(&s);
    close(game.over[0]);
}

TEST(two_processes_that_send_at_once_ask_each_other_to_put) {
    two_processes(false);
}
TEST(and_wake_each_other_where_they_sleep) {
    two_processes(true);
}

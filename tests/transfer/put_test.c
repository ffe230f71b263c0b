/* Messages out of the program's own memory into exposed memory: the sender writes them where they
 * belong, once, and only while it may. */
#include <tests/support/recv_buffer.h>

#include <endpoints/transfer/rendezvous.h>
#include <endpoints/worker/features.h>
#include <weft/layout.h>

static uint64_t count(weft_worker_t *worker, const char *name) {
    return weft_worker_count(worker, name);
}
static uint64_t asked(const struct into_pair *p) {
    return count(p->l.t.b, "protocol.put");
}
static uint64_t in_pieces(const struct into_pair *p) {
    return count(p->l.t.b, "protocol.pieces");
}

TEST(messages_of_any_length_are_written_by_their_sender) {
    static const size_t lengths[] = {98305,  98306,           111473,           111474, 131071,
                                     131072, 131073,          200001,           262143, 262144,
                                     262145, 512 * 1024 + 63, 1024 * 1024 - 11, 1 << 20};
    struct into_pair p;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    CHECK_EQ(peers_of(p.room), 1);
    uint64_t pieces = in_pieces(&p);
    for (size_t offset = 0; offset < 200; offset += 33)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            uint64_t before = put_done(&p);
            cross_into(&p, lengths[i], offset);
            CHECK_EQ(put_done(&p), before + lengths[i]);
        }
    cross_into(&p, LEN - 100, 50);
    CHECK_EQ(in_pieces(&p), pieces);
    CHECK_EQ(read_in_place(&p.l), 0);
    into_down(&p);
}

TEST(messages_of_many_pieces_are_gathered_where_they_belong) {
    static const size_t cuts[][5] = {
        {LARGE / 2}, {0, 7, 100, 0, LARGE - 300}, {LARGE - 1}, {1}, {60001, 60001, 1, 0, 9}};
    struct into_pair p;
    struct tally sent, received;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    uint64_t pieces = in_pieces(&p);
    for (unsigned i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        uint64_t before = put_done(&p);
        weft_iov_t iov[6];
        size_t at = 0;
        for (unsigned k = 0; k < 6; at += iov[k++].len)
            iov[k] = (weft_iov_t){p.l.out + at, k < 5 ? cuts[i][k] : LARGE - at};
        post_from(&p, iov, 6, LARGE, 0, &sent, &received);
        UNTIL(&p.l.t, sent.calls && received.calls);
        check_room(&p, LARGE, 0);
        CHECK_EQ(put_done(&p), before + LARGE);
    }
    CHECK_EQ(in_pieces(&p), pieces);
    into_down(&p);
}

static weft_status_t pack(void *state, size_t offset, void *to, size_t len) {
    memcpy(to, (const char *)state + offset, len);
    return WEFT_OK;
}
static const weft_pack_ops_t as_it_is = {.pack = pack};

TEST(short_ones_and_those_that_the_program_packs_are_asked_for) {
    weft_layout_t packed = {.kind = WEFT_LAYOUT_USER, .user = &as_it_is};
    struct tally sent = {0}, received = {0};
    struct into_pair p;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    uint64_t before = put_done(&p), pieces = in_pieces(&p), puts = asked(&p);
    cross_into(&p, 98304, 0);
    cross_into(&p, 1, 7);
    CHECK(asked(&p) == puts && in_pieces(&p) == pieces + 2);
    weft_op_t laid = {.done = tally, .arg = &sent, .layout = &packed, .flags = WEFT_AM_RENDEZVOUS};
    weft_iov_t to = {p.in, LARGE}, from = {p.l.out, LARGE};
    CHECK_EQ(weft_tag_recv(p.l.t.b, 1, UINT64_MAX, &to, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p.l.t.ep, 1, &from, 1, &laid), WEFT_IN_PROGRESS);
    UNTIL(&p.l.t, sent.calls && received.calls);
    CHECK(received.status == WEFT_OK && memcmp(p.in, p.l.out, LARGE) == 0);
    CHECK(asked(&p) == puts + 1 && in_pieces(&p) == pieces + 3); /* it could not be known */
    CHECK_EQ(put_done(&p), before);
    into_down(&p);
}

TEST(memory_that_is_exposed_for_reading_only_is_written_by_no_one_else) {
    struct into_pair p;
    into_up(&p, 0, WEFT_MEM_READ);
    for (int i = 0; i < 20; i++) cross_into(&p, LARGE, 0);
    CHECK(asked(&p) == 0 && put_done(&p) == 0 && peers_of(p.room) == 0);
    into_down(&p);
}

TEST(none_are_where_the_setting_forbids_them) {
    struct into_pair p;
    setenv("WEFT_SHM_SPLIT_COPY", "0", 1);
    into_up(&p, 0, RIGHTS);
    for (int i = 0; i < 20; i++) cross_into(&p, LARGE, 0);
    CHECK(asked(&p) == 0 && put_done(&p) == 0);
    into_down(&p);
    unsetenv("WEFT_SHM_SPLIT_COPY");
}

TEST(of_a_message_that_is_too_long_the_room_is_written) {
    struct into_pair p;
    struct tally sent, received;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    uint64_t before = put_done(&p);
    post_from(&p, &(weft_iov_t){p.l.out, LEN}, 1, LARGE, 0, &sent, &received);
    UNTIL(&p.l.t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_ERR_TRUNCATED);
    CHECK_EQ(put_done(&p), before + LARGE);
    check_room(&p, LARGE, 0);
    into_down(&p);
}

/* The sender is not needed for that. */
TEST(what_the_kernel_reads_is_not_written) {
    weft_setting_t reads[] = {{"shm.copy", "vm"}};
    struct into_pair p = {0};
    two_workers(&p.l.t, "shm", reads, 1);
    two_dial(&p.l.t);
    UNTIL(&p.l.t, p.l.t.ready && p.l.t.back);
    p.l.out = malloc(LEN);
    number(p.l.out, LEN, 1);
    p.room = region_for(p.l.t.b, LEN + 2 * EDGE, RIGHTS, 1);
    p.in = base_of(p.room) + EDGE;
    p.flags = WEFT_AM_RENDEZVOUS;
    for (int i = 0; i < 20; i++) cross_into(&p, LARGE, 0);
    CHECK(read_in_place(&p.l) == 20 && put_done(&p) == 0 && asked(&p) == 0);
    two_down(&p.l.t);
    free(p.l.out);
}

static void receive_into(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct into_pair *p = arg;
    static struct tally none;
    (void)ep;
    CHECK(!am->data && am->len == LARGE);
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){p->in, LARGE}, 1, OP(&none)), WEFT_IN_PROGRESS);
}
TEST(active_messages_are_written_as_tagged_ones_are) {
    struct into_pair p;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    CHECK_EQ(weft_am_handler_set(p.l.t.b, 3, receive_into, &p), 0);
    for (int i = 0; i < 20; i++) {
        uint64_t before = put_done(&p);
        struct tally sent = {0};
        memset(p.in, 0, LARGE);
        CHECK_EQ(weft_am_send(p.l.t.ep, 3, "head", 4, &(weft_iov_t){p.l.out, LARGE}, 1, OP(&sent)),
                 WEFT_IN_PROGRESS);
        UNTIL(&p.l.t, sent.calls);
        CHECK(sent.status == WEFT_OK && put_done(&p) == before + LARGE);
        CHECK(memcmp(p.in, p.l.out, LARGE) == 0);
    }
    into_down(&p);
}

/* ---- one side has no time -------------------------------------------------------------------- */

/* Once it has been asked, the sender alone makes the message; the receiver is notified, and looks
 * at nothing before. */
TEST(a_receiver_that_is_away_finds_it_written) {
    struct into_pair p;
    struct tally sent, received;
    begin(&p, 0, 0, &sent, &received);
    uint64_t before = put_done(&p), puts = asked(&p);
    double end = test_now() + test_timeout(60);
    while (asked(&p) == puts && test_now() < end) weft_worker_progress(p.l.t.b, 0);
    for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.a, 0);
    CHECK_EQ(put_done(&p), before + LEN);
    CHECK(received.calls == 0 && sent.calls == 0);
    check_room(&p, LEN, 0);
    UNTIL(&p.l.t, sent.calls && received.calls);
    into_down(&p);
}

/* In a turn of the sender no more than a piece. */
TEST(a_turn_writes_a_bounded_share) {
    struct into_pair p;
    struct tally sent, received;
    begin(&p, 0, 0, &sent, &received);
    for (uint64_t before = put_done(&p), now; !sent.calls; before = now) {
        weft_worker_progress(p.l.t.b, 0);
        weft_worker_progress(p.l.t.a, 0);
        now = put_done(&p);
        CHECK(now - before <= 2 * SPLIT_PIECE); /* a look of progress is two turns at most */
    }
    UNTIL(&p.l.t, received.calls);
    into_down(&p);
}

/* It has begun, or not. */
static void end_without_the_sender(struct into_pair *p, int turns, bool deadline) {
    struct tally sent = {0}, received = {0};
    weft_request_t *receive = NULL;
    weft_op_t in = {
        .done = tally, .arg = &received, .request_p = &receive, .deadline_ms = deadline ? 1 : 0};
    CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &(weft_iov_t){p->in, LEN}, 1, NULL, &in),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p->l.t.ep, 1, &(weft_iov_t){p->l.out, LEN}, 1, OP(&sent)),
             WEFT_IN_PROGRESS);
    weft_worker_progress(p->l.t.b, 0);
    for (int i = 0; i < turns; i++) weft_worker_progress(p->l.t.a, 0);
    if (!deadline) weft_request_cancel(receive);
    double end = test_now() + test_timeout(60);
    while (!received.calls && test_now() < end) weft_worker_progress(p->l.t.b, 0);
    CHECK_EQ(received.calls, 1);
    CHECK(received.status == WEFT_OK ||
          received.status == (deadline ? WEFT_ERR_TIMED_OUT : WEFT_ERR_CANCELLED));
    no_more_is_written(p);
    UNTIL(&p->l.t, sent.calls == 1);
    CHECK_EQ(received.calls, 1);
}
TEST(the_end_of_a_receive_does_not_wait_for_a_sender_that_is_away) {
    struct into_pair p;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    for (int turns = 0; turns < 30; turns++) {
        end_without_the_sender(&p, turns, false);
        end_without_the_sender(&p, turns, true);
    }
    until_put_done(&p);
    into_down(&p);
}

/* ---- a sender that is in the middle of a piece ----------------------------------------------- */

/* The test writes in the sender's place, who is away and has not even been asked: it has taken
 * one piece. */
static struct split take_one(struct into_pair *p, struct tally *sent, struct tally *received,
                             weft_op_t *op, int *piece_p) {
    into_up(p, 0, RIGHTS);
    until_put_done(p);
    *sent = *received = (struct tally){0};
    CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &(weft_iov_t){p->in, LEN}, 1, NULL, op),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p->l.t.ep, 1, &(weft_iov_t){p->l.out, LEN}, 1, OP(sent)),
             WEFT_IN_PROGRESS);
    return take_piece(p, piece_p);
}

TEST(a_cancelled_receive_ends_when_the_piece_is_written_and_not_before) {
    struct into_pair p;
    struct tally sent, received;
    weft_request_t *receive = NULL;
    weft_op_t op = {.done = tally, .arg = &received, .request_p = &receive};
    int piece;
    struct split helper = take_one(&p, &sent, &received, &op, &piece);
    weft_request_cancel(receive);
    struct iface *iface = p.l.t.b->iface[0];
    for (int i = 0; i < 100; i++) {
        iface->ops->bulk->put_done(iface); /* which is not true */
        weft_worker_progress(p.l.t.b, 0);
    }
    CHECK_EQ(received.calls, 0); /* its memory is not the program's yet */
    CHECK_EQ(split_from_back(&helper), SPLIT_OVER);
    CHECK(split_wrote(&helper)); /* the receiver is to be notified */
    iface->ops->bulk->put_done(iface);
    for (int i = 0; i < 10; i++) weft_worker_progress(p.l.t.b, 0);
    CHECK(received.calls == 1 && received.status == WEFT_ERR_CANCELLED);
    no_more_is_written(&p);
    UNTIL(&p.l.t, sent.calls);
    CHECK_EQ(sent.status, WEFT_ERR_CANCELLED);
    into_down(&p);
}

/* A peer that sends what it was asked to write, and takes back what it says it has not begun. */
TEST(words_that_do_not_belong_there_write_nothing_and_end_nothing) {
    struct into_pair p;
    struct tally sent, received;
    weft_op_t op = {.done = tally, .arg = &received};
    struct wire_message m;
    char data[WIRE_DATA_HEAD + 64] = {0};
    int piece;
    size_t len;
    struct split helper = take_one(&p, &sent, &received, &op, &piece);
    struct weft_request *req = list_of(p.l.t.back->requests.next, struct weft_request, of_ep);
    struct lane *lane = p.l.t.back->link->lane;
    char before = p.in[0];
    uint64_t pieces = in_pieces(&p);
    weft__wire_data(data, (struct wire_data){.to = req->id});
    memset(data + WIRE_DATA_HEAD, before + 1, 64);
    weft__on_data(lane, WIRE_DATA, data, sizeof data);
    CHECK_EQ(p.in[0], before);
    weft__wire_one(&m, WIRE_GONE, req->id);
    for (int i = 0; i < 3; i++) weft__worker_up.am[WIRE_GONE](lane, WIRE_GONE, m.bytes, m.len);
    for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.b, 0);
    /* nothing is asked for while a piece is written */
    CHECK(received.calls == 0 && in_pieces(&p) == pieces);
    size_t at = split_at(&helper, piece, &len);
    memcpy(p.in + at, p.l.out + at, len);
    CHECK(split_wrote(&helper));
    p.l.t.b->iface[0]->ops->bulk->put_done(p.l.t.b->iface[0]);
    UNTIL(&p.l.t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && in_pieces(&p) == pieces + 1);
    CHECK(memcmp(p.in, p.l.out, LEN) == 0);
    into_down(&p);
}

TEST(a_piece_that_never_comes_is_waited_for_until_the_link_ends) {
    struct into_pair p;
    struct tally sent, received, closed = {0};
    weft_op_t op = {.done = tally, .arg = &received};
    int piece;
    (void)take_one(&p, &sent, &received, &op, &piece);
    CHECK(weft_ep_close(p.l.t.back, WEFT_CLOSE_ABORT, OP(&closed)) >= 0);
    for (int i = 0; i < 100; i++) weft_worker_progress(p.l.t.b, 0);
    CHECK_EQ(received.calls, 0);
    into_down(&p);
    CHECK(received.calls == 1 && received.status < 0 && sent.calls == 1);
}

/* ---- many at once ---------------------------------------------------------------------------- */

TEST(of_many_at_once_each_is_whole) {
    struct into_pair p;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    many_at_once(&p, 6, p.l.out);
    CHECK(asked(&p) > 64);
    into_down(&p);
}
/* Some are read, and helped with, in between. */
TEST(of_many_that_are_written_and_read_at_once_each_is_whole) {
    struct into_pair p;
    into_up(&p, 0, RIGHTS);
    weft_mem_t *exposed = region_of(p.l.t.a, LEN, 1);
    until_put_done(&p);
    many_at_once(&p, 6, base_of(exposed));
    CHECK(asked(&p) > 64 && read_in_place(&p.l) > 64);
    into_down(&p);
}

/* ---- how one ends early ---------------------------------------------------------------------- */

TEST(either_side_may_cancel_at_any_time) {
    struct into_pair p;
    into_up(&p, 0, RIGHTS);
    until_put_done(&p);
    for (int turns = 0; turns < 32; turns++) {
        cancel_after(&p, turns, true);
        cancel_after(&p, turns, false);
        cross_into(&p, LARGE, 0);
    }
    until_put_done(&p);
    into_down(&p);
}

/* A sender that ends notifies the receiver, which asks, and learns that there is nothing. */
TEST(a_send_that_is_cancelled_while_it_is_written_ends_its_receive) {
    for (int turns = 2; turns < 12; turns++) {
        struct into_pair p;
        struct tally sent = {0}, received = {0};
        weft_request_t *send = NULL;
        into_up(&p, 0, RIGHTS);
        until_put_done(&p);
        weft_op_t out = {.done = tally, .arg = &sent, .request_p = &send};
        CHECK_EQ(
            weft_tag_recv(p.l.t.b, 1, UINT64_MAX, &(weft_iov_t){p.in, LEN}, 1, NULL, OP(&received)),
            WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(p.l.t.ep, 1, &(weft_iov_t){p.l.out, LEN}, 1, &out),
                 WEFT_IN_PROGRESS);
        for (int i = 0; i < turns; i++) two_turn(&p.l.t);
        CHECK_EQ(sent.calls, 0);
        weft_request_cancel(send);
        weft_worker_progress(p.l.t.a, 0);
        CHECK(sent.calls == 1 && sent.status == WEFT_ERR_CANCELLED); /* its memory is not read */
        UNTIL(&p.l.t, received.calls);
        CHECK_EQ(received.status, WEFT_ERR_CANCELLED);
        no_more_is_written(&p);
        into_down(&p);
    }
}

/* What cannot be written by the sender any more comes in pieces. */
TEST(the_region_may_be_revoked_under_it) {
    int turned = 0;
    for (int turns = 0; turns < 24; turns++) {
        struct into_pair p;
        struct tally sent, received, revoked = {0};
        begin(&p, 0, turns, &sent, &received);
        uint64_t before = in_pieces(&p);
        CHECK(weft_mem_revoke(p.room, OP(&revoked)) >= 0);
        UNTIL(&p.l.t, sent.calls && received.calls && revoked.calls);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && revoked.status == WEFT_OK);
        turned += in_pieces(&p) > before;
        check_room(&p, LEN, 0);
        into_down(&p);
    }
    CHECK(turned > 2);
}

TEST(an_endpoint_may_be_closed_under_it) {
    for (int turns = 0; turns < 24; turns++) {
        close_after(0, turns, false);
        close_after(0, turns, true);
    }
}

TEST(a_close_in_good_order_waits_for_it) {
    for (int turns = 0; turns < 24; turns++) {
        struct into_pair p;
        struct tally sent, received, closed = {0};
        begin(&p, 0, turns, &sent, &received);
        CHECK(weft_ep_close(p.l.t.ep, WEFT_CLOSE_FLUSH, OP(&closed)) >= 0);
        UNTIL(&p.l.t, sent.calls && received.calls && closed.calls);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && closed.status == WEFT_OK);
        check_room(&p, LEN, 0);
        into_down(&p);
    }
}

TEST(either_worker_may_be_destroyed_under_it) {
    setenv("WEFT_CLOSE_TIMEOUT", "20ms", 1); /* the other one does not turn meanwhile */
    for (int turns = 0; turns < 32; turns++) {
        struct into_pair p;
        struct tally sent, received;
        begin(&p, 0, turns / 2, &sent, &received);
        weft_worker_t **which = turns % 2 ? &p.l.t.a : &p.l.t.b;
        weft_worker_destroy(*which);
        *which = NULL;
        double end = test_now() + test_timeout(60);
        while (!(turns % 2 ? received.calls : sent.calls) && test_now() < end) two_turn(&p.l.t);
        CHECK(sent.calls == 1 && received.calls == 1);
        into_down(&p);
    }
    unsetenv("WEFT_CLOSE_TIMEOUT");
}

TEST(it_is_written_while_messages_move_to_another_lane) {
    cross_while_messages_move(0);
}

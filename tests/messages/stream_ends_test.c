/* How streams end: cancelled, closed at either side, lost; and what was received of them by
 * then. */
#include <base/alloc.h>
#include <base/counters.h>
#include <endpoints/core/worker.h>
#include <tests/support/streams.h>

TEST_EACH(cancelled_receives_leave_the_bytes_to_others) {
    struct two t;
    struct tally c[3] = {{0}}, late = {0};
    weft_request_t *request[3];
    size_t len[3];
    write_bytes(out, 0, 100);
    two_up(&t, transport);
    for (int i = 0; i < 3; i++) {
        weft_op_t op = {
            .done = tally, .arg = &c[i], .request_p = &request[i], .flags = WEFT_STREAM_WAIT_ALL};
        CHECK_EQ(weft_stream_recv(t.back, ONE(in + i * 100, 10), &len[i], &op), WEFT_IN_PROGRESS);
    }
    weft_op_t op = {.done = tally, .arg = &late, .deadline_ms = 2};
    size_t late_len;
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 10), &late_len, &op), WEFT_IN_PROGRESS);
    weft_request_cancel(request[1]);
    UNTIL(&t, c[1].calls == 1 && late.calls == 1);
    CHECK(c[1].status == WEFT_ERR_CANCELLED && late.status == WEFT_ERR_TIMED_OUT && len[1] == 0);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 14), NULL), WEFT_OK);
    UNTIL(&t, c[0].calls == 1 && len[2] == 4);
    weft_request_cancel(request[2]);
    UNTIL(&t, c[2].calls == 1);
    CHECK(c[2].status == WEFT_ERR_CANCELLED && are_bytes(in, 0, 10) && are_bytes(in + 200, 10, 4));
    CHECK_EQ(weft_stream_send(t.ep, ONE(out + 14, 9), NULL), WEFT_OK);
    struct tally rest = {0};
    weft_status_t st = weft_stream_recv(t.back, ONE(in, 50), &len[0], OP(&rest));
    UNTIL(&t, ended(st, &rest));
    CHECK(len[0] == 9 && are_bytes(in, 14, 9));
    for (int i = 0; i < 3; i++) CHECK_EQ(c[i].calls, 1);
    two_down(&t);
}

/* A receive that was not posted has taken nothing of the stream. */
TEST_EACH(a_receive_without_memory_for_its_deadline_leaves_the_bytes) {
    enum { TIMERS = 2000 };
    static struct timer timer[TIMERS];
    struct two t;
    struct tally ready = {0};
    unsigned n = 0;
    size_t len;
    write_bytes(out, 0, 14);
    two_up(&t, transport);
    weft_op_t all = {
        .done = tally, .arg = &ready, .flags = WEFT_STREAM_WAIT_ALL, .deadline_ms = 60000};
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 4), &len, &all), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 4), NULL), WEFT_OK);
    UNTIL(&t, ready.calls == 1); /* its memory is used again */
    CHECK_EQ(weft_stream_send(t.ep, ONE(out + 4, 10), NULL), WEFT_OK);
    weft_worker_t *b = two_b(&t);
    UNTIL(&t, b->count->stream_in == 14);
    struct reactor *r = b->reactor;
    while (weft__timer_is_at_hand(r))
        CHECK_EQ(weft__timer_start(r, &timer[n++], weft__now(r) + 600 * NS_PER_S), 0);
    (void)weft__alloc_fail_at(1);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 20), &len, &all), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(weft__alloc_fail_at(0), 1);
    CHECK_EQ(len, 0);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 10), &len, &all), WEFT_OK);
    CHECK(len == 10 && are_bytes(in, 4, 10));
    while (n > 0) weft__timer_stop(r, &timer[--n]);
    two_down(&t);
}

/* Sends in every state: under way, without room, behind one without room. What was sent stays
 * sent. */
TEST_EACH(cancelled_sends_end_and_the_next_ones_go) {
    struct two t;
    struct tally first = {0}, second = {0}, third = {0}, got = {0};
    weft_request_t *request[2];
    size_t len;
    write_bytes(out, 0, 100000);
    up_with_window(&t, transport, "20000");
    weft_op_t op = {.done = tally, .arg = &first, .request_p = &request[0]};
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 50000), &op), WEFT_IN_PROGRESS);
    op = (weft_op_t){.done = tally, .arg = &second, .request_p = &request[1]};
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 50), &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out + 20000, 5000), OP(&third)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 100; i++) two_turn(&t);
    CHECK(first.calls == 0 && second.calls == 0 && third.calls == 0);
    weft_request_cancel(request[1]);
    weft_request_cancel(request[0]);
    UNTIL(&t, first.calls == 1 && second.calls == 1);
    CHECK(first.status == WEFT_ERR_CANCELLED && second.status == WEFT_ERR_CANCELLED);
    weft_status_t st = weft_stream_recv(t.back, ONE(in, 25000), &len, ALL(&got));
    UNTIL(&t, ended(st, &got) && third.calls == 1);
    CHECK(third.status == WEFT_OK && are_bytes(in, 0, 25000));
    two_down(&t);
}

/* Under way, without room, behind one without room, and whole. */
TEST_EACH(a_send_that_ends_early_counts_what_it_sent) {
    struct two t;
    struct tally first = {0}, second = {0}, third = {0}, got = {0};
    size_t sent[3] = {7, 7, 7}, len;
    weft_request_t *request;
    write_bytes(out, 0, 100000);
    up_with_window(&t, transport, "20000");
    weft_op_t op = {.done = tally, .arg = &first, .deadline_ms = 20};
    CHECK_EQ(weft_stream_send_counted(t.ep, ONE(out, 50000), &sent[0], &op), WEFT_IN_PROGRESS);
    op = (weft_op_t){.done = tally, .arg = &second, .request_p = &request};
    CHECK_EQ(weft_stream_send_counted(t.ep, ONE(out, 50), &sent[1], &op), WEFT_IN_PROGRESS);
    UNTIL(&t, first.calls == 1);
    CHECK(first.status == WEFT_ERR_TIMED_OUT && sent[0] == 20000);
    weft_request_cancel(request);
    UNTIL(&t, second.calls == 1);
    CHECK(second.status == WEFT_ERR_CANCELLED && sent[1] == 0);
    /* The program goes on where the first one ended. */
    weft_status_t st =
        weft_stream_send_counted(t.ep, ONE(out + sent[0], 30000), &sent[2], OP(&third));
    weft_status_t got_st = weft_stream_recv(t.back, ONE(in, 50000), &len, ALL(&got));
    UNTIL(&t, ended(st, &third) && ended(got_st, &got));
    CHECK(outcome(st, &third) == WEFT_OK && sent[2] == 30000 && are_bytes(in, 0, 50000));
    CHECK_EQ(weft_stream_send_counted(t.ep, ONE(out, 0), &sent[0], NULL), WEFT_OK);
    CHECK_EQ(weft_stream_send_counted(t.ep, ONE(out, 10), &sent[1], NULL), WEFT_OK);
    CHECK(sent[0] == 0 && sent[1] == 10); /* within the call */
    CHECK_EQ(weft_stream_send_counted(t.ep, ONE(out, 10), NULL, NULL), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

TEST_EACH(a_peer_that_closes_in_good_order_is_received_to_the_end) {
    struct two t;
    struct tally closed = {0}, sent = {0}, part = {0};
    size_t len, at = 0;
    const void *data;
    write_bytes(out, 0, 300000);
    two_up(&t, transport);
    CHECK(weft_stream_send(t.ep, ONE(out, 300000), OP(&sent)) >= 0);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls == 1 && t.back_errors == 1);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(weft_stream_take(t.back, &data, &len), WEFT_OK);
    CHECK(are_bytes(data, 0, len));
    at = len;
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 100), &len, NULL), WEFT_OK);
    CHECK(len == 100 && are_bytes(in, at, 100));
    at += 100;
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, ROOM), &len, ALL(&part)), WEFT_ERR_PEER_CLOSED);
    CHECK(len == 300000 - at && are_bytes(in, at, len));
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 1), &len, NULL), WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(weft_stream_take(t.back, &data, &len), WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(weft_stream_send(t.back, ONE(in, 1), NULL), WEFT_ERR_PEER_CLOSED);
    CHECK(part.calls == 0);
    two_down(&t);
}

TEST_EACH(posted_receives_end_with_the_peer_and_report_what_came) {
    struct two t;
    struct tally some = {0}, all = {0}, next_one = {0};
    size_t some_len, all_len, next_len;
    write_bytes(out, 0, 100);
    two_up(&t, transport);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 4), &some_len, OP(&some)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in + 4, 50), &all_len, ALL(&all)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_recv(t.back, ONE(in, 4), &next_len, OP(&next_one)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 11), NULL), WEFT_OK);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, some.calls == 1 && all.calls == 1 && next_one.calls == 1);
    CHECK(some.status == WEFT_OK && some_len == 4);
    CHECK(all.status == WEFT_ERR_PEER_CLOSED && all_len == 7 && are_bytes(in + 4, 4, 7));
    CHECK(next_one.status == WEFT_ERR_PEER_CLOSED && next_len == 0);
    two_down(&t);
}

TEST_EACH(our_own_close_ends_receives_and_waits_for_none) {
    struct two t;
    struct tally recv = {0}, flushed = {0}, closed = {0};
    size_t len;
    two_up(&t, transport);
    CHECK_EQ(weft_stream_recv(t.ep, ONE(in, 4), &len, OP(&recv)), WEFT_IN_PROGRESS);
    weft_status_t st = weft_ep_flush(t.ep, OP(&flushed));
    UNTIL(&t, ended(st, &flushed));
    CHECK(outcome(st, &flushed) == WEFT_OK && recv.calls == 0);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_recv(t.ep, ONE(in, 4), &len, NULL), WEFT_ERR_CLOSED);
    UNTIL(&t, closed.calls == 1);
    CHECK(recv.calls == 1 && recv.status == WEFT_ERR_CLOSED && closed.status == WEFT_OK);
    two_down(&t);
}

/* More than both windows under way, and both close: each throws away what comes, so that both
 * get rid of theirs. */
TEST_EACH(both_may_close_with_more_under_way_than_the_window) {
    struct two t;
    struct tally sent[2] = {{0}}, closed[2] = {{0}};
    up_with_window(&t, transport, "10000");
    CHECK_EQ(weft_stream_send(t.ep, ONE(out, 200000), OP(&sent[0])), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.back, ONE(out, 200000), OP(&sent[1])), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed[0])), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed[1])), WEFT_IN_PROGRESS);
    UNTIL(&t,
          closed[0].calls == 1 && closed[1].calls == 1 && sent[0].calls == 1 && sent[1].calls == 1);
    CHECK(sent[0].status == WEFT_OK || sent[1].status == WEFT_OK);
    two_down(&t);
}

TEST_EACH(a_loss_ends_everything_once_and_leaves_what_came) {
    struct two t;
    struct tally sent[3] = {{0}}, recv = {0};
    size_t len;
    write_bytes(out, 0, 100000);
    up_with_window(&t, transport, "20000");
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_stream_send(t.ep, ONE(out, 50000), OP(&sent[i])), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_recv(t.ep, ONE(in, 10), &len, OP(&recv)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_send(t.back, ONE(out, 4), NULL), WEFT_OK);
    UNTIL(&t, recv.calls == 1);
    CHECK_EQ(weft_stream_send(t.back, ONE(out + 4, 10), NULL), WEFT_OK);
    for (int i = 0; i < 50; i++) two_turn(&t);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, sent[0].calls && sent[1].calls && sent[2].calls && t.errors == 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(sent[i].calls, 1);
    CHECK(sent[2].status < 0);
    CHECK_EQ(weft_stream_recv(t.ep, ONE(in, 50), &len, NULL), WEFT_OK);
    CHECK(len == 10 && are_bytes(in, 4, 10));
    CHECK(weft_stream_recv(t.ep, ONE(in, 50), &len, NULL) < 0 && len == 0);
    two_down(&t);
}

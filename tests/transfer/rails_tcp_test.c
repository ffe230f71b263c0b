/* Rails over sockets: their pieces land, and the split follows what really crosses them. */
#include <tests/support/rails.h>

#include <sys/socket.h>
#include <transports/tcp/tcp.h>

enum { MESSAGE = 1 << 20, SLOW = 4 << 20 /* bytes a second */ };

static uint64_t share_of_rails(struct run *r, size_t len) {
    uint64_t before = weft_worker_count(r->two.a, "rail.bytes_out");
    transfer(r, false, len);
    return weft_worker_count(r->two.a, "rail.bytes_out") - before;
}

TEST(pieces_on_rails_place_where_they_belong) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    raise_rails(&r, 1);
    link_of(&r, false)->more->rate = 1;
    rail_of(r.two.a, 0)->more->rate = 3;
    uint64_t before = weft_worker_count(two_b(&r.two), "tcp.placed_bytes");
    uint64_t share = share_of_rails(&r, LARGE);
    CHECK(share > LARGE / 2); /* so the link's own lane cannot have brought as much */
    CHECK(weft_worker_count(two_b(&r.two), "tcp.placed_bytes") - before > LARGE / 2);
    close_run(&r);
}

/* ---- an end while several lanes write into the same memory */

static void pace(struct link *rail, unsigned bytes_per_second) {
    int fd = tcp_lane(rail->lane)->watch.fd;
    CHECK_EQ(
        setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, sizeof bytes_per_second),
        0);
}

/* Two lanes are in the middle of a piece; both go slowly from there on, so that nothing is over
 * by chance. */
static weft_request_t *begin_placement(struct run *r, uint32_t deadline_ms) {
    weft_request_t *receive = NULL;
    raise_rails(r, 1);
    memset(r->in, 0, LARGE);
    r->sent = r->received = 0;
    link_of(r, false)->more->rate = rail_of(r->two.a, 0)->more->rate = 1;
    pace(link_of(r, false), SLOW);
    pace(rail_of(r->two.a, 0), SLOW);
    weft_op_t op = {
        .done = on_received, .arg = r, .request_p = &receive, .deadline_ms = deadline_ms};
    CHECK_EQ(
        weft_tag_recv(two_b(&r->two), 1, UINT64_MAX, &(weft_iov_t){r->in, LARGE}, 1, NULL, &op),
        WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(r->two.ep, 1, &(weft_iov_t){r->out, LARGE}, 1,
                           &(weft_op_t){.done = on_sent, .arg = r}),
             WEFT_IN_PROGRESS);
    UNTIL(&r->two, r->received || receive->in_flight.count == 2);
    return receive;
}

/* The program has its memory back, so no write goes there. */
static void nothing_is_written_any_more(struct run *r) {
    CHECK_EQ(r->received, 1);
    memset(r->in, 0x55, LARGE);
    double end = test_now() + 0.1;
    while (test_now() < end) two_turn(&r->two);
    for (size_t i = 0; i < LARGE; i++) CHECK(r->in[i] == 0x55);
    CHECK_EQ(r->received, 1);
}

TEST(a_cancel_stops_every_lane_that_places) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    weft_request_t *receive = begin_placement(&r, 0);
    CHECK_EQ(r.received, 0);
    weft_request_cancel(receive);
    UNTIL(&r.two, r.received == 1);
    CHECK_EQ(r.received_status, WEFT_ERR_CANCELLED);
    nothing_is_written_any_more(&r);
    pace(link_of(&r, false), UINT32_MAX);
    pace(rail_of(r.two.a, 0), UINT32_MAX);
    UNTIL(&r.two, r.sent == 1);
    transfer(&r, false, LARGE); /* and the lanes still work */
    CHECK_EQ(r.two.errors, 0);
    close_run(&r);
}

TEST(a_deadline_stops_every_lane_that_places) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    begin_placement(&r, 150);
    UNTIL(&r.two, r.received == 1);
    CHECK_EQ(r.received_status, WEFT_ERR_TIMED_OUT);
    nothing_is_written_any_more(&r);
    close_run(&r);
}

TEST(the_loss_of_any_lane_stops_every_lane_that_places) {
    for (int which = 0; which < 4; which++) {
        struct run r;
        open_run(&r, "tcp", "2", NULL);
        begin_placement(&r, 0);
        CHECK_EQ(r.received, 0);
        weft_worker_t *at = which & 1 ? r.two.a : two_b(&r.two);
        weft__link_lose(which & 2 ? rail_of(at, 0) : rail_of(at, 0)->more->main, WEFT_ERR_IO);
        UNTIL(&r.two, r.received == 1 && r.sent == 1);
        /* what a sender's socket held may have come all the same */
        bool whole = memcmp(r.in, r.out, LARGE) == 0;
        CHECK(r.received_status < 0 || (which & 1 && whole));
        nothing_is_written_any_more(&r);
        close_run(&r);
    }
}

TEST(a_close_of_the_worker_stops_every_lane_that_places) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    begin_placement(&r, 0);
    CHECK_EQ(weft_worker_close(r.two.b, &(weft_op_t){.done = two_gone, .arg = &r.two.b}),
             WEFT_IN_PROGRESS);
    UNTIL(&r.two, !r.two.b);
    CHECK_EQ(r.received, 1);
    CHECK(r.received_status < 0);
    close_run(&r);
}

/* ---- a rail that is really slow */

/* What a socket takes says little: a megabyte fits into it. */
TEST(a_slow_rail_is_left_out_after_two_messages_and_comes_back) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    raise_rails(&r, 1);
    struct link *rail = rail_of(r.two.a, 0);
    pace(rail, SLOW);
    transfer(&r, false, MESSAGE);
    transfer(&r, false, MESSAGE);
    CHECK_EQ(share_of_rails(&r, MESSAGE), 0);

    pace(rail, UINT32_MAX);
    uint64_t share = 0;
    int messages = 0;
    /* beside other programs a small share may look slow for long */
    double until = test_now() + test_timeout(60);
    for (; share < MESSAGE / 8 && test_now() < until; messages++)
        share = share_of_rails(&r, MESSAGE);
    CHECK(share >= MESSAGE / 8);
    CHECK(messages >= RAILS_LOOK_AGAIN / 2); /* until then it was not asked */
    close_run(&r);
}

/* One that is there to be looked at costs about as much time as the others take. */
TEST(a_rail_that_stays_slow_costs_little) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    raise_rails(&r, 1);
    pace(rail_of(r.two.a, 0), SLOW);
    for (int i = 0; i < 2; i++) transfer(&r, false, MESSAGE);
    uint64_t share = 0;
    for (int i = 0; i < 2 * RAILS_LOOK_AGAIN; i++) share += share_of_rails(&r, MESSAGE);
    CHECK(share > 0 && share <= MESSAGE / 2); /* two looks among 64 messages */
    close_run(&r);
}

TEST(the_link_s_own_lane_may_be_the_slow_one) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    raise_rails(&r, 1);
    pace(link_of(&r, false), SLOW);
    transfer(&r, false, MESSAGE);
    transfer(&r, false, MESSAGE);
    CHECK(share_of_rails(&r, MESSAGE) > MESSAGE / 2);
    close_run(&r);
}

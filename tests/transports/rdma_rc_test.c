/* Connected queue pairs of rdma beyond what all transports promise: what they cost, and what the
 * device says. */
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include "rdma_rc.h"

/* ---- what it costs --------------------------------------------------------------------------- */

/* As much as a lane takes; how much that was. */
static uint64_t fill_up(struct pair *p) {
    uint64_t n = 0;
    while (send_msg(&p->a, n) == WEFT_OK) n++;
    return n;
}

static void all_there(struct pair *p, uint64_t n) {
    CHECK(pair_until(p, p->b.n_messages == n));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t number;
        memcpy(&number, p->b.messages[i].data, 8);
        CHECK_EQ(number, i);
    }
}

TEST(short_messages_go_within_their_requests_and_one_in_sixteen_is_completed) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    /* what connecting took */
    CHECK(pair_until(&p, rc_lane(p.a.lane)->posted == rc_lane(p.a.lane)->done));
    CHECK(raw_a(&p)->max_inline >= RC_INLINE);
    uint64_t before = weft__count(p.reactor_a)->rdma_completions;
    CHECK_EQ(raw_a(&p)->send.n, 0); /* registered memory was not needed, and is not made */
    uint64_t n = fill_up(&p);
    CHECK(n > RC_DEPTH / 2);
    all_there(&p, n);
    CHECK(pair_until(&p, weft__count(p.reactor_a)->rdma_completions - before >= n / RC_SIGNAL - 1));
    pair_turns(&p, 50);
    CHECK(weft__count(p.reactor_a)->rdma_completions - before <= n / RC_SIGNAL + 1);
    CHECK_EQ(raw_a(&p)->send.n, 0);
    struct lane *lane = p.a.lane;
    char big[300] = "too long to go within";
    weft_iov_t iov = {big, sizeof big};
    CHECK_EQ(lane->ops->am_zcopy(lane, 1, &(struct lane_zcopy){"12345678", 8, &iov, 1}, NULL),
             WEFT_OK);
    CHECK(raw_a(&p)->send.n > 0);
    end_of(&p);
}

/* They leave from registered memory, of which each is free again when its message has left. */
TEST(short_messages_go_by_a_device_that_takes_nothing_within_a_request) {
    enum { ROUNDS = 3 };
    struct pair p;
    char bytes[RC_INLINE];
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    raw_a(&p)->max_inline = 0;
    memset(bytes, 'x', sizeof bytes);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t n = fill_up(&p);
        all_there(&p, n);
        CHECK(pair_until(&p, p.a.lane->ops->am_short(p.a.lane, 4, 7, bytes, sizeof bytes - 8) ==
                                 WEFT_OK));
        CHECK(pair_until(&p, p.b.n_messages == n + 1));
        CHECK(p.b.messages[n].len == sizeof bytes &&
              !memcmp(p.b.messages[n].data + 8, bytes, sizeof bytes - 8));
        pair_forget(&p.b);
        CHECK(raw_a(&p)->send.n > 0 && raw_a(&p)->send.n <= 2 * RC_DEPTH);
    }
    end_of(&p);
}

/* The marker of a flush asks for the completion of all before it. */
TEST(a_flush_asks_for_the_completion_of_all_before_it) {
    struct pair p;
    struct counted c = counted(1);
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    /* what connecting took */
    CHECK(pair_until(&p, rc_lane(p.a.lane)->posted == rc_lane(p.a.lane)->done));
    uint64_t before = weft__count(p.reactor_a)->rdma_completions;
    for (uint64_t i = 0; i < 3; i++) CHECK_EQ(send_msg(&p.a, i), WEFT_OK);
    all_there(&p, 3);
    CHECK_EQ(weft__count(p.reactor_a)->rdma_completions, before);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &c.completion), WEFT_IN_PROGRESS);
    CHECK(pair_until(&p, c.calls == 1));
    CHECK_EQ(weft__count(p.reactor_a)->rdma_completions, before + 1);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &c.completion), WEFT_OK);
    end_of(&p);
}

/* What the device counted, where it does ("send_rnr_err": times when it let a peer wait). */
static long hardware_counter(const char *name) {
    char path[160];
    long value = -1;
    snprintf(path, sizeof path, "/sys/class/infiniband/rxe0/ports/1/hw_counters/%s", name);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    if (fscanf(f, "%ld", &value) != 1) value = -1;
    fclose(f);
    return value;
}

/* b does not look, and has room for sixteen: the hardware asks a to wait, for as long as it
 * takes. */
TEST(who_has_no_receives_left_is_waited_for) {
    struct pair p;
    WANTS_A_DEVICE();
    const weft_setting_t few[] = {insecure, {"rdma.receives", "16"}};
    begin_with(&p, few, 2);
    pair_connect(&p);
    long before = hardware_counter("send_rnr_err");
    uint64_t n = fill_up(&p);
    CHECK(n > 2 * 16);
    bool waits = before < 0;
    for (double until = test_now() + test_timeout(2); !waits && test_now() < until;) {
        weft__reactor_progress(p.reactor_a, 0);
        waits = hardware_counter("send_rnr_err") > before;
    }
    CHECK_EQ(p.b.n_messages, 0);
    CHECK(waits);
    all_there(&p, n);
    CHECK(p.a.n_down == 0 && p.b.n_down == 0);
    end_of(&p);
}

TEST(what_was_accepted_leaves_before_a_lane_closes) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    uint64_t n = fill_up(&p);
    p.a.lane->ops->close(p.a.lane, true);
    CHECK_EQ(rc_lane(p.a.lane)->machine.fsm.state, RC_QP_SQD);
    CHECK(send_msg(&p.a, n) < 0);
    CHECK(pair_until(&p, p.a.n_closed == 1));
    all_there(&p, n);
    CHECK(pair_until(&p, p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    CHECK(raw_a(&p)->n_lanes == 0);
    end_of(&p);
}

TEST(as_many_queue_pairs_as_were_configured_are_sent_to_be_scarce) {
    struct pair p;
    static struct end a[3], b[3];
    WANTS_A_DEVICE();
    const weft_setting_t two[] = {insecure, {"rdma.queue_pairs", "2"}};
    begin_with(&p, two, 2);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
    CHECK_EQ(p.iface_a->attr.scarce, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open == 1 && b[i].n_open == 1));
        CHECK(a[i].lane->scarce && b[i].lane->scarce);
    }
    CHECK_EQ(pair_dial(&p, &a[2], &b[2]), WEFT_ERR_QUOTA);
    pair_end_close(&a[0], true);
    pair_end_close(&b[0], true);
    CHECK_EQ(pair_dial(&p, &a[2], &b[2]), WEFT_OK);
    CHECK(pair_until(&p, a[2].n_open == 1 && b[2].n_open == 1));
    for (int i = 1; i < 3; i++) pair_end_close(&a[i], true), pair_end_close(&b[i], true);
    end_of(&p);
}

/* ---- what the device says -------------------------------------------------------------------- */

static void fatal(struct end *end) {
    struct rc_iface *iface = rc_iface_of(rc_lane(end->lane));
    struct ibv_async_event event = {.element.qp = rc_lane(end->lane)->qp,
                                    .event_type = IBV_EVENT_QP_FATAL};
    iface->user.event(&iface->user, &event);
}

/* Software never says so of a queue pair: here the word alone is forged, and once the queue pair
 * is broken indeed. */
TEST(a_queue_pair_that_is_lost_ends_its_lane_alone) {
    struct pair p;
    static struct end other_a, other_b;
    WANTS_A_DEVICE();
    for (int how = 0; how < 2; how++) {
        struct counted c = counted(1);
        begin_with(&p, &insecure, 1);
        pair_connect(&p);
        memset(&other_a, 0, sizeof other_a), memset(&other_b, 0, sizeof other_b);
        CHECK_EQ(pair_dial(&p, &other_a, &other_b), WEFT_OK);
        CHECK(pair_until(&p, other_a.n_open == 1 && other_b.n_open == 1));
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        if (how == 0)
            fatal(&p.a);
        else
            CHECK_EQ(ibv_modify_qp(rc_lane(p.a.lane)->qp, &attr, IBV_QP_STATE), 0);
        CHECK_EQ(p.a.n_down, 0); /* never inside of it */
        if (how == 1) CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &c.completion), WEFT_OK);
        if (how == 1) CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
        for (uint64_t i = 0; how == 1 && i < RC_SIGNAL; i++) (void)send_msg(&p.a, i);
        CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
        CHECK_EQ(send_msg(&other_a, 5), WEFT_OK);
        CHECK(pair_until(&p, other_b.n_messages == 1));
        CHECK(other_a.n_down + other_b.n_down == 0);
        pair_end_close(&other_a, true);
        pair_end_close(&other_b, true);
        end_of(&p);
    }
}

/* The other words that software never says: forged as well. */
static void forge(struct rc_iface *iface, struct ibv_async_event event) {
    weft__rd_device_reports(iface->device, &event);
}

TEST(where_a_device_has_a_last_word_its_queue_pair_waits_for_it) {
    struct pair p;
    WANTS_A_DEVICE();
    const weft_setting_t patient[] = {insecure, {"close.timeout", "100s"}};
    begin_with(&p, patient, 2);
    raw_a(&p)->software = false;
    pair_connect(&p);
    struct rc_lane *lane = rc_lane(p.a.lane);
    struct ibv_async_event last = {.element.qp = lane->qp,
                                   .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};
    lane->lane.ops->close(&lane->lane, true);
    CHECK(pair_until(&p, lane->machine.fsm.state == RC_QP_SPENT && lane->marked &&
                             lane->posted == lane->done));
    pair_turns(&p, 100);
    CHECK(p.a.n_closed == 0 && lane->qp);
    forge(raw_a(&p), last);
    CHECK(pair_until(&p, p.a.n_closed == 1));
    CHECK_EQ(raw_a(&p)->n_lanes, 0);
    end_of(&p);
}

/* Two lanes of a's, on which `spoil` has the last word; then a new one. */
static void all_lanes_end(void (*spoil)(struct rc_iface *iface), weft_status_t why) {
    struct pair p;
    static struct end a[2], b[2];
    struct counted c = counted(1);
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open == 1 && b[i].n_open == 1));
    }
    CHECK_EQ(send_msg(&a[0], 1), WEFT_OK);
    CHECK_EQ(a[0].lane->ops->flush(a[0].lane, &c.completion), WEFT_IN_PROGRESS);
    spoil(raw_a(&p));
    CHECK(a[0].n_down + a[1].n_down == 0 && c.calls == 0); /* never inside of it */
    CHECK(pair_until(&p, a[0].n_down == 1 && a[1].n_down == 1 && c.calls == 1));
    CHECK(a[0].down == why && a[1].down == why);
    CHECK(send_msg(&a[0], 2) < 0);
    CHECK(pair_until(&p, b[0].n_down == 1 && b[1].n_down == 1));
    pair_connect(&p); /* with new queues */
    CHECK_EQ(send_msg(&p.a, 3), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    for (int i = 0; i < 2; i++) pair_end_close(&a[i], true), pair_end_close(&b[i], true);
    end_of(&p);
}

static void cq_err(struct rc_iface *iface) {
    forge(iface,
          (struct ibv_async_event){.element.cq = iface->cq.cq, .event_type = IBV_EVENT_CQ_ERR});
}
TEST(a_completion_queue_that_is_lost_ends_all_its_lanes_and_is_made_again) {
    all_lanes_end(cq_err, WEFT_ERR_IO);
}

/* The context that these are of is closed, and another is opened. */
static int no_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
    return -EIO;
}
static void spoil_polls(struct rc_iface *iface) {
    iface->device->context->ops.poll_cq = no_poll;
}
static int no_request(struct ibv_cq *cq, int solicited_only) {
    return EIO;
}
static void spoil_requests(struct rc_iface *iface) {
    iface->device->context->ops.req_notify_cq = no_request;
    CHECK(!iface->cq.poller.arm(&iface->cq.poller));
}
TEST(a_completion_queue_that_cannot_be_polled_is_lost) {
    all_lanes_end(spoil_polls, WEFT_ERR_IO);
}
TEST(a_completion_queue_that_promises_no_event_is_lost) {
    all_lanes_end(spoil_requests, WEFT_ERR_IO);
}

static void device_fatal(struct rc_iface *iface) {
    forge(iface, (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
}
TEST(a_device_that_fails_ends_all_lanes_and_is_opened_again) {
    all_lanes_end(device_fatal, WEFT_ERR_PEER_FAILED);
}

/* An acceptor that leaves at once, before its rdmacm knows of the dialer: a refusal, which comes
 * too late to be one. */
TEST(a_refusal_of_a_connection_that_stands_is_its_end_and_no_violation) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    struct rdma_cm_event event = {.event = RDMA_CM_EVENT_REJECTED, .status = 28};
    CHECK_EQ(send_msg(&p.b, 1), WEFT_OK);
    rc_lane(p.a.lane)->cm.event(&rc_lane(p.a.lane)->cm, &event);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft__count(p.reactor_a)->violations, 0);
    end_of(&p);
}

#define WANTS_THE_BED()                                                       \
    if (access("/machine/status", F_OK) && access("/sys/class/net/v0", F_OK)) \
    SKIP("no RDMA device to take away here")

TEST(a_port_that_is_down_ends_what_is_sent) {
    struct pair p;
    WANTS_A_DEVICE();
    WANTS_THE_BED();
    const weft_setting_t at_rxe0[] = {insecure, {"rdma.device", "rxe0"}};
    begin_with(&p, at_rxe0, 2);
    pair_connect(&p);
    CHECK_EQ(system("tests/rdma/port 0 down"), 0);
    for (uint64_t i = 0; i < RC_SIGNAL; i++) (void)send_msg(&p.a, i);
    bool down = pair_until(&p, p.a.n_down == 1);
    CHECK_EQ(system("tests/rdma/port 0 up"), 0);
    CHECK(down);
    CHECK(p.a.down < 0);
    end_of(&p);
}

#else
TEST(short_messages_go_within_their_requests_and_one_in_sixteen_is_completed) {
    SKIP("built without rdma");
}
#endif

/* A link's traffic moves from one lane to another and back while it flows: nothing is lost,
 * nothing comes twice, the order is kept. */
#include <tests/support/lane_switch.h>

static const weft_setting_t quiet[] = {
    {"lanes.switch", "on"}, {"lanes.min_rate", "1000g"}, {"close.timeout", "100ms"}};

static void to_and_fro_with(const weft_setting_t *settings, size_t n, const char *transports,
                            const char *where, const char *name, bool scarce, unsigned rounds) {
    struct pair p;
    pair_begin(&p, transports, settings, n, NULL, 0);
    pair_up(&p, where);
    for (unsigned i = 0; i < rounds; i++) pair_round(&p, name, scarce);
    pair_finish(&p);
    CHECK(p.flow[0].am_seen > rounds);
    uint64_t held = weft_worker_count(p.worker[0], "link.reordered_bytes") +
                    weft_worker_count(p.worker[1], "link.reordered_bytes");
    printf("  %u times to and fro: %llu + %llu messages, %llu bytes of streams, %llu one-sided "
           "operations, %llu "
           "bytes held\n",
           rounds, (unsigned long long)(p.flow[0].am_seen + p.flow[1].am_seen),
           (unsigned long long)(p.flow[0].tag_seen + p.flow[1].tag_seen),
           (unsigned long long)(p.flow[0].in + p.flow[1].in),
           (unsigned long long)(p.flow[0].rma_done + p.flow[1].rma_done), (unsigned long long)held);
    pair_end(&p);
}

static void to_and_fro(const char *transports, const char *where, const char *name, bool scarce,
                       unsigned rounds) {
    to_and_fro_with(quiet, 3, transports, where, name, scarce, rounds);
}

TEST(all_kinds_of_traffic_survive_switches_between_tcp_and_shm) {
    to_and_fro("shm,tcp", "tcp://127.0.0.1:0", "shm", false, 40);
}
TEST(all_kinds_of_traffic_survive_switches_between_tcp_and_a_ring) {
    to_and_fro("shm,tcp", "tcp://127.0.0.1:0", "shm", true, 40);
}
/* Where one-sided operations go as messages, too, each lane has keys of its own. */
TEST(keys_that_are_refused_leave_with_their_lane) {
    weft_setting_t settings[] = {quiet[0], quiet[1], quiet[2], {"shm.rma", "message"}};
    to_and_fro_with(settings, 4, "shm,tcp", "tcp://127.0.0.1:0", "shm", true, 10);
}
TEST(all_kinds_of_traffic_survive_switches_between_mailbox_and_ring) {
    to_and_fro("shm", NULL, "shm", true, 40);
}
TEST(all_kinds_of_traffic_survive_switches_between_two_connections) {
    to_and_fro("tcp", NULL, "tcp", false, 40);
}

/* ---- in virtual time, where every state lasts */

static struct sim_profile two_kinds(bool loses) {
    struct sim_profile is = loses ? weft__sim_datagram : weft__sim_reliable;
    is.scarce = 64;
    is.scarce_latency_ns = is.latency_ns / 8;
    is.delay = 20000;
    is.delay_ns = 300000;
    is.exhaustion = 50000;
    is.exhaustion_ns = 20000;
    if (loses) is.loss = is.duplicate = is.reorder = 20000;
    if (loses) is.reorder_ns = 10000;
    return is;
}

static void in_virtual_time(bool loses, bool scarce, uint64_t seed, unsigned rounds) {
    struct pair p;
    struct sim_profile is = two_kinds(loses);
    pair_begin(&p, "sim", quiet, 3, &is, seed);
    pair_up(&p, NULL);
    for (unsigned i = 0; i < rounds; i++) pair_round(&p, "sim", scarce);
    pair_finish(&p);
    pair_end(&p);
}

TEST(all_kinds_of_traffic_survive_switches_to_a_faster_lane_in_virtual_time) {
    for (uint64_t seed = 1; seed <= 4; seed++) in_virtual_time(false, true, seed, 12);
}
TEST(all_kinds_of_traffic_survive_switches_between_equal_lanes_in_virtual_time) {
    for (uint64_t seed = 1; seed <= 4; seed++) in_virtual_time(false, false, seed, 12);
}
TEST(all_kinds_of_traffic_survive_switches_between_lanes_that_lose) {
    for (uint64_t seed = 1; seed <= 2; seed++) in_virtual_time(true, true, seed, 8);
}

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}
static void count_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

/* Both go home at once. The peer has read the lane that is left to its end, and says so by the
 * other one; that it acknowledges what came by this one is still due when this one is closed,
 * and dies. */
TEST(a_message_that_is_in_flight_outlives_the_lane_that_its_link_leaves) {
    static char bytes[9500];
    struct pair p;
    int came = 0;
    weft_status_t status = WEFT_IN_PROGRESS;
    weft_op_t op = {.done = note, .arg = &status};
    struct sim_profile is = weft__sim_datagram;
    is.scarce = 64;
    is.scarce_latency_ns = is.latency_ns;
    pair_begin(&p, "sim", quiet, 3, &is, 1);
    pair_up(&p, NULL);
    CHECK_EQ(weft_am_handler_set(p.worker[1], 7, count_am, &came), 0);
    CHECK_EQ(pair_join(&p, 0, "sim", true), 0);
    UNTIL(&p, is_away(&p, 0));
    struct lane *left = weft__sim_nth_lane(p.fabric, 0, 1, 0);
    CHECK(left->scarce);
    CHECK_EQ(weft_am_send(p.flow[0].ep, 7, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, &op),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft__switch_back(link_of(&p, 0)), 0);
    CHECK_EQ(weft__switch_back(link_of(&p, 1)), 0);
    UNTIL(&p, state_of(&p, 0) == SWITCH_ALONE);
    CHECK_EQ(came, 1);
    CHECK_EQ(status, WEFT_IN_PROGRESS);
    weft__sim_kill(left);
    UNTIL(&p, status != WEFT_IN_PROGRESS);
    CHECK_EQ(status, WEFT_OK);
    CHECK_EQ(p.errors, 0);
    pair_end(&p);
}

/* A lane dies at any moment: the link goes on by the other one with nothing missing, or both
 * sides lose it. */
static void until_lost_or_moved(struct pair *p, uint64_t ns) {
    uint64_t end = weft__clock_now(p->clock) + ns;
    while (!p->errors && weft__clock_now(p->clock) < end) {
        pair_traffic(p);
        if (!pair_turn(p)) break;
    }
}

static void a_lane_dies(uint64_t seed, unsigned which, uint64_t at, uint64_t later,
                        unsigned *lost_p) {
    struct pair p;
    struct sim_profile is = two_kinds(false);
    pair_begin(&p, "sim", quiet, 3, &is, seed);
    p.kinds = FLOW_AM | FLOW_RMA;
    pair_up(&p, NULL);
    unsigned a = weft__sim_node(weft__worker_iface(p.worker[0], "sim", 3)),
             b = weft__sim_node(weft__worker_iface(p.worker[1], "sim", 3));
    until_lost_or_moved(&p, 200000);
    CHECK_EQ(pair_join(&p, (int)(seed % 2), "sim", true), 0);
    bool dies = false, back = false;
    uint64_t begun = weft__clock_now(p.clock);
    while (!p.errors && weft__clock_now(p.clock) < begun + 3000000) {
        uint64_t now = weft__clock_now(p.clock) - begun;
        if (!dies && now >= at) {
            struct lane *lane =
                weft__sim_nth_lane(p.fabric, which % 2 ? b : a, which % 2 ? a : b, which / 2);
            dies = true;
            if (lane) (void)weft__sim_fail(lane, 0, later);
        }
        if (!back && now > 1200000 && link_of(&p, 0))
            back = weft__switch_back(link_of(&p, 0)) != WEFT_ERR_BUSY;
        if (!p.errors) pair_traffic(&p);
        if (!pair_turn(&p)) break;
    }
    CHECK_EQ(p.wrong, 0);
    if (p.errors) {
        UNTIL(&p, p.errors == 2);
        ++*lost_p;
    } else {
        pair_finish(&p);
    }
    pair_end(&p);
}

TEST(a_lane_that_dies_at_any_moment_takes_the_link_or_nothing_with_it) {
    unsigned lost = 0, n = 0;
    for (unsigned which = 0; which < 4; which++)
        for (uint64_t at = 0; at < 2200000; at += 200000, n++)
            a_lane_dies(n + 1, which, at, n % 3 * 20000, &lost);
    printf("  %u deaths, %u links lost\n", n, lost);
    CHECK(lost > 0 && lost < n);
}

/* Asked at any moment, by either side: BUSY, or it comes to pass. */
static void back_at(uint64_t seed, int side, uint64_t at) {
    struct pair p;
    struct sim_profile is = two_kinds(false);
    pair_begin(&p, "sim", quiet, 3, &is, seed);
    p.kinds = FLOW_AM;
    pair_up(&p, NULL);
    until_lost_or_moved(&p, 100000);
    CHECK_EQ(pair_join(&p, (int)(seed % 2), "sim", true), 0);
    until_lost_or_moved(&p, at);
    while (!link_of(&p, side)->more->switching->lane[1] ||
           weft__switch_back(link_of(&p, side)) == WEFT_ERR_BUSY)
        until_lost_or_moved(&p, 1000);
    until_lost_or_moved(&p, 5000000);
    CHECK(both_in(&p, SWITCH_ALONE));
    pair_finish(&p);
    pair_end(&p);
}
TEST(a_way_back_that_is_promised_is_gone) {
    for (unsigned n = 1; n < 48; n++) back_at(n, (int)(n / 2 % 2), n / 4 * 25000);
}

/* Whichever side closes, whatever is under way, both workers come to their end. */
static void closed_at(uint64_t seed, unsigned what, uint64_t at) {
    struct pair p;
    struct sim_profile is = two_kinds(false);
    pair_begin(&p, "sim", quiet, 3, &is, seed);
    p.kinds = FLOW_AM | FLOW_RMA;
    pair_up(&p, NULL);
    until_lost_or_moved(&p, 100000);
    CHECK_EQ(pair_join(&p, (int)(seed % 2), "sim", true), 0);
    until_lost_or_moved(&p, at);
    if (link_of(&p, 0)) (void)weft__switch_back(link_of(&p, 0));
    until_lost_or_moved(&p, at % 70000);
    if (what == 0) weft__link_lose(link_of(&p, 0), WEFT_ERR_TIMED_OUT);
    if (what == 1) CHECK_EQ(weft_ep_close(p.flow[0].ep, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    if (what == 2) CHECK_EQ(weft_ep_close(p.flow[0].ep, WEFT_CLOSE_FLUSH, NULL), WEFT_IN_PROGRESS);
    if (what == 3) weft__link_violation(link_of(&p, 1), "as a test");
    for (uint64_t end = weft__clock_now(p.clock) + at % 90000;
         what < 4 && weft__clock_now(p.clock) < end;)
        if (!pair_turn(&p)) break;
    CHECK_EQ(p.wrong, 0);
    p.flow[0].rkey = p.flow[1].rkey = NULL;
    pair_end(&p);
}
TEST(a_close_comes_to_its_end_at_any_moment) {
    for (unsigned what = 0, n = 1; what < 5; what++)
        for (uint64_t at = 0; at < 1000000; at += 67000, n++) closed_at(n, what, at);
}

static void on_left(weft_status_t status, void *arg) {
    ++*(int *)arg;
}
static uint64_t numbers;
static void on_number(weft_ep_t *ep, weft_am_t *am, void *arg) {
    uint64_t n = UINT64_MAX;
    memcpy(&n, am->header, am->header_len);
    if (n != numbers++) wrong(arg, __LINE__);
}
static void leaves(struct pair *p, uint64_t sent) {
    int left = 0;
    CHECK_EQ(
        weft_ep_close(p->flow[0].ep, WEFT_CLOSE_FLUSH, &(weft_op_t){.done = on_left, .arg = &left}),
        WEFT_IN_PROGRESS);
    for (int i = 0; i < 100000 && !left && !p->clock; i++) weft_worker_progress(p->worker[0], 0);
    UNTIL(p, left);
    CHECK_EQ(weft_worker_close(p->worker[0], &(weft_op_t){.done = on_closed, .arg = &p->worker[0]}),
             WEFT_IN_PROGRESS);
    for (int i = 0; i < 100000 && p->worker[0] && !p->clock; i++)
        weft_worker_progress(p->worker[0], 0);
    UNTIL(p, p->errors == 1 && !p->worker[0]);
    CHECK_EQ(numbers, sent);
    CHECK_EQ(p->wrong, 0);
    CHECK_EQ(p->error, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(weft_worker_close(p->worker[1], &(weft_op_t){.done = on_closed, .arg = &p->worker[1]}),
             WEFT_IN_PROGRESS);
    UNTIL(p, !p->worker[1]);
    talloc_free(p->clock);
    CHECK_EQ(weft_context_destroy(p->context), 0);
}
static void listens_for_numbers(struct pair *p) {
    numbers = 0;
    for (int i = 0; i < SIDES; i++) weft_rkey_release(p->flow[i].rkey), p->flow[i].rkey = NULL;
    CHECK_EQ(weft_am_handler_set(p->worker[1], 4, on_number, p), 0);
}
static bool send_number(struct pair *p, uint64_t n) {
    return weft_am_send(p->flow[0].ep, 4, &n, sizeof n, NULL, 0, NULL) >= 0;
}

/* A side that is done closes, its process ends, and its peer has all that was sent, by whichever
 * lane. */
static void leaves_at(uint64_t seed, int dialer, uint64_t at) {
    struct pair p;
    struct sim_profile is = two_kinds(false);
    uint64_t sent = 0;
    is.delay = 100000; /* a slow lane is behind the other */
    pair_begin(&p, "sim", quiet, 3, &is, seed);
    pair_up(&p, NULL);
    listens_for_numbers(&p);
    CHECK_EQ(pair_join(&p, dialer, "sim", true), 0);
    for (uint64_t end = weft__clock_now(p.clock) + at; weft__clock_now(p.clock) < end;
         pair_turn(&p))
        sent += send_number(&p, sent);
    leaves(&p, sent);
}
TEST(who_leaves_in_the_midst_of_a_switch_takes_nothing_back) {
    for (unsigned n = 1; n < 300; n++) leaves_at(n, n % 4 != 0, n * 2000);
}

/* It has sent END, and DRAINED has not come. */
static bool has_crossed(struct pair *p, int side) {
    return state_of(p, side) == SWITCH_MOVING &&
           link_of(p, side)->more->switching->core.way_out.state == SWITCH_OUT_SENT;
}

/* The one who stays learns of the end of the lane that it has gone to before it has read the
 * other. */
TEST(who_leaves_by_two_lanes_is_read_on_both) {
    struct pair p;
    uint64_t sent = 0;
    pair_begin(&p, "shm,tcp", quiet, 3, NULL, 0);
    pair_up(&p, "tcp://127.0.0.1:0");
    listens_for_numbers(&p);
    CHECK_EQ(pair_join(&p, 1, "shm", true), 0);
    UNTIL(&p, has_crossed(&p, 1));
    while (sent < 50) sent += send_number(&p, sent);
    leaves(&p, sent);
}

/* A lane that notes who no longer waits for room in it. */
static struct lane_ops watched;
static const struct lane_ops *unwatched;
static const struct pending *waits;
static int n_waited_no_more;
static void waits_no_more(struct lane *lane, struct pending *pending) {
    if (pending == waits)
        n_waited_no_more++;
    else
        unwatched->pending_remove(lane, pending);
}

/* As if a message of the switch had found no room in the lane. */
static void wait_for_room(struct switching *s, struct lane *lane) {
    unwatched = lane->ops;
    watched = *unwatched;
    watched.pending_remove = waits_no_more;
    lane->ops = &watched;
    CHECK(s->pending_at == NULL);
    s->pending_at = lane;
    waits = &s->pending;
    n_waited_no_more = 0;
}

static void go_away(struct pair *p) {
    pair_begin(p, "shm,tcp", quiet, 3, NULL, 0);
    pair_up(p, "tcp://127.0.0.1:0");
    CHECK_EQ(pair_join(p, 0, "shm", true), 0);
    UNTIL(p, is_away(p, 0));
}

TEST(a_lane_that_a_link_leaves_is_not_waited_for) {
    struct pair p;
    go_away(&p);
    struct switching *s = link_of(&p, 0)->more->switching;
    wait_for_room(s, s->lane[s->core.out]);
    CHECK_EQ(weft__switch_back(link_of(&p, 0)), 0);
    UNTIL(&p, both_in(&p, SWITCH_ALONE));
    CHECK_EQ(n_waited_no_more, 1);
    CHECK(s->pending_at == NULL);
    pair_finish(&p);
    pair_end(&p);
}

TEST(a_link_that_ends_does_not_wait_for_its_lane) {
    struct pair p;
    go_away(&p);
    struct link *link = link_of(&p, 0);
    wait_for_room(link->more->switching, link->lanes[0]); /* the other one leaves before */
    weft__causes_clear();
    weft__link_lose(link, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(n_waited_no_more, 1);
    UNTIL(&p, p.errors == 2);
    p.flow[0].rkey = p.flow[1].rkey = NULL;
    pair_end(&p);
}

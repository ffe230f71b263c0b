/* Links that carry much get a faster lane, when both sides have a place for it, and give it
 * back; whatever happens meanwhile. */
#include <tests/support/lane_negotiation.h>

static struct hub hub;

static void flow(struct numbers *n, unsigned burst, size_t len) {
    n->burst = burst;
    n->len = len;
}

/* ---- there and back */

TEST(a_link_that_carries_much_gets_a_faster_lane_and_an_idle_one_gives_it_back) {
    hub_open(&hub, 1, NULL, 0);
    struct spoke *s = &hub.spoke[0];
    flow(&s->in, 4, 1000);
    HUB_UNTIL(&hub, is_fast(s));
    CHECK(strcmp(spoke_link(s)->lane->iface->transport->name, "shm") == 0);
    CHECK_EQ(weft_worker_count(s->worker, "lanes.promoted"), 1);
    CHECK_EQ(weft_worker_count(hub.worker, "lanes.promoted"), 1);
    CHECK_EQ(hub.worker->lanes->held_in_all, 1);
    uint64_t before = s->in.seen;
    HUB_UNTIL(&hub, s->in.seen > before + 5000);
    CHECK(is_fast(s));
    hub_stop(&hub);
    HUB_UNTIL(&hub, is_at_base(s));
    CHECK(strcmp(spoke_link(s)->lane->iface->transport->name, "tcp") == 0);
    CHECK(s->worker->lanes->held_in_all == 0 && hub.worker->lanes->held_in_all == 0);
    CHECK(weft_worker_count(s->worker, "lanes.demoted") == 1 &&
          weft_worker_count(hub.worker, "lanes.demoted") == 1);
    flow(&s->in, 4, 1000);
    HUB_UNTIL(&hub, is_fast(s));
    hub_close(&hub);
}

/* The receiver alone would give the lane back: what it sends is nothing, and few large messages
 * count little. */
TEST(traffic_of_one_way_keeps_its_lane_as_long_as_it_flows) {
    hub_open(&hub, 1, NULL, 0);
    struct spoke *s = &hub.spoke[0];
    flow(&s->out, 2, 4000);
    HUB_UNTIL(&hub, is_fast(s));
    hub_run(&hub, 0.3);
    CHECK(is_fast(s));
    CHECK_EQ(weft_worker_count(s->worker, "lanes.demoted"), 0);
    hub_close(&hub);
}

/* ---- both want one: neither asks before the test says so, and then both do in one turn, before
 * either receives from the other */

static struct usage_hooks own_hooks;
static bool asking;

static bool eligible_now(void *key, void *arg) {
    return asking && own_hooks.eligible(key, arg);
}
static void hold_questions(weft_worker_t *w) {
    own_hooks = w->tracking->hooks; /* all but its `arg` is the same in every worker */
    weft__tracking_hook(w, &(struct usage_hooks){.eligible = eligible_now,
                                                 .promote = own_hooks.promote,
                                                 .demote = own_hooks.demote,
                                                 .arg = own_hooks.arg});
}
static struct link *hub_link(const struct spoke *s) {
    return ((struct weft_ep *)s->out.ep)->link;
}
/* One tick of time, by the worker's own tracker. The link's score suffices for a lane, also on a
 * busy machine. */
static void tick_with(struct link *link) {
    struct usage *usage = link->worker->tracking->usage;
    weft__usage_min_score(usage, link, UINT64_C(1) << 40);
    (void)weft__usage_tick(usage, weft__usage_due(usage));
    weft__usage_min_score(usage, link, 0);
    weft__tracking_wake(link->worker);
}
/* Nothing is received between the two. */
static void both_ask(struct spoke *s) {
    HUB_UNTIL(&hub, spoke_state(s) <= NEGOTIATE_BASE && hub_state(s) <= NEGOTIATE_BASE);
    asking = true;
    tick_with(spoke_link(s));
    tick_with(hub_link(s));
}

TEST(both_sides_ask_at_once_and_get_one_lane) {
    hub_open(&hub, 1, NULL, 0);
    struct spoke *s = &hub.spoke[0];
    hold_questions(hub.worker);
    hold_questions(s->worker);
    for (int i = 0; i < 20; i++) {
        flow(&s->in, 4, 500);
        flow(&s->out, 4, 500);
        both_ask(s);
        CHECK_EQ(spoke_state(s), NEGOTIATE_ASKED);
        CHECK_EQ(hub_state(s), NEGOTIATE_ASKED);
        HUB_UNTIL(&hub, is_fast(s));
        asking = false;
        CHECK_EQ(hub.worker->lanes->held_in_all, 1);
        CHECK_EQ(s->worker->lanes->held_in_all, 1);
        CHECK_EQ(spoke_link(s)->more->lane_negotiation->n.epoch,
                 hub_link(s)->more->lane_negotiation->n.epoch);
        hub_stop(&hub);
        HUB_UNTIL(&hub, is_at_base(s));
    }
    hub_close(&hub);
}

TEST(without_the_setting_no_one_asks) {
    static const weft_setting_t off[] = {{"lanes.switch", "off"}};
    hub_open(&hub, 1, off, 1);
    struct spoke *s = &hub.spoke[0];
    CHECK(!hub.worker->lanes && !hub.worker->tracking);
    flow(&s->in, 4, 1000);
    hub_run(&hub, 0.1);
    CHECK_EQ(spoke_state(s), -1);
    hub_close(&hub);
}

/* ---- few places */

static unsigned fast_ones(const struct hub *h) {
    unsigned n = 0;
    for (unsigned i = 0; i < h->n; i++) n += is_fast(&h->spoke[i]);
    return n;
}

/* The floor is below what a network carries that takes nothing for some ticks at a time. */
static void many_want_few(const char *places, unsigned n) {
    weft_setting_t few[] = {{"lanes.capacity", places}, {"lanes.min_rate", "1k"}};
    hub_open(&hub, HUB_PEERS, few, 2);
    for (unsigned i = 0; i < HUB_PEERS; i++)
        flow(&hub.spoke[i].in, 4, 1000), flow(&hub.spoke[i].out, 1, 100);
    HUB_UNTIL(&hub, fast_ones(&hub) == n);
    hub_run(&hub, 0.3);
    CHECK_EQ(hub.worker->lanes->held_in_all, n);
    for (unsigned i = 0; i < HUB_PEERS; i++)
        CHECK(hub.spoke[i].errors == 0 && hub.spoke[i].in.seen > 0);
    hub_close(&hub);
}

TEST(four_links_want_one_place) {
    many_want_few("1", 1);
}
TEST(four_links_want_two_places) {
    many_want_few("2", 2);
}
TEST(four_links_want_three_places) {
    many_want_few("3", 3);
}

/* Whatever it may be asking for just now. */
static bool goes_by(const struct spoke *s, const char *transport) {
    return strcmp(spoke_link(s)->lane->iface->transport->name, transport) == 0;
}

/* A factor that no link reaches: the first one stays, and the others ask ever more rarely. */
TEST(who_is_denied_asks_ever_more_slow) {
    static const weft_setting_t one[] = {{"lanes.capacity", "1"},
                                         {"lanes.factor", "100000"},
                                         {"lanes.backoff", "10ms"},
                                         {"lanes.backoff_max", "10s"}};
    hub_open(&hub, 2, one, 4);
    struct spoke *first = &hub.spoke[0], *second = &hub.spoke[1];
    flow(&first->in, 4, 1000);
    HUB_UNTIL(&hub, is_fast(first));
    uint64_t before = weft_worker_count(second->worker, "lanes.requested"),
             denied = weft_worker_count(hub.worker, "lanes.denied");
    flow(&second->in, 4, 1000);
    hub_run(&hub, 1);
    uint64_t asked = weft_worker_count(second->worker, "lanes.requested") - before;
    HUB_UNTIL(&hub, weft_worker_count(hub.worker, "lanes.denied") - denied >= asked);
    /* 10 ms, 20, 40, 80, 160, 320, 640 and a quarter more at most */
    CHECK(asked >= 2 && asked <= 7);
    CHECK_EQ(weft_worker_count(hub.worker, "lanes.denied") - denied, asked);
    CHECK(is_fast(first) && goes_by(second, "tcp"));
    hub_close(&hub);
}

TEST(a_link_that_carries_far_more_replaces_the_weakest) {
    static const weft_setting_t one[] = {{"lanes.capacity", "1"}, {"lanes.min_rate", "4k"}};
    hub_open(&hub, 2, one, 2);
    struct spoke *weak = &hub.spoke[0], *strong = &hub.spoke[1];
    for (double end = test_now() + test_timeout(60);
         !is_fast(weak) && test_now() < end;) { /* now and then */
        flow(&weak->in, 1, 100);
        hub_turn(&hub);
        flow(&weak->in, 0, 0);
        hub_run(&hub, 0.002);
    }
    CHECK(is_fast(weak));
    flow(&strong->in, 8, 4000);
    for (double end = test_now() + test_timeout(60); !is_fast(strong) && test_now() < end;) {
        flow(&weak->in, 1, 100);
        hub_turn(&hub);
        flow(&weak->in, 0, 0);
        hub_run(&hub, 0.002);
    }
    CHECK(is_fast(strong));
    CHECK(!is_fast(weak) && weak->errors == 0);
    CHECK_EQ(hub.worker->lanes->held_in_all, 1);
    hub_close(&hub);
}

TEST(a_link_keeps_its_lane_for_its_time_whichever_wants_it) {
    static const weft_setting_t one[] = {
        {"lanes.capacity", "1"}, {"lanes.min_rate", "4k"}, {"lanes.min_hold", "60s"}};
    hub_open(&hub, 2, one, 3);
    flow(&hub.spoke[0].in, 1, 100);
    /* for so low a floor the messages of a beginning may be enough */
    HUB_UNTIL(&hub, fast_ones(&hub) == 1);
    bool is_first = is_fast(&hub.spoke[0]);
    struct spoke *weak = &hub.spoke[is_first ? 0 : 1], *strong = &hub.spoke[is_first ? 1 : 0];
    hub_stop(&hub);
    flow(&strong->in, 8, 4000);
    hub_run(&hub, 0.3);
    CHECK(is_fast(weak) && goes_by(strong, "tcp"));
    CHECK(weft_worker_count(hub.worker, "lanes.denied") > 0);
    hub_close(&hub);
}

TEST(switches_keep_to_their_budget) {
    static const weft_setting_t two[] = {{"lanes.switches", "1"}, {"lanes.min_rate", "1k"}};
    hub_open(&hub, 4, two, 2);
    double begun = test_now();
    for (unsigned i = 0; i < 4; i++) flow(&hub.spoke[i].in, 4, 1000);
    HUB_UNTIL(&hub, fast_ones(&hub) > 0);
    hub_run(&hub, 0.5);
    CHECK(fast_ones(&hub) <= 2 + test_now() - begun); /* two at first, and one a second */
    hub_close(&hub);
}

/* ---- ends */

/* The spoke's endpoint is closed, or its worker, or the hub's, when a side is in that state for
 * the first time. */
enum end { CLOSE_EP, CLOSE_HUB_EP, CLOSE_WORKER };

static void end_now(struct spoke *s, enum end how) {
    weft_ep_t *ep = s->in.ep, *back = s->out.ep;
    hub_stop(&hub);
    if (back) weft_ep_set_user(back, NULL);
    s->in.ep = s->out.ep = NULL;
    s->in.sent = s->in.seen = s->out.sent = s->out.seen = 0;
    if (how == CLOSE_EP) CHECK(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL) >= 0);
    if (how == CLOSE_HUB_EP) CHECK(weft_ep_close(back, WEFT_CLOSE_ABORT, NULL) >= 0);
    if (how == CLOSE_WORKER)
        CHECK_EQ(weft_worker_close(s->worker, &(weft_op_t){.done = hub_closed, .arg = &s->worker}),
                 WEFT_IN_PROGRESS);
}

static bool nothing_held(const struct hub *h) {
    return h->worker->lanes->held_in_all == 0 && list_empty(&h->worker->lanes->lane_negotiations);
}

static void ends_in(int state, bool at_hub, enum end how) {
    static const weft_setting_t linger[] = {{"link.linger", "1ms"}};
    hub_open(&hub, 1, linger, 1);
    struct spoke *s = &hub.spoke[0];
    flow(&s->in, 4, 1000);
    if (state == NEGOTIATE_LEAVING || state == NEGOTIATE_REST) {
        HUB_UNTIL(&hub, is_fast(s));
        hub_stop(&hub);
    }
    HUB_UNTIL(&hub, (at_hub ? hub_state(s) : spoke_state(s)) == state);
    end_now(s, how);
    if (how == CLOSE_WORKER) HUB_UNTIL(&hub, !s->worker);
    HUB_UNTIL(&hub, nothing_held(&hub));
    if (s->worker) HUB_UNTIL(&hub, s->worker->lanes->held_in_all == 0);
    hub_close(&hub);
}

TEST(an_endpoint_may_close_while_its_link_is_in_any_state) {
    static const int here[] = {NEGOTIATE_ASKED, NEGOTIATE_DIALING, NEGOTIATE_MOVING,
                               NEGOTIATE_FAST,  NEGOTIATE_LEAVING, NEGOTIATE_REST};
    for (unsigned i = 0; i < sizeof here / sizeof *here; i++) {
        ends_in(here[i], false, CLOSE_EP);
        ends_in(here[i], false, CLOSE_WORKER);
    }
}
TEST(the_other_endpoint_may_close_while_its_link_is_in_any_state) {
    static const int there[] = {NEGOTIATE_EXPECT, NEGOTIATE_MOVING, NEGOTIATE_FAST,
                                NEGOTIATE_LEAVING, NEGOTIATE_REST};
    for (unsigned i = 0; i < sizeof there / sizeof *there; i++) {
        ends_in(there[i], true, CLOSE_EP);
        ends_in(there[i], true, CLOSE_HUB_EP);
        ends_in(there[i], true, CLOSE_WORKER);
    }
}

/* ---- out of memory: the link goes on as it was, or is lost with its cause; nothing$
 * is kept */

static bool survives_failure_at(uint64_t k) {
    static const weft_setting_t linger[] = {{"link.linger", "1ms"}};
    hub_open(&hub, 1, linger, 1);
    struct spoke *s = &hub.spoke[0];
    flow(&s->in, 2, 1000);
    (void)weft__alloc_fail_at(k);
    HUB_UNTIL(&hub, is_fast(s) || !s->in.ep || !s->out.ep);
    bool all_made = weft__alloc_fail_at(0) < k;
    hub_stop(&hub);
    if (!s->in.ep || !s->out.ep) {
        HUB_UNTIL(&hub, !s->in.ep && !s->out.ep);
        HUB_UNTIL(&hub, nothing_held(&hub));
    }
    hub_close(&hub);
    return all_made;
}

TEST(any_allocation_on_the_way_to_a_lane_may_fail) {
    uint64_t k = 1;
    while (k < 400 && !survives_failure_at(k)) k++;
    CHECK(k > 5 && k < 400);
}

/* ---- the two kinds of lanes of shared memory: all begin on the mailbox, and rings are earned */

static struct two pair;

static void shm_pair(const char *rings) {
    weft_setting_t settings[] = {{"lanes.switch", "on"},     {"lanes.tick", "2ms"},
                                 {"lanes.backoff", "5ms"},   {"lanes.min_hold", "10ms"},
                                 {"lanes.min_rate", "64k"},  {"shm.rings", rings},
                                 {"lanes.switches", "1000"}, {"close.timeout", "50ms"}};
    two_workers(&pair, "shm", settings, sizeof settings / sizeof *settings);
    two_dial(&pair);
    UNTIL(&pair, pair.ready && pair.back);
}
static void shm_receives(weft_ep_t *ep, weft_am_t *am, void *arg) {
    hub_take(arg, am);
}
static bool shm_fast(void) {
    return state_of_link(((struct weft_ep *)pair.ep)->link) == NEGOTIATE_FAST &&
           state_of_link(((struct weft_ep *)pair.back)->link) == NEGOTIATE_FAST;
}

TEST(a_ring_is_earned_and_given_back) {
    struct numbers n = {.burst = 4, .len = 500};
    shm_pair("1");
    n.ep = pair.ep;
    CHECK_EQ(weft_am_handler_set(pair.b, 1, shm_receives, &n), 0);
    struct link *link = ((struct weft_ep *)pair.ep)->link;
    CHECK(!link->lane->scarce);
    UNTIL(&pair, (n.sent - n.seen < 1000 ? hub_send(&n) : (void)0, shm_fast()));
    CHECK(link->lane->scarce);
    uint64_t before = n.seen;
    UNTIL(&pair, (n.sent - n.seen < 1000 ? hub_send(&n) : (void)0, n.seen > before + 5000));
    CHECK(shm_fast());
    UNTIL(&pair, !link->lane->scarce && n.seen == n.sent && pair.a->lanes->held_in_all == 0);
    CHECK(n.wrong == 0 && pair.errors == 0);
    two_down(&pair);
}

TEST(without_rings_no_one_asks_for_one) {
    struct numbers n = {.burst = 4, .len = 500};
    shm_pair("0");
    n.ep = pair.ep;
    CHECK_EQ(weft_am_handler_set(pair.b, 1, shm_receives, &n), 0);
    for (double end = test_now() + 0.2; test_now() < end;) {
        if (n.sent - n.seen < 1000) hub_send(&n);
        two_turn(&pair);
    }
    UNTIL(&pair, n.seen == n.sent);
    CHECK_EQ(weft_worker_count(pair.a, "lanes.requested"), 0);
    CHECK_EQ(n.wrong, 0);
    two_down(&pair);
}

/* ---- tcp:// that goes on by shared memory */

static const weft_setting_t no_crossing[] = {{"lanes.cross_transport", "off"}};

static void of_spoke(struct spoke *s, const char **transport_p, const char **connected_by_p) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(s->in.ep, &info), 0);
    *transport_p = info.transport;
    *connected_by_p = info.connected_by;
}

TEST(a_connection_by_tcp_that_goes_on_over_shm_is_described_so) {
    struct hub h;
    const char *transport = "", *connected_by = "";
    hub_open(&h, 1, NULL, 0);
    h.spoke[0].in = (struct numbers){.ep = h.spoke[0].in.ep, .burst = 8, .len = 1024};
    HUB_UNTIL(&h,
              (of_spoke(&h.spoke[0], &transport, &connected_by), strcmp(transport, "shm") == 0));
    CHECK(strcmp(connected_by, "tcp") == 0);
    hub_close(&h);
}

TEST(a_setting_keeps_a_connection_on_the_transport_it_was_connected_by) {
    struct hub h;
    const char *transport = "", *connected_by = "";
    hub_open(&h, 1, no_crossing, 1);
    h.spoke[0].in = (struct numbers){.ep = h.spoke[0].in.ep, .burst = 8, .len = 1024};
    hub_run(&h, 0.3); /* a hundred ticks; it moves within a few where it may */
    of_spoke(&h.spoke[0], &transport, &connected_by);
    CHECK(strcmp(transport, "tcp") == 0 && strcmp(connected_by, "tcp") == 0);
    HUB_UNTIL(&h, h.spoke[0].in.seen > 1000);
    hub_close(&h);
}

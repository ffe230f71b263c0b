/*
 * A link that survives its connections, begins on tcp and earns a ring of shared memory: sockets
 * are killed under traffic of all kinds, while it is at home, moves, is away, or comes back.
 * Nothing is lost, nothing comes twice or out of order.
 */
#include <tests/support/failover_peers.h>
#include <tests/support/kill_child.h>

#include <endpoints/lanes/negotiate_local.h>

static struct two t;
static struct side sides[2];

/* The floor is below what a network carries that takes nothing for some ticks at a time. */
static const weft_setting_t quick[] = {{"lanes.switch", "on"},      {"lanes.tick", "2ms"},
                                       {"lanes.backoff", "2ms"},    {"lanes.backoff_max", "20ms"},
                                       {"lanes.min_hold", "2ms"},   {"lanes.min_rate", "1k"},
                                       {"lanes.switches", "100000"}};

static void open_pair(const char *transports) {
    weft_listener_t *listener;
    two_workers(&t, transports, quick, sizeof quick / sizeof *quick);
    weft_listen_params_t listen = {
        .on_endpoint = two_on_endpoint, .on_error = two_on_back_error, .arg = &t};
    CHECK_EQ(weft_listen(t.b, "tcp://127.0.0.1:0", &listen, &listener), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = &t,
                               .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), &params, &t.ep), 0);
    UNTIL(&t, t.ready && t.back);
    survive_pair(sides, &t, 11);
}

static void turn(bool send) {
    for (unsigned i = 0; i < 2; i++)
        for (unsigned n = send ? survive_draw(&sides[i]) % 4 : 0; n; n--) survive_send(&sides[i]);
    survive_turn(sides, &t);
}

static void close_pair(void) {
    survive_settle(sides, &t);
    survive_end(&sides[0]);
    survive_end(&sides[1]);
    two_down(&t);
    free(sides[0].in);
    free(sides[1].in);
}

static int state(void) {
    const struct link *link = ((struct weft_ep *)t.ep)->link;
    return link->more->lane_negotiation ? (int)link->more->lane_negotiation->n.fsm.state : -1;
}
/* Until it is in one of those states, with traffic or without: then both ends of its connection
 * are killed. */
static unsigned killed_in[NEGOTIATE_N_STATES];

static bool is_in(unsigned states) {
    return state() >= 0 && states >> state() & 1;
}
static void come_to(unsigned states, bool send) {
    for (double end = test_now() + test_timeout(60); test_now() < end && !is_in(states);)
        turn(send);
    CHECK(is_in(states));
}
static void killed_when(unsigned states, bool send) {
    come_to(states, send);
    killed_in[state()]++;
    uint64_t resumed = weft_worker_count(t.a, "lanes.resumed");
    CHECK(kill_all() > 0);
    for (double end = test_now() + test_timeout(60);
         test_now() < end && weft_worker_count(t.a, "lanes.resumed") == resumed;)
        turn(send);
    CHECK(weft_worker_count(t.a, "lanes.resumed") > resumed);
}

#define IN(state) (1u << NEGOTIATE_##state)

/* The peer may ask before this side does; and what goes by within one turn is not seen. */
TEST(its_connection_dies_wherever_its_traffic_goes) {
    static const unsigned on_the_way[] = {IN(ASKED) | IN(EXPECT), IN(DIALING) | IN(EXPECT),
                                          IN(MOVING), 0};
    open_pair("shm,tcp");
    for (unsigned i = 0; i < 60; i++) {
        killed_when(on_the_way[i % 4] | IN(FAST), true);
        come_to(IN(FAST), true);
        CHECK(((struct weft_ep *)t.ep)->link->lane->scarce);
        if (i % 3 == 0) killed_when(IN(LEAVING) | IN(REST) | IN(BASE), false);
        come_to(IN(BASE) | IN(REST), false);
        if (i % 3 == 1) killed_when(IN(REST) | IN(BASE), false);
    }
    printf("  resumed %llu times, %llu bytes again; %llu + %llu messages; killed",
           (unsigned long long)weft_worker_count(t.a, "lanes.resumed"),
           (unsigned long long)(weft_worker_count(t.a, "lanes.resent_bytes") +
                                weft_worker_count(t.b, "lanes.resent_bytes")),
           (unsigned long long)(sides[0].am_sent + sides[0].tag_sent),
           (unsigned long long)(sides[1].am_sent + sides[1].tag_sent));
    for (unsigned i = 0; i < NEGOTIATE_N_STATES; i++)
        if (killed_in[i]) printf(" %u in %s,", killed_in[i], weft__negotiate_machine.state_name[i]);
    puts("");
    close_pair();
}

static void leave(weft_worker_t **worker_p, unsigned turns) {
    CHECK_EQ(weft_worker_close(*worker_p, &(weft_op_t){.done = two_gone, .arg = worker_p}),
             WEFT_IN_PROGRESS);
    for (unsigned i = 0; i < turns && *worker_p; i++) (void)weft_worker_progress(*worker_p, 0);
}

/* A worker that goes closes the lane in use and the one at home; the other side may learn of
 * either first. */
static void ends_while_away(weft_worker_t **first, weft_worker_t **second, unsigned turns) {
    open_pair("shm,tcp");
    come_to(IN(FAST), true);
    survive_settle(sides, &t);
    survive_end(&sides[0]);
    survive_end(&sides[1]);
    leave(first, turns);
    for (unsigned i = 0; i < turns; i++) (void)weft_worker_progress(*second, 0);
    leave(second, 0);
    UNTIL(&t, !t.a && !t.b);
    CHECK_EQ(weft_context_destroy(t.context), 0);
    free(sides[0].in);
    free(sides[1].in);
}
TEST(it_ends_while_its_traffic_is_away) {
    for (unsigned i = 0; i < 40; i++)
        ends_while_away(i % 2 ? &t.a : &t.b, i % 2 ? &t.b : &t.a, i / 2);
}

/* What goes by a lane beside the one that keeps it would be lost with that lane, when the peer
 * is alive. */
TEST(it_is_given_no_lane_that_may_die_before_its_peer) {
    open_pair("shm,tcp");
    struct link *link = ((struct weft_ep *)t.ep)->link;
    for (uint32_t i = 0; i < t.a->n_ifaces; i++) {
        struct iface *iface = t.a->iface[i];
        bool shm = strcmp(iface->transport->name, "shm") == 0;
        uint64_t caps = iface->attr.caps;
        if (iface != link->lanes[0]->iface) CHECK_EQ(weft__lanes_is_kind(link, iface), shm);
        if (!shm) continue;
        iface->attr.caps |= CAP_INTER_NODE;
        CHECK(!weft__lanes_is_kind(link, iface));
        CHECK_EQ(weft__lanes_kind(t.a->lanes, link, 0), -1);
        iface->attr.caps = caps;
        CHECK_EQ(weft__lanes_kind(t.a->lanes, link, 0), i);
    }
    close_pair();
}

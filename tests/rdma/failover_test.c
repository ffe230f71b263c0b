/*
 * Lanes of rdma that die under traffic of all kinds: endpoints that survive that do not notice, and
 * nothing is lost or comes twice. Queue pairs are broken; of datagrams the wire loses all for
 * longer than their window's give-up time.
 */
#include "bed.h"

#ifdef WEFT_HAVE_RDMA
#include <tests/support/failover_peers.h>

#include <endpoints/core/worker.h>
#include <endpoints/failover/retain.h>
#include <transports/rdma/rc/rc.h>

enum { KILLS = 20, CUTS = 3 };

static struct side sides[2];

static void begin(struct bed *b, const char *transport, weft_setting_t more) {
    struct two *t = &b->t;
    char address[256];
    size_t len = sizeof address;
    memset(b, 0, sizeof *b);
    t->a = bed_worker(t, &t->context, transport, "rxe0", more);
    t->b = bed_worker(t, &b->context_b, transport, "rxe1", more);
    CHECK_EQ(weft_worker_address(t->b, address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = t,
                               .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, &t->ep), 0);
    UNTIL(t, t->ready && t->back);
    survive_pair(sides, t, 3);
}

static uint64_t came(void) {
    return sides[0].am_came + sides[1].am_came;
}

/* Both send, until `cond`. */
#define UNDER_TRAFFIC(t, cond)                                                   \
    do {                                                                         \
        double traffic_end = test_now() + test_timeout(10);                      \
        for (unsigned round = 0; !(cond) && test_now() < traffic_end; round++) { \
            survive_send(&sides[round % 2]);                                     \
            survive_turn(sides, t);                                              \
        }                                                                        \
        CHECK(cond);                                                             \
    } while (0)

static void end(struct bed *b) {
    struct two *t = &b->t;
    survive_settle(sides, t);
    printf("  %llu lanes lost, %llu times resumed\n",
           (unsigned long long)weft_worker_count(t->a, "lanes.lost"),
           (unsigned long long)weft_worker_count(t->a, "lanes.resumed"));
    for (int i = 0; i < 2; i++) survive_end(&sides[i]);
    bed_down(b);
    free(sides[0].in);
    free(sides[1].in);
}

/* A queue pair in error, and the word of it that software does not say of itself (rdma_rc_test).
 * False: there is none just now. */
static bool kill_queue_pair(const weft_ep_t *ep) {
    const struct weft_ep *e = (const struct weft_ep *)ep;
    struct lane *raw = e->link ? e->link->more->retain->raw : NULL;
    if (!raw || !rc_lane(raw)->qp) return false;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_async_event event = {.element.qp = rc_lane(raw)->qp,
                                    .event_type = IBV_EVENT_QP_FATAL};
    struct rc_iface *iface = rc_iface_of(rc_lane(raw));
    if (ibv_modify_qp(rc_lane(raw)->qp, &attr, IBV_QP_STATE)) return false;
    iface->user.event(&iface->user, &event);
    return true;
}

TEST(queue_pairs_that_break_lose_nothing) {
    struct bed b;
    WANTS_THE_BED();
    begin(&b, "rdma_rc", (weft_setting_t){0});
    for (int killed = 0; killed < KILLS; killed++) {
        uint64_t before = came();
        UNDER_TRAFFIC(&b.t, came() > before + 3 && kill_queue_pair(killed % 2 ? b.t.back : b.t.ep));
    }
    UNDER_TRAFFIC(&b.t, weft_worker_count(b.t.a, "lanes.resumed") > 0);
    end(&b);
}

TEST(datagrams_that_no_one_acknowledges_for_long_lose_nothing) {
    struct bed b;
    WANTS_THE_BED();
    begin(&b, "rdma_ud", (weft_setting_t){"window.give_up", "300ms"});
    for (int cut = 0; cut < CUTS; cut++) {
        uint64_t before = came(), lost = weft_worker_count(b.t.a, "lanes.lost");
        UNDER_TRAFFIC(&b.t, came() > before + 3);
        CHECK(bed_run("tc qdisc add dev v0 root netem loss 100%%"));
        UNDER_TRAFFIC(&b.t, weft_worker_count(b.t.a, "lanes.lost") > lost);
        CHECK(bed_run("tc qdisc del dev v0 root"));
        uint64_t resumed = weft_worker_count(b.t.a, "lanes.resumed");
        UNDER_TRAFFIC(&b.t, weft_worker_count(b.t.a, "lanes.resumed") > resumed);
    }
    end(&b);
}

#else
TEST(queue_pairs_that_break_lose_nothing) {
    SKIP("built without rdma");
}
#endif

/* Queue pairs that break under traffic of all kinds: endpoints that survive their lanes do not notice, and nothing is lost or comes twice. */
#include "bed.h"

#ifdef WEFT_HAVE_RDMA
#include "../endpoints/survive.h"

#include <endpoints/retain.h>
#include <endpoints/worker.h>
#include <transports/rdma/rc.h>

enum { KILLS = 20 };

static struct side sides[2];

static void turn(struct two *t) {
    two_turn(t);
    survive_take_stream(&sides[0]);
    survive_take_stream(&sides[1]);
}

static bool all_came(void) {
    return survive_all_came(&sides[0], &sides[1]) && survive_all_came(&sides[1], &sides[0]);
}

/* A queue pair in error, and the word of it that software does not say of itself (rdma_rc_test). False: there is none just now. */
static bool kill_queue_pair(const weft_ep_t *ep) {
    const struct weft_ep *e = (const struct weft_ep *)ep;
    struct lane *raw = e->link ? e->link->retain->raw : NULL;
    if (!raw || !rc_lane(raw)->qp) return false;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_async_event event = {.element.qp = rc_lane(raw)->qp, .event_type = IBV_EVENT_QP_FATAL};
    struct rc_iface *iface = rc_iface_of(rc_lane(raw));
    if (ibv_modify_qp(rc_lane(raw)->qp, &attr, IBV_QP_STATE)) return false;
    iface->user.event(&iface->user, &event);
    return true;
}

static void dial_surviving(struct two *t) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(t->b, address, &len), 0);
    weft_ep_params_t params = {
        .on_ready = two_on_ready, .on_error = two_on_error, .arg = t, .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, &t->ep), 0);
    UNTIL(t, t->ready && t->back);
}

TEST(queue_pairs_that_break_lose_nothing) {
    struct bed b;
    struct two *t = &b.t;
    WANTS_THE_BED();
    memset(&b, 0, sizeof b);
    t->a = bed_worker(t, &t->context, "rdma_rc", "rxe0", (weft_setting_t){0});
    t->b = bed_worker(t, &b.context_b, "rdma_rc", "rxe1", (weft_setting_t){0});
    dial_surviving(t);
    survive_begin(&sides[0], t->a, t->ep, 3);
    survive_begin(&sides[1], t->b, t->back, 5);
    survive_meet(&sides[0], &sides[1]);
    survive_meet(&sides[1], &sides[0]);
    int killed = 0;
    uint64_t came = 0;
    double end = two_now() + test_patience(20);
    for (unsigned round = 0; killed < KILLS && two_now() < end; round++) {
        survive_send(&sides[round % 2]);
        turn(t);
        bool moved = sides[0].am_came + sides[1].am_came > came + 3;
        if (!moved || !kill_queue_pair(killed % 2 ? t->back : t->ep)) continue;
        came = sides[0].am_came + sides[1].am_came;
        killed++;
    }
    CHECK_EQ(killed, KILLS);
    while (two_now() < end && !all_came()) turn(t);
    for (int i = 0; i < 2; i++)
        if (sides[i].wrong) printf("  side %d: %s\n", i, sides[i].what);
    CHECK_EQ(sides[0].wrong + sides[1].wrong, 0);
    CHECK(all_came());
    CHECK_EQ(t->errors + t->back_errors, 0);
    printf("  %d queue pairs killed, resumed %llu times\n", killed,
           (unsigned long long)weft_worker_count(t->a, "lanes.resumed"));
    CHECK(weft_worker_count(t->a, "lanes.resumed") > 0);
    survive_end(&sides[0]);
    survive_end(&sides[1]);
    bed_down(&b);
    free(sides[0].in);
    free(sides[1].in);
}

#else
TEST(queue_pairs_that_break_lose_nothing) {
    SKIP("built without rdma");
}
#endif

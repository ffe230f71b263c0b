/*
 * The first call of each function of verbs fails in a life of two workers (RDMA_ALL: each call, one
 * in each life).
 */
#include "bed.h"

#ifdef WEFT_HAVE_RDMA
#include <endpoints/core/worker.h>
#include <tests/support/failing_verbs.h>
#include <transports/rdma/rc/rc.h>

enum { N_OWN = 6 };
#define SETTINGS_OF(device)                                                         \
    {                                                                               \
        {"rdma.device", device}, {"rdma.insecure", "yes"}, {"rdma.receives", "64"}, \
            {"rdma.ud_receives", "256"}, {"rdma.ud_sends", "64"}, {                 \
            "connect.timeout", "10s"                                                \
        }                                                                           \
    }
static const weft_setting_t settings[2][N_OWN] = {SETTINGS_OF("rxe0"), SETTINGS_OF("rxe1")};

static const struct failing_calls calls = {.n = N_VERBS_CALLS,
                                           .name = verbs_call_name,
                                           .settings = {settings[0], settings[1]},
                                           .n_settings = N_OWN,
                                           .left = verbs_left};

static void each_verb_fails(const char *transports, bool harmless) {
    WANTS_THE_BED();
    each_call_fails_in_a_life(&calls, transports, getenv("RDMA_ALL"), harmless);
}

/* ---- the error names the function ------------------------------------------------------------ */

static char text[1024];

static void on_text(weft_ep_t *ep, weft_status_t status, void *arg) {
    two_on_error(ep, status, arg);
    weft_status_describe(status, text, sizeof text);
}

/* A connection fails for want of memory in `call`. */
static void dial_fails_in(enum verbs_call call) {
    struct bed bed = {0};
    struct two *t = &bed.t;
    char address[256];
    size_t len = sizeof address;
    t->a = bed_worker(t, &t->context, "rdma_rc", "rxe0", (weft_setting_t){0});
    t->b = bed_worker(t, &bed.context_b, "rdma_rc", "rxe1", (weft_setting_t){0});
    CHECK_EQ(weft_worker_address(t->b, address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = on_text, .arg = t};
    *text = 0;
    fail_next(call);
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, &t->ep), 0);
    BED_UNTIL(t, 20, t->errors);
    CHECK_EQ(t->error, WEFT_ERR_NO_MEMORY);
    printf("  %s: %s\n", verbs_call_name[call], text);
    CHECK(strstr(text, verbs_call_name[call]) && strstr(text, strerror(ENOMEM)));
    bed_down(&bed);
}

TEST(a_connection_that_fails_names_the_function) {
    static const enum verbs_call calls_of_a_dialer[] = {CALL_rdma_resolve_route,
                                                        CALL_rdma_init_qp_attr, CALL_ibv_create_qp,
                                                        CALL_ibv_modify_qp, CALL_rdma_connect};
    WANTS_THE_BED();
    for (size_t i = 0; i < sizeof calls_of_a_dialer / sizeof *calls_of_a_dialer; i++)
        dial_fails_in(calls_of_a_dialer[i]);
}

/* ---- a request that the device refuses ------------------------------------------------------- */

static void refusing_up(struct bed *bed) {
    struct two *t = &bed->t;
    t->a = bed_worker(t, &t->context, "rdma_rc", "rxe0", (weft_setting_t){0});
    t->b = bed_worker(t, &bed->context_b, "rdma_rc", "rxe1", (weft_setting_t){0});
    two_dial(t);
    BED_UNTIL(t, 60, t->ready && t->back);
}

TEST(a_send_that_the_device_refuses_fails) {
    static char out[16000], in[sizeof out];
    struct bed bed = {0};
    struct two *t = &bed.t;
    struct tally sent = {0}, received = {0};
    weft_op_t eager = {.done = tally, .arg = &sent, .flags = WEFT_AM_EAGER};
    WANTS_THE_BED();
    refusing_up(&bed);
    CHECK_EQ(weft_tag_recv(t->b, 1, ~0ull, &(weft_iov_t){in, sizeof in}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    fail_next(CALL_post_send);
    weft_status_t st = weft_tag_send(t->ep, 1, &(weft_iov_t){out, sizeof out}, 1, &eager);
    CHECK_EQ(st, WEFT_IN_PROGRESS);
    BED_UNTIL(t, 20, sent.calls == 1 && t->errors);
    CHECK_EQ(sent.status, WEFT_ERR_IO);
    CHECK_EQ(received.calls, 0);
    bed_down(&bed);
}

/* ---- receives that the device refuses, where no memory is left ------------------------------- */

/* Timers until the next one needs memory. Returns how many. */
static unsigned fill_timers(struct reactor *r, struct timer *timers) {
    unsigned n = 0;
    for (; weft__timer_is_at_hand(r); n++)
        CHECK_EQ(weft__timer_start(r, &timers[n], UINT64_MAX), WEFT_OK);
    return n;
}

TEST(receives_that_are_refused_are_posted_later_without_memory) {
    static struct timer timers[4096];
    struct bed bed = {0};
    struct two *t = &bed.t;
    WANTS_THE_BED();
    refusing_up(&bed);
    struct rc_iface *iface = (struct rc_iface *)weft__worker_iface(t->b, "rdma_rc", 7);
    struct reactor *r = iface->iface.reactor;
    unsigned n_timers = fill_timers(r, timers);
    fail_next(CALL_post_srq_recv);
    for (int i = 0; i < RC_REPOST; i++) CHECK(weft_am_send(t->ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    for (double end = test_now() + test_timeout(60); !failing->failed && test_now() < end;) {
        weft_worker_progress(t->a, 0);
        weft__alloc_fail_run(1, UINT32_MAX);
        weft_worker_progress(t->b, 0);
        weft__alloc_fail_at(0);
    }
    CHECK(failing->failed && iface->n_repost > 0);
    BED_UNTIL(t, 20, iface->n_repost == 0);
    while (n_timers > 0) weft__timer_stop(r, &timers[--n_timers]);
    bed_down(&bed);
}

TEST(each_function_fails_once_over_queue_pairs) {
    each_verb_fails("rdma_rc", false);
}
TEST(each_function_fails_once_over_datagrams) {
    each_verb_fails("rdma_ud", false);
}
TEST(each_function_fails_once_beside_tcp) {
    each_verb_fails("rdma_rc,rdma_ud,tcp", true);
}
#else
TEST(failing_verbs) {
    SKIP("built without rdma");
}
#endif

/*
 * The first call of each function of verbs fails in a life of two workers (RDMA_ALL: each call, one
 * in each life).
 */
#include "bed.h"

#ifdef WEFT_HAVE_RDMA
#include <tests/support/failing_verbs.h>

enum { N_SETTINGS = 6 };
#define SETTINGS_OF(device)                                                         \
    {                                                                               \
        {"rdma.device", device}, {"rdma.insecure", "yes"}, {"rdma.receives", "64"}, \
            {"rdma.ud_receives", "256"}, {"rdma.ud_sends", "64"}, {                 \
            "connect.timeout", "10s"                                                \
        }                                                                           \
    }
static const weft_setting_t settings[2][N_SETTINGS] = {SETTINGS_OF("rxe0"), SETTINGS_OF("rxe1")};

static const struct failing_calls calls = {.n = N_VERBS_CALLS,
                                           .name = verbs_call_name,
                                           .settings = {settings[0], settings[1]},
                                           .n_settings = N_SETTINGS,
                                           .left = verbs_left};

static void each_verb_fails(const char *transports, bool harmless) {
    WANTS_THE_BED();
    each_call_fails_in_a_life(&calls, transports, getenv("RDMA_ALL"), harmless);
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

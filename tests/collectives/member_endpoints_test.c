/* A worker without callbacks makes and closes any number of teams: what their members have opened
 * here ends with each team. */
#include "team.h"

static weft_setting_t most = {"peer.max_endpoints", "8"};

static void make_and_close(const char *transports) {
    struct crew c;
    crew_workers(&c, 3, transports, &most, 1);
    for (int i = 0; i < 40; i++) {
        int32_t in[3], out[3];
        crew_teams(&c);
        for (uint32_t r = 0; r < 3; r++) in[r] = i + (int32_t)r;
        EVERYBODY(&c,
                  weft_allreduce(me->team, &in[r], &out[r], 1, WEFT_INT32, WEFT_SUM, OP_OF(me)));
        for (uint32_t r = 0; r < 3; r++) CHECK_EQ(out[r], 3 * i + 3);
        crew_close_teams(&c);
    }
    crew_down(&c);
}

TEST(teams_leave_no_endpoint_behind_over_shm) {
    make_and_close("self,shm");
}
TEST(teams_leave_no_endpoint_behind_over_tcp) {
    make_and_close("self,tcp");
}

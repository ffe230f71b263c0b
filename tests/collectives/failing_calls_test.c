/*
 * The first call of each function that asks the kernel for something fails while workers make a
 * team, call collectives and close it (FAILING_ALL: each call, one in each life). Every member has
 * one outcome of each, and the next team of the same workers is whole.
 */
#include "team.h"

#include <tests/support/failing_system.h>

enum { N = 3, LARGE = 100000 };
static int64_t in[N][N * LARGE], out[N][N * LARGE];

static const weft_setting_t settings[] = {
    {"coll.timeout", "2s"}, {"connect.timeout", "2s"}, {"calibration", "off"}};

static weft_status_t sum(struct rank *me, uint32_t r, size_t count) {
    return weft_allreduce(me->team, in[r], out[r], count, WEFT_INT64, WEFT_SUM, OP_OF(me));
}

/* Members that have a team call it. */
static void each_has_an_outcome(struct crew *c, size_t count, bool whole) {
    EVERYBODY(c, me->team && me->ready == WEFT_OK ? sum(me, r, count) : WEFT_ERR_CLOSED);
    for (uint32_t r = 0; r < N; r++) {
        CHECK_EQ(c->rank[r].outcome_calls, 1);
        if (whole) CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        for (size_t i = 0; i < count && c->rank[r].outcome == WEFT_OK; i++)
            CHECK_EQ(out[r][i], (int64_t)(N * i + N));
    }
}

/* Members that never meet, since a call failed, need not wait for long. */
static void team_lives(struct crew *c, bool whole) {
    crew_begin_teams(c, whole ? 20000 : 500);
    UNTIL(c, all_ready(c));
    for (uint32_t r = 0; r < N; r++) CHECK(!whole || c->rank[r].ready == WEFT_OK);
    each_has_an_outcome(c, 1, whole);
    each_has_an_outcome(c, LARGE, whole);
    crew_close_teams(c);
}

static void play(void *transports) {
    static struct crew c;
    for (uint32_t r = 0; r < N; r++)
        for (size_t i = 0; i < LARGE; i++) in[r][i] = (int64_t)(i + 1);
    crew_workers(&c, N, transports, settings, sizeof settings / sizeof *settings);
    failing->armed = true;
    team_lives(&c, failing->at == 0);
    failing->armed = false;
    team_lives(&c, true);
    crew_down(&c);
}

static bool ends_well(void *transports, unsigned call, unsigned at) {
    if (life_ends_well(play, transports, call, at)) return true;
    printf("  %s: %s, call %u\n", (char *)transports, call_name[call], at);
    return false;
}

static void each_call_fails(char *transports) {
    each_fails_once(N_CALLS, getenv("FAILING_ALL"), ends_well, transports);
}

TEST(each_call_fails_once_over_shm) {
    char transports[] = "self,shm";
    each_call_fails(transports);
}
TEST(each_call_fails_once_over_tcp) {
    char transports[] = "self,tcp";
    each_call_fails(transports);
}

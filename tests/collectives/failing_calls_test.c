/*
 * The first call of each function that asks the kernel for something fails while workers make a
 * team, call collectives and close it (FAILING_ALL: each call, one in each life). Every member has
 * one outcome of each, and the next team of the same workers is whole.
 */
#include "team.h"

#include <sys/wait.h>
#include <tests/support/failing_system.h>

enum { N = 3, LARGE = 100000 };
static int64_t in[N][N * LARGE], out[N][N * LARGE];

static const weft_setting_t settings[] = {{"coll.timeout", "2s"}, {"connect.timeout", "2s"}};

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

static void team_lives(struct crew *c, bool whole) {
    crew_begin_teams(c, 2000);
    UNTIL(c, all_ready(c));
    for (uint32_t r = 0; r < N; r++) CHECK(!whole || c->rank[r].ready == WEFT_OK);
    each_has_an_outcome(c, 1, whole);
    each_has_an_outcome(c, LARGE, whole);
    crew_close_teams(c);
}

static void play(const char *transports, unsigned call, unsigned at) {
    static struct crew c;
    for (uint32_t r = 0; r < N; r++)
        for (size_t i = 0; i < LARGE; i++) in[r][i] = (int64_t)(i + 1);
    crew_workers(&c, N, transports, settings, sizeof settings / sizeof *settings);
    failing.call = call;
    failing.at = at;
    failing.armed = true;
    team_lives(&c, at == 0);
    failing.armed = false;
    team_lives(&c, true);
    crew_down(&c);
}

/* Plays it in another process, which ends well. `n_calls`: how often each was called. */
static bool ends_well(const char *transports, unsigned call, unsigned at, unsigned *n_calls) {
    int status, fds[2];
    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (setjmp(test_out) == 0) play(transports, call, at);
        if (write(fds[1], failing.n_calls, sizeof failing.n_calls) < 0) exit(1);
        exit(test_result);
    }
    close(fds[1]);
    CHECK_EQ(read(fds[0], n_calls, sizeof failing.n_calls), sizeof failing.n_calls);
    close(fds[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (status) printf("  %s: %s, call %u: status %x\n", transports, call_name[call], at, status);
    return status == 0;
}

static void each_call_fails(const char *transports) {
    unsigned n_calls[MOST_CALLS], unused[MOST_CALLS], bad = 0, n = 0;
    CHECK(ends_well(transports, 0, 0, n_calls));
    for (unsigned call = 0; call < N_CALLS; call++) {
        const unsigned last = getenv("FAILING_ALL") ? n_calls[call] : n_calls[call] > 0;
        for (unsigned at = 1; at <= last; at++, n++)
            bad += !ends_well(transports, call, at, unused);
    }
    printf("  %s: %u calls failed\n", transports, n);
    CHECK_EQ(bad, 0);
}

TEST(each_call_fails_once_over_shm) {
    each_call_fails("self,shm");
}
TEST(each_call_fails_once_over_tcp) {
    each_call_fails("self,tcp");
}

/* A creation whose time is over names the members that it waits for, if they are known. */
#include "team.h"
#include <base/status.h>
#include <collectives/missing.h>
#include <collectives/team.h>

/* ---- teams, and those that are made of them -------------------------------------------------- */

struct part {
    weft_team_t *team;
    weft_status_t status;
    int calls;
    char described[512];
};
static struct part part[MOST_RANKS];

static void on_part(weft_team_t *team, weft_status_t status, void *arg) {
    struct part *p = arg;
    p->team = team;
    p->status = status;
    p->calls++;
    if (status < 0) weft_status_describe(status, p->described, sizeof p->described);
}

static weft_team_params_t params_of(uint32_t r, uint32_t deadline_ms) {
    part[r] = (struct part){.status = WEFT_IN_PROGRESS};
    return (weft_team_params_t){.on_ready = on_part, .arg = &part[r], .deadline_ms = deadline_ms};
}

static bool all_have(uint32_t n) {
    for (uint32_t r = 0; r < n; r++)
        if (!part[r].calls) return false;
    return true;
}

/* Each creation ends, by its own time at the latest. */
static void end_parts(struct crew *c, uint32_t n) {
    struct rank closing = {.closed = false};
    UNTIL(c, all_have(n));
    for (uint32_t r = 0; r < n; r++) {
        if (!part[r].team) continue;
        closing.closed = false;
        CHECK_EQ(weft_team_close(part[r].team, &(weft_op_t){.done = on_closed, .arg = &closing}),
                 WEFT_IN_PROGRESS);
        UNTIL(c, closing.closed);
    }
}

/* That the member makes of its team. NULL: none yet. */
static weft_team_t *another_team(const struct rank *r) {
    struct team_registry *registry;
    CHECK_EQ(weft__team_registry(r->worker, &registry), WEFT_OK);
    list_for_each(at, &registry->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_registry);
        if (team != r->team) return team;
    }
    return NULL;
}

/* Whatever the machine's load, what is under way comes before it. */
static void end_time(weft_team_t *team) {
    team->deadline.fire(&team->deadline);
}

static bool reports(weft_team_t *team, const char *text) {
    weft_team_info_t info;
    CHECK_EQ(weft_team_describe(team, &info), WEFT_OK);
    if (strcmp(info.why, text) != 0) printf("  \"%s\", not \"%s\"\n", info.why, text);
    return info.status == WEFT_ERR_TIMED_OUT && strcmp(info.why, text) == 0;
}

/* Drives `ranks` (bits) until `cond`. */
#define UNTIL_BY(crew, ranks, cond)                                                         \
    do {                                                                                    \
        double by_end = test_now() + test_timeout(60);                                      \
        for (uint32_t by = 0; !(cond) && test_now() < by_end; by = (by + 1) % (crew)->size) \
            if (((ranks) >> by) & 1) weft_worker_progress((crew)->rank[by].worker, 0);      \
        CHECK(cond);                                                                        \
    } while (0)

/* ---- over an exchange of the program --------------------------------------------------------- */

/* Of a team of `size` those of `come` go on when the exchange has ended. */
static void create_without(uint32_t size, uint32_t come, const char *text) {
    struct crew c;
    char text_of_refusal[512];
    crew_workers(&c, size, "self,shm", NULL, 0);
    crew_begin_teams(&c, 60000);
    if (!come) c.copy_ctl.arrived = 0;
    for (uint32_t r = 0; r < size; r++) copy_ctl_pump(&c.copy_ctl);
    for (uint32_t i = 0; i < 500 * size; i++)
        if (i % size == 0 || come & 1u << i % size)
            weft_worker_progress(c.rank[i % size].worker, 0);
    end_time(c.rank[0].team);
    CHECK(reports(c.rank[0].team, text));
    CHECK_EQ(c.rank[0].team->blamed, 0);
    CHECK_EQ(weft_barrier(c.rank[0].team, NULL), WEFT_ERR_TIMED_OUT);
    weft_status_describe(WEFT_ERR_TIMED_OUT, text_of_refusal, sizeof text_of_refusal);
    CHECK(strstr(text_of_refusal, text));
    crew_down(&c);
    CHECK_EQ(c.rank[0].ready, WEFT_ERR_TIMED_OUT);
}

TEST(a_creation_that_times_out_names_the_members_from_which_nothing_came) {
    create_without(2, 0, "its exchange has not ended in time, and names no member");
    create_without(2, 1, "nothing was received from rank 1 in time");
    create_without(4, 1 | 2, "nothing was received from rank 2 in time");
    create_without(4, 1, "nothing was received from ranks 1 and 2 in time");
    create_without(4, 1 | 4 | 8, "nothing was received from rank 1 in time");
    create_without(8, 1, "nothing was received from ranks 1, 2 and 4 in time");
    create_without(16, 1, "nothing was received from ranks 1, 2, 4 and 1 more in time");
}

/* ---- splits ---------------------------------------------------------------------------------- */

static void begin_split(struct crew *c) {
    for (uint32_t r = c->size; r-- > 0;) {
        weft_team_params_t params = params_of(r, r ? 500 : 60000);
        CHECK_EQ(weft_team_split(c->rank[r].team, 0, 0, &params), WEFT_OK);
    }
}

/* Of those that know the colours of all, `come` go on, without a turn of the others. */
static void until_colours(struct crew *c, uint32_t come) {
    double end = test_now() + test_timeout(60);
    for (uint32_t r = 0; !another_team(&c->rank[0]) && test_now() < end; r = (r + 1) % c->size)
        if (come & 1u << r || !another_team(&c->rank[r]))
            weft_worker_progress(c->rank[r].worker, 0);
}

static void split_without(uint32_t size, const char *transports, const char *text) {
    struct crew c;
    weft_team_info_t info;
    crew_up(&c, size, transports, NULL, NULL);
    begin_split(&c);
    until_colours(&c, 0);
    weft_team_t *team = another_team(&c.rank[0]);
    end_time(team);
    CHECK_EQ(weft_team_describe(team, &info), WEFT_OK);
    CHECK(info.status == WEFT_ERR_TIMED_OUT && strstr(info.why, text));
    end_parts(&c, size);
    CHECK(part[0].status == WEFT_ERR_TIMED_OUT && part[0].team == team);
    crew_down(&c);
}

TEST(a_split_that_times_out_names_members_of_its_parent) {
    split_without(17, "self,shm", " more of its parent in time");
    split_without(2, "self,tcp", "from rank 1 of its parent in time");
}

/* Rank 0 is in an older collective with rank 2, which is late for it, and in no other one. */
static void begin_older(struct crew *c) {
    weft_coll_args_t args = {.kind = WEFT_COLL_BARRIER,
                             .flags = WEFT_COLL_TAGGED,
                             .tag = 5,
                             .members = {.start = 0, .stride = 2, .size = 2}};
    expect_outcome(&c->rank[0]);
    posted(&c->rank[0], weft_coll(c->rank[0].team, &args, OP_OF(&c->rank[0])));
    CHECK_EQ(c->rank[0].outcome_calls, 0);
}

static bool waits_as(const weft_team_t *team, const char *text) {
    char found[160];
    return team && team->missing && team->missing(team, found, sizeof found) &&
           strcmp(found, text) == 0;
}

static const char second_of_parent[] = "nothing was received from rank 1 of its parent in time";

static void split_beside_an_older(const char *transports, const char *algorithms) {
    struct crew c;
    crew_up(&c, 3, transports, algorithms ? "coll.algorithms" : NULL, algorithms);
    begin_older(&c);
    begin_split(&c);
    until_colours(&c, 1 | 4);
    UNTIL_BY(&c, 1 | 4, waits_as(another_team(&c.rank[0]), second_of_parent));
    weft_team_t *team = another_team(&c.rank[0]);
    end_time(team);
    CHECK(reports(team, second_of_parent));
    end_parts(&c, 3);
    crew_down(&c);
}

TEST(a_split_is_not_named_by_an_older_collective_of_its_parent) {
    split_beside_an_older("self,shm", NULL);
    split_beside_an_older("self,tcp", "allgather=direct");
}

/* All have the records; in what follows rank 1 gives no word. */
TEST(a_split_that_meets_by_its_parent_is_named_by_that) {
    struct crew c;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    begin_older(&c);
    begin_split(&c);
    UNTIL_BY(&c, 1 | 2 | 4, another_team(&c.rank[1]));
    UNTIL_BY(&c, 1 | 4, another_team(&c.rank[0]) && another_team(&c.rank[0])->exchanged == WEFT_OK);
    UNTIL_BY(&c, 1 | 4, waits_as(another_team(&c.rank[0]), second_of_parent));
    weft_team_t *team = another_team(&c.rank[0]);
    CHECK(team->meeting != NULL);
    end_time(team);
    CHECK(reports(team, second_of_parent));
    end_parts(&c, 3);
    crew_down(&c);
}

/* ---- teams that grow ------------------------------------------------------------------------- */

/* Workers 0 to `size` - 1 are in a team; the others are not. */
static void team_of(struct crew *c, uint32_t size, uint32_t workers, const char *transports) {
    crew_workers(c, workers, transports, NULL, 0);
    c->size = size;
    crew_teams(c);
    c->size = workers;
}

/* By `n`, whom rank 0 invites. */
static void grow(struct crew *c, uint32_t r, uint32_t n) {
    weft_team_params_t params = params_of(r, r ? 500 : 60000);
    CHECK_EQ(weft_team_grow(c->rank[r].team, 0, n, &params), WEFT_OK);
}

static void join(struct crew *c, uint32_t r) {
    uint8_t bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len = sizeof bytes;
    weft_team_params_t params = params_of(r, 500);
    CHECK_EQ(weft_team_invite(c->rank[0].team, bytes, &len), WEFT_OK);
    CHECK_EQ(weft_team_join(c->rank[r].worker, bytes, len, &params), WEFT_OK);
}

TEST(a_growth_is_not_named_by_an_older_collective_of_its_team) {
    for (unsigned tcp = 0; tcp < 2; tcp++) {
        struct crew c;
        crew_up(&c, 3, tcp ? "self,tcp" : "self,shm", tcp ? "coll.algorithms" : NULL,
                "allgather=direct");
        begin_older(&c);
        grow(&c, 0, 1);
        grow(&c, 2, 1);
        UNTIL_BY(&c, 1 | 4, waits_as(another_team(&c.rank[0]), second_of_parent));
        weft_team_t *team = another_team(&c.rank[0]);
        end_time(team);
        CHECK(reports(team, second_of_parent));
        grow(&c, 1, 1);
        end_parts(&c, 3);
        crew_down(&c);
    }
}

/* Of workers 2 and 3 those of `asked` have asked to join, and those of `come` go on. */
static void grow_without(uint32_t asked, uint32_t come, const char *text) {
    struct crew c;
    team_of(&c, 2, 4, "self,shm");
    for (uint32_t r = 2, n = 0; r < 4; r++) {
        if (!(asked & 1u << r)) continue;
        join(&c, r);
        n++;
        UNTIL_BY(&c, 1 | asked, c.rank[0].team->n_joiners == n);
    }
    grow(&c, 1, 2);
    grow(&c, 0, 2);
    UNTIL_BY(&c, 1 | 2 | come, waits_as(another_team(&c.rank[0]), text));
    weft_team_t *team = another_team(&c.rank[0]);
    end_time(team);
    CHECK(reports(team, text));
    for (uint32_t r = 2; r < 4; r++)
        if (!(asked & 1u << r)) part[r] = (struct part){.calls = 1};
    end_parts(&c, 4);
    crew_down(&c);
}

TEST(an_inviter_whose_time_is_over_names_how_many_workers_have_come_and_which_are_silent) {
    grow_without(0, 0, "0 of 2 workers that join have come");
    grow_without(8, 8, "1 of 2 workers that join have come");
    grow_without(8, 0,
                 "0 of 2 workers that join have come; rank 2 was welcomed, and has not "
                 "answered");
    grow_without(4 | 8, 8,
                 "1 of 2 workers that join have come; rank 2 was welcomed, and has not "
                 "answered");
    grow_without(4 | 8, 0,
                 "0 of 2 workers that join have come; ranks 2 and 3 were welcomed, and "
                 "have not answered");
}

TEST(who_waits_for_an_inviter_reports_that) {
    struct crew c;
    team_of(&c, 2, 3, "self,shm");
    join(&c, 2);
    grow(&c, 1, 2);
    grow(&c, 0, 2);
    UNTIL_BY(&c, 1 | 2 | 4, another_team(&c.rank[2]));
    UNTIL_BY(&c, 1 | 2,
             waits_as(another_team(&c.rank[1]),
                      "nothing was received from rank 0 of its parent in time"));
    weft_team_t *member = another_team(&c.rank[1]), *worker = another_team(&c.rank[2]);
    end_time(member);
    end_time(worker);
    CHECK(reports(member, "nothing was received from rank 0 of its parent in time"));
    CHECK(reports(worker, "the team that this worker joins has not grown in time"));
    end_time(another_team(&c.rank[0]));
    end_parts(&c, 3);
    crew_down(&c);
}

/* ---- the members that are left --------------------------------------------------------------- */

static void shrink(struct crew *c, uint32_t r, uint32_t deadline_ms) {
    weft_team_params_t params = params_of(r, deadline_ms);
    CHECK_EQ(weft_team_shrink(c->rank[r].team, &params), WEFT_OK);
}

/* In the agreement that names the members those of `come` go on. Rank `r` gives up. */
static void shrink_without(uint32_t r, uint32_t come, const char *text) {
    struct crew c;
    crew_up(&c, 4, "self,tcp", NULL, NULL);
    for (uint32_t i = 0; i < 4; i++)
        if (come & 1u << i) shrink(&c, i, i == r ? 300 : 60000);
    UNTIL_BY(&c, come, part[r].calls);
    CHECK(part[r].status == WEFT_ERR_TIMED_OUT && !part[r].team);
    if (!strstr(part[r].described, text)) printf("  %s\n", part[r].described);
    CHECK(strstr(part[r].described, text));
    for (uint32_t i = 0; i < 4; i++)
        if (!(come & 1u << i)) part[i] = (struct part){.calls = 1};
    crew_close_teams(&c);
    end_parts(&c, 4);
    crew_down(&c);
}

TEST(who_shrinks_and_gives_up_names_the_members_that_have_not_answered) {
    shrink_without(0, 1, "agreement 0: ranks 1, 2 and 3 have not answered in time");
    shrink_without(0, 1 | 2 | 8, "agreement 0: rank 2 has not answered in time");
    shrink_without(1, 2 | 4 | 8, "agreement 0: rank 0 has not answered in time");
}

static bool all_are_ended(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++) {
        weft_team_t *team = another_team(&c->rank[r]);
        if (team && team->status == WEFT_OK) end_time(team);
    }
    return all_have(c->size);
}

/* The coordinator knows the members that are left; then those of `come` go on. */
static void exchange_without(uint32_t r, uint32_t come, const char *text) {
    struct crew c;
    crew_up(&c, 4, "self,tcp", NULL, NULL);
    for (uint32_t i = 0; i < 4; i++) shrink(&c, i, 60000);
    UNTIL_BY(&c, 15, another_team(&c.rank[0]));
    UNTIL_BY(&c, come, waits_as(another_team(&c.rank[r]), text));
    weft_team_t *team = another_team(&c.rank[r]);
    end_time(team);
    CHECK(reports(team, text));
    UNTIL(&c, all_are_ended(&c));
    end_parts(&c, 4);
    crew_down(&c);
}

TEST(an_exchange_of_shrinking_names_the_members_that_have_not_answered) {
    exchange_without(0, 1 | 2 | 8, "agreement 1 of its parent: rank 2 has not answered in time");
    exchange_without(0, 1, "agreement 1 of its parent: ranks 1, 2 and 3 have not answered in time");
    exchange_without(1, 2 | 4 | 8, "agreement 1 of its parent: rank 0 has not answered in time");
}

/* By its own limit, which may pass first. */
TEST(an_agreement_about_records_that_times_out_names_the_members_too) {
    struct crew c;
    crew_up(&c, 2, "self,tcp", "team.timeout", "3s");
    for (uint32_t r = 0; r < 2; r++) shrink(&c, r, 0);
    UNTIL_BY(&c, 3, another_team(&c.rank[0]));
    weft_team_t *team = another_team(&c.rank[0]);
    weft__timer_stop(team->reactor, &team->deadline);
    UNTIL_BY(&c, 1, part[0].calls);
    CHECK(reports(team, "shrinking a team: agreement 1: rank 1 has not answered in time"));
    UNTIL(&c, all_are_ended(&c));
    end_parts(&c, 2);
    crew_down(&c);
}

static weft_status_t outcome = WEFT_IN_PROGRESS;
static char described[512];
static void describe_outcome(weft_status_t status, void *arg) {
    outcome = status;
    weft_status_describe(status, described, sizeof described);
}

TEST(an_agreement_that_times_out_names_the_members_that_have_not_answered) {
    struct crew c;
    uint64_t flags = 1;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    outcome = WEFT_IN_PROGRESS;
    CHECK_EQ(weft_team_agree(c.rank[0].team, &flags, NULL,
                             &(weft_op_t){.done = describe_outcome, .deadline_ms = 50}),
             WEFT_IN_PROGRESS);
    UNTIL_BY(&c, 1, outcome != WEFT_IN_PROGRESS);
    CHECK_EQ(outcome, WEFT_ERR_TIMED_OUT);
    CHECK(strstr(described, "agreement 0: ranks 1 and 2 have not answered in time"));
    crew_down(&c);
}

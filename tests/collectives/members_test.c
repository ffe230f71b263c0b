/* What a program asks about a team, teams of members that it names, and what follows a failure. */
#include <base/alloc.h>
#include <base/status.h>
#include <collectives/agreement.h>
#include <collectives/collective.h>

#include "team.h"

static const char *const ways[][3] = {
    {"self,shm", NULL, NULL}, {"self,shm", "coll.slot", "0"}, {"self,tcp", NULL, NULL}};

/* ---- what is asked about teams --------------------------------------------------------------- */

TEST(a_team_describes_itself_and_its_members) {
    struct crew c;
    weft_team_info_t info;
    weft_team_member_t member;
    const char *name;
    char address[256];
    size_t len = sizeof address;
    crew_workers(&c, 3, "self,shm", NULL, 0);
    crew_begin_teams(&c, 0);
    CHECK_EQ(weft_team_describe(c.rank[0].team, &info), WEFT_OK);
    CHECK_EQ(info.status, WEFT_IN_PROGRESS);
    CHECK_EQ(weft_team_member(c.rank[0].team, 1, &member), WEFT_ERR_BUSY);
    CHECK_EQ(weft_team_algorithm(c.rank[0].team, WEFT_COLL_BARRIER, 0, 0, &name), WEFT_ERR_BUSY);
    UNTIL(&c, all_ready(&c));
    for (uint32_t r = 0; r < 3; r++) {
        CHECK_EQ(weft_team_describe(c.rank[r].team, &info), WEFT_OK);
        CHECK(info.rank == r && info.size == 3 && info.status == WEFT_OK);
        CHECK(info.n_hosts == 1 && info.ranks_per_core >= 1 && info.shares_memory);
        CHECK(info.blamed == UINT32_MAX && !info.why[0]);
    }
    CHECK_EQ(weft_team_member(c.rank[0].team, 2, &member), WEFT_OK);
    CHECK(member.leader == 0 && member.host_rank == 2 && member.ranks_of_host == 3);
    CHECK(member.cores >= 1 && member.host && !member.left);
    CHECK_EQ(weft_worker_address(c.rank[2].worker, address, &len), WEFT_OK);
    CHECK(member.address_len == len && memcmp(member.address, address, len) == 0);
    CHECK_EQ(weft_team_member(c.rank[0].team, 3, &member), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_algorithm(c.rank[0].team, WEFT_COLL_ALLREDUCE, 1 << 20, 0, &name), WEFT_OK);
    CHECK(name && strlen(name) > 2);
    CHECK_EQ(weft_team_algorithm(c.rank[0].team, WEFT_N_COLL_KINDS, 8, 0, &name),
             WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

TEST(an_endpoint_of_a_team_is_closed_by_the_team_alone) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        crew_up(&c, 2, ways[i][0], ways[i][1], ways[i][2]);
        weft_ep_t *ep = weft_team_ep(c.rank[0].team, 1);
        CHECK(ep != NULL);
        CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), WEFT_ERR_BUSY);
        CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL), WEFT_ERR_BUSY);
        CHECK(weft_team_ep(c.rank[0].team, 1) == ep);
        crew_down(&c);
    }
}

static void on_ep_error(weft_ep_t *ep, weft_status_t status, void *arg) {}
TEST(the_on_error_of_a_teams_endpoint_is_the_teams) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        crew_up(&c, 2, ways[i][0], ways[i][1], ways[i][2]);
        weft_ep_t *ep = weft_team_ep(c.rank[0].team, 1);
        CHECK_EQ(weft_ep_on_error(ep, on_ep_error, NULL), WEFT_ERR_BUSY);
        CHECK_EQ(weft_ep_on_error(ep, NULL, NULL), WEFT_ERR_BUSY);
        crew_down(&c);
    }
}

/* In the callback the failure is described with its reason. */
static char described[512];
static void describe_outcome(weft_status_t status, void *arg) {
    weft_status_describe(status, described, sizeof described);
    on_outcome(status, arg);
}

TEST(who_is_late_is_named) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_team_info_t info;
        char text[512];
        crew_up(&c, 3, ways[i][0], ways[i][1], ways[i][2]);
        for (uint32_t r = 0; r < 2; r++) {
            weft_op_t op = {
                .done = r ? on_outcome : describe_outcome, .arg = &c.rank[r], .deadline_ms = 50};
            expect_outcome(&c.rank[r]);
            posted(&c.rank[r], weft_barrier(c.rank[r].team, &op));
        }
        UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
        bool named = false;
        for (uint32_t r = 0; r < 2; r++) {
            if (c.rank[r].outcome != WEFT_ERR_TIMED_OUT) continue; /* the other one reports it */
            CHECK_EQ(weft_team_describe(c.rank[r].team, &info), WEFT_OK);
            CHECK(!info.why[0] || strstr(info.why, "barrier"));
            if (r == 0) CHECK(strstr(described, "because of rank") && strstr(described, info.why));
            named |= strstr(info.why, "rank 2") && strstr(info.why, "did not take part in time");
            CHECK_EQ(weft_barrier(c.rank[r].team, NULL), WEFT_ERR_TIMED_OUT);
            weft_status_describe(WEFT_ERR_TIMED_OUT, text, sizeof text);
            CHECK(strstr(text, info.why) != NULL);
        }
        CHECK(named);
        CHECK(weft_worker_count(c.rank[0].worker, "coll.stragglers") +
                  weft_worker_count(c.rank[1].worker, "coll.stragglers") >=
              1);
        crew_down(&c);
    }
}

/* Two teams of the same workers, with choices and transports of their own. */
TEST(a_team_has_algorithms_and_transports_of_its_own) {
    struct crew c;
    weft_team_t *own[3];
    weft_team_info_t info;
    const char *name;
    crew_up(&c, 3, "self,shm,tcp", NULL, NULL);
    for (uint32_t r = 0; r < 3; r++) own[r] = c.rank[r].team;
    copy_ctl_make(&c.copy_ctl, 3);
    for (uint32_t r = 0; r < 3; r++) {
        weft_team_params_t params = {.exchange = &c.copy_ctl.exchange[r],
                                     .on_ready = on_team_ready,
                                     .arg = &c.rank[r],
                                     .algorithms = "barrier:=tree,allreduce:0-1k=ring",
                                     .transports = "self,tcp"};
        c.rank[r].ready = WEFT_IN_PROGRESS;
        CHECK_EQ(weft_team_create(c.rank[r].worker, &params, &c.rank[r].team), WEFT_OK);
    }
    UNTIL(&c, all_ready(&c));
    for (uint32_t r = 0; r < 3; r++) {
        weft_ep_info_t ep;
        CHECK_EQ(c.rank[r].ready, WEFT_OK);
        CHECK_EQ(weft_team_describe(c.rank[r].team, &info), WEFT_OK);
        CHECK(!info.shares_memory);
        CHECK_EQ(weft_ep_describe(weft_team_ep(c.rank[r].team, (r + 1) % 3), &ep), WEFT_OK);
        CHECK(strcmp(ep.transport, "tcp") == 0);
        CHECK_EQ(weft_team_describe(own[r], &info), WEFT_OK);
        CHECK(info.shares_memory);
    }
    CHECK_EQ(weft_team_algorithm(c.rank[0].team, WEFT_COLL_BARRIER, 0, 0, &name), WEFT_OK);
    CHECK(strcmp(name, "tree") == 0);
    CHECK_EQ(weft_team_algorithm(c.rank[0].team, WEFT_COLL_ALLREDUCE, 8, 0, &name), WEFT_OK);
    CHECK(strcmp(name, "ring") == 0);
    CHECK_EQ(weft_team_algorithm(own[0], WEFT_COLL_BARRIER, 0, 0, &name), WEFT_OK);
    CHECK(strcmp(name, "tree") != 0);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < 3; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    crew_close_teams(&c);
    for (uint32_t r = 0; r < 3; r++) c.rank[r].team = own[r];
    crew_down(&c);
}

/* One gives 4 bytes, the others 8 KiB. */
TEST(a_choice_by_bytes_does_not_part_the_members_of_a_v_form) {
    enum { LARGE = 2048 };
    static int32_t mine[3][LARGE], all[3][2 * LARGE + 1];
    static const uint64_t counts[] = {1, LARGE, LARGE};
    struct crew c;
    crew_up(&c, 3, "self,shm", "coll.algorithms", "allgatherv:-1k=ring,allgatherv:1k-=linear");
    for (uint32_t r = 0; r < 3; r++) mine[r][counts[r] - 1] = 7 + (int32_t)r;
    EVERYBODY(&c, weft_allgatherv(me->team, mine[r], all[r], counts, NULL, WEFT_INT32, OP_OF(me)));
    for (uint32_t r = 0; r < 3; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK(all[r][0] == 7 && all[r][LARGE] == 8 && all[r][2 * LARGE] == 9);
    }
    crew_down(&c);
}

TEST(an_algorithm_of_unknown_flags_is_not_named) {
    struct crew c;
    const char *name;
    crew_up(&c, 2, "self,shm", NULL, NULL);
    weft_team_t *team = c.rank[0].team;
    const uint32_t known = WEFT_COLL_FIXED_ORDER | WEFT_COLL_SAFE;
    CHECK_EQ(weft_team_algorithm(team, WEFT_COLL_ALLREDUCE, 8, known, &name), WEFT_OK);
    CHECK_EQ(weft_team_algorithm(team, WEFT_COLL_ALLREDUCE, 8, known + 1, &name),
             WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

TEST(choices_that_differ_or_cannot_be_read_are_refused) {
    struct crew c;
    weft_team_t *team;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    copy_ctl_make(&c.copy_ctl, 2);
    weft_team_params_t params = {.exchange = &c.copy_ctl.exchange[0], .algorithms = "nonsense"};
    CHECK_EQ(weft_team_create(c.rank[0].worker, &params, &team), WEFT_ERR_INVALID_PARAM);
    for (uint32_t r = 0; r < 2; r++) {
        params = (weft_team_params_t){.exchange = &c.copy_ctl.exchange[r],
                                      .on_ready = on_team_ready,
                                      .arg = &c.rank[r],
                                      .algorithms = r ? "barrier:=tree" : NULL};
        c.rank[r].ready = WEFT_IN_PROGRESS;
        CHECK_EQ(weft_team_create(c.rank[r].worker, &params, &c.rank[r].team), WEFT_OK);
    }
    UNTIL(&c, all_ready(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].ready, WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

TEST(a_revoked_team_ends_for_everybody) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_team_info_t info;
        crew_up(&c, 3, ways[i][0], ways[i][1], ways[i][2]);
        for (uint32_t r = 0; r < 2; r++) {
            expect_outcome(&c.rank[r]);
            posted(&c.rank[r], weft_barrier(c.rank[r].team, OP_OF(&c.rank[r])));
        }
        CHECK_EQ(weft_team_revoke(c.rank[2].team), WEFT_OK);
        CHECK_EQ(weft_team_revoke(c.rank[2].team), WEFT_OK);
        UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
        for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_REVOKED);
        for (uint32_t r = 0; r < 3; r++) {
            CHECK_EQ(weft_barrier(c.rank[r].team, NULL), WEFT_ERR_REVOKED);
            CHECK_EQ(weft_team_describe(c.rank[r].team, &info), WEFT_OK);
            CHECK(info.status == WEFT_ERR_REVOKED && info.blamed == 2);
        }
        crew_down(&c);
    }
}

TEST(a_team_that_is_not_ready_is_not_revoked) {
    struct crew c;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    crew_begin_teams(&c, 0);
    CHECK_EQ(weft_team_revoke(c.rank[0].team), WEFT_ERR_BUSY);
    CHECK_EQ(weft_team_revoke(NULL), WEFT_ERR_INVALID_PARAM);
    UNTIL(&c, all_ready(&c));
    crew_down(&c);
}

/* ---- members that the program names ---------------------------------------------------------- */

static bool is_even(uint32_t rank, void *arg) {
    return rank % 2 == 0;
}

static weft_team_t *part_of[MOST_RANKS];
static void on_part(weft_team_t *team, weft_status_t status, void *arg) {
    struct rank *r = arg;
    part_of[r - r->crew->rank] = team;
    on_outcome(status, r);
}

/* Which rank of the parent has which rank in the part; UINT32_MAX: none. */
static void subset_is(const weft_team_map_t *map, const uint32_t expected[5]) {
    struct crew c;
    crew_up(&c, 5, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < 5; r++) {
        weft_team_params_t params = {.on_ready = on_part, .arg = &c.rank[r]};
        expect_outcome(&c.rank[r]);
        CHECK_EQ(weft_team_subset(c.rank[r].team, map, &params), WEFT_OK);
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 5; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK_EQ(part_of[r] == NULL, expected[r] == UINT32_MAX);
        if (part_of[r]) CHECK_EQ(weft_team_rank(part_of[r]), expected[r]);
    }
    for (uint32_t r = 0; r < 5; r++)
        if (part_of[r]) CHECK_EQ(weft_team_close(part_of[r], NULL), WEFT_IN_PROGRESS);
    for (int k = 0; k < 200; k++) crew_turn(&c);
    crew_down(&c);
}

TEST(a_subset_is_a_list_a_stride_all_or_given_by_a_callback) {
    enum { NO = UINT32_MAX };
    static const uint32_t list[] = {4, 1, 2};
    subset_is(&(weft_team_map_t){.kind = WEFT_MAP_LIST, .list = list, .n = 3},
              (uint32_t[]){NO, 1, 2, NO, 0});
    subset_is(&(weft_team_map_t){.kind = WEFT_MAP_STRIDED, .start = 1, .stride = 3, .n = 2},
              (uint32_t[]){NO, 0, NO, NO, 1});
    subset_is(&(weft_team_map_t){.kind = WEFT_MAP_CALLBACK, .contains = is_even},
              (uint32_t[]){0, NO, 1, NO, 2});
    subset_is(&(weft_team_map_t){.kind = WEFT_MAP_FULL}, (uint32_t[]){0, 1, 2, 3, 4});
}

/* Of four members, each three have a team. All four teams and the parent work at the same time. */
static void overlap(const char *transports) {
    enum { N = 4 };
    static int32_t give[N + 1][N], sum[N + 1][N];
    weft_team_t *team[N + 1][N];
    struct crew c;
    crew_up(&c, N, transports, NULL, NULL);
    for (uint32_t without = 0; without < N; without++) {
        uint32_t list[N - 1];
        for (uint32_t i = 0; i < N - 1; i++) list[i] = (without + 1 + i) % N;
        weft_team_map_t map = {.kind = WEFT_MAP_LIST, .list = list, .n = N - 1};
        for (uint32_t r = 0; r < N; r++) {
            weft_team_params_t params = {.on_ready = on_part, .arg = &c.rank[r]};
            expect_outcome(&c.rank[r]);
            CHECK_EQ(weft_team_subset(c.rank[r].team, &map, &params), WEFT_OK);
        }
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < N; r++) team[without][r] = part_of[r];
    }
    for (uint32_t r = 0; r < N; r++) team[N][r] = c.rank[r].team;
    for (int32_t round = 0; round < 20; round++) {
        int expected = 0, calls = 0;
        for (uint32_t r = 0; r < N; r++) c.rank[r].outcome_calls = 0;
        for (uint32_t k = 0; k <= N; k++)
            for (uint32_t r = 0; r < N; r++) {
                uint32_t t = (k + r) % (N + 1); /* each in another order */
                if (!team[t][r]) continue;
                give[t][r] = (int32_t)(1000 * t + r) + round;
                weft_status_t st = weft_allreduce(team[t][r], &give[t][r], &sum[t][r], 1,
                                                  WEFT_INT32, WEFT_SUM, OP_OF(&c.rank[r]));
                CHECK(st >= 0);
                expected += st == WEFT_IN_PROGRESS;
            }
        UNTIL(&c, (calls = c.rank[0].outcome_calls + c.rank[1].outcome_calls +
                           c.rank[2].outcome_calls + c.rank[3].outcome_calls) == expected);
        for (uint32_t t = 0; t <= N; t++)
            for (uint32_t r = 0; r < N; r++) {
                int32_t n = t < N ? 3 : 4, ranks = 6 - (t < N ? (int32_t)t : 0);
                if (team[t][r]) CHECK_EQ(sum[t][r], n * (1000 * (int32_t)t + round) + ranks);
            }
    }
    for (uint32_t t = 0; t < N; t++)
        for (uint32_t r = 0; r < N; r++)
            if (team[t][r]) CHECK_EQ(weft_team_close(team[t][r], NULL), WEFT_IN_PROGRESS);
    crew_down(&c);
}

TEST(teams_that_overlap_work_at_the_same_time) {
    overlap("self,shm");
    overlap("self,tcp");
}

/* Their exchanges end in another order at each member. */
TEST(teams_are_created_at_the_same_time) {
    enum { N = 3, TEAMS = 5 };
    static int32_t sum[TEAMS][N], one = 1;
    struct crew c[TEAMS];
    crew_workers(&c[0], N, "self,shm", NULL, 0);
    for (unsigned t = 0; t < TEAMS; t++) {
        if (t) c[t] = c[0];
        for (uint32_t r = 0; r < N; r++) c[t].rank[r].crew = &c[t];
        crew_begin_teams(&c[t], 0);
    }
    for (unsigned i = 0, ready = 0; ready < TEAMS && i < 1000000; i++) {
        copy_ctl_pump(&c[i * 7 % 5 * (i % 3) % TEAMS].copy_ctl);
        if (i > 50) copy_ctl_pump(&c[i % TEAMS].copy_ctl);
        for (uint32_t r = 0; r < N; r++) weft_worker_progress(c[0].rank[r].worker, 0);
        for (ready = 0; ready < TEAMS && all_ready(&c[ready]); ready++) continue;
    }
    for (unsigned t = 0; t < TEAMS; t++) {
        for (uint32_t r = 0; r < N; r++) CHECK_EQ(c[t].rank[r].ready, WEFT_OK);
        EVERYBODY(&c[t],
                  weft_allreduce(me->team, &one, &sum[t][r], 1, WEFT_INT32, WEFT_SUM, OP_OF(me)));
        for (uint32_t r = 0; r < N; r++) CHECK_EQ(sum[t][r], N);
    }
    for (unsigned t = 1; t < TEAMS; t++) crew_close_teams(&c[t]);
    crew_down(&c[0]);
}

static void not_called(weft_team_t *team, weft_status_t status, void *arg) {
    CHECK(!"a call that was refused reports nothing");
}

TEST(a_map_that_names_no_members_is_refused) {
    static const uint32_t twice[] = {1, 1}, beyond[] = {0, 9};
    const weft_team_map_t bad[] = {
        {.kind = WEFT_MAP_LIST, .list = twice, .n = 2},
        {.kind = WEFT_MAP_LIST, .list = beyond, .n = 2},
        {.kind = WEFT_MAP_LIST},
        {.kind = WEFT_MAP_STRIDED, .start = 1, .stride = 1, .n = 2},
        {.kind = WEFT_MAP_STRIDED, .n = 1},
        {.kind = WEFT_MAP_CALLBACK},
        {.kind = (weft_map_kind_t)9},
    };
    const weft_team_params_t params = {.on_ready = not_called};
    struct crew c;
    crew_up(&c, 2, "self,shm", NULL, NULL);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(weft_team_subset(c.rank[0].team, &bad[i], &params), WEFT_ERR_INVALID_PARAM);
    crew_down(&c);
}

TEST(a_process_alone_waits_for_its_parts) {
    struct crew c;
    weft_team_t *whole = NULL, *part = NULL;
    crew_workers(&c, 1, "self", NULL, 0);
    CHECK_EQ(weft_team_create_wait(c.rank[0].worker, weft_self_exchange(), &whole), WEFT_OK);
    CHECK_EQ(weft_team_split_wait(whole, 7, 0, &part), WEFT_OK);
    CHECK(part && weft_team_size(part) == 1);
    CHECK_EQ(weft_team_close_wait(part), WEFT_OK);
    weft_team_map_t none = {.kind = WEFT_MAP_CALLBACK, .contains = is_even};
    CHECK_EQ(weft_team_subset_wait(whole, &none, &part), WEFT_OK);
    CHECK_EQ(weft_team_close_wait(part), WEFT_OK);
    CHECK_EQ(weft_team_split_wait(whole, WEFT_NO_COLOUR, 0, &part), WEFT_OK);
    CHECK(part == NULL);
    CHECK_EQ(weft_team_split_wait(whole, 0, 0, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_close_wait(whole), WEFT_OK);
    crew_down(&c);
}

/* ---- agreeing, and going on without those that are lost -------------------------------------- */

static struct { uint64_t flags, lost[1]; } word[MOST_RANKS];

static void agree_and(weft_done_fn done, struct crew *c, uint32_t r, uint64_t flags,
                      uint32_t deadline_ms) {
    word[r].flags = flags;
    expect_outcome(&c->rank[r]);
    posted(&c->rank[r],
           weft_team_agree(
               c->rank[r].team, &word[r].flags, word[r].lost,
               &(weft_op_t){.done = done, .arg = &c->rank[r], .deadline_ms = deadline_ms}));
}
static void agree(struct crew *c, uint32_t r, uint64_t flags, uint32_t deadline_ms) {
    agree_and(on_outcome, c, r, flags, deadline_ms);
}

/* A crew of which one member vanishes. Its worker's close waits for peers that have no turn
 * meanwhile, for as long as "close.timeout" says. */
static void mortal_crew_up(struct crew *c, uint32_t size, const char *transports) {
    const weft_setting_t settings[] = {{"close.timeout", "20ms"}, {"coll.slot", "0"}};
    crew_workers(c, size, transports, settings, 2);
    crew_teams(c);
}

TEST(all_members_agree_on_a_word) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        crew_up(&c, 5, ways[i][0], ways[i][1], ways[i][2]);
        for (int again = 0; again < 5; again++) {
            for (uint32_t r = 0; r < 5; r++) {
                for (int k = 0; k < again; k++) crew_turn(&c);
                agree(&c, r, ~(1ull << (r + 3 * (unsigned)again)), 0);
            }
            UNTIL(&c, all_notified(&c));
            for (uint32_t r = 0; r < 5; r++) {
                CHECK_EQ(c.rank[r].outcome, WEFT_OK);
                CHECK(word[r].flags == ~(0x1full << 3 * again) && word[r].lost[0] == 0);
            }
        }
        crew_down(&c);
    }
}

/* `dies` goes after so many turns of the agreement, or before it (turns < 0). */
static void agree_without(uint32_t dies, int turns) {
    struct crew c;
    uint64_t flags = 0, lost = 0;
    bool first = true;
    mortal_crew_up(&c, 4, "self,shm");
    if (turns < 0) vanish(&c, dies);
    for (uint32_t r = 0; r < 4; r++)
        if (c.rank[r].team) agree(&c, r, 0xf0 | 1u << r, 0);
    for (int k = 0; k < turns; k++) crew_turn(&c);
    if (turns >= 0) vanish(&c, dies);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 4; r++) {
        if (r == dies) continue;
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        if (first) flags = word[r].flags, lost = word[r].lost[0];
        first = false;
        CHECK(word[r].flags == flags && word[r].lost[0] == lost);
    }
    CHECK_EQ(flags, 0xf0);
    CHECK(lost == 0 || lost == 1u << dies);
    if (turns < 0) CHECK_EQ(lost, 1u << dies);
    crew_down(&c);
}

TEST(those_that_are_left_agree_whichever_is_lost_and_whenever) {
    for (uint32_t dies = 0; dies < 4; dies++)
        for (int turns = -1; turns < 12; turns++) agree_without(dies, turns);
}

TEST(an_agreement_that_a_member_does_not_join_ends_by_its_deadline) {
    struct crew c;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    agree_and(describe_outcome, &c, 0, 1, 50);
    agree(&c, 2, 1, 50);
    CHECK_EQ(weft_team_agree(c.rank[0].team, &word[0].flags, NULL, NULL), WEFT_ERR_BUSY);
    (void)weft__fail(WEFT_ERR_TIMED_OUT, "an earlier failure");
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[2].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(c.rank[2].outcome, WEFT_ERR_TIMED_OUT);
    CHECK(strstr(described, "agreement 0") && !strstr(described, "an earlier failure"));
    crew_down(&c);
}

/* It has the exchange of the other team, and so waits for no resource. Its handle comes by on_ready
 * alone, which is therefore there. */
TEST(a_team_made_of_another_has_no_exchange_and_no_associated_mode_but_on_ready) {
    enum { N_WRONG = 3 };
    struct crew c;
    const weft_team_params_t wrong[N_WRONG] = {
        {.exchange = weft_self_exchange(), .on_ready = not_called},
        {.associated = 1, .on_ready = not_called},
        {.on_ready = NULL}};
    const weft_team_map_t all = {.kind = WEFT_MAP_FULL};
    char bytes[WEFT_TEAM_INVITATION_MAX];
    size_t len = sizeof bytes;
    crew_up(&c, 2, "self,shm", NULL, NULL);
    weft_team_t *team = c.rank[0].team;
    CHECK_EQ(weft_team_invite(team, bytes, &len), WEFT_OK);
    for (int i = 0; i < N_WRONG; i++) {
        CHECK_EQ(weft_team_split(team, 0, 0, &wrong[i]), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_team_subset(team, &all, &wrong[i]), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_team_shrink(team, &wrong[i]), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_team_grow(team, 0, 1, &wrong[i]), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_team_join(c.rank[1].worker, bytes, len, &wrong[i]), WEFT_ERR_INVALID_PARAM);
    }
    crew_down(&c);
}

TEST(an_agreement_refuses_what_it_cannot_do) {
    struct crew c;
    weft_completion_t completion = {.count = 0};
    const weft_layout_t layout = {.kind = WEFT_LAYOUT_STRIDED};
    const weft_op_t unsupported[] = {
        {.completion = &completion}, {.layout = &layout}, {.stream = &completion}};
    const weft_op_t unknown[] = {{.flags = 1}, {.reserved = {1}}};
    crew_up(&c, 2, "self,shm", NULL, NULL);
    weft_team_t *team = c.rank[0].team;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(weft_team_agree(team, &word[0].flags, NULL, &unsupported[i]),
                 WEFT_ERR_UNSUPPORTED);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_team_agree(team, &word[0].flags, NULL, &unknown[i]), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(completion.count, 0);
    agree(&c, 0, 3, 0);
    agree(&c, 1, 1, 0);
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    CHECK_EQ(word[0].flags, 1);
    crew_down(&c);
}

TEST(a_close_ends_an_agreement) {
    struct crew c;
    weft_team_params_t with_exchange = {.exchange = weft_self_exchange(), .on_ready = not_called};
    crew_up(&c, 2, "self,shm", NULL, NULL);
    CHECK_EQ(weft_team_agree(NULL, &word[0].flags, NULL, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_agree(c.rank[0].team, NULL, NULL, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_shrink(c.rank[0].team, &with_exchange), WEFT_ERR_INVALID_PARAM);
    agree(&c, 0, 1, 0);
    crew_close_teams(&c);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_CLOSED);
    crew_down(&c);
}

/* It would make this side take the other's death for its leave. The team goes on. */
TEST(an_answer_that_was_not_asked_for_is_a_violation) {
    struct crew c;
    struct coll_message answer = {.id = COLL_WIRE_RELEASE};
    crew_up(&c, 2, "self,tcp", NULL, NULL);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    CHECK(weft__coll_send(c.rank[0].team, 1, &answer) >= 0);
    UNTIL(&c, weft_worker_count(c.rank[1].worker, "peer.violations") == 1);
    CHECK(!member_may_end(&c.rank[1].team->member[0].core.fsm));
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    crew_down(&c);
}

/* Members of the old team that are left make a new one, and it works. */
static void shrink_without(const char *transports, uint32_t size, uint32_t dies, bool revoked) {
    struct crew c;
    weft_team_t *old[MOST_RANKS];
    static int32_t one[MOST_RANKS], sum[MOST_RANKS];
    mortal_crew_up(&c, size, transports);
    vanish(&c, dies);
    if (revoked) CHECK_EQ(weft_team_revoke(c.rank[(dies + 1) % size].team), WEFT_OK);
    for (uint32_t r = 0; r < size; r++) {
        if (r == dies) continue;
        weft_team_params_t params = {.on_ready = on_part, .arg = &c.rank[r]};
        old[r] = c.rank[r].team;
        expect_outcome(&c.rank[r]);
        CHECK_EQ(weft_team_shrink(old[r], &params), WEFT_OK);
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < size; r++) {
        if (r == dies) continue;
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK_EQ(weft_team_size(part_of[r]), size - 1);
        CHECK_EQ(weft_team_rank(part_of[r]), r - (r > dies));
    }
    crew_close_teams(&c);
    for (uint32_t r = 0; r < size; r++) {
        if (r == dies) continue;
        c.rank[r].team = part_of[r];
        one[r] = 1;
        expect_outcome(&c.rank[r]);
        posted(&c.rank[r], weft_allreduce(part_of[r], &one[r], &sum[r], 1, WEFT_INT32, WEFT_SUM,
                                          OP_OF(&c.rank[r])));
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < size; r++)
        if (r != dies) CHECK(c.rank[r].outcome == WEFT_OK && sum[r] == (int32_t)size - 1);
    crew_down(&c);
}

TEST(those_that_are_left_make_a_new_team) {
    for (uint32_t dies = 0; dies < 3; dies++)
        for (int revoked = 0; revoked < 2; revoked++) {
            shrink_without("self,shm", 3, dies, revoked);
            shrink_without("self,tcp", 4, dies, revoked);
        }
    shrink_without("self,shm", 17, 0, false); /* 17: records longer than what is sent unasked */
    shrink_without("self,shm", 2, 1, false);  /* one is left */
}

/* ---- shrinking that fails -------------------------------------------------------------------- */

static void begin_shrink(struct crew *c, uint32_t r, uint32_t deadline_ms, const char *algorithms) {
    weft_team_params_t params = {.on_ready = on_part,
                                 .arg = &c->rank[r],
                                 .deadline_ms = deadline_ms,
                                 .algorithms = algorithms};
    expect_outcome(&c->rank[r]);
    part_of[r] = NULL;
    CHECK_EQ(weft_team_shrink(c->rank[r].team, &params), WEFT_OK);
}

static void shrink_well(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++) begin_shrink(c, r, 0, NULL);
    UNTIL(c, all_notified(c));
    for (uint32_t r = 0; r < c->size; r++) {
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        CHECK_EQ(weft_team_size(part_of[r]), c->size);
    }
    crew_close_teams(c);
    for (uint32_t r = 0; r < c->size; r++) c->rank[r].team = part_of[r];
}

static void close_parts(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++) {
        if (part_of[r]) CHECK_EQ(weft_team_close(part_of[r], NULL), WEFT_IN_PROGRESS);
        part_of[r] = NULL;
    }
}

TEST(a_member_that_can_make_no_team_ends_the_shrinking_of_all_and_all_may_shrink_again) {
    struct crew c;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    double begin = test_now();
    for (uint32_t r = 0; r < 3; r++) begin_shrink(&c, r, 20000, r == 1 ? "no choice" : NULL);
    UNTIL(&c, all_notified(&c));
    CHECK(test_now() < begin + 10);
    CHECK_EQ(c.rank[1].outcome, WEFT_ERR_INVALID_PARAM);
    CHECK(c.rank[0].outcome == WEFT_ERR_PROTOCOL && c.rank[2].outcome == WEFT_ERR_PROTOCOL);
    close_parts(&c);
    shrink_well(&c);
    crew_down(&c);
}

static bool has_another_team(const struct rank *r) {
    unsigned n = 0;
    list_for_each(at, &r->team->registry->teams) n++;
    return n > 1;
}

/* The first member knows those that are left, and the second one does not yet. */
static void shrink_to_decision(struct crew *c) {
    double end = test_now() + test_timeout(60);
    for (uint32_t r = 0; r < 3; r++) begin_shrink(c, r, 500, NULL);
    for (uint32_t r = 0; !has_another_team(&c->rank[0]) && test_now() < end; r = (r + 1) % 3)
        weft_worker_progress(c->rank[r].worker, 0);
    CHECK(has_another_team(&c->rank[0]) && !c->rank[1].outcome_calls);
}

static void shrink_again(struct crew *c, weft_status_t outcome) {
    UNTIL(c, all_notified(c));
    CHECK_EQ(c->rank[1].outcome, outcome);
    close_parts(c);
    shrink_well(c);
    crew_down(c);
}

/* Its time is over before it learns that the others know the members. */
TEST(a_member_that_gives_up_first_may_shrink_again_with_the_others) {
    struct crew c;
    crew_up(&c, 3, "self,shm", "coll.slot", "0");
    shrink_to_decision(&c);
    weft__agreements_stop(c.rank[1].team, WEFT_ERR_TIMED_OUT);
    shrink_again(&c, WEFT_ERR_TIMED_OUT);
}

TEST(a_member_that_lacks_memory_for_its_record_may_shrink_again_with_the_others) {
    struct crew c;
    double end = test_now() + test_timeout(60);
    crew_up(&c, 3, "self,shm", "coll.slot", "0");
    shrink_to_decision(&c);
    while (!c.rank[1].outcome_calls && test_now() < end) {
        weft__alloc_fail_run(1, 1000);
        weft_worker_progress(c.rank[1].worker, 0);
        weft__alloc_fail_at(0);
    }
    shrink_again(&c, WEFT_ERR_NO_MEMORY);
}

/* The others are notified by their deadline, close what they have, and may shrink again at once,
 * whatever the late member was at. */
static void stops_after(unsigned turns) {
    struct crew c;
    enum { LATE = 2 };
    crew_up(&c, 3, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < 3; r++) begin_shrink(&c, r, 30, NULL);
    for (unsigned i = 0; i < turns; i++) crew_turn(&c);
    weft_worker_t *late = c.rank[LATE].worker;
    c.rank[LATE].worker = NULL; /* it is driven no more */
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    c.rank[LATE].worker = late;
    bool failed = c.rank[0].outcome == WEFT_ERR_TIMED_OUT;
    if (failed) begin_shrink(&c, 0, 20, NULL);
    close_parts(&c);
    UNTIL(&c, all_notified(&c));
    close_parts(&c);
    crew_down(&c);
}

TEST(a_member_that_is_late_in_shrinking_does_not_hold_up_the_next) {
    for (unsigned turns = 0; turns < 20; turns++) stops_after(turns);
}

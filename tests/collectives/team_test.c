/* The life of a team: how it begins, what ends it, and that every member learns of it once. */
#include "team.h"
#include <base/status.h>
#include <collectives/team.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static int32_t in[MOST_RANKS], out[MOST_RANKS];

/* ---- the beginning --------------------------------------------------------------------------- */

TEST(a_team_is_not_ready_within_the_call_and_refuses_until_it_is) {
    struct crew c;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    crew_begin_teams(&c, 0);
    CHECK_EQ(weft_barrier(c.rank[0].team, NULL), WEFT_ERR_BUSY);
    CHECK(weft_team_ep(c.rank[0].team, 1) == NULL);
    UNTIL(&c, all_ready(&c));
    CHECK_EQ(c.rank[0].ready, WEFT_OK);
    crew_down(&c);
}

TEST(a_creation_that_no_one_joins_ends_by_its_deadline) {
    struct crew c;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    copy_ctl_make(&c.copy_ctl, 2);
    c.rank[0].ready = WEFT_IN_PROGRESS;
    double start = test_now();
    CHECK_EQ(weft_team_create(c.rank[0].worker,
                              &(weft_team_params_t){.exchange = &c.copy_ctl.exchange[0],
                                                    .on_ready = on_team_ready,
                                                    .arg = &c.rank[0],
                                                    .deadline_ms = 50},
                              &c.rank[0].team),
             WEFT_OK);
    UNTIL(&c, c.rank[0].ready != WEFT_IN_PROGRESS);
    CHECK_EQ(c.rank[0].ready, WEFT_ERR_TIMED_OUT);
    CHECK(test_now() - start > 0.045);
    CHECK(c.copy_ctl.seat[0].cancelled);
    CHECK_EQ(weft_barrier(c.rank[0].team, NULL), WEFT_ERR_TIMED_OUT);
    crew_down(&c);
    CHECK_EQ(c.rank[0].ready_calls, 1);
}

TEST(a_member_that_dies_between_exchange_and_agreement_fails_the_creation) {
    for (int turns = 0; turns < 12; turns++) {
        struct crew c;
        crew_workers(&c, 3, "self,shm", NULL, 0);
        crew_begin_teams(&c, 400);
        while (c.copy_ctl.notified < 3) crew_turn(&c);
        for (int i = 0; i < turns; i++) crew_turn(&c);
        weft_worker_destroy(c.rank[2].worker);
        c.rank[2].worker = NULL;
        c.rank[2].team = NULL;
        UNTIL(&c, all_ready(&c));
        for (uint32_t r = 0; r < 2; r++) {
            CHECK_EQ(c.rank[r].ready_calls, 1);
            /* The deadline ends what no transport notices: a connection that was never finished. */
            weft_status_t st = c.rank[r].ready;
            CHECK(st == WEFT_OK || st == WEFT_ERR_PEER_FAILED || st == WEFT_ERR_TIMED_OUT);
        }
        CHECK_EQ(c.rank[2].ready_calls, 1);
        crew_down(&c);
    }
}

static weft_status_t refuse(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                            void *all, weft_done_fn done, void *done_arg) {
    return WEFT_ERR_IO;
}
static weft_status_t garbage(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                             void *all, weft_done_fn done, void *done_arg) {
    memset(all, 0xa5, 2 * len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}
static weft_status_t fails(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                           void *all, weft_done_fn done, void *done_arg) {
    done(WEFT_ERR_IO, done_arg);
    return WEFT_IN_PROGRESS;
}

TEST(an_exchange_that_fails_fails_the_team) {
    struct crew c;
    crew_workers(&c, 1, "self,shm", NULL, 0);
    weft_exchange_t exchange = {0, 2, refuse, NULL, NULL};
    weft_team_params_t params = {
        .exchange = &exchange, .on_ready = on_team_ready, .arg = &c.rank[0]};
    CHECK_EQ(weft_team_create(c.rank[0].worker, &params, &c.rank[0].team), WEFT_ERR_IO);
    c.rank[0].team = NULL;
    exchange.allgather = garbage;
    c.rank[0].ready = WEFT_IN_PROGRESS;
    CHECK_EQ(weft_team_create(c.rank[0].worker, &params, &c.rank[0].team), WEFT_OK);
    UNTIL(&c, all_ready(&c));
    CHECK_EQ(c.rank[0].ready, WEFT_ERR_PROTOCOL);
    crew_close_teams(&c);
    exchange.allgather = fails;
    c.rank[0].ready = WEFT_IN_PROGRESS;
    CHECK_EQ(weft_team_create(c.rank[0].worker, &params, &c.rank[0].team), WEFT_OK);
    UNTIL(&c, all_ready(&c));
    CHECK_EQ(c.rank[0].ready, WEFT_ERR_IO);
    crew_down(&c);
    CHECK_EQ(c.rank[0].ready_calls, 2);
}

static char reason[512];
static void describe_ready(weft_team_t *team, weft_status_t status, void *arg) {
    weft_status_describe(status, reason, sizeof reason);
    on_team_ready(team, status, arg);
}
static weft_status_t never(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                           void *all, weft_done_fn done, void *done_arg) {
    return WEFT_IN_PROGRESS;
}
static weft_status_t fails_with_a_cause(void *arg, weft_worker_t *worker, const void *mine,
                                        size_t len, void *all, weft_done_fn done, void *done_arg) {
    done(weft__fail(WEFT_ERR_IO, "no paper"), done_arg);
    (void)weft__fail(WEFT_ERR_IO, "an earlier failure");
    return WEFT_IN_PROGRESS;
}

TEST(on_ready_describes_its_own_failure_and_none_before) {
    static const struct {
        weft_status_t (*allgather)(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                   void *all, weft_done_fn done, void *done_arg);
        weft_status_t status;
        const char *text;
    } way[] = {{never, WEFT_ERR_TIMED_OUT, "because of rank 0"},
               {garbage, WEFT_ERR_PROTOCOL, "malformed records"},
               {fails_with_a_cause, WEFT_ERR_IO, "no paper"}};
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        crew_workers(&c, 1, "self,shm", NULL, 0);
        weft_exchange_t exchange = {0, 2, way[i].allgather, copy_ctl_cancel, c.copy_ctl.seat};
        c.rank[0].ready = WEFT_IN_PROGRESS;
        CHECK_EQ(weft_team_create(c.rank[0].worker,
                                  &(weft_team_params_t){.exchange = &exchange,
                                                        .on_ready = describe_ready,
                                                        .arg = &c.rank[0],
                                                        .deadline_ms = 20},
                                  &c.rank[0].team),
                 WEFT_OK);
        (void)weft__fail(way[i].status, "an earlier failure");
        UNTIL(&c, all_ready(&c));
        CHECK_EQ(c.rank[0].ready, way[i].status);
        CHECK(strstr(reason, way[i].text) && !strstr(reason, "an earlier failure"));
        crew_down(&c);
    }
}

TEST(closing_during_the_exchange_is_notified_once_to_everybody) {
    struct crew c;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    crew_begin_teams(&c, 0);
    CHECK_EQ(weft_team_close(c.rank[0].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[0]}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_team_close(c.rank[0].team, NULL), WEFT_ERR_BUSY);
    CHECK(!c.rank[0].closed);
    UNTIL(&c, c.rank[0].closed);
    c.rank[0].team = NULL;
    CHECK_EQ(c.rank[0].ready, WEFT_ERR_CLOSED);
    CHECK_EQ(c.rank[0].ready_calls, 1);
    CHECK_EQ(c.rank[1].ready_calls, 0);
    crew_down(&c);
    CHECK_EQ(c.rank[1].ready, WEFT_ERR_CLOSED);
    CHECK_EQ(c.rank[1].ready_calls, 1);
}

TEST(members_with_other_settings_do_not_form_a_team) {
    struct crew c;
    weft_setting_t other = {"coll.algorithms", "allreduce=ring"};
    weft_context_t *second;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    weft_worker_destroy(c.rank[1].worker);
    CHECK_EQ(
        weft_context_create(&(weft_context_params_t){.settings = &other, .n_settings = 1}, &second),
        WEFT_OK);
    CHECK_EQ(weft_worker_create(second, &(weft_worker_params_t){.transports = "self,shm"},
                                &c.rank[1].worker),
             WEFT_OK);
    crew_begin_teams(&c, 0);
    UNTIL(&c, all_ready(&c));
    CHECK_EQ(c.rank[0].ready, WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(c.rank[1].ready, WEFT_ERR_INVALID_PARAM);
    crew_close_teams(&c);
    weft_worker_destroy(c.rank[1].worker);
    c.rank[1].worker = NULL;
    CHECK_EQ(weft_context_destroy(second), WEFT_OK);
    crew_down(&c);
}

/* ---- cancel and deadline --------------------------------------------------------------------- */

static const char *const ways[][3] = {
    {"self,shm", NULL, NULL}, {"self,shm", "coll.slot", "0"}, {"self,tcp", NULL, NULL}};

/* Everybody but the last begins `count` elements; then something happens. */
static void begin_without_last(struct crew *c, weft_request_t **request_p, uint32_t deadline_ms) {
    static int32_t big[MOST_RANKS][50000];
    for (uint32_t r = 0; r < c->size; r++) expect_outcome(&c->rank[r]);
    for (uint32_t r = 0; r + 1 < c->size; r++) {
        weft_op_t op = {.done = on_outcome, .arg = &c->rank[r]};
        if (r == 0) op.request_p = request_p, op.deadline_ms = deadline_ms;
        CHECK_EQ(weft_allreduce(c->rank[r].team, big[r], big[r], 50000, WEFT_INT32, WEFT_SUM, &op),
                 WEFT_IN_PROGRESS);
    }
    for (int i = 0; i < 10; i++) crew_turn(c);
}

static void all_end_with(struct crew *c, uint32_t n, weft_status_t status) {
    for (uint32_t r = 0; r < n; r++) UNTIL(c, c->rank[r].outcome_calls);
    for (int i = 0; i < 10; i++) crew_turn(c);
    for (uint32_t r = 0; r < n; r++) {
        CHECK_EQ(c->rank[r].outcome, status);
        CHECK_EQ(c->rank[r].outcome_calls, 1);
        CHECK_EQ(weft_barrier(c->rank[r].team, NULL), status);
    }
}

TEST(a_cancelled_collective_fails_the_team_everywhere) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_request_t *request = NULL;
        crew_up(&c, 4, ways[i][0], ways[i][1], ways[i][2]);
        begin_without_last(&c, &request, 0);
        CHECK(request);
        weft_request_cancel(request);
        CHECK_EQ(c.rank[0].outcome_calls, 0);
        all_end_with(&c, 3, WEFT_ERR_CANCELLED);
        UNTIL(&c, weft_barrier(c.rank[3].team, NULL) == WEFT_ERR_CANCELLED);
        crew_down(&c);
    }
}

TEST(a_small_one_through_the_segment_is_cancelled_as_well) {
    struct crew c;
    weft_request_t *request = NULL;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < 3; r++) expect_outcome(&c.rank[r]);
    CHECK_EQ(
        weft_allreduce(c.rank[0].team, &in[0], &out[0], 1, WEFT_INT32, WEFT_SUM,
                       &(weft_op_t){.done = on_outcome, .arg = &c.rank[0], .request_p = &request}),
        WEFT_IN_PROGRESS);
    CHECK_EQ(weft_barrier(c.rank[1].team, OP_OF(&c.rank[1])), WEFT_IN_PROGRESS);
    weft_request_cancel(request);
    all_end_with(&c, 2, WEFT_ERR_CANCELLED);
    crew_down(&c);
}

TEST(a_collective_ends_by_its_deadline_at_every_member) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_request_t *request = NULL;
        crew_up(&c, 3, ways[i][0], ways[i][1], ways[i][2]);
        begin_without_last(&c, &request, 60);
        all_end_with(&c, 2, WEFT_ERR_TIMED_OUT);
        crew_down(&c);
    }
}

/* ---- members that go ------------------------------------------------------------------------- */

TEST(a_member_that_closes_in_the_middle_fails_the_others) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_request_t *request = NULL;
        crew_up(&c, 4, ways[i][0], ways[i][1], ways[i][2]);
        begin_without_last(&c, &request, 0);
        CHECK_EQ(
            weft_team_close(c.rank[1].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[1]}),
            WEFT_IN_PROGRESS);
        UNTIL(&c, c.rank[1].closed);
        CHECK_EQ(c.rank[1].outcome, WEFT_ERR_CLOSED);
        c.rank[1].team = NULL;
        UNTIL(&c, c.rank[0].outcome_calls && c.rank[2].outcome_calls);
        CHECK_EQ(c.rank[0].outcome, WEFT_ERR_PEER_FAILED);
        CHECK_EQ(c.rank[2].outcome, WEFT_ERR_PEER_FAILED);
        crew_down(&c);
    }
}

TEST(a_member_that_never_comes_because_it_closed_is_missed) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_request_t *request = NULL;
        crew_up(&c, 3, ways[i][0], ways[i][1], ways[i][2]);
        begin_without_last(&c, &request, 0);
        CHECK_EQ(
            weft_team_close(c.rank[2].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[2]}),
            WEFT_IN_PROGRESS);
        UNTIL(&c, c.rank[2].closed);
        c.rank[2].team = NULL;
        all_end_with(&c, 2, WEFT_ERR_PEER_FAILED);
        crew_down(&c);
    }
}

TEST(a_team_that_is_closed_blames_no_member) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_team_info_t info;
        char text[512];
        crew_up(&c, 3, ways[i][0], ways[i][1], ways[i][2]);
        for (uint32_t r = 0; r < 3; r++) {
            CHECK_EQ(
                weft_team_close(c.rank[r].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[r]}),
                WEFT_IN_PROGRESS);
            CHECK_EQ(weft_team_describe(c.rank[r].team, &info), WEFT_OK);
            CHECK(info.status == WEFT_ERR_CLOSED && info.blamed == UINT32_MAX);
            CHECK_EQ(weft_barrier(c.rank[r].team, NULL), WEFT_ERR_CLOSED);
            weft_status_describe(WEFT_ERR_CLOSED, text, sizeof text);
            CHECK(strstr(text, "the team is closing") && !strstr(text, "because of rank"));
        }
        UNTIL(&c, all_closed(&c));
        for (uint32_t r = 0; r < 3; r++) c.rank[r].team = NULL;
        crew_down(&c);
    }
}

/* The root has done its part and may go; the others still get it, and only the next one fails. */
TEST(members_that_are_through_may_close_before_the_others) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        crew_up(&c, 3, ways[i][0], ways[i][1], ways[i][2]);
        for (uint32_t r = 0; r < 3; r++) in[r] = r == 0 ? 4711 : 0, expect_outcome(&c.rank[r]);
        posted(&c.rank[0], weft_bcast(c.rank[0].team, &in[0], 1, WEFT_INT32, 0, OP_OF(&c.rank[0])));
        UNTIL(&c, c.rank[0].outcome_calls);
        CHECK_EQ(
            weft_team_close(c.rank[0].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[0]}),
            WEFT_IN_PROGRESS);
        UNTIL(&c, c.rank[0].closed);
        c.rank[0].team = NULL;
        for (int k = 0; k < 20; k++) crew_turn(&c);
        for (uint32_t r = 1; r < 3; r++)
            posted(&c.rank[r],
                   weft_bcast(c.rank[r].team, &in[r], 1, WEFT_INT32, 0, OP_OF(&c.rank[r])));
        UNTIL(&c, c.rank[1].outcome_calls && c.rank[2].outcome_calls);
        for (uint32_t r = 1; r < 3; r++) {
            CHECK_EQ(c.rank[r].outcome, WEFT_OK);
            CHECK_EQ(in[r], 4711);
        }
        for (uint32_t r = 1; r < 3; r++) {
            expect_outcome(&c.rank[r]);
            posted(&c.rank[r], weft_barrier(c.rank[r].team, OP_OF(&c.rank[r])));
        }
        UNTIL(&c, c.rank[1].outcome_calls && c.rank[2].outcome_calls);
        for (uint32_t r = 1; r < 3; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_PEER_FAILED);
        crew_down(&c);
    }
}

static weft_ep_t *accepted;
static void keep_accepted(weft_ep_t *ep, void *arg) {
    accepted = ep;
}

/* The answer to LEAVE goes the way by which LEAVE came: rank 1 has no endpoint of its own to rank
 * 0 any more. */
TEST(a_close_is_answered_although_the_program_closed_the_others_endpoint) {
    struct crew c;
    weft_setting_t slow = {"close.timeout", "60s"};
    crew_workers(&c, 2, "self,shm", &slow, 1);
    weft_worker_destroy(c.rank[0].worker);
    CHECK_EQ(weft_worker_create(
                 c.context,
                 &(weft_worker_params_t){.transports = "self,shm", .on_endpoint = keep_accepted},
                 &c.rank[0].worker),
             WEFT_OK);
    crew_teams(&c);
    CHECK(accepted != NULL);
    CHECK_EQ(weft_ep_close(accepted, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    for (int k = 0; k < 100; k++) crew_turn(&c);
    c.rank[0].closed = false;
    CHECK_EQ(weft_team_close(c.rank[0].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[0]}),
             WEFT_IN_PROGRESS);
    UNTIL(&c, c.rank[0].closed);
    c.rank[0].team = NULL;
    crew_down(&c);
}

TEST(closing_the_worker_closes_its_teams) {
    struct crew c;
    weft_request_t *request = NULL;
    crew_up(&c, 3, "self,shm", NULL, NULL);
    begin_without_last(&c, &request, 0);
    weft_worker_destroy(c.rank[0].worker);
    c.rank[0].worker = NULL;
    c.rank[0].team = NULL;
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_CLOSED);
    CHECK_EQ(c.rank[0].outcome_calls, 1);
    UNTIL(&c, c.rank[1].outcome_calls);
    CHECK_EQ(c.rank[1].outcome, WEFT_ERR_PEER_FAILED);
    crew_down(&c);
}

static weft_team_t *closing_team;
static void close_from_callback(weft_status_t status, void *arg) {
    on_outcome(status, arg);
    CHECK_EQ(weft_team_close(closing_team, &(weft_op_t){.done = on_closed, .arg = arg}),
             WEFT_IN_PROGRESS);
}

TEST(a_team_may_be_closed_from_its_own_callback) {
    struct crew c;
    crew_up(&c, 2, "self,shm", "coll.slot", "0");
    closing_team = c.rank[0].team;
    expect_outcome(&c.rank[0]);
    expect_outcome(&c.rank[1]);
    CHECK_EQ(
        weft_barrier(c.rank[0].team, &(weft_op_t){.done = close_from_callback, .arg = &c.rank[0]}),
        WEFT_IN_PROGRESS);
    posted(&c.rank[1], weft_barrier(c.rank[1].team, OP_OF(&c.rank[1])));
    UNTIL(&c, c.rank[0].closed && c.rank[1].outcome_calls);
    CHECK_EQ(c.rank[1].outcome, WEFT_OK);
    c.rank[0].team = NULL;
    crew_down(&c);
}

/* ---- the deadline of a team ------------------------------------------------------------------ */

TEST(a_collective_without_a_deadline_has_its_teams) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        weft_request_t *request = NULL;
        weft_setting_t settings[] = {{"coll.timeout", "500ms"}, {ways[i][1], ways[i][2]}};
        crew_workers(&c, 3, ways[i][0], settings, ways[i][1] ? 2 : 1);
        crew_teams(&c);
        begin_without_last(&c, &request, 0);
        all_end_with(&c, 2, WEFT_ERR_TIMED_OUT);
        UNTIL(&c, weft_barrier(c.rank[2].team, NULL) == WEFT_ERR_TIMED_OUT);
        crew_down(&c);
    }
}

TEST(a_team_names_its_own_deadline) {
    struct crew c;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    copy_ctl_make(&c.copy_ctl, 2);
    for (uint32_t r = 0; r < 2; r++) {
        c.rank[r].ready = WEFT_IN_PROGRESS;
        weft_team_params_t params = {.exchange = &c.copy_ctl.exchange[r],
                                     .on_ready = on_team_ready,
                                     .arg = &c.rank[r],
                                     .collective_deadline_ms = r == 0 ? 100 : 0};
        CHECK_EQ(weft_team_create(c.rank[r].worker, &params, &c.rank[r].team), WEFT_OK);
    }
    UNTIL(&c, all_ready(&c));
    expect_outcome(&c.rank[0]);
    posted(&c.rank[0], weft_barrier(c.rank[0].team, OP_OF(&c.rank[0])));
    UNTIL(&c, c.rank[0].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_TIMED_OUT);
    UNTIL(&c, weft_barrier(c.rank[1].team, NULL) == WEFT_ERR_TIMED_OUT);
    crew_down(&c);
}

/* The deadline of a collective that is over must not end what follows it. */
TEST(the_deadline_of_a_collective_ends_with_it) {
    struct crew c;
    crew_up(&c, 2, "self,shm", "coll.timeout", "1500ms");
    double start = test_now();
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    while (test_now() - start < 1.6) crew_turn(&c);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    crew_down(&c);
}

/* ---- many teams ------------------------------------------------------------------------------ */

TEST(a_team_of_one_sends_nothing) {
    struct crew c;
    crew_workers(&c, 1, "self,shm", NULL, 0);
    weft_team_t *team;
    CHECK_EQ(weft_team_create_wait(c.rank[0].worker, weft_self_exchange(), &team), WEFT_OK);
    CHECK_EQ(weft_team_size(team), 1);
    CHECK_EQ(weft_team_rank(team), 0);
    int32_t x = 42, sum = 0;
    CHECK_EQ(weft_allreduce_wait(team, &x, &sum, 1, WEFT_INT32, WEFT_SUM), WEFT_OK);
    CHECK_EQ(sum, 42);
    CHECK_EQ(weft_team_close_wait(team), WEFT_OK);
    crew_down(&c);
}

TEST(a_thousand_teams_are_made_and_closed) {
    struct crew c;
    crew_workers(&c, 2, "self,shm", NULL, 0);
    for (int i = 0; i < 1000; i++) {
        crew_teams(&c);
        for (uint32_t r = 0; r < 2; r++) in[r] = i + (int32_t)r;
        EVERYBODY(&c,
                  weft_allreduce(me->team, &in[r], &out[r], 1, WEFT_INT32, WEFT_SUM, OP_OF(me)));
        for (uint32_t r = 0; r < 2; r++) CHECK_EQ(out[r], 2 * i + 1);
        crew_close_teams(&c);
    }
    crew_down(&c);
}

/* ---- splits ---------------------------------------------------------------------------------- */

struct part {
    weft_team_t *team;
    weft_status_t status;
    int calls;
};

static void on_part(weft_team_t *team, weft_status_t status, void *arg) {
    struct part *part = arg;
    part->team = team;
    part->status = status;
    part->calls++;
}

static weft_status_t split(struct rank *r, uint32_t colour, uint32_t key, uint32_t deadline_ms,
                           struct part *part) {
    *part = (struct part){.status = WEFT_IN_PROGRESS};
    return weft_team_split(
        r->team, colour, key,
        &(weft_team_params_t){.on_ready = on_part, .arg = part, .deadline_ms = deadline_ms});
}

static bool all_split(const struct part *part, uint32_t n) {
    for (uint32_t r = 0; r < n; r++)
        if (!part[r].calls) return false;
    return true;
}

static void close_part(struct crew *c, struct part *part) {
    struct rank r = {.closed = false};
    CHECK_EQ(weft_team_close(part->team, &(weft_op_t){.done = on_closed, .arg = &r}),
             WEFT_IN_PROGRESS);
    UNTIL(c, r.closed);
}

/* Rank 4 stays outside; the others go by parity, in descending order. */
TEST(a_split_makes_teams_by_colour_in_the_order_of_keys) {
    for (unsigned i = 0; i < 3; i++) {
        struct crew c;
        struct part part[5];
        crew_up(&c, 5, ways[i][0], ways[i][1], ways[i][2]);
        for (uint32_t r = 0; r < 5; r++)
            CHECK_EQ(split(&c.rank[r], r == 4 ? WEFT_NO_COLOUR : r % 2, 10 - r, 0, &part[r]),
                     WEFT_OK);
        for (uint32_t r = 0; r < 5; r++) CHECK_EQ(part[r].calls, 0);
        CHECK_EQ(weft_barrier(c.rank[0].team, NULL), WEFT_ERR_BUSY);
        UNTIL(&c, all_split(part, 5));
        for (uint32_t r = 0; r < 5; r++) CHECK_EQ(part[r].status, WEFT_OK);
        CHECK(part[4].team == NULL);
        for (uint32_t r = 0; r < 4; r++) {
            CHECK_EQ(weft_team_size(part[r].team), 2);
            CHECK_EQ(weft_team_rank(part[r].team), r < 2);
            in[r] = 1 << r;
            expect_outcome(&c.rank[r]);
        }
        for (uint32_t r = 0; r < 4; r++)
            posted(&c.rank[r], weft_allreduce(part[r].team, &in[r], &out[r], 1, WEFT_INT32,
                                              WEFT_SUM, OP_OF(&c.rank[r])));
        for (uint32_t r = 0; r < 4; r++) {
            UNTIL(&c, c.rank[r].outcome_calls);
            CHECK_EQ(out[r], r % 2 ? 10 : 5);
        }
        EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
        for (uint32_t r = 0; r < 5; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        for (uint32_t r = 0; r < 4; r++) close_part(&c, &part[r]);
        crew_down(&c);
    }
}

static void describe_part(weft_team_t *team, weft_status_t status, void *arg) {
    weft_status_describe(status, reason, sizeof reason);
    on_part(team, status, arg);
}

/* Its parent fails while it goes on, and the thread fails at something else before the callback. */
TEST(on_ready_of_a_split_without_a_team_describes_its_own_failure) {
    struct crew c;
    struct part part[2] = {{.status = WEFT_IN_PROGRESS}, {.status = WEFT_IN_PROGRESS}};
    crew_up(&c, 2, "self,shm", NULL, NULL);
    for (uint32_t r = 0; r < 2; r++)
        CHECK_EQ(weft_team_split(c.rank[r].team, r ? WEFT_NO_COLOUR : 0, 0,
                                 &(weft_team_params_t){.on_ready = r ? on_part : describe_part,
                                                       .arg = &part[r]}),
                 WEFT_OK);
    CHECK_EQ(weft_team_close(c.rank[1].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[1]}),
             WEFT_IN_PROGRESS);
    UNTIL(&c, weft__fail(WEFT_ERR_PEER_FAILED, "an earlier failure") && part[0].calls);
    CHECK_EQ(part[0].status, WEFT_ERR_PEER_FAILED);
    CHECK(!part[0].team && strstr(reason, "splitting a team"));
    CHECK(strstr(reason, "because of rank 1") && !strstr(reason, "an earlier failure"));
    UNTIL(&c, c.rank[1].closed && part[1].calls);
    c.rank[1].team = NULL;
    crew_down(&c);
}

/* Without a segment members that have all records already wait for the one that closed until their
 * deadline. */
static void split_and_close_the_parent(const char *slot) {
    for (int turns = 0; turns < 12; turns++) {
        struct crew c;
        struct part part[3];
        crew_up(&c, 3, "self,shm", "coll.slot", slot);
        for (uint32_t r = 0; r < 3; r++) CHECK_EQ(split(&c.rank[r], 0, 0, 400, &part[r]), WEFT_OK);
        for (int i = 0; i < turns; i++) crew_turn(&c);
        for (uint32_t r = 0; r < 3; r++) c.rank[r].closed = false;
        CHECK_EQ(
            weft_team_close(c.rank[0].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[0]}),
            WEFT_IN_PROGRESS);
        UNTIL(&c, c.rank[0].closed && part[0].calls);
        c.rank[0].team = NULL;
        if (part[0].team) close_part(&c, &part[0]);
        UNTIL(&c, all_split(part, 3));
        for (uint32_t r = 0; r < 3; r++) {
            CHECK_EQ(part[r].calls, 1);
            CHECK(part[r].status != WEFT_IN_PROGRESS);
        }
        for (uint32_t r = 1; r < 3; r++)
            if (part[r].team) close_part(&c, &part[r]);
        crew_down(&c);
    }
}

TEST(a_split_ends_at_every_member_though_one_closes_the_parent) {
    split_and_close_the_parent("0");
    split_and_close_the_parent("8192");
}

/* Through the segment the others learn of it in the words of all, long before their deadline. */
TEST(a_split_of_a_segment_ends_at_once_though_a_member_closes_the_new_team_early) {
    struct crew c;
    struct part part[4];
    weft_team_t *early = NULL;
    crew_up(&c, 4, "self,shm", "coll.slot", "8192");
    for (uint32_t r = 0; r < 4; r++)
        CHECK_EQ(split(&c.rank[r], r == 3, 0, 60000, &part[r]), WEFT_OK);
    struct team_registry *registry;
    CHECK_EQ(weft__team_registry(c.rank[1].worker, &registry), WEFT_OK);
    while (!early) {
        crew_turn(&c);
        list_for_each(at, &registry->teams) {
            weft_team_t *team = list_of(at, weft_team_t, of_registry);
            if (team != c.rank[1].team) early = team;
        }
    }
    CHECK_EQ(part[1].calls, 0);
    struct rank closing = {.closed = false};
    CHECK_EQ(weft_team_close(early, &(weft_op_t){.done = on_closed, .arg = &closing}),
             WEFT_IN_PROGRESS);
    UNTIL(&c, all_split(part, 4) && closing.closed);
    CHECK_EQ(part[0].status, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(part[1].status, WEFT_ERR_CLOSED);
    CHECK_EQ(part[2].status, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(part[3].status, WEFT_OK);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < 4; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    close_part(&c, &part[0]);
    close_part(&c, &part[2]);
    close_part(&c, &part[3]);
    crew_down(&c);
}

/* ---- polled callbacks ------------------------------------------------------------------------ */

/* The first member is driven by the test, the second by a thread, whose callbacks are polled. */
static struct crew held;
static atomic_int n_made, n_closed, made_first, n_splitting, n_closing;

static void on_held_made(weft_team_t *team, weft_status_t status, void *arg) {
    n_made++;
    if (team) weft_team_close(team, NULL);
}
static void on_held_closed(weft_status_t status, void *arg) {
    made_first = n_made;
    n_closed++;
}
static void split_held(void *arg) {
    weft_team_params_t params = {.on_ready = on_held_made};
    CHECK_EQ(weft_team_split(held.rank[1].team, 0, 0, &params), WEFT_OK);
    n_splitting++;
}
static void close_held(void *arg) {
    CHECK_EQ(weft_team_close(held.rank[1].team, &(weft_op_t){.done = on_held_closed}),
             WEFT_IN_PROGRESS);
    n_closing++;
}

static void turn_for(double seconds) {
    double end = test_now() + seconds;
    while (test_now() < end) test_idle(weft_worker_progress(held.rank[0].worker, 0) > 0);
}

/* What a split has gathered is held, and the parent with it. */
TEST(a_parent_that_is_closed_stays_until_its_split_is_notified) {
    weft_thread_params_t polled = {.callbacks = WEFT_CALLBACKS_POLLED};
    weft_worker_params_t params = {.transports = "self,shm", .thread_mode = WEFT_THREAD_MULTIPLE};
    struct part first;
    n_made = n_closed = made_first = n_splitting = n_closing = 0;
    crew_workers(&held, 2, "self,shm", NULL, 0);
    weft_worker_destroy(held.rank[1].worker);
    CHECK_EQ(weft_worker_create(held.context, &params, &held.rank[1].worker), WEFT_OK);
    crew_teams(&held);
    weft_worker_t *second = held.rank[1].worker;
    CHECK_EQ(weft_worker_start_thread(second, &polled), WEFT_OK);
    double end = test_now() + test_timeout(60);
    /* The second begins, so that what it gathers has not come within the call. */
    CHECK_EQ(weft_worker_post(second, split_held, NULL), WEFT_OK);
    while (!n_splitting && test_now() < end) turn_for(0.001);
    CHECK_EQ(split(&held.rank[0], 0, 0, 1000, &first), WEFT_OK);
    turn_for(0.2);
    CHECK_EQ(weft_worker_post(second, close_held, NULL), WEFT_OK);
    while (!n_closing && test_now() < end) turn_for(0.001);
    turn_for(0.2);
    while (!(n_closed && n_made && first.calls) && test_now() < end) {
        weft_worker_progress(second, 0);
        turn_for(0.001);
    }
    CHECK_EQ(n_closed, 1);
    CHECK_EQ(n_made, 1);
    CHECK_EQ(first.calls, 1);
    CHECK(first.status < 0);
    if (first.team) CHECK_EQ(weft_team_close(first.team, NULL), WEFT_IN_PROGRESS);
    CHECK_EQ(made_first, 1);
    CHECK_EQ(weft_worker_stop_thread(second), WEFT_OK);
    held.rank[1].team = NULL;
    crew_down(&held);
}

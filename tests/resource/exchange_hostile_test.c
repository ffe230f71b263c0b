/* The exchange of a team over endpoints: members begin it at any time, and another peer of the
 * worker sends records of its own. */
#include "shared.h"
#include <collectives/wire.h>
#include <endpoints/messages/am.h>
#include <weft/collective.h>

enum { EXCHANGE_ID = AM_ID_RESERVED + 48 };

static struct sharing s;
static weft_ep_t *set[2][2];
static weft_team_t *team[2];
static weft_resource_t *resource[2];
static struct tally ready[2];

static void note_ready(weft_team_t *of, weft_status_t status, void *arg) {
    tally(status, arg);
}

static void teams_up(void) {
    memset(set, 0, sizeof set);
    memset(ready, 0, sizeof ready);
    share_up(&s, "self,tcp");
    connect_libraries(&s, set);
    for (int i = 0; i < 2; i++) {
        weft_team_params_t params = {
            .on_ready = note_ready, .arg = &ready[i], .associated = 1, .deadline_ms = 5000};
        weft_resource_value_t value = {WEFT_RES_ENDPOINT_SET, set[i], sizeof set[i]};
        CHECK_EQ(weft_team_create(s.library[i], &params, &team[i]), 0);
        resource[i] = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
    }
}

static void begin(int i) {
    CHECK_EQ(associate(s.context, WEFT_OBJECT_TEAM, resource[i], team[i]), 0);
}

static void turns(int n) {
    for (int i = 0; i < n; i++) two_turn(&s.two);
}

static void expect_a_sum(void) {
    double in[2] = {1, 2}, out[2] = {0, 0};
    struct tally done = {0};
    UNTIL(&s.two, ready[0].calls && ready[1].calls);
    for (int i = 0; i < 2; i++) CHECK_EQ(ready[i].status, 0);
    for (int i = 0; i < 2; i++)
        CHECK(weft_allreduce(team[i], &in[i], &out[i], 1, WEFT_FLOAT64, WEFT_SUM, OP(&done)) >= 0);
    UNTIL(&s.two, out[0] == 3 && out[1] == 3);
    turns(20);
}

static void leave(void) {
    struct tally done = {0};
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_disassociate_resources(resource[i], team[i], OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls == 2);
    memset(ready, 0, sizeof ready);
}

static void teams_down(void) {
    leave();
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_team_close(team[i], NULL), 0);
        CHECK_EQ(weft_resource_release(resource[i]), 0);
    }
    share_down(&s);
}

/* The first member's record is there before the second has begun any exchange. */
TEST(a_member_may_begin_long_after_another) {
    for (int first = 0; first < 2; first++) {
        teams_up();
        begin(first);
        turns(200);
        begin(!first);
        expect_a_sum();
        teams_down();
    }
}

/* ---- another peer of the first member's worker ----------------------------------------------- */

static weft_context_t *context;
static weft_worker_t *other;
static weft_ep_t *to_first;

static void other_up(void) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "self,tcp"}, &other),
             0);
    CHECK_EQ(weft_worker_address(s.two.a, address, &len), 0);
    CHECK_EQ(weft_connect_address(other, address, len, NULL, &to_first), 0);
}

static void send_records(uint32_t rank, uint32_t number, int n) {
    static uint8_t record[MEMBER_RECORD_BYTES];
    uint32_t head[2] = {rank, number};
    weft_iov_t iov = {record, sizeof record};
    uint64_t before =
        weft_worker_count(s.two.a, "am.received") + weft_worker_count(s.two.a, "am.dropped");
    for (int i = 0; i < n; i++) {
        CHECK(weft__am_send(to_first, &(struct am_send_args){EXCHANGE_ID, head, sizeof head, &iov,
                                                             1, NULL}) >= 0);
        head[1]++;
    }
    double end = test_now() + test_timeout(60);
    while (weft_worker_count(s.two.a, "am.received") + weft_worker_count(s.two.a, "am.dropped") <
           before + (uint64_t)n) {
        CHECK(test_now() < end);
        weft_worker_progress(other, 0);
        two_turn(&s.two);
    }
}

static void other_down(void) {
    weft_worker_destroy(other);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(a_record_in_the_name_of_another_rank_is_ignored) {
    teams_up();
    other_up();
    turns(100); /* the members' endpoints are up */
    begin(0);
    send_records(1, 0, 1);
    begin(1);
    expect_a_sum();
    other_down();
    teams_down();
}

/* Nothing is kept of them, so the first record of the next exchange finds its place. */
TEST(records_of_exchanges_that_never_begin_hinder_none) {
    teams_up();
    other_up();
    for (int i = 0; i < 2; i++) begin(i);
    expect_a_sum();
    send_records(1, 1000, 5000);
    leave();
    begin(1);
    turns(200);
    begin(0);
    expect_a_sum();
    other_down();
    teams_down();
}

/* Its record waits for the other's side of the connection, and the team is gone before. */
TEST(a_record_is_sent_when_its_team_is_gone) {
    struct tally done = {0};
    teams_up();
    begin(0);
    CHECK_EQ(weft_disassociate_resources(resource[0], team[0], OP(&done)), WEFT_IN_PROGRESS);
    double end = test_now() + test_timeout(60);
    while (!done.calls) {
        CHECK(test_now() < end);
        weft_worker_progress(s.two.a, 0);
    }
    CHECK_EQ(weft_team_close(team[0], NULL), 0);
    turns(200);
    CHECK_EQ(weft_team_close(team[1], NULL), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(resource[i]), 0);
    share_down(&s);
}

/* ---- the end of the worker ------------------------------------------------------------------- */

/* Their teams are freed later than what the worker keeps for its teams. */
TEST(teams_whose_exchange_waits_end_with_the_worker) {
    weft_team_t *more;
    struct tally late = {0};
    teams_up();
    weft_resource_value_t value = {WEFT_RES_ENDPOINT_SET, set[0], sizeof set[0]};
    weft_resource_t *again = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
    weft_team_params_t params = {.on_ready = note_ready, .arg = &late, .associated = 1};
    CHECK_EQ(weft_team_create(s.library[0], &params, &more), 0);
    begin(0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_TEAM, again, more), 0);
    turns(20);
    CHECK_EQ(ready[0].calls + late.calls, 0);
    CHECK_EQ(weft_worker_close(s.two.a, &(weft_op_t){.done = two_gone, .arg = &s.two.a}),
             WEFT_IN_PROGRESS);
    UNTIL(&s.two, !s.two.a);
    CHECK_EQ(ready[0].calls, 1);
    CHECK_EQ(late.calls, 1);
    CHECK_EQ(weft_team_close(team[1], NULL), 0);
    CHECK_EQ(weft_resource_release(again), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(resource[i]), 0);
    share_down(&s);
}

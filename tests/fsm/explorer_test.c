#include "tests/harness.h"

#include "example_model.h"

static struct example_model e;
static struct explore_result result;

/* A copy of the example's table in which one cell is another. */
static const struct fsm_machine *with_cell(unsigned event, unsigned state, struct fsm_cell cell) {
    static struct fsm_cell cells[EXAMPLE_N_EVENTS * EXAMPLE_N_STATES];
    static struct fsm_machine draft;
    draft = weft__example_machine;
    memcpy(cells, draft.cells, sizeof cells);
    cells[event * EXAMPLE_N_STATES + state] = cell;
    draft.cells = cells;
    return &draft;
}

static uint8_t action(const char *name) {
    for (uint8_t a = 0; a < weft__example_machine.n_actions; a++)
        if (strcmp(weft__example_machine.action_name[a], name) == 0) return a;
    abort();
}

/* Explores it; prints what was unexpected. */
static bool holds(const struct explore_model *model) {
    bool ok = explore(model, &result);
    if (!ok) explore_print(&result, stdout);
    return ok;
}

static bool is_refuted(const struct fsm_machine *draft, const char *why, const char *trace) {
    example_model(&e, draft);
    bool ok = explore(&e.model, &result);
    if (ok || strcmp(result.why, why) != 0 || strcmp(result.trace, trace) != 0)
        explore_print(&result, stdout);
    return !ok && strcmp(result.why, why) == 0 && strcmp(result.trace, trace) == 0;
}

TEST(the_example_holds_in_a_channel_that_loses_repeats_and_reorders) {
    example_model(&e, &weft__example_machine);
    CHECK(holds(&e.model));
    CHECK_EQ(result.states, 1115);
}

/* With honest and with hostile peers; only these say what may not be said. */
TEST(every_cell_of_the_example_is_reached_or_has_a_reason) {
    weft__fsm_coverage_reset();
    example_model(&e, &weft__example_machine);
    CHECK(holds(&e.model));
    CHECK_EQ(explore_unreached(&weft__example_machine, stdout), 2);
    e.model.hostile = 2, e.model.agreed = NULL;
    CHECK(holds(&e.model));
    CHECK_EQ(explore_unreached(&weft__example_machine, stdout), 0);
}

TEST(equal_peers_halve_the_states) {
    example_model(&e, &weft__example_machine);
    CHECK(holds(&e.model));
    unsigned all = result.states;
    e.model.equal_peers = true;
    CHECK(holds(&e.model));
    CHECK(result.states > all / 2 && result.states < all * 6 / 10);
}

TEST(the_example_holds_in_a_queue_that_loses_and_repeats) {
    example_model(&e, &weft__example_machine);
    example_queues(&e);
    CHECK(holds(&e.model));
    CHECK_EQ(result.truncated, 0);
}

/* Each says all to both others, of whom one may not have asked. */
static bool recv_what_is_awaited(struct fsm *to, const struct explore_message *msg,
                                 unsigned *event_p) {
    return fsm_verb(to, *event_p) != FSM_VIOL;
}

/* True: it holds. */
static bool explores_three(const struct fsm_machine *machine, bool equal) {
    static const struct explore_local users[] = {
        {.event = EXAMPLE_EV_OPEN, .budget = 1, .states = 1 << EXAMPLE_IDLE},
        {.event = EXAMPLE_EV_CLOSE, .budget = 1, .states = 1 << EXAMPLE_READY}};
    example_model(&e, machine);
    e.role.locals = users, e.role.n_locals = 2;
    e.model.role[2] = &e.role;
    e.model.n_peers = 3;
    e.model.recv_msg = recv_what_is_awaited;
    e.model.agreed = NULL;
    e.model.equal_peers = equal;
    e.model.channel = (struct explore_channel){.capacity = 1};
    return explore(&e.model, &result);
}

TEST(three_equal_peers_are_explored_too) {
    unsigned states[2];
    for (int equal = 0; equal < 2; equal++) {
        CHECK(explores_three(&weft__example_machine, equal));
        explore_print(&result, stdout);
        states[equal] = result.states;
    }
    CHECK(states[1] < states[0] / 4 && states[1] >= states[0] / 6);
}

/* Each cell is a defect once: it is found if it is reached. */
TEST(three_equal_peers_reach_what_three_different_ones_do) {
    unsigned reached = 0, unreached = 0;
    for (unsigned event = 0; event < EXAMPLE_N_EVENTS; event++)
        for (unsigned state = 0; state < EXAMPLE_N_STATES; state++) {
            const struct fsm_machine *draft =
                with_cell(event, state, (struct fsm_cell){FSM_BUG, 0, 0});
            bool holds = explores_three(draft, false);
            unsigned depth = result.depth;
            CHECK_EQ(explores_three(draft, true), holds);
            CHECK_EQ(result.depth, depth);
            unreached += holds;
            reached += !holds;
        }
    printf("  %u cells were reached, %u were not\n", reached, unreached);
    CHECK(reached > 10 && unreached > 10);
}

TEST(a_hostile_peer_breaks_no_invariant) {
    example_model(&e, &weft__example_machine);
    e.model.hostile = 2;
    e.model.agreed = NULL;
    CHECK(holds(&e.model));
}

TEST(draft_one_sends_gone_to_one_who_dials) {
    const struct fsm_machine *draft =
        with_cell(EXAMPLE_EV_GONE, EXAMPLE_DIAL, (struct fsm_cell){FSM_BUG, 0, 0});
    CHECK(is_refuted(draft, "example: GONE in DIAL is a bug that is reached",
                     "A:OPEN B:CLOSE B:HELLO A:GONE"));
}

TEST(draft_two_forgets_to_notify_up) {
    struct fsm_cell cell = {FSM_DO, EXAMPLE_READY, action("welcome")};
    const struct fsm_machine *draft = with_cell(EXAMPLE_EV_HELLO, EXAMPLE_DIAL, cell);
    CHECK(
        is_refuted(draft, "broken: opened and READY implies notified up", "A:OPEN B:OPEN A:HELLO"));
}

TEST(an_honest_peer_may_not_be_called_a_violator) {
    const struct fsm_machine *draft =
        with_cell(EXAMPLE_EV_HELLO, EXAMPLE_READY, (struct fsm_cell){FSM_VIOL, 0, 0});
    CHECK(is_refuted(draft, "example: HELLO in READY is a violation among honest peers",
                     "A:OPEN B:HELLO B:HELLO"));
}

TEST(a_close_that_no_one_answers_is_stuck) {
    struct fsm_machine *draft = (struct fsm_machine *)(uintptr_t)with_cell(
        EXAMPLE_EV_HELLO, EXAMPLE_CLOSED, (struct fsm_cell){FSM_SKIP, 0, 0});
    example_model(&e, draft);
    /* Without LOST and time, nothing helps the dialer. */
    static const struct explore_local users[] = {
        {.event = EXAMPLE_EV_OPEN, .budget = 1, .states = 1 << EXAMPLE_IDLE},
        {.event = EXAMPLE_EV_CLOSE, .budget = 1, .states = 1 << EXAMPLE_IDLE}};
    e.role.locals = users, e.role.n_locals = 2;
    e.model.invariant = NULL;
    CHECK(!explore(&e.model, &result));
    CHECK(strcmp(result.why, "no agreed state can be reached any more") == 0);
    CHECK(strcmp(result.trace, "A:OPEN B:CLOSE") == 0);
}

TEST(a_dead_cell_is_asserted) {
    static const struct fsm_dead dead[] = {
        {EXAMPLE_EV_FIN, EXAMPLE_IDLE, "only what is open is closed"}};
    struct fsm_machine claims = weft__example_machine;
    claims.dead = dead, claims.n_dead = 1;
    CHECK(is_refuted(&claims, "example: FIN came to a dead cell (\"only what is open is closed\")",
                     "A:OPEN A:CLOSE B:FIN"));
}

static const struct fsm_dead held_close[] = {{EXAMPLE_EV_CLOSE, EXAMPLE_READY, "none comes there"}};

/* A model of `machine`, in which CLOSE comes in DIAL only, and waits there. */
static void close_is_held(struct fsm_machine *machine) {
    static const struct explore_local users[] = {
        {.event = EXAMPLE_EV_OPEN, .budget = 1, .states = 1 << EXAMPLE_IDLE},
        {.event = EXAMPLE_EV_CLOSE, .budget = 1, .states = 1 << EXAMPLE_DIAL}};
    *machine = *with_cell(EXAMPLE_EV_CLOSE, EXAMPLE_DIAL, (struct fsm_cell){FSM_HOLD, 0, 0});
    example_model(&e, machine);
    e.role.locals = users, e.role.n_locals = 2;
    e.model.invariant = NULL, e.model.agreed = NULL;
}

/* What comes of CLOSE later is a step as any other. */
TEST(a_dead_cell_is_asserted_of_held_events_too) {
    struct fsm_machine claims;
    close_is_held(&claims);
    CHECK(holds(&e.model));
    claims.dead = held_close, claims.n_dead = 1;
    CHECK(!explore(&e.model, &result));
    CHECK(strcmp(result.why, "example: CLOSE came to a dead cell (\"none comes there\")") == 0);
    CHECK(strcmp(result.trace, "A:OPEN A:CLOSE B:OPEN A:HELLO") == 0);
}

/* The move that comes to it says more than the channel has room for: it is not followed. */
TEST(a_dead_cell_is_asserted_where_the_channel_is_full) {
    struct fsm_machine claims;
    close_is_held(&claims);
    e.model.channel = (struct explore_channel){.soup = true, .room = 2};
    CHECK(holds(&e.model));
    CHECK(result.truncated > 0);
    claims.dead = held_close, claims.n_dead = 1;
    CHECK(!explore(&e.model, &result));
    CHECK(strcmp(result.why, "example: CLOSE came to a dead cell (\"none comes there\")") == 0);
}

/* ---- what is not followed is not called explored */

static bool lies_without_end(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    return true;
}

TEST(a_liar_that_has_more_to_send_than_is_followed_is_reported) {
    example_model(&e, &weft__example_machine);
    e.model.hostile = 2, e.model.agreed = NULL, e.model.lie = lies_without_end;
    CHECK(!explore(&e.model, &result));
    CHECK(!result.complete);
}

static bool sends_two_bytes(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    msg->payload[1] = (uint8_t)(1 + from->state);
    return true;
}

TEST(a_payload_that_is_longer_than_what_is_kept_is_reported) {
    example_model(&e, &weft__example_machine);
    example_queues(&e);
    e.model.send_msg = sends_two_bytes, e.model.payload = 2;
    CHECK(holds(&e.model));
    e.model.payload = 1;
    CHECK(!explore(&e.model, &result));
    CHECK(!result.complete);
}

/* ---- queues: first in first out, with budgets */

TEST(a_queue_without_faults_keeps_order) {
    example_model(&e, &weft__example_machine);
    static const struct explore_local users[] = {
        {.event = EXAMPLE_EV_OPEN, .budget = 1, .states = 1 << EXAMPLE_IDLE},
        {.event = EXAMPLE_EV_CLOSE, .budget = 1}};
    e.role.locals = users, e.role.n_locals = 2;
    e.model.channel = (struct explore_channel){.capacity = 4};
    CHECK(holds(&e.model));
    CHECK_EQ(result.truncated, 0);
}

TEST(a_lost_message_without_a_timer_is_found) {
    example_model(&e, &weft__example_machine);
    static const struct explore_local users[] = {
        {.event = EXAMPLE_EV_OPEN, .budget = 1, .states = 1 << EXAMPLE_IDLE}};
    e.role.locals = users, e.role.n_locals = 1;
    e.model.channel = (struct explore_channel){.losses = 1};
    e.model.invariant = NULL;
    CHECK(!explore(&e.model, &result));
    CHECK(strcmp(result.trace, "A:OPEN B:HELLO A:WELCOME(lost)") == 0);
}

TEST(what_was_not_finished_is_not_called_good) {
    example_model(&e, &weft__example_machine);
    e.model.max_states = 100;
    CHECK(!explore(&e.model, &result));
    CHECK(!result.complete);
}

/* Of all tables that differ from the example's in one cell, most are refuted: the invariants
 * mean something. */
TEST(most_single_cell_defects_are_refuted) {
    unsigned mutants = 0, refuted = 0;
    for (unsigned event = 0; event < EXAMPLE_N_EVENTS; event++)
        for (unsigned state = 0; state < EXAMPLE_N_STATES; state++) {
            const struct fsm_cell *now =
                &weft__example_machine.cells[event * EXAMPLE_N_STATES + state];
            if (now->verb != FSM_DO) continue;
            example_model(&e, with_cell(event, state, (struct fsm_cell){FSM_SKIP, 0, 0}));
            mutants++;
            bool found = !explore(&e.model, &result);
            /* In the soup nothing needs to be said again; in a queue that loses it does. */
            example_queues(&e);
            found = found || !explore(&e.model, &result);
            refuted += found;
        }
    printf("  %u of %u lost transitions were found\n", refuted, mutants);
    CHECK(refuted >= 16); /* the others spoil what only a user would miss: his CLOSE, his LOST */
}

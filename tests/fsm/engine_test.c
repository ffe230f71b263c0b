#include "tests/harness.h"

#include <fsm/explore/print.h>

#include "machine_example.h"

/* A machine with HOLD: a door that finishes its move before it obeys. */
#define DOOR_STATES(S)           S(SHUT) S(MOVING) S(OPEN) S(LOCKED)
#define DOOR_EVENTS(LOCAL, PEER) LOCAL(MOVED) PEER(LOCK) PEER(CALL) LOCAL(BREAK)
#define DOOR_EFFECTS(F)          F(MOTOR) F(DOORBELL)
#define DOOR_ACTIONS(A)          A(move) A(ring)
#define DOOR_TABLE(COLS, ROW)                                 \
    COLS(SHUT, MOVING, OPEN, LOCKED)                          \
    ROW(MOVED, BUG, DO(ring, OPEN), BUG, SKIP)                \
    ROW(LOCK, DO(none, LOCKED), HOLD, DO(none, LOCKED), VIOL) \
    ROW(CALL, DO(move, MOVING), HOLD, DO(ring, OPEN), SKIP)   \
    ROW(BREAK, BUG, BUG, BUG, BUG)
#define DOOR_DEAD(D) \
    D(BREAK, (SHUT, OPEN), "nothing breaks at rest") D(BREAK, LOCKED, "nor behind a lock")
#define DOOR_SETS(P) P(is_open, OPEN) P(is_at_rest, SHUT, OPEN, LOCKED)

#define FSM_NAME   door
#define FSM_PREFIX DOOR
#define FSM_SETS   DOOR_SETS
#include <fsm/declare.h>

static void door_invariants(const struct fsm *m);
#define FSM_NAME       door
#define FSM_PREFIX     DOOR
#define FSM_INVARIANTS door_invariants
#include <fsm/define.h>

static unsigned checked;
static char log_of[200];
static enum fsm_verb failed;
static struct fsm door;
static struct fsm_trace trace;

static void door_invariants(const struct fsm *m) {
    checked += m == &door;
}
static void door_act_move(struct fsm *m) {
    fsm_effect(m, DOOR_FX_MOTOR);
}
static void door_act_ring(struct fsm *m) {
    fsm_effect(m, DOOR_FX_DOORBELL);
}

static void on_effect(struct fsm *m, unsigned effect) {
    strcat(log_of, m->port->machine->effect_name[effect]);
    strcat(log_of, " in ");
    strcat(log_of, fsm_state_name(m));
    strcat(log_of, "; ");
}
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    failed = why;
}
static const struct fsm_port port = {&weft__door_machine, on_effect, on_fail};

static void reset(void) {
    fsm_init(&door, &port, DOOR_SHUT, 7);
    log_of[0] = '\0', failed = FSM_NO_CELL, checked = 0;
    trace.count = 0, trace.now = 1500000000;
    fsm_trace_use(&trace);
}

TEST(the_state_is_set_before_the_action_runs) {
    reset();
    weft__fsm_step(&door, DOOR_EV_CALL);
    CHECK_EQ(door.state, DOOR_MOVING);
    CHECK(strcmp(log_of, "MOTOR in MOVING; ") == 0);
#ifndef NDEBUG
    CHECK_EQ(checked, 1);
#endif
}

TEST(a_predicate_holds_in_each_state_of_its_set_and_in_no_other) {
    static const bool open[] = {false, false, true, false}, at_rest[] = {true, false, true, true};
    reset();
    for (uint8_t state = 0; state < DOOR_N_STATES; state++) {
        door.state = state;
        CHECK_EQ(door_is_open(&door), open[state]);
        CHECK_EQ(door_is_at_rest(&door), at_rest[state]);
    }
}

TEST(one_reason_covers_the_cells_of_a_set) {
    const struct fsm_machine *m = &weft__door_machine;
    CHECK_EQ(m->n_dead, 3);
    CHECK_EQ(m->dead[0].state, DOOR_SHUT);
    CHECK_EQ(m->dead[1].state, DOOR_OPEN);
    CHECK(m->dead[0].why == m->dead[1].why);
    CHECK_EQ(m->dead[2].state, DOOR_LOCKED);
}

TEST(held_events_come_back_after_the_next_transition) {
    reset();
    weft__fsm_step(&door, DOOR_EV_CALL);
    weft__fsm_step(&door, DOOR_EV_LOCK);
    weft__fsm_step(&door, DOOR_EV_LOCK);
    CHECK_EQ(door.state, DOOR_MOVING);
    weft__fsm_step(&door, DOOR_EV_MOVED);
    CHECK_EQ(door.state, DOOR_LOCKED);
    CHECK_EQ(door.held, 0);
    CHECK(strcmp(log_of, "MOTOR in MOVING; DOORBELL in OPEN; ") == 0);
}

TEST(two_held_events_come_back_in_the_order_of_the_table) {
    reset();
    weft__fsm_step(&door, DOOR_EV_CALL);
    weft__fsm_step(&door, DOOR_EV_CALL);
    weft__fsm_step(&door, DOOR_EV_LOCK);
    weft__fsm_step(&door, DOOR_EV_MOVED);
    /* LOCK stands above CALL, so that the call finds the door locked. */
    CHECK_EQ(door.state, DOOR_LOCKED);
    CHECK_EQ(door.held, 0);
    CHECK(strcmp(log_of, "MOTOR in MOVING; DOORBELL in OPEN; ") == 0);
}

TEST(a_violation_and_a_bug_are_reported_to_the_owner_and_move_nothing) {
    reset();
    weft__fsm_step(&door, DOOR_EV_LOCK);
    weft__fsm_step(&door, DOOR_EV_LOCK);
    CHECK_EQ(failed, FSM_VIOL);
    CHECK_EQ(door.state, DOOR_LOCKED);
    weft__fsm_step(&door, DOOR_EV_BREAK);
    CHECK_EQ(failed, FSM_BUG);
    CHECK_EQ(door.state, DOOR_LOCKED);
    CHECK(log_of[0] == '\0');
}

TEST(the_trace_has_every_step) {
    char text[1000];
    reset();
    weft__fsm_step(&door, DOOR_EV_CALL);
    weft__fsm_step(&door, DOOR_EV_LOCK);
    trace.now += 250;
    weft__fsm_step(&door, DOOR_EV_MOVED);
    weft__fsm_step(&door, DOOR_EV_CALL);
    weft__fsm_step(&door, DOOR_EV_LOCK);
    unsigned long len = weft__fsm_trace_print(&trace, 0, 0, text, sizeof text);
    CHECK_EQ(len, strlen(text));
    CHECK(strcmp(text, "1.500000000 door#7 CALL: SHUT -> MOVING\n"
                       "1.500000000 door#7 LOCK: MOVING (held)\n"
                       "1.500000250 door#7 MOVED: MOVING -> OPEN\n"
                       "1.500000250 door#7 LOCK: OPEN -> LOCKED\n"
                       "1.500000250 door#7 CALL: LOCKED (skipped)\n"
                       "1.500000250 door#7 LOCK: LOCKED (violation)\n") == 0);
    weft__fsm_trace_print(&trace, 1, 7, text, sizeof text);
    CHECK(strcmp(text, "1.500000250 door#7 LOCK: LOCKED (violation)\n") == 0);
    CHECK_EQ(weft__fsm_trace_print(&trace, 0, 8, text, sizeof text), 0);
    CHECK_EQ(weft__fsm_trace_print(&trace, 0, 0, text, 10), len);
    CHECK_EQ(strlen(text), 9);
}

/* A thread that reads the trace of a worker of another thread may see a step that is half written:
 * nothing yet, or the machine of one step with the rest of another. */
TEST(a_step_that_is_half_written_is_left_out_of_the_trace) {
    char text[1000];
    reset();
    weft__fsm_step(&door, DOOR_EV_CALL);
    trace.step[1] = (struct fsm_trace_step){0};
    trace.step[2] = trace.step[3] = trace.step[4] = trace.step[5] = trace.step[0];
    trace.step[2].event = DOOR_N_EVENTS;
    trace.step[3].from = DOOR_N_STATES;
    trace.step[4].to = DOOR_N_STATES + 40;
    trace.step[5].verb = 200;
    trace.count = 6;
    unsigned long len = weft__fsm_trace_print(&trace, 0, 0, text, sizeof text);
    char *end = strchr(text, '\n');
    CHECK(end && end[1] == 0);
    CHECK_EQ(len, strlen(text));
}

TEST(the_trace_keeps_the_last_steps) {
    static char text[FSM_TRACE_STEPS * 64];
    reset();
    weft__fsm_step(&door, DOOR_EV_LOCK);
    for (unsigned i = 0; i < 3 * FSM_TRACE_STEPS; i++) weft__fsm_step(&door, DOOR_EV_CALL);
    weft__fsm_trace_print(&trace, 0, 0, text, sizeof text);
    unsigned lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    CHECK_EQ(lines, FSM_TRACE_STEPS);
    CHECK(!strstr(text, "->"));
}

TEST(cells_are_counted_while_coverage_is_on) {
    reset();
    weft__fsm_coverage_reset();
    weft__fsm_step(&door, DOOR_EV_CALL);
    CHECK_EQ(weft__door_machine.hits[DOOR_EV_CALL * DOOR_N_STATES + DOOR_SHUT], 0);
    bool before = weft__fsm_coverage(true);
    weft__fsm_step(&door, DOOR_EV_LOCK);
    weft__fsm_step(&door, DOOR_EV_MOVED);
    weft__fsm_coverage(before);
    CHECK_EQ(weft__door_machine.hits[DOOR_EV_LOCK * DOOR_N_STATES + DOOR_MOVING], 1);
    CHECK_EQ(weft__door_machine.hits[DOOR_EV_LOCK * DOOR_N_STATES + DOOR_OPEN], 1);
    CHECK_EQ(weft__door_machine.hits[DOOR_EV_CALL * DOOR_N_STATES + DOOR_SHUT], 0);
}

TEST(machines_enter_the_register_by_themselves) {
    CHECK(weft__fsm_machine_by_name("door") == &weft__door_machine);
    CHECK(weft__fsm_machine_by_name("example") == &weft__example_machine);
    CHECK(weft__fsm_machine_by_name("no actor") == NULL);
    CHECK_EQ(weft__door_machine.from_peer, 1 << DOOR_EV_LOCK | 1 << DOOR_EV_CALL);
}

/* What `print` writes about the door. */
static char *printed(void (*print)(const struct fsm_machine *, FILE *),
                     const struct fsm_machine *m) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    print(m, out);
    fclose(out);
    return text;
}

TEST(the_table_is_printed_as_it_was_written) {
    char *text = printed(weft__fsm_print_text, &weft__door_machine);
    CHECK(strstr(text, "        SHUT            MOVING        OPEN          LOCKED\n"
                       "MOVED   bug             ring -> OPEN  bug           -\n"
                       "LOCK*   -> LOCKED       hold          -> LOCKED     violation\n"
                       "CALL*   move -> MOVING  hold          ring -> OPEN  -\n"
                       "BREAK   bug             bug           bug           bug\n"));
    free(text);
}

TEST(the_graph_has_an_edge_for_each_change) {
    char *text = printed(weft__fsm_print_dot, &weft__door_machine);
    CHECK(strstr(text, "    SHUT -> MOVING [label=\"?CALL / move\\l\"];\n"));
    CHECK(strstr(text, "    SHUT -> LOCKED [label=\"?LOCK\\l\"];\n"));
    CHECK(strstr(text, "    LOCKED [peripheries=2];\n"));
    free(text);
}

static unsigned faults;
static void print_faults(const struct fsm_machine *m, FILE *out) {
    faults = weft__fsm_print_faults(m, out);
}

TEST(faults_of_a_table_are_named) {
    char *text = printed(print_faults, &weft__door_machine);
    CHECK_EQ(faults, 3); /* MOVED twice and BREAK in MOVING: BUG cells without a reason */
    CHECK(strstr(text, "door: MOVED in SHUT is BUG without a reason\n"));
    free(text);

    struct fsm_machine broken = weft__example_machine;
    struct fsm_cell cells[EXAMPLE_N_EVENTS * EXAMPLE_N_STATES];
    memcpy(cells, broken.cells, sizeof cells);
    broken.cells = cells;
    cells[0].verb = FSM_NO_CELL;
    cells[EXAMPLE_EV_FIN * EXAMPLE_N_STATES].verb = FSM_BUG;
    for (unsigned i = 0; i < EXAMPLE_N_EVENTS * EXAMPLE_N_STATES; i++)
        if (cells[i].next == EXAMPLE_DRAIN) cells[i].next = EXAMPLE_CLOSED;
    text = printed(print_faults, &broken);
    CHECK_EQ(faults, 4);
    CHECK(strstr(text, "example: no way leads to DIAL\n"));
    CHECK(strstr(text, "example: OPEN in IDLE is no cell\n"));
    CHECK(strstr(text, "example: FIN in IDLE is BUG, and a peer may send anything\n"));
    CHECK(strstr(text, "example: no way leads to DRAIN\n"));
    free(text);
}

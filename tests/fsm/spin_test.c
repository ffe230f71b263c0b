/* spin is an independent witness: it visits as many states of the same tables, and finds the
 * same fault. */
#include "tests/harness.h"

#include "example_model.h"

static struct example_model e;

static const struct explore_local plain_locals[] = {
    {.event = EXAMPLE_EV_OPEN,
     .budget = 1,
     .states = 1 << EXAMPLE_IDLE | 1 << EXAMPLE_READY | 1 << EXAMPLE_CLOSED},
    {.event = EXAMPLE_EV_CLOSE},
    {.event = EXAMPLE_EV_TIMEOUT, .states = 1 << EXAMPLE_DIAL | 1 << EXAMPLE_DRAIN},
    {.event = EXAMPLE_EV_LOST},
};

/* Nothing but what a table can say: spin knows no callbacks. */
static void plain_model(const struct fsm_machine *machine) {
    example_model(&e, machine);
    e.role.locals = plain_locals;
    e.role.n_locals = sizeof plain_locals / sizeof *plain_locals;
    e.model.invariant = NULL;
    e.model.agreed = NULL;
}

static void needs_spin(void) {
    if (system("command -v spin >/dev/null") != 0) SKIP("spin is not installed");
}

/* Runs spin's verifier on the model; false when it could not be made. */
static bool spin(unsigned *states_p, unsigned *errors_p) {
    char folder[] = "/tmp/weft-spin-XXXXXX", path[100], command[1000], line[300];
    unsigned found = 0;
    if (!mkdtemp(folder)) return false;
    snprintf(path, sizeof path, "%s/model.pml", folder);
    FILE *out = fopen(path, "w");
    if (!out || !weft__explore_promela(&e.model, example_invariant, out) || fclose(out) != 0)
        return false;
    snprintf(command, sizeof command,
             "cd %s && spin -a model.pml >spin.log 2>&1 && gcc -w -DSAFETY -DNOREDUCE -o pan pan.c "
             ">gcc.log 2>&1 && "
             "./pan -E -m100000 -w18; cat spin.log gcc.log >&2; rm -rf %s",
             folder, folder);
    FILE *in = popen(command, "r");
    if (!in) return false;
    while (fgets(line, sizeof line, in)) {
        found += strstr(line, "states, stored") && sscanf(line, "%u", states_p) == 1;
        const char *errors = strstr(line, "errors: ");
        found += errors && sscanf(errors, "errors: %u", errors_p) == 1;
    }
    return pclose(in) == 0 && found == 2;
}

TEST(spin_visits_the_same_states_and_finds_no_fault) {
    struct explore_result result;
    unsigned states, errors;
    needs_spin();
    plain_model(&weft__example_machine);
    CHECK(explore(&e.model, &result));
    CHECK(spin(&states, &errors));
    CHECK_EQ(errors, 0);
    CHECK_EQ(states, result.states);
}

TEST(spin_refutes_the_draft_that_forgets_to_notify_up) {
    struct fsm_machine draft = weft__example_machine;
    struct fsm_cell cells[EXAMPLE_N_EVENTS * EXAMPLE_N_STATES];
    unsigned states, errors;
    needs_spin();
    memcpy(cells, draft.cells, sizeof cells);
    /* As it answers when READY: with a welcome, and no word to its user. */
    cells[EXAMPLE_EV_HELLO * EXAMPLE_N_STATES + EXAMPLE_DIAL] =
        cells[EXAMPLE_EV_HELLO * EXAMPLE_N_STATES + EXAMPLE_READY];
    draft.cells = cells;
    plain_model(&draft);
    CHECK(spin(&states, &errors));
    CHECK_EQ(errors, 1);
}

static bool listens(const struct explore_world *w, unsigned peer) {
    return peer == 0;
}

/* What spin would leave out or add is not printed. */
TEST(a_model_of_another_kind_is_refused) {
    struct explore_local at_start[] = {plain_locals[0], plain_locals[2]};
    char text[8];
    FILE *out = fmemopen(text, sizeof text, "w");
    CHECK(out != NULL);
    at_start[1].armed = at_start[1].at_start = true;
    plain_model(&weft__example_machine);
    e.model.listens = listens;
    CHECK(!weft__explore_promela(&e.model, example_invariant, out));
    plain_model(&weft__example_machine);
    e.role.locals = at_start, e.role.n_locals = 2;
    CHECK(!weft__explore_promela(&e.model, example_invariant, out));
    fclose(out);
}

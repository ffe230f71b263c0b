/*
 * What a machine is: a dense table of cells, a state, and one function that steps.
 *
 * A machine `foo` is written in foo.fsm as X-macros (FOO_STATES, FOO_EVENTS, FOO_EFFECTS,
 * FOO_ACTIONS, FOO_TABLE, FOO_DEAD) and made by fsm/define.h, which shows how. Its plain data is a
 * struct that begins with `struct fsm` and holds everything that a transition depends on; the
 * explorer copies and hashes that struct and runs the shipped table and actions.
 *
 * An action changes the plain data and asks for effects (send, notify) through
 * `fsm_effect`: the machine's port carries them out. A product's port does so for real; the
 * explorer's writes them down.
 */
#ifndef WEFT_FSM_FSM_H
#define WEFT_FSM_FSM_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum fsm_verb {
    FSM_NO_CELL, /* never in a table: a zero cell is a mistake */
    FSM_DO,      /* set `next`, then run `action` */
    FSM_SKIP,    /* legal, nothing to do */
    FSM_HOLD,    /* deliver again after the next transition */
    FSM_VIOL,    /* the peer may not send this now */
    FSM_BUG      /* unreachable; for local events only */
};

struct fsm_cell {
    uint8_t verb, next, action;
};

struct fsm;
struct fsm_port;

typedef void (*fsm_action_fn)(struct fsm *m);

/* One kind of machine: the table and the names of everything in it. Made by fsm/define.h;
 * constant. */
struct fsm_machine {
    const char *name;
    uint8_t n_states, n_events, n_actions, n_effects;
    const char *const *state_name, *const *event_name, *const *action_name, *const *effect_name;
    const struct fsm_cell *cells; /* [event * n_states + state] */
    const fsm_action_fn *actions;
    /* asserts; run after each step unless NDEBUG; may be NULL */
    void (*invariants)(const struct fsm *m);
    uint64_t from_peer;          /* bit per event that comes off the wire */
    const struct fsm_dead *dead; /* cells that are never reached */
    uint16_t n_dead;
    uint16_t starts; /* a bit for each state in which it may begin */
    uint32_t *hits;  /* [event * n_states + state], counted while weft__fsm_coverage is on */
};

/* A cell that is never reached, and the invariant that makes it so. Every BUG cell is one. */
struct fsm_dead {
    uint8_t event, state;
    const char *why;
};

/* Where a machine's outputs go. One per kind of machine and use; constant. */
struct fsm_port {
    const struct fsm_machine *machine;
    void (*effect)(struct fsm *m, unsigned effect);
    /* A VIOL or BUG cell was hit; `m` did not move. The owner fails the object, and only that. */
    void (*fail)(struct fsm *m, unsigned event, enum fsm_verb why);
};

/* The head of every machine's plain data. There may be thousands. No two fields share a word
 * that is read as one: who has just written a part of it would wait until that is in the cache. */
struct fsm {
    const struct fsm_port *port;
    uint32_t id;   /* for the trace: which connection, which team */
    uint16_t held; /* events that wait for the next transition, a bit each */
    uint8_t state;
};
_Static_assert(sizeof(struct fsm) == 16, "two words");

static inline void fsm_init(struct fsm *m, const struct fsm_port *port, uint8_t state,
                            uint32_t id) {
    assert(port->machine->starts >> state & 1);
    *m = (struct fsm){.port = port, .id = id, .state = state};
}
/* One that ended begins again, as what it was. */
static inline void fsm_again(struct fsm *m, uint8_t state) {
    assert(m->port->machine->starts >> state & 1 && !m->held);
    m->state = state;
}

/*
 * Delivers one event, and then, if it was a DO, those held. Actions must not step the same machine
 * again: what follows is posted by the port. The machine's memory must outlive the step (closed
 * objects go to the dead list).
 */
void weft__fsm_step(struct fsm *m, unsigned event);

static inline void fsm_effect(struct fsm *m, unsigned effect) {
    m->port->effect(m, effect);
}
/* What would become of an event now: for who must prepare for a DO, or need not bother the
 * machine with a SKIP. */
static inline enum fsm_verb fsm_verb(const struct fsm *m, unsigned event) {
    return m->port->machine->cells[event * m->port->machine->n_states + m->state].verb;
}
static inline const char *fsm_state_name(const struct fsm *m) {
    return m->port->machine->state_name[m->state];
}

/* Is the machine still where it was when the copy `before` was made? */
static inline bool fsm_has_stayed(const struct fsm *m, const struct fsm *before) {
    return m->state == before->state;
}

/* The trace: the last steps taken on this thread, in a ring that its reactor owns. */
#define FSM_TRACE_STEPS 256
struct fsm_trace_step {
    uint64_t at; /* ns of the reactor's clock at the beginning of its turn */
    const struct fsm_machine *machine;
    uint32_t id;
    uint8_t event, from, to, verb;
};
struct fsm_trace {
    uint64_t now;   /* kept current by the reactor */
    uint64_t count; /* steps ever */
    struct fsm_trace_step step[FSM_TRACE_STEPS];
};
/* Steps on this thread go to `trace` from now on (NULL: not recorded); returns the one before. */
extern _Thread_local struct fsm_trace *weft__fsm__trace __attribute__((tls_model("initial-exec")));
static inline struct fsm_trace *fsm_trace_use(struct fsm_trace *next) {
    struct fsm_trace *before = weft__fsm__trace;
    weft__fsm__trace = next;
    return before;
}
static inline void fsm__note(const struct fsm *m, const struct fsm_machine *machine, unsigned event,
                             unsigned verb, unsigned to) {
    struct fsm_trace *t = weft__fsm__trace;
    if (t)
        t->step[t->count++ % FSM_TRACE_STEPS] = (struct fsm_trace_step){
            t->now, machine, m->id, (uint8_t)event, m->state, (uint8_t)to, (uint8_t)verb};
}
static inline void fsm__check_invariants(const struct fsm *m, const struct fsm_machine *machine) {
#ifndef NDEBUG
    assert(m->port->machine == machine);
    if (machine->invariants) machine->invariants(m);
#endif
}

/*
 * A step whose cell the caller knows, DO(none, `to`), for the few machines that messages step. It
 * is not traced: a few microseconds of messages would be all that the trace shows.
 */
static inline void fsm_pass(struct fsm *m, const struct fsm_machine *machine, unsigned event,
                            uint8_t from, uint8_t to) {
#ifndef NDEBUG
    struct fsm_cell cell = machine->cells[event * machine->n_states + from];
    assert(m->state == from && !m->held && cell.verb == FSM_DO && cell.next == to &&
           cell.action == 0);
#endif
    m->state = to;
    fsm__check_invariants(m, machine);
}

/* The last `most` steps (0: all there are), of machine id `id` (0: of all), as lines; returns
 * the length needed. Any thread: a step that is half written is left out. */
unsigned long weft__fsm_trace_print(const struct fsm_trace *trace, unsigned most, uint32_t id,
                                    char *buf, unsigned long size);

/* Every machine that is linked in, in link order: `for (p = weft__fsm_machines(&n); n--; p++)`. */
const struct fsm_machine *const *weft__fsm_machines(unsigned *n_p);
const struct fsm_machine *weft__fsm_machine_by_name(const char *name);

/* Counts, from now on, how often each cell is hit, on all threads (tests); returns what it was. */
bool weft__fsm_coverage(bool on);
void weft__fsm_coverage_reset(void);

void weft__fsm_act_none(struct fsm *m); /* the action of DO(none, NEXT) */

#endif

/*
 * A machine made of its table. The table has a file of its own, foo.fsm, which holds macros only:
 *
 *     #define FOO_STATES(S)           S(IDLE) S(WAIT) S(OPEN) S(CLOSED)            2 … 16, the first is 0
 *     #define FOO_EVENTS(LOCAL, PEER) LOCAL(DIAL) LOCAL(TIMEOUT) PEER(WELCOME)     … 63; PEER: off the wire
 *     #define FOO_EFFECTS(F)          F(SEND_HELLO) F(NOTIFY_UP) F(ARM_TIMER)        what actions ask of the port
 *     #define FOO_ACTIONS(A)          A(hello) A(up)                               each is used by some cell
 *     #define FOO_TABLE(COLS, ROW) \
 *     COLS(         IDLE,             WAIT,             OPEN,  CLOSED) \
 *     ROW(DIAL,     DO(hello, WAIT),  BUG,              BUG,   SKIP)   \
 *     ROW(TIMEOUT,  BUG,              DO(hello, WAIT),  BUG,   SKIP)   \
 *     ROW(WELCOME,  VIOL,             DO(up, OPEN),     SKIP,  SKIP)
 *     #define FOO_DEAD(D)              cells that are never reached, and why; every BUG cell is among them \
 *     D(DIAL, (WAIT, OPEN), "dialled once")  D(TIMEOUT, (IDLE, OPEN), "armed in WAIT only") …
 *     #define FOO_SETS(P)              optional: sets of states; other files read the state by these predicates only \
 *     P(is_open, OPEN)  P(is_over, OPEN, CLOSED)
 *
 *     DO(act, NEXT)   set NEXT, then run act; DO(none, NEXT) only sets NEXT (`none` is not listed)
 *     SKIP            legal, nothing to do
 *     HOLD            deliver again after the next DO (no payload; held events come in their order in EVENTS; of the first 16)
 *     VIOL            the peer may not send this now; in PEER rows only
 *     BUG             unreachable; in LOCAL rows only
 *
 * foo.c (or foo_machine.h with the first half, when several files need the enums):
 *
 *     #include "foo.fsm"
 *     #define FSM_NAME   foo
 *     #define FSM_PREFIX FOO
 *     #include <fsm/declare.h>      enum foo_state { FOO_IDLE, … FOO_N_STATES }, foo_event { FOO_EV_DIAL, … },
 *                                   foo_effect { FOO_FX_SEND_HELLO, … }; weft__foo_machine
 *     (with `#define FSM_SETS FOO_SETS` before it, where there are sets: bool foo_is_open(const struct fsm *m), …)
 *
 *     struct foo { struct fsm fsm; uint32_t epoch; };       everything that a transition depends on
 *
 *     #define FSM_NAME       foo
 *     #define FSM_PREFIX     FOO
 *     #define FSM_INVARIANTS foo_invariants    optional: void foo_invariants(const struct fsm *m), asserts
 *     #define FSM_STARTS     1 << FOO_IDLE | 1 << FOO_WAIT    optional: where it may begin; the first state otherwise
 *     #include <fsm/define.h>
 *
 *     static void foo_act_hello(struct fsm *m) { fsm_effect(m, FOO_FX_SEND_HELLO); }
 *     static void foo_act_up(struct fsm *m) { fsm_effect(m, FOO_FX_NOTIFY_UP); }
 *
 *     static const struct fsm_port port = {&weft__foo_machine, on_effect, on_fail};
 *     fsm_init(&foo->fsm, &port, FOO_IDLE, id);
 *     weft__fsm_step(&foo->fsm, FOO_EV_DIAL);
 *
 * define.h declares the actions, so they may stand below it or above it. Both headers may be
 * included many times in one file, once a machine, and leave no macro behind but FSM_ ones. What
 * does not compile: a missing or surplus cell, a missing or repeated row, an unknown state, event
 * or action, swapped columns, an unused action, BUG in a PEER row, VIOL in a LOCAL row. The machine
 * enters the register that weft__fsm_machines() walks.
 */
#include <fsm/macros.h>

/* clang-format off: lists made by macros look like nothing that it knows */
#pragma push_macro("DO")
#pragma push_macro("SKIP")
#pragma push_macro("HOLD")
#pragma push_macro("VIOL")
#pragma push_macro("BUG")
#undef DO
#undef SKIP
#undef HOLD
#undef VIOL
#undef BUG

enum FSM_LOW(_action) { FSM_UP(_ACT_none), FSM_UP(_ACTIONS)(FSM_ENUM_ACTION) FSM_UP(_N_ACTIONS) };
/* A row, column or reason that is written twice is an enumerator declared twice. */
enum { FSM_UP(_TABLE)(FSM_NOTHING, FSM_ENUM_ROW) FSM_UP(_N_ROWS) };
enum { FSM_UP(_TABLE)(FSM_ENUM_COLUMNS, FSM_NOTHING) FSM_UP(_N_COLUMNS) };
enum { FSM_UP(_DEAD)(FSM_ENUM_DEAD) FSM_UP(_N_DEAD) };

_Static_assert((int)FSM_UP(_N_STATES) >= 2 && (int)FSM_UP(_N_STATES) <= 16, "2 to 16 states");
_Static_assert((int)FSM_UP(_N_EVENTS) <= 63 && (int)FSM_UP(_N_ACTIONS) <= 63,
               "63 events and 63 actions at most");
_Static_assert((int)FSM_UP(_N_ROWS) == (int)FSM_UP(_N_EVENTS), "one row per event");
_Static_assert((int)FSM_UP(_N_COLUMNS) == (int)FSM_UP(_N_STATES), "one column per state");
FSM_UP(_STATES)
(FSM_COLUMN_ORDER)

    static const char *const FSM_LOW(_state_names)[] = {FSM_UP(_STATES)(FSM_NAME_OF) 0};
static const char *const FSM_LOW(_event_names)[] = {FSM_UP(_EVENTS)(FSM_NAME_OF, FSM_NAME_OF) 0};
static const char *const FSM_LOW(_effect_names)[] = {FSM_UP(_EFFECTS)(FSM_NAME_OF) 0};
static const char *const FSM_LOW(_action_names)[] = {"none", FSM_UP(_ACTIONS)(FSM_NAME_OF) 0};

FSM_UP(_ACTIONS)
(FSM_DECLARE_ACTION) static const fsm_action_fn
    FSM_LOW(_action_fns)[] = {weft__fsm_act_none, FSM_UP(_ACTIONS)(FSM_ACTION_FN)};

#define DO(act, next) \
    { FSM_DO, FSM_UP(_##next), FSM_UP(_ACT_##act) }
#define SKIP \
    { FSM_SKIP, 0, 0 }
#define HOLD \
    { FSM_HOLD, 0, 0 }
#define VIOL \
    { FSM_VIOL, 0, 0 }
#define BUG \
    { FSM_BUG, 0, 0 }
FSM_UP(_TABLE)
(FSM_NOTHING, FSM_ROW_WIDTH) static const struct fsm_cell
    FSM_LOW(_cells)[FSM_UP(_N_EVENTS)][FSM_UP(_N_STATES)] = {
        FSM_UP(_TABLE)(FSM_NOTHING, FSM_ROW_CELLS)};
#undef DO
#undef SKIP
#undef HOLD
#undef VIOL
#undef BUG

#define SKIP          0
#define HOLD          0
#define DO(act, next) (UINT64_C(1) << FSM_UP(_ACT_##act))
#define VIOL          0
#define BUG           0
_Static_assert((UINT64_C(1) FSM_UP(_TABLE)(FSM_NOTHING, FSM_ROW_OR)) ==
                   (UINT64_C(1) << FSM_UP(_N_ACTIONS)) - 1,
               "every action is used by some cell");
#undef DO
#define DO(act, next) 0
#undef BUG
#define BUG 1
_Static_assert(((UINT64_C(0) FSM_UP(_TABLE)(FSM_NOTHING, FSM_ROW_ANY)) &
                (UINT64_C(0) FSM_UP(_EVENTS)(FSM_NOTHING, FSM_EVENT_BIT))) == 0,
               "BUG is for local events: a peer may send anything");
#undef BUG
#define BUG 0
#undef VIOL
#define VIOL 1
_Static_assert(((UINT64_C(0) FSM_UP(_TABLE)(FSM_NOTHING, FSM_ROW_ANY)) &
                (UINT64_C(0) FSM_UP(_EVENTS)(FSM_EVENT_BIT, FSM_NOTHING))) == 0,
               "VIOL is for events of a peer");
#undef VIOL
#define VIOL 0
#undef HOLD
#define HOLD 1
_Static_assert((UINT64_C(0) FSM_UP(_TABLE)(FSM_NOTHING, FSM_ROW_ANY)) >> 16 == 0,
               "the first 16 events can be held");
#undef DO
#undef SKIP
#undef HOLD
#undef VIOL
#undef BUG

static const struct fsm_dead FSM_LOW(_dead_cells)[] = {FSM_UP(_DEAD)(FSM_DEAD_CELLS){0, 0, 0}};
static uint32_t FSM_LOW(_hits)[FSM_UP(_N_EVENTS) * FSM_UP(_N_STATES)];

const struct fsm_machine FSM_MACHINE = {
    .name = FSM_TEXT(FSM_NAME),
    .n_states = FSM_UP(_N_STATES),
    .n_events = FSM_UP(_N_EVENTS),
    .n_actions = FSM_UP(_N_ACTIONS),
    .n_effects = FSM_UP(_N_EFFECTS),
    .state_name = FSM_LOW(_state_names),
    .event_name = FSM_LOW(_event_names),
    .action_name = FSM_LOW(_action_names),
    .effect_name = FSM_LOW(_effect_names),
    .cells = FSM_LOW(_cells)[0],
    .actions = FSM_LOW(_action_fns),
#ifdef FSM_INVARIANTS
    .invariants = FSM_INVARIANTS,
#endif
    .from_peer = UINT64_C(0) FSM_UP(_EVENTS)(FSM_NOTHING, FSM_EVENT_BIT),
#ifdef FSM_STARTS
    .starts = FSM_STARTS,
#else
    .starts = 1,
#endif
    .dead = FSM_LOW(_dead_cells),
    .n_dead = FSM_UP(_N_DEAD),
    .hits = FSM_LOW(_hits),
};
static const struct fsm_machine *const FSM_LOW(_registered)
    __attribute__((section("weft_machines"), used)) = &FSM_MACHINE;

#pragma pop_macro("DO")
#pragma pop_macro("SKIP")
#pragma pop_macro("HOLD")
#pragma pop_macro("VIOL")
#pragma pop_macro("BUG")

#undef FSM_NAME
#undef FSM_PREFIX
#undef FSM_INVARIANTS
#undef FSM_STARTS
/* clang-format on */

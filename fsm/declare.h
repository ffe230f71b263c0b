/*
 * The enums of one machine: states FOO_x, events FOO_EV_x, effects FOO_FX_x, and
 * `weft__foo_machine`. With FSM_SETS also a predicate for each set of states: `static inline bool
 * foo_is_open(const struct fsm *m)`. Include it as often as there are machines; fsm/define.h says
 * how a machine is written.
 *
 *     #include "foo.fsm"
 *     #define FSM_NAME   foo
 *     #define FSM_PREFIX FOO
 *     #define FSM_SETS   FOO_SETS
 *     #include <fsm/declare.h>
 */
#include <fsm/fsm.h>

#include <fsm/macros.h>

enum FSM_LOW(_state) { FSM_UP(_STATES)(FSM_ENUM_STATE) FSM_UP(_N_STATES) };
enum FSM_LOW(_event) { FSM_UP(_EVENTS)(FSM_ENUM_EVENT, FSM_ENUM_EVENT) FSM_UP(_N_EVENTS) };
enum FSM_LOW(_effect) { FSM_UP(_EFFECTS)(FSM_ENUM_EFFECT) FSM_UP(_N_EFFECTS) };

extern const struct fsm_machine FSM_MACHINE;

#ifdef FSM_SETS
FSM_SETS(FSM_PREDICATE)
#endif

#undef FSM_SETS
#undef FSM_NAME
#undef FSM_PREFIX

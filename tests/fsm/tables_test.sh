#!/bin/bash
# Tables with a mistake in them do not compile, with gcc and with clang; the table without one does.
set -u
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0

base='#define T_STATES(S)           S(A) S(B) S(C)
#define T_EVENTS(LOCAL, PEER) LOCAL(GO) PEER(COME) LOCAL(STOP)
#define T_EFFECTS(F)          F(NOTIFY)
#define T_ACTIONS(X)          X(notify) X(halt)
#define T_TABLE(COLS, ROW) \
COLS(      A,            B,            C) \
ROW(GO, DO(notify, B),SKIP, BUG) \
ROW(COME,  VIOL,         DO(none, C),  SKIP) \
ROW(STOP,  SKIP,         HOLD,         DO(halt, A))
#define T_DEAD(D)             D(GO, C, "no way") D(STOP, (A, B), "none")
#define T_SETS(P)             P(is_a, A) P(is_late, B, C)
'
rest='#define FSM_NAME t
#define FSM_PREFIX T
#define FSM_SETS T_SETS
#include <fsm/declare.h>
#define FSM_NAME t
#define FSM_PREFIX T
#include <fsm/define.h>
static void t_act_notify(struct fsm *m) { fsm_effect(m, T_FX_NOTIFY); }
static void t_act_halt(struct fsm *m) { fsm_effect(m, T_FX_NOTIFY); }
'

# compiles COMPILER SOURCE: with the warnings of the project's own build.
compiles() {
    local override=-Woverride-init
    [ "$1" = clang ] && override=-Winitializer-overrides
    "$1" -std=gnu11 -Wall -Wextra -Werror $override -Wno-unused-parameter -I. -fsyntax-only -x c "$2" 2>"$here/said"
}

# case_of NAME WANTED SED EXPECTED-IN-MESSAGE: the table after `sed -E SED` compiles (0) or does not (1), for the reason named.
case_of() {
    local name=$1 wanted=$2 change=$3 reason=$4 cc got
    { sed -E "$change" <<<"$base"; echo "$rest"; } >"$here/t.c"
    for cc in gcc clang; do
        if ! command -v $cc >/dev/null; then
            echo "  skipped: $cc is not installed"
            echo "skip ${name}_$cc"
            continue
        fi
        compiles $cc "$here/t.c"
        got=$?
        if [ $((got != 0)) = "$wanted" ] && { [ "$wanted" = 0 ] || grep -qE "$reason" "$here/said"; }; then
            echo "ok ${name}_$cc"
        else
            sed 's/^/  /' "$here/said" | head -20
            echo "not ok ${name}_$cc"
            failed=1
        fi
    done
}

case_of a_whole_table_compiles 0 '' ''
case_of a_missing_cell_does_not 1 's/^(ROW\(COME,.*),  SKIP/\1/' 'one cell per state'
case_of a_surplus_cell_does_not 1 's/^(ROW\(COME,.*)SKIP/\1SKIP, SKIP/' 'one cell per state|excess elements'
case_of an_empty_cell_does_not 1 's/^ROW\(COME,  VIOL/ROW(COME,  /' 'error: expected'
case_of a_missing_row_does_not 1 '/^ROW\(COME/d' 'one row per event'
case_of a_repeated_row_does_not 1 's/^(ROW\(COME.*)$/\1\n\1/' 'redeclar|redefinition|initialized field overwritten|overrides'
case_of a_row_instead_of_another_does_not 1 's/^ROW\(STOP/ROW(COME/' 'redeclar|redefinition|initialized field overwritten|overrides'
case_of an_unknown_event_does_not 1 's/^ROW\(COME/ROW(LEAVE/' 'T_EV_LEAVE'
case_of an_unknown_state_does_not 1 's/DO\(none, C\)/DO(none, D)/' 'T_D'
case_of an_unknown_action_does_not 1 's/DO\(none, C\)/DO(jump, C)/' 'T_ACT_jump'
case_of swapped_columns_do_not 1 's/^COLS\( *A, *B/COLS(B, A/' 'has the place of the state'
case_of a_missing_column_does_not 1 's/^(COLS.*), *C\)/\1)/' 'one column per state|T_COLUMN_C'
case_of an_unused_action_does_not 1 's/DO\(halt, A\)/SKIP/' 'every action is used'
case_of a_seventeenth_event_that_is_held_does_not 1 's/LOCAL\(STOP\)/LOCAL(E3) LOCAL(E4) LOCAL(E5) LOCAL(E6) LOCAL(E7) LOCAL(E8) LOCAL(E9) LOCAL(E10) LOCAL(E11) LOCAL(E12) LOCAL(E13) LOCAL(E14) LOCAL(E15) LOCAL(E16) LOCAL(STOP)/' 'the first 16 events can be held'
case_of an_undefined_action_does_not 1 's/X\(halt\)/X(halt) X(jump)/; s/DO\(halt, A\)/DO(jump, A)/' 'jump|every action is used'
case_of a_bug_for_a_peer_does_not 1 's/^ROW\(COME,  VIOL/ROW(COME, BUG/' 'BUG is for local events'
case_of a_violation_of_ones_own_does_not 1 's/^(ROW\(GO,.*)SKIP/\1VIOL/' 'VIOL is for events of a peer'
case_of a_reason_for_no_cell_does_not 1 's/D\(GO, C/D(GO, X/' 'T_X'
case_of a_repeated_reason_does_not 1 's/D\(GO, C, "no way"\)/D(GO, C, "no way") D(GO, C, "no")/' 'redeclar|redefinition'
case_of a_reason_in_a_set_for_no_cell_does_not 1 's/\(A, B\), "none"/(A, X), "none"/' 'T_X'
case_of a_reason_repeated_by_a_set_does_not 1 's/\(A, B\), "none"/(A, B, A), "none"/' 'redeclar|redefinition'
case_of a_set_with_an_unknown_state_does_not 1 's/is_late, B, C/is_late, B, X/' 'T_X'
case_of a_repeated_set_does_not 1 's/P\(is_a, A\)/P(is_late, A)/' 'redefinition'
case_of an_empty_set_does_not 1 's/P\(is_a, A\)/P(is_a)/' 'error'
case_of a_machine_without_sets_compiles 0 's/^#define T_SETS.*/#define T_SETS(P)/' ''
exit $failed

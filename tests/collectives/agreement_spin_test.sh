#!/bin/bash
# spin searches every run of the agreement among three members, two of which may die; it refutes
# what leaves out a part of it.
. tests/check.sh
model=$(realpath tests/collectives/agreement.pml)

# verify OPTIMISE FLAG…: prints what the verifier says
verify() {
    (cd "$scratch" && rm -rf run && mkdir run && cd run && spin "${@:2}" -a "$model" &&
        gcc -w "$1" -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m1000000 -w24)
}

# refute FLAG…: the same where a fault is found long before all was searched, sooner than an optimised verifier is compiled
refute() { verify -O0 "$@"; }

test_all_that_are_left_decide_the_same_and_nobody_waits_for_ever() {
    needs spin
    said=$(verify -O2 -DDEATHS=2)
    has verifier "$said" 'errors: 0'
    if grep -q 'Search not completed' <<<"$said"; then fail "$said"; fi
}

test_a_value_that_is_held_is_proposed_again() {
    needs spin
    has verifier "$(refute -DFORGET_HELD)" 'assertion violated .*chosen'
}

test_a_decision_waits_for_all_that_are_left() {
    needs spin
    has verifier "$(refute -DHASTY)" 'errors: 1'
}

test_whoever_has_a_decision_passes_it_on() {
    needs spin
    has verifier "$(refute -DFORGET_OTHERS)" 'assertion violated .*decided'
}

run_tests

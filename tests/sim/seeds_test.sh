#!/bin/bash
# The simulation: seeds pass, and are the same in every process.
. tests/check.sh
sim=$bin/tools/weft-sim

test_seeds_pass_and_each_hundredth_is_the_same_elsewhere() {
    $sim --seeds 400 --jobs 1 >"$scratch/out" || { cat "$scratch/out"; expect failures some none; }
    expect 'runs that were repeated' "$(grep -o '[0-9]* run twice' "$scratch/out")" '4 run twice'
}

test_a_seed_prints_its_trace_hash() {
    expect hash "$($sim --seed 77 | grep -o 'hash [0-9a-f]*')" "hash $($sim --hash 77)"
    if [ "$($sim --hash 77)" = "$($sim --hash 78)" ]; then expect hashes equal different; fi
}

test_a_trace_notifies_what_happened() {
    $sim --seed 77 --trace >"$scratch/out"
    grep -q 'dials worker' "$scratch/out" || expect trace "$(head -3 "$scratch/out")" 'a dial'
}

# What a crash, or a run that hangs, has shown until then.
test_a_trace_that_ends_early_has_whole_lines() {
    $sim --endpoints 20000 --trace >"$scratch/trace" &
    wait_for test -s "$scratch/trace"
    kill -KILL $!
    wait $! || true
    expect end "$(tail -c 1 "$scratch/trace" | od -An -c | tr -d ' ')" '\n'
}

test_a_small_mesh_comes_to_rest() {
    expect ends "$($sim --mesh --workers 8 | grep -o '^mesh: ok')" 'mesh: ok'
}

test_its_processes_do_not_outlive_it() {
    $sim --seeds 1000000 --jobs 2 >/dev/null &
    local pid=$! children
    wait_for eval "[ \$(pgrep -c -P $pid) = 2 ]"
    children=$(pgrep -P $pid)
    kill -KILL $pid
    wait $pid || true
    wait_for is_gone $children
}

is_gone() {
    local pid
    for pid; do case $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) in '' | Z*) ;; *) return 1 ;; esac; done
}

run_tests

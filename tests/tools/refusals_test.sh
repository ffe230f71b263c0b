#!/bin/bash
# What a program of tools/ cannot do, it says in a line, and does not exit with 0: arguments that make no sense, and output that
# cannot be written.
. tests/check.sh
tools=$bin/tools

# refused CODE LINE COMMAND…: the first line of its standard error matches LINE
refused() {
    local code=0
    timeout 200 "${@:3}" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    expect "${*:3}: code" "$code" "$1"
    has "${*:3}" "$(head -1 "$scratch/err")" "$2"
}

test_numbers_are_numbers_and_in_range() {
    local text
    for text in abc '' -1 1x 1.5 99999999999999999999; do
        refused 2 'weft-info: --live .*: no process' $tools/weft-info --live "$text"
        refused 2 'weft-perf: --core .*: 0 to 1023' $tools/weft-perf --test am_lat --core "$text"
        refused 2 'weft-run: --ranks .*: 1 to 4096' $tools/weft-run --ranks "$text" true
        refused 2 'sim: --seeds .*: 1 to' $tools/weft-sim --seeds "$text"
        refused 2 'sim: --seed .*: 0 to' $tools/weft-sim --seed "$text"
        refused 2 'schedule: --ranks .*: 1 to 256' $tools/schedule --ranks "$text"
        refused 2 'wordcount: --ranks .*: 1 to 4096' $tools/wordcount --ranks "$text"
    done
    for text in x -1 0 nan; do refused 2 'weft-run: --timeout .*: 0.001 to' $tools/weft-run --timeout "$text" true; done
    refused 2 'sim: --seeds 0: 1 to' $tools/weft-sim --seeds 0
    refused 2 'sim: --jobs 65: 1 to 64' $tools/weft-sim --jobs 65 # beyond, seeds would be left out
    refused 2 'sim: --endpoints 0: 1 to' $tools/weft-sim --endpoints 0
    refused 2 'sim: --workers 1: 2 to' $tools/weft-sim --mesh --workers 1
    refused 2 'schedule: --per-group 0: 1 to' $tools/schedule --per-group 0
    refused 2 'schedule: the root is none of the ranks' $tools/schedule --ranks 4 --root 4
}

test_what_does_not_go_together_is_refused() {
    refused 2 'weft-info: extra: not understood' $tools/weft-info --collectives extra
    refused 2 'weft-info: --collectives has no JSON' $tools/weft-info --collectives --json
    refused 2 'weft-info: --collectives goes alone' $tools/weft-info --collectives --view
    refused 2 'weft-info: --new-key goes alone' $tools/weft-info --new-key "$scratch/key" --config
    expect 'a key' "$(ls "$scratch/key" 2>/dev/null)" ''
    refused 2 'weft-perf: am_lat: --tune: there is nothing to choose' $tools/weft-perf --tune "$scratch/tuned" --test am_lat
    for option in --json --fresh '--transport tcp' '--size 8' '--mode wait' '--listen shm://a'; do
        refused 2 "weft-perf: --tune goes with --test, --ranks and --seconds, not with ${option%% *}" \
            $tools/weft-perf --tune "$scratch/tuned" $option --test barrier --ranks 2
    done
    refused 2 'weft-perf: --test none: no such test' $tools/weft-perf --plot "$scratch/plot.svg" --test none
    refused 2 'weft-perf: put_lat: sizes begin at 1' $tools/weft-perf --plot "$scratch/plot.svg" --test put_lat --size 0
    expect 'a file of what is refused' "$(ls "$scratch"/{tuned,plot.svg} 2>/dev/null)" ''
    refused 2 'sim: extra: not understood' $tools/weft-sim extra
    for options in '--mesh --seed 3' '--seed 3 --endpoints 9' '--first --seed 3'; do
        refused 2 'sim: --seed, --mesh, --endpoints and --first are a run each' $tools/weft-sim $options
    done
    refused 2 'sim: --trace and --minimise are of one run' $tools/weft-sim --trace --seeds 3
    refused 2 'sim: --workers are those of --mesh' $tools/weft-sim --workers 9
    refused 2 'sim: --seeds are of many runs' $tools/weft-sim --seed 5 --seeds 3
    refused 2 'sim: --jobs are of many runs at a time' $tools/weft-sim --first --jobs 2
    refused 2 'sim: --from is not of --seed' $tools/weft-sim --seed 5 --from 1
    refused 2 'schedule: an argument that is no option' $tools/schedule extra
}

test_what_is_not_there_is_named() {
    refused 1 "weft-perf: --tune $scratch/none/tuned: No such file or directory" $tools/weft-perf --tune "$scratch/none/tuned"
    refused 1 'weft-perf: core 1023: ' $tools/weft-perf --test am_lat --transport self --core 1023 --seconds 0.01
    refused 1 'weft-info: process 2147483647: there is none' $tools/weft-info --live 2147483647
    refused 127 'weft-run: .*no-such-program: No such file|exited with 127' $tools/weft-run -n 2 "$scratch/no-such-program"
}

# unwritten CODE COMMAND…: to a full device, and where standard output is closed
unwritten() {
    local code to
    for to in '>/dev/full' '>&-'; do
        code=0
        bash -c "exec \"\$@\" $to" bash timeout 200 "${@:2}" 2>"$scratch/err" </dev/null || code=$?
        expect "${*:2} $to: code" "$code" "$1"
        has "${*:2} $to" "$(cat "$scratch/err")" '(No space left on device|Bad file descriptor|not all was written)'
    done
}

test_output_that_cannot_be_written_is_a_failure() {
    local programs=("$tools/weft-info --build" "$tools/weft-info --config --json" "$tools/weft-info --collectives"
        "$tools/weft-info --view" "$tools/weft-perf --help" "$tools/weft-perf --test am_lat --seconds 0.01"
        "$tools/weft-perf --test am_lat --transport self --json --seconds 0.01" "$tools/weft-run --help" "$tools/weft-sim --seed 1"
        "$tools/schedule --list" "$tools/schedule --collective barrier --algorithm tree" "$tools/wordcount tests/check.sh")
    for program in "${programs[@]}"; do unwritten 1 $program; done
    unwritten 125 $tools/weft-run -n 2 echo hello
    expect 'nothing to write' "$(exit_code $tools/weft-run -n 2 true)" 0
}

# Where a reader leaves, the tool ends as a program that writes there itself.
test_a_reader_that_leaves_ends_weft_run() {
    code=0
    { $tools/weft-run -n 2 yes || echo $? >"$scratch/code"; } 2>/dev/null | head -1 >"$scratch/line"
    expect code "$(cat "$scratch/code")" 141
}

run_tests

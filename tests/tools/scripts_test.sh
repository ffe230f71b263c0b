#!/bin/bash
# Each script of tools/ and bench/ tells what it does, and refuses what it does not know, before it does anything. Not tools/sim: what
# it is asked goes to weft-sim, which it builds.
. tests/check.sh

scripts() { grep -lE '^#!.*(bash|python3)$' tools/* bench/* 2>/dev/null | grep -v '^tools/sim$'; }

# asked CODE SCRIPT ARGUMENT…: from another folder, as where it is found by a path
asked() {
    local code=0
    (cd "$scratch" && timeout 60 "$root/$2" "${@:3}" >out 2>err </dev/null) || code=$?
    expect "${*:2}: code" "$code" "$1"
}
root=$PWD

test_each_script_tells_what_it_does() {
    for script in $(scripts); do
        asked 0 "$script" --help
        has "$script --help" "$(cat "$scratch/out")" "${script##*/}"
        expect "$script --help: errors" "$(cat "$scratch/err")" ''
    done
}

test_each_script_refuses_an_option_that_it_does_not_have() {
    for script in $(scripts); do
        asked 2 "$script" --no-such-option
        expect "$script: output" "$(cat "$scratch/out")" ''
        has "$script --no-such-option" "$(cat "$scratch/err")" "(usage|--help|${script##*/})"
    done
}

test_what_is_no_stage_is_named() {
    asked 2 tools/test gcc no-such-stage
    has errors "$(cat "$scratch/err")" 'no stage no-such-stage'
    asked 2 tools/setup no-such-part
    has errors "$(cat "$scratch/err")" 'no-such-part'
    asked 2 tools/demo -n
    has errors "$(cat "$scratch/err")" '-n needs a value'
}

run_tests

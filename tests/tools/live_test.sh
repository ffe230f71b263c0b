#!/bin/bash
# weft-info --live: a running process is looked at, and does not notice.
. tests/check.sh
info=$bin/tools/weft-info
cat=$bin/examples/stream-cat

# Two processes with a stream between them, until the test ends.
begin() {
    rm -f "$scratch/input" "$scratch/told"
    mkfifo "$scratch/input"
    $cat listen "$1" </dev/null >"$scratch/received" 2>"$scratch/told" &
    listener=$!
    wait_for grep -q '^listening at' "$scratch/told"
    sleep 60 >"$scratch/input" &
    holder=$!
    $cat "$(sed -n 's/^listening at //p' "$scratch/told")" <"$scratch/input" >/dev/null 2>&1 &
    caller=$!
    trap 'kill -CONT $listener $caller $holder 2>/dev/null; kill $listener $caller $holder 2>/dev/null' EXIT
    wait_for is_up $caller
    wait_for is_up $listener
}

is_up() {
    $info --live "$1" --json | grep -q '"link":"UP"'
}

# of PID TEXT: Python on `w`, the first worker of that process, and `r`, the first row
of() {
    $info --live "$1" --json | python3 -c '
import json, sys
w = json.load(sys.stdin)["live"][0]
r = w["rows"][0] if w["rows"] else None
print(eval(sys.argv[1]))' "$2"
}

test_both_ends_of_a_link_show_it() {
    begin tcp://127.0.0.1:0
    expect pid "$(of $caller 'w["pid"]')" $caller
    expect links "$(of $caller 'w["links"]')" 1
    expect peer "$(of $caller 'r["peer"]')" "$(of $listener 'w["worker"]')"
    expect 'the way back' "$(of $listener 'r["peer"]')" "$(of $caller 'w["worker"]')"
    expect lane "$(of $caller 'r["transport"], r["dialed"], r["endpoints"]')" "('tcp', True, 1)"
    expect 'who was dialed' "$(of $listener 'r["dialed"]')" False
    expect counted "$(of $caller 'w["counters"]["tcp.writes"] > 0')" True
    text=$($info --live $caller)
    has text "$text" "^process $caller, worker [0-9a-f]{16} over .*tcp: 1 link"
    has text "$text" '  [0-9a-f]{16} tcp +UP '
    has text "$text" '^  tcp\.writes +[0-9]+'
}

test_it_does_not_notice() {
    begin "shm://live-test-$$"
    before=$(of $listener 'w["counters"]["worker.turns"]')
    for i in 1 2 3 4 5; do expect turns "$(of $listener 'w["counters"]["worker.turns"]')" "$before"; done
    expect wakeups "$(of $listener 'w["counters"]["worker.wakeups"] <= w["counters"]["worker.sleeps"]')" True
}

test_a_stopped_process_is_looked_at_too() {
    begin tcp://127.0.0.1:0
    kill -STOP $listener
    expect state "$(of $listener 'r["link"]')" UP
}

test_who_has_no_worker_is_told_so() {
    sleep 60 &
    local pid=$!
    expect code "$(exit_code $info --live $pid)" 1
    has reason "$($info --live $pid 2>&1 || true)" 'shows no worker'
    kill $pid
    expect 'nobody there' "$(exit_code $info --live 4194304)" 1
    expect 'no number' "$(exit_code $info --live x)" 2
    expect 'not alone' "$(exit_code $info --live 1 --config)" 2
}

test_a_worker_may_refuse() {
    export WEFT_WORKER_LIVE=off
    $cat listen tcp://127.0.0.1:0 </dev/null >/dev/null 2>"$scratch/told" &
    local pid=$!
    wait_for grep -q '^listening at' "$scratch/told"
    expect code "$(exit_code $info --live $pid)" 1
    kill $pid
}

run_tests

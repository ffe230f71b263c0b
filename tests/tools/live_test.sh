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

# Two of three members wait in a collective for the one that is stopped.
test_who_is_late_in_a_collective_is_shown() {
    $bin/tools/weft-perf --test allreduce --ranks 3 --seconds 60 --mode sleep >/dev/null 2>&1 &
    perf=$!
    trap 'pkill -KILL -P $perf || true; kill -KILL $perf 2>/dev/null || true' EXIT
    wait_for has_three $perf
    members=($(pgrep -P $perf))
    wait_for counts ${members[0]}
    kill -STOP ${members[2]}
    wait_for is_late ${members[0]}
    wait_for is_late ${members[1]}
    text=$($info --live ${members[0]})
    has text "$text" '^  collective: team [0-9a-f]{8}, rank [0-2]: [a-z]+ [0-9]+ waits for rank [0-2].*, for [0-9.]+ s'
    kill -CONT ${members[2]}
    wait_for is_on_time ${members[0]}
}

has_three() { [ "$(pgrep -c -P $1)" = 3 ]; }
counts() { [ "$(of $1 'w["counters"]["coll.started"] > 100' 2>/dev/null)" = True ]; }
is_late() { [ "$(of $1 'len(w["late"]) == 1 and w["late"][0]["age_s"] >= 1')" = True ]; }
is_on_time() { [ "$(of $1 'len(w["late"])')" = 0 ]; }

test_a_stopped_process_is_looked_at_too() {
    begin tcp://127.0.0.1:0
    kill -STOP $listener
    expect state "$(of $listener 'r["link"]')" UP
}

test_a_process_without_a_worker_is_reported() {
    sleep 60 &
    local pid=$!
    expect code "$(exit_code $info --live $pid)" 1
    has reason "$($info --live $pid 2>&1 || true)" 'shows no worker'
    kill $pid
    expect 'nobody there' "$(exit_code $info --live 4194304)" 1
    has 'reason of no process' "$($info --live 4194304 2>&1 || true)" 'there is none'
    expect 'no number' "$(exit_code $info --live x)" 2
    expect 'not alone' "$(exit_code $info --live 1 --config)" 2
}

test_a_worker_may_refuse() {
    export WEFT_WORKER_STATS_PAGE=off
    rm -f "$scratch/told"
    $cat listen tcp://127.0.0.1:0 </dev/null >/dev/null 2>"$scratch/told" &
    local pid=$!
    wait_for grep -q '^listening at' "$scratch/told"
    expect code "$(exit_code $info --live $pid)" 1
    kill $pid
}

# A process that shows a FIFO under the name of a page: to open it for reading would wait for a writer for ever.
test_a_fifo_that_is_named_as_a_page_is_not_opened() {
    unshare -m true 2>/dev/null || skip "no mount namespaces here"
    mkdir "$scratch/mount"
    unshare -m bash -c '
        mount -t tmpfs none "$0" && mkfifo "$0/memfd:weft-live" && exec 8<>"$0/memfd:weft-live" 7<"$0/memfd:weft-live" 8>&- && umount -l "$0" &&
        exec sleep 60' "$scratch/mount" &
    fake=$!
    trap 'kill $fake 2>/dev/null' EXIT
    wait_for is_named $fake /memfd:weft-live
    expect code "$(exit_code timeout 200 $info --live $fake)" 1
}

is_named() {
    [ "$(readlink "/proc/$1/fd/7")" = "$2" ]
}

# A process that shows a page of its own making, with escape sequences in every text.
test_what_a_page_sends_is_printed_as_plain_characters() {
    begin tcp://127.0.0.1:0
    kill -STOP $caller
    cat >"$scratch/page.py" <<'END'
import ctypes, fcntl, glob, os, struct, sys, time
pid = int(sys.argv[1])
link = [f for f in glob.glob(f"/proc/{pid}/fd/*") if os.readlink(f).startswith("/memfd:weft-live")][0]
page = bytearray(open(link, "rb").read())
assert struct.unpack_from("<i", page, 24)[0] == pid
struct.pack_into("<i", page, 24, os.getpid())
for text in b"self,", b"tcp.", b"127.0.0.1:":
    assert text in page, text
    page = bytearray(bytes(page).replace(text, b"\x1b]0;" + b"\x9b" * (len(text) - 4)))
fd = ctypes.CDLL(None).memfd_create(b"weft-live", 2)
os.write(fd, page)
fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
print("ready", flush=True)
time.sleep(60)
END
    python3 "$scratch/page.py" $caller >"$scratch/ready" &
    fake=$!
    trap 'kill -CONT $listener $caller 2>/dev/null; kill $fake $listener $caller $holder 2>/dev/null' EXIT
    wait_for grep -q ready "$scratch/ready"
    text=$($info --live $fake)
    has text "$text" "^process $fake, worker "
    has text "$text" '[?]]0;'
    expect 'control characters' "$(printf %s "$text" | LC_ALL=C tr -d '\n\040-\176' | wc -c)" 0
    text=$($info --live $fake --json)
    expect 'control characters of JSON' "$(printf %s "$text" | LC_ALL=C tr -d '\n\040-\176' | wc -c)" 0
}

run_tests

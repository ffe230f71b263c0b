#!/bin/bash
# A message between polled workers makes no system call: the kernel counts, what a run of a second has more of than one of a
# twentieth, so that the start and the end of a run, which a sanitizer makes long, are in neither. What is left is libev being
# asked by the clock whether a file or a timer is due. Who spins while the machine runs something
# else in place of its peer asks often, and gets no message: so of these looks the quietest of some runs counts, and
# against a looser limit. One for each message would be a hundred times the one and ten times the other.
. tests/check.sh
perf=$bin/tools/weft-perf
most=0.01 most_with_looks=0.1 # system calls for each message

# Leaks cannot be looked for under ptrace, and are other tests' affair.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

must_trace() {
    needs strace
    strace -o "$scratch/trace" true 2>"$scratch/err" && return
    grep -qiE 'ptrace|not permitted' "$scratch/err" || fail "strace: $(cat "$scratch/err")"
    skip 'strace may not attach to a process here'
}

# calls_per_message OPTIONS…: prints how many without and with looks, of all the processes of a run together. A machine that
# had no time for the long run, which then has the fewer messages, is asked again.
calls_per_message() {
    local i said
    for i in {1..20}; do
        said=$(calls_of_two_runs "$@")
        [ -z "$said" ] || { echo "$said" && return; }
    done
    fail "no long run has more messages than its short one"
}

calls_of_two_runs() {
    local seconds
    for seconds in 0.05 1; do
        timeout 200 strace -f -c -o "$scratch/trace-$seconds" $perf --test am_lat --size 8 --seconds $seconds --json "$@" >"$scratch/row-$seconds"
    done
    python3 - "$scratch" <<'PY'
import json, sys
def run(seconds):
    messages = json.load(open(f"{sys.argv[1]}/row-{seconds}"))["mmsg_s"] * 1e6 * float(seconds)
    rows = [line.split() for line in open(f"{sys.argv[1]}/trace-{seconds}")]
    calls = {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit()}
    assert calls["execve"] > 0 and messages > 0, (calls, messages)
    looks = calls.get("epoll_wait", 0) + calls.get("epoll_pwait", 0)
    return messages, calls["total"] - looks, looks
short, long = run("0.05"), run("1")
messages, others, looks = (more - less for more, less in zip(long, short))
if messages > 0:
    print("%.6f %.6f" % (others / messages, (others + looks) / messages))
PY
}

below() { [ "$(python3 -c "print(float('$1') < $2)")" = True ]; }

expect_quiet() {
    local all=
    must_trace
    for i in {1..20}; do
        read -r without with <<<"$(calls_per_message "$@")"
        below "$without" $most || fail "$without system calls for each message, and looks: $(sort -rnk4 "$scratch/trace-1" | head -5)"
        below "$with" $most_with_looks && return
        all+=" $with"
    done
    fail "with looks, system calls for each message:$all"
}

test_shm_is_quiet() {
    expect_quiet --transport shm
}

test_self_is_quiet() {
    expect_quiet --transport self
}

# The count must see calls where there are some: each message of sleepers wakes somebody.
test_sleepers_are_not() {
    must_trace
    read -r without with <<<"$(calls_per_message --transport shm --mode sleep)"
    echo "asleep: $without system calls for each message, $with with looks"
    [ "$with" ] || fail "nothing was counted"
    ! below "$without" $most || fail "too few"
    ! below "$with" $most_with_looks || fail "too few"
}

run_tests

#!/bin/bash
# weft-run: what it promises of output, exit codes and ends.
. tests/check.sh
run=$bin/tools/weft-run

test_lines_carry_their_rank() {
    got=$($run -n 3 sh -c 'echo "of $WEFT_RUN_SIZE"; echo two' | sort)
    expect output "$got" "$(printf '[%s] %s\n' 0 'of 3' 0 two 1 'of 3' 1 two 2 'of 3' 2 two)"
}

test_a_last_line_without_an_end_gets_one() {
    expect output "$($run -n 1 printf 'a\nb' | od -An -c | tr -d ' \n')" '[0]a\n[0]b\n'
}

test_a_very_long_line_loses_nothing() {
    got=$($run -n 1 sh -c 'head -c 100000 /dev/zero | tr "\0" x' | sed 's/^\[0\] //' | tr -d '\n' | wc -c)
    expect bytes "$got" 100000
}

test_standard_error_stays_standard_error() {
    $run -n 1 sh -c 'echo out; echo err >&2' >"$scratch/out" 2>"$scratch/err"
    expect output "$(cat "$scratch/out")" '[0] out'
    expect errors "$(cat "$scratch/err")" '[0] err'
}

# What a peer sent may be among it.
test_a_terminal_gets_no_control_characters() {
    printf 'a\033]0;b\007c\tä\302\233d\233e\bf€\rg\r\n' >"$scratch/sent"
    script -qec "$run -n 1 cat $scratch/sent" /dev/null </dev/null >"$scratch/out"
    expect output "$(tr -d '\r' <"$scratch/out")" "$(printf '[0] a?]0;b?c\tä??d?e?f€?g')"
    script -qec "$run -n 1 sh -c 'cat $scratch/sent >&2'" /dev/null </dev/null >"$scratch/out"
    expect errors "$(tr -d '\r' <"$scratch/out")" "$(printf '[0] a?]0;b?c\tä??d?e?f€?g')"
    $run -n 1 cat "$scratch/sent" >"$scratch/out"
    (printf '[0] ' && cat "$scratch/sent") | cmp - "$scratch/out"
}

test_a_slow_reader_loses_nothing() {
    got=$($run -n 2 seq 200000 | (sleep 0.3; wc -l))
    expect lines "$got" 400000
}

# The pipe is one that its other users have made not to block.
test_a_reader_that_does_not_read_costs_no_processor_time() {
    python3 - "$run" "$scratch/written" <<'END' >"$scratch/used"
import os, subprocess, sys, time
run, written = sys.argv[1:]
here, there = os.pipe()
os.set_blocking(there, False)
job = subprocess.Popen([run, "-n", "1", "sh", "-c", f"head -c 500000 /dev/zero; : >{written}"], stdout=there)
os.close(there)
while not os.path.exists(written) or open(f"/proc/{job.pid}/task/{job.pid}/children").read():
    time.sleep(0.02)
def used():
    user, system = open(f"/proc/{job.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
before = used()
time.sleep(1)
print("idle" if used() - before < 0.3 else "busy")
length = 0
while piece := os.read(here, 1 << 16):
    length += len(piece.replace(b"[0] ", b"").replace(b"\n", b""))
print(length, job.wait())
END
    expect used "$(cat "$scratch/used")" $'idle\n500000 0'
}

# Rank 0 waits for the reader of standard output, and no other.
test_a_reader_that_does_not_read_stops_those_that_write_to_it() {
    python3 - "$run" <<'END' >"$scratch/said"
import os, select, subprocess, sys, time
here, there = os.pipe()
body = "[ $WEFT_RUN_RANK = 1 ] || exec yes; while :; do echo more >&2; sleep 0.01; done"
job = subprocess.Popen([sys.argv[1], "-n", "2", "sh", "-c", body], stdout=there, stderr=subprocess.PIPE)
os.close(there)
def written():
    try:
        first = open(f"/proc/{job.pid}/task/{job.pid}/children").read().split()[0]
        return int(open(f"/proc/{first}/io").read().split()[3])
    except (OSError, IndexError):
        return 0
last, since = 0, time.monotonic()
while 0 <= last < 1000000 and (last < 100000 or time.monotonic() < since + 1):
    time.sleep(0.02)
    if (now := written()) != last:
        last, since = now, time.monotonic()
print("it is kept" if last >= 1000000 else "it waits")
def is_heard(seconds):
    return select.select([job.stderr], [], [], seconds)[0] and os.read(job.stderr.fileno(), 1 << 16)
while is_heard(0):
    pass
print("more" if is_heard(30) else "no more")
os.close(here)
job.terminate()
while is_heard(30):
    pass
END
    expect said "$(cat "$scratch/said")" $'it waits\nmore'
}

# More than standard error holds is written, and no one reads it, when rank 1 fails. weft-run may read rank 0's last lines after
# it has said so.
test_a_reader_that_does_not_read_delays_no_end() {
    rm -f "$scratch/written"
    python3 - "$run" "$scratch/written" <<'END' >"$scratch/said"
import os, subprocess, sys, time
run, written = sys.argv[1:]
body = f"""[ $WEFT_RUN_RANK = 1 ] || {{ yes {"x" * 198} | head -n 1500 >&2; : >{written}; exec sleep 60; }}
    until [ -e {written} ]; do sleep 0.02; done; exit 3"""
job = subprocess.Popen([run, "-n", "2", "sh", "-c", body], stderr=subprocess.PIPE)
def processes():
    return open(f"/proc/{job.pid}/task/{job.pid}/children").read()
while not os.path.exists(written):
    time.sleep(0.02)
ends = time.monotonic() + 20
while processes() and time.monotonic() < ends:
    time.sleep(0.02)
print("not ended" if processes() else "ended")
lines = job.stderr.read().decode().splitlines()
said = [line for line in lines if not line.startswith("[0] x")]
print(len(lines) - len(said), len(said) == 1 and "exited with 3; ending the others" in said[0], job.wait())
END
    expect said "$(cat "$scratch/said")" $'ended\n1500 True 3'
}

# It writes faster than its lines are forwarded.
test_what_outlives_a_process_does_not_hold_the_end() {
    local code=0
    [ -n "${WEFT_TEST_SANITIZER:-}" ] || ulimit -v 1000000
    timeout 30 $run -n 1 sh -c 'echo first; yes & while grep -q "^wchar: 0$" /proc/$!/io; do :; done' >"$scratch/out" || code=$?
    expect code $code 0
    has output "$(grep -v y "$scratch/out")" '^\[0\] first$'
}

# Rank 1 reads another standard input.
test_all_ranks_have_as_many_descriptors() {
    got=$($run -n 2 --plain sh -c 'set -- /proc/$$/fd/*; echo $#' </dev/null | sort -u | wc -l)
    expect numbers "$got" 1
}

test_rank_0_reads_our_input() {
    expect output "$(echo hello | $run -n 2 cat)" '[0] hello'
}

test_plain_has_no_prefixes() {
    expect output "$($run -n 2 --plain echo x | sort -u)" x
}

test_exit_codes() {
    expect success "$(exit_code $run -n 2 true)" 0
    expect 'an exit code' "$(exit_code $run -n 2 sh -c 'exit 7')" 7
    expect 'a signal' "$(exit_code $run -n 1 sh -c 'kill -9 $$')" 137
    expect 'no such program' "$(exit_code $run -n 2 ./no-such-program)" 127
    expect 'not a program' "$(exit_code $run -n 1 /dev/null)" 126
    code=0
    $run -n 1 --plain ./no-such-program 2>&- || code=$?
    expect 'no such program, and no standard error' $code 127
    expect 'bad usage' "$(exit_code $run -n 0 true)" 2
    expect 'bad usage' "$(exit_code $run -n 2)" 2
    expect timeout "$(exit_code $run -n 2 --timeout 0.2 sleep 30)" 124
}

test_the_first_failure_gives_the_code() {
    expect code "$(exit_code $run -n 3 sh -c 'if [ $WEFT_RUN_RANK = 1 ]; then exit 5; fi; sleep 30; exit 6')" 5
}

test_the_death_of_one_ends_all() {
    # Rank 2 dies when all have begun.
    : >"$scratch/pids"
    $run -n 3 sh -c "echo \$\$ >>$scratch/pids
        [ \$WEFT_RUN_RANK = 2 ] && { until [ \$(wc -l <$scratch/pids) = 3 ]; do sleep 0.02; done; kill -9 \$\$; }
        exec sleep 60" \
        2>"$scratch/err" && return 1
    has 'the message' "$(cat "$scratch/err")" 'rank 2 .*signal 9.*ending the others'
    for pid in $(cat "$scratch/pids"); do
        ! kill -0 "$pid" 2>/dev/null || fail "$pid still runs"
    done
}

# The others end when weft-run has reported rank 1.
test_the_others_keep_going_where_asked() {
    body='case $WEFT_RUN_RANK in 1) kill -9 $$ ;; 2) eval "$0" ;; esac; until grep -q "rank 1 " "$1"; do sleep 0.02; done; echo done'
    got=$($run -n 4 --keep-going sh -c "$body" true "$scratch/err" 2>"$scratch/err" | sort)
    expect output "$got" "$(printf '[%s] done\n' 0 2 3)"
    has 'the message' "$(cat "$scratch/err")" 'rank 1 .*signal 9.*the others go on'
    expect 'one killed' "$(exit_code $run -n 4 --keep-going sh -c "$body" true "$scratch/err")" 0
    expect 'one killed, one failed' "$(exit_code $run -n 4 --keep-going sh -c "$body" 'exit 5' "$scratch/err")" 5
    expect 'all killed' "$(exit_code $run -n 2 --keep-going sh -c 'kill -9 $$')" 137
    expect timeout "$(exit_code $run -n 2 --keep-going --timeout 0.2 sleep 30)" 124
}

# A team of the processes that are left finishes its work (examples/shrink.c).
test_survivors_shrink_and_finish() {
    expect code "$(exit_code $run -n 4 --timeout 60 "$bin/examples/shrink")" 137
    got=$($run -n 4 --keep-going --timeout 60 "$bin/examples/shrink")
    expect members "$(grep -c 'of 3 now, and the sum is 3$' <<<"$got")" 3
}

test_who_ignores_the_request_is_killed() {
    begin=$(date +%s%N)
    code=$(exit_code $run -n 2 bash -c 'trap "" TERM
        [ $WEFT_RUN_RANK = 0 ] || : >"$0"
        while [ $WEFT_RUN_RANK = 1 ] || [ ! -e "$0" ]; do sleep 0.05; done
        exit 3' "$scratch/ignores")
    expect code "$code" 3
    ms=$((($(date +%s%N) - begin) / 1000000))
    # The clock of weft-run may be a faster one (tests/support/slow_clock.c).
    [ $ms -ge $((1900 / ${WEFT_TEST_SLOW_CLOCK:-1})) ] && [ $ms -lt 60000 ] || fail "$ms ms, where the grace is 2 s"
}

test_an_interrupt_ends_the_job() {
    $run -n 2 sh -c "echo \$\$ >>$scratch/ipids; exec sleep 60" &
    wait_for eval "[ \$(wc -l <$scratch/ipids) = 2 ]"
    kill -INT $!
    code=0
    wait $! || code=$?
    expect code $code 130
    for pid in $(cat "$scratch/ipids"); do
        ! kill -0 "$pid" 2>/dev/null || fail "$pid still runs"
    done
}

test_nohup_outlives_a_hangup() {
    (trap '' HUP && exec $run -n 2 --plain sh -c "echo \$\$ >>$scratch/hpids; until [ -e $scratch/end ]; do sleep 0.02; done; echo end") >"$scratch/out" &
    wait_for eval "[ \$(wc -l <$scratch/hpids) = 2 ]"
    kill -HUP $!
    sleep 0.2
    : >"$scratch/end"
    wait $!
    expect output "$(sort -u "$scratch/out")" end
}

test_children_do_not_outlive_weft_run() {
    $run -n 2 sh -c "echo \$\$ >>$scratch/opids; exec sleep 60" &
    wait_for eval "[ \$(wc -l <$scratch/opids) = 2 ]"
    kill -KILL $!
    wait $! || true
    none_lives() {
        local pid
        for pid in $(cat "$scratch/opids"); do
            case $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) in '' | Z*) ;; *) return 1 ;; esac
        done
    }
    wait_for none_lives
}

test_processes_find_each_other() {
    for n in 1 2 5; do
        got=$($run -n $n --timeout 60 "$bin/examples/allreduce")
        has "with $n" "$got" "1000 numbers of $n processes.* 0 wrong"
    done
}

test_a_job_without_descriptors_says_so() {
    for n in 4 5 6 7 8; do
        code=0
        bash -c "ulimit -n $n; exec $run -n 1 true" 2>"$scratch/err" </dev/null || code=$?
        expect "$n descriptors" $code 126
        expect "$n descriptors" "$(wc -l <"$scratch/err")" 1
        has "$n descriptors" "$(cat "$scratch/err")" '^weft-run: .*: Too many open files$'
    done
}

# The processes begin with the limit that was set.
test_a_job_may_have_more_descriptors_than_the_limit_at_first() {
    local hard
    hard=$(ulimit -Hn)
    [ "$hard" = unlimited ] || [ "$hard" -gt 200 ] || return 0
    expect limit "$(ulimit -Sn 64 && $run -n 30 --plain sh -c 'ulimit -Sn' | sort | uniq -c | tr -s ' ')" ' 30 64'
}

test_a_broken_environment_is_notified() {
    for broken in WEFT_RUN_RANK=1 'WEFT_RUN_FD=0 WEFT_RUN_RANK=0 WEFT_RUN_SIZE=2' \
        'WEFT_RUN_FD=x WEFT_RUN_RANK=0 WEFT_RUN_SIZE=2' 'WEFT_RUN_FD=3 WEFT_RUN_RANK=2 WEFT_RUN_SIZE=2'; do
        code=0
        env $broken "$bin/examples/allreduce" 2>"$scratch/err" </dev/null || code=$?
        expect "$broken" $code 1
        has "$broken" "$(cat "$scratch/err")" 'WEFT_RUN_'
    done
}

run_tests

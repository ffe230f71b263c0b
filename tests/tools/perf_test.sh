#!/bin/bash
# weft-perf: every test gives a result that parses and makes sense. Its figures are the bench's affair.
. tests/check.sh
perf=$bin/tools/weft-perf
export WEFT_CONNECT_TIMEOUT=60s # many processes poll, each when it has a core

# check_json FILE TEST TRANSPORT MODE SIZES…
check_json() {
    python3 - "$@" <<'PY'
import json, sys
path, test, transport, mode, sizes = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], list(map(int, sys.argv[5:]))
rows = [json.loads(line) for line in open(path)]
assert [r["size"] for r in rows] == sizes, rows
for r in rows:
    always = ["test", "size", "transport", "mode", "ranks", "p50_us", "p99_us", "avg_us", "mmsg_s", "gb_s", "cpu_pct"]
    assert list(r)[:len(always)] == always, r
    assert (r["test"], r["mode"]) == (test, mode), r
    assert transport == "auto" or r["transport"] == transport, r
    assert 0 < r["p50_us"] <= r["p99_us"] and r["avg_us"] > 0, r
    assert r["mmsg_s"] > 0 and (r["gb_s"] > 0 or r["size"] == 0) and r["cpu_pct"] >= 0, r
PY
}

# check_notes TEXT…: what else the first row tells, as Python on r
check_notes() {
    local text
    for text in "$@"; do
        python3 -c 'import json, sys; r = json.loads(open(sys.argv[1]).readline()); assert eval(sys.argv[2]), r' "$scratch/rows" "$text"
    done
}

# measure TEST TRANSPORT MODE SIZE SIZES…
measure() {
    timeout 200 $perf --test $1 --transport $2 --mode $3 --size $4 --seconds 0.02 --json >"$scratch/rows"
    check_json "$scratch/rows" $1 $2 $3 "${@:5}"
}

test_messages_over_every_transport() {
    for transport in self shm tcp; do
        for test in am_lat am_rate am_bw tag_lat tag_rate tag_bw; do
            measure $test $transport poll 8 8
        done
    done
}

test_messages_out_of_either_memory() {
    local options
    for options in "--memory own" --fresh "--memory own --fresh"; do
        for test in am_lat tag_lat tag_bw; do
            timeout 200 $perf --test $test --transport shm --size 64k --seconds 0.02 $options --json >"$scratch/rows"
            check_json "$scratch/rows" $test shm poll 65536
        done
    done
    expect 'a memory that is none' "$($perf --test am_lat --memory some 2>&1 | head -1)" \
        "weft-perf: --memory some: exposed, own, sent, received, cuda, managed or pinned"
}

# With the double of the CUDA driver, whose device memory faults when the host touches it.
test_messages_out_of_memory_of_the_cuda_driver() {
    local double kind test
    double=$(cuda_double)
    for kind in cuda managed pinned; do
        for test in am_lat tag_bw stream_bw put_bw get_lat allreduce; do
            LD_LIBRARY_PATH=$double timeout 200 $perf --test $test --size 8k --seconds 0.02 --memory $kind --json >"$scratch/rows"
            check_json "$scratch/rows" $test auto poll 8192
        done
    done
    expect fresh "$($perf --test am_lat --memory cuda --fresh 2>&1 | head -1)" \
        "weft-perf: am_lat: the processor writes what is sent: memory of the host only"
}

# What tests/cuda/run measures on a GPU, in small sizes.
test_the_figures_of_device_memory() {
    local part
    for part in figures settings; do
        LD_LIBRARY_PATH=$(cuda_double) timeout 200 $bin/tools/gpu-measure --quick $part "$scratch"
    done
    python3 - "$scratch" <<'PY'
import json, sys
for part in ("figures", "settings"):
    report = json.load(open("%s/%s.json" % (sys.argv[1], part)))
    figures = {f["name"]: f for f in report["figures"]}
    assert all(f["value"] > 0 for f in figures.values()), figures
    goals = {name for name, f in figures.items() if "goal" in f}
    for name in goals:
        f = figures[name]
        at_most = f["unit"] != "GB/s"
        assert f["met"] == (f["ratio"] <= f["goal"] if at_most else f["ratio"] >= f["goal"]), f
    if part == "figures":
        # With all digits: a rounded one may meet a goal that the ratio itself misses.
        assert any(figures[name]["ratio"] != round(figures[name]["ratio"], 3) for name in goals), goals
        assert {"two processes, device to device, 64 MiB", "8 B in device memory", "host to device, 16 MiB",
                "processor time of messages of 1 GiB, both processes"} <= goals, goals
    else:
        assert not goals and len(figures) >= 3, figures
PY
    expect table "$(grep -c '^| driver: ' "$scratch/figures.md")" 3
    expect usage "$(exit_code $bin/tools/gpu-measure "$scratch")" 1
}

test_the_other_sides_memory() {
    local test
    for transport in self shm tcp; do
        for test in put_lat get_lat atomic_lat atomic_rate; do
            measure $test $transport poll 8 8
        done
        for test in put_bw get_bw; do
            measure $test $transport poll 64-128 64 128
        done
        measure atomic_rate $transport poll 4 4
    done
    measure put_lat shm poll 8 8
    check_notes 'r["mapped"] == 1'
    measure put_bw tcp poll 256k 262144
    check_notes 'r["mapped"] == 0'
    measure get_lat tcp sleep 8 8
}

test_streams() {
    for transport in self shm tcp; do
        measure stream_bw $transport poll 1k 1024
    done
    measure stream_bw shm sleep 256k 262144
}

test_large_messages() {
    for transport in shm tcp; do
        measure am_lat $transport poll 256k 262144
        measure tag_bw $transport poll 256k 262144
    done
}

test_one_at_a_time() {
    for test in tag_bw am_rate put_bw get_bw stream_bw; do
        timeout 200 $perf --test $test --transport shm --size 64k --window 1 --seconds 0.02 --json >"$scratch/rows"
        check_json "$scratch/rows" $test shm poll 65536
    done
}

test_sleeping() {
    for transport in shm tcp; do
        measure am_lat $transport sleep 8 8
        measure tag_bw $transport sleep 1k 1024
    done
}

test_waiting() {
    for transport in shm tcp; do
        measure wait_lat $transport wait 8 8
        measure am_rate $transport wait 8 8
    done
}

# many TEST TRANSPORT OPTIONS…
many() {
    timeout 200 $perf --test $1 --transport $2 --seconds 0.02 --json "${@:3}" >"$scratch/rows"
    check_json "$scratch/rows" $1 $2 poll 0
}

test_many_endpoints() {
    for transport in self shm tcp; do
        many connect_rate $transport --count 200
        check_notes 'r["endpoints"] == 200' 'r["links"] == 1' 'r["per_s"] > 0' 'abs(r["fds"]) < 0.1' 'abs(r["peer_fds"]) < 0.1'
    done
    many ep_memory shm --count 2000
    check_notes '0 < r["bytes"] < 10000' '0 < r["peer_bytes"] < 10000'
}

test_many_links() {
    for transport in shm tcp; do
        many connect_rate $transport --links 20
        check_notes 'r["endpoints"] == r["links"] == 20' 'r["per_s"] > 0' 'abs(r["avg_us"] * r["per_s"] / 1e6 - 1) < 0.001' '0.9 < r["fds"] < 4' '0.9 < r["peer_fds"] < 4'
        many poll_cost $transport --links 20
    done
    many poll_cost shm --links 1
    check_notes 'r["links"] == 1'
}

test_a_server_and_its_clients() {
    for transport in shm tcp; do
        measure server $transport poll 64 64
        measure server $transport sleep 64 64
        check_notes 'r["clients"] == 64' 'r["per_s"] > 0' 'r["server_cpu_pct"] >= 0'
    done
}

test_idle_clients() {
    for transport in shm tcp; do
        timeout 200 $perf --test idle --transport $transport --count 8 --seconds 0.1 --json >"$scratch/rows"
        check_notes 'r["mode"] == "wait"' 'r["clients"] == 8' 'r["server_cpu_pct"] < 50'
    done
}

test_collectives() {
    for test in allreduce bcast allgather; do
        measure $test auto poll 8-32 8 16 32
    done
    measure alltoallv auto poll 8-16 8 16
    for test in barrier fanin fanout; do
        measure $test auto sleep 8 0
    done
    measure allreduce self poll 8 8
}

test_persistent_collectives() {
    for test in allreduce bcast barrier alltoall; do
        timeout 200 $perf --test $test --persistent --ranks 3 --size 8 --seconds 0.02 --json >"$scratch/rows"
        check_json "$scratch/rows" $test auto poll $([ $test = barrier ] && echo 0 || echo 8)
    done
    expect 'a persistent message' "$(exit_code $perf --test am_lat --persistent)" 2
}

# Each rank checks that the last operation brought what was written before it. A broadcast to nobody
# copies nothing: what it takes is the writing of 16 MiB.
test_collectives_of_what_was_just_written() {
    local test options
    for test in allreduce bcast allgather reduce gather scatter alltoall alltoallv reduce_scatter; do
        for options in "--size 8" "--size 13" "--size 64k" "--size 32 --persistent --mode wait"; do
            timeout 200 $perf --test $test --fresh --ranks 3 --seconds 0.02 $options --json >"$scratch/rows"
            check_notes 'r["test"] == "'$test'"' 'r["p50_us"] > 0'
        done
    done
    for test in allgatherv gatherv scatterv reduce_scatterv scan exscan neighbor_alltoallv; do
        for options in "--size 13" "--size 64k --persistent --mode wait"; do
            timeout 200 $perf --test $test --fresh --ranks 3 --seconds 0.01 $options --json >"$scratch/rows"
            check_notes 'r["test"] == "'$test'"' 'r["p50_us"] > 0'
        done
    done
    for options in "" --fresh; do
        timeout 200 $perf --test bcast --ranks 1 --size 16m --seconds 0.02 $options --json >"$scratch/bcast$options"
    done
    python3 -c 'import json, sys; kept, written = (json.load(open(f))["p50_us"] for f in sys.argv[1:]); assert written > 10 * kept, sys.argv' \
        "$scratch/bcast" "$scratch/bcast--fresh"
    expect 'a barrier of nothing' "$($perf --test barrier --fresh 2>&1 | head -1)" \
        "weft-perf: barrier: --fresh writes messages, and what a rank gives to a collective"
}

test_more_ranks_than_cores() {
    timeout 200 $perf --test allreduce --ranks 5 --size 64 --seconds 0.05 --json >"$scratch/rows"
    check_json "$scratch/rows" allreduce auto poll 64
}

test_a_sweep_is_drawn() {
    timeout 200 $perf --test am_lat --size 1-64 --seconds 0.01 --plot "$scratch/sweep.svg" >"$scratch/table"
    has 'the table' "$(cat "$scratch/table")" '^test +size'
    expect rows "$(grep -c '^am_lat ' "$scratch/table")" 7
    python3 -c "
import sys, xml.dom.minidom
svg = xml.dom.minidom.parse('$scratch/sweep.svg')
assert len(svg.getElementsByTagName('circle')) == 14"
}

test_both_sides_run_apart() {
    for uri in tcp://127.0.0.1:0 shm://perf-test-$$; do
        rm -f "$scratch/listener" # or the URI of the turn before would be read
        timeout 200 $perf --listen $uri >"$scratch/listener" &
        wait_for grep -q '^listening at' "$scratch/listener"
        uri=$(sed -n 's/^listening at //p' "$scratch/listener")
        timeout 200 $perf --connect "$uri" --test am_lat --seconds 0.02 --json >"$scratch/rows"
        check_json "$scratch/rows" am_lat "${uri%%:*}" poll 8
        wait $!
    done
}

test_nonsense_is_refused() {
    expect 'no test' "$(exit_code $perf)" 2
    expect test "$(exit_code $perf --test am_latency)" 2
    expect size "$(exit_code $perf --test am_lat --size -8)" 2
    expect 'what is wrong with a size' "$($perf --test am_lat --size 64-8 2>&1 | head -1)" "weft-perf: --size 64-8: N or LO-HI, up to 1g"
    expect 'puts of nothing' "$($perf --test put_lat --size 0-8 2>&1 | head -1)" "weft-perf: put_lat: sizes begin at 1"
    expect 'a stream of nothing' "$(exit_code $perf --test stream_bw --size 0)" 2
    expect 'both sides' "$(exit_code $perf --test am_lat --listen shm://a --connect shm://a)" 2
    expect 'a plot that cannot be' "$($perf --test am_lat --plot "$scratch/none/plot.svg" 2>&1 | head -1)" \
        "weft-perf: --plot $scratch/none/plot.svg: No such file or directory"
    expect range "$(exit_code $perf --test am_lat --size 64-8)" 2
    expect transport "$(exit_code $perf --test am_lat --transport rdna)" 2
    expect 'wait polled' "$(exit_code $perf --test wait_lat --mode poll)" 2
    expect 'looks asleep' "$(exit_code $perf --test poll_cost --mode sleep)" 2
    expect 'puts asleep' "$(exit_code $perf --test put_lat --mode sleep)" 2
    expect 'odd atomic' "$(exit_code $perf --test atomic_lat --size 5)" 2
    expect 'no clients' "$(exit_code $perf --test server --count 0)" 2
    expect 'no window' "$(exit_code $perf --test am_rate --window 0)" 2
    expect 'ranks over self' "$(exit_code $perf --test barrier --transport self --ranks 2)" 2
    expect collective "$(exit_code $perf --test barrier --connect tcp://127.0.0.1:1)" 2
}

run_tests

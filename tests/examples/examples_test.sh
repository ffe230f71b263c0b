#!/bin/bash
# Each example does what it says, and is short.
. tests/check.sh
export HOME=${HOME:-$scratch} # Open MPI 5 asks for it
examples=$bin/examples

# Beside the others, since it lasts until the farm's deadline: rank 2 joins the team, takes a job and is killed.
# shellcheck disable=SC2016
dead_hand='if [ "$WEFT_RUN_RANK" = 2 ]; then exec timeout -s KILL 2 "$0/allreduce"; fi; exec "$0/farm"'
timeout 120 "$bin/tools/weft-run" -n 3 --keep-going sh -c "$dead_hand" "$examples" >"$scratch/dead-hand" 2>&1 &

test_the_farm_ends_when_a_process_has_died() {
    wait_for grep -q '^weft-run: rank 0 .* exited with 1' "$scratch/dead-hand"
}

test_echo_on_libev() {
    got=$(timeout 200 "$examples/echo-libev")
    has output "$got" '^answer: 64 bytes, as they were sent'
}

test_echo_on_libev_serves_messages_of_any_size() {
    for transport in tcp://127.0.0.1:0 shm://echo-$$; do
        rm -f "$scratch/server"
        timeout 200 "$examples/echo-libev" serve $transport >"$scratch/server" &
        server=$!
        wait_for grep -q '^listening at' "$scratch/server"
        uri=$(sed -n 's/^listening at //p' "$scratch/server")
        for bytes in 8 1000 65536 262144 524288 1000000 67108864; do
            has "$bytes bytes" "$(timeout 200 "$examples/echo-libev" call "$uri" $bytes)" "^answer: $bytes bytes, as they were sent"
        done
        kill $server
    done
}

# Its server hears no failure of a client that is done.
test_echo_on_libev_says_goodbye() {
    WEFT_LOG_LEVEL=warn timeout 60 "$examples/echo-libev" serve tcp://127.0.0.1:0 >"$scratch/server" 2>&1 &
    server=$!
    wait_for grep -q '^listening at' "$scratch/server"
    uri=$(sed -n 's/^listening at //p' "$scratch/server")
    for bytes in 8 1000000; do timeout 60 "$examples/echo-libev" call "$uri" $bytes >"$scratch/said"; done
    kill $server
    expect server "$(grep -v '^listening at' "$scratch/server")" ""
}

# A listener without a handler refuses a question that it would have to fetch.
test_echo_on_libev_ends_where_its_question_is_refused() {
    local code=0
    WEFT_LOG_LEVEL=none timeout 60 "$examples/stream-cat" listen tcp://127.0.0.1:0 2>"$scratch/mute" &
    wait_for grep -q 'tcp://' "$scratch/mute"
    said=$(timeout 20 "$examples/echo-libev" call "$(grep -o 'tcp://.*' "$scratch/mute")" 1000000 2>&1) || code=$?
    expect code $code 1
    has why "$said" '^question: WEFT_ERR_REJECTED'
}

test_echo_on_libev_says_what_it_takes() {
    expect code "$(exit_code timeout 20 "$examples/echo-libev" serve)" 2
}

test_shrink() {
    said=$(timeout 200 "$bin/tools/weft-run" -n 4 --keep-going "$examples/shrink")
    expect members "$(grep -c 'of 3 now, and the sum is 3$' <<<"$said")" 3
}

test_graph_ranks() {
    has alone "$(timeout 200 "$examples/graph-ranks")" '^pi is 3\.1415926536, by 1 processes$'
    has together "$(timeout 200 "$bin/tools/weft-run" -n 3 "$examples/graph-ranks")" 'pi is 3\.1415926536, by 3 processes$'
}

test_graph_cholesky() {
    has result "$(timeout 200 "$examples/graph-cholesky" "$scratch/trace")" '^largest error .*, longest chain [0-9]+ tasks$'
    python3 -c 'import json, sys; sys.exit(len(json.load(open(sys.argv[1]))["traceEvents"]) != 120)' "$scratch/trace" ||
        fail "the trace has not all tasks"
}

test_the_factor_of_a_graph_is_that_of_lapack() {
    said=$(timeout 200 "$examples/graph-cholesky")
    ! grep -q '^LAPACK is not installed$' <<<"$said" || skip "no LAPACK here"
    has LAPACK "$said" '^largest difference from LAPACK [0-9.]+e-[0-9]+$'
}

test_graph_words() {
    [ -e "$examples/graph-words" ] || skip "no C++ compiler here"
    expect words "$(timeout 200 "$examples/graph-words")" $'3 the\n2 is\n2 warp'
    tr 'a-z' 'A-Z' <README.md >"$scratch/text"
    expect first "$(timeout 200 "$examples/graph-words" "$scratch/text" | head -1)" \
        "$(tr -s ' \n\t' '\n' <"$scratch/text" | grep . | LC_ALL=C sort | uniq -c | sort -s -k1,1nr | head -1 | sed 's/^ *//')"
    has exception "$(timeout 200 "$examples/graph-words" "$examples/graph-words" 2>&1)" '^graph-words: this is no text$'
    expect "no bar in a file" "$(timeout 200 "$examples/graph-words" 2>&1 >/dev/null)" ""
    has "a bar on a terminal" "$(python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' "$examples/graph-words" | tr '\r' '\n')" \
        '^\[#+\] 100 %, [0-9]+ of [0-9]+ tasks$'
}

# With the double of the driver, which lies beside the tests.
test_gpu_pingpong() {
    has none "$(timeout 200 "$examples/gpu-pingpong")" '^(no GPU here|device memory, .* the same bytes)$'
    double=$(cuda_double)
    for bytes in 8 5000 1048576; do
        has device "$(LD_LIBRARY_PATH=$double timeout 200 "$examples/gpu-pingpong" $bytes)" \
            "^device memory, $bytes bytes, .* us a round trip, the same bytes$"
    done
    for bytes in 0 x 134217729; do
        has "$bytes" "$(LD_LIBRARY_PATH=$double timeout 200 "$examples/gpu-pingpong" $bytes)" '^1 to 134217728 bytes$'
    done
}

test_view_gpu() {
    [ -e "$examples/view-gpu" ] || skip "no C++ compiler here"
    has none "$(timeout 200 "$examples/view-gpu")" '^(not every process has a GPU|.*, shared by 1: last of the matrix 999, last sum 999)$'
    has double "$(LD_LIBRARY_PATH=$(cuda_double) timeout 200 "$bin/tools/weft-run" -n 3 "$examples/view-gpu")" \
        'a double, shared by 3: last of the matrix 2997, last sum 5994$'
}

test_echo_in_libuv() {
    [ -e "$examples/echo-libuv" ] || skip "no libuv here"
    has output "$(timeout 200 "$examples/echo-libuv")" '^answer: is anybody there'
}

test_echo_in_epoll() {
    expect answers "$(timeout 200 "$examples/echo-epoll" | grep -c '^answer: is anybody there?')" 5
}

test_threads_submit_to_a_worker_with_its_own() {
    has sum "$(timeout 200 "$examples/thread")" '^40000 numbers of 4 threads: their sum is right, 0 operations have not ended$'
}

# Two receivers have all of it, and the third, whose output is not read until then, has a beginning.
test_a_file_is_streamed_until_a_deadline() {
    [ -e "$examples/stream-file" ] || skip "no C++ compiler here"
    local uris i
    head -c 8000000 /dev/urandom >"$scratch/file"
    mkfifo "$scratch/got3"
    exec 9<>"$scratch/got3"
    for i in 1 2 3; do
        rm -f "$scratch/told$i"
        at=tcp://127.0.0.1:0
        [ $i = 1 ] && at=shm://stream-file-$$
        timeout 200 "$examples/stream-file" receive $at >"$scratch/got$i" 2>"$scratch/told$i" 9<&- &
        receivers[i]=$!
        wait_for grep -q '^listening at' "$scratch/told$i"
        uris[i]=$(sed -n 's/^listening at //p' "$scratch/told$i")
    done
    timeout 200 "$examples/stream-file" send "$scratch/file" 5000 "${uris[@]}" >"$scratch/sent" || fail "the sender failed"
    has sent "$(sed -n 3p "$scratch/sent")" '^[0-9]+ of 8000000 WEFT_ERR_TIMED_OUT$'
    timeout 200 cat <"$scratch/got3" >"$scratch/beginning" 9<&- &
    reader=$!
    exec 9<&-
    for i in 1 2 3; do wait "${receivers[i]}" || fail "$(cat "$scratch/told$i")"; done
    wait $reader
    for i in 1 2; do cmp "$scratch/file" "$scratch/got$i"; done
    cmp -n "$(wc -c <"$scratch/beginning")" "$scratch/file" "$scratch/beginning"
    has third "$(cat "$scratch/told3")" "^$(wc -c <"$scratch/beginning") of 8000000: the sender gave up"
}

# Four servers add up their questions beside their work, and end together.
test_allreduce_in_a_loop() {
    rm -f "$scratch/told"
    timeout 120 "$bin/tools/weft-run" -n 4 "$examples/allreduce-loop" >"$scratch/told" &
    servers=$!
    four_listen() { [ "$(grep -c 'listening at' "$scratch/told")" = 4 ]; }
    wait_for four_listen
    for uri in $(grep -o 'tcp://.*' "$scratch/told"); do
        for _ in 1 2 3; do
            has "$uri" "$(timeout 200 "$examples/allreduce-loop" ask "$uri")" '^[0-9]+ questions to all servers$'
        done
    done
    all_counted() { [ "$(timeout 200 "$examples/allreduce-loop" ask "$uri" | cut -d' ' -f1)" -ge 12 ]; }
    wait_for all_counted
    timeout 200 "$examples/allreduce-loop" stop "$uri" || fail "no server was asked to stop"
    wait $servers || fail "a server failed"
}

# While one is stopped the others are in the middle of a round, which writes parts of a sum into its buffer.
test_an_answer_is_the_sum_of_a_whole_round() {
    export WEFT_TRANSPORTS=self,tcp WEFT_LANES_CROSS_TRANSPORT=off
    rm -f "$scratch/told"
    timeout 120 "$bin/tools/weft-run" -n 4 "$examples/allreduce-loop" >"$scratch/told" &
    servers=$!
    four_listen() { [ "$(grep -c 'listening at' "$scratch/told")" = 4 ]; }
    wait_for four_listen
    ask() { timeout 200 "$examples/allreduce-loop" ask "$1" | cut -d' ' -f1; }
    local uri uris=($(grep '^.3.' "$scratch/told" | grep -o 'tcp://.*') $(grep -v '^.3.' "$scratch/told" | grep -o 'tcp://.*'))
    for uri in "${uris[@]}"; do
        for _ in 1 2 3; do ask "$uri" >/dev/null; done
    done
    all_counted() { [ "$(ask "$uri")" -ge 12 ]; }
    for uri in "${uris[@]}"; do wait_for all_counted; done
    run=$(cat "/proc/$servers/task/$servers/children")
    last=$(cat /proc/${run% }/task/*/children | tr ' ' '\n' | grep . | tail -1)
    kill -STOP "$last"
    for _ in 1 2; do # the first one also waits for the round to begin
        for uri in "${uris[@]:1}"; do [ "$(ask "$uri")" -ge 12 ] || fail "a part of a sum"; done
        sleep 0.3
    done
    kill -CONT "$last"
    timeout 200 "$examples/allreduce-loop" stop "$uri" || fail "no server was asked to stop"
    wait $servers || fail "a server failed"
}

# A server that dies with its 500th question, and another one at its place.
# A connect that comes before the next server listens is refused, and counted as lost.
test_a_client_goes_on_with_the_next_server() {
    rm -f "$scratch/told"
    (
        timeout 200 "$examples/failover-echo" serve tcp://127.0.0.1:0 500 >"$scratch/told" || true
        exec timeout 200 "$examples/failover-echo" serve "$(sed -n 's/^listening at //p' "$scratch/told")"
    ) >"$scratch/next" 2>&1 &
    servers=$!
    wait_for grep -q '^listening at' "$scratch/told"
    has output "$(timeout 200 "$examples/failover-echo" call "$(sed -n 's/^listening at //p' "$scratch/told")" 1000)" \
        '^1000 answers, 0 wrong; 0 connections survived, [1-9][0-9]* endpoints lost$'
    kill $servers
}

# Through a proxy that cuts each connection after some bytes. All stay on tcp, where there is a connection to cut.
test_an_endpoint_survives_its_connections() {
    export WEFT_TRANSPORTS=self,tcp
    rm -f "$scratch"/{told,proxy}
    timeout 200 "$examples/failover-echo" serve tcp://127.0.0.1:0 >"$scratch/told" &
    server=$!
    wait_for grep -q '^listening at' "$scratch/told"
    python3 tests/examples/cutting_proxy.py "$(sed -n 's/^listening at tcp:..127.0.0.1://p' "$scratch/told")" 20000 >"$scratch/proxy" &
    proxy=$!
    wait_for grep -q . "$scratch/proxy"
    has output "$(timeout 200 "$examples/failover-echo" call "tcp://127.0.0.1:$(cat "$scratch/proxy")" 3000)" \
        '^3000 answers, 0 wrong; [1-9][0-9]* connections survived, 0 endpoints lost$'
    kill $server $proxy
}

test_pingpong() {
    has shm "$(timeout 200 "$examples/pingpong" 1000)" '^shm://.*1000 round trips'
    has tcp "$(timeout 200 "$examples/pingpong" 100 tcp://127.0.0.1:0)" '^tcp://.*100 round trips'
}

test_stream_cat() {
    head -c 3000000 /dev/urandom >"$scratch/sent"
    for uri in tcp://127.0.0.1:0 shm://stream-cat-$$; do
        rm -f "$scratch/told"
        timeout 200 "$examples/stream-cat" listen "$uri" </dev/null >"$scratch/received" 2>"$scratch/told" &
        wait_for grep -q '^listening at' "$scratch/told"
        timeout 200 "$examples/stream-cat" "$(sed -n 's/^listening at //p' "$scratch/told")" <"$scratch/sent" ||
            fail "the caller of $uri"
        wait $! || fail "the listener at $uri"
        cmp "$scratch/sent" "$scratch/received" || fail "other bytes came over $uri"
    done
}

test_stream_cat_both_ways() {
    rm -f "$scratch"/{told,received,back}
    echo there | timeout 200 "$examples/stream-cat" listen >"$scratch/received" 2>"$scratch/told" &
    wait_for grep -q '^listening at' "$scratch/told"
    (echo here; wait_for grep -q there "$scratch/back") |
        timeout 200 "$examples/stream-cat" "$(sed -n 's/^listening at //p' "$scratch/told")" >"$scratch/back"
    has back "$(cat "$scratch/back")" '^there$'
    wait_for grep -q '^here$' "$scratch/received"
}

test_bulletin() {
    for uri in tcp://127.0.0.1:0 shm://bulletin-$$; do
        rm -f "$scratch/told"
        timeout 200 "$examples/bulletin" keep "$uri" 3 >"$scratch/board" 2>"$scratch/told" &
        keeper=$!
        wait_for grep -q '^listening at' "$scratch/told"
        for writer in ann bob eve; do
            timeout 200 "$examples/bulletin" "$(sed -n 's/^listening at //p' "$scratch/told")" $writer-{1,2,3,4} &
        done
        wait $keeper || fail "the keeper of $uri"
        expect "the board of $uri" "$(sort "$scratch/board" | tr '\n' ' ')" "$(echo {ann,bob,eve}-{1,2,3,4}) "
    done
}

test_allreduce() {
    has alone "$("$examples/allreduce")" 'of 1 processes.* 0 wrong'
    has together "$("$bin/tools/weft-run" -n 4 --timeout 60 "$examples/allreduce")" '^\[0\] .*of 4 processes.* 0 wrong'
}

test_farm() {
    has farm "$("$bin/tools/weft-run" -n 4 --timeout 60 "$examples/farm")" '^\[0\] 1000 squares by 3 processes, 0 wrong'
}

test_shared_worker() {
    local got
    got=$(timeout 200 "$examples/shared-worker")
    has before "$got" '^the library asks: WEFT_ERR_NOT_ASSOCIATED'
    has lease "$got" '^its ids 0 … 63 are 512 … 575 of the worker'
    has messages "$got" '^the program got 1, the library 2'
    has after "$got" '^the library asks: WEFT_ERR_DISASSOCIATED'
}

test_shared_team() {
    local got
    got=$("$bin/tools/weft-run" -n 3 --timeout 60 "$examples/shared-team")
    for rank in 0 1 2; do
        has "rank $rank" "$got" "^\[$rank\] rank $rank of 3: the next one has $(((rank + 1) % 3 + 1)), all have 6$"
        has "after, rank $rank" "$got" "^\[$rank\] the library asks: WEFT_ERR_DISASSOCIATED$"
        has "end, rank $rank" "$got" "^\[$rank\] given back$"
    done
    has alone "$(timeout 200 "$examples/shared-team")" '^rank 0 of 1: the next one has 1, all have 1$'
}

test_own_kind() {
    local got
    got=$("$examples/own-kind")
    has places "$got" '^a library has a place; 4 of 4 are taken'
    has refused "$got" '^2 libraries were refused'
    has after "$got" '^0 are taken, and the pool is free'
}

test_own_loop() {
    local got
    got=$(timeout 200 "$examples/own-loop")
    has socket "$got" '^received: by my socket'
    has after "$got" '^given back'
}

test_own_socket() {
    local got
    got=$(timeout 200 "$examples/own-socket")
    has message "$got" '^received: by my socket$'
    has after "$got" "^the stream has ended, and the socket is the program's$"
}

# A message where there is a device (the emulated machine; tests/rdma/tools_test), and the reason where there is none.
test_own_verbs() {
    has verbs "$(timeout 200 "$examples/own-verbs")" '^taken back, and destroyed|^no RDMA device|^built without RDMA'
}

# Within one process, and by the launcher of each MPI that is here.
test_own_mpi() {
    has none "$("$examples/own-mpi" no-mpi.so)" '^no MPI here: no-mpi.so is not installed$'
    [ -z "${WEFT_TEST_SANITIZER:-}" ] || skip "MPI keeps memory that a sanitizer reports"
    command -v mpirun.mpich >/dev/null || skip "no MPICH here"
    mpi_example mpirun.mpich -n 3 "$examples/own-mpi" libmpich.so.12
}

# Open MPI 4 has to find its libevent before libev (docs/view.md).
test_own_mpi_by_openmpi() {
    [ -z "${WEFT_TEST_SANITIZER:-}" ] || skip "MPI keeps memory that a sanitizer reports"
    command -v mpirun.openmpi >/dev/null || skip "no Open MPI here"
    has "the hint" "$("$examples/own-mpi" || true)" '^this MPI needs LD_PRELOAD=libevent_core'
    mpi_example mpirun.openmpi --allow-run-as-root --oversubscribe -x LD_PRELOAD=libevent_core-2.1.so.7:libevent_pthreads-2.1.so.7 \
        -n 3 "$examples/own-mpi"
}

# mpi_example COMMAND…: three processes have the ranks of MPI. MPICH may join their lines.
mpi_example() {
    local got
    got=$(timeout 120 "$@" 2>&1) || fail "$*: $got"
    for rank in 0 1 2; do
        has "rank $rank" "$got" "rank $rank of 3: the sum of all is 6"
        has "end, rank $rank" "$got" "rank $rank: given back"
    done
}

test_own_ucx() {
    local got
    got=$(timeout 200 "$examples/own-ucx")
    ! grep -q '^no UCX here' <<<"$got" || skip "libucp.so.0 is not installed"
    has Weft "$got" '^received by Weft: by one waiter$'
    has UCX "$got" '^received by UCX: by one waiter$'
    has after "$got" '^given back, and destroyed$'
}

test_own_cuda() {
    local got
    has none "$(timeout 200 "$examples/own-cuda")" '^(no CUDA driver here: |the CUDA driver finds no device here$|given back, and destroyed$)'
    got=$(LD_LIBRARY_PATH=$(cuda_double) timeout 200 "$examples/own-cuda")
    has message "$got" '^received: what the stream wrote$'
    has after "$got" '^given back, and destroyed$'
}

test_each_is_under_110_lines() {
    for file in examples/*.c; do
        [ "$(wc -l <"$file")" -lt 110 ] || fail "$file has $(wc -l <"$file") lines"
    done
}

run_tests

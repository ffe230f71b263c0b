#!/bin/bash
# Each example does what it says, and is short.
. tests/check.sh
examples=$bin/examples

test_echo_on_libev() {
    got=$(timeout 20 "$examples/echo-libev")
    has output "$got" '^answer: is anybody there'
}

test_echo_on_libev_serves_another_process() {
    timeout 20 "$examples/echo-libev" serve tcp://127.0.0.1:0 >"$scratch/server" &
    wait_for grep -q '^listening at' "$scratch/server"
    uri=$(sed -n 's/^listening at //p' "$scratch/server")
    for i in 1 2 3; do
        has output "$(timeout 20 "$examples/echo-libev" call "$uri")" '^answer: is anybody there'
    done
    kill $!
}

test_echo_in_libuv() {
    has output "$(timeout 20 "$examples/echo-libuv")" '^answer: is anybody there'
}

test_pingpong() {
    has shm "$(timeout 20 "$examples/pingpong" 1000)" '^shm://.*1000 round trips'
    has tcp "$(timeout 20 "$examples/pingpong" 100 tcp://127.0.0.1:0)" '^tcp://.*100 round trips'
}

test_stream_cat() {
    head -c 3000000 /dev/urandom >"$scratch/sent"
    for uri in tcp://127.0.0.1:0 shm://stream-cat-$$; do
        rm -f "$scratch/told"
        timeout 20 "$examples/stream-cat" listen "$uri" </dev/null >"$scratch/received" 2>"$scratch/told" &
        wait_for grep -q '^listening at' "$scratch/told"
        timeout 20 "$examples/stream-cat" "$(sed -n 's/^listening at //p' "$scratch/told")" <"$scratch/sent" ||
            fail "the caller of $uri"
        wait $! || fail "the listener at $uri"
        cmp "$scratch/sent" "$scratch/received" || fail "other bytes came over $uri"
    done
}

test_stream_cat_both_ways() {
    rm -f "$scratch"/{told,received,back}
    echo there | timeout 20 "$examples/stream-cat" listen >"$scratch/received" 2>"$scratch/told" &
    wait_for grep -q '^listening at' "$scratch/told"
    (echo here; wait_for grep -q there "$scratch/back") |
        timeout 20 "$examples/stream-cat" "$(sed -n 's/^listening at //p' "$scratch/told")" >"$scratch/back"
    has back "$(cat "$scratch/back")" '^there$'
    wait_for grep -q '^here$' "$scratch/received"
}

test_bulletin() {
    for uri in tcp://127.0.0.1:0 shm://bulletin-$$; do
        rm -f "$scratch/told"
        timeout 20 "$examples/bulletin" keep "$uri" 3 >"$scratch/board" 2>"$scratch/told" &
        keeper=$!
        wait_for grep -q '^listening at' "$scratch/told"
        for writer in ann bob eve; do
            timeout 20 "$examples/bulletin" "$(sed -n 's/^listening at //p' "$scratch/told")" $writer-{1,2,3,4} &
        done
        wait $keeper || fail "the keeper of $uri"
        expect "the board of $uri" "$(sort "$scratch/board" | tr '\n' ' ')" "$(echo {ann,bob,eve}-{1,2,3,4}) "
    done
}

test_allreduce() {
    has alone "$("$examples/allreduce")" 'of 1 processes.* 0 wrong'
    has together "$("$bin/tools/weft-run" -n 4 --timeout 20 "$examples/allreduce")" '^\[0\] .*of 4 processes.* 0 wrong'
}

test_farm() {
    has farm "$("$bin/tools/weft-run" -n 4 --timeout 20 "$examples/farm")" '^\[0\] 1000 squares by 3 processes, 0 wrong'
}

test_each_is_under_100_lines() {
    for file in examples/*.c; do
        [ "$(wc -l <"$file")" -lt 100 ] || fail "$file has $(wc -l <"$file") lines"
    done
}

run_tests

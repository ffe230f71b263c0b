#!/bin/bash
# The demonstration job on a small input: right for any number of processes, and wrong when it should be.
. tests/check.sh
run=$bin/tools/weft-run count=$bin/tools/wordcount
text=$scratch/text
mkdir -p "$text/deeper"
for i in $(seq 40); do
    echo "The quick brown fox jumps over the lazy dog; and Word$i, $i times and-again. naïve Ünïcode"
    seq $i | sed 's/.*/tick tock/'
done >"$text/one"
head -c 30000 "$text/one" >"$text/two"
printf 'no end of line, no end' >"$text/deeper/three"
head -c 3000 /dev/zero | tr '\0' x >"$text/deeper/long"
: >"$text/empty"

# The same by other means: lower case, words one a line, counted.
top=$(cat "$text/one" "$text/two" "$text/deeper/three" | LC_ALL=C tr 'A-Z' 'a-z' | LC_ALL=C tr -cs 'a-z\200-\377' '\n' |
    grep . | LC_ALL=C sort | uniq -c | sort -k1,1nr -k2 | awk 'NR <= 5 {print $2, $1}')

# count_with N OPTIONS…
count_with() {
    timeout 200 $run -n $1 --timeout 50 --plain "$count" "${@:2}" "$text"
}

test_the_top_is_right() {
    got=$(count_with 4)
    expect top "$(awk '$1 ~ /^[1-5]$/ {print $2, $3}' <<<"$got" | head -5)" "$top"
    has check "$got" '^check: equal to a serial count'
    has traffic "$got" '^self: [0-9]+ messages, [0-9]+ bytes'
}

test_any_number_of_processes() {
    words=$(count_with 1 | grep -oE '^[0-9]+ words, [0-9]+ different')
    for n in 2 3 16; do
        expect "with $n" "$(count_with $n | grep -oE '^[0-9]+ words, [0-9]+ different')" "$words"
    done
}

test_the_transport_is_the_one_asked_for() {
    for transport in shm tcp; do
        got=$(count_with 3 --transport $transport)
        has traffic "$got" "^$transport: [1-9][0-9]* messages"
        others=$(grep -E '^(shm|tcp): ' <<<"$got" | grep -v "^$transport" || true)
        expect 'other transports' "$others" ''
    done
}

test_a_miscount_is_found() {
    code=0
    count_with 3 --corrupt 1 >"$scratch/out" 2>"$scratch/err" || code=$?
    expect code $code 1
    has output "$(cat "$scratch/out")" '^check: DIFFERENT'
    has errors "$(cat "$scratch/err")" 'fingerprint'
}

test_it_starts_its_own_processes() {
    has output "$(timeout 200 "$count" -n 2 "$text")" 'by 2 processes'
}

test_a_missing_file_is_notified() {
    code=0
    timeout 200 "$count" "$text/no-such" >/dev/null 2>"$scratch/err" || code=$?
    expect code $code 1
    has errors "$(cat "$scratch/err")" 'no-such'
}

# A path that is too long cannot be read by root either.
test_a_folder_that_cannot_be_read_is_notified() {
    local name code=0
    name=$(printf '%0250d' 0)
    mkdir "$scratch/deep"
    (cd "$scratch/deep" && echo here >file && for _ in $(seq 20); do mkdir "$name" && cd "$name"; done)
    timeout 200 "$count" "$scratch/deep" >/dev/null 2>"$scratch/err" || code=$?
    expect code $code 1
    has errors "$(cut -c 1-100 "$scratch/err")" '/deep/0000'
    has errors "$(cat "$scratch/err")" ': File name too long$'
}

run_tests

# Sourced by *_test.sh. A test is a function `test_NAME`: it fails with its last command, or at the first that fails
# under `set -e`. `run_tests` prints "ok NAME" or its output and "not ok NAME", and ends the script. A test that cannot be
# run here says `skip REASON`, and the reason is in tests/skips.txt.
# Programs are looked for in the folder that holds tools/ and examples/ as built.
bin=${PROGRAMS:-.}
skipped=77
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "  $*"
    return 1
}

# skip REASON: ends the test
skip() {
    echo "skipped: $*"
    exit $skipped
}

# needs PROGRAM: ends the test where it is not installed
needs() {
    command -v "$1" >/dev/null || skip "$1 is not installed"
}

# expect WHAT GOT WANTED
expect() {
    [ "$2" = "$3" ] || fail "$1: \"$2\", not \"$3\""
}

# has WHAT TEXT PATTERN
has() {
    grep -qE -- "$3" <<<"$2" || fail "$1 has no \"$3\": $2"
}

# wait_for COMMAND…: until it succeeds, thirty seconds at most
wait_for() {
    local ends=$((SECONDS + 30))
    while ((SECONDS < ends)); do
        "$@" 2>/dev/null && return
        sleep 0.02
    done
    fail "waited in vain for: $*"
}

# exit_code COMMAND…: prints it
exit_code() {
    local code=0
    "$@" >/dev/null 2>&1 || code=$?
    echo $code
}

# The folder of the double of the CUDA driver, as Bazel, or the stage plain, built it.
cuda_double() {
    local folder
    for folder in "$bin/tests/cuda/driver_double" ../tests/cuda/driver_double; do
        [ ! -e "$folder/libcuda.so.1" ] || { realpath "$folder" && return; }
    done
    fail "the double of the CUDA driver is not built"
}

run_tests() {
    local name code failed=0 index=0
    # As in tests/harness.h: a part of them, where Bazel says so.
    [ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"
    for name in $(declare -F | sed -n 's/^declare -f test_//p'); do
        ((index++ % ${TEST_TOTAL_SHARDS:-1} == ${TEST_SHARD_INDEX:-0})) || continue
        (set -e; "test_$name") >"$scratch/log" 2>&1
        code=$?
        if [ $code = 0 ]; then
            echo "ok $name"
        elif [ $code = $skipped ]; then
            sed 's/^/  /' "$scratch/log"
            echo "skip $name"
        else
            sed 's/^/  /' "$scratch/log"
            echo "not ok $name"
            failed=1
        fi
    done
    exit $failed
}

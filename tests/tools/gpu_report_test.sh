#!/bin/bash
# tests/cuda/run on a machine that seems to have a GPU: by the double of the driver, and a program in place of nvidia-smi.
. tests/check.sh
command=$(realpath "$(dirname "$0")/../cuda/run")

# A folder as --pack makes it, with one test.
setup() {
    local double
    double=$(cuda_double)
    mkdir -p "$scratch"/packed/{tools,examples,tests/cuda,lib} "$scratch/path"
    cp "$bin"/tools/{gpu-measure,weft-info} "$scratch/packed/tools/"
    cp "$double/libcuda.so.1" "$scratch/packed/lib/"
    printf '#!/bin/bash\necho "a double, 1, 16384 MiB"\n' >"$scratch/path/nvidia-smi"
    printf '#!/bin/bash\necho "ok one"\necho "skip two"\necho "  of use"\necho "not ok three"\nexit 1\n' >"$scratch/packed/tests/cuda/plain_test"
    printf '#!/bin/bash\necho "ok four"\nkill -9 $$\n' >"$scratch/packed/tests/cuda/dies_test"
    chmod +x "$scratch/path/nvidia-smi" "$scratch"/packed/tests/cuda/*
    PATH=$scratch/path:$PATH
}

run() { bash "$command" --packed "$scratch/packed" --report "$scratch/report" --quick "$@"; }

test_a_report_is_made_of_several_commands() {
    local said
    setup
    said=$(run plain) && fail "a test failed, and the command did not"
    has "the end" "$said" "1 passed, 1 failed, 1 skipped, 0 not run"
    has "the report" "$(cat "$scratch/report/report.md")" "Not run: figures"
    has "the report" "$(cat "$scratch/report/report.md")" "Not run: dies"
    said=$(run figures dies 2>/dev/null) || true
    has "the end" "$said" "2 passed, 2 failed, 1 skipped, 0 not run"
    has "the report" "$said" "host to device, 16 MiB"
    has "the report" "$said" "not ok dies: ended with 137"
    said=$(run settings) || true
    for pattern in "host to device, 16 MiB" "cuda.chunk 256k" "not ok three" "Not run: allreduce"; do
        has "the report" "$said" "$pattern"
    done
    expect "sections" "$(grep -cE '^## (figures|settings): ' "$scratch/report/report.md")" 2
    python3 - "$scratch/report/report.json" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["gpu"].startswith("a double"), report
assert report["tests"] == {"passed": 2, "failed": 2, "skipped": 1}, report
assert report["figures"]["figures"] and report["settings"]["figures"] and report["allreduce"] == [], report
PY
}

# Who stops the command has the report of what was run.
test_the_report_is_there_while_other_tests_run() {
    setup
    printf '#!/bin/bash\ngrep -q "not ok three" "%s/report/report.md" && echo "ok there"\n' "$scratch" >"$scratch/packed/tests/cuda/zz_last_test"
    chmod +x "$scratch"/packed/tests/cuda/zz_last_test
    has "the end" "$(run tests 2>/dev/null)" "3 passed, 2 failed, 1 skipped, 0 not run"
}

test_what_has_no_time_left_is_named() {
    local said
    setup
    said=$(bash "$command" --packed "$scratch/packed" --report "$scratch/late" --minutes 1 figures settings) && fail "all was run"
    has "the end" "$said" "not run for want of time: tests/cuda/run --packed .* --report .*/late figures settings"
}

test_wrong_arguments_and_no_gpu_are_said() {
    setup
    expect "an option" "$(exit_code run --fast)" 2
    expect "a part" "$(exit_code run nothing)" 2
    expect "no minutes" "$(exit_code run --minutes none)" 2
    rm "$scratch/path/nvidia-smi"
    command -v nvidia-smi >/dev/null || expect "no GPU" "$(exit_code run)" 1
}

run_tests

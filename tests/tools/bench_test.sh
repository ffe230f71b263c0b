#!/bin/bash
# The scripts of bench/, with doubles of what they measure: what they cannot measure they name, and no figure comes of it.
. tests/check.sh

# bench BODY: in Python, with the modules of bench/, and `scratch`
bench() {
    { printf '%s\n' 'import importlib.machinery, importlib.util, os, sys' 'sys.dont_write_bytecode = True' 'sys.path.insert(0, "bench")' \
        "scratch = '$scratch'" \
        'def script(name):' \
        '    loader = importlib.machinery.SourceFileLoader(name, "bench/" + name)' \
        '    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))' \
        '    loader.exec_module(module)' \
        '    return module' && cat; } >"$scratch/body.py"
    python3 "$scratch/body.py"
}

# double FILE: a program, whose script is on standard input
double() {
    mkdir -p "$(dirname "$1")"
    { echo '#!/bin/bash' && cat; } >"$1"
    chmod +x "$1"
}

test_a_tree_that_does_not_build_has_no_figures_of_an_earlier_one() {
    double "$scratch/tree/tools/build" <<<'exit $(cat code)'
    double "$scratch/out/tools/weft-perf" <<<''
    for code in 0 2; do
        echo $code >"$scratch/tree/code"
        bench <<<'print(script("regress").built_in(scratch + "/tree", scratch + "/out"))'
    done >"$scratch/paths"
    expect paths "$(cat "$scratch/paths")" "$scratch/out/tools/weft-perf"$'\nNone'
}

test_a_missing_compiler_leaves_its_peer_out() {
    expect peer "$(bench <<<'from comparing.available import build; print(build(["no-such-compiler"], "raw_main.c", scratch + "/raw"))')" None
}

test_the_best_peer_is_any_of_another_project() {
    bench <<'PY' >"$scratch/table"
import gate
from comparing import report
samples = {name: {place: [value] if place == "NEAR" else [] for place in gate.PLACES} for name, value in (("weft", 2), ("starpu", 4), ("serial", 1))}
result = {"title": "a task", "unit": "ns", "samples": samples, "machine": {"cpu": "x", "cores": 2, "kernel": "1"}, "place": "NEAR"}
print(report.table({}, {"graph": result}))
PY
    has table "$(cat "$scratch/table")" '^\| a task \| ns \| 2 \| 4 \(starpu\) \| 0\.5 \|'
}

test_a_redis_server_that_does_not_begin_is_named() {
    local doubles=$scratch/doubles code=0
    double "$doubles/cc" <<<''
    double "$doubles/redis-cli" <<<'[[ $1 != -s ]] # another server is at the port'
    double "$doubles/redis-server" <<<'echo "the port is taken"; exit 1'
    mkdir -p "$scratch/build/integrations/redis" && : >"$scratch/build/integrations/redis/weft_redis.so"
    PATH=$doubles:$PATH timeout 200 bench/redis "$scratch/build" 0 0 >"$scratch/rows" 2>"$scratch/err" || code=$?
    expect code $code 1
    has errors "$(cat "$scratch/err")" '^redis: the server did not begin:'
    has errors "$(cat "$scratch/err")" '^the port is taken'
    expect rows "$(cat "$scratch/rows")" ''
}

run_tests

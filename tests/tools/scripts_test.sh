#!/bin/bash
# Each script of tools/ and bench/ tells what it does, and refuses what it does not know, before it does anything. Not tools/sim: what
# it is asked goes to weft-sim, which it builds.
. tests/check.sh

scripts() { grep -lE '^#!.*(bash|python3)$' tools/* bench/* 2>/dev/null | grep -v '^tools/sim$'; }

# asked CODE SCRIPT ARGUMENT…: from another folder, as where it is found by a path
asked() {
    local code=0
    (cd "$scratch" && timeout 200 "$root/$2" "${@:3}" >out 2>err </dev/null) || code=$?
    expect "${*:2}: code" "$code" "$1"
}
root=$PWD

test_each_script_tells_what_it_does() {
    for script in $(scripts); do
        asked 0 "$script" --help
        has "$script --help" "$(cat "$scratch/out")" "${script##*/}"
        expect "$script --help: errors" "$(cat "$scratch/err")" ''
    done
}

test_each_script_refuses_an_option_that_it_does_not_have() {
    for script in $(scripts); do
        asked 2 "$script" --no-such-option
        expect "$script: output" "$(cat "$scratch/out")" ''
        has "$script --no-such-option" "$(cat "$scratch/err")" "(usage|--help|${script##*/})"
    done
}

test_what_is_no_stage_is_named() {
    asked 2 tools/test gcc no-such-stage
    has errors "$(cat "$scratch/err")" 'no stage no-such-stage'
    asked 2 tools/setup no-such-part
    has errors "$(cat "$scratch/err")" 'no-such-part'
    asked 2 tools/demo -n
    has errors "$(cat "$scratch/err")" '-n needs a value'
}

test_what_a_change_is_compared_with_is_one_commit() {
    asked 2 tools/test --changed HEAD tidy
    has errors "$(cat "$scratch/err")" '--changed takes one BASE'
    asked 2 tools/test changed
    has errors "$(cat "$scratch/err")" 'no stage changed'
}

test_the_cases_of_a_log_are_counted() {
    eval "$(sed -n '/^count()/,/^}/p; /^count_lines()/,/^}/p' tools/test)"
    local out=$scratch started=0 passed=1 failed=1 skipped=1
    printf '%s\n' 'ok a' 'ok b' 'skip c' 'skip d' 'skip e' 'not ok f' >"$scratch/some.log"
    count_lines some 1 >"$scratch/said"
    expect sums "$passed $failed $skipped" '3 2 4'
    has line "$(cat "$scratch/said")" '^some +2 ok +1 not ok +3 skipped'
}

# interrupted BODY: how a shell with `within` of tools/test ends when its group gets SIGINT, as from a terminal, while it runs BODY
interrupted() {
    { echo 'SECONDS=0' && sed -n '/^ends=/p; /^within()/,/^}/p; /^end_by()/,/^}/p' tools/test && echo "$1; echo went on"; } >"$scratch/within"
    python3 - "$scratch" <<'EOF'
import os, signal, subprocess, sys, time
begun = os.path.join(sys.argv[1], "begun")
shell = subprocess.Popen(["bash", os.path.join(sys.argv[1], "within")], env=dict(os.environ, BEGUN=begun), start_new_session=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), stdout=subprocess.PIPE, text=True)
while not os.path.exists(begun):
    time.sleep(0.02)
os.killpg(shell.pid, signal.SIGINT)
said, _ = shell.communicate()
with open(begun) as pid:
    command = "/proc/" + pid.read().strip()
until = time.monotonic() + 20  # it was told to end, and does so when it has a core
while os.path.exists(command) and time.monotonic() < until:
    time.sleep(0.02)
print(shell.returncode, said.strip() or "-", os.path.exists(command))
os.unlink(begun)
EOF
}

test_an_interrupt_ends_the_run_and_what_it_runs() {
    local command="within 60 bash -c 'echo \$\$ >\$BEGUN.new && mv \$BEGUN.new \$BEGUN && exec sleep 50'"
    expect 'a command' "$(interrupted "$command")" '-2 - False'
    expect 'one of a pipe' "$(interrupted "echo x | $command | cat")" '-2 - False'
}

test_the_stages_run_in_the_order_that_is_told() {
    told=$(tools/test --help | sed -n '/all of them in this order/,/^and, not/s/^  \([a-z][a-z]*\)  *[^ ].*/\1/p' | tr '\n' ' ')
    expect order "$told" "$(sed -n 's/.*|| stages=(\(.*\))$/\1/p' tools/test) "
}

# changed FILE…: what `tools/test --changed` would run, by a Bazel that has a test in each folder, and one in tests/ itself.
changed() {
    local tested="adapters core examples failover fsm integrations mutants python random reactor runtime sim tools transports"
    bazel() { printf '//tests:%s/x_test\n' $tested && echo //tests:core/y_test //tests/fuzz/live:live_test //tests:words_test | tr ' ' '\n'; }
    eval "$(sed -n '/^changed_targets()/,/^}/p' tools/test)"
    changed_targets "$@" | sed 's,^//tests[:/],,; s,/x_test$,,' | tr '\n' ' '
}

test_a_change_runs_the_tests_that_it_can_break() {
    local all='adapters core examples failover fsm integrations mutants python random reactor runtime sim tools transports core/y_test fuzz/live:live_test words_test '
    local beside='core/y_test fuzz/live:live_test words_test '
    expect transports "$(changed transports/tcp/tcp.c)" \
        "adapters core examples failover integrations mutants python random runtime sim tools transports $beside"
    expect endpoints "$(changed endpoints/core/endpoint.c)" \
        "adapters core examples failover integrations mutants python random runtime sim tools $beside"
    expect runtime "$(changed runtime/graph.c)" 'examples integrations mutants python random runtime sim tools fuzz/live:live_test words_test '
    expect python "$(changed python/src/worker.c)" 'python words_test '
    expect integrations "$(changed integrations/redis/module.c)" 'integrations words_test '
    expect 'one test' "$(changed tests/core/y_test.c)" 'core/y_test words_test '
    expect 'a folder' "$(changed tests/python/cases.py)" 'python words_test '
    expect text "$(changed README.md)" 'words_test '
    for file in include/weft/am.h tests/harness.h tests/support/streams.h bazel/weft.bzl a_new_room/x.c; do
        expect "$file" "$(changed "$file")" "$all"
    done
}

test_a_file_that_is_gone_or_renamed_is_a_change_and_has_no_format() {
    local all
    eval "$(sed -n '/^changed_files()/p; /^changed_sources()/,/^}/p' tools/test)"
    rm -rf "$scratch/tree" && mkdir -p "$scratch/tree/base" && cd "$scratch/tree" || return
    git init -q && echo 1 >base/kept.c && echo 2 >base/gone.c && seq 50 >base/old.c && git add . || return
    git -c user.name=a -c user.email=a@b commit -qm all || return
    rm base/gone.c && git mv base/old.c base/new.c && echo 3 >>base/kept.c && echo 4 >base/added.h && echo 5 >base/text.md || return
    mapfile -t all < <(changed_files HEAD)
    expect files "${all[*]}" 'base/added.h base/gone.c base/kept.c base/new.c base/old.c base/text.md'
    expect sources "$(changed_sources "${all[@]}" | tr '\n' ' ')" 'base/added.h base/kept.c base/new.c '
}

# A file of the old form has one machine for all groups, and of these one that is not known here.
test_kept_groups_of_a_comparison_keep_their_machine() {
    python3 - "$scratch" >"$scratch/groups" <<'EOF'
import importlib.machinery, importlib.util, json, os, sys

loader = importlib.machinery.SourceFileLoader("compare", "bench/compare")
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)

folder, machine = sys.argv[1], {"cpu": "old", "cores": 2, "kernel": "1"}
path = os.path.join(folder, "compare.json")


def group(title, place, value):
    return {"title": title, "unit": "us", "when": "then", "samples": {"weft": {p: [value] if p == place else [] for p in compare.gate.PLACES}}}


with open(path, "w") as out:
    json.dump({"machine": machine, "place": "FAR", "groups": {"gone": group("gone", "FAR", 1.5), "kept": group("kept", "FAR", 2.5)}}, out)
results = compare.load(path)
results["new"] = {**group("new", "NEAR", 3.5), "machine": {"cpu": "new", "cores": 4, "kernel": "2"}, "place": "NEAR"}
known = {name: compare.report.Group(name, "us", {}) for name in ("new", "kept")}
compare.save(folder, known, results)
for name, kept in compare.load(path).items():
    print(name, kept["machine"]["cpu"], kept["place"])
print(open(os.path.join(folder, "table.md")).read())
EOF
    has groups "$(head -3 "$scratch/groups" | tr '\n' ' ')" '^new new NEAR kept old FAR gone old FAR $'
    for row in 'old, 2 cores, Linux 1, FAR:' '. gone . us . 1.5 ' '. kept . us . 2.5 ' 'new, 4 cores, Linux 2, NEAR:' '. new . us . 3.5 '; do
        has table "$(cat "$scratch/groups")" "$row"
    done
    has picture "$(cat "$scratch/compare.svg")" '\(1\) new, 4 cores, Linux 2, NEAR; \(2\) old'
}

run_tests

#!/bin/bash
# weft-info: what it says is there and parses.
. tests/check.sh
info=$bin/tools/weft-info

test_json_has_every_part() {
    $info --json >"$scratch/info.json"
    python3 - "$scratch/info.json" <<'PY'
import json, sys
info = json.load(open(sys.argv[1]))
assert set(info) - {"rdma", "cuda"} == {"build", "transports", "unopened", "config"}, info.keys()  # which is there where devices are
assert {"version", "compiler"} <= set(info["build"])
names = {t["name"] for t in info["transports"]}
assert {"self", "shm", "tcp"} <= names, names
for t in info["transports"]:
    assert t["latency_ns"] >= 0 and t["bandwidth"] > 0 and t["message_rate"] > 0, t
    assert t["capabilities"] and all(isinstance(c, str) for c in t["capabilities"]), t
    assert t["max_short"] >= 40 and t["max_iov"] > 0 and t["max_bcopy"] > 0, t
config = {s["name"]: s for s in info["config"]}
assert config["transports"]["origin"] == "default"
assert all(s["help"] for s in config.values())
assert config["link.rails"]["range"] == "1..4" and config["tcp.bind"]["range"] == ""
PY
}

test_protocols_cover_every_size() {
    WEFT_CALIBRATION=off $info --protocols --json >"$scratch/protocols.json"
    python3 - "$scratch/protocols.json" <<'PY'
import json, sys
protocols = json.load(open(sys.argv[1]))["protocols"]
assert {"self", "shm", "tcp"} <= set(protocols), protocols.keys()
for name, rows in protocols.items():
    at = 0
    for row in rows:
        if row["exposed"] or row["exposed_to"]:
            assert at is None and row["to"] is None and row["from"] > 8192, (name, row)
            continue
        assert row["from"] == at and row["to_ns"] >= row["from_ns"] > 0, (name, row)
        at = None if row["to"] is None else row["to"] + 1
    assert at is None, name
PY
    WEFT_CALIBRATION=off $info --protocols tcp >"$scratch/protocols"
    expect 'tables' "$(grep -c '^protocols of' "$scratch/protocols")" 1
}

test_protocols_are_those_of_the_transports_that_are_named() {
    export WEFT_CALIBRATION=off
    local named='import json, sys; print(*json.load(sys.stdin)["protocols"])'
    expect one "$($info --protocols tcp --json | python3 -c "$named")" tcp
    expect two "$($info --protocols tcp self --json | python3 -c "$named")" 'self tcp'
    for form in '' --json; do
        expect "code of one that is none $form" "$(exit_code $info --protocols tcp none $form)" 1
        has 'its name' "$($info --protocols none $form 2>&1 >/dev/null)" '^weft-info: no transport none is open$'
    done
}

# With the double of the driver, which has two devices.
test_gpus_and_the_paths_to_their_memory() {
    local double
    double=$(cuda_double)
    LD_LIBRARY_PATH=$double $info --transports --json >"$scratch/gpus.json"
    python3 - "$scratch/gpus.json" <<'PY'
import json, sys
cuda = json.load(open(sys.argv[1]))["cuda"]
assert [gpu["peers"] for gpu in cuda["gpus"]] == [[1], [0]], cuda
assert cuda["gpus"][0]["address"] == "0000:01:00.0" and cuda["gpus"][0]["memory"] == 1 << 34, cuda
assert cuda["paths"]["operations in streams"] and cuda["paths"]["memory of other processes"], cuda
PY
    LD_LIBRARY_PATH=$double $info --transports >"$scratch/gpus"
    expect gpus "$(grep -c '^GPU ' "$scratch/gpus")" 2
}

# Libraries that do not load stand in for a machine without them.
test_without_the_libraries_of_rdma_all_else_works() {
    mkdir "$scratch/broken"
    : >"$scratch/broken/libibverbs.so.1"
    export LD_LIBRARY_PATH=$scratch/broken WEFT_TRANSPORTS=self,tcp,rdma_rc,rdma_ud WEFT_CALIBRATION=off
    ! $info --json 2>&1 | grep -q "there is no transport 'rdma_rc'" || skip "built without rdma"
    $info --json >"$scratch/without.json"
    python3 - "$scratch/without.json" <<'PY'
import json, sys
info = json.load(open(sys.argv[1]))
assert "rdma" not in info
assert {t["name"] for t in info["transports"]} == {"self", "tcp"}, info["transports"]
assert {t["name"] for t in info["unopened"]} == {"rdma_rc", "rdma_ud"} and all("lib" in t["why"] for t in info["unopened"]), info
PY
    expect reasons "$($info --transports | grep -c '^transport rdma_.. is not open: .*lib')" 2
}

# listen URI: a peer there, until the test ends; prints where
listen() {
    : >"$scratch/listener" # what the last one said
    $bin/tools/weft-perf --listen "$1" >"$scratch/listener" 2>&1 &
    echo $! >"$scratch/pid"
    wait_for grep -q '^listening at' "$scratch/listener"
    sed -n 's/^listening at //p' "$scratch/listener"
}

test_protocols_are_those_of_the_pair() {
    export WEFT_CALIBRATION=off WEFT_SHM_DIRECTORY=$scratch
    local at scheme
    for at in tcp://127.0.0.1:0 shm://info-test; do
        scheme=${at%%:*}
        uri=$(listen $at)
        trap 'kill $(cat "$scratch/pid")' EXIT
        got=$(timeout 200 $info --protocols "$uri")
        has "$scheme" "$got" "^$uri: by $scheme to .*, worker [0-9a-f]{16}; 1 lane"
        has "$scheme" "$got" "^the peer's memory: $([ $scheme = tcp ] && echo message || echo by key: mapped where it was allocated)"
        expect "$scheme: tables" "$(grep '^protocols of' <<<"$got" | cut -d' ' -f3)" $scheme
        timeout 200 $info --protocols --json "$uri" >"$scratch/pairs"
        python3 - "$scratch/pairs" $scheme <<'PY'
import json, sys
info = json.load(open(sys.argv[1]))
[pair] = info["pairs"]
assert pair["transport"] == sys.argv[2] and pair["protocols"] == info["protocols"][pair["transport"]], pair
PY
        kill -0 $(cat "$scratch/pid") # it did not mind
        kill $(cat "$scratch/pid")
        trap - EXIT
    done
}

test_an_address_where_noop_listens_is_notified() {
    export WEFT_CALIBRATION=off WEFT_SHM_DIRECTORY=$scratch
    for uri in tcp://127.0.0.1:1 shm://nobody none://1; do
        expect "$uri" "$(exit_code timeout 200 $info --protocols $uri)" 1
        expect "$uri" "$(exit_code timeout 200 $info --protocols --json $uri)" 1
        has "$uri" "$($info --protocols $uri 2>&1 >"$scratch/out")" "^weft-info: $uri: "
        expect "$uri: tables" "$(grep -c '^protocols of' "$scratch/out")" 0
    done
}

origin() {
    $info --config --json | python3 -c "
import json, sys
for s in json.load(sys.stdin)['config']:
    if s['name'] == '$1': print(s['origin'], s['value'])"
}

test_the_origin_of_a_setting_is_named() {
    unset WEFT_CONFIG
    expect default "$(HOME=$scratch origin tcp.bind)" 'default 127.0.0.1'
    expect environment "$(HOME=$scratch WEFT_TCP_BIND=127.0.0.2 origin tcp.bind)" 'environment 127.0.0.2'
    echo 'tcp.bind = 127.0.0.3  # ours' >"$scratch/weft.conf"
    expect file "$(WEFT_CONFIG=$scratch/weft.conf origin tcp.bind)" 'file 127.0.0.3'
    expect 'both' "$(WEFT_CONFIG=$scratch/weft.conf WEFT_TCP_BIND=::1 origin tcp.bind)" 'environment ::1'
}

test_a_long_value_is_whole() {
    local long
    long=$scratch/$(printf 'x%.0s' {1..100})
    has line "$(WEFT_TCP_KEY_FILE=$long $info --config)" "^tcp\.key_file +$long +environment +file with the cluster key"
}

# What no tool of JSON would take is not printed.
test_json_is_utf8_whatever_a_setting_is() {
    local in out
    for in in 'a\xe9t\xe9:a�t�' '\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80:é€😀' '\xed\xa0\x80\xc0\xaf:�����' '\xf5\xe2\x82:���' '\x1b:\u001b'; do
        out=$(WEFT_SHM_DIRECTORY=$(printf "${in%%:*}") $info --config --json 2>/dev/null | python3 -c '
import json, sys
values = {s["name"]: s["value"] for s in json.loads(sys.stdin.buffer.read())["config"]}
sys.stdout.buffer.write(values["shm.directory"].replace("\x1b", "\\u001b").encode())')
        expect "$in" "$out" "${in##*:}"
    done
}

test_people_can_read_it() {
    got=$($info)
    has text "$got" '^weft [0-9]+\.[0-9]+\.[0-9]+'
    has text "$got" '^transport shm'
    has text "$got" 'capabilities .*am_short'
    has text "$got" '^worker.spin .*default'
}

test_the_view_lists_every_process() {
    $bin/tools/weft-run -n 3 --plain $info --view --json >"$scratch/view.json"
    python3 - "$scratch/view.json" <<'PY'
import json, os, sys
view = json.load(open(sys.argv[1]))
assert view["engine"] == "weft-run", view
sets = view["processes"]
assert [s["rank"] for s in sets] == [0, 1, 2], sets
assert len({s["pid"] for s in sets}) == 3 and {s["host"] for s in sets} == {os.uname().nodename}, sets
for s in sets:
    assert s["cpus"] == len(os.sched_getaffinity(0)) and 1 <= s["cores"] <= s["cpus"], s
    assert 1 <= s["packages"] <= s["cores"] and s["topology"] in ("sysfs", "hwloc"), s
    assert sum(n["cpus"] for n in s["nodes"]) == s["cpus"], s
    assert all(c["number"] >= 1 and c["size"] > 0 for c in s["caches"]), s
    assert 0 < s["ram_used"] < s["ram_total"] and any(d["name"] for d in s["network"]), s
PY
    $info --view >"$scratch/view.txt"
    grep -q '^engine single, 1 processes' "$scratch/view.txt"
    grep -q "^rank 0 on $(uname -n), process" "$scratch/view.txt"
    grep -q "^host $(uname -n): memory" "$scratch/view.txt"
    grep -qE '^  \|  \+- NUMA node -?[0-9]+.*: ranks 0$' "$scratch/view.txt"
    grep -qE '^  \+- package -?[0-9]+$' "$scratch/view.txt"
    expect code "$(exit_code $info --view --config)" 2
}

test_the_machines_are_drawn() {
    $bin/tools/weft-run -n 9 --plain $info --view --svg >"$scratch/view.svg"
    python3 - "$scratch/view.svg" <<'PY'
import os, sys, xml.etree.ElementTree as tree
of = "{http://www.w3.org/2000/svg}"
root = tree.parse(sys.argv[1]).getroot()
boxes = [r.get("class") for r in root.iter(of + "rect")]
assert boxes.count("host") == 1 and boxes.count("rank") == 9 and boxes.count("node") >= boxes.count("package") >= 1, boxes
texts = [t.text for t in root.iter(of + "text")]
assert [t for t in texts if t.isdigit()] == [str(r) for r in range(9)], texts
assert any(os.uname().nodename in t for t in texts), texts
high = float(root.get("height"))
assert all(float(r.get("y")) + float(r.get("height")) <= high for r in root.iter(of + "rect"))
PY
    expect code "$(exit_code $info --svg)" 2
}

test_counters_are_listed() {
    has counters "$($info --counters)" '^am\.sent$'
}

test_a_new_key_is_random_private_and_replaces_nothing() {
    $info --new-key "$scratch/key"
    expect size "$(stat -c '%s %a' "$scratch/key")" '32 600'
    before=$(sha256sum <"$scratch/key")
    expect code "$(exit_code $info --new-key "$scratch/key")" 1
    expect bytes "$(sha256sum <"$scratch/key")" "$before"
    $info --new-key "$scratch/other"
    [ "$(sha256sum <"$scratch/other")" != "$before" ]
    expect 'no place' "$(exit_code $info --new-key "$scratch/none/key")" 1
}

test_a_wrong_option_is_notified() {
    expect code "$(exit_code $info --no-such-option)" 2
    expect code "$(exit_code $info surplus)" 2
}

run_tests

#!/bin/bash
# weft-info: what it says is there and parses.
. tests/check.sh
info=$bin/tools/weft-info

test_json_has_every_part() {
    $info --json >"$scratch/info.json"
    python3 - "$scratch/info.json" <<'PY'
import json, sys
info = json.load(open(sys.argv[1]))
assert set(info) - {"rdma"} == {"build", "transports", "config"}, info.keys()  # which is there where devices are
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
        if row["lent"] or row["lent_to"]:
            assert at is None and row["to"] is None and row["from"] > 8192, (name, row)
            continue
        assert row["from"] == at and row["to_ns"] >= row["from_ns"] > 0, (name, row)
        at = None if row["to"] is None else row["to"] + 1
    assert at is None, name
PY
    WEFT_CALIBRATION=off $info --protocols tcp >"$scratch/protocols"
    expect 'tables' "$(grep -c '^protocols of' "$scratch/protocols")" 1
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
        got=$(timeout 20 $info --protocols "$uri")
        has "$scheme" "$got" "^$uri: by $scheme to .*, worker [0-9a-f]{16}; 1 lane"
        has "$scheme" "$got" "^the peer's memory: $([ $scheme = tcp ] && echo message || echo by key: mapped where it was allocated)"
        expect "$scheme: tables" "$(grep '^protocols of' <<<"$got" | cut -d' ' -f3)" $scheme
        timeout 20 $info --protocols --json "$uri" >"$scratch/pairs"
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

test_an_address_where_nobody_listens_is_told() {
    export WEFT_CALIBRATION=off WEFT_SHM_DIRECTORY=$scratch
    for uri in tcp://127.0.0.1:1 shm://nobody none://1; do
        expect "$uri" "$(exit_code timeout 20 $info --protocols $uri)" 1
        expect "$uri" "$(exit_code timeout 20 $info --protocols --json $uri)" 1
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

test_people_can_read_it() {
    got=$($info)
    has text "$got" '^weft [0-9]+\.[0-9]+\.[0-9]+'
    has text "$got" '^transport shm'
    has text "$got" 'capabilities .*am_short'
    has text "$got" '^worker.spin .*default'
}

test_counters_are_listed() {
    has counters "$($info --counters)" '^am\.sent$'
}

test_a_wrong_option_is_told() {
    expect code "$(exit_code $info --no-such-option)" 2
    expect code "$(exit_code $info surplus)" 2
}

run_tests

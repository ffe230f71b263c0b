#!/bin/bash
# The module for redis-server: each case starts a server of its own, in a folder of its own. SERVER_KIND=valkey asks
# valkey-server in its place.
. tests/check.sh
kind=${SERVER_KIND:-redis}
built=$bin/integrations/redis
[ -e "$built/weft_redis.so" ] || built=integrations/redis

# A server with the module that listens at a shm name, by which all cases are told apart.
begin() {
    server_program=$(command -v $kind-server || echo /usr/bin/$kind-check-rdb) # the same program, by its name
    command -v $kind-cli >/dev/null && [ -e "$server_program" ] || skip "redis-server is not installed"
    [ -e "$built/weft_redis.so" ] || skip "the Redis module is not built"
    ln -sf "$server_program" "$scratch/$kind-server"
    folder=$(mktemp -d "$scratch/serverXXXX")
    # Loaded by its address: a sandbox shows it as a link. Each server has a copy of its own: one that is written again would lose
    # what the linker wrote to it in a server that runs.
    cp -L "$built/weft_redis.so" "$folder/weft_redis.so"
    uri=${1:-shm://redis-test-$$-$BASHPID}
    "$scratch/$kind-server" --port 0 --unixsocket "$folder/socket" --dir "$folder" --save '' --enable-module-command yes \
        --loadmodule "$folder/weft_redis.so" "$uri" close.timeout=200ms "${@:2}" >"$folder/log" 2>&1 &
    server=$!
    trap 'kill -9 $server 2>/dev/null || true' EXIT
    wait_for redis ping >/dev/null || { tail -5 "$folder/log" && return 1; }
    [ "$uri" != tcp://127.0.0.1:0 ] || uri=$(redis weft.info | sed 's/.*listener:\([^ ]*\).*/\1/')
}
export WEFT_CONNECT_TIMEOUT=60s # of clients: a server that reads its data anew answers later
redis() { $kind-cli -s "$folder/socket" "$@"; }
# A client that hangs says what the server knows of it.
weft() {
    local code=0
    timeout 300 "$built/weft-redis-cli" "$uri" "$@" || code=$?
    [ $code != 124 ] || echo "  $* hangs: $(timeout 10 $kind-cli -s "$folder/socket" weft.info)" >&2
    return $code
}

test_both_sides_see_each_others_values() {
    begin "$1"
    expect set "$(redis set a hello)" OK
    expect get "$(weft get a)" hello
    expect set "$(weft set b 'a value')" WEFT_OK
    expect get "$(redis get b)" 'a value'
    expect del "$(weft del b)" WEFT_OK
    expect gone "$(redis exists b)" 0
    expect none "$(weft get b || true)" WEFT_ERR_NOT_FOUND
    expect none "$(weft del b || true)" WEFT_ERR_NOT_FOUND
    expect list "$(redis rpush l 1)" 1
    expect "no string" "$(weft get l || true)" WEFT_ERR_NOT_FOUND
    expect empty "$(redis set e '')" OK
    expect empty "$(weft get e)" ''
    has info "$(redis weft.info)" 'requests:7 leases:0'
}
test_both_sides_over_tcp() { test_both_sides_see_each_others_values tcp://127.0.0.1:0; }

test_a_number_that_was_read_still_counts() {
    begin
    redis set n 7 >/dev/null
    expect get "$(weft get n)" 7
    expect count "$(redis incr n)" 8
    expect get "$(weft get n)" 8
    has hits "$(redis info stats)" 'keyspace_hits:2'
}

log_text() { tr -d '\r' <"$(ls "$folder"/appendonlydir/*.incr.aof)" | tr '\n' ' '; }
log_deletes() { log_text | grep -qE "(DEL|UNLINK) .2 $1 "; }

log_is_begun() { redis info persistence | tr -d '\r' | grep -qx 'aof_rewrite_in_progress:0' && [ -e "$folder"/appendonlydir/*.incr.aof ]; }

# The key is read before the server itself looks for what has expired.
test_the_log_has_an_expiry_that_a_read_found() {
    begin
    redis config set appendonly yes >/dev/null
    wait_for log_is_begun
    redis config set hz 1 >/dev/null
    for i in 1 2 3 4 5; do
        redis set "k$i" v px 3 >/dev/null
        sleep 0.01
        expect expired "$(weft get "k$i" || true)" WEFT_ERR_NOT_FOUND
        wait_for log_deletes "k$i"
    done
    ! log_text | grep -q GET # not the reads themselves
    expect set "$(weft set k1 v)" WEFT_OK
    expect del "$(weft del k1)" WEFT_OK
    expect alive "$(redis get k1)" ''
}

test_a_batch_of_requests_is_answered_in_full() {
    begin tcp://127.0.0.1:0
    has batch "$(weft batch 50)" '^[0-9]+ a second$'
    has info "$(redis weft.info)" 'requests:801 '
}

commands() { redis info commandstats | tr -d '\r' | sed -n "s/^cmdstat_$1:calls=\([0-9]*\),.*/\1/p"; }

# 800 GETs in 50 batches. Of one that is cut where a process lost its core the server sees both parts, and a GET alone, which is
# no MGET. So of some runs the best one counts.
test_gets_that_arrive_together_are_one_command() {
    begin tcp://127.0.0.1:0
    local gets mgets i all=
    for i in {1..20}; do
        gets=$(commands get) mgets=$(commands mget)
        weft batch 50 >/dev/null
        gets=$(($(commands get) - ${gets:-0})) mgets=$(($(commands mget) - ${mgets:-0}))
        all+=" $mgets+$gets"
        [ $((mgets + gets)) -gt 60 ] || break
    done
    [ $((mgets + gets)) -le 60 ] || fail "MGETs and GETs of 50 batches:$all"
    weft get latency >/dev/null
    before=$(commands mget)
    expect latency "$(weft latency 100 >/dev/null && commands mget)" "$before"
}

resident() { awk "/^$1:/ { print int(\$2 / 1024) }" /proc/$server/status; } # MiB

# 16 GETs of 8 MiB. One reply of all is made in parts and then put together: 256 MiB at its end. Replies of one value each are
# 128 MiB until they have left, and 8 MiB more while one is put together.
test_long_values_are_replies_of_their_own() {
    # AddressSanitizer would keep 256 MiB of what is freed.
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=0
    begin tcp://127.0.0.1:0
    weft batch 10 >/dev/null # clients that ask for 16 at a time
    redis eval "redis.call('set', 'long', string.rep('v', 8 * 1048576))" 0 >/dev/null
    before=$(resident VmRSS)
    echo 5 >/proc/$server/clear_refs # the peak begins anew
    expect bytes "$(weft together long 3)" "$((3 * 16 * 8 << 20)) bytes"
    [ $(($(resident VmHWM) - before)) -lt 200 ] || fail "$(($(resident VmHWM) - before)) MiB more than $before"
    # Short ones are together again, and a short value that grows is noticed.
    redis set long short >/dev/null
    before_mgets=$(commands mget)
    weft together long 20 >/dev/null
    [ $(($(commands mget) - ${before_mgets:-0})) -ge 15 ] || fail "$(redis info commandstats)"
    redis eval "redis.call('setrange', 'long', 8 * 1048576 - 1, 'v')" 0 >/dev/null
    expect bytes "$(weft together long 1)" "$((16 * 8 << 20)) bytes"
    [ $(($(resident VmHWM) - before)) -lt 200 ] || fail "$(($(resident VmHWM) - before)) MiB more than $before"
}

# unread COMMAND…: a client in the background that reads when `read_now` closes its input.
unread() {
    mkfifo "$folder/input"
    "$built/weft-redis-cli" "$uri" unread "$@" <"$folder/input" >"$folder/unread" 2>&1 &
    client=$!
    exec 9>"$folder/input"
}
# read_now STATUS
read_now() {
    exec 9>&-
    wait $client || true
    expect unread "$(cat "$folder/unread")" "$1"
}
limit_closes() { redis weft.info | grep -q "closed_for_limit:$1"; }

# closed_for_unread URI COUNT [BYTES]: 100 MB of replies, or of requests, of which 4 MB may wait.
closed_for_unread() {
    local before
    begin "$1"
    redis config set client-output-buffer-limit 'normal 4mb 0 0' >/dev/null
    redis eval "redis.call('set', 'k', string.rep('v', 100000))" 0 >/dev/null
    weft get k >/dev/null
    before=$(resident VmRSS)
    unread k "${@:2}"
    wait_for limit_closes 1
    [ $(($(resident VmHWM) - before)) -lt 40 ] || fail "$(($(resident VmHWM) - before)) MiB more"
    expect others "$(weft get k | wc -c)" 100001
    read_now WEFT_ERR_PEER_CLOSED
    has log "$(cat "$folder/log")" 'weft: a client is closed, for which [0-9]{7} bytes wait'
    wait_for eval 'redis module unload weft | grep -q OK'
}
test_a_client_that_does_not_read_is_closed() { closed_for_unread '' 1000; }
test_a_client_over_tcp_that_does_not_read_is_closed() { closed_for_unread tcp://127.0.0.1:0 1000; }
test_a_client_that_offers_too_much_is_closed() { closed_for_unread tcp://127.0.0.1:0 100 1000000; }
# As in the server, it is closed when it asks again after the seconds have passed.
test_a_client_that_does_not_read_for_long_is_closed() {
    begin tcp://127.0.0.1:0
    redis config set client-output-buffer-limit 'normal 0 1mb 1' >/dev/null
    redis eval "redis.call('set', 'k', string.rep('v', 100000))" 0 >/dev/null
    unread k 40
    wait_for more_requests_than 40
    limit_closes 0 || fail "$(redis weft.info)"
    # by the server's clock, which is the time of day
    local ends=$((SECONDS + 4))
    while ((SECONDS < ends)); do sleep 0.1; done
    echo >&9
    wait_for limit_closes 1
    read_now WEFT_ERR_PEER_CLOSED
    rm "$folder/input"
    unread k 40
    wait_for more_requests_than 82
    read_now WEFT_OK
}

test_requests_are_served_in_their_order() {
    for at in tcp://127.0.0.1:0 ''; do
        begin $at
        redis rpush list 1 >/dev/null
        has mixed "$(weft mixed 400)" '^[0-9]+ requests$'
        for bytes in 100000 4000000; do
            expect "$bytes bytes" "$(for i in {1..20}; do weft order $bytes || true; done | sort -u)" "in order"
            expect last "$(redis get order)" last
        done
        kill -9 $server
    done
}

test_values_of_all_sizes_cross() {
    begin tcp://127.0.0.1:0
    has traffic "$(weft traffic 1)" '^[0-9]+ values$'
    kill -9 $server
    begin
    has traffic "$(weft traffic 1)" '^[0-9]+ values$'
}

test_a_lease_ends_when_its_key_changes() {
    begin
    redis set a first >/dev/null
    weft read a 100 >"$scratch/read" &
    reader=$!
    wait_for grep -q first "$scratch/read"
    has leases "$(redis weft.info)" 'leases:1'
    redis set a second >/dev/null
    wait $reader && fail "the lease lives"
    expect read "$(cat "$scratch/read")" $'first\nWEFT_ERR_REVOKED'
    expect again "$(weft read a)" second
    redis pexpire a 1 >/dev/null
    sleep 0.1
    expect expired "$(weft read a || true)" WEFT_ERR_NOT_FOUND
    has leases "$(redis weft.info)" 'leases:0'
}

# lease_ends_by COMMAND: a client reads by the lease until COMMAND has changed its key.
lease_ends_by() {
    rm -f "$scratch/read"
    redis set leased first >/dev/null
    weft read leased 100 >"$scratch/read" &
    reader=$!
    wait_for grep -q first "$scratch/read"
    redis "$@" >/dev/null
    wait $reader && fail "the lease outlives $*"
    expect "$*" "$(cat "$scratch/read")" $'first\nWEFT_ERR_REVOKED'
}
# The server tells of none of these by an event for the key as a string.
test_a_lease_ends_when_its_key_goes_with_others() {
    begin '' --enable-debug-command yes
    lease_ends_by flushall
    lease_ends_by flushdb async
    lease_ends_by swapdb 0 1
    lease_ends_by debug reload
    redis rpush list 3 1 2 >/dev/null
    redis sadd set 3 1 2 >/dev/null
    redis zadd zset 1 a >/dev/null
    lease_ends_by sort list store leased
    lease_ends_by sunionstore leased set
    lease_ends_by zunionstore leased 1 zset
    has leases "$(redis weft.info)" 'leases:0'
}

# Each lease has one. Of 240 the rest is for ordinary clients.
test_leases_leave_descriptors_to_ordinary_clients() {
    ulimit -n 240
    begin
    for i in {1..80}; do redis set "k$i" v >/dev/null && weft read "k$i" >/dev/null; done
    has leases "$(redis weft.info)" 'leases:60 leases_ended:20'
    expect newest "$(weft read k80)" v
}

leases() { redis weft.info | sed -n 's/.*leases:\([0-9]*\) .*/\1/p'; }

# Values of 1 MiB, of which maxmemory leaves room for a few leases, and then for none.
test_leases_take_what_maxmemory_leaves() {
    begin
    redis eval "for i = 1, 20 do redis.call('set', 'k' .. i, string.rep('v', 1048576)) end" 0 >/dev/null
    redis config set maxmemory $(($(redis info memory | tr -d '\r' | sed -n 's/^used_memory://p') + (6 << 20))) >/dev/null
    for i in {1..20}; do weft read "k$i" >/dev/null || fail "k$i"; done
    [ "$(leases)" -ge 2 ] && [ "$(leases)" -le 6 ] || fail "$(redis weft.info)"
    has bytes "$(redis weft.info)" "lease_bytes:$(($(leases) << 20))"
    redis eval "for i = 1, 4 do redis.call('set', 'more' .. i, string.rep('v', 1048576)) end" 0 >/dev/null
    [ "$(leases)" -le 2 ] || fail "$(redis weft.info)"
    redis config set maxmemory 10mb >/dev/null
    expect none "$(weft read k1 || true)" WEFT_ERR_REJECTED
    redis del k20 >/dev/null
    has ended "$(redis weft.info)" 'leases:0 .*lease_bytes:0'
    has get "$(weft get k1)" '^v+$'
    redis config set maxmemory 0 >/dev/null
    has again "$(weft read k1)" '^v+$'
}

# The server evicts before an ordinary command, and offers modules no other way.
test_an_ordinary_command_makes_room_for_a_set() {
    begin
    value=$(head -c 100000 /dev/zero | tr '\0' v)
    redis config set maxmemory-policy allkeys-random >/dev/null
    redis config set maxmemory 3mb >/dev/null
    for i in {1..40}; do weft set "k$i" "$value" || true; done >"$scratch/sets"
    expect last "$(tail -1 "$scratch/sets")" WEFT_ERR_REJECTED
    redis ping >/dev/null
    expect room "$(weft set more "$value")" WEFT_OK
    has evicted "$(redis info stats)" 'evicted_keys:[1-9]'
}

# As ordinary clients are: the server's own calls would do it.
test_what_the_server_refuses_is_rejected() {
    begin
    value=$(head -c 100000 /dev/zero | tr '\0' v)
    redis set a before >/dev/null
    redis config set maxmemory 3mb >/dev/null
    for i in {1..40}; do weft set "k$i" "$value" || true; done >"$scratch/sets"
    expect last "$(tail -1 "$scratch/sets")" WEFT_ERR_REJECTED
    has memory "$(redis info memory | grep ^used_memory:)" 'used_memory:[0-3][0-9]{6}.?$'
    expect del "$(weft del k1)" WEFT_OK
    redis config set maxmemory 0 >/dev/null
    redis config set min-replicas-to-write 1 >/dev/null
    expect replicas "$(weft set a after || true)$(weft del a || true)" WEFT_ERR_REJECTEDWEFT_ERR_REJECTED
    redis config set min-replicas-to-write 0 >/dev/null
    redis replicaof 127.0.0.1 1 >/dev/null
    expect replica "$(weft set a after || true)$(weft del a || true)" WEFT_ERR_REJECTEDWEFT_ERR_REJECTED
    expect stale "$(weft get a)" before
    redis config set replica-serve-stale-data no >/dev/null
    expect stale "$(weft get a || true)$(weft read a || true)" WEFT_ERR_REJECTEDWEFT_ERR_REJECTED
    redis replicaof no one >/dev/null
    expect again "$(weft set a after)$(weft get a)" WEFT_OKafter
}

# What is written while the clients are paused would be lost in a failover; the server ends itself if a module does it.
test_nothing_is_written_while_the_clients_are_paused() {
    begin '' --appendonly yes
    wait_for log_is_begun
    redis set a before >/dev/null
    redis set short-lived v px 1 >/dev/null
    redis client pause 100000 write >/dev/null
    expect set "$(weft set a after || true)$(weft del a || true)" WEFT_ERR_BUSYWEFT_ERR_BUSY
    expect expired "$(weft get short-lived || true)" WEFT_ERR_NOT_FOUND
    expect get "$(weft get a)" before
    redis client unpause >/dev/null
    expect set "$(weft set a after)" WEFT_OK
}

test_a_server_that_loads_its_data_is_busy() {
    begin '' --enable-debug-command yes --key-load-delay 100 --loading-process-events-interval-bytes 1024
    redis eval "for i = 1, 20000 do redis.call('set', 'k' .. i, string.rep('v', 500)) end" 0 >/dev/null
    redis debug reload >"$scratch/reload" &
    reload=$!
    wait_for eval 'redis get k1 2>&1 | grep -q LOADING'
    expect get "$(weft get k1 || true)$(weft read k1 || true)" WEFT_ERR_BUSYWEFT_ERR_BUSY
    for i in 19998 19999 20000; do expect set "$(weft set "k$i" new || true)" WEFT_ERR_BUSY; done
    redis config set key-load-delay 0 >/dev/null 2>&1 || true # some servers refuse that, too
    wait $reload || fail "$(tail -5 "$folder/log")"
    expect reload "$(cat "$scratch/reload")" OK
    has again "$(weft get k20000)" '^v{500}$'
}

test_a_script_is_not_interrupted_by_requests() {
    begin '' --busy-reply-threshold 10
    redis set a 1 >/dev/null
    redis eval "while redis.call('exists', 'b') == 0 and redis.call('time')[1] + 0 < $(($(date +%s) + 5)) do end
        return redis.call('get', 'a')" 0 >"$scratch/script" &
    script=$!
    wait_for eval 'redis get a 2>&1 | grep -q BUSY'
    expect during "$(weft get a || true)$(weft set b 1 || true)$(weft set a 2 || true)" \
        WEFT_ERR_BUSYWEFT_ERR_BUSYWEFT_ERR_BUSY
    wait $script
    expect script "$(cat "$scratch/script")" 1
    expect again "$(weft get a)" 1
}

test_a_fork_that_saves_leaves_the_clients_alone() {
    begin
    redis debug populate 100000 >/dev/null 2>&1 || true
    weft traffic 2 >"$scratch/traffic" &
    client=$!
    for i in 1 2 3; do
        has save "$(redis bgsave)" 'started|in progress'
        sleep 0.3
    done
    wait $client || fail "$(cat "$scratch/traffic")"
    wait_for grep -q 'Background saving terminated with success' "$folder/log"
}

# A second client of a worker would get the replies to the first one's requests of the same number.
test_what_a_client_must_not_do_is_refused() {
    begin
    redis set a value >/dev/null
    expect refused "$(weft refused a)" \
        $'second WEFT_ERR_EXISTS, get WEFT_ERR_BUSY, set WEFT_ERR_BUSY, del WEFT_ERR_BUSY, lease WEFT_ERR_BUSY\nvalue'
}

# Also while the server is busy with what a request must not meet.
test_malformed_requests_leave_the_server_alive() {
    for at in tcp://127.0.0.1:0 ''; do
        begin "$at" --appendonly yes --enable-debug-command yes
        for i in 1 2; do
            weft malformed 10000 >"$scratch/malformed$i" &
            clients[i]=$!
        done
        while kill -0 "${clients[@]}" 2>/dev/null; do
            redis client pause 10 write >/dev/null
            redis bgsave >/dev/null
            redis flushall >/dev/null
            redis debug reload >/dev/null
        done
        for i in 1 2; do
            wait "${clients[i]}" || fail "client $i: $(cat "$scratch/malformed$i")"
            has client "$(cat "$scratch/malformed$i")" '^10000 requests'
        done
        expect set "$(redis set a value)$(weft get a)" OKvalue
        wait_for eval 'redis module unload weft | grep -q OK'
        expect alive "$(redis ping)" PONG
        kill -9 $server
    done
}

requests() { redis weft.info | sed -n 's/.*requests:\([0-9]*\).*/\1/p'; }
more_requests_than() { [ "$(requests)" -gt "$1" ]; }

test_clients_that_are_killed_leave_nothing() {
    begin
    for doing in 'traffic 100' 'batch 10000000' 'mixed 10000000'; do
        before=$(requests)
        "$built/weft-redis-cli" "$uri" $doing >/dev/null 2>&1 & # itself: a signal to timeout would leave it alive
        client=$!
        wait_for more_requests_than $((before + 100))
        kill -9 $client || fail "the client of $doing has ended"
        code=0
        wait $client 2>/dev/null || code=$?
        expect "$doing" $code 137
    done
    expect get "$(redis set a 1)$(weft get a)" OK1
}

test_the_module_is_unloaded_under_batches() { test_the_module_is_unloaded_under_traffic 'batch 100000000'; }
test_the_module_is_unloaded_under_traffic() {
    begin
    weft ${1:-traffic 100} >"$scratch/traffic" 2>&1 &
    client=$!
    wait_for eval 'redis weft.info | grep -qE "requests:[1-9][0-9]+"'
    wait_for eval 'redis module unload weft | grep -q OK'
    wait $client && fail "the client goes on"
    has client "$(cat "$scratch/traffic")" 'WEFT_ERR_PEER_(CLOSED|FAILED)|WEFT_ERR_CLOSED'
    expect ping "$(redis ping)" PONG
    expect loaded "$(redis module load "$folder/weft_redis.so" "$uri")" OK
    expect set "$(weft set a again)" WEFT_OK
}

# An ordinary client that stays: `ask N COMMAND` sends by its connection, and `said N` is what it got.
connect_client() {
    mkfifo "$folder/to$1"
    redis <"$folder/to$1" >"$folder/from$1" &
    eval "exec $((20 + $1))>$folder/to$1"
}
ask() { echo "${@:2}" >&$((20 + $1)); }
said() { cat "$folder/from$1"; }
watched() { readlink /proc/$server/fd/* | grep -c eventpoll; }

# what_follows N: what the ordinary client has got since it asked, up to the answer to an ECHO.
what_follows() {
    ask "$1" echo end
    wait_for eval "said $1 | grep -qx end"
    said "$1" | paste -sd,
}
# A key that is watched or tracked changes by a client of the module as by an ordinary one.
test_ordinary_clients_notice_what_a_client_sets() {
    begin
    redis set a 1 >/dev/null
    connect_client 1 && ask 1 watch a && ask 1 multi
    connect_client 2 && ask 2 watch a && ask 2 multi
    for n in 1 2; do wait_for eval "[ \$(said $n | grep -cx OK) = 2 ]"; done
    expect get "$(weft get a)" 1
    ask 1 get a && ask 1 exec
    expect "after a GET" "$(what_follows 1)" OK,OK,QUEUED,1,end
    expect set "$(weft set a 2)" WEFT_OK
    ask 2 get a && ask 2 exec
    expect "after a SET" "$(what_follows 2)" OK,OK,QUEUED,,end
    mkfifo "$folder/tracked"
    redis --show-pushes yes <"$folder/tracked" >"$folder/pushed" &
    exec 23>"$folder/tracked"
    printf 'hello 3\nclient tracking on\nget a\n' >&23
    wait_for grep -qx 2 "$folder/pushed"
    expect set "$(weft set a 3)" WEFT_OK
    wait_for eval 'echo ping >&23; grep -A1 invalidate "$folder/pushed" | grep -qx a'
}

# Its place in shared memory was left as it was when it was killed.
test_a_server_that_was_killed_serves_at_its_address_again() {
    begin
    weft traffic 100 >"$scratch/traffic" 2>&1 &
    client=$!
    wait_for eval 'redis weft.info | grep -qE "requests:[1-9][0-9]+"'
    kill -9 $server
    wait $client && fail "the client goes on"
    has client "$(cat "$scratch/traffic")" 'WEFT_ERR_PEER_(CLOSED|FAILED)|WEFT_ERR_CLOSED'
    begin "$uri"
    expect set "$(weft set a again)$(weft get a)" WEFT_OKagain
    has traffic "$(weft traffic 1)" '^[0-9]+ values$'
}

# Its worker ends later, in the server's loop, and its descriptors' numbers go to the next clients.
test_ordinary_clients_are_served_after_a_refused_unload() {
    begin tcp://127.0.0.1:0
    local numbers=({1..16}) n
    "$built/weft-redis-cli" "$uri" traffic 100 >/dev/null 2>&1 &
    client=$!
    trap 'kill -9 $server $client 2>/dev/null || true' EXIT
    wait_for eval 'redis weft.info | grep -qE "requests:[1-9][0-9]+"'
    kill -STOP $client
    has refused "$(redis module unload weft 2>&1)" ERR
    wait_for eval '[ "$(watched)" = 1 ]' # the server's own
    for n in "${numbers[@]}"; do connect_client "$n" && ask "$n" echo first; done
    for n in "${numbers[@]}"; do wait_for eval "said $n | grep -qx first"; done
    expect unload "$(redis module unload weft)" OK
    for n in "${numbers[@]}"; do ask "$n" echo second; done
    for n in "${numbers[@]}"; do wait_for eval "said $n | grep -qx second"; done
    expect loaded "$(redis module load "$folder/weft_redis.so" tcp://127.0.0.1:0)" OK
}

# They have requests on their way when the worker begins to close, which takes until the stopped client is given up.
test_leases_that_are_asked_of_a_closing_module_are_refused() {
    begin tcp://127.0.0.1:0
    local i
    clients=() # not local: the trap is run when the function has returned
    redis set a value >/dev/null
    "$built/weft-redis-cli" "$uri" traffic 100 >/dev/null 2>&1 &
    clients+=($!)
    for i in {1..6}; do
        "$built/weft-redis-cli" "$uri" lease a 100000000 >"$folder/leases$i" 2>&1 &
        clients+=($!)
    done
    trap 'kill -9 $server "${clients[@]}" 2>/dev/null || true' EXIT
    for i in {1..6}; do wait_for grep -q leased "$folder/leases$i"; done
    wait_for eval 'redis weft.info | grep -qE "requests:[1-9][0-9]{3}"'
    kill -STOP "${clients[0]}"
    has refused "$(redis module unload weft 2>&1)" ERR
    wait_for eval '[ "$(watched)" = 1 ]'
    expect unload "$(redis module unload weft)" OK
    for i in {1..6}; do
        wait_for eval '! kill -0 "${clients[i]}"'
        has client "$(cat "$folder/leases$i")" 'WEFT_ERR_(PEER_CLOSED|PEER_FAILED|CLOSED)'
    done
}

test_a_shutdown_ends_the_clients() {
    begin
    weft traffic 100 >"$scratch/traffic" 2>&1 &
    client=$!
    wait_for eval 'redis weft.info | grep -qE "requests:[1-9][0-9]+"'
    redis shutdown nosave >/dev/null 2>&1 || true
    wait $client && fail "the client goes on"
    has client "$(cat "$scratch/traffic")" 'WEFT_ERR_PEER_(CLOSED|FAILED)|WEFT_ERR_CLOSED'
}

test_an_idle_module_uses_no_processor() {
    begin
    weft get a >/dev/null || true
    sleep 0.3
    before=$(awk '{ print $14 + $15 }' /proc/$server/stat)
    sleep 2
    after=$(awk '{ print $14 + $15 }' /proc/$server/stat)
    # One that polls takes nearly 200; the server's own clock, on a slow machine, some ten.
    [ $((after - before)) -le 40 ] || fail "$((after - before)) ticks in two seconds"
}

test_wrong_arguments_are_refused() {
    begin
    expect unload "$(redis module unload weft)" OK
    has none "$(redis module load "$folder/weft_redis.so" 2>&1)" ERR
    has uri "$(redis module load "$folder/weft_redis.so" nonsense 2>&1)" ERR
    has setting "$(redis module load "$folder/weft_redis.so" "$uri" no-setting 2>&1)" ERR
    expect right "$(redis module load "$folder/weft_redis.so" "$uri")" OK
}

test_an_address_that_is_taken_is_refused() {
    begin tcp://127.0.0.1:0
    taken=$uri first=$server
    begin
    trap 'kill -9 $first $server 2>/dev/null || true' EXIT
    expect unload "$(redis module unload weft)" OK
    has load "$(redis module load "$folder/weft_redis.so" "$taken" 2>&1)" ERR
    expect alive "$(redis ping)" PONG
    has log "$(cat "$folder/log")" WEFT_ERR_EXISTS
    expect again "$(redis module load "$folder/weft_redis.so" tcp://127.0.0.1:0)" OK
}

# without_memory: of the module's own calls of the functions that the file "$scratch/fails" names, none finds memory.
without_memory() {
    needs gcc
    cat >"$scratch/double.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static bool fails(const char *name, const void *caller) {
    Dl_info info;
    char named[16] = "";
    if (!dladdr(caller, &info) || !strstr(info.dli_fname, "/weft_redis.so")) return false;
    FILE *file = fopen(getenv("FAILS"), "r");
    if (file) fscanf(file, "%15s", named), fclose(file);
    return strcmp(name, named) == 0;
}
#define DOUBLE(name, parameters, ...) \
    void *name parameters { \
        static void *(*next) parameters; \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        return fails(#name, __builtin_return_address(0)) ? NULL : next(__VA_ARGS__); \
    }
DOUBLE(malloc, (size_t size), size)
DOUBLE(calloc, (size_t n, size_t size), n, size)
C
    gcc -O1 -w -shared -fPIC -o "$scratch/double.so" "$scratch/double.c" -ldl
    export FAILS=$scratch/fails
    rm -f "$FAILS"
    LD_PRELOAD=$scratch/double.so${LD_PRELOAD:+:$LD_PRELOAD} begin tcp://127.0.0.1:0
    redis set a value >/dev/null
}

test_a_client_without_memory_for_it_is_closed() {
    without_memory
    echo calloc >"$FAILS"
    expect get "$(weft get a || true)" WEFT_ERR_PEER_CLOSED
    rm "$FAILS"
    expect again "$(weft get a)" value
}
test_a_client_without_memory_for_its_reply_is_closed() {
    without_memory
    echo malloc >"$FAILS"
    expect get "$(weft get a || true)" WEFT_ERR_PEER_CLOSED
    rm "$FAILS"
    expect again "$(weft get a)" value
}

run_tests

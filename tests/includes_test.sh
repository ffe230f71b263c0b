#!/bin/bash
# rooms_include_only_rooms_above, and the check itself sees each kind of offence.
check() { python3 tests/check_includes.py "$1"; }
failed=0
verdict() { if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; failed=1; fi; }

offence_is_seen() {
    local name=$1 file=$2 line=$3 tree
    tree=$(mktemp -d)
    mkdir -p "$tree"/{include/weft,fsm,reactor,transports/{shm,tcp},endpoints,collectives,runtime}
    echo "int x;" | tee "$tree"/fsm/fsm.h "$tree"/reactor/reactor.h "$tree"/transports/tcp/tcp.h >/dev/null
    echo "$line" >"$tree/$file"
    ! check "$tree" >/dev/null
    verdict $? "$name"
    rm -r "$tree"
}

check .
verdict $? rooms_include_only_rooms_above
offence_is_seen a_room_below_is_seen fsm/a.c '#include <reactor/reactor.h>'
offence_is_seen a_room_below_is_seen_by_a_relative_path fsm/a.c '#include "../reactor/reactor.h"'
offence_is_seen another_transport_is_seen transports/shm/a.c '#include <transports/tcp/tcp.h>'
offence_is_seen a_transport_in_a_room_is_seen endpoints/a.c '#include <transports/tcp/tcp.h>'
offence_is_seen an_internal_header_in_a_public_one_is_seen include/weft/a.h '#include <fsm/fsm.h>'
offence_is_seen a_test_in_the_library_is_seen runtime/a.c '#include <tests/harness.h>'
exit $failed

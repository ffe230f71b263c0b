#!/bin/bash
# rooms_use_only_rooms_above: by includes and by calls; and the check itself sees each kind of offence.
check() { python3 tests/check_includes.py "$1"; }
failed=0
verdict() { if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; failed=1; fi; }

# offence_is_seen NAME FILE LINE: the check refuses a tree in which FILE has LINE.
offence_is_seen() {
    local name=$1 file=$2 line=$3 tree said
    tree=$(mktemp -d)
    mkdir -p "$tree"/{include/weft,fsm,base,reactor,transports/{shm/{queues,lane},tcp},endpoints/{wire,core},collectives,resource,runtime}
    echo "int x;" | tee "$tree"/{fsm/fsm.h,reactor/reactor.h,transports/tcp/tcp.h,transports/shm/lane/lane.h,endpoints/core/core.h} >/dev/null
    printf '%s\n' 'int weft__turn(void) {' '    return 0;' '}' >"$tree"/reactor/reactor.c
    check "$tree" >/dev/null || verdict 1 "$name: the tree is in order without it"
    printf '%s\n' "$line" >"$tree/$file"
    said=$(check "$tree") && verdict 1 "$name" || verdict 0 "$name"
    grep -q "^$file -> " <<<"$said" || verdict 1 "$name: names the file"
    rm -r "$tree"
}

check .
verdict $? rooms_use_only_rooms_above
offence_is_seen a_room_below_is_seen fsm/a.c '#include <reactor/reactor.h>'
offence_is_seen a_room_below_is_seen_by_a_relative_path fsm/a.c '#include "../reactor/reactor.h"'
offence_is_seen a_room_below_is_seen_by_a_call base/a.c 'int a(void) { return weft__turn(); }'
offence_is_seen another_transport_is_seen transports/shm/a.c '#include <transports/tcp/tcp.h>'
offence_is_seen a_transport_in_a_room_is_seen endpoints/a.c '#include <transports/tcp/tcp.h>'
offence_is_seen an_inner_room_below_is_seen endpoints/wire/a.c '#include <endpoints/core/core.h>'
offence_is_seen an_inner_room_below_of_a_transport_is_seen transports/shm/queues/a.c '#include <transports/shm/lane/lane.h>'
offence_is_seen an_internal_header_in_a_public_one_is_seen include/weft/a.h '#include <fsm/fsm.h>'
offence_is_seen a_test_in_the_library_is_seen runtime/a.c '#include <tests/harness.h>'
exit $failed

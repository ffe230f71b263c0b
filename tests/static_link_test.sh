#!/bin/bash
# What the library shows to a program that it is linked into statically.
set -u
failed=0
verdict() { if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; failed=1; fi; }
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mapfile -t archives < <(find -L . -name 'lib*.lo' -o -name 'lib*.a' | sort)
global() { nm --defined-only --extern-only "${archives[@]}" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u; }

[ "$(global | grep -cE '^weft_(ep_close|_reactor_create|_fsm_step)$')" = 3 ]
verdict $? the_archives_are_the_library

# Names that begin with two underscores are the compiler's: those of sanitizers and of coverage.
stray=$(global | grep -vE '^(weft_|__)')
[ -z "$stray" ] || echo "$stray" | sed 's/^/  global: /'
[ -z "$stray" ]
verdict $? every_global_symbol_begins_with_weft

! nm "${archives[@]}" 2>/dev/null | grep -qE ' [Tt] (explore|explore_print|explore_unreached|weft__fsm_print_.*)$'
verdict $? explorer_and_printers_are_not_in_the_library

# The names that a program is likely to have, and those that the library's files use for their own functions.
names="turn jobs_run loop_open loop_close explore find take notify send_msg open close_all on_effect on_fail port ops
log_limited context reactor worker link lane request main_loop settings counters hash_table list_append fork_generation"
{
    for name in $names $(nm "${archives[@]}" 2>/dev/null | awk '$2 == "t" && $3 !~ /^(weft_|_|\.)|[.]/ { print $3 }' | sort -u); do
        echo "$name"
    done
} | sort -u >"$here/names"

# links_beside NAMES: does a program that defines them link with all of the library?
links_beside() {
    sed 's/.*/int &_ __asm__("&"); int &_ = 1;/' "$1" >"$here/host.c"
    gcc -c -o "$here/host.o" "$here/host.c" &&
        gcc -nostdlib -no-pie -r -o "$here/whole.o" "$here/host.o" \
            -Wl,--whole-archive "${archives[@]}" -Wl,--no-whole-archive 2>"$here/log"
}
echo "  $(wc -l <"$here/names") names of a host"
links_beside "$here/names" || { cat "$here/log"; false; }
verdict $? a_program_may_define_any_name_without_the_prefix

echo weft_ep_close >"$here/public"
! links_beside "$here/public" && grep -q 'multiple definition.*weft_ep_close' "$here/log"
verdict $? this_test_sees_a_clash
exit $failed

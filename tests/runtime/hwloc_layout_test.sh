#!/bin/bash
# What runtime/view/hwloc_library.h declares is what hwloc.h declares, where there is one.
set -uo pipefail
name=the_layout_is_that_of_hwloc_h
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! echo '#include <hwloc.h>' | "${CC:-cc}" -x c -fsyntax-only - 2>/dev/null; then
    echo "  skipped: no headers of hwloc here"
    echo "skip $name"
    exit 0
fi
cat >"$scratch/layout.c" <<'C'
#include <hwloc.h>
#include <runtime/view/hwloc_library.h>
#include <stddef.h>
#define MEMBER(own, theirs) \
    _Static_assert(offsetof(struct own_hwloc_obj, own) == offsetof(struct hwloc_obj, theirs), #own);
MEMBER(type, type) MEMBER(os_index, os_index) MEMBER(total_memory, total_memory) MEMBER(attr, attr)
MEMBER(depth, depth) MEMBER(cousins, next_cousin) MEMBER(sibling_rank, sibling_rank) MEMBER(arity, arity)
MEMBER(memory_arity, memory_arity) MEMBER(io_arity, io_arity) MEMBER(misc_arity, misc_arity) MEMBER(cpuset, cpuset)
_Static_assert(offsetof(union hwloc_obj_attr_u, cache.size) == 0, "size");
_Static_assert(offsetof(union hwloc_obj_attr_u, numanode.local_memory) == 0, "size");
_Static_assert(OWN_HWLOC_PACKAGE == (int)HWLOC_OBJ_PACKAGE && OWN_HWLOC_CORE == (int)HWLOC_OBJ_CORE, "types");
_Static_assert(OWN_HWLOC_L1 == (int)HWLOC_OBJ_L1CACHE && OWN_HWLOC_L1 + 3 == (int)HWLOC_OBJ_L4CACHE, "types");
_Static_assert(OWN_HWLOC_NODE == (int)HWLOC_OBJ_NUMANODE, "types");
_Static_assert(HWLOC_API_VERSION >= 0x20000, "the ABI of libhwloc.so.15");
C
if "${CC:-cc}" -std=gnu11 -fsyntax-only -I. -Iinclude "$scratch/layout.c"; then
    echo "ok $name"
else
    echo "not ok $name"
    exit 1
fi

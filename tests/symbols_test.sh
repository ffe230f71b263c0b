#!/bin/bash
# What libweft.so shows to the linker and what it asks of it.
library=libweft.so
failed=0
verdict() { if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; failed=1; fi; }
dynamic() { readelf --dynamic --wide "$library"; }
exported() { nm --dynamic --extern-only --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }'; }

dynamic | grep -q 'NEEDED.*\[libtalloc\.so\.2\]'
verdict $? talloc_is_linked_dynamically

! dynamic | grep -q 'NEEDED.*stdc++'
verdict $? no_cxx_runtime_is_needed

! dynamic | grep -qE 'NEEDED.*(ibverbs|rdmacm)'
verdict $? rdma_is_loaded_on_demand_only

# What libraries that are loaded by dlopen share for this is some 1,600 bytes for all of them.
tls=$(readelf --program-headers --wide "$library" | awk '$1 == "TLS" { print $6 }')
echo "  thread-local storage: $((${tls:-0})) bytes"
[ $((${tls:-0})) -le 64 ]
verdict $? static_thread_local_storage_is_64_bytes_at_most

# A thread that called the library ends after the library was unloaded. A sanitizer's own library cannot be loaded so late.
[ -n "${WEFT_TEST_SANITIZER:-}" ] || timeout 200 python3 - "$library" <<'PY'
import _ctypes, ctypes, os, sys, threading
library = ctypes.CDLL(os.path.realpath(sys.argv[1]))
failed, unloaded = threading.Event(), threading.Event()
def fail():
    text = ctypes.create_string_buffer(500)
    status = library.weft_mem_detect_sized(ctypes.c_size_t(0), None, None)
    library.weft_status_describe(status, text, ctypes.c_size_t(500))
    assert b"info_p is NULL" in text.value, text.value
    failed.set()
    unloaded.wait()
thread = threading.Thread(target=fail)
thread.start()
failed.wait(10)
_ctypes.dlclose(library._handle)
mapped = "libweft" in open("/proc/self/maps").read()
unloaded.set()
thread.join()
assert not mapped
PY
verdict $? a_thread_may_outlive_the_library_where_no_sanitizer_is

# Its own code would be LGPL code inside the library.
! nm "$library" | grep -qE ' [Tt] _?talloc_(free|named_const)$'
verdict $? no_talloc_code_is_inside

dynamic | grep -q 'SONAME.*\[libweft\.so\.0\]'
verdict $? soname_is_libweft_so_0

[ "$(exported | grep -c '^weft_[a-z].*@@WEFT_0$')" -gt 0 ]
verdict $? the_public_api_is_exported

stray=$(exported | grep -v '^weft_[a-z].*@@WEFT_0$')
[ -z "$stray" ] || echo "$stray" | sed 's/^/  exported: /'
[ -z "$stray" ]
verdict $? only_the_public_api_is_exported

# Every function that a public header declares is there.
declared=$(cat include/weft/*.h | grep -oE '^WEFT_API [^(]*\(' | grep -oE 'weft_[a-z0-9_]+\($' | tr -d '(' | sort -u)
absent=$(comm -23 <(echo "$declared") <(exported | sed 's/@.*//' | sort -u))
[ -z "$absent" ] || echo "$absent" | sed 's/^/  declared only: /'
[ -z "$absent" ]
verdict $? every_declared_function_is_defined

# weft.h is the whole of it.
left=$(cd include && ls weft/*.h | grep -v '^weft/weft.h$' | while read -r header; do
    grep -q "^#include <$header>" weft/weft.h || echo "$header"
done)
[ -z "$left" ] || echo "$left" | sed 's/^/  not in weft.h: /'
[ -z "$left" ]
verdict $? weft_h_has_every_header

# A struct that a call fills in may grow, so its size comes with it. These stay as they are: a received tag's and a lease.
growing='_t \*(info_p|member_p|attributes_p)\b'
unsized=$(cat include/weft/*.h | tr '\n' ' ' | grep -oE 'WEFT_API weft_status_t weft_[a-z_]+\([^;]*\);' | grep -E "$growing" |
    grep -vE 'weft_[a-z_]+_sized\(|weft_tag_info_t')
[ -z "$unsized" ] || echo "$unsized" | sed 's/^/  without a size: /'
[ -z "$unsized" ]
verdict $? every_description_has_its_size
exit $failed

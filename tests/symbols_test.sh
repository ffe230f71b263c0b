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
exit $failed

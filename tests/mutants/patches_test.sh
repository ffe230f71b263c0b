#!/bin/bash
# Every planted fault still applies to the tree, has a full header, and names a test that there is.
cd "$(dirname "$0")/../.." || exit 1
if ! command -v patch >/dev/null; then
    echo "  skipped: patch is not installed"
    echo "skip every planted fault applies"
    exit 0
fi
status=0
n=0
for file in tests/mutants/*.patch; do
    name=$(basename "$file" .patch)
    n=$((n + 1))
    what=$(patch --dry-run --follow-symlinks -s -p1 -f -i "$file" 2>&1) || {
        echo "  $what"
        echo "not ok $name applies"
        status=1
    }
    header=$(sed '/^--- /,$d' "$file")
    program=$(sed -n 's/^Found by: \(asan \)\?test \([^ ]*\).*/\2/p' <<<"$header")
    if ! grep -qx "Name: $name" <<<"$header" || ! grep -q '^Fault: .' <<<"$header" ||
        ! grep -qE '^Found by: ((asan )?test [a-z0-9_/]+_test( .*)?|simulation( [0-9]+)?)$' <<<"$header" ||
        { [ -n "$program" ] && [ ! -e "tests/$program.c" ]; }; then
        echo "not ok $name has a header that names a test"
        status=1
    fi
done
[ "$n" -ge 100 ] || {
    echo "not ok there are 100 planted faults, not $n"
    status=1
}
[ "$status" = 0 ] && echo "ok every planted fault applies"
if said=$(tests/mutants/refresh no_such_fault 2>&1) || [ "$said" != "refresh: no fault is called no_such_fault" ]; then
    echo "not ok refresh names a fault that it does not have"
    status=1
else
    echo "ok refresh names a fault that it does not have"
fi
exit $status

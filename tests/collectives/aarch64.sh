#!/bin/bash
# tests/collectives/aarch64.sh: by hand, where `tools/setup arm` was run. Compiles the reductions for aarch64, looks for
# NEON in what the compiler made of their one source, and runs their test in an emulator.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
compile=(aarch64-linux-gnu-gcc -std=gnu11 -D_GNU_SOURCE= -I. -Iinclude -O2)
"${compile[@]}" -c collectives/reductions.c -o "$out/reductions.o"
aarch64-linux-gnu-objdump -d "$out/reductions.o" >"$out/code"
for sum in FLOAT32:4s FLOAT64:2d INT32:4s INT8:16b; do
    sed -n "/<baseline_${sum%:*}_SUM>:/,/^$/p" "$out/code" | grep -E "f?add[[:space:]]+v[0-9]+\.${sum#*:}" >/dev/null ||
        { echo "not ok the sum of ${sum%:*} is vectorised" && exit 1; }
    echo "ok the sum of ${sum%:*} is vectorised"
done
"${compile[@]}" -static collectives/reductions.c tests/collectives/reductions_test.c -lm -o "$out/reductions_test"
qemu-aarch64 "$out/reductions_test"

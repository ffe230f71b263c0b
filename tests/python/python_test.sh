#!/bin/bash
# The package for Python, by Debian's interpreter and what tools/setup adds to it: tests/python/test_*.py, each case a line.
. tests/check.sh

# A free-threaded interpreter's extension has that interpreter's name.
has_extension() { compgen -G "$1/weft/_core.*.so" >/dev/null; }
package=$PWD/python
has_extension "$package" || package=$PWD/out/plain/python
python=${PYTHON:-${WEFT_TEST_PYTHON:-/usr/bin/python3}}
[ -e "$python" ] || python=/usr/bin/python3
if ! has_extension "$package"; then
    echo "  skipped: no headers of Python here"
    echo "skip python"
    exit 0
fi
export PYTHONPATH=$package:$PWD/tests/python PYTHONDONTWRITEBYTECODE=1 WEFT_CALIBRATION=off
export WEFT_SHM_DIRECTORY=$scratch TMPDIR=$scratch
WEFT_TEST_CUDA_DOUBLE=$(cuda_double)/libcuda.so.1
export WEFT_TEST_CUDA_DOUBLE
PATH=$(cd "$bin/tools" 2>/dev/null && pwd):$PATH
# Of a test's own servers and clients each gets its turn, however slow the machine is.
export WEFT_CONNECT_TIMEOUT=60s UCXPY_CONNECT_TIMEOUT=60
# The interpreter itself is built without a sanitizer.
if [ "${WEFT_TEST_SANITIZER:-}" = asan ]; then
    LD_PRELOAD=$(cc -print-file-name=libasan.so):$(cc -print-file-name=libubsan.so)
    export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0
fi
"$python" tests/python/cases.py "$@"

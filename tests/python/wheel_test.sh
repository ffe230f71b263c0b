#!/bin/bash
# The wheel that `pip wheel .` makes of the package: its ABI, its platform, and what an installation of it can do.
. tests/check.sh

package=$PWD/python tests=$PWD/tests/python weft_run=$(cd "$bin/tools" && pwd)/weft-run
python=${PYTHON:-${WEFT_TEST_PYTHON:-$PWD/out/setup/python/bin/python3}}
[ -e "$python" ] || python=/usr/bin/python3
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 WEFT_CALIBRATION=off

# With a sanitizer the extension is another one.
may_run() {
    [ -e "$package/weft/_core.abi3.so" ] || skip "no headers of Python here"
    [ -z "${WEFT_TEST_SANITIZER:-}" ] || skip "wheels are built without a sanitizer"
    "$python" -c 'import scikit_build_core, pip' 2>/dev/null && command -v cmake >/dev/null || skip "no scikit-build-core here"
}

wheel() {
    may_run
    set -- "$scratch"/wheels/*.whl
    [ ! -e "$1" ] || return 0
    mkdir -p "$scratch/package"
    cp -rL "$package"/{CMakeLists.txt,LICENSE,README.md,pyproject.toml,weft} "$scratch/package/"
    chmod -R u+w "$scratch/package"
    mv "$scratch/package/weft/_core.abi3.so" "$scratch/"
    # What others built is named by links, as in a folder of Bazel's, and stays as it is.
    mkdir "$scratch/built" && cp -L "$weft_run" "$scratch/built/" && ln -s built/weft-run "$scratch/weft-run"
    (cd "$scratch/package" && WEFT_EXTENSION=$scratch/_core.abi3.so WEFT_RUN=$scratch/weft-run \
        "$python" -m pip wheel -q --no-build-isolation --no-deps --no-index -w "$scratch/wheels" .) || fail "no wheel"
    cmp "$weft_run" "$scratch/built/weft-run" || fail "the program that the wheel was made of is changed"
}

test_pip_makes_one_wheel_for_all_interpreters_from_3_11_on() {
    wheel
    expect "the wheel" "$(cd "$scratch/wheels" && echo *.whl)" "weft-0.1.0-cp311-abi3-linux_$(uname -m).whl"
    held=$("$python" -m zipfile -l "$scratch"/wheels/*.whl)
    for name in weft/_core.abi3.so weft/py.typed weft/_core.pyi weft/errors.pyi weft/compat/ucp.py weft/dask.py weft/graph.py weft/weft-run \
        'dist-info/entry_points.txt'; do
        has "the wheel" "$held" "$name"
    done
}

test_the_wheel_carries_its_licence() {
    wheel
    unpacked=$scratch/licence && "$python" -m zipfile -e "$scratch"/wheels/*.whl "$unpacked"
    cmp "$package/LICENSE" "$unpacked"/weft-*.dist-info/licenses/LICENSE || fail "no licence, or another one"
    has metadata "$(cat "$unpacked"/weft-*.dist-info/METADATA)" '^License-Expression: BSD-3-Clause$'
}

test_the_wheel_keeps_to_the_stable_abi() {
    wheel
    "$python" -c 'import abi3audit' 2>/dev/null || skip "no abi3audit here"
    said=$("$python" -m abi3audit --strict --verbose "$scratch"/wheels/*.whl 2>&1) || fail "$said"
    has "abi3audit" "$said" "0 (ABI )?violations"
}

test_the_wheel_is_for_a_platform_that_others_have() {
    wheel
    "$python" -c 'import auditwheel' 2>/dev/null || skip "no auditwheel here"
    has "auditwheel" "$("$python" -m auditwheel show "$scratch"/wheels/*.whl 2>&1 | tr '\n' ' ')" "manylinux_2_[0-9]+"
}

test_an_installed_wheel_starts_processes_of_a_script() {
    wheel
    "$python" -m pip install -q --no-deps --no-index --target "$scratch/run" "$scratch"/wheels/*.whl
    cat >"$scratch/rank.py" <<'EOF'
import asyncio, weft

async def main():
    worker = weft.Worker()
    team = await weft.teams.create(worker)
    print("rank", team.rank, "of", team.size, flush=True)
    await team.barrier()

asyncio.run(main())
EOF
    cd "$scratch" || return 1
    # no weft-run in PATH
    said=$(PATH=/usr/bin:/bin PYTHONPATH=$scratch/run timeout 200 "$python" -m weft.run -n 2 rank.py 2>&1 | sort | tr '\n' ' ')
    has "two processes" "$said" "rank 0 of 2.*rank 1 of 2"
}

test_an_installed_wheel_works_and_dask_finds_it() {
    wheel
    "$python" -m pip install -q --no-deps --no-index --target "$scratch/site" "$scratch"/wheels/*.whl
    cd "$scratch" || return 1
    export PYTHONPATH=$scratch/site
    has "weft.info" "$("$python" -m weft.info)" tcp
    "$python" -c 'import distributed' 2>/dev/null || skip "no distributed here"
    DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=200s timeout 600 "$python" "$tests/test_dask.py" Clusters 2>&1 | tail -30 >said
    grep -q '^OK$' said || fail "$(cat said)"
}

test_dask_finds_a_package_that_is_only_on_pythonpath() {
    may_run
    mkdir "$scratch/path"
    cp -rL "$package/weft" "$scratch/path/"
    "$python" "$package/dist_info.py" "$scratch/path" || fail "no dist-info"
    export PYTHONPATH=$scratch/path
    found=$("$python" -c "from importlib.metadata import entry_points as points, version
print(version('weft'), [point.value for point in points(group='distributed.comm.backends', name='weft')])")
    expect "what is known of it" "$found" "0.1.0 ['weft.dask:WeftBackend']"
    "$python" -c 'import distributed' 2>/dev/null || skip "no distributed here"
    cd "$scratch" || return 1
    DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=200s timeout 600 "$python" "$tests/test_dask.py" Clusters 2>&1 | tail -30 >said
    grep -q '^OK$' said || fail "$(cat said)"
}

run_tests

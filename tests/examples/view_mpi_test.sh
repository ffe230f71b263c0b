#!/bin/bash
# Views on communicators of the program's own, with the headers and libraries of a real MPI. MPI_Comm is a pointer in
# Open MPI and an int in MPICH.
. tests/check.sh

cat >"$scratch/program.c" <<'PROGRAM'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

#define MUST(held)                                              \
    do {                                                        \
        if (!(held)) {                                          \
            printf("  line %d: not %s\n", __LINE__, #held);     \
            MPI_Abort(MPI_COMM_WORLD, 1);                       \
        }                                                       \
    } while (0)

static int n_finalizers;

static int mpi_is_over(void) {
    int over = 0;
    MPI_Finalized(&over);
    return over;
}

/* The other library still uses MPI, by the view's communicator (`arg`: the view). */
static weft_status_t end_library(weft_finalizer_t *finalizer, void *arg) {
    MPI_Comm comm;
    MUST(!mpi_is_over());
    MUST(weft_view_mpi_comm(arg, &comm, sizeof comm) == WEFT_OK);
    MUST(MPI_Barrier(comm) == MPI_SUCCESS);
    n_finalizers++;
    return WEFT_OK;
}

static weft_view_t *view_on(MPI_Comm *comm) {
    weft_view_t *view = NULL;
    MUST(weft_view_create_wait(&(weft_view_params_t){.mpi_comm = comm}, &view) == WEFT_OK);
    MUST(strcmp(weft_view_engine(view), "mpi") == 0);
    return view;
}

/* What the view's communicator says is what the view says, and it is not the program's. */
static void use_communicator(weft_view_t *view, MPI_Comm given) {
    int rank, size, same, one = 1, sum = 0;
    char too_large[sizeof(MPI_Comm) + 1];
    MPI_Comm comm;
    MUST(weft_view_mpi_comm(view, &comm, sizeof comm) == WEFT_OK);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MUST((uint32_t)rank == weft_view_rank(view) && (uint32_t)size == weft_view_size(view));
    MPI_Comm_compare(comm, given, &same);
    MUST(same == MPI_CONGRUENT);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    MUST(sum == size);
    MUST(weft_view_mpi_comm(view, too_large, sizeof too_large) == WEFT_ERR_INVALID_PARAM);
    MUST(weft_view_mpi_comm(view, NULL, sizeof comm) == WEFT_ERR_INVALID_PARAM);
    MUST(weft_view_mpi_comm(NULL, &comm, sizeof comm) == WEFT_ERR_INVALID_PARAM);
}

static void part_has_no_communicator(weft_view_t *view) {
    MPI_Comm comm;
    weft_view_t *part;
    MUST(weft_view_split_wait(view, 0, 0, &part) == WEFT_OK);
    MUST(strcmp(weft_view_engine(part), "mpi") == 0);
    MUST(weft_view_mpi_comm(part, &comm, sizeof comm) == WEFT_ERR_NOT_FOUND);
    MUST(weft_view_release_wait(part) == WEFT_OK);
}

static void use(weft_view_t *view) {
    int one = 1, sum = 0;
    MUST(weft_allreduce_wait(weft_view_team(view), &one, &sum, 1, WEFT_INT32, WEFT_SUM) == WEFT_OK);
    MUST(sum == (int)weft_view_size(view));
}

static void two_views(MPI_Comm *first, MPI_Comm *second, int release_first) {
    weft_view_t *view[2];
    view[0] = view_on(first);
    view[1] = view_on(second);
    MUST(weft_view_equal(view[0], view[1]));
    for (int i = 0; i < 2; i++) {
        use(view[i]);
        MUST(weft_view_push_finalizer(view[i], end_library, view[i], NULL, NULL) == WEFT_OK);
    }
    MUST(weft_view_release_wait(view[!release_first]) == WEFT_OK);
    MUST(n_finalizers == 1 && !mpi_is_over());
    use(view[release_first]);
    MUST(weft_view_release_wait(view[release_first]) == WEFT_OK);
    MUST(n_finalizers == 2);
}

/* The program has begun MPI, and ends it. Its communicator has the ranks in reverse. */
static void of_the_program(int release_first) {
    int rank, size, one = 1, sum = 0;
    MPI_Comm reverse;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reverse);
    weft_view_t *view = view_on(&reverse);
    MUST(weft_view_rank(view) == (uint32_t)(size - 1 - rank) && !weft_view_did_start(view));
    use_communicator(view, reverse);
    part_has_no_communicator(view);
    MUST(weft_view_release_wait(view) == WEFT_OK);
    two_views(&reverse, &reverse, release_first);
    view = view_on(&reverse);
    MPI_Comm_free(&reverse); /* the view has a duplicate */
    use(view);
    MUST(weft_view_release_wait(view) == WEFT_OK);
    MUST(!mpi_is_over());
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MUST(sum == size);
    MPI_Finalize();
}

static int n_errors;
static void count_error(MPI_Comm *comm, int *code, ...) {
    n_errors++;
}

/* MPI says no once, and is asked for nothing further of a communicator that is not there. */
static void of_no_communicator(void) {
    MPI_Comm none = MPI_COMM_NULL, world = MPI_COMM_WORLD;
    MPI_Errhandler counting;
    weft_view_t *view = NULL;
    MPI_Init(NULL, NULL);
    MPI_Comm_create_errhandler(count_error, &counting);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, counting);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, counting);
    weft_view_params_t params = {.mpi_comm = &none};
    MUST(weft_view_create_wait(&params, &view) == WEFT_ERR_INVALID_PARAM);
    MUST(n_errors == 1);
    view = view_on(&world);
    use(view);
    MUST(weft_view_release_wait(view) == WEFT_OK);
    MUST(n_errors == 1);
    MPI_Finalize();
}

enum { SOON_S = 20, TOLD = 7 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * Rank 0 creates a view, and rank 1 does not, or it begins to and makes no progress. Then an
 * operation of MPI has no end, and no process can finalize MPI.
 */
static void of_one_alone(int other_begins) {
    int rank, note = 0;
    weft_view_t *view = NULL;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Comm world = MPI_COMM_WORLD;
        weft_view_params_t params = {.mpi_comm = &world, .deadline_ms = 500};
        double begin = now_s();
        MUST(weft_view_create_wait(&params, &view) == WEFT_ERR_TIMED_OUT);
        MUST(now_s() - begin < SOON_S);
        printf("well\n");
        fflush(stdout);
        MPI_Send(&note, 1, MPI_INT, 1, TOLD, MPI_COMM_WORLD);
    } else {
        if (other_begins) MUST(weft_view_create(&(weft_view_params_t){.engine = "mpi"}, &view) == WEFT_OK);
        MPI_Recv(&note, 1, MPI_INT, 0, TOLD, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    _exit(0);
}

/* The first view begins MPI; the last one ends it, after its finalizer. */
static void of_the_view(int release_first) {
    MPI_Comm world = MPI_COMM_WORLD;
    weft_view_t *view, *first = NULL;
    MUST(weft_view_create_wait(NULL, &first) == WEFT_OK && weft_view_did_start(first));
    use_communicator(first, MPI_COMM_WORLD);
    two_views(NULL, &world, release_first);
    MUST(!mpi_is_over() && weft_view_release_wait(first) == WEFT_OK);
    MUST(mpi_is_over());
    MUST(weft_view_create_wait(&(weft_view_params_t){.mpi_comm = &world}, &view) == WEFT_ERR_CLOSED);
}

int main(int argc, char **argv) {
    MUST(argc == 3);
    if (strcmp(argv[1], "program") == 0)
        of_the_program(atoi(argv[2]));
    else if (strcmp(argv[1], "none") == 0)
        of_no_communicator();
    else if (strcmp(argv[1], "alone") == 0)
        of_one_alone(atoi(argv[2]));
    else
        of_the_view(atoi(argv[2]));
    printf("well\n");
    return 0;
}
PROGRAM

# Open MPI 4 has to find its libevent before libev (docs/view.md).
libevent="-l:libevent_core-2.1.so.7 -l:libevent_pthreads-2.1.so.7"

# build MPI NAME LIBRARIES: with its compiler. The libraries come before Weft.
build() {
    command -v "mpicc.$1" >/dev/null && command -v "mpirun.$1" >/dev/null || skip "no $2 here"
    echo '#include <mpi.h>' >"$scratch/probe.c"
    "mpicc.$1" -fsyntax-only "$scratch/probe.c" 2>/dev/null || skip "no headers of $2 here"
    library=$(find -L . -maxdepth 2 -name libweft.so | head -1)
    [ -n "$library" ] || fail "libweft.so is not built"
    # shellcheck disable=SC2046
    "mpicc.$1" -std=gnu11 -Iinclude -o "$scratch/program" "$scratch/program.c" -Wl,--no-as-needed $3 "$library" -Wl,-rpath,"$(dirname "$(realpath "$library")")" || fail "it does not compile"
    ln -sf "$(realpath "$library")" "$scratch/libweft.so.0"
    export LD_LIBRARY_PATH=$scratch
}

# all_well HOW ORDER COMMAND…: three processes say that all went well. MPICH may join their lines.
all_well() {
    said=$(timeout 120 "${@:3}" "$scratch/program" "$1" "$2" 2>&1) || fail "$1 $2: $said"
    [ "$(grep -o well <<<"$said" | wc -l)" = 3 ] || fail "$1 $2: $said"
}

test_communicators_of_a_program_that_has_begun_openmpi() {
    build openmpi "Open MPI" "$libevent"
    all_well program 0 mpirun.openmpi --allow-run-as-root --oversubscribe -n 3
    all_well program 1 mpirun.openmpi --allow-run-as-root --oversubscribe -n 3
}

test_finalizers_run_before_the_view_ends_openmpi() {
    build openmpi "Open MPI" "$libevent"
    all_well view 0 mpirun.openmpi --allow-run-as-root --oversubscribe -n 3
    all_well view 1 mpirun.openmpi --allow-run-as-root --oversubscribe -n 3
}

# The launcher is not content with processes that end without MPI_Finalize, and may end the others.
one_alone() {
    said=$(WEFT_CLOSE_TIMEOUT=300ms timeout 200 "${@:2}" "$scratch/program" alone "$1" 2>&1) || [ $? != 124 ] || fail "it hung: $said"
    has "rank 0 alone, $1" "$said" '^well'
    has "the log" "$said" 'another rank has not taken part in the exchange over MPI'
}

test_a_view_ends_where_another_rank_creates_none_openmpi() {
    build openmpi "Open MPI" "$libevent"
    one_alone 0 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2
    one_alone 1 mpirun.openmpi --allow-run-as-root --oversubscribe -n 2
}

test_a_view_ends_where_another_rank_creates_none_mpich() {
    build mpich MPICH ""
    one_alone 0 mpirun.mpich -n 2
    one_alone 1 mpirun.mpich -n 2
}

test_no_communicator_is_refused_by_openmpi() {
    build openmpi "Open MPI" "$libevent"
    all_well none 0 mpirun.openmpi --allow-run-as-root --oversubscribe -n 3
}

test_no_communicator_is_refused_by_mpich() {
    build mpich MPICH ""
    all_well none 0 mpirun.mpich -n 3
}

test_communicators_of_a_program_that_has_begun_mpich() {
    build mpich MPICH ""
    all_well program 0 mpirun.mpich -n 3
    all_well program 1 mpirun.mpich -n 3
}

test_finalizers_run_before_the_view_ends_mpich() {
    build mpich MPICH ""
    all_well view 0 mpirun.mpich -n 3
    all_well view 1 mpirun.mpich -n 3
}

# The constructors of weft/view.hpp take an MPI_Comm of either kind.
cat >"$scratch/program.cpp" <<'PROGRAM'
#include <iostream>
#include <mpi.h>
#include <weft/view.hpp>

int main(int argc, char **argv) {
    int rank, size, over = 0;
    MPI_Comm reverse;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reverse);
    {
        weft::runtime_view world(MPI_COMM_WORLD), other(argc, argv, reverse);
        if (world.did_i_start() || (int)world.rank() != rank) return 1;
        int same, at;
        MPI_Comm_compare(other.mpi_comm<MPI_Comm>(), reverse, &same);
        MPI_Comm_rank(other.mpi_comm<MPI_Comm>(), &at);
        if (same != MPI_CONGRUENT || at != (int)other.rank()) return 1;
        if ((int)other.rank() != size - 1 - rank || world.size() != other.size()) return 1;
        if (other.reduce(1, std::plus<int>()) != size || world.gather(rank)[size - 1] != size - 1) return 1;
    }
    MPI_Finalized(&over);
    MPI_Finalize();
    std::cout << (over ? "ill" : "well") << std::endl;
}
PROGRAM

# in_cpp MPI LIBRARIES: builds that one in place of the other
in_cpp() {
    command -v "mpicxx.$1" >/dev/null || skip "no C++ compiler here"
    # shellcheck disable=SC2086
    "mpicxx.$1" -std=c++17 -Iinclude -o "$scratch/program" "$scratch/program.cpp" -Wl,--no-as-needed $2 "$library" ||
        fail "it does not compile"
}

test_openmpi_communicators_in_cpp() {
    build openmpi "Open MPI" "$libevent"
    in_cpp openmpi "$libevent"
    all_well in cpp mpirun.openmpi --allow-run-as-root --oversubscribe -n 3
}

test_mpich_communicators_in_cpp() {
    build mpich MPICH ""
    in_cpp mpich ""
    all_well in cpp mpirun.mpich -n 3
}

run_tests

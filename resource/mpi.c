/* MPI_COMM_WORLD of an MPI that is loaded at run time: MPICH's ABI (handles are int) or Open MPI's
 * (handles are addresses of objects). */
#include <base/status.h>
#include <dlfcn.h>
#include <stdint.h>
#include <weft/resource.h>

enum { MPICH_COMM_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d };

/* What the functions need of the library; found again by each call, so that nothing is kept. */
struct mpi_calls {
    void *world, *byte; /* as arguments */
    int (*rank)(void *, int *);
    int (*size)(void *, int *);
    int (*allgather)(const void *, int, void *, void *, int, void *, void *);
};

static bool find_calls(void *library, struct mpi_calls *calls) {
    void *world = dlsym(library, "ompi_mpi_comm_world");
    void *byte = dlsym(library, "ompi_mpi_byte");
    calls->world = world ? world : (void *)(uintptr_t)MPICH_COMM_WORLD;
    calls->byte = world ? byte : (void *)(uintptr_t)MPICH_BYTE;
    *(void **)&calls->rank = dlsym(library, "MPI_Comm_rank");
    *(void **)&calls->size = dlsym(library, "MPI_Comm_size");
    *(void **)&calls->allgather = dlsym(library, "MPI_Allgather");
    return calls->rank && calls->size && calls->allgather;
}

static int world_rank(void *library, int *rank_p) {
    struct mpi_calls calls;
    return find_calls(library, &calls) ? calls.rank(calls.world, rank_p) : -1;
}

static int world_size(void *library, int *size_p) {
    struct mpi_calls calls;
    return find_calls(library, &calls) ? calls.size(calls.world, size_p) : -1;
}

static int world_allgather(void *library, const void *mine, int len, void *all) {
    struct mpi_calls calls;
    if (!find_calls(library, &calls)) return -1;
    return calls.allgather(mine, len, calls.byte, all, len, calls.byte, calls.world);
}

static bool is_initialised(void *library) {
    int (*initialized)(int *);
    int yes = 0;
    *(void **)&initialized = dlsym(library, "MPI_Initialized");
    return initialized && initialized(&yes) == 0 && yes;
}

weft_status_t weft_mpi_load(const char *library, weft_mpi_t *mpi_p) {
    struct mpi_calls calls;
    if (!mpi_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "mpi_p is NULL");
    void *handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!handle || !find_calls(handle, &calls))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "no MPI in %s", library ? library : "this process");
    if (!is_initialised(handle)) return weft__fail(WEFT_ERR_UNSUPPORTED, "MPI is not initialised");
    *mpi_p = (weft_mpi_t){handle, world_rank, world_size, world_allgather};
    return WEFT_OK;
}

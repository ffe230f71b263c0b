/* Finds and loads an MPI library, and covers the differences between the ABIs of Open MPI and
 * MPICH. */
#include "mpi_library.h"

#include <base/status.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Handles of MPICH's ABI, which its mpi.h defines as numbers. */
enum { MPICH_WORLD = 0x44000000, MPICH_BYTE = 0x4c00010d, MPICH_STATUS_IGNORE = 1 };

static void *function(void *library, const char *name) {
    return dlsym(library ? library : RTLD_DEFAULT, name);
}

static bool in_process(void) {
    int (*initialized)(int *);
    int flag = 0;
    *(void **)&initialized = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    return initialized && initialized(&flag) == 0 && flag;
}

static bool by_openmpi(void) {
    return secure_getenv("OMPI_COMM_WORLD_SIZE") != NULL;
}

static bool by_mpich(void) {
    return secure_getenv("PMI_RANK") && secure_getenv("PMI_SIZE") && !secure_getenv("SLURM_PROCID");
}

bool weft__mpi_present(void) {
    return in_process() || by_openmpi() || by_mpich();
}

/*
 * They stay loaded: libraries of MPI do not survive being unloaded. DEEPBIND, because libev defines
 * functions of libevent, which Open MPI would call in place of those of its own libevent.
 */
static void *open_bound(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
}

/* The PMIx library beside it, which Open MPI 4 loads only later, and not bound so. */
static void open_beside(void *library, const char *name) {
    char path[PATH_MAX];
    Dl_info info;
    if (!dladdr(dlsym(library, "MPI_Init_thread"), &info)) return;
    const char *slash = strrchr(info.dli_fname, '/');
    if (!slash) return;
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, name);
    open_bound(path);
}

static void *open_library(void) {
    static const char *const openmpi[] = {"libmpi.so.40", "libmpi.so", NULL};
    static const char *const mpich[] = {"libmpich.so.12", "libmpi.so.12", "libmpi.so", NULL};
    const char *const *name = by_mpich() && !by_openmpi() ? mpich : openmpi;
    for (; *name; name++) {
        void *library = open_bound(*name);
        if (!library) continue;
        open_beside(library, "libpmix.so.2");
        return library;
    }
    return NULL;
}

static void find_handles(struct mpi_library *mpi, void *library) {
    void *world = function(library, "ompi_mpi_comm_world");
    mpi->is_mpich = !world;
    mpi->world = world ? (intptr_t)world : MPICH_WORLD;
    mpi->byte = world ? (intptr_t)function(library, "ompi_mpi_byte") : MPICH_BYTE;
    mpi->ignored_status = world ? 0 : MPICH_STATUS_IGNORE;
}

/* Open MPI before 5 has libevent apart, so its plugins find what is first in the process. */
static weft_status_t check_libevent(const struct mpi_library *mpi, void *library) {
    char version[8192] = ""; /* as MPICH asks for; Open MPI: 256 */
    int len = 0, is = 0;
    Dl_info info;
    int (*version_of)(char *, int *);
    *(void **)&version_of = function(library, "MPI_Get_library_version");
    const void *event_add = dlsym(RTLD_DEFAULT, "event_add");
    mpi->initialized(&is);
    if (is || !version_of || version_of(version, &len) != 0) return WEFT_OK;
    if (strncmp(version, "Open MPI v", 10) != 0 || atoi(version + 10) >= 5) return WEFT_OK;
    if (!event_add || !dladdr(event_add, &info) || !strstr(info.dli_fname, "libev.so"))
        return WEFT_OK;
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "%.14s would take libev's event_add for libevent's: start the program with "
                      "LD_PRELOAD=libevent_core-2.1.so.7, or link that library before Weft",
                      version);
}

weft_status_t weft__mpi_load(struct mpi_library *mpi) {
    static const struct {
        const char *name;
        size_t at;
    } wanted[] = {
#define FUNCTION(name, field) {name, offsetof(struct mpi_library, field)}
        FUNCTION("MPI_Initialized", initialized), FUNCTION("MPI_Finalized", finalized),
        FUNCTION("MPI_Init_thread", init_thread), FUNCTION("MPI_Finalize", finalize),
        FUNCTION("MPI_Comm_idup", comm_idup),     FUNCTION("MPI_Comm_free", comm_free),
        FUNCTION("MPI_Comm_rank", comm_rank),     FUNCTION("MPI_Comm_size", comm_size),
        FUNCTION("MPI_Iallgather", iallgather),   FUNCTION("MPI_Test", test),
#undef FUNCTION
    };
    void *library = dlsym(RTLD_DEFAULT, "MPI_Init_thread") ? NULL : open_library();
    if (!library && !dlsym(RTLD_DEFAULT, "MPI_Init_thread"))
        return weft__fail(WEFT_ERR_NOT_FOUND, "no MPI library can be loaded: %s", dlerror());
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = function(library, wanted[i].name);
        if (!found)
            return weft__fail(WEFT_ERR_NOT_FOUND, "the MPI library has no %s", wanted[i].name);
        memcpy((char *)mpi + wanted[i].at, &found, sizeof found);
    }
    find_handles(mpi, library);
    return check_libevent(mpi, library);
}

intptr_t weft__mpi_handle(const struct mpi_library *mpi, const void *at) {
    int number;
    intptr_t pointer;
    if (mpi->is_mpich) return memcpy(&number, at, sizeof number), number;
    return memcpy(&pointer, at, sizeof pointer), pointer;
}

size_t weft__mpi_handle_size(const struct mpi_library *mpi) {
    return mpi->is_mpich ? sizeof(int) : sizeof(void *);
}

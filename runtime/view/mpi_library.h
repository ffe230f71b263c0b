/*
 * An MPI library, loaded at run time: Open MPI or MPICH (and what has its ABI). Handles are
 * pointers in the one and integers in the other; both fit in an intptr_t.
 */
#ifndef WEFT_RUNTIME_VIEW_MPI_LIBRARY_H
#define WEFT_RUNTIME_VIEW_MPI_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/base.h>

struct mpi_library {
    int (*initialized)(int *flag);
    int (*finalized)(int *flag);
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*comm_idup)(intptr_t comm, void *new_comm, void *request);
    int (*comm_free)(void *comm);
    int (*comm_rank)(intptr_t comm, int *rank);
    int (*comm_size)(intptr_t comm, int *size);
    int (*iallgather)(const void *mine, int n, intptr_t type, void *all, int n_each,
                      intptr_t all_type, intptr_t comm, void *request);
    int (*test)(void *request, int *done, intptr_t status);
    bool is_mpich;
    intptr_t world, byte, ignored_status;
};

/* Whether this process was started by mpirun, or MPI is initialized in it. */
bool weft__mpi_present(void);
/* The one that is in this process already, else the one whose launcher started it. NOT_FOUND. */
weft_status_t weft__mpi_load(struct mpi_library *mpi);
/* Reads a handle of the size that this library's handles have. */
intptr_t weft__mpi_handle(const struct mpi_library *mpi, const void *at);
size_t weft__mpi_handle_size(const struct mpi_library *mpi);

#endif

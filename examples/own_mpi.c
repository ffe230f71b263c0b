/*
 * A program of MPI: mpirun -n 3 own-mpi [LIBRARY], libmpi.so.40 without one. A library of the
 * program makes a team of MPI_COMM_WORLD: its ranks are the team's, and its allgather connects
 * them. MPI is loaded at run time, so this builds without it. A program that is compiled with mpi.h
 * writes the three functions of weft_mpi_t itself, for any communicator.
 *
 * Open MPI 4 needs its libevent before libev: mpirun -x LD_PRELOAD=libevent_core-2.1.so.7 …
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

/* `expression` is true, or the program ends. */
#define MUST(expression) ((expression) ? (void)0 : fail(#expression))
static _Noreturn void fail(const char *what) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

static void *find(void *library, const char *name) {
    void *found = dlsym(library, name);
    MUST(found);
    return found;
}
static weft_resource_t *describe(weft_resource_kind_t kind, weft_resource_value_t value) {
    weft_resource_params_t params = {.kind = kind, .values = &value, .n_values = 1};
    weft_resource_t *resource = NULL;
    MUST(!weft_resource_describe(&params, &resource));
    return resource;
}
static void associate(weft_context_t *context, weft_object_t type, weft_resource_t *resource,
                      void *object) {
    weft_associate_params_t with = {.resource = resource};
    MUST(!weft_associate_resources(context, type, &with, object));
}
static void give_back(weft_resource_t *resource, void *object) {
    MUST(weft_disassociate_resources_wait(resource, object) >= 0);
    MUST(!weft_resource_release(resource));
}
static void on_ready(weft_team_t *team, weft_status_t status, void *ready) {
    MUST(status == WEFT_OK);
    *(int *)ready = 1;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "libmpi.so.40";
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!library) return printf("no MPI here: %s is not installed\n", name), 0;
    void *its_own = dlsym(library, "event_add"); /* of libevent; libev has one of this name */
    if (its_own && its_own != dlsym(RTLD_DEFAULT, "event_add"))
        return puts("this MPI needs LD_PRELOAD=libevent_core-2.1.so.7"), 1;
    int (*init)(int *, char ***), (*finalize)(void), rank, ready = 0;
    *(void **)&init = find(library, "MPI_Init");
    *(void **)&finalize = find(library, "MPI_Finalize");
    MUST(init(&argc, &argv) == 0);

    weft_mpi_t mpi;
    weft_context_t *context, *librarys_context;
    weft_worker_t *worker, *librarys;
    weft_team_t *team;
    MUST(!weft_mpi_load(name, &mpi) && mpi.rank(mpi.communicator, &rank) == 0);
    MUST(!weft_context_create(NULL, &context) && !weft_worker_create(context, NULL, &worker));

    weft_context_params_t later = {.associated = 1};
    weft_team_params_t params = {.on_ready = on_ready, .arg = &ready, .associated = 1};
    MUST(!weft_context_create(&later, &librarys_context));
    MUST(
        !weft_worker_create(librarys_context, &(weft_worker_params_t){.associated = 1}, &librarys));
    weft_resource_t *by =
        describe(WEFT_RESOURCE_WORKER,
                 (weft_resource_value_t){WEFT_RES_WORKER_HANDLE, &worker, sizeof worker});
    associate(librarys_context, WEFT_OBJECT_WORKER, by, librarys);
    MUST(!weft_team_create(librarys, &params, &team));
    weft_resource_t *ranks =
        describe(WEFT_RESOURCE_MPI, (weft_resource_value_t){WEFT_RES_TEAM_MPI, &mpi, sizeof mpi});
    associate(librarys_context, WEFT_OBJECT_TEAM, ranks, team);
    while (!ready) MUST(!weft_worker_wait(worker, -1));

    uint32_t mine = (uint32_t)rank + 1, sum = 0;
    MUST(weft_team_rank(team) == (uint32_t)rank); /* as in MPI */
    MUST(!weft_allreduce_wait(team, &mine, &sum, 1, WEFT_UINT32, WEFT_SUM));
    printf("rank %d of %u: the sum of all is %u\n", rank, weft_team_size(team), sum);

    give_back(ranks, team);
    MUST(!weft_team_close(team, NULL));
    give_back(by, librarys);
    weft_worker_destroy(librarys), weft_worker_destroy(worker);
    MUST(!weft_context_destroy(librarys_context) && !weft_context_destroy(context));
    MUST(finalize() == 0); /* the communicator is the program's again */
    printf("rank %d: given back\n", rank);
}

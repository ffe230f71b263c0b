/* Teams by a real MPI, loaded at run time: MPICH as one process, Open MPI as two. */
#include "shared.h"

#include <dlfcn.h>
#include <weft/collective.h>

static void *load(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    return library && dlsym(library, "MPI_Init") ? library : NULL;
}

static int call_init(void *library) {
    int (*init)(int *, char ***);
    *(void **)&init = dlsym(library, "MPI_Init");
    return init(NULL, NULL);
}

static int call_finalize(void *library) {
    int (*finalize)(void);
    *(void **)&finalize = dlsym(library, "MPI_Finalize");
    return finalize();
}

static int ready;
static void on_ready(weft_team_t *team, weft_status_t status, void *arg) {
    ready = status == WEFT_OK ? 1 : (int)status;
}

/* A team over MPI_COMM_WORLD, and a sum over its ranks. */
static void sum_over_world(const char *library, uint32_t size) {
    struct two t;
    weft_mpi_t mpi;
    weft_team_t *team;
    uint32_t one = 1, sum = 0;
    ready = 0;
    two_workers(&t, "shm", NULL, 0);
    weft_context_t *context = associated_context();
    weft_worker_t *worker = stub_worker(context);
    weft_resource_t *base = worker_resource(t.a);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, base, worker), 0);
    CHECK_EQ(weft_mpi_load(library, &mpi), 0);
    weft_resource_value_t value = VALUE(WEFT_RES_TEAM_MPI, mpi);
    weft_resource_t *resource = describe(WEFT_RESOURCE_MPI, &value, 1);
    weft_team_params_t params = {.on_ready = on_ready, .associated = 1};
    CHECK_EQ(weft_team_create(worker, &params, &team), 0);
    CHECK_EQ(associate(context, WEFT_OBJECT_TEAM, resource, team), 0);
    UNTIL(&t, ready);
    CHECK_EQ(ready, 1);
    CHECK_EQ(weft_team_size(team), size);
    CHECK_EQ(weft_allreduce_wait(team, &one, &sum, 1, WEFT_UINT32, WEFT_SUM), 0);
    CHECK_EQ(sum, size);
    CHECK_EQ(weft_disassociate_resources_wait(resource, team), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(base), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    two_down(&t);
}

/* First: a process has one MPI. libev exports names of libevent, which Open MPI needs itself. */
TEST(two_processes_of_open_mpi_have_a_team) {
    char self[512] = "", command[768];
    if (getenv("OMPI_COMM_WORLD_SIZE")) {
        void *library = load("libmpi.so.40");
        CHECK(library);
        CHECK_EQ(call_init(library), 0);
        sum_over_world("libmpi.so.40", 2);
        call_finalize(library);
        return;
    }
    if (getenv("WEFT_TEST_SANITIZER")) SKIP("MPI keeps memory that a sanitizer reports");
    if (!load("libmpi.so.40") || system("command -v mpirun >/dev/null") != 0)
        SKIP("Open MPI is not installed");
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    setenv("HOME", "/", 0); /* Open MPI 5 asks for it */
    snprintf(command, sizeof command,
             "timeout 60 mpirun --allow-run-as-root --oversubscribe -n 2 "
             "-x LD_PRELOAD=libevent_core-2.1.so.7 %s two_processes",
             self);
    CHECK_EQ(system(command), 0);
}

TEST(a_process_of_mpich_has_a_team) {
    weft_mpi_t mpi;
    if (getenv("WEFT_TEST_SANITIZER")) SKIP("MPI keeps memory that a sanitizer reports");
    void *library = load("libmpich.so.12");
    if (!library) SKIP("MPICH is not installed");
    CHECK_EQ(weft_mpi_load("libmpich.so.12", &mpi), WEFT_ERR_UNSUPPORTED); /* before MPI_Init */
    CHECK_EQ(call_init(library), 0);
    sum_over_world("libmpich.so.12", 1);
    call_finalize(library);
}

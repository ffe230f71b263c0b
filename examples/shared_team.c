/*
 * A library works by a program's team, endpoint and region, and gives them back: shared_team. It
 * dials no peer and registers no memory. `weft-run -n 4 shared-team`; alone it is a team of 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

struct key {
    char bytes[WEFT_RKEY_MAX];
    size_t len, at;
};
static double number; /* the program's region */
static weft_context_t *library;
static int ready;
static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}
static weft_resource_t *take(weft_object_t type, weft_resource_kind_t kind, void *programs,
                             void *librarys) {
    weft_associate_params_t with = {.abi_version = WEFT_RESOURCE_ABI};
    must(weft_resource_export(type, programs, kind, NULL, &with.resource), "export");
    must(weft_associate_resources(library, type, &with, librarys), "associate");
    return with.resource;
}
static void give_back(weft_resource_t *resource, void *librarys) {
    must(weft_disassociate_resources_wait(resource, librarys), "disassociate");
    must(weft_resource_release(resource), "release");
}
static void on_ready(weft_team_t *team, weft_status_t status, void *arg) {
    must(status, "the library's team");
    ready = 1;
}

/* Each member reads the number of the next one, and the team adds them all. */
static void work(weft_team_t *team, weft_ep_t *next, weft_mem_t *mem) {
    uint32_t size = weft_team_size(team), rank = weft_team_rank(team);
    struct key mine = {.len = WEFT_RKEY_MAX, .at = (size_t)&number}, key[size];
    weft_rkey_t *rkey;
    double got, sum;
    must(weft_mem_pack(mem, mine.bytes, &mine.len), "pack");
    must(weft_allgather_wait(team, &mine, key, sizeof mine, WEFT_UINT8), "allgather");
    struct key *of_next = &key[(rank + 1) % size];
    must(weft_rkey_unpack(next, of_next->bytes, of_next->len, &rkey), "unpack");
    must(weft_get_wait(next, &got, sizeof got, of_next->at, rkey), "get");
    must(weft_allreduce_wait(team, &got, &sum, 1, WEFT_FLOAT64, WEFT_SUM), "allreduce");
    printf("rank %u of %u: the next one has %g, all have %g\n", rank, size, got, sum);
    weft_rkey_release(rkey);
}
/* Each object works by the program's of the same type. */
static void use(weft_worker_t *worker, weft_team_t *team, weft_ep_t *next, weft_mem_t *mem) {
    weft_worker_t *own_worker;
    weft_team_t *own_team;
    weft_ep_t *own_next;
    weft_mem_t *own_mem;
    weft_resource_t *by[4];
    weft_team_params_t team_later = {.associated = 1, .on_ready = on_ready};
    weft_mem_params_t mem_later = {.associated = 1, .rights = WEFT_MEM_ALL};
    must(weft_context_create(&(weft_context_params_t){.associated = 1}, &library), "context");
    must(weft_worker_create(library, &(weft_worker_params_t){.associated = 1}, &own_worker), "run");
    by[0] = take(WEFT_OBJECT_WORKER, WEFT_RESOURCE_WORKER, worker, own_worker);
    must(weft_team_create(own_worker, &team_later, &own_team), "team");
    by[1] = take(WEFT_OBJECT_TEAM, WEFT_RESOURCE_TEAM, team, own_team);
    must(weft_connect(own_worker, NULL, &(weft_ep_params_t){.associated = 1}, &own_next), "dial");
    by[2] = take(WEFT_OBJECT_ENDPOINT, WEFT_RESOURCE_ENDPOINTS, next, own_next);
    must(weft_mem_register(own_worker, NULL, 0, &mem_later, &own_mem), "region");
    by[3] = take(WEFT_OBJECT_MEMORY, WEFT_RESOURCE_MEMORY, mem, own_mem);
    while (!ready) must(weft_worker_wait(worker, -1), "wait");
    work(own_team, own_next, own_mem);
    give_back(by[3], own_mem), give_back(by[2], own_next), give_back(by[1], own_team);
    printf("the library asks: %s\n", weft_status_name(weft_barrier(own_team, NULL)));
    give_back(by[0], own_worker);
    weft_worker_destroy(own_worker);
    must(weft_context_destroy(library), "close");
}

int main(void) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_team_t *team;
    weft_mem_t *mem;
    weft_mem_params_t all = {.rights = WEFT_MEM_ALL};
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, NULL, &worker), "worker");
    must(weft_team_create_wait(worker, weft_run_exchange(), &team), "team");
    must(weft_mem_register(worker, &number, sizeof number, &all, &mem), "region");
    number = weft_team_rank(team) + 1;
    use(worker, team, weft_team_ep(team, (uint32_t)number % weft_team_size(team)), mem);
    must(weft_mem_release(mem, NULL), "release");
    must(weft_barrier_wait(team), "the program's team");
    must(weft_team_close_wait(team), "close");
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    puts("given back");
}

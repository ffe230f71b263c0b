/*
 * A program with a libev loop, a listening socket and a segment of shared memory: own_loop. A
 * worker of Weft uses all three, as a library would, and gives them back.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ev.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/weft.h>

enum { HELLO = 1, BYTES = 4096 };
static struct ev_loop *loop;

/* `expression` is true, or the program ends. */
#define MUST(expression) ((expression) ? (void)0 : fail(#expression))
static void fail(const char *what) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

static weft_resource_t *describe(weft_resource_kind_t kind, const weft_resource_value_t *values,
                                 size_t n) {
    weft_resource_params_t params = {.kind = kind, .values = values, .n_values = n};
    weft_resource_t *resource = NULL;
    MUST(!weft_resource_describe(&params, &resource));
    return resource;
}
static void associate(weft_context_t *context, weft_object_t type, weft_resource_t *resource,
                      void *object) {
    weft_associate_params_t with = {.resource = resource};
    MUST(!weft_associate_resources(context, type, &with, object));
}
static void on_hello(weft_ep_t *ep, weft_am_t *am, void *arg) {
    printf("received: %.*s\n", (int)am->len, (const char *)am->data);
    ev_break(loop, EVBREAK_ALL);
}
static void on_return(weft_status_t status, void *arg) {
    ev_break(loop, EVBREAK_ALL);
}
static void give_back(weft_resource_t *resource, void *object) {
    weft_status_t st =
        weft_disassociate_resources(resource, object, &(weft_op_t){.done = on_return});
    if (st == WEFT_IN_PROGRESS) ev_run(loop, 0);
    MUST(st >= 0 && !weft_resource_release(resource));
}

int main(void) {
    weft_context_params_t params = {.associated = 1};
    weft_context_t *context;
    weft_worker_t *worker;
    weft_mem_t *mem;
    int listening = socket(AF_INET, SOCK_STREAM, 0),
        segment = memfd_create("own", MFD_ALLOW_SEALING);
    uint64_t bytes = BYTES;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    MUST((loop = ev_default_loop(0)) && ftruncate(segment, BYTES) == 0);
    MUST(bind(listening, (struct sockaddr *)&name, len) == 0 && listen(listening, 8) == 0);

    MUST(!weft_context_create(&params, &context));
    MUST(!weft_worker_create(context, &(weft_worker_params_t){.associated = 1}, &worker));
    MUST(!weft_am_handler_set(worker, HELLO, on_hello, NULL));
    weft_resource_t *on_loop = describe(
        WEFT_RESOURCE_LOOP, &(weft_resource_value_t){WEFT_RES_WORKER_LOOP, &loop, sizeof loop}, 1);
    associate(context, WEFT_OBJECT_WORKER, on_loop, worker);
    weft_resource_t *at =
        describe(WEFT_RESOURCE_SOCKET,
                 &(weft_resource_value_t){WEFT_RES_WORKER_SOCKET, &listening, sizeof listening}, 1);
    associate(context, WEFT_OBJECT_WORKER, at, worker);

    weft_resource_value_t part[] = {{WEFT_RES_MEMORY_FD, &segment, sizeof segment},
                                    {WEFT_RES_MEMORY_LENGTH, &bytes, sizeof bytes}};
    weft_mem_params_t rights = {.rights = WEFT_MEM_ALL, .associated = 1};
    weft_resource_t *memory = describe(WEFT_RESOURCE_SEGMENT, part, 2);
    MUST(fcntl(segment, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    MUST(!weft_mem_register(worker, NULL, 0, &rights, &mem));
    associate(context, WEFT_OBJECT_MEMORY, memory, mem);

    weft_ep_t *ep;
    char uri[64];
    MUST(getsockname(listening, (struct sockaddr *)&name, &len) == 0); /* the kernel chose a port */
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%d", ntohs(name.sin_port));
    MUST(!weft_connect(worker, uri, NULL, &ep));
    MUST(weft_am_send(ep, HELLO, NULL, 0, &(weft_iov_t){"by my socket", 12}, 1, NULL) >= 0);
    ev_run(loop, 0);

    give_back(memory, mem);
    MUST(!weft_mem_release(mem, NULL));
    give_back(at, worker);
    give_back(on_loop, worker);
    weft_worker_destroy(worker);
    MUST(!weft_context_destroy(context));
    puts("given back");
}

/*
 * A program has a CUDA context, and a stream with work in it: own_cuda. A worker of Weft copies
 * device memory in that stream. So a message has what the work before it wrote, and the program
 * waits for nothing. The driver is loaded at run time, so this builds without CUDA.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { MESSAGE = 1, BYTES = 1 << 20, NON_BLOCKING = 1 };
typedef unsigned long long device_pointer;
static struct {
    void *context, *stream;
    unsigned (*init)(unsigned flags);
    unsigned (*retain)(void **context_p, int device), (*release)(int device);
    unsigned (*set)(void *context);
    unsigned (*stream_create)(void **stream_p, unsigned flags), (*stream_destroy)(void *stream);
    unsigned (*alloc)(device_pointer *at, size_t len), (*free)(device_pointer at);
    unsigned (*write)(device_pointer to, const void *from, size_t len, void *stream);
} cuda;
static char written[BYTES], received[BYTES];
static int n_open; /* operations under way */

/* `expression` is true, or the program ends. */
#define MUST(expression) ((expression) ? (void)0 : fail(#expression))
static _Noreturn void fail(const char *what) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

#define FIND(field, name) MUST((*(void **)&cuda.field = dlsym(driver, name)))
static void find_calls(void *driver) {
    FIND(init, "cuInit"), FIND(retain, "cuDevicePrimaryCtxRetain");
    FIND(release, "cuDevicePrimaryCtxRelease_v2"), FIND(set, "cuCtxSetCurrent");
    FIND(stream_create, "cuStreamCreate"), FIND(stream_destroy, "cuStreamDestroy_v2");
    FIND(alloc, "cuMemAlloc_v2"), FIND(free, "cuMemFree_v2"), FIND(write, "cuMemcpyHtoDAsync_v2");
}
/* The context that the CUDA runtime uses, and a stream of the program's in it. */
static void begin_cuda(void) {
    MUST(!cuda.retain(&cuda.context, 0) && !cuda.set(cuda.context));
    MUST(!cuda.stream_create(&cuda.stream, NON_BLOCKING));
}
static void on_done(weft_status_t status, void *arg) {
    MUST(status == WEFT_OK);
    n_open--;
}
static void wait_for_all(weft_worker_t *worker, weft_worker_t *peer) {
    while (n_open) (void)weft_worker_progress(worker, 0), (void)weft_worker_progress(peer, 0);
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return puts("no CUDA driver here: libcuda.so.1 is not installed"), 0;
    find_calls(driver);
    if (cuda.init(0)) return puts("the CUDA driver finds no device here"), 0;
    begin_cuda();
    weft_context_params_t later = {.associated = 1};
    weft_worker_params_t stub = {.associated = 1};
    weft_context_t *context, *others;
    weft_worker_t *worker, *peer; /* the peer has memory of the host */
    MUST(!weft_context_create(&later, &context) && !weft_worker_create(context, &stub, &worker));
    MUST(!weft_context_create(NULL, &others) && !weft_worker_create(others, NULL, &peer));
    weft_resource_value_t values[] = {
        {WEFT_RES_WORKER_CUDA_CONTEXT, &cuda.context, sizeof cuda.context},
        {WEFT_RES_WORKER_CUDA_STREAM, &cuda.stream, sizeof cuda.stream}};
    weft_resource_params_t params = {.kind = WEFT_RESOURCE_CUDA, .values = values, .n_values = 2};
    weft_resource_t *resource;
    MUST(!weft_resource_describe(&params, &resource));
    weft_associate_params_t with = {.resource = resource};
    MUST(!weft_associate_resources(context, WEFT_OBJECT_WORKER, &with, worker));

    weft_ep_t *ep;
    char to[256];
    size_t len = sizeof to;
    MUST(!weft_worker_address(peer, to, &len) && !weft_connect_address(worker, to, len, NULL, &ep));
    device_pointer memory;
    memset(written, 7, BYTES);
    MUST(!cuda.alloc(&memory, BYTES) && !cuda.write(memory, written, BYTES, cuda.stream));
    weft_op_t op = {.done = on_done};
    weft_iov_t from = {(void *)(uintptr_t)memory, BYTES}, in = {received, BYTES};
    n_open += weft_tag_recv(peer, MESSAGE, UINT64_MAX, &in, 1, NULL, &op) == WEFT_IN_PROGRESS;
    n_open += weft_tag_send(ep, MESSAGE, &from, 1, &op) == WEFT_IN_PROGRESS;
    wait_for_all(worker, peer);
    MUST(memcmp(written, received, BYTES) == 0);
    puts("received: what the stream wrote");

    n_open += weft_disassociate_resources(resource, worker, &op) == WEFT_IN_PROGRESS;
    wait_for_all(worker, peer);
    weft_worker_destroy(worker), weft_worker_destroy(peer);
    MUST(!weft_resource_release(resource));
    MUST(!weft_context_destroy(context) && !weft_context_destroy(others));
    MUST(!cuda.free(memory) && !cuda.stream_destroy(cuda.stream) && !cuda.release(0));
    puts("given back, and destroyed");
}

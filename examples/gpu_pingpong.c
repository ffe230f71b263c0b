/* gpu-pingpong [BYTES]: device memory goes to another worker and back. Builds without CUDA. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

typedef unsigned long long device_pointer;
static struct {
    unsigned (*init)(unsigned flags);
    unsigned (*retain)(void **context, int device);
    unsigned (*set)(void *context);
    unsigned (*alloc)(device_pointer *at, size_t len);
    unsigned (*to_device)(device_pointer to, const void *from, size_t len);
    unsigned (*to_host)(void *to, device_pointer from, size_t len);
} cuda;

/* The primary context of the first GPU becomes the thread's. */
static int load_cuda(void) {
    void *context, *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 0;
    *(void **)&cuda.init = dlsym(driver, "cuInit");
    *(void **)&cuda.retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&cuda.set = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&cuda.alloc = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&cuda.to_device = dlsym(driver, "cuMemcpyHtoD_v2");
    *(void **)&cuda.to_host = dlsym(driver, "cuMemcpyDtoH_v2");
    if (!cuda.init || !cuda.retain || !cuda.set || !cuda.alloc || !cuda.to_device || !cuda.to_host)
        return 0;
    return !cuda.init(0) && !cuda.retain(&context, 0) && !cuda.set(context);
}

/* A call of the driver gives 0, or the program ends. */
static void must_cuda(unsigned result) {
    if (result) printf("CUDA error %u\n", result), exit(1);
}

static void must(weft_status_t status) {
    if (status >= 0) return;
    fprintf(stderr, "gpu-pingpong: %s\n", weft_status_name(status));
    exit(1);
}

static weft_worker_t *worker[2];
static char sent[1 << 27], got[sizeof sent];
static int n_open;
static void on_done(weft_status_t status, void *arg) {
    must(status);
    n_open--;
}

/* One message of `from`, received into `to` by the other worker. */
static void cross(weft_ep_t *ep, int receiver, device_pointer from, device_pointer to, size_t len) {
    weft_op_t op = {.done = on_done};
    weft_iov_t out = {(void *)(uintptr_t)from, len}, in = {(void *)(uintptr_t)to, len};
    weft_status_t st = weft_tag_recv(worker[receiver], 1, UINT64_MAX, &in, 1, NULL, &op);
    must(st);
    n_open = st == WEFT_IN_PROGRESS;
    must(st = weft_tag_send(ep, 1, &out, 1, &op));
    n_open += st == WEFT_IN_PROGRESS;
    while (n_open > 0) {
        must((weft_status_t)weft_worker_progress(worker[0], 0));
        must((weft_status_t)weft_worker_progress(worker[1], 0));
    }
}

int main(int argc, char **argv) {
    if (!load_cuda()) return puts("no GPU here"), 0;
    size_t len = argc > 1 ? strtoul(argv[1], NULL, 10) : 1 << 20;
    char address[2][256];
    weft_context_t *context;
    weft_ep_t *ep[2];
    device_pointer memory[2];
    weft_mem_info_t info;
    struct timespec begin, end;
    if (len < 1 || len > sizeof sent) return printf("1 to %zu bytes\n", sizeof sent), 2;
    if (cuda.alloc(&memory[0], len) || cuda.alloc(&memory[1], len)) return puts("no memory"), 1;
    for (size_t i = 0; i < len; i++) sent[i] = (char)(i * 7);
    must_cuda(cuda.to_device(memory[0], sent, len));
    must(weft_mem_detect((void *)(uintptr_t)memory[0], &info));
    weft_setting_t quick = {"close.timeout", "10ms"};
    must(weft_context_create(&(weft_context_params_t){.settings = &quick, .n_settings = 1},
                             &context));
    for (int i = 0; i < 2; i++) must(weft_worker_create(context, NULL, &worker[i]));
    for (int i = 0; i < 2; i++) {
        size_t room = sizeof address[i];
        must(weft_worker_address(worker[1 - i], address[i], &room));
        must(weft_connect_address(worker[i], address[i], room, NULL, &ep[i]));
    }
    cross(ep[0], 1, memory[0], memory[1], len);     /* and the connection is there */
    must_cuda(cuda.to_device(memory[0], got, len)); /* zeros: what is there at the end came back */
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 20; i++) {
        cross(ep[1], 0, memory[1], memory[0], len);
        cross(ep[0], 1, memory[0], memory[1], len);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    must_cuda(cuda.to_host(got, memory[0], len));
    double ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    printf("%s memory, %zu bytes, %.1f us a round trip, %s\n",
           info.type == WEFT_MEMORY_CUDA ? "device" : "host", len, ns / 1000 / 20,
           memcmp(sent, got, len) == 0 ? "the same bytes" : "OTHER BYTES");
    int failed = memcmp(sent, got, len) != 0;
    for (int i = 0; i < 2; i++) weft_worker_destroy(worker[i]);
    must(weft_context_destroy(context));
    return failed;
}

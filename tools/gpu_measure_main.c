/*
 * gpu-measure [--quick] figures|settings DIR: device memory through Weft, beside what the driver
 * does by itself; or what the settings of device memory should be on this machine. Writes
 * DIR/figures.json and DIR/figures.md, or settings. tests/cuda/run calls it on a machine with a
 * GPU; --quick takes small sizes, with which a test runs it over the double of the driver.
 *
 * A child process is the peer. It takes orders (struct order) by messages.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <transports/cuda/kernels.h>
#include <unistd.h>
#include <weft/weft.h>

typedef unsigned long long device_pointer;
enum { ORDER = 1, OUT = 2, BACK = 3, DONE = 4, WARM = 2 };
/* By hand: the program itself copies to or from the host's memory, in which the message is. */
enum memory { HOST, DEVICE, BY_HAND };

struct order {
    uint64_t size, n;
    uint32_t echo, memory, sleeps, ends;
};

/* ---- the driver ------------------------------------------------------------------------------ */

static struct {
    unsigned (*init)(unsigned flags);
    unsigned (*retain)(void **context, int device);
    unsigned (*set)(void *context);
    unsigned (*alloc)(device_pointer *at, size_t len);
    unsigned (*alloc_host)(void **at, size_t len);
    unsigned (*copy)(device_pointer to, device_pointer from, size_t len, void *stream);
    unsigned (*to_host)(void *to, device_pointer from, size_t len);
    unsigned (*to_device)(device_pointer to, const void *from, size_t len);
    unsigned (*stream)(void **stream, unsigned flags);
    unsigned (*wait)(void *stream);
    unsigned (*name)(char *name, int size, int device);
    unsigned (*version)(int *version);
} cuda;
static void *stream, *cuda_context_of_all;
static char *device_memory, *second, *host_memory;
static size_t most = (size_t)1 << 30;

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "gpu-measure: %s\n", what);
    exit(1);
}

static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *host;
    device_pointer at[2];
    must(library != NULL, "no driver");
    const struct {
        void *function;
        const char *symbol;
    } calls[] = {{&cuda.init, "cuInit"},
                 {&cuda.retain, "cuDevicePrimaryCtxRetain"},
                 {&cuda.set, "cuCtxSetCurrent"},
                 {&cuda.alloc, "cuMemAlloc_v2"},
                 {&cuda.alloc_host, "cuMemAllocHost_v2"},
                 {&cuda.copy, "cuMemcpyAsync"},
                 {&cuda.to_host, "cuMemcpyDtoH_v2"},
                 {&cuda.to_device, "cuMemcpyHtoD_v2"},
                 {&cuda.stream, "cuStreamCreate"},
                 {&cuda.wait, "cuStreamSynchronize"},
                 {&cuda.name, "cuDeviceGetName"},
                 {&cuda.version, "cuDriverGetVersion"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        *(void **)calls[i].function = dlsym(library, calls[i].symbol);
        must(*(void **)calls[i].function != NULL, calls[i].symbol);
    }
    must(!cuda.init(0) && !cuda.retain(&cuda_context_of_all, 0) && !cuda.set(cuda_context_of_all),
         "no context");
    must(!cuda.stream(&stream, 1), "no stream");
    for (int i = 0; i < 2; i++) must(!cuda.alloc(&at[i], most), "no device memory");
    must(!cuda.alloc_host(&host, most), "no pinned memory");
    device_memory = (char *)(uintptr_t)at[0];
    second = (char *)(uintptr_t)at[1];
    host_memory = memset(host, 1, most);
}

/* ---- a worker -------------------------------------------------------------------------------- */

static weft_context_t *context;
static weft_worker_t *worker;
static weft_ep_t *ep;
static int open_operations, sleeps;

static void on_done(weft_status_t status, void *arg) {
    must(status >= 0, weft_status_name(status));
    open_operations--;
}
static void on_endpoint(weft_ep_t *opened, void *arg) {
    ep = opened;
}

static void turn(void) {
    if (sleeps)
        (void)weft_worker_wait(worker, 100);
    else
        (void)weft_worker_progress(worker, 0);
}

/* At most `most_open` operations are open when it returns. */
static void wait_until(int most_open) {
    while (open_operations > most_open) turn();
}

static void started(weft_status_t st) {
    must(st >= 0, weft_status_name(st));
    open_operations += st == WEFT_IN_PROGRESS;
}
static void post_send(uint64_t tag, void *at, size_t len) {
    weft_op_t op = {.done = on_done};
    started(weft_tag_send(ep, tag, &(weft_iov_t){at, len}, 1, &op));
}
static void post_recv(uint64_t tag, void *at, size_t len) {
    weft_op_t op = {.done = on_done};
    started(weft_tag_recv(worker, tag, ~0ull, &(weft_iov_t){at, len}, 1, NULL, &op));
}

static void open_worker(void) {
    weft_mem_info_t info;
    weft_worker_params_t params = {.transports = "shm", .on_endpoint = on_endpoint};
    must(weft_mem_detect(host_memory, &info) >= 0, "memory");
    must(weft_context_create(NULL, &context) == 0, "context");
    must(weft_worker_create(context, &params, &worker) == 0, "worker");
}

static void *memory_of(uint32_t kind) {
    return kind == DEVICE ? device_memory : host_memory;
}
static void by_hand(uint32_t kind, int in, size_t len) {
    if (kind != BY_HAND) return;
    if (in)
        must(!cuda.to_device((uintptr_t)device_memory, host_memory, len), "copy");
    else
        must(!cuda.to_host(host_memory, (uintptr_t)device_memory, len), "copy");
}

static double processor_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the peer -------------------------------------------------------------------------------- */

static void obey(const struct order *order) {
    double used = processor_seconds();
    sleeps = (int)order->sleeps;
    for (uint64_t i = 0; i < order->n; i++) {
        post_recv(OUT, memory_of(order->memory), order->size);
        wait_until(0);
        by_hand(order->memory, 1, order->size);
        if (!order->echo) continue;
        by_hand(order->memory, 0, order->size);
        post_send(BACK, memory_of(order->memory), order->size);
        wait_until(0);
    }
    used = processor_seconds() - used;
    post_send(DONE, &used, sizeof used);
    wait_until(0);
    sleeps = 0;
}

static void be_peer(int to) {
    char address[512];
    size_t len = sizeof address;
    struct order order;
    load();
    open_worker();
    must(weft_worker_address(worker, address, &len) == 0, "address");
    must(write(to, address, len) == (ssize_t)len, "pipe");
    close(to);
    while (!ep) turn();
    do {
        post_recv(ORDER, &order, sizeof order);
        wait_until(0);
        if (!order.ends) obey(&order);
    } while (!order.ends);
    weft_worker_destroy(worker);
    exit(0);
}

static pid_t peer;

static void begin_peer(const char *self) {
    char address[512], number[16];
    int ends[2];
    must(pipe(ends) == 0, "pipe");
    peer = fork();
    if (peer == 0) {
        close(ends[0]);
        snprintf(number, sizeof number, "%d", ends[1]);
        setenv("MEASURE_PEER", number, 1);
        execl("/proc/self/exe", self, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    ssize_t len = read(ends[0], address, sizeof address);
    close(ends[0]);
    must(len > 0, "the peer did not begin");
    open_worker();
    must(weft_connect_address(worker, address, (size_t)len, NULL, &ep) == 0, "connect");
}

static void end_peer(void) {
    struct order order = {.ends = 1};
    int status;
    post_send(ORDER, &order, sizeof order);
    wait_until(0);
    weft_worker_destroy(worker);
    must(weft_context_destroy(context) == 0, "context");
    must(waitpid(peer, &status, 0) == peer && status == 0, "the peer failed");
    ep = NULL;
}

/* ---- what is measured ------------------------------------------------------------------------ */

struct run {
    double seconds, processor; /* of both processes */
};

static struct run transfer(struct order order, uint32_t own_memory) {
    double peer_used, used, begin;
    post_send(ORDER, &order, sizeof order);
    wait_until(0);
    sleeps = (int)order.sleeps;
    used = processor_seconds();
    begin = now();
    for (uint64_t i = 0; i < order.n; i++) {
        by_hand(own_memory, 0, order.size);
        post_send(OUT, memory_of(own_memory), order.size);
        if (order.echo) post_recv(BACK, memory_of(own_memory), order.size);
        wait_until(order.echo ? 0 : 1);
        if (order.echo) by_hand(own_memory, 1, order.size);
    }
    wait_until(0);
    post_recv(DONE, &peer_used, sizeof peer_used);
    wait_until(0);
    struct run run = {now() - begin, processor_seconds() - used + peer_used};
    sleeps = 0;
    return run;
}

/* The best of three, in GB/s. */
static double bandwidth(uint32_t from, uint32_t to, size_t size, uint64_t n) {
    double best = 0;
    (void)transfer((struct order){.size = size, .n = WARM, .memory = to}, from);
    for (int i = 0; i < 3; i++) {
        struct run run = transfer((struct order){.size = size, .n = n, .memory = to}, from);
        double rate = (double)size * (double)n / run.seconds / 1e9;
        if (rate > best) best = rate;
    }
    return best;
}

/* Half a round trip, in µs: the best of three. */
static double latency(uint32_t memory, size_t size, uint64_t n) {
    double best = 0;
    for (int i = 0; i < 4; i++) {
        struct run run =
            transfer((struct order){.size = size, .n = n, .memory = memory, .echo = 1}, memory);
        double half = run.seconds / (double)n / 2 * 1e6;
        if (i && (best == 0 || half < best)) best = half;
    }
    return best;
}

static double driver_bandwidth(const void *to, const void *from, size_t size, int n) {
    double best = 0;
    for (int i = 0; i < 4; i++) {
        double begin = now();
        for (int k = 0; k < n; k++)
            must(!cuda.copy((uintptr_t)to, (uintptr_t)from, size, stream), "copy");
        must(!cuda.wait(stream), "copy");
        double rate = (double)size * n / (now() - begin) / 1e9;
        if (i && rate > best) best = rate;
    }
    return best;
}

/* ---- the report ------------------------------------------------------------------------------ */

static FILE *json, *table;
static int n_figures;

/* `goal` times the reference: at least (bandwidth) or at most (time). 0: none. */
static void report(const char *name, double value, const char *unit, double reference, double goal,
                   int at_most) {
    double ratio = reference > 0 ? value / reference : 0;
    const char *met = goal == 0 ? "" : (at_most ? ratio <= goal : ratio >= goal) ? "yes" : "no";
    fprintf(json, "%s\n  {\"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"",
            n_figures ? "," : "", name, value, unit);
    /* With all its digits: who reads it comes to the same answer as `met`. */
    if (reference > 0) fprintf(json, ", \"reference\": %.4g, \"ratio\": %.17g", reference, ratio);
    if (goal > 0)
        fprintf(json, ", \"goal\": %.3g, \"met\": %s", goal, *met == 'y' ? "true" : "false");
    fprintf(json, "}");
    fprintf(table, "| %s | %.4g %s |", name, value, unit);
    if (reference > 0)
        fprintf(table, " %.4g | %.3f | ", reference, ratio);
    else
        fprintf(table, " | | ");
    if (goal > 0) fprintf(table, "%s %.3g: %s", at_most ? "≤" : "≥", goal, met);
    fprintf(table, " |\n");
    n_figures++;
}

static void begin_report(const char *part, const char *folder) {
    char path[4096], name[100] = "";
    int version = 0;
    snprintf(path, sizeof path, "%s/%s.json", folder, part);
    must((json = fopen(path, "w")) != NULL, path);
    snprintf(path, sizeof path, "%s/%s.md", folder, part);
    must((table = fopen(path, "w")) != NULL, path);
    (void)cuda.name(name, sizeof name, 0);
    (void)cuda.version(&version);
    fprintf(json, "{\"gpu\": \"%s\", \"driver\": %d, \"figures\": [", name, version);
    fprintf(table, "## %s: %s, CUDA %d.%d\n\n", part, name, version / 1000, version % 1000 / 10);
    fprintf(table, "| what | value | reference | ratio | goal |\n|---|---|---|---|---|\n");
}

static int quick;
static size_t scaled(size_t mebibytes) {
    return quick ? mebibytes << 10 : mebibytes << 20;
}

static void measure_messages(void) {
    uint64_t n = quick ? 2 : 20, many = quick ? 20 : 5000;
    double copy = driver_bandwidth(second, device_memory, scaled(64), quick ? 1 : 20);
    double up = driver_bandwidth(device_memory, host_memory, scaled(64), quick ? 1 : 10);
    double down = driver_bandwidth(host_memory, device_memory, scaled(64), quick ? 1 : 10);
    report("driver: device to device, 64 MiB", copy, "GB/s", 0, 0, 0);
    report("driver: pinned host to device, 64 MiB", up, "GB/s", 0, 0, 0);
    report("driver: device to pinned host, 64 MiB", down, "GB/s", 0, 0, 0);
    report("two processes, device to device, 64 MiB", bandwidth(DEVICE, DEVICE, scaled(64), n),
           "GB/s", copy, 0.9, 0);
    report("two processes, device to device, 256 MiB",
           bandwidth(DEVICE, DEVICE, scaled(256), quick ? 1 : 10), "GB/s", copy, 0.9, 0);
    report("host to device, 16 MiB", bandwidth(HOST, DEVICE, scaled(16), n), "GB/s", up, 0.9, 0);
    report("device to host, 16 MiB", bandwidth(DEVICE, HOST, scaled(16), n), "GB/s", down, 0.9, 0);
    double hand = latency(BY_HAND, 8, many);
    report("8 B in device memory, by hand", hand, "us", 0, 0, 0);
    report("8 B in device memory", latency(DEVICE, 8, many), "us", hand, 1.1, 1);
}

/* In messages of 64 MiB, while both processes sleep when there is nothing to do. */
static void measure_processor(void) {
    struct order order = {.size = scaled(64), .n = quick ? 2 : 16, .memory = DEVICE, .sleeps = 1};
    (void)transfer(order, DEVICE);
    struct run run = transfer(order, DEVICE);
    report("processor time of 1 GiB in 16 messages, both processes",
           run.processor / run.seconds * 100, "% of a core", 100, 0.02, 1);
    order = (struct order){.size = scaled(1024), .n = quick ? 1 : 4, .memory = DEVICE, .sleeps = 1};
    (void)transfer(order, DEVICE);
    run = transfer(order, DEVICE);
    report("processor time of messages of 1 GiB, both processes", run.processor / run.seconds * 100,
           "% of a core", 100, 0.02, 1);
    order.memory = HOST;
    run = transfer(order, DEVICE);
    report("processor time of messages of 1 GiB to pinned memory of the host",
           run.processor / run.seconds * 100, "% of a core", 100, 0.02, 1);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    unsigned type, width, n;
} reductions[] = {
    {"float32, 2 operands", WEFT_FLOAT32, 4, 2},   {"float16, 2 operands", WEFT_FLOAT16, 2, 2},
    {"bfloat16, 2 operands", WEFT_BFLOAT16, 2, 2}, {"float64, 2 operands", WEFT_FLOAT64, 8, 2},
    {"int8, 2 operands", WEFT_INT8, 1, 2},         {"float32, 8 operands", WEFT_FLOAT32, 4, 8}};

/* Bytes that are read and written, in GB/s: the best of three. 0: there are no kernels. */
static double reduction_bandwidth(unsigned type, unsigned width, unsigned n, size_t size,
                                  int times) {
    struct reduce_arguments args = {
        .to = (uintptr_t)second, .count = size / width, .n = n, .reduction = KERNEL_SUM};
    cuda_stream queue;
    double best = 0;
    for (unsigned i = 0; i < n; i++) args.from[i] = (uintptr_t)device_memory + i * size;
    for (int i = 0; i < 4; i++) {
        double begin = now();
        for (int k = 0; k < times; k++)
            if (weft__cuda_reduce(cuda_context_of_all, type, &args) < 0) return 0;
        must(weft__cuda_queue_stream(cuda_context_of_all, &queue) == 0, "the kernels' stream");
        must(!cuda.wait(queue), "a reduction");
        double rate = (double)size * (n + 1) * times / (now() - begin) / 1e9;
        if (i && rate > best) best = rate;
    }
    return best;
}

/* Beside a copy, which reads and writes each byte. */
static void measure_reductions(void) {
    double copy = 2 * driver_bandwidth(second, device_memory, scaled(64), quick ? 1 : 20);
    char name[100];
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        double rate = reduction_bandwidth(reductions[i].type, reductions[i].width, reductions[i].n,
                                          scaled(64), quick ? 1 : 20);
        if (rate == 0) {
            fprintf(stderr, "gpu-measure: no kernels: built without a CUDA compiler\n");
            return;
        }
        snprintf(name, sizeof name, "sum of 64 MiB, %s", reductions[i].name);
        report(name, rate, "GB/s", copy, 0.9, 0);
    }
}

/* What the settings should be here. */
static void calibrate(const char *self) {
    static const char *const chunks[] = {"256k", "512k", "1m", "2m", "4m"};
    static const char *const depths[] = {"2", "4", "8"};
    char name[100];
    setenv("WEFT_CUDA_IPC", "off", 1);
    for (int c = 0; c < (quick ? 1 : 5); c++)
        for (int d = 0; d < (quick ? 1 : 3); d++) {
            setenv("WEFT_CUDA_CHUNK", chunks[c], 1);
            setenv("WEFT_CUDA_DEPTH", depths[d], 1);
            begin_peer(self);
            snprintf(name, sizeof name, "staged, 64 MiB, cuda.chunk %s, cuda.depth %s", chunks[c],
                     depths[d]);
            report(name, bandwidth(DEVICE, DEVICE, scaled(64), quick ? 1 : 5), "GB/s", 0, 0, 0);
            end_peer();
        }
    unsetenv("WEFT_CUDA_CHUNK");
    unsetenv("WEFT_CUDA_DEPTH");
    for (int blocking = 0; blocking < 2; blocking++) {
        setenv("WEFT_CUDA_BLOCKING", blocking ? "64k" : "0", 1);
        begin_peer(self);
        for (size_t size = 1024; size <= (quick ? 1024 : 32768); size *= 2) {
            snprintf(name, sizeof name, "%zu B, copies %s", size,
                     blocking ? "that are waited for" : "that are staged");
            report(name, latency(DEVICE, size, quick ? 5 : 500), "us", 0, 0, 0);
        }
        end_peer();
    }
}

static void measure_figures(const char *self) {
    begin_peer(self);
    measure_messages();
    measure_processor();
    measure_reductions();
    end_peer();
}

int main(int argc, char **argv) {
    const char *to = getenv("MEASURE_PEER");
    quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (quick || getenv("MEASURE_QUICK")) most = (size_t)1 << 20;
    if (quick) setenv("MEASURE_QUICK", "1", 1);
    if (to) be_peer(atoi(to));
    const char *part = argc == 3 + quick ? argv[1 + quick] : "";
    bool settings = strcmp(part, "settings") == 0;
    must(settings || strcmp(part, "figures") == 0, "gpu-measure [--quick] figures|settings DIR");
    load();
    begin_report(part, argv[argc - 1]);
    if (settings)
        calibrate(argv[0]);
    else
        measure_figures(argv[0]);
    fprintf(json, "\n]}\n");
    return fclose(json) || fclose(table);
}

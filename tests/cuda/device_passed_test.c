/* A region in device memory of another process, which sent it as a resource (weft/resource.h). */
#include <fcntl.h>
#include <sys/socket.h>
#include <tests/cuda/ipc_child.h>
#include <tests/cuda/mapped.h>
#include <tests/resource/shared.h>

enum { LEN = 300007 };
static char expected[LEN], got[LEN];

static bool device_holds(const char *device, unsigned seed) {
    pattern(expected, LEN, seed);
    gpu.read(got, device, LEN);
    return memcmp(got, expected, LEN) == 0;
}
static void fill(char *device, unsigned seed) {
    pattern(expected, LEN, seed);
    gpu.write(device, expected, LEN);
}

/* What the owner sends: of cuMemAlloc, or of cuMemCreate with a handle of the type
 * POSIX_FILE_DESCRIPTOR. */
static char *owned_memory(void) {
    if (!getenv("WEFT_TEST_MAPPED")) return gpu_alloc(LEN);
    struct mapped range = mapped_new(1, 1);
    CHECK_EQ(gpu.set_current(gpu.context), 0); /* for copies of memory that has no context */
    return mapped_at(&range);
}

/* The owner sends a region, and sees what the other process writes to it. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    char *device = owned_memory(), *in = malloc(LEN);
    weft_mem_t *mem;
    weft_resource_t *resource;
    struct tally received = {0};
    fill(device, 7);
    if (weft_mem_register(worker, device, LEN, &(weft_mem_params_t){.rights = WEFT_MEM_ALL},
                          &mem) ||
        weft_resource_export(WEFT_OBJECT_MEMORY, mem, WEFT_RESOURCE_MEMORY, NULL, &resource) ||
        weft_resource_send(resource, atoi(getenv("WEFT_TEST_SOCKET"))))
        _exit(3);
    if (weft_tag_recv(worker, 1, ~0ull, &(weft_iov_t){in, LEN}, 1, NULL, OP(&received)) < 0)
        _exit(4);
    child_waits(worker, child, &received);
    if (!device_holds(device, 8) || memcmp(in, expected, LEN) != 0) _exit(5);
    for (;;) weft_worker_wait(worker, 20);
}

/* This process, a child, and a socket to it. */
struct passing {
    struct ipc ipc;
    int socket;
    weft_context_t *context;
    weft_resource_t *worker, *region;
    weft_worker_t *library;
    weft_mem_t *mem;
    int lost;
};

static void passing_up(struct passing *p) {
    int pair[2];
    char number[16];
    memset(p, 0, sizeof *p);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    CHECK_EQ(fcntl(pair[0], F_SETFD, FD_CLOEXEC), 0);
    snprintf(number, sizeof number, "%d", pair[1]);
    CHECK_EQ(setenv("WEFT_TEST_SOCKET", number, 1), 0);
    ipc_up(&p->ipc);
    close(pair[1]);
    p->socket = pair[0];
    p->context = associated_context();
    p->library = stub_worker(p->context);
    p->worker = worker_resource(p->ipc.worker);
    CHECK_EQ(associate(p->context, WEFT_OBJECT_WORKER, p->worker, p->library), 0);
    IPC_UNTIL(&p->ipc, recv(p->socket, got, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
}
static int passing_down(struct passing *p) {
    weft_worker_destroy(p->library);
    CHECK_EQ(weft_resource_release(p->worker), 0);
    CHECK_EQ(weft_context_destroy(p->context), 0);
    return ipc_down(&p->ipc);
}

static void on_lost(void *object, weft_status_t status, void *arg) {
    ((struct passing *)arg)->lost += status == WEFT_ERR_RESOURCE_LOST;
}

static weft_status_t receive_in_context(struct passing *p) {
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    weft_status_t st = weft_resource_receive(p->ipc.worker, p->socket, &p->region);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
    return st;
}

/* Both see one memory. A message from it reaches the owner, whose own memory it is. */
static void region_of_another_process(void) {
    struct passing p;
    struct tally sent = {0};
    weft_mem_info_t info;
    passing_up(&p);
    CHECK_EQ(receive_in_context(&p), 0);
    CHECK_EQ(weft_mem_register(p.library, NULL, 0,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL, .associated = 1},
                               &p.mem),
             0);
    weft_associate_params_t params = {.resource = p.region, .on_lost = on_lost, .arg = &p};
    CHECK_EQ(weft_associate_resources(p.context, WEFT_OBJECT_MEMORY, &params, p.mem), 0);
    CHECK_EQ(weft_mem_describe(p.mem, &info), 0);
    CHECK_EQ(info.len, LEN);
    CHECK(device_holds(info.base, 7));
    fill(info.base, 8);
    CHECK(weft_tag_send(p.ipc.ep, 1, &(weft_iov_t){info.base, LEN}, 1, OP(&sent)) >= 0);
    IPC_UNTIL(&p.ipc, sent.calls);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK(p.lost == 0 && !p.ipc.lost);
    CHECK_EQ(kill(p.ipc.child, SIGKILL), 0);
    IPC_UNTIL(&p.ipc, p.lost == 1 && p.ipc.lost);
    weft_resource_info_t about = {.n_users = 1};
    IPC_UNTIL(&p.ipc, weft_resource_info(p.region, &about) == 0 && about.n_users == 0);
    CHECK_EQ(about.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_resource_release(p.region), 0);
    CHECK(WIFSIGNALED(passing_down(&p)));
    if (gpu.opened) CHECK_EQ(*gpu.opened, 0);
}

TEST(a_region_in_device_memory_of_another_process_is_used_until_its_owner_is_killed) {
    region_of_another_process();
}

TEST(a_region_in_mapped_device_memory_of_another_process_is_used_until_its_owner_is_killed) {
    CHECK_EQ(setenv("WEFT_TEST_MAPPED", "1", 1), 0);
    gpu_load();
    CHECK_EQ(gpu.set_current(gpu.context), 0);
    region_of_another_process();
    CHECK_EQ(unsetenv("WEFT_TEST_MAPPED"), 0);
}

/* What was opened is closed with the resource; what cannot be opened is refused. */
TEST(device_memory_that_cannot_be_opened_is_refused) {
    struct passing p;
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    for (int with_context = 0; with_context < 2; with_context++) {
        passing_up(&p);
        if (with_context) {
            *gpu.fail_alloc = 1;
            CHECK_EQ(receive_in_context(&p), WEFT_ERR_NO_MEMORY);
            CHECK_EQ(*gpu.fail_alloc, 0);
        } else {
            CHECK_EQ(weft_resource_receive(p.ipc.worker, p.socket, &p.region),
                     WEFT_ERR_UNSUPPORTED);
        }
        CHECK_EQ(*gpu.opened, 0);
        close(p.socket);
        CHECK_EQ(kill(p.ipc.child, SIGKILL), 0);
        CHECK(WIFSIGNALED(passing_down(&p)));
    }
}

/* Here the other process is this one. Memory of the host has no handle. */
TEST(memory_of_the_host_is_not_sent_and_device_memory_is_itself_in_its_own_process) {
    struct two t;
    int pair[2];
    static char host[64];
    char *device = gpu_alloc(LEN);
    void *base = host;
    uint64_t len = sizeof host;
    weft_resource_t *resource, *received;
    weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_BASE, base),
                                      VALUE(WEFT_RES_MEMORY_LENGTH, len)};
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    resource = describe(WEFT_RESOURCE_MEMORY, values, 2);
    CHECK_EQ(weft_resource_send(resource, pair[1]), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_resource_release(resource), 0);
    base = device;
    len = LEN;
    resource = describe(WEFT_RESOURCE_MEMORY, values, 2);
    CHECK_EQ(weft_resource_send(resource, pair[1]), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
    CHECK_EQ(weft_resource_receive(t.a, pair[0], &received), 0);
    if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
    const void *value;
    size_t size;
    CHECK_EQ(weft_resource_value(received, WEFT_RES_MEMORY_BASE, &value, &size), 0);
    CHECK(size == sizeof device && *(char *const *)value == device);
    CHECK_EQ(weft_resource_release(received), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(pair[1]);
    gpu.release(device);
    two_down(&t);
}

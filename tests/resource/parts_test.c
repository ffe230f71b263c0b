/* How fine a resource is shared: all of it, eight endpoints of a worker, one chunk of a segment. */
#include "shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- endpoints of a worker ------------------------------------------------------------------- */

enum { PEERS = 12, PART = 8, ID = 3 };

/* The program's worker is connected to all peers, and a library uses a part of the endpoints. */
struct hub {
    weft_context_t *context, *librarys_context;
    weft_worker_t *worker, *library, *peer[PEERS];
    weft_ep_t *ep[PEERS], *librarys[PART];
    weft_resource_t *by, *one[PART];
    int ready, got[PEERS];
};

static void on_ready(weft_ep_t *ep, void *arg) {
    ++*(int *)arg;
}
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

#define HUB_UNTIL(h, condition)                                                              \
    do {                                                                                     \
        double end_ = test_now() + test_timeout(60);                                         \
        while (!(condition)) {                                                               \
            (void)weft_worker_progress((h)->worker, 0);                                      \
            for (int i_ = 0; i_ < PEERS; i_++) (void)weft_worker_progress((h)->peer[i_], 0); \
            CHECK(test_now() < end_);                                                        \
        }                                                                                    \
    } while (0)

static weft_worker_t *a_worker(weft_context_t *context) {
    weft_worker_t *worker;
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "shm"}, &worker), 0);
    return worker;
}

static void hub_up(struct hub *h) {
    char address[256];
    memset(h, 0, sizeof *h);
    CHECK_EQ(weft_context_create(NULL, &h->context), 0);
    h->worker = a_worker(h->context);
    h->librarys_context = associated_context();
    h->library = stub_worker(h->librarys_context);
    h->by = worker_resource(h->worker);
    CHECK_EQ(associate(h->librarys_context, WEFT_OBJECT_WORKER, h->by, h->library), 0);
    weft_lease_t lease;
    CHECK_EQ(weft_worker_lease(h->library, &lease), 0);
    for (int i = 0; i < PEERS; i++) {
        size_t len = sizeof address;
        weft_ep_params_t params = {.on_ready = on_ready, .arg = &h->ready};
        h->peer[i] = a_worker(h->context);
        CHECK_EQ(weft_am_handler_set(h->peer[i], lease.am_first + ID, on_message, &h->got[i]), 0);
        CHECK_EQ(weft_worker_address(h->peer[i], address, &len), 0);
        CHECK_EQ(weft_connect_address(h->worker, address, len, &params, &h->ep[i]), 0);
    }
    HUB_UNTIL(h, h->ready == PEERS);
}

static void hub_down(struct hub *h) {
    weft_worker_destroy(h->library);
    CHECK_EQ(weft_resource_release(h->by), 0);
    CHECK_EQ(weft_context_destroy(h->librarys_context), 0);
    weft_worker_destroy(h->worker);
    for (int i = 0; i < PEERS; i++) weft_worker_destroy(h->peer[i]);
    CHECK_EQ(weft_context_destroy(h->context), 0);
}

static unsigned on_connection_of(weft_ep_t *ep) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(ep, &info), 0);
    return info.n_endpoints;
}

static void send_all(struct hub *h, int from, int n) {
    int before[PEERS];
    memcpy(before, h->got, sizeof before);
    for (int i = from; i < n; i++)
        CHECK(weft_am_send(h->librarys[i], ID, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
    for (int i = from; i < n; i++) HUB_UNTIL(h, h->got[i] == before[i] + 1);
}

TEST(a_library_uses_eight_of_twelve_endpoints_and_returns_them_one_by_one) {
    struct hub h;
    hub_up(&h);
    for (int i = 0; i < PART; i++) {
        weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SET, h.ep[i]);
        weft_ep_params_t stub = {.associated = 1};
        h.one[i] = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
        CHECK_EQ(weft_connect(h.library, NULL, &stub, &h.librarys[i]), 0);
        CHECK_EQ(associate(h.librarys_context, WEFT_OBJECT_ENDPOINT, h.one[i], h.librarys[i]), 0);
    }
    send_all(&h, 0, PART);
    for (int i = 0; i < PEERS; i++) CHECK_EQ(on_connection_of(h.ep[i]), i < PART ? 2 : 1);
    for (int i = 0; i < PART; i++) {
        struct tally done = {0};
        CHECK_EQ(weft_disassociate_resources(h.one[i], h.librarys[i], OP(&done)), WEFT_IN_PROGRESS);
        HUB_UNTIL(&h, done.calls);
        CHECK_EQ(weft_resource_release(h.one[i]), 0);
        send_all(&h, i + 1, PART); /* the others go on */
    }
    for (int i = 0; i < PEERS; i++) CHECK_EQ(h.got[i], i < PART ? i + 1 : 0);
    for (int i = 0; i < PART; i++)
        CHECK_EQ(weft_ep_close(h.librarys[i], WEFT_CLOSE_FLUSH, NULL), 0);
    hub_down(&h);
}

/* ---- a segment ------------------------------------------------------------------------------- */

static int new_segment(size_t len, char **at_p) {
    int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)len) == 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    *at_p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(*at_p != MAP_FAILED);
    return fd;
}

/* A region of the library on `len` bytes from `offset`; NULL: from the segment's begin. */
static weft_mem_t *use_part(struct sharing *s, int fd, const uint64_t *offset, uint64_t len,
                            weft_resource_t **resource_p) {
    weft_mem_t *mem;
    weft_mem_params_t stub = {.rights = WEFT_MEM_ALL, .associated = 1};
    weft_resource_value_t values[3] = {VALUE(WEFT_RES_MEMORY_FD, fd),
                                       VALUE(WEFT_RES_MEMORY_LENGTH, len)};
    if (offset) values[2] = VALUE(WEFT_RES_MEMORY_OFFSET, *offset);
    *resource_p = describe(WEFT_RESOURCE_SEGMENT, values, offset ? 3 : 2);
    CHECK_EQ(weft_mem_register(s->library[0], NULL, 0, &stub, &mem), 0);
    CHECK_EQ(associate(s->context, WEFT_OBJECT_MEMORY, *resource_p, mem), 0);
    return mem;
}

static char *base_of(weft_mem_t *mem, uint64_t len) {
    weft_mem_info_t info;
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(info.len, len);
    return info.base;
}

TEST(a_segment_is_used_as_a_whole_and_by_chunks_at_once) {
    struct sharing s;
    weft_resource_t *resource[3];
    weft_mem_t *mem[3];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), second = page, fourth = 3 * page;
    char *at;
    int fd = new_segment(4 * page, &at);
    share_up(&s, "shm");
    mem[0] = use_part(&s, fd, NULL, 4 * page, &resource[0]);
    mem[1] = use_part(&s, fd, &second, page, &resource[1]);
    mem[2] = use_part(&s, fd, &fourth, page, &resource[2]);
    strcpy(base_of(mem[1], page), "second");
    strcpy(base_of(mem[2], page), "fourth");
    CHECK(strcmp(at + page, "second") == 0 && strcmp(at + 3 * page, "fourth") == 0);
    CHECK(strcmp(base_of(mem[0], 4 * page) + page, "second") == 0);
    for (int i = 0; i < 3; i++) {
        struct tally done = {0};
        weft_status_t st = weft_disassociate_resources(resource[i], mem[i], OP(&done));
        CHECK(st >= 0);
        UNTIL(&s.two, st == WEFT_OK || done.calls);
        if (i < 2) CHECK(strcmp(base_of(mem[2], page), "fourth") == 0);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_mem_release(mem[i], NULL), 0);
        CHECK_EQ(weft_resource_release(resource[i]), 0);
    }
    munmap(at, 4 * page);
    close(fd);
    share_down(&s);
}

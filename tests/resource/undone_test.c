/* An association that fails, at any value or any allocation, leaves nothing attached. */
#include "shared.h"

#include <arpa/inet.h>
#include <ev.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/collective.h>

/* A provider that refuses a value, and counts those that are out. */
struct provider {
    int out, refused; /* the number of the value that is refused; 0: none */
};
static weft_status_t acquire(weft_resource_t *resource, const weft_resource_value_t *value,
                             void *arg) {
    struct provider *p = arg;
    if (p->out + 1 == p->refused) return WEFT_ERR_QUOTA;
    p->out++;
    return WEFT_OK;
}
static void release(weft_resource_t *resource, const weft_resource_value_t *value, void *arg) {
    ((struct provider *)arg)->out--;
}

static void is_unused(weft_resource_t *resource, const struct provider *p) {
    weft_resource_info_t info;
    CHECK_EQ(weft_resource_info(resource, &info), 0);
    CHECK_EQ(info.n_users, 0);
    CHECK_EQ(p->out, 0);
}

/* The object, and what is associated with it: all failures, a success, and the end of it. */
struct trial {
    struct sharing s;
    weft_object_t type;
    void *object;
    weft_resource_kind_t kind;
    const weft_resource_value_t *values;
    int n;
};

static weft_status_t try_once(struct trial *t, weft_resource_t *resource) {
    return associate(t->s.context, t->type, resource, t->object);
}

static void fail_everywhere(struct trial *t) {
    struct provider p = {0, 0};
    weft_resource_t *resource;
    weft_resource_params_t params = {
        .kind = t->kind,
        .values = t->values,
        .n_values = (size_t)t->n,
        .share = WEFT_SHARE_PART,
        .provider = {.acquire = acquire, .release = release, .arg = &p}};
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    for (p.refused = 1; p.refused <= t->n; p.refused++) {
        CHECK_EQ(try_once(t, resource), WEFT_ERR_QUOTA);
        is_unused(resource, &p);
    }
    p.refused = 0;
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    for (uint64_t k = 1; st != WEFT_OK; k++) {
        weft__alloc_fail_at(k);
        st = try_once(t, resource);
        weft__alloc_fail_at(0);
        if (st != WEFT_OK) is_unused(resource, &p);
        if (st != WEFT_OK) CHECK_EQ(st, WEFT_ERR_NO_MEMORY);
        CHECK(k < 1000);
    }
    CHECK_EQ(p.out, t->n);
    struct tally done = {0};
    st = weft_disassociate_resources(resource, t->object, OP(&done));
    CHECK(st >= 0);
    UNTIL(&t->s.two, st == WEFT_OK || done.calls);
    is_unused(resource, &p);
    CHECK_EQ(weft_resource_release(resource), 0);
}

#define TRY(t, type_, object_, kind_, ...)                                                        \
    do {                                                                                          \
        const weft_resource_value_t values_[] = {__VA_ARGS__};                                    \
        (t)->type = (type_), (t)->object = (object_), (t)->kind = (kind_), (t)->values = values_; \
        (t)->n = (int)(sizeof values_ / sizeof *values_);                                         \
        fail_everywhere(t);                                                                       \
    } while (0)

/* ---- workers --------------------------------------------------------------------------------- */

TEST(a_failure_leaves_nothing_of_a_worker_that_works_by_another) {
    struct trial t;
    share_up(&t.s, "shm");
    weft_worker_t *worker = stub_worker(t.s.context);
    TRY(&t, WEFT_OBJECT_WORKER, worker, WEFT_RESOURCE_WORKER,
        VALUE(WEFT_RES_WORKER_HANDLE, t.s.two.a), {"OF_THE_PROGRAM", "x", 2});
    weft_worker_destroy(worker);
    share_down(&t.s);
}

static unsigned no_progress(void *arg) {
    return 0;
}
TEST(a_failure_leaves_nothing_of_a_descriptor_that_a_worker_watches) {
    struct trial t;
    weft_events_t events = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .progress = no_progress};
    share_up(&t.s, "self");
    TRY(&t, WEFT_OBJECT_WORKER, t.s.two.a, WEFT_RESOURCE_EVENTS,
        VALUE(WEFT_RES_WORKER_EVENTS, events));
    close(events.fd);
    share_down(&t.s);
}

static int listening_socket(struct sockaddr_in *at) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof *at;
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(fd, (struct sockaddr *)at, sizeof *at) == 0 && listen(fd, 64) == 0);
    CHECK_EQ(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}
TEST(a_failure_leaves_nothing_of_a_listening_socket) {
    struct trial t;
    struct sockaddr_in at;
    int fd = listening_socket(&at);
    share_up(&t.s, "tcp");
    TRY(&t, WEFT_OBJECT_WORKER, t.s.two.a, WEFT_RESOURCE_SOCKET, VALUE(WEFT_RES_WORKER_SOCKET, fd));
    close(fd);
    share_down(&t.s);
}

/* ---- endpoints and regions ------------------------------------------------------------------- */

static weft_ep_t *stub_ep(struct trial *t) {
    weft_ep_t *ep;
    CHECK_EQ(weft_connect(t->s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    return ep;
}
TEST(a_failure_leaves_nothing_of_an_endpoint_over_another) {
    struct trial t;
    share_up(&t.s, "shm");
    share_dial(&t.s);
    weft_ep_t *ep = stub_ep(&t);
    TRY(&t, WEFT_OBJECT_ENDPOINT, ep, WEFT_RESOURCE_ENDPOINTS,
        VALUE(WEFT_RES_ENDPOINT_SET, t.s.ep));
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), 0);
    share_down(&t.s);
}

TEST(a_failure_leaves_nothing_of_an_endpoint_over_a_connected_socket) {
    struct trial t;
    struct sockaddr_in at;
    weft_listener_t *listener;
    share_up(&t.s, "tcp");
    CHECK_EQ(weft_listen(two_b(&t.s.two), "tcp://127.0.0.1:0", NULL, &listener), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)atoi(strrchr(weft_listener_uri(listener), ':') + 1));
    CHECK_EQ(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    weft_ep_t *ep = stub_ep(&t);
    TRY(&t, WEFT_OBJECT_ENDPOINT, ep, WEFT_RESOURCE_CONNECTION,
        VALUE(WEFT_RES_ENDPOINT_SOCKET, fd));
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), 0);
    close(fd);
    share_down(&t.s);
}

static weft_mem_t *stub_region(struct trial *t) {
    weft_mem_t *mem;
    weft_mem_params_t stub = {.rights = WEFT_MEM_ALL, .associated = 1};
    CHECK_EQ(weft_mem_register(t->s.library[0], NULL, 0, &stub, &mem), 0);
    return mem;
}
TEST(a_failure_leaves_nothing_of_a_region_on_a_segment) {
    struct trial t;
    uint64_t len = (uint64_t)sysconf(_SC_PAGESIZE), offset = len;
    int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(fd, (off_t)(2 * len)) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    share_up(&t.s, "shm");
    weft_mem_t *mem = stub_region(&t);
    TRY(&t, WEFT_OBJECT_MEMORY, mem, WEFT_RESOURCE_SEGMENT, VALUE(WEFT_RES_MEMORY_FD, fd),
        VALUE(WEFT_RES_MEMORY_LENGTH, len), VALUE(WEFT_RES_MEMORY_OFFSET, offset));
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    close(fd);
    share_down(&t.s);
}

TEST(a_failure_leaves_nothing_of_a_region_on_memory_of_the_program) {
    struct trial t;
    static char memory[4096];
    char *base = memory;
    uint64_t len = sizeof memory;
    share_up(&t.s, "tcp");
    weft_mem_t *mem = stub_region(&t);
    TRY(&t, WEFT_OBJECT_MEMORY, mem, WEFT_RESOURCE_MEMORY, VALUE(WEFT_RES_MEMORY_BASE, base),
        VALUE(WEFT_RES_MEMORY_LENGTH, len));
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    share_down(&t.s);
}

/* ---- teams ----------------------------------------------------------------------------------- */

static weft_team_t *stub_team(struct trial *t) {
    weft_team_t *team;
    CHECK_EQ(weft_team_create(t->s.library[0], &(weft_team_params_t){.associated = 1}, &team), 0);
    return team;
}
TEST(a_failure_leaves_nothing_of_a_team_over_endpoints) {
    struct trial t;
    weft_ep_t *alone[1] = {NULL};
    share_up(&t.s, "self");
    weft_team_t *team = stub_team(&t);
    TRY(&t, WEFT_OBJECT_TEAM, team, WEFT_RESOURCE_ENDPOINTS, VALUE(WEFT_RES_ENDPOINT_SET, alone));
    CHECK_EQ(weft_team_close(team, NULL), 0);
    share_down(&t.s);
}

TEST(a_failure_leaves_nothing_of_a_team_over_another) {
    struct trial t;
    struct tally closed = {0};
    weft_team_t *first;
    share_up(&t.s, "self");
    CHECK_EQ(weft_team_create_wait(t.s.two.a, weft_self_exchange(), &first), 0);
    weft_team_t *team = stub_team(&t);
    TRY(&t, WEFT_OBJECT_TEAM, team, WEFT_RESOURCE_TEAM, VALUE(WEFT_RES_TEAM_HANDLE, first));
    CHECK_EQ(weft_team_close(team, NULL), 0);
    weft_status_t st = weft_team_close(first, OP(&closed));
    UNTIL(&t.s.two, st == WEFT_OK || closed.calls);
    share_down(&t.s);
}

static int rank_of(void *communicator, int *rank_p) {
    *rank_p = 0;
    return 0;
}
static int size_of(void *communicator, int *size_p) {
    *size_p = 1;
    return 0;
}
static int gather_one(void *communicator, const void *mine, int len, void *all) {
    memcpy(all, mine, (size_t)len);
    return 0;
}
TEST(a_failure_leaves_nothing_of_a_team_over_a_communicator) {
    struct trial t;
    weft_mpi_t mpi = {NULL, rank_of, size_of, gather_one};
    share_up(&t.s, "self");
    weft_team_t *team = stub_team(&t);
    TRY(&t, WEFT_OBJECT_TEAM, team, WEFT_RESOURCE_MPI, VALUE(WEFT_RES_TEAM_MPI, mpi));
    CHECK_EQ(weft_team_close(team, NULL), 0);
    share_down(&t.s);
}

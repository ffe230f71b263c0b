/*
 * A protection domain of another process. Soft-RoCE does not import any, so the functions of
 * libibverbs that do are doubles here: they take the place of transports/rdma/verbs/imports.c.
 */
#include "bed.h"

#include <weft/resource.h>

#ifdef WEFT_HAVE_RDMA
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <transports/rdma/verbs/imports.h>
#include <unistd.h>

enum { HANDLE = 4711 };

static struct {
    int devices, domains; /* imported, and not given back */
    ino_t inode;          /* of the descriptor that came */
    bool real;            /* the domain is one of the bed's device */
    int refuses;          /* the device, or (2) the domain: with this error */
    int error;
    int fd;
    struct ibv_context context;
    struct ibv_pd pd;
} double_;

struct ibv_context *weft__rd_import_device(int fd) {
    struct stat status;
    struct ibv_context *context = &double_.context;
    errno = double_.error;
    if (double_.refuses == 1) return NULL;
    CHECK_EQ(fstat(fd, &status), 0);
    double_.inode = status.st_ino;
    double_.fd = fd;
    if (double_.real) {
        int n = 0;
        CHECK_EQ(weft__rd_verbs_load(), 0);
        struct ibv_device **list = ibv_get_device_list(&n);
        for (int i = 0; i < n; i++)
            if (strcmp(ibv_get_device_name(list[i]), "rxe0") == 0)
                context = ibv_open_device(list[i]);
        ibv_free_device_list(list);
        CHECK(context != &double_.context);
    }
    double_.devices++;
    return context;
}

struct ibv_pd *weft__rd_import_pd(struct ibv_context *context, uint32_t handle) {
    errno = double_.error;
    CHECK_EQ(handle, HANDLE);
    if (double_.refuses == 2) return NULL;
    double_.domains++;
    return double_.real ? ibv_alloc_pd(context) : &double_.pd;
}

void weft__rd_unimport_pd(struct ibv_pd *pd) {
    double_.domains--;
    if (double_.real) CHECK_EQ(ibv_dealloc_pd(pd), 0); /* nothing of the library is left in it */
}

int weft__rd_unimport_device(struct ibv_context *context) {
    double_.devices--;
    if (double_.real) CHECK_EQ(ibv_close_device(context), 0);
    if (!double_.refuses) CHECK_EQ(close(double_.fd), 0); /* as ibv_close_device does */
    return 0;
}

/* The owner's side: a domain whose context is a descriptor. */
struct owner {
    struct ibv_context context;
    struct ibv_pd pd;
    ino_t inode;
    int pair[2];
};

static void owner_sends(struct owner *o) {
    struct stat status;
    weft_resource_t *resource;
    struct ibv_pd *pd = &o->pd;
    memset(o, 0, sizeof *o);
    memset(&double_, 0, sizeof double_);
    o->context.cmd_fd = memfd_create("context", MFD_CLOEXEC);
    CHECK_EQ(fstat(o->context.cmd_fd, &status), 0);
    o->inode = status.st_ino;
    o->pd = (struct ibv_pd){.context = &o->context, .handle = HANDLE};
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, o->pair), 0);
    weft_resource_value_t value = {WEFT_RES_WORKER_PD, &pd, sizeof pd};
    weft_resource_params_t params = {
        .kind = WEFT_RESOURCE_VERBS, .name = "domain", .values = &value, .n_values = 1};
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    CHECK_EQ(weft_resource_send(resource, o->pair[1]), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(o->context.cmd_fd);
}

TEST(a_domain_of_another_process_is_imported_until_its_resource_is_released) {
    struct owner o;
    struct two t;
    weft_resource_t *resource;
    const void *value;
    size_t len;
    owner_sends(&o);
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_resource_receive(t.a, o.pair[0], &resource), 0);
    CHECK(double_.devices == 1 && double_.domains == 1 && double_.inode == o.inode);
    CHECK_EQ(weft_resource_value(resource, WEFT_RES_WORKER_PD, &value, &len), 0);
    CHECK(len == sizeof(void *) && *(struct ibv_pd *const *)value == &double_.pd);
    close(o.pair[1]); /* the owner is gone */
    weft_resource_info_t info = {0};
    UNTIL(&t, weft_resource_info(resource, &info) == 0 && info.status == WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK(double_.devices == 0 && double_.domains == 0);
    two_down(&t);
}

TEST(a_device_that_imports_no_domain_is_unsupported) {
    static const struct {
        int refuses, error;
        weft_status_t status;
    } cases[] = {{1, EOPNOTSUPP, WEFT_ERR_UNSUPPORTED},
                 {1, ENOSYS, WEFT_ERR_UNSUPPORTED},
                 {2, EOPNOTSUPP, WEFT_ERR_UNSUPPORTED},
                 {2, ENOENT, WEFT_ERR_INVALID_PARAM}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner o;
        struct two t;
        weft_resource_t *resource = NULL;
        owner_sends(&o);
        double_.refuses = cases[i].refuses;
        double_.error = cases[i].error;
        two_workers(&t, "self", NULL, 0);
        CHECK_EQ(weft_resource_receive(t.a, o.pair[0], &resource), cases[i].status);
        CHECK(!resource && double_.devices == 0 && double_.domains == 0);
        close(o.pair[0]);
        close(o.pair[1]);
        two_down(&t);
    }
}

TEST(a_worker_works_by_an_imported_domain) {
    struct owner o;
    struct bed bed = {.context_b = NULL};
    struct two receiver, *t = &bed.t;
    weft_resource_t *resource;
    weft_context_t *context;
    weft_worker_t *worker;
    struct tally done = {0}, received = {0};
    char in[8] = "";
    WANTS_THE_BED();
    owner_sends(&o);
    double_.real = true;
    two_workers(&receiver, "self", NULL, 0);
    CHECK_EQ(weft_resource_receive(receiver.a, o.pair[0], &resource), 0);
    weft_setting_t settings[] = {{"rdma.device", "rxe0"}, {"rdma.insecure", "yes"}};
    weft_context_params_t params = {.settings = settings, .n_settings = 2, .associated = 1};
    CHECK_EQ(weft_context_create(&params, &context), 0);
    weft_worker_params_t stub = {.transports = "rdma_rc", .associated = 1};
    CHECK_EQ(weft_worker_create(context, &stub, &worker), 0);
    weft_associate_params_t with = {.resource = resource};
    CHECK_EQ(weft_associate_resources(context, WEFT_OBJECT_WORKER, &with, worker), 0);
    memset(t, 0, sizeof *t);
    t->a = worker;
    t->b = bed_worker(t, &bed.context_b, "rdma_rc", "rxe1", (weft_setting_t){0});
    two_dial(t);
    CHECK_EQ(weft_tag_recv(t->b, 5, ~0ull, &(weft_iov_t){in, 8}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t->ep, 5, &(weft_iov_t){"shared", 7}, 1, NULL) >= 0);
    UNTIL(t, received.calls == 1);
    CHECK(strcmp(in, "shared") == 0);
    CHECK_EQ(weft_disassociate_resources(resource, worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls);
    weft_worker_destroy(t->b);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK(double_.devices == 0 && double_.domains == 0);
    close(o.pair[1]);
    two_down(&receiver);
    CHECK_EQ(weft_context_destroy(context), 0);
    CHECK_EQ(weft_context_destroy(bed.context_b), 0);
}
#else
TEST(a_domain_of_another_process_is_imported_until_its_resource_is_released) {
    SKIP("no RDMA device here");
}
#endif

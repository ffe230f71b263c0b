/* A region is given to another process by its descriptor, and is the same memory there: to its
 * program, and to its peers. */
#include <tests/support/rma_peers.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 20000 };

/* What the importer sends about its own region: how to reach it, and its key. */
struct notified {
    uint32_t address_len, key_len;
    uint64_t base;
    char address[256], key[WEFT_RKEY_MAX];
};

static bool send_fd(int socket, int fd, uint64_t offset) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fd)];
    } control = {0};
    struct iovec iov = {&offset, sizeof offset};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return sendmsg(socket, &m, 0) == sizeof offset;
}

static int receive_fd(int socket, uint64_t *offset_p) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {offset_p, sizeof *offset_p};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    int fd = -1;
    if (recvmsg(socket, &m, 0) == sizeof *offset_p && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

/* Imports what comes, writes to its second half, and lets peers at it until the other side hangs
 * up. */
static void importer(int socket) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_mem_t *mem;
    weft_mem_info_t info;
    struct notified notified = {0};
    uint64_t offset;
    size_t len = sizeof notified.address, key_len = sizeof notified.key;
    char byte;
    int fd = receive_fd(socket, &offset);
    if (weft_context_create(NULL, &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = "shm"}, &worker) ||
        weft_mem_import(worker, fd, offset, LEN, &(weft_mem_params_t){.rights = WEFT_MEM_ALL},
                        &mem) ||
        close(fd) || weft_mem_describe(mem, &info) || weft_mem_pack(mem, notified.key, &key_len) ||
        weft_worker_address(worker, notified.address, &len))
        _exit(1);
    if (!is_pattern(info.base, LEN, 1)) _exit(2);
    pattern((char *)info.base + LEN / 2, LEN / 2, 2);
    notified.address_len = (uint32_t)len;
    notified.key_len = (uint32_t)key_len;
    notified.base = (uint64_t)(uintptr_t)info.base;
    if (write(socket, &notified, sizeof notified) != sizeof notified) _exit(3);
    while (recv(socket, &byte, 1, MSG_DONTWAIT) != 0) (void)weft_worker_wait(worker, 1);
    weft_worker_destroy(worker);
    _exit(weft_context_destroy(context) == WEFT_OK ? 0 : 4);
}

TEST(what_is_exported_is_imported_by_another_process_and_served_by_it) {
    struct two t = {0};
    struct notified notified;
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_rkey_t *rkey;
    int pair[2], fd, status;
    uint64_t offset, old;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        importer(pair[1]);
    }
    close(pair[1]);
    CHECK_EQ(weft_context_create(NULL, &t.context), 0);
    CHECK_EQ(weft_worker_create(t.context, &(weft_worker_params_t){.transports = "shm"}, &t.a), 0);
    CHECK_EQ(weft_mem_alloc(t.a, LEN, NULL, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    char *own = info.base;
    pattern(own, LEN, 1);
    CHECK_EQ(weft_mem_export(mem, &fd, &offset), 0);
    CHECK(send_fd(pair[0], fd, offset));
    close(fd);
    CHECK_EQ(recv(pair[0], &notified, sizeof notified, MSG_WAITALL), sizeof notified);
    CHECK(is_pattern(own, LEN / 2, 1) && is_pattern(own + LEN / 2, LEN / 2, 2));

    /* By a key of the other's: what is put there is here. */
    CHECK_EQ(weft_connect_address(t.a, notified.address, notified.address_len, NULL, &t.ep), 0);
    CHECK_EQ(weft_rkey_unpack(t.ep, notified.key, notified.key_len, &rkey), 0);
    CHECK_EQ(weft_put_wait(t.ep, "by the key", 11, notified.base + 8, rkey), 0);
    CHECK_EQ(weft_atomic_fetch_wait(t.ep, WEFT_ATOMIC_SWAP, 8, 4711, 0, &old, notified.base, rkey),
             0);
    CHECK(memcmp(own, &(uint64_t){4711}, 8) == 0);
    CHECK_EQ(weft_get_wait(t.ep, &old, 8, notified.base, rkey), 0);
    CHECK_EQ(old, 4711);
    struct tally flushed = {0};
    if (weft_ep_flush(t.ep,
                      &(weft_op_t){.done = tally, .arg = &flushed, .flags = WEFT_FLUSH_REMOTE}) > 0)
        UNTIL(&t, flushed.calls);
    CHECK(!strcmp(own + 8, "by the key"));
    weft_rkey_release(rkey);

    /* Every holder keeps the memory: the exporter's end takes it from none. */
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    close(pair[0]);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    weft_worker_destroy(t.a);
    CHECK_EQ(weft_context_destroy(t.context), 0);
}

TEST(what_may_only_be_read_is_imported_to_be_read) {
    struct two t;
    weft_mem_t *mem, *seen;
    weft_mem_info_t here, there;
    uint64_t offset;
    int fd;
    char path[64];
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_mem_alloc(t.a, LEN, NULL, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &here), 0);
    pattern(here.base, LEN, 1);
    CHECK_EQ(weft_mem_export(mem, &fd, &offset), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int read_only = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(read_only >= 0);
    weft_mem_params_t writes = {.rights = WEFT_MEM_WRITE}, reads = {.rights = WEFT_MEM_READ};
    CHECK_EQ(weft_mem_import(t.a, read_only, offset, LEN, &writes, &seen), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_import(t.a, read_only, offset, LEN, &reads, &seen), 0);
    CHECK_EQ(weft_mem_describe(seen, &there), 0);
    CHECK(is_pattern(there.base, LEN, 1));
    CHECK_EQ(weft_mem_advise(seen, 0, LEN, WEFT_ADVISE_WILL_NEED), 0);
    CHECK_EQ(weft_mem_advise(seen, 0, LEN, WEFT_ADVISE_DONT_NEED), WEFT_ERR_IO);
    CHECK(is_pattern(here.base, LEN, 1));
    close(read_only);
    close(fd);
    two_down(&t);
}

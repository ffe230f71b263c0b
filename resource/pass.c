/* Resources with a descriptor, given to another process over a socket of AF_UNIX. */
#include <endpoints/core/worker.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "resource.h"

#define REFUSE(field, why) return weft__fail(WEFT_ERR_INVALID_PARAM, field ": " why)

/* One message, with one descriptor. */
struct passed {
    char magic[8];
    uint32_t abi, kind;
    uint64_t len, offset;
    char name[64];
};
static const char passed_magic[8] = "weftres";

/* The key of the descriptor of each kind that can be sent. */
static const char *const fd_key[WEFT_N_RESOURCE_KINDS] = {
    [WEFT_RESOURCE_SEGMENT] = WEFT_RES_MEMORY_FD,
    [WEFT_RESOURCE_SOCKET] = WEFT_RES_WORKER_SOCKET,
    [WEFT_RESOURCE_CONNECTION] = WEFT_RES_ENDPOINT_SOCKET};

union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static weft_status_t send_passed(int socket, struct passed *passed, int fd) {
    union control control = {0};
    struct iovec iov = {passed, sizeof *passed};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    ssize_t n;
    do n = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *passed
               ? WEFT_OK
               : weft__fail(WEFT_ERR_IO, "sendmsg: %s", n < 0 ? strerror(errno) : "too short");
}

weft_status_t weft_resource_send(weft_resource_t *resource, int socket) {
    struct passed passed = {.abi = WEFT_RESOURCE_ABI};
    if (!resource) REFUSE("resource", "NULL");
    bool is_segment = resource->kind == WEFT_RESOURCE_SEGMENT;
    const char *key = fd_key[resource->kind];
    const struct values *values = &resource->values;
    const weft_resource_value_t *fd = key ? weft__values_find(values, key) : NULL;
    const weft_resource_value_t *len = weft__values_find(values, WEFT_RES_MEMORY_LENGTH);
    const weft_resource_value_t *offset = weft__values_find(values, WEFT_RES_MEMORY_OFFSET);
    if (!fd || fd->len != sizeof(int) || (is_segment && (!len || len->len != sizeof passed.len)))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "%s has no descriptor", resource->name);
    memcpy(passed.magic, passed_magic, sizeof passed.magic);
    passed.kind = (uint32_t)resource->kind;
    if (is_segment) memcpy(&passed.len, len->value, sizeof passed.len);
    if (offset && offset->len == sizeof passed.offset)
        memcpy(&passed.offset, offset->value, sizeof passed.offset);
    strncpy(passed.name, resource->name, sizeof passed.name - 1);
    return send_passed(socket, &passed, *(const int *)fd->value);
}

static weft_status_t receive_passed(int socket, struct passed *passed, int *fd_p) {
    union control control = {0};
    struct iovec iov = {passed, sizeof *passed};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do n = recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0) return weft__fail(WEFT_ERR_IO, "recvmsg: %s", strerror(errno));
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    bool has_fd = head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int));
    if (has_fd) memcpy(fd_p, CMSG_DATA(head), sizeof *fd_p);
    passed->name[sizeof passed->name - 1] = 0;
    if (n != (ssize_t)sizeof *passed || !has_fd ||
        memcmp(passed->magic, passed_magic, sizeof passed->magic) != 0 ||
        passed->kind >= WEFT_N_RESOURCE_KINDS || !fd_key[passed->kind])
        return weft__fail(WEFT_ERR_PROTOCOL, "the message is no resource");
    if (passed->abi != WEFT_RESOURCE_ABI)
        return weft__fail(WEFT_ERR_VERSION_MISMATCH, "the sender has version %u of the layout",
                          passed->abi);
    return WEFT_OK;
}

/* The other process closed its end, or has ended. What it sends is not looked at. */
static void channel_ready(struct watch *watch, int events) {
    weft_resource_t *resource = container_of(watch, struct weft_resource, watch);
    char byte;
    ssize_t n = recv(watch->fd, &byte, 1, MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    weft__watch_stop(resource->watcher, watch);
    resource->watcher = NULL;
    weft_resource_lose(resource);
}

static void watcher_closes(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *)) {
    weft_resource_t *resource = container_of(object, struct weft_resource, watch);
    if (resource->watcher) weft__watch_stop(resource->watcher, &resource->watch);
    resource->watcher = NULL;
    resource->watched = false;
    closed(worker);
}

static weft_status_t watch_channel(weft_resource_t *resource, weft_worker_t *worker, int socket) {
    struct reactor *r = worker->reactor;
    resource->watch.ready = channel_ready;
    weft_status_t st =
        weft__worker_attach(worker, &resource->watch, &resource->watch, watcher_closes);
    if (st < 0) return st;
    resource->exporter = worker;
    st = weft__watch_start(r, &resource->watch, socket, WATCH_READ);
    if (st < 0) {
        weft__worker_detach(worker, &resource->watch);
        return st;
    }
    resource->watched = true;
    resource->watcher = r;
    resource->channel = socket;
    return WEFT_OK;
}

static weft_status_t describe_passed(const struct passed *passed, int fd,
                                     weft_resource_t **resource_p) {
    bool is_segment = passed->kind == WEFT_RESOURCE_SEGMENT;
    weft_resource_value_t values[] = {
        {fd_key[passed->kind], &fd, sizeof fd},
        {WEFT_RES_MEMORY_LENGTH, &passed->len, sizeof passed->len},
        {WEFT_RES_MEMORY_OFFSET, &passed->offset, sizeof passed->offset}};
    weft_resource_params_t params = {
        .kind = (weft_resource_kind_t)passed->kind,
        .name = passed->name,
        .values = values,
        .n_values = is_segment ? 3 : 1,
        .share = passed->kind == WEFT_RESOURCE_CONNECTION ? WEFT_SHARE_WHOLE : WEFT_SHARE_PART};
    return weft_resource_describe(&params, resource_p);
}

weft_status_t weft_resource_receive(weft_worker_t *worker, int socket,
                                    weft_resource_t **resource_p) {
    struct passed passed;
    int fd = -1;
    if (!worker) REFUSE("worker", "NULL");
    if (!resource_p) REFUSE("resource_p", "NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check(worker);
    if (st == WEFT_OK) st = receive_passed(socket, &passed, &fd);
    weft_resource_t *resource = NULL;
    if (st == WEFT_OK) st = describe_passed(&passed, fd, &resource);
    if (st < 0) {
        if (fd >= 0) close(fd);
        return st;
    }
    resource->own_fd = fd;
    st = watch_channel(resource, worker, socket);
    if (st < 0)
        weft_resource_release(resource);
    else
        *resource_p = resource;
    return st;
}

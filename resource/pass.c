/*
 * Resources given to another process over a socket of AF_UNIX: with a descriptor (of a protection
 * domain, that of its device), or, of device memory, with a handle of CUDA IPC.
 */
#include <base/check.h>
#include <endpoints/core/worker.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <transports/cuda/memory.h>
#include <transports/cuda/place.h>
#include <transports/domain.h>
#include <unistd.h>

#include "passed.h"
#include "resource.h"

/* ---- the sender ------------------------------------------------------------------------------ */

/* `fd` -1: none. */
static weft_status_t send_passed(int socket, struct passed *passed, int fd) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS,
                          .cmsg_len = CMSG_LEN(sizeof fd)}};
    struct iovec iov = {passed, sizeof *passed};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    ssize_t n;
    do n = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *passed
               ? WEFT_OK
               : weft__fail(WEFT_ERR_IO, "sendmsg: %s", n < 0 ? strerror(errno) : "too short");
}

/* What opens more than the resource itself goes to processes of the same user only. */
static weft_status_t check_user(int socket) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != geteuid())
        return weft__fail(WEFT_ERR_NOT_SHAREABLE, "the other process is not of this user");
    return WEFT_OK;
}

/* Its descriptor opens all objects of the device's context. */
static weft_status_t add_domain(const weft_resource_t *resource, int socket, struct passed *passed,
                                int *fd_p) {
    const weft_resource_value_t *value = weft__values_find(&resource->values, WEFT_RES_WORKER_PD);
    struct ibv_pd *pd = NULL;
    if (value && value->len == sizeof pd) memcpy(&pd, value->value, sizeof pd);
    if (!pd)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s has no %s", resource->name,
                          WEFT_RES_WORKER_PD);
    weft_status_t st = check_user(socket);
    if (st < 0) return st;
    return weft__domain_give(pd, fd_p, &passed->pd);
}

/* The handle opens the whole allocation. */
static weft_status_t add_device(const weft_resource_t *resource, int socket,
                                struct passed *passed) {
    const struct values *values = &resource->values;
    const weft_resource_value_t *base = weft__values_find(values, WEFT_RES_MEMORY_BASE);
    const weft_resource_value_t *len = weft__values_find(values, WEFT_RES_MEMORY_LENGTH);
    void *at;
    if (!base || base->len != sizeof at || !len || len->len != sizeof passed->len)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s has no address or length", resource->name);
    weft_status_t st = check_user(socket);
    if (st < 0) return st;
    memcpy(&at, base->value, sizeof at);
    memcpy(&passed->len, len->value, sizeof passed->len);
    if (weft__cuda_export(at, passed->len, &passed->device) < 0)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "%s has no descriptor, and is no device memory that can be exported",
                          resource->name);
    return WEFT_OK;
}

static weft_status_t add_descriptor(const weft_resource_t *resource, struct passed *passed,
                                    int *fd_p) {
    bool is_segment = resource->kind == WEFT_RESOURCE_SEGMENT;
    const char *key = weft__passed_fd_key(resource->kind);
    const struct values *values = &resource->values;
    const weft_resource_value_t *fd = key ? weft__values_find(values, key) : NULL;
    const weft_resource_value_t *len = weft__values_find(values, WEFT_RES_MEMORY_LENGTH);
    const weft_resource_value_t *offset = weft__values_find(values, WEFT_RES_MEMORY_OFFSET);
    if (!fd || fd->len != sizeof *fd_p || (is_segment && (!len || len->len != sizeof passed->len)))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "%s has no descriptor", resource->name);
    if (is_segment) memcpy(&passed->len, len->value, sizeof passed->len);
    if (offset && offset->len == sizeof passed->offset)
        memcpy(&passed->offset, offset->value, sizeof passed->offset);
    memcpy(fd_p, fd->value, sizeof *fd_p);
    return WEFT_OK;
}

weft_status_t weft_resource_send(weft_resource_t *resource, int socket) {
    struct passed passed;
    int fd = -1;
    if (!resource) REFUSE("resource", "NULL");
    weft_status_t st = weft__resource_check(resource);
    if (st < 0) return st;
    weft__passed_init(&passed, resource->kind, resource->name);
    st = resource->kind == WEFT_RESOURCE_MEMORY  ? add_device(resource, socket, &passed)
         : resource->kind == WEFT_RESOURCE_VERBS ? add_domain(resource, socket, &passed, &fd)
                                                 : add_descriptor(resource, &passed, &fd);
    return st < 0 ? st : send_passed(socket, &passed, fd);
}

/* ---- the receiver ---------------------------------------------------------------------------- */

/* What the receiver holds of it until the resource is released. */
struct held {
    int fd; /* -1: none */
    struct cuda_import *import;
    void *at; /* of the import */
    struct domain *domain;
    struct ibv_pd *pd; /* of the domain */
};

static void drop(const struct held *held) {
    if (held->fd >= 0) close(held->fd);
    if (held->import) weft__cuda_import_end(held->import);
    if (held->domain) weft__domain_end(held->domain);
}

/* The imported context has the descriptor then. */
static weft_status_t import_domain(const struct passed *passed, struct held *held) {
    weft_status_t st = weft__domain_import(held->fd, passed->pd, &held->domain, &held->pd);
    if (st == WEFT_OK) held->fd = -1;
    return st;
}

/* Keeps the first one, and closes the others. Returns how many there are. */
static unsigned take_descriptors(struct msghdr *message, int *fd_p) {
    unsigned n = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= head->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
            if (n++)
                close(fd);
            else
                *fd_p = fd;
        }
    }
    return n;
}

static weft_status_t receive_passed(int socket, struct passed *passed_p, int *fd_p) {
    struct passed passed;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {&passed, sizeof passed};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC); /* a short one is not waited for */
    while (n < 0 && errno == EINTR);
    if (n < 0) return weft__fail(WEFT_ERR_IO, "recvmsg: %s", strerror(errno));
    unsigned n_fds = take_descriptors(&message, fd_p);
    if (n_fds == 0 && message.msg_flags & MSG_CTRUNC)
        return weft__fail(WEFT_ERR_NO_FDS, "no free file descriptor for the resource");
    return weft__passed_read(&passed, (size_t)n, n_fds, passed_p);
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

/* In the context that the worker was given, or the current one. */
static weft_status_t import_device(weft_worker_t *worker, const struct passed *passed,
                                   struct held *held) {
    struct cuda_place place;
    weft__cuda_look();
    (void)weft__cuda_place(weft__reactor_given(worker->reactor), NULL, &place); /* it admits */
    if (!place.context) place.context = weft__cuda_current();
    if (!place.context)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "device memory was sent, and no CUDA context is current");
    weft_status_t st = weft__cuda_import(&passed->device, place.context, &held->import, &held->at);
    return st < 0 ? weft__fail(st, "the device memory cannot be opened here") : WEFT_OK;
}

static weft_status_t describe_passed(const struct passed *passed, const struct held *held,
                                     weft_resource_t **resource_p) {
    weft_resource_kind_t kind = (weft_resource_kind_t)passed->kind;
    weft_resource_value_t values[] = {
        {weft__passed_fd_key(kind), &held->fd, sizeof held->fd},
        {WEFT_RES_MEMORY_LENGTH, &passed->len, sizeof passed->len},
        {WEFT_RES_MEMORY_OFFSET, &passed->offset, sizeof passed->offset}};
    static const size_t n_values[WEFT_N_RESOURCE_KINDS] = {[WEFT_RESOURCE_SEGMENT] = 3,
                                                           [WEFT_RESOURCE_SOCKET] = 1,
                                                           [WEFT_RESOURCE_CONNECTION] = 1,
                                                           [WEFT_RESOURCE_VERBS] = 1,
                                                           [WEFT_RESOURCE_MEMORY] = 2};
    if (kind == WEFT_RESOURCE_VERBS)
        values[0] = (weft_resource_value_t){WEFT_RES_WORKER_PD, &held->pd, sizeof held->pd};
    if (kind == WEFT_RESOURCE_MEMORY)
        values[0] = (weft_resource_value_t){WEFT_RES_MEMORY_BASE, &held->at, sizeof held->at};
    weft_resource_params_t params = {.kind = kind,
                                     .name = passed->name,
                                     .values = values,
                                     .n_values = n_values[kind],
                                     .share = kind == WEFT_RESOURCE_CONNECTION ? WEFT_SHARE_WHOLE
                                                                               : WEFT_SHARE_PART};
    return weft_resource_describe(&params, resource_p);
}

weft_status_t weft_resource_receive(weft_worker_t *worker, int socket,
                                    weft_resource_t **resource_p) {
    struct passed passed = {0};
    struct held held = {.fd = -1};
    if (!worker) REFUSE("worker", "NULL");
    if (!resource_p) REFUSE("resource_p", "NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check(worker);
    if (st == WEFT_OK) st = receive_passed(socket, &passed, &held.fd);
    weft_resource_t *resource = NULL;
    if (st == WEFT_OK && passed.kind == WEFT_RESOURCE_MEMORY)
        st = import_device(worker, &passed, &held);
    if (st == WEFT_OK && passed.kind == WEFT_RESOURCE_VERBS) st = import_domain(&passed, &held);
    if (st == WEFT_OK) st = describe_passed(&passed, &held, &resource);
    if (st < 0) {
        drop(&held);
        return st;
    }
    resource->own_fd = held.fd;
    resource->import = held.import;
    resource->domain = held.domain;
    st = watch_channel(resource, worker, socket);
    if (st < 0)
        weft_resource_release(resource);
    else
        *resource_p = resource;
    return st;
}

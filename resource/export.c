/* What Weft made, given out: to another library of this process, and to another process. */
#include <collectives/team.h>
#include <endpoints/core/worker.h>
#include <endpoints/memory/memory.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "resource.h"

#define REFUSE(field, why) return weft__fail(WEFT_ERR_INVALID_PARAM, field ": " why)

/* ---- within the process ---------------------------------------------------------------------- */

enum { EXPORT_VALUES = 4 };

/* The values of an object, and what they point to until they are copied. */
struct exported {
    weft_worker_t *worker;
    weft_resource_value_t value[EXPORT_VALUES];
    size_t n;
    void *handle, *base;
    uint64_t len, offset;
    int fd;
    struct ev_loop *loop;
};

static void add(struct exported *e, const char *key, const void *value, size_t len) {
    e->value[e->n++] = (weft_resource_value_t){key, value, len};
}
#define ADD(e, key, field) add((e), (key), &(e)->field, sizeof(e)->field)

static weft_status_t export_worker(struct exported *e, weft_resource_kind_t kind) {
    e->worker = weft__worker_itself(e->handle);
    weft_status_t st = weft__worker_check(e->worker);
    if (st < 0) return st;
    if (kind == WEFT_RESOURCE_WORKER) {
        ADD(e, WEFT_RES_WORKER_HANDLE, handle);
    } else if (kind == WEFT_RESOURCE_LOOP) {
        if (!e->worker->driver.hosted)
            return weft__fail(WEFT_ERR_UNSUPPORTED,
                              "the worker's loop is its own, and runs within its progress only");
        e->loop = weft__reactor_loop(e->worker->reactor);
        ADD(e, WEFT_RES_WORKER_LOOP, loop);
    } else {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "kind: a worker is exported as WORKER or LOOP");
    }
    return WEFT_OK;
}

static weft_status_t export_region(struct exported *e, weft_resource_kind_t kind) {
    const weft_mem_t *mem = e->handle;
    weft_mem_info_t info;
    weft_status_t st = weft_mem_describe(mem, &info);
    if (st < 0) return st;
    e->worker = mem->worker;
    e->base = info.base;
    e->len = info.len;
    ADD(e, WEFT_RES_MEMORY_LENGTH, len);
    if (kind == WEFT_RESOURCE_SEGMENT) {
        st = weft_mem_export(mem, &e->fd, &e->offset);
        ADD(e, WEFT_RES_MEMORY_FD, fd);
        ADD(e, WEFT_RES_MEMORY_OFFSET, offset);
        return st;
    }
    ADD(e, WEFT_RES_MEMORY_BASE, base);
    ADD(e, WEFT_RES_MEMORY_HANDLE, handle);
    return kind == WEFT_RESOURCE_MEMORY
               ? WEFT_OK
               : weft__fail(WEFT_ERR_UNSUPPORTED, "kind: a region is MEMORY or SEGMENT");
}

static weft_status_t export_other(struct exported *e, weft_object_t type,
                                  weft_resource_kind_t kind) {
    if (type == WEFT_OBJECT_TEAM && kind == WEFT_RESOURCE_TEAM) {
        e->worker = ((weft_team_t *)e->handle)->worker;
        ADD(e, WEFT_RES_TEAM_HANDLE, handle);
    } else if (type == WEFT_OBJECT_ENDPOINT && kind == WEFT_RESOURCE_ENDPOINTS) {
        e->worker = ((weft_ep_t *)e->handle)->worker;
        ADD(e, WEFT_RES_ENDPOINT_SET, handle);
    } else {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "kind: it does not fit the type of the object");
    }
    return weft__worker_check(e->worker);
}

static weft_status_t collect(struct exported *e, weft_object_t type, weft_resource_kind_t kind) {
    if (type == WEFT_OBJECT_WORKER) return export_worker(e, kind);
    if (type == WEFT_OBJECT_MEMORY) return export_region(e, kind);
    return export_other(e, type, kind);
}

static void exporter_closes(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *)) {
    weft_resource_t *resource = object;
    resource->attached = false;
    weft_resource_lose(resource);
    closed(worker);
}

weft_status_t weft_resource_export_sized(size_t params_size, weft_object_t type, void *object,
                                         weft_resource_kind_t kind,
                                         const weft_resource_params_t *params,
                                         weft_resource_t **resource_p) {
    weft_resource_params_t p;
    struct exported e = {.handle = object, .fd = -1};
    if (!object) REFUSE("object", "NULL");
    if (!resource_p) REFUSE("resource_p", "NULL");
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st == WEFT_OK) st = collect(&e, type, kind);
    if (st < 0) return st;
    p.kind = kind;
    p.values = e.value;
    p.n_values = e.n;
    weft_resource_t *resource;
    st = weft_resource_describe(&p, &resource);
    if (st < 0) {
        if (e.fd >= 0) close(e.fd);
        return st;
    }
    resource->own_fd = e.fd;
    resource->exporter = e.worker;
    st = weft__worker_attach(e.worker, resource, resource, exporter_closes);
    if (st < 0) {
        weft_resource_release(resource);
        return st;
    }
    resource->attached = true;
    *resource_p = resource;
    return WEFT_OK;
}

/* ---- to another process ---------------------------------------------------------------------- */

/* One message, with one descriptor. */
struct passed {
    char magic[8];
    uint32_t abi, kind;
    uint64_t len, offset;
    char name[64];
};
static const char passed_magic[8] = "weftres";

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
    const weft_resource_value_t *fd = weft__values_find(
        &resource->values, is_segment ? WEFT_RES_MEMORY_FD : WEFT_RES_WORKER_SOCKET);
    const weft_resource_value_t *len = weft__values_find(&resource->values, WEFT_RES_MEMORY_LENGTH);
    const weft_resource_value_t *offset =
        weft__values_find(&resource->values, WEFT_RES_MEMORY_OFFSET);
    if ((!is_segment && resource->kind != WEFT_RESOURCE_SOCKET) || !fd || fd->len != sizeof(int) ||
        (is_segment && (!len || len->len != sizeof passed.len)))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "%s has no descriptor", resource->name);
    memcpy(passed.magic, passed_magic, sizeof passed.magic);
    passed.kind = (uint32_t)resource->kind;
    if (len) memcpy(&passed.len, len->value, sizeof passed.len);
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
        (passed->kind != WEFT_RESOURCE_SEGMENT && passed->kind != WEFT_RESOURCE_SOCKET))
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
        {is_segment ? WEFT_RES_MEMORY_FD : WEFT_RES_WORKER_SOCKET, &fd, sizeof fd},
        {WEFT_RES_MEMORY_LENGTH, &passed->len, sizeof passed->len},
        {WEFT_RES_MEMORY_OFFSET, &passed->offset, sizeof passed->offset}};
    weft_resource_params_t params = {.kind = (weft_resource_kind_t)passed->kind,
                                     .name = passed->name,
                                     .values = values,
                                     .n_values = is_segment ? 3 : 1,
                                     .share = WEFT_SHARE_PART};
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

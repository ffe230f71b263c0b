/* What Weft made, given out to another library of this process. */
#include <base/check.h>
#include <collectives/team.h>
#include <endpoints/core/worker.h>
#include <endpoints/memory/memory.h>
#include <unistd.h>

#include "resource.h"

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

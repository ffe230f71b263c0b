/* Sends from and receives into device memory by staging buffers, chunk by chunk. */
#include "device_staging.h"

#include <base/settings.h>
#include <transports/cuda/copies.h>
#include <transports/cuda/peer_memory.h>
#include <transports/given.h>

#include "layout.h"
#include <endpoints/core/worker.h>

enum { LEAST_CHUNK = 65536, CHUNKS_AT_LEAST = 4 };

/* A chunk of a message, in a staging buffer. */
struct staged {
    struct cuda_copy copy;
    struct device_staging *of;
    struct cuda_chunk *chunk;
    struct list in_order;
    size_t offset, len;
    bool is_under_way, is_read;
};

struct device_staging {
    struct weft_request *req;
    struct device_memory *memory;
    struct cuda_copies *copies;
    size_t chunk;                             /* bytes of the message in each */
    size_t next;                              /* a send: the offset that is to be read next */
    struct list chunks;                       /* in order */
    uint32_t n;                               /* of them */
    uint32_t under_way;                       /* of those */
    bool all_came;                            /* a receive: it ends with the last write */
    void (*resume)(struct weft_request *req); /* a send that waits; NULL: it does not */
};

/* ---- of a worker */

void weft__device_copies_init(struct weft_worker *worker) {
    const struct given *given = weft__reactor_given(worker->reactor);
    /* In a stream of the program's a copy may take its turn behind long work. */
    worker->device.blocking = given && given->cuda_context
                                  ? 0
                                  : weft__setting_u64(worker->context, SETTING_CUDA_BLOCKING);
    worker->device.packing = weft__setting_u64(worker->context, SETTING_CUDA_PACKING);
    worker->device.depth = (uint32_t)weft__setting_u64(worker->context, SETTING_CUDA_DEPTH);
}

void weft__device_copies_end(struct weft_worker *worker) {
    weft__cuda_copies_close(worker->device.copies);
    worker->device.copies = NULL;
    if (weft__cuda_active) weft__cuda_imports_close();
}

struct cuda_copies *weft__device_copies_of(struct weft_worker *worker) {
    struct device_copies *device = &worker->device;
    size_t chunk = weft__setting_u64(worker->context, SETTING_CUDA_CHUNK),
           most = weft__setting_u64(worker->context, SETTING_CUDA_STAGING);
    if (!device->copies &&
        weft__cuda_copies_open(worker->reactor, chunk, most, &device->copies) < 0)
        return NULL;
    return device->copies;
}

bool weft__device_stages(const struct weft_request *req) {
    const struct device_memory *memory = weft__request_device(req);
    return memory && memory->is_of_one_place && req->len > req->worker->device.blocking;
}

/* Several chunks even of a message that one could hold, so that its copies overlap. */
static size_t chunk_for(size_t len, size_t room) {
    size_t chunk = (len / CHUNKS_AT_LEAST + 4095) & ~(size_t)4095;
    if (chunk < LEAST_CHUNK) chunk = LEAST_CHUNK;
    return chunk < room ? chunk : room;
}

static struct device_staging *staging_of(struct weft_request *req) {
    struct device_memory *memory = weft__request_device(req);
    if (memory->staging) return memory->staging;
    struct cuda_copies *copies = weft__device_copies_of(req->worker);
    struct device_staging *staging = copies ? weft__new(memory, struct device_staging) : NULL;
    if (!staging) return NULL;
    *staging = (struct device_staging){.req = req,
                                       .memory = memory,
                                       .copies = copies,
                                       .chunk = chunk_for(req->len, weft__cuda_chunk_size(copies)),
                                       .next = req->offset};
    list_init(&staging->chunks);
    return memory->staging = staging;
}

/* ---- chunks */

static struct staged *new_staged(struct device_staging *staging, size_t offset) {
    struct cuda_chunk *chunk =
        weft__cuda_chunk_take(staging->copies, staging->memory->place.context);
    struct staged *s = chunk ? weft__new(staging, struct staged) : NULL;
    if (!s) {
        if (chunk) weft__cuda_chunk_give(staging->copies, chunk);
        return NULL;
    }
    s->of = staging;
    s->chunk = chunk;
    s->offset = offset;
    list_append(&staging->chunks, &s->in_order);
    staging->n++;
    return s;
}

static void free_staged(struct staged *s) {
    struct device_staging *staging = s->of;
    weft__cuda_chunk_give(staging->copies, s->chunk);
    list_remove(&s->in_order);
    staging->n--;
    talloc_free(s);
}

void weft__device_staging_end(struct device_staging *staging) {
    while (!list_empty(&staging->chunks)) {
        struct staged *s = list_of(staging->chunks.next, struct staged, in_order);
        if (s->is_under_way) weft__cuda_copy_stop(&s->copy);
        free_staged(s);
    }
}

static void copied(struct cuda_copy *copy, weft_status_t status);

static weft_status_t start_copy(struct staged *s, enum device_way to) {
    struct device_staging *staging = s->of;
    struct cuda_batch batch;
    weft_status_t st = weft__cuda_batch_begin(&batch, staging->memory->place,
                                              to == TO_HOST ? CUDA_READS : CUDA_WRITES);
    if (st == WEFT_OK)
        st = weft__device_move(staging->memory, s->offset, s->chunk->at, s->len, to, &batch);
    s->copy.done = copied;
    if (st == WEFT_OK) st = weft__cuda_copy_start(staging->copies, &batch, &s->copy);
    if (st < 0) return st;
    s->is_under_way = true;
    staging->under_way++;
    staging->req->in_flight.count++;
    return WEFT_OK;
}

/* ---- sending */

/* What has been sent makes room. */
static void drop_sent(struct device_staging *staging) {
    while (!list_empty(&staging->chunks)) {
        struct staged *s = list_of(staging->chunks.next, struct staged, in_order);
        if (s->is_under_way || s->offset + s->len > staging->req->offset) return;
        free_staged(s);
    }
}

static weft_status_t read_ahead(struct device_staging *staging) {
    size_t end = staging->req->len;
    while (staging->n < staging->req->worker->device.depth && staging->next < end) {
        struct staged *s = new_staged(staging, staging->next);
        if (!s) return WEFT_OK; /* those before it make room */
        s->len = end - s->offset < staging->chunk ? end - s->offset : staging->chunk;
        weft_status_t st = start_copy(s, TO_HOST);
        if (st < 0) {
            free_staged(s);
            return st;
        }
        staging->next += s->len;
    }
    return WEFT_OK;
}

static size_t bytes_ready(const struct device_staging *staging) {
    size_t from = staging->req->offset, at = from;
    list_for_each(node, &staging->chunks) {
        const struct staged *s = list_of(node, struct staged, in_order);
        if (!s->is_read) break;
        at = s->offset + s->len;
    }
    return at - from;
}

weft_status_t weft__device_stage(struct weft_request *req, void (*resume)(struct weft_request *req),
                                 size_t *ready_p) {
    struct device_staging *staging = staging_of(req);
    if (!staging) return WEFT_ERR_NO_MEMORY;
    drop_sent(staging);
    weft_status_t st = read_ahead(staging);
    if (st < 0) return st;
    *ready_p = bytes_ready(staging);
    if (*ready_p) return WEFT_OK;
    if (staging->under_way == 0) { /* no staging memory is left: the next bytes are waited for */
        size_t left = req->len - req->offset;
        *ready_p = left < staging->chunk ? left : staging->chunk;
        staging->next = req->offset + *ready_p;
        return WEFT_OK;
    }
    staging->resume = resume;
    return WEFT_IN_PROGRESS;
}

bool weft__device_take_staged(struct device_staging *staging, size_t offset, void *to, size_t len) {
    char *at = to;
    list_for_each(node, &staging->chunks) {
        const struct staged *s = list_of(node, struct staged, in_order);
        if (!s->is_read || offset < s->offset) return false;
        if (offset >= s->offset + s->len) continue;
        size_t within = offset - s->offset, n = s->len - within < len ? s->len - within : len;
        memcpy(at, s->chunk->at + within, n);
        at += n;
        offset += n;
        len -= n;
        if (len == 0) return true;
    }
    return false;
}

/* ---- receiving */

/* The chunk that is being filled, which ends at `offset`. NULL: no memory is left. */
static struct staged *chunk_at(struct device_staging *staging, size_t offset) {
    if (!list_empty(&staging->chunks)) {
        struct staged *last = list_of(staging->chunks.prev, struct staged, in_order);
        if (!last->is_under_way && last->offset + last->len == offset) return last;
    }
    return new_staged(staging, offset);
}

static weft_status_t write_out(struct staged *s) {
    weft_status_t st = start_copy(s, TO_DEVICE);
    if (st < 0) free_staged(s);
    return st;
}

weft_status_t weft__device_land(struct weft_request *req, size_t offset, const void *from,
                                size_t len) {
    struct device_staging *staging = staging_of(req);
    const char *at = from;
    if (!staging) return WEFT_ERR_NO_MEMORY;
    while (len) {
        struct staged *s = chunk_at(staging, offset);
        if (!s)
            return weft__device_move(staging->memory, offset, (char *)(uintptr_t)at, len, TO_DEVICE,
                                     NULL);
        size_t room = staging->chunk - s->len, n = len < room ? len : room;
        memcpy(s->chunk->at + s->len, at, n);
        s->len += n;
        offset += n;
        at += n;
        len -= n;
        weft_status_t st = s->len == staging->chunk || offset == req->len ? write_out(s) : WEFT_OK;
        if (st < 0) return st;
    }
    return WEFT_OK;
}

bool weft__device_still_lands(struct weft_request *req) {
    struct device_staging *staging = weft__request_device(req)->staging;
    staging->all_came = true;
    return staging->under_way > 0;
}

weft_status_t weft__device_take(struct weft_request *req, struct weft_ep *ep, const void *bytes,
                                size_t len) {
    bool waits = ep && ep->link && len > req->worker->device.blocking && weft__request_stages(req);
    if (!waits) return weft__request_scatter(req, 0, bytes, len);
    req->len = len;
    weft_status_t st = weft__device_land(req, 0, bytes, len);
    if (st < 0 || !weft__device_still_lands(req)) return st;
    weft__request_bind(req, ep);
    weft__request_park(req);
    return WEFT_IN_PROGRESS;
}

/* ---- the end of a copy */

static void go_on(struct device_staging *staging) {
    struct weft_request *req = staging->req;
    void (*resume)(struct weft_request *) = staging->resume;
    staging->resume = NULL;
    if (resume)
        resume(req);
    else if (staging->all_came && staging->under_way == 0)
        weft__request_finish(req, WEFT_OK);
}

static void copied(struct cuda_copy *copy, weft_status_t status) {
    struct staged *s = container_of(copy, struct staged, copy);
    struct device_staging *staging = s->of;
    struct weft_request *req = staging->req;
    bool receives = copy->batch.use == CUDA_WRITES;
    s->is_under_way = false;
    s->is_read = !receives;
    staging->under_way--;
    if (receives) free_staged(s);
    if (status < 0) weft__request_stop(req, status); /* it is ENDING then, as this copy counts */
    if (request_is_ending(&req->core.fsm)) {
        completion_step(&req->in_flight, WEFT_OK);
        return;
    }
    req->in_flight.count--;
    go_on(staging);
}

/* Fetches a message from device memory of another process of this host (CUDA IPC). */
#include "device_fetch.h"

#include <base/counters.h>
#include <base/settings.h>
#include <transports/cuda/copies.h>
#include <transports/given.h>
#include <weft/memory.h>

#include "device_staging.h"
#include "layout.h"
#include <endpoints/core/worker.h>

/* ---- the sender */

static bool is_on_this_host(const struct lane *lane) {
    return !(lane->iface->attr.caps & CAP_INTER_NODE);
}

/* What a stream of the program writes is read in that stream, which the receiver does not have. */
static bool is_in_a_given_stream(const struct weft_worker *worker) {
    const struct given *given = weft__reactor_given(worker->reactor);
    return given && given->cuda_context;
}

/* One range of a device; its exports are for those who may read all of this process. */
static bool may_be_copied_there(const struct weft_request *req, const struct lane *lane,
                                const struct device_memory *memory) {
    return memory->n == 1 && !memory->block && !memory->piece[0].on_host && is_on_this_host(lane) &&
           req->ep->link->peer_flags & WIRE_HELLO_DEVICES && !is_in_a_given_stream(req->worker) &&
           weft__setting_u64(req->worker->context, SETTING_CUDA_IPC);
}

void weft__device_offer(const struct weft_request *req, const struct lane *lane,
                        struct wire_rts *rts, struct cuda_export *made) {
    const struct device_memory *memory = weft__request_device(req);
    if (!memory) return;
    rts->memory = WEFT_MEMORY_CUDA;
    if (!may_be_copied_there(req, lane, memory) ||
        weft__cuda_export(memory->piece[0].base, req->len, made) < 0)
        return;
    rts->device = made;
    rts->device_len = sizeof *made;
}

/* ---- the receiver */

struct device_fetch {
    struct weft_request *req;
    struct cuda_copies *copies;
    struct cuda_import *import;
    struct cuda_place place;
    const char *from;
    size_t next; /* the offset that is to be read next */
    uint32_t under_way;
    weft_status_t status;
};

struct fetched {
    struct cuda_copy copy;
    struct device_fetch *of;
    struct cuda_chunk *chunk; /* NULL: to device memory at once */
    size_t offset, len;
};

void weft__device_offered(struct weft_request *req, const void *device, size_t len) {
    if (len != sizeof *req->exported) return;
    req->exported = weft__alloc(req, sizeof *req->exported, "exported memory");
    if (req->exported) memcpy(req->exported, device, len);
}

/* The request ends once, when no copy uses its memory. */
static void device_fetch_settle(struct device_fetch *fetch) {
    struct weft_request *req = fetch->req;
    weft_status_t st = fetch->status;
    if (fetch->under_way) return;
    weft__cuda_import_end(fetch->import);
    talloc_free(fetch);
    completion_step(&req->in_flight, st);
}

static void note(struct device_fetch *fetch, weft_status_t status) {
    if (status < 0 && fetch->status == WEFT_OK) fetch->status = status;
}

static weft_status_t device_fetch_go(struct device_fetch *fetch, struct cuda_batch *batch,
                                     struct fetched *f) {
    weft_status_t st = weft__cuda_copy_start(fetch->copies, batch, &f->copy);
    if (st == WEFT_OK) fetch->under_way++;
    return st;
}

/* ---- from a device to devices, or to pinned memory of the host: one copy */

/* Where the message has one place in pinned memory. */
static char *pinned_place(const struct weft_request *req) {
    const weft_iov_t *iov = req->iov;
    bool is_one = !req->layout && req->n_iov && iov->len >= req->len;
    return is_one && weft__cuda_is_pinned(iov->base, req->len) ? iov->base : NULL;
}

static bool is_dense_on_device(const struct device_memory *to) {
    for (size_t i = 0; to && i < to->n; i++)
        if (to->piece[i].on_host) return false;
    return to && !to->block && to->is_of_one_place;
}

static void copied_at_once(struct cuda_copy *copy, weft_status_t status) {
    struct fetched *f = container_of(copy, struct fetched, copy);
    struct device_fetch *fetch = f->of;
    fetch->under_way--;
    note(fetch, status);
    talloc_free(f);
    device_fetch_settle(fetch);
}

static weft_status_t add_pieces(struct device_fetch *fetch, const struct device_memory *to,
                                struct cuda_batch *batch) {
    size_t offset = 0, len = fetch->req->len;
    weft_status_t st = WEFT_OK;
    for (size_t i = 0; i < to->n && offset < len && st == WEFT_OK; i++) {
        size_t n = to->piece[i].len < len - offset ? to->piece[i].len : len - offset;
        if (n) st = weft__cuda_batch_copy(batch, to->piece[i].base, fetch->from + offset, n);
        offset += n;
    }
    return st;
}

static weft_status_t copy_at_once(struct device_fetch *fetch, const struct device_memory *to,
                                  char *pinned) {
    struct cuda_batch batch;
    struct fetched *f = weft__new(fetch, struct fetched);
    if (!f) return WEFT_ERR_NO_MEMORY;
    *f = (struct fetched){.copy.done = copied_at_once, .of = fetch};
    list_init(&f->copy.under_way);
    weft_status_t st = weft__cuda_batch_begin(&batch, fetch->place, CUDA_READS);
    if (st == WEFT_OK)
        st = pinned ? weft__cuda_batch_read(&batch, pinned, fetch->from, fetch->req->len)
                    : add_pieces(fetch, to, &batch);
    if (st == WEFT_OK) st = device_fetch_go(fetch, &batch, f);
    if (st < 0) talloc_free(f);
    return st;
}

/* ---- from a device, chunk by chunk */

static void copied_out(struct cuda_copy *copy, weft_status_t status);

static weft_status_t read_chunk(struct device_fetch *fetch, struct fetched *f) {
    struct cuda_batch batch;
    size_t room = weft__cuda_chunk_size(fetch->copies), left = fetch->req->len - fetch->next;
    f->offset = fetch->next;
    f->len = left < room ? left : room;
    weft_status_t st = weft__cuda_batch_begin(&batch, fetch->place, CUDA_READS);
    if (st == WEFT_OK)
        st = weft__cuda_batch_read(&batch, f->chunk->at, fetch->from + f->offset, f->len);
    if (st == WEFT_OK) st = device_fetch_go(fetch, &batch, f);
    if (st == WEFT_OK) fetch->next += f->len;
    return st;
}

static void end_fetched(struct fetched *f) {
    weft__cuda_chunk_give(f->of->copies, f->chunk);
    talloc_free(f);
}

static bool goes_on(const struct device_fetch *fetch) {
    return fetch->status == WEFT_OK && fetch->next < fetch->req->len &&
           !request_is_ending(&fetch->req->core.fsm);
}

/* The next copy is under way before this chunk is emptied where there is a chunk for it. */
static void copied_out(struct cuda_copy *copy, weft_status_t status) {
    struct fetched *f = container_of(copy, struct fetched, copy);
    struct device_fetch *fetch = f->of;
    struct weft_request *req = fetch->req;
    fetch->under_way--;
    note(fetch, status);
    if (fetch->status == WEFT_OK && !request_is_ending(&req->core.fsm))
        note(fetch, weft__request_scatter(req, f->offset, f->chunk->at, f->len));
    weft_status_t st = goes_on(fetch) ? read_chunk(fetch, f) : WEFT_ERR_CANCELLED;
    if (st < 0) {
        if (goes_on(fetch)) note(fetch, st);
        end_fetched(f);
    }
    device_fetch_settle(fetch);
}

static weft_status_t read_first(struct device_fetch *fetch) {
    struct cuda_chunk *chunk = weft__cuda_chunk_take(fetch->copies, fetch->place.context);
    struct fetched *f = chunk ? weft__new(fetch, struct fetched) : NULL;
    if (!f) {
        if (chunk) weft__cuda_chunk_give(fetch->copies, chunk);
        return WEFT_ERR_NO_MEMORY;
    }
    *f = (struct fetched){.copy.done = copied_out, .of = fetch, .chunk = chunk};
    list_init(&f->copy.under_way);
    weft_status_t st = read_chunk(fetch, f);
    if (st < 0) end_fetched(f);
    return st;
}

static weft_status_t copy_out(struct device_fetch *fetch) {
    weft_status_t st = WEFT_OK;
    for (uint32_t i = 0; i < fetch->req->worker->device.depth && goes_on(fetch) && st == WEFT_OK;
         i++)
        st = read_first(fetch);
    if (fetch->under_way == 0) return st < 0 ? st : WEFT_ERR_UNSUPPORTED;
    return WEFT_OK; /* those under way take their turns for the rest */
}

/* ---- beginning it */

/* That of the receiver's memory; for memory of the host, the one that the worker was given, or the
 * current context. */
static struct cuda_place place_for(const struct weft_request *req) {
    const struct device_memory *to = weft__request_device(req);
    struct cuda_place place;
    if (to && to->is_of_one_place)
        place = to->place;
    else
        (void)weft__cuda_place(weft__reactor_given(req->worker->reactor), NULL, &place);
    if (!place.context) place.context = weft__cuda_current();
    return place;
}

weft_status_t weft__device_fetch(struct weft_request *req) {
    const struct device_memory *to;
    void *from;
    if (!req->exported || req->len > req->exported->len ||
        !weft__setting_u64(req->worker->context, SETTING_CUDA_IPC))
        return WEFT_ERR_UNSUPPORTED;
    struct cuda_copies *copies = weft__device_copies_of(req->worker);
    struct device_fetch *fetch = copies ? weft__new(req->worker, struct device_fetch) : NULL;
    if (!fetch) return WEFT_ERR_NO_MEMORY;
    *fetch = (struct device_fetch){.req = req, .copies = copies, .place = place_for(req)};
    weft_status_t st = fetch->place.context ? weft__cuda_import(req->exported, fetch->place.context,
                                                                &fetch->import, &from)
                                            : WEFT_ERR_UNSUPPORTED;
    if (st < 0) {
        talloc_free(fetch);
        return st;
    }
    fetch->from = from;
    to = weft__request_device(req);
    req->in_flight.count++;
    char *pinned = to ? NULL : pinned_place(req);
    st = pinned || is_dense_on_device(to) ? copy_at_once(fetch, to, pinned) : copy_out(fetch);
    if (st == WEFT_OK) {
        req->worker->count->device_fetched++;
        return WEFT_IN_PROGRESS;
    }
    req->in_flight.count--;
    weft__cuda_import_end(fetch->import);
    talloc_free(fetch);
    return WEFT_ERR_UNSUPPORTED;
}

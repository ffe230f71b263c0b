/* The layout of an operation on device memory: packs and unpacks by copies between device and
 * host. */
#include "device_memory.h"

#include "device_staging.h"
#include "layout.h"
#include <endpoints/core/worker.h>
#include <transports/cuda/kernels.h>

bool weft__device_holds_any(const weft_iov_t *iov, size_t n_iov) {
    for (size_t i = 0; iov && i < n_iov; i++)
        if (weft__cuda_is_device(iov[i].base)) return true;
    return false;
}

/* ---- copies: in a batch, or (NULL) each waited for */

static weft_status_t copy_line(const struct device_piece *piece, size_t offset, char *host,
                               size_t len, enum device_way to, struct cuda_batch *batch) {
    char *at = piece->base + offset;
    if (piece->on_host) {
        memcpy(to == TO_HOST ? host : at, to == TO_HOST ? at : host, len);
        return WEFT_OK;
    }
    if (batch)
        return to == TO_HOST ? weft__cuda_batch_read(batch, host, at, len)
                             : weft__cuda_batch_write(batch, at, host, len);
    return to == TO_HOST ? weft__cuda_read(piece->place, host, at, len)
                         : weft__cuda_write(piece->place, at, host, len);
}

static weft_status_t copy_pieces(const struct device_memory *memory, size_t offset, char *host,
                                 size_t len, enum device_way to, struct cuda_batch *batch) {
    weft_status_t st = WEFT_OK;
    for (size_t i = 0; i < memory->n && len && st == WEFT_OK; i++) {
        const struct device_piece *piece = &memory->piece[i];
        if (offset >= piece->len) {
            offset -= piece->len;
            continue;
        }
        size_t n = piece->len - offset < len ? piece->len - offset : len;
        st = copy_line(piece, offset, host, n, to, batch);
        host += n;
        len -= n;
        offset = 0;
    }
    return st;
}

static weft_status_t copy_rows(const struct device_memory *memory, size_t row, char *host,
                               size_t rows, enum device_way to, struct cuda_batch *batch) {
    const struct device_piece *piece = &memory->piece[0];
    const struct cuda_blocks blocks = {.device = piece->base + row * memory->stride,
                                       .host = host,
                                       .width = memory->block,
                                       .pitch = memory->stride,
                                       .rows = rows};
    weft_status_t st = batch && memory->is_packed
                           ? weft__cuda_batch_pack(batch, &blocks, to == TO_DEVICE)
                           : WEFT_ERR_UNSUPPORTED;
    if (st != WEFT_ERR_UNSUPPORTED) return st;
    if (batch)
        return to == TO_HOST ? weft__cuda_batch_read_blocks(batch, &blocks)
                             : weft__cuda_batch_write_blocks(batch, &blocks);
    return to == TO_HOST ? weft__cuda_read_blocks(piece->place, &blocks)
                         : weft__cuda_write_blocks(piece->place, &blocks);
}

/* Whole blocks together; a part of a block before and after them. */
static weft_status_t copy_strided(const struct device_memory *memory, size_t offset, char *host,
                                  size_t len, enum device_way to, struct cuda_batch *batch) {
    weft_status_t st = WEFT_OK;
    while (len && st == WEFT_OK) {
        size_t row = offset / memory->block, within = offset % memory->block;
        size_t rows = within ? 0 : len / memory->block, n = rows * memory->block;
        if (rows) {
            st = copy_rows(memory, row, host, rows, to, batch);
        } else {
            n = memory->block - within < len ? memory->block - within : len;
            st = copy_line(&memory->piece[0], row * memory->stride + within, host, n, to, batch);
        }
        host += n;
        offset += n;
        len -= n;
    }
    return st;
}

weft_status_t weft__device_move(const struct device_memory *memory, size_t offset, char *host,
                                size_t len, enum device_way to, struct cuda_batch *batch) {
    return memory->block ? copy_strided(memory, offset, host, len, to, batch)
                         : copy_pieces(memory, offset, host, len, to, batch);
}

/* What is staged already is at hand. */
static weft_status_t pack(void *state, size_t offset, void *to, size_t len) {
    const struct device_memory *memory = state;
    if (memory->staging && weft__device_take_staged(memory->staging, offset, to, len))
        return WEFT_OK;
    return weft__device_move(memory, offset, to, len, TO_HOST, NULL);
}
static weft_status_t unpack(void *state, size_t offset, const void *from, size_t len) {
    return weft__device_move(state, offset, (char *)(uintptr_t)from, len, TO_DEVICE, NULL);
}
static void end(void *state) {
    struct device_memory *memory = state;
    if (memory->staging) weft__device_staging_end(memory->staging);
    talloc_free(memory);
}
static const weft_pack_ops_t device_ops = {.pack = pack, .unpack = unpack, .end = end};

struct device_memory *weft__request_device(const struct weft_request *req) {
    const struct layout *l = req->layout;
    return l && l->of.kind == WEFT_LAYOUT_USER && l->of.user == &device_ops ? l->state : NULL;
}

/* ---- as a layout */

/* The length in bytes, which is the layout's packed length. */
static weft_status_t measure(const weft_layout_t *given, const weft_iov_t *iov, size_t n_iov,
                             size_t *len_p) {
    if (!given) return weft__iov_measure(iov, n_iov, len_p);
    if (n_iov != 1)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "n_iov is %zu; a layout needs exactly 1", n_iov);
    weft_status_t st = weft__layout_check(given);
    return st < 0 ? st : weft__layout_measure(given, "base of the layout", iov->base, len_p);
}

static weft_status_t piece_of(const struct weft_worker *worker, const weft_iov_t *iov,
                              struct device_piece *piece_p) {
    struct cuda_memory found;
    bool on_device = weft__cuda_find(iov->base, &found) && !found.managed;
    *piece_p = (struct device_piece){.base = iov->base, .len = iov->len, .on_host = !on_device};
    if (!on_device) return WEFT_OK;
    return weft__cuda_place(weft__reactor_given(worker->reactor), &found, &piece_p->place);
}

static weft_status_t find_pieces(const struct weft_worker *worker, struct device_memory *memory,
                                 const weft_iov_t *iov) {
    weft_status_t st = WEFT_OK;
    for (size_t i = 0; i < memory->n && st == WEFT_OK; i++)
        st = piece_of(worker, &iov[i], &memory->piece[i]);
    return st;
}

/* Where all pieces on devices are of one place, their copies make one batch. */
static void find_place(struct device_memory *memory) {
    const struct device_piece *first = NULL;
    memory->is_of_one_place = true;
    for (size_t i = 0; i < memory->n; i++) {
        const struct device_piece *piece = &memory->piece[i];
        if (piece->on_host) continue;
        if (!first) first = piece;
        if (!cuda_place_is(piece->place, first->place)) memory->is_of_one_place = false;
    }
    if (first) memory->place = first->place;
}

/* The memory of an operation as a layout: `*layout_p`, whose object is `*object_p` (a weft_iov_t),
 * which the layout's `end` frees. `given`: the program's layout, STRIDED or NULL. */
static weft_status_t lay_out_device(struct weft_worker *worker, const weft_layout_t *given,
                                    const weft_iov_t *iov, size_t n_iov, weft_layout_t *layout_p,
                                    weft_iov_t *object_p) {
    size_t len = 0;
    weft_status_t st = measure(given, iov, n_iov, &len);
    if (st < 0) return st;
    struct device_memory *memory = weft__alloc(
        worker, sizeof *memory + n_iov * sizeof *memory->piece, "pieces of device memory");
    if (!memory) return WEFT_ERR_NO_MEMORY;
    *memory = (struct device_memory){.n = n_iov};
    st = find_pieces(worker, memory, iov);
    if (st < 0) {
        talloc_free(memory);
        return st;
    }
    find_place(memory);
    if (given && weft__layout_is_dense(given))
        memory->piece[0].len = len;
    else if (given)
        memory->block = given->block, memory->stride = given->stride,
        memory->is_packed = given->block <= worker->device.packing;
    *layout_p = (weft_layout_t){.kind = WEFT_LAYOUT_USER, .user = &device_ops};
    *object_p = (weft_iov_t){memory, len};
    return WEFT_OK;
}

weft_status_t weft__request_device_memory(struct weft_request *req, const weft_iov_t *iov,
                                          size_t n_iov, const weft_layout_t *given, bool receives) {
    weft_layout_t layout;
    weft_iov_t object;
    weft_status_t st = lay_out_device(req->worker, given, iov, n_iov, &layout, &object);
    if (st < 0) return st;
    st = weft__layout_set(req, &layout, &object, 1, receives);
    if (st < 0) talloc_free(object.base);
    return st;
}

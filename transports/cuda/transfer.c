/* Copies of any length in the background, cut into chunks where staging buffers are needed. */
#include "transfer.h"

#include <base/alloc.h>
#include <base/status.h>
#include <reactor/reactor.h>
#include <string.h>

/* A copy under way. Without a chunk, between devices, or straight from or to memory of the host. */
struct part {
    struct cuda_copy copy;
    struct list of_transfer;
    struct cuda_transfer *of;
    struct cuda_chunk *chunk;
    size_t offset, len;
};

static void note_failure(struct cuda_transfer *t, weft_status_t status) {
    if (status < 0 && t->status == WEFT_OK) t->status = status;
}

static bool goes_on(const struct cuda_transfer *t) {
    return t->status == WEFT_OK && t->next < t->len;
}

static weft_status_t add_copy(const struct part *p, struct cuda_batch *batch) {
    const struct cuda_transfer *t = p->of;
    char *to = t->to + p->offset;
    const char *from = t->from + p->offset;
    switch (t->way) {
    case CUDA_OUT: return weft__cuda_batch_read(batch, p->chunk ? p->chunk->at : to, from, p->len);
    case CUDA_IN: return weft__cuda_batch_write(batch, to, p->chunk ? p->chunk->at : from, p->len);
    case CUDA_WITHIN: break;
    }
    if (!t->block) return weft__cuda_batch_copy(batch, to, from, p->len);
    return weft__cuda_batch_copy_rows(batch, &(struct cuda_rows){.to = to,
                                                                 .from = from,
                                                                 .width = t->block,
                                                                 .rows = t->len / t->block,
                                                                 .to_pitch = t->to_pitch,
                                                                 .from_pitch = t->from_pitch});
}

static weft_status_t start_part(struct part *p) {
    struct cuda_transfer *t = p->of;
    struct cuda_batch batch;
    size_t left = t->len - t->next;
    size_t most = p->chunk ? weft__cuda_chunk_size(t->copies) : left;
    p->offset = t->next;
    p->len = left < most ? left : most;
    if (p->chunk && t->way == CUDA_IN) memcpy(p->chunk->at, t->from + p->offset, p->len);
    weft_status_t st =
        weft__cuda_batch_begin(&batch, t->place, t->way == CUDA_IN ? CUDA_WRITES : CUDA_READS);
    if (st == WEFT_OK) st = add_copy(p, &batch);
    if (st == WEFT_OK) st = weft__cuda_copy_start(t->copies, &batch, &p->copy);
    if (st == WEFT_OK) t->next += p->len;
    return st;
}

static void end_part(struct part *p) {
    list_remove(&p->of_transfer);
    if (p->chunk) weft__cuda_chunk_give(p->of->copies, p->chunk);
    talloc_free(p);
}

static void part_done(struct cuda_copy *copy, weft_status_t status) {
    struct part *p = container_of(copy, struct part, copy);
    struct cuda_transfer *t = p->of;
    note_failure(t, status);
    if (p->chunk && t->way == CUDA_OUT && status == WEFT_OK)
        memcpy(t->to + p->offset, p->chunk->at, p->len);
    weft_status_t st = goes_on(t) ? start_part(p) : WEFT_ERR_CANCELLED;
    if (st < 0) {
        if (goes_on(t)) note_failure(t, st);
        end_part(p);
    }
    if (list_empty(&t->parts)) t->done(t, t->status);
}

static bool needs_chunks(const struct cuda_transfer *t) {
    return t->way != CUDA_WITHIN &&
           !weft__cuda_is_pinned(t->way == CUDA_IN ? t->from : t->to, t->len);
}

/* Where the host's memory is pinned, or the staging memory is used up, the driver copies from or to
 * it itself. */
static weft_status_t first_part(struct cuda_transfer *t) {
    struct part *p = weft__new(t->copies, struct part);
    if (!p) return WEFT_ERR_NO_MEMORY;
    *p = (struct part){.copy.done = part_done, .of = t};
    list_init(&p->copy.under_way);
    list_append(&t->parts, &p->of_transfer);
    if (needs_chunks(t)) p->chunk = weft__cuda_chunk_take(t->copies, t->place.context);
    bool waits_for_others = t->way != CUDA_WITHIN && !p->chunk && t->parts.next != &p->of_transfer;
    weft_status_t st = waits_for_others ? WEFT_ERR_NO_MEMORY : start_part(p);
    if (st < 0) end_part(p);
    return st;
}

weft_status_t weft__cuda_transfer_start(struct cuda_transfer *t) {
    weft_status_t st = WEFT_OK;
    t->next = 0;
    t->status = WEFT_OK;
    list_init(&t->parts);
    for (uint32_t i = 0; i < t->depth && goes_on(t) && st == WEFT_OK; i++) st = first_part(t);
    /* those under way take their turns for the rest */
    return list_empty(&t->parts) && st < 0 ? st : WEFT_OK;
}

void weft__cuda_transfer_stop(struct cuda_transfer *t) {
    while (!list_empty(&t->parts)) {
        struct part *p = list_of(t->parts.next, struct part, of_transfer);
        weft__cuda_copy_stop(&p->copy);
        end_part(p);
    }
}

/* Registered memory: the transport's own blocks, and the program's memory. */
#include "device.h"

#include <errno.h>

/* ---- blocks ---------------------------------------------------------------------------------- */

struct rd_chunk {
    struct rd_chunk *next;
    struct ibv_mr *mr;
    struct rd_block block[];
};

void weft__rd_pool_init(struct rd_pool *pool, struct rd_device *device, const void *parent,
                        size_t size, unsigned per_chunk, unsigned most) {
    *pool = (struct rd_pool){.device = device,
                             .parent = parent,
                             .size = (size + 63) & ~(size_t)63,
                             .per_chunk = per_chunk,
                             .most = most};
}

static weft_status_t add_chunk(struct rd_pool *pool) {
    unsigned n = pool->most - pool->n < pool->per_chunk ? pool->most - pool->n : pool->per_chunk;
    size_t head = (sizeof(struct rd_chunk) + n * sizeof(struct rd_block) + 63) & ~(size_t)63;
    struct rd_chunk *chunk =
        weft__alloc(pool->parent, head + 64 + n * pool->size, "registered blocks");
    if (!chunk) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for registered blocks");
    uint8_t *bytes = (uint8_t *)(((uintptr_t)chunk + head + 63) & ~(uintptr_t)63);
    chunk->mr = ibv_reg_mr(pool->device->pd, bytes, n * pool->size, IBV_ACCESS_LOCAL_WRITE);
    if (!chunk->mr) {
        int error = errno;
        talloc_free(chunk);
        return weft__rd_fail("ibv_reg_mr of blocks (see ulimit -l)", error);
    }
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->n += n;
    while (n-- > 0) {
        chunk->block[n] =
            (struct rd_block){.lkey = chunk->mr->lkey, .bytes = bytes + n * pool->size};
        rd_pool_put(pool, &chunk->block[n]);
    }
    return WEFT_OK;
}

struct rd_block *weft__rd_pool_take(struct rd_pool *pool, weft_status_t *st_p) {
    weft_status_t st = WEFT_NO_RESOURCE;
    if (!pool->free && pool->n < pool->most) st = add_chunk(pool);
    struct rd_block *block = pool->free;
    if (block)
        pool->free = block->next;
    else if (st_p)
        *st_p = st;
    return block;
}

bool weft__rd_pool_has(const struct rd_pool *pool, const void *at) {
    for (const struct rd_chunk *chunk = pool->chunks; chunk; chunk = chunk->next) {
        uintptr_t from = (uintptr_t)chunk->block, where = (uintptr_t)at;
        if (where >= from && where < from + pool->per_chunk * sizeof chunk->block[0]) return true;
    }
    return false;
}

void weft__rd_pool_end(struct rd_pool *pool) {
    while (pool->chunks) {
        struct rd_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        ibv_dereg_mr(chunk->mr);
        talloc_free(chunk);
    }
    pool->free = NULL;
    pool->n = 0;
}

/* ---- exposures ------------------------------------------------------------------------------- */

void weft__rd_buf_refs_init(struct rd_buf_refs *buf_refs, struct rd_device *device,
                            const void *parent) {
    buf_refs->device = device;
    buf_refs->parent = parent;
    LIST_INIT(&buf_refs->all);
}

weft_status_t weft__rd_buf_ref_take(struct rd_buf_refs *buf_refs, void *base, size_t len,
                                    bool writes, struct rd_buf_ref **buf_ref_p) {
    uintptr_t from = (uintptr_t)base, to = from + len;
    struct rd_buf_ref *buf_ref;
    LIST_FOREACH(buf_ref, &buf_refs->all, of_buf_refs) {
        if (buf_ref->base > from || buf_ref->end < to || (writes && !buf_ref->writes)) continue;
        buf_ref->refs++;
        *buf_ref_p = buf_ref;
        return WEFT_OK;
    }
    buf_ref = weft__new(buf_refs->parent, struct rd_buf_ref);
    if (!buf_ref) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a registration");
    buf_ref->mr = ibv_reg_mr(buf_refs->device->pd, base, len, writes ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!buf_ref->mr) {
        int error = errno;
        talloc_free(buf_ref);
        return weft__rd_fail("ibv_reg_mr of the program's memory (is it mapped? see ulimit -l)",
                             error);
    }
    buf_ref->base = from;
    buf_ref->end = to;
    buf_ref->refs = 1;
    buf_ref->writes = writes;
    LIST_INSERT_HEAD(&buf_refs->all, buf_ref, of_buf_refs);
    *buf_ref_p = buf_ref;
    return WEFT_OK;
}

void weft__rd_buf_ref_return(struct rd_buf_refs *buf_refs, struct rd_buf_ref *buf_ref) {
    if (!buf_ref || --buf_ref->refs) return;
    if (buf_ref->idle) return buf_ref->idle(buf_ref);
    LIST_REMOVE(buf_ref, of_buf_refs);
    ibv_dereg_mr(buf_ref->mr);
    talloc_free(buf_ref);
}

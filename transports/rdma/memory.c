/* Registered memory: blocks of our own, and what programs lend. */
#include "device.h"

#include <errno.h>

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct rd_chunk {
    struct rd_chunk *next;
    struct ibv_mr *mr;
    struct rd_block block[];
};

void rd_pool_init(struct rd_pool *pool, struct rd_device *device, const void *parent, size_t size,
                  unsigned per_chunk, unsigned most) {
    *pool = (struct rd_pool){.device = device,
                             .parent = parent,
                             .size = (size + 63) & ~(size_t)63,
                             .per_chunk = per_chunk,
                             .most = most};
}

static weft_status_t add_chunk(struct rd_pool *pool) {
    unsigned n = pool->most - pool->n < pool->per_chunk ? pool->most - pool->n : pool->per_chunk;
    size_t head = (sizeof(struct rd_chunk) + n * sizeof(struct rd_block) + 63) & ~(size_t)63;
    struct rd_chunk *chunk = weft__alloc(pool->parent, head + 64 + n * pool->size, "registered blocks");
    if (!chunk) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for registered blocks");
    uint8_t *bytes = (uint8_t *)(((uintptr_t)chunk + head + 63) & ~(uintptr_t)63);
    chunk->mr = ibv_reg_mr(pool->device->pd, bytes, n * pool->size, IBV_ACCESS_LOCAL_WRITE);
    if (!chunk->mr) {
        int error = errno;
        talloc_free(chunk);
        return rd_fail("ibv_reg_mr of blocks (see ulimit -l)", error);
    }
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->n += n;
    while (n-- > 0) {
        chunk->block[n] = (struct rd_block){.lkey = chunk->mr->lkey, .bytes = bytes + n * pool->size};
        rd_pool_put(pool, &chunk->block[n]);
    }
    return WEFT_OK;
}

struct rd_block *rd_pool_take(struct rd_pool *pool, weft_status_t *st_p) {
    weft_status_t st = WEFT_NO_RESOURCE;
    if (!pool->free && pool->n < pool->most) st = add_chunk(pool);
    struct rd_block *block = pool->free;
    if (block)
        pool->free = block->next;
    else if (st_p)
        *st_p = st;
    return block;
}

void rd_pool_end(struct rd_pool *pool) {
    while (pool->chunks) {
        struct rd_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        ibv_dereg_mr(chunk->mr);
        talloc_free(chunk);
    }
    pool->free = NULL;
    pool->n = 0;
}

/* ---- loans --------------------------------------------------------------------------------------------------------- */

void rd_loans_init(struct rd_loans *loans, struct rd_device *device, const void *parent) {
    loans->device = device;
    loans->parent = parent;
    LIST_INIT(&loans->all);
}

weft_status_t rd_loan_take(struct rd_loans *loans, void *base, size_t len, bool writes, struct rd_loan **loan_p) {
    uintptr_t from = (uintptr_t)base, to = from + len;
    struct rd_loan *loan;
    LIST_FOREACH(loan, &loans->all, of_loans) {
        if (loan->base > from || loan->end < to || (writes && !loan->writes)) continue;
        loan->refs++;
        *loan_p = loan;
        return WEFT_OK;
    }
    loan = weft__new(loans->parent, struct rd_loan);
    if (!loan) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a registration");
    loan->mr = ibv_reg_mr(loans->device->pd, base, len, writes ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!loan->mr) {
        int error = errno;
        talloc_free(loan);
        return rd_fail("ibv_reg_mr of lent memory (is it mapped? see ulimit -l)", error);
    }
    loan->base = from;
    loan->end = to;
    loan->refs = 1;
    loan->writes = writes;
    LIST_INSERT_HEAD(&loans->all, loan, of_loans);
    *loan_p = loan;
    return WEFT_OK;
}

void rd_loan_return(struct rd_loans *loans, struct rd_loan *loan) {
    if (!loan || --loan->refs) return;
    LIST_REMOVE(loan, of_loans);
    ibv_dereg_mr(loan->mr);
    talloc_free(loan);
}

/*
 * The layout of a worker's pool, a segment that its peers may only read: nodes, blocks, the mailbox
 * controls of its lanes, and staging chunks. The first nodes and controls lie in its tx slot
 * (slot_table.h) instead. So a quiet link to a worker with few peers touches no page of the pool.
 */
#ifndef WEFT_TRANSPORTS_SHM_QUEUES_POOL_H
#define WEFT_TRANSPORTS_SHM_QUEUES_POOL_H

#include "mailbox.h"
#include <transports/shm/memory/doorbell.h>

enum { POOL_PAGE = 4096 };

static inline size_t pool_to_page(size_t size) {
    return (size + POOL_PAGE - 1) & ~(size_t)(POOL_PAGE - 1);
}

static inline size_t pool_blocks_at(uint32_t n_nodes) {
    return pool_to_page((size_t)n_nodes * sizeof(struct mail_node));
}

static inline size_t pool_controls_at(uint32_t n_nodes, uint32_t n_blocks) {
    return pool_blocks_at(n_nodes) + (size_t)n_blocks * MAIL_BLOCK;
}

static inline size_t pool_staging_at(uint32_t n_nodes, uint32_t n_blocks) {
    return pool_to_page(pool_controls_at(n_nodes, n_blocks) +
                        DOORBELL_LANES * sizeof(struct mail_control));
}

static inline size_t pool_size(uint32_t n_nodes, uint32_t n_blocks, uint32_t staging_size) {
    return pool_staging_at(n_nodes, n_blocks) + staging_size;
}

#endif

/*
 * What lies where in a worker's own segment, which its peers may only read: what it tells its lanes' peers, nodes, blocks, and staging
 * chunks. A quiet link to a worker with few peers touches no page of it but the first, since each page of somebody else that is
 * touched counts.
 */
#ifndef WEFT_TRANSPORTS_SHM_POOL_H
#define WEFT_TRANSPORTS_SHM_POOL_H

#include "doorbell.h"
#include "mailbox.h"

enum {
    POOL_PAGE = 4096,
    POOL_NEAR =
        64, /* lanes whose controls are in the first page, before the nodes; those of the others are behind the blocks */
    POOL_NODES_AT = POOL_NEAR * sizeof(struct mail_control)
};

static inline size_t pool_to_page(size_t size) {
    return (size + POOL_PAGE - 1) & ~(size_t)(POOL_PAGE - 1);
}

static inline size_t pool_blocks_at(uint32_t n_nodes) {
    return pool_to_page(POOL_NODES_AT + (size_t)n_nodes * sizeof(struct mail_node));
}

static inline size_t pool_far_at(uint32_t n_nodes, uint32_t n_blocks) {
    return pool_blocks_at(n_nodes) + (size_t)n_blocks * MAIL_BLOCK;
}

static inline size_t pool_staging_at(uint32_t n_nodes, uint32_t n_blocks) {
    return pool_to_page(pool_far_at(n_nodes, n_blocks) +
                        (DOORBELL_LANES - POOL_NEAR) * sizeof(struct mail_control));
}

static inline size_t pool_size(uint32_t n_nodes, uint32_t n_blocks, uint32_t staging_size) {
    return pool_staging_at(n_nodes, n_blocks) + staging_size;
}

/* Where the controls of a lane are. */
static inline size_t pool_control_at(uint32_t n_nodes, uint32_t n_blocks, unsigned lane) {
    return lane < POOL_NEAR ? lane * sizeof(struct mail_control)
                            : pool_far_at(n_nodes, n_blocks) + (lane - POOL_NEAR) * sizeof(struct mail_control);
}

#endif

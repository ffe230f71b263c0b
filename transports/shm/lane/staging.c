/* The staging pool: chunks that hold large messages until the receiver has passed them. */
#include "shm.h"

weft_status_t weft__shm_staging_size(struct shm_iface *iface) {
    size_t size =
        weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_SHM_STAGING);
    assert(size <= SHM_MAX_STAGING);
    iface->staging.n_chunks = (uint32_t)(size / SHM_CHUNK);
    if (iface->staging.n_chunks == 0) iface->staging.n_chunks = 1;
    size = ((size_t)iface->staging.n_chunks * SHM_CHUNK + 4095) & ~(size_t)4095;
    iface->staging.free = weft__alloc(iface, iface->staging.n_chunks * sizeof *iface->staging.free,
                                      "shm free chunks");
    iface->staging.filled =
        weft__alloc(iface, iface->staging.n_chunks * sizeof *iface->staging.filled, "shm chunks");
    iface->staging.users = weft__alloc(
        iface, iface->staging.n_chunks * sizeof *iface->staging.users, "shm chunk users");
    if (!iface->staging.free || !iface->staging.filled || !iface->staging.users)
        return WEFT_ERR_NO_MEMORY;
    iface->staging.n_free = iface->staging.n_chunks;
    iface->staging.open_chunk = -1;
    for (uint32_t i = 0; i < iface->staging.n_chunks; i++) iface->staging.free[i] = (int32_t)i;
    iface->staging.size = (uint32_t)size;
    return WEFT_OK;
}

/* Puts the chunk a few places behind the first of the queue. By its next use it has left the
 * reader's cache for the shared one, where a write is cheap. With more chunks in turn each would
 * be colder. */
static void give_back(struct shm_iface *iface, int32_t chunk) {
    uint32_t at = iface->staging.n_free++;
    for (; at >= SHM_CHUNKS_IN_TURN; at--)
        iface->staging.free[(iface->staging.first_free + at) % iface->staging.n_chunks] =
            iface->staging.free[(iface->staging.first_free + at - 1) % iface->staging.n_chunks];
    iface->staging.free[(iface->staging.first_free + at) % iface->staging.n_chunks] = chunk;
}

static int32_t open_next(struct shm_iface *iface) {
    if (iface->staging.n_free == 0) {
        iface->staging.wanted = true;
        return -1;
    }
    int32_t chunk = iface->staging.free[iface->staging.first_free];
    if (!iface->staging.filled[chunk]) {
        size_t at = pool_staging_at(SHM_NODES, SHM_BLOCKS) + (size_t)chunk * SHM_CHUNK;
        weft_status_t st = weft__segment_fill(&iface->mail.segment, at, SHM_CHUNK);
        if (st < 0) return st - 1;
        iface->staging.filled[chunk] = true;
    }
    iface->staging.first_free = (iface->staging.first_free + 1) % iface->staging.n_chunks;
    iface->staging.n_free--;
    iface->staging.open_chunk = chunk;
    iface->staging.open_at = 0;
    return chunk;
}

/* The open chunk is full. It returns to the queue with its last message. */
static void close_chunk(struct shm_iface *iface) {
    int32_t chunk = iface->staging.open_chunk;
    iface->staging.open_chunk = -1;
    if (chunk >= 0 && iface->staging.users[chunk] == 0) give_back(iface, chunk);
}

/* Messages lie one behind the other, which suits the prefetcher. Passed chunks are taken back
 * before another is opened, so that few chunks are in use. */
int32_t weft__shm_chunk_get(struct shm_lane *lane, size_t len, uint32_t *offset_p) {
    struct shm_iface *iface = shm_iface(lane);
    if (iface->staging.open_chunk < 0 || iface->staging.open_at + len > SHM_CHUNK) {
        shm_way(lane)->refresh(lane);
        close_chunk(iface);
        int32_t chunk = open_next(iface);
        if (chunk < 0) return chunk;
    }
    *offset_p = (uint32_t)iface->staging.open_chunk * SHM_CHUNK + iface->staging.open_at;
    iface->staging.open_at += (uint32_t)(len + RING_LINE - 1) & ~(uint32_t)(RING_LINE - 1);
    iface->staging.users[iface->staging.open_chunk]++;
    return iface->staging.open_chunk;
}

void weft__shm_chunk_put(struct shm_iface *iface, int32_t chunk) {
    if (--iface->staging.users[chunk] == 0 && chunk != iface->staging.open_chunk)
        give_back(iface, chunk);
}

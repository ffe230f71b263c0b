/* The staging pool: chunks that this worker lends to large messages of all its lanes. */
#include "shm.h"

weft_status_t weft__shm_staging_size(struct shm_iface *iface) {
    size_t size = weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_SHM_STAGING);
    assert(size <= SHM_MAX_STAGING);
    iface->n_chunks = (uint32_t)(size / SHM_CHUNK);
    if (iface->n_chunks == 0) iface->n_chunks = 1;
    size = ((size_t)iface->n_chunks * SHM_CHUNK + 4095) & ~(size_t)4095;
    iface->free_chunks = weft__alloc(iface, iface->n_chunks * sizeof *iface->free_chunks, "shm free chunks");
    iface->chunk_filled = weft__alloc(iface, iface->n_chunks * sizeof *iface->chunk_filled, "shm chunks");
    iface->chunk_users = weft__alloc(iface, iface->n_chunks * sizeof *iface->chunk_users, "shm chunk users");
    if (!iface->free_chunks || !iface->chunk_filled || !iface->chunk_users) return WEFT_ERR_NO_MEMORY;
    iface->n_free = iface->n_chunks;
    iface->open_chunk = -1;
    for (uint32_t i = 0; i < iface->n_chunks; i++) iface->free_chunks[i] = (int32_t)i;
    iface->staging_size = (uint32_t)size;
    return WEFT_OK;
}

/* The next but a few to be used: by then it has left the reader's own cache for the one that both share, where writing it is cheap,
 * and the reader of one that was written a while ago finds it there too. With more in turn than that, each is colder. */
static void give_back(struct shm_iface *iface, int32_t chunk) {
    uint32_t at = iface->n_free++;
    for (; at >= SHM_CHUNKS_IN_TURN; at--)
        iface->free_chunks[(iface->first_free + at) % iface->n_chunks] =
            iface->free_chunks[(iface->first_free + at - 1) % iface->n_chunks];
    iface->free_chunks[(iface->first_free + at) % iface->n_chunks] = chunk;
}

static int32_t open_next(struct shm_iface *iface) {
    if (iface->n_free == 0) {
        iface->chunks_wanted = true;
        return -1;
    }
    int32_t chunk = iface->free_chunks[iface->first_free];
    if (!iface->chunk_filled[chunk]) {
        size_t at = pool_staging_at(SHM_NODES, SHM_BLOCKS) + (size_t)chunk * SHM_CHUNK;
        weft_status_t st = weft__segment_fill(&iface->mail.segment, at, SHM_CHUNK);
        if (st < 0) return st - 1;
        iface->chunk_filled[chunk] = true;
    }
    iface->first_free = (iface->first_free + 1) % iface->n_chunks;
    iface->n_free--;
    iface->open_chunk = chunk;
    iface->open_at = 0;
    return chunk;
}

/* It is full. Whoever still reads there gives it back. */
static void close_chunk(struct shm_iface *iface) {
    int32_t chunk = iface->open_chunk;
    iface->open_chunk = -1;
    if (chunk >= 0 && iface->chunk_users[chunk] == 0) give_back(iface, chunk);
}

/* Messages lie one behind the other, as a processor likes to read and write; what the peer has passed is taken back before another
 * chunk is begun, so that few go round. */
int32_t weft__shm_chunk_get(struct shm_lane *lane, size_t len, uint32_t *offset_p) {
    struct shm_iface *iface = shm_iface(lane);
    if (iface->open_chunk < 0 || iface->open_at + len > SHM_CHUNK) {
        shm_way(lane)->refresh(lane);
        close_chunk(iface);
        int32_t chunk = open_next(iface);
        if (chunk < 0) return chunk;
    }
    *offset_p = (uint32_t)iface->open_chunk * SHM_CHUNK + iface->open_at;
    iface->open_at += (uint32_t)(len + RING_LINE - 1) & ~(uint32_t)(RING_LINE - 1);
    iface->chunk_users[iface->open_chunk]++;
    return iface->open_chunk;
}

void weft__shm_chunk_put(struct shm_iface *iface, int32_t chunk) {
    if (--iface->chunk_users[chunk] == 0 && chunk != iface->open_chunk) give_back(iface, chunk);
}

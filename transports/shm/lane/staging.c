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

/* -1: there is none; < -1: a status - 1. */
static int32_t open_next(struct shm_iface *iface) {
    if (iface->staging.n_free == 0) return -1;
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

/* ---- what a lane may hold -------------------------------------------------------------------- */

static bool fits_open_chunk(const struct shm_staging *staging, size_t len) {
    return staging->open_chunk >= 0 && staging->open_at + len <= SHM_CHUNK;
}

static bool has_newest_in(const struct mail_tx *tx, int32_t chunk) {
    return tx->n_staged && tx->newest_chunk == chunk;
}

/*
 * A receiver that takes nothing keeps each chunk in which a message to it lies. So a lane has
 * messages in SHM_CHUNKS_OF_LANE chunks at most, and in one more only if more than twice as many as
 * it has are left: the free ones, and the open one if that has room or is empty.
 */
static bool may_hold_more(const struct shm_lane *lane, size_t len) {
    const struct shm_staging *staging = &shm_iface(lane)->staging;
    const struct mail_tx *tx = &lane->mail.tx;
    uint32_t left = staging->n_free;
    if (staging->open_chunk >= 0 &&
        (fits_open_chunk(staging, len) || staging->users[staging->open_chunk] == 0))
        left++;
    return tx->n_chunks < SHM_CHUNKS_OF_LANE && 2 * (uint32_t)tx->n_chunks < left;
}

static int32_t refuse(struct shm_iface *iface) {
    if (iface->staging.n_free == 0) iface->staging.wanted = true;
    return -1;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Beside a chunk's number: the message is the lane's first in that chunk, and others of the lane
 * are under way before it. */
enum { ANOTHER_CHUNK = 1 << 30 };

static int32_t put_message(struct shm_lane *lane, size_t len, uint32_t *offset_p) {
    struct shm_staging *staging = &shm_iface(lane)->staging;
    struct mail_tx *tx = &lane->mail.tx;
    int32_t chunk = staging->open_chunk;
    bool another = !has_newest_in(tx, chunk);
    if (another) tx->n_chunks++;
    tx->newest_chunk = (uint16_t)chunk;
    staging->users[chunk]++;
    *offset_p = (uint32_t)chunk * SHM_CHUNK + staging->open_at;
    staging->open_at += (uint32_t)(len + RING_LINE - 1) & ~(uint32_t)(RING_LINE - 1);
    return tx->n_staged++ && another ? chunk | ANOTHER_CHUNK : chunk;
}

/* Messages lie one behind the other, which suits the prefetcher. Passed chunks are taken back
 * before another is opened, so that few chunks are in use. */
int32_t weft__shm_chunk_get(struct shm_lane *lane, size_t len, uint32_t *offset_p) {
    struct shm_iface *iface = shm_iface(lane);
    bool fits = fits_open_chunk(&iface->staging, len);
    if (fits && has_newest_in(&lane->mail.tx, iface->staging.open_chunk))
        return put_message(lane, len, offset_p);
    if (!fits || !may_hold_more(lane, len)) shm_way(lane)->refresh(lane);
    for (unsigned looks = 0; looks < SHM_LOOKS && !may_hold_more(lane, len); looks++)
        weft__shm_refresh_next(iface);
    if (!may_hold_more(lane, len)) return refuse(iface);
    if (!fits) {
        close_chunk(iface);
        int32_t chunk = open_next(iface);
        if (chunk < 0) return chunk;
    }
    return put_message(lane, len, offset_p);
}

void weft__shm_chunk_put(void *arg, int32_t got) {
    struct shm_lane *lane = arg;
    struct shm_iface *iface = shm_iface(lane);
    int32_t chunk = got & ~ANOTHER_CHUNK;
    if (got & ANOTHER_CHUNK) lane->mail.tx.n_chunks--; /* the chunk before has none of the lane */
    if (--lane->mail.tx.n_staged == 0) lane->mail.tx.n_chunks = 0;
    if (--iface->staging.users[chunk] == 0 && chunk != iface->staging.open_chunk)
        give_back(iface, chunk);
}

/* The staging pool: chunks that this worker lends, one message each, to large messages of all its lanes. */
#include "shm.h"

weft_status_t weft__shm_staging_open(struct shm_iface *iface) {
    size_t size = weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_SHM_STAGING);
    if (size > SHM_MAX_STAGING) size = SHM_MAX_STAGING;
    iface->n_chunks = (uint32_t)(size / SHM_CHUNK);
    if (iface->n_chunks == 0) iface->n_chunks = 1;
    size = ((size_t)iface->n_chunks * SHM_CHUNK + 4095) & ~(size_t)4095;
    iface->free_chunks = weft__alloc(iface, iface->n_chunks * sizeof *iface->free_chunks, "shm free chunks");
    iface->chunk_filled = weft__alloc(iface, iface->n_chunks * sizeof *iface->chunk_filled, "shm chunks");
    if (!iface->free_chunks || !iface->chunk_filled) return WEFT_ERR_NO_MEMORY;
    iface->n_free = iface->n_chunks;
    for (uint32_t i = 0; i < iface->n_chunks; i++) iface->free_chunks[i] = (int32_t)i;
    return weft__segment_create(&iface->staging, "weft-staging", size, SEGMENT_SPARSE);
}

/* The one that came back first goes first: by then it has left the reader's own cache for the one that both share, where
 * writing it is cheap, and the reader of one that was written a while ago finds it there too. */
int32_t weft__shm_chunk_get(struct shm_iface *iface) {
    if (iface->n_free == 0) {
        iface->chunks_wanted = true;
        return -1;
    }
    int32_t chunk = iface->free_chunks[iface->first_free];
    if (!iface->chunk_filled[chunk]) {
        weft_status_t st = weft__segment_fill(&iface->staging, (size_t)chunk * SHM_CHUNK, SHM_CHUNK);
        if (st < 0) return st - 1;
        iface->chunk_filled[chunk] = true;
    }
    iface->first_free = (iface->first_free + 1) % iface->n_chunks;
    iface->n_free--;
    return chunk;
}

void weft__shm_chunk_put(struct shm_iface *iface, int32_t chunk) {
    iface->free_chunks[(iface->first_free + iface->n_free++) % iface->n_chunks] = chunk;
}

/* The staging pool: chunks of shared memory that hold the large messages of all lanes of a
 * worker. */
#ifndef WEFT_TRANSPORTS_SHM_LANE_STAGING_H
#define WEFT_TRANSPORTS_SHM_LANE_STAGING_H

#include <transports/copy.h>
#include <transports/transport.h>

struct shm_iface;
struct shm_lane;

enum {
    SHM_ZCOPY = 256 * 1024,
    SHM_ZCOPY_HEADER = 512,
    SHM_CHUNK = SHM_ZCOPY + SHM_ZCOPY_HEADER,
    SHM_CHUNKS_IN_TURN = 4, /* chunks in use over and over while no more are needed */
    SHM_CHUNKS_OF_LANE = 5  /* chunks in which a lane has messages, at most */
};

struct shm_staging {
    uint8_t *at; /* in the pool's segment */
    uint32_t size;
    uint32_t n_chunks, n_free, first_free;
    int32_t open_chunk; /* the chunk with room from `open_at` on; -1: none */
    uint32_t open_at;
    uint32_t *users; /* of each chunk: messages that lie in it */
    int32_t *free;   /* a queue of n_free chunks, from first_free on */
    bool *filled;    /* of each chunk: it has memory behind it */
    bool wanted;     /* look at the chunks of all lanes: a send found none free, or a peer lied */
};

weft_status_t weft__shm_staging_size(struct shm_iface *iface); /* before the pool is made */
/* Room for one message: its chunk, and its offset in the staging memory. -1: none now; < -1: a
 * status - 1. */
int32_t weft__shm_chunk_get(struct shm_lane *lane, size_t len, uint32_t *offset_p);
/* The receiver has passed the oldest message of the lane `arg` in staging memory, for which
 * weft__shm_chunk_get returned `got`. */
void weft__shm_chunk_put(void *arg, int32_t got);

static inline void shm_gather(uint8_t *to, const struct lane_zcopy *msg) {
    if (msg->header_len) memcpy(to, msg->header, msg->header_len);
    to += msg->header_len;
    for (size_t i = 0; i < msg->n_iov; to += msg->iov[i++].len)
        if (msg->iov[i].len) weft__copy(to, msg->iov[i].base, msg->iov[i].len);
}

#endif

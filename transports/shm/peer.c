/* What a peer's worker shows of itself. All lanes to it share one mapping. */
#include "shm.h"
#include <fcntl.h>
#include <unistd.h>

enum { FD_BELLS, FD_SHELVES, FD_POOL, FD_EVENT };

/* What a peer says of its name is proved by the memory that it shows: nobody else has that pool. */
static struct shm_peer *known(struct shm_iface *iface, uint64_t worker_id, const struct mapped *pool) {
    struct shm_peer *peer = iface->peers[worker_id % SHM_PEER_BUCKETS];
    while (peer && (peer->worker_id != worker_id || peer->pool != pool)) peer = peer->next;
    return peer;
}

static void peer_free(struct shm_peer *peer) {
    if (peer->event_fd >= 0) close(peer->event_fd);
    weft__mapped_put(peer->bells);
    weft__mapped_put(peer->shelves);
    weft__mapped_put(peer->pool);
    talloc_free(peer);
}

/* The eventfd itself is kept. */
static weft_status_t map(struct shm_peer *peer, const struct shm_hello *hello, int *fds) {
    weft_status_t st = weft__mapped_get(fds[FD_BELLS], HALL_BELLS_SIZE, true, &peer->bells);
    if (st == WEFT_OK) st = weft__mapped_get(fds[FD_SHELVES], HALL_SHELVES_SIZE, false, &peer->shelves);
    if (st < 0) return st;
    peer->bell = (struct doorbell *)peer->bells->segment.at + hello->place;
    peer->shelf = (const struct hall_shelf *)peer->shelves->segment.at + hello->place;
    peer->event_fd = fds[FD_EVENT];
    fds[FD_EVENT] = -1;
    fcntl(peer->event_fd, F_SETFL, O_NONBLOCK);
    const uint8_t *pool = peer->pool->segment.at;
    peer->view = (struct mail_view){.nodes = (const struct mail_node *)pool,
                                    .blocks = pool + pool_blocks_at(hello->n_nodes),
                                    .staging = pool + pool_staging_at(hello->n_nodes, hello->n_blocks),
                                    .n_nodes = hello->n_nodes,
                                    .blocks_size = hello->n_blocks * MAIL_BLOCK,
                                    .staging_size = hello->staging_size,
                                    .near = peer->shelf->nodes,
                                    .n_near = HALL_NODES};
    peer->n_blocks = hello->n_blocks;
    return WEFT_OK;
}

/* The pool becomes the new one's, or is let go. */
static weft_status_t meet(struct shm_iface *iface, const struct shm_hello *hello, struct mapped *pool, int *fds,
                          struct shm_peer **peer_p) {
    struct shm_peer *peer = weft__new(iface, struct shm_peer);
    if (!peer) {
        weft__mapped_put(pool);
        return WEFT_ERR_NO_MEMORY;
    }
    struct shm_peer **bucket = &iface->peers[hello->worker_id % SHM_PEER_BUCKETS];
    *peer = (struct shm_peer){.next = *bucket, .worker_id = hello->worker_id, .event_fd = -1, .pool = pool};
    weft_status_t st = map(peer, hello, fds);
    if (st < 0) {
        peer_free(peer);
        return st;
    }
    *bucket = *peer_p = peer;
    return WEFT_OK;
}

weft_status_t weft__shm_peer_get(struct shm_iface *iface, const struct shm_hello *hello, int *fds,
                                 struct shm_peer **peer_p) {
    struct mapped *pool;
    size_t size = pool_size(hello->n_nodes, hello->n_blocks, hello->staging_size);
    weft_status_t st = weft__mapped_get(fds[FD_POOL], size, false, &pool);
    if (st < 0) return st;
    struct shm_peer *peer = known(iface, hello->worker_id, pool);
    if (peer)
        weft__mapped_put(pool);
    else
        st = meet(iface, hello, pool, fds, &peer);
    if (st < 0) return st;
    peer->n_lanes++;
    *peer_p = peer;
    return WEFT_OK;
}

void weft__shm_peer_put(struct shm_iface *iface, struct shm_peer *peer) {
    if (--peer->n_lanes > 0) return;
    struct shm_peer **at = &iface->peers[peer->worker_id % SHM_PEER_BUCKETS];
    while (*at != peer) at = &(*at)->next;
    *at = peer->next;
    peer_free(peer);
}

void weft__shm_signal(struct shm_lane *lane, uint32_t sleep) {
    static const uint64_t one = 1;
    lane->count->shm_signals++;
    /* EAGAIN: the count is at its end, so the fd is readable as it is. */
    ssize_t written = write(lane->peer->event_fd, &one, sizeof one);
    (void)written;
    doorbell_signalled(lane->bell, sleep);
}

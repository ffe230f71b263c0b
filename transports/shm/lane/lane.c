/* Sending by rings, and the operations that lanes by rings and by the mailbox share. */
#include "shm.h"
#include <stdio.h>
#include <string.h>
#include <transports/common.h>
#include <unistd.h>

/* ---- the ring to the peer -------------------------------------------------------------------- */

NOINLINE void weft__shm_ring_peer(struct shm_lane *lane) {
    uint32_t sleep = doorbell_ring(shm_doorbell(lane), lane->mail.tx.slot);
    if (sleep) weft__shm_signal(lane, sleep);
}

static inline void ring_sent(struct shm_lane *lane, const struct shm_ring *ring, size_t bytes) {
    uint64_t slots = ring->tx.head - ring->backoff.sent; /* more are a stream, and gain nothing */
    if (slots <= ring->tactics.handed_over) {
        ring_hand_over(ring_last(&ring->tx, 1));
        if (slots == 2) ring_hand_over(ring_last(&ring->tx, 2));
    }
    ring->count->shm_messages++;
    ring->count->shm_bytes += bytes;
    /* No fence of the processor: a peer that stops attending misses no message (poll.c,
     * stop_attending). */
    atomic_signal_fence(memory_order_seq_cst);
    if (UNLIKELY(!atomic_load_explicit(&ring->theirs->attended, memory_order_relaxed)))
        weft__shm_ring_peer(lane);
}

/* The next poll reports RING_LIES to the attachment: for what waits, or as it looks at chunks. */
int weft__shm_refresh(struct shm_lane *lane) {
    uint64_t limit = shm_ring(lane)->tx.limit;
    int moved = ring_refresh(&shm_ring(lane)->tx, weft__shm_chunk_put, lane);
    if (UNLIKELY(moved == RING_LIES)) shm_iface(lane)->staging.wanted = true;
    if (moved == RING_MOVED) shm_worked(lane, shm_ring(lane)->tx.limit - limit);
    return moved;
}

static NOINLINE weft_status_t no_room(struct shm_lane *lane) {
    shm_iface(lane)->count->shm_full++;
    shm_way(lane)->activate(lane);
    return WEFT_NO_RESOURCE;
}

static inline bool full_lane(struct shm_lane *lane) {
    return UNLIKELY(ring_full(&shm_ring(lane)->tx)) && weft__shm_refresh(lane) != RING_MOVED;
}

/* ---- operations ------------------------------------------------------------------------------ */

static inline __attribute__((always_inline)) weft_status_t
put_short(struct shm_lane *lane, uint8_t id, uint64_t header, const void *data, size_t len) {
    struct shm_ring *ring = shm_ring(lane);
    ring_put_short(&ring->tx, id, header, data, len);
    ring_sent(lane, ring, len + sizeof header);
    return WEFT_OK;
}

static NOINLINE weft_status_t am_short_slow(struct shm_lane *lane, uint8_t id, uint64_t header,
                                            const void *data, size_t len) {
    if (len > SHM_SHORT) return weft__refuse_short(&lane->lane, len);
    return full_lane(lane) ? no_room(lane) : put_short(lane, id, header, data, len);
}

weft_status_t weft__shm_ring_am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                                      size_t len) {
    struct shm_lane *lane = (struct shm_lane *)l;
    if (UNLIKELY(len > SHM_SHORT || ring_full(&shm_ring(lane)->tx)))
        return am_short_slow(lane, id, header, data, len);
    return put_short(lane, id, header, data, len);
}

static inline weft_status_t put_short_to(struct shm_lane *lane, uint8_t id, uint64_t header,
                                         uint32_t to, const void *data, size_t len) {
    struct shm_ring *ring = shm_ring(lane);
    ring_put_short_to(&ring->tx, id, header, to, data, len);
    ring_sent(lane, ring, len + sizeof header + sizeof to);
    return WEFT_OK;
}

static NOINLINE weft_status_t am_short_to_slow(struct shm_lane *lane, uint8_t id, uint64_t header,
                                               uint32_t to, const void *data, size_t len) {
    if (len > SHM_SHORT - sizeof to)
        return weft__fail(WEFT_ERR_TOO_BIG, "am_short_to of %zu bytes over shm", len);
    return full_lane(lane) ? no_room(lane) : put_short_to(lane, id, header, to, data, len);
}

weft_status_t weft__shm_ring_am_short_to(struct lane *l, uint8_t id, uint64_t header, uint32_t to,
                                         const void *data, size_t len) {
    struct shm_lane *lane = (struct shm_lane *)l;
    if (UNLIKELY(len > SHM_SHORT - sizeof to || ring_full(&shm_ring(lane)->tx)))
        return am_short_to_slow(lane, id, header, to, data, len);
    return put_short_to(lane, id, header, to, data, len);
}

static uint8_t *payload_room(struct shm_lane *lane, size_t len) {
    uint8_t *room = ring_payload_room(&shm_ring(lane)->tx, len);
    if (room || weft__shm_refresh(lane) != RING_MOVED) return room;
    return ring_payload_room(&shm_ring(lane)->tx, len);
}

/* The message was packed into the payload area. A short one moves to slots, which the peer reads
 * sooner. */
static inline void put_packed(struct shm_ring *ring, uint8_t id, const uint8_t *room, size_t len) {
    struct ring_tx *tx = &ring->tx;
    if (len <= RING_INLINE)
        ring_put_small(tx, id, room, len);
    else if (len <= RING_PAIR && tactics_use(&ring->tactics, TACTIC_PAIR) && ring_has_pair(tx))
        ring_put_pair(tx, id, room, len);
    else
        ring_put_payload(tx, id, room, len);
}

weft_status_t weft__shm_ring_am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *, void *),
                                      void *arg) {
    struct shm_lane *lane = (struct shm_lane *)l;
    if (full_lane(lane)) return no_room(lane);
    uint8_t *room = payload_room(lane, l->iface->attr.max_bcopy);
    if (!room) return no_room(lane);
    size_t len = pack(room, arg);
    put_packed(shm_ring(lane), id, room, len);
    lane->carried += (uint32_t)len;
    ring_sent(lane, shm_ring(lane), len);
    return WEFT_OK;
}

bool weft__shm_all_taken(struct lane *l) {
    struct shm_lane *lane = (struct shm_lane *)l;
    if (lane->mail.tx.n_staged) shm_way(lane)->refresh(lane);
    return lane->mail.tx.n_staged == 0;
}

static weft_status_t send_staged(struct shm_lane *lane, uint8_t id, const struct lane_zcopy *msg,
                                 size_t len) {
    uint32_t offset;
    int32_t chunk = weft__shm_chunk_get(lane, len, &offset);
    if (chunk < -1) return (weft_status_t)(chunk + 1);
    if (chunk < 0) return no_room(lane);
    shm_gather(shm_iface(lane)->staging.at + offset, msg);
    ring_put_staged(&shm_ring(lane)->tx, id, chunk, offset, len);
    lane->carried += (uint32_t)len;
    ring_sent(lane, shm_ring(lane), len);
    return WEFT_OK;
}

/* Copies the bytes before it returns: a small message into the payload area, a large one into a
 * chunk. */
weft_status_t weft__shm_ring_am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                                      struct completion *completion) {
    struct shm_lane *lane = (struct shm_lane *)l;
    size_t len = 0;
    for (size_t i = 0; i < msg->n_iov; i++) len += msg->iov[i].len;
    if (msg->header_len > SHM_ZCOPY_HEADER || msg->n_iov > SHM_IOV ||
        len > l->iface->attr.max_zcopy)
        return weft__refuse_zcopy(l, msg, len);
    len += msg->header_len;
    if (full_lane(lane)) return no_room(lane);
    if (len > l->iface->attr.max_bcopy) return send_staged(lane, id, msg, len);
    uint8_t *room = payload_room(lane, len);
    if (!room) return no_room(lane);
    shm_gather(room, msg);
    put_packed(shm_ring(lane), id, room, len);
    lane->carried += (uint32_t)len;
    ring_sent(lane, shm_ring(lane), len);
    return WEFT_OK;
}

/* ---- waiting for space ----------------------------------------------------------------------- */

void weft__shm_pending_add(struct lane *l, struct pending *pending) {
    struct shm_lane *lane = (struct shm_lane *)l;
    pending_queue_add(&lane->pending, pending);
    if (!shm_is_up(lane)) return;
    shm_way(lane)->activate(lane);
    /* it armed before this */
    if (!weft__reactor_in_turn(l->iface->reactor)) weft__reactor_kick(l->iface->reactor);
}

void weft__shm_pending_remove(struct lane *l, struct pending *pending) {
    pending_queue_remove(&((struct shm_lane *)l)->pending, pending);
}

struct shm_ext *weft__shm_ext(struct shm_lane *lane) {
    if (lane->more) return lane->more;
    struct shm_ext *more = lane->more = weft__slab_take(&shm_iface(lane)->table.ext_slab);
    if (!more) return NULL;
    more->lane = lane;
    more->ring.mine.fd = more->ring.peers.fd = -1;
    return more;
}

void weft__shm_purge(struct shm_lane *lane) {
    pending_queue_init(&lane->pending);
}

void weft__shm_refresh_next(struct shm_iface *iface) {
    struct shm_lane_table *table = &iface->table;
    if (table->refresh_next > table->last_index) table->refresh_next = 0;
    struct shm_lane *lane = table->lanes[table->refresh_next++];
    if (lane && shm_is_up(lane) && (mail_under_way(&lane->mail.tx) || lane->mail.tx.n_staged))
        shm_way(lane)->refresh(lane);
}

unsigned weft__shm_retry(struct shm_lane *lane) {
    unsigned n = 0;
    while (pending_queue_retry(&lane->pending)) n++;
    return n;
}

void weft__shm_recv(struct lane *l, const lane_am_fn *handlers) {
    struct shm_lane *lane = (struct shm_lane *)l;
    l->handlers = handlers;
    if (lane->am) lane->am = lane_handlers(l);
}

/* A lane whose peer has ended is not paused: it reads the rest. */
weft_status_t weft__shm_pause(struct lane *l, bool on) {
    struct shm_lane *lane = (struct shm_lane *)l;
    if (on ? !lane->am || lane->watches_empty : !lane->paused) return WEFT_OK;
    weft_status_t st = on ? shm_way(lane)->pause(lane) : WEFT_OK;
    if (st < 0) return st;
    lane->paused = on;
    lane->am = on ? NULL : lane_handlers(l);
    if (on) return WEFT_OK;
    shm_way(lane)->activate(lane);
    if (!weft__reactor_in_turn(l->iface->reactor)) weft__reactor_kick(l->iface->reactor);
    return WEFT_OK;
}

uint64_t weft__shm_peer_id(const struct lane *l) {
    return ((const struct shm_iface *)l->iface)->shaken;
}

void weft__shm_describe(struct lane *l, char *buf, size_t size) {
    struct shm_lane *lane = (struct shm_lane *)l;
    const char *where = lane->more ? lane->more->where : "";
    int pid = (int)shm_pid(lane); /* 0: unknown */
    char who[24] = "a process";
    if (pid) snprintf(who, sizeof who, "pid %d", pid);
    snprintf(buf, size, "%s by %s%s%s", who, shm_way(lane)->name, *where ? " at " : "", where);
}

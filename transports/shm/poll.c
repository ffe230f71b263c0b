/*
 * Finding messages. A worker looks at its active lanes, and at its doorbell. A peer rings after each message unless
 * its ring is attended, which costs the sender nothing; but then a worker that stops attending must be sure that no
 * message was published by a peer that still saw it attend: it makes every peer pass a barrier, and looks again.
 * That is dear (it interrupts running peers), so only a ring that is busy while the worker stays awake is attended.
 */
#include "shm.h"
#include <assert.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define OF_POLLER(p) ((struct shm_iface *)((char *)(p)-offsetof(struct shm_iface, poller)))

static void activate(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    if (shm_ring(lane)->active_at) return;
    assert(shm_ring(lane)->counted && iface->n_active < iface->active_room);
    iface->active[iface->n_active++] = lane;
    shm_ring(lane)->active_at = iface->n_active;
}

static void deactivate(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    if (!shm_ring(lane)->active_at) return;
    struct shm_lane *last = iface->active[--iface->n_active];
    iface->active[shm_ring(lane)->active_at - 1] = last;
    shm_ring(last)->active_at = shm_ring(lane)->active_at;
    shm_ring(lane)->active_at = 0;
}

/* ---- attending --------------------------------------------------------------------------------------------- */

static void attend_set(struct shm_lane *lane, bool value) {
    struct shm_iface *iface = shm_iface(lane);
    iface->n_attended += value ? 1 : -1;
    shm_ring(lane)->attended = value;
    atomic_store_explicit(&shm_ring(lane)->ours->attended, value, memory_order_relaxed);
}

static void leave(struct shm_lane *lane) {
    if (!lane->more) return;
    if (shm_ring(lane)->attended) attend_set(lane, false);
    deactivate(lane);
}

/* After this, what peers published while they saw us attend is visible, and they see that we do not. */
static void barrier_for_peers(void) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* Somebody busy wants a place: the attended ring that was idle for long gives up its own. */
static bool make_place(struct shm_iface *iface) {
    if (iface->n_attended < SHM_ATTENDED) return true;
    for (unsigned i = 0; i < iface->n_active; i++) {
        struct shm_lane *lane = iface->active[i];
        if (!shm_ring(lane)->attended || shm_ring(lane)->idle < SHM_IDLE) continue;
        attend_set(lane, false);
        barrier_for_peers(); /* it stays active until it was found empty after this */
        return true;
    }
    return false;
}

/* A ring was idle for long: of those like it only a few are looked at any more. The others stay active until they were found empty
 * after this. */
static __attribute__((noinline)) void thin_out(struct shm_iface *iface) {
    bool any = false;
    for (unsigned i = 0; i < iface->n_active && iface->n_attended > SHM_IDLERS; i++) {
        struct shm_ring *ring = shm_ring(iface->active[i]);
        if (!ring->attended || ring->idle < SHM_IDLE / 2) continue;
        attend_set(iface->active[i], false);
        any = true;
    }
    if (any) barrier_for_peers();
}

static void busy(struct shm_lane *lane, unsigned messages) {
    struct shm_iface *iface = shm_iface(lane);
    struct shm_ring *ring = shm_ring(lane);
    ring->idle = 0;
    if (ring->attended) return;
    if (ring->sleep_epoch != iface->sleep_epoch) {
        ring->sleep_epoch = iface->sleep_epoch;
        ring->streak = 0;
    }
    ring->streak += messages;
    if (ring->streak < SHM_STREAK || !lane->am) return;
    ring->streak = 0;
    if (iface->fenced && ring->attendable && make_place(iface)) attend_set(lane, true);
}

/* ---- one lane ---------------------------------------------------------------------------------------------- */

/* The fence stands between what we passed and the look whether the peer sleeps for want of it; it set out to sleep by
 * the same two steps crosswise. */
static void tell_passed(struct shm_lane *lane) {
    struct shm_ring *ring = shm_ring(lane);
    ring_tell(&ring->rx);
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t wants = atomic_load_explicit(&ring->theirs->wants, memory_order_relaxed);
    if (wants == ring->wants_answered) return;
    ring->wants_answered = wants;
    weft__shm_ring_peer(lane);
}

/* Somebody waits for the one message that came after a pause: all its lines are asked for at once, while the first is looked at.
 * In a stream the processor sees them coming, and this would be in its way. */
static inline void fetch_ahead(const struct shm_lane *lane, const struct ring_message *m) {
    if (m->len <= RING_INLINE || shm_ring(lane)->idle == 0) return;
    size_t len = m->len < SHM_AHEAD ? m->len : SHM_AHEAD;
    for (size_t at = 0; at < len; at += RING_LINE) __builtin_prefetch((const char *)m->data + at);
}

/* The message of which `word` was found, and those that follow. Who lags fetches their slots before it looks at them. */
static inline __attribute__((always_inline)) unsigned receive(struct shm_lane *lane, uint64_t word, unsigned budget,
                                                              bool lags) {
    struct shm_ring *ring = shm_ring(lane); /* which it keeps */
    struct ring_message m;
    unsigned n = 0;
    do {
        if (UNLIKELY(ring_open(&ring->rx, word, &m) == RING_LIES)) {
            weft__shm_failed(lane, WEFT_ERR_PROTOCOL);
            return n + 1;
        }
        if (lags) ring_fetch(&ring->rx, SHM_FETCHED);
        if (n == 0) fetch_ahead(lane, &m);
        lane->am[m.id](&lane->lane, m.data, m.len);
        n++;
        if (UNLIKELY(ring_done(&ring->rx))) tell_passed(lane);
    } while (n < budget && lane->am && ring_peek(&ring->rx, &word));
    return n;
}

/* A stream, of which `n` are taken, up to `budget` in all. A slot takes long to come from the other core; the processor asks for few
 * of them ahead, the fewer the more there is to do for each message. */
static __attribute__((noinline)) unsigned receive_stream(struct shm_lane *lane, unsigned n, unsigned budget) {
    struct ring_rx *rx = &shm_ring(lane)->rx;
    uint64_t word;
    while (n < budget && lane->am && ring_peek(rx, &word)) {
        unsigned most = budget - n < SHM_STRETCH ? budget - n : SHM_STRETCH;
        bool lags = ring_lags(rx, SHM_STRETCH);
        ring_fetch(rx, 2 * SHM_STRETCH); /* where the next stretch will ask that */
        n += lags ? receive(lane, word, most, true) : receive(lane, word, most, false);
    }
    return n;
}

static unsigned look_for_space(struct shm_lane *lane) {
    if (weft__shm_refresh(lane) == RING_LIES) {
        weft__shm_failed(lane, WEFT_ERR_PROTOCOL);
        return 1;
    }
    return ring_full(&shm_ring(lane)->tx) ? 0 : weft__shm_retry(lane);
}

static unsigned found_empty(struct shm_lane *lane) {
    if (!lane->watches_empty) return 0;
    weft__shm_found_empty(lane);
    return 1;
}

static bool stays_active(const struct shm_lane *lane, unsigned found) {
    if (pending_queue_waits(&lane->pending)) return shm_is_up(lane);
    return lane->am && (found || shm_ring(lane)->attended || lane->watches_empty);
}

/* What follows a look that found `n`; and how much that is in all. */
static __attribute__((noinline)) unsigned settle(struct shm_lane *lane, unsigned n) {
    if (pending_queue_waits(&lane->pending) && shm_is_up(lane)) n += look_for_space(lane);
    if (n)
        busy(lane, n);
    else
        shm_ring(lane)->idle++;
    if (!stays_active(lane, n)) deactivate(lane);
    return n;
}

/* Its next message is there, and that is its word. Somebody may wait for what the handler did or for its answer: an attended ring
 * without more ado is left at once. */
static __attribute__((noinline)) unsigned take(struct shm_lane *lane, uint64_t word, unsigned budget) {
    struct shm_ring *ring = shm_ring(lane);
    if (UNLIKELY(!lane->am)) return settle(lane, found_empty(lane));
    unsigned n = receive(lane, word, budget < SHM_FETCHED ? budget : SHM_FETCHED, false);
    if (ring->lull.looks) lull_learn(&ring->lull, ring->idle, n);
    if (UNLIKELY(n == SHM_FETCHED)) n = receive_stream(lane, n, budget);
    if (UNLIKELY(!lane->am || !ring->attended || pending_queue_waits(&lane->pending))) return settle(lane, n);
    ring->idle = 0;
    return n;
}

/* Nothing is to be done for an attended ring that is empty, and that is what most looks find. */
static inline unsigned find_nothing(struct shm_lane *lane) {
    if (!shm_ring(lane)->attended || pending_queue_waits(&lane->pending) || lane->watches_empty)
        return settle(lane, found_empty(lane));
    if (UNLIKELY(++shm_ring(lane)->idle % SHM_IDLE == 0)) thin_out(shm_iface(lane));
    return 0;
}

static void end_lull(struct shm_ring *ring) {
    lull_end(&ring->lull, ring->tx.head, ring->idle);
}

/* Something was sent since the last look. When the next one may come, the lines that will be written then are fetched: nobody waits
 * for that now. */
static __attribute__((noinline)) bool holds(struct shm_lane *lane) {
    struct shm_ring *ring = shm_ring(lane);
    bool waits = lull_is_kept(&ring->lull) && !pending_queue_waits(&lane->pending);
    if (waits && lull_holds(&ring->lull, weft__ticks())) {
        ring->idle++;
        return true;
    }
    end_lull(ring);
    ring_own_next(&ring->tx);
    return false;
}

static inline unsigned look(struct shm_lane *lane, unsigned budget) {
    struct shm_ring *ring = shm_ring(lane);
    uint64_t word;
    if (UNLIKELY(ring->tx.head != ring->lull.sent) && holds(lane)) return 0;
    return ring_peek(&ring->rx, &word) ? take(lane, word, budget) : find_nothing(lane);
}

/* ---- the poller ---------------------------------------------------------------------------------------------- */

static void called(void *arg, unsigned bit) {
    struct shm_iface *iface = arg;
    for (struct shm_lane *lane = iface->rung[bit]; lane; lane = shm_ring(lane)->next_rung)
        if (shm_is_up(lane)) activate(lane);
}

/* Chunks that are back serve whoever waits for one, in any lane. */
static void reclaim_chunks(struct shm_iface *iface) {
    for (unsigned i = 0; i <= iface->last_index; i++) {
        struct shm_lane *lane = iface->lanes[i];
        if (lane && shm_is_up(lane) && lane->mail.tx.n_lent) shm_way(lane)->refresh(lane);
    }
    if (iface->n_free) iface->chunks_wanted = false;
}

/* Somebody rang, wrote, or waits: what is found unset by most looks. */
static inline bool is_called(const struct shm_iface *iface) {
    return doorbell_rang(iface->bell) || shm_mail_stirs(iface) || iface->chunks_wanted;
}

static inline unsigned share_of(unsigned budget) {
    return budget < SHM_SHARE ? budget : SHM_SHARE;
}

/* Each lane gets a share, and the next turn begins where this one ended: a flood on one starves no other. */
static unsigned look_at_rings(struct shm_iface *iface, unsigned budget) {
    unsigned n = 0, i = iface->next_active;
    for (unsigned left = iface->n_active; left && n < budget && iface->n_active; left--) {
        if (i >= iface->n_active) i = 0;
        struct shm_lane *lane = iface->active[i];
        n += look(lane, share_of(budget - n));
        if (i < iface->n_active && iface->active[i] == lane) i++;
    }
    iface->next_active = i;
    return n;
}

static __attribute__((noinline)) int answer_calls(struct shm_iface *iface, unsigned budget) {
    unsigned n = 0;
    if (doorbell_rang(iface->bell)) doorbell_answer(iface->bell, called, iface);
    if (iface->chunks_wanted) reclaim_chunks(iface);
    if (shm_mail_stirs(iface)) n = weft__shm_mail_work(iface, share_of(budget));
    return (int)(n < budget && iface->n_active ? n + look_at_rings(iface, budget - n) : n);
}

/* Where there is one ring, somebody may wait for what it brings: it has a short way. */
int weft__shm_poll(struct poller *poller, unsigned budget) {
    struct shm_iface *iface = OF_POLLER(poller);
    if (UNLIKELY(is_called(iface))) return answer_calls(iface, budget);
    if (iface->n_active == 0) return 0;
    if (iface->n_active > 1) return (int)look_at_rings(iface, budget);
    return (int)look(iface->active[0], share_of(budget));
}

/* ---- sleeping -------------------------------------------------------------------------------------------------- */

static void stop_attending(struct shm_iface *iface) {
    if (iface->n_attended == 0) return;
    for (unsigned i = 0; i < iface->n_active; i++)
        if (shm_ring(iface->active[i])->attended) attend_set(iface->active[i], false);
    barrier_for_peers();
}

static void ask_for_space(struct shm_lane *lane) {
    uint32_t wants = atomic_load_explicit(&shm_ring(lane)->ours->wants, memory_order_relaxed);
    atomic_store_explicit(&shm_ring(lane)->ours->wants, wants + 1, memory_order_relaxed);
}

static bool waits_for_space(const struct shm_iface *iface, const struct shm_lane *lane) {
    return lane && shm_is_up(lane) &&
           (pending_queue_waits(&lane->pending) || (iface->chunks_wanted && lane->mail.tx.n_lent));
}

static bool something_there(struct shm_iface *iface) {
    if (doorbell_rang(iface->bell)) return true;
    for (unsigned i = 0; i < iface->n_active; i++) {
        struct shm_lane *lane = iface->active[i];
        if (lane->am && (lane->watches_empty || ring_ready(&shm_ring(lane)->rx))) return true;
    }
    return false;
}

static bool space_there(struct shm_iface *iface) {
    bool moved = false;
    for (unsigned i = 0; i <= iface->last_index; i++)
        if (waits_for_space(iface, iface->lanes[i]) &&
            shm_way(iface->lanes[i])->refresh(iface->lanes[i]) != RING_SAME)
            moved = true;
    return moved;
}

bool weft__shm_arm(struct poller *poller) {
    struct shm_iface *iface = OF_POLLER(poller);
    bool waiting = iface->chunks_wanted;
    if (iface->signalled) weft__shm_take_signal(iface);
    if (++iface->sleep_epoch == 0) iface->sleep_epoch++;
    stop_attending(iface);
    for (unsigned i = 0; i < iface->n_active; i++) {
        struct shm_lane *lane = iface->active[i];
        end_lull(shm_ring(lane)); /* who wakes up looks at once */
        if (pending_queue_waits(&lane->pending)) waiting = true;
    }
    for (unsigned i = 0; waiting && i <= iface->last_index; i++)
        if (waits_for_space(iface, iface->lanes[i])) shm_way(iface->lanes[i])->ask(iface->lanes[i]);
    weft__shm_mail_ask(iface);
    /* Armed and asked; then the last look. Peers publish, and then look at `armed`. */
    atomic_store(&iface->bell->armed, iface->sleep_epoch);
    atomic_thread_fence(memory_order_seq_cst);
    return !something_there(iface) && !(waiting && space_there(iface)) && weft__shm_mail_quiet(iface);
}

void weft__shm_disarm(struct poller *poller) {
    atomic_store_explicit(&OF_POLLER(poller)->bell->armed, 0, memory_order_relaxed);
}

/* It is looked at for space alone: nobody may believe that it is attended. */
static weft_status_t pause_ring(struct shm_lane *lane) {
    if (shm_ring(lane)->attended) {
        attend_set(lane, false);
        barrier_for_peers();
    }
    return WEFT_OK;
}

/* Its loans end with it. */
static void reclaim(struct shm_lane *lane) {
    struct ring_tx *tx = &shm_ring(lane)->tx;
    for (; tx->loans_tail != tx->loans_head; tx->loans_tail++) {
        int32_t chunk = tx->loans[tx->loans_tail & tx->mask].chunk;
        if (chunk >= 0) weft__shm_chunk_put(shm_iface(lane), chunk);
    }
    lane->mail.tx.n_lent = 0;
}

const struct shm_way weft__shm_ring_way = {.name = "ring",
                                           .up = &weft__shm_ops_up,
                                           .activate = activate,
                                           .leave = leave,
                                           .pause = pause_ring,
                                           .refresh = weft__shm_refresh,
                                           .ask = ask_for_space,
                                           .reclaim = reclaim};

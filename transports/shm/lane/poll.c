/*
 * Receiving by rings. A worker polls its active lanes and its doorbell. A peer rings the doorbell
 * after each message unless its ring is attended; to an attended ring a send needs no fence and no
 * doorbell.
 *
 * A worker that stops attending must miss no message of a peer that still saw it attend. So it
 * makes every peer pass a barrier, and polls again. The barrier is expensive (it interrupts running
 * peers), so a ring is attended only if it is busy while the worker stays awake.
 */
#include "shm.h"
#include <assert.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

static void activate(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    if (shm_ring(lane)->active_at) return;
    assert(shm_ring(lane)->counted && iface->rings.n_active < iface->rings.active_room);
    iface->rings.active[iface->rings.n_active++] = lane;
    shm_ring(lane)->active_at = iface->rings.n_active;
}

static void deactivate(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    if (!shm_ring(lane)->active_at) return;
    struct shm_lane *last = iface->rings.active[--iface->rings.n_active];
    iface->rings.active[shm_ring(lane)->active_at - 1] = last;
    shm_ring(last)->active_at = shm_ring(lane)->active_at;
    shm_ring(lane)->active_at = 0;
}

/* ---- attending ------------------------------------------------------------------------------- */

static void attend_set(struct shm_lane *lane, bool value) {
    struct shm_iface *iface = shm_iface(lane);
    iface->rings.n_attended += value ? 1 : -1;
    shm_ring(lane)->attended = value;
    atomic_store_explicit(&shm_ring(lane)->ours->attended, value, memory_order_relaxed);
}

static void leave_poll(struct shm_lane *lane) {
    if (!lane->more) return;
    if (shm_ring(lane)->attended) attend_set(lane, false);
    deactivate(lane);
}

/* Makes visible what peers published while they saw the ring attended. They see now that it is
 * not. */
static void barrier_for_peers(void) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* Makes room for a busy ring: an attended ring that was idle for long gives up its place. */
static bool make_place(struct shm_iface *iface) {
    if (iface->rings.n_attended < SHM_ATTENDED) return true;
    for (unsigned i = 0; i < iface->rings.n_active; i++) {
        struct shm_lane *lane = iface->rings.active[i];
        if (!shm_ring(lane)->attended || shm_ring(lane)->idle < SHM_IDLE) continue;
        attend_set(lane, false);
        barrier_for_peers(); /* the lane stays active until it is found empty after this */
        return true;
    }
    return false;
}

/* Keeps only a few of the rings that are idle for long. The others stay active until they are found
 * empty after this. */
static NOINLINE void thin_out(struct shm_iface *iface) {
    bool any = false;
    for (unsigned i = 0; i < iface->rings.n_active && iface->rings.n_attended > SHM_IDLERS; i++) {
        struct shm_ring *ring = shm_ring(iface->rings.active[i]);
        if (!ring->attended || ring->idle < SHM_IDLE / 2) continue;
        attend_set(iface->rings.active[i], false);
        any = true;
    }
    if (any) barrier_for_peers();
}

static void busy(struct shm_lane *lane, unsigned messages) {
    struct shm_iface *iface = shm_iface(lane);
    struct shm_ring *ring = shm_ring(lane);
    ring->idle = 0;
    if (ring->attended) return;
    if (ring->sleep_epoch != iface->rings.sleep_epoch) {
        ring->sleep_epoch = iface->rings.sleep_epoch;
        ring->streak = 0;
    }
    ring->streak += messages;
    if (ring->streak < SHM_STREAK || !lane->am) return;
    ring->streak = 0;
    if (iface->wakeup.fenced && ring->attendable && make_place(iface)) attend_set(lane, true);
}

/* ---- one lane -------------------------------------------------------------------------------- */

/* The fence stands between the published position and the load of `wants`. A peer that goes to
 * sleep stores `wants` and then loads the position, so one side sees the other. */
static void notify_passed(struct shm_lane *lane) {
    struct shm_ring *ring = shm_ring(lane);
    ring_notify(&ring->rx);
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t wants = atomic_load_explicit(&ring->theirs->wants, memory_order_relaxed);
    if (wants == ring->wants_answered) return;
    ring->wants_answered = wants;
    weft__shm_ring_peer(lane);
}

/* After a pause, prefetches all lines of a message at once, since its receiver waits for it. In
 * a stream the processor's own prefetcher does better. */
static inline void fetch_ahead(const struct shm_lane *lane, const struct ring_message *m) {
    if (m->len <= RING_INLINE || shm_ring(lane)->idle == 0) return;
    if (!tactics_use(&shm_ring(lane)->tactics, TACTIC_AHEAD)) return;
    size_t len = m->len < SHM_AHEAD ? m->len : SHM_AHEAD;
    for (size_t at = 0; at < len; at += RING_LINE) __builtin_prefetch((const char *)m->data + at);
}

/* Handles the message of `word` and the messages that follow. `lags`: prefetch their slots
 * first. */
static inline __attribute__((always_inline)) unsigned receive(struct shm_lane *lane, uint64_t word,
                                                              unsigned budget, bool lags) {
    struct shm_ring *ring = shm_ring(lane); /* the same until the lane is freed */
    struct ring_message m;
    unsigned n = 0;
    do {
        if (UNLIKELY(ring_open(&ring->rx, word, &m) == RING_LIES)) {
            shm_notify_failed(lane, WEFT_ERR_PROTOCOL);
            return n + 1;
        }
        if (lags) ring_fetch(&ring->rx, SHM_FETCHED);
        if (n == 0) fetch_ahead(lane, &m);
        lane->am[m.id](&lane->lane, m.id, m.data, m.len);
        n++;
        if (UNLIKELY(ring_done(&ring->rx))) notify_passed(lane);
    } while (n < budget && lane->am && ring_peek(&ring->rx, &word));
    return n;
}

/* Receives a stream, of which `n` messages are taken, up to `budget` in all. A slot takes long
 * to come from the other core, and the processor prefetches few of them, so this does. */
static NOINLINE unsigned receive_stream(struct shm_lane *lane, unsigned n, unsigned budget) {
    struct ring_rx *rx = &shm_ring(lane)->rx;
    uint64_t word;
    while (n < budget && lane->am && ring_peek(rx, &word)) {
        unsigned most = budget - n < SHM_STRETCH ? budget - n : SHM_STRETCH;
        bool lags = ring_lags(rx, SHM_STRETCH);
        ring_fetch(rx, 2 * SHM_STRETCH); /* the slot at which the next stretch asks ring_lags */
        n += lags ? receive(lane, word, most, true) : receive(lane, word, most, false);
    }
    return n;
}

static unsigned look_for_space(struct shm_lane *lane) {
    if (weft__shm_refresh(lane) == RING_LIES) {
        shm_notify_failed(lane, WEFT_ERR_PROTOCOL);
        return 1;
    }
    return ring_full(&shm_ring(lane)->tx) ? 0 : weft__shm_retry(lane);
}

static unsigned found_empty(struct shm_lane *lane) {
    if (!lane->watches_empty) return 0;
    shm_iface(lane)->events->found_empty(lane);
    return 1;
}

static bool stays_active(const struct shm_lane *lane, unsigned found) {
    if (pending_queue_waits(&lane->pending)) return shm_is_up(lane);
    return lane->am && (found || shm_ring(lane)->attended || lane->watches_empty);
}

/* The slow end of a look that found `n` messages. Returns the number of events in all. */
static NOINLINE unsigned ring_settle(struct shm_lane *lane, unsigned n) {
    if (pending_queue_waits(&lane->pending) && shm_is_up(lane)) n += look_for_space(lane);
    if (n)
        busy(lane, n);
    else
        shm_ring(lane)->idle++;
    if (!stays_active(lane, n)) deactivate(lane);
    return n;
}

/* `n` messages came after a send. */
static inline void learn(struct shm_ring *ring, unsigned n) {
    backoff_learn(&ring->backoff, ring->idle, n);
    if (UNLIKELY(tactics_answer(&ring->tactics, n)))
        weft__tactics_turn(&ring->tactics, weft__ticks());
}

/* The next message is there, and `word` is its word. The common case returns early, since the
 * caller may wait for the handler's result. */
static NOINLINE unsigned ring_take(struct shm_lane *lane, uint64_t word, unsigned budget) {
    struct shm_ring *ring = shm_ring(lane);
    if (UNLIKELY(!lane->am)) return ring_settle(lane, found_empty(lane));
    unsigned n = receive(lane, word, budget < SHM_FETCHED ? budget : SHM_FETCHED, false);
    if (LIKELY(n == 1)) {
        if (ring->backoff.looks) learn(ring, 1);
    } else {
        if (ring->backoff.looks) learn(ring, n);
        if (n == SHM_FETCHED) n = receive_stream(lane, n, budget);
    }
    if (UNLIKELY(!lane->am || !ring->attended || pending_queue_waits(&lane->pending)))
        return ring_settle(lane, n);
    ring->idle = 0;
    return n;
}

/* The ring is empty. For an attended ring, which is the common case, there is nothing to do. */
static inline unsigned find_nothing(struct shm_lane *lane) {
    if (!shm_ring(lane)->attended || pending_queue_waits(&lane->pending) || lane->watches_empty)
        return ring_settle(lane, found_empty(lane));
    if (UNLIKELY(++shm_ring(lane)->idle % SHM_IDLE == 0)) thin_out(shm_iface(lane));
    return 0;
}

static void end_backoff(struct shm_ring *ring) {
    backoff_end(&ring->backoff, ring->tx.head, ring->idle);
}

/* After a send: true while the back-off lasts. At its end, fetches the lines of the next send,
 * since the worker has nothing better to do then. */
static NOINLINE bool ring_holds(struct shm_lane *lane) {
    struct shm_ring *ring = shm_ring(lane);
    bool waits = backoff_is_kept(&ring->backoff) && !pending_queue_waits(&lane->pending) &&
                 tactics_use(&ring->tactics, TACTIC_WAIT);
    if (waits && backoff_holds(&ring->backoff, weft__ticks())) {
        ring->idle++;
        return true;
    }
    end_backoff(ring);
    if (tactics_use(&ring->tactics, TACTIC_OWN)) ring_own_next(&ring->tx);
    return false;
}

static inline unsigned poll_it(struct shm_lane *lane, unsigned budget) {
    struct shm_ring *ring = shm_ring(lane);
    uint64_t word;
    if (UNLIKELY(ring->tx.head != ring->backoff.sent) && ring_holds(lane)) return 0;
    return ring_peek(&ring->rx, &word) ? ring_take(lane, word, budget) : find_nothing(lane);
}

/* ---- the poller ------------------------------------------------------------------------------ */

static void called(void *arg, unsigned bit) {
    struct shm_iface *iface = arg;
    for (struct shm_lane *lane = iface->rings.rung[bit]; lane; lane = shm_ring(lane)->next_rung)
        if (shm_is_up(lane)) activate(lane);
}

/* Takes back passed chunks from all lanes: a returned chunk serves any lane that waits. Returns the
 * number of lanes that failed. */
static NOINLINE unsigned reclaim_chunks(struct shm_iface *iface) {
    unsigned n = 0;
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (!lane || !shm_is_up(lane) || !lane->mail.tx.n_staged) continue;
        if (shm_way(lane)->refresh(lane) != RING_LIES) continue;
        shm_notify_failed(lane, WEFT_ERR_PROTOCOL);
        n++;
    }
    if (iface->staging.n_free) iface->staging.wanted = false;
    return n;
}

/* There is work besides the active rings. Most looks find none. */
static inline bool is_called(const struct shm_iface *iface) {
    return doorbell_rang(iface->slot.doorbell) || shm_mail_stirs(iface) || iface->staging.wanted;
}

static inline unsigned share_of(unsigned budget) {
    return budget < SHM_SHARE ? budget : SHM_SHARE;
}

/* Each lane gets a share, and the next turn begins where this one ended. So no lane starves
 * another. */
static unsigned look_at_rings(struct shm_iface *iface, unsigned budget) {
    unsigned n = 0, i = iface->rings.next_active;
    for (unsigned left = iface->rings.n_active; left && n < budget && iface->rings.n_active;
         left--) {
        if (i >= iface->rings.n_active) i = 0;
        struct shm_lane *lane = iface->rings.active[i];
        n += poll_it(lane, share_of(budget - n));
        if (i < iface->rings.n_active && iface->rings.active[i] == lane) i++;
    }
    iface->rings.next_active = i;
    return n;
}

/* The mailbox comes first. After a turn in which it left none of the budget, the rings have one. */
static NOINLINE int answer_calls(struct shm_iface *iface, unsigned budget) {
    bool rings_first = iface->rings.passed_over;
    unsigned n = 0;
    iface->rings.passed_over = false;
    if (doorbell_rang(iface->slot.doorbell)) doorbell_answer(iface->slot.doorbell, called, iface);
    if (iface->staging.wanted && (n = reclaim_chunks(iface)) > 0) return (int)n;
    if (rings_first && (n = look_at_rings(iface, budget)) > 0) return (int)n;
    if (shm_mail_stirs(iface)) n = weft__shm_mail_work(iface, share_of(budget));
    if (n < budget) return (int)(n + look_at_rings(iface, budget - n));
    iface->rings.passed_over = true;
    return (int)n;
}

/* A single active ring has a fast path. */
int weft__shm_poll(struct poller *poller, unsigned budget) {
    struct shm_iface *iface = container_of(poller, struct shm_iface, poller);
    if (UNLIKELY(is_called(iface))) return answer_calls(iface, budget);
    if (iface->rings.n_active == 0) return 0;
    if (iface->rings.n_active > 1) return (int)look_at_rings(iface, budget);
    return (int)poll_it(iface->rings.active[0], share_of(budget));
}

/* ---- sleeping -------------------------------------------------------------------------------- */

static void stop_attending(struct shm_iface *iface) {
    if (iface->rings.n_attended == 0) return;
    for (unsigned i = 0; i < iface->rings.n_active; i++)
        if (shm_ring(iface->rings.active[i])->attended) attend_set(iface->rings.active[i], false);
    barrier_for_peers();
}

static void ask_for_space(struct shm_lane *lane) {
    uint32_t wants = atomic_load_explicit(&shm_ring(lane)->ours->wants, memory_order_relaxed);
    atomic_store_explicit(&shm_ring(lane)->ours->wants, wants + 1, memory_order_relaxed);
}

static bool waits_for_space(const struct shm_iface *iface, const struct shm_lane *lane) {
    return lane && shm_is_up(lane) &&
           (pending_queue_waits(&lane->pending) ||
            (iface->staging.wanted && lane->mail.tx.n_staged));
}

static bool something_there(struct shm_iface *iface) {
    if (doorbell_rang(iface->slot.doorbell)) return true;
    for (unsigned i = 0; i < iface->rings.n_active; i++) {
        struct shm_lane *lane = iface->rings.active[i];
        if (lane->am && (lane->watches_empty || ring_ready(&shm_ring(lane)->rx))) return true;
    }
    return false;
}

static bool space_there(struct shm_iface *iface) {
    bool moved = false;
    for (unsigned i = 0; i <= iface->table.last_index; i++)
        if (waits_for_space(iface, iface->table.lanes[i]) &&
            shm_way(iface->table.lanes[i])->refresh(iface->table.lanes[i]) != RING_SAME)
            moved = true;
    return moved;
}

/*
 * A signal only ends the sleep; the poll of the next turn finds the reason. The count stays unread
 * where the reactor reports the eventfd only once. It is read before the next sleep, when the
 * kernel reports it once more, or at once where a host's loop would report it again before that.
 */
void weft__shm_take_signal(struct shm_iface *iface) {
    uint64_t count;
    iface->wakeup.signalled =
        read(iface->wakeup.event_fd, &count, sizeof count) < 0 && errno == EINTR;
}

bool weft__shm_arm(struct poller *poller) {
    struct shm_iface *iface = container_of(poller, struct shm_iface, poller);
    bool waiting = iface->staging.wanted;
    if (iface->wakeup.signalled) weft__shm_take_signal(iface);
    if (++iface->rings.sleep_epoch == 0) iface->rings.sleep_epoch++;
    stop_attending(iface);
    for (unsigned i = 0; i < iface->rings.n_active; i++) {
        struct shm_lane *lane = iface->rings.active[i];
        end_backoff(shm_ring(lane)); /* a worker that wakes up polls at once */
        if (pending_queue_waits(&lane->pending)) waiting = true;
    }
    for (unsigned i = 0; waiting && i <= iface->table.last_index; i++)
        if (waits_for_space(iface, iface->table.lanes[i]))
            shm_way(iface->table.lanes[i])->ask(iface->table.lanes[i]);
    weft__shm_mail_ask(iface);
    /* Arm before the last look. Peers publish before they load `armed`. */
    atomic_store(&iface->slot.doorbell->armed, iface->rings.sleep_epoch);
    atomic_thread_fence(memory_order_seq_cst);
    return !something_there(iface) && !(waiting && space_there(iface)) &&
           weft__shm_mail_quiet(iface);
}

void weft__shm_disarm(struct poller *poller) {
    atomic_store_explicit(&container_of(poller, struct shm_iface, poller)->slot.doorbell->armed, 0,
                          memory_order_relaxed);
}

/* A paused ring is polled for room only, so no peer may see it attended. */
static weft_status_t pause_ring(struct shm_lane *lane) {
    if (shm_ring(lane)->attended) {
        attend_set(lane, false);
        barrier_for_peers();
    }
    return WEFT_OK;
}

/* Puts back all chunks in flight. */
static void reclaim_poll(struct shm_lane *lane) {
    struct ring_tx *tx = &shm_ring(lane)->tx;
    for (; tx->claims_tail != tx->claims_head; tx->claims_tail++) {
        int32_t chunk = tx->exposures[tx->claims_tail & tx->mask].chunk;
        if (chunk >= 0) weft__shm_chunk_put(lane, chunk);
    }
}

const struct shm_way weft__shm_ring_way = {.name = "ring",
                                           .activate = activate,
                                           .leave = leave_poll,
                                           .pause = pause_ring,
                                           .refresh = weft__shm_refresh,
                                           .ask = ask_for_space,
                                           .reclaim = reclaim_poll};

/*
 * Lanes by the mailbox. A message lies in the sender's pool, and one word leads the receiver to the
 * messages of all senders. So a quiet lane costs only its struct and has no shared memory of its
 * own.
 *
 * A receiver that sleeps is woken by `armed`, as with rings. A sender that sleeps for want of room
 * stores in its own memory how many messages it saw passed, and sets the receiver's `wanted`. That
 * word is in the cache line that the receiver polls anyway. Since the receiver polls it again and
 * again, only its last look before a sleep needs a fence.
 */
#include "shm.h"
#include <transports/common.h>

/* ---- sending --------------------------------------------------------------------------------- */

/* The next poll reports MAIL_LIES to the attachment. */
static int refresh(struct shm_lane *lane) {
    struct shm_mail *mail = &shm_iface(lane)->mail;
    uint32_t returned = lane->mail.tx.returned;
    int moved = mail_refresh(&lane->mail.tx, &mail->pool, weft__shm_chunk_put, lane);
    if (moved == MAIL_MOVED) shm_worked(lane, lane->mail.tx.returned - returned);
    if (UNLIKELY(moved == MAIL_LIES)) mail->due = mail->lied_to = true;
    return moved;
}

static NOINLINE weft_status_t no_room(struct shm_lane *lane) {
    shm_iface(lane)->count->shm_full++;
    shm_iface(lane)->mail.nodes_wanted = true;
    return WEFT_NO_RESOURCE;
}

static inline bool blocked(struct shm_lane *lane) {
    const struct mail_pool *pool = &shm_iface(lane)->mail.pool;
    return UNLIKELY(mail_blocked(&lane->mail.tx, pool)) &&
           (refresh(lane) != MAIL_MOVED || mail_blocked(&lane->mail.tx, pool));
}

static bool lacks_nodes(const struct shm_mail *mail) {
    return mail->pool.node.first == MAIL_NONE && mail->pool.node.fresh == mail->n_notes;
}

/* Passed nodes are better than new ones. */
static bool finds_nodes(struct shm_iface *iface) {
    struct shm_mail *mail = &iface->mail;
    for (unsigned looks = 0; looks < SHM_LOOKS && lacks_nodes(mail); looks++)
        weft__shm_refresh_next(iface);
    return !lacks_nodes(mail);
}

/* The lane is not blocked. */
static inline weft_status_t node_get(struct shm_lane *lane, uint32_t *index_p) {
    struct shm_mail *mail = &shm_iface(lane)->mail;
    if (UNLIKELY(lacks_nodes(mail)) && !finds_nodes(shm_iface(lane))) {
        size_t end = (mail->pool.node.fresh + 1) * sizeof(struct mail_node);
        weft_status_t st = weft__shm_mail_more_nodes(shm_iface(lane), end);
        if (st < 0) return st;
    }
    *index_p = mail_node_get(&mail->pool);
    return WEFT_OK;
}

static bool blocks_blocked(const struct shm_lane *lane, const struct mail_pool *pool) {
    return lane->mail.tx.n_blocks == MAIL_BLOCKS ||
           !mail_may_take(&pool->block, lane->mail.tx.n_blocks);
}

static weft_status_t block_get(struct shm_lane *lane, uint32_t *block_p) {
    struct shm_mail *mail = &shm_iface(lane)->mail;
    struct mail_pool *pool = &mail->pool;
    if (blocks_blocked(lane, pool) && (refresh(lane) != MAIL_MOVED || blocks_blocked(lane, pool)))
        return no_room(lane);
    size_t end = (size_t)(pool->block.fresh + 1) * MAIL_BLOCK;
    if (pool->block.first == MAIL_NONE && end > mail->blocks_filled) {
        weft_status_t st = weft__shm_mail_more_blocks(shm_iface(lane), end);
        if (st < 0) return st;
    }
    *block_p = mail_block_get(pool);
    return WEFT_OK;
}

/* The exchange that publishes is the fence between the message and the load of `armed`. */
static inline void send_mailbox(struct shm_lane *lane, uint32_t index, struct mail_content m) {
    mail_send(&lane->mail.tx, &shm_iface(lane)->mail.pool, index, m);
    shm_wake(lane);
}

static inline void count_mailbox(struct shm_lane *lane, size_t bytes) {
    shm_iface(lane)->count->shm_messages++;
    shm_iface(lane)->count->shm_bytes += bytes;
}

_Static_assert(MAIL_NEAR >= SHM_SHORT + sizeof(uint64_t), "any node holds what goes by am_short");
weft_status_t weft__shm_mail_am_short(struct lane *l, uint8_t id, uint64_t header, const void *data,
                                      size_t len) {
    struct shm_lane *lane = (struct shm_lane *)l;
    uint32_t index;
    if (UNLIKELY(len > SHM_SHORT)) return weft__refuse_short(l, len);
    if (blocked(lane)) return no_room(lane);
    weft_status_t st = node_get(lane, &index);
    if (UNLIKELY(st < 0)) return st;
    uint8_t *to = mail_node_at(&shm_iface(lane)->mail.pool, index)->data;
    memcpy(to, &header, sizeof header);
    ring_copy_small(to + sizeof header, data, len);
    count_mailbox(lane, len + sizeof header);
    send_mailbox(lane, index,
                 (struct mail_content){MAIL_IN_NODE, id, len + sizeof header, MAIL_NONE, -1});
    return WEFT_OK;
}

/* Sends `len` bytes of a block; by the node alone if they fit it. */
static void send_block(struct shm_lane *lane, uint32_t index, uint32_t block, uint8_t id,
                       size_t len) {
    struct mail_pool *pool = &shm_iface(lane)->mail.pool;
    const uint8_t *from = pool->blocks + (size_t)block * MAIL_BLOCK;
    count_mailbox(lane, len);
    if (len <= mail_room(pool, index)) {
        memcpy(mail_node_at(pool, index)->data, from, len);
        mail_block_put(pool, block);
        send_mailbox(lane, index, (struct mail_content){MAIL_IN_NODE, id, len, MAIL_NONE, -1});
        return;
    }
    struct mail_place place = {block * MAIL_BLOCK, (uint32_t)len};
    memcpy(mail_node_at(pool, index)->data, &place, sizeof place);
    lane->mail.tx.n_blocks++;
    lane->carried += (uint32_t)len;
    send_mailbox(lane, index, (struct mail_content){MAIL_IN_BLOCK, id, 0, block, -1});
}

/* Takes a node and a block, or neither. */
static weft_status_t both_get(struct shm_lane *lane, uint32_t *index_p, uint32_t *block_p) {
    if (blocked(lane)) return no_room(lane);
    weft_status_t st = block_get(lane, block_p);
    if (st != WEFT_OK) return st;
    st = node_get(lane, index_p);
    if (st < 0) mail_block_put(&shm_iface(lane)->mail.pool, *block_p);
    return st;
}

weft_status_t weft__shm_mail_am_bcopy(struct lane *l, uint8_t id, size_t (*pack)(void *, void *),
                                      void *arg) {
    struct shm_lane *lane = (struct shm_lane *)l;
    uint32_t index, block;
    weft_status_t st = both_get(lane, &index, &block);
    if (st != WEFT_OK) return st;
    size_t len = pack(shm_iface(lane)->mail.pool.blocks + (size_t)block * MAIL_BLOCK, arg);
    send_block(lane, index, block, id, len);
    return WEFT_OK;
}

static weft_status_t send_staged(struct shm_lane *lane, uint8_t id, const struct lane_zcopy *msg,
                                 size_t len) {
    struct shm_iface *iface = shm_iface(lane);
    uint32_t index, offset;
    weft_status_t st = node_get(lane, &index);
    if (st < 0) return st;
    int32_t chunk = weft__shm_chunk_get(lane, len, &offset);
    if (chunk < 0) {
        mail_node_put(&iface->mail.pool, index);
        return chunk < -1 ? (weft_status_t)(chunk + 1) : no_room(lane);
    }
    struct mail_place place = {offset, (uint32_t)len};
    shm_gather(iface->staging.at + place.offset, msg);
    memcpy(mail_node_at(&iface->mail.pool, index)->data, &place, sizeof place);
    lane->carried += (uint32_t)len;
    count_mailbox(lane, len);
    send_mailbox(lane, index, (struct mail_content){MAIL_IN_STAGING, id, 0, MAIL_NONE, chunk});
    return WEFT_OK;
}

weft_status_t weft__shm_mail_am_zcopy(struct lane *l, uint8_t id, const struct lane_zcopy *msg,
                                      struct completion *completion) {
    struct shm_lane *lane = (struct shm_lane *)l;
    uint32_t index, block;
    size_t len = 0;
    for (size_t i = 0; i < msg->n_iov; i++) len += msg->iov[i].len;
    if (msg->header_len > SHM_ZCOPY_HEADER || msg->n_iov > SHM_IOV ||
        len > l->iface->attr.max_zcopy)
        return weft__refuse_zcopy(l, msg, len);
    len += msg->header_len;
    if (len > l->iface->attr.max_bcopy)
        return blocked(lane) ? no_room(lane) : send_staged(lane, id, msg, len);
    weft_status_t st = both_get(lane, &index, &block);
    if (st != WEFT_OK) return st;
    shm_gather(shm_iface(lane)->mail.pool.blocks + (size_t)block * MAIL_BLOCK, msg);
    send_block(lane, index, block, id, len);
    return WEFT_OK;
}

/* ---- waiting for room ------------------------------------------------------------------------ */

static void activate(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    struct shm_mail *mail = &iface->mail;
    mail->due = true;
    if (lane->waits) return;
    uint16_t number = (uint16_t)(lane->index + 1);
    lane->waits = true;
    lane->next_waiting = 0;
    if (mail->n_waiting++)
        iface->table.lanes[mail->last_waiting - 1]->next_waiting = number;
    else
        mail->waiting = number;
    mail->last_waiting = number;
}

static void leave_mailbox(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    struct shm_mail *mail = &iface->mail;
    if (!lane->waits) return;
    uint16_t *at = &mail->waiting, before = 0;
    while (*at != lane->index + 1) {
        before = *at;
        at = &iface->table.lanes[before - 1]->next_waiting;
    }
    *at = lane->next_waiting;
    if (mail->last_waiting == lane->index + 1) mail->last_waiting = before;
    mail->n_waiting--;
    lane->waits = false;
}

/* Takes back passed nodes from all lanes: a returned node serves any lane that waits. */
static bool refresh_all(struct shm_iface *iface) {
    bool moved = false;
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (lane && shm_is_up(lane) && lane->by_mail && mail_is_due(&lane->mail.tx))
            moved |= refresh(lane) != MAIL_SAME;
    }
    return moved;
}

/* Ends the lanes whose peers claim to have passed more than they were sent. Returns how many. */
static NOINLINE unsigned end_liars(struct shm_iface *iface) {
    unsigned n = 0;
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (!lane || !shm_is_up(lane) || !lane->by_mail || refresh(lane) != MAIL_LIES) continue;
        shm_notify_failed(lane, WEFT_ERR_PROTOCOL);
        n++;
    }
    iface->mail.lied_to = false;
    return n;
}

static unsigned read_backlog(struct shm_lane *lane);

/* Retries the lanes that wait for room, and reads the backlogs of lanes that were paused. */
static unsigned retry_waiting(struct shm_iface *iface, unsigned budget) {
    struct shm_mail *mail = &iface->mail;
    unsigned n = 0;
    if (mail->nodes_wanted) {
        mail->nodes_wanted = false;
        refresh_all(iface);
    }
    for (unsigned left = mail->n_waiting; left && mail->n_waiting && n < budget; left--) {
        struct shm_lane *lane = iface->table.lanes[mail->waiting - 1];
        if (refresh(lane) == MAIL_LIES) return n + 1;
        leave_mailbox(lane);
        n += read_backlog(lane);
        if (!mail_blocked(&lane->mail.tx, &mail->pool)) n += weft__shm_retry(lane);
        if (pending_queue_waits(&lane->pending)) activate(lane);
    }
    return n;
}

static void ask_mailbox(struct shm_lane *lane) {
    struct mail_control *ours = lane->mail.ours;
    uint32_t wants = atomic_load_explicit(&ours->wants, memory_order_relaxed);
    atomic_store_explicit(&ours->seen, lane->mail.tx.returned, memory_order_relaxed);
    atomic_store_explicit(&ours->wants, wants + 1, memory_order_release);
    /* No store: of several senders that ask, the receiver sees what each has said before. */
    atomic_exchange_explicit(&shm_doorbell(lane)->wanted, 1, memory_order_release);
}

void weft__shm_mail_ask(struct shm_iface *iface) {
    if (!iface->mail.n_waiting) return;
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (lane && shm_is_up(lane) && lane->by_mail && mail_under_way(&lane->mail.tx))
            ask_mailbox(lane);
    }
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* The peer sleeps for want of room. It is woken when more is passed than it saw: now, or after
 * the next message. */
static void answer(struct shm_lane *lane) {
    lane->asked = lane->mail.consumed == lane->mail.asked_at;
    if (!lane->asked) shm_wake(lane);
}

static void answer_wanted(struct shm_iface *iface) {
    /* On x86 the exchange is a full fence. Elsewhere it is none, and the next one is needed. */
    if (!atomic_exchange(&iface->slot.doorbell->wanted, 0)) return;
    /* between the passed counts and the loads of `wants` */
    atomic_thread_fence(memory_order_seq_cst);
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (!lane || !lane->by_mail || !lane->mail.view.nodes) continue;
        const struct mail_control *theirs = lane->mail.tx.theirs;
        uint32_t wants = atomic_load_explicit(&theirs->wants, memory_order_acquire);
        if (wants == lane->mail.wants_answered) continue;
        lane->mail.wants_answered = wants;
        lane->mail.asked_at = atomic_load_explicit(&theirs->seen, memory_order_relaxed);
        answer(lane);
    }
}

static inline void passed(struct shm_lane *lane) {
    atomic_store_explicit(&lane->mail.ours->consumed, ++lane->mail.consumed, memory_order_release);
    if (UNLIKELY(lane->asked)) {
        atomic_thread_fence(memory_order_seq_cst);
        answer(lane);
    }
}

/* Messages that came for a paused lane. The sender waits when all its nodes are here. */
struct shm_backlog {
    struct shm_backlog *next;
    struct shm_lane *lane;
    bool reading;      /* a handler may be at work on one of them */
    unsigned first, n; /* of the ring `node` */
    const struct mail_node *node[MAIL_WINDOW];
};

static struct shm_backlog *backlog_of(const struct shm_lane *lane) {
    struct shm_backlog *backlog = shm_iface(lane)->mail.asides;
    while (backlog && backlog->lane != lane) backlog = backlog->next;
    return backlog;
}

static bool has_backlog(const struct shm_lane *lane) {
    const struct shm_backlog *backlog = backlog_of(lane);
    return backlog && backlog->n;
}

static bool backlog_is_due(const struct shm_iface *iface) {
    for (const struct shm_backlog *backlog = iface->mail.asides; backlog; backlog = backlog->next)
        if (backlog->n && backlog->lane->am) return true;
    return false;
}

static weft_status_t pause_mail(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    if (backlog_of(lane)) return WEFT_OK;
    struct shm_backlog *backlog = weft__new(iface, struct shm_backlog);
    if (!backlog) return WEFT_ERR_NO_MEMORY;
    backlog->lane = lane;
    backlog->next = iface->mail.asides;
    iface->mail.asides = backlog;
    return WEFT_OK;
}

static bool set_backlog(struct shm_lane *lane, const struct mail_node *node) {
    struct shm_backlog *backlog = backlog_of(lane);
    if (backlog->n == MAIL_WINDOW) {
        shm_notify_failed(lane, WEFT_ERR_PROTOCOL);
        return false;
    }
    backlog->node[(backlog->first + backlog->n++) % MAIL_WINDOW] = node;
    return true;
}

/* While a handler reads one of them, it cannot be passed: then read_backlog calls this again. */
void weft__shm_mail_unread(struct shm_lane *lane) {
    struct shm_backlog **link = &shm_iface(lane)->mail.asides;
    while (*link && (*link)->lane != lane) link = &(*link)->next;
    struct shm_backlog *backlog = *link;
    if (!backlog || backlog->reading) return;
    *link = backlog->next;
    while (backlog->n--) passed(lane);
    talloc_free(backlog);
}

/* A lane that no longer receives passes the message unread. False: the lane has failed. */
static bool read_one(struct shm_lane *lane, const struct mail_node *node) {
    struct mail_message m;
    if (mail_read(node, lane->mail.consumed, &lane->mail.view, &m) < 0) {
        if (lane->am) shm_notify_failed(lane, WEFT_ERR_PROTOCOL);
        return false;
    }
    if (lane->am) lane->am[m.id](&lane->lane, m.id, m.data, m.len);
    passed(lane);
    return true;
}

/* Reads until the lane is paused again or ends. Returns the number of messages. */
static unsigned read_backlog(struct shm_lane *lane) {
    struct shm_backlog *backlog = backlog_of(lane);
    unsigned n = 0;
    if (!backlog) return 0;
    backlog->reading = true;
    for (bool good = true; good && lane->am && backlog->n; n++) {
        backlog->n--;
        good = read_one(lane, backlog->node[backlog->first++ % MAIL_WINDOW]);
    }
    backlog->reading = false;
    if (!shm_is_up(lane)) weft__shm_mail_unread(lane);
    return n;
}

/* The message's number is not the next: earlier messages are in the backlog, or the peer lies. */
static NOINLINE bool deliver_behind(struct shm_lane *lane, const struct mail_node *node) {
    (void)read_backlog(lane);
    return lane->paused ? set_backlog(lane, node) : read_one(lane, node);
}

/* read_one for a lane that may be paused. */
static inline bool deliver_mailbox(struct shm_iface *iface, const struct mail_desc *desc) {
    struct shm_lane *lane = iface->table.lanes[desc->slot];
    struct mail_message m;
    if (UNLIKELY(mail_read(desc->node, lane->mail.consumed, &lane->mail.view, &m) < 0))
        return deliver_behind(lane, desc->node);
    if (lane->am)
        lane->am[m.id](&lane->lane, m.id, m.data, m.len);
    else if (lane->paused)
        return set_backlog(lane, desc->node);
    passed(lane);
    return true;
}

/* The writer of malformed entries is unknown, and so are the lost messages: all lanes by the
 * mailbox end. */
static void wrecked(struct shm_iface *iface) {
    weft__log_limited(
        weft__reactor_context(iface->iface.reactor), WEFT_LOG_ERROR, "shm",
        "a peer wrote malformed entries to the shared mailbox; all of its connections are closed");
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (lane && shm_is_up(lane) && lane->by_mail) shm_notify_failed(lane, WEFT_ERR_PROTOCOL);
    }
}

static int take_mailbox(struct shm_iface *iface) {
    struct shm_mail *mail = &iface->mail;
    uint64_t newest = atomic_load_explicit(&iface->slot.doorbell->mailbox, memory_order_relaxed);
    if (!newest && !mail->n_drains) return 0;
    mail->n_takes++;
    if (!newest) return 0;
    newest = atomic_exchange(&iface->slot.doorbell->mailbox, 0);
    size_t most = (size_t)mail->n_lanes * MAIL_WINDOW;
    int got = weft__mail_take(&mail->rx, newest, most);
    /* For the next time. Without memory the chain is read in parts. */
    if (UNLIKELY(mail->rx.n_rest)) (void)weft__shm_mail_descs_for(iface, most);
    return got;
}

/* ---- draining the mailbox of a peer ---------------------------------------------------------- */

/* The peer published everything before its end was received, so the next take brings the last of
 * it. */
void weft__shm_mail_drain(struct shm_lane *lane) {
    struct shm_mail *mail = &shm_iface(lane)->mail;
    mail->due = true;
    if (lane->drains) return;
    lane->drains = true;
    lane->mail.mark = mail->n_takes - (lane->emptied ? 1 : 0);
    mail->n_drains++;
}

/* All taken messages are read. True: a lane has ended, and perhaps its worker. */
static bool drained(struct shm_iface *iface) {
    struct shm_mail *mail = &iface->mail;
    for (unsigned i = 0; i <= iface->table.last_index; i++) {
        struct shm_lane *lane = iface->table.lanes[i];
        if (!lane || !lane->drains || lane->mail.mark == mail->n_takes || has_backlog(lane))
            continue;
        lane->drains = false;
        lane->emptied = true;
        mail->n_drains--;
        if (iface->events->drained(lane)) return true;
    }
    return false;
}

static void reclaim_mailbox(struct shm_lane *lane) {
    while (mail_under_way(&lane->mail.tx))
        mail_take_back(&lane->mail.tx, &shm_iface(lane)->mail.pool, weft__shm_chunk_put, lane);
}

void weft__shm_mail_forget(struct shm_lane *lane) {
    reclaim_mailbox(lane);
    shm_iface(lane)->mail.n_lanes--;
}

/* ---- the worker's part ----------------------------------------------------------------------- */

static unsigned receive_mailbox(struct shm_iface *iface, unsigned budget) {
    struct shm_mail *mail = &iface->mail;
    unsigned n = 0;
    for (;;) {
        int got = mail_next(&mail->rx);
        if (got == 0) {
            if (mail->n_drains && drained(iface)) return n + 1;
            got = n ? 0 : take_mailbox(iface);
            if (got == 0 && mail->n_drains && drained(iface)) return n + 1;
        }
        if (got == MAIL_LIES) {
            wrecked(iface);
            return n + 1;
        }
        if (got == 0 || n == budget) return n;
        n++;
        const struct mail_desc desc = mail->rx.descs[--mail->rx.n];
        if (UNLIKELY(!deliver_mailbox(iface, &desc))) return n;
    }
}

unsigned weft__shm_mail_work(struct shm_iface *iface, unsigned budget) {
    struct shm_mail *mail = &iface->mail;
    if (UNLIKELY(atomic_load_explicit(&iface->slot.doorbell->wanted, memory_order_relaxed)))
        answer_wanted(iface);
    mail->due = false;
    unsigned n = UNLIKELY(mail->lied_to) ? end_liars(iface) : 0;
    n += receive_mailbox(iface, budget);
    if (UNLIKELY(mail->n_waiting)) n += retry_waiting(iface, budget > n ? budget - n : 1);
    if (!mail_all_read(&mail->rx) || mail->n_waiting || mail->n_drains || mail->lied_to)
        mail->due = true;
    return n;
}

bool weft__shm_mail_quiet(struct shm_iface *iface) {
    struct shm_mail *mail = &iface->mail;
    if (atomic_load(&iface->slot.doorbell->mailbox) || atomic_load(&iface->slot.doorbell->wanted))
        return false;
    if (!mail_all_read(&mail->rx) || mail->n_drains || mail->lied_to || backlog_is_due(iface))
        return false;
    return !mail->n_waiting || !refresh_all(iface);
}

const struct shm_way weft__shm_mail_way = {.name = "mailbox",
                                           .activate = activate,
                                           .leave = leave_mailbox,
                                           .pause = pause_mail,
                                           .refresh = refresh,
                                           .ask = ask_mailbox,
                                           .reclaim = reclaim_mailbox};

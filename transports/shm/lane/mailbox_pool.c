/* The pool of a worker's messages by mailboxes: its memory, allocated on demand, and the
 * words of it that belong to single lanes. */
#include "shm.h"

enum { FILL_MOST = 64 * 1024, FIRST_DESCS = 16 };

static const struct mail_view *view_of(void *arg, uint32_t slot) {
    const struct shm_iface *iface = arg;
    const struct shm_lane *lane = slot < iface->table.room ? iface->table.lanes[slot] : NULL;
    return lane && lane->mail.view.nodes ? &lane->mail.view : NULL;
}

weft_status_t weft__shm_mail_open(struct shm_iface *iface) {
    struct shm_mail *mail = &iface->mail;
    size_t size = pool_size(SHM_NODES, SHM_BLOCKS, iface->staging.size);
    weft_status_t st = weft__segment_create(&mail->segment, "weft-pool", size, SEGMENT_SPARSE);
    if (st < 0) return st;
    uint8_t *at = mail->segment.at;
    iface->staging.at = at + pool_staging_at(SHM_NODES, SHM_BLOCKS);
    mail->pool = (struct mail_pool){.near = iface->slot.place.tx_slot->nodes,
                                    .nodes = (struct mail_node *)at,
                                    .n_near = SLOT_TABLE_NODES,
                                    .blocks = at + pool_blocks_at(SHM_NODES),
                                    .node = {MAIL_NONE, 0, SHM_NODES, SHM_NODES},
                                    .block = {MAIL_NONE, 0, SHM_BLOCKS, SHM_BLOCKS}};
    mail->rx = (struct mail_rx){.view = view_of, .arg = iface};
    return WEFT_OK;
}

void weft__shm_mail_close(struct shm_iface *iface) {
    weft__segment_close(&iface->mail.segment);
}

/* Makes room for the descriptors of `due` messages. A longer chain is followed once for each
 * part of it. */
weft_status_t weft__shm_mail_descs_for(struct shm_iface *iface, size_t due) {
    struct mail_rx *rx = &iface->mail.rx;
    uint32_t room = due < SHM_DESCS ? (uint32_t)due : SHM_DESCS;
    if (room <= rx->room) return WEFT_OK;
    struct mail_desc *more = weft__realloc(iface, rx->descs, room * sizeof *more, "shm descs");
    if (!more) return WEFT_ERR_NO_MEMORY;
    rx->descs = more;
    rx->room = room;
    return WEFT_OK;
}

/* Allocates a part of the pool up to `end`, by whole pages. The step grows with the part. */
static weft_status_t fill_mailbox(struct shm_mail *mail, size_t at, uint32_t *filled, size_t end) {
    if (*filled >= end) return WEFT_OK;
    size_t lacking = pool_to_page(end - *filled), step = *filled < FILL_MOST ? *filled : FILL_MOST;
    if (step < lacking) step = lacking;
    weft_status_t st = weft__segment_fill(&mail->segment, at + *filled, step);
    if (st == WEFT_OK) *filled += (uint32_t)step;
    return st;
}

static weft_status_t control_of(struct shm_iface *iface, unsigned lane,
                                struct mail_control **control_p) {
    struct shm_mail *mail = &iface->mail;
    size_t at = pool_controls_at(SHM_NODES, SHM_BLOCKS), end = (lane + 1) * sizeof **control_p;
    weft_status_t st =
        lane < SLOT_TABLE_CONTROLS ? WEFT_OK : fill_mailbox(mail, at, &mail->controls_filled, end);
    struct mail_control *far = (struct mail_control *)((uint8_t *)mail->segment.at + at);
    *control_p =
        lane < SLOT_TABLE_CONTROLS ? &iface->slot.place.tx_slot->controls[lane] : &far[lane];
    return st;
}

static const struct mail_control *control_of_peer(const struct shm_lane *lane) {
    const struct mail_view *view = &lane->mail.view;
    const struct slot_table_tx_slot *tx_slot =
        container_of(view->near, const struct slot_table_tx_slot, nodes);
    const uint8_t *far = (const uint8_t *)view->nodes +
                         pool_controls_at(view->shape->n_nodes, shm_process(lane)->n_blocks);
    unsigned number = lane->mail.tx.slot;
    return number < SLOT_TABLE_CONTROLS ? &tx_slot->controls[number]
                                        : (const struct mail_control *)(const void *)far + number;
}

/*
 * A number that no other lane of this worker has had for long. A peer that accepted a lane may
 * learn late that its dialer gave it up, and another lane may have its place by then. The number
 * keeps the peer from taking the other's `open` for its own.
 */
static uint32_t next_opening(struct shm_mail *mail) {
    if (++mail->last_opening == MAIL_ENDED) mail->last_opening = 1;
    return mail->last_opening;
}

weft_status_t weft__shm_mail_offer(struct shm_lane *lane) {
    struct mail_control *ours;
    weft_status_t st = control_of(shm_iface(lane), lane->index, &ours);
    if (st < 0) return st;
    lane->mail.ours = ours;
    lane->more->opening = next_opening(&shm_iface(lane)->mail);
    atomic_store_explicit(&ours->open, 0, memory_order_relaxed);
    atomic_store_explicit(&ours->consumed, 0, memory_order_relaxed);
    atomic_store_explicit(&ours->wants, 0, memory_order_relaxed);
    atomic_store_explicit(&ours->seen, 0, memory_order_relaxed);
    return WEFT_OK;
}

weft_status_t weft__shm_mail_begin(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    weft_status_t st = weft__shm_mail_descs_for(iface, FIRST_DESCS);
    if (st < 0) return st;
    lane->mail.tx.first = MAIL_NONE;
    lane->mail.tx.theirs = control_of_peer(lane);
    lane->by_mail = true;
    iface->mail.n_lanes++;
    atomic_store(&lane->mail.ours->open, lane->more->opening);
    return WEFT_OK;
}

/* Allocates nodes, and notes on them. The nodes of the tx slot have memory already. */
weft_status_t weft__shm_mail_more_nodes(struct shm_iface *iface, size_t end) {
    struct shm_mail *mail = &iface->mail;
    weft_status_t st = mail->n_notes < SLOT_TABLE_NODES
                           ? WEFT_OK
                           : fill_mailbox(mail, 0, &mail->nodes_filled, end);
    if (st < 0) return st;
    uint32_t n = mail->n_notes < SLOT_TABLE_NODES ? SLOT_TABLE_NODES
                                                  : mail->nodes_filled / sizeof(struct mail_node);
    struct mail_note *more = weft__realloc(iface, mail->pool.notes, n * sizeof *more, "shm notes");
    if (!more) return WEFT_ERR_NO_MEMORY;
    mail->pool.notes = more;
    mail->n_notes = n;
    return WEFT_OK;
}

/* Allocated late: many workers never send a message of this length. */
weft_status_t weft__shm_mail_more_blocks(struct shm_iface *iface, size_t end) {
    struct shm_mail *mail = &iface->mail;
    struct mail_pool *pool = &mail->pool;
    if (!pool->next_block)
        pool->next_block = weft__alloc(iface, SHM_BLOCKS * sizeof *pool->next_block, "shm blocks");
    if (!pool->next_block) return WEFT_ERR_NO_MEMORY;
    return fill_mailbox(mail, pool_blocks_at(SHM_NODES), &mail->blocks_filled, end);
}

/*
 * The slot table of a process: one slot for each of its workers. A slot has a doorbell and a copy
 * control block, which peers may write, and a tx slot, which they may only read. All slots lie in
 * two segments, so a link to a second worker of the process maps nothing more.
 *
 * A slot is used again only when no peer can take it for its last owner's. Otherwise a late look at
 * an old tx slot would find another worker's nodes, and a late wake-up would clear its `armed`.
 */
#ifndef WEFT_TRANSPORTS_SHM_QUEUES_SLOT_TABLE_H
#define WEFT_TRANSPORTS_SHM_QUEUES_SLOT_TABLE_H

#include "copy_ctl.h"
#include "mailbox.h"
#include <transports/shm/memory/doorbell.h>
#include <transports/shm/memory/segment.h>
#include <transports/shm/wire/wire.h>

enum { SLOT_TABLE_PLACES = SHM_SLOTS, SLOT_TABLE_CONTROLS = 1, SLOT_TABLE_NODES = 2 };

/* A worker's first control and nodes. A quiet link touches no others; those lie in its pool
 * (pool.h). */
struct slot_table_tx_slot {
    struct mail_control controls[SLOT_TABLE_CONTROLS];
    struct mail_near nodes[SLOT_TABLE_NODES];
};
_Static_assert(sizeof(struct doorbell) == 64, "what many peers write fills a line");
_Static_assert(sizeof(struct slot_table_tx_slot) == 160,
               "what its owner alone writes stands close");

enum {
    SLOT_TABLE_COPY_CTLS_AT =
        /* behind all doorbells: few workers ever need one */
    SLOT_TABLE_PLACES * sizeof(struct doorbell),
    SLOT_TABLE_DOORBELLS_SIZE =
        SLOT_TABLE_COPY_CTLS_AT + SLOT_TABLE_PLACES * sizeof(struct split_copy_ctl),
    SLOT_TABLE_TX_SLOTS_SIZE = SLOT_TABLE_PLACES * sizeof(struct slot_table_tx_slot) +
                               4096 /* a node's length behind the last near node (mailbox.h) */
};

struct slot_table {
    struct slot_table *next;
    struct segment doorbells, tx_slots;
    size_t doorbells_filled, tx_slots_filled; /* bytes with memory behind them */
    unsigned n_used;
    bool taken[SLOT_TABLE_PLACES];
};

struct slot_table_place {
    struct slot_table *slot_table; /* NULL: none */
    uint32_t index;
    struct doorbell *doorbell;
    struct slot_table_tx_slot *tx_slot;
    struct split_copy_ctl *copy_ctl; /* NULL: not needed yet */
};

/* Takes a free slot and fills it with zeros. */
weft_status_t weft__slot_table_take(struct slot_table_place *place);
/* The slot's copy control block, made with zeros at the first call. NULL: no memory. */
struct split_copy_ctl *weft__slot_table_copy_ctl(struct slot_table_place *place);
/* `clean`: no peer knows the slot any more. Otherwise it stays unused until its table ends. */
void weft__slot_table_give(struct slot_table_place *place, bool clean);

#endif

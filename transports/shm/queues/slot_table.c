/* Gives the workers of this process their slots, and uses a slot again only when no peer can
 * mistake it. */
#include "slot_table.h"
#include "pool.h"
#include <reactor/reactor.h>
#include <string.h>
#include <transports/shm/memory/process_globals.h>

static weft_status_t slot_table_make(struct process_globals *process_globals,
                                     struct slot_table **slot_table_p) {
    struct slot_table *slot_table = weft__new(NULL, struct slot_table);
    if (!slot_table) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__segment_create(&slot_table->doorbells, "weft-doorbells",
                                            SLOT_TABLE_DOORBELLS_SIZE, SEGMENT_COMMON);
    if (st == WEFT_OK) {
        st = weft__segment_create(&slot_table->tx_slots, "weft-tx-slots", SLOT_TABLE_TX_SLOTS_SIZE,
                                  SEGMENT_SPARSE);
        if (st < 0) weft__segment_close(&slot_table->doorbells);
    }
    if (st < 0) {
        talloc_free(slot_table);
        return st;
    }
    slot_table->next = process_globals->slot_tables;
    process_globals->slot_tables = *slot_table_p = slot_table;
    return WEFT_OK;
}

/* A peer that still maps the table's memory keeps it. */
static void slot_table_end(struct process_globals *process_globals, struct slot_table *slot_table) {
    struct slot_table **at = &process_globals->slot_tables;
    /* the child of a fork does not find its parent's */
    while (*at && *at != slot_table) at = &(*at)->next;
    if (*at) *at = slot_table->next;
    weft__segment_close(&slot_table->doorbells);
    weft__segment_close(&slot_table->tx_slots);
    talloc_free(slot_table);
}

static weft_status_t fill_slots(struct segment *segment, size_t *filled, size_t end) {
    if (*filled >= end) return WEFT_OK;
    end = pool_to_page(end);
    weft_status_t st = weft__segment_fill(segment, *filled, end - *filled);
    if (st == WEFT_OK) *filled = end;
    return st;
}

static weft_status_t expose_slots(struct slot_table *slot_table, uint32_t index,
                                  struct slot_table_place *place) {
    weft_status_t st = fill_slots(&slot_table->doorbells, &slot_table->doorbells_filled,
                                  (index + 1) * sizeof *place->doorbell);
    if (st == WEFT_OK)
        st = fill_slots(&slot_table->tx_slots, &slot_table->tx_slots_filled,
                        (index + 1) * sizeof *place->tx_slot);
    if (st < 0) return st;
    *place = (struct slot_table_place){
        slot_table, index, (struct doorbell *)slot_table->doorbells.at + index,
        (struct slot_table_tx_slot *)slot_table->tx_slots.at + index, NULL};
    memset(place->doorbell, 0, sizeof *place->doorbell);
    memset(place->tx_slot, 0, sizeof *place->tx_slot);
    slot_table->taken[index] = true;
    slot_table->n_used++;
    return WEFT_OK;
}

/* The lowest free slot, so that few pages are in use. */
static uint32_t first_free(const struct slot_table *slot_table) {
    const bool *free = memchr(slot_table->taken, false, sizeof slot_table->taken);
    return free ? (uint32_t)(free - slot_table->taken) : SLOT_TABLE_PLACES;
}

weft_status_t weft__slot_table_take(struct slot_table_place *place) {
    struct process_globals *process_globals = weft__process_globals_enter();
    struct slot_table *slot_table = process_globals->slot_tables;
    weft_status_t st = WEFT_OK;
    while (slot_table && first_free(slot_table) == SLOT_TABLE_PLACES) slot_table = slot_table->next;
    if (!slot_table) st = slot_table_make(process_globals, &slot_table);
    if (st == WEFT_OK) {
        st = expose_slots(slot_table, first_free(slot_table), place);
        if (slot_table->n_used == 0) slot_table_end(process_globals, slot_table);
    }
    weft__process_globals_leave();
    return st;
}

static struct split_copy_ctl *copy_ctl_of(struct slot_table *slot_table, uint32_t index) {
    size_t from = SLOT_TABLE_COPY_CTLS_AT + index * sizeof(struct split_copy_ctl);
    if (weft__segment_fill(&slot_table->doorbells, from, sizeof(struct split_copy_ctl)) < 0)
        return NULL;
    struct split_copy_ctl *copy_ctl =
        (struct split_copy_ctl *)(void *)((char *)slot_table->doorbells.at + from);
    memset(copy_ctl, 0, sizeof *copy_ctl);
    return copy_ctl;
}

struct split_copy_ctl *weft__slot_table_copy_ctl(struct slot_table_place *place) {
    if (!place->copy_ctl) place->copy_ctl = copy_ctl_of(place->slot_table, place->index);
    return place->copy_ctl;
}

void weft__slot_table_give(struct slot_table_place *place, bool clean) {
    struct slot_table *slot_table = place->slot_table;
    if (!slot_table) return;
    struct process_globals *process_globals = weft__process_globals_enter();
    if (clean) slot_table->taken[place->index] = false;
    if (--slot_table->n_used == 0) slot_table_end(process_globals, slot_table);
    weft__process_globals_leave();
    *place = (struct slot_table_place){0};
}

#include "hall.h"
#include "commons.h"
#include "pool.h"
#include <reactor/reactor.h>
#include <string.h>

static weft_status_t hall_make(struct commons *commons, struct hall **hall_p) {
    struct hall *hall = weft__new(NULL, struct hall);
    if (!hall) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__segment_create(&hall->bells, "weft-bells", HALL_BELLS_SIZE, SEGMENT_COMMON);
    if (st == WEFT_OK) {
        st = weft__segment_create(&hall->shelves, "weft-shelves", HALL_SHELVES_SIZE, SEGMENT_SPARSE);
        if (st < 0) weft__segment_close(&hall->bells);
    }
    if (st < 0) {
        talloc_free(hall);
        return st;
    }
    hall->next = commons->halls;
    commons->halls = *hall_p = hall;
    return WEFT_OK;
}

/* Peers that still have it mapped keep its memory, and we what is ours of it. */
static void hall_end(struct commons *commons, struct hall *hall) {
    struct hall **at = &commons->halls;
    while (*at && *at != hall) at = &(*at)->next; /* a fork's child does not find its parent's */
    if (*at) *at = hall->next;
    weft__segment_close(&hall->bells);
    weft__segment_close(&hall->shelves);
    talloc_free(hall);
}

static weft_status_t fill(struct segment *segment, size_t *filled, size_t end) {
    if (*filled >= end) return WEFT_OK;
    end = pool_to_page(end);
    weft_status_t st = weft__segment_fill(segment, *filled, end - *filled);
    if (st == WEFT_OK) *filled = end;
    return st;
}

static weft_status_t lend(struct hall *hall, uint32_t index, struct hall_place *place) {
    weft_status_t st = fill(&hall->bells, &hall->bells_filled, (index + 1) * sizeof *place->bell);
    if (st == WEFT_OK) st = fill(&hall->shelves, &hall->shelves_filled, (index + 1) * sizeof *place->shelf);
    if (st < 0) return st;
    *place = (struct hall_place){hall, index, (struct doorbell *)hall->bells.at + index,
                                 (struct hall_shelf *)hall->shelves.at + index, NULL};
    memset(place->bell, 0, sizeof *place->bell);
    memset(place->shelf, 0, sizeof *place->shelf);
    hall->taken[index] = true;
    hall->n_used++;
    return WEFT_OK;
}

/* The lowest, so that the pages in use are few. */
static uint32_t first_free(const struct hall *hall) {
    const bool *free = memchr(hall->taken, false, sizeof hall->taken);
    return free ? (uint32_t)(free - hall->taken) : HALL_PLACES;
}

weft_status_t weft__hall_take(struct hall_place *place) {
    struct commons *commons = weft__commons_enter();
    struct hall *hall = commons->halls;
    weft_status_t st = WEFT_OK;
    while (hall && first_free(hall) == HALL_PLACES) hall = hall->next;
    if (!hall) st = hall_make(commons, &hall);
    if (st == WEFT_OK) {
        st = lend(hall, first_free(hall), place);
        if (hall->n_used == 0) hall_end(commons, hall);
    }
    weft__commons_leave();
    return st;
}

static struct joint_board *board_of(struct hall *hall, uint32_t index) {
    size_t from = HALL_BOARDS_AT + index * sizeof(struct joint_board);
    if (weft__segment_fill(&hall->bells, from, sizeof(struct joint_board)) < 0) return NULL;
    struct joint_board *board = (struct joint_board *)(void *)((char *)hall->bells.at + from);
    memset(board, 0, sizeof *board);
    return board;
}

struct joint_board *weft__hall_board(struct hall_place *place) {
    if (!place->board) place->board = board_of(place->hall, place->index);
    return place->board;
}

void weft__hall_give(struct hall_place *place, bool clean) {
    struct hall *hall = place->hall;
    if (!hall) return;
    struct commons *commons = weft__commons_enter();
    if (clean) hall->taken[place->index] = false;
    if (--hall->n_used == 0) hall_end(commons, hall);
    weft__commons_leave();
    *place = (struct hall_place){0};
}

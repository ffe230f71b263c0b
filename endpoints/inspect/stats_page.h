/*
 * The statistics page of a worker: a memfd that other processes of the same user find through
 * /proc/PID/fd and map for reading. The worker's counters are in the page, so a reader costs the
 * worker nothing. The table of links is written when the state of a link changes, never per
 * message. The page ends with the worker, and "worker.stats_page" turns it off.
 *
 * Only the worker's thread writes. Readers copy the page (weft__stats_copy), decode the copy, and
 * check every value.
 */
#ifndef WEFT_ENDPOINTS_INSPECT_STATS_PAGE_H
#define WEFT_ENDPOINTS_INSPECT_STATS_PAGE_H

#include <base/counters.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVE_NAME  "weft-live"
#define LIVE_MAGIC "weftlive"
enum {
    LIVE_VERSION = 3,
    LIVE_LINKS = 64,     /* rows: of the first links; a promoted link takes the row of another */
    LIVE_NUMBER = 4096,  /* the most counters, and the most rows, that a reader accepts */
    LIVE_MOST = 1 << 20, /* the most bytes that a reader maps */
    LIVE_STRING = 16,
    LIVE_WHERE = 64,
    LIVE_RESOURCES = 16, /* associations with rows */
    LIVE_RESOURCE = 96,
    LIVE_LATE = 8 /* collectives with lines */
};

/* Offsets count from the start. Numbers have the byte order of the machine. `version` grows with
 * every change. */
struct stats_head {
    char magic[8];
    uint32_t version, size; /* of the page */
    uint64_t worker;
    int32_t pid; /* in the worker's own pid namespace */
    uint32_t n_counters, counters_at;
    uint32_t names_at, names_len; /* names of counters, each with its final 0 */
    uint32_t n_rows, rows_at, row_size;
    _Atomic uint32_t n_links;              /* all links, also those without a row */
    _Atomic uint32_t n_promoted, capacity; /* 0 and 0: links are not switched */
    uint32_t standby;
    char name[32], transports[64];
    /* what is associated with this worker, a line each, as text; "": no more */
    char resource[LIVE_RESOURCES][LIVE_RESOURCE];
    /* collectives that wait for late members: since when, in ns of CLOCK_MONOTONIC, and a line
     * each; "": no more */
    uint64_t late_since[LIVE_LATE];
    char late[LIVE_LATE][LIVE_RESOURCE];
};

enum {
    LIVE_USED = 1,
    LIVE_DIALED = 2,
    LIVE_PROMOTED = 4,
    LIVE_SCARCE = 8 /* the lane in use */,
    LIVE_TORN = 16
};

struct stats_row {
    _Atomic uint32_t sequence; /* odd while the row is written */
    uint32_t flags;
    uint64_t peer;           /* the peer's worker id; 0: not known */
    uint64_t score;          /* units a second (usage.h) */
    uint64_t sent, received; /* messages, when it was written: */
    uint64_t written;        /* ns of CLOCK_MONOTONIC */
    _Atomic uint32_t n_endpoints;
    uint32_t n_lanes;
    /* of the lane in use */
    char transport[LIVE_STRING];
    /* states of its machines; "": none */
    char link[LIVE_STRING], negotiation[LIVE_STRING], switching[LIVE_STRING];
    /* the address of the peer, as text */
    char where[LIVE_WHERE];
};

/* ---- reading */

/* Copies a page of `len` bytes to `to`. A row that changed during the copy gets LIVE_TORN.
 * Returns false if it is no statistics page. */
bool weft__stats_copy(const void *page, size_t len, void *to);

struct stats_view {
    const struct stats_head *head;
    const char *bytes;
};
/* Decodes a copy, aligned to 8. False if an offset is outside the copy. */
bool weft__stats_read(const void *bytes, size_t len, struct stats_view *view);
/* By index from 0; false past the last. Strings end within their fields. */
bool weft__stats_counter(const struct stats_view *view, uint32_t index, const char **name_p,
                         uint64_t *value_p);
bool weft__stats_row(const struct stats_view *view, uint32_t index, struct stats_row *row_p);

/* ---- properties of a link, also for weft_ep_describe */

struct link;

uint64_t weft__link_score(const struct link *link);
/* True if the lane in use is scarce. */
bool weft__link_is_fast(const struct link *link);
/* States of its machines; "": none. */
const char *weft__link_negotiation(const struct link *link);
const char *weft__link_switching(const struct link *link);

/* ---- writing, by the worker */

struct weft_worker;
struct live;

/* If memory or the fd is missing, the worker continues without a page. */
void weft__stats_open(struct weft_worker *worker);
/* Call it after the transports are open. */
void weft__stats_transports(struct weft_worker *worker);
void weft__stats_end(struct weft_worker *worker);
/* Line `index` of what is associated with the worker; NULL: no more. */
void weft__stats_resource(struct weft_worker *worker, uint32_t index, const char *line);
/* Line `index` of the collectives that wait for late members; NULL: no more. */
void weft__stats_late(struct weft_worker *worker, uint32_t index, uint64_t since, const char *line);
/* Writes the row of a link whose state changed. */
void weft__stats_note(struct link *link);
/* Writes new scores of the tracked links. */
void weft__stats_scores(struct weft_worker *worker);
void weft__stats_forget(struct link *link);
/* The number of its endpoints changed. */
void weft__stats_endpoints(struct link *link);

#endif

/*
 * A worker as seen from outside: a page in a memfd that other processes of the same user find through /proc/PID/fd and map to
 * read. The worker's counters live in it, so that being looked at costs it nothing; a table of its links is written when something
 * seldom happens to one, never with a message. Nothing is on disk, and the page goes with the worker. "worker.live" turns it off.
 *
 * Writers are one: the worker's thread. Readers copy (weft__live_copy), then decode the copy, and believe nothing that it says.
 */
#ifndef WEFT_ENDPOINTS_LIVE_H
#define WEFT_ENDPOINTS_LIVE_H

#include <reactor/counters.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVE_NAME  "weft-live"
#define LIVE_MAGIC "weftlive"
enum {
    LIVE_VERSION = 1,
    LIVE_LINKS = 64,     /* rows: those that are promoted, or carry most, if there are more links */
    LIVE_NUMBER = 4096,  /* of counters, and of rows, that a reader believes in */
    LIVE_MOST = 1 << 20, /* bytes that a reader looks at */
    LIVE_STRING = 16,
    LIVE_WHERE = 64
};

/* Offsets are from the begin. All numbers are the machine's own; `version` tells of any change. */
struct live_head {
    char magic[8];
    uint32_t version, size; /* of it all */
    uint64_t worker;
    int32_t pid; /* as the worker's own process knows it */
    uint32_t n_counters, counters_at;
    uint32_t names_at, names_len; /* of counters: each with its 0 */
    uint32_t n_rows, rows_at, row_size;
    _Atomic uint32_t n_links;              /* all, also those without a row */
    _Atomic uint32_t n_promoted, capacity; /* 0 and 0: links are not switched */
    uint32_t spare;
    char name[32], transports[64];
};

enum { LIVE_USED = 1, LIVE_DIALED = 2, LIVE_PROMOTED = 4, LIVE_SCARCE = 8 /* the lane in use */, LIVE_TORN = 16 };

struct live_row {
    _Atomic uint32_t sequence; /* odd while it is written */
    uint32_t flags;
    uint64_t peer;           /* its worker; 0: not known */
    uint64_t score;          /* units a second (usage.h) */
    uint64_t sent, received; /* messages, when it was written: */
    uint64_t written;        /* ns of CLOCK_MONOTONIC */
    _Atomic uint32_t n_endpoints;
    uint32_t n_lanes;
    char transport[LIVE_STRING];                                              /* of the lane in use */
    char link[LIVE_STRING], negotiation[LIVE_STRING], switching[LIVE_STRING]; /* states of its machines; "": none */
    char where[LIVE_WHERE];                                                   /* the peer, for people */
};

/* ---- reading */

/* A page of `len` bytes to `to`, word by word and each row whole (or LIVE_TORN). False: it is no such page. */
bool weft__live_copy(const void *page, size_t len, void *to);

struct live_view {
    const struct live_head *head;
    const char *bytes;
};
/* Of a copy, aligned to 8: false unless all that it names is in it. */
bool weft__live_read(const void *bytes, size_t len, struct live_view *view);
/* Number `index`, from 0; false past the last. Strings end within their fields. */
bool weft__live_counter(const struct live_view *view, uint32_t index, const char **name_p, uint64_t *value_p);
bool weft__live_row(const struct live_view *view, uint32_t index, struct live_row *row_p);

/* ---- what is said of a link here, and by weft_ep_describe */

struct link;

uint64_t weft__link_score(const struct link *link);
/* The lane in use is one of a scarce kind. */
bool weft__link_is_fast(const struct link *link);
/* States of its machines; "": there is none. */
const char *weft__link_negotiation(const struct link *link);
const char *weft__link_switching(const struct link *link);

/* ---- writing, by the worker */

struct weft_worker;
struct live;

/* Without the memory or the fd for it there is none, and the worker goes on. */
void weft__live_open(struct weft_worker *worker);
/* After its transports are open. */
void weft__live_transports(struct weft_worker *worker);
void weft__live_end(struct weft_worker *worker);
/* Something seldom happened to the link. */
void weft__live_note(struct link *link);
/* The scores of those that are noted are known anew. */
void weft__live_scores(struct weft_worker *worker);
void weft__live_forget(struct link *link);
/* Another endpoint joined it, or left. */
void weft__live_endpoints(struct link *link);

#endif

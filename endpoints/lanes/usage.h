/*
 * The usage tracker finds the few links that carry enough to deserve a scarce lane. It has no clock
 * and no reactor: callers pass the time. It allocates all memory when it is made.
 *
 * It works in two stages. Links that work are noted in a short list; the least recently used one is
 * dropped. Once a tick all noted links are scored: score = decay * score + (1 - decay) * (units /
 * time). A unit is a byte, and a message weighs `message` bytes. Links with a score stay in a table
 * at least until the next tick.
 *
 * A tick promotes the best links, at most `capacity`, whose score is at least `floor`. The score of
 * an incumbent counts `factor` times. A link below floor / factor is demoted in any case. If slots
 * are free, a link that has already carried enough is promoted before the tick.
 */
#ifndef WEFT_ENDPOINTS_LANES_USAGE_H
#define WEFT_ENDPOINTS_LANES_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct usage;

/* Zero stands for the default in all but `capacity`. */
struct usage_params {
    uint64_t tick;  /* ns from one scoring to the next; 100 ms */
    uint32_t decay; /* percent of a score that a tick leaves, below 100; 80 */
    /* percent of an incumbent's score that a challenger must beat, above 100; 200 */
    uint32_t factor;
    uint32_t recent;   /* links noted between two ticks that have no score yet; 64 */
    uint32_t capacity; /* links promoted at once, at most */
    uint64_t message;  /* bytes that a message weighs, whatever its length; 4096 */
    uint64_t floor;    /* units a second below which nothing is promoted; 4 MiB */
};

/* Called within weft__usage_tick and weft__usage_early only. They may call all functions but
 * these two. */
struct usage_hooks {
    /* Whether the link takes part now. NULL: all do. */
    bool (*eligible)(void *key, void *arg);
    /* True: promoted until demoted, released or forgotten. False: not now; called again at the
     * next tick. */
    bool (*promote)(void *key, uint64_t score, void *arg);
    /* The link is not promoted any more. A tick demotes before it promotes. */
    void (*demote)(void *key, uint64_t score, void *arg);
    void *arg;
};

/* One talloc child of `parent`; talloc_free ends it. NULL: no memory. Without hooks nothing is
 * promoted. */
struct usage *weft__usage_new(const void *parent, const struct usage_params *params,
                              const struct usage_hooks *hooks, uint64_t now);

enum usage_need {
    USAGE_NOTHING,
    USAGE_TICK, /* call weft__usage_tick at weft__usage_due */
    /* a slot is free, and the tick would promote the link in any case: call weft__usage_early.
     * Returned once between two ticks. */
    USAGE_EARLY
};
/* Reports what the link carried since the last call. */
enum usage_need weft__usage_touch(struct usage *u, void *key, uint64_t messages, uint64_t bytes);
/* Promotes the links of USAGE_EARLY while slots are free. */
void weft__usage_early(struct usage *u);
/* Scores and decides. False: no further tick is needed before the next touch. */
bool weft__usage_tick(struct usage *u, uint64_t now);
/* When the next tick is due: one tick after the last, or at once if that time is over. */
uint64_t weft__usage_due(const struct usage *u);

/* The view of the peer: a lower bound of the score until the next call. 0: none. Notes the link. */
void weft__usage_min_score(struct usage *u, void *key, uint64_t score);
/* Ends a promotion outside a tick: denied, or lost. Calls no hook. The score stays. */
void weft__usage_release(struct usage *u, void *key);
/* Promotes a link outside a tick: granted to the peer. It is demoted as others are. False: the
 * capacity is used up. */
bool weft__usage_adopt(struct usage *u, void *key);
/* The link is gone, and its key may be reused. Calls no hook. */
void weft__usage_forget(struct usage *u, void *key);

/* The score of the last tick or weft__usage_early. 0: not noted. */
uint64_t weft__usage_score(const struct usage *u, const void *key);
/* The same without the view of the peer: what is sent to the peer. */
uint64_t weft__usage_seen(const struct usage *u, const void *key);
bool weft__usage_noted(const struct usage *u, const void *key);
bool weft__usage_promoted(const struct usage *u, const void *key);
/* Whether the score of a challenger beats an incumbent by the factor. */
bool weft__usage_outscores(const struct usage *u, uint64_t challenger, uint64_t incumbent);
/* Iterates over the noted links: `at` begins at 0. NULL at the end. */
void *weft__usage_next(const struct usage *u, uint32_t *at);
uint32_t weft__usage_n_promoted(const struct usage *u);
uint32_t weft__usage_places(const struct usage *u); /* the capacity */
/* Bytes of memory. */
size_t weft__usage_size(const struct usage *u);

#endif

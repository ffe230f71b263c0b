/*
 * The usage tracker: which few of many links carry so much that they are worth a scarce lane. It knows neither clock nor
 * reactor; time is told. All its memory is taken when it is made, and its size depends on `params` alone.
 *
 * Two stages. Links that work are noted in a short list of those used recently; what nobody touched for long falls out of
 * it. Once a tick all noted are scored: score = decay * score + (1 - decay) * (what it carried / time), so that a score is a
 * rate, in units a second; one unit is a byte, and a message weighs as many as `message`. Links with a score are kept in a
 * table, where nothing pushes them out before the next tick.
 *
 * A tick promotes the best links, `capacity` at most, that carry `floor` at least; an incumbent counts `factor` times its score,
 * which is one order of all and therefore transitive. One that falls below floor / factor is demoted, whoever waits. Where
 * places are free, a link that has carried enough already does not wait for the tick.
 */
#ifndef WEFT_ENDPOINTS_USAGE_H
#define WEFT_ENDPOINTS_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct usage;

/* Zero stands for the default in all but `capacity`. */
struct usage_params {
    uint64_t tick;     /* ns from one scoring to the next; 100 ms */
    uint32_t decay;    /* percent of a score that a tick leaves, below 100; 80 */
    uint32_t factor;   /* percent of an incumbent's score that a challenger must beat, above 100; 200 */
    uint32_t recent;   /* links noted between two ticks that have no score yet; 64 */
    uint32_t capacity; /* links promoted at once, at most */
    uint64_t message;  /* bytes that a message weighs, whatever its length; 4096 */
    uint64_t floor;    /* units a second below which nothing is promoted; 4 MiB */
};

/* Called within weft__usage_tick and weft__usage_early only, and may call all of the below but these two. */
struct usage_hooks {
    /* May it be asked at all now? One that may not (its peer is too old, or denied it lately) takes no part. NULL: all may. */
    bool (*eligible)(void *key, void *arg);
    /* True: it counts as promoted until it is demoted, released or forgotten. False: not now; asked again at the next tick. */
    bool (*promote)(void *key, uint64_t score, void *arg);
    /* It is not promoted any more. A tick demotes before it promotes. */
    void (*demote)(void *key, uint64_t score, void *arg);
    void *arg;
};

/* A talloc child of `parent`, the size of it all; talloc_free ends it. NULL: no memory. Without hooks (NULL) nothing is promoted. */
struct usage *weft__usage_new(const void *parent, const struct usage_params *params,
                              const struct usage_hooks *hooks, uint64_t now);

enum usage_need {
    USAGE_NOTHING,
    USAGE_TICK, /* it carried so much that a tick should come, at weft__usage_due */
    USAGE_EARLY /* … that the tick will find it at the floor, whatever comes until then, and a place is free: weft__usage_early
                 * need not wait. Told once between two ticks. */
};
/* The link carried so much since it was touched last. */
enum usage_need weft__usage_touch(struct usage *u, void *key, uint64_t messages, uint64_t bytes);
/* Promotes those, while places are free. */
void weft__usage_early(struct usage *u);
/* Scores and decides. True: there is something that the next tick may change; otherwise none is needed before a touch. */
bool weft__usage_tick(struct usage *u, uint64_t now);
/* When the next tick is due: one after the last, or at once when that is over. */
uint64_t weft__usage_due(const struct usage *u);

/* The peer's view: whatever is seen here, the score is not less than this until it is told anew; 0: no more. A link that is not
 * noted is noted. */
void weft__usage_min_score(struct usage *u, void *key, uint64_t score);
/* The link is not promoted any more, and not by a tick: denied, or lost. No hook is called. Its score stays. */
void weft__usage_release(struct usage *u, void *key);
/* The link is promoted, and not by a tick: granted to its peer. It is kept and demoted as others are. False: params.capacity
 * of others are promoted already. */
bool weft__usage_adopt(struct usage *u, void *key);
/* The link is gone: its key will not be seen again, or means another. No hook is called. */
void weft__usage_forget(struct usage *u, void *key);

/* 0: not noted. As of the last tick, or of weft__usage_early. */
uint64_t weft__usage_score(const struct usage *u, const void *key);
/* The same without the peer's view: what the peer is told. */
uint64_t weft__usage_seen(const struct usage *u, const void *key);
bool weft__usage_noted(const struct usage *u, const void *key);
bool weft__usage_promoted(const struct usage *u, const void *key);
/* Does a challenger's score beat an incumbent's by the factor? */
bool weft__usage_beats(const struct usage *u, uint64_t challenger, uint64_t incumbent);
/* All that are noted, in no order: `at` is 0 at first; NULL at the end. */
void *weft__usage_next(const struct usage *u, uint32_t *at);
uint32_t weft__usage_n_promoted(const struct usage *u);
uint32_t weft__usage_places(const struct usage *u); /* the capacity */
/* Bytes that it takes in all. */
size_t weft__usage_size(const struct usage *u);

#endif

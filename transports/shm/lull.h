/*
 * When to look for an answer. A look that finds nothing takes the slot's line from the peer's core, which has to fetch it back before
 * it can write there: that and the way of the line are two waits, one after the other. So who has sent something lets the ring be
 * until shortly before an answer can be there, and meanwhile the line lies where it will be written.
 *
 * How long that is, is learned from the answers, in ticks (weft__ticks). One that came just after the first look makes the lull
 * longer; one that was there at the first look a little shorter, since it may have lain there; one that came some looks later a
 * little longer. Now and then the first look comes early: an answer that is there says that they do not come evenly, and the lull is
 * halved, as it is when more comes than one answer. Where nothing answers, or late, or before the next look anyway, there is none.
 */
#ifndef WEFT_TRANSPORTS_SHM_LULL_H
#define WEFT_TRANSPORTS_SHM_LULL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LULL_MOST = 2048, /* ticks: what comes unasked waits so long, at most */
    LULL_LEAST = 64,  /* that make a difference */
    LULL_SOON = 24,   /* fruitless looks until the answer: they were what delayed it */
    LULL_NEAR = 256,  /* with more, a wait more or less is nothing to it */
    LULL_UP = 24,     /* ticks more, for an answer that was soon there */
    LULL_CREEP = 2,   /* … near */
    LULL_DOWN = 256,  /* a part less, for one that was there at the first look */
    LULL_FAR = 32,    /* … that was not near */
    LULL_TRIALS = 32, /* answers from one trial to the next, */
    LULL_EARLY = 4    /* which looks at this part of the time */
};

struct lull {
    uint64_t sent;    /* messages in all, when the ring was looked at last: more than these begin a lull */
    uint64_t until;   /* its end; 0: it has not begun */
    uint32_t length;  /* ticks */
    uint32_t looks;   /* 1 + the fruitless ones when it ended; 0: no answer is due */
    uint32_t answers; /* so far */
};

/* It is worth the while. */
static inline bool lull_is_kept(const struct lull *lull) {
    return lull->length >= LULL_LEAST;
}

static inline bool lull_is_trial(const struct lull *lull) {
    return lull->answers % LULL_TRIALS == 0;
}

/* Something was sent since the last look. True: the ring is not to be looked at now. */
static inline bool lull_holds(struct lull *lull, uint64_t now) {
    if (!lull->until) lull->until = now + (lull_is_trial(lull) ? lull->length / LULL_EARLY : lull->length);
    return now < lull->until;
}

/* The ring is looked at now; `sent` messages in all, and `looks` were fruitless since one came. */
static inline void lull_end(struct lull *lull, uint64_t sent, uint32_t looks) {
    if (sent != lull->sent) lull->looks = looks + 1;
    lull->until = 0;
    lull->sent = sent;
}

/* `n` messages are there, of which one may be the answer; `looks` were fruitless since the last. */
static inline void lull_learn(struct lull *lull, uint32_t looks, unsigned n) {
    uint32_t length = lull->length, late = looks + 1 - lull->looks;
    if (n > 1)
        length /= 2;
    else if (lull_is_trial(lull))
        length = late ? length : length / 2;
    else if (late == 0)
        length -= (length + LULL_DOWN - 1) / LULL_DOWN;
    else if (late <= LULL_SOON)
        length += LULL_UP;
    else if (late <= LULL_NEAR)
        length += LULL_CREEP;
    else
        length -= length / LULL_FAR;
    lull->length = length < LULL_MOST ? length : LULL_MOST;
    lull->answers++;
    lull->looks = 0;
}

#endif

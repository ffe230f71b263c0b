/*
 * The poll back-off of a ring: after a send, the receiver does not poll until an answer is likely.
 *
 * A fruitless poll moves the slot's cache line away from the peer's core. The peer must fetch it
 * back before it can write its answer, and the receiver must then fetch it again. Without the early
 * poll the line stays where the answer will be written.
 *
 * The length of the back-off is learned from the answers, in ticks (weft__ticks). An answer just
 * after the first look makes it longer. An answer that was there at the first look makes it a
 * little shorter, since it may have waited. An answer some looks later makes it a little longer.
 * Now and then a trial looks early: if the answer is there, answers come unevenly, and the back-off
 * shrinks by half, as it does when several messages come at once. It shrinks to nothing where
 * answers are late or absent.
 */
#ifndef WEFT_TRANSPORTS_SHM_QUEUES_POLL_BACKOFF_H
#define WEFT_TRANSPORTS_SHM_QUEUES_POLL_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

enum {
    BACKOFF_MOST = 2048, /* ticks: the longest back-off, and so the longest delay of any message */
    BACKOFF_LEAST = 64,  /* ticks: a shorter back-off is none */
    BACKOFF_SOON = 24,   /* fruitless looks until the answer: the looks themselves delayed it */
    BACKOFF_NEAR = 256,  /* fruitless looks: behind more of them, the answer was not near */
    BACKOFF_UP = 24,     /* ticks more, after an answer within BACKOFF_SOON */
    BACKOFF_CREEP = 2,   /* ticks more, within BACKOFF_NEAR */
    BACKOFF_DOWN = 256,  /* this fraction less, after an answer at the first look */
    BACKOFF_FAR = 32,    /* this fraction less, after an answer that was not near */
    BACKOFF_TRIALS = 32, /* answers from one trial to the next */
    BACKOFF_EARLY = 4    /* a trial looks after this fraction of the back-off */
};

struct backoff {
    /* messages sent when the ring was last polled; a send after that begins a back-off */
    uint64_t sent;
    uint64_t until;   /* end of the back-off; 0: it has not begun */
    uint32_t length;  /* ticks */
    uint32_t looks;   /* 1 + fruitless looks when it ended; 0: no answer is due */
    uint32_t answers; /* so far */
};

/* The back-off is long enough to be used. */
static inline bool backoff_is_kept(const struct backoff *backoff) {
    return backoff->length >= BACKOFF_LEAST;
}

static inline bool backoff_is_trial(const struct backoff *backoff) {
    return backoff->answers % BACKOFF_TRIALS == 0;
}

/* After a send. True: do not poll the ring now. Ticks that went back, as by a suspended machine,
 * end it. */
static inline bool backoff_holds(struct backoff *backoff, uint64_t now) {
    if (!backoff->until)
        backoff->until =
            now + (backoff_is_trial(backoff) ? backoff->length / BACKOFF_EARLY : backoff->length);
    return backoff->until - now - 1 < BACKOFF_MOST;
}

/* The ring is polled now. `sent`: messages sent in all; `looks`: fruitless looks since the last
 * message. */
static inline void backoff_end(struct backoff *backoff, uint64_t sent, uint32_t looks) {
    if (sent != backoff->sent) backoff->looks = looks + 1;
    backoff->until = 0;
    backoff->sent = sent;
}

/* `n` messages came, and one may be the answer. `looks`: fruitless looks since the last message. */
static inline void backoff_learn(struct backoff *backoff, uint32_t looks, unsigned n) {
    uint32_t length = backoff->length, late = looks + 1 - backoff->looks;
    if (n > 1)
        length /= 2;
    else if (backoff_is_trial(backoff))
        length = late ? length : length / 2;
    else if (late == 0)
        length -= (length + BACKOFF_DOWN - 1) / BACKOFF_DOWN;
    else if (late <= BACKOFF_SOON)
        length += BACKOFF_UP;
    else if (late <= BACKOFF_NEAR)
        length += BACKOFF_CREEP;
    else
        length -= length / BACKOFF_FAR;
    backoff->length = length < BACKOFF_MOST ? length : BACKOFF_MOST;
    backoff->answers++;
    backoff->looks = 0;
}

#endif

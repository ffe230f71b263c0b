/*
 * The tactics of a ring: what is done against a long way of a cache line between two cores. Where
 * the way is short, some of it costs more than it gains. No model of the machine decides which ones
 * are used. The ring tries each tactic by turns and keeps what shortens its round trips, so it
 * follows virtual processors that move.
 *
 * Time is measured over windows of answers, two clock readings a window. A trial switches one
 * tactic over in half of its windows, in a random order, because the peer may be trying something
 * at the same time. The shortest window of each half counts, because load on the machine only
 * lengthens windows. The tactic is switched over for good if that gains at least 1/TACTICS_GAIN.
 * After a round of trials without a change the next one is put off, up to TACTICS_REST_MOST
 * windows.
 *
 * Streams are not measured: a message that is no single answer ends the window without a result.
 */
#ifndef WEFT_TRANSPORTS_SHM_QUEUES_TACTICS_H
#define WEFT_TRANSPORTS_SHM_QUEUES_TACTICS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TACTIC_WAIT = 1 << 0,      /* no poll before an answer is likely (poll_backoff.h) */
    TACTIC_OWN = 1 << 1,       /* fetch the lines of the next send in exclusive state */
    TACTIC_HAND_OVER = 1 << 2, /* move written lines to the shared cache */
    TACTIC_AHEAD = 1 << 3,     /* prefetch all lines of an awaited message */
    TACTIC_PAIR = 1 << 4,      /* send in two slots what one slot does not hold */
    N_TACTICS = 5,
    TACTICS_ALL = (1 << N_TACTICS) - 1,

    TACTICS_WINDOW = 256,    /* answers */
    TACTICS_SETTLE = 192,    /* of these, the first, not timed: the back-off adapts to the switch */
    TACTICS_TRIAL = 8,       /* windows of a trial */
    TACTICS_GAIN = 32,       /* a switch has to gain this fraction of a round trip */
    TACTICS_REST = 8,        /* windows between two trials, at first */
    TACTICS_REST_MOST = 512, /* and at most */
    TACTICS_MOST_HANDED = 2, /* slots: more are a stream, and gain nothing */
};

struct tactics {
    /* slots of a message whose lines are moved: TACTIC_HAND_OVER as one comparison; 0: none */
    uint64_t handed_over;
    uint8_t used;      /* now: those kept, or with one switched over */
    uint8_t kept;      /* the best known */
    uint8_t tried;     /* which one the trial switches over, or the next trial will */
    uint8_t unchanged; /* trials in a row that changed nothing */
    uint8_t order;     /* of the trial's windows: a bit set is a window with the switch */
    uint8_t window;    /* windows of the trial so far */
    bool in_trial;
    uint16_t resting, rest; /* windows until the next trial, and the length of a rest */
    uint32_t left;          /* answers until this part of the window ends */
    bool timed;             /* the second part of the window */
    uint64_t began;         /* ticks: when the timed part began; 0: it gives no result */
    uint32_t seed;
    uint64_t shortest[2]; /* of the trial's windows, in ticks: as kept, and with the switch */
};

/* `seed` differs from the peer's: it decides the orders of the trials. */
static inline void tactics_init(struct tactics *t, uint32_t seed) {
    *t = (struct tactics){.used = TACTICS_ALL,
                          .handed_over = TACTICS_MOST_HANDED,
                          .kept = TACTICS_ALL,
                          .seed = seed,
                          .rest = TACTICS_REST,
                          .resting = TACTICS_REST,
                          .left = TACTICS_SETTLE};
}

static inline bool tactics_use(const struct tactics *t, unsigned tactic) {
    return t->used & tactic;
}

/* A part of a window has ended. `now` in ticks. */
void weft__tactics_turn(struct tactics *t, uint64_t now);

/* `n` messages came after a send. Returns whether a part of the window has ended
 * (weft__tactics_turn). */
static inline bool tactics_answer(struct tactics *t, unsigned n) {
    if (n != 1) t->began = 0;
    return --t->left == 0;
}

#endif

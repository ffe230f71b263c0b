/*
 * How long a wait looks before it sleeps: plain numbers, for any clock.
 *
 * After a look that found something, the next wait looks for about as long as a sleep with its
 * wake-up takes (`hot`). Such a wait costs at most twice the optimum with knowledge of the future.
 * After a look in vain, a wait looks little longer than a peer that is awake needs to answer.
 *
 * That alone would have a second fixed point. Two that put each other to sleep see each answer come
 * after two wake-ups, never sooner, though each would find the other's at once if both stayed
 * awake. So sleeps shorter than `2 * most`, which may be nothing but wake-ups, save an eighth of
 * their time; when that makes `most`, one wait looks for `most`. A peer that is woken answers
 * within that, finds the next message at once, and both are hot. Slower traffic is never looked for
 * at length. All looks in vain together take at most an eighth of the time slept, a hot look for
 * each find and a cold one for each sleep.
 */
#ifndef WEFT_REACTOR_ADAPTIVE_SPIN_H
#define WEFT_REACTOR_ADAPTIVE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum { SPIN_HOT = 2, SPIN_COLD = 25, SPIN_SAVES = 8 }; /* parts of `most`, and of a sleep */

struct spin {
    uint64_t most;  /* ns; more than a wake-up takes; 0: never looks */
    uint64_t saved; /* at most `most` */
    bool hot;       /* the last look found something */
};

static inline uint64_t spin_look(const struct spin *p) {
    if (p->saved == p->most) return p->most;
    return p->most / (p->hot ? SPIN_HOT : SPIN_COLD);
}

/* A look of `ns`. One that savings paid for uses them up, also when it found something: waiting
 * so long is dear in itself. */
static inline void spin_looked(struct spin *p, uint64_t ns, bool found) {
    if (ns > p->most / SPIN_HOT) p->saved = 0;
    p->hot = found;
}

static inline void spin_slept(struct spin *p, uint64_t ns) {
    if (ns >= 2 * p->most) return;
    p->saved += ns / SPIN_SAVES;
    if (p->saved > p->most) p->saved = p->most;
}

/* Whether others want the core, by the time of yields. A yield that changes no thread is slow by
 * chance, too: one in ten to fifty is, on an idle core. Some slow ones in a row are no chance. */
struct oversubscription {
    unsigned n_slow; /* in a row */
    bool is_seen;
};

enum { SLOW_YIELDS = 3 };

static inline void oversubscription_yielded(struct oversubscription *p, bool slow) {
    p->n_slow = slow ? p->n_slow + 1 : 0;
    if (!slow || p->n_slow >= SLOW_YIELDS) p->is_seen = slow;
}

#endif

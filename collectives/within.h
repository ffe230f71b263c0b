/*
 * A call that looks for what the others say, before it becomes a collective that the worker's
 * turns advance (collective.c). What the others say is theirs to define: the caller passes a
 * function that looks at it.
 */
#ifndef WEFT_COLLECTIVES_WITHIN_H
#define WEFT_COLLECTIVES_WITHIN_H

#include <base/compiler.h>
#include <base/counters.h>
#include <sched.h>

#include "team.h"

/*
 * Looks at what one member says until it has come, and at that of the next then, from `rank` on:
 * `looks` times in vain at most. There is no pause between two looks, which would take longer than
 * a line's way. Returns the first that has not come, or the number of all.
 */
typedef uint32_t (*look_fn)(const void *run, uint32_t rank, unsigned looks);

/*
 * Members that share a core speak one after the other: each gives the core away until all have
 * come. A yield may take a whole time slice of another program, so the time is limited, and a look
 * that took longer was one in vain. The worker has a turn after some yields.
 */
enum { CROWD_TICKS = 1 << 17 }; /* some 50 us */
static NOINLINE bool look_and_yield(weft_team_t *team, look_fn look_on, const void *run,
                                    bool *in_time_p) {
    uint64_t begin = weft__ticks();
    uint32_t all = team->size, next = look_on(run, 0, 0);
    for (*in_time_p = true; next < all && *in_time_p; next = look_on(run, next, 0)) {
        team->n_waited++;
        sched_yield();
        *in_time_p = weft__ticks() - begin < CROWD_TICKS;
    }
    return next == all;
}

/*
 * Where the others usually come later than that, the time is lost: then a member looks once, as it
 * does without a core of its own, and tries again after some calls.
 */
enum { LOOKS = 256, LATE_MOST = 4, CALLS_WITHOUT = 32 };
enum how_to_look { ONCE, FOR_A_WHILE, AND_YIELD };

/* Only a form that waits gives its core away. */
static inline enum how_to_look how_to_look(const weft_team_t *team) {
    if (team->look.calls_without || weft__reactor_in_turn(team->reactor)) return ONCE;
    if (team->per_core == 1) return FOR_A_WHILE;
    return team->waits ? AND_YIELD : ONCE;
}

static inline void note_look(weft_team_t *team, enum how_to_look how, bool in_time) {
    struct team_look *look = &team->look;
    if (how == ONCE) {
        look->calls_without -= look->calls_without > 0;
    } else if (in_time) {
        look->late -= look->late > 0;
    } else {
        weft__count(team->reactor)->coll_polls_empty++;
        if (look->late < LATE_MOST) look->late++;
        if (look->late == LATE_MOST) look->calls_without = CALLS_WITHOUT;
    }
}

/* Has all come that this member needs? */
static inline bool look_within_call(weft_team_t *team, look_fn look_on, const void *run) {
    enum how_to_look how = how_to_look(team);
    bool in_time, came;
    if (how == AND_YIELD)
        came = look_and_yield(team, look_on, run, &in_time);
    else
        in_time = came = look_on(run, 0, how == FOR_A_WHILE ? LOOKS : 0) == team->size;
    note_look(team, how, in_time);
    return came;
}

#endif

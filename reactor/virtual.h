/*
 * Virtual time: several reactors in one thread share a clock that moves only when all of them are
 * idle. Runs are a function of the seed: reactors take turns in the order of their creation, timers
 * by (time, order set).
 */
#ifndef WEFT_REACTOR_VIRTUAL_H
#define WEFT_REACTOR_VIRTUAL_H

#include <reactor/reactor.h>

struct reactor_clock;

struct reactor_clock *weft__clock_create(const void *parent, uint64_t seed);
uint64_t weft__clock_now(const struct reactor_clock *clock); /* ns; begins at 1 s */

/*
 * One turn of every reactor that has something to do; when none has, time moves to the nearest
 * timer. False when nothing is left: no job, no poller with work, no timer. Watches are never ready
 * in virtual time.
 */
bool weft__clock_turn(struct reactor_clock *clock);

/* Turns until `until(arg)` holds or `ns` of virtual time have passed. True when it holds. */
bool weft__clock_run(struct reactor_clock *clock, bool (*until)(void *arg), void *arg, uint64_t ns);

/* The reactor gets no turn before that time, as a process that is stopped: jobs, timers and
 * messages wait. */
void weft__clock_pause(struct reactor *r, uint64_t until);

#endif

/*
 * Waiting: spin for the time that adaptive_spin.h gives, then sleep.
 *
 * When runnable threads outnumber cores, spinning can keep the awaited thread from running. The
 * time of a yield shows this: it returns at once when no other thread wants the core. While yields
 * are slow, each look is followed by a yield. After a yield that took a whole time slice the worker
 * only sleeps for a while: the scheduler favours a thread that wakes over a thread that yields.
 */
#include "local.h"
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
    LOOKS_PER_CLOCK = 8,
    PROBE_AFTER_NS = 4000, /* looks that succeed sooner never pay for a yield */
    YIELD_QUICK_NS = 3000, /* no other thread wanted the core, however slow the kernel is */
    YIELD_CALLS = 4,       /* nor where a yield took no longer than so many system calls */
    YIELD_LONG_NS = NS_PER_MS,
    CROWD_FACTOR = 50, /* in a crowd the others' work counts into our waiting */
    WAITS_WITHOUT_SPIN = 64,
    LOOKS_AFTER_YIELD = 4, /* a transport may pass over a few after it found no more */
    VAIN_YIELDS = 4
};

enum outcome { NOTHING, SOMETHING, GONE };

static enum outcome poll_wait(struct reactor *r, enum look where) {
    int n = weft__turn_run(r, INT32_MAX, where);
    if (n == TURN_GONE) return GONE;
    return n > 0 || r->woken_by_hand ? SOMETHING : NOTHING;
}

static enum outcome look_where_due(struct reactor *r) {
    return poll_wait(r, weft__turn_kernel_is_due(r) ? POLL_KERNEL : POLL_MEMORY);
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/*
 * Below this time a yield let no other thread run. Such a yield is a system call, of some 0.2 us;
 * one that lets another thread run takes two changes of threads, some 1.2 us. What a system call
 * takes here is measured once in a process.
 */
static uint64_t quick_yield(void) {
    static _Atomic uint64_t known;
    uint64_t ns = atomic_load_explicit(&known, memory_order_relaxed);
    if (ns) return ns;
    ns = YIELD_QUICK_NS;
    for (int i = 0; i < 8; i++) {
        uint64_t begin = weft__real_now();
        getppid();
        uint64_t took = YIELD_CALLS * (weft__real_now() - begin);
        if (took && took < ns) ns = took;
    }
    atomic_store_explicit(&known, ns, memory_order_relaxed);
    return ns;
}

/* Yields, learns whether the core is wanted, and returns the time now. */
static uint64_t yield(struct reactor *r, uint64_t now) {
    sched_yield();
    uint64_t after = weft__real_now(), took = after - now;
    oversubscription_yielded(&r->oversubscribed, took > quick_yield());
    if (took > YIELD_QUICK_NS) r->others_ran = true;
    if (took > YIELD_LONG_NS) r->waits_without_spin = WAITS_WITHOUT_SPIN;
    return after;
}

/* Whether a look that found nothing yields: in a crowd, and now and then, to learn of one. May read
 * the clock. */
static bool yield_is_due(const struct reactor *r, unsigned looks, uint64_t begin, uint64_t *now) {
    bool shared = r->oversubscribed.is_seen;
    if (!shared && looks % LOOKS_PER_CLOCK) return false;
    *now = weft__real_now();
    return shared || *now - begin > PROBE_AFTER_NS;
}

/* Looks for `ns`, in a crowd for longer, but not beyond `until`. */
static enum outcome spin(struct reactor *r, uint64_t ns, uint64_t until) {
    uint64_t begin = weft__real_now(), now = begin;
    for (unsigned looks = 1;; looks++) {
        enum outcome outcome = look_where_due(r);
        if (outcome == GONE) return GONE;
        if (outcome == NOTHING && yield_is_due(r, looks, begin, &now)) now = yield(r, now);
        uint64_t most = r->oversubscribed.is_seen ? CROWD_FACTOR * ns : ns;
        bool over = now - begin >= most || now >= until || r->waits_without_spin;
        if (outcome == SOMETHING || over) {
            spin_looked(&r->spin, now - begin, outcome == SOMETHING);
            return outcome;
        }
        relax();
    }
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Sleeps if it can, and takes the turn that follows. */
static enum outcome sleep_once(struct reactor *r, uint64_t until) {
    if (weft__wakeup_arm(r)) {
        uint64_t begin = weft__real_now();
        weft__loop_sleep(r, earlier(until, timers_nearest(r)));
        spin_slept(&r->spin, weft__real_now() - begin);
        weft__wakeup_disarm(r);
    }
    return poll_wait(r, POLL_TIMERS);
}

/* While memory delivers, a wait asks the kernel at the intervals of progress; with `at_once`,
 * now. */
static enum outcome wait_until(struct reactor *r, uint64_t until, bool at_once) {
    enum outcome outcome = at_once ? poll_wait(r, POLL_KERNEL) : look_where_due(r);
    while (outcome == NOTHING && (until == UINT64_MAX || weft__real_now() < until)) {
        uint64_t ns = spin_look(&r->spin);
        if (r->waits_without_spin)
            r->waits_without_spin--;
        else if (ns && (outcome = spin(r, ns, until)) != NOTHING)
            break;
        outcome = sleep_once(r, until);
    }
    return outcome;
}

weft_status_t weft__reactor_wait(struct reactor *r, int timeout_ms) {
    if (r->in_turn)
        return weft__fail(WEFT_ERR_BUSY, "weft_worker_wait was called from within a callback");
    if (r->virtual.clock) return weft__clock_wait(r, timeout_ms);
    uint64_t until =
        timeout_ms < 0 ? UINT64_MAX : weft__real_now() + (uint64_t)timeout_ms * NS_PER_MS;
    if (wakeup_is_armed(r)) weft__wakeup_disarm(r);
    enum outcome outcome = wait_until(r, until, timeout_ms == 0);
    if (outcome == GONE) return WEFT_OK;
    if (r->fd_taken) weft__wakeup_settle(r);
    return outcome == SOMETHING ? WEFT_OK : WEFT_ERR_TIMED_OUT;
}

/* ---- for a host's loop ----------------------------------------------------------------------- */

void weft__wait_came_back(struct reactor *r) {
    spin_slept(&r->spin, weft__real_now() - r->spun_at);
    r->spun_at = 0;
}

/* A peer that shares the core answers while it has it, and neither sleeps. The host has other
 * things to do, so a look has one yield, and after a few in vain there is no look for a while. */
static enum outcome yield_in_host(struct reactor *r) {
    enum outcome outcome = look_where_due(r);
    if (outcome != NOTHING) return outcome;
    yield(r, weft__real_now());
    for (int i = 0; i < LOOKS_AFTER_YIELD && outcome == NOTHING; i++) outcome = look_where_due(r);
    if (outcome == GONE) return GONE;
    r->vain_yields = outcome == NOTHING ? r->vain_yields + 1 : 0;
    if (r->vain_yields == VAIN_YIELDS) r->waits_without_spin = WAITS_WITHOUT_SPIN;
    if (!r->waits_without_spin) return outcome;
    r->shares_core = false;
    r->vain_yields = 0;
    return outcome;
}

/* Never longer than `most`. */
static enum outcome look_in_host(struct reactor *r) {
    if (r->shares_core) return yield_in_host(r);
    uint64_t ns = spin_look(&r->spin);
    r->others_ran = false;
    enum outcome outcome = spin(r, ns, weft__real_now() + r->spin.most);
    if (outcome != GONE) r->shares_core = r->oversubscribed.is_seen || r->others_ran;
    return outcome;
}

static enum outcome spin_in_host(struct reactor *r) {
    enum outcome outcome = look_in_host(r);
    if (outcome != GONE) r->oversubscribed.is_seen = false; /* slow yields of several looks count */
    return outcome;
}

int weft__reactor_spin(struct reactor *r) {
    if (r->in_turn)
        return weft__fail(WEFT_ERR_BUSY, "weft_worker_spin was called from within a callback");
    if (forked(r))
        return weft__fail(WEFT_ERR_FORKED,
                          "the worker belongs to the parent of this forked process");
    if (r->virtual.clock || !r->spin.most) return 0;
    if (r->spun_at) weft__wait_came_back(r);
    if (r->waits_without_spin) {
        r->waits_without_spin--;
        return 0;
    }
    uint64_t handled = r->handled;
    if (wakeup_is_armed(r)) weft__wakeup_disarm(r);
    enum outcome outcome = spin_in_host(r);
    if (outcome == GONE) return 0;
    if (r->fd_taken) weft__wakeup_settle(r);
    if (outcome == NOTHING) r->spun_at = weft__real_now();
    bool woken = outcome == SOMETHING && r->handled == handled; /* the fd is silent */
    return woken ? 1 : (int)(r->handled - handled);
}

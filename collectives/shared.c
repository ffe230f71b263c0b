/* Collectives through the team's segment are looked at while they run: by a poller, which sleeps
 * when nothing moves. */
#include <base/counters.h>

#include "collective.h"

bool weft__shared_over(const struct collective *c) {
    return c->left == c->n_parts;
}

/* ---- waking those who sleep ------------------------------------------------------------------ */

void weft__shared_wake_seen(weft_team_t *team) {
    const struct coll_share *share = &team->share;
    for (uint32_t i = 0; i < share->size; i++) {
        _Atomic uint32_t *asleep = &share->segment->head->asleep[i];
        if (i == share->rank || !atomic_load_explicit(asleep, memory_order_relaxed)) continue;
        if (!atomic_exchange_explicit(asleep, 0, memory_order_relaxed)) continue;
        /* It is for nothing if this fails: then the member is lost, and its endpoint says so. */
        uint32_t rank = share->member ? share->member[i] : i;
        if (weft__coll_send(team, rank, &(struct coll_message){.id = COLL_WIRE_WAKE}) >= 0)
            weft__count(team->reactor)->coll_wakes++;
    }
}

/* The other half of arm(): a member that we do not see asleep sees what was published. */
void weft__shared_wake(weft_team_t *team) {
    atomic_thread_fence(memory_order_seq_cst);
    weft__shared_wake_seen(team);
}

/* ---- looking, and sleeping ------------------------------------------------------------------- */

static bool is_looked_at(const struct collective *c) {
    return c->engine->may_move && c->status == WEFT_OK && !weft__shared_over(c);
}

/* A stopped one whose memory others may still use. */
static bool drains(const struct collective *c) {
    return c->status < 0 && c->n_in_flight && c->engine->drained;
}

static bool shared_drain(struct collective *c) {
    if (!c->engine->drained(c)) return false;
    c->n_in_flight = 0;
    weft__fsm_step(&c->core.fsm, COLL_EV_RETURNED);
    return true;
}

static int poll(struct poller *poller, unsigned budget) {
    weft_team_t *team = list_of(poller, weft_team_t, poller);
    int n = 0;
    if (list_empty(&team->active)) weft__poller_remove(team->reactor, poller);
    list_for_each_safe(at, next, &team->active) {
        struct collective *c = list_of(at, struct collective, of_team);
        if (drains(c)) n += shared_drain(c);
        if (!is_looked_at(c) || !c->engine->advance(c)) continue;
        weft__collective_finish(c);
        n++;
    }
    return n;
}

/* Asleep is said first and looked at once more afterwards; weft__shared_wake() does the same the
 * other way round. */
static bool arm_shared(struct poller *poller) {
    weft_team_t *team = list_of(poller, weft_team_t, poller);
    _Atomic uint32_t *asleep = &team->share.segment->head->asleep[team->share.rank];
    if (list_empty(&team->active)) return true;
    atomic_store_explicit(asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    list_for_each(at, &team->active) {
        struct collective *c = list_of(at, struct collective, of_team);
        if (!drains(c) && (!is_looked_at(c) || !c->engine->may_move(c))) continue;
        atomic_store_explicit(asleep, 0, memory_order_relaxed);
        return false;
    }
    return true;
}

static void disarm(struct poller *poller) {
    weft_team_t *team = list_of(poller, weft_team_t, poller);
    const struct coll_share *share = &team->share;
    atomic_store_explicit(&share->segment->head->asleep[share->rank], 0, memory_order_relaxed);
}

void weft__shared_watch(weft_team_t *team) {
    team->poller.poll = poll;
    team->poller.arm = arm_shared;
    team->poller.disarm = disarm;
    weft__poller_add(team->reactor, &team->poller);
}

void weft__shared_unwatch(weft_team_t *team) {
    weft__poller_remove(team->reactor, &team->poller);
}

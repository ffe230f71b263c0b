/* Collectives through the team's segment are looked at while they run: by a poller, which sleeps
 * when nothing moves. */
#include <base/counters.h>

#include "collective.h"

bool weft__shared_over(const struct collective *c) {
    return c->left == c->n_parts;
}

/* ---- waking those who sleep ------------------------------------------------------------------ */

/* This member's bit, if it is among those of `word`. */
static uint64_t own_bit(const struct coll_share *share, uint32_t word) {
    return share->rank / SEGMENT_WORD == word ? UINT64_C(1) << share->rank % SEGMENT_WORD : 0;
}

static void ring(weft_team_t *team, enum segment_sleep sleep) {
    const struct coll_share *share = &team->share;
    unsigned n = 0;
    for (uint32_t w = 0; w * SEGMENT_WORD < share->size; w++) {
        _Atomic uint64_t *asleep = &share->segment->head->asleep[sleep].word[w];
        uint64_t own = own_bit(share, w);
        n += (unsigned)__builtin_popcountll(atomic_fetch_and(asleep, own) & ~own);
    }
    if (n) weft__team_segment_ring(share->segment);
    weft__count(team->reactor)->coll_wakes += n;
}

bool weft__shared_sleeps(const weft_team_t *team, enum segment_sleep sleep) {
    const struct coll_share *share = &team->share;
    uint64_t asleep = 0;
    for (uint32_t w = 0; w * SEGMENT_WORD < share->size; w++)
        asleep |= atomic_load_explicit(&share->segment->head->asleep[sleep].word[w],
                                       memory_order_relaxed);
    return asleep;
}

void weft__shared_wake_seen(weft_team_t *team, enum segment_sleep sleep) {
    if (UNLIKELY(weft__shared_sleeps(team, sleep))) ring(team, sleep);
}

/* The other half of arm(): a member that we do not see asleep sees what was published. */
void weft__shared_wake(weft_team_t *team, enum segment_sleep sleep) {
    atomic_thread_fence(memory_order_seq_cst);
    weft__shared_wake_seen(team, sleep);
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

static _Atomic uint64_t *sleep_word(const struct coll_share *share, enum segment_sleep sleep) {
    return &share->segment->head->asleep[sleep].word[share->rank / SEGMENT_WORD];
}

static void lie_down(const struct coll_share *share, enum segment_sleep sleep) {
    atomic_fetch_or(sleep_word(share, sleep), own_bit(share, share->rank / SEGMENT_WORD));
}

static void get_up(const struct coll_share *share, enum segment_sleep sleep) {
    _Atomic uint64_t *word = sleep_word(share, sleep);
    uint64_t own = own_bit(share, share->rank / SEGMENT_WORD);
    if (atomic_load_explicit(word, memory_order_relaxed) & own) atomic_fetch_and(word, ~own);
}

static bool waits_for_space(const struct collective *c) {
    return is_looked_at(c) && c->engine->needs_space && c->engine->needs_space(c);
}

static void note_sleep(const weft_team_t *team) {
    lie_down(&team->share, FOR_NEWS);
    list_for_each(at, &team->active) {
        if (!waits_for_space(list_of(at, struct collective, of_team))) continue;
        lie_down(&team->share, FOR_SPACE);
        break;
    }
    atomic_thread_fence(memory_order_seq_cst);
}

static void disarm(struct poller *poller) {
    weft_team_t *team = list_of(poller, weft_team_t, poller);
    get_up(&team->share, FOR_NEWS);
    get_up(&team->share, FOR_SPACE);
}

/* Asleep is said first and looked at once more afterwards; weft__shared_wake() does the same the
 * other way round. */
static bool arm_shared(struct poller *poller) {
    weft_team_t *team = list_of(poller, weft_team_t, poller);
    if (list_empty(&team->active)) return true;
    note_sleep(team);
    list_for_each(at, &team->active) {
        struct collective *c = list_of(at, struct collective, of_team);
        if (!drains(c) && (!is_looked_at(c) || !c->engine->may_move(c))) continue;
        disarm(poller);
        return false;
    }
    return true;
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

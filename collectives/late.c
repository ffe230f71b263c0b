/*
 * Members that are late in a collective: named in the status of a timeout, and shown by weft-info
 * --live after a second. Then they are asked whether they are still there. One timer does all of
 * it. What waited so long is counted when it ends.
 */
#include <base/counters.h>
#include <endpoints/inspect/stats_page.h>
#include <inttypes.h>
#include <stdio.h>

#include "collective.h"

struct stragglers {
    uint32_t first, n;
    char others[48]; /* " and 2 others" */
};

static void add_straggler(struct stragglers *late, uint32_t rank) {
    if (late->n++ == 0) late->first = rank;
    if (late->n > 1)
        snprintf(late->others, sizeof late->others, " and %u other%s", late->n - 1,
                 late->n > 2 ? "s" : "");
}

static bool waits_for(const struct collective *c, uint32_t rank) {
    return rank != c->team->rank && c->engine->needs(c, rank);
}

static struct stragglers find_stragglers(const struct collective *c) {
    struct stragglers late = {0};
    for (uint32_t r = 0; r < c->team->size; r++)
        if (waits_for(c, r)) add_straggler(&late, r);
    return late;
}

static uint64_t number_of(const struct collective *c) {
    return c->plan ? c->seq : c->first_use;
}

/* Notes in the team whom a collective waits for at its deadline: "allreduce 7: rank 3 and 2 others
 * did not take part in time; this member has for 2.1 s". */
void weft__late_name(struct collective *c) {
    weft_team_t *team = c->team;
    struct stragglers late = find_stragglers(c);
    double waited = (double)(weft__now(team->reactor) - c->begun) / 1e9;
    weft__count(team->reactor)->coll_stragglers += late.n;
    if (late.n == 0 || team->why[0]) return;
    snprintf(team->why, sizeof team->why,
             "%s %" PRIu64 ": rank %u%s did not take part in time; this member has for %.1f s",
             weft__coll_name(c->call.kind), number_of(c), late.first, late.others,
             c->begun ? waited : 0.0);
}

/* ---- what a collective was at when the team failed ------------------------------------------- */

static const struct collective *first_that_needs(const weft_team_t *team, uint32_t rank) {
    list_for_each(at, &team->active) {
        const struct collective *c = list_of(at, struct collective, of_team);
        if (rank == NO_RANK || c->engine->needs(c, rank)) return c;
    }
    return NULL;
}

void weft__late_note(weft_team_t *team, uint32_t rank, const char *what) {
    const struct collective *c = first_that_needs(team, rank);
    char steps[48] = "";
    if (team->status < 0 || team->why[0]) return;
    if (c && c->plan)
        snprintf(steps, sizeof steps, ", %u of %u steps done",
                 c->plan->schedule->n_steps - c->n_left, c->plan->schedule->n_steps);
    if (c)
        snprintf(team->why, sizeof team->why, "%s %" PRIu64 "%s: %s", weft__coll_name(c->call.kind),
                 number_of(c), steps, what);
    else
        snprintf(team->why, sizeof team->why, "%s", what);
}

void weft__team_loses(weft_team_t *team, uint32_t rank, weft_status_t status) {
    char what[100];
    snprintf(what, sizeof what, "the exchange with rank %u failed (%s)", rank,
             weft_status_name(status));
    weft__late_note(team, rank, what);
    weft__team_fail(team, weft__team_outcome(status), rank);
}

void weft__team_misses(weft_team_t *team, uint32_t rank) {
    char what[40];
    snprintf(what, sizeof what, "rank %u has left", rank);
    weft__late_note(team, rank, what);
    weft__team_fail(team, WEFT_ERR_PEER_FAILED, rank);
}

/* The lines of weft-info --live: collectives of all teams of the worker that are late. */
static void show_late(struct team_registry *registry) {
    char line[LIVE_RESOURCE];
    uint32_t n = 0;
    list_for_each(at, &registry->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_registry);
        list_for_each(of, &team->active) {
            struct collective *c = list_of(of, struct collective, of_team);
            struct stragglers late = c->noted ? find_stragglers(c) : (struct stragglers){0};
            if (late.n == 0) continue;
            snprintf(line, sizeof line, "team %08x, rank %u: %s %" PRIu64 " waits for rank %u%s",
                     (uint32_t)team->id, team->rank, weft__coll_name(c->call.kind), number_of(c),
                     late.first, late.others);
            weft__stats_late(registry->worker, n++, c->begun, line);
        }
    }
    weft__stats_late(registry->worker, n, 0, NULL);
}

/*
 * One whose team failed or closed answers so. Its last word may be lost, for the close of its
 * endpoint was cut by its time limit. Where all wait in shared memory, those without an endpoint to
 * it learn of it from the others.
 */
static void ask_late(const struct collective *c) {
    weft_team_t *team = c->team;
    for (uint32_t r = 0; r < team->size; r++)
        if (waits_for(c, r) && (c->plan || team->member[r].ep))
            weft__coll_send(team, r, &(struct coll_message){.id = COLL_WIRE_OPEN});
}

/* ---- how late they were ---------------------------------------------------------------------- */

/* Of several collectives that wait for a member, the first one counts. */
static void note_late(struct collective *c) {
    weft_team_t *team = c->team;
    c->noted = true;
    for (uint32_t r = 0; r < team->size; r++)
        if (!team->member[r].late_in && waits_for(c, r)) team->member[r].late_in = c;
}

static void count_late(const struct collective *c) {
    weft_team_t *team = c->team;
    struct counters *count = weft__count(team->reactor);
    uint64_t waited = weft__now(team->reactor) - c->begun;
    struct stragglers late = {0};
    for (uint32_t r = 0; r < team->size; r++) {
        struct member *member = &team->member[r];
        if (member->late_in != c) continue;
        member->late_in = NULL;
        member->n_late++;
        member->late_ns += waited;
        add_straggler(&late, r);
    }
    if (late.n == 0) return;
    count->coll_late++;
    count->coll_late_ms += waited / NS_PER_MS;
    weft__log(team->worker->context, WEFT_LOG_INFO, "collectives",
              "team %016" PRIx64 ", rank %u: %s %" PRIu64 " waited %.1f s for rank %u%s", team->id,
              team->rank, weft__coll_name(c->call.kind), number_of(c), (double)waited / 1e9,
              late.first, late.others);
}

/* ---- the timer ------------------------------------------------------------------------------- */

static uint64_t end_of(const struct collective *c) {
    return c->has_limit ? c->begun + c->team->time_limit : UINT64_MAX;
}

/* At its end, if that comes first. Cannot fail: its place is reserved. */
static void start_timer(struct collective *c, uint64_t at) {
    weft__timer_start(c->team->reactor, &c->deadline, at < end_of(c) ? at : end_of(c));
}

static void timer_fired(struct timer *timer) {
    struct collective *c = list_of(timer, struct collective, deadline);
    weft_team_t *team = c->team;
    if (weft__now(team->reactor) >= end_of(c)) {
        weft__late_name(c);
        weft__team_fail(team, WEFT_ERR_TIMED_OUT, team->rank);
        return;
    }
    if (!c->over) {
        note_late(c);
        show_late(team->registry);
    }
    ask_late(c);
    start_timer(c, 2 * weft__now(team->reactor) - c->begun);
}

/* The team's own collective has the deadline of its creation, and is not counted as late. */
weft_status_t weft__late_reserve(struct collective *c, const weft_op_t *op) {
    c->deadline.fire = timer_fired;
    c->has_limit = !c->over && c->team->time_limit && !(op && op->deadline_ms);
    return weft__timer_reserve(c->team->reactor, &c->deadline);
}

/* One that is done within the call never reads the clock. */
void weft__late_begin(struct collective *c) {
    c->begun = weft__now(c->team->reactor);
    if (!c->deadline.reserved) return;
    start_timer(c, c->begun + (uint64_t)LATE_AFTER_S * 1000 * NS_PER_MS);
}

void weft__late_end(struct collective *c) {
    if (c->noted) {
        count_late(c);
        show_late(c->team->registry);
    }
    weft__timer_release(c->team->reactor, &c->deadline);
}

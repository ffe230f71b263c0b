/*
 * Whom the creation of a team waits for. Its first collective knows that, and so does an exchange
 * that the library makes: by collectives or agreements of another team, or by messages. One that
 * the program makes does not say.
 */
#include "missing.h"

#include <inttypes.h>
#include <stdio.h>

#include "collective.h"

void weft__missing_add(struct missing *missing, uint32_t rank) {
    if (missing->n < RANKS_NAMED) missing->rank[missing->n] = rank;
    missing->n++;
}

void weft__missing_write(const struct missing *missing, char *buf, size_t size) {
    uint32_t n = missing->n, named = n < RANKS_NAMED ? n : RANKS_NAMED;
    size_t used =
        (size_t)snprintf(buf, size, "rank%s %" PRIu32, n > 1 ? "s" : "", missing->rank[0]);
    for (uint32_t i = 1; i < named && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s %" PRIu32, i + 1 == n ? " and" : ",",
                                 missing->rank[i]);
    if (n > named && used < size)
        snprintf(buf + used, size - used, " and %" PRIu32 " more", n - named);
}

bool weft__missing_name(const struct missing *missing, const char *of, char *buf, size_t size) {
    char ranks[80];
    if (!missing->n) return false;
    weft__missing_write(missing, ranks, sizeof ranks);
    snprintf(buf, size, "nothing was received from %s%s in time", ranks, of);
    return true;
}

bool weft__missing_answers(const struct missing *missing, char *buf, size_t size) {
    char ranks[80];
    if (!missing->n) return false;
    weft__missing_write(missing, ranks, sizeof ranks);
    snprintf(buf, size, "%s %s not answered in time", ranks, missing->n > 1 ? "have" : "has");
    return true;
}

static bool misses(const struct collective *c, uint32_t rank) {
    if (rank == c->team->rank) return false;
    return c->plan ? weft__steps_miss(c, rank) : c->engine->needs(c, rank);
}

static bool name_in(const struct collective *c, const char *of, char *buf, size_t size) {
    struct missing missing = {.n = 0};
    for (uint32_t r = 0; r < c->team->size; r++)
        if (misses(c, r)) weft__missing_add(&missing, r);
    return weft__missing_name(&missing, of, buf, size);
}

bool weft__missing_in(const weft_team_t *parent, uint64_t number, char *buf, size_t size) {
    list_for_each(at, &parent->active) {
        const struct collective *c = list_of(at, struct collective, of_team);
        if (!c->call.tagged && c->number == number) return name_in(c, " of its parent", buf, size);
    }
    return false;
}

/* The team's own is the only one before it is ready. */
static bool name_in_first(const weft_team_t *team, char *buf, size_t size) {
    if (list_empty(&team->active)) return false;
    return name_in(list_of(team->active.next, struct collective, of_team), "", buf, size);
}

void weft__missing_note(weft_team_t *team) {
    bool exchanges = team->exchanged == WEFT_IN_PROGRESS;
    if (team->why[0]) return;
    if (!exchanges && !team->meeting) {
        (void)name_in_first(team, team->why, sizeof team->why);
        return;
    }
    if (team->missing && team->missing(team, team->why, sizeof team->why)) return;
    if (exchanges)
        snprintf(team->why, sizeof team->why, "its exchange has not ended in time%s",
                 team->missing ? "" : ", and names no member");
}

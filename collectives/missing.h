/* Whom the creation of a team waits for, named when its time is over. */
#ifndef WEFT_COLLECTIVES_MISSING_H
#define WEFT_COLLECTIVES_MISSING_H

#include "team.h"

/* Members in the order of their ranks: how many, and the first ones by name. */
enum { RANKS_NAMED = 3 };
struct missing {
    uint32_t rank[RANKS_NAMED], n;
};

void weft__missing_add(struct missing *missing, uint32_t rank);
/* "rank 3", "ranks 3 and 5", "ranks 3, 5, 6 and 12 more". At least one is missing. */
void weft__missing_write(const struct missing *missing, char *buf, size_t size);

/* "nothing was received from rank 3 in time". False: no member is missing. `of`: what follows the
 * ranks, for example " of its parent". */
bool weft__missing_name(const struct missing *missing, const char *of, char *buf, size_t size);
/* The same of members that are to answer: "rank 3 has not answered in time". */
bool weft__missing_answers(const struct missing *missing, char *buf, size_t size);
/* As weft__missing_name() does, of the collective without a tag that has that number in `parent`.
 * False also where it is not in progress. */
bool weft__missing_in(const weft_team_t *parent, uint64_t number, char *buf, size_t size);

/* The time of a creation is over: notes in the team's `why` whom it waits for. */
void weft__missing_note(weft_team_t *team);

#endif

/*
 * Why a member has no team of a split, a growth, a shrink or a join. on_ready(NULL) is called from
 * a job, when the thread may have failed at something else, so the causes are kept until then.
 */
#ifndef WEFT_COLLECTIVES_NO_TEAM_H
#define WEFT_COLLECTIVES_NO_TEAM_H

#include <endpoints/core/cause.h>

struct no_team {
    weft_status_t status; /* WEFT_OK: it may have one */
    char why[CAUSE_ROOM]; /* the causes of `status`; "": they are not known */
};

/* Keeps `status`, with the thread's causes of it. The first ones of a status stay. */
void weft__no_team(struct no_team *none, weft_status_t status);
/* Sets the thread's causes to those that were kept, within `what` was going on. */
void weft__no_team_explain(const struct no_team *none, const char *what);

#endif

/*
 * Teams that grow: what members say to a worker that joins. The words of both sides name the team
 * (`team`, `epoch`), and the worker by a random number of its own (`seq`).
 */
#ifndef WEFT_COLLECTIVES_JOINING_H
#define WEFT_COLLECTIVES_JOINING_H

#include "team.h"

/* ---- team_grow.c: at the members */

/* JOIN, RECORD and FORGET of a worker. */
void weft__grow_message(struct team_registry *registry, unsigned id, const struct coll_wire *wire,
                        weft_ep_t *ep, weft_am_t *am);
/* The team has failed, or closes: those that wait for their place are notified. */
void weft__grow_stop(weft_team_t *team);
weft_status_t weft__team_grow(weft_team_t *team, uint32_t inviter, uint32_t n,
                              const weft_team_params_t *params);

/* ---- team_join.c: at the worker that joins */

/* WELCOME and RECORDS of a member. */
void weft__join_message(struct team_registry *registry, unsigned id, const struct coll_wire *wire,
                        weft_am_t *am);
/* The worker closes: ends those that are in progress. */
void weft__joins_stop(struct team_registry *registry);
weft_status_t weft__team_join(weft_worker_t *worker, const void *invitation, size_t len,
                              const weft_team_params_t *params);

#endif

/* Teams for programs without a loop of their own: each drives the worker until the operation is
 * complete. */
#include <base/check.h>
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>

#include "team.h"

static void note_status(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* Of a team that is NULL the operation itself says so. */
static weft_status_t check_wait(const weft_team_t *team) {
    return team ? weft__worker_check_wait(team->worker) : WEFT_OK;
}

/* ---- teams that are made --------------------------------------------------------------------- */

struct made {
    weft_team_t *team; /* NULL: this member is in none */
    weft_status_t status;
};

static void note_made(weft_team_t *team, weft_status_t status, void *arg) {
    *(struct made *)arg = (struct made){team, status};
}

/* A team whose creation failed is closed here. */
static weft_status_t wait_for_team(weft_worker_t *worker, const struct made *made,
                                   weft_team_t **team_p) {
    weft_status_t st = weft__worker_wait_for(worker, &made->status);
    if (st == WEFT_OK)
        *team_p = made->team;
    else if (made->team)
        weft_team_close_wait(made->team);
    return st;
}

weft_status_t weft_team_create_wait(weft_worker_t *worker, const weft_exchange_t *exchange,
                                    weft_team_t **team_p) {
    struct made made = {NULL, WEFT_IN_PROGRESS};
    weft_team_params_t params = {.exchange = exchange, .on_ready = note_made, .arg = &made};
    weft_team_t *team;
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = worker ? weft__worker_check_wait(worker) : WEFT_OK;
    if (st == WEFT_OK) st = weft_team_create(worker, &params, &team);
    return st < 0 ? st : wait_for_team(worker, &made, team_p);
}

weft_status_t weft_team_grow_wait(weft_team_t *team, uint32_t inviter, uint32_t n,
                                  weft_team_t **team_p) {
    struct made made = {NULL, WEFT_IN_PROGRESS};
    weft_team_params_t params = {.on_ready = note_made, .arg = &made};
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = check_wait(team);
    if (st == WEFT_OK) st = weft_team_grow(team, inviter, n, &params);
    return st < 0 ? st : wait_for_team(team->worker, &made, team_p);
}

weft_status_t weft_team_join_wait(weft_worker_t *worker, const void *invitation, size_t len,
                                  weft_team_t **team_p) {
    struct made made = {NULL, WEFT_IN_PROGRESS};
    weft_team_params_t params = {.on_ready = note_made, .arg = &made};
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = worker ? weft__worker_check_wait(worker) : WEFT_OK;
    if (st == WEFT_OK) st = weft_team_join(worker, invitation, len, &params);
    return st < 0 ? st : wait_for_team(worker, &made, team_p);
}

weft_status_t weft_team_split_wait(weft_team_t *parent, uint32_t colour, uint32_t key,
                                   weft_team_t **team_p) {
    struct made made = {NULL, WEFT_IN_PROGRESS};
    weft_team_params_t params = {.on_ready = note_made, .arg = &made};
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = check_wait(parent);
    if (st == WEFT_OK) st = weft_team_split(parent, colour, key, &params);
    return st < 0 ? st : wait_for_team(parent->worker, &made, team_p);
}

weft_status_t weft_team_subset_wait(weft_team_t *parent, const weft_team_map_t *map,
                                    weft_team_t **team_p) {
    struct made made = {NULL, WEFT_IN_PROGRESS};
    weft_team_params_t params = {.on_ready = note_made, .arg = &made};
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = check_wait(parent);
    if (st == WEFT_OK) st = weft_team_subset(parent, map, &params);
    return st < 0 ? st : wait_for_team(parent->worker, &made, team_p);
}

weft_status_t weft_team_shrink_wait(weft_team_t *team, weft_team_t **team_p) {
    struct made made = {NULL, WEFT_IN_PROGRESS};
    weft_team_params_t params = {.on_ready = note_made, .arg = &made};
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = check_wait(team);
    if (st == WEFT_OK) st = weft_team_shrink(team, &params);
    return st < 0 ? st : wait_for_team(team->worker, &made, team_p);
}

/* ---- others ---------------------------------------------------------------------------------- */

weft_status_t weft_team_agree_wait(weft_team_t *team, uint64_t *flags_p, uint64_t *lost) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_op_t op = {.done = note_status, .arg = &outcome};
    weft_status_t st = check_wait(team);
    if (st == WEFT_OK) st = weft_team_agree(team, flags_p, lost, &op);
    return st == WEFT_IN_PROGRESS ? weft__worker_wait_for(team->worker, &outcome) : st;
}

weft_status_t weft_team_close_wait(weft_team_t *team) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_op_t op = {.done = note_status, .arg = &outcome};
    if (!team) REFUSE("team", "NULL");
    weft_worker_t *worker = team->worker;
    weft_status_t st = check_wait(team);
    if (st == WEFT_OK) st = weft_team_close(team, &op);
    return st == WEFT_IN_PROGRESS ? weft__worker_wait_for(worker, &outcome) : st;
}

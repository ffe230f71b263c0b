/* The public functions: what may not be asked is refused here. */
#include <base/check.h>
#include <string.h>

#include "collective.h"
#include "joining.h"
#include "team_split.h"

/* ---- teams ----------------------------------------------------------------------------------- */

weft_status_t weft_team_create_sized(size_t params_size, weft_worker_t *worker,
                                     const weft_team_params_t *params, weft_team_t **team_p) {
    weft_team_params_t known;
    if (!worker) REFUSE("worker", "NULL");
    if (!team_p) REFUSE("team_p", "NULL");
    weft_status_t st = weft__worker_check(weft__worker_itself(worker));
    if (st < 0) return st;
    st = weft__params_read(&known, sizeof known, params, params_size);
    if (st < 0) return st;
    if (known.associated && known.exchange) REFUSE("params->exchange", "set, in associated mode");
    if (known.associated && !worker->stub)
        REFUSE("worker", "the parent was not created in associated mode");
    if (known.associated) return weft__team_stub(worker, &known, team_p);
    if (!known.exchange) REFUSE("params->exchange", "NULL");
    if (!known.exchange->allgather) REFUSE("params->exchange->allgather", "NULL");
    if (known.exchange->size == 0) REFUSE("params->exchange->size", "0");
    if (known.exchange->rank >= known.exchange->size)
        REFUSE("params->exchange->rank", "not below size");
    return weft__team_create(worker, &known, 0, team_p);
}

weft_status_t weft__team_params_read(weft_team_params_t *known, const weft_team_params_t *params,
                                     size_t params_size) {
    weft_status_t st = weft__params_read(known, sizeof *known, params, params_size);
    if (st < 0) return st;
    if (known->exchange) REFUSE("params->exchange", "not NULL");
    if (known->associated) REFUSE("params->associated", "set, and the other team is there");
    if (!known->on_ready) REFUSE("params->on_ready", "NULL, and it alone brings the new team");
    return WEFT_OK;
}

weft_status_t weft_team_split_sized(size_t params_size, weft_team_t *parent, uint32_t colour,
                                    uint32_t key, const weft_team_params_t *params) {
    weft_team_params_t known;
    if (!parent) REFUSE("parent", "NULL");
    weft_status_t st = weft__worker_check(parent->worker);
    if (st == WEFT_OK) st = weft__team_params_read(&known, params, params_size);
    if (st < 0) return st;
    return weft__team_split(parent, colour, key, &known);
}

/* ---- teams that grow ------------------------------------------------------------------------- */

weft_status_t weft_team_invite(weft_team_t *team, void *buf, size_t *len_p) {
    uint8_t address[INVITATION_ADDRESS_MOST], head[INVITATION_HEAD];
    if (!team) REFUSE("team", "NULL");
    if (!len_p) REFUSE("len_p", "NULL");
    weft_status_t st = weft__check_memory("buf", buf, *len_p);
    if (st == WEFT_OK) st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__team_usable(team);
    if (st < 0) return st;
    size_t room = *len_p, len = sizeof address;
    st = weft_worker_address(team->worker, address, &len);
    if (st < 0) return st;
    *len_p = sizeof head + len;
    if (room < *len_p)
        return weft__fail(WEFT_ERR_TRUNCATED, "the invitation takes %zu bytes", *len_p);
    weft__invitation_write(head, &(struct coll_invitation){.team = team->id, .epoch = team->epoch});
    memcpy(buf, head, sizeof head);
    memcpy((uint8_t *)buf + sizeof head, address, len);
    return WEFT_OK;
}

weft_status_t weft_team_grow_sized(size_t params_size, weft_team_t *team, uint32_t inviter,
                                   uint32_t n, const weft_team_params_t *params) {
    weft_team_params_t known;
    if (!team) REFUSE("team", "NULL");
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__team_params_read(&known, params, params_size);
    if (st < 0) return st;
    if (inviter >= team->size) return weft__fail_rank("inviter", inviter, team->size);
    if (n == 0 || n > JOINERS_MOST) REFUSE("n", "0, or more than 4096");
    return weft__team_grow(team, inviter, n, &known);
}

weft_status_t weft_team_join_sized(size_t params_size, weft_worker_t *worker,
                                   const void *invitation, size_t len,
                                   const weft_team_params_t *params) {
    weft_team_params_t known;
    if (!worker) REFUSE("worker", "NULL");
    if (!invitation) REFUSE("invitation", "NULL");
    weft_status_t st = weft__worker_check(weft__worker_itself(worker));
    if (st == WEFT_OK) st = weft__team_params_read(&known, params, params_size);
    if (st < 0) return st;
    return weft__team_join(worker, invitation, len, &known);
}

/* ---- what is asked, and the end -------------------------------------------------------------- */

uint32_t weft_team_rank(const weft_team_t *team) {
    return team ? team->rank : 0;
}
uint32_t weft_team_size(const weft_team_t *team) {
    return team ? team->size : 0;
}
weft_ep_t *weft_team_ep(weft_team_t *team, uint32_t rank) {
    return team && weft__worker_check(team->worker) == WEFT_OK ? weft__team_ep(team, rank) : NULL;
}

weft_status_t weft_team_close(weft_team_t *team, const weft_op_t *op) {
    if (!team) REFUSE("team", "NULL");
    if (weft__is_stub_worker(team->worker)) return weft__team_stub_close(team);
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__check_close(op, false);
    if (st == WEFT_OK && team->associated)
        return weft__fail(WEFT_ERR_BUSY, "the team is associated; disassociate it");
    return st < 0 ? st : weft__team_close(team, op);
}

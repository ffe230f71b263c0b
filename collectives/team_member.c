/* The other members as a team has them: an endpoint to each, opened on first use, and a machine. */
#include <base/counters.h>
#include <base/log.h>

#include "agreement.h"
#include "collective.h"
#include "team.h"

/* ---- endpoints ------------------------------------------------------------------------------- */

static uint32_t rank_of(const struct member *member) {
    return (uint32_t)(member - member->team->member);
}

static void ep_up(weft_ep_t *ep, void *arg) {
    ((struct member *)arg)->up = true;
}

static void ep_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct member *member = arg;
    weft_team_t *team = member->team;
    if (rank_of(member) == team->rank) return;
    member->why = status;
    if (status != WEFT_ERR_CLOSED && status == weft__worker_end_status(team->opener))
        weft__team_unworked(team, status);
    weft__fsm_step(&member->core.fsm,
                   status == WEFT_ERR_PEER_CLOSED ? MEMBER_EV_ENDED : MEMBER_EV_CUT);
}

static void ep_closed(weft_status_t status, void *arg) {
    weft_team_t *team = arg;
    team->n_eps--;
    weft__team_settle(team);
}

static weft_status_t open_ep(weft_team_t *team, uint32_t rank) {
    struct member *member = &team->member[rank];
    const struct member_record *record = &team->record[rank];
    weft_ep_params_t params = {.on_ready = ep_up, .on_error = ep_lost, .arg = member};
    weft_status_t st = weft_connect_address(team->opener, record->address, record->address_len,
                                            &params, &member->ep);
    if (st < 0) return st;
    member->ep->owned = true;
    team->n_eps++;
    return WEFT_OK;
}

weft_ep_t *weft__team_ep(weft_team_t *team, uint32_t rank) {
    if (rank >= team->size || !team->id) return NULL;
    struct member *member = &team->member[rank];
    if (!member->ep && !member->lost && team_is_open(&team->core.fsm)) {
        weft_status_t st = open_ep(team, rank);
        if (st < 0) {
            member->why = st;
            member->lost = weft__team_outcome(st) == WEFT_ERR_PEER_FAILED;
            char why[STATUS_LINE];
            weft__status_line(st, why);
            weft__log(team->worker->context, WEFT_LOG_WARN, "collectives",
                      "rank %u cannot be reached: %s", rank, why);
        }
    }
    return member->ep;
}

/* As recursive doubling does. */
void weft__team_connect(weft_team_t *team) {
    for (uint32_t bit = 1; bit < team->size; bit *= 2) {
        uint32_t rank = team->rank ^ bit;
        if (rank < team->size && !weft__team_ep(team, rank) && team->status == WEFT_OK)
            weft__team_loses(team, rank, team->member[rank].why);
    }
}

void weft__team_close_eps(weft_team_t *team) {
    for (uint32_t r = 0; r < team->size; r++) {
        weft_ep_t *ep = team->member[r].ep;
        if (!ep) continue;
        team->member[r].ep = NULL;
        ep->owned = false;
        /* Who never answered, in a team that never was, need not be waited for. */
        bool flush = team->member[r].up || team->all_came || team->warns;
        weft_status_t st = weft_ep_close(ep, flush ? WEFT_CLOSE_FLUSH : WEFT_CLOSE_ABORT,
                                         &(weft_op_t){.done = ep_closed, .arg = team});
        if (st != WEFT_IN_PROGRESS) team->n_eps--;
    }
}

/* ---- another member's machine ---------------------------------------------------------------- */

static void go_on_without(weft_team_t *team, uint32_t rank) {
    weft__collectives_without(team, rank);
    weft__agreements_go_on(team);
    weft__team_settle(team);
}

static void lose_member(weft_team_t *team, struct member *member) {
    member->lost = true;
    weft__team_loses(team, rank_of(member), member->why);
    weft__agreements_go_on(team);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct member *member = list_of(m, struct member, core.fsm);
    switch ((enum member_effect)effect) {
    case MEMBER_FX_WITHOUT: go_on_without(member->team, rank_of(member)); break;
    case MEMBER_FX_SETTLE: weft__team_settle(member->team); break;
    case MEMBER_FX_LOSE: lose_member(member->team, member); break;
    case MEMBER_N_EFFECTS: break;
    }
}

/* An answer that this side did not ask for would hide a death. */
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    weft_team_t *team = list_of(m, struct member, core.fsm)->team;
    bool theirs = why == FSM_VIOL;
    weft__log(team->worker->context, theirs ? WEFT_LOG_WARN : WEFT_LOG_ERROR, "collectives",
              "rank %u: %s in %s", m->id, weft__member_machine.event_name[event],
              fsm_state_name(m));
    if (theirs) weft__count(team->reactor)->violations++;
}

static const struct fsm_port port = {&weft__member_machine, on_effect, on_fail};

void weft__team_init_members(weft_team_t *team) {
    for (uint32_t r = 0; r < team->size; r++) {
        team->member[r].team = team;
        fsm_init(&team->member[r].core.fsm, &port, MEMBER_HERE, r);
    }
}

/*
 * The endpoints of a team, opened on first use, and how a member leaves in good order: its LEAVE is
 * answered when all that it sent has arrived, and passed on to members that it does not talk with.
 */
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
    if (rank_of(member) == member->team->rank) return;
    member->why = status;
    weft__fsm_step(&member->core.fsm,
                   status == WEFT_ERR_PEER_CLOSED ? MEMBER_EV_ENDED : MEMBER_EV_CUT);
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

/* ---- leaving in good order ------------------------------------------------------------------- */

static size_t notified_bytes(const weft_team_t *team) {
    return (team->size + 7) / 8;
}
static bool is_notified(const uint8_t *notified, uint32_t rank) {
    return notified[rank / 8] >> rank % 8 & 1;
}

static void release_member(weft_team_t *team, struct member *member) {
    weft_ep_t *ep = weft__idmap_find(&team->worker->eps, member->leave_ep);
    member->leave_ep = 0;
    team->n_outstanding--;
    /* A member that closed its end, too, waits for nothing. */
    if (ep) weft__team_release(team->registry, ep, team->id, team->epoch, team->rank);
}

void weft__team_answer(weft_team_t *team) {
    for (uint32_t r = 0; r < team->size && team->n_outstanding; r++) {
        struct member *member = &team->member[r];
        if (member->leave_ep && !weft__collectives_await(team, r)) release_member(team, member);
    }
}

/* With the bits of the members that learn of it from the one that leaves. */
static void send_notified(weft_team_t *team, enum coll_wire_id id, uint32_t to, uint32_t leaves,
                          const uint8_t *notified) {
    struct coll_wire wire = {
        .team = team->id, .epoch = team->epoch, .seq = leaves, .from = team->rank};
    weft__coll_send_copy(team->registry, team->member[to].ep, id, &wire, notified,
                         notified_bytes(team));
}

/* To members that this side talks with: they may have no endpoint to the one that has left. */
static void pass_on(weft_team_t *team, uint32_t rank, const uint8_t *notified) {
    for (uint32_t r = 0; r < team->size; r++)
        if (r != team->rank && !is_notified(notified, r) && team->member[r].ep &&
            !member_is_gone(&team->member[r]))
            send_notified(team, COLL_WIRE_LEFT, r, rank, notified);
}

void weft__team_left_elsewhere(weft_team_t *team, uint32_t rank, const uint8_t *notified,
                               size_t len) {
    bool valid = rank < team->size && rank != team->rank && notified && len == notified_bytes(team);
    /* Its own word comes, behind all that it said. */
    if (!valid || is_notified(notified, team->rank) || member_is_gone(&team->member[rank])) return;
    weft__fsm_step(&team->member[rank].core.fsm, MEMBER_EV_LEAVE);
    if (team_is_ready(&team->core.fsm)) pass_on(team, rank, notified);
}

void weft__team_left(weft_team_t *team, uint32_t rank, const weft_ep_t *ep, const uint8_t *notified,
                     size_t len) {
    struct member *member = &team->member[rank];
    if (!member->leave_ep) team->n_outstanding++;
    member->leave_ep = weft__ep_id(ep);
    weft__fsm_step(&member->core.fsm, MEMBER_EV_LEAVE);
    weft__team_answer(team);
    if (notified && len == notified_bytes(team) && team_is_ready(&team->core.fsm))
        pass_on(team, rank, notified);
}

void weft__team_released(weft_team_t *team, uint32_t rank) {
    weft__fsm_step(&team->member[rank].core.fsm, MEMBER_EV_RELEASE);
}

/* A member that leaves too has finished its collectives: it has received everything. */
bool weft__team_all_released(const weft_team_t *team) {
    for (uint32_t r = 0; r < team->size; r++) {
        const struct member *member = &team->member[r];
        if (r != team->rank && member->ep && !member_may_end(&member->core.fsm)) return false;
    }
    return true;
}

/* Members that do not answer hold a close up for as long as any other step of it. */
void weft__team_await_release(weft_team_t *team) {
    uint64_t timeout_ns =
        weft__setting_u64(team->worker->context, SETTING_CLOSE_TIMEOUT) * NS_PER_MS;
    weft_status_t st =
        weft__timer_start(team->reactor, &team->deadline, weft__now(team->reactor) + timeout_ns);
    if (st < 0) weft__fsm_step(&team->core.fsm, TEAM_EV_FAIL);
    weft__team_settle(team);
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

/* Everybody's own endpoint to this member stays open without this word, for it is not the one
 * that is closed here. */
void weft__team_send_leave(weft_team_t *team) {
    if (!team->id) return;
    uint8_t *notified = weft__alloc(team, notified_bytes(team), "notified");
    for (uint32_t r = 0; notified && r < team->size; r++)
        if (r == team->rank || team->member[r].ep) notified[r / 8] |= (uint8_t)(1 << r % 8);
    for (uint32_t r = 0; r < team->size; r++) {
        struct member *member = &team->member[r];
        if (r == team->rank) continue;
        /* A member that left before waits for its answer alone. One that is lost waits for
         * nothing. */
        if (member->leave_ep) {
            release_member(team, member);
        } else if (member->ep && !member_is_gone(member)) {
            weft__fsm_step(&member->core.fsm, MEMBER_EV_ASK);
            if (notified)
                send_notified(team, COLL_WIRE_LEAVE, r, r, notified);
            else
                weft__coll_send(team, r, &(struct coll_message){.id = COLL_WIRE_LEAVE, .seq = r});
        }
    }
    talloc_free(notified);
}

void weft__team_close_eps(weft_team_t *team) {
    for (uint32_t r = 0; r < team->size; r++) {
        weft_ep_t *ep = team->member[r].ep;
        if (!ep) continue;
        team->member[r].ep = NULL;
        ep->owned = false;
        /* Who never answered, in a team that never was, need not be waited for. */
        bool flush = team->member[r].up || team->all_came;
        weft_status_t st = weft_ep_close(ep, flush ? WEFT_CLOSE_FLUSH : WEFT_CLOSE_ABORT,
                                         &(weft_op_t){.done = ep_closed, .arg = team});
        if (st != WEFT_IN_PROGRESS) team->n_eps--;
    }
}

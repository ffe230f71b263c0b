/*
 * How a member leaves in good order: its LEAVE is answered when all that it sent has arrived, and
 * passed on to members that it does not talk with.
 */
#include "collective.h"
#include "team.h"

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

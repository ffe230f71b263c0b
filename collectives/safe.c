/*
 * A collective, then an agreement about its outcome. The agreed word has a bit for each status: one
 * that any member had is 0 for all. So all members that are left choose the same one.
 */
#include "safe.h"

#include "agreement.h"

struct safe {
    weft_team_t *team;
    weft_op_t op;    /* the program's */
    weft_op_t inner; /* the collective's */
};

/* If members had several, the first of these is the outcome, or else that of the lowest number. */
static const weft_status_t before_others[] = {WEFT_ERR_REVOKED, WEFT_ERR_PEER_FAILED,
                                              WEFT_ERR_TIMED_OUT, WEFT_ERR_CANCELLED};

static bool occurred(uint64_t word, weft_status_t status) {
    return !(word >> -(int)status & 1);
}

static weft_status_t outcome_of(uint64_t word) {
    for (size_t i = 0; i < sizeof before_others / sizeof *before_others; i++)
        if (occurred(word, before_others[i])) return before_others[i];
    for (int status = -1; status >= WEFT_STATUS_LAST; status--)
        if (occurred(word, (weft_status_t)status)) return (weft_status_t)status;
    return WEFT_OK;
}

static void end_safe(struct safe *safe, weft_status_t status) {
    weft_team_t *team = safe->team;
    weft_op_t op = safe->op;
    team->is_safe = false;
    weft__team_settle(team);
    talloc_free(safe);
    if (status < 0)
        weft__fail(status, "the members agreed that the collective failed%s%s",
                   team->why[0] ? ": " : "", team->why);
    if (op.done) op.done(status, op.arg);
}

static uint32_t first_lost(const weft_team_t *team, const uint8_t *lost) {
    for (uint32_t r = 0; r < team->size; r++)
        if (agreement_has(lost, r)) return r;
    return team->rank;
}

static void agreed(weft_status_t status, uint64_t word, const uint8_t *lost, const uint8_t *blobs,
                   void *arg) {
    struct safe *safe = arg;
    weft_team_t *team = safe->team;
    if (status == WEFT_OK) {
        status = outcome_of(word);
        if (status < 0 && team->status == WEFT_OK)
            weft__team_fail(team, status, first_lost(team, lost));
    }
    end_safe(safe, status);
}

/* This member's outcome is known; one that closes its team takes part in no agreement. */
static weft_status_t agree(struct safe *safe, weft_status_t status) {
    struct agreement_call call = {.flags = status < 0 ? ~(1ull << -(int)status) : UINT64_MAX,
                                  .deadline_ms = safe->op.deadline_ms,
                                  .done = agreed,
                                  .arg = safe};
    return weft__agreement_start(safe->team, &call);
}

static void safe_ended(weft_status_t status, void *arg) {
    struct safe *safe = arg;
    weft_status_t st = agree(safe, status);
    if (st < 0) end_safe(safe, status < 0 ? status : st);
}

weft_status_t weft__safe_new(weft_team_t *team, const weft_op_t *op, struct safe **safe_p,
                             const weft_op_t **op_p) {
    if (op->request_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "op->request_p: a collective with WEFT_COLL_SAFE is not cancelled");
    if (op->completion)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->completion: a collective with WEFT_COLL_SAFE reports by op->done");
    if (team->is_safe || weft__agreements_busy(team))
        return weft__fail(WEFT_ERR_BUSY, "another agreement of the members is in progress");
    /* One that cannot agree must not begin: the others would agree without it. */
    weft_status_t st = weft__agreement_reserve(team, 0);
    if (st < 0) return st;
    struct safe *safe = weft__new(team, struct safe);
    if (!safe) {
        weft__agreement_unreserve(team);
        return WEFT_ERR_NO_MEMORY;
    }
    safe->team = team;
    safe->op = safe->inner = *op;
    safe->inner.done = safe_ended;
    safe->inner.arg = safe;
    safe->inner.flags &= ~(uint32_t)WEFT_COLL_SAFE;
    *safe_p = safe;
    *op_p = &safe->inner;
    return WEFT_OK;
}

/* A team that has failed refuses the collective. Others may be in it already, and agree about its
 * outcome, so this member agrees with them. */
weft_status_t weft__safe_begun(struct safe *safe, weft_status_t status) {
    bool refused = status < 0 && safe->team->status < 0;
    if (status == WEFT_OK) status = agree(safe, WEFT_OK);
    if (refused && agree(safe, status) == WEFT_IN_PROGRESS) status = WEFT_IN_PROGRESS;
    safe->team->is_safe = status == WEFT_IN_PROGRESS;
    if (status == WEFT_IN_PROGRESS) return status;
    weft__agreement_unreserve(safe->team);
    talloc_free(safe);
    return status;
}

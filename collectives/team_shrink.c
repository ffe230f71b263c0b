/*
 * Agreeing as a program asks for it, and a team of the members that are left: one agreement names
 * them, and a second one is the exchange of the new team.
 */
#include <base/check.h>
#include <string.h>

#include "agreement.h"
#include "collective.h"
#include "no_team.h"

/* ---- agreeing -------------------------------------------------------------------------------- */

/* As the program asks for it: a safe collective is to make the next one. */
static weft_status_t begin_agreement(weft_team_t *team, const struct agreement_call *call) {
    if (team->is_safe)
        return weft__fail(WEFT_ERR_BUSY, "a collective with WEFT_COLL_SAFE is in progress");
    return weft__agreement_start(team, call);
}

struct asked_word {
    weft_team_t *team;
    uint64_t *flags_p, *lost;
    weft_op_t op;
};

static void answered(weft_status_t status, uint64_t flags, const uint8_t *lost,
                     const uint8_t *blobs, void *arg) {
    struct asked_word *q = arg;
    weft_op_t op = q->op;
    if (status == WEFT_OK) {
        *q->flags_p = flags;
        if (q->lost) memset(q->lost, 0, (q->team->size + 63) / 64 * sizeof *q->lost);
        for (uint32_t r = 0; q->lost && r < q->team->size; r++)
            if (agreement_has(lost, r)) q->lost[r / 64] |= 1ull << r % 64;
    }
    talloc_free(q);
    if (op.done) op.done(status, op.arg);
}

weft_status_t weft_team_agree(weft_team_t *team, uint64_t *flags_p, uint64_t *lost,
                              const weft_op_t *op) {
    if (!team) REFUSE("team", "NULL");
    if (!flags_p) REFUSE("flags_p", "NULL");
    if (op && op->request_p) REFUSE("op->request_p", "an agreement is not cancelled");
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__check_plain_op(op, 0);
    if (st < 0) return st;
    struct asked_word *q = weft__new(team, struct asked_word);
    if (!q) return WEFT_ERR_NO_MEMORY;
    *q = (struct asked_word){.team = team, .flags_p = flags_p, .lost = lost};
    if (op) q->op = *op;
    st = begin_agreement(
        team, &(struct agreement_call){
                  .flags = *flags_p, .deadline_ms = q->op.deadline_ms, .done = answered, .arg = q});
    if (st < 0) talloc_free(q);
    return st;
}

/* ---- shrinking ------------------------------------------------------------------------------- */

struct shrink {
    weft_team_t *old; /* closed by the program after on_ready */
    struct reactor *reactor;
    weft_team_params_t params;
    weft_exchange_t exchange;
    uint32_t *rank; /* in the old team, of each member of the new one */
    uint8_t *all;   /* where the exchange puts the records */
    bool cancelled;
    struct no_team none; /* there is no new team here, though the others make one */
    weft_done_fn done;
    void *done_arg;
};

static const char shrinking[] = "shrinking a team";

/* There is no team. */
static void end_shrink(struct shrink *s, weft_status_t status) {
    weft_team_params_t params = s->params;
    weft__no_team(&s->none, status);
    weft__no_team_explain(&s->none, shrinking);
    weft__free_later(s->reactor, s);
    params.on_ready(NULL, status, params.arg);
}

static void exchanged(weft_status_t status, uint64_t flags, const uint8_t *lost,
                      const uint8_t *blobs, void *arg) {
    struct shrink *s = arg;
    for (uint32_t i = 0; i < s->exchange.size && status == WEFT_OK && !s->cancelled; i++) {
        if (agreement_has(lost, s->rank[i]))
            status = weft__fail(WEFT_ERR_PEER_FAILED, "rank %u was lost meanwhile", s->rank[i]);
        else
            memcpy(s->all + (size_t)i * MEMBER_RECORD_BYTES,
                   blobs + (size_t)s->rank[i] * MEMBER_RECORD_BYTES, MEMBER_RECORD_BYTES);
    }
    if (status < 0) (void)weft__fail_in(status, "%s", shrinking);
    if (!s->cancelled) s->done(status, s->done_arg);
    weft__free_later(s->reactor, s);
}

/* The agreement about the records ends with the creation that waits for it, so that the members may
 * shrink again then. */
static weft_status_t agree_on_records(struct shrink *s, const void *record,
                                      void (*done)(weft_status_t, uint64_t, const uint8_t *,
                                                   const uint8_t *, void *)) {
    struct agreement_call call = {.blob = record,
                                  .blob_len = MEMBER_RECORD_BYTES,
                                  .deadline_ms = s->params.deadline_ms,
                                  .done = done,
                                  .arg = s};
    if (!call.deadline_ms)
        call.deadline_ms = weft__setting_u64(s->old->worker->context, SETTING_TEAM_TIMEOUT);
    return weft__agreement_start(s->old, &call);
}

static weft_status_t exchange_records(void *arg, weft_worker_t *worker, const void *mine,
                                      size_t len, void *all, weft_done_fn done, void *done_arg) {
    struct shrink *s = arg;
    s->all = all;
    s->done = done;
    s->done_arg = done_arg;
    return agree_on_records(s, mine, exchanged);
}

/* By the agreement about the records. */
static bool shrink_missing(const weft_team_t *team, char *buf, size_t size) {
    const struct shrink *s = team->exchange.arg;
    return weft__agreement_missing(s->old, " of its parent", buf, size);
}

static void cancel_exchange(void *arg) {
    ((struct shrink *)arg)->cancelled = true;
}

static void took_part(weft_status_t status, uint64_t flags, const uint8_t *lost,
                      const uint8_t *blobs, void *arg) {
    struct shrink *s = arg;
    end_shrink(s, s->none.status);
}

/* The others may agree about their records. They end by their deadline, and this member's next
 * agreement is theirs. */
static void end_without_records(struct shrink *s, weft_status_t status) {
    weft__agreement_skip(s->old);
    end_shrink(s, status);
}

/* This member has no team, and takes part for the others. An empty record is malformed: their teams
 * fail at once, and all members are in the same agreement afterwards. */
static void take_part(struct shrink *s, weft_status_t status) {
    static const uint8_t none[MEMBER_RECORD_BYTES];
    weft__no_team(&s->none, status);
    if (agree_on_records(s, none, took_part) < 0) end_without_records(s, status);
}

/* All that are left know the same members: they make the new team. */
static void members_agreed(weft_status_t status, uint64_t flags, const uint8_t *lost,
                           const uint8_t *blobs, void *arg) {
    struct shrink *s = arg;
    weft_team_t *team;
    if (status < 0) {
        end_without_records(s, status);
        return;
    }
    for (uint32_t r = 0; r < s->old->size; r++) {
        if (agreement_has(lost, r)) continue;
        if (r == s->old->rank) s->exchange.rank = s->exchange.size;
        s->rank[s->exchange.size++] = r;
    }
    s->exchange.allgather = exchange_records;
    s->exchange.cancel = cancel_exchange;
    s->exchange.arg = s;
    s->params.exchange = &s->exchange;
    weft__causes_clear();
    weft_status_t st = weft__team_create(s->old->opener, &s->params, s->old->epoch + 1, &team);
    if (st < 0)
        take_part(s, st);
    else
        team->missing = shrink_missing;
}

weft_status_t weft_team_shrink_sized(size_t params_size, weft_team_t *team,
                                     const weft_team_params_t *params) {
    weft_team_params_t known;
    if (!team) REFUSE("team", "NULL");
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__team_params_read(&known, params, params_size);
    if (st < 0) return st;
    struct shrink *s = weft__new(team->reactor, struct shrink);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->old = team;
    s->reactor = team->reactor;
    s->params = known;
    s->rank = weft__alloc(s, team->size * sizeof *s->rank, "ranks");
    st = s->rank ? begin_agreement(team, &(struct agreement_call){.flags = UINT64_MAX,
                                                                  .deadline_ms = known.deadline_ms,
                                                                  .done = members_agreed,
                                                                  .arg = s})
                 : WEFT_ERR_NO_MEMORY;
    if (st == WEFT_IN_PROGRESS) return WEFT_OK;
    talloc_free(s);
    return st;
}

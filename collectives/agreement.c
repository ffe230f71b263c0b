/*
 * Agreement by a coordinator that may die. All that a later coordinator needs to know is what the
 * members that are left hold: a value is decided only when all of them hold it. So if one member
 * received a decision, every later coordinator finds that value among the contributions. It
 * proposes it again. Of several values that are held the one of the latest coordinator counts. It
 * rests on this: a member whose endpoint is lost is lost, and a member that learns it passes it on.
 */
#include "agreement.h"

#include <base/counters.h>
#include <endpoints/core/cause.h>
#include <endpoints/messages/am.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective.h"
#include "missing.h"

struct value {
    uint64_t flags;
    uint32_t ballot; /* rank of its coordinator, plus one; 0: no proposal */
    uint8_t *lost, *blobs;
};

struct agreement {
    struct agreement_core core;
    struct list of_team;
    weft_team_t *team;
    uint32_t seq, blob_len;
    bool begun;             /* this member takes part; else messages came, or it is reserved */
    bool has_messages;      /* of the others */
    bool decided;           /* `value` is the decision */
    bool announced;         /* by this side, to all */
    uint32_t notified_rank; /* rank of the coordinator that has our word, plus one */
    uint8_t *came, *held;
    uint64_t flags;       /* of those that contributed */
    uint8_t *blobs;       /* of those that contributed */
    struct value value;   /* held here, or the best that was contributed */
    weft_status_t status; /* of the outcome */
    struct missing late;  /* at its deadline */
    struct agreement_call call;
    uint64_t begun_at, ends_at; /* UINT64_MAX: it has no deadline */
    struct timer timer;         /* for the next question, or for the deadline */
    struct job notify;
};

static size_t bits_of(const weft_team_t *team) {
    return (team->size + 7) / 8;
}
static void set_bit(uint8_t *bits, uint32_t rank) {
    bits[rank / 8] |= (uint8_t)(1 << rank % 8);
}
static bool is_left(const weft_team_t *team, uint32_t rank) {
    return !team->member[rank].lost && !member_is_gone(&team->member[rank]);
}
static uint32_t coordinator_of(const weft_team_t *team) {
    uint32_t r = 0;
    while (r != team->rank && !is_left(team, r)) r++;
    return r;
}

/* ---- on the wire: a head, a bit for each lost member, blobs ---------------------------------- */

static size_t value_bytes(const weft_team_t *team, uint32_t blob_len, bool all) {
    return AGREE_HEAD_BYTES + bits_of(team) + (size_t)blob_len * (all ? team->size : 1);
}

static size_t write_value(const struct agreement *a, uint8_t *to, const struct value *v, bool all) {
    size_t n = bits_of(a->team), len = (size_t)a->blob_len * (all ? a->team->size : 1);
    weft__agree_head_write(to, &(struct agree_head){v->flags, v->ballot, a->blob_len});
    memcpy(to + AGREE_HEAD_BYTES, v->lost, n);
    if (len) memcpy(to + AGREE_HEAD_BYTES + n, v->blobs, len);
    return AGREE_HEAD_BYTES + n + len;
}

/* A contribution: our part, whom this side has lost, and what is held here, if anything is. */
static size_t write_contribution(const struct agreement *a, uint8_t *to) {
    uint8_t *mine = a->blobs + (size_t)a->team->rank * a->blob_len;
    struct value own = {a->call.flags, 0, a->value.lost, mine};
    size_t len = write_value(a, to, &own, false);
    uint8_t *lost = to + AGREE_HEAD_BYTES;
    memset(lost, 0, bits_of(a->team));
    for (uint32_t r = 0; r < a->team->size; r++)
        if (a->team->member[r].lost) set_bit(lost, r);
    return a->value.ballot ? len + write_value(a, to + len, &a->value, true) : len;
}

static void agreement_sent(weft_status_t status, void *bytes) {
    talloc_free(bytes);
}

static void send_to(struct agreement *a, uint32_t rank, enum coll_wire_agree kind) {
    weft_team_t *team = a->team;
    size_t most = value_bytes(team, a->blob_len, false) + value_bytes(team, a->blob_len, true);
    uint8_t *bytes = weft__alloc(team->registry, most, "agreement");
    size_t len = 0;
    if (!bytes) return; /* it is sent again, or the deadline ends it */
    if (kind == AGREE_CONTRIBUTE)
        len = write_contribution(a, bytes);
    else if (kind != AGREE_CONFIRM)
        len = write_value(a, bytes, &a->value, true);
    /* One that is lost is not reached, which is no news. */
    weft_op_t op = {.done = agreement_sent, .arg = bytes};
    weft_status_t st = weft__coll_send(
        team, rank,
        &(struct coll_message){COLL_WIRE_AGREE, a->seq, kind, (weft_iov_t){bytes, len}, &op});
    if (st != WEFT_IN_PROGRESS) agreement_sent(st, bytes);
}

/* ---- going on -------------------------------------------------------------------------------- */

static bool all_have(const struct agreement *a, const uint8_t *bits) {
    for (uint32_t r = 0; r < a->team->size; r++)
        if ((r == a->team->rank || is_left(a->team, r)) && !agreement_has(bits, r)) return false;
    return true;
}

/* An endpoint to each member that the coordinator waits for: its loss ends the wait. */
static void watch_members(const struct agreement *a) {
    for (uint32_t r = 0; r < a->team->size; r++)
        if (r != a->team->rank && is_left(a->team, r) && !agreement_has(a->came, r))
            weft__team_ep(a->team, r);
}

/* Our part, or the decision; to the next one, if the coordinator turns out to be lost. */
static void notify_coordinator(struct agreement *a) {
    uint32_t coordinator = coordinator_of(a->team);
    while (coordinator != a->team->rank && a->notified_rank != coordinator + 1) {
        a->notified_rank = coordinator + 1;
        send_to(a, coordinator, a->decided ? AGREE_DECIDE : AGREE_CONTRIBUTE);
        coordinator = coordinator_of(a->team);
    }
}

/* Also to those that the others have excluded: they may still receive it. */
static void announce(struct agreement *a) {
    a->decided = a->announced = true;
    for (uint32_t r = 0; r < a->team->size; r++)
        if (r != a->team->rank) send_to(a, r, AGREE_DECIDE);
}

/* A coordinator that died may have sent its decision to some only. One that left sent it to all. */
static void pass_on_decision(struct agreement *a) {
    uint32_t coordinator = coordinator_of(a->team), lost = 0;
    for (uint32_t r = 0; r < coordinator; r++) lost += a->team->member[r].lost;
    if (!a->decided || lost == 0) return;
    notify_coordinator(a);
    if (coordinator == a->team->rank && !a->announced) announce(a);
}

/* The coordinator's step, or a word to the coordinator. */
static void go_on(struct agreement *a) {
    if (agreement_is_over(&a->core.fsm)) {
        pass_on_decision(a);
        return;
    }
    if (!a->begun) return;
    notify_coordinator(a);
    if (coordinator_of(a->team) != a->team->rank) return;
    if (agreement_collects(&a->core.fsm)) watch_members(a);
    if (agreement_collects(&a->core.fsm) && all_have(a, a->came))
        weft__fsm_step(&a->core.fsm, AGREE_EV_COLLECTED);
    if (agreement_has_proposed(&a->core.fsm) && all_have(a, a->held))
        weft__fsm_step(&a->core.fsm, AGREE_EV_CONFIRMED);
}

void weft__agreements_go_on(weft_team_t *team) {
    list_for_each_safe(at, next, &team->agreements) {
        go_on(list_of(at, struct agreement, of_team));
    }
}

/* ---- the machine's outputs ------------------------------------------------------------------- */

/* What is held somewhere may have been decided; else the value is that of those that are left. */
static void make_proposal(struct agreement *a) {
    struct value *v = &a->value;
    if (!v->ballot) {
        v->flags = a->flags;
        for (uint32_t r = 0; r < a->team->size; r++)
            if (r != a->team->rank && !is_left(a->team, r)) set_bit(v->lost, r);
        memcpy(v->blobs, a->blobs, (size_t)a->blob_len * a->team->size);
    }
    v->ballot = a->team->rank + 1;
    memset(a->held, 0, bits_of(a->team));
    set_bit(a->held, a->team->rank);
}

static void propose(struct agreement *a) {
    for (uint32_t r = 0; r < a->team->size; r++)
        if (r != a->team->rank && is_left(a->team, r)) send_to(a, r, AGREE_PROPOSE);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct agreement *a = list_of(m, struct agreement, core.fsm);
    switch ((enum agreement_effect)effect) {
    case AGREE_FX_PROPOSE:
        make_proposal(a);
        propose(a);
        break;
    case AGREE_FX_CONFIRM: send_to(a, a->value.ballot - 1, AGREE_CONFIRM); break;
    case AGREE_FX_ANNOUNCE: announce(a); break;
    case AGREE_FX_NOTIFY:
        weft__timer_release(a->team->reactor, &a->timer);
        if (a->begun) weft__job_post(a->team->reactor, &a->notify);
        break;
    case AGREE_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct agreement *a = list_of(m, struct agreement, core.fsm);
    weft__log(a->team->worker->context, WEFT_LOG_ERROR, "collectives", "agreement: %s in %s",
              weft__agreement_machine.event_name[event], fsm_state_name(m));
}

static const struct fsm_port port = {&weft__agreement_machine, on_effect, on_fail};

static bool name_missing(const struct agreement *a, const struct missing *missing, const char *of,
                         char *buf, size_t size) {
    char answers[120];
    if (!weft__missing_answers(missing, answers, sizeof answers)) return false;
    snprintf(buf, size, "agreement %" PRIu32 "%s: %s", a->seq, of, answers);
    return true;
}

static void explain(const struct agreement *a, weft_status_t status) {
    char text[CAUSE_ROOM];
    if (name_missing(a, &a->late, "", text, sizeof text))
        weft__fail(status, "%s", text);
    else
        weft__fail(status, "agreement %" PRIu32, a->seq);
}

static void agreement_report(struct job *job) {
    struct agreement *a = list_of(job, struct agreement, notify);
    weft_team_t *team = a->team;
    struct agreement_call call = a->call;
    weft_status_t status = a->status;
    if (status < 0)
        explain(a, status);
    else if (agreement_has(a->value.lost, team->rank))
        status = weft__fail(WEFT_ERR_PEER_FAILED,
                            "agreement %u: the other members take this one for lost", a->seq);
    a->call.done = NULL;
    call.done(status, a->value.flags, a->value.lost, a->value.blobs, call.arg);
    weft__program_returned(team->reactor);
    weft__team_settle(team);
}

/* ---- the deadline, and questions to those that are late -------------------------------------- */

static bool waits_for(const struct agreement *a, uint32_t rank) {
    uint32_t coordinator = coordinator_of(a->team);
    if (coordinator != a->team->rank) return rank == coordinator;
    const uint8_t *answered = agreement_has_proposed(&a->core.fsm) ? a->held : a->came;
    return rank != a->team->rank && is_left(a->team, rank) && !agreement_has(answered, rank);
}

static struct missing find_missing(const struct agreement *a) {
    struct missing missing = {.n = 0};
    for (uint32_t r = 0; r < a->team->size; r++)
        if (waits_for(a, r)) weft__missing_add(&missing, r);
    return missing;
}

bool weft__agreement_missing(const weft_team_t *team, const char *of, char *buf, size_t size) {
    list_for_each(at, &team->agreements) {
        const struct agreement *a = list_of(at, struct agreement, of_team);
        if (!a->begun) continue; /* messages of the next one came */
        struct missing missing = agreement_is_over(&a->core.fsm) ? a->late : find_missing(a);
        return name_missing(a, &missing, of, buf, size);
    }
    return false;
}

/*
 * As a collective does (late.c): one whose team is closed answers so. What a member is to have
 * received may have found no memory, here or there, so it is sent again. It changes nothing where
 * it has been received, and who has decided answers with the decision.
 */
static void ask_late(struct agreement *a) {
    bool coordinates = coordinator_of(a->team) == a->team->rank;
    for (uint32_t r = 0; r < a->team->size; r++) {
        if (!waits_for(a, r)) continue;
        if (!coordinates) {
            send_to(a, r, AGREE_CONTRIBUTE);
            if (a->value.ballot == r + 1) send_to(a, r, AGREE_CONFIRM);
        } else if (agreement_has_proposed(&a->core.fsm)) {
            send_to(a, r, AGREE_PROPOSE);
        } else {
            weft__coll_send(a->team, r, &(struct coll_message){.id = COLL_WIRE_OPEN});
        }
    }
}

/* Cannot fail: its place is reserved. */
static void start_timer(struct agreement *a, uint64_t at) {
    weft__timer_start(a->team->reactor, &a->timer, at < a->ends_at ? at : a->ends_at);
}

static void timer_fired(struct timer *timer) {
    struct agreement *a = list_of(timer, struct agreement, timer);
    uint64_t now = weft__now(a->team->reactor);
    if (now < a->ends_at) {
        ask_late(a);
        start_timer(a, 2 * now - a->begun_at);
        return;
    }
    a->late = find_missing(a);
    a->status = WEFT_ERR_TIMED_OUT;
    weft__fsm_step(&a->core.fsm, AGREE_EV_STOP);
}

void weft__agreements_stop(weft_team_t *team, weft_status_t status) {
    list_for_each_safe(at, next, &team->agreements) {
        struct agreement *a = list_of(at, struct agreement, of_team);
        if (agreement_is_over(&a->core.fsm)) continue;
        a->status = status;
        weft__fsm_step(&a->core.fsm, AGREE_EV_STOP);
    }
}

bool weft__agreements_busy(const weft_team_t *team) {
    list_for_each(at, &team->agreements) {
        const struct agreement *a = list_of(at, struct agreement, of_team);
        if (a->begun && a->call.done) return true;
    }
    return false;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum { KEPT = 2 }; /* a member that is two agreements on has the decision */

static struct agreement *find(weft_team_t *team, uint32_t seq) {
    list_for_each(at, &team->agreements) {
        struct agreement *a = list_of(at, struct agreement, of_team);
        if (a->seq == seq) return a;
    }
    return NULL;
}

static void forget_old(weft_team_t *team, uint32_t seq) {
    list_for_each_safe(at, next, &team->agreements) {
        struct agreement *a = list_of(at, struct agreement, of_team);
        if ((int32_t)(seq - a->seq) < KEPT || (a->begun && a->call.done)) continue;
        list_remove(&a->of_team);
        weft__free_later(team->reactor, a);
    }
}

static struct agreement *new_agreement(weft_team_t *team, uint32_t seq, uint32_t blob_len) {
    struct agreement *a = weft__new(team, struct agreement);
    size_t bits = bits_of(team), blobs = (size_t)blob_len * team->size + 1;
    if (!a) return NULL;
    a->team = team;
    a->seq = seq;
    a->blob_len = blob_len;
    a->flags = UINT64_MAX;
    a->came = weft__alloc(a, bits, "contributors");
    a->held = weft__alloc(a, bits, "holders");
    a->blobs = weft__alloc(a, blobs, "contributions");
    a->value.lost = weft__alloc(a, bits, "lost members");
    a->value.blobs = weft__alloc(a, blobs, "value");
    a->timer.fire = timer_fired;
    a->notify.run = agreement_report;
    fsm_init(&a->core.fsm, &port, AGREE_OPEN, seq);
    if (!a->came || !a->held || !a->blobs || !a->value.lost || !a->value.blobs) {
        talloc_free(a);
        return NULL;
    }
    forget_old(team, seq);
    list_prepend(&team->agreements, &a->of_team);
    return a;
}

static void add_contribution(struct agreement *a, uint32_t rank, uint64_t flags, const void *blob) {
    if (agreement_has(a->came, rank)) return;
    set_bit(a->came, rank);
    a->flags &= flags;
    if (a->blob_len) memcpy(a->blobs + (size_t)rank * a->blob_len, blob, a->blob_len);
}

static weft_status_t begin_timer(struct agreement *a, uint64_t ms) {
    uint64_t after = ms ? ms * NS_PER_MS : a->team->time_limit;
    weft_status_t st = weft__timer_reserve(a->team->reactor, &a->timer);
    if (st < 0) return st;
    a->begun_at = weft__now(a->team->reactor);
    a->ends_at = after ? a->begun_at + after : UINT64_MAX;
    start_timer(a, a->begun_at + (uint64_t)LATE_AFTER_S * 1000 * NS_PER_MS);
    return WEFT_OK;
}

static weft_status_t may_start(const weft_team_t *team) {
    if (!team->all_came || !team->id) return weft__fail(WEFT_ERR_BUSY, "the team is not ready");
    if (team_is_ended(&team->core.fsm)) return weft__fail(WEFT_ERR_CLOSED, "the team is closing");
    if (weft__agreements_busy(team))
        return weft__fail(WEFT_ERR_BUSY, "an agreement is in progress");
    return WEFT_OK;
}

static struct agreement *next_agreement(weft_team_t *team, uint32_t blob_len) {
    struct agreement *a = find(team, team->n_agreements);
    return a ? a : new_agreement(team, team->n_agreements, blob_len);
}

/* Nothing is reserved for one that may not start: the start says why. */
weft_status_t weft__agreement_reserve(weft_team_t *team, uint32_t blob_len) {
    if (may_start(team) < 0) return WEFT_OK;
    struct agreement *a = next_agreement(team, blob_len);
    if (!a) return WEFT_ERR_NO_MEMORY;
    weft_status_t st =
        agreement_is_over(&a->core.fsm) ? WEFT_OK : weft__timer_reserve(team->reactor, &a->timer);
    if (st < 0) weft__agreement_unreserve(team);
    return st;
}

/* One that has messages stays. */
void weft__agreement_unreserve(weft_team_t *team) {
    struct agreement *a = find(team, team->n_agreements);
    if (!a || a->begun) return;
    weft__timer_release(team->reactor, &a->timer);
    if (a->has_messages) return;
    list_remove(&a->of_team);
    talloc_free(a);
}

weft_status_t weft__agreement_start(weft_team_t *team, const struct agreement_call *call) {
    weft_status_t st = may_start(team);
    if (st < 0) return st;
    struct agreement *a = next_agreement(team, call->blob_len);
    if (!a) return WEFT_ERR_NO_MEMORY;
    if (a->blob_len != call->blob_len)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the other members agree about something else");
    bool is_over = agreement_is_over(&a->core.fsm); /* the others have excluded this member */
    st = is_over ? WEFT_OK : begin_timer(a, call->deadline_ms);
    if (st < 0) return st;
    team->n_agreements++;
    a->call = *call;
    a->begun = true;
    add_contribution(a, team->rank, call->flags, call->blob);
    if (is_over)
        weft__job_post(team->reactor, &a->notify);
    else
        go_on(a);
    return WEFT_IN_PROGRESS;
}

void weft__agreement_skip(weft_team_t *team) {
    team->n_agreements++;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A value of another; NULL: malformed. Once the length of a blob is known all lengths are. */
static const uint8_t *read_value(const struct agreement *a, const uint8_t *p, const uint8_t *end,
                                 bool all, struct value *v) {
    size_t len = value_bytes(a->team, a->blob_len, all), here = (size_t)(end - p);
    struct agree_head head;
    if (!weft__agree_head_read(p, here, &head) || here < len || head.blob_len != a->blob_len)
        return NULL;
    v->flags = head.flags;
    v->ballot = head.ballot;
    v->lost = (uint8_t *)p + AGREE_HEAD_BYTES;
    v->blobs = v->lost + bits_of(a->team);
    return v->ballot > a->team->size ? NULL : p + len;
}

static void take_value(struct agreement *a, const struct value *v) {
    a->value.flags = v->flags;
    a->value.ballot = v->ballot;
    memcpy(a->value.lost, v->lost, bits_of(a->team));
    if (a->blob_len) memcpy(a->value.blobs, v->blobs, (size_t)a->blob_len * a->team->size);
}

/* What one has lost, all have: so that all wait for the same members. */
static void learn_lost(struct agreement *a, const uint8_t *lost) {
    for (uint32_t r = 0; r < a->team->size; r++)
        if (r != a->team->rank && agreement_has(lost, r)) a->team->member[r].lost = true;
}

static bool contributed(struct agreement *a, uint32_t from, const uint8_t *p, const uint8_t *end) {
    struct value own, held;
    p = read_value(a, p, end, false, &own);
    if (!p) return false;
    if (p < end) {
        if (!read_value(a, p, end, true, &held)) return false;
        if (held.ballot > a->value.ballot) take_value(a, &held);
    }
    if (a->decided) {
        send_to(a, from, AGREE_DECIDE);
        return true;
    }
    learn_lost(a, own.lost);
    add_contribution(a, from, own.flags, own.blobs);
    return true;
}

static bool handle_message(struct agreement *a, const struct coll_wire *wire, const uint8_t *p,
                           size_t len) {
    struct value v;
    if (wire->tag == AGREE_CONTRIBUTE) return contributed(a, wire->from, p, p + len);
    if (wire->tag == AGREE_CONFIRM) {
        set_bit(a->held, wire->from);
        return true;
    }
    if (wire->tag > AGREE_DECIDE || !read_value(a, p, p + len, true, &v) || !v.ballot) return false;
    if (wire->tag == AGREE_PROPOSE) {
        if (a->decided) send_to(a, wire->from, AGREE_DECIDE);
        if (v.ballot != wire->from + 1 || !is_left(a->team, wire->from)) return true;
        if (agreement_has_proposed(&a->core.fsm) || agreement_is_over(&a->core.fsm)) return true;
        learn_lost(a, v.lost);
        take_value(a, &v);
        weft__fsm_step(&a->core.fsm, AGREE_EV_PROPOSAL);
        return true;
    }
    if (!agreement_is_over(&a->core.fsm)) take_value(a, &v);
    if (!agreement_is_over(&a->core.fsm)) a->decided = true;
    weft__fsm_step(&a->core.fsm, AGREE_EV_DECISION);
    return true;
}

static void deliver(weft_team_t *team, const struct coll_wire *wire, const uint8_t *p, size_t len) {
    struct agreement *a = find(team, wire->seq);
    struct agree_head head;
    if (!a && weft__agree_head_read(p, len, &head) && wire->seq == team->n_agreements &&
        head.blob_len <= MEMBER_RECORD_BYTES)
        a = new_agreement(team, wire->seq, head.blob_len);
    if (!a) {
        weft__count(team->reactor)->coll_dropped++; /* of one that all have left behind */
        return;
    }
    a->has_messages = true;
    if (!handle_message(a, wire, p, len)) {
        weft__count(team->reactor)->violations++;
        return;
    }
    go_on(a);
}

/* A long one that was offered. It comes, or ends, while the worker is there: longer than its
 * teams. */
struct incoming {
    struct list of_registry;
    struct team_registry *registry; /* NULL: gone, with its teams */
    struct coll_wire wire;
    size_t len;
    uint8_t bytes[];
};

static void agreement_received(weft_status_t status, void *arg) {
    struct incoming *in = arg;
    struct team_registry *registry = status < 0 ? NULL : in->registry;
    list_remove(&in->of_registry);
    if (registry) {
        list_for_each(at, &registry->teams) {
            weft_team_t *team = list_of(at, weft_team_t, of_registry);
            if (team->id != in->wire.team) continue;
            deliver(team, &in->wire, in->bytes, in->len);
            break;
        }
    }
    talloc_free(in);
}

void weft__agreements_forget(struct team_registry *registry) {
    list_for_each_safe(at, next, &registry->incoming) {
        list_of(at, struct incoming, of_registry)->registry = NULL;
        list_remove(at);
    }
}

static uint32_t incoming_of(const weft_team_t *team, uint32_t rank) {
    uint32_t n = 0;
    list_for_each(at, &team->registry->incoming) {
        const struct incoming *in = list_of(at, struct incoming, of_registry);
        n += in->wire.team == team->id && in->wire.from == rank;
    }
    return n;
}

void weft__agreement_message(weft_team_t *team, const struct coll_wire *wire, weft_am_t *am) {
    if (am->data || !am->len) {
        deliver(team, wire, am->data, am->len);
        return;
    }
    size_t most = 2 * value_bytes(team, MEMBER_RECORD_BYTES, true);
    if (am->len > most || incoming_of(team, wire->from) == AGREE_INCOMING_MOST) {
        weft__count(team->reactor)->violations++;
        return;
    }
    struct incoming *in = weft__alloc(team->reactor, sizeof *in + am->len, "agreement");
    if (!in) {
        weft__count(team->reactor)->coll_dropped++;
        return;
    }
    in->registry = team->registry;
    list_append(&team->registry->incoming, &in->of_registry);
    in->wire = *wire;
    in->len = am->len;
    weft_iov_t iov = {in->bytes, am->len};
    weft_status_t st =
        weft_am_recv(am, &iov, 1, &(weft_op_t){.done = agreement_received, .arg = in});
    if (st != WEFT_IN_PROGRESS) agreement_received(st, in);
}

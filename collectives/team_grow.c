/*
 * A team that grows. One member, the inviter, has the workers that ask to join as its joiners
 * (joiner.fsm). The exchange of the new team is, at the old members: an allgather of their records,
 * then a bcast of the inviter's, which has those of the joiners. The inviter sends the joiners all.
 */
#include <base/counters.h>
#include <stdio.h>
#include <string.h>

#include "collective.h"
#include "joining.h"
#include "missing.h"
#include "no_team.h"

struct joiner {
    struct joiner_core core;
    struct list of_team;
    weft_team_t *team;
    weft_ep_t *ep;
    uint32_t number;
    uint32_t place; /* among those that are taken */
    uint8_t *record;
};

/* What the inviter sends to all: a status, then the records of the joiners. */
enum { VERDICT_BYTES = 8 };

struct team_grow {
    weft_team_t *old;  /* lives while one of its collectives, or this, is in progress */
    weft_team_t *team; /* the new one, until this is over; NULL: it was over at once, or is alone */
    struct reactor *reactor;
    weft_team_params_t params;
    weft_exchange_t exchange;
    uint32_t inviter, n; /* joiners that it takes */
    uint32_t n_taken, n_ready;
    bool gathered, sent; /* the old members' records are there; the joiners' are on their way */
    bool alone;          /* there is no new team here, and this side takes part for the others */
    bool cancelled;
    struct no_team none; /* the inviter's part; and a new team that could not be made */
    uint8_t *record, *records, *verdict;
    uint8_t *to;
    weft_done_fn done;
    void *done_arg;
    struct job notify;
};

/* ---- joiners --------------------------------------------------------------------------------- */

static void send_to_joiner(const struct joiner *joiner, enum coll_wire_id id, weft_status_t status,
                           const void *bytes, size_t len) {
    weft_team_t *team = joiner->team;
    struct coll_wire wire = {
        .team = team->id, .epoch = team->epoch, .seq = joiner->number, .tag = (uint32_t)status};
    if (id == COLL_WIRE_WELCOME && status == WEFT_OK) {
        wire.from = team->size + joiner->place;
        wire.stream = team->growing->exchange.size;
    }
    weft__coll_send_copy(team->registry, joiner->ep, id, &wire, bytes, len);
}

static void joiner_closed(weft_status_t status, void *arg) {
    struct joiner *joiner = arg;
    weft_team_t *team = joiner->team;
    team->n_eps--;
    weft__free_later(team->reactor, joiner);
    weft__team_settle(team);
}

static void close_joiner(struct joiner *joiner) {
    weft_op_t op = {.done = joiner_closed, .arg = joiner};
    list_remove(&joiner->of_team);
    joiner->team->n_joiners--;
    if (weft_ep_close(joiner->ep, WEFT_CLOSE_FLUSH, &op) != WEFT_IN_PROGRESS)
        joiner_closed(WEFT_OK, joiner);
}

static void go_on(struct team_grow *g);

static void answer_joiner(struct joiner *joiner) {
    const struct team_grow *g = joiner->team->growing;
    if (!joiner->record || !g) /* it waited in vain */
        send_to_joiner(joiner, COLL_WIRE_WELCOME, WEFT_ERR_CLOSED, NULL, 0);
    else if (g->none.status < 0)
        send_to_joiner(joiner, COLL_WIRE_RECORDS, g->none.status, NULL, 0);
    else
        send_to_joiner(joiner, COLL_WIRE_RECORDS, WEFT_OK, g->records,
                       (size_t)g->exchange.size * MEMBER_RECORD_BYTES);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct joiner *joiner = list_of(m, struct joiner, core.fsm);
    struct team_grow *g = joiner->team->growing;
    switch ((enum joiner_effect)effect) {
    case JOINER_FX_WELCOME: send_to_joiner(joiner, COLL_WIRE_WELCOME, WEFT_OK, NULL, 0); break;
    case JOINER_FX_COUNT:
        g->n_ready++;
        go_on(g);
        break;
    case JOINER_FX_LOST:
        if (g->none.status == WEFT_OK && !g->sent)
            weft__no_team(&g->none,
                          weft__fail(WEFT_ERR_PEER_FAILED, "a worker that joins was lost"));
        go_on(g);
        break;
    case JOINER_FX_ANSWER: answer_joiner(joiner); break;
    case JOINER_FX_CLOSE: close_joiner(joiner); break;
    case JOINER_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct joiner *joiner = list_of(m, struct joiner, core.fsm);
    weft__log(joiner->team->worker->context, WEFT_LOG_WARN, "collectives", "joiner: %s in %s",
              weft__joiner_machine.event_name[event], fsm_state_name(m));
    if (why == FSM_VIOL) weft__count(joiner->team->reactor)->violations++;
}

static const struct fsm_port port = {&weft__joiner_machine, on_effect, on_fail};

static void joiner_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft__fsm_step(&((struct joiner *)arg)->core.fsm, JOINER_EV_GONE);
}

/* Takes those that wait, in the order in which they came. */
static void take_joiners(struct team_grow *g) {
    list_for_each_safe(at, next, &g->old->joiners) {
        struct joiner *joiner = list_of(at, struct joiner, of_team);
        if (g->n_taken == g->n || g->sent) return;
        if (!joiner_is_waiting(&joiner->core.fsm)) continue;
        joiner->place = g->n_taken++;
        joiner->record = g->verdict + VERDICT_BYTES + (size_t)joiner->place * MEMBER_RECORD_BYTES;
        weft__fsm_step(&joiner->core.fsm, JOINER_EV_TAKE);
    }
}

void weft__grow_stop(weft_team_t *team) {
    struct team_grow *g = team->growing;
    list_for_each_safe(at, next, &team->joiners) {
        struct joiner *joiner = list_of(at, struct joiner, of_team);
        if (!joiner_is_taken(&joiner->core.fsm)) weft__fsm_step(&joiner->core.fsm, JOINER_EV_END);
    }
    if (!g || g->sent) return;
    if (g->none.status == WEFT_OK) weft__no_team(&g->none, weft__team_usable(team));
    go_on(g);
}

/* ---- the end of growing ---------------------------------------------------------------------- */

static const char growing[] = "growing a team";

static void release_joiners(struct team_grow *g) {
    list_for_each_safe(at, next, &g->old->joiners) {
        struct joiner *joiner = list_of(at, struct joiner, of_team);
        if (joiner_is_taken(&joiner->core.fsm)) weft__fsm_step(&joiner->core.fsm, JOINER_EV_END);
    }
}

static void notify_grow(struct job *job) {
    struct team_grow *g = list_of(job, struct team_grow, notify);
    weft_team_params_t params = g->params;
    struct reactor *reactor = g->reactor;
    weft_status_t status = g->none.status;
    weft__no_team_explain(&g->none, growing);
    weft__free_later(reactor, g);
    params.on_ready(NULL, status, params.arg);
    weft__program_returned(reactor);
}

static void end_grow(struct team_grow *g, weft_status_t status) {
    weft_team_t *old = g->old;
    if (status < 0) weft__no_team(&g->none, status);
    release_joiners(g);
    old->is_parent = false;
    old->growing = NULL;
    if (g->team) weft__team_hold_notice(g->team, false);
    if (g->alone) {
        weft__job_post(g->reactor, &g->notify);
    } else {
        if (!g->cancelled && status == WEFT_OK)
            memcpy(g->to, g->records, (size_t)g->exchange.size * MEMBER_RECORD_BYTES);
        if (status < 0) weft__no_team_explain(&g->none, growing);
        if (!g->cancelled) g->done(status, g->done_arg);
        weft__free_later(g->reactor, g);
    }
    weft__team_settle(old);
}

/* "1 of 3 workers that join have come; rank 5 was welcomed, and has not answered". */
static void write_joiners(const struct team_grow *g, char *buf, size_t size) {
    struct missing silent = {.n = 0};
    char ranks[80];
    size_t used =
        (size_t)snprintf(buf, size, "%u of %u workers that join have come", g->n_ready, g->n);
    list_for_each(at, &g->old->joiners) {
        const struct joiner *joiner = list_of(at, struct joiner, of_team);
        if (joiner_lacks_record(&joiner->core.fsm))
            weft__missing_add(&silent, g->old->size + joiner->place);
    }
    if (!silent.n || used >= size) return;
    weft__missing_write(&silent, ranks, sizeof ranks);
    snprintf(buf + used, size - used, "; %s %s welcomed, and %s not answered", ranks,
             silent.n > 1 ? "were" : "was", silent.n > 1 ? "have" : "has");
}

static bool waits_for_joiners(const struct team_grow *g) {
    return g->old->rank == g->inviter && g->gathered && !g->sent;
}

/* Members by the collective in progress; the inviter then waits for workers. */
static bool grow_missing(const weft_team_t *team, char *buf, size_t size) {
    const struct team_grow *g = team->exchange.arg;
    if (!waits_for_joiners(g)) return weft__missing_in(g->old, g->old->inner, buf, size);
    write_joiners(g, buf, size);
    return true;
}

/* ---- what the old members say to each other -------------------------------------------------- */

/* The records of the joiners, or why there are none. */
static void verdict_received(weft_status_t status, void *arg) {
    struct team_grow *g = arg;
    uint32_t wire;
    memcpy(&wire, g->verdict, sizeof wire);
    if (status == WEFT_OK && wire) {
        int32_t value = (int32_t)wire;
        bool known = value < 0 && value >= WEFT_STATUS_LAST;
        status = known ? (weft_status_t)value : WEFT_ERR_PROTOCOL;
        if (g->old->rank != g->inviter)
            weft__fail(status, "rank %u has no workers that join", g->inviter);
    }
    if (status == WEFT_OK)
        memcpy(g->records + (size_t)g->old->size * MEMBER_RECORD_BYTES, g->verdict + VERDICT_BYTES,
               (size_t)g->n * MEMBER_RECORD_BYTES);
    end_grow(g, status);
}

static void send_verdict(struct team_grow *g) {
    uint32_t wire = (uint32_t)g->none.status;
    weft_coll_args_t args = {.kind = WEFT_COLL_BCAST,
                             .type = WEFT_UINT8,
                             .root = g->inviter,
                             .dst = g->verdict,
                             .count = VERDICT_BYTES + (size_t)g->n * MEMBER_RECORD_BYTES};
    g->sent = true;
    if (g->old->rank == g->inviter) memcpy(g->verdict, &wire, sizeof wire);
    weft_op_t op = {.done = verdict_received, .arg = g};
    weft__causes_clear();
    weft_status_t st = weft__team_inner(g->old, &args, &op);
    if (st < 0) {
        weft__no_team(&g->none, st);
        weft__team_out_of_step(g->old, st);
    }
    if (st != WEFT_IN_PROGRESS) verdict_received(st, g);
}

/* The inviter waits for its joiners, or for the reason that there are not enough. */
static void go_on(struct team_grow *g) {
    if (!g->gathered || g->sent) return;
    if (g->old->status < 0)
        end_grow(g, weft__team_usable(g->old));
    else if (g->n_ready == g->n || g->none.status < 0)
        send_verdict(g);
}

static void records_gathered(weft_status_t status, void *arg) {
    struct team_grow *g = arg;
    g->gathered = true;
    if (status < 0)
        end_grow(g, status);
    else if (g->old->rank == g->inviter)
        go_on(g);
    else
        send_verdict(g);
}

static weft_status_t gather_records(struct team_grow *g) {
    weft_coll_args_t args = {.kind = WEFT_COLL_ALLGATHER,
                             .type = WEFT_UINT8,
                             .src = g->record,
                             .dst = g->records,
                             .count = MEMBER_RECORD_BYTES};
    weft_op_t op = {.done = records_gathered, .arg = g};
    weft_status_t st = weft__team_inner(g->old, &args, &op);
    if (st == WEFT_OK) records_gathered(WEFT_OK, g);
    return st < 0 ? st : WEFT_OK;
}

static weft_status_t exchange_records(void *arg, weft_worker_t *worker, const void *mine,
                                      size_t len, void *all, weft_done_fn done, void *done_arg) {
    struct team_grow *g = arg;
    memcpy(g->record, mine, len);
    g->to = all;
    g->done = done;
    g->done_arg = done_arg;
    return gather_records(g);
}

/* The new team ends here. The old members wait for the inviter, and are notified. */
static void cancel_exchange(void *arg) {
    struct team_grow *g = arg;
    char come[CAUSE_ROOM];
    g->cancelled = true;
    if (g->old->rank != g->inviter || g->sent) return;
    write_joiners(g, come, sizeof come);
    if (g->none.status == WEFT_OK)
        weft__no_team(&g->none, weft__fail(WEFT_ERR_TIMED_OUT, "%s", come));
    go_on(g);
}

/* An empty record is malformed: a team that counted on this member fails. */
static void take_part_alone(struct team_grow *g, weft_status_t status) {
    g->alone = true;
    weft__no_team(&g->none, status);
    weft__causes_clear();
    weft_status_t st = gather_records(g);
    if (st == WEFT_OK) return;
    weft__no_team(&g->none, st);
    weft__team_out_of_step(g->old, st);
    end_grow(g, st);
}

/* ---- messages -------------------------------------------------------------------------------- */

static weft_team_t *find_growing(struct team_registry *registry, const struct coll_wire *wire) {
    list_for_each(at, &registry->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_registry);
        if (team->id && team->id == wire->team && team->epoch == wire->epoch) return team;
    }
    return NULL;
}

static struct joiner *find_joiner(weft_team_t *team, uint32_t number) {
    list_for_each(at, &team->joiners) {
        struct joiner *joiner = list_of(at, struct joiner, of_team);
        if (joiner->number == number) return joiner;
    }
    return NULL;
}

static weft_status_t add_joiner(weft_team_t *team, const struct coll_wire *wire,
                                const weft_am_t *am) {
    weft_ep_params_t params = {.on_error = joiner_lost};
    if (team->status < 0 || !team_is_open(&team->core.fsm)) return WEFT_ERR_CLOSED;
    if (!am->data || team->n_joiners == JOINERS_MOST) return WEFT_ERR_QUOTA;
    struct joiner *joiner = weft__new(team, struct joiner);
    if (!joiner) return WEFT_ERR_NO_MEMORY;
    joiner->team = team;
    joiner->number = wire->seq;
    params.arg = joiner;
    weft_status_t st = weft_connect_address(team->opener, am->data, am->len, &params, &joiner->ep);
    if (st < 0) {
        talloc_free(joiner);
        return st;
    }
    team->n_eps++;
    team->n_joiners++;
    fsm_init(&joiner->core.fsm, &port, JOINER_WAITING, wire->seq);
    list_append(&team->joiners, &joiner->of_team);
    if (team->growing) take_joiners(team->growing);
    return WEFT_OK;
}

static void asked(struct team_registry *registry, const struct coll_wire *wire, weft_ep_t *ep,
                  const weft_am_t *am) {
    weft_team_t *team = find_growing(registry, wire);
    weft_status_t st = team ? add_joiner(team, wire, am) : WEFT_ERR_CLOSED;
    if (st == WEFT_OK) return;
    struct coll_wire no = *wire;
    no.tag = (uint32_t)st;
    weft__coll_send_copy(registry, ep, COLL_WIRE_WELCOME, &no, NULL, 0);
}

void weft__grow_message(struct team_registry *registry, unsigned id, const struct coll_wire *wire,
                        weft_ep_t *ep, weft_am_t *am) {
    if (id == COLL_WIRE_JOIN) {
        asked(registry, wire, ep, am);
        return;
    }
    weft_team_t *team = find_growing(registry, wire);
    struct joiner *joiner = team ? find_joiner(team, wire->seq) : NULL;
    if (!joiner) {
        weft__count(registry->reactor)->coll_dropped++;
    } else if (id == COLL_WIRE_FORGET) {
        weft__fsm_step(&joiner->core.fsm, JOINER_EV_GONE);
    } else {
        bool valid = am->data && am->len == MEMBER_RECORD_BYTES && joiner->record;
        /* a later one must not change what is sent to the members already */
        if (valid && joiner_lacks_record(&joiner->core.fsm))
            memcpy(joiner->record, am->data, am->len);
        weft__fsm_step(&joiner->core.fsm, valid ? JOINER_EV_RECORD : JOINER_EV_GONE);
    }
}

/* ---- its beginning --------------------------------------------------------------------------- */

static struct team_grow *new_grow(weft_team_t *old, uint32_t n, const weft_team_params_t *params) {
    struct team_grow *g = weft__new(old->reactor, struct team_grow);
    if (!g) return NULL;
    g->old = old;
    g->reactor = old->reactor;
    g->params = *params;
    g->n = n;
    g->exchange = (weft_exchange_t){.rank = old->rank,
                                    .size = old->size + n,
                                    .allgather = exchange_records,
                                    .cancel = cancel_exchange,
                                    .arg = g};
    g->params.exchange = &g->exchange;
    g->notify.run = notify_grow;
    g->record = weft__alloc(g, MEMBER_RECORD_BYTES, "record");
    g->records = weft__alloc(g, (size_t)g->exchange.size * MEMBER_RECORD_BYTES, "records");
    g->verdict = weft__alloc(g, VERDICT_BYTES + (size_t)n * MEMBER_RECORD_BYTES, "verdict");
    if (g->record && g->records && g->verdict) return g;
    talloc_free(g);
    return NULL;
}

weft_status_t weft__team_grow(weft_team_t *old, uint32_t inviter, uint32_t n,
                              const weft_team_params_t *params) {
    weft_team_t *team;
    weft_status_t st = weft__team_usable(old);
    if (st < 0) return st;
    struct team_grow *g = new_grow(old, n, params);
    if (!g) return WEFT_ERR_NO_MEMORY;
    g->inviter = inviter;
    old->is_parent = true;
    if (old->rank == inviter) {
        old->growing = g;
        take_joiners(g);
    }
    weft__causes_clear();
    st = weft__team_create(old->opener, &g->params, old->epoch + 1, &team);
    if (st < 0) {
        take_part_alone(g, st);
        return WEFT_OK;
    }
    team->missing = grow_missing;
    if (old->is_parent) {
        g->team = team;
        weft__team_hold_notice(team, true);
    }
    return WEFT_OK;
}

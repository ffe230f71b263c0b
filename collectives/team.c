/*
 * The team's life: an exchange of addresses, a first collective in which all agree that they are
 * there (and whether they share memory); then work; then an end that waits for all that it started.
 * Endpoints are opened on first use (team_leave.c). Those of the first collective connect all
 * members, directly or by others; what each has to know goes along them, from member to member.
 */
#include "team.h"

#include <base/counters.h>
#include <stdio.h>
#include <string.h>

#include "agreement.h"
#include "collective.h"
#include "joining.h"
#include "missing.h"
#include <endpoints/core/cause.h>

/* ---- outcomes -------------------------------------------------------------------------------- */

/* How an endpoint's end looks from a collective that needed it. Trouble of this side's own keeps
 * its name. */
weft_status_t weft__team_outcome(weft_status_t status) {
    switch (status) {
    case WEFT_ERR_NO_MEMORY:
    case WEFT_ERR_NO_FDS:
    case WEFT_ERR_FORKED:
    case WEFT_ERR_PROTOCOL:
    case WEFT_ERR_INTERNAL:
    case WEFT_ERR_TOO_BIG: return status;
    default: return WEFT_ERR_PEER_FAILED;
    }
}

void weft__team_reason(const weft_team_t *team, char *buf, size_t size) {
    if (team->blamed == NO_RANK)
        snprintf(buf, size, "the team is closing");
    else
        snprintf(buf, size, "the team failed because of rank %u%s%s", team->blamed,
                 team->why[0] ? ": " : "", team->why);
}

static weft_status_t explain_failure(const weft_team_t *team) {
    char reason[CAUSE_ROOM];
    weft__team_reason(team, reason, sizeof reason);
    return weft__fail(team->status, "%s", reason);
}

weft_status_t weft__team_usable(const weft_team_t *team) {
    if (team->status < 0) return explain_failure(team);
    if (!team_is_ready(&team->core.fsm)) return weft__fail(WEFT_ERR_BUSY, "the team is not ready");
    if (team->is_parent) return weft__fail(WEFT_ERR_BUSY, "another team is being made of this one");
    return WEFT_OK;
}

weft_status_t weft__team_inner(weft_team_t *team, const weft_coll_args_t *args,
                               const weft_op_t *op) {
    team->is_parent = false;
    weft_status_t st = weft_coll(team, args, op);
    team->is_parent = true;
    team->inner = st == WEFT_IN_PROGRESS ? team->n_calls - 1 : NO_CALL;
    return st;
}

void weft__team_fail(weft_team_t *team, weft_status_t status, uint32_t blamed) {
    if (team->status == WEFT_OK) {
        team->status = status;
        team->blamed = blamed;
        weft__log(team->worker->context, WEFT_LOG_INFO, "collectives",
                  "team %016llx, rank %u: %s, because of rank %u%s%s", (unsigned long long)team->id,
                  team->rank, weft_status_name(status), blamed, team->why[0] ? ": " : "",
                  team->why);
    }
    weft__fsm_step(&team->core.fsm, TEAM_EV_FAIL);
}

void weft__team_unworked(weft_team_t *team, weft_status_t status) {
    weft__late_note(team, NO_RANK, "the association of its worker has ended");
    weft__team_fail(team, status, team->rank);
}

void weft__team_out_of_step(weft_team_t *team, weft_status_t status) {
    weft__team_fail(team, status, team->rank);
}

static void stop_all(weft_team_t *team) {
    list_for_each_safe(at, next, &team->active) {
        weft__collective_stop(list_of(at, struct collective, of_team));
    }
}

static void leave_meeting(weft_team_t *team) {
    struct team_meeting *meeting = team->meeting;
    team->meeting = NULL;
    if (meeting) meeting->leave(meeting);
}

static void notify_watches(weft_team_t *team) {
    list_for_each_safe(at, next, &team->watches) {
        struct team_watch *watch = list_of(at, struct team_watch, of_team);
        watch->failed(watch);
    }
}

weft_status_t weft__team_notice_status(const weft_team_t *team) {
    bool ends_here = team->status == WEFT_ERR_CLOSED || team->status == WEFT_ERR_DISASSOCIATED ||
                     team->status == WEFT_ERR_RESOURCE_LOST;
    return ends_here ? WEFT_ERR_PEER_FAILED : team->status;
}

/* The member to blame knows if it said so itself, or is lost. */
static bool is_to_know(const weft_team_t *team, uint32_t rank) {
    const struct member *member = &team->member[rank];
    bool knows = rank == team->blamed &&
                 (team->blames_itself || weft__team_notice_status(team) == WEFT_ERR_PEER_FAILED);
    return rank != team->rank && member->ep && !member_is_gone(member) && !knows;
}

/* When the first collective has hardly begun, a member has few endpoints. It opens others, to those
 * that wait for it, to report trouble of its own. After a loss, or when time is up, it opens none,
 * since no member may be there. */
static void connect_to_warn(weft_team_t *team) {
    if (team->all_came || weft__team_outcome(team->status) == WEFT_ERR_PEER_FAILED) return;
    weft__team_connect(team);
    team->warns = true;
}

static void warn_all(weft_team_t *team) {
    weft_status_t status = weft__team_notice_status(team);
    if (!team->id) return;
    connect_to_warn(team);
    for (uint32_t r = 0; r < team->size; r++) {
        if (!is_to_know(team, r)) continue;
        weft_status_t st = weft__coll_send(team, r,
                                           &(struct coll_message){.id = COLL_WIRE_NOTICE,
                                                                  .seq = team->blamed,
                                                                  .tag = (uint32_t)status});
        if (st < 0)
            weft__log(team->worker->context, WEFT_LOG_DEBUG, "collectives",
                      "rank %u could not be notified: %s", r, weft_status_name(st));
    }
}

static weft_status_t begin_members(weft_team_t *team) {
    weft_status_t st = weft__team_read_records(team);
    if (st < 0) return st;
    weft__team_share(team);
    weft__team_registry_adopt(team->registry, team);
    if (team->status < 0) return team->status;
    if (team->registry->lost_orphan)
        return weft__fail(WEFT_ERR_NO_MEMORY, "a message of another member found no memory");
    return weft__team_meet(team);
}

/* Of this member's own, which noted what happened. */
static void note_causes(weft_team_t *team, weft_status_t status) {
    if (team->status == WEFT_OK && !team->why[0])
        (void)weft__causes_line(status, team->why, sizeof team->why);
}

/* ---- its machine ----------------------------------------------------------------------------- */

static void post_notice(weft_team_t *team) {
    if (!team->notice_due || team->notice_held) return;
    team->notice_due = false;
    weft__job_post(team->reactor, &team->notify);
}

void weft__team_hold_notice(weft_team_t *team, bool hold) {
    team->notice_held = hold;
    post_notice(team);
}

static void on_effect(struct fsm *m, unsigned effect) {
    weft_team_t *team = list_of(m, weft_team_t, core.fsm);
    switch ((enum team_effect)effect) {
    case TEAM_FX_CONNECT: weft__job_post(team->reactor, &team->connect); break;
    case TEAM_FX_NOTIFY:
        weft__timer_stop(team->reactor, &team->deadline);
        team->notice_due = true;
        post_notice(team);
        break;
    case TEAM_FX_END_EXCHANGE:
        if (team->exchanged == WEFT_IN_PROGRESS && team->exchange.cancel) {
            team->exchange.cancel(team->exchange.arg);
            weft__program_returned(team->reactor);
            team->exchanged = team->status;
        }
        weft__team_registry_forget(team->registry);
        break;
    case TEAM_FX_STOP_ALL:
        stop_all(team);
        leave_meeting(team);
        weft__grow_stop(team);
        notify_watches(team);
        break;
    case TEAM_FX_WARN: warn_all(team); break;
    case TEAM_FX_LEAVE: weft__team_send_leave(team); break;
    case TEAM_FX_AWAIT: weft__team_await_release(team); break;
    case TEAM_FX_CLOSE_ALL:
        weft__timer_stop(team->reactor, &team->deadline);
        weft__agreements_stop(team, WEFT_ERR_CLOSED);
        weft__grow_stop(team);
        weft__team_close_eps(team);
        weft__team_settle(team);
        break;
    case TEAM_FX_GONE: weft__job_post(team->reactor, &team->gone); break;
    case TEAM_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    weft_team_t *team = list_of(m, weft_team_t, core.fsm);
    bool theirs = why == FSM_VIOL;
    weft__log(team->worker->context, theirs ? WEFT_LOG_WARN : WEFT_LOG_ERROR, "collectives",
              "team: %s in %s", weft__team_machine.event_name[event], fsm_state_name(m));
    if (theirs) weft__count(team->reactor)->violations++;
}

static const struct fsm_port port = {&weft__team_machine, on_effect, on_fail};

static void connect_job(struct job *job) {
    weft_team_t *team = list_of(job, weft_team_t, connect);
    if (team->status < 0) return; /* failed or closed in the meantime */
    weft__causes_clear();
    weft_status_t st = begin_members(team);
    if (st < 0) note_causes(team, st);
    if (st < 0) weft__team_fail(team, st, team->rank);
    weft__team_registry_forget(team->registry);
}

static void exchange_over(struct job *job) {
    weft_team_t *team = list_of(job, weft_team_t, exchange_over);
    if (team->exchanged < 0) {
        weft__team_fail(team, team->exchanged, team->rank);
    } else {
        weft__fsm_step(&team->core.fsm, TEAM_EV_EXCHANGED);
    }
    weft__team_settle(team);
}

/* The program calls it. In a child that the program forked in its allgather it would wake the
 * parent's worker. */
static void exchange_done(weft_status_t status, void *arg) {
    weft_team_t *team = arg;
    weft__program_returned(team->reactor);
    if (status < 0) note_causes(team, status);
    team->exchanged = status > 0 ? WEFT_OK : status;
    weft__job_post(team->reactor, &team->exchange_over);
}

static void deadline_passed(struct timer *timer) {
    weft_team_t *team = list_of(timer, weft_team_t, deadline);
    weft__missing_note(team);
    weft__team_fail(team, WEFT_ERR_TIMED_OUT, team->rank);
}

static void notify_ready(struct job *job) {
    weft_team_t *team = list_of(job, weft_team_t, notify);
    if (team->status < 0) (void)explain_failure(team);
    if (team->on_ready) team->on_ready(team, team->status, team->arg);
    weft__program_returned(team->reactor);
    weft__team_settle(team);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* RELEASED and QUIET are looked for in jobs, since what ends may end within another's step. */
void weft__team_settle(weft_team_t *team) {
    if (team_is_leaving(&team->core.fsm)) weft__job_post(team->reactor, &team->release);
    if (team_is_closing(&team->core.fsm)) weft__job_post(team->reactor, &team->quiet);
}

static void look_for_release(struct job *job) {
    weft_team_t *team = list_of(job, weft_team_t, release);
    if (weft__team_all_released(team)) weft__fsm_step(&team->core.fsm, TEAM_EV_RELEASED);
}

/* The end of a collective of its own, or of a safe one, may be held until the program polls. */
static void look_for_quiet(struct job *job) {
    weft_team_t *team = list_of(job, weft_team_t, quiet);
    bool busy = team->n_eps || !list_empty(&team->active) || weft__agreements_busy(team) ||
                team->exchanged == WEFT_IN_PROGRESS || weft__job_queued(&team->exchange_over) ||
                weft__job_queued(&team->connect) || weft__job_queued(&team->notify) ||
                weft__job_queued(&team->release) || team->notice_due || team->is_parent ||
                team->is_safe;
    if (!busy) weft__fsm_step(&team->core.fsm, TEAM_EV_QUIET);
}

static void gone(struct job *job) {
    weft_team_t *team = list_of(job, weft_team_t, gone);
    struct team_registry *registry = team->registry;
    weft_done_fn closed = team->closed;
    void *arg = team->closed_arg;
    struct list *at;
    while ((at = list_pop(&team->early)) != NULL)
        weft__early_drop(team->worker, list_of(at, struct early, of));
    /* Until now devices of stopped collectives may have been at work. */
    weft__shared_unwatch(team);
    weft__team_unshare(team);
    weft__timer_stop(team->reactor, &team->deadline);
    team->opener->n_opened_by--;
    if (team->outlives)
        team->rested = true;
    else
        weft__free_later(team->reactor, team);
    if (closed) closed(WEFT_OK, arg);
    weft__program_returned(registry->reactor);
    weft__team_registry_leave(registry, team);
}

weft_status_t weft__team_close(weft_team_t *team, const weft_op_t *op) {
    if (team_is_ended(&team->core.fsm))
        return weft__fail(WEFT_ERR_BUSY, "the team is already closing");
    if (op) {
        team->closed = op->done;
        team->closed_arg = op->arg;
        if (op->request_p) *op->request_p = NULL;
    }
    weft_status_t status = weft__worker_end_status(team->opener);
    weft__agreements_stop(team, status);
    bool quiet = team_is_ready(&team->core.fsm) && list_empty(&team->active) && !team->is_parent;
    if (!quiet) weft__team_fail(team, status, team->rank);
    if (team->status == WEFT_OK) team->status = status;
    weft__fsm_step(&team->core.fsm, TEAM_EV_CLOSE);
    return WEFT_IN_PROGRESS;
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* The team's own choices, then those of the settings. */
static weft_status_t read_choices(weft_team_t *team, const char *own) {
    weft_context_t *context = team->worker->context;
    const char *text = weft__setting_str(context, SETTING_COLL_ALGORITHMS);
    const char *file = weft__setting_str(context, SETTING_COLL_TUNING);
    if (!own || !*own) return weft__choices_read(team, text, file, &team->choices);
    size_t room = strlen(own) + strlen(text) + 2;
    char *both = weft__alloc(team, room, "choices");
    if (!both) return WEFT_ERR_NO_MEMORY;
    snprintf(both, room, *text ? "%s,%s" : "%s", own, text);
    weft_status_t st = weft__choices_read(team, both, file, &team->choices);
    talloc_free(both);
    return st;
}

/* What all members may send unasked while this one is late has room here. */
static uint64_t eager_of(const weft_team_t *team, const weft_team_params_t *params) {
    uint64_t eager = weft__setting_u64(team->worker->context, SETTING_COLL_EAGER);
    uint64_t piece = weft__team_one_piece(team->worker, params->transports);
    uint64_t room = team->unexpected_most / UNJOINED_MOST / team->size;
    if (room < EAGER_LEAST) room = EAGER_LEAST;
    if (eager > room) eager = room;
    return eager < piece ? eager : piece;
}

static weft_status_t take_settings(weft_team_t *team, const weft_team_params_t *params) {
    weft_context_t *context = team->worker->context;
    team->unexpected_most = weft__setting_u64(context, SETTING_COLL_UNEXPECTED);
    team->eager = eager_of(team, params);
    team->segment_bytes = weft__setting_u64(context, SETTING_COLL_SEGMENT) / 64 * 64;
    weft_status_t st = read_choices(team, params->algorithms);
    team->choices.radix = (uint32_t)weft__setting_u64(context, SETTING_COLL_RADIX);
    team->choices.per_group = (uint32_t)weft__setting_u64(context, SETTING_COLL_PER_HOST);
    team->choices.hash ^= (uint64_t)team->choices.radix << 48 | team->choices.per_group;
    return st;
}

static weft_status_t make_room(weft_team_t *team) {
    size_t size = team->size;
    team->member = weft__alloc(team, size * sizeof *team->member, "members");
    team->record = weft__alloc(team, size * sizeof *team->record, "records");
    team->host_of = weft__alloc(team, size * sizeof *team->host_of, "hosts");
    team->mine = weft__alloc(team, MEMBER_RECORD_BYTES, "mine");
    team->all = weft__alloc(team, size * MEMBER_RECORD_BYTES, "all");
    if (!team->member || !team->record || !team->host_of || !team->mine || !team->all)
        return WEFT_ERR_NO_MEMORY;
    weft__team_init_members(team);
    return WEFT_OK;
}

static uint64_t time_limit(struct team_registry *registry, const weft_team_params_t *params) {
    uint64_t ms = params->collective_deadline_ms;
    if (!ms) ms = weft__setting_u64(registry->worker->context, SETTING_COLL_TIMEOUT);
    return ms * NS_PER_MS;
}

/* In zeroed memory. */
static void init_team(weft_team_t *team, struct team_registry *registry,
                      const weft_team_params_t *params) {
    team->registry = registry;
    team->worker = team->opener = registry->worker;
    team->reactor = registry->reactor;
    if (params->exchange) team->exchange = *params->exchange;
    team->exchanged = WEFT_IN_PROGRESS;
    team->blamed = NO_RANK;
    team->time_limit = time_limit(registry, params);
    team->on_ready = params->on_ready;
    team->arg = params->arg;
    team->deadline.fire = deadline_passed;
    team->exchange_over.run = exchange_over;
    team->connect.run = connect_job;
    team->notify.run = notify_ready;
    team->release.run = look_for_release;
    team->quiet.run = look_for_quiet;
    team->gone.run = gone;
    list_init(&team->of_registry);
    list_init(&team->agreements);
    list_init(&team->active);
    list_init(&team->idle);
    list_init(&team->streams);
    list_init(&team->persistent);
    list_init(&team->joiners);
    list_init(&team->watches);
    list_init(&team->spare_early);
    list_init(&team->early);
    fsm_init(&team->core.fsm, &port, TEAM_EXCHANGE, team->rank);
}

static weft_team_t *new_team(struct team_registry *registry, const weft_team_params_t *params) {
    weft_team_t *team = weft__new(registry->reactor, weft_team_t);
    if (team) init_team(team, registry, params);
    return team;
}

static weft_status_t start_deadline(weft_team_t *team, uint32_t ms) {
    uint64_t after = ms ? ms : weft__setting_u64(team->worker->context, SETTING_TEAM_TIMEOUT);
    return weft__timer_start(team->reactor, &team->deadline,
                             weft__now(team->reactor) + after * NS_PER_MS);
}

static void take_exchange(weft_team_t *team, const weft_exchange_t *exchange) {
    team->exchange = *exchange;
    team->rank = exchange->rank;
    team->size = exchange->size;
}

/* The exchange begins. After an error the team is as it was. */
static weft_status_t begin_team(weft_team_t *team, const weft_team_params_t *params) {
    struct team_registry *registry = team->registry;
    weft_status_t st = make_room(team);
    if (st == WEFT_OK) st = take_settings(team, params);
    if (st == WEFT_OK) st = weft__team_describe(team, params);
    if (st == WEFT_OK) st = start_deadline(team, params->deadline_ms);
    if (st < 0) goto fail;
    list_append(&registry->teams, &team->of_registry);
    st = team->exchange.allgather(team->exchange.arg, team->worker, team->mine, MEMBER_RECORD_BYTES,
                                  team->all, exchange_done, team);
    weft__program_returned(team->reactor);
    if (st >= 0) return WEFT_OK;
    list_remove(&team->of_registry);
fail:
    weft__timer_stop(registry->reactor, &team->deadline);
    weft__team_unshare(team);
    return st;
}

static weft_status_t free_team(weft_team_t *team, weft_status_t st) {
    talloc_free(team);
    return st;
}

weft_status_t weft__team_create(weft_worker_t *opener, const weft_team_params_t *params,
                                uint32_t epoch, weft_team_t **team_p) {
    struct team_registry *registry;
    weft_status_t st = weft__team_registry(weft__worker_itself(opener), &registry);
    if (st < 0) return st;
    weft_team_t *team = new_team(registry, params);
    if (!team) return WEFT_ERR_NO_MEMORY;
    team->opener = opener;
    team->epoch = epoch;
    take_exchange(team, params->exchange);
    st = begin_team(team, params);
    if (st < 0) return free_team(team, st);
    opener->n_opened_by++;
    *team_p = team;
    return WEFT_OK;
}

/* ---- in associated mode ---------------------------------------------------------------------- */

/* One whose worker closes is freed next: its registry may be gone by now. */
void weft__team_stub_rest(struct stub *stub, weft_status_t status) {
    weft_team_t *team = stub->object, was = *team;
    if (stub->abandoned) return;
    talloc_free_children(team);
    memset(team, 0, sizeof *team);
    init_team(team, was.registry, stub->params);
    team->opener = was.opener;
    team->stub = stub;
    team->worker = weft__stub_worker(status);
}

weft_status_t weft__team_stub(weft_worker_t *opener, const weft_team_params_t *params,
                              weft_team_t **team_p) {
    struct team_registry *registry;
    struct stub *stub;
    weft_status_t st = weft__team_registry(weft__worker_itself(opener), &registry);
    weft_team_t *team = st == WEFT_OK ? new_team(registry, params) : NULL;
    if (st < 0 || !team) return st < 0 ? st : WEFT_ERR_NO_MEMORY;
    st = weft__worker_stub_new(opener, STUB_TEAM, team, params, sizeof *params, &stub);
    if (st < 0) return free_team(team, st);
    stub->closing = weft__stub_free_object;
    team->opener = opener;
    weft__team_stub_rest(stub, WEFT_ERR_NOT_ASSOCIATED);
    *team_p = team;
    return WEFT_OK;
}

weft_status_t weft__team_stub_begin(struct stub *stub, const weft_exchange_t *exchange) {
    weft_team_t *team = stub->object;
    team->worker = team->registry->worker;
    take_exchange(team, exchange);
    weft_status_t st = begin_team(team, stub->params);
    if (st == WEFT_OK)
        team->opener->n_opened_by++;
    else
        weft__team_stub_rest(stub, atomic_load(&stub->status));
    return st;
}

weft_status_t weft__team_stub_close(weft_team_t *team) {
    struct stub *stub = team->stub;
    weft_status_t st = weft__worker_check(stub->worker);
    if (st < 0) return st;
    weft__stub_free_object(stub);
    weft__worker_stub_gone(stub);
    return WEFT_OK;
}

/*
 * A worker joins a team (join.fsm): by the address in an invitation it asks a member, and the
 * exchange of its new team is what that member sends it.
 */
#include <base/counters.h>
#include <stdio.h>
#include <string.h>

#include "collective.h"
#include "joining.h"
#include "no_team.h"

struct join {
    struct join_core core;
    struct list of_registry;
    struct team_registry *registry;
    weft_worker_t *opener; /* by whose lease the endpoints are opened */
    weft_ep_t *ep;         /* NULL: closed */
    uint64_t team;         /* that grows */
    uint32_t epoch, number;
    weft_team_params_t params;
    weft_exchange_t exchange;
    bool made;       /* the new team is there: it reports the outcome */
    bool exchanging; /* its exchange waits */
    struct no_team none;
    uint8_t *records, *to; /* of all members, as they come, and for the exchange */
    uint32_t n_receiving;  /* of such messages */
    weft_done_fn done;
    void *done_arg;
    struct timer deadline;
    struct job make, notify;
};

/* ---- its end --------------------------------------------------------------------------------- */

static void free_if_over(struct join *join) {
    struct team_registry *registry = join->registry;
    if (!join_is_over(&join->core.fsm) || join->ep || join->n_receiving ||
        weft__job_queued(&join->make) || weft__job_queued(&join->notify))
        return;
    list_remove(&join->of_registry);
    weft__free_later(registry->reactor, join);
    weft__team_registry_settle(registry);
}

static void ep_closed(weft_status_t status, void *arg) {
    struct join *join = arg;
    join->ep = NULL;
    free_if_over(join);
}

static void close_ep(struct join *join) {
    weft_op_t op = {.done = ep_closed, .arg = join};
    if (weft_ep_close(join->ep, WEFT_CLOSE_FLUSH, &op) != WEFT_IN_PROGRESS) join->ep = NULL;
}

static const char joining[] = "joining a team";

/* There is no team: the member that asked for it is notified. */
static void notify_join(struct job *job) {
    struct join *join = list_of(job, struct join, notify);
    weft__no_team_explain(&join->none, joining);
    join->params.on_ready(NULL, join->none.status, join->params.arg);
    weft__program_returned(join->registry->reactor);
    free_if_over(join);
}

static void end_exchange(struct join *join, weft_status_t status) {
    if (!join->exchanging) return;
    join->exchanging = false;
    if (status < 0) weft__no_team_explain(&join->none, joining);
    join->done(status, join->done_arg);
}

/* With the thread's causes of `status`. */
static void stop_join(struct join *join, weft_status_t status) {
    if (!join_is_over(&join->core.fsm)) weft__no_team(&join->none, status);
    weft__fsm_step(&join->core.fsm, JOIN_EV_STOP);
}

static void ep_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    stop_join(arg, status);
}

static const char not_grown[] = "the team that this worker joins has not grown in time";

static void deadline_passed(struct timer *timer) {
    struct join *join = list_of(timer, struct join, deadline);
    stop_join(join, weft__fail(WEFT_ERR_TIMED_OUT, "%s", not_grown));
}

void weft__joins_stop(struct team_registry *registry) {
    list_for_each_safe(at, next, &registry->joins) {
        stop_join(list_of(at, struct join, of_registry),
                  weft__fail(WEFT_ERR_CLOSED, "the worker closes"));
    }
}

/* ---- the new team ---------------------------------------------------------------------------- */

static void send_to_member(struct join *join, enum coll_wire_id id, const void *bytes, size_t len) {
    struct coll_wire wire = {.team = join->team, .epoch = join->epoch, .seq = join->number};
    weft__coll_send_copy(join->registry, join->ep, id, &wire, bytes, len);
}

static weft_status_t exchange_records(void *arg, weft_worker_t *worker, const void *mine,
                                      size_t len, void *all, weft_done_fn done, void *done_arg) {
    struct join *join = arg;
    join->to = all;
    join->done = done;
    join->done_arg = done_arg;
    join->exchanging = true;
    send_to_member(join, COLL_WIRE_RECORD, mine, len);
    return WEFT_OK;
}

/* The team has failed or is closed. */
static void cancel_exchange(void *arg) {
    struct join *join = arg;
    join->exchanging = false;
    stop_join(join, weft__fail(WEFT_ERR_CANCELLED, "the new team has failed or is closed"));
}

static bool join_missing(const weft_team_t *team, char *buf, size_t size) {
    snprintf(buf, size, "%s", not_grown);
    return true;
}

static void make_team(struct job *job) {
    struct join *join = list_of(job, struct join, make);
    weft_team_t *team;
    if (join_is_over(&join->core.fsm)) {
        free_if_over(join);
        return;
    }
    join->exchange.allgather = exchange_records;
    join->exchange.cancel = cancel_exchange;
    join->exchange.arg = join;
    join->params.exchange = &join->exchange;
    join->made = true;
    weft__causes_clear();
    weft_status_t st = weft__team_create(join->opener, &join->params, join->epoch + 1, &team);
    if (st == WEFT_OK) {
        team->missing = join_missing;
        return;
    }
    join->made = false;
    stop_join(join, st);
}

/* ---- its machine ----------------------------------------------------------------------------- */

static void on_effect(struct fsm *m, unsigned effect) {
    struct join *join = list_of(m, struct join, core.fsm);
    switch ((enum join_effect)effect) {
    case JOIN_FX_MAKE:
        weft__timer_stop(join->registry->reactor, &join->deadline);
        weft__job_post(join->registry->reactor, &join->make);
        break;
    case JOIN_FX_GIVE:
        if (join->exchanging)
            memcpy(join->to, join->records, (size_t)join->exchange.size * MEMBER_RECORD_BYTES);
        end_exchange(join, WEFT_OK);
        break;
    case JOIN_FX_FAIL:
        weft__timer_stop(join->registry->reactor, &join->deadline);
        if (join->made)
            end_exchange(join, join->none.status);
        else
            weft__job_post(join->registry->reactor, &join->notify);
        break;
    case JOIN_FX_FORGET: send_to_member(join, COLL_WIRE_FORGET, NULL, 0); break;
    case JOIN_FX_CLOSE: close_ep(join); break;
    case JOIN_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct join *join = list_of(m, struct join, core.fsm);
    weft__log(join->registry->worker->context, WEFT_LOG_WARN, "collectives", "joining: %s in %s",
              weft__join_machine.event_name[event], fsm_state_name(m));
    if (why == FSM_VIOL) weft__count(join->registry->reactor)->violations++;
}

static const struct fsm_port port = {&weft__join_machine, on_effect, on_fail};

/* ---- messages -------------------------------------------------------------------------------- */

static struct join *find_join(struct team_registry *registry, const struct coll_wire *wire) {
    list_for_each(at, &registry->joins) {
        struct join *join = list_of(at, struct join, of_registry);
        if (join->number == wire->seq && join->team == wire->team && join->epoch == wire->epoch)
            return join;
    }
    return NULL;
}

/* A status as it is on the wire. */
static weft_status_t refusal(uint32_t status) {
    int32_t value = (int32_t)status;
    bool known = value < 0 && value >= WEFT_STATUS_LAST;
    return known ? (weft_status_t)value : WEFT_ERR_PROTOCOL;
}

static void join_refused(struct join *join, weft_status_t status) {
    if (!join_is_over(&join->core.fsm))
        weft__no_team(&join->none,
                      weft__fail(status, "the member that invited this worker refuses it"));
    weft__fsm_step(&join->core.fsm, JOIN_EV_REFUSAL);
}

/* `from` is the new rank, `stream` the new size. */
static void welcomed(struct join *join, const struct coll_wire *wire) {
    uint32_t size = wire->stream;
    if (wire->tag || wire->from >= size || size > JOIN_MEMBERS_MOST) {
        join_refused(join, wire->tag ? refusal(wire->tag) : WEFT_ERR_PROTOCOL);
        return;
    }
    if (!join_has_asked(&join->core.fsm)) return;
    join->records = weft__alloc(join, (size_t)size * MEMBER_RECORD_BYTES, "records");
    join->exchange.rank = wire->from;
    join->exchange.size = size;
    if (join->records)
        weft__fsm_step(&join->core.fsm, JOIN_EV_WELCOME);
    else
        stop_join(join, WEFT_ERR_NO_MEMORY);
}

static void join_received(weft_status_t status, void *arg) {
    struct join *join = arg;
    join->n_receiving--;
    if (status < 0)
        stop_join(join, status);
    else
        weft__fsm_step(&join->core.fsm, JOIN_EV_RECORDS);
    free_if_over(join);
}

static void take_records(struct join *join, const struct coll_wire *wire, weft_am_t *am) {
    size_t len = (size_t)join->exchange.size * MEMBER_RECORD_BYTES;
    bool in_time = join->exchanging && !join->n_receiving;
    if (wire->tag || !join->records || !in_time || am->len != len) {
        join_refused(join, wire->tag ? refusal(wire->tag) : WEFT_ERR_PROTOCOL);
        return;
    }
    weft_iov_t iov = {join->records, len};
    join->n_receiving++;
    if (am->data) memcpy(join->records, am->data, len);
    weft_status_t st =
        am->data ? WEFT_OK
                 : weft_am_recv(am, &iov, 1, &(weft_op_t){.done = join_received, .arg = join});
    if (st != WEFT_IN_PROGRESS) join_received(st, join);
}

void weft__join_message(struct team_registry *registry, unsigned id, const struct coll_wire *wire,
                        weft_am_t *am) {
    struct join *join = find_join(registry, wire);
    if (!join)
        weft__count(registry->reactor)->coll_dropped++;
    else if (id == COLL_WIRE_WELCOME)
        welcomed(join, wire);
    else
        take_records(join, wire, am);
}

/* ---- its beginning --------------------------------------------------------------------------- */

static weft_status_t join_ask(struct join *join, const struct coll_invitation *invitation) {
    struct team_registry *registry = join->registry;
    weft_ep_params_t params = {.on_error = ep_lost, .arg = join};
    uint8_t address[INVITATION_ADDRESS_MOST];
    size_t len = sizeof address;
    uint64_t ms = join->params.deadline_ms;
    if (!ms) ms = weft__setting_u64(registry->worker->context, SETTING_TEAM_TIMEOUT);
    weft_status_t st = weft_worker_address(registry->worker, address, &len);
    if (st == WEFT_OK)
        st = weft__timer_start(registry->reactor, &join->deadline,
                               weft__now(registry->reactor) + ms * NS_PER_MS);
    if (st == WEFT_OK)
        st = weft_connect_address(join->opener, invitation->address, invitation->address_len,
                                  &params, &join->ep);
    if (st < 0) return st;
    send_to_member(join, COLL_WIRE_JOIN, address, len);
    return WEFT_OK;
}

weft_status_t weft__team_join(weft_worker_t *opener, const void *bytes, size_t len,
                              const weft_team_params_t *params) {
    struct team_registry *registry;
    struct coll_invitation invitation;
    if (!weft__invitation_read(bytes, len, &invitation))
        return weft__fail(WEFT_ERR_ADDRESS, "invitation: the bytes are none");
    weft_status_t st = weft__team_registry(weft__worker_itself(opener), &registry);
    if (st < 0) return st;
    struct join *join = weft__new(registry->reactor, struct join);
    if (!join) return WEFT_ERR_NO_MEMORY;
    join->registry = registry;
    join->opener = opener;
    join->team = invitation.team;
    join->epoch = invitation.epoch;
    join->number = (uint32_t)weft__random(registry->reactor);
    join->params = *params;
    join->deadline.fire = deadline_passed;
    join->make.run = make_team;
    join->notify.run = notify_join;
    fsm_init(&join->core.fsm, &port, JOIN_ASKING, join->number);
    list_append(&registry->joins, &join->of_registry);
    st = join_ask(join, &invitation);
    if (st < 0) {
        weft__timer_stop(registry->reactor, &join->deadline);
        list_remove(&join->of_registry);
        talloc_free(join);
    }
    return st;
}

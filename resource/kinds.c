/* How an object works with each kind of resource, and how it ends. */
#include <collectives/team.h>
#include <endpoints/connect/connect.h>
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>
#include <endpoints/memory/memory.h>
#include <endpoints/worker/associate.h>
#include <stdio.h>
#include <transports/cuda/place.h>
#include <transports/given.h>

#include "resource.h"

static bool is_closed(struct association *a) {
    return a->closed;
}

/* What calls on the object return from now on. */
static weft_status_t rest_status(const struct association *a) {
    return association_is_lost(&a->core.fsm)      ? WEFT_ERR_RESOURCE_LOST
           : association_is_partial(&a->core.fsm) ? WEFT_ERR_NOT_ASSOCIATED
                                                  : WEFT_ERR_DISASSOCIATED;
}

/* The object has closed, and may be associated again. */
static void object_end(struct association *a) {
    static void (*const rest[])(struct stub *,
                                weft_status_t) = {[WEFT_OBJECT_TEAM] = weft__team_stub_rest,
                                                  [WEFT_OBJECT_ENDPOINT] = weft__ep_stub_rest,
                                                  [WEFT_OBJECT_MEMORY] = weft__mem_stub_rest};
    weft_status_t status = rest_status(a);
    struct stub *stub = a->stub;
    a->stub = NULL;
    rest[a->type](stub, status);
    weft__association_unclaim(stub);
    weft__worker_stub_rests(stub, status);
}

/* ---- a libev loop: the worker runs on it ----------------------------------------------------- */

/* On a loop of the program, or (a kind that needs none) of its own. */
static weft_status_t own_begin(struct association *a, const struct given *given) {
    struct ev_loop *const *loop =
        weft__association_value(a, WEFT_RES_WORKER_LOOP, sizeof(struct ev_loop *));
    weft_worker_t *worker = a->object;
    weft_status_t st = weft__worker_on_loop(worker, loop ? *loop : NULL, given);
    if (st < 0) return st;
    a->worker = worker;
    a->reactor = worker->reactor;
    return WEFT_OK;
}

static weft_status_t loop_begin(struct association *a) {
    if (!weft__association_value(a, WEFT_RES_WORKER_LOOP, sizeof(struct ev_loop *)))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s has another size", WEFT_RES_WORKER_LOOP);
    return own_begin(a, NULL);
}

static void own_closed(weft_status_t status, void *arg) {
    struct association *a = arg;
    weft_worker_t *worker = a->object;
    a->closed = true;
    weft__association_alone(a);
    weft__association_take_waiting(a);
    if (association_is_lost(&a->core.fsm))
        worker->stub->revert(worker->stub, WEFT_ERR_RESOURCE_LOST);
    weft__association_look(a);
}

static void own_close(struct association *a) {
    weft_worker_t *worker = a->worker;
    a->worker = NULL;
    weft__worker_abort(worker, weft__worker_end_status(worker)); /* a close would say CLOSED */
    (void)weft_worker_close(worker, &(weft_op_t){.done = own_closed, .arg = a});
}

static void own_stopped(struct stub *stub) {
    stub->stopped = NULL;
    own_close(atomic_load(&stub->claim));
}

/* A thread of the worker's own does not end by itself: the program stops it, and then the worker
 * closes. */
static void own_drain(struct association *a, weft_status_t status, bool abort) {
    weft_worker_t *worker = a->worker;
    if (!worker) return;
    if (abort) weft__worker_abort(worker, status);
    atomic_store(&worker->stub->status, status);
    if (worker->driver.has_thread)
        worker->stub->stopped = own_stopped;
    else
        own_close(a);
}

/* ---- verbs objects: the worker's rdma transports use them ------------------------------------ */

/* A value that is one pointer; NULL: there is none. */
static void *pointer_of(const struct association *a, const char *key) {
    void *const *pointer = weft__association_value(a, key, sizeof *pointer);
    return pointer ? *pointer : NULL;
}

static weft_status_t add_verbs(const struct association *a, struct given *given) {
    const weft_verbs_t *verbs =
        weft__association_value(a, WEFT_RES_WORKER_VERBS, sizeof(weft_verbs_t));
    const weft_resource_value_t *qps = weft__association_array(a, WEFT_RES_WORKER_QP);
    given->pd = pointer_of(a, WEFT_RES_WORKER_PD);
    given->cq = pointer_of(a, WEFT_RES_WORKER_CQ);
    given->srq = pointer_of(a, WEFT_RES_WORKER_SRQ);
    if (!given->pd) return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is NULL", WEFT_RES_WORKER_PD);
    if (qps) {
        given->n_qp = qps->len / sizeof *given->qp;
        given->qp = (struct ibv_qp **)(uintptr_t)qps->value;
    }
    if (given->n_qp && (!given->cq || !given->srq))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s without %s or %s", WEFT_RES_WORKER_QP,
                          WEFT_RES_WORKER_CQ, WEFT_RES_WORKER_SRQ);
    if (verbs) {
        given->completion = verbs->completion;
        given->event = verbs->event;
        given->arg = verbs->arg;
    }
    return WEFT_OK;
}

/* ---- a context and a stream of CUDA: the worker copies device memory there ------------------- */

static void given_end(struct association *a) {
    if (a->cuda_stream) weft__cuda_stream_close(a->cuda_context, a->cuda_stream);
    a->cuda_stream = NULL;
}

static weft_status_t add_cuda(struct association *a, struct given *given) {
    void *context = pointer_of(a, WEFT_RES_WORKER_CUDA_CONTEXT),
         *stream = pointer_of(a, WEFT_RES_WORKER_CUDA_STREAM);
    weft_status_t st = weft__cuda_given_check(context, stream);
    if (st == WEFT_OK && !stream) {
        st = weft__cuda_stream_open(context, &stream);
        if (st == WEFT_OK) a->cuda_context = context, a->cuda_stream = stream;
    }
    given->cuda_context = context;
    given->cuda_stream = stream;
    return st;
}

static weft_status_t given_begin(struct association *a) {
    bool with_cuda = weft__association_array(a, WEFT_RES_WORKER_CUDA_CONTEXT) != NULL;
    struct given *given = weft__new(a, struct given);
    if (!given) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = a->resource->kind == WEFT_RESOURCE_VERBS ? add_verbs(a, given) : WEFT_OK;
    if (st == WEFT_OK && with_cuda) st = add_cuda(a, given);
    if (st == WEFT_OK) st = own_begin(a, given);
    if (st < 0) given_end(a);
    return st;
}

/* ---- another library's worker: this one works by it, within a lease -------------------------- */

static weft_status_t worker_begin(struct association *a) {
    weft_worker_t *const *handle =
        weft__association_value(a, WEFT_RES_WORKER_HANDLE, sizeof(weft_worker_t *));
    weft_worker_t *provider = handle ? weft__worker_itself(*handle) : NULL;
    if (!provider || provider == a->object)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is no other worker", WEFT_RES_WORKER_HANDLE);
    weft_status_t st = weft__worker_check(provider);
    if (st == WEFT_ERR_WRONG_THREAD)
        return weft__fail_in(WEFT_ERR_NOT_SHAREABLE, "the worker belongs to another thread");
    if (st < 0) return st;
    if (!worker_is_open(&provider->core.fsm))
        return weft__fail(WEFT_ERR_NOT_SHAREABLE, "the worker is closing");
    st = weft__lease_take(provider, &a->resource->lease, &a->wanted, &a->lease);
    if (st < 0) return st;
    st = weft__worker_share(a->object, provider, a->lease);
    if (st < 0) {
        a->lease->number = 0;
        return st;
    }
    a->wanted.am_count = a->lease->am_count;
    a->worker = provider;
    a->reactor = provider->reactor;
    return WEFT_OK;
}

static void worker_drain(struct association *a, weft_status_t status, bool abort) {
    if (abort)
        weft__association_lose_objects(a);
    else
        weft__association_return_plain(a);
    weft__teams_unworked(a->worker, a->object, status);
    weft__worker_drain(a->object, a->worker, a->lease, status, abort);
}

static bool worker_drained(struct association *a) {
    return weft__worker_undrained(a->worker, a->lease) == 0 && !weft__association_objects(a) &&
           !weft__teams_of(a->worker, a->object);
}

static void worker_end(struct association *a) {
    weft_worker_t *worker = a->object;
    if (worker->shared)
        weft__worker_drain(worker, a->worker, a->lease, WEFT_ERR_NOT_ASSOCIATED, true);
    weft__worker_stubs_free(worker, a->worker);
    weft__worker_unshare(a->worker, a->lease);
}

/* ---- endpoints: another endpoint beside the first of them, or a team over all ---------------- */

static weft_status_t endpoint_begin(struct association *a) {
    weft_ep_t *const *of = weft__association_value(a, WEFT_RES_ENDPOINT_SET, sizeof(weft_ep_t *));
    struct weft_ep *ep = a->object;
    if (!of || !*of)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s has no endpoint", WEFT_RES_ENDPOINT_SET);
    if ((*of)->worker != a->worker)
        return weft__fail(WEFT_ERR_NOT_SHAREABLE, "the endpoint belongs to another worker");
    weft_status_t st = weft__ep_stub_connect(a->stub, *of);
    if (st == WEFT_OK) ep->owned = ep->outlives = true;
    return st;
}

/* Its on_error came, or does not come any more: the program's callback is the association's end. */
static void endpoint_drain(struct association *a, weft_status_t status, bool abort) {
    struct weft_ep *ep = a->object;
    if (ep->rested) return;
    if (ep->owned) {
        ep->owned = false;
        weft__ep_drain(ep);
        if (ep->status == WEFT_OK) ep->status = (int8_t)status;
    }
    if (!abort) return;
    ep->status = (int8_t)status;
    weft__ep_abort(ep);
}

/* ---- a connected socket: an endpoint over it ------------------------------------------------- */

static weft_status_t connection_begin(struct association *a) {
    const int *fd = weft__association_value(a, WEFT_RES_ENDPOINT_SOCKET, sizeof *fd);
    struct weft_ep *ep = a->object;
    char uri[32];
    if (!fd)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s has another size", WEFT_RES_ENDPOINT_SOCKET);
    snprintf(uri, sizeof uri, "tcp://@%d", *fd);
    weft_status_t st = weft__ep_stub_dial(a->stub, uri);
    if (st < 0) return st;
    a->link = ep->link;
    ep->owned = ep->outlives = true;
    return WEFT_OK;
}

/* Its link is there until the library's duplicate of the socket is closed. */
static struct link *connection_link(const struct association *a) {
    struct link *link;
    list_for_each_entry(link, &a->worker->links, of_worker) {
        if (link == a->link && link->given) return link;
    }
    return NULL;
}

static void connection_drain(struct association *a, weft_status_t status, bool abort) {
    endpoint_drain(a, status, abort);
    struct link *link = abort ? connection_link(a) : NULL;
    if (link) weft__link_lose(link, weft__fail(status, "its socket was taken back"));
}

static bool connection_drained(struct association *a) {
    return ((struct weft_ep *)a->object)->rested && !connection_link(a);
}

/* ---- teams ----------------------------------------------------------------------------------- */

static weft_status_t team_begin(struct association *a) {
    weft_exchange_t exchange;
    weft_status_t st = weft__set_exchange(a, &exchange);
    if (st == WEFT_OK) st = weft__team_stub_begin(a->stub, &exchange);
    weft_team_t *team = a->object;
    if (st == WEFT_OK) team->associated = team->outlives = true;
    return st;
}

static void team_drain(struct association *a, weft_status_t status, bool abort) {
    weft_team_t *team = a->object;
    if (team->rested) return;
    if (abort) weft__team_fail(team, status, team->rank);
    if (team->associated) {
        team->associated = false;
        (void)weft_team_close(team, NULL); /* BUSY: its worker closes it already */
    }
}

static weft_status_t endpoints_begin(struct association *a) {
    return a->type == WEFT_OBJECT_TEAM ? team_begin(a) : endpoint_begin(a);
}

static void endpoints_drain(struct association *a, weft_status_t status, bool abort) {
    if (a->type == WEFT_OBJECT_TEAM)
        team_drain(a, status, abort);
    else
        endpoint_drain(a, status, abort);
}

static bool object_rested(struct association *a) {
    return a->type == WEFT_OBJECT_TEAM ? ((weft_team_t *)a->object)->rested
                                       : ((struct weft_ep *)a->object)->rested;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static weft_status_t segment_begin(struct association *a) {
    const int *fd = weft__association_value(a, WEFT_RES_MEMORY_FD, sizeof *fd);
    const uint64_t *len = weft__association_value(a, WEFT_RES_MEMORY_LENGTH, sizeof *len);
    const uint64_t *offset = weft__association_value(a, WEFT_RES_MEMORY_OFFSET, sizeof *offset);
    if (!fd || !len || !*len)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the descriptor or length has another size");
    weft_status_t st = weft__mem_stub_begin(a->stub, NULL, *len, *fd, offset ? *offset : 0);
    weft_mem_t *mem = a->object;
    if (st == WEFT_OK) mem->associated = mem->outlives = true;
    return st;
}

static weft_status_t region_begin(struct association *a, weft_mem_t *of) {
    if (of->worker != a->worker)
        return weft__fail(WEFT_ERR_NOT_SHAREABLE, "the region belongs to another worker");
    weft__mem_stub_use(a->stub, of);
    return WEFT_OK;
}

static weft_status_t memory_begin(struct association *a) {
    weft_mem_t *const *of = weft__association_value(a, WEFT_RES_MEMORY_HANDLE, sizeof *of);
    void *const *base = weft__association_value(a, WEFT_RES_MEMORY_BASE, sizeof *base);
    const uint64_t *len = weft__association_value(a, WEFT_RES_MEMORY_LENGTH, sizeof *len);
    if (of && *of) return region_begin(a, *of);
    if (!base || !*base || !len || !*len)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the address or length has another size");
    struct ibv_mr *mr = pointer_of(a, WEFT_RES_MEMORY_MR);
    weft_status_t st = weft__mem_stub_begin_given(a->stub, *base, *len, mr);
    weft_mem_t *mem = a->object;
    if (st == WEFT_OK) mem->associated = mem->outlives = true;
    return st;
}

static void memory_drain(struct association *a, weft_status_t status, bool abort) {
    weft_mem_t *mem = a->object;
    if (mem->of) {
        weft__mem_stub_leave(a->stub);
        mem->rested = true;
    }
    if (mem->rested || !mem->associated) return;
    /* Operations of this side may use it yet, or memory be short: then it is tried again. */
    mem->associated = false;
    weft_status_t st = weft_mem_release(mem, NULL);
    if ((st == WEFT_ERR_BUSY && mem->users) || st == WEFT_ERR_NO_MEMORY) mem->associated = true;
}

static bool memory_drained(struct association *a) {
    weft_mem_t *mem = a->object;
    if (mem->associated) memory_drain(a, WEFT_ERR_DISASSOCIATED, false);
    return mem->rested;
}

/* ---- a listening socket ---------------------------------------------------------------------- */

static weft_status_t socket_begin(struct association *a) {
    const int *fd = weft__association_value(a, WEFT_RES_WORKER_SOCKET, sizeof *fd);
    const weft_resource_value_t *params = weft__association_array(a, WEFT_RES_WORKER_LISTEN);
    char uri[32];
    if (!fd)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s has another size", WEFT_RES_WORKER_SOCKET);
    snprintf(uri, sizeof uri, "tcp://@%d", *fd);
    weft_listener_t *listener;
    weft_status_t st = weft_listen_sized(params ? params->len : 0, a->object, uri,
                                         params ? params->value : NULL, &listener);
    if (st < 0) return st;
    a->reactor = a->worker->reactor;
    weft__association_listens(a, listener);
    return WEFT_OK;
}

static void socket_drain(struct association *a, weft_status_t status, bool abort) {
    weft_listener_t *listener = a->listener;
    weft__association_listens(a, NULL);
    weft_listener_close(listener);
}

/* ---- a descriptor to watch ------------------------------------------------------------------- */

/* A library whose descriptor cannot be armed is asked again later, if that was so for long. */
enum { EVENTS_AT_ONCE = 64, VAIN_ROUNDS = 16, LAST_PAUSE_MS = 100 };

static void go_on_later(struct association *a) {
    unsigned doubled = a->n_vain - VAIN_ROUNDS;
    uint64_t ms = doubled < 6 ? UINT64_C(1) << doubled : LAST_PAUSE_MS;
    /* Its place was reserved. */
    (void)weft__timer_start(a->reactor, &a->pause, weft__now(a->reactor) + ms * NS_PER_MS);
}

/* Until there is nothing, and the library has armed its descriptor. It may end the association, of
 * which nothing is left then. */
static void make_progress(struct association *a) {
    const struct reactor *r = a->reactor;
    bool ended = false, more = true, found = false;
    a->ended_p = &ended;
    for (int i = 0; i < EVENTS_AT_ONCE && more; i++) {
        more = a->events.progress(a->events.arg) > 0;
        found |= more;
        weft__program_returned(r);
        if (ended) return;
        if (!association_is_ready(&a->core.fsm)) break; /* a notice on its way holds it */
        if (!more && a->events.arm) more = a->events.arm(a->events.arg) != 0;
        weft__program_returned(r);
        if (ended) return;
    }
    a->ended_p = NULL;
    a->n_vain = found || !more ? 0 : a->n_vain + 1;
    if (!more || !association_is_ready(&a->core.fsm)) return;
    if (a->n_vain < VAIN_ROUNDS)
        weft__job_post(a->reactor, &a->again);
    else
        go_on_later(a);
}

static void events_ready(struct watch *watch, int events) {
    make_progress(container_of(watch, struct association, watch));
}
static void events_again(struct job *job) {
    make_progress(container_of(job, struct association, again));
}
static void pause_over(struct timer *timer) {
    make_progress(container_of(timer, struct association, pause));
}

static weft_status_t events_begin(struct association *a) {
    const weft_events_t *events =
        weft__association_value(a, WEFT_RES_WORKER_EVENTS, sizeof *events);
    if (!events || !events->progress || events->fd < 0)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%s has no descriptor or no function",
                          WEFT_RES_WORKER_EVENTS);
    a->events = *events;
    a->reactor = a->worker->reactor;
    a->watch.ready = events_ready;
    a->again.run = events_again;
    a->pause.fire = pause_over;
    weft_status_t st = weft__timer_reserve(a->reactor, &a->pause);
    if (st < 0) return st;
    st = weft__watch_start(a->reactor, &a->watch, events->fd, WATCH_READ);
    if (st == WEFT_OK)
        weft__job_post(a->reactor, &a->again);
    else
        weft__timer_release(a->reactor, &a->pause);
    return st;
}

static void events_drain(struct association *a, weft_status_t status, bool abort) {
    weft__job_drop(a->reactor, &a->again);
    weft__timer_release(a->reactor, &a->pause);
    if (a->watch.events) weft__watch_stop(a->reactor, &a->watch);
}

static void events_end(struct association *a) {
    events_drain(a, WEFT_OK, true);
}

/* ---- all of them ----------------------------------------------------------------------------- */

#define WORKER   (1u << WEFT_OBJECT_WORKER)
#define TEAM     (1u << WEFT_OBJECT_TEAM)
#define ENDPOINT (1u << WEFT_OBJECT_ENDPOINT)
#define MEMORY   (1u << WEFT_OBJECT_MEMORY)

const struct kind weft__resource_kinds[WEFT_N_RESOURCE_KINDS] = {
    [WEFT_RESOURCE_USER] = {.name = "user"},
    [WEFT_RESOURCE_LOOP] = {.name = "loop",
                            .objects = WORKER,
                            .ends_itself = true,
                            .mandatory = {WEFT_RES_WORKER_LOOP},
                            .begin = loop_begin,
                            .drain = own_drain,
                            .drained = is_closed},
    [WEFT_RESOURCE_WORKER] = {.name = "worker",
                              .objects = WORKER,
                              .is_worker = true,
                              .mandatory = {WEFT_RES_WORKER_HANDLE},
                              .begin = worker_begin,
                              .drain = worker_drain,
                              .drained = worker_drained,
                              .end = worker_end},
    [WEFT_RESOURCE_ENDPOINTS] = {.name = "endpoints",
                                 .objects = ENDPOINT | TEAM,
                                 .mandatory = {WEFT_RES_ENDPOINT_SET},
                                 .begin = endpoints_begin,
                                 .drain = endpoints_drain,
                                 .drained = object_rested,
                                 .end = object_end},
    [WEFT_RESOURCE_TEAM] = {.name = "team",
                            .objects = TEAM,
                            .mandatory = {WEFT_RES_TEAM_HANDLE},
                            .begin = team_begin,
                            .drain = team_drain,
                            .drained = object_rested,
                            .end = object_end},
    [WEFT_RESOURCE_SEGMENT] = {.name = "segment",
                               .objects = MEMORY,
                               .mandatory = {WEFT_RES_MEMORY_FD, WEFT_RES_MEMORY_LENGTH},
                               .begin = segment_begin,
                               .drain = memory_drain,
                               .drained = memory_drained,
                               .end = object_end},
    [WEFT_RESOURCE_MEMORY] = {.name = "memory",
                              .objects = MEMORY,
                              .mandatory = {WEFT_RES_MEMORY_BASE, WEFT_RES_MEMORY_LENGTH},
                              .begin = memory_begin,
                              .drain = memory_drain,
                              .drained = memory_drained,
                              .end = object_end},
    [WEFT_RESOURCE_SOCKET] = {.name = "socket",
                              .objects = WORKER,
                              .plain = true,
                              .mandatory = {WEFT_RES_WORKER_SOCKET},
                              .begin = socket_begin,
                              .drain = socket_drain,
                              .end = NULL},
    [WEFT_RESOURCE_CONNECTION] = {.name = "connection",
                                  .objects = ENDPOINT,
                                  .mandatory = {WEFT_RES_ENDPOINT_SOCKET},
                                  .begin = connection_begin,
                                  .drain = connection_drain,
                                  .drained = connection_drained,
                                  .end = object_end},
    [WEFT_RESOURCE_MPI] = {.name = "mpi",
                           .objects = TEAM,
                           .mandatory = {WEFT_RES_TEAM_MPI},
                           .begin = team_begin,
                           .drain = team_drain,
                           .drained = object_rested,
                           .end = object_end},
    [WEFT_RESOURCE_EVENTS] = {.name = "events",
                              .objects = WORKER,
                              .plain = true,
                              .mandatory = {WEFT_RES_WORKER_EVENTS},
                              .begin = events_begin,
                              .drain = events_drain,
                              .end = events_end},
    [WEFT_RESOURCE_VERBS] = {.name = "verbs",
                             .objects = WORKER,
                             .ends_itself = true,
                             .mandatory = {WEFT_RES_WORKER_PD},
                             .begin = given_begin,
                             .drain = own_drain,
                             .drained = is_closed,
                             .end = given_end},
    [WEFT_RESOURCE_CUDA] = {.name = "cuda",
                            .objects = WORKER,
                            .ends_itself = true,
                            .mandatory = {WEFT_RES_WORKER_CUDA_CONTEXT},
                            .begin = given_begin,
                            .drain = own_drain,
                            .drained = is_closed,
                            .end = given_end},
};

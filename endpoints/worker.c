#include "worker.h"

#include <limits.h>
#include <reactor/counters.h>

#include "connect.h"
#include "detect.h"
#include "joint.h"
#include "landing.h"
#include "live.h"
#include "loan.h"
#include "negotiate.h"
#include "posted.h"
#include "rails.h"
#include "rendezvous.h"
#include "rma.h"
#include "stream.h"
#include "tag_parts.h"
#include "thread.h"
#include "usage_worker.h"
#include "window_lane.h"

/* ---- what lanes carry, and to whom */

static const struct iface_up worker_up = {
    .am = {[WIRE_AM] = weft__on_am,
           [WIRE_TAG] = weft__on_tag,
           [WIRE_RTS] = weft__on_rts,
           [WIRE_CTS] = weft__on_cts,
           [WIRE_DATA] = weft__on_data,
           [WIRE_FIN] = weft__on_fin,
           [WIRE_CANCEL] = weft__on_cancel,
           [WIRE_GONE] = weft__on_gone,
           [WIRE_CREDIT] = weft__on_credit,
           [WIRE_HELLO] = weft__link_on_hello,
           [WIRE_OPEN] = weft__ep_on_open,
           [WIRE_ACCEPT] = weft__ep_on_accept,
           [WIRE_REJECT] = weft__ep_on_reject,
           [WIRE_CLOSE] = weft__ep_on_close,
           [WIRE_PING] = weft__link_on_ping,
           [WIRE_STREAM] = weft__on_stream,
           [WIRE_STREAM_CREDIT] = weft__on_stream_credit,
           [WIRE_PUT] = weft__on_put,
           [WIRE_GET] = weft__on_get,
           [WIRE_ATOMIC] = weft__on_atomic,
           [WIRE_RMA_DONE] = weft__on_rma_done,
           [WIRE_FLUSH] = weft__on_flush,
           [WIRE_FLUSHED] = weft__on_flushed,
           [WIRE_RAIL] = weft__on_rail,
           [WIRE_RAIL_RATE] = weft__on_rail_rate,
           [WIRE_LANE] = weft__on_lane,
           [WIRE_TAG_BEGIN] = weft__on_tag_begin,
           [WIRE_TAG_PART] = weft__on_tag_part,
           [WIRE_LEND] = weft__on_lend,
           [WIRE_HELP] = weft__on_help,
           [WIRE_HELPED] = weft__on_helped,
           [WIRE_N_IDS... LANE_AM_IDS - 1] = weft__on_unknown},
    .accepted = weft__link_accepted,
    .up = weft__link_lane_up,
    .down = weft__link_lane_down,
    .closed = weft__link_lane_closed,
    .land = weft__land,
    .keyed = weft__rma_keyed,
};

/* ---- the machine: the end, bottom up */

static void settle_later(struct weft_worker *worker) {
    weft__job_post(worker->reactor, &worker->step);
}

static void guest_closed(struct weft_worker *worker) {
    worker->n_guests--;
    settle_later(worker);
}

static void close_guests(struct weft_worker *worker) {
    struct list *node;
    while ((node = list_pop(&worker->guests)) != NULL) {
        struct worker_guest *guest = list_of(node, struct worker_guest, of_worker);
        guest->close(worker, guest->object, guest_closed);
    }
    settle_later(worker);
}

static void bound_step(struct weft_worker *worker) {
    uint64_t ms = weft__setting_u64(worker->context, SETTING_CLOSE_TIMEOUT);
    /* The heap has room: it was reserved when the worker was made. */
    (void)weft__timer_start(worker->reactor, &worker->close_timer, weft__now(worker->reactor) + ms * NS_PER_MS);
}

static void abort_all(struct list *endpoints) {
    for (struct list *n = endpoints->next, *next; n != endpoints; n = next) {
        next = n->next;
        weft__ep_abort(list_of(n, struct weft_ep, of_worker));
    }
}

static void close_endpoints(struct weft_worker *worker) {
    weft__listeners_close(worker);
    bound_step(worker);
    abort_all(&worker->due);
    abort_all(&worker->endpoints);
    settle_later(worker);
}

/* Time is up. Endpoints whose peer may be reading their memory and does not answer lose it with its link; links that
 * nobody could be told about any more are cut. */
static void close_due(struct timer *timer) {
    struct weft_worker *worker = list_of(timer, struct weft_worker, close_timer);
    for (struct list *n = worker->links.next, *next; n != &worker->links; n = next) {
        next = n->next;
        struct link *link = list_of(n, struct link, of_worker);
        if (worker->core.fsm.state == WORKER_ENDPOINTS)
            weft__link_lose(link, WEFT_ERR_CLOSED);
        else
            link->lanes[0]->ops->close(link->lanes[0], false);
    }
}

static void close_links(struct weft_worker *worker) {
    bound_step(worker);
    for (struct list *n = worker->links.next, *next; n != &worker->links; n = next) {
        next = n->next;
        weft__link_close(list_of(n, struct link, of_worker));
    }
    settle_later(worker);
}

static void drop_messages(struct list *queue) {
    struct list *node;
    while ((node = queue->next) != queue) {
        struct weft_tag_message *message = list_of(node, struct weft_tag_message, in_order);
        weft__match_remove(message);
        talloc_free(message);
    }
}

/* The tree goes when this turn is over; the program hears of it last of all. */
static void end(struct weft_worker *worker) {
    weft__reactor_finish_remotes(worker->reactor); /* other threads' submissions; each is refused now */
    weft__posted_end(worker);
    weft__thread_end(worker);
    weft__tracking_end(worker);
    weft__timer_stop(worker->reactor, &worker->close_timer);
    weft__job_drop(worker->reactor, &worker->step);
    weft__job_drop(worker->reactor, &worker->notify);
    weft__job_drop(worker->reactor, &worker->half_told);
    weft__slab_end(&worker->ep_slab);
    weft__slab_end(&worker->link_slab);
    drop_messages(&worker->match.unexpected);
    drop_messages(&worker->match.taken);
    for (uint32_t i = 0; i < worker->n_ifaces; i++) worker->iface[i]->ops->close(worker->iface[i]);
    weft__live_end(worker);
    weft__memory_end(worker);
    weft__bury(worker->reactor, worker);
    weft__reactor_end(worker->reactor, worker->closed, worker->closed_arg);
}

static void worker_effect(struct fsm *m, unsigned effect) {
    struct weft_worker *worker = list_of(m, struct weft_worker, core.fsm);
    switch ((enum worker_effect)effect) {
    case WORKER_FX_CLOSE_GUESTS: close_guests(worker); break;
    case WORKER_FX_CLOSE_ENDPOINTS: close_endpoints(worker); break;
    case WORKER_FX_CLOSE_LINKS: close_links(worker); break;
    case WORKER_FX_END: end(worker); break;
    case WORKER_N_EFFECTS: break;
    }
}

static void worker_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct weft_worker *worker = list_of(m, struct weft_worker, core.fsm);
    weft__log(worker->context, WEFT_LOG_ERROR, "endpoints", "worker: %s in %s",
              weft__worker_machine.event_name[event], fsm_state_name(m));
}

static const struct fsm_port worker_port = {&weft__worker_machine, worker_effect, worker_fail};

/* Receives that no endpoint will end. */
static void end_receives(struct weft_worker *worker) {
    struct match *m = &worker->match;
    for (unsigned i = 0; i <= MATCH_BUCKETS; i++) {
        struct list *queue = i < MATCH_BUCKETS ? &m->posted[i] : &m->posted_any;
        while (!list_empty(queue))
            weft__request_stop(list_of(queue->next, struct weft_request, queued), WEFT_ERR_CLOSED);
    }
}

/* Is what the machine waits for there? */
static void settle(struct job *job) {
    struct weft_worker *worker = list_of(job, struct weft_worker, step);
    switch ((enum worker_state)worker->core.fsm.state) {
    case WORKER_GUESTS:
        if (worker->n_guests == 0) fsm_step(&worker->core.fsm, WORKER_EV_GUESTS_GONE);
        break;
    case WORKER_ENDPOINTS:
        end_receives(worker);
        if (list_empty(&worker->endpoints) && list_empty(&worker->due))
            fsm_step(&worker->core.fsm, WORKER_EV_ENDPOINTS_GONE);
        break;
    case WORKER_LINKS:
        if (worker->n_lanes == 0) weft__memory_close(worker);
        if (!list_empty(&worker->done)) settle_later(worker);
        if (worker->n_lanes == 0 && list_empty(&worker->done)) fsm_step(&worker->core.fsm, WORKER_EV_LINKS_GONE);
        break;
    default: break;
    }
}

void weft__worker_endpoint_gone(weft_worker_t *worker) {
    settle_later(worker);
}

void weft__worker_link_gone(weft_worker_t *worker) {
    worker->n_lanes--;
    settle_later(worker);
}

/* ---- making one */

static const struct transport *find_transport(const char *name, size_t len) {
    for (const struct transport *const *t = weft__transports; *t; t++)
        if (strlen((*t)->name) == len && memcmp((*t)->name, name, len) == 0) return *t;
    return NULL;
}

/* A transport that loses gets a window around it, and loses no more. */
static weft_status_t open_iface(struct weft_worker *worker, const struct transport *transport) {
    const struct iface_up *up = worker->tracking ? &worker->tracking->up : &worker_up;
    struct iface_params params = {.up = up, .owner = worker, .worker_id = worker->id};
    struct iface *iface;
    weft_status_t st = transport->open(worker->reactor, &params, &iface);
    if (st == WEFT_OK && !(iface->attr.caps & CAP_RELIABLE)) {
        iface->ops->close(iface);
        st = weft__window_iface_open(worker->reactor, transport, &params, &iface);
    }
    if (st < 0) {
        weft__log(worker->context, WEFT_LOG_INFO, "endpoints", "no %s: %s", transport->name, weft_status_name(st));
        return st;
    }
    worker->iface[worker->n_ifaces++] = iface;
    return WEFT_OK;
}

static weft_status_t open_ifaces(struct weft_worker *worker, const char *list) {
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ", ");
        const struct transport *transport = find_transport(at, len);
        if (len && !transport) return weft__fail(WEFT_ERR_INVALID_PARAM, "no transport '%.*s'", (int)len, at);
        if (len && worker->n_ifaces < WORKER_IFACES) (void)open_iface(worker, transport);
        at += len;
        at += strspn(at, ", ");
    }
    return worker->n_ifaces ? WEFT_OK : weft__fail(WEFT_ERR_UNSUPPORTED, "none of '%s' could be opened", list);
}

/* What they cost, and from which sizes on messages go which way. */
static void weigh_ifaces(struct weft_worker *worker) {
    uint64_t threshold = weft__setting_u64(worker->context, SETTING_RENDEZVOUS_THRESHOLD);
    weft__calibration_transports(worker->reactor, &worker->calibration, worker->iface, worker->n_ifaces);
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        worker->limits[i] = weft__protocol_limits(&worker->iface[i]->attr, &worker->calibration, threshold);
}

static void complete(struct job *job) {
    weft__requests_complete(list_of(job, struct weft_worker, complete));
}

static void notify(struct job *job) {
    (void)weft__eps_tell(list_of(job, struct weft_worker, notify), UINT_MAX);
}

/* What peers may leave here unread (share.h), counted in 32 bits. */
static void share_out(struct weft_worker *worker, const weft_context_t *context) {
    worker->unexpected_limit = weft__setting_u32(context, SETTING_TAG_UNEXPECTED, INT32_MAX);
    worker->stream_window = weft__setting_u32(context, SETTING_STREAM_WINDOW, UINT32_MAX);
    assert(worker->unexpected_limit >= TAG_MESSAGE_COST && worker->stream_window > 0);
    uint64_t unread = weft__setting_u64(context, SETTING_PEER_MAX_UNREAD);
    uint64_t whole = (uint64_t)worker->unexpected_limit + worker->stream_window;
    if (unread < 2 * whole) unread = 2 * whole; /* one whole share, and something for the others */
    worker->max_unread = unread < UINT32_MAX ? (uint32_t)unread : UINT32_MAX;
    worker->whole_shares = worker->max_unread / 2 > whole ? (uint32_t)(worker->max_unread / 2 / whole) : 1;
}

static void init_lists(struct weft_worker *worker) {
    struct list *lists[] = {&worker->endpoints, &worker->due,         &worker->links,
                            &worker->listening, &worker->guests,      &worker->done,
                            &worker->held_done, &worker->held_posted, &worker->free_requests};
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) list_init(lists[i]);
    for (unsigned i = 0; i < WORKER_PEERS; i++) list_init(&worker->peers[i]);
}

static void init_jobs(struct weft_worker *worker) {
    worker->complete.run = complete;
    worker->step.run = settle;
    worker->notify.run = notify;
    worker->half_told.run = weft__links_half_told;
    worker->close_timer.fire = close_due;
}

static void init(struct weft_worker *worker, struct reactor *r, weft_context_t *context,
                 const weft_worker_params_t *params) {
    worker->reactor = r;
    worker->context = context;
    worker->count = weft__count(r);
    worker->on_endpoint = params->on_endpoint;
    worker->on_error = params->on_error;
    worker->arg = params->arg;
    worker->thread_mode = params->thread_mode;
    worker->hosted = params->loop != NULL;
    worker->tellable = NOTICE_ALL;
    worker->max_endpoints = weft__setting_u32(context, SETTING_PEER_MAX_ENDPOINTS, UINT32_MAX);
    worker->max_links = weft__setting_u32(context, SETTING_PEER_MAX_LINKS, UINT32_MAX);
    share_out(worker, context);
    init_lists(worker);
    init_jobs(worker);
    weft__slab_init(&worker->ep_slab, r, worker, sizeof(struct weft_ep), "endpoints");
    weft__slab_init(&worker->link_slab, r, worker, sizeof(struct link), "links");
    weft__match_init(&worker->match);
    weft__memory_init(worker);
    do worker->id = weft__random(r);
    while (worker->id == 0);
    fsm_init(&worker->core.fsm, &worker_port, WORKER_OPEN, (uint32_t)worker->id);
}

/* So that closing needs no memory. */
static weft_status_t reserve_close(struct weft_worker *worker) {
    weft_status_t st = weft__timer_start(worker->reactor, &worker->close_timer, UINT64_MAX);
    if (st == WEFT_OK) weft__timer_stop(worker->reactor, &worker->close_timer);
    return st;
}

static weft_status_t open_parts(struct weft_worker *worker, const char *transports) {
    weft_status_t st = reserve_close(worker);
    if (st == WEFT_OK) st = weft__tracking_open(worker, &worker_up);
    if (st == WEFT_OK) st = open_ifaces(worker, transports);
    if (st < 0) return st;
    weigh_ifaces(worker);
    st = weft__tracking_start(worker);
    return st == WEFT_OK ? weft__lanes_open(worker) : st;
}

static void discard(struct weft_worker *worker) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++) worker->iface[i]->ops->close(worker->iface[i]);
    weft__live_end(worker);
    talloc_free(worker);
}

weft_status_t weft__worker_create_on(struct reactor *r, const weft_worker_params_t *params,
                                     weft_worker_t **worker_p) {
    weft_context_t *context = weft__reactor_context(r);
    const char *transports =
        params->transports ? params->transports : weft__setting_str(context, SETTING_TRANSPORTS);
    struct weft_worker *worker = weft__new(r, struct weft_worker);
    if (!worker) return WEFT_ERR_NO_MEMORY;
    init(worker, r, context, params);
    weft__calibration(r, &worker->calibration);
    worker->name = params->name ? talloc_strdup(worker, params->name) : NULL;
    weft__live_open(worker);
    weft_status_t st = open_parts(worker, transports);
    if (st < 0) {
        discard(worker);
        return st;
    }
    weft__live_transports(worker);
    *worker_p = worker;
    return WEFT_OK;
}

weft_status_t weft_worker_create_sized(size_t params_size, weft_context_t *context,
                                       const weft_worker_params_t *params, weft_worker_t **worker_p) {
    weft_worker_params_t p;
    if (!context || !worker_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "context or worker_p is NULL");
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st < 0) return st;
    if (p.thread_mode > WEFT_THREAD_MULTIPLE)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "thread_mode is %d", p.thread_mode);
#ifdef WEFT_THREADS_FIXED
    if (p.thread_mode > WEFT_THREADS_FIXED)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "this build has a fixed thread mode, %d", WEFT_THREADS_FIXED);
#endif

    struct reactor *r;
    st = weft__reactor_create(context, &(struct reactor_params){.loop = p.loop}, &r);
    if (st < 0) return st;
    weft__reactor_thread_mode(r, p.thread_mode);
    st = weft__worker_create_on(r, &p, worker_p);
    if (st < 0) weft__reactor_destroy(r);
    return st;
}

static void nobody(weft_status_t status, void *arg) {}

weft_status_t weft_worker_close(weft_worker_t *worker, const weft_op_t *op) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = weft__worker_check(worker);
    if (st == WEFT_OK) st = weft__check_close(op, false);
    if (st < 0) return st;
    if (worker->core.fsm.state != WORKER_OPEN) return weft__fail(WEFT_ERR_BUSY, "the worker is closing already");
    if (worker->driven) return weft__fail(WEFT_ERR_BUSY, "a thread drives the worker; stop it first");
    worker->closed = op && op->done ? op->done : nobody;
    worker->closed_arg = op ? op->arg : NULL;
    if (op && op->request_p) *op->request_p = NULL;
    fsm_step(&worker->core.fsm, WORKER_EV_CLOSE);
    return WEFT_IN_PROGRESS;
}

static void note_status(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* Closing is bounded by "close.timeout" at each of its steps. */
void weft_worker_destroy(weft_worker_t *worker) {
    weft_status_t done = WEFT_IN_PROGRESS;
    if (!worker || (worker->driven && weft__thread_stop(worker, false) < 0)) return;
    if (weft__worker_check(worker) < 0 || weft__reactor_in_turn(worker->reactor)) return;
    struct reactor *r = worker->reactor;
    if (weft_worker_close(worker, &(weft_op_t){.done = note_status, .arg = &done}) < 0) return;
    while (done == WEFT_IN_PROGRESS) weft__reactor_wait(r, 100);
}

/* ---- driving it */

/* Of a worker that a thread drives: any thread of its process may, and no child. */
static weft_status_t check_driven(const weft_worker_t *worker) {
    weft_status_t st = weft__worker_enter(worker);
    return st < 0 ? st : WEFT_OK;
}

static __attribute__((noinline)) int progress_driven(weft_worker_t *worker, unsigned budget) {
    weft_status_t st = check_driven(worker);
    return st < 0 ? (int)st : weft__thread_progress(worker, budget);
}

int weft_worker_progress(weft_worker_t *worker, unsigned budget) {
    bool driven = atomic_load_explicit(&worker->driven, memory_order_acquire);
    if (__builtin_expect(driven, 0)) return progress_driven(worker, budget);
    return weft__reactor_progress(worker->reactor, budget);
}

int weft_worker_fd(weft_worker_t *worker) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = worker->driven ? check_driven(worker) : weft__worker_check(worker);
    if (st < 0) return (int)st;
    return worker->driven ? weft__thread_fd(worker) : weft__reactor_fd(worker->reactor);
}

void weft_worker_wake(weft_worker_t *worker) {
    weft__reactor_wake(worker->reactor);
    if (worker->driven && check_driven(worker) == WEFT_OK) weft__thread_wake(worker);
}

weft_status_t weft_worker_wait(weft_worker_t *worker, int timeout_ms) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = worker->driven ? check_driven(worker) : weft__worker_check(worker);
    if (st < 0) return st;
    if (worker->driven) return weft__thread_wait(worker, timeout_ms);
    if (weft__reactor_in_turn(worker->reactor)) return weft__fail(WEFT_ERR_BUSY, "called from within a callback");
    return weft__reactor_wait(worker->reactor, timeout_ms);
}

/* The owner of a worker that a thread drives is in a callback, whether it is that thread or was lent the worker. */
weft_status_t weft__worker_may_wait(const weft_worker_t *worker) {
    bool owner = weft__worker_enter(worker) == WEFT_OK;
    if (!owner || !(worker->driven || weft__reactor_in_turn(worker->reactor))) return WEFT_OK;
    return weft__fail(WEFT_ERR_BUSY, "called from within a callback");
}

weft_status_t weft__worker_wait_for(weft_worker_t *worker, const weft_status_t *done_p) {
    while (*done_p == WEFT_IN_PROGRESS) {
        weft_status_t st = weft_worker_wait(worker, -1);
        if (st < 0) return st;
    }
    return *done_p;
}

weft_status_t weft_worker_post(weft_worker_t *worker, void (*fn)(void *arg), void *arg) {
    if (!worker || !fn) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or fn is NULL");
    return weft__reactor_call(worker->reactor, fn, arg);
}

uint64_t weft_worker_now(weft_worker_t *worker) {
    return weft__now(worker->reactor);
}

/* ---- asking it */

weft_status_t weft_worker_counter(weft_worker_t *worker, size_t index, const char **name_p, uint64_t *value_p) {
    if (!worker || !name_p || !value_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, name_p or value_p is NULL");
    return weft__counter_at(worker->count, index, name_p, NULL, value_p) ? WEFT_OK : WEFT_ERR_NOT_FOUND;
}

uint64_t weft_worker_count(weft_worker_t *worker, const char *name) {
    return worker && name ? weft__counter_named(worker->count, name) : 0;
}

size_t weft_worker_trace(weft_worker_t *worker, char *buf, size_t size) {
    return fsm_trace_print(weft__reactor_trace(worker->reactor), 0, 0, buf, size);
}

weft_status_t weft_worker_transport(weft_worker_t *worker, size_t index, weft_transport_info_t *info_p) {
    if (!worker || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or info_p is NULL");
    if (index >= worker->n_ifaces) return WEFT_ERR_NOT_FOUND;
    const struct iface *iface = worker->iface[index];
    *info_p = (weft_transport_info_t){
        .name = iface->transport->name,
        .device = iface->device,
        .latency_ns = iface->attr.latency_ns,
        .bandwidth = iface->attr.bandwidth,
        .overhead_ns = iface->attr.overhead_ns,
        .message_rate = iface_message_rate(&iface->attr),
        .max_short = iface->attr.max_short,
        .max_bcopy = iface->attr.max_bcopy,
        .max_zcopy = iface->attr.max_zcopy,
        .max_iov = iface->attr.max_iov,
        .numa_node = weft__device_node(DEVICE_CLASS, iface->device),
        .capabilities = iface->attr.caps,
    };
    return WEFT_OK;
}

const char *weft_capability_name(unsigned bit) {
    static const char *const names[] = {
#define CAP_NAME(id, name) name,
        TRANSPORT_CAPS(CAP_NAME)
#undef CAP_NAME
    };
    return bit < N_TRANSPORT_CAPS ? names[bit] : NULL;
}

/* ---- for the rooms below */

struct reactor *weft__worker_reactor(weft_worker_t *worker) {
    return worker->reactor;
}

uint8_t weft__worker_number(const weft_worker_t *worker, const struct iface *iface) {
    uint32_t i = 0;
    while (i + 1 < worker->n_ifaces && worker->iface[i] != iface) i++;
    return (uint8_t)i;
}

struct iface *weft__worker_iface(weft_worker_t *worker, const char *name, size_t name_len) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        const char *own = worker->iface[i]->transport->name;
        if (strlen(own) == name_len && memcmp(own, name, name_len) == 0) return worker->iface[i];
    }
    return NULL;
}

struct iface *weft__worker_scheme(weft_worker_t *worker, const char *scheme, size_t len) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        const struct transport *transport = worker->iface[i]->transport;
        const char *own = transport->scheme ? transport->scheme : transport->name;
        if (strlen(own) == len && memcmp(own, scheme, len) == 0) return worker->iface[i];
    }
    return NULL;
}

weft_status_t weft__worker_attach(weft_worker_t *worker, const void *key, void *object,
                                  void (*close)(weft_worker_t *, void *, void (*)(weft_worker_t *))) {
    if (worker->core.fsm.state != WORKER_OPEN) return WEFT_ERR_CLOSED;
    struct worker_guest *guest = weft__new(worker, struct worker_guest);
    if (!guest) return WEFT_ERR_NO_MEMORY;
    guest->key = key;
    guest->object = object;
    guest->close = close;
    list_append(&worker->guests, &guest->of_worker);
    worker->n_guests++;
    return WEFT_OK;
}

void *weft__worker_attached(weft_worker_t *worker, const void *key) {
    for (struct list *n = worker->guests.next; n != &worker->guests; n = n->next) {
        struct worker_guest *guest = list_of(n, struct worker_guest, of_worker);
        if (guest->key == key) return guest->object;
    }
    return NULL;
}

/* Listeners: the calls of the program, and the endpoints that connections to them become. */
#include "connect.h"
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>
#include <endpoints/failover/heartbeat.h>

/* Lanes carry the id of their listener as listen_arg, and OPEN names it. */
struct weft_listener {
    struct list of_worker;
    struct weft_worker *worker;
    struct iface *iface;
    struct tl_listener *tl;
    uint32_t id;
    const struct lease *lease; /* of the worker that listens by another's; NULL: none */
    weft_listen_params_t params;
};

/* The transport that listens at the URI, and the address there. */
static weft_status_t find_place(weft_worker_t *worker, const char *uri, struct iface **iface_p,
                                const char **where_p) {
    weft_status_t st = weft__worker_check(worker);
    if (st < 0) return st;
    if (!worker_is_open(&worker->core.fsm)) return weft__worker_refuse(worker);
    st = weft__uri_read(worker, uri, iface_p, where_p);
    if (st < 0 || (*iface_p)->ops->listen) return st;
    return weft__fail(WEFT_ERR_UNSUPPORTED, "the transport of '%s' does not support listening",
                      uri);
}

static weft_status_t check_listener(const struct weft_listener *listener, const char *uri) {
    if (listener->params.backlog < 0)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "backlog is %d", listener->params.backlog);
    if (listener->params.heartbeat_ms && listener->params.heartbeat_ms < HEARTBEAT_LEAST_MS)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "heartbeat_ms is below %d", HEARTBEAT_LEAST_MS);
    if (listener->params.shared && !listener->iface->attr.shares_listeners)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "an address of '%s' has one listener", uri);
    return WEFT_OK;
}

static weft_status_t start_listening(struct weft_listener *listener, const char *where) {
    weft_worker_t *worker = listener->worker;
    struct iface *iface = listener->iface;
    int backlog = listener->params.backlog
                      ? listener->params.backlog
                      : (int)weft__setting_u32(worker->context, SETTING_LISTEN_BACKLOG, INT32_MAX);
    struct listen_how how = {backlog, listener->params.shared != 0};
    weft_status_t st = weft__idmap_add(worker, &worker->listeners, listener, &listener->id);
    if (st < 0) return st;
    st = iface->ops->listen(iface, where, &how, (void *)(uintptr_t)listener->id, &listener->tl);
    if (st < 0)
        weft__idmap_remove(&worker->listeners, listener->id);
    else
        list_append(&worker->listening, &listener->of_worker);
    return st;
}

weft_status_t weft_listen_sized(size_t params_size, weft_worker_t *worker, const char *uri,
                                const weft_listen_params_t *params, weft_listener_t **listener_p) {
    if (!worker || !uri || !listener_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "worker, uri or listener_p is NULL");
    const struct lease *lease = worker->lease;
    struct iface *iface = NULL;
    const char *where = NULL;
    worker = weft__worker_itself(worker);
    weft_status_t st = find_place(worker, uri, &iface, &where);
    if (st < 0) return st;

    struct weft_listener *listener = weft__new(worker->reactor, struct weft_listener);
    if (!listener) return WEFT_ERR_NO_MEMORY;
    listener->worker = worker;
    listener->iface = iface;
    listener->lease = lease;
    st = weft__params_read(&listener->params, sizeof listener->params, params, params_size);
    if (st == WEFT_OK) st = check_listener(listener, uri);
    if (st == WEFT_OK) st = start_listening(listener, where);
    if (st == WEFT_OK)
        *listener_p = listener;
    else
        talloc_free(listener);
    return st;
}

weft_status_t weft_listener_adopt(weft_listener_t *listener, int fd) {
    if (!listener) return weft__fail(WEFT_ERR_INVALID_PARAM, "listener is NULL");
    weft_status_t st = weft__worker_check(listener->worker);
    if (st < 0) return st;
    if (!listener->iface->ops->listener_adopt)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "the listener's transport adopts no sockets");
    return listener->iface->ops->listener_adopt(listener->tl, fd);
}

const char *weft_listener_uri(const weft_listener_t *listener) {
    return listener ? listener->iface->ops->listener_uri(listener->tl) : NULL;
}

static void stop_listening(weft_listener_t *listener) {
    struct weft_worker *worker = listener->worker;
    listener->iface->ops->listener_close(listener->tl);
    weft__idmap_remove(&worker->listeners, listener->id);
    list_remove(&listener->of_worker);
    weft__free_later(worker->reactor, listener);
}

void weft_listener_close(weft_listener_t *listener) {
    if (listener && weft__worker_check(listener->worker) == WEFT_OK) stop_listening(listener);
}

void weft__leased_listeners_close(weft_worker_t *worker, const struct lease *lease) {
    list_for_each_safe(n, next, &worker->listening) {
        weft_listener_t *listener = list_of(n, weft_listener_t, of_worker);
        if (listener->lease == lease) stop_listening(listener);
    }
}

void weft__listeners_close(weft_worker_t *worker) {
    while (!list_empty(&worker->listening))
        stop_listening(list_of(worker->listening.next, struct weft_listener, of_worker));
}

weft_status_t weft__ep_admit(struct link *link, uint32_t id) {
    char peer[128];
    if (!worker_is_open(&link->worker->core.fsm)) return WEFT_ERR_REFUSED;
    if (id == 0) return WEFT_OK;
    struct weft_listener *listener = weft__idmap_find(&link->worker->listeners, id);
    if (!listener) return WEFT_ERR_REFUSED;
    if (!listener->params.on_request) return WEFT_OK;
    link->lane->ops->describe(link->lane, peer, sizeof peer);
    weft_status_t answer = listener->params.on_request(peer, listener->params.arg);
    weft__program_returned(link->worker->reactor);
    if (answer < 0) return WEFT_ERR_REJECTED;
    /* The callback may have closed the listener or the worker. */
    return weft__idmap_find(&link->worker->listeners, id) && worker_is_open(&link->worker->core.fsm)
               ? WEFT_OK
               : WEFT_ERR_REFUSED;
}

weft_status_t weft__ep_heartbeats(struct link *link, uint32_t id) {
    struct weft_listener *listener = id ? weft__idmap_find(&link->worker->listeners, id) : NULL;
    if (!listener || !listener->params.heartbeat_ms || link->more->heartbeat) return WEFT_OK;
    weft_status_t st = weft__heartbeat_new(link, listener->params.heartbeat_ms);
    if (st == WEFT_OK) weft__heartbeat_begin(link);
    return st;
}

weft_status_t weft__ep_adopt(struct weft_ep *ep, uint32_t id, const struct lease *lease) {
    struct weft_worker *worker = ep->worker, *owner = lease ? lease->user : worker;
    struct weft_listener *listener = id ? weft__idmap_find(&worker->listeners, id) : NULL;
    ep->start = weft__new(worker, struct ep_start);
    if (!ep->start) return WEFT_ERR_NO_MEMORY;
    ep->start->notified = listener ? listener->params.on_endpoint : owner->on_endpoint;
    ep->on_error = listener ? listener->params.on_error : owner->on_error;
    ep->start->arg = ep->arg = listener ? listener->params.arg : owner->arg;
    if (!listener && !lease && !ep->on_error && !ep->start->notified)
        ep->on_error = weft__ep_end_unknown;
    if (listener && listener->lease) lease = listener->lease;
    if (lease) weft__ep_hold_lease(ep, lease);
    return WEFT_OK;
}

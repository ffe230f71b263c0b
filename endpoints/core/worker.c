/* What a worker has: its interfaces, by number, name and scheme, and what rooms above attached
 * to it. */
#include "worker.h"

#include <stdio.h>

weft_status_t weft__worker_check_own(const weft_worker_t *worker) {
    if (worker->shared)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "another worker does its work: call this for it");
    return weft__reactor_is_dormant(worker->reactor) ? weft__worker_check(worker) : WEFT_OK;
}

weft_status_t weft__worker_end_status(const weft_worker_t *worker) {
    int status = worker->stub ? atomic_load(&worker->stub->status) : WEFT_OK;
    return status < 0 ? (weft_status_t)status : WEFT_ERR_CLOSED;
}

weft_status_t weft__worker_refuse(const weft_worker_t *worker) {
    weft_status_t st = weft__worker_end_status(worker);
    return st == WEFT_ERR_CLOSED ? weft__fail(st, "the worker is closing")
                                 : weft__stub_refuse(worker->stub);
}

struct reactor *weft__worker_reactor(weft_worker_t *worker) {
    return worker->reactor;
}

/* ---- interfaces */

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

bool weft__iface_is_named(const struct iface *iface, const char *transports) {
    const char *own = iface->transport->name;
    for (const char *at = transports; at && *at;) {
        size_t len = strcspn(at, ", ");
        if (strlen(own) == len && memcmp(own, at, len) == 0) return true;
        at += len;
        at += strspn(at, ", ");
    }
    return !transports;
}

static const char *scheme_of(const struct transport *transport) {
    return transport->scheme ? transport->scheme : transport->name;
}

static bool has_scheme(const struct transport *transport, const char *scheme, size_t len) {
    const char *own = scheme_of(transport);
    return strlen(own) == len && memcmp(own, scheme, len) == 0;
}

struct iface *weft__worker_scheme(weft_worker_t *worker, const char *scheme, size_t len) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        if (has_scheme(worker->iface[i]->transport, scheme, len)) return worker->iface[i];
    }
    return NULL;
}

bool weft__scheme_is_known(const char *scheme, size_t len) {
    for (const struct transport *const *t = weft__transports; *t; t++) {
        if (has_scheme(*t, scheme, len)) return true;
    }
    return false;
}

void weft__schemes(char *text, size_t size) {
    size_t used = 0;
    *text = '\0';
    for (const struct transport *const *t = weft__transports; *t && used < size; t++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", scheme_of(*t));
    }
}

/* ---- attachments */

typedef void (*attachment_close_fn)(weft_worker_t *worker, void *object,
                                    void (*closed)(weft_worker_t *worker));

weft_status_t weft__worker_attach_first(weft_worker_t *worker, const void *key, void *object,
                                        attachment_close_fn close) {
    if (!worker_is_open(&worker->core.fsm)) return weft__worker_refuse(worker);
    struct worker_attachment *attachment = weft__new(worker, struct worker_attachment);
    if (!attachment) return WEFT_ERR_NO_MEMORY;
    attachment->key = key;
    attachment->object = object;
    attachment->close = close;
    list_prepend(&worker->attachments, &attachment->of_worker);
    worker->n_attachments++;
    return WEFT_OK;
}

weft_status_t weft__worker_attach(weft_worker_t *worker, const void *key, void *object,
                                  attachment_close_fn close) {
    weft_status_t st = weft__worker_attach_first(worker, key, object, close);
    if (st < 0) return st;
    list_append(&worker->attachments, list_pop(&worker->attachments));
    return WEFT_OK;
}

void weft__worker_detach(weft_worker_t *worker, const void *key) {
    list_for_each_safe(n, next, &worker->attachments) {
        struct worker_attachment *attachment = list_of(n, struct worker_attachment, of_worker);
        if (attachment->key != key) continue;
        list_remove(&attachment->of_worker);
        talloc_free(attachment);
        worker->n_attachments--;
    }
}

void *weft__worker_attached(weft_worker_t *worker, const void *key) {
    struct worker_attachment *attachment;
    list_for_each_entry(attachment, &worker->attachments, of_worker) {
        if (attachment->key == key) return attachment->object;
    }
    return NULL;
}

/* ---- what its close waits for: the machine looks again after this turn */

void weft__worker_endpoint_gone(weft_worker_t *worker) {
    weft__job_post(worker->reactor, &worker->close.step);
}

void weft__worker_link_gone(weft_worker_t *worker) {
    worker->n_lanes--;
    weft__job_post(worker->reactor, &worker->close.step);
}

/* ---- objects without a resource */

/* Never written: no call enters their reactors. One for each status that calls return. */
enum { N_DORMANT = 3 };
static const weft_status_t dormant_status[N_DORMANT] = {
    WEFT_ERR_NOT_ASSOCIATED, WEFT_ERR_DISASSOCIATED, WEFT_ERR_RESOURCE_LOST};
static struct weft_worker dormant[N_DORMANT];
static pthread_once_t dormant_once = PTHREAD_ONCE_INIT;

static void fill_dormant(void) {
    for (int i = 0; i < N_DORMANT; i++)
        dormant[i].reactor = weft__reactor_dormant(dormant_status[i]);
}

weft_worker_t *weft__stub_worker(weft_status_t status) {
    int i = N_DORMANT - 1;
    pthread_once(&dormant_once, fill_dormant);
    while (i > 0 && dormant_status[i] != status) i--;
    return &dormant[i];
}

bool weft__is_stub_worker(const weft_worker_t *worker) {
    return worker >= dormant && worker < dormant + N_DORMANT;
}

static void free_stub(struct stub *stub) {
    if (stub->closing) stub->closing(stub);
    stub->parent->n_opened_by--;
    weft__stub_free(stub);
}

/* The worker closes: its objects that have no resource go with it. */
static void close_stub(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *)) {
    struct stub *stub = object;
    stub->abandoned = true;
    if (!atomic_load(&stub->claim)) free_stub(stub); /* otherwise its association ends it */
    closed(worker);
}

weft_status_t weft__worker_stub_new(weft_worker_t *worker, enum stub_type type, void *object,
                                    const void *params, size_t size, struct stub **stub_p) {
    weft_worker_t *itself = weft__worker_itself(worker);
    struct stub *stub;
    if (!worker->stub)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "worker: the parent was not created in associated mode");
    weft_status_t st = weft__worker_check(itself);
    if (st == WEFT_OK) st = weft__stub_new(worker->stub->context, type, object, itself, &stub);
    if (st < 0) return st;
    stub->params = weft__alloc(stub, size, "params of a stub");
    st = stub->params ? weft__worker_attach(itself, stub, stub, close_stub) : WEFT_ERR_NO_MEMORY;
    if (st < 0) {
        weft__stub_free(stub);
        return st;
    }
    memcpy(stub->params, params, size);
    stub->parent = worker;
    worker->n_opened_by++;
    *stub_p = stub;
    return WEFT_OK;
}

void weft__worker_stub_gone(struct stub *stub) {
    weft__worker_detach(stub->worker, stub);
    stub->parent->n_opened_by--;
    weft__stub_free(stub);
}

void weft__worker_stub_rests(struct stub *stub, weft_status_t status) {
    atomic_store(&stub->status, status);
    if (stub->abandoned) free_stub(stub);
}

static struct stub *resting_of(const weft_worker_t *parent, const struct list *node) {
    struct worker_attachment *attachment = list_of(node, struct worker_attachment, of_worker);
    if (attachment->close != close_stub) return NULL;
    struct stub *stub = attachment->object;
    return stub->parent == parent && !atomic_load(&stub->claim) ? stub : NULL;
}

uint32_t weft__worker_stubs_resting(const weft_worker_t *parent, const weft_worker_t *itself) {
    uint32_t n = 0;
    list_for_each(node, &itself->attachments) n += resting_of(parent, node) != NULL;
    return n;
}

void weft__worker_stubs_free(const weft_worker_t *parent, weft_worker_t *itself) {
    list_for_each_safe(node, next, &itself->attachments) {
        struct stub *stub = resting_of(parent, node);
        if (!stub) continue;
        if (stub->closing) stub->closing(stub);
        weft__worker_stub_gone(stub);
    }
}

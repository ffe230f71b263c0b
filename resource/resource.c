/* Descriptions: what a provider gives out. */
#include "resource.h"

#include <base/check.h>
#include <endpoints/core/worker.h>
#include <string.h>
#include <transports/cuda/peer_memory.h>
#include <transports/domain.h>
#include <unistd.h>

/* ---- values ---------------------------------------------------------------------------------- */

static weft_status_t copy_value(struct values *values, const weft_resource_value_t *given) {
    weft_resource_value_t *to = &values->value[values->n];
    if (!given->key || !*given->key) REFUSE("values.key", "NULL or empty");
    if (!given->value || !given->len)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the value of %s is empty", given->key);
    to->key = talloc_strdup(values->value, given->key);
    to->value = talloc_memdup(values->value, given->value, given->len);
    to->len = given->len;
    if (!to->key || !to->value) return WEFT_ERR_NO_MEMORY;
    values->n++;
    return WEFT_OK;
}

weft_status_t weft__values_copy(const void *parent, const weft_resource_value_t *given, size_t n,
                                struct values *values_p) {
    *values_p = (struct values){0};
    if (n && !given) REFUSE("values", "NULL");
    if (!n) return WEFT_OK;
    values_p->value = weft__alloc(parent, n * sizeof *values_p->value, "resource values");
    if (!values_p->value) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = WEFT_OK;
    for (size_t i = 0; st == WEFT_OK && i < n; i++) st = copy_value(values_p, &given[i]);
    return st;
}

const weft_resource_value_t *weft__values_find(const struct values *values, const char *key) {
    for (size_t i = 0; i < values->n; i++)
        if (strcmp(values->value[i].key, key) == 0) return &values->value[i];
    return NULL;
}

/* ---- describing ------------------------------------------------------------------------------ */

/* A child might find the lock as a thread of its parent left it. The users are its parent's. */
weft_status_t weft__resource_check(const weft_resource_t *r) {
    return r->generation == weft__fork_generation()
               ? WEFT_OK
               : weft__fail(WEFT_ERR_FORKED, "%s belongs to the parent of this forked process",
                            r->name);
}

static weft_status_t check_params(const weft_resource_params_t *p) {
    if ((unsigned)p->kind >= WEFT_N_RESOURCE_KINDS) REFUSE("params->kind", "no kind");
    if (p->thread_mode > WEFT_THREAD_MULTIPLE) REFUSE("params->thread_mode", "no thread mode");
    if (p->share > WEFT_SHARE_PART) REFUSE("params->share", "no share mode");
    const weft_lease_t *lease = &p->lease;
    if (lease->tag_bits > 63 || lease->am_first > WEFT_AM_ID_MAX ||
        lease->am_count > WEFT_AM_ID_MAX + 1u - lease->am_first)
        REFUSE("params->lease", "out of range");
    if (lease->tag_first & ((UINT64_C(1) << lease->tag_bits) - 1))
        REFUSE("params->lease.tag_first", "no multiple of 2^tag_bits");
    if (p->n_mandatory && !p->mandatory) REFUSE("params->mandatory", "NULL");
    if (p->abi_version && p->abi_version != WEFT_RESOURCE_ABI)
        return weft__fail(WEFT_ERR_VERSION_MISMATCH,
                          "the provider has version %u of the resource's layout, the library %u",
                          p->abi_version, WEFT_RESOURCE_ABI);
    return WEFT_OK;
}

static weft_status_t copy_text(const void *parent, const char *text, char **to) {
    if (!text) return WEFT_OK;
    *to = talloc_strdup(parent, text);
    return *to ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static weft_status_t copy_mandatory(weft_resource_t *r, const weft_resource_params_t *p) {
    if (!p->n_mandatory) return WEFT_OK;
    r->mandatory = weft__alloc(r, p->n_mandatory * sizeof *r->mandatory, "mandatory keys");
    if (!r->mandatory) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = WEFT_OK;
    for (; st == WEFT_OK && r->n_mandatory < p->n_mandatory; r->n_mandatory++) {
        char *key = NULL;
        st = copy_text(r->mandatory, p->mandatory[r->n_mandatory], &key);
        r->mandatory[r->n_mandatory] = key ? key : "";
    }
    return st;
}

static weft_status_t fill(weft_resource_t *r, const weft_resource_params_t *p) {
    const char *name = p->name ? p->name : weft__resource_kinds[p->kind].name;
    r->kind = p->kind;
    r->provider = p->provider;
    r->thread_mode = p->thread_mode;
    r->share = p->share;
    r->lease = p->lease;
    r->owner = pthread_self();
    r->generation = weft__fork_generation();
    r->channel = r->own_fd = -1;
    pthread_mutex_init(&r->lock, NULL);
    list_init(&r->users);
    weft_status_t st = copy_text(r, name, &r->name);
    if (st == WEFT_OK) st = copy_text(r, p->build_id, &r->build_id);
    if (st == WEFT_OK) st = copy_mandatory(r, p);
    return st == WEFT_OK ? weft__values_copy(r, p->values, p->n_values, &r->values) : st;
}

weft_status_t weft_resource_describe_sized(size_t params_size, const weft_resource_params_t *params,
                                           weft_resource_t **resource_p) {
    weft_resource_params_t p;
    if (!params) REFUSE("params", "NULL");
    if (!resource_p) REFUSE("resource_p", "NULL");
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st == WEFT_OK) st = check_params(&p);
    if (st < 0) return st;
    weft_resource_t *r = weft__new(NULL, weft_resource_t);
    if (!r) return WEFT_ERR_NO_MEMORY;
    st = fill(r, &p);
    if (st < 0)
        talloc_free(r);
    else
        *resource_p = r;
    return st;
}

static void free_resource(weft_resource_t *r) {
    if (r->watcher) weft__watch_stop(r->watcher, &r->watch);
    if (r->channel >= 0) close(r->channel);
    if (r->own_fd >= 0) close(r->own_fd);
    if (r->domain) weft__domain_end(r->domain);
    if (r->import) weft__cuda_import_end(r->import);
    pthread_mutex_destroy(&r->lock);
    talloc_free(r);
}

void weft__resource_post(weft_resource_t *r) {
    pthread_mutex_lock(&r->lock);
    r->n_posted++;
    pthread_mutex_unlock(&r->lock);
}

static bool begin_notice(weft_resource_t *r) {
    pthread_mutex_lock(&r->lock);
    bool released = r->released;
    pthread_mutex_unlock(&r->lock);
    return !released;
}

static void end_notice(weft_resource_t *r) {
    pthread_mutex_lock(&r->lock);
    bool last = --r->n_posted == 0 && r->released;
    pthread_mutex_unlock(&r->lock);
    if (last) free_resource(r);
}

void weft__resource_notify(weft_resource_t *r, weft_resource_event_t event) {
    if (begin_notice(r)) r->provider.notify(r, event, r->provider.arg);
    weft__resource_program_returned(r);
    end_notice(r);
}

weft_status_t weft_resource_release(weft_resource_t *resource) {
    if (!resource) REFUSE("resource", "NULL");
    bool is_known = resource->attached || resource->watched; /* to a worker */
    weft_status_t st = weft__resource_check(resource);
    if (st == WEFT_OK && is_known) st = weft__worker_check(resource->exporter);
    if (st < 0) return st;
    pthread_mutex_lock(&resource->lock);
    size_t n = resource->n_users;
    pthread_mutex_unlock(&resource->lock);
    if (n)
        return weft__fail(WEFT_ERR_BUSY, "%zu objects are associated with %s", n, resource->name);
    if (resource->attached) weft__worker_detach(resource->exporter, resource);
    if (resource->watched) weft__worker_detach(resource->exporter, &resource->watch);
    pthread_mutex_lock(&resource->lock);
    bool later = resource->n_posted > 0;
    resource->released = true;
    pthread_mutex_unlock(&resource->lock);
    if (!later) free_resource(resource);
    return WEFT_OK;
}

/* ---- the end, from the provider -------------------------------------------------------------- */

/* A notice for each user of this moment, which holds it until it has run. Returns those that are
 * to be run here. Within `lock`, so that no reactor ends before its notice is offered. */
static struct posted_notice *hold_users(weft_resource_t *r, enum notice what, uint64_t drain_ms) {
    struct posted_notice *first = NULL, **end = &first;
    list_for_each(n, &r->users) {
        struct association *a = list_of(n, struct association, of_resource);
        struct posted_notice *notice = &a->notice[what];
        if (notice->posted) continue;
        notice->posted = true;
        notice->drain_ms = drain_ms;
        notice->waits = a->way == NOTICE_WAITS;
        if (notice->waits || a->ends) continue;
        a->ends = a->way == NOTICE_HERE;
        atomic_fetch_add(&a->notices, 1);
        if (a->way == NOTICE_OFFERED && weft__association_offer(notice)) continue;
        *end = notice;
        end = &notice->next;
    }
    return first;
}

/* The last one may end the resource. */
static void run_notices(struct posted_notice *first) {
    for (struct posted_notice *notice = first, *next; notice; notice = next) {
        next = notice->next;
        weft__association_run(notice);
    }
}

void weft_resource_lose(weft_resource_t *resource) {
    if (!resource || weft__resource_check(resource) < 0) return;
    pthread_mutex_lock(&resource->lock);
    bool notifies = resource->status != WEFT_ERR_RESOURCE_LOST && resource->provider.notify;
    resource->status = WEFT_ERR_RESOURCE_LOST;
    resource->n_posted += notifies;
    struct posted_notice *all = hold_users(resource, NOTICE_LOSE, 0);
    pthread_mutex_unlock(&resource->lock);
    if (notifies) weft__resource_notify(resource, WEFT_RESOURCE_LOST);
    run_notices(all);
}

static weft_status_t end_all(weft_resource_t *r, weft_status_t status, const weft_op_t *op) {
    weft_status_t st = weft__resource_check(r);
    struct posted_notice *all = NULL;
    if (st == WEFT_OK) st = weft__check_plain_op(op, 0);
    if (st < 0) return st;
    pthread_mutex_lock(&r->lock);
    bool busy = r->withdrawn != NULL, used = r->n_users > 0;
    if (!busy && status < 0 && r->status != WEFT_ERR_RESOURCE_LOST) r->status = status;
    if (!busy && used) {
        r->withdrawn = op ? op->done : NULL;
        r->withdrawn_arg = op ? op->arg : NULL;
        if (op && op->request_p) *op->request_p = NULL;
        all = hold_users(r, NOTICE_RECALL, op ? op->deadline_ms : 0);
    }
    pthread_mutex_unlock(&r->lock);
    if (busy) return weft__fail(WEFT_ERR_BUSY, "the resource is being withdrawn already");
    run_notices(all);
    return used ? WEFT_IN_PROGRESS : WEFT_OK;
}

weft_status_t weft_resource_withdraw(weft_resource_t *resource, const weft_op_t *op) {
    if (!resource) REFUSE("resource", "NULL");
    return end_all(resource, WEFT_ERR_DISASSOCIATED, op);
}

struct association *weft__resource_user(weft_resource_t *r, const void *object) {
    struct association *found = NULL;
    pthread_mutex_lock(&r->lock);
    list_for_each(n, &r->users) {
        struct association *a = list_of(n, struct association, of_resource);
        if (a->object == object) found = a;
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

/* Of a context, within `lock`. OK: this thread is the first to end it, and holds it. IN_PROGRESS:
 * the thread that associates it ends it before it returns. CLOSED: it ends already. */
static weft_status_t begin_end(struct association *a, const weft_op_t *op) {
    struct posted_notice *notice = &a->notice[NOTICE_RECALL];
    if (a->ends || (a->way == NOTICE_WAITS && notice->posted)) return WEFT_ERR_CLOSED;
    if (a->way == NOTICE_WAITS) {
        notice->posted = notice->waits = true;
        a->done = op ? op->done : NULL;
        a->done_arg = op ? op->arg : NULL;
        if (op && op->request_p) *op->request_p = NULL;
        return WEFT_IN_PROGRESS;
    }
    a->ends = true;
    weft__association_hold(a);
    return WEFT_OK;
}

/* The one that this thread may end. OK and NULL: there is none, or it ends. */
static weft_status_t find_to_end(weft_resource_t *r, const void *object, const weft_op_t *op,
                                 struct association **found_p) {
    struct association *found = NULL;
    weft_status_t st = WEFT_OK;
    pthread_mutex_lock(&r->lock);
    list_for_each(n, &r->users) {
        struct association *a = list_of(n, struct association, of_resource);
        if (a->object == object) found = a;
    }
    if (found && found->type == WEFT_OBJECT_CONTEXT)
        st = begin_end(found, op);
    else if (found && found->worker)
        st = weft__worker_check(found->worker);
    pthread_mutex_unlock(&r->lock);
    *found_p = st == WEFT_OK ? found : NULL;
    return st == WEFT_ERR_CLOSED ? WEFT_OK : st;
}

weft_status_t weft__resource_reactor(weft_resource_t *r, const void *object,
                                     struct reactor **reactor_p, weft_worker_t **worker_p) {
    weft_worker_t *worker = object ? NULL : weft__worker_itself(r->provider.worker);
    struct reactor *found = worker ? worker->reactor : NULL;
    weft_status_t st = WEFT_OK;
    bool more = false;
    pthread_mutex_lock(&r->lock);
    list_for_each(n, &r->users) {
        const struct association *a = list_of(n, struct association, of_resource);
        struct reactor *its = weft__association_reactor(a);
        if ((object && a->object != object) || !its) continue;
        more |= found && found != its;
        found = its;
        if (a->worker || a->ends_in) worker = a->worker ? a->worker : a->object;
    }
    if (found && !more) st = weft__reactor_check(found);
    pthread_mutex_unlock(&r->lock);
    if (st < 0) return st;
    if (more)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "the objects belong to more than one worker; disassociate each");
    *reactor_p = found;
    *worker_p = worker;
    return WEFT_OK;
}

weft_status_t weft_disassociate_resources(weft_resource_t *resource, void *object,
                                          const weft_op_t *op) {
    if (!resource) REFUSE("resource", "NULL");
    if (!object) return end_all(resource, WEFT_OK, op);
    struct association *a = NULL;
    weft_status_t st = weft__resource_check(resource);
    if (st == WEFT_OK) st = weft__check_plain_op(op, 0);
    if (st == WEFT_OK) st = find_to_end(resource, object, op, &a);
    if (!a) return st;
    bool held = a->type == WEFT_OBJECT_CONTEXT;
    st = weft__association_disassociate(a, op);
    if (held) weft__association_let_go(a);
    return st;
}

struct withdrawal {
    weft_done_fn done;
    void *arg;
};

static void run_withdrawn(void *arg) {
    struct withdrawal own = *(struct withdrawal *)arg;
    talloc_free(arg);
    own.done(WEFT_OK, own.arg);
}

/* Within `lock`, as a worker that ends loses what it provides before: no post comes too late. */
static bool post_provider(weft_resource_t *r, void (*fn)(void *arg), void *arg) {
    weft_worker_t *worker = r->status == WEFT_ERR_RESOURCE_LOST ? NULL : r->provider.worker;
    return worker && weft_worker_post(worker, fn, arg) == WEFT_OK;
}

bool weft__resource_post_provider(weft_resource_t *r, void (*fn)(void *arg), void *arg) {
    pthread_mutex_lock(&r->lock);
    bool posted = post_provider(r, fn, arg);
    pthread_mutex_unlock(&r->lock);
    return posted;
}

/* Within `lock`. False: no worker is named, it may be gone, or there is no memory; then the caller
 * calls it. */
static bool post_withdrawn(weft_resource_t *r) {
    struct withdrawal *withdrawal = weft__new(NULL, struct withdrawal);
    if (!withdrawal) return false;
    *withdrawal = (struct withdrawal){r->withdrawn, r->withdrawn_arg};
    if (post_provider(r, run_withdrawn, withdrawal)) return true;
    talloc_free(withdrawal);
    return false;
}

bool weft__resource_leave(struct association *a, struct resource_left *left_p) {
    weft_resource_t *r = a->resource;
    pthread_mutex_lock(&r->lock);
    bool leaves = !atomic_load(&a->notices);
    if (leaves) {
        list_remove(&a->of_resource);
        bool last = --r->n_users == 0, here = last && r->withdrawn && !post_withdrawn(r);
        *left_p =
            (struct resource_left){r->generation, here ? r->withdrawn : NULL, r->withdrawn_arg};
        if (last) r->withdrawn = NULL;
    }
    pthread_mutex_unlock(&r->lock);
    return leaves;
}

void weft__resource_returned(const struct resource_left *left) {
    if (!left->withdrawn) return;
    left->withdrawn(WEFT_OK, left->arg);
    weft__program_returned_to(left->generation);
}

/* ---- looking at it --------------------------------------------------------------------------- */

weft_status_t weft_resource_info_sized(size_t info_size, weft_resource_t *resource,
                                       weft_resource_info_t *info_p) {
    if (!resource || !info_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "resource or info_p is NULL");
    weft_status_t st = weft__resource_check(resource);
    if (st < 0) return st;
    pthread_mutex_lock(&resource->lock);
    weft_resource_info_t info = {.name = resource->name,
                                 .kind = weft__resource_kinds[resource->kind].name,
                                 .share = resource->share,
                                 .thread_mode = resource->thread_mode,
                                 .n_values = resource->values.n,
                                 .n_users = resource->n_users,
                                 .status = resource->status};
    list_for_each(n, &resource->users) {
        info.leased_am += list_of(n, struct association, of_resource)->wanted.am_count;
    }
    pthread_mutex_unlock(&resource->lock);
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}

weft_status_t weft_resource_value(weft_resource_t *resource, const char *key, const void **value_p,
                                  size_t *len_p) {
    if (!resource || !key || !value_p || !len_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "resource, key, value_p or len_p is NULL");
    const weft_resource_value_t *value = weft__values_find(&resource->values, key);
    if (!value) return weft__fail(WEFT_ERR_NOT_FOUND, "%s has no value %s", resource->name, key);
    *value_p = value->value;
    *len_p = value->len;
    return WEFT_OK;
}

void weft__association_listens(struct association *a, weft_listener_t *listener) {
    pthread_mutex_lock(&a->resource->lock);
    a->listener = listener;
    pthread_mutex_unlock(&a->resource->lock);
}

weft_listener_t *weft_resource_listener(weft_resource_t *resource) {
    weft_listener_t *found = NULL;
    if (!resource || weft__resource_check(resource) < 0) return NULL;
    pthread_mutex_lock(&resource->lock);
    list_for_each(n, &resource->users) {
        if (!found) found = list_of(n, struct association, of_resource)->listener;
    }
    pthread_mutex_unlock(&resource->lock);
    return found;
}

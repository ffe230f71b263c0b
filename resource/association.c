/* An association from its beginning to its end: the machines of both sides, and their ports. */
#include <base/context.h>
#include <collectives/team.h>
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>
#include <endpoints/inspect/stats_page.h>
#include <endpoints/worker/drive.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "resource.h"

const char *const weft__object_names[] = {"context", "worker", "team", "endpoint", "region"};
/* From one look whether a consumer has drained to the next: the time doubles. */
enum { FIRST_LOOK_NS = 50000, LAST_LOOK_NS = 16000000 };

/* ---- the machines' effects ------------------------------------------------------------------- */

/* For other threads, which may not look at an association, since it may end at any time. */
static void show_state(const struct association *a) {
    if (a->stub && atomic_load(&a->stub->claim) == a)
        atomic_store(&a->stub->state, fsm_state_name(&a->core.fsm));
}

void weft__association_unclaim(struct stub *stub) {
    atomic_store(&stub->state, NULL);
    atomic_store(&stub->claim, NULL);
}

void weft__association_step(struct association *a, unsigned event) {
    weft__fsm_step(&a->core.fsm, event);
    show_state(a);
}

static void detach(struct association *a) {
    const weft_resource_provider_t *provider = &a->resource->provider;
    if (a->kind->end && a->begun) a->kind->end(a);
    while (a->n_acquired > 0) {
        a->n_acquired--;
        if (!provider->release) continue;
        provider->release(a->resource, &a->resource->values.value[a->n_acquired], provider->arg);
        weft__resource_program_returned(a->resource);
    }
}

/* The reactor ends with its worker: no notice is offered to it from now on. */
static void ends_by_itself(struct association *a) {
    pthread_mutex_lock(&a->resource->lock);
    if (a->reactor) a->ends_in = a->reactor;
    a->reactor = NULL;
    a->way = NOTICE_WAITS;
    pthread_mutex_unlock(&a->resource->lock);
}

void weft__association_alone(struct association *a) {
    pthread_mutex_lock(&a->resource->lock);
    a->ends_in = NULL;
    pthread_mutex_unlock(&a->resource->lock);
}

static void start_drain(struct association *a, weft_status_t status, bool abort) {
    if (a->kind->ends_itself) ends_by_itself(a);
    if (a->kind->drain && a->type != WEFT_OBJECT_CONTEXT) a->kind->drain(a, status, abort);
    if (a->type == WEFT_OBJECT_CONTEXT) atomic_store(&a->stub->status, status);
    if (!a->reactor) return;
    uint64_t ms = a->drain_ms
                      ? a->drain_ms
                      : weft__setting_u64(weft__reactor_context(a->reactor), SETTING_CLOSE_TIMEOUT);
    uint64_t now = weft__now(a->reactor);
    /* Both places were reserved. */
    a->look_ns = FIRST_LOOK_NS;
    (void)weft__timer_start(a->reactor, &a->look, now + a->look_ns);
    if (!abort) (void)weft__timer_start(a->reactor, &a->deadline, now + ms * NS_PER_MS);
}

static void notify_done(struct association *a) {
    weft_done_fn done = a->done;
    a->done = NULL;
    a->ends_in = NULL;
    a->over = true;
    if (a->reactor) {
        weft__timer_release(a->reactor, &a->look);
        weft__timer_release(a->reactor, &a->deadline);
    }
    weft_status_t status = a->core.ended ? WEFT_ERR_RESOURCE_LOST : WEFT_OK;
    struct stub *stub = a->stub;
    a->stub = NULL;
    (void)talloc_steal(NULL, a); /* `done` may close the object, and another thread associate it */
    if (stub) weft__association_unclaim(stub);
    if (done) done(status, a->done_arg);
    weft__resource_program_returned(a->resource);
}

static void consumer_effect(struct fsm *m, unsigned effect) {
    struct association *a = container_of(m, struct association, core.fsm);
    show_state(a);
    switch ((enum association_effect)effect) {
    case ASSOC_FX_DRAIN: start_drain(a, WEFT_ERR_DISASSOCIATED, false); break;
    case ASSOC_FX_ABORT: start_drain(a, WEFT_ERR_RESOURCE_LOST, true); break;
    case ASSOC_FX_DETACH: detach(a); break;
    case ASSOC_FX_RETURN: weft__fsm_step(&a->grant.fsm, GRANT_EV_RETURNED); break;
    case ASSOC_FX_NOTIFY_LOST:
        if (a->on_lost) a->on_lost(a->object, WEFT_ERR_RESOURCE_LOST, a->arg);
        weft__resource_program_returned(a->resource);
        break;
    case ASSOC_FX_NOTIFY: notify_done(a); break;
    case ASSOC_N_EFFECTS: break;
    }
}

struct provider_notice {
    weft_resource_t *resource;
    weft_resource_event_t event;
};

static void run_provider_notice(void *arg) {
    struct provider_notice own = *(struct provider_notice *)arg;
    talloc_free(arg);
    weft__resource_notify(own.resource, own.event);
}

static bool post_provider_notice(weft_resource_t *resource, weft_resource_event_t event) {
    if (!resource->provider.worker) return false;
    struct provider_notice *notice = weft__new(NULL, struct provider_notice);
    if (!notice) return false;
    *notice = (struct provider_notice){resource, event};
    if (weft__resource_post_provider(resource, run_provider_notice, notice)) return true;
    talloc_free(notice);
    return false;
}

/* On the provider's worker; where none is named, or it is gone, or there is no memory for that, on
 * this thread. */
static void notify_provider(weft_resource_t *resource, weft_resource_event_t event) {
    if (!resource->provider.notify) return;
    weft__resource_post(resource);
    if (!post_provider_notice(resource, event)) weft__resource_notify(resource, event);
}

static void provider_effect(struct fsm *m, unsigned effect) {
    struct association *a = container_of(m, struct association, grant.fsm);
    switch ((enum grant_effect)effect) {
    case GRANT_FX_SEND_RECALL: weft__association_step(a, ASSOC_EV_RECALL); break;
    case GRANT_FX_SEND_LOSE: weft__association_step(a, ASSOC_EV_LOSE); break;
    case GRANT_FX_ARM: break; /* the consumer's deadline is the same */
    case GRANT_FX_NOTIFY_TAKEN: notify_provider(a->resource, WEFT_RESOURCE_TAKEN); break;
    case GRANT_FX_NOTIFY_RETURNED: notify_provider(a->resource, WEFT_RESOURCE_RETURNED); break;
    case GRANT_N_EFFECTS: break;
    }
}

static void machine_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    assert(!"an association reached a state that it cannot");
}

static const struct fsm_port consumer_port = {&weft__association_machine, consumer_effect,
                                              machine_fail};
static const struct fsm_port provider_port = {&weft__grant_machine, provider_effect, machine_fail};

static void worker_closes(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *));

/* ---- the lines of weft-info --live: the worker's resources, and who uses them ---------------- */

/* "": the program described it. */
static void describe_provider(const weft_resource_t *resource, char *from, size_t size) {
    const weft_worker_t *exporter = resource->exporter;
    *from = 0;
    if (resource->channel >= 0)
        snprintf(from, size, ", from another process");
    else if (exporter && exporter->name)
        snprintf(from, size, ", from worker %.12s", exporter->name);
    else if (exporter)
        snprintf(from, size, ", from worker %016" PRIx64, exporter->id);
}

static void describe_user(const struct association *a, char *line, size_t size) {
    const char *user = "";
    char from[40];
    if (a->type == WEFT_OBJECT_WORKER && a->stub) {
        const weft_worker_t *worker = a->object;
        user = worker->name ? worker->name : "";
    }
    describe_provider(a->resource, from, sizeof from);
    int n =
        snprintf(line, size, "%s \"%.24s\", %s%s, user %s %.16s", a->kind->name, a->resource->name,
                 fsm_state_name(&a->core.fsm), from, weft__object_names[a->type], user);
    if (a->lease && n > 0 && (size_t)n < size)
        snprintf(line + n, size - (size_t)n, ", ids %u to %u", a->lease->am_first,
                 a->lease->am_first + a->lease->am_count - 1);
}

void weft__association_show(weft_worker_t *worker) {
    char line[LIVE_RESOURCE];
    uint32_t n = 0;
    if (!worker) return;
    list_for_each(node, &worker->attachments) {
        struct worker_attachment *attachment = list_of(node, struct worker_attachment, of_worker);
        if (attachment->close != worker_closes) continue;
        describe_user(attachment->object, line, sizeof line);
        weft__stats_resource(worker, n++, line);
    }
    weft__stats_resource(worker, n, NULL);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Frees an association that is over, once no notice holds it. */
static void finish(struct association *a) {
    struct resource_left left;
    if (!a->over || !weft__resource_leave(a, &left)) return;
    void (*worker_closed)(weft_worker_t *) = a->worker_closed;
    weft_worker_t *worker = a->worker;
    if (worker && !worker_closed) {
        weft__worker_detach(worker, a);
        weft__association_show(worker);
    }
    weft__resource_returned(&left);
    if (a->ended_p) *a->ended_p = true;
    talloc_free(a);
    if (worker_closed) worker_closed(worker);
}

void weft__association_hold(struct association *a) {
    atomic_fetch_add(&a->notices, 1);
}

void weft__association_let_go(struct association *a) {
    atomic_fetch_sub(&a->notices, 1);
    finish(a);
}

void weft__association_look(struct association *a) {
    bool ending = association_is_draining(&a->core.fsm) || association_is_lost(&a->core.fsm);
    if (!ending || a->over) return;
    bool works = a->type != WEFT_OBJECT_CONTEXT;
    if (works && a->kind->drained && !a->kind->drained(a)) return;
    weft__association_hold(a);
    weft__association_step(a, ASSOC_EV_DRAINED);
    weft__association_let_go(a);
}

static void association_look(struct timer *timer) {
    struct association *a = list_of(timer, struct association, look);
    if (a->look_ns < LAST_LOOK_NS) a->look_ns *= 2;
    (void)weft__timer_start(a->reactor, timer, weft__now(a->reactor) + a->look_ns);
    weft__association_look(a);
}

static void deadline_passed(struct timer *timer) {
    struct association *a = list_of(timer, struct association, deadline);
    weft__association_step(a, ASSOC_EV_EXPIRED);
    weft__association_look(a);
}

static void step_notice(struct association *a, enum notice what) {
    if (!grant_is_granted(&a->grant.fsm)) return;
    weft__fsm_step(&a->grant.fsm, what == NOTICE_LOSE ? GRANT_EV_DIE : GRANT_EV_WITHDRAW);
}

static void notice_here(struct association *a, enum notice what) {
    step_notice(a, what);
    atomic_fetch_sub(&a->notices, 1);
    if (a->over)
        finish(a);
    else
        weft__association_look(a);
}

static void run_notice(struct remote *remote) {
    struct posted_notice *notice = list_of(remote, struct posted_notice, remote);
    struct association *a = notice->a;
    struct reactor *r = a->reactor; /* that of a thing that works */
    enum notice what = (enum notice)(notice - a->notice);
    if (what == NOTICE_RECALL && association_is_ready(&a->core.fsm)) a->drain_ms = notice->drain_ms;
    notice_here(a, what);
    if (r) weft__program_returned(r);
}

bool weft__association_offer(struct posted_notice *notice) {
    notice->remote.run = run_notice;
    return weft__reactor_offer(notice->a->reactor, &notice->remote) == WEFT_OK;
}

void weft__association_run(struct posted_notice *notice) {
    run_notice(&notice->remote);
}

/* From now on any thread may end that of a context: this one ends it if a notice waits, and
 * otherwise leaves it within the lock. */
static void open_context(struct association *a) {
    pthread_mutex_t *lock = &a->resource->lock;
    pthread_mutex_lock(lock);
    for (int what = 0; what < N_NOTICES; what++) a->ends |= a->notice[what].waits;
    bool ends = a->ends;
    a->way = NOTICE_HERE;
    if (!ends) atomic_fetch_sub(&a->notices, 1);
    pthread_mutex_unlock(lock);
    if (!ends) return;
    weft__association_take_waiting(a);
    weft__association_look(a);
    weft__association_let_go(a);
}

void weft__association_open(struct association *a) {
    if (a->type == WEFT_OBJECT_CONTEXT) {
        open_context(a);
        return;
    }
    bool opens = a->reactor != NULL; /* otherwise it ends by itself already */
    pthread_mutex_lock(&a->resource->lock);
    if (opens) a->way = NOTICE_OFFERED;
    for (int what = 0; what < N_NOTICES; what++) {
        struct posted_notice *notice = &a->notice[what];
        if (!notice->waits || !opens) continue;
        atomic_fetch_add(&a->notices, 1);
        notice->waits = !weft__association_offer(notice);
        if (notice->waits) atomic_fetch_sub(&a->notices, 1);
    }
    pthread_mutex_unlock(&a->resource->lock);
    if (opens) weft__association_take_waiting(a); /* no reactor takes them */
    weft__association_look(a);
    weft__association_let_go(a);
}

void weft__association_take_waiting(struct association *a) {
    bool waits[N_NOTICES];
    pthread_mutex_lock(&a->resource->lock);
    for (int what = 0; what < N_NOTICES; what++) {
        waits[what] = a->notice[what].waits;
        a->notice[what].waits = false;
    }
    pthread_mutex_unlock(&a->resource->lock);
    atomic_fetch_add(&a->notices, 1);
    for (int what = 0; what < N_NOTICES; what++)
        if (waits[what]) step_notice(a, (enum notice)what);
    atomic_fetch_sub(&a->notices, 1);
}

static weft_status_t check_ends(const struct association *a) {
    weft_status_t st = a->worker ? weft__worker_check(a->worker) : WEFT_OK;
    if (st < 0) return st;
    const weft_worker_t *worker = a->type == WEFT_OBJECT_WORKER ? a->object : NULL;
    if (!worker || a->kind->plain) return WEFT_OK;
    uint32_t open = worker->n_opened_by - weft__worker_stubs_resting(worker, a->worker);
    return open ? weft__fail(WEFT_ERR_BUSY, "%u teams or associated objects of the worker are open",
                             open)
                : WEFT_OK;
}

struct reactor *weft__association_reactor(const struct association *a) {
    return a->reactor ? a->reactor : a->ends_in;
}

static bool is_ending(const struct association *a) {
    return !a->over && (association_is_draining(&a->core.fsm) || association_is_lost(&a->core.fsm));
}

/* It has lost its resource, and ends: the program waits for that. */
static bool awaits_end(struct association *a, const weft_op_t *op) {
    if (!association_is_lost(&a->core.fsm) || !is_ending(a) || a->done || !op || !op->done)
        return false;
    a->done = op->done;
    a->done_arg = op->arg;
    if (op->request_p) *op->request_p = NULL;
    return true;
}

weft_status_t weft__association_disassociate(struct association *a, const weft_op_t *op) {
    if (!association_is_ready(&a->core.fsm)) return awaits_end(a, op) ? WEFT_IN_PROGRESS : WEFT_OK;
    weft_status_t st = check_ends(a);
    bool closes = a->kind->ends_itself && a->type == WEFT_OBJECT_WORKER;
    if (st == WEFT_OK && closes) st = weft__check_close(op, false);
    if (st < 0) return st;
    a->drain_ms = op ? op->deadline_ms : 0;
    weft__association_hold(a);
    weft__association_step(a, ASSOC_EV_DISASSOCIATE);
    weft__association_show(a->worker);
    weft__association_look(a);
    bool over = a->over;
    if (!over && op) {
        a->done = op->done;
        a->done_arg = op->arg;
        if (op->request_p) *op->request_p = NULL;
    }
    weft__association_let_go(a);
    return over ? WEFT_OK : WEFT_IN_PROGRESS;
}

static void note_status(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* It drains already, for the provider or for another call: that end is waited for. */
static void await_drain(weft_resource_t *resource, const void *object, struct reactor *r,
                        weft_status_t *done) {
    struct association *a = object && r ? weft__resource_user(resource, object) : NULL;
    if (!a || !is_ending(a)) return;
    if (!a->done) {
        a->done = note_status;
        a->done_arg = done;
        while (*done == WEFT_IN_PROGRESS) weft__reactor_wait(r, 100);
        return;
    }
    for (; a && is_ending(a); a = weft__resource_user(resource, object)) weft__reactor_wait(r, 100);
}

weft_status_t weft_disassociate_resources_wait(weft_resource_t *resource, void *object) {
    weft_status_t done = WEFT_IN_PROGRESS;
    if (!resource) return weft__fail(WEFT_ERR_INVALID_PARAM, "resource is NULL");
    struct reactor *r = NULL;
    weft_worker_t *worker = NULL;
    weft_status_t st = weft__resource_check(resource);
    if (st == WEFT_OK) st = weft__resource_reactor(resource, object, &r, &worker);
    if (st == WEFT_OK && worker) st = weft__worker_check_wait(worker);
    if (st == WEFT_OK && !r) { /* they end at once, or this is a callback of their end */
        st = weft_disassociate_resources(resource, object, NULL);
        return st == WEFT_IN_PROGRESS ? WEFT_OK : st;
    }
    if (st == WEFT_OK)
        st = weft_disassociate_resources(resource, object,
                                         &(weft_op_t){.done = note_status, .arg = &done});
    while (st == WEFT_IN_PROGRESS && done == WEFT_IN_PROGRESS) weft__reactor_wait(r, 100);
    if (st == WEFT_OK) await_drain(resource, object, r, &done);
    return done == WEFT_IN_PROGRESS ? st : done;
}

/* The program destroys an object that is associated. */
static void object_closing(struct stub *stub) {
    struct association *a = atomic_load(&stub->claim);
    if (a) (void)weft_disassociate_resources_wait(a->resource, a->object);
}

/* The worker that does the work closes: the association loses it. If the worker is the resource,
 * the provider and all users do, as with an exported one. */
static void worker_closes(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *)) {
    struct association *a = object;
    a->worker_closed = closed;
    atomic_fetch_add(&a->notices, 1);
    if (a->kind->is_worker) weft_resource_lose(a->resource);
    if (!a->kind->plain || !association_is_ready(&a->core.fsm)) {
        notice_here(a, NOTICE_LOSE);
        return;
    }
    weft__association_step(a, ASSOC_EV_DISASSOCIATE); /* it is the consumer that closes */
    atomic_fetch_sub(&a->notices, 1);
    weft__association_look(a);
}

static struct association *of_parent(const struct list *node, const struct association *parent) {
    struct worker_attachment *attachment = list_of(node, struct worker_attachment, of_worker);
    struct association *a = attachment->object;
    if (attachment->close != worker_closes || a == parent || a->over) return NULL;
    const void *owner = a->kind->plain ? a->object : a->stub ? a->stub->parent : NULL;
    return owner == parent->object ? a : NULL;
}

unsigned weft__association_objects(const struct association *parent) {
    unsigned n = 0;
    list_for_each(node, &parent->worker->attachments) n += of_parent(node, parent) != NULL;
    return n;
}

/* A callback may end any of them: after each one the search begins again. */
void weft__association_lose_objects(struct association *parent) {
    bool again = true;
    while (again) {
        again = false;
        list_for_each_safe(node, next, &parent->worker->attachments) {
            struct association *a = of_parent(node, parent);
            if (!a || association_is_lost(&a->core.fsm)) continue;
            atomic_fetch_add(&a->notices, 1);
            notice_here(a, NOTICE_LOSE);
            again = true;
            break;
        }
    }
}

void weft__association_return_plain(struct association *parent) {
    bool again = true;
    while (again) {
        again = false;
        list_for_each_safe(node, next, &parent->worker->attachments) {
            struct association *a = of_parent(node, parent);
            if (!a || !a->kind->plain || !association_is_ready(&a->core.fsm)) continue;
            weft__association_hold(a);
            weft__association_step(a, ASSOC_EV_DISASSOCIATE);
            weft__association_look(a);
            weft__association_let_go(a);
            again = true;
            break;
        }
    }
}

/* ---- places for its timers, and word of the worker's close --------------------------------- */

weft_status_t weft__association_reserve(struct association *a) {
    if (!a->reactor || a->kind->ends_itself) return WEFT_OK;
    weft_status_t st = weft__timer_reserve(a->reactor, &a->look);
    if (st == WEFT_OK) st = weft__timer_reserve(a->reactor, &a->deadline);
    if (st == WEFT_OK) st = weft__worker_attach(a->worker, a, a, worker_closes);
    return st;
}

void weft__association_unreserve(struct association *a) {
    if (!a->reactor || a->kind->ends_itself) return;
    weft__timer_release(a->reactor, &a->look);
    weft__timer_release(a->reactor, &a->deadline);
    if (a->worker) weft__worker_detach(a->worker, a);
}

void weft__association_init(struct association *a) {
    uint32_t kind = (uint32_t)a->resource->kind;
    a->look.fire = association_look;
    a->deadline.fire = deadline_passed;
    for (int i = 0; i < N_NOTICES; i++) a->notice[i].a = a;
    list_init(&a->of_resource);
    fsm_init(&a->core.fsm, &consumer_port, ASSOC_STUB, kind);
    fsm_init(&a->grant.fsm, &provider_port, GRANT_FREE, kind);
}

void weft__association_works(struct association *a) {
    if (a->stub && a->type == WEFT_OBJECT_WORKER) a->stub->closing = object_closing;
    weft__association_show(a->worker);
}

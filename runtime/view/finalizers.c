/* The port of the finalizers' machine. */
#include "finalizers.h"

#include <base/check.h>
#include <base/compiler.h>
#include <reactor/reactor.h>
#include <string.h>
#include <talloc.h>

enum { DEADLINE_MS = 10000 };

struct weft_finalizer {
    struct list of;
    struct finalizers *owner; /* NULL: its time was over, and its completion frees it */
    weft_finalizer_fn run;
    void *arg;
    uint32_t deadline_ms;
    bool called;    /* within its function */
    bool completed; /* before its function returned */
    char name[64];
};

/* ---- the stack ----------------------------------------------------------------------------- */

weft_status_t weft__finalizers_push(struct finalizers *f, const void *parent, weft_finalizer_fn run,
                                    void *arg, const weft_finalizer_params_t *params,
                                    weft_finalizer_t **finalizer_p) {
    if (finalizers_is_over(&f->core.fsm))
        return weft__fail(WEFT_ERR_CLOSED, "the finalizers have run");
    weft_finalizer_t *new = weft__new(parent, weft_finalizer_t);
    if (!new) return WEFT_ERR_NO_MEMORY;
    new->owner = f;
    new->run = run;
    new->arg = arg;
    new->deadline_ms = params->deadline_ms ? params->deadline_ms : DEADLINE_MS;
    if (params->name) strncpy(new->name, params->name, sizeof new->name - 1);
    list_prepend(&f->stack, &new->of);
    if (finalizer_p) *finalizer_p = new;
    return WEFT_OK;
}

weft_status_t weft__finalizers_remove(struct finalizers *f, weft_finalizer_t *finalizer) {
    if (!finalizer) REFUSE("finalizer", "NULL");
    list_for_each(node, &f->stack) {
        if (node != &finalizer->of) continue;
        list_remove(node);
        talloc_free(finalizer);
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_NOT_FOUND, "no such finalizer waits");
}

/* ---- the machine's outputs ----------------------------------------------------------------- */

static void record(struct finalizers *f) {
    if (f->outcome == WEFT_OK) return;
    if (f->status == WEFT_OK) f->status = f->outcome;
    if (f->on_error) f->on_error(f->current->name, f->outcome, f->error_arg);
}

static void start_deadline(struct finalizers *f) {
    uint64_t at = weft__now(f->reactor) + f->current->deadline_ms * UINT64_C(1000000);
    weft__timer_start(f->reactor, &f->deadline, at); /* its place is reserved */
}

static void effect_finalizers(struct fsm *m, unsigned effect) {
    struct finalizers *f = container_of(m, struct finalizers, core.fsm);
    switch (effect) {
    case FINALIZERS_FX_POP: weft__job_post(f->reactor, &f->pop); break;
    case FINALIZERS_FX_LIMIT: start_deadline(f); break;
    case FINALIZERS_FX_RECORD: record(f); break;
    case FINALIZERS_FX_DONE: f->done(f); break;
    default: break;
    }
}

static void fail_finalizers(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct finalizers *f = container_of(m, struct finalizers, core.fsm);
    (void)why;
    weft__log(weft__reactor_context(f->reactor), WEFT_LOG_ERROR, "runtime", "finalizers: %s in %s",
              m->port->machine->event_name[event], fsm_state_name(m));
}

static const struct fsm_port port = {&weft__finalizers_machine, effect_finalizers, fail_finalizers};

/* ---- running ------------------------------------------------------------------------------- */

static void finalizer_returned(struct finalizers *f, weft_status_t status) {
    f->outcome = status;
    weft__fsm_step(&f->core.fsm, FINALIZERS_EV_RETURNED);
}

static void call(struct finalizers *f, weft_finalizer_t *finalizer) {
    f->current = finalizer;
    finalizer->called = true;
    weft_status_t status = finalizer->run(finalizer, finalizer->arg);
    finalizer->called = false;
    if (status != WEFT_IN_PROGRESS)
        finalizer_returned(f, status);
    else if (finalizer->completed)
        finalizer_returned(f, f->outcome);
    else
        weft__fsm_step(&f->core.fsm, FINALIZERS_EV_PENDING);
}

static void pop(struct job *job) {
    struct finalizers *f = container_of(job, struct finalizers, pop);
    struct list *node = list_pop(&f->stack);
    if (node)
        call(f, container_of(node, weft_finalizer_t, of));
    else
        weft__fsm_step(&f->core.fsm, FINALIZERS_EV_EMPTY);
}

/* The program may complete it when the view is gone. */
static void expired(struct timer *timer) {
    struct finalizers *f = container_of(timer, struct finalizers, deadline);
    talloc_steal(NULL, f->current);
    f->current->owner = NULL;
    f->outcome = WEFT_ERR_TIMED_OUT;
    weft__fsm_step(&f->core.fsm, FINALIZERS_EV_EXPIRED);
}

void weft_finalizer_complete(weft_finalizer_t *finalizer, weft_status_t status) {
    if (!finalizer || finalizer->completed) return;
    struct finalizers *f = finalizer->owner;
    if (!f) {
        talloc_free(finalizer);
        return;
    }
    if (f->current != finalizer) return; /* it was not called */
    finalizer->completed = true;
    if (!finalizer->called && !finalizers_is_waiting(&f->core.fsm)) return; /* it has returned */
    f->outcome = status;
    if (finalizer->called) return;
    weft__timer_stop(f->reactor, &f->deadline);
    weft__fsm_step(&f->core.fsm, FINALIZERS_EV_COMPLETED);
}

/* ---- life ---------------------------------------------------------------------------------- */

void weft__finalizers_init(struct finalizers *f, struct reactor *reactor) {
    *f = (struct finalizers){.reactor = reactor, .pop.run = pop, .deadline.fire = expired};
    list_init(&f->stack);
    fsm_init(&f->core.fsm, &port, FINALIZERS_HELD, 0);
}

void weft__finalizers_run(struct finalizers *f) {
    weft__fsm_step(&f->core.fsm, FINALIZERS_EV_RUN);
}

void weft__finalizers_end(struct finalizers *f) {
    weft__job_drop(f->reactor, &f->pop);
    weft__timer_release(f->reactor, &f->deadline);
}

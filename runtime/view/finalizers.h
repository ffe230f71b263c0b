/* What is called before a view ends, the last pushed first. Owner's thread only. */
#ifndef WEFT_RUNTIME_VIEW_FINALIZERS_H
#define WEFT_RUNTIME_VIEW_FINALIZERS_H

#include "machines.h"
#include <base/list.h>
#include <reactor/reactor.h>
#include <weft/view.h>

struct finalizers {
    struct finalizers_core core;
    struct reactor *reactor;
    struct list stack;         /* the next to run comes first */
    weft_finalizer_t *current; /* popped; its call or its operation is in progress */
    weft_status_t outcome;     /* of `current` */
    weft_status_t status;      /* the first error */
    struct job pop;
    struct timer deadline;
    void (*on_error)(const char *name, weft_status_t status, void *arg);
    void *error_arg;
    void (*done)(struct finalizers *f); /* from the run queue; all have run */
};

void weft__finalizers_init(struct finalizers *f, struct reactor *reactor);
/* Finalizers are talloc children of `parent`. */
weft_status_t weft__finalizers_push(struct finalizers *f, const void *parent, weft_finalizer_fn run,
                                    void *arg, const weft_finalizer_params_t *params,
                                    weft_finalizer_t **finalizer_p);
weft_status_t weft__finalizers_remove(struct finalizers *f, weft_finalizer_t *finalizer);
/* Runs them; `done` follows. */
void weft__finalizers_run(struct finalizers *f);
/* Before their memory is freed. */
void weft__finalizers_end(struct finalizers *f);

#endif

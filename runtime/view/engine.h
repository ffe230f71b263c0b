/*
 * An engine: what brings the processes of a view together. It gives an exchange, and is stopped
 * after the team is closed.
 */
#ifndef WEFT_RUNTIME_VIEW_ENGINE_H
#define WEFT_RUNTIME_VIEW_ENGINE_H

#include <weft/view.h>

struct view_engine;

/* An engine at work for one view; the head of what each engine keeps. */
struct view_session {
    const struct view_engine *engine;
    weft_exchange_t exchange;
    bool started; /* the library started what the engine stands for */
};

struct view_engine {
    const char *name;
    /* Does the environment ask for it? */
    bool (*present)(const weft_view_params_t *params);
    /* The session is a talloc child of `parent`. */
    weft_status_t (*start)(const void *parent, weft_worker_t *worker,
                           const weft_view_params_t *params, struct view_session **session_p);
    /* Ends the session, which is freed by its parent. */
    void (*stop)(struct view_session *session);
    /* Its MPI_Comm, and the size of one. NULL: it has none. */
    const void *(*communicator)(const struct view_session *session, size_t *size_p);
};

extern const struct view_engine weft__view_single, weft__view_run, weft__view_mpi, weft__view_pmix,
    weft__view_store;

/* By name, or by what is present. WEFT_ERR_UNSUPPORTED for an unknown name. */
weft_status_t weft__view_engine_of(const weft_view_params_t *params,
                                   const struct view_engine **engine_p);

#endif

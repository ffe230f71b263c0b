/* Which engine a view has, and the two that need nothing. */
#include "engine.h"

#include <base/alloc.h>
#include <base/status.h>
#include <stdlib.h>
#include <string.h>
#include <weft/runtime.h>

/* ---- this process alone -------------------------------------------------------------------- */

static weft_status_t allgather_single(void *arg, weft_worker_t *worker, const void *mine,
                                      size_t len, void *all, weft_done_fn done, void *done_arg) {
    (void)arg, (void)worker;
    memmove(all, mine, len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}

static bool always(const weft_view_params_t *params) {
    (void)params;
    return true;
}

static weft_status_t start_single(const void *parent, weft_worker_t *worker,
                                  const weft_view_params_t *params,
                                  struct view_session **session_p) {
    (void)worker, (void)params;
    struct view_session *session = weft__new(parent, struct view_session);
    if (!session) return WEFT_ERR_NO_MEMORY;
    session->engine = &weft__view_single;
    session->exchange = (weft_exchange_t){.size = 1, .allgather = allgather_single};
    *session_p = session;
    return WEFT_OK;
}

static void stop_nothing(struct view_session *session) {
    (void)session;
}

const struct view_engine weft__view_single = {"single", always, start_single, stop_nothing, NULL};

/* ---- weft-run ------------------------------------------------------------------------------ */

static bool run_present(const weft_view_params_t *params) {
    (void)params;
    return secure_getenv("WEFT_RUN_RANK") != NULL;
}

static weft_status_t start_run(const void *parent, weft_worker_t *worker,
                               const weft_view_params_t *params, struct view_session **session_p) {
    (void)worker;
    if (!run_present(params))
        return weft__fail(WEFT_ERR_NOT_FOUND, "weft-run did not start this process");
    const weft_exchange_t *exchange = weft_run_exchange();
    if (!exchange) return weft__fail(WEFT_ERR_INVALID_PARAM, "weft-run's environment is malformed");
    struct view_session *session = weft__new(parent, struct view_session);
    if (!session) return WEFT_ERR_NO_MEMORY;
    session->engine = &weft__view_run;
    session->exchange = *exchange;
    *session_p = session;
    return WEFT_OK;
}

const struct view_engine weft__view_run = {"weft-run", run_present, start_run, stop_nothing, NULL};

/* ---- which one ----------------------------------------------------------------------------- */

weft_status_t weft__view_engine_of(const weft_view_params_t *params,
                                   const struct view_engine **engine_p) {
    static const struct view_engine *const engines[] = {
        &weft__view_mpi, &weft__view_run, &weft__view_pmix, &weft__view_store, &weft__view_single};
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        const struct view_engine *engine = engines[i];
        if (params->engine ? strcmp(params->engine, engine->name) != 0 : !engine->present(params))
            continue;
        *engine_p = engine;
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_UNSUPPORTED, "no engine is called \"%.32s\"", params->engine);
}

/*
 * The engine over PMIx: the launcher's server (prterun, mpirun, srun) has what each process puts
 * there, and a fence brings it to all. One view at a time in a process uses it.
 */
#define _GNU_SOURCE
#include "engine.h"
#include "pmix_library.h"

#include <base/compiler.h>
#include <base/status.h>
#include <endpoints/core/worker.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <talloc.h>

struct pmix_session;

/* What the library's thread holds: it may end a fence after the session. */
struct fence {
    pthread_mutex_t lock;
    struct pmix_session *session; /* NULL: gone */
    unsigned holders;
    int status;
};

struct pmix_session {
    struct view_session session;
    struct pmix_library pmix;
    weft_worker_t *worker;
    struct pmix_process me;
    struct fence *fence;
    uint32_t n_rounds;
    bool gathering;
    void *all; /* NULL: the caller has cancelled */
    size_t len;
    weft_done_fn done;
    void *done_arg;
};

static weft_status_t pmix_failed(const struct pmix_session *s, const char *what, int status) {
    return weft__fail(WEFT_ERR_IO, "%s ended with %d (%s)", what, status,
                      s->pmix.error_text(status));
}

/* ---- the exchange: a key a round ------------------------------------------------------------- */

static void round_key(const struct pmix_session *s, char key[32]) {
    snprintf(key, 32, "weft.%u", s->n_rounds);
}

static weft_status_t read_rank(const struct pmix_session *s, uint32_t rank, const char *key) {
    struct pmix_process of = s->me;
    struct pmix_value *value = NULL;
    of.rank = rank;
    int status = s->pmix.get(&of, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS_CODE || !value) return pmix_failed(s, "PMIx_Get", status);
    bool good = value->type == PMIX_TYPE_BYTES && value->data.bytes.size == s->len;
    if (good) memcpy((uint8_t *)s->all + rank * s->len, value->data.bytes.bytes, s->len);
    if (value->type == PMIX_TYPE_BYTES) free(value->data.bytes.bytes);
    free(value);
    return good ? WEFT_OK
                : weft__fail(WEFT_ERR_PROTOCOL, "rank %u put other bytes into PMIx", rank);
}

static void end_round(struct pmix_session *s, int status) {
    weft_status_t st =
        status == PMIX_SUCCESS_CODE ? WEFT_OK : pmix_failed(s, "PMIx_Fence_nb", status);
    char key[32];
    round_key(s, key);
    s->n_rounds++;
    s->gathering = false;
    if (!s->all) return;
    for (uint32_t r = 0; r < s->session.exchange.size && st == WEFT_OK; r++)
        st = read_rank(s, r, key);
    s->done(st, s->done_arg);
}

static void put_fence(struct fence *fence) {
    pthread_mutex_lock(&fence->lock);
    bool last = --fence->holders == 0;
    pthread_mutex_unlock(&fence->lock);
    if (!last) return;
    pthread_mutex_destroy(&fence->lock);
    free(fence);
}

/* On the worker's thread. */
static void fence_over(void *arg) {
    struct fence *fence = arg;
    struct pmix_session *s = fence->session;
    if (s) end_round(s, fence->status);
    put_fence(fence);
}

/* On a thread of the library's own. */
static void fenced(int status, void *arg) {
    struct fence *fence = arg;
    pthread_mutex_lock(&fence->lock);
    fence->status = status;
    bool posted =
        fence->session && weft_worker_post(fence->session->worker, fence_over, fence) == WEFT_OK;
    pthread_mutex_unlock(&fence->lock);
    if (!posted) put_fence(fence);
}

static weft_status_t allgather_pmix(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                    void *all, weft_done_fn done, void *done_arg) {
    struct pmix_session *s = arg;
    struct pmix_info collect = {.key = "pmix.collect",
                                .value = {.type = PMIX_TYPE_BOOL, .data.flag = true}};
    struct pmix_value value = {.type = PMIX_TYPE_BYTES,
                               .data.bytes = {(char *)(uintptr_t)mine, len}};
    char key[32];
    (void)worker;
    if (s->gathering) return weft__fail(WEFT_ERR_BUSY, "an exchange is in progress");
    round_key(s, key);
    s->all = all, s->len = len, s->done = done, s->done_arg = done_arg;
    int status = s->pmix.put(PMIX_SCOPE_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS_CODE) status = s->pmix.commit();
    if (status != PMIX_SUCCESS_CODE) return pmix_failed(s, "PMIx_Put", status);
    s->fence->holders++; /* no other thread has it now */
    status = s->pmix.fence(NULL, 0, &collect, 1, fenced, s->fence);
    if (status != PMIX_SUCCESS_CODE) {
        s->fence->holders--;
        return pmix_failed(s, "PMIx_Fence_nb", status);
    }
    s->gathering = true;
    return WEFT_IN_PROGRESS;
}

static void cancel_pmix(void *arg) {
    ((struct pmix_session *)arg)->all = NULL; /* it ends at its own time */
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool pmix_present(const weft_view_params_t *params) {
    (void)params;
    return weft__pmix_present();
}

static weft_status_t find_size(struct pmix_session *s) {
    struct pmix_process job = s->me;
    struct pmix_value *value = NULL;
    job.rank = PMIX_ANY_RANK;
    int status = s->pmix.get(&job, "pmix.job.size", NULL, 0, &value);
    if (status != PMIX_SUCCESS_CODE || !value) return pmix_failed(s, "PMIx_Get", status);
    bool good = value->type == PMIX_TYPE_UINT32 && value->data.number > s->me.rank;
    s->session.exchange = (weft_exchange_t){.rank = s->me.rank,
                                            .size = value->data.number,
                                            .allgather = allgather_pmix,
                                            .cancel = cancel_pmix,
                                            .arg = s};
    free(value);
    return good ? WEFT_OK : weft__fail(WEFT_ERR_PROTOCOL, "PMIx has no size of the job");
}

static weft_status_t pmix_enter(struct pmix_session *s) {
    if (!weft__pmix_present())
        return weft__fail(WEFT_ERR_NOT_FOUND, "no PMIx server started this process");
    weft_status_t st = weft__pmix_load(&s->pmix);
    if (st < 0) return st;
    s->fence = calloc(1, sizeof *s->fence);
    if (!s->fence) return WEFT_ERR_NO_MEMORY;
    pthread_mutex_init(&s->fence->lock, NULL);
    s->fence->session = s;
    s->fence->holders = 1;
    int status = s->pmix.init(&s->me, NULL, 0);
    if (status != PMIX_SUCCESS_CODE) return pmix_failed(s, "PMIx_Init", status);
    st = find_size(s);
    if (st < 0) s->pmix.finalize(NULL, 0);
    return st;
}

static void leave_fence(struct pmix_session *s) {
    if (!s->fence) return;
    pthread_mutex_lock(&s->fence->lock);
    s->fence->session = NULL;
    pthread_mutex_unlock(&s->fence->lock);
    put_fence(s->fence);
}

static weft_status_t start_pmix(const void *parent, weft_worker_t *worker,
                                const weft_view_params_t *params, struct view_session **session_p) {
    (void)params;
    struct pmix_session *s = weft__new(parent, struct pmix_session);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->session.engine = &weft__view_pmix;
    s->session.started = true;
    s->worker = worker;
    weft_status_t st = pmix_enter(s);
    if (st < 0) {
        leave_fence(s);
        talloc_free(s);
        return st;
    }
    *session_p = &s->session;
    return WEFT_OK;
}

/* PMIx counts its initializations: the program's own, if any, stays. */
static void stop_pmix(struct view_session *session) {
    struct pmix_session *s = container_of(session, struct pmix_session, session);
    leave_fence(s);
    s->pmix.finalize(NULL, 0);
}

const struct view_engine weft__view_pmix = {"pmix", pmix_present, start_pmix, stop_pmix, NULL};

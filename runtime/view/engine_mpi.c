/*
 * The engine over MPI, which serves as the exchange alone: everything else goes by Weft. It has a
 * duplicate of the communicator, so that its messages meet no others.
 */
#include "engine.h"
#include "mpi_library.h"

#include <base/clock.h>
#include <base/compiler.h>
#include <base/log.h>
#include <base/settings.h>
#include <base/status.h>
#include <endpoints/core/worker.h>
#include <limits.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <string.h>
#include <talloc.h>

enum { THREAD_FUNNELED = 1, LOOK_NS = 1000000 };

struct mpi_session {
    struct view_session session;
    struct mpi_library mpi;
    struct reactor *reactor;
    struct timer look; /* MPI has no descriptor that could be waited for */
    _Alignas(8) unsigned char comm[8], request[8];
    bool pending;   /* the request: MPI still uses what it names */
    bool has_comm;  /* the duplicate is made */
    bool gathering; /* an exchange is asked for */
    struct mpi_session *next_left;
    /* Its own copies: an allgather of MPI cannot be cancelled. */
    uint8_t *mine, *gathered;
    void *all; /* NULL: the caller has cancelled */
    size_t len;
    weft_done_fn done;
    void *done_arg;
};

/* ---- MPI's life: it can be started once in a process --------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_sessions; /* of this process, that need MPI */
static bool started_here;

static weft_status_t mpi_enter(struct mpi_session *s, const weft_view_params_t *params) {
    int is = 0, was = 0, provided, failed = 0;
    s->mpi.initialized(&is);
    s->mpi.finalized(&was);
    if (was) return weft__fail(WEFT_ERR_CLOSED, "MPI is finalized in this process");
    if (!is) {
        failed = s->mpi.init_thread(params->argc, params->argv, THREAD_FUNNELED, &provided);
        started_here = !failed;
    }
    if (failed) return weft__fail(WEFT_ERR_IO, "MPI_Init_thread ended with %d", failed);
    s->session.started = started_here;
    n_sessions++;
    return WEFT_OK;
}

static void leave(struct mpi_session *s) {
    int was = 0;
    pthread_mutex_lock(&lock);
    s->mpi.finalized(&was);
    if (s->has_comm && !was) s->mpi.comm_free(s->comm);
    if (--n_sessions == 0 && started_here && !was) s->mpi.finalize();
    pthread_mutex_unlock(&lock);
}

/* ---- the exchange -------------------------------------------------------------------------- */

static void look_again(struct mpi_session *s) {
    weft__timer_start(s->reactor, &s->look, weft__now(s->reactor) + LOOK_NS); /* reserved */
}

static void gathered(struct mpi_session *s, weft_status_t status) {
    uint8_t *mine = s->mine, *from = s->gathered;
    void *all = s->all;
    s->gathering = false;
    if (all && status == WEFT_OK) memcpy(all, from, s->len * s->session.exchange.size);
    talloc_free(mine);
    talloc_free(from);
    if (all) s->done(status, s->done_arg);
}

static weft_status_t begin_gather(struct mpi_session *s) {
    int len = (int)s->len;
    int failed = s->mpi.iallgather(s->mine, len, s->mpi.byte, s->gathered, len, s->mpi.byte,
                                   weft__mpi_handle(&s->mpi, s->comm), s->request);
    if (failed) return weft__fail(WEFT_ERR_IO, "MPI_Iallgather ended with %d", failed);
    s->pending = true;
    return WEFT_OK;
}

/* The first request is that of the duplicate, the next one that of the exchange. */
static void advance(struct mpi_session *s) {
    weft_status_t st = WEFT_OK;
    int done = 0;
    s->mpi.test(s->request, &done, s->mpi.ignored_status);
    if (!done) return;
    s->pending = false;
    if (s->has_comm) {
        gathered(s, WEFT_OK);
        return;
    }
    s->has_comm = true;
    if (s->gathering) st = begin_gather(s);
    if (st < 0) gathered(s, st);
}

static void mpi_look(struct timer *timer) {
    struct mpi_session *s = container_of(timer, struct mpi_session, look);
    advance(s);
    if (s->pending) look_again(s);
}

static weft_status_t allgather_mpi(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                   void *all, weft_done_fn done, void *done_arg) {
    struct mpi_session *s = arg;
    (void)worker;
    if (s->gathering) return weft__fail(WEFT_ERR_BUSY, "an exchange is in progress");
    if (len > INT_MAX) return weft__fail(WEFT_ERR_TOO_BIG, "len: %zu", len);
    s->mine = weft__alloc(s, len, "exchange");
    s->gathered = weft__alloc(s, len * s->session.exchange.size, "exchange");
    if (!s->mine || !s->gathered) return WEFT_ERR_NO_MEMORY;
    memcpy(s->mine, mine, len);
    s->all = all, s->len = len, s->done = done, s->done_arg = done_arg;
    weft_status_t st = s->has_comm ? begin_gather(s) : WEFT_OK;
    if (st < 0) return st;
    s->gathering = true;
    look_again(s);
    return WEFT_IN_PROGRESS;
}

static void cancel_mpi(void *arg) {
    ((struct mpi_session *)arg)->all = NULL; /* it ends at its own time */
}

/* ---- life ---------------------------------------------------------------------------------- */

static bool mpi_present(const weft_view_params_t *params) {
    return params->mpi_comm || weft__mpi_present();
}

/* It is made when all ranks have asked for it; the exchange waits for it. */
static weft_status_t duplicate(struct mpi_session *s, const weft_view_params_t *params) {
    intptr_t comm = params->mpi_comm ? weft__mpi_handle(&s->mpi, params->mpi_comm) : s->mpi.world;
    int rank, size;
    if (s->mpi.comm_idup(comm, s->comm, s->request) != 0)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "mpi_comm: it cannot be duplicated");
    s->pending = true;
    s->mpi.comm_rank(comm, &rank);
    s->mpi.comm_size(comm, &size);
    s->session.exchange = (weft_exchange_t){.rank = (uint32_t)rank,
                                            .size = (uint32_t)size,
                                            .allgather = allgather_mpi,
                                            .cancel = cancel_mpi,
                                            .arg = s};
    return WEFT_OK;
}

static weft_status_t start_mpi(const void *parent, weft_worker_t *worker,
                               const weft_view_params_t *params, struct view_session **session_p) {
    struct mpi_session *s = weft__new(parent, struct mpi_session);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->session.engine = &weft__view_mpi;
    s->reactor = weft__worker_reactor(worker);
    s->look.fire = mpi_look;
    weft_status_t st = weft__mpi_load(&s->mpi);
    if (st == WEFT_OK) st = weft__timer_reserve(s->reactor, &s->look);
    if (st == WEFT_OK) {
        pthread_mutex_lock(&lock);
        st = mpi_enter(s, params);
        pthread_mutex_unlock(&lock);
    }
    if (st == WEFT_OK && (st = duplicate(s, params)) < 0) leave(s);
    if (st < 0) {
        weft__timer_release(s->reactor, &s->look);
        talloc_free(s);
        return st;
    }
    *session_p = &s->session;
    return WEFT_OK;
}

/* What MPI may still write to, until the process ends. MPI cannot be finalized until then. */
static struct mpi_session *left_to_mpi;

static void leave_to_mpi(struct mpi_session *s) {
    weft__log(weft__reactor_context(s->reactor), WEFT_LOG_WARN, "runtime",
              "view: another rank has not taken part in the exchange over MPI, so the communicator "
              "and its memory outlive the view");
    talloc_steal(NULL, s);
    pthread_mutex_lock(&lock);
    s->next_left = left_to_mpi;
    left_to_mpi = s;
    pthread_mutex_unlock(&lock);
}

/* A collective of MPI ends when all ranks take part, and another may never do so. */
static void stop_mpi(struct view_session *session) {
    struct mpi_session *s = (struct mpi_session *)session;
    uint64_t ms = weft__setting_u64(weft__reactor_context(s->reactor), SETTING_CLOSE_TIMEOUT);
    uint64_t until = weft__real_now() + ms * NS_PER_MS;
    s->all = NULL;
    while (s->pending && weft__real_now() < until) advance(s);
    weft__timer_release(s->reactor, &s->look);
    if (s->pending)
        leave_to_mpi(s);
    else
        leave(s);
}

static const void *communicator_mpi(const struct view_session *session, size_t *size_p) {
    const struct mpi_session *s = (const struct mpi_session *)session;
    *size_p = weft__mpi_handle_size(&s->mpi);
    return s->comm;
}

const struct view_engine weft__view_mpi = {"mpi", mpi_present, start_mpi, stop_mpi,
                                           communicator_mpi};

/*
 * The engine over MPI, which serves as the exchange alone: everything else goes by Weft. It has a
 * duplicate of the communicator, so that its messages meet no others.
 */
#include "engine.h"
#include "mpi_library.h"

#include <base/compiler.h>
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
    bool has_comm; /* the duplicate is made */
    bool gathering;
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

static void gathered(struct mpi_session *s) {
    uint8_t *mine = s->mine, *from = s->gathered;
    void *all = s->all;
    s->gathering = false;
    if (all) memcpy(all, from, s->len * s->session.exchange.size);
    talloc_free(mine);
    talloc_free(from);
    if (all) s->done(WEFT_OK, s->done_arg);
}

static void mpi_look(struct timer *timer) {
    struct mpi_session *s = container_of(timer, struct mpi_session, look);
    int done = 0;
    s->mpi.test(s->request, &done, s->mpi.ignored_status);
    if (done)
        gathered(s);
    else
        look_again(s);
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
    int failed = s->mpi.iallgather(s->mine, (int)len, s->mpi.byte, s->gathered, (int)len,
                                   s->mpi.byte, weft__mpi_handle(&s->mpi, s->comm), s->request);
    if (failed) return weft__fail(WEFT_ERR_IO, "MPI_Iallgather ended with %d", failed);
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

static weft_status_t duplicate(struct mpi_session *s, const weft_view_params_t *params) {
    intptr_t comm = params->mpi_comm ? weft__mpi_handle(&s->mpi, params->mpi_comm) : s->mpi.world;
    int rank, size;
    if (s->mpi.comm_dup(comm, s->comm) != 0)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "mpi_comm: it cannot be duplicated");
    s->has_comm = true;
    comm = weft__mpi_handle(&s->mpi, s->comm);
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

static void stop_mpi(struct view_session *session) {
    struct mpi_session *s = (struct mpi_session *)session;
    int done = !s->gathering;
    while (!done) s->mpi.test(s->request, &done, s->mpi.ignored_status);
    weft__timer_release(s->reactor, &s->look);
    leave(s);
}

static const void *communicator_mpi(const struct view_session *session, size_t *size_p) {
    const struct mpi_session *s = (const struct mpi_session *)session;
    *size_p = weft__mpi_handle_size(&s->mpi);
    return s->comm;
}

const struct view_engine weft__view_mpi = {"mpi", mpi_present, start_mpi, stop_mpi,
                                           communicator_mpi};

/*
 * The engine over a store at a TCP address: rank 0 serves, the others connect, and try again while
 * rank 0 is not there yet or has no room for them.
 */
#include "engine.h"
#include "machines.h"
#include "store_server.h"

#include <base/alloc.h>
#include <base/compiler.h>
#include <base/status.h>
#include <endpoints/core/worker.h>
#include <errno.h>
#include <runtime/exchange.h>
#include <runtime/wire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <talloc.h>
#include <unistd.h>

/* The pause doubles with each connection that the store closes. */
enum { PAUSE_MS = 20, PAUSE_MOST_MS = 500, CLOSED_MOST = 10 };

struct store_session {
    struct view_session session;
    struct store_dial_core core;
    weft_worker_t *worker;
    struct reactor *reactor;
    struct addrinfo *at;
    struct store_server *server; /* at rank 0 */
    struct watch dial;           /* while it connects, or waits for the answer */
    struct job refused;          /* it could not begin to */
    struct timer retry;          /* reserved */
    uint8_t answer[STORE_ANSWER];
    size_t n_answer;
    unsigned n_closed;         /* connections that the store closed before its answer */
    weft_status_t wrong;       /* why there is no connection, and will be none */
    struct run_client *client; /* NULL: not connected */
    /* An allgather, which may wait for the connection. */
    const void *mine;
    void *all;
    size_t len;
    weft_done_fn done;
    void *done_arg;
    weft_status_t passed; /* what passing it on returned; IN_PROGRESS while it waits */
    bool calls;           /* within its call */
};

static void step(struct store_session *s, enum store_dial_event event) {
    weft__fsm_step(&s->core.fsm, event);
}

/* ---- the exchange -------------------------------------------------------------------------- */

static weft_status_t allgather_store(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                     void *all, weft_done_fn done, void *done_arg) {
    struct store_session *s = arg;
    (void)worker;
    s->mine = mine, s->len = len, s->all = all, s->done = done, s->done_arg = done_arg;
    s->passed = WEFT_IN_PROGRESS;
    s->calls = true;
    step(s, STORE_DIAL_EV_ASK);
    s->calls = false;
    return s->passed;
}

static void cancel_store(void *arg) {
    step(arg, STORE_DIAL_EV_CANCEL);
}

/* An error is what the call returns, or else what its callback gets. */
static void store_settle(struct store_session *s, weft_status_t status) {
    s->passed = status;
    if (status < 0 && !s->calls) s->done(status, s->done_arg);
}

static void pass_on(struct store_session *s) {
    const weft_exchange_t *x = weft__run_client_exchange(s->client);
    store_settle(s, x->allgather(x->arg, s->worker, s->mine, s->len, s->all, s->done, s->done_arg));
}

static void store_recall(struct store_session *s) {
    const weft_exchange_t *x = weft__run_client_exchange(s->client);
    x->cancel(x->arg);
}

/* ---- the connection ------------------------------------------------------------------------ */

/* Rank 0 does not dial: its store is its own. */
static void turned_away(struct store_session *s) {
    bool again = s->session.exchange.rank > 0 && ++s->n_closed < CLOSED_MOST;
    step(s, again ? STORE_DIAL_EV_REFUSED : STORE_DIAL_EV_FAILED);
}

/* The store has said what it thinks of this rank: `fd` is the exchange's, or closed. */
static void take_answer(struct store_session *s, int fd) {
    const weft_exchange_t *x = &s->session.exchange;
    weft_status_t st = weft__store_answer(s->answer);
    if (st == WEFT_OK) st = weft__run_client_create(fd, x->rank, x->size, &s->client);
    if (st < 0) {
        close(fd);
        s->wrong = weft__fail(st, "store: rank %u of %u is not taken in", x->rank, x->size);
    }
    step(s, st < 0 ? STORE_DIAL_EV_FAILED : STORE_DIAL_EV_ANSWERED);
}

static void answered(struct watch *watch, int events) {
    struct store_session *s = container_of(watch, struct store_session, dial);
    int fd = watch->fd;
    (void)events;
    ssize_t n = recv(fd, s->answer + s->n_answer, STORE_ANSWER - s->n_answer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n > 0) s->n_answer += (size_t)n;
    if (n > 0 && s->n_answer < STORE_ANSWER) return;
    weft__watch_stop(s->reactor, watch);
    if (n > 0) {
        take_answer(s, fd);
        return;
    }
    close(fd);
    turned_away(s);
}

static bool begin_handshake(struct store_session *s, int fd) {
    uint8_t hello[STORE_HELLO];
    const weft_exchange_t *x = &s->session.exchange;
    weft__store_hello(hello, x->rank, x->size);
    s->n_answer = 0;
    s->dial.ready = answered;
    return send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello &&
           weft__watch_start(s->reactor, &s->dial, fd, WATCH_READ) == WEFT_OK;
}

static void connected(struct store_session *s, int fd) {
    if (begin_handshake(s, fd)) {
        step(s, STORE_DIAL_EV_GREETED);
        return;
    }
    close(fd);
    turned_away(s);
}

/* TCP connects a socket with itself that dials a port of this host where none listens, and was
 * given that port. */
static bool is_with_itself(int fd) {
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

static void dialed(struct watch *watch, int events) {
    struct store_session *s = container_of(watch, struct store_session, dial);
    int fd = watch->fd, error = 0;
    socklen_t len = sizeof error;
    (void)events;
    weft__watch_stop(s->reactor, watch);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0 &&
        !is_with_itself(fd)) {
        connected(s, fd);
        return;
    }
    close(fd);
    step(s, STORE_DIAL_EV_REFUSED);
}

static void store_refused(struct job *job) {
    step(container_of(job, struct store_session, refused), STORE_DIAL_EV_REFUSED);
}

static void retry(struct timer *timer) {
    step(container_of(timer, struct store_session, retry), STORE_DIAL_EV_RETRY);
}

static void dial(struct store_session *s) {
    int fd = socket(s->at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int now = fd < 0 ? -1 : connect(fd, s->at->ai_addr, s->at->ai_addrlen);
    s->dial.ready = dialed;
    if (fd >= 0 && (now == 0 || errno == EINPROGRESS) &&
        weft__watch_start(s->reactor, &s->dial, fd, WATCH_WRITE) == WEFT_OK)
        return;
    if (fd >= 0) close(fd);
    weft__job_post(s->reactor, &s->refused);
}

static void pause_dialing(struct store_session *s) {
    uint64_t ms = PAUSE_MS << (s->n_closed < CLOSED_MOST ? s->n_closed : CLOSED_MOST);
    if (ms > PAUSE_MOST_MS) ms = PAUSE_MOST_MS;
    weft__timer_start(s->reactor, &s->retry, weft__now(s->reactor) + ms * NS_PER_MS);
}

/* ---- its machine (store_dial.fsm) ------------------------------------------------------------ */

static void hang_up(struct store_session *s) {
    weft__job_drop(s->reactor, &s->refused);
    if (!s->dial.events) return;
    weft__watch_stop(s->reactor, &s->dial);
    close(s->dial.fd);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct store_session *s = container_of(m, struct store_session, core.fsm);
    switch ((enum store_dial_effect)effect) {
    case STORE_DIAL_FX_DIAL: dial(s); break;
    case STORE_DIAL_FX_PAUSE: pause_dialing(s); break;
    case STORE_DIAL_FX_PASS: pass_on(s); break;
    case STORE_DIAL_FX_DENY: store_settle(s, s->wrong); break;
    case STORE_DIAL_FX_RECALL: store_recall(s); break;
    case STORE_DIAL_FX_HANG_UP: hang_up(s); break;
    case STORE_DIAL_FX_UNPAUSE: weft__timer_stop(s->reactor, &s->retry); break;
    case STORE_DIAL_N_EFFECTS: break;
    }
}

/* All events are this process's own: one that does not fit is a defect. */
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct store_session *s = container_of(m, struct store_session, core.fsm);
    (void)event, (void)why;
    store_settle(s, WEFT_ERR_INTERNAL);
}

static const struct fsm_port port = {&weft__store_dial_machine, on_effect, on_fail};

/* ---- who and where ------------------------------------------------------------------------- */

static bool number(const char *text, uint32_t *value_p) {
    char *end = NULL;
    errno = 0;
    unsigned long value = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (!end || *end || errno || value > UINT32_MAX) return false;
    *value_p = (uint32_t)value;
    return true;
}

/* A launcher that a batch script of Slurm starts has ranks of its own; Slurm's are those of the
 * script. */
static const struct launcher {
    const char *rank, *size;
} launchers[] = {
    {"WEFT_RANK", "WEFT_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* mpirun of Open MPI */
    {"PMI_RANK", "PMI_SIZE"},                         /* Hydra, Intel MPI, Cray's PALS */
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},     /* jsrun of LSF */
    {"SLURM_PROCID", "SLURM_NTASKS"},
};

static weft_status_t read_launcher(const struct launcher *launcher, uint32_t *rank_p,
                                   uint32_t *size_p) {
    const char *rank = secure_getenv(launcher->rank), *size = secure_getenv(launcher->size);
    if (!rank || !*rank || !size || !*size) return WEFT_ERR_NOT_FOUND;
    if (number(rank, rank_p) && number(size, size_p)) return WEFT_OK;
    return weft__fail(WEFT_ERR_INVALID_PARAM, "%s is \"%.32s\" and %s \"%.32s\", not two numbers",
                      launcher->rank, rank, launcher->size, size);
}

/* NOT_FOUND: none is named. INVALID_PARAM: the first that is there is no number. */
static weft_status_t rank_and_size(const weft_view_params_t *params, uint32_t *rank_p,
                                   uint32_t *size_p) {
    *rank_p = params->rank, *size_p = params->size;
    weft_status_t st = params->size ? WEFT_OK : WEFT_ERR_NOT_FOUND;
    for (size_t i = 0; st == WEFT_ERR_NOT_FOUND && i < sizeof launchers / sizeof *launchers; i++)
        st = read_launcher(&launchers[i], rank_p, size_p);
    return st;
}

static const char *address(const weft_view_params_t *params) {
    return params->store ? params->store : secure_getenv("WEFT_STORE");
}

static bool store_present(const weft_view_params_t *params) {
    uint32_t rank, size;
    return address(params) && rank_and_size(params, &rank, &size) != WEFT_ERR_NOT_FOUND;
}

/* "host:port" or "[host]:port". */
static weft_status_t resolve(const char *text, struct addrinfo **at_p) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char host[256];
    const char *colon = text ? strrchr(text, ':') : NULL;
    size_t len = colon ? (size_t)(colon - text) : 0;
    if (len == 0 || len >= sizeof host || !colon[1])
        return weft__fail(WEFT_ERR_INVALID_PARAM, "store: \"%.64s\" is not host:port",
                          text ? text : "");
    bool bracketed = text[0] == '[' && text[len - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? len - 2 : len), text + bracketed);
    int error = getaddrinfo(host, colon + 1, &hints, at_p);
    return error ? weft__fail(WEFT_ERR_ADDRESS, "store: %s: %s", text, gai_strerror(error))
                 : WEFT_OK;
}

/* ---- life ---------------------------------------------------------------------------------- */

static weft_status_t store_begin(struct store_session *s) {
    const weft_exchange_t *x = &s->session.exchange;
    int fd;
    if (x->rank > 0) {
        step(s, STORE_DIAL_EV_START);
        return WEFT_OK;
    }
    weft_status_t st = weft__store_server_start(s, s->reactor, s->at, x->size, &fd, &s->server);
    if (st == WEFT_OK) connected(s, fd);
    return st;
}

static weft_status_t start_store(const void *parent, weft_worker_t *worker,
                                 const weft_view_params_t *params,
                                 struct view_session **session_p) {
    uint32_t rank, size;
    weft_status_t st = address(params) ? rank_and_size(params, &rank, &size) : WEFT_ERR_NOT_FOUND;
    if (st == WEFT_ERR_NOT_FOUND)
        return weft__fail(st, "no store: WEFT_STORE, WEFT_RANK and WEFT_SIZE");
    if (st < 0) return st;
    if (size == 0 || size > RUN_MAX_RANKS || rank >= size)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "rank %u of size %u", rank, size);
    struct store_session *s = weft__new(parent, struct store_session);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->session.engine = &weft__view_store;
    s->session.exchange = (weft_exchange_t){
        .rank = rank, .size = size, .allgather = allgather_store, .cancel = cancel_store, .arg = s};
    s->worker = worker;
    s->reactor = weft__worker_reactor(worker);
    s->wrong = WEFT_ERR_PEER_FAILED;
    s->retry.fire = retry;
    s->refused.run = store_refused;
    fsm_init(&s->core.fsm, &port, STORE_DIAL_IDLE, rank + 1);
    st = resolve(address(params), &s->at);
    if (st == WEFT_OK) st = weft__timer_reserve(s->reactor, &s->retry);
    if (st == WEFT_OK) st = store_begin(s);
    if (st == WEFT_OK) {
        *session_p = &s->session;
        return WEFT_OK;
    }
    weft__timer_release(s->reactor, &s->retry);
    if (s->at) freeaddrinfo(s->at);
    talloc_free(s);
    return st;
}

static void stop_store(struct view_session *session) {
    struct store_session *s = (struct store_session *)session;
    step(s, STORE_DIAL_EV_STOP);
    weft__timer_release(s->reactor, &s->retry);
    if (s->client) weft__run_client_free(s->client);
    if (s->server) weft__store_server_stop(s->server);
    freeaddrinfo(s->at);
}

const struct view_engine weft__view_store = {"store", store_present, start_store, stop_store, NULL};

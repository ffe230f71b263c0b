/*
 * The engine over a store at a TCP address: rank 0 serves, the others connect, and try again while
 * rank 0 is not there yet.
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

enum { RETRY_NS = 20000000 };

struct store_session {
    struct view_session session;
    struct store_dial_core core;
    weft_worker_t *worker;
    struct reactor *reactor;
    struct addrinfo *at;
    struct store_server *server; /* at rank 0 */
    struct watch dial;           /* while it connects */
    struct job refused;          /* it could not begin to */
    struct timer retry;
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

static void connected(struct store_session *s, int fd) {
    uint8_t hello[STORE_HELLO];
    weft_exchange_t *x = &s->session.exchange;
    weft__store_hello(hello, x->rank, x->size);
    weft_status_t st = WEFT_ERR_PEER_FAILED;
    if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello)
        st = weft__run_client_create(fd, x->rank, x->size, &s->client);
    if (st < 0) close(fd);
    step(s, st < 0 ? STORE_DIAL_EV_FAILED : STORE_DIAL_EV_GREETED);
}

static void dialed(struct watch *watch, int events) {
    struct store_session *s = container_of(watch, struct store_session, dial);
    int fd = watch->fd, error = 0;
    socklen_t len = sizeof error;
    (void)events;
    weft__watch_stop(s->reactor, watch);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0) {
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
    if (fd >= 0 && (now == 0 || errno == EINPROGRESS) &&
        weft__watch_start(s->reactor, &s->dial, fd, WATCH_WRITE) == WEFT_OK)
        return;
    if (fd >= 0) close(fd);
    weft__job_post(s->reactor, &s->refused);
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
    case STORE_DIAL_FX_PAUSE: /* reserved */
        weft__timer_start(s->reactor, &s->retry, weft__now(s->reactor) + RETRY_NS);
        break;
    case STORE_DIAL_FX_PASS: pass_on(s); break;
    case STORE_DIAL_FX_DENY: store_settle(s, WEFT_ERR_PEER_FAILED); break;
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

static bool number(const char *name, uint32_t *value_p) {
    const char *text = secure_getenv(name);
    char *end = NULL;
    unsigned long value = text && *text ? strtoul(text, &end, 10) : 0;
    if (!end || *end || value > UINT32_MAX) return false;
    *value_p = (uint32_t)value;
    return true;
}

static bool rank_and_size(const weft_view_params_t *params, uint32_t *rank_p, uint32_t *size_p) {
    *rank_p = params->rank, *size_p = params->size;
    if (params->size) return true;
    return (number("WEFT_RANK", rank_p) && number("WEFT_SIZE", size_p)) ||
           (number("SLURM_PROCID", rank_p) && number("SLURM_NTASKS", size_p));
}

static const char *address(const weft_view_params_t *params) {
    return params->store ? params->store : secure_getenv("WEFT_STORE");
}

static bool store_present(const weft_view_params_t *params) {
    uint32_t rank, size;
    return address(params) && rank_and_size(params, &rank, &size);
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
    if (!address(params) || !rank_and_size(params, &rank, &size))
        return weft__fail(WEFT_ERR_NOT_FOUND, "no store: WEFT_STORE, WEFT_RANK and WEFT_SIZE");
    if (size == 0 || size > RUN_MAX_RANKS || rank >= size)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "rank %u of size %u", rank, size);
    struct store_session *s = weft__new(parent, struct store_session);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->session.engine = &weft__view_store;
    s->session.exchange = (weft_exchange_t){
        .rank = rank, .size = size, .allgather = allgather_store, .cancel = cancel_store, .arg = s};
    s->worker = worker;
    s->reactor = weft__worker_reactor(worker);
    s->dial.ready = dialed;
    s->retry.fire = retry;
    s->refused.run = store_refused;
    fsm_init(&s->core.fsm, &port, STORE_DIAL_IDLE, rank + 1);
    weft_status_t st = resolve(address(params), &s->at);
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

const struct view_engine weft__view_store = {"store", store_present, start_store, stop_store};

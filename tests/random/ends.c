/* Endpoints: who dials whom, which two belong together, and why one may be lost. */
#include <string.h>
#include <unistd.h>

#include "world.h"

struct end *end_of(weft_ep_t *ep) {
    return weft_ep_user(ep);
}

/* It may be a library's, which closes it. */
static bool is_foreign(const struct end *end) {
    return !end->other && !end->dialed && world->libraries;
}

bool end_lives(const struct end *end) {
    return !is_foreign(end) && end->state == END_OPEN && !end->node->closing;
}

/* No operation gave it a cause to be lost. */
bool end_is_safe(const struct end *end) {
    if (!end_lives(end) || end->hurried || (end->to && end->to->closing)) return false;
    /* it may be a team's */
    if (!end->other && !end->dialed && world->has_teams) return false;
    /* its outcome is unknown */
    if (!end->other) return !(world->may & (MAY_CANCEL | MAY_CLOSE | MAY_KILL));
    return end_lives(end->other) && !end->other->hurried;
}

static bool is_mine(const struct end *end) {
    if (!end->other && !end->dialed && world->has_teams) return false;
    return end_lives(end) && end->author == here && may_post(end->node);
}

struct end *any_end(void) {
    for (int i = 0; i < 8 && world->n_ends; i++) {
        struct end *end = &world->end[below(world->n_ends)];
        if (is_mine(end)) return end;
    }
    return NULL;
}

void end_met(struct end *end, struct end *other) {
    if (other->other && other->other != end) wrong("end %u has two other sides", other->n);
    trace("ends %u and %u are one connection", end->n, other->n);
    end->other = other;
    other->other = end;
    end->to = other->node;
    other->to = end->node;
    end->hurried |= other->hurried;
}

/* ---- lost ------------------------------------------------------------------------------------ */

void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct end *end = end_of(ep);
    CALLED((uint64_t)(end ? end->n : ENDS) << 8 | 6);
    if (status >= 0 || status == WEFT_ERR_INTERNAL || status == WEFT_ERR_PROTOCOL)
        wrong("an endpoint is lost: %s", weft_status_name(status));
    if (end) {
        trace("end %u is lost: %s", end->n, weft_status_name(status));
        if (end->state == END_LOST) wrong("end %u was lost twice", end->n);
        if (end_is_safe(end) && !world->ending)
            wrong("end %u was lost, and this program did nothing to it: %s", end->n,
                  failure(status));
        if (end->state == END_OPEN) end->state = END_LOST;
        act_within();
    }
    RETURNS;
}

static void on_ready(weft_ep_t *ep, void *arg) {
    struct end *end = end_of(ep);
    CALLED((uint64_t)end->n << 8 | 7);
    if (end->ready) wrong("end %u was ready twice", end->n);
    end->ready = true;
    act_within();
    RETURNS;
}

/* ---- begun ----------------------------------------------------------------------------------- */

/* The thread that owns its worker, or another where that may be. */
static unsigned author_of(const struct node *node) {
    if (!(world->may & MAY_THREAD) || world->settling || node->mode != WEFT_THREAD_MULTIPLE)
        return node->owner;
    static const unsigned others[] = {MAIN, UNVERIFIED, UNVERIFIED};
    return percent(40) ? node->owner : others[below(3)];
}

static struct end *end_new(struct node *node, weft_ep_t *ep) {
    struct end *end = &world->end[world->n_ends];
    *end = (struct end){.node = node, .n = world->n_ends, .ep = ep, .state = END_OPEN};
    end->author = author_of(node);
    weft_ep_set_user(ep, end);
    world->n_ends++;
    return end;
}

void on_endpoint(weft_ep_t *ep, void *arg) {
    struct node *node = arg;
    CALLED((uint64_t)world->n_ends << 8 | 8);
    if (world->n_ends == ENDS) {
        world->end[ENDS - 1].hurried = true;
        if (weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL) < 0) wrong("an endpoint does not close");
    } else {
        struct end *end = end_new(node, ep);
        end->ready = true;
        trace("end %u at node %u was dialed", end->n, node->n);
        weft_ep_on_error(ep, on_error, NULL);
        act_within();
    }
    RETURNS;
}

static const char *const unreachable[] = {
    "",           "tcp://",   "tcp://127.0.0.1:1", "shm://no-listener",    "shm:///../../x",
    "tcp://[::1", "self://x", "foo://bar",         "tcp://127.0.0.1:99999"};

/* By its address, by where it listens, or to no listener. */
static weft_status_t connect_to(struct node *node, struct node *to, const weft_ep_params_t *params,
                                bool *to_none_p, const weft_listener_t **by_p, weft_ep_t **ep_p) {
    *to_none_p = may(MAY_ERR) && percent(20);
    *by_p = NULL;
    if (*to_none_p) return weft_connect(node->worker, unreachable[below(9)], params, ep_p);
    if (to->listener && to->owner == here && percent(50)) {
        *by_p = to->listener;
        return weft_connect(node->worker, weft_listener_uri(to->listener), params, ep_p);
    }
    return weft_connect_address(node->worker, to->address, to->address_len, params, ep_p);
}

void dial(void) {
    struct node *node = any_node(), *to = &world->node[below(NODES)];
    weft_ep_t *ep;
    const weft_listener_t *by;
    bool to_none;
    if (!node || !owns(node) || world->n_ends >= ENDS / 3 || to->closing) return;
    if (!strcmp(world->transports, "self")) to = node;
    if (to == node && !strstr(world->transports, "self") && percent(80)) return;
    weft_ep_params_t params = {.on_ready = on_ready,
                               .on_error = on_error,
                               .connect_timeout_ms = may(MAY_CANCEL) && percent(5) ? 1 : 0,
                               .error_mode = percent(25) ? WEFT_ERRORS_FAILOVER : WEFT_ERRORS_PEER,
                               .heartbeat_ms = world->may == 0 || percent(90) ? 0 : 5000};
    weft_status_t st = connect_to(node, to, &params, &to_none, &by, &ep);
    trace("node %u dials node %u%s: %s", node->n, to->n,
          to_none ? ", or no listener"
          : by    ? " where it listens"
                  : "",
          weft_status_name(st));
    if (st < 0 && !to_none && !world->may) wrong("dialing fails: %s", weft_status_name(st));
    if (st < 0) return;
    struct end *end = end_new(node, ep);
    end->dialed = true;
    end->to = to;
    end->by = by;
    end->survives = params.error_mode == WEFT_ERRORS_FAILOVER;
    end->hurried = to_none || params.connect_timeout_ms;
    send_who(end);
}

/* ---- closed ---------------------------------------------------------------------------------- */

static void closed(weft_status_t status, void *arg) {
    struct end *end = arg;
    CALLED((uint64_t)end->n << 8 | 9);
    trace("end %u is closed: %s", end->n, weft_status_name(status));
    if (end->state != END_CLOSING) wrong("end %u was closed twice", end->n);
    end->state = END_CLOSED;
    end->ep = NULL;
    world->waiting--;
    act_within();
    RETURNS;
}

static void aborted(weft_status_t status, void *arg) {
    struct end *end = arg;
    CALLED((uint64_t)end->n << 8 | 22);
    if (end->state != END_CLOSED) wrong("end %u was aborted before it was closed", end->n);
    world->waiting--;
    act_within();
    RETURNS;
}

/* Its close in good order, which has begun, becomes an abort. */
static void shorten(struct end *end) {
    weft_op_t op = {.done = aborted, .arg = end};
    weft_status_t st = weft_ep_close(end->ep, WEFT_CLOSE_ABORT, &op);
    trace("abort end %u: %s", end->n, weft_status_name(st));
    if (st == WEFT_IN_PROGRESS)
        world->waiting++;
    else if (st != WEFT_ERR_BUSY)
        wrong("an abort of a close answers %s", weft_status_name(st));
}

void end_close(struct end *end, weft_close_mode_t mode, uint32_t deadline_ms) {
    weft_op_t op = {.done = closed, .arg = end, .deadline_ms = deadline_ms};
    if (is_foreign(end) || end->using || end->node->closing || end->state == END_CLOSING ||
        end->state == END_CLOSED)
        return;
    weft_status_t st = weft_ep_close(end->ep, mode, &op);
    trace("close end %u, mode %d: %s", end->n, mode, weft_status_name(st));
    if (st != WEFT_IN_PROGRESS) wrong("a close answers %s", weft_status_name(st));
    end->state = END_CLOSING;
    world->waiting++;
    if (mode == WEFT_CLOSE_FLUSH && end->n % 4 == 0 && owns(end->node)) shorten(end);
}

/* ---- listeners ------------------------------------------------------------------------------- */

static weft_status_t on_request(const char *peer, void *arg) {
    return WEFT_OK;
}

/*
 * Endpoints that were accepted go on, but an endpoint that was opened by a URI is dialed again by
 * that URI: once there is no listener, it is lost with its lane after three tries in a row
 * (docs/switching.md), whichever peer lives there.
 */
static void listen_no_more(struct node *node) {
    for (struct end *end = world->end; end < world->end + world->n_ends; end++) {
        end->hurried |= !end->other;
        if (end->by != node->listener) continue;
        end->by = NULL;
        end->survives = false;
        end->hurried |= world->killed; /* it may be on its way there */
    }
    trace("node %u listens no more at %s", node->n, weft_listener_uri(node->listener));
    weft_listener_close(node->listener);
    node->listener = NULL;
}

void listen_or_not(void) {
    struct node *node = any_node();
    char uri[64];
    if (!node || !owns(node)) return;
    if (node->listener) {
        if (!may(MAY_CLOSE) || percent(80)) return;
        listen_no_more(node);
        return;
    }
    bool tcp =
        strstr(world->transports, "tcp") && (percent(50) || !strstr(world->transports, "shm"));
    if (!tcp && !strstr(world->transports, "shm")) return;
    snprintf(uri, sizeof uri, tcp ? "tcp://127.0.0.1:0" : "shm://random%d.%u", (int)getpid(),
             node->n);
    weft_listen_params_t params = {.on_endpoint = on_endpoint,
                                   .on_error = on_error,
                                   .arg = node,
                                   .on_request = percent(50) ? on_request : NULL};
    weft_status_t st = weft_listen(node->worker, uri, &params, &node->listener);
    if (st < 0) wrong("listening at %s: %s", uri, weft_status_name(st));
    trace("node %u listens at %s", node->n, weft_listener_uri(node->listener));
}

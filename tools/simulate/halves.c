/* Endpoints: dialed, accepted, lost and closed, and which may be lost when. */
#include <string.h>

#include "world.h"

bool half_lives(const struct half *half) {
    return half->state == HALF_OPEN && half->ep && !half->node->crashed && !half->node->closing;
}

/* A lane broke, or an endpoint was closed. */
bool half_may_fail(const struct half *half) {
    const struct world *w = half->connection->world;
    return w->harmed || w->closing || half->state > HALF_OPEN || half->other->state > HALF_OPEN;
}

struct half *half_of(struct world *w, uint32_t pair, uint32_t side) {
    struct connection *c = pair < w->n_pairs ? w->pair[pair].now : NULL;
    return c && half_lives(&c->half[side]) ? &c->half[side] : NULL;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void cancel_takes(struct half *half) {
    for (struct asked *asked = half->asked; asked; asked = asked->next_of_half)
        if (asked->kind == ASKED_TAKE && asked->request) {
            asked->cancelled = true;
            weft_request_cancel(asked->request);
        }
}

static void closed(struct asked *asked) {
    struct half *half = asked->half;
    for (struct asked *other = half->asked; other; other = other->next_of_half)
        if (other != asked && other->pending_link && other->kind != ASKED_TAKE)
            world_fail(half->connection->world,
                       "an operation of kind %d was left when %u.%d closed", (int)other->kind,
                       half->connection->serial, (int)(half - half->connection->half));
    half->state = HALF_CLOSED;
    half->close_ns = world_now(half->connection->world) - asked->at;
    half->ep = NULL;
}

void half_close(struct half *half, weft_close_mode_t mode) {
    struct world *w = half->connection->world;
    if (!half->ep || half->state >= HALF_CLOSING) return;
    half->closed_first =
        half->other->state <= HALF_OPEN && half->state == HALF_OPEN && mode == WEFT_CLOSE_FLUSH;
    half->state = HALF_CLOSING;
    stream_give_back(half);
    if (half->rkey) weft_rkey_release(half->rkey);
    half->rkey = NULL;
    cancel_takes(half);
    struct asked *asked = ask(w, half, ASKED_CLOSE, 0);
    asked->then = closed;
    weft_op_t op = ask_op(asked);
    op.request_p = NULL;
    ask_answered(asked, weft_ep_close(half->ep, mode, &op));
}

void half_lost(struct half *half, weft_status_t status) {
    struct world *w = half->connection->world;
    world_note(w, (uint64_t)half->connection->serial << 8 | (uint8_t)status);
    world_trace(w, "%u.%d is lost: %s", half->connection->serial,
                (int)(half - half->connection->half), weft_status_name(status));
    if (half->state != HALF_OPEN)
        world_fail(w, "%u.%d was lost in state %d", half->connection->serial,
                   (int)(half - half->connection->half), (int)half->state);
    /* No worker violates the protocol here. */
    bool blamed = status == WEFT_ERR_PROTOCOL || status == WEFT_ERR_INTERNAL;
    if (blamed || !half_may_fail(half))
        world_fail(w, "%u.%d was lost without a cause: %s", half->connection->serial,
                   (int)(half - half->connection->half), weft_status_name(status));
    half->error = status;
    half->state = HALF_LOST;
    half_close(half, WEFT_CLOSE_ABORT);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void unpack_key(struct half *half) {
    const struct node *to = half->other->node;
    weft_status_t st = weft_rkey_unpack(half->ep, to->key, to->key_len, &half->rkey);
    if (st == WEFT_OK) return;
    half->rkey = NULL;
    if (!half_may_fail(half))
        world_fail(half->connection->world, "a key is refused: %s", weft_status_name(st));
}

static void half_open(struct half *half, weft_ep_t *ep) {
    half->ep = ep;
    half->state = HALF_OPEN;
    weft_ep_set_user(ep, half);
    unpack_key(half);
    stream_listen(half);
}

static void on_ready(weft_ep_t *ep, void *arg) {
    struct half *half = arg;
    if (half->ready) world_fail(half->connection->world, "an endpoint was ready twice");
    half->ready = true;
}

static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    half_lost(arg, status);
}

static struct connection *connection_new(struct world *w, uint32_t pair, struct node *from,
                                         struct node *to) {
    struct connection *c = arena_alloc(sizeof *c);
    c->world = w;
    c->serial = w->n_connections;
    c->pair = pair;
    for (int side = 0; side < 2; side++) {
        c->half[side].connection = c;
        c->half[side].other = &c->half[!side];
        c->half[side].node = side ? to : from;
        c->half[side].slot = (side ? from : to)->n_slots++;
    }
    connections_add(w, c);
    return c;
}

/* Is there anything of it still? What its other side has not noticed yet does not count. */
static bool is_over(const struct connection *c) {
    const struct half *dialer = &c->half[0], *other = &c->half[1];
    return dialer->state > HALF_OPEN || dialer->node->crashed || other->state > HALF_OPEN ||
           other->node->crashed;
}

void pair_dial(struct world *w, uint32_t number) {
    struct pair *pair = &w->pair[number];
    struct node *from = w->node[pair->from], *to = w->node[pair->to];
    uint8_t address[256];
    size_t len = sizeof address;
    if (pair->now && !is_over(pair->now)) return;
    if (!from || !to || from->closing || to->closing) return;
    if (weft_worker_address(to->worker, address, &len) < 0) return;
    pair->n_dials++;
    struct connection *c = pair->now = connection_new(w, number, from, to);
    struct half *half = &c->half[0];
    weft_ep_t *ep;
    weft_ep_params_t params = {.on_ready = on_ready,
                               .on_error = on_error,
                               .arg = half,
                               .heartbeat_ms = w->plan->heartbeat_ms};
    if (w->plan->survive) params.error_mode = WEFT_ERRORS_FAILOVER;
    weft_status_t st = weft_connect_address(from->worker, address, len, &params, &ep);
    world_trace(w, "%u: worker %u dials worker %u: %s", c->serial, pair->from, pair->to,
                weft_status_name(st));
    if (st < 0) {
        if (!w->harmed) world_fail(w, "a dial is refused: %s", weft_status_name(st));
        half->state = HALF_CLOSED;
        return;
    }
    half_open(half, ep);
    send_who(half);
}

/* The first message of every connection: the accepted side learns which one it is. */
void on_who(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct node *node = arg;
    struct world *w = node->world;
    uint32_t serial;
    if (am->header_len != sizeof serial) {
        world_fail(w, "a connection does not name its peer");
        return;
    }
    memcpy(&serial, am->header, sizeof serial);
    struct half *half = serial < w->n_connections ? &w->connection[serial]->half[1] : NULL;
    if (!half || half->node != node || half->state != HALF_NONE || weft_ep_user(ep)) {
        world_fail(w, "connection %u names its peer again, or another worker", serial);
        return;
    }
    half_open(half, ep);
    half->ready = true;
}

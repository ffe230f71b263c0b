/*
 * What a run does: a list of actions that its seed draws. Each draws its own fields from the seed
 * and its place in the list, so an action that is left out changes no other.
 */
#include <base/alloc.h>
#include <endpoints/core/request.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

/* ---- the victim's own program */

static struct end *an_end(void) {
    for (int tries = 0; tries < 8; tries++) {
        struct end *end = &world->end[below(world->n_ends)];
        if (end->ep && !end->honest && end->worker == VICTIM) return end;
    }
    return NULL;
}

static size_t a_size(void) {
    static const size_t edges[] = {0,     1,     64,    4096,   8192,   32768,
                                   40000, 65536, 70000, 131072, 180000, 1 << 20};
    return percent(60) ? edges[below(12)] : below(200000);
}

/* The first `len` bytes are the message's. Behind them may be bytes of one whose lane ended half
 * way: the receive was posted again. */
static bool holds_begin(struct shape *s, size_t len) {
    const uint8_t *bytes = bytes_of(RAW_NAME, 0);
    if (s->kind == SHAPE_PACKED || shape_holds(s, bytes, len)) return shape_holds(s, bytes, len);
    struct shape begin = *s;
    uint8_t *came = malloc(2 * s->span), *wanted = came + s->span;
    bool held = true;
    if (!came) abort();
    memcpy(came, s->block, s->span);
    begin.len = len;
    shape_fill(&begin, bytes);
    memcpy(wanted, s->block, s->span);
    shape_clear(s);
    uint8_t clear = s->block[0];
    shape_fill(s, bytes);
    for (size_t i = 0; i < s->span; i++)
        held &= came[i] == wanted[i] || (wanted[i] == clear && came[i] == s->block[i]);
    free(came);
    return held;
}

static void received(struct op *op) {
    struct shape *s = &op->shape;
    bool whole = op->status == WEFT_OK;
    if (!whole && op->status != WEFT_ERR_TRUNCATED) return;
    if (whole && op->info.len > s->len)
        wrong("a receive of %zu bytes is OK with a message of %zu", s->len, op->info.len);
    if (!holds_begin(s, op->info.len < s->len ? op->info.len : s->len))
        wrong("a receive ends as %s with other bytes", weft_status_name(op->status));
}

/* Few large blocks at a stride, which a lane may fill itself. */
static void draw_blocks(struct shape *s) {
    static const size_t blocks[] = {100, 4096, 5000, 8192, 16384};
    weft_layout_t *l = &s->layout;
    *s = (struct shape){.kind = SHAPE_STRIDED, .refuse_at = SIZE_MAX, .n_iov = 1};
    *l = (weft_layout_t){
        .kind = WEFT_LAYOUT_STRIDED, .block = blocks[below(5)], .count = 1 + below(12)};
    l->stride = l->block + below(1000);
    s->len = l->block * l->count;
    s->span = l->stride * (l->count - 1) + l->block;
    s->block = malloc(s->span);
    if (!s->block) abort();
    s->iov[0] = (weft_iov_t){s->block, 0};
}

static void do_receive(void) {
    struct op *op = op_new("receive");
    op->ended = received;
    if (percent(world->scenario == PLACEMENT ? 60 : 25))
        draw_blocks(&op->shape);
    else
        shape_draw(&op->shape, a_size(), (struct shape_wants){.layouts = true});
    shape_clear(&op->shape);
    weft_op_t with = op_of(op);
    if (percent(10)) with.deadline_ms = 1 + below(50);
    uint64_t mask = percent(60) ? HONEST_TAG : HONEST_TAG | 3;
    trace("the victim posts receive %u of %zu bytes, kind %d", op->number, op->shape.len,
          (int)op->shape.kind);
    POST(op, weft_tag_recv(world->worker[VICTIM], below(4), mask, op->shape.iov, op->shape.n_iov,
                           &op->info, &with));
}

static void do_take(void) {
    weft_worker_t *w = world->worker[VICTIM];
    if (!world->taken) {
        weft_tag_take(w, below(4), HONEST_TAG | (percent(50) ? 3 : 0), NULL, &world->taken);
        return;
    }
    struct op *op = op_new("taken receive");
    shape_draw(&op->shape, a_size(), (struct shape_wants){.layouts = true});
    shape_clear(&op->shape);
    weft_op_t with = op_of(op);
    POST(op, weft_tag_message_recv(w, world->taken, op->shape.iov, op->shape.n_iov, &with));
    world->taken = NULL;
}

static void do_send(void) {
    struct end *end = an_end();
    if (!end) return;
    struct op *op = op_new("send");
    shape_draw(&op->shape, a_size(), (struct shape_wants){.layouts = true});
    shape_fill(&op->shape, bytes_of(RAW_NAME, 0));
    weft_op_t with = op_of(op);
    uint32_t which = below(3);
    if (which < 2 && percent(20)) with.flags = WEFT_AM_RENDEZVOUS;
    trace("the victim sends %u: %zu bytes, way %u", op->number, op->shape.len, which);
    const weft_iov_t *iov = op->shape.iov;
    size_t n = op->shape.n_iov;
    if (which == 0)
        POST(op, weft_tag_send(end->ep, 1, iov, n, &with));
    else if (which == 1)
        POST(op, weft_am_send(end->ep, 1 + below(3), "header", 6, iov, n, &with));
    else
        POST(op, weft_stream_send(end->ep, iov, n, &with));
}

static void do_stream_receive(void) {
    struct end *end = an_end();
    const void *data;
    size_t len;
    if (!end) return;
    if (percent(30)) {
        if (weft_stream_take(end->ep, &data, &len) == WEFT_OK)
            weft_stream_release(world->worker[VICTIM], data);
        return;
    }
    struct op *op = op_new("stream receive");
    shape_draw(&op->shape, 1 + a_size(), (struct shape_wants){.layouts = true});
    weft_op_t with = op_of(op);
    with.flags = percent(30) ? WEFT_STREAM_WAIT_ALL : 0;
    POST(op, weft_stream_recv(end->ep, op->shape.iov, op->shape.n_iov, &op->got, &with));
}

/* A key to memory of a raw peer, which answers as it likes. */
static void do_key(void) {
    struct end *end = an_end();
    uint8_t key[WEFT_RKEY_MAX];
    weft_rkey_t *rkey;
    if (!end || world->n_rkeys == KEYS) return;
    uint8_t *at = key;
    memset(key, 0, sizeof key);
    memcpy(at, "WK\1", 4);
    uint64_t worker = RAW_WORKER + below(3), base = 0x10000, len = 1 << 21;
    uint32_t rights = 7;
    memcpy(at + 4, &worker, 8);
    memcpy(at + 36, &base, 8);
    memcpy(at + 44, &len, 8);
    memcpy(at + 52, &rights, 4);
    if (weft_rkey_unpack(end->ep, key, 56, &rkey) == WEFT_OK) world->rkey[world->n_rkeys++] = rkey;
}

static void do_one_sided(void) {
    struct end *end = an_end();
    if (!end) return;
    if (!world->n_rkeys || percent(20)) do_key();
    if (!world->n_rkeys) return;
    weft_rkey_t *rkey = world->rkey[below(world->n_rkeys)];
    struct op *op = op_new("one-sided");
    uint32_t which = below(4);
    uint64_t at = 0x10000 + 8 * below(1000);
    shape_draw(&op->shape, a_size(), (struct shape_wants){.one = true, .layouts = false});
    shape_fill(&op->shape, bytes_of(RAW_NAME, 0));
    void *buf = op->shape.block;
    weft_op_t with = op_of(op);
    trace("the victim begins one-sided %u, way %u, %zu bytes", op->number, which, op->shape.len);
    if (which == 0)
        POST(op, weft_put(end->ep, buf, op->shape.len, at, rkey, &with));
    else if (which == 1)
        POST(op, weft_get(end->ep, buf, op->shape.len, at, rkey, &with));
    else if (which == 2)
        POST(op, weft_atomic_fetch(end->ep, WEFT_ATOMIC_ADD, 8, 1, 0, &op->old, at, rkey, &with));
    else
        POST(op, weft_atomic_post(end->ep, WEFT_ATOMIC_ADD, 8, 1, at, rkey, &with));
}

static void field_gone(struct op *op) {
    struct field *f = &world->field[op->got];
    if (op->status == WEFT_ERR_NO_MEMORY) f->going = false; /* nothing was begun */
    if (!f->going) return;
    free(f->base);
    *f = (struct field){0};
}

/* Memory of its own that it has the peers reach, takes back, and gives up. */
static void do_memory(void) {
    unsigned which = below(FIELDS);
    struct field *f = &world->field[which];
    if (f->going) return;
    if (!f->mem) {
        f->len = 1 + below(150000);
        f->base = malloc(f->len);
        f->key_len = sizeof f->key;
        memset(f->base, 1, f->len);
        weft_mem_params_t params = {.rights = WEFT_MEM_ALL};
        weft_status_t st =
            weft_mem_register(world->worker[VICTIM], f->base, f->len, &params, &f->mem);
        if (st == WEFT_OK && weft_mem_pack(f->mem, f->key, &f->key_len) == WEFT_OK) return;
        if (!world->starved) wrong("no region");
        f->key_len = 0;
        if (st == WEFT_OK) return;
        free(f->base);
        *f = (struct field){0};
        return;
    }
    struct op *op = op_new("revocation");
    op->got = which;
    op->ended = field_gone;
    weft_op_t with = op_of(op);
    f->going = percent(50);
    if (f->going)
        POST(op, weft_mem_release(f->mem, &with));
    else
        POST(op, weft_mem_revoke(f->mem, &with));
}

static void do_flush(void) {
    struct end *end = an_end();
    if (!end) return;
    struct op *op = op_new("flush");
    weft_op_t with = op_of(op);
    with.flags = percent(50) ? WEFT_FLUSH_REMOTE : 0;
    POST(op, weft_ep_flush(end->ep, &with));
}

/* Half of the time one whose message a lane is placing. */
static void do_cancel(void) {
    unsigned skip = percent(50) ? 0 : below(8);
    bool placed = percent(50);
    for (struct op *op = world->ops; op; op = op->next) {
        bool mine = !op->message || op == op->message->receive;
        if (op_is_over(op) || !op->request || op->cancelled || !mine ||
            !strcmp(op->name, "honest stream"))
            continue;
        if (placed ? op->request->placement == 0 : skip-- > 0) continue;
        if (op->end && op->end->honest) continue;
        trace("%s %u is cancelled", op->name, op->number);
        op->cancelled = true;
        weft_request_cancel(op->request);
        return;
    }
}

static void do_close(void) {
    struct end *end = an_end();
    if (!end) return;
    struct op *op = op_new("close");
    weft_op_t with = op_of(op);
    weft_ep_t *ep = end->ep;
    end->ep = NULL;
    trace("the victim closes an endpoint");
    weft_ep_set_user(ep, NULL);
    weft_ep_on_error(ep, NULL, NULL);
    POST(op, weft_ep_close(ep, percent(50) ? WEFT_CLOSE_FLUSH : WEFT_CLOSE_ABORT, &with));
}

static void dial_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct end *end = weft_ep_user(ep);
    if (!end) return;
    if (end->lost) wrong("an endpoint is lost twice");
    end->lost = true;
    trace("a dialed endpoint is lost: %s", weft_status_name(status));
}

/* The victim dials a raw peer. */
static void do_connect(void) {
    char uri[64];
    weft_ep_t *ep;
    if (world->n_ends == ENDS) return;
    snprintf(uri, sizeof uri, "tcp://127.0.0.1:%u", peers_port());
    weft_ep_params_t params = {.on_error = dial_lost, .connect_timeout_ms = 1000};
    if (percent(world->scenario == SURVIVAL ? 90 : 20)) params.error_mode = WEFT_ERRORS_FAILOVER;
    if (percent(20)) params.heartbeat_ms = 250;
    if (weft_connect(world->worker[VICTIM], uri, &params, &ep) == WEFT_OK) end_new(ep, VICTIM);
    run_worker(VICTIM, 0);
    peers_accept();
}

/* ---- raw peers */

static void do_dial(void) {
    struct peer *before = peer_free();
    bool shm = world->scenario == OVER_SHM ? percent(80) : world->scenario == LANES && percent(20);
    if (!before) return;
    peer_dial(shm);
    if (before->stage != PEER_UP || percent(world->scenario == SURVIVAL ? 25 : 10))
        return; /* a connection that says nothing yet */
    uint16_t flags = percent(70) ? WIRE_HELLO_EXTRA : 0;
    if (world->scenario == SURVIVAL) flags |= WIRE_HELLO_EXTRA | WIRE_HELLO_SURVIVES;
    if (world->scenario == LANES) flags |= WIRE_HELLO_LANES;
    if (percent(world->crude ? 20 : 3)) flags = (uint16_t)below(512);
    flags |= percent(80) ? WIRE_HELLO_ANSWERS | WIRE_HELLO_PARTS | WIRE_HELLO_EXPOSURES : 0;
    message_handshake(before, flags);
    if (percent(80)) message_open(before);
    for (unsigned i = percent(75) ? 12 : below(3);
         i > 0 && before->stage == PEER_UP && !before->eps.n; i--) {
        run_worker(VICTIM, 0);
        peer_read(before);
    }
}

static void do_handshake(void) {
    struct peer *p = peer_any();
    bool again = p && (p->shaken || p->sent);
    if (p && (!again || (world->crude && percent(30))))
        message_handshake(p, (uint16_t)(below(512) & ~(uint32_t)WIRE_HELLO_RESUME));
}

/* On another connection, or a new one, for a link that some connection has had. */
static void do_resume(void) {
    const struct peer *of = NULL;
    for (int tries = 0; tries < 8 && !(of && of->has_ticket); tries++) of = &peers[below(PEERS)];
    if (!of->has_ticket) return;
    struct peer known = *of, *p = NULL;
    for (unsigned i = 0; i < PEERS && !p; i++)
        if (peers[i].stage == PEER_UP && !peers[i].shaken && peers[i].dialed && peers[i].sent == 0)
            p = &peers[i];
    if (!p) {
        p = peer_free();
        peer_dial(false);
    }
    if (p && p->stage == PEER_UP && !p->shaken) message_resume(p, &known);
}

static void do_message(void) {
    struct peer *p = peer_any();
    if (p) message_send(p);
}
/* Half of a message that the victim may place where it is wanted. */
static void do_half(void) {
    struct peer *p = peer_any();
    if (!p) return;
    if (percent(60)) peer_push(p, SIZE_MAX);
    message_payload(p, percent(50) ? 40 + below(300) : 40 + below(60000));
    if (percent(70)) run_worker(VICTIM, 0);
}
static void do_push(void) {
    struct peer *p = peer_any();
    if (p) peer_push(p, percent(40) ? SIZE_MAX : 1 + below(40000));
}
static void do_answer(void) {
    struct peer *p = peer_any();
    if (!p) return;
    peer_read(p);
    if (p->stage == PEER_UP) message_answer(p);
}
static void do_read(void) {
    peers_accept();
    for (unsigned i = 0; i < PEERS; i++) peer_read(&peers[i]);
}
static void do_hang_up(void) {
    struct peer *p = peer_any();
    if (!p) return;
    uint8_t goodbye[TCP_FRAME_HEAD];
    tcp_frame_encode(goodbye, TCP_FRAME_GOODBYE, 0, 0);
    if (percent(20)) peer_send_bytes(p, goodbye, sizeof goodbye), peer_push(p, SIZE_MAX);
    trace("peer %u hangs up", p->number);
    peer_drop(p, percent(30));
}
static void do_junk(void) {
    struct peer *p = peer_any();
    uint64_t junk[4] = {chance(), chance(), chance(), chance()};
    if (!p || percent(50)) return;
    if (percent(50))
        tcp_frame_encode(junk, (uint8_t)below(4), (uint8_t)below(40),
                         (uint32_t)(chance() >> below(40)));
    peer_send_bytes(p, junk, 1 + below(sizeof junk));
    peer_push(p, SIZE_MAX);
}
static void do_flood(void) {
    struct peer *p = peer_any();
    if (p) message_flood(p);
}

/* ---- time */

static void do_run(void) {
    unsigned budget = percent(50) ? 0 : 1 + below(3);
    for (unsigned i = 1 + below(3); i > 0; i--) {
        run_worker(VICTIM, budget);
        if (percent(60)) run_worker(PARTNER, percent(50) ? 0 : 1 + below(3));
    }
}
static void do_partner(void) {
    run_worker(PARTNER, percent(50) ? 0 : 1 + below(3));
}
static void do_pass(void) {
    static const uint64_t ms[] = {1, 5, 20, 60, 100, 199, 200, 201, 300, 2000, 10000};
    machine_pass(ms[below(percent(80) ? 9 : 11)] * 1000000);
}

/* Some allocations to come fail, one after the other: of the victim, of its partner, or of a raw
 * peer's lane. */
static void do_starve(void) {
    uint64_t first = 1 + below(percent(60) ? 12 : 200), n = 1 + below(percent(70) ? 3 : 40);
    world->starved = true;
    trace("%u allocations fail from number %u on", (unsigned)n, (unsigned)first);
    weft__alloc_fail_run(first, n);
}

/* ---- the list */

static const struct {
    const char *name;
    void (*run)(void);
    uint8_t weight[SCENARIOS]; /* OVER_TCP OVER_SHM SURVIVAL PLACEMENT LANES */
} actions[] = {
    {"receive", do_receive, {8, 8, 3, 16, 4}},
    {"take", do_take, {2, 2, 1, 1, 1}},
    {"send", do_send, {4, 4, 4, 1, 8}},
    {"stream receive", do_stream_receive, {2, 2, 1, 1, 1}},
    {"one-sided", do_one_sided, {3, 3, 2, 1, 2}},
    {"memory", do_memory, {3, 3, 1, 3, 1}},
    {"flush", do_flush, {1, 1, 1, 0, 1}},
    {"cancel", do_cancel, {4, 4, 2, 12, 2}},
    {"close", do_close, {2, 2, 2, 1, 1}},
    {"connect", do_connect, {2, 1, 4, 1, 4}},
    {"dial", do_dial, {7, 8, 10, 6, 6}},
    {"handshake", do_handshake, {1, 1, 2, 0, 1}},
    {"resume", do_resume, {1, 0, 14, 0, 1}},
    {"message", do_message, {24, 28, 12, 8, 20}},
    {"half", do_half, {8, 0, 4, 16, 3}},
    {"push", do_push, {6, 0, 3, 16, 3}},
    {"answer", do_answer, {12, 14, 10, 6, 16}},
    {"read", do_read, {4, 4, 4, 2, 4}},
    {"hang up", do_hang_up, {2, 2, 8, 2, 2}},
    {"junk", do_junk, {1, 0, 1, 0, 1}},
    {"flood", do_flood, {1, 1, 1, 0, 1}},
    {"honest send", honest_send, {4, 4, 3, 12, 6}},
    {"honest receive", honest_receive, {4, 4, 3, 12, 6}},
    {"honest ping", honest_ping, {2, 2, 2, 2, 3}},
    {"honest stream", honest_stream, {2, 2, 2, 2, 2}},
    {"run", do_run, {20, 20, 14, 24, 24}},
    {"partner", do_partner, {3, 3, 3, 8, 4}},
    {"time", do_pass, {3, 3, 10, 2, 6}},
    {"starve", do_starve, {12, 12, 10, 12, 12}}, /* where the world starves */
};
enum { KINDS = sizeof actions / sizeof *actions };

unsigned actions_count(void) {
    chance_of(world->seed, 3u << 20);
    return 40 + below(ACTIONS_MAX - 40);
}

/* Some kinds are left out of a run, so that others come closer together. */
static unsigned a_kind(const bool *out) {
    unsigned sum = 0, at;
    for (unsigned i = 0; i < KINDS; i++) sum += out[i] ? 0 : actions[i].weight[world->scenario];
    at = below(sum);
    for (unsigned i = 0;; i++) {
        unsigned weight = out[i] ? 0 : actions[i].weight[world->scenario];
        if (at < weight) return i;
        at -= weight;
    }
}

void actions_run(const bool *keep) {
    bool out[KINDS] = {0};
    unsigned n = actions_count();
    for (unsigned i = 0; i < KINDS; i++)
        out[i] = percent(20) && actions[i].run != do_dial && actions[i].run != do_run;
    out[KINDS - 1] = !world->starves;
    for (unsigned i = 0; i < n; i++) {
        if (!keep[i]) continue;
        chance_of(world->seed, i);
        unsigned kind = a_kind(out);
        trace("%u: %s", i, actions[kind].name);
        actions[kind].run();
        if (percent(35)) run_worker(VICTIM, 0);
    }
}

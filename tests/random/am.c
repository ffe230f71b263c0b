/* Active messages: once, in order, whole. */
#include <string.h>

#include "world.h"

enum { WHO = IDS + 1 };

/* A message says which it is; the rest of its header is bytes that show whether it is whole. */
struct head {
    uint32_t n, len;
};

struct message *message_new(struct end *from, enum asked_kind kind, uint32_t len,
                            struct asked *sender) {
    if (world->n_messages == MESSAGES) return NULL;
    struct message *m = &world->message[world->n_messages];
    *m = (struct message){.sender = sender, .from = from, .kind = kind, .len = len};
    sender->message = world->n_messages++;
    return m;
}
static uint32_t number_of(const struct message *m) {
    return (uint32_t)(m - world->message);
}
static uint64_t name_of(const struct message *m) {
    return 2 * (uint64_t)number_of(m);
}

bool message_is_due(const struct message *m) {
    return !m->unsure && m->sender->status >= 0 && ask_is_safe(m->sender) && m->from->other &&
           end_is_safe(m->from);
}

/* ---- sent ------------------------------------------------------------------------------------ */

/* The other side could never be identified. */
static void who_ended(struct asked *a) {
    if (a->status < 0) a->end->hurried = true;
}

void send_who(struct end *end) {
    struct asked *a = ask(ASKED_AM, end->node, end);
    uint32_t n = end->n;
    a->then = who_ended;
    ask_op(a, 0);
    a->op.deadline_ms = 0;
    a->op.request_p = NULL;
    ASK(a, weft_am_send(end->ep, WHO, &n, sizeof n, NULL, 0, a->op_p));
}

static uint32_t flags_of(size_t len) {
    uint32_t which = below(20);
    if (which == 0) return WEFT_AM_RENDEZVOUS;
    if (which < 3 && len < 2000) return WEFT_AM_EAGER;
    if (which == 3 && len < 2000) return WEFT_AM_NO_REPLY;
    return 0;
}

void am_send(void) {
    struct end *end = any_end();
    if (!end || world->n_messages == MESSAGES) return;
    struct asked *a = ask(ASKED_AM, end->node, end);
    size_t len = a_size();
    struct message *m = message_new(end, ASKED_AM, (uint32_t)len, a);
    uint32_t flags = flags_of(len);
    uint8_t header[WEFT_AM_HEADER_MAX];
    struct head head = {number_of(m), (uint32_t)len};
    struct shape_wants wants = {
        .room = room_of(end->node), .layouts = true, .refuses = may(MAY_REFUSE)};
    shape_draw(&a->shape, len, wants);
    shape_fill(&a->shape, bytes_of(name_of(m), 0));
    m->no_reply = flags == WEFT_AM_NO_REPLY;
    m->header_len =
        (uint32_t)sizeof head + (percent(60) ? 0 : below(sizeof header - sizeof head + 1));
    memcpy(header, bytes_of(name_of(m) + 1, 0), sizeof header);
    memcpy(header, &head, sizeof head);
    ask_op(a, flags);
    ASK(a, weft_am_send(end->ep, below(IDS), header, m->header_len, a->shape.iov, a->shape.n_iov,
                        a->op_p));
}

/* ---- received -------------------------------------------------------------------------------- */

static void am_received(struct asked *a) {
    struct message *m = &world->message[a->message];
    if (a->status != WEFT_OK) {
        m->unsure = true;
        if (a->status == WEFT_ERR_TRUNCATED && a->shape.len >= m->len)
            wrong("message %u had room", a->message);
        return;
    }
    if (!shape_holds(&a->shape, bytes_of(name_of(m), 0), m->len))
        wrong("message %u has other bytes", a->message);
    m->delivered = true;
    world->n_checked += m->len;
}

static void receive(struct node *node, struct end *end, weft_am_t *am, struct message *m) {
    size_t len = am->len + (percent(80) ? 0 : below(100));
    if (percent(4)) len = below(am->len + 1);
    struct asked *a = ask(ASKED_AM_RECV, node, end);
    a->message = number_of(m);
    a->then = am_received;
    struct shape_wants wants = {.room = room_of(node),
                                .layouts = len == am->len,
                                .one = len != am->len,
                                .refuses = may(MAY_REFUSE)};
    shape_draw(&a->shape, len, wants);
    shape_clear(&a->shape);
    ask_op(a, 0);
    ASK(a, weft_am_recv(am, a->shape.iov, a->shape.n_iov, a->op_p));
    m->declined = !am->data && !a->accepted && a->status < 0;
}

static void keep(struct node *node, weft_am_t *am, struct message *m) {
    for (int i = 0; i < 4; i++) {
        if (node->kept[i]) continue;
        weft_status_t st = weft_am_retain(am, &node->kept[i]);
        if (st < 0) wrong("a message is not kept: %s", weft_status_name(st));
        node->kept_name[i] = name_of(m);
        node->kept_len[i] = am->len;
        return;
    }
}

void am_give_back(struct node *node, bool all) {
    for (int i = 0; i < 4; i++) {
        if (!node->kept[i] || (!all && percent(50))) continue;
        if (memcmp(node->kept[i], bytes_of(node->kept_name[i], 0), node->kept_len[i]) != 0)
            wrong("message %u changed while it was kept", (unsigned)(node->kept_name[i] / 2));
        weft_am_release(node->worker, node->kept[i]);
        node->kept[i] = NULL;
    }
}

static void poll_at(struct node *node, weft_am_t *am, struct message *m) {
    if (am->len && memcmp(am->data, bytes_of(name_of(m), 0), am->len) != 0)
        wrong("message %u has other bytes", number_of(m));
    world->n_checked += am->len;
    m->delivered = true;
    if (am->len && percent(8)) keep(node, am, m);
}

static struct message *arrived(weft_ep_t *ep, const weft_am_t *am, struct end *end) {
    struct head head = {0};
    if (am->header_len >= sizeof head) memcpy(&head, am->header, sizeof head);
    if (am->header_len < sizeof head || head.n >= world->n_messages)
        wrong("a message is none of ours");
    struct message *m = &world->message[head.n];
    if (m->kind != ASKED_AM || m->arrived) wrong("message %u came twice, or is none", head.n);
    if (m->len != am->len || head.len != am->len || m->header_len != am->header_len)
        wrong("message %u has %zu bytes and %zu of header, not %u and %u", head.n, am->len,
              am->header_len, m->len, m->header_len);
    if (memcmp((const char *)am->header + sizeof head, bytes_of(name_of(m) + 1, 0) + sizeof head,
               am->header_len - sizeof head) != 0)
        wrong("message %u has another header", head.n);
    if (m->no_reply != !ep)
        wrong("message %u: %s", head.n, ep ? "an endpoint for what wants none" : "no endpoint");
    if (end && end->other && end->other != m->from)
        wrong("message %u came to another endpoint", head.n);
    if (head.n < m->from->last_am) wrong("message %u came after %u", head.n, m->from->last_am - 1);
    m->from->last_am = head.n + 1;
    m->arrived = true;
    return m;
}

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct node *node = arg;
    uint32_t n = 0;
    memcpy(&n, am->header, am->header_len < sizeof n ? 0 : sizeof n);
    CALLED((uint64_t)n << 8 | 3);
    struct end *end = ep ? end_of(ep) : NULL;
    struct message *m = arrived(ep, am, end);
    if (end && !end->other) end_met(end, m->from);
    trace("message %u arrives at node %u, %zu bytes%s", n, node->n, am->len,
          am->data || !am->len ? "" : ", offered");
    if (percent(15)) act_within();
    if ((am->data || !am->len) && percent(80))
        poll_at(node, am, m);
    else if (percent(95))
        receive(node, end, am, m);
    else
        m->unsure = m->declined = true;
    if (percent(20)) act_within();
    RETURNS;
}

static void on_who(weft_ep_t *ep, weft_am_t *am, void *arg) {
    uint32_t n;
    memcpy(&n, am->header, sizeof n);
    CALLED((uint64_t)n << 8 | 4);
    struct end *end = end_of(ep);
    if (end && !end->other) end_met(end, &world->end[n]);
    RETURNS;
}

void am_begin(struct node *node) {
    for (unsigned i = 0; i < IDS; i++)
        if (weft_am_handler_set(node->worker, i, on_am, node) < 0) wrong("no handler");
    if (weft_am_handler_set(node->worker, WHO, on_who, node) < 0) wrong("no handler");
}

/* ---- the end --------------------------------------------------------------------------------- */

void messages_end(void) {
    for (uint32_t i = 0; i < world->n_messages; i++) {
        const struct message *m = &world->message[i];
        if (m->kind == ASKED_AM && message_is_due(m) && !m->delivered)
            wrong("message %u never arrived", i);
    }
}

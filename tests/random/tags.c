/* Tagged messages: each receive takes the first that it may, whole or as much as it has room
 * for. */
#include "world.h"

enum { CLASSES = 4 };

/* The number above, and a class that receives ask for. */
static uint64_t tag_of(const struct message *m) {
    return (uint64_t)(m - world->message) << 8 | m->class;
}
static uint64_t name_of(uint32_t n) {
    return 2 * (uint64_t)n;
}

static void send_on(struct end *end, size_t len, uint32_t class, uint32_t flags) {
    struct asked *a = ask(ASKED_TAG, end->node, end);
    struct message *m = message_new(end, ASKED_TAG, (uint32_t)len, a);
    m->class = class;
    struct shape_wants wants = {
        .room = room_of(end->node), .layouts = true, .refuses = may(MAY_REFUSE)};
    shape_draw(&a->shape, len, wants);
    shape_fill(&a->shape, bytes_of(name_of(a->message), 0));
    ask_op(a, flags);
    ASK(a, weft_tag_send(end->ep, tag_of(m), a->shape.iov, a->shape.n_iov, a->op_p));
}

void tag_send(void) {
    struct end *end = any_end();
    if (!end || world->n_messages == MESSAGES) return;
    size_t len = a_size();
    uint32_t class = below(CLASSES);
    send_on(end, len, class, percent(5) ? WEFT_AM_RENDEZVOUS : 0);
}

/* ---- receives -------------------------------------------------------------------------------- */

static struct message *notified_of(struct node *node, const weft_tag_info_t *info) {
    uint64_t n = info->tag >> 8;
    if (n >= world->n_messages) wrong("tag %llx is none of ours", (unsigned long long)info->tag);
    struct message *m = &world->message[n];
    const struct end *to = m->from->other;
    if (m->kind != ASKED_TAG || tag_of(m) != info->tag || (m->from->to && m->from->to != node))
        wrong("tag %llx came to node %u", (unsigned long long)info->tag, node->n);
    if (info->len != m->len)
        wrong("message %u has %zu bytes, not %u", (unsigned)n, info->len, m->len);
    if (info->ep && to && to->ep && info->ep != to->ep)
        wrong("message %u came by another endpoint", (unsigned)n);
    return m;
}

/* Behind it may be bytes of a longer message, whose socket died while it came. */
static bool holds_message(const struct asked *a, const struct message *m, size_t len) {
    const uint8_t *bytes = bytes_of(name_of((uint32_t)(m - world->message)), 0);
    return world->killed ? shape_holds_at_least(&a->shape, bytes, len)
                         : shape_holds(&a->shape, bytes, len);
}

static void received(struct asked *a) {
    if (a->status != WEFT_OK && a->status != WEFT_ERR_TRUNCATED) {
        if (a->message < MESSAGES) world->message[a->message].unsure = true;
        return;
    }
    if (a->dropped) return;
    struct message *m =
        a->message < MESSAGES ? &world->message[a->message] : notified_of(a->node, &a->info);
    uint32_t n = (uint32_t)(m - world->message);
    if ((a->info.tag ^ a->tag) & a->mask) wrong("message %u is none that its receive asked for", n);
    if (m->delivered) wrong("message %u came twice", n);
    if ((a->status == WEFT_ERR_TRUNCATED) != (m->len > a->shape.len))
        wrong("message %u of %u bytes into %zu: %s", n, m->len, a->shape.len,
              weft_status_name(a->status));
    size_t len = m->len < a->shape.len ? m->len : a->shape.len;
    if (!holds_message(a, m, len)) wrong("message %u has other bytes", n);
    m->delivered = m->arrived = true;
    m->taken_by = a->serial;
    m->mask = a->mask;
    world->n_checked += len;
}

/* A message that is on its way to the node, or any number. */
static uint64_t some_tag(const struct node *node) {
    for (uint32_t i = world->n_messages, tries = 30; i-- > 0 && tries > 0; tries--) {
        const struct message *m = &world->message[i];
        if (m->kind == ASKED_TAG && m->from->to == node && !m->delivered && percent(20))
            return tag_of(m);
    }
    return below(CLASSES);
}

static uint64_t some_mask(void) {
    uint32_t which = below(10);
    return which < 5 ? 0xff : which < 7 ? 0 : which < 8 ? 1 : UINT64_MAX;
}

static struct asked *receive(struct node *node, size_t len) {
    struct asked *a = ask(ASKED_TAG_RECV, node, NULL);
    a->then = received;
    struct shape_wants wants = {.room = room_of(node), .layouts = true, .refuses = may(MAY_REFUSE)};
    shape_draw(&a->shape, len, wants);
    shape_clear(&a->shape);
    return a;
}

static struct asked *post(struct node *node, uint64_t tag, uint64_t mask, size_t len) {
    struct asked *a = receive(node, len);
    a->tag = tag;
    a->mask = mask;
    a->serial = ++world->serial;
    ask_op(a, 0);
    ASK(a, weft_tag_recv(node->worker, tag, mask, a->shape.iov, a->shape.n_iov, &a->info, a->op_p));
    return a;
}

void tag_recv(void) {
    struct node *node = any_node();
    if (!node) return;
    uint64_t tag = some_tag(node);
    size_t exactly =
        tag > CLASSES && tag >> 8 < world->n_messages ? world->message[tag >> 8].len : a_size();
    post(node, tag, some_mask(), percent(50) ? exactly : a_size());
}

/* ---- two large ones, one right behind the other ---------------------------------------------- */

static bool is_driven_here(const struct node *node) {
    return owns(node) && node->drive == DRIVE_MAIN && !node->closing;
}

static void drive_shortly(struct node *node) {
    unsigned budget = 1 + below(3);
    if (!node->worker) return;
    unlock();
    weft_worker_progress(node->worker, budget);
    lock();
}

static bool is_under_way(const struct asked *a) {
    return a->request && a->accepted && !a->notified && !a->group && !a->node->gone &&
           shape_begun(&a->shape);
}

/* Much of the second may have come by then, and is read before the worker does anything else. */
static void cancel_among_others(struct asked *a, struct node *from) {
    for (unsigned i = below(6); i > 0; i--) drive_shortly(from);
    if (!is_under_way(a)) return;
    trace("the first of two is cancelled: %u", a->n);
    a->cancelled = true;
    weft_request_cancel(a->request);
    drive_shortly(a->node);
}

/* The receive of the first is cancelled while it is being written: the second is whole all the
 * same. */
static void chase(struct end *end, struct node *from, struct node *to) {
    uint32_t flags = percent(50) ? WEFT_AM_RENDEZVOUS : 0;
    size_t len[2] = {40000 + below(100000), 40000 + below(100000)};
    uint64_t tag = (uint64_t)world->n_messages << 8;
    struct asked *first = post(to, tag, UINT64_MAX, len[0] - (percent(20) ? below(20000) : 0));
    post(to, tag + (1 << 8), UINT64_MAX, len[1]);
    for (unsigned i = 0; i < 2; i++) send_on(end, len[i], 0, flags);
    for (unsigned i = 0; i < 40; i++) {
        drive_shortly(percent(60) ? to : from);
        if (!first->cancelled && percent(50) && is_under_way(first))
            cancel_among_others(first, from);
    }
}

void tag_chase(void) {
    struct end *end = any_end();
    if (!may(MAY_CANCEL) || depth || !end || !end->other || !end_lives(end->other)) return;
    struct node *from = end->node, *to = end->other->node;
    for (unsigned n = 1 + below(4); n > 0; n--)
        if (end_lives(end) && is_driven_here(from) && is_driven_here(to) &&
            world->n_messages + 2 <= MESSAGES)
            chase(end, from, to);
}

/* ---- taken out of matching ------------------------------------------------------------------- */

static void message_recv(struct node *node, bool whole) {
    const struct message *m = &world->message[node->message_n];
    weft_tag_message_t *message = node->message;
    size_t len = whole || percent(70) ? m->len : below(m->len + 1);
    struct asked *a = receive(node, len);
    a->message = node->message_n;
    a->info = (weft_tag_info_t){.tag = tag_of(m)};
    a->serial = node->message_serial;
    a->tag = tag_of(m);
    a->mask = m->mask;
    a->dropped = !whole && percent(5);
    node->message = NULL;
    ask_op(a, 0);
    if (a->dropped) {
        a->op.layout = NULL;
        world->message[a->message].unsure = true;
    }
    size_t n = a->dropped ? 0 : a->shape.n_iov;
    if (!a->dropped && n == 0) n = 1; /* no pieces at all would drop it */
    bool may_stay = n && a->shape.kind == SHAPE_PACKED && a->shape.refuses_start;
    ASK(a, weft_tag_message_recv(node->worker, message, a->shape.iov, n, a->op_p));
    /* nothing was asked */
    if (may_stay && !a->accepted && a->status == SHAPE_REFUSES) node->message = message;
}

static bool take(struct node *node, uint64_t tag, uint64_t mask) {
    weft_tag_info_t info, probed;
    weft_status_t before = weft_tag_probe(node->worker, tag, mask, &probed);
    weft_status_t st = weft_tag_take(node->worker, tag, mask, &info, &node->message);
    if (st != WEFT_OK && st != WEFT_ERR_NOT_FOUND) wrong("take: %s", weft_status_name(st));
    if (st != before)
        wrong("probe returns %s, and take %s", weft_status_name(before), weft_status_name(st));
    if (st != WEFT_OK) return false;
    struct message *m = notified_of(node, &info);
    if (probed.tag != info.tag || m->arrived)
        wrong("message %llu is taken again", (unsigned long long)(info.tag >> 8));
    m->arrived = true;
    node->message_n = (uint32_t)(info.tag >> 8);
    node->message_serial = m->taken_by = ++world->serial;
    m->mask = mask;
    return true;
}

void tag_take(void) {
    struct node *node = any_node();
    if (!node || !owns(node)) return;
    if (node->message)
        message_recv(node, false);
    else
        take(node, some_tag(node), some_mask());
}

void tags_drain(struct node *node) {
    if (node->message) message_recv(node, true);
    while (take(node, 0, 0)) message_recv(node, true);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The taker of message `b` could have had `a`, which was sent before it: a receive had taken that
 * already. */
static void check_order(uint32_t a, uint32_t b) {
    const struct message *m = &world->message[a], *n = &world->message[b];
    if (m->from != n->from || !n->taken_by || !message_is_due(m)) return;
    if ((tag_of(m) ^ tag_of(n)) & n->mask) return;
    if (!m->taken_by || m->taken_by > n->taken_by)
        wrong("message %u was taken before %u of the same kind: by %llu, mask %llx, and %llu", b, a,
              (unsigned long long)n->taken_by, (unsigned long long)n->mask,
              (unsigned long long)m->taken_by);
}

/* A receive that ended early may have taken what it was about to be given. */
void tags_end(void) {
    static uint32_t tagged[MESSAGES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < world->n_messages; i++) {
        const struct message *m = &world->message[i];
        if (m->kind != ASKED_TAG) continue;
        if (!(world->may & ~MAY_THREAD) && message_is_due(m) && !m->delivered)
            wrong("message %u never arrived", i);
        tagged[n++] = i;
    }
    if (world->may) return;
    for (uint32_t b = 1; b < n; b++)
        for (uint32_t a = b; a-- > 0;) check_order(tagged[a], tagged[b]);
}

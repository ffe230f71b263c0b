/* Active and tagged messages, and remote flushes: in order, once, whole. */
#include <stdlib.h>
#include <string.h>

#include "world.h"

struct head {
    uint32_t serial, side, n, len;
};

/* Usually small; some beyond any eager limit. */
uint32_t size_of(const struct world *w, uint32_t item, uint32_t i, uint64_t class) {
    static const uint32_t limit[] = {41, 600, 10000, 70000};
    uint64_t seed = w->plan->seed;
    if (class == 3 && w->plan->exposes)
        return 20000 + (uint32_t)draw_below(seed, DRAW_SIZE, item, ~(uint64_t)i, 280000);
    if (class == 3 && draw_chance(seed, DRAW_SIZE, item, i, 3)) return 300000;
    return (uint32_t)draw_below(seed, DRAW_SIZE, item, ~(uint64_t)i, limit[class & 3]);
}

void message_add(struct messages *all, struct asked *asked, uint32_t len) {
    if (all->n == all->room) {
        all->room = all->room ? 2 * all->room : 64;
        struct message *more = arena_alloc(all->room * sizeof *more);
        if (all->n) memcpy(more, all->list, all->n * sizeof *more);
        all->list = more;
    }
    asked->n = all->n;
    all->list[all->n++] = (struct message){.asked = asked, .len = len};
}

/* ---- sending --------------------------------------------------------------------------------- */

/* No check could ever detect it. */
static void who_ended(struct asked *asked) {
    if (asked->status < 0 && half_lives(asked->half)) half_close(asked->half, WEFT_CLOSE_ABORT);
}

void send_who(struct half *half) {
    struct asked *asked = ask(half->connection->world, half, ASKED_AM, 0);
    asked->then = who_ended;
    asked->deadline_ms = 0;
    weft_op_t op = ask_op(asked);
    op.request_p = NULL; /* never cancelled */
    ask_answered(asked, weft_am_send(half->ep, AM_WHO, &half->connection->serial, sizeof(uint32_t),
                                     NULL, 0, &op));
}

static struct asked *message(struct half *half, enum asked_kind kind, struct messages *all,
                             uint32_t len) {
    struct asked *asked = ask(half->connection->world, half, kind, len);
    message_add(all, asked, len);
    if (len) memcpy(asked->buf, pattern_of(half, kind, asked->n), len);
    return asked;
}

void post_am(struct half *half, uint32_t item, uint32_t i, uint64_t class) {
    struct world *w = half->connection->world;
    uint32_t len = size_of(w, item, i, class);
    struct asked *asked = message(half, ASKED_AM, &half->am, len);
    struct head head = {half->connection->serial, (uint32_t)(half - half->connection->half),
                        asked->n, len};
    weft_iov_t iov[2] = {{asked->buf, len / 3}, {asked->buf + len / 3, len - len / 3}};
    weft_op_t op = ask_op(asked);
    op.flags = draw_chance(w->plan->seed, DRAW_PROGRAM, item, i, 5) ? WEFT_AM_RENDEZVOUS : 0;
    bool whole = len < 3 || asked->exposed; /* only one piece is read in place */
    if (whole) iov[0] = (weft_iov_t){asked->buf, len};
    ask_answered(
        asked, weft_am_send(half->ep, AM_DATA, &head, sizeof head, iov, whole ? len > 0 : 2, &op));
}

static uint64_t tag_of(const struct half *from, uint32_t n) {
    return (uint64_t)from->connection->serial << 32 |
           (uint64_t)(from - from->connection->half) << 31 | n;
}

void post_tag(struct half *half, uint32_t item, uint32_t i, uint64_t class) {
    uint32_t len = size_of(half->connection->world, item, i, class);
    struct asked *asked = message(half, ASKED_TAG, &half->tag, len);
    weft_op_t op = ask_op(asked);
    ask_answered(asked, weft_tag_send(half->ep, tag_of(half, asked->n),
                                      &(weft_iov_t){asked->buf, len}, len > 0, &op));
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void deliver_messages(struct world *w, struct half *from, enum asked_kind kind, uint32_t n,
                             const void *data, uint32_t len, uint32_t whole) {
    struct messages *all = kind == ASKED_AM ? &from->am : &from->tag;
    struct message *m = &all->list[n];
    if (m->delivered) world_fail(w, "message %u of %u came twice", n, from->connection->serial);
    if (whole != m->len) world_fail(w, "message %u has %u bytes, not %u", n, whole, m->len);
    if (len && memcmp(data, pattern_of(from, kind, n), len) != 0)
        world_fail(w, "message %u of %u.%d has other bytes than were sent", n,
                   from->connection->serial, (int)(from - from->connection->half));
    m->delivered = true;
    world_note(w, (uint64_t)n << 32 | len);
}

static void am_taken(struct asked *asked) {
    if (asked->status != WEFT_OK) {
        asked->half->other->am.list[asked->n].delivered |=
            may_end_early(asked) || asked->world->starved;
        return;
    }
    deliver_messages(asked->world, asked->half->other, ASKED_AM, asked->n, asked->buf, asked->len,
                     asked->len);
}

static void take_am(struct half *half, weft_am_t *am, uint32_t n) {
    struct world *w = half->connection->world;
    struct asked *asked = ask(w, half, ASKED_AM_TAKEN, (uint32_t)am->len);
    asked->n = n;
    asked->then = am_taken;
    asked->from_peer = true;
    weft_op_t op = ask_op(asked);
    ask_answered(asked, weft_am_recv(am, &(weft_iov_t){asked->buf, asked->len}, 1, &op));
}

static void look_at_am(struct half *half, weft_am_t *am, uint32_t n) {
    struct world *w = half->connection->world;
    const void *kept = NULL;
    deliver_messages(w, half->other, ASKED_AM, n, am->data, (uint32_t)am->len, (uint32_t)am->len);
    if (!am->len || !draw_chance(w->plan->seed, DRAW_PROGRAM, half->connection->serial, n, 5))
        return;
    if (weft_am_retain(am, &kept) != WEFT_OK) return;
    if (memcmp(kept, pattern_of(half->other, ASKED_AM, n), am->len) != 0)
        world_fail(w, "message %u is kept with other bytes", n);
    weft_am_release(half->node->worker, kept);
}

void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct node *node = arg;
    struct world *w = node->world;
    struct half *half = weft_ep_user(ep);
    struct head head;
    if (!half || am->header_len != sizeof head) {
        if (!w->starved) world_fail(w, "a message came before its connection named its peer");
        return;
    }
    memcpy(&head, am->header, sizeof head);
    struct messages *all = &half->other->am;
    world_trace(w, "am %u of %u.%u arrives, %zu bytes", head.n, head.serial, head.side, am->len);
    if (head.serial != half->connection->serial ||
        head.side != (uint32_t)(half->other - half->connection->half) || head.n >= all->n ||
        am->len != head.len) {
        world_fail(w, "a message of %u.%u came to %u", head.serial, head.side,
                   half->connection->serial);
        return;
    }
    if (head.n < all->last)
        world_fail(w, "message %u of %u.%u came after %u", head.n, head.serial, head.side,
                   all->last - 1);
    all->last = head.n + 1;
    all->list[head.n].announced = true;
    if (am->data || !am->len)
        look_at_am(half, am, head.n);
    else
        take_am(half, am, head.n);
}

/*
 * Memory of blocks, with gaps between them and room behind the last, where nothing may be written.
 */
enum { A_BLOCK = 8192, A_GAP = 64, BLOCKS_BEHIND = 4, BETWEEN = 0x77 };

static weft_layout_t lay_out(struct asked *asked, uint32_t block, uint32_t count) {
    asked->block = block;
    asked->stride = block + A_GAP;
    asked->len = block * count;
    memset(asked->buf, BETWEEN, (size_t)asked->stride * (count + BLOCKS_BEHIND));
    return (weft_layout_t){
        .kind = WEFT_LAYOUT_STRIDED, .block = block, .stride = asked->stride, .count = count};
}

static void join_blocks(struct asked *asked) {
    uint32_t block = asked->block, stride = asked->stride, count = asked->len / block;
    for (uint32_t i = 0; i < count + BLOCKS_BEHIND; i++)
        for (uint32_t k = i < count ? block : 0; k < stride; k++)
            if (asked->buf[(size_t)i * stride + k] != BETWEEN) {
                world_fail(asked->world, "a receive wrote beside its blocks");
                return;
            }
    for (uint32_t i = 1; i < count; i++)
        memmove(asked->buf + i * block, asked->buf + (size_t)i * stride, block);
}

static void taken(struct asked *asked) {
    struct half *half = asked->half, *from = half->other;
    struct world *w = asked->world;
    uint32_t n = (uint32_t)(asked->tag.tag & 0x7fffffff);
    if (asked->status != WEFT_OK && asked->status != WEFT_ERR_TRUNCATED) {
        half->n_takes_lost++;
        return;
    }
    if (asked->tag.tag >> 31 != tag_of(from, 0) >> 31 || n >= from->tag.n) {
        world_fail(w, "a receive took tag %llx", (unsigned long long)asked->tag.tag);
        return;
    }
    asked->mark = n + 1;
    if (asked->block) join_blocks(asked);
    uint32_t whole = (uint32_t)asked->tag.len;
    if ((asked->status == WEFT_ERR_TRUNCATED) != (whole > asked->len))
        world_fail(w, "%u bytes into %u: %s", whole, asked->len, weft_status_name(asked->status));
    from->tag.list[n].announced = true;
    deliver_messages(w, from, ASKED_TAG, n, asked->buf, whole < asked->len ? whole : asked->len,
                     whole);
}

/* Of the other side's tagged messages, the next. */
void post_take(struct half *half) {
    struct world *w = half->connection->world;
    uint32_t n = half->n_takes++, most = 0;
    for (uint32_t i = n; i < half->other->tag.n && i < n + 1; i++)
        most = half->other->tag.list[i].len;
    if (n >= half->other->tag.n || w->plan_cancels) most = 300000;
    if (draw_chance(w->plan->seed, DRAW_PROGRAM, ~(uint64_t)half->connection->serial, n, 5))
        most = most / 2 + 1;
    uint32_t serial = half->connection->serial, count = 5 + n % 3;
    bool blocks = most >= 5 * A_BLOCK &&
                  draw_chance(w->plan->seed, DRAW_PROGRAM, ~(uint64_t)serial, ~(uint64_t)n, 30);
    if (blocks) most = (A_BLOCK + A_GAP) * (count + BLOCKS_BEHIND);
    struct asked *asked = ask(w, half, ASKED_TAKE, most ? most : 1);
    asked->n = n;
    asked->then = taken;
    asked->from_peer = true;
    weft_op_t op = ask_op(asked);
    weft_layout_t layout;
    if (blocks) layout = lay_out(asked, A_BLOCK, count), op.layout = &layout;
    ask_answered(asked,
                 weft_tag_recv(half->node->worker, tag_of(half->other, 0), ~(uint64_t)0x7fffffff,
                               &(weft_iov_t){asked->buf, asked->len}, 1, &asked->tag, &op));
}

/* ---- flushes --------------------------------------------------------------------------------- */

static void flushed(struct asked *asked) {
    struct half *half = asked->half;
    if (asked->status != WEFT_OK) return;
    for (uint32_t n = half->n_flushed; n < asked->mark; n++) {
        const struct message *m = &half->am.list[n];
        if (m->asked->pending_link)
            world_fail(asked->world, "a flush is done, and message %u before it is not", n);
        else if (m->asked->status == WEFT_OK && !m->announced)
            world_fail(asked->world,
                       "a remote flush is done, and message %u before it did not arrive", n);
    }
    if (asked->mark > half->n_flushed) half->n_flushed = (uint32_t)asked->mark;
    if (asked->old) half->flushed_last = true;
}

void post_flush(struct half *half, bool last) {
    struct asked *asked = ask(half->connection->world, half, ASKED_FLUSH, 0);
    asked->mark = half->am.n;
    asked->old = last;
    asked->then = flushed;
    weft_op_t op = ask_op(asked);
    op.flags = WEFT_FLUSH_REMOTE;
    if (last) op.request_p = NULL;
    ask_answered(asked, weft_ep_flush(half->ep, &op));
}

/* What must hold when all is quiet, and when all is over. */
#include "world.h"

static const char *side_name(const struct half *half) {
    return half == half->connection->half ? "its dialer" : "its other side";
}

/* ---- quiet ----------------------------------------------------------------------------------- */

static uint32_t n_missing(const struct messages *all) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < all->n; i++)
        n += all->list[i].asked->status == WEFT_OK && !all->list[i].delivered;
    return n;
}

/* A receive that ended early may have taken a message with it. */
static bool half_is_quiet(const struct half *half) {
    return half->flushed_last && n_missing(&half->am) == 0 &&
           n_missing(&half->tag) <= half->other->n_takes_lost &&
           (half->stream_unsure || half->other->stream_got == half->stream_sent);
}

bool connection_is_quiet(const struct connection *c) {
    return half_is_quiet(&c->half[0]) && half_is_quiet(&c->half[1]);
}

void check_message_missing(struct world *w, const struct half *half) {
    if (half_is_quiet(half)) return;
    const struct messages *kinds[] = {&half->am, &half->tag};
    for (int k = 0; k < 2; k++)
        for (uint32_t n = 0; n < kinds[k]->n; n++)
            if (kinds[k]->list[n].asked->status == WEFT_OK && !kinds[k]->list[n].delivered)
                world_fail(w, "%s %u of %u from %s never arrived", k ? "tagged message" : "message",
                           n, half->connection->serial, side_name(half));
    if (!half->stream_unsure && half->other->stream_got != half->stream_sent)
        world_fail(w, "of %llu bytes streamed on %u from %s %llu arrived",
                   (unsigned long long)half->stream_sent, half->connection->serial, side_name(half),
                   (unsigned long long)half->other->stream_got);
    if (!half->flushed_last)
        world_fail(w, "the flush of %u by %s never ended", half->connection->serial,
                   side_name(half));
}

/* ---- over ------------------------------------------------------------------------------------ */

/* Whatever happened to a connection: of what arrived nothing stands behind a gap. */
static void check_gaps(struct world *w, const struct half *half) {
    for (uint32_t n = 0; n < half->am.last; n++)
        if (!half->am.list[n].announced && half->am.list[n].asked->status == WEFT_OK) {
            world_fail(w, "message %u of %u from %s is missing before others", n,
                       half->connection->serial, side_name(half));
            return;
        }
}

/* Receives match in the order posted. */
static void check_takes(struct world *w, const struct half *half) {
    uint64_t behind = UINT64_MAX;
    for (const struct asked *asked = half->asked; asked; asked = asked->next_of_half) {
        if (asked->kind != ASKED_TAKE || !asked->mark) continue;
        if (asked->mark >= behind)
            world_fail(w, "a receive took message %llu before an earlier one",
                       (unsigned long long)asked->mark - 1);
        behind = asked->mark;
    }
}

/*
 * A close in good order takes along all that was accepted, if the other side waits for it and there
 * is time.
 */
enum { A_CLOSE_NS = 900000000 };
static void check_close(struct world *w, const struct half *half) {
    if (w->harmed || !half->closed_first || half->other->error != WEFT_ERR_PEER_CLOSED) return;
    for (uint32_t n = 0; n < half->am.n; n++) {
        const struct message *m = &half->am.list[n];
        if (m->announced || may_end_early(m->asked)) continue;
        if (m->asked->status == WEFT_ERR_CLOSED && half->close_ns >= A_CLOSE_NS) continue;
        world_fail(w, "message %u of %u from %s was lost by a close in good order", n,
                   half->connection->serial, side_name(half));
        return;
    }
}

void check_end(struct world *w) {
    for (uint32_t i = 0; i < w->n_connections; i++)
        for (int side = 0; side < 2; side++) {
            const struct half *half = &w->connection[i]->half[side];
            check_gaps(w, half);
            check_takes(w, half);
            check_close(w, half);
        }
    for (struct node *node = w->nodes; node; node = node->next) node_check(node);
}

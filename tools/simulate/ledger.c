/*
 * The ledger: each operation completes once, before the close of its endpoint completes, and never
 * fails without a cause.
 */
#include <string.h>

#include "world.h"

static const char *const kind_name[] = {"am",          "am taken", "tag",       "take", "stream",
                                        "stream take", "put",      "get",       "add",  "fetch",
                                        "flush",       "close",    "placed put"};

static uint32_t deadline_of(struct half *half, enum asked_kind kind) {
    const struct connection *c = half->connection;
    const struct plan *plan = c->world->plan;
    uint64_t actor = (uint64_t)c->serial << 1 | (uint64_t)(half - c->half), n = half->n_asked++;
    if (!plan->hurried || c->world->healing || kind == ASKED_CLOSE) return 0;
    if (!draw_chance(plan->seed, DRAW_DEADLINE, actor, n, plan->hurried)) return 0;
    return 1u << draw_below(plan->seed, DRAW_DEADLINE, actor, ~n, 7);
}

/* Most large messages come from exposed memory, and go to it. */
static uint8_t *take_memory(struct asked *asked) {
    const struct plan *plan = asked->world->plan;
    enum asked_kind kind = asked->kind;
    bool message =
        kind == ASKED_AM || kind == ASKED_AM_TAKEN || kind == ASKED_TAG || kind == ASKED_TAKE;
    if (!asked->len) return NULL;
    if (plan->exposes && message && asked->half &&
        draw_chance(plan->seed, DRAW_PROGRAM, ~asked->world->n_asked, 0, 80)) {
        uint8_t *buf = exposed_take(asked->half->node, asked->len);
        if (buf) asked->exposed = asked->half->node;
        if (buf) return buf;
    }
    return arena_take(asked->len);
}

static void give_memory(struct asked *asked, size_t sent) {
    if (asked->exposed)
        exposed_give(asked->exposed, asked->buf, asked->len, sent);
    else
        arena_give(asked->buf, asked->len, sent);
    asked->buf = NULL;
}

struct asked *ask(struct world *w, struct half *half, enum asked_kind kind, uint32_t len) {
    struct asked *asked = arena_alloc(sizeof *asked);
    asked->world = w;
    asked->half = half;
    asked->kind = kind;
    asked->len = len;
    asked->buf = take_memory(asked);
    asked->at = world_now(w);
    asked->status = WEFT_IN_PROGRESS;
    if (half) {
        asked->deadline_ms = deadline_of(half, kind);
        asked->next_of_half = half->asked;
        half->asked = asked;
    }
    w->n_asked++;
    return asked;
}

static void pending_add(struct asked *asked) {
    struct world *w = asked->world;
    asked->next_pending = w->pending;
    if (w->pending) w->pending->pending_link = &asked->next_pending;
    asked->pending_link = &w->pending;
    w->pending = asked;
    w->n_pending++;
    asked->waits = asked->kind != ASKED_TAKE && asked->kind != ASKED_STREAM_TAKE;
    w->n_waiting += asked->waits;
}

static void pending_drop(struct asked *asked) {
    *asked->pending_link = asked->next_pending;
    if (asked->next_pending) asked->next_pending->pending_link = asked->pending_link;
    asked->pending_link = NULL;
    asked->world->n_pending--;
    asked->world->n_waiting -= asked->waits;
}

/*
 * What ended early is answered all the same, and its answer has a place there that another would
 * have had.
 */
static bool may_find_no_place(const struct asked *asked) {
    bool one_sided =
        (asked->kind >= ASKED_PUT && asked->kind <= ASKED_FETCH) || asked->kind == ASKED_PLACE;
    return asked->world->plan_cancels && one_sided;
}

/* Its receiver gave up while it read the memory in place. */
static bool may_be_given_up(const struct asked *asked) {
    bool message = asked->kind == ASKED_AM || asked->kind == ASKED_TAG;
    return asked->world->plan->exposes && asked->world->plan_cancels && message;
}

static bool cause(const struct asked *asked, weft_status_t status) {
    const struct world *w = asked->world;
    if (status == WEFT_ERR_CANCELLED && asked->cancelled) return true;
    if (status == WEFT_ERR_CANCELLED && may_be_given_up(asked)) return true;
    if (status == WEFT_ERR_TIMED_OUT && asked->deadline_ms) return true;
    if (status == WEFT_ERR_NO_MEMORY && w->starved) return true;
    if (status == WEFT_ERR_QUOTA && may_find_no_place(asked)) return true;
    if (status == WEFT_ERR_TRUNCATED && asked->kind == ASKED_TAKE) return true;
    if (asked->from_peer && w->plan_cancels) return true;
    if (status == WEFT_ERR_REVOKED && asked->kind == ASKED_PLACE) return w->plan_cancels;
    return w->closing || !asked->half || half_may_fail(asked->half);
}

static void ended(struct asked *asked, weft_status_t status) {
    struct world *w = asked->world;
    const struct half *half = asked->half;
    asked->status = status;
    asked->request = NULL;
    asked->n_done++;
    world_note(w, (uint64_t)asked->kind << 40 | (uint64_t)(uint8_t)status << 32 | asked->n);
    world_trace(w, "%s %u of %u.%d ends: %s", kind_name[asked->kind], asked->n,
                half ? half->connection->serial : 0,
                half ? (int)(half - half->connection->half) : 0, weft_status_name(status));
    if (status < 0 && !cause(asked, status))
        world_fail(w, "%s %u of %u.%d ended as %s without a cause", kind_name[asked->kind],
                   asked->n, half->connection->serial, (int)(half - half->connection->half),
                   weft_status_name(status));
    if (asked->then) asked->then(asked);
    if (asked->keeps) return;
    bool exposes = asked->kind == ASKED_AM || asked->kind == ASKED_TAG ||
                   asked->kind == ASKED_STREAM || asked->kind == ASKED_PUT ||
                   asked->kind == ASKED_PLACE;
    if (asked->buf) give_memory(asked, exposes ? asked->len : 0);
}

static void done(weft_status_t status, void *arg) {
    struct asked *asked = arg;
    struct world *w = asked->world;
    const struct half *half = asked->half;
    if (asked->n_done) {
        world_fail(w, "%s %u was reported twice", kind_name[asked->kind], asked->n);
        return;
    }
    if (!asked->pending_link) {
        world_fail(w, "%s %u was reported within its call, or although it was refused",
                   kind_name[asked->kind], asked->n);
        return;
    }
    if (half && half->state == HALF_CLOSED && asked->kind != ASKED_TAKE)
        world_fail(w, "%s %u was reported after its endpoint's close", kind_name[asked->kind],
                   asked->n);
    if (status == WEFT_ERR_TIMED_OUT && world_now(w) < asked->at + asked->deadline_ms * NS_PER_MS)
        world_fail(w, "%s %u ended before its deadline", kind_name[asked->kind], asked->n);
    pending_drop(asked);
    ended(asked, status);
}

weft_op_t ask_op(struct asked *asked) {
    return (weft_op_t){.done = done,
                       .arg = asked,
                       .request_p = &asked->request,
                       .deadline_ms = asked->deadline_ms};
}

void ask_answered(struct asked *asked, weft_status_t status) {
    world_trace(asked->world, "%s %u of %u.%d, %u bytes: %s", kind_name[asked->kind], asked->n,
                asked->half ? asked->half->connection->serial : 0,
                asked->half ? (int)(asked->half - asked->half->connection->half) : 0, asked->len,
                weft_status_name(status));
    asked->posted = status >= 0;
    if (status == WEFT_IN_PROGRESS)
        pending_add(asked);
    else
        ended(asked, status);
}

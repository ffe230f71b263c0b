/* A run: chaos, then healing and quiet within a bound, then an end that leaves nothing. */
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LATER = 4096 };
/* More than twice the sum of connect.timeout, window.give_up and close.timeout. */
#define BOUND_NS UINT64_C(40000000000)

static struct world the_world; /* one at a time */
static struct later {
    uint64_t at, a, b;
    void (*fn)(struct world *w, uint64_t a, uint64_t b);
} later[LATER];
static uint32_t n_later;

void world_fail(struct world *w, const char *format, ...) {
    va_list args;
    if (w->failed[0]) return;
    va_start(args, format);
    vsnprintf(w->failed, sizeof w->failed, format, args);
    va_end(args);
    world_trace(w, "FAILED: %s", w->failed);
}

void world_trace(struct world *w, const char *format, ...) {
    va_list args;
    if (!w->trace) return;
    fprintf(w->trace, "%14.6f ms  ", w->clock ? (double)world_now(w) / 1e6 : 0);
    va_start(args, format);
    vfprintf(w->trace, format, args);
    va_end(args);
    fputc('\n', w->trace);
}

void world_note(struct world *w, uint64_t value) {
    w->hash = draw(w->hash, DRAW_WORLD, value, world_now(w));
}

/* ---- time ------------------------------------------------------------------------------------ */

void world_later(struct world *w, uint64_t ns, void (*fn)(struct world *w, uint64_t a, uint64_t b),
                 uint64_t a, uint64_t b) {
    if (n_later == LATER) abort();
    later[n_later++] = (struct later){world_now(w) + ns, a, b, fn};
}

static struct later *next_later(void) {
    struct later *next = NULL;
    for (uint32_t i = 0; i < n_later; i++)
        if (!next || later[i].at < next->at) next = &later[i];
    return next;
}

static void run_later(struct world *w, struct later *it) {
    struct later now = *it;
    memmove(it, it + 1, (size_t)(later + n_later - (it + 1)) * sizeof *it);
    n_later--;
    now.fn(w, now.a, now.b);
}

void world_later_all(struct world *w) {
    while (n_later) run_later(w, next_later());
}

struct watch_out {
    struct world *w;
    bool (*until)(struct world *w);
    uint64_t now, turns;
};

static bool stop_world(void *arg) {
    enum { STANDSTILL = 2000000 };
    struct watch_out *out = arg;
    uint64_t now = weft__clock_now(out->w->clock);
    if (now != out->now) {
        out->now = now;
        out->turns = 0;
    } else if (++out->turns > STANDSTILL) {
        world_fail(out->w, "time stands still");
    }
    return out->w->failed[0] || (out->until && out->until(out->w));
}

/* True when it holds before the time. */
static bool run_until(struct world *w, bool (*until)(struct world *w), uint64_t ns) {
    struct watch_out out = {.w = w, .until = until};
    /* False, too, when the last worker has left. */
    bool ran = weft__clock_run(w->clock, stop_world, &out, ns);
    return !w->failed[0] && (ran || (until && until(w)));
}

/* ---- chaos ----------------------------------------------------------------------------------- */

static void cancel_world(struct half *half, uint32_t n) {
    for (struct asked *asked = half->asked; asked && n; asked = asked->next_of_half) {
        if (!asked->request || asked->cancelled) continue;
        asked->cancelled = true;
        world_trace(half->connection->world, "operation %u of kind %d is cancelled", asked->n,
                    (int)asked->kind);
        weft_request_cancel(asked->request);
        n--;
    }
}

static void post_one(struct half *half, const struct plan_item *op, uint32_t i) {
    switch (op->kind) {
    case PLAN_AM: post_am(half, op->id, i, op->arg); break;
    case PLAN_TAG: post_tag(half, op->id, i, op->arg); break;
    case PLAN_TAKE: post_take(half); break;
    case PLAN_STREAM: post_stream(half, op->id, i, op->arg); break;
    case PLAN_GET: post_get(half, op->id, i); break;
    case PLAN_ADD: post_add(half); break;
    case PLAN_FETCH: post_fetch(half); break;
    case PLAN_PLACE: post_placement_put(half, op->id, i); break;
    default: break;
    }
}

static void operate(struct world *w, const struct plan_item *op) {
    struct half *half = half_of(w, op->a, op->b);
    if (!half) return;
    switch (op->kind) {
    case PLAN_PUT: post_put(half, op->n); return;
    case PLAN_FLUSH: post_flush(half, false); return;
    case PLAN_CANCEL: cancel_world(half, op->n); return;
    case PLAN_CLOSE: half_close(half, op->arg ? WEFT_CLOSE_ABORT : WEFT_CLOSE_FLUSH); return;
    default:
        for (uint32_t i = 0; i < op->n && half_lives(half); i++) post_one(half, op, i);
    }
}

static void apply(struct world *w, const struct plan_item *item) {
    world_trace(w, "%s a=%u b=%u n=%u arg=%" PRIu64 " (id %u)", plan_kind_name[item->kind], item->a,
                item->b, item->n, item->arg, item->id);
    if (item->kind == PLAN_DIAL)
        pair_dial(w, item->a);
    else if (plan_item_is_fault(item))
        fault_apply(w, item);
    else
        operate(w, item);
}

static void run_to(struct world *w, uint64_t at) {
    struct later *due;
    while (!w->failed[0] && (due = next_later()) != NULL && due->at <= at) {
        if (due->at > world_now(w)) run_until(w, NULL, due->at - world_now(w));
        if (!w->failed[0]) run_later(w, due);
    }
    if (!w->failed[0] && at > world_now(w)) run_until(w, NULL, at - world_now(w));
}

static void chaos(struct world *w) {
    uint32_t often = 1 + w->n_pairs / 64; /* it looks at every pair */
    for (uint32_t i = 0; i < w->plan->n_items && !w->failed[0]; i++) {
        run_to(w, w->plan->item[i].at);
        if (!w->failed[0]) apply(w, &w->plan->item[i]);
        if (i % often == 0) agree_watch(w);
    }
    if (!w->failed[0]) run_to(w, w->plan->chaos_ns);
}

/* ---- healing --------------------------------------------------------------------------------- */

static struct connection *of_pair(const struct world *w, uint32_t i) {
    return w->pair[i].n_dials ? w->pair[i].now : NULL;
}

static bool is_met(const struct connection *c) {
    return c->half[1].state != HALF_NONE || c->half[0].state > HALF_OPEN;
}

static bool all_met(struct world *w) {
    for (; w->n_met < w->n_pairs; w->n_met++) {
        const struct connection *c = of_pair(w, w->n_met);
        if (c && !is_met(c)) return false;
    }
    return true;
}

/*
 * A last word each way; all that was sent is asked for; and a remote flush on each endpoint that is
 * still connected.
 */
static void finish_world(struct half *half) {
    enum { LAST = UINT32_MAX };
    if (!half_lives(half) || half->finishing) return;
    half->finishing = true;
    post_am(half, LAST, half->connection->serial, 0);
    if (half_lives(half)) post_tag(half, LAST, half->connection->serial, 0);
    if (half_lives(half)) post_flush(half, true);
}

static void take_rest(struct half *half) {
    while (half_lives(half) && half->n_takes < half->other->tag.n + half->n_takes_lost)
        post_take(half);
    if (half_lives(half)) stream_take_rest(half);
}

static bool nothing_waits(struct world *w) {
    return w->n_waiting == 0;
}

/* Runs until every due callback has run. An endpoint without a peer fails by then. */
static bool settled(struct world *w) {
    bool all = true;
    for (uint32_t i = 0; i < w->n_connections; i++)
        for (int side = 0; side < 2; side++) take_rest(&w->connection[i]->half[side]);
    for (uint32_t i = 0; i < w->n_pairs && all; i++) {
        const struct connection *c = of_pair(w, i);
        if (c && half_lives(&c->half[0]) && half_lives(&c->half[1])) all = connection_is_quiet(c);
    }
    return all && w->n_waiting == 0;
}

static bool is_whole(const struct connection *c) {
    return half_lives(&c->half[0]) && half_lives(&c->half[1]);
}

static void send_what_waits(struct world *w) {
    for (const struct asked *asked = w->pending; asked; asked = asked->next_pending)
        if (asked->waits) {
            world_fail(w, "operation %u of kind %d on %u.%d, posted at %.3f ms, never ended",
                       asked->n, (int)asked->kind,
                       asked->half ? asked->half->connection->serial : 0,
                       asked->half ? (int)(asked->half - asked->half->connection->half) : 0,
                       (double)asked->at / 1e6);
            return;
        }
    for (uint32_t i = 0; i < w->n_pairs; i++) {
        const struct connection *c = of_pair(w, i);
        if (!c || !is_whole(c)) continue;
        check_message_missing(w, &c->half[0]);
        check_message_missing(w, &c->half[1]);
    }
    world_fail(w, "it does not come to rest");
}

static bool round_of_healing(struct world *w) {
    uint64_t until = world_now(w) + BOUND_NS;
    for (uint32_t i = 0; i < w->n_pairs; i++)
        if (w->pair[i].n_dials) pair_dial(w, i);
    w->n_met = 0;
    if (!run_until(w, all_met, BOUND_NS)) {
        world_fail(w, "pair %u does not meet", w->n_met);
        return false;
    }
    for (uint32_t i = 0; i < w->n_connections; i++)
        for (int side = 0; side < 2; side++) finish_world(&w->connection[i]->half[side]);
    for (uint64_t ns = 1000000; !w->failed[0] && !settled(w) && world_now(w) < until; ns += ns / 2)
        if (!w->n_waiting || !run_until(w, nothing_waits, ns)) run_until(w, NULL, 1000000);
    if (!w->failed[0] && !settled(w)) send_what_waits(w);
    if (w->failed[0]) return false;
    for (uint32_t i = 0; i < w->n_pairs; i++)
        if (of_pair(w, i) && !is_whole(of_pair(w, i))) return false;
    return true;
}

/*
 * No side sends any more: messages under way arrive, what is scarce is given back, and then nothing
 * moves.
 */
static void backoff_world(struct world *w) {
    const uint64_t while_ns = UINT64_C(3000000000);
    run_until(w, agree_all, BOUND_NS);
    agree_or_fail(w);
    if (w->plan->scarce || w->plan->two_ways) {
        run_until(w, NULL, BOUND_NS); /* lanes without a handshake are closed */
        uint64_t switches = agree_count(w, "link.switches");
        run_until(w, NULL, while_ns);
        if (agree_count(w, "link.switches") != switches) world_fail(w, "idle links go to and fro");
        agree_idle(w);
        agree_watch(w);
        agree_or_fail(w);
    }
}

static void heal(struct world *w) {
    enum { ROUNDS = 4 };
    faults_heal(w);
    for (int round = 0; round < ROUNDS && !w->failed[0]; round++)
        if (round_of_healing(w)) return backoff_world(w);
    world_fail(w, "there is a pair that does not heal");
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool all_gone(struct world *w) {
    for (; w->to_go; w->to_go = w->to_go->next)
        if (w->to_go->worker) return false;
    return true;
}

static void close_all(struct world *w) {
    if (draw_chance(w->plan->seed, DRAW_WORLD, 1, 0, 50)) {
        for (uint32_t i = 0; i < w->n_connections; i++)
            for (int side = 0; side < 2; side++)
                if (half_lives(&w->connection[i]->half[side]))
                    half_close(&w->connection[i]->half[side], WEFT_CLOSE_FLUSH);
        if (!run_until(w, nothing_waits, BOUND_NS)) send_what_waits(w);
    }
    w->closing = true;
    w->promoted = agree_count(w, "lanes.promoted");
    w->demoted = agree_count(w, "lanes.demoted");
    w->switches = agree_count(w, "link.switches");
    w->reads = agree_count(w, "protocol.get");
    w->written = agree_count(w, "shm.put_bytes");
    for (struct node *node = w->nodes; node; node = node->next) node_close(node);
    w->to_go = w->nodes;
    if (!w->failed[0] && !run_until(w, all_gone, BOUND_NS)) world_fail(w, "a worker does not end");
    if (!w->failed[0] && w->n_pending)
        world_fail(w, "%" PRIu64 " operations never ended", w->n_pending);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* What a library says of itself as an error is one. */
static void on_log(weft_log_level_t level, const char *room, const char *line, void *arg) {
    struct world *w = arg;
    world_trace(w, "%s: %s", room, line);
    if (level == WEFT_LOG_ERROR) world_fail(w, "%s: %s", room, line);
}

static weft_status_t open_networks(struct world *w) {
    const struct plan *plan = w->plan;
    struct sim_profile is =
        plan->network == PLAN_DATAGRAM ? weft__sim_datagram : weft__sim_reliable;
    is.depth = plan->depth;
    is.scarce = plan->scarce;
    is.exposes = plan->exposes;
    is.scarce_latency_ns = is.latency_ns / 4;
    w->fabric[0] = weft__sim_create(w->clock, plan->seed, &is);
    if (!w->fabric[0]) return WEFT_ERR_NO_MEMORY;
    weft__sim_use(w->fabric[0]);
    weft__sim_use_fast(NULL);
    strikes_watch(w);
    if (!plan->two_ways) return WEFT_OK;
    is = weft__sim_reliable;
    is.latency_ns /= 4;
    w->fabric[1] = weft__sim_create(w->clock, ~plan->seed, &is);
    weft__sim_use_fast(w->fabric[1]);
    if (!w->fabric[1]) return WEFT_ERR_NO_MEMORY;
    strikes_watch(w);
    return WEFT_OK;
}

static weft_status_t begin_world(struct world *w) {
    /* Lanes are switched only where a plan says so, which keeps older seeds as they were. */
    enum { FIXED = 4 };
    weft_setting_t settings[FIXED + PLAN_SETTINGS] = {{"calibration", "off"},
                                                      {"log.level", "warn"},
                                                      {"link.linger", "20ms"},
                                                      {"lanes.switch", "off"}};
    weft_context_params_t params = {
        .settings = settings, .file = "/dev/null", .log = on_log, .log_arg = w};
    for (uint32_t i = 0; i < w->plan->n_settings; i++)
        settings[FIXED + i] = (weft_setting_t){w->plan->setting[i][0], w->plan->setting[i][1]};
    params.n_settings = FIXED + w->plan->n_settings;
    weft_status_t st = weft_context_create(&params, &w->context);
    if (st < 0) return st;
    w->clock = weft__clock_create(NULL, w->plan->seed);
    w->begun = weft__clock_now(w->clock);
    return open_networks(w);
}

static void begin_pairs(struct world *w) {
    w->plan_cancels = w->plan->hurried > 0;
    for (uint32_t i = 0; i < w->plan->n_items; i++) {
        const struct plan_item *item = &w->plan->item[i];
        w->plan_cancels |= item->kind == PLAN_CANCEL || item->kind == PLAN_STRIKE;
        if (item->kind == PLAN_DIAL && item->a >= w->n_pairs) w->n_pairs = item->a + 1;
    }
    w->pair = arena_alloc((w->n_pairs + 1) * sizeof *w->pair);
    for (uint32_t i = 0; i < w->plan->n_items; i++) {
        const struct plan_item *item = &w->plan->item[i];
        if (item->kind != PLAN_DIAL) continue;
        w->pair[item->a].from = item->b;
        w->pair[item->a].to = item->n;
    }
    for (uint32_t i = 0; i < w->plan->n_workers && !w->failed[0]; i++) node_begin(w, i);
}

void connections_add(struct world *w, struct connection *c) {
    if (w->n_connections == w->connection_room) {
        w->connection_room = w->connection_room ? 2 * w->connection_room : 64;
        struct connection **more = arena_alloc(w->connection_room * sizeof(struct connection *));
        if (w->n_connections)
            memcpy(more, w->connection, w->n_connections * sizeof(struct connection *));
        w->connection = more;
    }
    w->connection[w->n_connections++] = c;
}

static void end_world(struct world *w, size_t blocks) {
    run_until(w, NULL, 1000000);
    talloc_free(w->clock);
    w->clock = NULL;
    if (weft_context_destroy(w->context) < 0)
        world_fail(w, "the context is still in use");
    else if (talloc_total_blocks(NULL) != blocks)
        world_fail(w, "%zu blocks of memory are left", talloc_total_blocks(NULL) - blocks);
}

void world_run(const struct plan *plan, struct verdict *verdict, FILE *trace) {
    struct world *w = &the_world;
    memset(w, 0, sizeof *w);
    *verdict = (struct verdict){0};
    n_later = 0;
    talloc_enable_null_tracking();
    size_t blocks = talloc_total_blocks(NULL);
    arena_begin();
    w->plan = plan;
    w->trace = trace;
    if (begin_world(w) < 0) world_fail(w, "the world does not begin");
    if (!w->failed[0]) begin_pairs(w);
    if (!w->failed[0]) chaos(w);
    if (!w->failed[0]) heal(w);
    if (!w->failed[0]) close_all(w);
    if (!w->failed[0]) check_end(w);
    for (int i = 0; i < 2; i++)
        if (w->fabric[i]) {
            w->hash ^= weft__sim_trace_hash(w->fabric[i]);
            verdict->events += weft__sim_stats(w->fabric[i])->sent;
        }
    verdict->virtual_ns = w->clock ? world_now(w) : 0;
    verdict->asked = w->n_asked;
    verdict->promoted = w->promoted;
    verdict->demoted = w->demoted;
    verdict->switches = w->switches;
    verdict->struck = w->n_struck;
    verdict->reads = w->reads;
    verdict->written = w->written;
    if (!w->failed[0]) end_world(w, blocks);
    weft__alloc_fail_at(0);
    talloc_disable_null_tracking();
    verdict->hash = w->hash;
    verdict->failed = w->failed[0] != 0;
    memcpy(verdict->what, w->failed, sizeof verdict->what);
}

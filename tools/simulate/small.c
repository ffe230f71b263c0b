/*
 * A small world from a seed: two to eight workers, up to 64 endpoints, traffic of all kinds, and a
 * subset of the faults.
 */
#include <stddef.h>

#include "draw.h"
#include "plan.h"

static uint64_t world(const struct plan *plan, uint64_t n, uint64_t limit) {
    return draw_below(plan->seed, DRAW_WORLD, 0, n, limit);
}

static uint64_t log_uniform(uint64_t seed, enum draw_site site, uint64_t actor, uint64_t n,
                            unsigned from, unsigned to) {
    unsigned bits = from + (unsigned)draw_below(seed, site, actor, n, to - from);
    return (UINT64_C(1) << bits) + draw_below(seed, site, actor, ~n, UINT64_C(1) << bits);
}

static void set_small(struct plan *plan, const char *name, const char *value) {
    plan->setting[plan->n_settings][0] = name;
    plan->setting[plan->n_settings++][1] = value;
}

static void draw_settings(struct plan *plan) {
    static const char *const threshold[] = {"auto", "auto", "1k", "8k"};
    static const char *const stream[] = {"1m", "64k", "4k"};
    static const char *const unexpected[] = {"16m", "64k", "4k"};
    set_small(plan, "rendezvous.threshold", threshold[world(plan, 10, 4)]);
    set_small(plan, "stream.window", stream[world(plan, 11, 3)]);
    set_small(plan, "tag.unexpected_bytes", unexpected[world(plan, 12, 3)]);
    set_small(plan, "window.bytes", world(plan, 13, 2) ? "4m" : "64k");
    set_small(plan, "rma.max_served",
              world(plan, 18, 2) ? "256" : "128"); /* as many as a peer may ask for at once */
    if (world(plan, 14, 4) == 0) set_small(plan, "link.rails", "2");
    if (plan->survive) set_small(plan, "failover.retain_bytes", world(plan, 15, 2) ? "4m" : "64k");
}

/*
 * Fast lanes, few of them, and all that has to do with them a hundred times as fast as it is by
 * default.
 */
static void draw_lanes(struct plan *plan) {
    static const char *const answer[] = {"200ms", "10ms", "2ms"};
    if (world(plan, 30, 3) == 0) return;
    if (world(plan, 31, 3))
        plan->scarce = 1 + (uint32_t)world(plan, 32, 4);
    else
        plan->two_ways = true;
    set_small(plan, "lanes.switch", "on");
    set_small(plan, "lanes.tick", "1ms");
    set_small(plan, "lanes.min_rate", world(plan, 33, 2) ? "1m" : "8m");
    set_small(plan, "lanes.decay", world(plan, 34, 2) ? "80" : "50");
    set_small(plan, "lanes.min_hold", world(plan, 35, 2) ? "2ms" : "10ms");
    set_small(plan, "lanes.backoff", "2ms");
    set_small(plan, "lanes.backoff_max", "50ms");
    set_small(plan, "lanes.reply_timeout", answer[world(plan, 37, 3)]);
    set_small(plan, "lanes.reorder_bytes", world(plan, 38, 2) ? "1m" : "16k");
    set_small(plan, "lanes.switches", "10000");
    if (plan->two_ways) set_small(plan, "lanes.capacity", world(plan, 36, 2) ? "1" : "3");
}

/* ---- traffic --------------------------------------------------------------------------------- */

static void draw_pairs(struct plan *plan, uint32_t n_pairs) {
    for (uint32_t i = 0; i < n_pairs; i++) {
        uint32_t from = (uint32_t)world(plan, 100 + 4 * i, plan->n_workers);
        uint32_t to =
            (from + 1 + (uint32_t)world(plan, 101 + 4 * i, plan->n_workers - 1)) % plan->n_workers;
        bool early = world(plan, 102 + 4 * i, 4) != 0;
        uint64_t at = early ? 0 : world(plan, 103 + 4 * i, plan->chaos_ns / 2);
        plan_add(plan, (struct plan_item){at, PLAN_DIAL, i, from, to, 0, 0});
    }
}

static enum plan_kind kind_of(uint64_t word) {
    static const enum plan_kind kinds[] = {
        PLAN_AM,     PLAN_AM,     PLAN_AM,  PLAN_AM,  PLAN_TAG, PLAN_TAG, PLAN_TAKE,  PLAN_TAKE,
        PLAN_STREAM, PLAN_STREAM, PLAN_PUT, PLAN_PUT, PLAN_GET, PLAN_ADD, PLAN_FETCH, PLAN_FLUSH};
    return kinds[word % (sizeof kinds / sizeof *kinds)];
}

static void draw_traffic(struct plan *plan, uint32_t n_pairs) {
    uint32_t n_ops = 8 + (uint32_t)world(plan, 20, 60);
    bool cancels = world(plan, 21, 4) == 0, closes = world(plan, 22, 4) == 0;
    for (uint32_t i = 0; i < n_ops; i++) {
        uint64_t seed = plan->seed;
        struct plan_item op = {.a = (uint32_t)draw_below(seed, DRAW_ITEM, i, 0, n_pairs),
                               .b = (uint32_t)draw_below(seed, DRAW_ITEM, i, 1, 2),
                               .at = draw_below(seed, DRAW_ITEM, i, 2, plan->chaos_ns),
                               .kind = kind_of(draw(seed, DRAW_ITEM, i, 3)),
                               .n = (uint32_t)log_uniform(seed, DRAW_ITEM, i, 4, 0, 4),
                               .arg = draw_below(seed, DRAW_ITEM, i, 5, 4)};
        if (draw_chance(seed, DRAW_ITEM, i, 10, 8)) op.n *= 16;
        if (cancels && draw_chance(seed, DRAW_ITEM, i, 6, 12)) op.kind = PLAN_CANCEL;
        if (closes && draw_chance(seed, DRAW_ITEM, i, 7, 8)) op.kind = PLAN_CLOSE;
        plan_add(plan, op);
        if (op.kind == PLAN_CLOSE && draw_chance(seed, DRAW_ITEM, i, 8, 60)) {
            struct plan_item dial = plan->item[op.a];
            dial.at = op.at + log_uniform(seed, DRAW_ITEM, i, 9, 10, 24);
            dial.id = 0;
            plan_add(plan, dial);
        }
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Half of the kinds are in a seed's swarm. */
static bool in_swarm(const struct plan *plan, enum plan_kind kind, unsigned percent) {
    return draw_chance(plan->seed, DRAW_SWARM, kind, 0, percent);
}

static uint64_t how_much(const struct plan *plan, enum plan_kind kind, uint64_t n, uint64_t limit) {
    return draw_below(plan->seed, DRAW_SWARM, kind, 1 + n, limit);
}

static void draw_rates(struct plan *plan) {
    static const struct {
        enum plan_kind kind;
        uint32_t most;
        bool datagrams;
    } rates[] = {{PLAN_LOSS, 300000, true},    {PLAN_DUPLICATE, 200000, true},
                 {PLAN_REORDER, 300000, true}, {PLAN_DELAY, 100000, false},
                 {PLAN_JITTER, 20000, false},  {PLAN_EXHAUSTION, 200000, false}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        if (rates[i].datagrams && plan->network != PLAN_DATAGRAM) continue;
        if (!in_swarm(plan, rates[i].kind, 50)) continue;
        uint64_t rate = 1 + how_much(plan, rates[i].kind, 0, rates[i].most);
        uint32_t n = rates[i].kind == PLAN_DELAY ? (uint32_t)how_much(plan, PLAN_DELAY, 1, 4) : 0;
        plan_add(plan, (struct plan_item){0, rates[i].kind, 0, 0, n, rate, 0});
    }
}

/* A cut or pause is usually short enough to be survived. */
static uint64_t how_long(const struct plan *plan, enum plan_kind kind, uint64_t n) {
    unsigned to = how_much(plan, kind, n, 4) ? 25 : 30;
    return log_uniform(plan->seed, DRAW_SWARM, kind, 1000 + n, 12, to);
}

static struct plan_item draw_fault(const struct plan *plan, enum plan_kind kind, uint64_t n) {
    uint64_t at = 16 * n;
    struct plan_item fault = {.kind = kind,
                              .at = how_much(plan, kind, at, plan->chaos_ns),
                              .a = (uint32_t)how_much(plan, kind, at + 1, plan->n_workers),
                              .n = (uint32_t)how_much(plan, kind, at + 2, 3),
                              .arg = how_long(plan, kind, at + 3)};
    fault.b = (fault.a + 1 + (uint32_t)how_much(plan, kind, at + 5, plan->n_workers - 1)) %
              plan->n_workers;
    if (kind == PLAN_KILL) fault.arg = how_much(plan, kind, at + 6, 2) ? 0 : fault.arg % 10000000;
    if (kind == PLAN_NO_MEMORY) {
        fault.arg = 1 + how_much(plan, kind, at + 6, 300);
        fault.b = how_much(plan, kind, at + 7, 2) ? 0 : (uint32_t)how_much(plan, kind, at + 8, 64);
    }
    return fault;
}

static void draw_faults(struct plan *plan) {
    static const struct {
        enum plan_kind kind;
        unsigned percent, most;
    } kinds[] = {{PLAN_CUT, 40, 4},   {PLAN_KILL, 40, 4},  {PLAN_WITHDRAW, 40, 4},
                 {PLAN_CRASH, 25, 2}, {PLAN_PAUSE, 40, 4}, {PLAN_NO_MEMORY, 25, 3},
                 {PLAN_STALL, 25, 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        enum plan_kind kind = kinds[i].kind;
        if (kind == PLAN_WITHDRAW && !plan->scarce) continue;
        if (!in_swarm(plan, kind, kinds[i].percent)) continue;
        uint64_t n = 1 + how_much(plan, kind, 9999, kinds[i].most);
        for (uint64_t k = 0; k < n; k++) plan_add(plan, draw_fault(plan, kind, k));
    }
}

/* Large messages of both kinds, one behind the other, that their receiver waits for. */
static void add_large(struct plan *plan, struct plan_item strike, enum plan_kind kind) {
    struct plan_item take = {
        .kind = PLAN_TAKE, .at = strike.at, .a = strike.a, .b = strike.b, .n = 4};
    struct plan_item send = {
        .kind = kind, .at = strike.at + 1, .a = strike.a, .b = !strike.b, .n = 4, .arg = 3};
    if (kind == PLAN_TAG) plan_add(plan, take);
    plan_add(plan, send);
}

/* A peer reads or writes exposed memory after it has received the key. */
static void draw_exposed(struct plan *plan, uint32_t n_pairs) {
    if (!plan->exposes) return;
    for (uint32_t i = 0; i < 4 * n_pairs; i++) {
        struct plan_item at = {
            .at = plan->chaos_ns / 8 * (1 + i / (2 * n_pairs)), .a = i / 2 % n_pairs, .b = i % 2};
        add_large(plan, at, PLAN_TAG);
    }
}

/* Only a reliable network writes payloads to their place bit by bit. */
static void draw_strikes(struct plan *plan, uint32_t n_pairs) {
    static const uint32_t what[] = {
        STRIKE_CANCEL, STRIKE_REVOKE, STRIKE_KILL,  STRIKE_CANCEL | STRIKE_KILL,
        STRIKE_ABORT,  STRIKE_CANCEL, STRIKE_STALL, STRIKE_REVOKE | STRIKE_KILL};
    if (plan->network != PLAN_RELIABLE && !plan->two_ways) return;
    if (how_much(plan, PLAN_STRIKE, 0, 3)) return;
    if (how_much(plan, PLAN_STRIKE, 2, 2) && !plan->exposes)
        plan->setting[0][1] = "256k"; /* rendezvous.threshold: more crosses whole */
    if (plan->hurried < 20) plan->hurried = 20;
    uint64_t n = 1 + how_much(plan, PLAN_STRIKE, 1, 24);
    for (uint64_t i = 1; i <= n; i++) {
        uint64_t at = 16 * i, to = UINT64_C(1) << how_much(plan, PLAN_STRIKE, at, 19);
        struct plan_item strike = {
            .kind = PLAN_STRIKE,
            .at = how_much(plan, PLAN_STRIKE, at + 1, plan->chaos_ns),
            .a = (uint32_t)how_much(plan, PLAN_STRIKE, at + 2, n_pairs),
            .b = (uint32_t)how_much(plan, PLAN_STRIKE, at + 3, 2),
            .n = what[how_much(plan, PLAN_STRIKE, at + 4, sizeof what / sizeof *what)],
            .arg = how_much(plan, PLAN_STRIKE, at + 5, to)};
        plan_add(plan, strike);
        enum plan_kind kind = how_much(plan, PLAN_STRIKE, at + 6, 2) ? PLAN_TAG : PLAN_AM;
        add_large(plan, strike, strike.n & STRIKE_REVOKE ? PLAN_PLACE : kind);
    }
}

void plan_draw(struct plan *plan, uint64_t seed) {
    *plan = (struct plan){.seed = seed};
    plan->n_workers = 2 + (uint32_t)(world(plan, 0, 3) ? world(plan, 1, 3) : world(plan, 1, 7));
    plan->network = (enum plan_network)world(plan, 2, PLAN_N_NETWORKS);
    plan->depth = world(plan, 3, 3) ? 128 : 8;
    plan->chaos_ns = log_uniform(seed, DRAW_WORLD, 0, 4, 19, 28);
    uint32_t n_pairs = 1 + (uint32_t)world(plan, 5, world(plan, 6, 3) ? 6 : 32);
    plan->survive = world(plan, 8, 2);
    plan->hurried = world(plan, 9, 5) ? 0 : 2 + (uint32_t)world(plan, 16, 30);
    plan->heartbeat_ms = world(plan, 17, 8) ? 0 : 250; /* the least */
    plan->exposes = plan->network == PLAN_RELIABLE && world(plan, 40, 3) == 0;
    draw_settings(plan);
    draw_lanes(plan);
    draw_pairs(plan, n_pairs);
    draw_traffic(plan, n_pairs);
    draw_exposed(plan, n_pairs);
    if (world(plan, 7, 8)) { /* one world in eight is spared */
        draw_rates(plan);
        draw_faults(plan);
        draw_strikes(plan, n_pairs);
    }
    plan_sort(plan);
}

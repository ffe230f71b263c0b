/* Large worlds: everybody with everybody, and many endpoints. */
#include <stddef.h>

#include "draw.h"
#include "plan.h"

enum { A_PAIR_OPS = 4 };

static void traffic(struct plan *plan, uint32_t pair, uint32_t messages) {
    static const enum plan_kind kinds[A_PAIR_OPS] = {PLAN_AM, PLAN_TAG, PLAN_STREAM, PLAN_FETCH};
    for (uint32_t i = 0; i < A_PAIR_OPS; i++) {
        uint64_t at =
            1000000 + draw_below(plan->seed, DRAW_ITEM, pair, 2 * i, plan->chaos_ns - 1000000);
        uint32_t side = (uint32_t)draw_below(plan->seed, DRAW_ITEM, pair, 2 * i + 1, 2);
        plan_add(plan, (struct plan_item){at, kinds[i], pair, side, messages, i % 2, 0});
    }
}

/* Each has more peers that it sends much to than fast lanes: half as many again. */
enum { A_HOT_PAIR_OPS = 40 };

static bool is_hot(const struct plan *plan, uint32_t a, uint32_t b) {
    uint32_t apart = (b + plan->n_workers - a) % plan->n_workers, most = plan->scarce * 3 / 4;
    return apart <= most || plan->n_workers - apart <= most;
}

static void hot_traffic(struct plan *plan, uint32_t pair) {
    for (uint32_t i = 0; i < A_HOT_PAIR_OPS; i++) {
        uint64_t at = 1000000 + draw_below(plan->seed, DRAW_ITEM, ~(uint64_t)pair, 2 * i,
                                           plan->chaos_ns - 1000000);
        uint32_t side = (uint32_t)draw_below(plan->seed, DRAW_ITEM, ~(uint64_t)pair, 2 * i + 1, 2);
        plan_add(plan, (struct plan_item){at, i % 4 ? PLAN_AM : PLAN_TAG, pair, side, 8, 2, 0});
    }
}

static void earn_lanes(struct plan *plan) {
    static const char *const settings[][2] = {{"lanes.switch", "on"},
                                              {"lanes.tick", "10ms"},
                                              {"lanes.min_rate", "64k"},
                                              {"lanes.switches", "1000"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (int k = 0; k < 2; k++) plan->setting[i][k] = settings[i][k];
    plan->n_settings = sizeof settings / sizeof *settings;
}

void plan_mesh(struct plan *plan, uint64_t seed, uint32_t workers, uint32_t fast,
               uint32_t messages) {
    *plan = (struct plan){.seed = seed,
                          .n_workers = workers,
                          .scarce = fast,
                          .depth = 128,
                          .chaos_ns = UINT64_C(2000000000)};
    uint32_t pair = 0;
    earn_lanes(plan);
    for (uint32_t a = 0; a < workers; a++)
        for (uint32_t b = a + 1; b < workers; b++, pair++) {
            plan_add(plan, (struct plan_item){0, PLAN_DIAL, pair, a, b, 0, 0});
            traffic(plan, pair, messages);
            if (is_hot(plan, a, b)) hot_traffic(plan, pair);
        }
    plan_sort(plan);
}

void plan_endpoints(struct plan *plan, uint64_t seed, uint32_t endpoints) {
    uint32_t pairs = endpoints / 2;
    *plan = (struct plan){
        .seed = seed, .n_workers = 32, .depth = 128, .chaos_ns = UINT64_C(1000000000)};
    for (uint32_t pair = 0; pair < pairs; pair++) {
        uint32_t from = (uint32_t)draw_below(seed, DRAW_WORLD, 2, pair, plan->n_workers);
        uint32_t to =
            (from + 1 + (uint32_t)draw_below(seed, DRAW_WORLD, 3, pair, plan->n_workers - 1)) %
            plan->n_workers;
        plan_add(plan, (struct plan_item){0, PLAN_DIAL, pair, from, to, 0, 0});
        traffic(plan, pair, 2);
    }
    plan_sort(plan);
}

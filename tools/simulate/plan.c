#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const plan_kind_name[] = {
#define PLAN_NAME(name) #name,
    PLAN_ITEMS(PLAN_NAME)
#undef PLAN_NAME
};

struct plan_item *plan_add(struct plan *plan, struct plan_item item) {
    if (plan->n_items == plan->room) {
        plan->room = plan->room ? 2 * plan->room : 128;
        struct plan_item *more = realloc(plan->item, plan->room * sizeof *more);
        if (!more) abort();
        plan->item = more;
    }
    if (!item.id) item.id = plan->n_items + 1;
    plan->item[plan->n_items] = item;
    return &plan->item[plan->n_items++];
}

static int by_time(const void *a, const void *b) {
    const struct plan_item *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void plan_sort(struct plan *plan) {
    qsort(plan->item, plan->n_items, sizeof *plan->item, by_time);
}

void plan_free(struct plan *plan) {
    free(plan->item);
    *plan = (struct plan){0};
}

bool plan_item_is_fault(const struct plan_item *item) {
    return item->kind >= PLAN_LOSS && item->kind != PLAN_PLACE;
}

/*
 * Shorter cuts and pauses than a fifth of any of the timeouts (world.c sets those) are to be
 * survived by everybody.
 */
bool plan_item_harms(const struct plan *plan, const struct plan_item *item) {
    enum { A_FIFTH = 60000000 };
    switch (item->kind) {
    case PLAN_KILL:
        /* A lane that was earned takes its link along. */
        return !plan->survive || plan->scarce || plan->two_ways;
    case PLAN_STRIKE:
        return (item->n & STRIKE_KILL) && (!plan->survive || plan->scarce || plan->two_ways);
    case PLAN_WITHDRAW: return !plan->survive;
    case PLAN_CRASH:
    case PLAN_NO_MEMORY: return true;
    case PLAN_CUT:
    case PLAN_STALL:
    case PLAN_PAUSE: return item->arg > A_FIFTH;
    default: return false;
    }
}

void plan_print(const struct plan *plan, FILE *to) {
    static const char *const network[] = {"PLAN_RELIABLE", "PLAN_DATAGRAM"};
    fprintf(to, "static struct plan_item items[] = {\n");
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct plan_item *at = &plan->item[i];
        fprintf(to, "    {%" PRIu64 ", PLAN_%s, %u, %u, %u, %" PRIu64 ", %u},\n", at->at,
                plan_kind_name[at->kind], at->a, at->b, at->n, at->arg, at->id);
    }
    fprintf(to,
            "};\nstatic const struct plan plan = {.seed = %" PRIu64
            ", .n_workers = %u, .network = %s, .scarce = %u, .two_ways = %d, .exposes = %d, "
            ".survive = %d,\n"
            "                                .hurried = %u, .heartbeat_ms = %u, .depth = %u, "
            ".chaos_ns = %" PRIu64 ", .setting = {",
            plan->seed, plan->n_workers, network[plan->network], plan->scarce, plan->two_ways,
            plan->exposes, plan->survive, plan->hurried, plan->heartbeat_ms, plan->depth,
            plan->chaos_ns);
    for (uint32_t i = 0; i < plan->n_settings; i++)
        fprintf(to, "%s{\"%s\", \"%s\"}", i ? ", " : "", plan->setting[i][0], plan->setting[i][1]);
    fprintf(
        to,
        "},\n                                .n_settings = %u, .item = items, .n_items = %u};\n",
        plan->n_settings, plan->n_items);
}

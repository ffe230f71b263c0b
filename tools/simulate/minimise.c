/*
 * Delta debugging (Zeller and Hildebrandt, IEEE Transactions on Software Engineering 28(2), 2002),
 * over the items of a plan.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "apart.h"

/* The same failure: the same words, whatever the numbers. */
static bool same(const char *a, const char *b) {
    while (*a && *b) {
        while (isdigit((unsigned char)*a)) a++;
        while (isdigit((unsigned char)*b)) b++;
        if (*a != *b) return false;
        if (*a) a++, b++;
    }
    return *a == *b;
}

static bool still_fails(const struct plan *plan, const struct verdict *verdict) {
    struct verdict now;
    apart_run(plan, &now);
    return now.failed && same(now.what, verdict->what);
}

/* The plan without items [from, from + n), if it still fails: then it is the plan. */
static bool leave_out(struct plan *plan, uint32_t from, uint32_t n, const struct verdict *verdict) {
    uint32_t behind = plan->n_items - from - n;
    struct plan_item *left_out = malloc((n + 1) * sizeof *left_out);
    if (!left_out) abort();
    memcpy(left_out, plan->item + from, n * sizeof *left_out);
    memmove(plan->item + from, plan->item + from + n, behind * sizeof *left_out);
    plan->n_items -= n;
    bool fails = still_fails(plan, verdict);
    if (!fails) {
        memmove(plan->item + from + n, plan->item + from, behind * sizeof *left_out);
        memcpy(plan->item + from, left_out, n * sizeof *left_out);
        plan->n_items += n;
    }
    free(left_out);
    return fails;
}

static bool simpler(struct plan *plan, const struct verdict *verdict) {
    bool any = false;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct plan_item *item = &plan->item[i], was = *item;
        while (item->n > 1 && item->kind < PLAN_LOSS && item->kind != PLAN_DIAL) {
            struct plan_item before = *item;
            item->n /= 2;
            if (still_fails(plan, verdict)) continue;
            *item = before;
            break;
        }
        any |= item->n != was.n;
    }
    for (uint32_t i = 0; i < plan->n_settings; i++) {
        struct plan less = *plan;
        memmove(&less.setting[i], &less.setting[i + 1],
                (less.n_settings - i - 1) * sizeof less.setting[0]);
        less.n_settings--;
        if (!still_fails(&less, verdict)) continue;
        *plan = less;
        any = true;
        i--;
    }
    return any;
}

void minimise(struct plan *plan, struct verdict *verdict, FILE *progress) {
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t size = (plan->n_items + 1) / 2; size > 0;
             size = size == 1 ? 0 : (size + 1) / 2)
            for (uint32_t from = 0; from < plan->n_items;) {
                uint32_t n = from + size > plan->n_items ? plan->n_items - from : size;
                if (leave_out(plan, from, n, verdict))
                    again = true;
                else
                    from += size;
            }
        if (progress) fprintf(progress, "%u items\n", plan->n_items);
        if (!again) again = simpler(plan, verdict);
    }
    apart_run(plan, verdict);
}

/* What breaks, and how all of it is whole again. */
#include "world.h"

static struct sim_profile *profile(struct world *w, int i) {
    return w->fabric[i] ? weft__sim_profile(w->fabric[i]) : NULL;
}

static void set_rate(struct world *w, const struct plan_item *item) {
    static const uint64_t delay_ns[] = {100000, 1000000, 4000000, 10000000};
    for (int i = 0; i < 2; i++) {
        struct sim_profile *is = profile(w, i);
        if (!is) continue;
        uint32_t rate = (uint32_t)item->arg;
        switch (item->kind) {
        case PLAN_LOSS: is->loss = rate; break;
        case PLAN_DUPLICATE: is->duplicate = rate; break;
        case PLAN_REORDER:
            is->reorder = rate;
            is->reorder_ns = 30000;
            break;
        case PLAN_DELAY:
            is->delay = rate;
            is->delay_ns = delay_ns[item->n % (sizeof delay_ns / sizeof *delay_ns)];
            break;
        case PLAN_JITTER: is->jitter_ns = rate; break;
        case PLAN_EXHAUSTION:
            is->exhaustion = rate;
            is->exhaustion_ns = 5000;
            break;
        default: break;
        }
    }
}

/* Numbers of workers that began again are others: all is cut again as it shall be. */
void faults_cut_again(struct world *w) {
    for (int i = 0; i < 2; i++) {
        if (!w->fabric[i]) continue;
        weft__sim_heal_all(w->fabric[i]);
        for (uint32_t a = 0; a < w->plan->n_workers; a++)
            for (uint32_t b = 0; b < w->plan->n_workers; b++)
                if (w->n_cut[a][b] && w->node[a] && w->node[b])
                    weft__sim_cut(w->fabric[i], w->node[a]->number[i], w->node[b]->number[i]);
    }
}

static void uncut(struct world *w, uint64_t a, uint64_t b) {
    if (w->n_cut[a][b]) w->n_cut[a][b]--;
    faults_cut_again(w);
}

static bool is_up(const struct half *half) {
    return half_lives(half) && half->ep->link && link_is_up(&half->ep->link->core.fsm);
}

/* Before both have sent HELLO, or while one of them leaves, there is nothing to go on with. */
static bool all_up(const struct world *w, const struct node *a, const struct node *b) {
    for (uint32_t i = 0; i < w->n_connections; i++) {
        const struct half *half = w->connection[i]->half;
        bool meant =
            (half[0].node == a && half[1].node == b) || (half[0].node == b && half[1].node == a);
        bool over = half[0].state == HALF_CLOSED &&
                    (half[1].state == HALF_CLOSED || half[1].state == HALF_NONE);
        if (meant && !over && !(is_up(&half[0]) && is_up(&half[1]))) return false;
    }
    return true;
}

static void kill_lane(struct world *w, const struct plan_item *item) {
    const struct node *a = w->node[item->a], *b = w->node[item->b];
    for (int i = 0; i < 2; i++) {
        struct lane *lane =
            w->fabric[i] ? weft__sim_nth_lane(w->fabric[i], a->number[i], b->number[i], item->n)
                         : NULL;
        if (!lane) continue;
        w->harmed |= !all_up(w, a, b);
        world_trace(w, "lane %u from worker %u to worker %u breaks", item->n, item->a, item->b);
        if (!item->arg || weft__sim_fail(lane, 0, item->arg) < 0) weft__sim_kill(lane);
        return;
    }
}

static void set_capacity(struct world *w, uint64_t index, uint64_t scarce) {
    const struct node *node = w->node[index];
    if (node && !node->closing) weft__sim_capacity(w->fabric[0], node->number[0], (uint32_t)scarce);
}

static void restart(struct world *w, uint64_t index, uint64_t unused) {
    struct node *node = w->node[index];
    if (!node->crashed || w->closing) return;
    weft__alloc_fail_at(0); /* a program that cannot even begin is no test */
    node_begin(w, (uint32_t)index);
    faults_cut_again(w);
}

static void pause(struct world *w, const struct plan_item *item) {
    const struct node *node = w->node[item->a];
    if (node->worker) weft__clock_pause(node->reactor, weft__clock_now(w->clock) + item->arg);
}

static void stall(struct world *w, const struct plan_item *item) {
    const struct node *a = w->node[item->a], *b = w->node[item->b];
    for (int i = 0; i < 2; i++)
        if (w->fabric[i]) weft__sim_stall(w->fabric[i], a->number[i], b->number[i], item->arg);
}

void fault_apply(struct world *w, const struct plan_item *item) {
    w->harmed |= plan_item_harms(w->plan, item);
    switch (item->kind) {
    case PLAN_CUT:
        w->n_cut[item->a][item->b]++;
        faults_cut_again(w);
        world_later(w, item->arg, uncut, item->a, item->b);
        break;
    case PLAN_KILL: kill_lane(w, item); break;
    case PLAN_WITHDRAW:
        set_capacity(w, item->a, item->n);
        world_later(w, item->arg, set_capacity, item->a, w->plan->scarce);
        break;
    case PLAN_CRASH:
        node_crash(w->node[item->a]);
        world_later(w, item->arg, restart, item->a, 0);
        break;
    case PLAN_PAUSE: pause(w, item); break;
    case PLAN_NO_MEMORY:
        w->starved = true;
        weft__alloc_fail_run(item->arg, 1 + (uint64_t)item->b);
        break;
    case PLAN_STRIKE: strike_begin(w, item); break;
    case PLAN_STALL: stall(w, item); break;
    default: set_rate(w, item);
    }
}

/* What was begun and is due later is done now: cuts end, workers are there again. */
void faults_heal(struct world *w) {
    w->healing = true;
    weft__alloc_fail_at(0);
    for (int i = 0; i < 2; i++) {
        struct sim_profile *is = profile(w, i);
        if (is) is->loss = is->duplicate = is->reorder = is->delay = is->exhaustion = 0;
    }
    for (struct node *node = w->nodes; node; node = node->next)
        if (node->worker) weft__clock_pause(node->reactor, 0);
    world_later_all(w);
}

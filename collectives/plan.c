/* Makes plans from schedules, keeps them for equal collectives, and finds the step of a message. */
#include "plan.h"

#include <reactor/reactor.h>
#include <string.h>

static uint32_t hash(enum step_verb verb, uint32_t peer, uint32_t tag) {
    uint64_t h = ((uint64_t)peer << 32 | tag) * 0x9e3779b97f4a7c15u + verb;
    return (uint32_t)(h >> 32 ^ h >> 13 ^ h);
}

uint32_t weft__plan_find(const struct plan *plan, enum step_verb verb, uint32_t peer,
                         uint32_t tag) {
    for (uint32_t at = hash(verb, peer, tag) & plan->mask; plan->by_wire[at];
         at = (at + 1) & plan->mask) {
        const struct step *step = &plan->schedule->step[plan->by_wire[at] - 1];
        if (step->verb == verb && step->peer == peer && step->tag == tag)
            return plan->by_wire[at] - 1;
    }
    return NO_STEP;
}

static void enter_plan(struct plan *plan, uint32_t index) {
    const struct step *step = &plan->schedule->step[index];
    uint32_t at = hash(step->verb, step->peer, step->tag) & plan->mask;
    while (plan->by_wire[at]) at = (at + 1) & plan->mask;
    plan->by_wire[at] = index + 1;
}

static void link_steps(struct plan *plan) {
    for (uint32_t i = 0; i < plan->schedule->n_steps; i++) {
        const struct step *step = &plan->schedule->step[i];
        for (uint32_t k = 0; k < 3; k++) {
            if (!step->after[k]) continue;
            plan->next[3 * i + k] = plan->first[step->after[k] - 1];
            plan->first[step->after[k] - 1] = 3 * i + k + 1;
            plan->waits[i]++;
        }
        if (step->verb == STEP_SEND || step->verb == STEP_RECV) enter_plan(plan, i);
    }
}

static weft_status_t make_plan(const void *parent, void (*build)(struct schedule *s), uint32_t tag,
                               const struct coll_shape *shape, struct plan **plan_p) {
    struct plan *plan = weft__new(parent, struct plan);
    struct coll_shape kept = *shape;
    if (!plan) return WEFT_ERR_NO_MEMORY;
    weft_status_t status = WEFT_ERR_NO_MEMORY;
    if (!weft__keep_shape(plan, &kept)) goto fail;
    status = weft__schedule_build_by(plan, build, &kept, &plan->schedule);
    if (status < 0) goto fail;
    for (uint32_t i = 0; i < plan->schedule->n_steps; i++)
        if (plan->schedule->step[i].verb <= STEP_RECV) plan->schedule->step[i].tag |= tag;
    size_t n = plan->schedule->n_steps, room = 4;
    while (room < 2 * n) room *= 2;
    plan->mask = (uint32_t)room - 1;
    plan->waits = weft__alloc(plan, (n + 1) * sizeof *plan->waits, "waits");
    plan->first = weft__alloc(plan, (n + 1) * sizeof *plan->first, "first");
    plan->next = weft__alloc(plan, (3 * n + 1) * sizeof *plan->next, "next");
    plan->by_wire = weft__alloc(plan, room * sizeof *plan->by_wire, "by_wire");
    status = WEFT_ERR_NO_MEMORY;
    if (!plan->waits || !plan->first || !plan->next || !plan->by_wire) goto fail;
    link_steps(plan);
    *plan_p = plan;
    return WEFT_OK;
fail:
    talloc_free(plan);
    return status;
}

/* ---- the shapes of kept plans ---------------------------------------------------------------- */

/* How many blocks SRC and DST have. */
static uint32_t n_blocks(const struct coll_shape *shape, bool dst) {
    if (shape->kind == COLL_NEIGHBOR_ALLTOALLV)
        return dst ? shape->n_sources : shape->n_destinations;
    return shape->size;
}

static bool same(const void *a, const void *b, size_t bytes) {
    return a == b || (a && b && memcmp(a, b, bytes) == 0);
}

static bool same_blocks(struct coll_vector a, struct coll_vector b, uint32_t n) {
    size_t bytes = n * sizeof *a.count;
    return same(a.count, b.count, bytes) && same(a.offset, b.offset, bytes);
}

static bool same_graph(const struct coll_shape *a, const struct coll_shape *b) {
    return a->n_sources == b->n_sources && a->n_destinations == b->n_destinations &&
           same(a->source, b->source, a->n_sources * sizeof *a->source) &&
           same(a->destination, b->destination, a->n_destinations * sizeof *a->destination);
}

static bool equal(const struct coll_shape *a, const struct coll_shape *b) {
    return a->kind == b->kind && a->root == b->root && a->count == b->count &&
           a->width == b->width && a->segment == b->segment && a->joined == b->joined &&
           a->size == b->size && a->rank == b->rank && a->in_place == b->in_place &&
           a->unexposed == b->unexposed && a->memory == b->memory && a->radix == b->radix &&
           a->group_of == b->group_of && a->per_group == b->per_group && a->slot == b->slot &&
           a->n_known == b->n_known && same(a->known, b->known, a->n_known * sizeof *a->known) &&
           same_graph(a, b) && same_blocks(a->src, b->src, n_blocks(a, false)) &&
           same_blocks(a->dst, b->dst, n_blocks(a, true));
}

bool weft__keep_array(const void *parent, const void *from, size_t bytes, const void **kept_p) {
    *kept_p = NULL;
    if (!from) return true;
    void *copy = weft__alloc(parent, bytes + 1, "blocks");
    if (copy) memcpy(copy, from, bytes);
    *kept_p = copy;
    return copy != NULL;
}

bool weft__keep_shape(const void *parent, struct coll_shape *shape) {
    size_t src = n_blocks(shape, false) * sizeof(uint64_t);
    size_t dst = n_blocks(shape, true) * sizeof(uint64_t);
    return weft__keep_array(parent, shape->src.count, src, (const void **)&shape->src.count) &&
           weft__keep_array(parent, shape->src.offset, src, (const void **)&shape->src.offset) &&
           weft__keep_array(parent, shape->dst.count, dst, (const void **)&shape->dst.count) &&
           weft__keep_array(parent, shape->dst.offset, dst, (const void **)&shape->dst.offset) &&
           weft__keep_array(parent, shape->known, shape->n_known * sizeof *shape->known,
                            (const void **)&shape->known) &&
           weft__keep_array(parent, shape->source, shape->n_sources * sizeof *shape->source,
                            (const void **)&shape->source) &&
           weft__keep_array(parent, shape->destination,
                            shape->n_destinations * sizeof *shape->destination,
                            (const void **)&shape->destination);
}

weft_status_t weft__plan_get(const void *parent, struct plans *plans, enum coll_algorithm algorithm,
                             const struct coll_shape *shape, struct plan **plan_p) {
    struct plan **oldest = NULL;
    plans->calls++;
    for (unsigned i = 0; i < PLANS_KEPT; i++) {
        struct plan **at = &plans->kept[i], *plan = *at;
        if (plan && plan->algorithm == algorithm && equal(&plan->schedule->shape, shape)) {
            plan->users++;
            plan->used = plans->calls;
            *plan_p = plan;
            return WEFT_OK;
        }
        if (!plan)
            oldest = at;
        else if (!plan->users && (!oldest || (*oldest && plan->used < (*oldest)->used)))
            oldest = at;
    }
    struct plan *made = NULL;
    weft_status_t status = make_plan(parent, weft__algorithms[algorithm].build, 0, shape, &made);
    if (status < 0) return status;
    made->algorithm = algorithm;
    made->users = 1;
    made->used = plans->calls;
    if (oldest && made->schedule->n_steps <= PLAN_STEPS_KEPT) {
        talloc_free(*oldest);
        *oldest = made;
    }
    *plan_p = made;
    return WEFT_OK;
}

weft_status_t weft__plan_ask(const void *parent, const struct coll_asking *asking,
                             const struct coll_shape *shape, struct plan **plan_p) {
    weft_status_t status = make_plan(parent, asking->build, ASK_TAG, shape, plan_p);
    if (status == WEFT_OK) (*plan_p)->users = 1;
    return status;
}

/* One that found no place among those kept goes with its last user. */
void weft__plan_put(struct plans *plans, struct plan *plan) {
    if (--plan->users) return;
    for (unsigned i = 0; i < PLANS_KEPT; i++)
        if (plans->kept[i] == plan) return;
    talloc_free(plan);
}

/* Finds the groups of ranks for a schedule of two levels, and adds a part of such a schedule. */
#include "groups.h"

#include <collectives/select.h>
#include <collectives/share.h>
#include <reactor/reactor.h>
#include <string.h>

static void add_leader(const struct coll_shape *shape, struct groups *g, uint32_t rank) {
    uint32_t group = weft__group_of(shape, rank);
    for (uint32_t i = g->n_leaders; i-- > 0;)
        if (weft__group_of(shape, g->leader[i]) == group) {
            g->rows = g->rows && i + 1 == g->n_leaders;
            return;
        }
    g->first[g->n_leaders] = rank;
    g->leader[g->n_leaders++] = rank;
}

/* The root leads its group; the others are led by their first. */
static void find_leaders(const struct coll_shape *shape, struct groups *g) {
    uint32_t own = weft__group_of(shape, shape->rank), roots = weft__group_of(shape, shape->root);
    for (uint32_t r = 0; r < shape->size; r++) {
        add_leader(shape, g, r);
        if (weft__group_of(shape, r) != own) continue;
        if (r == shape->rank) g->place = g->n_mine;
        if (r == shape->root) g->head = g->n_mine;
        g->mine[g->n_mine++] = r;
    }
    for (uint32_t i = 0; i < g->n_leaders; i++) {
        uint32_t group = weft__group_of(shape, g->leader[i]);
        if (group == roots) g->leader[i] = shape->root;
        if (group == own) g->turn = i;
    }
    g->leads = g->place == g->head;
}

bool weft__groups_find(struct schedule *s, struct groups *g) {
    uint32_t *memory = weft__alloc(s, 3 * (size_t)s->shape.size * sizeof *memory, "groups");
    if (!memory) {
        s->status = WEFT_ERR_NO_MEMORY;
        return false;
    }
    *g = (struct groups){.mine = memory,
                         .leader = memory + s->shape.size,
                         .first = memory + 2 * (size_t)s->shape.size,
                         .rows = true};
    find_leaders(&s->shape, g);
    return true;
}

typedef void (*build_fn)(struct schedule *);

static void build_shared(struct schedule *s) {
    weft__add_share(s);
}

/* What the table says about a part. `slot`: of the segment that its ranks share. In a v-form they
 * know different numbers of bytes, so they take the usual one. */
static unsigned choice_of(const struct coll_shape *part, uint64_t slot, unsigned usual) {
    uint64_t bytes = part->count * part->width;
    struct question question = {
        .kind = part->kind,
        .bytes = bytes,
        .ranks = part->size,
        .per_core = part->per_core,
        .slots = slot && weft__slots_fit(part->kind, bytes, part->width, part->size, slot)};
    return part->choices && weft__coll_is_even(part->kind) ? weft__choose(part->choices, &question)
                                                           : usual;
}

/* One that is a schedule; keys are of whole buffers. */
static bool is_of(unsigned id, enum coll_kind kind) {
    return id < N_ALGORITHMS && weft__algorithms[id].kind == kind && id != ALGORITHM_BCAST_direct;
}

/* A part has one schedule only, so none asks for counts first. */
static build_fn chosen(const struct coll_shape *part, unsigned given, uint64_t slot,
                       enum coll_algorithm usual) {
    if (given && is_of(given - 1, part->kind) && !weft__asking(given - 1))
        return weft__algorithms[given - 1].build;
    unsigned choice = choice_of(part, slot, usual);
    if (choice == ALGORITHM_SLOTS) return build_shared;
    bool fits =
        is_of(choice, part->kind) && strcmp(weft__algorithms[choice].name, "hierarchy") != 0;
    return weft__algorithms[fits ? choice : usual].build;
}

struct coll_part weft__part_within(const struct schedule *s, const struct groups *g,
                                   enum coll_kind kind, enum coll_algorithm usual,
                                   uint32_t number) {
    struct coll_part part = {.usual = usual,
                             .shape = s->shape,
                             .map = g->mine,
                             .number = number,
                             .src = AT(SRC, 0),
                             .dst = AT(DST, 0)};
    part.shape.kind = kind;
    part.shape.size = g->n_mine;
    part.shape.rank = g->place;
    part.shape.root = g->head;
    part.shape.group_of = NULL;
    part.shape.per_group = part.shape.inner = part.shape.outer = 0;
    part.shape.slot = 0;
    return part;
}

struct coll_part weft__part_between(const struct schedule *s, const struct groups *g,
                                    enum coll_kind kind, enum coll_algorithm usual,
                                    uint32_t number) {
    struct coll_part part = weft__part_within(s, g, kind, usual, number);
    part.across = true;
    part.map = g->leader;
    part.shape.size = g->n_leaders;
    part.shape.rank = g->turn;
    part.shape.root = 0;
    for (uint32_t i = 0; i < g->n_leaders; i++)
        if (g->leader[i] == s->shape.root) part.shape.root = i;
    return part;
}

void weft__part_add(struct schedule *s, bool takes_part, struct coll_part *part) {
    const struct coll_shape *shape = &s->shape;
    part->build = chosen(&part->shape, part->across ? shape->outer : shape->inner,
                         part->across ? 0 : shape->slot, part->usual);
    if (takes_part) weft__add_part(s, part);
    weft__add_gate(s);
}

bool weft__groups_row(struct schedule *s, const struct groups *g, struct coll_vector blocks,
                      struct row *row) {
    size_t size = s->shape.size;
    if (!g->rows) return false;
    uint64_t *memory = weft__alloc(s, 4 * size * sizeof *memory, "row");
    if (!memory) {
        s->status = WEFT_ERR_NO_MEMORY;
        return false;
    }
    *row = (struct row){memory, memory + size, memory + 2 * size, memory + 3 * size, 0};
    for (uint32_t r = 0, group = 0; r < size; r++) {
        if (group + 1 < g->n_leaders && r == g->first[group + 1]) group++;
        if (r == g->first[group]) row->groups_offset[group] = row->total;
        row->count[r] = weft__block(&s->shape, blocks, r).len / s->shape.width;
        row->offset[r] = row->total;
        row->groups_count[group] += row->count[r];
        row->total += row->count[r];
    }
    return true;
}

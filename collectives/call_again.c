/*
 * A program calls the same again and again. What a plain call through the segment came to is kept,
 * one for each kind: the next one that differs by its memory and its root only is not resolved
 * again. The counts of a v-form are compared one by one, since the program may write others into
 * the same array.
 */
#include <string.h>

#include <transports/cuda/memory.h>

#include "call.h"

/* The blocks of SRC or of DST. */
struct last_blocks {
    bool known, has_displs;
    uint64_t count[FEW_BLOCKS], displ[FEW_BLOCKS];
    uint64_t offset[FEW_BLOCKS]; /* as resolved */
};

struct coll_last {
    const struct segment *segment;
    uint64_t single_least;
    weft_reduction_t reduction;
    weft_datatype_t type;
    uint32_t flags;
    size_t count;
    bool to_all;
    struct {
        bool src, dst;
    } needs[2]; /* at the others; at the root */
    struct coll_call call;
    struct last_blocks src, dst;
};

/* ---- may it be kept? ------------------------------------------------------------------------- */

/* Counts that its kind does not look at do no harm. Those of neighbours are of their graph. */
static bool is_plain(const weft_team_t *team, const weft_coll_args_t *args) {
    bool blocks = weft__coll_traits[args->kind] & (V_SRC | V_DST);
    if (args->kind == WEFT_COLL_NEIGHBOR_ALLTOALLV || (blocks && team->size > FEW_BLOCKS))
        return false;
    return !(args->flags | args->tag | args->members.size) && args->src != WEFT_IN_PLACE &&
           args->dst != WEFT_IN_PLACE;
}

static bool is_on_host(const weft_coll_args_t *args) {
    return !weft__is_device_memory(args->src) && !weft__is_device_memory(args->dst);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Where the description has counts of SRC, and of DST: at the root only, if there is one. */
static bool has_blocks(weft_coll_kind_t kind, unsigned trait, bool here) {
    unsigned traits = weft__coll_traits[kind];
    return traits & trait && (here || !(traits & ROOTED));
}

/* Displacements that the kind ignores may differ: then it is resolved again. */
static bool are_same(const struct last_blocks *last, const uint64_t *counts, const uint64_t *displs,
                     uint32_t n) {
    if (!last->known || !counts || last->has_displs != (displs != NULL)) return false;
    return !memcmp(last->count, counts, n * sizeof *counts) &&
           (!displs || !memcmp(last->displ, displs, n * sizeof *displs));
}

static void keep_blocks(struct last_blocks *last, const struct coll_vector *blocks,
                        const uint64_t *displs, uint32_t n) {
    last->known = true;
    last->has_displs = displs != NULL;
    memcpy(last->count, blocks->count, n * sizeof *last->count);
    memcpy(last->offset, blocks->offset, n * sizeof *last->offset);
    if (displs) memcpy(last->displ, displs, n * sizeof *displs);
}

static struct coll_vector vector_of(const struct last_blocks *last, bool has) {
    return has ? (struct coll_vector){last->count, last->offset} : (struct coll_vector){0};
}

/* ---- again ----------------------------------------------------------------------------------- */

static struct coll_last *same_call(const weft_team_t *team, const weft_coll_args_t *args,
                                   uint32_t flags) {
    struct coll_last *last = (unsigned)args->kind < N_COLL_KINDS ? team->last[args->kind] : NULL;
    if (!last || args->count != last->count || args->type != last->type ||
        args->reduction != last->reduction || flags != last->flags)
        return NULL;
    if (team->segment != last->segment || team->offers.least != last->single_least) return NULL;
    return is_plain(team, args) && is_on_host(args) ? last : NULL;
}

static bool takes_blocks(const weft_team_t *team, const weft_coll_args_t *args, bool here,
                         struct coll_last *last) {
    bool src = has_blocks(args->kind, V_SRC, here), dst = has_blocks(args->kind, V_DST, here);
    if (src && !are_same(&last->src, args->src_counts, args->src_displs, team->size)) return false;
    if (dst && !are_same(&last->dst, args->dst_counts, args->dst_displs, team->size)) return false;
    last->call.src_blocks = vector_of(&last->src, src);
    last->call.dst_blocks = vector_of(&last->dst, dst);
    return true;
}

const struct coll_call *weft__call_again(const weft_team_t *team, const weft_coll_args_t *args,
                                         uint32_t flags) {
    struct coll_last *last = same_call(team, args, flags);
    if (!last) return NULL;
    unsigned traits = weft__coll_traits[args->kind];
    uint32_t root = traits & ROOTED ? args->root : 0;
    bool here = root == team->rank;
    if (root >= team->size) return NULL;
    if (traits & (V_SRC | V_DST) && !takes_blocks(team, args, here, last)) return NULL;
    if ((!args->src && last->needs[here].src) || (!args->dst && last->needs[here].dst)) return NULL;
    last->call.root = root;
    last->call.src = args->src;
    last->call.dst = args->dst;
    last->call.in_place = last->to_all && args->src == args->dst;
    return &last->call;
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* `here`: if this member is the root. */
static void note_needs(const weft_team_t *team, bool here, struct coll_last *last) {
    struct coll_shape shape = weft__coll_shape(team, &last->call);
    uint64_t src, dst;
    shape.root = here ? shape.rank : shape.rank + 1;
    weft__buffer_bytes(&shape, &src, &dst);
    last->needs[here].src = src > 0;
    last->needs[here].dst = dst > 0;
}

/* What the root has said of its blocks stays, unless another count has come between. */
static void note_blocks(const weft_team_t *team, const weft_coll_args_t *args,
                        const struct coll_call *call, struct coll_last *last) {
    bool goes_on = last->count == args->count && last->type == args->type;
    last->src.known = last->src.known && goes_on;
    last->dst.known = last->dst.known && goes_on;
    if (call->src_blocks.count)
        keep_blocks(&last->src, &call->src_blocks, args->src_displs, team->size);
    if (call->dst_blocks.count)
        keep_blocks(&last->dst, &call->dst_blocks, args->dst_displs, team->size);
}

static struct coll_last *room_for_last(weft_team_t *team, weft_coll_kind_t kind) {
    if (team->last[kind]) return team->last[kind];
    struct coll_last *last = team->last[kind] = weft__new(team, struct coll_last);
    if (last) *last = (struct coll_last){0};
    return last;
}

/* Counts may change from call to call: what is kept is written in place. */
void weft__call_keep(weft_team_t *team, const weft_coll_args_t *args, uint32_t flags,
                     const struct coll_call *call) {
    bool through_segment = call->algorithm >= N_ALGORITHMS && call->memory == COLL_HOST;
    if (!through_segment || call->staging || !is_plain(team, args)) return;
    struct coll_last *last = room_for_last(team, args->kind);
    if (!last) return;
    note_blocks(team, args, call, last);
    last->segment = team->segment;
    last->single_least = team->offers.least;
    last->reduction = args->reduction;
    last->type = args->type;
    last->flags = flags;
    last->count = args->count;
    last->to_all = call->kind == COLL_ALLTOALL || call->kind == COLL_ALLTOALLV;
    last->call = *call;
    last->call.src_blocks = vector_of(&last->src, last->src.known);
    last->call.dst_blocks = vector_of(&last->dst, last->dst.known);
    note_needs(team, false, last);
    note_needs(team, true, last);
}

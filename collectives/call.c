/* What may not be asked is refused here; what may is brought into one form. */
#include "call.h"

#include <base/check.h>
#include <string.h>

#include "peer.h"
#include "safe.h"
#include "types.h"
#include <transports/cuda/memory.h>

const uint8_t weft__coll_traits[N_COLL_KINDS] = {
    [COLL_BARRIER] = SIGNALS,
    [COLL_FANIN] = SIGNALS | ROOTED,
    [COLL_FANOUT] = SIGNALS | ROOTED,
    [COLL_BCAST] = ROOTED,
    [COLL_ALLREDUCE] = REDUCES,
    [COLL_GATHER] = ROOTED,
    [COLL_GATHERV] = ROOTED | V_DST,
    [COLL_SCATTER] = ROOTED,
    [COLL_SCATTERV] = ROOTED | V_SRC,
    [COLL_REDUCE] = ROOTED | REDUCES,
    [COLL_REDUCE_SCATTER] = REDUCES,
    [COLL_REDUCE_SCATTERV] = REDUCES | V_SRC,
    [COLL_ALLGATHERV] = V_DST,
    [COLL_ALLTOALLV] = V_SRC | V_DST,
    [COLL_SCAN] = REDUCES,
    [COLL_EXSCAN] = REDUCES,
    [COLL_NEIGHBOR_ALLTOALLV] = V_SRC | V_DST,
};

static bool at_root(const weft_team_t *team, const struct coll_call *call) {
    return coll_member(call, call->root) == team->rank;
}

/* ---- members, root --------------------------------------------------------------------------- */

static weft_status_t take_members(const weft_team_t *team, const weft_coll_args_t *args,
                                  struct coll_call *call) {
    if (args->members.size)
        call->set =
            (struct coll_set){args->members.start, args->members.stride, args->members.size};
    call->tagged = args->flags & WEFT_COLL_TAGGED;
    call->tag = args->tag;
    if (args->flags & ~(uint32_t)WEFT_COLL_TAGGED) REFUSE("args->flags", "not known");
    if (!call->tagged && (args->tag || args->members.size))
        REFUSE("args->flags", "a tag, or some members, without WEFT_COLL_TAGGED");
    if (call->set.size) {
        uint64_t last = call->set.start + (uint64_t)(call->set.size - 1) * call->set.stride;
        if (call->set.stride == 0 || last >= team->size)
            REFUSE("args->members", "not ranks of the team");
        if (coll_index(call, team->rank) == UINT32_MAX)
            REFUSE("args->members", "this member is none of them");
    }
    call->root = 0;
    if (!(weft__coll_traits[call->kind] & ROOTED)) return WEFT_OK;
    if (args->root >= team->size) return weft__fail_rank("root", args->root, team->size);
    call->root = coll_index(call, args->root);
    if (call->root == UINT32_MAX) REFUSE("args->root", "none of the members");
    return WEFT_OK;
}

/* ---- types and reductions -------------------------------------------------------------------- */

static weft_status_t take_reduction(const weft_team_t *team, const weft_coll_args_t *args,
                                    bool fixed_order, struct coll_call *call) {
    const struct coll_reduction *user = weft__user_reduction(team, args->reduction);
    if (user) {
        call->user = user->reduce;
        call->user_arg = user->arg;
        call->fixed_order = fixed_order || !(user->flags & WEFT_REDUCTION_COMMUTES);
        return WEFT_OK;
    }
    if ((unsigned)args->reduction >= WEFT_N_REDUCTIONS)
        REFUSE("reduction", "not a reduction of this team");
    bool prefix = call->kind == COLL_SCAN || call->kind == COLL_EXSCAN;
    call->reduce = weft__reduction(args->type, args->reduction);
    if (!call->reduce || (args->reduction == WEFT_AVG && prefix))
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "reduction: bitwise and logical ones need an integer type, minloc and "
                          "maxloc pairs, avg floating point and no scan");
    if (args->reduction == WEFT_AVG) call->scale = weft__scale(args->type);
    call->fixed_order = fixed_order && !weft__datatype_is_integer(args->type);
    return WEFT_OK;
}

static weft_status_t take_type(const weft_team_t *team, const weft_coll_args_t *args,
                               bool fixed_order, struct coll_call *call) {
    call->width = 1;
    if (weft__coll_traits[call->kind] & SIGNALS) return WEFT_OK;
    call->width = weft__type_width(team, args->type);
    call->type = args->type;
    call->reduction = args->reduction;
    if (call->width == 0) REFUSE("type", "not a datatype of this team");
    if (args->type == WEFT_LONG_DOUBLE && !team->same_long_double)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "type: long double differs between members");
    return weft__coll_traits[call->kind] & REDUCES ? take_reduction(team, args, fixed_order, call)
                                                   : WEFT_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint64_t *displacements_for(struct coll_displacements *displacements, bool of_src,
                                   uint32_t n) {
    if (displacements->few && n <= FEW_BLOCKS) return displacements->few[of_src];
    if (!displacements->owner) displacements->owner = talloc_new(NULL);
    return displacements->owner
               ? weft__alloc(displacements->owner, (n + 1) * sizeof(uint64_t), "displacements")
               : NULL;
}

/* Displacements that were not given: blocks in a row. */
static weft_status_t in_a_row(uint64_t *offset, struct coll_vector *blocks, uint32_t n) {
    uint64_t sum = 0;
    if (!offset) return WEFT_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        offset[i] = sum;
        sum += blocks->count[i];
    }
    blocks->offset = offset;
    return WEFT_OK;
}

/* An empty block may be said to lie beyond all memory: its place has no meaning. */
static weft_status_t with_places(uint64_t *offset, struct coll_vector *blocks, uint32_t n,
                                 uint64_t most) {
    if (!offset) return WEFT_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) offset[i] = blocks->offset[i] <= most ? blocks->offset[i] : 0;
    blocks->offset = offset;
    return WEFT_OK;
}

static weft_status_t take_blocks(struct coll_displacements *displacements, bool of_src,
                                 const uint64_t *counts, const uint64_t *displs, uint32_t n,
                                 uint64_t most, struct coll_vector *blocks) {
    bool beyond = false;
    if (!counts && n) REFUSE("counts", "NULL");
    if (!counts) return WEFT_OK;
    for (uint32_t i = 0; i < n; i++) {
        bool far = displs && displs[i] > most * n;
        if (counts[i] > most || (far && counts[i]))
            return weft__fail(WEFT_ERR_TOO_BIG, "counts[%u]: too many elements", i);
        beyond = beyond || far;
    }
    *blocks = (struct coll_vector){counts, displs};
    if (displs && !beyond) return WEFT_OK;
    uint64_t *own = displacements_for(displacements, of_src, n);
    return displs ? with_places(own, blocks, n, most * n) : in_a_row(own, blocks, n);
}

static weft_status_t take_graph(const weft_team_t *team, const weft_coll_args_t *args,
                                struct coll_call *call) {
    const weft_neighbors_t *graph = args->graph;
    if (!graph) REFUSE("graph", "NULL");
    if (call->set.size) REFUSE("args->members", "a graph is of the whole team");
    if ((!graph->sources && graph->n_sources) || (!graph->destinations && graph->n_destinations))
        REFUSE("graph", "a list is NULL");
    for (uint32_t i = 0; i < graph->n_sources; i++)
        if (graph->sources[i] >= team->size) REFUSE("graph->sources", "not ranks of the team");
    for (uint32_t i = 0; i < graph->n_destinations; i++)
        if (graph->destinations[i] >= team->size)
            REFUSE("graph->destinations", "not ranks of the team");
    call->n_sources = graph->n_sources;
    call->n_destinations = graph->n_destinations;
    call->source = graph->sources;
    call->destination = graph->destinations;
    return WEFT_OK;
}

/* Some counts are given at the root only. */
static bool has_arrays(const weft_team_t *team, const struct coll_call *call) {
    return !(weft__coll_traits[call->kind] & ROOTED) || at_root(team, call);
}

weft_status_t weft__coll_arrays(const weft_team_t *team, const weft_coll_args_t *args,
                                uint32_t *n_src_p, uint32_t *n_dst_p) {
    struct coll_call call = {.kind = (enum coll_kind)args->kind};
    if ((unsigned)args->kind >= N_COLL_KINDS) REFUSE("args->kind", "not a collective");
    weft_status_t st = take_members(team, args, &call);
    bool has_graph = call.kind == COLL_NEIGHBOR_ALLTOALLV;
    if (st == WEFT_OK && has_graph) st = take_graph(team, args, &call);
    if (st < 0) return st;
    uint32_t size = has_arrays(team, &call) ? coll_size(team, &call) : 0;
    *n_src_p = weft__coll_traits[call.kind] & V_SRC ? has_graph ? call.n_destinations : size : 0;
    *n_dst_p = weft__coll_traits[call.kind] & V_DST ? has_graph ? call.n_sources : size : 0;
    return WEFT_OK;
}

/* Where each member names the counts of all, and in signals, `count` is ignored. */
static bool has_count(enum coll_kind kind) {
    unsigned traits = weft__coll_traits[kind];
    return !(traits & SIGNALS) && (traits & ROOTED || !(traits & (V_SRC | V_DST)));
}

static weft_status_t take_counts(const weft_team_t *team, const weft_coll_args_t *args,
                                 struct coll_displacements *displacements, struct coll_call *call) {
    uint32_t size = coll_size(team, call), n_src = size, n_dst = size;
    uint32_t own = coll_index(call, team->rank);
    uint64_t most = ELEMENTS_MOST(call->width, size);
    bool v_src = weft__coll_traits[call->kind] & V_SRC,
         v_dst = weft__coll_traits[call->kind] & V_DST;
    weft_status_t st = WEFT_OK;
    call->count = has_count(call->kind) ? args->count : 0;
    if (call->count > most) return weft__fail(WEFT_ERR_TOO_BIG, "count: %zu elements", args->count);
    if (call->kind == COLL_NEIGHBOR_ALLTOALLV) {
        st = take_graph(team, args, call);
        n_src = call->n_destinations;
        n_dst = call->n_sources;
    }
    bool here = has_arrays(team, call);
    bool row = call->kind == COLL_REDUCE_SCATTERV;
    if (st == WEFT_OK && v_src && here)
        st = take_blocks(displacements, true, args->src_counts, row ? NULL : args->src_displs,
                         n_src, most, &call->src_blocks);
    if (st == WEFT_OK && v_dst && here)
        st = take_blocks(displacements, false, args->dst_counts, args->dst_displs, n_dst, most,
                         &call->dst_blocks);
    if (st < 0) return st;
    if (row) call->count = args->src_counts[own];
    if (call->kind == COLL_ALLGATHERV) call->count = args->dst_counts[own];
    return WEFT_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t reach(const struct coll_shape *shape, struct coll_vector blocks, uint32_t n) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct piece block = weft__block(shape, blocks, i);
        if (block.len && block.offset + block.len > most) most = block.offset + block.len;
    }
    return most;
}

void weft__buffer_bytes(const struct coll_shape *shape, uint64_t *src_p, uint64_t *dst_p) {
    uint64_t plain = shape->count * shape->width;
    bool root = shape->rank == shape->root;
    *src_p = *dst_p = plain;
    switch (shape->kind) {
    case COLL_BARRIER:
    case COLL_FANIN:
    case COLL_FANOUT: *src_p = *dst_p = 0; break;
    case COLL_BCAST: *src_p = 0; break;
    case COLL_REDUCE: *dst_p = root ? plain : 0; break;
    case COLL_GATHER:
    case COLL_GATHERV: *dst_p = root ? reach(shape, shape->dst, shape->size) : 0; break;
    case COLL_SCATTER:
    case COLL_SCATTERV: *src_p = root ? reach(shape, shape->src, shape->size) : 0; break;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV: *dst_p = reach(shape, shape->dst, shape->size); break;
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV: *src_p = reach(shape, shape->src, shape->size); break;
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        *src_p = reach(shape, shape->src, shape->size);
        *dst_p = reach(shape, shape->dst, shape->size);
        break;
    case COLL_NEIGHBOR_ALLTOALLV:
        *src_p = reach(shape, shape->src, shape->n_destinations);
        *dst_p = reach(shape, shape->dst, shape->n_sources);
        break;
    default: break;
    }
}

/* WEFT_IN_PLACE becomes the address that it stands for. `extent`: bytes from an element to the
 * next. */
static weft_status_t in_place(const struct coll_shape *shape, size_t extent,
                              struct coll_call *call) {
    bool root = shape->rank == shape->root;
    uint8_t *dst = call->dst;
    uint64_t to = weft__dst_block(shape, shape->rank).offset / shape->width * extent;
    uint64_t from = weft__src_block(shape, shape->rank).offset / shape->width * extent;
    if (call->dst == WEFT_IN_PLACE) {
        if ((shape->kind != COLL_SCATTER && shape->kind != COLL_SCATTERV) || !root)
            REFUSE("dst", "WEFT_IN_PLACE where it is not possible");
        call->dst = (uint8_t *)call->src + from;
    }
    if (call->src != WEFT_IN_PLACE) return WEFT_OK;
    call->src = dst;
    switch (shape->kind) {
    case COLL_ALLREDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN:
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV: return WEFT_OK;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV: call->src = dst + to; return WEFT_OK;
    case COLL_GATHER:
    case COLL_GATHERV:
        call->src = dst + to;
        if (root) return WEFT_OK;
        break;
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV: call->dst = dst + from; return WEFT_OK;
    case COLL_REDUCE:
        if (root) return WEFT_OK;
        break;
    default: break;
    }
    REFUSE("src", "WEFT_IN_PLACE where it is not possible");
}

/* A block for each edge, and none that is this rank's own. */
static weft_status_t never_in_place(const struct coll_call *call) {
    if (call->src == WEFT_IN_PLACE) REFUSE("src", "WEFT_IN_PLACE, of neighbours");
    if (call->dst == WEFT_IN_PLACE) REFUSE("dst", "WEFT_IN_PLACE, of neighbours");
    return WEFT_OK;
}

/* Blocks at the root only: elsewhere there is no vector, and none is looked at. */
static weft_status_t take_memory(const weft_team_t *team, const weft_coll_args_t *args,
                                 struct coll_call *call) {
    struct coll_shape shape = weft__coll_shape(team, call);
    uint64_t src, dst;
    bool to_all = call->kind == COLL_ALLTOALL || call->kind == COLL_ALLTOALLV;
    call->src = call->kind == COLL_BCAST ? NULL : args->src;
    call->dst = args->dst;
    if (weft__coll_traits[call->kind] & SIGNALS) return WEFT_OK;
    weft_status_t st = call->kind == COLL_NEIGHBOR_ALLTOALLV
                           ? never_in_place(call)
                           : in_place(&shape, weft__type_extent(team, args->type), call);
    weft__buffer_bytes(&shape, &src, &dst);
    if (st == WEFT_OK)
        st = weft__check_memory(call->kind == COLL_BCAST ? "buf" : "dst", call->dst, dst);
    if (st == WEFT_OK) st = weft__check_memory("src", call->src, src);
    if (st < 0) return st;
    call->in_place = to_all && call->src == call->dst;
    return weft__stage(team, args->type, &shape, call);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static struct coll_chosen asked_now(const weft_team_t *team, const struct coll_call *call) {
    return (struct coll_chosen){.segment = team->segment,
                                .count = call->count,
                                .single_least = team->offers.least,
                                .width = call->width,
                                .set_size = call->set.size,
                                .per_core = team->per_core,
                                .memory = call->memory,
                                .fixed_order = call->fixed_order,
                                .persistent = call->persistent,
                                .tagged = call->tagged};
}

static bool is_as_asked(const struct coll_chosen *a, const struct coll_chosen *b) {
    return a->segment == b->segment && a->count == b->count && a->single_least == b->single_least &&
           a->width == b->width && a->set_size == b->set_size && a->per_core == b->per_core &&
           a->memory == b->memory && a->fixed_order == b->fixed_order &&
           a->persistent == b->persistent && a->tagged == b->tagged;
}

static unsigned choose_for(const weft_team_t *team, const struct coll_call *call) {
    /* Members need not give an equal count where it has no meaning. */
    bool signals = weft__coll_traits[call->kind] & SIGNALS;
    struct question question = {.kind = call->kind,
                                .bytes = signals ? 0 : call->count * call->width,
                                .ranks = coll_size(team, call),
                                .per_core = team->per_core,
                                .fixed_order = call->fixed_order,
                                .slots = weft__slots_can_take(team, call),
                                .oneshot = weft__oneshot_can_take(team, call),
                                .single_copy = weft__single_copy_can_take(team, call),
                                .single_least = team->offers.least,
                                .exposed = team->offers.exposed,
                                .by_host = team->n_hosts > 1 && team->n_hosts < team->size &&
                                           !call->set.size,
                                .asks_nothing = call->persistent,
                                .peer = call->memory == COLL_CUDA,
                                .memory = call->memory};
    return weft__choose(&team->choices, &question);
}

/* A program calls the same again and again. */
unsigned weft__collective_choice(weft_team_t *team, const struct coll_call *call) {
    struct coll_chosen *last = &team->chosen[call->kind], now = asked_now(team, call);
    if (last->known && is_as_asked(last, &now)) return last->algorithm;
    now.algorithm = choose_for(team, call);
    now.known = true;
    *last = now;
    return now.algorithm;
}

/* Where all give the same count, no element is none anywhere. */
static bool is_nothing(const struct coll_call *call) {
    return call->count == 0 && !(weft__coll_traits[call->kind] & (V_SRC | V_DST | SIGNALS));
}

weft_status_t weft__coll_resolve(weft_team_t *team, const weft_coll_args_t *args, uint32_t flags,
                                 struct coll_displacements *displacements, struct coll_call *call,
                                 bool *nothing_p) {
    *call = (struct coll_call){.kind = (enum coll_kind)args->kind,
                               .memory = COLL_HOST,
                               .persistent = flags & COLL_PERSISTENT};
    if ((unsigned)args->kind >= N_COLL_KINDS) REFUSE("args->kind", "not a collective");
    weft_status_t st = take_members(team, args, call);
    if (st == WEFT_OK) st = take_type(team, args, flags & WEFT_COLL_FIXED_ORDER, call);
    if (st == WEFT_OK) st = take_counts(team, args, displacements, call);
    if (st < 0) return st;
    *nothing_p = is_nothing(call);
    if (*nothing_p) return WEFT_OK;
    st = take_memory(team, args, call);
    if (st == WEFT_OK) call->algorithm = weft__collective_choice(team, call);
    return st;
}

/* ---- a call ---------------------------------------------------------------------------------- */

static weft_status_t refuse_call(const struct coll_call *call, weft_status_t status) {
    if (call->staging) weft__staging_drop(call->staging);
    return status;
}

static weft_status_t start_call(weft_team_t *team, const struct coll_call *call,
                                const weft_op_t *op) {
    struct safe *safe;
    if (!is_safe(op)) return weft__collective_start(team, call, op, NULL);
    weft_status_t st = weft__safe_new(team, op, &safe, &op);
    if (st < 0) return refuse_call(call, st);
    st = weft__team_usable(team);
    return weft__safe_begun(safe, st < 0 ? refuse_call(call, st)
                                         : weft__collective_start(team, call, op, NULL));
}

static weft_status_t call_described(weft_team_t *team, const weft_coll_args_t *args,
                                    const weft_op_t *op) {
    struct coll_call call;
    bool nothing = false;
    uint32_t flags = op ? op->flags : 0;
    uint64_t few[2][FEW_BLOCKS];
    struct coll_displacements displacements = {.few = few};
    weft_status_t st = weft__coll_resolve(team, args, flags, &displacements, &call, &nothing);
    bool resolved = st == WEFT_OK;
    if (resolved && (nothing || !is_safe(op))) st = weft__team_usable(team);
    if (resolved && st < 0) refuse_call(&call, st);
    if (st == WEFT_OK && !nothing) {
        weft__call_keep(team, args, flags, &call);
        st = start_call(team, &call, op);
    }
    talloc_free(displacements.owner);
    return st;
}

weft_status_t weft__coll_call(weft_team_t *team, const weft_coll_args_t *args,
                              const weft_op_t *op) {
    if (!team) REFUSE("team", "NULL");
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__check_streamed_op(op, WEFT_COLL_FIXED_ORDER | WEFT_COLL_SAFE);
    if (st == WEFT_OK) st = weft__check_no_layout(op);
    if (st < 0) return st;
    if (op && op->stream) return weft__coll_call_streamed(team, args, op);
    const struct coll_call *call = weft__call_again(team, args, op ? op->flags : 0);
    if (!call || is_safe(op)) return call_described(team, args, op);
    st = weft__team_usable(team);
    return st < 0 ? st : weft__collective_start(team, call, op, NULL);
}

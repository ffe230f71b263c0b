/* Registers types and reductions of the program, and packs and unpacks what a call reads and
 * writes. */
#include "types.h"
#include <base/check.h>
#include <transports/cuda/memory.h>

#include <string.h>

#include "call.h"
#include "peer.h"

/* ---- the tables ------------------------------------------------------------------------------ */

static struct coll_types *types_of(weft_team_t *team) {
    if (!team->types) team->types = weft__new(team, struct coll_types);
    return team->types;
}

static const struct coll_type *user_type(const weft_team_t *team, weft_datatype_t type) {
    uint32_t i = (uint32_t)type - WEFT_DATATYPE_USER;
    return team->types && i < team->types->n_types ? &team->types->type[i] : NULL;
}

uint32_t weft__type_width(const weft_team_t *team, weft_datatype_t type) {
    const struct coll_type *user = user_type(team, type);
    return user ? user->size : (uint32_t)weft_datatype_size(type);
}

size_t weft__type_extent(const weft_team_t *team, weft_datatype_t type) {
    const struct coll_type *user = user_type(team, type);
    return user ? user->extent : weft_datatype_size(type);
}

const struct coll_reduction *weft__user_reduction(const weft_team_t *team,
                                                  weft_reduction_t reduction) {
    uint32_t i = (uint32_t)reduction - WEFT_REDUCTION_USER;
    return team->types && i < team->types->n_reductions ? &team->types->reduction[i] : NULL;
}

enum { TYPES_MOST = 4096, TYPE_BYTES_MOST = 1 << 30 };

static weft_status_t check_layout(const weft_datatype_params_t *params) {
    const weft_layout_t *layout = params->layout;
    if (!layout) return WEFT_OK;
    if (layout->reserved[0] | layout->reserved[1]) REFUSE("params->layout", "reserved fields");
    if (params->extent == 0) REFUSE("params->extent", "0, with a layout");
    if (layout->kind == WEFT_LAYOUT_STRIDED) {
        if (layout->block == 0 || layout->count != params->size / layout->block ||
            params->size % layout->block)
            REFUSE("params->layout", "count x block is not size");
        return WEFT_OK;
    }
    if (layout->kind != WEFT_LAYOUT_USER) REFUSE("params->layout", "not a kind of layout");
    if (!layout->user || !layout->user->pack || !layout->user->unpack)
        REFUSE("params->layout", "pack or unpack is NULL");
    return WEFT_OK;
}

weft_status_t weft_datatype_create_sized(size_t params_size, weft_team_t *team,
                                         const weft_datatype_params_t *params,
                                         weft_datatype_t *type_p) {
    if (!team) REFUSE("team", "NULL");
    if (!params) REFUSE("params", "NULL");
    if (!type_p) REFUSE("type_p", "NULL");
    weft_datatype_params_t known = {0};
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__params_read(&known, sizeof known, params, params_size);
    if (st == WEFT_OK) st = check_layout(&known);
    if (st < 0) return st;
    if (known.size == 0 || known.size > TYPE_BYTES_MOST) REFUSE("params->size", "out of range");
    struct coll_types *types = types_of(team);
    if (!types || types->n_types == TYPES_MOST) return WEFT_ERR_NO_MEMORY;
    struct coll_type *all =
        weft__realloc(types, types->type, (types->n_types + 1) * sizeof *all, "types");
    if (!all) return WEFT_ERR_NO_MEMORY;
    types->type = all;
    all[types->n_types] = (struct coll_type){.size = (uint32_t)known.size,
                                             .extent = known.layout ? known.extent : known.size,
                                             .has_layout = known.layout != NULL};
    if (known.layout) all[types->n_types].layout = *known.layout;
    all[types->n_types].arg = known.arg;
    *type_p = (weft_datatype_t)(WEFT_DATATYPE_USER + types->n_types++);
    return WEFT_OK;
}

weft_status_t weft_reduction_create(weft_team_t *team, weft_reduce_fn reduce, void *arg,
                                    uint32_t flags, weft_reduction_t *reduction_p) {
    if (!team) REFUSE("team", "NULL");
    if (!reduce) REFUSE("reduce", "NULL");
    if (!reduction_p) REFUSE("reduction_p", "NULL");
    if (flags & ~(uint32_t)WEFT_REDUCTION_COMMUTES) REFUSE("flags", "not known");
    weft_status_t st = weft__worker_check(team->worker);
    if (st < 0) return st;
    struct coll_types *types = types_of(team);
    if (!types || types->n_reductions == TYPES_MOST) return WEFT_ERR_NO_MEMORY;
    struct coll_reduction *all = weft__realloc(
        types, types->reduction, (types->n_reductions + 1) * sizeof *all, "reductions");
    if (!all) return WEFT_ERR_NO_MEMORY;
    types->reduction = all;
    all[types->n_reductions] = (struct coll_reduction){reduce, arg, flags};
    *reduction_p = (weft_reduction_t)(WEFT_REDUCTION_USER + types->n_reductions++);
    return WEFT_OK;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* What is read or written of a buffer. */
struct pieces {
    uint32_t n;
    bool blocks; /* those of a vector; else one of `count` elements */
    struct coll_vector v;
};

struct coll_staging {
    struct coll_type type;
    uint8_t *packed; /* DST's */
    uint8_t *dst;    /* the program's */
    /* of a persistent collective, which packs at each start */
    bool is_kept;
    struct coll_shape shape;
    struct pieces src;
    uint8_t *packed_src;
    const void *from;
    uint32_t n_pieces;
    struct piece piece[]; /* of DST, packed bytes */
};

/* Elements [first, first + count) of `memory`, from or to their packed form. */
static weft_status_t move_user(const struct coll_type *type, uint8_t *memory, uint8_t *packed,
                               size_t count, bool packs) {
    const weft_pack_ops_t *ops = type->layout.user;
    void *state = type->arg && ops->start ? type->arg : memory;
    size_t len = count;
    weft_status_t st = ops->start ? ops->start(memory, count, !packs, &state, &len) : WEFT_OK;
    if (st < 0) return st;
    if (ops->start && len != count * type->size)
        st = weft__fail(WEFT_ERR_INVALID_PARAM, "layout: start gave another length");
    len = count * type->size;
    if (st == WEFT_OK)
        st = packs ? ops->pack(state, 0, packed, len) : ops->unpack(state, 0, packed, len);
    if (ops->end) ops->end(state);
    return st;
}

static void move_strided(const struct coll_type *type, uint8_t *memory, uint8_t *packed,
                         size_t count, bool packs) {
    const weft_layout_t *layout = &type->layout;
    for (size_t i = 0; i < count; i++, memory += type->extent)
        for (size_t b = 0; b < layout->count; b++, packed += layout->block) {
            uint8_t *block = memory + b * layout->stride;
            memcpy(packs ? packed : block, packs ? block : packed, layout->block);
        }
}

/* Elements without a layout are staged if they lie on a device. */
static weft_status_t move_plain(const struct coll_type *type, uint8_t *memory, uint8_t *packed,
                                size_t len, bool packs) {
    struct cuda_memory found;
    struct cuda_place place;
    if (!weft__cuda_find(memory, &found) || found.managed) {
        memcpy(packs ? packed : memory, packs ? memory : packed, len);
        return WEFT_OK;
    }
    weft_status_t st = weft__cuda_place(type->given, &found, &place);
    if (st < 0) return st;
    return packs ? weft__cuda_read(place, packed, memory, len)
                 : weft__cuda_write(place, memory, packed, len);
}

/* The same with blocks at a stride: all elements in one copy. */
static weft_status_t move_blocks(const struct coll_type *type, uint8_t *memory, uint8_t *packed,
                                 size_t count, const struct cuda_memory *found, bool packs) {
    const weft_layout_t *layout = &type->layout;
    bool even = type->extent == layout->count * layout->stride;
    struct cuda_place place;
    const struct cuda_blocks blocks = {.device = memory,
                                       .host = packed,
                                       .width = layout->block,
                                       .pitch = layout->stride,
                                       .rows = even ? count * layout->count : layout->count,
                                       .planes = even ? 1 : count,
                                       .plane_pitch = type->extent};
    weft_status_t st = weft__cuda_place(type->given, found, &place);
    if (st < 0) return st;
    return packs ? weft__cuda_read_blocks(place, &blocks) : weft__cuda_write_blocks(place, &blocks);
}

static weft_status_t move_elements(const struct coll_type *type, uint8_t *memory, uint8_t *packed,
                                   struct piece piece, bool packs) {
    uint64_t first = piece.offset / type->size, count = piece.len / type->size;
    if (count == 0) return WEFT_OK;
    memory += first * type->extent;
    packed += piece.offset;
    if (!type->has_layout) return move_plain(type, memory, packed, count * type->size, packs);
    if (type->layout.kind == WEFT_LAYOUT_USER) return move_user(type, memory, packed, count, packs);
    struct cuda_memory found;
    if (weft__is_device_memory(memory) && weft__cuda_find(memory, &found))
        return move_blocks(type, memory, packed, count, &found, packs);
    move_strided(type, memory, packed, count, packs);
    return WEFT_OK;
}

/* ---- what a call reads and writes ------------------------------------------------------------ */

static void pieces_of(const struct coll_shape *shape, struct pieces *src, struct pieces *dst) {
    bool root = shape->rank == shape->root;
    *src = *dst = (struct pieces){.n = 1};
    struct pieces from = {shape->size, true, shape->src}, to = {shape->size, true, shape->dst};
    switch (shape->kind) {
    case COLL_BCAST: src->n = root; break;
    case COLL_REDUCE: dst->n = root; break;
    case COLL_EXSCAN: dst->n = shape->rank > 0; break;
    case COLL_GATHER:
    case COLL_GATHERV:
        to.n = root ? to.n : 0;
        *dst = to;
        break;
    case COLL_SCATTER:
    case COLL_SCATTERV:
        from.n = root ? from.n : 0;
        *src = from;
        break;
    case COLL_ALLGATHER:
    case COLL_ALLGATHERV: *dst = to; break;
    case COLL_REDUCE_SCATTER:
    case COLL_REDUCE_SCATTERV: *src = from; break;
    case COLL_NEIGHBOR_ALLTOALLV:
        from.n = shape->n_destinations;
        to.n = shape->n_sources; /* fall through */
    case COLL_ALLTOALL:
    case COLL_ALLTOALLV:
        *src = from;
        *dst = to;
        break;
    default: break;
    }
}

static struct piece piece_at(const struct coll_shape *shape, const struct pieces *p, uint32_t i) {
    return p->blocks ? weft__block(shape, p->v, i) : (struct piece){0, shape->count * shape->width};
}

static uint64_t packed_bytes(const struct coll_shape *shape, const struct pieces *p) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        struct piece piece = piece_at(shape, p, i);
        if (piece.len && piece.offset + piece.len > most) most = piece.offset + piece.len;
    }
    return most;
}

weft_status_t weft__staging_pack(const struct coll_staging *staging) {
    const struct pieces *src = &staging->src;
    weft_status_t st = WEFT_OK;
    for (uint32_t i = 0; i < src->n && st == WEFT_OK; i++)
        st = move_elements(&staging->type, (uint8_t *)(uintptr_t)staging->from, staging->packed_src,
                           piece_at(&staging->shape, src, i), true);
    return st;
}

/* A bcast's root has no result to unpack. */
static void note_result(const struct coll_shape *shape, const struct pieces *dst,
                        struct coll_staging *staging) {
    bool none = shape->kind == COLL_BCAST && shape->rank == shape->root;
    staging->n_pieces = none ? 0 : dst->n;
    for (uint32_t i = 0; i < staging->n_pieces; i++) staging->piece[i] = piece_at(shape, dst, i);
}

static weft_status_t stage_as(const weft_team_t *team, const struct coll_type *type,
                              const struct coll_shape *shape, bool keeps, struct coll_call *call) {
    struct pieces src, dst;
    pieces_of(shape, &src, &dst);
    struct coll_staging *staging = weft__realloc(
        team, NULL, sizeof *staging + dst.n * sizeof staging->piece[0], "struct coll_staging");
    if (!staging) return WEFT_ERR_NO_MEMORY;
    bool bcast = shape->kind == COLL_BCAST;
    staging->type = *type;
    staging->type.given = weft__reactor_given(team->reactor);
    staging->dst = call->dst;
    staging->is_kept = keeps;
    staging->shape = *shape;
    staging->src = src;
    staging->from = bcast ? call->dst : call->src;
    staging->packed = weft__alloc(staging, packed_bytes(shape, &dst) + 1, "packed");
    staging->packed_src =
        bcast ? staging->packed : weft__alloc(staging, packed_bytes(shape, &src) + 1, "packed");
    weft_status_t st = staging->packed && staging->packed_src ? WEFT_OK : WEFT_ERR_NO_MEMORY;
    if (st == WEFT_OK && !staging->is_kept) st = weft__staging_pack(staging);
    if (st < 0) {
        talloc_free(staging);
        return st;
    }
    note_result(shape, &dst, staging);
    call->src = staging->packed_src;
    call->dst = staging->packed;
    call->in_place = false;
    call->staging = staging;
    return WEFT_OK;
}

weft_status_t weft__stage_device(const weft_team_t *team, struct coll_call *call) {
    struct coll_shape shape = weft__coll_shape(team, call);
    struct coll_type plain = {.size = call->width, .extent = call->width};
    return stage_as(team, &plain, &shape, false, call);
}

/* All memory that the call reads and writes here lies on a device. */
static bool is_all_on_device(const struct coll_shape *shape, const struct coll_call *call) {
    struct pieces src, dst;
    pieces_of(shape, &src, &dst);
    bool bcast = shape->kind == COLL_BCAST;
    return (bcast || !src.n || weft__is_device_memory(call->src)) &&
           (!dst.n || weft__is_device_memory(call->dst));
}

weft_status_t weft__stage(const weft_team_t *team, weft_datatype_t type,
                          const struct coll_shape *shape, struct coll_call *call) {
    const struct coll_type *user = user_type(team, type);
    struct coll_type plain = {.size = call->width, .extent = call->width};
    bool laid_out = user && user->has_layout;
    bool on_device = weft__is_device_memory(call->src) || weft__is_device_memory(call->dst);
    if (!laid_out && !on_device) return WEFT_OK;
    if (!laid_out && weft__peer_may_take(team, call) && is_all_on_device(shape, call)) {
        call->memory = COLL_CUDA;
        return WEFT_OK;
    }
    return stage_as(team, laid_out ? user : &plain, shape, call->persistent, call);
}

void weft__staging_drop(struct coll_staging *staging) {
    if (!staging->is_kept) talloc_free(staging);
}

void weft__staging_end(struct coll_staging *staging, weft_status_t *status_p) {
    weft_status_t st = *status_p;
    for (uint32_t i = 0; i < staging->n_pieces && st == WEFT_OK; i++)
        st = move_elements(&staging->type, staging->dst, staging->packed, staging->piece[i], false);
    *status_p = st;
    weft__staging_drop(staging);
}

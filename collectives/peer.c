/*
 * Collectives of device memory by peer memory. Each member writes a record of its buffers into the
 * team's segment (exported for IPC), maps those of the others, lets its device fold and copy from
 * them, and waits until all are done with its own.
 *
 * Members need not agree beforehand whose memory is where. A member whose buffers lie elsewhere
 * writes no record, only that it has passed this call. Those with device memory look at all
 * members: if one wrote none, or a mapping failed, they stage their buffers in host memory and go
 * the way that this one went. Until that is decided, later collectives of this member wait
 * (weft__deferred), for the numbers that their engines count must be the same everywhere.
 *
 * A device may work on memory of the others until all have left. So a collective that is stopped
 * withdraws its record, and waits for devices that had begun before they could see that.
 */
#include "peer.h"

#include <base/counters.h>
#include <endpoints/transfer/device_staging.h>
#include <stdio.h>
#include <string.h>
#include <transports/cuda/copies.h>
#include <transports/cuda/kernels.h>
#include <transports/cuda/memory.h>

#include "call.h"
#include "types.h"

/* What a member says of itself in its record, in this order. */
enum peer_stage {
    ENTERED = 1,
    MAPPED,
    UNMAPPABLE,
    FIRST_RUNS,
    FIRST_DONE,
    SECOND_RUNS,
    SECOND_DONE
};
enum { IS_ABLE = 1, IN_PLACE = 2 };
/* Below this many bytes one pass over all costs less than two that wait for one another. */
enum { ONE_PASS_MOST = 256 << 10 };
/* How long a stopped one waits for devices of others, ns. */
static const uint64_t drain_most = 1000000000;

struct peer {
    cuda_context context;
    struct segment_peer *own; /* NULL: no channel yet */
    const struct segment_peer *record[PEER_MOST_MEMBERS];
    struct cuda_import *import[2 * PEER_MOST_MEMBERS];
    uint32_t n_imports;
    uint64_t src[PEER_MOST_MEMBERS], dst[PEER_MOST_MEMBERS]; /* as this device sees them */
    enum peer_stage stage;
    bool decided, two;
    bool is_awaited; /* the driver reports the end of the device's work */
    struct cuda_copy end;
    weft_status_t end_status; /* of the last end; IO: it will not be reported */
    struct reactor *reactor;
    uint64_t stopped_at;
};

bool weft__peer_may_take(const weft_team_t *team, const struct coll_call *call) {
    return team->segment && weft__peer_knows(call->kind) && !call->tagged && !call->set.size;
}

/* ---- what others wait for -------------------------------------------------------------------- */

static bool is_undecided(const struct collective *c) {
    return c->peer && !c->peer->decided;
}

bool weft__peer_is_undecided(const weft_team_t *team, const struct collective *before) {
    if (!team->n_peer && !team->n_deferred) return false;
    list_for_each(at, &team->active) {
        const struct collective *c = list_of(at, struct collective, of_team);
        if (c == before) return false;
        if (c->status == WEFT_OK && (is_undecided(c) || c->engine == &weft__deferred)) return true;
    }
    return false;
}

void weft__peer_note(weft_team_t *team) {
    uint64_t passed = team->n_calls, left = team->n_calls;
    if (!team->segment) return;
    struct segment_member *own = &team->segment->member[team->rank];
    for (const struct list *at = team->active.next; team->n_peer && at != &team->active;
         at = at->next) {
        const struct collective *c = list_of(at, struct collective, of_team);
        if (!c->peer) continue;
        if (!c->peer->own && c->number < passed) passed = c->number;
        if (c->number < left) left = c->number;
    }
    atomic_store_explicit(&own->calls, passed, memory_order_release);
    atomic_store_explicit(&own->calls_left, left, memory_order_release);
    if (atomic_load_explicit(&team->segment->head->peers, memory_order_relaxed))
        weft__shared_wake(team, FOR_NEWS);
}

static uint64_t calls_of(const weft_team_t *team, uint32_t rank) {
    return atomic_load_explicit(&team->segment->member[rank].calls, memory_order_acquire);
}

/* ---- this member's record -------------------------------------------------------------------- */

static void publish(struct collective *c, enum peer_stage stage) {
    c->peer->stage = stage;
    atomic_store_explicit(&c->peer->own->stage, stage, memory_order_seq_cst);
    weft__shared_wake(c->team, FOR_NEWS);
}

/* A record that no member reads any more: NULL, none yet. */
static struct segment_peer *free_record(const weft_team_t *team) {
    for (uint32_t i = 0; i < SEGMENT_CHANNELS; i++) {
        struct segment_peer *record = segment_peer(team->segment, i, team->rank);
        uint64_t call = atomic_load_explicit(&record->call, memory_order_relaxed);
        bool is_free = true;
        for (uint32_t r = 0; r < team->size && call && is_free; r++)
            is_free = atomic_load_explicit(&team->segment->member[r].calls_left,
                                           memory_order_acquire) >= call;
        if (is_free) return record;
    }
    return NULL;
}

static bool has_src(const struct collective *c) {
    bool root = c->team->rank == c->call.root;
    return c->call.kind != COLL_BCAST && (c->call.kind != COLL_SCATTER || root);
}
static bool has_dst(const struct collective *c) {
    bool root = c->team->rank == c->call.root;
    return (c->call.kind != COLL_REDUCE && c->call.kind != COLL_GATHER) || root;
}

/* Bytes of the two buffers. */
static uint64_t src_bytes(const struct collective *c) {
    bool blocks = c->call.kind == COLL_SCATTER || c->call.kind == COLL_REDUCE_SCATTER ||
                  c->call.kind == COLL_ALLTOALL;
    return coll_bytes(&c->call) * (blocks ? c->team->size : 1);
}
static uint64_t dst_bytes(const struct collective *c) {
    bool blocks = c->call.kind == COLL_GATHER || c->call.kind == COLL_ALLGATHER ||
                  c->call.kind == COLL_ALLTOALL;
    return coll_bytes(&c->call) * (blocks ? c->team->size : 1);
}

/* Where a fold would overwrite what another member still reads. */
static bool is_awkward_in_place(const struct collective *c) {
    const struct coll_call *call = &c->call;
    if (call->src != call->dst || call->kind == COLL_BCAST) return false;
    return call->kind == COLL_ALLTOALL || call->kind == COLL_SCAN || call->kind == COLL_EXSCAN ||
           c->team->size > KERNEL_MOST_INPUTS;
}

static bool is_able(struct collective *c) {
    const struct coll_call *call = &c->call;
    bool reduces = call->reduce || call->user;
    if (call->algorithm != ALGORITHM_PEER || c->team->size > PEER_MOST_MEMBERS) return false;
    if (call->user || (reduces && !weft__cuda_reduces(call->type, call->reduction))) return false;
    if (is_awkward_in_place(c)) return false;
    return weft__cuda_queue_open(c->peer->context) == WEFT_OK;
}

static void peer_enter(struct collective *c) {
    struct segment_peer *own = c->peer->own;
    bool able = is_able(c);
    if (able && has_src(c))
        able = weft__cuda_export(c->call.src, src_bytes(c), &own->src) == WEFT_OK;
    if (able && has_dst(c))
        able = weft__cuda_export(c->call.dst, dst_bytes(c), &own->dst) == WEFT_OK;
    own->flags = (able ? IS_ABLE : 0u) | (c->call.src == c->call.dst ? IN_PLACE : 0u);
    atomic_store_explicit(&own->withdrawn, 0, memory_order_relaxed);
    atomic_store_explicit(&own->stage, ENTERED, memory_order_relaxed);
    atomic_store_explicit(&own->call, c->number + 1, memory_order_release);
    c->peer->stage = ENTERED;
    atomic_store_explicit(&c->team->segment->head->peers, 1, memory_order_relaxed);
    weft__peer_note(c->team);
    weft__shared_wake(c->team, FOR_NEWS);
}

/* ---- the others' ----------------------------------------------------------------------------- */

static const struct segment_peer *find_record(const struct collective *c, uint32_t rank) {
    for (uint32_t i = 0; i < SEGMENT_CHANNELS; i++) {
        const struct segment_peer *record = segment_peer(c->team->segment, i, rank);
        if (atomic_load_explicit(&record->call, memory_order_acquire) == c->number + 1)
            return record;
    }
    return NULL;
}

static bool all_passed(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (calls_of(c->team, r) <= c->number) return false;
    return true;
}

static enum peer_stage stage_of(const struct collective *c, uint32_t rank) {
    return (enum peer_stage)atomic_load_explicit(&c->peer->record[rank]->stage,
                                                 memory_order_seq_cst);
}

static bool all_are_at(const struct collective *c, enum peer_stage stage) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (stage_of(c, r) < stage) return false;
    return true;
}

static bool any_is(const struct collective *c, enum peer_stage stage) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (stage_of(c, r) == stage) return true;
    return false;
}

static bool any_has_withdrawn(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (atomic_load_explicit(&c->peer->record[r]->withdrawn, memory_order_seq_cst)) return true;
    return false;
}

/* All have passed: false, if one has no record of memory that others can map. */
static bool find_records(struct collective *c) {
    bool good = c->team->size <= PEER_MOST_MEMBERS;
    for (uint32_t r = 0; good && r < c->team->size; r++) {
        c->peer->record[r] = find_record(c, r);
        good = c->peer->record[r] && c->peer->record[r]->flags & IS_ABLE;
    }
    return good;
}

static bool map_one(struct peer *peer, const struct cuda_export *exported, uint64_t *at_p) {
    void *at;
    if (exported->len == 0) return true; /* it has no such buffer */
    struct cuda_export copy = *exported; /* another process could change it meanwhile */
    if (weft__cuda_import(&copy, peer->context, &peer->import[peer->n_imports], &at) < 0)
        return false;
    const struct cuda_import *import = peer->import[peer->n_imports++];
    *at_p = (uintptr_t)at;
    return weft__cuda_import_serves_kernels(import, peer->context);
}

static bool map_all(struct collective *c) {
    struct peer *peer = c->peer;
    bool good = true;
    for (uint32_t r = 0; good && r < c->team->size; r++)
        good = map_one(peer, &peer->record[r]->src, &peer->src[r]) &&
               map_one(peer, &peer->record[r]->dst, &peer->dst[r]);
    return good;
}

static void unmap_all(struct peer *peer) {
    for (uint32_t i = 0; i < peer->n_imports; i++) weft__cuda_import_end(peer->import[i]);
    peer->n_imports = 0;
}

/* ---- the device's work ----------------------------------------------------------------------- */

/* More inputs than a kernel takes: the result so far is the first of the next. */
static weft_status_t peer_fold(const struct collective *c, const struct peer_op *op) {
    const struct peer *peer = c->peer;
    const struct coll_call *call = &c->call;
    bool avg = call->reduction == WEFT_AVG;
    struct reduce_arguments args = {.to = peer->dst[op->to_rank] + op->to,
                                    .count = op->len / call->width,
                                    .reduction = call->reduction,
                                    .rounds = call->fixed_order};
    weft_status_t st = WEFT_OK;
    for (uint32_t r = 0; r < op->n && st == WEFT_OK;) {
        args.n = 0;
        if (r) args.from[args.n++] = args.to;
        while (args.n < KERNEL_MOST_INPUTS && r < op->n)
            args.from[args.n++] = peer->src[r++] + op->from;
        args.divisor = avg && r == op->n ? op->n : 0;
        st = weft__cuda_reduce(peer->context, call->type, &args);
    }
    return st;
}

static weft_status_t queue_op(const struct collective *c, const struct peer_op *op) {
    const struct peer *peer = c->peer;
    if (op->fold) return peer_fold(c, op);
    uint64_t from =
        op->from_buffer == COLL_SRC ? peer->src[op->from_rank] : peer->dst[op->from_rank];
    return weft__cuda_copy(peer->context, peer->dst[op->to_rank] + op->to, from + op->from,
                           op->len);
}

/* The team fails with it: the others cannot finish. */
static void device_failed(struct collective *c, weft_status_t st) {
    weft_team_t *team = c->team;
    if (!team->why[0])
        snprintf(team->why, sizeof team->why, "work on the device of rank %u failed", team->rank);
    weft__cuda_queue_drop(c->peer->context);
    weft__team_fail(team, st, team->rank);
}

/* ---- the end of the device's work: an event, after which the team's collectives are looked at */

static void device_ended(struct cuda_copy *end, weft_status_t status) {
    struct peer *peer = container_of(end, struct peer, end);
    peer->end_status = status;
    peer->is_awaited = false;
    weft__reactor_poll_soon(peer->reactor);
}

/* Where it cannot be reported, the worker looks at the device without sleep. */
static void await_device(const struct collective *c) {
    struct peer *peer = c->peer;
    struct cuda_copies *copies = weft__device_copies_of(c->team->worker);
    struct cuda_place place = {.context = peer->context};
    struct cuda_batch batch;
    if (!copies || weft__cuda_queue_stream(peer->context, &place.stream) < 0 ||
        weft__cuda_batch_begin(&batch, place, CUDA_WRITES) < 0)
        return;
    peer->reactor = c->team->reactor;
    peer->end = (struct cuda_copy){.done = device_ended};
    peer->end_status = WEFT_OK;
    list_init(&peer->end.under_way);
    peer->is_awaited = weft__cuda_copy_start(copies, &batch, &peer->end) == WEFT_OK;
}

/* A worker that ends has stopped it already. */
static void await_no_device(struct peer *peer) {
    if (peer->is_awaited && !list_empty(&peer->end.under_way)) weft__cuda_copy_stop(&peer->end);
    peer->is_awaited = false;
}

/* Said before the others' records are looked at once more: one that is withdrawn is not touched,
 * and its owner, who withdrew it before, sees that this device runs. */
static bool run_stage(struct collective *c, unsigned stage) {
    struct peer_op ops[PEER_MOST_OPS];
    struct coll_shape shape = weft__coll_shape(c->team, &c->call);
    enum peer_stage before = c->peer->stage;
    weft_status_t st = WEFT_OK;
    publish(c, stage == 0 ? FIRST_RUNS : SECOND_RUNS);
    if (any_has_withdrawn(c)) {
        publish(c, before);
        return false;
    }
    uint32_t n = weft__peer_ops(&shape, c->peer->two, stage, ops);
    for (uint32_t i = 0; i < n && st == WEFT_OK; i++) st = queue_op(c, &ops[i]);
    if (st < 0)
        device_failed(c, st);
    else
        await_device(c);
    return st == WEFT_OK;
}

static bool device_is_done(struct collective *c) {
    if (c->peer->is_awaited) return false;
    weft_status_t st = c->peer->end_status;
    if (st == WEFT_OK) st = weft__cuda_queue_state(c->peer->context);
    if (st < 0) device_failed(c, st);
    return st == WEFT_OK;
}

/* ---- the other way --------------------------------------------------------------------------- */

/* From here on another engine has it. What it needs now, the others wait for. */
static bool become(struct collective *c, const struct coll_engine *engine) {
    weft_team_t *team = c->team;
    c->engine = engine;
    weft_status_t st = engine->prepare(c);
    if (st < 0) {
        weft__team_fail(team, st, team->rank);
        return false;
    }
    bool over = engine->advance(c);
    for (uint32_t r = 0; r < team->size && !over && c->status == WEFT_OK; r++)
        if (member_is_gone(&team->member[r]) && engine->needs(c, r)) weft__team_misses(team, r);
    return over && c->status == WEFT_OK;
}

static void forget_peer(struct collective *c) {
    if (!c->peer) return;
    await_no_device(c->peer);
    unmap_all(c->peer);
    talloc_free(c->peer);
    c->peer = NULL;
    c->team->n_peer--;
    weft__peer_note(c->team);
}

static bool go_by_the_host(struct collective *c) {
    weft_team_t *team = c->team;
    forget_peer(c);
    weft__count(team->reactor)->coll_staged++;
    c->call.memory = COLL_HOST;
    weft_status_t st = weft__stage_device(team, &c->call);
    if (st < 0) {
        weft__team_fail(team, st, team->rank);
        return false;
    }
    c->call.algorithm = weft__collective_choice(team, &c->call);
    return become(c, weft__engine_of(c->call.algorithm));
}

/* ---- the engine ------------------------------------------------------------------------------ */

static weft_status_t prepare_peer(struct collective *c) {
    struct cuda_memory found;
    if (!weft__cuda_find(c->call.dst, &found) && !weft__cuda_find(c->call.src, &found))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "a buffer is no device memory any more");
    struct cuda_place place;
    weft_status_t st = weft__cuda_place(weft__reactor_given(c->team->reactor), &found, &place);
    if (st < 0) return st;
    c->peer = weft__new(c->team, struct peer);
    if (!c->peer) return WEFT_ERR_NO_MEMORY;
    c->peer->context = place.context;
    c->n_parts = 1;
    c->team->n_peer++;
    weft__count(c->team->reactor)->coll_peer++;
    return WEFT_OK;
}

static bool decide(struct collective *c) {
    bool first_in_place = false;
    c->peer->decided = true;
    for (uint32_t r = 0; r < c->team->size; r++)
        first_in_place = first_in_place || c->peer->record[r]->flags & IN_PLACE;
    c->peer->two =
        c->call.kind == COLL_ALLREDUCE && (first_in_place || coll_bytes(&c->call) > ONE_PASS_MOST);
    c->call.scale = NULL; /* the kernel divides */
    return run_stage(c, 0);
}

static bool finish_peer(struct collective *c) {
    c->left = 1;
    return true;
}

/* True: it is over. One step after the other, as far as the others are. */
static bool advance_peer(struct collective *c) {
    struct peer *peer = c->peer;
    bool last = !weft__peer_is_undecided(c->team, c);
    if (!peer->own) {
        peer->own = free_record(c->team);
        if (!peer->own) return false;
        peer_enter(c);
    }
    if (peer->stage == ENTERED) {
        if (!all_passed(c)) return false;
        if (!find_records(c)) return last && go_by_the_host(c);
        publish(c, map_all(c) ? MAPPED : UNMAPPABLE);
    }
    if (peer->stage == MAPPED || peer->stage == UNMAPPABLE) {
        if (!all_are_at(c, MAPPED)) return false;
        if (any_is(c, UNMAPPABLE)) return last && go_by_the_host(c);
        if (!decide(c)) return false;
    }
    if (peer->stage == FIRST_RUNS && device_is_done(c)) publish(c, FIRST_DONE);
    if (peer->stage == FIRST_DONE && all_are_at(c, FIRST_DONE)) {
        if (!peer->two) return finish_peer(c);
        if (!run_stage(c, 1)) return false;
    }
    if (peer->stage == SECOND_RUNS && device_is_done(c)) publish(c, SECOND_DONE);
    return peer->stage == SECOND_DONE && all_are_at(c, SECOND_DONE) && finish_peer(c);
}

/* Before all have come it is looked at without sleep. */
static bool peer_may_move(const struct collective *c) {
    const struct peer *peer = c->peer;
    if (!peer || !peer->own || peer->stage == ENTERED) return true;
    if (peer->stage == FIRST_RUNS || peer->stage == SECOND_RUNS) return !peer->is_awaited;
    if (peer->stage == MAPPED || peer->stage == UNMAPPABLE) return all_are_at(c, MAPPED);
    return all_are_at(c, peer->stage);
}

static bool needs_peer(const struct collective *c, uint32_t rank) {
    const struct peer *peer = c->peer;
    if (!peer || calls_of(c->team, rank) <= c->number) return true;
    if (!peer->decided) return find_record(c, rank) != NULL;
    return stage_of(c, rank) < (peer->two ? SECOND_DONE : FIRST_DONE);
}

/* ---- its end --------------------------------------------------------------------------------- */

static void recall_peer(struct collective *c) {
    if (!c->peer || !c->peer->own) return;
    atomic_store_explicit(&c->peer->own->withdrawn, 1, memory_order_seq_cst);
    c->peer->stopped_at = weft__now(c->team->reactor);
    c->n_in_flight = 1; /* until drain_peer() */
}

static bool others_run(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++) {
        const struct segment_peer *record = find_record(c, r);
        if (r == c->team->rank || !record || c->team->member[r].lost) continue;
        uint32_t stage = atomic_load_explicit(&record->stage, memory_order_seq_cst);
        if (stage == FIRST_RUNS || stage == SECOND_RUNS) return true;
    }
    return false;
}

/* Own work first: then others learn that it is over. */
static bool drain_peer(struct collective *c) {
    struct peer *peer = c->peer;
    if (!peer || !peer->own) return true;
    if (peer->stage == FIRST_RUNS || peer->stage == SECOND_RUNS) {
        if (weft__cuda_queue_state(peer->context) == WEFT_IN_PROGRESS) return false;
        publish(c, (enum peer_stage)(peer->stage + 1));
    }
    return !others_run(c) || weft__now(c->team->reactor) - peer->stopped_at > drain_most;
}

const struct coll_engine weft__peer = {.prepare = prepare_peer,
                                       .advance = advance_peer,
                                       .needs = needs_peer,
                                       .may_move = peer_may_move,
                                       .recall = recall_peer,
                                       .drained = drain_peer,
                                       .release = forget_peer};

/* ---- those that come after one that is not decided ------------------------------------------- */

/* Its arrays are the caller's, for the call only; those of a persistent one are its own. */
static weft_status_t prepare_deferred(struct collective *c) {
    struct coll_shape shape = weft__coll_shape(c->team, &c->call);
    c->n_parts = 1;
    bool has_arrays = c->call.src_blocks.count || c->call.dst_blocks.count;
    if (has_arrays && !c->kept) {
        c->arrays = talloc_new(c);
        if (!c->arrays || !weft__keep_shape(c->arrays, &shape)) return WEFT_ERR_NO_MEMORY;
    }
    c->team->n_deferred++;
    c->call.src_blocks = shape.src;
    c->call.dst_blocks = shape.dst;
    c->call.source = shape.source;
    c->call.destination = shape.destination;
    return WEFT_OK;
}

static bool advance_deferred(struct collective *c) {
    if (weft__peer_is_undecided(c->team, c)) return false;
    c->team->n_deferred--;
    return become(c, weft__engine_of(c->call.algorithm));
}
static bool deferred_may_move(const struct collective *c) {
    return !weft__peer_is_undecided(c->team, c);
}
static bool deferred_needs(const struct collective *c, uint32_t rank) {
    (void)c, (void)rank;
    return false; /* become() looks at the members */
}

const struct coll_engine weft__deferred = {.prepare = prepare_deferred,
                                           .advance = advance_deferred,
                                           .needs = deferred_needs,
                                           .may_move = deferred_may_move};

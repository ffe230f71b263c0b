/*
 * Collectives behind a CUDA stream (weft_op_t.stream): begun when the stream gets there. What the
 * program may have ended before then is looked up again.
 */
#include "call.h"

#include <endpoints/core/submit.h>
#include <string.h>
#include <transports/cuda/stream_gate.h>

/* NULL: it is not there any more. */
static weft_team_t *find_team(weft_worker_t *worker, const weft_team_t *pointer, uint64_t id) {
    struct team_registry *registry;
    if (weft__team_registry(worker, &registry) < 0) return NULL;
    list_for_each(at, &registry->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_registry);
        if (team == pointer && team->id == id) return team;
    }
    return NULL;
}

static struct weft_coll *find_persistent(weft_team_t *team, const struct weft_coll *pointer,
                                         uint64_t number) {
    list_for_each(at, &team->persistent) {
        struct weft_coll *coll = list_of(at, struct weft_coll, of_team);
        if (coll == pointer && coll->number == number) return coll;
    }
    return NULL;
}

static weft_team_t *team_of(void *worker, const struct submit_args *args) {
    return find_team(worker, (const weft_team_t *)(uintptr_t)args->word[0], args->word[1]);
}

/* A description, and behind it its arrays, since those are the program's after the call. A pointer
 * to an array is its distance from the beginning here. */
struct streamed_call {
    weft_coll_args_t args;
    weft_neighbors_t graph;
};

static const void *copy_array(char *block, size_t *end, const void *array, size_t len) {
    const void *at = array ? (const void *)(uintptr_t)*end : NULL;
    if (!array || len == 0) return at;
    memcpy(block + *end, array, len);
    *end += len;
    return at;
}

/* Returns its length. */
static size_t copy_call(struct streamed_call *to, const weft_coll_args_t *args, uint32_t n_src,
                        uint32_t n_dst) {
    const size_t src = n_src * sizeof(uint64_t), dst = n_dst * sizeof(uint64_t);
    char *block = (char *)to;
    size_t end = sizeof *to;
    *to = (struct streamed_call){.args = *args};
    to->args.src_counts = copy_array(block, &end, args->src_counts, src);
    bool row = args->kind == WEFT_COLL_REDUCE_SCATTERV; /* which has counts alone */
    to->args.src_displs = row ? NULL : copy_array(block, &end, args->src_displs, src);
    to->args.dst_counts = copy_array(block, &end, args->dst_counts, dst);
    to->args.dst_displs = copy_array(block, &end, args->dst_displs, dst);
    if (args->kind != WEFT_COLL_NEIGHBOR_ALLTOALLV) return end;
    const weft_neighbors_t *graph = args->graph;
    to->graph = *graph;
    to->graph.sources = copy_array(block, &end, graph->sources, n_dst * sizeof *graph->sources);
    to->graph.destinations =
        copy_array(block, &end, graph->destinations, n_src * sizeof *graph->destinations);
    return end;
}

static const void *array_at(const struct submit_args *args, const void *distance) {
    return distance ? (const char *)args->bytes + (uintptr_t)distance : NULL;
}

static weft_status_t call_posted(void *worker, const struct submit_args *args,
                                 const weft_op_t *op) {
    struct streamed_call call;
    weft_team_t *team = team_of(worker, args);
    if (!team)
        return weft__fail(WEFT_ERR_CLOSED, "the team was closed before its stream got there");
    memcpy(&call, args->bytes, sizeof call);
    call.args.src_counts = array_at(args, call.args.src_counts);
    call.args.src_displs = array_at(args, call.args.src_displs);
    call.args.dst_counts = array_at(args, call.args.dst_counts);
    call.args.dst_displs = array_at(args, call.args.dst_displs);
    call.graph.sources = array_at(args, call.graph.sources);
    call.graph.destinations = array_at(args, call.graph.destinations);
    call.args.graph = &call.graph;
    return weft__coll_call(team, &call.args, op);
}

static weft_status_t start_posted(void *worker, const struct submit_args *args,
                                  const weft_op_t *op) {
    weft_team_t *team = team_of(worker, args);
    const struct weft_coll *pointer = (const struct weft_coll *)(uintptr_t)args->word[2];
    struct weft_coll *coll = team ? find_persistent(team, pointer, args->word[3]) : NULL;
    return coll ? weft_coll_start(coll, op)
                : weft__fail(WEFT_ERR_CLOSED, "it was freed before its stream got there");
}

weft_status_t weft__coll_call_streamed(weft_team_t *team, const weft_coll_args_t *args,
                                       const weft_op_t *op) {
    uint32_t n_src, n_dst;
    weft_status_t st = weft__coll_arrays(team, args, &n_src, &n_dst);
    if (st < 0) return st;
    size_t most = ((size_t)n_src + n_dst) * (2 * sizeof(uint64_t) + sizeof(uint32_t));
    struct streamed_call *call = weft__alloc(team, sizeof *call + most, "streamed call");
    if (!call) return WEFT_ERR_NO_MEMORY;
    struct submit_args posted = {.word = {(uintptr_t)team, team->id},
                                 .bytes = call,
                                 .n_bytes = copy_call(call, args, n_src, n_dst)};
    st = weft__post(team->worker, NULL, call_posted, &posted, op);
    talloc_free(call);
    return st;
}

weft_status_t weft__coll_start_streamed(struct weft_coll *coll, const weft_op_t *op) {
    weft_team_t *team = coll->team;
    struct submit_args args = {.word = {(uintptr_t)team, team->id, (uintptr_t)coll, coll->number}};
    return weft__cuda_stream_is_captured(op->stream)
               ? weft__post_recorded(team->worker, start_posted, &args, op)
               : weft__post(team->worker, NULL, start_posted, &args, op);
}

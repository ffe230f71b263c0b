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
    struct team_registry *room;
    if (weft__team_registry(worker, &room) < 0) return NULL;
    list_for_each(at, &room->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_room);
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

static weft_status_t call_posted(void *worker, const struct submit_args *args,
                                 const weft_op_t *op) {
    weft_coll_args_t call;
    weft_team_t *team = team_of(worker, args);
    if (!team)
        return weft__fail(WEFT_ERR_CLOSED, "the team was closed before its stream got there");
    memcpy(&call, args->bytes, sizeof call);
    return weft__coll_call(team, &call, op);
}

static weft_status_t start_posted(void *worker, const struct submit_args *args,
                                  const weft_op_t *op) {
    weft_team_t *team = team_of(worker, args);
    const struct weft_coll *pointer = (const struct weft_coll *)(uintptr_t)args->word[2];
    struct weft_coll *coll = team ? find_persistent(team, pointer, args->word[3]) : NULL;
    return coll ? weft_coll_start(coll, op)
                : weft__fail(WEFT_ERR_CLOSED, "it was freed before its stream got there");
}

weft_status_t weft__coll_call_streamed(weft_team_t *team, const weft_coll_args_t *call,
                                       const weft_op_t *op) {
    if (call->src_counts || call->dst_counts || call->graph)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "op->stream: arrays are the program's until the call returns; a "
                          "persistent collective has its own");
    struct submit_args args = {
        .word = {(uintptr_t)team, team->id}, .bytes = call, .n_bytes = sizeof *call};
    return weft__post(team->worker, NULL, call_posted, &args, op);
}

weft_status_t weft__coll_start_streamed(struct weft_coll *coll, const weft_op_t *op) {
    weft_team_t *team = coll->team;
    struct submit_args args = {.word = {(uintptr_t)team, team->id, (uintptr_t)coll, coll->number}};
    return weft__cuda_stream_is_captured(op->stream)
               ? weft__post_recorded(team->worker, start_posted, &args, op)
               : weft__post(team->worker, NULL, start_posted, &args, op);
}

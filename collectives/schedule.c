#include "schedule.h"

#include <reactor/reactor.h>
#include <string.h>

const struct algorithm weft__algorithms[N_ALGORITHMS] = {
#define ALGORITHM_ROW(kind, name, fixed) {COLL_##kind, #name, fixed, weft__build_##kind##_##name},
    ALGORITHMS(ALGORITHM_ROW)
#undef ALGORITHM_ROW
};

enum { MOST_STEPS = 1 << 24 };

static bool make_room(struct schedule *s) {
    if (s->n_steps < s->room) return true;
    if (s->room >= MOST_STEPS) {
        s->status = weft__fail(WEFT_ERR_TOO_BIG, "a schedule of more than %d steps", MOST_STEPS);
        return false;
    }
    uint32_t room = s->room ? 2 * s->room : 16;
    struct step *step = weft__realloc(s, s->step, room * sizeof *step, "struct step");
    if (!step) {
        s->status = WEFT_ERR_NO_MEMORY;
        return false;
    }
    s->step = step;
    s->room = room;
    return true;
}

/* Dependencies that name no step are left out, so that algorithms need not care whether a piece was empty. */
static uint32_t add(struct schedule *s, struct step step, struct after after) {
    if (s->status < 0 || !make_room(s)) return 0;
    memcpy(step.after, after.step, sizeof step.after);
    s->step[s->n_steps++] = step;
    return s->n_steps;
}

uint32_t weft__add_send(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref from, uint64_t len,
                        struct after after) {
    if (len == 0) return 0;
    return add(s,
               (struct step){.verb = STEP_SEND,
                             .peer = peer,
                             .tag = tag,
                             .left = from.offset,
                             .left_buffer = from.buffer,
                             .len = len},
               after);
}

uint32_t weft__add_recv(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref to, uint64_t len,
                        struct after after) {
    if (len == 0) return 0;
    return add(
        s,
        (struct step){
            .verb = STEP_RECV, .peer = peer, .tag = tag, .to = to.offset, .to_buffer = to.buffer, .len = len},
        after);
}

uint32_t weft__add_reduce(struct schedule *s, struct coll_ref to, struct coll_ref left, struct coll_ref right,
                          uint64_t len, struct after after) {
    if (len == 0) return 0;
    return add(s,
               (struct step){.verb = STEP_REDUCE,
                             .to = to.offset,
                             .to_buffer = to.buffer,
                             .left = left.offset,
                             .left_buffer = left.buffer,
                             .right = right.offset,
                             .right_buffer = right.buffer,
                             .len = len},
               after);
}

uint32_t weft__add_copy(struct schedule *s, struct coll_ref to, struct coll_ref from, uint64_t len,
                        struct after after) {
    if (len == 0) return 0;
    return add(s,
               (struct step){.verb = STEP_COPY,
                             .to = to.offset,
                             .to_buffer = to.buffer,
                             .left = from.offset,
                             .left_buffer = from.buffer,
                             .len = len},
               after);
}

uint32_t weft__add_signal(struct schedule *s, uint32_t peer, uint32_t tag, struct after after) {
    return add(s, (struct step){.verb = STEP_SEND, .peer = peer, .tag = tag}, after);
}

uint32_t weft__add_await(struct schedule *s, uint32_t peer, uint32_t tag, struct after after) {
    return add(s, (struct step){.verb = STEP_RECV, .peer = peer, .tag = tag}, after);
}

/* A team of one: the result is the contribution. */
static void build_alone(struct schedule *s) {
    uint64_t bytes = s->shape.count * s->shape.width;
    if (s->shape.kind == COLL_ALLREDUCE || s->shape.kind == COLL_ALLGATHER)
        weft__add_copy(s, AT(DST, 0), AT(SRC, 0), bytes, AFTER(0));
}

weft_status_t weft__schedule_build_by(const void *parent, void (*build)(struct schedule *s),
                                      const struct coll_shape *shape, struct schedule **schedule_p) {
    struct schedule *s = weft__new(parent, struct schedule);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->shape = *shape;
    if (shape->size == 1)
        build_alone(s);
    else
        build(s);
    if (shape->joined && shape->size > 1) weft__add_dissemination(s, JOIN_TAG);
    if (s->status < 0) {
        weft_status_t status = s->status;
        talloc_free(s);
        return status;
    }
    *schedule_p = s;
    return WEFT_OK;
}

weft_status_t weft__schedule_build(const void *parent, enum coll_algorithm algorithm,
                                   const struct coll_shape *shape, struct schedule **schedule_p) {
    return weft__schedule_build_by(parent, weft__algorithms[algorithm].build, shape, schedule_p);
}

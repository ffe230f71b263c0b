/* Builds schedules: adds steps and their order, and lists the algorithms by kind. */
#include "schedule.h"

#include <reactor/reactor.h>
#include <string.h>

const struct algorithm weft__algorithms[N_ALGORITHMS] = {
#define ALGORITHM_ROW(kind, name, fixed) {COLL_##kind, #name, fixed, weft__build_##kind##_##name},
    ALGORITHMS(ALGORITHM_ROW)
#undef ALGORITHM_ROW
};

const char *weft__coll_name(enum coll_kind kind) {
    static const char *const name[N_COLL_KINDS] = {
#define KIND_NAME(kind, name, joins) [COLL_##kind] = #name,
        COLL_KINDS(KIND_NAME)
#undef KIND_NAME
    };
    return kind < N_COLL_KINDS ? name[kind] : "?";
}

bool weft__coll_joins(enum coll_kind kind) {
    static const bool joins[N_COLL_KINDS] = {
#define KIND_JOINS(kind, name, joins) [COLL_##kind] = joins,
        COLL_KINDS(KIND_JOINS)
#undef KIND_JOINS
    };
    return kind < N_COLL_KINDS && joins[kind];
}

bool weft__coll_is_even(enum coll_kind kind) {
    return kind != COLL_GATHERV && kind != COLL_SCATTERV && kind != COLL_ALLGATHERV &&
           kind != COLL_ALLTOALLV && kind != COLL_REDUCE_SCATTERV &&
           kind != COLL_NEIGHBOR_ALLTOALLV;
}

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

static void move_ref(const struct coll_view *view, uint8_t *buffer, uint64_t *offset) {
    *offset += view->at[*buffer].offset;
    *buffer = (uint8_t)view->at[*buffer].buffer;
}

/* From the innermost part out. */
static void place_step(const struct schedule *s, struct step *step) {
    for (const struct coll_view *view = s->view; view; view = view->outer) {
        move_ref(view, &step->to_buffer, &step->to);
        move_ref(view, &step->left_buffer, &step->left);
        if (step->verb == STEP_SHARE) continue;
        if (step->verb != STEP_RECV) move_ref(view, &step->right_buffer, &step->right);
        step->tag += view->tag;
        if (view->map && step->verb <= STEP_RECV) step->peer = view->map[step->peer];
    }
}

/* Dependencies that name no step are left out, so that algorithms need not care whether a piece
 * was empty. */
static uint32_t add_schedule(struct schedule *s, struct step step, struct after after) {
    if (s->status < 0 || !make_room(s)) return 0;
    if (s->view && step.tag >> s->view->shift) {
        s->status = weft__fail(WEFT_ERR_TOO_BIG, "a part of a schedule of too many segments");
        return 0;
    }
    place_step(s, &step);
    memcpy(step.after, after.step, sizeof step.after);
    if (!(step.after[0] | step.after[1] | step.after[2])) step.after[0] = s->gate;
    s->step[s->n_steps++] = step;
    return s->n_steps;
}

uint32_t weft__add_send(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref from,
                        uint64_t len, struct after after) {
    if (len == 0) return 0;
    return add_schedule(s,
                        (struct step){.verb = STEP_SEND,
                                      .peer = peer,
                                      .tag = tag,
                                      .left = from.offset,
                                      .left_buffer = from.buffer,
                                      .len = len},
                        after);
}

uint32_t weft__add_recv(struct schedule *s, uint32_t peer, uint32_t tag, struct coll_ref to,
                        uint64_t len, struct after after) {
    if (len == 0) return 0;
    return add_schedule(s,
                        (struct step){.verb = STEP_RECV,
                                      .peer = peer,
                                      .tag = tag,
                                      .to = to.offset,
                                      .to_buffer = to.buffer,
                                      .len = len},
                        after);
}

uint32_t weft__add_reduce(struct schedule *s, struct coll_ref to, struct coll_ref left,
                          struct coll_ref right, uint64_t len, struct after after) {
    if (len == 0) return 0;
    return add_schedule(s,
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

void weft__reads_alone(struct schedule *s, uint32_t got, uint32_t reduced) {
    if (got && reduced && s->status == WEFT_OK) s->step[got - 1].right = reduced;
}

uint32_t weft__add_copy(struct schedule *s, struct coll_ref to, struct coll_ref from, uint64_t len,
                        struct after after) {
    if (len == 0) return 0;
    return add_schedule(s,
                        (struct step){.verb = STEP_COPY,
                                      .to = to.offset,
                                      .to_buffer = to.buffer,
                                      .left = from.offset,
                                      .left_buffer = from.buffer,
                                      .len = len},
                        after);
}

uint32_t weft__add_put(struct schedule *s, const struct coll_put *put, struct after after) {
    if (put->len == 0) return 0;
    return add_schedule(s,
                        (struct step){.verb = STEP_PUT,
                                      .peer = put->peer,
                                      .to = put->to,
                                      .to_buffer = COLL_DST,
                                      .left = put->from.offset,
                                      .left_buffer = put->from.buffer,
                                      .right = put->key,
                                      .right_buffer = COLL_SCRATCH,
                                      .len = put->len},
                        after);
}

uint32_t weft__add_share(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    s->n_shared++;
    return add_schedule(s,
                        (struct step){.verb = STEP_SHARE,
                                      .peer = shape->root,
                                      .tag = shape->kind,
                                      .to_buffer = COLL_DST,
                                      .left_buffer = COLL_SRC,
                                      .right = shape->size,
                                      .right_buffer = COLL_SRC,
                                      .len = shape->count * shape->width},
                        AFTER(0));
}

struct share_extent weft__share_extent(const struct step *step, uint32_t place) {
    bool root = place == step->peer;
    uint64_t len = step->len, all = step->right * len;
    switch ((enum coll_kind)step->tag) {
    case COLL_BCAST: return (struct share_extent){0, len};
    case COLL_REDUCE: return (struct share_extent){len, root ? len : 0};
    case COLL_GATHER: return (struct share_extent){len, root ? all : 0};
    case COLL_SCATTER: return (struct share_extent){root ? all : 0, len};
    case COLL_SCAN: return (struct share_extent){len, len};
    default: return (struct share_extent){0, 0};
    }
}

uint32_t weft__add_signal(struct schedule *s, uint32_t peer, uint32_t tag, struct after after) {
    return add_schedule(s, (struct step){.verb = STEP_SEND, .peer = peer, .tag = tag}, after);
}

uint32_t weft__add_await(struct schedule *s, uint32_t peer, uint32_t tag, struct after after) {
    return add_schedule(s, (struct step){.verb = STEP_RECV, .peer = peer, .tag = tag}, after);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void schedule_join(struct schedule *s, uint32_t *open, uint32_t n) {
    while (n > 1) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n; i += 3)
            open[kept++] = add_schedule(
                s, (struct step){.verb = STEP_COPY},
                AFTER(open[i], i + 1 < n ? open[i + 1] : 0, i + 2 < n ? open[i + 2] : 0));
        n = kept;
    }
    s->gate = open[0];
    s->gated = s->gate - 1;
}

/* Joins those that no step waits for yet. */
void weft__add_gate(struct schedule *s) {
    uint32_t n = s->n_steps - s->gated, kept = 0;
    if (n == 0 || s->status < 0) return;
    uint32_t *open = weft__alloc(s, (n + 1) * sizeof *open, "open");
    if (!open) {
        s->status = WEFT_ERR_NO_MEMORY;
        return;
    }
    for (uint32_t i = s->gated; i < s->n_steps; i++)
        for (int k = 0; k < 3; k++)
            if (s->step[i].after[k] > s->gated) open[s->step[i].after[k] - 1 - s->gated] = 1;
    for (uint32_t i = 0; i < n; i++)
        if (!open[i]) open[kept++] = s->gated + i + 1;
    schedule_join(s, open, kept);
    talloc_free(open);
}

static void build_alone(struct schedule *s);

void weft__add_part(struct schedule *s, const struct coll_part *part) {
    uint32_t shift = s->view ? s->view->shift : 30;
    struct coll_view view = {.outer = s->view,
                             .map = part->map,
                             .shift = shift - 4,
                             .tag = part->number << (shift - 4),
                             .at = {part->src, part->dst, AT(SCRATCH, part->scratch)}};
    struct coll_shape outside = s->shape;
    uint64_t scratch = s->scratch;
    s->shape = part->shape;
    s->view = &view;
    s->scratch = 0;
    if (part->shape.size == 1)
        build_alone(s);
    else
        part->build(s);
    uint64_t most = part->scratch + s->scratch;
    s->scratch = s->scratch && most > scratch ? most : scratch;
    s->view = view.outer;
    s->shape = outside;
}

/* A team of one: the result is the contribution. */
static void build_alone(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    struct coll_ref dst = AT(DST, 0), src = AT(SRC, 0);
    uint64_t bytes = shape->count * shape->width;
    switch (shape->kind) {
    case COLL_BARRIER:
    case COLL_FANIN:
    case COLL_FANOUT:
    case COLL_BCAST:
    case COLL_EXSCAN: return;
    case COLL_NEIGHBOR_ALLTOALLV: weft__build_NEIGHBOR_ALLTOALLV_linear(s); return;
    case COLL_ALLTOALLV:
    case COLL_GATHERV:
    case COLL_ALLGATHERV:
        dst.offset = weft__dst_block(shape, 0).offset;
        bytes = weft__dst_block(shape, 0).len;
        src.offset = shape->kind == COLL_ALLTOALLV ? weft__src_block(shape, 0).offset : 0;
        break;
    case COLL_SCATTERV:
    case COLL_REDUCE_SCATTERV:
        src.offset = weft__src_block(shape, 0).offset;
        bytes = weft__src_block(shape, 0).len;
        break;
    default: break;
    }
    if (shape->kind != COLL_ALLTOALLV || !shape->in_place)
        weft__add_copy(s, dst, src, bytes, AFTER(0));
}

/* The end of what a step touches in scratch memory, at most; a signal touches nothing. */
static uint64_t scratch_of(const struct step *step) {
    bool shares = step->verb == STEP_SHARE;
    struct share_extent len = {step->len, step->len};
    if (shares) len = weft__share_extent(step, step->peer);
    uint64_t keys = step->verb == STEP_PUT ? COLL_KEY_BYTES : step->len, most = 0;
    if (step->to_buffer == COLL_SCRATCH && len.dst) most = step->to + len.dst;
    if (step->left_buffer == COLL_SCRATCH && len.src && step->left + len.src > most)
        most = step->left + len.src;
    if (step->right_buffer == COLL_SCRATCH && step->right + keys > most) most = step->right + keys;
    return most;
}

/* Algorithms reserve enough for any rank of any team; this one gets what its steps touch. */
static void trim_scratch(struct schedule *s) {
    uint64_t most = s->exposes ? COLL_KEY_BYTES : 0;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        uint64_t end = scratch_of(&s->step[i]);
        if (end > most) most = end;
    }
    if (most < s->scratch) s->scratch = most;
}

weft_status_t weft__schedule_build_by(const void *parent, void (*build)(struct schedule *s),
                                      const struct coll_shape *shape,
                                      struct schedule **schedule_p) {
    struct schedule *s = weft__new(parent, struct schedule);
    if (!s) return WEFT_ERR_NO_MEMORY;
    s->shape = *shape;
    if (shape->size == 1)
        build_alone(s);
    else
        build(s);
    if (shape->joined && shape->size > 1) weft__add_dissemination(s, JOIN_TAG);
    trim_scratch(s);
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

/*
 * Operations of a view that take two rounds, since lengths are not known: lengths, then bytes.
 * Objects are packed before the first and unpacked after the second.
 */
#include "operations.h"

#include <base/check.h>
#include <base/status.h>
#include <collectives/team.h>
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <reactor/reactor.h>
#include <string.h>
#include <talloc.h>

struct two_rounds {
    weft_view_t *view;
    uint32_t root; /* VIEW_NO_ROOT: every process gets the result */
    bool is_bcast;
    uint64_t mine, *len; /* the length of this process's block; those of all */
    void *bytes;         /* what this process gives */
    uint8_t *all;        /* what comes */
    weft_blocks_t **blocks_p;
    const weft_serializer_t *serializer;
    void *object, *const *objects;
    bool second;
    weft_op_t op; /* the program's */
};

static bool gets_result(const struct two_rounds *t) {
    return t->root == VIEW_NO_ROOT || t->root == weft_view_rank(t->view);
}

/* ---- the result ---------------------------------------------------------------------------- */

static uint64_t total(const struct two_rounds *t) {
    uint64_t sum = 0;
    for (uint32_t r = 0; r < weft_view_size(t->view); r++) sum += t->len[r];
    return sum;
}

/* One piece of memory: the head, addresses, lengths, bytes. */
static weft_status_t make_blocks(struct two_rounds *t) {
    uint32_t n = weft_view_size(t->view);
    weft_blocks_t *blocks = weft__new(NULL, weft_blocks_t);
    if (!blocks) return WEFT_ERR_NO_MEMORY;
    blocks->n = n;
    blocks->data = weft__alloc(blocks, n * sizeof *blocks->data, "addresses");
    blocks->len = weft__alloc(blocks, n * sizeof *blocks->len, "lengths");
    if (!blocks->data || !blocks->len) {
        talloc_free(blocks);
        return WEFT_ERR_NO_MEMORY;
    }
    const uint8_t *at = talloc_steal(blocks, t->all);
    for (uint32_t r = 0; r < n; r++) {
        blocks->data[r] = at;
        blocks->len[r] = t->len[r];
        at += t->len[r];
    }
    *t->blocks_p = blocks;
    return WEFT_OK;
}

void weft_blocks_free(weft_blocks_t *blocks) {
    talloc_free(blocks);
}

static weft_status_t unpack_all(struct two_rounds *t) {
    const weft_serializer_t *s = t->serializer;
    const uint8_t *at = t->all;
    weft_status_t st = WEFT_OK;
    for (uint32_t r = 0; r < weft_view_size(t->view) && st >= 0; at += t->len[r++])
        st = s->unpack(t->objects[r], at, t->len[r], s->arg);
    return st;
}

static weft_status_t use_result(struct two_rounds *t) {
    if (t->is_bcast)
        return gets_result(t)
                   ? WEFT_OK
                   : t->serializer->unpack(t->object, t->bytes, t->mine, t->serializer->arg);
    if (!gets_result(t)) return WEFT_OK;
    return t->serializer ? unpack_all(t) : make_blocks(t);
}

/* ---- the rounds ---------------------------------------------------------------------------- */

static void finish(struct two_rounds *t, weft_status_t status) {
    weft_done_fn done = t->op.done;
    void *arg = t->op.arg;
    struct reactor *reactor = t->view->reactor;
    talloc_free(t);
    if (done) done(status, arg);
    weft__program_returned(reactor);
}

static void round_over(weft_status_t status, void *arg);

static weft_status_t send_lengths(struct two_rounds *t, const weft_op_t *op) {
    weft_team_t *team = t->view->team;
    if (t->is_bcast) return weft_bcast(team, &t->mine, 1, WEFT_UINT64, t->root, op);
    if (t->root == VIEW_NO_ROOT) return weft_allgather(team, &t->mine, t->len, 1, WEFT_UINT64, op);
    return weft_gather(team, &t->mine, t->len, 1, WEFT_UINT64, t->root, op);
}

static weft_status_t send_bytes(struct two_rounds *t, const weft_op_t *op) {
    weft_team_t *team = t->view->team;
    uint32_t rank = weft_view_rank(t->view);
    if (t->is_bcast) {
        if (!t->bytes) t->bytes = weft__alloc(t, t->mine + 1, "object");
        if (!t->bytes) return WEFT_ERR_NO_MEMORY;
        return weft_bcast(team, t->bytes, t->mine, WEFT_UINT8, t->root, op);
    }
    if (gets_result(t)) t->all = weft__alloc(t, total(t) + 1, "blocks");
    if (gets_result(t) && !t->all) return WEFT_ERR_NO_MEMORY;
    if (t->root == VIEW_NO_ROOT)
        return t->len[rank] == t->mine
                   ? weft_allgatherv(team, t->bytes, t->all, t->len, NULL, WEFT_UINT8, op)
                   : weft__fail(WEFT_ERR_PROTOCOL, "a gather returned a wrong length");
    return weft_gatherv(team, t->bytes, t->mine, t->all, t->len, NULL, WEFT_UINT8, t->root, op);
}

/* The next round; and the result after the last. WEFT_IN_PROGRESS: round_over continues. */
static weft_status_t go_on(struct two_rounds *t) {
    weft_op_t op = {
        .done = round_over, .arg = t, .deadline_ms = t->op.deadline_ms, .flags = t->op.flags};
    weft_status_t st = WEFT_OK;
    if (!t->second) {
        t->second = true;
        st = send_bytes(t, &op);
        /* The others have begun the second round, and would wait for this process. */
        if (st < 0) weft__team_fail(t->view->team, st, weft_view_rank(t->view));
    }
    return st == WEFT_OK ? use_result(t) : st;
}

static void round_over(weft_status_t status, void *arg) {
    struct two_rounds *t = arg;
    if (status == WEFT_OK) status = t->second ? use_result(t) : go_on(t);
    if (status != WEFT_IN_PROGRESS) finish(t, status);
}

static weft_status_t blocks_begin(struct two_rounds *t) {
    weft_op_t op = {
        .done = round_over, .arg = t, .deadline_ms = t->op.deadline_ms, .flags = t->op.flags};
    weft_status_t st = send_lengths(t, &op);
    if (st == WEFT_OK) st = go_on(t);
    if (st != WEFT_IN_PROGRESS) talloc_free(t);
    return st;
}

static weft_status_t check_descriptor(const weft_op_t *op) {
    if (op && op->request_p) REFUSE("op->request_p", "an operation of two rounds has no request");
    return weft__check_plain_op(op, WEFT_COLL_FIXED_ORDER | WEFT_COLL_SAFE);
}

static weft_status_t new_rounds(weft_view_t *view, uint32_t root, const weft_op_t *op,
                                struct two_rounds **t_p) {
    weft_status_t st = check_descriptor(op);
    if (st < 0) return st;
    struct two_rounds *t = weft__new(view, struct two_rounds);
    if (!t) return WEFT_ERR_NO_MEMORY;
    t->view = view;
    t->root = root;
    if (op) t->op = *op;
    t->len = weft__alloc(t, weft_view_size(view) * sizeof *t->len, "lengths");
    if (t->len) {
        *t_p = t;
        return WEFT_OK;
    }
    talloc_free(t);
    return WEFT_ERR_NO_MEMORY;
}

/* ---- blocks -------------------------------------------------------------------------------- */

weft_status_t weft_view_gatherv(weft_view_t *view, const weft_resource_set_t *at, const void *src,
                                size_t len, weft_blocks_t **blocks_p, const weft_op_t *op) {
    struct two_rounds *t;
    uint32_t root;
    if (!blocks_p) REFUSE("blocks_p", "NULL");
    *blocks_p = NULL;
    weft_status_t st = weft__view_root(view, at, true, &root);
    if (st == WEFT_OK) st = weft__check_memory("src", src, len);
    if (st == WEFT_OK) st = new_rounds(view, root, op, &t);
    if (st < 0) return st;
    t->bytes = (void *)src;
    t->mine = len;
    t->blocks_p = blocks_p;
    return blocks_begin(t);
}

/* ---- objects ------------------------------------------------------------------------------- */

static weft_status_t check_serializer(const weft_serializer_t *s) {
    if (!s) REFUSE("serializer", "NULL");
    if (!s->size || !s->pack || !s->unpack) REFUSE("serializer", "a function is NULL");
    return WEFT_OK;
}

static weft_status_t pack(struct two_rounds *t, const weft_serializer_t *s, const void *object) {
    t->mine = s->size(object, s->arg);
    t->bytes = weft__alloc(t, t->mine + 1, "object");
    if (!t->bytes) return WEFT_ERR_NO_MEMORY;
    s->pack(object, t->bytes, s->arg);
    return WEFT_OK;
}

weft_status_t weft_view_gather_objects(weft_view_t *view, const weft_resource_set_t *at,
                                       const weft_serializer_t *serializer, const void *object,
                                       void *const *objects, const weft_op_t *op) {
    struct two_rounds *t;
    uint32_t root;
    weft_status_t st = weft__view_root(view, at, true, &root);
    if (st == WEFT_OK) st = check_serializer(serializer);
    if (st == WEFT_OK) st = new_rounds(view, root, op, &t);
    if (st < 0) return st;
    t->serializer = serializer;
    t->objects = objects;
    st = gets_result(t) && !objects ? weft__fail(WEFT_ERR_INVALID_PARAM, "objects: NULL")
                                    : pack(t, serializer, object);
    if (st == WEFT_OK) return blocks_begin(t);
    talloc_free(t);
    return st;
}

weft_status_t weft_view_bcast_object(weft_view_t *view, const weft_resource_set_t *from,
                                     const weft_serializer_t *serializer, void *object,
                                     const weft_op_t *op) {
    struct two_rounds *t;
    uint32_t root;
    weft_status_t st = weft__view_root(view, from, false, &root);
    if (st == WEFT_OK) st = check_serializer(serializer);
    if (st == WEFT_OK) st = new_rounds(view, root, op, &t);
    if (st < 0) return st;
    t->serializer = serializer;
    t->is_bcast = true;
    t->object = object;
    if (gets_result(t)) st = pack(t, serializer, object);
    if (st == WEFT_OK) return blocks_begin(t);
    talloc_free(t);
    return st;
}

/* ---- for programs without a loop of their own ---------------------------------------------- */

weft_status_t weft_view_gatherv_wait(weft_view_t *view, const weft_resource_set_t *at,
                                     const void *src, size_t len, weft_blocks_t **blocks_p) {
    WEFT__VIEW_WAIT(view, weft_view_gatherv(view, at, src, len, blocks_p, op));
}

weft_status_t weft_view_gather_objects_wait(weft_view_t *view, const weft_resource_set_t *at,
                                            const weft_serializer_t *serializer, const void *object,
                                            void *const *objects) {
    WEFT__VIEW_WAIT(view, weft_view_gather_objects(view, at, serializer, object, objects, op));
}

weft_status_t weft_view_bcast_object_wait(weft_view_t *view, const weft_resource_set_t *from,
                                          const weft_serializer_t *serializer, void *object) {
    WEFT__VIEW_WAIT(view, weft_view_bcast_object(view, from, serializer, object, op));
}

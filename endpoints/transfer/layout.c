/* Moves the bytes of an operation between the program's memory, in its layout, and messages. */
#include "layout.h"

#include <reactor/reactor.h>

#include <endpoints/core/worker.h>

enum {
    /* blocks from this size on are sent without a copy; smaller ones are cheaper packed */
    EXPOSE_LEAST = 4096,
    PIECES = 8 /* of one message */
};

/* ---- its life */

weft_status_t weft__layout_check(const weft_layout_t *layout) {
    if (layout->kind != WEFT_LAYOUT_STRIDED && layout->kind != WEFT_LAYOUT_USER)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "layout->kind is %d", (int)layout->kind);
    if (layout->reserved[0] | layout->reserved[1])
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the layout's reserved is not zero");
    return WEFT_OK;
}

weft_status_t weft__layout_measure(const weft_layout_t *layout, const char *name, const void *base,
                                   size_t *len_p) {
    size_t len;
    if (__builtin_mul_overflow(layout->block, layout->count, &len)) {
        weft__fail(WEFT_ERR_INVALID_PARAM, "%zu blocks of %zu bytes", layout->count, layout->block);
        return WEFT_ERR_INVALID_PARAM; /* which the compiler sees, too: len_p is not read then */
    }
    weft_status_t st = weft__check_memory(name, base, len);
    if (st == WEFT_OK) *len_p = len;
    return st;
}

weft_status_t weft__fail_too_long(size_t len) {
    return weft__fail(WEFT_ERR_INVALID_PARAM, "the message has %zu bytes, more than any object",
                      len);
}

weft_status_t weft__layout_start(const weft_pack_ops_t *user, void *object, size_t count,
                                 bool receives, void **state_p, size_t *len_p) {
    if (!user || (receives && !user->unpack) || (!receives && !user->pack))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the layout has no %s",
                          receives ? "unpack" : "pack");
    *state_p = object;
    *len_p = count;
    return user->start ? user->start(object, count, receives, state_p, len_p) : WEFT_OK;
}

static void end_layout(struct weft_request *req) {
    struct layout *l = req->layout;
    req->layout = NULL;
    if (l->of.kind == WEFT_LAYOUT_USER && l->of.user->end) l->of.user->end(l->state);
    weft__program_returned(req->worker->reactor);
    talloc_free(l);
}

static weft_status_t set_strided(struct weft_request *req, const weft_layout_t *layout,
                                 char *base) {
    weft_iov_t iov[REQUEST_IOV_INLINE];
    size_t len;
    weft_status_t st = weft__layout_measure(layout, "base of the layout", base, &len);
    if (st != WEFT_OK) return st;
    if (weft__layout_is_dense(layout)) return weft__request_iov(req, &(weft_iov_t){base, len}, 1);
    if (layout->count <= REQUEST_IOV_INLINE) {
        for (size_t i = 0; i < layout->count; i++)
            iov[i] = (weft_iov_t){base + i * layout->stride, layout->block};
        return weft__request_iov(req, iov, layout->count);
    }
    req->layout = weft__new(req, struct layout);
    if (!req->layout) return WEFT_ERR_NO_MEMORY;
    *req->layout = (struct layout){.of = *layout, .base = base, .end = end_layout};
    req->len = len;
    return WEFT_OK;
}

static weft_status_t set_user(struct weft_request *req, const weft_layout_t *layout,
                              const weft_iov_t *iov, bool receives) {
    size_t len;
    struct layout *l = weft__new(req, struct layout);
    if (!l) return WEFT_ERR_NO_MEMORY;
    *l = (struct layout){.of = *layout, .end = end_layout};
    weft_status_t st =
        weft__layout_start(layout->user, iov->base, iov->len, receives, &l->state, &len);
    weft__program_returned(req->worker->reactor);
    if (st < 0) {
        talloc_free(l);
        return st;
    }
    req->layout = l;
    req->len = len;
    return WEFT_OK;
}

weft_status_t weft__layout_set(struct weft_request *req, const weft_layout_t *layout,
                               const weft_iov_t *iov, size_t n_iov, bool receives) {
    weft_status_t st = weft__check_memory("iov", iov, n_iov);
    if (st < 0) return st;
    if (n_iov != 1)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "n_iov is %zu; a layout needs exactly 1", n_iov);
    st = weft__layout_check(layout);
    if (st < 0) return st;
    return layout->kind == WEFT_LAYOUT_USER ? set_user(req, layout, iov, receives)
                                            : set_strided(req, layout, iov->base);
}

/* ---- blocks */

/* Blocks of a register's width are moved as such: calling memcpy for each would cost more than
 * they do. */
static void copy_block(char *to, const char *from, size_t len) {
    switch (len) {
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    case 16: memcpy(to, from, 16); break;
    default: memcpy(to, from, len);
    }
}

/* Returns how many of the `len` bytes at `offset` lie in the blocks. Callers ask for no more
 * than there are: this is a second check. */
static size_t bounded(const struct layout *l, size_t offset, size_t len) {
    size_t all = l->of.block * l->of.count, left = offset < all ? all - offset : 0;
    return len < left ? len : left;
}

/* `packed` and the blocks from `offset` on, either way. */
static void move_strided(const struct layout *l, size_t offset, char *packed, size_t len,
                         bool out) {
    size_t block = l->of.block, within = offset % block;
    len = bounded(l, offset, len);
    char *at = l->base + offset / block * l->of.stride + within;
    while (len) {
        size_t n = block - within < len ? block - within : len;
        if (out)
            copy_block(packed, at, n);
        else
            copy_block(at, packed, n);
        packed += n;
        len -= n;
        at += l->of.stride - within;
        within = 0;
    }
}

static size_t slice_strided(const struct layout *l, weft_iov_t *to, size_t room, size_t offset,
                            size_t *len_p) {
    size_t block = l->of.block, within = offset % block, made = 0, taken = 0,
           len = bounded(l, offset, *len_p);
    char *at = l->base + offset / block * l->of.stride;
    for (; made < room && taken < len; at += l->of.stride, within = 0) {
        size_t n = block - within < len - taken ? block - within : len - taken;
        to[made++] = (weft_iov_t){at + within, n};
        taken += n;
    }
    *len_p = taken;
    return made;
}

/* ---- a request's memory */

/* The piece that holds `offset`: the one where the last fragment ended, or one behind it. */
static void seek(struct weft_request *req, size_t offset) {
    if (offset < req->iov_begin) req->iov_at = 0, req->iov_begin = 0;
    while (req->iov_at < req->n_iov && offset - req->iov_begin >= req->iov[req->iov_at].len)
        req->iov_begin += req->iov[req->iov_at++].len;
}

static weft_status_t pack_by_program(struct weft_request *req, void *to, size_t offset,
                                     size_t len) {
    struct layout *l = req->layout;
    weft_status_t st = len ? l->of.user->pack(l->state, offset, to, len) : WEFT_OK;
    weft__program_returned(req->worker->reactor);
    return st;
}

static weft_status_t unpack_by_program(struct weft_request *req, size_t offset, const void *from,
                                       size_t len) {
    struct layout *l = req->layout;
    weft_status_t st = len ? l->of.user->unpack(l->state, offset, from, len) : WEFT_OK;
    weft__program_returned(req->worker->reactor);
    return st;
}

weft_status_t weft__request_gather(struct weft_request *req, void *to, size_t offset, size_t len) {
    struct layout *l = req->layout;
    if (l && l->of.kind == WEFT_LAYOUT_USER) return pack_by_program(req, to, offset, len);
    if (l) {
        move_strided(l, offset, to, len, true);
        return WEFT_OK;
    }
    seek(req, offset);
    weft__iov_gather(to, req->iov + req->iov_at, req->n_iov - req->iov_at, offset - req->iov_begin,
                     len);
    return WEFT_OK;
}

weft_status_t weft__request_scatter(struct weft_request *req, size_t offset, const void *from,
                                    size_t len) {
    struct layout *l = req->layout;
    if (l && l->of.kind == WEFT_LAYOUT_USER) return unpack_by_program(req, offset, from, len);
    if (l) {
        move_strided(l, offset, (char *)(uintptr_t)from, len, false);
        return WEFT_OK;
    }
    seek(req, offset);
    weft__iov_scatter(req->iov + req->iov_at, req->n_iov - req->iov_at, offset - req->iov_begin,
                      from, len);
    return WEFT_OK;
}

size_t weft__request_slice(struct weft_request *req, weft_iov_t *to, size_t room, size_t offset,
                           size_t *len_p) {
    struct layout *l = req->layout;
    if (l && (l->of.kind == WEFT_LAYOUT_USER || l->of.block < EXPOSE_LEAST)) return 0;
    if (l) return slice_strided(l, to, room, offset, len_p);
    seek(req, offset);
    return weft__iov_slice(to, room, req->iov + req->iov_at, req->n_iov - req->iov_at,
                           offset - req->iov_begin, len_p);
}

static bool lies_in(const weft_iov_t *piece, const void *base, size_t len) {
    uintptr_t begin = (uintptr_t)base, at = (uintptr_t)piece->base;
    return at >= begin && at - begin <= len && piece->len <= len - (at - begin);
}

/* Each piece is of one block, or of one piece of the iov, and none comes before the piece that
 * precedes it. */
bool weft__request_covers(struct weft_request *req, size_t offset, const weft_iov_t *iov,
                          size_t n) {
    const struct layout *l = req->layout;
    if (l && l->of.kind == WEFT_LAYOUT_USER) return false;
    if (!l) seek(req, offset);
    size_t at = l ? offset / l->of.block : req->iov_at, end = l ? l->of.count : req->n_iov;
    for (size_t i = 0; i < n; i++) {
        while (at < end && !(l ? lies_in(&iov[i], l->base + at * l->of.stride, l->of.block)
                               : lies_in(&iov[i], req->iov[at].base, req->iov[at].len)))
            at++;
        if (at == end) return false;
    }
    return true;
}

/* ---- sending it packed */

struct packing {
    struct weft_request *req;
    const void *head[2];
    size_t head_len[2], len;
    weft_status_t status; /* the program's refusal */
};

static size_t pack_layout(void *to, void *arg) {
    struct packing *p = arg;
    size_t head = p->head_len[0] + p->head_len[1];
    memcpy(to, p->head[0], p->head_len[0]);
    if (p->head_len[1]) memcpy((char *)to + p->head_len[0], p->head[1], p->head_len[1]);
    weft_status_t st = weft__request_gather(p->req, (char *)to + head, p->req->offset, p->len);
    if (st >= 0) return head + p->len;
    p->status = st;
    memset(to, 0, head);
    return head;
}

static weft_status_t send_packing(struct lane *lane, enum wire_id id, struct packing *p) {
    weft_status_t st = lane->ops->am_bcopy(lane, (uint8_t)id, pack_layout, p);
    return st == WEFT_OK && p->status < 0 ? p->status : st;
}

weft_status_t weft__send_packed(struct lane *lane, const struct message *m,
                                struct weft_request *req) {
    struct packing packing = {.req = req,
                              .head = {&m->word, m->header},
                              .head_len = {sizeof m->word, m->header_len},
                              .len = m->len};
    return send_packing(lane, m->id, &packing);
}

weft_status_t weft__send_piece_copied(struct weft_request *req, enum wire_id id, const void *head,
                                      size_t head_len, size_t most) {
    struct lane *lane = req->ep->link->lane;
    size_t room = lane->iface->attr.max_bcopy - head_len, len = req->len - req->offset;
    if (len > room) len = room;
    if (len > most) len = most;
    struct packing packing = {.req = req, .head = {head}, .head_len = {head_len}, .len = len};
    weft_status_t st = send_packing(lane, id, &packing);
    if (st == WEFT_OK) req->offset += len;
    return st;
}

weft_status_t weft__send_piece(struct weft_request *req, enum wire_id id, const void *head,
                               size_t head_len, size_t most) {
    struct lane *lane = req->ep->link->lane;
    const struct iface_attr *attr = &lane->iface->attr;
    weft_iov_t slice[PIECES];
    size_t left = req->len - req->offset < most ? req->len - req->offset : most;
    size_t len = left < attr->max_zcopy ? left : attr->max_zcopy;
    size_t n = weft__request_slice(req, slice, attr->max_iov < PIECES ? attr->max_iov : PIECES,
                                   req->offset, &len);
    /* so small that all a message may have are little of it */
    bool many = len < left && len < attr->max_bcopy / 2;
    if (n == 0 || many) return weft__send_piece_copied(req, id, head, head_len, most);

    req->in_flight.count++;
    weft_status_t st = lane->ops->am_zcopy(
        lane, (uint8_t)id, &(struct lane_zcopy){head, head_len, slice, n}, &req->in_flight);
    if (st != WEFT_IN_PROGRESS) req->in_flight.count--;
    if (st == WEFT_OK || st == WEFT_IN_PROGRESS) req->offset += len;
    return st;
}

/* Arrays that are not contiguous, as layouts: blocks at a stride, or a walk over all dimensions. */
#include "core.h"

struct dimension {
    Py_ssize_t count, stride;
};

/* Blocks of `block` bytes in the order of the array's elements, the outermost dimension first. */
struct walk {
    char *base;
    size_t block, total;
    int n;
    struct dimension dim[];
};

/* Merges dimensions that lie in a row in memory. */
static struct walk *walk_of(const Py_buffer *view) {
    struct walk *walk = calloc(1, sizeof *walk + view->ndim * sizeof walk->dim[0]);
    if (!walk) return NULL;
    *walk = (struct walk){.base = view->buf, .block = view->itemsize, .total = view->len};
    for (int i = 0; i < view->ndim; i++) {
        struct dimension inner = {view->shape[i], view->strides[i]}, *outer = NULL;
        if (inner.count == 1) continue;
        if (walk->n) outer = &walk->dim[walk->n - 1];
        if (outer && outer->stride == inner.stride * inner.count) {
            *outer = (struct dimension){outer->count * inner.count, inner.stride};
        } else {
            walk->dim[walk->n++] = inner;
        }
    }
    while (walk->n && walk->dim[walk->n - 1].stride == (Py_ssize_t)walk->block) {
        walk->block *= walk->dim[--walk->n].count;
    }
    return walk;
}

static char *block_at(const struct walk *walk, size_t index) {
    char *at = walk->base;
    for (int i = walk->n - 1; i >= 0; i--) {
        size_t count = walk->dim[i].count;
        at += (Py_ssize_t)(index % count) * walk->dim[i].stride;
        index /= count;
    }
    return at;
}

/* Moves bytes [offset, offset + len) of the packed form out of the array, or into it. */
static void move(const struct walk *walk, size_t offset, char *packed, size_t len, bool into) {
    while (len) {
        size_t within = offset % walk->block, part = walk->block - within;
        char *at = block_at(walk, offset / walk->block) + within;
        if (part > len) part = len;
        if (into) {
            memcpy(at, packed, part);
        } else {
            memcpy(packed, at, part);
        }
        offset += part, packed += part, len -= part;
    }
}

static weft_status_t start(void *object, size_t count, int receives, void **state_p,
                           size_t *len_p) {
    struct walk *walk = object;
    *state_p = walk;
    *len_p = walk->total;
    return WEFT_OK;
}

static weft_status_t pack(void *state, size_t offset, void *to, size_t len) {
    move(state, offset, to, len, false);
    return WEFT_OK;
}

static weft_status_t unpack(void *state, size_t offset, const void *from, size_t len) {
    move(state, offset, (char *)from, len, true);
    return WEFT_OK;
}

static const weft_pack_ops_t walking = {.start = start, .pack = pack, .unpack = unpack};

int weft__py_plan(struct state *state, struct buffers *b) {
    struct walk *walk = b->walk = walk_of(&b->one);
    if (!walk) {
        PyErr_NoMemory();
        return -1;
    }
    if (walk->total == 0) return 0;
    if (walk->n == 1 && walk->dim[0].stride >= (Py_ssize_t)walk->block) {
        b->plan = (weft_layout_t){.kind = WEFT_LAYOUT_STRIDED,
                                  .block = walk->block,
                                  .stride = walk->dim[0].stride,
                                  .count = walk->dim[0].count};
    } else if (walk->n && b->of_device) {
        weft__py_raise_text(state, WEFT_ERR_UNSUPPORTED,
                            "a device array is strided in one dimension, forwards");
        return -1;
    } else if (walk->n) {
        b->plan = (weft_layout_t){.kind = WEFT_LAYOUT_USER, .user = &walking};
        b->iov = (weft_iov_t){walk, walk->total};
    }
    return 0;
}

void weft__py_walk_free(struct walk *walk) {
    free(walk);
}

void weft__py_gather(const struct buffers *b, char *to) {
    if (b->walk && b->walk->n) {
        move(b->walk, 0, to, b->walk->total, false);
        return;
    }
    for (Py_ssize_t i = 0; i < b->n; i++) {
        if (b->iovs[i].len) memcpy(to, b->iovs[i].base, b->iovs[i].len);
        to += b->iovs[i].len;
    }
}

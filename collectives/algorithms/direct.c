/*
 * One-sided: members send each other the keys of their DST, and put their blocks straight into it.
 * For large blocks where memory is mapped or the device does it: every byte is moved once.
 */
#include <collectives/schedule.h>

enum { KEY_TAG = 0, DONE_TAG = 1 };

/* A member's key lies behind this one's, by its rank. */
static uint64_t key_of(uint32_t rank) {
    return (1 + (uint64_t)rank) * COLL_KEY_BYTES;
}

static uint32_t send_key(struct schedule *s, uint32_t peer) {
    s->exposes = true;
    return weft__add_send(s, peer, KEY_TAG, AT(SCRATCH, 0), COLL_KEY_BYTES, AFTER(0));
}

/* When the peer's key is here, what it is to have; and word that it is there. */
static void put_to(struct schedule *s, uint32_t peer, uint64_t to, struct coll_ref from,
                   uint64_t len, uint32_t ready) {
    uint64_t key = key_of(peer);
    uint32_t got = weft__add_recv(s, peer, KEY_TAG, AT(SCRATCH, key), COLL_KEY_BYTES, AFTER(0));
    uint32_t put =
        weft__add_put(s, &(struct coll_put){peer, from, to, key, len}, AFTER(got, ready));
    weft__add_signal(s, peer, DONE_TAG, AFTER(put, got));
}

/* It is there; or it is here, from a peer that has no key to this one's DST. */
static void await_put(struct schedule *s, uint32_t peer, uint64_t to, uint64_t len) {
    if (s->shape.unexposed)
        weft__add_recv(s, peer, DONE_TAG, AT(DST, to), len, AFTER(0));
    else
        weft__add_await(s, peer, DONE_TAG, AFTER(0));
}

/* Who puts something here, and when it has. */
static void await_puts(struct schedule *s, uint64_t bytes) {
    uint32_t size = s->shape.size, rank = s->shape.rank;
    for (uint32_t i = 1; i < size; i++) {
        uint32_t peer = (rank + size - i) % size;
        await_put(s, peer, peer * bytes, bytes);
    }
    s->scratch = key_of(size);
}

void weft__build_ALLGATHER_direct(struct schedule *s) {
    uint32_t size = s->shape.size, rank = s->shape.rank;
    uint64_t bytes = s->shape.count * s->shape.width;
    uint32_t own = weft__add_copy(s, AT(DST, rank * bytes), AT(SRC, 0), bytes, AFTER(0));
    for (uint32_t i = 1; i < size; i++) send_key(s, (rank + size - i) % size);
    for (uint32_t i = 1; i < size; i++)
        put_to(s, (rank + i) % size, rank * bytes, AT(DST, rank * bytes), bytes, own);
    await_puts(s, bytes);
}

/* In place, SRC is copied before anybody has the key. */
void weft__build_ALLTOALL_direct(struct schedule *s) {
    uint32_t size = s->shape.size, rank = s->shape.rank;
    uint64_t bytes = s->shape.count * s->shape.width, saved = key_of(size);
    struct coll_ref from = s->shape.in_place ? AT(SCRATCH, saved) : AT(SRC, 0);
    if (s->shape.in_place) {
        weft__add_copy(s, from, AT(SRC, 0), size * bytes, AFTER(0));
        weft__add_gate(s);
    } else {
        weft__add_copy(s, AT(DST, rank * bytes), AT(SRC, rank * bytes), bytes, AFTER(0));
    }
    for (uint32_t i = 1; i < size; i++) send_key(s, (rank + size - i) % size);
    for (uint32_t i = 1; i < size; i++) {
        uint32_t peer = (rank + i) % size;
        put_to(s, peer, rank * bytes, (struct coll_ref){from.buffer, from.offset + peer * bytes},
               bytes, 0);
    }
    await_puts(s, bytes);
    if (s->shape.in_place) s->scratch = saved + size * bytes;
}

void weft__build_BCAST_direct(struct schedule *s) {
    const struct coll_shape *shape = &s->shape;
    uint64_t bytes = shape->count * shape->width;
    s->scratch = key_of(shape->size);
    if (shape->rank != shape->root) {
        send_key(s, shape->root);
        await_put(s, shape->root, 0, bytes);
        return;
    }
    for (uint32_t r = 0; r < shape->size; r++)
        if (r != shape->root) put_to(s, r, 0, AT(DST, 0), bytes, 0);
}

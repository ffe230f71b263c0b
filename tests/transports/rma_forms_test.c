/* Puts, gets and atomics of every form and size do what they say, and touch nothing else. */
#include "rma.h"
#include <tests/support/atomic_result.h>

/* Of every length around each power and each limit; at the region's begin and end, and unaligned
 * on either side. */
static void around(struct world *w, size_t limit,
                   void (*checked)(struct world *, enum form, size_t, size_t, size_t),
                   enum form form) {
    size_t near[] = {0, 1, 4, 8, 16, 32, 64, 256, 1024, 4096, 8192, 65536, 262144, 1 << 20};
    size_t last = SIZE_MAX;
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        for (int d = -1; d <= 1; d++) {
            size_t len = near[i] + (size_t)d;
            if (len > limit || len == last) continue;
            last = len;
            checked(w, form, len % 7, len, w->t.region.len - len);
            checked(w, form, 0, len, 0);
            if (len < 10000) checked(w, form, 3, len, 4093);
        }
    checked(w, form, 1, limit, 5);
}

static void every_form_of_every_size_arrives(const struct subject *s) {
    struct world w;
    begin(&w, s);
    source_make(1);
    const struct iface_attr *attr = &w.p.iface_a->attr;
    CHECK(attr->max_put_short >= 40);
    CHECK(attr->max_put_zcopy <= 1 << 20 && attr->max_get_zcopy <= 1 << 20);
    around(&w, attr->max_put_short, put_checked, SHORT);
    around(&w, attr->max_put_bcopy, put_checked, BCOPY);
    around(&w, attr->max_put_zcopy, put_checked, ZCOPY);
    around(&w, attr->max_get_bcopy, get_checked, BCOPY);
    around(&w, attr->max_get_zcopy, get_checked, ZCOPY);
    end(&w);
}

static void what_is_too_big_is_refused(const struct subject *s) {
    struct world w;
    begin(&w, s);
    const struct iface_attr *attr = &w.p.iface_a->attr;
    struct lane *lane = w.p.a.lane;
    struct counted c = counted(1);
    struct rma_piece wraps[2] = {{source, 1, 0, 1, NULL}, {source, SIZE_MAX, 0, 1, NULL}};
    struct rma_piece product = {source, (size_t)1 << 61, 0, 8, NULL};
    struct rma_piece sum[2] = {{source, 1 << 20, 0, 1, NULL}, {source, 1, 0, 1, NULL}}, many[64];
    for (int i = 0; i < 64; i++) many[i] = (struct rma_piece){source, 0, 0, 1, NULL};
    uint64_t at = target_at(&w.t, 0);
    CHECK_EQ(put(&w, SHORT, source, attr->max_put_short + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(put(&w, BCOPY, source, attr->max_put_bcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(put(&w, ZCOPY, source, attr->max_put_zcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(get(&w, BCOPY, sink, attr->max_get_bcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(get(&w, ZCOPY, sink, attr->max_get_zcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->rma->put_zcopy(lane, wraps, 2, at, w.key, &c.completion), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->rma->get_zcopy(lane, &product, 1, at, w.key, &c.completion),
             WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->rma->put_zcopy(lane, sum, 2, at, w.key, &c.completion), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->rma->put_zcopy(lane, many, attr->max_iov + 1, at, w.key, &c.completion),
             WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->rma->put_zcopy(lane, many, attr->max_iov, at, w.key, &c.completion),
             WEFT_OK);
    CHECK_EQ(c.calls, 0);
    end(&w);
}

static void nothing_may_be_at_null(const struct subject *s) {
    struct world w;
    begin(&w, s);
    for (enum form form = SHORT; form <= ZCOPY; form++)
        CHECK_EQ(put(&w, form, source, 0, 0), WEFT_OK);
    struct lane *lane = w.p.a.lane;
    struct counted c = counted(1);
    struct rma_piece nothing[3] = {
        {NULL, 0, 0, 1, NULL}, {NULL, 0, 9, 1000, NULL}, {NULL, 8, 8, 0, NULL}};
    uint64_t at = target_at(&w.t, w.t.region.len);
    CHECK_EQ(lane->ops->rma->put_short(lane, NULL, 0, at, w.key), WEFT_OK);
    CHECK_EQ(lane->ops->rma->put_zcopy(lane, nothing, 3, at, w.key, &c.completion), WEFT_OK);
    CHECK_EQ(lane->ops->rma->get_zcopy(lane, nothing, 3, at, w.key, &c.completion), WEFT_OK);
    CHECK_EQ(lane->ops->rma->put_zcopy(lane, NULL, 0, at, w.key, &c.completion), WEFT_OK);
    CHECK_EQ(c.calls, 0);
    end(&w);
}

/* Pieces of `source` or `sink` by a random plan; what a naive walk makes of them goes to *flat. */
static size_t plan(uint32_t *x, uint8_t *base, struct rma_piece *pieces, size_t n) {
    size_t total = 0, from = 0;
    for (size_t i = 0; i < n; i++) {
        *x = *x * 1664525 + 1013904223;
        size_t len = *x >> 8 & 1 ? *x >> 20 & 15 : *x >> 18 & 2047,
               count = 1 + (*x >> 28) * (len < 16 ? 30 : 1);
        size_t stride = len + (*x >> 12 & 63);
        pieces[i] =
            (struct rma_piece){base + from, len, count == 1 ? 0xdeadbeef : stride, count, NULL};
        from += stride * count;
        total += len * count;
    }
    CHECK(from < sizeof source);
    return total;
}
static void walk(uint8_t *flat, const struct rma_piece *pieces, size_t n, bool gather) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < pieces[i].count; k++) {
            uint8_t *block = (uint8_t *)pieces[i].base + (k ? k * pieces[i].stride : 0);
            for (size_t j = 0; j < pieces[i].len; j++, flat++)
                *(gather ? flat : block + j) = *(gather ? block + j : flat);
        }
}

static void pieces_with_strides_keep_their_order(const struct subject *s) {
    struct world w;
    static uint8_t want[sizeof sink];
    begin(&w, s);
    source_make(2);
    uint32_t x = 99;
    struct lane *lane = w.p.a.lane;
    for (int round = 0; round < 60; round++) {
        struct rma_piece pieces[16];
        struct counted c = counted(1);
        size_t n = 1 + (x >> 9) % w.p.iface_a->attr.max_iov, total = plan(&x, source, pieces, n);
        size_t offset = x % (w.t.region.len - total);
        walk(target_shadow(&w.t, offset), pieces, n, true);
        weft_status_t st = lane->ops->rma->put_zcopy(lane, pieces, n, target_at(&w.t, offset),
                                                     w.key, &c.completion);
        CHECK_EQ(performed(&w, finish(&w, &c, st)), WEFT_OK);
        CHECK(target_is_as_it_should(&w.t));
        total = plan(&x, sink, pieces, n);
        offset = x % (w.t.region.len - total);
        memset(sink, 0x5a, sizeof sink);
        walk(target_shadow(&w.t, offset), pieces, n, false);
        memcpy(want, sink, sizeof sink);
        memset(sink, 0x5a, sizeof sink);
        c = counted(1);
        CHECK_EQ(finish(&w, &c,
                        lane->ops->rma->get_zcopy(lane, pieces, n, target_at(&w.t, offset), w.key,
                                                  &c.completion)),
                 WEFT_OK);
        CHECK_EQ(memcmp(sink, want, sizeof sink), 0);
    }
    end(&w);
}

/* A put of what lies in the region itself moves it, as memmove does. */
static void what_overlaps_moves(const struct subject *s) {
    struct world w;
    begin(&w, s);
    if (w.key->local == w.t.region.base) {
        for (int back = 0; back < 2; back++)
            for (enum form form = SHORT; form <= ZCOPY; form++) {
                size_t from = back ? 100 : 37, to = back ? 37 : 100;
                if (form == BCOPY) continue; /* there the program copies */
                memmove(target_shadow(&w.t, to), target_shadow(&w.t, from), 5000);
                CHECK_EQ(put(&w, form, (uint8_t *)w.key->local + from, 5000, to), WEFT_OK);
                CHECK(target_is_as_it_should(&w.t));
                memmove(target_shadow(&w.t, to + 9), target_shadow(&w.t, from), 3000);
                CHECK_EQ(get(&w, ZCOPY, (uint8_t *)w.key->local + to + 9, 3000, from), WEFT_OK);
                CHECK(target_is_as_it_should(&w.t));
            }
    }
    end(&w);
}

/* Nothing is cut to 32 bits: a sparse region, touched on both sides of 4 GiB. */
static void beyond_four_gigabytes_is_reached(const struct subject *s) {
    struct world w;
    if (is_rdma(s)) SKIP("a device that registers a region pins all of it");
    size_t len = (4ull << 30) + (3 << 20) + 77, four = 4ull << 30;
    begin_with(&w, s, len, WEFT_MEM_ALL, false, "128");
    w.key = open_key(&w);
    source_make(3);
    size_t at[] = {0, four - 5000, four + 123, len - 9000};
    for (int i = 0; i < 4; i++) CHECK_EQ(put(&w, ZCOPY, source + i, 9000, at[i]), WEFT_OK);
    for (int i = 3; i >= 0; i--) {
        const uint8_t *there = (uint8_t *)w.t.region.base + at[i];
        size_t own = i == 1 ? 5123 : 9000; /* the third put overwrote the rest */
        CHECK_EQ(memcmp(there, source + i, own), 0);
        CHECK_EQ(get(&w, ZCOPY, sink, 9000, at[i]), WEFT_OK);
        CHECK_EQ(memcmp(sink, there, 9000), 0);
    }
    char *base = w.t.region.base;
    /* and at no other place */
    for (int i = 0; i < 4; i++) CHECK_EQ(base[9000 + (size_t)i * (1 << 30)], 0);
    end(&w);
}

static void atomics_do_what_they_send(const struct subject *s) {
    struct world w;
    begin(&w, s);
    struct lane *lane = w.p.a.lane;
    uint64_t x = 88172645463325252u;
    bool serves = w.key->caps & CAP_ATOMIC;
    for (int round = 0; serves && round < 2000; round++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        enum rma_atomic op = (enum rma_atomic)(round % 6);
        size_t size = round / 6 % 2 ? 4 : 8, offset = (x >> 20) % (w.t.region.len / size) * size;
        if (round % 97 == 0) offset = (w.t.region.len / size - 1) * size;
        struct counted c = counted(1);
        uint64_t old = 0, got = ~(uint64_t)0, operand = x * 3, remote = target_at(&w.t, offset);
        memcpy(&old, target_shadow(&w.t, offset), size);
        uint64_t mask = size == 4 ? 0xffffffff : ~(uint64_t)0,
                 compare = x & 256 ? old : old ^ (uint64_t)1 << (x & 31);
        uint64_t now = atomic_result((weft_atomic_t)op, old, operand, compare & mask) & mask;
        memcpy(target_shadow(&w.t, offset), &now, size);
        if (op != RMA_CSWAP && x & 1) {
            CHECK_EQ(lane->ops->rma->atomic_post(
                         lane, &(struct lane_atomic){op, size, operand, 0, remote}, w.key),
                     WEFT_OK);
        } else {
            CHECK_EQ(finish(&w, &c,
                            lane->ops->rma->atomic_fetch(
                                lane, &(struct lane_atomic){op, size, operand, compare, remote},
                                &got, w.key, &c.completion)),
                     WEFT_OK);
            CHECK_EQ(got & mask, old);
            CHECK_EQ(got & ~mask, ~mask); /* no byte beyond its size */
        }
        CHECK_EQ(memcmp((char *)w.t.region.base + offset, &now, size), 0);
    }
    if (serves)
        CHECK(lane->ops->rma->atomic_post(
                  lane, &(struct lane_atomic){RMA_CSWAP, 8, 1, 0, target_at(&w.t, 0)}, w.key) < 0);
    if (serves)
        CHECK(lane->ops->rma->atomic_post(
                  lane, &(struct lane_atomic){RMA_ADD, 2, 1, 0, target_at(&w.t, 0)}, w.key) < 0);
    CHECK_EQ(lane->ops->rma->fence(lane), WEFT_OK);
    CHECK_EQ(lane->ops->flush(lane, NULL), WEFT_OK);
    end(&w);
}

#define CASES(C, s)                            \
    C(s, every_form_of_every_size_arrives)     \
    C(s, what_is_too_big_is_refused)           \
    C(s, nothing_may_be_at_null)               \
    C(s, pieces_with_strides_keep_their_order) \
    C(s, what_overlaps_moves)                  \
    C(s, beyond_four_gigabytes_is_reached)     \
    C(s, atomics_do_what_they_send)

SUBJECTS(TESTS_OF)

/* Every form of a message arrives at every size around each limit, and what is beyond a limit is
 * refused. */
#include "conformance.h"

static void short_of_every_size(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    uint64_t number = 0;
    for (size_t len = 0; len <= p.iface_a->attr.max_short;
         len += len < 128 || len + 9 > p.iface_a->attr.max_short ? 1 : 7) {
        one(&p, (struct spec){number++, SHORT, len, 0, 0});
        one(&p, (struct spec){number++, SHORT_TO, len, 0, 0});
    }
    one(&p, (struct spec){number++, SHORT, p.iface_a->attr.max_short, 0, 0});
    one(&p, (struct spec){number++, SHORT_TO, p.iface_a->attr.max_short, 0, 0});
    CHECK_EQ(p.iface_a->ops->close != NULL, 1);
    CHECK(p.iface_a->attr.max_short >= WEFT_SHORT_MIN);
    pair_close(&p);
}

static void bcopy_around_limits(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    const struct iface_attr *a = &p.iface_a->attr;
    size_t around[] = {
        8,           16, 56, 64, 128, 1024, 4096, a->max_short, a->max_short + 8, a->max_bcopy / 2,
        a->max_bcopy};
    uint64_t number = 100;
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        for (int d = -1; d <= 1; d++) {
            size_t len = around[i] + (size_t)d;
            if (len >= 8 && len <= a->max_bcopy)
                one(&p, (struct spec){number++, BCOPY, len - 8, 0, 0});
        }
    pair_close(&p);
}

static void zcopy_around_limits(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    const struct iface_attr *a = &p.iface_a->attr;
    size_t payloads[] = {0,
                         1,
                         47,
                         48,
                         49,
                         4096,
                         a->max_bcopy - 9,
                         a->max_bcopy - 8,
                         a->max_bcopy,
                         a->max_zcopy - 1,
                         a->max_zcopy};
    size_t headers[] = {8, 9, 384, a->max_zcopy_header};
    uint64_t number = 7;
    CHECK(a->max_zcopy_header >= 384);
    CHECK(a->max_zcopy <= LARGEST);
    CHECK(a->max_iov >= 1 && a->max_iov <= 64);
    for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++)
        for (size_t j = 0; j < sizeof headers / sizeof *headers; j++) {
            size_t h = headers[j] - 8, pieces = j == 0   ? 1
                                                : j == 1 ? a->max_iov
                                                         : 1 + (i + j) % a->max_iov;
            if (payloads[i] <= a->max_zcopy)
                one(&p, (struct spec){number++, ZCOPY, payloads[i] + h, h, pieces});
        }
    pair_close(&p);
}

static void what_is_too_big_is_refused(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    const struct iface_attr *a = &p.iface_a->attr;
    struct counted c = counted(1);
    struct lane *lane = p.a.lane;
    weft_iov_t iov = {pattern, a->max_zcopy + 1};
    CHECK_EQ(lane->ops->am_short(lane, 1, 0, pattern, a->max_short + 1), WEFT_ERR_TOO_BIG);
    if (lane->ops->am_short_to)
        CHECK_EQ(lane->ops->am_short_to(lane, 1, 0, 0, pattern, a->max_short - 3),
                 WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->am_zcopy(lane, 1, &(struct lane_zcopy){pattern, 8, &iov, 1}, &c.completion),
             WEFT_ERR_TOO_BIG);
    iov.len = 1;
    CHECK_EQ(lane->ops->am_zcopy(lane, 1,
                                 &(struct lane_zcopy){pattern, a->max_zcopy_header + 1, &iov, 1},
                                 &c.completion),
             WEFT_ERR_TOO_BIG);
    one(&p, (struct spec){1, SHORT, 8, 0, 0}); /* and nothing was hurt */
    CHECK_EQ(c.calls, 0);
    pair_close(&p);
}

static void bulk_get_reads_the_peer(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    static uint8_t to[LARGEST];
    size_t sizes[] = {1, 4096, 100000, LARGEST - PATTERN};
    if (!(p.iface_a->attr.caps & CAP_BULK_GET)) {
        CHECK(!HAS_OP(p.a.lane->ops, bulk, bulk_get) ||
              p.a.lane->ops->bulk->bulk_get(p.a.lane, 0, NULL, 0, NULL) < 0);
        pair_close(&p);
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        struct counted c = counted(1);
        size_t half = sizes[i] / 2;
        weft_iov_t iov[2] = {{to, half}, {to + half, sizes[i] - half}};
        memset(to, 0, sizes[i]);
        weft_status_t st = p.a.lane->ops->bulk->bulk_get(
            p.a.lane, (uint64_t)(uintptr_t)(pattern + i), iov, 2, &c.completion);
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        CHECK_EQ(c.calls, 0);
        if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&p, c.calls == 1));
        CHECK_EQ(c.status, WEFT_OK);
        CHECK_EQ(memcmp(to, pattern + i, sizes[i]), 0);
    }
    pair_close(&p);
}

#define CASES(C, s)                  \
    C(s, short_of_every_size)        \
    C(s, bcopy_around_limits)        \
    C(s, zcopy_around_limits)        \
    C(s, what_is_too_big_is_refused) \
    C(s, bulk_get_reads_the_peer)

SUBJECTS(TESTS_OF)

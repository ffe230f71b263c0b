/*
 * Messages into every kind of layout, longer than it, as long, and shorter, by every way that they
 * can take: into the memory of the receive as they are read, or out of a buffer. What fits is in
 * its place, and no byte beside it changes.
 */
#include <tests/support/op_forms.h>
#include <tests/support/worker_pair.h>

#include <endpoints/core/worker.h>
#include <endpoints/transfer/layout.h>

enum { ROOM = 1 << 20, BEHIND = 128 << 10, MARK = 0x5a };
static char from[ROOM + BEHIND], region[ROOM + BEHIND];

struct shape {
    size_t block, stride, count; /* count 0: the program's own form, of `block` bytes */
};
static const struct shape shapes[] = {{100000, 100000, 1}, /* in one piece */
                                      {40000, 41000, 2},
                                      {20000, 20001, 4}, /* few blocks: pieces of an iov */
                                      {8192, 9000, 5},
                                      {8192, 8200, 6},
                                      {16384, 20000, 7},
                                      {8192, 12288, 8},
                                      /* exposed block by block */
                                      {8192, 9001, 9},
                                      {4096, 4100, 20},
                                      {9000, 10000, 40},
                                      {65536, 70000, 5},
                                      /* unpacked by the library */
                                      {1000, 1100, 90},
                                      {64, 128, 1500},
                                      {8, 24, 10000},
                                      /* … and by the program */
                                      {100000, 0, 0}};

static size_t len_of(const struct shape *s) {
    return s->count ? s->block * s->count : s->block;
}

/* The first `n` bytes are in their places, and nothing else was written. */
static bool is_in_place(const struct shape *s, size_t n) {
    static char want[sizeof region];
    memset(want, MARK, sizeof want);
    for (size_t at = 0; at < n;) {
        size_t part = n - at < s->block ? n - at : s->block;
        memcpy(want + (s->count ? at / s->block * s->stride : 0), from + at, part);
        at += part;
    }
    return memcmp(want, region, sizeof want) == 0;
}

static void cross(struct two *t, const struct shape *s, size_t len, unsigned flags) {
    struct tally got = {0}, sent = {0};
    struct form form = {.bytes = region, .len = s->block};
    weft_layout_t blocks = {
        .kind = WEFT_LAYOUT_STRIDED, .block = s->block, .stride = s->stride, .count = s->count};
    weft_op_t in = {.done = tally, .arg = &got, .layout = s->count ? &blocks : &form_layout};
    weft_op_t out = {.done = tally, .arg = &sent, .flags = flags};
    weft_iov_t iov = s->count ? (weft_iov_t){region, 0} : (weft_iov_t){&form, 7};
    memset(region, MARK, sizeof region);
    CHECK_EQ(weft_tag_recv(two_b(t), 7, UINT64_MAX, &iov, 1, NULL, &in), WEFT_IN_PROGRESS);
    weft_status_t st = weft_tag_send(t->ep, 7, &(weft_iov_t){from, len}, 1, &out);
    CHECK(st >= 0);
    UNTIL(t, got.calls && (sent.calls || st == WEFT_OK));
    size_t room = len_of(s);
    CHECK_EQ(got.status, len > room ? WEFT_ERR_TRUNCATED : WEFT_OK);
    CHECK(is_in_place(s, len < room ? len : room));
}

static void cross_all(const char *transport, const weft_setting_t *settings, size_t n,
                      unsigned flags, bool places) {
    static const long beyond[] = {-33333, -4096, -1, 0, 1, 4096, 33333, 65536};
    struct two t;
    pattern(from, sizeof from, 3);
    two_workers(&t, transport, settings, n);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof beyond / sizeof *beyond; k++)
            cross(&t, &shapes[i], (size_t)((long)len_of(&shapes[i]) + beyond[k]), flags);
    if (places) CHECK(weft_worker_count(two_b(&t), "tcp.placed_bytes") > 0);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

/* Frames are incomplete in so small a buffer, so that they land. */
static const weft_setting_t small_reads[] = {{"tcp.buffer", "4k"}};

TEST(a_message_sent_whole_that_places_stays_within_its_layout) {
    cross_all("tcp", small_reads, 1, WEFT_AM_EAGER, true);
}
TEST(a_message_sent_whole_that_is_unpacked_stays_within_its_layout) {
    cross_all("shm", NULL, 0, 0, false);
    cross_all("self", NULL, 0, 0, false);
}
TEST(an_offered_message_stays_within_its_layout) {
    cross_all("tcp", small_reads, 1, WEFT_AM_RENDEZVOUS, true);
    cross_all("tcp", NULL, 0, 0, true);
    cross_all("shm", NULL, 0, WEFT_AM_RENDEZVOUS, false);
}

/* ---- the checks by themselves ---------------------------------------------------------------- */

static struct weft_request *receive_of(struct two *t, const struct shape *s) {
    weft_layout_t blocks = {
        .kind = WEFT_LAYOUT_STRIDED, .block = s->block, .stride = s->stride, .count = s->count};
    struct weft_request *req = weft__request_new(t->a, &weft__receive_kind);
    CHECK(req);
    CHECK_EQ(weft__layout_set(req, &blocks, &(weft_iov_t){region, 0}, 1, true), 0);
    return req;
}

/* Whatever is asked for. */
TEST(no_piece_of_a_request_lies_beyond_its_memory) {
    struct two t;
    two_workers(&t, "self", NULL, 0);
    for (size_t i = 0; shapes[i].count; i++) {
        const struct shape *s = &shapes[i];
        struct weft_request *req = receive_of(&t, s);
        size_t all = len_of(s), step = s->block / 3 + 1;
        for (size_t offset = 0; offset <= all + s->block; offset += step) {
            weft_iov_t to[PLACE_IOV];
            size_t len = ROOM, n = weft__request_slice(req, to, PLACE_IOV, offset, &len);
            CHECK(n == 0 || (offset < all && len <= all - offset));
            CHECK(n == 0 || weft__request_covers(req, offset, to, n));
        }
        weft__request_discard(req);
    }
    two_down(&t);
}

TEST(pieces_that_leave_a_requests_memory_by_one_byte_are_found) {
    struct two t;
    two_workers(&t, "self", NULL, 0);
    for (size_t i = 0; shapes[i].count; i++) {
        const struct shape *s = &shapes[i];
        if (s->block < 4096) continue;
        struct weft_request *req = receive_of(&t, s);
        char *last = region + (s->count - 1) * s->stride;
        CHECK(weft__request_covers(req, 0, &(weft_iov_t){region, s->block}, 1));
        CHECK(weft__request_covers(req, 0, &(weft_iov_t){last, s->block}, 1));
        CHECK(!weft__request_covers(req, 0, &(weft_iov_t){region, s->block + 1}, 1));
        CHECK(!weft__request_covers(req, 0,
                                    &(weft_iov_t){(char *)((uintptr_t)region - 1), s->block}, 1));
        CHECK(!weft__request_covers(req, 0, &(weft_iov_t){last + 1, s->block}, 1));
        CHECK(!weft__request_covers(req, 0, &(weft_iov_t){last + s->stride, s->block}, 1));
        CHECK(!weft__request_covers(req, 0, &(weft_iov_t){last, SIZE_MAX}, 1));
        CHECK(!weft__request_covers(req, 0, (weft_iov_t[]){{last, 1}, {last + s->stride, 1}}, 2));
        weft__request_discard(req);
    }
    two_down(&t);
}

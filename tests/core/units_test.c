/* The small parts: handles that age, iovs that are cut, tags that match. */
#include <tests/harness.h>

#include <base/idmap.h>
#include <endpoints/messages/match.h>
#include <endpoints/transfer/layout.h>

TEST(an_id_of_something_gone_names_nothing) {
    struct idmap map = {0};
    void *root = talloc_new(NULL);
    int object[100];
    uint32_t id[100];
    for (int i = 0; i < 100; i++) CHECK_EQ(weft__idmap_add(root, &map, &object[i], &id[i]), 0);
    for (int i = 0; i < 100; i++) CHECK(id[i] != 0 && weft__idmap_find(&map, id[i]) == &object[i]);
    weft__idmap_remove(&map, id[5]);
    CHECK(weft__idmap_find(&map, id[5]) == NULL);
    CHECK(weft__idmap_find(&map, 0) == NULL);
    CHECK(weft__idmap_find(&map, 0xffffffff) == NULL);
    /* Its place comes back under another name, for a long time. */
    for (int i = 0; i < 5000; i++) {
        uint32_t again;
        CHECK_EQ(weft__idmap_add(root, &map, &object[5], &again), 0);
        if (i < 4000) CHECK(again != id[5]);
        CHECK(again != 0);
        weft__idmap_remove(&map, again);
    }
    talloc_free(root);
}

/* One place is free. Its names come back in turn, and the one of generation 0 is none of them:
 * of the first place it would be id 0, which names nothing. */
TEST(a_name_of_generation_0_is_never_given) {
    enum { ROOM = 16, GENERATIONS = 1 << (32 - IDMAP_INDEX_BITS) };
    for (uint32_t place = 0; place < 3; place++) {
        struct idmap map = {0};
        void *root = talloc_new(NULL);
        int object;
        uint32_t id[ROOM], again = 0;
        for (int i = 0; i < ROOM; i++) CHECK_EQ(weft__idmap_add(root, &map, &object, &id[i]), 0);
        weft__idmap_remove(&map, id[place]);
        for (int i = 1; i < 2 * GENERATIONS; i++) {
            CHECK_EQ(weft__idmap_add(root, &map, &object, &again), 0);
            CHECK(again != 0 && again >> IDMAP_INDEX_BITS != 0 &&
                  weft__idmap_find(&map, 0) == NULL);
            CHECK_EQ(again & (IDMAP_INDEX_MAX - 1), place);
            CHECK_EQ(again == id[place], i % (GENERATIONS - 1) == 0);
            weft__idmap_remove(&map, again);
        }
        talloc_free(root);
    }
}

TEST(iovs_are_cut_and_filled_at_any_offset) {
    char a[5] = "abcd", b[3] = "ef", c[8] = "ghijklm", out[16], back[3][8];
    weft_iov_t iov[] = {{a, 4}, {NULL, 0}, {b, 2}, {c, 7}}, slice[4];
    for (size_t at = 0; at <= 13; at++)
        for (size_t len = 0; at + len <= 13; len++) {
            memset(out, 0, sizeof out);
            weft__iov_gather(out, iov, 4, at, len);
            CHECK(memcmp(out, &"abcdefghijklm"[at], len) == 0 && out[len] == 0);
            memset(back, 0, sizeof back);
            weft_iov_t to[] = {{back[0], 4}, {back[1], 2}, {back[2], 7}};
            weft__iov_scatter(to, 3, at, out, len);
            char joined[14] = {0};
            memcpy(joined, back[0], 4);
            memcpy(joined + 4, back[1], 2);
            memcpy(joined + 6, back[2], 7);
            CHECK(memcmp(joined + at, &"abcdefghijklm"[at], len) == 0);
            size_t got = len;
            size_t n = weft__iov_slice(slice, 4, iov, 4, at, &got);
            CHECK_EQ(got, len);
            CHECK_EQ(weft__iov_len(slice, n), len);
        }
    size_t len = 13;
    CHECK_EQ(weft__iov_slice(slice, 2, iov, 4, 1, &len), 2);
    CHECK_EQ(len, 5);
}

TEST(ascending_fragments_of_a_request_go_on_where_the_last_ended) {
    enum { N = 1000, LEN = N * 5 };
    static char bytes[LEN], got[LEN], back[LEN];
    static weft_iov_t iov[N];
    struct weft_request req = {.iov = iov, .n_iov = N, .len = LEN};
    for (size_t i = 0; i < N; i++) iov[i] = (weft_iov_t){bytes + i * 5, 5};
    for (size_t i = 0; i < LEN; i++) bytes[i] = (char)(i * 7 + i / 256);
    for (size_t at = 0, n; at < LEN; at += n) {
        n = 1 + at * 31 % 23 < LEN - at ? 1 + at * 31 % 23 : LEN - at;
        weft__request_gather(&req, got + at, at, n);
        CHECK(req.iov_at >= at / 5 && req.iov_at <= (at + n) / 5); /* not from the front again */
    }
    CHECK(memcmp(got, bytes, LEN) == 0);
    CHECK_EQ(weft__request_gather(&req, back, 17, 100), WEFT_OK); /* a step back is allowed */
    CHECK(memcmp(back, bytes + 17, 100) == 0);
    memset(bytes, 0, LEN);
    for (size_t at = 0; at < LEN; at += 50) weft__request_scatter(&req, at, got + at, 50);
    CHECK(memcmp(got, bytes, LEN) == 0);
    weft_iov_t slice[3];
    for (size_t at = 0, n = LEN; at < LEN; at += n, n = LEN - at) {
        size_t pieces = weft__request_slice(&req, slice, 3, at, &n);
        CHECK(pieces == (n + 4) / 5 && slice[0].base == bytes + at);
    }
}

static struct weft_request *post(struct match *m, struct weft_request *req, uint64_t tag,
                                 uint64_t mask) {
    memset(req, 0, sizeof *req);
    req->match.tag = tag;
    req->match.mask = mask;
    req->match.order = m->order++;
    list_append(weft__match_queue(m, tag, mask), &req->queued);
    return req;
}

TEST(the_oldest_receive_that_fits_wins) {
    static struct match m;
    struct weft_request r[4];
    weft__match_init(&m);
    post(&m, &r[0], 5, UINT64_MAX);
    post(&m, &r[1], 0, 0);
    post(&m, &r[2], 5, UINT64_MAX);
    CHECK(weft__match_posted(&m, 5) == &r[0]);
    CHECK(weft__match_posted(&m, 6) == &r[1]);
    list_remove(&r[0].queued);
    CHECK(weft__match_posted(&m, 5) == &r[1]);
    list_remove(&r[1].queued);
    CHECK(weft__match_posted(&m, 5) == &r[2]);
    CHECK(weft__match_posted(&m, 6) == NULL);
}

/* A random run against a plain list that is searched from the front. */
TEST(matching_agrees_with_a_plain_list) {
    enum { N = 300 };
    static struct match m;
    static struct weft_tag_message messages[N];
    bool there[N] = {false};
    unsigned seed = 7;
    int next = 0;
    void *memory = talloc_new(NULL);
    weft__match_init(&m);
    for (int turn = 0; turn < 5000; turn++) {
        uint64_t tag = (unsigned)rand_r(&seed) % 20, mask = rand_r(&seed) % 3 ? UINT64_MAX : 0x1c;
        if (rand_r(&seed) % 2 && next < N) {
            messages[next].tag = tag;
            list_init(&messages[next].in_bucket);
            list_init(&messages[next].in_offers);
            list_init(&messages[next].of_ep);
            messages[next].worker = memory;
            there[next] = true;
            weft__match_add(&m, &messages[next++]);
            continue;
        }
        struct weft_tag_message *expected = NULL;
        for (int i = 0; i < next && !expected; i++)
            if (there[i] && ((messages[i].tag ^ tag) & mask) == 0) expected = &messages[i];
        struct weft_tag_message *got = weft__match_unexpected(&m, tag, mask);
        CHECK(got == expected);
        if (!got) continue;
        there[got - messages] = false;
        weft__match_remove(&m, got);
    }
    talloc_free(memory);
}

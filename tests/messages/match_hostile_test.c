/* Numbers and lengths that a hostile peer chooses do not choose what the worker spends on them. */
#include <tests/support/raw_peer.h>

#include <base/counters.h>
#include <base/siphash.h>
#include <endpoints/core/worker.h>
#include <talloc.h>

enum { OFFERS = 20000, LONGEST = 40, HALVES = 300 };

static struct raw raw;

static void fresh(const char *transport) {
    raw_open(&raw, transport, NULL, 0);
    raw_dial(&raw, transport);
    send_hello(&raw);
    open_half(&raw);
    raw.n_received = 0;
}

static uint32_t n_waiting(const struct match *match) {
    uint32_t n = 0;
    list_for_each(node, &match->unexpected) n++;
    return n;
}

static uint32_t longest(struct hash_table *table) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < table->n_buckets; i++) {
        uint32_t n = 0;
        for (const struct list *at = table->bucket[i].next; at != &table->bucket[i]; at = at->next)
            n++;
        if (n > most) most = n;
    }
    return most;
}

/* The next number after `at` that a multiplicative hash and the low bits both put into the first
 * of 256 lists. */
static uint32_t colliding(uint32_t at) {
    do at += 256;
    while (at * UINT64_C(0x9e3779b97f4a7c15) >> 56);
    return at;
}

static void send_offer(uint32_t number, uint64_t tag) {
    struct wire_rts rts = {
        .ep = raw.half, .request = number, .kind = WIRE_OFFER_TAG, .tag = tag, .len = 1000};
    uint8_t bytes[WIRE_RTS_HEAD];
    CHECK(send_msg(&raw, WIRE_RTS, bytes, weft__wire_rts(bytes, &rts)));
}

/* An offer of an active message, of this length. */
static void send_am_offer(uint32_t number, uint64_t len) {
    struct wire_rts rts = {
        .ep = raw.half, .request = number, .kind = WIRE_OFFER_AM, .am_id = 7, .len = len};
    uint8_t bytes[WIRE_RTS_HEAD];
    CHECK(send_msg(&raw, WIRE_RTS, bytes, weft__wire_rts(bytes, &rts)));
}

static int n_handled;
static void on_offered(weft_ep_t *ep, weft_am_t *am, void *arg) {
    n_handled++;
    CHECK(am->len + 4096 > am->len); /* a header of the program's fits before it */
}

/* As the reference has it: the key 00 01 … 0f, the message 00 01 … 07. */
TEST(siphash_is_as_its_authors_have_it) {
    struct siphash_key key = {{UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};
    CHECK(siphash_word(&key, UINT64_C(0x0706050403020100)) == UINT64_C(0x93f5f5799a932462));
}

TEST(two_workers_hash_by_different_keys) {
    static struct match a, b;
    weft__match_init(&a);
    weft__match_init(&b);
    CHECK(memcmp(&a.key, &b.key, sizeof a.key) != 0);
}

TEST_WIRES(offers_and_tags_that_would_collide_stand_in_short_lists) {
    struct wire_message m;
    fresh(transport);
    struct match *match = &raw.t.a->match;
    uint32_t first = colliding(0), number = first;
    for (int i = 0; i < OFFERS; i++, number = colliding(number)) {
        send_offer(number, number);
        if (i % 64 == 0) raw_turn(&raw);
    }
    RAW_UNTIL(&raw, match->by_offer.n == OFFERS);
    CHECK_EQ(match->by_tag.n, 0); /* no receive has searched */
    CHECK(!weft__match_unexpected(match, 1, UINT64_MAX));
    CHECK_EQ(match->by_tag.n, OFFERS);
    CHECK(longest(&match->by_offer) <= LONGEST);
    CHECK(longest(&match->by_tag) <= LONGEST);

    number = first;
    for (int i = 0; i < OFFERS; i++, number = colliding(number)) {
        weft__wire_one(&m, WIRE_CANCEL, number);
        CHECK(send_message(&raw, &m));
        if (i % 64 == 0) raw_turn(&raw);
    }
    RAW_UNTIL(&raw, match->by_offer.n == 0);
    CHECK_EQ(match->by_tag.n, 0);
    CHECK_EQ(raw.victim_errors, 0);
    raw_close(&raw);
}

/* A handler allocates am->len and a little more. */
TEST_WIRES(an_offer_longer_than_any_object_ends_its_connection) {
    fresh(transport);
    n_handled = 0;
    CHECK_EQ(weft_am_handler_set(raw.t.a, 7, on_offered, NULL), WEFT_OK);
    send_am_offer(1, PTRDIFF_MAX);
    RAW_UNTIL(&raw, n_handled == 1);
    CHECK_EQ(raw.victim_errors, 0);
    send_am_offer(2, UINT64_MAX - 8);
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(n_handled, 1);
    raw_close(&raw);
}

/* Each message is hashed once, by the first search that the oldest does not answer; messages that
 * are taken in order never are. */
TEST(a_message_is_hashed_by_the_first_search_that_needs_it) {
    enum { N = 6 };
    static struct match match;
    static struct weft_tag_message message[N];
    void *memory = talloc_new(NULL);
    weft__match_init(&match);
    for (int i = 0; i < N; i++) {
        message[i] = (struct weft_tag_message){.worker = memory, .tag = 10 + (uint64_t)i};
        list_init(&message[i].in_bucket);
        list_init(&message[i].in_offers);
        list_init(&message[i].of_ep);
    }
    for (int i = 0; i < 3; i++) weft__match_add(&match, &message[i]);
    for (int i = 0; i < 2; i++) {
        CHECK(weft__match_unexpected(&match, 10 + (uint64_t)i, UINT64_MAX) == &message[i]);
        weft__match_remove(&match, &message[i]);
    }
    for (int i = 3; i < 5; i++) weft__match_add(&match, &message[i]);
    CHECK_EQ(match.by_tag.n, 0);
    CHECK(weft__match_unexpected(&match, 14, UINT64_MAX) == &message[4]);
    CHECK_EQ(match.by_tag.n, 3);
    weft__match_remove(&match, &message[4]);
    weft__match_add(&match, &message[5]);
    CHECK_EQ(match.by_tag.n, 2);
    CHECK(weft__match_unexpected(&match, 13, UINT64_MAX) == &message[3]);
    CHECK(weft__match_unexpected(&match, 15, UINT64_MAX) == &message[5]);
    CHECK_EQ(match.by_tag.n, 3);
    CHECK(!weft__match_unexpected(&match, 16, UINT64_MAX));
    talloc_free(memory);
}

/* An endpoint that goes takes its own offers, and looks at no others. */
TEST_WIRES(offers_go_with_their_endpoint) {
    fresh(transport);
    struct match *match = &raw.t.a->match;
    send_offer(77, 5);
    RAW_UNTIL(&raw, match->by_offer.n == 1);
    const struct weft_ep *other = raw.victim;
    open_half(&raw);
    for (uint32_t i = 0; i < 10; i++) send_offer(100 + i, 5);
    RAW_UNTIL(&raw, match->by_offer.n == 11);
    weft_ep_close(raw.victim, WEFT_CLOSE_ABORT, NULL);
    raw.victim = NULL;
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(match->by_offer.n, 1);
    CHECK(!list_empty(&other->tags->offers));
    raw_close(&raw);
}

static void send_begin(uint64_t len, uint32_t number, const void *from, size_t n) {
    uint8_t bytes[WIRE_TAG_BEGIN_HEAD + 4096];
    memcpy(bytes + WIRE_TAG_BEGIN_HEAD, from, n);
    weft__wire_tag_begin(
        bytes, (struct wire_tag_begin){.tag = 9, .ep = raw.half, .number = number, .len = len});
    CHECK(send_msg(&raw, WIRE_TAG_BEGIN, bytes, WIRE_TAG_BEGIN_HEAD + n));
}

static void send_part(uint32_t number, uint64_t offset, const void *from, size_t n) {
    uint8_t bytes[WIRE_TAG_PART_HEAD + 4096];
    weft__wire_tag_part(bytes,
                        (struct wire_tag_part){.ep = raw.half, .number = number, .offset = offset});
    memcpy(bytes + WIRE_TAG_PART_HEAD, from, n);
    CHECK(send_msg(&raw, WIRE_TAG_PART, bytes, WIRE_TAG_PART_HEAD + n));
}

TEST_WIRES(an_announced_length_takes_no_memory_until_the_bytes_come) {
    fresh(transport);
    size_t before = talloc_total_size(raw.t.a);
    for (uint32_t i = 0; i < 20; i++) {
        uint64_t seen = raw.t.a->count->tag_unexpected;
        send_begin(16000000, i, "twenty-four bytes, or so", 24);
        RAW_UNTIL(&raw, raw.t.a->count->tag_unexpected > seen);
        CHECK(talloc_total_size(raw.t.a) - before < 64 << 10);
    }
    CHECK_EQ(raw.victim_errors, 0);
    raw_close(&raw);
}

/* Its memory grows as it comes, and what has come stays. */
TEST_WIRES(a_message_in_many_parts_comes_whole) {
    enum { N = 100, PART = 1000 };
    static uint8_t out[N * PART], in[N * PART];
    weft_iov_t iov = {in, sizeof in};
    struct tally got = {0};
    fresh(transport);
    for (unsigned i = 0; i < sizeof out; i++) out[i] = (uint8_t)(i * 7 + i / 251);
    send_begin(sizeof out, 3, out, PART);
    for (unsigned i = 1; i < N; i++) {
        send_part(3, i * PART, out + i * PART, PART);
        if (i % 8 == 0) raw_turn(&raw);
    }
    RAW_UNTIL(&raw, n_waiting(&raw.t.a->match) == 1);
    weft_status_t st = weft_tag_recv(raw.t.a, 9, UINT64_MAX, &iov, 1, NULL, OP(&got));
    CHECK_EQ(st, WEFT_OK);
    CHECK(memcmp(in, out, sizeof in) == 0);
    raw_close(&raw);
}

/* The halves of other endpoints' messages stand elsewhere. */
TEST_WIRES(half_messages_stand_with_their_endpoints) {
    uint32_t half[HALVES] = {0};
    const struct weft_ep *ep[HALVES];
    fresh(transport);
    for (uint32_t i = 0; i < HALVES; i++) {
        open_half(&raw);
        half[i] = raw.half;
        ep[i] = raw.victim;
        send_begin(100, i, half, 40);
    }
    RAW_UNTIL(&raw, ep[HALVES - 1]->tags && !list_empty(&ep[HALVES - 1]->tags->gathering));
    for (uint32_t i = 0; i < HALVES; i++) {
        const struct list *all = &ep[i]->tags->gathering;
        CHECK(!list_empty(all) && all->next->next == all);
    }
    for (uint32_t i = HALVES; i-- > 0;) {
        raw.half = half[i];
        send_part(i, 40, half, 60);
        if (i % 16 == 0) raw_turn(&raw);
    }
    RAW_UNTIL(&raw, n_waiting(&raw.t.a->match) == HALVES);
    for (uint32_t i = 0; i < HALVES; i++) CHECK(list_empty(&ep[i]->tags->gathering));
    raw_close(&raw);
}

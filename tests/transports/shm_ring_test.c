/* The ring and the doorbell by themselves, in plain memory. */
#include "../harness.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <transports/shm/memory/doorbell.h>
#include <transports/shm/queues/ring.h>

enum { SLOTS = 16, PAYLOAD = 4096, STAGING = 8192 };

struct both {
    struct ring_slot slots[SLOTS];
    uint8_t payload[PAYLOAD], staging[STAGING];
    _Atomic uint64_t tail;
    struct ring_claim exposures[SLOTS];
    struct ring_tx tx;
    struct ring_rx rx;
    int chunks_back, last_chunk;
};

static void chunk_back(void *arg, int32_t chunk) {
    struct both *r = arg;
    r->chunks_back++;
    r->last_chunk = chunk;
}
static int refresh(struct both *r) {
    return ring_refresh(&r->tx, chunk_back, r);
}

static struct both *make(void) {
    static _Alignas(64) struct both r;
    memset(&r, 0, sizeof r);
    struct ring_memory memory = {r.slots, SLOTS, r.payload, PAYLOAD};
    ring_tx_init(&r.tx, &memory, r.exposures, &r.tail);
    ring_rx_init(&r.rx, &memory, r.staging, STAGING, &r.tail);
    return &r;
}

static void take(struct both *r) {
    if (ring_done(&r->rx)) ring_notify(&r->rx);
}

TEST(a_small_message_of_every_length_arrives) {
    struct both *r = make();
    uint8_t bytes[RING_INLINE];
    for (int i = 0; i < RING_INLINE; i++) bytes[i] = (uint8_t)(i * 7 + 1);
    for (int lap = 0; lap < 5; lap++)
        for (unsigned len = 0; len <= RING_INLINE; len++) {
            struct ring_message m = {0};
            CHECK_EQ(ring_next(&r->rx, &m), 0);
            ring_put_small(&r->tx, (uint8_t)(len % 32), bytes, len);
            CHECK_EQ(ring_next(&r->rx, &m), 1);
            CHECK_EQ(m.len, len);
            CHECK_EQ(m.id, len % 32);
            CHECK_EQ(memcmp(m.data, bytes, len), 0);
            take(r);
            refresh(r);
        }
}

TEST(a_message_of_two_slots_of_every_length_arrives) {
    struct both *r = make();
    uint8_t bytes[RING_PAIR];
    for (int i = 0; i < RING_PAIR; i++) bytes[i] = (uint8_t)(i * 7 + 1);
    for (int lap = 0; lap < 5; lap++)
        for (unsigned len = RING_INLINE + 1; len <= RING_PAIR; len++) {
            struct ring_message m = {0};
            CHECK(ring_has_pair(&r->tx));
            ring_put_pair(&r->tx, (uint8_t)(len % 32), bytes, len);
            /* a pair begins anywhere, and may wrap */
            if (len % 3 == 0) ring_put_short(&r->tx, 1, len, "", 0);
            CHECK_EQ(ring_next(&r->rx, &m), 1);
            CHECK_EQ(m.len, len);
            CHECK_EQ(m.id, len % 32);
            CHECK_EQ(memcmp(m.data, bytes, len), 0);
            take(r);
            CHECK_EQ(ring_next(&r->rx, &m), len % 3 == 0);
            if (len % 3 == 0) take(r);
            refresh(r);
            CHECK_EQ(r->tx.head, r->rx.next);
        }
}

TEST(a_pair_needs_two_slots) {
    struct both *r = make();
    for (int i = 0; i < SLOTS - 1; i++) ring_put_short(&r->tx, 1, 0, "", 0);
    CHECK(!ring_full(&r->tx));
    CHECK(!ring_has_pair(&r->tx));
}

TEST(a_full_ring_takes_no_more_until_notified) {
    struct both *r = make();
    for (int i = 0; i < SLOTS; i++) {
        CHECK(!ring_full(&r->tx));
        ring_put_short(&r->tx, 1, (uint64_t)i, "", 0);
    }
    CHECK(ring_full(&r->tx));
    CHECK_EQ(refresh(r), RING_SAME);
    struct ring_message m = {0};
    for (int i = 0; i < SLOTS / 4; i++) {
        CHECK_EQ(ring_next(&r->rx, &m), 1);
        CHECK_EQ(*(const uint64_t *)m.data, i);
        take(r); /* the last one makes the producer be notified */
    }
    CHECK_EQ(refresh(r), RING_MOVED);
    CHECK(!ring_full(&r->tx));
    CHECK(!ring_drained(&r->tx));
}

/* Random lengths, random progress of the consumer; every byte is checked. */
TEST(payload_wraps_and_is_given_back_in_order) {
    struct both *r = make();
    uint32_t x = 1;
    uint64_t sent = 0, seen = 0;
    size_t lens[SLOTS];
    while (seen < 20000) {
        x = x * 1664525 + 1013904223;
        size_t len = (x >> 8) % (PAYLOAD / 4) + 1;
        uint8_t *room = ring_full(&r->tx) ? NULL : ring_payload_room(&r->tx, len);
        if (room) {
            CHECK(room >= r->payload && room + len <= r->payload + PAYLOAD);
            memset(room, (int)(sent & 255), len);
            ring_put_payload(&r->tx, 3, room, len);
            lens[sent++ % SLOTS] = len;
        }
        struct ring_message m = {0};
        for (unsigned n = room ? x >> 30 : SLOTS; n && ring_next(&r->rx, &m); n--) {
            CHECK_EQ(m.len, lens[seen % SLOTS]);
            for (size_t i = 0; i < m.len; i++) CHECK(((const uint8_t *)m.data)[i] == (uint8_t)seen);
            seen++;
            take(r);
        }
        if (!room) CHECK(refresh(r) != RING_LIES);
    }
}

static bool put_quarter(struct both *r) {
    uint8_t *room = ring_payload_room(&r->tx, PAYLOAD / 4);
    if (room) ring_put_payload(&r->tx, 1, room, PAYLOAD / 4);
    return room != NULL;
}
static void pass_one(struct both *r) {
    struct ring_message m = {0};
    CHECK_EQ(ring_next(&r->rx, &m), 1);
    ring_done(&r->rx);
    ring_notify(&r->rx);
    CHECK_EQ(refresh(r), RING_MOVED);
}

TEST(payload_that_was_not_passed_is_not_given_out) {
    struct both *r = make();
    for (int i = 0; i < 4; i++) CHECK(put_quarter(r));
    CHECK(!put_quarter(r));
    for (int i = 0; i < 6; i++) {
        pass_one(r);
        CHECK(put_quarter(r));
        CHECK(!put_quarter(r));
    }
}

/* The stretch before the end is too short for it, and what lies at the front was not passed
 * behind its first quarter. */
TEST(a_message_that_wraps_needs_room_at_the_front) {
    struct both *r = make();
    for (int i = 0; i < 3; i++) CHECK(put_quarter(r));
    pass_one(r);
    CHECK(!ring_payload_room(&r->tx, PAYLOAD / 4 + 1));
    CHECK(ring_payload_room(&r->tx, PAYLOAD / 4));
}

TEST(a_chunk_comes_back_when_its_message_was_passed) {
    struct both *r = make();
    ring_put_staged(&r->tx, 1, 5, 100, 1000);
    ring_put_short(&r->tx, 1, 0, "", 0);
    struct ring_message m = {0};
    CHECK_EQ(ring_next(&r->rx, &m), 1);
    CHECK(m.data == r->staging + 100 && m.len == 1000);
    refresh(r);
    CHECK_EQ(r->chunks_back, 0);
    take(r); /* reported at once: chunks are scarce */
    CHECK_EQ(refresh(r), RING_MOVED);
    CHECK_EQ(r->chunks_back, 1);
    CHECK_EQ(r->last_chunk, 5);
}

TEST(the_sequence_wraps_at_32_bits) {
    struct both *r = make();
    uint64_t start = (UINT64_C(1) << 32) - 8;
    r->tx.head = r->rx.next = start;
    r->tx.at = &r->slots[start % SLOTS];
    r->rx.at = &r->slots[start % SLOTS];
    r->rx.notify_at = start + r->rx.batch;
    r->tail = start;
    r->tx.limit = start + SLOTS;
    for (uint64_t i = start - SLOTS; i < start; i++)
        r->slots[i % SLOTS].word = ring_word(i, RING_IN_SLOT, 1, 8);
    for (uint64_t i = 0; i < 64; i++) {
        struct ring_message m = {0};
        ring_put_short(&r->tx, 1, i, "", 0);
        CHECK_EQ(ring_next(&r->rx, &m), 1);
        CHECK_EQ(*(const uint64_t *)m.data, i);
        take(r);
        CHECK_EQ(ring_next(&r->rx, &m), 0);
        CHECK(refresh(r) != RING_LIES);
    }
}

/* ---- a peer that scribbles ------------------------------------------------------------------- */

TEST(lies_about_a_message_are_reported_and_never_followed) {
    static const struct {
        enum ring_kind kind;
        unsigned id, len;
        struct ring_place place;
    } lies[] = {
        {RING_IN_SLOT, 32, 8, {0, 0}},
        {RING_IN_SLOT, 1, RING_INLINE + 1, {0, 0}},
        {RING_IN_SLOT, 1, 65535, {0, 0}},
        {RING_IN_PAIR, 1, 100, {0, 0}}, /* the second slot is not there */
        {RING_IN_PAIR, 32, 100, {0, 0}},
        {4, 1, 0, {0, 0}},
        {255, 1, 0, {0, 0}},
        {RING_IN_PAYLOAD, 1, 0, {0, PAYLOAD + 1}},
        {RING_IN_PAYLOAD, 1, 0, {1, PAYLOAD}},
        {RING_IN_PAYLOAD, 1, 0, {PAYLOAD, 1}},
        {RING_IN_PAYLOAD, 1, 0, {0xffffffff, 1}},
        {RING_IN_PAYLOAD, 1, 0, {0xffffffff, 0xffffffff}},
        {RING_IN_PAYLOAD, 1, 0, {1, 0xffffffff}},
        {RING_IN_STAGING, 1, 0, {STAGING, 1}},
        {RING_IN_STAGING, 1, 0, {0x80000000, 0x80000000}},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct both *r = make();
        struct ring_message m = {0};
        memcpy(r->slots[0].data, &lies[i].place, sizeof lies[i].place);
        r->slots[0].word = ring_word(0, lies[i].kind, (uint8_t)lies[i].id, lies[i].len);
        CHECK_EQ(ring_next(&r->rx, &m), RING_LIES);
    }
    struct both *r = make();
    r->slots[0].word = ring_word(0, RING_IN_PAIR, 1, RING_PAIR + 1);
    r->slots[1].word = ring_word(1, RING_IN_PAIR, 1, 0);
    CHECK_EQ(ring_next(&r->rx, &(struct ring_message){0}), RING_LIES);
    r = make(); /* and a place at the very end is none */
    struct ring_message m = {0};
    struct ring_place place = {PAYLOAD - 8, 8};
    memcpy(r->slots[0].data, &place, sizeof place);
    r->slots[0].word = ring_word(0, RING_IN_PAYLOAD, 1, 0);
    CHECK_EQ(ring_next(&r->rx, &m), 1);
}

TEST(a_tail_that_was_never_sent_or_goes_back_is_a_lie) {
    struct both *r = make();
    for (int i = 0; i < 8; i++) ring_put_short(&r->tx, 1, 0, "", 0);
    static const uint64_t lies[] = {9, SLOTS, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32};
    for (int i = 0; i < 5; i++) {
        r->tail = lies[i];
        CHECK_EQ(refresh(r), RING_LIES);
    }
    r->tail = 6;
    CHECK_EQ(refresh(r), RING_MOVED);
    r->tail = 5;
    CHECK_EQ(refresh(r), RING_LIES);
    CHECK_EQ(r->tx.limit, 6 + SLOTS);
}

/* Whatever stands in the ring, what is handed out lies within it. */
TEST(random_memory_never_leads_outside) {
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        struct both *r = make();
        for (unsigned j = 0; j < sizeof r->slots[0] / 8; j++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            memcpy((uint8_t *)&r->slots[0] + 8 * j, &x, 8);
        }
        if (i % 2) r->slots[0].word = (r->slots[0].word & 0xffffffff) | UINT64_C(1) << 32;
        if (i % 3) r->slots[1].word = ring_word(1, RING_IN_SLOT, 1, 0);
        if (i % 4 == 1) r->slots[0].word = (r->slots[0].word & ~UINT64_C(0xffe0)) | (x & 3) << 8;
        struct ring_message m = {0};
        if (ring_next(&r->rx, &m) != 1) continue;
        const uint8_t *at = m.data;
        CHECK(m.id < RING_IDS);
        bool in_slot = at == r->slots[0].data && m.len <= RING_INLINE;
        bool in_pair = m.data == r->rx.pair && m.len <= RING_PAIR;
        bool in_payload = at >= r->payload && at + m.len <= r->payload + PAYLOAD;
        bool in_staging = at >= r->staging && at + m.len <= r->staging + STAGING;
        CHECK(in_slot || in_pair || in_payload || in_staging);
    }
}

/* ---- two threads ----------------------------------------------------------------------------- */

/* So many, or what goes in so many seconds: where others want the cores, each slot-full waits
 * for its turn. */
enum { STREAM = 300000, SECONDS = 5 };
static _Atomic uint64_t n_sent;
static void *producer(void *arg) {
    struct both *r = arg;
    time_t late = time(NULL) + SECONDS;
    uint64_t i = 0;
    while (i < STREAM && time(NULL) <= late) {
        size_t len = i % 5 == 0 ? 64 + i % 900 : 0;
        uint8_t *room = NULL, pair[RING_PAIR];
        if (!ring_has_pair(&r->tx) || (len && !(room = ring_payload_room(&r->tx, len)))) {
            if (refresh(r) == RING_SAME) sched_yield();
            continue;
        }
        if (len) {
            memset(room, (int)(i & 255), len);
            ring_put_payload(&r->tx, (uint8_t)(i % 32), room, len);
        } else if (i % 5 == 1) {
            memset(pair, (int)(i & 255), sizeof pair);
            ring_put_pair(&r->tx, (uint8_t)(i % 32), pair, 57 + i % 56);
        } else {
            ring_put_short(&r->tx, (uint8_t)(i % 32), i, "abc", i % 4);
        }
        i++;
    }
    n_sent = i;
    return NULL;
}

TEST(between_two_threads_nothing_is_lost_or_torn) {
    struct both *r = make();
    pthread_t thread;
    n_sent = STREAM; /* until it is known */
    CHECK_EQ(pthread_create(&thread, NULL, producer, r), 0);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n_sent;) {
        struct ring_message m = {0};
        int got = ring_next(&r->rx, &m);
        if (got == 0) {
            sched_yield();
            continue;
        }
        const uint8_t *at = m.data;
        wrong += got != 1 || m.id != i % 32;
        if (i % 5 == 0)
            wrong += m.len != 64 + i % 900 || at[0] != (uint8_t)i || at[m.len - 1] != (uint8_t)i;
        else if (i % 5 == 1)
            wrong += m.len != 57 + i % 56 || at[0] != (uint8_t)i || at[56] != (uint8_t)i ||
                     at[m.len - 1] != (uint8_t)i;
        else
            wrong += m.len != 8 + i % 4 || *(const uint64_t *)m.data != i;
        take(r);
        i++;
    }
    pthread_join(thread, NULL);
    CHECK_EQ(wrong, 0);
}

/* ---- the doorbell ---------------------------------------------------------------------------- */

static int looked[DOORBELL_BITS];
static void look(void *arg, unsigned bit) {
    looked[bit]++;
}

TEST(each_bit_that_lanes_ring_is_looked_at_once) {
    static struct doorbell doorbell;
    memset(&doorbell, 0, sizeof doorbell);
    memset(looked, 0, sizeof looked);
    for (unsigned i = 3; i < DOORBELL_LANES; i += 32) {
        CHECK(!doorbell_ring(&doorbell, i));
        CHECK(!doorbell_ring(&doorbell, i));
    }
    CHECK(doorbell_rang(&doorbell));
    doorbell_answer(&doorbell, look, NULL);
    CHECK(!doorbell_rang(&doorbell));
    for (unsigned i = 0; i < DOORBELL_BITS; i++) CHECK_EQ(looked[i], i % 32 == 3);
    doorbell_answer(&doorbell, look, NULL);
    CHECK_EQ(looked[3], 1);
}

TEST(one_of_many_signals_a_sleeper) {
    static struct doorbell doorbell;
    memset(&doorbell, 0, sizeof doorbell);
    doorbell.armed = 1;
    CHECK_EQ(doorbell_ring(&doorbell, 1), 1);
    /* the first may have been stopped before it signalled */
    CHECK_EQ(doorbell_ring(&doorbell, 2), 1);
    doorbell_signalled(&doorbell, 1);
    CHECK_EQ(doorbell_ring(&doorbell, 1), 0);
    doorbell.armed = 2;
    doorbell_signalled(&doorbell, 1); /* the second, late */
    CHECK_EQ(doorbell_ring(&doorbell, 3), 2);
}

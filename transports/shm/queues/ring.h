/*
 * A ring with one producer and one consumer (SPSC), in memory that only the producer writes.
 *
 * A slot is one cache line with the sequence in its last word, so a small message costs one line. A
 * little larger message takes two slots. Any other lies in the payload area behind the slots or in
 * a staging chunk, and its slot holds the offset. The consumer publishes its position in a word of
 * its own memory. Both sides keep geometry and positions in private memory and check all that they
 * read: if the peer scribbles, ring_next or ring_refresh returns RING_LIES.
 */
#ifndef WEFT_TRANSPORTS_SHM_QUEUES_RING_H
#define WEFT_TRANSPORTS_SHM_QUEUES_RING_H

#include <base/compiler.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    RING_LINE = 64,
    RING_INLINE = 56,
    RING_PAIR = 2 * RING_INLINE,
    RING_IDS = 32,
    RING_FETCH = 1280
};

/* Moves a written line to the shared cache, where another core finds it sooner. Processors
 * without the instruction execute a no-op. */
static inline void ring_hand_over(const void *line) {
#ifdef __x86_64__
    __asm__ volatile("cldemote %0" : : "m"(*(const char *)line));
#else
    (void)line;
#endif
}

struct ring_slot {
    uint8_t data[RING_INLINE];
    _Atomic uint64_t word; /* sequence 32, length 16, kind 8, id 8 */
};
_Static_assert(sizeof(struct ring_slot) == RING_LINE, "a slot is a line");

enum ring_kind { RING_IN_SLOT, RING_IN_PAYLOAD, RING_IN_STAGING, RING_IN_PAIR };

/* The place of a message that is not in its slot. */
struct ring_place {
    uint32_t offset, len;
};

static inline uint64_t ring_word(uint64_t index, enum ring_kind kind, uint8_t id, unsigned len) {
    return (index + 1) << 32 | (uint64_t)len << 16 | (uint64_t)kind << 8 | id;
}

/* Up to RING_INLINE bytes, without a call. */
static inline void ring_copy_small(uint8_t *to, const uint8_t *from, size_t len) {
    if (len >= 16) {
        for (size_t at = 0; at + 16 < len; at += 16) memcpy(to + at, from + at, 16);
        memcpy(to + len - 16, from + len - 16, 16);
    } else if (len >= 8) {
        memcpy(to, from, 8);
        memcpy(to + len - 8, from + len - 8, 8);
    } else if (len >= 4) {
        memcpy(to, from, 4);
        memcpy(to + len - 4, from + len - 4, 4);
    } else if (len) {
        to[0] = from[0];
        to[len / 2] = from[len / 2];
        to[len - 1] = from[len - 1];
    }
}

/* ---- producer -------------------------------------------------------------------------------- */

/* What is given back when the consumer has passed the slot `index`. */
struct ring_claim {
    uint64_t index;
    uint64_t payload_end;
    int32_t chunk; /* of staging memory, as weft__shm_chunk_get returned it; -1: none */
};

struct ring_tx {
    struct ring_slot *slots;
    struct ring_slot *at; /* the next to fill: slots[head & mask], found off the critical path */
    uint32_t mask;
    uint32_t last_len; /* of the last message beyond one slot, until its like is expected */
    uint64_t head;
    /* first that may not be filled: what the consumer had passed, as last seen, + slots */
    uint64_t limit;
    const _Atomic uint64_t *tail; /* the consumer's word */

    uint8_t *payload;
    uint64_t payload_size, payload_head, payload_tail; /* positions only grow */
    struct ring_claim *exposures;                      /* a queue, as many as slots */
    uint64_t claims_head, claims_tail;
};

/* The memory of a ring, as one of its sides has it mapped. */
struct ring_memory {
    void *slots;
    uint32_t n_slots;
    void *payload;
    uint32_t payload_size;
};

static inline void ring_tx_init(struct ring_tx *tx, const struct ring_memory *own,
                                struct ring_claim *exposures, const _Atomic uint64_t *tail) {
    *tx = (struct ring_tx){.slots = own->slots,
                           .at = own->slots,
                           .mask = own->n_slots - 1,
                           .limit = own->n_slots,
                           .tail = tail,
                           .payload = own->payload,
                           .payload_size = own->payload_size,
                           .exposures = exposures};
}

enum { RING_SAME, RING_MOVED, RING_LIES = -1 };

/* Takes back what the consumer has passed. Calls `give_back` for each staging chunk. */
static inline int ring_refresh(struct ring_tx *tx, void (*give_back)(void *arg, int32_t chunk),
                               void *arg) {
    uint64_t seen = tx->limit - tx->mask - 1,
             tail = atomic_load_explicit(tx->tail, memory_order_acquire);
    if (tail == seen) return RING_SAME;
    if (tail - seen > tx->head - seen) return RING_LIES;
    tx->limit = tail + tx->mask + 1;
    while (tx->claims_tail != tx->claims_head) {
        const struct ring_claim *exposure = &tx->exposures[tx->claims_tail & tx->mask];
        if (exposure->index >= tail) break;
        tx->payload_tail = exposure->payload_end;
        if (exposure->chunk >= 0) give_back(arg, exposure->chunk);
        tx->claims_tail++;
    }
    return RING_MOVED;
}

static inline bool ring_full(const struct ring_tx *tx) {
    return tx->head == tx->limit;
}

/* All that was sent has been passed, as last seen. */
static inline bool ring_drained(const struct ring_tx *tx) {
    return tx->limit - tx->mask - 1 == tx->head;
}

static inline void ring_publish(struct ring_tx *tx, struct ring_slot *slot, enum ring_kind kind,
                                uint8_t id, unsigned len) {
    uint64_t index = tx->head;
    atomic_store_explicit(&slot->word, ring_word(index, kind, id, len), memory_order_release);
    tx->head = ++index;
    tx->at = &tx->slots[index & tx->mask];
}

/* `back` slots before the next to fill. */
static inline const struct ring_slot *ring_last(const struct ring_tx *tx, unsigned back) {
    return &tx->slots[(tx->head - back) & tx->mask];
}

/* Not full; len <= RING_INLINE - 8. */
static inline void ring_put_short(struct ring_tx *tx, uint8_t id, uint64_t header, const void *data,
                                  size_t len) {
    struct ring_slot *slot = tx->at;
    memcpy(slot->data, &header, sizeof header);
    ring_copy_small(slot->data + sizeof header, data, len);
    ring_publish(tx, slot, RING_IN_SLOT, id, (unsigned)(sizeof header + len));
}

/* Not full; len <= RING_INLINE - 12. */
static inline void ring_put_short_to(struct ring_tx *tx, uint8_t id, uint64_t header, uint32_t to,
                                     const void *data, size_t len) {
    struct ring_slot *slot = tx->at;
    memcpy(slot->data, &header, sizeof header);
    memcpy(slot->data + sizeof header, &to, sizeof to);
    ring_copy_small(slot->data + sizeof header + sizeof to, data, len);
    ring_publish(tx, slot, RING_IN_SLOT, id, (unsigned)(sizeof header + sizeof to + len));
}

/* Not full; len <= RING_INLINE. */
static inline void ring_put_small(struct ring_tx *tx, uint8_t id, const void *data, size_t len) {
    struct ring_slot *slot = tx->at;
    ring_copy_small(slot->data, data, len);
    ring_publish(tx, slot, RING_IN_SLOT, id, (unsigned)len);
}

/* Two slots may be filled. */
static inline bool ring_has_pair(const struct ring_tx *tx) {
    return tx->limit - tx->head > 1;
}

static inline struct ring_slot *ring_second(const struct ring_tx *tx) {
    return &tx->slots[(tx->head + 1) & tx->mask];
}

/* Requires ring_has_pair and RING_INLINE < len <= RING_PAIR. The first slot's word describes
 * both, and is written last. */
static inline void ring_put_pair(struct ring_tx *tx, uint8_t id, const uint8_t *data, size_t len) {
    struct ring_slot *slot = tx->at, *second = ring_second(tx);
    memcpy(second->data, data + RING_INLINE, len - RING_INLINE);
    atomic_store_explicit(&second->word, ring_word(tx->head + 1, RING_IN_PAIR, id, 0),
                          memory_order_relaxed);
    memcpy(slot->data, data, RING_INLINE);
    ring_publish(tx, slot, RING_IN_PAIR, id, (unsigned)len);
    tx->at = &tx->slots[++tx->head & tx->mask];
    tx->last_len = (uint32_t)len;
}

/* Room for `len` bytes in one piece, or NULL. It is taken by ring_put_payload; but a stretch
 * before the end that is too short for it is passed at once, and comes back with the next
 * message that is put into the payload, whenever that is. It is shorter than the longest
 * message, which is a quarter of the payload at most (attributes, iface.c): so it keeps none
 * from an empty ring for ever. */
static inline uint8_t *ring_payload_room(struct ring_tx *tx, size_t len) {
    uint64_t at = tx->payload_head & (tx->payload_size - 1),
             skip = at + len > tx->payload_size ? tx->payload_size - at : 0;
    if (tx->payload_head + skip + len - tx->payload_tail > tx->payload_size) return NULL;
    tx->payload_head += skip;
    return tx->payload + (skip ? 0 : at);
}

static inline void ring_claim_slots(struct ring_tx *tx, int32_t chunk) {
    tx->exposures[tx->claims_head++ & tx->mask] =
        (struct ring_claim){tx->head, tx->payload_head, chunk};
}

/* Fetches the lines of the next message, which may be as long as the last. The consumer read
 * these lines a round ago; fetched back before they are needed. Larger ones would be taken
 * from under the consumer, which is reading nearby. */
static inline void ring_own_next(struct ring_tx *tx) {
    uint64_t at = tx->payload_head & (tx->payload_size - 1), len = tx->last_len;
    tx->last_len = 0;
    prefetch_to_write(tx->at);
    if (len <= RING_PAIR) {
        if (len) prefetch_to_write(ring_second(tx));
    } else if (len <= RING_FETCH && at + len <= tx->payload_size) {
        for (size_t i = 0; i < len; i += RING_LINE) prefetch_to_write(tx->payload + at + i);
    }
}

/* The bytes written at ring_payload_room's answer become a message. */
static inline void ring_put_payload(struct ring_tx *tx, uint8_t id, const uint8_t *room,
                                    size_t len) {
    struct ring_place place = {(uint32_t)(room - tx->payload), (uint32_t)len};
    struct ring_slot *slot = tx->at;
    memcpy(slot->data, &place, sizeof place);
    tx->payload_head += (len + RING_LINE - 1) & ~(uint64_t)(RING_LINE - 1);
    ring_claim_slots(tx, -1);
    ring_publish(tx, slot, RING_IN_PAYLOAD, id, 0);
    tx->last_len = (uint32_t)len;
}

static inline void ring_put_staged(struct ring_tx *tx, uint8_t id, int32_t chunk, uint32_t offset,
                                   size_t len) {
    struct ring_place place = {offset, (uint32_t)len};
    struct ring_slot *slot = tx->at;
    memcpy(slot->data, &place, sizeof place);
    ring_claim_slots(tx, chunk);
    ring_publish(tx, slot, RING_IN_STAGING, id, 0);
}

/* ---- consumer -------------------------------------------------------------------------------- */

struct ring_rx {
    const struct ring_slot *at; /* to be read: slots[next & mask] */
    const struct ring_slot *slots;
    uint32_t mask;
    uint32_t batch; /* slots from one notification to the next */
    uint64_t next;
    uint64_t notify_at;     /* position at which the producer is notified */
    _Atomic uint64_t *tail; /* in our memory; the producer reads it */
    const uint8_t *payload, *staging;
    uint32_t payload_size, staging_size;
    /* payload bytes taken since the last notification, and how many cause one */
    uint32_t bytes, bytes_batch;
    uint64_t pair[RING_PAIR / 8]; /* a copy of a message of two slots */
};

struct ring_message {
    const void *data;
    size_t len;
    uint8_t id;
};

static inline void ring_rx_init(struct ring_rx *rx, const struct ring_memory *peers,
                                const void *staging, uint32_t staging_size,
                                _Atomic uint64_t *tail) {
    *rx = (struct ring_rx){.at = peers->slots,
                           .slots = peers->slots,
                           .mask = peers->n_slots - 1,
                           .batch = peers->n_slots / 4,
                           .notify_at = peers->n_slots / 4,
                           .tail = tail,
                           .payload = peers->payload,
                           .payload_size = peers->payload_size,
                           .staging = staging,
                           .staging_size = staging_size,
                           .bytes_batch = peers->payload_size / 4};
}

/* True and its word, if the next message is there. */
static inline bool ring_peek(const struct ring_rx *rx, uint64_t *word_p) {
    *word_p = atomic_load_explicit(&rx->at->word, memory_order_acquire);
    return (uint32_t)(*word_p >> 32) == (uint32_t)(rx->next + 1);
}

static inline bool ring_ready(const struct ring_rx *rx) {
    uint64_t word;
    return ring_peek(rx, &word);
}

/* The message `by` behind the next one is there already: the lines of those between lie still,
 * and may be fetched before they are looked at. Closer to the producer, that would take lines
 * from under its hands. */
static inline bool ring_lags(const struct ring_rx *rx, uint64_t by) {
    uint64_t word =
        atomic_load_explicit(&rx->slots[(rx->next + by) & rx->mask].word, memory_order_relaxed);
    return (uint32_t)(word >> 32) == (uint32_t)(rx->next + by + 1);
}

static inline void ring_fetch(const struct ring_rx *rx, uint64_t by) {
    __builtin_prefetch(&rx->slots[(rx->next + by) & rx->mask]);
}

/* Copies a message of two slots into one piece, so that one slot is still to be passed. */
static inline int ring_next_pair(struct ring_rx *rx, struct ring_message *m) {
    const struct ring_slot *second = &rx->slots[(rx->next + 1) & rx->mask];
    uint64_t word = atomic_load_explicit(&second->word, memory_order_relaxed);
    if (m->len > RING_PAIR || (uint32_t)(word >> 32) != (uint32_t)(rx->next + 2)) return RING_LIES;
    memcpy(rx->pair, rx->at->data, RING_INLINE);
    memcpy(rx->pair + RING_INLINE / 8, second->data, RING_INLINE);
    m->data = rx->pair;
    rx->next++;
    return 1;
}

/* The message is not in its slot. The place is read once. */
static inline int ring_next_elsewhere(struct ring_rx *rx, unsigned kind, struct ring_message *m) {
    struct ring_place place;
    if (kind == RING_IN_PAIR) return ring_next_pair(rx, m);
    memcpy(&place, rx->at->data, sizeof place);
    atomic_signal_fence(memory_order_seq_cst); /* the compiler may not read it again */
    bool staged = kind == RING_IN_STAGING;
    uint32_t size = staged ? rx->staging_size : rx->payload_size;
    if (kind > RING_IN_STAGING || place.len > size || place.offset > size - place.len)
        return RING_LIES;
    m->data = (staged ? rx->staging : rx->payload) + place.offset;
    m->len = place.len;
    rx->bytes += staged ? rx->bytes_batch : place.len + 1;
    if (rx->bytes >= rx->bytes_batch) rx->notify_at = rx->next + 1;
    return 1;
}

_Static_assert(RING_IN_SLOT == 0,
               "a kind of 0 and an id below RING_IDS: the message is in its slot");

/* 1 and the message of the peeked `word`, which stays valid until ring_done; or RING_LIES. */
static inline int ring_open(struct ring_rx *rx, uint64_t word, struct ring_message *m) {
    unsigned kind_and_id = word & 0xffff;
    m->id = (uint8_t)word;
    m->data = rx->at->data;
    m->len = word >> 16 & 0xffff;
    if (LIKELY(kind_and_id < RING_IDS)) return LIKELY(m->len <= RING_INLINE) ? 1 : RING_LIES;
    return m->id < RING_IDS ? ring_next_elsewhere(rx, kind_and_id >> 8, m) : RING_LIES;
}

/* ring_peek and ring_open; 0: no message. */
static inline int ring_next(struct ring_rx *rx, struct ring_message *m) {
    uint64_t word;
    return ring_peek(rx, &word) ? ring_open(rx, word, m) : 0;
}

static inline void ring_notify(struct ring_rx *rx) {
    rx->notify_at = rx->next + rx->batch;
    rx->bytes = 0;
    atomic_store_explicit(rx->tail, rx->next, memory_order_release);
}

/* The message has been handled. True: enough slots were passed to publish the position
 * (ring_notify). */
static inline bool ring_done(struct ring_rx *rx) {
    uint64_t next = ++rx->next;
    rx->at = &rx->slots[next & rx->mask];
    return next >= rx->notify_at;
}

#endif

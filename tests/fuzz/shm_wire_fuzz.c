/* What a shm peer may say on the socket, what its address may hold, and what may stand in its
 * ring. */
#include "fuzz.h"
#include <transports/shm/queues/ring.h>
#include <transports/shm/queues/slot_table.h>
#include <transports/shm/wire/wire.h>

static void word(const uint8_t *p, size_t len) {
    enum shm_kind kind;
    struct shm_hello hello;
    weft_status_t status = WEFT_OK;
    if (weft__shm_decode(p, len, &kind, &hello, &status) != WEFT_OK) return;
    if (kind == SHM_NO) insist(status < 0 && status >= WEFT_STATUS_LAST);
    if (kind != SHM_HELLO && kind != SHM_WELCOME) return;
    bool ring = hello.n_slots >= 16 && (hello.n_slots & (hello.n_slots - 1)) == 0 &&
                hello.n_slots <= SHM_MAX_SLOTS;
    insist(ring || (hello.n_slots == 0 && hello.payload_size == 0));
    insist(hello.place < SLOT_TABLE_PLACES);
    insist(hello.n_nodes >= 16 && hello.n_nodes <= SHM_MAX_NODES && hello.n_blocks >= 1 &&
           hello.n_blocks <= SHM_MAX_BLOCKS);
    insist(hello.n_slots == 0 || hello.payload_size >= 4096);
    insist(hello.payload_size <= SHM_MAX_PAYLOAD);
    insist(hello.staging_size > 0 && hello.staging_size <= SHM_MAX_STAGING);
}

static void address(const uint8_t *p, size_t len) {
    struct shm_address a;
    uint8_t again[sizeof a];
    if (weft__shm_address_decode(p, len, &a) != WEFT_OK) return;
    insist(weft__shm_address_encode(&a, again, sizeof again) == len && memcmp(again, p, len) == 0);
}

enum { SLOTS = 16, PAYLOAD = 4096, STAGING = 8192 };

/* The input is the memory of the ring; whatever is handed out lies within it. */
static void ring(const uint8_t *p, size_t len) {
    static _Alignas(64) struct ring_slot slots[SLOTS];
    static uint8_t payload[PAYLOAD], staging[STAGING];
    static _Atomic uint64_t tail;
    struct ring_rx rx;
    struct ring_message m;
    memset(slots, 0, sizeof slots);
    memcpy(slots, p, len < sizeof slots ? len : sizeof slots);
    ring_rx_init(&rx, &(struct ring_memory){slots, SLOTS, payload, PAYLOAD}, staging, STAGING,
                 &tail);
    for (int n = 0; n < 2 * SLOTS && ring_next(&rx, &m) > 0; n++) {
        const uint8_t *at = m.data, *slot = (const uint8_t *)slots;
        insist(m.id < RING_IDS);
        insist((m.data == rx.pair && m.len <= RING_PAIR) ||
               (at >= slot && at + m.len <= slot + sizeof slots) ||
               (at >= payload && at + m.len <= payload + PAYLOAD) ||
               (at >= staging && at + m.len <= staging + STAGING));
        if (ring_done(&rx)) ring_notify(&rx);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const decode_fn decoders[] = {word, address, ring};
    return FUZZ_ONE_OF(decoders, data, size);
}

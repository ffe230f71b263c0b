/*
 * One-sided operations of a peer that lies about its key, its range and its rights: not a byte of
 * the region changes, no callback runs, the peer receives a refusal, and the honest peer of the
 * same worker does not notice.
 */
#include <tests/support/raw_peer.h>

#include <endpoints/memory/rkey.h>
#include <transports/transport.h>

enum { ROOM = 8192, ASKED = 0x00100123 };
static struct raw raw;
static weft_mem_t *mem;
static char *region, shadow[ROOM];
static struct wire_key granted;

static struct wire_key key_of(weft_mem_t *of) {
    char bytes[WEFT_RKEY_MAX];
    size_t len = sizeof bytes;
    struct rkey_packed packed;
    CHECK_EQ(weft_mem_pack(of, bytes, &len), 0);
    CHECK_EQ(weft__rkey_read(bytes, len, &packed), 0);
    struct wire_key key = {packed.region.id, packed.region.epoch, {0}};
    memcpy(key.token, packed.region.token, sizeof key.token);
    return key;
}

static void begin(const char *transport, unsigned rights, const weft_setting_t *settings,
                  size_t n) {
    weft_mem_info_t info;
    raw_open(&raw, transport, settings, n);
    CHECK_EQ(weft_mem_alloc(raw.t.a, ROOM, &(weft_mem_params_t){.rights = rights}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    region = info.base;
    pattern(region, ROOM, 5);
    memcpy(shadow, region, ROOM);
    granted = key_of(mem);
    raw_dial(&raw, transport);
    send_hello(&raw);
    open_half(&raw);
}

static uint64_t at(int64_t offset) {
    return (uint64_t)(uintptr_t)region + (uint64_t)offset;
}

/* The answer to ASKED, once it was received: RMA_DONE's status, or OK for DATA. */
static weft_status_t answered(void) {
    for (unsigned i = 0; i < raw.n_received && i < RECEIVED; i++) {
        struct wire_rma_done done;
        struct wire_data piece;
        if (raw.received[i].id == WIRE_RMA_DONE &&
            weft__wire_read_rma_done(raw.received[i].bytes, raw.received[i].len, &done) &&
            done.request == ASKED)
            return (weft_status_t)done.status;
        if (raw.received[i].id == WIRE_DATA &&
            weft__wire_read_data(raw.received[i].bytes, raw.received[i].len, &piece) &&
            piece.to == ASKED)
            return WEFT_OK;
    }
    return WEFT_IN_PROGRESS;
}

static weft_status_t wait_answer(void) {
    RAW_UNTIL(&raw, answered() != WEFT_IN_PROGRESS);
    return answered();
}

static weft_status_t flushed(void) {
    struct wire_message m;
    struct wire_fin fin = {0};
    raw.n_received = 0;
    weft__wire_flush(&m, (struct wire_flush){raw.half, 77});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, received(&raw, WIRE_FLUSHED));
    for (unsigned i = 0; i < raw.n_received && i < RECEIVED; i++)
        if (raw.received[i].id == WIRE_FLUSHED)
            CHECK(weft__wire_read_flushed(raw.received[i].bytes, raw.received[i].len, &fin));
    CHECK_EQ(fin.request, 77);
    return (weft_status_t)fin.status;
}

static weft_status_t put(struct wire_key key, uint64_t address, size_t len, uint32_t request) {
    static char bytes[WIRE_PUT_HEAD + 2 * ROOM];
    weft__wire_put(bytes, &(struct wire_put){.ep = raw.half,
                                             .request = request,
                                             .key = key,
                                             .address = address,
                                             .flags = request ? WIRE_PUT_LAST : 0});
    memset(bytes + WIRE_PUT_HEAD, 0xbb, len);
    raw.n_received = 0;
    CHECK(send_msg(&raw, WIRE_PUT, bytes, WIRE_PUT_HEAD + len));
    return request ? wait_answer() : WEFT_OK;
}

static weft_status_t get(struct wire_key key, uint64_t address, uint64_t len) {
    struct wire_message m;
    weft__wire_get(&m,
                   &(struct wire_get){
                       .ep = raw.half, .to = ASKED, .key = key, .address = address, .len = len});
    raw.n_received = 0;
    CHECK(send_message(&raw, &m));
    return wait_answer();
}

static weft_status_t atomic(struct wire_key key, uint64_t address, uint8_t what, uint8_t size,
                            bool fetch) {
    struct wire_message m;
    weft__wire_atomic(&m, &(struct wire_atomic){.ep = raw.half,
                                                .request = ASKED,
                                                .key = key,
                                                .address = address,
                                                .what = what,
                                                .size = size,
                                                .fetch = fetch,
                                                .operand = 1});
    raw.n_received = 0;
    CHECK(send_message(&raw, &m));
    return wait_answer();
}

static bool untouched(void) {
    return memcmp(region, shadow, ROOM) == 0;
}

static void all_refused(struct wire_key key, uint64_t address, size_t len, weft_status_t status) {
    CHECK_EQ(put(key, address, len < ROOM ? len : ROOM, ASKED), status);
    CHECK_EQ(get(key, address, len), status);
    CHECK_EQ(atomic(key, address & ~UINT64_C(7), WEFT_ATOMIC_ADD, 8, true), status);
    CHECK_EQ(put(key, address, len < ROOM ? len : ROOM, 0), WEFT_OK); /* without a waiter … */
    /* … so the next flush reports it, once */
    CHECK_EQ(flushed(), status);
    CHECK_EQ(flushed(), WEFT_OK);
    CHECK(untouched());
}

static void end(void) {
    CHECK(untouched());
    CHECK_EQ(raw.down, 0); /* it lost nothing but what it asked for */
    CHECK_EQ(raw.victim_errors, 0);
    raw_close(&raw);
}

TEST_WIRES(a_range_outside_or_around_the_end_of_memory_is_refused) {
    begin(transport, WEFT_MEM_ALL, NULL, 0);
    all_refused(granted, at(ROOM), 1, WEFT_ERR_INVALID_PARAM);
    all_refused(granted, at(-8), 16, WEFT_ERR_INVALID_PARAM);
    all_refused(granted, at(ROOM + 4096), 64, WEFT_ERR_INVALID_PARAM);
    all_refused(granted, UINT64_MAX - 7, 16, WEFT_ERR_INVALID_PARAM);
    all_refused(granted, 0, 8, WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(put(granted, at(ROOM - 8), 9, ASKED), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(put(granted, at(1), ROOM, ASKED), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(get(granted, at(1), ROOM), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(get(granted, at(8), UINT64_MAX - 4), WEFT_ERR_INVALID_PARAM); /* wraps */
    CHECK_EQ(get(granted, at(8), UINT64_MAX), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(atomic(granted, at(ROOM - 4), WEFT_ATOMIC_ADD, 8, true), WEFT_ERR_INVALID_PARAM);
    /* not aligned */
    CHECK_EQ(atomic(granted, at(4), WEFT_ATOMIC_ADD, 8, true), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(atomic(granted, at(1), WEFT_ATOMIC_ADD, 4, false), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(atomic(granted, at(0), WEFT_ATOMIC_CSWAP, 8, false), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(atomic(granted, at(0), 6, 8, true), WEFT_ERR_INVALID_PARAM);
    for (unsigned size = 0; size < 256; size++)
        if (size != 4 && size != 8)
            CHECK_EQ(atomic(granted, at(0), WEFT_ATOMIC_ADD, (uint8_t)size, true),
                     WEFT_ERR_INVALID_PARAM);
    /* And what is granted works. */
    CHECK_EQ(get(granted, at(0), ROOM), WEFT_OK);
    end();
}

TEST_WIRES(a_forged_or_old_key_opens_nothing) {
    begin(transport, WEFT_MEM_ALL, NULL, 0);
    struct wire_key key;
    for (unsigned bit = 0; bit < 128; bit += 5) {
        key = granted;
        key.token[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_EQ(put(key, at(0), 8, ASKED), WEFT_ERR_REVOKED);
    }
    all_refused(key, at(0), 8, WEFT_ERR_REVOKED);
    for (uint32_t epoch = 0; epoch < 4; epoch++) {
        key = granted;
        key.epoch = epoch;
        if (epoch != granted.epoch) all_refused(key, at(0), 8, WEFT_ERR_REVOKED);
    }
    for (unsigned bit = 0; bit < 32; bit++) {
        key = granted;
        key.region ^= 1u << bit;
        CHECK_EQ(get(key, at(0), 8), WEFT_ERR_REVOKED);
    }
    all_refused((struct wire_key){0}, at(0), 8, WEFT_ERR_REVOKED);
    end();
}

TEST_WIRES(rights_that_were_not_granted_are_not_had) {
    static const unsigned each[] = {WEFT_MEM_READ, WEFT_MEM_WRITE, WEFT_MEM_ATOMIC};
    for (int i = 0; i < 3; i++) {
        begin(transport, each[i], NULL, 0);
        weft_status_t refused = WEFT_ERR_INVALID_PARAM;
        if (each[i] != WEFT_MEM_WRITE) CHECK_EQ(put(granted, at(0), 8, ASKED), refused);
        if (each[i] != WEFT_MEM_ATOMIC)
            CHECK_EQ(atomic(granted, at(0), WEFT_ATOMIC_ADD, 8, true), refused);
        CHECK_EQ(get(granted, at(0), 8), each[i] == WEFT_MEM_READ ? WEFT_OK : refused);
        end();
    }
}

TEST_WIRES(a_revoked_key_grants_nothing_and_a_released_region_neither) {
    struct tally done = {0};
    begin(transport, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(get(granted, at(0), 8), WEFT_OK);
    CHECK_EQ(weft_mem_revoke(mem, OP(&done)), 0);
    all_refused(granted, at(0), 8, WEFT_ERR_REVOKED);
    granted = key_of(mem);
    CHECK_EQ(get(granted, at(0), 8), WEFT_OK);
    CHECK(untouched());
    uint64_t first = at(0);
    CHECK_EQ(weft_mem_release(mem, OP(&done)), 0);
    region = shadow; /* the memory is gone; the peer names where it was */
    CHECK_EQ(put(granted, first, 8, ASKED), WEFT_ERR_REVOKED);
    CHECK_EQ(get(granted, first, 8), WEFT_ERR_REVOKED);
    end();
}

/* Words that no decoder takes, and answers without a request. */
TEST_WIRES(what_does_not_read_ends_the_link_of_who_sent_it) {
    struct wire_message m;
    begin(transport, WEFT_MEM_ALL, NULL, 0);
    static const uint8_t ids[] = {WIRE_PUT,      WIRE_GET,   WIRE_ATOMIC,
                                  WIRE_RMA_DONE, WIRE_FLUSH, WIRE_FLUSHED};
    raw_hang_up(&raw);
    for (unsigned i = 0; i < sizeof ids; i++)
        for (size_t len = 0; len < 48; len += 23) {
            raw_dial(&raw, transport);
            send_hello(&raw);
            open_half(&raw);
            static const uint8_t zeros[70];
            send_msg(&raw, ids[i], zeros, len);
            RAW_UNTIL(&raw, raw.down == 1);
            raw_hang_up(&raw);
        }
    raw_dial(&raw, transport);
    send_hello(&raw);
    open_half(&raw);
    for (uint32_t request = 0; request < 64; request++) {
        weft__wire_rma_done(&m, (struct wire_rma_done){(1 << 20) + request, WEFT_OK, 1});
        CHECK(send_message(&raw, &m));
        weft__wire_flushed(&m, (struct wire_fin){(1 << 20) + request, WEFT_OK});
        CHECK(send_message(&raw, &m));
    }
    CHECK_EQ(get(granted, at(0), 8), WEFT_OK);
    CHECK(untouched());
    raw_close(&raw);
}

/* A key to memory of the raw peer's, which has none. */
static weft_rkey_t *key_to_raw(uint64_t base) {
    char bytes[WEFT_RKEY_MAX];
    weft_rkey_t *rkey = NULL;
    struct rkey_packed packed = {.worker = RAW_ID,
                                 .region = {base, 64, WEFT_MEM_ALL, 0x00100001, 1, {1}}};
    CHECK_EQ(weft_rkey_unpack(raw.victim, bytes, weft__rkey_write(bytes, &packed), &rkey), 0);
    return rkey;
}

/* The victim's fetching atomic; returns the number that it wants to be answered by. */
static uint32_t asked_by_victim(weft_rkey_t *rkey, uint64_t *old_p, struct tally *tally_p) {
    struct wire_atomic a = {0};
    *tally_p = (struct tally){0};
    raw.n_received = 0;
    CHECK_EQ(weft_atomic_fetch(raw.victim, WEFT_ATOMIC_ADD, 8, 1, 0, old_p, 64, rkey, OP(tally_p)),
             WEFT_IN_PROGRESS);
    RAW_UNTIL(&raw, received(&raw, WIRE_ATOMIC));
    for (unsigned i = 0; i < raw.n_received; i++)
        if (raw.received[i].id == WIRE_ATOMIC)
            CHECK(weft__wire_read_atomic(raw.received[i].bytes, raw.received[i].len, &a));
    CHECK(a.request != 0);
    return a.request;
}

static void answer_victim(uint32_t request, weft_status_t status, uint64_t value) {
    struct wire_message m;
    weft__wire_rma_done(&m, (struct wire_rma_done){request, status, value});
    CHECK(send_message(&raw, &m));
    for (int i = 0; i < 50; i++) raw_turn(&raw);
}

TEST_WIRES(a_fetch_ends_with_its_answer_and_a_second_one_is_for_no_one) {
    static struct tally done;
    static uint64_t old;
    begin(transport, WEFT_MEM_ALL, NULL, 0);
    weft_rkey_t *rkey = key_to_raw(64);
    for (int round = 0; round < 3; round++) {
        uint32_t request = asked_by_victim(rkey, &old, &done);
        answer_victim(request, WEFT_OK, 7);
        RAW_UNTIL(&raw, done.calls == 1);
        answer_victim(request, WEFT_OK, 9);
        answer_victim(request, WEFT_ERR_REVOKED, 9);
        CHECK_EQ(done.calls, 1);
        CHECK_EQ(done.status, WEFT_OK);
        CHECK_EQ(old, 7);
    }
    answer_victim(asked_by_victim(rkey, &old, &done), WEFT_ERR_QUOTA, 9);
    RAW_UNTIL(&raw, done.calls == 1);
    CHECK_EQ(done.status, WEFT_ERR_QUOTA);
    (void)asked_by_victim(rkey, &old, &done); /* which is never answered */
    weft_rkey_release(rkey);
    end();
    CHECK_EQ(done.calls, 1);
    CHECK(done.status < 0);
    CHECK_EQ(old, 7);
}

/* Asks for more than is kept for it, and takes nothing: it is refused, then lost; the worker's
 * memory stays bounded. */
TEST_WIRES(who_asks_and_does_not_listen_loses_its_endpoint) {
    struct wire_message m;
    begin(transport, WEFT_MEM_ALL, NULL, 0);
    weft__wire_get(&m,
                   &(struct wire_get){
                       .ep = raw.half, .to = ASKED, .key = granted, .address = at(0), .len = ROOM});
    struct piece piece = {m.bytes, m.len};
    /* Only the victim is driven: what it answers fills the way. */
    for (int i = 0; i < 20000000 && !raw.victim_errors; i++) {
        if (!raw.down) raw.lane->ops->am_bcopy(raw.lane, m.id, pack, &piece);
        if (i % 64 == 0) two_turn(&raw.t);
        /* A sender over tcp must get its bytes to the kernel; it reads no more than that takes. */
        if (i % 1024 == 0 && !raw.victim_errors) weft__reactor_progress(raw.reactor, 1);
        if (i % 4096 == 0) honest_is_matched(&raw);
    }
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, WEFT_ERR_QUOTA);
    CHECK(untouched());
    raw_close(&raw);
}

/* Arbitrary words: whatever they are, the region stays as it is unless the key was right. */
TEST_WIRES(random_words_change_nothing) {
    begin(transport, WEFT_MEM_READ, NULL, 0);
    unsigned seed = 11;
    for (int i = 0; i < 20000 && !raw.down; i++) {
        uint8_t bytes[80];
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)rand_r(&seed);
        uint8_t id = (uint8_t)(WIRE_PUT + rand_r(&seed) % 3);
        size_t len = id == WIRE_PUT   ? WIRE_PUT_HEAD + 16
                     : id == WIRE_GET ? WIRE_GET_LEN
                                      : WIRE_ATOMIC_LEN;
        memcpy(bytes, &raw.half, 4);
        if (rand_r(&seed) % 2) memcpy(bytes + 8, &granted, sizeof granted);
        if (rand_r(&seed) % 2) memcpy(bytes + 32, &(uint64_t){at(rand_r(&seed) % ROOM)}, 8);
        if (id == WIRE_PUT) memset(bytes + 40, 0, 8);
        if (id == WIRE_ATOMIC) memset(bytes + 43, 0, 5);
        if (id == WIRE_GET && rand_r(&seed) % 2) memset(bytes + 42, 0, 6);
        if (id == WIRE_ATOMIC) bytes[40] %= 6, bytes[41] = 8, bytes[42] = 1;
        if (!send_msg(&raw, id, bytes, len)) break;
    }
    for (int i = 0; i < 100; i++) raw_turn(&raw);
    CHECK(untouched());
    raw_close(&raw);
}

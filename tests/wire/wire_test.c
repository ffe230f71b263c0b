/* Decoders take what an unverified peer sends: every truncation, every bit flip, everything up to
 * three bytes. */
#include <tests/bytes.h>
#include <tests/harness.h>

#include <endpoints/connect/connect.h>
#include <endpoints/memory/rkey.h>
#include <endpoints/wire/lane_ctrl.h>
#include <endpoints/wire/wire.h>

typedef void (*decoder)(const void *p, size_t len);

/* Static values: sanitizers check them as they do the stack's, at a fraction of the price. */
#define READER(name)                                     \
    static void read_##name(const void *p, size_t len) { \
        static struct wire_##name v;                     \
        (void)weft__wire_read_##name(p, len, &v);        \
    }
READER(cts)
READER(fin)
READER(one)
READER(gone)
READER(tag_part)
READER(credit)
READER(hello)
READER(open)
READER(accept)
READER(reject)
READER(rts)
READER(data)
READER(stream)
READER(put)
READER(get)
READER(atomic)
READER(rma_done)
READER(flush)
READER(expose)
READER(put_req)
#define LANE_READER(name)                                     \
    static void read_lane_##name(const void *p, size_t len) { \
        static struct lane_##name v;                          \
        (void)weft__lane_read_##name(p, len, &v);             \
    }
LANE_READER(ask)
LANE_READER(grant)
LANE_READER(deny)
LANE_READER(score)
LANE_READER(one)
LANE_READER(end)
LANE_READER(count)
LANE_READER(process)
static void read_rkey(const void *p, size_t len) {
    static struct rkey_packed key;
    (void)weft__rkey_read(p, len, &key);
}
static void read_address(const void *p, size_t len) {
    static struct address address;
    (void)weft__address_read(p, len, &address);
}
static const decoder decoders[] = {
    read_cts,        read_fin,      read_one,      read_gone,       read_tag_part,
    read_credit,     read_hello,    read_open,     read_accept,     read_reject,
    read_rts,        read_data,     read_address,  read_stream,     read_put,
    read_get,        read_atomic,   read_rma_done, read_flush,      read_expose,
    read_put_req,    read_rkey,     read_lane_ask, read_lane_grant, read_lane_deny,
    read_lane_score, read_lane_one, read_lane_end, read_lane_count, read_lane_process};

static void decode_all(const uint8_t *bytes, size_t len) {
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) decoders[i](bytes, len);
}

/* Under AddressSanitizer, where each takes nine times as long, one of seven. */
#ifdef __SANITIZE_ADDRESS__
enum { INPUTS_STEP = 7 };
#else
enum { INPUTS_STEP = 1 };
#endif

TEST(decoders_survive_all_short_inputs) {
    unsigned char in[3] = {0};
    bytes_decode(decode_all, in, 0);
    for (unsigned v = 0; v < 1u << 24; v += v < 1u << 16 ? 1 : INPUTS_STEP) {
        in[0] = (unsigned char)v;
        in[1] = (unsigned char)(v >> 8);
        in[2] = (unsigned char)(v >> 16);
        for (size_t len = v < 1u << 8 ? 1 : v < 1u << 16 ? 2 : 3; len <= 3; len++)
            decode_all(in, len);
    }
}

TEST(control_messages_read_as_written_and_survive_mauling) {
    struct wire_message m;
    struct wire_cts cts;
    weft__wire_cts(&m,
                   (struct wire_cts){0x01020304, 0x05060708, UINT64_C(0x1122334455667788), true});
    CHECK(weft__wire_read_cts(m.bytes, m.len, &cts));
    CHECK(cts.request == 0x01020304 && cts.to == 0x05060708 &&
          cts.len == UINT64_C(0x1122334455667788));
    CHECK(cts.in_order);
    CHECK(!weft__wire_read_cts(m.bytes, m.len - 1, &cts) && m.id == WIRE_CTS);
    bytes_maul(decode_all, m.bytes, m.len);

    struct wire_fin fin;
    weft__wire_fin(&m, (struct wire_fin){7, WEFT_ERR_CANCELLED});
    CHECK(weft__wire_read_fin(m.bytes, m.len, &fin) && fin.request == 7 &&
          fin.status == WEFT_ERR_CANCELLED);
    bytes_maul(decode_all, m.bytes, m.len);
    m.bytes[4] = 5; /* a status that is none of ours reads as a breach, never as success */
    m.bytes[5] = m.bytes[6] = m.bytes[7] = 0;
    CHECK(weft__wire_read_fin(m.bytes, m.len, &fin) && fin.status == WEFT_ERR_PROTOCOL);

    struct wire_gone gone;
    weft__wire_gone(&m, (struct wire_gone){7, WEFT_ERR_IO});
    CHECK(weft__wire_read_gone(m.bytes, m.len, &gone) && gone.to == 7 &&
          gone.status == WEFT_ERR_IO);
    bytes_maul(decode_all, m.bytes, m.len);
    m.bytes[4] = m.bytes[5] = m.bytes[6] = m.bytes[7] = 0; /* no failure */
    CHECK(!weft__wire_read_gone(m.bytes, m.len, &gone));
    weft__wire_gone(&m, (struct wire_gone){7, WEFT_ERR_CANCELLED});
    CHECK(m.len == 4 && weft__wire_read_gone(m.bytes, m.len, &gone));
    CHECK_EQ(gone.status, WEFT_ERR_CANCELLED);

    struct wire_tag_part part;
    weft__wire_tag_give_up(&m, (struct wire_tag_part){.ep = 7, .status = WEFT_ERR_IO});
    CHECK(weft__wire_read_tag_part(m.bytes, m.len, &part) && part.ep == 7 && part.n == 0);
    CHECK_EQ(part.status, WEFT_ERR_IO);
    bytes_maul(decode_all, m.bytes, m.len);
    m.bytes[11] = 0; /* no status */
    CHECK(weft__wire_read_tag_part(m.bytes, m.len, &part));
    CHECK_EQ(part.status, WEFT_ERR_PROTOCOL);
    m.bytes[8] = m.bytes[9] = m.bytes[10] = 0; /* as an older version writes it */
    m.bytes[15] = 1;
    CHECK(weft__wire_read_tag_part(m.bytes, m.len, &part));
    CHECK_EQ(part.status, WEFT_ERR_CANCELLED);
    weft__wire_tag_give_up(&m, (struct wire_tag_part){.ep = 7, .status = WEFT_ERR_CANCELLED});
    CHECK(weft__wire_read_tag_part(m.bytes, m.len, &part) && part.offset == 0);
    CHECK_EQ(part.status, WEFT_ERR_CANCELLED);

    struct wire_hello hello;
    weft__wire_hello(
        &m, (struct wire_hello){
                .version = WIRE_VERSION, .flags = WIRE_HELLO_EXTRA, .listener = 9, .worker = 77});
    CHECK(weft__wire_read_hello(m.bytes, m.len, &hello) && hello.worker == 77 &&
          hello.listener == 9);
    bytes_maul(decode_all, m.bytes, m.len);
    m.bytes[0] = 99;
    CHECK(weft__wire_read_hello(m.bytes, 2, &hello) && hello.version == 99);

    /* The longer form: a link that outlives its lanes. */
    struct wire_hello resume = {.version = WIRE_VERSION,
                                .flags = WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME,
                                .worker = 77,
                                .ticket = {1, 2, 3},
                                .delivered = UINT64_C(1) << 40,
                                .epoch = 5};
    weft__wire_hello(&m, resume);
    CHECK(weft__wire_read_hello(m.bytes, m.len, &hello) && hello.delivered == resume.delivered &&
          hello.epoch == 5);
    CHECK(memcmp(hello.ticket, resume.ticket, WIRE_TICKET) == 0);
    for (size_t len = 3; len < m.len; len++) CHECK(!weft__wire_read_hello(m.bytes, len, &hello));
    bytes_maul(decode_all, m.bytes, m.len);
    memset(m.bytes + 16, 0, WIRE_TICKET); /* no ticket */
    CHECK(!weft__wire_read_hello(m.bytes, m.len, &hello));
    m.bytes[2] = WIRE_HELLO_RESUME; /* of a link that does not */
    CHECK(!weft__wire_read_hello(m.bytes, m.len, &hello));

    struct wire_open open;
    weft__wire_open(&m, (struct wire_open){3, 4, 5, 6, 0, 0});
    CHECK(weft__wire_read_open(m.bytes, m.len, &open) && open.from == 3 && open.listener == 4 &&
          open.credit == 5 && open.stream == 6 && open.lease == 0 && open.am_first == 0);
    bytes_maul(decode_all, m.bytes, m.len);
    weft__wire_open(&m, (struct wire_open){3, 4, 5, 6, 7, 512});
    CHECK(weft__wire_read_open(m.bytes, m.len, &open) && open.stream == 6 && open.lease == 7 &&
          open.am_first == 512);
    bytes_maul(decode_all, m.bytes, m.len);
    memset(m.bytes + m.len - 4, 0, 4); /* a lease without a range */
    CHECK(!weft__wire_read_open(m.bytes, m.len, &open));
    struct wire_accept accept;
    weft__wire_accept(&m, (struct wire_accept){3, 4, 5, 6});
    CHECK(weft__wire_read_accept(m.bytes, m.len, &accept) && accept.ep == 3 && accept.from == 4 &&
          accept.credit == 5 && accept.stream == 6);
    bytes_maul(decode_all, m.bytes, m.len);
    struct wire_reject reject;
    weft__wire_reject(&m, (struct wire_reject){3, WEFT_ERR_REJECTED});
    CHECK(weft__wire_read_reject(m.bytes, m.len, &reject) && reject.status == WEFT_ERR_REJECTED);
    bytes_maul(decode_all, m.bytes, m.len);
    struct wire_credit credit;
    weft__wire_credit(&m, (struct wire_credit){.ep = 3, .bytes = 1 << 20});
    CHECK(weft__wire_read_credit(m.bytes, m.len, &credit) && credit.ep == 3 &&
          credit.bytes == 1 << 20);
    bytes_maul(decode_all, m.bytes, m.len);
    weft__wire_rail_rate(&m, (struct wire_credit){.ep = 9, .bytes = 1000000000});
    CHECK(weft__wire_read_credit(m.bytes, m.len, &credit) && credit.ep == 9 &&
          credit.bytes == 1000000000);
    CHECK(m.id == WIRE_RAIL_RATE);
    bytes_maul(decode_all, m.bytes, m.len);
    weft__wire_stream_credit(&m, (struct wire_credit){.ep = 4, .bytes = 77});
    CHECK(m.id == WIRE_STREAM_CREDIT && weft__wire_read_credit(m.bytes, m.len, &credit) &&
          credit.bytes == 77);
    struct wire_expose expose;
    weft__wire_expose(&m, (struct wire_expose){9, "a key", 5});
    CHECK(weft__wire_read_expose(m.bytes, m.len, &expose) && expose.ep == 9 && expose.len == 5 &&
          !memcmp(expose.key, "a key", 5));
    CHECK(!weft__wire_read_expose(m.bytes, 3, &expose));
    bytes_maul(decode_all, m.bytes, m.len);
    struct wire_put_req put_req, asked = {.request = 7,
                                          .to = 5,
                                          .token = UINT64_C(3) << 32 | 9,
                                          .address = 1 << 20,
                                          .len = 70000};
    weft__wire_put_req(&m, asked);
    CHECK(!weft__wire_read_put_req(m.bytes, m.len - 1, &put_req));
    CHECK(weft__wire_read_put_req(m.bytes, m.len, &put_req));
    CHECK(put_req.request == 7 && put_req.to == 5 && put_req.token == asked.token &&
          put_req.address == 1 << 20 && put_req.len == 70000);
    bytes_maul(decode_all, m.bytes, m.len);
    asked.len = 0;
    weft__wire_put_req(&m, asked);
    CHECK(!weft__wire_read_put_req(m.bytes, m.len, &put_req));
}

TEST(a_handshake_with_a_ticket_reads_as_written_and_only_whole) {
    struct wire_message m;
    struct wire_hello in, out = {.version = WIRE_VERSION,
                                 .flags = WIRE_HELLO_SURVIVES | WIRE_HELLO_RESUME,
                                 .worker = 77,
                                 .ticket = {1, 2, 3, [WIRE_TICKET - 1] = 4},
                                 .delivered = UINT64_C(0x1122334455667788),
                                 .epoch = 9};
    weft__wire_hello(&m, out);
    CHECK(m.len == 16 + WIRE_TICKET + 12 && weft__wire_read_hello(m.bytes, m.len, &in));
    CHECK(in.flags == out.flags && in.worker == 77 && in.delivered == out.delivered &&
          in.epoch == 9);
    CHECK(memcmp(in.ticket, out.ticket, WIRE_TICKET) == 0);
    for (uint16_t len = 0; len < m.len; len++) CHECK(!weft__wire_read_hello(m.bytes, len, &in));
    bytes_maul(decode_all, m.bytes, m.len);

    memset(m.bytes + 16, 0, WIRE_TICKET); /* no ticket */
    CHECK(!weft__wire_read_hello(m.bytes, m.len, &in));
    out.flags = 0; /* one that says more than its flags announce */
    weft__wire_hello(&m, out);
    CHECK(!weft__wire_read_hello(m.bytes, m.len, &in));
    out = (struct wire_hello){.version = WIRE_VERSION, .flags = WIRE_HELLO_SURVIVES, .worker = 77};
    weft__wire_hello(&m, out); /* the first of a link has no ticket yet */
    CHECK(m.len == 16 && weft__wire_read_hello(m.bytes, m.len, &in) &&
          !weft__hello_has_ticket(&in));
}

TEST(words_about_lanes_read_as_written_and_survive_mauling) {
    struct wire_message m;
    struct lane_ask ask;
    static const char name[] = "shm", address[LANE_ADDRESS_MAX] = "somewhere";
    weft__lane_ask(&m, &(struct lane_ask){.epoch = 7,
                                          .score = UINT64_C(1) << 40,
                                          .name = name,
                                          .name_len = 3,
                                          .address = address,
                                          .len = LANE_ADDRESS_MAX});
    CHECK(m.id == WIRE_LANE && weft__lane_kind(m.bytes, m.len) == LANE_ASK &&
          m.len <= sizeof m.bytes);
    CHECK(weft__lane_read_ask(m.bytes, m.len, &ask) && ask.epoch == 7 &&
          ask.score == UINT64_C(1) << 40);
    CHECK(ask.name_len == 3 && memcmp(ask.name, name, 3) == 0);
    CHECK(ask.len == LANE_ADDRESS_MAX && memcmp(ask.address, address, LANE_ADDRESS_MAX) == 0);
    CHECK(!weft__lane_read_ask(m.bytes, m.len - 1, &ask));
    bytes_maul(decode_all, m.bytes, m.len);

    struct lane_grant grant;
    weft__lane_grant(&m,
                     &(struct lane_grant){.epoch = 8, .number = 9, .address = address, .len = 10});
    CHECK(weft__lane_read_grant(m.bytes, m.len, &grant) && grant.epoch == 8 && grant.number == 9);
    CHECK(grant.len == 10 && memcmp(grant.address, address, 10) == 0);
    bytes_maul(decode_all, m.bytes, m.len);
    struct lane_deny deny;
    weft__lane_deny(&m, (struct lane_deny){.epoch = 3, .wait_ms = 500, .why = LANE_DENIED_FULL});
    CHECK(weft__lane_read_deny(m.bytes, m.len, &deny) && deny.epoch == 3 && deny.wait_ms == 500 &&
          deny.why == LANE_DENIED_FULL);
    bytes_maul(decode_all, m.bytes, m.len);
    m.bytes[5] = LANE_DENIALS; /* a reason that is none */
    CHECK(!weft__lane_read_deny(m.bytes, m.len, &deny));
    struct lane_process process;
    weft__lane_process(&m, (struct lane_process){.host = UINT64_C(3) << 50, .pid = 1234});
    CHECK(weft__lane_kind(m.bytes, m.len) == LANE_PROCESS &&
          weft__lane_read_process(m.bytes, m.len, &process));
    CHECK(process.host == UINT64_C(3) << 50 && process.pid == 1234);
    bytes_maul(decode_all, m.bytes, m.len);
    m.bytes[16] = 0xff; /* negative, which would be a group */
    CHECK(!weft__lane_read_process(m.bytes, m.len, &process));
    weft__lane_process(&m, (struct lane_process){.host = 1});
    CHECK(!weft__lane_read_process(m.bytes, m.len, &process));
    struct lane_score score;
    weft__lane_score(&m, (struct lane_score){.epoch = 3, .score = 77});
    CHECK(weft__lane_read_score(m.bytes, m.len, &score) && score.epoch == 3 && score.score == 77);
    bytes_maul(decode_all, m.bytes, m.len);
    struct lane_one one;
    weft__lane_one(&m, LANE_BACK, 5);
    CHECK(weft__lane_kind(m.bytes, m.len) == LANE_BACK &&
          weft__lane_read_one(m.bytes, m.len, &one) && one.epoch == 5);
    bytes_maul(decode_all, m.bytes, m.len);
    weft__lane_one(&m, LANE_BACK, 0); /* no epoch */
    CHECK(!weft__lane_read_one(m.bytes, m.len, &one));
    CHECK_EQ(weft__lane_kind(NULL, 0), 0);
}

TEST(stream_bytes_read_as_written_and_survive_mauling) {
    unsigned char bytes[8 + 5];
    uint64_t word = wire_stream_word(0x01020304);
    struct wire_stream stream;
    memcpy(bytes, &word, 8);
    memcpy(bytes + 8, "bytes", 5);
    CHECK(weft__wire_read_stream(bytes, sizeof bytes, &stream) && stream.ep == 0x01020304 &&
          stream.len == 5);
    CHECK(memcmp(stream.bytes, "bytes", 5) == 0);
    CHECK(weft__wire_read_stream(bytes, 8, &stream) && stream.len == 0 &&
          !weft__wire_read_stream(bytes, 7, &stream));
    bytes_maul(decode_all, bytes, sizeof bytes);
    bytes[0] = 1; /* kept for later versions: now it is a breach */
    CHECK(!weft__wire_read_stream(bytes, sizeof bytes, &stream));
}

TEST(offers_read_as_written_and_survive_mauling) {
    unsigned char bytes[WIRE_RTS_HEAD + 256];
    struct wire_rts out = {.ep = 1,
                           .request = 2,
                           .kind = WIRE_OFFER_AM,
                           .header_len = 11,
                           .am_id = 3,
                           .tag = 4,
                           .len = 5,
                           .address = 6,
                           .header = "hello there"};
    struct wire_rts in;
    size_t len = weft__wire_rts(bytes, &out);
    CHECK_EQ(len, WIRE_RTS_HEAD + 11);
    CHECK(weft__wire_read_rts(bytes, len, &in));
    CHECK(in.ep == 1 && in.request == 2 && in.am_id == 3 && in.tag == 4 && in.len == 5 &&
          in.address == 6);
    CHECK(memcmp(in.header, "hello there", 11) == 0);
    CHECK(!in.device && in.device_len == 0);
    CHECK(!weft__wire_read_rts(bytes, len - 1, &in) && !weft__wire_read_rts(bytes, len + 1, &in));
    bytes_maul(decode_all, bytes, len);
    out.memory = 1; /* with what a receiver on the same host needs to copy it */
    out.device = "device";
    out.device_len = 6;
    len = weft__wire_rts(bytes, &out);
    CHECK(weft__wire_read_rts(bytes, len, &in));
    CHECK(in.memory == 1 && in.device_len == 6 && memcmp(in.device, "device", 6) == 0);
    CHECK(!weft__wire_read_rts(bytes, len - 1, &in) && !weft__wire_read_rts(bytes, len + 1, &in));
    bytes[14] = 193; /* more than any device needs */
    CHECK(!weft__wire_read_rts(bytes, WIRE_RTS_HEAD + 11 + 193, &in));
}

static const struct wire_key key = {7, 9, "fifteen symbols"};

static bool same_key(const struct wire_key *other) {
    return other->region == 7 && other->epoch == 9 &&
           memcmp(other->token, key.token, sizeof key.token) == 0;
}

TEST(one_sided_messages_read_as_written_and_survive_mauling) {
    struct wire_message m;
    unsigned char bytes[WIRE_PUT_HEAD + 5] = {0};
    struct wire_put put = {.ep = 1,
                           .request = 2,
                           .key = key,
                           .address = UINT64_C(0x1122334455667788),
                           .flags = 1},
                    in;
    weft__wire_put(bytes, &put);
    CHECK(weft__wire_read_put(bytes, sizeof bytes, &in) &&
          weft__wire_read_put(bytes, WIRE_PUT_HEAD, &in));
    CHECK(in.ep == 1 && in.request == 2 && same_key(&in.key) && in.address == put.address &&
          in.flags == 1);
    CHECK(!weft__wire_read_put(bytes, WIRE_PUT_HEAD - 1, &in));
    bytes[40] = 2; /* a flag that there is not */
    CHECK(!weft__wire_read_put(bytes, sizeof bytes, &in));
    bytes_maul(decode_all, bytes, sizeof bytes);

    struct wire_get get = {.ep = 1, .to = 2, .key = key, .address = 3, .len = 4}, got;
    weft__wire_get(&m, &get);
    CHECK(m.len == WIRE_GET_LEN && weft__wire_read_get(m.bytes, m.len, &got) && got.ep == 1 &&
          got.to == 2);
    CHECK(same_key(&got.key) && got.address == 3 && got.len == 4);
    bytes_maul(decode_all, m.bytes, m.len);

    struct wire_atomic atomic = {.ep = 1,
                                 .request = 2,
                                 .key = key,
                                 .address = 8,
                                 .what = 5,
                                 .size = 8,
                                 .fetch = 1,
                                 .operand = 6,
                                 .compare = 7};
    struct wire_atomic read;
    weft__wire_atomic(&m, &atomic);
    CHECK(m.len == WIRE_ATOMIC_LEN && weft__wire_read_atomic(m.bytes, m.len, &read) &&
          same_key(&read.key));
    CHECK(read.ep == 1 && read.request == 2 && read.address == 8 && read.what == 5 &&
          read.size == 8 && read.fetch == 1);
    CHECK(read.operand == 6 && read.compare == 7);
    bytes_maul(decode_all, m.bytes, m.len);
    atomic.request = 0; /* a value without a request */
    weft__wire_atomic(&m, &atomic);
    CHECK(!weft__wire_read_atomic(m.bytes, m.len, &read));

    struct wire_rma_done done;
    weft__wire_rma_done(&m, (struct wire_rma_done){1, WEFT_ERR_REVOKED, 5});
    CHECK(weft__wire_read_rma_done(m.bytes, m.len, &done) && done.request == 1 &&
          done.status == WEFT_ERR_REVOKED);
    CHECK_EQ(done.value, 5);
    bytes_maul(decode_all, m.bytes, m.len);
    struct wire_flush flush;
    weft__wire_flush(&m, (struct wire_flush){1, 2});
    CHECK(weft__wire_read_flush(m.bytes, m.len, &flush) && flush.ep == 1 && flush.request == 2);
    bytes_maul(decode_all, m.bytes, m.len);
    struct wire_fin flushed;
    weft__wire_flushed(&m, (struct wire_fin){1, WEFT_ERR_QUOTA});
    CHECK(m.id == WIRE_FLUSHED && weft__wire_read_flushed(m.bytes, m.len, &flushed) &&
          flushed.status == WEFT_ERR_QUOTA);
}

TEST(keys_read_as_written_and_survive_mauling) {
    unsigned char bytes[WEFT_RKEY_MAX];
    struct rkey_packed out = {.worker = 3,
                              .region = {4096, 100, WEFT_MEM_READ, 5, 6, "fifteen symbols"},
                              .n = 2},
                       in;
    out.entry[0] = (struct rkey_entry){"shm", (const uint8_t *)"abc", 3, 3};
    out.entry[1] = (struct rkey_entry){"self", NULL, 4, 0};
    size_t len = weft__rkey_write(bytes, &out);
    CHECK_EQ(len, RKEY_HEAD + 2 + 3 + 3 + 2 + 4);
    CHECK_EQ(weft__rkey_read(bytes, len, &in), 0);
    CHECK(in.worker == 3 && in.n == 2 && in.region.base == 4096 && in.region.len == 100 &&
          in.region.id == 5);
    CHECK(in.region.epoch == 6 && in.region.rights == WEFT_MEM_READ &&
          !memcmp(in.region.token, out.region.token, 16));
    CHECK(in.entry[0].len == 3 && !memcmp(in.entry[0].bytes, "abc", 3) && in.entry[1].len == 0);
    bytes_maul(decode_all, bytes, len);
    for (unsigned rights = 0; rights < 32; rights++) {
        out.region.rights = rights;
        len = weft__rkey_write(bytes, &out);
        /* a device's atomics are atomics */
        bool is_key = rights < 8 || (rights < 16 && rights & WEFT_MEM_ATOMIC);
        CHECK_EQ(weft__rkey_read(bytes, len, &in), is_key ? WEFT_OK : WEFT_ERR_ADDRESS);
        if (is_key) CHECK_EQ(in.region.rights, rights);
    }
}

TEST(addresses_survive_mauling) {
    static const unsigned char bytes[] = "Wa\1\2"
                                         "12345678"
                                         "\3shm\4abcd"
                                         "\3tcp\0";
    struct address address;
    CHECK_EQ(weft__address_read(bytes, sizeof bytes - 1, &address), WEFT_OK);
    CHECK(address.n == 2 && address.entry[0].len == 4 && address.entry[1].len == 0);
    bytes_maul(decode_all, bytes, sizeof bytes - 1);
}

/* Bytes of rdma_rc: every truncation, every bit flip and all short inputs, into each of its
 * decoders. */
#include "../bytes.h"
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include <transports/rdma/rc/rc_wire.h>

static void decode_all(const uint8_t *bytes, size_t len) {
    struct rc_hello hello;
    struct rc_answer answer;
    struct rc_address a;
    struct rc_lane_address l;
    struct rc_want want;
    struct rc_word word;
    struct rc_where where;
    enum rc_atomics atomics;
    weft_status_t st = weft__rc_hello_decode(bytes, len, &hello);
    CHECK(st == WEFT_OK ? len >= RC_HELLO_SIZE : st == WEFT_ERR_PROTOCOL || st == WEFT_ERR_VERSION);
    st = weft__rc_answer_decode(bytes, len, &answer);
    CHECK(st == WEFT_OK ? len >= RC_ANSWER_SIZE
                        : st == WEFT_ERR_PROTOCOL || st == WEFT_ERR_VERSION);
    st = weft__rc_refusal_decode(bytes, len);
    CHECK(st < 0 && st >= WEFT_STATUS_LAST);
    st = weft__rc_address_decode(bytes, len, &a);
    CHECK(st == WEFT_OK ? len == RC_ADDRESS_SIZE && a.port && a.place.mtu >= 1 && a.place.mtu <= 5
                        : st == WEFT_ERR_ADDRESS);
    st = weft__rc_lane_address_decode(bytes, len, &l);
    CHECK(st == WEFT_OK ? len == RC_LANE_ADDRESS_SIZE && !(l.qp >> 24) && !(l.psn >> 24)
                        : st == WEFT_ERR_ADDRESS);
    CHECK_EQ(weft__rc_want_decode(bytes, len, &want),
             len == RC_WANT_SIZE ? WEFT_OK : WEFT_ERR_PROTOCOL);
    CHECK_EQ(weft__rc_word_decode(bytes, len, &word),
             len == RC_WORD_SIZE ? WEFT_OK : WEFT_ERR_PROTOCOL);
    st = weft__rc_key_atomics_decode(bytes, len, &atomics);
    CHECK_EQ(st, len == RC_KEY_SIZE && bytes[0] <= RC_ATOMICS_GLOBAL ? WEFT_OK : WEFT_ERR_ADDRESS);
    st = weft__rc_where_parse((const char *)bytes, len, &where);
    CHECK(st == WEFT_OK ? strlen(where.host) > 0 && strlen(where.host) < len
                        : st == WEFT_ERR_ADDRESS);
}

static void fill(void *to, size_t len, uint8_t from) {
    for (size_t i = 0; i < len; i++) ((uint8_t *)to)[i] = (uint8_t)(from + i);
}

TEST(handshakes_come_back_as_they_were) {
    struct rc_hello hello = {.worker = 0x1122334455667788, .buffer = 32768, .flags = RC_FLAG_KEYED},
                    hello_back;
    struct rc_answer answer = {.worker = 0x8877665544332211}, answer_back;
    uint8_t bytes[RC_ANSWER_SIZE];
    fill(hello.token, RC_TOKEN, 3), fill(hello.nonce, RC_NONCE, 50);
    fill(answer.nonce, RC_NONCE, 7), fill(answer.proof, RC_PROOF, 90);
    weft__rc_hello_encode(&hello, bytes);
    CHECK_EQ(weft__rc_hello_decode(bytes, RC_HELLO_SIZE, &hello_back), WEFT_OK);
    CHECK(hello_back.worker == hello.worker && hello_back.buffer == hello.buffer &&
          hello_back.flags == hello.flags);
    CHECK(memcmp(hello_back.token, hello.token, RC_TOKEN) == 0 &&
          memcmp(hello_back.nonce, hello.nonce, RC_NONCE) == 0);
    CHECK_EQ(weft__rc_answer_decode(bytes, RC_HELLO_SIZE, &answer_back),
             WEFT_ERR_PROTOCOL); /* nor is it anything else */
    bytes_maul(decode_all, bytes, RC_HELLO_SIZE);
    weft__rc_answer_encode(&answer, bytes);
    CHECK_EQ(weft__rc_answer_decode(bytes, RC_ANSWER_SIZE, &answer_back), WEFT_OK);
    CHECK(answer_back.worker == answer.worker &&
          memcmp(answer_back.nonce, answer.nonce, RC_NONCE) == 0);
    CHECK(memcmp(answer_back.proof, answer.proof, RC_PROOF) == 0);
    bytes_maul(decode_all, bytes, RC_ANSWER_SIZE);
}

TEST(another_version_is_reported) {
    struct rc_hello hello = {.worker = 1};
    uint8_t bytes[RC_HELLO_SIZE];
    weft__rc_hello_encode(&hello, bytes);
    bytes[2]++;
    CHECK_EQ(weft__rc_hello_decode(bytes, sizeof bytes, &hello), WEFT_ERR_VERSION);
    CHECK_EQ(weft__rc_hello_decode(bytes, 4, &hello), WEFT_ERR_VERSION); /* whatever its length */
}

TEST(a_refusal_is_never_a_success) {
    uint8_t bytes[RC_REFUSAL_SIZE];
    weft__rc_refusal_encode(WEFT_ERR_AUTH, bytes);
    CHECK_EQ(weft__rc_refusal_decode(bytes, sizeof bytes), WEFT_ERR_AUTH);
    bytes_maul(decode_all, bytes, sizeof bytes);
    const int wrong[] = {0, 1, WEFT_STATUS_LAST - 1, -1000000, 0x7fffffff};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft__rc_refusal_encode((weft_status_t)wrong[i], bytes);
        CHECK_EQ(weft__rc_refusal_decode(bytes, sizeof bytes), WEFT_ERR_REFUSED);
    }
}

TEST(addresses_come_back_as_they_were) {
    struct rc_address a = {.worker = 9, .port = 4711}, a_back;
    struct rc_lane_address l = {.qp = RC_LANE_ADDRESS_SIZE,
                                .psn = 0xfffffe,
                                .buffer = 1 << 20,
                                .reads = 7},
                           l_back;
    uint8_t bytes[RC_ADDRESS_SIZE];
    for (int v6 = 0; v6 < 2; v6++) {
        a.v6 = v6;
        a.place = (struct rd_place){.lid = 77, .link = RD_LINK_INFINIBAND, .mtu = 5};
        fill(a.token, RC_TOKEN, 1), fill(a.ip, 16, 100), fill(a.place.gid, 16, 200);
        weft__rc_address_encode(&a, bytes);
        CHECK_EQ(weft__rc_address_decode(bytes, sizeof bytes, &a_back), WEFT_OK);
        CHECK(a_back.worker == 9 && a_back.port == 4711 && a_back.v6 == a.v6 &&
              a_back.place.lid == 77);
        CHECK(memcmp(a_back.token, a.token, RC_TOKEN) == 0 && memcmp(a_back.ip, a.ip, 16) == 0);
        bytes_maul(decode_all, bytes, sizeof bytes);
    }
    l.place = a.place;
    weft__rc_lane_address_encode(&l, bytes);
    CHECK_EQ(weft__rc_lane_address_decode(bytes, RC_LANE_ADDRESS_SIZE, &l_back), WEFT_OK);
    CHECK(l_back.qp == l.qp && l_back.psn == l.psn && l_back.buffer == l.buffer &&
          l_back.reads == 7);
    CHECK(memcmp(&l_back.place, &l.place, sizeof l.place) == 0);
    bytes_maul(decode_all, bytes, RC_LANE_ADDRESS_SIZE);
}

TEST(words_about_keys_come_back_as_they_were) {
    struct rc_want want = {1, 2, 3, 4, 5, 6, {0}}, want_back;
    struct rc_word word = {7, 0xffffffff}, word_back;
    uint8_t bytes[RC_WANT_SIZE];
    fill(want.token, RC_TOKEN, 8);
    weft__rc_want_encode(&want, bytes);
    CHECK_EQ(weft__rc_want_decode(bytes, sizeof bytes, &want_back), WEFT_OK);
    CHECK(memcmp(&want_back, &want, sizeof want) == 0);
    bytes_maul(decode_all, bytes, sizeof bytes);
    weft__rc_word_encode(&word, bytes);
    CHECK_EQ(weft__rc_word_decode(bytes, RC_WORD_SIZE, &word_back), WEFT_OK);
    CHECK(word_back.serial == 7 && word_back.value == 0xffffffff);
    bytes_maul(decode_all, bytes, RC_WORD_SIZE);
    for (enum rc_atomics atomics = RC_ATOMICS_NONE; atomics <= RC_ATOMICS_GLOBAL; atomics++) {
        enum rc_atomics back = RC_ATOMICS_NONE;
        weft__rc_key_atomics_encode(atomics, bytes);
        CHECK_EQ(weft__rc_key_atomics_decode(bytes, RC_KEY_SIZE, &back), WEFT_OK);
        CHECK_EQ(back, atomics);
        bytes_maul(decode_all, bytes, RC_KEY_SIZE);
    }
}

TEST(places_are_a_host_and_a_port) {
    static const struct {
        const char *text, *host;
        int port; /* -1: refused */
    } place[] = {{"127.0.0.1:80", "127.0.0.1", 80},
                 {"[fe80::1%v0]:65535", "fe80::1%v0", 65535},
                 {"*:0", "*", 0},
                 {"127.0.0.1", "", -1},
                 {":80", "", -1},
                 {"[]:80", "", -1},
                 {"[::1:80", "", -1},
                 {"::1:80", "", -1},
                 {"a:65536", "", -1},
                 {"a:", "", -1},
                 {"a:8o", "", -1},
                 {"a:000080", "", -1}};
    for (size_t i = 0; i < sizeof place / sizeof *place; i++) {
        struct rc_where where;
        size_t len = strlen(place[i].text);
        weft_status_t st = weft__rc_where_parse(place[i].text, len, &where);
        CHECK_EQ(st, place[i].port < 0 ? WEFT_ERR_ADDRESS : WEFT_OK);
        CHECK(st < 0 || (strcmp(where.host, place[i].host) == 0 && where.port == place[i].port));
        bytes_maul(decode_all, (const uint8_t *)place[i].text, len);
    }
    char long_one[80];
    memset(long_one, 'a', sizeof long_one);
    memcpy(long_one + 64, ":1", 2);
    struct rc_where where;
    CHECK_EQ(weft__rc_where_parse(long_one, 66, &where), WEFT_ERR_ADDRESS);
    CHECK_EQ(weft__rc_where_parse(long_one + 1, 65, &where), WEFT_OK);
}

TEST(noise_is_answered) {
    uint8_t bytes[96];
    uint64_t x = 1;
    for (int n = 0; n < 20000; n++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((x = x * 6364136223846793005u + 1) >> 56);
        if (n & 1) memcpy(bytes, "RC\1", 3);
        bytes_decode(decode_all, bytes, (size_t)(x >> 33) % (sizeof bytes + 1));
    }
}
#else
TEST(handshakes_come_back_as_they_were) {
    SKIP("built without rdma");
}
#endif

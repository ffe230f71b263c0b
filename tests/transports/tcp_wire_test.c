/* Bytes off the wire: every truncation, every bit flip and all short inputs, into every decoder
 * of the transport. */
#define _GNU_SOURCE
#include "../bytes.h"
#include "../harness.h"
#include <transports/tcp/name.h>
#include <transports/tcp/wire.h>

static void decode_all(const uint8_t *bytes, size_t len) {
    struct tcp_handshake g;
    struct tcp_frame f;
    struct tcp_address a;
    struct tcp_where w;
    union tcp_sockaddr found[TCP_MAX_SOCKADDRS];
    size_t size = 0;
    weft_status_t st = weft__tcp_handshake_decode(bytes, len, &g, &size);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS || st == WEFT_ERR_PROTOCOL ||
          st == WEFT_ERR_VERSION);
    CHECK(st != WEFT_OK || (size <= len && size == weft__tcp_handshake_size(g.kind)));
    CHECK(st != WEFT_IN_PROGRESS || (size > len && size <= TCP_HANDSHAKE_MAX));
    st = tcp_frame_decode(bytes, len, &f);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS || st == WEFT_ERR_PROTOCOL);
    CHECK((st == WEFT_IN_PROGRESS) == (len < TCP_FRAME_HEAD));
    CHECK(st != WEFT_OK || (f.len <= TCP_MAX_FRAME && f.id < 32));
    st = weft__tcp_address_decode(bytes, len, &a);
    CHECK(st == WEFT_OK || st == WEFT_ERR_ADDRESS);
    st = weft__tcp_where_parse((const char *)bytes, len, &w);
    CHECK(st == WEFT_OK || st == WEFT_ERR_ADDRESS);
    CHECK(weft__tcp_hosts_find((const char *)bytes, len, "h", 1, found, TCP_MAX_SOCKADDRS) <=
          TCP_MAX_SOCKADDRS);
}

static struct tcp_handshake sample(uint8_t kind) {
    struct tcp_handshake g = {.kind = kind};
    if (kind == TCP_HELLO || kind == TCP_CHALLENGE) {
        g.worker = 0x1122334455667788;
        g.flags = TCP_FLAG_KEYED;
        memset(g.nonce, 0x5a, sizeof g.nonce);
    }
    if (kind == TCP_HELLO) g.target = 99;
    if (kind == TCP_CHALLENGE || kind == TCP_PROVE) memset(g.proof, 0xa5, sizeof g.proof);
    if (kind == TCP_REFUSAL) g.status = WEFT_ERR_AUTH;
    return g;
}

TEST(handshakes_come_back_as_they_were) {
    for (uint8_t kind = TCP_HELLO; kind <= TCP_REFUSAL; kind++) {
        struct tcp_handshake g = sample(kind), back;
        uint8_t bytes[TCP_HANDSHAKE_MAX];
        size_t len = weft__tcp_handshake_encode(&g, bytes), size;
        CHECK_EQ(len, weft__tcp_handshake_size(kind));
        CHECK_EQ(weft__tcp_handshake_decode(bytes, len, &back, &size), WEFT_OK);
        CHECK_EQ(size, len);
        uint8_t again[TCP_HANDSHAKE_MAX];
        CHECK_EQ(weft__tcp_handshake_encode(&back, again), len);
        CHECK(memcmp(bytes, again, len) == 0 && back.status == g.status && back.worker == g.worker);
    }
}

TEST(a_handshake_cut_anywhere_asks_for_more) {
    for (uint8_t kind = TCP_HELLO; kind <= TCP_REFUSAL; kind++) {
        struct tcp_handshake g = sample(kind), back;
        uint8_t bytes[TCP_HANDSHAKE_MAX];
        size_t len = weft__tcp_handshake_encode(&g, bytes), size;
        for (size_t cut = 0; cut < len; cut++) {
            CHECK_EQ(weft__tcp_handshake_decode(bytes, cut, &back, &size), WEFT_IN_PROGRESS);
            CHECK_EQ(size, cut < TCP_PREFIX ? (size_t)TCP_PREFIX : len);
        }
        bytes_maul(decode_all, bytes, len);
    }
}

TEST(junk_is_refused_at_its_first_wrong_byte) {
    struct tcp_handshake g;
    size_t size;
    CHECK_EQ(weft__tcp_handshake_decode("G", 1, &g, &size), WEFT_ERR_PROTOCOL);
    CHECK_EQ(weft__tcp_handshake_decode("WEG", 3, &g, &size), WEFT_ERR_PROTOCOL);
    CHECK_EQ(weft__tcp_handshake_decode("WEFT\2\0", 6, &g, &size), WEFT_ERR_VERSION);
    CHECK_EQ(weft__tcp_handshake_decode("WEFT\1\0\7", 7, &g, &size), WEFT_ERR_PROTOCOL);
    CHECK_EQ(weft__tcp_handshake_decode("WEFT\1\0\1\1", 8, &g, &size), WEFT_ERR_PROTOCOL);
}

TEST(frames_keep_their_bounds) {
    struct tcp_frame f;
    uint8_t bytes[TCP_FRAME_HEAD];
    tcp_frame_encode(bytes, TCP_FRAME_AM, 31, TCP_MAX_FRAME);
    CHECK_EQ(tcp_frame_decode(bytes, 8, &f), WEFT_OK);
    CHECK(f.id == 31 && f.len == TCP_MAX_FRAME && f.kind == TCP_FRAME_AM);
    bytes_maul(decode_all, bytes, sizeof bytes);
    tcp_frame_encode(bytes, TCP_FRAME_AM, 31, TCP_MAX_FRAME + 1);
    CHECK_EQ(tcp_frame_decode(bytes, 8, &f), WEFT_ERR_PROTOCOL);
    tcp_frame_encode(bytes, TCP_FRAME_AM, 32, 8);
    CHECK_EQ(tcp_frame_decode(bytes, 8, &f), WEFT_ERR_PROTOCOL);
    tcp_frame_encode(bytes, TCP_FRAME_GOODBYE, 0, 8);
    CHECK_EQ(tcp_frame_decode(bytes, 8, &f), WEFT_ERR_PROTOCOL);
    tcp_frame_encode(bytes, 0, 0, 8);
    CHECK_EQ(tcp_frame_decode(bytes, 8, &f), WEFT_ERR_PROTOCOL);
    CHECK_EQ(tcp_frame_size(0), 8);
    CHECK_EQ(tcp_frame_size(1), 16);
    CHECK_EQ(tcp_frame_size(UINT32_MAX), UINT64_C(0x100000008));
}

TEST(addresses_come_back_as_they_were) {
    struct tcp_address a = {.place = {{.family = 6, .port = 4711, .scope = 3}},
                            .n = 1,
                            .worker = 7,
                            .host = 9},
                       back;
    union tcp_sockaddr at;
    uint8_t bytes[TCP_ADDRESS_SIZE];
    memset(a.place[0].ip, 0xfe, sizeof a.place[0].ip);
    CHECK_EQ(weft__tcp_address_size(&a), sizeof bytes);
    weft__tcp_address_encode(&a, bytes);
    CHECK_EQ(weft__tcp_address_decode(bytes, sizeof bytes, &back), WEFT_OK);
    uint8_t again[TCP_ADDRESS_SIZE];
    weft__tcp_address_encode(&back, again);
    CHECK(memcmp(bytes, again, sizeof bytes) == 0 && back.place[0].scope == 3 &&
          back.place[0].port == 4711);
    bytes_maul(decode_all, bytes, sizeof bytes);
    CHECK(weft__tcp_host_numeric("127.0.0.1", 80, &at));
    weft__tcp_sockaddr_to_place(&at, &a.place[0]);
    weft__tcp_address_encode(&a, bytes);
    CHECK_EQ(weft__tcp_address_decode(bytes, sizeof bytes, &back), WEFT_OK);
    bytes_maul(decode_all, bytes, sizeof bytes);
    CHECK_EQ(weft__tcp_address_decode(bytes, sizeof bytes - 1, &back), WEFT_ERR_ADDRESS);
}

TEST(an_address_may_have_many_places) {
    static const char *const hosts[] = {"10.0.0.1", "10.0.1.1", "fd00::7", "10.0.2.1"};
    struct tcp_address a = {.worker = 7, .host = 9}, back;
    union tcp_sockaddr at;
    uint8_t bytes[TCP_ADDRESS_MAX + 8], again[TCP_ADDRESS_MAX];
    for (; a.n < TCP_MAX_PLACES; a.n++) {
        CHECK(weft__tcp_host_numeric(hosts[a.n], (uint16_t)(100 + a.n), &at));
        weft__tcp_sockaddr_to_place(&at, &a.place[a.n]);
    }
    size_t size = weft__tcp_address_size(&a);
    CHECK_EQ(size, TCP_ADDRESS_SIZE + 8 + 24 + 8);
    weft__tcp_address_encode(&a, bytes);
    CHECK_EQ(weft__tcp_address_decode(bytes, size, &back), WEFT_OK);
    CHECK_EQ(back.n, TCP_MAX_PLACES);
    for (unsigned i = 0; i < back.n; i++) {
        char text[TCP_NAME_ROOM], want[TCP_NAME_ROOM];
        weft__tcp_place_to_sockaddr(&back.place[i], &at);
        weft__tcp_sockaddr_text(&at, text, sizeof text);
        snprintf(want, sizeof want, strchr(hosts[i], ':') ? "[%s]:%u" : "%s:%u", hosts[i], 100 + i);
        CHECK(strcmp(text, want) == 0);
    }
    weft__tcp_address_encode(&back, again);
    CHECK(memcmp(bytes, again, size) == 0);
    bytes_maul(decode_all, bytes, size);
    memcpy(bytes + size, bytes + TCP_ADDRESS_SIZE, 8);
    CHECK_EQ(weft__tcp_address_decode(bytes, size + 8, &back), WEFT_ERR_ADDRESS); /* a fifth */
    bytes[TCP_ADDRESS_SIZE + 1] = 1;
    CHECK_EQ(weft__tcp_address_decode(bytes, size, &back), WEFT_ERR_ADDRESS);
}

TEST(all_inputs_up_to_three_bytes) {
    uint8_t bytes[3] = {0};
    bytes_decode(decode_all, bytes, 0);
    for (unsigned i = 0; i < 1 << 8; i++) bytes_decode(decode_all, (uint8_t[]){(uint8_t)i}, 1);
    for (unsigned i = 0; i < 1 << 16; i++)
        bytes_decode(decode_all, (uint8_t[]){(uint8_t)i, (uint8_t)(i >> 8)}, 2);
    for (unsigned i = 0; i < 1 << 24; i++) {
        bytes[0] = (uint8_t)i, bytes[1] = (uint8_t)(i >> 8), bytes[2] = (uint8_t)(i >> 16);
        struct tcp_handshake g;
        struct tcp_frame f;
        struct tcp_address a;
        struct tcp_where w;
        size_t size;
        CHECK(weft__tcp_handshake_decode(bytes, 3, &g, &size) != WEFT_OK);
        CHECK(tcp_frame_decode(bytes, 3, &f) == WEFT_IN_PROGRESS);
        CHECK(weft__tcp_address_decode(bytes, 3, &a) != WEFT_OK);
        /* h:N alone is a place of three bytes; weft__fail is not cheap, so only what has a colon
         * is asked. */
        if (memchr(bytes, ':', 3)) {
            bool place = bytes[1] == ':' && bytes[2] >= '0' && bytes[2] <= '9' && bytes[0] > ' ' &&
                         !strchr(":[]/\x7f", bytes[0]);
            CHECK_EQ(weft__tcp_where_parse((const char *)bytes, 3, &w) == WEFT_OK, place);
        }
    }
}

static void place(const char *text, const char *host, int port) {
    struct tcp_where w;
    weft_status_t st = weft__tcp_where_parse(text, strlen(text), &w);
    CHECK_EQ(st, host ? WEFT_OK : WEFT_ERR_ADDRESS);
    CHECK(!host || (strcmp(w.host, host) == 0 && w.port == port));
}

TEST(places_are_host_and_port) {
    place("127.0.0.1:0", "127.0.0.1", 0);
    place("[::1]:65535", "::1", 65535);
    place("[fe80::1%eth0]:7", "fe80::1%eth0", 7);
    place("*:80", "*", 80);
    place("some-host.example:80", "some-host.example", 80);
    place("127.0.0.1", NULL, 0);
    place("127.0.0.1:", NULL, 0);
    place("127.0.0.1:65536", NULL, 0);
    place("127.0.0.1:-1", NULL, 0);
    place("127.0.0.1:80x", NULL, 0);
    place("::1:80", NULL, 0);
    place("[::1]", NULL, 0);
    place("[]:80", NULL, 0);
    place(":80", NULL, 0);
    place("a b:80", NULL, 0);
    place("", NULL, 0);
    char longest[400];
    memset(longest, 'a', sizeof longest);
    strcpy(longest + 300, ":80");
    place(longest, NULL, 0);
}

TEST(names_come_from_the_hosts_file) {
    static const char hosts[] =
        "# comment\n127.0.0.1\tlocalhost # mine\n::1 localhost ip6-localhost\n\n"
        "10.0.0.7 Node7.example node7\r\n10.0.0.8 # node8\nnode9 10.0.0.9\n10.0.0.10 last";
    union tcp_sockaddr found[TCP_MAX_SOCKADDRS];
    char name[TCP_NAME_ROOM];
#define FIND(host) weft__tcp_hosts_find(hosts, sizeof hosts - 1, host, 80, found, TCP_MAX_SOCKADDRS)
    CHECK_EQ(FIND("localhost"), 2);
    weft__tcp_sockaddr_text(&found[0], name, sizeof name);
    CHECK(strcmp(name, "127.0.0.1:80") == 0);
    weft__tcp_sockaddr_text(&found[1], name, sizeof name);
    CHECK(strcmp(name, "[::1]:80") == 0);
    CHECK_EQ(FIND("NODE7"), 1);
    weft__tcp_sockaddr_text(&found[0], name, sizeof name);
    CHECK(strcmp(name, "10.0.0.7:80") == 0);
    CHECK_EQ(FIND("node8"), 0);
    CHECK_EQ(FIND("10.0.0.9"), 0);
    CHECK_EQ(FIND("last"), 1);
    CHECK_EQ(FIND("127.0.0.1"), 0);
}

TEST(loopback_is_distinguished_from_the_rest) {
    static const struct {
        const char *host;
        bool loopback, any;
    } of[] = {{"127.0.0.1", true, false},
              {"127.3.2.1", true, false},
              {"::1", true, false},
              {"::ffff:127.0.0.1", true, false},
              {"::ffff:10.0.0.1", false, false},
              {"10.0.0.1", false, false},
              {"0.0.0.0", false, true},
              {"::", false, true},
              {"128.0.0.1", false, false}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        union tcp_sockaddr a;
        CHECK(weft__tcp_host_numeric(of[i].host, 1, &a));
        CHECK_EQ(weft__tcp_is_loopback(&a), of[i].loopback);
        CHECK_EQ(weft__tcp_is_any(&a), of[i].any);
    }
}

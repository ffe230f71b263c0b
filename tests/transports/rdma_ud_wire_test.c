/* Bytes of rdma_ud: every truncation, every bit flip and all short inputs, into each of its
 * decoders. */
#include "../bytes.h"
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include <stdbool.h>
#include <transports/rdma/ud/ud_wire.h>

static void decode_all(const uint8_t *bytes, size_t len) {
    uint8_t gid[16];
    struct ud_frame f;
    struct ud_address a;
    if (weft__ud_frame_decode(bytes, len, &f)) {
        CHECK(f.kind == UD_MESSAGE || f.kind == UD_HANDSHAKE || f.kind == UD_NOTHING);
        CHECK(f.id < 32 && f.data == bytes + ud_head(f.kind) && f.len == len - ud_head(f.kind));
        CHECK(f.kind == UD_NOTHING || (f.from && f.qkey && f.qkey < UINT32_C(1) << 31));
    }
    weft_status_t st = weft__ud_address_decode(bytes, len, &a);
    CHECK(st == WEFT_OK || st == WEFT_ERR_ADDRESS);
    CHECK(st != WEFT_OK ||
          (len == UD_ADDRESS && a.qpn && a.qkey && a.place.mtu >= 1 && a.place.mtu <= 5));
    bool v4 = weft__ud_source_decode(bytes, len, true, gid);
    CHECK(!v4 || (len >= UD_GRH && weft__rd_gid_is_v4(gid)));
    CHECK(!weft__ud_source_decode(bytes, len, false, gid) || len >= UD_GRH);
}

static struct ud_frame sample(enum ud_kind kind) {
    struct ud_frame f = {.kind = (uint8_t)kind, .token = 0x1122334455667788, .to = 0x01000007};
    if (kind == UD_NOTHING) return f;
    f.id = 31;
    f.from = 0xfff00001;
    f.qkey = 0x7fffffff;
    f.mine = kind == UD_HANDSHAKE ? 0x8877665544332211 : 0;
    return f;
}

TEST(datagrams_come_back_as_they_were) {
    for (int kind = UD_MESSAGE; kind < UD_N_KINDS; kind++) {
        struct ud_frame f = sample((enum ud_kind)kind), back;
        uint8_t bytes[64] = {0};
        size_t head = ud_head((enum ud_kind)kind), len = head + (kind == UD_NOTHING ? 0 : 5);
        memcpy(bytes + head, "hello", 5);
        weft__ud_frame_encode(&f, bytes);
        CHECK(weft__ud_frame_decode(bytes, len, &back));
        CHECK(back.kind == f.kind && back.id == f.id && back.to == f.to && back.from == f.from);
        CHECK(back.qkey == f.qkey && back.token == f.token && back.mine == f.mine);
        CHECK(back.data == bytes + head && back.len == len - head);
        bytes_maul(decode_all, bytes, len);
    }
}

TEST(what_is_no_datagram_is_refused) {
    struct ud_frame f = sample(UD_MESSAGE), back;
    uint8_t bytes[64];
    weft__ud_frame_encode(&f, bytes);
    const struct {
        unsigned at;
        uint8_t value;
    } wrong[] = {{0, 2}, {0, 0}, {1, 0}, {1, UD_N_KINDS}, {2, 32}, {3, 1}, {15, 0x80}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t before = bytes[wrong[i].at];
        bytes[wrong[i].at] = wrong[i].value;
        CHECK(!weft__ud_frame_decode(bytes, UD_HEAD, &back));
        bytes[wrong[i].at] = before;
    }
    memset(bytes + 8, 0, 4); /* without a sender */
    CHECK(!weft__ud_frame_decode(bytes, UD_HEAD, &back));
    f = sample(UD_NOTHING);
    weft__ud_frame_encode(&f, bytes);
    CHECK(!weft__ud_frame_decode(bytes, UD_HEAD + 1, &back));
}

TEST(addresses_come_back_as_they_were) {
    struct ud_address a = {.place = {.gid = "0123456789abcde",
                                     .lid = 77,
                                     .link = RD_LINK_INFINIBAND,
                                     .mtu = 5},
                           .qpn = 0xabcdef,
                           .qkey = 0x12345678,
                           .token = 0x8000000000000001},
                      back;
    uint8_t bytes[UD_ADDRESS + 1];
    weft__ud_address_encode(&a, bytes);
    CHECK_EQ(weft__ud_address_decode(bytes, UD_ADDRESS, &back), WEFT_OK);
    CHECK(back.qpn == a.qpn && back.qkey == a.qkey && back.token == a.token);
    CHECK(memcmp(back.place.gid, a.place.gid, 16) == 0 && back.place.lid == 77 &&
          back.place.mtu == 5);
    CHECK_EQ(weft__ud_address_decode(bytes, UD_ADDRESS + 1, &back), WEFT_ERR_ADDRESS);
    bytes_maul(decode_all, bytes, UD_ADDRESS);
    a.qkey |= UINT32_C(1) << 31; /* the kernel's own */
    weft__ud_address_encode(&a, bytes);
    CHECK_EQ(weft__ud_address_decode(bytes, UD_ADDRESS, &back), WEFT_ERR_ADDRESS);
}

TEST(the_source_stands_in_the_header_of_its_family) {
    static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 10, 77, 0, 2};
    uint8_t bytes[UD_GRH] = {0}, gid[16];
    memcpy(bytes + 32, mapped + 12, 4);
    CHECK(!weft__ud_source_decode(bytes, UD_GRH, true, gid)); /* no IPv4 header */
    bytes[20] = 0x45;
    CHECK(weft__ud_source_decode(bytes, UD_GRH, true, gid));
    CHECK(memcmp(gid, mapped, 16) == 0);
    CHECK(!weft__ud_source_decode(bytes, UD_GRH, false, gid));
    CHECK(!weft__ud_source_decode(bytes, UD_GRH - 1, true, gid));
    bytes[0] = 0x60;
    memcpy(bytes + 8, "fedcba9876543210", 16);
    CHECK(weft__ud_source_decode(bytes, UD_GRH, false, gid));
    CHECK(memcmp(gid, "fedcba9876543210", 16) == 0);
    bytes_maul(decode_all, bytes, UD_GRH);
}

TEST(noise_is_decoded_to_something_or_nothing) {
    uint32_t x = 1;
    uint8_t bytes[80];
    for (int n = 0; n < 200000; n++) {
        size_t len = (size_t)n % sizeof bytes;
        for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
        if (n & 1) bytes[0] = UD_VERSION, bytes[1] = (uint8_t)(n >> 1 & 3), bytes[3] = 0;
        bytes_decode(decode_all, bytes, len);
    }
}
#else
TEST(datagrams_come_back_as_they_were) {
    SKIP("built without rdma");
}
#endif

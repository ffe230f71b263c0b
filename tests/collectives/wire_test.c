/* Messages of members, decoded from bytes that are not trusted. */
#include <collectives/wire.h>
#include <tests/harness.h>

TEST(a_header_comes_out_as_it_went_in) {
    struct coll_wire in = {0x1122334455667788u, 9, 0xffffffffu, 1u << 30, 4095, 77}, out;
    uint8_t bytes[COLL_WIRE_BYTES];
    weft__coll_wire_write(bytes, &in);
    CHECK_EQ(bytes[0], 0x88);
    CHECK(weft__coll_wire_read(bytes, sizeof bytes, &out));
    CHECK_EQ(out.team, in.team);
    CHECK_EQ(out.epoch, in.epoch);
    CHECK_EQ(out.seq, in.seq);
    CHECK_EQ(out.tag, in.tag);
    CHECK_EQ(out.from, in.from);
    CHECK_EQ(out.stream, in.stream);
}

TEST(a_header_of_another_length_is_refused) {
    uint8_t bytes[COLL_WIRE_BYTES + 8] = {0};
    struct coll_wire out;
    for (size_t len = 0; len <= sizeof bytes; len++)
        CHECK_EQ(weft__coll_wire_read(bytes, len, &out), len == COLL_WIRE_BYTES);
}

static struct member_record record(void) {
    struct member_record r = {.address_len = 200,
                              .flags = 3,
                              .nonce = 77,
                              .host = 5,
                              .cores = 2,
                              .core = 9,
                              .ranks_per_core = 9,
                              .pid = 123,
                              .fd = 7,
                              .probe = 0x7f0012345678,
                              .eager = 4096,
                              .slot = 8192,
                              .choices = 42};
    for (size_t i = 0; i < sizeof r.address; i++) r.address[i] = (uint8_t)i;
    return r;
}

TEST(a_record_comes_out_as_it_went_in) {
    struct member_record in = record(), out = {0};
    uint8_t bytes[MEMBER_RECORD_BYTES + 1];
    bytes[MEMBER_RECORD_BYTES] = 0x5a;
    weft__member_write(bytes, &in);
    CHECK_EQ(bytes[MEMBER_RECORD_BYTES], 0x5a);
    CHECK(weft__member_read(bytes, MEMBER_RECORD_BYTES, &out));
    CHECK(out.address_len == 200 && out.flags == 3 && out.nonce == 77 && out.host == 5 &&
          out.cores == 2 && out.core == 9);
    CHECK(out.ranks_per_core == 9 && out.pid == 123 && out.fd == 7 && out.eager == 4096 &&
          out.slot == 8192);
    CHECK(out.probe == 0x7f0012345678 && out.choices == 42 &&
          memcmp(in.address, out.address, sizeof in.address) == 0);
}

TEST(no_flipped_bit_makes_an_address_longer_than_its_room) {
    struct member_record in = record(), out;
    uint8_t bytes[MEMBER_RECORD_BYTES];
    for (unsigned bit = 0; bit < 8 * MEMBER_RECORD_BYTES; bit++) {
        weft__member_write(bytes, &in);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (weft__member_read(bytes, sizeof bytes, &out))
            CHECK(out.address_len <= sizeof out.address);
        else
            CHECK(bit < 8 * 6);
    }
    for (size_t len = 0; len < MEMBER_RECORD_BYTES; len++)
        CHECK(!weft__member_read(bytes, len, &out));
}

TEST(all_inputs_of_up_to_three_bytes_are_refused) {
    struct coll_wire header;
    struct member_record record;
    for (uint32_t v = 0; v < 1 << 24; v++) {
        uint8_t bytes[3] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16)};
        for (size_t len = 0; len <= 3; len++)
            CHECK(!weft__coll_wire_read(bytes, len, &header) &&
                  !weft__member_read(bytes, len, &record));
    }
}

TEST(the_head_of_a_value_comes_back_as_it_was) {
    uint8_t bytes[AGREE_HEAD_BYTES];
    struct agree_head v = {0x0123456789abcdefull, 7, 328}, back;
    weft__agree_head_write(bytes, &v);
    CHECK(weft__agree_head_read(bytes, sizeof bytes, &back));
    CHECK(back.flags == v.flags && back.ballot == v.ballot && back.blob_len == v.blob_len);
    CHECK_EQ(bytes[0], 0xef);
    CHECK(!weft__agree_head_read(bytes, sizeof bytes - 1, &back));
}

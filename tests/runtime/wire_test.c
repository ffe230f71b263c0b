#include "../harness.h"
#include <runtime/wire.h>

static void encode(uint8_t header[RUN_HEADER], enum run_type type, uint32_t round, uint32_t len) {
    struct run_frame frame = {type, round, len};
    weft__run_encode(&frame, header);
}

TEST(what_is_encoded_is_decoded) {
    static const uint32_t rounds[] = {0, 1, 255, 65536, UINT32_MAX};
    for (size_t i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        uint8_t header[RUN_HEADER];
        struct run_frame frame;
        encode(header, RUN_ALL, rounds[i], 4711);
        CHECK_EQ(weft__run_decode(header, sizeof header, &frame), WEFT_OK);
        CHECK_EQ(frame.type, RUN_ALL);
        CHECK_EQ(frame.round, rounds[i]);
        CHECK_EQ(frame.len, 4711);
    }
}

TEST(every_truncation_asks_for_more) {
    uint8_t header[RUN_HEADER];
    struct run_frame frame;
    encode(header, RUN_GATHER, 1, 8);
    for (size_t len = 0; len < RUN_HEADER; len++)
        CHECK_EQ(weft__run_decode(header, len, &frame), WEFT_IN_PROGRESS);
}

/* A flipped bit makes an error, or another frame that is as long as it says: never more than the
 * limit. */
TEST(every_flipped_bit_is_answered) {
    int accepted = 0;
    for (unsigned bit = 0; bit < 8 * RUN_HEADER; bit++) {
        uint8_t header[RUN_HEADER];
        struct run_frame frame;
        encode(header, RUN_GATHER, 3, 100);
        header[bit / 8] ^= (uint8_t)(1 << bit % 8);
        weft_status_t st = weft__run_decode(header, sizeof header, &frame);
        CHECK(st <= WEFT_OK);
        if (st < 0) continue;
        accepted++;
        CHECK(bit / 8 == 5 || bit / 8 >= 8); /* type, round or length */
        CHECK(frame.len <= (frame.type == RUN_GATHER ? RUN_MAX_MINE : RUN_MAX_PAYLOAD));
    }
    CHECK(accepted >= 32); /* every bit of the round at least */
}

TEST(all_inputs_of_up_to_three_bytes_are_answered) {
    struct run_frame frame;
    CHECK_EQ(weft__run_decode("", 0, &frame), WEFT_IN_PROGRESS);
    for (uint32_t v = 0; v < 1 << 24; v++) {
        uint8_t bytes[3] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16)};
        size_t len = v < 1 << 8 ? 1 : v < 1 << 16 ? 2 : 3;
        weft_status_t expected =
            memcmp(bytes, "WRUN", len) == 0 ? WEFT_IN_PROGRESS : WEFT_ERR_PROTOCOL;
        if (weft__run_decode(bytes, len, &frame) != expected) CHECK_EQ(v, -1);
    }
}

TEST(another_version_is_named) {
    uint8_t header[RUN_HEADER];
    struct run_frame frame;
    encode(header, RUN_GATHER, 1, 8);
    header[4]++;
    CHECK_EQ(weft__run_decode(header, sizeof header, &frame), WEFT_ERR_VERSION);
}

TEST(a_refusal_is_an_error_in_any_case) {
    static const uint8_t ok[4] = {0}, peer_failed[4] = {0xf6, 0xff, 0xff, 0xff},
                         unknown[4] = {0, 0, 0, 0x80};
    CHECK_EQ(weft__run_decode_status(peer_failed, 4), WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft__run_decode_status(ok, 4), WEFT_ERR_PROTOCOL);
    CHECK_EQ(weft__run_decode_status(unknown, 4), WEFT_ERR_PROTOCOL);
    CHECK_EQ(weft__run_decode_status(peer_failed, 3), WEFT_ERR_PROTOCOL);
}

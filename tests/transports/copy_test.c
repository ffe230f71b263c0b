/* Wide copies take every byte and no other, whatever the length and the places. */
#include "../harness.h"
#include <stdint.h>
#include <transports/copy.h>

enum { AROUND = 200, LONGEST = (96 << 10) + 1, MOST = LONGEST + 2 * AROUND };
static uint8_t from[MOST], to[MOST];

static void copy_and_look(size_t to_at, size_t from_at, size_t len) {
    size_t around = 0;
    memset(to, 0xee, sizeof to);
    weft__copy(to + to_at, from + from_at, len);
    CHECK(memcmp(to + to_at, from + from_at, len) == 0);
    for (size_t i = 0; i < sizeof to; i++)
        around += (i < to_at || i >= to_at + len) && to[i] != 0xee;
    CHECK_EQ(around, 0);
}

TEST(every_byte_is_copied_and_no_other) {
    const size_t lens[] = {0,    1,     4095,  4096,  4097,  4159,  4160,   4223,
                           4224, 21888, 32767, 32768, 65535, 65536, LONGEST};
    for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 7 + i / 251);
    for (size_t l = 0; l < sizeof lens / sizeof *lens; l++)
        for (size_t at = 0; at < 66; at += at < 4 ? 1 : 5)
            copy_and_look(64 + at, 64 + at * 3 % 61, lens[l]);
    /* alike in their lines */
    for (size_t at = 0; at < 64; at += 9) copy_and_look(64 + at, 128 + at, LONGEST);
}

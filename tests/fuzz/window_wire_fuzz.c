/* The window's decoder: any bytes are answered, and what is accepted is what its encoder would
 * have written. */
#include "fuzz.h"
#include <transports/reliable/window_wire.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct window_frame f;
    uint8_t again[WINDOW_HANDSHAKE];
    if (!weft__window_decode(data, size, &f)) return 0;
    size_t head = weft__window_encode(&f, again);
    if (head > size || memcmp(again, data, head) != 0) abort();
    if (f.kind == WINDOW_DATA ? head + f.len != size : head != size) abort();
    if (f.id >= 32 || f.more >= WINDOW_FRAGMENTS) abort();
    return 0;
}

/* The exchange's decoder: any bytes are answered, and what is accepted is what its encoder would
 * have written. */
#include "fuzz.h"
#include <runtime/wire.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct run_frame frame;
    if (weft__run_decode(data, size, &frame) == WEFT_OK) {
        uint8_t again[RUN_HEADER];
        weft__run_encode(&frame, again);
        if (memcmp(again, data, RUN_HEADER) != 0) abort();
        if (frame.len > RUN_MAX_PAYLOAD) abort();
    }
    if (weft__run_decode_status(data, size) >= 0) abort();
    return 0;
}

/* Encoder and decoder of the exchange's frames. */
#include <runtime/wire.h>
#include <string.h>

static const uint8_t magic[4] = {'W', 'R', 'U', 'N'};

static uint32_t wire_get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void wire_put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

weft_status_t weft__run_decode(const void *data, size_t len, struct run_frame *frame_p) {
    const uint8_t *p = data;
    if (memcmp(p, magic, len < sizeof magic ? len : sizeof magic) != 0) return WEFT_ERR_PROTOCOL;
    if (len < RUN_HEADER) return WEFT_IN_PROGRESS;
    if (p[4] != RUN_VERSION) return WEFT_ERR_VERSION;
    if (p[5] < RUN_GATHER || p[5] > RUN_DENIED || p[6] != 0 || p[7] != 0) return WEFT_ERR_PROTOCOL;

    struct run_frame frame = {.type = p[5], .round = wire_get32(p + 8), .len = wire_get32(p + 12)};
    uint32_t most = frame.type == RUN_GATHER ? RUN_MAX_MINE : RUN_MAX_PAYLOAD;
    if (frame.len > most) return WEFT_ERR_TOO_BIG;
    if (frame.type == RUN_DENIED && frame.len != 4) return WEFT_ERR_PROTOCOL;
    *frame_p = frame;
    return WEFT_OK;
}

void weft__run_encode(const struct run_frame *frame, uint8_t header[RUN_HEADER]) {
    memcpy(header, magic, sizeof magic);
    header[4] = RUN_VERSION;
    header[5] = (uint8_t)frame->type;
    header[6] = header[7] = 0;
    wire_put32(header + 8, frame->round);
    wire_put32(header + 12, frame->len);
}

weft_status_t weft__run_decode_status(const void *data, size_t len) {
    if (len != 4) return WEFT_ERR_PROTOCOL;
    int32_t status = (int32_t)wire_get32(data);
    return status < 0 && status >= WEFT_STATUS_LAST ? (weft_status_t)status : WEFT_ERR_PROTOCOL;
}

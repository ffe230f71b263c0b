/* The frames between a process and weft-run: a header of 16 bytes and a payload, little-endian. */
#ifndef WEFT_RUNTIME_WIRE_H
#define WEFT_RUNTIME_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

/*
 *  0  4  "WRUN"
 *  4  1  version
 *  5  1  type
 *  6  2  zero
 *  8  4  round: counts the exchanges of one process, from 1
 * 12  4  length of the payload
 */
enum {
    RUN_HEADER = 16,
    RUN_VERSION = 1,
    RUN_MAX_MINE = 64 << 10, /* the contribution of one rank */
    RUN_MAX_RANKS = 4096,
    RUN_MAX_PAYLOAD = 64 << 20
};

enum run_type {
    RUN_GATHER = 1, /* to weft-run: the contribution of a rank */
    RUN_ALL = 2,    /* from weft-run: all contributions, in rank order */
    RUN_DENIED = 3  /* from weft-run: the round failed; the payload is a weft_status_t in 4 bytes */
};

struct run_frame {
    enum run_type type;
    uint32_t round, len; /* of the payload that follows the header */
};

/* WEFT_OK and `*frame_p`. WEFT_IN_PROGRESS: `len` is less than a header, and the bytes are valid
 * so far. Errors: PROTOCOL, VERSION, TOO_BIG. */
weft_status_t weft__run_decode(const void *data, size_t len, struct run_frame *frame_p);
void weft__run_encode(const struct run_frame *frame, uint8_t header[RUN_HEADER]);

/* The status in the payload of RUN_DENIED. Always an error. */
weft_status_t weft__run_decode_status(const void *data, size_t len);

#endif

/*
 * What a client and the module send: active messages, with numbers in the processors' byte order,
 * little-endian as all of Weft's.
 */
#ifndef WEFT_REDIS_PROTOCOL_H
#define WEFT_REDIS_PROTOCOL_H

#include <stdint.h>

enum { REDIS_REQUEST_ID = 900, REDIS_REPLY_ID = 901 }; /* ids of active messages */
enum { REDIS_VERSION = 1, REDIS_KEY_MOST = 64 << 10, REDIS_VALUE_MOST = 64 << 20 };

enum redis_what { REDIS_GET, REDIS_SET, REDIS_DELETE, REDIS_LEASE, REDIS_N_WHAT };

/* The header of a request. Its payload is the key, then the value of a SET. */
struct redis_request {
    uint16_t version, what;
    uint32_t number; /* the client's; the reply has it, too */
    uint32_t key_len;
    uint32_t zero;
};

/*
 * The header of a reply. The payload is the value of a GET, or the remote key of a LEASE: a region
 * that holds the value, of `len` bytes at `address`.
 */
struct redis_reply {
    uint32_t number;
    int32_t status; /* a weft_status_t; NOT_FOUND: no such key */
    uint64_t address, len;
};

#endif

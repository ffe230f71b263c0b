/* What the two ends of an attachment say about one-sided access, over its socket. Little-endian, this host only. */
#ifndef WEFT_TRANSPORTS_SHM_KEY_WIRE_H
#define WEFT_TRANSPORTS_SHM_KEY_WIRE_H

#include "wire.h"
#include <stdbool.h>

/* Kinds; the importer says WANT and DROP, the owner the others. GRANT of a mapping brings a descriptor. */
enum shm_key_kind { SHM_WANT = 32, SHM_GRANT, SHM_DENY, SHM_REVOKE, SHM_DROP };

/* How the owner's memory is reached. */
enum { SHM_WAY_MAP = 1, SHM_WAY_VM = 2, SHM_WAYS = 3 };

enum { SHM_PAGE = 4096 };

/* May I touch this region of yours? `serial` names the key from now on, in both directions. */
struct shm_want {
    struct shm_head head;
    uint32_t serial, region, epoch, rights;
    uint64_t base, len;
    uint8_t token[16];
    uint32_t ways, reserved; /* those that the speaker could take */
};

/* You may, this way. The region begins at `offset` of the memfd that comes along. */
struct shm_grant_word {
    struct shm_head head;
    uint32_t serial, way;
    uint64_t offset;
};

/* You may not. */
struct shm_deny {
    struct shm_head head;
    uint32_t serial;
    int32_t status;
};

/* REVOKE: let go. DROP: I let go. */
struct shm_serial {
    struct shm_head head;
    uint32_t serial, reserved;
};

struct shm_key_word {
    enum shm_key_kind kind;
    uint32_t serial;
    struct shm_want want;        /* WANT */
    struct shm_grant_word grant; /* GRANT */
    weft_status_t status;        /* DENY: an error */
};

bool weft__shm_is_key_word(const void *data, size_t len);
weft_status_t weft__shm_key_decode(const void *data, size_t len, struct shm_key_word *word_p);

/* What shm adds to a packed key: the ways that there are. */
enum { SHM_KEY_LEN = 2 };
void weft__shm_key_encode(uint32_t ways, uint8_t to[SHM_KEY_LEN]);
/* 0: not one that this version reads. */
uint32_t weft__shm_key_ways(const void *data, size_t len);

#endif

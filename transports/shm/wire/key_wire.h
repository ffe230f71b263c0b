/* The messages about one-sided access on the socket of an attachment. Little-endian, this host
 * only. */
#ifndef WEFT_TRANSPORTS_SHM_WIRE_KEY_WIRE_H
#define WEFT_TRANSPORTS_SHM_WIRE_KEY_WIRE_H

#include "wire.h"
#include <stdbool.h>
#include <transports/cuda/peer_memory.h>

/* Kinds. The importer sends WANT and DROP, the owner the others. GRANT of a mapping carries a
 * descriptor. */
enum shm_key_kind { SHM_WANT = 32, SHM_GRANT, SHM_DENY, SHM_REVOKE, SHM_DROP };

/* Ways to reach the owner's memory. */
enum { SHM_WAY_MAP = 1, SHM_WAY_VM = 2, SHM_WAY_DEVICE = 4, SHM_WAYS = 7 };

enum { SHM_PAGE = 4096 };

/* WANT asks for access to a region. From then on `serial` names the key in both directions. */
struct shm_want {
    struct shm_head head;
    uint32_t serial, region, epoch, rights;
    uint64_t base, len;
    uint8_t token[16];
    uint32_t ways, reserved; /* SHM_WAY_…: the ways that the importer can use */
};

/* GRANT permits one way. The region begins at `offset` of the memfd that comes with it. */
struct shm_grant_word {
    struct shm_head head;
    uint32_t serial, way;
    uint64_t offset;
};

/* GRANT of a region on a device. */
struct shm_device_grant {
    struct shm_grant_word grant;
    struct cuda_export device;
};

/* DENY refuses. */
struct shm_deny {
    struct shm_head head;
    uint32_t serial;
    int32_t status;
};

/* REVOKE: the owner takes the grant back. DROP: the importer has let go of it. */
struct shm_serial {
    struct shm_head head;
    uint32_t serial, reserved;
};

/* Of every message on the socket. */
enum { SHM_MESSAGE_MAX = sizeof(struct shm_device_grant) };
_Static_assert(sizeof(struct shm_hello) <= SHM_MESSAGE_MAX, "a hello is shorter");

struct shm_key_word {
    enum shm_key_kind kind;
    uint32_t serial;
    struct shm_want want;        /* WANT */
    struct shm_grant_word grant; /* GRANT */
    struct cuda_export device;   /* with SHM_WAY_DEVICE: not checked */
    weft_status_t status;        /* DENY: an error */
};

bool weft__shm_is_key_word(const void *data, size_t len);
weft_status_t weft__shm_key_decode(const void *data, size_t len, struct shm_key_word *word_p);

/* The part of a packed key that belongs to shm: the ways that the owner offers. */
enum { SHM_KEY_LEN = 2 };
void weft__shm_key_encode(uint32_t ways, uint8_t to[SHM_KEY_LEN]);
/* The ways. 0: this version cannot read the key. */
uint32_t weft__shm_key_ways(const void *data, size_t len);

#endif

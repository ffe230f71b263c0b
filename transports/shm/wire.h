/* What goes over the socket of an attachment, and what an interface's address holds. Little-endian, this host only. */
#ifndef WEFT_TRANSPORTS_SHM_WIRE_H
#define WEFT_TRANSPORTS_SHM_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

enum {
    SHM_MAGIC = 0x6d687377, /* "wshm" */
    SHM_VERSION = 7,
    SHM_DIRECTORY_MAX = 56,
    /* Bells, shelves, pool, eventfd and, if there is one, ring: with HELLO and WELCOME, in this order. */
    SHM_N_FDS = 5,
    SHM_MAX_SLOTS = 1 << 16,
    SHM_MAX_PAYLOAD = 1 << 28,
    SHM_MAX_STAGING = 1 << 30,
    SHM_MAX_NODES = 1 << 20,
    SHM_MAX_BLOCKS = 1 << 16
};

/* What the descriptors of HELLO and WELCOME are. */
enum { SHM_FD_BELLS, SHM_FD_SHELVES, SHM_FD_POOL, SHM_FD_EVENT, SHM_FD_RING };

enum shm_kind { SHM_HELLO = 1, SHM_WELCOME, SHM_NO, SHM_BYE, SHM_QUIT };

struct shm_head {
    uint32_t magic;
    uint16_t version;
    uint8_t kind, reserved;
};

/* HELLO and WELCOME. */
struct shm_hello {
    struct shm_head head;
    uint64_t worker_id;             /* the speaker's */
    uint64_t target;                /* HELLO: the worker that is meant; 0: whoever listens */
    uint32_t lane;                  /* the speaker's number for this lane */
    uint32_t place;                 /* the speaker's, in its process's hall */
    uint32_t n_slots, payload_size; /* of the ring; 0: none, HELLO asks for the mailbox, or WELCOME answers so */
    uint32_t staging_size;
    uint32_t n_nodes, n_blocks; /* of the pool */
    uint32_t fenced;    /* 1: the speaker's process takes part in membarriers, so its ring may be attended */
    uint32_t only_ring; /* HELLO: 1: a ring, or nothing */
    uint32_t reserved;
    uint64_t probe_at, probe; /* `probe` stands at that address: read it to see whether memory may be read */
};

struct shm_no {
    struct shm_head head;
    int32_t status;
};

struct shm_address {
    uint8_t version;
    uint8_t host[16];
    uint32_t uid, pid;
    uint64_t worker_id;
    char directory[SHM_DIRECTORY_MAX + 1]; /* as many bytes as needed, with the 0 */
} __attribute__((packed));

/* The kind of a message, with `*hello_p` filled for HELLO and WELCOME and `*status_p` for NO; or an error. */
weft_status_t weft__shm_decode(const void *data, size_t len, enum shm_kind *kind_p, struct shm_hello *hello_p,
                               weft_status_t *status_p);

size_t weft__shm_address_encode(const struct shm_address *address, void *buf, size_t room); /* 0: no room */
weft_status_t weft__shm_address_decode(const void *data, size_t len, struct shm_address *address_p);

#endif

/* The messages on the socket of an attachment, and the address of an interface. Little-endian,
 * this host only. */
#ifndef WEFT_TRANSPORTS_SHM_WIRE_WIRE_H
#define WEFT_TRANSPORTS_SHM_WIRE_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

enum {
    SHM_MAGIC = 0x6d687377, /* "wshm" */
    SHM_VERSION = 8,
    SHM_DIRECTORY_MAX = 56,
    /* Descriptors of HELLO and WELCOME: doorbells, tx slots, pool, eventfd and, if offered,
     * ring. */
    SHM_N_FDS = 5,
    SHM_MAX_SLOTS = 1 << 16,
    SHM_MAX_PAYLOAD = 1 << 28,
    SHM_MAX_STAGING = 1 << 30,
    SHM_MAX_NODES = 1 << 20,
    SHM_MAX_BLOCKS = 1 << 16,
    SHM_FDS_LOST = -1, /* in place of the number of descriptors: this process had no free ones */
    SHM_SLOTS = 1024   /* of a process's slot table, one for each worker */
};

/* The place of each descriptor among those of HELLO and WELCOME. */
enum { SHM_FD_DOORBELLS, SHM_FD_TX_SLOTS, SHM_FD_POOL, SHM_FD_EVENT, SHM_FD_RING };

enum shm_kind { SHM_HELLO = 1, SHM_WELCOME, SHM_NO, SHM_BYE, SHM_QUIT };

struct shm_head {
    uint32_t magic;
    uint16_t version;
    uint8_t kind, reserved;
};

/* HELLO and WELCOME. */
struct shm_hello {
    struct shm_head head;
    uint64_t worker_id;             /* the sender's */
    uint64_t target;                /* HELLO: the worker that is dialed; 0: any that listens */
    uint32_t lane;                  /* the sender's number for this lane */
    uint32_t place;                 /* the sender's, in its process's slot table */
    uint32_t n_slots, payload_size; /* of the ring; 0: no ring, the lane goes by the mailbox */
    uint32_t staging_size;
    uint32_t n_nodes, n_blocks; /* of the pool */
    /* 1: the sender's process takes part in membarriers, so its ring may be attended */
    uint32_t fenced;
    uint32_t only_ring; /* HELLO: 1: refuse the lane rather than use the mailbox */
    uint32_t opening;   /* the sender writes it to `open` when the peer may use its mailbox */
    uint64_t probe_at,
        /* `probe` stands at that address: the peer reads it to learn whether it may read memory */
        probe;
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
    char directory[SHM_DIRECTORY_MAX + 1]; /* only the used bytes travel, with the final 0 */
} __attribute__((packed));

/* Decodes a message: its kind, `*hello_p` for HELLO and WELCOME, `*status_p` for NO. */
weft_status_t weft__shm_decode(const void *data, size_t len, enum shm_kind *kind_p,
                               struct shm_hello *hello_p, weft_status_t *status_p);

size_t weft__shm_address_encode(const struct shm_address *address, void *buf,
                                size_t room); /* the length; 0: no room */
weft_status_t weft__shm_address_decode(const void *data, size_t len, struct shm_address *address_p);

#endif

/*
 * One-sided access between the two ends of an attachment. The importer has a `shm_key` to a region of the peer's, the owner a
 * `shm_grant` for each key that peers were given. Both converse over the attachment's socket (key_wire.h).
 */
#ifndef WEFT_TRANSPORTS_SHM_KEY_H
#define WEFT_TRANSPORTS_SHM_KEY_H

#include "key_wire.h"
#include "shm.h"

#include <transports/keys.h>

#include "shm_key.fsm"
#define FSM_NAME   shm_key
#define FSM_PREFIX SHM_KEY
#include <fsm/declare.h>

#include "shm_grant.fsm"
#define FSM_NAME   shm_grant
#define FSM_PREFIX SHM_GRANT
#include <fsm/declare.h>

enum {
    SHM_ASKS = 32, /* WANTs of one lane that wait for their answer: so a peer that reads has room for them */
    SHM_MEM_BUCKETS = 64,
    SHM_RMA_SHORT = 8192,
    SHM_RMA_BCOPY = 64 * 1024,
    SHM_RMA_ZCOPY = 1024 * 1024
};

struct shm_key {
    struct lane_key key;
    struct fsm fsm;
    struct queued_word word;    /* WANT or DROP; or its place among those that wait to ask */
    struct shm_key *next, **at; /* `at` NULL: freed, but for its word */
    uint32_t serial, ways;
    void *map; /* NULL: not mapped */
    size_t map_len;
    weft_status_t why; /* it is refused */
};

struct shm_grant {
    struct fsm fsm;
    struct queued_word word;      /* REVOKE */
    struct shm_lane *lane;        /* NULL: it outlived its lane */
    struct shm_grant *next, **at; /* of the same lane, or of the same orphan */
    struct shm_mem *mem;          /* NULL: denied */
    struct shm_grant *mem_next, **mem_at;
    uint32_t serial, way, rights;
    weft_status_t why; /* it is denied */
};

/* A region, as peers may be given it. */
struct shm_mem {
    struct md_mem mem;
    struct shm_mem *next;
    struct shm_grant *grants;
    uint32_t ways;
    struct completion *revoked; /* to be stepped when the last grant has ended */
};

/* The socket of a lane that is closed on this side, while the peer may not have let go yet. */
struct shm_orphan {
    struct shm_iface *iface;
    struct shm_orphan *next, **at;
    struct shm_grant *grants;
    struct watch watch, death;
    int fd, pid_fd;
};

/* What a lane has of it: made when it is first needed. */
struct shm_keys {
    struct word_queue words, waiting;
    struct shm_key *keys;
    struct shm_key *read, *written; /* by which memory was found last for large messages; or NULL */
    struct shm_grant *grants;
    struct shm_orphan *orphan; /* made with the first grant, so that it is there when it is needed */
    uint32_t last_serial, n_asked, n_grants;
    bool parted;         /* the peer has closed its end: it has let go of everything */
    weft_status_t fault; /* what the peer did that it may not */
};

/* What an iface has of it. */
struct shm_md {
    struct shm_mem *mem[SHM_MEM_BUCKETS];
    struct shm_orphan *orphans;
    uint32_t ways; /* those that the configuration allows */
    uint64_t max_grants;
    char *bounce; /* SHM_RMA_BCOPY bytes, made when first needed */
};

static inline struct shm_keys *shm_keys(const struct shm_lane *lane) { /* NULL: it was never used */
    return lane->more ? lane->more->keys : NULL;
}

/* words.c: what goes out, and what comes in */
struct shm_keys *weft__shm_keys_of(struct shm_lane *lane); /* NULL: no memory */
void weft__shm_say(struct shm_lane *lane, struct queued_word *word, uint8_t kind);
bool weft__shm_say_now(struct shm_lane *lane, const void *data, size_t len, int fd); /* false: it does not read */

/* key.c: the importer's side */
/* Where it is mapped for one of CAP_GET and CAP_PUT; NULL: nowhere. */
char *weft__shm_mapped_at(const struct shm_lane *lane, uint64_t remote, size_t len, uint32_t cap);
void weft__shm_key_said(struct shm_lane *lane, struct shm_key *key);
size_t weft__shm_key_word(const struct shm_key *key, void *to);
void weft__shm_key_heard(struct shm_lane *lane, const struct shm_key_word *word, const int *fds, int n_fds);

/* grant.c: the owner's side */
size_t weft__shm_grant_word(const struct shm_grant *grant, void *to);
bool weft__shm_deny(struct shm_lane *lane, uint32_t serial, weft_status_t why); /* false: it does not read */
void weft__shm_grant_heard(struct shm_lane *lane, const struct shm_key_word *word);

/* vm.c: memory that is not mapped, through the kernel */
weft_status_t weft__shm_vm_copy(struct lane *l, bool put, const struct rma_piece *pieces, size_t n,
                                uint64_t remote);
char *weft__shm_bounce(struct shm_lane *lane); /* NULL: no memory */
/* What was read of its memory before was its own, and not given back. */
bool weft__shm_peer_stays(const struct shm_lane *lane);

#endif

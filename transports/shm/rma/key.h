/*
 * One-sided access between the two ends of an attachment. The importer has a `shm_key` for a region
 * of the peer. The owner has a `shm_grant` for each key that a peer asked for. They exchange
 * messages over the attachment's socket (key_wire.h).
 */
#ifndef WEFT_TRANSPORTS_SHM_RMA_KEY_H
#define WEFT_TRANSPORTS_SHM_RMA_KEY_H

#include "bulk.h"
#include "rma.h"
#include <transports/shm/wire/key_wire.h>

#include <base/list.h>
#include <transports/cuda/copies.h>
#include <transports/keys.h>

#include "shm_key.fsm"
#define FSM_NAME   shm_key
#define FSM_PREFIX SHM_KEY
#define FSM_SETS   SHM_KEY_SETS
#include <fsm/declare.h>

#include "shm_grant.fsm"
#define FSM_NAME   shm_grant
#define FSM_PREFIX SHM_GRANT
#define FSM_SETS   SHM_GRANT_SETS
#include <fsm/declare.h>

enum {
    /* unanswered WANTs of one lane, at most: the socket of a peer that reads has room for them */
    SHM_ASKS = 32,
    SHM_MEM_BUCKETS = 64,
    SHM_RMA_SHORT = 8192,
    SHM_RMA_BCOPY = 64 * 1024,
    SHM_RMA_ZCOPY = 1024 * 1024
};

struct shm_key {
    struct lane_key key;
    struct fsm fsm;
    /* WANT or DROP; or its place in the queue of keys that wait to ask */
    struct queued_word word;
    struct shm_key *next, **at; /* `at` NULL: freed when its word is sent */
    uint32_t serial, ways;
    void *map; /* NULL: not mapped */
    size_t map_len;
    weft_status_t why;          /* the reason of the refusal */
    struct cuda_export *device; /* NULL: not of a device */
    struct list copies;         /* of device memory, under way (device.h) */
};

struct shm_grant {
    struct fsm fsm;
    struct queued_word word;      /* REVOKE */
    struct shm_lane *lane;        /* NULL: the grant outlived its lane */
    struct shm_grant *next, **at; /* of the same lane, or of the same orphan */
    struct shm_mem *mem;          /* NULL: denied */
    struct shm_grant *mem_next, **mem_at;
    uint32_t serial, way, rights;
    weft_status_t why; /* the reason of the denial */
};

/* A region that peers may be granted. */
struct shm_mem {
    struct md_mem mem;
    struct shm_mem *next;
    struct shm_grant *grants;
    uint32_t ways;
    struct cuda_export device;  /* with SHM_WAY_DEVICE */
    struct completion *revoked; /* stepped when the last grant has ended */
};

/* The socket of a lane that this side has closed, while the peer may still use its grants. */
struct shm_orphan {
    struct shm_iface *iface;
    struct shm_orphan *next, **at;
    struct shm_grant *grants;
    struct watch watch, death;
    int fd, pid_fd;
};

/* A lane's part of it, made when first needed. */
struct shm_keys {
    struct word_queue words, waiting;
    struct shm_key *keys;
    struct shm_key *read, *written; /* the keys that bulk copies used last; or NULL */
    struct shm_grant *grants;
    /* made with the first grant, so that the end of the lane needs no memory */
    struct shm_orphan *orphan;
    uint32_t last_serial, n_asked, n_grants;
    bool parted;         /* the peer has closed its end, and let go of all grants */
    weft_status_t fault; /* the peer's violation; or OK */
};

/* An interface's part of it, and of bulk copies. */
struct shm_md {
    struct shm_mem *mem[SHM_MEM_BUCKETS];
    struct shm_orphan *orphans;
    uint32_t ways; /* the ways that shm.rma allows */
    uint64_t max_grants;
    struct cuda_copies *copies; /* made when first needed */
    char *bounce;               /* SHM_RMA_BCOPY bytes, made when first needed */

    uint32_t split_serial; /* of the last split copy */
    uint64_t split_words;  /* a bit for each control word in use */
    /* split reads that wait for the peer's part; of all lanes, in order */
    struct shm_bulk *outstanding;
    struct shm_bulk *puts; /* copies that the peer writes alone; the same */
};

static inline struct shm_keys *shm_keys(const struct shm_lane *lane) { /* NULL: never used */
    return lane->more ? lane->more->keys : NULL;
}

/* atomic_words.c: sending and receiving of messages about keys */
struct shm_keys *weft__shm_keys_of(struct shm_lane *lane); /* NULL: no memory */
void weft__shm_send(struct shm_lane *lane, struct queued_word *word, uint8_t kind);
bool weft__shm_send_now(struct shm_lane *lane, const void *data, size_t len,
                        int fd); /* false: the socket has no room */

/* key.c: the importer's side */
/* The mapping of remote memory, for CAP_GET or CAP_PUT. NULL: it is not mapped. */
char *weft__shm_mapped_at(const struct shm_lane *lane, uint64_t remote, size_t len, uint32_t cap);
void weft__shm_key_sent(struct shm_lane *lane, struct shm_key *key);
size_t weft__shm_key_word(const struct shm_key *key, void *to);
void weft__shm_key_received(struct shm_lane *lane, const struct shm_key_word *word, const int *fds,
                            int n_fds);

/* grant.c: the owner's side */
size_t weft__shm_grant_word(const struct shm_grant *grant, void *to);
/* false: the socket has no room */
bool weft__shm_deny(struct shm_lane *lane, uint32_t serial, weft_status_t why);
void weft__shm_grant_received(struct shm_lane *lane, const struct shm_key_word *word);

/* The operations of lane and interface that concern keys. */
weft_status_t weft__shm_key_open(struct lane *l, const struct remote_region *region,
                                 const void *packed, size_t len, struct lane_key **key_p);
void weft__shm_key_close(struct lane_key *key);
const char *weft__shm_reach(struct lane *l);
weft_status_t weft__shm_md_open(struct shm_iface *iface);
void weft__shm_md_close(struct shm_iface *iface);
void weft__shm_md_attributes(const struct shm_iface *iface, struct iface_attr *attr);
weft_status_t weft__shm_mem_register(struct iface *i, const struct region *region,
                                     struct md_mem **mem_p);
weft_status_t weft__shm_mem_revoke(struct md_mem *m, struct completion *completion);
bool weft__shm_exposes(struct lane *l, const struct md_mem *m, unsigned right);
size_t weft__shm_key_pack(const struct md_mem *mem, void *to);
/* the importer lets go of all keys */
void weft__shm_keys_end(struct shm_lane *lane, weft_status_t status);
/* the peer has let go of all grants */
void weft__shm_parted(struct shm_lane *lane);
/* The owner ends its grants before the socket is closed, or keeps the socket for them. Within a
 * turn. */
void weft__shm_grants_part(struct shm_lane *lane);
void weft__shm_words_flush(struct shm_lane *lane); /* the socket has room */
void weft__shm_watch_for_room(struct shm_lane *lane, bool wanted);
weft_status_t weft__shm_words_received(struct shm_lane *lane, const void *data, size_t len,
                                       const int *fds, int n_fds);

#endif

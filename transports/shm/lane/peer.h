/* The process of a peer: what its workers have in common, and the mapped pools of its workers. */
#ifndef WEFT_TRANSPORTS_SHM_LANE_PEER_H
#define WEFT_TRANSPORTS_SHM_LANE_PEER_H

#include <reactor/reactor.h>
#include <sys/types.h>
#include <transports/shm/memory/mapped.h>
#include <transports/shm/queues/mailbox.h>

struct shm_iface;
struct shm_lane;

enum { SHM_PROCESS_BUCKETS = 32 };

struct shm_process {
    /* of its workers' pools; lanes lead to the process by its address */
    struct mail_shape shape;
    struct mapped *doorbells, *tx_slots; /* NULL: no worker has passed them yet */
    struct mapped *pool;                 /* of one worker, for `pool_users` lanes; NULL: none */
    struct shm_iface *iface;
    struct shm_process *next; /* of its bucket */
    struct aux_watch death;   /* its pidfd; -1: this process, or a process that cannot be watched */
    pid_t pid;
    uint32_t n_blocks; /* of a pool */
    unsigned n_lanes, pool_users;
    uint64_t probe_at, probe; /* from its handshake: `probe` stands at that address */
    /* 1: process_vm_readv reaches its memory; -1: it does not; 0: not tried yet */
    int vm;
};

/* mapped */
weft_status_t weft__shm_pool_get(struct shm_process *process, int fd, const void **pool_p);
/* NULL: none */
void weft__shm_pool_put(struct shm_process *process, const void *pool);
/* The mailbox holds no message of the peer, and will receive none. */
void weft__shm_pool_leave(struct shm_lane *lane);
void weft__shm_signal(struct shm_lane *lane, uint32_t sleep); /* wakes the peer from this sleep */

#endif

/* Bulk copies of rendezvous: the reader copies alone, or reader and owner split the copy. */
#ifndef WEFT_TRANSPORTS_SHM_RMA_BULK_H
#define WEFT_TRANSPORTS_SHM_RMA_BULK_H

#include <transports/shm/lane/shm.h>
#include <transports/shm/queues/copy_ctl.h>

/* A large read of the peer's memory. With left == 0: a flush behind such reads. */
struct shm_bulk {
    struct shm_bulk *next;
    uint64_t remote;
    size_t left;
    struct completion *completion;
    /* words NULL: this side copies alone; otherwise `left` stays the whole length */
    struct split split;
    struct shm_lane *lane; /* this and `status`: of a copy that waits for the peer */
    weft_status_t status;
    bool stopped;
    unsigned n_iov;
    weft_iov_t iov[SHM_IOV];
};

/* A split copy, seen from the owner of the memory. */
struct shm_put_req {
    struct shm_put_req *next;
    const weft_iov_t *iov;
    size_t n_iov;
    uint64_t remote;
    struct split split;
    struct completion *completion;
};

/* bulk.c: one copy by the reader */
bool weft__shm_vm_pays(const char *way);
weft_status_t weft__shm_bulk_get(struct lane *lane, uint64_t remote, const weft_iov_t *iov,
                                 size_t n_iov, struct completion *completion);
weft_status_t weft__shm_flush(struct lane *lane, struct completion *completion);
weft_status_t weft__shm_bulk_add(struct shm_lane *lane, const struct shm_bulk *what);
weft_status_t weft__shm_put_add(struct shm_lane *lane, const struct shm_bulk *what);
void weft__shm_put_stop(struct iface *iface, const struct completion *completion);
void weft__shm_put_done(struct iface *iface);
struct shm_ext *weft__shm_bulk_ext(struct shm_lane *lane);
void weft__shm_bulk_run(struct job *job);
void weft__shm_bulk_end(struct shm_lane *lane, weft_status_t status); /* within a turn */

/* The peer may not rely any more on memory that it was offered. Before the program has that
 * memory back. */
void weft__shm_offers_end(struct shm_lane *lane);

/* split_copy.c: a copy that reader and owner share */
weft_status_t weft__shm_bulk_split(struct lane *lane, uint64_t remote, const weft_iov_t *to,
                                   struct completion *completion, uint64_t *token_p);
weft_status_t weft__shm_bulk_put(struct lane *lane, const weft_iov_t *to,
                                 struct completion *completion, uint64_t *token_p);
weft_status_t weft__shm_bulk_put_req(struct lane *lane, const struct lane_put_req *from,
                                     struct completion *completion);
/* The next piece: IN_PROGRESS, OK when that was all, NO_RESOURCE when the rest is the helper's,
 * or an error. */
weft_status_t weft__shm_split_piece(struct shm_lane *lane, struct shm_bulk *b);
/* or nothing: it may be none */
void weft__shm_split_end(struct shm_lane *lane, const struct shm_bulk *b);
void weft__shm_put_req_stop(struct lane *lane, const struct completion *completion);
void weft__shm_put_req_run(struct job *job);
void weft__shm_put_reqs_end(struct shm_lane *lane);

#endif

/*
 * Memory that peers may access: the worker's table of regions, their life cycle (memory.fsm), and
 * the operations that use a region.
 */
#ifndef WEFT_ENDPOINTS_MEMORY_MEMORY_H
#define WEFT_ENDPOINTS_MEMORY_MEMORY_H

#include <transports/cuda/memory.h>
#include <transports/transport.h>
#include <weft/memory.h>

#include "memory_machine.h"
#include "region_cache.h"
#include <base/huge_pages.h>
#include <base/idmap.h>
#include <base/list.h>

enum { MEMORY_IFACES = 8 };

struct weft_mem {
    struct memory_core core;
    struct region region; /* as transports see it */
    struct weft_worker *worker;
    struct stub *stub;      /* in associated mode, while it has no resource; NULL: not */
    struct list of_worker;  /* in worker->memory.all */
    struct list waiting;    /* requests that wait for SETTLED */
    uint32_t n_unreported;  /* requests of `waiting` whose callback is still due */
    struct list placements; /* placements into it that are under way */
    struct list served;     /* gets of peers that wait for the lane */
    struct md_mem *md[MEMORY_IFACES];
    struct completion withdrawal; /* counts registrations that transports have not revoked yet */
    uint32_t serving;             /* operations of peers that use it */
    uint32_t users;               /* local operations; for a cached region, its holders */
    struct pages pages;           /* allocated or imported */
    bool on_device;               /* the host cannot access it: peers reach it by messages */
    struct cuda_place place;      /* of copies of device memory; memory of no context: found then */
    struct cached cached;         /* base 0, end 0: not in the cache */
    struct cached exposed;        /* in memory.exposed, if it is exposed; */
    uint64_t inode;               /* then: of the memfd; 0: it is in none */
    struct weft_mem *of;          /* associated with another region, whose key it has */
    bool associated;              /* released by the end of its association only */
    bool outlives, rested;        /* its handle stays when it has ended; it has */
    bool invalid;                 /* the program unmaps it: no new keys */
    void (*on_invalid)(weft_mem_t *mem, void *arg);
    void *arg;
    struct job notify_invalid;
    struct list held; /* in held_invalid */
};

/* What rma/ registers when the worker opens. */
struct memory_users {
    /* The region is withdrawn: stop placements into it, and refuse answers that still wait. */
    void (*revoked)(weft_mem_t *mem);
    /* The endpoint's first key is unpacked: sets ep->keys. False: no memory. */
    bool (*first_key)(struct weft_ep *ep);
};

/* Of a worker. */
struct memory {
    const struct memory_users *users;
    struct idmap regions;
    struct list all;
    struct region_cache cache;
    struct region_cache exposed; /* regions that peers may copy from in place (expose.h) */
    uint32_t max_served;

    /* Large local copies are split over turns: RMA_TURN bytes a turn, the rest by a job. */
    size_t moved;       /* bytes since the last run of `copy_job` */
    struct list moving; /* requests that continue then, in order */
    struct job copy_job;
    struct list held_invalid; /* regions whose on_invalid waits until callbacks are deliverable */
    struct list outstanding;  /* rma_outstanding.c */
};

void weft__memory_init(struct weft_worker *worker);
/* Calls at most `most` held on_invalid callbacks. Returns the number. */
unsigned weft__memory_notify(struct weft_worker *worker, unsigned most);
/* The worker has no lanes left: ends all regions. A peer that hangs keeps access until
 * transports close. */
void weft__memory_close(struct weft_worker *worker);
/* Called just before the worker is freed. */
void weft__memory_end(struct weft_worker *worker);

/*
 * Finds the region of a peer's key, and checks the range and the rights. Replaces the address that
 * the peer named by that of this process. REVOKED: no such region, epoch or token. INVALID_PARAM:
 * outside the region. The check of the token takes constant time.
 */
struct wire_key;
weft_status_t weft__mem_admit(struct weft_worker *worker, const struct wire_key *key,
                              unsigned rights, uint64_t *at_p, uint64_t len, weft_mem_t **mem_p);
/* True if `mem` is a region of this worker. Does not read *mem. */
bool weft__mem_is_there(const struct weft_worker *worker, const weft_mem_t *mem);
/* The exposed region that covers these bytes, or NULL. */
weft_mem_t *weft__mem_exposed(struct weft_worker *worker, const void *at, size_t len);

/* A region in associated mode works: on memory of this process, or (base NULL) on a part of a
 * shared segment. */
struct stub;
struct ibv_mr;
weft_status_t weft__mem_stub_begin(struct stub *stub, void *base, size_t len, int fd,
                                   uint64_t offset);
/* The same, on memory that the program registered with the worker's RDMA device; NULL: it did
 * not. */
weft_status_t weft__mem_stub_begin_given(struct stub *stub, void *base, size_t len,
                                         struct ibv_mr *mr);
/* The same, as another name of region `of`; and the end of that. */
void weft__mem_stub_use(struct stub *stub, weft_mem_t *of);
void weft__mem_stub_leave(struct stub *stub);
/* It has ended, and is without a resource again. Calls return `status`. */
void weft__mem_stub_rest(struct stub *stub, weft_status_t status);

/* Reads from and writes to the region, which covers [at, at + len). IO: the device failed.
 * UNSUPPORTED: memory that no context here has access to. */
weft_status_t weft__mem_read(const weft_mem_t *mem, void *to, uint64_t at, size_t len);
weft_status_t weft__mem_write(const weft_mem_t *mem, uint64_t at, const void *from, size_t len);

/* A peer's operation uses the region beyond this call. */
static inline void weft__mem_serve(weft_mem_t *mem) {
    mem->serving++;
}
void weft__mem_served(weft_mem_t *mem);

/* ---- between memory.c and memory_calls.c */

/* A region on memory of the program, or (pages not NULL) on pages that then are the region's. */
weft_status_t weft__mem_new(struct weft_worker *worker, void *base, size_t len,
                            const weft_mem_params_t *params, const struct pages *pages,
                            weft_mem_t **mem_p);
/* A region in associated mode, without a resource. */
weft_status_t weft__mem_stub_new(weft_worker_t *worker, size_t params_size,
                                 const weft_mem_params_t *given, weft_mem_t **mem_p);
/* Revokes the keys that peers hold. WEFT_OK, or IN_PROGRESS and `op` completes when that is
 * done. */
weft_status_t weft__mem_withdraw(weft_mem_t *mem, bool for_good, const weft_op_t *op);
/* Steps the machine if no transport and no operation of a peer uses the region any more. Returns
 * true if that is so; the region may be gone then. */
bool weft__mem_settle(weft_mem_t *mem);

#endif

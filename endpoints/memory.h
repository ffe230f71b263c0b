/*
 * Memory that peers may touch: the worker's table of regions, their life (memory.fsm), and who is using one.
 */
#ifndef WEFT_ENDPOINTS_MEMORY_H
#define WEFT_ENDPOINTS_MEMORY_H

#include <transports/transport.h>
#include <weft/memory.h>

#include "idmap.h"
#include "list.h"
#include "machines.h"
#include "pages.h"
#include "region_cache.h"

enum { MEMORY_IFACES = 8 };

struct weft_mem {
    struct memory_core core;
    struct region region; /* what transports see */
    struct weft_worker *worker;
    struct list of_worker; /* in worker->memory.all */
    struct list waiting;   /* requests that wait for SETTLED */
    uint32_t untold;       /* of those that waited, and of those who still do */
    struct list landings;  /* what transports are writing into it now */
    struct list served;    /* requests of peers that read it and wait for the lane */
    struct md_mem *md[MEMORY_IFACES];
    struct completion withdrawal; /* mds that transports have not taken back yet */
    uint32_t serving;             /* operations of peers that touch it now */
    uint32_t users;               /* operations of this side; holders, of a cached one */
    struct pages pages;           /* allocated or imported */
    struct cached cached;         /* base 0, end 0: not of the cache */
    struct cached lent;           /* in memory.lent, if it is lent */
    bool invalid;                 /* the program unmaps it: no key is made any more */
    void (*on_invalid)(weft_mem_t *mem, void *arg);
    void *arg;
    struct job tell_invalid;
    struct list held; /* in held_invalid */
};

/* Of a worker. */
struct memory {
    struct idmap regions;
    struct list all;
    struct region_cache cache;
    struct region_cache lent; /* what messages may be read out of where it lies (loan.h) */
    uint32_t max_served;

    /* Large copies by this side are cut: so many bytes a turn, the rest by a job in the next ones. */
    size_t moved;       /* since the last turn of `mover` */
    struct list moving; /* requests that go on then, in their order */
    struct job mover;
    struct list held_invalid;   /* regions whose program is to be told, when it is there */
    struct list spare_landings; /* rma_target.c */
    struct list owed;           /* rma_owed.c */
};

void weft__memory_init(struct weft_worker *worker);
/* Tells the program which of its memory was found to go while it was not there: of so much at most. Returns of how much. */
unsigned weft__memory_tell(struct weft_worker *worker, unsigned most);
/* The worker has no lane any more: all regions end. What a peer that hangs may still touch ends with the transports. */
void weft__memory_close(struct weft_worker *worker);
/* Just before its memory goes. */
void weft__memory_end(struct weft_worker *worker);

/*
 * The region that a peer's key means and the range in it, for these rights: WEFT_OK, REVOKED (no such region, epoch or token), or
 * INVALID_PARAM. The time it takes tells nothing about the token.
 */
struct wire_key;
weft_status_t weft__mem_admit(struct weft_worker *worker, const struct wire_key *key, unsigned rights, uint64_t at,
                              uint64_t len, weft_mem_t **mem_p);
/* Is that a region of this worker's, not released? Nothing of it is looked at. */
bool weft__mem_is_there(const struct weft_worker *worker, const weft_mem_t *mem);
/* The lent region that has all of these bytes; or NULL. */
weft_mem_t *weft__mem_lent(struct weft_worker *worker, const void *at, size_t len);

/* A peer's operation touches it for longer than a call. */
static inline void weft__mem_serve(weft_mem_t *mem) {
    mem->serving++;
}
void weft__mem_served(weft_mem_t *mem);

#endif

/* Memory that peers may read and write: regions, their keys, and what kind of memory a pointer points to. */
#ifndef WEFT_MEMORY_H
#define WEFT_MEMORY_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_mem weft_mem_t;   /* a region of this worker */
typedef struct weft_rkey weft_rkey_t; /* a peer's region, seen from an endpoint */

enum {
    WEFT_MEM_READ = 1,   /* peers may get */
    WEFT_MEM_WRITE = 2,  /* peers may put */
    WEFT_MEM_ATOMIC = 4, /* peers may post and fetch atomics */
    WEFT_MEM_ALL = 7,
    WEFT_MEM_ATOMIC_DEVICE = 8 /* with ATOMIC: a network device performs them, and nobody else */
};

/*
 * Who performs a region's atomics is its owner's choice. The processor: they have all sizes and operations, come by every
 * transport, and are atomic with the owner's own atomic instructions. Or, with WEFT_MEM_ATOMIC_DEVICE, the owner's network
 * device, without the owner's processor: that is atomic among what comes through this device alone, so there is no other
 * way then. Such a region has additions and compare-and-swaps of 8 bytes, for peers whose endpoint goes by that device's
 * transport (rdma_rc); any other atomic is refused as UNSUPPORTED. The owner reads the words when it likes, and changes them
 * as peers do, through an endpoint to itself; it may write plainly only while nobody operates on them. The same holds for who
 * maps the region. One memory has regions of one kind only.
 */

/* GPU memory is not there yet: all is HOST. */
typedef enum weft_mem_type { WEFT_MEMORY_HOST, WEFT_MEMORY_CUDA, WEFT_MEMORY_CUDA_MANAGED } weft_mem_type_t;

typedef enum weft_mem_pages {
    WEFT_PAGES_AUTO, /* transparent huge pages from 2 MiB on, where the kernel gives them */
    WEFT_PAGES_NORMAL,
    WEFT_PAGES_TRANSPARENT, /* transparent huge pages, whatever the size */
    WEFT_PAGES_HUGE         /* of the reserved pool; normal ones when it is empty */
} weft_mem_pages_t;

typedef struct weft_mem_params {
    unsigned rights;        /* WEFT_MEM_…; 0: for this side's own operations only */
    weft_mem_pages_t pages; /* of allocated memory */
    /* Its memory goes away (weft_mem_invalidate, in a later turn): its keys are worth nothing, and it is still to be released. With
     * polled callbacks (weft_worker_start_thread) it comes within the program's own progress. */
    void (*on_invalid)(weft_mem_t *mem, void *arg);
    void *arg;
    /* With WEFT_MEM_READ: a large message sent out of it may be read by its receiver where it lies, without a copy between. The receiver's
     * library is given the key for it, for reading, so that whoever is sent such a message can read all of the region until it
     * is revoked or released. With WEFT_MEM_WRITE also: a large message that is received into it may be written there by its sender, a
     * part of it where it comes out of lent memory, so that both sides copy, and else all of it; the sender's library is given the key
     * to write to all of the region. A receive that is cancelled, or whose time is over, ends when the sender has written the piece that it
     * is in the middle of, if it is in one. Of allocated and imported memory, between processes of one host; else it changes nothing. */
    int lend;
} weft_mem_params_t;

/*
 * A region of `len` bytes of new, zeroed memory that peers on this host can map (a memfd). Freed by
 * weft_mem_release. A key for reading keeps a peer's library from writing; a process of the same user that means harm it
 * cannot keep from anything. `params` may be NULL. Errors: INVALID_PARAM, NO_MEMORY, NO_FDS, FORKED; UNSUPPORTED: no device of this
 * worker performs atomics (weft_memory_info_t), and the rights ask for one.
 */
#define weft_mem_alloc(...) weft_mem_alloc_sized(sizeof(weft_mem_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_alloc_sized(size_t params_size, weft_worker_t *worker, size_t len,
                                            const weft_mem_params_t *params, weft_mem_t **mem_p);

/* The same of memory that the program has; it must stay mapped until the release is done. */
#define weft_mem_register(...) weft_mem_register_sized(sizeof(weft_mem_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_register_sized(size_t params_size, weft_worker_t *worker, void *base, size_t len,
                                               const weft_mem_params_t *params, weft_mem_t **mem_p);

/* A memfd's bytes [offset, offset + len) as a region: what weft_mem_export gave to another process. The fd is
 * duplicated. `offset` is a multiple of the page size. */
#define weft_mem_import(...) weft_mem_import_sized(sizeof(weft_mem_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_import_sized(size_t params_size, weft_worker_t *worker, int fd, uint64_t offset,
                                             size_t len, const weft_mem_params_t *params, weft_mem_t **mem_p);

/* A descriptor (the caller's own, CLOEXEC) of a region made by alloc or import, to be sent to another process, and
 * where in it the region begins. UNSUPPORTED for registered memory. */
WEFT_API weft_status_t weft_mem_export(const weft_mem_t *mem, int *fd_p, uint64_t *offset_p);

/*
 * Ends it. Done when no peer can touch the memory any more: those that have it mapped have let go, or died, and what
 * they asked for by message is over; then allocated memory is unmapped, and the handle is gone. WEFT_OK at once where
 * no peer had it open. A worker that closes releases what is left. A revocation that is under way ends with it. Errors: BUSY
 * while operations of this side use it, or when a release was asked for before (the handle is gone when that is told);
 * INVALID_PARAM of what weft_mem_get gave. Of another thread's pieces that name it, and that the owner has not come to, each
 * ends as INVALID_PARAM.
 */
WEFT_API weft_status_t weft_mem_release(weft_mem_t *mem, const weft_op_t *op);

/* All keys given out so far are worth nothing from now on, and when it is done nobody is inside any more; the
 * region stays, under a new epoch: pack it anew then (BUSY before). Asked for again meanwhile, it is the same one, and both are
 * told when it is done; with a release that is under way, when the region is gone. A peer that has it mapped hears of that in its
 * worker's progress, and lets go there: until then its operations are performed as before, and a revocation or a release waits. */
WEFT_API weft_status_t weft_mem_revoke(weft_mem_t *mem, const weft_op_t *op);

/* Of [offset, offset + len) of the region. What the kernel cannot do is passed over in silence. Errors: INVALID_PARAM; IO: the
 * content of a memfd stays although it is not needed (one that was imported to be read). */
typedef enum weft_mem_advice {
    WEFT_ADVISE_WILL_NEED, /* fault it in */
    WEFT_ADVISE_DONT_NEED, /* its content may go; reads zero afterwards if it was allocated here. Huge pages of the pool stay */
    WEFT_ADVISE_HUGE,
    WEFT_ADVISE_SEQUENTIAL,
    WEFT_ADVISE_RANDOM
} weft_mem_advice_t;
WEFT_API weft_status_t weft_mem_advise(weft_mem_t *mem, size_t offset, size_t len, weft_mem_advice_t advice);

typedef struct weft_mem_info {
    void *base;
    size_t len;
    unsigned rights;
    weft_mem_type_t type;
    int numa_node;    /* -1: not known */
    size_t page;      /* bytes of the pages that hold it */
    uint32_t epoch;   /* grows with each revocation */
    uint32_t n_peers; /* that have it open natively now, once for each key that they have unpacked */
} weft_mem_info_t;
WEFT_API weft_status_t weft_mem_describe(const weft_mem_t *mem, weft_mem_info_t *info_p);

/* What a pointer points to: type, the mapping's base and length, the node. NOT_FOUND where nothing is mapped. */
WEFT_API weft_status_t weft_mem_detect(const void *at, weft_mem_info_t *info_p);

/* ---- the registration cache: no malloc hooks, so a program that unmaps memory says so ------------------------------ */

/*
 * A registration of [base, base + len), found or made. Each takes one weft_mem_put back; unused ones stay, the oldest
 * leave beyond "memory.cache_regions" and "memory.cache_bytes". Without WEFT_MEM_ATOMIC_DEVICE (INVALID_PARAM): others
 * may share what is found.
 */
WEFT_API weft_status_t weft_mem_get(weft_worker_t *worker, void *base, size_t len, unsigned rights,
                                    weft_mem_t **mem_p);
WEFT_API void weft_mem_put(weft_mem_t *mem);

/* The range is about to be unmapped, or was: cached registrations of it are found no more and end when the last user
 * puts them back; their keys are revoked. Other threads: through weft_worker_post. */
WEFT_API weft_status_t weft_mem_invalidate(weft_worker_t *worker, const void *base, size_t len,
                                           const weft_op_t *op);

/* ---- keys ------------------------------------------------------------------------------------------------------------ */

/* The key as bytes for peers, for every transport they may come by. `*len_p`: room in, length out; TRUNCATED when
 * it does not fit (WEFT_RKEY_MAX always does). Whoever holds these bytes and reaches the worker has the region's
 * rights. */
#define WEFT_RKEY_MAX 256
WEFT_API weft_status_t weft_mem_pack(const weft_mem_t *mem, void *buf, size_t *len_p);

/*
 * Reads a key for use through `ep`. ADDRESS: not a key, not of this version, or of another worker than the endpoint's
 * peer (once that is known; an operation finds out otherwise). It ends with weft_rkey_release, also after its
 * endpoint.
 */
WEFT_API weft_status_t weft_rkey_unpack(weft_ep_t *ep, const void *key, size_t len, weft_rkey_t **rkey_p);
WEFT_API void weft_rkey_release(weft_rkey_t *rkey); /* operations under way go on, other threads' among them */

/* Where `remote` is in this process, when the region is mapped here: plain loads and stores reach it until the owner
 * revokes it, which this worker's progress notices. UNSUPPORTED: not mapped, or its endpoint is not ready (on_ready); BUSY: it
 * is being opened, ask again after progress. */
WEFT_API weft_status_t weft_rkey_pointer(weft_rkey_t *rkey, uint64_t remote, void **at_p);

typedef struct weft_rkey_info {
    uint64_t base, len; /* in the owner */
    unsigned rights;
    weft_status_t status; /* OK; or REVOKED and its like: what operations end with */
    /* How: "mapped", "process_vm", "rdma", "message", "refused". Of atomics also "rdma, message" (what the device has not,
     * its owner does), and "awaited" (of WEFT_MEM_ATOMIC_DEVICE: until the device's own key is here). */
    const char *put, *get, *atomic;
} weft_rkey_info_t;
WEFT_API weft_status_t weft_rkey_describe(const weft_rkey_t *rkey, weft_rkey_info_t *info_p);

/* ---- what there is ----------------------------------------------------------------------------------------------- */

/* A memory domain: the host's own memory at index 0, then one for each transport that can register. Estimates, as
 * calibrated where there is a measurement (weft-info prints them). */
typedef struct weft_memory_info {
    const char *name, *device;
    double bandwidth, latency_ns, overhead_ns; /* of one-sided access; bytes per second */
    int numa_node;                             /* -1: any */
    double register_ns;                        /* cost of a registration; 0: none, or not known */
    unsigned can_alloc : 1, can_register : 1, can_map : 1, can_export : 1;
    unsigned device_atomics : 1; /* WEFT_MEM_ATOMIC_DEVICE: its device performs them */
} weft_memory_info_t;
WEFT_API weft_status_t weft_worker_memory(weft_worker_t *worker, size_t index, weft_memory_info_t *info_p);

#ifdef __cplusplus
}
#endif
#endif

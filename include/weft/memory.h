/*
 * Memory that peers may read and write: regions, their keys, the registration cache, and memory
 * domains.
 */
#ifndef WEFT_MEMORY_H
#define WEFT_MEMORY_H

#include <weft/endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_mem weft_mem_t;   /* a region of this worker */
typedef struct weft_rkey weft_rkey_t; /* a key to a peer's region, for one endpoint */

/* Rights of peers to a region. */
enum {
    WEFT_MEM_READ = 1,   /* peers may get */
    WEFT_MEM_WRITE = 2,  /* peers may put */
    WEFT_MEM_ATOMIC = 4, /* peers may perform atomics */
    WEFT_MEM_ALL = 7,
    WEFT_MEM_ATOMIC_DEVICE = 8 /* with ATOMIC: only a network device performs them */
};

/*
 * The owner of a region chooses what performs its atomics.
 *
 * - The processor (default). Atomics have all sizes and operations, arrive over every transport,
 *   and are atomic with the owner's own atomic instructions.
 * - The owner's network device (WEFT_MEM_ATOMIC_DEVICE), without the owner's processor. Atomics are
 *   then atomic only with other operations through this device, so no other way is allowed.
 *   Additions and compare-and-swaps of 8 bytes are available to peers whose endpoint uses that
 *   device's transport (rdma_rc). Any other atomic is UNSUPPORTED. The owner, and a process that
 *   maps the region, may read the words at any time. They change them through an endpoint to the
 *   owner, or with plain stores while no peer operates on them.
 *
 * Regions over the same memory must be of one kind.
 */

/*
 * CUDA: device memory, which the host cannot access. Messages, streams, puts, gets and collectives
 * take pointers to it as they take others (docs/cuda.md). CUDA_MANAGED and CUDA_HOST: the host can
 * access it, and it is used as HOST.
 */
typedef enum weft_mem_type {
    WEFT_MEMORY_HOST,
    WEFT_MEMORY_CUDA,
    WEFT_MEMORY_CUDA_MANAGED,
    WEFT_MEMORY_CUDA_HOST /* of the host, pinned by the driver or registered with it */
} weft_mem_type_t;

typedef enum weft_mem_pages {
    WEFT_PAGES_AUTO, /* transparent huge pages from 2 MiB on, where the kernel provides them */
    WEFT_PAGES_NORMAL,
    WEFT_PAGES_TRANSPARENT, /* transparent huge pages for every size */
    WEFT_PAGES_HUGE         /* from the reserved pool; normal pages when it is empty */
} weft_mem_pages_t;

typedef struct weft_mem_params {
    unsigned rights;        /* WEFT_MEM_…; 0: only for this side's own operations */
    weft_mem_pages_t pages; /* of allocated memory */
    /*
     * Optional: the region's memory was invalidated (weft_mem_invalidate), called in a later turn.
     * Its keys are no longer valid, and the region must still be released. With polled callbacks
     * (weft_worker_start_thread) it runs within the program's own progress.
     */
    void (*on_invalid)(weft_mem_t *mem, void *arg);
    void *arg;
    /*
     * Exposes the region for large messages between processes of one host. Allocated and imported
     * memory only; otherwise it has no effect. INVALID_PARAM without WEFT_MEM_READ.
     *
     * With WEFT_MEM_READ, a receiver may read a large message directly from the region, without an
     * intermediate copy. The receiver's library gets a key to read the whole region. Every receiver
     * of such a message can therefore read all of the region until it is revoked or released.
     *
     * With WEFT_MEM_WRITE as well, a sender may write a large message directly into the region. If
     * the message comes from an exposed region too, both sides copy a part; otherwise the sender
     * writes all of it. The sender's library gets a key to write the whole region. A receive that
     * is cancelled, or whose deadline passes, ends after the piece that the sender is writing.
     *
     * In a collective of large blocks on one host the other members map the memfd of the region,
     * for reading. They keep that mapping until this worker has released a region and they read
     * from its memory again, or until the team is closed.
     *
     * When a send out of such memory completes, with any status, the program may write to the
     * memory. A receiver that was stopped may still read it later, if the send ended with its
     * endpoint (PEER_FAILED, for example by heartbeats). That receiver discards what it read, and
     * its receive fails.
     *
     * Suppose that an endpoint is lost or closed while its sender is stopped in the middle of a
     * piece. A receive into such memory then waits for that piece until close.timeout. After that
     * the sender, once it continues, may still write the rest of that piece (128 KiB at most).
     * weft_mem_release waits until the sender has let go.
     */
    int expose;
    /*
     * Not 0: associated mode (weft/resource.h), for weft_mem_register with base NULL and len 0.
     * Calls return NOT_ASSOCIATED until memory is associated with the region.
     */
    int associated;
    /*
     * Not 0: peers name the bytes of the region by their offset from its begin
     * (IBV_ACCESS_ZERO_BASED of verbs). Its keys do not contain its address, and so say nothing
     * about the layout of this process. weft_rkey_describe returns base 0. A peer on this host maps
     * the region if it is allocated. Otherwise operations are messages, also over RDMA and where
     * process_vm would serve. INVALID_PARAM with `expose` or WEFT_MEM_ATOMIC_DEVICE, and for a
     * region that does not begin at a multiple of 8.
     */
    int zero_based;
} weft_mem_params_t;

/*
 * Allocates a region of `len` bytes of zeroed memory (a memfd), which peers on this host can map.
 * weft_mem_release frees it. `params` may be NULL.
 *
 * A read-only key keeps a peer's library from writing. It does not protect against a malicious
 * process of the same user.
 *
 * Errors: INVALID_PARAM, for example if `len` is 0; NO_MEMORY; NO_FDS; CLOSED if the worker is
 * closing; UNSUPPORTED if the rights ask for device atomics and no device of this worker has them
 * (weft_memory_info_t).
 */
#define weft_mem_alloc(...) weft_mem_alloc_sized(sizeof(weft_mem_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_alloc_sized(size_t params_size, weft_worker_t *worker, size_t len,
                                            const weft_mem_params_t *params, weft_mem_t **mem_p);

/*
 * Registers memory of the program as a region. Several workers may register the same memory: a key
 * serves the peers of the worker whose region it is. It must stay mapped until the release has
 * completed. Peers on this host put and get in a region of device memory by copies of the CUDA
 * driver. Other operations of peers are messages (docs/cuda.md). Errors as of weft_mem_alloc;
 * UNSUPPORTED also for device memory of another CUDA context than the worker was given.
 */
#define weft_mem_register(...) weft_mem_register_sized(sizeof(weft_mem_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_register_sized(size_t params_size, weft_worker_t *worker,
                                               void *base, size_t len,
                                               const weft_mem_params_t *params, weft_mem_t **mem_p);

/*
 * Imports bytes [offset, offset + len) of a memfd as a region: the descriptor that weft_mem_export
 * returned in another process, or for another worker of this one. The descriptor is duplicated.
 * `offset` must be a multiple of the page size. Errors as of weft_mem_alloc.
 */
#define weft_mem_import(...) weft_mem_import_sized(sizeof(weft_mem_params_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_import_sized(size_t params_size, weft_worker_t *worker, int fd,
                                             uint64_t offset, size_t len,
                                             const weft_mem_params_t *params, weft_mem_t **mem_p);

/*
 * Returns a descriptor of an allocated or imported region, to be sent to another process, and the
 * region's offset in it. The descriptor belongs to the caller and is CLOEXEC. Errors: UNSUPPORTED
 * for registered memory; NO_FDS; BUSY as of weft_mem_describe.
 */
WEFT_API weft_status_t weft_mem_export(const weft_mem_t *mem, int *fd_p, uint64_t *offset_p);

/*
 * Releases a region. Completion with WEFT_OK: no peer can access the memory any more. Peers that
 * had it mapped have unmapped it or died, and their operations by message are complete. Members of
 * a team may still have an exposed region mapped, for reading (`expose`). Allocated memory is then
 * unmapped, and the handle is gone. Returns WEFT_OK at once if no peer had the region open, and no
 * operation of this side uses it over rdma_rc.
 *
 * A peer that is not driven, or is stopped, keeps its mapping as long as that lasts. A program that
 * must not wait for it sets op->deadline_ms. After TIMED_OUT (or CANCELLED) the release goes on
 * without a report, and peers may still access the memory: keep registered memory mapped. Or the
 * program closes the worker, which waits for no such peer (CLOSED).
 *
 * A revocation in progress ends with the release. A closing worker releases the remaining regions.
 * A submission of another thread that names the region, and that the owner has not processed yet,
 * ends as INVALID_PARAM.
 *
 * Errors: BUSY while operations of this side use the region, while it is associated, and while a
 * release is in progress (the handle is gone when that completes). INVALID_PARAM for a registration
 * of weft_mem_get.
 */
WEFT_API weft_status_t weft_mem_release(weft_mem_t *mem, const weft_op_t *op);

/*
 * Revokes all keys of the region. They are invalid from now on. Completion: no peer can access the
 * memory any more, but members of a team may still have an exposed region mapped, for reading
 * (`expose`). The region stays, with a new epoch; pack a new key then (weft_mem_pack returns BUSY
 * before).
 *
 * A second revocation meanwhile joins the first, and both complete together. During a release it
 * completes when the region is gone. A peer that has the region mapped unmaps it in its worker's
 * progress. Until then its operations are still performed, and the revocation or release waits.
 *
 * Errors: BUSY once a release has completed and its callback is due.
 */
WEFT_API weft_status_t weft_mem_revoke(weft_mem_t *mem, const weft_op_t *op);

typedef enum weft_mem_advice {
    WEFT_ADVISE_WILL_NEED, /* fault the pages in */
    /* discard the content; allocated memory reads as zero. Huge pages of the pool stay */
    WEFT_ADVISE_DONT_NEED,
    WEFT_ADVISE_HUGE,
    WEFT_ADVISE_SEQUENTIAL,
    WEFT_ADVISE_RANDOM
} weft_mem_advice_t;
/*
 * Advises the kernel about bytes [offset, offset + len) of the region. Advice that the kernel does
 * not support is ignored silently. Errors: INVALID_PARAM; IO if the content of a memfd could not be
 * discarded (one imported read-only); UNSUPPORTED for device memory; BUSY as of weft_mem_describe.
 */
WEFT_API weft_status_t weft_mem_advise(weft_mem_t *mem, size_t offset, size_t len,
                                       weft_mem_advice_t advice);

typedef struct weft_mem_info {
    void *base;
    size_t len;
    unsigned rights;
    weft_mem_type_t type;
    int numa_node;    /* -1: unknown */
    size_t page;      /* page size, bytes */
    uint32_t epoch;   /* incremented by each revocation */
    uint32_t n_peers; /* native opens by peers, one for each unpacked key */
} weft_mem_info_t;
/* Describes a region. Errors: BUSY once a release has completed and its callback is due. */
#define weft_mem_describe(...) weft_mem_describe_sized(sizeof(weft_mem_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_describe_sized(size_t info_size, const weft_mem_t *mem,
                                               weft_mem_info_t *info_p);

/*
 * Describes the memory at a pointer: type, base and length of its mapping (of its allocation, on a
 * device), node. `page` is 0 on a device. Any thread. Errors: NOT_FOUND if nothing is mapped there;
 * NO_FDS; IO.
 */
#define weft_mem_detect(...) weft_mem_detect_sized(sizeof(weft_mem_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_mem_detect_sized(size_t info_size, const void *at,
                                             weft_mem_info_t *info_p);

/* ---- the registration cache ---- */

/*
 * The library installs no malloc hooks. A program that unmaps registered memory calls
 * weft_mem_invalidate.
 */

/*
 * Returns a cached registration of [base, base + len), or makes one. Each needs one weft_mem_put;
 * NULL is ignored there.
 * Unused registrations stay in the cache; the oldest leave beyond the settings memory.cache_regions
 * and memory.cache_bytes. Errors: INVALID_PARAM, also for WEFT_MEM_ATOMIC_DEVICE, because
 * registrations are shared; those of weft_mem_register.
 */
WEFT_API weft_status_t weft_mem_get(weft_worker_t *worker, void *base, size_t len, unsigned rights,
                                    weft_mem_t **mem_p);
WEFT_API void weft_mem_put(weft_mem_t *mem);

/*
 * Declares that the range is about to be unmapped, or was unmapped. Cached registrations of it are
 * not found any more, end with their last weft_mem_put, and their keys are revoked. Other threads
 * use weft_worker_post. Completion: no peer can access that memory any more. Errors: none but those
 * of every function (weft/base.h).
 */
WEFT_API weft_status_t weft_mem_invalidate(weft_worker_t *worker, const void *base, size_t len,
                                           const weft_op_t *op);

/* ---- regions, for programs without an event loop ---- */

/* As above, and drive the worker until no peer can access the memory any more (weft_ep_flush_wait).
 * A peer that is not driven, or is stopped, keeps them waiting for as long as that lasts. */
WEFT_API weft_status_t weft_mem_release_wait(weft_mem_t *mem);
WEFT_API weft_status_t weft_mem_revoke_wait(weft_mem_t *mem);
WEFT_API weft_status_t weft_mem_invalidate_wait(weft_worker_t *worker, const void *base,
                                                size_t len);

/* ---- keys ---- */

/*
 * Writes the region's key as bytes for peers, for every transport that they may use. `*len_p` holds
 * the size of `buf` and receives the length. A process that holds these bytes and reaches the
 * worker has the region's rights.
 *
 * Errors: TRUNCATED if `buf` is too small (WEFT_RKEY_MAX bytes always suffice); INVALID_PARAM
 * without rights; BUSY during a revocation; REVOKED if the memory was invalidated.
 */
#define WEFT_RKEY_MAX 256
WEFT_API weft_status_t weft_mem_pack(const weft_mem_t *mem, void *buf, size_t *len_p);

/*
 * Reads a key for use with `ep`. Release it with weft_rkey_release, also after its endpoint is
 * closed; NULL is ignored there. Operations in progress, those of other threads included, are not
 * affected by the release.
 *
 * Errors: ADDRESS if the bytes are not a key, are of another version, or belong to another worker
 * than the endpoint's peer. If the peer is not known yet, a later operation returns UNREACHABLE
 * instead.
 */
WEFT_API weft_status_t weft_rkey_unpack(weft_ep_t *ep, const void *key, size_t len,
                                        weft_rkey_t **rkey_p);
WEFT_API void weft_rkey_release(weft_rkey_t *rkey);

/*
 * Returns the address of `remote` in this process, if the region is mapped here. Plain loads, and
 * with WEFT_MEM_WRITE plain stores, are allowed until the owner revokes the key, which this
 * worker's progress detects.
 *
 * Errors: INVALID_PARAM for an address outside the region; UNSUPPORTED if it is not mapped, or if
 * the endpoint is not ready (on_ready); BUSY while it is being opened: try again after progress;
 * the key's status (weft_rkey_info_t), such as REVOKED.
 */
WEFT_API weft_status_t weft_rkey_pointer(weft_rkey_t *rkey, uint64_t remote, void **at_p);

typedef struct weft_rkey_info {
    uint64_t base, len; /* in the owner's address space; base 0: zero_based */
    unsigned rights;
    weft_status_t status; /* OK; or the status that operations end with, such as REVOKED */
    /*
     * How operations are performed: "mapped", "process_vm", "rdma", "cuda ipc" (copies of the CUDA
     * driver, on this host), "message" or "refused". For atomics also "rdma, message" (the device
     * performs those that it supports) and "awaited" (WEFT_MEM_ATOMIC_DEVICE, before the device's
     * key is here).
     */
    const char *put, *get, *atomic;
} weft_rkey_info_t;
/* Describes a key, in any state. Errors: none but those of every function (weft/base.h). */
#define weft_rkey_describe(...) weft_rkey_describe_sized(sizeof(weft_rkey_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_rkey_describe_sized(size_t info_size, const weft_rkey_t *rkey,
                                                weft_rkey_info_t *info_p);

/* ---- memory domains ---- */

/*
 * A memory domain: the host's memory at index 0, then one for each transport that can register
 * memory. The values are estimates, calibrated where a measurement exists (weft-info prints them).
 */
typedef struct weft_memory_info {
    const char *name, *device;
    double bandwidth, latency_ns, overhead_ns; /* of one-sided access; bandwidth in bytes/s */
    int numa_node;                             /* -1: any */
    double register_ns;                        /* cost of a registration; 0: none, or unknown */
    unsigned can_alloc : 1, can_register : 1, can_map : 1, can_export : 1;
    unsigned device_atomics : 1; /* its device performs atomics (WEFT_MEM_ATOMIC_DEVICE) */
    double message_rate;         /* one-sided operations of a few bytes, operations/s */
} weft_memory_info_t;
/* Describes domain number `index`, from 0. Errors: NOT_FOUND past the last. */
#define weft_worker_memory(...) weft_worker_memory_sized(sizeof(weft_memory_info_t), __VA_ARGS__)
WEFT_API weft_status_t weft_worker_memory_sized(size_t info_size, weft_worker_t *worker,
                                                size_t index, weft_memory_info_t *info_p);

#ifdef __cplusplus
}
#endif
#endif

/*
 * A device, opened by one worker: a context and a protection domain that the worker's rdma
 * interfaces share, the device's asynchronous events, and an event channel of rdmacm. Without a
 * device that has an active port the transports log the reason and do not open.
 */
#ifndef WEFT_TRANSPORTS_RDMA_VERBS_DEVICE_H
#define WEFT_TRANSPORTS_RDMA_VERBS_DEVICE_H

#include "verbs.h"
#include "wire.h"

#include <base/compiler.h>
#include <netinet/in.h>
#include <reactor/reactor.h>
#include <sys/queue.h>
#include <transports/given.h>

union rd_sockaddr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* One that has the device: an interface. */
struct rd_user {
    /* About a queue, or a port; called in a turn, after the event was acked: a queue may be
     * destroyed in it. */
    void (*event)(struct rd_user *user, const struct ibv_async_event *event);
    /* The device is being removed, and the kernel may wait for us: everything made of it is
     * destroyed before this returns, but weft__rd_device_drop is still to be called, there or
     * later. */
    void (*gone)(struct rd_user *user);
    LIST_ENTRY(rd_user) of_device;
};

/* The receiver of events of an rdma_cm_id: its `context`. The event is a copy, acked before the
 * call: its id may be ended in it. A CONNECT_REQUEST comes to the listener's; event->id is the new
 * one then, and belongs to the object that adopts it (weft__rd_cm_adopt). */
struct rd_cm {
    void (*event)(struct rd_cm *cm, const struct rdma_cm_event *event);
    struct rdma_cm_id *id; /* NULL: none */
};

struct rd_device {
    struct reactor *reactor;
    const struct given *given; /* the program's objects, which stay; NULL: its own */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr attr;
    struct ibv_port_attr port_attr;
    uint8_t port, gid_index; /* where our GID stands: looked up again when the table changes */
    uint32_t gid_type;
    bool windows;          /* memory windows of type 2 */
    struct rd_place place; /* ours */
    union rd_sockaddr ip;  /* that the GID stands for, port 0; family 0: none */
    char name[80];         /* "rxe0:1" */
    bool gone;
    unsigned refs;
    LIST_HEAD(, rd_user) users;
    struct watch async, cm_watch;
    struct rdma_event_channel *channel; /* NULL: no rdmacm here */
    struct rd_cm guard;                 /* bound to the device: rdmacm reports its removal by it */
    struct ibv_context *kept;           /* librdmacm's own, of all its ids */
    LIST_ENTRY(rd_device) of_all;
};

/* A device in software: correct, and slower than tcp. */
static inline bool rd_attr_is_software(const struct ibv_device_attr *attr) {
    enum { SOFTWARE_VENDOR = 0xffffff };
    return attr->vendor_id == SOFTWARE_VENDOR;
}
static inline bool rd_is_software(const struct rd_device *device) {
    return rd_attr_is_software(&device->attr);
}

/* The device that the setting "rdma.device" names, or the first with an active port; opened when
 * the worker's first user asks. UNSUPPORTED (logged): there is none. */
weft_status_t weft__rd_device_hold(struct reactor *r, struct rd_user *user,
                                   struct rd_device **device_p);
/* Everything made of it is destroyed. NULL is nothing. */
void weft__rd_device_drop(struct rd_device *device, struct rd_user *user);

/* One asynchronous event, from its file, or from a test: to all users. A device that is gone
 * may be closed in it. */
void weft__rd_device_reports(struct rd_device *device, const struct ibv_async_event *event);

/* A new id of the device's channel. UNSUPPORTED where there is no rdmacm. */
weft_status_t weft__rd_cm_open(struct rd_device *device, struct rd_cm *cm,
                               enum rdma_port_space space);
void weft__rd_cm_adopt(struct rd_cm *cm, struct rdma_cm_id *id);
/* No event comes after it, also from within one. Nothing if there is none. */
void weft__rd_cm_end(struct rd_cm *cm);

/* The address vector by which queue pairs and address handles reach `peer`. False: another kind
 * of link. */
bool weft__rd_reach(const struct rd_device *device, const struct rd_place *peer,
                    struct ibv_ah_attr *attr_p);
/* The largest MTU that both ends have. */
enum ibv_mtu weft__rd_mtu(const struct rd_device *device, const struct rd_place *peer);
static inline unsigned rd_mtu_bytes(enum ibv_mtu mtu) {
    return 128u << mtu;
}

weft_status_t weft__rd_status_of_errno(int error);
weft_status_t weft__rd_status_of_wc(enum ibv_wc_status status);
/* `what` failed by errno `error`, noted for weft_status_describe. */
weft_status_t weft__rd_fail(const char *what, int error);

/* ---- cq.c: a completion queue that is polled without a system call, and a channel that wakes */

enum { RD_CQ_BATCH = 16, RD_CQ_ACKS = 64 };
struct rd_cq {
    struct ibv_cq *cq;
    bool is_given;
    struct ibv_comp_channel *channel;
    struct rd_device *device;
    void (*took)(struct rd_cq *cq, const struct ibv_wc *wc);
    /* after each look that found something: what was postponed is done now */
    void (*polled)(struct rd_cq *cq);
    /* the queue is in error: nothing is reported any more; it may be closed in it */
    void (*broke)(struct rd_cq *cq);
    bool is_broken;
    struct job breaks;
    struct poller poller;
    struct watch watch;
    unsigned unacked;    /* events, acked together */
    unsigned first, end; /* of wc: taken from the queue, not reported yet */
    bool emptied;        /* by the last look */
    struct ibv_wc wc[RD_CQ_BATCH];
};
/* `cq` is zeroed, `took`, `polled` and `broke` set. */
weft_status_t weft__rd_cq_open(struct rd_cq *cq, struct rd_device *device, unsigned depth);
/* The same with the program's queue, which stays when it is closed. */
weft_status_t weft__rd_cq_use(struct rd_cq *cq, struct rd_device *device, struct ibv_cq *given);
/* Its queue pairs and shared receive queues are destroyed. Nothing if it is not open. */
void weft__rd_cq_close(struct rd_cq *cq);
/* Reports all that is there now; within a turn. Returns how many. */
unsigned weft__rd_cq_drain(struct rd_cq *cq);

/* ---- memory.c: registered memory ------------------------------------------------------------- */

/* Blocks of one size in registered memory, for what is packed and for what arrives. */
struct rd_block {
    struct rd_block *next;
    uint32_t lkey;
    uint8_t *bytes;
};
struct rd_chunk;
struct rd_pool {
    struct rd_device *device;
    const void *parent; /* talloc's, of the chunks */
    size_t size;        /* of a block */
    unsigned per_chunk; /* blocks that are made together */
    unsigned n, most;   /* made so far, and at the most */
    struct rd_block *free;
    struct rd_chunk *chunks;
};
void weft__rd_pool_init(struct rd_pool *pool, struct rd_device *device, const void *parent,
                        size_t size, unsigned per_chunk, unsigned most);
/* NULL: as many as there may be are in use, or memory ran out (*st_p, if not NULL, is
 * NO_RESOURCE or an error then). */
struct rd_block *weft__rd_pool_take(struct rd_pool *pool, weft_status_t *st_p);
static inline void rd_pool_put(struct rd_pool *pool, struct rd_block *block) {
    block->next = pool->free;
    pool->free = block;
}
/* Whether it is a block of this pool; `at` may be any number. */
bool weft__rd_pool_has(const struct rd_pool *pool, const void *at);
void weft__rd_pool_end(struct rd_pool *pool); /* no block is in use */

/*
 * Memory that a program passed to one operation. It is registered for as long as operations use it.
 * Operations on the same memory share the registration. It is not kept longer, since the library is
 * not notified when the program unmaps it; a program that wants it kept registers the memory
 * (weft_mem_register, weft_mem_get), and says when it goes.
 */
struct rd_buf_ref {
    LIST_ENTRY(rd_buf_ref) of_buf_refs;
    struct ibv_mr *mr;
    uintptr_t base, end;
    unsigned refs;
    bool writes;
    /* Of another's registration, which is in no list: its last operation is over. */
    void (*idle)(struct rd_buf_ref *buf_ref);
};
struct rd_buf_refs {
    struct rd_device *device;
    const void *parent;
    LIST_HEAD(, rd_buf_ref) all;
};
void weft__rd_buf_refs_init(struct rd_buf_refs *buf_refs, struct rd_device *device,
                            const void *parent);
/* `writes`: the device will write there (gets). */
weft_status_t weft__rd_buf_ref_take(struct rd_buf_refs *buf_refs, void *base, size_t len,
                                    bool writes, struct rd_buf_ref **buf_ref_p);
void weft__rd_buf_ref_return(struct rd_buf_refs *buf_refs, struct rd_buf_ref *buf_ref);

#endif

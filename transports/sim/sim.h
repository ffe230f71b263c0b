/*
 * A network in one thread and in virtual time, that fails on command. For tests.
 *
 *     clock  = weft__clock_create(NULL, seed);
 *     fabric = weft__sim_create(clock, seed, &weft__sim_datagram);
 *     weft__sim_use(fabric);
 *     weft__sim_use_fast(other);
 *     weft__sim_profile(fabric)->loss = 300000;
 *
 * Ifaces of "sim" that this thread opens from then on belong to `fabric`, and those of "simfast" to
 * `other`.
 * An iface is a node; nodes are numbered from 0 in the order of opening, and a number is used again
 * after a close. Every decision is drawn by (seed, site, actor, n): the n-th question of that kind
 * to that lane. So a fault that is taken away, or a rate that changes, leaves all other draws as
 * they were.
 */
#ifndef WEFT_TRANSPORTS_SIM_SIM_H
#define WEFT_TRANSPORTS_SIM_SIM_H

#include <reactor/virtual.h>
#include <transports/registry.h>

struct sim_fabric;

/* What happens to a message. Rates are in a million. */
struct sim_profile {
    /* nothing is lost, repeated or reordered while a lane lives: RC. Else datagrams: UD */
    bool reliable;
    uint32_t mtu;   /* datagrams: the largest message */
    uint32_t depth; /* messages of one lane under way; beyond it NO_RESOURCE */
    uint64_t latency_ns, jitter_ns;
    /* reliable: how long a lane tries to cross a partition before it breaks */
    uint64_t spin_ns;
    uint32_t loss, duplicate, reorder; /* datagrams only */
    uint64_t reorder_ns;               /* by how much, at most */
    uint32_t delay; /* of messages that come late, for good: those behind wait on a reliable lane */
    uint64_t delay_ns;
    uint32_t exhaustion; /* of sends that find no resource although there is some */
    uint64_t exhaustion_ns;
    /* lanes of a faster kind (lane->scarce) that a node can have; 0: all are of one kind */
    uint32_t scarce;
    uint64_t scarce_latency_ns;
    /* reliable: both ends of a lane are on one host, and access each other's exposed memory */
    bool exposes;
};
extern const struct sim_profile weft__sim_reliable, weft__sim_datagram; /* without faults */

/* Below `clock`, and gone with it; every iface must be closed by then. NULL: no memory. */
struct sim_fabric *weft__sim_create(struct reactor_clock *clock, uint64_t seed,
                                    const struct sim_profile *profile);
void weft__sim_use(struct sim_fabric *fabric);      /* NULL: sim cannot be opened */
void weft__sim_use_fast(struct sim_fabric *fabric); /* the same of "simfast" */

/* Rates and times may be changed at any time; `reliable`, `mtu`, `depth` and `exposes` before
 * the first iface is opened. */
struct sim_profile *weft__sim_profile(struct sim_fabric *fabric);

/* The way from a node to another: cut, nothing passes; healed, new messages do, and reliable
 * lanes go on. */
void weft__sim_cut(struct sim_fabric *fabric, unsigned from, unsigned to);
void weft__sim_heal(struct sim_fabric *fabric, unsigned from, unsigned to);
void weft__sim_partition(struct sim_fabric *fabric, unsigned a, unsigned b); /* both ways */
void weft__sim_heal_all(struct sim_fabric *fabric);
/* What a node sends to another from now on arrives in `ns` at the earliest, in order on each
 * lane. Neither end notices, and nothing breaks. A reliable lane that is closed meanwhile recalls
 * nothing that it had copied: it arrives, and the lane's end behind it. Of a later stall of the
 * same way the later end counts. */
void weft__sim_stall(struct sim_fabric *fabric, unsigned from, unsigned to, uint64_t ns);

/* The node is dead for good: its own lanes and, if reliable, those to it break. */
void weft__sim_crash(struct sim_fabric *fabric, unsigned node);
/* Both ends of a lane break; the nodes live. */
void weft__sim_kill(struct lane *lane);
/* The same in `ns` from now; the other end learns of it `later` ns after this one, and what it
 * sends in between is lost. */
weft_status_t weft__sim_fail(struct lane *lane, uint64_t ns, uint64_t later);
/* The nth, from 0, of the lanes that lead from a node to another, the newest first; NULL: there
 * are fewer. */
struct lane *weft__sim_nth_lane(const struct sim_fabric *fabric, unsigned from, unsigned to,
                                unsigned nth);

/* A node's lanes of the scarce kind, dialed and accepted: in use now, and how many it can have
 * from now on (its attr.scarce). Those beyond break, the newest first. */
uint32_t weft__sim_scarce(const struct sim_fabric *fabric, unsigned node);
void weft__sim_capacity(struct sim_fabric *fabric, unsigned node, uint32_t scarce);

unsigned weft__sim_node(const struct iface *iface);
unsigned weft__sim_node_of(const void *address,
                           size_t len); /* an iface address, also of one with a window around it */
/* The lane at the other end, or NULL: there is none (yet). */
struct lane *weft__sim_other_end(const struct lane *lane);

/* A payload that moves a slice at a time: `at` of its `end` bytes are there. */
struct sim_slice {
    uint32_t placement; /* of what is placed; 0: a copy of exposed memory */
    /* of the request on whose side the bytes are copied, of a read or by its sender; NULL: placed */
    const struct completion *completion;
    size_t at, end;
};
/*
 * Called before each slice on this fabric, on the side that moves the bytes. Returns how many of
 * the rest come next, 0 for the usual number. It may do what a callback of the program may, and break
 * lanes. NULL: no call.
 */
typedef size_t (*sim_slice_fn)(void *arg, struct lane *lane, const struct sim_slice *what);
void weft__sim_on_slice(struct sim_fabric *fabric, sim_slice_fn fn, void *arg);

struct sim_stats {
    uint64_t sent, delivered, lost, duplicated, delayed, exhausted;
    /* datagrams that a partition or a death swallowed, and waits of reliable ones before it */
    uint64_t cut;
};
const struct sim_stats *weft__sim_stats(const struct sim_fabric *fabric);
/* Of all that happened so far: when, between whom, what. */
uint64_t weft__sim_trace_hash(const struct sim_fabric *fabric);

#endif

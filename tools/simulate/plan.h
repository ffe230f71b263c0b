/*
 * What happens in one run, as a list that can be drawn from a seed, shortened, printed and
 * replayed: who dials whom, who posts what and when, and what breaks. All the rest of a run follows
 * from it.
 */
#ifndef WEFT_TOOLS_SIMULATE_PLAN_H
#define WEFT_TOOLS_SIMULATE_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { PLAN_WORKERS = 128, PLAN_SETTINGS = 24 };

/* a, b and arg by kind: of operations a is the pair and b the side; n counts how many. */
#define PLAN_ITEMS(X)                                                                           \
    X(DIAL)   /* pair a is dialed, if it is not there: from worker b to worker n */             \
    X(AM)     /* n messages of class arg (sizes) */                                             \
    X(TAG)    /* n tagged ones */                                                               \
    X(TAKE)   /* n receives of tagged ones are posted */                                        \
    X(STREAM) /* n sends of bytes */                                                            \
    X(PUT)    /* n puts, one after the other, each reported by the target */                    \
    X(GET)                                                                                      \
    X(ADD)    /* n additions that are posted */                                                 \
    X(FETCH)  /* n that fetch */                                                                \
    X(FLUSH)  /* a remote one */                                                                \
    X(CANCEL) /* the oldest n operations of this side that are still under way */               \
    X(CLOSE)  /* arg 0: in good order; else an abort */                                         \
    X(LOSS)   /* rates, in a million, from the start: arg */                                    \
    X(DUPLICATE)                                                                                \
    X(REORDER)                                                                                  \
    X(DELAY)  /* by the n-th of four times */                                                   \
    X(JITTER) /* arg ns */                                                                      \
    X(EXHAUSTION)                                                                               \
    X(CUT)       /* nothing passes from worker a to worker b, for arg ns */                     \
    X(KILL)      /* the n-th lane from a to b breaks; the other end learns it arg ns later */   \
    X(WITHDRAW)  /* worker a has room for n scarce lanes, for arg ns */                         \
    X(CRASH)     /* worker a dies and begins again arg ns later, with another id */             \
    X(PAUSE)     /* worker a does nothing, for arg ns */                                        \
    X(NO_MEMORY) /* the arg-th allocation from now on fails, and b more after it */             \
    X(PLACE)     /* n puts that are large enough to land, each into a region of its own */      \
    X(STRIKE)    /* at byte arg of the next payload that moves at side b of pair a: strike n */ \
    X(STALL)     /* what worker a sends to worker b comes arg ns later, in order, and unnoticed */
enum plan_kind {
#define PLAN_KIND(name) PLAN_##name,
    PLAN_ITEMS(PLAN_KIND)
#undef PLAN_KIND
};
extern const char *const plan_kind_name[];

/* Bits of a STRIKE's n. */
enum {
    STRIKE_CANCEL = 1,
    STRIKE_KILL = 2,
    STRIKE_ABORT = 4,
    STRIKE_STALL = 8,
    STRIKE_REVOKE = 16,
    STRIKE_ALL = 31
};

struct plan_item {
    uint64_t at; /* ns from the begin */
    enum plan_kind kind;
    uint32_t a, b, n;
    uint64_t arg;
    uint32_t id; /* what its own draws are keyed by */
};

enum plan_network { PLAN_RELIABLE, PLAN_DATAGRAM, PLAN_N_NETWORKS };

struct plan {
    uint64_t seed;
    uint32_t n_workers;
    enum plan_network network;
    uint32_t scarce;       /* lanes of the fast kind that each worker can have; 0: there is none */
    bool two_ways;         /* a second, faster network beside */
    bool exposes;          /* the workers are on one host, and expose memory to each other */
    bool survive;          /* endpoints of failover mode */
    uint32_t hurried;      /* of a hundred operations, with a deadline */
    uint32_t heartbeat_ms; /* heartbeats of the endpoints; 0: none */
    uint32_t depth;        /* messages of one lane under way */
    uint64_t chaos_ns;
    const char *setting[PLAN_SETTINGS][2];
    uint32_t n_settings;
    struct plan_item *item;
    uint32_t n_items, room;
};

void plan_draw(struct plan *plan, uint64_t seed); /* a small world */
void plan_mesh(struct plan *plan, uint64_t seed, uint32_t workers, uint32_t fast,
               uint32_t messages);
void plan_endpoints(struct plan *plan, uint64_t seed, uint32_t endpoints);
void plan_free(struct plan *plan);
struct plan_item *plan_add(struct plan *plan, struct plan_item item);
void plan_sort(struct plan *plan); /* by time, then by id */
/* Faults after which an endpoint may be lost, rightly. */
bool plan_item_harms(const struct plan *plan, const struct plan_item *item);
bool plan_item_is_fault(const struct plan_item *item);
void plan_print(const struct plan *plan, FILE *to); /* as C, for tests/sim/regressions_test.c */

#endif

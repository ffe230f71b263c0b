/* Which algorithm for what: a table, measured, with the setting "coll.algorithms" before it. */
#ifndef WEFT_COLLECTIVES_SELECT_H
#define WEFT_COLLECTIVES_SELECT_H

#include "schedule.h"

/* Where members share a segment: by slots; by a line of each; by reading each other's memory. And
 * of device memory: by peer memory; staged in host memory, as that is carried out. */
enum {
    ALGORITHM_SLOTS = N_ALGORITHMS,
    ALGORITHM_ONESHOT,
    ALGORITHM_SINGLE_COPY,
    ALGORITHM_PEER,
    ALGORITHM_STAGED,
    N_CHOICES
};

/* Only where the ranks are a power of two; or where all members have exposed regions. */
enum choice_where { WHERE_ANY, WHERE_POWERS, WHERE_EXPOSED };

struct choice {
    enum coll_kind kind;
    unsigned algorithm; /* enum coll_algorithm, or one of those above */
    uint64_t least_bytes, most_bytes;
    uint32_t least_ranks, most_ranks;
    uint32_t least_per_core, most_per_core; /* ranks per core */
    enum coll_memory memory;
    enum choice_where where;
};

struct choices {
    struct choice *row;
    uint32_t n_rows;
    uint64_t hash;             /* of the setting's text: members must agree */
    uint32_t radix, per_group; /* of k-nomial trees, of hierarchies; 0: the usual ones */
};

/*
 * `text` is a list of KIND[/cuda][@RANKS]:BYTES=ALGORITHM, by commas; RANKS and BYTES are LOW-HIGH,
 * LOW- or -HIGH, with k and m:
 *     allreduce:0-8k=slots,allreduce:8k-=ring,barrier@16-:=tree
 * The first row that fits wins, the built-in ones come last. BYTES of a v-form have no effect.
 * WEFT_ERR_INVALID_PARAM names what does not parse.
 */
weft_status_t weft__choices_parse(const void *parent, const char *text, struct choices *choices);

/*
 * The same of `text` and then of a file: lines of such lists; what follows # is skipped. No file is
 * named: NULL or "". WEFT_ERR_IO: it cannot be read, or has more than 64 KiB.
 * WEFT_ERR_NO_FDS: the process has no descriptor for it.
 */
weft_status_t weft__choices_read(const void *parent, const char *text, const char *file,
                                 struct choices *choices);

struct question {
    enum coll_kind kind;
    uint64_t bytes; /* of one rank's contribution */
    uint32_t ranks, per_core;
    bool fixed_order, slots, oneshot, single_copy; /* these can be had */
    uint64_t single_least; /* bytes from which on the built-in rows take the last of them */
    bool exposed;          /* it reads what is mapped, if calls take what members have exposed */
    bool peer;             /* peer memory can be had */
    bool by_host;          /* groups of ranks by host can be had */
    bool asks_nothing;     /* no algorithm that asks for counts */
    enum coll_memory memory;
};
unsigned weft__choose(const struct choices *choices, const struct question *question);
/* The same, and whether a row of `choices` said so. */
unsigned weft__choose_why(const struct choices *choices, const struct question *question,
                          bool *chosen_p);
bool weft__single_copy_has(enum coll_kind kind); /* single_copy.c */
bool weft__oneshot_has(enum coll_kind kind);     /* oneshot.c */
/* Can lines do it for `ranks` members, with `bytes` of each or for each? */
bool weft__oneshot_fit(enum coll_kind kind, uint64_t bytes, uint32_t ranks);

/* "slots", "oneshot", "single_copy", "peer" and "staged" are among these names. */
const char *weft__algorithm_name(unsigned algorithm);

#endif

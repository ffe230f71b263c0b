/* Chooses the algorithm of a collective: by the setting, by a file, or by the table of measured
 * ranges. */
#include "select.h"

#include <base/hash.h>
#include <ctype.h>
#include <errno.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <string.h>

#define ANY     UINT32_MAX
#define ALL     UINT64_MAX
#define FEW     16 /* as many lines as a core asks for at once */
#define EVERY   WHERE_ANY
#define POWERS  WHERE_POWERS
#define EXPOSED WHERE_EXPOSED

/*
 * First match. A line of each is the least that can cross where each rank has a core of its own,
 * and the least work where they share cores. Then comes the shared counter, since the cost is
 * dependent wakeups, and trees next. Large vectors go through the slots too: a part stays in the
 * cache from its writer to its readers, which was measured at a fifth of the ring's cost or less,
 * up to 2 MiB and 4 ranks.
 */
static const struct choice built_in[] = {
    /* kind, algorithm, bytes, ranks, ranks per core, memory, where */
    {COLL_BARRIER, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_BARRIER, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_BARRIER, ALGORITHM_BARRIER_dissemination, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_BCAST, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_BCAST, ALGORITHM_SINGLE_COPY, 256 << 10, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_BCAST, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_BCAST, ALGORITHM_BCAST_chain, 128 << 10, ALL, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_BCAST, ALGORITHM_BCAST_binomial, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, 1, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_SINGLE_COPY, 512 << 10, ALL, 2, ANY, 2, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_SINGLE_COPY, 64 << 10, ALL, 2, ANY, 2, 2, COLL_HOST, EXPOSED},
    {COLL_ALLREDUCE, ALGORITHM_SINGLE_COPY, 128 << 10, ALL, 2, ANY, 3, ANY, COLL_HOST, EXPOSED},
    {COLL_ALLREDUCE, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_doubling, 0, 16 << 10, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_doubling, 0, 64 << 10, 2, 2, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_rabenseifner, 0, 128 << 10, 3, ANY, 0, ANY, COLL_HOST,
     EVERY},
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_rabenseifner, 0, 4 << 20, 2, 64, 0, ANY, COLL_HOST,
     POWERS},
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_ring, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    /* Where the order is fixed: */
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_fold, 0, 4 << 10, 1, 64, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_pipeline, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLGATHER, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLGATHER, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, 1, COLL_HOST, EVERY},
    {COLL_ALLGATHER, ALGORITHM_SINGLE_COPY, 128 << 10, ALL, 2, ANY, 2, ANY, COLL_HOST, EXPOSED},
    {COLL_ALLGATHER, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLGATHER, ALGORITHM_ALLGATHER_doubling, 0, 256 << 10, 2, 64, 0, ANY, COLL_HOST, POWERS},
    {COLL_ALLGATHER, ALGORITHM_ALLGATHER_bruck, 0, 8 << 10, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLGATHER, ALGORITHM_ALLGATHER_bruck, 0, 64 << 10, 1, 8, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLGATHER, ALGORITHM_ALLGATHER_neighbours, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANIN, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANIN, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANIN, ALGORITHM_FANIN_knomial, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANOUT, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANOUT, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANOUT, ALGORITHM_FANOUT_knomial, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, 1, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_SINGLE_COPY, 256 << 10, ALL, 2, ANY, 2, ANY, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_GATHER_linear, 48 << 10, ALL, 2, ANY, 2, ANY, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_GATHER_knomial, 0, 8 << 10, 9, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_GATHER_linear, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHERV, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHERV, ALGORITHM_GATHERV_linear, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTER, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTER, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTER, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTER, ALGORITHM_SCATTER_knomial, 0, 16 << 10, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTER, ALGORITHM_SCATTER_linear, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTERV, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTERV, ALGORITHM_SCATTERV_linear, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, 1, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_SINGLE_COPY, 512 << 10, ALL, 2, ANY, 2, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_SINGLE_COPY, 64 << 10, ALL, 2, ANY, 2, ANY, COLL_HOST, EXPOSED},
    {COLL_REDUCE, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_REDUCE_linear, 0, 1 << 20, 1, 4, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_REDUCE_linear, 0, 8 << 10, 5, 8, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_REDUCE_knomial, 0, 64 << 10, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_REDUCE_linear, 0, 4 << 10, 1, 64, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_REDUCE_chain, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_REDUCE_SCATTER_halving, 0, 4 << 10, 1, ANY, 0, ANY, COLL_HOST,
     EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_REDUCE_SCATTER_halving, 0, 256 << 10, 2, 64, 0, ANY, COLL_HOST,
     POWERS},
    {COLL_REDUCE_SCATTER, ALGORITHM_REDUCE_SCATTER_ring, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_REDUCE_SCATTER_fold, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTERV, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTERV, ALGORITHM_REDUCE_SCATTERV_ring, 0, ALL, 1, ANY, 0, ANY, COLL_HOST,
     EVERY},
    {COLL_REDUCE_SCATTERV, ALGORITHM_REDUCE_SCATTERV_fold, 0, ALL, 1, ANY, 0, ANY, COLL_HOST,
     EVERY},
    {COLL_ALLGATHERV, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLGATHERV, ALGORITHM_ALLGATHERV_ring, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALL, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALL, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALL, ALGORITHM_SLOTS, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALL, ALGORITHM_ALLTOALL_bruck, 0, 256, 8, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALL, ALGORITHM_ALLTOALL_linear, 0, 32 << 10, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALL, ALGORITHM_ALLTOALL_linear, 0, ALL, 1, 8, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALL, ALGORITHM_ALLTOALL_pairwise, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALLV, ALGORITHM_SINGLE_COPY, 0, ALL, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALLV, ALGORITHM_ALLTOALLV_linear, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SLOTS, 0, 8 << 10, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SLOTS, 0, 32 << 10, 2, ANY, 2, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SLOTS, 0, 64 << 10, 3, 8, 2, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SCAN_linear, 0, ALL, 2, 16, 2, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SCAN_linear, 0, ALL, 2, 2, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SCAN_doubling, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SCAN_linear, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_ONESHOT, 0, ALL, 2, FEW, 0, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_SLOTS, 0, 8 << 10, 2, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_SLOTS, 0, 32 << 10, 2, ANY, 2, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_EXSCAN_linear, 0, ALL, 2, 16, 2, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_EXSCAN_linear, 0, ALL, 2, 2, 0, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_EXSCAN_doubling, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_EXSCAN_linear, 0, ALL, 1, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_NEIGHBOR_ALLTOALLV, ALGORITHM_NEIGHBOR_ALLTOALLV_linear, 0, ALL, 1, ANY, 0, ANY,
     COLL_HOST, EVERY},
    /* Device memory within a host. These rows are not measured. */
    {COLL_BCAST, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_ALLGATHER, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_GATHER, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_SCATTER, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_REDUCE, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_ALLTOALL, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_SCAN, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
    {COLL_EXSCAN, ALGORITHM_PEER, 0, ALL, 2, ANY, 0, ANY, COLL_CUDA, EVERY},
};

/*
 * Before those, where some of several hosts have several ranks. Between hosts a message is dear, so
 * one leader of each takes part in it. These rows are not measured. The members of an alltoallv
 * differ in their bytes, so its row asks for ranks alone: from 128 ranks on a connection of each to
 * each is assumed to cost more than the copies by the leaders.
 */
static const struct choice between_hosts[] = {
    {COLL_BARRIER, ALGORITHM_BARRIER_hierarchy, 0, ALL, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANIN, ALGORITHM_FANIN_hierarchy, 0, ALL, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_FANOUT, ALGORITHM_FANOUT_hierarchy, 0, ALL, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_BCAST, ALGORITHM_BCAST_hierarchy, 0, 256 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE, ALGORITHM_REDUCE_hierarchy, 0, 256 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLREDUCE, ALGORITHM_ALLREDUCE_hierarchy, 0, 64 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLGATHER, ALGORITHM_ALLGATHER_hierarchy, 0, 64 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHER, ALGORITHM_GATHER_hierarchy, 0, 8 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTER, ALGORITHM_SCATTER_hierarchy, 0, 8 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_GATHERV, ALGORITHM_GATHERV_hierarchy, 0, ALL, 16, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCATTERV, ALGORITHM_SCATTERV_hierarchy, 0, ALL, 16, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_REDUCE_SCATTER, ALGORITHM_REDUCE_SCATTER_hierarchy, 0, 4 << 10, 3, ANY, 0, ANY, COLL_HOST,
     EVERY},
    {COLL_ALLTOALL, ALGORITHM_ALLTOALL_hierarchy, 0, 256, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_ALLTOALLV, ALGORITHM_ALLTOALLV_hierarchy, 0, ALL, 128, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_SCAN, ALGORITHM_SCAN_hierarchy, 0, 64 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
    {COLL_EXSCAN, ALGORITHM_EXSCAN_hierarchy, 0, 64 << 10, 3, ANY, 0, ANY, COLL_HOST, EVERY},
};

/* The members of a v-form may differ in their bytes, and all are to choose the same. */
static bool fits_bytes(const struct choice *c, uint64_t bytes) {
    return !weft__coll_is_even(c->kind) || (bytes >= c->least_bytes && bytes <= c->most_bytes);
}

static bool fits_choice(const struct choice *c, const struct question *q) {
    if (c->kind != q->kind || c->memory != q->memory || !fits_bytes(c, q->bytes)) return false;
    if (q->ranks < c->least_ranks || q->ranks > c->most_ranks || q->per_core < c->least_per_core)
        return false;
    if (q->per_core > c->most_per_core) return false;
    if (c->where == WHERE_POWERS && q->ranks & (q->ranks - 1)) return false;
    if (c->where == WHERE_EXPOSED && !q->exposed) return false;
    if (c->algorithm == ALGORITHM_SLOTS) return q->slots; /* these three fold in rank order */
    if (c->algorithm == ALGORITHM_ONESHOT) return q->oneshot;
    if (c->algorithm == ALGORITHM_PEER) return q->peer;
    if (c->algorithm == ALGORITHM_STAGED) return true;
    if (c->algorithm == ALGORITHM_SINGLE_COPY) return q->single_copy;
    if (q->asks_nothing && weft__asking(c->algorithm)) return false;
    return !q->fixed_order || weft__algorithms[c->algorithm].fixed_order;
}

/*
 * Single copies: from a size on that the members have measured; in a v-form they may differ in
 * their bytes. Lines: beyond these the work of each member on the parts of all exceeds what it
 * saves, or a single copy is as good. Those of scans pay off as far as annexes go: few members read
 * all.
 */
enum { LINES_OF_MANY = 2 << 10, LINES_OF_FEW = 4 << 10, FEW_RANKS = 4 };
static bool pays_off(const struct choice *c, const struct question *q) {
    bool few = q->per_core == 1 && q->ranks <= FEW_RANKS;
    bool scan = c->kind == COLL_SCAN || c->kind == COLL_EXSCAN;
    if (c->algorithm == ALGORITHM_ONESHOT)
        return scan || q->bytes <= (few ? LINES_OF_FEW : LINES_OF_MANY);
    return c->algorithm != ALGORITHM_SINGLE_COPY || !weft__coll_is_even(c->kind) ||
           q->bytes >= q->single_least;
}

const char *weft__algorithm_name(unsigned algorithm) {
    switch (algorithm) {
    case ALGORITHM_SLOTS: return "slots";
    case ALGORITHM_ONESHOT: return "oneshot";
    case ALGORITHM_PEER: return "peer";
    case ALGORITHM_STAGED: return "staged";
    case ALGORITHM_SINGLE_COPY: return "single_copy";
    default: return weft__algorithms[algorithm].name;
    }
}

/* The last row of a kind in host memory fits every question. */
static unsigned choose_built_in(const struct question *q) {
    unsigned last = ALGORITHM_STAGED;
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
        const struct choice *c = &built_in[i];
        if (c->kind != q->kind) continue;
        if (fits_choice(c, q) && pays_off(c, q)) return c->algorithm;
        if (q->memory == COLL_HOST && c->memory == COLL_HOST) last = c->algorithm;
    }
    return last;
}

unsigned weft__choose(const struct choices *choices, const struct question *question) {
    bool chosen;
    return weft__choose_why(choices, question, &chosen);
}

unsigned weft__choose_why(const struct choices *choices, const struct question *question,
                          bool *chosen_p) {
    *chosen_p = true;
    for (uint32_t i = 0; i < choices->n_rows; i++)
        if (fits_choice(&choices->row[i], question)) return choices->row[i].algorithm;
    *chosen_p = false;
    for (size_t i = 0; question->by_host && i < sizeof between_hosts / sizeof *between_hosts; i++)
        if (fits_choice(&between_hosts[i], question)) return between_hosts[i].algorithm;
    return choose_built_in(question);
}

/* ---- the setting ----------------------------------------------------------------------------- */

struct text {
    const char *at;
};

static bool word(struct text *t, const char *name) {
    size_t len = strlen(name);
    if (strncmp(t->at, name, len) != 0 || isalnum((unsigned char)t->at[len]) || t->at[len] == '_')
        return false;
    t->at += len;
    return true;
}

static bool number_choice(struct text *t, uint64_t *value_p) {
    if (!isdigit((unsigned char)*t->at)) return false;
    uint64_t value = 0;
    for (; isdigit((unsigned char)*t->at); t->at++) {
        if (value > UINT32_MAX) return false;
        value = 10 * value + (uint64_t)(*t->at - '0');
    }
    if (*t->at == 'k')
        value <<= 10, t->at++;
    else if (*t->at == 'm')
        value <<= 20, t->at++;
    *value_p = value;
    return true;
}

/* LOW-HIGH, LOW-, -HIGH or nothing at all. */
static bool range(struct text *t, uint64_t *low_p, uint64_t *high_p) {
    bool low = number_choice(t, low_p);
    if (*t->at != '-') return !low;
    t->at++;
    number_choice(t, high_p);
    return *low_p <= *high_p;
}

static bool kind(struct text *t, enum coll_kind *kind_p) {
    for (int k = 0; k < N_COLL_KINDS; k++)
        if (word(t, weft__coll_name((enum coll_kind)k))) {
            *kind_p = (enum coll_kind)k;
            return true;
        }
    return false;
}

static bool algorithm(struct text *t, struct choice *c) {
    if (c->memory == COLL_CUDA) {
        c->algorithm = ALGORITHM_PEER;
        if (word(t, "peer")) return true;
        c->algorithm = ALGORITHM_STAGED;
        return word(t, "staged");
    }
    for (c->algorithm = 0; c->algorithm < N_ALGORITHMS; c->algorithm++)
        if (weft__algorithms[c->algorithm].kind == c->kind &&
            word(t, weft__algorithms[c->algorithm].name))
            return true;
    if (word(t, "slots")) return true; /* c->algorithm is ALGORITHM_SLOTS by now */
    c->algorithm = ALGORITHM_SINGLE_COPY;
    if (word(t, "single_copy")) return true;
    c->algorithm = ALGORITHM_ONESHOT;
    return weft__oneshot_has(c->kind) && word(t, "oneshot");
}

static bool row(struct text *t, struct choice *c) {
    uint64_t least = 1, most = ANY;
    *c = (struct choice){.most_bytes = ALL, .most_per_core = ANY};
    if (!kind(t, &c->kind)) return false;
    if (*t->at == '/') {
        t->at++;
        if (!word(t, "cuda")) return false;
        c->memory = COLL_CUDA;
    }
    if (*t->at == '@') {
        t->at++;
        if (!range(t, &least, &most) || most > ANY) return false;
    }
    c->least_ranks = (uint32_t)least;
    c->most_ranks = (uint32_t)most;
    if (*t->at == ':') {
        t->at++;
        if (!range(t, &c->least_bytes, &c->most_bytes)) return false;
    }
    if (*t->at++ != '=' || !algorithm(t, c)) return false;
    return *t->at == ',' || *t->at == 0;
}

weft_status_t weft__choices_parse(const void *parent, const char *text, struct choices *choices) {
    struct text t = {text};
    uint32_t n = 0;
    *choices = (struct choices){.hash = hash_more(HASH_BEGIN, text, strlen(text))};
    for (const char *c = text; *c; c++) n += *c == ',';
    if (!*text) return WEFT_OK;
    choices->row = weft__alloc(parent, (n + 1) * sizeof *choices->row, "choices");
    if (!choices->row) return WEFT_ERR_NO_MEMORY;
    for (;;) {
        const char *start = t.at;
        if (!row(&t, &choices->row[choices->n_rows]))
            return weft__fail(
                WEFT_ERR_INVALID_PARAM,
                "coll.algorithms: \"%.40s\" is not KIND[/cuda][@RANKS]:BYTES=ALGORITHM", start);
        choices->n_rows++;
        if (!*t.at++) return WEFT_OK;
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

enum { FILE_MOST = 64 << 10 };

/* A line of a file: its list, without the comment and blanks around it. */
static char *take_line(char **at_p) {
    char *line = *at_p, *end = line + strcspn(line, "\n");
    *at_p = *end ? end + 1 : end;
    *end = 0;
    line[strcspn(line, "#")] = 0;
    line += strspn(line, " \t\r,");
    for (end = line + strlen(line); end > line && strchr(" \t\r,", end[-1]); end--) end[-1] = 0;
    return line;
}

static weft_status_t read_lines(const char *file, char *content) {
    FILE *in = fopen(file, "re");
    if (!in)
        return weft__fail(weft__file_status(errno), "coll.tuning: %s: %s", file, strerror(errno));
    size_t len = fread(content, 1, FILE_MOST, in);
    fclose(in);
    content[len < FILE_MOST ? len : 0] = 0;
    return len < FILE_MOST ? WEFT_OK : weft__fail(WEFT_ERR_IO, "coll.tuning: %s is too long", file);
}

weft_status_t weft__choices_read(const void *parent, const char *text, const char *file,
                                 struct choices *choices) {
    if (!file || !*file) return weft__choices_parse(parent, text, choices);
    size_t used = strlen(text);
    char *all = weft__alloc(parent, used + 2 * FILE_MOST + 2, "choices");
    if (!all) return WEFT_ERR_NO_MEMORY;
    char *content = all + used + FILE_MOST + 1;
    weft_status_t st = read_lines(file, content);
    memcpy(all, text, used);
    for (char *at = content; st == WEFT_OK && *at;) {
        const char *line = take_line(&at);
        size_t len = strlen(line);
        if (len && used) all[used++] = ',';
        memcpy(all + used, line, len);
        used += len;
    }
    all[used] = 0;
    if (st == WEFT_OK) st = weft__choices_parse(parent, all, choices);
    talloc_free(all);
    return st;
}

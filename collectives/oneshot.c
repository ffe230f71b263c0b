/*
 * The smallest collectives, where every member has a core of its own: a member writes one line, its
 * part and a number, reads those that it needs, and does the work itself. So a line crosses once
 * from one member to another, and no member waits for one that has waited for another. All fold in
 * the order of ranks, so that all have the same result, bit by bit.
 *
 * A member writes a channel's line again when all are through with what it says. Each line states
 * how many uses its writer had left, so members who go on one by one learn that in passing. A
 * member that runs ahead until its channels are full looks at the others' counts, and sleeps until
 * they leave: so a member that leaves wakes those that sleep.
 */
#include <base/counters.h>
#include <string.h>

#include "collective.h"

/* Signals: it has no bytes, whatever its count. Blocks: a line has a part for each member. */
static const struct line_use {
    enum coll_readers readers;
    bool signals, blocks, folds;
} uses[N_COLL_KINDS] = {
    [COLL_BARRIER] = {.readers = FROM_ALL, .signals = true},
    [COLL_ALLGATHER] = {.readers = FROM_ALL},
    [COLL_ALLTOALL] = {.readers = FROM_ALL, .blocks = true},
    [COLL_ALLREDUCE] = {.readers = FROM_ALL, .folds = true},
    [COLL_REDUCE_SCATTER] = {.readers = FROM_ALL, .blocks = true, .folds = true},
    [COLL_FANOUT] = {.readers = FROM_ROOT, .signals = true},
    [COLL_BCAST] = {.readers = FROM_ROOT},
    [COLL_SCATTER] = {.readers = FROM_ROOT, .blocks = true},
    [COLL_FANIN] = {.readers = BY_ROOT, .signals = true},
    [COLL_GATHER] = {.readers = BY_ROOT},
    [COLL_REDUCE] = {.readers = BY_ROOT, .folds = true},
};

bool weft__oneshot_has(enum coll_kind kind) {
    return uses[kind].readers != NO_READERS;
}

bool weft__oneshot_fit(enum coll_kind kind, uint64_t bytes, uint32_t ranks) {
    const struct line_use *use = &uses[kind];
    return weft__oneshot_has(kind) &&
           (use->signals || bytes <= SEGMENT_PART / (use->blocks ? ranks : 1));
}

bool weft__oneshot_can_take(const weft_team_t *team, const struct coll_call *call) {
    return team->segment && !call->tagged &&
           weft__oneshot_fit(call->kind, coll_bytes(call), team->size);
}

static weft_status_t prepare_line(struct collective *c) {
    c->n_parts = 1;
    c->first_use = c->team->lines.next++;
    weft__count(c->team->reactor)->coll_oneshot++;
    return WEFT_OK;
}

static uint64_t line_bytes(const struct collective *c) {
    return uses[c->call.kind].signals ? 0 : coll_bytes(&c->call);
}

static bool is_root(const struct collective *c) {
    return c->team->rank == c->call.root;
}

static bool has_come(const struct collective *c, uint32_t rank) {
    const struct segment_line *line = segment_line(c->team->segment, c->first_use, rank);
    return atomic_load_explicit(&line->use, memory_order_acquire) > c->first_use;
}

static bool reads(const struct collective *c, uint32_t rank) {
    return coll_reads(uses[c->call.kind].readers, c->call.root, c->team->rank, rank);
}

static bool all_came(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (reads(c, r) && !has_come(c, r)) return false;
    return true;
}

/* ---- entering -------------------------------------------------------------------------------- */

static uint64_t left_by(const weft_team_t *team, uint32_t rank) {
    return atomic_load_explicit(&team->segment->member[rank].left, memory_order_acquire);
}

static uint64_t left_by_all(const weft_team_t *team) {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < team->size; r++) {
        uint64_t left = left_by(team, r);
        if (left < least) least = left;
    }
    return least;
}

/* In their order, and when all are through with what our line said last. */
static bool may_enter(const struct collective *c) {
    const struct team_lines *lines = &c->team->lines;
    if (lines->entered != c->first_use) return false;
    return c->first_use < lines->left_by_all + SEGMENT_CHANNELS ||
           c->first_use < left_by_all(c->team) + SEGMENT_CHANNELS;
}

static void write_line(struct collective *c) {
    weft_team_t *team = c->team;
    struct segment_line *line = segment_line(team->segment, c->first_use, team->rank);
    const void *from = c->call.kind == COLL_BCAST ? c->call.dst : c->call.src;
    uint64_t blocks = uses[c->call.kind].blocks ? team->size : 1;
    if (line_bytes(c)) memcpy(line->part, from, blocks * line_bytes(c));
    atomic_store_explicit(&line->left, team->lines.left, memory_order_relaxed);
    atomic_store_explicit(&line->use, c->first_use + 1, memory_order_release);
}

/* May this member's line have been the last that another needs? */
static bool completes(const struct collective *c) {
    if (uses[c->call.kind].readers == FROM_ROOT) return true;
    for (uint32_t r = 0; r < c->team->size; r++)
        if (!has_come(c, r)) return false;
    return true;
}

/* Of those who write, the one whose fence is last sees all the lines: one of them wakes a member
 * that sleeps. */
static void enter_line(struct collective *c) {
    c->team->lines.entered++;
    c->entered = 1;
    if (uses[c->call.kind].readers == FROM_ROOT && !is_root(c)) return;
    write_line(c);
    atomic_thread_fence(memory_order_seq_cst);
    if (completes(c)) weft__shared_wake_seen(c->team, FOR_NEWS);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* What a member's line has for this one. */
static const uint8_t *part_for_us(const struct collective *c, uint32_t rank) {
    uint64_t offset = uses[c->call.kind].blocks ? c->team->rank * line_bytes(c) : 0;
    return segment_line(c->team->segment, c->first_use, rank)->part + offset;
}

static void oneshot_fold(const struct collective *c) {
    _Alignas(16) uint8_t result[SEGMENT_PART];
    const uint8_t *left = part_for_us(c, 0);
    for (uint32_t r = 1; r < c->team->size; r++, left = result)
        coll_reduce(&c->call, result, left, part_for_us(c, r), c->call.count);
    memcpy(c->call.dst, result, line_bytes(c));
}

static void gather_lines(const struct collective *c) {
    uint64_t bytes = line_bytes(c);
    uint8_t *dst = c->call.dst;
    for (uint32_t r = 0; r < c->team->size; r++) memcpy(dst + r * bytes, part_for_us(c, r), bytes);
}

static void take_from_root(const struct collective *c) {
    bool has_it = c->call.kind == COLL_BCAST && is_root(c);
    if (!has_it) memcpy(c->call.dst, part_for_us(c, c->call.root), line_bytes(c));
}

static void take_result(const struct collective *c) {
    const struct line_use *use = &uses[c->call.kind];
    if (line_bytes(c) == 0 || (use->readers == BY_ROOT && !is_root(c))) return;
    if (use->folds)
        oneshot_fold(c);
    else if (use->readers == FROM_ROOT)
        take_from_root(c);
    else
        gather_lines(c);
}

/* What the lines of this use contain, when all have come. */
static void learn_who_left(const struct collective *c) {
    struct team_lines *lines = &c->team->lines;
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < c->team->size; r++) {
        const struct segment_line *line = segment_line(c->team->segment, c->first_use, r);
        uint64_t left = atomic_load_explicit(&line->left, memory_order_relaxed);
        if (left < least) least = left;
    }
    if (least > lines->left_by_all) lines->left_by_all = least;
}

static bool may_leave(const struct collective *c) {
    return c->team->lines.left == c->first_use && all_came(c);
}

static void leave_line(struct collective *c) {
    weft_team_t *team = c->team;
    struct team_lines *lines = &team->lines;
    take_result(c);
    if (uses[c->call.kind].readers == FROM_ALL) learn_who_left(c);
    c->left = 1;
    lines->left++;
    atomic_store_explicit(&team->segment->member[team->rank].left, lines->left,
                          memory_order_release);
    weft__shared_wake(team, FOR_ROOM);
}

static bool advance_line(struct collective *c) {
    if (!c->entered && may_enter(c)) enter_line(c);
    if (c->entered && may_leave(c)) leave_line(c);
    return weft__shared_over(c);
}

static bool may_move(const struct collective *c) {
    return c->entered ? may_leave(c) : may_enter(c);
}

static bool wants_room(const struct collective *c) {
    return !c->entered;
}

/* A line of it, or that it is through with a line of ours. */
static bool needs_line(const struct collective *c, uint32_t rank) {
    if (!c->entered && c->first_use >= left_by(c->team, rank) + SEGMENT_CHANNELS) return true;
    return reads(c, rank) && !has_come(c, rank);
}

const struct coll_engine weft__oneshot = {.prepare = prepare_line,
                                          .advance = advance_line,
                                          .needs = needs_line,
                                          .may_move = may_move,
                                          .wants_room = wants_room};

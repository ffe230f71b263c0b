/*
 * The smallest collectives in which each member needs all the others, where every member has a core
 * of its own: each writes one line, its part and a number, reads everybody's, and does the work
 * itself. So a line crosses once from each to each, and no member waits for one that has waited for
 * another. All fold in the order of ranks, so that all have the same result, bit by bit.
 *
 * A member writes a channel's line again when all are through with what it says. Each line states
 * how many uses its writer had left; members who go on one by one learn that in passing. Who runs
 * ahead until its channels are full looks at the others' counts, and may sleep over it. Then it has
 * left what it has entered, so those it waits for have entered as much and left less: whose own
 * channels are full wakes others when it leaves, and no other needs to.
 */
#include <base/counters.h>
#include <string.h>

#include "collective.h"

/* Blocks: a line has one for each member. */
static const struct line_use {
    bool known, blocks, folds;
} uses[N_COLL_KINDS] = {
    [COLL_BARRIER] = {.known = true},
    [COLL_ALLGATHER] = {.known = true},
    [COLL_ALLTOALL] = {.known = true, .blocks = true},
    [COLL_ALLREDUCE] = {.known = true, .folds = true},
    [COLL_REDUCE_SCATTER] = {.known = true, .blocks = true, .folds = true},
};

bool weft__oneshot_has(enum coll_kind kind) {
    return uses[kind].known;
}

bool weft__oneshot_fit(enum coll_kind kind, uint64_t bytes, uint32_t ranks) {
    return uses[kind].known && bytes <= SEGMENT_PART / (uses[kind].blocks ? ranks : 1);
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

static bool has_come(const struct collective *c, uint32_t rank) {
    const struct segment_line *line = segment_line(c->team->segment, c->first_use, rank);
    return atomic_load_explicit(&line->use, memory_order_acquire) > c->first_use;
}

static bool all_came(const struct collective *c) {
    for (uint32_t r = 0; r < c->team->size; r++)
        if (!has_come(c, r)) return false;
    return true;
}

/* ---- entering -------------------------------------------------------------------------------- */

static uint64_t left_by_all(const weft_team_t *team) {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < team->size; r++) {
        uint64_t left = atomic_load_explicit(&team->segment->member[r].left, memory_order_acquire);
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
    uint64_t blocks = uses[c->call.kind].blocks ? team->size : 1;
    if (c->call.src) memcpy(line->part, c->call.src, blocks * coll_bytes(&c->call));
    atomic_store_explicit(&line->left, team->lines.left, memory_order_relaxed);
    atomic_store_explicit(&line->use, c->first_use + 1, memory_order_release);
    team->lines.notified = team->lines.left;
    team->lines.entered++;
    c->entered = 1;
}

/* Of those who enter, the one whose fence is last sees all the lines: one of them wakes a member
 * that sleeps. */
static void enter_line(struct collective *c) {
    write_line(c);
    atomic_thread_fence(memory_order_seq_cst);
    if (all_came(c)) weft__shared_wake_seen(c->team);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* What a member's line has for this one. */
static const uint8_t *part_for_us(const struct collective *c, uint32_t rank) {
    uint64_t offset = uses[c->call.kind].blocks ? c->team->rank * coll_bytes(&c->call) : 0;
    return segment_line(c->team->segment, c->first_use, rank)->part + offset;
}

static void oneshot_fold(const struct collective *c) {
    _Alignas(16) uint8_t result[SEGMENT_PART];
    const uint8_t *left = part_for_us(c, 0);
    for (uint32_t r = 1; r < c->team->size; r++, left = result)
        coll_reduce(&c->call, result, left, part_for_us(c, r), c->call.count);
    memcpy(c->call.dst, result, coll_bytes(&c->call));
}

static void gather_line(const struct collective *c) {
    uint64_t bytes = coll_bytes(&c->call);
    uint8_t *dst = c->call.dst;
    for (uint32_t r = 0; r < c->team->size; r++) memcpy(dst + r * bytes, part_for_us(c, r), bytes);
}

/* What the lines of this use contain. */
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
    if (uses[c->call.kind].folds)
        oneshot_fold(c);
    else if (c->call.kind != COLL_BARRIER)
        gather_line(c);
    learn_who_left(c);
    c->left = 1;
    lines->left++;
    atomic_store_explicit(&team->segment->member[team->rank].left, lines->left,
                          memory_order_release);
    if (lines->entered - lines->notified >= SEGMENT_CHANNELS) weft__shared_wake(team);
}

static bool advance_line(struct collective *c) {
    if (!c->entered && may_enter(c)) enter_line(c);
    if (c->entered && may_leave(c)) leave_line(c);
    return weft__shared_over(c);
}

static bool may_move(const struct collective *c) {
    return c->entered ? may_leave(c) : may_enter(c);
}

static bool needs_line(const struct collective *c, uint32_t rank) {
    return !has_come(c, rank);
}

const struct coll_engine weft__oneshot = {
    .prepare = prepare_line, .advance = advance_line, .needs = needs_line, .may_move = may_move};

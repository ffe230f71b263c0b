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

/* One use of the lines: a collective's, or a call's that may be over before it needs one. */
struct line_run {
    weft_team_t *team;
    const struct coll_call *call;
    uint64_t use;
};

static struct line_run run_of(const struct collective *c) {
    return (struct line_run){c->team, &c->call, c->first_use};
}

static uint64_t line_bytes(const struct line_run *run) {
    return uses[run->call->kind].signals ? 0 : coll_bytes(run->call);
}

static bool is_root(const struct line_run *run) {
    return run->team->rank == run->call->root;
}

static bool has_come(const struct line_run *run, uint32_t rank) {
    const struct segment_line *line = segment_line(run->team->segment, run->use, rank);
    return atomic_load_explicit(&line->use, memory_order_acquire) > run->use;
}

static bool reads(const struct line_run *run, uint32_t rank) {
    return coll_reads(uses[run->call->kind].readers, run->call->root, run->team->rank, rank);
}

static bool all_came(const struct line_run *run) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (reads(run, r) && !has_come(run, r)) return false;
    return true;
}

/* ---- room ------------------------------------------------------------------------------------ */

static uint64_t left_by(const weft_team_t *team, uint32_t rank) {
    return atomic_load_explicit(&team->segment->member[rank].left, memory_order_acquire);
}

static void note_left(struct team_lines *lines, uint32_t rank, uint64_t left) {
    if (left > lines->left_by[rank]) lines->left_by[rank] = left;
}

static bool have_left(weft_team_t *team, uint64_t use) {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < team->size; r++)
        if (team->lines.left_by[r] < least) least = team->lines.left_by[r];
    team->lines.left_by_all = least;
    return use < least + SEGMENT_CHANNELS;
}

/* Are all through with what our line said last? Lines that were read say so, or their counts. */
static bool has_room(weft_team_t *team, uint64_t use) {
    if (LIKELY(use < team->lines.left_by_all + SEGMENT_CHANNELS) || have_left(team, use))
        return true;
    for (uint32_t r = 0; r < team->size; r++) note_left(&team->lines, r, left_by(team, r));
    return have_left(team, use);
}

/* ---- entering -------------------------------------------------------------------------------- */

/* In their order. */
static bool may_enter(const struct collective *c) {
    return c->team->lines.entered == c->first_use && has_room(c->team, c->first_use);
}

static void write_line(const struct line_run *run) {
    weft_team_t *team = run->team;
    struct segment_line *line = segment_line(team->segment, run->use, team->rank);
    const void *from = run->call->kind == COLL_BCAST ? run->call->dst : run->call->src;
    uint64_t blocks = uses[run->call->kind].blocks ? team->size : 1;
    if (line_bytes(run)) memcpy(line->part, from, blocks * line_bytes(run));
    atomic_store_explicit(&line->left, team->lines.left, memory_order_relaxed);
    atomic_store_explicit(&line->use, run->use + 1, memory_order_release);
}

/* May this member's line have been the last that another needs? */
static bool completes(const struct line_run *run) {
    if (uses[run->call->kind].readers == FROM_ROOT) return true;
    for (uint32_t r = 0; r < run->team->size; r++)
        if (!has_come(run, r)) return false;
    return true;
}

/* The others' lines cross while the fence waits for our own. */
static void fetch_lines(const struct line_run *run) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (r != run->team->rank && reads(run, r))
            __builtin_prefetch(segment_line(run->team->segment, run->use, r), 0);
}

/* Of those who write, the one whose fence is last sees all the lines: one of them wakes a member
 * that sleeps. */
static void enter_line(const struct line_run *run) {
    run->team->lines.entered++;
    if (uses[run->call->kind].readers == FROM_ROOT && !is_root(run)) return;
    fetch_lines(run);
    write_line(run);
    atomic_thread_fence(memory_order_seq_cst);
    if (completes(run)) weft__shared_wake_seen(run->team, FOR_NEWS);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* What a member's line has for this one. */
static const uint8_t *part_for_us(const struct line_run *run, uint32_t rank) {
    uint64_t offset = uses[run->call->kind].blocks ? run->team->rank * line_bytes(run) : 0;
    return segment_line(run->team->segment, run->use, rank)->part + offset;
}

static void oneshot_fold(const struct line_run *run) {
    _Alignas(16) uint8_t result[SEGMENT_PART];
    const uint8_t *left = part_for_us(run, 0);
    for (uint32_t r = 1; r < run->team->size; r++, left = result)
        coll_reduce(run->call, result, left, part_for_us(run, r), run->call->count);
    memcpy(run->call->dst, result, line_bytes(run));
}

static void gather_lines(const struct line_run *run) {
    uint64_t bytes = line_bytes(run);
    uint8_t *dst = run->call->dst;
    for (uint32_t r = 0; r < run->team->size; r++)
        memcpy(dst + r * bytes, part_for_us(run, r), bytes);
}

static void take_from_root(const struct line_run *run) {
    bool has_it = run->call->kind == COLL_BCAST && is_root(run);
    if (!has_it) memcpy(run->call->dst, part_for_us(run, run->call->root), line_bytes(run));
}

static void take_result(const struct line_run *run) {
    const struct line_use *use = &uses[run->call->kind];
    if (line_bytes(run) == 0 || (use->readers == BY_ROOT && !is_root(run))) return;
    if (use->folds)
        oneshot_fold(run);
    else if (use->readers == FROM_ROOT)
        take_from_root(run);
    else
        gather_lines(run);
}

/* What the lines that were read contain. */
static void learn_who_left(const struct line_run *run) {
    for (uint32_t r = 0; r < run->team->size; r++) {
        const struct segment_line *line = segment_line(run->team->segment, run->use, r);
        if (r != run->team->rank && reads(run, r))
            note_left(&run->team->lines, r,
                      atomic_load_explicit(&line->left, memory_order_relaxed));
    }
}

static void leave_line(const struct line_run *run) {
    weft_team_t *team = run->team;
    struct team_lines *lines = &team->lines;
    take_result(run);
    learn_who_left(run);
    lines->left_by[team->rank] = ++lines->left;
    atomic_store_explicit(&team->segment->member[team->rank].left, lines->left,
                          memory_order_release);
    weft__shared_wake(team, FOR_ROOM);
}

/* ---- within the call ------------------------------------------------------------------------- */

bool weft__oneshot_is_next(weft_team_t *team) {
    const struct team_lines *lines = &team->lines;
    return lines->left == lines->next && has_room(team, lines->next);
}

/*
 * Looks at one line until it has come, and at the next one then: `looks` times at most. There is no
 * pause between two looks, which would take longer than a line's way.
 */
static bool look_for_all(const struct line_run *run, unsigned looks) {
    for (uint32_t r = 0; r < run->team->size; r++)
        while (reads(run, r) && !has_come(run, r))
            if (looks-- == 0) return false;
    return true;
}

/*
 * Where the others usually come later than that, the time is lost: then a member looks once, as it
 * does without a core of its own, and tries again after some calls.
 */
enum { LOOKS = 256, LATE_MOST = 4, CALLS_WITHOUT = 32 };

static unsigned looks_now(const weft_team_t *team) {
    bool may =
        team->per_core == 1 && !team->lines.calls_without && !weft__reactor_in_turn(team->reactor);
    return may ? LOOKS : 0;
}

static void note_look(weft_team_t *team, unsigned looks, bool came) {
    struct team_lines *lines = &team->lines;
    if (!looks) {
        lines->calls_without -= lines->calls_without > 0;
    } else if (came) {
        lines->late -= lines->late > 0;
    } else {
        weft__count(team->reactor)->coll_looked_in_vain++;
        if (lines->late < LATE_MOST) lines->late++;
        if (lines->late == LATE_MOST) lines->calls_without = CALLS_WITHOUT;
    }
}

uint64_t weft__oneshot_enter(weft_team_t *team, const struct coll_call *call, bool *over_p) {
    struct line_run run = {team, call, team->lines.next++};
    unsigned looks = looks_now(team);
    weft__count(team->reactor)->coll_oneshot++;
    enter_line(&run);
    *over_p = look_for_all(&run, looks);
    note_look(team, looks, *over_p);
    if (*over_p) leave_line(&run);
    return run.use;
}

/* ---- as a collective ------------------------------------------------------------------------- */

/* It may have entered within its call. */
static weft_status_t prepare_line(struct collective *c) {
    c->n_parts = 1;
    if (c->entered) return WEFT_OK;
    c->first_use = c->team->lines.next++;
    weft__count(c->team->reactor)->coll_oneshot++;
    return WEFT_OK;
}

static bool may_leave(const struct collective *c) {
    struct line_run run = run_of(c);
    return c->team->lines.left == c->first_use && all_came(&run);
}

static bool advance_line(struct collective *c) {
    struct line_run run = run_of(c);
    if (!c->entered && may_enter(c)) {
        enter_line(&run);
        c->entered = 1;
    }
    if (c->entered && may_leave(c)) {
        leave_line(&run);
        c->left = 1;
    }
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
    struct line_run run = run_of(c);
    return reads(&run, rank) && !has_come(&run, rank);
}

const struct coll_engine weft__oneshot = {.prepare = prepare_line,
                                          .advance = advance_line,
                                          .needs = needs_line,
                                          .may_move = may_move,
                                          .wants_room = wants_room};

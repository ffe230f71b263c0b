/*
 * Small collectives: a member writes one line, its part and a number, reads those that it needs,
 * and does the work itself. So a line crosses once from one member to another, and no member waits
 * for one that has waited for another. All fold in the order of ranks, so that all have the same
 * result, bit by bit. A part that is too large for the line stands in an annex, whose lines cross
 * together, after the one that says that they are written.
 *
 * A member writes a channel's line again when all are through with what it says. Each line states
 * how many uses its writer had left, so members who go on one by one learn that in passing. A
 * member that runs ahead until its channels are full looks at the others' counts, and sleeps until
 * they leave: so a member that leaves wakes those that sleep.
 */
#include <base/compiler.h>
#include <base/counters.h>
#include <string.h>

#include "collective.h"
#include "within.h"

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
    [COLL_SCAN] = {.readers = FROM_BELOW, .folds = true},
    [COLL_EXSCAN] = {.readers = FROM_BELOW, .folds = true},
};

bool weft__oneshot_has(enum coll_kind kind) {
    return uses[kind].readers != NO_READERS;
}

bool weft__oneshot_fit(enum coll_kind kind, uint64_t bytes, uint32_t ranks) {
    const struct line_use *use = &uses[kind];
    uint64_t room = ranks <= SEGMENT_ANNEX_MEMBERS ? SEGMENT_ANNEX : SEGMENT_PART;
    return weft__oneshot_has(kind) && (use->signals || bytes <= room / (use->blocks ? ranks : 1));
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
    const struct line_use *kind;
    uint64_t bytes, put;       /* of a block; all that a member puts in */
    struct segment_line *line; /* of each member */
    uint8_t *part;             /* what the first of them puts in, */
    uint64_t stride;           /* and how far from one to the next */
};

static inline uint64_t put_by(const weft_team_t *team, const struct coll_call *call) {
    const struct line_use *kind = &uses[call->kind];
    return kind->signals ? 0 : coll_bytes(call) * (kind->blocks ? team->size : 1);
}

static inline struct line_run new_run(weft_team_t *team, const struct coll_call *call,
                                      uint64_t use) {
    const struct segment *segment = team->segment;
    struct line_run run = {.team = team, .call = call, .use = use, .kind = &uses[call->kind]};
    run.line = segment_line(segment, use, 0);
    if (run.kind->signals) return run;
    run.bytes = coll_bytes(call);
    run.put = put_by(team, call);
    bool fits = run.put <= SEGMENT_PART;
    run.part = fits ? run.line->part : segment_annex(segment, use, 0);
    run.stride = fits ? sizeof *run.line : SEGMENT_ANNEX;
    return run;
}

static struct line_run run_of(const struct collective *c) {
    return new_run(c->team, &c->call, c->first_use);
}

static uint8_t *part_of_line(const struct line_run *run, uint32_t rank) {
    return run->part + rank * run->stride;
}

static bool is_root(const struct line_run *run) {
    return run->team->rank == run->call->root;
}

static bool has_come(const struct line_run *run, uint32_t rank) {
    const struct segment_line *line = &run->line[rank];
    return atomic_load_explicit(&line->use, memory_order_acquire) > run->use;
}

static bool reads(const struct line_run *run, uint32_t rank) {
    return coll_reads(run->kind->readers, run->call->root, run->team->rank, rank);
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

static bool have_left(weft_team_t *team, uint64_t use, uint32_t ahead) {
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < team->size; r++)
        if (team->lines.left_by[r] < least) least = team->lines.left_by[r];
    team->lines.left_by_all = least;
    return use < least + ahead;
}

/* Uses that a member may be ahead of the last: its lines are more than its annexes. */
static uint32_t most_ahead(const weft_team_t *team, const struct coll_call *call) {
    return put_by(team, call) <= SEGMENT_PART ? SEGMENT_LINES : SEGMENT_CHANNELS;
}

/* Are all through with what our line said last? Lines that were read say so, or their counts. */
static bool has_room(weft_team_t *team, const struct coll_call *call, uint64_t use) {
    if (LIKELY(use < team->lines.left_by_all + SEGMENT_CHANNELS)) return true;
    uint32_t ahead = most_ahead(team, call);
    if (use < team->lines.left_by_all + ahead || have_left(team, use, ahead)) return true;
    for (uint32_t r = 0; r < team->size; r++) note_left(&team->lines, r, left_by(team, r));
    return have_left(team, use, ahead);
}

/* ---- entering -------------------------------------------------------------------------------- */

/* In their order. */
static bool may_enter(const struct collective *c) {
    return c->team->lines.entered == c->first_use && has_room(c->team, &c->call, c->first_use);
}

static void write_line(const struct line_run *run) {
    weft_team_t *team = run->team;
    struct segment_line *line = &run->line[team->rank];
    const void *from = run->call->kind == COLL_BCAST ? run->call->dst : run->call->src;
    if (run->put) memcpy(part_of_line(run, team->rank), from, run->put);
    atomic_store_explicit(&line->left, team->lines.left, memory_order_relaxed);
    atomic_store_explicit(&line->use, run->use + 1, memory_order_release);
}

/* May this member's line have been the last that another needs? That of a scan needs those below
 * it, and among them all that are below this one. */
static bool completes(const struct line_run *run) {
    enum coll_readers readers = run->kind->readers;
    if (readers == FROM_ROOT) return true;
    uint32_t n = readers == FROM_BELOW ? run->team->rank : run->team->size;
    for (uint32_t r = 0; r < n; r++)
        if (!has_come(run, r)) return false;
    return true;
}

/* The others' lines cross while the fence waits for our own. */
static void fetch_lines(const struct line_run *run) {
    for (uint32_t r = 0; r < run->team->size; r++)
        if (r != run->team->rank && reads(run, r)) __builtin_prefetch(&run->line[r], 0);
}

/* Of those who write, the one whose fence is last sees all the lines: one of them wakes a member
 * that sleeps. Whether any sleeps is asked first: a look at a line that is not written yet takes it
 * away from its writer. */
static void enter_line(const struct line_run *run) {
    weft_team_t *team = run->team;
    team->lines.entered++;
    if (run->kind->readers == FROM_ROOT && !is_root(run)) return;
    if (team->per_core == 1) fetch_lines(run);
    write_line(run);
    atomic_thread_fence(memory_order_seq_cst);
    if (UNLIKELY(weft__shared_sleeps(team, FOR_NEWS)) && completes(run))
        weft__shared_wake_seen(team, FOR_NEWS);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* What a member's line has for this one. */
static const uint8_t *part_for_us(const struct line_run *run, uint32_t rank) {
    uint64_t offset = run->kind->blocks ? run->team->rank * run->bytes : 0;
    return part_of_line(run, rank) + offset;
}

/* Of the ranks below this number. */
static uint32_t folded_ranks(const struct line_run *run) {
    switch (run->call->kind) {
    case COLL_SCAN: return run->team->rank + 1;
    case COLL_EXSCAN: return run->team->rank;
    default: return run->team->size;
    }
}

static void oneshot_fold(const struct line_run *run) {
    const uint8_t *left = part_for_us(run, 0);
    uint32_t n = folded_ranks(run);
    if (n == 1) memcpy(run->call->dst, left, run->bytes);
    for (uint32_t r = 1; r < n; r++, left = run->call->dst)
        coll_reduce(run->call, run->call->dst, left, part_for_us(run, r), run->call->count);
}

static void gather_lines(const struct line_run *run) {
    uint64_t bytes = run->bytes;
    uint8_t *dst = run->call->dst;
    for (uint32_t r = 0; r < run->team->size; r++)
        memcpy(dst + r * bytes, part_for_us(run, r), bytes);
}

static void take_from_root(const struct line_run *run) {
    bool has_it = run->call->kind == COLL_BCAST && is_root(run);
    if (!has_it) memcpy(run->call->dst, part_for_us(run, run->call->root), run->bytes);
}

static void take_result(const struct line_run *run) {
    const struct line_use *use = run->kind;
    if (run->bytes == 0 || (use->readers == BY_ROOT && !is_root(run))) return;
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
        const struct segment_line *line = &run->line[r];
        if (r != run->team->rank && reads(run, r))
            note_left(&run->team->lines, r,
                      atomic_load_explicit(&line->left, memory_order_relaxed));
    }
}

/*
 * Fetches our next line for writing: the others have it since its last use. A member that only read
 * does so, too, since it may be the next root. It stands behind the fence, which would wait for it.
 */
static void take_next_line(const struct line_run *run) {
    const weft_team_t *team = run->team;
    if (team->per_core == 1 && run->put <= SEGMENT_PART)
        prefetch_to_write(segment_line(team->segment, run->use + 1, team->rank));
}

/*
 * Where each member waits for all, none is ahead of the others. Then our next line says that we
 * have left, unless it is written already. A member that runs ahead after that has room for one use
 * less, until we leave the next one. Our next line is not fetched for writing either: a reader may
 * look at it already, and would have to fetch it twice.
 */
static void publish_left(const struct line_run *run) {
    weft_team_t *team = run->team;
    const struct team_lines *lines = &team->lines;
    if (run->kind->readers == FROM_ALL && lines->left == lines->entered) return;
    atomic_store_explicit(&team->segment->member[team->rank].left, lines->left,
                          memory_order_release);
    weft__shared_wake(team, FOR_SPACE);
    take_next_line(run);
}

static void leave_line(const struct line_run *run) {
    struct team_lines *lines = &run->team->lines;
    take_result(run);
    learn_who_left(run);
    lines->left_by[run->team->rank] = ++lines->left;
    publish_left(run);
}

/* ---- within the call ------------------------------------------------------------------------- */

static bool lines_prepare_start(weft_team_t *team, const struct coll_call *call) {
    const struct team_lines *lines = &team->lines;
    return lines->left == lines->next && has_room(team, call, lines->next);
}

static inline uint32_t look_on(const void *arg, uint32_t rank, unsigned looks) {
    const struct line_run *run = arg;
    for (; rank < run->team->size; rank++)
        while (reads(run, rank) && !has_come(run, rank))
            if (looks-- == 0) return rank;
    return rank;
}

static uint64_t start_lines(weft_team_t *team, const struct coll_call *call, bool *over_p) {
    struct line_run run = new_run(team, call, team->lines.next++);
    weft__count(team->reactor)->coll_oneshot++;
    enter_line(&run);
    *over_p = look_within_call(team, look_on, &run);
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

static bool needs_space(const struct collective *c) {
    return !c->entered;
}

/* A line of it, or that it is through with a line of ours. */
static bool needs_line(const struct collective *c, uint32_t rank) {
    uint32_t ahead = most_ahead(c->team, &c->call);
    if (!c->entered && c->first_use >= left_by(c->team, rank) + ahead) return true;
    struct line_run run = run_of(c);
    return reads(&run, rank) && !has_come(&run, rank);
}

const struct coll_engine weft__oneshot = {.prepare = prepare_line,
                                          .prepare_start = lines_prepare_start,
                                          .start = start_lines,
                                          .advance = advance_line,
                                          .needs = needs_line,
                                          .may_move = may_move,
                                          .needs_space = needs_space};

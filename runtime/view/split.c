/*
 * Parts of a view. The exchange of a part is an allgather of the whole view, of which each part
 * takes what is its members'. So every member takes part, also one that is in no part.
 */
#include "view.h"

#include <base/check.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <base/hash.h>
#include <base/status.h>
#include <collectives/team.h>
#include <collectives/wire.h>
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <reactor/reactor.h>
#include <stdlib.h>
#include <string.h>
#include <talloc.h>

struct part_choice {
    uint32_t colour, key;
};

/* The engine of a part, and before that the split in progress. */
struct part {
    struct view_session session;
    weft_view_t *whole; /* one reference, until the view of the part has its own */
    weft_view_t *view;  /* NULL: this member is in no part */
    struct part_choice mine, *choice;
    uint32_t *rank;      /* in the whole, of each member of the part */
    struct round *round; /* of the exchange that is in progress; NULL: none */
    uint64_t deadline;   /* 0: none */
    void (*on_ready)(weft_view_t *part, weft_status_t status, void *arg);
    void *arg;
    struct job over; /* this member gets no part, with this status */
    weft_status_t status;
};

/* An allgather of the whole. It goes on when the part has given up, and is freed at its end. */
struct round {
    struct part *part; /* NULL: it has given up */
    void *into;        /* what the members of the part said */
    size_t len;
    weft_done_fn done;
    void *arg;
    uint8_t bytes[]; /* what this member says, then what every member of the whole said */
};

static const struct view_engine part_engine;

/* In ms, for an operation that begins now; 0: no deadline. */
static uint32_t time_left(const struct part *part) {
    uint64_t now = weft__now(part->whole->reactor);
    if (!part->deadline) return 0;
    return now < part->deadline ? (uint32_t)((part->deadline - now) / NS_PER_MS) + 1 : 1;
}

/* ---- the exchange of a part ---------------------------------------------------------------- */

static void pick(const struct round *round) {
    const struct part *part = round->part;
    const uint8_t *all = round->bytes + round->len;
    for (uint32_t i = 0; i < part->session.exchange.size; i++)
        memcpy((char *)round->into + i * round->len, all + part->rank[i] * round->len, round->len);
}

static void whole_exchanged(weft_status_t status, void *arg) {
    struct round *round = arg;
    if (round->part) {
        round->part->round = NULL;
        if (status == WEFT_OK) pick(round);
        round->done(status, round->arg);
    }
    talloc_free(round);
}

static weft_status_t allgather_part(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                    void *all, weft_done_fn done, void *done_arg) {
    struct part *part = arg;
    (void)worker;
    size_t bytes = len * (weft_view_size(part->whole) + 1);
    struct round *round = weft__alloc(NULL, sizeof *round + bytes, "exchange of a part");
    if (!round) return WEFT_ERR_NO_MEMORY;
    *round = (struct round){part, all, len, done, done_arg};
    memcpy(round->bytes, mine, len);
    weft_status_t st = weft_allgather(
        part->whole->team, round->bytes, round->bytes + len, len, WEFT_UINT8,
        &(weft_op_t){.done = whole_exchanged, .arg = round, .deadline_ms = time_left(part)});
    if (st == WEFT_IN_PROGRESS)
        part->round = round;
    else if (st == WEFT_OK)
        whole_exchanged(st, round);
    else
        talloc_free(round);
    return st;
}

static void cancel_part(void *arg) {
    struct part *part = arg;
    if (part->round) part->round->part = NULL;
    part->round = NULL;
}

/* ---- who is in it -------------------------------------------------------------------------- */

static bool before(const struct part_choice *choice, uint32_t a, uint32_t b) {
    return choice[a].key != choice[b].key ? choice[a].key < choice[b].key : a < b;
}

/* Insertion by (key, rank): the members of the whole come in the order of their ranks. */
static void gather_members(struct part *part) {
    uint32_t n = 0, me = weft_view_rank(part->whole);
    for (uint32_t r = 0; r < weft_view_size(part->whole); r++) {
        if (part->choice[r].colour != part->mine.colour) continue;
        uint32_t at = n++;
        for (; at > 0 && before(part->choice, r, part->rank[at - 1]); at--)
            part->rank[at] = part->rank[at - 1];
        part->rank[at] = r;
    }
    part->session.exchange.size = n;
    for (uint32_t i = 0; i < n; i++)
        if (part->rank[i] == me) part->session.exchange.rank = i;
}

/* ---- the split ----------------------------------------------------------------------------- */

static void hold_whole(weft_view_t *whole) {
    weft__view_hold(whole);
    whole->n_leaving++;
}
static void let_whole_go(weft_view_t *whole) {
    whole->n_leaving--;
    weft__view_let_go(whole);
}

static void notify_part(struct job *job) {
    struct part *part = container_of(job, struct part, over);
    weft_view_t *whole = part->whole;
    if (part->on_ready) part->on_ready(NULL, part->status, part->arg);
    weft__program_returned(whole->reactor);
    weft__free_later(whole->reactor, part);
    let_whole_go(whole);
}

/* From the run queue: the call may not have returned. */
static void part_is_over(struct part *part, weft_status_t status) {
    part->status = status;
    weft__job_post(part->whole->reactor, &part->over);
}

static void stood_by(weft_status_t status, void *arg) {
    part_is_over(arg, status);
}

/* One that is in no part helps the others' exchange, of records as long as theirs. */
static weft_status_t stand_by(struct part *part) {
    size_t len = MEMBER_RECORD_BYTES;
    uint8_t *room = weft__alloc(part, len * (weft_view_size(part->whole) + 1), "exchange");
    if (!room) return WEFT_ERR_NO_MEMORY;
    return weft_allgather(
        part->whole->team, room, room + len, len, WEFT_UINT8,
        &(weft_op_t){.done = stood_by, .arg = part, .deadline_ms = time_left(part)});
}

static weft_status_t begin_part(struct part *part) {
    weft_view_t *view = weft__view_new(part->whole->worker, part->whole);
    if (!view) return WEFT_ERR_NO_MEMORY;
    part->session.engine = &part_engine;
    part->session.exchange.allgather = allgather_part;
    part->session.exchange.cancel = cancel_part;
    part->session.exchange.arg = part;
    view->session = &part->session;
    view->on_ready = part->on_ready;
    view->arg = part->arg;
    part->view = view;
    weft_status_t st = weft__view_begin(view, time_left(part));
    if (st < 0) {
        part->view = NULL;
        view->session = NULL;
        weft__view_discard(view);
        return st;
    }
    talloc_steal(view, part);
    let_whole_go(part->whole); /* the view has its own */
    return WEFT_OK;
}

static void choices_known(weft_status_t status, void *arg) {
    struct part *part = arg;
    if (status == WEFT_OK) {
        gather_members(part);
        status = part->mine.colour == WEFT_NO_COLOUR ? stand_by(part) : begin_part(part);
        if (status == WEFT_IN_PROGRESS || (status == WEFT_OK && part->view)) return;
        /* The others have begun the exchange, and would wait for this member. */
        if (status < 0) weft__team_fail(part->whole->team, status, weft_view_rank(part->whole));
    }
    part_is_over(part, status);
}

static void stop_part(struct view_session *session) {
    (void)session;
}
static const struct view_engine part_engine = {"part", NULL, NULL, stop_part, NULL};

static struct part *new_part(weft_view_t *view, const weft_view_split_params_t *params) {
    uint32_t size = weft_view_size(view);
    struct part *part = weft__new(NULL, struct part);
    if (!part) return NULL;
    part->choice = weft__alloc(part, size * sizeof *part->choice, "choices");
    part->rank = weft__alloc(part, size * sizeof *part->rank, "ranks");
    if (!part->choice || !part->rank) {
        talloc_free(part);
        return NULL;
    }
    part->mine = (struct part_choice){params->colour, params->key};
    part->on_ready = params->on_ready;
    part->arg = params->arg;
    part->whole = view;
    part->over.run = notify_part;
    hold_whole(view);
    if (params->deadline_ms)
        part->deadline = weft__now(view->reactor) + params->deadline_ms * NS_PER_MS;
    return part;
}

/* A finalizer may use the view, but a part would hold what is about to end. */
static weft_status_t check_splittable(const weft_view_t *view) {
    if (view_is_releasing(&view->core.fsm))
        return weft__fail(WEFT_ERR_BUSY, "the view is being released");
    return weft__view_usable(view);
}

weft_status_t weft_view_split_sized(size_t params_size, weft_view_t *view,
                                    const weft_view_split_params_t *params) {
    weft_view_split_params_t known;
    if (!view) REFUSE("view", "NULL");
    if (!params) REFUSE("params", "NULL");
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = weft__params_read(&known, sizeof known, params, params_size);
    if (st == WEFT_OK) st = check_splittable(view);
    if (st < 0) return st;
    struct part *part = new_part(view, &known);
    if (!part) return WEFT_ERR_NO_MEMORY;
    st = weft_allgather(
        view->team, &part->mine, part->choice, sizeof part->mine, WEFT_UINT8,
        &(weft_op_t){.done = choices_known, .arg = part, .deadline_ms = known.deadline_ms});
    if (st == WEFT_OK) choices_known(st, part);
    if (st >= 0) return WEFT_OK;
    talloc_free(part);
    let_whole_go(view);
    return st;
}

/* ---- for programs without a loop of their own ---------------------------------------------- */

struct outcome {
    weft_view_t *part;
    weft_status_t status;
};

static void note_part(weft_view_t *part, weft_status_t status, void *arg) {
    *(struct outcome *)arg = (struct outcome){part, status};
}

weft_status_t weft_view_split_wait(weft_view_t *view, uint32_t colour, uint32_t key,
                                   weft_view_t **part_p) {
    struct outcome outcome = {NULL, WEFT_IN_PROGRESS};
    weft_view_split_params_t params = {
        .colour = colour, .key = key, .on_ready = note_part, .arg = &outcome};
    if (!part_p) REFUSE("part_p", "NULL");
    weft_status_t st = view ? weft__worker_check_wait(view->worker) : WEFT_OK;
    if (st == WEFT_OK) st = weft_view_split(view, &params);
    if (st == WEFT_OK) st = weft__worker_wait_for(view->worker, &outcome.status);
    if (st == WEFT_OK)
        *part_p = outcome.part;
    else
        weft_view_release_wait(outcome.part);
    return st;
}

/* ---- by what processes share ----------------------------------------------------------------- */

/* Equal for those that share it; 0: this process has none. */
static uint64_t shared_id(const weft_resource_set_t *set, weft_partition_t by) {
    if (by == WEFT_BY_GPU) return set->n_gpus ? set->gpu[0].id : 0;
    uint64_t id = hash_more(HASH_BEGIN, &set->host_id, sizeof set->host_id);
    return by == WEFT_BY_HOST ? id : hash_more(id, &set->numa_node, sizeof set->numa_node);
}

weft_status_t weft_view_partition_wait(weft_view_t *view, weft_partition_t by,
                                       weft_view_t **part_p) {
    if (!view) REFUSE("view", "NULL");
    if (!part_p) REFUSE("part_p", "NULL");
    if ((unsigned)by > WEFT_BY_GPU) REFUSE("by", "unknown");
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = check_splittable(view);
    if (st < 0) return st;
    uint64_t mine = shared_id(weft_view_mine(view), by);
    uint64_t *all = weft__alloc(view, weft_view_size(view) * sizeof *all, "what is shared");
    if (!all) return WEFT_ERR_NO_MEMORY;
    uint32_t first = 0;
    st = weft_allgather_wait(view->team, &mine, all, 1, WEFT_UINT64);
    while (st == WEFT_OK && all[first] != mine) first++;
    talloc_free(all);
    if (st < 0) return st;
    return weft_view_split_wait(view, mine ? first : WEFT_NO_COLOUR, 0, part_p);
}

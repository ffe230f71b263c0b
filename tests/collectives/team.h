/* Several workers of one process, driven in turn, and teams of them over an exchange in memory. */
#ifndef WEFT_TESTS_COLLECTIVES_TEAM_H
#define WEFT_TESTS_COLLECTIVES_TEAM_H

#include "../harness.h"
#include "../network.h"
#include <stdbool.h>
#include <stdint.h>
#include <tests/support/clock.h>
#include <weft/weft.h>

#ifndef CREW_MOST /* a test of larger teams says so before */
#define CREW_MOST 17
#endif
enum { MOST_RANKS = CREW_MOST };

/* The exchange: each rank's bytes wait until all are there; then everybody's `done` is called
 * from pump(). */
struct copy_ctl {
    uint32_t size, arrived, notified;
    struct copy_ctl_seat {
        struct copy_ctl *copy_ctl;
        const void *mine;
        void *all;
        size_t len;
        weft_done_fn done;
        void *arg;
        bool cancelled;
    } seat[MOST_RANKS];
    weft_exchange_t exchange[MOST_RANKS];
};

struct rank {
    struct crew *crew;
    weft_worker_t *worker;
    weft_team_t *team;
    weft_status_t ready, outcome; /* WEFT_IN_PROGRESS until notified */
    int ready_calls, outcome_calls;
    bool closed;
};

struct crew {
    weft_context_t *context;
    uint32_t size, ranks_per_core; /* of the teams' parameters; 0: they find out */
    struct copy_ctl copy_ctl;
    struct rank rank[MOST_RANKS];
};

static inline weft_status_t copy_ctl_allgather(void *arg, weft_worker_t *worker, const void *mine,
                                               size_t len, void *all, weft_done_fn done,
                                               void *done_arg) {
    struct copy_ctl_seat *seat = arg;
    *seat = (struct copy_ctl_seat){seat->copy_ctl, mine, all, len, done, done_arg, false};
    seat->copy_ctl->arrived++;
    return WEFT_IN_PROGRESS;
}

static inline void copy_ctl_cancel(void *arg) {
    ((struct copy_ctl_seat *)arg)->cancelled = true;
}

static inline void copy_ctl_make(struct copy_ctl *b, uint32_t size) {
    memset(b, 0, sizeof *b);
    b->size = size;
    for (uint32_t r = 0; r < size; r++) {
        b->seat[r].copy_ctl = b;
        b->exchange[r] =
            (weft_exchange_t){r, size, copy_ctl_allgather, copy_ctl_cancel, &b->seat[r]};
    }
}

/* One rank's exchange ends a call, so that some members are ahead of others. */
static inline void copy_ctl_pump(struct copy_ctl *b) {
    if (b->arrived < b->size || b->notified == b->size) return;
    struct copy_ctl_seat *seat = &b->seat[b->notified++];
    if (seat->cancelled) return;
    for (uint32_t r = 0; r < b->size; r++)
        memcpy((char *)seat->all + r * seat->len, b->seat[r].mine, seat->len);
    seat->done(WEFT_OK, seat->arg);
}

/* Returns whether any rank found anything. */
static inline bool crew_turn(struct crew *c) {
    bool found = false;
    copy_ctl_pump(&c->copy_ctl);
    for (uint32_t r = 0; r < c->size; r++)
        if (c->rank[r].worker && weft_worker_progress(c->rank[r].worker, 0) > 0) found = true;
    return found;
}

/* Drives all until `cond`; fails the test after a minute. */
#define UNTIL(crew, cond)                                                     \
    do {                                                                      \
        double until_end = test_now() + test_timeout(60);                     \
        while (!(cond) && test_now() < until_end) test_idle(crew_turn(crew)); \
        CHECK(cond);                                                          \
    } while (0)

static inline void on_team_ready(weft_team_t *team, weft_status_t status, void *arg) {
    struct rank *r = arg;
    r->ready = status;
    r->ready_calls++;
}

static inline bool all_ready(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++)
        if (c->rank[r].team && c->rank[r].ready == WEFT_IN_PROGRESS) return false;
    return true;
}

static inline void crew_workers_by(struct crew *c, uint32_t size, const char *transports,
                                   const weft_context_params_t *params) {
    memset(c, 0, sizeof *c);
    c->size = size;
    CHECK_EQ(weft_context_create(params, &c->context), WEFT_OK);
    for (uint32_t r = 0; r < size; r++) {
        c->rank[r].crew = c;
        CHECK_EQ(weft_worker_create(c->context, &(weft_worker_params_t){.transports = transports},
                                    &c->rank[r].worker),
                 WEFT_OK);
    }
}

static inline void crew_workers(struct crew *c, uint32_t size, const char *transports,
                                const weft_setting_t *settings, size_t n_settings) {
    weft_context_params_t params = {.settings = settings, .n_settings = n_settings};
    crew_workers_by(c, size, transports, &params);
}

static inline void crew_begin_teams(struct crew *c, uint32_t deadline_ms) {
    copy_ctl_make(&c->copy_ctl, c->size);
    for (uint32_t r = 0; r < c->size; r++) {
        struct rank *rank = &c->rank[r];
        rank->ready = WEFT_IN_PROGRESS;
        rank->ready_calls = 0;
        CHECK_EQ(weft_team_create(rank->worker,
                                  &(weft_team_params_t){.exchange = &c->copy_ctl.exchange[r],
                                                        .on_ready = on_team_ready,
                                                        .arg = rank,
                                                        .ranks_per_core = c->ranks_per_core,
                                                        .deadline_ms = deadline_ms},
                                  &rank->team),
                 WEFT_OK);
        CHECK_EQ(rank->ready_calls, 0);
    }
}

/* However short the settings are. */
static inline void crew_teams(struct crew *c) {
    crew_begin_teams(c, (uint32_t)(test_timeout(60) * 1e3));
    UNTIL(c, all_ready(c));
    for (uint32_t r = 0; r < c->size; r++) {
        CHECK_EQ(c->rank[r].ready, WEFT_OK);
        CHECK_EQ(c->rank[r].ready_calls, 1);
    }
}

static inline void crew_up(struct crew *c, uint32_t size, const char *transports,
                           const char *setting, const char *value) {
    weft_setting_t one = {setting, value};
    crew_workers(c, size, transports, &one, setting != NULL);
    crew_teams(c);
}

static inline void on_outcome(weft_status_t status, void *arg) {
    struct rank *r = arg;
    r->outcome = status;
    r->outcome_calls++;
}

#define OP_OF(rank_)                       \
    &(weft_op_t) {                         \
        .done = on_outcome, .arg = (rank_) \
    }

/* Notes what a call answered: at once, or later by on_outcome. */
static inline void posted(struct rank *r, weft_status_t st) {
    CHECK_EQ(r->outcome_calls, 0);
    if (st != WEFT_IN_PROGRESS) on_outcome(st, r);
}
static inline void expect_outcome(struct rank *r) {
    r->outcome = WEFT_IN_PROGRESS;
    r->outcome_calls = 0;
}
static inline bool all_notified(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++)
        if (c->rank[r].team && !c->rank[r].outcome_calls) return false;
    return true;
}

/* Runs `call`, which may use `r` (the rank's number) and `me`, at every rank, and waits for all
 * outcomes. */
#define EVERYBODY(crew, call)                                                         \
    do {                                                                              \
        for (uint32_t r = 0; r < (crew)->size; r++) expect_outcome(&(crew)->rank[r]); \
        for (uint32_t r = 0; r < (crew)->size; r++) {                                 \
            struct rank *me = &(crew)->rank[r];                                       \
            posted(me, (call));                                                       \
        }                                                                             \
        UNTIL(crew, all_notified(crew));                                              \
    } while (0)

/* Each member says that it has a core of its own, though one thread drives all: a call that looks
 * finds those that were called before it, and no others. */
static inline void crew_of_cores(struct crew *c, uint32_t size) {
    crew_workers(c, size, "self,shm", NULL, 0);
    c->ranks_per_core = 1;
    crew_teams(c);
    EVERYBODY(c, weft_barrier(me->team, OP_OF(me))); /* takes what later ones need */
}

static inline void on_closed(weft_status_t status, void *arg) {
    ((struct rank *)arg)->closed = true;
}
static inline bool all_closed(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++)
        if (c->rank[r].team && !c->rank[r].closed) return false;
    return true;
}
static inline void crew_close_teams(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++) {
        c->rank[r].closed = false;
        if (!c->rank[r].team) continue;
        CHECK_EQ(
            weft_team_close(c->rank[r].team, &(weft_op_t){.done = on_closed, .arg = &c->rank[r]}),
            WEFT_IN_PROGRESS);
    }
    UNTIL(c, all_closed(c));
    for (uint32_t r = 0; r < c->size; r++) c->rank[r].team = NULL;
}
/* The member dies: its worker is gone with its connections, and says nothing more. */
static inline void vanish(struct crew *c, uint32_t r) {
    weft_worker_destroy(c->rank[r].worker);
    c->rank[r].worker = NULL;
    c->rank[r].team = NULL;
}

static inline void on_worker_closed(weft_status_t status, void *arg) {
    ((struct rank *)arg)->worker = NULL;
}
static inline bool no_workers(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++)
        if (c->rank[r].worker) return false;
    return true;
}
/* All at once, for the end of a connection takes both its sides. */
static inline void crew_down(struct crew *c) {
    crew_close_teams(c);
    for (uint32_t r = 0; r < c->size; r++) {
        weft_op_t op = {.done = on_worker_closed, .arg = &c->rank[r]};
        if (c->rank[r].worker)
            CHECK_EQ(weft_worker_close(c->rank[r].worker, &op), WEFT_IN_PROGRESS);
    }
    UNTIL(c, no_workers(c));
    CHECK_EQ(weft_context_destroy(c->context), WEFT_OK);
}

#endif

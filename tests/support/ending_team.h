/* A team of two, of which one works by a resource that ends while a collective is in progress. */
#ifndef WEFT_TESTS_SUPPORT_ENDING_TEAM_H
#define WEFT_TESTS_SUPPORT_ENDING_TEAM_H

#include <tests/support/worker_pair.h>

struct ending_team {
    struct ending_seat {
        const void *mine;
        void *all;
        size_t len;
        weft_done_fn done;
        void *arg;
    } seat[2];
    weft_team_t *team[2];
    struct tally ready[2], barrier; /* of the first, which waits for the second */
    char described[512];            /* its failure */
};

static inline weft_status_t ending_allgather(void *arg, weft_worker_t *worker, const void *mine,
                                             size_t len, void *all, weft_done_fn done,
                                             void *done_arg) {
    *(struct ending_seat *)arg = (struct ending_seat){mine, all, len, done, done_arg};
    return WEFT_OK;
}

static inline void ending_ready(weft_team_t *team, weft_status_t status, void *arg) {
    tally(status, arg);
}

static inline void ending_barrier(weft_status_t status, void *arg) {
    struct ending_team *e = arg;
    weft_status_describe(status, e->described, sizeof e->described);
    tally(status, &e->barrier);
}

/* It is ready after some turns of both. */
static inline void ending_team_begin(struct ending_team *e, weft_worker_t *first,
                                     weft_worker_t *second) {
    memset(e, 0, sizeof *e);
    for (uint32_t r = 0; r < 2; r++) {
        weft_exchange_t exchange = {r, 2, ending_allgather, NULL, &e->seat[r]};
        weft_team_params_t params = {
            .exchange = &exchange, .on_ready = ending_ready, .arg = &e->ready[r]};
        CHECK_EQ(weft_team_create(r ? second : first, &params, &e->team[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        for (int from = 0; from < 2; from++)
            memcpy((char *)e->seat[r].all + from * e->seat[r].len, e->seat[from].mine,
                   e->seat[r].len);
        e->seat[r].done(WEFT_OK, e->seat[r].arg);
    }
}

static inline bool ending_team_is_ready(const struct ending_team *e) {
    return e->ready[0].calls && e->ready[1].calls;
}

static inline void ending_team_waits(struct ending_team *e) {
    weft_op_t op = {.done = ending_barrier, .arg = e};
    CHECK(e->ready[0].status == WEFT_OK && e->ready[1].status == WEFT_OK);
    CHECK_EQ(weft_barrier(e->team[0], &op), WEFT_IN_PROGRESS);
}

/* Its collective has ended with the worker, whose team is gone then. */
static inline void ending_team_ended(const struct ending_team *e, weft_status_t status) {
    CHECK_EQ(e->barrier.calls, 1);
    CHECK_EQ(e->barrier.status, status);
    if (e->barrier.status != status) printf("  %s\n", e->described);
}

#endif

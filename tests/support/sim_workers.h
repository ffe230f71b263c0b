/* Workers in virtual time: made on a clock, and closed with it. */
#ifndef WEFT_TESTS_SIM_WORKERS_H
#define WEFT_TESTS_SIM_WORKERS_H

#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <tests/harness.h>
#include <transports/sim/sim.h>
#include <weft/weft.h>

static inline weft_worker_t *sim_worker(weft_context_t *context, struct reactor_clock *clock,
                                        const weft_worker_params_t *params) {
    struct reactor *r;
    weft_worker_t *worker;
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){.virtual_clock = clock}, &r),
             WEFT_OK);
    CHECK_EQ(weft__worker_create_on(r, params, &worker), WEFT_OK);
    return worker;
}

static inline void sim_count_closed(weft_status_t status, void *n) {
    *(int *)n += status == WEFT_OK;
}

/* Closes `n` workers, and then the clock and the context are gone. */
static inline void sim_end(weft_context_t *context, struct reactor_clock *clock,
                           weft_worker_t *const *worker, int n) {
    int closed = 0;
    for (int i = 0; i < n; i++)
        CHECK_EQ(
            weft_worker_close(worker[i], &(weft_op_t){.done = sim_count_closed, .arg = &closed}),
            WEFT_IN_PROGRESS);
    for (int i = 0; i < 100000 && closed < n; i++) weft__clock_turn(clock);
    CHECK_EQ(closed, n);
    for (int i = 0; i < 10; i++) weft__clock_turn(clock);
    talloc_free(clock);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

#endif

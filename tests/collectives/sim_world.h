/* Teams in virtual time, over a network that fails on command. */
#ifndef WEFT_TESTS_COLLECTIVES_SIM_WORLD_H
#define WEFT_TESTS_COLLECTIVES_SIM_WORLD_H

#include "team.h"
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <transports/sim/sim.h>

struct world {
    struct crew crew;
    struct reactor_clock *clock;
    struct sim_fabric *fabric;
};

/* Until `cond`, within a minute of virtual time. */
#define RUN_UNTIL(w, cond)                                             \
    do {                                                               \
        uint64_t run_end = weft__clock_now((w)->clock) + 60000000000u; \
        while (!(cond) && weft__clock_now((w)->clock) < run_end) {     \
            copy_ctl_pump(&(w)->crew.copy_ctl);                        \
            if (!weft__clock_turn((w)->clock)) break;                  \
        }                                                              \
        CHECK(cond);                                                   \
    } while (0)

/* Every member begins to create the team. */
static inline void world_begin(struct world *w, uint32_t size, uint64_t seed,
                               const struct sim_profile *profile) {
    struct crew *c = &w->crew;
    memset(w, 0, sizeof *w);
    c->size = size;
    CHECK_EQ(weft_context_create(NULL, &c->context), WEFT_OK);
    w->clock = weft__clock_create(NULL, seed);
    w->fabric = weft__sim_create(w->clock, seed, profile);
    CHECK(w->clock && w->fabric);
    weft__sim_use(w->fabric);
    for (uint32_t r = 0; r < size; r++) {
        struct reactor *reactor;
        CHECK_EQ(weft__reactor_create(c->context,
                                      &(struct reactor_params){.virtual_clock = w->clock,
                                                               .seed = seed * 100 + r + 1},
                                      &reactor),
                 WEFT_OK);
        CHECK_EQ(weft__worker_create_on(reactor, &(weft_worker_params_t){.transports = "self,sim"},
                                        &c->rank[r].worker),
                 WEFT_OK);
        c->rank[r].crew = c;
    }
    crew_begin_teams(c, 20000);
}

static inline void world_up(struct world *w, uint32_t size, uint64_t seed,
                            const struct sim_profile *profile) {
    world_begin(w, size, seed, profile);
    RUN_UNTIL(w, all_ready(&w->crew) && w->crew.copy_ctl.notified == size);
}

static inline void world_down(struct world *w) {
    struct crew *c = &w->crew;
    for (uint32_t r = 0; r < c->size; r++) {
        weft_op_t op = {.done = on_worker_closed, .arg = &c->rank[r]};
        if (c->rank[r].worker)
            CHECK_EQ(weft_worker_close(c->rank[r].worker, &op), WEFT_IN_PROGRESS);
    }
    RUN_UNTIL(w, no_workers(c));
    weft__sim_use(NULL);
    talloc_free(w->clock);
    CHECK_EQ(weft_context_destroy(c->context), WEFT_OK);
}

#endif

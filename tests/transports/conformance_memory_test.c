/* Memory runs out at the k-th allocation, for every k, while a lane is dialed, used and closed. */
#include "conformance.h"

static void drive_some(struct pair *p, struct end *end) {
    double give_up = test_now() + 1;
    while (end->n_open == 0 && end->n_down == 0 && test_now() < give_up) pair_turn(p);
}

static void no_memory_fails_only_the_call(const struct subject *s) {
    uint64_t made = 1;
    for (uint64_t k = 1; k <= made; k++) {
        struct pair p;
        begin(&p, s->transport, s->flags);
        weft__alloc_fail_at(k);
        if (pair_dial(&p, &p.a, &p.b) == WEFT_OK) drive_some(&p, &p.a);
        for (uint64_t i = 0; p.a.n_open && !p.a.n_down && i < 6; i++) {
            struct counted c = counted(1);
            enum form form = (enum form)(i % N_FORMS);
            struct spec spec = {i, form, is_short(form) ? 20 : 5000, 0, 1};
            if (post(p.a.lane, &spec, &c.completion) == WEFT_IN_PROGRESS)
                CHECK(pair_until(&p, c.calls == 1));
        }
        if (p.a.lane) {
            p.a.lane->ops->close(p.a.lane, true);
            CHECK(pair_until(&p, p.a.n_closed == 1));
        }
        made = weft__alloc_fail_at(0);
        pair_turns(&p, 30);
        pair_close(&p);
        if (k > 500) break;
    }
}

#define CASES(C, s) C(s, no_memory_fails_only_the_call)

SUBJECTS(TESTS_OF)

/* Which tactics a ring keeps, for round trips whose length depends on them. */
#include <tests/harness.h>
#include <transports/shm/queues/tactics.h>

/* What a tactic does to a round trip of 1,000 ticks, in ticks. */
struct machine {
    int effect[N_TACTICS];
    int noise;     /* each window is up to this longer */
    unsigned load; /* every so many windows one is ten times as long; 0: none */
};

struct asker {
    struct tactics tactics;
    uint64_t now, seed, windows;
};

static uint32_t random_of(uint64_t *seed, uint32_t end) {
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % end;
}

static struct asker asker_of(uint64_t seed) {
    struct asker a = {.now = 1000, .seed = seed};
    tactics_init(&a.tactics, (uint32_t)seed);
    return a;
}

static uint64_t round_trip(const struct tactics *t, const struct machine *m) {
    int ticks = 1000;
    for (unsigned i = 0; i < N_TACTICS; i++)
        if (tactics_use(t, 1u << i)) ticks += m->effect[i];
    return (uint64_t)ticks;
}

static void window(struct asker *a, const struct machine *m) {
    unsigned longer = m->noise ? random_of(&a->seed, (uint32_t)m->noise) : 0;
    unsigned times = m->load && ++a->windows % m->load == 0 ? 10 : 1;
    for (int n = 0; n < TACTICS_WINDOW; n++) {
        a->now += times * (round_trip(&a->tactics, m) + longer);
        if (tactics_answer(&a->tactics, 1)) weft__tactics_turn(&a->tactics, a->now);
    }
}

static void windows(struct asker *a, const struct machine *m, unsigned n) {
    while (n--) window(a, m);
}

enum { LEARNED = 400, FOLLOWED = 3000 }; /* windows until it has to be right */

static const struct machine near = {{350, 40, 60, 0, 50}, 20, 0};
static const struct machine far = {{-120, -200, -100, -50, -40}, 20, 0};
static const struct machine mixed = {{300, -200, 80, -60, 100}, 20, 0};

TEST(near_cores_keep_what_costs_nothing) {
    struct asker a = asker_of(1);
    windows(&a, &near, LEARNED);
    CHECK_EQ(a.tactics.kept & ~TACTIC_AHEAD, 0);
}

TEST(far_cores_keep_all) {
    struct asker a = asker_of(2);
    windows(&a, &far, LEARNED);
    CHECK_EQ(a.tactics.kept, TACTICS_ALL);
}

TEST(each_tactic_is_judged_alone) {
    struct asker a = asker_of(3);
    windows(&a, &mixed, LEARNED);
    CHECK_EQ(a.tactics.kept, TACTIC_OWN | TACTIC_AHEAD);
}

TEST(cores_that_move_are_followed) {
    struct asker a = asker_of(4);
    for (int i = 0; i < 4; i++) {
        windows(&a, &near, FOLLOWED);
        CHECK_EQ(a.tactics.kept & ~TACTIC_AHEAD, 0);
        windows(&a, &far, FOLLOWED);
        CHECK_EQ(a.tactics.kept, TACTICS_ALL);
    }
}

TEST(load_on_the_machine_decides_nothing) {
    struct machine loaded = near;
    loaded.load = 3;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct asker a = asker_of(seed);
        windows(&a, &loaded, 2 * LEARNED);
        CHECK_EQ(a.tactics.kept & ~TACTIC_AHEAD, 0);
    }
}

TEST(what_gains_less_than_noise_is_left_as_it_is) {
    struct machine same = {{5, -5, 5, -5, 5}, 20, 0};
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct asker a = asker_of(seed);
        windows(&a, &same, FOLLOWED);
        CHECK_EQ(a.tactics.kept, TACTICS_ALL);
    }
}

TEST(two_that_try_at_the_same_time_both_learn) {
    /* Each side sees what both cost. */
    static const struct machine both = {.effect = {350, 160, 200, 0, 160}, .noise = 0, .load = 0};
    struct asker a = asker_of(5), b = asker_of(6);
    for (unsigned i = 0; i < 4 * LEARNED; i++) {
        for (int n = 0; n < TACTICS_WINDOW; n++) {
            uint64_t took = round_trip(&a.tactics, &both) + round_trip(&b.tactics, &both);
            a.now += took, b.now += took;
            if (tactics_answer(&a.tactics, 1)) weft__tactics_turn(&a.tactics, a.now);
            if (tactics_answer(&b.tactics, 1)) weft__tactics_turn(&b.tactics, b.now);
        }
    }
    CHECK_EQ(a.tactics.kept & ~TACTIC_AHEAD, 0);
    CHECK_EQ(b.tactics.kept & ~TACTIC_AHEAD, 0);
}

TEST(streams_give_no_result) {
    struct asker a = asker_of(7);
    for (unsigned i = 0; i < LEARNED; i++) {
        for (int n = 0; n < TACTICS_WINDOW; n++) {
            a.now += round_trip(&a.tactics, &near);
            if (tactics_answer(&a.tactics, 16)) weft__tactics_turn(&a.tactics, a.now);
        }
    }
    CHECK_EQ(a.tactics.kept, TACTICS_ALL);
}

TEST(trials_are_rare_once_nothing_changes) {
    struct asker a = asker_of(8);
    unsigned switched = 0;
    windows(&a, &far, FOLLOWED);
    for (unsigned i = 0; i < FOLLOWED; i++) {
        window(&a, &far);
        switched += a.tactics.used != a.tactics.kept;
    }
    CHECK(switched < FOLLOWED / 16);
}

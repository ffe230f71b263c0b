/* Virtual time: it moves only when nothing is left to do, and a run is a function of its
 * seed. */
#include <base/compiler.h>
#include <base/counters.h>
#include <reactor/virtual.h>
#include <tests/harness.h>

enum { ACTORS = 5 };

struct world;
struct actor;
struct actor_timer {
    struct timer timer;
    struct actor *actor;
};
struct actor {
    struct world *world;
    struct reactor *r;
    struct actor_timer timers[3];
    struct job job;
    int number, left;
};
struct world {
    struct reactor_clock *clock;
    weft_context_t *context;
    struct actor actors[ACTORS];
    uint64_t hash; /* of everything that happened, in order */
    unsigned events;
};

static void note(struct actor *a, uint64_t what) {
    a->world->hash =
        (a->world->hash ^ (what + (uint64_t)a->number * 97 + weft__now(a->r))) * 1099511628211u;
    a->world->events++;
}

static void again(struct actor *a, struct timer *timer) {
    if (a->left-- > 0) weft__timer_start(a->r, timer, weft__now(a->r) + weft__random(a->r) % 1000);
}

static void run(struct job *job) {
    struct actor *a = container_of(job, struct actor, job);
    note(a, 1000);
}

static void fire(struct timer *timer) {
    struct actor *a = ((struct actor_timer *)timer)->actor;
    note(a, (uint64_t)((struct actor_timer *)timer - a->timers));
    struct actor *other = &a->world->actors[weft__random(a->r) % ACTORS];
    weft__job_post(other->r, &other->job);
    again(a, timer);
}

static void open_world(struct world *world, uint64_t seed) {
    memset(world, 0, sizeof *world);
    CHECK_EQ(weft_context_create(NULL, &world->context), WEFT_OK);
    world->clock = weft__clock_create(NULL, seed);
    for (int i = 0; i < ACTORS; i++) {
        struct actor *a = &world->actors[i];
        *a = (struct actor){.world = world, .number = 100 + i, .left = 200, .job.run = run};
        CHECK_EQ(weft__reactor_create(world->context,
                                      &(struct reactor_params){.virtual_clock = world->clock},
                                      &a->r),
                 WEFT_OK);
        for (int t = 0; t < 3; t++) {
            a->timers[t] = (struct actor_timer){.timer.fire = fire, .actor = a};
            weft__timer_start(a->r, &a->timers[t].timer, weft__now(a->r) + 10);
        }
    }
}

static void close_world(struct world *world) {
    for (int i = 0; i < ACTORS; i++) weft__reactor_destroy(world->actors[i].r);
    talloc_free(world->clock);
    CHECK_EQ(weft_context_destroy(world->context), WEFT_OK);
}

static uint64_t outcome(uint64_t seed, unsigned *events_p) {
    struct world world;
    open_world(&world, seed);
    while (weft__clock_turn(world.clock))
        ;
    close_world(&world);
    if (events_p) *events_p = world.events;
    return world.hash;
}

TEST(same_seed_same_order_and_another_seed_another) {
    unsigned events;
    uint64_t first = outcome(1, &events);
    CHECK(events > 1000);
    CHECK(outcome(1, NULL) == first);
    CHECK(outcome(2, NULL) != first);
}

static bool never(void *arg) {
    return false;
}
static bool thousand_events(void *arg) {
    return ((struct world *)arg)->events >= 1000;
}

TEST(time_moves_only_to_the_next_timer) {
    struct world world;
    open_world(&world, 3);
    CHECK_EQ(weft__clock_now(world.clock), 1000000000);
    CHECK(weft__clock_turn(world.clock));
    CHECK_EQ(weft__clock_now(world.clock), 1000000010);
    CHECK_EQ(world.events, 0);
    CHECK(weft__clock_turn(world.clock));
    CHECK(world.events >= 3 * ACTORS);
    CHECK_EQ(weft__clock_now(world.clock), 1000000010);
    close_world(&world);
}

TEST(run_ends_when_it_holds_or_the_time_is_up) {
    struct world world;
    open_world(&world, 4);
    CHECK(weft__clock_run(world.clock, thousand_events, &world, UINT64_MAX));
    CHECK(world.events < 1200);
    uint64_t begin = weft__clock_now(world.clock);
    CHECK(!weft__clock_run(world.clock, never, NULL, 1000));
    CHECK_EQ(weft__clock_now(world.clock), begin + 1000);
    while (weft__clock_turn(world.clock))
        ;
    /* nothing is left: it passes all the same */
    CHECK(!weft__clock_run(world.clock, never, NULL, 5000000));
    CHECK(weft__clock_now(world.clock) >= begin + 5000000);
    CHECK(!weft__clock_turn(world.clock));
    /* and without an end it is no use to wait */
    CHECK(!weft__clock_run(world.clock, never, NULL, UINT64_MAX));
    close_world(&world);
}

TEST(wait_passes_virtual_time) {
    struct world world;
    open_world(&world, 5);
    struct reactor *r = world.actors[0].r;
    CHECK_EQ(weft__reactor_wait(r, 1), WEFT_OK);
    while (weft__clock_turn(world.clock))
        ;
    uint64_t begin = weft__clock_now(world.clock);
    CHECK_EQ(weft__reactor_wait(r, 3600000), WEFT_ERR_TIMED_OUT);
    CHECK(weft__clock_now(world.clock) <= begin + 3600000000000u);
    CHECK_EQ(weft__reactor_fd(r), WEFT_ERR_UNSUPPORTED);
    close_world(&world);
}

static struct reactor *victim;
static void destroy_victim(struct job *job) {
    weft__reactor_destroy(victim);
}

TEST(reactor_may_leave_in_the_midst_of_a_turn) {
    weft_context_t *context;
    struct reactor *r[3];
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    struct reactor_clock *clock = weft__clock_create(NULL, 1);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(
            weft__reactor_create(context, &(struct reactor_params){.virtual_clock = clock}, &r[i]),
            WEFT_OK);
    for (int i = 0; i < 2; i++) { /* the next one, then itself */
        struct job job = {.run = destroy_victim};
        victim = i == 0 ? r[1] : r[0];
        weft__job_post(r[0], &job);
        while (weft__clock_turn(clock))
            ;
    }
    weft__reactor_destroy(r[2]);
    talloc_free(clock);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

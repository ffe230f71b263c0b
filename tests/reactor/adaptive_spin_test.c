/* How long waits look: two that put each other to sleep do not stay so, and slow traffic is not
 * looked for. All in simulated time. */
#include <tests/harness.h>

#include <reactor/adaptive_spin.h>

enum { US = 1000, MOST = 50 * US, AUX_LOOK = MOST / SPIN_COLD, HOT_LOOK = MOST / SPIN_HOT };
/* ns: a message's way, and what signalling a sleeper keeps its sender busy */
enum { LINE = 150, WRITE = 2 * US };

struct side {
    struct spin spin;
    uint64_t waits_since, wakes_in;
    uint64_t looked, in_vain, slept, sleeps, finds; /* ever */
};

/* What comes at `at` ends this side's wait; returns when, and whether it slept. */
static uint64_t wait_for(struct side *s, uint64_t at, bool *slept_p) {
    uint64_t look = spin_look(&s->spin), sleep_at = s->waits_since + look;
    bool found = look && at <= sleep_at;
    if (found) look = at > s->waits_since ? at - s->waits_since : 0;
    if (look || found) spin_looked(&s->spin, look, found);
    s->looked += look;
    *slept_p = !found;
    s->finds += found;
    if (found) return s->waits_since + look;
    s->in_vain += look;
    uint64_t up_at = (at > sleep_at ? at : sleep_at) + s->wakes_in;
    spin_slept(&s->spin, up_at - sleep_at);
    s->slept += up_at - sleep_at;
    s->sleeps++;
    return up_at;
}

/* Two that send to and fro, one message at a time. */
struct pair {
    struct side side[2];
    unsigned sender;
    uint64_t now;
};

/* One message; whether its receiver slept. */
static bool pass(struct pair *p) {
    struct side *from = &p->side[p->sender], *to = &p->side[1 - p->sender];
    bool slept;
    uint64_t got = wait_for(to, p->now + LINE, &slept);
    from->waits_since = p->now + (slept ? WRITE : 0);
    p->now = got;
    p->sender = 1 - p->sender;
    return slept;
}

static unsigned seed;
static uint64_t between(uint64_t least, uint64_t most) {
    return least + (uint64_t)rand_r(&seed) % (most - least + 1);
}

/* Both sleep: a message has not come for long. */
static struct pair open_pair(uint64_t wake) {
    struct side side = {.spin.most = MOST, .wakes_in = wake};
    return (struct pair){.side = {side, side}, .now = 100 * MOST};
}

/* What one side has to save, at an eighth of its sleeps, which are at least half of its time. */
enum { SOON = 2 * SPIN_SAVES * MOST };

/* Neither sleeps for a hundred messages, before long. */
static bool is_soon_hot(struct pair *p) {
    uint64_t begin = p->now;
    for (int awake = 0; awake < 100; awake = pass(p) ? 0 : awake + 1)
        if (p->now - begin > SOON) return false;
    return true;
}

TEST(a_pair_that_sleeps_is_hot_soon_and_stays_so) {
    for (uint64_t wake = 5 * US; wake < MOST; wake += US) {
        struct pair p = open_pair(wake);
        CHECK(is_soon_hot(&p));
        for (int i = 0; i < 2000; i++) CHECK(!pass(&p));
    }
}

TEST(a_pair_is_hot_soon_whatever_its_wake_ups_take) {
    for (seed = 1; seed <= 2000; seed++) {
        struct pair p = open_pair(0);
        uint64_t begin = p.now, slowest = between(5, 45) * US;
        for (int awake = 0; awake < 10; awake = pass(&p) ? 0 : awake + 1) {
            for (int i = 0; i < 2; i++) p.side[i].wakes_in = between(slowest / 4, slowest);
            CHECK(p.now - begin <= SOON);
        }
    }
}

TEST(a_side_that_was_away_does_not_end_it) {
    for (uint64_t away = US; away <= 4000 * US; away += away / 2) {
        struct pair p = open_pair(20 * US);
        for (int times = 0; times < 100; times++) {
            CHECK(is_soon_hot(&p));
            p.now += away;
            pass(&p);
            if (times % 2) pass(&p); /* the other side is away next time */
        }
    }
}

/* One side waits for what comes at these distances; what it sends takes no time. */
static uint64_t recv_msg(struct side *s, uint64_t least, uint64_t most, int messages) {
    uint64_t now = 0;
    bool slept;
    for (int i = 0; i < messages; i++) {
        s->waits_since = now;
        now = wait_for(s, now + between(least, most), &slept);
    }
    return now;
}

TEST(slow_traffic_is_not_looked_for) {
    struct side s = {.spin.most = MOST, .wakes_in = 20 * US};
    seed = 7;
    recv_msg(&s, 2 * MOST + AUX_LOOK, 20000 * US, 10000);
    CHECK_EQ(s.looked, 10000ull * AUX_LOOK);
}

TEST(regular_traffic_is_looked_for_a_bounded_part_of_the_time) {
    for (uint64_t gap = HOT_LOOK + 5 * US; gap <= 1000 * US; gap += US) {
        struct side s = {.spin.most = MOST, .wakes_in = 15 * US};
        uint64_t took = recv_msg(&s, gap, gap, 10000);
        CHECK(s.looked <= took / 4);
    }
}

TEST(looks_in_vain_are_paid_for_whatever_comes) {
    for (seed = 1; seed <= 500; seed++) {
        struct side s = {.spin.most = MOST, .wakes_in = between(1, 60) * US};
        for (int spell = 0; spell < 20; spell++) {
            uint64_t least = between(0, 100) * (spell % 3 ? 20 : US);
            recv_msg(&s, least, least + between(0, 300) * (spell % 5 ? 30 : US), 200);
            CHECK(s.in_vain <= s.slept / SPIN_SAVES + s.sleeps * AUX_LOOK + s.finds * HOT_LOOK);
        }
    }
}

TEST(who_must_not_look_does_not) {
    struct side s = {.wakes_in = 10 * US};
    recv_msg(&s, 100, 200 * US, 1000);
    CHECK_EQ(s.looked, 0);
    CHECK_EQ(s.sleeps, 1000);
}

/* A yield on an idle core is slow once in ten to fifty times, and a look has dozens. */
TEST(yields_slow_by_chance_are_no_oversubscription) {
    struct oversubscription p = {0};
    for (unsigned i = 0; i < 100; i++) {
        for (unsigned slow = 1; slow < SLOW_YIELDS; slow++) {
            oversubscription_yielded(&p, true);
            CHECK(!p.is_seen);
        }
        oversubscription_yielded(&p, false);
        CHECK(!p.is_seen);
    }
    for (unsigned slow = 1; slow <= 2 * SLOW_YIELDS; slow++) {
        oversubscription_yielded(&p, true);
        CHECK_EQ(p.is_seen, slow >= SLOW_YIELDS);
    }
    oversubscription_yielded(&p, false); /* no other thread ran */
    CHECK(!p.is_seen);
}

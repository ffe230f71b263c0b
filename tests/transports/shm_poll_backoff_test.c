/* When an answer is looked for, in simulated time. */
#include <tests/harness.h>
#include <transports/shm/queues/poll_backoff.h>

enum {
    TURN = 20 /* ticks between two looks */,
    STOLEN = 120 /* later, for a look shortly before */
};

/* A peer that sends, and polls for answers. */
struct asker {
    struct backoff backoff;
    uint64_t now, sent;
    uint32_t looks;
    unsigned turn;
    uint64_t delay;  /* of all answers, from when they were there until they were found */
    unsigned firsts; /* answers that the first look found */
};

static void turn(struct asker *a) {
    a->now += a->turn ? a->turn : TURN;
}

/* The answer is there `after` ticks; a look that comes shortly before delays it, if `stealing`. */
static void ask(struct asker *a, uint64_t after, bool stealing) {
    uint64_t there = a->now + after;
    bool first = true;
    a->sent++;
    for (;; turn(a)) {
        if (a->sent != a->backoff.sent) {
            if (backoff_is_kept(&a->backoff) && backoff_holds(&a->backoff, a->now)) continue;
            backoff_end(&a->backoff, a->sent, a->looks);
        }
        if (a->now >= there) break;
        if (first && stealing && there - a->now < 2 * STOLEN) there += STOLEN;
        first = false;
        a->looks++;
    }
    backoff_learn(&a->backoff, a->looks, 1);
    a->looks = 0;
    a->delay += a->now - there;
    a->firsts += first;
}

static void forget(struct asker *a) {
    a->delay = a->firsts = 0;
}

static uint32_t random_of(uint64_t *seed, uint32_t end) {
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % end;
}

enum { ANSWERS = 10000 };

TEST(answers_that_come_evenly_are_there_at_the_first_look) {
    static const unsigned times[] = {300, 600, 900, 1800};
    for (unsigned t = 0; t < 4; t++) {
        struct asker a = {.now = 1};
        uint64_t seed = 7;
        for (int i = 0; i < ANSWERS; i++) ask(&a, times[t] + random_of(&seed, 30), true);
        forget(&a);
        for (int i = 0; i < ANSWERS; i++) ask(&a, times[t] + random_of(&seed, 30), true);
        CHECK(a.firsts > ANSWERS * 7 / 10);
        CHECK(a.delay / ANSWERS < 60);
    }
}

TEST(no_backoff_outlasts_the_most) {
    struct asker a = {.now = 1};
    for (int i = 0; i < ANSWERS; i++) {
        ask(&a, 4000, false);
        CHECK(a.backoff.length <= BACKOFF_MOST);
    }
}

TEST(no_backoff_outlasts_ticks_that_go_back) {
    struct asker a = {.now = 1000000};
    for (int i = 0; i < 1000; i++) ask(&a, 900, true);
    CHECK(backoff_is_kept(&a.backoff));
    a.sent++;
    CHECK(backoff_holds(&a.backoff, a.now));
    CHECK(!backoff_holds(&a.backoff, a.now - 500000));
    CHECK(!backoff_holds(&a.backoff, a.backoff.until));
    CHECK(backoff_holds(&a.backoff, a.backoff.until - 1));
}

TEST(answers_that_come_late_are_not_waited_for) {
    struct asker a = {.now = 1};
    for (int i = 0; i < 1000; i++) ask(&a, 900, true);
    CHECK(backoff_is_kept(&a.backoff));
    for (int i = 0; i < 1000; i++) ask(&a, 100000, true);
    CHECK(!backoff_is_kept(&a.backoff));
}

TEST(who_looks_slow_is_not_slowed) {
    struct asker a = {.now = 1, .turn = 3000};
    for (int i = 0; i < ANSWERS; i++) ask(&a, 600, false);
    CHECK_EQ(a.now, 1 + (uint64_t)ANSWERS * 3000);
}

TEST(quick_answers_among_slow_ones_wait_little) {
    struct asker a = {.now = 1};
    for (int i = 0; i < ANSWERS; i++) ask(&a, i % 2 ? 500 : 1800, false);
    forget(&a);
    for (int i = 0; i < ANSWERS; i++) ask(&a, i % 2 ? 500 : 1800, false);
    CHECK(a.delay / ANSWERS < 100);
}

TEST(messages_that_are_no_answers_wait_little) {
    /* what is no answer comes at any time */
    static const unsigned within[] = {1000, 3000, 10000, 100000};
    for (unsigned w = 0; w < 4; w++) {
        struct asker a = {.now = 1};
        uint64_t seed = 3 + w;
        for (int i = 0; i < ANSWERS; i++) ask(&a, random_of(&seed, within[w]), false);
        CHECK(a.delay / ANSWERS < 350);
    }
}

TEST(many_messages_at_once_end_the_backoff) {
    struct asker a = {.now = 1};
    for (int i = 0; i < 1000; i++) ask(&a, 900, true);
    CHECK(backoff_is_kept(&a.backoff));
    for (int i = 0; i < 8; i++) {
        backoff_end(&a.backoff, ++a.sent, 0);
        backoff_learn(&a.backoff, 0, 2);
    }
    CHECK(!backoff_is_kept(&a.backoff));
}

TEST(who_slept_looks_at_once) {
    struct asker a = {.now = 1};
    for (int i = 0; i < ANSWERS; i++) ask(&a, 600, true);
    a.sent++;
    CHECK(backoff_holds(&a.backoff, a.now));
    backoff_end(&a.backoff, a.sent, a.looks);
    CHECK_EQ(a.backoff.sent, a.sent);
    CHECK_EQ(a.backoff.until, 0);
}

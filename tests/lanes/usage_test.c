/* The usage tracker: which links are promoted, and which are not, over traffic drawn from a
 * seed. */
#include <tests/harness.h>

#include <endpoints/lanes/usage.h>
#include <reactor/reactor.h>

enum { MS = 1000000, TICK = 100 * MS, KEYS = 100000 };

static uint64_t seed;
static uint64_t rnd(void) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed >> 33;
}

/* What the hooks reported, for each key. */
static char key[KEYS];
static struct {
    bool promoted, barred, refused;
    uint32_t promotions, demotions;
} seen[KEYS];
static uint32_t promotions, demotions, n_promoted;
static uint64_t now;

static size_t index_of(void *k) {
    return (size_t)((char *)k - key);
}

static bool may(void *k, void *arg) {
    return !seen[index_of(k)].barred;
}

static bool on_promote(void *k, uint64_t score, void *arg) {
    size_t i = index_of(k);
    if (seen[i].refused) return false;
    if (seen[i].promoted || seen[i].barred) abort();
    seen[i].promoted = true;
    seen[i].promotions++;
    promotions++;
    n_promoted++;
    return true;
}

static void on_demote(void *k, uint64_t score, void *arg) {
    size_t i = index_of(k);
    if (!seen[i].promoted) abort();
    seen[i].promoted = false;
    seen[i].demotions++;
    demotions++;
    n_promoted--;
}

static const struct usage_hooks hooks = {
    .eligible = may, .promote = on_promote, .demote = on_demote};

static struct usage *begin_with(struct usage_params p, const struct usage_hooks *notified) {
    memset(seen, 0, sizeof seen);
    promotions = demotions = n_promoted = 0;
    seed = 7;
    now = 1000 * (uint64_t)MS;
    struct usage *u = weft__usage_new(NULL, &p, notified, now);
    if (!u) abort();
    return u;
}
static struct usage *begin(struct usage_params p) {
    return begin_with(p, &hooks);
}

static bool tick(struct usage *u) {
    now += TICK;
    return weft__usage_tick(u, now);
}

/* A link that carries `rate` units a second, as bytes, for a tick. */
static void carry(struct usage *u, size_t i, uint64_t rate) {
    weft__usage_touch(u, &key[i], 0, rate / 10);
}

/* `n_hot` links of `n`, each touched `hot_touches` times a tick with 64 messages; each other one
 * that sends in this tick of a single message. All in an order drawn again. */
static void mixed_tick(struct usage *u, size_t n, const size_t *hot, size_t n_hot,
                       unsigned hot_touches, unsigned idle_percent) {
    static size_t order[KEYS];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_hot = false;
        for (size_t h = 0; h < n_hot; h++) is_hot |= hot[h] == i;
        for (unsigned t = 0; is_hot && t < hot_touches; t++) order[len++] = i;
        if (!is_hot && rnd() % 100 < idle_percent) order[len++] = i;
    }
    for (size_t at = len; at > 1; at--) {
        size_t other = rnd() % at, was = order[at - 1];
        order[at - 1] = order[other];
        order[other] = was;
    }
    for (size_t at = 0; at < len; at++) {
        bool is_hot = false;
        for (size_t h = 0; h < n_hot; h++) is_hot |= hot[h] == order[at];
        weft__usage_touch(u, &key[order[at]], is_hot ? 64 : 1, is_hot ? 64 * 64 : 64);
    }
}

static const size_t eight[] = {3, 141, 159, 265, 358, 589, 793, 999};

static bool all_promoted(const size_t *hot, size_t n) {
    for (size_t h = 0; h < n; h++)
        if (!seen[hot[h]].promoted) return false;
    return n_promoted == n;
}

TEST(eight_hot_links_among_a_thousand_are_found_within_three_ticks_and_kept) {
    struct usage *u = begin((struct usage_params){.capacity = 8});
    for (int t = 0; t < 3; t++) mixed_tick(u, 1000, eight, 8, 20, 30), tick(u);
    CHECK(all_promoted(eight, 8));
    for (int t = 0; t < 500; t++) mixed_tick(u, 1000, eight, 8, 20, 30), tick(u);
    CHECK(all_promoted(eight, 8));
    CHECK_EQ(promotions, 8);
    CHECK_EQ(demotions, 0);
    talloc_free(u);
}

TEST(ten_thousand_links_that_send_now_and_then_do_not_push_hot_ones_out_of_the_list) {
    struct usage *u = begin((struct usage_params){.capacity = 8});
    for (int t = 0; t < 3; t++) mixed_tick(u, 10000, eight, 8, 16, 100), tick(u);
    CHECK(all_promoted(eight, 8));
    CHECK_EQ(promotions, 8);
    talloc_free(u);
}

TEST(of_links_touched_alike_the_last_ones_are_noted) {
    struct usage *u = begin((struct usage_params){.capacity = 8, .recent = 8});
    for (size_t i = 0; i < 100; i++) weft__usage_touch(u, &key[i], 1, 0);
    for (size_t i = 92; i < 96; i++)
        weft__usage_touch(u, &key[i], 0, 0); /* used again: older ones go before them */
    for (size_t i = 100; i < 104; i++) weft__usage_touch(u, &key[i], 1, 0);
    tick(u);
    for (size_t i = 0; i < 104; i++)
        CHECK_EQ(weft__usage_score(u, &key[i]) > 0, i >= 100 || (i >= 92 && i < 96));
    talloc_free(u);
}

TEST(links_that_send_now_and_then_get_no_place_even_if_some_are_free) {
    struct usage *u = begin((struct usage_params){.capacity = 8});
    for (int t = 0; t < 200; t++) mixed_tick(u, 1000, eight, 4, 20, 50), tick(u);
    CHECK(all_promoted(eight, 4));
    CHECK_EQ(promotions, 4);
    talloc_free(u);
}

/* Ten minutes of equal links, each touched 30 ± 15 times a tick. */
TEST(all_to_all_of_32_links_with_8_places_does_not_cycle) {
    struct usage *u = begin((struct usage_params){.capacity = 8});
    for (int t = 0; t < 6000; t++) {
        for (int i = 0; i < 32; i++)
            for (unsigned n = 15 + rnd() % 31; n > 0; n--) weft__usage_touch(u, &key[i], 64, 4096);
        tick(u);
    }
    CHECK_EQ(n_promoted, 8);
    CHECK_EQ(promotions, 8);
    CHECK_EQ(demotions, 0);
    talloc_free(u);
}

TEST(an_idle_link_is_demoted_and_then_no_tick_is_needed) {
    struct usage *u = begin((struct usage_params){.capacity = 8, .floor = 1000000});
    for (int t = 0; t < 20; t++) carry(u, 5, 100000000), tick(u);
    CHECK(seen[5].promoted);
    int ticks = 0;
    while (tick(u)) ticks++;
    CHECK(!seen[5].promoted);
    CHECK(ticks > 10 && ticks < 30); /* 0.8^24 < 1/200 */
    CHECK_EQ(demotions, 1);
    while (ticks++ < 200) tick(u);
    uint32_t at = 0;
    CHECK(weft__usage_next(u, &at) == NULL); /* and nothing is remembered of it */
    talloc_free(u);
}

/* It is not a matter of having no place: half the rate that earned it one keeps it. */
TEST(a_link_keeps_its_place_down_to_the_floor_by_the_factor) {
    struct usage *u = begin((struct usage_params){.capacity = 2, .floor = 1000000, .factor = 200});
    for (int t = 0; t < 50; t++) carry(u, 1, 999000), tick(u);
    CHECK_EQ(promotions, 0);
    for (int t = 0; t < 50; t++) carry(u, 1, 1010000), tick(u);
    CHECK(seen[1].promoted);
    for (int t = 0; t < 100; t++) carry(u, 1, 510000), tick(u);
    CHECK(seen[1].promoted);
    for (int t = 0; t < 100; t++) carry(u, 1, 490000), tick(u);
    CHECK(!seen[1].promoted);
    talloc_free(u);
}

TEST(a_challenger_must_outscore_an_incumbent_by_the_factor) {
    struct usage *u = begin((struct usage_params){.capacity = 1, .floor = 1000, .factor = 150});
    for (int t = 0; t < 50; t++) carry(u, 1, 1000000), tick(u);
    for (int t = 0; t < 100; t++) carry(u, 1, 1000000), carry(u, 2, 1490000), tick(u);
    CHECK(seen[1].promoted);
    CHECK_EQ(promotions, 1);
    for (int t = 0; t < 100; t++) carry(u, 1, 1000000), carry(u, 2, 1510000), tick(u);
    CHECK(!seen[1].promoted && seen[2].promoted);
    /* And back only by the same. */
    for (int t = 0; t < 100; t++) carry(u, 1, 2200000), carry(u, 2, 1510000), tick(u);
    CHECK(seen[2].promoted);
    CHECK_EQ(promotions, 2);
    CHECK(weft__usage_outscores(u, 151, 100) && !weft__usage_outscores(u, 150, 100));
    talloc_free(u);
}

/* Each within the factor of the next, so "equal" pairwise; the best of them is not. A tie by
 * difference has no order here. */
TEST(a_chain_of_links_that_are_nearly_equal_has_one_order) {
    struct usage *u = begin((struct usage_params){.capacity = 2, .floor = 1000, .factor = 200});
    static const uint64_t rate[] = {1000000, 1700000, 2800000, 4600000, 7500000};
    for (int t = 0; t < 200; t++) {
        for (int i = 4; i >= 0; i--) carry(u, (size_t)i, rate[i]);
        tick(u);
    }
    CHECK(seen[4].promoted && seen[3].promoted);
    CHECK_EQ(promotions, 2);
    talloc_free(u);
}

TEST(the_peers_view_keeps_a_link_that_only_receives) {
    struct usage *u = begin((struct usage_params){.capacity = 2, .floor = 1000000});
    CHECK(weft__usage_adopt(u, &key[9]));
    seen[9].promoted = true;
    n_promoted++;
    weft__usage_min_score(u, &key[9], 50000000);
    for (int t = 0; t < 100; t++) CHECK(tick(u));
    CHECK(seen[9].promoted);
    CHECK_EQ(weft__usage_score(u, &key[9]), 50000000);
    weft__usage_min_score(u, &key[9], 0);
    tick(u);
    CHECK(!seen[9].promoted);
    talloc_free(u);
}

TEST(the_peer_may_claim_any_score) {
    struct usage *u = begin((struct usage_params){.capacity = 2, .floor = 1000000});
    CHECK(weft__usage_adopt(u, &key[9]));
    seen[9].promoted = true;
    n_promoted++;
    weft__usage_min_score(u, &key[9], UINT64_MAX);
    for (int t = 0; t < 100; t++) CHECK(tick(u));
    CHECK(seen[9].promoted);
    CHECK(weft__usage_score(u, &key[9]) > UINT64_MAX / 4);
    talloc_free(u);
}

TEST(the_peers_view_of_a_link_that_was_denied_grows_old) {
    struct usage *u = begin((struct usage_params){.capacity = 1, .floor = 1000000});
    seen[9].barred = true;
    weft__usage_min_score(u, &key[9], 50000000);
    CHECK(tick(u));
    int ticks = 0;
    while (tick(u)) ticks++;
    CHECK(ticks < 30);
    CHECK_EQ(promotions, 0);
    talloc_free(u);
}

TEST(a_link_that_may_not_be_asked_leaves_its_place_to_the_next_and_demotes_no_one) {
    struct usage *u = begin((struct usage_params){.capacity = 1, .floor = 1000});
    for (int t = 0; t < 50; t++) carry(u, 1, 1000000), tick(u);
    seen[2].barred = true;
    for (int t = 0; t < 50; t++) carry(u, 1, 1000000), carry(u, 2, 90000000), tick(u);
    CHECK(seen[1].promoted);
    CHECK_EQ(demotions, 0);
    talloc_free(u);
}

TEST(a_place_that_was_refused_goes_to_the_next_and_is_offered_again) {
    struct usage *u = begin((struct usage_params){.capacity = 1, .floor = 1000});
    seen[2].refused = true;
    for (int t = 0; t < 10; t++) carry(u, 1, 1000000), carry(u, 2, 1500000), tick(u);
    CHECK(seen[1].promoted);
    seen[2].refused = false;
    for (int t = 0; t < 50; t++) carry(u, 1, 1000000), carry(u, 2, 3000000), tick(u);
    CHECK(seen[2].promoted && !seen[1].promoted);
    talloc_free(u);
}

TEST(a_released_link_may_be_promoted_again_and_a_forgotten_one_begins_again) {
    struct usage *u = begin((struct usage_params){.capacity = 1, .floor = 1000});
    for (int t = 0; t < 10; t++) carry(u, 1, 1000000), tick(u);
    weft__usage_release(u, &key[1]);
    CHECK_EQ(demotions, 0);
    CHECK_EQ(weft__usage_n_promoted(u), 0);
    seen[1].promoted = false;
    carry(u, 1, 1000000), tick(u);
    CHECK(seen[1].promoted);
    weft__usage_forget(u, &key[1]);
    CHECK_EQ(demotions, 0);
    CHECK_EQ(weft__usage_n_promoted(u), 0);
    CHECK_EQ(weft__usage_score(u, &key[1]), 0);
    seen[1].promoted = false;
    CHECK(!tick(u)); /* nothing is left of it */
    uint32_t at = 0;
    CHECK(weft__usage_next(u, &at) == NULL);
    talloc_free(u);
}

TEST(no_more_are_adopted_than_there_are_places) {
    struct usage *u = begin((struct usage_params){.capacity = 2});
    CHECK(weft__usage_adopt(u, &key[1]) && weft__usage_adopt(u, &key[2]) &&
          weft__usage_adopt(u, &key[1]));
    CHECK(!weft__usage_adopt(u, &key[3]));
    weft__usage_release(u, &key[1]);
    CHECK(weft__usage_adopt(u, &key[3]));
    CHECK_EQ(weft__usage_n_promoted(u), 2);
    /* However often that is repeated between two ticks. */
    for (size_t i = 0; i < 10000; i++) {
        CHECK(!weft__usage_adopt(u, &key[100 + i]));
        weft__usage_touch(u, &key[20000 + i], 1, 1);
        weft__usage_release(u, &key[i ? 99 + i : 3]);
        CHECK(weft__usage_adopt(u, &key[100 + i]));
    }
    CHECK_EQ(weft__usage_n_promoted(u), 2);
    talloc_free(u);
}

static struct usage *within;
static bool forgets(void *k, uint64_t score, void *arg) {
    for (size_t i = 0; i < 20; i++)
        if (rnd() % 2) weft__usage_forget(within, &key[i]);
    for (size_t i = 0; i < 20; i++)
        if (rnd() % 2) weft__usage_touch(within, &key[i], 1, rnd());
    if (rnd() % 2) weft__usage_adopt(within, &key[rnd() % 20]);
    return rnd() % 2;
}
static void demotes(void *k, uint64_t score, void *arg) {
    (void)forgets(k, score, arg);
}

TEST(hooks_may_forget_touch_and_adopt) {
    struct usage_hooks wild = {.promote = forgets, .demote = demotes};
    struct usage *u = within =
        begin_with((struct usage_params){.capacity = 8, .floor = 1, .recent = 8}, &wild);
    for (int t = 0; t < 5000; t++) {
        for (size_t i = 0; i < 20; i++) weft__usage_touch(u, &key[i], 1, rnd() % 1000000);
        if (rnd() % 2) weft__usage_early(u);
        CHECK(weft__usage_n_promoted(u) <= 8);
        tick(u);
        CHECK(weft__usage_n_promoted(u) <= 8);
    }
    talloc_free(u);
}

/* A touch says when a tick may change something: one message now and then starts no timer. */
TEST(only_what_may_reach_the_floor_asks_for_a_tick) {
    struct usage *u =
        begin((struct usage_params){.capacity = 8, .floor = 1000000, .message = 1000});
    CHECK(!weft__usage_touch(u, &key[1], 1, 100));
    CHECK(!weft__usage_touch(u, &key[1], 90, 0));
    CHECK(weft__usage_touch(u, &key[1], 10, 0));
    CHECK_EQ(weft__usage_due(u), now + TICK);
    CHECK(weft__usage_tick(u, now + TICK - 1)); /* too early: nothing is scored */
    CHECK_EQ(weft__usage_score(u, &key[1]), 0);
    CHECK(!tick(u));
    CHECK_EQ((weft__usage_score(u, &key[1]) + 1) / 10, (101 * 1000 + 100) / 5);
    talloc_free(u);
}

TEST(where_places_are_free_a_link_that_carried_enough_does_not_wait_for_the_tick) {
    struct usage *u = begin((struct usage_params){.capacity = 1, .floor = 1000000});
    CHECK_EQ(weft__usage_touch(u, &key[1], 0, 499999),
             USAGE_TICK); /* of which a tick makes a fifth, in a tenth of a second */
    weft__usage_early(u);
    CHECK_EQ(promotions, 0);
    CHECK_EQ(weft__usage_touch(u, &key[1], 0, 1), USAGE_EARLY);
    CHECK_EQ(weft__usage_touch(u, &key[1], 0, 1000000), USAGE_TICK); /* reported once */
    CHECK_EQ(promotions, 0);
    weft__usage_early(u);
    CHECK(seen[1].promoted);
    CHECK_EQ(weft__usage_score(u, &key[1]), 3000000);
    CHECK_EQ(weft__usage_due(u), now + TICK);
    CHECK_EQ(weft__usage_touch(u, &key[2], 0, 10000000), USAGE_TICK); /* no place is free */
    weft__usage_early(u);
    CHECK_EQ(n_promoted, 1);
    CHECK(tick(u));
    CHECK(!seen[1].promoted && seen[2].promoted); /* the tick decides as ever */
    talloc_free(u);
}

TEST(a_link_that_may_not_be_asked_is_not_promoted_early_and_notified_once_a_tick) {
    struct usage *u = begin((struct usage_params){.capacity = 1, .floor = 1000000});
    seen[1].barred = true;
    CHECK_EQ(weft__usage_touch(u, &key[1], 0, 1000000), USAGE_EARLY);
    for (int i = 0; i < 10; i++) {
        weft__usage_early(u);
        CHECK_EQ(weft__usage_touch(u, &key[1], 0, 1000000), USAGE_TICK);
    }
    tick(u);
    seen[1].barred = false;
    CHECK_EQ(weft__usage_touch(u, &key[1], 0, 1000000), USAGE_EARLY);
    weft__usage_early(u);
    CHECK(seen[1].promoted);
    talloc_free(u);
}

/* Late ticks: the bytes count as carried evenly over the time that passed, and a score fades as
 * by as many ticks. */
TEST(a_late_tick_scores_as_the_ones_that_were_missed) {
    struct usage *on_time = begin((struct usage_params){.capacity = 1, .floor = 1}), *late = NULL;
    late = weft__usage_new(NULL, &(struct usage_params){.capacity = 1}, NULL, now);
    for (int t = 0; t < 20; t++) carry(on_time, 1, 1000000), carry(late, 1, 1000000), tick(on_time);
    weft__usage_tick(late, now);
    long long a = (long long)weft__usage_score(on_time, &key[1]),
              b = (long long)weft__usage_score(late, &key[1]);
    CHECK(a - b <= 1 && b - a <= 1);
    for (int t = 0; t < 5; t++) tick(on_time);
    weft__usage_tick(late, now);
    a = (long long)weft__usage_score(on_time, &key[1]),
    b = (long long)weft__usage_score(late, &key[1]);
    CHECK(a - b <= 1 && b - a <= 1);
    talloc_free(on_time);
    talloc_free(late);
}

static size_t memory_with(size_t n_keys) {
    struct usage *u = begin((struct usage_params){.capacity = 64});
    for (int t = 0; t < 20; t++) {
        for (size_t i = 0; i < n_keys; i++) weft__usage_touch(u, &key[i], 64, rnd() % 100000);
        tick(u);
    }
    size_t size = talloc_total_size(u);
    CHECK_EQ(size, weft__usage_size(u));
    talloc_free(u);
    return size;
}

TEST(memory_is_equal_for_ten_links_and_for_a_hundred_thousand) {
    size_t few = memory_with(10), many = memory_with(100000);
    printf("  %zu bytes\n", few);
    CHECK_EQ(few, many);
    CHECK(few < 32 * 1024);
}

TEST(nothing_is_allocated_after_creation) {
    struct usage *u = begin((struct usage_params){.capacity = 8});
    weft__alloc_fail_at(0);
    for (int t = 0; t < 50; t++) mixed_tick(u, 1000, eight, 8, 20, 100), tick(u);
    weft__usage_min_score(u, &key[5], 77);
    CHECK(weft__usage_adopt(u, &key[3]));
    CHECK_EQ(weft__alloc_fail_at(0), 0);
    talloc_free(u);
}

TEST(creation_without_memory_fails) {
    weft__alloc_fail_at(1);
    CHECK(weft__usage_new(NULL, &(struct usage_params){.capacity = 8}, NULL, 0) == NULL);
    weft__alloc_fail_at(0);
}

/* A sum of units that does not fit counts as the most there is, and so does a score. */
TEST(the_heaviest_messages_give_the_greatest_score) {
    struct usage *u =
        begin((struct usage_params){.tick = MS, .decay = 1, .capacity = 1, .message = UINT64_MAX});
    for (int i = 0; i < 3; i++) {
        CHECK(weft__usage_touch(u, &key[0], 2, 128) != USAGE_NOTHING);
        CHECK(weft__usage_touch(u, &key[0], 1, 64) != USAGE_NOTHING);
        now += MS;
        weft__usage_tick(u, now);
        CHECK(seen[0].promoted);
        CHECK_EQ(weft__usage_score(u, &key[0]), UINT64_MAX / 2);
        CHECK_EQ(weft__usage_seen(u, &key[0]), UINT64_MAX / 2);
    }
    talloc_free(u);
}

TEST(extreme_parameters_are_brought_into_bounds) {
    struct usage *u = begin((struct usage_params){.tick = 1,
                                                  .decay = 4000000000,
                                                  .factor = 1,
                                                  .recent = 1,
                                                  .capacity = 4000000000,
                                                  .message = 1,
                                                  .floor = 1});
    for (int t = 0; t < 100; t++) {
        for (size_t i = 0; i < 5000; i++)
            weft__usage_touch(u, &key[i], UINT64_MAX / 3, UINT64_MAX / 5);
        tick(u);
    }
    CHECK(n_promoted <= 4096);
    CHECK(weft__usage_size(u) < 4 << 20);
    talloc_free(u);
}

/* ---- against a model that is as plain as can be */

enum { N = 16, CAPACITY = 5 };
static const double FLOOR = 100000, FACTOR = 1.7, DECAY = 0.7;
static struct {
    double score, min, gathered;
    bool promoted;
} model[N];

static double model_score(int i) {
    return model[i].score > model[i].min ? model[i].score : model[i].min;
}
static double model_rank(int i) {
    return model_score(i) * (model[i].promoted ? FACTOR : 1);
}
static int by_rank(const void *a, const void *b) {
    double x = model_rank(*(const int *)a), y = model_rank(*(const int *)b);
    return (x < y) - (x > y);
}

static void model_tick(void) {
    int order[N];
    bool gone[N] = {false};
    uint32_t places = CAPACITY, n = 0;
    for (int i = 0; i < N; i++) {
        model[i].score = DECAY * model[i].score + (1 - DECAY) * (model[i].gathered / 0.1);
        if (!model[i].promoted) model[i].min *= DECAY;
        model[i].gathered = 0;
        order[i] = i;
    }
    qsort(order, N, sizeof *order, by_rank);
    for (int r = 0; r < N; r++) {
        int i = order[r];
        bool fits = model[i].promoted ? model_score(i) >= FLOOR / FACTOR
                                      : model_score(i) >= FLOOR && !seen[i].barred;
        if (fits && places > 0)
            places--;
        else if (model[i].promoted)
            model[i].promoted = false, gone[i] = true;
    }
    for (int i = 0; i < N; i++) n += model[i].promoted;
    for (int r = 0; r < N && n < CAPACITY; r++) {
        int i = order[r];
        if (model[i].promoted || gone[i] || seen[i].barred || seen[i].refused ||
            model_score(i) < FLOOR)
            continue;
        model[i].promoted = true;
        n++;
    }
    for (int i = 0; i < N; i++)
        if (!model[i].promoted && model_score(i) < 1) model[i].score = model[i].min = 0;
}

static void random_word(struct usage *u) {
    size_t i = rnd() % N;
    switch (rnd() % 6) {
    case 0:
        weft__usage_forget(u, &key[i]), memset(&model[i], 0, sizeof model[i]),
            seen[i].promoted = false;
        break;
    case 1: weft__usage_release(u, &key[i]), model[i].promoted = seen[i].promoted = false; break;
    case 2: {
        uint64_t min = rnd() % 3 ? 1 + rnd() % 400000 : 0;
        weft__usage_min_score(u, &key[i], min), model[i].min = (double)min;
        break;
    }
    case 3:
        if (weft__usage_adopt(u, &key[i])) model[i].promoted = seen[i].promoted = true;
        break;
    case 4: seen[i].barred = !seen[i].promoted && rnd() % 2; break;
    default: seen[i].refused = rnd() % 2; break;
    }
}

TEST(a_naive_model_promotes_and_demotes_the_same_over_random_traffic) {
    for (uint64_t s = 1; s <= 50; s++) {
        struct usage *u = begin((struct usage_params){
            .capacity = CAPACITY, .floor = 100000, .factor = 170, .decay = 70});
        memset(model, 0, sizeof model);
        seed = s;
        uint64_t hot = 0;
        for (int t = 0; t < 1000; t++) {
            if (rnd() % 20 == 0) hot = rnd();
            for (int i = 0; i < N; i++) {
                uint64_t messages = rnd() % 3, bytes = rnd() % (hot >> i & 1 ? 60000 : 3000);
                if (rnd() % 3 == 0) continue;
                weft__usage_touch(u, &key[i], messages, bytes);
                model[i].gathered += (double)(messages * 4096 + bytes);
            }
            if (rnd() % 5 == 0) random_word(u);
            tick(u);
            model_tick();
            uint32_t n = 0;
            for (int i = 0; i < N; i++) {
                CHECK_EQ(weft__usage_promoted(u, &key[i]), model[i].promoted);
                CHECK_EQ(seen[i].promoted, model[i].promoted);
                CHECK_EQ(weft__usage_score(u, &key[i]), (uint64_t)model_score(i));
                n += model[i].promoted;
            }
            CHECK_EQ(weft__usage_n_promoted(u), n);
            CHECK(n <= CAPACITY);
        }
        CHECK(promotions > 100 && demotions > 50);
        talloc_free(u);
    }
}

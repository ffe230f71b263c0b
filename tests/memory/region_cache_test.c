/* The cache of registrations: intervals found again, the oldest leave, and what overlaps is cut
 * out. */
#include <endpoints/memory/region_cache.h>
#include <talloc.h>
#include <tests/harness.h>

static struct region_cache cache;
static void *root;

static void begin(uint32_t regions, size_t bytes) {
    root = talloc_new(NULL);
    weft__region_cache_init(&cache, regions, bytes);
}
static void end(void) {
    talloc_free(root);
}
static struct cached *add(uintptr_t base, uintptr_t stop, unsigned rights) {
    struct cached *entry = talloc_zero(root, struct cached);
    entry->base = base;
    entry->end = stop;
    entry->rights = rights;
    CHECK_EQ(weft__region_cache_add(&cache, root, entry), 0);
    return entry;
}

TEST(what_holds_the_range_and_the_rights_is_found) {
    begin(100, SIZE_MAX);
    struct cached *wide = add(1000, 9000, 1), *inner = add(2000, 3000, 7);
    CHECK(weft__region_cache_find(&cache, 1000, 9000, 1) == wide);
    CHECK(weft__region_cache_find(&cache, 2500, 2600, 6) == inner);
    CHECK(weft__region_cache_find(&cache, 4000, 4001, 1) == wide);
    CHECK(!weft__region_cache_find(&cache, 4000, 4001, 2));
    CHECK(!weft__region_cache_find(&cache, 999, 1001, 1));
    CHECK(!weft__region_cache_find(&cache, 8999, 9001, 1));
    end();
}

/* Against a plain search, over thousands of random steps. */
TEST(it_finds_what_a_plain_search_finds) {
    enum { MOST = 200 };
    struct cached *all[MOST];
    unsigned n = 0, seed = 7;
    begin(1000, SIZE_MAX);
    for (int step = 0; step < 20000; step++) {
        uintptr_t base = (uintptr_t)rand_r(&seed) % 5000 + 1,
                  stop = base + (uintptr_t)rand_r(&seed) % 400 + 1;
        unsigned rights = (unsigned)rand_r(&seed) % 8;
        if (n < MOST && rand_r(&seed) % 3 == 0) {
            all[n++] = add(base, stop, rights);
        } else if (n && rand_r(&seed) % 3 == 0) {
            unsigned i = (unsigned)rand_r(&seed) % n;
            weft__region_cache_remove(&cache, all[i]);
            talloc_free(all[i]);
            all[i] = all[--n];
        }
        bool there = false;
        for (unsigned i = 0; i < n; i++)
            there |= all[i]->base <= base && all[i]->end >= stop && !(rights & ~all[i]->rights);
        struct cached *found = weft__region_cache_find(&cache, base, stop, rights);
        CHECK_EQ(found != NULL, there);
        if (found) CHECK(found->base <= base && found->end >= stop && !(rights & ~found->rights));
        CHECK_EQ(cache.n, n);
    }
    end();
}

TEST(what_overlaps_is_cut_out_and_nothing_else) {
    unsigned seed = 3;
    for (int round = 0; round < 300; round++) {
        begin(1000, SIZE_MAX);
        uintptr_t base = 500, stop = 600;
        unsigned n = 40, hits = 0, cut = 0;
        for (unsigned i = 0; i < n; i++) {
            uintptr_t from = (uintptr_t)rand_r(&seed) % 1000,
                      to = from + 1 + (uintptr_t)rand_r(&seed) % 200;
            add(from, to, 7);
            hits += from < stop && to > base;
        }
        while (weft__region_cache_cut(&cache, base, stop)) cut++;
        CHECK_EQ(cut, hits);
        CHECK_EQ(cache.n, n - hits);
        for (uint32_t i = 0; i < cache.n; i++)
            CHECK(cache.at[i]->end <= base || cache.at[i]->base >= stop);
        end();
    }
}

TEST(the_oldest_unused_leave_when_there_are_too_many_or_too_much) {
    begin(3, 1000);
    struct cached *a = add(100, 200, 1), *b = add(300, 400, 1), *c = add(500, 600, 1);
    weft__region_cache_rest(&cache, b);
    weft__region_cache_rest(&cache, a);
    CHECK(!weft__region_cache_surplus(&cache));
    add(700, 800, 1);
    CHECK(weft__region_cache_surplus(&cache) == b);
    weft__region_cache_use(&cache, b);
    CHECK(weft__region_cache_surplus(&cache) == a);
    weft__region_cache_remove(&cache, a);
    CHECK(!weft__region_cache_surplus(&cache));
    weft__region_cache_rest(&cache, c);
    weft__region_cache_remove(&cache, b);
    add(2000, 3000, 1);
    CHECK(weft__region_cache_surplus(&cache) == c); /* by its bytes */
    end();
}

/* One found last is not found again when it has left. */
TEST(what_left_is_not_found_by_memory_of_it) {
    begin(10, SIZE_MAX);
    struct cached *a = add(100, 200, 1);
    CHECK(weft__region_cache_find(&cache, 100, 200, 1) == a);
    weft__region_cache_remove(&cache, a);
    CHECK(!weft__region_cache_find(&cache, 100, 200, 1));
    end();
}

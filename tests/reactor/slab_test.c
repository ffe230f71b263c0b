/* Objects from slabs: zeroed, apart from each other, kept while a callback may look at them,
 * gone with their parent. */
#include "../harness.h"

#include <reactor/slab.h>
#include <stdbool.h>

enum { SIZE = 240, MANY = 1000 };

struct fixture {
    weft_context_t *context;
    struct reactor *reactor;
    void *parent;
    struct slab slab;
};

static void open_fixture(struct fixture *f) {
    CHECK_EQ(weft_context_create(NULL, &f->context), 0);
    CHECK_EQ(weft__reactor_create(f->context, &(struct reactor_params){0}, &f->reactor), 0);
    f->parent = weft__alloc(f->reactor, 1, "parent");
    weft__slab_init(&f->slab, f->reactor, f->parent, SIZE, "objects");
}
static void close_fixture(struct fixture *f) {
    weft__slab_end(&f->slab);
    talloc_free(f->parent);
    weft__reactor_destroy(f->reactor);
    CHECK_EQ(weft_context_destroy(f->context), 0);
}

static bool is_filled(const unsigned char *p, int with, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != with) return false;
    return true;
}

TEST(objects_are_zeroed_and_apart_however_often_they_are_used) {
    struct fixture f;
    static unsigned char *objects[MANY];
    open_fixture(&f);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            objects[i] = weft__slab_take(&f.slab);
            CHECK(objects[i] && is_filled(objects[i], 0, SIZE));
            CHECK((uintptr_t)objects[i] % 8 == 0);
            memset(objects[i], i % 251 + 1, SIZE);
        }
        for (int i = 0; i < MANY; i++) CHECK(is_filled(objects[i], i % 251 + 1, SIZE));
        for (int i = 0; i < MANY; i++) weft__slab_put(&f.slab, objects[i]);
    }
    close_fixture(&f);
}

TEST(the_first_object_takes_no_memory_for_others) {
    struct fixture f;
    open_fixture(&f);
    size_t before = talloc_total_size(f.parent);
    unsigned char *first = weft__slab_take(&f.slab);
    CHECK(first && talloc_total_size(f.parent) - before <= SIZE + 64);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
    CHECK_EQ((uintptr_t)first % 64, 0);
#endif
    close_fixture(&f);
}

TEST(a_freed_later_object_stays_until_the_turn_is_over_and_comes_back) {
    struct fixture f;
    open_fixture(&f);
    unsigned char *object = weft__slab_take(&f.slab), *other;
    memset(object, 0x77, SIZE);
    weft__slab_free_later(&f.slab, object);
    CHECK(is_filled(object, 0x77, SIZE - sizeof(void *)));
    other = weft__slab_take(&f.slab);
    CHECK(other != object);
    CHECK(is_filled(object, 0x77, SIZE - sizeof(void *)));
    weft__slab_put(&f.slab, other);
    weft__reactor_progress(f.reactor, 0);
    bool came_back = false;
    for (int i = 0; i < MANY && !came_back; i++) came_back = weft__slab_take(&f.slab) == object;
    (void)came_back;
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__clang__) /* a sanitizer keeps what is freed for a while */
    CHECK(came_back);
#endif
    close_fixture(&f);
}

TEST(what_was_freed_later_goes_with_the_parent_too) {
    struct fixture f;
    open_fixture(&f);
    for (int i = 0; i < MANY; i++) weft__slab_free_later(&f.slab, weft__slab_take(&f.slab));
    close_fixture(&f);
}

TEST(a_slab_out_of_memory_reports_it) {
    struct fixture f;
    open_fixture(&f);
    weft__alloc_fail_at(1);
    void *object = weft__slab_take(&f.slab);
    weft__alloc_fail_at(0);
    CHECK(!object);
    object = weft__slab_take(&f.slab);
    CHECK(object);
    weft__slab_put(&f.slab, object);
    close_fixture(&f);
}

/* The log of messages that are not acknowledged: what a lane uses of it stays as it is until
 * the lane has done with it. */
#include <tests/harness.h>

#include <endpoints/failover/retain_log.h>
#include <reactor/reactor.h>

enum { LEN = 4096, SIZE = LEN + sizeof(struct retained) };

static struct retain_log made;
static uint64_t n_kept, n_home;

static void came_home(struct retain_log *log) {
    n_home++;
}

static struct retain_log *log_new(void) {
    n_kept = n_home = 0;
    weft__retain_log_init(&made, talloc_new(NULL), 1 << 20);
    made.came_home = came_home;
    return &made;
}
/* No block is lost: each is in use or a spare. */
static void log_end(struct retain_log *log) {
    size_t n = log->n_spare;
    CHECK(!log->away);
    for (struct retain_block *b = log->first; b; b = b->next) n++;
    CHECK_EQ(talloc_total_blocks(log->parent), 1 + n);
    talloc_free((void *)(uintptr_t)log->parent);
}

static struct retained *add(struct retain_log *log) {
    struct retained *m = retain_log_room(log, SIZE, n_kept);
    CHECK(m != NULL);
    *m = (struct retained){.len = LEN, .kind = RETAINED_COPY};
    memset(m + 1, (int)n_kept, LEN);
    retain_log_keep(log, SIZE, SIZE);
    n_kept++;
    return m;
}
static bool is_whole(const struct retained *m, uint64_t number) {
    const uint8_t *bytes = (const uint8_t *)(m + 1);
    for (size_t i = 0; i < LEN; i++)
        if (bytes[i] != (uint8_t)number) return false;
    return true;
}
static void drop_all(struct retain_log *log) {
    while (retain_log_first(log)) weft__retain_log_drop(log, SIZE, SIZE, n_kept);
}

TEST(an_empty_log_goes_on_behind_what_is_in_flight_of_it) {
    struct retain_log *log = log_new();
    const struct retained *in_flight = add(log);
    struct completion *c = retain_block_ref(log->last);
    drop_all(log);
    for (int i = 0; i < 100; i++) add(log), drop_all(log);
    CHECK(is_whole(in_flight, 0));
    completion_step(c, WEFT_OK);
    CHECK(!log->away);
    log_end(log);
}

TEST(a_block_that_is_in_flight_is_put_away_and_comes_back) {
    struct retain_log *log = log_new();
    const struct retained *in_flight = add(log);
    struct retain_block *block = log->last;
    struct completion *one = retain_block_ref(block), *other = retain_block_ref(block);
    while (log->last == block) add(log);
    CHECK(weft__retain_log_drop_block(log, n_kept - 1, n_kept));
    CHECK(log->away == block);
    for (int i = 0; i < 1000; i++) {
        add(log);
        if (i % 20 == 0) drop_all(log);
    }
    CHECK(is_whole(in_flight, 0));
    completion_step(one, WEFT_ERR_PEER_FAILED);
    CHECK(log->away == block);
    CHECK_EQ(n_home, 0);
    completion_step(other, WEFT_OK);
    CHECK(!log->away);
    CHECK_EQ(n_home, 1);
    log_end(log);
}

TEST(a_block_that_came_back_is_in_flight_again_as_a_new_one) {
    struct retain_log *log = log_new();
    for (int round = 0; round < 50; round++) {
        struct retain_block *block = log->last;
        while (log->last == block) add(log);
        completion_step(retain_block_ref(log->last), WEFT_ERR_CLOSED);
        CHECK(!retain_block_is_shared(log->last));
        struct completion *c = retain_block_ref(log->last);
        CHECK_EQ(c->count, 2);
        block = log->last;
        while (log->last == block) add(log);
        drop_all(log);
        CHECK(log->away == block);
        completion_step(c, WEFT_OK);
    }
    CHECK_EQ(n_home, 50);
    log_end(log);
}

TEST(the_end_waits_for_what_is_in_flight) {
    struct retain_log *log = log_new();
    add(log);
    struct completion *c = retain_block_ref(log->last);
    drop_all(log);
    CHECK(!weft__retain_log_let_go(log));
    CHECK(!weft__retain_log_let_go(log));
    CHECK_EQ(n_home, 0);
    completion_step(c, WEFT_ERR_CLOSED);
    CHECK_EQ(n_home, 1);
    CHECK(weft__retain_log_let_go(log));
    log_end(log);
}

TEST(what_was_not_in_flight_after_all_is_not_waited_for) {
    struct retain_log *log = log_new();
    add(log);
    retain_block_ref(log->last);
    retain_block_unref(log->last);
    drop_all(log);
    CHECK(weft__retain_log_let_go(log));
    CHECK_EQ(n_home, 0);
    log_end(log);
}

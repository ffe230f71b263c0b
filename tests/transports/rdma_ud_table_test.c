/* Who a datagram is for: numbers with generations, and peers by what is known of them. */
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include <reactor/reactor.h>
#include <transports/rdma/ud/ud_table.h>

enum { MANY = 5000 };
static struct ud_node node[MANY];
static struct ud_table table;
static const char path_a[1], path_b[1];

static void *root;
static void begin(uint32_t seed) {
    root = talloc_new(NULL);
    memset(node, 0, sizeof node);
    weft__ud_table_init(&table, root, seed);
}

static void add(unsigned i, const void *path, uint32_t qpn) {
    node[i].path = path;
    node[i].qpn = qpn;
    CHECK_EQ(weft__ud_table_add(&table, &node[i]), WEFT_OK);
}

TEST(each_number_finds_its_lane_and_no_other) {
    begin(7);
    for (unsigned i = 0; i < MANY; i++) {
        add(i, path_a, i % 3 + 1);
        CHECK(node[i].id != 0);
    }
    for (unsigned i = 0; i < MANY; i++) {
        CHECK(ud_table_find(&table, node[i].id, i % 3 + 1) == &node[i]);
        CHECK(!ud_table_find(&table, node[i].id, i % 3 + 2)); /* another queue pair says so */
        CHECK(!ud_table_find(&table, node[i].id ^ 1u << UD_ID_BITS, i % 3 + 1));
    }
    CHECK(!ud_table_find(&table, 0, 1));
    CHECK(!ud_table_find(&table, UINT32_MAX, 1));
    talloc_free(root);
}

TEST(a_number_is_not_given_again_soon) {
    begin(8);
    for (unsigned i = 0; i < 64; i++) add(i, path_a, 1);
    for (unsigned n = 0; n < 100000; n++) {
        unsigned i = n * 7 % 64;
        uint32_t before = node[i].id;
        weft__ud_table_remove(&table, &node[i]);
        CHECK(!ud_table_find(&table, before, 1));
        add(i, path_a, 1);
        CHECK(node[i].id != 0 && node[i].id != before);
        CHECK(!ud_table_find(&table, before, 1));
    }
    CHECK_EQ(table.room, 64);
    talloc_free(root);
}

TEST(a_peer_finds_the_lane_that_answers_it) {
    begin(9);
    for (unsigned i = 0; i < MANY; i++) {
        add(i, i % 2 ? path_a : path_b, i / 100 + 1);
        weft__ud_table_answer(&table, &node[i], i % 100 + 1);
    }
    for (unsigned i = 0; i < MANY; i++) {
        struct ud_node *found =
            weft__ud_table_of_peer(&table, i % 2 ? path_a : path_b, i / 100 + 1, i % 100 + 1);
        CHECK(found == &node[i]);
        CHECK(!weft__ud_table_of_peer(&table, i % 2 ? path_b : path_a, i / 100 + 1, i % 100 + 1));
    }
    for (unsigned i = 0; i < MANY; i += 3) weft__ud_table_remove(&table, &node[i]);
    for (unsigned i = 0; i < MANY; i++) {
        struct ud_node *found =
            weft__ud_table_of_peer(&table, i % 2 ? path_a : path_b, i / 100 + 1, i % 100 + 1);
        CHECK(found == (i % 3 ? &node[i] : NULL));
    }
    talloc_free(root);
}

TEST(a_lane_that_learns_who_answers_is_found_by_the_new_one_only) {
    begin(10);
    add(0, path_a, 5);
    CHECK(!weft__ud_table_of_peer(&table, path_a, 5, 1));
    weft__ud_table_answer(&table, &node[0], 1);
    CHECK(weft__ud_table_of_peer(&table, path_a, 5, 1) == &node[0]);
    weft__ud_table_answer(&table, &node[0], 2);
    CHECK(!weft__ud_table_of_peer(&table, path_a, 5, 1));
    CHECK(weft__ud_table_of_peer(&table, path_a, 5, 2) == &node[0]);
    weft__ud_table_remove(&table, &node[0]);
    CHECK(!weft__ud_table_of_peer(&table, path_a, 5, 2));
    talloc_free(root);
}

TEST(a_full_table_refuses_and_goes_on) {
    begin(11);
    table.most = 64;
    for (unsigned i = 0; i < 64; i++) add(i, path_a, 1);
    CHECK_EQ(weft__ud_table_add(&table, &node[64]), WEFT_ERR_QUOTA);
    weft__ud_table_remove(&table, &node[3]);
    CHECK_EQ(weft__ud_table_add(&table, &node[64]), WEFT_OK);
    CHECK(ud_table_find(&table, node[64].id, 0) == &node[64]);
    talloc_free(root);
}

TEST(without_memory_nothing_is_lost) {
    begin(12);
    for (unsigned i = 0; i < 64; i++) add(i, path_a, 1);
    for (unsigned i = 0; i < 64; i++) weft__ud_table_answer(&table, &node[i], i + 1);
    for (uint64_t k = 1; k <= 2; k++) {
        weft__alloc_fail_at(k);
        CHECK_EQ(weft__ud_table_add(&table, &node[64]), WEFT_ERR_NO_MEMORY);
        weft__alloc_fail_at(0);
    }
    add(64, path_a, 1);
    for (unsigned i = 0; i < 64; i++) {
        CHECK(ud_table_find(&table, node[i].id, 1) == &node[i]);
        CHECK(weft__ud_table_of_peer(&table, path_a, 1, i + 1) == &node[i]);
    }
    talloc_free(root);
}

TEST(two_tables_number_differently) {
    begin(1);
    add(0, path_a, 1);
    uint32_t first = node[0].id;
    talloc_free(root);
    begin(2);
    add(0, path_a, 1);
    CHECK(node[0].id != first);
    talloc_free(root);
}
#else
TEST(each_number_finds_its_lane_and_no_other) {
    SKIP("built without rdma");
}
#endif

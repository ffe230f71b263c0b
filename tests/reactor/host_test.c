/* This host, and what names it. */
#include "../harness.h"
#include <base/hash.h>
#include <base/host.h>

TEST(hashes_are_those_of_fnv_1a) {
    CHECK(hash_more(HASH_BEGIN, "", 0) == UINT64_C(0xcbf29ce484222325));
    CHECK(hash_more(HASH_BEGIN, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    CHECK(hash_more(hash_more(HASH_BEGIN, "foo", 3), "bar", 3) == UINT64_C(0x85944171f73967e8));
}

TEST(a_boot_has_a_name_of_32_digits) {
    char boot[HOST_BOOT_ROOM];
    unsigned digits = 0;
    CHECK_EQ(weft__host_boot(boot), strlen(boot));
    for (const char *at = boot; *at; at++) digits += strchr("0123456789abcdef", *at) != NULL;
    CHECK_EQ(digits, 32);
}

TEST(a_host_is_the_same_whenever_it_is_asked_for_and_another_by_another_namespace) {
    CHECK(weft__host_id("pid") != 0 && weft__host_id("net") != 0);
    CHECK(weft__host_id("pid") == weft__host_id("pid"));
    CHECK(weft__host_id("pid") != weft__host_id("net"));
}

TEST(a_host_without_that_namespace_is_not_known) {
    CHECK(weft__host_id("none") == 0);
}

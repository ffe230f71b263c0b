/* 10^5 messages wake a worker in every host that the C library and libev provide, over every
 * transport. */
#include "traffic.h"
#include <tests/harness.h>

TEST(messages_wake_poll) {
    CHECK(traffic_passes(&host_poll));
}
TEST(messages_wake_select) {
    CHECK(traffic_passes(&host_select));
}
TEST(messages_wake_epoll) {
    CHECK(traffic_passes(&host_epoll));
}
TEST(messages_wake_edge_triggered_epoll) {
    CHECK(traffic_passes(&host_epoll_edge));
}
TEST(messages_wake_nested_epoll) {
    CHECK(traffic_passes(&host_epoll_nested));
}
TEST(messages_wake_level_triggered_epoll_that_spins) {
    CHECK(traffic_passes(&host_spin_level));
}
TEST(messages_wake_edge_triggered_epoll_that_spins) {
    CHECK(traffic_passes(&host_spin_edge));
}
TEST(messages_wake_libev_by_the_fd) {
    CHECK(traffic_passes(&host_ev_io));
}
TEST(messages_wake_libev_in_its_own_loop) {
    CHECK(traffic_passes(&host_ev_native));
}

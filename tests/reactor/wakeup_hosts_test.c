/* Every promise of the wakeup contract, in every host that the C library and libev provide. */
#include "hosts.h"
#include <tests/harness.h>

TEST(wakes_poll) {
    CHECK(scenarios_pass(&host_poll));
}
TEST(wakes_select) {
    CHECK(scenarios_pass(&host_select));
}
TEST(wakes_epoll) {
    CHECK(scenarios_pass(&host_epoll));
}
TEST(wakes_level_triggered_epoll) {
    CHECK(scenarios_pass(&host_epoll_level));
}
TEST(wakes_edge_triggered_epoll) {
    CHECK(scenarios_pass(&host_epoll_edge));
}
TEST(wakes_nested_epoll) {
    CHECK(scenarios_pass(&host_epoll_nested));
}
TEST(wakes_level_triggered_epoll_that_spins) {
    CHECK(scenarios_pass(&host_spin_level));
}
TEST(wakes_edge_triggered_epoll_that_spins) {
    CHECK(scenarios_pass(&host_spin_edge));
}
TEST(wakes_libev_by_the_fd) {
    CHECK(scenarios_pass(&host_ev_io));
}
TEST(wakes_libev_in_its_own_loop) {
    CHECK(scenarios_pass(&host_ev_native));
}

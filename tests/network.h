/* Where tests run is what these two say: here, or in the machine that tests RDMA
 * (tests/rdma/inside). */
#ifndef WEFT_TESTS_NETWORK_H
#define WEFT_TESTS_NETWORK_H

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* What tests run where they say "tcp": the transport in WEFT_TEST_NETWORK, if that is set. */
static inline const char *test_network(void) {
    const char *set = getenv("WEFT_TEST_NETWORK");
    return set ? set : "tcp";
}

/* How long to wait for what must come: `seconds`, times WEFT_TEST_SLOW on a machine that is
 * emulated. */
static inline double test_timeout(double seconds) {
    const char *set = getenv("WEFT_TEST_SLOW");
    return set ? seconds * atof(set) : seconds;
}

/* How many of what takes long where every byte is emulated: `n`, divided by WEFT_TEST_SLOW. */
static inline int test_fewer(int n) {
    return (int)(n / test_timeout(1));
}

/* Called once a turn by what drives workers until something is true, with whether the turn found
 * anything. What found nothing so often waits for time or for another process, and leaves the
 * processor to the tests beside it for a moment. */
static inline void test_idle(bool found) {
    enum { EMPTY_TURNS = 200, PAUSE_NS = 50000 };
    static _Thread_local unsigned empty;
    empty = found ? 0 : empty + 1;
    if (empty > EMPTY_TURNS) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

#endif

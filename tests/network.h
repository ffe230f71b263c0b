/* Where tests run is what these two say: here, or in the machine that tests RDMA
 * (tests/rdma/inside). */
#ifndef WEFT_TESTS_NETWORK_H
#define WEFT_TESTS_NETWORK_H

#include <stdlib.h>

/* What tests run where they say "tcp": the transport in WEFT_TEST_NETWORK, if that is set. */
static inline const char *test_network(void) {
    const char *set = getenv("WEFT_TEST_NETWORK");
    return set ? set : "tcp";
}

/* How long to wait for what must come: `seconds`, times WEFT_TEST_SLOW on a machine that is
 * emulated. */
static inline double test_spin(double seconds) {
    const char *set = getenv("WEFT_TEST_SLOW");
    return set ? seconds * atof(set) : seconds;
}

/* How many of what takes long where every byte is emulated: `n`, divided by WEFT_TEST_SLOW. */
static inline int test_fewer(int n) {
    return (int)(n / test_spin(1));
}

#endif

/* One call, of many that may fail, fails once. */
#ifndef WEFT_TESTS_SUPPORT_FAILING_H
#define WEFT_TESTS_SUPPORT_FAILING_H

#include <errno.h>
#include <stdbool.h>

enum { MOST_CALLS = 64 }; /* functions that may fail */

static struct {
    bool armed;    /* calls are counted */
    unsigned call; /* the one that fails */
    unsigned at;   /* at its call of this number, from 1; 0: none fails */
    bool failed;
    unsigned n_calls[MOST_CALLS];
} failing;

/* The begin of each function that may fail: whether it is to fail now, with `error`. */
static bool fails_now(unsigned call, int error) {
    if (!failing.armed) return false;
    failing.n_calls[call]++;
    if (call != failing.call || failing.n_calls[call] != failing.at) return false;
    failing.failed = true;
    errno = error;
    return true;
}

#endif

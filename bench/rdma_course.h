/*
 * The course of messages that bench/rdma_count counts, whatever the library. Included behind what
 * that library has of its own: `struct end` with its worker, and its endpoint to the other; the two
 * ends `a` and `b`; `received`; and send_side, receive_side and settle_side.
 */
#ifndef WEFT_BENCH_RDMA_COURSE_H
#define WEFT_BENCH_RDMA_COURSE_H

#include <time.h>

#include "counting.h"

/* Messages under way arrive during the sleep, by the kernel alone. */
enum { PAUSE_MS = 2 };
static void rest(void) {
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
}

static void one_way(struct end *from, struct end *to, int n) {
    long end = received + n;
    COUNTED(COUNT_SEND, send_side(from->ep, n));
    rest();
    COUNTED(COUNT_RECEIVE, receive_side(to->worker, end));
}

static void alone(void) {
    one_way(&a, &b, 1);
    one_way(&b, &a, 1);
}

static void burst(void) {
    one_way(&a, &b, COUNT_BURST);
    rest();
    COUNTED(COUNT_SETTLE, settle_side(a.worker));
}

#endif

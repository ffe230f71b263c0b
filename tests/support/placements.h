/* A large tagged message on its way into memory that is watched: where it comes from, where it
 * goes, and how it went. */
#ifndef WEFT_TESTS_SUPPORT_PLACEMENTS_H
#define WEFT_TESTS_SUPPORT_PLACEMENTS_H

#include "worker_pair.h"

#include <endpoints/core/worker.h>

enum { BIG = 24 << 20 }; /* more than both sockets hold */
static char from[BIG], into[BIG], shadow[BIG];

struct receive {
    int calls;
    weft_status_t status;
    weft_request_t *request;
};
static inline void received(weft_status_t status, void *arg) {
    struct receive *r = arg;
    r->calls++;
    r->status = status;
    memcpy(shadow, into, sizeof into);
}

/* Cut into pieces of odd lengths. */
static inline size_t cut(weft_iov_t *iov, size_t n, char *at, size_t len) {
    for (size_t i = 0; i < n; i++) {
        size_t part = i + 1 < n ? len / n - i % 5 : len;
        iov[i] = (weft_iov_t){at, part};
        at += part;
        len -= part;
    }
    return n;
}

static inline void post(struct two *t, struct receive *r, size_t pieces, unsigned deadline_ms,
                        struct tally *sent) {
    weft_iov_t iov[32];
    memset(r, 0, sizeof *r);
    memset(into, 0x5a, sizeof into);
    pattern(from, sizeof from, 3);
    weft_op_t op = {
        .done = received, .arg = r, .request_p = &r->request, .deadline_ms = deadline_ms};
    CHECK_EQ(
        weft_tag_recv(t->b, 7, UINT64_MAX, iov, cut(iov, pieces, into, sizeof into), NULL, &op),
        WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t->ep, 7, iov, cut(iov, 3, from, sizeof from), OP(sent)),
             WEFT_IN_PROGRESS);
}

/* One piece is on its way into the memory, and some of it is there. */
static inline void place_half_way(struct two *t, struct receive *r) {
    UNTIL(t, r->request->placement != 0 && r->request->offset > 0);
    CHECK_EQ(r->calls, 0);
}

/* Everything that is still under way arrives, and the next message does. */
static inline void still_works(struct two *t) {
    struct tally got = {0};
    char small[64];
    CHECK_EQ(weft_tag_recv(t->b, 9, UINT64_MAX, &(weft_iov_t){small, 64}, 1, NULL, OP(&got)),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(t->ep, 9, &(weft_iov_t){from, 64}, 1, NULL) >= 0);
    UNTIL(t, got.calls);
    CHECK_EQ(got.status, WEFT_OK);
    CHECK(memcmp(small, from, 64) == 0);
}

static inline void untouched_since(struct receive *r, weft_status_t status) {
    CHECK_EQ(r->calls, 1);
    CHECK_EQ(r->status, status);
    CHECK(memcmp(shadow, into, sizeof into) == 0);
}

#endif

/* Two workers whose link has rails, and one large message at a time between them. */
#ifndef WEFT_TESTS_SUPPORT_RAILS_H
#define WEFT_TESTS_SUPPORT_RAILS_H

#include "worker_pair.h"

#include <endpoints/core/link.h>
#include <endpoints/core/worker.h>
#include <endpoints/transfer/rails.h>
#include <string.h>

enum { LARGE = 3 << 20 };

struct run {
    struct two two;
    char *out, *in;
    int sent, received;
    weft_status_t sent_status, received_status;
};

static inline void on_sent(weft_status_t status, void *arg) {
    struct run *r = arg;
    r->sent++;
    r->sent_status = status;
}

static inline void on_received(weft_status_t status, void *arg) {
    struct run *r = arg;
    r->received++;
    r->received_status = status;
}

static inline void open_run(struct run *r, const char *transport, const char *n_rails,
                            const weft_setting_t *more) {
    /* Over shared memory by pieces, whatever this machine copies fastest: what one process reads
     * at once needs no rails. */
    const weft_setting_t settings[] = {{"link.rails", n_rails},
                                       {"shm.copy", "staged"},
                                       {more ? more->name : "", more ? more->value : ""}};
    *r = (struct run){.out = malloc(LARGE), .in = malloc(LARGE)};
    two_workers(&r->two, transport, settings, more ? 3 : 2);
    two_dial(&r->two);
    UNTIL(&r->two, r->two.ready == 1);
    for (size_t i = 0; i < LARGE; i++) r->out[i] = (char)(i * 7 + (i >> 11));
}

static inline void close_run(struct run *r) {
    two_down(&r->two);
    free(r->out);
    free(r->in);
}

/* From a to b, or back. */
static inline void begin(struct run *r, bool back, size_t len) {
    weft_worker_t *to = back ? r->two.a : two_b(&r->two);
    weft_ep_t *from = back ? r->two.back : r->two.ep;
    memset(r->in, 0, LARGE);
    r->sent = r->received = 0;
    CHECK_EQ(weft_tag_recv(to, 1, UINT64_MAX, &(weft_iov_t){r->in, len}, 1, NULL,
                           &(weft_op_t){.done = on_received, .arg = r}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(from, 1, &(weft_iov_t){r->out, len}, 1,
                           &(weft_op_t){.done = on_sent, .arg = r}),
             WEFT_IN_PROGRESS);
}

static inline void transfer(struct run *r, bool back, size_t len) {
    begin(r, back, len);
    UNTIL(&r->two, r->sent == 1 && r->received == 1);
    CHECK_EQ(r->sent_status, WEFT_OK);
    CHECK_EQ(r->received_status, WEFT_OK);
    CHECK(memcmp(r->in, r->out, len) == 0);
}

static inline struct link *link_of(struct run *r, bool of_b) {
    weft_ep_t *ep = of_b ? r->two.back : r->two.ep;
    return ep->link;
}

static inline struct link *rail_of(weft_worker_t *worker, unsigned n) {
    for (struct list *l = worker->links.next; l != &worker->links; l = l->next) {
        struct link *link = list_of(l, struct link, of_worker);
        if (link->role == LINK_RAIL && link->more->main && link->core.fsm.state == LINK_UP &&
            n-- == 0)
            return link;
    }
    return NULL;
}

/* The first large message asks for them. */
static inline void raise_rails(struct run *r, unsigned n) {
    transfer(r, false, LARGE);
    UNTIL(&r->two, rail_of(r->two.a, n - 1) && rail_of(two_b(&r->two), n - 1));
}

#endif

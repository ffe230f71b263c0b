/* What an operation that ended early asked for keeps its place until the target has answered, so
 * that none of the others meets the target's bound. */
#include <tests/support/rma_peers.h>

#include <endpoints/core/endpoint.h>
#include <endpoints/core/link.h>

enum { WINDOW = WIRE_RMA_WINDOW, EACH = 100000 };
static char into[WINDOW][EACH];
static uint64_t old[WINDOW];

static void up(struct rma *r, const char *transport) {
    rma_up(r, transport, true, EACH, WEFT_MEM_ALL, NULL, 0);
    pattern(r->target, EACH, 1);
}

static uint32_t taken(const struct rma *r) {
    return r->t.ep->link->rma_unanswered;
}

static void progress_a(struct rma *r) {
    for (int i = 0; i < 20; i++) weft_worker_progress(r->t.a, 0);
}

enum what { GET, SMALL_GET, FETCH, PUT };

static void post(struct rma *r, enum what what, int i, struct tally *done, weft_request_t **req_p) {
    weft_op_t op = {
        .done = tally, .arg = done, .request_p = req_p, .flags = what == PUT ? WEFT_RMA_REMOTE : 0};
    uint64_t at = rma_at(r, 0);
    weft_status_t st =
        what == FETCH
            ? weft_atomic_fetch(r->t.ep, WEFT_ATOMIC_OR, 8, 0, 0, &old[i], at, r->rkey, &op)
        : what == PUT ? weft_put(r->t.ep, r->target, 64, at, r->rkey, &op)
                      : weft_get(r->t.ep, into[i], what == GET ? EACH : 64, at, r->rkey, &op);
    CHECK_EQ(st, WEFT_IN_PROGRESS);
}

static void post_many(struct rma *r, enum what what, struct tally *done, weft_request_t **req) {
    *done = (struct tally){0};
    for (int i = 0; i < WINDOW; i++) post(r, what, i, done, &req[i]);
}

/* The target stands still until they are gone, so all of them have asked. */
static void fill_and_cancel(struct rma *r, enum what what) {
    weft_request_t *req[WINDOW];
    struct tally done;
    post_many(r, what, &done, req);
    CHECK_EQ(taken(r), WINDOW);
    progress_a(r);
    for (int i = 0; i < WINDOW; i++) weft_request_cancel(req[i]);
    progress_a(r);
    CHECK_EQ(done.calls, WINDOW);
    CHECK_EQ(done.status, WEFT_ERR_CANCELLED);
    CHECK(taken(r) >= WINDOW / 2); /* but for those that the lane had no room for */
}

TEST_EACH(what_was_cancelled_keeps_its_place_until_it_is_answered) {
    struct rma r;
    weft_request_t *req[WINDOW];
    struct tally done;
    up(&r, transport);
    if (strcmp(transport, "self") != 0) /* there the answers come in the same turn */
        for (enum what what = GET; what <= PUT; what++) {
            fill_and_cancel(&r, what);
            post_many(&r, what, &done, req); /* these wait */
            CHECK_EQ(taken(&r), WINDOW);
            UNTIL(&r.t, done.calls == WINDOW);
            CHECK_EQ(done.status, 0);
            CHECK_EQ(weft_worker_count(r.t.b, "rma.refused"), 0);
            for (int i = 0; i < WINDOW && what == GET; i++) CHECK(is_pattern(into[i], EACH, 1));
            UNTIL(&r.t, taken(&r) == 0);
        }
    rma_down(&r);
}

/* The window is full, and so the next one waits, for which a link may need memory. */
TEST_EACH(a_wait_for_a_place_that_finds_no_memory_ends_as_that_and_no_other_does) {
    struct rma r;
    weft_request_t *req[WINDOW];
    struct tally done, last;
    int lacked = 0;
    up(&r, transport);
    if (strcmp(transport, "self") != 0)
        for (uint64_t k = 1; k < 8; k++) {
            post_many(&r, SMALL_GET, &done, req);
            CHECK_EQ(taken(&r), WINDOW);
            last = (struct tally){0};
            weft_op_t op = {.done = tally, .arg = &last};
            weft__alloc_fail_at(k);
            weft_status_t st = weft_get(r.t.ep, into[0], 64, rma_at(&r, 0), r.rkey, &op);
            weft__alloc_fail_at(0);
            CHECK(st == WEFT_IN_PROGRESS || st == WEFT_ERR_NO_MEMORY);
            CHECK_EQ(last.calls, 0);
            UNTIL(&r.t, done.calls == WINDOW && last.calls == (st == WEFT_IN_PROGRESS));
            CHECK(done.status == 0 && (last.status == 0 || last.status == WEFT_ERR_NO_MEMORY));
            lacked += st < 0 || last.status < 0;
            UNTIL(&r.t, taken(&r) == 0);
        }
    CHECK(lacked > 0 || strcmp(transport, "self") == 0);
    rma_down(&r);
}

/* Cancelled at any moment of its answer, a get's place is free again in the end. */
TEST_EACH(a_place_comes_back_whenever_the_end_came) {
    struct rma r;
    struct tally done;
    weft_request_t *req;
    up(&r, transport);
    for (int turns = 0; turns < 40; turns++) {
        done = (struct tally){0};
        post(&r, turns % 2 ? GET : FETCH, 0, &done, &req);
        for (int i = 0; i < turns / 2; i++) weft_worker_progress(i % 2 ? r.t.a : two_b(&r.t), 0);
        if (!done.calls) weft_request_cancel(req);
        UNTIL(&r.t, done.calls == 1 && taken(&r) == 0);
    }
    rma_down(&r);
}

TEST_EACH(a_refusal_is_an_answer_as_well) {
    struct rma r;
    struct tally done = {0}, revoked = {0};
    weft_request_t *req[WINDOW];
    up(&r, transport);
    if (strcmp(transport, "self") != 0) {
        fill_and_cancel(&r, GET);
        CHECK(weft_mem_revoke(r.mem, OP(&revoked)) >= 0); /* before they come there */
        UNTIL(&r.t, taken(&r) == 0);
        post_many(&r, FETCH, &done, req);
        UNTIL(&r.t, done.calls == WINDOW && taken(&r) == 0);
        CHECK_EQ(done.status, WEFT_ERR_REVOKED);
    }
    rma_down(&r);
}

/* An endpoint that leaves has no answers to come: those of another have the link to themselves. */
TEST_EACH(an_endpoint_that_closes_gives_its_places_back) {
    struct rma r;
    struct tally done = {0}, closed = {0};
    up(&r, transport);
    if (strcmp(transport, "self") != 0) {
        struct link *link = r.t.ep->link;
        fill_and_cancel(&r, FETCH);
        weft_rkey_release(r.rkey);
        CHECK_EQ(weft_ep_close(r.t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
        two_dial(&r.t); /* on the same link */
        r.rkey = rma_key(&r, r.mem);
        UNTIL(&r.t, closed.calls == 1 && r.t.ready == 2);
        CHECK(r.t.ep->link == link);
        UNTIL(&r.t, taken(&r) == 0);
        post(&r, FETCH, 0, &done, NULL);
        UNTIL(&r.t, done.calls == 1);
        CHECK_EQ(done.status, 0);
    }
    rma_down(&r);
}

/* Some of what is refused may be with the lane still: a peer that is notified may ask for as much
 * as before. */
TEST(gets_that_are_refused_half_way_leave_their_places) {
    enum { GETS = 2, LARGE = 48 << 20 };
    static char into[GETS][LARGE];
    struct rma r;
    struct tally got[GETS] = {{0}}, revoked = {0};
    rma_up(&r, "tcp", true, LARGE, WEFT_MEM_READ, NULL, 0);
    for (int i = 0; i < GETS; i++)
        CHECK_EQ(weft_get(r.t.ep, into[i], LARGE, rma_at(&r, 0), r.rkey, OP(&got[i])),
                 WEFT_IN_PROGRESS);
    weft_worker_progress(r.t.a, 0);
    struct link *link = r.t.back->link;
    for (double end = test_now() + test_timeout(60); link->rma_served < GETS && test_now() < end;)
        weft_worker_progress(r.t.b, 0);
    CHECK_EQ(link->rma_served, GETS);
    CHECK_EQ(weft_mem_revoke(r.mem, OP(&revoked)), WEFT_IN_PROGRESS); /* the lane has some of it */
    weft_worker_progress(r.t.b, 0);
    CHECK_EQ(link->rma_served, 0);
    CHECK_EQ(revoked.calls, 1); /* what the lane has of it is a copy by now */
    memset((void *)(uintptr_t)rma_at(&r, 0), 0xee, LARGE);
    UNTIL(&r.t, got[0].calls && got[1].calls);
    for (int i = 0; i < GETS; i++) CHECK_EQ(got[i].status, WEFT_ERR_REVOKED);
    CHECK_EQ(link->rma_served, 0);
    rma_down(&r);
}

/* Tagged sends that wait for credit while their lane is full: what a credit costs, and the order,
 * also when some of them are cancelled. */
#include <base/counters.h>
#include <endpoints/core/worker.h>
#include <tests/support/worker_pair.h>

enum { ID = 3, MANY = 5000, ROUND = 64 };

/* a's lane to b takes `room` more messages, and is full then. */
struct narrow {
    struct two t;
    struct lane *lane;
    const struct lane_ops *own;
    struct lane_ops ops;
    unsigned in[MANY];
    unsigned n_posted, n_received; /* b's receives; those that have completed are in order */
};
static struct narrow *now;
static unsigned room;
static struct pending *waits;

static bool takes_one(void) {
    if (room == 0) return false;
    room--;
    return true;
}
static weft_status_t narrow_short(struct lane *lane, uint8_t id, uint64_t header, const void *data,
                                  size_t len) {
    return takes_one() ? now->own->am_short(lane, id, header, data, len) : WEFT_NO_RESOURCE;
}
static weft_status_t narrow_short_to(struct lane *lane, uint8_t id, uint64_t header, uint32_t to,
                                     const void *data, size_t len) {
    return takes_one() ? now->own->am_short_to(lane, id, header, to, data, len) : WEFT_NO_RESOURCE;
}
static weft_status_t narrow_bcopy(struct lane *lane, uint8_t id, size_t (*pack)(void *, void *),
                                  void *arg) {
    return takes_one() ? now->own->am_bcopy(lane, id, pack, arg) : WEFT_NO_RESOURCE;
}
static weft_status_t narrow_zcopy(struct lane *lane, uint8_t id, const struct lane_zcopy *msg,
                                  struct completion *completion) {
    return takes_one() ? now->own->am_zcopy(lane, id, msg, completion) : WEFT_NO_RESOURCE;
}
static void narrow_add(struct lane *lane, struct pending *pending) {
    waits = pending;
}
static void narrow_remove(struct lane *lane, struct pending *pending) {
    waits = NULL;
}

static void nothing(weft_ep_t *ep, weft_am_t *am, void *arg) {}

static void up_by(struct narrow *n, const char *transport, const char *credit) {
    const weft_setting_t settings[] = {
        {"tag.unexpected_bytes", credit}, {"lanes.switch", "off"}, {"shm.rings", "64"}};
    memset(n, 0, sizeof *n);
    now = n;
    waits = NULL;
    room = UINT32_MAX;
    two_workers(&n->t, transport, settings, 3);
    two_dial(&n->t);
    CHECK_EQ(weft_am_handler_set(n->t.b, ID, nothing, NULL), 0);
    UNTIL(&n->t, n->t.ready && n->t.back);
    n->lane = n->t.ep->link->lane;
    n->own = n->lane->ops;
    n->ops = *n->own;
    n->ops.am_short = narrow_short;
    if (n->own->am_short_to) n->ops.am_short_to = narrow_short_to;
    n->ops.am_bcopy = narrow_bcopy;
    n->ops.am_zcopy = narrow_zcopy;
    n->ops.pending_add = narrow_add;
    n->ops.pending_remove = narrow_remove;
    n->lane->ops = &n->ops;
}

static void up(struct narrow *n) {
    up_by(n, test_network(), "1k");
}

/* An active message finds it full, and waits. */
static void fill_lane(struct narrow *n) {
    room = 0;
    CHECK_EQ(weft_am_send(n->t.ep, ID, NULL, 0, &(weft_iov_t){"full", 4}, 1, NULL),
             WEFT_IN_PROGRESS);
    CHECK(waits);
}

static void some_room(unsigned more) {
    struct pending *pending = waits;
    room = more;
    if (!pending) return;
    waits = NULL;
    if (pending->retry(pending) == WEFT_NO_RESOURCE && !waits) waits = pending;
}

static weft_request_t *send_number(struct narrow *n, unsigned number) {
    static unsigned out[2 * MANY];
    weft_request_t *request = NULL;
    out[number] = number;
    weft_iov_t iov = {&out[number], sizeof number};
    CHECK(weft_tag_send(n->t.ep, 1, &iov, 1, &(weft_op_t){.request_p = &request}) >= 0);
    return request;
}

static void received(weft_status_t status, void *arg) {
    CHECK_EQ(status, WEFT_OK);
    ((struct narrow *)arg)->n_received++;
}

/* b receives `more`, as far as they have come. */
static void receive_some(struct narrow *n, unsigned more) {
    weft_op_t op = {.done = received, .arg = n};
    for (unsigned end = n->n_posted + more; n->n_posted < end; n->n_posted++) {
        weft_iov_t iov = {&n->in[n->n_posted], sizeof n->in[0]};
        if (weft_tag_recv(n->t.b, 1, UINT64_MAX, &iov, 1, NULL, &op) == WEFT_OK) n->n_received++;
    }
}

/* Until b has received `all`, and a has `least` of the credit for that. */
static void until_credit(struct narrow *n, unsigned all, int64_t least) {
    const struct weft_ep *ep = n->t.ep;
    UNTIL(&n->t, n->n_received == all && ep->credit + ep->credit_held >= least);
}

static void few_turns(struct narrow *n) {
    for (int i = 0; i < 10; i++) two_turn(&n->t);
}

static void down(struct narrow *n) {
    n->lane->ops = n->own;
    if (waits) n->own->pending_add(n->lane, waits);
    two_down(&n->t);
}

static void receive_all(struct narrow *n, unsigned all) {
    receive_some(n, all - n->n_posted);
    for (double end = test_now() + test_timeout(60); n->n_received < all && test_now() < end;) {
        some_room(ROUND);
        test_idle(two_turn(&n->t));
    }
    CHECK_EQ(n->n_received, all);
}

static uint64_t n_waits(const struct narrow *n) {
    return weft_worker_count(n->t.a, "tag.waits");
}

/* Each credit finds the lane full. */
TEST(a_credit_for_a_full_lane_does_not_look_at_all_sends_that_wait) {
    static struct narrow n;
    up(&n);
    for (unsigned i = 0; i < MANY; i++) send_number(&n, i);
    CHECK(n_waits(&n) > MANY / 2);
    while (n.n_received < MANY - ROUND) {
        fill_lane(&n);
        unsigned before = n.n_received;
        receive_some(&n, n.n_received + 16 - n.n_posted); /* no more than 16 wait */
        few_turns(&n);
        for (int i = 0; i < ROUND && waits; i++) some_room(1);
        UNTIL(&n.t, n.n_received > before);
    }
    receive_all(&n, MANY);
    for (unsigned i = 0; i < MANY; i++) CHECK_EQ(n.in[i], i);
    printf("  %d sends waited %llu times\n", MANY, (unsigned long long)n_waits(&n));
    CHECK(n_waits(&n) <= MANY);
    down(&n);
}

/* Sends 0 up to `sent` have left, and the peer has received all; the lane is full, and the others
 * wait, with credit for more than `credited` of them. */
static unsigned begin_waiting(struct narrow *n, weft_request_t **requests, unsigned all) {
    up(n);
    for (unsigned i = 0; i < all; i++) requests[i] = send_number(n, i);
    unsigned sent = 0;
    while (sent < all && !requests[sent]) sent++;
    CHECK(sent > 0 && sent + ROUND / 4 < all);
    fill_lane(n);
    receive_some(n, sent);
    until_credit(n, sent, 512);
    CHECK_EQ(n->t.ep->link->tx == n->lane, false);
    return sent;
}

/* Those cancelled had credit. What is sent after that waits behind those that had none. */
TEST(a_send_does_not_overtake_those_that_wait_when_older_ones_are_cancelled) {
    static struct narrow n;
    weft_request_t *requests[4 * ROUND];
    unsigned sent = begin_waiting(&n, requests, 4 * ROUND), cancelled = 0, next = sent;
    for (unsigned i = sent; i < sent + 8; i++, cancelled++) weft_request_cancel(requests[i]);
    send_number(&n, 4 * ROUND);
    some_room(3);
    send_number(&n, 4 * ROUND + 1);
    few_turns(&n);
    for (unsigned i = sent + 20; i < sent + 30; i++, cancelled++) weft_request_cancel(requests[i]);
    send_number(&n, 4 * ROUND + 2);
    receive_all(&n, 4 * ROUND + 3 - cancelled);
    for (unsigned i = sent; i < n.n_received; i++, next++) {
        if (next == sent) next += 8;
        if (next == sent + 20) next += 10;
        CHECK_EQ(n.in[i], next);
    }
    down(&n);
}

/* No receive of the peer gives more credit: what there is, goes to the others. */
TEST(the_credit_of_cancelled_sends_is_for_the_others) {
    static struct narrow n;
    weft_request_t *requests[4 * ROUND];
    unsigned sent = begin_waiting(&n, requests, 4 * ROUND);
    for (unsigned i = sent; i < 4 * ROUND; i += 2) weft_request_cancel(requests[i]);
    few_turns(&n);
    uint64_t before = weft_worker_count(n.t.a, "tag.sent");
    some_room(ROUND);
    CHECK(weft_worker_count(n.t.a, "tag.sent") >= before + 8);
    receive_all(&n, sent + (4 * ROUND - sent) / 2);
    for (unsigned i = sent; i < n.n_received; i++) CHECK_EQ(n.in[i], sent + 1 + 2 * (i - sent));
    down(&n);
}

/* Its credit is free again. */
TEST(when_all_that_wait_are_cancelled_the_next_send_goes_at_once) {
    static struct narrow n;
    weft_request_t *requests[4 * ROUND];
    unsigned sent = begin_waiting(&n, requests, 4 * ROUND);
    for (unsigned i = sent; i < 4 * ROUND; i++) weft_request_cancel(requests[i]);
    few_turns(&n);
    some_room(UINT32_MAX);
    CHECK(!waits);
    CHECK(!send_number(&n, 4 * ROUND));
    receive_all(&n, sent + 1);
    CHECK_EQ(n.in[sent], 4 * ROUND);
    down(&n);
}

/* The first part has paid for all of it: the next one may go, behind it. */
static void large_one(bool cancelled) {
    static struct narrow n;
    static char large[30000], in[sizeof large];
    struct tally c = {0}, r = {0};
    weft_request_t *request = NULL;
    up_by(&n, "shm", "64k");
    unsigned sent = 0;
    while (!send_number(&n, sent)) sent++; /* the last one waits */
    pattern(large, sizeof large, 1);
    CHECK_EQ(weft_tag_send(n.t.ep, 2, &(weft_iov_t){large, sizeof large}, 1,
                           &(weft_op_t){.done = tally, .arg = &c, .request_p = &request}),
             WEFT_IN_PROGRESS);
    send_number(&n, sent + 1);
    CHECK_EQ(weft_tag_recv(n.t.b, 2, UINT64_MAX, &(weft_iov_t){in, sizeof in}, 1, NULL, OP(&r)),
             WEFT_IN_PROGRESS);
    fill_lane(&n);
    receive_some(&n, sent);
    until_credit(&n, sent, sizeof large + 1000);
    some_room(3); /* for the active message, the small one, and a part */
    CHECK_EQ(weft_worker_count(n.t.a, "protocol.parts"), 1);
    receive_some(&n, 1);
    UNTIL(&n.t, n.n_received == sent + 1);
    CHECK(c.calls + r.calls == 0);
    if (cancelled) weft_request_cancel(request);
    send_number(&n, sent + 2);
    receive_all(&n, sent + 3);
    for (unsigned i = 0; i < n.n_received; i++) CHECK_EQ(n.in[i], i);
    UNTIL(&n.t, c.calls && r.calls);
    CHECK_EQ(r.status, cancelled ? WEFT_ERR_CANCELLED : WEFT_OK);
    CHECK(cancelled || is_pattern(in, sizeof in, 1));
    down(&n);
}
TEST(a_send_waits_behind_the_parts_of_an_older_one_that_had_the_turn) {
    large_one(false);
}
TEST(a_send_goes_when_an_older_one_is_cancelled_between_its_parts) {
    large_one(true);
}

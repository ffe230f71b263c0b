/*
 * A receiver that was stopped, and that heartbeats declared dead, goes on. Its sender's program has
 * the memory of the messages back and has written to it. What the receiver reads then must not pass
 * for the message.
 */
#include <tests/support/exposed.h>

#include <string.h>

enum { N = 4, HEARTBEAT_MS = 250, OTHER = 0xee };

struct way {
    const char *copy;      /* the setting shm.copy */
    const char *lane_kind; /* the setting shm.rings */
    bool expose, split, tagged;
    size_t len;
    int turns; /* of the receiver, between the messages and its stop */
};

struct stopped {
    struct two t;
    const struct way *way;
    char *out, *in, *expected;
    struct tally sent[N], received[N];
};

static void receive(struct stopped *s, weft_am_t *am, int i) {
    weft_iov_t to = {s->in + (size_t)i * s->way->len, s->way->len};
    weft_status_t st = weft_am_recv(am, &to, 1, OP(&s->received[i]));
    if (st != WEFT_IN_PROGRESS) tally(st, &s->received[i]);
}

static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct stopped *s = arg;
    int i;
    memcpy(&i, am->header, sizeof i);
    if (!am->data) {
        receive(s, am, i);
        return;
    }
    memcpy(s->in + (size_t)i * s->way->len, am->data, am->len);
    tally(WEFT_OK, &s->received[i]);
}

static void send_one(struct stopped *s, int i) {
    weft_iov_t from = {s->out + (size_t)i * s->way->len, s->way->len};
    weft_op_t op = {.done = tally, .arg = &s->sent[i], .flags = WEFT_AM_RENDEZVOUS};
    weft_status_t st = s->way->tagged ? weft_tag_send(s->t.ep, (uint64_t)i, &from, 1, &op)
                                      : weft_am_send(s->t.ep, 1, &i, sizeof i, &from, 1, &op);
    if (st != WEFT_IN_PROGRESS) tally(st, &s->sent[i]);
}

static void post(struct stopped *s) {
    memset(s->sent, 0, sizeof s->sent);
    memset(s->received, 0, sizeof s->received);
    for (int i = 0; i < N && s->way->tagged; i++) {
        weft_iov_t to = {s->in + (size_t)i * s->way->len, s->way->len};
        CHECK_EQ(weft_tag_recv(s->t.b, (uint64_t)i, UINT64_MAX, &to, 1, NULL, OP(&s->received[i])),
                 WEFT_IN_PROGRESS);
    }
    for (int i = 0; i < N; i++) send_one(s, i);
}

static int calls(const struct tally *tallies) {
    int n = 0;
    for (int i = 0; i < N; i++) n += tallies[i].calls;
    return n;
}

static void up(struct stopped *s, const struct way *way) {
    weft_setting_t settings[] = {
        {"shm.copy", way->copy}, {"shm.rings", way->lane_kind}, {"lanes.switch", "off"}};
    char address[256];
    size_t len = sizeof address, all = N * way->len;
    memset(s, 0, sizeof *s);
    s->way = way;
    two_workers(&s->t, "shm", settings, 3);
    CHECK_EQ(weft_worker_address(s->t.b, address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = &s->t,
                               .heartbeat_ms = HEARTBEAT_MS};
    CHECK_EQ(weft_connect_address(s->t.a, address, len, &params, &s->t.ep), 0);
    CHECK_EQ(weft_am_handler_set(s->t.b, 1, on_message, s), 0);
    UNTIL(&s->t, s->t.ready && s->t.back);
    s->out = base_of(region_of(s->t.a, all, way->expose));
    s->in = base_of(region_for(s->t.b, all, WEFT_MEM_READ | WEFT_MEM_WRITE, way->split));
    s->expected = malloc(all);
    memcpy(s->expected, s->out, all);
}

static void down(struct stopped *s) {
    two_down(&s->t);
    free(s->expected);
}

static bool is_read_in_place(const struct stopped *s) {
    uint64_t put_done = weft_worker_count(s->t.a, "shm.put_bytes");
    return weft_worker_count(s->t.b, "protocol.get") > 0 && (!s->way->split || put_done > 0);
}

/* Rounds, until the memory is mapped where it is going to be. */
static void warm_up(struct stopped *s) {
    double end = test_now() + test_timeout(60);
    while (!is_read_in_place(s) && test_now() < end) {
        post(s);
        UNTIL(&s->t, calls(s->sent) == N && calls(s->received) == N);
    }
    CHECK(is_read_in_place(s));
}

static void until_declared_dead(struct stopped *s) {
    double end = test_now() + test_timeout(60);
    while ((!s->t.errors || calls(s->sent) < N) && test_now() < end) weft_worker_wait(s->t.a, 10);
    CHECK_EQ(s->t.errors, 1);
    CHECK_EQ(calls(s->sent), N);
}

static void check_received(const struct stopped *s) {
    for (int i = 0; i < N; i++) {
        size_t at = (size_t)i * s->way->len;
        if (s->received[i].calls && s->received[i].status == WEFT_OK)
            CHECK(memcmp(s->in + at, s->expected + at, s->way->len) == 0);
    }
}

static void stops_and_goes_on(const struct way *way) {
    struct stopped s;
    up(&s, way);
    warm_up(&s);
    post(&s);
    for (int i = 0; i < way->turns; i++) weft_worker_progress(s.t.b, 0);
    until_declared_dead(&s);
    memset(s.out, OTHER, N * way->len); /* it is the program's again */
    double end = test_now() + test_timeout(60);
    while (!s.t.back_errors && test_now() < end) weft_worker_progress(s.t.b, 0);
    CHECK_EQ(s.t.back_errors, 1);
    check_received(&s);
    down(&s);
}

static void in_each_way(struct way way) {
    static const char *const kinds[] = {"0", "16"};
    for (unsigned i = 0; i < 4; i++) {
        way.lane_kind = kinds[i & 1];
        way.tagged = i == 1 || i == 2;
        way.turns = i / 2;
        stops_and_goes_on(&way);
    }
}

TEST(a_message_read_where_it_is_mapped_after_its_sender_ended_does_not_arrive) {
    in_each_way((struct way){.copy = "staged", .expose = true, .len = 200000});
}

TEST(a_message_read_in_many_turns_while_its_sender_ends_does_not_arrive) {
    in_each_way((struct way){.copy = "staged", .expose = true, .len = 900000});
}

TEST(a_message_copied_by_both_sides_while_its_sender_ends_does_not_arrive) {
    in_each_way((struct way){.copy = "staged", .expose = true, .split = true, .len = 900000});
}

TEST(a_message_read_by_the_kernel_after_its_sender_ended_does_not_arrive) {
    in_each_way((struct way){.copy = "vm", .len = 200000});
}

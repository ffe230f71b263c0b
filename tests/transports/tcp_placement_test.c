/*
 * Payloads that land where the owner wants them: every byte in its place however the stream is cut,
 * what follows the frame untouched, and one report about each placement whatever ends it. The
 * stream is written by hand into the sender's socket, so that the test decides what each read
 * finds.
 */
#define _GNU_SOURCE
#include "pair.h"
#include <base/counters.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <transports/tcp/tcp.h>

enum { MOST = 64 * 1024, FRAMES = 64, GUARD = 64 };

/* What the receiver got, whichever way: the bytes of each message, one after the other. */
static uint8_t got[FRAMES][MOST + 8];
static size_t got_len[FRAMES];
static int n_got, n_placed, n_asked, n_ended;
static weft_status_t ended_with;
static int downs_when_ended;

/* How the next one lands. */
static struct plan {
    bool refuse, wrong_size;
    size_t skip;
    unsigned pieces; /* 0: one */
} plan;

static uint8_t target[MOST + 2 * GUARD];
static struct {
    uint32_t id;
    uint8_t head[PLACE_HEAD];
    size_t skip, len;
} placement_now;
static uint32_t last_id, ended_id; /* of the last that began; of the last that ended early */
static struct end *receiver;

static void keep(struct end *end, uint8_t id, const void *data, size_t len) {
    memcpy(got[n_got], data, len);
    got_len[n_got++] = len;
}

static bool guards_hold(size_t len) {
    for (size_t i = 0; i < GUARD; i++)
        if (target[i] != 0xee || target[GUARD + len + i] != 0xee) return false;
    return true;
}

static bool overran;
static void placed(struct lane *lane, uint32_t id, weft_status_t status) {
    size_t skip = placement_now.skip;
    if (id != placement_now.id || !guards_hold(placement_now.len - skip)) overran = true;
    if (status < 0) {
        n_ended++;
        ended_with = status;
        ended_id = id;
        downs_when_ended = receiver->n_down + receiver->n_closed;
        return;
    }
    n_placed++;
    memcpy(got[n_got], placement_now.head, skip);
    memcpy(got[n_got] + skip, target + GUARD, placement_now.len - skip);
    got_len[n_got++] = placement_now.len;
}

static bool place(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len,
                  struct placement *to) {
    n_asked++;
    CHECK(head_len == PLACE_HEAD && len > PLACE_LEAST);
    if (plan.refuse) return false;
    memset(target, 0xee, sizeof target);
    memcpy(placement_now.head, head, head_len);
    placement_now.skip = plan.skip;
    placement_now.len = len;
    size_t rest = len - plan.skip - plan.wrong_size, part = rest / (plan.pieces + 1);
    placement_now.id = ++last_id;
    *to = (struct placement){.skip = plan.skip, .id = placement_now.id};
    for (unsigned i = 0; i < plan.pieces; i++) {
        to->iov[to->n_iov] = (weft_iov_t){target + GUARD + i * part, i == 1 ? part - 7 : part};
        to->n_iov++;
        if (i == 1) to->iov[to->n_iov++] = (weft_iov_t){target + GUARD + 2 * part - 7, 7};
    }
    to->iov[to->n_iov++] =
        (weft_iov_t){target + GUARD + plan.pieces * part, rest - plan.pieces * part};
    return true;
}

/* ---- a pair, one of whose ends lands --------------------------------------------------------- */

static struct iface_up up_with_place;

static void open_pair(struct pair *p) {
    pair_open(p, &weft__transport_tcp, 0);
    up_with_place = pair_notified;
    up_with_place.place = place;
    up_with_place.placed = placed;
    p->iface_b->up = &up_with_place;
    p->b.on_message = keep;
    pair_connect(p);
    pair_turns(p, 5);
    receiver = &p->b;
    plan = (struct plan){.skip = 16};
    n_got = n_placed = n_asked = n_ended = downs_when_ended = 0;
    overran = false;
    ended_with = WEFT_OK;
}

static void feed(struct pair *p, const uint8_t *bytes, size_t len) {
    while (len > 0) {
        ssize_t n = send(tcp_lane(p->a.lane)->watch.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        CHECK(n > 0 || errno == EAGAIN);
        if (n > 0) bytes += n, len -= (size_t)n;
        if (len) weft__reactor_progress(p->reactor_b, 0);
    }
}
/* Until the receiver has read all that was fed: loopback hands it over within the call. */
static void take(struct pair *p) {
    int left = 1;
    double end = test_now() + test_timeout(60);
    while (left > 0 && test_now() < end) {
        weft__reactor_progress(p->reactor_b, 0);
        if (!p->b.lane || tcp_lane(p->b.lane)->watch.fd < 0 ||
            ioctl(tcp_lane(p->b.lane)->watch.fd, FIONREAD, &left) < 0)
            break;
    }
    for (int i = 0; i < 3; i++) weft__reactor_progress(p->reactor_b, 0);
}

/* ---- a stream of frames ---------------------------------------------------------------------- */

static uint8_t stream[FRAMES * 8192];
static size_t stream_len, sent_len[FRAMES], frame_at[FRAMES + 1];
static int n_sent;

static uint8_t byte_of(int frame, size_t i) {
    return (uint8_t)(i * 131 + (i >> 8) * 17 + (size_t)frame * 29 + 1);
}

static void add_frame(size_t len) {
    uint8_t *at = stream + stream_len;
    tcp_frame_encode(at, TCP_FRAME_AM, (uint8_t)(n_sent % 32), (uint32_t)len);
    memset(at + TCP_FRAME_HEAD + len, 0, tcp_frame_size((uint32_t)len) - TCP_FRAME_HEAD - len);
    for (size_t i = 0; i < len; i++) at[TCP_FRAME_HEAD + i] = byte_of(n_sent, i);
    frame_at[n_sent] = stream_len;
    sent_len[n_sent++] = len;
    stream_len += tcp_frame_size((uint32_t)len);
    frame_at[n_sent] = stream_len;
}

static void new_stream(void) {
    stream_len = 0;
    n_sent = 0;
}

static bool is_frame(int i, int frame) {
    if (got_len[i] != sent_len[frame]) return false;
    for (size_t k = 0; k < got_len[i]; k++)
        if (got[i][k] != byte_of(frame, k)) return false;
    return true;
}
static void all_arrived(void) {
    CHECK_EQ(n_got, n_sent);
    for (int i = 0; i < n_sent; i++) CHECK(is_frame(i, i));
    CHECK(!overran);
    CHECK_EQ(n_ended, 0);
}

/* ---- the promises ---------------------------------------------------------------------------- */

TEST(a_stream_fed_byte_by_byte_places_whole) {
    struct pair p;
    open_pair(&p);
    new_stream();
    add_frame(8);
    add_frame(PLACE_LEAST + PLACE_HEAD + 21);
    add_frame(0);
    add_frame(13);
    add_frame(PLACE_LEAST + 500);
    add_frame(PLACE_LEAST + 503);
    add_frame(3);
    for (size_t i = 0; i < stream_len; i++) {
        feed(&p, stream + i, 1);
        weft__reactor_progress(p.reactor_b, 0);
    }
    take(&p);
    all_arrived();
    CHECK_EQ(n_placed, 3);
    pair_close(&p);
}

TEST(the_first_write_may_end_anywhere_in_the_frame) {
    enum { LEN = PLACE_LEAST + PLACE_HEAD + 300 };
    struct pair p;
    size_t size = tcp_frame_size(LEN);
    open_pair(&p);
    for (size_t cut = 1; cut < size; cut += cut < 100 || cut > size - 20 ? 1 : 97) {
        n_got = n_placed = 0;
        new_stream();
        add_frame(LEN);
        add_frame(5);
        feed(&p, stream, cut);
        take(&p);
        feed(&p, stream + cut, stream_len - cut);
        take(&p);
        all_arrived();
        CHECK_EQ(n_placed, cut >= TCP_FRAME_HEAD + PLACE_HEAD && size - cut >= PLACE_LEAST + 8);
    }
    pair_close(&p);
}

TEST(the_last_write_may_begin_anywhere_behind_the_head) {
    enum { LEN = 3 * PLACE_LEAST + 5 };
    struct pair p;
    size_t size = tcp_frame_size(LEN);
    open_pair(&p);
    for (size_t cut = size - 40; cut < size + 24; cut++) {
        n_got = n_placed = 0;
        new_stream();
        add_frame(LEN);
        add_frame(11);
        feed(&p, stream, 100);
        take(&p);
        feed(&p, stream + 100, cut - 100);
        take(&p);
        feed(&p, stream + cut, stream_len - cut);
        take(&p);
        all_arrived();
        CHECK_EQ(n_placed, 1);
    }
    pair_close(&p);
}

static uint64_t next_random(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

TEST(random_streams_cut_at_random_arrive_whole) {
    int placed_in_all = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct pair p;
        uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15);
        open_pair(&p);
        new_stream();
        while (n_sent < 20)
            add_frame(next_random(&x) % 3 ? next_random(&x) % 60 : next_random(&x) % 14000);
        for (size_t at = 0; at < stream_len;) {
            size_t part =
                1 + (next_random(&x) % 4 ? next_random(&x) % 300 : next_random(&x) % 9000);
            if (part > stream_len - at) part = stream_len - at;
            plan = (struct plan){.refuse = next_random(&x) % 5 == 0,
                                 .wrong_size = next_random(&x) % 7 == 0,
                                 .skip = next_random(&x) % (PLACE_HEAD + 1),
                                 .pieces = (unsigned)(next_random(&x) % 7)};
            feed(&p, stream + at, part);
            if (next_random(&x) % 3) take(&p);
            at += part;
        }
        take(&p);
        all_arrived();
        placed_in_all += n_placed;
        pair_close(&p);
    }
    CHECK(placed_in_all > 100);
}

TEST(what_is_refused_or_does_not_fit_is_delivered_whole_and_asked_about_once) {
    struct pair p;
    open_pair(&p);
    const struct plan plans[] = {{.refuse = true}, {.wrong_size = true, .skip = 8}};
    for (int i = 0; i < 2; i++) {
        n_got = n_asked = 0;
        plan = plans[i];
        new_stream();
        add_frame(20000);
        add_frame(1);
        for (size_t at = 0; at < stream_len; at += 100) {
            feed(&p, stream + at, stream_len - at < 100 ? stream_len - at : 100);
            take(&p);
        }
        all_arrived();
        CHECK_EQ(n_asked, 1);
        CHECK_EQ(n_placed, 0);
    }
    pair_close(&p);
}

TEST(out_of_memory_a_payload_comes_the_other_way) {
    struct pair p;
    open_pair(&p);
    new_stream();
    add_frame(8);
    add_frame(8000);
    feed(&p, stream, frame_at[1]);
    take(&p);
    feed(&p, stream + frame_at[1], 1000);
    weft__alloc_fail_at(1); /* buffers are there: it is the placement's */
    take(&p);
    CHECK(weft__alloc_fail_at(0) > 0);
    feed(&p, stream + frame_at[1] + 1000, stream_len - frame_at[1] - 1000);
    take(&p);
    all_arrived();
    CHECK_EQ(n_placed, 0);
    pair_close(&p);
}

TEST(a_stopped_placement_writes_no_byte_more_and_is_reported_once) {
    struct pair p;
    static uint8_t shadow[sizeof target];
    open_pair(&p);
    for (size_t at = 100; at < 20000; at += at < 200 || at > 15000 ? 1009 : 5000) {
        n_got = n_ended = 0;
        new_stream();
        add_frame(20001);
        add_frame(7);
        add_frame(9000);
        feed(&p, stream, at < 15000 ? at : 100);
        take(&p);
        if (at >= 15000) feed(&p, stream + 100, at - 100);
        if (at >= 15000) take(&p);
        CHECK_EQ(n_got, 0);
        p.b.lane->ops->place_stop(p.b.lane, last_id + 1); /* another's */
        weft__reactor_progress(p.reactor_b, 0);
        CHECK_EQ(n_ended, 0);
        p.b.lane->ops->place_stop(p.b.lane, placement_now.id);
        CHECK_EQ(n_ended, 0); /* never within the call */
        memcpy(shadow, target, sizeof target);
        weft__reactor_progress(p.reactor_b, 0);
        CHECK_EQ(n_ended, 1);
        CHECK_EQ(ended_with, WEFT_ERR_CANCELLED);
        p.b.lane->ops->place_stop(p.b.lane, placement_now.id); /* it is over */
        plan.refuse = true;
        for (size_t next = at; next < stream_len; next += 3001) {
            feed(&p, stream + next, stream_len - next < 3001 ? stream_len - next : 3001);
            take(&p);
        }
        plan.refuse = false;
        CHECK_EQ(n_ended, 1);
        CHECK_EQ(n_got, 2);
        CHECK(is_frame(0, 1) && is_frame(1, 2));
        CHECK(memcmp(shadow, target, sizeof target) == 0);
    }
    pair_close(&p);
}

TEST(a_placement_stopped_when_all_of_it_is_here_ends_once) {
    struct pair p;
    open_pair(&p);
    new_stream();
    add_frame(20000);
    add_frame(7);
    feed(&p, stream, 100);
    take(&p);
    p.b.lane->ops->place_stop(p.b.lane, placement_now.id);
    feed(&p, stream + 100, stream_len - 100);
    take(&p);
    CHECK_EQ(n_ended, 1);
    CHECK_EQ(n_got, 1);
    CHECK(is_frame(0, 1));
    pair_close(&p);
}

static void no_work(struct job *job) {}

/* The rest of it, and a part of the next, are read in turns whose budget does not reach for the
 * lane's job: others come first. */
static void stopped_and_followed(struct pair *p, uint64_t *x) {
    n_got = n_placed = n_ended = n_asked = 0;
    new_stream();
    add_frame(20001);
    add_frame(30000);
    add_frame(30000);
    feed(p, stream, 100);
    take(p);
    CHECK_EQ(n_asked, 1);
    uint32_t stopped = placement_now.id;
    size_t at = frame_at[1] + 200 + next_random(x) % 20000;
    if (next_random(x) % 2)
        weft__reactor_progress(p->reactor_b, 1 + (unsigned)(next_random(x) % 3));
    if (next_random(x) % 2) usleep(20); /* then the socket is read first */
    feed(p, stream + 100, at - 100);
    struct job others[8];
    for (int i = 0; i < 8; i++)
        others[i] = (struct job){.run = no_work}, weft__job_post(p->reactor_b, &others[i]);
    p->b.lane->ops->place_stop(p->b.lane, stopped);
    for (int i = 0; i < 40; i++)
        weft__reactor_progress(p->reactor_b, 1 + (unsigned)(next_random(x) % 2));
    CHECK_EQ(n_ended, 1);
    CHECK_EQ(ended_id, stopped);
    CHECK_EQ(n_got, 0); /* the next is not there yet */
    feed(p, stream + at, stream_len - at);
    take(p);
    CHECK_EQ(n_ended, 1);
    CHECK_EQ(n_got, 2);
    CHECK(is_frame(0, 1) && is_frame(1, 2));
    CHECK(!overran);
}
TEST(the_end_of_a_stopped_placement_is_never_reported_for_the_next) {
    struct pair p;
    uint64_t x = 7;
    int placed_in_all = 0;
    open_pair(&p);
    for (int i = 0; i < 400; i++) {
        stopped_and_followed(&p, &x);
        placed_in_all += n_placed;
    }
    CHECK(placed_in_all > 100);
    pair_close(&p);
}

TEST(a_placement_ends_before_its_owner_learns_that_the_peer_is_gone) {
    struct pair p;
    open_pair(&p);
    new_stream();
    add_frame(20000);
    feed(&p, stream, 5000);
    take(&p);
    CHECK_EQ(n_asked, 1);
    shutdown(tcp_lane(p.a.lane)->watch.fd, SHUT_RDWR);
    CHECK(pair_until(&p, p.b.n_down == 1));
    CHECK_EQ(n_ended, 1);
    CHECK_EQ(ended_with, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(downs_when_ended, 0);
    CHECK(!overran);
    pair_close(&p);
}

static void closed_half_way(bool flush) {
    struct pair p;
    open_pair(&p);
    new_stream();
    add_frame(20000);
    feed(&p, stream, 5000);
    take(&p);
    CHECK_EQ(n_asked, 1);
    p.b.lane->ops->close(p.b.lane, flush);
    CHECK_EQ(n_ended, 0);
    static uint8_t shadow[sizeof target];
    memcpy(shadow, target, sizeof target);
    weft__reactor_progress(p.reactor_b, 0);
    weft__reactor_progress(p.reactor_b, 0);
    CHECK_EQ(n_ended, 1);
    CHECK_EQ(ended_with, WEFT_ERR_CLOSED);
    CHECK_EQ(downs_when_ended, 0);
    if (flush) feed(&p, stream + 5000, stream_len - 5000);
    CHECK(pair_until(&p, p.a.n_down == 1));
    pair_end_close(&p.a, true);
    CHECK(pair_until(&p, p.b.n_closed == 1));
    CHECK_EQ(n_got, 0);
    CHECK_EQ(n_ended, 1);
    CHECK(memcmp(shadow, target, sizeof target) == 0);
    pair_close(&p);
}
TEST(a_placement_ends_when_its_owner_aborts_the_lane) {
    closed_half_way(false);
}
TEST(a_placement_ends_when_its_owner_closes_the_lane) {
    closed_half_way(true);
}

TEST(a_frame_longer_than_any_may_be_is_never_asked_about) {
    struct pair p;
    uint8_t head[TCP_FRAME_HEAD + PLACE_HEAD] = {0};
    const uint32_t lengths[] = {TCP_MAX_FRAME + 1, INT32_MAX, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        open_pair(&p);
        tcp_frame_encode(head, TCP_FRAME_AM, 1, lengths[i]);
        feed(&p, head, sizeof head);
        CHECK(pair_until(&p, p.b.n_down == 1));
        CHECK_EQ(p.b.down, WEFT_ERR_PROTOCOL);
        CHECK_EQ(n_asked, 0);
        pair_close(&p);
    }
}

/* Large messages one after the other: little of them is copied twice, and no big buffer is
 * taken. */
static int n_whole;
static void count_whole(struct end *end, uint8_t id, const void *data, size_t len) {
    n_whole++;
}
static uint8_t large[TCP_MAX_PAYLOAD];
static void large_placed(struct lane *lane, uint32_t id, weft_status_t status) {
    CHECK_EQ(status, WEFT_OK);
    n_whole++;
}
static bool place_large(struct lane *lane, uint8_t id, const void *head, size_t head_len,
                        size_t len, struct placement *to) {
    *to = (struct placement){.id = 1, .skip = 8, .iov = {{large, len - 8}}, .n_iov = 1};
    return true;
}
static void noop(struct completion *c, weft_status_t status) {}

TEST(a_stream_of_large_messages_places_for_the_most_part) {
    enum { ROUNDS = 60 };
    struct pair p;
    static uint8_t data[TCP_MAX_PAYLOAD];
    open_pair(&p);
    up_with_place.place = place_large;
    up_with_place.placed = large_placed;
    p.b.on_message = count_whole;
    n_whole = 0;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7 >> 1);
    struct completion done = {.done = noop, .count = 1 << 30};
    for (uint64_t i = 0; i < ROUNDS; i++) {
        weft_iov_t iov = {data, sizeof data};
        struct lane *l = p.a.lane;
        while (l->ops->am_zcopy(l, 5, &(struct lane_zcopy){&i, 8, &iov, 1}, &done) ==
               WEFT_NO_RESOURCE)
            pair_turn(&p);
    }
    CHECK(pair_until(&p, n_whole == ROUNDS));
    CHECK(memcmp(large, data, sizeof data) == 0);
    CHECK(weft__count(p.reactor_b)->tcp_placed > ROUNDS / 2 * sizeof data);
    pair_turns(&p, 3);
    CHECK_EQ(((struct tcp_iface *)p.iface_b)->pool.n_idle[TCP_BUF_BIG], 0);
    pair_close(&p);
}

/* What is tcp's own: gathering, big frames, IPv6, names, ports, and the ends that a connection
 * can come to. */
#define _GNU_SOURCE
#include "counted.h"
#include "pair.h"
#include <base/counters.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <tests/sockets.h>
#include <transports/tcp/tcp.h>

static weft_status_t send8(struct end *end, uint64_t value) {
    return end->lane->ops->am_short(end->lane, 3, value, NULL, 0);
}
static uint64_t value_of(const struct pair_message *m) {
    uint64_t v;
    memcpy(&v, m->data, 8);
    return v;
}

TEST(messages_of_one_turn_leave_in_one_write) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    uint64_t before = weft__count(p.reactor_a)->tcp_writes;
    for (uint64_t i = 0; i < 1000; i++) CHECK_EQ(send8(&p.a, i), WEFT_OK);
    CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before);
    CHECK(pair_until(&p, p.b.n_messages == 1000));
    CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before + 1);
    for (uint64_t i = 0; i < 1000; i++) CHECK_EQ(value_of(&p.b.messages[i]), i);
    pair_close(&p);
}

/* The bytes of two buffers, as tcp.buffer says. */
TEST(many_copied_bytes_of_one_turn_leave_in_one_write) {
    enum { PIECE = 4096, N = 30 };
    struct pair p;
    static uint8_t data[PIECE];
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    uint64_t before = weft__count(p.reactor_a)->tcp_writes;
    for (uint64_t i = 0; i < N; i++)
        CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 3, i, data, PIECE), WEFT_OK);
    CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before);
    CHECK(pair_until(&p, p.b.n_messages == N));
    CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before + 1);
    pair_close(&p);
}

static size_t pack_word(void *to, void *arg) {
    memcpy(to, arg, 8);
    return 8;
}

/* Messages are counted when they are accepted. */
TEST(a_message_that_no_memory_is_left_for_is_not_counted) {
    struct pair p;
    uint64_t word = 5, accepted = 0;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    struct tcp_iface *iface = tcp_iface_of(tcp_lane(p.a.lane));
    uint64_t before = weft__count(p.reactor_a)->tcp_messages;
    for (uint64_t k = 1; k <= 3; k++) {
        iface->pool.idle[TCP_BUF_SMALL_BUF] = iface->pool.idle[TCP_BUF_IOV_BATCH] = NULL;
        iface->pool.n_idle[TCP_BUF_SMALL_BUF] = iface->pool.n_idle[TCP_BUF_IOV_BATCH] = 0;
        weft__alloc_fail_at(k);
        weft_status_t st = p.a.lane->ops->am_bcopy(p.a.lane, 3, pack_word, &word);
        weft__alloc_fail_at(0);
        CHECK_EQ(st, k < 3 ? WEFT_ERR_NO_MEMORY : WEFT_OK);
        accepted += st == WEFT_OK;
        CHECK_EQ(weft__count(p.reactor_a)->tcp_messages, before + accepted);
    }
    CHECK(pair_until(&p, p.b.n_messages == accepted));
    pair_close(&p);
}

TEST(every_length_arrives_whole) {
    struct pair p;
    static uint8_t data[40000];
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7);
    size_t n = 0;
    for (size_t len = 0; len < 20000; len += len < 64 ? 1 : 977, n++) {
        weft_status_t st;
        while ((st = p.a.lane->ops->am_short(p.a.lane, n % 32, n, data, len)) == WEFT_NO_RESOURCE)
            pair_turn(&p);
        CHECK_EQ(st, WEFT_OK);
    }
    CHECK(pair_until(&p, p.b.n_messages == n));
    n = 0;
    for (size_t len = 0; len < 20000; len += len < 64 ? 1 : 977, n++) {
        CHECK_EQ(p.b.messages[n].len, len + 8);
        CHECK_EQ(p.b.messages[n].id, n % 32);
        CHECK_EQ(value_of(&p.b.messages[n]), n);
        CHECK(memcmp(p.b.messages[n].data + 8, data, len) == 0);
    }
    pair_close(&p);
}

TEST(zcopied_memory_leaves_between_copied_messages) {
    enum { BIG = 256 * 1024, ROUNDS = 40 };
    struct pair p;
    static uint8_t data[BIG];
    struct counted done[ROUNDS];
    size_t n_done = 0;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    for (size_t i = 0; i < BIG; i++) data[i] = (uint8_t)(i * 31 >> 3);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        weft_iov_t iov[3] = {
            {data, 5000 + i}, {NULL, 0}, {data + 5000 + i, BIG - 5000 - i - i % 9}};
        struct lane *l = p.a.lane;
        weft_status_t st;
        while ((st = send8(&p.a, i)) == WEFT_NO_RESOURCE) pair_turn(&p);
        CHECK_EQ(st, WEFT_OK);
        done[i] = counted(1);
        while ((st = l->ops->am_zcopy(l, 5, &(struct lane_zcopy){&i, 8, iov, 3},
                                      &done[i].completion)) == WEFT_NO_RESOURCE)
            pair_turn(&p);
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        CHECK_EQ(done[i].calls, 0);
        if (st == WEFT_OK) done[i].calls = 1; /* no callback will come */
    }
    CHECK(pair_until(&p, p.b.n_messages == 2 * ROUNDS));
    for (int i = 0; i < ROUNDS; i++) n_done += done[i].calls == 1;
    CHECK_EQ(n_done, ROUNDS);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        CHECK_EQ(value_of(&p.b.messages[2 * i]), i);
        CHECK_EQ(value_of(&p.b.messages[2 * i + 1]), i);
        CHECK_EQ(p.b.messages[2 * i + 1].len, 8 + BIG - i % 9);
        CHECK(memcmp(p.b.messages[2 * i + 1].data + 8, data, BIG - i % 9) == 0);
    }
    pair_close(&p);
}

static void add_to(struct lane_run *run, unsigned id, unsigned value, size_t len) {
    struct lane_head head = {.len = (uint32_t)len, .one = 1, .id = (uint8_t)id};
    size_t size = LANE_HEAD + ((len + 7) & ~(size_t)7);
    CHECK(run->end + size <= run->limit);
    memset(run->end, 0, size);
    memcpy(run->end, &head, sizeof head);
    memset(run->end + LANE_HEAD, (int)value, len);
    run->end += size;
    run->n++;
}

/* Of some KiB each: a run is begun for each of them, and all share a completion. Pieces that
 * were written in the meantime are done with, where no callback is due. */
TEST(pieces_that_share_a_completion_wait_for_no_turn) {
    enum { EACH = 2048, N = 200 };
    struct pair p;
    static char bytes[N][LANE_HEAD + EACH], expected[EACH];
    struct counted done = counted(1);
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    for (unsigned i = 0; i < N; i++) {
        struct lane_run run = {.end = bytes[i]};
        done.completion.count++;
        CHECK_EQ(p.a.lane->ops->buffer->am_run(p.a.lane, &run, EACH / 2, sizeof bytes[i],
                                               &done.completion),
                 WEFT_OK);
        add_to(&run, 5, i, EACH - i % 3);
        CHECK_EQ(p.a.lane->ops->buffer->am_run(p.a.lane, NULL, 0, 0, NULL), WEFT_OK);
        CHECK(!run.limit);
    }
    CHECK(pair_until(&p, p.b.n_messages == N));
    CHECK(pair_until(&p, done.completion.count == 1));
    CHECK_EQ(done.calls, 0);
    for (unsigned i = 0; i < N; i++) {
        CHECK_EQ(p.b.messages[i].len, (size_t)(EACH - i % 3));
        memset(expected, (int)i, EACH);
        CHECK(memcmp(p.b.messages[i].data, expected, EACH - i % 3) == 0);
    }
    pair_close(&p);
}

/* What a run brings, and what is sent otherwise, comes in the order sent, whichever of them ends
 * the run. */
TEST(what_is_added_to_a_run_keeps_its_place_among_others) {
    enum { ROUNDS = 40 };
    struct pair p;
    static char bytes[ROUNDS * 64], big[5000];
    struct counted done = counted(1), in_flight = counted(1);
    struct lane_run run = {.end = bytes};
    unsigned n = 0;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (!run.limit) {
            done.completion.count++;
            CHECK_EQ(p.a.lane->ops->buffer->am_run(p.a.lane, &run, 24,
                                                   (size_t)(bytes + sizeof bytes - run.end),
                                                   &done.completion),
                     WEFT_OK);
        }
        add_to(&run, 5, n++, 9);
        if (i % 3 == 0) add_to(&run, 5, n++, 16);
        memset(big, (int)n, sizeof big);
        weft_status_t st = WEFT_OK;
        weft_iov_t iov = {big, sizeof big};
        switch (i % 5) {
        case 0:
            CHECK_EQ(
                p.a.lane->ops->am_short(p.a.lane, 5, UINT64_C(0x0101010101010101) * n, NULL, 0),
                WEFT_OK);
            break;
        case 1: pair_turns(&p, 3); break;
        case 2:
            in_flight.completion.count++;
            st = p.a.lane->ops->am_zcopy(p.a.lane, 5, &(struct lane_zcopy){NULL, 0, &iov, 1},
                                         &in_flight.completion);
            CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
            if (st == WEFT_OK) in_flight.completion.count--;
            CHECK(pair_until(&p, in_flight.completion.count == 1)); /* its memory is ours again */
            break;
        default: break;
        }
        n += i % 5 == 0 || i % 5 == 2;
        CHECK(i % 5 > 2 || !run.limit);
    }
    CHECK(pair_until(&p, p.b.n_messages == n && done.completion.count == 1));
    for (unsigned i = 0; i < n; i++) CHECK_EQ(((const uint8_t *)p.b.messages[i].data)[0], i);
    pair_close(&p);
}

/* Who closes without a flush gets its memory back, and the run is not looked at any more. */
TEST(a_run_ends_with_its_lane) {
    struct pair p;
    static char bytes[256];
    struct counted done = counted(1);
    struct lane_run run = {.end = bytes};
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    CHECK_EQ(p.a.lane->ops->buffer->am_run(p.a.lane, &run, 24, sizeof bytes, &done.completion),
             WEFT_OK);
    add_to(&run, 5, 1, 9);
    p.a.lane->ops->close(p.a.lane, false);
    CHECK(pair_until(&p, done.calls == 1));
    CHECK(!run.limit);
    CHECK_EQ(run.end - run.begin, 24);
    pair_close(&p);
}

struct sender {
    struct job job;
    struct pair *pair;
    weft_iov_t iov;
    struct counted done[4];
    uint64_t before, after; /* writes */
};
static void send_in_flight(struct sender *s) {
    s->before = weft__count(s->pair->reactor_a)->tcp_writes;
    for (int i = 0; i < 4; i++) {
        s->done[i] = counted(1);
        CHECK_EQ(s->pair->a.lane->ops->am_zcopy(s->pair->a.lane, 5,
                                                &(struct lane_zcopy){NULL, 0, &s->iov, 1},
                                                &s->done[i].completion),
                 WEFT_IN_PROGRESS);
    }
    s->after = weft__count(s->pair->reactor_a)->tcp_writes;
}
static void send_in_turn(struct job *job) {
    send_in_flight((struct sender *)job);
}

TEST(in_flight_memory_of_one_turn_is_gathered_and_out_of_turn_it_leaves_at_once) {
    enum { EACH = 100 * 1000 };
    struct pair p;
    static uint8_t data[EACH];
    struct sender s = {.job.run = send_in_turn, .pair = &p, .iov = {data, EACH}};
    memset(data, 5, EACH);
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    weft__job_post(p.reactor_a, &s.job);
    CHECK(pair_until(&p, p.b.n_messages == 4));
    CHECK_EQ(s.after, s.before);
    for (int i = 0; i < 4; i++) CHECK_EQ(s.done[i].calls, 1);

    uint64_t before = weft__count(p.reactor_a)->tcp_writes;
    s.done[0] = counted(1);
    weft_status_t st = p.a.lane->ops->am_zcopy(
        p.a.lane, 5, &(struct lane_zcopy){NULL, 0, &s.iov, 1}, &s.done[0].completion);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS); /* as the socket has room */
    CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before + 1);
    CHECK(pair_until(&p, p.b.n_messages == 5));
    CHECK(memcmp(p.b.messages[4].data, data, EACH) == 0);
    pair_close(&p);
}

static void congestion_of(struct end *end, char name[16]) {
    socklen_t len = 16;
    CHECK_EQ(getsockopt(tcp_lane(end->lane)->watch.fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
}

TEST(a_connection_within_the_host_takes_the_simplest_control) {
    struct pair p;
    char a[16] = "", b[16] = "";
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    congestion_of(&p.a, a);
    congestion_of(&p.b, b);
    CHECK(strcmp(a, "reno") == 0 && strcmp(b, "reno") == 0);
    pair_close(&p);
}

static int queue_of(struct end *end) {
    int bytes = 0;
    socklen_t len = sizeof bytes;
    CHECK_EQ(getsockopt(tcp_lane(end->lane)->watch.fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len), 0);
    return bytes;
}

/* The kernel grants what it was asked for twice, for its own use. */
TEST(a_connection_within_the_host_has_a_short_queue) {
    struct pair p;
    pair_open_with(&p, &weft__transport_tcp, 0, &(weft_setting_t){"tcp.local_queue", "96k"}, 1);
    pair_connect(&p);
    CHECK_EQ(queue_of(&p.a), 2 * 96 * 1024);
    CHECK_EQ(queue_of(&p.b), 2 * 96 * 1024);
    pair_close(&p);
}

/* Between two turns the first piece that is long enough is written at once, and those behind it
 * together. */
TEST(zcopied_memory_of_the_time_between_two_turns_leaves_in_two_writes) {
    enum { PIECE = 64 * 1024, N = 8 };
    struct pair p;
    static uint8_t data[PIECE];
    struct counted done = counted(N);
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    uint64_t before = weft__count(p.reactor_a)->tcp_writes;
    for (int i = 0; i < N; i++) {
        weft_iov_t iov = {data, PIECE};
        weft_status_t st = p.a.lane->ops->am_zcopy(
            p.a.lane, 1, &(struct lane_zcopy){NULL, 0, &iov, 1}, &done.completion);
        if (st == WEFT_OK) done.completion.count--;
        CHECK_EQ(st, i == 0 ? WEFT_OK : WEFT_IN_PROGRESS);
        CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before + 1);
    }
    weft__reactor_progress(p.reactor_a, 0);
    CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before + 2);
    CHECK(pair_until(&p, done.calls && p.b.n_messages == N));
    pair_close(&p);
}

TEST(a_send_out_of_turn_leaves_with_the_next_progress) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    pair_turns(&p, 10);
    uint64_t before = weft__count(p.reactor_a)->tcp_writes;
    CHECK_EQ(send8(&p.a, 7), WEFT_OK);
    weft__reactor_progress(p.reactor_a, 0);
    CHECK_EQ(weft__count(p.reactor_a)->tcp_writes, before + 1);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    pair_close(&p);
}

struct answering {
    struct job rest; /* of the turn */
    struct pair *pair;
    uint64_t before, after; /* writes */
};
static void see_what_left(struct job *job) {
    struct answering *s = (struct answering *)job;
    s->after = weft__count(s->pair->reactor_b)->tcp_writes;
}
static void answer_twice(struct end *end, uint8_t id, const void *data, size_t len) {
    struct answering *s = end->arg;
    s->before = weft__count(end->pair->reactor_b)->tcp_writes;
    weft__job_post(end->pair->reactor_b, &s->rest);
    for (uint64_t i = 0; i < 2; i++) CHECK_EQ(send8(end, i), WEFT_OK);
    CHECK_EQ(weft__count(end->pair->reactor_b)->tcp_writes, s->before);
}

TEST(answers_leave_in_one_write_before_the_turn_goes_on) {
    struct pair p;
    struct answering s = {.rest.run = see_what_left, .pair = &p};
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    pair_turns(&p, 10);
    p.b.on_message = answer_twice;
    p.b.arg = &s;
    CHECK_EQ(send8(&p.a, 7), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_messages == 2));
    CHECK_EQ(s.after, s.before + 1);
    pair_close(&p);
}

TEST(an_idle_connection_holds_no_buffer) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    CHECK_EQ(send8(&p.a, 7), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    pair_turns(&p, 5);
    struct tcp_lane *a = tcp_lane(p.a.lane), *b = tcp_lane(p.b.lane);
    CHECK(!a->out.iov_batch && !a->in.buffer && !a->hands);
    CHECK(!b->out.iov_batch && !b->in.buffer && !b->hands);
    CHECK(sizeof *b <= 512); /* and nothing hangs on it */
    pair_close(&p);
}

TEST(a_turn_that_comes_late_asks_a_socket_that_was_read_empty) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    for (size_t i = 0; i < 2; i++) { /* with the second it is hot */
        CHECK_EQ(send8(&p.a, i), WEFT_OK);
        CHECK(pair_until(&p, p.b.n_messages == i + 1));
    }
    CHECK(tcp_lane(p.b.lane)->in.hot >= 0);
    uint64_t before = weft__count(p.reactor_b)->tcp_reads;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    weft__reactor_progress(p.reactor_b, 0);
    CHECK_EQ(weft__count(p.reactor_b)->tcp_reads, before + 1);
    pair_close(&p);
}

TEST(a_quiet_socket_is_left_to_its_watch) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    CHECK_EQ(send8(&p.a, 7), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    CHECK(tcp_lane(p.b.lane)->in.hot >= 0);
    uint64_t before = weft__count(p.reactor_b)->tcp_reads;
    for (int i = 0; i < TCP_SLACKEN; i++) weft__reactor_progress(p.reactor_b, 0);
    CHECK(weft__count(p.reactor_b)->tcp_reads >= before + TCP_SLACKEN - TCP_PASSES);
    for (int i = 0; i < (TCP_SLACKEN << TCP_QUIET / TCP_SLACKEN); i++)
        weft__reactor_progress(p.reactor_b, 0);
    CHECK_EQ(tcp_lane(p.b.lane)->in.hot, -1);
    CHECK(weft__count(p.reactor_b)->tcp_reads <= before + TCP_QUIET);
    before = weft__count(p.reactor_b)->tcp_reads;
    for (int i = 0; i < 100; i++) weft__reactor_progress(p.reactor_b, 0);
    CHECK_EQ(weft__count(p.reactor_b)->tcp_reads, before);
    CHECK_EQ(send8(&p.a, 8), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 2));
    pair_close(&p);
}

/* More of them than one job delivers, all with one read: no news from the socket will call for
 * the rest. */
TEST(frames_that_a_job_leaves_in_the_buffer_come_before_the_worker_sleeps) {
    enum { N = 1000 };
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    CHECK(tcp_lane(p.b.lane)->in.hot < 0);
    struct pollfd fd = {weft__reactor_fd(p.reactor_b), POLLIN, 0};
    while (poll(&fd, 1, 0) > 0) weft__reactor_progress(p.reactor_b, 0);
    for (uint64_t i = 0; i < N; i++) CHECK_EQ(send8(&p.a, i), WEFT_OK);
    weft__reactor_progress(p.reactor_a, 0);
    uint64_t before = weft__count(p.reactor_b)->tcp_reads;
    while (p.b.n_messages < N && poll(&fd, 1, 200) > 0) weft__reactor_progress(p.reactor_b, 0);
    CHECK_EQ(p.b.n_messages, N);
    CHECK(weft__count(p.reactor_b)->tcp_reads <= before + 3);
    for (uint64_t i = 0; i < N; i++) CHECK_EQ(value_of(&p.b.messages[i]), i);
    pair_close(&p);
}

/* ---- places ---------------------------------------------------------------------------------- */

static void one_message_at(struct pair *p, const char *where) {
    p->uri = where;
    pair_connect(p);
    CHECK_EQ(send8(&p->a, 1), WEFT_OK);
    CHECK_EQ(send8(&p->b, 2), WEFT_OK);
    CHECK(pair_until(p, p->b.n_messages == 1 && p->a.n_messages == 1));
}

TEST(ipv6_carries_messages_too) {
    struct pair p;
    char name[TCP_NAME_ROOM];
    if (!have_ipv6()) SKIP("no IPv6 here");
    pair_open(&p, &weft__transport_tcp, PAIR_BY_URI);
    one_message_at(&p, "[::1]:0");
    p.a.lane->ops->describe(p.a.lane, name, sizeof name);
    CHECK(strncmp(name, "[::1]:", 6) == 0);
    CHECK(p.b.listen_arg == &p.listener);
    pair_close(&p);
}

TEST(a_worker_address_may_be_ipv6) {
    struct pair p;
    weft_setting_t settings[] = {{"tcp.bind", "::1"}};
    if (!have_ipv6()) SKIP("no IPv6 here");
    pair_open_with(&p, &weft__transport_tcp, 0, settings, 1);
    pair_connect(&p);
    CHECK(p.b.listen_arg == NULL);
    pair_close(&p);
}

TEST(beyond_loopback_needs_a_key_or_the_word_insecure) {
    struct pair p;
    struct tl_listener *l;
    weft_setting_t settings[] = {{"tcp.insecure", "yes"}};
    pair_open(&p, &weft__transport_tcp, 0);
    CHECK_EQ(
        p.iface_a->ops->listen(p.iface_a, "*:0", &(struct listen_how){.backlog = 16}, NULL, &l),
        WEFT_ERR_INSECURE);
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "0.0.0.0:0", &(struct listen_how){.backlog = 16},
                                    NULL, &l),
             WEFT_ERR_INSECURE);
    if (have_ipv6())
        CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "[::]:0", &(struct listen_how){.backlog = 16},
                                        NULL, &l),
                 WEFT_ERR_INSECURE);
    pair_close(&p);
    pair_open_with(&p, &weft__transport_tcp, PAIR_BY_URI, settings, 1);
    one_message_at(&p, "*:0");
    pair_close(&p);
}

TEST(any_interface_serves_both_families) {
    struct pair p;
    struct end second = {0};
    struct lane *lane;
    char where[64];
    weft_setting_t settings[] = {{"tcp.insecure", "yes"}};
    if (!have_ipv6()) SKIP("no IPv6 here");
    pair_open_with(&p, &weft__transport_tcp, PAIR_BY_URI, settings, 1);
    one_message_at(&p, "*:0");
    snprintf(where, sizeof where, "127.0.0.1:%u", weft__tcp_sockaddr_port(&p.listener->at));
    p.next_accepted = &second;
    second.pair = &p;
    CHECK_EQ(p.iface_a->ops->connect_uri(p.iface_a, where, &lane), WEFT_OK);
    struct end first = {.pair = &p, .lane = lane};
    lane->owner = &first;
    CHECK(pair_until(&p, second.n_open == 1 && first.n_open == 1));
    pair_end_close(&first, true);
    pair_end_close(&second, true);
    pair_close(&p);
}

/* localhost may be both; the listener has one of them. */
TEST(the_next_address_of_a_name_is_tried) {
    struct pair p;
    struct lane *lane;
    char where[64];
    pair_open(&p, &weft__transport_tcp, PAIR_BY_URI);
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, "127.0.0.1:0", &(struct listen_how){.backlog = 16},
                                    NULL, &p.listener),
             WEFT_OK);
    snprintf(where, sizeof where, "localhost:%u", weft__tcp_sockaddr_port(&p.listener->at));
    CHECK_EQ(p.iface_a->ops->connect_uri(p.iface_a, where, &lane), WEFT_OK);
    p.a.lane = lane;
    lane->owner = &p.a;
    /* whatever the hosts file says, this one comes first */
    struct tcp_hands *h = tcp_lane(lane)->hands;
    h->candidate[1] = h->candidate[0];
    weft__tcp_host_numeric("127.0.0.1", 1, &h->candidate[0]);
    h->n_candidates = 2;
    weft__tcp_dial(tcp_lane(lane));
    CHECK(pair_until(&p, p.a.n_open == 1 && p.b.n_open == 1));
    pair_close(&p);
}

TEST(a_port_in_use_is_reported) {
    struct pair p;
    struct tl_listener *first, *second;
    pair_open(&p, &weft__transport_tcp, 0);
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "127.0.0.1:0", &(struct listen_how){.backlog = 16},
                                    NULL, &first),
             WEFT_OK);
    const char *uri = p.iface_a->ops->listener_uri(first);
    CHECK(strncmp(uri, "tcp://127.0.0.1:", 16) == 0 && atoi(uri + 16) > 0);
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, uri + 6, &(struct listen_how){.backlog = 16}, NULL,
                                    &second),
             WEFT_ERR_EXISTS);
    p.iface_a->ops->listener_close(first);
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, "127.0.0.1", &(struct listen_how){.backlog = 16},
                                    NULL, &second),
             WEFT_ERR_ADDRESS);
    CHECK_EQ(p.iface_b->ops->listen(p.iface_b, "no-such-host.invalid:1",
                                    &(struct listen_how){.backlog = 16}, NULL, &second),
             WEFT_ERR_ADDRESS);
    pair_close(&p);
}

static weft_status_t fate_of(struct pair *p, const char *where) {
    struct lane *lane;
    weft_status_t st = p->iface_a->ops->connect_uri(p->iface_a, where, &lane);
    if (st < 0) return st;
    struct end end = {.pair = p, .lane = lane};
    lane->owner = &end;
    CHECK_EQ(end.n_down, 0);
    CHECK(pair_until(p, end.n_down == 1));
    CHECK_EQ(end.n_open, 0);
    CHECK(lane->ops->am_short(lane, 0, 0, NULL, 0) < 0);
    pair_end_close(&end, true);
    CHECK_EQ(end.n_down, 1);
    return end.down;
}

TEST(no_one_there_is_refused) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    CHECK_EQ(fate_of(&p, "127.0.0.1:1"), WEFT_ERR_REFUSED);
    CHECK_EQ(fate_of(&p, "127.0.0.1:0"), WEFT_ERR_ADDRESS);
    CHECK_EQ(fate_of(&p, "*:80"), WEFT_ERR_ADDRESS);
    CHECK_EQ(fate_of(&p, "255.255.255.255:80"), WEFT_ERR_UNREACHABLE);
    pair_close(&p);
}

TEST(loopback_of_another_host_is_out_of_reach) {
    struct pair p;
    uint8_t address[96];
    size_t len = sizeof address;
    const char *why = NULL;
    struct lane *lane;
    pair_open(&p, &weft__transport_tcp, 0);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    CHECK_EQ(p.iface_a->ops->reachable(p.iface_a, address, len, &why), WEFT_OK);
    address[TCP_ADDRESS_SIZE - 1] ^= 1; /* of the host id */
    CHECK_EQ(p.iface_a->ops->reachable(p.iface_a, address, len, &why), WEFT_ERR_UNREACHABLE);
    CHECK(strstr(why, "another host"));
    CHECK_EQ(p.iface_a->ops->connect(p.iface_a, address, len, &lane), WEFT_ERR_UNREACHABLE);
    CHECK_EQ(p.iface_a->ops->connect(p.iface_a, address, 7, &lane), WEFT_ERR_ADDRESS);
    pair_close(&p);
}

/* The port was the dead worker's; who listens there now is not who is meant. */
TEST(an_address_of_an_earlier_incarnation_is_refused) {
    struct pair p;
    uint8_t address[96];
    size_t len = sizeof address;
    struct lane *lane;
    pair_open(&p, &weft__transport_tcp, 0);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    address[24] ^= 1; /* of the worker id */
    CHECK_EQ(p.iface_a->ops->connect(p.iface_a, address, len, &lane), WEFT_OK);
    lane->owner = &p.a;
    p.a.lane = lane;
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_REFUSED);
    CHECK_EQ(p.b.n_open, 0);
    pair_close(&p);
}

/* How connections end: goodbye, death, abort, silence, no descriptors. Each operation completes
 * once. */
#define _GNU_SOURCE
#include "counted.h"
#include "pair.h"
#include <base/counters.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <transports/tcp/tcp.h>

static weft_status_t send8(struct end *end, uint64_t value) {
    return end->lane->ops->am_short(end->lane, 3, value, NULL, 0);
}

/* Sends without a copy until the socket takes no more: the last ones are in progress. Returns how
 * many were accepted. */
enum { MANY = 256, BIG = 256 * 1024 };
static uint8_t big[BIG];
static int fill(struct end *end, struct counted *done) {
    weft_iov_t iov = {big, BIG};
    for (int i = 0; i < MANY; i++) {
        done[i] = counted(1);
        weft_status_t st = end->lane->ops->am_zcopy(
            end->lane, 1, &(struct lane_zcopy){NULL, 0, &iov, 1}, &done[i].completion);
        if (st == WEFT_NO_RESOURCE) return i;
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        if (st == WEFT_OK) done[i].calls = 1;
    }
    return MANY;
}
static int notified(const struct counted *done, int n, weft_status_t status) {
    int count = 0;
    for (int i = 0; i < n; i++) count += done[i].calls == 1 && done[i].status == status;
    return count;
}

TEST(a_close_in_good_order_is_reported_as_such) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    for (uint64_t i = 0; i < 100; i++) CHECK_EQ(send8(&p.a, i), WEFT_OK);
    p.a.lane->ops->close(p.a.lane, true);
    CHECK(pair_until(&p, p.a.n_closed == 1 && p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(p.b.n_messages, 100);
    CHECK_EQ(send8(&p.b, 1), WEFT_ERR_PEER_CLOSED);
    pair_close(&p);
}

TEST(an_abort_sends_goodbye_too_when_it_can) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    p.a.lane->ops->close(p.a.lane, false);
    CHECK(pair_until(&p, p.a.n_closed == 1 && p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    pair_close(&p);
}

TEST(both_may_close_at_once) {
    struct pair p;
    for (int abort_a = 0; abort_a < 2; abort_a++)
        for (int abort_b = 0; abort_b < 2; abort_b++) {
            pair_open(&p, &weft__transport_tcp, 0);
            pair_connect(&p);
            CHECK_EQ(send8(&p.a, 1), WEFT_OK);
            CHECK_EQ(send8(&p.b, 1), WEFT_OK);
            p.a.lane->ops->close(p.a.lane, !abort_a);
            p.b.lane->ops->close(p.b.lane, !abort_b);
            CHECK(pair_until(&p, p.a.n_closed == 1 && p.b.n_closed == 1));
            CHECK_EQ(p.a.n_down + p.b.n_down, 0);
            CHECK_EQ(p.a.n_messages + p.b.n_messages, 0); /* a closed lane delivers nothing */
            pair_close(&p);
        }
}

TEST(close_while_dialing_ends_quietly) {
    struct pair p;
    for (int turns = 0; turns < 6; turns++)
        for (int flush = 0; flush < 2; flush++) {
            pair_open(&p, &weft__transport_tcp, 0);
            CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
            pair_turns(&p, turns);
            p.a.lane->ops->close(p.a.lane, flush);
            CHECK_EQ(p.a.n_closed, 0);
            CHECK(pair_until(&p, p.a.n_closed == 1));
            pair_turns(&p, 20);
            pair_close(&p);
        }
}

TEST(an_iface_closes_over_connections_that_were_not_reported) {
    struct pair p;
    for (int turns = 0; turns < 6; turns++) {
        pair_open(&p, &weft__transport_tcp, 0);
        CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
        for (int i = 0; i < turns; i++)
            weft__reactor_progress(p.reactor_a, 0), weft__reactor_progress(p.reactor_b, 0);
        pair_end_close(&p.a, false);
        pair_close(&p);
    }
}

TEST(a_flush_completes_what_was_sent_before) {
    struct pair p;
    static struct counted done[MANY];
    struct counted flushed = counted(1);
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &flushed.completion), WEFT_OK);
    int n = fill(&p.a, done);
    CHECK(n < MANY);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &flushed.completion), WEFT_IN_PROGRESS);
    weft__reactor_progress(p.reactor_a, 0);
    CHECK_EQ(flushed.calls, 0); /* the peer reads nothing yet */
    CHECK(pair_until(&p, flushed.calls == 1));
    CHECK_EQ(notified(done, n, WEFT_OK), n);
    CHECK(pair_until(&p, p.b.n_messages == (size_t)n));
    pair_close(&p);
}

struct waiting {
    struct pending pending;
    struct end *end;
    uint64_t value;
    int tries, sent;
};
static weft_status_t send_waiting(struct pending *pending) {
    struct waiting *w = (struct waiting *)pending;
    w->tries++;
    weft_status_t st = send8(w->end, w->value);
    w->sent += st == WEFT_OK;
    return st;
}

TEST(what_waits_is_retried_in_order_when_there_is_space) {
    struct pair p;
    static struct counted done[MANY];
    struct waiting w[8];
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    int n = fill(&p.a, done);
    CHECK(n < MANY);
    while (send8(&p.a, 0) == WEFT_OK) n++;
    for (int i = 0; i < 8; i++) {
        w[i] =
            (struct waiting){.pending.retry = send_waiting, .end = &p.a, .value = (uint64_t)i + 1};
        p.a.lane->ops->pending_add(p.a.lane, &w[i].pending);
    }
    p.a.lane->ops->pending_remove(p.a.lane, &w[5].pending);
    p.a.lane->ops->pending_remove(p.a.lane, &w[7].pending);
    p.a.lane->ops->pending_remove(p.a.lane, &w[7].pending);
    CHECK_EQ(w[0].tries, 0);
    CHECK(pair_until(&p, p.b.n_messages == (size_t)n + 6));
    static const uint64_t order[6] = {1, 2, 3, 4, 5, 7};
    for (int i = 0; i < 6; i++) {
        CHECK(memcmp(p.b.messages[n + i].data, &order[i], 8) == 0);
        CHECK_EQ(w[order[i] - 1].sent, 1);
    }
    CHECK_EQ(w[5].tries + w[7].tries, 0);
    pair_close(&p);
}

TEST(what_waits_while_dialing_is_sent_when_up) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    struct waiting w = {.pending.retry = send_waiting, .end = &p.a, .value = 9};
    CHECK_EQ(send8(&p.a, 9), WEFT_NO_RESOURCE);
    p.a.lane->ops->pending_add(p.a.lane, &w.pending);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    CHECK(w.tries == 1 && w.sent == 1 && p.a.n_open == 1);
    pair_close(&p);
}

/* The far end in a process of its own, so that it can be killed. It accepts, reads nothing, and
 * waits. */
static pid_t far_end(int *uri_fd) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct pair p;
        pair_open(&p, &weft__transport_tcp, PAIR_BY_URI);
        struct tl_listener *l;
        if (p.iface_b->ops->listen(p.iface_b, "127.0.0.1:0", &(struct listen_how){.backlog = 16},
                                   NULL, &l) != WEFT_OK)
            _exit(1);
        const char *uri = p.iface_b->ops->listener_uri(l);
        if (write(fds[1], uri, strlen(uri) + 1) < 0) _exit(1);
        while (p.b.n_open == 0) weft__reactor_progress(p.reactor_b, 0);
        for (;;) pause();
    }
    close(fds[1]);
    *uri_fd = fds[0];
    return pid;
}

TEST(a_killed_peer_fails_everything_once) {
    struct pair p;
    static struct counted done[MANY];
    char uri[128];
    int fd;
    pid_t pid = far_end(&fd);
    CHECK(read(fd, uri, sizeof uri) > 0);
    close(fd);
    pair_open(&p, &weft__transport_tcp, 0);
    struct lane *lane;
    CHECK_EQ(p.iface_a->ops->connect_uri(p.iface_a, uri + 6, &lane), WEFT_OK);
    p.a.lane = lane;
    lane->owner = &p.a;
    CHECK(pair_until(&p, p.a.n_open == 1));
    pair_turns(&p, 50);
    int n = fill(&p.a, done);
    CHECK(n < MANY);
    int before = notified(done, n, WEFT_OK);
    CHECK(before < n);
    struct waiting w = {.pending.retry = send_waiting, .end = &p.a};
    lane->ops->pending_add(lane, &w.pending);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(notified(done, n, WEFT_OK) + notified(done, n, WEFT_ERR_PEER_FAILED), n);
    CHECK(notified(done, n, WEFT_ERR_PEER_FAILED) > 0);
    CHECK_EQ(w.tries, 0);
    CHECK_EQ(send8(&p.a, 1), WEFT_ERR_PEER_FAILED);
    pair_turns(&p, 10);
    CHECK_EQ(p.a.n_down, 1);
    pair_close(&p);
}

TEST(an_abort_ends_what_is_zcopied) {
    struct pair p;
    static struct counted done[MANY];
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    int n = fill(&p.a, done);
    CHECK(n < MANY);
    p.a.lane->ops->close(p.a.lane, false);
    CHECK_EQ(notified(done, n, WEFT_ERR_CLOSED), 0); /* not inside the call */
    CHECK(pair_until(&p, p.a.n_closed == 1));
    CHECK_EQ(notified(done, n, WEFT_OK) + notified(done, n, WEFT_ERR_CLOSED), n);
    CHECK(notified(done, n, WEFT_ERR_CLOSED) > 0);
    CHECK(pair_until(&p, p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_FAILED); /* in the middle of a frame nothing can be said */
    pair_close(&p);
}

TEST(a_flushing_close_waits_for_a_slow_reader_and_not_for_ever) {
    struct pair p;
    static struct counted done[MANY];
    for (int reads = 0; reads < 2; reads++) {
        weft_setting_t settings[] = {{"close.timeout", reads ? "60s" : "50ms"}};
        pair_open_with(&p, &weft__transport_tcp, 0, settings, 1);
        pair_connect(&p);
        int n = fill(&p.a, done);
        CHECK(n < MANY);
        p.a.lane->ops->close(p.a.lane, true);
        double end = test_now() + test_timeout(60);
        while (p.a.n_closed == 0 && test_now() < end) {
            weft__reactor_progress(p.reactor_a, 0);
            if (reads) weft__reactor_progress(p.reactor_b, 0);
        }
        CHECK_EQ(p.a.n_closed, 1);
        CHECK_EQ(notified(done, n, reads ? WEFT_OK : WEFT_ERR_TIMED_OUT) > 0, 1);
        CHECK_EQ(notified(done, n, WEFT_OK) + notified(done, n, WEFT_ERR_TIMED_OUT), n);
        CHECK(pair_until(&p, p.b.n_down == 1));
        CHECK_EQ(p.b.down, reads ? WEFT_ERR_PEER_CLOSED : WEFT_ERR_PEER_FAILED);
        if (reads) CHECK_EQ(p.b.n_messages, n);
        pair_close(&p);
    }
}

static void close_from_handler(struct end *end, uint8_t id, const void *data, size_t len) {
    end->n_messages++;
    end->lane->ops->close(end->lane, end->arg != NULL);
    CHECK(((const uint8_t *)data)[len - 1] == 0); /* still there */
}

TEST(a_handler_may_close_its_own_lane) {
    struct pair p;
    for (int flush = 0; flush < 2; flush++) {
        pair_open(&p, &weft__transport_tcp, 0);
        pair_connect(&p);
        p.b.on_message = close_from_handler;
        p.b.arg = flush ? &p : NULL;
        for (uint64_t i = 0; i < 100; i++) CHECK_EQ(send8(&p.a, 0), WEFT_OK);
        CHECK(pair_until(&p, p.b.n_closed == 1 && p.a.n_down == 1));
        CHECK_EQ(p.b.n_messages, 1);
        p.b.n_messages = 0;
        pair_close(&p);
    }
}

static int reply_lane_sent;
static void reply(struct end *end, uint8_t id, const void *data, size_t len) {
    if (send8(end, 1) == WEFT_OK) reply_lane_sent++;
}

TEST(replies_of_one_turn_leave_in_one_write) {
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    p.b.on_message = reply;
    reply_lane_sent = 0;
    for (uint64_t i = 0; i < 500; i++) CHECK_EQ(send8(&p.a, i), WEFT_OK);
    const struct counters *of_b = weft__count(p.reactor_b);
    uint64_t writes = of_b->tcp_writes, reads = of_b->tcp_reads;
    CHECK(pair_until(&p, p.a.n_messages == 500));
    CHECK_EQ(reply_lane_sent, 500);
    /* the socket may have handed them over in several */
    CHECK(of_b->tcp_writes - writes <= of_b->tcp_reads - reads);
    pair_close(&p);
}

/* A budget smaller than what has come, and comes meanwhile: the rest is handed over in the next
 * turns, nothing is lost. */
TEST(a_budget_leaves_frames_for_later_turns) {
    enum { BUDGET = 3, CHUNK = 256 };
    struct pair p;
    pair_open(&p, &weft__transport_tcp, 0);
    pair_connect(&p);
    CHECK_EQ(send8(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1)); /* b reads it hot from now on */
    int turns = 0;
    while (p.b.n_messages < 2001 && turns++ < 100000) {
        size_t before = p.b.n_messages;
        for (uint64_t i = 0; i < 1000 && turns <= 2; i++) CHECK_EQ(send8(&p.a, i), WEFT_OK);
        weft__reactor_progress(p.reactor_a, 0);
        if (turns == 2) usleep(2000); /* so that the kernel is asked, too */
        weft__reactor_poll_soon(p.reactor_b);
        weft__reactor_progress(p.reactor_b, BUDGET);
        /* The poll counts frames, and the queue jobs: what was left, what the kernel reported,
         * and what that leaves. */
        CHECK(p.b.n_messages - before <= (size_t)BUDGET * CHUNK);
    }
    CHECK_EQ(p.b.n_messages, 2001);
    pair_close(&p);
}

TEST(without_descriptors_a_caller_is_refused_and_the_listener_lives) {
    struct pair p;
    struct rlimit old, low;
    pair_open(&p, &weft__transport_tcp, 0);
    uint8_t address[96];
    size_t len = sizeof address;
    struct lane *lane;
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    int top = open("/dev/null", O_RDONLY);
    close(top);

    /* One descriptor for the dialer's socket, none for the accepted one. */
    low = old;
    low.rlim_cur = (rlim_t)top + 1;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    weft_status_t st = p.iface_a->ops->connect(p.iface_a, address, len, &lane);
    struct end end = {.pair = &p, .lane = lane};
    if (st == WEFT_OK) lane->owner = &end;
    bool down = st == WEFT_OK && pair_until(&p, end.n_down == 1);
    /* None at all. */
    low.rlim_cur = (rlim_t)top;
    setrlimit(RLIMIT_NOFILE, &low);
    weft_status_t second_st = p.iface_a->ops->connect(p.iface_a, address, len, &lane);
    struct end second = {.pair = &p, .lane = lane};
    if (second_st == WEFT_OK) lane->owner = &second;
    bool second_down = second_st == WEFT_OK && pair_until(&p, second.n_down == 1);
    setrlimit(RLIMIT_NOFILE, &old);
    CHECK(down && end.down == WEFT_ERR_NO_FDS);
    CHECK(second_down && second.down == WEFT_ERR_NO_FDS);
    pair_end_close(&end, true);
    pair_end_close(&second, true);
    pair_connect(&p); /* after the pause */
    pair_close(&p);
}

/* The shm transport between two processes: death, sleep, and the window between the last look
 * and the sleep. The tests themselves: shm_process_test.c runs them by rings,
 * shm_mailbox_process_test.c by the mailbox. */
#ifndef WEFT_TESTS_TRANSPORTS_SHM_PROCESS_H
#define WEFT_TESTS_TRANSPORTS_SHM_PROCESS_H

#include "shm_peer.h"
#include <base/counters.h>
#include <sched.h>

static bool readable(int fd, int ms) {
    return poll(&(struct pollfd){fd, POLLIN, 0}, 1, ms) == 1;
}

static void spin_us(unsigned us) {
    double until = test_now() + us / 1e6;
    while (test_now() < until) {
    }
}

static uint64_t number_of(const void *data) {
    uint64_t n;
    memcpy(&n, data, sizeof n);
    return n;
}

/* ---- death ----------------------------------------------------------------------------------- */

static void count(struct end *end, uint8_t id, const void *data, size_t len) {
    ++*(uint64_t *)end->arg;
}

static size_t pack(void *to, void *arg) {
    memset(to, 7, 4000);
    return 4000;
}
static void no_done(struct completion *c, weft_status_t status) {}

/* Sends and receives all forms until it is killed. */
static void traffic(struct pair *p, void *arg) {
    static uint8_t large[200000];
    static uint64_t got;
    p->a.on_message = count;
    p->a.arg = &got;
    for (;;) {
        struct lane *lane = p->a.lane;
        struct completion c = {no_done, 1, WEFT_OK};
        lane->ops->am_short(lane, 1, 1, "x", 1);
        lane->ops->am_bcopy(lane, 2, pack, NULL);
        lane->ops->am_zcopy(
            lane, 3, &(struct lane_zcopy){"12345678", 8, &(weft_iov_t){large, sizeof large}, 1},
            &c);
        pair_turn(p);
    }
}

TEST(killed_in_the_middle_of_traffic_the_peer_is_reported_and_nothing_hangs) {
    double slowest = 0;
    for (int round = 0; round < 10; round++) {
        struct peer peer;
        uint64_t got = 0;
        static uint8_t large[200000];
        peer_open(&peer, traffic, NULL);
        struct end *a = &peer.p.a;
        a->on_message = count;
        a->arg = &got;
        CHECK(pair_until(&peer.p, got > 100));
        spin_us((unsigned)round * 150);
        kill(peer.pid, SIGKILL);
        double killed = test_now();
        while (a->n_down == 0 && test_now() < killed + 20) {
            struct completion c = {no_done, 1, WEFT_OK};
            a->lane->ops->am_short(a->lane, 1, 1, "x", 1);
            a->lane->ops->am_bcopy(a->lane, 2, pack, NULL);
            a->lane->ops->am_zcopy(
                a->lane, 3,
                &(struct lane_zcopy){"12345678", 8, &(weft_iov_t){large, sizeof large}, 1}, &c);
            weft__reactor_progress(peer.p.reactor_a, 0);
        }
        CHECK_EQ(a->n_down, 1);
        CHECK_EQ(a->down, WEFT_ERR_PEER_FAILED);
        if (test_now() - killed > slowest) slowest = test_now() - killed;
        CHECK(a->lane->ops->am_short(a->lane, 1, 1, "x", 1) < 0);
        peer_close(&peer);
        CHECK_EQ(a->n_down, 1);
    }
    printf("  slowest of 10: %.2f ms\n", slowest * 1e3);
}

TEST(a_sleeper_is_woken_by_the_death_of_its_peer) {
    struct peer peer;
    peer_open(&peer, traffic, NULL);
    uint64_t got = 0;
    peer.p.a.on_message = count;
    peer.p.a.arg = &got;
    int fd = weft__reactor_fd(peer.p.reactor_a);
    CHECK(pair_until(&peer.p, got > 10));
    kill(peer.pid, SIGKILL);
    double give_up = test_now() + test_timeout(60);
    while (peer.p.a.n_down == 0 && test_now() < give_up && readable(fd, 20000))
        weft__reactor_progress(peer.p.reactor_a, 0);
    CHECK_EQ(peer.p.a.down, WEFT_ERR_PEER_FAILED);
    peer_close(&peer);
}

static void stop(struct pair *p, void *arg) {
    raise(SIGSTOP);
    for (;;) pair_turn(p);
}

/* Forks a child that keeps all its descriptors until the test closes its end of the pipe `arg`. */
static void forking(struct pair *p, void *arg) {
    const int *until = arg;
    char none;
    close(until[1]);
    if (fork() == 0) {
        while (read(until[0], &none, 1) < 0) continue;
        _exit(0);
    }
    traffic(p, NULL);
}

TEST(a_child_that_keeps_the_socket_does_not_hide_the_death_of_its_parent) {
    struct peer peer;
    uint64_t got = 0;
    int until[2];
    CHECK_EQ(pipe(until), 0);
    peer_open(&peer, forking, until);
    peer.p.a.on_message = count;
    peer.p.a.arg = &got;
    CHECK(pair_until(&peer.p, got > 10));
    kill(peer.pid, SIGKILL);
    CHECK(pair_until(&peer.p, peer.p.a.n_down == 1));
    CHECK_EQ(peer.p.a.down, WEFT_ERR_PEER_FAILED);
    close(until[0]), close(until[1]);
    peer_close(&peer);
}

TEST(a_close_does_not_wait_for_a_stopped_peer_beyond_its_timeout) {
    struct peer peer;
    peer_open(&peer, stop, NULL);
    waitpid(peer.pid, NULL, WUNTRACED);
    static uint8_t large[200000];
    struct completion c = {no_done, 1, WEFT_OK};
    struct lane *lane = peer.p.a.lane;
    lane->ops->am_zcopy(
        lane, 3, &(struct lane_zcopy){"12345678", 8, &(weft_iov_t){large, sizeof large}, 1}, &c);
    double began = test_now();
    lane->ops->close(lane, true);
    CHECK(pair_until(&peer.p, peer.p.a.n_closed == 1));
    CHECK(test_now() - began > 0.25);
    peer_close(&peer);
}

TEST(the_name_of_a_dead_listener_can_be_taken) {
    struct peer peer;
    struct tl_listener *listener = NULL;
    peer_open(&peer, stop, NULL);
    waitpid(peer.pid, NULL, WUNTRACED);
    struct iface *iface = peer.p.iface_a;
    CHECK_EQ(iface->ops->listen(iface, "peer", &(struct listen_how){.backlog = 4}, NULL, &listener),
             WEFT_ERR_EXISTS);
    kill(peer.pid, SIGKILL);
    waitpid(peer.pid, NULL, 0);
    CHECK_EQ(iface->ops->listen(iface, "peer", &(struct listen_how){.backlog = 4}, NULL, &listener),
             WEFT_OK);
    iface->ops->listener_close(listener);
    peer_close(&peer);
}

/* ---- the window ------------------------------------------------------------------------------ */

static void echo_last(struct end *end, uint8_t id, const void *data, size_t len) {
    if (id != 2) return;
    if (end->lane->ops->am_short(end->lane, 1, number_of(data), "", 0) != WEFT_OK) _exit(4);
}

/* Echoes messages of id 2, asleep on its fd whenever it can be, with no timer anywhere. */
static void sleeping_echo(struct pair *p, void *arg) {
    p->a.on_message = echo_last;
    int fd = weft__reactor_fd(p->reactor_a);
    while (p->a.n_down == 0) {
        weft__reactor_progress(p->reactor_a, 0);
        readable(fd, -1);
    }
}

struct echo {
    uint64_t last;
};
static void echoed(struct end *end, uint8_t id, const void *data, size_t len) {
    ((struct echo *)end->arg)->last = number_of(data);
}

/* One message at a time: a wakeup that is lost is not made good by the next. The pauses sweep
 * the window; bursts make the ring attended, so that going to sleep takes the barrier. */
TEST(a_hundred_thousand_messages_race_through_the_arm_window) {
    struct peer peer;
    struct echo e = {0};
    peer_open(&peer, sleeping_echo, NULL);
    struct end *a = &peer.p.a;
    a->on_message = echoed;
    a->arg = &e;
    uint32_t x = 7;
    uint64_t sent = 0, number = 0;
    double began = test_now();
    while (sent < 100000 && test_now() < began + 8) {
        x = x * 1664525 + 1013904223;
        for (unsigned n = x >> 24 < 2 ? 200 : 0; n; n--)
            if (a->lane->ops->am_short(a->lane, 3, 0, "", 0) == WEFT_OK) sent++;
        number++;
        while (a->lane->ops->am_short(a->lane, 2, number, "", 0) != WEFT_OK) {
        }
        sent++;
        double give_up = test_now() + test_timeout(60);
        for (unsigned n = 1; e.last != number; n++) {
            weft__reactor_progress(peer.p.reactor_a, 0);
            if (n % 4096 == 0) {
                CHECK(test_now() < give_up); /* it sleeps with a message before it */
                CHECK_EQ(a->n_down, 0);
                sched_yield();
            }
        }
        spin_us(x >> 16 & 31);
    }
    printf("  %llu messages, %llu of them one by one, %llu signals\n", (unsigned long long)sent,
           (unsigned long long)number,
           (unsigned long long)weft__count(peer.p.reactor_a)->shm_signals);
    CHECK(weft__count(peer.p.reactor_a)->shm_signals > 100);
    peer_close(&peer);
}

/* Takes messages in fits and starts, without ever sleeping. */
static void slow_reader(struct pair *p, void *arg) {
    static uint64_t got;
    uint32_t x = 3;
    p->a.on_message = count;
    p->a.arg = &got;
    while (p->a.n_down == 0) {
        x = x * 1664525 + 1013904223;
        weft__reactor_progress(p->reactor_a, 1 + (x >> 24) % 200);
        if (x >> 30 == 0) spin_us(x >> 20 & 31);
    }
}

struct flood {
    struct pending pending;
    struct lane *lane;
    uint64_t at, until, blocked;
};
static weft_status_t flood_go(struct pending *pending) {
    struct flood *f = (struct flood *)pending;
    for (; f->at < f->until; f->at++) {
        weft_status_t st = f->at % 3 ? f->lane->ops->am_short(f->lane, 1, f->at, "abc", 3)
                                     : f->lane->ops->am_bcopy(f->lane, 2, pack, NULL);
        if (st != WEFT_OK) {
            f->blocked++;
            return st;
        }
    }
    return WEFT_OK;
}

TEST(a_sender_asleep_for_want_of_space_is_always_woken) {
    struct peer peer;
    peer_open(&peer, slow_reader, NULL);
    struct flood f = {.pending = {.retry = flood_go}, .lane = peer.p.a.lane};
    int fd = weft__reactor_fd(peer.p.reactor_a);
    while (f.blocked < 1000) { /* a reader on a processor of its own may keep up for a while */
        f.until += 100000;
        if (flood_go(&f.pending) == WEFT_NO_RESOURCE) f.lane->ops->pending_add(f.lane, &f.pending);
        while (f.at < f.until) {
            CHECK(readable(fd, 20000));
            weft__reactor_progress(peer.p.reactor_a, 0);
            CHECK_EQ(peer.p.a.n_down, 0);
        }
    }
    printf("  blocked %llu times\n", (unsigned long long)f.blocked);
    peer_close(&peer);
}

static void polled_echo(struct pair *p, void *arg) {
    p->a.on_message = echo_last;
    while (p->a.n_down == 0) weft__reactor_progress(p->reactor_a, 0);
}

/* Who only polls is never signalled. */
TEST(between_pollers_there_is_no_signal) {
    struct peer peer;
    struct echo e = {0};
    peer_open(&peer, polled_echo, NULL);
    struct end *a = &peer.p.a;
    a->on_message = echoed;
    a->arg = &e;
    for (uint64_t i = 1; i <= 5000; i++) {
        CHECK_EQ(a->lane->ops->am_short(a->lane, 2, i, "", 0), WEFT_OK);
        double give_up = test_now() + test_timeout(60);
        while (e.last != i && test_now() < give_up) weft__reactor_progress(peer.p.reactor_a, 0);
        CHECK_EQ(e.last, i);
    }
    CHECK_EQ(weft__count(peer.p.reactor_a)->shm_signals, 0);
    peer_close(&peer);
}

#endif

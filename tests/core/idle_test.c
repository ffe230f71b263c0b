/* Connected workers with nothing to say: no wakeup and no processor time over ten seconds. */
#include <tests/support/worker_pair.h>

#include <poll.h>
#include <sys/resource.h>

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int received;
static void on_any(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}

/* Serves the fds as a host would, until they stay quiet for `quiet_ms`. Returns how often one
 * was readable. */
static int serve(struct pollfd *fds, weft_worker_t **workers, int n, int quiet_ms) {
    int wakes = 0;
    while (poll(fds, (nfds_t)n, quiet_ms) > 0)
        for (int i = 0; i < n; i++)
            if (fds[i].revents) {
                wakes++;
                weft_worker_progress(workers[i], 0);
            }
    return wakes;
}

TEST(idle_10_seconds_no_wakeup_and_no_cpu) {
    static const char *const transports[] = {"self", "shm", "tcp"};
    struct two t[3];
    struct pollfd fds[5];
    weft_worker_t *workers[5];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        two_up(&t[i], transports[i]);
        weft_am_handler_set(two_b(&t[i]), 1, on_any, NULL);
        for (int m = 0; m < 100; m++)
            CHECK(weft_am_send(t[i].ep, 1, NULL, 0, &(weft_iov_t){"hello", 5}, 1, NULL) >= 0);
        workers[n++] = t[i].a;
        if (t[i].b) workers[n++] = t[i].b;
    }
    for (int i = 0; i < n; i++) {
        fds[i] = (struct pollfd){.fd = weft_worker_fd(workers[i]), .events = POLLIN};
        CHECK(fds[i].fd >= 0);
    }
    serve(fds, workers, n, 1500); /* what was begun ends; hot sockets cool down */
    CHECK_EQ(received, 300);
    double cpu = cpu_seconds();
    CHECK_EQ(serve(fds, workers, n, 10000), 0);
    CHECK(cpu_seconds() - cpu < 0.005);
    /* And they are not deaf. */
    for (int i = 0; i < 3; i++) CHECK(weft_am_send(t[i].ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    CHECK(serve(fds, workers, n, 500) > 0);
    CHECK_EQ(received, 303);
    for (int i = 0; i < 3; i++) two_down(&t[i]);
}

static uint64_t of_both(struct two *t, const char *counter) {
    return weft_worker_count(t->a, counter) + weft_worker_count(two_b(t), counter);
}

/* Links are scored while one has a fast lane, and no longer. */
TEST(a_worker_that_has_given_its_fast_lane_back_is_not_woken) {
    struct two t;
    two_up(&t, "shm");
    weft_am_handler_set(two_b(&t), 1, on_any, NULL);
    double end = test_now() + test_timeout(60);
    while (of_both(&t, "lanes.promoted") < 2 && test_now() < end) {
        for (int i = 0; i < 64; i++)
            CHECK(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){"hello", 5}, 1, NULL) >= 0);
        two_turn(&t);
    }
    CHECK_EQ(of_both(&t, "lanes.promoted"), 2);
    weft_worker_t *workers[] = {t.a, t.b};
    struct pollfd fds[] = {{weft_worker_fd(t.a), POLLIN, 0}, {weft_worker_fd(t.b), POLLIN, 0}};
    double begin = test_now();
    int wakes = serve(fds, workers, 2, 1500);
    printf("  woken %d times in %.1f s, until the lane was given back\n", wakes,
           test_now() - begin - 1.5);
    CHECK_EQ(of_both(&t, "lanes.demoted"), 2);
    CHECK_EQ(serve(fds, workers, 2, 5000), 0);
    two_down(&t);
}

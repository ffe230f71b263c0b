/* A worker closes in a host's loop while a peer stands still: the loop goes on meanwhile. */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <tests/harness.h>
#include <tests/network.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static weft_context_t *context;
static weft_worker_t *worker;

static void open_worker(void) {
    weft_setting_t settings[] = {{"close.timeout", "1s"}, {"log.level", "none"}};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                                 &context),
             WEFT_OK);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), WEFT_OK);
}

/* The client connects, says so, and is stopped by its parent. */
static pid_t start_client(int uri_from, int notifies) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    char uri[200];
    weft_ep_t *ep;
    alarm((unsigned)test_timeout(120));
    if (read(uri_from, uri, sizeof uri) <= 0) _exit(1);
    open_worker();
    if (weft_connect(worker, uri, NULL, &ep) < 0 || weft_ep_flush_wait(ep) < 0) _exit(2);
    if (write(notifies, "", 1) != 1) _exit(3);
    for (;;) weft_worker_wait(worker, -1);
}

static bool is_closed;
static void on_closed(weft_status_t status, void *arg) {
    is_closed = true;
}

static void close_beside_a_stopped_client(const char *where) {
    int uri[2], notified[2];
    weft_listener_t *listener;
    CHECK(pipe(uri) == 0 && pipe(notified) == 0);
    pid_t client = start_client(uri[0], notified[1]);
    open_worker();
    CHECK_EQ(weft_listen(worker, where, NULL, &listener), WEFT_OK);
    CHECK_EQ(write(uri[1], weft_listener_uri(listener), strlen(weft_listener_uri(listener)) + 1),
             (ssize_t)strlen(weft_listener_uri(listener)) + 1);
    struct pollfd ready = {notified[0], POLLIN, 0};
    while (poll(&ready, 1, 1) == 0) weft_worker_progress(worker, 0);
    kill(client, SIGSTOP);
    CHECK_EQ(waitpid(client, NULL, WUNTRACED), client); /* it stands still */
    is_closed = false;
    bool host_ran = false;
    double begun = now_s();
    int fd = weft_worker_fd(worker);
    CHECK_EQ(weft_worker_close(worker, &(weft_op_t){.done = on_closed}), WEFT_IN_PROGRESS);
    while (!is_closed && now_s() - begun < test_timeout(20)) {
        struct pollfd watched = {fd, POLLIN, 0};
        int n = poll(&watched, 1, 5);
        host_ran |= now_s() - begun >= 0.1; /* the host's timer, which has its turn first */
        if (n > 0) weft_worker_progress(worker, 0);
    }
    CHECK(is_closed);
    CHECK(now_s() - begun > 0.9); /* it waited for the client */
    CHECK(host_ran);              /* and not within a call */
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    kill(client, SIGKILL);
    waitpid(client, NULL, 0);
    close(uri[0]), close(uri[1]), close(notified[0]), close(notified[1]);
}

TEST(a_close_that_waits_for_a_peer_leaves_the_loop_running_tcp) {
    close_beside_a_stopped_client("tcp://127.0.0.1:0");
}
TEST(a_close_that_waits_for_a_peer_leaves_the_loop_running_shm) {
    close_beside_a_stopped_client("shm://stopped-client");
}

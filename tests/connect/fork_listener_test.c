/* A child that its program forks and keeps holds none of the library's listeners and
 * connections. */
#include <tests/support/worker_pair.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { SOON = 20 };

/* As a server does that saves in the background: the child stays, and calls nothing of the
 * library. */
static pid_t child_that_stays(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, 0);
    alarm((unsigned)test_timeout(60));
    for (;;) pause();
}
static void end_child(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

struct client {
    weft_context_t *context;
    weft_worker_t *worker;
    int ready, errors;
    weft_status_t error;
};
static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct client *)arg)->ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct client *)arg)->errors++;
    ((struct client *)arg)->error = status;
}
static void open_client(struct client *c) {
    memset(c, 0, sizeof *c);
    CHECK_EQ(weft_context_create(NULL, &c->context), 0);
    CHECK_EQ(weft_worker_create(c->context, &(weft_worker_params_t){.transports = "tcp,shm"},
                                &c->worker),
             0);
}
static void close_client(struct client *c) {
    weft_worker_destroy(c->worker);
    CHECK_EQ(weft_context_destroy(c->context), 0);
}

static void drive_until(struct client *c, const int *count) {
    for (double end = test_now() + test_timeout(SOON); !*count && test_now() < end;)
        weft_worker_progress(c->worker, 0);
}

/* What connecting there comes to. */
static weft_status_t connect_to(struct client *c, const char *uri) {
    weft_ep_t *ep;
    weft_ep_params_t params = {.on_ready = on_ready, .on_error = on_error, .arg = c};
    c->errors = 0;
    weft_status_t st = weft_connect(c->worker, uri, &params, &ep);
    if (st != WEFT_OK) return st;
    for (double end = test_now() + test_timeout(SOON); !c->errors && !c->ready && test_now() < end;)
        weft_worker_progress(c->worker, 0);
    return c->errors ? c->error : c->ready ? WEFT_OK : WEFT_IN_PROGRESS;
}

static void no_one_listens_at(struct client *c, const char *uri) {
    weft_listener_t *again;
    CHECK_EQ(connect_to(c, uri), WEFT_ERR_REFUSED);
    CHECK_EQ(weft_listen(c->worker, uri, NULL, &again), WEFT_OK);
    weft_listener_close(again);
}

static const char *name_of_this(void) {
    static char name[64];
    snprintf(name, sizeof name, "shm://fork-listener-%d", (int)getpid());
    return name;
}

static void a_closed_listener(const char *where) {
    struct client c;
    weft_listener_t *listener;
    char uri[128];
    open_client(&c);
    CHECK_EQ(weft_listen(c.worker, where, NULL, &listener), 0);
    snprintf(uri, sizeof uri, "%s", weft_listener_uri(listener));
    pid_t child = child_that_stays();
    weft_listener_close(listener);
    no_one_listens_at(&c, uri);
    end_child(child);
    close_client(&c);
}
TEST(a_closed_listener_is_closed_though_a_child_lives_tcp) {
    a_closed_listener("tcp://127.0.0.1:0");
}
TEST(a_closed_listener_is_closed_though_a_child_lives_shm) {
    a_closed_listener(name_of_this());
}

/* ---- a server that dies */

struct notified {
    char uri[128];
    pid_t child;
};

static void on_accepted(weft_ep_t *ep, void *arg) {
    ++*(int *)arg;
}

static void serve(const char *where, int to) {
    struct client c = {0};
    int accepted = 0;
    weft_listener_t *listener;
    struct notified notified = {.child = 0};
    alarm((unsigned)test_timeout(60));
    if (weft_context_create(NULL, &c.context) ||
        weft_worker_create(c.context, &(weft_worker_params_t){.transports = "tcp,shm"},
                           &c.worker) ||
        weft_listen(c.worker, where,
                    &(weft_listen_params_t){.on_endpoint = on_accepted, .arg = &accepted},
                    &listener))
        _exit(1);
    snprintf(notified.uri, sizeof notified.uri, "%s", weft_listener_uri(listener));
    if (write(to, &notified, sizeof notified) != sizeof notified) _exit(1);
    for (double begin = test_now(); !notified.child || test_now() < begin + test_timeout(60);) {
        weft_worker_wait(c.worker, 20);
        if (!notified.child && accepted) {
            notified.child = child_that_stays();
            if (write(to, &notified, sizeof notified) != sizeof notified) _exit(1);
        }
    }
    _exit(0);
}

static void a_dead_server(const char *where) {
    struct client c;
    struct notified notified;
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    fflush(stdout);
    pid_t server = fork();
    if (server == 0) serve(where, fds[1]);
    CHECK_EQ(read(fds[0], &notified, sizeof notified), (ssize_t)sizeof notified);
    open_client(&c);
    CHECK_EQ(connect_to(&c, notified.uri), WEFT_OK);
    CHECK_EQ(read(fds[0], &notified, sizeof notified), (ssize_t)sizeof notified);
    end_child(server);
    drive_until(&c, &c.errors);
    CHECK_EQ(c.errors, 1);
    CHECK_EQ(c.error, WEFT_ERR_PEER_FAILED);
    c.ready = 0;
    no_one_listens_at(&c, notified.uri);
    kill(notified.child, SIGKILL);
    close_client(&c);
    close(fds[0]);
    close(fds[1]);
}
TEST(a_dead_server_listens_no_more_though_a_child_lives_tcp) {
    a_dead_server("tcp://127.0.0.1:0");
}
TEST(a_dead_server_listens_no_more_though_a_child_lives_shm) {
    a_dead_server(name_of_this());
}

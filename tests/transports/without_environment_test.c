/* A service and a login shell of one user find each other, whatever is in their environments and
 * in their /tmp. */
#define _GNU_SOURCE
#include "../harness.h"
#include "../network.h"
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tests/support/clock.h>
#include <weft/weft.h>

static weft_context_t *context;
static weft_worker_t *worker;
static int ready, errors;
static weft_status_t lost;
static char why[1024];

static void on_ready(weft_ep_t *ep, void *arg) {
    ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    errors++;
    lost = status;
    weft_status_describe(status, why, sizeof why);
}

static void quiet(weft_log_level_t level, const char *room, const char *line, void *arg) {}

static bool open_worker(const char *transports) {
    weft_context_params_t params = {.file = "/dev/null", .log = quiet};
    weft_worker_params_t of_worker = {.transports = transports};
    ready = errors = 0;
    return weft_context_create(&params, &context) == WEFT_OK &&
           weft_worker_create(context, &of_worker, &worker) == WEFT_OK;
}

static void gone(weft_status_t status, void *arg) {
    worker = NULL;
}
static void close_worker(void) {
    double end = test_now() + test_timeout(60);
    CHECK_EQ(weft_worker_close(worker, &(weft_op_t){.done = gone}), WEFT_IN_PROGRESS);
    while (worker && test_now() < end) weft_worker_progress(worker, 0);
    CHECK(!worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* A child with nothing in its environment and a /tmp of its own listens, says where, and serves
 * until it is killed. */
static void serve_as_a_service(int sent, const char *transport, const char *uri) {
    weft_listener_t *listener;
    clearenv();
    setenv("WEFT_CALIBRATION", "off", 1);
    bool apart = unshare(CLONE_NEWNS) == 0 &&
                 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                 mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0;
    char line[128] = "";
    if (apart && open_worker(transport) && weft_listen(worker, uri, NULL, &listener) == WEFT_OK)
        snprintf(line, sizeof line, "%s", weft_listener_uri(listener));
    if (write(sent, line, sizeof line) != sizeof line || !*line) _exit(1);
    double end = test_now() + test_timeout(60);
    while (test_now() < end) weft_worker_wait(worker, 100);
    _exit(0);
}

static void meet_a_service(const char *transport, const char *uri) {
    int fds[2];
    char where[128];
    if (geteuid() != 0) SKIP("needs root for a mount namespace");
    CHECK_EQ(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) serve_as_a_service(fds[1], transport, uri);
    CHECK_EQ(read(fds[0], where, sizeof where), sizeof where);
    close(fds[0]);
    close(fds[1]);
    bool listens = *where;

    char run[] = "/tmp/weft-run-XXXXXX"; /* a login shell's */
    CHECK(mkdtemp(run));
    setenv("HOME", getpwuid(geteuid())->pw_dir, 1);
    setenv("XDG_RUNTIME_DIR", run, 1);
    bool opened = listens && open_worker(transport);
    weft_ep_t *ep;
    weft_ep_params_t params = {.on_ready = on_ready, .on_error = on_error};
    weft_status_t st = opened ? weft_connect(worker, where, &params, &ep) : WEFT_ERR_IO;
    double end = test_now() + test_timeout(60);
    while (st == WEFT_OK && !ready && !errors && test_now() < end) weft_worker_progress(worker, 0);
    unsetenv("XDG_RUNTIME_DIR");
    if (opened) close_worker();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    rmdir(run);
    CHECK(listens);
    CHECK_EQ(st, WEFT_OK);
    CHECK_EQ(lost, WEFT_OK);
    CHECK_EQ(ready, 1);
}

TEST(a_service_without_environment_is_found_over_shm) {
    meet_a_service("shm", "shm://service-without-environment");
}

TEST(a_service_without_environment_and_its_clients_have_the_same_tcp_key) {
    meet_a_service("tcp", "tcp://127.0.0.1:0");
}

TEST(a_name_is_the_same_with_and_without_xdg_runtime_dir) {
    weft_listener_t *listener;
    weft_ep_t *ep;
    char run[] = "/tmp/weft-run-XXXXXX";
    CHECK(mkdtemp(run));
    CHECK(open_worker("shm"));
    CHECK_EQ(weft_listen(worker, "shm://with-and-without", NULL, &listener), WEFT_OK);
    setenv("XDG_RUNTIME_DIR", run, 1);
    weft_status_t st = weft_connect(worker, "shm://with-and-without", NULL, &ep);
    unsetenv("XDG_RUNTIME_DIR");
    CHECK_EQ(st, WEFT_OK);
    close_worker();
    rmdir(run);
}

TEST(a_name_that_is_not_there_is_refused_with_the_places_looked_in) {
    weft_ep_t *ep;
    char place[64];
    CHECK(open_worker("shm"));
    CHECK_EQ(weft_connect(worker, "shm://not-there", NULL, &ep), WEFT_ERR_REFUSED);
    weft_status_describe(WEFT_ERR_REFUSED, why, sizeof why);
    CHECK(strstr(why, "shm://not-there"));
    snprintf(place, sizeof place, "/dev/shm/weft-%u", (unsigned)geteuid());
    CHECK(strstr(why, place));
    snprintf(place, sizeof place, "/run/user/%u/weft", (unsigned)geteuid());
    CHECK(strstr(why, place));
    snprintf(place, sizeof place, "/tmp/weft-%u", (unsigned)geteuid());
    CHECK(strstr(why, place));
    close_worker();
}

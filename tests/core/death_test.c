/* A peer that is killed is noticed, and everything that waited for it ends once. */
#include <tests/support/one_worker.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

struct grave {
    weft_worker_t *worker;
    int errors;
    weft_status_t error;
    double at;
};
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct grave *g = arg;
    g->errors++;
    g->error = status;
    g->at = test_now();
}
static int ready;
static void on_ready(weft_ep_t *ep, void *arg) {
    ready++;
}

/* A child that serves its address through a pipe and answers until it dies. */
static void echo(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_am_send(ep, 2, NULL, 0, &(weft_iov_t){(void *)(uintptr_t)am->data, am->len}, 1, NULL);
}
static void echoes(int out, const void *transport) {
    struct side s;
    side_open(&s, transport, NULL, 0);
    weft_am_handler_set(s.worker, 1, echo, NULL);
    side_notify(&s, out);
    for (;;) weft_worker_wait(s.worker, 1000);
}

static int answers;
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    answers++;
}

/* Busy: messages wait at this side. Else neither side waits for the other, and no lane would notice
 * by itself. */
static void kill_peer(const char *transport, bool busy) {
    struct child child;
    child_start(&child, echoes, transport);

    weft_context_t *context;
    struct grave g = {0};
    weft_ep_t *ep;
    struct tally tags = {0}, receives = {0};
    static char big[400000], in[10];
    ready = answers = 0;
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    CHECK_EQ(
        weft_worker_create(context, &(weft_worker_params_t){.transports = transport}, &g.worker),
        0);
    CHECK_EQ(weft_am_handler_set(g.worker, 2, on_answer, NULL), 0);
    CHECK_EQ(weft_connect_address(
                 g.worker, child.address, (size_t)child.len,
                 &(weft_ep_params_t){.on_ready = on_ready, .on_error = on_error, .arg = &g}, &ep),
             0);
    double end = test_now() + test_timeout(60);
    while (!ready && test_now() < end) weft_worker_progress(g.worker, 0);
    CHECK(ready);
    for (int i = 0; i < 10; i++)
        CHECK(weft_am_send(ep, 1, NULL, 0, &(weft_iov_t){big, 20}, 1, NULL) >= 0);
    while (answers < 10 && test_now() < end) weft_worker_progress(g.worker, 0);
    CHECK_EQ(answers, 10);

    int sent = 0;
    for (int i = 0; i < (busy ? 8 : 0); i++)
        sent +=
            weft_tag_send(ep, 1, &(weft_iov_t){big, sizeof big}, 1, OP(&tags)) == WEFT_IN_PROGRESS;
    CHECK_EQ(weft_tag_recv(g.worker, 7, UINT64_MAX, &(weft_iov_t){in, 10}, 1, NULL, OP(&receives)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(sent, busy ? 8 : 0);
    for (double rest = test_now() + 0.3; !busy && test_now() < rest;)
        weft_worker_progress(g.worker, 0);
    double killed = test_now();
    kill(child.pid, SIGKILL);
    while (!g.errors && test_now() < killed + test_timeout(20)) weft_worker_wait(g.worker, 10);
    CHECK_EQ(g.errors, 1);
    CHECK_EQ(g.error, WEFT_ERR_PEER_FAILED);
    printf("  %s: noticed after %.2f ms\n", transport, (g.at - killed) * 1e3);
    for (int i = 0; i < 100; i++) weft_worker_progress(g.worker, 0);
    CHECK_EQ(tags.calls, sent);
    if (busy) CHECK_EQ(tags.status, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(receives.calls, 0); /* from any endpoint: another may still send it */
    CHECK(WIFSIGNALED(child_end(&child)));
    weft_worker_destroy(g.worker);
    CHECK_EQ(receives.calls, 1);
    CHECK_EQ(g.errors, 1);
    CHECK_EQ(weft_context_destroy(context), 0);
}
TEST(a_killed_peer_is_noticed_shm) {
    kill_peer("shm", true);
}
TEST(a_killed_peer_is_noticed_tcp) {
    kill_peer(test_network(), true);
}
TEST(a_quiet_peer_that_is_killed_is_noticed_shm) {
    kill_peer("shm", false);
}
TEST(a_quiet_peer_that_is_killed_is_noticed_tcp) {
    kill_peer(test_network(), false);
}

/* The fork of a process that has a worker must not touch it. */
TEST(a_fork_is_reported) {
    struct two t;
    two_up(&t, "shm");
    pid_t pid = fork();
    if (pid == 0) _exit(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL) == WEFT_ERR_FORKED ? 0 : 1);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    for (int i = 0; i < 10; i++) two_turn(&t);
    CHECK_EQ(t.errors, 0);
    two_down(&t);
}

static int sockets_in(const char *directory) {
    int n = 0;
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        n += strncmp(entry->d_name, "w-", 2) == 0;
    if (dir) closedir(dir);
    return n;
}

/* Killed processes clean nothing up: the next worker does. Those of the living stay. */
TEST(sockets_of_the_dead_are_swept_and_no_others) {
    char directory[] = "/tmp/weft-sweep-XXXXXX", address[256];
    struct child child;
    CHECK(mkdtemp(directory) != NULL);
    setenv("WEFT_SHM_DIRECTORY", directory, 1);
    child_start(&child, echoes, "shm");
    CHECK_EQ(sockets_in(directory), 1);
    struct two t;
    two_up(&t, "shm");
    CHECK_EQ(sockets_in(directory), 2);
    kill(child.pid, SIGKILL);
    CHECK(WIFSIGNALED(child_end(&child)));
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(t.a, address, &len), 0);
    CHECK_EQ(sockets_in(directory), 2); /* the dead one went, a's own came */
    two_down(&t);
    CHECK_EQ(sockets_in(directory), 0);
    unsetenv("WEFT_SHM_DIRECTORY");
    CHECK_EQ(rmdir(directory), 0);
}

/* The socket of a worker of a process that is dead. */
static void leave_behind(const char *directory) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, NULL, 0);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/w-%d-1", directory, (int)pid);
    CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
}

/* Or a thousand workers would look at a thousand sockets each. */
TEST(a_directory_of_many_is_not_swept_for_each_worker) {
    enum { MANY = 64, WORKERS = 8 };
    char directory[] = "/tmp/weft-sweep-XXXXXX", path[128], address[256];
    weft_context_t *context;
    weft_worker_t *workers[WORKERS];
    int looks = 0;
    CHECK(mkdtemp(directory) != NULL);
    for (int i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "%s/%d", directory, i);
        close(creat(path, 0600));
    }
    setenv("WEFT_SHM_DIRECTORY", directory, 1);
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    for (int i = 0; i < WORKERS; i++) {
        size_t len = sizeof address;
        leave_behind(directory);
        int before = sockets_in(directory);
        CHECK_EQ(
            weft_worker_create(context, &(weft_worker_params_t){.transports = "shm"}, &workers[i]),
            0);
        CHECK_EQ(weft_worker_address(workers[i], address, &len), 0);
        looks += sockets_in(directory) <= before;
    }
    /* of the first worker, and of the sixth: that one found what the four before left */
    CHECK_EQ(looks, 2);
    for (int i = 0; i < WORKERS; i++) weft_worker_destroy(workers[i]);
    CHECK_EQ(weft_context_destroy(context), 0);
    snprintf(path, sizeof path, "rm -r %s", directory);
    CHECK_EQ(system(path), 0);
    unsetenv("WEFT_SHM_DIRECTORY");
}

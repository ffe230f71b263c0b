/* Links by the mailbox to several workers of another process: what they hold while they are
 * quiet, and the end of that process. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tests/harness.h>
#include <tests/support/call_filter.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

enum { WORKERS = 5, ADDRESS = 512, HELLO = 1 };

static unsigned n_lost, n_flushed;

static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    n_lost++;
}
static void on_hello(weft_ep_t *ep, weft_am_t *am, void *arg) {}
static void on_flushed(weft_status_t status, void *arg) {
    n_flushed += status == WEFT_OK;
}

static weft_worker_t *worker_new(weft_context_t **context_p) {
    /* They end one after the other, and no answer comes. */
    static weft_setting_t settings[] = {{"transports", "shm"}, {"close.timeout", "20ms"}};
    weft_worker_t *worker = NULL;
    if (!*context_p)
        CHECK_EQ(weft_context_create(
                     &(weft_context_params_t){.settings = settings, .n_settings = 2}, context_p),
                 WEFT_OK);
    CHECK_EQ(weft_worker_create(*context_p, NULL, &worker), WEFT_OK);
    CHECK_EQ(weft_am_handler_set(worker, HELLO, on_hello, NULL), WEFT_OK);
    return worker;
}

/* The peer: sends its addresses, and the child's number, which keeps its sockets; ends by a
 * signal only. */
static void live(int notify) {
    weft_context_t *context = NULL;
    weft_worker_t *workers[WORKERS];
    char address[ADDRESS];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < WORKERS; i++) {
        size_t len = ADDRESS - sizeof len;
        workers[i] = worker_new(&context);
        CHECK_EQ(weft_worker_address(workers[i], address + sizeof len, &len), WEFT_OK);
        memcpy(address, &len, sizeof len);
        CHECK_EQ(write(notify, address, sizeof address), ADDRESS);
    }
    for (uint64_t turns = 0;; turns++) {
        for (int i = 0; i < WORKERS; i++) weft_worker_progress(workers[i], 0);
        char go;
        if (turns % 64 || recv(notify, &go, 1, MSG_DONTWAIT) != 1) continue;
        pid_t child = fork();
        if (child == 0)
            for (;;) pause();
        CHECK_EQ(write(notify, &child, sizeof child), (ssize_t)sizeof child);
    }
}

static unsigned pidfds(void) {
    char path[64], to[64];
    unsigned n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, to, sizeof to - 1);
        if (len <= 0) continue;
        to[len] = 0;
        n += strstr(to, "pidfd") != NULL;
    }
    return n;
}

static void turn_until(weft_worker_t *worker, const unsigned *count) {
    for (time_t end = time(NULL) + 30; *count < WORKERS && time(NULL) < end;)
        weft_worker_progress(worker, 0);
}

struct links {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *eps[WORKERS];
    pid_t pid;
    int socket;
};

static void links_open(struct links *l) {
    int pair[2];
    *l = (struct links){0};
    n_lost = n_flushed = 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fflush(stdout);
    l->pid = fork();
    if (l->pid == 0) live(pair[1]);
    close(pair[1]);
    l->socket = pair[0];
    l->worker = worker_new(&l->context);
    for (int i = 0; i < WORKERS; i++) {
        char address[ADDRESS];
        size_t len;
        CHECK_EQ(recv(l->socket, address, sizeof address, MSG_WAITALL), ADDRESS);
        memcpy(&len, address, sizeof len);
        CHECK_EQ(weft_connect_address(l->worker, address + sizeof len, len, NULL, &l->eps[i]),
                 WEFT_OK);
        weft_ep_on_error(l->eps[i], on_lost, NULL);
        CHECK(weft_am_send(l->eps[i], HELLO, NULL, 0, NULL, 0, NULL) >= 0);
        CHECK_EQ(weft_ep_flush(l->eps[i], &(weft_op_t){.done = on_flushed}), WEFT_IN_PROGRESS);
    }
    turn_until(l->worker, &n_flushed);
    CHECK_EQ(n_flushed, WORKERS);
}

static void links_close(struct links *l) {
    kill(l->pid, SIGKILL);
    waitpid(l->pid, NULL, 0);
    for (int i = 0; i < WORKERS; i++) weft_ep_close(l->eps[i], WEFT_CLOSE_ABORT, NULL);
    for (time_t end = time(NULL) + 30; pidfds() && time(NULL) < end;)
        weft_worker_progress(l->worker, 0);
    CHECK_EQ(pidfds(), 0);
    weft_worker_destroy(l->worker);
    CHECK_EQ(weft_context_destroy(l->context), WEFT_OK);
    close(l->socket);
}

TEST(lanes_to_one_process_share_what_reports_its_death) {
    struct links l;
    pid_t keeper;
    links_open(&l);
    CHECK_EQ(pidfds(), 1);
    CHECK_EQ(write(l.socket, "g", 1), 1);
    CHECK_EQ(recv(l.socket, &keeper, sizeof keeper, MSG_WAITALL), (ssize_t)sizeof keeper);
    kill(l.pid, SIGKILL);
    turn_until(l.worker, &n_lost);
    kill(keeper, SIGKILL);
    CHECK_EQ(n_lost, WORKERS);
    links_close(&l);
}

/* Resident kilobytes of peers' memory whose name has this in it. */
static unsigned resident_kb(const char *name, const char *rights) {
    char line[512];
    bool here = false;
    unsigned kb, total = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    CHECK(f);
    while (f && fgets(line, sizeof line, f)) {
        if (strstr(line, "-s ") || strstr(line, "-p "))
            here = strstr(line, name) && strstr(line, rights);
        if (here && sscanf(line, "Rss: %u kB", &kb) == 1) total += kb;
    }
    if (f) fclose(f);
    return total;
}

TEST(quiet_links_to_workers_of_one_process_touch_the_same_pages) {
    struct links l;
    links_open(&l);
    CHECK_EQ(resident_kb("weft-pool", " r--s "), 0);
    CHECK_EQ(resident_kb("weft-tx-slots", " r--s "), 4);
    links_close(&l);
}

static unsigned mapped(const char *name, const char *rights) {
    char line[512];
    unsigned n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    CHECK(f);
    while (f && fgets(line, sizeof line, f)) n += strstr(line, name) && strstr(line, rights);
    if (f) fclose(f);
    return n;
}

/* One worker dials the others, of which each could map its pool. It maps theirs, of which one,
 * as it could be, in common. */
TEST(a_pool_is_mapped_once_for_all_workers_that_its_own_has_dialed) {
    weft_context_t *context = NULL;
    weft_worker_t *workers[WORKERS + 1];
    weft_ep_t *eps[WORKERS];
    n_flushed = 0;
    for (int i = 0; i <= WORKERS; i++) workers[i] = worker_new(&context);
    for (int i = 0; i < WORKERS; i++) {
        char address[ADDRESS];
        size_t len = sizeof address;
        CHECK_EQ(weft_worker_address(workers[i], address, &len), WEFT_OK);
        CHECK_EQ(weft_connect_address(workers[WORKERS], address, len, NULL, &eps[i]), WEFT_OK);
        CHECK(weft_am_send(eps[i], HELLO, NULL, 0, NULL, 0, NULL) >= 0);
        CHECK_EQ(weft_ep_flush(eps[i], &(weft_op_t){.done = on_flushed}), WEFT_IN_PROGRESS);
    }
    for (time_t end = time(NULL) + 30; n_flushed < WORKERS && time(NULL) < end;)
        for (int i = 0; i <= WORKERS; i++) weft_worker_progress(workers[i], 0);
    CHECK_EQ(n_flushed, WORKERS);
    CHECK_EQ(mapped("weft-pool", " r--s "), 1 + WORKERS);
    for (int i = 0; i < WORKERS; i++) weft_worker_destroy(workers[i]);
    CHECK_EQ(mapped("weft-pool", " rw-s "), 1);
    weft_worker_destroy(workers[WORKERS]);
    CHECK_EQ(mapped("weft-pool", "s "), 0);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

/* ---- no memory for what would notify the peer's death ---- */

enum { NO_FILTERS = 77 };

static void on_failed(weft_ep_t *ep, weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* The status that a connection ends with; OK: it works. */
static weft_status_t dial_without_pidfds(const char *address) {
    weft_context_t *context = NULL;
    weft_status_t failed = WEFT_OK;
    weft_ep_t *ep;
    size_t len;
    n_flushed = 0;
    memcpy(&len, address, sizeof len);
    weft_worker_t *worker = worker_new(&context);
    weft_ep_params_t params = {.on_error = on_failed, .arg = &failed};
    weft_status_t st = weft_connect_address(worker, address + sizeof len, len, &params, &ep);
    if (st < 0) return st;
    (void)weft_ep_flush(ep, &(weft_op_t){.done = on_flushed, .flags = WEFT_FLUSH_REMOTE});
    for (time_t end = time(NULL) + 30; !n_flushed && failed == WEFT_OK && time(NULL) < end;)
        weft_worker_progress(worker, 0);
    return failed;
}

TEST(a_peer_is_not_connected_without_memory_for_what_reports_its_death) {
    int pair[2], status;
    char address[ADDRESS];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fflush(stdout);
    pid_t peer = fork();
    if (peer == 0) live(pair[1]);
    close(pair[1]);
    CHECK_EQ(recv(pair[0], address, sizeof address, MSG_WAITALL), ADDRESS);
    pid_t dialer = fork();
    if (dialer == 0)
        _exit(filter_refuse(SYS_pidfd_open, ENOMEM) ? -dial_without_pidfds(address) : NO_FILTERS);
    CHECK_EQ(waitpid(dialer, &status, 0), dialer);
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    close(pair[0]);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_FILTERS) SKIP("no seccomp filters here");
    CHECK_EQ(-WEXITSTATUS(status), WEFT_ERR_NO_MEMORY);
}

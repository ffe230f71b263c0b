/*
 * How long traffic stands still when a connection dies that its endpoint survives: two processes
 * talk over tcp, each on a core of its own, and a third one kills their socket again and again,
 * from outside.
 *
 *     killed [KILLS [ask|stream|sleep|death]]
 *
 *     ask     one request at a time; from the kill until the next answer
 *     stream  messages one way without a pause; from the kill until the next message arrives
 *     sleep   as ask, but both sides sleep until something comes
 *     death   SIGKILL of the dialing process; until its sleeping peer is notified
 *
 * Sockets are killed by turns: the dialer's with a reset, the other side's with an unannounced
 * end, and by the kernel's SOCK_DESTROY (what `ss -K` says; root only). Printed, in ms:
 * median, 99th percentile, and the longest.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

enum {
    ASK = 1,
    ANSWER = 2,
    STREAM = 3,
    BYTES = 64,
    UNSENT = 256,
    MOST_FDS = 64,
    MOST_KILLS = 100000
};
enum load { LOAD_ASK, LOAD_STREAM, LOAD_SLEEP, LOAD_DEATH };
static const char *const load_name[] = {"ask", "stream", "sleep", "death"};
enum how { HOW_RESET, HOW_END, HOW_DESTROY, HOW_N };
static const char *const how_name[] = {"reset", "end", "destroy"};

struct shared {
    char address[256];
    size_t address_len;
    _Atomic bool ready, begun;
    _Atomic unsigned moved; /* times that traffic went on over another connection */
    double moved_at;        /* the last time */
    _Atomic uint64_t wrong; /* messages out of their order */
};

static struct shared *shared;
static weft_worker_t *worker;
static enum load load;

static void must(weft_status_t st, const char *what) {
    if (st >= 0) return;
    fprintf(stderr, "killed: %s: %s\n", what, weft_status_name(st));
    exit(1);
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    if (load != LOAD_DEATH) must(status, "endpoint");
    shared->moved_at = now_ns();
    shared->moved++;
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

static void open_worker(int core) {
    weft_context_t *context;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(core);
    must(weft_context_create(&(weft_context_params_t){0}, &context), "context");
    weft_worker_params_t params = {.transports = "tcp", .on_error = on_error};
    must(weft_worker_create(context, &params, &worker), "worker");
}

static void turn(void) {
    if (load >= LOAD_SLEEP)
        (void)weft_worker_wait(worker, 1000);
    else
        weft_worker_progress(worker, 0);
}

/* ---- the two that talk ----------------------------------------------------------------------- */

static uint64_t times_resumed(void) {
    static size_t at;
    const char *name;
    uint64_t value;
    while (weft_worker_counter(worker, at, &name, &value) == WEFT_OK) {
        if (strcmp(name, "lanes.resumed") == 0) return value;
        at++;
    }
    must(WEFT_ERR_NOT_FOUND, "counter");
    return 0;
}

/* A message came, whose number is to be the next one; is it the first after a kill? */
static void arrived(const void *header) {
    static uint64_t expected, resumed;
    uint64_t number;
    memcpy(&number, header, sizeof number);
    shared->wrong += number != expected++;
    shared->begun = true;
    if (times_resumed() == resumed) return;
    resumed = times_resumed();
    shared->moved_at = now_ns();
    shared->moved++;
}

static void answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    must(weft_am_send(ep, ANSWER, am->header, am->header_len, NULL, 0, NULL), "answer");
}
static void on_stream(weft_ep_t *ep, weft_am_t *am, void *arg) {
    arrived(am->header);
}

static void serve(void) {
    open_worker(1);
    must(weft_am_handler_set(worker, ASK, answer, NULL), "handler");
    must(weft_am_handler_set(worker, STREAM, on_stream, NULL), "handler");
    shared->address_len = sizeof shared->address;
    must(weft_worker_address(worker, shared->address, &shared->address_len), "address");
    shared->ready = true;
    for (;;) turn();
}

static bool answered;
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    answered = true;
    arrived(am->header);
}

static unsigned unsent;
static void sent(weft_status_t status, void *arg) {
    must(status, "send");
    unsent--;
}

static void ask(weft_ep_t *ep) {
    static uint64_t number;
    answered = false;
    must(weft_am_send(ep, ASK, &number, sizeof number, NULL, 0, NULL), "ask");
    number++;
    while (!answered) turn();
}

static void stream(weft_ep_t *ep) {
    static char bytes[BYTES];
    static uint64_t number;
    weft_iov_t iov = {bytes, sizeof bytes};
    for (int i = 0; i < 16 && unsent < UNSENT; i++, number++) {
        weft_status_t st =
            weft_am_send(ep, STREAM, &number, sizeof number, &iov, 1, &(weft_op_t){.done = sent});
        must(st, "send");
        unsent += st == WEFT_IN_PROGRESS;
    }
    turn();
}

static void talk(void) {
    weft_ep_t *ep;
    open_worker(0);
    must(weft_am_handler_set(worker, ANSWER, on_answer, NULL), "handler");
    while (!shared->ready) usleep(1000);
    weft_ep_params_t params = {.on_error = on_error, .error_mode = WEFT_ERRORS_FAILOVER};
    must(weft_connect_address(worker, shared->address, shared->address_len, &params, &ep),
         "connect");
    for (;;) (load == LOAD_STREAM ? stream : ask)(ep);
}

/* ---- the one that kills ---------------------------------------------------------------------- */

/* A copy of that process's connected socket; -1: it has none now. */
static int socket_of(int pidfd) {
    for (int fd = 3; fd < MOST_FDS; fd++) {
        struct sockaddr_storage at = {0};
        socklen_t len = sizeof at;
        int mine = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
        if (mine < 0) continue;
        if (getpeername(mine, (struct sockaddr *)&at, &len) == 0 && at.ss_family == AF_INET)
            return mine;
        close(mine);
    }
    return -1;
}

struct request {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

static struct request destroy_request(int fd) {
    struct sockaddr_in self, peer;
    socklen_t self_len = sizeof self, peer_len = sizeof peer;
    struct request r = {
        .head = {.nlmsg_len = sizeof r,
                 .nlmsg_type = SOCK_DESTROY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .body = {.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u}};
    getsockname(fd, (struct sockaddr *)&self, &self_len);
    getpeername(fd, (struct sockaddr *)&peer, &peer_len);
    r.body.id = (struct inet_diag_sockid){.idiag_sport = self.sin_port,
                                          .idiag_dport = peer.sin_port,
                                          .idiag_src = {self.sin_addr.s_addr},
                                          .idiag_dst = {peer.sin_addr.s_addr},
                                          .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}};
    return r;
}

static bool destroy(const struct request *r) {
    struct {
        struct nlmsghdr head;
        struct nlmsgerr body;
    } answer;
    memset(&answer, 0xff, sizeof answer);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) return false;
    bool ok = send(fd, r, sizeof *r, 0) == sizeof *r &&
              recv(fd, &answer, sizeof answer, 0) == sizeof answer && answer.body.error == 0;
    close(fd);
    return ok;
}

/* When it was killed; 0: it was not. */
static double kill_socket(int fd, enum how how) {
    struct sockaddr noop = {.sa_family = AF_UNSPEC};
    struct request request = destroy_request(fd);
    double now = now_ns();
    bool killed = how == HOW_RESET ? connect(fd, &noop, sizeof noop) == 0
                  : how == HOW_END ? shutdown(fd, SHUT_RDWR) == 0
                                   : destroy(&request);
    close(fd);
    return killed ? now : 0;
}

/* ms until traffic moved again. */
static double one_kill(int talker, int server, enum how how) {
    unsigned before = shared->moved;
    double killed = 0, until = now_ns() + 20e9;
    while (killed == 0) {
        int fd = socket_of(how == HOW_END ? server : talker);
        if (fd >= 0) killed = kill_socket(fd, how);
        if (fd < 0) usleep(1000);
        if (now_ns() > until) must(WEFT_ERR_TIMED_OUT, "killing");
    }
    while (shared->moved == before) {
        usleep(500);
        if (now_ns() > until) must(WEFT_ERR_TIMED_OUT, "traffic");
    }
    return (shared->moved_at - killed) / 1e6;
}

static void print(const char *how, double *ms, unsigned n) {
    if (n == 0) return;
    sort_figures(ms, n);
    printf("  %-6s %-7s %5u kills  p50 %7.3f  p99 %7.3f  max %7.3f ms\n", load_name[load], how, n,
           ms[n / 2], ms[(n * 99 + 99) / 100 - 1], ms[n - 1]);
}

static void run_deaths(unsigned kills) {
    static double ms[MOST_KILLS];
    shared = shared_memory(sizeof *shared);
    fflush(stdout);
    fail_with_children();
    pid_t server = fork();
    if (server == 0) serve();
    for (unsigned i = 0; i < kills; i++) {
        shared->begun = false;
        pid_t talker = fork();
        if (talker == 0) talk();
        while (!shared->begun) usleep(1000);
        usleep(1000 + (unsigned)random() % 2000);
        double killed = now_ns(), until = killed + 20e9;
        kill(talker, SIGKILL);
        while (shared->moved == i)
            if (usleep(500) == 0 && now_ns() > until) must(WEFT_ERR_TIMED_OUT, "telling");
        ms[i] = (shared->moved_at - killed) / 1e6;
        waitpid(talker, NULL, 0);
    }
    print("SIGKILL", ms, kills);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

static void run(unsigned kills) {
    static double ms[HOW_N][MOST_KILLS], all[MOST_KILLS];
    unsigned n[HOW_N] = {0};
    shared = shared_memory(sizeof *shared);
    fflush(stdout);
    fail_with_children();
    pid_t server = fork();
    if (server == 0) serve();
    pid_t talker = fork();
    if (talker == 0) talk();
    int server_fd = (int)syscall(SYS_pidfd_open, server, 0),
        talker_fd = (int)syscall(SYS_pidfd_open, talker, 0);
    while (!shared->begun) usleep(1000);
    unsigned n_how = geteuid() == 0 ? HOW_N : HOW_DESTROY;
    for (unsigned i = 0; i < kills; i++) {
        enum how how = (enum how)(i % n_how);
        usleep(1000 + (unsigned)random() % 2000);
        all[i] = ms[how][n[how]++] = one_kill(talker_fd, server_fd, how);
    }
    for (unsigned how = 0; how < n_how; how++) print(how_name[how], ms[how], n[how]);
    print("all", all, kills);
    if (shared->wrong)
        printf("  %llu messages were not in order\n", (unsigned long long)shared->wrong);
    kill(server, SIGKILL);
    kill(talker, SIGKILL);
    close(server_fd);
    close(talker_fd);
    while (wait(NULL) > 0) continue;
    if (shared->wrong) exit(1);
}

int main(int argc, char **argv) {
    int kills = argc > 1 ? atoi(argv[1]) : 300;
    if (kills < 1 || kills > MOST_KILLS) {
        fprintf(stderr, "killed [KILLS [ask|stream|sleep|death]]\n");
        return 2;
    }
    for (load = LOAD_ASK; load <= LOAD_DEATH; load++)
        if (argc < 3 || strcmp(argv[2], load_name[load]) == 0)
            (load == LOAD_DEATH ? run_deaths : run)((unsigned)kills);
    return 0;
}

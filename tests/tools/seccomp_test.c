/*
 * Under the filter of system calls that systemd's units commonly have: what is refused kills the
 * process, or is EPERM. The library does its whole work all the same.
 */
#include "system_service.h"
#include <tests/support/rma_peers.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <weft/runtime.h>

#ifdef __x86_64__
enum { NO_FILTERS = 99, LARGE = 1 << 20, MOST = 1000 };

static void permit(struct sock_filter *filter, unsigned *n, const int *calls, size_t n_calls) {
    for (size_t i = 0; i < n_calls; i++) {
        filter[(*n)++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[(*n)++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
}

/* For good. `subtracted`: @resources and @privileged are refused, too. `refused` is what is done
 * with all other calls. */
static bool filter_calls(bool subtracted, unsigned refused) {
    struct sock_filter filter[MOST];
    unsigned n = 0;
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    permit(filter, &n, system_service, sizeof system_service / sizeof *system_service);
    if (!subtracted)
        permit(filter, &n, system_service_subtracted,
               sizeof system_service_subtracted / sizeof *system_service_subtracted);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refused);
    struct sock_fprog program = {(unsigned short)n, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void on_refused(int signal, siginfo_t *info, void *context) {
    printf("  system call %d was refused\n", info->si_syscall);
    fflush(stdout);
    _exit(1);
}

/* ---- the whole of the library, in short ------------------------------------------------------ */

static char out[LARGE], in[LARGE];

static void exchange(struct rma *r, size_t len) {
    struct tally sent = {0}, received = {0};
    uint64_t old = 0;
    pattern(out, len, 1);
    weft_tag_recv(two_b(&r->t), 1, UINT64_MAX, &(weft_iov_t){in, len}, 1, NULL, OP(&received));
    weft_status_t st = weft_tag_send(r->t.ep, 1, &(weft_iov_t){out, len}, 1, OP(&sent));
    UNTIL(&r->t, received.calls && (sent.calls || st == WEFT_OK));
    CHECK(received.status == WEFT_OK && is_pattern(in, len, 1));
    CHECK_EQ(
        RMA_WAIT(r, &sent, weft_put(r->t.ep, out, len, rma_at(r, 0), r->rkey, RMA_REMOTE(&sent))),
        0);
    CHECK_EQ(RMA_WAIT(r, &sent, weft_get(r->t.ep, in, len, rma_at(r, 0), r->rkey, OP(&sent))), 0);
    CHECK(is_pattern(in, len, 1));
    CHECK_EQ(RMA_WAIT(r, &sent,
                      weft_atomic_fetch(r->t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, rma_at(r, 0),
                                        r->rkey, OP(&sent))),
             0);
}

static void use_memory(struct rma *r) {
    weft_worker_t *worker = r->t.a;
    weft_mem_info_t info;
    for (int kind = WEFT_PAGES_AUTO; kind <= WEFT_PAGES_HUGE; kind++) {
        weft_mem_t *mem;
        weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .pages = (weft_mem_pages_t)kind};
        CHECK_EQ(weft_mem_alloc(worker, LARGE, &params, &mem), 0);
        CHECK_EQ(weft_mem_describe(mem, &info), 0);
        for (int advice = WEFT_ADVISE_WILL_NEED; advice <= WEFT_ADVISE_RANDOM; advice++)
            weft_mem_advise(mem, 0, LARGE, (weft_mem_advice_t)advice);
        memset(info.base, 1, LARGE);
        CHECK_EQ(weft_mem_detect(info.base, &info), 0);
        CHECK_EQ(weft_mem_release(mem, NULL), 0);
    }
    CHECK_EQ(weft_mem_detect(out, &info), 0);
}

/* A worker that sleeps in the kernel, and one with a thread of its own. */
static void wait_and_thread(struct rma *r) {
    for (int i = 0; i < 3; i++) weft_worker_wait(r->t.a, 5);
    weft_worker_t *driven;
    CHECK_EQ(weft_worker_create(r->t.context,
                                &(weft_worker_params_t){.thread_mode = WEFT_THREAD_MULTIPLE},
                                &driven),
             0);
    CHECK_EQ(weft_worker_start_thread(driven, NULL), 0);
    usleep(20000);
    CHECK_EQ(weft_worker_stop_thread(driven), 0);
    weft_worker_destroy(driven);
}

static void listen_and_dial(struct rma *r, const char *uri) {
    weft_listener_t *listener;
    weft_ep_t *ep;
    int ready = r->t.ready;
    CHECK_EQ(weft_listen(two_b(&r->t), uri, NULL, &listener), 0);
    CHECK(weft_connect(r->t.a, weft_listener_uri(listener),
                       &(weft_ep_params_t){.on_ready = two_on_ready, .arg = &r->t}, &ep) >= 0);
    UNTIL(&r->t, r->t.ready > ready);
    weft_listener_close(listener);
}

static void work(void) {
    static const char *const transports[] = {"self", "shm", "tcp"};
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        struct rma r;
        rma_up(&r, transports[i], i == 2, LARGE, WEFT_MEM_ALL, NULL, 0);
        for (size_t len = 8; len <= LARGE; len *= 8) exchange(&r, len);
        exchange(&r, LARGE);
        use_memory(&r);
        wait_and_thread(&r);
        if (i == 1) listen_and_dial(&r, "shm://seccomp-test");
        if (i == 2) listen_and_dial(&r, "tcp://127.0.0.1:0");
        rma_down(&r);
    }
}

/* ---- in a process with the filter ------------------------------------------------------------ */

static int run_filtered(unsigned refused) {
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO};
        sigaction(SIGSYS, &action, NULL);
        alarm((unsigned)test_timeout(60));
        if (!filter_calls(true, refused)) _exit(NO_FILTERS);
        if (setjmp(test_out) == 0) work();
        fflush(stdout);
        _exit(test_result);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(no_refused_system_call_is_made) {
    int code = run_filtered(SECCOMP_RET_TRAP);
    if (code == NO_FILTERS) SKIP("no seccomp filters here");
    CHECK_EQ(code, 0);
}

TEST(what_is_refused_with_EPERM_is_done_without) {
    int code = run_filtered(SECCOMP_RET_ERRNO | EPERM);
    if (code == NO_FILTERS) SKIP("no seccomp filters here");
    CHECK_EQ(code, 0);
}

/* Programs choose their cores, which @resources permits. */
static int run_program(const char *command) {
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm((unsigned)test_timeout(60));
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* it would trace this process */
        if (!filter_calls(false, SECCOMP_RET_KILL_PROCESS)) _exit(NO_FILTERS);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(programs_run_under_the_filter) {
    static const char *const commands[] = {
        "tools/weft-info --json >/dev/null",
        "WEFT_CALIBRATION=off tools/weft-info --protocols >/dev/null",
        "tools/weft-run --plain -n 3 examples/allreduce >/dev/null",
        "tools/weft-perf --test put_lat --size 8-64k --transport shm --seconds 0.05 >/dev/null",
        "tools/weft-perf --test tag_bw --size 1m --transport tcp --seconds 0.05 >/dev/null",
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int code = run_program(commands[i]);
        if (code == NO_FILTERS) SKIP("no seccomp filters here");
        if (code) printf("  %s ended with %d\n", commands[i], code);
        CHECK_EQ(code, 0);
    }
}
#else
TEST(no_refused_system_call_is_made) {
    SKIP("the filter's table is that of x86-64");
}
#endif

/* The port of the job's machine: processes, signals and time, on a libev loop. */
#define _GNU_SOURCE /* pipe2 */
#include "job.h"
#include "output.h"
#include "serve.h"
#include <base/compiler.h>
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const double grace_s = 2.0;
static const int stop_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_STOP_SIGNALS = sizeof stop_signals / sizeof stop_signals[0] };

struct process {
    ev_child watcher;
    struct running *running;
    uint32_t rank;
    pid_t pid; /* of it and of its group; 0: gone */
};

struct running {
    struct job job;
    const struct job_params *params;
    struct rlimit descriptors; /* that the processes may have: as many as this one might at first */
    struct ev_loop *loop;
    ev_signal stop[N_STOP_SIGNALS];
    ev_timer timeout, grace;
    struct outputs outputs;
    struct serving *serving;
    struct process *processes;
    uint32_t n_left;
};

/* ---- one process ----------------------------------------------------------------------------- */

/* This side's and the child's end of what connects them; -1: none. */
struct ends {
    int exchange[2], out[2], err[2];
};

static void close_end(int fd) {
    if (fd >= 0) close(fd);
}

static void close_ends(const struct ends *e, int side) {
    close_end(e->exchange[side]);
    close_end(e->out[side]);
    close_end(e->err[side]);
}

static bool open_ends(struct ends *e, bool plain) {
    *e = (struct ends){{-1, -1}, {-1, -1}, {-1, -1}};
    bool ok = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e->exchange) == 0;
    if (!plain) ok = ok && pipe2(e->out, O_CLOEXEC) == 0 && pipe2(e->err, O_CLOEXEC) == 0;
    if (ok) return true;
    close_ends(e, 0);
    close_ends(e, 1);
    return false;
}

static void set_number(const char *name, uint32_t value) {
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

/* Only rank 0 reads our input, and not from a terminal: its group is not the one in front. */
static void set_input(uint32_t rank) {
    if (rank == 0 && !isatty(0)) return;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null > 0) dup2(null, 0);
}

/* A handler of this process would take the signals that are to end a child, until that is its
 * program. */
static void forget_handlers(void) {
    struct sigaction now;
    signal(SIGCHLD, SIG_DFL);
    for (int i = 0; i < N_STOP_SIGNALS; i++)
        if (sigaction(stop_signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            signal(stop_signals[i], SIG_DFL);
}

/* As fork(), and no signal runs a handler of the parent's in the child. */
static pid_t fork_without_handlers(void) {
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) forget_handlers();
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static _Noreturn void become(const struct running *r, uint32_t rank, const struct ends *e,
                             pid_t parent) {
    const struct job_params *params = r->params;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(JOB_CODE_NOT_RUN); /* it died before the line above */

    bool terminal = isatty(2);
    set_input(rank);
    if (e->out[1] >= 0) dup2(e->out[1], 1);
    if (e->err[1] >= 0) dup2(e->err[1], 2);
    fcntl(e->exchange[1], F_SETFD, 0);
    set_number("WEFT_RUN_FD", (uint32_t)e->exchange[1]);
    set_number("WEFT_RUN_RANK", rank);
    set_number("WEFT_RUN_SIZE", params->n);
    if (terminal) setenv("WEFT_RUN_TERMINAL", "1", 1);
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_NOFILE, &r->descriptors);
    execvp(params->file, params->argv);
    int error = errno; /* the line may fail, too */
    fprintf(stderr, "%s: %s: %s\n", params->tool, params->file, strerror(error));
    _exit(error == ENOENT ? JOB_CODE_NOT_FOUND : JOB_CODE_NOT_RUN);
}

static void report_exit(struct running *r, const struct process *p, int status) {
    const char *others = r->n_left == 0          ? ""
                         : r->params->keep_going ? "; the others go on"
                                                 : "; ending the others";
    if (WIFSIGNALED(status))
        outputs_report(&r->outputs, "%s: rank %u (pid %d) was ended by signal %d (%s)%s\n",
                       r->params->tool, p->rank, p->watcher.rpid, WTERMSIG(status),
                       strsignal(WTERMSIG(status)), others);
    else
        outputs_report(&r->outputs, "%s: rank %u (pid %d) exited with %d%s\n", r->params->tool,
                       p->rank, p->watcher.rpid, WEXITSTATUS(status), others);
}

static void on_exit_of(struct ev_loop *loop, ev_child *watcher, int events) {
    struct process *p = watcher->data;
    struct running *r = p->running;
    int status = watcher->rstatus;
    (void)events;
    ev_child_stop(loop, watcher);
    p->pid = 0;
    r->n_left--;
    if (status != 0) {
        if (job_is_running(&r->job.fsm)) report_exit(r, p, status);
        r->job.by_signal = WIFSIGNALED(status);
        r->job.reason = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        weft__fsm_step(&r->job.fsm, r->params->keep_going ? JOB_EV_LOST : JOB_EV_FAILED);
    } else {
        r->job.well = true;
    }
    if (r->n_left == 0) weft__fsm_step(&r->job.fsm, JOB_EV_LAST);
}

static bool start_process(struct running *r, uint32_t rank) {
    struct ends ends;
    if (!open_ends(&ends, r->params->plain)) return false;
    pid_t parent = getpid(), pid = fork_without_handlers();
    if (pid == 0) become(r, rank, &ends, parent);
    close_ends(&ends, 1);
    if (pid < 0) {
        close_ends(&ends, 0);
        return false;
    }
    setpgid(pid, pid); /* parent and child both call it: either may run first */

    struct process *p = &r->processes[rank];
    *p = (struct process){.running = r, .rank = rank, .pid = pid};
    ev_child_init(&p->watcher, on_exit_of, pid, 0);
    p->watcher.data = p;
    ev_child_start(r->loop, &p->watcher);
    serving_add(r->serving, rank, ends.exchange[0]);
    if (ends.out[0] >= 0) outputs_forward(&r->outputs, rank, 1, ends.out[0]);
    if (ends.err[0] >= 0) outputs_forward(&r->outputs, rank, 2, ends.err[0]);
    r->n_left++;
    return true;
}

static void signal_all(const struct running *r, int signo) {
    for (uint32_t i = 0; i < r->params->n; i++)
        if (r->processes[i].pid > 0) kill(-r->processes[i].pid, signo);
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void on_effect(struct fsm *m, unsigned what) {
    struct running *r = (struct running *)m;
    switch (what) {
    case JOB_FX_TERMINATE: signal_all(r, SIGTERM); break;
    case JOB_FX_KILL: signal_all(r, SIGKILL); break;
    case JOB_FX_ARM_GRACE:
        ev_now_update(r->loop); /* starting the processes may have taken longer */
        ev_timer_start(r->loop, &r->grace);
        break;
    case JOB_FX_LEAVE: ev_break(r->loop, EVBREAK_ALL); break;
    default: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    (void)why;
    fprintf(stderr, "weft-run: %s in state %s\n", m->port->machine->event_name[event],
            fsm_state_name(m));
    abort();
}

static const struct fsm_port port = {&weft__job_machine, on_effect, on_fail};

static void on_stop(struct ev_loop *loop, ev_signal *watcher, int events) {
    struct running *r = watcher->data;
    (void)loop;
    (void)events;
    r->job.reason = 128 + watcher->signum;
    weft__fsm_step(&r->job.fsm, JOB_EV_STOP);
}

static void on_timeout(struct ev_loop *loop, ev_timer *timer, int events) {
    struct running *r = timer->data;
    (void)loop;
    (void)events;
    outputs_report(&r->outputs, "%s: %g seconds have passed; ending the job\n", r->params->tool,
                   r->params->timeout_s);
    weft__fsm_step(&r->job.fsm, JOB_EV_TIMEOUT);
}

static void on_grace(struct ev_loop *loop, ev_timer *timer, int events) {
    (void)loop;
    (void)events;
    weft__fsm_step(&((struct running *)timer->data)->job.fsm, JOB_EV_GRACE);
}

/* As of a program that writes there itself. */
static int code_of_output(const struct outputs *o) {
    return outputs_error(o) == EPIPE ? 128 + SIGPIPE : JOB_CODE_OUTPUT;
}

static void on_broken(struct outputs *o) {
    struct running *r = container_of(o, struct running, outputs);
    r->job.reason = code_of_output(o);
    weft__fsm_step(&r->job.fsm, JOB_EV_STOP);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* As nohup(1) asks. */
static bool is_to_survive_hangup(void) {
    struct sigaction now;
    return sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static void watch_signals_and_time(struct running *r) {
    for (int i = 0; i < N_STOP_SIGNALS; i++) {
        ev_signal_init(&r->stop[i], on_stop, stop_signals[i]);
        r->stop[i].data = r;
        if (stop_signals[i] == SIGHUP && is_to_survive_hangup()) continue;
        ev_signal_start(r->loop, &r->stop[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    ev_timer_init(&r->grace, on_grace, grace_s, 0);
    ev_timer_init(&r->timeout, on_timeout, r->params->timeout_s, 0);
    r->grace.data = r->timeout.data = r;
    if (r->params->timeout_s > 0) ev_timer_start(r->loop, &r->timeout);
}

static void unwatch(struct running *r) {
    for (int i = 0; i < N_STOP_SIGNALS; i++) ev_signal_stop(r->loop, &r->stop[i]);
    ev_timer_stop(r->loop, &r->grace);
    ev_timer_stop(r->loop, &r->timeout);
}

static void start_all(struct running *r) {
    for (uint32_t i = 0; i < r->params->n; i++) {
        if (start_process(r, i)) continue;
        outputs_report(&r->outputs, "%s: cannot start rank %u: %s\n", r->params->tool, i,
                       strerror(errno));
        r->job.reason = JOB_CODE_NOT_RUN;
        weft__fsm_step(&r->job.fsm, JOB_EV_FAILED);
        if (r->n_left == 0) weft__fsm_step(&r->job.fsm, JOB_EV_LAST);
        return;
    }
}

/* What was printed last may be written last of all. */
static int code_of_job(const struct running *r) {
    int error = outputs_error(&r->outputs);
    if (error && error != EPIPE)
        fprintf(stderr, "%s: writing the output: %s\n", r->params->tool, strerror(error));
    return error && r->job.code == 0 ? code_of_output(&r->outputs) : r->job.code;
}

/* Two pipes and a socket for each process, and what is beside them. Many systems begin with 1,024
 * and permit more. */
static void permit_descriptors(struct running *r) {
    enum { OF_PROCESS = 3, BESIDE = 64 };
    getrlimit(RLIMIT_NOFILE, &r->descriptors);
    struct rlimit more = r->descriptors;
    rlim_t needed = OF_PROCESS * (rlim_t)r->params->n + BESIDE;
    if (more.rlim_cur >= needed) return;
    more.rlim_cur = needed < more.rlim_max ? needed : more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

/* libev aborts when it finds none for its set of descriptors and for its signals. */
static bool has_descriptors(void) {
    enum { OF_LOOP = 3 };
    int fd[OF_LOOP], n = 0;
    while (n < OF_LOOP && (fd[n] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0) n++;
    int error = n < OF_LOOP && errno == EMFILE ? EMFILE : 0;
    for (int i = 0; i < n; i++) close(fd[i]);
    errno = error;
    return error == 0;
}

int job_run(const struct job_params *params) {
    struct running r = {.params = params};
    permit_descriptors(&r);
    if (!has_descriptors()) {
        fprintf(stderr, "%s: no descriptors for the job: %s\n", params->tool, strerror(errno));
        return JOB_CODE_NOT_RUN;
    }
    r.loop = ev_default_loop(0);
    fsm_init(&r.job.fsm, &port, JOB_RUNNING, 1);
    if (r.loop) r.serving = serving_open(r.loop, params->tool, params->n);
    r.processes = calloc(params->n, sizeof r.processes[0]);
    if (!r.serving || !r.processes || !outputs_open(&r.outputs, r.loop, params->n, on_broken)) {
        fprintf(stderr, "%s: out of memory\n", params->tool);
        free(r.processes);
        return JOB_CODE_NOT_RUN;
    }
    watch_signals_and_time(&r);
    start_all(&r);
    if (r.n_left > 0) ev_run(r.loop, 0);
    unwatch(&r);
    outputs_close(&r.outputs);
    serving_close(r.serving);
    free(r.processes);
    return code_of_job(&r);
}

#include "apart.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

void *apart_shared(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

pid_t apart_fork(void) {
    pid_t parent = getpid();
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) abort();
    if (child > 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it ended before the line above */
    return 0;
}

/* Of its own time, not of the clock's: the machine may be busy. */
void apart_alarm(unsigned seconds) {
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
}

const char *apart_end(int wait_status) {
    static char text[64];
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return "";
    if (!WIFSIGNALED(wait_status))
        snprintf(text, sizeof text, "ended by itself");
    else if (WTERMSIG(wait_status) == SIGPROF)
        snprintf(text, sizeof text, "hung");
    else
        snprintf(text, sizeof text, "killed: %s", strsignal(WTERMSIG(wait_status)));
    return text;
}

void apart_run(const struct plan *plan, struct verdict *verdict) {
    static struct verdict *shared;
    int status;
    if (!shared) shared = apart_shared(sizeof *shared);
    memset(shared, 0, sizeof *shared);
    pid_t child = apart_fork();
    if (child == 0) {
        apart_alarm(A_HANG_S);
        world_run(plan, shared, NULL);
        _exit(0);
    }
    if (waitpid(child, &status, 0) < 0) abort();
    *verdict = *shared;
    if (!apart_end(status)[0]) return;
    verdict->failed = true;
    snprintf(verdict->what, sizeof verdict->what, "%s", apart_end(status));
}

/*
 * Keeps the first two cores from halting, by a spinner of the lowest class on each, until it is
 * ended: an idle virtual core is given away by the host and comes back elsewhere. Anything else
 * that is runnable has the core at once.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static _Noreturn void spin(int place) {
    struct sched_param lowest = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(place);
    if (sched_setscheduler(0, SCHED_IDLE, &lowest) < 0) {
        perror("SCHED_IDLE");
        _exit(1);
    }
    for (;;) __builtin_ia32_pause();
}

int main(void) {
    for (int place = 0; place < 2; place++)
        if (fork() == 0) spin(place);
    pause();
    return 0;
}

/* The state that workers of this process share, behind its lock. A forked child begins with an
 * empty one. */
#include "process_globals.h"
#include <pthread.h>
#include <reactor/reactor.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct process_globals process_globals;
static uint32_t generation;

static void enter_globals(void) {
    pthread_mutex_lock(&lock);
}

static void leave_globals(void) {
    pthread_mutex_unlock(&lock);
}

/* A child must not inherit a lock that a thread of its parent holds. */
static void heed_forks(void) {
    pthread_atfork(enter_globals, leave_globals, leave_globals);
}

struct process_globals *weft__process_globals_enter(void) {
    pthread_once(&once, heed_forks);
    enter_globals();
    uint32_t now = weft__fork_generation();
    if (now != generation) process_globals = (struct process_globals){0};
    generation = now;
    return &process_globals;
}

void weft__process_globals_leave(void) {
    leave_globals();
}

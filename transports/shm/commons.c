#include "commons.h"
#include <pthread.h>
#include <reactor/reactor.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct commons commons;
static uint32_t generation;

static void enter(void) {
    pthread_mutex_lock(&lock);
}

static void leave(void) {
    pthread_mutex_unlock(&lock);
}

/* No child inherits a lock whose holder did not come with it. */
static void heed_forks(void) {
    pthread_atfork(enter, leave, leave);
}

struct commons *weft__commons_enter(void) {
    pthread_once(&once, heed_forks);
    enter();
    uint32_t now = weft__fork_generation();
    if (now != generation) commons = (struct commons){0};
    generation = now;
    return &commons;
}

void weft__commons_leave(void) {
    leave();
}

/*
 * Fork: one page that the kernel wipes in a child (MADV_WIPEONFORK), so that a child is told from its parent by a
 * load. A child that makes a context of its own begins a new generation; its parent's objects stay refused.
 */
#include "local.h"
#include <sys/mman.h>
#include <unistd.h>

static volatile uint32_t *page, plain_page;
static uint32_t generations;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void begin_generation(void) {
    uint32_t next = ++generations;
    *page = next;
}

static void wipe_plain_page(void) {
    plain_page = 0;
}

/* An old kernel: a handler wipes, and only forks that bypass the C library go unseen. */
static volatile uint32_t *map_page(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED && madvise(map, size, MADV_WIPEONFORK) == 0) return map;
    if (map != MAP_FAILED) munmap(map, size);
    pthread_atfork(NULL, NULL, wipe_plain_page);
    return &plain_page;
}

uint32_t fork_generation_now(const volatile uint32_t **mark_p) {
    pthread_mutex_lock(&lock);
    if (!page) page = map_page();
    if (!*page) begin_generation();
    uint32_t generation = *page;
    *mark_p = page;
    pthread_mutex_unlock(&lock);
    return generation;
}

uint32_t weft__fork_generation(void) {
    const volatile uint32_t *mark;
    return fork_generation_now(&mark);
}

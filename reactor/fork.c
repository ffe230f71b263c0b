/*
 * Fork: one page that the kernel wipes in a child (MADV_WIPEONFORK), so that a child is told from its parent by a
 * load. A child that makes a context of its own begins a new generation; its parent's objects stay refused. There is no lock: a child
 * might inherit it from a thread that did not come with it.
 *
 * What comes behind each of the program's callbacks must be shorter yet, and asks whether this is any child at all. So workers of a
 * child's own take a call more for each.
 */
#include "local.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint32_t *page, plain_page;
static atomic_uint generations;
static pthread_once_t once = PTHREAD_ONCE_INIT;

bool weft__is_child;
static void become_child(void) {
    plain_page = 0;
    weft__is_child = true;
}

/* An old kernel: a handler wipes, and only forks that bypass the C library go unseen. */
static void map_page(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool wipes = map != MAP_FAILED && madvise(map, size, MADV_WIPEONFORK) == 0;
    page = wipes ? map : &plain_page;
    if (map != MAP_FAILED && !wipes) munmap(map, size);
    pthread_atfork(NULL, NULL, become_child);
}

/* Of several threads that begin one, the first decides. */
uint32_t fork_generation_now(const volatile uint32_t **mark_p) {
    pthread_once(&once, map_page);
    uint32_t generation = __atomic_load_n(page, __ATOMIC_ACQUIRE);
    if (!generation) {
        uint32_t next = atomic_fetch_add(&generations, 1) + 1;
        bool begun =
            __atomic_compare_exchange_n(page, &generation, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        if (begun) generation = next;
    }
    *mark_p = page;
    return generation;
}

/* Neither are the program's functions of its end called, nor what it left in its streams written: that is its parent's, too. */
void weft__end_stray(const struct reactor *r) {
    if (!forked(r)) return;
    weft__log(NULL, WEFT_LOG_ERROR, "reactor", "a child that a callback forked returned from it, and is ended");
    _exit(EXIT_FAILURE);
}

uint32_t weft__fork_generation(void) {
    const volatile uint32_t *mark;
    return fork_generation_now(&mark);
}

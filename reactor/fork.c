/*
 * Fork. The kernel wipes one page in a child (MADV_WIPEONFORK), so that one load distinguishes a
 * child from its parent. A child that makes a context of its own begins a new generation, and
 * objects of its parent stay refused. There is no lock: a child could inherit it from a thread that
 * the child lacks.
 *
 * The child's copies of sockets would keep listeners and connections open after the parent closes
 * them. So an atfork handler closes them in the child. A child of a system call that bypasses the C
 * library keeps its copies.
 *
 * The check behind each callback of the program is shorter: it tests whether this process is a
 * child at all. Workers that a child opens itself therefore pay for one more call.
 */
#include "local.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static uint32_t *page, plain_page;
static atomic_uint generations;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- sockets that a child closes */

/* A bit for each descriptor: no lock and no allocation, which a child might find in any state.
 * Pages never used cost nothing. */
enum { WORD = 64, MOST_FDS = 1 << 20 };
static _Atomic uint64_t closed_by_children[MOST_FDS / WORD];
static atomic_int highest_closed;

void weft__fork_closes(int fd, bool on) {
    if (fd < 0 || fd >= MOST_FDS) return;
    _Atomic uint64_t *word = &closed_by_children[fd / WORD];
    uint64_t bit = UINT64_C(1) << fd % WORD;
    if (!on) {
        atomic_fetch_and(word, ~bit);
        return;
    }
    atomic_fetch_or(word, bit);
    for (int most = atomic_load(&highest_closed); most < fd;)
        if (atomic_compare_exchange_weak(&highest_closed, &most, fd)) return;
}

static void close_sockets(void) {
    for (int i = 0; i <= atomic_load(&highest_closed) / WORD; i++)
        for (uint64_t word = atomic_exchange(&closed_by_children[i], 0); word; word &= word - 1)
            close(i * WORD + __builtin_ctzll(word));
}

/* ---- which process this is */

bool weft__is_child;
/* The page is wiped by hand, too: an old kernel cannot, and qemu-user says that it did. */
static void become_child(void) {
    *page = 0;
    weft__is_child = true;
    close_sockets();
}

/* Where the kernel cannot wipe, only forks that bypass the C library go unseen. */
static void map_page(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool wipes = map != MAP_FAILED && madvise(map, size, MADV_WIPEONFORK) == 0;
    page = wipes ? map : &plain_page;
    if (map != MAP_FAILED && !wipes) munmap(map, size);
    pthread_atfork(NULL, NULL, become_child);
}

/* Of several threads that begin one, the first decides. */
uint32_t weft__fork_generation_now(const volatile uint32_t **mark_p) {
    pthread_once(&once, map_page);
    uint32_t generation = __atomic_load_n(page, __ATOMIC_ACQUIRE);
    if (!generation) {
        uint32_t next = atomic_fetch_add(&generations, 1) + 1;
        bool begun = __atomic_compare_exchange_n(page, &generation, next, false, __ATOMIC_ACQ_REL,
                                                 __ATOMIC_ACQUIRE);
        if (begun) generation = next;
    }
    *mark_p = page;
    return generation;
}

/* Neither are the program's functions of its end called, nor what it left in its streams
 * written: that is its parent's, too. */
static void end_child(void) {
    weft__log(NULL, WEFT_LOG_ERROR, "reactor",
              "a child that a callback forked returned from the callback; the child is ended");
    _exit(EXIT_FAILURE);
}

void weft__end_forked_child(const struct reactor *r) {
    if (forked(r)) end_child();
}

void weft__end_child_of(uint32_t generation) {
    if (weft__fork_generation() != generation) end_child();
}

uint32_t weft__fork_generation(void) {
    const volatile uint32_t *mark;
    return weft__fork_generation_now(&mark);
}

/*
 * What a barrier of processes that share the two cores takes with nothing in between:
 *
 *     bare_barrier yield|futex RANKS SECONDS
 *
 * yield: one counter that all add to and watch, yielding the core. futex: the same counter, where
 * all but the last sleep on a word and the last wakes them. Rank r runs on core r % 2. Prints name
 * TAB median TAB unit of batches of 16, as rank 0 sees them.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 16, WARM = 20, MOST_BATCHES = 100000, MOST_RANKS = 1024 };

struct page {
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t round;   /* that is complete: what sleepers wait for */
    _Alignas(64) _Atomic uint32_t batches; /* rank 0 decides after the first few; 0: not yet */
};

static void by_yield(struct page *page, uint32_t round, uint32_t ranks) {
    atomic_fetch_add(&page->arrived, 1);
    while (atomic_load_explicit(&page->arrived, memory_order_acquire) < round * ranks)
        sched_yield();
}

static void by_futex(struct page *page, uint32_t round, uint32_t ranks) {
    if (atomic_fetch_add(&page->arrived, 1) + 1 == round * ranks) {
        atomic_store(&page->round, round);
        syscall(SYS_futex, &page->round, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        return;
    }
    while (atomic_load(&page->round) < round)
        syscall(SYS_futex, &page->round, FUTEX_WAIT, round - 1, NULL, NULL, 0);
}

typedef void (*barrier_fn)(struct page *page, uint32_t round, uint32_t ranks);

static double batch(struct page *page, barrier_fn barrier, uint32_t *round, uint32_t ranks) {
    double begin = now_ns();
    for (int i = 0; i < BATCH; i++) barrier(page, ++*round, ranks);
    return (now_ns() - begin) / BATCH;
}

/* All do as many batches as rank 0 says before the barriers that end its warming up. */
static void work(struct page *page, barrier_fn barrier, uint32_t rank, uint32_t ranks,
                 double seconds) {
    uint32_t round = 0;
    double warm = 0;
    for (int i = 0; i < WARM; i++) warm = batch(page, barrier, &round, ranks);
    double wanted = seconds * 1e9 / (warm * BATCH);
    if (rank == 0)
        atomic_store(&page->batches, wanted < 8              ? 8
                                     : wanted > MOST_BATCHES ? MOST_BATCHES
                                                             : (uint32_t)wanted);
    batch(page, barrier, &round, ranks);
    uint32_t n = atomic_load(&page->batches);
    double *took = malloc(n * sizeof *took);
    if (!took) exit(1);
    for (uint32_t i = 0; i < n; i++) took[i] = batch(page, barrier, &round, ranks);
    sort_figures(took, n);
    if (rank == 0) printf("bare barrier\t%.5g\tus\n", took[n / 2] / 1e3);
    free(took);
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "bare_barrier yield|futex RANKS SECONDS\n"), 2;
    barrier_fn barrier = strcmp(argv[1], "futex") == 0 ? by_futex : by_yield;
    uint32_t ranks = (uint32_t)atoi(argv[2]);
    if (ranks < 1 || ranks > MOST_RANKS)
        return fprintf(stderr, "bare_barrier: 1 to %d ranks\n", MOST_RANKS), 2;
    struct page *page = shared_memory(sizeof *page);
    fail_with_children();
    for (uint32_t rank = 1; rank < ranks; rank++) {
        if (fork()) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin((int)(rank % 2));
        work(page, barrier, rank, ranks, atof(argv[3]));
        _exit(0);
    }
    pin(0);
    work(page, barrier, 0, ranks, atof(argv[3]));
    while (wait(NULL) > 0) continue;
    return 0;
}

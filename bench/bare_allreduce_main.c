/*
 * What an allreduce takes with nothing in between, of two processes with a core each, or of more
 * that share the two cores:
 *
 *     bare_allreduce mapped|vm BYTES SECONDS [RANKS]
 *
 * Each adds its slice of all vectors and copies the other slices of the result: of n bytes and N
 * ranks it reads n and n (1 - 1/N), of the first 1/N from its own memory, and writes n. Ranks that
 * share a core yield until all are there. mapped: the vectors lie in shared memory. vm: each reads
 * the others' by process_vm_readv, so what is added is written and read once more, in pieces that
 * stay in the cache. Prints name TAB median TAB unit.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 16, WARM = 4, MOST_BATCHES = 100000, PIECE = 64 << 10, RANKS_MOST = 16 };

struct page {
    struct side {
        _Alignas(64) _Atomic uint32_t step; /* that it has ended */
        pid_t pid;
        float *src, *dst;
    } side[RANKS_MOST];
    _Alignas(64) _Atomic uint32_t batches; /* rank 0 decides after the first few */
};

struct member {
    struct page *page;
    uint32_t rank, ranks, step;
    size_t count;
    bool by_vm;
    float *room; /* a piece */
};

static struct side *own(const struct member *m) {
    return &m->page->side[m->rank];
}
static const struct side *side_of(const struct member *m, uint32_t rank) {
    return &m->page->side[rank];
}

/* The end of a step at all. */
static void meet(struct member *m) {
    atomic_store_explicit(&own(m)->step, ++m->step, memory_order_release);
    for (uint32_t r = 0; r < m->ranks; r++)
        while (atomic_load_explicit(&side_of(m, r)->step, memory_order_acquire) < m->step)
            if (m->ranks > 2) sched_yield();
}

static void take(const struct member *m, uint32_t rank, const float *from, float *to,
                 size_t count) {
    struct iovec here = {to, count * sizeof *to}, there = {(void *)from, count * sizeof *to};
    if (!m->by_vm)
        memcpy(to, from, here.iov_len);
    else if (process_vm_readv(side_of(m, rank)->pid, &here, 1, &there, 1, 0) !=
             (ssize_t)here.iov_len)
        _exit(3);
}

/* By vectors, as the library's own kernels: a sum of one float at a time would be the limit. */
#if defined(__x86_64__) && !defined(__clang__)
#define BY_VECTORS __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define BY_VECTORS
#endif

BY_VECTORS static void add(float *restrict to, const float *left, const float *right,
                           size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = left[i] + right[i];
}

/* What has been added so far stays in the cache, so it costs no traffic. */
BY_VECTORS static void add_on(float *restrict to, const float *right, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] += right[i];
}

static const float *vector_of(const struct member *m, uint32_t rank, size_t at, size_t n) {
    const float *theirs = side_of(m, rank)->src + at;
    if (!m->by_vm) return theirs;
    take(m, rank, theirs, m->room, n);
    return m->room;
}

static void fold(const struct member *m, size_t at, size_t end) {
    for (size_t n = PIECE / sizeof(float); at < end; at += n) {
        if (n > end - at) n = end - at;
        float *to = own(m)->dst + at;
        for (uint32_t i = 1; i < m->ranks; i++) {
            const float *theirs = vector_of(m, (m->rank + i) % m->ranks, at, n);
            if (i == 1)
                add(to, own(m)->src + at, theirs, n);
            else
                add_on(to, theirs, n);
        }
    }
}

static void allreduce(struct member *m) {
    size_t slice = m->count / m->ranks;
    meet(m);
    fold(m, m->rank * slice, (m->rank + 1) * slice);
    meet(m);
    for (uint32_t i = 1; i < m->ranks; i++) {
        uint32_t rank = (m->rank + i) % m->ranks;
        take(m, rank, side_of(m, rank)->dst + rank * slice, own(m)->dst + rank * slice, slice);
    }
}

static double batch(struct member *m) {
    double begin = now_ns();
    for (int i = 0; i < BATCH; i++) allreduce(m);
    return (now_ns() - begin) / BATCH;
}

static float *vector(const struct member *m, size_t bytes) {
    void *p = NULL;
    if (!m->by_vm)
        p = shared_memory(bytes);
    else if (posix_memalign(&p, (size_t)sysconf(_SC_PAGESIZE), bytes) != 0)
        exit(1);
    return p;
}

static void work(struct member *m, double seconds) {
    double warm = 0;
    pin((int)m->rank % 2);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* vm: where only a parent may read its children */
    own(m)->pid = getpid();
    for (size_t i = 0; i < m->count; i++) own(m)->src[i] = 1, own(m)->dst[i] = 0;
    for (int i = 0; i < WARM; i++) warm = batch(m);
    double wanted = seconds * 1e9 / (warm * BATCH);
    if (m->rank == 0)
        atomic_store(&m->page->batches, wanted < 8              ? 8
                                        : wanted > MOST_BATCHES ? MOST_BATCHES
                                                                : (uint32_t)wanted);
    batch(m);
    uint32_t n = atomic_load(&m->page->batches);
    double *took = malloc(n * sizeof *took);
    if (!took) exit(1);
    for (uint32_t i = 0; i < n; i++) took[i] = batch(m);
    sort_figures(took, n);
    for (size_t i = 0; i < m->count; i++)
        if (own(m)->dst[i] != (float)m->ranks) _exit(4);
    if (m->rank == 0) printf("bare allreduce\t%.5g\tus\n", took[n / 2] / 1e3);
    free(took);
}

int main(int argc, char **argv) {
    int ranks = argc > 4 ? atoi(argv[4]) : 2, failed = 0;
    if (argc < 4 || ranks < 2 || ranks > RANKS_MOST)
        return fprintf(stderr, "bare_allreduce mapped|vm BYTES SECONDS [RANKS]\n"), 2;
    size_t bytes = (size_t)atol(argv[2]) / (64 * (size_t)ranks) * (64 * (size_t)ranks);
    struct member m = {.page = shared_memory(sizeof *m.page),
                       .ranks = (uint32_t)ranks,
                       .count = bytes / sizeof(float),
                       .by_vm = strcmp(argv[1], "vm") == 0};
    for (int r = 0; r < ranks; r++)
        m.page->side[r] = (struct side){.src = vector(&m, bytes), .dst = vector(&m, bytes)};
    if (posix_memalign((void **)&m.room, (size_t)sysconf(_SC_PAGESIZE), PIECE) != 0) return 1;
    fail_with_children();
    for (int r = 1; r < ranks && m.rank == 0; r++)
        if (fork() == 0) m.rank = (uint32_t)r;
    if (m.rank) prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(&m, atof(argv[3]));
    if (m.rank) _exit(0);
    for (int r = 1, status; r < ranks; r++) failed |= wait(&status) < 0 || status != 0;
    return failed;
}

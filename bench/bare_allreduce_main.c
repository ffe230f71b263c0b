/*
 * What an allreduce of two processes takes with nothing in between, each on a core:
 *
 *     bare_allreduce mapped|vm BYTES SECONDS
 *
 * Each adds its half of the two vectors and copies the other half of the result: of n bytes it
 * reads 1.5 n, half of that from its own memory, and writes n. mapped: the vectors lie in shared
 * memory. vm: each reads the other's memory by process_vm_readv, so the half that is added is
 * written and read once more, in pieces that stay in the cache. Prints name TAB median TAB unit.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 16, WARM = 4, MOST_BATCHES = 100000, PIECE = 64 << 10 };

struct page {
    struct side {
        _Alignas(64) _Atomic uint32_t step; /* that it has ended */
        pid_t pid;
        float *src, *dst;
    } side[2];
    _Alignas(64) _Atomic uint32_t batches; /* rank 0 decides after the first few */
};

struct member {
    struct page *page;
    uint32_t rank, step;
    size_t count;
    bool by_vm;
    float *room; /* a piece */
};

static struct side *own(const struct member *m) {
    return &m->page->side[m->rank];
}
static const struct side *other(const struct member *m) {
    return &m->page->side[1 - m->rank];
}

/* The end of a step at both. */
static void meet(struct member *m) {
    atomic_store_explicit(&own(m)->step, ++m->step, memory_order_release);
    while (atomic_load_explicit(&other(m)->step, memory_order_acquire) < m->step) continue;
}

static void take(const struct member *m, const float *from, float *to, size_t count) {
    struct iovec here = {to, count * sizeof *to}, there = {(void *)from, count * sizeof *to};
    if (!m->by_vm)
        memcpy(to, from, here.iov_len);
    else if (process_vm_readv(other(m)->pid, &here, 1, &there, 1, 0) != (ssize_t)here.iov_len)
        _exit(3);
}

static void add(float *restrict to, const float *left, const float *right, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = left[i] + right[i];
}

static void fold(const struct member *m, size_t at, size_t end) {
    const float *theirs = other(m)->src;
    if (!m->by_vm) {
        add(own(m)->dst + at, own(m)->src + at, theirs + at, end - at);
        return;
    }
    for (size_t n = PIECE / sizeof *theirs; at < end; at += n) {
        if (n > end - at) n = end - at;
        take(m, theirs + at, m->room, n);
        add(own(m)->dst + at, own(m)->src + at, m->room, n);
    }
}

static void allreduce(struct member *m) {
    size_t half = m->count / 2, first = m->rank * half, second = half - first;
    meet(m);
    fold(m, first, first + half);
    meet(m);
    take(m, other(m)->dst + second, own(m)->dst + second, half);
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
    pin((int)m->rank);
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
        if (own(m)->dst[i] != 2) _exit(4);
    if (m->rank == 0) printf("bare allreduce\t%.5g\tus\n", took[n / 2] / 1e3);
    free(took);
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "bare_allreduce mapped|vm BYTES SECONDS\n"), 2;
    size_t bytes = (size_t)atol(argv[2]) / 128 * 128;
    struct member m = {.page = shared_memory(sizeof *m.page),
                       .count = bytes / sizeof(float),
                       .by_vm = strcmp(argv[1], "vm") == 0};
    for (int r = 0; r < 2; r++)
        m.page->side[r] = (struct side){.src = vector(&m, bytes), .dst = vector(&m, bytes)};
    if (posix_memalign((void **)&m.room, (size_t)sysconf(_SC_PAGESIZE), PIECE) != 0) return 1;
    m.rank = fork() == 0;
    if (m.rank) prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(&m, atof(argv[3]));
    if (m.rank) _exit(0);
    int status = 0;
    return wait(&status) < 0 || status != 0;
}

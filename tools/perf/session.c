/* What every test uses: a turn, the clocks, memory, and how to give up. */
#include "perf.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

_Noreturn void perf_die(const char *what, weft_status_t status) {
    char text[1024];
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "weft-perf: %s: %s\n", what, text);
    exit(1);
}

void perf_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    (void)ep;
    (void)arg;
    if (status != WEFT_ERR_PEER_CLOSED) perf_die("connection", status);
}

static void *own_memory(size_t size) {
    void *base = NULL;
    if (posix_memalign(&base, (size_t)sysconf(_SC_PAGESIZE), size) != 0)
        perf_die("memory", WEFT_ERR_NO_MEMORY);
    return base;
}

static void *exposed_memory(struct perf *p, size_t size) {
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE, .expose = 1};
    perf_must(weft_mem_alloc(p->worker, size, &params, &mem), "memory");
    perf_must(weft_mem_describe(mem, &info), "memory");
    return info.base;
}

/* Written once: untouched memory is one page of zeros, which no program sends. */
void *perf_memory(struct perf *p, enum perf_use use, size_t size) {
    if (p->options.cuda) return perf_cuda_memory(p->options.cuda, size);
    return memset(p->options.exposed & use ? exposed_memory(p, size) : own_memory(size), 1, size);
}

void *perf_room(struct perf *p, enum perf_use use, struct perf_room *room, size_t size) {
    if (size > room->size) *room = (struct perf_room){perf_memory(p, use, size), size};
    return room->bytes;
}

void perf_turn(struct perf *p) {
    if (p->mode != MODE_POLL)
        weft_worker_wait(p->worker, -1);
    else if (weft_worker_progress(p->worker, 0) == 0 && p->oversubscribed)
        sched_yield();
    if (p->turn) p->turn(p);
}

uint64_t perf_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double perf_cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

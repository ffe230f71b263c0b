/* Processes that are members of a team. Their exchange is a page that they share. */
#ifndef WEFT_TESTS_COLLECTIVES_PROCESSES_H
#define WEFT_TESTS_COLLECTIVES_PROCESSES_H

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tests/harness.h>
#include <tests/network.h>
#include <unistd.h>
#include <weft/weft.h>

enum { RANKS_MOST = 16, RECORD_MOST = 1024 };

struct page {
    _Atomic uint32_t arrived, alive, through, go;
    uint8_t record[RANKS_MOST][RECORD_MOST];
    weft_status_t ready[RANKS_MOST], outcome[RANKS_MOST];
    uint64_t number[RANKS_MOST], lines[RANKS_MOST], time[RANKS_MOST]; /* time: ns */
};

static const char *process_rails = "1"; /* the setting link.rails of all members */
static const char *process_close_timeout = "1s";
static uint32_t process_per_core; /* what they say of it; 0: they find out */

/* As /proc has it: 'S' sleeps, 'T' is stopped; 0: there is none. */
static inline char state_of(pid_t pid) {
    char path[40], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *in = fopen(path, "re");
    if (!in) return 0;
    if (fscanf(in, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    fclose(in);
    return state;
}

struct process {
    struct page *page;
    const char *algorithms;
    uint32_t rank, size;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_team_t *team;
};

/* Waits in place: the others are processes of their own, and this one has nothing else to do. */
static inline weft_status_t page_allgather(void *arg, weft_worker_t *worker, const void *mine,
                                           size_t len, void *all, weft_done_fn done,
                                           void *done_arg) {
    struct process *p = arg;
    memcpy(p->page->record[p->rank], mine, len);
    atomic_fetch_add(&p->page->arrived, 1);
    while (atomic_load(&p->page->arrived) < p->size) sched_yield();
    for (uint32_t r = 0; r < p->size; r++) memcpy((char *)all + r * len, p->page->record[r], len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}

static inline void note_ready(weft_team_t *team, weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

static inline weft_status_t make_team(struct process *p, const weft_exchange_t *exchange) {
    weft_status_t ready = WEFT_IN_PROGRESS;
    weft_team_params_t params = {.exchange = exchange,
                                 .ranks_per_core = process_per_core,
                                 .on_ready = note_ready,
                                 .arg = &ready};
    weft_status_t st = weft_team_create(p->worker, &params, &p->team);
    while (st >= 0 && ready == WEFT_IN_PROGRESS) weft_worker_wait(p->worker, 100);
    return st < 0 ? st : ready;
}

static inline void set_up(struct process *p, const char *transports) {
    weft_exchange_t exchange = {p->rank, p->size, page_allgather, NULL, p};
    weft_setting_t settings[] = {{"coll.algorithms", p->algorithms},
                                 {"link.rails", process_rails},
                                 {"close.timeout", process_close_timeout}};
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 3},
                            &p->context) < 0)
        _exit(10);
    if (weft_worker_create(p->context, &(weft_worker_params_t){.transports = transports},
                           &p->worker) < 0)
        _exit(11);
    p->page->ready[p->rank] = make_team(p, &exchange);
    if (p->page->ready[p->rank] < 0) _exit(12);
}

static inline void tear_down(struct process *p) {
    if (weft_team_close_wait(p->team) < 0) _exit(20);
    weft_worker_destroy(p->worker);
    if (weft_context_destroy(p->context) < 0) _exit(21);
}

/* Runs `body` in `size` processes; returns how many did not exit with 0. `killed` is the rank to
 * kill at its word. */
static inline int run_all_by(const char *algorithms, uint32_t size, const char *transports,
                             void (*body)(struct process *p), struct page **page_p) {
    struct page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = 0;
    CHECK(page != MAP_FAILED);
    *page_p = page;
    fflush(stdout);
    for (uint32_t r = 0; r < size; r++) {
        if (fork()) continue;
        struct process p = {.page = page, .algorithms = algorithms, .rank = r, .size = size};
        alarm((unsigned)test_timeout(120));
        set_up(&p, transports);
        body(&p);
        tear_down(&p);
        _exit(0);
    }
    for (uint32_t r = 0; r < size; r++) {
        int status;
        CHECK(wait(&status) > 0);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
        if (status != 0) printf("  a member ended with %#x\n", status);
        failed += status != 0;
    }
    return failed;
}

static inline int run_all(uint32_t size, const char *transports, void (*body)(struct process *p),
                          struct page **page_p) {
    return run_all_by("", size, transports, body, page_p);
}

#endif

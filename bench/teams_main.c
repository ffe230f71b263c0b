/*
 * Teams of processes of one host:
 *
 *     teams killed [KILLS]    SIGKILL of one of four members in a collective with WEFT_COLL_SAFE:
 *                             until all others have their outcome, and whether it is one for all
 *     teams made [RANKS [TIMES]]  how long a team takes to be made, and a split of it in two
 *     teams many [WORKERS [TIMES]]  a team of 16 processes with so many workers each, by turns
 *     teams late              the processor time of a member that waits 10 s for a late one
 *     teams served            two servers with collectives between them, and a client of the first:
 *                             the latency of both, alone and beside each other
 *
 * Over shared memory. Times in ms: median, 99th percentile, longest.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

enum { MEMBERS = 4, RANKS_MOST = 64, RECORD_MOST = 1024, TIMES_MOST = 10000 };

struct page {
    _Atomic uint32_t arrived, rounds[RANKS_MOST];
    uint8_t record[RANKS_MOST][RECORD_MOST];
    weft_status_t outcome[RANKS_MOST];
    double at[RANKS_MOST], split[RANKS_MOST];
};
static struct page *page;
static double sample[2][TIMES_MOST];

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void must(weft_status_t status, const char *what) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", what, weft_status_name(status));
    _exit(1);
}

static int by_size(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void print(const char *what, double *ms, int n) {
    qsort(ms, (size_t)n, sizeof *ms, by_size);
    printf("%-34s %8.3f %8.3f %8.3f ms, of %d\n", what, ms[n / 2], ms[n * 99 / 100], ms[n - 1], n);
}

/* ---- a member -------------------------------------------------------------------------------- */

struct member {
    uint32_t rank, size;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_team_t *team;
};

static weft_status_t gather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                            void *all, weft_done_fn done, void *done_arg) {
    const struct member *m = arg;
    (void)worker;
    memcpy(page->record[m->rank], mine, len);
    atomic_fetch_add(&page->arrived, 1);
    while (atomic_load(&page->arrived) < m->size) sched_yield();
    for (uint32_t r = 0; r < m->size; r++) memcpy((char *)all + r * len, page->record[r], len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}

/* Returns how long the team took, once all members were there. */
static double join_team(struct member *m) {
    weft_exchange_t exchange = {.rank = m->rank, .size = m->size, .allgather = gather, .arg = m};
    const weft_setting_t quiet = {"log.level", "none"};
    weft_context_params_t settings = {.settings = &quiet, .n_settings = 1};
    must(weft_context_create(&settings, &m->context), "context");
    weft_worker_params_t params = {.transports = "self,shm"};
    must(weft_worker_create(m->context, &params, &m->worker), "worker");
    atomic_fetch_add(&page->rounds[0], 1);
    while (atomic_load(&page->rounds[0]) < m->size) sched_yield();
    double begin = now_ms();
    must(weft_team_create_wait(m->worker, &exchange, &m->team), "team");
    return now_ms() - begin;
}

static void leave(struct member *m) {
    must(weft_team_close_wait(m->team), "close");
    weft_worker_destroy(m->worker);
    weft_context_destroy(m->context);
    _exit(0);
}

static void begin_members(uint32_t size, pid_t *pid, void (*run)(struct member *m)) {
    memset(page, 0, sizeof *page);
    for (uint32_t r = 0; r < size; r++) {
        struct member m = {.rank = r, .size = size};
        if ((pid[r] = fork()) == 0) run(&m);
    }
}

static void end_members(uint32_t size) {
    int status;
    for (uint32_t r = 0; r < size; r++) {
        if (wait(&status) < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != 0)) exit(1);
    }
}

/* ---- killed ---------------------------------------------------------------------------------- */

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

static weft_status_t sum_safely(struct member *m) {
    uint64_t mine[64] = {0}, sum[64];
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_op_t op = {.done = note, .arg = &outcome, .flags = WEFT_COLL_SAFE};
    weft_status_t st = weft_allreduce(m->team, mine, sum, 64, WEFT_UINT64, WEFT_SUM, &op);
    if (st != WEFT_IN_PROGRESS) return st;
    while (outcome == WEFT_IN_PROGRESS) weft_worker_wait(m->worker, 1000);
    return outcome;
}

static void sum_until_killed(struct member *m) {
    weft_status_t status = WEFT_OK;
    join_team(m);
    atomic_store(&page->arrived, 0);
    while (status == WEFT_OK) {
        status = sum_safely(m);
        if (status == WEFT_OK) atomic_fetch_add(&page->rounds[m->rank], 1);
    }
    page->outcome[m->rank] = status;
    page->at[m->rank] = now_ms();
    weft_team_close_wait(m->team);
    _exit(0);
}

static int killed(int kills) {
    int same = 0;
    for (int k = 0; k < kills; k++) {
        pid_t pid[MEMBERS];
        uint32_t dies = (uint32_t)k % MEMBERS, witness = (dies + 1) % MEMBERS;
        begin_members(MEMBERS, pid, sum_until_killed);
        while (atomic_load(&page->rounds[dies]) < 8) usleep(100);
        usleep((unsigned)(k * 37 % 400));
        double begin = now_ms(), last = 0;
        kill(pid[dies], SIGKILL);
        end_members(MEMBERS);
        bool one = true;
        for (uint32_t r = 0; r < MEMBERS; r++) {
            if (r == dies) continue;
            if (page->at[r] - begin > last) last = page->at[r] - begin;
            one = one && page->outcome[r] == page->outcome[witness];
            /* as many that ended well: rank 0 counted its beginning, too */
            one = one && page->rounds[r] + (witness == 0) * MEMBERS ==
                             page->rounds[witness] + (r == 0) * MEMBERS;
        }
        sample[0][k] = last;
        same += one;
    }
    print("SIGKILL to the last outcome", sample[0], kills);
    printf("one outcome for all: %d of %d\n", same, kills);
    return same == kills ? 0 : 1;
}

/* ---- made ------------------------------------------------------------------------------------ */

static void be_made(struct member *m) {
    weft_team_t *half;
    page->at[m->rank] = join_team(m);
    must(weft_barrier_wait(m->team), "barrier");
    double begin = now_ms();
    must(weft_team_split_wait(m->team, m->rank % 2, m->rank, &half), "split");
    page->split[m->rank] = now_ms() - begin;
    /* The end of a process takes 0.3 ms of its core: none ends while another is not through. */
    atomic_fetch_add(&page->arrived, 1);
    while (atomic_load(&page->arrived) < 2 * m->size) weft_worker_wait(m->worker, 1);
    must(weft_team_close_wait(half), "close of a half");
    leave(m);
}

static int made(uint32_t ranks, int times) {
    for (int k = 0; k < times; k++) {
        pid_t pid[RANKS_MOST];
        begin_members(ranks, pid, be_made);
        end_members(ranks);
        for (uint32_t r = 0; r < ranks; r++) {
            if (page->at[r] > sample[0][k]) sample[0][k] = page->at[r];
            if (page->split[r] > sample[1][k]) sample[1][k] = page->split[r];
        }
    }
    print("team made, the last member", sample[0], times);
    print("split in two, the last member", sample[1], times);
    return 0;
}

/* ---- many ------------------------------------------------------------------------------------ */

enum { PROCESSES = 16, WORKERS_MOST = 16, SEATS = PROCESSES * WORKERS_MOST };

/* Records of all workers of all processes; a process drives its workers by turns. */
struct seats {
    _Atomic uint32_t arrived, begun, made_all, through;
    uint8_t record[SEATS][RECORD_MOST];
    double made[PROCESSES], split[PROCESSES];
};
static struct seats *seats;
static uint32_t n_workers, n_ready, n_halves;

struct seat {
    uint32_t rank;
    size_t len;
    void *all;
    weft_done_fn done;
    void *done_arg;
    weft_worker_t *worker;
    weft_team_t *team, *half;
};

static weft_status_t sit_down(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                              void *all, weft_done_fn done, void *done_arg) {
    struct seat *seat = arg;
    (void)worker;
    memcpy(seats->record[seat->rank], mine, len);
    seat->len = len;
    seat->all = all;
    seat->done = done;
    seat->done_arg = done_arg;
    atomic_fetch_add(&seats->arrived, 1);
    return WEFT_IN_PROGRESS;
}

static void note_team(weft_team_t *team, weft_status_t status, void *arg) {
    (void)team, (void)arg;
    must(status, "team");
    n_ready++;
}
static void note_half(weft_team_t *team, weft_status_t status, void *arg) {
    must(status, "half");
    ((struct seat *)arg)->half = team;
    n_halves++;
}

static void drive_until(struct seat *seat, const uint32_t *count) {
    while (*count < n_workers) {
        for (uint32_t i = 0; i < n_workers; i++) weft_worker_progress(seat[i].worker, 0);
        sched_yield();
    }
}

/* No process goes on to other work beside one that is not through. */
static void drive_until_all(struct seat *seat, _Atomic uint32_t *through) {
    atomic_fetch_add(through, 1);
    while (atomic_load(through) < PROCESSES) {
        for (uint32_t i = 0; i < n_workers; i++) weft_worker_progress(seat[i].worker, 0);
        sched_yield();
    }
}

static void be_many(uint32_t process) {
    static struct seat seat[WORKERS_MOST];
    weft_context_t *context;
    const weft_setting_t quiet = {"log.level", "none"};
    weft_context_params_t settings = {.settings = &quiet, .n_settings = 1};
    weft_worker_params_t params = {.transports = "self,shm"};
    uint32_t all = PROCESSES * n_workers;
    must(weft_context_create(&settings, &context), "context");
    for (uint32_t i = 0; i < n_workers; i++) {
        seat[i].rank = process * n_workers + i;
        must(weft_worker_create(context, &params, &seat[i].worker), "worker");
    }
    atomic_fetch_add(&seats->begun, 1);
    while (atomic_load(&seats->begun) < PROCESSES) sched_yield();
    double begin = now_ms();
    for (uint32_t i = 0; i < n_workers; i++) {
        weft_exchange_t exchange = {
            .rank = seat[i].rank, .size = all, .allgather = sit_down, .arg = &seat[i]};
        weft_team_params_t team = {.exchange = &exchange, .on_ready = note_team, .arg = &seat[i]};
        must(weft_team_create(seat[i].worker, &team, &seat[i].team), "team");
    }
    while (atomic_load(&seats->arrived) < all) sched_yield();
    for (uint32_t i = 0; i < n_workers; i++) {
        for (uint32_t r = 0; r < all; r++)
            memcpy((char *)seat[i].all + r * seat[i].len, seats->record[r], seat[i].len);
        seat[i].done(WEFT_OK, seat[i].done_arg);
    }
    drive_until(seat, &n_ready);
    seats->made[process] = now_ms() - begin;
    drive_until_all(seat, &seats->made_all);
    begin = now_ms();
    for (uint32_t i = 0; i < n_workers; i++) {
        weft_team_params_t half = {.on_ready = note_half, .arg = &seat[i]};
        must(weft_team_split(seat[i].team, seat[i].rank % 2, seat[i].rank, &half), "split");
    }
    drive_until(seat, &n_halves);
    seats->split[process] = now_ms() - begin;
    drive_until_all(seat, &seats->through);
    _exit(0);
}

static int many(uint32_t workers, int times) {
    seats = mmap(NULL, sizeof *seats, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seats == MAP_FAILED) return 1;
    n_workers = workers;
    for (int k = 0; k < times; k++) {
        memset(seats, 0, sizeof *seats);
        for (uint32_t p = 0; p < PROCESSES; p++)
            if (fork() == 0) be_many(p);
        end_members(PROCESSES);
        sample[0][k] = sample[1][k] = 0;
        for (uint32_t p = 0; p < PROCESSES; p++) {
            if (seats->made[p] > sample[0][k]) sample[0][k] = seats->made[p];
            if (seats->split[p] > sample[1][k]) sample[1][k] = seats->split[p];
        }
    }
    printf("%u members in %d processes\n", PROCESSES * workers, PROCESSES);
    print("team made, the last member", sample[0], times);
    print("split in two, the last member", sample[1], times);
    return 0;
}

/* ---- late ------------------------------------------------------------------------------------ */

static double processor_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static void wait_for_late(struct member *m) {
    join_team(m);
    must(weft_barrier_wait(m->team), "barrier");
    if (m->rank == 1) sleep(10);
    double begin = processor_ms();
    must(weft_barrier_wait(m->team), "barrier");
    page->at[m->rank] = processor_ms() - begin;
    leave(m);
}

static int late(void) {
    pid_t pid[2];
    begin_members(2, pid, wait_for_late);
    end_members(2);
    printf("waiting 10 s: %.3f ms of processor time\n", page->at[0]);
    return 0;
}

/* ---- served ---------------------------------------------------------------------------------- */

enum { QUESTION = 7, ANSWER, REQUESTS = 20000 };
static unsigned n_answers;

static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)arg;
    must(weft_am_send(ep, ANSWER, am->header, am->header_len, NULL, 0, NULL), "answer");
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)ep, (void)am, (void)arg;
    n_answers++;
}

/* The median of the round trips. */
static double ask(struct member *m) {
    static double took[REQUESTS];
    weft_ep_t *server = weft_team_ep(m->team, 0);
    n_answers = 0;
    for (unsigned i = 0; i < REQUESTS; i++) {
        double begin = now_ms();
        must(weft_am_send(server, QUESTION, &i, sizeof i, NULL, 0, NULL), "question");
        while (n_answers == i) weft_worker_wait(m->worker, 1000);
        took[i] = now_ms() - begin;
    }
    qsort(took, REQUESTS, sizeof *took, by_size);
    return took[REQUESTS / 2] * 1e3;
}

/* The mean of allreduces until the client is through with a part; a part has one at least. */
static double sum_until(weft_team_t *servers, uint32_t rank, uint32_t part) {
    double begin = now_ms();
    uint64_t n = 0, mine = 1, sum;
    for (uint32_t over = 0; !over; n += 100) {
        for (int i = 0; i < 100; i++)
            must(weft_allreduce_wait(servers, &mine, &sum, 1, WEFT_UINT64, WEFT_SUM), "sum");
        over = rank == 0 && atomic_load(&page->arrived) >= part;
        must(weft_bcast_wait(servers, &over, 1, WEFT_UINT32, 0), "over");
    }
    return (now_ms() - begin) * 1e3 / (double)n;
}

static void rest_until(struct member *m, uint32_t part) {
    while (atomic_load(&page->arrived) < part) weft_worker_wait(m->worker, 10);
}

/* Three parts: requests alone, both, collectives alone. */
static void serve_or_ask(struct member *m) {
    weft_team_t *servers;
    join_team(m);
    must(weft_am_handler_set(m->worker, QUESTION, on_question, NULL), "handler");
    must(weft_am_handler_set(m->worker, ANSWER, on_answer, NULL), "handler");
    must(weft_team_split_wait(m->team, m->rank == 2, m->rank, &servers), "split");
    must(weft_barrier_wait(m->team), "barrier");
    atomic_store(&page->arrived, 0);
    must(weft_barrier_wait(m->team), "barrier");
    if (m->rank == 2) {
        page->at[0] = ask(m);
        atomic_store(&page->arrived, 1);
        page->at[1] = ask(m);
        atomic_store(&page->arrived, 2);
        usleep(300000);
        atomic_store(&page->arrived, 3);
    } else {
        rest_until(m, 1);
        double both = sum_until(servers, m->rank, 2), alone = sum_until(servers, m->rank, 3);
        page->split[m->rank] = both;
        page->split[2 + m->rank] = alone;
    }
    must(weft_barrier_wait(m->team), "barrier");
    must(weft_team_close_wait(servers), "close of the servers");
    leave(m);
}

static int served(void) {
    pid_t pid[3];
    begin_members(3, pid, serve_or_ask);
    end_members(3);
    printf("request and answer: alone %.2f us, beside collectives %.2f us\n", page->at[0],
           page->at[1]);
    printf("allreduce of 8 B: alone %.2f us, beside requests %.2f us\n", page->split[2],
           page->split[0]);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int first = argc > 2 ? atoi(argv[2]) : 0, second = argc > 3 ? atoi(argv[3]) : 0;
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || first > TIMES_MOST || second > TIMES_MOST) return 1;
    if (strcmp(what, "killed") == 0) return killed(first ? first : 200);
    if (strcmp(what, "late") == 0) return late();
    if (strcmp(what, "served") == 0) return served();
    if (strcmp(what, "many") == 0 && first <= WORKERS_MOST)
        return many(first ? (uint32_t)first : WORKERS_MOST, second ? second : 5);
    if (strcmp(what, "made") == 0 && first <= RANKS_MOST)
        return made(first ? (uint32_t)first : 16, second ? second : 50);
    fputs("teams killed [KILLS] | made [RANKS [TIMES]] | many [WORKERS [TIMES]] | late | served\n",
          stderr);
    return 2;
}

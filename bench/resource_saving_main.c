/*
 * resource_saving [PROCESSES] [TRANSPORTS]: two libraries in each of so many processes (64), each
 * library connected to itself in all other processes. Once with a worker for each library, once
 * with one worker for both (weft/resource.h). Prints what a process has of descriptors,
 * connections and memory, and what it took until all were connected: time, which depends on what
 * else the machine does, and processor time, which does so less.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <endpoints/core/worker.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <weft/weft.h>

enum { MOST = 512, LIBRARIES = 2, ADDRESS = 256 };

struct row {
    unsigned descriptors, connections, pss_kib;
    double open_s, open_cpu_ms;
};
/* Shared by all processes. */
struct board {
    atomic_uint arrived[4];
    size_t len[MOST][LIBRARIES];
    char address[MOST][LIBRARIES][ADDRESS];
    struct row row[MOST];
};

static struct board *board;
static unsigned n_processes = 64, rank, n_ready;
static const char *transports = "shm";
static weft_worker_t *worker[LIBRARIES];

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "resource_saving: %s: %s\n", what, text);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Of this process, in user and in kernel mode. */
static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void turn(void) {
    for (int i = 0; i < LIBRARIES; i++)
        if (weft_worker_progress(worker[i], 0) < 0) exit(1);
}

/* All processes are here. Workers are driven meanwhile. */
static void meet(unsigned at) {
    atomic_fetch_add(&board->arrived[at], 1);
    while (atomic_load(&board->arrived[at]) < n_processes) {
        turn();
        usleep(200);
    }
}

static void share_worker(void) {
    weft_context_t *second;
    weft_resource_t *resource;
    weft_resource_params_t params = {.share = WEFT_SHARE_PART};
    must(weft_context_create(&(weft_context_params_t){.associated = 1}, &second), "context");
    must(weft_worker_create(second, &(weft_worker_params_t){.associated = 1}, &worker[1]),
         "worker");
    must(weft_resource_export(WEFT_OBJECT_WORKER, worker[0], WEFT_RESOURCE_WORKER, &params,
                              &resource),
         "export");
    must(weft_associate_resources(second, WEFT_OBJECT_WORKER,
                                  &(weft_associate_params_t){.resource = resource}, worker[1]),
         "associate");
}

static void open_libraries(int shared) {
    weft_context_t *context;
    weft_worker_params_t params = {.transports = transports};
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, &params, &worker[0]), "worker");
    if (shared) {
        share_worker();
        return;
    }
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, &params, &worker[1]), "worker");
}

static void on_ready(weft_ep_t *ep, void *arg) {
    n_ready++;
}

static void connect_all(void) {
    weft_ep_params_t params = {.on_ready = on_ready};
    weft_ep_t *ep;
    for (unsigned r = 0; r < n_processes; r++)
        for (int i = 0; r != rank && i < LIBRARIES; i++)
            must(weft_connect_address(worker[i], board->address[r][i], board->len[r][i], &params,
                                      &ep),
                 "connect");
    struct pollfd fds[LIBRARIES];
    for (int i = 0; i < LIBRARIES; i++)
        fds[i] = (struct pollfd){.fd = weft_worker_fd(worker[i]), .events = POLLIN};
    while (n_ready < (n_processes - 1) * LIBRARIES) {
        turn();
        poll(fds, LIBRARIES, 100); /* as a program that has other things to do */
    }
}

static unsigned count_descriptors(void) {
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n - 3; /* ".", ".." and its own */
}

static unsigned read_pss(void) {
    char line[256];
    unsigned kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %u", &kib) == 1) break;
    if (f) fclose(f);
    return kib;
}

static unsigned count_links(const weft_worker_t *w) {
    unsigned n = 0;
    list_for_each(node, &w->links) n++;
    return n;
}

static void run_process(int shared) {
    double start = now(), cpu_start = cpu_ms();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* where one fails the others would wait for it for ever */
    open_libraries(shared);
    for (int i = 0; i < LIBRARIES; i++) {
        board->len[rank][i] = ADDRESS;
        must(weft_worker_address(worker[i], board->address[rank][i], &board->len[rank][i]),
             "address");
    }
    meet(0);
    connect_all();
    double opened = now() - start, cpu = cpu_ms() - cpu_start;
    meet(1);
    board->row[rank] = (struct row){count_descriptors(),
                                    count_links(worker[0]) + (shared ? 0 : count_links(worker[1])),
                                    read_pss(), opened, cpu};
    meet(2);
    _exit(0);
}

static void run(int shared) {
    struct row sum = {0};
    double slowest = 0;
    memset(board, 0, sizeof *board);
    for (rank = 0; rank < n_processes; rank++)
        if (fork() == 0) run_process(shared);
    for (unsigned i = 0; i < n_processes; i++) {
        int status;
        if (wait(&status) < 0 || status) exit(1);
    }
    for (unsigned i = 0; i < n_processes; i++) {
        sum.descriptors += board->row[i].descriptors;
        sum.connections += board->row[i].connections;
        sum.pss_kib += board->row[i].pss_kib;
        sum.open_cpu_ms += board->row[i].open_cpu_ms;
        if (board->row[i].open_s > slowest) slowest = board->row[i].open_s;
    }
    printf("%-22s %11.1f %11.1f %12.0f %9.2f %10.1f\n",
           shared ? "one worker, associated" : "two workers", (double)sum.descriptors / n_processes,
           (double)sum.connections / n_processes, (double)sum.pss_kib / n_processes, slowest,
           sum.open_cpu_ms / n_processes);
}

int main(int argc, char **argv) {
    if (argc > 1) n_processes = (unsigned)atoi(argv[1]);
    if (argc > 2) transports = argv[2];
    if (n_processes < 2 || n_processes > MOST) return 2;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) return 1;
    printf("%u processes over %s, per process:\n", n_processes, transports);
    printf("%-22s %11s %11s %12s %9s %10s\n", "", "descriptors", "connections", "memory (KiB)",
           "open (s)", "cpu (ms)");
    run(0);
    run(1);
}

/* One region, and several processes that come to it by different ways: mapped, process_vm, by message, over tcp. */
#include "rma.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PROCESSES = 8, ADDS = 300, SWAPS = 150, WINS = PROCESSES * SWAPS, LEN = 1 << 20 };

struct told {
    uint32_t address_len, key_len;
    uint64_t base;
    char address[256], key[WEFT_RKEY_MAX];
};

/* What the children report: memory shared with them. */
struct report {
    uint64_t added[PROCESSES][ADDS]; /* old values */
    uint64_t was[WINS], is[WINS];    /* of compare-and-swaps that won: [process * SWAPS + i] */
    uint32_t wins[PROCESSES];
    _Atomic uint32_t busy, told_revoked; /* processes that have begun; that were refused in the end */
};
static struct report *report;

struct way {
    const char *transport, *rma;
};
static const struct way ways[] = {{"shm", "mapped"}, {"shm", "message"}, {"tcp", "auto"}, {"shm", "vm"}};

/* A child's endpoint and key to the region that it is told of. */
struct guest {
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *rkey;
    uint64_t base;
};

static void guest_come(struct guest *g, const struct way *way, int in) {
    struct told told;
    weft_context_t *context;
    weft_setting_t settings[] = {{"shm.rma", way->rma}, {"log.level", "none"}};
    if (read(in, &told, sizeof told) != sizeof told) _exit(1);
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2}, &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = way->transport}, &g->worker) ||
        weft_connect_address(g->worker, told.address, told.address_len, NULL, &g->ep) ||
        weft_rkey_unpack(g->ep, told.key, told.key_len, &g->rkey))
        _exit(2);
    g->base = told.base;
}

/* The owner: its children are there before it makes anything. */
struct host {
    pid_t pid[PROCESSES];
    weft_context_t *context;
    weft_worker_t *worker;
    weft_mem_t *mem;
    char *memory;
};

static void host_open(struct host *h, unsigned n, void (*child)(unsigned index, int in)) {
    int fds[2];
    struct told told = {0};
    size_t len = sizeof told.address, key_len = sizeof told.key;
    weft_mem_info_t info;
    weft_setting_t quiet = {"log.level", "none"};
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(report != MAP_FAILED);
    CHECK_EQ(pipe(fds), 0);
    for (unsigned i = 0; i < n; i++)
        if ((h->pid[i] = fork()) == 0) child(i, fds[0]);
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = &quiet, .n_settings = 1}, &h->context), 0);
    CHECK_EQ(weft_worker_create(h->context, &(weft_worker_params_t){.transports = "shm,tcp"}, &h->worker), 0);
    CHECK_EQ(weft_mem_alloc(h->worker, LEN, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &h->mem), 0);
    CHECK_EQ(weft_mem_describe(h->mem, &info), 0);
    CHECK_EQ(weft_mem_pack(h->mem, told.key, &key_len), 0);
    CHECK_EQ(weft_worker_address(h->worker, told.address, &len), 0);
    told.address_len = (uint32_t)len;
    told.key_len = (uint32_t)key_len;
    told.base = (uint64_t)(uintptr_t)info.base;
    h->memory = info.base;
    for (unsigned i = 0; i < n; i++) CHECK_EQ(write(fds[1], &told, sizeof told), sizeof told);
    close(fds[0]);
    close(fds[1]);
}

static void host_close(struct host *h) {
    weft_worker_destroy(h->worker);
    CHECK_EQ(weft_context_destroy(h->context), 0);
    munmap(report, sizeof *report);
}

/* Serves until `cond`. */
#define SERVE(h, cond)                                                                   \
    do {                                                                                 \
        double serve_end = two_now() + 60;                                               \
        while (!(cond) && two_now() < serve_end) (void)weft_worker_wait((h)->worker, 1); \
        CHECK(cond);                                                                     \
    } while (0)

static bool is_over(pid_t *pid, int *bad) {
    int status;
    if (*pid && waitpid(*pid, &status, WNOHANG) == *pid) {
        if (!WIFEXITED(status) || WEXITSTATUS(status)) ++*bad;
        *pid = 0;
    }
    return *pid == 0;
}

/* ---- atomics of eight processes on the same words */

/* Half of them have the words mapped, the others send messages. */
static void count_and_chain(unsigned index, int in) {
    struct guest g;
    guest_come(&g, index % 2 ? &ways[0] : &ways[1 + index / 2 % 2], in);
    for (unsigned i = 0; i < ADDS; i++)
        if (weft_atomic_fetch_wait(g.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &report->added[index][i], g.base, g.rkey))
            _exit(3);
    for (uint64_t i = 0, seen = 0, old; i < SWAPS; i++) {
        uint64_t mine = (uint64_t)(index + 1) << 32 | i;
        if (weft_atomic_fetch_wait(g.ep, WEFT_ATOMIC_CSWAP, 8, mine, seen, &old, g.base + 8, g.rkey)) _exit(4);
        if (old == seen) {
            unsigned k = index * SWAPS + report->wins[index]++;
            report->was[k] = seen;
            report->is[k] = mine;
        }
        seen = old == seen ? mine : old;
    }
    _exit(0);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* From 0 each winner's value is the next one's, until the last, which stands in the word; none is left over. */
static void check_chain(uint64_t last) {
    uint64_t value = 0;
    unsigned left = 0;
    for (unsigned p = 0; p < PROCESSES; p++) left += report->wins[p];
    for (bool found = true; found && left; left -= found) {
        found = false;
        for (unsigned k = 0; k < WINS && !found; k++)
            if (k % SWAPS < report->wins[k / SWAPS] && report->was[k] == value && report->is[k]) {
                value = report->is[k];
                report->is[k] = 0;
                found = true;
            }
    }
    CHECK_EQ(left, 0);
    CHECK_EQ(value, last);
}

TEST(atomics_of_eight_processes_by_several_ways_are_one_after_the_other) {
    struct host h = {0};
    int bad = 0;
    uint64_t words[2];
    host_open(&h, PROCESSES, count_and_chain);
    for (unsigned i = 0; i < PROCESSES; i++) SERVE(&h, is_over(&h.pid[i], &bad));
    CHECK_EQ(bad, 0);
    qsort(report->added, (size_t)PROCESSES * ADDS, 8, by_value);
    for (uint64_t i = 0; i < PROCESSES * ADDS; i++) CHECK_EQ((&report->added[0][0])[i], i);
    memcpy(words, h.memory, sizeof words);
    CHECK_EQ(words[0], PROCESSES * ADDS);
    check_chain(words[1]);
    host_close(&h);
}

/* ---- a region that goes while several processes are at it */

/* Large puts and gets until one is refused; that must be as revoked. */
static void move_until_refused(unsigned index, int in) {
    struct guest g;
    char *own = malloc(LEN);
    weft_status_t st = WEFT_OK;
    guest_come(&g, &ways[index % 4], in);
    memset(own, (int)index + 1, LEN);
    for (unsigned i = 0; st == WEFT_OK; i++) {
        st = i & 1 ? weft_get_wait(g.ep, own, LEN - 64, g.base + 64, g.rkey)
                   : weft_put_wait(g.ep, own, LEN - 64, g.base + 64, g.rkey);
        if (st == WEFT_OK && !(i & 1)) st = weft_ep_flush_wait(g.ep);
        if (i == 2) report->busy++;
    }
    if (st == WEFT_ERR_REVOKED) report->told_revoked++;
    _exit(st == WEFT_ERR_REVOKED ? 0 : 5);
}

/* Two of each way; of each pair one is killed at its work, and one that has it mapped hangs with the memory in its hands. */
TEST(a_region_under_traffic_is_released_when_the_last_who_could_touch_it_is_gone) {
    struct host h = {0};
    struct tally gone = {0};
    int bad = 0;
    host_open(&h, PROCESSES, move_until_refused);
    memset(h.memory, 77, 64); /* where nobody puts anything */
    SERVE(&h, report->busy == PROCESSES);
    for (unsigned i = 5; i < PROCESSES; i++) {
        kill(h.pid[i], SIGKILL);
        for (int k = 0; k < 3; k++) (void)weft_worker_wait(h.worker, 1);
    }
    kill(h.pid[4], SIGSTOP);
    int status;
    CHECK_EQ(waitpid(h.pid[4], &status, WUNTRACED), h.pid[4]);
    CHECK_EQ(weft_mem_release(h.mem, OP(&gone)), WEFT_IN_PROGRESS);
    for (unsigned i = 0; i < 4; i++) SERVE(&h, is_over(&h.pid[i], &bad));
    CHECK_EQ(bad, 0);
    CHECK_EQ(report->told_revoked, 4);
    for (int k = 0; k < 20; k++) (void)weft_worker_wait(h.worker, 1);
    CHECK_EQ(gone.calls, 0);
    CHECK_EQ(h.memory[63], 77); /* still there */
    kill(h.pid[4], SIGKILL);
    SERVE(&h, gone.calls);
    CHECK_EQ(gone.status, 0);
    for (unsigned i = 4; i < PROCESSES; i++) waitpid(h.pid[i], NULL, 0);
    host_close(&h);
}

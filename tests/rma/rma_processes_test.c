/* One region, and several processes that come to it by different ways: mapped, process_vm, by
 * message, over tcp. */
#include <tests/support/rma_peers.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tests/support/clock.h>

enum { PROCESSES = 8, ADDS = 300, SWAPS = 150, WINS = PROCESSES * SWAPS, LEN = 1 << 20 };

struct notified {
    uint32_t address_len, key_len;
    uint64_t base;
    char address[256], key[WEFT_RKEY_MAX];
};

/* Of an atomic: what the word was and became, and between which times of the host's clock that
 * happened. */
struct atomic {
    uint64_t was, is, called, answered;
};

/* What the children report: memory shared with them. */
struct report {
    struct atomic added[PROCESSES][ADDS], swapped[PROCESSES][SWAPS];
    /* processes that have begun; that were refused in the end */
    _Atomic uint32_t busy, notified_revoked;
};
static struct report *report;

struct way {
    const char *transport, *rma;
};
static const struct way ways[] = {
    {"shm", "mapped"}, {"shm", "message"}, {"tcp", "auto"}, {"shm", "vm"}};

/* A child's endpoint and key to the region that it is given. */
struct accepted {
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *rkey;
    uint64_t base;
};

static void accepted_come(struct accepted *g, const struct way *way, int in) {
    struct notified notified;
    weft_context_t *context;
    weft_setting_t settings[] = {{"shm.rma", way->rma}, {"log.level", "none"}};
    if (read(in, &notified, sizeof notified) != sizeof notified) _exit(1);
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                            &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = way->transport},
                           &g->worker) ||
        weft_connect_address(g->worker, notified.address, notified.address_len, NULL, &g->ep) ||
        weft_rkey_unpack(g->ep, notified.key, notified.key_len, &g->rkey))
        _exit(2);
    g->base = notified.base;
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
    struct notified notified = {0};
    size_t len = sizeof notified.address, key_len = sizeof notified.key;
    weft_mem_info_t info;
    weft_setting_t quiet = {"log.level", "none"};
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(report != MAP_FAILED);
    CHECK_EQ(pipe(fds), 0);
    for (unsigned i = 0; i < n; i++)
        if ((h->pid[i] = fork()) == 0) child(i, fds[0]);
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = &quiet, .n_settings = 1},
                                 &h->context),
             0);
    CHECK_EQ(weft_worker_create(h->context, &(weft_worker_params_t){.transports = "shm,tcp"},
                                &h->worker),
             0);
    CHECK_EQ(weft_mem_alloc(h->worker, LEN, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &h->mem),
             0);
    CHECK_EQ(weft_mem_describe(h->mem, &info), 0);
    CHECK_EQ(weft_mem_pack(h->mem, notified.key, &key_len), 0);
    CHECK_EQ(weft_worker_address(h->worker, notified.address, &len), 0);
    notified.address_len = (uint32_t)len;
    notified.key_len = (uint32_t)key_len;
    notified.base = (uint64_t)(uintptr_t)info.base;
    h->memory = info.base;
    for (unsigned i = 0; i < n; i++)
        CHECK_EQ(write(fds[1], &notified, sizeof notified), sizeof notified);
    close(fds[0]);
    close(fds[1]);
}

static void host_close(struct host *h) {
    weft_worker_destroy(h->worker);
    CHECK_EQ(weft_context_destroy(h->context), 0);
    munmap(report, sizeof *report);
}

/* Serves until `cond`. */
#define SERVE(h, cond)                                                                    \
    do {                                                                                  \
        double serve_end = test_now() + test_timeout(60);                                 \
        while (!(cond) && test_now() < serve_end) (void)weft_worker_wait((h)->worker, 1); \
        CHECK(cond);                                                                      \
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

/* An addition of 1 to `at`, or a compare-and-swap of *seen_p, which becomes what was found. */
static void one_atomic(const struct accepted *g, struct atomic *a, size_t size, uint64_t mine,
                       uint64_t *seen_p, uint64_t at) {
    weft_atomic_t what = seen_p ? WEFT_ATOMIC_CSWAP : WEFT_ATOMIC_ADD;
    uint64_t seen = seen_p ? *seen_p : 0;
    a->called = test_now_ns();
    if (weft_atomic_fetch_wait(g->ep, what, size, mine, seen, &a->was, at, g->rkey)) _exit(3);
    a->answered = test_now_ns();
    a->is = !seen_p ? a->was + 1 : a->was == seen ? mine : a->was;
    if (seen_p) *seen_p = a->is;
}

/* Half of them have the words mapped, the others send messages. The counter has 4 bytes, the
 * chain 8. */
static void count_and_chain(unsigned index, int in) {
    struct accepted g;
    accepted_come(&g, index % 2 ? &ways[0] : &ways[1 + index / 2 % 2], in);
    for (unsigned i = 0; i < ADDS; i++)
        one_atomic(&g, &report->added[index][i], 4, 1, NULL, g.base);
    for (uint64_t i = 0, seen = 0; i < SWAPS; i++)
        one_atomic(&g, &report->swapped[index][i], 8, (uint64_t)(index + 1) << 32 | i, &seen,
                   g.base + 8);
    _exit(0);
}

static int by_was(const void *a, const void *b) {
    uint64_t x = ((const struct atomic *)a)->was, y = ((const struct atomic *)b)->was;
    return x < y ? -1 : x > y;
}

/*
 * `all` in the order in which they changed the word, those that left it as it was among them. That
 * order is one that the word may have gone through iff none of them was answered before one that
 * stands before it was called.
 */
static void check_times(const struct atomic *all, unsigned n) {
    uint64_t latest_call = 0;
    for (unsigned i = 0; i < n; i++) {
        CHECK(all[i].answered >= latest_call);
        if (all[i].called > latest_call) latest_call = all[i].called;
    }
}

static void check_count(uint32_t last) {
    struct atomic *all = &report->added[0][0];
    unsigned n = PROCESSES * ADDS;
    qsort(all, n, sizeof *all, by_was);
    for (unsigned i = 0; i < n; i++) CHECK_EQ(all[i].was, i);
    CHECK_EQ(last, n);
    check_times(all, n);
}

static int by_call(const void *a, const void *b) {
    uint64_t x = ((const struct atomic *)a)->called, y = ((const struct atomic *)b)->called;
    return x < y ? -1 : x > y;
}

/* From 0 each winner's value is the next one's, until the last, which stands in the word; none
 * is left over. Who found another value than it compared with read it while it was there: before
 * the winner that took it away. */
static void check_chain(uint64_t last) {
    static struct atomic order[WINS];
    struct atomic *all = &report->swapped[0][0];
    unsigned n = 0;
    uint64_t value = 0;
    qsort(all, WINS, sizeof *all, by_call);
    for (bool found = true; found;) {
        const struct atomic *winner = NULL;
        for (unsigned i = 0; i < WINS; i++) {
            if (all[i].was != value) continue;
            CHECK(n < WINS);
            if (all[i].is == value) {
                order[n++] = all[i];
                continue;
            }
            CHECK(!winner);
            winner = &all[i];
        }
        found = winner != NULL;
        if (!found) break;
        order[n++] = *winner;
        value = winner->is;
    }
    CHECK_EQ(n, WINS);
    CHECK_EQ(value, last);
    check_times(order, n);
}

TEST(atomics_of_eight_processes_by_different_ways_are_linearizable) {
    struct host h = {0};
    int bad = 0;
    uint32_t count;
    uint64_t chained;
    host_open(&h, PROCESSES, count_and_chain);
    for (unsigned i = 0; i < PROCESSES; i++) SERVE(&h, is_over(&h.pid[i], &bad));
    CHECK_EQ(bad, 0);
    memcpy(&count, h.memory, sizeof count);
    memcpy(&chained, h.memory + 8, sizeof chained);
    check_count(count);
    check_chain(chained);
    host_close(&h);
}

/* ---- a region that goes while several processes are at it */

/* Large puts and gets until one is refused; that must be as revoked. */
static void move_until_refused(unsigned index, int in) {
    struct accepted g;
    char *own = malloc(LEN);
    weft_status_t st = WEFT_OK;
    accepted_come(&g, &ways[index % 4], in);
    memset(own, (int)index + 1, LEN);
    for (unsigned i = 0; st == WEFT_OK; i++) {
        st = i & 1 ? weft_get_wait(g.ep, own, LEN - 64, g.base + 64, g.rkey)
                   : weft_put_wait(g.ep, own, LEN - 64, g.base + 64, g.rkey);
        if (st == WEFT_OK && !(i & 1)) st = weft_ep_flush_wait(g.ep);
        if (i == 2) report->busy++;
    }
    if (st == WEFT_ERR_REVOKED) report->notified_revoked++;
    _exit(st == WEFT_ERR_REVOKED ? 0 : 5);
}

/* Two of each way; of each pair one is killed at its work, and one that has it mapped hangs with
 * the memory in its hands. */
TEST(a_region_under_traffic_is_released_when_the_last_who_could_touch_it_is_gone) {
    struct host h = {0};
    struct tally gone = {0};
    int bad = 0;
    host_open(&h, PROCESSES, move_until_refused);
    memset(h.memory, 77, 64); /* where no put writes */
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
    CHECK_EQ(report->notified_revoked, 4);
    for (int k = 0; k < 20; k++) (void)weft_worker_wait(h.worker, 1);
    CHECK_EQ(gone.calls, 0);
    CHECK_EQ(h.memory[63], 77); /* still there */
    kill(h.pid[4], SIGKILL);
    SERVE(&h, gone.calls);
    CHECK_EQ(gone.status, 0);
    for (unsigned i = 4; i < PROCESSES; i++) waitpid(h.pid[i], NULL, 0);
    host_close(&h);
}

/*
 * A region whose atomics are its device's, and several processes that operate on its words at once,
 * by both ends of the bed's wire: none is lost, none is performed twice, and the owner's processor
 * has no part in them. And what becomes of them where the device is not reached: over datagrams,
 * until a link gets a queue pair.
 */
#include "bed.h"

#include <endpoints/rma/rma.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#ifdef WEFT_HAVE_RDMA
#include <endpoints/core/worker.h>
#include <transports/rdma/rc/rc.h>
#endif

enum {
    PROCESSES = 3,
    ADDS = 60,
    AT_ONCE = 40, /* more than soft-RoCE takes, 16 or so */
    POSTS = 150,
    SWAPS = 30,
    WINS = PROCESSES * SWAPS,
    LEN = 4096,
    OF_DEVICE = WEFT_MEM_ALL | WEFT_MEM_ATOMIC_DEVICE
};

struct notified {
    uint32_t address_len, key_len;
    uint64_t base;
    char address[256], key[WEFT_RKEY_MAX];
};

/* What the children report: memory shared with them. */
struct report {
    uint64_t added[PROCESSES][ADDS], at_once[PROCESSES][AT_ONCE]; /* old values */
    /* of compare-and-swaps that won */
    uint64_t was[WINS], is[WINS];
    uint32_t wins[PROCESSES];
    uint64_t messages[PROCESSES], native[PROCESSES];
};
static struct report *report;

/* ---- a child */

static void must(bool held, int code) {
    if (!held) _exit(code);
}

static void fetch_at_once(weft_worker_t *worker, weft_ep_t *ep, weft_rkey_t *rkey, uint64_t at,
                          uint64_t *old) {
    struct tally fetched = {0};
    for (int i = 0; i < AT_ONCE; i++)
        must(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old[i], at, rkey, OP(&fetched)) ==
                 WEFT_IN_PROGRESS,
             10);
    for (double end = test_now() + test_timeout(10); fetched.calls < AT_ONCE && test_now() < end;)
        weft_worker_progress(worker, 0);
    must(fetched.calls == AT_ONCE && fetched.status == WEFT_OK, 11);
}

static void post(weft_worker_t *worker, weft_ep_t *ep, weft_rkey_t *rkey, uint64_t at) {
    struct tally posted = {0}, flushed = {0};
    int under_way = 0;
    for (int i = 0; i < POSTS; i++) {
        weft_status_t st = weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, at, rkey, OP(&posted));
        must(st >= 0, 12);
        under_way += st == WEFT_IN_PROGRESS;
    }
    weft_op_t op = {.done = tally, .arg = &flushed, .flags = WEFT_FLUSH_REMOTE};
    must(weft_ep_flush(ep, &op) == WEFT_IN_PROGRESS, 13);
    for (double end = test_now() + test_timeout(10); flushed.calls == 0 && test_now() < end;)
        weft_worker_progress(worker, 0);
    must(flushed.status == WEFT_OK && posted.calls == under_way && posted.status == WEFT_OK, 14);
}

static void chain(unsigned index, weft_ep_t *ep, weft_rkey_t *rkey, uint64_t at) {
    for (uint64_t i = 0, seen = 0, old; i < SWAPS; i++) {
        uint64_t mine = (uint64_t)(index + 1) << 32 | i;
        must(weft_atomic_fetch_wait(ep, WEFT_ATOMIC_CSWAP, 8, mine, seen, &old, at, rkey) ==
                 WEFT_OK,
             15);
        if (old == seen) {
            unsigned k = index * SWAPS + report->wins[index]++;
            report->was[k] = seen;
            report->is[k] = mine;
        }
        seen = old == seen ? mine : old;
    }
}

static void child(unsigned index, int in) {
    struct notified notified;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *rkey;
    weft_setting_t settings[] = {{"rdma.device", index % 2 ? "rxe0" : "rxe1"},
                                 {"rdma.insecure", "yes"},
                                 {"log.level", "none"}};
    must(read(in, &notified, sizeof notified) == sizeof notified, 1);
    must(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 3},
                             &context) == 0,
         2);
    must(weft_worker_create(context, &(weft_worker_params_t){.transports = "rdma_rc"}, &worker) ==
             0,
         3);
    must(weft_connect_address(worker, notified.address, notified.address_len, NULL, &ep) == 0, 4);
    must(weft_rkey_unpack(ep, notified.key, notified.key_len, &rkey) == 0, 5);
    /* The first of them wait for the endpoint, and then for the key. */
    for (unsigned i = 0; i < ADDS; i++)
        must(weft_atomic_fetch_wait(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &report->added[index][i],
                                    notified.base, rkey) == 0,
             6);
    fetch_at_once(worker, ep, rkey, notified.base + 8, report->at_once[index]);
    post(worker, ep, rkey, notified.base + 16);
    chain(index, ep, rkey, notified.base + 24);
    report->messages[index] = weft_worker_count(worker, "rma.messages");
    report->native[index] = weft_worker_count(worker, "rma.native");
    weft_rkey_release(rkey);
    weft_worker_destroy(worker);
    _exit(0);
}

/* ---- their host */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* 0, 1, 2 … in whatever order: each old value once. */
static bool is_permutation(uint64_t *old, unsigned n) {
    qsort(old, n, sizeof *old, by_value);
    for (unsigned i = 0; i < n; i++)
        if (old[i] != i) return false;
    return true;
}

/* From 0 each winner's value is the next one's, until the last, which stands in the word; none
 * is left over. */
static bool is_chain(uint64_t last) {
    uint64_t value = 0;
    unsigned left = 0;
    for (unsigned p = 0; p < PROCESSES; p++) left += report->wins[p];
    for (bool found = true; left > 0 && found;) {
        found = false;
        for (unsigned k = 0; k < WINS && !found; k++) {
            found = k % SWAPS < report->wins[k / SWAPS] && report->was[k] == value &&
                    report->is[k] != 0;
            if (!found) continue;
            value = report->is[k];
            report->is[k] = 0;
            left--;
        }
    }
    return left == 0 && value == last;
}

static bool is_over(pid_t *pid, int *bad) {
    int status;
    if (*pid && waitpid(*pid, &status, WNOHANG) == *pid) {
        if (!WIFEXITED(status) || WEXITSTATUS(status)) ++*bad;
        if (WIFEXITED(status) && WEXITSTATUS(status))
            printf("  a child ended with %d\n", WEXITSTATUS(status));
        *pid = 0;
    }
    return *pid == 0;
}

TEST(many_processes_at_one_word_lose_nothing_and_ask_no_processor) {
    int fds[2], bad = 0;
    pid_t pid[PROCESSES];
    struct two t = {0};
    struct notified notified = {0};
    size_t len = sizeof notified.address, key_len = sizeof notified.key;
    weft_mem_t *mem;
    weft_mem_info_t info;
    uint64_t word[4];
    WANTS_THE_BED();
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(report != MAP_FAILED && pipe(fds) == 0);
    for (unsigned i = 0; i < PROCESSES; i++)
        if ((pid[i] = fork()) == 0) child(i, fds[0]);
    t.a = bed_worker(&t, &t.context, "rdma_rc", "rxe0", (weft_setting_t){0});
    CHECK_EQ(weft_mem_alloc(t.a, LEN, &(weft_mem_params_t){.rights = OF_DEVICE}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(info.rights, OF_DEVICE);
    CHECK_EQ(weft_mem_pack(mem, notified.key, &key_len), 0);
    CHECK_EQ(weft_worker_address(t.a, notified.address, &len), 0);
    notified.address_len = (uint32_t)len;
    notified.key_len = (uint32_t)key_len;
    notified.base = (uint64_t)(uintptr_t)info.base;
    for (unsigned i = 0; i < PROCESSES; i++)
        CHECK_EQ(write(fds[1], &notified, sizeof notified), sizeof notified);
    double end = test_now() + test_timeout(10);
    for (unsigned over = 0; over < PROCESSES && test_now() < end;) {
        (void)weft_worker_wait(t.a, 1);
        over = 0;
        for (unsigned i = 0; i < PROCESSES; i++) over += is_over(&pid[i], &bad);
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        if (!pid[i]) continue;
        printf("  process %u does not end\n", i);
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
        bad++;
    }
    CHECK_EQ(bad, 0);
    memcpy(word, info.base, sizeof word);
    CHECK(is_permutation(&report->added[0][0], PROCESSES * ADDS));
    CHECK(is_permutation(&report->at_once[0][0], PROCESSES * AT_ONCE));
    CHECK_EQ(word[0], PROCESSES * ADDS);
    CHECK_EQ(word[1], PROCESSES * AT_ONCE);
    CHECK_EQ(word[2], PROCESSES * POSTS);
    CHECK(is_chain(word[3]));
    CHECK_EQ(weft_worker_count(t.a, "rma.served"), 0);
    for (unsigned i = 0; i < PROCESSES; i++) {
        CHECK_EQ(report->messages[i], 0);
        CHECK_EQ(report->native[i], ADDS + AT_ONCE + POSTS + SWAPS);
    }
    close(fds[0]);
    close(fds[1]);
    munmap(report, sizeof *report);
    two_down(&t);
}

/* ---- one endpoint */

struct word {
    struct bed b;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    uint64_t *at;
};

static void open_word(struct word *w) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_mem_info_t info;
    bed_up(&w->b, "rdma_rc", "rxe1", (weft_setting_t){0});
    CHECK_EQ(weft_mem_alloc(w->b.t.b, LEN, &(weft_mem_params_t){.rights = OF_DEVICE}, &w->mem), 0);
    CHECK_EQ(weft_mem_describe(w->mem, &info), 0);
    w->at = info.base;
    CHECK_EQ(weft_mem_pack(w->mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(w->b.t.ep, key, len, &w->rkey), 0);
}
static void close_word(struct word *w) {
    weft_rkey_release(w->rkey);
    bed_down(&w->b);
}
static uint64_t address_of(const struct word *w, unsigned i) {
    return (uint64_t)(uintptr_t)&w->at[i];
}
static weft_status_t add(struct word *w, unsigned i, uint64_t operand, uint64_t *old_p,
                         struct tally *t) {
    return weft_atomic_fetch(w->b.t.ep, WEFT_ATOMIC_ADD, 8, operand, 0, old_p, address_of(w, i),
                             w->rkey, OP(t));
}

/* A key that is being asked for holds its atomics back, and nothing but what is one-sided. */
TEST(an_atomic_waits_for_its_key_and_goes_natively) {
    static struct word w;
    struct tally first = {0}, posted = {0}, sent = {0};
    weft_rkey_info_t info;
    uint64_t old = 9;
    open_word(&w);
    CHECK_EQ(weft_rkey_describe(w.rkey, &info), 0);
    CHECK(!strcmp(info.atomic, "awaited"));
    CHECK_EQ(add(&w, 0, 5, &old, &first), WEFT_IN_PROGRESS);
    weft_op_t remote = {.done = tally, .arg = &posted, .flags = WEFT_RMA_REMOTE};
    CHECK_EQ(weft_atomic_post(w.b.t.ep, WEFT_ATOMIC_ADD, 8, 7, address_of(&w, 0), w.rkey, &remote),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(w.b.t.ep, 1, &(weft_iov_t){"x", 1}, 1, OP(&sent)) >= 0);
    UNTIL(&w.b.t, first.calls == 1 && posted.calls == 1);
    CHECK(first.status == WEFT_OK && posted.status == WEFT_OK && old == 0 && w.at[0] == 12);
    CHECK_EQ(weft_rkey_describe(w.rkey, &info), 0);
    CHECK(!strcmp(info.atomic, "rdma") && !strcmp(info.put, "rdma"));
    CHECK_EQ(weft_worker_count(w.b.t.a, "rma.messages"), 0);
    weft_memory_info_t domain = {0};
    for (size_t i = 0;
         !domain.device_atomics && weft_worker_memory(w.b.t.a, i, &domain) == WEFT_OK;)
        i++;
    CHECK(domain.device_atomics && !strcmp(domain.name, "rdma_rc"));
    close_word(&w);
}

/* Around a fence a put by message, as there is one before its key is open, comes before the
 * device's atomic. */
TEST(an_atomic_behind_a_fence_waits_for_the_messages_before_it) {
    static struct word w;
    for (int round = 0; round < 4; round++) {
        struct tally put = {0}, fetched = {0};
        uint64_t value = 100, old = 9;
        open_word(&w);
        for (int i = 0; i < round * 3; i++) two_turn(&w.b.t);
        CHECK(weft_put(w.b.t.ep, &value, 8, address_of(&w, 1), w.rkey, OP(&put)) >= 0);
        CHECK_EQ(weft_ep_fence(w.b.t.ep), 0);
        CHECK_EQ(add(&w, 1, 1, &old, &fetched), WEFT_IN_PROGRESS);
        CHECK_EQ(weft_ep_fence(w.b.t.ep), 0);
        CHECK(weft_put(w.b.t.ep, "behind", 7, address_of(&w, 2), w.rkey, NULL) >= 0);
        UNTIL(&w.b.t, fetched.calls == 1);
        CHECK(fetched.status == WEFT_OK && old == 100 && w.at[1] == 101);
        UNTIL(&w.b.t, !strcmp((char *)&w.at[2], "behind"));
        close_word(&w);
    }
}

/* What its queue pair was given has come back. */
static bool nothing_is_under_way(const weft_ep_t *ep) {
#ifdef WEFT_HAVE_RDMA
    const struct rc_lane *lane = rc_lane(((const struct weft_ep *)ep)->link->lane);
    return lane->posted == lane->done;
#else
    return ep;
#endif
}

/* As when the link is on its way to another lane while they stand in its queue. */
TEST(what_has_begun_may_have_to_wait_again) {
    static struct word w;
    enum { ALL = 200 };
    static uint64_t old[ALL];
    struct tally first = {0}, rest = {0};
    struct lane_key none = {.status = WEFT_NO_RESOURCE, .awaited = true, .how = "awaited"};
    open_word(&w);
    CHECK_EQ(add(&w, 0, 1, &old[0], &first), WEFT_IN_PROGRESS);
    UNTIL(&w.b.t, first.calls == 1);
    struct lane_key *own = w.rkey->key;
    for (unsigned i = 1; i < ALL; i++) CHECK_EQ(add(&w, 0, 1, &old[i], &rest), WEFT_IN_PROGRESS);
    w.rkey->key = &none;
    UNTIL(&w.b.t, nothing_is_under_way(w.b.t.ep));
    int before = rest.calls;
    CHECK(before > 20 && before < ALL - 40); /* those that the queue pair had */
    CHECK_EQ(rest.status, WEFT_OK);
    CHECK_EQ(w.at[0], (uint64_t)before + 1);
    w.rkey->key = own;
    weft__rma_keyed(((struct weft_ep *)w.b.t.ep)->link->lane);
    UNTIL(&w.b.t, rest.calls == ALL - 1);
    CHECK_EQ(rest.status, WEFT_OK);
    for (unsigned i = 0; i < ALL; i++) CHECK_EQ(old[i], i); /* in the order posted, too */
    close_word(&w);
}

TEST(what_is_wrong_is_refused_at_home_and_changes_nothing) {
    static struct word w;
    struct tally t = {0};
    uint64_t old = 9;
    open_word(&w);
    CHECK_EQ(add(&w, 0, 5, &old, &t), WEFT_IN_PROGRESS);
    UNTIL(&w.b.t, t.calls == 1);
    weft_ep_t *ep = w.b.t.ep;
    uint64_t at = address_of(&w, 0);
    const weft_atomic_t not_there[] = {WEFT_ATOMIC_AND, WEFT_ATOMIC_OR, WEFT_ATOMIC_XOR,
                                       WEFT_ATOMIC_SWAP};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(weft_atomic_fetch(ep, not_there[i], 8, 1, 0, &old, at, w.rkey, OP(&t)),
                 WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_atomic_post(ep, not_there[i], 8, 1, at, w.rkey, NULL), WEFT_ERR_UNSUPPORTED);
    }
    CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 4, 1, 0, &old, at, w.rkey, OP(&t)),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at + 4, w.rkey, OP(&t)),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at + LEN, w.rkey, OP(&t)),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at - 8, w.rkey, OP(&t)),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_atomic_post(ep, WEFT_ATOMIC_CSWAP, 8, 1, at, w.rkey, NULL),
             WEFT_ERR_INVALID_PARAM);
    CHECK(w.at[0] == 5 && w.at[1] == 0 && old == 0 && w.b.t.errors == 0);
    /* Taken back, it is served no more; under its new epoch it is again. */
    struct tally revoked = {0};
    weft_status_t st = weft_mem_revoke(w.mem, OP(&revoked));
    CHECK(st >= 0);
    UNTIL(&w.b.t, st == WEFT_OK || revoked.calls == 1);
    t = (struct tally){0};
    CHECK_EQ(add(&w, 0, 5, &old, &t), WEFT_ERR_REVOKED);
    CHECK_EQ(w.at[0], 5);
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_rkey_release(w.rkey);
    CHECK_EQ(weft_mem_pack(w.mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(ep, key, len, &w.rkey), 0);
    CHECK_EQ(add(&w, 0, 5, &old, &t), WEFT_IN_PROGRESS);
    UNTIL(&w.b.t, t.calls == 1);
    CHECK(t.status == WEFT_OK && w.at[0] == 10);
    close_word(&w);
}

/* ---- over datagrams */

static const char *lane_of(weft_ep_t *ep) {
    return ((struct weft_ep *)ep)->link->lane->iface->transport->name;
}

static uint64_t received;
static void receives(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}

/* Refused on a link of datagrams; with the queue pair that the link earns by its traffic they
 * go. */
TEST(over_datagrams_it_is_refused_until_there_is_a_queue_pair) {
    static char bytes[2000], address[256], key[WEFT_RKEY_MAX];
    struct two t = {0};
    struct tally fetched = {0};
    size_t len = sizeof address, key_len = sizeof key;
    uint64_t old = 9;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    weft_mem_info_t info;
    WANTS_THE_BED();
    const weft_setting_t settings[] = {{"lanes.switch", "on"},     {"lanes.tick", "5ms"},
                                       {"lanes.backoff", "10s"},   {"lanes.min_rate", "64k"},
                                       {"lanes.min_hold", "20ms"}, {"lanes.switches", "1000"},
                                       {"rdma.insecure", "yes"}};
    two_workers(&t, "rdma_ud,rdma_rc", settings, sizeof settings / sizeof *settings);
    CHECK_EQ(weft_am_handler_set(t.b, 1, receives, NULL), 0);
    CHECK_EQ(weft_mem_alloc(t.b, LEN, &(weft_mem_params_t){.rights = OF_DEVICE}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, key, &key_len), 0);
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &t};
    CHECK_EQ(weft_connect_address(t.a, address, len, &params, &t.ep), 0);
    CHECK_EQ(weft_rkey_unpack(t.ep, key, key_len, &rkey), 0);
    uint64_t at = (uint64_t)(uintptr_t)info.base, sent = 0;
    UNTIL(&t, t.ready);
    CHECK(!strcmp(lane_of(t.ep), "rdma_ud"));
    CHECK_EQ(weft_atomic_fetch(t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, rkey, OP(&fetched)),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_atomic_post(t.ep, WEFT_ATOMIC_ADD, 8, 1, at, rkey, NULL), WEFT_ERR_UNSUPPORTED);
    received = 0;
    double end = test_now() + test_timeout(10);
    while (strcmp(lane_of(t.ep), "rdma_rc") && test_now() < end) {
        weft_iov_t iov = {bytes, sizeof bytes};
        if (sent - received < 300) sent += weft_am_send(t.ep, 1, NULL, 0, &iov, 1, NULL) >= 0;
        two_turn(&t);
    }
    CHECK(!strcmp(lane_of(t.ep), "rdma_rc") && *(uint64_t *)info.base == 0);
    weft_status_t st =
        weft_atomic_fetch(t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, rkey, OP(&fetched));
    CHECK_EQ(st, WEFT_IN_PROGRESS);
    UNTIL(&t, fetched.calls == 1);
    CHECK(fetched.status == WEFT_OK && old == 0 && *(uint64_t *)info.base == 1);
    CHECK_EQ(weft_worker_count(t.a, "rma.messages"), 0);
    weft_rkey_release(rkey);
    two_down(&t);
}

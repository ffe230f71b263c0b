/*
 * Processes in a network of their own, all connected to all by endpoints that survive their lanes,
 * some of which earn shared memory, while the network fails: connections are killed, the interface
 * goes down, the address goes away, a process stands still, and in the end one is killed. Each
 * request is answered once and in order; only who is dead is lost.
 */
#define _GNU_SOURCE
#include <tests/support/kill_child.h>
#include <tests/support/nets.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PROCESSES = 5, ASK = 1, ANSWER = 2, HOT = 8, DEAD = 1 };

/* The two loads by which dynamic selection is judged: few busy pairs, the others now and then;
 * or all alike. */
static bool all_alike;
static bool is_hot(unsigned from, unsigned to) {
    return all_alike || (from == 0 && to <= 2);
}

struct report {
    _Atomic bool listening, done;
    _Atomic uint64_t asked[PROCESSES], answered[PROCESSES], wrong, switches, lost, resumed;
    _Atomic int errors; /* of endpoints; of the one to DEAD: when, and what */
    _Atomic double dead_at;
    _Atomic int dead_status;
    char uri[128];
};
static struct shared {
    _Atomic bool stop;
    struct report of[PROCESSES];
} * shared;

/* ---- a process */

struct peer {
    weft_ep_t *ep;
    unsigned number;
    double next;
};
static struct peer peers[PROCESSES];
static struct report *mine;

static void answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    uint64_t *due = weft_ep_user(ep), number;
    memcpy(&number, am->header, sizeof number);
    mine->wrong += number != (*due)++;
    (void)weft_am_send(ep, ANSWER, &number, sizeof number, NULL, 0, NULL);
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct peer *p = weft_ep_user(ep);
    uint64_t number;
    memcpy(&number, am->header, sizeof number);
    mine->wrong += number != mine->answered[p->number]++;
}
static void on_accepted(weft_ep_t *ep, void *arg) {
    weft_ep_set_user(ep, calloc(1, sizeof(uint64_t)));
}
static void on_accepted_error(weft_ep_t *ep, weft_status_t status, void *arg) {}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct peer *p = arg;
    if (shared->stop && mine->done) return;
    if (p->number == DEAD) {
        mine->dead_at = test_now();
        mine->dead_status = status;
    }
    mine->errors++; /* last: who sees it looks at the others */
    if (p->number != DEAD) return;
    (void)weft_ep_close(p->ep, WEFT_CLOSE_ABORT, NULL);
    p->ep = NULL;
}

static void ask(struct peer *p, unsigned me) {
    uint64_t waiting = mine->asked[p->number] - mine->answered[p->number],
             number = mine->asked[p->number];
    if (!p->ep || shared->stop || waiting >= (is_hot(me, p->number) ? HOT : 1)) return;
    if (!is_hot(me, p->number) && test_now() < p->next) return;
    p->next = test_now() + 0.005;
    if (weft_am_send(p->ep, ASK, &number, sizeof number, NULL, 0, NULL) >= 0)
        mine->asked[p->number]++;
}

static bool all_answered(void) {
    for (unsigned i = 0; i < PROCESSES; i++)
        if (peers[i].ep && mine->answered[i] < mine->asked[i]) return false;
    return true;
}
static bool all_done(void) {
    for (unsigned i = 0; i < PROCESSES; i++)
        if (i != DEAD && !shared->of[i].done) return false;
    return true;
}

#define MUST(call) \
    if ((call) < 0) printf("  process %u: %s\n", me, #call), exit(1)

static void process(unsigned me) {
    static const weft_setting_t settings[] = {
        {"lanes.switch", "on"},      {"lanes.tick", "20ms"},    {"lanes.min_rate", "64k"},
        {"lanes.min_hold", "100ms"}, {"lanes.backoff", "50ms"}, {"lanes.capacity", "2"},
        {"tcp.insecure", "yes"},     {"log.level", "none"}};
    weft_context_t *context;
    weft_worker_t *worker;
    weft_listener_t *listener;
    weft_listen_params_t listen = {.on_endpoint = on_accepted, .on_error = on_accepted_error};
    mine = &shared->of[me];
    MUST(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 8},
                             &context));
    MUST(weft_worker_create(context, &(weft_worker_params_t){.transports = "tcp,shm"}, &worker));
    MUST(weft_am_handler_set(worker, ASK, answer, NULL));
    MUST(weft_am_handler_set(worker, ANSWER, on_answer, NULL));
    MUST(weft_listen(worker, "tcp://10.77.0.1:0", &listen, &listener));
    snprintf(mine->uri, sizeof mine->uri, "%s", weft_listener_uri(listener));
    mine->listening = true;
    for (unsigned i = 0; i < PROCESSES; i++) {
        while (!shared->of[i].listening) sched_yield();
        peers[i].number = i;
        weft_ep_params_t params = {
            .on_error = on_error, .arg = &peers[i], .error_mode = WEFT_ERRORS_FAILOVER};
        if (i == me) continue;
        MUST(weft_connect(worker, shared->of[i].uri, &params, &peers[i].ep));
        weft_ep_set_user(peers[i].ep, &peers[i]);
    }
    while (!all_done()) {
        for (unsigned i = 0; i < PROCESSES; i++) ask(&peers[i], me);
        if (weft_worker_progress(worker, 0) == 0) sched_yield();
        mine->switches = weft_worker_count(worker, "link.switches");
        mine->lost = weft_worker_count(worker, "lanes.lost");
        mine->resumed = weft_worker_count(worker, "lanes.resumed");
        if (shared->stop && all_answered()) mine->done = true;
    }
    exit(0);
}

/* ---- who breaks the network, and looks */

static pid_t pids[PROCESSES];

static bool lives(unsigned i) {
    return pids[i] != 0;
}
#define PATIENTLY(cond)                                    \
    do {                                                   \
        double end_ = test_now() + test_timeout(60);       \
        while (!(cond) && test_now() < end_) usleep(1000); \
        CHECK(cond);                                       \
    } while (0)

static uint64_t sum(size_t offset) {
    uint64_t n = 0;
    for (unsigned i = 0; i < PROCESSES; i++)
        if (lives(i))
            n += *(const _Atomic uint64_t *)(const void *)((const char *)&shared->of[i] + offset);
    return n;
}
#define SUM(what) sum(offsetof(struct report, what))

/* Each pair has had so many more answers than then. */
static struct report then[PROCESSES];
static bool all_moved(uint64_t n) {
    for (unsigned i = 0; i < PROCESSES; i++)
        for (unsigned j = 0; j < PROCESSES; j++)
            if (i != j && lives(i) && lives(j) &&
                shared->of[i].answered[j] < then[i].answered[j] + n)
                return false;
    return true;
}
static void note(void) {
    memcpy(then, shared->of, sizeof then);
}
static void goes_on(const char *after) {
    note();
    PATIENTLY(all_moved(3));
    printf("  %s: %llu answers, %llu switches, %llu lanes lost, %llu followed\n", after,
           (unsigned long long)(SUM(answered[0]) + SUM(answered[1]) + SUM(answered[2])),
           (unsigned long long)SUM(switches), (unsigned long long)SUM(lost),
           (unsigned long long)SUM(resumed));
    CHECK_EQ(SUM(wrong), 0);
    for (unsigned i = 0; i < PROCESSES; i++)
        CHECK_EQ(shared->of[i].errors, lives(DEAD) || i == DEAD ? 0 : 1);
}

static void must_run(const char *command) {
    CHECK_EQ(system(command), 0);
}

static void live_through(void *unused) {
    must_run("ip link set lo up && ip addr add 10.77.0.1/32 dev lo");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (unsigned i = 0; i < PROCESSES; i++) {
        fflush(stdout);
        if ((pids[i] = fork())) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        process(i);
    }
    note();
    PATIENTLY(all_moved(10));
    PATIENTLY(SUM(switches) >= 2);
    goes_on("before anything fails");

    for (int i = 0; i < 10; i++) {
        uint64_t lost = SUM(lost);
        must_run("ss -K state established >/dev/null 2>&1");
        PATIENTLY(SUM(lost) > lost && SUM(resumed) > 0);
        note();
        PATIENTLY(all_moved(2));
    }
    goes_on("connections killed ten times");

    must_run("ip link set lo down");
    usleep(150000);
    must_run("ip link set lo up");
    goes_on("interface down and up");

    must_run("ip addr del 10.77.0.1/32 dev lo && ss -K state established >/dev/null 2>&1");
    usleep(150000);
    must_run("ip addr add 10.77.0.1/32 dev lo");
    goes_on("address gone and back");

    kill(pids[2], SIGSTOP);
    usleep(400000);
    kill(pids[2], SIGCONT);
    goes_on("a process that stood still");

    double killed = test_now(), latest = 0;
    kill(pids[DEAD], SIGKILL);
    waitpid(pids[DEAD], NULL, 0);
    pids[DEAD] = 0;
    for (unsigned i = 0; i < PROCESSES; i++) {
        if (!lives(i)) continue;
        PATIENTLY(shared->of[i].errors == 1);
        CHECK(shared->of[i].dead_status < 0);
        if (shared->of[i].dead_at - killed > latest) latest = shared->of[i].dead_at - killed;
    }
    printf("  a process killed: all know it after %.1f ms\n", latest * 1e3);
    goes_on("a process killed");

    shared->stop = true;
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status = -1;
        if (!lives(i)) continue;
        CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(SUM(wrong), 0);
}

TEST(few_busy_pairs_live_through_what_a_network_does) {
    all_alike = false;
    if (!net_apart(false, live_through, NULL)) SKIP("no network namespaces here");
}
TEST(busy_pairs_of_all_live_through_what_a_network_does) {
    all_alike = true;
    if (!net_apart(false, live_through, NULL)) SKIP("no network namespaces here");
}

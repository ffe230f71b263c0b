/* A member that SIGSTOP stops: the others wait for it until it goes on, or until their deadline. */
#include "processes.h"

/* A member that has no core for the time of the deadline is named, too. */
enum { STOPPED = 1, STOP_US = 150000, DEADLINE_MS = 1000, AT = 20 };

static const char *const ways[][2] = {
    {"self,shm", "allreduce=slots"},
    {"self,shm", "allreduce=oneshot"},
    {"self,shm", "allreduce=single_copy"},
    {"self,tcp", ""},
};

/* A signal takes a while to reach a process that runs on another core. */
static void stop(pid_t pid) {
    kill(pid, SIGSTOP);
    while (state_of(pid) != 'T') usleep(1000);
}

/* ---- it goes on ------------------------------------------------------------------------------ */

/* Stops the member at whatever instruction it is, and lets it go on later. Another one then ends at
 * most the collective that the member had begun, and the one before it. */
static void stop_for_a_while(struct page *page, pid_t pid) {
    while (page->number[0] < 10) usleep(1000);
    stop(pid);
    uint64_t before = page->number[0];
    usleep(STOP_US);
    uint64_t after = page->number[0];
    kill(pid, SIGCONT);
    while (page->number[0] < after + 10) usleep(1000);
    atomic_store(&page->through, after - before > 2 ? 2 : 1);
}

static void add_through_a_stop(struct process *p) {
    int32_t sum[3] = {0};
    uint32_t over = 0;
    pid_t self = getpid(), helper = 0;
    if (p->rank == STOPPED && (helper = fork()) == 0) {
        stop_for_a_while(p->page, self);
        _exit(0);
    }
    for (int32_t i = 0; !over; i++) {
        int32_t mine[3] = {i, (int32_t)p->rank,
                           p->rank == STOPPED ? (int32_t)atomic_load(&p->page->through) : 0};
        if (weft_allreduce_wait(p->team, mine, sum, 3, WEFT_INT32, WEFT_SUM) < 0) _exit(40);
        if (sum[0] != 3 * i || sum[1] != 3) _exit(41);
        over = (uint32_t)sum[2];
        p->page->number[p->rank]++;
    }
    if (over != 1) _exit(42); /* another went on without the one that was stopped */
    if (helper) waitpid(helper, NULL, 0);
}

TEST(all_wait_for_a_member_that_is_stopped_and_go_on_with_it) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct page *page;
        CHECK_EQ(run_all_by(ways[i][1], 3, ways[i][0], add_through_a_stop, &page), 0);
        CHECK_EQ(page->number[0], page->number[STOPPED]);
        munmap(page, sizeof *page);
    }
}

/* ---- it does not ----------------------------------------------------------------------------- */

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

static weft_status_t add_by_deadline(struct process *p, int32_t *sum, uint64_t deadline_ms) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    int32_t one = 1;
    weft_op_t op = {.done = note, .arg = &outcome, .deadline_ms = deadline_ms};
    weft_status_t st = weft_allreduce(p->team, &one, sum, 1, WEFT_INT32, WEFT_SUM, &op);
    if (st != WEFT_IN_PROGRESS) return st;
    while (outcome == WEFT_IN_PROGRESS) weft_worker_wait(p->worker, 1000);
    return outcome;
}

/* When the others have all results so far: one may come by way of the member that is stopped. */
static void stop_one(struct process *p) {
    atomic_fetch_add(&p->page->alive, 1);
    while (atomic_load(&p->page->alive) < p->size - 1) weft_worker_wait(p->worker, 1);
    if (p->rank == 0) {
        stop((pid_t)p->page->lines[STOPPED]);
        atomic_store(&p->page->go, 1);
    }
    while (!atomic_load(&p->page->go)) weft_worker_wait(p->worker, 1);
}

/* A member that did not receive the notice of a deadline must not see its sender leave instead. */
static void await_others(struct process *p) {
    atomic_fetch_add(&p->page->alive, 1);
    while (atomic_load(&p->page->alive) < 2 * (p->size - 1)) weft_worker_wait(p->worker, 1);
}

/* The page's `lines` are the numbers of the processes. The collectives of the others have a
 * deadline once the member is stopped; its own have none. */
static void outlast_the_stopped(struct process *p) {
    weft_status_t st = WEFT_OK;
    weft_team_info_t info;
    p->page->lines[p->rank] = (uint64_t)getpid();
    if (weft_barrier_wait(p->team) < 0) _exit(50);
    for (int i = 0; st == WEFT_OK; i++) {
        int32_t sum = 0;
        if (p->rank != STOPPED && i == AT) stop_one(p);
        st = add_by_deadline(p, &sum, p->rank != STOPPED && i >= AT ? DEADLINE_MS : 0);
        if (st == WEFT_OK && sum != (int32_t)p->size) _exit(51);
    }
    if (weft_team_describe(p->team, &info) < 0) _exit(52);
    p->page->outcome[p->rank] = st;
    p->page->number[p->rank] = strstr(info.why, "rank 1 ") != NULL;
    if (weft_barrier_wait(p->team) != st) _exit(53);
    if (p->rank != STOPPED) await_others(p);
}

static void leave_the_stopped(struct process *p) {
    outlast_the_stopped(p);
    tear_down(p); /* it answers nothing */
    if (atomic_fetch_add(&p->page->through, 1) + 2 == p->size)
        kill((pid_t)p->page->lines[STOPPED], SIGKILL);
    _exit(0);
}

static void wake_the_stopped(struct process *p) {
    outlast_the_stopped(p);
    if (p->rank != STOPPED && atomic_fetch_add(&p->page->through, 1) + 2 == p->size)
        kill((pid_t)p->page->lines[STOPPED], SIGCONT);
}

static void check_others(const struct page *page) {
    bool named = false;
    for (uint32_t r = 0; r < 3; r++) {
        if (r == STOPPED) continue;
        CHECK_EQ(page->outcome[r], WEFT_ERR_TIMED_OUT);
        named |= page->number[r] != 0; /* the first one's sentence */
    }
    CHECK(named);
}

TEST(a_deadline_ends_the_collectives_of_the_others_when_a_member_stays_stopped) {
    setenv("WEFT_CLOSE_TIMEOUT", "200ms", 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct page *page;
        CHECK_EQ(run_all_by(ways[i][1], 3, ways[i][0], leave_the_stopped, &page), 0);
        check_others(page);
        CHECK_EQ(page->outcome[STOPPED], 0); /* it never had one */
        munmap(page, sizeof *page);
    }
    unsetenv("WEFT_CLOSE_TIMEOUT");
}

TEST(a_member_that_goes_on_after_the_deadline_of_the_others_fails_too) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct page *page;
        CHECK_EQ(run_all_by(ways[i][1], 3, ways[i][0], wake_the_stopped, &page), 0);
        check_others(page);
        CHECK(page->outcome[STOPPED] == WEFT_ERR_TIMED_OUT ||
              page->outcome[STOPPED] == WEFT_ERR_PEER_FAILED);
        munmap(page, sizeof *page);
    }
}

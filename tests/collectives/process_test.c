/* Teams of processes: real members, some of which die. */
#include "processes.h"
#include <collectives/segment.h>

#include <tests/support/clock.h>
#include <time.h>

static const char by_lines_only[] =
    "barrier=oneshot,allreduce=oneshot,allgather=oneshot,bcast=oneshot";

static const char by_slots_only[] = "barrier=slots,allreduce=slots";

static const char by_copies_only[] =
    "bcast=single_copy,allreduce=single_copy,allgather=single_copy";

/* ---- work ------------------------------------------------------------------------------------ */

static void sum_many(struct process *p, int count) {
    int64_t mine[1024], sum[1024], n = p->size;
    for (int i = 0; i < count; i++) mine[i] = p->rank + i;
    if (weft_allreduce_wait(p->team, mine, sum, (size_t)count, WEFT_INT64, WEFT_SUM) < 0) _exit(39);
    for (int i = 0; i < count; i++)
        if (sum[i] != n * (n - 1) / 2 + n * i) _exit(40);
}

static void sums(struct process *p) {
    uint64_t own = weft_worker_count(p->worker, "coll.slots"), /* the team's */
        own_lines = weft_worker_count(p->worker, "coll.oneshot");
    for (int i = 0; i < 300; i++) {
        int64_t mine[3] = {p->rank + i, 2 * i, -(int64_t)p->rank}, sum[3];
        if (weft_allreduce_wait(p->team, mine, sum, 3, WEFT_INT64, WEFT_SUM) < 0) _exit(30);
        int64_t n = p->size, ranks = n * (n - 1) / 2;
        if (sum[0] != ranks + n * i || sum[1] != 2 * n * i || sum[2] != -ranks) _exit(31);
        uint32_t word = p->rank == (uint32_t)i % p->size ? 77u + (uint32_t)i : 0;
        if (weft_bcast_wait(p->team, &word, 1, WEFT_UINT32, (uint32_t)i % p->size) < 0) _exit(32);
        if (word != 77u + (uint32_t)i) _exit(33);
        if (i % 16 == 0) {
            uint16_t own[5] = {(uint16_t)p->rank, 1, 2, 3, (uint16_t)i}, all[RANKS_MOST][5];
            if (weft_allgather_wait(p->team, own, all, 5, WEFT_UINT16) < 0) _exit(34);
            for (uint32_t r = 0; r < p->size; r++)
                if (all[r][0] != r || all[r][4] != (uint16_t)i) _exit(35);
            sum_many(p, 10 + i * 3);
            if (weft_barrier_wait(p->team) < 0) _exit(36);
        }
    }
    p->page->number[p->rank] = weft_worker_count(p->worker, "coll.slots") - own;
    p->page->lines[p->rank] = weft_worker_count(p->worker, "coll.oneshot") - own_lines;
}

TEST(processes_work_together_through_the_segment) {
    struct page *page;
    for (uint32_t size = 2; size <= 4; size++) {
        CHECK_EQ(run_all(size, "self,shm", sums, &page), 0);
        for (uint32_t r = 0; r < size; r++)
            CHECK_EQ(page->number[r] + page->lines[r], 300 + 300 + 3 * 19);
        munmap(page, sizeof *page);
    }
}

TEST(processes_work_together_by_a_line_of_each) {
    struct page *page;
    for (uint32_t size = 2; size <= 4; size++) {
        CHECK_EQ(run_all_by(by_lines_only, size, "self,shm", sums, &page), 0);
        for (uint32_t r = 0; r < size; r++) CHECK_EQ(page->lines[r], 300 + 300 + 3 * 19);
        munmap(page, sizeof *page);
    }
}

/* Rank 0 runs ahead until its lines are full, which is by one less after a barrier, and sleeps over
 * it. Rank 1 takes the first and leaves it: that has to wake rank 0, which would else sleep until
 * some timer of its own. */
static void run_ahead(struct process *p) {
    enum { AHEAD = SEGMENT_LINES - 1, ALL = 2 * SEGMENT_LINES };
    uint64_t own = weft_worker_count(p->worker, "coll.oneshot"); /* the team's */
    if (p->rank == 0) p->page->number[0] = (uint64_t)getpid();
    if (weft_barrier_wait(p->team) < 0) _exit(36);
    if (p->rank == 1)
        while (atomic_load(&p->page->through) < AHEAD || state_of((pid_t)p->page->number[0]) != 'S')
            usleep(1000);
    uint64_t before = weft_worker_count(p->worker, "coll.wakes");
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t word = p->rank == 0 ? i : 0;
        if (weft_bcast_wait(p->team, &word, 1, WEFT_UINT32, 0) < 0 || word != i) _exit(37);
        if (p->rank == 0) atomic_store(&p->page->through, i + 1);
        if (p->rank == 1 && i == 0)
            p->page->number[1] = weft_worker_count(p->worker, "coll.wakes") - before;
    }
    p->page->lines[p->rank] = weft_worker_count(p->worker, "coll.oneshot") - own;
}

TEST(a_root_that_ran_ahead_by_lines_is_woken_when_there_is_room) {
    struct page *page;
    process_per_core = 1;
    CHECK_EQ(run_all(2, "self,shm", run_ahead, &page), 0);
    CHECK(page->number[1] > 0);
    CHECK_EQ(page->lines[0], 1 + 2 * SEGMENT_LINES);
    CHECK_EQ(page->lines[1], 1 + 2 * SEGMENT_LINES);
    munmap(page, sizeof *page);
    process_per_core = 0;
}

TEST(sixteen_processes_on_few_cores_get_along) {
    struct page *page;
    CHECK_EQ(run_all(16, "self,shm", sums, &page), 0);
    munmap(page, sizeof *page);
    CHECK_EQ(run_all_by(by_lines_only, 16, "self,shm", sums, &page), 0);
    munmap(page, sizeof *page);
}

TEST(processes_work_together_over_tcp) {
    struct page *page;
    CHECK_EQ(run_all(3, "self,tcp", sums, &page), 0);
    munmap(page, sizeof *page);
}

/* ---- a member leaves as soon as it has its result -------------------------------------------- */

static void reduce_much(struct process *p) {
    enum { N = 100000 };
    int64_t *mine = calloc(N, 8), *sum = calloc(N, 8), n = p->size;
    for (int i = 0; i < N; i++) mine[i] = p->rank + i;
    if (weft_allreduce_wait(p->team, mine, sum, N, WEFT_INT64, WEFT_SUM) < 0) _exit(50);
    for (int i = 0; i < N; i++)
        if (sum[i] != n * (n - 1) / 2 + n * i) _exit(51);
    free(mine);
    free(sum);
}

static void gather_much(struct process *p) {
    enum { N = 100000 };
    int64_t *mine = calloc(N, 8), *all = calloc((size_t)N * p->size, 8);
    for (int i = 0; i < N; i++) mine[i] = p->rank + i;
    if (weft_allgather_wait(p->team, mine, all, N, WEFT_INT64) < 0) _exit(52);
    for (int64_t r = 0; r < p->size; r++)
        for (int i = 0; i < N; i++)
            if (all[r * N + i] != r + i) _exit(53);
    free(mine);
    free(all);
}

static void reduce_and_exit(struct process *p) {
    reduce_much(p);
    if (weft_team_close_wait(p->team) < 0) _exit(54);
    _exit(0);
}
static void gather_and_exit(struct process *p) {
    gather_much(p);
    if (weft_team_close_wait(p->team) < 0) _exit(55);
    _exit(0);
}

static void set_flag(weft_status_t status, void *arg) {
    *(bool *)arg = true;
}

static void last_one_ends_well(const char *transports, const char *n_rails) {
    static void (*const bodies[])(struct process *) = {reduce_much, gather_much, reduce_and_exit,
                                                       gather_and_exit};
    struct page *page;
    process_rails = n_rails;
    process_close_timeout = "60s"; /* the network may be slow: what is sent needs seconds */
    for (unsigned i = 0; i < sizeof bodies / sizeof *bodies; i++)
        for (uint32_t size = 2; size <= 4; size++) {
            CHECK_EQ(run_all(size, transports, bodies[i], &page), 0);
            munmap(page, sizeof *page);
        }
    process_rails = "1";
    process_close_timeout = "1s";
}

TEST(the_last_collective_ends_well_at_all_though_members_leave_over_tcp) {
    last_one_ends_well("self,tcp", "1");
}
TEST(the_last_collective_ends_well_at_all_though_members_leave_over_rails) {
    last_one_ends_well("self,tcp", "4");
}
TEST(the_last_collective_ends_well_at_all_though_members_leave_over_shm) {
    last_one_ends_well("self,shm", "1");
}

/* Rank 0 leaves. Rank 1 answers and its process ends; rank 2 does not answer yet: it is out of the
 * barrier, within which it would answer, and makes no progress. */
static void leave_beside_a_death(struct process *p) {
    bool closed = false;
    if (weft_barrier_wait(p->team) < 0) _exit(60);
    if (p->rank == 2) {
        atomic_store(&p->page->alive, 1);
        while (!atomic_load(&p->page->go)) sched_yield();
        return;
    }
    while (!atomic_load(&p->page->alive)) weft_worker_wait(p->worker, 1);
    if (p->rank == 1) {
        while (!atomic_load(&p->page->through)) weft_worker_wait(p->worker, 1);
        kill(getpid(), SIGKILL);
    }
    weft_op_t op = {.done = set_flag, .arg = &closed};
    uint64_t received = weft_worker_count(p->worker, "am.received");
    if (weft_team_close(p->team, &op) != WEFT_IN_PROGRESS) _exit(61);
    while (weft_worker_count(p->worker, "am.received") == received) weft_worker_wait(p->worker, 1);
    atomic_store(&p->page->through, 1);
    /* The end of rank 1 is noticed. */
    for (double end = test_now() + 0.2; test_now() < end;) weft_worker_wait(p->worker, 1);
    if (closed) _exit(62);
    atomic_store(&p->page->go, 1);
    while (!closed) weft_worker_wait(p->worker, 1);
    weft_worker_destroy(p->worker);
    _exit(0);
}

TEST(a_member_that_answered_may_die_while_another_is_awaited) {
    struct page *page;
    setenv("WEFT_CLOSE_TIMEOUT", "20s", 1);
    CHECK_EQ(run_all(3, "self,tcp", leave_beside_a_death, &page), 0);
    unsetenv("WEFT_CLOSE_TIMEOUT");
    munmap(page, sizeof *page);
}

TEST(processes_work_together_by_reading_each_others_memory) {
    struct page *page;
    for (uint32_t size = 2; size <= 4; size++) {
        CHECK_EQ(run_all_by(by_copies_only, size, "self,shm", sums, &page), 0);
        for (uint32_t r = 0; r < size; r++)
            CHECK_EQ(page->number[r] + page->lines[r], 19); /* barriers */
        munmap(page, sizeof *page);
        CHECK_EQ(run_all_by(by_copies_only, size, "self,shm", reduce_and_exit, &page), 0);
        munmap(page, sizeof *page);
        CHECK_EQ(run_all_by(by_copies_only, size, "self,shm", gather_and_exit, &page), 0);
        munmap(page, sizeof *page);
    }
}

/* ---- death ----------------------------------------------------------------------------------- */

static void die_in_the_middle(struct process *p) {
    enum { VICTIM = 1, AT = 57 };
    weft_status_t st = WEFT_OK;
    for (int i = 0; i < 100000 && st == WEFT_OK; i++) {
        float x = 1;
        if (p->rank == VICTIM && i == AT) kill(getpid(), SIGKILL);
        st = weft_allreduce_wait(p->team, &x, &x, 1, WEFT_FLOAT32, WEFT_SUM);
    }
    if (st != WEFT_ERR_PEER_FAILED) _exit(40);
    if (weft_barrier_wait(p->team) != WEFT_ERR_PEER_FAILED) _exit(41);
    atomic_fetch_add(&p->page->through, 1);
}

TEST(a_killed_member_ends_everybodys_collective_over_shm) {
    struct page *page;
    CHECK_EQ(run_all(4, "self,shm", die_in_the_middle, &page), 0);
    CHECK_EQ(atomic_load(&page->through), 3);
    munmap(page, sizeof *page);
}

TEST(a_killed_member_ends_everybodys_collective_over_tcp) {
    struct page *page;
    CHECK_EQ(run_all(4, "self,tcp", die_in_the_middle, &page), 0);
    CHECK_EQ(atomic_load(&page->through), 3);
    munmap(page, sizeof *page);
}

/* Killed from outside at whatever instruction it is. */
static void be_killed_anywhere(struct process *p) {
    weft_status_t st = WEFT_OK;
    static int32_t many[5000];
    size_t n = p->algorithms == by_lines_only ? 12 : 5000; /* what fits in a line */
    /* A death before everybody's team is ready would fail the creation of a member that is late.
     * No member learns of it before they all are here. */
    atomic_fetch_add(&p->page->alive, 1);
    if (p->rank == 2) {
        while (atomic_load(&p->page->alive) < p->size) sched_yield();
        pid_t self = getpid();
        if (fork() == 0) {
            usleep(3000 + (unsigned)(self % 7) * 1000);
            kill(self, SIGKILL);
            _exit(0);
        }
    }
    while (st == WEFT_OK) st = weft_allreduce_wait(p->team, many, many, n, WEFT_INT32, WEFT_BXOR);
    if (st != WEFT_ERR_PEER_FAILED) _exit(40);
    atomic_fetch_add(&p->page->through, 1);
}

TEST(a_member_killed_at_any_instruction_wedges_no_one) {
    static const char *const ways[] = {"allreduce=slots", by_lines_only, by_copies_only};
    for (int i = 0; i < 12; i++) {
        struct page *page;
        CHECK_EQ(run_all_by(ways[i % 3], 3, "self,shm", be_killed_anywhere, &page), 0);
        CHECK_EQ(atomic_load(&page->through), 2);
        munmap(page, sizeof *page);
    }
}

/* The same while the others look for it before their calls return. */
TEST(a_member_killed_while_others_look_within_their_calls_wedges_no_one) {
    process_per_core = 1;
    for (int i = 0; i < 4; i++) {
        struct page *page;
        CHECK_EQ(run_all_by(by_lines_only, 3, "self,shm", be_killed_anywhere, &page), 0);
        CHECK_EQ(atomic_load(&page->through), 2);
        munmap(page, sizeof *page);
    }
    process_per_core = 0;
}

/* Of each barrier at least the last to come is done within its call. */
static void meet_often(struct process *p) {
    uint64_t before = weft_worker_count(p->worker, "coll.within_call");
    for (int i = 0; i < 1000; i++)
        if (weft_barrier_wait(p->team) < 0) _exit(38);
    p->page->number[p->rank] = weft_worker_count(p->worker, "coll.within_call") - before;
}

TEST(of_each_barrier_by_lines_one_member_at_least_is_done_within_its_call) {
    struct page *page;
    process_per_core = 1;
    CHECK_EQ(run_all(3, "self,shm", meet_often, &page), 0);
    CHECK(page->number[0] + page->number[1] + page->number[2] >= 999);
    munmap(page, sizeof *page);
    process_per_core = 0;
}

static void pin_to_the_first_core(void) {
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0) _exit(41);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &allowed)) CPU_SET(i, &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0) _exit(42);
}

static void meet_on_one_core(struct process *p) {
    pin_to_the_first_core();
    meet_often(p);
}

/* The first to come gives the core away within its call, and so finds the other's line. On a busy
 * machine it does so in few calls. */
TEST(forms_that_wait_on_a_shared_core_give_it_away_and_are_done_within_their_calls) {
    struct page *page;
    process_per_core = 2;
    CHECK_EQ(run_all(2, "self,shm", meet_on_one_core, &page), 0);
    CHECK(page->number[0] + page->number[1] > 1010);
    munmap(page, sizeof *page);
    process_per_core = 0;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* All but rank 0 have come to barrier `round`, and sleep in it. */
static bool others_sleep(const struct process *p, uint32_t round) {
    bool asleep = atomic_load(&p->page->through) == (round + 1) * (p->size - 1);
    for (uint32_t r = 1; asleep && r < p->size; r++)
        asleep = state_of((pid_t)p->page->lines[r]) == 'S';
    return asleep;
}

/* The last one comes late: the others sleep until then, and are woken by it. */
static void wait_for_the_last(struct process *p) {
    p->page->lines[p->rank] = (uint64_t)getpid();
    if (weft_barrier_wait(p->team) < 0) _exit(50);
    uint64_t before = cpu_ns(), woken = weft_worker_count(p->worker, "coll.wakes");
    for (uint32_t i = 0; i < 3; i++) {
        if (p->rank == 0) usleep(100000);
        while (p->rank == 0 && !others_sleep(p, i)) usleep(1000);
        if (p->rank != 0) atomic_fetch_add(&p->page->through, 1);
        if (weft_barrier_wait(p->team) < 0) _exit(51);
    }
    p->page->number[p->rank] = cpu_ns() - before;
    if (p->rank == 0) p->page->lines[0] = weft_worker_count(p->worker, "coll.wakes") - woken;
}

static void count_one(weft_status_t status, void *arg) {
    if (status < 0) _exit(60);
    ++*(int *)arg;
}

/* More at once than there are lines, and who waits for one sleeps. */
static void begin_many(struct process *p) {
    enum { MANY = 11 };
    for (int round = 0; round < 200; round++) {
        uint64_t mine[MANY], sum[MANY];
        int n_done = 0;
        usleep((unsigned)(round * 7 + (int)p->rank * 13) % 50);
        for (int i = 0; i < MANY; i++) {
            mine[i] = (uint64_t)i << 8 | p->rank;
            weft_op_t op = {.done = count_one, .arg = &n_done};
            weft_status_t st =
                weft_allreduce(p->team, &mine[i], &sum[i], 1, WEFT_UINT64, WEFT_SUM, &op);
            if (st == WEFT_OK) n_done++;
            if (st < 0) _exit(61);
        }
        while (n_done < MANY)
            if (weft_worker_wait(p->worker, 2000) < 0) _exit(62); /* no wake-up came */
        for (int i = 0; i < MANY; i++)
            if (sum[i] != p->size * ((uint64_t)i << 8) + p->size * (p->size - 1) / 2) _exit(63);
    }
}

TEST(members_sleep_over_channels_that_are_full_and_are_woken) {
    struct page *page;
    for (uint32_t size = 2; size <= 4; size++) {
        CHECK_EQ(run_all_by(by_slots_only, size, "self,shm", begin_many, &page), 0);
        munmap(page, sizeof *page);
        CHECK_EQ(run_all_by(by_lines_only, size, "self,shm", begin_many, &page), 0);
        munmap(page, sizeof *page);
        CHECK_EQ(run_all_by(by_copies_only, size, "self,shm", begin_many, &page), 0);
        munmap(page, sizeof *page);
    }
}

TEST(members_sleep_while_they_wait_and_are_woken) {
    struct page *page;
    const char *ways[] = {by_slots_only, by_lines_only};
    for (int way = 0; way < 2; way++) {
        CHECK_EQ(run_all_by(ways[way], 3, "self,shm", wait_for_the_last, &page), 0);
        for (uint32_t r = 0; r < 3; r++) CHECK(page->number[r] < 60000000); /* of 300 ms */
        CHECK(page->lines[0] > 0); /* woken by rank 0, not by a timer of their own */
        munmap(page, sizeof *page);
    }
}

/* ---- going on without those that were killed ------------------------------------------------- */

/* Rank 1, and in the next round the new rank 0, is killed in the middle of allreduces. All that are
 * left agree about who is lost, make a new team, and have the same sum. */
static void shrink_twice(struct process *p) {
    for (uint32_t round = 0; round < 2; round++) {
        weft_team_t *smaller = NULL;
        int32_t one = 1, sum = 0;
        uint64_t flags = ~0ull, lost = 0;
        uint32_t victim = 1 - round, size = weft_team_size(p->team);
        for (int i = 0;; i++) {
            if (weft_team_rank(p->team) == victim && i == 20) raise(SIGKILL);
            if (weft_allreduce_wait(p->team, &one, &sum, 1, WEFT_INT32, WEFT_SUM) < 0) break;
        }
        weft_team_revoke(p->team);
        if (weft_team_agree_wait(p->team, &flags, &lost) < 0) _exit(30);
        if (lost != 1u << victim || flags != ~0ull) _exit(31);
        if (weft_team_shrink_wait(p->team, &smaller) < 0) _exit(32);
        if (weft_team_size(smaller) != size - 1) _exit(33);
        if (weft_team_close_wait(p->team) < 0) _exit(34);
        p->team = smaller;
        if (weft_allreduce_wait(p->team, &one, &sum, 1, WEFT_INT32, WEFT_SUM) < 0) _exit(35);
        if (sum != (int32_t)size - 1) _exit(36);
    }
}

TEST(those_that_are_left_go_on_when_others_are_killed) {
    struct page *page;
    CHECK_EQ(run_all_by("", 5, "self,shm", shrink_twice, &page), 0);
    CHECK_EQ(run_all_by("", 5, "self,tcp", shrink_twice, &page), 0);
}

/* ---- killed while a team is split ------------------------------------------------------------ */

enum { SPLIT_KILLS = 48, SPLITTERS = 6, SPLIT_VICTIM = 2, SPLIT_MOMENT_US = 40 };
static unsigned kill_after_us;

/* By parity. Those of the victim's half use their team until it fails; the others once. */
static void split_beside_a_death(struct process *p) {
    weft_team_t *half = NULL;
    int32_t one = 1, sum = 0;
    bool with_victim = p->rank % 2 == SPLIT_VICTIM % 2;
    pid_t self = getpid();
    if (weft_barrier_wait(p->team) < 0) _exit(40);
    atomic_fetch_add(&p->page->alive, 1);
    if (p->rank == SPLIT_VICTIM && fork() == 0) {
        while (atomic_load(&p->page->alive) < p->size) usleep(10); /* all are past the barrier */
        usleep(kill_after_us);
        kill(self, SIGKILL);
        _exit(0);
    }
    double begin = test_now();
    weft_status_t st = weft_team_split_wait(p->team, p->rank % 2, p->rank, &half);
    do
        if (st == WEFT_OK) st = weft_allreduce_wait(half, &one, &sum, 1, WEFT_INT32, WEFT_SUM);
    while (with_victim && st == WEFT_OK);
    if (test_now() - begin > 15) _exit(41);
    if (with_victim && st != WEFT_ERR_PEER_FAILED && st != WEFT_ERR_PROTOCOL) _exit(42);
    if (st == WEFT_OK && sum != SPLITTERS / 2) _exit(43);
    p->page->outcome[p->rank] = st;
    if (half && weft_team_close_wait(half) < 0) _exit(44);
    /* It fails everywhere: no member closes it before the others know. */
    while (weft_barrier_wait(p->team) == WEFT_OK) continue;
}

/* Whatever the moment: a half without the victim is there for all of its members, or for none. */
TEST(a_member_killed_at_any_moment_of_a_split_leaves_each_half_one_outcome) {
    unsigned made = 0;
    for (unsigned i = 0; i < SPLIT_KILLS; i++) {
        struct page *page;
        kill_after_us = i * SPLIT_MOMENT_US;
        CHECK_EQ(run_all(SPLITTERS, "self,shm", split_beside_a_death, &page), 0);
        for (uint32_t r = 3; r < SPLITTERS; r += 2)
            CHECK_EQ(page->outcome[r] == WEFT_OK, page->outcome[1] == WEFT_OK);
        made += page->outcome[1] == WEFT_OK;
        munmap(page, sizeof *page);
    }
    printf("  %u of %u halves were made\n", made, SPLIT_KILLS);
    CHECK(made > 0);
}

/* ---- beside a server's requests -------------------------------------------------------------- */

enum { QUESTION = 7, ANSWER, REQUESTS = 100 };
static bool in_collective;
static uint32_t n_answered, n_within;

static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    n_within += in_collective;
    if (weft_am_send(ep, ANSWER, am->header, am->header_len, NULL, 0, NULL) < 0) _exit(70);
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    n_answered++;
}

static uint64_t wall_ns(void) {
    return (uint64_t)(test_now() * 1e9);
}
static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Rank 0 waits for rank 1 most of the time, within one of two collectives. */
static void serve(struct process *p, weft_team_t *servers) {
    uint64_t one = 1, sum = 0, rounds = 0, begun = wall_ns();
    for (uint32_t over = 0; !over; rounds++) {
        if (p->rank == 1) usleep(200);
        in_collective = true;
        if (weft_allreduce_wait(servers, &one, &sum, 1, WEFT_UINT64, WEFT_SUM) < 0) _exit(71);
        atomic_store(&p->page->go, 1);
        over = p->rank == 1 ? atomic_load(&p->page->through) : 0;
        if (weft_bcast_wait(servers, &over, 1, WEFT_UINT32, 1) < 0) _exit(72);
        in_collective = false;
    }
    p->page->number[p->rank] = rounds;
    p->page->lines[p->rank] = n_within;
    p->page->time[p->rank] = (wall_ns() - begun) / rounds;
    if (sum != 2) _exit(73);
}

static void ask(struct process *p) {
    weft_ep_t *server = weft_team_ep(p->team, 0);
    uint64_t took[REQUESTS];
    while (!atomic_load(&p->page->go)) weft_worker_wait(p->worker, 1);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint64_t begun = wall_ns();
        if (weft_am_send(server, QUESTION, &i, sizeof i, NULL, 0, NULL) < 0) _exit(74);
        while (n_answered == i)
            if (weft_worker_wait(p->worker, 5000) < 0) _exit(75);
        took[i] = wall_ns() - begun;
        if (i % 10 == 0) usleep(300);
    }
    qsort(took, REQUESTS, sizeof *took, by_size);
    p->page->time[p->rank] = took[REQUESTS / 2];
    atomic_store(&p->page->through, 1);
}

static void serve_or_ask(struct process *p) {
    weft_team_t *part;
    if (weft_am_handler_set(p->worker, QUESTION, on_question, NULL) < 0 ||
        weft_am_handler_set(p->worker, ANSWER, on_answer, NULL) < 0)
        _exit(76);
    if (weft_team_split_wait(p->team, p->rank == 2, p->rank, &part) < 0) _exit(77);
    if (p->rank == 2)
        ask(p);
    else
        serve(p, part);
    if (weft_team_close_wait(part) < 0) _exit(78);
}

TEST(a_server_answers_its_clients_while_it_waits_in_collectives) {
    static const char *const transports[] = {"self,shm", "self,tcp"};
    struct page *page;
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(run_all(3, transports[i], serve_or_ask, &page), 0);
        CHECK(page->number[0] > 0 && page->number[0] == page->number[1]);
        CHECK(page->lines[0] > 0); /* answered within a collective */
        printf("  %s: a request takes %.1f us (median), a round of two collectives %.1f us, 200 us "
               "of which the last member comes late\n",
               transports[i], (double)page->time[2] / 1e3, (double)page->time[0] / 1e3);
        munmap(page, sizeof *page);
    }
}

/*
 * Sixteen members on four hosts: each host has namespaces of processes, networks and mounts of its
 * own, so its members share memory with each other only, and reach the others by tcp.
 */
#include "processes.h"

#include <sys/mount.h>
#include <tests/support/nets.h>

enum { HOSTS = 4, PER_HOST = 4, RANKS = HOSTS * PER_HOST, COUNT = 600 };

/* Neighbouring ranks share a host, or ranks go round. */
static bool round_robin, over_store;

/* Where sockets of shared memory are, on each host in a file system of its own. */
static char sockets[] = "/tmp/weft-hosts-XXXXXX";

static uint32_t host_of(uint32_t rank) {
    return round_robin ? rank % HOSTS : rank / PER_HOST;
}

#define MUST(cond, code)          \
    do {                          \
        if (!(cond)) _exit(code); \
    } while (0)

/* ---- what a member does ---------------------------------------------------------------------- */

static void look_at_team(weft_team_t *team, uint32_t rank) {
    weft_team_info_t info;
    weft_team_member_t member;
    weft_ep_info_t ep;
    const char *name;
    MUST(weft_team_describe(team, &info) == WEFT_OK, 40);
    MUST(info.n_hosts == HOSTS && !info.shares_memory, 41);
    for (uint32_t r = 0; r < RANKS; r++) {
        MUST(weft_team_member(team, r, &member) == WEFT_OK, 42);
        MUST(member.ranks_of_host == PER_HOST, 43);
        MUST(host_of(member.leader) == host_of(r) && member.leader <= r, 44);
        if (r == rank) continue;
        MUST(weft_ep_describe(weft_team_ep(team, r), &ep) == WEFT_OK, 45);
        MUST(strcmp(ep.transport, host_of(r) == host_of(rank) ? "shm" : "tcp") == 0, 46);
    }
    MUST(weft_team_algorithm(team, WEFT_COLL_ALLREDUCE, 8, 0, &name) == WEFT_OK, 47);
    MUST(strcmp(name, "hierarchy") == 0, 48);
    MUST(weft_team_algorithm(team, WEFT_COLL_GATHERV, 8, 0, &name) == WEFT_OK, 49);
    MUST(strcmp(name, "hierarchy") == 0, 49);
}

static int32_t mine[RANKS * COUNT], result[RANKS * COUNT];

static void rooted(weft_team_t *team, uint32_t rank, uint32_t root) {
    for (int i = 0; i < COUNT; i++) mine[i] = rank == root ? i + (int)root : -1;
    MUST(weft_bcast_wait(team, mine, COUNT, WEFT_INT32, root) == WEFT_OK, 50);
    MUST(mine[COUNT - 1] == COUNT - 1 + (int)root, 51);
    for (int i = 0; i < COUNT; i++) mine[i] = (int)rank + i;
    MUST(weft_reduce_wait(team, mine, result, COUNT, WEFT_INT32, WEFT_SUM, root) == WEFT_OK, 52);
    MUST(rank != root || result[5] == RANKS * (RANKS - 1) / 2 + 5 * RANKS, 53);
    MUST(weft_gather_wait(team, mine, result, 7, WEFT_INT32, root) == WEFT_OK, 54);
    for (int r = 0; r < RANKS && rank == root; r++) MUST(result[7 * r + 6] == r + 6, 55);
    for (int i = 0; i < RANKS * 7; i++) mine[i] = rank == root ? i : -1;
    MUST(weft_scatter_wait(team, mine, result, 7, WEFT_INT32, root) == WEFT_OK, 56);
    MUST(result[0] == (int)rank * 7 && result[6] == (int)rank * 7 + 6, 57);
    MUST(weft_fanin_wait(team, root) == WEFT_OK && weft_fanout_wait(team, root) == WEFT_OK, 58);
}

static void to_all(weft_team_t *team, uint32_t rank) {
    for (int i = 0; i < COUNT; i++) mine[i] = (int)rank * i;
    MUST(weft_allreduce_wait(team, mine, result, COUNT, WEFT_INT32, WEFT_SUM) == WEFT_OK, 60);
    MUST(result[COUNT - 1] == RANKS * (RANKS - 1) / 2 * (COUNT - 1), 61);
    MUST(weft_allgather_wait(team, mine + 1, result, 9, WEFT_INT32) == WEFT_OK, 62);
    for (int r = 0; r < RANKS; r++) MUST(result[9 * r + 8] == r * 9, 63);
    for (int i = 0; i < RANKS * 3; i++) mine[i] = i;
    MUST(weft_reduce_scatter_wait(team, mine, result, 3, WEFT_INT32, WEFT_SUM) == WEFT_OK, 64);
    MUST(result[2] == RANKS * ((int)rank * 3 + 2), 65);
    for (int i = 0; i < RANKS * 2; i++) mine[i] = (int)rank * 100 + i;
    MUST(weft_alltoall_wait(team, mine, result, 2, WEFT_INT32) == WEFT_OK, 66);
    for (int r = 0; r < RANKS; r++) MUST(result[2 * r] == r * 100 + 2 * (int)rank, 67);
    MUST(weft_scan_wait(team, &mine[1], result, 1, WEFT_INT32, WEFT_SUM) == WEFT_OK, 68);
    MUST(result[0] == 100 * ((int)rank * ((int)rank + 1) / 2) + (int)rank + 1, 91);
    MUST(weft_exscan_wait(team, &mine[1], result, 1, WEFT_INT32, WEFT_SUM) == WEFT_OK, 92);
    MUST(rank == 0 || result[0] == 100 * ((int)rank * ((int)rank - 1) / 2) + (int)rank, 93);
    MUST(weft_barrier_wait(team) == WEFT_OK, 69);
}

/* Blocks that differ: only the root knows all, or each member its own. */
static uint64_t block_of(uint32_t from, uint32_t to, uint32_t round) {
    return (from * 3 + to * 5 + round) % 4;
}

static void uneven(weft_team_t *team, uint32_t rank, uint32_t root) {
    uint64_t count[RANKS], given[RANKS], displs[RANKS], at = 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        count[r] = block_of(r, 0, root) * 3;
        displs[r] = at;
        at += count[r] + 1;
    }
    for (uint64_t i = 0; i < count[rank]; i++) mine[i] = (int)(rank * 100 + i);
    weft_status_t st =
        weft_gatherv_wait(team, mine, count[rank], result, rank == root ? count : NULL,
                          rank == root ? displs : NULL, WEFT_INT32, root);
    MUST(st == WEFT_OK, 120);
    for (uint32_t r = 0; rank == root && r < RANKS; r++)
        for (uint64_t i = 0; i < count[r]; i++)
            MUST(result[displs[r] + i] == (int)(r * 100 + i), 121);
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint64_t i = 0; i < count[r]; i++) mine[displs[r] + i] = (int)(r * 50 + i);
    st = weft_scatterv_wait(team, mine, rank == root ? count : NULL, rank == root ? displs : NULL,
                            result, count[rank], WEFT_INT32, root);
    MUST(st == WEFT_OK, 122);
    for (uint64_t i = 0; i < count[rank]; i++) MUST(result[i] == (int)(rank * 50 + i), 123);
    at = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        given[r] = block_of(rank, r, root);
        count[r] = block_of(r, rank, root);
        for (uint64_t i = 0; i < given[r]; i++) mine[at++] = (int)(rank * 1000 + r * 10 + i);
    }
    st = weft_alltoallv_wait(team, mine, given, NULL, result, count, NULL, WEFT_INT32);
    MUST(st == WEFT_OK, 124);
    at = 0;
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint64_t i = 0; i < count[r]; i++)
            MUST(result[at++] == (int)(r * 1000 + rank * 10 + i), 125);
}

/* With arrays that are changed as soon as the calls have returned, three at once. */
static unsigned n_over;
static void count_over(weft_status_t status, void *arg) {
    MUST(status == WEFT_OK, 101);
    n_over++;
}
static void uneven_at_once(weft_team_t *team, weft_worker_t *worker, uint32_t rank) {
    static int32_t from[3], to[3][RANKS];
    unsigned posted = 0;
    weft_op_t op = {.done = count_over};
    n_over = 0;
    for (uint32_t k = 0; k < 3; k++) {
        uint64_t count[RANKS];
        for (uint32_t r = 0; r < RANKS; r++) count[r] = 1;
        from[k] = (int)(rank + 100 * k);
        weft_status_t st = weft_gatherv(team, &from[k], 1, to[k], rank == 5 * k ? count : NULL,
                                        NULL, WEFT_INT32, 5 * k, &op);
        MUST(st >= 0, 126);
        posted += st == WEFT_IN_PROGRESS;
        memset(count, 0xff, sizeof count);
    }
    while (n_over < posted) MUST(weft_worker_wait(worker, 1000) >= 0, 127);
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t r = 0; rank == 5 * k && r < RANKS; r++)
            MUST(to[k][r] == (int)(r + 100 * k), 128);
}

/* Several outstanding: the steps of one through the segment overlap with those of others. */
static void twelve_at_once(weft_team_t *team, weft_worker_t *worker, uint32_t rank) {
    enum { AT_ONCE = 12 };
    static uint64_t one[AT_ONCE], sum[AT_ONCE], row[AT_ONCE];
    unsigned posted = 0;
    weft_op_t op = {.done = count_over};
    n_over = 0;
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        one[i] = rank + i;
        row[i] = rank == i ? 7 + i : 0;
        weft_status_t st =
            i % 2 ? weft_bcast(team, &row[i], 1, WEFT_UINT64, i, &op)
                  : weft_allreduce(team, &one[i], &sum[i], 1, WEFT_UINT64, WEFT_SUM, &op);
        MUST(st >= 0, 102);
        posted += st == WEFT_IN_PROGRESS;
    }
    while (n_over < posted) MUST(weft_worker_wait(worker, 1000) >= 0, 103);
    for (uint32_t i = 0; i < AT_ONCE; i++)
        MUST(i % 2 ? row[i] == 7 + i : sum[i] == RANKS * (RANKS - 1) / 2 + RANKS * i, 104);
}

/* More than a slot: parts of it, one after the other. */
static void large(weft_team_t *team, uint32_t rank) {
    enum { MANY = 15000 };
    static float many[MANY], sum[MANY];
    for (int i = 0; i < MANY; i++) many[i] = (float)(rank + 1);
    MUST(weft_allreduce_wait(team, many, sum, MANY, WEFT_FLOAT32, WEFT_SUM) == WEFT_OK, 105);
    MUST(sum[0] == RANKS * (RANKS + 1) / 2 && sum[MANY - 1] == sum[0], 106);
    MUST(weft_bcast_wait(team, many, MANY, WEFT_FLOAT32, 6) == WEFT_OK && many[MANY - 1] == 7, 107);
}

static void started_again(weft_team_t *team, uint32_t rank) {
    uint64_t one = 0, sum = 0;
    weft_coll_t *coll;
    weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                             .src = &one,
                             .dst = &sum,
                             .count = 1,
                             .type = WEFT_UINT64,
                             .reduction = WEFT_SUM};
    MUST(weft_coll_init(team, &args, 0, &coll) == WEFT_OK, 108);
    for (uint64_t i = 0; i < 50; i++) {
        one = i + rank;
        MUST(weft_coll_start_wait(coll) == WEFT_OK, 109);
        MUST(sum == RANKS * (RANKS - 1) / 2 + RANKS * i, 110);
    }
    MUST(weft_coll_free(coll) == WEFT_OK, 111);
}

static void work(weft_team_t *team, weft_worker_t *worker, uint32_t rank) {
    uint64_t before = weft_worker_count(worker, "coll.hierarchical");
    for (uint32_t root = 0; root < RANKS; root += 3) rooted(team, rank, root);
    for (uint32_t root = 0; root < RANKS; root++) uneven(team, rank, root);
    uneven_at_once(team, worker, rank);
    for (int i = 0; i < 20; i++) to_all(team, rank);
    twelve_at_once(team, worker, rank);
    large(team, rank);
    started_again(team, rank);
    /* All of these but the 40 scans, whose part within a host goes by messages; where ranks go
     * round, those that need no neighbours. */
    MUST(weft_worker_count(worker, "coll.hierarchical") - before >= (round_robin ? 128 : 200), 112);
    look_at_team(team, rank);
}

/* The members of a host split off: they share a segment again. */
static void split_by_host(weft_team_t *team, uint32_t rank) {
    weft_team_t *own;
    weft_team_info_t info;
    uint64_t one = 1, sum = 0;
    MUST(weft_team_split_wait(team, host_of(rank), rank, &own) == WEFT_OK, 70);
    MUST(weft_team_describe(own, &info) == WEFT_OK, 71);
    MUST(info.size == PER_HOST && info.n_hosts == 1 && info.shares_memory, 72);
    MUST(weft_allreduce_wait(own, &one, &sum, 1, WEFT_UINT64, WEFT_SUM) == WEFT_OK, 73);
    MUST(sum == PER_HOST && weft_team_close_wait(own) == WEFT_OK, 74);
}

/* A view whose processes know only rank 0's address. */
static void be_in_view(weft_worker_t *worker, uint32_t rank) {
    weft_view_t *view, *part;
    uint32_t sharers;
    const weft_resource_set_t *set;
    weft_view_params_t params = {.worker = worker,
                                 .engine = "store",
                                 .store = "10.88.1.2:7411",
                                 .rank = rank,
                                 .size = RANKS};
    MUST(weft_view_create_wait(&params, &view) == WEFT_OK, 80);
    MUST(weft_view_size(view) == RANKS && weft_view_rank(view) == rank, 81);
    MUST(weft_view_at_wait(view, (rank + 5) % RANKS, false, &set) == WEFT_OK, 82);
    MUST(set->rank == (rank + 5) % RANKS && set->n_network_devices >= 1, 83);
    MUST(weft_view_count_ram_wait(view, weft_view_mine(view), &sharers) == WEFT_OK, 84);
    MUST(sharers == PER_HOST || sharers == RANKS, 85); /* one kernel: the boot id is the same */
    MUST(weft_view_partition_wait(view, WEFT_BY_HOST, &part) == WEFT_OK, 86);
    MUST(weft_view_size(part) == sharers, 87);
    MUST(weft_view_release_wait(part) == WEFT_OK, 88);
    MUST(weft_barrier_wait(weft_view_team(view)) == WEFT_OK, 89);
    MUST(weft_view_release_wait(view) == WEFT_OK, 90);
}

static void be_member(struct page *page, uint32_t rank) {
    struct process p = {.page = page, .rank = rank, .size = RANKS};
    char address[32];
    weft_exchange_t exchange = {rank, RANKS, page_allgather, NULL, &p};
    const weft_setting_t settings[] = {{"tcp.bind", address},
                                       {"tcp.insecure", "yes"},
                                       {"shm.directory", sockets},
                                       /* sixteen at once on few cores, maybe a tenth as fast */
                                       {"connect.timeout", "100s"},
                                       {"tcp.handshake_timeout", "100s"},
                                       {"team.timeout", "100s"},
                                       {"close.timeout", "20s"},
                                       {"coll.algorithms", "alltoallv:=hierarchy"}};
    snprintf(address, sizeof address, "10.88.%u.2", host_of(rank) + 1);
    alarm((unsigned)test_timeout(120));
    MUST(weft_context_create(
             &(weft_context_params_t){.settings = settings,
                                      .n_settings = sizeof settings / sizeof *settings},
             &p.context) == WEFT_OK,
         30);
    MUST(weft_worker_create(p.context, &(weft_worker_params_t){.transports = "self,shm,tcp"},
                            &p.worker) == WEFT_OK,
         31);
    if (over_store) be_in_view(p.worker, rank);
    MUST(weft_team_create_wait(p.worker, &exchange, &p.team) == WEFT_OK, 32);
    work(p.team, p.worker, rank);
    split_by_host(p.team, rank);
    tear_down(&p);
    _exit(0);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static void run_members(struct page *page, uint32_t host) {
    int failed = 0, status;
    if (mount("proc", "/proc", "proc", 0, NULL) < 0) _exit(2);
    for (uint32_t r = 0; r < RANKS; r++)
        if (host_of(r) == host && fork() == 0) be_member(page, r);
    while (wait(&status) > 0) {
        if (status) printf("  a member of host %u ended with %#x\n", host, status);
        failed += status != 0;
    }
    fflush(stdout);
    _exit(failed ? 5 : 0);
}

/* A host: it waits for its interface, and then for its members. */
static void be_host(struct page *page, uint32_t host, int go) {
    char word, gateway[32];
    if (unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS) < 0) _exit(2);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", sockets, "tmpfs", 0, "mode=0700") < 0)
        _exit(2);
    atomic_fetch_add(&page->alive, 1);
    if (read(go, &word, 1) != 1) _exit(3);
    char own[32], name[16];
    snprintf(own, sizeof own, "10.88.%u.2", host + 1);
    snprintf(gateway, sizeof gateway, "10.88.%u.1", host + 1);
    snprintf(name, sizeof name, "weft_h%u", host);
    test_result = 0;
    if (setjmp(test_out) == 0) {
        net_set_up("lo", "127.0.0.1");
        net_set_up(name, own);
        net_default_route(gateway);
    }
    if (test_result) _exit(4);
    /* The first process of the namespace: the others end with it. */
    pid_t first = fork();
    if (first == 0) run_members(page, host);
    int status = -1;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 6);
}

static void join_host(uint32_t host, pid_t pid) {
    char path[64], name[16], peer[16], own[32];
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    snprintf(name, sizeof name, "weft_r%u", host);
    snprintf(peer, sizeof peer, "weft_h%u", host);
    snprintf(own, sizeof own, "10.88.%u.1", host + 1);
    int ns = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(ns >= 0);
    net_add_pair(name, peer, ns);
    net_set_up(name, own);
    close(ns);
}

/* In the middle: it has an interface to each host, and passes on between them. */
static void be_router(void *shared) {
    struct page *page = shared;
    int go[2];
    pid_t pid[HOSTS];
    CHECK_EQ(pipe(go), 0);
    for (uint32_t host = 0; host < HOSTS; host++)
        if ((pid[host] = fork()) == 0) be_host(page, host, go[0]);
    while (atomic_load(&page->alive) < HOSTS) {
        int status;
        if (waitpid(-1, &status, WNOHANG) > 0) _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 7);
        usleep(1000);
    }
    net_forward();
    for (uint32_t host = 0; host < HOSTS; host++) join_host(host, pid[host]);
    CHECK_EQ(write(go[1], "gogo", HOSTS), HOSTS);
    for (uint32_t host = 0; host < HOSTS; host++) {
        int status = -1;
        CHECK(waitpid(pid[host], &status, 0) == pid[host]);
        CHECK_EQ(status, 0);
    }
}

static void on_four_hosts(bool in_turn) {
    struct page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    round_robin = in_turn;
    memcpy(sockets + sizeof sockets - 7, "XXXXXX", 6);
    CHECK(mkdtemp(sockets) != NULL);
    bool apart = net_apart(false, be_router, page);
    rmdir(sockets);
    if (!apart) SKIP("no network namespaces here");
    munmap(page, sizeof *page);
}

TEST(sixteen_members_work_together_on_four_hosts) {
    on_four_hosts(false);
}
TEST(sixteen_processes_on_four_hosts_meet_at_a_store) {
    over_store = true;
    on_four_hosts(false);
    over_store = false;
}
TEST(and_so_they_do_where_ranks_go_round_the_hosts) {
    on_four_hosts(true);
}

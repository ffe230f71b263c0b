/* One-sided access between processes: atomics of many at once, and importers and owners that
 * hang or die at each step. */
#include "rma_target.h"
#include "shm_peer.h"
#include <sys/socket.h>
#include <transports/shm/rma/key.h>

/* Shared by a test's processes. */
struct copy_ctl {
    _Atomic int stage, turn, go, n_done;
    weft_status_t status;
    uint64_t chain[8][3][4000][2]; /* what each process saw, and what it put there */
};
static struct copy_ctl *copy_ctl;
static struct target target;
static uint8_t packed[SHM_KEY_LEN];

static void prepare(uint32_t ways, unsigned rights) {
    copy_ctl =
        mmap(NULL, sizeof *copy_ctl, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(copy_ctl != MAP_FAILED);
    target_open(&target, 5 * TARGET_PAGE + 100, rights, true);
    weft__shm_key_encode(ways, packed);
}
static void put_away(void) {
    CHECK(target_is_as_it_should(&target));
    target_close(&target);
    munmap(copy_ctl, sizeof *copy_ctl);
}

static struct md_mem *own(struct pair *p) {
    struct md_mem *mem = NULL;
    CHECK_EQ(p->iface_a->ops->mem->mem_register(p->iface_a, &target.region, &mem), WEFT_OK);
    return mem;
}
static struct lane_key *ask(struct pair *p) {
    struct lane_key *key = NULL;
    CHECK_EQ(p->a.lane->ops->rma->key_open(p->a.lane, &target.remote, packed, sizeof packed, &key),
             WEFT_OK);
    return key;
}

struct counted {
    struct completion completion;
    int calls;
};
static void counted_done(struct completion *c, weft_status_t status) {
    ((struct counted *)c)->calls++;
    CHECK_EQ(status, WEFT_OK);
}
static struct counted counted(void) {
    return (struct counted){.completion = {counted_done, 1, WEFT_OK}};
}

/* Drives for a while; false if `c` came. */
static bool waits(struct pair *p, const struct counted *c, int ms) {
    double until = test_now() + ms / 1e3;
    while (test_now() < until && c->calls == 0) pair_turn(p);
    return c->calls == 0;
}

/* ---- importers that hang, or die ------------------------------------------------------------- */

/* The child holds a key; then it does as the test says, and goes on whatever happens. */
static void importer(struct pair *p, void *arg) {
    struct lane_key *key = ask(p);
    while (key->status == WEFT_NO_RESOURCE) pair_turn(p);
    copy_ctl->status = key->status;
    copy_ctl->stage = 1;
    while (!p->a.n_down) {
        if (copy_ctl->go == 1) {
            copy_ctl->go = 2;
            raise(SIGSTOP);
        }
        pair_turn(p);
    }
    copy_ctl->stage = 2;
}

struct held {
    struct peer peer;
    struct md_mem *mem;
    struct counted c;
};
static void held_open(struct held *h) {
    peer_open(&h->peer, importer, NULL);
    h->mem = own(&h->peer.p);
    CHECK(pair_until(&h->peer.p, copy_ctl->stage == 1));
    CHECK_EQ(copy_ctl->status, WEFT_OK);
    CHECK_EQ(h->mem->n_open, 1);
    h->c = counted();
}
static void hang(struct held *h) {
    copy_ctl->go = 1;
    waitpid(h->peer.pid, NULL, WUNTRACED);
}
static void take_back(struct held *h) {
    CHECK_EQ(h->peer.p.iface_a->ops->mem->mem_revoke(h->mem, &h->c.completion), WEFT_IN_PROGRESS);
    CHECK(waits(&h->peer.p, &h->c, 30));
}
static void held_close(struct held *h) {
    CHECK(pair_until(&h->peer.p, h->c.calls == 1));
    pair_turns(&h->peer.p, 20);
    CHECK_EQ(h->c.calls, 1);
    peer_close(&h->peer);
}

TEST(an_importer_that_hangs_is_waited_for_until_it_goes_on_or_dies) {
    static const int signals[] = {SIGCONT, SIGKILL};
    static const uint32_t ways[] = {SHM_WAY_MAP, SHM_WAY_VM};
    for (int i = 0; i < 4; i++) {
        struct held h;
        prepare(ways[i / 2], WEFT_MEM_ALL);
        held_open(&h);
        hang(&h);
        take_back(&h);
        CHECK_EQ(h.peer.p.a.n_down, 0);
        kill(h.peer.pid, signals[i % 2]);
        CHECK(pair_until(&h.peer.p, h.c.calls == 1));
        CHECK_EQ(copy_ctl->stage, 1); /* its lane stands, if it lives */
        held_close(&h);
        put_away();
    }
}

/* The lane is gone within close.timeout; what the peer was granted is not. */
TEST(a_closed_lane_does_not_hide_an_importer_that_hangs) {
    static const int signals[] = {SIGCONT, SIGKILL};
    for (int i = 0; i < 4; i++) {
        struct held h;
        prepare(SHM_WAY_MAP, WEFT_MEM_ALL);
        held_open(&h);
        hang(&h);
        if (i < 2) take_back(&h);
        h.peer.p.a.lane->ops->close(h.peer.p.a.lane, true);
        CHECK(pair_until(&h.peer.p, h.peer.p.a.n_closed == 1));
        CHECK(waits(&h.peer.p, &h.c, 30));
        if (i >= 2) CHECK_EQ(h.mem->n_open, 1);
        if (i >= 2) take_back(&h);
        kill(h.peer.pid, signals[i % 2]);
        held_close(&h);
        put_away();
    }
}

/* Not even our good-bye fits into its socket. */
TEST(an_importer_that_reads_nothing_at_all_is_waited_for) {
    struct held h;
    prepare(SHM_WAY_MAP, WEFT_MEM_ALL);
    held_open(&h);
    hang(&h);
    int fd = ((struct shm_lane *)h.peer.p.a.lane)->watch.fd;
    while (send(fd, "full", 4, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
    CHECK_EQ(errno, EAGAIN);
    h.peer.p.a.lane->ops->close(h.peer.p.a.lane, true);
    CHECK(pair_until(&h.peer.p, h.peer.p.a.n_closed == 1));
    CHECK_EQ(h.mem->n_open, 1);
    take_back(&h);
    kill(h.peer.pid, SIGKILL);
    held_close(&h);
    put_away();
}

TEST(an_iface_is_closed_though_an_importer_hangs) {
    struct held h;
    prepare(SHM_WAY_MAP, WEFT_MEM_ALL);
    held_open(&h);
    hang(&h);
    take_back(&h);
    h.peer.p.a.lane->ops->close(h.peer.p.a.lane, true);
    CHECK(pair_until(&h.peer.p, h.peer.p.a.n_closed == 1));
    peer_close(&h.peer);
    CHECK_EQ(h.c.calls, 0);
    put_away();
}

TEST(a_dead_importer_holds_nothing) {
    struct held h;
    prepare(SHM_WAY_MAP, WEFT_MEM_ALL);
    held_open(&h);
    kill(h.peer.pid, SIGKILL);
    waitpid(h.peer.pid, NULL, 0);
    CHECK_EQ(h.peer.p.iface_a->ops->mem->mem_revoke(h.mem, &h.c.completion), WEFT_IN_PROGRESS);
    CHECK_EQ(h.c.calls, 0);
    held_close(&h);
    put_away();
}

/* A child of the importer has none of it. */
static void forking_importer(struct pair *p, void *arg) {
    struct lane_key *key = ask(p);
    while (key->status == WEFT_NO_RESOURCE) pair_turn(p);
    unsigned char resident;
    bool here = mincore(key->local, TARGET_PAGE, &resident) == 0;
    pid_t child = fork();
    if (child == 0) _exit(here && mincore(key->local, TARGET_PAGE, &resident) < 0 ? 5 : 6);
    int status;
    waitpid(child, &status, 0);
    copy_ctl->status = WEXITSTATUS(status);
    copy_ctl->stage = 1;
    while (!p->a.n_down) pair_turn(p);
}
TEST(a_fork_of_the_importer_inherits_no_mapping) {
    struct peer peer;
    prepare(SHM_WAY_MAP, WEFT_MEM_ALL);
    peer_open(&peer, forking_importer, NULL);
    own(&peer.p);
    CHECK(pair_until(&peer.p, copy_ctl->stage == 1));
    CHECK_EQ(copy_ctl->status, 5);
    peer_close(&peer);
    put_away();
}

/* Puts of every size all over the region, until it is killed. */
static void writer(struct pair *p, void *arg) {
    static uint8_t bytes[3000];
    uint32_t x = 1;
    struct lane_key *key = ask(p);
    while (key->status == WEFT_NO_RESOURCE) pair_turn(p);
    memset(bytes, 0xbb, sizeof bytes);
    copy_ctl->stage = 1;
    for (;;) {
        x = x * 1664525 + 1013904223;
        size_t len = x >> 20 & 2047, offset = x % (target.region.len - len + 1);
        if (p->a.lane->ops->rma->put_short(p->a.lane, bytes, len, target_at(&target, offset),
                                           key) != WEFT_OK)
            _exit(9);
    }
}
TEST(killed_in_the_middle_of_puts_a_writer_leaves_no_mark_outside) {
    static const uint32_t ways[] = {SHM_WAY_MAP, SHM_WAY_VM};
    for (int i = 0; i < 10; i++) {
        struct peer peer;
        prepare(ways[i % 2], WEFT_MEM_WRITE);
        peer_open(&peer, writer, NULL);
        struct counted c = counted();
        struct md_mem *mem = own(&peer.p);
        CHECK(pair_until(&peer.p, copy_ctl->stage == 1));
        usleep(500 + (unsigned)i * 333);
        kill(peer.pid, SIGKILL);
        CHECK(pair_until(&peer.p, peer.p.a.n_down == 1));
        CHECK_EQ(mem->n_open, 0);
        CHECK_EQ(peer.p.iface_a->ops->mem->mem_revoke(mem, &c.completion), WEFT_OK);
        CHECK(!target_is_as_it_should(&target)); /* it did write */
        memcpy(target_shadow(&target, 0), target.region.base, target.region.len);
        peer_close(&peer);
        put_away();
    }
}

/* ---- owners that die ------------------------------------------------------------------------- */

static void deaf_owner(struct pair *p, void *arg) {
    own(p);
    copy_ctl->stage = 1;
    raise(SIGSTOP);
}
static void granting_owner(struct pair *p, void *arg) {
    struct md_mem *mem = own(p);
    while (mem->n_open == 0) pair_turn(p);
    copy_ctl->stage = 1;
    raise(SIGSTOP);
}
static void revoking_owner(struct pair *p, void *arg) {
    struct counted c = counted();
    struct md_mem *mem = own(p);
    while (mem->n_open == 0) pair_turn(p);
    while (!copy_ctl->go) usleep(100);
    p->iface_a->ops->mem->mem_revoke(mem, &c.completion);
    copy_ctl->stage = 2;
    raise(SIGSTOP);
}

static void key_ends(struct peer *peer, struct lane_key *key) {
    kill(peer->pid, SIGKILL);
    CHECK(pair_until(&peer->p, peer->p.a.n_down == 1));
    CHECK_EQ(peer->p.a.down, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(key->status, WEFT_ERR_PEER_FAILED);
    CHECK(!key->local);
    CHECK_EQ(key->caps, 0);
    key->lane->ops->rma->key_close(key);
    peer_close(peer);
    CHECK_EQ(peer->p.a.n_down, 1);
    put_away();
}

TEST(the_owner_may_die_before_it_answers) {
    struct peer peer;
    prepare(SHM_WAYS, WEFT_MEM_ALL);
    peer_open(&peer, deaf_owner, NULL);
    struct lane_key *key = ask(&peer.p), *closed = ask(&peer.p);
    closed->lane->ops->rma->key_close(closed);
    while (copy_ctl->stage != 1) pair_turn(&peer.p);
    CHECK_EQ(key->status, WEFT_NO_RESOURCE);
    key_ends(&peer, key);
}

TEST(the_owner_may_die_after_it_granted) {
    static const uint32_t ways[] = {SHM_WAY_MAP, SHM_WAY_VM};
    for (int i = 0; i < 2; i++) {
        struct peer peer;
        prepare(ways[i], WEFT_MEM_ALL);
        peer_open(&peer, granting_owner, NULL);
        struct lane_key *key = ask(&peer.p);
        CHECK(pair_until(&peer.p, key->status == WEFT_OK && copy_ctl->stage == 1));
        uint64_t word = 5, remote = target_at(&target, 8);
        const struct lane_ops *ops = peer.p.a.lane->ops;
        memcpy(&word, target_shadow(&target, 8), 8);
        CHECK_EQ(ops->rma->put_short(peer.p.a.lane, &word, 8, remote, key), WEFT_OK);
        kill(peer.pid, SIGKILL);
        waitpid(peer.pid, NULL, 0);
        /* Before this side has learned of it: memory that is mapped stays, and no other peer's is
         * touched. */
        weft_status_t mapped = i == 0 ? WEFT_OK : WEFT_ERR_PEER_FAILED;
        struct rma_piece piece = {&word, 8, 0, 1, NULL};
        CHECK_EQ(ops->rma->put_short(peer.p.a.lane, &word, 8, remote, key), mapped);
        CHECK_EQ(ops->rma->get_zcopy(peer.p.a.lane, &piece, 1, remote, key, NULL), mapped);
        key_ends(&peer, key);
    }
}

/* Has the target where the owner has it. */
static pid_t stand_by(void) {
    fflush(stdout);
    pid_t bystander = fork();
    if (bystander) return bystander;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
}
static void end_process(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* The owner's number is given to another process: not a byte of that is written, and what is
 * read there is not believed. */
TEST(a_process_that_only_has_the_owners_pid_is_not_touched) {
    struct peer peer;
    prepare(SHM_WAY_VM, WEFT_MEM_ALL);
    pid_t bystander = stand_by();
    peer_open(&peer, granting_owner, NULL);
    struct lane_key *key = ask(&peer.p);
    CHECK(pair_until(&peer.p, key->status == WEFT_OK && copy_ctl->stage == 1));
    kill(peer.pid, SIGKILL);
    waitpid(peer.pid, NULL, 0);
    shm_process((struct shm_lane *)peer.p.a.lane)->pid = bystander;
    uint64_t word = ~(uint64_t)0;
    struct rma_piece piece = {&word, 8, 0, 1, NULL};
    const struct lane_ops *ops = peer.p.a.lane->ops;
    CHECK_EQ(ops->rma->put_short(peer.p.a.lane, &word, 8, target_at(&target, 8), key),
             WEFT_ERR_PEER_FAILED);
    CHECK_EQ(ops->rma->put_zcopy(peer.p.a.lane, &piece, 1, target_at(&target, 8), key, NULL),
             WEFT_ERR_PEER_FAILED);
    CHECK(target_is_as_it_should(&target));
    CHECK_EQ(ops->rma->get_zcopy(peer.p.a.lane, &piece, 1, target_at(&target, 8), key, NULL),
             WEFT_ERR_PEER_FAILED);
    /* as the lane's end looks for it */
    shm_process((struct shm_lane *)peer.p.a.lane)->pid = peer.pid;
    end_process(bystander);
    key_ends(&peer, key);
}

/* Its child has the socket. */
static void outlived_owner(struct pair *p, void *arg) {
    pid_t keeper = fork();
    if (keeper == 0) {
        sleep(10); /* until it is killed, if the test fails before */
        _exit(0);
    }
    copy_ctl->go = keeper;
    copy_ctl->stage = 1;
    for (;;) pair_turn(p);
}

static weft_status_t read_ended;
static void on_read_ended(struct completion *c, weft_status_t status) {
    read_ended = status;
}

TEST(a_large_read_of_a_process_that_only_has_the_owners_pid_is_not_believed) {
    static char to[4 * TARGET_PAGE];
    struct peer peer;
    struct completion c = {on_read_ended, 1, WEFT_OK};
    prepare(SHM_WAY_VM, WEFT_MEM_ALL);
    pid_t bystander = stand_by();
    peer_open(&peer, outlived_owner, NULL);
    CHECK(pair_until(&peer.p, copy_ctl->stage == 1));
    struct shm_lane *lane = (struct shm_lane *)peer.p.a.lane;
    weft_iov_t iov = {to, sizeof to};
    shm_iface(lane)->vm = true;
    CHECK_EQ(lane->lane.ops->bulk->bulk_get(&lane->lane, target_at(&target, 0), &iov, 1, &c),
             WEFT_IN_PROGRESS);
    end_process(peer.pid);
    shm_process(lane)->pid = bystander;
    weft__shm_bulk_run(&lane->more->bulk_job); /* before this side has learned of it */
    CHECK_EQ(read_ended, WEFT_ERR_PEER_FAILED);
    shm_process(lane)->pid = peer.pid;
    end_process(bystander);
    kill(copy_ctl->go, SIGKILL);
    peer_close(&peer);
    put_away();
}

TEST(the_owner_may_die_while_it_revokes) {
    struct peer peer;
    prepare(SHM_WAY_MAP, WEFT_MEM_ALL);
    peer_open(&peer, revoking_owner, NULL);
    struct lane_key *key = ask(&peer.p);
    CHECK(pair_until(&peer.p, key->status == WEFT_OK));
    copy_ctl->go = 1;
    while (copy_ctl->stage != 2) usleep(100);
    CHECK_EQ(key->status, WEFT_OK); /* until this side's next turn */
    CHECK_EQ(memcmp(key->local, target.region.base, target.region.len), 0);
    key_ends(&peer, key);
}

/* ---- atomics of eight processes -------------------------------------------------------------- */

enum { N = 8, EACH = 4000 };
/* Words of the region; by lines of their own. */
enum {
    ADDED = 0,
    CHAINED = 64,
    SWAPPED = 128,
    POSTED = 192,
    TOGGLED = 256,
    ORED = 320,
    ANDED = 384
};

static uint64_t fetch(struct lane *lane, struct lane_key *key, enum rma_atomic op, size_t offset,
                      uint64_t operand, uint64_t compare) {
    uint64_t old = 0;
    if (lane->ops->rma->atomic_fetch(
            lane, &(struct lane_atomic){op, 8, operand, compare, target_at(&target, offset)}, &old,
            key, NULL) != 0)
        _exit(7);
    return old;
}

static void work(struct lane *lane, struct lane_key *key, int me) {
    uint64_t seen = 0;
    for (int i = 0; i < EACH; i++) {
        uint64_t mine = (uint64_t)(me + 1) << 32 | (unsigned)(i + 1);
        copy_ctl->chain[me][0][i][0] = fetch(lane, key, RMA_ADD, ADDED, 1, 0);
        copy_ctl->chain[me][1][i][0] = fetch(lane, key, RMA_SWAP, SWAPPED, mine, 0);
        copy_ctl->chain[me][1][i][1] = mine;
        for (uint64_t old; (old = fetch(lane, key, RMA_CSWAP, CHAINED, mine, seen)) != seen;)
            seen = old;
        copy_ctl->chain[me][2][i][0] = seen;
        copy_ctl->chain[me][2][i][1] = seen = mine;
        uint64_t bit = 1ull << me;
        const struct lane_ops *ops = lane->ops;
        if (ops->rma->atomic_post(
                lane,
                &(struct lane_atomic){RMA_ADD, 4, (uint64_t)me + 1, 0, target_at(&target, POSTED)},
                key) != 0)
            _exit(7);
        if (ops->rma->atomic_post(
                lane, &(struct lane_atomic){RMA_XOR, 8, bit, 0, target_at(&target, TOGGLED)},
                key) != 0)
            _exit(7);
        if ((fetch(lane, key, RMA_OR, ORED, bit, 0) & bit) != (i ? bit : 0)) _exit(8);
        if ((fetch(lane, key, RMA_AND, ANDED, ~bit, 0) & bit) != (i ? 0 : bit)) _exit(8);
    }
}

static void child(const char *directory, int me) {
    struct pair p;
    struct lane *lane = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    half_open(&p, directory, 0x100 + (uint64_t)me, "1s");
    while (copy_ctl->turn != me) usleep(200);
    while (p.iface_a->ops->connect_uri(p.iface_a, "peer", &lane) != WEFT_OK) usleep(500);
    lane->owner = &p.a;
    p.a.lane = lane;
    while (!p.a.n_open) pair_turn(&p);
    struct lane_key *key = ask(&p);
    while (key->status == WEFT_NO_RESOURCE) pair_turn(&p);
    if (key->status != WEFT_OK) _exit(6);
    copy_ctl->turn++;
    while (!copy_ctl->go) usleep(50);
    work(lane, key, me);
    _exit(0);
}

static int by_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Every value that was put there was seen by exactly one other, but the last: one line of
 * succession from 0. */
static void is_one_chain(int which, uint64_t last) {
    static uint64_t all[N * EACH][2];
    for (int p = 0; p < N; p++)
        memcpy(all[p * EACH], copy_ctl->chain[p][which], sizeof(uint64_t[EACH][2]));
    qsort(all, (size_t)N * EACH, sizeof *all, by_first);
    uint64_t at = 0;
    for (int i = 0; i < N * EACH; i++) {
        uint64_t(*next)[2] = bsearch(&at, all, (size_t)N * EACH, sizeof *all, by_first);
        CHECK(next);
        at = (*next)[1];
    }
    CHECK_EQ(at, last);
    for (int i = 1; i < N * EACH; i++) CHECK(all[i - 1][0] != all[i][0]);
}

static uint64_t word_at(size_t offset) {
    uint64_t word;
    memcpy(&word, (char *)target.region.base + offset, 8);
    return word;
}

TEST(atomics_of_eight_processes_have_one_order) {
    char directory[64] = "/tmp/weft-test-XXXXXX";
    struct pair p;
    struct end ends[N] = {0};
    pid_t pids[N];
    prepare(SHM_WAYS, WEFT_MEM_ALL);
    memset(target.region.base, 0, TARGET_PAGE);
    uint64_t ones = ~(uint64_t)0;
    memcpy((char *)target.region.base + ANDED, &ones, 8);
    CHECK(mkdtemp(directory));
    fflush(stdout);
    for (int i = 0; i < N; i++)
        if ((pids[i] = fork()) == 0) child(directory, i);
    half_open(&p, directory, 0xc1, "1s");
    struct md_mem *mem = own(&p);
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "peer", &(struct listen_how){.backlog = 8}, NULL,
                                    &p.listener),
             WEFT_OK);
    for (int i = 0; i < N; i++) {
        ends[i].pair = &p;
        p.next_accepted = &ends[i];
        CHECK(pair_until(&p, copy_ctl->turn == i + 1));
    }
    CHECK_EQ(mem->n_open, N);
    copy_ctl->go = 1;
    for (int i = 0; i < N; i++) {
        int status;
        CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
        CHECK_EQ(status, 0);
    }
    static uint64_t added[N * EACH];
    for (int i = 0; i < N * EACH; i++) added[i] = copy_ctl->chain[i / EACH][0][i % EACH][0];
    qsort(added, (size_t)N * EACH, sizeof *added, by_first);
    for (uint64_t i = 0; i < N * EACH; i++) CHECK_EQ(added[i], i);
    is_one_chain(1, word_at(SWAPPED));
    is_one_chain(2, word_at(CHAINED));
    CHECK_EQ(word_at(POSTED), (uint64_t)EACH * N * (N + 1) / 2);
    CHECK_EQ(word_at(TOGGLED), 0);
    CHECK_EQ(word_at(ORED), (1 << N) - 1);
    CHECK_EQ(word_at(ANDED), ~(uint64_t)((1 << N) - 1));
    CHECK(pair_until(&p, mem->n_open == 0)); /* they are all dead */
    for (int i = 0; i < N; i++) pair_end_close(&ends[i], true);
    half_close(&p);
    memcpy(target_shadow(&target, 0), target.region.base, TARGET_PAGE);
    CHECK_EQ(rmdir(directory), 0);
    put_away();
}

/* Views whose processes die, exit, get SIGTERM or fork: before, in and after each operation and
 * each finalizer. */
#include "view_processes.h"
#include <arpa/inet.h>
#include <base/alloc.h>
#include <fcntl.h>
#include <poll.h>
#include <runtime/view/store_server.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <tests/network.h>
#include <tests/support/clock.h>
#include <tests/support/scarce_descriptors.h>

enum { RANKS = 3, VICTIM = 1, BYTES = 40000 };
enum moment { BEFORE, IN, AFTER, N_MOMENTS };

static struct shared { _Atomic uint32_t n_there, n_finalized; } * shared;
static enum moment moment;
static unsigned which;

static void share(void) {
    if (!shared)
        shared =
            mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared->n_there = shared->n_finalized = 0;
}

/* Others may still look at this process's set. */
static void wait_for_all(weft_view_t *view, uint32_t n) {
    ++shared->n_there;
    while (shared->n_there < n) weft_worker_wait(weft_view_worker(view), 1);
}

static bool is_loss(weft_status_t st) {
    return st == WEFT_ERR_PEER_FAILED || st == WEFT_ERR_PEER_CLOSED;
}

/* ---- operations ---------------------------------------------------------------------------- */

static char src[RANKS * BYTES], dst[RANKS * BYTES];
static weft_blocks_t *blocks;
static const weft_resource_set_t *set[RANKS];

static size_t text_size(const void *object, void *arg) {
    return BYTES;
}
static void text_pack(const void *object, void *bytes, void *arg) {
    memcpy(bytes, object, BYTES);
}
static weft_status_t text_unpack(void *object, const void *bytes, size_t len, void *arg) {
    memcpy(object, bytes, len);
    return WEFT_OK;
}
static const weft_serializer_t text = {text_size, text_pack, text_unpack, NULL};

enum { N_OPERATIONS = 12 };
static weft_status_t operate(weft_view_t *view, uint32_t rank, const weft_op_t *op) {
    static void *const into[RANKS] = {dst, dst + BYTES, dst + 2 * BYTES};
    switch (which) {
    case 0: return weft_view_barrier(view, op);
    case 1: return weft_view_gather(view, NULL, src, BYTES, dst, op);
    case 2: return weft_view_gather(view, set[0], src, BYTES, dst, op);
    case 3: return weft_view_reduce(view, NULL, src, dst, BYTES / 8, WEFT_INT64, WEFT_SUM, op);
    case 4: return weft_view_reduce(view, set[2], src, dst, BYTES / 8, WEFT_INT64, WEFT_SUM, op);
    case 5: return weft_view_bcast(view, set[VICTIM], src, BYTES, op);
    case 6: return weft_view_scatter(view, set[VICTIM], src, BYTES, dst, op);
    case 7: return weft_view_alltoall(view, src, BYTES, dst, op);
    case 8: return weft_view_gatherv(view, set[0], src, BYTES + rank, &blocks, op);
    case 9: return weft_view_gather_objects(view, NULL, &text, src, into, op);
    case 10: return weft_view_bcast_object(view, set[VICTIM], &text, src, op);
    default:
        if (rank == VICTIM) return weft_view_send(view, set[0], src, BYTES, 1, op);
        if (rank == 0) return weft_view_receive(view, set[VICTIM], dst, BYTES, 1, op);
        return weft_view_barrier(view, op); /* the third has no part */
    }
}

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

static void die_at_an_operation(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    weft_status_t outcome = WEFT_IN_PROGRESS;
    for (uint32_t r = 0; r < size; r++)
        CHECK_EQ(weft_view_at_wait(view, r, false, &set[r]), WEFT_OK);
    wait_for_all(view, size);
    if (rank == VICTIM && moment == BEFORE) _exit(0);
    weft_status_t st = operate(view, rank, &(weft_op_t){.done = note, .arg = &outcome});
    if (st != WEFT_IN_PROGRESS) outcome = st;
    if (rank == VICTIM && moment == IN) _exit(0);
    while (outcome == WEFT_IN_PROGRESS) weft_worker_wait(weft_view_worker(view), 1000);
    if (rank == VICTIM) _exit(0);
    CHECK(outcome == WEFT_OK || is_loss(outcome));
    if (moment == BEFORE && which != 11) CHECK(is_loss(outcome) || which == 4 || which == 2);
    weft_blocks_free(blocks);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

static void at_each_operation(enum moment when) {
    moment = when;
    for (which = 0; which < N_OPERATIONS; which++) {
        share();
        in_processes(RANKS, die_at_an_operation);
    }
}

TEST(a_death_before_each_operation_ends_it_at_the_others) {
    at_each_operation(BEFORE);
}
TEST(a_death_in_each_operation_ends_it_at_the_others) {
    at_each_operation(IN);
}
TEST(a_death_after_each_operation_hinders_no_release) {
    at_each_operation(AFTER);
}

/* ---- finalizers ---------------------------------------------------------------------------- */

static uint32_t own_rank;

static weft_status_t finalize(weft_finalizer_t *finalizer, void *number) {
    bool dies = own_rank == VICTIM && (uintptr_t)number == which;
    if (dies && moment == BEFORE) _exit(0);
    ++shared->n_finalized;
    if (dies && moment == IN) raise(SIGKILL);
    return WEFT_OK;
}

static void die_at_a_finalizer(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    own_rank = rank;
    for (uintptr_t i = 0; i < 3; i++)
        CHECK_EQ(weft_view_push_finalizer(view, finalize, (void *)i, NULL, NULL), WEFT_OK);
    wait_for_all(view, size);
    if (rank == VICTIM) { /* its child is another process, and has no view */
        pid_t child = fork();
        int status;
        if (child == 0) _exit(weft_view_release_wait(view) != WEFT_ERR_FORKED);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK(rank != VICTIM || moment == AFTER);
}

/* As in_processes, but one of them may be killed. */
static void with_victim(void (*body)(const char *, uint32_t, uint32_t)) {
    char store[64];
    int status, killed = 0;
    share();
    int reserved = store_address(store);
    fflush(stdout);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (fork() > 0) continue;
        if (setjmp(test_out) == 0) body(store, rank, RANKS);
        fflush(stdout);
        _exit(test_result == 1);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        wait(&status);
        killed += WIFSIGNALED(status);
        CHECK(WIFSIGNALED(status) || status == 0);
    }
    close(reserved);
    CHECK(killed <= 1);
}

TEST(a_death_at_each_finalizer_leaves_the_finalizers_of_the_others) {
    for (moment = BEFORE; moment < N_MOMENTS; moment++)
        for (which = 0; which < 3; which++) {
            with_victim(die_at_a_finalizer);
            /* the victim's: those above the one that it dies at, and that one unless before it */
            uint32_t own = moment == AFTER ? 3 : 2 - which + (moment == IN);
            CHECK_EQ(shared->n_finalized, 2 * 3 + own);
        }
}

/* ---- exit, and SIGTERM --------------------------------------------------------------------- */

static void leave(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    CHECK_EQ(weft_view_push_finalizer(view, finalize, (void *)9, NULL, NULL), WEFT_OK);
    wait_for_all(view, size);
    if (rank == VICTIM && which == 0) exit(0);
    if (rank == VICTIM) raise(SIGTERM);
    CHECK(is_loss(weft_view_barrier_wait(view)));
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(exit_and_sigterm_run_no_finalizer_and_are_noticed) {
    for (which = 0; which < 2; which++) {
        with_victim(leave);
        CHECK_EQ(shared->n_finalized, 2);
    }
}

static volatile sig_atomic_t term_came;
static void on_term(int signal) {
    term_came = 1;
}

static void leave_in_order(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    signal(SIGTERM, on_term);
    CHECK_EQ(weft_view_push_finalizer(view, finalize, (void *)9, NULL, NULL), WEFT_OK);
    wait_for_all(view, size);
    raise(SIGTERM);
    while (!term_came) weft_worker_wait(weft_view_worker(view), 10);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_program_that_releases_its_view_after_sigterm_runs_its_finalizers) {
    share();
    in_processes(RANKS, leave_in_order);
    CHECK_EQ(shared->n_finalized, RANKS);
}

/* ---- the store's host ---------------------------------------------------------------------- */

static void lose_the_store(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = NULL;
    weft_view_params_t params = {
        .engine = "store", .store = store, .rank = rank, .size = size, .deadline_ms = 2000};
    if (rank == 0 && which == 0) { /* while the others come */
        CHECK_EQ(weft_view_create(&params, &view), WEFT_OK);
        for (int i = 0; i < 20; i++) weft_worker_wait(weft_view_worker(view), 1);
        _exit(0);
    }
    if (which == 0) {
        weft_status_t st = weft_view_create_wait(&params, &view);
        CHECK(is_loss(st) || st == WEFT_ERR_TIMED_OUT || st == WEFT_OK);
        if (st < 0) return;
    } else {
        view = join(store, rank, size);
        wait_for_all(view, size);
        if (rank == 0) _exit(0);
    }
    CHECK(is_loss(weft_view_barrier_wait(view)));
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(the_death_of_the_process_that_serves_the_store_ends_creations_and_operations) {
    for (which = 0; which < 2; which++) {
        share();
        in_processes(RANKS, lose_the_store);
    }
}

/* ---- connections that the store closes ------------------------------------------------------- */

static bool dials_itself;
static unsigned n_dialed; /* the store */
static struct sockaddr_in store_at;

/* In place of libc's. */
int connect(int fd, const struct sockaddr *at, socklen_t len) {
    int on = 1;
    bool is_store = len == sizeof store_at && memcmp(at, &store_at, len) == 0;
    n_dialed += is_store;
    if (is_store && dials_itself) {
        dials_itself = false;
        CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
        CHECK_EQ(bind(fd, at, len), 0);
    }
    return (int)syscall(SYS_connect, fd, at, len);
}

static struct sockaddr_in address_of(const char *store) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(strchr(store, ':') + 1)),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

/* Listens in the place of the store. */
static int listen_at_store(const char *store) {
    struct sockaddr_in at = address_of(store);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    CHECK_EQ(listen(fd, 16), 0);
    return fd;
}

/* Did one come in so long? */
static bool turn_one_away(int listener, int wait_ms) {
    struct pollfd come = {.fd = listener, .events = POLLIN};
    if (poll(&come, 1, wait_ms) <= 0) return false;
    int fd = accept(listener, NULL, NULL);
    CHECK(fd >= 0);
    close(fd);
    return true;
}

/* To the store, once it listens. */
static int connect_silently(const char *store) {
    struct sockaddr_in at = address_of(store);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    while (connect(fd, (struct sockaddr *)&at, sizeof at) < 0) usleep(1000);
    return fd;
}

static void note_ready(weft_view_t *view, weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* `*ready_p` is its status, once it is known. */
static weft_view_t *begin_view(const char *store, uint32_t rank, uint32_t size,
                               weft_status_t *ready_p) {
    weft_view_t *view = NULL;
    weft_view_params_t params = {.engine = "store",
                                 .store = store,
                                 .rank = rank,
                                 .size = size,
                                 .on_ready = note_ready,
                                 .arg = ready_p,
                                 .deadline_ms = 60000};
    CHECK_EQ(weft_view_create(&params, &view), WEFT_OK);
    return view;
}

static void until_ready(const weft_view_t *view, const weft_status_t *ready) {
    while (*ready == WEFT_IN_PROGRESS) weft_worker_wait(weft_view_worker(view), 1000);
}

/* Rank 0 has no room for the other's first connections. */
static void come_to_be_turned_away(const char *store, uint32_t rank, uint32_t size) {
    weft_status_t ready = WEFT_IN_PROGRESS;
    if (rank == 0) {
        int listener = listen_at_store(store);
        for (int i = 0; i < 3; i++) CHECK(turn_one_away(listener, 30000));
        close(listener);
    }
    weft_view_t *view = begin_view(store, rank, size, &ready);
    until_ready(view, &ready);
    CHECK_EQ(ready, WEFT_OK);
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_process_that_the_store_turns_away_comes_again) {
    in_processes(2, come_to_be_turned_away);
}

static void come_in_vain(const char *store, uint32_t rank, uint32_t size) {
    if (rank == 0) { /* as often as the other comes: until it is done */
        int listener = listen_at_store(store), n = 0;
        while (shared->n_finalized == 0) n += turn_one_away(listener, 10);
        CHECK_EQ(n, 10);
        return;
    }
    weft_status_t ready = WEFT_IN_PROGRESS;
    weft_view_t *view = begin_view(store, rank, size, &ready);
    until_ready(view, &ready);
    shared->n_finalized = 1;
    CHECK_EQ(ready, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_process_that_the_store_turns_away_each_time_gives_up) {
    share();
    in_processes(2, come_in_vain);
}

/* A socket that dials a port of this host may have that port itself, which the kernel has given to
 * it: TCP then connects it with itself. */
static void come_to_oneself(const char *store, uint32_t rank, uint32_t size) {
    weft_status_t ready = WEFT_IN_PROGRESS;
    while (rank == 0 && shared->n_there == 0) usleep(1000);
    store_at = address_of(store);
    dials_itself = rank > 0;
    weft_view_t *view = begin_view(store, rank, size, &ready);
    while (rank > 0 && n_dialed < 2 && ready == WEFT_IN_PROGRESS)
        weft_worker_wait(weft_view_worker(view), 1000);
    if (rank > 0) shared->n_there = 1;
    until_ready(view, &ready);
    CHECK_EQ(ready, WEFT_OK);
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_process_that_is_connected_with_itself_comes_again) {
    share();
    in_processes(2, come_to_oneself);
}

/* Memory runs out at rank 0 as the other comes. */
static void come_without_memory(const char *store, uint32_t rank, uint32_t size) {
    weft_status_t ready = WEFT_IN_PROGRESS;
    while (rank > 0 && shared->n_there == 0) usleep(1000);
    weft_view_t *view = begin_view(store, rank, size, &ready);
    if (rank == 0) {
        for (int i = 0; i < 5; i++) weft_worker_wait(weft_view_worker(view), 20);
        weft__alloc_fail_run(1, 3);
        shared->n_there = 1;
    }
    until_ready(view, &ready);
    if (rank == 0) CHECK(weft__alloc_fail_at(0) > 3);
    CHECK_EQ(ready, WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_store_without_memory_has_the_rank_when_there_is_some) {
    share();
    in_processes(2, come_without_memory);
}

/* The second process comes with another size, then as a rank that is taken, then as itself. */
static void come_as_another(const char *store, uint32_t rank, uint32_t size) {
    static const struct {
        uint32_t rank, size;
        weft_status_t status;
    } as[] = {{1, 3, WEFT_ERR_INVALID_PARAM}, {0, 2, WEFT_ERR_EXISTS}, {1, 2, WEFT_OK}};
    uint8_t hello[STORE_HELLO], answer[STORE_ANSWER];
    for (int i = 0; rank == 1 && i < 2; i++) {
        int fd = connect_silently(store);
        weft__store_hello(hello, as[i].rank, as[i].size);
        CHECK_EQ(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
        CHECK_EQ(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
        CHECK_EQ(weft__store_answer(answer), as[i].status);
        close(fd);
    }
    for (int i = rank == 1 ? 0 : 2; i < 3; i += 2) {
        weft_status_t ready = WEFT_IN_PROGRESS;
        weft_view_t *view = begin_view(store, rank, rank == 1 ? as[i].size : size, &ready);
        until_ready(view, &ready);
        CHECK_EQ(ready, as[i].status);
        CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    }
}

TEST(a_rank_of_another_size_gets_an_answer_at_once) {
    in_processes(2, come_as_another);
}

/* Rank 1 is there, and its connection ends: whatever comes with that rank is no member. */
static void come_after_a_death(const char *store, uint32_t rank, uint32_t size) {
    uint8_t hello[STORE_HELLO], answer[STORE_ANSWER];
    for (int i = 0; rank == 1 && i < 2; i++) {
        int fd = connect_silently(store);
        weft__store_hello(hello, rank, size);
        CHECK_EQ(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
        CHECK_EQ(recv(fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
        CHECK_EQ(weft__store_answer(answer), i == 0 ? WEFT_OK : WEFT_ERR_PEER_FAILED);
        close(fd);
    }
    weft_status_t ready = WEFT_IN_PROGRESS;
    weft_view_t *view = rank == 0 ? begin_view(store, rank, size, &ready) : NULL;
    for (double end = test_now() + test_timeout(60);
         rank == 0 && test_now() < end && shared->n_there == 0;)
        weft_worker_wait(weft_view_worker(view), 1);
    if (rank == 1) shared->n_there++;
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_rank_that_comes_again_after_its_death_is_refused_at_once) {
    share();
    in_processes(2, come_after_a_death);
}

/* ---- a split without memory ------------------------------------------------------------------ */

static unsigned failing; /* the allocation of rank 1 that fails once its split has begun */

static void note_split(weft_view_t *part, weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
    weft__alloc_fail_at(0);
    if (part) CHECK_EQ(weft_view_release(part, NULL), WEFT_IN_PROGRESS);
}

static weft_status_t until(weft_view_t *view, const weft_status_t *outcome) {
    for (double end = test_now() + test_timeout(60);
         *outcome == WEFT_IN_PROGRESS && test_now() < end;)
        weft_worker_wait(weft_view_worker(view), 10);
    return *outcome;
}

/* Rank 1 is in no part, and only helps with the exchange of the others. */
static void split_without_memory(const char *store, uint32_t rank, uint32_t size) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_view_t *view = join(store, rank, size);
    weft_view_split_params_t params = {
        .colour = rank == 1 ? WEFT_NO_COLOUR : 0, .on_ready = note_split, .arg = &outcome};
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_split(view, &params), WEFT_OK);
    if (rank == 1) weft__alloc_fail_at(failing);
    CHECK(until(view, &outcome) != WEFT_IN_PROGRESS); /* well before team.timeout */
    ++shared->n_there;
    for (double end = test_now() + test_timeout(60); shared->n_there < size && test_now() < end;)
        weft_worker_wait(weft_view_worker(view), 1);
    (void)weft_view_release_wait(view);
}

TEST(a_split_without_memory_at_one_member_ends_at_all) {
    for (failing = 1; failing <= 16; failing++) {
        share();
        in_processes(2, split_without_memory);
    }
}

/* ---- connections that say nothing ------------------------------------------------------------ */

enum { SILENT = 100 };

static bool silent_stay;

static void come_behind_the_silent(const char *store, uint32_t rank, uint32_t size) {
    weft_status_t ready = WEFT_IN_PROGRESS;
    int fd[SILENT];
    for (int i = 0; rank == 1 && i < SILENT; i++) fd[i] = connect_silently(store);
    weft_view_t *view = begin_view(store, rank, size, &ready);
    for (int i = 0; i < 200 && ready == WEFT_IN_PROGRESS; i++)
        weft_worker_wait(weft_view_worker(view), 1);
    for (int i = 0; rank == 1 && i < SILENT && !silent_stay; i++) close(fd[i]);
    until_ready(view, &ready);
    CHECK_EQ(ready, WEFT_OK);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_process_that_comes_behind_many_silent_connections_waits_and_is_served) {
    in_processes(2, come_behind_the_silent);
}

TEST(connections_that_stay_silent_are_closed_when_others_wait) {
    silent_stay = true;
    in_processes(2, come_behind_the_silent);
    silent_stay = false;
}

/* Rank 0 has no descriptor for the other's connection at first. */
static void come_without_descriptors(const char *store, uint32_t rank, uint32_t size) {
    weft_status_t ready = WEFT_IN_PROGRESS;
    weft_view_t *view = begin_view(store, rank, size, &ready);
    if (rank == 0) {
        int waits = 0;
        descriptors_leave(0);
        for (double end = test_now() + 0.5; test_now() < end; waits++)
            weft_worker_wait(weft_view_worker(view), 100);
        CHECK(waits < 200); /* some 10, not as many as a loop can make */
        CHECK_EQ(ready, WEFT_IN_PROGRESS);
        descriptors_give_back();
    }
    until_ready(view, &ready);
    CHECK_EQ(ready, WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_store_without_descriptors_pauses_and_goes_on) {
    in_processes(2, come_without_descriptors);
}

/* Views: engines, references, equality, parts, resource sets. Processes are forked and meet at a
 * store on loopback. */
#include "view_processes.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

/* ---- one process --------------------------------------------------------------------------- */

TEST(the_null_view_has_no_processes) {
    const weft_resource_set_t *set;
    CHECK_EQ(weft_view_size(NULL), 0);
    CHECK_EQ(strcmp(weft_view_engine(NULL), "null"), 0);
    CHECK(!weft_view_did_start(NULL));
    CHECK(weft_view_team(NULL) == NULL);
    CHECK(weft_view_worker(NULL) == NULL);
    CHECK(weft_view_mine(NULL) == NULL);
    CHECK(weft_view_equal(NULL, NULL));
    CHECK_EQ(weft_view_at_wait(NULL, 0, false, &set), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_release_wait(NULL), WEFT_OK);
    CHECK(weft_view_retain(NULL) == NULL);
}

TEST(a_process_without_a_launcher_is_a_view_of_one) {
    weft_view_t *view = view_of_one();
    CHECK_EQ(weft_view_size(view), 1);
    CHECK_EQ(weft_view_rank(view), 0);
    CHECK_EQ(strcmp(weft_view_engine(view), "single"), 0);
    CHECK(!weft_view_did_start(view));
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_view_without_mpi_has_no_communicator_of_it) {
    weft_view_t *view = view_of_one();
    void *comm = &view;
    CHECK_EQ(weft_view_mpi_comm(view, &comm, sizeof comm), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_view_mpi_comm(view, NULL, sizeof comm), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_mpi_comm(NULL, &comm, sizeof comm), WEFT_ERR_INVALID_PARAM);
    CHECK(comm == &view);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_rank_out_of_range_is_refused) {
    weft_view_t *view = view_of_one();
    const weft_resource_set_t *set = NULL;
    CHECK_EQ(weft_view_at_wait(view, 1, false, &set), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_at_wait(view, 0, false, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_at_wait(view, 0, false, &set), WEFT_OK);
    CHECK(weft_view_has(view, set));
    weft_view_release_wait(view);
}

TEST(views_of_the_same_processes_are_equal) {
    weft_view_t *a = view_of_one(), *b = view_of_one();
    CHECK(weft_view_equal(a, b));
    CHECK(!weft_view_equal(a, NULL));
    CHECK(weft_view_has(a, weft_view_mine(b)));
    weft_view_release_wait(a);
    weft_view_release_wait(b);
}

TEST(a_set_describes_this_process) {
    weft_view_t *view = view_of_one();
    const weft_resource_set_t *set = weft_view_mine(view);
    cpu_set_t cpus;
    char host[64] = "";
    sched_getaffinity(0, sizeof cpus, &cpus);
    gethostname(host, sizeof host - 1);
    CHECK_EQ(set->pid, getpid());
    CHECK_EQ(strcmp(set->host, host), 0);
    CHECK_EQ(set->n_cpus, (uint32_t)CPU_COUNT(&cpus));
    CHECK(set->n_cores >= 1 && set->n_cores <= set->n_cpus);
    CHECK(set->n_numa_nodes >= 1);
    CHECK(set->ram_total > 0 && set->ram_free <= set->ram_total);
    CHECK(set->ram_used > 0 && set->ram_used <= set->ram_total);
    weft_view_release_wait(view);
}

TEST(cores_that_a_process_may_not_use_are_not_its) {
    cpu_set_t before, one;
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    weft_view_t *view = view_of_one();
    CHECK_EQ(weft_view_mine(view)->n_cpus, 1);
    CHECK_EQ(weft_view_mine(view)->n_cores, 1);
    weft_view_release_wait(view);
    sched_setaffinity(0, sizeof before, &before);
}

TEST(the_programs_worker_stays_when_the_view_ends) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_view_t *view = NULL;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), WEFT_OK);
    weft_view_params_t params = {.worker = worker, .engine = "single"};
    CHECK_EQ(weft_view_create_wait(&params, &view), WEFT_OK);
    CHECK(weft_view_worker(view) == worker);
    CHECK_EQ(weft_view_release(view, NULL), WEFT_IN_PROGRESS);
    while (weft_worker_progress(worker, 0) > 0) continue;
    CHECK_EQ(weft_view_create_wait(&params, &view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

struct left {
    weft_worker_t *worker;
    weft_view_t *view;
    int ready, closed, ran;
    weft_status_t status, barrier, release;
};
static weft_status_t finalize_left(weft_finalizer_t *finalizer, void *arg) {
    struct left *left = arg;
    (void)finalizer;
    left->ran++;
    left->barrier = weft_view_barrier(left->view, NULL);
    left->release = weft_view_release(left->view, NULL);
    return WEFT_OK;
}
static void left_ready(weft_view_t *view, weft_status_t status, void *arg) {
    struct left *left = arg;
    left->view = view;
    left->ready++;
    left->status = status;
}
static void left_closed(weft_status_t status, void *arg) {
    struct left *left = arg;
    left->closed++;
}
static weft_worker_t *worker_of(weft_context_t **context_p) {
    weft_worker_t *worker;
    CHECK_EQ(weft_context_create(NULL, context_p), WEFT_OK);
    CHECK_EQ(weft_worker_create(*context_p, NULL, &worker), WEFT_OK);
    return worker;
}

/* Also one with more references, a part of it, and a split that is under way. */
TEST(a_view_that_is_left_ends_with_its_worker) {
    struct left left = {0}, split = {0};
    weft_context_t *context;
    weft_worker_t *worker = worker_of(&context);
    weft_view_t *part;
    weft_view_params_t params = {.worker = worker, .engine = "single"};
    CHECK_EQ(weft_view_create_wait(&params, &left.view), WEFT_OK);
    CHECK(weft_view_retain(left.view) == left.view);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_view_push_finalizer(left.view, finalize_left, &left, NULL, NULL), WEFT_OK);
    CHECK_EQ(weft_view_split_wait(left.view, 1, 0, &part), WEFT_OK);
    weft_view_split_params_t other = {.colour = 2, .on_ready = left_ready, .arg = &split};
    CHECK_EQ(weft_view_split(left.view, &other), WEFT_OK);
    weft_worker_destroy(worker);
    CHECK_EQ(left.ran, 2);
    CHECK_EQ(left.barrier, WEFT_ERR_CLOSED); /* its team is closed by then */
    CHECK_EQ(left.release, WEFT_ERR_BUSY);
    CHECK_EQ(split.ready, 1);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

TEST(a_view_whose_worker_closes_before_it_is_ready_fails) {
    struct left left = {0};
    weft_context_t *context;
    weft_worker_t *worker = worker_of(&context);
    weft_view_params_t params = {
        .worker = worker, .engine = "single", .on_ready = left_ready, .arg = &left};
    CHECK_EQ(weft_view_create(&params, &left.view), WEFT_OK);
    CHECK_EQ(left.ready, 0);
    weft_op_t op = {.done = left_closed, .arg = &left};
    CHECK_EQ(weft_worker_close(worker, &op), WEFT_IN_PROGRESS);
    while (!left.closed) weft_worker_wait(worker, 100);
    CHECK_EQ(left.ready, 1);
    CHECK_EQ(left.status, WEFT_ERR_CLOSED);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

static void create_and_wait(void *arg) {
    weft_view_t *view = NULL;
    *(weft_status_t *)arg = weft_view_create_wait(&(weft_view_params_t){.engine = "single"}, &view);
}

TEST(a_creation_that_waits_is_refused_within_a_callback_of_the_shared_worker) {
    weft_view_t *view = view_of_one();
    weft_worker_t *worker = weft_view_worker(view);
    weft_status_t status = WEFT_OK;
    CHECK_EQ(weft_worker_post(worker, create_and_wait, &status), WEFT_OK);
    while (status == WEFT_OK) weft_worker_wait(worker, 1000);
    CHECK_EQ(status, WEFT_ERR_BUSY);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

struct other_thread {
    weft_view_t *view;
    weft_status_t status[3];
};
static void *call_from_another_thread(void *arg) {
    struct other_thread *o = arg;
    const weft_resource_set_t *set;
    weft_view_t *part;
    o->status[0] = weft_view_partition_wait(o->view, WEFT_BY_HOST, &part);
    o->status[1] = weft_view_at_wait(o->view, 0, true, &set);
    o->status[2] = weft_view_split_wait(o->view, 0, 0, &part);
    return NULL;
}

TEST(a_call_from_another_thread_is_refused) {
    struct other_thread other = {.view = view_of_one()};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, call_from_another_thread, &other), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++) CHECK_EQ(other.status[i], WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(weft_view_release_wait(other.view), WEFT_OK);
}

static void count_ready(weft_view_t *part, weft_status_t status, void *arg) {
    CHECK(!part && status == WEFT_OK);
    ++*(int *)arg;
}

/* A process alone is in the split as soon as it has called it. */
TEST(a_member_of_no_part_is_notified_after_its_call) {
    weft_view_t *view = view_of_one();
    int notified = 0;
    weft_view_split_params_t params = {
        .colour = WEFT_NO_COLOUR, .on_ready = count_ready, .arg = &notified};
    CHECK_EQ(weft_view_split(view, &params), WEFT_OK);
    CHECK_EQ(notified, 0);
    while (!notified) weft_worker_wait(weft_view_worker(view), 1000);
    CHECK_EQ(weft_view_split(view, &params), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK); /* which waits for the split */
    CHECK_EQ(notified, 2);
}

static void note_end(weft_status_t status, void *arg) {
    if (status == WEFT_OK) ++*(unsigned *)arg;
}

TEST(parts_that_are_being_released_end_before_the_worker_that_they_share) {
    weft_view_t *whole = view_of_one(), *part[2];
    unsigned n_ended = 0;
    weft_op_t op = {.done = note_end, .arg = &n_ended};
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_view_split_wait(whole, 0, 0, &part[i]), WEFT_OK);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_view_release(part[i], &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_view_release(whole, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_view_release_wait(whole), WEFT_OK);
    CHECK_EQ(n_ended, 2);
}

TEST(the_last_part_of_a_view_with_a_worker_of_its_own_ends_by_a_wait) {
    weft_view_t *whole = view_of_one(), *part[2];
    unsigned n_ended = 0;
    weft_op_t op = {.done = note_end, .arg = &n_ended};
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_view_split_wait(whole, 0, 0, &part[i]), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(whole), WEFT_OK);
    CHECK_EQ(weft_view_release(part[0], &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_view_release(part[1], NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_view_release_wait(part[1]), WEFT_OK);
    CHECK_EQ(n_ended, 1);
}

TEST(what_only_a_wait_can_end_reports_so) {
    weft_view_t *view = view_of_one();
    CHECK_EQ(weft_view_release(view, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(an_engine_that_is_not_there_is_named) {
    weft_view_t *view = NULL;
    CHECK_EQ(weft_view_create_wait(&(weft_view_params_t){.engine = "none"}, &view),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_view_create_wait(&(weft_view_params_t){.engine = "weft-run"}, &view),
             WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_view_create_wait(&(weft_view_params_t){.engine = "store"}, &view),
             WEFT_ERR_NOT_FOUND);
    weft_view_params_t bad = {.engine = "store", .store = "no-such-engine", .size = 1};
    CHECK_EQ(weft_view_create_wait(&bad, &view), WEFT_ERR_INVALID_PARAM);
}

/* ---- several ------------------------------------------------------------------------------- */

static void meet(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    uint32_t sum = 0, mine = rank + 1;
    CHECK_EQ(weft_view_size(view), size);
    CHECK_EQ(weft_view_rank(view), rank);
    CHECK_EQ(weft_allreduce_wait(weft_view_team(view), &mine, &sum, 1, WEFT_UINT32, WEFT_SUM),
             WEFT_OK);
    CHECK_EQ(sum, size * (size + 1) / 2);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(processes_meet_at_a_store) {
    in_processes(4, meet);
}

/* As srun and other launchers set it, for a program that names nothing but the engine. */
static void meet_by_environment(const char *store, uint32_t rank, uint32_t size, const char *ranks,
                                const char *sizes) {
    char number[16];
    weft_view_t *view = NULL;
    const weft_view_params_t by_store = {.engine = "store"};
    bool is_found = strncmp(ranks, "WEFT", 4) == 0 || strncmp(ranks, "SLURM", 5) == 0;
    setenv("WEFT_STORE", store, 1);
    snprintf(number, sizeof number, "%u", rank);
    setenv(ranks, number, 1);
    snprintf(number, sizeof number, "%u", size);
    setenv(sizes, number, 1);
    CHECK_EQ(weft_view_create_wait(is_found ? NULL : &by_store, &view), WEFT_OK);
    CHECK_EQ(strcmp(weft_view_engine(view), "store"), 0);
    CHECK_EQ(weft_view_rank(view), rank);
    CHECK_EQ(weft_view_size(view), size);
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}
static void meet_as_slurm_tasks(const char *store, uint32_t rank, uint32_t size) {
    meet_by_environment(store, rank, size, "SLURM_PROCID", "SLURM_NTASKS");
}
static void meet_by_own_variables(const char *store, uint32_t rank, uint32_t size) {
    meet_by_environment(store, rank, size, "WEFT_RANK", "WEFT_SIZE");
}

TEST(tasks_of_a_slurm_step_meet_at_a_store) {
    in_processes(3, meet_as_slurm_tasks);
}

/* A batch script of Slurm is task 0 of its step, and so are all that it starts. */
static void be_in_a_batch_script(void) {
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "7", 1);
}
static void meet_by_mpirun(const char *store, uint32_t rank, uint32_t size) {
    be_in_a_batch_script();
    meet_by_environment(store, rank, size, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
}
static void meet_by_hydra(const char *store, uint32_t rank, uint32_t size) {
    be_in_a_batch_script();
    meet_by_environment(store, rank, size, "PMI_RANK", "PMI_SIZE");
}
static void meet_by_jsrun(const char *store, uint32_t rank, uint32_t size) {
    meet_by_environment(store, rank, size, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE");
}
TEST(processes_of_other_launchers_meet_at_a_store) {
    in_processes(3, meet_by_mpirun);
    in_processes(3, meet_by_hydra);
    in_processes(3, meet_by_jsrun);
}

TEST(the_environment_names_a_store_rank_and_size) {
    in_processes(3, meet_by_own_variables);
}

/* One of several processes must not be a view of one. */
TEST(a_rank_of_the_environment_that_is_no_number_is_refused) {
    static const char *const wrong[] = {"1x", "-1", " 1", "0x1", "99999999999999999999"};
    weft_view_t *view;
    setenv("WEFT_STORE", "127.0.0.1:1", 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("WEFT_RANK", wrong[i], 1);
        setenv("WEFT_SIZE", "2", 1);
        CHECK_EQ(weft_view_create_wait(NULL, &view), WEFT_ERR_INVALID_PARAM);
        setenv("WEFT_RANK", "1", 1);
        setenv("WEFT_SIZE", wrong[i], 1);
        CHECK_EQ(weft_view_create_wait(NULL, &view), WEFT_ERR_INVALID_PARAM);
    }
    unsetenv("WEFT_STORE");
    unsetenv("WEFT_RANK");
    unsetenv("WEFT_SIZE");
}

static void look_at_all(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *set;
    uint32_t sharers = 0;
    for (uint32_t r = 0; r < size; r++) {
        CHECK_EQ(weft_view_at_wait(view, r, false, &set), WEFT_OK);
        CHECK_EQ(set->rank, r);
        CHECK(weft_view_has(view, set));
        CHECK_EQ(set->pid == getpid(), r == rank);
        CHECK_EQ(set->host_id, weft_view_mine(view)->host_id);
    }
    CHECK_EQ(weft_view_count_ram_wait(view, set, &sharers), WEFT_OK);
    CHECK_EQ(sharers, size);
    CHECK_EQ(weft_view_count_node_wait(view, weft_view_mine(view), 0, &sharers), WEFT_OK);
    CHECK(sharers >= 1 && sharers <= size);
    CHECK_EQ(weft_view_count_node_wait(view, set, set->n_numa_nodes, &sharers),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_count_gpu_wait(view, set, set->n_gpus, &sharers), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(each_sees_the_sets_of_all_and_counts_sharers) {
    in_processes(3, look_at_all);
}

static void split_it(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size), *part = NULL, *host = NULL;
    bool out = rank == size - 1;
    uint32_t key = size - rank; /* the reverse order */
    CHECK_EQ(weft_view_split_wait(view, out ? WEFT_NO_COLOUR : rank % 2, key, &part), WEFT_OK);
    CHECK_EQ(part == NULL, out);
    if (part) {
        uint32_t n = weft_view_size(part), sum = 0, mine = rank;
        CHECK_EQ(n, 2);
        CHECK_EQ(weft_view_rank(part), rank < 2 ? 1 : 0);
        CHECK_EQ(weft_allreduce_wait(weft_view_team(part), &mine, &sum, 1, WEFT_UINT32, WEFT_SUM),
                 WEFT_OK);
        CHECK_EQ(sum, rank % 2 ? 1 + 3 : 0 + 2);
        CHECK(!weft_view_equal(part, view));
        CHECK(weft_view_has(view, weft_view_mine(part)));
    }
    CHECK_EQ(weft_view_partition_wait(view, WEFT_BY_GPU, &host), WEFT_OK);
    CHECK_EQ(host == NULL, weft_view_mine(view)->n_gpus == 0);
    CHECK_EQ(weft_view_release_wait(host), WEFT_OK);
    CHECK_EQ(weft_view_partition_wait(view, WEFT_BY_NUMA_NODE, &host), WEFT_OK);
    CHECK(weft_view_size(host) >= 1 && weft_view_size(host) <= size);
    CHECK(weft_view_has(host, weft_view_mine(view)));
    CHECK_EQ(weft_view_release_wait(host), WEFT_OK);
    CHECK_EQ(weft_view_partition_wait(view, WEFT_BY_HOST, &host), WEFT_OK);
    CHECK_EQ(weft_view_size(host), size);
    CHECK(weft_view_equal(host, view));
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK); /* the parts keep it */
    CHECK_EQ(weft_view_release_wait(host), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(part), WEFT_OK);
}

TEST(a_view_is_split_by_colour_and_key_and_by_host) {
    in_processes(5, split_it);
}

static int go_on[2]; /* a pipe: rank 1 waits for it */

static void note_part(weft_view_t *part, weft_status_t status, void *arg) {
    CHECK_EQ(weft_view_release(part, NULL) < 0, 0);
    *(weft_status_t *)arg = status;
}

/* Rank 1 gives its choice, and then makes no progress before rank 0 has left. */
static void split_late(const char *store, uint32_t rank, uint32_t size) {
    weft_worker_t *worker;
    weft_context_t *context;
    weft_view_t *view = NULL;
    weft_status_t status = WEFT_IN_PROGRESS;
    char byte;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), WEFT_OK);
    weft_view_params_t params = {.worker = worker,
                                 .engine = "store",
                                 .store = store,
                                 .rank = rank,
                                 .size = size,
                                 .deadline_ms = 60000};
    CHECK_EQ(weft_view_create_wait(&params, &view), WEFT_OK);
    CHECK_EQ(weft_view_split(view, &(weft_view_split_params_t){.on_ready = note_part,
                                                               .arg = &status,
                                                               .deadline_ms = rank ? 0 : 300}),
             WEFT_OK);
    if (rank == 1) CHECK_EQ(read(go_on[0], &byte, 1), 1);
    while (status == WEFT_IN_PROGRESS) weft_worker_wait(worker, -1);
    if (rank == 0) CHECK_EQ(status, WEFT_ERR_TIMED_OUT);
    CHECK(status < 0);
    weft_view_release_wait(view);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    if (rank == 0) CHECK_EQ(write(go_on[1], "", 1), 1);
}

TEST(a_split_ends_at_its_deadline_when_a_member_stops) {
    CHECK_EQ(pipe(go_on), 0);
    in_processes(2, split_late);
    close(go_on[0]);
    close(go_on[1]);
}

struct fetched {
    weft_status_t status;
    unsigned n;
};

static void note_fetched(weft_status_t status, void *arg) {
    struct fetched *fetched = arg;
    fetched->status = status;
    fetched->n++;
}

static void fetch_all(const char *store, uint32_t rank, uint32_t size) {
    setenv("WEFT_TRANSPORTS", "tcp", 1); /* nothing is mapped: a fetch takes a while */
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *set;
    struct fetched fetched = {0}, last = {0};
    weft_op_t op = {.done = note_fetched, .arg = &fetched};
    for (uint32_t r = 0; r < size; r++) {
        fetched.n = 0;
        weft_status_t st = weft_view_fetch(view, r, true, &op);
        CHECK_EQ(st, r == rank ? WEFT_OK : WEFT_IN_PROGRESS);
        CHECK_EQ(fetched.n, 0);
        while (r != rank && !fetched.n) weft_worker_wait(weft_view_worker(view), -1);
        CHECK(r == rank || fetched.status == WEFT_OK);
        CHECK_EQ(weft_view_fetch(view, r, false, NULL), WEFT_OK);
        CHECK_EQ(weft_view_at_wait(view, r, false, &set), WEFT_OK);
        CHECK_EQ(set->rank, r);
    }
    CHECK_EQ(weft_view_fetch(view, size, false, &op), WEFT_ERR_INVALID_PARAM);
    op.stream = &op;
    CHECK_EQ(weft_view_fetch(view, 0, true, &op), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    /* one that the view's end overtakes */
    weft_op_t late = {.done = note_fetched, .arg = &last};
    weft_status_t st = weft_view_fetch(view, (rank + 1) % size, true, &late);
    CHECK(st == WEFT_IN_PROGRESS || st < 0); /* its owner's view may have ended */
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(last.n, st == WEFT_IN_PROGRESS);
}

TEST(the_sets_of_others_are_fetched_by_operations) {
    in_processes(3, fetch_all);
}

static void expect_ends(const weft_device_info_t *devices, uint32_t n) {
    CHECK_EQ(n, WEFT_MAX_DEVICES);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(memchr(devices[i].name, 0, sizeof devices[i].name) != NULL);
        CHECK(memchr(devices[i].address, 0, sizeof devices[i].address) != NULL);
    }
}

static void expect_bounded(const weft_resource_set_t *set) {
    CHECK_EQ(set->n_cpus, WEFT_MAX_CPUS);
    CHECK_EQ(set->n_cores, WEFT_MAX_CPUS);
    CHECK_EQ(set->n_numa_nodes, WEFT_MAX_NODES);
    CHECK_EQ(set->n_caches, WEFT_MAX_CACHES);
    CHECK(memchr(set->host, 0, sizeof set->host) != NULL);
    CHECK(memchr(set->topology, 0, sizeof set->topology) != NULL);
    expect_ends(set->gpu, set->n_gpus);
    expect_ends(set->rdma_device, set->n_rdma_devices);
    expect_ends(set->network_device, set->n_network_devices);
}

/* The last rank writes 0xff over all that it exposes, but for its rank. */
static void expose_garbage(const char *store, uint32_t rank, uint32_t size) {
    static struct fetched fetched;
    weft_view_t *view = join(store, rank, size);
    weft_op_t op = {.done = note_fetched, .arg = &fetched};
    const weft_resource_set_t *set = weft_view_mine(view);
    if (rank == size - 1) {
        memset((void *)(uintptr_t)set, 0xff, sizeof *set);
        memcpy((void *)(uintptr_t)&set->rank, &rank, sizeof rank);
    }
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    if (rank < size - 1) {
        CHECK_EQ(weft_view_at_wait(view, size - 1, false, &set), WEFT_OK);
        expect_bounded(set);
        CHECK_EQ(weft_view_fetch(view, size - 1, true, &op), WEFT_IN_PROGRESS);
        while (!fetched.n) weft_worker_wait(weft_view_worker(view), -1);
        CHECK_EQ(fetched.status, WEFT_OK);
        CHECK_EQ(weft_view_at_wait(view, size - 1, false, &set), WEFT_OK);
        expect_bounded(set);
    }
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_set_of_garbage_stays_within_its_arrays) {
    in_processes(2, expose_garbage);
}

/* Ranks 1 and 2 say that they have a GPU, and not which. */
static void have_unknown_gpus(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    weft_resource_set_t *mine = (weft_resource_set_t *)(uintptr_t)weft_view_mine(view);
    const weft_resource_set_t *set;
    uint32_t sharers = 1;
    if (rank > 0) mine->n_gpus = 1, memset(mine->gpu, 0, sizeof mine->gpu);
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    if (rank == 0) {
        CHECK_EQ(weft_view_at_wait(view, 1, false, &set), WEFT_OK);
        CHECK_EQ(weft_view_count_gpu_wait(view, set, 0, &sharers), WEFT_OK);
        CHECK_EQ(sharers, 0);
    }
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(what_is_unknown_has_no_sharers) {
    in_processes(3, have_unknown_gpus);
}

static void watch_set(const volatile weft_resource_set_t *set) {
    while (set->pid && set->n_cpus && set->host_id) continue;
    _exit(1);
}

/* A device or a mapping reads it without the owner; so does a child, since it is shared memory. */
TEST(a_set_is_whole_while_its_owner_measures_itself) {
    weft_view_t *view = view_of_one();
    const weft_resource_set_t *set = weft_view_mine(view);
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) watch_set(set);
    for (int i = 0; i < 500; i++) CHECK(weft_view_mine(view) == set);
    CHECK_EQ(kill(child, SIGKILL), 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

/* Rank 1 writes 0xff over all that it exposes. */
static void fail_to_refresh(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *set = weft_view_mine(view);
    if (rank == 0) CHECK_EQ(weft_view_at_wait(view, 1, false, &set), WEFT_OK);
    weft_resource_set_t before = *set;
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    if (rank == 1) memset((void *)(uintptr_t)set, 0xff, sizeof *set);
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    const weft_resource_set_t *again = NULL;
    if (rank == 0) {
        CHECK_EQ(weft_view_at_wait(view, 1, true, &again), WEFT_ERR_PROTOCOL);
        CHECK_EQ(memcmp(set, &before, sizeof before), 0);
    }
    CHECK_EQ(weft_barrier_wait(weft_view_team(view)), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_refresh_that_fails_leaves_the_set_as_it_was) {
    in_processes(2, fail_to_refresh);
}

static void two_views(const char *store, uint32_t rank, uint32_t size) {
    char second[64], port[64];
    snprintf(port, sizeof port, "%s", strrchr(store, ':') + 1);
    weft_view_t *a = join(store, rank, size), *b = NULL;
    int reserved = rank == 0 ? store_address(second) : -1;
    CHECK_EQ(weft_bcast_wait(weft_view_team(a), second, sizeof second, WEFT_UINT8, 0), WEFT_OK);
    b = join(second, rank, size);
    CHECK(weft_view_equal(a, b));
    CHECK_EQ(weft_view_release_wait(rank % 2 ? a : b), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(rank % 2 ? b : a), WEFT_OK);
    if (reserved >= 0) close(reserved);
}

TEST(two_views_of_the_same_processes_end_in_any_order) {
    in_processes(2, two_views);
}

static _Atomic uint32_t *n_there; /* of the processes of the test */

static void die_before_the_others(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    const weft_resource_set_t *set;
    ++*n_there;
    while (rank == 1 && *n_there < size) sched_yield();
    if (rank == 1) _exit(0);
    weft_status_t st = weft_barrier_wait(weft_view_team(view));
    CHECK(st == WEFT_ERR_PEER_FAILED || st == WEFT_ERR_PEER_CLOSED);
    CHECK(weft_view_at_wait(view, 1, true, &set) < 0);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK); /* its finalizers had no error */
}

TEST(a_death_fails_operations_and_hinders_no_release) {
    n_there =
        mmap(NULL, sizeof *n_there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    in_processes(3, die_before_the_others);
}

TEST(a_creation_without_the_others_ends_by_its_deadline) {
    char store[64];
    weft_view_t *view = NULL;
    int reserved = store_address(store);
    for (uint32_t rank = 0; rank < 2; rank++) {
        weft_view_params_t params = {
            .engine = "store", .store = store, .rank = rank, .size = 2, .deadline_ms = 50};
        CHECK_EQ(weft_view_create_wait(&params, &view), WEFT_ERR_TIMED_OUT);
    }
    close(reserved);
}

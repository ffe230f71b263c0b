/* Task graphs over the members of a team: here workers of one process, driven in turn. */
#define _GNU_SOURCE
#include "../collectives/team.h"

#include <endpoints/messages/am.h>
#include <pthread.h>
#include <runtime/graph/graph.h>
#include <runtime/graph/results.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static weft_graph_t *graph[MOST_RANKS];

/* `inline_most`: bytes of a result that is sent; NULL: the default. */
static void graphs_up_with(struct crew *c, uint32_t size, const char *transports,
                           const char *inline_most) {
    weft_setting_t settings[] = {{"close.timeout", "20ms"}, {"graph.inline", inline_most}};
    crew_workers(c, size, transports, settings, inline_most ? 2 : 1);
    crew_teams(c);
    for (uint32_t r = 0; r < size; r++) {
        weft_graph_params_t params = {.n_threads = 2, .team = c->rank[r].team};
        CHECK_EQ(weft_graph_create(&params, &graph[r]), WEFT_OK);
    }
}

static void graphs_up(struct crew *c, uint32_t size, const char *transports) {
    graphs_up_with(c, size, transports, NULL);
}

static uint64_t count_all(struct crew *c, const char *counter) {
    uint64_t n = 0;
    for (uint32_t r = 0; r < c->size; r++) n += weft_worker_count(c->rank[r].worker, counter);
    return n;
}

static void graphs_down(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++)
        if (c->rank[r].team) weft_graph_destroy(graph[r]);
    crew_down(c);
}

static void run_all(struct crew *c) {
    for (uint32_t r = 0; r < c->size; r++) {
        if (!c->rank[r].team) continue;
        expect_outcome(&c->rank[r]);
        CHECK_EQ(weft_graph_run(graph[r], c->rank[r].worker, on_outcome, &c->rank[r]),
                 WEFT_IN_PROGRESS);
    }
}

/* The sum of its inputs, and `arg`. */
static weft_status_t add(weft_task_call_t *call) {
    uint64_t sum = (uintptr_t)call->arg;
    for (uint32_t i = 0; i < call->n_inputs; i++) sum += *(const uint64_t *)call->inputs[i];
    *(uint64_t *)call->result = sum;
    return WEFT_OK;
}

static void add_to_all(struct crew *c, const weft_task_params_t *params) {
    for (uint32_t r = 0; r < c->size; r++)
        CHECK_EQ(weft_graph_add(graph[r], params, NULL), WEFT_OK);
}

/* Each result is what a serial run makes, and some went to others. */
static void check_results(uint32_t n_tasks, const uint64_t *serial) {
    uint32_t seen = 0;
    for (uint32_t i = 0; i < n_tasks; i++) {
        uint32_t here = 0;
        for (uint32_t r = 0; r < 4; r++) {
            const void *data;
            size_t len;
            if (weft_graph_result(graph[r], i, &data, &len) < 0) continue;
            CHECK(len == 8 && *(const uint64_t *)data == serial[i]);
            here++;
        }
        CHECK(here >= 1);
        seen += here;
    }
    CHECK(seen > n_tasks);
}

/* `counter` counts what the results go by. */
static void run_random_graph(const char *transports, const char *inline_most, const char *counter) {
    enum { TASKS = 400 };
    struct crew c;
    static uint64_t serial[TASKS];
    uint32_t seed = 7;
    graphs_up_with(&c, 4, transports, inline_most);
    for (uint32_t i = 0; i < TASKS; i++) {
        weft_task_t inputs[3];
        uint32_t n = i ? rand_r(&seed) % 4 : 0;
        serial[i] = i;
        for (uint32_t k = 0; k < n; k++) {
            inputs[k] = rand_r(&seed) % i;
            serial[i] += serial[inputs[k]];
        }
        add_to_all(&c, &(weft_task_params_t){.fn = add,
                                             .arg = (void *)(uintptr_t)i,
                                             .inputs = inputs,
                                             .n_inputs = n,
                                             .result_size = 8,
                                             .on_rank = rand_r(&seed) % 2,
                                             .rank = rand_r(&seed) % 4});
    }
    uint64_t before = count_all(&c, counter);
    for (int again = 0; again < 3; again++) {
        run_all(&c);
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 4; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    }
    CHECK(count_all(&c, counter) - before > TASKS);
    check_results(TASKS, serial);
    graphs_down(&c);
}

TEST(a_random_graph_has_the_results_of_a_serial_run) {
    run_random_graph("self,shm", NULL, "am.sent");
    run_random_graph("self,tcp", NULL, "am.sent");
}

TEST(results_are_read_one_sidedly_where_they_lie) {
    run_random_graph("self,shm", "0", "rma.native");
    run_random_graph("self,tcp", "0", "rma.served");
}

enum { LARGE = 3 << 20 };

static weft_status_t fill(weft_task_call_t *call) {
    memset(call->result, 42, LARGE);
    return WEFT_OK;
}
static weft_status_t check_filled(weft_task_call_t *call) {
    const uint8_t *bytes = call->inputs[0];
    *(uint64_t *)call->result =
        call->input_lens[0] == LARGE && bytes[0] == 42 && bytes[LARGE - 1] == 42;
    return WEFT_OK;
}

TEST(a_large_result_goes_to_the_member_that_needs_it_and_tasks_go_where_data_is) {
    struct crew c;
    const void *data;
    size_t len;
    graphs_up(&c, 3, "self,shm");
    weft_task_t large = 0;
    add_to_all(&c,
               &(weft_task_params_t){.fn = fill, .result_size = LARGE, .on_rank = 1, .rank = 1});
    add_to_all(&c, &(weft_task_params_t){.fn = check_filled,
                                         .inputs = &large,
                                         .n_inputs = 1,
                                         .result_size = 8,
                                         .on_rank = 1,
                                         .rank = 2});
    add_to_all(&c, &(weft_task_params_t){
                       .fn = check_filled, .inputs = &large, .n_inputs = 1, .result_size = 8});
    run_all(&c);
    UNTIL(&c, all_notified(&c));
    CHECK_EQ(weft_graph_result(graph[2], 1, &data, &len), WEFT_OK);
    CHECK_EQ(*(const uint64_t *)data, 1);
    CHECK_EQ(weft_graph_result(graph[1], 2, &data, &len), WEFT_OK); /* where its input is made */
    CHECK_EQ(weft_graph_result(graph[0], 0, &data, &len), WEFT_ERR_NOT_FOUND);
    graphs_down(&c);
}

static weft_status_t refuse(weft_task_call_t *call) {
    return WEFT_ERR_TOO_BIG;
}

TEST(a_task_that_fails_ends_the_run_for_all_and_is_named) {
    struct crew c;
    weft_status_t status;
    const char *name;
    graphs_up(&c, 3, "self,shm");
    weft_task_t bad = 1;
    add_to_all(&c, &(weft_task_params_t){.fn = add, .result_size = 8, .on_rank = 1, .rank = 0});
    add_to_all(&c, &(weft_task_params_t){
                       .fn = refuse, .name = "refuses", .result_size = 8, .on_rank = 1, .rank = 1});
    add_to_all(
        &c,
        &(weft_task_params_t){
            .fn = add, .inputs = &bad, .n_inputs = 1, .result_size = 8, .on_rank = 1, .rank = 2});
    for (int again = 0; again < 3; again++) {
        run_all(&c);
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 3; r++) {
            CHECK_EQ(c.rank[r].outcome, WEFT_ERR_TOO_BIG);
            CHECK_EQ(weft_graph_failed(graph[r], &name, &status), bad);
            CHECK(strcmp(name, "refuses") == 0 && status == WEFT_ERR_TOO_BIG);
        }
    }
    graphs_down(&c);
}

TEST(a_member_that_is_lost_ends_the_run_of_the_others) {
    for (int turns = 0; turns < 6; turns++) {
        struct crew c;
        weft_task_t first = 0;
        graphs_up(&c, 3, "self,shm");
        add_to_all(&c, &(weft_task_params_t){.fn = add, .result_size = 8, .on_rank = 1, .rank = 2});
        for (uint32_t r = 0; r < 3; r++)
            add_to_all(&c, &(weft_task_params_t){.fn = add,
                                                 .inputs = &first,
                                                 .n_inputs = 1,
                                                 .result_size = 8,
                                                 .on_rank = 1,
                                                 .rank = r});
        c.size = 2; /* rank 2 never starts */
        run_all(&c);
        c.size = 3;
        for (int k = 0; k < turns; k++) crew_turn(&c);
        weft_graph_destroy(graph[2]);
        vanish(&c, 2);
        UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
        for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_PEER_FAILED);
        graphs_down(&c);
    }
}

/* The run would go on with the tasks of the lost member. */
TEST(a_deadline_that_passes_while_a_run_recovers_ends_it) {
    enum { DEADLINE_MS = 300 };
    struct crew c;
    graphs_up(&c, 3, "self,shm");
    for (uint32_t r = 0; r < 3; r++)
        add_to_all(&c, &(weft_task_params_t){
                           .fn = add, .result_size = 8, .retries = 1, .on_rank = 1, .rank = r});
    CHECK_EQ(weft_graph_set_deadline(graph[0], DEADLINE_MS), WEFT_OK);
    c.size = 2; /* rank 2 never starts */
    run_all(&c);
    c.size = 3;
    weft_graph_destroy(graph[2]);
    vanish(&c, 2);
    UNTIL(&c, graph[0]->ranks->recovery);
    usleep(DEADLINE_MS * 1000);
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_TIMED_OUT);
    graphs_down(&c);
}

/* What a member needs for that it has from the beginning of the run. True: the k-th allocation was
 * not reached. */
static bool recovers(uint64_t k) {
    struct crew c;
    graphs_up(&c, 3, "self,shm");
    for (uint32_t r = 0; r < 3; r++)
        add_to_all(&c, &(weft_task_params_t){
                           .fn = add, .result_size = 8, .retries = 1, .on_rank = 1, .rank = r});
    c.size = 2; /* rank 2 never starts */
    run_all(&c);
    c.size = 3;
    weft_graph_destroy(graph[2]);
    vanish(&c, 2);
    weft__alloc_fail_at(k);
    UNTIL(&c, (graph[0]->ranks->recovery && graph[1]->ranks->recovery) ||
                  (c.rank[0].outcome_calls && c.rank[1].outcome_calls));
    bool whole = weft__alloc_fail_at(0) < k;
    UNTIL(&c, c.rank[0].outcome_calls && c.rank[1].outcome_calls);
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    graphs_down(&c);
    return whole;
}

TEST(a_member_that_lacks_memory_when_another_is_lost_recovers) {
    uint64_t k = 1;
    while (!recovers(k)) CHECK(++k < 1000);
    printf("  %llu allocations\n", (unsigned long long)k);
}

/* ---- transient results ----------------------------------------------------------------------- */

enum { LINKS = 96, LINK_BYTES = 1 << 20 };

static weft_status_t pass_on(weft_task_call_t *call) {
    const uint8_t *from = call->n_inputs ? call->inputs[0] : NULL;
    for (size_t i = 0; i < LINK_BYTES; i++) ((uint8_t *)call->result)[i] = from ? from[i] + 1 : 1;
    return WEFT_OK;
}

static long shared_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "RssShmem: %ld", &kib);
    fclose(status);
    return kib;
}

/* A chain from member to member; only its last result stays. `pinned`: as if an RDMA device had the
 * memory registered. Returns the growth of memory, KiB. */
static long run_chain(const char *transports, int transient, bool pinned) {
    struct crew c;
    const void *data;
    size_t len;
    graphs_up(&c, 3, transports);
    for (uint32_t r = 0; r < 3; r++) graph[r]->ranks->pinned = pinned;
    for (uint32_t i = 0; i < LINKS; i++) {
        weft_task_t before = i - 1;
        add_to_all(&c, &(weft_task_params_t){.fn = pass_on,
                                             .inputs = &before,
                                             .n_inputs = i > 0,
                                             .result_size = LINK_BYTES,
                                             .transient = transient,
                                             .on_rank = 1,
                                             .rank = i % 3});
    }
    long kib = shared_kib();
    for (int again = 0; again < 2; again++) {
        run_all(&c);
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 3; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK_EQ(weft_graph_result(graph[(LINKS - 1) % 3], LINKS - 1, &data, &len), WEFT_OK);
        for (size_t i = 0; i < LINK_BYTES; i++) CHECK_EQ(((const uint8_t *)data)[i], LINKS);
        CHECK_EQ(weft_graph_result(graph[0], 0, &data, &len),
                 transient ? WEFT_ERR_NOT_FOUND : WEFT_OK);
        for (int k = 0; k < 100; k++) crew_turn(&c); /* the last notices that a result is taken */
    }
    kib = shared_kib() - kib;
    graphs_down(&c);
    return kib;
}

TEST(memory_of_transient_results_is_given_back_when_their_consumers_are_done) {
    CHECK(run_chain("self,shm", 0, false) > LINKS * 1024);
    CHECK(run_chain("self,shm", 1, false) < LINKS * 1024 / 4);
    CHECK(run_chain("self,tcp", 1, false) < LINKS * 1024 / 4);
}

/* It would read and write the pages of before. */
TEST(memory_that_a_device_has_registered_is_not_given_back) {
    CHECK(run_chain("self,shm", 1, true) > LINKS * 1024);
}

TEST(only_a_worker_with_rdma_registers_results) {
    static const char *const transports[] = {"self,shm,tcp", "rdma_rc"};
    for (int i = 0; i < 2; i++) {
        weft_setting_t setting = {"transports", transports[i]};
        weft_context_params_t params = {.settings = &setting, .n_settings = 1};
        weft_context_t *context;
        weft_worker_t *worker;
        CHECK_EQ(weft_context_create(&params, &context), WEFT_OK);
        bool there = weft_worker_create(context, NULL, &worker) == WEFT_OK;
        if (there) CHECK_EQ(weft__results_pinned(worker), i == 1);
        if (there) weft_worker_destroy(worker);
        CHECK_EQ(weft_context_destroy(context), WEFT_OK);
        if (!there) SKIP("no RDMA device here");
    }
}

TEST(memory_of_transient_results_is_given_back_in_one_process_too) {
    weft_graph_t *alone;
    const void *data;
    size_t len;
    weft_task_t first, second;
    CHECK_EQ(weft_graph_create(NULL, &alone), WEFT_OK);
    weft_task_params_t params = {.fn = fill, .result_size = LARGE, .transient = 1};
    CHECK_EQ(weft_graph_add(alone, &params, &first), WEFT_OK);
    CHECK_EQ(weft_graph_add(alone,
                            &(weft_task_params_t){.fn = check_filled,
                                                  .inputs = &first,
                                                  .n_inputs = 1,
                                                  .result_size = 8,
                                                  .transient = 1},
                            &second),
             WEFT_OK);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(weft_graph_run_wait(alone), WEFT_OK);
        CHECK_EQ(weft_graph_result(alone, first, &data, &len), WEFT_ERR_NOT_FOUND);
        CHECK_EQ(weft_graph_result(alone, second, &data, &len), WEFT_OK); /* it has no successor */
        CHECK_EQ(*(const uint64_t *)data, 1);
    }
    weft_graph_destroy(alone);
}

static weft_status_t wait_a_while(weft_task_call_t *call) {
    struct timespec ms = {0, 20000000};
    nanosleep(&ms, NULL);
    return WEFT_OK;
}

TEST(a_cancel_at_one_member_ends_the_run_of_all) {
    struct crew c;
    graphs_up(&c, 3, "self,shm");
    for (uint32_t i = 0; i < 60; i++) add_to_all(&c, &(weft_task_params_t){.fn = wait_a_while});
    run_all(&c);
    for (int i = 0; i < 100; i++) crew_turn(&c);
    weft_graph_cancel(graph[1]);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 3; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_ERR_CANCELLED);
        CHECK_EQ(weft_graph_failed(graph[r], NULL, NULL), WEFT_NO_TASK);
    }
    graphs_down(&c);
}

static atomic_bool may_end;

static weft_status_t wait_for_leave(weft_task_call_t *call) {
    while (!atomic_load(&may_end)) usleep(1000);
    return WEFT_OK;
}

/* Rank 1 waits for a result of rank 0, whose task ends after the deadline of rank 1. */
TEST(a_deadline_at_one_member_ends_the_run_of_all) {
    struct crew c;
    graphs_up(&c, 2, "self,shm");
    weft_task_t first = 0;
    atomic_store(&may_end, false);
    add_to_all(&c, &(weft_task_params_t){.fn = wait_for_leave, .result_size = 8, .on_rank = 1});
    add_to_all(
        &c,
        &(weft_task_params_t){
            .fn = add, .inputs = &first, .n_inputs = 1, .result_size = 8, .on_rank = 1, .rank = 1});
    CHECK_EQ(weft_graph_set_deadline(graph[1], 20), WEFT_OK);
    run_all(&c);
    CHECK_EQ(weft_graph_set_deadline(graph[1], 20), WEFT_ERR_BUSY);
    UNTIL(&c, atomic_load(&graph[0]->stop) < 0); /* it has received that */
    atomic_store(&may_end, true);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(weft_graph_set_deadline(graph[1], 600000), WEFT_OK);
    run_all(&c);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    graphs_down(&c);
}

static atomic_uint n_behind;

static weft_status_t count_behind(weft_task_call_t *call) {
    atomic_fetch_add(&n_behind, 1);
    return WEFT_OK;
}

/* Rank 0 runs one task behind another; rank 1 has none, and waits for the end of the run. */
static void begin_with_an_idle_member(struct crew *c) {
    weft_task_t first = 0;
    graphs_up(c, 2, "self,shm");
    atomic_store(&may_end, false);
    atomic_store(&n_behind, 0);
    add_to_all(c, &(weft_task_params_t){.fn = wait_for_leave, .on_rank = 1});
    add_to_all(c, &(weft_task_params_t){
                      .fn = count_behind, .inputs = &first, .n_inputs = 1, .on_rank = 1});
}

TEST(a_cancel_at_a_member_without_tasks_ends_the_run_of_all) {
    struct crew c;
    begin_with_an_idle_member(&c);
    run_all(&c);
    UNTIL(&c, graph[1]->ranks->begun && atomic_load(&graph[1]->n_left) == 0);
    for (int i = 0; i < 50; i++) crew_turn(&c);
    weft_graph_cancel(graph[1]);
    UNTIL(&c, atomic_load(&graph[0]->stop) < 0); /* it has received that */
    atomic_store(&may_end, true);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_CANCELLED);
    CHECK_EQ(atomic_load(&n_behind), 0);
    graphs_down(&c);
}

TEST(a_deadline_at_a_member_without_tasks_ends_the_run_of_all) {
    struct crew c;
    begin_with_an_idle_member(&c);
    CHECK_EQ(weft_graph_set_deadline(graph[1], 20), WEFT_OK);
    run_all(&c);
    UNTIL(&c, atomic_load(&graph[0]->stop) < 0); /* it has received that */
    atomic_store(&may_end, true);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(atomic_load(&n_behind), 0);
    graphs_down(&c);
}

/* Each turn is one in which the cancel may come. */
TEST(a_cancel_at_the_end_has_one_outcome_for_all) {
    for (int turns = 0; turns < 12; turns++) {
        struct crew c;
        begin_with_an_idle_member(&c);
        atomic_store(&may_end, true);
        run_all(&c);
        UNTIL(&c, graph[0]->ranks->begun && atomic_load(&graph[0]->n_left) == 0);
        for (int i = 0; i < turns && !all_notified(&c); i++) crew_turn(&c);
        weft_graph_cancel(graph[1]);
        UNTIL(&c, all_notified(&c));
        CHECK_EQ(c.rank[0].outcome, c.rank[1].outcome);
        graphs_down(&c);
    }
}

TEST(a_cancel_before_all_have_begun_ends_the_run_of_all) {
    struct crew c;
    graphs_up(&c, 3, "self,shm");
    weft_task_t first = 0;
    add_to_all(&c, &(weft_task_params_t){.fn = add, .result_size = 8, .on_rank = 1, .rank = 1});
    for (uint32_t r = 0; r < 3; r++)
        add_to_all(&c, &(weft_task_params_t){.fn = add,
                                             .inputs = &first,
                                             .n_inputs = 1,
                                             .result_size = 8,
                                             .on_rank = 1,
                                             .rank = r});
    for (int again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < 3; i++) {
            struct rank *r = &c.rank[(i + 1) % 3]; /* member 1 is the first */
            expect_outcome(r);
            CHECK_EQ(weft_graph_run(graph[(i + 1) % 3], r->worker, on_outcome, r),
                     WEFT_IN_PROGRESS);
            if (i == 0) weft_graph_cancel(graph[1]);
            for (int k = 0; k < 50; k++) crew_turn(&c);
        }
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 3; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_CANCELLED);
    }
    graphs_down(&c);
}

static void no_part(weft_team_t *team, weft_status_t status, void *arg) {
    ((struct rank *)arg)->ready_calls++;
}

/* One member is refused, and calls again: results of this run are those of its second call. */
TEST(a_run_that_was_refused_leaves_the_next_one_as_it_was) {
    struct crew c;
    graphs_up(&c, 2, "self,shm");
    weft_task_t first = 0;
    add_to_all(&c, &(weft_task_params_t){.fn = add, .result_size = 8, .on_rank = 1, .rank = 1});
    add_to_all(
        &c,
        &(weft_task_params_t){
            .fn = add, .inputs = &first, .n_inputs = 1, .result_size = 8, .on_rank = 1, .rank = 0});
    for (uint32_t r = 0; r < 2; r++) {
        weft_team_params_t params = {.on_ready = no_part, .arg = &c.rank[r]};
        c.rank[r].ready_calls = 0;
        CHECK_EQ(weft_team_split(c.rank[r].team, WEFT_NO_COLOUR, 0, &params), WEFT_OK);
        if (r == 0)
            CHECK_EQ(weft_graph_run(graph[0], c.rank[0].worker, on_outcome, &c.rank[0]),
                     WEFT_ERR_BUSY);
    }
    UNTIL(&c, c.rank[0].ready_calls && c.rank[1].ready_calls);
    run_all(&c);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    graphs_down(&c);
}

TEST(collectives_of_the_program_may_stand_between_a_begin_and_an_end) {
    struct crew c;
    struct rank barrier[3];
    graphs_up(&c, 3, "self,shm");
    for (uint32_t r = 0; r < 3; r++)
        add_to_all(&c, &(weft_task_params_t){.fn = add, .result_size = 8, .on_rank = 1, .rank = r});
    for (int again = 0; again < 3; again++) {
        for (uint32_t i = 0; i < 6; i++) { /* each member in another order */
            uint32_t r = i % 3;
            if ((i < 3) == (r == 1)) {
                expect_outcome(&barrier[r]);
                posted(&barrier[r], weft_barrier(c.rank[r].team, OP_OF(&barrier[r])));
            } else {
                expect_outcome(&c.rank[r]);
                CHECK_EQ(weft_graph_run(graph[r], c.rank[r].worker, on_outcome, &c.rank[r]),
                         WEFT_IN_PROGRESS);
            }
            for (int k = 0; k < 30; k++) crew_turn(&c);
        }
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 3; r++) {
            UNTIL(&c, barrier[r].outcome_calls);
            CHECK(c.rank[r].outcome == WEFT_OK && barrier[r].outcome == WEFT_OK);
        }
    }
    graphs_down(&c);
}

TEST(a_task_runs_on_the_host_of_a_member) {
    struct crew c;
    const void *data;
    size_t len;
    graphs_up(&c, 3, "self,shm");
    for (uint32_t i = 0; i < 3; i++)
        add_to_all(&c,
                   &(weft_task_params_t){.fn = add, .result_size = 8, .on_host = 1, .host = 2 - i});
    weft_task_params_t absent = {.fn = add, .on_host = 1, .host = 3};
    CHECK_EQ(weft_graph_add(graph[0], &absent, NULL), WEFT_ERR_INVALID_PARAM);
    run_all(&c);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 3; r++) /* all are on one host: they share its tasks */
        CHECK_EQ(weft_graph_result(graph[r], r, &data, &len), WEFT_OK);
    graphs_down(&c);
}

/* Two results that together have as many bytes as the address space, and some that exist. */
TEST(results_that_no_memory_holds_are_refused) {
    static const size_t sizes[][3] = {{SIZE_MAX - 7, 1 << 20, 0},
                                      {SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1, 1 << 20}};
    for (int transient = 0; transient < 2; transient++)
        for (size_t i = 0; i < 2; i++) {
            struct crew c;
            graphs_up(&c, 1, "self");
            for (size_t k = 0; k < 3; k++)
                add_to_all(&c, &(weft_task_params_t){
                                   .fn = add, .result_size = sizes[i][k], .transient = transient});
            CHECK_EQ(weft_graph_run(graph[0], c.rank[0].worker, on_outcome, &c.rank[0]),
                     WEFT_ERR_NO_MEMORY);
            graphs_down(&c);
        }
}

TEST(a_rank_is_refused_where_there_is_none) {
    struct crew c;
    weft_graph_t *alone;
    weft_task_params_t params = {.fn = add, .result_size = 8, .on_rank = 1, .rank = 2};
    graphs_up(&c, 2, "self,shm");
    CHECK_EQ(weft_graph_add(graph[0], &params, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_graph_create(NULL, &alone), WEFT_OK);
    CHECK_EQ(weft_graph_add(alone, &params, NULL), WEFT_ERR_INVALID_PARAM);
    weft_graph_destroy(alone);
    run_all(&c); /* without tasks */
    UNTIL(&c, all_notified(&c));
    CHECK(c.rank[0].outcome == WEFT_OK && c.rank[1].outcome == WEFT_OK);
    graphs_down(&c);
}

static weft_status_t note_gpu(weft_task_call_t *call) {
    *(uint64_t *)call->result = call->gpu;
    return WEFT_OK;
}

static uint64_t value_at(uint32_t rank, weft_task_t task) {
    const void *data = NULL;
    size_t len = 0;
    CHECK_EQ(weft_graph_result(graph[rank], task, &data, &len), WEFT_OK);
    return *(const uint64_t *)data;
}

/* Rank 1 has a GPU. The member that is to run a task refuses it, or not. */
TEST(a_task_needs_a_gpu_only_at_the_member_that_runs_it) {
    struct crew c;
    graphs_up(&c, 2, "self,shm");
    weft_graph_destroy(graph[0]);
    weft_graph_destroy(graph[1]);
    for (uint32_t r = 0; r < 2; r++)
        CHECK_EQ(
            weft_graph_create(
                &(weft_graph_params_t){.n_threads = 1 + r, .team = c.rank[r].team, .n_gpus = r},
                &graph[r]),
            WEFT_OK);
    weft_task_params_t task = {.fn = note_gpu, .result_size = 8, .on_rank = 1, .rank = 0};
    task.on_gpu = WEFT_GPU_REQUIRED;
    CHECK_EQ(weft_graph_add(graph[0], &task, NULL), WEFT_ERR_NOT_FOUND);
    for (task.rank = 0; task.rank < 2; task.rank++) {
        task.on_gpu = task.rank ? WEFT_GPU_REQUIRED : WEFT_GPU_PREFERRED;
        add_to_all(&c, &task);
        task.on_gpu = WEFT_GPU_PREFERRED;
        add_to_all(&c, &task);
    }
    task.on_gpu = 0;
    task.rank = 1;
    task.cores = 2; /* more threads than rank 0 has */
    add_to_all(&c, &task);
    run_all(&c);
    UNTIL(&c, all_notified(&c));
    CHECK(c.rank[0].outcome == WEFT_OK && c.rank[1].outcome == WEFT_OK);
    CHECK(value_at(0, 0) == WEFT_NO_GPU && value_at(0, 1) == WEFT_NO_GPU);
    CHECK(value_at(1, 2) == 0 && value_at(1, 3) == 0 && value_at(1, 4) == WEFT_NO_GPU);
    graphs_down(&c);
}

static atomic_bool may_end;

static weft_status_t end_when_permitted(weft_task_call_t *call) {
    while (!atomic_load(&may_end)) usleep(100);
    *(uint64_t *)call->result = 7;
    return WEFT_OK;
}

/* What `ep` leads to has it when this returns. */
static void send_wrong(struct crew *c, weft_worker_t *outsider, weft_ep_t *ep, unsigned id,
                       const struct graph_wire *wire) {
    static uint64_t wrong = 13;
    weft_iov_t iov = {&wrong, sizeof wrong};
    weft_op_t op = {.flags = WEFT_AM_EAGER};
    struct rank flushed = {0};
    struct am_send_args args = {id, wire, sizeof *wire, &iov, 1, &op};
    CHECK(weft__am_send(ep, &args) >= 0);
    posted(&flushed,
           weft_ep_flush(
               ep, &(weft_op_t){.done = on_outcome, .arg = &flushed, .flags = WEFT_FLUSH_REMOTE}));
    UNTIL(c, (weft_worker_progress(outsider, 0), flushed.outcome_calls == 1));
    CHECK_EQ(flushed.outcome, WEFT_OK);
}

TEST(a_result_counts_from_the_member_that_runs_the_task_and_no_other_worker_stops_a_run) {
    struct crew c;
    weft_worker_t *outsider;
    weft_ep_t *ep;
    char address[256];
    size_t len = sizeof address;
    weft_task_t first = 0;
    graphs_up(&c, 3, "self,shm");
    add_to_all(&c, &(weft_task_params_t){.fn = end_when_permitted, .result_size = 8, .on_rank = 1});
    add_to_all(
        &c,
        &(weft_task_params_t){
            .fn = add, .inputs = &first, .n_inputs = 1, .result_size = 8, .on_rank = 1, .rank = 1});
    CHECK_EQ(
        weft_worker_create(c.context, &(weft_worker_params_t){.transports = "self,shm"}, &outsider),
        WEFT_OK);
    CHECK_EQ(weft_worker_address(c.rank[1].worker, address, &len), WEFT_OK);
    CHECK_EQ(weft_connect_address(outsider, address, len, NULL, &ep), WEFT_OK);
    atomic_store(&may_end, false);
    run_all(&c);
    UNTIL(&c, graph[0]->ranks->begun && graph[1]->ranks->begun && graph[2]->ranks->begun);
    struct graph_wire wire = weft__graph_wire(graph[1]->ranks, 0);
    wire.status = WEFT_ERR_CANCELLED;
    send_wrong(&c, outsider, ep, GRAPH_WIRE_STOP, &wire);
    send_wrong(&c, outsider, ep, GRAPH_WIRE_RESULT, &wire);
    send_wrong(&c, outsider, weft_team_ep(c.rank[2].team, 1), GRAPH_WIRE_RESULT, &wire);
    CHECK(!c.rank[0].outcome_calls && !c.rank[1].outcome_calls);
    atomic_store(&may_end, true);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 3; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    CHECK_EQ(value_at(1, 1), 7);
    weft_worker_destroy(outsider);
    graphs_down(&c);
}

static void destroy_first(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_graph_destroy(graph[0]);
    graph[0] = NULL;
}

TEST(a_graph_that_is_destroyed_within_a_callback_stays_until_its_run_has_ended) {
    struct crew c;
    graphs_up(&c, 2, "self,shm");
    add_to_all(&c, &(weft_task_params_t){.fn = end_when_permitted, .result_size = 8, .on_rank = 1});
    atomic_store(&may_end, false);
    CHECK_EQ(weft_am_handler_set(c.rank[0].worker, 5, destroy_first, NULL), WEFT_OK);
    run_all(&c);
    UNTIL(&c, graph[0]->ranks->begun && graph[1]->ranks->begun);
    CHECK(weft_am_send(weft_team_ep(c.rank[1].team, 0), 5, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&c, !graph[0]);
    CHECK_EQ(c.rank[0].outcome_calls, 0);
    atomic_store(&may_end, true);
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_ERR_CANCELLED);
    graphs_down(&c);
}

static void *destroy_elsewhere(void *arg) {
    weft_graph_destroy(arg);
    return NULL;
}

/* Only the thread of the worker can end a run, or wait for its end. */
TEST(a_graph_that_another_thread_destroys_stays_as_it_was) {
    struct crew c;
    pthread_t other;
    graphs_up(&c, 2, "self,shm");
    add_to_all(&c, &(weft_task_params_t){.fn = end_when_permitted, .result_size = 8, .on_rank = 1});
    atomic_store(&may_end, false);
    run_all(&c);
    UNTIL(&c, graph[0]->ranks->begun && graph[1]->ranks->begun);
    for (int runs = 1; runs >= 0; runs--) {
        struct timespec end;
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 20;
        CHECK_EQ(pthread_create(&other, NULL, destroy_elsewhere, graph[0]), 0);
        CHECK_EQ(pthread_timedjoin_np(other, NULL, &end), 0);
        atomic_store(&may_end, true);
        UNTIL(&c, all_notified(&c));
        for (uint32_t r = 0; r < 2; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    }
    graphs_down(&c);
}

/* Task graphs over the members of a team: here workers of one process, driven in turn. */
#include "../collectives/team.h"

#include <stdlib.h>

static weft_graph_t *graph[MOST_RANKS];

static void graphs_up(struct crew *c, uint32_t size, const char *transports) {
    crew_up(c, size, transports, "close.timeout", "20ms");
    for (uint32_t r = 0; r < size; r++) {
        weft_graph_params_t params = {.n_threads = 2, .team = c->rank[r].team};
        CHECK_EQ(weft_graph_create(&params, &graph[r]), WEFT_OK);
    }
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

TEST(a_random_graph_has_the_results_of_a_serial_run) {
    enum { TASKS = 400 };
    static const char *const ways[] = {"self,shm", "self,tcp"};
    for (unsigned way = 0; way < 2; way++) {
        struct crew c;
        static uint64_t serial[TASKS];
        uint32_t seed = 7 + way, seen = 0;
        graphs_up(&c, 4, ways[way]);
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
        for (int again = 0; again < 3; again++) {
            run_all(&c);
            UNTIL(&c, all_notified(&c));
            for (uint32_t r = 0; r < 4; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        }
        for (uint32_t i = 0; i < TASKS; i++) {
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
        CHECK(seen > TASKS); /* some went to others */
        graphs_down(&c);
    }
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

/* A program and a second library on the same two workers, with the same ids and tags. */
#include "second_library/second.h"
#include "shared.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ID = 1, TAG = 1, MARK = 0xf1257, IN_FLIGHT = 1024 };
/* From each of the four to its peer: two hundred and fifty thousand; under a sanitizer too. */
enum { NUMBERS = 250000 };

struct number {
    uint32_t mark, value;
};

/* The program's side at one worker. */
struct program {
    weft_worker_t *worker;
    weft_ep_t *ep;
    uint32_t sent, even, odd;
    atomic_uint wrong;
    atomic_size_t received, in_flight;
    struct number in, out[IN_FLIGHT];
};

static void take(struct program *p, const struct number *n, uint32_t *expected) {
    if (n->mark != MARK || n->value != *expected) p->wrong++;
    *expected += 2;
    p->received++;
}
static void on_number(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct program *p = arg;
    take(p, am->data, &p->even);
}
static void on_tagged(weft_status_t status, void *arg);
static void receive(struct program *p) {
    weft_iov_t iov = {&p->in, sizeof p->in};
    weft_op_t op = {.done = on_tagged, .arg = p};
    while (weft_tag_recv(p->worker, TAG, ~0ull, &iov, 1, NULL, &op) == WEFT_OK)
        take(p, &p->in, &p->odd);
}
static void on_tagged(weft_status_t status, void *arg) {
    struct program *p = arg;
    if (status != WEFT_OK) return;
    take(p, &p->in, &p->odd);
    receive(p);
}
static void on_sent(weft_status_t status, void *arg) {
    struct program *p = arg;
    p->in_flight--;
    p->wrong += status < 0;
}
static void send_number(struct program *p) {
    struct number *n = &p->out[p->sent % IN_FLIGHT];
    weft_iov_t iov = {n, sizeof *n};
    weft_op_t op = {.done = on_sent, .arg = p};
    if (p->in_flight == IN_FLIGHT) return;
    *n = (struct number){MARK, p->sent};
    p->in_flight++;
    weft_status_t st = n->value & 1 ? weft_tag_send(p->ep, TAG, &iov, 1, &op)
                                    : weft_am_send(p->ep, ID, NULL, 0, &iov, 1, &op);
    CHECK(st >= 0);
    if (st != WEFT_IN_PROGRESS) p->in_flight--;
    p->sent++;
}

struct world {
    struct two two;
    struct program program[2];
    struct second *second[2];
    weft_resource_t *resource[2];
};

static void dial(struct world *w) {
    char address[256];
    for (int i = 0; i < 2; i++) {
        size_t len = sizeof address;
        CHECK_EQ(weft_worker_address(w->program[!i].worker, address, &len), 0);
        CHECK_EQ(weft_connect_address(w->program[i].worker, address, len, NULL, &w->program[i].ep),
                 0);
        len = sizeof address;
        CHECK_EQ(second_address(w->second[!i], address, &len), 0);
        CHECK_EQ(second_connect(w->second[i], address, len), 0);
    }
}

static void world_begin(struct world *w) {
    for (int i = 0; i < 2; i++) {
        struct program *p = &w->program[i];
        p->worker = i ? w->two.b : w->two.a;
        p->odd = 1;
        CHECK_EQ(weft_am_handler_set(p->worker, ID, on_number, p), 0);
        receive(p);
        w->resource[i] = worker_resource(p->worker);
        CHECK_EQ(second_open(w->resource[i], NULL, &w->second[i]), 0);
    }
    dial(w);
}

static void world_up(struct world *w) {
    memset(w, 0, sizeof *w);
    two_workers(&w->two, "shm", NULL, 0);
    world_begin(w);
}

static void world_down(struct world *w) {
    for (int i = 0; i < 2; i++) {
        second_close(w->second[i]);
        CHECK_EQ(weft_resource_release(w->resource[i]), 0);
    }
    two_down(&w->two);
}

/* Both send to each other at once, a few numbers a turn. */
TEST(a_million_messages_of_two_libraries_never_meet) {
    struct world w;
    world_up(&w);
    size_t n = 0;
    while (n < 4 * (size_t)NUMBERS) {
        n = 0;
        for (int i = 0; i < 2; i++) {
            for (int k = 0; k < 32 && w.program[i].sent < NUMBERS; k++) send_number(&w.program[i]);
            for (int k = 0; k < 32 && second_sent(w.second[i]) < NUMBERS; k++) {
                weft_status_t st = second_send(w.second[i]);
                CHECK(st == WEFT_OK || st == WEFT_ERR_BUSY);
            }
            n += w.program[i].received + second_received(w.second[i]);
            CHECK(!w.program[i].wrong && second_received(w.second[i]) != SIZE_MAX);
        }
        two_turn(&w.two);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(w.program[i].received, NUMBERS);
        CHECK_EQ(second_received(w.second[i]), NUMBERS);
    }
    world_down(&w);
}

/* ---- threads --------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__)
enum { POSTED = 25000 }; /* of each */
#else
enum { POSTED = 250000 };
#endif

static void *program_sends(void *arg) {
    struct program *p = arg;
    while (p->sent < POSTED && !p->wrong) {
        if (p->in_flight == IN_FLIGHT)
            sched_yield();
        else
            send_number(p);
    }
    return NULL;
}
static void *library_sends(void *arg) {
    while (second_sent(arg) < POSTED) {
        weft_status_t st = second_send(arg);
        if (st == WEFT_ERR_BUSY) sched_yield();
        if (st < 0 && st != WEFT_ERR_BUSY) return "refused";
    }
    return NULL;
}

static weft_worker_t *multiple_worker(weft_context_t *context) {
    weft_worker_t *worker;
    weft_worker_params_t params = {.transports = "shm", .thread_mode = WEFT_THREAD_MULTIPLE};
    CHECK_EQ(weft_worker_create(context, &params, &worker), 0);
    return worker;
}

/* Each worker has a thread of its own. The program and the library send from threads that own
 * none. */
TEST(messages_of_two_libraries_never_meet_when_threads_send_them) {
    static struct world w;
    pthread_t thread[4];
    memset(&w, 0, sizeof w);
    CHECK_EQ(weft_context_create(NULL, &w.two.context), 0);
    w.two.a = multiple_worker(w.two.context);
    w.two.b = multiple_worker(w.two.context);
    world_begin(&w);
    CHECK_EQ(weft_worker_start_thread(w.two.a, NULL), 0);
    CHECK_EQ(weft_worker_start_thread(w.two.b, NULL), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_create(&thread[i], NULL, program_sends, &w.program[i]), 0);
        CHECK_EQ(pthread_create(&thread[2 + i], NULL, library_sends, w.second[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        CHECK_EQ(pthread_join(thread[i], &failed), 0);
        CHECK(!failed);
    }
    double end = test_now() + test_timeout(60);
    for (int i = 0; i < 2; i++) {
        while (w.program[i].received < POSTED && !w.program[i].wrong && test_now() < end)
            usleep(500);
        while (second_received(w.second[i]) < POSTED && test_now() < end) usleep(500);
        CHECK_EQ(w.program[i].wrong, 0);
        CHECK_EQ(w.program[i].received, POSTED);
        CHECK_EQ(second_received(w.second[i]), POSTED);
    }
    CHECK_EQ(weft_worker_stop_thread(w.two.a), 0);
    CHECK_EQ(weft_worker_stop_thread(w.two.b), 0);
    world_down(&w);
}

/* ---- memory and team ------------------------------------------------------------------------- */

TEST(the_library_uses_memory_of_the_program) {
    struct world w;
    weft_mem_t *mem, *theirs;
    weft_mem_info_t mine, info;
    weft_resource_t *resource;
    world_up(&w);
    CHECK_EQ(weft_mem_alloc(w.two.a, 8192, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &mine), 0);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_MEMORY, mem, WEFT_RESOURCE_MEMORY, NULL, &resource),
             0);
    CHECK_EQ(second_use_region(w.second[0], resource, &theirs), 0);
    CHECK_EQ(weft_mem_describe(theirs, &info), 0);
    CHECK(info.base == mine.base && info.len == mine.len);
    CHECK(second_return(w.second[0], resource, theirs) >= 0);
    weft_resource_info_t about = {.n_users = 1};
    UNTIL(&w.two, weft_resource_info(resource, &about) == 0 && about.n_users == 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    world_down(&w);
}

/* An exchange between two ranks of this process. */
struct seats {
    const void *mine[2];
    void *all[2];
    weft_done_fn done[2];
    void *arg[2];
    size_t len;
} seats;
static weft_status_t seats_allgather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                                     void *all, weft_done_fn done, void *done_arg) {
    int rank = arg != NULL;
    seats.mine[rank] = mine, seats.all[rank] = all, seats.len = len;
    seats.done[rank] = done, seats.arg[rank] = done_arg;
    for (int i = 0; seats.mine[0] && seats.mine[1] && i < 2; i++) {
        for (int r = 0; r < 2; r++) memcpy((char *)seats.all[i] + r * len, seats.mine[r], len);
        seats.done[i](WEFT_OK, seats.arg[i]);
    }
    return WEFT_IN_PROGRESS;
}
static void on_ready(weft_team_t *team, weft_status_t status, void *arg) {
    *(int *)arg += status == WEFT_OK;
}

TEST(the_library_has_a_team_over_the_programs_team) {
    struct world w;
    weft_team_t *team[2], *theirs[2];
    weft_resource_t *resource[2];
    int ready = 0;
    world_up(&w);
    memset(&seats, 0, sizeof seats);
    for (int i = 0; i < 2; i++) {
        weft_exchange_t exchange = {(uint32_t)i, 2, seats_allgather, NULL, i ? &seats : NULL};
        weft_team_params_t params = {.exchange = &exchange, .on_ready = on_ready, .arg = &ready};
        CHECK_EQ(weft_team_create(w.program[i].worker, &params, &team[i]), 0);
    }
    UNTIL(&w.two, ready == 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(
            weft_resource_export(WEFT_OBJECT_TEAM, team[i], WEFT_RESOURCE_TEAM, NULL, &resource[i]),
            0);
        CHECK_EQ(second_use_team(w.second[i], resource[i], &theirs[i]), 0);
    }
    UNTIL(&w.two, second_team_is_ready(w.second[0]) && second_team_is_ready(w.second[1]));
    uint32_t in[2] = {5, 7}, sum[2] = {0, 0}, their_sum[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        CHECK(weft_allreduce(team[i], &in[i], &sum[i], 1, WEFT_UINT32, WEFT_SUM, NULL) >= 0);
        CHECK(weft_allreduce(theirs[i], &sum[i], &their_sum[i], 0, WEFT_UINT32, WEFT_SUM, NULL) >=
              0);
        CHECK(weft_allreduce(theirs[i], &in[i], &their_sum[i], 1, WEFT_UINT32, WEFT_MAX, NULL) >=
              0);
    }
    UNTIL(&w.two, sum[0] == 12 && sum[1] == 12 && their_sum[0] == 7 && their_sum[1] == 7);
    for (int i = 0; i < 200; i++) two_turn(&w.two);
    for (int i = 0; i < 2; i++) CHECK(second_return(w.second[i], resource[i], theirs[i]) >= 0);
    weft_resource_info_t a = {.n_users = 1}, b = {.n_users = 1};
    UNTIL(&w.two, weft_resource_info(resource[0], &a) == 0 &&
                      weft_resource_info(resource[1], &b) == 0 && a.n_users + b.n_users == 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(resource[i]), 0);
    struct tally closed = {0};
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_team_close(team[i], OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&w.two, closed.calls == 2);
    world_down(&w);
}

/* ---- the other direction --------------------------------------------------------------------- */

/* The library has a worker of its own, and the program works by it. */
struct turned {
    weft_worker_t *librarys, *programs;
    struct second *second;
    weft_resource_t *given, *own;
    weft_context_t *context;
};

static void turned_up(struct turned *t, weft_context_t *context) {
    weft_worker_params_t params = {.transports = "shm"};
    CHECK_EQ(weft_worker_create(context, &params, &t->librarys), 0);
    t->given = worker_resource(t->librarys);
    CHECK_EQ(second_open(t->given, t->librarys, &t->second), 0);
    CHECK_EQ(second_export(t->second, &t->own), 0);
    t->context = associated_context();
    t->programs = stub_worker(t->context);
    CHECK_EQ(associate(t->context, WEFT_OBJECT_WORKER, t->own, t->programs), 0);
}

static void turned_down(struct turned *t) {
    weft_worker_destroy(t->programs);
    CHECK_EQ(weft_resource_release(t->own), 0);
    CHECK_EQ(weft_context_destroy(t->context), 0);
    second_close(t->second);
    CHECK_EQ(weft_resource_release(t->given), 0);
    weft_worker_destroy(t->librarys);
}

/* Drives the library's workers. */
#define TURNED_UNTIL(t, n, condition)                                                         \
    do {                                                                                      \
        double end_ = test_now() + test_timeout(60);                                          \
        while (!(condition)) {                                                                \
            for (int i_ = 0; i_ < (n); i_++) (void)weft_worker_progress((t)[i_].librarys, 0); \
            CHECK(test_now() < end_);                                                         \
        }                                                                                     \
    } while (0)

static bool is_unused(weft_resource_t *resource) {
    weft_resource_info_t info = {.n_users = 1};
    return weft_resource_info(resource, &info) == 0 && info.n_users == 0;
}

TEST(the_program_uses_a_worker_of_the_library) {
    weft_context_t *context;
    struct turned t;
    struct program p = {.odd = 1};
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    turned_up(&t, context);
    p.worker = t.programs;
    CHECK_EQ(weft_am_handler_set(t.programs, ID, on_number, &p), 0);
    receive(&p);
    CHECK_EQ(weft_worker_address(t.programs, address, &len), 0);
    CHECK_EQ(weft_connect_address(t.programs, address, len, NULL, &p.ep), 0);
    len = sizeof address;
    CHECK_EQ(second_address(t.second, address, &len), 0);
    CHECK_EQ(second_connect(t.second, address, len), 0);
    for (int i = 0; i < 1000; i++) {
        send_number(&p);
        CHECK_EQ(second_send(t.second), 0);
        weft_worker_progress(t.librarys, 0);
    }
    TURNED_UNTIL(&t, 1, p.received >= 1000 && second_received(t.second) >= 1000);
    CHECK_EQ(p.received, 1000);
    CHECK_EQ(second_received(t.second), 1000);
    CHECK_EQ(p.wrong, 0);
    turned_down(&t);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(the_program_uses_memory_of_the_library) {
    weft_context_t *context;
    struct turned t;
    weft_resource_t *region;
    weft_mem_t *mem;
    weft_mem_params_t stub = {.rights = WEFT_MEM_ALL, .associated = 1};
    weft_mem_info_t info;
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    turned_up(&t, context);
    CHECK_EQ(second_export_region(t.second, "of the library", &region), 0);
    CHECK_EQ(weft_mem_register(t.programs, NULL, 0, &stub, &mem), 0);
    CHECK_EQ(associate(t.context, WEFT_OBJECT_MEMORY, region, mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK(info.len >= 8192 && strcmp(info.base, "of the library") == 0); /* no second copy */
    CHECK_EQ(second_free_region(t.second), WEFT_ERR_BUSY);
    CHECK(weft_disassociate_resources(region, mem, NULL) >= 0);
    TURNED_UNTIL(&t, 1, is_unused(region));
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    CHECK_EQ(weft_resource_release(region), 0);
    CHECK_EQ(second_free_region(t.second), 0);
    turned_down(&t);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(the_program_has_a_team_over_the_librarys_team) {
    weft_context_t *context;
    struct turned t[2];
    weft_resource_t *over[2];
    weft_team_t *team[2];
    uint32_t in[2] = {5, 7}, sum[2] = {0, 0};
    int ready = 0;
    struct tally closed = {0};
    memset(&seats, 0, sizeof seats);
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    for (int i = 0; i < 2; i++) {
        weft_exchange_t exchange = {(uint32_t)i, 2, seats_allgather, NULL, i ? &seats : NULL};
        turned_up(&t[i], context);
        CHECK_EQ(second_begin_team(t[i].second, &exchange), 0);
    }
    TURNED_UNTIL(t, 2, second_team_is_ready(t[0].second) && second_team_is_ready(t[1].second));
    for (int i = 0; i < 2; i++) {
        weft_team_params_t stub = {.on_ready = on_ready, .arg = &ready, .associated = 1};
        CHECK_EQ(second_export_team(t[i].second, &over[i]), 0);
        CHECK_EQ(weft_team_create(t[i].programs, &stub, &team[i]), 0);
        CHECK_EQ(associate(t[i].context, WEFT_OBJECT_TEAM, over[i], team[i]), 0);
    }
    TURNED_UNTIL(t, 2, ready == 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_team_rank(team[i]), i);
        CHECK(weft_allreduce(team[i], &in[i], &sum[i], 1, WEFT_UINT32, WEFT_SUM, NULL) >= 0);
    }
    TURNED_UNTIL(t, 2, sum[0] == 12 && sum[1] == 12);
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 2; k++) weft_worker_progress(t[k].librarys, 0);
    for (int i = 0; i < 2; i++) CHECK(weft_disassociate_resources(over[i], team[i], NULL) >= 0);
    TURNED_UNTIL(t, 2, is_unused(over[0]) && is_unused(over[1]));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_team_close(team[i], NULL), 0);
        CHECK_EQ(weft_resource_release(over[i]), 0);
        CHECK_EQ(second_close_team(t[i].second, tally, &closed), WEFT_IN_PROGRESS);
    }
    TURNED_UNTIL(t, 2, closed.calls == 2);
    for (int i = 0; i < 2; i++) turned_down(&t[i]);
    CHECK_EQ(weft_context_destroy(context), 0);
}

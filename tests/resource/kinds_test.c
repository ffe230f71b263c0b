/* Kinds of resources that make endpoints, teams and regions work, and sockets and descriptors. */
#include "shared.h"

#include <arpa/inet.h>
#include <base/alloc.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <tests/support/ending_team.h>
#include <unistd.h>

static int handled;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    handled++;
}

TEST(an_endpoint_works_over_the_connection_of_another) {
    struct sharing s;
    share_up(&s, "shm");
    share_dial(&s);
    handled = 0;
    CHECK_EQ(weft_am_handler_set(s.library[1], 3, on_message, NULL), 0);
    CHECK(weft_am_send(s.ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
    UNTIL(&s.two, handled == 1);
    weft_ep_t *ep, *set[1] = {s.ep};
    CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SET, set);
    weft_resource_t *resource = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_ENDPOINT, resource, ep), 0);
    CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
    UNTIL(&s.two, handled == 2);
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(ep, &info), 0);
    CHECK_EQ(info.n_endpoints, 2); /* one connection */
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), WEFT_ERR_BUSY);
    struct tally done = {0};
    CHECK_EQ(weft_disassociate_resources(resource, ep, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls);
    CHECK_EQ(weft_resource_release(resource), 0);
    share_down(&s);
}

/* ---- regions --------------------------------------------------------------------------------- */

static weft_mem_t *stub_region(weft_worker_t *worker) {
    weft_mem_t *mem;
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .associated = 1};
    CHECK_EQ(weft_mem_register(worker, NULL, 0, &params, &mem), 0);
    return mem;
}

/* The first worker's library writes into the region by its key. */
static void write_by_key(struct sharing *s, weft_mem_t *mem, uint64_t at, const char *text) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_rkey_t *rkey;
    struct tally put = {0};
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(s->ep, key, len, &rkey), 0);
    weft_status_t st = weft_put(s->ep, text, strlen(text) + 1, at, rkey, OP(&put));
    CHECK(st >= 0);
    UNTIL(&s->two, st == WEFT_OK || put.calls);
    struct tally flushed = {0};
    weft_op_t flush = {.done = tally, .arg = &flushed, .flags = WEFT_FLUSH_REMOTE};
    st = weft_ep_flush(s->ep, &flush);
    UNTIL(&s->two, st == WEFT_OK || flushed.calls);
    weft_rkey_release(rkey);
}

static void end_region(struct sharing *s, weft_resource_t *resource, weft_mem_t *mem) {
    struct tally done = {0};
    CHECK_EQ(weft_mem_release(mem, NULL), WEFT_ERR_BUSY);
    weft_status_t st = weft_disassociate_resources(resource, mem, OP(&done));
    CHECK(st >= 0);
    UNTIL(&s->two, st == WEFT_OK || done.calls);
    CHECK_EQ(weft_resource_release(resource), 0);
}

TEST(a_region_is_a_chunk_of_a_shared_segment) {
    struct sharing s;
    share_up(&s, "shm");
    share_dial(&s);
    long page = sysconf(_SC_PAGESIZE);
    int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(ftruncate(fd, 4 * page), 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    char *whole = mmap(NULL, 4 * (size_t)page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t len = (uint64_t)page, offset = 2 * (uint64_t)page;
    weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_FD, fd),
                                      VALUE(WEFT_RES_MEMORY_LENGTH, len),
                                      VALUE(WEFT_RES_MEMORY_OFFSET, offset)};
    weft_resource_t *resource = describe(WEFT_RESOURCE_SEGMENT, values, 3);
    weft_mem_t *mem = stub_region(s.library[1]);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_MEMORY, resource, mem), 0);
    weft_mem_info_t info;
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(info.len, len);
    write_by_key(&s, mem, (uint64_t)(uintptr_t)info.base + 8, "chunk");
    CHECK(strcmp(whole + offset + 8, "chunk") == 0); /* no second copy */
    end_region(&s, resource, mem);
    munmap(whole, 4 * (size_t)page);
    close(fd);
    share_down(&s);
}

TEST(a_region_is_memory_of_the_program) {
    struct sharing s;
    static char memory[4096];
    char *base = memory;
    uint64_t len = sizeof memory;
    share_up(&s, "tcp");
    share_dial(&s);
    weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_BASE, base),
                                      VALUE(WEFT_RES_MEMORY_LENGTH, len)};
    weft_resource_t *resource = describe(WEFT_RESOURCE_MEMORY, values, 2);
    weft_mem_t *mem = stub_region(s.library[1]);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_MEMORY, resource, mem), 0);
    write_by_key(&s, mem, (uint64_t)(uintptr_t)base + 16, "here");
    CHECK(strcmp(memory + 16, "here") == 0);
    end_region(&s, resource, mem);
    share_down(&s);
}

TEST(a_region_is_returned_though_memory_runs_out_meanwhile) {
    struct sharing s;
    static char memory[4096];
    char *base = memory;
    uint64_t len = sizeof memory;
    for (uint64_t k = 1; k < 6; k++) {
        struct tally done = {0};
        share_up(&s, "tcp");
        weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_BASE, base),
                                          VALUE(WEFT_RES_MEMORY_LENGTH, len)};
        weft_resource_t *resource = describe(WEFT_RESOURCE_MEMORY, values, 2);
        weft_mem_t *mem = stub_region(s.library[1]);
        CHECK_EQ(associate(s.context, WEFT_OBJECT_MEMORY, resource, mem), 0);
        weft__alloc_fail_at(k);
        weft_status_t st = weft_disassociate_resources(resource, mem, OP(&done));
        weft__alloc_fail_at(0);
        CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
        UNTIL(&s.two, st == WEFT_OK || done.calls);
        CHECK_EQ(weft_mem_release(mem, NULL), 0);
        CHECK_EQ(weft_resource_release(resource), 0);
        share_down(&s);
    }
}

TEST(a_region_that_is_registered_elsewhere_gives_its_key) {
    struct sharing s;
    static char memory[4096];
    char *base = memory, mine[WEFT_RKEY_MAX], theirs[WEFT_RKEY_MAX];
    uint64_t len = sizeof memory;
    size_t mine_len = sizeof mine, theirs_len = sizeof theirs;
    weft_mem_t *registered;
    share_up(&s, "tcp");
    share_dial(&s);
    CHECK_EQ(weft_mem_register(two_b(&s.two), memory, sizeof memory,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &registered),
             0);
    weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_BASE, base),
                                      VALUE(WEFT_RES_MEMORY_LENGTH, len),
                                      VALUE(WEFT_RES_MEMORY_HANDLE, registered)};
    weft_resource_t *resource = describe(WEFT_RESOURCE_MEMORY, values, 3);
    weft_mem_t *mem = stub_region(s.library[1]);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_MEMORY, resource, mem), 0);
    CHECK_EQ(weft_mem_pack(mem, mine, &mine_len), 0);
    CHECK_EQ(weft_mem_pack(registered, theirs, &theirs_len), 0);
    CHECK(mine_len == theirs_len && memcmp(mine, theirs, mine_len) == 0);
    write_by_key(&s, mem, (uint64_t)(uintptr_t)base, "shared");
    CHECK_EQ(weft_mem_release(registered, NULL), WEFT_ERR_BUSY);
    end_region(&s, resource, mem);
    CHECK_EQ(weft_mem_release(registered, NULL), 0);
    share_down(&s);
}

/* ---- teams ----------------------------------------------------------------------------------- */

struct team_pair {
    weft_team_t *team[2];
    int ready[2];
    weft_status_t status[2];
};

static struct team_pair *pair_of;
static void on_ready(weft_team_t *team, weft_status_t status, void *arg) {
    int rank = (int)(intptr_t)arg;
    pair_of->ready[rank]++;
    pair_of->status[rank] = status;
}

static void stub_teams(struct sharing *s, struct team_pair *p) {
    memset(p, 0, sizeof *p);
    pair_of = p;
    for (int i = 0; i < 2; i++) {
        weft_team_params_t params = {
            .on_ready = on_ready, .arg = (void *)(intptr_t)i, .associated = 1};
        CHECK_EQ(weft_team_create(s->library[i], &params, &p->team[i]), 0);
        CHECK_EQ(weft_barrier(p->team[i], NULL), WEFT_ERR_NOT_ASSOCIATED);
    }
}

static void sum_over(struct sharing *s, struct team_pair *p) {
    double in[2] = {1, 2}, out[2] = {0, 0};
    struct tally done = {0};
    UNTIL(&s->two, p->ready[0] && p->ready[1]);
    CHECK_EQ(p->status[0], 0);
    CHECK_EQ(p->status[1], 0);
    for (int i = 0; i < 2; i++)
        CHECK(weft_allreduce(p->team[i], &in[i], &out[i], 1, WEFT_FLOAT64, WEFT_SUM, OP(&done)) >=
              0);
    UNTIL(&s->two, out[0] == 3 && out[1] == 3);
    for (int i = 0; i < 20; i++) two_turn(&s->two);
}

static void end_teams(struct sharing *s, struct team_pair *p, weft_resource_t **resource) {
    struct tally done = {0};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_disassociate_resources_wait(s->resource[i], s->library[i]), WEFT_ERR_BUSY);
        CHECK_EQ(weft_team_close(p->team[i], NULL), WEFT_ERR_BUSY);
        CHECK_EQ(weft_disassociate_resources(resource[i], p->team[i], OP(&done)), WEFT_IN_PROGRESS);
    }
    UNTIL(&s->two, done.calls == 2);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(resource[i]), 0);
}

TEST(a_second_team_works_over_endpoints_that_exist) {
    struct sharing s;
    struct team_pair p;
    weft_ep_t *set[2][2] = {{NULL, NULL}, {NULL, NULL}};
    weft_resource_t *resource[2];
    weft_team_t *alone;
    weft_ep_t *none[1] = {NULL};
    weft_resource_value_t own = VALUE(WEFT_RES_ENDPOINT_SET, none);
    weft_resource_t *of_one = describe(WEFT_RESOURCE_ENDPOINTS, &own, 1);
    share_up(&s, "shm");
    /* One side has a team of itself alone before: the other does not know of it. */
    weft_team_params_t stub = {.associated = 1};
    CHECK_EQ(weft_team_create(s.library[0], &stub, &alone), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_TEAM, of_one, alone), 0);
    connect_libraries(&s, set);
    stub_teams(&s, &p);
    for (int i = 0; i < 2; i++) {
        weft_resource_value_t value = {WEFT_RES_ENDPOINT_SET, set[i], sizeof set[i]};
        resource[i] = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
        CHECK_EQ(associate(s.context, WEFT_OBJECT_TEAM, resource[i], p.team[i]), 0);
    }
    sum_over(&s, &p);
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(set[0][1], &info), 0);
    CHECK(info.n_endpoints >= 2); /* the team's endpoint shares the connection */
    end_teams(&s, &p, resource);
    struct tally done = {0};
    CHECK_EQ(weft_disassociate_resources(of_one, alone, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls);
    CHECK_EQ(weft_team_close(alone, NULL), 0);
    CHECK_EQ(weft_resource_release(of_one), 0);
    share_down(&s);
}

static char described[512];
static void describe_team(weft_team_t *team, weft_status_t status, void *arg) {
    weft_status_describe(status, described, sizeof described);
    tally(status, arg);
}

/* In time the first member alone begins. */
static void one_member_alone(struct sharing *s, weft_resource_t *resource[2], const char *text) {
    weft_team_t *team[2];
    struct tally ready[2] = {{0}}, done = {0};
    for (int i = 0; i < 2; i++) {
        weft_team_params_t params = {.on_ready = describe_team,
                                     .arg = &ready[i],
                                     .associated = 1,
                                     .deadline_ms = i ? 20000 : 100};
        CHECK_EQ(weft_team_create(s->library[i], &params, &team[i]), 0);
    }
    CHECK_EQ(associate(s->context, WEFT_OBJECT_TEAM, resource[0], team[0]), 0);
    UNTIL(&s->two, ready[0].calls);
    CHECK_EQ(ready[0].status, WEFT_ERR_TIMED_OUT);
    if (!strstr(described, text)) printf("  %s\n", described);
    CHECK(strstr(described, text));
    CHECK_EQ(associate(s->context, WEFT_OBJECT_TEAM, resource[1], team[1]), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_disassociate_resources(resource[i], team[i], OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s->two, done.calls == 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_team_close(team[i], NULL), 0);
        CHECK_EQ(weft_resource_release(resource[i]), 0);
    }
}

TEST(a_team_over_endpoints_or_by_another_team_names_the_members_that_it_waits_for) {
    struct sharing s;
    struct team_pair first;
    weft_ep_t *set[2][2] = {{NULL, NULL}, {NULL, NULL}};
    weft_resource_t *resource[2], *more[2];
    share_up(&s, "shm");
    connect_libraries(&s, set);
    for (int i = 0; i < 2; i++) {
        weft_resource_value_t value = {WEFT_RES_ENDPOINT_SET, set[i], sizeof set[i]};
        more[i] = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
        resource[i] = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
    }
    one_member_alone(&s, more, "nothing was received from rank 1 in time");
    stub_teams(&s, &first);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(associate(s.context, WEFT_OBJECT_TEAM, resource[i], first.team[i]), 0);
    sum_over(&s, &first);
    for (int i = 0; i < 2; i++) {
        weft_resource_value_t value = VALUE(WEFT_RES_TEAM_HANDLE, first.team[i]);
        more[i] = describe(WEFT_RESOURCE_TEAM, &value, 1);
    }
    one_member_alone(&s, more, "nothing was received from rank 1 of its parent in time");
    end_teams(&s, &first, resource);
    share_down(&s);
}

static weft_status_t seven(weft_task_call_t *call) {
    *(uint64_t *)call->result = 7;
    return WEFT_OK;
}
static weft_status_t pass_on(weft_task_call_t *call) {
    memcpy(call->result, call->inputs[0], 8);
    return WEFT_OK;
}

/* The second member has the result of a task of the first. */
static void run_graphs(struct sharing *s, struct team_pair *p) {
    weft_graph_t *graph[2];
    struct tally done = {0};
    const void *result;
    size_t len;
    for (int i = 0; i < 2; i++) {
        weft_task_t first;
        weft_graph_params_t params = {.n_threads = 1, .team = p->team[i]};
        weft_task_params_t task = {.fn = seven, .result_size = 8, .on_rank = 1};
        CHECK_EQ(weft_graph_create(&params, &graph[i]), 0);
        CHECK_EQ(weft_graph_add(graph[i], &task, &first), 0);
        task = (weft_task_params_t){.fn = pass_on,
                                    .inputs = &first,
                                    .n_inputs = 1,
                                    .result_size = 8,
                                    .on_rank = 1,
                                    .rank = 1};
        CHECK_EQ(weft_graph_add(graph[i], &task, NULL), 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_graph_run(graph[i], i ? two_b(&s->two) : s->two.a, tally, &done),
                 WEFT_IN_PROGRESS);
    UNTIL(&s->two, done.calls == 2);
    CHECK_EQ(done.status, 0);
    CHECK_EQ(weft_graph_result(graph[1], 1, &result, &len), 0);
    CHECK_EQ(*(const uint64_t *)result, 7);
    for (int i = 0; i < 2; i++) weft_graph_destroy(graph[i]);
}

/* Teams over endpoints are made before the worker's first graph, and after it. */
TEST(graphs_and_teams_over_endpoints_use_one_worker) {
    struct sharing s;
    struct team_pair p[2];
    weft_ep_t *set[2][2] = {{NULL, NULL}, {NULL, NULL}};
    weft_resource_t *resource[2][2];
    share_up(&s, "shm");
    connect_libraries(&s, set);
    for (int n = 0; n < 2; n++) {
        stub_teams(&s, &p[n]);
        for (int i = 0; i < 2; i++) {
            weft_resource_value_t value = {WEFT_RES_ENDPOINT_SET, set[i], sizeof set[i]};
            resource[n][i] = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
            CHECK_EQ(associate(s.context, WEFT_OBJECT_TEAM, resource[n][i], p[n].team[i]), 0);
        }
        sum_over(&s, &p[n]);
        run_graphs(&s, &p[0]);
    }
    for (int n = 0; n < 2; n++) end_teams(&s, &p[n], resource[n]);
    share_down(&s);
}

/* MPI's functions, of a world with one rank. */
struct double_mpi {
    int rank;
};
static int mpi_rank(void *c, int *rank_p) {
    *rank_p = ((struct double_mpi *)c)->rank;
    return 0;
}
static int mpi_size(void *c, int *size_p) {
    *size_p = 1;
    return 0;
}
static int mpi_allgather(void *c, const void *mine, int len, void *all) {
    memcpy(all, mine, (size_t)len);
    return 0;
}

TEST(a_team_has_ranks_and_exchange_of_mpi) {
    struct sharing s;
    struct team_pair p;
    struct double_mpi world = {0};
    weft_mpi_t mpi = {&world, mpi_rank, mpi_size, mpi_allgather};
    weft_resource_value_t value = VALUE(WEFT_RES_TEAM_MPI, mpi);
    weft_resource_t *resource = describe(WEFT_RESOURCE_MPI, &value, 1);
    share_up(&s, "self");
    stub_teams(&s, &p);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_TEAM, resource, p.team[0]), 0);
    UNTIL(&s.two, p.ready[0]);
    CHECK_EQ(p.status[0], 0);
    CHECK_EQ(weft_team_size(p.team[0]), 1);
    struct tally done = {0};
    CHECK_EQ(weft_disassociate_resources(resource, p.team[0], OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls);
    CHECK_EQ(weft_team_close(p.team[1], NULL), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    share_down(&s);
}

/* ---- sockets and descriptors ----------------------------------------------------------------- */

static void on_endpoint(weft_ep_t *ep, void *arg) {
    ++*(int *)arg;
}

TEST(a_listening_socket_of_the_program_is_adopted_and_given_back) {
    struct two t;
    int accepted = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    getsockname(fd, (struct sockaddr *)&at, &len);
    two_workers(&t, "tcp", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_SOCKET, fd);
    weft_resource_t *resource = describe(WEFT_RESOURCE_SOCKET, &value, 1);
    weft_listen_params_t listen_params = {.on_endpoint = on_endpoint, .arg = &accepted};
    weft_resource_value_t listen_by = VALUE(WEFT_RES_WORKER_LISTEN, listen_params);
    weft_associate_params_t params = {.resource = resource, .values = &listen_by, .n_values = 1};
    CHECK_EQ(weft_associate_resources(t.context, WEFT_OBJECT_WORKER, &params, t.b), 0);
    CHECK_EQ(weft_connect(t.a, weft_listener_uri(weft_resource_listener(resource)), NULL, &t.ep),
             0);
    UNTIL(&t, accepted == 1);
    struct tally done = {0};
    weft_status_t st = weft_disassociate_resources(resource, t.b, OP(&done));
    CHECK_EQ(st, 0);
    int listening = 0;
    len = sizeof listening;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len);
    CHECK_EQ(listening, 1); /* it is the program's again */
    CHECK_EQ(weft_resource_release(resource), 0);
    close(fd);
    two_down(&t);
}

/* Those of a program that was compiled with an older header are shorter. */
TEST(the_parameters_of_a_listener_have_the_size_that_their_program_knows) {
    struct two t;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    two_workers(&t, "tcp", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_SOCKET, fd);
    weft_resource_t *resource = describe(WEFT_RESOURCE_SOCKET, &value, 1);
    struct {
        weft_listen_params_t known;
        uint64_t more;
    } newer = {.more = 1};
    weft_listen_params_t wrong = {.backlog = -1};
    weft_resource_value_t own[] = {VALUE(WEFT_RES_WORKER_LISTEN, newer),
                                   VALUE(WEFT_RES_WORKER_LISTEN, wrong),
                                   {WEFT_RES_WORKER_LISTEN, &newer, sizeof(void (*)(void))}};
    for (int i = 0; i < 3; i++) {
        weft_associate_params_t params = {.resource = resource, .values = &own[i], .n_values = 1};
        CHECK_EQ(weft_associate_resources(t.context, WEFT_OBJECT_WORKER, &params, t.b),
                 i < 2 ? WEFT_ERR_INVALID_PARAM : WEFT_OK);
    }
    CHECK_EQ(weft_disassociate_resources(resource, t.b, NULL), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(fd);
    two_down(&t);
}

/* Each has a listener on it. */
TEST(a_listening_socket_of_two_workers_has_a_listener_until_the_last_returns_it) {
    struct two t;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    two_workers(&t, "tcp", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_SOCKET, fd);
    for (int first = 0; first < 2; first++) {
        weft_worker_t *both[] = {t.a, t.b};
        weft_resource_t *resource = describe(WEFT_RESOURCE_SOCKET, &value, 1);
        CHECK(weft_resource_listener(resource) == NULL);
        for (int i = 0; i < 2; i++)
            CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, resource, both[i]), 0);
        CHECK(weft_resource_listener(resource) != NULL);
        CHECK_EQ(weft_disassociate_resources(resource, both[first], NULL), 0);
        weft_listener_t *left = weft_resource_listener(resource);
        CHECK(left && strncmp(weft_listener_uri(left), "tcp://127.0.0.1:", 16) == 0);
        CHECK_EQ(weft_disassociate_resources(resource, both[!first], NULL), 0);
        CHECK(weft_resource_listener(resource) == NULL);
        CHECK_EQ(weft_resource_release(resource), 0);
    }
    close(fd);
    two_down(&t);
}

/* The library listens by its worker: when that gives its resource back, so does the socket. */
TEST(a_listening_socket_of_a_library_ends_with_its_worker) {
    struct sharing s;
    weft_resource_info_t info;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    for (int lost = 0; lost < 2; lost++) {
        share_up(&s, "tcp");
        weft_resource_value_t value = VALUE(WEFT_RES_WORKER_SOCKET, fd);
        weft_resource_t *resource = describe(WEFT_RESOURCE_SOCKET, &value, 1);
        CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, resource, s.library[0]), 0);
        CHECK(weft_resource_listener(resource) != NULL);
        if (lost)
            weft_resource_lose(s.resource[0]);
        else
            CHECK_EQ(weft_disassociate_resources_wait(s.resource[0], s.library[0]), 0);
        UNTIL(&s.two, weft_resource_info(s.resource[0], &info) == 0 && info.n_users == 0);
        CHECK(weft_resource_listener(resource) == NULL);
        CHECK_EQ(weft_resource_info(resource, &info), 0);
        CHECK_EQ(info.n_users, 0);
        CHECK_EQ(weft_resource_withdraw(resource, NULL), 0);
        CHECK_EQ(weft_resource_release(resource), 0);
        share_down(&s);
    }
    close(fd);
}

/* ---- a connected socket ---------------------------------------------------------------------- */

static int connected_to(const char *uri) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_port = htons((uint16_t)atoi(strrchr(uri, ':') + 1));
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static void keep_ep(weft_ep_t *ep, void *arg) {
    *(weft_ep_t **)arg = ep;
}

/* The first worker's library has a stub endpoint, and the second worker listens. */
struct by_socket {
    struct sharing s;
    weft_listener_t *listener;
    weft_ep_t *ep, *accepted;
    int lost;
};

static void socket_up(struct by_socket *b) {
    memset(b, 0, sizeof *b);
    share_up(&b->s, "tcp");
    weft_listen_params_t params = {.on_endpoint = keep_ep, .arg = &b->accepted};
    CHECK_EQ(weft_listen(two_b(&b->s.two), "tcp://127.0.0.1:0", &params, &b->listener), 0);
    CHECK_EQ(weft_am_handler_set(b->s.library[1], 3, on_message, NULL), 0);
    weft_ep_params_t stub = {.associated = 1};
    CHECK_EQ(weft_connect(b->s.library[0], NULL, &stub, &b->ep), 0);
    handled = 0;
}

static void socket_lost(void *object, weft_status_t status, void *arg) {
    ((struct by_socket *)arg)->lost += status == WEFT_ERR_RESOURCE_LOST;
}

static weft_resource_t *associate_socket(struct by_socket *b, int fd) {
    weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SOCKET, fd);
    weft_resource_t *resource = describe(WEFT_RESOURCE_CONNECTION, &value, 1);
    weft_associate_params_t params = {.resource = resource, .on_lost = socket_lost, .arg = b};
    CHECK_EQ(weft_associate_resources(b->s.context, WEFT_OBJECT_ENDPOINT, &params, b->ep), 0);
    return resource;
}

TEST(an_endpoint_works_over_a_connected_socket_and_gives_it_back) {
    struct by_socket b;
    socket_up(&b);
    for (int round = 1; round <= 2; round++) {
        int fd = connected_to(weft_listener_uri(b.listener));
        weft_resource_t *resource = associate_socket(&b, fd);
        CHECK(weft_am_send(b.ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
        UNTIL(&b.s.two, handled == round);
        struct tally done = {0};
        CHECK_EQ(weft_disassociate_resources(resource, b.ep, OP(&done)), WEFT_IN_PROGRESS);
        UNTIL(&b.s.two, done.calls);
        CHECK_EQ(done.status, 0);
        /* Only the program's descriptor is left: the library has closed its own. */
        char byte;
        UNTIL(&b.s.two, recv(fd, &byte, 1, MSG_DONTWAIT) == 0);
        CHECK_EQ(weft_resource_release(resource), 0);
        close(fd);
        CHECK_EQ(weft_ep_close(b.accepted, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    }
    CHECK_EQ(weft_ep_close(b.ep, WEFT_CLOSE_FLUSH, NULL), 0);
    share_down(&b.s);
}

TEST(a_connected_socket_that_is_lost_ends_the_operations_over_it) {
    struct by_socket b;
    struct tally sent = {0};
    static char bytes[1 << 20];
    socket_up(&b);
    int fd = connected_to(weft_listener_uri(b.listener));
    weft_resource_t *resource = associate_socket(&b, fd);
    weft_op_t op = {.done = tally, .arg = &sent, .flags = WEFT_AM_RENDEZVOUS};
    CHECK_EQ(weft_tag_send(b.ep, 3, &(weft_iov_t){bytes, sizeof bytes}, 1, &op), WEFT_IN_PROGRESS);
    UNTIL(&b.s.two, b.accepted);
    CHECK_EQ(sent.calls, 0);
    weft_resource_lose(resource);
    weft_resource_info_t info = {.n_users = 1};
    UNTIL(&b.s.two, weft_resource_info(resource, &info) == 0 && info.n_users == 0);
    CHECK_EQ(sent.calls, 1);
    CHECK_EQ(sent.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(b.lost, 1);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(fd);
    CHECK_EQ(weft_ep_close(b.ep, WEFT_CLOSE_FLUSH, NULL), 0);
    share_down(&b.s);
}

TEST(what_is_no_connected_socket_leaves_the_endpoint_as_it_was) {
    struct by_socket b;
    int pair[2];
    socket_up(&b);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SOCKET, pair[0]);
    weft_resource_t *resource = describe(WEFT_RESOURCE_CONNECTION, &value, 1);
    CHECK_EQ(associate(b.s.context, WEFT_OBJECT_ENDPOINT, resource, b.ep), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_send(b.ep, 3, NULL, 0, NULL, 0, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_ep_close(b.ep, WEFT_CLOSE_FLUSH, NULL), 0);
    close(pair[0]);
    close(pair[1]);
    share_down(&b.s);
}

struct engine {
    int fd, left, calls, armed;
};
static unsigned engine_progress(void *arg) {
    struct engine *e = arg;
    uint64_t n;
    e->calls++;
    if (e->left == 0) return 0;
    if (--e->left == 0 && read(e->fd, &n, sizeof n) < 0) return 0;
    return 1;
}
static int engine_arm(void *arg) {
    struct engine *e = arg;
    e->armed++;
    return e->left > 0;
}

/* The first worker drives another library by these. */
static weft_resource_t *two_with_library(struct two *t, weft_events_t events) {
    two_workers(t, "self", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    weft_resource_t *resource = describe(WEFT_RESOURCE_EVENTS, &value, 1);
    CHECK_EQ(associate(t->context, WEFT_OBJECT_WORKER, resource, t->a), 0);
    return resource;
}

TEST(another_library_makes_progress_by_its_descriptor_in_the_workers_loop) {
    struct two t;
    struct engine engine = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    weft_events_t events = {engine.fd, engine_progress, engine_arm, &engine};
    weft_resource_t *resource = two_with_library(&t, events);
    UNTIL(&t, engine.armed);
    for (int i = 0; i < 100; i++) two_turn(&t);
    int idle = engine.calls;
    for (int i = 0; i < 1000; i++) two_turn(&t);
    CHECK_EQ(engine.calls, idle); /* nothing to do: it is not called */
    engine.left = 200;
    CHECK_EQ(eventfd_write(engine.fd, 1), 0);
    UNTIL(&t, engine.left == 0);
    CHECK_EQ(weft_disassociate_resources(resource, t.a, NULL), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(engine.fd);
    two_down(&t);
}

/* A library that is broken, as UCX is whose device has gone: its descriptor cannot be armed. */
struct broken {
    int fd, calls, left;
    bool whole;
};
static unsigned broken_progress(void *arg) {
    struct broken *b = arg;
    b->calls++;
    if (b->left == 0) return 0;
    b->left--;
    return 1;
}
static int broken_arm(void *arg) {
    return ((struct broken *)arg)->whole ? 0 : -3;
}

TEST(a_library_that_cannot_be_armed_does_not_keep_the_worker_awake) {
    enum { VAIN = 64 * 16 };
    struct two t;
    struct broken b = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    weft_events_t events = {b.fd, broken_progress, broken_arm, &b};
    weft_resource_t *resource = two_with_library(&t, events);
    UNTIL(&t, b.calls >= VAIN);
    b.calls = 0;
    for (double until = test_now() + 0.3; test_now() < until;) weft_worker_progress(t.a, 0);
    CHECK(b.calls > 0 && b.calls <= 12 * 64); /* 1, 2, … 32 ms, and 100 */
    b.left = 5;                               /* it is asked for what it has */
    b.whole = true;
    UNTIL(&t, b.left == 0);
    CHECK_EQ(weft_disassociate_resources(resource, t.a, NULL), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(b.fd);
    two_down(&t);
}

/* It ends its own association, in a turn of the worker, and the resource with it. */
struct quitter {
    int fd, calls;
    weft_resource_t *resource;
    weft_worker_t *worker;
};
static unsigned quitter_progress(void *arg) {
    struct quitter *q = arg;
    q->calls++;
    CHECK_EQ(weft_disassociate_resources(q->resource, q->worker, NULL), 0);
    CHECK_EQ(weft_resource_release(q->resource), 0);
    return 1;
}

TEST(a_library_may_leave_the_worker_in_its_progress) {
    struct two t;
    struct quitter q = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    weft_events_t events = {.fd = q.fd, .progress = quitter_progress, .arg = &q};
    two_workers(&t, "self", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    q.resource = describe(WEFT_RESOURCE_EVENTS, &value, 1);
    q.worker = t.a;
    CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, q.resource, t.a), 0);
    UNTIL(&t, q.calls);
    CHECK_EQ(eventfd_write(q.fd, 1), 0);
    for (int i = 0; i < 100; i++) two_turn(&t);
    CHECK_EQ(q.calls, 1); /* it is not asked any more */
    close(q.fd);
    two_down(&t);
}

TEST(a_wait_for_the_objects_of_two_workers_is_refused) {
    struct two t;
    struct engine engine = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    weft_events_t events = {engine.fd, engine_progress, engine_arm, &engine};
    two_workers(&t, "shm", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    weft_resource_t *resource = describe(WEFT_RESOURCE_EVENTS, &value, 1);
    CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, resource, t.a), 0);
    CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, resource, t.b), 0);
    CHECK_EQ(weft_disassociate_resources_wait(resource, NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_disassociate_resources_wait(resource, t.a), 0);
    CHECK_EQ(weft_disassociate_resources_wait(resource, NULL), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(engine.fd);
    two_down(&t);
}

/* ---- UCX, if it is there --------------------------------------------------------------------- */

/* What of UCX's interface is used, as version 1.13 declares it. */
struct ucx {
    int8_t (*init)(unsigned, unsigned, const void *, const void *, void **);
    int8_t (*worker_create)(void *, const void *, void **);
    int8_t (*get_address)(void *, void **, size_t *);
    void (*release_address)(void *, void *);
    int8_t (*ep_create)(void *, const void *, void **);
    void *(*send)(void *, const void *, size_t, uint64_t, uint64_t, void (*)(void *, int8_t));
    void *(*recv)(void *, void *, size_t, uint64_t, uint64_t, uint64_t,
                  void (*)(void *, int8_t, void *));
    void (*free)(void *);
    void (*worker_destroy)(void *);
    void (*cleanup)(void *);
    void *context, *worker, *ep;
};
enum { UCX_FEATURES = 1, UCX_TAG = 1, UCX_WAKEUP = 16, UCX_ADDRESS = 1, UCX_BYTES = 8 };

static int ucx_received;
static void ucx_sent(void *request, int8_t status) {}
static void ucx_got(void *request, int8_t status, void *info) {
    ucx_received++;
}

#define FIND(field, name) (*(void **)&u->field = dlsym(library, name))
static bool ucx_load(struct ucx *u) {
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
    return library && FIND(init, "ucp_init_version") && FIND(worker_create, "ucp_worker_create") &&
           FIND(get_address, "ucp_worker_get_address") && FIND(ep_create, "ucp_ep_create") &&
           FIND(release_address, "ucp_worker_release_address") && FIND(send, "ucp_tag_send_nb") &&
           FIND(recv, "ucp_tag_recv_nb") && FIND(free, "ucp_request_free") &&
           FIND(worker_destroy, "ucp_worker_destroy") && FIND(cleanup, "ucp_cleanup");
}

static void ucx_up(struct ucx *u) {
    uint64_t params[64] = {UCX_FEATURES, UCX_TAG | UCX_WAKEUP}, worker_params[64] = {0};
    uint64_t ep_params[64] = {UCX_ADDRESS};
    void *address;
    size_t len;
    setenv("UCX_TLS", "self,tcp", 1);
    CHECK_EQ(u->init(1, 13, params, NULL, &u->context), 0);
    CHECK_EQ(u->worker_create(u->context, worker_params, &u->worker), 0);
    CHECK_EQ(u->get_address(u->worker, &address, &len), 0);
    ep_params[1] = (uintptr_t)address;
    CHECK_EQ(u->ep_create(u->worker, ep_params, &u->ep), 0);
    u->release_address(u->worker, address);
}

/* A worker of Weft that drives one of UCX. */
static weft_resource_t *ucx_given(struct ucx *u, struct two *t) {
    weft_events_t events;
    ucx_received = 0;
    two_workers(t, "self", NULL, 0);
    ucx_up(u);
    CHECK_EQ(weft_ucx_events("libucp.so.0", u->worker, &events), 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    weft_resource_t *resource = describe(WEFT_RESOURCE_EVENTS, &value, 1);
    CHECK_EQ(associate(t->context, WEFT_OBJECT_WORKER, resource, t->a), 0);
    for (int i = 0; i < 100; i++) two_turn(t);
    return resource;
}

static void ucx_given_back(struct ucx *u, struct two *t, weft_resource_t *resource) {
    CHECK_EQ(weft_disassociate_resources(resource, t->a, NULL), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    u->worker_destroy(u->worker);
    u->cleanup(u->context);
    two_down(t);
}

TEST(a_ucx_worker_makes_progress_in_the_workers_loop) {
    struct two t;
    struct ucx ucx = {0};
    char in[8] = "";
    if (!ucx_load(&ucx)) SKIP("libucp.so.0 is not installed");
    weft_resource_t *resource = ucx_given(&ucx, &t);
    void *request = ucx.recv(ucx.worker, in, 8, UCX_BYTES, 7, ~0ull, ucx_got);
    void *sent = ucx.send(ucx.ep, "by ucx", 7, UCX_BYTES, 7, ucx_sent);
    UNTIL(&t, ucx_received == 1); /* only Weft's worker is driven */
    CHECK(strcmp(in, "by ucx") == 0);
    ucx.free(request);
    if (sent) ucx.free(sent);
    ucx_given_back(&ucx, &t, resource);
}

/* Its descriptor alone wakes the worker, which waits in the kernel. */
TEST(messages_of_ucx_of_any_size_come_while_the_worker_waits) {
    struct two t;
    struct ucx ucx = {0};
    static char in[1 << 20], out[1 << 20];
    if (!ucx_load(&ucx)) SKIP("libucp.so.0 is not installed");
    weft_resource_t *resource = ucx_given(&ucx, &t);
    for (size_t len = 1; len <= sizeof in; len *= 32) {
        memset(out, (int)len + 1, len);
        ucx_received = 0;
        void *request = ucx.recv(ucx.worker, in, len, UCX_BYTES, 7, ~0ull, ucx_got);
        void *sent = ucx.send(ucx.ep, out, len, UCX_BYTES, 7, ucx_sent);
        double end = test_now() + test_timeout(60);
        while (!ucx_received && test_now() < end) (void)weft_worker_wait(t.a, 1000);
        CHECK_EQ(ucx_received, 1);
        CHECK(memcmp(in, out, len) == 0);
        ucx.free(request);
        if (sent) ucx.free(sent);
    }
    ucx_given_back(&ucx, &t, resource);
}

TEST(a_kind_that_does_not_fit_is_refused) {
    struct sharing s;
    share_up(&s, "self");
    weft_resource_t *user = describe(WEFT_RESOURCE_USER, NULL, 0);
    weft_worker_t *worker = stub_worker(s.context);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, user, worker), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_CONTEXT, user, s.context), 0); /* described */
    CHECK_EQ(weft_disassociate_resources(user, s.context, NULL), 0);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(user), 0);
    share_down(&s);
}

TEST(a_context_of_cuda_is_refused_where_its_driver_is_not_loaded) {
    struct sharing s;
    void *made = &s;
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_CUDA_CONTEXT, made);
    share_up(&s, "self");
    weft_resource_t *cuda = describe(WEFT_RESOURCE_CUDA, &value, 1);
    weft_worker_t *worker = stub_worker(s.context);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, cuda, worker), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_flush(worker, NULL), WEFT_ERR_NOT_ASSOCIATED);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(cuda), 0);
    share_down(&s);
}

struct first_team {
    weft_team_t *team;
    int ready;
};
static void note_team(weft_team_t *team, weft_status_t status, void *arg) {
    struct first_team *t = arg;
    CHECK_EQ(status, 0);
    t->team = team;
    t->ready++;
}

/* A team that is made of a library's is the library's, too, and has its lease. */
static void made_of_another(bool shrinks) {
    struct sharing s;
    struct first_team first = {0}, second = {0};
    struct tally done = {0};
    share_up(&s, "shm");
    weft_team_params_t params = {
        .exchange = weft_self_exchange(), .on_ready = note_team, .arg = &first};
    CHECK_EQ(weft_team_create(s.library[0], &params, &first.team), 0);
    UNTIL(&s.two, first.ready);
    params = (weft_team_params_t){.on_ready = note_team, .arg = &second};
    CHECK_EQ(shrinks ? weft_team_shrink(first.team, &params)
                     : weft_team_split(first.team, 0, 0, &params),
             0);
    UNTIL(&s.two, second.ready);
    CHECK_EQ(weft_team_close(first.team, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls == 1);
    CHECK_EQ(weft_disassociate_resources_wait(s.resource[0], s.library[0]), WEFT_ERR_BUSY);
    CHECK_EQ(weft_team_close(second.team, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls == 2);
    share_down(&s);
}

/* Its team closes, and the handle is gone. */
static void worker_ends_under_a_team(bool by_loss) {
    static struct ending_team in_team;
    struct sharing s;
    struct tally done = {0};
    weft_resource_info_t info = {.n_users = 1};
    share_up(&s, "shm");
    ending_team_begin(&in_team, s.library[0], s.library[1]);
    UNTIL(&s.two, ending_team_is_ready(&in_team));
    ending_team_waits(&in_team);
    for (int i = 0; i < 20; i++) two_turn(&s.two);
    if (by_loss)
        weft_resource_lose(s.resource[0]);
    else
        CHECK_EQ(weft_resource_withdraw(s.resource[0], NULL), WEFT_IN_PROGRESS);
    UNTIL(&s.two, in_team.barrier.calls);
    ending_team_ended(&in_team, by_loss ? WEFT_ERR_RESOURCE_LOST : WEFT_ERR_DISASSOCIATED);
    UNTIL(&s.two, weft_barrier(in_team.team[1], NULL) == WEFT_ERR_PEER_FAILED);
    UNTIL(&s.two, weft_resource_info(s.resource[0], &info) == 0 && !info.n_users);
    CHECK_EQ(weft_team_close(in_team.team[1], OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls);
    share_down(&s);
}

TEST(a_collective_of_a_library_ends_as_its_association_with_a_worker_does) {
    worker_ends_under_a_team(false);
    worker_ends_under_a_team(true);
}

TEST(a_library_ends_after_the_teams_that_its_teams_were_made_into) {
    made_of_another(false);
    made_of_another(true);
}

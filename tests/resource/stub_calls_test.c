/* Each call on an object in associated mode that has no resource answers why: it never had one, has
 * returned it, or has lost it. */
#include "shared.h"

#include <ev.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/collective.h>

static int n_wrong;
static void check_answer(const char *call, int got, int wanted) {
    if (got == wanted) return;
    printf("  %s: %d, not %s\n", call, got, weft_status_name((weft_status_t)wanted));
    n_wrong++;
}
#define ANSWERS(call) check_answer(#call, (int)(call), wanted)

static char bytes[64];
static weft_iov_t iov = {bytes, sizeof bytes};
static uint64_t counts[1] = {1}, displs[1] = {0};
static size_t len;
static void not_called(void *arg) {
    n_wrong++;
}

static void worker_answers(void *object, int wanted) {
    weft_worker_t *w = object;
    weft_ep_t *ep;
    weft_mem_t *mem;
    weft_team_t *team;
    weft_listener_t *listener;
    weft_tag_info_t info;
    weft_tag_message_t *message;
    weft_lease_t lease;
    weft_resource_t *resource;
    weft_ep_params_t stub_ep = {.associated = 1};
    weft_mem_params_t stub_mem = {.associated = 1};
    weft_team_params_t stub_team = {.associated = 1};
    weft_worker_info_t described;
    weft_transport_info_t transport;
    weft_protocol_info_t protocol;
    weft_calibration_info_t cost;
    weft_memory_info_t domain;
    const char *name, *why;
    len = sizeof bytes;
    ANSWERS(weft_worker_address(w, bytes, &len));
    ANSWERS(weft_worker_progress(w, 0));
    ANSWERS(weft_worker_wait(w, 0));
    ANSWERS(weft_worker_spin(w));
    ANSWERS(weft_worker_fd(w));
    ANSWERS(weft_worker_fd_level(w));
    ANSWERS(weft_worker_post(w, not_called, NULL));
    ANSWERS(weft_worker_start_thread(w, NULL));
    ANSWERS(weft_worker_stop_thread(w));
    ANSWERS(weft_worker_adopt(w));
    ANSWERS(weft_worker_flush(w, NULL));
    ANSWERS(weft_worker_flush_wait(w));
    ANSWERS(weft_worker_flush_remote_wait(w));
    ANSWERS(weft_worker_describe(w, &described));
    ANSWERS(weft_worker_transport(w, 0, &transport));
    ANSWERS(weft_worker_unopened(w, 0, &name, &why));
    ANSWERS(weft_worker_protocol(w, 0, 0, &protocol));
    ANSWERS(weft_worker_calibration(w, 0, &cost));
    ANSWERS(weft_worker_memory(w, 0, &domain));
    ANSWERS(weft_worker_fence(w));
    ANSWERS(weft_connect(w, "tcp://127.0.0.1:1", NULL, &ep));
    ANSWERS(weft_connect(w, NULL, &stub_ep, &ep));
    ANSWERS(weft_connect_address(w, bytes, sizeof bytes, NULL, &ep));
    ANSWERS(weft_listen(w, "tcp://127.0.0.1:0", NULL, &listener));
    ANSWERS(weft_tag_recv(w, 1, ~0ull, &iov, 1, NULL, NULL));
    ANSWERS(weft_tag_recv_wait(w, 1, ~0ull, &iov, 1, NULL));
    ANSWERS(weft_tag_probe(w, 1, ~0ull, &info));
    ANSWERS(weft_tag_take(w, 1, ~0ull, &info, &message));
    ANSWERS(weft_mem_alloc(w, 64, NULL, &mem));
    ANSWERS(weft_mem_register(w, bytes, sizeof bytes, NULL, &mem));
    ANSWERS(weft_mem_register(w, NULL, 0, &stub_mem, &mem));
    ANSWERS(weft_mem_import(w, 0, 0, 4096, NULL, &mem));
    ANSWERS(weft_mem_get(w, bytes, sizeof bytes, WEFT_MEM_ALL, &mem));
    ANSWERS(weft_mem_invalidate(w, bytes, sizeof bytes, NULL));
    ANSWERS(weft_mem_invalidate_wait(w, bytes, sizeof bytes));
    ANSWERS(weft_team_create(w, &(weft_team_params_t){.exchange = weft_self_exchange()}, &team));
    ANSWERS(weft_team_create(w, &stub_team, &team));
    ANSWERS(weft_team_create_wait(w, weft_self_exchange(), &team));
    ANSWERS(weft_team_join(w, bytes, sizeof bytes, NULL));
    ANSWERS(weft_team_join_wait(w, bytes, sizeof bytes, &team));
    ANSWERS(weft_resource_export(WEFT_OBJECT_WORKER, w, WEFT_RESOURCE_WORKER, NULL, &resource));
    ANSWERS(weft_resource_receive(w, -1, &resource));
    check_answer("weft_worker_lease", weft_worker_lease(w, &lease), WEFT_ERR_NOT_FOUND);
    weft_worker_wake(w);
    CHECK(weft_worker_now(w) > 0);
    CHECK_EQ(weft_worker_trace(w, (char *)bytes, sizeof bytes), 0);
}

static weft_rkey_t *key; /* of the endpoint beside it */

static void ep_answers(void *object, int wanted) {
    weft_ep_t *ep = object;
    weft_ep_info_t info;
    weft_rkey_t *rkey;
    weft_local_t local = {bytes, sizeof bytes, sizeof bytes, 1, NULL};
    weft_remote_t remote = {0, sizeof bytes, sizeof bytes, 1, key};
    weft_resource_t *resource;
    uint64_t old;
    const void *data;
    ANSWERS(weft_am_send(ep, 1, NULL, 0, &iov, 1, NULL));
    ANSWERS(weft_am_send(ep, 1, NULL, 0, &iov, 1, &(weft_op_t){.flags = WEFT_AM_RENDEZVOUS}));
    ANSWERS(weft_am_send_wait(ep, 1, NULL, 0, &iov, 1));
    ANSWERS(weft_tag_send(ep, 1, &iov, 1, NULL));
    ANSWERS(weft_tag_send_wait(ep, 1, &iov, 1));
    ANSWERS(weft_stream_send(ep, &iov, 1, NULL));
    ANSWERS(weft_stream_recv(ep, &iov, 1, &len, NULL));
    ANSWERS(weft_stream_take(ep, &data, &len));
    ANSWERS(weft_stream_send_wait(ep, &iov, 1));
    ANSWERS(weft_stream_recv_wait(ep, &iov, 1, &len));
    ANSWERS(weft_ep_flush(ep, NULL));
    ANSWERS(weft_ep_flush_wait(ep));
    ANSWERS(weft_ep_flush_remote_wait(ep));
    ANSWERS(weft_ep_has_room(ep));
    ANSWERS(weft_ep_fence(ep));
    ANSWERS(weft_ep_describe(ep, &info));
    weft_rma_attributes_t attributes;
    ANSWERS(weft_ep_rma_attributes(ep, key, &attributes));
    ANSWERS(weft_rkey_unpack(ep, bytes, sizeof bytes, &rkey));
    ANSWERS(weft_put(ep, bytes, 8, 0, key, NULL));
    ANSWERS(weft_get(ep, bytes, 8, 0, key, NULL));
    ANSWERS(weft_put_pieces(ep, &local, 1, &remote, 1, NULL));
    ANSWERS(weft_get_pieces(ep, &local, 1, &remote, 1, NULL));
    ANSWERS(weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, 0, key, NULL));
    ANSWERS(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, 0, key, NULL));
    ANSWERS(weft_put_pieces_wait(ep, &local, 1, &remote, 1));
    ANSWERS(weft_get_pieces_wait(ep, &local, 1, &remote, 1));
    ANSWERS(weft_put_wait(ep, bytes, 8, 0, key));
    ANSWERS(weft_get_wait(ep, bytes, 8, 0, key));
    ANSWERS(weft_atomic_fetch_wait(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, 0, key));
    ANSWERS(
        weft_resource_export(WEFT_OBJECT_ENDPOINT, ep, WEFT_RESOURCE_ENDPOINTS, NULL, &resource));
    CHECK(weft_ep_is_connected(ep, bytes, sizeof bytes) < 0);
    weft_ep_set_user(ep, bytes);
    CHECK(weft_ep_user(ep) == bytes);
}

static void mem_answers(void *object, int wanted) {
    weft_mem_t *mem = object;
    weft_mem_info_t info;
    weft_resource_t *resource;
    char key[WEFT_RKEY_MAX];
    uint64_t offset;
    int fd;
    len = sizeof key;
    ANSWERS(weft_mem_pack(mem, key, &len));
    ANSWERS(weft_mem_describe(mem, &info));
    ANSWERS(weft_mem_export(mem, &fd, &offset));
    ANSWERS(weft_mem_revoke(mem, NULL));
    ANSWERS(weft_mem_revoke_wait(mem));
    ANSWERS(weft_mem_advise(mem, 0, 8, WEFT_ADVISE_WILL_NEED));
    ANSWERS(weft_resource_export(WEFT_OBJECT_MEMORY, mem, WEFT_RESOURCE_MEMORY, NULL, &resource));
}

static void add(void *to, const void *left, const void *right, size_t count, void *arg) {}

static void collectives_answer(weft_team_t *team, int wanted) {
    double in[1] = {0}, out[1];
    const weft_datatype_t t = WEFT_FLOAT64;
    weft_neighbors_t none = {NULL, NULL, 0, 0};
    weft_coll_args_t args = {.kind = WEFT_COLL_BARRIER};
    weft_coll_t *coll;
    ANSWERS(weft_barrier(team, NULL));
    ANSWERS(weft_bcast(team, out, 1, t, 0, NULL));
    ANSWERS(weft_allreduce(team, in, out, 1, t, WEFT_SUM, NULL));
    ANSWERS(weft_allgather(team, in, out, 1, t, NULL));
    ANSWERS(weft_allgatherv(team, in, out, counts, displs, t, NULL));
    ANSWERS(weft_fanin(team, 0, NULL));
    ANSWERS(weft_fanout(team, 0, NULL));
    ANSWERS(weft_gather(team, in, out, 1, t, 0, NULL));
    ANSWERS(weft_gatherv(team, in, 1, out, counts, displs, t, 0, NULL));
    ANSWERS(weft_scatter(team, in, out, 1, t, 0, NULL));
    ANSWERS(weft_scatterv(team, in, counts, displs, out, 1, t, 0, NULL));
    ANSWERS(weft_reduce(team, in, out, 1, t, WEFT_SUM, 0, NULL));
    ANSWERS(weft_reduce_scatter(team, in, out, 1, t, WEFT_SUM, NULL));
    ANSWERS(weft_reduce_scatterv(team, in, out, counts, t, WEFT_SUM, NULL));
    ANSWERS(weft_alltoall(team, in, out, 1, t, NULL));
    ANSWERS(weft_alltoallv(team, in, counts, displs, out, counts, displs, t, NULL));
    ANSWERS(weft_scan(team, in, out, 1, t, WEFT_SUM, NULL));
    ANSWERS(weft_exscan(team, in, out, 1, t, WEFT_SUM, NULL));
    ANSWERS(weft_neighbor_alltoallv(team, &none, in, counts, displs, out, counts, displs, t, NULL));
    ANSWERS(weft_coll(team, &args, NULL));
    ANSWERS(weft_coll_init(team, &args, 0, &coll));
    ANSWERS(weft_coll_wait(team, &args));
    ANSWERS(weft_barrier_wait(team));
    ANSWERS(weft_bcast_wait(team, out, 1, t, 0));
    ANSWERS(weft_allreduce_wait(team, in, out, 1, t, WEFT_SUM));
    ANSWERS(weft_scan_wait(team, in, out, 1, t, WEFT_SUM));
}

static void team_answers(void *object, int wanted) {
    weft_team_t *team = object, *made;
    weft_datatype_t type;
    weft_reduction_t reduction;
    weft_team_info_t info;
    weft_team_member_t member;
    weft_resource_t *resource;
    weft_team_map_t map = {.kind = WEFT_MAP_STRIDED, .stride = 1, .n = 1};
    const char *name;
    uint64_t flags = 0;
    collectives_answer(team, wanted);
    ANSWERS(weft_team_algorithm(team, WEFT_COLL_BARRIER, 0, 0, &name));
    ANSWERS(weft_datatype_create(team, &(weft_datatype_params_t){.size = 8}, &type));
    ANSWERS(weft_reduction_create(team, add, NULL, 0, &reduction));
    ANSWERS(weft_team_split(team, 0, 0, NULL));
    ANSWERS(weft_team_split_wait(team, 0, 0, &made));
    ANSWERS(weft_team_subset(team, &map, NULL));
    ANSWERS(weft_team_subset_wait(team, &map, &made));
    ANSWERS(weft_team_revoke(team));
    ANSWERS(weft_team_agree(team, &flags, NULL, NULL));
    ANSWERS(weft_team_agree_wait(team, &flags, NULL));
    ANSWERS(weft_team_shrink(team, NULL));
    ANSWERS(weft_team_shrink_wait(team, &made));
    len = sizeof bytes;
    ANSWERS(weft_team_invite(team, bytes, &len));
    ANSWERS(weft_team_grow(team, 0, 1, NULL));
    ANSWERS(weft_team_grow_wait(team, 0, 1, &made));
    ANSWERS(weft_team_describe(team, &info));
    ANSWERS(weft_team_member(team, 0, &member));
    ANSWERS(weft_resource_export(WEFT_OBJECT_TEAM, team, WEFT_RESOURCE_TEAM, NULL, &resource));
    CHECK(weft_team_ep(team, 0) == NULL);
}

/* The object has a resource, and returns or loses it. */
static void ends(struct sharing *s, weft_object_t type, void *object, weft_resource_t *resource,
                 bool lost) {
    struct tally done = {0};
    weft_resource_info_t info = {.n_users = 1};
    CHECK_EQ(associate(s->context, type, resource, object), 0);
    if (lost)
        weft_resource_lose(resource);
    else
        CHECK(weft_disassociate_resources(resource, object, OP(&done)) >= 0);
    UNTIL(&s->two, weft_resource_info(resource, &info) == 0 && info.n_users == 0);
    CHECK_EQ(weft_resource_release(resource), 0);
}

static void live_through(struct sharing *s, weft_object_t type, void *object,
                         weft_resource_t *(*describe_one)(struct sharing *),
                         void (*answers)(void *object, int wanted)) {
    n_wrong = 0;
    answers(object, WEFT_ERR_NOT_ASSOCIATED);
    ends(s, type, object, describe_one(s), false);
    answers(object, WEFT_ERR_DISASSOCIATED);
    ends(s, type, object, describe_one(s), true);
    answers(object, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(n_wrong, 0);
}

static weft_resource_t *a_worker(struct sharing *s) {
    return worker_resource(s->two.a);
}
TEST(each_call_on_a_worker_without_a_resource_answers_why) {
    struct sharing s;
    share_up(&s, "shm");
    weft_worker_t *worker = stub_worker(s.context);
    live_through(&s, WEFT_OBJECT_WORKER, worker, a_worker, worker_answers);
    weft_worker_destroy(worker);
    share_down(&s);
}

static weft_resource_t *an_endpoint(struct sharing *s) {
    weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SET, s->ep);
    return describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
}
TEST(each_call_on_an_endpoint_without_a_resource_answers_why) {
    struct sharing s;
    weft_ep_t *ep;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    weft_mem_params_t rights = {.rights = WEFT_MEM_ALL};
    share_up(&s, "shm");
    share_dial(&s);
    len = sizeof packed;
    CHECK_EQ(weft_mem_alloc(two_b(&s.two), 4096, &rights, &mem), 0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(s.ep, packed, len, &key), 0);
    CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    live_through(&s, WEFT_OBJECT_ENDPOINT, ep, an_endpoint, ep_answers);
    weft_rkey_release(key);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), 0);
    share_down(&s);
}

static weft_resource_t *some_memory(struct sharing *s) {
    static char memory[4096];
    char *base = memory;
    uint64_t size = sizeof memory;
    weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_BASE, base),
                                      VALUE(WEFT_RES_MEMORY_LENGTH, size)};
    return describe(WEFT_RESOURCE_MEMORY, values, 2);
}
TEST(each_call_on_a_region_without_a_resource_answers_why) {
    struct sharing s;
    weft_mem_t *mem;
    weft_mem_params_t stub = {.rights = WEFT_MEM_ALL, .associated = 1};
    share_up(&s, "shm");
    CHECK_EQ(weft_mem_register(s.library[0], NULL, 0, &stub, &mem), 0);
    live_through(&s, WEFT_OBJECT_MEMORY, mem, some_memory, mem_answers);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    share_down(&s);
}

static weft_resource_t *a_team_of_one(struct sharing *s) {
    weft_ep_t *set[1] = {NULL}; /* its own place */
    weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SET, set);
    return describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
}
TEST(each_call_on_a_team_without_a_resource_answers_why) {
    struct sharing s;
    weft_team_t *team;
    share_up(&s, "shm");
    CHECK_EQ(weft_team_create(s.library[0], &(weft_team_params_t){.associated = 1}, &team), 0);
    live_through(&s, WEFT_OBJECT_TEAM, team, a_team_of_one, team_answers);
    CHECK_EQ(weft_team_close(team, NULL), 0);
    share_down(&s);
}

/* ---- by a thread that does not own the worker, and without memory ---------------------------- */

struct trespasser {
    weft_ep_t *ep;
    weft_mem_t *mem;
    weft_team_t *team;
    weft_status_t closed, released, left;
};
static void *trespass(void *arg) {
    struct trespasser *t = arg;
    t->closed = weft_ep_close(t->ep, WEFT_CLOSE_ABORT, NULL);
    t->released = weft_mem_release(t->mem, NULL);
    t->left = weft_team_close(t->team, NULL);
    return NULL;
}

/* The worker of the endpoint is the one that will do its work. */
TEST(what_has_no_resource_is_closed_by_the_owners_thread_alone) {
    struct sharing s;
    struct trespasser t;
    pthread_t thread;
    weft_mem_params_t stub = {.rights = WEFT_MEM_ALL, .associated = 1};
    share_up(&s, "self");
    CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &t.ep), 0);
    CHECK_EQ(weft_mem_register(s.library[0], NULL, 0, &stub, &t.mem), 0);
    CHECK_EQ(weft_team_create(s.library[0], &(weft_team_params_t){.associated = 1}, &t.team), 0);
    CHECK(weft_ep_worker(t.ep) == s.two.a);
    CHECK_EQ(pthread_create(&thread, NULL, trespass, &t), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(t.closed, WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(t.released, WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(t.left, WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL), 0);
    CHECK_EQ(weft_mem_release(t.mem, NULL), 0);
    CHECK_EQ(weft_team_close(t.team, NULL), 0);
    share_down(&s);
}

TEST(each_allocation_of_a_worker_without_a_resource_may_fail) {
    weft_context_t *context = associated_context();
    weft_worker_params_t params = {.associated = 1, .name = "stub", .transports = "self"};
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    weft_worker_t *worker;
    for (uint64_t k = 1; st == WEFT_ERR_NO_MEMORY; k++) {
        weft__alloc_fail_at(k);
        st = weft_worker_create(context, &params, &worker);
        bool failed = weft__alloc_fail_at(0) >= k;
        if (st < 0) continue;
        CHECK_EQ(weft_worker_count(worker, "am.sent"), 0);
        weft_worker_destroy(worker);
        if (failed) st = WEFT_ERR_NO_MEMORY; /* that was one it does without */
    }
    CHECK_EQ(st, 0);
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* Its counters are its own again. */
TEST(a_worker_that_could_not_be_associated_is_as_before) {
    weft_context_t *context = associated_context();
    struct ev_loop *loop = ev_loop_new(0);
    weft_worker_params_t params = {.associated = 1, .transports = "none_of_this_name"};
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, loop);
    weft_resource_t *resource = describe(WEFT_RESOURCE_LOOP, &value, 1);
    weft_worker_t *worker;
    CHECK_EQ(weft_worker_create(context, &params, &worker), 0);
    CHECK(associate(context, WEFT_OBJECT_WORKER, resource, worker) < 0);
    CHECK_EQ(weft_worker_count(worker, "worker.turns"), 0);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    ev_loop_destroy(loop);
}

TEST(only_a_region_of_no_memory_is_made_in_associated_mode) {
    struct sharing s;
    static char memory[64];
    weft_mem_t *mem;
    weft_mem_params_t stub = {.rights = WEFT_MEM_ALL, .associated = 1};
    share_up(&s, "self");
    weft_worker_t *workers[2] = {s.library[0], s.two.a};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_mem_alloc(workers[i], 4096, &stub, &mem), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_mem_register(workers[i], memory, sizeof memory, &stub, &mem),
                 WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_mem_import(workers[i], 0, 0, 4096, &stub, &mem), WEFT_ERR_INVALID_PARAM);
    }
    CHECK_EQ(weft_mem_register(s.two.a, NULL, 0, &stub, &mem), WEFT_ERR_INVALID_PARAM);
    share_down(&s);
}

TEST(a_worker_that_works_by_another_one_has_no_thread_of_its_own) {
    struct sharing s;
    share_up(&s, "self");
    CHECK_EQ(weft_worker_start_thread(s.library[0], NULL), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_stop_thread(s.library[0]), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_adopt(s.library[0]), WEFT_ERR_UNSUPPORTED);
    share_down(&s);
}

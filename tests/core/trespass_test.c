/* Who does not own a worker, a fork's child or another thread, is refused by every call, and
 * changes nothing. */
#include <tests/support/threads.h>

#include <poll.h>
#include <sys/wait.h>
#include <weft/collective.h>
#include <weft/rma.h>

enum { LARGE = 1 << 20, HELD = 3, KEPT = 4 };

static char out[LARGE], in[LARGE];

/* All that a worker may have; the worker is the pair's a, and something of each kind is under
 * way. */
struct estate {
    struct two t;
    weft_thread_mode_t mode;
    weft_listener_t *listener;
    weft_mem_t *mem, *got;
    weft_rkey_t *rkey;
    weft_team_t *team;
    char address[256], key[WEFT_RKEY_MAX];
    size_t address_len, key_len;
    uint64_t remote;
    const void *kept, *taken;
    weft_tag_message_t *message;
    weft_request_t *offered, *received, *streamed;
    struct tally sent, arrived, read;
    size_t n_read;
    int teams, visitors;
};

static weft_status_t gather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                            void *all, weft_done_fn done, void *done_arg) {
    memcpy(all, mine, len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}
static const weft_exchange_t alone = {.size = 1, .allgather = gather};

static void on_team(weft_team_t *team, weft_status_t status, void *arg) {
    ((struct estate *)arg)->teams += status == WEFT_OK;
}
static void on_visitor(weft_ep_t *ep, void *arg) {
    ((struct estate *)arg)->visitors++;
}
static void on_kept(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)weft_am_retain(am, &((struct estate *)arg)->kept);
}

static void memory_up(struct estate *e) {
    weft_mem_info_t info;
    weft_mem_t *there;
    e->key_len = sizeof e->key;
    CHECK_EQ(weft_mem_alloc(e->t.a, 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &e->mem),
             0);
    CHECK_EQ(weft_mem_get(e->t.a, out, sizeof out, 0, &e->got), 0);
    CHECK_EQ(weft_mem_alloc(e->t.b, 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &there), 0);
    CHECK_EQ(weft_mem_describe(there, &info), 0);
    e->remote = (uint64_t)(uintptr_t)info.base;
    CHECK_EQ(weft_mem_pack(there, e->key, &e->key_len), 0);
    CHECK_EQ(weft_rkey_unpack(e->t.ep, e->key, e->key_len, &e->rkey), 0);
    CHECK(weft_put(e->t.ep, "before", 6, e->remote, e->rkey, NULL) >= 0);
}

static void messages_up(struct estate *e) {
    struct two *t = &e->t;
    size_t len;
    weft_tag_info_t info;
    static char some[16384];
    CHECK_EQ(weft_am_handler_set(t->a, KEPT, on_kept, e), 0);
    CHECK(weft_am_send(t->back, KEPT, NULL, 0, &(weft_iov_t){some, sizeof some}, 1, NULL) >= 0);
    CHECK(weft_stream_send(t->back, &(weft_iov_t){some, 100}, 1, NULL) >= 0);
    CHECK(weft_tag_send(t->back, HELD, &(weft_iov_t){some, 100}, 1, NULL) >= 0);
    UNTIL(t, e->kept);
    UNTIL(t, e->taken || weft_stream_take(t->ep, &e->taken, &len) == WEFT_OK);
    UNTIL(t, e->message || weft_tag_take(t->a, HELD, ~UINT64_C(0), &info, &e->message) == WEFT_OK);
}

/* A message that is offered to b, and two receives that nothing has come for. */
static void requests_up(struct estate *e) {
    weft_op_t sent = {.done = tally, .arg = &e->sent, .request_p = &e->offered};
    weft_op_t arrived = {.done = tally, .arg = &e->arrived, .request_p = &e->received};
    weft_op_t read = {.done = tally, .arg = &e->read, .request_p = &e->streamed};
    pattern(out, sizeof out, 5);
    CHECK_EQ(weft_tag_send(e->t.ep, 1, &(weft_iov_t){out, sizeof out}, 1, &sent), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(e->t.a, 2, ~UINT64_C(0), &(weft_iov_t){in, 8}, 1, NULL, &arrived),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_stream_recv(e->t.ep, &(weft_iov_t){in + 8, 8}, 1, &e->n_read, &read),
             WEFT_IN_PROGRESS);
    for (int i = 0; i < 200; i++) two_turn(&e->t);
    CHECK(!e->sent.calls && !e->arrived.calls && !e->read.calls);
}

static void estate_up(struct estate *e, const char *transport, const char *uri,
                      weft_thread_mode_t mode) {
    struct two *t = &e->t;
    *e = (struct estate){.mode = mode, .address_len = sizeof e->address};
    CHECK_EQ(weft_context_create(NULL, &t->context), 0);
    weft_worker_params_t params = {.transports = transport, .thread_mode = mode};
    CHECK_EQ(weft_worker_create(t->context, &params, &t->a), 0);
    params =
        (weft_worker_params_t){.transports = transport, .on_endpoint = two_on_endpoint, .arg = t};
    CHECK_EQ(weft_worker_create(t->context, &params, &t->b), 0);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
    CHECK_EQ(weft_worker_address(t->b, e->address, &e->address_len), 0);
    weft_listen_params_t door = {.on_endpoint = on_visitor, .arg = e};
    CHECK_EQ(weft_listen(t->a, uri, &door, &e->listener), 0);
    weft_team_params_t team = {.exchange = &alone, .on_ready = on_team, .arg = e};
    CHECK_EQ(weft_team_create(t->a, &team, &e->team), 0);
    UNTIL(t, e->teams);
    memory_up(e);
    messages_up(e);
    requests_up(e);
}

/* What was under way before ends as if there had been no attempt, and all else can still be
 * done. */
static void estate_is_whole(struct estate *e) {
    struct two *t = &e->t;
    struct tally got = {0}, met = {0}, put = {0}, flushed = {0}, gone = {0};
    weft_ep_t *visitor;
    memset(in, 0, sizeof in);
    CHECK(weft_tag_send(t->back, 2, &(weft_iov_t){"the tag", 8}, 1, NULL) >= 0);
    CHECK(weft_stream_send(t->back, &(weft_iov_t){"stream.", 8}, 1, NULL) >= 0);
    UNTIL(t, e->arrived.calls && e->read.calls);
    CHECK_EQ(e->arrived.status, WEFT_OK);
    CHECK_EQ(e->read.status, WEFT_OK);
    CHECK(memcmp(in, "the tag\0stream.", 16) == 0);

    weft_iov_t iov = {in, sizeof in};
    CHECK_EQ(weft_tag_recv(t->b, 1, ~UINT64_C(0), &iov, 1, NULL, OP(&got)), WEFT_IN_PROGRESS);
    UNTIL(t, got.calls && e->sent.calls);
    CHECK_EQ(got.status, WEFT_OK);
    CHECK_EQ(e->sent.status, WEFT_OK);
    CHECK(is_pattern(in, sizeof in, 5));

    weft_ep_params_t params = {0};
    CHECK_EQ(weft_connect(t->b, weft_listener_uri(e->listener), &params, &visitor), 0);
    UNTIL(t, e->visitors == 1);
    weft_op_t remote = {.done = tally, .arg = &put, .flags = WEFT_RMA_REMOTE};
    weft_status_t st = weft_put(t->ep, "behind", 6, e->remote, e->rkey, &remote);
    if (st == WEFT_IN_PROGRESS) UNTIL(t, put.calls);
    CHECK(st >= 0 && put.status == WEFT_OK);
    CHECK(memcmp((void *)(uintptr_t)e->remote, "behind", 6) == 0);
    st = weft_barrier(e->team, OP(&met));
    if (st == WEFT_IN_PROGRESS) UNTIL(t, met.calls);
    CHECK(st >= 0 && met.status == WEFT_OK);
    CHECK_EQ(weft_tag_message_recv(t->a, e->message, &(weft_iov_t){in, 100}, 1, NULL), WEFT_OK);
    weft_am_release(t->a, e->kept);
    weft_stream_release(t->a, e->taken);
    weft_mem_put(e->got);
    weft_rkey_release(e->rkey);
    CHECK_EQ(t->errors, 0);
    CHECK_EQ(weft_worker_flush(t->a, OP(&flushed)), WEFT_IN_PROGRESS);
    UNTIL(t, flushed.calls);
    CHECK_EQ(weft_team_close(e->team, OP(&gone)), WEFT_IN_PROGRESS);
    UNTIL(t, gone.calls);
    weft_listener_close(e->listener);
    two_down(t);
}

#define REFUSED(call)                                                            \
    do {                                                                         \
        long long refused = (call);                                              \
        if (refused == why) break;                                               \
        printf("  %s is %s\n", #call, weft_status_name((weft_status_t)refused)); \
        wrong++;                                                                 \
    } while (0)

/* What in mode MULTIPLE any thread may submit. */
static int submit_all(struct estate *e, weft_status_t why) {
    int wrong = 0;
    weft_ep_t *ep = e->t.ep;
    weft_iov_t iov = {in, 8};
    weft_local_t here = {.base = in, .len = 8};
    weft_remote_t there = {.base = e->remote, .len = 8, .rkey = e->rkey};
    uint64_t old;
    size_t len;
    weft_request_cancel(e->offered);
    weft_request_cancel(e->received);
    weft_request_cancel(e->streamed);
    REFUSED(weft_am_send(ep, 1, NULL, 0, &iov, 1, NULL));
    REFUSED(weft_am_send(ep, 1, "header", 6, &iov, 1, NULL));
    REFUSED(weft_am_send_wait(ep, 1, NULL, 0, &iov, 1));
    REFUSED(weft_tag_send(ep, 2, &iov, 1, NULL));
    REFUSED(weft_tag_send_wait(ep, 2, &iov, 1));
    REFUSED(weft_tag_recv(e->t.a, 2, 0, &iov, 1, NULL, NULL));
    REFUSED(weft_tag_recv_wait(e->t.a, 2, 0, &iov, 1, NULL));
    REFUSED(weft_stream_send(ep, &iov, 1, NULL));
    REFUSED(weft_stream_send_wait(ep, &iov, 1));
    REFUSED(weft_stream_recv(ep, &iov, 1, &len, NULL));
    REFUSED(weft_stream_recv_wait(ep, &iov, 1, &len));
    REFUSED(weft_put(ep, in, 8, e->remote, e->rkey, NULL));
    REFUSED(weft_put_wait(ep, in, 8, e->remote, e->rkey));
    REFUSED(weft_get(ep, in, 8, e->remote, e->rkey, NULL));
    REFUSED(weft_get_wait(ep, in, 8, e->remote, e->rkey));
    REFUSED(weft_put_pieces(ep, &here, 1, &there, 1, NULL));
    REFUSED(weft_get_pieces(ep, &here, 1, &there, 1, NULL));
    REFUSED(weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, e->remote, e->rkey, NULL));
    REFUSED(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, e->remote, e->rkey, NULL));
    REFUSED(weft_atomic_fetch_wait(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, e->remote, e->rkey));
    REFUSED(weft_ep_fence(ep));
    REFUSED(weft_ep_flush(ep, NULL));
    REFUSED(weft_ep_flush_wait(ep));
    REFUSED(weft_worker_fence(e->t.a));
    REFUSED(weft_worker_flush(e->t.a, NULL));
    REFUSED(weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL));
    REFUSED(weft_ep_close_wait(ep, WEFT_CLOSE_ABORT));
    return wrong;
}

/* The owner's, in every mode but SERIALIZED. */
static int own_all(struct estate *e, weft_status_t why) {
    int wrong = 0;
    weft_worker_t *worker = e->t.a;
    weft_ep_t *ep = e->t.ep, *new_ep;
    weft_iov_t iov = {in, 8};
    weft_listener_t *listener;
    weft_team_t *team;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    weft_tag_info_t info;
    weft_tag_message_t *message;
    weft_mem_info_t region;
    weft_rkey_info_t key;
    weft_ep_info_t about;
    weft_rma_attributes_t attributes;
    weft_memory_info_t memory;
    const void *data;
    void *at;
    char bytes[256];
    size_t len = sizeof bytes;
    uint64_t offset;
    int fd;
    weft_listener_close(e->listener);
    weft_ep_on_error(ep, NULL, NULL);
    weft_am_release(worker, e->kept);
    weft_stream_release(worker, e->taken);
    weft_mem_put(e->got);
    weft_rkey_release(e->rkey);
    weft_worker_destroy(worker);
    REFUSED(weft_worker_close(worker, NULL));
    REFUSED(weft_worker_wait(worker, 0));
    REFUSED(weft_worker_fd(worker));
    REFUSED(weft_worker_address(worker, bytes, &len));
    REFUSED(weft_worker_start_thread(worker, &(weft_thread_params_t){0}));
    REFUSED(weft_worker_memory(worker, 0, &memory));
    REFUSED(weft_connect(worker, "tcp://127.0.0.1:1", NULL, &new_ep));
    REFUSED(weft_connect_address(worker, e->address, e->address_len, NULL, &new_ep));
    REFUSED(weft_listen(worker, "tcp://127.0.0.1:0", NULL, &listener));
    REFUSED(weft_ep_describe(ep, &about));
    REFUSED(weft_ep_is_connected(ep, e->address, e->address_len));
    REFUSED(weft_ep_has_room(ep));
    REFUSED(weft_ep_rma_attributes(ep, e->rkey, &attributes));
    REFUSED(weft_am_handler_set(worker, KEPT, NULL, NULL));
    REFUSED(weft_tag_probe(worker, 0, 0, &info));
    REFUSED(weft_tag_take(worker, 0, 0, &info, &message));
    REFUSED(weft_tag_message_recv(worker, e->message, &iov, 1, NULL));
    REFUSED(weft_stream_take(ep, &data, &len));
    REFUSED(weft_stream_on_data(ep, NULL, NULL));
    REFUSED(weft_mem_alloc(worker, 4096, NULL, &mem));
    REFUSED(weft_mem_register(worker, in, sizeof in, NULL, &mem));
    REFUSED(weft_mem_import(worker, 0, 0, 4096, NULL, &mem));
    REFUSED(weft_mem_get(worker, in, sizeof in, 0, &mem));
    REFUSED(weft_mem_export(e->mem, &fd, &offset));
    REFUSED(weft_mem_advise(e->mem, 0, 4096, WEFT_ADVISE_DONT_NEED));
    REFUSED(weft_mem_describe(e->mem, &region));
    len = sizeof bytes;
    REFUSED(weft_mem_pack(e->mem, bytes, &len));
    REFUSED(weft_mem_revoke(e->mem, NULL));
    REFUSED(weft_mem_release(e->mem, NULL));
    REFUSED(weft_mem_invalidate(worker, out, sizeof out, NULL));
    REFUSED(weft_rkey_unpack(ep, e->key, e->key_len, &rkey));
    REFUSED(weft_rkey_pointer(e->rkey, e->remote, &at));
    REFUSED(weft_rkey_describe(e->rkey, &key));
    REFUSED(weft_team_create(worker, &(weft_team_params_t){.exchange = &alone}, &team));
    REFUSED(weft_team_create_wait(worker, &alone, &team));
    REFUSED(weft_team_ep(e->team, 0) ? WEFT_OK : why);
    REFUSED(weft_barrier(e->team, NULL));
    REFUSED(weft_barrier_wait(e->team));
    REFUSED(weft_bcast(e->team, in, 1, WEFT_INT8, 0, NULL));
    REFUSED(weft_bcast_wait(e->team, in, 1, WEFT_INT8, 0));
    REFUSED(weft_allreduce(e->team, in, in, 1, WEFT_INT8, WEFT_SUM, NULL));
    REFUSED(weft_allreduce_wait(e->team, in, in, 1, WEFT_INT8, WEFT_SUM));
    REFUSED(weft_allgather(e->team, in, in, 1, WEFT_INT8, NULL));
    REFUSED(weft_allgather_wait(e->team, in, in, 1, WEFT_INT8));
    REFUSED(weft_team_close(e->team, NULL));
    REFUSED(weft_team_close_wait(e->team));
    return wrong;
}

/* What other threads may ask in any mode, and a child may not. */
static void nothing(void *arg) {}
static int child_all(struct estate *e) {
    const weft_status_t why = WEFT_ERR_FORKED;
    int wrong = submit_all(e, why) + own_all(e, why);
    weft_worker_wake(e->t.a);
    REFUSED(weft_worker_progress(e->t.a, 0));
    REFUSED(weft_worker_progress(e->t.b, 0));
    REFUSED(weft_worker_post(e->t.a, nothing, NULL));
    return wrong;
}

/* The child's word. Messages are on their way to both workers meanwhile, in memory that the
 * child has, too. */
static void a_child_is_refused(const char *transport, const char *uri) {
    struct estate e;
    int status;
    estate_up(&e, transport, uri, WEFT_THREAD_SINGLE);
    CHECK(weft_worker_fd(e.t.a) >= 0);
    CHECK(weft_am_send(e.t.ep, 9, NULL, 0, NULL, 0, NULL) >= 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(child_all(&e) ? 1 : 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    estate_is_whole(&e);
}
TEST(a_child_of_the_owner_is_refused_by_every_call_shm) {
    a_child_is_refused("shm", "shm://trespass");
}
TEST(a_child_of_the_owner_is_refused_by_every_call_tcp) {
    a_child_is_refused("tcp", "tcp://127.0.0.1:0");
}

static int n_wrong;
static void *trespass(void *arg) {
    struct estate *e = arg;
    n_wrong = own_all(e, WEFT_ERR_WRONG_THREAD);
    if (e->mode == WEFT_THREAD_SINGLE) n_wrong += submit_all(e, WEFT_ERR_WRONG_THREAD);
    return NULL;
}

static void a_thread_is_refused(const char *transport, const char *uri, weft_thread_mode_t mode) {
    struct estate e;
    pthread_t thread;
    estate_up(&e, transport, uri, mode);
    CHECK_EQ(pthread_create(&thread, NULL, trespass, &e), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(n_wrong, 0);
    estate_is_whole(&e);
}
TEST(another_thread_is_refused_by_every_call_shm) {
    a_thread_is_refused("shm", "shm://trespass", WEFT_THREAD_SINGLE);
}
TEST(another_thread_is_refused_by_every_call_tcp) {
    a_thread_is_refused("tcp", "tcp://127.0.0.1:0", WEFT_THREAD_SINGLE);
}
TEST(another_thread_may_submit_and_no_more_in_mode_multiple) {
    a_thread_is_refused("shm", "shm://trespass", WEFT_THREAD_MULTIPLE);
}

static void close_elsewhere(struct pair *p) {
    weft_request_t *request = (weft_request_t *)&n_wrong;
    weft_op_t op = {.request_p = &request};
    n_wrong = weft_ep_close(p->to_a, WEFT_CLOSE_FLUSH, &op) != WEFT_IN_PROGRESS || request;
}
TEST(what_another_thread_closes_cannot_be_taken_back_either) {
    struct pair p;
    pair_make(&p, "shm", NULL, 0);
    elsewhere(&p, close_elsewhere);
    CHECK_EQ(n_wrong, 0);
    UNTIL_PAIR(&p, p.errors == 1);
    CHECK_EQ(p.error, WEFT_ERR_PEER_CLOSED);
    pair_end(&p);
}

static void *take_over(void *arg) {
    struct estate *e = arg;
    weft_ep_info_t about;
    n_wrong = weft_ep_describe(e->t.ep, &about) != WEFT_OK;
    n_wrong += weft_ep_is_connected(e->t.ep, e->address, e->address_len) != WEFT_OK;
    weft_request_cancel(e->received);
    weft_listener_close(e->listener);
    return NULL;
}
TEST(another_thread_is_as_good_as_the_first_in_mode_serialized) {
    struct estate e;
    pthread_t thread;
    estate_up(&e, "shm", "shm://trespass", WEFT_THREAD_SERIALIZED);
    CHECK_EQ(pthread_create(&thread, NULL, take_over, &e), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(n_wrong, 0);
    UNTIL(&e.t, e.arrived.calls);
    CHECK_EQ(e.arrived.status, WEFT_ERR_CANCELLED);
    CHECK_EQ(weft_listen(e.t.a, "shm://trespass", NULL, &e.listener), WEFT_OK);
    weft_am_release(e.t.a, e.kept);
    two_down(&e.t);
}

/* ---- a worker with a thread of its own, whose callbacks wait for the program */

static void on_late(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

TEST(a_child_takes_no_callback_from_a_worker_with_a_thread) {
    struct pair p;
    static int n_late;
    int status;
    n_late = 0;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ID, on_late, &n_late), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    int fd = weft_worker_fd(p.b);
    CHECK(fd >= 0);
    CHECK(weft_am_send(p.to_b, ID, NULL, 0, NULL, 0, NULL) >= 0);
    struct pollfd news = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < 20000 && poll(&news, 1, 1) == 0; i++) weft_worker_progress(p.a, 0);
    CHECK_EQ(poll(&news, 1, 0), 1);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int wrong = 0;
        const weft_status_t why = WEFT_ERR_FORKED;
        alarm((unsigned)test_timeout(60));
        weft_worker_wake(p.b);
        REFUSED(weft_worker_progress(p.b, 0));
        REFUSED(weft_worker_wait(p.b, 10));
        REFUSED(weft_worker_fd(p.b));
        REFUSED(weft_worker_stop_thread(p.b));
        weft_worker_destroy(p.b);
        _exit(wrong ? 1 : 0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(poll(&news, 1, 0), 1);
    UNTIL_PAIR(&p, n_late == 1);
    pair_end(&p);
}

/* ---- in a handler */

static int status_of_child;
static void on_forked(weft_ep_t *ep, weft_am_t *am, void *arg) {
    const void *data;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int wrong = 0;
        const weft_status_t why = WEFT_ERR_FORKED;
        REFUSED(weft_am_recv(am, &(weft_iov_t){in, sizeof in}, 1, NULL));
        REFUSED(weft_am_retain(am, &data));
        _exit(wrong ? 1 : 0);
    }
    (void)waitpid(pid, &status_of_child, 0);
    struct tally *got = arg;
    /* self's own */
    if (weft_am_recv(am, &(weft_iov_t){in, sizeof in}, 1, OP(got)) == WEFT_OK) got->calls++;
}

TEST_EACH(a_child_of_a_handler_asks_for_no_payload) {
    struct two t;
    struct tally got = {0}, sent = {0};
    two_up(&t, transport);
    status_of_child = -1;
    pattern(out, sizeof out, 6);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 1, on_forked, &got), 0);
    weft_op_t op = {.done = tally, .arg = &sent, .flags = WEFT_AM_RENDEZVOUS};
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){out, sizeof out}, 1, &op),
             WEFT_IN_PROGRESS);
    UNTIL(&t, got.calls && sent.calls);
    CHECK_EQ(status_of_child, 0);
    CHECK_EQ(got.status, WEFT_OK);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK(is_pattern(in, sizeof in, 6));
    two_down(&t);
}

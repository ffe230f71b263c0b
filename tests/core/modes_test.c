/* Thread modes: which a build has, and threads that take turns at one worker. */
#include <pthread.h>
#include <tests/support/rma_peers.h>

#ifdef WEFT_THREADS_FIXED
static const weft_thread_mode_t most = WEFT_THREADS_FIXED;
#else
static const weft_thread_mode_t most = WEFT_THREAD_MULTIPLE;
#endif

TEST(a_build_of_one_thread_mode_has_none_beyond_it) {
    struct two t = {0};
    CHECK_EQ(weft_context_create(NULL, &t.context), 0);
    for (int mode = WEFT_THREAD_SINGLE; mode <= WEFT_THREAD_MULTIPLE; mode++) {
        weft_worker_params_t params = {.transports = "self",
                                       .thread_mode = (weft_thread_mode_t)mode};
        weft_status_t st = weft_worker_create(t.context, &params, &t.a);
        CHECK_EQ(st, mode > (int)most ? WEFT_ERR_UNSUPPORTED : WEFT_OK);
        if (st == WEFT_OK) weft_worker_destroy(t.a);
    }
    CHECK_EQ(weft_context_destroy(t.context), 0);
}

/* ---- taking turns */

enum { THREADS = 3, ROUNDS = 60, LARGE = 200000, EAGER = 5000, ID = 7, NOOP = 1000 };

/* Two workers and what threads do with them, all under one lock of the program's. */
struct table {
    struct rma r;
    weft_ep_t *back; /* b's half of the endpoint that all share */
    pthread_mutex_t lock;
    unsigned n_received, n_poisoned; /* active messages at b */
    unsigned n_cancelled;
    weft_request_t *waiting; /* to be cancelled by the next thread */
};

struct player {
    struct table *table;
    pthread_t thread;
    unsigned index, wrong;
    struct tally sent, received, streamed, read, put, fetched, notified;
    size_t len;
    uint64_t old;
    char out[LARGE], in[LARGE], back[LARGE];
};

static void on_received(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct table *table = arg;
    unsigned seed;
    memcpy(&seed, am->header, sizeof seed);
    table->n_poisoned += !is_pattern(am->data, am->len, seed);
    table->n_received++;
}

static void lock(struct table *table) {
    pthread_mutex_lock(&table->lock);
}
/* A turn of both workers, by the thread that has the lock. */
static void unlock(struct table *table) {
    two_turn(&table->r.t);
    pthread_mutex_unlock(&table->lock);
    sched_yield(); /* or the same thread would take it again */
}

/* WEFT_OK is an end, too. */
static void posted(struct player *p, weft_status_t st, struct tally *t) {
    if (st != WEFT_IN_PROGRESS) *t = (struct tally){1, st};
}
#define POST(p, t, call)            \
    do {                            \
        (p)->t = (struct tally){0}; \
        posted(p, (call), &(p)->t); \
    } while (0)

static void finish(struct player *p, struct tally *t) {
    for (double end = test_now() + test_timeout(60); test_now() < end;) {
        lock(p->table);
        bool over = t->calls;
        unlock(p->table);
        if (over) break;
    }
    p->wrong += t->calls != 1 || t->status != WEFT_OK;
}

/* Sends, and receives by the tag of its own; every other time the receive is there first. */
static void play_messages(struct player *p, unsigned round, size_t len) {
    struct two *t = &p->table->r.t;
    lock(p->table);
    if (round % 2)
        POST(p, received,
             weft_tag_recv(two_b(t), p->index, UINT64_MAX, &(weft_iov_t){p->in, len}, 1, NULL,
                           OP(&p->received)));
    unlock(p->table);
    lock(p->table);
    POST(p, sent, weft_tag_send(t->ep, p->index, &(weft_iov_t){p->out, len}, 1, OP(&p->sent)));
    unlock(p->table);
    lock(p->table);
    if (round % 2 == 0)
        POST(p, received,
             weft_tag_recv(two_b(t), p->index, UINT64_MAX, &(weft_iov_t){p->in, len}, 1, NULL,
                           OP(&p->received)));
    unlock(p->table);
    finish(p, &p->sent);
    finish(p, &p->received);
    p->wrong += !is_pattern(p->in, len, p->index + round);
    lock(p->table);
    unsigned seed = p->index + round;
    len = len < EAGER ? len : EAGER;
    POST(p, notified,
         weft_am_send(t->ep, ID, &seed, sizeof seed, &(weft_iov_t){p->out, len}, 1,
                      OP(&p->notified)));
    unlock(p->table);
    finish(p, &p->notified);
}

/* Each thread writes to a place of its own and reads it again, and all add to one word. */
static void play_memory(struct player *p, size_t len) {
    struct rma *r = &p->table->r;
    uint64_t at = rma_at(r, 8 + p->index * (size_t)LARGE);
    lock(p->table);
    POST(p, put, weft_put(r->t.ep, p->out, len, at, r->rkey, RMA_REMOTE(&p->put)));
    unlock(p->table);
    finish(p, &p->put);
    lock(p->table);
    POST(p, read, weft_get(r->t.ep, p->back, len, at, r->rkey, OP(&p->read)));
    unlock(p->table);
    lock(p->table);
    POST(p, fetched,
         weft_atomic_fetch(r->t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &p->old, rma_at(r, 0), r->rkey,
                           OP(&p->fetched)));
    unlock(p->table);
    finish(p, &p->read);
    finish(p, &p->fetched);
    p->wrong += memcmp(p->back, p->out, len) != 0 || p->old >= THREADS * ROUNDS;
}

/* What one thread sends is what it receives: both are posted in the same turn. */
static void play_stream(struct player *p, size_t len) {
    struct two *t = &p->table->r.t;
    memset(p->in, 0, len);
    lock(p->table);
    POST(p, streamed, weft_stream_send(t->ep, &(weft_iov_t){p->out, len}, 1, OP(&p->streamed)));
    POST(p, received,
         weft_stream_recv(
             p->table->back, &(weft_iov_t){p->in, len}, 1, &p->len,
             &(weft_op_t){.done = tally, .arg = &p->received, .flags = WEFT_STREAM_WAIT_ALL}));
    unlock(p->table);
    finish(p, &p->streamed);
    finish(p, &p->received);
    p->wrong += p->len != len || memcmp(p->in, p->out, len) != 0;
}

static void play_endpoint(struct player *p) {
    struct two *t = &p->table->r.t;
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep = NULL;
    lock(p->table);
    p->wrong += weft_worker_address(two_b(t), address, &len) != WEFT_OK;
    p->wrong += weft_connect_address(t->a, address, len, NULL, &ep) != WEFT_OK;
    unlock(p->table);
    lock(p->table);
    POST(p, notified,
         weft_ep_flush(
             ep, &(weft_op_t){.done = tally, .arg = &p->notified, .flags = WEFT_FLUSH_REMOTE}));
    unlock(p->table);
    finish(p, &p->notified);
    lock(p->table);
    POST(p, notified, weft_ep_close(ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&p->notified)));
    unlock(p->table);
    finish(p, &p->notified);
}

static void on_cancelled(weft_status_t status, void *arg) {
    struct table *table = arg;
    table->n_cancelled += status == WEFT_ERR_CANCELLED;
}

/* A receive without a send waits for the next thread to cancel it. */
static void play_cancel(struct player *p) {
    struct table *table = p->table;
    weft_op_t op = {.done = on_cancelled, .arg = table, .request_p = &table->waiting};
    lock(table);
    if (table->waiting) weft_request_cancel(table->waiting);
    table->waiting = NULL;
    p->wrong +=
        weft_tag_recv(table->r.t.a, NOOP, UINT64_MAX, NULL, 0, NULL, &op) != WEFT_IN_PROGRESS;
    unlock(table);
}

static void *play(void *arg) {
    struct player *p = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t len = round % 4 ? 100 : round % 8 ? EAGER : LARGE;
        pattern(p->out, len, p->index + round);
        play_messages(p, round, len);
        play_memory(p, len);
        play_stream(p, len);
        play_cancel(p);
        if (round % 8 == p->index) play_endpoint(p);
    }
    return NULL;
}

static void take_turns(const char *transport, bool messages) {
    static struct player players[THREADS];
    static struct table table;
    if (most < WEFT_THREAD_SERIALIZED) SKIP("built for one thread alone");
    memset(&table, 0, sizeof table);
    pthread_mutex_init(&table.lock, NULL);
    struct rma *r = &table.r;
    two_thread_mode = WEFT_THREAD_SERIALIZED;
    rma_up(r, transport, messages, 8 + THREADS * (size_t)LARGE, WEFT_MEM_ALL, NULL, 0);
    two_thread_mode = WEFT_THREAD_SINGLE;
    table.back = r->t.back;
    CHECK_EQ(weft_am_handler_set(two_b(&r->t), ID, on_received, &table), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        players[i] = (struct player){.table = &table, .index = i};
        CHECK_EQ(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(players[i].thread, NULL);
    for (unsigned i = 0; i < THREADS; i++) CHECK_EQ(players[i].wrong, 0);
    CHECK_EQ(*(uint64_t *)r->target, THREADS * ROUNDS);
    weft_request_cancel(table.waiting);
    UNTIL(&r->t, table.n_received == THREADS * ROUNDS && table.n_cancelled == THREADS * ROUNDS);
    CHECK_EQ(table.n_poisoned, 0);
    rma_down(r);
    pthread_mutex_destroy(&table.lock);
}

TEST_WAYS(threads_take_turns_at_a_serialized_worker) {
    take_turns(transport, messages);
}

/* A worker that goes from thread to thread, and ends elsewhere than it began. */
struct relay {
    weft_context_t *context;
    weft_worker_t *worker;
    pthread_barrier_t driven, closed;
    weft_status_t status;
};

static void *drive_and_stay(void *arg) {
    struct relay *relay = arg;
    weft_worker_t *own = NULL;
    for (int i = 0; i < 100; i++) weft_worker_progress(relay->worker, 0);
    pthread_barrier_wait(&relay->driven);
    pthread_barrier_wait(&relay->closed);
    relay->status = weft_worker_create(relay->context, NULL, &own);
    weft_worker_destroy(own);
    return NULL;
}

/* What a thread keeps of the worker that it drove last is gone by then. */
TEST(a_thread_that_drove_a_worker_outlives_its_end_by_another) {
    struct relay relay = {0};
    pthread_t thread;
    if (most < WEFT_THREAD_SERIALIZED) SKIP("built for one thread alone");
    weft_worker_params_t params = {.thread_mode = WEFT_THREAD_SERIALIZED};
    pthread_barrier_init(&relay.driven, NULL, 2);
    pthread_barrier_init(&relay.closed, NULL, 2);
    CHECK_EQ(weft_context_create(NULL, &relay.context), 0);
    CHECK_EQ(weft_worker_create(relay.context, &params, &relay.worker), 0);
    CHECK_EQ(pthread_create(&thread, NULL, drive_and_stay, &relay), 0);
    pthread_barrier_wait(&relay.driven);
    weft_worker_destroy(relay.worker);
    pthread_barrier_wait(&relay.closed);
    pthread_join(thread, NULL);
    CHECK_EQ(relay.status, WEFT_OK);
    CHECK_EQ(weft_context_destroy(relay.context), 0);
    pthread_barrier_destroy(&relay.driven);
    pthread_barrier_destroy(&relay.closed);
}

/* ---- a thread that ended without its worker */

static void *make_and_end(void *arg) {
    struct two *t = arg;
    two_up(t, "shm");
    return NULL;
}

static void adopt_within(weft_status_t status, void *arg) {
    struct two *t = arg;
    t->error = weft_worker_adopt(t->b);
}

TEST(another_thread_adopts_a_worker_whose_thread_has_ended) {
    struct two t;
    struct tally s = {0}, r = {0};
    uint64_t out = 77, in = 0;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, make_and_end, &t), 0);
    pthread_join(thread, NULL);
    if (most == WEFT_THREAD_MULTIPLE) CHECK_EQ(weft_worker_fd(t.a), WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(weft_worker_adopt(t.a), WEFT_OK);
    CHECK_EQ(weft_worker_adopt(t.b), WEFT_OK);
    CHECK_EQ(weft_tag_recv(t.b, 1, 0, &(weft_iov_t){&in, sizeof in}, 1, NULL, OP(&r)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){&out, sizeof out}, 1, OP(&s)), WEFT_OK);
    UNTIL(&t, r.calls);
    CHECK_EQ(in, 77);
    CHECK_EQ(weft_tag_recv(t.b, 1, 0, &(weft_iov_t){&in, sizeof in}, 1, NULL,
                           &(weft_op_t){.done = adopt_within, .arg = &t}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){&out, sizeof out}, 1, OP(&s)), WEFT_OK);
    UNTIL(&t, t.error);
    CHECK_EQ(t.error, WEFT_ERR_BUSY);
    two_down(&t);
}

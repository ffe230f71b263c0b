/* The forms that wait: what they answer, that none of them waits for itself, and that a signal
 * does not end one. */
#include <tests/support/threads.h>

#include <signal.h>
#include <sys/time.h>

enum { PORTION = 8 };

/* Each of them on `ep`, of which `key` opens the word `at`; `n` is one's number. */
enum { FORMS = 15 };
static weft_status_t form(int n, weft_worker_t *worker, weft_ep_t *ep, uint64_t at,
                          weft_rkey_t *key) {
    weft_iov_t iov = {buffer, PORTION};
    weft_local_t halves[] = {{.base = buffer, .len = PORTION / 2},
                             {.base = buffer + PORTION / 2, .len = PORTION / 2}};
    weft_remote_t whole = {.base = at, .len = PORTION, .rkey = key};
    uint64_t old;
    size_t len;
    switch (n) {
    case 0: return weft_ep_flush_wait(ep);
    case 1: return weft_put_wait(ep, buffer, PORTION, at, key);
    case 2: return weft_get_wait(ep, buffer, PORTION, at, key);
    case 3: return weft_atomic_fetch_wait(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, key);
    case 4: return weft_am_send_wait(ep, ID, NULL, 0, &iov, 1);
    case 5: return weft_stream_send_wait(ep, &iov, 1);
    case 6: return weft_stream_recv_wait(ep, &iov, 1, &len);
    case 7: return weft_tag_send_wait(ep, 1, &iov, 1);
    case 8: return weft_tag_recv_wait(worker, 1, UINT64_MAX, &iov, 1, NULL);
    case 9: return weft_put_pieces_wait(ep, halves, 2, &whole, 1);
    case 10: return weft_get_pieces_wait(ep, halves, 2, &whole, 1);
    case 11: return weft_ep_flush_remote_wait(ep);
    case 12: return weft_worker_flush_wait(worker);
    case 13: return weft_worker_flush_remote_wait(worker);
    default: return weft_ep_close_wait(ep, WEFT_CLOSE_FLUSH);
    }
}

TEST(null_is_no_one_to_wait_for) {
    for (int i = 0; i < FORMS; i++) CHECK_EQ(form(i, NULL, NULL, 0, NULL), WEFT_ERR_INVALID_PARAM);
}

/* ---- a worker's own: it receives what it sends */

static weft_rkey_t *key;
static uint64_t word_at;
static weft_status_t in_callback[FORMS];

static void open_word(weft_worker_t *owner, weft_ep_t *to_owner) {
    weft_mem_t *mem;
    weft_mem_info_t info;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    CHECK_EQ(weft_mem_alloc(owner, 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(to_owner, packed, len, &key), 0);
    word_at = (uint64_t)(uintptr_t)info.base;
}

static void on_count(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

TEST(each_form_does_what_it_promises) {
    struct two t;
    int received = 0;
    two_up(&t, "self");
    CHECK_EQ(weft_am_handler_set(t.a, ID, on_count, &received), 0);
    open_word(t.a, t.ep);
    /* Of the two halves that this worker has, what one sends the other receives. */
    for (int i = 0; i < FORMS; i++)
        CHECK_EQ(form(i, t.a, i == 6 ? t.back : t.ep, word_at, key), WEFT_OK);
    CHECK_EQ(received, 1);
    weft_rkey_release(key);
    two_down(&t);
}

/* ---- what a peer has performed, and what it cannot reach any more */

/* b's own thread serves, and a waits. */
static void serve_by_thread(struct pair *p, const char *transport) {
    pair_make(p, transport, NULL, 0);
    CHECK_EQ(weft_am_handler_set(p->b, ID, on_back, p), 0);
}

static void start_serving(struct pair *p) {
    weft_thread_params_t here = {.callbacks = WEFT_CALLBACKS_ON_THREAD};
    CHECK_EQ(weft_worker_start_thread(p->b, &here), 0);
}

/* The two sides meet in memory that has two addresses, so ThreadSanitizer sees no order of what the
 * one wrote and the other reads. */
__attribute__((no_sanitize("thread"))) static uint64_t seen(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void a_remote_flush_waits(const char *transport, bool of_worker) {
    struct pair p;
    static uint64_t word;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    serve_by_thread(&p, transport);
    CHECK_EQ(weft_mem_register(p.b, &word, sizeof word,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
             0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_b, packed, len, &rkey), 0);
    start_serving(&p);
    for (uint64_t i = 1; i <= 100; i++) {
        uint64_t at = (uint64_t)(uintptr_t)&word;
        CHECK(weft_am_send(p.to_b, ID, NULL, 0, NULL, 0, NULL) >= 0);
        CHECK(weft_put(p.to_b, &i, sizeof i, at, rkey, NULL) >= 0);
        CHECK_EQ(of_worker ? weft_worker_flush_remote_wait(p.a) : weft_ep_flush_remote_wait(p.to_b),
                 0);
        CHECK_EQ(seen(&word), i);
        CHECK_EQ(p.arrived, (int)i);
    }
    weft_rkey_release(rkey);
    pair_end(&p);
}

TEST(after_a_remote_flush_that_waits_the_peer_has_performed_all_tcp) {
    a_remote_flush_waits("tcp", false);
    a_remote_flush_waits("tcp", true);
}
TEST(after_a_remote_flush_that_waits_the_peer_has_performed_all_shm) {
    a_remote_flush_waits("shm", false);
    a_remote_flush_waits("shm", true);
}

static uint64_t rkey_base(const weft_rkey_t *rkey) {
    weft_rkey_info_t info;
    CHECK_EQ(weft_rkey_describe(rkey, &info), 0);
    return info.base;
}

/* b holds a key to memory of a: of the cache, or allocated, and then mapped at b. */
static weft_mem_t *region_that_b_reaches(struct pair *p, void *base, size_t len) {
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    char packed[WEFT_RKEY_MAX];
    size_t key_len = sizeof packed;
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL};
    void *here;
    if (base)
        CHECK_EQ(weft_mem_get(p->a, base, len, WEFT_MEM_ALL, &mem), 0);
    else
        CHECK_EQ(weft_mem_alloc(p->a, len, &params, &mem), 0);
    CHECK_EQ(weft_mem_pack(mem, packed, &key_len), 0);
    CHECK_EQ(weft_rkey_unpack(p->to_a, packed, key_len, &rkey), 0);
    if (!base) UNTIL_PAIR(p, weft_rkey_pointer(rkey, rkey_base(rkey), &here) == WEFT_OK);
    p->key = rkey;
    return mem;
}

static weft_status_t status_of(weft_rkey_t *rkey) {
    weft_rkey_info_t info;
    CHECK_EQ(weft_rkey_describe(rkey, &info), 0);
    return info.status;
}

TEST(regions_are_revoked_and_released_by_calls_that_wait) {
    struct pair p;
    serve_by_thread(&p, "shm");
    weft_mem_t *mem = region_that_b_reaches(&p, NULL, 4096);
    start_serving(&p);
    CHECK_EQ(weft_mem_revoke_wait(mem), WEFT_OK);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    CHECK_EQ(status_of(p.key), WEFT_ERR_REVOKED);
    weft_rkey_release(p.key);
    CHECK_EQ(weft_mem_release_wait(mem), WEFT_OK);

    mem = region_that_b_reaches(&p, NULL, 4096);
    start_serving(&p);
    CHECK_EQ(weft_mem_release_wait(mem), WEFT_OK); /* the handle is gone */
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    CHECK_EQ(status_of(p.key), WEFT_ERR_REVOKED);
    weft_rkey_release(p.key);
    pair_end(&p);
}

TEST(memory_of_the_cache_is_invalidated_by_a_call_that_waits) {
    struct pair p;
    static _Alignas(4096) char memory[4096];
    uint64_t got;
    serve_by_thread(&p, "tcp");
    weft_mem_t *mem = region_that_b_reaches(&p, memory, sizeof memory);
    CHECK_EQ(weft_mem_invalidate_wait(p.a, memory, sizeof memory), WEFT_OK);
    struct tally read = {0};
    CHECK_EQ(weft_get(p.to_a, &got, sizeof got, (uint64_t)(uintptr_t)memory, p.key, OP(&read)),
             WEFT_IN_PROGRESS);
    UNTIL_PAIR(&p, read.calls);
    CHECK_EQ(read.status, WEFT_ERR_REVOKED);
    weft_rkey_release(p.key);
    weft_mem_put(mem);
    pair_end(&p);
}

TEST(a_region_that_is_no_one_s_is_refused) {
    CHECK_EQ(weft_mem_release_wait(NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_revoke_wait(NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_invalidate_wait(NULL, buffer, 1), WEFT_ERR_INVALID_PARAM);
}

/* ---- from within a callback */

static weft_mem_t *own_mem;

static void try_on_memory(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_worker_t *worker = weft_ep_worker(ep);
    CHECK_EQ(weft_mem_revoke_wait(own_mem), WEFT_ERR_BUSY);
    CHECK_EQ(weft_mem_release_wait(own_mem), WEFT_ERR_BUSY);
    CHECK_EQ(weft_mem_invalidate_wait(worker, buffer, sizeof buffer), WEFT_ERR_BUSY);
    *(atomic_int *)arg = 1;
}

TEST(a_callback_does_not_wait_for_the_end_of_a_region) {
    struct two t;
    atomic_int tried = 0;
    weft_mem_info_t before, after;
    two_up(&t, "self");
    CHECK_EQ(weft_mem_alloc(t.a, 4096, NULL, &own_mem), 0);
    CHECK_EQ(weft_mem_describe(own_mem, &before), 0);
    CHECK_EQ(weft_am_handler_set(t.a, ECHO, try_on_memory, &tried), 0);
    CHECK_EQ(weft_am_send_wait(t.ep, ECHO, NULL, 0, NULL, 0), 0);
    UNTIL(&t, tried);
    CHECK_EQ(weft_mem_describe(own_mem, &after), 0);
    CHECK_EQ(after.epoch, before.epoch);
    CHECK_EQ(weft_mem_release_wait(own_mem), WEFT_OK);
    two_down(&t);
}

static void try_each(weft_ep_t *ep, weft_am_t *am, void *arg) {
    for (int i = 0; i < FORMS; i++) in_callback[i] = form(i, weft_ep_worker(ep), ep, word_at, key);
    *(atomic_int *)arg = 1;
}

static void check_refused(void) {
    for (int i = 0; i < FORMS; i++) CHECK_EQ(in_callback[i], WEFT_ERR_BUSY);
}

TEST(a_wait_within_a_callback_is_refused_and_nothing_is_posted) {
    struct two t;
    atomic_int tried = 0;
    int received = 0;
    size_t len;
    weft_tag_info_t info;
    two_up(&t, "tcp");
    CHECK_EQ(weft_am_handler_set(t.b, ECHO, try_each, &tried), 0);
    CHECK_EQ(weft_am_handler_set(t.a, ID, on_count, &received), 0);
    open_word(t.a, t.back);
    CHECK_EQ(weft_am_send(t.ep, ECHO, NULL, 0, NULL, 0, NULL), 0);
    UNTIL(&t, tried);
    check_refused();
    for (int i = 0; i < 50; i++) two_turn(&t);
    CHECK_EQ(received, 0);
    CHECK_EQ(weft_tag_probe(t.a, 0, 0, &info), WEFT_ERR_NOT_FOUND);
    const void *data;
    CHECK_EQ(weft_stream_take(t.ep, &data, &len), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(t.errors + t.back_errors, 0); /* the close neither */
    weft_rkey_release(key);
    two_down(&t);
}

static void from_a_threads_callback(weft_callbacks_t callbacks) {
    struct pair p;
    atomic_int tried = 0;
    pair_make(&p, "tcp", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.b, ECHO, try_each, &tried), 0);
    open_word(p.a, p.to_a);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = callbacks}), 0);
    CHECK_EQ(weft_am_send(p.to_b, ECHO, NULL, 0, NULL, 0, NULL), 0);
    for (double end = test_now() + test_timeout(60); !tried && test_now() < end;
         weft_worker_progress(p.a, 0))
        if (callbacks == WEFT_CALLBACKS_POLLED)
            CHECK(weft_worker_wait(p.b, 1) >= WEFT_ERR_TIMED_OUT);
    CHECK(tried);
    check_refused();
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    weft_rkey_release(key);
    pair_end(&p);
}

TEST(a_callback_on_a_workers_own_thread_may_not_wait) {
    from_a_threads_callback(WEFT_CALLBACKS_ON_THREAD);
}
TEST(a_polled_callback_may_not_wait) {
    from_a_threads_callback(WEFT_CALLBACKS_POLLED);
}

/* ---- signals */

static atomic_int n_signals;
static void on_signal(int number) {
    n_signals++;
}

/* While the wait is under way and signals come. */
static void *send_late(void *ep) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* they are for who waits */
    for (int from = n_signals; n_signals < from + 5;) sched_yield();
    return (void *)(intptr_t)weft_tag_send(ep, 1, &(weft_iov_t){buffer, PORTION}, 1, NULL);
}

/* One worker that any thread may use, with an endpoint to itself. */
static void wait_among_signals(bool own_thread) {
    struct two t = {0};
    char address[256], in[PORTION];
    size_t len = sizeof address;
    pthread_t thread;
    void *sent;
    struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    CHECK_EQ(weft_context_create(NULL, &t.context), 0);
    weft_worker_params_t params = {.transports = "self", .thread_mode = WEFT_THREAD_MULTIPLE};
    CHECK_EQ(weft_worker_create(t.context, &params, &t.a), 0);
    CHECK_EQ(weft_worker_address(t.a, address, &len), 0);
    CHECK_EQ(weft_connect_address(t.a, address, len, NULL, &t.ep), 0);
    CHECK_EQ(weft_ep_flush_wait(t.ep), 0);
    weft_thread_params_t polled = {.callbacks = WEFT_CALLBACKS_POLLED};
    if (own_thread) CHECK_EQ(weft_worker_start_thread(t.a, &polled), 0);
    CHECK(signal(SIGALRM, on_signal) != SIG_ERR);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);

    CHECK_EQ(pthread_create(&thread, NULL, send_late, t.ep), 0);
    CHECK_EQ(weft_tag_recv_wait(t.a, 1, UINT64_MAX, &(weft_iov_t){in, PORTION}, 1, NULL), WEFT_OK);
    CHECK_EQ(pthread_join(thread, &sent), 0);
    CHECK((intptr_t)sent >= 0);
    weft_status_t st;
    while ((st = weft_worker_wait(t.a, 0)) == WEFT_OK) continue;
    CHECK_EQ(st, WEFT_ERR_TIMED_OUT);
    double begin = test_now();
    while (weft_worker_wait(t.a, 50) == WEFT_OK) begin = test_now();
    CHECK(test_now() - begin > 0.045); /* not before its time */

    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    weft_worker_destroy(t.a);
    CHECK_EQ(weft_context_destroy(t.context), 0);
}

TEST(a_wait_outlasts_the_programs_signals) {
    wait_among_signals(false);
}
TEST(a_wait_for_a_workers_own_thread_outlasts_the_programs_signals) {
    wait_among_signals(true);
}

/* One-sided operations of other threads, and at a target whose program computes. */
#include <tests/support/threads.h>

static uint64_t served[512];

/* b's program never calls the library in here; a's operations complete all the same. */
static void serve_while_computing(const char *transport, weft_callbacks_t callbacks) {
    struct pair p;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    uint64_t old = 0, back[512], out[512];
    pair_make(&p, transport, NULL, 0);
    memset(served, 0, sizeof served);
    CHECK_EQ(weft_mem_register(p.b, served, sizeof served,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
             0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = callbacks}), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_b, packed, len, &key), 0);
    uint64_t at = (uint64_t)(uintptr_t)served;
    for (uint64_t i = 0; i < 200; i++) {
        pattern(out, sizeof out, (unsigned)i);
        out[0] = i;
        CHECK_EQ(weft_put_wait(p.to_b, out, sizeof out, at, key), 0);
        CHECK_EQ(weft_ep_fence(p.to_b), 0);
        CHECK_EQ(weft_atomic_fetch_wait(p.to_b, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, key), 0);
        CHECK_EQ(old, i);
        CHECK_EQ(weft_get_wait(p.to_b, back, sizeof back, at, key), 0);
        CHECK_EQ(back[0], i + 1);
        CHECK(memcmp(back + 1, out + 1, sizeof out - 8) == 0);
    }
    weft_rkey_release(key);
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    struct tally gone = {0};
    weft_status_t st = weft_mem_release(mem, OP(&gone));
    if (st == WEFT_IN_PROGRESS) UNTIL_PAIR(&p, gone.calls);
    pair_end(&p);
}

TEST(one_sided_operations_are_served_while_the_program_computes_shm) {
    serve_while_computing("shm", WEFT_CALLBACKS_ON_THREAD);
}
TEST(one_sided_operations_are_served_while_the_program_computes_tcp) {
    serve_while_computing("tcp", WEFT_CALLBACKS_ON_THREAD);
}
TEST(one_sided_operations_are_served_although_callbacks_are_polled) {
    serve_while_computing("tcp", WEFT_CALLBACKS_POLLED);
}

static void get_elsewhere(struct pair *p) {
    posted = (struct tally){0};
    posted.status = weft_get(p->to_a, buffer, 8, (uint64_t)(uintptr_t)served, p->key, OP(&posted));
}

static char large[4 << 20], placed[sizeof large + 8];
static bool all_posted;

/* Pieces of the large one would let the small one pass. */
static void *put_elsewhere(void *arg) {
    struct pair *p = arg;
    uint64_t at = (uint64_t)(uintptr_t)placed;
    posted = (struct tally){0};
    weft_status_t first = weft_put(p->to_a, large, sizeof large, at, p->key, OP(&posted));
    weft_status_t fence = weft_ep_fence(p->to_a);
    weft_status_t second = weft_put(p->to_a, "arrived", 8, at + sizeof large, p->key, NULL);
    all_posted = first == WEFT_IN_PROGRESS && fence == WEFT_OK && second == WEFT_IN_PROGRESS;
    return NULL;
}

TEST(a_fence_of_another_thread_stands_where_it_was_posted) {
    struct pair p;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    /* by messages; the lane fills up */
    weft_setting_t settings[] = {{"rma.max_keys", "0"}, {"shm.staging", "1m"}};
    pair_make(&p, "shm", settings, 2);
    memset(placed, 0, sizeof placed);
    pattern(large, sizeof large, 5);
    CHECK_EQ(weft_mem_register(p.a, placed, sizeof placed,
                               &(weft_mem_params_t){.rights = WEFT_MEM_WRITE}, &mem),
             0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed, len, &p.key), 0);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, put_elsewhere, &p), 0);
    pthread_join(thread, NULL);
    CHECK(all_posted);
    for (double end = test_now() + test_timeout(60); !placed[sizeof large] && test_now() < end;
         weft_worker_progress(p.a, 1))
        weft_worker_progress(p.b, 1);
    CHECK(is_pattern(placed, sizeof large, 5));
    UNTIL_PAIR(&p, posted.calls);
    weft_rkey_release(p.key);
    struct tally gone = {0};
    if (weft_mem_release(mem, OP(&gone)) == WEFT_IN_PROGRESS) UNTIL_PAIR(&p, gone.calls);
    pair_end(&p);
}

TEST(other_threads_may_put_and_get) {
    struct pair p;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    pair_make(&p, "tcp", NULL, 0);
    served[0] = 4711;
    CHECK_EQ(weft_mem_register(p.a, served, sizeof served,
                               &(weft_mem_params_t){.rights = WEFT_MEM_READ}, &mem),
             0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed, len, &p.key), 0);
    elsewhere(&p, get_elsewhere);
    UNTIL_PAIR(&p, posted.calls);
    CHECK_EQ(posted.status, WEFT_OK);
    CHECK_EQ(*(uint64_t *)(void *)buffer, 4711);
    weft_rkey_release(p.key);
    struct tally gone = {0};
    if (weft_mem_release(mem, OP(&gone)) == WEFT_IN_PROGRESS) UNTIL_PAIR(&p, gone.calls);
    pair_end(&p);
}

static void *put_word_elsewhere(void *arg) {
    struct pair *p = arg;
    posted = (struct tally){0};
    posted.status =
        weft_put(p->to_a, "arrived", 8, (uint64_t)(uintptr_t)served, p->key, OP(&posted));
    return NULL;
}

/* The owner lets a key go, and has another one, before it comes to what was handed over. */
static void a_key_is_released(const char *transport) {
    struct pair p;
    weft_mem_t *mem[2];
    weft_rkey_t *other;
    char packed[2][WEFT_RKEY_MAX];
    size_t len[2] = {sizeof packed[0], sizeof packed[1]};
    pthread_t thread;
    pair_make(&p, transport, NULL, 0);
    memset(served, 0, sizeof served);
    void *const base[] = {served, placed};
    for (int i = 0; i < 2; i++) {
        weft_mem_params_t params = {.rights = WEFT_MEM_WRITE};
        CHECK_EQ(weft_mem_register(p.a, base[i], sizeof served, &params, &mem[i]), 0);
        CHECK_EQ(weft_mem_pack(mem[i], packed[i], &len[i]), 0);
    }
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed[0], len[0], &p.key), 0);
    for (int i = 0; i < 100; i++) drive(&p);
    CHECK_EQ(pthread_create(&thread, NULL, put_word_elsewhere, &p), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(posted.status, WEFT_IN_PROGRESS);
    weft_rkey_release(p.key);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed[1], len[1], &other), 0);
    UNTIL_PAIR(&p, posted.calls && memcmp(served, "arrived", 8) == 0);
    CHECK_EQ(posted.status, WEFT_OK);
    weft_rkey_release(other);
    pair_end(&p);
}
TEST(a_key_that_its_owner_releases_serves_what_was_handed_over_before_shm) {
    a_key_is_released("shm");
}
TEST(a_key_that_its_owner_releases_serves_what_was_handed_over_before_tcp) {
    a_key_is_released("tcp");
}

static weft_mem_t *registration;
static void *put_piece_elsewhere(void *arg) {
    struct pair *p = arg;
    weft_local_t local = {.base = buffer, .len = 8, .mem = registration};
    weft_remote_t remote = {.base = (uint64_t)(uintptr_t)served, .len = 8, .rkey = p->key};
    posted = (struct tally){0};
    posted.status = weft_put_pieces(p->to_a, &local, 1, &remote, 1, OP(&posted));
    return NULL;
}

TEST(a_registration_that_its_owner_releases_is_none_to_what_was_handed_over_before) {
    struct pair p;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    pthread_t thread;
    pair_make(&p, "shm", NULL, 0);
    CHECK_EQ(weft_mem_register(p.a, served, sizeof served,
                               &(weft_mem_params_t){.rights = WEFT_MEM_WRITE}, &mem),
             0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed, len, &p.key), 0);
    CHECK_EQ(weft_mem_register(p.b, buffer, sizeof buffer, NULL, &registration), 0);
    for (int i = 0; i < 100; i++) drive(&p);
    CHECK_EQ(pthread_create(&thread, NULL, put_piece_elsewhere, &p), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(posted.status, WEFT_IN_PROGRESS);
    CHECK_EQ(weft_mem_release(registration, NULL), WEFT_OK);
    UNTIL_PAIR(&p, posted.calls);
    CHECK_EQ(posted.status, WEFT_ERR_INVALID_PARAM);
    weft_rkey_release(p.key);
    pair_end(&p);
}

/* ---- of several threads, by whatever way the key has gone meanwhile */

enum { WORDS = 64, ROUNDS = 200 };

struct one_sided {
    struct pair *p;
    pthread_t thread;
    unsigned index;
    uint64_t sum; /* of the old values that this thread was given */
};
static uint64_t *region_words;

/* Everything to a word and a block of its own, except for a word that all add to. */
static void *use_one_sided(void *arg) {
    struct one_sided *o = arg;
    struct pair *p = o->p;
    uint64_t at = (uint64_t)(uintptr_t)region_words, own = at + 8 + 8 * o->index, old, got;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        if (weft_atomic_fetch_wait(p->to_a, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, p->key) < 0)
            return "fetch";
        o->sum += old;
        /* Done here, and perhaps not yet there: the next one may go by another way. */
        if (weft_put_wait(p->to_a, &i, 8, own + 8 * SENDERS, p->key) < 0) return "put";
        if (weft_atomic_fetch_wait(p->to_a, WEFT_ATOMIC_SWAP, 8, i, 0, &old, own, p->key) < 0)
            return "swap";
        if (weft_atomic_fetch_wait(p->to_a, WEFT_ATOMIC_CSWAP, 8, ~i, i, &old, own, p->key) < 0)
            return "cswap";
        if (old != i) return "a compare of what was stored";
        if (weft_get_wait(p->to_a, &got, 8, own, p->key) < 0) return "get";
        if (got != ~i) return "a get of what was stored";
    }
    return NULL;
}

/* b's thread of its own, or the program's, drives b; the key is opened, mapped and used at the
 * same time. */
static void from_op_group_threads(const char *transport, bool thread) {
    struct pair p;
    weft_mem_t *mem;
    char packed[WEFT_RKEY_MAX];
    size_t len = sizeof packed;
    weft_mem_info_t info;
    struct one_sided o[SENDERS];
    uint64_t sum = 0, n = SENDERS * ROUNDS;
    pair_make(&p, transport, NULL, 0);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL};
    CHECK_EQ(weft_mem_alloc(p.a, WORDS * sizeof(uint64_t), &params, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, packed, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.to_a, packed, len, &p.key), 0);
    if (thread) CHECK_EQ(weft_worker_start_thread(p.b, NULL), 0);
    region_words = info.base;
    for (unsigned i = 0; i < SENDERS; i++) {
        o[i] = (struct one_sided){.p = &p, .index = i};
        CHECK_EQ(pthread_create(&o[i].thread, NULL, use_one_sided, &o[i]), 0);
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        void *why;
        while (pthread_tryjoin_np(o[i].thread, &why) != 0)
            thread ? weft_worker_progress(p.a, 0) : (drive(&p), 0);
        if (why) fprintf(stderr, "  %s\n", (const char *)why);
        CHECK(!why);
        sum += o[i].sum;
    }
    CHECK_EQ(sum, n * (n - 1) / 2); /* each old value was given once */
    CHECK_EQ(__atomic_load_n(region_words, __ATOMIC_SEQ_CST), n);
    if (thread) CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    posted = (struct tally){0};
    if (weft_ep_flush(p.to_a,
                      &(weft_op_t){.done = tally, .arg = &posted, .flags = WEFT_FLUSH_REMOTE}) ==
        WEFT_IN_PROGRESS)
        UNTIL_PAIR(&p, posted.calls);
    CHECK_EQ(posted.status, WEFT_OK);
    for (unsigned i = 0; i < SENDERS; i++)
        CHECK(region_words[1 + i] == ~(uint64_t)ROUNDS && region_words[1 + SENDERS + i] > 0);
    weft_rkey_release(p.key);
    pair_end(&p);
}

TEST(one_sided_operations_of_many_threads_shm) {
    from_op_group_threads("shm", false);
}
TEST(one_sided_operations_of_many_threads_to_a_thread_shm) {
    from_op_group_threads("shm", true);
}
TEST(one_sided_operations_of_many_threads_to_a_thread_tcp) {
    from_op_group_threads("tcp", true);
}

/* A process whose only thread of its own computes and never calls the library again, and what
 * another has of it meanwhile. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tests/support/threads.h>

enum { WORDS = 512, ROUNDS = 100 };

struct notified {
    size_t address_len, key_len;
    uint64_t base;
    char address[256], key[WEFT_RKEY_MAX];
};

/* What both processes see. */
struct seen {
    atomic_ullong computed;      /* grows while the program computes */
    atomic_ullong on_its_thread; /* handlers that ran there */
};
static struct seen *seen;
static pthread_t computes;

struct way {
    const char *transport, *rma;
    weft_callbacks_t callbacks;
};

static void answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    static char back[8]; /* borrowed while the lane is full */
    if (pthread_equal(pthread_self(), computes)) seen->on_its_thread++;
    (void)weft_am_send(ep, ID, NULL, 0, &(weft_iov_t){back, sizeof back}, 1, NULL);
}

/* The other process: after the start there is nothing but arithmetic. */
static _Noreturn void compute(const struct way *way, int out) {
    static uint64_t memory[WORDS];
    struct notified notified = {.address_len = sizeof notified.address,
                                .key_len = sizeof notified.key};
    weft_setting_t rma = {"shm.rma", way->rma};
    weft_context_t *context;
    weft_worker_t *worker;
    weft_mem_t *mem;
    weft_worker_params_t params = {.transports = way->transport,
                                   .thread_mode = WEFT_THREAD_MULTIPLE};
    weft_thread_params_t thread = {.callbacks = way->callbacks};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    computes = pthread_self();
    notified.base = (uint64_t)(uintptr_t)memory;
    if (weft_context_create(&(weft_context_params_t){.settings = &rma, .n_settings = 1},
                            &context) ||
        weft_worker_create(context, &params, &worker) ||
        weft_am_handler_set(worker, ECHO, answer, NULL) ||
        weft_mem_register(worker, memory, sizeof memory,
                          &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem) ||
        weft_mem_pack(mem, notified.key, &notified.key_len) ||
        weft_worker_address(worker, notified.address, &notified.address_len) ||
        weft_worker_start_thread(worker, &thread) ||
        write(out, &notified, sizeof notified) != sizeof notified)
        _exit(1);
    for (;;) seen->computed++;
}

struct user {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *key;
    int answers;
};

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ((struct user *)arg)->answers++;
}

static void user_come(struct user *u, const struct way *way, int in, uint64_t *at_p) {
    struct notified notified;
    weft_setting_t rma = {"shm.rma", way->rma};
    *u = (struct user){0};
    CHECK_EQ(read(in, &notified, sizeof notified), sizeof notified);
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = &rma, .n_settings = 1},
                                 &u->context),
             0);
    CHECK_EQ(weft_worker_create(u->context, &(weft_worker_params_t){.transports = way->transport},
                                &u->worker),
             0);
    CHECK_EQ(weft_am_handler_set(u->worker, ID, on_answer, u), 0);
    CHECK_EQ(weft_connect_address(u->worker, notified.address, notified.address_len, NULL, &u->ep),
             0);
    CHECK_EQ(weft_rkey_unpack(u->ep, notified.key, notified.key_len, &u->key), 0);
    *at_p = notified.base;
}

static void one_sided(const struct user *u, uint64_t at, uint64_t i) {
    uint64_t out[WORDS], back[WORDS], old = 0;
    pattern((char *)out, sizeof out, (unsigned)i);
    out[0] = i;
    CHECK_EQ(weft_put_wait(u->ep, out, sizeof out, at, u->key), 0);
    CHECK_EQ(weft_ep_fence(u->ep), 0);
    CHECK_EQ(weft_atomic_fetch_wait(u->ep, WEFT_ATOMIC_ADD, 8, 7, 0, &old, at, u->key), 0);
    CHECK_EQ(old, i);
    CHECK_EQ(weft_get_wait(u->ep, back, sizeof back, at, u->key), 0);
    CHECK_EQ(back[0], i + 7);
    CHECK(memcmp(back + 1, out + 1, sizeof out - 8) == 0);
}

static void message(struct user *u) {
    double end = test_now() + test_timeout(60);
    int before = u->answers;
    CHECK(weft_am_send(u->ep, ECHO, NULL, 0, &(weft_iov_t){buffer, sizeof buffer}, 1, NULL) >= 0);
    while (u->answers == before && test_now() < end) weft_worker_wait(u->worker, 100);
    CHECK_EQ(u->answers, before + 1);
}

/* Polled callbacks would wait for a program that never comes: then there are no messages. */
static void use_who_computes(const struct way *way) {
    int fds[2], status;
    struct user u;
    uint64_t at;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    CHECK_EQ(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) compute(way, fds[1]);
    user_come(&u, way, fds[0], &at);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        one_sided(&u, at, i);
        if (way->callbacks == WEFT_CALLBACKS_ON_THREAD) message(&u);
    }
    unsigned long long before = seen->computed;
    while (seen->computed == before) sched_yield(); /* it still does */
    CHECK_EQ(seen->on_its_thread, 0);
    weft_rkey_release(u.key);
    CHECK_EQ(kill(pid, SIGKILL), 0);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    weft_worker_destroy(u.worker);
    CHECK_EQ(weft_context_destroy(u.context), 0);
    close(fds[0]);
    close(fds[1]);
    munmap(seen, sizeof *seen);
}

TEST(a_process_that_only_computes_is_used_over_shm) {
    use_who_computes(&(struct way){"shm", "auto", WEFT_CALLBACKS_ON_THREAD});
}
TEST(a_process_that_only_computes_is_used_by_messages_over_shm) {
    use_who_computes(&(struct way){"shm", "message", WEFT_CALLBACKS_ON_THREAD});
}
TEST(a_process_that_only_computes_is_used_over_tcp) {
    use_who_computes(&(struct way){"tcp", "auto", WEFT_CALLBACKS_ON_THREAD});
}
TEST(a_process_that_only_computes_is_used_one_sidedly_although_callbacks_are_polled) {
    use_who_computes(&(struct way){"tcp", "auto", WEFT_CALLBACKS_POLLED});
}

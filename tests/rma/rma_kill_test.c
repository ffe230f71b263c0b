/* The target is killed while a one-sided operation is at any of its phases: each operation ends
 * once, and nothing hangs. */
#include <tests/support/rma_peers.h>

#include <signal.h>
#include <sys/wait.h>

enum { BIG = 8 << 20 };

struct notified {
    uint32_t address_len, key_len;
    uint64_t base;
    char address[256], key[WEFT_RKEY_MAX];
};

/* Serves its region, and stops to do so for good once a first byte says so that is not
 * 0: in the turn after, since the answer that it was written may leave only then. */
static void child(const char *transport, bool deaf, int out) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_mem_t *mem;
    weft_mem_info_t info;
    struct notified notified = {0};
    size_t len = sizeof notified.address, key_len = sizeof notified.key;
    if (weft_context_create(NULL, &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = transport}, &worker) ||
        weft_mem_alloc(worker, BIG, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem) ||
        weft_mem_describe(mem, &info) || weft_mem_pack(mem, notified.key, &key_len) ||
        weft_worker_address(worker, notified.address, &len))
        _exit(1);
    notified.address_len = (uint32_t)len;
    notified.key_len = (uint32_t)key_len;
    notified.base = (uint64_t)(uintptr_t)info.base;
    if (write(out, &notified, sizeof notified) != sizeof notified) _exit(1);
    close(out);
    volatile char *first = info.base;
    while (!deaf || !*first) weft_worker_wait(worker, 1);
    weft_worker_wait(worker, 1);
    for (;;) pause();
}

static int ready, errors;
static void on_ready(weft_ep_t *ep, void *arg) {
    ready++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    errors++;
    CHECK_EQ(status, WEFT_ERR_PEER_FAILED);
}

enum kind {
    PUT,
    PUT_REMOTE,
    GET,
    FETCH,
    ADD_REMOTE,
    PIECES,
    GET_PIECES,
    BEHIND_FENCE,
    FLUSH,
    WORKER_FLUSH,
    N_KINDS
};

static weft_status_t begin(enum kind kind, weft_ep_t *ep, uint64_t base, weft_rkey_t *rkey,
                           char *memory, struct tally *t) {
    static uint64_t old;
    weft_local_t local = {memory, 1000, 2000, 500, NULL};
    weft_remote_t remote = {base, 500000, 0, 0, rkey};
    switch (kind) {
    case PUT: return weft_put(ep, memory, BIG, base, rkey, OP(t));
    case PUT_REMOTE: return weft_put(ep, memory, BIG, base, rkey, RMA_REMOTE(t));
    case GET: return weft_get(ep, memory, BIG, base, rkey, OP(t));
    case FETCH:
        return weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, base + 64, rkey, OP(t));
    case ADD_REMOTE:
        return weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, base + 64, rkey, RMA_REMOTE(t));
    case GET_PIECES: return weft_get_pieces(ep, &local, 1, &remote, 1, OP(t));
    case BEHIND_FENCE:
        (void)weft_get(ep, memory, BIG, base, rkey, NULL);
        return weft_ep_fence(ep) < 0 ? WEFT_ERR_PEER_FAILED
                                     : weft_put(ep, memory, 100, base, rkey, RMA_REMOTE(t));
    case WORKER_FLUSH:
        (void)weft_put(ep, memory, BIG, base, rkey, NULL);
        return weft_worker_flush(weft_ep_worker(ep),
                                 &(weft_op_t){.done = tally, .arg = t, .flags = WEFT_FLUSH_REMOTE});
    case PIECES: return weft_put_pieces(ep, &local, 1, &remote, 1, RMA_REMOTE(t));
    default:
        return weft_ep_flush(ep, &(weft_op_t){.done = tally, .arg = t, .flags = WEFT_FLUSH_REMOTE});
    }
}

/* Each of these comes in milliseconds where no other process wants the cores; only a hang takes so
 * long. */
#define COMES(cond, drive)                                \
    do {                                                  \
        double until_end = test_now() + test_timeout(60); \
        while (!(cond) && test_now() < until_end) {       \
            drive;                                        \
        }                                                 \
        CHECK(cond);                                      \
    } while (0)

static char memory[BIG]; /* is filled once: 150 times would take most of the time */

/* `turns`: how far the operation got; a deaf target answers nothing from then on, so that the
 * phase lasts. */
static void kill_at(const char *transport, bool messages, enum kind kind, int turns, bool deaf) {
    int fds[2];
    struct notified notified;
    CHECK_EQ(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) child(transport, deaf, fds[1]);
    close(fds[1]);
    CHECK_EQ(read(fds[0], &notified, sizeof notified), sizeof notified);
    close(fds[0]);

    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *rkey;
    weft_setting_t settings[] = {{"rma.max_keys", messages ? "0" : "8"}, {"log.level", "none"}};
    struct tally t = {0}, first = {0};
    memory[0] = 1; /* a get may have changed it */
    ready = errors = 0;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                                 &context),
             0);
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = transport}, &worker),
             0);
    CHECK_EQ(weft_connect_address(worker, notified.address, notified.address_len,
                                  &(weft_ep_params_t){.on_ready = on_ready, .on_error = on_error},
                                  &ep),
             0);
    COMES(ready, test_idle(weft_worker_progress(worker, 0) > 0));
    CHECK_EQ(weft_rkey_unpack(ep, notified.key, notified.key_len, &rkey), 0);
    for (int i = 0; i < 50000 && !messages && rkey->key->status == WEFT_NO_RESOURCE; i++)
        weft_worker_progress(worker, 0);
    weft_status_t st = weft_put(ep, memory, 1, notified.base, rkey, RMA_REMOTE(&first));
    COMES(st != WEFT_IN_PROGRESS || first.calls, test_idle(weft_worker_progress(worker, 0) > 0));
    if (deaf) usleep(3000);

    st = begin(kind, ep, notified.base, rkey, memory, &t);
    CHECK(st >= 0);
    for (int i = 0; i < turns; i++) weft_worker_progress(worker, 0);
    kill(pid, SIGKILL);
    COMES(errors, weft_worker_wait(worker, 10));
    COMES(st != WEFT_IN_PROGRESS || t.calls, weft_worker_wait(worker, 1));
    CHECK_EQ(errors, 1);
    CHECK_EQ(t.calls, st == WEFT_IN_PROGRESS);
    if (t.calls) CHECK(t.status == WEFT_OK || t.status == WEFT_ERR_PEER_FAILED);
    /* What is posted afterwards is refused; the key still belongs to the program. */
    CHECK(begin(kind, ep, notified.base, rkey, memory, &t) < 0);
    weft_rkey_release(rkey);
    waitpid(pid, NULL, 0);
    weft_worker_destroy(worker);
    CHECK(t.calls <= 1);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST_WAYS(a_target_killed_at_any_phase_ends_each_operation_once) {
    static const int turns[] = {0, 1, 2, 5, 40};
    if (!strcmp(transport, "self")) return;
    memset(memory, 1, BIG);
    for (enum kind kind = 0; kind < N_KINDS; kind++)
        for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
            kill_at(transport, messages, kind, turns[i], i & 1);
}

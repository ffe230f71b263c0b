/*
 * Processes are killed at atomics and pieces, by every way. The target goes on serving another;
 * each atomic of the dead one was performed wholly or not at all, those that were reported to it
 * were, and nothing lies where it did not write.
 */
#include <tests/support/worker_pair.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum kind { POST, FETCH, PUT_PIECES, GET_PIECES, N_KINDS };
enum way { MAPPED, PROCESS_VM, BY_MESSAGE, TCP };
static const char *const transport_of[] = {"shm", "shm", "shm", "tcp"};

enum {
    REGION = 1 << 16,
    VICTIMS_WORD = 0,
    OTHERS_WORD = 64,
    PIECES_AT = 4096,
    BLOCK = 24,
    STRIDE = 64,
    BLOCKS = 500,
    AT_ONCE = 16
};

/* Both halves count, so that one half of an addition would show. */
static const uint64_t one = 0x0000000100000001;

/* What a process says of itself, in memory that it shares with the test. */
struct sent {
    volatile uint32_t begun, done, failed;
};
struct notified {
    size_t address_len, key_len;
    uint64_t base;
    char address[256], key[WEFT_RKEY_MAX];
};

/* ---- the processes --------------------------------------------------------------------------- */

static void count_done(weft_status_t status, void *arg) {
    struct sent *sent = arg;
    sent->done += status == WEFT_OK;
    sent->failed += status != WEFT_OK;
}

static weft_status_t begin(enum kind kind, weft_ep_t *ep, uint64_t base, uint64_t word,
                           weft_rkey_t *key, struct sent *sent) {
    static uint64_t old[AT_ONCE];
    static char memory[BLOCK * BLOCKS];
    weft_op_t op = {.done = count_done, .arg = sent, .flags = WEFT_RMA_REMOTE};
    weft_local_t local = {.base = memory, .len = sizeof memory};
    weft_remote_t remote = {base + PIECES_AT, BLOCK, STRIDE, BLOCKS, key};
    memset(memory, 'v', sizeof memory);
    switch (kind) {
    case POST: return weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, one, base + word, key, &op);
    case PUT_PIECES: return weft_put_pieces(ep, &local, 1, &remote, 1, &op);
    case GET_PIECES: op.flags = 0; return weft_get_pieces(ep, &local, 1, &remote, 1, &op);
    default:
        op.flags = 0;
        return weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, one, 0, &old[sent->begun % AT_ONCE],
                                 base + word, key, &op);
    }
}

/* Goes on until it is killed. */
static _Noreturn void work(const struct notified *notified, enum way way, enum kind kind,
                           uint64_t word, struct sent *sent) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_rkey_t *key;
    weft_setting_t settings[] = {{"rma.max_keys", way == BY_MESSAGE ? "0" : "8"},
                                 {"log.level", "none"}};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                            &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = transport_of[way]},
                           &worker) ||
        weft_connect_address(worker, notified->address, notified->address_len, NULL, &ep) ||
        weft_ep_flush_wait(ep) || weft_rkey_unpack(ep, notified->key, notified->key_len, &key))
        sent->failed++;
    while (!sent->failed) {
        if (sent->begun - sent->done < AT_ONCE) {
            sent->begun++;
            weft_status_t st = begin(kind, ep, notified->base, word, key, sent);
            if (st != WEFT_IN_PROGRESS) count_done(st, sent);
        }
        test_idle(weft_worker_progress(worker, 0) > 0);
    }
    for (;;) pause();
}

static pid_t start(const struct notified *notified, enum way way, enum kind kind, uint64_t word,
                   struct sent *sent) {
    *sent = (struct sent){0};
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) work(notified, way, kind, word, sent);
    CHECK(pid > 0);
    return pid;
}

/* ---- the target ------------------------------------------------------------------------------ */

/* The initiators poll, too: each of their operations may wait until this process has a core, and
 * they until they have one. */
#define COMES(t, cond)                                                    \
    do {                                                                  \
        double until_end = test_now() + test_timeout(60);                 \
        while (!(cond) && test_now() < until_end) test_idle(two_turn(t)); \
        CHECK(cond);                                                      \
    } while (0)

struct scene {
    struct two t; /* b alone */
    weft_mem_t *mem;
    struct notified notified;
    char *target, *registered;
    struct sent *victim, *other;
};

static void scene_up(struct scene *s, enum way way) {
    weft_setting_t settings[] = {{"close.timeout", "4ms"}, {"log.level", "none"}};
    weft_mem_info_t info;
    memset(s, 0, sizeof *s);
    s->registered = aligned_alloc(4096, REGION);
    memset(s->registered, 0, REGION);
    s->victim = mmap(NULL, 2 * sizeof *s->victim, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s->victim != MAP_FAILED);
    s->other = s->victim + 1;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                                 &s->t.context),
             0);
    weft_worker_params_t params = {.transports = transport_of[way],
                                   .on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = &s->t};
    CHECK_EQ(weft_worker_create(s->t.context, &params, &s->t.b), 0);
    weft_mem_params_t rights = {.rights = WEFT_MEM_ALL};
    weft_status_t st = way == MAPPED
                           ? weft_mem_alloc(s->t.b, REGION, &rights, &s->mem)
                           : weft_mem_register(s->t.b, s->registered, REGION, &rights, &s->mem);
    CHECK_EQ(st, 0);
    CHECK_EQ(weft_mem_describe(s->mem, &info), 0);
    s->target = info.base;
    s->notified = (struct notified){.address_len = sizeof s->notified.address,
                                    .key_len = sizeof s->notified.key,
                                    .base = (uint64_t)(uintptr_t)info.base};
    CHECK_EQ(weft_mem_pack(s->mem, s->notified.key, &s->notified.key_len), 0);
    CHECK_EQ(weft_worker_address(s->t.b, s->notified.address, &s->notified.address_len), 0);
}

static void scene_down(struct scene *s) {
    struct tally released = {0};
    weft_status_t st = weft_mem_release(s->mem, OP(&released));
    if (st == WEFT_IN_PROGRESS) COMES(&s->t, released.calls); /* a dead peer does not hold it */
    two_down(&s->t);
    munmap(s->victim, 2 * sizeof *s->victim);
    free(s->registered);
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static uint64_t word_at(const struct scene *s, size_t at) {
    return __atomic_load_n((uint64_t *)(s->target + at), __ATOMIC_ACQUIRE);
}

/* As many additions as were begun, or fewer by those that were not reported. */
static void check_counted(uint64_t word, const struct sent *sent) {
    CHECK_EQ(word >> 32, word & UINT32_MAX);
    CHECK((word & UINT32_MAX) >= sent->done && (word & UINT32_MAX) <= sent->begun);
}

static void check_pieces(const struct scene *s, enum kind kind) {
    for (size_t at = OTHERS_WORD + 8; at < REGION; at++) {
        size_t inside = at - PIECES_AT;
        bool may = kind == PUT_PIECES && at >= PIECES_AT && inside / STRIDE < BLOCKS &&
                   inside % STRIDE < BLOCK;
        CHECK(s->target[at] == 0 || (may && s->target[at] == 'v'));
    }
}

static void kill_at(enum way way, enum kind kind, unsigned after) {
    struct scene s;
    scene_up(&s, way);
    pid_t other = start(&s.notified, way, FETCH, OTHERS_WORD, s.other);
    pid_t victim = start(&s.notified, way, kind, VICTIMS_WORD, s.victim);
    COMES(&s.t, (s.victim->done > 10 + after && s.other->done > 10) ||
                    s.victim->failed + s.other->failed);
    CHECK_EQ(s.victim->failed + s.other->failed, 0);
    end(victim);
    uint32_t before = s.other->done;
    COMES(&s.t, s.t.back_errors == 1 && s.other->done > before + 50);
    CHECK(s.t.back_error < 0);
    uint64_t word = word_at(&s, VICTIMS_WORD);
    if (kind == POST || kind == FETCH) check_counted(word, s.victim);
    check_pieces(&s, kind);
    end(other);
    COMES(&s.t, s.t.back_errors == 2);
    check_counted(word_at(&s, OTHERS_WORD), s.other);
    CHECK_EQ(s.other->failed, 0);
    CHECK_EQ(word_at(&s, VICTIMS_WORD), word); /* nothing of the dead one came later */
    scene_down(&s);
}

static void kill_each(enum way way) {
    for (enum kind kind = 0; kind < N_KINDS; kind++)
        for (unsigned after = 0; after < 60; after += 20) kill_at(way, kind, after);
}

TEST(a_killed_initiator_leaves_whole_atomics_and_no_byte_elsewhere_in_mapped_memory) {
    kill_each(MAPPED);
}
TEST(a_killed_initiator_leaves_whole_atomics_and_no_byte_elsewhere_by_process_vm) {
    kill_each(PROCESS_VM);
}
TEST(a_killed_initiator_leaves_whole_atomics_and_no_byte_elsewhere_by_message) {
    kill_each(BY_MESSAGE);
}
TEST(a_killed_initiator_leaves_whole_atomics_and_no_byte_elsewhere_by_tcp) {
    kill_each(TCP);
}

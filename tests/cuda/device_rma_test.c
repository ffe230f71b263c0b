/* Puts and gets of device memory that are copies of the driver: within a process, and of a region
 * of another process (CUDA IPC). */
#include <tests/cuda/ipc_child.h>
#include <tests/cuda/patterns.h>
#include <weft/rma.h>

#include <tests/support/rma_peers.h>

enum { LEN = 700001, KEYS = 1, ANSWERS = 2, DOES = 3 };
static char expected[LEN], got[LEN];

/* ---- within a process ------------------------------------------------------------------------ */

static void device_up(struct rma *r, char **device_p, weft_mem_t **mem_p, weft_rkey_t **key_p) {
    gpu_load();
    rma_up(r, "shm", false, LEN, WEFT_MEM_ALL, (weft_setting_t[]){{"cuda.chunk", "64k"}}, 1);
    *device_p = gpu_alloc(LEN);
    CHECK_EQ(weft_mem_register(two_b(&r->t), *device_p, LEN,
                               &(weft_mem_params_t){.rights = WEFT_MEM_READ | WEFT_MEM_WRITE},
                               mem_p),
             0);
    *key_p = rma_key(r, *mem_p);
    UNTIL(&r->t, (*key_p)->key->status != WEFT_NO_RESOURCE);
}

static uint64_t natively(struct rma *r) {
    return weft_worker_count(r->t.a, "rma.native");
}

/* By messages, through staging buffers. */
TEST(a_worker_goes_on_while_blocks_at_a_stride_are_put_and_got) {
    enum { BLOCK = 700, STRIDE = 1000, COUNT = 400, ALL = BLOCK * COUNT };
    struct rma r;
    struct tally put = {0}, again = {0};
    weft_layout_t blocks = {WEFT_LAYOUT_STRIDED, BLOCK, STRIDE, COUNT, NULL, {0}};
    gpu_load();
    rma_up(&r, "tcp", true, LEN, WEFT_MEM_ALL, (weft_setting_t[]){{"cuda.chunk", "64k"}}, 1);
    char *out = filled(STRIDE * COUNT, 31), *in = filled(STRIDE * COUNT, 32);
    weft_op_t put_op = {.done = tally, .arg = &put, .layout = &blocks, .flags = WEFT_RMA_REMOTE};
    weft_op_t get_op = {.done = tally, .arg = &again, .layout = &blocks};
    if (gpu.hold) gpu.hold(true);
    CHECK_EQ(weft_put(r.t.ep, out, 0, rma_at(&r, 8), r.rkey, &put_op), WEFT_IN_PROGRESS);
    for (int i = 0; i < 20; i++) two_turn(&r.t);
    if (gpu.hold) {
        CHECK_EQ(put.calls, 0);
        gpu.hold(false);
    }
    UNTIL(&r.t, put.calls);
    CHECK_EQ(put.status, WEFT_OK);
    pattern(got, STRIDE * COUNT, 31);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(memcmp(r.target + 8 + i * BLOCK, got + i * STRIDE, BLOCK) == 0);
    CHECK_EQ(weft_get(r.t.ep, in, 0, rma_at(&r, 8), r.rkey, &get_op), WEFT_IN_PROGRESS);
    UNTIL(&r.t, again.calls);
    CHECK_EQ(again.status, WEFT_OK);
    pattern(expected, STRIDE * COUNT, 32);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(expected + i * STRIDE, r.target + 8 + i * BLOCK, BLOCK);
    gpu.read(got, in, STRIDE * COUNT);
    CHECK(memcmp(got, expected, STRIDE * COUNT) == 0);
    CHECK(gpu_context_is_as_before());
    gpu.release(out);
    gpu.release(in);
    rma_down(&r);
}

/* Memory of devices, of the host, and mapped, on either side. */
TEST(a_worker_goes_on_while_puts_and_gets_copy) {
    struct rma r;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char *target;
    device_up(&r, &target, &mem, &key);
    char *out = filled(LEN, 1), *in = gpu_alloc(LEN);
    static char host[LEN], back[LEN];
    pattern(host, LEN, 2);
    uint64_t at = (uint64_t)(uintptr_t)target, before = natively(&r);
    struct tally t[4];
    for (int round = 0; round < 2; round++) { /* from a device, then from the host */
        memset(t, 0, sizeof t);
        const char *from = round ? host : out;
        if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
        if (gpu.hold) gpu.hold(true);
        CHECK_EQ(weft_put(r.t.ep, from, LEN, at, key, RMA_REMOTE(&t[0])), WEFT_IN_PROGRESS);
        CHECK_EQ(weft_put(r.t.ep, out, LEN, rma_at(&r, 0), r.rkey, RMA_REMOTE(&t[1])),
                 WEFT_IN_PROGRESS);
        for (int i = 0; i < 20; i++) two_turn(&r.t);
        if (gpu.hold) {
            CHECK(t[0].calls == 0 && t[1].calls == 0);
            gpu.hold(false);
        }
        UNTIL(&r.t, t[0].calls && t[1].calls);
        CHECK(t[0].status == WEFT_OK && t[1].status == WEFT_OK);
        CHECK(holds(target, LEN, round ? 2 : 1));
        pattern(expected, LEN, 1);
        CHECK(memcmp(r.target, expected, LEN) == 0);
        memset(back, 0, LEN);
        CHECK_EQ(weft_get(r.t.ep, back, LEN, at, key, OP(&t[2])), WEFT_IN_PROGRESS);
        CHECK_EQ(
            weft_get(r.t.ep, in, LEN, round ? rma_at(&r, 0) : at, round ? r.rkey : key, OP(&t[3])),
            WEFT_IN_PROGRESS);
        UNTIL(&r.t, t[2].calls && t[3].calls);
        CHECK(t[2].status == WEFT_OK && t[3].status == WEFT_OK);
        pattern(expected, LEN, round ? 2 : 1);
        CHECK(memcmp(back, expected, LEN) == 0);
        CHECK(holds(in, LEN, 1));
        if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
    }
    CHECK_EQ(natively(&r) - before, 8);
    CHECK(gpu_context_is_as_before());
    weft_rkey_release(key);
    gpu.release(out);
    gpu.release(in);
    rma_down(&r);
    gpu.release(target);
}

/* A mapped region keeps the order of puts: the flag is not seen before the bytes. */
TEST(a_put_behind_one_of_device_memory_waits_for_it) {
    struct rma r;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char *target;
    struct tally t[2] = {{0}};
    device_up(&r, &target, &mem, &key);
    if (!gpu.hold) SKIP("only the double of the CUDA driver holds streams");
    char *out = filled(4096, 1);
    static const char flag[8] = "arrived";
    gpu.hold(true);
    CHECK_EQ(weft_put(r.t.ep, out, 4096, rma_at(&r, 0), r.rkey, OP(&t[0])), WEFT_IN_PROGRESS);
    weft_status_t st = weft_put(r.t.ep, flag, sizeof flag, rma_at(&r, 8192), r.rkey, OP(&t[1]));
    for (int i = 0; i < 20; i++) two_turn(&r.t);
    CHECK(st == WEFT_IN_PROGRESS && t[1].calls == 0 && r.target[8192] == 0);
    gpu.hold(false);
    UNTIL(&r.t, t[0].calls && t[1].calls);
    CHECK(memcmp(r.target + 8192, flag, sizeof flag) == 0);
    CHECK(is_pattern(r.target, 4096, 1));
    gpu.release(out);
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(target);
}

/* The operation ends; others, and the key, do not. */
TEST(a_failing_copy_ends_its_put_or_get_only) {
    struct rma r;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char *target;
    struct tally t;
    device_up(&r, &target, &mem, &key);
    if (!gpu.fail_copy) SKIP("only the double of the CUDA driver fails at will");
    char *out = filled(LEN, 1);
    uint64_t at = (uint64_t)(uintptr_t)target;
    *gpu.fail_copy = 1;
    CHECK_EQ(RMA_WAIT(&r, &t, weft_put(r.t.ep, out, LEN, at, key, RMA_REMOTE(&t))), WEFT_ERR_IO);
    *gpu.fail_copy = 1;
    CHECK_EQ(RMA_WAIT(&r, &t, weft_get(r.t.ep, out, LEN, rma_at(&r, 0), r.rkey, OP(&t))),
             WEFT_ERR_IO);
    gpu.release(out);
    out = filled(LEN, 3);
    CHECK_EQ(RMA_WAIT(&r, &t, weft_put(r.t.ep, out, LEN, at, key, RMA_REMOTE(&t))), WEFT_OK);
    CHECK(holds(target, LEN, 3));
    gpu.release(out);
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(target);
}

/* Memory of another context, whose loss concerns no other. */
static char *filled_in(void *context, unsigned seed) {
    char *device = gpu.alloc(context, LEN, false);
    CHECK(device != NULL);
    pattern(expected, LEN, seed);
    gpu.write(device, expected, LEN);
    return device;
}

TEST(a_lost_context_ends_puts_of_its_memory_by_one_error) {
    struct rma r;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char *target;
    device_up(&r, &target, &mem, &key);
    if (!gpu.hold) SKIP("only the double of the CUDA driver loses contexts");
    uint64_t at = (uint64_t)(uintptr_t)target;
    for (int sticky = 0; sticky < 2; sticky++) {
        void *lost = gpu.context_create();
        char *out = filled_in(lost, 1), *other = filled(LEN, 5);
        struct tally t[3] = {{0}};
        gpu.hold(true);
        CHECK_EQ(weft_put(r.t.ep, out, LEN, at, key, OP(&t[0])), WEFT_IN_PROGRESS);
        if (sticky)
            gpu.context_break(lost);
        else
            gpu.context_destroy(lost);
        gpu.hold(false);
        weft_status_t st = weft_put(r.t.ep, out, LEN, at, key, OP(&t[1]));
        UNTIL(&r.t, t[0].calls && (st != WEFT_IN_PROGRESS || t[1].calls));
        CHECK_EQ(t[0].status, WEFT_ERR_IO);
        CHECK_EQ(st == WEFT_IN_PROGRESS ? t[1].status : st, WEFT_ERR_IO);
        CHECK_EQ(RMA_WAIT(&r, &t[2], weft_put(r.t.ep, other, LEN, at, key, OP(&t[2]))), WEFT_OK);
        CHECK(holds(target, LEN, 5));
        gpu.release(other);
    }
    CHECK(gpu_context_is_as_before());
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(target);
}

TEST(out_of_memory_at_any_allocation_ends_a_put_by_its_name_or_is_made_up_for) {
    enum { MOST = 6 };
    struct rma r;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char *target;
    struct tally t;
    device_up(&r, &target, &mem, &key);
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    for (unsigned k = 1; k <= MOST; k++) {
        char *out = filled_in(gpu.context_create(), k); /* a new one has no stream yet */
        uint64_t at = k & 1 ? (uint64_t)(uintptr_t)target : rma_at(&r, 0);
        weft_rkey_t *to = k & 1 ? key : r.rkey;
        *gpu.fail_alloc = (k + 1) / 2;
        weft_status_t st = RMA_WAIT(&r, &t, weft_put(r.t.ep, out, LEN, at, to, RMA_REMOTE(&t)));
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        *gpu.fail_alloc = 0;
        CHECK_EQ(RMA_WAIT(&r, &t, weft_put(r.t.ep, out, LEN, at, to, RMA_REMOTE(&t))), WEFT_OK);
        if (k & 1) CHECK(holds(target, LEN, k));
        gpu.release(out);
    }
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(target);
}

/* Its memory is in use until the copies have ended, whatever ends it. */
TEST(a_put_that_ends_early_keeps_its_memory_until_no_copy_touches_it) {
    struct rma r;
    weft_mem_t *mem;
    weft_rkey_t *key;
    char *target;
    device_up(&r, &target, &mem, &key);
    if (!gpu.hold) SKIP("only the double of the CUDA driver holds streams");
    char *out = filled(LEN, 1);
    uint64_t at = (uint64_t)(uintptr_t)target;
    for (int deadline = 0; deadline < 2; deadline++) {
        struct tally t = {0};
        weft_request_t *request = NULL;
        weft_op_t op = {.done = tally, .arg = &t, .request_p = &request};
        if (deadline) op.deadline_ms = 1;
        gpu.hold(true);
        CHECK_EQ(weft_put(r.t.ep, out, LEN, at, key, &op), WEFT_IN_PROGRESS);
        if (!deadline) weft_request_cancel(request);
        double end = test_now() + 0.02;
        while (test_now() < end) two_turn(&r.t);
        two_turn(&r.t); /* the deadline is over in one turn at least */
        CHECK_EQ(t.calls, 0);
        gpu.hold(false);
        UNTIL(&r.t, t.calls);
        CHECK_EQ(t.status, deadline ? WEFT_ERR_TIMED_OUT : WEFT_ERR_CANCELLED);
    }
    gpu.release(out);
    weft_rkey_release(key);
    rma_down(&r);
    gpu.release(target);
}

/* ---- of another process ---------------------------------------------------------------------- */

static void child_answers(weft_worker_t *worker, const struct child *child, char word) {
    struct tally t = {0};
    if (weft_tag_send(child->ep, ANSWERS, &(weft_iov_t){&word, 1}, 1, OP(&t)) == WEFT_IN_PROGRESS)
        child_waits(worker, child, &t);
}

/* 'r': revokes the region. '?': answers whether its bytes are those of the next seed. */
static void child_serves(weft_worker_t *worker, const struct child *child) {
    char *device = filled(LEN, 40), key[WEFT_RKEY_MAX], word = 0;
    size_t len = sizeof key;
    weft_mem_t *mem;
    struct tally t = {0};
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    if (weft_mem_register(worker, device, LEN, &params, &mem) || weft_mem_pack(mem, key, &len))
        _exit(3);
    if (weft_tag_send(child->ep, KEYS, &(weft_iov_t){key, len}, 1, OP(&t)) == WEFT_IN_PROGRESS)
        child_waits(worker, child, &t);
    for (unsigned seed = 50; !child->lost;) {
        struct tally received = {0}, revoked = {0};
        weft_status_t st =
            weft_tag_recv(worker, DOES, ~0ull, &(weft_iov_t){&word, 1}, 1, NULL, OP(&received));
        if (st == WEFT_IN_PROGRESS) child_waits(worker, child, &received);
        if (child->lost) return;
        if (word == '?') child_answers(worker, child, holds(device, LEN, seed++) ? 'y' : 'n');
        if (word != 'r') continue;
        if (weft_mem_revoke(mem, OP(&revoked)) == WEFT_IN_PROGRESS)
            child_waits(worker, child, &revoked);
        gpu.release(device); /* as any owner may then */
        device = gpu_alloc(LEN);
        child_answers(worker, child, 'r');
    }
}

struct peer {
    struct ipc ipc;
    weft_rkey_t *key;
    uint64_t at;
    char word;
    struct tally answered;
};

static void peer_up(struct peer *p) {
    char key[WEFT_RKEY_MAX];
    weft_tag_info_t tag;
    weft_rkey_info_t info;
    struct tally t = {0};
    *p = (struct peer){0};
    ipc_up(&p->ipc);
    CHECK(weft_tag_recv(p->ipc.worker, KEYS, ~0ull, &(weft_iov_t){key, sizeof key}, 1, &tag,
                        OP(&t)) >= 0);
    IPC_UNTIL(&p->ipc, t.calls);
    CHECK_EQ(weft_rkey_unpack(p->ipc.ep, key, tag.len, &p->key), 0);
    IPC_UNTIL(&p->ipc, p->key->key->status != WEFT_NO_RESOURCE);
    CHECK_EQ(weft_rkey_describe(p->key, &info), 0);
    CHECK(strcmp(info.put, "cuda ipc") == 0 && strcmp(info.get, "cuda ipc") == 0);
    p->at = info.base;
}

static void ask(struct peer *p, const char *word) {
    p->answered = (struct tally){0};
    p->word = 0;
    CHECK(weft_tag_recv(p->ipc.worker, ANSWERS, ~0ull, &(weft_iov_t){&p->word, 1}, 1, NULL,
                        OP(&p->answered)) >= 0);
    CHECK(weft_tag_send(p->ipc.ep, DOES, &(weft_iov_t){(void *)(uintptr_t)word, 1}, 1, NULL) >= 0);
}

static weft_status_t ended(struct peer *p, weft_status_t st, const struct tally *t) {
    if (st != WEFT_IN_PROGRESS) return st;
    IPC_UNTIL(&p->ipc, t->calls);
    return t->status;
}

static uint64_t count(const struct peer *p, const char *name) {
    return weft_worker_count(p->ipc.worker, name);
}

TEST(processes_put_and_get_in_each_others_device_memory_by_one_handle) {
    struct peer p;
    peer_up(&p);
    static char host[LEN];
    char *in = gpu_alloc(LEN);
    struct tally t = {0};
    CHECK_EQ(ended(&p, weft_get(p.ipc.ep, in, LEN, p.at, p.key, OP(&t)), &t), WEFT_OK);
    CHECK(holds(in, LEN, 40));
    for (unsigned seed = 50; seed < 54; seed++) {
        char *out = filled(LEN, seed);
        bool from_host = seed & 1;
        pattern(host, LEN, seed);
        t = (struct tally){0};
        if (gpu.context_create) CHECK_EQ(gpu.set_current(gpu.context), 0);
        weft_status_t st =
            weft_put(p.ipc.ep, from_host ? host : out, LEN, p.at, p.key, RMA_REMOTE(&t));
        CHECK_EQ(ended(&p, st, &t), WEFT_OK);
        if (gpu.context_create) CHECK_EQ(gpu.set_current(NULL), 0);
        ask(&p, "?");
        IPC_UNTIL(&p.ipc, p.answered.calls);
        CHECK_EQ(p.word, 'y');
        if (gpu.opened) CHECK_EQ(*gpu.opened, 1);
        gpu.release(out);
    }
    CHECK_EQ(count(&p, "rma.native"), 5);
    CHECK_EQ(count(&p, "rma.messages"), 0);
    weft_rkey_release(p.key);
    CHECK_EQ(ipc_down(&p.ipc), 0);
    if (gpu.opened) CHECK_EQ(*gpu.opened, 0);
    gpu.release(in);
}

/* The owner waits for a copy that is under way, and for no later one. */
TEST(a_revocation_waits_for_the_copy_and_closes_the_handle) {
    struct peer p;
    gpu_load();
    if (!gpu.hold) SKIP("only the double of the CUDA driver holds streams");
    peer_up(&p);
    char *in = gpu_alloc(LEN);
    struct tally t = {0}, later = {0};
    gpu.hold(true);
    CHECK_EQ(weft_get(p.ipc.ep, in, LEN, p.at, p.key, OP(&t)), WEFT_IN_PROGRESS);
    ask(&p, "r");
    IPC_UNTIL(&p.ipc, p.key->key->status == WEFT_ERR_REVOKED);
    CHECK_EQ(weft_get(p.ipc.ep, in, LEN, p.at, p.key, OP(&later)), WEFT_ERR_REVOKED);
    for (int i = 0; i < 20; i++) weft_worker_wait(p.ipc.worker, 1);
    CHECK(t.calls == 0 && p.answered.calls == 0);
    CHECK_EQ(*gpu.opened, 1);
    gpu.hold(false);
    IPC_UNTIL(&p.ipc, t.calls && p.answered.calls);
    CHECK_EQ(t.status, WEFT_OK);
    CHECK(holds(in, LEN, 40));
    CHECK_EQ(*gpu.opened, 0);
    weft_rkey_release(p.key);
    CHECK_EQ(ipc_down(&p.ipc), 0);
    gpu.release(in);
}

TEST(an_owner_that_dies_ends_puts_and_gets_of_its_memory) {
    struct peer p;
    gpu_load();
    if (!gpu.copy_delay_us) SKIP("only the double of the CUDA driver delays copies");
    peer_up(&p);
    char *in = gpu_alloc(LEN);
    struct tally t = {0}, later = {0};
    *gpu.copy_delay_us = 100000;
    CHECK_EQ(weft_get(p.ipc.ep, in, LEN, p.at, p.key, OP(&t)), WEFT_IN_PROGRESS);
    CHECK_EQ(kill(p.ipc.child, SIGKILL), 0);
    IPC_UNTIL(&p.ipc, p.ipc.lost && t.calls);
    *gpu.copy_delay_us = 0;
    CHECK(t.calls == 1);
    CHECK(weft_get(p.ipc.ep, in, LEN, p.at, p.key, OP(&later)) < 0);
    weft_rkey_release(p.key);
    CHECK(WIFSIGNALED(ipc_down(&p.ipc)));
    CHECK_EQ(*gpu.opened, 0);
    gpu.release(in);
}

/* Out of memory when the handle is opened: messages do it. */
TEST(without_memory_for_a_handle_puts_and_gets_are_messages) {
    struct peer p;
    gpu_load();
    if (!gpu.fail_alloc) SKIP("only the double of the CUDA driver fails at will");
    peer_up(&p);
    char *in = gpu_alloc(LEN);
    struct tally t = {0};
    *gpu.fail_alloc = 1;
    CHECK_EQ(ended(&p, weft_get(p.ipc.ep, in, LEN, p.at, p.key, OP(&t)), &t), WEFT_OK);
    CHECK_EQ(*gpu.fail_alloc, 0);
    CHECK(holds(in, LEN, 40));
    CHECK(count(&p, "rma.messages") > 0);
    weft_rkey_release(p.key);
    CHECK_EQ(ipc_down(&p.ipc), 0);
    gpu.release(in);
}

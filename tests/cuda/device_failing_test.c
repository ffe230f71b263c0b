/* Each call of the driver fails in turn while device memory is sent, received, put and got. Each
 * operation ends once, with its bytes or by one named error, and the next one works. */
#include <tests/cuda/patterns.h>
#include <tests/support/rma_peers.h>
#include <weft/rma.h>

enum { LEN = 200001 };
static char out[LEN], in[LEN], host[LEN];

static const weft_setting_t chunks[] = {
    {"cuda.chunk", "64k"}, {"cuda.depth", "2"}, {"cuda.blocking", "1k"}, {"rma.max_keys", "1024"}};
enum { N_CHUNKS = sizeof chunks / sizeof *chunks };

/* What one end of an operation was notified of. */
struct end {
    struct tally notice;
    weft_status_t st; /* of the call */
};
static bool has_ended(const struct end *end) {
    return end->st != WEFT_IN_PROGRESS || end->notice.calls > 0;
}
static weft_status_t outcome(const struct end *end) {
    return end->st == WEFT_IN_PROGRESS ? end->notice.status : end->st;
}
/* NO_MEMORY where the call said so, IO where the context broke. */
static bool is_named(weft_status_t status) {
    return status == WEFT_OK || status == WEFT_ERR_NO_MEMORY || status == WEFT_ERR_IO;
}
/* Of a message, either end has the cause. */
static void check_ends(struct two *t, const struct end *end, unsigned n) {
    bool all = true, has_cause = false;
    for (int i = 0; i < 20; i++) two_turn(t); /* none is notified twice */
    for (unsigned i = 0; i < n; i++) {
        weft_status_t st = outcome(&end[i]);
        CHECK_EQ(end[i].notice.calls, end[i].st == WEFT_IN_PROGRESS);
        CHECK(is_named(st));
        all = all && st == WEFT_OK;
        has_cause = has_cause || (st < 0 && is_named(st));
    }
    CHECK(all || has_cause);
    CHECK(gpu_context_is_as_before());
}

/* Calls `run` once for each call of the driver that it makes: that call fails. */
static void each_call_fails(void (*run)(void *arg, unsigned k), void *arg) {
    gpu_load();
    if (!gpu.fail_call) SKIP("only the double of the CUDA driver fails at will");
    for (int breaks = 0; breaks < 2; breaks++) {
        unsigned k = 0;
        *gpu.fail_breaks = breaks;
        do {
            *gpu.fail_call = ++k;
            run(arg, k);
        } while (*gpu.fail_call == 0);
        CHECK(k > 3);
        *gpu.fail_call = 0;
    }
    *gpu.fail_breaks = false;
}

/* ---- messages -------------------------------------------------------------------------------- */

enum way { FROM_DEVICE = 1, TO_DEVICE = 2 };
struct message {
    struct two t;
    enum way ways;
    bool late; /* the receive is posted when the message is there */
};

static void cross(void *arg, unsigned k) {
    struct message *m = arg;
    struct two *t = &m->t;
    struct end end[2] = {0};
    unsigned armed = *gpu.fail_call;
    *gpu.fail_call = 0;
    char *from = m->ways & FROM_DEVICE ? filled(LEN, k) : host;
    char *to = m->ways & TO_DEVICE ? gpu_alloc(LEN) : in;
    pattern(host, LEN, k);
    *gpu.fail_call = armed;
    weft_op_t recv_op = {.done = tally, .arg = &end[1].notice};
    end[1].st = WEFT_NO_RESOURCE;
    if (!m->late)
        end[1].st = weft_tag_recv(two_b(t), k, ~0ull, &(weft_iov_t){to, LEN}, 1, NULL, &recv_op);
    end[0].st = weft_tag_send(t->ep, k, &(weft_iov_t){from, LEN}, 1, OP(&end[0].notice));
    if (m->late) {
        for (int i = 0; i < 20; i++) two_turn(t);
        recv_op.deadline_ms = 20000;
        end[1].st = end[0].st < 0 ? end[0].st
                                  : weft_tag_recv(two_b(t), k, ~0ull, &(weft_iov_t){to, LEN}, 1,
                                                  NULL, &recv_op);
    }
    if (end[0].st < 0 && !m->late) /* nothing was sent: a short message ends the receive */
        CHECK_EQ(weft_tag_send(t->ep, k, &(weft_iov_t){host, 1}, 1, NULL), WEFT_OK);
    UNTIL(t, has_ended(&end[0]) && has_ended(&end[1]));
    check_ends(t, end, 2);
    if (outcome(&end[0]) == WEFT_OK && outcome(&end[1]) == WEFT_OK) {
        if (m->ways & TO_DEVICE) gpu.read(in, to, LEN);
        pattern(out, LEN, k);
        CHECK(memcmp(in, out, LEN) == 0);
    }
    gpu.context_mend(gpu.context);
    if (m->ways & FROM_DEVICE) gpu.release(from);
    if (m->ways & TO_DEVICE) gpu.release(to);
}

static void messages_fail(const char *transport, const weft_setting_t *more, size_t n_more) {
    struct message m = {.ways = 0};
    weft_setting_t settings[N_CHUNKS + 2] = {{0}};
    memcpy(settings, chunks, sizeof chunks);
    for (size_t i = 0; i < n_more; i++) settings[N_CHUNKS + i] = more[i];
    gpu_load();
    for (unsigned ways = 1; ways <= 3; ways++) {
        for (int late = 0; late < 2; late++) {
            two_workers(&m.t, transport, settings, N_CHUNKS + n_more);
            two_dial(&m.t);
            UNTIL(&m.t, m.t.ready && m.t.back);
            m.ways = ways;
            m.late = late;
            each_call_fails(cross, &m);
            CHECK_EQ(m.t.errors + m.t.back_errors, 0);
            two_down(&m.t);
        }
    }
}

TEST_EACH(a_message_ends_once_whatever_call_of_the_driver_fails) {
    messages_fail(transport, NULL, 0);
}
/* Each copy is waited for then. */
TEST_EACH(without_staging_memory_too) {
    messages_fail(transport, (weft_setting_t[]){{"cuda.staging", "0"}}, 1);
}

/* ---- streams of bytes ------------------------------------------------------------------------ */

struct bytes {
    const char *transport;
};
/* An endpoint whose stream lacks bytes cannot go on: each run has one of its own. */
static void stream(void *arg, unsigned k) {
    struct two t;
    struct end end[2] = {0};
    unsigned armed = *gpu.fail_call;
    size_t len = 0;
    *gpu.fail_call = 0;
    two_workers(&t, ((struct bytes *)arg)->transport, chunks, N_CHUNKS);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    char *from = filled(LEN, k);
    char *to = k % 2 ? gpu_alloc(LEN) : NULL;
    *gpu.fail_call = armed;
    weft_op_t all = {.done = tally, .arg = &end[1].notice, .flags = WEFT_STREAM_WAIT_ALL};
    end[1].st = weft_stream_recv(t.back, &(weft_iov_t){to ? to : in, LEN}, 1, &len, &all);
    end[0].st = weft_stream_send(t.ep, &(weft_iov_t){from, LEN}, 1, OP(&end[0].notice));
    UNTIL(&t, has_ended(&end[0]));
    if (outcome(&end[0]) == WEFT_OK) UNTIL(&t, has_ended(&end[1]));
    bool is_whole = has_ended(&end[1]) && outcome(&end[1]) == WEFT_OK;
    if (is_whole) {
        CHECK_EQ(len, LEN);
        if (to) gpu.read(in, to, LEN);
        pattern(out, LEN, k);
        CHECK(memcmp(in, out, LEN) == 0);
    } else {
        CHECK(outcome(&end[0]) == WEFT_ERR_NO_MEMORY || outcome(&end[0]) == WEFT_ERR_IO ||
              outcome(&end[1]) == WEFT_ERR_NO_MEMORY || outcome(&end[1]) == WEFT_ERR_IO);
    }
    gpu.context_mend(gpu.context);
    two_down(&t);
    CHECK(end[1].notice.calls == (end[1].st == WEFT_IN_PROGRESS));
    CHECK(end[0].notice.calls == (end[0].st == WEFT_IN_PROGRESS));
    CHECK(gpu_context_is_as_before());
    gpu.release(from);
    if (to) gpu.release(to);
}

TEST_EACH(a_stream_of_bytes_ends_once_whatever_call_of_the_driver_fails) {
    each_call_fails(stream, &(struct bytes){transport});
}

/* ---- one-sided ------------------------------------------------------------------------------- */

struct one_sided {
    struct rma r;
    weft_mem_t *mem; /* of a device */
    weft_rkey_t *key;
    char *target;
    bool get, local_on_host, remote_on_host;
};

static void moves(void *arg, unsigned k) {
    struct one_sided *o = arg;
    struct two *t = &o->r.t;
    struct end end[3] = {0};
    unsigned armed = *gpu.fail_call;
    *gpu.fail_call = 0;
    char *local = o->local_on_host ? host : filled(LEN, k);
    uint64_t at = o->remote_on_host ? rma_at(&o->r, 0) : (uint64_t)(uintptr_t)o->target;
    weft_rkey_t *key = o->remote_on_host ? o->r.rkey : o->key;
    pattern(out, LEN, k);
    if (o->local_on_host) pattern(host, LEN, k);
    *gpu.fail_call = armed;
    for (int i = 0; i < 2; i++) /* the first fails, the other waits for the same place */
        end[i].st = o->get ? weft_get(t->ep, local + i * (LEN / 2), LEN / 2, at + i * (LEN / 2),
                                      key, OP(&end[i].notice))
                           : weft_put(t->ep, local + i * (LEN / 2), LEN / 2, at + i * (LEN / 2),
                                      key, OP(&end[i].notice));
    end[2].st = weft_ep_flush(
        t->ep, &(weft_op_t){.done = tally, .arg = &end[2].notice, .flags = WEFT_FLUSH_REMOTE});
    UNTIL(t, has_ended(&end[0]) && has_ended(&end[1]) && has_ended(&end[2]));
    check_ends(t, end, 3);
    bool all = outcome(&end[0]) == WEFT_OK && outcome(&end[1]) == WEFT_OK;
    if (all && !o->get && outcome(&end[2]) == WEFT_OK)
        CHECK(o->remote_on_host ? memcmp(o->r.target, out, LEN - 1) == 0
                                : holds(o->target, LEN - 1, k));
    gpu.context_mend(gpu.context);
    if (!o->local_on_host) gpu.release(local);
}

static void one_sided_fail(const char *transport, bool messages) {
    struct one_sided o = {.get = false};
    gpu_load();
    for (int what = 0; what < 6; what++) {
        memset(&o, 0, sizeof o);
        rma_up(&o.r, transport, messages, LEN, WEFT_MEM_ALL, chunks, 3);
        o.target = gpu_alloc(LEN);
        CHECK_EQ(weft_mem_register(two_b(&o.r.t), o.target, LEN,
                                   &(weft_mem_params_t){.rights = WEFT_MEM_READ | WEFT_MEM_WRITE},
                                   &o.mem),
                 0);
        o.key = rma_key(&o.r, o.mem);
        for (int i = 0; i < 20; i++)
            two_turn(&o.r.t); /* a key of the transport's own takes a few */
        o.get = what % 2;
        o.local_on_host = what / 2 == 1;
        o.remote_on_host = what / 2 == 2;
        each_call_fails(moves, &o);
        weft_rkey_release(o.key);
        rma_down(&o.r);
        gpu.release(o.target);
    }
}
TEST_WAYS(puts_and_gets_end_once_whatever_call_of_the_driver_fails) {
    one_sided_fail(transport, messages);
}

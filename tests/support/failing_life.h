/*
 * A whole life of two workers, in which one call of the system fails, once: they connect, send
 * messages both ways, put, get and close. Every operation ends once, what ended well has moved its
 * bytes, and nothing is left. Each life is played in a process of its own.
 */
#ifndef WEFT_TESTS_SUPPORT_FAILING_LIFE_H
#define WEFT_TESTS_SUPPORT_FAILING_LIFE_H

#include "descriptors.h"
#include "exposed.h"
#include "failing.h"

enum { SIZES = 3, LARGEST = 200000, MOST_OPS = 4 * SIZES + 2 };
static const size_t size_of[SIZES] = {8, 3000, LARGEST};

/* The calls of one kind that may fail. */
struct failing_calls {
    unsigned n;
    const char *const *name;
    const weft_setting_t *settings[2]; /* of a's context, and of b's */
    size_t n_settings;
    const char *(*left)(void); /* an object of theirs that is left; NULL: none. May be NULL */
};

/* ---- the life -------------------------------------------------------------------------------- */

/* What a life reports to the process that started it. */
struct report {
    bool lost;
    int n_ended;       /* operations that ended well */
    int n_descriptors; /* that are left: librdmacm keeps some of each device */
};

struct life {
    const struct failing_calls *calls;
    const char *transports;
    bool harmless;         /* another transport does all that one cannot do */
    int n_descriptors;     /* that are left where none fails */
    struct report *report; /* shared with its process */
};

/* An operation that was begun, or refused. */
struct begun {
    weft_status_t status;
    int n_ends;
};

struct scene {
    struct two t;
    weft_context_t *context_b;
    weft_mem_t *mem;
    weft_rkey_t *key;
    struct begun op[MOST_OPS];
    int n_ops;
    char *out, *in[2], *got;
};

static void on_end(weft_status_t status, void *arg) {
    struct begun *op = arg;
    op->status = status;
    op->n_ends++;
}

#define THEN(op_p) (&(weft_op_t){.done = on_end, .arg = (op_p)})

static struct begun *new_op(struct scene *s) {
    return &s->op[s->n_ops++];
}

static void begun(struct begun *op, weft_status_t status) {
    op->status = status;
    op->n_ends = status != WEFT_IN_PROGRESS;
}

/* Receives and sends lie in turns. A receive whose send fails, or is refused, waits for another. */
static bool all_ended(const struct scene *s) {
    for (int i = 0; i < s->n_ops; i += 2) {
        const struct begun *received = &s->op[i], *sent = &s->op[i + 1];
        if (!sent->n_ends || (sent->status == WEFT_OK && !received->n_ends)) return false;
    }
    return true;
}

static bool is_lost(const struct scene *s) {
    return s->t.errors || s->t.back_errors;
}

static weft_status_t worker_of(struct scene *s, const struct failing_calls *calls, int end,
                               const char *transports, weft_context_t **context_p,
                               weft_worker_t **worker_p) {
    const weft_context_params_t context = {.settings = calls->settings[end],
                                           .n_settings = calls->n_settings};
    const weft_worker_params_t params = {.transports = transports,
                                         .on_endpoint = two_on_endpoint,
                                         .on_error = two_on_back_error,
                                         .arg = &s->t};
    weft_status_t st = weft_context_create(&context, context_p);
    if (st < 0) *context_p = NULL;
    return st < 0 ? st : weft_worker_create(*context_p, &params, worker_p);
}

static void open_key(struct scene *s) {
    char key[512];
    size_t len = sizeof key;
    const weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    if (weft_mem_alloc(s->t.b, LARGEST, &params, &s->mem) < 0) return;
    CHECK_EQ(weft_mem_pack(s->mem, key, &len), 0);
    if (weft_rkey_unpack(s->t.ep, key, len, &s->key) < 0) s->key = NULL;
}

static void send_all(struct scene *s, weft_ep_t *ep, weft_worker_t *to, char *in) {
    for (int i = 0; i < SIZES; i++) {
        const weft_iov_t from = {s->out, size_of[i]}, into = {in + i * LARGEST, size_of[i]};
        struct begun *received = new_op(s), *sent = new_op(s);
        begun(received,
              weft_tag_recv(to, (uint64_t)i + 1, UINT64_MAX, &into, 1, NULL, THEN(received)));
        begun(sent, weft_tag_send(ep, (uint64_t)i + 1, &from, 1, THEN(sent)));
    }
}

/* What ended well did what it was to do. */
static void look_at_bytes(const struct scene *s) {
    for (int way = 0, op = 0; way < 2; way++)
        for (int i = 0; i < SIZES; i++, op += 2)
            CHECK(op >= s->n_ops || s->op[op].status != WEFT_OK ||
                  memcmp(s->in[way] + i * LARGEST, s->out, size_of[i]) == 0);
    if (s->key && s->op[s->n_ops - 2].status == WEFT_OK && s->op[s->n_ops - 1].status == WEFT_OK)
        CHECK(memcmp(s->got, s->out, LARGEST) == 0);
}

static void talk(struct scene *s) {
    char address[512];
    size_t len = sizeof address;
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &s->t};
    if (weft_worker_address(s->t.b, address, &len) < 0) return;
    if (weft_connect_address(s->t.a, address, len, &params, &s->t.ep) < 0) return;
    send_all(s, s->t.ep, s->t.b, s->in[0]);
    UNTIL(&s->t, (s->t.ready && s->t.back) || is_lost(s));
    if (s->t.back && !s->t.back_errors) send_all(s, s->t.back, s->t.a, s->in[1]);
    UNTIL(&s->t, all_ended(s) || is_lost(s));
    if (is_lost(s)) return;
    open_key(s);
    if (!s->key) return;
    uint64_t there = (uint64_t)(uintptr_t)base_of(s->mem);
    struct begun *put = new_op(s), *got = new_op(s);
    begun(put, weft_put(s->t.ep, s->out, LARGEST, there, s->key, THEN(put)));
    UNTIL(&s->t, put->n_ends || is_lost(s));
    begun(got, weft_get(s->t.ep, s->got, LARGEST, there, s->key, THEN(got)));
    UNTIL(&s->t, got->n_ends || is_lost(s));
}

static void close_all(struct scene *s) {
    if (s->key) weft_rkey_release(s->key);
    if (s->t.a)
        CHECK(weft_worker_close(s->t.a, &(weft_op_t){.done = two_gone, .arg = &s->t.a}) >= 0);
    if (s->t.b)
        CHECK(weft_worker_close(s->t.b, &(weft_op_t){.done = two_gone, .arg = &s->t.b}) >= 0);
    UNTIL(&s->t, !s->t.a && !s->t.b);
    if (s->t.context) CHECK_EQ(weft_context_destroy(s->t.context), 0);
    if (s->context_b) CHECK_EQ(weft_context_destroy(s->context_b), 0);
}

/* In a process of its own. */
static void play(void *arg) {
    static struct scene s;
    const struct life *life = arg;
    const struct failing_calls *calls = life->calls;
    struct report *report = life->report;
    s.out = malloc(LARGEST);
    s.got = calloc(1, LARGEST);
    for (int way = 0; way < 2; way++) s.in[way] = calloc(SIZES, LARGEST);
    number(s.out, LARGEST, 7);
    int before = n_descriptors();
    failing->armed = true;
    if (worker_of(&s, calls, 0, life->transports, &s.t.context, &s.t.a) < 0)
        s.t.a = NULL;
    else if (worker_of(&s, calls, 1, life->transports, &s.context_b, &s.t.b) < 0)
        s.t.b = NULL;
    else
        talk(&s);
    report->lost = is_lost(&s);
    close_all(&s);
    failing->armed = false;
    for (int i = 0; i < s.n_ops; i++) {
        CHECK_EQ(s.op[i].n_ends, 1);
        report->n_ended += s.op[i].status == WEFT_OK;
    }
    look_at_bytes(&s);
    report->n_descriptors = n_descriptors() - before;
    const char *left = calls->left ? calls->left() : NULL;
    if (left) printf("  %s are left\n", left);
    CHECK(!left);
    free(s.out), free(s.got), free(s.in[0]), free(s.in[1]);
}

static bool ends_well(void *arg, unsigned call, unsigned at) {
    struct life *life = arg;
    struct report *report = life->report;
    *report = (struct report){0};
    bool well = life_ends_well(play, life, call, at);
    printf("  %s: %s, call %u: %d operations ended well%s%s\n", life->transports,
           life->calls->name[call], at, report->n_ended, report->lost ? ", lost" : "",
           well ? "" : "; it ended badly");
    if (at == 0) life->n_descriptors = report->n_descriptors;
    if (report->n_descriptors > life->n_descriptors) {
        printf("  a descriptor is left\n");
        well = false;
    }
    return well && (report->n_ended == MOST_OPS || (at > 0 && !life->harmless));
}

static inline void each_call_fails_in_a_life(const struct failing_calls *calls,
                                             const char *transports, bool every, bool harmless) {
    struct life life = {calls, transports, harmless, 0, shared_memory(sizeof *life.report)};
    each_fails_once(calls->n, every, ends_well, &life);
    munmap(life.report, sizeof *life.report);
}

#endif

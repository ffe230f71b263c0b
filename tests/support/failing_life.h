/*
 * A whole life of two workers, in which one call of the system fails, once: they connect, send
 * messages both ways, put, get and close. Every operation ends once, what ended well has moved its
 * bytes, and nothing is left. Each life is played in a process of its own.
 */
#ifndef WEFT_TESTS_SUPPORT_FAILING_LIFE_H
#define WEFT_TESTS_SUPPORT_FAILING_LIFE_H

#include "exposed.h"
#include "failing.h"
#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>

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
    unsigned n_calls[MOST_CALLS];
    bool failed, lost;
    int n_ended;       /* operations that ended well */
    int n_descriptors; /* that are left: librdmacm keeps some of each device */
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

static int n_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
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
static void play(const struct failing_calls *calls, const char *transports, unsigned call,
                 unsigned at, struct report *report) {
    static struct scene s;
    s.out = malloc(LARGEST);
    s.got = calloc(1, LARGEST);
    for (int way = 0; way < 2; way++) s.in[way] = calloc(SIZES, LARGEST);
    number(s.out, LARGEST, 7);
    int before = n_descriptors();
    failing.call = call;
    failing.at = at;
    failing.armed = true;
    if (worker_of(&s, calls, 0, transports, &s.t.context, &s.t.a) < 0)
        s.t.a = NULL;
    else if (worker_of(&s, calls, 1, transports, &s.context_b, &s.t.b) < 0)
        s.t.b = NULL;
    else
        talk(&s);
    report->lost = is_lost(&s);
    close_all(&s);
    failing.armed = false;
    for (int i = 0; i < s.n_ops; i++) {
        CHECK_EQ(s.op[i].n_ends, 1);
        report->n_ended += s.op[i].status == WEFT_OK;
    }
    look_at_bytes(&s);
    memcpy(report->n_calls, failing.n_calls, sizeof report->n_calls);
    report->failed = failing.failed;
    report->n_descriptors = n_descriptors() - before;
    const char *left = calls->left ? calls->left() : NULL;
    if (left) printf("  %s are left\n", left);
    CHECK(!left);
    free(s.out), free(s.got), free(s.in[0]), free(s.in[1]);
}

/* Plays it in another process, which ends well. */
static bool ends_well(const struct failing_calls *calls, const char *transports, unsigned call,
                      unsigned at, struct report *report) {
    const int n_descriptors = report->n_descriptors;
    int status;
    memset(report, 0, sizeof *report);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm((unsigned)test_timeout(60));
        if (setjmp(test_out) == 0) play(calls, transports, call, at, report);
        exit(test_result);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    printf("  %s: %s, call %u%s: %d operations ended well%s, status %x\n", transports,
           calls->name[call], at, report->failed || status ? "" : " (did not come)",
           report->n_ended, report->lost ? ", lost" : "", (unsigned)status);
    if (at && report->n_descriptors > n_descriptors) printf("  a descriptor is left\n"), status = 1;
    if (at) report->n_descriptors = n_descriptors;
    return status == 0;
}

/* The first call of each function fails (`every`: each call), one in each life. `harmless`: another
 * transport does all that this one could not. */
static inline void each_fails_once(const struct failing_calls *calls, const char *transports,
                                   bool every, bool harmless) {
    struct report *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned n_calls[MOST_CALLS], bad = 0;
    CHECK(report != MAP_FAILED);
    CHECK(ends_well(calls, transports, 0, 0, report));
    CHECK_EQ(report->n_ended, MOST_OPS);
    memcpy(n_calls, report->n_calls, sizeof n_calls);
    for (unsigned call = 0; call < calls->n; call++) {
        const unsigned last = every ? n_calls[call] : n_calls[call] > 0;
        for (unsigned at = 1; at <= last; at++)
            bad += !ends_well(calls, transports, call, at, report) ||
                   (harmless && report->n_ended != MOST_OPS);
    }
    munmap(report, sizeof *report);
    CHECK_EQ(bad, 0);
}

#endif

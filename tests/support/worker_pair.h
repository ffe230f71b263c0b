/* Two workers of one process, driven in turn: most tests of endpoints need no more. */
#ifndef WEFT_TESTS_SUPPORT_WORKER_PAIR_H
#define WEFT_TESTS_SUPPORT_WORKER_PAIR_H

#include <stdbool.h>
#include <stdlib.h>
#include <tests/harness.h>
#include <tests/network.h>
#include <tests/support/clock.h>
#include <weft/weft.h>

struct two {
    weft_context_t *context;
    weft_worker_t *a, *b;
    weft_ep_t *ep;   /* a's, to b */
    weft_ep_t *back; /* b's half of it */
    int ready, errors, endpoints;
    weft_status_t error, back_error;
    int back_errors;
};

/* What tests call large does not depend on the machine, and no file of its user is written. */
static __attribute__((constructor)) void two_fixed_costs(void) {
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "64k", 0);
    setenv("WEFT_CALIBRATION", "off", 0);
}

/* Returns whether either found anything. */
static inline bool two_turn(struct two *t) {
    int a = t->a ? weft_worker_progress(t->a, 0) : 0;
    int b = t->b ? weft_worker_progress(t->b, 0) : 0;
    return a > 0 || b > 0;
}

/* Drives both until `cond`; fails the test when it takes too long. */
#define UNTIL(t, cond)                                                    \
    do {                                                                  \
        double until_end = test_now() + test_timeout(60);                 \
        while (!(cond) && test_now() < until_end) test_idle(two_turn(t)); \
        CHECK(cond);                                                      \
    } while (0)

static inline void two_on_endpoint(weft_ep_t *ep, void *arg) {
    struct two *t = arg;
    t->back = ep;
    t->endpoints++;
}
static inline void two_on_back_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct two *t = arg;
    t->back_error = status;
    t->back_errors++;
}
static inline void two_on_ready(weft_ep_t *ep, void *arg) {
    ((struct two *)arg)->ready++;
}
static inline void two_on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct two *t = arg;
    t->error = status;
    t->errors++;
}

/* of workers that are made from now on */
static weft_thread_mode_t two_thread_mode __attribute__((unused));

/* Both workers with the given transports ("self": a and b are the same worker). */
static inline void two_workers_of(struct two *t, const char *transports,
                                  const weft_context_params_t *context) {
    memset(t, 0, sizeof *t);
    CHECK_EQ(weft_context_create(context, &t->context), 0);
    weft_worker_params_t params = {.transports = transports,
                                   .thread_mode = two_thread_mode,
                                   .on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = t};
    CHECK_EQ(weft_worker_create(t->context, &params, &t->a), 0);
    if (strcmp(transports, "self") != 0)
        CHECK_EQ(weft_worker_create(t->context, &params, &t->b), 0);
}

static inline void two_workers(struct two *t, const char *transports,
                               const weft_setting_t *settings, size_t n) {
    two_workers_of(t, transports, &(weft_context_params_t){.settings = settings, .n_settings = n});
}

static inline weft_worker_t *two_b(struct two *t) {
    return t->b ? t->b : t->a;
}

static inline void two_dial(struct two *t) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(two_b(t), address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = t};
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, &t->ep), 0);
}

static inline void two_up(struct two *t, const char *transports) {
    two_workers(t, transports, NULL, 0);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

static inline void two_gone(weft_status_t status, void *arg) {
    *(weft_worker_t **)arg = NULL;
}
/* Both close at once, and neither waits for a peer that stands still. */
static inline void two_down(struct two *t) {
    if (t->a)
        CHECK_EQ(weft_worker_close(t->a, &(weft_op_t){.done = two_gone, .arg = &t->a}),
                 WEFT_IN_PROGRESS);
    if (t->b)
        CHECK_EQ(weft_worker_close(t->b, &(weft_op_t){.done = two_gone, .arg = &t->b}),
                 WEFT_IN_PROGRESS);
    UNTIL(t, !t->a && !t->b);
    CHECK_EQ(weft_context_destroy(t->context), 0);
}

/* Counts completions: op.arg is a `struct tally`. */
struct tally {
    int calls;
    weft_status_t status;
};
static inline void tally(weft_status_t status, void *arg) {
    struct tally *c = arg;
    c->calls++;
    c->status = status;
}
#define OP(tally_p) (&(weft_op_t){.done = tally, .arg = (tally_p)})
/* Of a close in good order, for which the setting close.timeout may be short. */
#define CLOSE_OP(tally_p) (&(weft_op_t){.done = tally, .arg = (tally_p), .deadline_ms = 60000})

/* Each real transport between two workers: `TEST_WIRES(name) { ... transport ... }` makes name_shm
 * and name_tcp. */
#define TEST_WIRES(name)                     \
    static void name(const char *transport); \
    TEST(name##_shm) {                       \
        name("shm");                         \
    }                                        \
    TEST(name##_tcp) {                       \
        name(test_network());                \
    }                                        \
    static void name(const char *transport)

/* Each real transport: makes name_self, too. */
#define TEST_EACH(name)                      \
    static void name(const char *transport); \
    TEST(name##_self) {                      \
        name("self");                        \
    }                                        \
    TEST_WIRES(name)

/* Bytes that show where they belong. */
static inline void pattern(void *to, size_t len, unsigned seed) {
    unsigned char *p = to;
    for (size_t i = 0; i < len; i++)
        p[i] = (unsigned char)((i * 131 + (i >> 8) * 17 + seed) & 0xff);
}
static inline bool is_pattern(const void *from, size_t len, unsigned seed) {
    const unsigned char *p = from;
    for (size_t i = 0; i < len; i++)
        if (p[i] != (unsigned char)((i * 131 + (i >> 8) * 17 + seed) & 0xff)) return false;
    return true;
}

#endif

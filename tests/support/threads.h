/* Two workers between which other threads submit, or of which one has a thread of its own. */
#ifndef WEFT_TESTS_SUPPORT_THREADS_H
#define WEFT_TESTS_SUPPORT_THREADS_H

#include "worker_pair.h"
#include <pthread.h>
#include <stdatomic.h>

enum { ID = 7, ECHO = 8, SENDERS = 4 };

/* a is driven by the test's thread; b is of mode multiple, and by default driven by a thread of
 * its own. */
struct pair {
    weft_context_t *context;
    weft_worker_t *a, *b;
    weft_ep_t *to_b, *to_a;
    atomic_int ready, accepted, arrived, errors;
    weft_status_t error;
    pthread_t main;
    atomic_int elsewhere; /* callbacks of b on the test's thread, or of a on another */
    unsigned next[SENDERS];
    int disorder;
    weft_rkey_t *key;
};

static inline void on_ready(weft_ep_t *ep, void *arg) {
    ((struct pair *)arg)->ready++;
}
static inline void on_endpoint(weft_ep_t *ep, void *arg) {
    struct pair *p = arg;
    p->to_a = ep;
    p->accepted++;
}
static inline void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct pair *p = arg;
    p->error = status;
    p->errors++;
}

/* Returns whether either found anything. */
static inline bool drive(struct pair *p) {
    int a = weft_worker_progress(p->a, 0), b = p->b ? weft_worker_progress(p->b, 0) : 0;
    return a > 0 || b > 0;
}
#define UNTIL_PAIR(p, cond)                                            \
    do {                                                               \
        double until_end = test_now() + test_timeout(60);              \
        while (!(cond) && test_now() < until_end) test_idle(drive(p)); \
        CHECK(cond);                                                   \
    } while (0)

static inline void pair_make(struct pair *p, const char *transports, const weft_setting_t *settings,
                             size_t n) {
    *p = (struct pair){.main = pthread_self()};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = n},
                                 &p->context),
             0);
    weft_worker_params_t params = {.transports = transports,
                                   .thread_mode = WEFT_THREAD_MULTIPLE,
                                   .on_endpoint = on_endpoint,
                                   .on_error = on_error,
                                   .arg = p};
    CHECK_EQ(
        weft_worker_create(p->context, &(weft_worker_params_t){.transports = transports}, &p->a),
        0);
    CHECK_EQ(weft_worker_create(p->context, &params, &p->b), 0);
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(p->b, address, &len), 0);
    weft_ep_params_t ep = {.on_ready = on_ready, .on_error = on_error, .arg = p};
    CHECK_EQ(weft_connect_address(p->a, address, len, &ep, &p->to_b), 0);
    UNTIL_PAIR(p, p->ready && p->accepted);
}

static inline void pair_end(struct pair *p) {
    struct two t = {.context = p->context, .a = p->a, .b = p->b};
    if (p->b) (void)weft_worker_stop_thread(p->b); /* not all have one */
    two_down(&t);
}

/* Runs `fn` on another thread while the test's thread drives both workers. */
struct elsewhere {
    void (*fn)(struct pair *p);
    struct pair *p;
    atomic_bool over;
};
static inline void *run_elsewhere(void *arg) {
    struct elsewhere *e = arg;
    e->fn(e->p);
    e->over = true;
    return NULL;
}
static inline void elsewhere(struct pair *p, void (*fn)(struct pair *p)) {
    struct elsewhere e = {.fn = fn, .p = p};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, run_elsewhere, &e), 0);
    while (!e.over) drive(p);
    pthread_join(thread, NULL);
}

/* What the test's operation came to. */
static __attribute__((unused)) struct tally posted;
static __attribute__((unused)) _Alignas(8) char buffer[64];

static inline void on_back(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ((struct pair *)arg)->arrived++;
}

#endif

/* Two workers of one process at the two ends of the bed's wire (tools/rdma-vm), and the commands
 * that spoil it. */
#ifndef WEFT_TESTS_RDMA_BED_H
#define WEFT_TESTS_RDMA_BED_H

#include <stdarg.h>
#include <tests/support/worker_pair.h>

/* Each end has a context of its own, since it has a device of its own. */
struct bed {
    struct two t; /* its context is a's */
    weft_context_t *context_b;
};

/* The bed's two devices are here, and no others are meddled with. */
static inline bool bed_is_here(void) {
    return access("/sys/class/infiniband/rxe0", F_OK) == 0 &&
           access("/sys/class/infiniband/rxe1", F_OK) == 0;
}
#define WANTS_THE_BED()                                  \
    do {                                                 \
        if (!bed_is_here()) SKIP("no RDMA device here"); \
    } while (0)

static inline bool bed_run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline bool bed_run(const char *format, ...) {
    char command[256];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    int status = system(command);
    if (status) printf("  \"%s\" ended with %d\n", command, status);
    return status == 0;
}

static inline weft_worker_t *bed_worker(struct two *t, weft_context_t **context_p,
                                        const char *transport, const char *device,
                                        weft_setting_t more) {
    weft_setting_t settings[] = {{"rdma.device", device}, {"rdma.insecure", "yes"}, more};
    weft_context_params_t params = {.settings = settings, .n_settings = more.name ? 3 : 2};
    weft_worker_t *worker = NULL;
    CHECK_EQ(weft_context_create(&params, context_p), 0);
    CHECK_EQ(weft_worker_create(*context_p,
                                &(weft_worker_params_t){.transports = transport,
                                                        .on_endpoint = two_on_endpoint,
                                                        .on_error = two_on_back_error,
                                                        .arg = t},
                                &worker),
             0);
    return worker;
}

/* a at rxe0 dialed b at `device_b`. */
static inline void bed_up(struct bed *b, const char *transport, const char *device_b,
                          weft_setting_t more) {
    WANTS_THE_BED();
    memset(b, 0, sizeof *b);
    b->t.a = bed_worker(&b->t, &b->t.context, transport, "rxe0", more);
    b->t.b = bed_worker(&b->t, &b->context_b, transport, device_b, more);
    two_dial(&b->t);
    UNTIL(&b->t, b->t.ready && b->t.back);
}

static inline void bed_down(struct bed *b) {
    two_down(&b->t);
    CHECK_EQ(weft_context_destroy(b->context_b), 0);
}

/* Until `cond`, for so many seconds; a turn in between. */
#define BED_UNTIL(t, seconds, cond)                                     \
    do {                                                                \
        double bed_end = test_now() + test_timeout(seconds);            \
        while (!(cond) && test_now() < bed_end) test_idle(two_turn(t)); \
        CHECK(cond);                                                    \
    } while (0)

#endif

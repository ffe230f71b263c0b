/* weft-perf: what all of its files share. */
#ifndef WEFT_TOOLS_PERF_PERF_H
#define WEFT_TOOLS_PERF_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <weft/weft.h>

#include "cuda.h"
#include "histogram.h"

enum perf_test {
#define TEST(id, name, family, shown, flags) TEST_##id,
#include "tests.def"
#undef TEST
    N_TESTS
};

enum perf_shown { PERF_LATENCY, PERF_RATE, PERF_BANDWIDTH };
enum { /* of a test: see tests.def */
       PERF_HALF_ROUND_TRIP = 1,
       PERF_POLLED = 2,
       PERF_WAITING = 4,
       PERF_WORDS = 8,
       PERF_SIZELESS = 16,
       PERF_TEAM = 32,
       PERF_NONEMPTY = 64,
       PERF_BLOCKS = 128,
       PERF_WRITTEN = 256
};

struct perf;
struct perf_order;
struct perf_result;

/*
 * Tests of one kind. One side measures; the other one carries out orders. A NULL entry is not
 * needed.
 */
struct perf_family {
    void (*prepare)(struct perf *p); /* both sides, before peers connect */
    void (*measure)(struct perf *p, size_t size, struct perf_result *result_p);
    void (*begin)(struct perf *p, const struct perf_order *order);
    void (*more)(struct perf *p, const struct perf_order *order);
    void (*end)(struct perf *p, const struct perf_order *order); /* replies */
    void (*turn)(struct perf *p);                                /* of the side that replies */
};

struct perf_kind {
    const char *name;
    const struct perf_family *family;
    enum perf_shown shown;
    unsigned flags;
};
extern const struct perf_kind perf_tests[N_TESTS];

enum { PERF_WINDOW = 64 /* and at most */, PERF_RANKS = 4096 /* at most */ };

enum perf_mode {
    MODE_POLL,
    MODE_SLEEP, /* at once */
    MODE_WAIT   /* after weft_worker_wait's own look around */
};
extern const char *const perf_mode_names[];

enum perf_use { PERF_SENT = 1, PERF_RECEIVED = 2 }; /* of memory */

struct perf_options {
    enum perf_test test;
    size_t size_lo, size_hi; /* swept by doubling */
    const char *transport;   /* auto, or one of self, shm, tcp, rdma_rc, rdma_ud */
    enum perf_mode mode;
    bool mode_set;
    uint32_t ranks;
    uint32_t count, links; /* endpoints or clients, and workers they lead to; 0: not said */
    double seconds;        /* measured, for each size */
    bool json;
    const char *plot, *listen, *connect, *tune;
    int core;            /* -1: by rank */
    unsigned exposed;    /* PERF_SENT | PERF_RECEIVED: from, or into, the library's memory */
    enum perf_cuda cuda; /* not NONE: memory of that kind, and `exposed` is 0 */
    bool fresh;          /* what is sent is written before each operation */
    bool persistent;     /* a collective is described once, and started */
    uint32_t window;     /* operations under way in streams */
};

/* One process's part. */
struct perf {
    struct perf_options options;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_team_t *team; /* NULL with --listen, --connect and the self transport */
    weft_ep_t *ep;     /* to the peer of tests between two */
    uint32_t rank, size;
    enum perf_mode mode; /* of the test that runs */
    bool oversubscribed; /* more processes than cores: yield between looks */
    void *out, *in;      /* size_hi bytes each, and more for collectives */
    struct histogram histogram;

    weft_ep_t *asker; /* whose orders we carry out */
    const struct perf_family *serving;
    void (*turn)(struct perf *p); /* of it */
    bool leaving;
};

struct perf_result {
    enum perf_test test;
    size_t size;
    const char *transport, *mode;
    uint32_t ranks;
    double p50_us, p99_us, avg_us, mmsg_s, gb_s, cpu_pct;
    struct perf_note {
        const char *key;
        double value;
    } notes[8]; /* what only some tests report */
    size_t n_notes;
};

_Noreturn void perf_die(const char *what, weft_status_t status);
static inline void perf_must(weft_status_t status, const char *what) {
    if (status < 0) perf_die(what, status);
}
/* on_error of a connection that has to last. */
void perf_lost(weft_ep_t *ep, weft_status_t status, void *arg);

/*
 * New memory for what is sent or received, unless --memory says otherwise in a region of the worker
 * that is exposed to its peers: other programs that measure this have theirs of their library, too.
 * It stays.
 */
void *perf_memory(struct perf *p, enum perf_use use, size_t size);
/* The same, kept for the next test, until that needs more of it. */
struct perf_room {
    void *bytes;
    size_t size;
};
void *perf_room(struct perf *p, enum perf_use use, struct perf_room *room, size_t size);

/* One look, or one sleep, by the mode. */
void perf_turn(struct perf *p);

/* tune.c: of all collectives, or of the one that is the test. The exit status. */
bool perf_may_tune(enum perf_test test); /* there is more than one algorithm */
int perf_tune(const struct perf_options *o);

/* The clock, ns, and the processor time of this process. */
uint64_t perf_now(void);
double perf_cpu_s(void);

/* ---- the conversation of the two sides (control.c) ------------------------------------------- */

enum { PERF_BYTES = 512 }; /* that an order or an answer can bring along */
enum {
    AM_CONTROL = 1,
    AM_ANSWER,
    AM_PING,
    AM_PONG,
    AM_STREAM,
    AM_FIRST,
    AM_HELLO,
    AM_REQUEST,
    AM_REPLY
};

enum perf_command { PERF_BEGIN = 1, PERF_MORE, PERF_END, PERF_BYE };
struct perf_order {
    uint32_t command, test;
    uint64_t size;
    uint64_t count; /* END: operations since BEGIN */
    uint64_t links;
    uint32_t n_bytes;
    uint8_t bytes[PERF_BYTES];
};
struct perf_answer {
    uint64_t count;
    uint32_t n_bytes;
    uint8_t bytes[PERF_BYTES];
};

void perf_control_prepare(struct perf *p);
void perf_prepare(struct perf *p); /* that, and every family's own part */
/*
 * Gives an order and waits for the answer, which lives until the next. The test and its counts are
 * filled in.
 */
const struct perf_answer *perf_ask(struct perf *p, struct perf_order *order);
void perf_answer(struct perf *p, const struct perf_answer *answer);
void perf_serve(struct perf *p); /* carries out orders until the order to leave */
void perf_bye(struct perf *p);

/* ---- what tests have in common (loop.c) ------------------------------------------------------ */

struct perf_loop {
    void (*ops)(struct perf *p, uint64_t n); /* `n` operations; the last may be in flight */
    uint64_t least_batch;
    void (*finish)(struct perf *p); /* waits for them, within the measured time, or NULL */
};
/*
 * Some operations to warm up, then batches into the histogram, then END's answer, which must count
 * them all.
 */
void perf_loop(struct perf *p, size_t size, const struct perf_loop *loop,
               struct perf_result *result_p);
/* How many operations to time at once: reading the clock costs some 30 ns, which must not count. */
uint64_t perf_batch(double ns_each);

/*
 * Percentiles and rates from the histogram. `scale`: operations' times are multiplied by it (½ for
 * round trips).
 */
void perf_fill(const struct perf *p, double scale, double wall_s, double cpu_s, uint64_t n,
               struct perf_result *r);
void perf_note(struct perf_result *r, const char *key, double value);

/* ---- telling --------------------------------------------------------------------------------- */

void perf_print_json(FILE *to, const struct perf_result *r);
void perf_print_header(FILE *to);
void perf_print_row(FILE *to, const struct perf_result *r);
/* A picture of one sweep; false after a message. */
bool perf_plot(const char *file, const struct perf_result *results, size_t n);

#endif

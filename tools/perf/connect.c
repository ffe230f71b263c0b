/*
 * Many endpoints to one worker, or to as many workers as --links says: how fast they open, each
 * with a first message, what memory and descriptors they take on either side, and what a look costs
 * while they are quiet.
 */
#include "perf.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * No more openings under way than that, and one where memory is measured: what waits takes memory
 * too, which is not an endpoint's.
 */
enum { OPENING = 64, TURN_AFTER = 16, WARM = 2000 };
enum { COUNT = 5000, MOST_TARGETS = 16384, READY_AT_ONCE = 64, LOOKS = 1000 };

/* What more may be asked for than the address of a worker, by its number. */
static const uint64_t MORE_HOLDINGS = UINT64_MAX - 1, MORE_NOTHING = UINT64_MAX;

/* What a process holds. */
struct holdings {
    double bytes, fds;
};

static struct holdings look_around(void) {
    struct holdings h = {0};
    unsigned long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lu %lu", &total, &resident) == 2)
        h.bytes = (double)resident * (double)sysconf(_SC_PAGESIZE);
    if (f) fclose(f);
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) h.fds++;
    if (d) closedir(d);
    return h;
}

/*
 * Before anything is opened. The first look takes pages of the C library for itself, so the second
 * counts.
 */
static struct holdings look_before(void) {
    look_around();
    return look_around();
}

static struct holdings per(struct holdings before, uint64_t n) {
    struct holdings now = look_around();
    return (struct holdings){(now.bytes - before.bytes) / (double)n,
                             (now.fds - before.fds) / (double)n};
}

/* A worker has some descriptors of its own, and a thousand of them more than the usual limit. */
static void allow_many_fds(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- answering: the workers that endpoints lead to ------------------------------------------- */

static struct targets {
    struct perf *p;
    weft_worker_t **workers; /* NULL: this side's only one */
    uint64_t n, received, expected;
    int epoll; /* on the workers' fds */
    struct holdings before;
} targets;

static void on_gone(weft_ep_t *ep, weft_status_t status, void *arg) {
    (void)status;
    (void)arg;
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

static void answer_if_all_came(struct targets *t) {
    if (t->received < t->expected) return;
    t->expected = UINT64_MAX;
    perf_answer(t->p, &(struct perf_answer){.count = t->received});
}

static void answer_holdings(const struct targets *t) {
    struct perf_answer answer = {.n_bytes = sizeof(struct holdings)};
    struct holdings h = per(t->before, t->received);
    memcpy(answer.bytes, &h, sizeof h);
    perf_answer(t->p, &answer);
}

static void on_first(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct targets *t = arg;
    (void)am;
    weft_ep_on_error(ep, on_gone, NULL);
    t->received++;
    answer_if_all_came(t);
}

static void open_target(struct targets *t, uint64_t i) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = i};
    uint8_t address[PERF_BYTES];
    size_t len = sizeof address;
    perf_must(weft_worker_create(t->p->context, NULL, &t->workers[i]), "worker");
    perf_must(weft_am_handler_set(t->workers[i], AM_FIRST, on_first, t), "handler");
    perf_must(weft_worker_address(t->workers[i], address, &len), "address");
    int fd = weft_worker_fd(t->workers[i]);
    perf_must(fd < 0 ? (weft_status_t)fd : WEFT_OK, "worker's fd");
    weft_worker_progress(t->workers[i], 0);
    if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, fd, &event) < 0) perf_die("epoll", WEFT_ERR_IO);
}

static void open_targets(struct targets *t, uint64_t n) {
    if (n > MOST_TARGETS) perf_die("links", WEFT_ERR_TOO_BIG);
    allow_many_fds();
    t->n = n;
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->workers = calloc(n, sizeof *t->workers);
    if (t->epoll < 0 || !t->workers) perf_die("links", WEFT_ERR_NO_MEMORY);
    for (uint64_t i = 0; i < n; i++) open_target(t, i);
}

static void close_targets(struct targets *t) {
    for (uint64_t i = 0; i < t->n; i++) weft_worker_destroy(t->workers[i]);
    free(t->workers);
    close(t->epoll);
    *t = (struct targets){.expected = UINT64_MAX};
}

/* Each worker whose fd says so takes its turn. */
static void drive_targets(struct perf *p) {
    struct epoll_event ready[READY_AT_ONCE];
    struct targets *t = &targets;
    (void)p;
    if (!t->workers) return;
    int n = epoll_wait(t->epoll, ready, READY_AT_ONCE, 0);
    for (int i = 0; i < n; i++) weft_worker_progress(t->workers[ready[i].data.u64], 0);
}

static void answer_address(struct perf *p, weft_worker_t *worker) {
    struct perf_answer answer = {0};
    size_t len = sizeof answer.bytes;
    perf_must(weft_worker_address(worker, answer.bytes, &len), "address");
    answer.n_bytes = (uint32_t)len;
    perf_answer(p, &answer);
}

static void begin_connection(struct perf *p, const struct perf_order *order) {
    targets = (struct targets){.p = p, .expected = UINT64_MAX};
    if (order->links > 0) {
        open_targets(&targets, order->links);
        p->mode = MODE_POLL; /* p->worker is not the only one to look after */
    }
    targets.before = look_before();
    answer_address(p, p->worker);
}

/* The address of one worker, or the holdings, or nothing more: then they go. */
static void more_connection(struct perf *p, const struct perf_order *order) {
    if (order->count < targets.n) {
        answer_address(p, targets.workers[order->count]);
    } else if (order->count == MORE_HOLDINGS) {
        answer_holdings(&targets);
    } else {
        if (targets.workers) close_targets(&targets);
        perf_answer(p, &(struct perf_answer){0});
    }
}

static void end(struct perf *p, const struct perf_order *order) {
    (void)p;
    targets.expected = order->count;
    answer_if_all_came(&targets);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static uint64_t in_progress;

static void on_done(weft_status_t status, void *arg) {
    (void)arg;
    perf_must(status, "endpoint");
    in_progress--;
}

static void started(weft_status_t status, const char *what) {
    perf_must(status, what);
    in_progress += status == WEFT_IN_PROGRESS;
}

/*
 * The link by which both sides talk may earn another lane, which is no endpoint's and no quiet
 * peer's. Let it have that before.
 */
static void warm(struct perf *p, enum perf_command command) {
    uint64_t end = perf_now() + (uint64_t)(p->options.seconds / 5 * 1e9);
    for (unsigned n = 0; n < WARM || perf_now() < end; n++)
        perf_ask(p, &(struct perf_order){.command = command});
}

struct address {
    size_t len;
    uint8_t bytes[PERF_BYTES];
};

static struct address *ask_addresses(struct perf *p, uint64_t n_targets) {
    struct address *all = calloc(n_targets, sizeof *all);
    if (!all) perf_die("addresses", WEFT_ERR_NO_MEMORY);
    const struct perf_answer *answer = perf_ask(p, &(struct perf_order){.command = PERF_BEGIN});
    for (uint64_t i = 0; i < n_targets; i++) {
        if (p->options.links > 0)
            answer = perf_ask(p, &(struct perf_order){.command = PERF_MORE, .count = i});
        all[i].len = answer->n_bytes;
        memcpy(all[i].bytes, answer->bytes, answer->n_bytes);
    }
    return all;
}

static void open_one(struct perf *p, const struct address *address, weft_ep_t **ep_p) {
    uint64_t payload = 0;
    weft_op_t op = {.done = on_done};
    perf_must(weft_connect_address(p->worker, address->bytes, address->len, NULL, ep_p), "connect");
    perf_must(weft_am_send(*ep_p, AM_FIRST, &payload, sizeof payload, NULL, 0, NULL),
              "first message");
    started(weft_ep_flush(*ep_p, &op), "flush");
}

/* Until the other side has every first message. */
static void open_all(struct perf *p, const struct address *addresses, uint64_t n_targets,
                     weft_ep_t **eps, uint64_t n) {
    uint64_t most = p->options.test == TEST_EP_MEMORY ? 1 : OPENING;
    for (uint64_t i = 0; i < n; i++) {
        open_one(p, &addresses[i % n_targets], &eps[i]);
        if (i % TURN_AFTER == 0) weft_worker_progress(p->worker, 0);
        while (in_progress >= most) perf_turn(p);
    }
    while (in_progress > 0) perf_turn(p);
    const struct perf_answer *answer =
        perf_ask(p, &(struct perf_order){.command = PERF_END, .count = n});
    if (answer->count != n) perf_die("first messages are missing", WEFT_ERR_INTERNAL);
}

/* Asked apart: to count thousands of descriptors takes as long as hundreds of links. */
static struct holdings ask_holdings(struct perf *p) {
    struct holdings theirs = {0};
    struct perf_order order = {.command = PERF_MORE, .count = MORE_HOLDINGS};
    const struct perf_answer *answer = perf_ask(p, &order);
    if (answer->n_bytes == sizeof theirs) memcpy(&theirs, answer->bytes, sizeof theirs);
    return theirs;
}

static void close_all(struct perf *p, weft_ep_t **eps, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        started(weft_ep_close(eps[i], WEFT_CLOSE_FLUSH, &(weft_op_t){.done = on_done}), "close");
    while (in_progress > 0) perf_turn(p);
}

/* Looks that find nothing. */
static uint64_t look_in_vain(struct perf *p) {
    uint64_t n = 0, at = perf_now(), end = at + (uint64_t)(p->options.seconds * 1e9);
    while (at < end) {
        for (int i = 0; i < LOOKS; i++) weft_worker_progress(p->worker, 0);
        uint64_t now = perf_now();
        histogram_add(&p->histogram, (double)(now - at) / LOOKS, LOOKS);
        n += LOOKS;
        at = now;
    }
    return n;
}

static void note_holdings(struct perf_result *r, uint64_t n, uint64_t n_targets, double wall,
                          struct holdings mine, struct holdings theirs) {
    perf_note(r, "endpoints", (double)n);
    perf_note(r, "links", (double)n_targets);
    perf_note(r, "per_s", (double)n / wall);
    perf_note(r, "bytes", mine.bytes);
    perf_note(r, "peer_bytes", theirs.bytes);
    perf_note(r, "fds", mine.fds);
    perf_note(r, "peer_fds", theirs.fds);
}

static void measure_looks(struct perf *p, struct perf_result *r) {
    if (p->options.links) warm(p, PERF_MORE);
    double cpu = perf_cpu_s();
    uint64_t at = perf_now(), n = look_in_vain(p);
    perf_fill(p, 1, (double)(perf_now() - at) / 1e9, perf_cpu_s() - cpu, n, r);
}

static void open_and_measure(struct perf *p, const struct address *addresses, uint64_t n_targets,
                             weft_ep_t **eps, uint64_t n, struct perf_result *r) {
    struct holdings before = look_before();
    double cpu = perf_cpu_s();
    uint64_t at = perf_now();
    open_all(p, addresses, n_targets, eps, n);
    double wall = (double)(perf_now() - at) / 1e9, spent = perf_cpu_s() - cpu;
    struct holdings mine = per(before, n);
    note_holdings(r, n, n_targets, wall, mine, ask_holdings(p));
    histogram_clear(&p->histogram);
    if (p->options.test == TEST_POLL_COST) {
        measure_looks(p, r);
        return;
    }
    histogram_add(&p->histogram, wall * 1e9 / (double)n, n);
    perf_fill(p, 1, wall, spent, n, r);
}

static void measure_connection(struct perf *p, size_t size, struct perf_result *result_p) {
    const struct perf_options *o = &p->options;
    uint64_t n_targets = o->links ? o->links : 1, n = o->count   ? o->count
                                                      : o->links ? o->links
                                                                 : COUNT;
    weft_ep_t **eps = malloc(n * sizeof *eps);
    if (!eps) perf_die("endpoints", WEFT_ERR_NO_MEMORY);
    (void)size;
    memset(eps, 1, n * sizeof *eps); /* resident before, not because of the endpoints */
    allow_many_fds();
    if (!o->links) warm(p, PERF_BEGIN);
    struct address *addresses = ask_addresses(p, n_targets);
    open_and_measure(p, addresses, n_targets, eps, n, result_p);
    close_all(p, eps, n);
    perf_ask(p, &(struct perf_order){.command = PERF_MORE, .count = MORE_NOTHING});
    free(addresses);
    free(eps);
}

static void prepare_connection(struct perf *p) {
    targets.expected = UINT64_MAX;
    perf_must(weft_am_handler_set(p->worker, AM_FIRST, on_first, &targets), "handler");
}

extern const struct perf_family perf_connect;
const struct perf_family perf_connect = {.prepare = prepare_connection,
                                         .measure = measure_connection,
                                         .begin = begin_connection,
                                         .more = more_connection,
                                         .end = end,
                                         .turn = drive_targets};

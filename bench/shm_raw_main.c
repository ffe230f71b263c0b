/*
 * The shm transport beside a bare ring, in one run between two forked and pinned processes: what
 * its promises cost. Rounds alternate, since the machine moves its cores about; each figure is the
 * best and the median of its rounds.
 *
 *     shm_raw [ROUNDS [QUIET]]        QUIET: lanes that stand open between the two and say nothing
 */
#define _GNU_SOURCE
#include "cores.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <transports/registry.h>
#include <unistd.h>

enum { PINGS = 100000, BURST = 2000000, MAX_ROUNDS = 64, BARE_SLOTS = 256, BYTES = 1 << 28 };

static void need(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "shm_raw: %s\n", what);
    exit(1);
}

/* ---- the bare ring --------------------------------------------------------------------------- */

struct bare_slot {
    uint8_t data[48];
    uint16_t len, id;
    uint32_t pad;
    _Atomic uint64_t seq;
};
struct bare_ring {
    struct bare_slot slot[BARE_SLOTS];
    _Alignas(64) _Atomic uint64_t tail;
};
struct bare {
    struct bare_ring *tx, *rx;
    uint64_t head, next, tail_seen, got;
};
typedef void (*bare_fn)(struct bare *b, const void *data, unsigned len);
static bare_fn bare_handlers[256];
static volatile uint64_t sum;

static void bare_arrived(struct bare *b, const void *data, unsigned len) {
    b->got++;
    sum += *(const uint64_t *)data;
}

static inline int bare_send(struct bare *b, uint64_t value) {
    if (b->head - b->tail_seen >= BARE_SLOTS) {
        b->tail_seen = atomic_load_explicit(&b->tx->tail, memory_order_acquire);
        if (b->head - b->tail_seen >= BARE_SLOTS) return 0;
    }
    struct bare_slot *s = &b->tx->slot[b->head % BARE_SLOTS];
    memcpy(s->data, &value, 8);
    s->len = 8;
    s->id = 7;
    atomic_store_explicit(&s->seq, ++b->head, memory_order_release);
    return 1;
}

static inline int bare_poll(struct bare *b) {
    int n = 0;
    for (; n < 32; n++) {
        struct bare_slot *s = &b->rx->slot[b->next % BARE_SLOTS];
        if (atomic_load_explicit(&s->seq, memory_order_acquire) != b->next + 1) break;
        bare_handlers[s->id & 255](b, s->data, s->len);
        if ((++b->next & 63) == 0)
            atomic_store_explicit(&b->rx->tail, b->next, memory_order_release);
    }
    return n;
}

/* ---- the transport --------------------------------------------------------------------------- */

static struct reactor *reactor;
static struct iface *iface;
static struct lane *lane;
static uint64_t got, got_bytes;
static int opened;

static void arrived(struct lane *l, unsigned id, const void *data, size_t len) {
    got++;
    sum += *(const uint64_t *)data;
}
static uint8_t sink[512 * 1024];
static void arrived_large(struct lane *l, unsigned id, const void *data, size_t len) {
    memcpy(sink, data, len);
    got++;
    got_bytes += len;
}
static void accepted(struct lane *l, void *arg) {
    lane = l;
    opened++;
}
static void up(struct lane *l) {
    opened++;
}
static void down(struct lane *l, weft_status_t status) {
    need(status == WEFT_ERR_PEER_CLOSED, "the lane broke");
}
static void closed(struct lane *l) {
    lane = NULL;
}
static struct iface_up notified = {.accepted = accepted, .up = up, .down = down, .closed = closed};

static int progress(void) {
    return weft__reactor_progress(reactor, 0);
}

/* The last lane is the one that is measured. */
static void open_lanes(int child, int quiet) {
    if (child) {
        struct tl_listener *listener;
        need(iface->ops->listen(iface, "bench", &(struct listen_how){.backlog = 64}, NULL,
                                &listener) == WEFT_OK,
             "cannot listen");
        while (opened <= quiet) progress();
        iface->ops->listener_close(listener);
        return;
    }
    for (int i = 0; i <= quiet; i++) {
        weft_status_t st;
        while ((st = iface->ops->connect_uri(iface, "bench", &lane)) == WEFT_ERR_REFUSED)
            usleep(1000);
        need(st == WEFT_OK, "cannot connect");
        while (opened <= i) progress();
    }
}

static void open_side(int child, const char *directory, int quiet) {
    weft_context_t *context;
    weft_setting_t settings[] = {{"shm.directory", directory}};
    need(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1},
                             &context) == WEFT_OK,
         "no context");
    need(weft__reactor_create(context, &(struct reactor_params){0}, &reactor) == WEFT_OK,
         "no reactor");
    for (int i = 0; i < LANE_AM_IDS; i++) notified.am[i] = arrived;
    notified.am[1] = arrived_large;
    struct iface_params params = {.up = &notified, .worker_id = 1 + (uint64_t)child};
    need(weft__transport_shm.open(reactor, &params, &iface) == WEFT_OK, "no shm");
    open_lanes(child, quiet);
}

static inline int shm_send(uint64_t value) {
    return lane->ops->am_short(lane, 7, value, NULL, 0) == WEFT_OK;
}

/* ---- what is measured ------------------------------------------------------------------------ */

static double ping_bare(struct bare *b, int child) {
    double t0 = now_ns();
    for (int i = 0; i < PINGS; i++) {
        if (!child) bare_send(b, 1);
        while (!bare_poll(b)) {
        }
        if (child) bare_send(b, 1);
    }
    return (now_ns() - t0) / PINGS / 2;
}

static double ping_shm(int child) {
    double t0 = now_ns();
    for (int i = 0; i < PINGS; i++) {
        uint64_t before = got;
        if (!child) shm_send(1);
        while (got == before) progress();
        if (child) shm_send(1);
    }
    return (now_ns() - t0) / PINGS / 2;
}

static double rate_bare(struct bare *b, int child) {
    uint64_t want = b->got + (child ? BURST : 1);
    double t0 = now_ns();
    if (!child)
        for (int i = 0; i < BURST;) i += bare_send(b, 1);
    while (b->got < want) bare_poll(b);
    if (child) bare_send(b, 0);
    return BURST / (now_ns() - t0) * 1e3;
}

static double rate_shm(int child) {
    uint64_t want = got + (child ? BURST : 1);
    double t0 = now_ns();
    if (!child)
        for (int i = 0; i < BURST;) i += shm_send(1);
    while (got < want) progress();
    if (child) shm_send(0);
    return BURST / (now_ns() - t0) * 1e3;
}

static uint8_t source[512 * 1024];
static size_t pack(void *to, void *arg) {
    memcpy(to, source, *(size_t *)arg);
    return *(size_t *)arg;
}
static void no_completion(struct completion *c, weft_status_t status) {}

/* One way, copy in and copy out; GB/s. */
static double bandwidth(size_t size, int child) {
    uint64_t n = BYTES / size / 4, want = got + (child ? n : 1);
    double t0 = now_ns();
    for (uint64_t i = 0; !child && i < n;) {
        weft_status_t st;
        if (size <= iface->attr.max_bcopy) {
            st = lane->ops->am_bcopy(lane, 1, pack, &size);
        } else {
            struct completion done = {no_completion, 1, WEFT_OK};
            st = lane->ops->am_zcopy(
                lane, 1, &(struct lane_zcopy){NULL, 0, &(weft_iov_t){source, size}, 1}, &done);
        }
        if (st == WEFT_OK)
            i++;
        else
            need(st == WEFT_NO_RESOURCE, "send failed");
    }
    while (got < want) progress();
    if (child) shm_send(0);
    return (double)(n * size) / (now_ns() - t0);
}

static void print_figures(const char *name, double *v, int n, const char *unit,
                          int smaller_is_better) {
    sort_figures(v, (size_t)n);
    printf("%-22s best %8.1f  median %8.1f %s\n", name, v[smaller_is_better ? 0 : n - 1], v[n / 2],
           unit);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9;
    static const size_t sizes[] = {4096, 8192, 16384, 65536, 262144};
    static double figures[9][MAX_ROUNDS];
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 9;
    char directory[] = "/tmp/weft-bench-XXXXXX";
    need(mkdtemp(directory) != NULL, "no directory");
    struct bare_ring *rings = shared_memory(2 * sizeof *rings);
    for (int i = 0; i < 256; i++) bare_handlers[i] = bare_arrived;
    fail_with_children();
    int child = fork() == 0;
    if (child) prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(child);
    struct bare b = {.tx = &rings[child], .rx = &rings[!child]};
    open_side(child, directory, argc > 2 ? atoi(argv[2]) : 0);
    for (int r = 0; r < rounds; r++) {
        figures[0][r] = ping_bare(&b, child);
        figures[1][r] = ping_shm(child);
        figures[2][r] = rate_bare(&b, child);
        figures[3][r] = rate_shm(child);
        for (int s = 0; s < 5; s++) figures[4 + s][r] = bandwidth(sizes[s], child);
    }
    if (child) _exit(0);
    waitpid(-1, NULL, 0);
    rmdir(directory);
    print_figures("bare ring half rtt", figures[0], rounds, "ns", 1);
    print_figures("shm half rtt", figures[1], rounds, "ns", 1);
    print_figures("bare ring rate", figures[2], rounds, "M messages/s", 0);
    print_figures("shm rate", figures[3], rounds, "M messages/s", 0);
    for (int s = 0; s < 5; s++) {
        char name[40];
        snprintf(name, sizeof name, "shm %zu B one way", sizes[s]);
        print_figures(name, figures[4 + s], rounds, "GB/s", 0);
    }
    return 0;
}

/*
 * One-sided operations of the shm transport beside plain memory access, in one run between two
 * forked and pinned processes: what its promises cost. Rounds alternate, since the machine moves
 * its cores about; each figure is the best and the median.
 *
 *     rma_raw [ROUNDS [WHAT]]        WHAT: print only the median of that figure, as a number
 */
#define _GNU_SOURCE
#include "cores.h"
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <transports/registry.h>
#include <transports/shm/wire/key_wire.h>
#include <unistd.h>
#include <weft/memory.h>

enum { PINGS = 100000, OPS = 1000000, MAX_ROUNDS = 64, LEN = 4 << 20, BYTES = 1 << 28 };

static void need(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "rma_raw: %s\n", what);
    exit(1);
}

/* ---- the two sides: each owns one region and has a key to the other's ------------------------ */

static struct reactor *reactor;
static struct iface *iface;
static struct lane *lane;
static struct lane_key *key;
static struct region regions[2];
/* `theirs`: its address before the fork, for the plain access. */
static volatile uint64_t *mine, *theirs;

static void arrived(struct lane *l, unsigned id, const void *data, size_t len) {}
static void accepted(struct lane *l, void *arg) {
    lane = l;
}
static void up(struct lane *l) {
    lane = l;
}
static void down(struct lane *l, weft_status_t status) {
    exit(1);
}
static void closed(struct lane *l) {}
static struct iface_up notified = {.accepted = accepted, .up = up, .down = down, .closed = closed};

static void make_region(int i) {
    struct region *r = &regions[i];
    int fd = memfd_create("rma-raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    need(fd >= 0 && ftruncate(fd, LEN) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0,
         "no memory");
    *r = (struct region){
        .len = LEN, .rights = WEFT_MEM_ALL, .id = 1, .epoch = 1, .token = {(uint8_t)i}, .fd = fd};
    r->base = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    need(r->base != MAP_FAILED, "no memory");
    r->origin = (uint64_t)(uintptr_t)r->base;
    memset(r->base, 0, LEN);
}

static void open_side(int child, const char *directory) {
    weft_context_t *context;
    weft_setting_t settings[] = {{"shm.directory", directory}};
    struct iface_params params = {.up = &notified, .worker_id = 1 + (uint64_t)child};
    struct tl_listener *listener;
    struct lane *dialed;
    struct md_mem *mem;
    uint8_t packed[SHM_KEY_LEN];
    for (int i = 0; i < LANE_AM_IDS; i++) notified.am[i] = arrived;
    need(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1},
                             &context) == WEFT_OK,
         "no context");
    need(weft__reactor_create(context, &(struct reactor_params){0}, &reactor) == WEFT_OK,
         "no reactor");
    need(weft__transport_shm.open(reactor, &params, &iface) == WEFT_OK, "no shm");
    need(iface->ops->mem->mem_register(iface, &regions[child], &mem) == WEFT_OK, "not registered");
    if (child)
        need(iface->ops->listen(iface, "rma", &(struct listen_how){.backlog = 4}, NULL,
                                &listener) == WEFT_OK,
             "cannot listen");
    while (!child && iface->ops->connect_uri(iface, "rma", &dialed) != WEFT_OK) usleep(1000);
    while (!lane) weft__reactor_progress(reactor, 0);
    const struct region *r = &regions[!child];
    struct remote_region remote = {
        (uint64_t)(uintptr_t)r->base, LEN, r->rights, r->id, r->epoch, {0}};
    memcpy(remote.token, r->token, sizeof remote.token);
    weft__shm_key_encode(SHM_WAYS, packed);
    need(lane->ops->rma->key_open(lane, &remote, packed, sizeof packed, &key) == WEFT_OK, "no key");
    mine = regions[child].base;
    theirs = r->base;
    const uint64_t ready = 1;
    while (mine[512] == 0 || key->status != WEFT_OK) {
        weft__reactor_progress(reactor, 0);
        if (key->status == WEFT_OK)
            lane->ops->rma->put_short(lane, &ready, 8, remote.base + 4096, key);
    }
}

/* ---- what is measured ------------------------------------------------------------------------ */

/*
 * Each word is written by one side and read by the other; numbers go on growing from round to
 * round.
 */
static uint64_t number;

static double ping(int child, int plain) {
    double t0 = now_ns();
    uint64_t remote = key->region.base;
    for (int i = 0; i < PINGS; i++) {
        number++;
        if (child)
            while (*mine != number) {
            }
        if (plain)
            *theirs = number;
        else
            lane->ops->rma->put_short(lane, &number, 8, remote, key);
        if (!child)
            while (*mine != number) {
            }
    }
    return (now_ns() - t0) / PINGS / 2;
}

/* The child waits for a word of the parent's. */
static void wait_turn(int child) {
    number++;
    if (!child) *theirs = number;
    while (child && *mine < number) usleep(100);
}

static uint64_t sum;
static double gets(int plain) {
    uint64_t remote = key->region.base + 8192, word;
    struct rma_piece piece = {&word, 8, 0, 1, NULL};
    double t0 = now_ns();
    for (int i = 0; i < OPS; i++) {
        if (plain)
            word = theirs[1024];
        else
            lane->ops->rma->get_zcopy(lane, &piece, 1, remote, key, NULL);
        sum += word;
    }
    return (now_ns() - t0) / OPS;
}

static double adds(int plain) {
    uint64_t remote = key->region.base + 16384, old = 0;
    double t0 = now_ns();
    for (int i = 0; i < OPS; i++) {
        if (plain)
            old = __atomic_fetch_add(&theirs[2048], 1, __ATOMIC_SEQ_CST);
        else
            lane->ops->rma->atomic_fetch(lane, &(struct lane_atomic){RMA_ADD, 8, 1, 0, remote},
                                         &old, key, NULL);
        sum += old;
    }
    return (now_ns() - t0) / OPS;
}

static uint8_t source[1 << 20];
static double stream(size_t size, int plain) {
    struct rma_piece piece = {source, size, 0, 1, NULL};
    double t0 = now_ns();
    for (size_t i = 0; i < BYTES / size; i++) {
        if (plain)
            memcpy((void *)theirs, source, size);
        else
            lane->ops->rma->put_zcopy(lane, &piece, 1, key->region.base, key, NULL);
        __asm__ volatile("" ::: "memory");
    }
    return BYTES / (now_ns() - t0);
}

static const struct {
    const char *name, *unit;
    int larger_is_better;
} figure[] = {{"put_plain", "ns half round trip", 0},
              {"put", "ns half round trip", 0},
              {"get_plain", "ns", 0},
              {"get", "ns", 0},
              {"add_plain", "ns", 0},
              {"add", "ns", 0},
              {"copy_64k", "GB/s", 1},
              {"put_64k", "GB/s", 1},
              {"copy_1m", "GB/s", 1},
              {"put_1m", "GB/s", 1}};
enum { FIGURES = sizeof figure / sizeof *figure };

static void measure(int child, double *to) {
    to[0] = ping(child, 1);
    to[1] = ping(child, 0);
    for (int i = 2; !child && i < FIGURES; i++) {
        int plain = i % 2 == 0;
        to[i] = i < 4   ? gets(plain)
                : i < 6 ? adds(plain)
                        : stream(i < 8 ? 64 << 10 : 1 << 20, plain);
    }
    wait_turn(child);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 9, wanted = -1;
    static double figures[MAX_ROUNDS][FIGURES];
    char directory[] = "/tmp/weft-bench-XXXXXX", path[64];
    if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 9;
    for (int i = 0; argc > 2 && i < FIGURES; i++)
        if (strcmp(argv[2], figure[i].name) == 0) wanted = i;
    need(argc <= 2 || wanted >= 0, "no such figure");
    need(mkdtemp(directory) != NULL, "no directory");
    make_region(0);
    make_region(1);
    memset(source, 1, sizeof source);
    fail_with_children();
    int child = fork() == 0;
    if (child) prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(child);
    open_side(child, directory);
    for (int r = 0; r < rounds; r++) measure(child, figures[r]);
    if (child) _exit(0);
    waitpid(-1, NULL, 0);
    snprintf(path, sizeof path, "%s/rma", directory);
    unlink(path);
    rmdir(directory);
    for (int i = 0; i < FIGURES; i++) {
        double v[MAX_ROUNDS];
        for (int r = 0; r < rounds; r++) v[r] = figures[r][i];
        sort_figures(v, (size_t)rounds);
        double best = v[figure[i].larger_is_better ? rounds - 1 : 0], median = v[rounds / 2];
        if (wanted == i) printf("%.3f\n", median);
        if (wanted < 0)
            printf("%-10s best %8.1f  median %8.1f %s\n", figure[i].name, best, median,
                   figure[i].unit);
    }
    return 0;
}

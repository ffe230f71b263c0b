/* Measures copies and transports, and reads and writes the file of measured values. */
#define _GNU_SOURCE
#include "calibrate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <transports/vm_speed.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint64_t value;
    const char *unit, *help;
} table[N_CALIBRATIONS] = {
#define ROW(id, name, value, unit, help) [CALIBRATE_##id] = {name, value, unit, help},
    CALIBRATION(ROW)
#undef ROW
};

const char *weft__calibration_name(unsigned id, const char **unit_p, const char **help_p) {
    *unit_p = table[id].unit;
    *help_p = table[id].help;
    return table[id].name;
}

static void built_in(struct calibration *c) {
    for (unsigned i = 0; i < N_CALIBRATIONS; i++) c->value[i] = table[i].value;
    c->origin = CALIBRATION_BUILT_IN;
}

/* Between the sizes that were measured, in a straight line; beyond them, at the last rate. */
double weft__calibration_copy_ns(const struct calibration *c, double len) {
    static const double size[] = {4096, 65536, 1048576, 4194304};
    double below_size = 0, below_ns = 0;
    for (unsigned i = 0; i <= CALIBRATE_COPY_4M; i++) {
        double ns = size[i] * 1e9 / (double)c->value[i];
        if (len <= size[i])
            return below_ns + (ns - below_ns) * (len - below_size) / (size[i] - below_size);
        below_size = size[i];
        below_ns = ns;
    }
    return len * 1e9 / (double)c->value[CALIBRATE_COPY_4M];
}

/* ---- measuring: the best of a few, since whatever disturbs makes it slower ------------------- */

enum { LARGEST = 4 << 20, ROUNDS = 3, TRIES = 5 };

/*
 * The machine was disturbed for all rounds of one figure, and not for those of another: a copy of
 * fewer bytes is not that much slower, and loopback copies what shared memory copies once or more.
 * By such figures loopback would be cheaper than shared memory.
 */
static bool is_contradictory(const struct calibration *c) {
    const uint64_t *value = c->value, shm = value[CALIBRATE_SHM_BANDWIDTH];
    for (unsigned i = CALIBRATE_COPY_4K; i < CALIBRATE_COPY_4M; i++)
        if (value[i] < value[i + 1] / 4) return true;
    return shm && shm < value[CALIBRATE_TCP_BANDWIDTH];
}

struct bench {
    char *from, *to;
    size_t len;
};

static void copy_once(const struct bench *b) {
    memcpy(b->to, b->from, b->len);
    __asm__ volatile("" ::"r"(b->to) : "memory");
}

static void enter_kernel_once(const struct bench *b) {
    (void)b;
    (void)syscall(SYS_getppid);
}

/* Nanoseconds of one, never 0. */
static double fastest(void (*once)(const struct bench *), const struct bench *b, unsigned times) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t begin = weft__real_now();
        for (unsigned k = 0; k < times; k++) once(b);
        uint64_t took = weft__real_now() - begin;
        if (took < best) best = took;
    }
    return best ? (double)best / times : 1.0 / times;
}

static uint64_t rate(void (*once)(const struct bench *), struct bench b, size_t len,
                     unsigned times) {
    b.len = len;
    return (uint64_t)((double)len * 1e9 / fastest(once, &b, times));
}

static uint64_t vm_rate(void) {
    uint32_t ns = weft__vm_speed().read_ns;
    return ns ? VM_SPEED_BYTES * NS_PER_S / ns : 0;
}

/* The memory is mapped and unmapped: through the heap it would change what malloc does with
 * large blocks from then on. */
static bool measure_copies(struct calibration *c) {
    size_t size = (size_t)2 * LARGEST;
    char *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return false;
    struct bench b = {memory, memory + LARGEST, LARGEST};
    c->value[CALIBRATE_COPY_4M] = rate(copy_once, b, 4 << 20, 1);
    c->value[CALIBRATE_COPY_1M] = rate(copy_once, b, 1 << 20, 2);
    c->value[CALIBRATE_COPY_64K] = rate(copy_once, b, 64 << 10, 16);
    c->value[CALIBRATE_COPY_4K] = rate(copy_once, b, 4 << 10, 64);
    c->value[CALIBRATE_SYSCALL] = (uint64_t)(1000 * fastest(enter_kernel_once, &b, 64));
    c->value[CALIBRATE_VM_READ] = vm_rate();
    munmap(memory, size);
    return true;
}

/* Where the machine does not come to rest, what is built in is nearer, and the next process
 * measures. */
static bool measure_calibration(struct calibration *c) {
    struct calibration found = {.origin = CALIBRATION_MEASURED};
    for (unsigned i = 0; i < TRIES; i++) {
        if (!measure_copies(&found)) return false;
        if (is_contradictory(&found)) continue;
        *c = found;
        return true;
    }
    return false;
}

/* ---- the file's text ------------------------------------------------------------------------- */

static const char magic[] = "weft-calibration 2\n";

/* The text after "model name : " of the first processor, or nothing. */
static void cpu_model(char *to, size_t size) {
    char text[1024];
    int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    const char *at = strstr(text, "model name");
    at = at ? strchr(at, ':') : NULL;
    if (at) at += 1 + strspn(at + 1, " \t");
    snprintf(to, size, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
}

/* For which machine and library the values are: lines of the file. */
static void file_key(char key[CALIBRATION_KEY]) {
    struct utsname name;
    char cpu[64];
    cpu_model(cpu, sizeof cpu);
    if (uname(&name) < 0) name.release[0] = 0;
    snprintf(key, CALIBRATION_KEY, "cpu %s\nkernel %s\nversion %s\n", cpu, name.release,
             weft_version());
}

size_t weft__calibration_write(const struct calibration *c, const char *key,
                               char text[CALIBRATION_FILE_MAX]) {
    size_t len = (size_t)snprintf(text, CALIBRATION_FILE_MAX, "%s%s", magic, key);
    for (unsigned i = 0; i < N_CALIBRATIONS; i++)
        len += (size_t)snprintf(text + len, CALIBRATION_FILE_MAX - len, "%s %llu\n", table[i].name,
                                (unsigned long long)c->value[i]);
    return len;
}

/* Takes `what` off the front of the text. */
static bool take_calibration(const char **at, const char *end, const char *what) {
    size_t n = strlen(what);
    if ((size_t)(end - *at) < n || memcmp(*at, what, n) != 0) return false;
    *at += n;
    return true;
}

/* At most 15 digits: a number that doubles hold, and that is no more than a petabyte a second. */
static bool take_number(const char **at, const char *end, uint64_t *value_p) {
    const char *begin = *at;
    uint64_t value = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - begin < 15)
        value = value * 10 + (uint64_t)(*(*at)++ - '0');
    *value_p = value;
    return *at > begin;
}

bool weft__calibration_read(const char *text, size_t len, const char *key, struct calibration *c) {
    const char *at = text, *end = text + len;
    struct calibration found = {.origin = CALIBRATION_FILE};
    if (!take_calibration(&at, end, magic) || !take_calibration(&at, end, key)) return false;
    for (unsigned i = 0; i < N_CALIBRATIONS; i++) {
        if (!take_calibration(&at, end, table[i].name) || !take_calibration(&at, end, " ") ||
            !take_number(&at, end, &found.value[i]) || !take_calibration(&at, end, "\n"))
            return false;
        if (found.value[i] == 0 && i < CALIBRATE_VM_READ) return false;
    }
    if (at != end || is_contradictory(&found)) return false;
    *c = found;
    return true;
}

/* ---- the file -------------------------------------------------------------------------------- */

enum { PATH_MAX_LEN = 1024 };

/* "$XDG_CACHE_HOME/weft/calibration", and its folders. False: there is no such place. */
static bool own_path(char path[PATH_MAX_LEN]) {
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = -1;
    if (cache && *cache == '/')
        n = snprintf(path, PATH_MAX_LEN, "%s", cache);
    else if (home && *home == '/')
        n = snprintf(path, PATH_MAX_LEN, "%s/.cache", home);
    if (n < 0 || n > PATH_MAX_LEN - 64) return false;
    (void)mkdir(path, 0700); /* what cannot be made is noticed when the file is */
    strcat(path, "/weft");
    (void)mkdir(path, 0700);
    strcat(path, "/calibration");
    return true;
}

/* True if only this user can write the file: figures of another user are not trusted. */
static size_t load_calibration(const char *path, char text[CALIBRATION_FILE_MAX]) {
    struct stat st;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        !(st.st_mode & (S_IWGRP | S_IWOTH)))
        n = read(fd, text, CALIBRATION_FILE_MAX);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* A file that is there is replaced only if it is a calibration of ours, of whatever version or
 * machine. */
static bool may_replace(const char *path) {
    char text[CALIBRATION_FILE_MAX];
    struct stat st;
    size_t name = strcspn(magic, " ");
    if (lstat(path, &st) < 0) return errno == ENOENT;
    return load_calibration(path, text) > name && memcmp(text, magic, name) == 0;
}

/* All of it or nothing: under another name first. */
static void store(const char *path, const char *text, size_t len) {
    char draft[PATH_MAX_LEN + 32];
    if (!may_replace(path)) return;
    snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid());
    int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    bool whole = write(fd, text, len) == (ssize_t)len && fsync(fd) == 0;
    whole = close(fd) == 0 && whole;
    if (!whole || rename(draft, path) < 0) unlink(draft);
}

/* ---- what this process knows ----------------------------------------------------------------- */

/* One thread at a time fills it in; a thread that finds it in hand measures for itself. */
static struct calibration known;
enum { NOTHING, IN_HAND, THERE };
static _Atomic int known_state = NOTHING;

static bool take_known(int *was_p) {
    *was_p = atomic_load_explicit(&known_state, memory_order_relaxed);
    return *was_p != IN_HAND &&
           atomic_compare_exchange_strong_explicit(&known_state, was_p, IN_HAND,
                                                   memory_order_acquire, memory_order_relaxed);
}

static void leave_known(int state) {
    atomic_store_explicit(&known_state, state, memory_order_release);
}

static void keep_calibration(const struct calibration *c) {
    int was;
    if (!take_known(&was)) return;
    known = *c;
    leave_known(THERE);
}

static bool calibrate_recall(struct calibration *c) {
    int was;
    if (!take_known(&was)) return false;
    if (was == THERE) *c = known;
    leave_known(was);
    return was == THERE;
}

/* The file that the setting names, or NULL: there is none. */
static const char *place_of(struct reactor *r, char path[PATH_MAX_LEN]) {
    const char *setting = weft__setting_str(weft__reactor_context(r), SETTING_CALIBRATION);
    if (strcmp(setting, "auto") == 0) return own_path(path) ? path : NULL;
    return strlen(setting) < PATH_MAX_LEN ? setting : NULL;
}

static bool is_shared(struct reactor *r) {
    return strcmp(weft__setting_str(weft__reactor_context(r), SETTING_CALIBRATION), "auto") == 0;
}

static void write_down(const struct calibration *c, const char *path) {
    char text[CALIBRATION_FILE_MAX], key[CALIBRATION_KEY];
    file_key(key);
    if (path) store(path, text, weft__calibration_write(c, key, text));
}

static void find_calibration(const char *path, struct calibration *c) {
    char text[CALIBRATION_FILE_MAX], key[CALIBRATION_KEY];
    file_key(key);
    size_t len = path ? load_calibration(path, text) : 0;
    if (len && weft__calibration_read(text, len, key, c)) return;
    if (measure_calibration(c)) write_down(c, path);
}

void weft__calibration(struct reactor *r, struct calibration *c) {
    const char *setting = weft__setting_str(weft__reactor_context(r), SETTING_CALIBRATION);
    char path[PATH_MAX_LEN];
    built_in(c);
    if (strcmp(setting, "off") == 0 || weft__reactor_virtual(r)) return;
    if (is_shared(r) && calibrate_recall(c)) return;
    find_calibration(place_of(r, path), c);
    if (is_shared(r) && c->origin != CALIBRATION_BUILT_IN) keep_calibration(c);
}

/* ---- transports ------------------------------------------------------------------------------ */

/* What is measured of which. */
static const struct of_transport {
    const char *name;
    unsigned latency, overhead, bandwidth; /* N_CALIBRATIONS: not measured */
} of_transport[] = {
    {"shm", N_CALIBRATIONS, N_CALIBRATIONS, CALIBRATE_SHM_BANDWIDTH},
    {"tcp", CALIBRATE_TCP_LATENCY, CALIBRATE_TCP_OVERHEAD, CALIBRATE_TCP_BANDWIDTH},
};

static const struct of_transport *rows_of(const struct iface *iface) {
    for (unsigned i = 0; i < sizeof of_transport / sizeof *of_transport; i++)
        if (strcmp(of_transport[i].name, iface->transport->name) == 0) return &of_transport[i];
    return NULL;
}

static void note_calibration(struct calibration *c, unsigned row, double value) {
    if (row < N_CALIBRATIONS) c->value[row] = (uint64_t)value;
}

/* Whether there is something new. */
static bool measure_transport(const struct iface *iface, struct calibration *c) {
    const struct of_transport *rows = rows_of(iface);
    struct iface_cost cost;
    if (!rows || c->value[rows->bandwidth] || !iface->transport->measure ||
        !iface->transport->measure(&cost))
        return false;
    note_calibration(c, rows->latency, cost.latency_ns * 1000);
    note_calibration(c, rows->overhead, cost.overhead_ns * 1000);
    note_calibration(c, rows->bandwidth, cost.bandwidth);
    return true;
}

/* What contradicts is measured again, here or by the next worker. */
static bool measure_transports(struct iface *const *iface, unsigned n, struct calibration *c) {
    bool news = false;
    for (unsigned tries = 0; tries < TRIES; tries++) {
        for (unsigned i = 0; i < n; i++) news |= measure_transport(iface[i], c);
        if (!is_contradictory(c)) break;
        for (unsigned i = CALIBRATE_SHM_BANDWIDTH; i < N_CALIBRATIONS; i++) c->value[i] = 0;
    }
    return news;
}

static void set_measured(const struct calibration *c, unsigned row, double unit, double *value_p) {
    if (row < N_CALIBRATIONS && c->value[row]) *value_p = (double)c->value[row] / unit;
}

static void set_attributes(const struct calibration *c, struct iface *iface) {
    const struct of_transport *rows = rows_of(iface);
    if (strcmp(iface->transport->name, "self") == 0) /* a copy, and nothing else */
        iface->attr.bandwidth = (double)c->value[CALIBRATE_COPY_64K];
    if (!rows) return;
    set_measured(c, rows->latency, 1000, &iface->attr.latency_ns);
    set_measured(c, rows->overhead, 1000, &iface->attr.overhead_ns);
    set_measured(c, rows->bandwidth, 1, &iface->attr.bandwidth);
}

void weft__calibration_transports(struct reactor *r, struct calibration *c,
                                  struct iface *const *iface, unsigned n) {
    char path[PATH_MAX_LEN];
    if (c->origin == CALIBRATION_BUILT_IN) return;
    bool news = measure_transports(iface, n, c);
    for (unsigned i = 0; i < n; i++) set_attributes(c, iface[i]);
    if (!news) return;
    write_down(c, place_of(r, path));
    if (is_shared(r)) keep_calibration(c);
}

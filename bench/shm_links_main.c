/*
 * shm_links [LINKS] [RINGS]: lanes of one worker to LINKS others. Prints what one costs in
 * processor time, in memory of its own and in pages of others that it maps, and what a look at all
 * of them costs while they are quiet, beside a look at one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <transports/registry.h>
#include <unistd.h>

enum { MOST = 4096, ADDRESS = 96, LOOKS = 20000, BURSTS = 500, AT_ONCE = 16 };

static unsigned n_up, n_got;

static void on_am(struct lane *lane, unsigned id, const void *data, size_t len) {
    n_got++;
}
static void on_accepted(struct lane *lane, void *arg) {}
static void on_up(struct lane *lane) {
    n_up++;
}
static void on_down(struct lane *lane, weft_status_t status) {
    lane->ops->close(lane, false);
}
static void on_closed(struct lane *lane) {}

static struct iface_up notified = {
    .accepted = on_accepted, .up = on_up, .down = on_down, .closed = on_closed};

static void die(const char *what) {
    fprintf(stderr, "shm_links: %s\n", what);
    exit(1);
}

static struct iface *open_worker(weft_context_t *context, uint64_t id, struct reactor **r_p) {
    struct iface *iface = NULL;
    if (weft__reactor_create(context, &(struct reactor_params){.max_fds = 64}, r_p) < 0 ||
        weft__transport_shm.open(*r_p, &(struct iface_params){.up = &notified, .worker_id = id},
                                 &iface) < 0)
        die("no worker");
    return iface;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long status_kb(const char *name) {
    char line[200];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) kb = atol(line + strlen(name) + 1);
    if (f) fclose(f);
    return kb;
}

struct address {
    size_t len;
    uint8_t bytes[ADDRESS];
};

static struct address address_of(struct iface *iface) {
    struct address a = {.len = ADDRESS};
    if (iface->ops->address(iface, a.bytes, &a.len) < 0) die("no address");
    return a;
}

static void send_first(struct lane *lane, struct reactor *r) {
    while (lane->ops->am_short(lane, 1, 1, "hello", 5) != WEFT_OK) weft__reactor_progress(r, 0);
}

static void turn(struct reactor *r, struct reactor **others, unsigned n) {
    weft__reactor_progress(r, 0);
    for (unsigned i = 0; i < n; i++) weft__reactor_progress(others[i], 0);
}

/*
 * Both ends in this process, so that neither waits for the scheduler: processor time of one link.
 */
static void time_links(weft_context_t *context, unsigned n) {
    struct reactor *r, **theirs = calloc(n, sizeof *theirs);
    struct iface *iface = open_worker(context, 1, &r);
    struct address *addresses = calloc(n, sizeof *addresses);
    for (unsigned i = 0; i < n; i++)
        addresses[i] = address_of(open_worker(context, 0x1000 + i, &theirs[i]));
    double began = cpu();
    for (unsigned first = 0; first < n; first += AT_ONCE) {
        struct lane *lanes[AT_ONCE];
        unsigned some = n - first < AT_ONCE ? n - first : AT_ONCE;
        for (unsigned i = 0; i < some; i++) {
            struct address *a = &addresses[first + i];
            if (iface->ops->connect(iface, a->bytes, a->len, &lanes[i]) < 0) die("no lane");
        }
        while (n_up < first + some) turn(r, theirs + first, some);
        for (unsigned i = 0; i < some; i++) send_first(lanes[i], r);
        while (n_got < first + some) turn(r, theirs + first, some);
    }
    printf("%u links, each with a first message: %.1f us of processor time each, both sides "
           "together\n",
           n, (cpu() - began) * 1e6 / n);
    fflush(stdout);
    _exit(0);
}

/* The other process: its workers in turn, each until its message is there; ends with the pipe. */
static void answer(weft_context_t *context, unsigned n, int to, int from) {
    static struct reactor *reactors[MOST];
    for (unsigned i = 0; i < n; i++) {
        struct address address = address_of(open_worker(context, 0x1000 + i, &reactors[i]));
        if (write(to, &address, sizeof address) < 0) _exit(1);
    }
    for (unsigned which; read(from, &which, sizeof which) == sizeof which;) {
        for (unsigned got = n_got; n_got == got;) weft__reactor_progress(reactors[which], 0);
        if (write(to, &which, sizeof which) < 0) _exit(1);
    }
    _exit(0);
}

static double look_ns(struct reactor *r) {
    double best = 1e9;
    for (int k = 0; k < BURSTS; k++) { /* the best: others use this machine, too */
        double began = now();
        for (int i = 0; i < LOOKS; i++) weft__reactor_progress(r, 0);
        double ns = (now() - began) * 1e9 / LOOKS;
        if (ns < best) best = ns;
    }
    return best;
}

/*
 * The other ends in a process of their own: what a link takes here, and what a look costs while all
 * are quiet.
 */
static void weigh_links(weft_context_t *context, unsigned n, int to, int from) {
    static struct address addresses[MOST];
    struct reactor *r;
    struct iface *iface = open_worker(context, 1, &r);
    long anon = 0, shared = 0;
    double one = 0;
    for (unsigned i = 0; i < n; i++)
        if (read(from, &addresses[i], sizeof *addresses) != sizeof *addresses) die("it is gone");
    for (unsigned i = 0, done; i < n; i++) {
        struct lane *lane;
        if (i == 1) {
            one = look_ns(r);
            anon = status_kb("RssAnon");
            shared = status_kb("RssShmem");
        }
        if (iface->ops->connect(iface, addresses[i].bytes, addresses[i].len, &lane) < 0)
            die("no lane");
        if (write(to, &i, sizeof i) < 0) die("it is gone");
        while (n_up <= i) weft__reactor_progress(r, 0);
        send_first(lane, r);
        if (read(from, &done, sizeof done) != sizeof done) die("it is gone");
    }
    printf("%u links: %.0f B each, and %.0f B of the others' pages mapped; a look at one %.1f ns, "
           "at all %.1f ns\n",
           n, (double)(status_kb("RssAnon") - anon) * 1024 / (n - 1),
           (double)(status_kb("RssShmem") - shared) * 1024 / (n - 1), one, look_ns(r));
}

int main(int argc, char **argv) {
    unsigned n = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    weft_setting_t settings[] = {{"shm.rings", argc > 2 ? argv[2] : "0"}, {"shm.copy", "staged"}};
    weft_context_t *context;
    struct rlimit fds;
    int to[2], from[2];
    if (n > MOST || n < 2) die("2 to 4096 links");
    getrlimit(RLIMIT_NOFILE, &fds);
    fds.rlim_cur = fds.rlim_max;
    setrlimit(RLIMIT_NOFILE, &fds);
    for (unsigned i = 0; i < LANE_AM_IDS; i++) notified.am[i] = on_am;
    if (pipe(to) < 0 || pipe(from) < 0) die("no pipe");
    if (weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                            &context) < 0)
        die("no context");
    pid_t pid = fork();
    if (pid == 0) time_links(context, n);
    waitpid(pid, NULL, 0);
    pid = fork();
    if (pid == 0) {
        close(to[1]);
        close(from[0]);
        answer(context, n, from[1], to[0]);
    }
    close(to[0]);
    close(from[1]);
    weigh_links(context, n, to[1], from[0]);
    fflush(stdout);
    close(to[1]);
    waitpid(pid, NULL, 0);
    _exit(0); /* none of it was closed */
}

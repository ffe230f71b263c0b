/*
 * UCX's endpoints: how fast they open with a first message each, what memory and descriptors they
 * take on either side, and what a look costs while they are quiet. Over the transports that UCX_TLS
 * says.
 *
 *     ucx_endpoints COUNT [LINKS]
 *
 * COUNT endpoints lead to one worker of another process; with LINKS, to as many workers there.
 * Prints name TAB value TAB unit.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { FIRST = 1, MOST_ADDRESS = 4096, LOOKS = 200000, READY_AT_ONCE = 64 };

struct address {
    size_t len;
    char bytes[MOST_ADDRESS];
};
/* What the two processes send each other. */
struct copy_ctl {
    volatile int ready, done;
    volatile long received;
    double bytes, fds; /* of the side that answers, for all */
    struct address addresses[];
};
static struct copy_ctl *copy_ctl;

static void die(const char *what, ucs_status_t status) {
    fprintf(stderr, "ucx_endpoints: %s: %s\n", what, ucs_status_string(status));
    exit(1);
}
static void must(ucs_status_t status, const char *what) {
    if (status != UCS_OK) die(what, status);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pin(int place) {
    cpu_set_t allowed, chosen;
    sched_getaffinity(0, sizeof allowed, &allowed);
    CPU_ZERO(&chosen);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && place-- == 0) CPU_SET(core, &chosen);
    sched_setaffinity(0, sizeof chosen, &chosen);
}

static double resident(void) {
    unsigned long total = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu %lu", &total, &pages) != 2) exit(1);
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double descriptors(void) {
    double n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* The first look takes pages of the C library for itself, so it does not count. */
static void look_once(void) {
    resident();
    descriptors();
}

static ucp_context_h make_context(void) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    ucp_config_t *config;
    ucp_context_h context;
    must(ucp_config_read(NULL, NULL, &config), "configuration");
    must(ucp_init(&params, config, &context), "context");
    ucp_config_release(config);
    return context;
}

static ucs_status_t on_first(void *arg, const void *header, size_t header_len, void *data,
                             size_t len, const ucp_am_recv_param_t *param) {
    (void)arg, (void)header, (void)header_len, (void)data, (void)len, (void)param;
    copy_ctl->received++;
    return UCS_OK;
}

static ucp_worker_h make_worker(ucp_context_h context) {
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = FIRST,
                                      .cb = on_first};
    ucp_worker_h worker;
    must(ucp_worker_create(context, &params, &worker), "worker");
    must(ucp_worker_set_am_recv_handler(worker, &handler), "handler");
    return worker;
}

/* ---- answering ------------------------------------------------------------------------------- */

static void publish(ucp_worker_h worker, struct address *to) {
    ucp_address_t *address;
    size_t len;
    must(ucp_worker_get_address(worker, &address, &len), "address");
    if (len > sizeof to->bytes) die("address", UCS_ERR_BUFFER_TOO_SMALL);
    memcpy(to->bytes, address, len);
    to->len = len;
    ucp_worker_release_address(worker, address);
}

/* Quiet as it was, or once more. */
static void arm(ucp_worker_h worker) {
    do {
        while (ucp_worker_progress(worker)) {
        }
    } while (ucp_worker_arm(worker) == UCS_ERR_BUSY);
}

/* One is polled; of several, each whose descriptor says so takes its turn. */
static void serve(ucp_worker_h *workers, long n) {
    struct epoll_event ready[READY_AT_ONCE];
    int epoll = epoll_create1(0);
    for (long i = 0; n > 1 && i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)i};
        int fd;
        must(ucp_worker_get_efd(workers[i], &fd), "descriptor");
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll", UCS_ERR_IO_ERROR);
        arm(workers[i]);
    }
    look_once();
    double bytes = resident(), fds = descriptors();
    copy_ctl->ready = 1;
    while (!copy_ctl->done) {
        if (n == 1) {
            ucp_worker_progress(workers[0]);
            continue;
        }
        int n_ready = epoll_wait(epoll, ready, READY_AT_ONCE, 0);
        for (int i = 0; i < n_ready; i++) arm(workers[ready[i].data.u64]);
    }
    copy_ctl->bytes = resident() - bytes;
    copy_ctl->fds = descriptors() - fds;
    copy_ctl->ready = 2;
}

static void answer(long links) {
    pin(0);
    ucp_context_h context = make_context();
    ucp_worker_h *workers = calloc((size_t)links, sizeof *workers);
    if (!workers) exit(1);
    for (long i = 0; i < links; i++) {
        workers[i] = make_worker(context);
        publish(workers[i], &copy_ctl->addresses[i]);
    }
    serve(workers, links);
    _exit(0);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void complete(ucp_worker_h worker, void *request) {
    if (!request) return;
    if (UCS_PTR_IS_ERR(request)) die("request", UCS_PTR_STATUS(request));
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
    must(ucp_request_check_status(request), "request");
    ucp_request_free(request);
}

static void open_all(ucp_worker_h worker, ucp_ep_h *eps, const struct address *addresses, long n,
                     long links) {
    ucp_request_param_t param = {0};
    for (long i = 0; i < n; i++) {
        ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (const void *)addresses[i % links].bytes};
        must(ucp_ep_create(worker, &ep, &eps[i]), "endpoint");
        ucp_worker_progress(worker);
    }
    for (long i = 0; i < n; i++)
        complete(worker, ucp_am_send_nbx(eps[i], FIRST, NULL, 0, "12345678", 8, &param));
    for (long i = 0; i < n; i++) complete(worker, ucp_ep_flush_nbx(eps[i], &param));
    while (copy_ctl->received < n) ucp_worker_progress(worker);
}

static void ask(long n, long links) {
    pin(1);
    ucp_worker_h worker = make_worker(make_context());
    ucp_ep_h *eps = malloc((size_t)n * sizeof(ucp_ep_h)), first;
    if (!eps) exit(1);
    memset(eps, 1, (size_t)n * sizeof(ucp_ep_h));
    while (!copy_ctl->ready) {
    }
    /*
     * The connection as such is not what an endpoint costs, nor what the first of many brings with
     * it what a link does.
     */
    open_all(worker, &first, copy_ctl->addresses + (links > 1 ? links : 0), 1, 1);
    copy_ctl->received = 0;
    look_once();
    double bytes = resident(), fds = descriptors(), begin = now_s();
    open_all(worker, eps, copy_ctl->addresses, n, links);
    double wall = now_s() - begin;
    bytes = resident() - bytes;
    fds = descriptors() - fds;
    begin = now_s();
    for (int i = 0; i < LOOKS; i++) ucp_worker_progress(worker);
    double look = (now_s() - begin) / LOOKS;
    copy_ctl->done = 1;
    while (copy_ctl->ready != 2) {
    }
    printf(
        "per_s\t%.6g\t1/"
        "s\nbytes\t%.6g\tB\npeer_bytes\t%.6g\tB\nfds\t%.4g\t-\npeer_fds\t%.4g\t-\nlook\t%.5g\tus\n",
        (double)n / wall, bytes / (double)n, copy_ctl->bytes / (double)n, fds / (double)n,
        copy_ctl->fds / (double)n, look * 1e6);
    fflush(stdout);
}

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 5000, links = argc > 2 ? atol(argv[2]) : 1;
    struct rlimit limit;
    if (n < 1 || links < 1) {
        fprintf(stderr, "ucx_endpoints COUNT [LINKS]\n");
        return 2;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    long targets = links > 1 ? links + 1 : 1; /* one for the link that is there before */
    copy_ctl = mmap(NULL, sizeof *copy_ctl + (size_t)targets * sizeof(struct address),
                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (copy_ctl == MAP_FAILED) return 1;
    pid_t child = fork();
    if (child == 0) answer(targets);
    ask(n, links);
    waitpid(child, NULL, 0);
    _exit(0); /* thousands of endpoints are not closed one by one */
}

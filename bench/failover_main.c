/*
 * How long traffic stands still when a connection is killed under an endpoint that survives it: two
 * workers in one process, turned one after the other, messages of 32 bytes without a pause over tcp
 * on loopback. Both ends of the connection are reset; the time is that from the reset to the first
 * message that comes by the next one.
 *
 *     failover [KILLS]
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <weft/weft.h>

enum { BYTES = 32, WINDOW = 64, MOST = 100000 };

static weft_worker_t *a, *b;
static weft_ep_t *ep;
static uint64_t sent, came, wrong;

static void must(weft_status_t st, const char *what) {
    if (st >= 0) return;
    fprintf(stderr, "failover: %s: %s\n", what, weft_status_name(st));
    exit(1);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void on_message(weft_ep_t *from, weft_am_t *am, void *arg) {
    uint64_t number = 0;
    memcpy(&number, am->header, am->header_len < sizeof number ? am->header_len : sizeof number);
    wrong += number != came++;
}
static void on_error(weft_ep_t *lost, weft_status_t status, void *arg) {
    must(status < 0 ? status : WEFT_ERR_INTERNAL, "endpoint");
}

static void turn(void) {
    static char bytes[BYTES];
    while (sent - came < WINDOW && weft_am_send(ep, 1, &sent, sizeof sent,
                                                &(weft_iov_t){bytes, sizeof bytes}, 1, NULL) >= 0)
        sent++;
    weft_worker_progress(a, 0);
    weft_worker_progress(b, 0);
}

/* Connected sockets of this process: both ends of the one connection. */
static void kill_both(void) {
    struct sockaddr noop = {.sa_family = AF_UNSPEC};
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        struct sockaddr_storage at = {0};
        socklen_t len = sizeof at;
        int fd = atoi(e->d_name);
        if (getpeername(fd, (struct sockaddr *)&at, &len) == 0 && at.ss_family == AF_INET)
            (void)connect(fd, &noop, sizeof noop);
    }
    if (dir) closedir(dir);
}

/*
 * Of the messages that were under way, some may have been read already: the link has to have gone
 * on, too.
 */
static double one_kill(void) {
    uint64_t resumed = weft_worker_count(b, "lanes.resumed");
    kill_both();
    double begin = now_us();
    while (weft_worker_count(b, "lanes.resumed") == resumed) turn();
    for (uint64_t before = came; came == before;) turn();
    return now_us() - begin;
}

static int by_size(const void *x, const void *y) {
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

int main(int argc, char **argv) {
    static double took[MOST];
    int kills = argc > 1 ? atoi(argv[1]) : 300;
    if (kills < 1 || kills > MOST) return 2;
    weft_context_t *context;
    weft_listener_t *listener;
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, &(weft_worker_params_t){.transports = "tcp"}, &a), "worker");
    must(weft_worker_create(context, &(weft_worker_params_t){.transports = "tcp"}, &b), "worker");
    must(weft_am_handler_set(b, 1, on_message, NULL), "handler");
    must(weft_listen(b, "tcp://127.0.0.1:0", &(weft_listen_params_t){.on_error = on_error},
                     &listener),
         "listen");
    weft_ep_params_t params = {.on_error = on_error, .error_mode = WEFT_ERRORS_FAILOVER};
    must(weft_connect(a, weft_listener_uri(listener), &params, &ep), "connect");
    for (int i = 0; i < kills; i++) {
        for (uint64_t until = came + 1000; came < until;) turn();
        took[i] = one_kill();
    }
    while (came < sent) turn();
    qsort(took, (size_t)kills, sizeof *took, by_size);
    printf("%d kills, us until traffic moves: median %.0f, p90 %.0f, p99 %.0f, most %.0f; %llu "
           "messages, %llu wrong\n",
           kills, took[kills / 2], took[kills * 9 / 10], took[kills * 99 / 100], took[kills - 1],
           (unsigned long long)sent, (unsigned long long)wrong);
    return wrong != 0;
}

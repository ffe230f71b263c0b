/*
 * The same echo in a loop that is built on epoll, beside a timer of the program's own. Each worker
 * is an entry of the epoll, by weft/adapters/epoll.h, and leaves it when it has closed. Client and
 * server live in this process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <weft/adapters/epoll.h>
#include <weft/weft.h>

enum { QUESTION = 1, ANSWER = 2, QUESTIONS = 5, PAUSE_NS = 10000000 };
static const char question[] = "is anybody there?";

/* An entry of the epoll; without a worker it is the timer. */
struct entry {
    int epoll, fd;
    weft_worker_t *worker;
};
static struct entry timer, client, server;
static int asked, answered, failed;

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    failed = 1;
    return 0;
}

static weft_worker_t *worker_in_epoll(weft_context_t *context, int epoll, struct entry *entry) {
    if (!must(weft_worker_create(context, NULL, &entry->worker), "worker")) exit(1);
    if (weft_epoll_attach(epoll, entry->worker, entry, 0) < 0) perror("epoll"), exit(1);
    entry->epoll = epoll, entry->fd = weft_worker_fd_level(entry->worker);
    return entry->worker;
}
static void on_closed(weft_status_t status, void *arg) {
    struct entry *entry = arg; /* the descriptor is open until this returns */
    weft_epoll_detach(entry->epoll, entry->fd);
    entry->worker = NULL;
}

/* An answer is the message's header, which is copied, so there is no memory to keep. */
static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    must(weft_am_send(ep, ANSWER, am->header, am->header_len, NULL, 0, NULL), "answer");
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    failed |= am->header_len != sizeof question || memcmp(am->header, question, sizeof question);
    printf("answer: %.*s\n", (int)am->header_len, (const char *)am->header);
    if (++answered < QUESTIONS) return;
    close(timer.fd);
    must(weft_worker_close(client.worker, &(weft_op_t){.done = on_closed, .arg = &client}), "end");
    must(weft_worker_close(server.worker, &(weft_op_t){.done = on_closed, .arg = &server}), "end");
}
static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "connection");
}
/* Accepted endpoints belong to the server, which closes each one when its client is gone. */
static void on_client_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}
static void on_time(weft_ep_t *ep) {
    uint64_t times;
    if (read(timer.fd, &times, sizeof times) < 0 || asked++ == QUESTIONS) return;
    must(weft_am_send(ep, QUESTION, question, sizeof question, NULL, 0, NULL), "question");
}

int main(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct itimerspec each = {{0, PAUSE_NS}, {0, PAUSE_NS}};
    struct epoll_event at[4] = {{.events = EPOLLIN, .data.ptr = &timer}};
    weft_listen_params_t accepted = {.on_error = on_client_lost};
    weft_context_t *context;
    weft_listener_t *listener;
    weft_ep_t *ep;
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    must(weft_am_handler_set(worker_in_epoll(context, epoll, &client), ANSWER, on_answer, NULL),
         "handler");
    must(weft_am_handler_set(worker_in_epoll(context, epoll, &server), QUESTION, on_question, NULL),
         "handler");
    weft_status_t st = weft_listen(server.worker, "tcp://127.0.0.1:0", &accepted, &listener);
    if (!must(st, "listen")) return 1;
    const char *uri = weft_listener_uri(listener);
    if (!must(weft_connect(client.worker, uri, &(weft_ep_params_t){.on_error = on_lost}, &ep), uri))
        return 1;
    timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    timerfd_settime(timer.fd, 0, &each, NULL);
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer.fd, &at[0]);
    while ((client.worker || server.worker) && !failed) {
        int n = epoll_wait(epoll, at, 4, -1);
        for (int i = 0; i < n; i++) {
            struct entry *entry = at[i].data.ptr;
            if (entry == &timer)
                on_time(ep);
            else
                weft_adapter_readable(&entry->worker, 0, WEFT_ADAPTER_LOOKS);
        }
    }
    return failed || weft_context_destroy(context) < 0;
}

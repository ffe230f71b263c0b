/*
 * An echo server on the program's own libev loop. No thread; callbacks only.
 *
 *     echo-libev serve tcp://127.0.0.1:7000            until it is killed
 *     echo-libev call tcp://127.0.0.1:7000 [BYTES]     one message there and back
 *     echo-libev                                       both in one process, two workers on one loop
 */
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { QUESTION = 1, ANSWER = 2 };
static struct ev_loop *loop;
static weft_iov_t question, answer;
static int failures = 1, n_open = 2; /* until the answer is right; workers */

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    ev_break(loop, EVBREAK_ALL);
    return 0;
}
struct echo {
    weft_ep_t *ep;
    weft_iov_t iov;
    char bytes[];
};
static void on_answered(weft_status_t status, void *echo) {
    free(echo);
}
static void on_received(weft_status_t status, void *arg) {
    struct echo *echo = arg;
    weft_op_t op = {.done = on_answered, .arg = echo};
    if (status == WEFT_OK) status = weft_am_send(echo->ep, ANSWER, NULL, 0, &echo->iov, 1, &op);
    if (status != WEFT_IN_PROGRESS) free(echo);
}
/* A small payload is here. A large one waits at its sender until weft_am_recv requests it. */
static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct echo *echo = malloc(sizeof *echo + am->len);
    if (!echo) return; /* the sender of a large message gets WEFT_ERR_REJECTED */
    *echo = (struct echo){.ep = ep, .iov = {echo->bytes, am->len}};
    weft_op_t op = {.done = on_received, .arg = echo};
    weft_status_t st = weft_am_recv(am, &echo->iov, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_received(st, echo);
}
/* Accepted endpoints belong to the server, which closes each one when its client is gone. */
static void on_client_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}
static const char *serve(weft_worker_t *worker, const char *uri) {
    weft_listener_t *listener;
    weft_listen_params_t params = {.on_error = on_client_lost};
    weft_status_t st = weft_am_handler_set(worker, QUESTION, on_question, NULL);
    if (st == WEFT_OK) st = weft_listen(worker, uri, &params, &listener);
    return must(st, uri) ? weft_listener_uri(listener) : NULL;
}

static void on_answer_here(weft_status_t status, void *arg) {
    failures = !must(status, "answer") || memcmp(answer.base, question.base, question.len) != 0;
    printf("answer: %zu bytes, %s\n", answer.len, failures ? "wrong" : "as they were sent");
    ev_break(loop, EVBREAK_ALL);
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    weft_status_t st = weft_am_recv(am, &answer, 1, &(weft_op_t){.done = on_answer_here});
    if (st != WEFT_IN_PROGRESS) on_answer_here(st, NULL);
}
static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "connection");
}
static void on_asked(weft_status_t status, void *arg) {
    must(status, "question"); /* a large one may be refused, and has no answer then */
}
static int call(weft_worker_t *worker, const char *uri, size_t len) {
    weft_ep_t *ep;
    question = (weft_iov_t){malloc(len + 1), len}, answer = (weft_iov_t){malloc(len + 1), len};
    for (size_t i = 0; i < len; i++) ((char *)question.base)[i] = (char)(i * 31 % 251);
    if (!must(weft_am_handler_set(worker, ANSWER, on_answer, NULL), "handler")) return 0;
    weft_ep_params_t params = {.on_error = on_lost};
    if (!must(weft_connect(worker, uri, &params, &ep), uri)) return 0;
    weft_op_t op = {.done = on_asked};
    return must(weft_am_send(ep, QUESTION, NULL, 0, &question, 1, &op), "question");
}
static void on_closed(weft_status_t status, void *arg) {
    if (--n_open == 0) ev_break(loop, EVBREAK_ALL);
}

int main(int argc, char **argv) {
    const char *role = argc > 2 ? argv[1] : "both", *uri = argc > 2 ? argv[2] : "tcp://127.0.0.1:0";
    if (argc == 2) return fprintf(stderr, "echo-libev [serve URI | call URI [BYTES]]\n"), 2;
    weft_context_t *context;
    weft_worker_t *server, *client;
    weft_worker_params_t params = {.loop = loop = EV_DEFAULT};
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    if (!must(weft_worker_create(context, &params, &server), "server")) return 1;
    if (!must(weft_worker_create(context, &params, &client), "client")) return 1;
    if (*role != 'c' && !(uri = serve(server, uri))) return 1;
    if (*role != 'c') printf("listening at %s\n", uri), fflush(stdout);
    if (*role == 's' || call(client, uri, argc > 3 ? strtoul(argv[3], NULL, 10) : 64))
        ev_run(loop, 0);
    weft_op_t op = {.done = on_closed}; /* the peers learn that this is no failure */
    if (!must(weft_worker_close(client, &op), "client")) return 1;
    if (!must(weft_worker_close(server, &op), "server")) return 1;
    ev_run(loop, 0);
    return failures || weft_context_destroy(context) < 0;
}

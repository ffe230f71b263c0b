/*
 * An echo server on the program's own libev loop: no thread, no call of Weft's but in callbacks.
 *
 *     echo-libev serve tcp://127.0.0.1:7000      until it is killed
 *     echo-libev call tcp://127.0.0.1:7000       one message there and back
 *     echo-libev                                 both in one process, each with a worker on the same loop
 */
#include <ev.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { QUESTION = 1, ANSWER = 2 };
static const char question[] = "is anybody there?";
static struct ev_loop *loop;
static weft_worker_t *server;
static int failures = 1; /* until the answer is right */

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    ev_break(loop, EVBREAK_ALL);
    return 0;
}

/* ---- the server -------------------------------------------------------------------------------------- */

static void on_answered(weft_status_t status, void *data) {
    weft_am_release(server, data);
}

/* The payload goes back as it is, so it is kept until it has left. */
static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    const void *data;
    if (weft_am_keep(am, &data) < 0) return; /* a large one waits at its sender; returning refuses it */
    weft_iov_t iov = {(void *)data, am->len};
    weft_op_t op = {.done = on_answered, .arg = (void *)data};
    weft_status_t st = weft_am_send(ep, ANSWER, NULL, 0, &iov, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_answered(st, (void *)data);
    if (st < 0) fprintf(stderr, "answer: %s\n", weft_status_sentence(st));
}

static const char *serve(weft_context_t *context, const char *uri) {
    weft_listener_t *listener;
    weft_worker_params_t params = {.loop = loop, .name = "server"};
    if (!must(weft_worker_create(context, &params, &server), "worker")) return NULL;
    must(weft_am_handler_set(server, QUESTION, on_question, NULL), "handler");
    return must(weft_listen(server, uri, NULL, &listener), uri) ? weft_listener_uri(listener) : NULL;
}

/* ---- the client -------------------------------------------------------------------------------------- */

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    failures = am->len != sizeof question || memcmp(am->data, question, sizeof question) != 0;
    printf("answer: %.*s\n", (int)am->len, (const char *)am->data);
    ev_break(loop, EVBREAK_ALL);
}

static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "connection");
}

static int call(weft_context_t *context, const char *uri) {
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_iov_t iov = {(void *)question, sizeof question};
    weft_worker_params_t params = {.loop = loop, .name = "client"};
    if (!must(weft_worker_create(context, &params, &worker), "worker")) return 0;
    must(weft_am_handler_set(worker, ANSWER, on_answer, NULL), "handler");
    if (!must(weft_connect(worker, uri, &(weft_ep_params_t){.on_error = on_lost}, &ep), uri)) return 0;
    return must(weft_am_send(ep, QUESTION, NULL, 0, &iov, 1, NULL), "send");
}

int main(int argc, char **argv) {
    weft_context_t *context = NULL;
    const char *role = argc > 2 ? argv[1] : "both", *uri = argc > 2 ? argv[2] : "tcp://127.0.0.1:0";
    loop = EV_DEFAULT;
    must(weft_context_create(NULL, &context), "context");
    if (!context) return 1;
    if (strcmp(role, "call") != 0) {
        uri = serve(context, uri);
        if (!uri) return 1;
        printf("listening at %s\n", uri);
        fflush(stdout);
    }
    if (strcmp(role, "serve") == 0 || call(context, uri)) ev_run(loop, 0);
    return failures;
}

/*
 * The same echo inside libuv: Weft keeps a loop of its own behind one descriptor, and libuv watches that.
 * Client and server live in this process; an idle worker costs nothing, and a uv_poll is all there is to it.
 */
#include <stdio.h>
#include <string.h>
#include <uv.h>
#include <weft/weft.h>

enum { QUESTION = 1, ANSWER = 2, BUDGET = 64 };
static const char question[] = "is anybody there?";
static weft_worker_t *server;
static int failures = 1; /* until the answer is right */

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    uv_stop(uv_default_loop());
    return 0;
}

/* ---- a worker in libuv --------------------------------------------------------------------------------- */

/* What is left beyond the budget makes the descriptor readable again. */
static void on_readable(uv_poll_t *poll, int status, int events) {
    weft_worker_progress(poll->data, BUDGET);
}

static weft_worker_t *worker_in_uv(weft_context_t *context, uv_poll_t *poll) {
    weft_worker_t *worker = NULL;
    if (!must(weft_worker_create(context, NULL, &worker), "worker")) return NULL;
    int fd = weft_worker_fd(worker);
    if (!must(fd < 0 ? (weft_status_t)fd : WEFT_OK, "descriptor")) return NULL;
    uv_poll_init(uv_default_loop(), poll, fd);
    poll->data = worker;
    uv_poll_start(poll, UV_READABLE, on_readable);
    return worker;
}

/* ---- echo ------------------------------------------------------------------------------------------------ */

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
    must(st, "answer");
}

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    failures = am->len != sizeof question || memcmp(am->data, question, sizeof question) != 0;
    printf("answer: %.*s\n", (int)am->len, (const char *)am->data);
    uv_stop(uv_default_loop());
}

static void on_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "connection");
}

int main(void) {
    uv_poll_t polls[2];
    weft_context_t *context = NULL;
    weft_listener_t *listener = NULL;
    weft_ep_t *ep = NULL;
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    weft_worker_t *client = worker_in_uv(context, &polls[0]);
    server = worker_in_uv(context, &polls[1]);
    if (!server || !client) return 1;

    must(weft_am_handler_set(server, QUESTION, on_question, NULL), "handler");
    must(weft_am_handler_set(client, ANSWER, on_answer, NULL), "handler");
    if (!must(weft_listen(server, "tcp://127.0.0.1:0", NULL, &listener), "listen")) return 1;
    const char *uri = weft_listener_uri(listener);
    printf("listening at %s\n", uri);
    if (!must(weft_connect(client, uri, &(weft_ep_params_t){.on_error = on_lost}, &ep), uri)) return 1;
    weft_iov_t iov = {(void *)question, sizeof question};
    must(weft_am_send(ep, QUESTION, NULL, 0, &iov, 1, NULL), "send");

    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    for (int i = 0; i < 2; i++) uv_poll_stop(&polls[i]);
    weft_worker_destroy(client);
    weft_worker_destroy(server);
    weft_context_destroy(context);
    return failures;
}

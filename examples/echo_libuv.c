/*
 * The same echo inside libuv, which watches one descriptor of each worker, by weft/adapters/uv.h.
 * Client and server live in this process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
#include <weft/adapters/uv.h>
#include <weft/weft.h>

enum { QUESTION = 1, ANSWER = 2 };
static const char question[] = "is anybody there?";
static int failures = 1; /* until the answer is right */

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    uv_stop(uv_default_loop());
    return 0;
}

/* ---- a worker in libuv ----------------------------------------------------------------------- */

static weft_worker_t *worker_in_uv(weft_context_t *context, weft_uv_t *host) {
    weft_worker_t *worker = NULL;
    if (!must(weft_worker_create(context, NULL, &worker), "worker")) return NULL;
    int error = weft_uv_attach(host, uv_default_loop(), worker);
    if (error) fprintf(stderr, "attach: %s\n", uv_strerror(error));
    return error ? NULL : worker;
}
/* The descriptor is open until this returns. The loop ends when it has forgotten both. */
static void on_closed(weft_status_t status, void *host) {
    weft_uv_detach(host, NULL);
}

/* ---- echo ------------------------------------------------------------------------------------ */

static void on_answered(weft_status_t status, void *bytes) {
    free(bytes);
}

/* This echo takes what fits into one message; examples/echo_libev.c echoes messages of any size. */
static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    if (!am->data) return; /* the sender of a large payload now gets WEFT_ERR_REJECTED */
    weft_iov_t iov = {malloc(am->len + 1), am->len};
    if (!iov.base || weft_am_recv(am, &iov, 1, NULL)) return free(iov.base);
    weft_op_t op = {.done = on_answered, .arg = iov.base};
    weft_status_t st = weft_am_send(ep, ANSWER, NULL, 0, &iov, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_answered(st, iov.base);
    must(st, "answer");
}
/* Accepted endpoints belong to the server, which closes each one when its client is gone. */
static void on_client_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
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
    static weft_uv_t hosts[2];
    weft_context_t *context = NULL;
    weft_listener_t *listener = NULL;
    weft_ep_t *ep = NULL;
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    weft_worker_t *client = worker_in_uv(context, &hosts[0]);
    weft_worker_t *server = worker_in_uv(context, &hosts[1]);
    if (!server || !client) return 1;

    must(weft_am_handler_set(server, QUESTION, on_question, NULL), "handler");
    must(weft_am_handler_set(client, ANSWER, on_answer, NULL), "handler");
    weft_listen_params_t accepted = {.on_error = on_client_lost};
    if (!must(weft_listen(server, "tcp://127.0.0.1:0", &accepted, &listener), "listen")) return 1;
    const char *uri = weft_listener_uri(listener);
    printf("listening at %s\n", uri);
    weft_ep_params_t lost = {.on_error = on_lost};
    if (!must(weft_connect(client, uri, &lost, &ep), uri)) return 1;
    weft_iov_t iov = {(void *)question, sizeof question};
    must(weft_am_send(ep, QUESTION, NULL, 0, &iov, 1, NULL), "send");
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    for (int i = 0; i < 2; i++) {
        weft_op_t op = {.done = on_closed, .arg = &hosts[i]};
        must(weft_worker_close(hosts[i].worker, &op), "close");
    }
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    return failures || uv_loop_close(uv_default_loop()) || weft_context_destroy(context) < 0;
}

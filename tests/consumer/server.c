/*
 * A server that answers with what it was sent, and a client to ask it, in one process over loopback
 * TCP.
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

enum { ASK = 1, ANSWER = 2 };

static weft_worker_t *server;
static int answered;

static void on_answered(weft_status_t status, void *data) {
    (void)status;
    weft_am_release(server, data);
}

/* The payload goes back as it is, so it is kept until it has left. */
static void on_ask(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)arg;
    const void *data;
    if (weft_am_retain(am, &data) < 0) return;
    weft_iov_t iov = {(void *)data, am->len};
    weft_op_t op = {.done = on_answered, .arg = (void *)data};
    weft_status_t st = weft_am_send(ep, ANSWER, NULL, 0, &iov, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_answered(st, (void *)data);
    if (st < 0) fprintf(stderr, "answer: %s\n", weft_status_name(st));
}

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)ep, (void)arg;
    printf("answered: %.*s\n", (int)am->len, (const char *)am->data);
    answered = 1;
}

static int must(weft_status_t status, const char *what) {
    if (status >= 0) return 1;
    fprintf(stderr, "%s: %s\n", what, weft_status_name(status));
    return 0;
}

/* Drives both sides until the answer is there. */
static int drive(weft_worker_t *a, weft_worker_t *b) {
    for (long turns = 0; !answered && turns < 100000000; turns++) {
        weft_worker_progress(a, 64);
        weft_worker_progress(b, 64);
    }
    return answered;
}

int main(void) {
    weft_context_t *ctx;
    weft_worker_t *client;
    weft_listener_t *listener;
    weft_ep_t *ep;
    if (!must(weft_context_create(NULL, &ctx), "context")) return 1;
    if (!must(weft_worker_create(ctx, NULL, &server), "worker")) return 1;
    if (!must(weft_worker_create(ctx, NULL, &client), "worker")) return 1;
    if (!must(weft_am_handler_set(server, ASK, on_ask, NULL), "handler")) return 1;
    if (!must(weft_am_handler_set(client, ANSWER, on_answer, NULL), "handler")) return 1;

    if (!must(weft_listen(server, "tcp://127.0.0.1:0", NULL, &listener), "listen")) return 1;
    if (!must(weft_connect(client, weft_listener_uri(listener), NULL, &ep), "connect")) return 1;
    static char hello[] = "hello";
    weft_iov_t iov = {hello, strlen(hello)};
    if (!must(weft_am_send(ep, ASK, NULL, 0, &iov, 1, NULL), "ask")) return 1;
    if (!drive(server, client)) return 1;

    weft_listener_close(listener);
    weft_worker_destroy(client);
    weft_worker_destroy(server);
    return must(weft_context_destroy(ctx), "destroy") ? 0 : 1;
}

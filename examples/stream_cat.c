/*
 * Copies the standard input of one process to the standard output of another, by a stream.
 *
 *     stream-cat listen tcp://127.0.0.1:0   prints its URI on standard error, ends with its peer
 *     stream-cat tcp://127.0.0.1:40123      ends with its input, when all of it has been sent
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

static weft_worker_t *worker;
static weft_ep_t *peer;
static char input[64 * 1024];
static int sending, calling, input_over, closed, status;

static void must(weft_status_t st, const char *what) {
    char text[512];
    if (st >= 0) return;
    weft_status_describe(st, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

/* Written in place. The peer sends at most "stream.window" bytes before they are released. */
static void on_data(weft_ep_t *ep, void *arg) {
    const void *data;
    size_t len;
    while (weft_stream_take(ep, &data, &len) == WEFT_OK) {
        for (size_t at = 0; at < len;) {
            ssize_t n = write(STDOUT_FILENO, (const char *)data + at, len - at);
            if (n < 0) exit(1);
            at += (size_t)n;
        }
        weft_stream_release(worker, data);
    }
}

/* A peer that closed in good order has sent all: the rest of it is still here. */
static void on_end(weft_ep_t *ep, weft_status_t st, void *arg) {
    on_data(ep, NULL);
    if (st != WEFT_ERR_PEER_CLOSED) fprintf(stderr, "%s\n", weft_status_sentence(st));
    status = st != WEFT_ERR_PEER_CLOSED;
    closed = 1;
}
static void on_peer(weft_ep_t *ep, void *arg) {
    peer = ep;
    must(weft_stream_on_data(ep, on_data, NULL), "stream");
}
static void on_closed(weft_status_t st, void *arg) {
    must(st, "close");
    closed = 1;
}

static void on_sent(weft_status_t st, void *arg) {
    if (st != WEFT_ERR_PEER_CLOSED) must(st, "send");
    sending = 0;
}

static void read_input(void) {
    ssize_t n = read(STDIN_FILENO, input, sizeof input);
    if (n > 0) {
        weft_op_t op = {.done = on_sent};
        weft_status_t st = weft_stream_send(peer, &(weft_iov_t){input, (size_t)n}, 1, &op);
        if (!(sending = st == WEFT_IN_PROGRESS)) on_sent(st, NULL);
        return;
    }
    input_over = 1;
    if (calling)
        must(weft_ep_close(peer, WEFT_CLOSE_FLUSH, &(weft_op_t){.done = on_closed}), "close");
}

int main(int argc, char **argv) {
    weft_context_t *context;
    weft_listener_t *listener;
    if (argc < 2) return 2;
    calling = strcmp(argv[1], "listen") != 0;
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, NULL, &worker), "worker");
    if (calling) {
        weft_ep_params_t params = {.on_ready = on_peer, .on_error = on_end};
        must(weft_connect(worker, argv[1], &params, &peer), argv[1]);
    } else {
        weft_listen_params_t params = {.on_endpoint = on_peer, .on_error = on_end};
        const char *uri = argc > 2 ? argv[2] : "tcp://127.0.0.1:0";
        must(weft_listen(worker, uri, &params, &listener), uri);
        fprintf(stderr, "listening at %s\n", weft_listener_uri(listener));
    }
    while (weft_worker_progress(worker, 0), !closed) {
        int from = peer && !sending && !input_over ? STDIN_FILENO : -1;
        struct pollfd fds[2] = {{weft_worker_fd(worker), POLLIN, 0}, {from, POLLIN, 0}};
        if (poll(fds, 2, -1) > 0 && fds[1].revents) read_input();
    }
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return status;
}

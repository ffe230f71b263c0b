/*
 * An endpoint that survives its connection: WEFT_ERRORS_FAILOVER. Messages on the way when a
 * connection is cut are sent again and arrive once; the program notices nothing. Only the end of
 * the server ends the endpoint. This client then connects to the next server there, and asks again.
 *
 *     failover-echo serve URI [QUESTIONS]    dies with that question, as by SIGKILL
 *     failover-echo call URI QUESTIONS       one after the other
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

enum { QUESTION = 1, ANSWER = 2, NEXT_TRY_MS = 100, ANSWER_TIMEOUT_MS = 60000 };

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    return 0;
}

/* ---- the server: it needs no word about failover --------------------------------------------- */

static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    unsigned *left = arg;
    if (--*left == 0) _exit(1);
    weft_am_send(ep, ANSWER, am->header, am->header_len, NULL, 0, NULL);
}
static void on_client_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}
static int serve(weft_worker_t *worker, const char *uri, unsigned left) {
    weft_listener_t *listener;
    weft_listen_params_t accepted = {.on_error = on_client_lost};
    must(weft_am_handler_set(worker, QUESTION, on_question, &left), "handler");
    if (!must(weft_listen(worker, uri, &accepted, &listener), uri)) return 1;
    printf("listening at %s\n", weft_listener_uri(listener)), fflush(stdout);
    while (must(weft_worker_wait(worker, -1), "wait")) continue;
    return 1;
}

/* ---- the client ------------------------------------------------------------------------------ */

struct client {
    weft_ep_t *ep; /* NULL: the server has ended */
    uint32_t question, answers, wrong, servers_lost;
};

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct client *client = arg;
    bool right = am->header_len == sizeof client->question &&
                 memcmp(am->header, &client->question, sizeof client->question) == 0;
    client->wrong += !right;
    client->answers++;
}
static void on_server_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct client *client = arg;
    must(status, "the server is lost");
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
    client->ep = NULL;
}
static int connect_again(weft_worker_t *worker, const char *uri, struct client *client) {
    weft_ep_params_t params = {
        .error_mode = WEFT_ERRORS_FAILOVER, .on_error = on_server_lost, .arg = client};
    return must(weft_connect(worker, uri, &params, &client->ep), uri);
}
/* A question that a dying server had may be asked twice: that is for the program to know. */
static int ask(weft_worker_t *worker, const char *uri, struct client *client) {
    uint32_t had = client->answers;
    for (int tries = ANSWER_TIMEOUT_MS / NEXT_TRY_MS; tries > 0; tries--) {
        if (!client->ep && !connect_again(worker, uri, client)) return 0;
        weft_am_send(client->ep, QUESTION, &client->question, sizeof client->question, NULL, 0,
                     NULL);
        while (client->ep && client->answers == had)
            if (!must(weft_worker_wait(worker, ANSWER_TIMEOUT_MS), uri)) return 0;
        if (client->ep) return 1;
        client->servers_lost++;
        usleep(NEXT_TRY_MS * 1000); /* until there is another server */
    }
    return 0;
}
static int call(weft_worker_t *worker, const char *uri, uint32_t questions) {
    struct client client = {0};
    must(weft_am_handler_set(worker, ANSWER, on_answer, &client), "handler");
    for (; client.question < questions; client.question++)
        if (!ask(worker, uri, &client)) return 1;
    printf("%u answers, %u wrong; %llu connections survived, %u endpoints lost\n", client.answers,
           client.wrong, (unsigned long long)weft_worker_count(worker, "lanes.resumed"),
           client.servers_lost);
    if (client.wrong || client.answers != questions) return 1;
    return !must(weft_ep_close_wait(client.ep, WEFT_CLOSE_FLUSH), uri);
}

int main(int argc, char **argv) {
    weft_context_t *context;
    weft_worker_t *worker;
    if (argc < 3) return fprintf(stderr, "failover-echo serve|call URI [QUESTIONS]\n"), 2;
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    if (!must(weft_worker_create(context, NULL, &worker), "worker")) return 1;
    unsigned n = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    return *argv[1] == 's' ? serve(worker, argv[2], n) : call(worker, argv[2], n);
}

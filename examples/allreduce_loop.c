/*
 * Servers on their own libev loops that add up what they count, beside their work. Each answers how
 * many questions all of them have had. A persistent allreduce, started every 100 ms, adds it up.
 *
 *     weft-run -n 4 allreduce-loop     four servers; each prints where it listens
 *     allreduce-loop ask URI           asks one of them
 *     allreduce-loop stop URI          asks one of them to end; all end in the same round
 */
#include <ev.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>
enum { ASK = 1, ANSWER = 2, STOP = 3 };
static struct server {
    ev_timer next_round;
    weft_worker_t *worker;
    weft_listener_t *listener;
    weft_team_t *team;
    weft_coll_t *sum;
    struct counts {
        uint64_t questions, stops;
    } now, known, mine, all; /* `mine` and `all` belong to a round while it is in progress */
    int failed;
} server;

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    server.failed = 1;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
    return 0;
}

/* ---- a round --------------------------------------------------------------------------------- */
static void on_closed(weft_status_t status, void *arg) {
    must(status, "close"); /* the loop now holds nothing more, and ev_run returns */
}
static void on_sum(weft_status_t status, void *arg) {
    if (!must(status, "allreduce")) return;
    server.known = server.all;
    if (server.all.stops == 0) return ev_timer_start(EV_DEFAULT, &server.next_round);
    must(weft_coll_free(server.sum), "free"); /* all members have the same sum, and end here */
    must(weft_worker_close(server.worker, &(weft_op_t){.done = on_closed}), "close");
}
static void on_time(struct ev_loop *loop, ev_timer *timer, int events) {
    server.mine = server.now;
    weft_status_t st = weft_coll_start(server.sum, &(weft_op_t){.done = on_sum});
    if (st != WEFT_IN_PROGRESS) on_sum(st, NULL);
}
static void on_team(weft_team_t *team, weft_status_t status, void *arg) {
    weft_coll_args_t args = {.kind = WEFT_COLL_ALLREDUCE,
                             .src = &server.mine,
                             .dst = &server.all,
                             .count = sizeof server.all / sizeof(uint64_t),
                             .type = WEFT_UINT64,
                             .reduction = WEFT_SUM};
    if (!must(status, "team") || !must(weft_coll_init(team, &args, 0, &server.sum), "init")) return;
    printf("listening at %s\n", weft_listener_uri(server.listener)), fflush(stdout);
    ev_timer_init(&server.next_round, on_time, 0.1, 0);
    ev_timer_start(EV_DEFAULT, &server.next_round);
}

/* ---- the clients ----------------------------------------------------------------------------- */
static void on_ask(weft_ep_t *ep, weft_am_t *am, void *arg) {
    server.now.questions++;
    weft_am_send(ep, ANSWER, &server.known.questions, sizeof(uint64_t), NULL, 0, NULL);
}
static void on_stop(weft_ep_t *ep, weft_am_t *am, void *arg) {
    server.now.stops = 1;
}
static void on_client_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}
static void on_answer(weft_ep_t *ep, weft_am_t *am, void *answered) {
    uint64_t questions = 0;
    if (am->header_len == sizeof questions) memcpy(&questions, am->header, sizeof questions);
    printf("%llu questions to all servers\n", (unsigned long long)questions);
    *(int *)answered = 1;
}
static int be_client(weft_worker_t *worker, const char *uri, int asks) {
    weft_ep_t *ep;
    int answered = !asks;
    must(weft_am_handler_set(worker, ANSWER, on_answer, &answered), "handler");
    if (!must(weft_connect(worker, uri, NULL, &ep), uri)) return 1;
    if (!must(weft_am_send_wait(ep, asks ? ASK : STOP, NULL, 0, NULL, 0), uri)) return 1;
    while (!answered && must(weft_worker_wait(worker, 60000), uri)) continue;
    weft_status_t closed = weft_ep_close_wait(ep, WEFT_CLOSE_FLUSH);
    int ended = !asks && closed == WEFT_ERR_PEER_CLOSED; /* the server closed first */
    return !(ended || must(closed, uri)) || !answered;
}

int main(int argc, char **argv) {
    weft_context_t *context;
    weft_worker_params_t on_loop = {.loop = argc > 2 ? NULL : EV_DEFAULT};
    weft_listen_params_t accepted = {.on_error = on_client_lost};
    weft_team_params_t params = {.exchange = weft_run_exchange(), .on_ready = on_team};
    if (!must(weft_context_create(NULL, &context), "context")) return 1;
    if (!must(weft_worker_create(context, &on_loop, &server.worker), "worker")) return 1;
    if (argc > 2) return be_client(server.worker, argv[2], strcmp(argv[1], "ask") == 0);
    must(weft_am_handler_set(server.worker, ASK, on_ask, NULL), "handler");
    must(weft_am_handler_set(server.worker, STOP, on_stop, NULL), "handler");
    const char *any = "tcp://127.0.0.1:0";
    if (!must(weft_listen(server.worker, any, &accepted, &server.listener), any)) return 1;
    if (!must(weft_team_create(server.worker, &params, &server.team), "team")) return 1;
    ev_run(EV_DEFAULT, 0);
    return server.failed || !must(weft_context_destroy(context), "context");
}

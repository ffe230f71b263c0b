/* A farm by tags: the first process sends numbers to idle processes. `weft-run -n 4 farm` */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

/* A tag is a kind, and above it the number of the job. */
enum { JOB = 1, RESULT = 2, KIND = 0xff, JOBS = 1000 };
enum { DEADLINE_MS = 20000 }; /* of a peer that has died no message comes */
static weft_worker_t *worker;

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static void on_received(weft_status_t status, void *outcome) {
    *(weft_status_t *)outcome = status;
}

/* As weft_tag_recv_wait, which has no deadline: a receive belongs to no peer, so none ends it. */
static weft_status_t receive(uint64_t kind, const weft_iov_t *iov, weft_tag_info_t *info) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_op_t op = {.done = on_received, .arg = &outcome, .deadline_ms = DEADLINE_MS};
    weft_status_t status = weft_tag_recv(worker, kind, KIND, iov, 1, info, &op);
    if (status != WEFT_IN_PROGRESS) return status;
    while (outcome == WEFT_IN_PROGRESS) weft_worker_wait(worker, -1);
    return outcome;
}

/* An empty job says that there are no more. */
static void give(weft_ep_t *ep, unsigned long job) {
    weft_iov_t iov = {&job, job < JOBS ? sizeof job : 0};
    must(weft_tag_send_wait(ep, JOB | (uint64_t)job << 8, &iov, 1), "job");
}

/* Results come from any process, in any order: the mask selects the kind alone. */
static int farmer(weft_team_t *team) {
    unsigned long next = 0, square, wrong = 0;
    weft_iov_t iov = {&square, sizeof square};
    weft_tag_info_t info;
    for (uint32_t rank = 1; rank < weft_team_size(team); rank++)
        give(weft_team_ep(team, rank), next++);
    for (unsigned done = 0; done < JOBS; done++) {
        must(receive(RESULT, &iov, &info), "result");
        wrong += square != (info.tag >> 8) * (info.tag >> 8);
        give(info.ep, next++);
    }
    printf("%d squares by %u processes, %lu wrong\n", JOBS, weft_team_size(team) - 1, wrong);
    return wrong > 0;
}

static void hand(weft_team_t *team) {
    unsigned long job, square;
    weft_iov_t in = {&job, sizeof job}, out = {&square, sizeof square};
    for (weft_tag_info_t info;;) {
        must(receive(JOB, &in, &info), "job");
        if (info.len == 0) return;
        square = job * job;
        must(weft_tag_send_wait(weft_team_ep(team, 0), RESULT | (uint64_t)job << 8, &out, 1),
             "result");
    }
}

int main(void) {
    weft_context_t *context;
    weft_team_t *team;
    const weft_exchange_t *exchange = weft_run_exchange();
    if (!exchange || exchange->size < 2) {
        fprintf(stderr, "weft-run -n 2 farm, or more\n");
        return 2;
    }
    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, NULL, &worker), "worker");
    must(weft_team_create_wait(worker, exchange, &team), "team");

    int failed = 0;
    if (weft_team_rank(team) == 0)
        failed = farmer(team);
    else
        hand(team);
    must(weft_barrier_wait(team), "barrier");
    must(weft_team_close_wait(team), "close");
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return failed;
}

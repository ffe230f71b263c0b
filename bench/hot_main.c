/*
 * Many endpoints of one worker, and few lanes that are fast: the two loads by which the design of
 * UCX's dynamic transport selection was judged, between two pinned processes. Every link begins
 * over tcp; with switching on, `slots` of them may move to a shared-memory ring.
 *
 *     hot few  [SECONDS [LINKS [SLOTS [RUNS]]]]   `slots` links are busy, the others are not
 *     hot all  [SECONDS [LINKS [SLOTS [RUNS]]]]   all are alike: no link should oscillate
 *
 * Each runs with switching on and off in turn. Printed, for both: requests answered per second,
 * answers that were wrong or out of their order; and for the first: after how many ticks all busy
 * links had moved, and how many others ever did.
 */
#define _GNU_SOURCE
#include "cores.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

enum { MOST = 1024, WINDOW = 16, BYTES = 32, ASK = 1, ANSWER = 2, TICK_MS = 100, URI = 64 };

struct load {
    bool all, on;
    unsigned links, slots;
    double seconds;
};

struct shared {
    _Atomic unsigned listening;
    _Atomic bool ready;
    char uri[MOST][URI];
};

struct outcome {
    double per_second;
    uint64_t wrong, switches;
    unsigned ticks_to_all, others; /* 0: never; that were fast at any time */
    double pause_max_us;
};

static void must(weft_status_t st, const char *what) {
    if (st >= 0) return;
    fprintf(stderr, "hot: %s: %s\n", what, weft_status_name(st));
    exit(1);
}

static weft_worker_t *open_worker(const struct load *load) {
    static weft_context_t *context;
    char slots[16];
    snprintf(slots, sizeof slots, "%u", load->slots);
    const weft_setting_t settings[] = {{"lanes.switch", load->on ? "on" : "off"},
                                       {"lanes.capacity", slots},
                                       {"shm.staging", "64k"}};
    const weft_context_params_t params = {.settings = settings,
                                          .n_settings = sizeof settings / sizeof *settings};
    if (!context) must(weft_context_create(&params, &context), "context");
    weft_worker_t *worker;
    must(weft_worker_create(context, &(weft_worker_params_t){.transports = "tcp,shm"}, &worker),
         "worker");
    return worker;
}

/* ---- the side that answers: a worker for each link ------------------------------------------- */

/* The memory of a send until its answer is there: `number` is the request's, of that link. */
struct message {
    uint64_t link, number;
    char rest[BYTES - 16];
};
static struct message in_flight[MOST][WINDOW];

static void answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    const struct message *m = am->data;
    struct message *own = &in_flight[m->link % MOST][m->number % WINDOW];
    *own = *m;
    weft_iov_t iov = {own, sizeof *own};
    must(weft_am_send(ep, ANSWER, NULL, 0, &iov, 1, NULL), "answer");
}

static bool is_busy(const struct load *load, unsigned i) {
    return load->all || i < load->slots;
}

static void serve(const struct load *load, struct shared *shared) {
    static weft_worker_t *workers[MOST];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(1);
    for (unsigned i = 0; i < load->links; i++) {
        weft_listener_t *listener;
        workers[i] = open_worker(load);
        must(weft_am_handler_set(workers[i], ASK, answer, NULL), "handler");
        must(weft_listen(workers[i], "tcp://127.0.0.1:0", NULL, &listener), "listen");
        snprintf(shared->uri[i], URI, "%s", weft_listener_uri(listener));
        shared->listening = i + 1;
    }
    for (unsigned round = 0;; round++) {
        for (unsigned i = 0; i < load->links; i++)
            if (!shared->ready || is_busy(load, i)) weft_worker_progress(workers[i], 0);
        if (!load->all) weft_worker_progress(workers[round % load->links], 0);
    }
}

/* ---- the side that asks ---------------------------------------------------------------------- */

struct link {
    weft_ep_t *ep;
    uint64_t asked, answered;
    bool moved;
};
static struct link links[MOST];
static uint64_t answers, wrong;

static void on_answer(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct link *link = weft_ep_user(ep);
    const struct message *m = am->data;
    wrong +=
        am->len != sizeof *m || m->number != link->answered || m->link != (uint64_t)(link - links);
    link->answered++;
    answers++;
}

static void ask(struct link *link) {
    struct message *m = &in_flight[link - links][link->asked % WINDOW];
    m->link = (uint64_t)(link - links);
    m->number = link->asked++;
    weft_iov_t iov = {m, sizeof *m};
    must(weft_am_send(link->ep, ASK, NULL, 0, &iov, 1, NULL), "ask");
}

static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    must(status, "endpoint");
}

static void connect_all(weft_worker_t *worker, const struct load *load, struct shared *shared) {
    for (unsigned i = 0; i < load->links; i++) {
        while (shared->listening <= i) usleep(1000);
        must(weft_connect(worker, shared->uri[i], &(weft_ep_params_t){.on_error = on_error},
                          &links[i].ep),
             "connect");
        weft_ep_set_user(links[i].ep, &links[i]);
        ask(&links[i]);
        while (links[i].answered == 0) weft_worker_progress(worker, 0);
    }
    shared->ready = true;
}

/* Which links are fast now. */
static void look(const struct load *load, unsigned tick, struct outcome *o) {
    unsigned busy = 0;
    for (unsigned i = 0; i < load->links; i++) {
        weft_ep_info_t info;
        must(weft_ep_describe(links[i].ep, &info), "describe");
        if (strcmp(info.transport, "shm") != 0) continue;
        if (i < load->slots)
            busy++;
        else if (!links[i].moved)
            o->others++;
        links[i].moved = true;
    }
    if (busy == load->slots && !o->ticks_to_all) o->ticks_to_all = tick;
}

static void turn(weft_worker_t *worker, const struct load *load) {
    for (unsigned i = 0; i < (load->all ? load->links : load->slots); i++)
        while (links[i].asked - links[i].answered < WINDOW) ask(&links[i]);
    weft_worker_progress(worker, 0);
}

/* One of those that are usually idle. */
static void now_and_then(const struct load *load) {
    static unsigned next;
    struct link *link = &links[load->slots + next++ % (load->links - load->slots)];
    if (link->asked == link->answered) ask(link);
}

static struct outcome drive(weft_worker_t *worker, const struct load *load) {
    struct outcome o = {0};
    uint64_t half = 0;
    double begin = now_ns(), end = begin + load->seconds * 1e9,
           middle = begin + load->seconds * 5e8;
    double next_tick = begin + TICK_MS * 1e6, next_idle = begin, counted = 0;
    for (unsigned tick = 1; now_ns() < end;) {
        for (int i = 0; i < 32; i++) turn(worker, load);
        double now = now_ns();
        if (!load->all && load->links > load->slots && now > next_idle) {
            now_and_then(load);
            next_idle = now + 1e6;
        }
        if (!load->all && now > next_tick) {
            look(load, tick++, &o);
            next_tick += TICK_MS * 1e6;
        }
        if (!counted && now > middle) {
            counted = now;
            half = answers;
        }
    }
    o.per_second = (double)(answers - half) * 1e9 / (now_ns() - counted);
    for (unsigned i = 0; i < load->links; i++)
        while (links[i].answered < links[i].asked) weft_worker_progress(worker, 0);
    o.wrong = wrong;
    o.switches = weft_worker_count(worker, "link.switches");
    o.pause_max_us = (double)weft_worker_count(worker, "link.switch_pause_max") / 1e3;
    return o;
}

/* In two processes of its own, so that each run begins alike. */
static struct outcome run(const struct load *load) {
    struct outcome *o = shared_memory(sizeof *o);
    fflush(stdout);
    pid_t asker = fork();
    if (asker == 0) {
        struct shared *shared = shared_memory(sizeof *shared);
        fail_with_children();
        pid_t server = fork();
        if (server == 0) serve(load, shared);
        pin(0);
        weft_worker_t *worker = open_worker(load);
        must(weft_am_handler_set(worker, ANSWER, on_answer, NULL), "handler");
        connect_all(worker, load, shared);
        *o = drive(worker, load);
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
        _exit(0);
    }
    int status;
    if (asker < 0 || waitpid(asker, &status, 0) < 0 || status != 0) exit(1);
    return *o;
}

static void print(const struct load *load, const struct outcome *o) {
    printf("  %-3s %11.0f/s  %llu wrong  %llu switches, longest pause %.0f us",
           load->on ? "on" : "off", o->per_second, (unsigned long long)o->wrong,
           (unsigned long long)o->switches, o->pause_max_us);
    if (load->on && !load->all)
        printf("  all %u after %u ticks, %u others", load->slots, o->ticks_to_all, o->others);
    printf("\n");
}

int main(int argc, char **argv) {
    enum { MOST_RUNS = 99 };
    double ratio[MOST_RUNS];
    struct load load = {.all = argc > 1 && strcmp(argv[1], "all") == 0};
    if (argc < 2 || (!load.all && strcmp(argv[1], "few") != 0)) {
        fprintf(stderr, "hot few|all [SECONDS [LINKS [SLOTS [RUNS]]]]\n");
        return 2;
    }
    load.seconds = argc > 2 ? atof(argv[2]) : load.all ? 10 : 3;
    load.links = argc > 3 ? (unsigned)atoi(argv[3]) : load.all ? 32 : 200;
    load.slots = argc > 4 ? (unsigned)atoi(argv[4]) : 8;
    int runs = argc > 5 ? atoi(argv[5]) : 5;
    if (load.links > MOST || load.slots == 0 || load.slots > load.links || load.seconds <= 0 ||
        runs < 1 || runs > MOST_RUNS) {
        fprintf(stderr, "hot: at most %d links, and no more slots than links\n", MOST);
        return 2;
    }
    for (int i = 0; i < runs; i++) {
        load.on = true;
        struct outcome on = run(&load);
        print(&load, &on);
        load.on = false;
        struct outcome off = run(&load);
        print(&load, &off);
        ratio[i] = on.per_second / off.per_second;
    }
    sort_figures(ratio, (size_t)runs);
    printf("on / off: %.3g (median of %d, %.3g to %.3g)\n", ratio[runs / 2], runs, ratio[0],
           ratio[runs - 1]);
    return 0;
}

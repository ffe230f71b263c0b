/* weft-perf: what messages and collectives cost, by size. */
#include <base/affinity.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "perf/perf.h"
#include "program/program.h"
#include "run/job.h"

static const char usage[] =
    "weft-perf --test TEST [--size N|LO-HI] [--transport NAME] [--mode poll|sleep|wait] [--ranks "
    "N]\n"
    "          [--count N] [--links N] [--seconds S] [--json] [--plot FILE.svg] [--listen URI | "
    "--connect URI]\n"
    "          [--core N] [--window N] [--memory MEMORY] [--fresh] [--persistent]\n"
    "\n"
    "TEST, between two workers:\n"
    "  am_lat am_rate am_bw tag_lat tag_rate tag_bw stream_bw        messages and streams\n"
    "  put_lat put_bw get_lat get_bw atomic_lat atomic_rate          the other side's memory\n"
    "  wait_lat                                                      am_lat in the mode wait\n"
    "  connect_rate ep_memory poll_cost                              --count endpoints (5000) to "
    "one worker, or "
    "to\n"
    "                                                                --links workers\n"
    "  server idle                                                   one worker and --count "
    "clients (64)\n"
    "and in a team of --ranks: allreduce barrier fanin fanout bcast allgather allgatherv reduce "
    "gather gatherv scatter scatterv\n"
    "alltoall alltoallv reduce_scatter reduce_scatterv scan exscan neighbor_alltoallv; blocks are "
    "equal, and neighbours a ring.\n"
    "With --persistent each is described once, and started again and again.\n"
    "\n"
    "weft-perf --tune FILE [--test TEST] [--ranks N] [--seconds S]\n"
    "  measures every algorithm of these here, and writes the choices; the setting coll.tuning "
    "names "
    "the file.\n"
    "\n"
    "Sizes are in bytes (8, 4k, 1m), a range is swept by doubling. The latencies of am_lat, "
    "tag_lat, put_lat and\n"
    "wait_lat are half round trips, those of get_lat and atomic_lat whole operations. Modes: look "
    "all the time, "
    "sleep\n"
    "at once, or wait as weft_worker_wait does, looking for a short while. Both sides are started "
    "here, on two "
    "cores;\n"
    "with --listen and --connect they run apart: the one that listens needs no other option than "
    "its mode and "
    "ends\n"
    "with its first client. --plot draws the sweep. NAME: auto, self, shm, tcp, rdma_rc or "
    "rdma_ud. Rates and\n"
    "bandwidths keep --window operations (64) under way. Messages come out of memory that the "
    "library allocated "
    "and\nexposes to the peer, and go into such memory, unless --memory makes it this "
    "program's own, or that "
    "only "
    "what\nis sent or received is exposed: exposed, own, sent, received. It is the driver's with "
    "cuda "
    "(on the "
    "first GPU),\nmanaged and pinned. It stays as it is, unless --fresh has each message written "
    "before it is "
    "sent,\nand what a rank gives to a collective before each operation. The writing is in the "
    "times.\n";

enum { BAD_USAGE = 2, MAX_RESULTS = 64 };
static const size_t largest_size = 1u << 30;

/* ---- options --------------------------------------------------------------------------------- */

static bool parse_size(const char *text, char end, size_t *size_p, const char **rest_p) {
    char *at;
    errno = 0;
    unsigned long long value = strtoull(text, &at, 10);
    if (at == text || *text == '-' || errno) return false;
    unsigned shift = *at == 'k' ? 10 : *at == 'm' ? 20 : *at == 'g' ? 30 : 0;
    if (shift) at++;
    if (*at != end || value > largest_size >> shift) return false;
    *size_p = (size_t)value << shift;
    if (rest_p) *rest_p = at + 1;
    return true;
}

static bool parse_sizes(const char *text, struct perf_options *o) {
    const char *rest;
    if (!strchr(text, '-')) {
        if (!parse_size(text, 0, &o->size_lo, NULL)) return false;
        o->size_hi = o->size_lo;
        return true;
    }
    return parse_size(text, '-', &o->size_lo, &rest) && parse_size(rest, 0, &o->size_hi, NULL) &&
           o->size_lo <= o->size_hi;
}

static bool parse_test(const char *text, enum perf_test *test_p) {
    for (int i = 0; i < N_TESTS; i++) {
        if (strcmp(text, perf_tests[i].name) != 0) continue;
        *test_p = (enum perf_test)i;
        return true;
    }
    return false;
}

static bool parse_number(const char *text, double least, double most, double *value_p) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) return false;
    *value_p = value;
    return true;
}

static bool one_of(const char *text, const char *const *names, int *which_p) {
    for (int i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *which_p = i;
        return true;
    }
    return false;
}

static bool parse_count(const char *text, double most, uint32_t *count_p) {
    double number = 0;
    if (!parse_number(text, 1, most, &number) || number != (uint32_t)number) return false;
    *count_p = (uint32_t)number;
    return true;
}

/* What stands behind an option. */
static const char *taken_by(int c) {
    switch (c) {
    case 't': return "no such test";
    case 's': return "N or LO-HI, up to 1g";
    case 'x': return "auto, self, shm, tcp, rdma_rc or rdma_ud";
    case 'm': return "poll, sleep or wait";
    case 'n': return "1 to 4096";
    case 'N': return "1 to 10000000";
    case 'L': return "1 to 16384";
    case 'd': return "0.001 to 3600";
    case 'w': return "1 to 64";
    case 'c': return "0 to 1023";
    case 'M': return "exposed, own, sent, received, cuda, managed or pinned";
    default: return "not understood";
    }
}

/* False: such an option, or such a value, there is not. */
static bool take_option(int c, const char *value, struct perf_options *o) {
    static const char *const memories[] = {"exposed", "own",     "sent",   "received",
                                           "cuda",    "managed", "pinned", NULL};
    static const unsigned uses[] = {
        PERF_SENT | PERF_RECEIVED, 0, PERF_SENT, PERF_RECEIVED, 0, 0, 0};
    static const enum perf_cuda cuda[] = {
        [4] = PERF_CUDA_DEVICE, [5] = PERF_CUDA_MANAGED, [6] = PERF_CUDA_PINNED};
    static const char *const transports[] = {"auto",    "self",    "shm", "tcp",
                                             "rdma_rc", "rdma_ud", NULL};
    uint64_t core = 0;
    int which = 0;
    bool ok = true;
    switch (c) {
    case 't': ok = parse_test(value, &o->test); break;
    case 's': ok = parse_sizes(value, o); break;
    case 'x':
        ok = one_of(value, transports, &which);
        o->transport = value;
        break;
    case 'm':
        ok = one_of(value, perf_mode_names, &which);
        o->mode = (enum perf_mode)which;
        o->mode_set = true;
        break;
    case 'n': ok = parse_count(value, PERF_RANKS, &o->ranks); break;
    case 'N': ok = parse_count(value, 1e7, &o->count); break;
    case 'L': ok = parse_count(value, 16384, &o->links); break;
    case 'd': ok = parse_number(value, 0.001, 3600, &o->seconds); break;
    case 'c':
        ok = program_number(value, 0, AFFINITY_CPUS - 1, &core);
        o->core = (int)core;
        break;
    case 'w': ok = parse_count(value, PERF_WINDOW, &o->window); break;
    case 'M':
        ok = one_of(value, memories, &which);
        o->exposed = uses[which];
        o->cuda = cuda[which];
        break;
    case 'F': o->fresh = true; break;
    case 'P': o->persistent = true; break;
    case 'j': o->json = true; break;
    case 'T': o->tune = value; break;
    case 'p': o->plot = value; break;
    case 'l': o->listen = value; break;
    case 'C': o->connect = value; break;
    default: ok = false; break;
    }
    return ok;
}

/* Two by default; the self transport knows one worker only. */
static bool settle_ranks(struct perf_options *o) {
    bool self = strcmp(o->transport, "self") == 0;
    if (o->ranks == 0) o->ranks = self ? 1 : 2;
    if (!self || o->ranks == 1) return true;
    fputs("weft-perf: the self transport reaches no other rank\n", stderr);
    return false;
}

/* What the test asks of the other options. */
static bool settle_test(struct perf_options *o) {
    if (o->test == N_TESTS) return true; /* the side that listens */
    const struct perf_kind *kind = &perf_tests[o->test];
    const char *wrong = NULL;
    if (kind->flags & PERF_TEAM && (o->listen || o->connect))
        wrong = "a collective needs a team: --ranks, or weft-run";
    if (o->persistent && !(kind->flags & PERF_TEAM)) wrong = "only a collective is persistent";
    if (o->fresh && !(kind->flags & PERF_WRITTEN))
        wrong = "--fresh writes messages, and what a rank gives to a collective";
    if (kind->flags & PERF_POLLED && o->mode != MODE_POLL) wrong = "this test polls";
    if (kind->flags & PERF_WAITING && o->mode_set && o->mode != MODE_WAIT)
        wrong = "this test waits: --mode wait";
    if (kind->flags & PERF_WORDS && (o->size_lo < 4 || o->size_hi > 8 || o->size_lo % 4 != 0))
        wrong = "atomics are of 4 or 8 bytes";
    if (o->cuda == PERF_CUDA_DEVICE && (o->fresh || o->test == TEST_PUT_LAT))
        wrong = "the processor writes what is sent: memory of the host only";
    if (kind->flags & PERF_NONEMPTY && o->size_lo == 0) wrong = "sizes begin at 1";
    if (kind->flags & PERF_WAITING) o->mode = MODE_WAIT;
    if (kind->flags & PERF_SIZELESS) o->size_lo = o->size_hi = 0;
    if (o->tune && !perf_may_tune(o->test)) wrong = "--tune: there is nothing to choose";
    if (wrong) fprintf(stderr, "weft-perf: %s: %s\n", kind->name, wrong);
    return !wrong;
}

static bool settle_sides(const struct perf_options *o) {
    if (o->listen && o->connect)
        fputs("weft-perf: --listen is one side, --connect the other\n", stderr);
    return !o->listen || !o->connect;
}

/* Before anything is measured for it. */
static bool settle_plot(const struct perf_options *o) {
    FILE *f = o->plot ? fopen(o->plot, "a") : NULL;
    if (!o->plot || (f && fclose(f) == 0)) return true;
    fprintf(stderr, "weft-perf: --plot %s: %s\n", o->plot, strerror(errno));
    return false;
}

/* `other`: one that is none of those which --tune follows; NULL: there is none. */
static bool settle_tune(const struct perf_options *o, const char *other) {
    if (!o->tune || !other) return true;
    fprintf(stderr, "weft-perf: --tune goes with --test, --ranks and --seconds, not with --%s\n",
            other);
    return false;
}

static bool take_options(int argc, char **argv, struct perf_options *o) {
    static const struct option options[] = {{"test", required_argument, NULL, 't'},
                                            {"size", required_argument, NULL, 's'},
                                            {"transport", required_argument, NULL, 'x'},
                                            {"mode", required_argument, NULL, 'm'},
                                            {"ranks", required_argument, NULL, 'n'},
                                            {"count", required_argument, NULL, 'N'},
                                            {"links", required_argument, NULL, 'L'},
                                            {"seconds", required_argument, NULL, 'd'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"plot", required_argument, NULL, 'p'},
                                            {"listen", required_argument, NULL, 'l'},
                                            {"connect", required_argument, NULL, 'C'},
                                            {"core", required_argument, NULL, 'c'},
                                            {"window", required_argument, NULL, 'w'},
                                            {"memory", required_argument, NULL, 'M'},
                                            {"fresh", no_argument, NULL, 'F'},
                                            {"persistent", no_argument, NULL, 'P'},
                                            {"tune", required_argument, NULL, 'T'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *no_tuning = NULL;
    int c, which = 0;
    *o = (struct perf_options){.test = N_TESTS,
                               .size_lo = 8,
                               .size_hi = 8,
                               .transport = "auto",
                               .seconds = 1,
                               .core = -1,
                               .window = PERF_WINDOW,
                               .exposed = PERF_SENT | PERF_RECEIVED};
    while ((c = getopt_long(argc, argv, "h", options, &which)) != -1) {
        if (c == 'h') {
            fputs(usage, stdout);
            exit(program_end("weft-perf", 0));
        }
        if (take_option(c, optarg, o)) {
            if (!strchr("Ttnd", c)) no_tuning = options[which].name;
            continue;
        }
        if (optarg)
            fprintf(stderr, "weft-perf: --%s %s: %s\n", options[which].name, optarg, taken_by(c));
        return false;
    }
    if (optind < argc) {
        fprintf(stderr, "weft-perf: %s is not understood\n", argv[optind]);
        return false;
    }
    if (o->test == N_TESTS && !o->listen && !o->tune) {
        fputs("weft-perf: --test is missing\n", stderr);
        return false;
    }
    return settle_tune(o, no_tuning) && settle_test(o) && settle_ranks(o) && settle_sides(o) &&
           settle_plot(o);
}

/* ---- one process ----------------------------------------------------------------------------- */

/* Rank by rank over the cores that we may use. */
static void pin(struct perf *p, uint32_t place) {
    struct affinity allowed, chosen;
    int wanted = p->options.core;
    uint32_t n = weft__affinity_read(&allowed) ? weft__affinity_count(&allowed) : 0;
    if (n < 1) return;
    p->oversubscribed = p->size > n;
    if (wanted < 0) wanted = weft__affinity_nth(&allowed, place);
    weft__affinity_only(&chosen, wanted);
    if (sched_setaffinity(0, sizeof chosen, chosen.set) == 0) return;
    fprintf(stderr, "weft-perf: core %d: %s\n", wanted, strerror(errno));
    if (p->options.core >= 0) exit(1);
}

static void open_worker(struct perf *p) {
    p->mode = p->options.mode;
    char transports[32];
    weft_setting_t settings[2];
    size_t n = 0;
    const char *uri = p->options.connect;
    /*
     * Who names a place by its transport measures that one, and no faster lane that the link may
     * earn.
     */
    if (uri && strncmp(uri, "tcp://", 6) == 0 && strcmp(p->options.transport, "auto") == 0)
        p->options.transport = "tcp";
    snprintf(transports, sizeof transports, "self,%s", p->options.transport);
    if (strcmp(p->options.transport, "self") == 0) strcpy(transports, "self");
    if (strcmp(p->options.transport, "auto") != 0)
        settings[n++] = (weft_setting_t){"transports", transports};
    if (p->options.mode == MODE_SLEEP) settings[n++] = (weft_setting_t){"worker.spin", "0"};
    weft_context_params_t params = {.settings = settings, .n_settings = n};
    perf_must(weft_context_create(&params, &p->context), "context");
    perf_must(weft_worker_create(p->context, NULL, &p->worker), "worker");
    perf_prepare(p);

    enum perf_test test = p->options.test;
    bool blocks = test < N_TESTS && perf_tests[test].flags & PERF_BLOCKS;
    size_t len = p->options.size_hi * (blocks ? p->size : 1) + sizeof(float);
    p->out = perf_memory(p, PERF_SENT, len);
    p->in = perf_memory(p, PERF_RECEIVED, len);
}

static void close_worker(struct perf *p) {
    weft_worker_destroy(p->worker);
    perf_must(weft_context_destroy(p->context), "context");
}

static const char *transport_of(struct perf *p) {
    static char name[32];
    weft_ep_info_t info;
    snprintf(name, sizeof name, "%s", p->options.transport);
    if (p->ep && weft_ep_describe(p->ep, &info) == WEFT_OK && info.transport)
        snprintf(name, sizeof name, "%s", info.transport);
    return name;
}

static void sweep_perf(struct perf *p) {
    const struct perf_options *o = &p->options;
    struct perf_result results[MAX_RESULTS];
    bool speaks = p->rank == 0;
    size_t n = 0, size = o->size_lo;
    if (speaks && !o->json) perf_print_header(stdout);
    for (; size <= o->size_hi && n < MAX_RESULTS; size = size ? 2 * size : 1, n++) {
        struct perf_result *r = &results[n];
        *r = (struct perf_result){
            .test = o->test, .size = size, .mode = perf_mode_names[o->mode], .ranks = p->size};
        perf_tests[o->test].family->measure(p, size, r);
        r->transport = transport_of(p);
        if (speaks && o->json) perf_print_json(stdout, r);
        if (speaks && !o->json) perf_print_row(stdout, r);
    }
    if (speaks && o->plot && !perf_plot(o->plot, results, n)) exit(1);
}

static void run_in_team(struct perf *p, const weft_exchange_t *exchange) {
    bool collective = perf_tests[p->options.test].flags & PERF_TEAM;
    p->rank = exchange->rank;
    p->size = exchange->size;
    pin(p, p->rank);
    open_worker(p);
    if (!collective && p->size < 2) perf_die("two ranks are needed", WEFT_ERR_INVALID_PARAM);
    perf_must(weft_team_create_wait(p->worker, exchange, &p->team), "team");
    if (p->size > 1) p->ep = weft_team_ep(p->team, p->rank == 0 ? 1 : 0);
    if (collective || p->rank == 0)
        sweep_perf(p);
    else if (p->rank == 1)
        perf_serve(p);
    if (!collective && p->rank == 0) perf_bye(p);
    perf_must(weft_barrier_wait(p->team), "barrier");
    perf_must(weft_team_close_wait(p->team), "close");
    close_worker(p);
}

static void run_to_self(struct perf *p) {
    uint8_t address[256];
    size_t len = sizeof address;
    p->size = 1;
    pin(p, 0);
    open_worker(p);
    perf_must(weft_worker_address(p->worker, address, &len), "address");
    perf_must(weft_connect_address(p->worker, address, len, NULL, &p->ep), "connect");
    sweep_perf(p);
    perf_must(weft_ep_close_wait(p->ep, WEFT_CLOSE_FLUSH), "close");
    close_worker(p);
}

static void run_listening(struct perf *p) {
    weft_listener_t *listener;
    weft_listen_params_t params = {.on_error = perf_lost};
    p->size = 2;
    pin(p, 0);
    open_worker(p);
    perf_must(weft_listen(p->worker, p->options.listen, &params, &listener), p->options.listen);
    printf("listening at %s\n", weft_listener_uri(listener));
    fflush(stdout);
    perf_serve(p);
    close_worker(p);
}

static void run_connected(struct perf *p) {
    p->size = 2;
    pin(p, 1);
    open_worker(p);
    weft_ep_params_t params = {.on_error = perf_lost};
    perf_must(weft_connect(p->worker, p->options.connect, &params, &p->ep), p->options.connect);
    sweep_perf(p);
    perf_bye(p);
    weft_status_t st = weft_ep_close_wait(p->ep, WEFT_CLOSE_FLUSH);
    if (st != WEFT_ERR_PEER_CLOSED) perf_must(st, "close"); /* the other side may be the first */
    close_worker(p);
}

int main(int argc, char **argv) {
    static struct perf p;
    program_begin();
    if (!take_options(argc, argv, &p.options)) {
        fputs("Try weft-perf --help.\n", stderr);
        return BAD_USAGE;
    }
    bool self = strcmp(p.options.transport, "self") == 0;
    if (p.options.tune) return program_end("weft-perf", perf_tune(&p.options));
    if (p.options.listen) {
        run_listening(&p);
    } else if (p.options.connect) {
        run_connected(&p);
    } else if (self && !(perf_tests[p.options.test].flags & PERF_TEAM)) {
        run_to_self(&p);
    } else if (getenv("WEFT_RUN_RANK") || p.options.ranks == 1) {
        const weft_exchange_t *exchange = weft_run_exchange();
        if (!exchange) return 1;
        run_in_team(&p, exchange);
    } else {
        struct job_params job = {.tool = "weft-perf",
                                 .n = p.options.ranks,
                                 .file = "/proc/self/exe",
                                 .argv = argv,
                                 .plain = true};
        return job_run(&job);
    }
    return program_end("weft-perf", 0);
}

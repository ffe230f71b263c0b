/*
 * sim: the real library in a simulated network and in virtual time, from seeds. tools/sim builds
 * and runs it.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program/program.h"
#include "simulate/apart.h"

static const char usage[] =
    "sim [--seeds N] [--from S] [--jobs N] [--first]\n"
    "sim --seed S [--trace] [--minimise]\n"
    "sim --mesh [--workers N] | --endpoints N\n"
    "tools/sim --mutants [--sample N] [NAME...]\n"
    "\n"
    "Runs workers of the real library over a simulated network, in virtual time: traffic of all "
    "kinds, and faults, "
    "drawn\n"
    "from a seed; then all is healed, everything has to come to rest, and what was promised is "
    "checked.\n"
    "\n"
    "      --seeds N      so many small worlds (default 1000), from --from (default 1) on, in "
    "--jobs processes "
    "(default\n"
    "                     2); each hundredth once more in another process, which must see the "
    "same\n"
    "      --seed S       one of them, with its trace hash; --trace prints what happens, "
    "--minimise leaves out "
    "what can be\n"
    "                     left out and prints the rest as C for tests/sim/regressions_test.c\n"
    "      --first        in one process, until the first that fails\n"
    "      --mutants      each fault of tests/mutants that a simulation is to find, or each one "
    "named, is planted "
    "in "
    "a copy\n"
    "                     and has to be found; --sample N: so many of them\n"
    "      --mesh         --workers N workers (default 64), all with all, 15 fast lanes each\n"
    "      --endpoints N  one run with so many endpoints\n"
    "  -h, --help         this text\n";

struct opts {
    uint64_t seeds, from, seed, workers, endpoints, hash;
    unsigned jobs;
    bool one, trace, minimise, first, mesh, many, only_hash;
};

static void print_verdict(const char *what, const struct verdict *verdict) {
    printf("%s: %s%s; trace hash %016" PRIx64 "; %" PRIu64 " operations, %" PRIu64
           " packets, %.3f s of virtual time; lanes: %" PRIu64 " promoted, %" PRIu64
           " demoted, %" PRIu64 " switches\n",
           what, verdict->failed ? "failed: " : "ok", verdict->what, verdict->hash, verdict->asked,
           verdict->events, (double)verdict->virtual_ns / 1e9, verdict->promoted, verdict->demoted,
           verdict->switches);
}

static int run_plan(const struct opts *opts, struct plan *plan, const char *name) {
    struct verdict verdict;
    if (opts->trace) setvbuf(stdout, NULL, _IOLBF, 0); /* a crash loses no line */
    if (opts->trace || opts->mesh || opts->many)
        world_run(plan, &verdict, opts->trace ? stdout : NULL);
    else
        apart_run(plan, &verdict);
    print_verdict(name, &verdict);
    if (verdict.failed && opts->minimise) {
        minimise(plan, &verdict, stderr);
        plan_print(plan, stdout);
        print_verdict("what is left of it", &verdict);
    }
    plan_free(plan);
    return verdict.failed;
}

static int run_one(const struct opts *opts) {
    struct plan plan;
    char name[32];
    snprintf(name, sizeof name, "seed %" PRIu64, opts->seed);
    plan_draw(&plan, opts->seed);
    return run_plan(opts, &plan, name);
}

/* A batch waits for it. */
static int run_hash(uint64_t seed) {
    struct plan plan;
    struct verdict verdict;
    apart_alarm(A_HANG_S);
    plan_draw(&plan, seed);
    world_run(&plan, &verdict, NULL);
    printf("%016" PRIx64 "\n", verdict.hash);
    plan_free(&plan);
    return verdict.failed;
}

enum { MESH = 64 };

static int run_large(const struct opts *opts) {
    struct plan plan;
    if (opts->mesh)
        plan_mesh(&plan, opts->from, opts->workers ? (uint32_t)opts->workers : MESH, 15, 4);
    else
        plan_endpoints(&plan, opts->from, (uint32_t)opts->endpoints);
    return run_plan(opts, &plan, opts->mesh ? "mesh" : "endpoints");
}

static const uint64_t NOT_GIVEN = UINT64_MAX; /* more than --from may be */

/* Where it says nothing, any number will do. */
static bool read_number(const char *name, int option, const char *text, uint64_t *number_p) {
    static const struct range {
        char option;
        uint64_t least, most;
    } ranges[] = {{'n', 1, UINT32_MAX}, {'f', 0, UINT64_MAX - UINT32_MAX},
                  {'j', 1, BATCH_JOBS}, {'w', 2, PLAN_WORKERS},
                  {'c', 1, 10000000},   {0, 0, UINT64_MAX}};
    const struct range *range = ranges;
    while (range->option && range->option != option) range++;
    if (program_number(text, range->least, range->most, number_p)) return true;
    fprintf(stderr, "sim: --%s %s: %" PRIu64 " to %" PRIu64 "\n", name, text, range->least,
            range->most);
    return false;
}

/* What does not go together: else one of two would be run, and the other not. */
static const char *unfit(const struct opts *opts) {
    bool one_run = opts->one || opts->mesh || opts->many;
    if (opts->one + opts->mesh + opts->many + opts->first > 1)
        return "--seed, --mesh, --endpoints and --first are a run each";
    if ((opts->trace || opts->minimise) && !one_run) return "--trace and --minimise are of one run";
    if (opts->workers && !opts->mesh) return "--workers are those of --mesh";
    if (opts->seeds && one_run) return "--seeds are of many runs";
    if (opts->jobs && (one_run || opts->first)) return "--jobs are of many runs at a time";
    if (opts->from != NOT_GIVEN && opts->one) return "--from is not of --seed";
    return NULL;
}

static void set_defaults(struct opts *opts) {
    if (!opts->seeds) opts->seeds = 1000;
    if (!opts->jobs) opts->jobs = 2;
    if (opts->from == NOT_GIVEN) opts->from = 1;
}

static bool read_options(int argc, char **argv, struct opts *opts) {
    static const struct option options[] = {{"seeds", required_argument, NULL, 'n'},
                                            {"from", required_argument, NULL, 'f'},
                                            {"jobs", required_argument, NULL, 'j'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"trace", no_argument, NULL, 't'},
                                            {"minimise", no_argument, NULL, 'm'},
                                            {"first", no_argument, NULL, 'i'},
                                            {"mesh", no_argument, NULL, 'e'},
                                            {"workers", required_argument, NULL, 'w'},
                                            {"endpoints", required_argument, NULL, 'c'},
                                            {"hash", required_argument, NULL, 'x'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c, which = 0;
    while ((c = getopt_long(argc, argv, "h", options, &which)) != -1) {
        uint64_t number = 0;
        if (optarg && !read_number(options[which].name, c, optarg, &number)) return false;
        switch (c) {
        case 'n': opts->seeds = number; break;
        case 'f': opts->from = number; break;
        case 'j': opts->jobs = (unsigned)number; break;
        case 's': opts->seed = number, opts->one = true; break;
        case 't': opts->trace = true; break;
        case 'm': opts->minimise = true; break;
        case 'i': opts->first = true; break;
        case 'e': opts->mesh = true; break;
        case 'w': opts->workers = number; break;
        case 'c': opts->endpoints = number, opts->many = true; break;
        case 'x': opts->seed = number, opts->only_hash = true; break;
        default: return false;
        }
    }
    const char *why = unfit(opts);
    if (optind < argc) fprintf(stderr, "sim: %s: not understood\n", argv[optind]);
    if (why) fprintf(stderr, "sim: %s\n", why);
    return optind == argc && !why;
}

static int run_what(const struct opts *opts) {
    if (opts->only_hash) return run_hash(opts->seed);
    if (opts->one) return run_one(opts);
    if (opts->first) return find_first(opts->from, opts->seeds);
    if (opts->mesh || opts->many) return run_large(opts);
    return batch_run(&(struct batch){.from = opts->from, .n = opts->seeds, .jobs = opts->jobs}) > 0;
}

int main(int argc, char **argv) {
    program_begin();
    struct opts opts = {.from = NOT_GIVEN};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout), program_end("sim", 0);
    if (!read_options(argc, argv, &opts)) return fputs("Try sim --help.\n", stderr), 2;
    set_defaults(&opts);
    return program_end("sim", run_what(&opts));
}

/* sim: the real library in a simulated network and in virtual time, from seeds. tools/sim builds and runs it. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simulate/apart.h"

static const char usage[] =
    "sim [--seeds N] [--from S] [--jobs N]\n"
    "sim --seed S [--trace] [--minimise] [--plant NAME]\n"
    "sim --mutants[=NAME] [--sample] [--limit N] | --mesh [--workers N] | --endpoints N\n"
    "\n"
    "Runs workers of the real library over a simulated network, in virtual time: traffic of all kinds, and faults, "
    "drawn\n"
    "from a seed; then all is healed, everything has to come to rest, and what was promised is checked.\n"
    "\n"
    "      --seeds N      so many small worlds (default 1000), from --from (default 1) on, in --jobs processes "
    "(default\n"
    "                     2); each hundredth once more in another process, which must see the same\n"
    "      --seed S       one of them, with its trace hash; --trace prints what happens, --minimise leaves out "
    "what can be\n"
    "                     left out and prints the rest as C for tests/sim/regressions_test.c\n"
    "      --plant NAME   with that bug in it\n"
    "      --mutants      each planted bug has to be found within --limit seeds (default 10000); --sample: a "
    "quarter of them\n"
    "      --mesh         --workers N workers (default 64), all with all, 15 fast lanes each\n"
    "      --endpoints N  one run with so many endpoints\n"
    "  -h, --help         this text\n";

struct wish {
    uint64_t seeds, from, seed, limit, workers, endpoints, hash;
    unsigned jobs;
    const char *mutant;
    bool one, trace, minimise, mutants, sample, mesh, many, only_hash;
};

static void say(const char *what, const struct verdict *verdict) {
    printf("%s: %s%s; trace hash %016" PRIx64 "; %" PRIu64 " operations, %" PRIu64
           " packets, %.3f s of virtual time; lanes: %" PRIu64 " promoted, %" PRIu64 " demoted, %" PRIu64
           " switches\n",
           what, verdict->failed ? "failed: " : "ok", verdict->what, verdict->hash, verdict->asked, verdict->events,
           (double)verdict->virtual_ns / 1e9, verdict->promoted, verdict->demoted, verdict->switches);
}

static int run_plan(const struct wish *wish, struct plan *plan, const char *name) {
    struct verdict verdict;
    if (wish->trace || wish->mesh || wish->many)
        world_run(plan, &verdict, wish->trace ? stdout : NULL);
    else
        apart_run(plan, &verdict);
    say(name, &verdict);
    if (verdict.failed && wish->minimise) {
        minimise(plan, &verdict, stderr);
        plan_print(plan, stdout);
        say("what is left of it", &verdict);
    }
    plan_free(plan);
    return verdict.failed;
}

static int run_one(const struct wish *wish) {
    struct plan plan;
    char name[32];
    snprintf(name, sizeof name, "seed %" PRIu64, wish->seed);
    plan_draw(&plan, wish->seed);
    return run_plan(wish, &plan, name);
}

static int run_hash(uint64_t seed) {
    struct plan plan;
    struct verdict verdict;
    plan_draw(&plan, seed);
    world_run(&plan, &verdict, NULL);
    printf("%016" PRIx64 "\n", verdict.hash);
    plan_free(&plan);
    return verdict.failed;
}

static int run_large(const struct wish *wish) {
    struct plan plan;
    if (wish->mesh)
        plan_mesh(&plan, wish->from, (uint32_t)wish->workers, 15, 4);
    else
        plan_endpoints(&plan, wish->from, (uint32_t)wish->endpoints);
    return run_plan(wish, &plan, wish->mesh ? "mesh" : "endpoints");
}

static bool read_options(int argc, char **argv, struct wish *wish) {
    static const struct option options[] = {
        {"seeds", required_argument, NULL, 'n'},   {"from", required_argument, NULL, 'f'},
        {"jobs", required_argument, NULL, 'j'},    {"seed", required_argument, NULL, 's'},
        {"trace", no_argument, NULL, 't'},         {"minimise", no_argument, NULL, 'm'},
        {"mutants", optional_argument, NULL, 'u'}, {"sample", no_argument, NULL, 'p'},
        {"limit", required_argument, NULL, 'l'},   {"mesh", no_argument, NULL, 'e'},
        {"workers", required_argument, NULL, 'w'}, {"endpoints", required_argument, NULL, 'c'},
        {"hash", required_argument, NULL, 'x'},    {"plant", required_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 0;
        switch (c) {
        case 'n': wish->seeds = number; break;
        case 'f': wish->from = number; break;
        case 'j': wish->jobs = (unsigned)number; break;
        case 's': wish->seed = number, wish->one = true; break;
        case 't': wish->trace = true; break;
        case 'm': wish->minimise = true; break;
        case 'u': wish->mutants = true, wish->mutant = optarg; break;
        case 'p': wish->sample = true; break;
        case 'l': wish->limit = number; break;
        case 'e': wish->mesh = true; break;
        case 'w': wish->workers = number; break;
        case 'c': wish->endpoints = number, wish->many = true; break;
        case 'x': wish->seed = number, wish->only_hash = true; break;
        case 'b':
            if (!mutants_plant(optarg)) return false;
            break;
        default: return false;
        }
    }
    return optind == argc && wish->jobs > 0 && wish->workers > 1 && wish->workers <= PLAN_WORKERS;
}

int main(int argc, char **argv) {
    struct wish wish = {.seeds = 1000, .from = 1, .jobs = 2, .limit = 10000, .workers = 64};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return fputs(usage, stdout) < 0;
    if (!read_options(argc, argv, &wish)) return fputs("Try sim --help.\n", stderr), 2;
    if (wish.only_hash) return run_hash(wish.seed);
    if (wish.one) return run_one(&wish);
    if (wish.mutants) return mutants_run(wish.mutant, wish.limit, wish.jobs, wish.sample) > 0;
    if (wish.mesh || wish.many) return run_large(&wish);
    return batch_run(&(struct batch){.from = wish.from, .n = wish.seeds, .jobs = wish.jobs}) > 0;
}

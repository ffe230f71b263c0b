/* weft-run: starts a program as N processes on this machine and lets them find each other. */
#include <getopt.h>
#include <runtime/wire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/program.h"
#include "run/job.h"

static const char usage[] =
    "weft-run -n N [--timeout SECONDS] [--keep-going] [--plain] [--] PROGRAM [ARGUMENTS…]\n"
    "\n"
    "Starts N processes of PROGRAM on this machine. Each finds its siblings by "
    "weft_run_exchange().\n"
    "Output is forwarded line by line with the rank in front: [3] hello. When one fails, the "
    "others\n"
    "are ended (SIGTERM, after 2 s SIGKILL). The exit code is that of the first failure: its own,\n"
    "128 + the signal that ended it, 124 after the timeout, 125 when the output cannot be "
    "written (141\n"
    "when its reader is gone), 126 when PROGRAM cannot be run, 127 when it is not found, 128 + the "
    "signal\n"
    "(INT, TERM, HUP) that ended weft-run. Under nohup a hangup ends nothing.\n"
    "\n"
    "  -n, --ranks N          how many, 1 to 4096 (default 1)\n"
    "      --timeout SECONDS  end the job after that time\n"
    "      --keep-going       one that fails does not end the others; the exit code is then that "
    "of "
    "the\n"
    "                         first that exited with another than 0, else 0 if one exited with 0,\n"
    "                         else 128 + the signal that ended the first\n"
    "      --plain            no prefixes: the processes write to weft-run's own output\n"
    "  -h, --help             this text\n";

enum { BAD_USAGE = 2 };

static int refuse_run(const char *what, const char *value, const char *why) {
    fprintf(stderr, "weft-run: %s%s: %s\nTry weft-run --help.\n", what, value, why);
    return BAD_USAGE;
}

/* The whole of `text` as a number in range. */
static int number_run(const char *text, double least, double most, double *value_p) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) return 0;
    *value_p = value;
    return 1;
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'}, {"timeout", required_argument, NULL, 't'},
        {"keep-going", no_argument, NULL, 'k'},  {"plain", no_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
    program_begin();
    double n = 1, timeout = 0;
    struct job_params params = {.tool = "weft-run"};
    int c;
    while ((c = getopt_long(argc, argv, "+n:h", options, NULL)) != -1) {
        switch (c) {
        case 'n':
            if (!number_run(optarg, 1, RUN_MAX_RANKS, &n) || n != (uint32_t)n)
                return refuse_run("--ranks ", optarg, "1 to 4096");
            break;
        case 't':
            if (!number_run(optarg, 0.001, 1e9, &timeout))
                return refuse_run("--timeout ", optarg, "0.001 to 1000000000");
            break;
        case 'k': params.keep_going = true; break;
        case 'p': params.plain = true; break;
        case 'h': fputs(usage, stdout); return program_end("weft-run", 0);
        default: fputs("Try weft-run --help.\n", stderr); return BAD_USAGE;
        }
    }
    if (optind == argc) return refuse_run("no program", "", "nothing to start");
    params.n = (uint32_t)n;
    params.timeout_s = timeout;
    params.file = argv[optind];
    params.argv = argv + optind;
    return job_run(&params);
}

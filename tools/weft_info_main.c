/* weft-info: what this Weft can do here, how it is configured, and what it was built with. */
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <transports/trust.h>
#include <unistd.h>
#include <weft/weft.h>

#include "info/collectives.h"
#include "info/devices.h"
#include "info/gpus.h"
#include "info/live.h"
#include "info/protocols.h"
#include "info/view.h"
#include "program/program.h"
#include "json/json.h"

static const char usage[] =
    "weft-info [--transports] [--config] [--build] [--counters] [--json]\n"
    "weft-info --protocols [TRANSPORT | URI …] [--json]\n"
    "weft-info --live PID [--json]\n"
    "weft-info --collectives\n"
    "weft-info --view [--json | --svg]\n"
    "weft-info --new-key FILE\n"
    "\n"
    "  --transports  those that a worker opens, with capabilities, limits and costs; RDMA devices, "
    "with\n"
    "                ports and addresses\n"
    "  --config      every setting, its value, and where that came from\n"
    "  --build       version and compiler\n"
    "  --counters    what a worker counts\n"
    "  --protocols   by which way messages of which sizes go, what that costs, and what it is\n"
    "                estimated from; of a peer that listens at the URI: by the lane that leads "
    "there\n"
    "  --collectives which algorithm each collective takes, by the bytes of each member\n"
    "  --view        the processes of the program and what each has; under weft-run: of all\n"
    "  --live PID    the workers of a running process of yours: their links, with lanes, machines "
    "and\n"
    "                scores, and what they counted; they do not notice\n"
    "  --new-key     makes a key of 32 random bytes, for tcp.key_file; the file must not be there "
    "yet\n"
    "  --json        as one JSON object\n"
    "  --svg         the machines of --view as a picture\n"
    "Without a choice: the first three.\n";

enum { TRANSPORTS = 1, CONFIG = 2, BUILD = 4, COUNTERS = 8, PROTOCOLS = 16 };

#if defined __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifdef NDEBUG
#define CHECKS "off"
#else
#define CHECKS "on"
#endif
#ifdef WEFT_HAVE_RDMA
#define RDMA "yes"
#else
#define RDMA "no"
#endif

static const char *const build[][2] = {
    {"compiler", COMPILER}, {"invariants", CHECKS}, {"rdma", RDMA}};
enum { N_BUILD = sizeof build / sizeof build[0] };

static int must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return 1;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "weft-info: %s: %s\n", what, text);
    return 0;
}

static const char *origin_name(weft_origin_t origin) {
    static const char *const names[] = {"default", "file", "environment", "program"};
    return (size_t)origin < sizeof names / sizeof names[0] ? names[origin] : "?";
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_capabilities(uint64_t capabilities) {
    printf("  capabilities ");
    for (unsigned bit = 0; weft_capability_name(bit); bit++)
        if (capabilities >> bit & 1) printf(" %s", weft_capability_name(bit));
    printf("\n");
}

static void print_transports(weft_worker_t *worker) {
    weft_transport_info_t t;
    const char *name, *why;
    for (size_t i = 0; weft_worker_transport(worker, i, &t) == WEFT_OK; i++) {
        printf("transport %s", t.name);
        if (t.device && *t.device) printf(" on %s", t.device);
        printf("\n  latency       %.0f ns, bandwidth %.2f GB/s, overhead %.0f ns, %.1f M "
               "messages/s (estimates, "
               "for choosing)\n",
               t.latency_ns, t.bandwidth / 1e9, t.overhead_ns, t.message_rate / 1e6);
        printf("  limits        short %zu, bcopy %zu, zcopy %zu bytes of at most %zu pieces\n",
               t.max_short, t.max_bcopy, t.max_zcopy, t.max_iov);
        print_capabilities(t.capabilities);
    }
    for (size_t i = 0; weft_worker_unopened(worker, i, &name, &why) == WEFT_OK; i++)
        printf("transport %s is not open: %s\n", name, why);
}

enum { VALUE_ENDS = 45 }; /* the column, unless a value is longer */

static void print_config(weft_context_t *context) {
    weft_setting_info_t s;
    for (size_t i = 0; weft_context_setting(context, i, &s) == WEFT_OK; i++) {
        size_t len = strlen(s.value);
        /* "250ms" names its unit. */
        bool bare = len > 0 && s.value[len - 1] >= '0' && s.value[len - 1] <= '9';
        int wide = printf("%-22s %s %s", s.name, s.value, bare && s.unit ? s.unit : "");
        printf("%*s %-12s %s", wide < VALUE_ENDS ? VALUE_ENDS - wide : 0, "", origin_name(s.origin),
               s.help);
        if (*s.range) printf(" (%s)", s.range);
        putchar('\n');
    }
}

static void print_build(void) {
    printf("weft %s (headers %d.%d.%d)\n", weft_version(), WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
           WEFT_VERSION_PATCH);
    for (int i = 0; i < N_BUILD; i++) printf("  %-12s %s\n", build[i][0], build[i][1]);
}

static void print_counters(weft_worker_t *worker) {
    const char *name;
    uint64_t value;
    for (size_t i = 0; weft_worker_counter(worker, i, &name, &value) == WEFT_OK; i++)
        printf("%s\n", name);
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* ,"key": unless it is the object's first */
static void key(const char *name, int *first) {
    if (!*first) putchar(',');
    *first = 0;
    json_text(stdout, name);
    putchar(':');
}

static void text(const char *name, const char *value, int *first) {
    key(name, first);
    json_text(stdout, value);
}

static void number_info(const char *name, double value, int *first) {
    key(name, first);
    json_number(stdout, value, 12);
}

static void json_transport(const weft_transport_info_t *t) {
    int first = 1, first_cap = 1;
    putchar('{');
    text("name", t->name, &first);
    text("device", t->device, &first);
    number_info("latency_ns", t->latency_ns, &first);
    number_info("bandwidth", t->bandwidth, &first);
    number_info("overhead_ns", t->overhead_ns, &first);
    number_info("message_rate", t->message_rate, &first);
    number_info("max_short", (double)t->max_short, &first);
    number_info("max_bcopy", (double)t->max_bcopy, &first);
    number_info("max_zcopy", (double)t->max_zcopy, &first);
    number_info("max_iov", (double)t->max_iov, &first);
    number_info("numa_node", t->numa_node, &first);
    key("capabilities", &first);
    putchar('[');
    for (unsigned bit = 0; weft_capability_name(bit); bit++) {
        if (!(t->capabilities >> bit & 1)) continue;
        if (!first_cap) putchar(',');
        first_cap = 0;
        json_text(stdout, weft_capability_name(bit));
    }
    fputs("]}", stdout);
}

static void json_transports(weft_worker_t *worker) {
    weft_transport_info_t t;
    for (size_t i = 0; weft_worker_transport(worker, i, &t) == WEFT_OK; i++) {
        if (i > 0) putchar(',');
        json_transport(&t);
    }
}

static void json_unopened(weft_worker_t *worker) {
    const char *name, *why;
    for (size_t i = 0; weft_worker_unopened(worker, i, &name, &why) == WEFT_OK; i++) {
        int first = 1;
        fputs(i > 0 ? ",{" : "{", stdout);
        text("name", name, &first);
        text("why", why, &first);
        putchar('}');
    }
}

static void json_config(weft_context_t *context) {
    weft_setting_info_t s;
    for (size_t i = 0; weft_context_setting(context, i, &s) == WEFT_OK; i++) {
        int first = 1;
        if (i > 0) putchar(',');
        putchar('{');
        text("name", s.name, &first);
        text("value", s.value, &first);
        text("unit", s.unit, &first);
        text("range", s.range, &first);
        text("origin", origin_name(s.origin), &first);
        text("help", s.help, &first);
        putchar('}');
    }
}

static void json_counters(weft_worker_t *worker) {
    const char *name;
    uint64_t value;
    for (size_t i = 0; weft_worker_counter(worker, i, &name, &value) == WEFT_OK; i++) {
        if (i > 0) putchar(',');
        json_text(stdout, name);
    }
}

/* False: a transport or a peer that was named is not there. */
static int json_all(weft_context_t *context, weft_worker_t *worker, int what, char *const *names,
                    int n_names) {
    int first = 1, first_build = 0, found = 1;
    putchar('{');
    if (what & BUILD) {
        key("build", &first);
        fputs("{\"version\":", stdout);
        json_text(stdout, weft_version());
        for (int i = 0; i < N_BUILD; i++) text(build[i][0], build[i][1], &first_build);
        putchar('}');
    }
    if (what & TRANSPORTS) {
        key("transports", &first);
        putchar('[');
        json_transports(worker);
        putchar(']');
        key("unopened", &first);
        putchar('[');
        json_unopened(worker);
        putchar(']');
    }
    struct rd_list *devices = what & TRANSPORTS ? info_devices_of(context) : NULL;
    if (devices) {
        key("rdma", &first);
        info_devices_json(devices);
    }
    if (what & TRANSPORTS && info_gpus_open()) {
        key("cuda", &first);
        info_gpus_json();
    }
    if (what & CONFIG) {
        key("config", &first);
        putchar('[');
        json_config(context);
        putchar(']');
    }
    if (what & COUNTERS) {
        key("counters", &first);
        putchar('[');
        json_counters(worker);
        putchar(']');
    }
    if (what & PROTOCOLS) {
        key("protocols", &first);
        found = info_protocols_json(worker, names, n_names);
    }
    if (n_names > 0) {
        key("pairs", &first);
        found &= info_pairs_json(worker, names, n_names);
    }
    puts("}");
    return found;
}

static void print_all(weft_context_t *context, weft_worker_t *worker, int what) {
    if (what & BUILD) print_build();
    if (what & TRANSPORTS) print_transports(worker);
    if (what & TRANSPORTS) info_devices(info_devices_of(context));
    if (what & TRANSPORTS && info_gpus_open()) info_gpus();
    if (what & CONFIG) print_config(context);
    if (what & COUNTERS) print_counters(worker);
}

static int new_key(const char *path) {
    if (access(path, F_OK) == 0) {
        fprintf(stderr, "weft-info: %s is there already\n", path);
        return 0;
    }
    return must(weft__trust_key_make(NULL, path), "new key");
}

struct asked {
    int what, json, live, view, svg, collectives;
    const char *new_key;
};

enum { GO_ON = -1 };

/* Returns the exit status of an option that is all there is to do, or GO_ON. */
static int read_options(int argc, char **argv, struct asked *asked) {
    static const struct option options[] = {{"transports", no_argument, NULL, 't'},
                                            {"config", no_argument, NULL, 'c'},
                                            {"build", no_argument, NULL, 'b'},
                                            {"counters", no_argument, NULL, 'n'},
                                            {"protocols", no_argument, NULL, 'p'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"collectives", no_argument, NULL, 'o'},
                                            {"live", required_argument, NULL, 'l'},
                                            {"view", no_argument, NULL, 'v'},
                                            {"new-key", required_argument, NULL, 'k'},
                                            {"svg", no_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    uint64_t pid = 0;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 't': asked->what |= TRANSPORTS; break;
        case 'c': asked->what |= CONFIG; break;
        case 'b': asked->what |= BUILD; break;
        case 'n': asked->what |= COUNTERS; break;
        case 'p': asked->what |= PROTOCOLS; break;
        case 'j': asked->json = 1; break;
        case 's': asked->svg = 1; break;
        case 'l':
            if (program_number(optarg, 1, INT_MAX, &pid)) break;
            fprintf(stderr, "weft-info: --live %s: no process\n", optarg);
            return 2;
        case 'v': asked->view = 1; break;
        case 'o': asked->collectives = 1; break;
        case 'k': asked->new_key = optarg; break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs("Try weft-info --help.\n", stderr); return 2;
        }
    }
    asked->live = (int)pid;
    return GO_ON;
}

static int refuse(const char *what, const char *why) {
    fprintf(stderr, "weft-info: %s%s\nTry weft-info --help.\n", what, why);
    return 2;
}

static int check_options(const struct asked *asked, const char *rest) {
    const char *alone = asked->new_key       ? "--new-key"
                        : asked->collectives ? "--collectives"
                        : asked->live        ? "--live"
                        : asked->view        ? "--view"
                                             : NULL;
    int n = !!asked->what + !!asked->live + asked->view + asked->collectives + !!asked->new_key;
    if (rest && !(asked->what & PROTOCOLS)) return refuse(rest, ": not understood");
    if (asked->svg && (!asked->view || asked->json)) return refuse("--svg", " is for --view");
    if (alone && n > 1) return refuse(alone, " goes alone");
    if (asked->json && (asked->collectives || asked->new_key)) return refuse(alone, " has no JSON");
    return GO_ON;
}

/* What this process finds out by a worker of its own. */
static bool show_own(int what, int json, char **names, int n_names) {
    weft_context_t *context;
    weft_worker_t *worker;
    int found = 1;
    if (!must(weft_context_create(NULL, &context), "context")) return false;
    if (!must(weft_worker_create(context, NULL, &worker), "worker")) return false;
    if (json)
        found = json_all(context, worker, what, names, n_names);
    else
        print_all(context, worker, what);
    if (what & PROTOCOLS && !json) found = info_protocols(worker, names, n_names);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return found;
}

static bool show(const struct asked *asked, int *argc, char ***argv) {
    if (asked->new_key) return new_key(asked->new_key);
    if (asked->collectives) return info_collectives();
    if (asked->live) return info_live(asked->live, asked->json);
    if (asked->view)
        return info_view(argc, argv, asked->svg ? INFO_SVG : asked->json ? INFO_JSON : INFO_TEXT);
    int what = asked->what ? asked->what : TRANSPORTS | CONFIG | BUILD;
    return show_own(what, asked->json, *argv + optind, *argc - optind);
}

int main(int argc, char **argv) {
    struct asked asked = {0};
    program_begin();
    int status = read_options(argc, argv, &asked);
    if (status == GO_ON) status = check_options(&asked, argv[optind]);
    if (status == GO_ON) status = show(&asked, &argc, &argv) ? 0 : 1;
    return program_end("weft-info", status);
}

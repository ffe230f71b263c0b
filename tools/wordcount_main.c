/*
 * wordcount: several processes count the words of real text together. Each reads its share of the
 * files and sends counts, in batches, to the process that owns the word's hash; they agree on
 * totals and gather the top 20. Rank 0 then counts everything again, plainly and alone, and
 * compares.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#include "program/program.h"
#include "run/job.h"
#include "wordcount/bar.h"
#include "wordcount/files.h"
#include "wordcount/serial.h"
#include "wordcount/words.h"

static const char usage[] =
    "wordcount [-n N] [--transport shm|tcp|rdma_rc|rdma_ud] [FILES…]\n"
    "\n"
    "Counts the words of FILES (folders stand for all files in them) with the processes that a "
    "launcher\n"
    "started (weft-run, mpirun, prterun, …), and checks the result\n"
    "against a plain serial count: the exit code is 1 when they differ. Without FILES: the "
    "licenses and copyright\n"
    "notices of this system.\n"
    "\n"
    "  -n, --ranks N          start N processes itself, where weft-run did not\n"
    "      --transport NAME   shm, tcp, rdma_rc or rdma_ud; as configured, unless given\n"
    "      --corrupt RANK     let that rank count one word too many, to see the check fail\n"
    "  -h, --help             this text\n";

enum { AM_COUNTS = 1, AM_PROGRESS = 2 };
enum { BATCH = 16384, COMBINED_WORDS = 8192, STUCK_MS = 30000 };

/* Counts on their way to the owner of their words: [u32 count, little-endian][u8 length][word] … */
struct batch {
    bool in_flight; /* its memory is in use until the send completes */
    size_t len;
    uint8_t bytes[BATCH];
};

/* One is filled while the other is sent: that is all the back-pressure there is. */
struct outlet {
    weft_ep_t *ep;
    unsigned filling;
    struct batch batch[2];
};

struct app {
    weft_view_t *view;
    weft_worker_t *worker; /* the view's, and its team */
    weft_team_t *team;
    uint32_t rank, size;
    int corrupt; /* rank, or -1 */
    bool failed;

    struct files files;
    struct table combined; /* words of our share, not yet sent */
    struct table owned;    /* words whose hash is ours, from everybody */
    struct outlet *outlets;
    uint64_t *batches_to;  /* sent, by rank */
    uint64_t batches_here; /* received */
    uint64_t *read_by;     /* bytes read, by rank; rank 0's view */
    struct bar bar;
};

static _Noreturn void die(const char *what, weft_status_t status) {
    char text[1024];
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "wordcount: %s: %s\n", what, text);
    exit(1);
}

static void must(weft_status_t status, const char *what) {
    if (status < 0) die(what, status);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* False when the bytes are no batch. */
static bool take_counts(struct table *t, const uint8_t *p, size_t left) {
    while (left > 0) {
        if (left < 5 || p[4] == 0 || p[4] > WORD_MAX || left < 5u + p[4]) return false;
        uint32_t count =
            (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        const char *word = (const char *)p + 5;
        if (!table_add(t, word, p[4], word_hash(word, p[4]), count)) return false;
        left -= 5u + p[4];
        p += 5 + p[4];
    }
    return true;
}

static void on_counts(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct app *app = arg;
    (void)ep;
    app->batches_here++;
    if (!am->data || !take_counts(&app->owned, am->data, am->len)) app->failed = true;
}

static void on_progress(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct app *app = arg;
    uint64_t sent[2], done = 0; /* rank, bytes */
    (void)ep;
    if (am->header_len != sizeof sent) return;
    memcpy(sent, am->header, sizeof sent);
    if (sent[0] >= app->size) return;
    app->read_by[sent[0]] = sent[1];
    for (uint32_t i = 0; i < app->size; i++) done += app->read_by[i];
    bar_draw(&app->bar, weft_worker_now(app->worker), done, app->files.bytes);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void wait_for_something(struct app *app) {
    if (weft_worker_wait(app->worker, STUCK_MS) == WEFT_ERR_TIMED_OUT)
        die("nothing happens", WEFT_ERR_TIMED_OUT);
    if (app->failed) die("counting", WEFT_ERR_INTERNAL);
}

static void on_sent(weft_status_t status, void *arg) {
    must(status, "send");
    ((struct batch *)arg)->in_flight = false;
}

static struct batch *filling(struct outlet *out) {
    return &out->batch[out->filling];
}

static void send_batch(struct app *app, uint32_t owner) {
    struct outlet *out = &app->outlets[owner];
    struct batch *batch = filling(out);
    weft_iov_t iov = {batch->bytes, batch->len};
    weft_op_t op = {.done = on_sent, .arg = batch, .flags = WEFT_AM_EAGER};
    if (batch->len == 0) return;
    weft_status_t st = weft_am_send(out->ep, AM_COUNTS, NULL, 0, &iov, 1, &op);
    must(st, "send");
    app->batches_to[owner]++;
    batch->in_flight = st == WEFT_IN_PROGRESS;

    out->filling ^= 1;
    while (filling(out)->in_flight) wait_for_something(app);
    filling(out)->len = 0;
}

static void send_count(struct app *app, const struct count *c) {
    uint32_t owner = (uint32_t)((c->hash >> 32) % app->size);
    struct outlet *out = &app->outlets[owner];
    if (filling(out)->len + 5 + c->len > BATCH) send_batch(app, owner);
    struct batch *batch = filling(out);
    uint8_t *p = batch->bytes + batch->len;
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(c->count >> (8 * i));
    p[4] = c->len;
    memcpy(p + 5, c->word, c->len);
    batch->len += 5u + c->len;
}

static void send_combined(struct app *app) {
    for (size_t i = 0; i < app->combined.n_slots; i++)
        if (app->combined.slots[i].len > 0) send_count(app, &app->combined.slots[i]);
    table_clear(&app->combined);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void on_word(const char *word, size_t len, void *arg) {
    struct app *app = arg;
    if (!table_add(&app->combined, word, len, word_hash(word, len), 1))
        die("counting", WEFT_ERR_NO_MEMORY);
}

static void send_progress(struct app *app) {
    uint64_t sent[2] = {app->rank, app->read_by[app->rank]};
    must(weft_am_send(app->outlets[0].ep, AM_PROGRESS, sent, sizeof sent, NULL, 0, NULL),
         "progress");
}

static void read_file(struct app *app, const struct text_file *file) {
    char piece[65536];
    struct scanner scanner = {.found = on_word, .arg = app};
    uint64_t left = file->size;
    FILE *from = fopen(file->path, "rb");
    while (from && left > 0) {
        size_t n = fread(piece, 1, left < sizeof piece ? left : sizeof piece, from);
        if (n == 0) break;
        scanner_feed(&scanner, piece, n);
        left -= n;
        app->read_by[app->rank] += n;
        if (app->combined.n > COMBINED_WORDS) send_combined(app);
        weft_worker_progress(app->worker, 0); /* others' counts come meanwhile */
    }
    scanner_end(&scanner);
    if (!from || left > 0) {
        perror(file->path);
        exit(1);
    }
    fclose(from);
}

static void read_share(struct app *app) {
    uint64_t notified_at = 0;
    for (size_t i = 0; i < app->files.n; i++) {
        if (app->files.list[i].rank != app->rank) continue;
        read_file(app, &app->files.list[i]);
        uint64_t now = weft_worker_now(app->worker);
        if (now - notified_at < 50000000) continue;
        notified_at = now;
        send_progress(app);
    }
    if (app->corrupt == (int)app->rank) on_word("and", 3, app);
    send_combined(app);
    for (uint32_t i = 0; i < app->size; i++) send_batch(app, i);
}

/* Everybody learns how many batches were sent to it, and waits for them. */
static void receive_rest(struct app *app) {
    weft_status_t st = weft_allreduce_wait(app->team, app->batches_to, app->batches_to, app->size,
                                           WEFT_UINT64, WEFT_SUM);
    must(st, "allreduce");
    while (app->batches_here < app->batches_to[app->rank]) wait_for_something(app);
}

/* ---- totals ---------------------------------------------------------------------------------- */

static const char *const traffic_names[][3] = {
    {"self", "self.messages", "self.bytes"},
    {"shm", "shm.messages_out", "shm.bytes_out"},
    {"tcp", "tcp.messages_out", "tcp.bytes_out"},
    {"rdma_rc", "rdma.messages_out", "rdma.bytes_out"},
    {"rdma_ud", "rdma_ud.messages_out", "rdma_ud.bytes_out"}};
enum { N_TRAFFIC = sizeof traffic_names / sizeof traffic_names[0] };

struct totals {
    uint64_t words, distinct, fingerprint;
    uint64_t traffic[N_TRAFFIC][2]; /* messages, bytes */
};

static struct totals own_totals(const struct app *app) {
    struct totals sum = {.distinct = app->owned.n};
    for (size_t i = 0; i < app->owned.n_slots; i++) {
        const struct count *c = &app->owned.slots[i];
        if (c->len == 0) continue;
        sum.words += c->count;
        sum.fingerprint += word_fingerprint(c->hash, c->count);
    }
    for (int i = 0; i < N_TRAFFIC; i++)
        for (int j = 0; j < 2; j++)
            sum.traffic[i][j] = weft_worker_count(app->worker, traffic_names[i][1 + j]);
    return sum;
}

static void agree(struct app *app, struct totals *totals_p, struct result *result_p) {
    struct totals sum = own_totals(app);
    size_t n = sizeof sum / sizeof(uint64_t);
    must(weft_allreduce_wait(app->team, &sum, &sum, n, WEFT_UINT64, WEFT_SUM), "allreduce");
    *totals_p = sum;

    struct count mine[TOP] = {{0}}, *all = calloc((size_t)app->size * TOP, sizeof *all);
    if (!all) die("top", WEFT_ERR_NO_MEMORY);
    table_top(&app->owned, mine, TOP);
    must(weft_allgather_wait(app->team, mine, all, sizeof mine, WEFT_UINT8), "allgather");
    qsort(all, (size_t)app->size * TOP, sizeof all[0], count_compare);
    *result_p = (struct result){
        .words = sum.words, .distinct = sum.distinct, .fingerprint = sum.fingerprint};
    while (result_p->n_top < TOP && all[result_p->n_top].len > 0) result_p->n_top++;
    memcpy(result_p->top, all, result_p->n_top * sizeof all[0]);
    free(all);
}

static void print(const struct app *app, const struct result *r, const struct totals *t,
                  double seconds) {
    printf("%3s  %-20s %12s\n", "", "word", "count");
    for (size_t i = 0; i < r->n_top; i++)
        printf("%3zu  %-20.*s %12" PRIu64 "\n", i + 1, r->top[i].len, r->top[i].word,
               r->top[i].count);
    printf("%" PRIu64 " words, %" PRIu64
           " different, in %zu files (%.1f MB), by %u processes in %.3f s\n",
           r->words, r->distinct, app->files.n, (double)app->files.bytes / 1e6, app->size, seconds);
    for (int i = 0; i < N_TRAFFIC; i++)
        if (t->traffic[i][0] > 0)
            printf("%s: %" PRIu64 " messages, %" PRIu64 " bytes\n", traffic_names[i][0],
                   t->traffic[i][0], t->traffic[i][1]);
}

static bool verify(struct app *app, const struct result *result) {
    struct result serial;
    uint64_t begin = weft_worker_now(app->worker);
    bool equal = serial_count(&app->files, &serial) && results_equal(result, &serial);
    printf("check: %s a serial count, which took %.3f s\n", equal ? "equal to" : "DIFFERENT from",
           (double)(weft_worker_now(app->worker) - begin) / 1e9);
    return equal;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The view's worker takes its transports from the setting. */
static void open_all(struct app *app, weft_view_params_t *params, const char *transport) {
    char transports[64];
    snprintf(transports, sizeof transports, "self,%s", transport ? transport : "");
    if (transport) setenv("WEFT_TRANSPORTS", transports, 1);
    must(weft_view_create_wait(params, &app->view), "view");
    app->worker = weft_view_worker(app->view);
    app->team = weft_view_team(app->view);
    must(weft_am_handler_set(app->worker, AM_COUNTS, on_counts, app), "handler");
    must(weft_am_handler_set(app->worker, AM_PROGRESS, on_progress, app), "handler");

    app->size = weft_view_size(app->view);
    app->rank = weft_view_rank(app->view);
    app->outlets = calloc(app->size, sizeof app->outlets[0]);
    app->batches_to = calloc(app->size, sizeof app->batches_to[0]);
    app->read_by = calloc(app->size, sizeof app->read_by[0]);
    if (!app->outlets || !app->batches_to || !app->read_by ||
        !table_open(&app->combined, 4 * COMBINED_WORDS) || !table_open(&app->owned, 4096))
        die("tables", WEFT_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < app->size; i++) app->outlets[i].ep = weft_team_ep(app->team, i);
}

static void close_all(struct app *app) {
    must(weft_barrier_wait(app->team), "barrier");
    must(weft_view_release_wait(app->view), "release");
    table_close(&app->combined);
    table_close(&app->owned);
    files_close(&app->files);
    free(app->outlets);
    free(app->batches_to);
    free(app->read_by);
}

static int run_wordcount(struct app *app, char **names, size_t n_names, weft_view_params_t *params,
                         const char *transport) {
    open_all(app, params, transport);
    if (!files_find(&app->files, names, n_names, app->size)) exit(1);
    app->bar.fd = -1;
    if (app->rank == 0) bar_open(&app->bar);

    struct totals totals;
    struct result result;
    must(weft_barrier_wait(app->team), "barrier");
    uint64_t begin = weft_worker_now(app->worker);
    read_share(app);
    receive_rest(app);
    agree(app, &totals, &result);
    double seconds = (double)(weft_worker_now(app->worker) - begin) / 1e9;
    bar_close(&app->bar);
    if (app->rank == 0) print(app, &result, &totals, seconds);

    bool right = app->rank != 0 || verify(app, &result);
    fflush(stdout);
    close_all(app);
    return right ? 0 : 1;
}

static int refuse(const char *option, const char *value, const char *why) {
    fprintf(stderr, "wordcount: --%s %s: %s\nTry wordcount --help.\n", option, value, why);
    return 2;
}

int main(int argc, char **argv) {
    program_begin();
    static const struct option options[] = {{"transport", required_argument, NULL, 't'},
                                            {"corrupt", required_argument, NULL, 'c'},
                                            {"ranks", required_argument, NULL, 'n'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct app app = {.corrupt = -1};
    const char *transport = NULL;
    uint64_t ranks = 1, corrupt;
    int c;
    while ((c = getopt_long(argc, argv, "n:h", options, NULL)) != -1) {
        switch (c) {
        case 't': transport = optarg; break;
        case 'c':
            if (!program_number(optarg, 0, 4095, &corrupt))
                return refuse("corrupt", optarg, "0 to 4095");
            app.corrupt = (int)corrupt;
            break;
        case 'n':
            if (!program_number(optarg, 1, 4096, &ranks))
                return refuse("ranks", optarg, "1 to 4096");
            break;
        case 'h': fputs(usage, stdout); return program_end("wordcount", 0);
        default: fputs("Try wordcount --help.\n", stderr); return 2;
        }
    }
    if (ranks > 1 && !getenv("WEFT_RUN_RANK")) {
        struct job_params job = {.tool = "wordcount",
                                 .n = (uint32_t)ranks,
                                 .file = "/proc/self/exe",
                                 .argv = argv,
                                 .plain = true};
        return job_run(&job);
    }
    weft_view_params_t params = {.argc = &argc, .argv = &argv};
    return program_end("wordcount", run_wordcount(&app, argv + optind, (size_t)(argc - optind),
                                                  &params, transport));
}

/* Parts of the tools that can be wrong quietly: percentiles, words, the end of a job. */
#include "../harness.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tools/info/live.h>
#include <tools/perf/histogram.h>
#include <tools/run/job.h>
#include <tools/wordcount/words.h>
#include <weft/weft.h>

TEST(percentiles_are_right_to_two_percent) {
    static struct histogram h;
    histogram_clear(&h);
    for (int i = 1; i <= 100000; i++) histogram_add(&h, i * 0.7, 1);
    for (double part = 0.01; part < 1; part += 0.01) {
        double wanted = part * 100000 * 0.7, got = histogram_percentile(&h, part);
        CHECK(fabs(got - wanted) <= 0.02 * wanted);
    }
    CHECK(fabs(histogram_mean(&h) - 50000.5 * 0.7) < 0.01);
}

TEST(weights_count) {
    static struct histogram h;
    histogram_clear(&h);
    histogram_add(&h, 100, 99);
    histogram_add(&h, 100000, 1);
    CHECK(histogram_percentile(&h, 0.5) < 103);
    CHECK(histogram_percentile(&h, 0.985) < 103);
    CHECK(histogram_percentile(&h, 0.995) > 98000);
}

TEST(any_time_has_a_slot) {
    static struct histogram h;
    static const double times[] = {-1, 0, 1e-9, 0.5, 1, 1e9, 1e18, INFINITY};
    histogram_clear(&h);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) histogram_add(&h, times[i], 1);
    CHECK_EQ(h.n, sizeof times / sizeof times[0]);
}

static char words[4096];
static void note(const char *word, size_t len, void *arg) {
    (void)arg;
    strncat(words, word, len);
    strcat(words, "|");
}

TEST(words_are_the_same_however_the_text_is_cut) {
    static const char text[] = "Hello, WORLD! it's na\xc3\xafve 42x";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        struct scanner s = {.found = note};
        words[0] = 0;
        scanner_feed(&s, text, cut);
        scanner_feed(&s, text + cut, sizeof text - 1 - cut);
        scanner_end(&s);
        CHECK(strcmp(words, "hello|world|it|s|na\xc3\xafve|x|") == 0);
    }
}

TEST(a_word_without_end_is_cut) {
    struct scanner s = {.found = note};
    words[0] = 0;
    for (int i = 0; i < WORD_MAX + 5; i++) scanner_feed(&s, "x", 1);
    scanner_end(&s);
    CHECK_EQ(strlen(words), WORD_MAX + 5 + 2);
    CHECK_EQ(strchr(words, '|') - words, WORD_MAX);
}

TEST(a_table_grows_and_forgets_nothing) {
    struct table t;
    char word[16];
    CHECK(table_open(&t, 2));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5000; i++) {
            size_t len = (size_t)sprintf(word, "w%d", i);
            CHECK(table_add(&t, word, len, word_hash(word, len), (uint64_t)i + 1));
        }
    }
    CHECK_EQ(t.n, 5000);
    struct count top[3];
    CHECK_EQ(table_top(&t, top, 3), 3);
    CHECK_EQ(top[0].count, 10000);
    CHECK_EQ(top[2].count, 9996);
    CHECK(memcmp(top[0].word, "w4999", 5) == 0);
    table_close(&t);
}

/* ---- the job's machine, without processes ---------------------------------------------------- */

static int effects[JOB_N_EFFECTS], bugs;
static void effect(struct fsm *m, unsigned what) {
    (void)m;
    effects[what]++;
}
static void fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    (void)m;
    (void)event;
    (void)why;
    bugs++;
}
static const struct fsm_port port = {&weft__job_machine, effect, fail};

static struct job new_job(void) {
    struct job job = {.reason = 7};
    memset(effects, 0, sizeof effects);
    bugs = 0;
    fsm_init(&job.fsm, &port, JOB_RUNNING, 1);
    return job;
}

TEST(the_first_reason_is_the_exit_code) {
    struct job job = new_job();
    weft__fsm_step(&job.fsm, JOB_EV_FAILED);
    job.reason = 143;
    weft__fsm_step(&job.fsm, JOB_EV_FAILED);
    weft__fsm_step(&job.fsm, JOB_EV_TIMEOUT);
    weft__fsm_step(&job.fsm, JOB_EV_LAST);
    CHECK_EQ(job.code, 7);
    CHECK_EQ(job.fsm.state, JOB_OVER);
    CHECK_EQ(effects[JOB_FX_TERMINATE], 1);
    CHECK_EQ(effects[JOB_FX_KILL], 0);
    CHECK_EQ(effects[JOB_FX_LEAVE], 1);
}

TEST(a_second_interrupt_does_not_wait) {
    struct job job = new_job();
    job.reason = 130;
    weft__fsm_step(&job.fsm, JOB_EV_STOP);
    CHECK_EQ(effects[JOB_FX_KILL], 0);
    weft__fsm_step(&job.fsm, JOB_EV_STOP);
    CHECK_EQ(effects[JOB_FX_KILL], 1);
    weft__fsm_step(&job.fsm, JOB_EV_GRACE);
    CHECK_EQ(effects[JOB_FX_KILL], 1);
    weft__fsm_step(&job.fsm, JOB_EV_LAST);
    CHECK_EQ(job.code, 130);
}

static void lose(struct job *job, bool by_signal, int code) {
    job->by_signal = by_signal;
    job->reason = code;
    weft__fsm_step(&job->fsm, JOB_EV_LOST);
    CHECK(job_is_running(&job->fsm));
}

TEST(where_the_others_keep_going_those_that_are_left_give_the_exit_code) {
    static const struct {
        bool well;
        int killed, exited, then, code;
    } jobs[] = {{true, 137, 0, 0, 0}, {false, 137, 0, 0, 137}, {true, 137, 3, 4, 3},
                {false, 0, 3, 0, 3},  {true, 0, 0, 0, 0},      {false, 139, 5, 0, 5}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct job job = new_job();
        job.well = jobs[i].well;
        if (jobs[i].killed) lose(&job, true, jobs[i].killed);
        if (jobs[i].exited) lose(&job, false, jobs[i].exited);
        if (jobs[i].then) lose(&job, false, jobs[i].then);
        weft__fsm_step(&job.fsm, JOB_EV_LAST);
        CHECK_EQ(job.code, jobs[i].code);
        CHECK_EQ(effects[JOB_FX_TERMINATE], 0);
        CHECK_EQ(effects[JOB_FX_LEAVE], 1);
    }
}

/* Every sequence of events to depth six that the port can bring about: once LAST was said,
 * nothing fails any more. */
static void walk(struct job job, int depth) {
    for (unsigned event = 0; depth > 0 && event < JOB_N_EVENTS; event++) {
        bool possible = job.fsm.state != JOB_OVER ||
                        (event != JOB_EV_FAILED && event != JOB_EV_LOST && event != JOB_EV_LAST);
        if (event == JOB_EV_GRACE && job.fsm.state == JOB_RUNNING) possible = false;
        if (!possible) continue;
        struct job next = job;
        weft__fsm_step(&next.fsm, event);
        CHECK_EQ(bugs, 0);
        CHECK((next.code != 0) == (next.code == 7 || next.code == JOB_CODE_TIMEOUT));
        walk(next, depth - 1);
    }
}

TEST(no_order_of_events_reaches_a_bug) {
    walk(new_job(), 6);
}

/* ---- a process of a job, before it is its program -------------------------------------------- */

static const int job_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};

/* In place of the C library's: the process exits with the number of signals that it would not end
 * by. */
int execvp(const char *file, char *const argv[]) {
    struct sigaction now;
    sigset_t blocked;
    int n = 0;
    (void)file, (void)argv;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (size_t i = 0; i < sizeof job_signals / sizeof *job_signals; i++) {
        sigaction(job_signals[i], NULL, &now);
        n += now.sa_handler != SIG_DFL || sigismember(&blocked, job_signals[i]);
    }
    _exit(n);
}

TEST(no_signal_runs_a_handler_in_a_process_that_is_not_its_program_yet) {
    char *argv[] = {"true", NULL};
    struct job_params params = {.tool = "job", .n = 1, .file = "true", .argv = argv, .plain = true};
    int status = 1;
    fflush(stdout);
    pid_t child = fork(); /* it has the loop of the signals */
    CHECK(child >= 0);
    if (child == 0) {
        /* Under nohup(1) a job leaves SIGHUP ignored, and so do its processes. */
        for (size_t i = 0; i < sizeof job_signals / sizeof *job_signals; i++)
            signal(job_signals[i], SIG_DFL);
        _exit(job_run(&params));
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* ---- weft-info --live */

static const char shown_name[] = "a-worker's-name";
static char page[1 << 20], printed[1 << 16];

/* The bytes of the first page that this process shows. */
static size_t own_page(void) {
    DIR *dir = opendir("/proc/self/fd");
    ssize_t n = 0;
    for (struct dirent *entry; n <= 0 && dir && (entry = readdir(dir)) != NULL;) {
        char path[300], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) < 0 || !strstr(target, "/memfd:weft-live"))
            continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        n = read(fd, page, sizeof page);
        close(fd);
    }
    closedir(dir);
    return n > 0 ? (size_t)n : 0;
}

/* What weft-info --live prints of this process. */
static size_t print_own(int json) {
    FILE *to = tmpfile();
    int before = dup(1);
    CHECK(to && before >= 0);
    fflush(stdout);
    dup2(fileno(to), 1);
    int found = info_live(getpid(), json);
    fflush(stdout);
    dup2(before, 1);
    close(before);
    rewind(to);
    size_t n = fread(printed, 1, sizeof printed - 1, to);
    fclose(to);
    printed[n] = 0;
    return found ? n : 0;
}

/* A process shows what it likes: here a title for the terminal. */
TEST(what_a_process_shows_is_printed_as_plain_characters) {
    static const char title[] = "\x1b]0;title\x07\x9b"
                                "31m\n";
    weft_context_t *context;
    weft_worker_t *worker;
    _Static_assert(sizeof title == sizeof shown_name, "one takes the other's place");
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    weft_worker_params_t params = {.transports = "self", .name = shown_name};
    CHECK_EQ(weft_worker_create(context, &params, &worker), 0);
    size_t size = own_page();
    char *name = memmem(page, size, shown_name, sizeof shown_name);
    CHECK(name != NULL);
    memcpy(name, title, sizeof title);
    int fd = memfd_create("weft-live", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && write(fd, page, size) == (ssize_t)size);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    size_t n = print_own(0);
    CHECK(strstr(printed, shown_name) && strstr(printed, "?]0;title??31m?"));
    for (size_t i = 0; i < n; i++)
        CHECK(printed[i] == '\n' || (printed[i] >= ' ' && printed[i] <= '~'));
    close(fd);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(a_shared_worker_is_shown_with_its_user_and_its_ids) {
    static const char line[] = "worker \"the program's\", READY, from worker a program, user "
                               "worker a library, ids 512 to 575";
    weft_context_t *context, *librarys;
    weft_worker_t *worker, *user;
    weft_resource_t *resource;
    weft_worker_params_t self = {.transports = "self", .name = "a program"},
                         stub = {.name = "a library", .associated = 1};
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    CHECK_EQ(weft_worker_create(context, &self, &worker), 0);
    weft_resource_params_t params = {.name = "the program's"};
    CHECK_EQ(
        weft_resource_export(WEFT_OBJECT_WORKER, worker, WEFT_RESOURCE_WORKER, &params, &resource),
        0);
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.associated = 1}, &librarys), 0);
    CHECK_EQ(weft_worker_create(librarys, &stub, &user), 0);
    CHECK_EQ(weft_associate_resources(librarys, WEFT_OBJECT_WORKER,
                                      &(weft_associate_params_t){.resource = resource}, user),
             0);
    CHECK(print_own(0) > 0 && strstr(printed, "  resource: "));
    if (!strstr(printed, line)) printf("%s\n", printed);
    CHECK(strstr(printed, line) != NULL);
    CHECK(print_own(1) > 0 && strstr(printed, "\"resources\":[\"worker "));
    weft_worker_destroy(user);
    CHECK(print_own(0) > 0 && !strstr(printed, "resource: "));
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(librarys), 0);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

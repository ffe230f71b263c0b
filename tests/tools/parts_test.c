/* Parts of the tools that can be wrong quietly: percentiles, words, the end of a job. */
#include "../harness.h"
#include <math.h>
#include <tools/perf/histogram.h>
#include <tools/run/job.h>
#include <tools/wordcount/words.h>

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

/* Every sequence of events to depth six that the port can bring about: once LAST was said,
 * nothing fails any more. */
static void walk(struct job job, int depth) {
    for (unsigned event = 0; depth > 0 && event < JOB_N_EVENTS; event++) {
        bool possible =
            job.fsm.state != JOB_OVER || (event != JOB_EV_FAILED && event != JOB_EV_LAST);
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

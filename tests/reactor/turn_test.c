/* Run queue, timers, pollers, watches, the dead list and posted calls, driven by progress. */
#include <base/counters.h>
#include <pthread.h>
#include <reactor/reactor.h>
#include <tests/harness.h>
#include <time.h>

static weft_context_t *context;

static struct reactor *open_reactor(void) {
    struct reactor *r = NULL;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){0}, &r), WEFT_OK);
    return r;
}

static void close_reactor(struct reactor *r) {
    weft__reactor_destroy(r);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

/* ---- run queue ------------------------------------------------------------------------------- */

static char order[64];
static unsigned n_order;

struct named_job {
    struct job job;
    struct reactor *r;
    char name;
    bool again;
};

static void run_named(struct job *job) {
    struct named_job *j = (struct named_job *)job;
    order[n_order++] = j->name;
    order[n_order] = 0;
    if (j->again) weft__job_post(j->r, job);
}

TEST(jobs_run_in_the_order_posted_and_once) {
    struct reactor *r = open_reactor();
    struct named_job a = {.job.run = run_named, .r = r, .name = 'a'}, b = a, c = a;
    b.name = 'b', c.name = 'c', n_order = 0;
    weft__job_post(r, &b.job);
    weft__job_post(r, &a.job);
    weft__job_post(r, &b.job);
    weft__job_post(r, &c.job);
    CHECK_EQ(weft__reactor_progress(r, 0), 3);
    CHECK(!strcmp(order, "bac"));
    CHECK_EQ(weft__reactor_progress(r, 0), 0);
    close_reactor(r);
}

TEST(dropped_job_does_not_run) {
    struct reactor *r = open_reactor();
    struct named_job a = {.job.run = run_named, .r = r, .name = 'a'}, b = a, c = a;
    b.name = 'b', c.name = 'c', n_order = 0;
    weft__job_post(r, &a.job);
    weft__job_post(r, &b.job);
    weft__job_drop(r, &b.job); /* the last: what follows must still be reached */
    weft__job_post(r, &c.job);
    weft__job_drop(r, &b.job);
    CHECK_EQ(weft__reactor_progress(r, 0), 2);
    CHECK(!strcmp(order, "ac"));
    close_reactor(r);
}

TEST(spared_job_does_not_run_where_it_was_the_next) {
    struct reactor *r = open_reactor();
    struct named_job a = {.job.run = run_named, .r = r, .name = 'a'}, b = a, c = a;
    b.name = 'b', c.name = 'c', n_order = 0;
    weft__job_spare(r, &a.job); /* not queued */
    weft__job_post(r, &a.job);
    weft__job_post(r, &b.job);
    weft__job_spare(r, &b.job); /* not the next */
    weft__job_spare(r, &a.job);
    weft__job_post(r, &c.job);
    CHECK_EQ(weft__reactor_progress(r, 0), 2);
    CHECK(!strcmp(order, "bc"));
    weft__job_post(r, &a.job);
    weft__job_spare(r, &a.job); /* the only one: what follows must still be reached */
    weft__job_post(r, &b.job);
    CHECK_EQ(weft__reactor_progress(r, 0), 1);
    CHECK(!strcmp(order, "bcb"));
    close_reactor(r);
}

TEST(job_that_posts_itself_does_not_hold_the_turn) {
    struct reactor *r = open_reactor();
    struct named_job a = {.job.run = run_named, .r = r, .name = 'a', .again = true};
    n_order = 0;
    weft__job_post(r, &a.job);
    CHECK_EQ(weft__reactor_progress(r, 0), 1);
    CHECK_EQ(weft__reactor_progress(r, 0), 1);
    weft__job_drop(r, &a.job);
    CHECK_EQ(weft__reactor_progress(r, 0), 0);
    close_reactor(r);
}

TEST(budget_bounds_a_turn) {
    struct reactor *r = open_reactor();
    struct named_job jobs[10];
    n_order = 0;
    for (int i = 0; i < 10; i++) {
        jobs[i] = (struct named_job){{.run = run_named}, r, (char)('0' + i), false};
        weft__job_post(r, &jobs[i].job);
    }
    CHECK_EQ(weft__reactor_progress(r, 4), 4);
    CHECK_EQ(weft__reactor_progress(r, 4), 4);
    CHECK_EQ(weft__reactor_progress(r, 4), 2);
    CHECK(!strcmp(order, "0123456789"));
    close_reactor(r);
}

static int nested;
static void run_progress(struct job *job) {
    nested = weft__reactor_progress(((struct named_job *)job)->r, 0);
}

TEST(progress_within_a_callback_is_refused) {
    struct reactor *r = open_reactor();
    struct named_job a = {.job.run = run_progress, .r = r, .name = 'a'};
    weft__job_post(r, &a.job);
    CHECK_EQ(weft__reactor_progress(r, 0), 1);
    CHECK_EQ(nested, WEFT_ERR_BUSY);
    close_reactor(r);
}

/* ---- timers ---------------------------------------------------------------------------------- */

struct numbered_timer {
    struct timer timer;
    struct reactor *r;
    int number;
    uint64_t at;
};
static int fired[2048], n_fired;

static void note_fired(struct timer *timer) {
    fired[n_fired++] = ((struct numbered_timer *)timer)->number;
}

TEST(timers_fire_by_time_then_by_order_set) {
    struct reactor *r = open_reactor();
    static struct numbered_timer timers[1000];
    unsigned seed = 7;
    uint64_t past = weft__now(r) - 1000000;
    n_fired = 0;
    for (int i = 0; i < 1000; i++) {
        timers[i] = (struct numbered_timer){
            {.fire = note_fired}, r, i, past + (unsigned)rand_r(&seed) % 50};
        CHECK_EQ(weft__timer_start(r, &timers[i].timer, timers[i].at), WEFT_OK);
        CHECK_EQ(weft__timer_at(r, &timers[i].timer), timers[i].at);
    }
    for (int i = 0; i < 1000; i += 3) weft__timer_stop(r, &timers[i].timer);
    for (int i = 1; i < 1000; i += 6) {
        timers[i].at = past + (unsigned)rand_r(&seed) % 50;
        CHECK_EQ(weft__timer_start(r, &timers[i].timer, timers[i].at), WEFT_OK);
    }
    while (weft__reactor_progress(r, 7))
        ;
    CHECK_EQ(n_fired, 666);
    for (int i = 1; i < n_fired; i++) {
        CHECK(timers[fired[i - 1]].at <= timers[fired[i]].at);
        if (timers[fired[i - 1]].at == timers[fired[i]].at && fired[i - 1] % 6 != 1 &&
            fired[i] % 6 != 1)
            CHECK(fired[i - 1] < fired[i]);
    }
    for (int i = 0; i < 1000; i++) CHECK(!weft__timer_running(&timers[i].timer));
    close_reactor(r);
}

static unsigned n_restarts;
TEST(a_reserved_timer_starts_without_memory) {
    enum { N = 5000 };
    struct reactor *r = open_reactor();
    struct numbered_timer *timers = calloc(N, sizeof *timers),
                          more = {{.fire = note_fired}, r, 0, 0};
    uint64_t far = weft__now(r) + 60000000000u;
    for (int i = 0; i < N; i++) {
        timers[i] = (struct numbered_timer){{.fire = note_fired}, r, i, far};
        CHECK_EQ(weft__timer_reserve(r, &timers[i].timer), WEFT_OK);
        CHECK_EQ(weft__timer_reserve(r, &timers[i].timer), WEFT_OK); /* once is enough */
        CHECK(!weft__timer_running(&timers[i].timer));
    }
    weft__alloc_fail_run(1, 1000);
    for (int round = 0; round < 2; round++) { /* stopping keeps the reservation */
        for (int i = 0; i < N; i++) CHECK_EQ(weft__timer_start(r, &timers[i].timer, far), WEFT_OK);
        for (int i = 0; i < N; i++) weft__timer_stop(r, &timers[i].timer);
    }
    unsigned others = 0;
    static struct timer plain[4 * N]; /* what is not reserved gets no place of a reserved one */
    while (others < 4 * N && weft__timer_start(r, &plain[others], far) == WEFT_OK) others++;
    CHECK(others < 4 * N);
    for (int i = 0; i < N; i++) CHECK_EQ(weft__timer_start(r, &timers[i].timer, far), WEFT_OK);
    for (int i = 0; i < N; i++) weft__timer_release(r, &timers[i].timer);
    for (int i = 0; i < N; i++) CHECK(!weft__timer_running(&timers[i].timer));
    CHECK_EQ(weft__timer_start(r, &more.timer, far), WEFT_OK); /* what was released is free again */
    weft__alloc_fail_run(0, 0);
    weft__timer_release(r, &more.timer);
    for (unsigned i = 0; i < others; i++) weft__timer_stop(r, &plain[i]);
    close_reactor(r);
    free(timers);
}

static void restart_in_the_past(struct timer *timer) {
    struct numbered_timer *t = (struct numbered_timer *)timer;
    n_restarts++;
    CHECK_EQ(weft__timer_start(t->r, timer, t->at), WEFT_OK);
}

TEST(timer_that_restarts_itself_in_the_past_does_not_hold_the_turn) {
    struct reactor *r = open_reactor();
    struct numbered_timer t = {
        .timer.fire = restart_in_the_past, .r = r, .at = weft__now(r) - 1000000};
    n_restarts = 0;
    CHECK_EQ(weft__timer_start(r, &t.timer, t.at), WEFT_OK);
    CHECK_EQ(weft__reactor_progress(r, 100), 1);
    CHECK_EQ(n_restarts, 1);
    weft__timer_stop(r, &t.timer);
    close_reactor(r);
}

TEST(timer_fires_no_earlier_than_asked) {
    struct reactor *r = open_reactor();
    uint64_t at = weft__now(r) + 5000000;
    struct numbered_timer timer = {{.fire = note_fired}, r, 1, at};
    n_fired = 0;
    weft__timer_start(r, &timer.timer, at);
    CHECK_EQ(weft__reactor_wait(r, 1000), WEFT_OK);
    uint64_t late = weft__now(r) - at;
    CHECK_EQ(n_fired, 1);
    CHECK(late < 500000000);
    close_reactor(r);
}

/* ---- pollers --------------------------------------------------------------------------------- */

struct fake_poller {
    struct poller poller;
    struct reactor *r;
    int polled, ready;
    bool remove_self;
    struct fake_poller *remove;
};

static int poll_fake(struct poller *poller, unsigned budget) {
    struct fake_poller *p = (struct fake_poller *)poller;
    int n = p->ready < (int)budget ? p->ready : (int)budget;
    p->polled++;
    p->ready -= n;
    if (p->remove_self) weft__poller_remove(p->r, poller);
    if (p->remove) weft__poller_remove(p->r, &p->remove->poller);
    return n;
}

TEST(poller_may_remove_itself_or_the_next) {
    struct reactor *r = open_reactor();
    struct fake_poller a = {.poller.poll = poll_fake, .r = r, .remove_self = true},
                       b = {.poller.poll = poll_fake, .r = r},
                       c = {.poller.poll = poll_fake, .r = r};
    a.remove = &b;
    weft__poller_add(r, &a.poller);
    weft__poller_add(r, &b.poller);
    weft__poller_add(r, &c.poller);
    weft__reactor_progress(r, 0);
    weft__reactor_progress(r, 0);
    CHECK_EQ(a.polled, 1);
    CHECK_EQ(b.polled, 0);
    CHECK_EQ(c.polled, 2);
    weft__poller_remove(r, &c.poller);
    close_reactor(r);
}

TEST(poller_that_left_is_looked_at_once_a_turn_when_added_again) {
    struct reactor *r = open_reactor();
    struct fake_poller p = {.poller.poll = poll_fake, .r = r, .remove_self = true},
                       other = {.poller.poll = poll_fake, .r = r};
    weft__poller_add(r, &p.poller);
    weft__poller_add(r, &other.poller);
    for (int i = 0; i < 3; i++) weft__reactor_progress(r, 0);
    CHECK_EQ(p.polled, 1);
    p.remove_self = false;
    weft__poller_add(r, &p.poller);
    weft__poller_add(r, &p.poller);
    weft__reactor_progress(r, 0);
    CHECK_EQ(p.polled, 2);
    CHECK_EQ(other.polled, 4);
    weft__poller_remove(r, &p.poller);
    weft__poller_remove(r, &p.poller);
    weft__poller_remove(r, &other.poller);
    close_reactor(r);
}

TEST(flooded_poller_starves_neither_pollers_nor_jobs) {
    struct reactor *r = open_reactor();
    struct fake_poller flood = {.poller.poll = poll_fake, .r = r, .ready = 1 << 30},
                       quiet = {.poller.poll = poll_fake, .r = r, .ready = 5};
    struct named_job job = {.job.run = run_named, .r = r, .name = 'j'};
    weft__poller_add(r, &flood.poller);
    weft__poller_add(r, &quiet.poller);
    weft__job_post(r, &job.job);
    n_order = 0;
    for (int i = 0; i < 12; i++) CHECK_EQ(weft__reactor_progress(r, 1), 1);
    CHECK_EQ(n_order, 1);
    CHECK_EQ(quiet.ready, 0);
    weft__poller_remove(r, &flood.poller);
    weft__poller_remove(r, &quiet.poller);
    close_reactor(r);
}

static int poll_many(struct poller *poller, unsigned budget) {
    return 5 * poll_fake(poller, budget);
}

TEST(poller_that_handles_more_than_the_budget_does_not_lift_it) {
    struct reactor *r = open_reactor();
    struct fake_poller p = {.poller.poll = poll_many, .r = r, .ready = 1 << 20};
    struct named_job jobs[10];
    weft__poller_add(r, &p.poller);
    n_order = 0;
    for (int i = 0; i < 10; i++) {
        jobs[i] = (struct named_job){{.run = run_named}, r, (char)('0' + i), false};
        weft__job_post(r, &jobs[i].job);
    }
    for (unsigned turn = 1; n_order < 10; turn++) {
        CHECK(weft__reactor_progress(r, 2) > 0);
        CHECK(n_order <= 2 * turn);
    }
    weft__poller_remove(r, &p.poller);
    close_reactor(r);
}

/* ---- watches --------------------------------------------------------------------------------- */

struct pipe_watch {
    struct watch watch;
    struct reactor *r;
    int in, out, notified, stop;
};

static void read_one(struct watch *watch, int events) {
    struct pipe_watch *p = (struct pipe_watch *)watch;
    char byte;
    p->notified++;
    if (read(watch->fd, &byte, 1) != 1) abort();
    if (p->stop) weft__watch_stop(p->r, watch);
}

static void open_pipe(struct pipe_watch *p, struct reactor *r) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    *p = (struct pipe_watch){{.ready = read_one}, r, fds[0], fds[1], 0, 0};
    CHECK_EQ(weft__watch_start(r, &p->watch, p->in, WATCH_READ), WEFT_OK);
}

static void close_pipe(struct pipe_watch *p) {
    weft__watch_stop(p->r, &p->watch);
    close(p->in);
    close(p->out);
}

TEST(watch_notifies_until_read_and_not_after_stop) {
    struct reactor *r = open_reactor();
    struct pipe_watch p;
    open_pipe(&p, r);
    CHECK_EQ(weft__reactor_progress(r, 0), 0);
    CHECK_EQ(write(p.out, "abc", 3), 3);
    for (int i = 0; i < 3; i++) CHECK_EQ(weft__reactor_progress(r, 0), 1);
    CHECK_EQ(weft__reactor_progress(r, 0), 0);
    CHECK_EQ(write(p.out, "de", 2), 2);
    p.stop = 1;
    CHECK_EQ(weft__reactor_progress(r, 0), 1);
    CHECK_EQ(weft__reactor_progress(r, 0), 0);
    CHECK_EQ(p.notified, 4);
    close_pipe(&p);
    close_reactor(r);
}

TEST(watch_is_noticed_within_a_millisecond_beside_a_poller) {
    struct reactor *r = open_reactor();
    struct fake_poller poller = {.poller.poll = poll_fake, .r = r};
    struct pipe_watch p;
    weft__poller_add(r, &poller.poller);
    open_pipe(&p, r);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(write(p.out, "x", 1), 1);
        uint64_t begin = weft__now(r);
        while (!weft__reactor_progress(r, 0))
            ;
        uint64_t took = weft__now(r) - begin;
        if (took < best) best = took;
    }
    CHECK(best < 1000000);
    weft__poller_remove(r, &poller.poller);
    close_pipe(&p);
    close_reactor(r);
}

struct answering {
    struct watch watch;
    struct named_job answer;
};
static void answer_watch(struct watch *watch, int events) {
    struct answering *a = (struct answering *)watch;
    char byte;
    CHECK_EQ(read(watch->fd, &byte, 1), 1);
    weft__job_post(a->answer.r, &a->answer.job);
}

TEST(what_a_watch_posts_runs_in_the_same_turn_and_what_that_posts_in_the_next) {
    struct reactor *r = open_reactor();
    struct answering a = {.watch.ready = answer_watch,
                          .answer = {.job.run = run_named, .r = r, .name = 'a', .again = true}};
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(weft__watch_start(r, &a.watch, fds[0], WATCH_READ), WEFT_OK);
    n_order = 0;
    CHECK_EQ(write(fds[1], "x", 1), 1);
    CHECK_EQ(weft__reactor_progress(r, 0), 2);
    CHECK(!strcmp(order, "a"));
    CHECK_EQ(weft__reactor_progress(r, 0), 1);
    CHECK(!strcmp(order, "aa"));
    weft__job_drop(r, &a.answer.job);
    weft__watch_stop(r, &a.watch);
    close(fds[0]);
    close(fds[1]);
    close_reactor(r);
}

TEST(watch_on_a_closed_fd_is_refused) {
    struct reactor *r = open_reactor();
    struct watch watch = {.ready = read_one};
    CHECK_EQ(weft__watch_start(r, &watch, 999, WATCH_READ), WEFT_ERR_IO);
    CHECK(!watch.state);
    close_reactor(r);
}

/* ---- posted calls ---------------------------------------------------------------------------- */

static _Atomic int calls_in_order = 1;
static int last_call;
static void count_call(void *arg) {
    int number = (int)(intptr_t)arg;
    if (number != last_call + 1) calls_in_order = 0;
    last_call = number;
}

static void *post_many(void *arg) {
    for (intptr_t i = 1; i <= 10000; i++)
        if (weft__reactor_call(arg, count_call, (void *)i) != WEFT_OK) abort();
    return NULL;
}

TEST(posted_calls_run_in_order_and_end_a_wait) {
    struct reactor *r = open_reactor();
    pthread_t thread;
    last_call = 0;
    pthread_create(&thread, NULL, post_many, r);
    while (last_call < 10000) CHECK_EQ(weft__reactor_wait(r, 5000), WEFT_OK);
    pthread_join(thread, NULL);
    CHECK(calls_in_order);
    close_reactor(r);
}

static void call_many(struct reactor *r, int n) {
    last_call = 0;
    for (intptr_t i = 1; i <= n; i++)
        CHECK_EQ(weft__reactor_call(r, count_call, (void *)i), WEFT_OK);
}

TEST(posted_calls_run_many_to_a_turn_and_hold_up_no_one) {
    struct reactor *r = open_reactor();
    struct named_job a = {.job.run = run_named, .r = r, .name = 'a', .again = true};
    n_order = 0;
    weft__job_post(r, &a.job);
    call_many(r, 1000);
    unsigned turns = 0;
    for (; last_call < 1000; turns++) CHECK(weft__reactor_progress(r, 0) > 1);
    CHECK(turns > 4 && turns < 100);
    CHECK_EQ(n_order, turns);
    CHECK(calls_in_order);
    weft__job_drop(r, &a.job);
    close_reactor(r);
}

TEST(posted_calls_keep_to_the_budget) {
    struct reactor *r = open_reactor();
    struct named_job a = {.job.run = run_named, .r = r, .name = 'a'};
    n_order = 0;
    call_many(r, 20);
    CHECK_EQ(weft__reactor_progress(r, 7), 7);
    CHECK_EQ(last_call, 7);
    weft__job_post(r, &a.job);
    CHECK_EQ(weft__reactor_progress(r, 1), 1);
    CHECK_EQ(last_call, 8);
    CHECK_EQ(weft__reactor_progress(r, 1), 1);
    CHECK_EQ(n_order, 1);
    CHECK_EQ(weft__reactor_progress(r, 0), 12);
    CHECK_EQ(weft__reactor_progress(r, 0), 0);
    CHECK(calls_in_order);
    close_reactor(r);
}

static weft_status_t refused;
static void call_again(void *arg) {
    refused = weft__reactor_call(arg, call_again, arg);
}

TEST(a_call_that_posts_itself_ends_with_the_reactor) {
    struct reactor *r = open_reactor();
    CHECK_EQ(weft__reactor_call(r, call_again, r), WEFT_OK);
    for (int i = 0; i < 10; i++) CHECK_EQ(weft__reactor_progress(r, 0), 1);
    CHECK_EQ(refused, WEFT_OK);
    close_reactor(r);
    CHECK_EQ(refused, WEFT_ERR_CLOSED);
}

TEST(wake_before_a_wait_ends_it) {
    struct reactor *r = open_reactor();
    weft__reactor_wake(r);
    CHECK_EQ(weft__reactor_wait(r, 5000), WEFT_OK);
    CHECK_EQ(weft__reactor_wait(r, 1), WEFT_ERR_TIMED_OUT);
    close_reactor(r);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static char freed_later_order[8];
static int note_burial(char *object) {
    strncat(freed_later_order, object, 1);
    return 0;
}

static void free_later_both(struct job *job) {
    struct reactor *r = ((struct named_job *)job)->r;
    char *parent = weft__alloc(r, 2, "parent"), *child = weft__alloc(parent, 2, "child");
    parent[0] = 'p', child[0] = 'c';
    talloc_set_destructor(parent, note_burial);
    talloc_set_destructor(child, note_burial);
    weft__free_later(r, child);
    weft__free_later(r, parent);
    strcat(freed_later_order, ".");
}

TEST(freed_later_objects_go_at_the_end_of_the_turn_in_order) {
    struct reactor *r = open_reactor();
    struct named_job job = {.job.run = free_later_both, .r = r, .name = 'a'};
    weft__job_post(r, &job.job);
    weft__reactor_progress(r, 0);
    CHECK(!strcmp(freed_later_order, ".cp"));
    close_reactor(r);
}

TEST(allocation_fails_on_demand) {
    weft__alloc_fail_at(2);
    void *a = weft__alloc(NULL, 8, "a"), *b = weft__alloc(NULL, 8, "b"),
         *c = weft__alloc(NULL, 8, "c");
    CHECK(a && !b && c);
    CHECK_EQ(weft__alloc_fail_at(0), 3);
    talloc_free(a);
    talloc_free(c);
}

TEST(allocations_fail_in_a_row_on_demand) {
    weft__alloc_fail_run(2, 2);
    bool made[4];
    for (int i = 0; i < 4; i++) {
        void *block = weft__alloc(NULL, 8, "block");
        made[i] = block != NULL;
        talloc_free(block);
    }
    weft__alloc_fail_run(0, 0);
    CHECK(made[0] && !made[1] && !made[2] && made[3]);
}

TEST(creation_survives_each_failing_allocation) {
    struct reactor *r;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    weft__alloc_fail_at(0);
    CHECK_EQ(weft__reactor_create(context, &(struct reactor_params){0}, &r), WEFT_OK);
    uint64_t n = weft__alloc_fail_at(0);
    weft__reactor_destroy(r);
    CHECK(n >= 3);
    for (uint64_t k = 1; k <= n; k++) {
        weft__alloc_fail_at(k);
        weft_status_t st = weft__reactor_create(context, &(struct reactor_params){0}, &r);
        weft__alloc_fail_at(0);
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        if (st == WEFT_OK) weft__reactor_destroy(r);
    }
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

static void destroy_reactor(struct job *job) {
    weft__reactor_destroy(((struct named_job *)job)->r);
}

TEST(reactor_may_be_destroyed_within_its_turn) {
    struct reactor *r = open_reactor();
    struct named_job job = {.job.run = destroy_reactor, .r = r, .name = 'a'};
    weft__job_post(r, &job.job);
    weft__reactor_progress(r, 0);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
}

/* ---- what a hot turn costs ------------------------------------------------------------------- */

TEST(polled_worker_with_memory_alone_makes_no_system_call_and_no_allocation) {
    struct reactor *r = open_reactor();
    struct fake_poller poller = {.poller.poll = poll_fake, .r = r, .ready = 1 << 30};
    weft__poller_add(r, &poller.poller);
    uint64_t allocations = weft__count(r)->allocations;
    for (int i = 0; i < 100000; i++) weft__reactor_progress(r, 1);
    CHECK_EQ(weft__count(r)->kernel_polls, 0);
    CHECK_EQ(weft__count(r)->allocations, allocations);
    CHECK_EQ(weft__count(r)->sleeps, 0);
    weft__poller_remove(r, &poller.poller);
    close_reactor(r);
}

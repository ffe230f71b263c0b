/* Finalizers of a view: the order, each once, those that take time. */
#include "../harness.h"
#include <string.h>
#include <weft/weft.h>

static char log[64];
static int value;

static weft_status_t append(weft_finalizer_t *finalizer, void *arg) {
    (void)finalizer;
    strcat(log, arg);
    return WEFT_OK;
}

static weft_view_t *view_of_one(const weft_view_params_t *params) {
    weft_view_params_t alone = params ? *params : (weft_view_params_t){0};
    weft_view_t *view = NULL;
    alone.engine = "single";
    log[0] = 0;
    CHECK_EQ(weft_view_create_wait(&alone, &view), WEFT_OK);
    return view;
}

TEST(the_last_pushed_runs_first) {
    weft_view_t *view = view_of_one(NULL);
    CHECK_EQ(weft_view_push_finalizer(view, append, "a", NULL, NULL), WEFT_OK);
    CHECK_EQ(weft_view_push_finalizer(view, append, "b", NULL, NULL), WEFT_OK);
    CHECK_EQ(weft_view_push_finalizer(view, append, "c", NULL, NULL), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(strcmp(log, "cba"), 0);
}

static weft_status_t set_one(weft_finalizer_t *finalizer, void *arg) {
    (void)finalizer, (void)arg;
    value = 1;
    return WEFT_OK;
}
static weft_status_t times_two(weft_finalizer_t *finalizer, void *arg) {
    (void)finalizer, (void)arg;
    value *= 2;
    return WEFT_OK;
}
static weft_status_t plus_one(weft_finalizer_t *finalizer, void *arg) {
    (void)finalizer, (void)arg;
    value += 1;
    return WEFT_OK;
}

TEST(one_times_two_plus_one_is_three) {
    weft_view_t *view = view_of_one(NULL);
    weft_view_push_finalizer(view, plus_one, NULL, NULL, NULL);
    weft_view_push_finalizer(view, times_two, NULL, NULL, NULL);
    weft_view_push_finalizer(view, set_one, NULL, NULL, NULL);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(value, 3);
}

TEST(only_the_last_reference_runs_them) {
    weft_view_t *view = view_of_one(NULL), *copy = weft_view_retain(view);
    weft_view_push_finalizer(view, append, "a", NULL, NULL);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(log[0], 0);
    CHECK_EQ(weft_view_release_wait(copy), WEFT_OK);
    CHECK_EQ(strcmp(log, "a"), 0);
}

TEST(one_that_is_taken_back_does_not_run) {
    weft_view_t *view = view_of_one(NULL);
    weft_finalizer_t *finalizer;
    weft_view_push_finalizer(view, append, "a", NULL, NULL);
    weft_view_push_finalizer(view, append, "b", NULL, &finalizer);
    CHECK_EQ(weft_view_remove_finalizer(view, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_remove_finalizer(view, finalizer), WEFT_OK);
    weft_view_release_wait(view);
    CHECK_EQ(strcmp(log, "a"), 0);
}

static weft_status_t push_more(weft_finalizer_t *finalizer, void *arg) {
    weft_view_t *view = arg;
    (void)finalizer;
    strcat(log, "p");
    CHECK_EQ(weft_view_push_finalizer(view, append, "n", NULL, NULL), WEFT_OK);
    return WEFT_OK;
}

TEST(one_may_push_another_which_runs_next) {
    weft_view_t *view = view_of_one(NULL);
    weft_view_push_finalizer(view, append, "o", NULL, NULL);
    weft_view_push_finalizer(view, push_more, view, NULL, NULL);
    weft_view_release_wait(view);
    CHECK_EQ(strcmp(log, "pno"), 0);
}

static weft_finalizer_t *pending;

static void complete(void *arg) {
    (void)arg;
    strcat(log, "!");
    weft_finalizer_complete(pending, WEFT_OK);
}

static weft_status_t take_time(weft_finalizer_t *finalizer, void *arg) {
    pending = finalizer;
    strcat(log, "t");
    CHECK_EQ(weft_worker_post(weft_view_worker(arg), complete, NULL), WEFT_OK);
    return WEFT_IN_PROGRESS;
}

static weft_status_t complete_at_once(weft_finalizer_t *finalizer, void *arg) {
    (void)arg;
    weft_finalizer_complete(finalizer, WEFT_ERR_IO);
    return WEFT_IN_PROGRESS;
}

TEST(the_next_one_waits_for_one_that_takes_time) {
    weft_view_t *view = view_of_one(NULL);
    weft_view_push_finalizer(view, append, "a", NULL, NULL);
    weft_view_push_finalizer(view, take_time, view, NULL, NULL);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(strcmp(log, "t!a"), 0);
}

static weft_status_t fail_io(weft_finalizer_t *finalizer, void *arg) {
    (void)finalizer, (void)arg;
    return WEFT_ERR_IO;
}

static weft_finalizer_t *late_one;

static weft_status_t never(weft_finalizer_t *finalizer, void *arg) {
    (void)arg;
    late_one = finalizer;
    return WEFT_IN_PROGRESS;
}

static void on_error(const char *name, weft_status_t status, void *arg) {
    (void)arg;
    strcat(log, name);
    strcat(log, status == WEFT_ERR_TIMED_OUT ? "-late " : "-failed ");
}

TEST(errors_are_collected_and_the_first_is_reported) {
    weft_view_t *view = view_of_one(&(weft_view_params_t){.on_finalizer_error = on_error});
    weft_view_push_finalizer(view, append, "end", NULL, NULL);
    weft_view_push_finalizer(view, never, NULL, &(weft_finalizer_params_t){"n", 1}, NULL);
    weft_view_push_finalizer(view, complete_at_once, NULL, &(weft_finalizer_params_t){.name = "c"},
                             NULL);
    weft_view_push_finalizer(view, fail_io, NULL, &(weft_finalizer_params_t){.name = "f"}, NULL);
    CHECK_EQ(weft_view_release_wait(view), WEFT_ERR_IO);
    CHECK_EQ(strcmp(log, "f-failed c-failed n-late end"), 0);
    weft_finalizer_complete(late_one, WEFT_OK);
}

TEST(a_call_after_the_deadline_has_no_effect_when_the_view_is_gone_too) {
    weft_view_t *view = view_of_one(NULL);
    weft_view_push_finalizer(view, append, "a", NULL, NULL);
    weft_view_push_finalizer(view, never, NULL, &(weft_finalizer_params_t){.deadline_ms = 1}, NULL);
    CHECK_EQ(weft_view_release_wait(view), WEFT_ERR_TIMED_OUT);
    CHECK_EQ(strcmp(log, "a"), 0);
    weft_finalizer_complete(late_one, WEFT_OK);
}

static weft_status_t complete_the_late_one(weft_finalizer_t *finalizer, void *arg) {
    (void)finalizer, (void)arg;
    weft_finalizer_complete(late_one, WEFT_ERR_IO);
    return WEFT_OK;
}

TEST(a_call_after_the_deadline_leaves_the_next_finalizer_alone) {
    weft_view_t *view = view_of_one(NULL);
    weft_view_push_finalizer(view, append, "a", NULL, NULL);
    weft_view_push_finalizer(view, complete_the_late_one, NULL, NULL, NULL);
    weft_view_push_finalizer(view, never, NULL, &(weft_finalizer_params_t){.deadline_ms = 1}, NULL);
    CHECK_EQ(weft_view_release_wait(view), WEFT_ERR_TIMED_OUT);
    CHECK_EQ(strcmp(log, "a"), 0);
}

static weft_status_t use_view(weft_finalizer_t *finalizer, void *arg) {
    (void)finalizer;
    CHECK_EQ(weft_view_size(arg), 1);
    CHECK(weft_view_team(arg) != NULL);
    CHECK(weft_view_mine(arg) != NULL);
    CHECK(weft_view_barrier(arg, NULL) >= 0);
    strcat(log, "u");
    return WEFT_OK;
}

/* A view that is released with one finalizer, which gets the view and writes `text`. */
static void releases_with(weft_finalizer_fn run, const char *text) {
    weft_view_t *view = view_of_one(NULL);
    CHECK_EQ(weft_view_push_finalizer(view, run, view, NULL, NULL), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    CHECK_EQ(strcmp(log, text), 0);
}

TEST(a_finalizer_may_use_the_view) {
    releases_with(use_view, "u");
}

static void part_ready(weft_view_t *part, weft_status_t status, void *arg) {
    (void)part, (void)status, (void)arg;
    CHECK(!"a part of a view that ends");
}

static weft_status_t split_view(weft_finalizer_t *finalizer, void *arg) {
    weft_view_split_params_t params = {.on_ready = part_ready};
    (void)finalizer;
    CHECK_EQ(weft_view_split(arg, &params), WEFT_ERR_BUSY);
    weft_view_retain(arg); /* it does not keep the view */
    CHECK_EQ(weft_view_release(arg, NULL), WEFT_ERR_BUSY);
    strcat(log, "s");
    return WEFT_OK;
}

TEST(a_finalizer_makes_no_part_that_would_outlive_the_view) {
    releases_with(split_view, "s");
}

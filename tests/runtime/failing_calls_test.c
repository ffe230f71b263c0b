/*
 * The first call of each function that asks the kernel for something fails in one of two processes
 * that meet at a store, use their view and release it (FAILING_ALL: each call, one in each life).
 * Every operation of both has one outcome, no descriptor is left, and their next view is whole.
 */
#include "view_processes.h"

#include <tests/support/descriptors.h>
#include <tests/support/failing_system.h>

enum { RANKS = 2, BYTES = 40000 };

static const weft_setting_t settings[] = {
    {"coll.timeout", "3s"}, {"connect.timeout", "3s"}, {"calibration", "off"}};

static void note_outcome(weft_status_t status, void *arg) {
    weft_status_t *outcome = arg;
    CHECK_EQ(*outcome, WEFT_IN_PROGRESS);
    *outcome = status;
}

static weft_status_t gather(weft_view_t *view, const char *mine, char *all) {
    weft_status_t outcome = WEFT_IN_PROGRESS;
    weft_op_t op = {.done = note_outcome, .arg = &outcome};
    weft_status_t st = weft_view_gather(view, NULL, mine, BYTES, all, &op);
    while (st == WEFT_IN_PROGRESS && outcome == WEFT_IN_PROGRESS)
        weft_worker_wait(weft_view_worker(view), 1000);
    return st == WEFT_IN_PROGRESS ? outcome : st;
}

static void use(weft_view_t *view, uint32_t rank, bool whole) {
    static char mine[BYTES], all[RANKS * BYTES];
    const weft_resource_set_t *set;
    memset(mine, 'a' + (int)rank, sizeof mine);
    memset(all, 0, sizeof all);
    weft_status_t gathered = gather(view, mine, all);
    weft_status_t fetched = weft_view_at_wait(view, 1 - rank, false, &set);
    weft_status_t met = weft_view_barrier_wait(view); /* each looks at the set of the other */
    CHECK(!whole || (gathered == WEFT_OK && fetched == WEFT_OK && met == WEFT_OK));
    for (size_t i = 0; gathered == WEFT_OK && i < sizeof all; i++)
        CHECK_EQ(all[i], 'a' + (int)(i / BYTES));
    CHECK(fetched != WEFT_OK || set->rank == 1 - rank);
}

static void view_lives(weft_worker_t *worker, const char *store, uint32_t rank, bool whole) {
    weft_view_t *view = NULL;
    weft_view_params_t params = {.worker = worker,
                                 .engine = "store",
                                 .store = store,
                                 .rank = rank,
                                 .size = RANKS,
                                 .deadline_ms = whole ? 60000 : 1000};
    weft_status_t st = weft_view_create_wait(&params, &view);
    CHECK(!whole || st == WEFT_OK);
    if (st < 0) return;
    use(view, rank, whole);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

struct life {
    char store[2][64]; /* of the view in which a call fails, and of the next */
    uint32_t rank;     /* where it fails */
};

/* `fails`: a call of this process may fail. */
static void take_part(const struct life *life, uint32_t rank, bool fails) {
    weft_context_t *context;
    weft_worker_t *worker;
    bool whole = failing->at == 0;
    int before = n_descriptors();
    if (!fails) failing = NULL; /* before the other process arms it */
    const weft_context_params_t params = {.settings = settings,
                                          .n_settings = sizeof settings / sizeof *settings};
    CHECK_EQ(weft_context_create(&params, &context), WEFT_OK);
    CHECK_EQ(weft_worker_create(context, NULL, &worker), WEFT_OK);
    if (fails) failing->armed = true;
    view_lives(worker, life->store[0], rank, whole);
    if (fails) failing->armed = false;
    view_lives(worker, life->store[1], rank, true);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), WEFT_OK);
    CHECK_EQ(n_descriptors(), before);
}

static void play(void *arg) {
    const struct life *life = arg;
    int status;
    pid_t other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        if (setjmp(test_out) == 0) take_part(life, 1 - life->rank, false);
        exit(test_result);
    }
    take_part(life, life->rank, true);
    CHECK_EQ(waitpid(other, &status, 0), other);
    CHECK_EQ(status, 0);
}

static bool ends_well(void *arg, unsigned call, unsigned at) {
    struct life *life = arg;
    int reserved[] = {store_address(life->store[0]), store_address(life->store[1])};
    bool well = life_ends_well(play, life, call, at);
    close(reserved[0]);
    close(reserved[1]);
    if (!well) printf("  rank %u: %s, call %u\n", life->rank, call_name[call], at);
    return well;
}

static void each_call_fails(uint32_t rank) {
    struct life life = {.rank = rank};
    each_fails_once(N_CALLS, getenv("FAILING_ALL"), ends_well, &life);
}

TEST(each_call_fails_once_where_the_store_is) {
    each_call_fails(0);
}
TEST(each_call_fails_once_at_another_process) {
    each_call_fails(1);
}

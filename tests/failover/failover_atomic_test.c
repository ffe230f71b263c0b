/* One-sided operations over connections that die: each is applied exactly once, and each answer
 * is that of its own operation. */
#include <tests/support/kill_child.h>

enum { KILLS = 200, UNDER_WAY = 8, BYTES = 5000 };

struct word {
    struct two t;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    uint64_t *value, *place; /* the second word: where the puts go */
    uint64_t asked, answered, wrong;
    uint64_t old[UNDER_WAY];
};

static struct tally ignored;

static uint64_t at(const struct word *w, size_t offset) {
    return (uint64_t)(uintptr_t)w->value + offset;
}

static void begin(struct word *w) {
    weft_mem_info_t info;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    memset(w, 0, sizeof *w);
    surviving(&w->t, NULL, 0);
    CHECK_EQ(
        weft_mem_alloc(w->t.b, 16 + BYTES, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &w->mem),
        0);
    CHECK_EQ(weft_mem_describe(w->mem, &info), 0);
    w->value = info.base;
    w->place = w->value + 1;
    CHECK_EQ(weft_mem_pack(w->mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(w->t.ep, key, len, &w->rkey), 0);
}

static void end(struct word *w) {
    CHECK_EQ(w->t.errors + w->t.back_errors, 0);
    weft_rkey_release(w->rkey);
    two_down(&w->t);
}

/* Answers come in the order of their operations, so the n-th finds the n before it applied, no
 * more and no less. */
static void answered(weft_status_t status, void *arg) {
    struct word *w = arg;
    w->wrong += status != WEFT_OK || w->old[w->answered % UNDER_WAY] != w->answered;
    w->answered++;
}

static void ask(struct word *w) {
    weft_op_t op = {.done = answered, .arg = w};
    uint64_t *old = &w->old[w->asked++ % UNDER_WAY];
    weft_status_t st =
        weft_atomic_fetch(w->t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, old, at(w, 0), w->rkey, &op);
    if (st != WEFT_IN_PROGRESS) answered(st, w);
}

/* A kill each time that something has been answered since the last; `work` once a turn. */
static void with_kills(struct word *w, void (*work)(struct word *w), const uint64_t *moves) {
    uint64_t last = 0;
    unsigned random = 7;
    double end = test_now() + test_timeout(60);
    for (int kills = 0; kills < KILLS && test_now() < end;) {
        work(w);
        two_turn(&w->t);
        random = random * 1664525 + 1013904223;
        if (*moves == last || random >> 16 & 7 || !kill_one(random >> 8)) continue;
        last = *moves;
        kills++;
    }
    CHECK(test_now() < end);
}

static void keep_asking(struct word *w) {
    while (w->asked - w->answered < UNDER_WAY) ask(w);
}

TEST(a_fetching_add_is_applied_once_and_its_answer_is_its_own) {
    static struct word w;
    begin(&w);
    with_kills(&w, keep_asking, &w.answered);
    UNTIL(&w.t, w.answered == w.asked);
    printf("  %llu adds, resumed %llu times\n", (unsigned long long)w.asked,
           (unsigned long long)weft_worker_count(w.t.a, "lanes.resumed"));
    CHECK_EQ(w.wrong, 0);
    CHECK_EQ(*w.value, w.asked);
    CHECK(weft_worker_count(w.t.a, "lanes.resumed") >= KILLS / 4);
    end(&w);
}

/* These have no answer: only the count shows them. */
static void post(struct word *w) {
    weft_op_t op = {.done = tally, .arg = &ignored};
    if (w->asked - *w->value > 64) return;
    w->asked++;
    w->wrong += weft_atomic_post(w->t.ep, WEFT_ATOMIC_ADD, 8, 1, at(w, 0), w->rkey, &op) < 0;
}

TEST(an_add_that_no_one_answers_is_applied_once) {
    static struct word w;
    begin(&w);
    with_kills(&w, post, w.value);
    UNTIL(&w.t, *w.value >= w.asked);
    for (int i = 0; i < 1000; i++) two_turn(&w.t);
    CHECK_EQ(w.wrong, 0);
    CHECK_EQ(*w.value, w.asked);
    end(&w);
}

/* A put, and behind a fence the add that reports it: a reader that sees the count sees the
 * bytes. */
static void put_and_notify(struct word *w) {
    static char bytes[BYTES];
    if (w->asked != w->answered || *w->value != w->asked) return;
    if (w->asked && !is_pattern(w->place, BYTES, (unsigned)w->asked)) w->wrong++;
    w->asked++;
    pattern(bytes, BYTES, (unsigned)w->asked);
    weft_op_t op = {.done = tally, .arg = &ignored};
    w->wrong += weft_put(w->t.ep, bytes, BYTES, at(w, 8), w->rkey, &op) < 0;
    weft_op_t notified = {.done = answered, .arg = w};
    w->old[w->answered % UNDER_WAY] = 0;
    weft_status_t st =
        weft_atomic_fetch(w->t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &w->old[w->answered % UNDER_WAY],
                          at(w, 0), w->rkey, &notified);
    if (st != WEFT_IN_PROGRESS) answered(st, w);
}

TEST(a_put_is_there_before_the_add_that_notifies_of_it) {
    static struct word w;
    begin(&w);
    with_kills(&w, put_and_notify, &w.answered);
    UNTIL(&w.t, w.answered == w.asked);
    CHECK_EQ(w.wrong, 0);
    CHECK(is_pattern(w.place, BYTES, (unsigned)w.asked));
    CHECK_EQ(*w.value, w.asked);
    end(&w);
}

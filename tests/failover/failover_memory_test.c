/* Memory that runs out while a link looks for another connection: it survives, or its endpoints
 * are lost; nothing else. */
#include <reactor/reactor.h>
#include <tests/support/kill_child.h>

enum { N = 40, BYTES = 20000 };

static const weft_setting_t settings[] = {{"failover.timeout", "200ms"},
                                          {"close.timeout", "100ms"}};
static int came, wrong;
static char bytes[N][BYTES];

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    int number;
    memcpy(&number, am->header, sizeof number);
    wrong += number != came++;
}

static bool over(const struct two *t) {
    return t->errors || t->back_errors;
}

/* What is accepted ends once; what was refused does not come. True: no allocation was left to
 * fail. */
static bool survives_failure_at(uint64_t k) {
    struct two t;
    struct tally done = {0};
    int accepted = 0, waiting = 0;
    came = wrong = 0;
    surviving(&t, settings, sizeof settings / sizeof *settings);
    CHECK_EQ(weft_am_handler_set(t.b, 1, on_am, NULL), 0);
    (void)weft__alloc_fail_at(k);
    for (int i = 0; i < N && !over(&t); i++) {
        weft_iov_t iov = {bytes[i], i % 2 ? BYTES : 100};
        weft_status_t st = weft_am_send(t.ep, 1, &accepted, sizeof accepted, &iov, 1, OP(&done));
        accepted += st >= 0;
        waiting += st == WEFT_IN_PROGRESS;
        if (i % 10 == 5) kill_all();
        two_turn(&t);
    }
    UNTIL(&t, over(&t) || (came == accepted && done.calls == waiting));
    bool all_made = weft__alloc_fail_at(0) < k;
    CHECK_EQ(wrong, 0);
    CHECK(came <= accepted);
    if (over(&t)) UNTIL(&t, done.calls == waiting && (t.errors || t.back_errors));
    two_down(&t);
    CHECK_EQ(done.calls, waiting);
    return all_made;
}

TEST(any_allocation_on_the_way_to_another_connection_may_fail) {
    uint64_t k = 1;
    while (k < 400 && !survives_failure_at(k)) k++;
    printf("  %llu allocations\n", (unsigned long long)k);
    CHECK(k > 5 && k < 400);
}

/* A worker's usage tracker: lanes report their work to it, its timer runs only while that may
 * change anything. */
#include <tests/support/worker_pair.h>

#include <endpoints/core/worker.h>
#include <endpoints/lanes/usage_worker.h>
#include <poll.h>

static uint64_t received;
static void on_any(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}

static struct link *promoted, *demoted;
static bool on_promote(void *key, uint64_t score, void *arg) {
    promoted = key;
    return true;
}
static void on_demote(void *key, uint64_t score, void *arg) {
    demoted = key;
}
static const struct usage_hooks hooks = {.promote = on_promote, .demote = on_demote};

static void up_ticking(struct two *t, const char *transports, const char *rings, const char *least,
                       const char *tick) {
    const weft_setting_t settings[] = {{"lanes.switch", "on"},
                                       {"lanes.tick", tick},
                                       {"lanes.min_rate", least},
                                       {"shm.rings", rings}};
    two_workers(t, transports, settings, 4);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
    CHECK_EQ(weft_am_handler_set(t->b, 1, on_any, NULL), 0);
    CHECK_EQ(weft_am_handler_set(t->a, 1, on_any, NULL), 0);
    weft__tracking_hook(t->a, &hooks);
    weft__tracking_hook(t->b, &hooks);
    promoted = demoted = NULL;
    received = 0;
}

static void up_with(struct two *t, const char *transports, const char *rings, const char *least) {
    up_ticking(t, transports, rings, least, "5ms");
}

static void up(struct two *t, const char *transports, const char *rings) {
    up_with(t, transports, rings, "100k");
}

static void send_some(struct two *t, weft_ep_t *ep, int n, size_t len) {
    static char bytes[8192];
    for (int i = 0; i < n; i++) {
        weft_status_t st;
        while ((st = weft_am_send(ep, 1, NULL, 0, &(weft_iov_t){bytes, len}, 1, NULL)) ==
               WEFT_NO_RESOURCE)
            two_turn(t);
        CHECK(st >= 0);
        if (i % 16 == 0) two_turn(t);
    }
    two_turn(t);
}

static bool ticking(const weft_worker_t *worker) {
    return weft__timer_running(&worker->tracking->tick);
}

static void busy_then_idle(const char *transports, const char *rings, size_t len) {
    struct two t;
    up(&t, transports, rings);
    CHECK(!ticking(t.a));
    struct link *link = t.ep->link;
    UNTIL(&t, (send_some(&t, t.ep, 200, len), promoted == link));
    CHECK(ticking(t.a));
    CHECK(weft__usage_score(t.a->tracking->usage, link) > 100 * 1024);
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(t.ep, &info), 0);
    CHECK(info.score == weft__usage_score(t.a->tracking->usage, link) && info.negotiation &&
          info.switching);
    UNTIL(&t, demoted == link);
    UNTIL(&t, !ticking(t.a));
    weft__tracking_hook(t.a, &(struct usage_hooks){0});
    two_down(&t);
}

TEST(a_busy_link_by_a_ring_is_promoted_and_an_idle_one_demoted) {
    busy_then_idle("shm", "64", 8);
}
TEST(a_busy_link_by_the_mailbox_is_promoted_and_an_idle_one_demoted) {
    busy_then_idle("shm", "0", 8);
}
TEST(a_busy_link_over_tcp_is_promoted_and_an_idle_one_demoted) {
    busy_then_idle("tcp", "0", 8);
}
TEST(the_same_with_messages_that_do_not_fit_a_slot) {
    busy_then_idle("shm", "64", 5000);
    busy_then_idle("shm", "0", 5000);
    busy_then_idle("tcp", "0", 5000);
}

TEST(a_message_now_and_then_starts_no_timer) {
    static const struct {
        const char *transports, *rings;
    } lanes[] = {{"shm", "64"}, {"shm", "0"}, {"tcp", "0"}};
    for (int i = 0; i < 3; i++) {
        struct two t;
        up_with(&t, lanes[i].transports, lanes[i].rings, "4m");
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, NULL, 0, NULL), 0);
        UNTIL(&t, received == 1);
        CHECK(!ticking(t.a) && !ticking(t.b));
        two_down(&t);
    }
}

/* What was promoted is demoted, and then the worker sleeps for good. */
TEST(an_idle_worker_is_not_woken) {
    struct two t;
    up(&t, "shm", "0");
    UNTIL(&t, (send_some(&t, t.ep, 200, 8), promoted == t.ep->link));
    UNTIL(&t, demoted && !ticking(t.a) && !ticking(t.b));
    struct pollfd fds[] = {{.fd = weft_worker_fd(t.a), .events = POLLIN},
                           {.fd = weft_worker_fd(t.b), .events = POLLIN}};
    while (poll(fds, 2, 300) > 0) two_turn(&t);
    CHECK_EQ(poll(fds, 2, 1000), 0);
    two_down(&t);
}

static void busy_before_the_tick(const char *transports) {
    struct two t;
    up_ticking(&t, transports, "0", "1k", "100s");
    UNTIL(&t, (send_some(&t, t.ep, 200, 8), promoted == t.ep->link));
    CHECK(ticking(t.a) && weft__usage_due(t.a->tracking->usage) > weft__now(t.a->reactor));
    two_down(&t);
}
TEST(a_busy_link_does_not_wait_for_the_tick_while_places_are_free) {
    busy_before_the_tick("shm");
    busy_before_the_tick("tcp");
}

/* One that only receives reports nothing by sending, but it is looked at once it is noted. */
TEST(a_link_that_was_granted_a_lane_is_kept_by_what_it_receives) {
    struct two t;
    up(&t, "shm", "0");
    struct link *at_b = t.back->link;
    CHECK(weft__usage_adopt(t.b->tracking->usage, at_b));
    weft__usage_min_score(t.b->tracking->usage, at_b, 1 << 20);
    weft__tracking_wake(t.b);
    for (double end = test_now() + 0.3; test_now() < end;) send_some(&t, t.ep, 50, 8);
    weft__usage_min_score(t.b->tracking->usage, at_b, 0); /* from now on by its own view */
    for (double end = test_now() + 0.2; test_now() < end;) send_some(&t, t.ep, 50, 8);
    CHECK(weft__usage_promoted(t.b->tracking->usage, at_b));
    CHECK(demoted == NULL);
    UNTIL(&t, demoted == at_b);
    two_down(&t);
}

TEST(a_link_that_ends_is_forgotten) {
    struct two t;
    up(&t, "shm", "0");
    struct link *link = t.ep->link;
    UNTIL(&t, (send_some(&t, t.ep, 200, 8), promoted == link));
    CHECK_EQ(weft__usage_n_promoted(t.a->tracking->usage), 1);
    weft__link_lose(link, WEFT_ERR_PEER_FAILED);
    UNTIL(&t, t.errors);
    UNTIL(&t, weft__usage_n_promoted(t.a->tracking->usage) == 0);
    UNTIL(&t, !ticking(t.a));
    CHECK(demoted == NULL);
    two_down(&t);
}

TEST(without_switching_nothing_of_it_exists) {
    struct two t;
    const weft_setting_t off = {"lanes.switch", "off"};
    two_workers(&t, "shm,tcp", &off, 1);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    CHECK(t.a->tracking == NULL);
    for (uint32_t i = 0; i < t.a->n_ifaces; i++) CHECK(t.a->iface[i]->up->worked == NULL);
    two_down(&t);
}

TEST(creation_fails_without_memory_for_it) {
    weft_context_t *context;
    weft_worker_t *worker;
    const weft_setting_t on = {"lanes.switch", "on"};
    CHECK_EQ(
        weft_context_create(&(weft_context_params_t){.settings = &on, .n_settings = 1}, &context),
        0);
    weft_worker_params_t params = {.transports = "self"};
    uint64_t k = 1;
    for (weft_status_t st = WEFT_ERR_NO_MEMORY; st != WEFT_OK; k++) {
        weft__alloc_fail_at(k);
        st = weft_worker_create(context, &params, &worker);
        weft__alloc_fail_at(0);
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        CHECK(k < 1000);
    }
    CHECK(k > 3 && worker->tracking);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

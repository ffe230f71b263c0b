/* A program learns when the connection of an endpoint has moved to a fast lane, and back. */
#include <tests/support/threads.h>

/* The notices of a side: how many, and the lane that the endpoint had then. */
struct noted {
    atomic_int times;
    atomic_int fast;
    char transport[16];
    weft_ep_t *ep;
    pthread_t thread;
    bool closes;
};
static struct noted noted[2]; /* of a, and of b */

static void on_lane_of(struct noted *t, weft_ep_t *ep) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(ep, &info), 0);
    snprintf(t->transport, sizeof t->transport, "%s", info.transport);
    t->ep = ep;
    t->thread = pthread_self();
    t->fast = info.fast;
    if (t->closes) CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), WEFT_IN_PROGRESS);
    t->times++;
}
static void on_lane_of_a(weft_ep_t *ep, void *arg) {
    on_lane_of(&noted[0], ep);
}
static void on_lane_of_b(weft_ep_t *ep, void *arg) {
    on_lane_of(&noted[1], ep);
}

static const weft_setting_t quick[] = {{"lanes.tick", "5ms"},
                                       {"lanes.min_hold", "0"},
                                       {"lanes.min_rate", "64k"},
                                       {"lanes.backoff", "1ms"}};

static void up(struct pair *p, bool a_asks) {
    char address[256];
    size_t len = sizeof address;
    *p = (struct pair){.main = pthread_self()};
    memset(noted, 0, sizeof noted);
    weft_context_params_t context = {.settings = quick, .n_settings = sizeof quick / sizeof *quick};
    CHECK_EQ(weft_context_create(&context, &p->context), 0);
    weft_worker_params_t params = {.transports = "shm,tcp",
                                   .thread_mode = WEFT_THREAD_MULTIPLE,
                                   .on_endpoint = on_endpoint,
                                   .on_error = on_error,
                                   .arg = p,
                                   .on_lane = a_asks ? on_lane_of_a : NULL};
    CHECK_EQ(weft_worker_create(p->context, &params, &p->a), 0);
    params.on_lane = on_lane_of_b;
    CHECK_EQ(weft_worker_create(p->context, &params, &p->b), 0);
    CHECK_EQ(weft_worker_address(p->b, address, &len), 0);
    weft_ep_params_t ep = {.on_ready = on_ready, .on_error = on_error, .arg = p};
    CHECK_EQ(weft_connect_address(p->a, address, len, &ep, &p->to_b), 0);
    CHECK_EQ(weft_am_handler_set(p->b, ID, on_back, p), 0);
    UNTIL_PAIR(p, p->ready && p->accepted);
}

/* Sends, and lets b be driven, until `cond`. */
#define BUSY_UNTIL(p, cond)                                                              \
    do {                                                                                 \
        for (double end = test_now() + test_timeout(60); !(cond) && test_now() < end;) { \
            for (int i = 0; i < 50; i++)                                                 \
                (void)weft_am_send((p)->to_b, ID, NULL, 0, NULL, 0, NULL);               \
            drive(p);                                                                    \
        }                                                                                \
        CHECK(cond);                                                                     \
    } while (0)

TEST(both_sides_learn_of_the_fast_lane_and_of_the_way_back) {
    struct pair p;
    up(&p, true);
    CHECK_EQ(noted[0].times + noted[1].times, 0);
    BUSY_UNTIL(&p, noted[0].times && noted[1].times);
    CHECK(noted[0].ep == p.to_b && noted[1].ep == p.to_a);
    for (int i = 0; i < 2; i++) {
        CHECK(noted[i].fast);
        CHECK_EQ(strcmp(noted[i].transport, "shm"), 0);
    }
    UNTIL_PAIR(&p, noted[0].times == 2 && noted[1].times == 2); /* idle */
    CHECK(!noted[0].fast && !noted[1].fast);
    pair_end(&p);
}

TEST(a_side_that_did_not_ask_gets_nothing_and_an_endpoint_may_be_closed_there) {
    struct pair p;
    struct tally flushed = {0};
    up(&p, false);
    noted[1].closes = true;
    BUSY_UNTIL(&p, noted[1].times);
    UNTIL_PAIR(&p, p.errors == 1);
    CHECK_EQ(p.error, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(noted[0].times, 0);
    CHECK_EQ(noted[1].times, 1);
    (void)weft_ep_flush(p.to_b, OP(&flushed));
    pair_end(&p);
}

/* b has a thread, and its callbacks come to the program's calls. */
TEST(polled_callbacks_bring_it_to_the_programs_thread) {
    struct pair p;
    up(&p, true);
    weft_thread_params_t polled = {.callbacks = WEFT_CALLBACKS_POLLED};
    CHECK_EQ(weft_worker_start_thread(p.b, &polled), 0);
    BUSY_UNTIL(&p, noted[0].times && noted[1].times);
    CHECK(pthread_equal(noted[1].thread, p.main));
    CHECK_EQ(weft_worker_stop_thread(p.b), 0);
    pair_end(&p);
}

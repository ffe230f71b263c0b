/* Connections that die during their first handshake: endpoints that survive their
 * connection do not notice, others are notified. */
#include <tests/support/kill_child.h>

#include <endpoints/core/worker.h>

static int came;
static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    came++;
}

/* The link is not up yet, and has a connection that can die. */
static bool handshakes(const struct two *t) {
    const struct link *link = ((const struct weft_ep *)t->ep)->link;
    int fd[64];
    return link && link->core.fsm.state < LINK_UP && connected(fd, 64) > 0;
}

static void works(struct two *t) {
    UNTIL(t, t->ready && t->back);
    came = 0;
    CHECK_EQ(weft_am_handler_set(t->b, 1, on_am, NULL), 0);
    CHECK(weft_am_send(t->ep, 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(t, came == 1);
    CHECK_EQ(t->ready, 1);
    CHECK_EQ(t->endpoints, 1);
    CHECK_EQ(t->errors + t->back_errors, 0);
}

/* So many turns, of the two sides in turn, and then both ends of all connections die. False: it
 * was up before. */
static bool dies_after(int turns, int kills) {
    struct two t;
    int killed = 0;
    two_workers(&t, "tcp", NULL, 0);
    dial_surviving(&t);
    for (int i = 0; killed < kills; killed++) {
        for (int end = i + turns; i < end; i++) weft_worker_progress(i % 2 ? t.b : t.a, 0);
        for (double till = test_now() + test_timeout(60);
             test_now() < till && !connected((int[64]){0}, 64);)
            two_turn(&t);
        if (!handshakes(&t)) break;
        kill_all();
    }
    works(&t);
    /* Of what was begun in vain nothing is left but what the other side waits for. */
    CHECK_EQ(weft_worker_count(t.a, "lanes.lost"), 0);
    two_down(&t);
    return killed == kills;
}

TEST(a_connection_that_dies_at_any_turn_of_its_first_handshake_is_replaced) {
    int turns = 0;
    while (turns < 1000 && dies_after(turns, 1)) turns++;
    printf("  at each of %d turns\n", turns);
    CHECK(turns >= 4 && turns < 1000);
}

TEST(so_are_many_in_a_row) {
    CHECK(dies_after(1, 10));
}

/* The peer is gone: that is reported at once, without a timeout. */
TEST(a_peer_that_went_meanwhile_is_not_dialed_for_ever) {
    struct two t;
    two_workers(&t, "tcp", NULL, 0);
    dial_surviving(&t);
    for (double till = test_now() + test_timeout(60);
         test_now() < till && !connected((int[64]){0}, 64);)
        weft_worker_progress(t.a, 0);
    CHECK(handshakes(&t));
    kill_all();
    CHECK_EQ(weft_worker_close(t.b, &(weft_op_t){.done = two_gone, .arg = &t.b}), WEFT_IN_PROGRESS);
    for (double end = test_now() + test_timeout(60); t.b && test_now() < end;)
        weft_worker_progress(t.b, 0);
    CHECK(!t.b);
    UNTIL(&t, t.errors);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(t.ready, 0);
    two_down(&t);
}

TEST(an_endpoint_that_does_not_survive_is_notified) {
    struct two t;
    two_workers(&t, "tcp", NULL, 0);
    two_dial(&t);
    for (double till = test_now() + test_timeout(60);
         test_now() < till && !connected((int[64]){0}, 64);)
        weft_worker_progress(t.a, 0);
    CHECK(handshakes(&t));
    kill_all();
    UNTIL(&t, t.errors);
    CHECK_EQ(t.error, WEFT_ERR_PEER_FAILED);
    two_down(&t);
}

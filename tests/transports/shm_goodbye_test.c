/* The last word of an end that closes finds no room in its socket: it waits for it, and the peer
 * learns it as soon as it reads. */
#include "rma.h"

enum { KEYS = 900 }; /* more words than a socket holds */

/* a has let go of so many keys that b has not read of all. */
static void begin_full(struct world *w, const char *rings) {
    const struct subject s = {&weft__transport_shm, 0, "auto", rings, ALL};
    struct lane_key *keys[KEYS];
    begin_with(w, &s, TARGET_LEN, WEFT_MEM_ALL, false, "1000");
    for (int i = 0; i < KEYS; i++) keys[i] = ask(w, &w->t.remote);
    for (int i = 0; i < KEYS; i++) CHECK(pair_until(&w->p, keys[i]->status == WEFT_OK));
    CHECK_EQ(w->mem->n_open, KEYS);
    for (int i = 0; i < KEYS; i++) w->p.a.lane->ops->rma->key_close(keys[i]);
}

static void close_with_no_room(const char *rings, bool flush) {
    struct world w;
    begin_full(&w, rings);
    w.p.a.lane->ops->close(w.p.a.lane, flush);
    for (double over = test_now() + test_timeout(60); !w.p.a.n_closed && test_now() < over;
         usleep(100))
        weft__reactor_progress(w.p.reactor_a, 0);
    CHECK_EQ(w.p.a.n_closed, 1);
    CHECK(pair_until(&w.p, w.p.b.n_down == 1));
    CHECK_EQ(w.mem->n_open, 0);
    end(&w);
}

TEST(close_with_no_room_for_its_last_word_is_noticed_rings) {
    close_with_no_room("64", true);
}
TEST(abort_with_no_room_for_its_last_word_is_noticed_rings) {
    close_with_no_room("64", false);
}
TEST(close_with_no_room_for_its_last_word_is_noticed_mailbox) {
    close_with_no_room("0", true);
}
TEST(abort_with_no_room_for_its_last_word_is_noticed_mailbox) {
    close_with_no_room("0", false);
}

/* The peer reads in time: nothing is given up. */
TEST(close_that_waits_for_room_is_in_good_order) {
    struct world w;
    close_timeout = "20s";
    begin_full(&w, "64");
    close_timeout = "300ms";
    w.p.a.lane->ops->close(w.p.a.lane, true);
    for (int i = 0; i < 10; i++) weft__reactor_progress(w.p.reactor_a, 0);
    CHECK(pair_until(&w.p, w.p.b.n_down == 1));
    CHECK_EQ(w.p.b.down, WEFT_ERR_PEER_CLOSED);
    end(&w);
}

/* Exposed memory: large messages out of it are read where they lie, by those who have it
 * mapped, and only then. */
#include <tests/support/exposed.h>
#include <tests/support/one_worker.h>

#include <signal.h>

/* ---- what is read in place, and what is not -------------------------------------------------- */

TEST(large_messages_out_of_exposed_memory_are_read_where_they_lie) {
    static const size_t lengths[] = {LARGE, 65537, 256 << 10, (256 << 10) + 1, 1 << 20, LEN - 4096};
    struct exposure_pair p;
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    CHECK_EQ(peers_of(p.mem), 1);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t before = read_in_place(&p);
        cross(&p, i * 7, lengths[i]);
        CHECK_EQ(read_in_place(&p), before + 1);
    }
    uint64_t before = read_in_place(&p);
    cross(&p, 5, 4000); /* small ones go as they always do */
    CHECK_EQ(read_in_place(&p), before);
    pair_down(&p);
}

/* However many wait for each other: each is longer than what is read within a turn. */
TEST(all_of_many_large_messages_at_once_are_read_in_place) {
    enum { MANY = 40, EACH = 600000 };
    struct exposure_pair p;
    struct tally sent = {0}, received = {0};
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    char *in = calloc(MANY, EACH);
    uint64_t before = read_in_place(&p), pieces = weft_worker_count(p.t.b, "protocol.pieces");
    for (int i = 0; i < MANY; i++) {
        weft_iov_t to = {in + (size_t)i * EACH, EACH}, from = {p.out + i * 4096, EACH};
        CHECK_EQ(weft_tag_recv(p.t.b, (uint64_t)i, UINT64_MAX, &to, 1, NULL, OP(&received)),
                 WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(p.t.ep, (uint64_t)i, &from, 1, OP(&sent)), WEFT_IN_PROGRESS);
    }
    UNTIL(&p.t, sent.calls == MANY && received.calls == MANY);
    CHECK_EQ(read_in_place(&p), before + MANY);
    CHECK_EQ(weft_worker_count(p.t.b, "protocol.pieces"), pieces);
    for (int i = 0; i < MANY; i++)
        CHECK(memcmp(in + (size_t)i * EACH, p.out + i * 4096, EACH) == 0);
    free(in);
    pair_down(&p);
}

TEST(memory_that_is_not_exposed_is_shown_to_no_one) {
    struct exposure_pair p;
    pair_up(&p, 0);
    for (int i = 0; i < 10; i++) cross(&p, 0, LARGE);
    CHECK_EQ(read_in_place(&p), 0);
    CHECK_EQ(peers_of(p.mem), 0);
    pair_down(&p);
}

TEST(a_message_that_only_begins_in_exposed_memory_is_not_read_there) {
    struct exposure_pair p;
    char *elsewhere = malloc(LARGE);
    weft_iov_t iov[2];
    struct tally sent = {0}, received = {0};
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    uint64_t before = read_in_place(&p);
    number(elsewhere, LARGE, 9);
    iov[0] = (weft_iov_t){p.out, LARGE};
    iov[1] = (weft_iov_t){elsewhere, LARGE};
    CHECK_EQ(weft_tag_recv(p.t.b, 1, UINT64_MAX, &(weft_iov_t){p.in, LEN}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p.t.ep, 1, iov, 2, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&p.t, sent.calls && received.calls);
    CHECK(memcmp(p.in, p.out, LARGE) == 0 && memcmp(p.in + LARGE, elsewhere, LARGE) == 0);
    CHECK_EQ(read_in_place(&p), before);
    free(elsewhere);
    pair_down(&p);
}

TEST(it_is_refused_to_expose_what_peers_may_not_read) {
    struct two t;
    weft_mem_t *mem;
    two_workers(&t, "shm", NULL, 0);
    weft_mem_params_t params = {.rights = WEFT_MEM_WRITE, .expose = 1};
    CHECK_EQ(weft_mem_alloc(t.a, 4096, &params, &mem), WEFT_ERR_INVALID_PARAM);
    two_down(&t);
}

/* Memory of the program's own cannot be mapped; it is sent as any. */
TEST(registered_memory_is_exposed_in_vain) {
    struct exposure_pair p;
    char *own = malloc(LEN);
    weft_mem_t *mem;
    pair_up(&p, 0);
    number(own, LEN, 3);
    weft_mem_params_t params = {.rights = WEFT_MEM_READ, .expose = 1};
    CHECK_EQ(weft_mem_register(p.t.a, own, LEN, &params, &mem), 0);
    for (int i = 0; i < 5; i++) cross_by(&p, p.t.ep, own, LARGE);
    CHECK(read_in_place(&p) == 0 && peers_of(mem) == 0);
    pair_down(&p);
    free(own);
}

/* From the size on that the peer announces. */
TEST(exposed_memory_is_read_from_the_size_on_that_is_printed) {
    struct exposure_pair p;
    weft_protocol_info_t row = {0};
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "auto", 1);
    pair_up(&p, 1);
    for (size_t i = 0; !row.exposed; i++) CHECK_EQ(weft_worker_protocol(p.t.a, 0, i, &row), 0);
    CHECK(!strcmp(row.name, "rendezvous mapped") && row.to == SIZE_MAX && row.from < LARGE);
    until_in_flight(&p, p.t.ep);
    uint64_t before = read_in_place(&p);
    cross(&p, 0, row.from - 1);
    CHECK_EQ(read_in_place(&p), before);
    cross(&p, 0, row.from);
    CHECK_EQ(read_in_place(&p), before + 1);
    pair_down(&p);
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "64k", 1);
}

struct whole {
    int n, in_place;
};
static void on_whole(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct whole *w = arg;
    w->n++;
    w->in_place += am->data == NULL;
}

/* Who must have all of a message with the call, or wants no reply, is not offered it. */
TEST(messages_that_must_be_whole_come_whole) {
    static const uint32_t flags[] = {WEFT_AM_EAGER, WEFT_AM_NO_REPLY,
                                     WEFT_AM_EAGER | WEFT_AM_NO_REPLY};
    struct exposure_pair p;
    struct whole w = {0};
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "auto", 1);
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    CHECK_EQ(weft_am_handler_set(p.t.b, 4, on_whole, &w), 0);
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
        weft_op_t op = {.flags = flags[i]};
        CHECK(weft_am_send(p.t.ep, 4, NULL, 0, &(weft_iov_t){p.out, 16000}, 1, &op) >= 0);
        UNTIL(&p.t, w.n == (int)i + 1);
    }
    CHECK_EQ(w.in_place, 0);
    pair_down(&p);
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "64k", 1);
}

struct fetched {
    weft_am_t *am;
    char *in;
    struct tally done;
};
static void on_offered(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct fetched *f = arg;
    CHECK(!am->data);
    weft_iov_t iov = {f->in, am->len};
    if (weft_am_recv(am, &iov, 1, OP(&f->done)) == WEFT_OK) f->done.calls++;
}

TEST(active_messages_are_read_in_place_too) {
    struct exposure_pair p;
    struct tally sent = {0};
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    struct fetched f = {.in = p.in};
    uint64_t before = read_in_place(&p);
    memset(p.in, 0, LEN);
    CHECK_EQ(weft_am_handler_set(p.t.b, 4, on_offered, &f), 0);
    CHECK_EQ(weft_am_send(p.t.ep, 4, "head", 4, &(weft_iov_t){p.out, LARGE}, 1, OP(&sent)),
             WEFT_IN_PROGRESS);
    UNTIL(&p.t, f.done.calls == 1 && sent.calls == 1);
    CHECK(sent.status == WEFT_OK && memcmp(p.in, p.out, LARGE) == 0);
    CHECK_EQ(read_in_place(&p), before + 1);
    pair_down(&p);
}

/* ---- receives that are not as long, not in one piece, or do not last ------------------------- */

TEST(a_receive_of_pieces_or_too_short_takes_what_fits) {
    enum { SHORT = 100001 };
    struct exposure_pair p;
    struct tally sent = {0}, received = {0};
    weft_iov_t iov[5];
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    for (int i = 0; i < 5; i++) iov[i] = (weft_iov_t){p.in + i * 50000 + i, 40001};
    CHECK_EQ(weft_tag_recv(p.t.b, 1, UINT64_MAX, iov, 5, NULL, OP(&received)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p.t.ep, 1, &(weft_iov_t){p.out + 3, LARGE}, 1, OP(&sent)),
             WEFT_IN_PROGRESS);
    UNTIL(&p.t, sent.calls && received.calls);
    for (int i = 0; i < 5; i++)
        CHECK(memcmp(iov[i].base, p.out + 3 + i * 40001, i < 4 ? 40001 : LARGE - 160004) == 0);

    sent = received = (struct tally){0};
    memset(p.in, 0, LEN);
    CHECK_EQ(
        weft_tag_recv(p.t.b, 1, UINT64_MAX, &(weft_iov_t){p.in, SHORT}, 1, NULL, OP(&received)),
        WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p.t.ep, 1, &(weft_iov_t){p.out, LARGE}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&p.t, sent.calls && received.calls);
    CHECK(received.status == WEFT_ERR_TRUNCATED && memcmp(p.in, p.out, SHORT) == 0 &&
          p.in[SHORT] == 0);
    pair_down(&p);
}

/* Whichever side ends it, and however far it is, both sides are notified once, and the next message
 * is whole. */
static void cancel_after(struct exposure_pair *p, int turns, bool sender) {
    struct tally sent = {0}, received = {0}, again = {0};
    weft_request_t *send = NULL, *receive = NULL;
    weft_op_t out = {.done = tally, .arg = &sent, .request_p = &send};
    weft_op_t in = {.done = tally, .arg = &received, .request_p = &receive};
    CHECK_EQ(weft_tag_recv(p->t.b, 1, UINT64_MAX, &(weft_iov_t){p->in, LEN}, 1, NULL, &in),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p->t.ep, 1, &(weft_iov_t){p->out, LEN}, 1, &out), WEFT_IN_PROGRESS);
    for (int i = 0; i < turns; i++) two_turn(&p->t);
    if (sender && !sent.calls) weft_request_cancel(send);
    if (!sender && !received.calls) weft_request_cancel(receive);
    for (int i = 0; i < 50; i++) two_turn(&p->t);
    if (sender && !received.calls) weft_request_cancel(receive);
    UNTIL(&p->t, received.calls == 1);
    if (!sent.calls) /* its receive was cancelled before it was found */
        CHECK_EQ(
            weft_tag_recv(p->t.b, 1, UINT64_MAX, &(weft_iov_t){p->in, LEN}, 1, NULL, OP(&again)),
            WEFT_IN_PROGRESS);
    UNTIL(&p->t, sent.calls == 1);
    if (received.status == WEFT_OK || again.calls) CHECK(memcmp(p->in, p->out, LEN) == 0);
    for (int i = 0; i < 50; i++) two_turn(&p->t);
    CHECK(sent.calls == 1 && received.calls == 1 && again.calls <= 1);
}

TEST(a_read_may_be_cancelled_by_either_side_at_any_time) {
    struct exposure_pair p;
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    for (int turns = 0; turns < 16; turns++) {
        cancel_after(&p, turns, true);
        cancel_after(&p, turns, false);
        cross(&p, 0, LARGE);
    }
    pair_down(&p);
}

/* ---- how an exposure ends -------------------------------------------------------------------- */

TEST(a_revoked_region_is_read_no_more_and_exposed_again_under_its_new_epoch) {
    struct exposure_pair p;
    struct tally revoked = {0};
    pair_up(&p, 1);
    for (int round = 0; round < 3; round++) {
        until_in_flight(&p, p.t.ep);
        weft_status_t st = weft_mem_revoke(p.mem, OP(&revoked));
        CHECK_EQ(st, WEFT_IN_PROGRESS);
        cross(&p, 0, LARGE);
        UNTIL(&p.t, revoked.calls == round + 1);
        CHECK_EQ(revoked.status, WEFT_OK);
    }
    pair_down(&p);
}

/* The program's own key takes the only place until then. With another lane all keys would be
 * opened again. */
static void refused_until_there_is_room(const char *setting) {
    struct exposure_pair p;
    weft_rkey_t *rkey;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    setenv(setting, "1", 1);
    setenv("WEFT_LANES_SWITCH", "off", 1);
    pair_up(&p, 1);
    weft_mem_t *other = region_of(p.t.a, 4096, 0);
    CHECK_EQ(weft_mem_pack(other, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p.t.back, key, len, &rkey), 0);
    UNTIL(&p.t, peers_of(other) == 1);
    for (int i = 0; i < 5; i++) cross(&p, 0, LARGE);
    CHECK(read_in_place(&p) == 0 && peers_of(p.mem) == 0);
    weft_rkey_release(rkey);
    UNTIL(&p.t, peers_of(other) == 0);
    until_in_flight(&p, p.t.ep);
    pair_down(&p);
    unsetenv("WEFT_LANES_SWITCH");
    unsetenv(setting);
}
TEST(an_exposure_for_which_the_owner_has_no_room_is_asked_for_again) {
    refused_until_there_is_room("WEFT_SHM_MAX_GRANTS");
}
TEST(an_exposure_for_which_the_reader_has_no_room_is_asked_for_again) {
    refused_until_there_is_room("WEFT_RMA_MAX_KEYS");
}

/* While the first of four turns of the read is over. */
TEST(a_region_may_be_revoked_under_a_read) {
    for (int turns = 0; turns < 12; turns++) {
        struct exposure_pair p;
        struct tally revoked = {0}, sent = {0}, received = {0};
        pair_up(&p, 1);
        until_in_flight(&p, p.t.ep);
        CHECK_EQ(
            weft_tag_recv(p.t.b, 1, UINT64_MAX, &(weft_iov_t){p.in, LEN}, 1, NULL, OP(&received)),
            WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(p.t.ep, 1, &(weft_iov_t){p.out, LEN}, 1, OP(&sent)),
                 WEFT_IN_PROGRESS);
        for (int i = 0; i < turns; i++) two_turn(&p.t);
        CHECK(weft_mem_revoke(p.mem, OP(&revoked)) >= 0);
        UNTIL(&p.t, sent.calls && received.calls && revoked.calls);
        CHECK(sent.status == WEFT_OK && received.status == WEFT_OK && revoked.status == WEFT_OK);
        CHECK(memcmp(p.in, p.out, LEN) == 0);
        pair_down(&p);
    }
}

TEST(a_release_waits_until_the_peer_has_let_go_and_its_address_may_be_used_again) {
    struct exposure_pair p;
    pair_up(&p, 1);
    for (int round = 0; round < 20; round++) {
        struct tally released = {0};
        until_in_flight(&p, p.t.ep);
        CHECK_EQ(weft_mem_release(p.mem, OP(&released)), WEFT_IN_PROGRESS);
        UNTIL(&p.t, released.calls == 1);
        p.mem = region_of(p.t.a, LEN, 1);
        p.out = base_of(p.mem);
        number(p.out, LEN, (unsigned)round);
        cross(&p, 0, LARGE);
    }
    pair_down(&p);
}

TEST(more_regions_than_anybody_remembers_are_exposed_in_turn) {
    enum { REGIONS = 40, ROUNDS = 3 };
    struct exposure_pair p;
    weft_mem_t *mem[REGIONS];
    uint32_t open = 0;
    pair_up(&p, 0);
    for (int i = 0; i < REGIONS; i++) mem[i] = region_of(p.t.a, LARGE, 1);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < REGIONS; i++) {
            char *from = base_of(mem[i]);
            number(from, LARGE, (unsigned)(i + round));
            for (int n = 0; n < 4; n++) cross_by(&p, p.t.ep, from, LARGE);
        }
    }
    CHECK(read_in_place(&p) > 0);
    for (int i = 0; i < 1000; i++) two_turn(&p.t);
    for (int i = 0; i < REGIONS; i++) open += peers_of(mem[i]);
    CHECK(open <= 16);
    pair_down(&p);
}

/* Each first message of a region announces a key beside it, also where the lane has room
 * for the one and not for the other. */
TEST(keys_are_announced_while_the_lane_is_full_and_every_message_comes_once) {
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "auto", 1);
    enum { REGIONS = 24, SMALL = 120, SMALL_LEN = 7000, ALL = REGIONS * (SMALL + 1) };
    struct exposure_pair p;
    struct tally received = {0}, sent = {0};
    int at_once = 0;
    pair_up(&p, 0);
    for (int i = 0; i < ALL; i++) {
        weft_status_t st = weft_tag_recv(p.t.b, (uint64_t)i, UINT64_MAX, &(weft_iov_t){p.in, LEN},
                                         1, NULL, OP(&received));
        CHECK_EQ(st, WEFT_IN_PROGRESS);
    }
    for (int i = 0; i < ALL; i++) {
        bool large = i % (SMALL + 1) == SMALL;
        char *from = large ? base_of(region_of(p.t.a, LARGE, 1)) : p.out;
        weft_iov_t iov = {from, large ? LARGE / 4 : SMALL_LEN};
        weft_status_t st = weft_tag_send(p.t.ep, (uint64_t)i, &iov, 1, OP(&sent));
        CHECK(st >= 0);
        at_once += st == WEFT_OK;
        if (i % 7 == 0) weft_worker_progress(p.t.b, 0);
    }
    UNTIL(&p.t, sent.calls + at_once == ALL && received.calls == ALL);
    for (int i = 0; i < 1000; i++) two_turn(&p.t);
    CHECK_EQ(sent.calls + at_once, ALL);
    CHECK_EQ(weft_worker_count(p.t.a, "tag.sent"), ALL);
    pair_down(&p);
    setenv("WEFT_RENDEZVOUS_THRESHOLD", "64k", 1);
}

/* The endpoint that holds the key goes, and the link does not. */
TEST(another_endpoint_of_the_link_goes_on_with_the_exposure) {
    struct exposure_pair p;
    struct tally closed = {0};
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    weft_ep_t *first = p.t.ep, *holder = p.t.back;
    two_dial(&p.t);
    UNTIL(&p.t, p.t.ready == 2 && p.t.endpoints == 2);
    uint64_t before = read_in_place(&p);
    cross(&p, 0, LARGE);
    CHECK_EQ(read_in_place(&p), before + 1);
    CHECK(weft_ep_close(first, WEFT_CLOSE_FLUSH, OP(&closed)) >= 0);
    CHECK(weft_ep_close(holder, WEFT_CLOSE_FLUSH, OP(&closed)) >= 0);
    UNTIL(&p.t, peers_of(p.mem) == 0);
    until_in_flight(&p, p.t.ep);
    pair_down(&p);
}

TEST(an_exposure_stands_while_messages_move_to_another_lane) {
    struct exposure_pair p;
    struct small small;
    pair_up(&p, 1);
    until_in_flight(&p, p.t.ep);
    small_begin(&p.t, &small);
    while (small_more(&p.t, &small, 1000)) cross(&p, 0, LARGE);
    small_moved(&p.t, &small);
    until_in_flight(&p, p.t.ep);
    pair_down(&p);
}

/* ---- a peer that dies ------------------------------------------------------------------------ */

struct lender {
    struct side s;
    weft_mem_t *mem, *room;
    bool split; /* what it receives may be written by its sender, too */
};

static void lender_open(struct lender *l, bool split) {
    weft_setting_t settings[] = {{"shm.copy", "staged"}};
    side_open(&l->s, "shm", settings, 1);
    l->split = split;
    l->mem = region_of(l->s.worker, LEN, 1);
    l->s.out = base_of(l->mem);
    l->room = region_for(l->s.worker, LEN, WEFT_MEM_READ | WEFT_MEM_WRITE, split);
    l->s.in = base_of(l->room);
}

/* The last message is LEN long; who dies does so so many turns after it posted its part. */
static bool last(struct side *s, bool sends, struct tally *c) {
    weft_iov_t iov = {sends ? s->out : s->in, LEN};
    weft_status_t st = sends ? weft_tag_send(s->ep, 1, &iov, 1, OP(c))
                             : weft_tag_recv(s->worker, 1, UINT64_MAX, &iov, 1, NULL, OP(c));
    /* a sender that died before may have left the short message behind */
    bool took_short = st == WEFT_OK && !sends && s->errors;
    if (st != WEFT_IN_PROGRESS && !took_short) CHECK_EQ(st, WEFT_ERR_PEER_FAILED);
    return st == WEFT_IN_PROGRESS;
}

/* Messages until the peer has the memory mapped, and this side its; a short one says that they
 * are over. */
static bool is_in_flight(const struct lender *l) {
    return l->split ? weft_worker_count(l->s.worker, "shm.put_bytes") > 0 : peers_of(l->mem) > 0;
}
static void send_until_in_flight(struct lender *l) {
    struct side *s = &l->s;
    while (!is_in_flight(l) && !s->errors) {
        struct tally c = {0};
        if (weft_tag_send(s->ep, 1, &(weft_iov_t){s->out, LARGE}, 1, OP(&c)) == WEFT_IN_PROGRESS)
            while (!c.calls) side_turn(s);
    }
    weft_tag_send(s->ep, 1, &(weft_iov_t){s->out, 1}, 1, NULL);
}
static void receive_until_in_flight(struct lender *l) {
    struct side *s = &l->s;
    weft_tag_info_t info = {.len = LARGE};
    while (info.len > 1 && !s->errors) {
        struct tally c = {0};
        if (weft_tag_recv(s->worker, 1, UINT64_MAX, &(weft_iov_t){s->in, LEN}, 1, &info, OP(&c)) ==
            WEFT_IN_PROGRESS)
            while (!c.calls && !s->errors) side_turn(s);
    }
}

struct death {
    bool sends, split;
    int turns;
};

static void dies(int out, const void *arg) {
    const struct death *death = arg;
    struct lender l;
    struct tally c = {0};
    lender_open(&l, death->split);
    side_meet(&l.s, out);
    (death->sends ? send_until_in_flight : receive_until_in_flight)(&l);
    (void)last(&l.s, death->sends, &c);
    for (int i = 0; i < death->turns; i++) side_turn(&l.s);
    kill(getpid(), SIGKILL);
}

static void survives(bool child_sends, bool split, int turns) {
    struct child child;
    struct lender l;
    struct tally c = {0};
    child_start(&child, dies, &(struct death){child_sends, split, turns});
    lender_open(&l, split);
    child_dial(&child, &l.s);
    (child_sends ? receive_until_in_flight : send_until_in_flight)(&l);
    if (split && child_sends && !l.s.errors) CHECK_EQ(peers_of(l.room), 1);
    bool posted = last(&l.s, !child_sends, &c);
    double end = test_now() + test_timeout(60);
    while (!l.s.errors && test_now() < end) side_turn(&l.s);
    CHECK_EQ(l.s.errors, 1);
    CHECK(WIFSIGNALED(child_end(&child)));
    weft_mem_t *same = region_of(l.s.worker, LEN, 0); /* as what it sent */
    bool whole = memcmp(l.s.in, base_of(same), LEN) == 0;
    side_close(&l.s);
    CHECK_EQ(c.calls, posted);
    if (child_sends && posted && c.status == WEFT_OK) CHECK(whole);
}

static void killed_at_any_time(bool split) {
    static const int turns[] = {0, 1, 2, 3, 4, 5, 8, 13, 30};
    for (unsigned i = 0; i < sizeof turns / sizeof *turns; i++) {
        survives(true, split, turns[i]);
        survives(false, split, turns[i]);
    }
}
TEST(a_peer_that_is_killed_while_exposed_memory_is_read) {
    killed_at_any_time(false);
}
TEST(a_peer_that_is_killed_while_both_sides_copy) {
    killed_at_any_time(true);
}

/* Large messages over several lanes of one link. */
#include <tests/support/rails.h>

#include <endpoints/connect/connect.h>
#include <endpoints/transfer/rail_ranges.h>
#include <endpoints/transfer/rendezvous.h>
#include <endpoints/wire/lane_ctrl.h>

static const char *const lanes[] = {"tcp", "shm"};
#define EACH_LANE(i) for (unsigned i = 0; i < sizeof lanes / sizeof *lanes; i++)

TEST(rails_carry_their_share_both_ways) {
    EACH_LANE(i) {
        struct run r;
        open_run(&r, lanes[i], "3", NULL);
        raise_rails(&r, 2);
        CHECK(!rail_of(r.two.a, 2));
        uint64_t before = weft_worker_count(r.two.a, "rail.bytes_out");
        transfer(&r, false, LARGE);
        uint64_t share = weft_worker_count(r.two.a, "rail.bytes_out") - before;
        CHECK(share > 0 && share < LARGE);
        transfer(&r, true, LARGE - 4097);
        CHECK(weft_worker_count(two_b(&r.two), "rail.bytes_out") > 0);
        transfer(&r, false, RAILS_LEAST - 1);
        close_run(&r);
    }
}

TEST(one_lane_is_all_there_is_unless_asked_for) {
    struct run r;
    open_run(&r, "tcp", "1", NULL);
    transfer(&r, false, LARGE);
    for (int i = 0; i < 100; i++) two_turn(&r.two);
    CHECK(!rail_of(r.two.a, 0));
    CHECK_EQ(weft_worker_count(r.two.a, "rail.bytes_out"), 0);
    close_run(&r);
}

static uint32_t lanes_of(weft_ep_t *ep) {
    weft_ep_info_t info;
    CHECK_EQ(weft_ep_describe(ep, &info), 0);
    return info.n_lanes;
}

TEST(an_endpoint_reports_its_rails) {
    EACH_LANE(i) {
        struct run r;
        /* the lane of a switch counts, too, while it lasts */
        open_run(&r, lanes[i], "3", &(weft_setting_t){"lanes.switch", "off"});
        uint32_t before = lanes_of(r.two.ep);
        raise_rails(&r, 2);
        CHECK_EQ(lanes_of(r.two.ep), before + 2);
        CHECK_EQ(lanes_of(r.two.back), before + 2);
        weft__link_lose(rail_of(two_b(&r.two), 0), WEFT_ERR_IO);
        UNTIL(&r.two, lanes_of(r.two.ep) == before + 1 && lanes_of(r.two.back) == before + 1);
        close_run(&r);
    }
}

TEST(the_split_follows_what_lanes_carry) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    raise_rails(&r, 1);
    struct link *main = link_of(&r, false), *rail = rail_of(r.two.a, 0);
    uint64_t before = weft_worker_count(r.two.a, "rail.bytes_out");
    main->more->rate = 3;
    rail->more->rate = 1;
    transfer(&r, false, LARGE);
    uint64_t share = weft_worker_count(r.two.a, "rail.bytes_out") - before;
    CHECK(share > LARGE / 4 - 8192 && share <= LARGE / 4);

    before += share;
    main->more->rate = 100;
    rail->more->rate = 1; /* so slow that it would only delay the end */
    transfer(&r, false, LARGE);
    CHECK_EQ(weft_worker_count(r.two.a, "rail.bytes_out"), before);
    close_run(&r);
}

TEST(a_rail_that_is_lost_while_idle_just_leaves) {
    EACH_LANE(i) {
        struct run r;
        open_run(&r, lanes[i], "2", NULL);
        raise_rails(&r, 1);
        weft__link_lose(rail_of(two_b(&r.two), 0), WEFT_ERR_IO);
        UNTIL(&r.two, !rail_of(r.two.a, 0) && !rail_of(two_b(&r.two), 0));
        CHECK_EQ(r.two.errors, 0);
        transfer(&r, false, LARGE);
        transfer(&r, true, LARGE);
        CHECK_EQ(r.two.errors, 0);
        close_run(&r);
    }
}

TEST(a_rail_that_is_lost_in_a_transfer_costs_the_link_and_each_request_ends_once) {
    EACH_LANE(i) {
        for (int turns = 0; turns < 12; turns++) {
            struct run r;
            open_run(&r, lanes[i], "2", NULL);
            raise_rails(&r, 1);
            begin(&r, false, LARGE);
            for (int k = 0; k < turns; k++) two_turn(&r.two);
            struct link *rail = rail_of(turns % 2 ? r.two.a : two_b(&r.two), 0);
            bool over = r.received == 1;
            weft__link_lose(rail, WEFT_ERR_IO);
            UNTIL(&r.two, r.sent == 1 && r.received == 1);
            for (int k = 0; k < 50; k++) two_turn(&r.two);
            CHECK(r.sent == 1 && r.received == 1);
            CHECK(r.received_status < 0 || memcmp(r.in, r.out, LARGE) == 0);
            if (over) CHECK_EQ(r.received_status, WEFT_OK);
            close_run(&r);
        }
    }
}

TEST(a_cancelled_transfer_gives_the_memory_back) {
    EACH_LANE(i) {
        struct run r;
        weft_request_t *request = NULL;
        open_run(&r, lanes[i], "2", NULL);
        raise_rails(&r, 1);
        r.sent = r.received = 0;
        CHECK_EQ(weft_tag_recv(two_b(&r.two), 1, UINT64_MAX, &(weft_iov_t){r.in, LARGE}, 1, NULL,
                               &(weft_op_t){.done = on_received, .arg = &r}),
                 WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(r.two.ep, 1, &(weft_iov_t){r.out, LARGE}, 1,
                               &(weft_op_t){.done = on_sent, .arg = &r, .request_p = &request}),
                 WEFT_IN_PROGRESS);
        for (int k = 0; k < 4 && !r.sent; k++) two_turn(&r.two);
        if (!r.sent) weft_request_cancel(request);
        UNTIL(&r.two, r.sent == 1 && r.received == 1);
        r.sent = r.received = 0;
        transfer(&r, false, LARGE); /* and the link still works */
        close_run(&r);
    }
}

TEST(the_link_ends_with_its_rails) {
    EACH_LANE(i) {
        struct run r;
        open_run(&r, lanes[i], "4", NULL);
        raise_rails(&r, 3);
        weft__link_lose(link_of(&r, false), WEFT_ERR_IO);
        UNTIL(&r.two, r.two.errors == 1 && !rail_of(r.two.a, 0) && !rail_of(two_b(&r.two), 0));
        close_run(&r);
    }
}

/* ---- what a peer may not say ----------------------------------------------------------------- */

TEST(a_rail_that_no_one_granted_is_turned_away) {
    struct run r;
    struct link *unverified;
    struct lane *lane;
    open_run(&r, "tcp", "2", NULL);
    transfer(&r, false, 100000);
    struct link *main = link_of(&r, false);
    char bytes[256];
    size_t len = sizeof bytes;
    struct address to;
    CHECK_EQ(weft_worker_address(two_b(&r.two), bytes, &len), 0);
    CHECK_EQ(weft__address_read(bytes, len, &to), 0);
    struct iface *iface = weft__link_iface(main);
    CHECK_EQ(iface->ops->connect(iface, to.entry[0].bytes, to.entry[0].len, &lane), 0);
    CHECK_EQ(weft__link_dial(r.two.a, lane, main->peer, NULL, "test", &unverified), 0);
    unverified->flags = WIRE_HELLO_EXTRA | WIRE_HELLO_RAIL;
    unverified->listener = 12345;
    uint64_t before = weft_worker_count(two_b(&r.two), "peer.violations");
    UNTIL(&r.two, weft_worker_count(two_b(&r.two), "peer.violations") == before + 1);
    for (int i = 0; i < 50; i++) two_turn(&r.two);
    CHECK_EQ(r.two.errors, 0);
    transfer(&r, false, 100000);
    close_run(&r);
}

static struct link *dialed_rail(const weft_worker_t *worker) {
    struct link *link;
    list_for_each_entry(link, &worker->links, of_worker) {
        if (link->dialed && link->role == LINK_RAIL) return link;
    }
    return NULL;
}

/* The messages of a rail are its link's, which is lost with it. */
TEST(a_rail_cannot_ask_to_be_survived) {
    struct run r;
    open_run(&r, "tcp", "2", NULL);
    weft__rails_want(link_of(&r, false), LARGE);
    UNTIL(&r.two, dialed_rail(r.two.a));
    struct link *rail = dialed_rail(r.two.a);
    CHECK(!link_is_up(&rail->core.fsm) && !link_is_in_handshake(&rail->core.fsm));
    rail->flags |= WIRE_HELLO_SURVIVES;
    UNTIL(&r.two, rail_of(r.two.a, 0) && rail_of(two_b(&r.two), 0));
    CHECK(!rail_of(two_b(&r.two), 0)->more->retain);
    transfer(&r, false, LARGE);
    close_run(&r);
}

/* A message that a link takes, of every kind. False: a rail may bring it. */
static bool valid_message(struct wire_message *m, uint8_t id) {
    uint64_t alone = WIRE_AM_NO_REPLY | 1;
    *m = (struct wire_message){.id = id, .len = 16};
    switch (id) {
    case WIRE_DATA:
    case WIRE_HELLO: return false;
    case WIRE_AM: memcpy(m->bytes, &alone, sizeof alone); break;
    case WIRE_RTS:
        m->len = (uint16_t)weft__wire_rts(
            m->bytes, &(struct wire_rts){.request = 5, .kind = WIRE_OFFER_TAG, .len = 1});
        break;
    case WIRE_CTS: weft__wire_cts(m, (struct wire_cts){.request = 5, .to = 6, .len = 1}); break;
    case WIRE_FIN: weft__wire_fin(m, (struct wire_fin){5, WEFT_OK}); break;
    case WIRE_CANCEL:
    case WIRE_GONE:
    case WIRE_CLOSE:
    case WIRE_RAIL: weft__wire_one(m, id, 5); break;
    case WIRE_CREDIT: weft__wire_credit(m, (struct wire_credit){.ep = 5, .bytes = 1}); break;
    case WIRE_OPEN: weft__wire_open(m, (struct wire_open){.from = 0x00100007}); break;
    case WIRE_ACCEPT: weft__wire_accept(m, (struct wire_accept){.ep = 5, .from = 6}); break;
    case WIRE_REJECT: weft__wire_reject(m, (struct wire_reject){5, WEFT_ERR_REJECTED}); break;
    case WIRE_PING: weft__wire_ping(m); break;
    case WIRE_PUT:
        weft__wire_put(m->bytes, &(struct wire_put){.ep = 5}), m->len = WIRE_PUT_HEAD;
        break;
    case WIRE_GET: weft__wire_get(m, &(struct wire_get){.ep = 5, .to = 6, .len = 1}); break;
    case WIRE_ATOMIC: weft__wire_atomic(m, &(struct wire_atomic){.ep = 5, .size = 8}); break;
    case WIRE_RMA_DONE: weft__wire_rma_done(m, (struct wire_rma_done){.request = 5}); break;
    case WIRE_FLUSH: weft__wire_flush(m, (struct wire_flush){.ep = 5, .request = 6}); break;
    case WIRE_FLUSHED: weft__wire_flushed(m, (struct wire_fin){5, WEFT_OK}); break;
    case WIRE_STREAM_CREDIT: weft__wire_stream_credit(m, (struct wire_credit){.ep = 5}); break;
    case WIRE_RAIL_RATE: weft__wire_rail_rate(m, (struct wire_credit){.bytes = 5}); break;
    case WIRE_LANE: weft__lane_count(m, LANE_HEARTBEAT_ASK, 0); break;
    case WIRE_TAG_BEGIN:
        weft__wire_tag_begin(m->bytes, (struct wire_tag_begin){.ep = 5, .len = 1 << 20});
        m->len = WIRE_TAG_BEGIN_HEAD + 1;
        break;
    case WIRE_TAG_PART: weft__wire_tag_give_up(m, (struct wire_tag_part){.ep = 5}); break;
    case WIRE_EXPOSE:
        weft__wire_expose(m, (struct wire_expose){.ep = 5, .key = "key", .len = 3});
        break;
    case WIRE_PUT_REQ: weft__wire_put_req(m, (struct wire_put_req){.request = 5, .len = 1}); break;
    case WIRE_PUT_DONE: weft__wire_put_done(m); break;
    }
    return true;
}

static void count_alone(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}

/* It is closed with its link, whatever is on it, and keeps no order with the link's messages. */
TEST(a_rail_brings_pieces_of_large_messages_and_nothing_else) {
    for (uint8_t id = 0; id <= WIRE_N_IDS; id++) {
        struct run r;
        struct wire_message m;
        int came = 0;
        if (!valid_message(&m, id)) continue;
        open_run(&r, "tcp", "2", NULL);
        CHECK_EQ(weft_am_handler_set(two_b(&r.two), 1, count_alone, &came), 0);
        raise_rails(&r, 1);
        uint64_t before = weft_worker_count(two_b(&r.two), "peer.violations");
        weft__link_control(rail_of(r.two.a, 0), &m);
        for (int i = 0; i < 1000 && rail_of(two_b(&r.two), 0); i++) two_turn(&r.two);
        if (rail_of(two_b(&r.two), 0)) printf("  a rail brought message %u\n", id);
        UNTIL(&r.two, !rail_of(two_b(&r.two), 0) && !rail_of(r.two.a, 0));
        CHECK_EQ(weft_worker_count(two_b(&r.two), "peer.violations"), before + 1);
        CHECK_EQ(came + r.two.errors, 0);
        transfer(&r, false, LARGE);
        close_run(&r);
    }
}

static unsigned links_of(const weft_worker_t *worker) {
    unsigned n = 0;
    for (const struct list *at = worker->links.next; at != &worker->links; at = at->next) n++;
    return n;
}

/* The link that a lane was granted to may end while the lane is on its way: its peer did nothing
 * wrong. */
TEST(a_lane_that_no_one_expects_any_more_is_turned_away_and_no_violation) {
    struct two t;
    struct link *accepted;
    struct lane *lane;
    struct address to;
    char bytes[256];
    size_t len = sizeof bytes;
    two_up(&t, "tcp");
    CHECK_EQ(weft_worker_address(t.b, bytes, &len), 0);
    CHECK_EQ(weft__address_read(bytes, len, &to), 0);
    struct iface *iface = weft__link_iface(t.ep->link);
    CHECK_EQ(iface->ops->connect(iface, to.entry[0].bytes, to.entry[0].len, &lane), 0);
    CHECK_EQ(weft__link_dial(t.a, lane, t.ep->link->peer, NULL, "test", &accepted), 0);
    accepted->flags = WIRE_HELLO_EXTRA | WIRE_HELLO_LANE;
    accepted->listener = 12345;
    CHECK_EQ(links_of(t.a), 2);
    UNTIL(&t, links_of(t.a) == 1);
    CHECK_EQ(weft_worker_count(t.b, "peer.violations"), 0);
    CHECK_EQ(t.errors + t.back_errors, 0);
    CHECK_EQ(weft_ep_flush_wait(t.ep), 0);
    two_down(&t);
}

/* A side that is asked for one rail grants one, or none: no peer makes this side dial as often as
 * it likes. */
TEST(a_rail_is_dialed_for_each_that_was_asked_for_and_no_more) {
    struct run r;
    struct wire_message m;
    unsigned most = 0;
    open_run(&r, "tcp", "2", NULL);
    for (uint32_t i = 1; i <= 20; i++) {
        weft__wire_one(&m, WIRE_RAIL, i);
        weft__link_control(link_of(&r, true), &m);
    }
    weft__rails_want(link_of(&r, false), LARGE);
    for (int i = 0; i < 200 && !r.two.errors; i++) {
        two_turn(&r.two);
        if (links_of(r.two.a) > most) most = links_of(r.two.a);
    }
    CHECK(most <= 2);
    UNTIL(&r.two, r.two.errors == 1);
    CHECK_EQ(r.two.error, WEFT_ERR_PROTOCOL);
    close_run(&r);
}

/* Whatever a peer claims its lanes carry is its own loss. */
TEST(a_rate_may_be_any_number_but_none) {
    static const uint64_t claims[] = {1, 1000, UINT64_C(1) << 40, UINT64_MAX};
    struct run r;
    struct wire_message m;
    open_run(&r, "tcp", "3", NULL);
    raise_rails(&r, 2);
    uint32_t number[] = {0, rail_of(r.two.a, 0)->more->rail_number,
                         rail_of(r.two.a, 1)->more->rail_number, 12345};
    for (unsigned i = 0; i < 64; i++) {
        weft__wire_rail_rate(&m,
                             (struct wire_credit){.ep = number[i % 4], .bytes = claims[i / 4 % 4]});
        weft__link_control(link_of(&r, true), &m);
        if (i % 3 == 0) transfer(&r, false, RAILS_LEAST + i);
    }
    CHECK_EQ(r.two.errors, 0);
    weft__wire_rail_rate(&m, (struct wire_credit){.ep = 0, .bytes = 0});
    weft__link_control(link_of(&r, true), &m);
    UNTIL(&r.two, r.two.errors == 1);
    CHECK_EQ(r.two.error, WEFT_ERR_PROTOCOL);
    close_run(&r);
}

/* Ranges of a receive: every piece that overlaps, leaves its rail's order or the message is
 * refused. */
TEST(pieces_come_once_and_in_bounds) {
    struct link_ext none = {0};
    struct link main = {.more = &none};
    struct link_ext rail = {.main = &main};
    struct link one = {.more = &rail}, two = {.more = &rail}, three = {.more = &rail},
                four = {.more = &rail};
    struct lane own = {.owner = &main}, a = {.owner = &one}, b = {.owner = &two},
                c = {.owner = &three}, d = {.owner = &four};
    struct run r;
    open_run(&r, "self", "1", NULL);
    struct weft_request *req = weft__request_new(r.two.a, &weft__receive_kind);
    req->len = 1000;
    CHECK(!weft__rail_ranges_may_come(req, &own, 10, 10)); /* not in order */
    CHECK(!weft__rail_ranges_may_come(req, &own, 0, 1001));
    CHECK(!weft__rail_ranges_may_come(req, &own, 0, 0));
    CHECK(!weft__rail_ranges_may_come(req, &a, 1001, 1));
    CHECK(!weft__rail_ranges_may_come(req, &a, 1, SIZE_MAX));
    CHECK(weft__rail_ranges_may_come(req, &a, 500, 100));
    CHECK_EQ(weft__rail_ranges_came(req, &a, 500, 100), 0);
    CHECK(!weft__rail_ranges_may_come(req, &a, 500, 100)); /* again */
    CHECK(!weft__rail_ranges_may_come(req, &a, 650, 10));  /* not its next */
    CHECK(!weft__rail_ranges_may_come(req, &b, 550, 10));  /* another's */
    CHECK(!weft__rail_ranges_may_come(req, &b, 450, 51));
    CHECK(!weft__rail_ranges_may_come(req, &own, 0, 501));
    CHECK(weft__rail_ranges_may_come(req, &own, 0, 500));
    CHECK_EQ(weft__rail_ranges_came(req, &own, 0, 500), 0);
    CHECK(!weft__rail_ranges_may_come(req, &b, 499, 1));
    CHECK_EQ(weft__rail_ranges_came(req, &b, 700, 100), 0);
    CHECK(!weft__rail_ranges_may_come(req, &a, 600, 101));
    CHECK_EQ(weft__rail_ranges_came(req, &c, 900, 100), 0);
    CHECK(!weft__rail_ranges_may_come(req, &d, 850, 10)); /* more lanes than there are */
    CHECK_EQ(weft__rail_ranges_came(req, &a, 600, 100), 0);
    CHECK(!weft__rail_ranges_all_came(req));
    CHECK_EQ(weft__rail_ranges_place(req, &b, 800, 50, 7), 0); /* on its way: taken */
    CHECK(!weft__rail_ranges_may_come(req, &a, 700, 101) &&
          !weft__rail_ranges_may_come(req, &own, 500, 301));
    CHECK(!weft__rail_ranges_all_came(req));
    weft__rail_ranges_placed(req, &b, 6, true); /* another's */
    CHECK(!weft__rail_ranges_may_come(req, &a, 700, 101));
    weft__rail_ranges_placed(req, &b, 7, true);
    CHECK_EQ(weft__rail_ranges_place(req, &b, 850, 50, 8), 0);
    weft__rail_ranges_placed(req, &b, 8, false);
    CHECK(!weft__rail_ranges_all_came(req));
    CHECK_EQ(weft__rail_ranges_came(req, &b, 850, 50), 0);
    CHECK(weft__rail_ranges_all_came(req));
    weft__request_discard(req);
    close_run(&r);
}

/* Tagged messages that cross whole and land in the memory of their receive: they are received as
 * others are, and what ends one half way leaves its receive ended once, or posted where it
 * stood. */
#include <tests/support/kill_child.h>

#include <endpoints/core/worker.h>
#include <transports/tcp/tcp.h>

enum { LONG = 200 << 10, ROOM = LONG + 4096 };
static char from[LONG], into[4][ROOM];

/* less than a message: it lands bit by bit */
static const weft_setting_t short_queue = {"tcp.local_queue", "8k"};

struct receive {
    struct tally got;
    weft_tag_info_t info;
    weft_request_t *request;
};

static void post(struct two *t, struct receive *r, unsigned n, uint64_t tag, uint64_t mask) {
    weft_iov_t iov = {into[n], ROOM};
    *r = (struct receive){0};
    memset(into[n], 0x5a, ROOM);
    weft_op_t op = {.done = tally, .arg = &r->got, .request_p = &r->request};
    CHECK_EQ(weft_tag_recv(two_b(t), tag, mask, &iov, 1, &r->info, &op), WEFT_IN_PROGRESS);
}

static void send_long(struct two *t, uint64_t tag, size_t len, struct tally *sent) {
    weft_op_t op = {.done = tally, .arg = sent, .flags = WEFT_AM_EAGER};
    pattern(from, len, 3);
    weft_status_t st = weft_tag_send(t->ep, tag, &(weft_iov_t){from, len}, 1, &op);
    CHECK(st == WEFT_IN_PROGRESS || st == WEFT_OK);
    if (st == WEFT_OK) sent->calls++;
}

static void is_whole(const struct two *t, const struct receive *r, unsigned n, uint64_t tag,
                     size_t len) {
    CHECK_EQ(r->got.calls, 1);
    CHECK_EQ(r->got.status, WEFT_OK);
    CHECK_EQ(r->info.tag, tag);
    CHECK_EQ(r->info.len, len);
    CHECK(r->info.ep == t->back);
    CHECK(is_pattern(into[n], len, 3));
    CHECK_EQ((unsigned char)into[n][len], 0x5a);
}

static bool places(const struct receive *r) {
    return r->request && r->request->placement != 0;
}
static void half_way(struct two *t, const struct receive *r) {
    UNTIL(t, places(r));
    CHECK_EQ(r->got.calls, 0);
}

static void two_with(struct two *t, const weft_setting_t *settings, size_t n) {
    two_workers(t, "tcp", settings, n);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

TEST(a_long_message_places_where_its_receive_is_posted) {
    struct two t;
    struct receive r;
    static const size_t lens[] = {32 << 10, (32 << 10) + 1, 50001, 65536, 100003, LONG};
    two_with(&t, NULL, 0);
    for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
        struct tally sent = {0};
        uint64_t before = weft_worker_count(t.b, "tcp.placed_bytes");
        post(&t, &r, 0, 7, i % 2 ? UINT64_MAX : 0xf);
        send_long(&t, 7 + (i % 2 ? 0 : 16), lens[i], &sent);
        UNTIL(&t, r.got.calls && sent.calls);
        is_whole(&t, &r, 0, 7 + (i % 2 ? 0 : 16), lens[i]);
        if (lens[i] > 70000) /* more than one read brings */
            CHECK(weft_worker_count(t.b, "tcp.placed_bytes") > before);
    }
    CHECK_EQ(weft_worker_count(t.b, "tag.received"), sizeof lens / sizeof *lens);
    two_down(&t);
}

TEST(what_has_no_receive_is_too_long_for_it_or_goes_into_many_pieces_does_not_place) {
    struct two t;
    struct tally sent = {0}, cut = {0}, pieces = {0};
    struct receive late;
    weft_iov_t iov[64];
    two_with(&t, &short_queue, 1);
    memset(into[1], 0x5a, ROOM);
    CHECK_EQ(weft_tag_recv(t.b, 1, UINT64_MAX, &(weft_iov_t){into[1], 1000}, 1, NULL, OP(&cut)),
             WEFT_IN_PROGRESS);
    for (unsigned i = 0; i < 64; i++)
        iov[i] = (weft_iov_t){into[2] + (size_t)i * (LONG / 64), LONG / 64};
    CHECK_EQ(weft_tag_recv(t.b, 2, UINT64_MAX, iov, 64, NULL, OP(&pieces)), WEFT_IN_PROGRESS);
    for (unsigned tag = 1; tag <= 3; tag++) send_long(&t, tag, LONG, &sent);
    UNTIL(&t, sent.calls == 3 && cut.calls && pieces.calls &&
                  weft_tag_probe(t.b, 3, UINT64_MAX, NULL) == WEFT_OK);
    CHECK_EQ(weft_worker_count(t.b, "tcp.placed_bytes"), 0);
    CHECK_EQ(cut.status, WEFT_ERR_TRUNCATED);
    CHECK(is_pattern(into[1], 1000, 3));
    CHECK_EQ((unsigned char)into[1][1000], 0x5a);
    CHECK_EQ(pieces.status, WEFT_OK);
    CHECK(is_pattern(into[2], LONG, 3));
    late = (struct receive){0};
    CHECK_EQ(weft_tag_recv(t.b, 3, UINT64_MAX, &(weft_iov_t){into[3], ROOM}, 1, &late.info, NULL),
             WEFT_OK);
    CHECK(is_pattern(into[3], LONG, 3));
    two_down(&t);
}

static weft_status_t unpack_form(void *to, size_t offset, const void *bytes, size_t len) {
    memcpy((char *)to + offset, bytes, len);
    return WEFT_OK;
}
static weft_status_t start_form(void *object, size_t count, int receives, void **state_p,
                                size_t *len_p) {
    *state_p = object;
    *len_p = count;
    return WEFT_OK;
}

TEST(what_its_receive_lays_out_bit_by_bit_or_unpacks_does_not_place) {
    enum { BLOCK = 64 };
    struct two t;
    static const weft_pack_ops_t form = {.start = start_form, .unpack = unpack_form};
    static const weft_layout_t layouts[] = {{.kind = WEFT_LAYOUT_STRIDED,
                                             .block = BLOCK,
                                             .stride = 2 * BLOCK,
                                             .count = LONG / 2 / BLOCK},
                                            {.kind = WEFT_LAYOUT_USER, .user = &form}};
    two_with(&t, &short_queue, 1);
    for (unsigned i = 0; i < 2; i++) {
        struct tally sent = {0}, got = {0};
        bool strided = layouts[i].kind == WEFT_LAYOUT_STRIDED;
        weft_op_t op = {.done = tally, .arg = &got, .layout = &layouts[i]};
        memset(into[0], 0x5a, ROOM);
        CHECK_EQ(weft_tag_recv(t.b, 1, UINT64_MAX, &(weft_iov_t){into[0], strided ? 0 : LONG / 2},
                               1, NULL, &op),
                 WEFT_IN_PROGRESS);
        send_long(&t, 1, LONG / 2, &sent);
        UNTIL(&t, sent.calls && got.calls);
        CHECK_EQ(got.status, WEFT_OK);
        for (unsigned at = 0, step = strided ? 2 * BLOCK : BLOCK; at < LONG / 2; at += BLOCK)
            CHECK(memcmp(into[0] + (size_t)at / BLOCK * step, from + at, BLOCK) == 0);
    }
    CHECK_EQ(weft_worker_count(t.b, "tcp.placed_bytes"), 0);
    two_down(&t);
}

TEST(messages_behind_one_that_places_come_after_it) {
    struct two t;
    struct receive r[3];
    struct tally sent = {0};
    two_with(&t, &short_queue, 1);
    for (unsigned i = 0; i < 3; i++) post(&t, &r[i], i, 7, UINT64_MAX);
    send_long(&t, 7, LONG, &sent);
    send_long(&t, 7, 8, &sent);
    send_long(&t, 7, LONG / 2, &sent);
    UNTIL(&t, r[0].got.calls);
    is_whole(&t, &r[0], 0, 7, LONG);
    UNTIL(&t, r[2].got.calls && sent.calls == 3);
    is_whole(&t, &r[1], 1, 7, 8);
    is_whole(&t, &r[2], 2, 7, LONG / 2);
    two_down(&t);
}

/* The message has found it, and goes with it: the next message is the next receive's. */
TEST(a_cancelled_receive_ends_while_a_message_places) {
    struct two t;
    struct receive r, next;
    two_with(&t, &short_queue, 1);
    int64_t credit = t.ep->credit - t.back->credit_left;
    for (unsigned i = 0; i < 3; i++) {
        struct tally sent = {0};
        post(&t, &r, 0, 7, UINT64_MAX);
        send_long(&t, 7, LONG, &sent);
        half_way(&t, &r);
        weft_request_cancel(r.request);
        CHECK_EQ(r.got.calls, 0); /* the transport has the memory */
        UNTIL(&t, r.got.calls);
        CHECK_EQ(r.got.status, WEFT_ERR_CANCELLED);
        memset(into[0], 0x77, ROOM);
        post(&t, &next, 1, 7, UINT64_MAX);
        UNTIL(&t, sent.calls);
        send_long(&t, 7, LONG / 4, &sent);
        UNTIL(&t, next.got.calls && sent.calls == 2);
        is_whole(&t, &next, 1, 7, LONG / 4);
        for (size_t at = 0; at < ROOM; at++) CHECK_EQ(into[0][at], 0x77);
        CHECK_EQ(r.got.calls, 1);
    }
    /* all of it came back, or is about to */
    UNTIL(&t, t.ep->credit - t.back->credit_left == credit);
    two_down(&t);
}

TEST(a_receive_whose_message_breaks_off_is_posted_where_it_stood) {
    for (unsigned masked = 0; masked < 2; masked++) {
        struct two t;
        struct receive r[3];
        struct tally sent = {0}, rest = {0};
        uint64_t mask = masked ? 0xff : UINT64_MAX;
        two_with(&t, &short_queue, 1);
        post(&t, &r[0], 0, 6, mask);
        for (unsigned i = 1; i < 3; i++) post(&t, &r[i], i, 7, mask);
        send_long(&t, 7, LONG, &sent);
        half_way(&t, &r[1]);
        shutdown(tcp_lane(t.ep->link->lane)->watch.fd, SHUT_RDWR);
        UNTIL(&t, t.errors && t.back_errors && sent.calls);
        CHECK(!places(&r[1]));
        CHECK_EQ(r[0].got.calls + r[1].got.calls + r[2].got.calls, 0);
        t.ready = 0;
        t.back = NULL;
        two_dial(&t);
        UNTIL(&t, t.ready && t.back);
        for (unsigned i = 0; i < 3; i++) send_long(&t, i == 1 ? 6 : 7, LONG - i, &rest);
        UNTIL(&t, r[2].got.calls);
        is_whole(&t, &r[1], 1, 7, LONG);
        is_whole(&t, &r[0], 0, 6, LONG - 1);
        is_whole(&t, &r[2], 2, 7, LONG - 2);
        two_down(&t);
    }
}

/* The older of two that both want a message gets it, although the younger had found one before. */
TEST(a_receive_that_is_posted_again_does_not_overtake_an_older_one) {
    struct two t;
    struct receive older, younger;
    struct tally sent = {0}, rest = {0};
    two_with(&t, &short_queue, 1);
    post(&t, &older, 0, 0x10, 0xf0);
    post(&t, &younger, 1, 0x07, 0x0f);
    send_long(&t, 0x07, LONG, &sent);
    half_way(&t, &younger);
    shutdown(tcp_lane(t.ep->link->lane)->watch.fd, SHUT_RDWR);
    UNTIL(&t, t.errors && t.back_errors && sent.calls);
    t.ready = 0;
    t.back = NULL;
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    send_long(&t, 0x17, LONG, &rest);
    UNTIL(&t, older.got.calls && rest.calls);
    is_whole(&t, &older, 0, 0x17, LONG);
    CHECK_EQ(younger.got.calls, 0);
    two_down(&t);
    CHECK_EQ(younger.got.calls, 1);
}

static weft_worker_t *third;
#define UNTIL_THREE(t, cond) UNTIL(t, (weft_worker_progress(third, 0), (cond)))

/* `other` has the third worker's endpoint, which has opened. */
static void two_and_a_third(struct two *t, struct two *other) {
    weft_worker_params_t tcp = {.transports = "tcp"};
    two_with(t, &short_queue, 1);
    *other = *t;
    CHECK_EQ(weft_worker_create(t->context, &tcp, &third), WEFT_OK);
    other->a = third;
    two_dial(other);
    t->back = NULL;
    UNTIL_THREE(t, t->back);
}

/* Two peers go while their messages land; whichever is missed first, the receives stand as they
 * were posted. */
TEST(receives_whose_messages_break_off_together_are_posted_in_their_order) {
    for (unsigned first = 0; first < 2; first++) {
        struct two t, other;
        struct receive r[3];
        struct tally sent[2] = {{0}}, rest = {0};
        weft_ep_t *ep[2];
        two_and_a_third(&t, &other);
        for (unsigned i = 0; i < 3; i++) post(&t, &r[i], i, 7, UINT64_MAX);
        send_long(&t, 7, LONG, &sent[0]);
        half_way(&t, &r[0]);
        send_long(&other, 7, LONG, &sent[1]);
        UNTIL(&other, places(&r[1])); /* the first sender is not driven */
        ep[0] = t.ep, ep[1] = other.ep;
        for (unsigned i = 0; i < 2; i++) {
            shutdown(tcp_lane(ep[i ^ first]->link->lane)->watch.fd, SHUT_RDWR);
            UNTIL_THREE(&t, t.back_errors == (int)i + 1 && !places(&r[i ^ first]));
        }
        CHECK_EQ(r[0].got.calls + r[1].got.calls, 0);
        t.ready = 0;
        t.back = NULL;
        two_dial(&t);
        UNTIL_THREE(&t, t.ready && t.back);
        for (unsigned i = 0; i < 3; i++) send_long(&t, 7, LONG - i, &rest);
        UNTIL_THREE(&t, r[0].got.calls && r[1].got.calls && r[2].got.calls);
        for (unsigned i = 0; i < 3; i++) is_whole(&t, &r[i], i, 7, LONG - i);
        weft_worker_destroy(third);
        two_down(&t);
    }
}

/* One that came while the receive was another's waits for it: no other receive may come. */
TEST(a_receive_whose_message_breaks_off_takes_one_that_came_since) {
    enum { WHOLE, OFFERED, TOO_LONG, WAYS };
    for (unsigned way = 0; way < WAYS; way++) {
        struct two t, other;
        struct receive r;
        struct tally sent = {0}, also = {0};
        static char text[2 * ROOM];
        size_t len = way == TOO_LONG ? sizeof text : 100;
        weft_op_t op = {
            .done = tally, .arg = &also, .flags = way == OFFERED ? WEFT_AM_RENDEZVOUS : 0};
        two_and_a_third(&t, &other);
        post(&t, &r, 0, 7, 0xff);
        send_long(&t, 7, LONG, &sent);
        half_way(&t, &r);
        pattern(text, len, 3);
        CHECK(weft_tag_send(other.ep, 0x107, &(weft_iov_t){text, len}, 1, &op) >= 0);
        UNTIL(&other, weft_tag_probe(two_b(&t), 0x107, UINT64_MAX, NULL) == WEFT_OK);
        CHECK(places(&r));
        shutdown(tcp_lane(t.ep->link->lane)->watch.fd, SHUT_RDWR);
        UNTIL_THREE(&t, r.got.calls && t.errors);
        CHECK_EQ(r.got.status, way == TOO_LONG ? WEFT_ERR_TRUNCATED : WEFT_OK);
        CHECK_EQ(r.info.tag, 0x107);
        CHECK_EQ(r.info.len, len);
        CHECK(is_pattern(into[0], len < ROOM ? len : ROOM, 3));
        weft_worker_destroy(third);
        two_down(&t);
        CHECK_EQ(r.got.calls, 1);
    }
}

TEST(a_message_whose_connections_die_while_it_places_comes_again_to_the_same_receive) {
    enum { KILLS = 8 };
    struct two t;
    struct receive r[2];
    surviving(&t, &short_queue, 1);
    for (unsigned i = 0; i < KILLS; i++) {
        struct tally sent = {0};
        for (unsigned k = 0; k < 2; k++) post(&t, &r[k], k, 7, i % 4 / 2 ? 0xff : UINT64_MAX);
        send_long(&t, 7, LONG, &sent);
        half_way(&t, &r[0]);
        CHECK(kill_one(i) > 0);
        UNTIL(&t, r[0].got.calls && sent.calls && weft_worker_count(t.a, "lanes.resumed") == i + 1);
        is_whole(&t, &r[0], 0, 7, LONG);
        CHECK_EQ(r[1].got.calls, 0);
        send_long(&t, 7, LONG - 8, &sent);
        UNTIL(&t, r[1].got.calls && sent.calls == 2);
        is_whole(&t, &r[1], 1, 7, LONG - 8);
    }
    CHECK_EQ(weft_worker_count(t.b, "tag.received"), 2 * KILLS);
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

TEST(an_abort_of_the_endpoint_ends_its_receive_while_a_message_places) {
    struct two t;
    struct receive r;
    struct tally sent = {0}, closed = {0};
    two_with(&t, &short_queue, 1);
    post(&t, &r, 0, 7, UINT64_MAX);
    send_long(&t, 7, LONG, &sent);
    half_way(&t, &r);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls && r.got.calls && sent.calls);
    CHECK(r.got.status < 0);
    two_down(&t);
    CHECK_EQ(r.got.calls, 1);
}

TEST(a_worker_closes_while_a_message_places_and_its_connection_dies) {
    for (unsigned i = 0; i < 4; i++) {
        struct two t;
        struct receive r;
        struct tally sent = {0};
        two_with(&t, &short_queue, 1);
        post(&t, &r, 0, 7, UINT64_MAX);
        send_long(&t, 7, LONG, &sent);
        half_way(&t, &r);
        if (i % 2) kill_all();
        if (i / 2) weft_worker_progress(t.a, 0);
        two_down(&t);
        CHECK_EQ(r.got.calls, 1);
        CHECK(r.got.status < 0);
        CHECK_EQ(sent.calls, 1);
    }
}

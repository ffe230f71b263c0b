/* A peer below the window that says what it may not say: only its conversation ends, with a
 * named error. */
#include "pair.h"
#include <transports/reliable/window_lane.h>
#include <transports/reliable/window_wire.h>
#include <transports/sim/sim.h>

/* a speaks datagrams by hand; b has a window. */
static weft_status_t open_one(struct reactor *r, const struct iface_params *params,
                              struct iface **iface_p) {
    if (params->worker_id == 0xa1) return weft__transport_sim.open(r, params, iface_p);
    return weft__window_iface_open(r, &weft__transport_sim, params, iface_p);
}
static const struct transport lopsided = {.name = "sim", .open = open_one};

static void make_fabric(struct reactor_clock *clock) {
    weft__sim_use(weft__sim_create(clock, 1, &weft__sim_datagram));
}

enum { MY_TAG = 77 };

static size_t pack(void *to, void *arg) {
    const struct window_frame *f = arg;
    size_t head = weft__window_encode(f, to);
    if (f->len) memcpy((char *)to + head, f->data, f->len);
    return head + f->len;
}

static void send_msg(struct pair *p, struct window_frame f) {
    CHECK_EQ(p->a.lane->ops->am_bcopy(p->a.lane, 0, pack, &f), WEFT_OK);
    weft__clock_run(p->clock, NULL, NULL, 100000);
}

/* The last frame that b said of that kind; false: none. */
static bool received(const struct pair *p, enum window_kind kind, struct window_frame *f) {
    for (size_t i = p->a.n_messages; i--;)
        if (weft__window_decode(p->a.messages[i].data, p->a.messages[i].len, f) && f->kind == kind)
            return true;
    return false;
}

/* Returns b's tag; both ways begin with their sender's tag. */
static uint32_t handshake(struct pair *p) {
    struct window_frame f;
    pair_clock_made = make_fabric;
    static const weft_setting_t quiet = {"log.level", "error"};
    pair_open_with(p, &lopsided, PAIR_VIRTUAL, &quiet, 1);
    CHECK_EQ(pair_dial(p, &p->a, &p->b), WEFT_OK);
    CHECK(pair_until(p, p->a.n_open == 1));
    send_msg(p, (struct window_frame){
                    .kind = WINDOW_HELLO, .my_tag = MY_TAG, .version = WINDOW_VERSION});
    CHECK_EQ(p->b.n_open, 0); /* a HELLO alone makes no lane */
    CHECK(received(p, WINDOW_WELCOME, &f));
    CHECK_EQ(f.tag, MY_TAG);
    uint32_t tag = f.my_tag;
    send_msg(p, (struct window_frame){.kind = WINDOW_ACK, .tag = tag, .ack = tag});
    CHECK_EQ(p->b.n_open, 1);
    return tag;
}

static struct window_frame data(uint32_t tag, uint32_t n, uint16_t more, const char *text) {
    return (struct window_frame){.kind = WINDOW_DATA,
                                 .id = 3,
                                 .more = more,
                                 .tag = tag,
                                 .seq = MY_TAG + n,
                                 .ack = tag,
                                 .data = (const uint8_t *)text,
                                 .len = strlen(text)};
}

static void expelled(struct pair *p) {
    struct window_frame f;
    CHECK_EQ(p->b.n_down, 1);
    CHECK_EQ(p->b.down, WEFT_ERR_PROTOCOL);
    CHECK(strstr(p->b.why, "it sent "));
    CHECK(received(p, WINDOW_RST, &f));
    CHECK_EQ(f.tag, MY_TAG);
    CHECK_EQ(p->b.lane->ops->am_short(p->b.lane, 1, 1, NULL, 0), WEFT_ERR_PROTOCOL);
    pair_close(p);
}

TEST(a_good_peer_is_listened_to) {
    struct pair p;
    uint32_t tag = handshake(&p);
    send_msg(&p, data(tag, 1, 0, "second"));
    send_msg(&p, data(tag, 0, 0, "first"));
    send_msg(&p, data(tag, 0, 0, "first"));
    CHECK_EQ(p.b.n_messages, 2);
    CHECK(memcmp(p.b.messages[0].data, "first", 5) == 0 &&
          memcmp(p.b.messages[1].data, "second", 6) == 0);
    send_msg(&p, data(tag, 2, 1, "in two "));
    send_msg(&p, data(tag, 3, 0, "pieces"));
    CHECK_EQ(p.b.n_messages, 3);
    CHECK(memcmp(p.b.messages[2].data, "in two pieces", 13) == 0);
    pair_close(&p);
}

TEST(a_number_beyond_the_window_expels) {
    struct pair p;
    uint32_t tag = handshake(&p);
    send_msg(&p, data(tag, 64, 0, "x"));
    expelled(&p);
}

TEST(an_acknowledgement_of_what_was_not_sent_expels) {
    struct pair p;
    uint32_t tag = handshake(&p);
    send_msg(&p, (struct window_frame){.kind = WINDOW_ACK, .tag = tag, .ack = tag + 1});
    expelled(&p);
}

TEST(fragments_out_of_line_expel) {
    static const struct {
        uint16_t more[2];
        const char *text[2];
    } bad[] = {
        {{5, 3}, {"a", "b"}}, {{5, 5}, {"a", "b"}}, {{5, 4}, {"a", ""}}, {{1, 1}, {"", "b"}}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pair p;
        uint32_t tag = handshake(&p);
        for (uint32_t n = 0; n < 2 && !p.b.n_down; n++)
            send_msg(&p, data(tag, n, bad[i].more[n], bad[i].text[n]));
        CHECK_EQ(p.b.n_messages, 0);
        expelled(&p);
    }
}

TEST(frames_of_another_conversation_are_not_received) {
    struct pair p;
    uint32_t tag = handshake(&p);
    send_msg(&p, data(tag + 1, 0, 0, "x"));
    send_msg(&p, (struct window_frame){.kind = WINDOW_RST, .tag = tag + 1});
    send_msg(&p, (struct window_frame){.kind = WINDOW_ECHO, .tag = tag + 1});
    send_msg(&p, (struct window_frame){
                     .kind = WINDOW_HELLO, .my_tag = MY_TAG + 1, .version = WINDOW_VERSION});
    CHECK_EQ(p.b.n_messages + (size_t)p.b.n_down, 0);
    send_msg(&p, (struct window_frame){.kind = WINDOW_RST, .tag = tag});
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    pair_close(&p);
}

TEST(another_version_is_answered_as_unknown) {
    struct pair p;
    struct window_frame f;
    pair_clock_made = make_fabric;
    pair_open(&p, &lopsided, PAIR_VIRTUAL);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_open == 1));
    send_msg(&p, (struct window_frame){
                     .kind = WINDOW_HELLO, .my_tag = MY_TAG, .version = WINDOW_VERSION + 1});
    CHECK(received(&p, WINDOW_ECHO, &f));
    CHECK_EQ(f.tag, MY_TAG);
    CHECK_EQ(p.b.n_open, 0);
    pair_close(&p);
}

static uint64_t random_state;
static uint32_t any(uint32_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

static struct window_frame anything(uint32_t tag) {
    static const char text[200] = "noise";
    struct window_frame f = {
        .kind = (uint8_t)(1 + any(7)), .version = WINDOW_VERSION, .my_tag = MY_TAG, .tag = tag};
    if (any(8) == 0) f.tag = any(4);
    if (any(8) == 0) f.my_tag = 1 + any(4);
    f.seq = MY_TAG + any(8) - 2;
    f.ack = tag + (any(8) ? 0 : any(3));
    f.sack = any(8) ? 0 : any(8);
    if (f.kind == WINDOW_DATA) {
        f.id = (uint8_t)any(32);
        f.more = (uint16_t)(any(4) ? 0 : any(128));
        f.data = (const uint8_t *)text;
        f.len = any(sizeof text);
    }
    return f;
}

TEST(noise_ends_no_more_than_its_conversation) {
    random_state = 1;
    for (unsigned i = 0; i < 300; i++) {
        struct pair p;
        uint32_t tag = handshake(&p);
        for (unsigned n = 0; n < 30; n++) send_msg(&p, anything(tag));
        CHECK_EQ(p.b.n_open, 1);
        CHECK(p.b.n_down <= 1);
        pair_close(&p);
    }
}

TEST(noise_that_is_no_frame_is_dropped) {
    struct pair p;
    handshake(&p);
    for (size_t len = 0; len < 40; len++) {
        uint8_t bytes[64];
        memset(bytes, 0xa5, sizeof bytes);
        weft_iov_t iov = {bytes, len};
        static struct completion noop;
        noop = (struct completion){.done = NULL, .count = 2};
        CHECK_EQ(p.a.lane->ops->am_zcopy(p.a.lane, (uint8_t)(len % 32),
                                         &(struct lane_zcopy){NULL, 0, &iov, 1}, &noop),
                 WEFT_IN_PROGRESS);
        weft__clock_run(p.clock, NULL, NULL, 10000);
    }
    CHECK_EQ(p.b.n_messages + (size_t)p.b.n_down, 0);
    pair_close(&p);
}

/* The window's arithmetic, without lanes: what is new, early, old, missing, acknowledged, and
 * when to resend. */
#include <tests/harness.h>
#include <transports/reliable/window.h>
#include <transports/reliable/window_time.h>
#include <transports/reliable/window_wire.h>

static uint32_t sent[256];
static unsigned n_sent, asked, armed, disarmed, backed_off, soon, at_once, failed;

static void on_effect(struct fsm *m, unsigned effect) {
    struct window *w = (struct window *)m;
    switch ((enum window_effect)effect) {
    case WINDOW_FX_SEND: sent[n_sent++ % 256] = w->out; break;
    case WINDOW_FX_ASK: asked++; break;
    case WINDOW_FX_ARM: armed++; break;
    case WINDOW_FX_DISARM: disarmed++; break;
    case WINDOW_FX_BACK_OFF: backed_off++; break;
    case WINDOW_FX_ACK_SOON: soon++; break;
    case WINDOW_FX_ACK_NOW: at_once++; break;
    case WINDOW_N_EFFECTS: break;
    }
}
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    failed++;
}
static const struct fsm_port port = {&weft__window_machine, on_effect, on_fail};

static void begin(struct window *w, uint32_t mine, uint32_t theirs) {
    weft__window_init(w, &port, 1, mine, theirs);
    n_sent = asked = armed = disarmed = backed_off = soon = at_once = failed = 0;
}

static enum window_event frame(struct window *w, uint32_t seq) {
    enum window_event event = weft__window_frame(w, seq);
    weft__fsm_step(&w->fsm, event);
    return event;
}

static enum window_event ack(struct window *w, uint32_t upto, uint64_t sack) {
    enum window_event event = weft__window_ack(w, upto, sack);
    weft__fsm_step(&w->fsm, event);
    return event;
}

static void send_n(struct window *w, unsigned n) {
    w->end += n;
    while (window_may_send(w)) weft__fsm_step(&w->fsm, WINDOW_EV_SEND);
}

TEST(frames_in_order_are_delivered_and_acknowledged_lazily) {
    struct window w;
    begin(&w, 0, 100);
    CHECK_EQ(frame(&w, 100), WINDOW_EV_FRAME);
    CHECK_EQ(frame(&w, 101), WINDOW_EV_FRAME);
    CHECK_EQ(w.expected, 102);
    CHECK_EQ(soon, 2);
    CHECK_EQ(at_once, 0);
}

TEST(a_frame_that_comes_again_is_dropped_and_acknowledged_at_once) {
    struct window w;
    begin(&w, 0, 100);
    frame(&w, 100);
    CHECK_EQ(frame(&w, 100), WINDOW_EV_FRAME_OLD);
    CHECK_EQ(frame(&w, 99), WINDOW_EV_FRAME_OLD);
    CHECK_EQ(frame(&w, 103), WINDOW_EV_FRAME_EARLY);
    CHECK_EQ(frame(&w, 103), WINDOW_EV_FRAME_OLD);
    CHECK_EQ(w.expected, 101);
    CHECK_EQ(at_once, 4);
}

TEST(early_frames_wait_for_the_gap_and_then_all_move) {
    struct window w;
    begin(&w, 0, 100);
    CHECK_EQ(frame(&w, 102), WINDOW_EV_FRAME_EARLY);
    CHECK_EQ(frame(&w, 101), WINDOW_EV_FRAME_EARLY);
    CHECK_EQ(frame(&w, 104), WINDOW_EV_FRAME_EARLY);
    CHECK_EQ(w.held, 1 << 1 | 1 << 2 | 1 << 4);
    CHECK_EQ(frame(&w, 100), WINDOW_EV_FRAME_FILLS);
    CHECK_EQ(w.expected, 103);
    CHECK_EQ(w.held, 1 << 1); /* 104, as seen from 103 */
    CHECK_EQ(frame(&w, 103), WINDOW_EV_FRAME_FILLS);
    CHECK_EQ(w.expected, 105);
    CHECK_EQ(w.held, 0);
}

TEST(a_frame_beyond_the_window_is_a_violation) {
    struct window w;
    begin(&w, 0, 100);
    CHECK_EQ(frame(&w, 100 + WINDOW_FRAMES - 1), WINDOW_EV_FRAME_EARLY);
    CHECK_EQ(failed, 0);
    CHECK_EQ(frame(&w, 100 + WINDOW_FRAMES), WINDOW_EV_FRAME_BEYOND);
    CHECK_EQ(failed, 1);
}

TEST(a_silent_peer_is_asked_until_it_answers) {
    struct window w;
    begin(&w, 7, 0);
    weft__fsm_step(&w.fsm, WINDOW_EV_SILENT);
    weft__fsm_step(&w.fsm, WINDOW_EV_SILENT);
    CHECK_EQ(asked, 1);
    weft__fsm_step(&w.fsm, WINDOW_EV_TIMEOUT);
    CHECK_EQ(asked, 2);
    CHECK_EQ(backed_off, 1);
    CHECK_EQ(ack(&w, 7, 0), WINDOW_EV_ACK_OLD);
    CHECK_EQ(w.fsm.state, WINDOW_QUIET);
    CHECK_EQ(disarmed, 1);
    CHECK_EQ(ack(&w, 7, 0), WINDOW_EV_ACK_OLD);
    /* What is sent while one waits for an answer asks as well. */
    weft__fsm_step(&w.fsm, WINDOW_EV_SILENT);
    send_n(&w, 1);
    CHECK_EQ(w.fsm.state, WINDOW_FLYING);
    CHECK_EQ(ack(&w, 7, 0), WINDOW_EV_ACK_OLD);
    CHECK_EQ(ack(&w, 8, 0), WINDOW_EV_ACK_ALL);
    CHECK_EQ(failed, 0);
}

TEST(no_more_than_the_window_is_under_way) {
    struct window w;
    begin(&w, 7, 0);
    send_n(&w, 100);
    CHECK_EQ(n_sent, WINDOW_FRAMES);
    CHECK_EQ(armed, 1);
    CHECK_EQ(ack(&w, 7 + 10, 0), WINDOW_EV_ACK);
    CHECK_EQ(armed, 2);
    send_n(&w, 0);
    CHECK_EQ(n_sent, WINDOW_FRAMES + 10);
    CHECK_EQ(ack(&w, 7 + WINDOW_FRAMES + 10, 0), WINDOW_EV_ACK_ALL);
    CHECK_EQ(disarmed, 1);
    CHECK_EQ(w.fsm.state, WINDOW_QUIET);
    send_n(&w, 0);
    CHECK_EQ(ack(&w, 107, 0), WINDOW_EV_ACK_ALL);
    CHECK_EQ(ack(&w, 107, 0), WINDOW_EV_ACK_OLD);
    CHECK_EQ(ack(&w, 90, 0), WINDOW_EV_ACK_OLD);
    CHECK_EQ(failed, 0);
}

TEST(an_acknowledgement_of_what_was_never_sent_is_a_violation) {
    struct window w;
    begin(&w, 7, 0);
    send_n(&w, 3);
    CHECK_EQ(ack(&w, 11, 0), WINDOW_EV_ACK_BEYOND);
    CHECK_EQ(ack(&w, 9, 1 << 1), WINDOW_EV_ACK_BEYOND);
    CHECK_EQ(failed, 2);
    CHECK_EQ(w.una, 7);
}

TEST(a_timeout_resends_what_the_peer_does_not_hold) {
    struct window w;
    begin(&w, 0, 0);
    send_n(&w, 5);
    ack(&w, 1, 1 << 1 | 1 << 3); /* it holds 2 and 4, and misses 1 and 3 */
    n_sent = 0;
    weft__fsm_step(&w.fsm, WINDOW_EV_TIMEOUT);
    CHECK_EQ(n_sent, 2);
    CHECK_EQ(sent[0], 1);
    CHECK_EQ(sent[1], 3);
    CHECK_EQ(backed_off, 1);
}

TEST(three_frames_beyond_a_gap_make_it_lost_once) {
    struct window w;
    begin(&w, 0, 0);
    send_n(&w, 10);
    n_sent = 0;
    ack(&w, 2, 1 << 1);
    ack(&w, 2, 1 << 1 | 1 << 2);
    CHECK_EQ(n_sent, 0);
    ack(&w, 2, 1 << 1 | 1 << 2 | 1 << 3);
    CHECK_EQ(n_sent, 1);
    CHECK_EQ(sent[0], 2);
    ack(&w, 2, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4);
    CHECK_EQ(n_sent, 1);
    weft__fsm_step(&w.fsm, WINDOW_EV_TIMEOUT); /* it was lost again, and so may be the last three */
    CHECK_EQ(n_sent, 1 + 4);
}

TEST(nothing_is_resent_after_a_stop) {
    struct window w;
    begin(&w, 0, 0);
    send_n(&w, 3);
    weft__fsm_step(&w.fsm, WINDOW_EV_STOP);
    n_sent = 0;
    ack(&w, 1, 0);
    CHECK_EQ(disarmed, 1);
    CHECK_EQ(n_sent, 0);
    /* still acknowledged, so that the peer comes to rest */
    CHECK_EQ(frame(&w, 0), WINDOW_EV_FRAME);
    CHECK_EQ(at_once, 1);
    CHECK_EQ(failed, 0);
}

/* Two windows, a frame at a time, through the end of the numbers. */
TEST(numbers_wrap_around) {
    struct window a, b;
    begin(&a, UINT32_MAX - 100, 5);
    weft__window_init(&b, &port, 2, 5, UINT32_MAX - 100);
    for (unsigned i = 0; i < 1000; i++) {
        uint32_t seq = a.end++;
        weft__fsm_step(&a.fsm, WINDOW_EV_SEND);
        CHECK_EQ(sent[(n_sent - 1) % 256], seq);
        if (i % 3 == 0) { /* an early one first */
            a.end++;
            weft__fsm_step(&a.fsm, WINDOW_EV_SEND);
            CHECK_EQ(frame(&b, seq + 1), WINDOW_EV_FRAME_EARLY);
            CHECK_EQ(ack(&a, b.expected, b.held), WINDOW_EV_ACK);
        }
        frame(&b, seq);
        CHECK_EQ(frame(&b, seq), WINDOW_EV_FRAME_OLD);
        CHECK_EQ(ack(&a, b.expected, b.held), WINDOW_EV_ACK_ALL);
    }
    CHECK_EQ(b.expected, a.end);
    CHECK_EQ(failed, 0);
    CHECK_EQ(b.expected, UINT32_MAX - 100 + 1334);
}

TEST(the_resend_timer_follows_the_way_and_backs_off) {
    struct window_time t;
    window_time_init(&t);
    CHECK_EQ(t.rto, WINDOW_RTO_FIRST);
    for (int i = 0; i < 100; i++) window_time_sample(&t, 4000000);
    CHECK(t.rto >= 4000000 && t.rto < 4000000 + WINDOW_ACK_DELAY + 100000);
    for (int i = 0; i < 100; i++) window_time_sample(&t, 1000);
    CHECK_EQ(t.rto, WINDOW_RTO_MIN);
    window_time_progress(&t);
    for (int i = 0; i < 3; i++) window_time_back_off(&t);
    CHECK_EQ(t.backed_off, 8 * WINDOW_RTO_MIN);
    for (int i = 0; i < 60; i++) window_time_back_off(&t);
    CHECK_EQ(t.backed_off, WINDOW_RTO_MAX);
    window_time_progress(&t);
    CHECK_EQ(t.backed_off, WINDOW_RTO_MIN);
}

/* ---- frames as bytes ------------------------------------------------------------------------- */

static const struct window_frame frames[] = {
    {.kind = WINDOW_HELLO, .my_tag = 0x01020304, .version = WINDOW_VERSION},
    {.kind = WINDOW_WELCOME, .tag = 9, .my_tag = 8, .version = WINDOW_VERSION},
    {.kind = WINDOW_DATA,
     .id = 31,
     .more = 127,
     .tag = 1,
     .seq = 2,
     .ack = 3,
     .sack = 0x8000000000000002},
    {.kind = WINDOW_ACK, .tag = 1, .ack = 3, .sack = 2},
    {.kind = WINDOW_FIN, .tag = 1, .seq = 4, .ack = 3},
    {.kind = WINDOW_RST, .tag = 1},
    {.kind = WINDOW_ECHO, .tag = 1},
};
enum { N_FRAMES = sizeof frames / sizeof *frames };

static size_t encode(unsigned i, uint8_t to[64]) {
    size_t len = weft__window_encode(&frames[i], to);
    if (frames[i].kind == WINDOW_DATA) memcpy(to + len, "payload", 7), len += 7;
    return len;
}

TEST(frames_are_read_as_they_were_written) {
    for (unsigned i = 0; i < N_FRAMES; i++) {
        uint8_t bytes[64];
        struct window_frame f;
        size_t len = encode(i, bytes);
        CHECK(weft__window_decode(bytes, len, &f));
        CHECK(f.kind == frames[i].kind && f.id == frames[i].id && f.more == frames[i].more);
        CHECK(f.tag == frames[i].tag && f.seq == frames[i].seq && f.ack == frames[i].ack &&
              f.sack == frames[i].sack);
        CHECK(f.my_tag == frames[i].my_tag && f.version == frames[i].version);
        if (f.kind == WINDOW_DATA) CHECK(f.len == 7 && memcmp(f.data, "payload", 7) == 0);
    }
}

TEST(truncated_frames_are_refused) {
    for (unsigned i = 0; i < N_FRAMES; i++) {
        uint8_t bytes[64];
        struct window_frame f;
        size_t len = encode(i, bytes);
        for (size_t cut = 0; cut < len; cut++) {
            uint8_t *copy = malloc(cut + 1); /* as long as it says, for the sanitizer */
            memcpy(copy, bytes, cut);
            bool read = weft__window_decode(copy, cut, &f);
            CHECK_EQ(read, frames[i].kind == WINDOW_DATA && cut >= WINDOW_HEAD);
            free(copy);
        }
        if (frames[i].kind != WINDOW_DATA) CHECK(!weft__window_decode(bytes, len + 1, &f));
    }
}

/* Every frame with a bit flipped is refused, or reads as what was written would read. */
TEST(flipped_bits_are_refused_or_read_as_written) {
    for (unsigned i = 0; i < N_FRAMES; i++) {
        uint8_t bytes[64], again[64];
        size_t len = encode(i, bytes);
        for (unsigned bit = 0; bit < 8 * len; bit++) {
            struct window_frame f;
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (weft__window_decode(bytes, len, &f)) {
                size_t head = weft__window_encode(&f, again);
                CHECK_EQ(head + (f.kind == WINDOW_DATA ? f.len : 0), len);
                CHECK(memcmp(again, bytes, head) == 0);
                CHECK(f.more < WINDOW_FRAGMENTS && f.id < 32);
            }
            bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
}

TEST(short_inputs_of_every_kind_are_refused) {
    struct window_frame f;
    CHECK(!weft__window_decode(NULL, 0, &f));
    for (uint32_t v = 0; v < 1 << 24; v++) {
        uint8_t bytes[3] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16)};
        for (size_t len = 1; len <= 3; len++) CHECK(!weft__window_decode(bytes, len, &f));
    }
}

/* Messages whose memory is laid out by blocks or by the program: what crosses are bytes, and
 * `end` comes once. */
#include <tests/support/op_forms.h>
#include <tests/support/worker_pair.h>

#include <reactor/reactor.h>
#include <weft/layout.h>

#define FORM(form_p)           (&(weft_iov_t){(form_p), 7}), 1
#define LAID(layout_, tally_p) (&(weft_op_t){.done = tally, .arg = (tally_p), .layout = (layout_)})

/* One operation's end, at once or later. */
static bool ended(weft_status_t st, const struct tally *t) {
    return st == WEFT_IN_PROGRESS ? t->calls == 1 : true;
}
static weft_status_t outcome(weft_status_t st, const struct tally *t) {
    return st == WEFT_IN_PROGRESS ? t->status : st;
}

/* ---- blocks */

enum { ROOM = 1 << 20 };
static char from[2 * ROOM], to[2 * ROOM], packed[ROOM], unpacked[ROOM];

static size_t blocks(weft_layout_t *l, size_t block, size_t gap, size_t count) {
    *l = (weft_layout_t){
        .kind = WEFT_LAYOUT_STRIDED, .block = block, .stride = block + gap, .count = count};
    return block * count;
}
static void gather(char *out, const char *base, const weft_layout_t *l) {
    for (size_t i = 0; i < l->count; i++)
        memcpy(out + i * l->block, base + i * l->stride, l->block);
}
static bool gaps_are(const char *base, const weft_layout_t *l, char byte) {
    for (size_t i = 0; i + 1 < l->count; i++)
        for (size_t k = l->block; k < l->stride; k++)
            if (base[i * l->stride + k] != byte) return false;
    return true;
}

static void cross_strided(struct two *t, const weft_layout_t *out, const weft_layout_t *in,
                          bool first_submit) {
    struct tally sent = {0}, got = {0};
    weft_status_t recv_st = 0, send_st;
    size_t len = out->block * out->count;
    memset(to, 0x5a, sizeof to);
    if (first_submit)
        recv_st =
            weft_tag_recv(two_b(t), 1, UINT64_MAX, &(weft_iov_t){to, 0}, 1, NULL, LAID(in, &got));
    send_st = weft_tag_send(t->ep, 1, &(weft_iov_t){from, 0}, 1, LAID(out, &sent));
    CHECK(send_st >= 0 && recv_st >= 0);
    if (!first_submit) {
        for (int i = 0; i < 20; i++) two_turn(t);
        recv_st =
            weft_tag_recv(two_b(t), 1, UINT64_MAX, &(weft_iov_t){to, 0}, 1, NULL, LAID(in, &got));
    }
    UNTIL(t, ended(send_st, &sent) && ended(recv_st, &got));
    CHECK_EQ(outcome(send_st, &sent), WEFT_OK);
    CHECK_EQ(outcome(recv_st, &got), WEFT_OK);
    gather(packed, from, out);
    gather(unpacked, to, in);
    CHECK(memcmp(packed, unpacked, len) == 0);
    CHECK(gaps_are(to, in, 0x5a));
}

TEST_EACH(blocks_cross_whatever_the_other_side_has) {
    struct two t;
    weft_layout_t out, in;
    static const struct {
        size_t block, gap, count, in_block, in_gap;
    } shape[] = {
        {1, 3, 1, 1, 0},       {1, 1, 40, 8, 5},         {8, 8, 3, 4, 4},
        {4, 12, 5, 20, 1},     {8, 8, 128, 16, 1},       {24, 8, 1000, 1000, 24},
        {8, 8, 8192, 64, 64},  {8, 8, 8193, 24, 1},      {1000, 7, 300, 8, 8},
        {4096, 64, 4, 8, 1},   {4096, 64, 40, 16384, 5}, {8192, 1, 100, 4, 4},
        {50000, 9, 12, 16, 3}, {12, 0, 50000, 600, 2},
    };
    pattern(from, sizeof from, 3);
    two_up(&t, transport);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        size_t len = blocks(&out, shape[i].block, shape[i].gap, shape[i].count);
        CHECK_EQ(len % shape[i].in_block, 0);
        blocks(&in, shape[i].in_block, shape[i].in_gap, len / shape[i].in_block);
        CHECK(len <= ROOM && in.stride * in.count <= sizeof to);
        cross_strided(&t, &out, &in, true);
        cross_strided(&t, &out, &in, false);
    }
    two_down(&t);
}

/* ---- active messages */

struct inbox {
    struct form *form;
    struct tally got;
    weft_status_t st;
    int calls;
};
static void on_form(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct inbox *in = arg;
    in->calls++;
    in->st = weft_am_recv(am, FORM(in->form), LAID(&form_layout, &in->got));
}

TEST_EACH(a_programs_form_is_packed_and_unpacked_in_order) {
    static const size_t lengths[] = {0,    1,     32,    33,    1000,   8000,
                                     8192, 16384, 65536, 65537, 300000, ROOM};
    struct two t;
    struct form out = {.bytes = from}, in = {.bytes = to};
    struct inbox inbox = {.form = &in};
    struct tally sent, got;
    pattern(from, ROOM, 9);
    two_up(&t, transport);
    weft_am_handler_set(two_b(&t), 1, on_form, &inbox);
    int times = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        out.len = in.len = lengths[i];
        memset(to, 0, ROOM);
        memset(&sent, 0, sizeof sent);
        memset(&got, 0, sizeof got);
        weft_status_t got_st =
            weft_tag_recv(two_b(&t), 1, 0, FORM(&in), NULL, LAID(&form_layout, &got));
        weft_status_t st = weft_tag_send(t.ep, 1, FORM(&out), LAID(&form_layout, &sent));
        UNTIL(&t, ended(st, &sent) && ended(got_st, &got));
        CHECK_EQ(outcome(st, &sent), WEFT_OK);
        CHECK_EQ(outcome(got_st, &got), WEFT_OK);
        CHECK(memcmp(from, to, lengths[i]) == 0 && in.at == lengths[i] && !in.wrong && !out.wrong);
        times++;
        CHECK(settled(&in, times) && settled(&out, times));

        memset(to, 0, ROOM);
        memset(&sent, 0, sizeof sent);
        memset(&inbox.got, 0, sizeof inbox.got);
        inbox.calls = 0;
        st = weft_am_send(t.ep, 1, "head", 4, FORM(&out), LAID(&form_layout, &sent));
        UNTIL(&t, ended(st, &sent) && inbox.calls == 1 && ended(inbox.st, &inbox.got));
        CHECK_EQ(outcome(st, &sent), WEFT_OK);
        CHECK_EQ(outcome(inbox.st, &inbox.got), WEFT_OK);
        CHECK(memcmp(from, to, lengths[i]) == 0 && in.at == lengths[i]);
        times++;
        CHECK(settled(&in, times) && settled(&out, times));
    }
    two_down(&t);
}

TEST_EACH(a_layout_sent_before_the_endpoint_is_ready_waits_for_it) {
    struct two t;
    struct form out = {.bytes = from, .len = 100000}, small = {.bytes = from, .len = 100},
                in = {.bytes = to, .len = 100000};
    struct tally sent[2] = {{0}}, got[2] = {{0}};
    pattern(from, 100000, 1);
    two_workers(&t, transport, NULL, 0);
    two_dial(&t);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&out), LAID(&form_layout, &sent[0])), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&small), LAID(&form_layout, &sent[1])), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, FORM(&in), NULL, LAID(&form_layout, &got[0])),
             WEFT_IN_PROGRESS);
    UNTIL(&t, sent[0].calls && sent[1].calls && got[0].calls);
    CHECK(memcmp(from, to, 100000) == 0);
    weft_status_t st = weft_tag_recv(two_b(&t), 1, 0, &(weft_iov_t){to, 100}, 1, NULL, OP(&got[1]));
    UNTIL(&t, ended(st, &got[1]));
    CHECK(settled(&out, 1) && settled(&small, 1) && settled(&in, 1));
    two_down(&t);
}

/* ---- its ends */

TEST_EACH(a_refused_start_refuses_the_operation) {
    struct two t;
    struct form f = {.bytes = from, .len = 10, .start_refuses = WEFT_ERR_QUOTA};
    struct tally c = {0};
    two_up(&t, transport);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&f), LAID(&form_layout, &c)), WEFT_ERR_QUOTA);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, FORM(&f), LAID(&form_layout, &c)), WEFT_ERR_QUOTA);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, FORM(&f), NULL, LAID(&form_layout, &c)),
             WEFT_ERR_QUOTA);
    CHECK(f.starts == 3 && f.ends == 0 && c.calls == 0);
    two_down(&t);
}

TEST_EACH(a_refused_pack_ends_the_send_and_is_no_message) {
    struct two t;
    struct form out = {.bytes = from, .len = 500, .refuses = WEFT_ERR_QUOTA},
                in = {.bytes = to, .len = 500};
    struct tally sent = {0}, got = {0}, whole = {0};
    struct inbox inbox = {.form = &in};
    two_up(&t, transport);
    weft_am_handler_set(two_b(&t), 1, on_form, &inbox);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, FORM(&in), NULL, LAID(&form_layout, &got)),
             WEFT_IN_PROGRESS);
    weft_status_t st = weft_tag_send(t.ep, 1, FORM(&out), LAID(&form_layout, &sent));
    UNTIL(&t, ended(st, &sent));
    CHECK_EQ(outcome(st, &sent), WEFT_ERR_QUOTA);
    memset(&sent, 0, sizeof sent);
    st = weft_am_send(t.ep, 1, "head", 4, FORM(&out), LAID(&form_layout, &sent));
    UNTIL(&t, ended(st, &sent));
    CHECK_EQ(outcome(st, &sent), WEFT_ERR_QUOTA);
    /* The next one arrives as if nothing had been. */
    CHECK(weft_tag_send(t.ep, 2, &(weft_iov_t){from, 500}, 1, OP(&whole)) >= 0);
    UNTIL(&t, got.calls);
    CHECK(got.status == WEFT_OK && inbox.calls == 0 && t.errors == 0 && t.back_errors == 0);
    CHECK(settled(&out, 2) && settled(&in, 1) && in.moves > 0);
    two_down(&t);
}

static void refuse_half_way(const char *transport, weft_status_t refuses, weft_status_t received) {
    struct two t;
    struct form out = {.bytes = from, .len = ROOM, .refuses = refuses, .refuses_at = ROOM / 2};
    struct form in = {.bytes = to, .len = ROOM};
    struct tally sent = {0}, got = {0};
    two_up(&t, transport);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, FORM(&in), NULL, LAID(&form_layout, &got)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&out), LAID(&form_layout, &sent)), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && got.calls);
    CHECK_EQ(sent.status, refuses);
    CHECK_EQ(got.status, received);
    CHECK(settled(&out, 1) && settled(&in, 1) && in.at > 0 && in.at < ROOM);
    CHECK(t.errors == 0 && t.back_errors == 0);
    two_down(&t);
}

TEST_EACH(a_pack_refused_half_way_withdraws_the_message) {
    refuse_half_way(transport, WEFT_ERR_QUOTA, WEFT_ERR_QUOTA); /* the cause, and no cancel */
}

TEST_EACH(that_a_message_is_truncated_only_its_receiver_reports) {
    refuse_half_way(transport, WEFT_ERR_TRUNCATED, WEFT_ERR_CANCELLED);
}

TEST_EACH(a_refused_unpack_ends_the_receive_alone) {
    struct two t;
    struct form out = {.bytes = from},
                in = {.bytes = to, .len = ROOM, .refuses = WEFT_ERR_QUOTA, .refuses_at = 10};
    static const size_t lengths[] = {100, 8000, ROOM};
    struct tally sent, got;
    two_up(&t, transport);
    for (int i = 0; i < 3; i++) {
        memset(&sent, 0, sizeof sent);
        memset(&got, 0, sizeof got);
        out.len = lengths[i];
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, FORM(&in), NULL, LAID(&form_layout, &got)),
                 WEFT_IN_PROGRESS);
        weft_status_t st = weft_tag_send(t.ep, 1, FORM(&out), LAID(&form_layout, &sent));
        UNTIL(&t, ended(st, &sent) && got.calls);
        CHECK_EQ(outcome(st, &sent), WEFT_OK);
        CHECK_EQ(got.status, WEFT_ERR_QUOTA);
        CHECK(settled(&out, i + 1) && settled(&in, i + 1));
    }
    CHECK(t.errors == 0 && t.back_errors == 0);
    two_down(&t);
}

TEST_EACH(what_does_not_fit_is_cut_as_an_iov_is) {
    struct two t;
    static const size_t lengths[] = {100, 8000, ROOM};
    struct form out = {.bytes = from}, in = {.bytes = to};
    struct tally sent, got;
    weft_tag_info_t info;
    pattern(from, ROOM, 2);
    two_up(&t, transport);
    for (int i = 0; i < 3; i++) {
        memset(&sent, 0, sizeof sent);
        memset(&got, 0, sizeof got);
        memset(to, 0, ROOM);
        out.len = lengths[i];
        in.len = lengths[i] - 9;
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, FORM(&in), &info, LAID(&form_layout, &got)),
                 WEFT_IN_PROGRESS);
        weft_status_t st = weft_tag_send(t.ep, 1, FORM(&out), LAID(&form_layout, &sent));
        UNTIL(&t, ended(st, &sent) && got.calls);
        CHECK(got.status == WEFT_ERR_TRUNCATED && info.len == lengths[i]);
        CHECK(is_pattern(to, in.len, 2) && to[in.len] == 0 && in.at == in.len);
        CHECK(settled(&out, i + 1) && settled(&in, i + 1));
    }
    two_down(&t);
}

TEST_EACH(cancel_deadline_and_loss_end_a_layout_once) {
    struct two t;
    struct form out = {.bytes = from, .len = ROOM}, late = {.bytes = from, .len = ROOM},
                in = {.bytes = to, .len = 9}, lost = {.bytes = from, .len = ROOM};
    struct tally cancelled = {0}, timed = {0}, received = {0}, gone = {0};
    weft_request_t *request = NULL, *posted = NULL;
    two_up(&t, transport);
    weft_op_t op = {
        .done = tally, .arg = &cancelled, .layout = &form_layout, .request_p = &request};
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&out), &op), WEFT_IN_PROGRESS);
    op = (weft_op_t){.done = tally, .arg = &timed, .layout = &form_layout, .deadline_ms = 5};
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&late), &op), WEFT_IN_PROGRESS);
    op = (weft_op_t){.done = tally, .arg = &received, .layout = &form_layout, .request_p = &posted};
    CHECK_EQ(weft_tag_recv(two_b(&t), 77, UINT64_MAX, FORM(&in), NULL, &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&lost), LAID(&form_layout, &gone)), WEFT_IN_PROGRESS);
    for (int i = 0; i < 5; i++) two_turn(&t);
    weft_request_cancel(request);
    weft_request_cancel(posted);
    UNTIL(&t, cancelled.calls && timed.calls && received.calls);
    CHECK(cancelled.status == WEFT_ERR_CANCELLED && received.status == WEFT_ERR_CANCELLED);
    CHECK(timed.status == WEFT_ERR_TIMED_OUT);
    CHECK(settled(&out, 1) && settled(&late, 1) && settled(&in, 1) && lost.ends == 0);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, gone.calls);
    CHECK(gone.status < 0 && settled(&lost, 1));
    two_down(&t);
}

TEST_EACH(what_is_no_layout_is_refused) {
    struct two t;
    struct form f = {.bytes = from, .len = 4};
    static const weft_pack_ops_t nothing;
    const weft_layout_t none = {.kind = 0}, no_ops = {.kind = WEFT_LAYOUT_USER},
                        empty = {.kind = WEFT_LAYOUT_USER, .user = &nothing},
                        wraps = {.kind = WEFT_LAYOUT_STRIDED,
                                 .block = SIZE_MAX / 2,
                                 .stride = SIZE_MAX / 2,
                                 .count = 3};
    weft_iov_t two[2] = {{&f, 7}, {&f, 7}};
    two_up(&t, transport);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&f), LAID(&none, NULL)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&f), LAID(&no_ops, NULL)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&f), LAID(&empty, NULL)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_recv(t.a, 1, 0, FORM(&f), NULL, LAID(&empty, NULL)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&f), LAID(&wraps, NULL)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_send(t.ep, 1, two, 2, LAID(&form_layout, NULL)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_send(t.ep, 1, NULL, 0, LAID(&form_layout, NULL)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(f.starts, 0);
    weft_op_t eager = {
        .layout = &form_layout, .flags = WEFT_AM_EAGER, .done = tally, .arg = &(struct tally){0}};
    f.len = SIZE_MAX / 2;
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, FORM(&f), &eager), WEFT_IN_PROGRESS);
    UNTIL(&t, ((struct tally *)eager.arg)->calls);
    CHECK(((struct tally *)eager.arg)->status == WEFT_ERR_TOO_BIG && settled(&f, 1));
    two_down(&t);
}

/* A sum that wraps, or that no object has, costs the message alone, and not the connection. */
TEST_EACH(a_message_longer_than_any_object_is_refused) {
    struct two t;
    struct form f = {.bytes = from}, small = {.bytes = from, .len = 10};
    struct form in = {.bytes = to, .len = 10};
    struct tally c = {0}, sent = {0};
    weft_iov_t two[2] = {{from, SIZE_MAX / 2}, {from, 1}};
    weft_op_t eager = {.layout = &form_layout, .flags = WEFT_AM_EAGER, .done = tally, .arg = &c};
    two_up(&t, transport);
    for (size_t more = 1; more; more *= 2) {
        f.len = more < SIZE_MAX / 2 ? SIZE_MAX / 2 + more : SIZE_MAX;
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, FORM(&f), LAID(&form_layout, &c)),
                 WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, FORM(&f), &eager), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_tag_send(t.ep, 1, FORM(&f), &eager), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_stream_send(t.ep, FORM(&f), LAID(&form_layout, &c)), WEFT_ERR_INVALID_PARAM);
    }
    CHECK(f.ends == f.starts && c.calls == 0);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, two, 2, OP(&c)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_send(t.ep, 1, two, 2, OP(&c)), WEFT_ERR_INVALID_PARAM);
    weft_status_t st = weft_tag_recv(two_b(&t), 1, 0, FORM(&in), NULL, LAID(&form_layout, &c));
    CHECK(weft_tag_send(t.ep, 1, FORM(&small), LAID(&form_layout, &sent)) >= 0);
    UNTIL(&t, ended(st, &c));
    CHECK_EQ(outcome(st, &c), WEFT_OK);
    CHECK(t.errors == 0 && t.back_errors == 0);
    two_down(&t);
}

/* ---- long iovs, and memory */

TEST_EACH(an_iov_of_many_small_pieces_crosses) {
    enum { N = 30000 };
    static weft_iov_t out[N], in[N];
    struct two t;
    struct tally sent = {0}, got = {0};
    size_t len = 0, room = 0;
    for (size_t i = 0; i < N; i++) {
        out[i] = (weft_iov_t){from + len, i * 7 % 31};
        len += out[i].len;
    }
    for (size_t i = 0; i < N; i++) {
        in[i] = (weft_iov_t){to + room, i + 1 < N ? i * 5 % 29 : len - room};
        room += in[i].len;
    }
    pattern(from, len, 5);
    two_up(&t, transport);
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, in, N, NULL, OP(&got)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, out, N, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && got.calls);
    CHECK(sent.status == WEFT_OK && got.status == WEFT_OK && is_pattern(to, len, 5));
    two_down(&t);
}

TEST(each_allocation_of_a_layout_may_fail) {
    struct two t;
    weft_layout_t l;
    size_t len = blocks(&l, 1000, 8, 300);
    for (uint64_t k = 1, n = 1; k <= n; k++) {
        struct form out = {.bytes = from, .len = len}, in = {.bytes = to, .len = len};
        struct tally sent = {0}, got = {0}, strided = {0};
        two_up(&t, "self");
        weft__alloc_fail_at(k == 1 ? 0 : k - 1);
        weft_status_t got_st = weft_tag_recv(t.a, 1, 0, FORM(&in), NULL, LAID(&form_layout, &got));
        weft_status_t st = weft_tag_send(t.ep, 1, FORM(&out), LAID(&form_layout, &sent));
        weft_status_t strided_st =
            weft_tag_send(t.ep, 2, &(weft_iov_t){from, 0}, 1, LAID(&l, &strided));
        for (int i = 0; i < 200; i++) two_turn(&t);
        uint64_t seen = weft__alloc_fail_at(0);
        if (k == 1) n = seen + 1;
        if (st == WEFT_IN_PROGRESS && got_st == WEFT_IN_PROGRESS && k == 1)
            CHECK(sent.calls == 1 && got.calls == 1);
        two_down(&t);
        CHECK(in.starts == in.ends && out.starts == out.ends && in.starts <= 1 && out.starts <= 1);
        CHECK(got.calls == (got_st == WEFT_IN_PROGRESS) && sent.calls == (st == WEFT_IN_PROGRESS));
        CHECK(strided.calls == (strided_st == WEFT_IN_PROGRESS));
    }
}

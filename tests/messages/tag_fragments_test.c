/* Large tagged messages come in parts by shared memory: every byte, whatever ends half way. */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <tests/support/raw_peer.h>

static const weft_setting_t roomy[] = {{"shm.rings", "64"}}, mailbox[] = {{"shm.rings", "0"}},
                            one_chunk[] = {{"shm.rings", "64"}, {"shm.staging", "300k"}},
                            two_chunks[] = {{"shm.rings", "64"}, {"shm.staging", "600k"}};

static unsigned char out[300000], in[300000];

static bool is_full; /* there is no memory for more of a segment */
static int n_refused;

/* The library's calls come here, too. */
__attribute__((visibility("default"))) int fallocate(int fd, int mode, off_t offset, off_t len) {
    if (!is_full) return (int)syscall(SYS_fallocate, fd, mode, offset, len);
    n_refused++;
    errno = ENOSPC;
    return -1;
}

static void up(struct two *t, const weft_setting_t *settings, size_t n) {
    two_workers(t, "shm", settings, n);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

static weft_status_t send(struct two *t, uint64_t tag, size_t len, struct tally *c,
                          weft_request_t **request_p) {
    weft_op_t op = {.done = tally, .arg = c, .request_p = request_p};
    return weft_tag_send(t->ep, tag, &(weft_iov_t){out, len}, 1, &op);
}
static weft_status_t receive(struct two *t, uint64_t tag, size_t room, struct tally *c,
                             weft_request_t **request_p) {
    weft_op_t op = {.done = tally, .arg = c, .request_p = request_p};
    return weft_tag_recv(t->b, tag, UINT64_MAX, &(weft_iov_t){in, room}, 1, NULL, &op);
}

static uint64_t in_parts(const struct two *t) {
    return weft_worker_count(t->a, "protocol.parts");
}

/* Nothing is left of what came before, and the next message is whole. */
static void goes_on(struct two *t) {
    struct tally s = {0}, r = {0};
    pattern(out, 60000, 77);
    memset(in, 0, sizeof in);
    CHECK_EQ(receive(t, 77, sizeof in, &r, NULL), WEFT_IN_PROGRESS);
    weft_status_t st = send(t, 77, 60000, &s, NULL);
    CHECK(st >= 0);
    UNTIL(t, r.calls && (st == WEFT_OK || s.calls));
    CHECK_EQ(r.status, 0);
    CHECK(is_pattern(in, 60000, 77) && in[60000] == 0);
}

static void sweep(const weft_setting_t *settings, size_t n, bool expected) {
    struct two t;
    up(&t, settings, n);
    uint64_t parts = 0;
    for (size_t len = 12000; len < 66000; len += len < 20000 ? 499 : 4999) {
        struct tally s = {0}, r = {0};
        weft_tag_info_t info;
        size_t cut = len / 3;
        weft_iov_t from[3] = {{out, 7}, {out + 7, cut}, {out + 7 + cut, len - 7 - cut}};
        weft_iov_t to[2] = {{in, cut + 1}, {in + cut + 1, sizeof in - cut - 1}};
        pattern(out, len, (unsigned)len);
        memset(in, 0, sizeof in);
        if (expected)
            CHECK_EQ(weft_tag_recv(t.b, 1, UINT64_MAX, to, 2, &info, OP(&r)), WEFT_IN_PROGRESS);
        weft_status_t st = weft_tag_send(t.ep, 1, from, 3, OP(&s));
        CHECK(st >= 0);
        if (!expected) {
            UNTIL(&t, weft_tag_probe(t.b, 1, UINT64_MAX, &info) == WEFT_OK);
            CHECK_EQ(info.len, len);
            CHECK_EQ(weft_tag_recv(t.b, 1, UINT64_MAX, to, 2, &info, OP(&r)), WEFT_OK);
        }
        UNTIL(&t, (!expected || r.calls) && (st == WEFT_OK || s.calls));
        CHECK_EQ(r.status, 0);
        CHECK_EQ(info.len, len);
        CHECK(info.ep == t.back);
        CHECK(is_pattern(in, len, (unsigned)len) && in[len] == 0);
        parts += len >= 16384;
    }
    CHECK_EQ(in_parts(&t), parts);
    two_down(&t);
}
TEST(parts_fill_the_receive_that_waits) {
    sweep(roomy, 1, true);
    sweep(mailbox, 1, true);
    sweep(one_chunk, 2, true);
}
TEST(parts_are_gathered_until_a_receive_comes) {
    sweep(roomy, 1, false);
    sweep(mailbox, 1, false);
    sweep(one_chunk, 2, false);
}

TEST(what_is_too_long_is_cut_and_reports_it) {
    struct two t;
    struct tally s = {0}, r = {0};
    up(&t, roomy, 1);
    pattern(out, 50000, 1);
    memset(in, 0, sizeof in);
    CHECK_EQ(receive(&t, 1, 30000, &r, NULL), WEFT_IN_PROGRESS);
    CHECK(send(&t, 1, 50000, &s, NULL) >= 0);
    UNTIL(&t, r.calls);
    CHECK_EQ(r.status, WEFT_ERR_TRUNCATED);
    CHECK(is_pattern(in, 30000, 1) && in[30000] == 0);
    goes_on(&t);
    two_down(&t);
}

/* There is one chunk to send by, and room in it for the first part of the next message: the
 * others wait until that was read. */
static void up_nearly_full_of(struct two *t, const weft_setting_t *settings) {
    up(t, settings, 2);
    for (int i = 0; i < 4; i++) goes_on(t);
    CHECK_EQ(in_parts(t), 4);
}
static void up_nearly_full(struct two *t) {
    up_nearly_full_of(t, one_chunk);
}
static void begin_half(struct two *t, struct tally *s, weft_request_t **request_p) {
    up_nearly_full(t);
    pattern(out, 60000, 3);
    CHECK_EQ(send(t, 3, 60000, s, request_p), WEFT_IN_PROGRESS);
    weft_worker_progress(t->b, 0);
    CHECK_EQ(in_parts(t), 5);
    CHECK_EQ(s->calls, 0);
}

TEST(a_receive_posted_half_way_gets_it_all) {
    struct two t;
    struct tally s = {0}, r = {0};
    begin_half(&t, &s, NULL);
    CHECK_EQ(weft_tag_probe(t.b, 3, UINT64_MAX, NULL), WEFT_ERR_NOT_FOUND); /* it is not here yet */
    CHECK_EQ(receive(&t, 3, sizeof in, &r, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, r.calls && s.calls);
    CHECK_EQ(r.status, 0);
    CHECK(is_pattern(in, 60000, 3));
    goes_on(&t);
    two_down(&t);
}

TEST(a_sender_that_cancels_half_way_ends_the_receive_too) {
    struct two t;
    struct tally s = {0}, r = {0};
    weft_request_t *request;
    up_nearly_full(&t);
    CHECK_EQ(receive(&t, 3, sizeof in, &r, NULL), WEFT_IN_PROGRESS);
    CHECK_EQ(send(&t, 3, 60000, &s, &request), WEFT_IN_PROGRESS);
    weft_worker_progress(t.b, 0);
    weft_request_cancel(request);
    UNTIL(&t, r.calls && s.calls);
    CHECK_EQ(s.status, WEFT_ERR_CANCELLED);
    CHECK_EQ(r.status, WEFT_ERR_CANCELLED);
    goes_on(&t);
    two_down(&t);
}

static void described(weft_status_t status, void *text) {
    CHECK(weft_status_describe(status, text, 1024) > 0);
}

/* The second part needs another chunk, and there is no memory for it. */
TEST(a_sender_that_fails_half_way_ends_the_receive_by_that_failure) {
    struct two t;
    struct tally s = {0};
    char text[1024] = "";
    weft_op_t op = {.done = described, .arg = text};
    up_nearly_full_of(&t, two_chunks);
    CHECK_EQ(weft_tag_recv(t.b, 3, UINT64_MAX, &(weft_iov_t){in, sizeof in}, 1, NULL, &op),
             WEFT_IN_PROGRESS);
    is_full = true;
    CHECK_EQ(send(&t, 3, 60000, &s, NULL), WEFT_IN_PROGRESS);
    UNTIL(&t, *text && s.calls);
    is_full = false;
    CHECK(n_refused == 1 && in_parts(&t) == 5);
    CHECK_EQ(s.status, WEFT_ERR_NO_MEMORY);
    CHECK(strstr(text, "NO_MEMORY") && strstr(text, "the message failed at its sender"));
    CHECK(t.errors == 0 && t.back_errors == 0);
    goes_on(&t);
    two_down(&t);
}

TEST(half_a_message_that_was_cancelled_leaves_nothing) {
    struct two t;
    struct tally s = {0};
    weft_request_t *request;
    begin_half(&t, &s, &request);
    weft_request_cancel(request);
    UNTIL(&t, s.calls);
    goes_on(&t);
    CHECK_EQ(weft_tag_probe(t.b, 3, UINT64_MAX, NULL), WEFT_ERR_NOT_FOUND);
    two_down(&t);
}

TEST(a_receiver_that_cancels_half_way_receives_no_more_of_it) {
    struct two t;
    struct tally s = {0}, r = {0};
    weft_request_t *request;
    up_nearly_full(&t);
    CHECK_EQ(receive(&t, 3, sizeof in, &r, &request), WEFT_IN_PROGRESS);
    CHECK_EQ(send(&t, 3, 60000, &s, NULL), WEFT_IN_PROGRESS);
    weft_worker_progress(t.b, 0);
    weft_request_cancel(request);
    UNTIL(&t, r.calls);
    CHECK_EQ(r.status, WEFT_ERR_CANCELLED);
    memset(in, 0, sizeof in);
    UNTIL(&t, s.calls);
    for (int i = 0; i < 20; i++) two_turn(&t);
    CHECK_EQ(s.status, 0);
    for (size_t i = 0; i < sizeof in; i++) CHECK_EQ(in[i], 0);
    goes_on(&t);
    two_down(&t);
}

TEST(a_lost_endpoint_ends_what_came_half) {
    struct two t;
    struct tally s = {0}, r = {0};
    up_nearly_full(&t);
    CHECK_EQ(receive(&t, 3, sizeof in, &r, NULL), WEFT_IN_PROGRESS);
    CHECK_EQ(send(&t, 3, 60000, &s, NULL), WEFT_IN_PROGRESS);
    weft_worker_progress(t.b, 0);
    weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL);
    UNTIL(&t, r.calls && s.calls);
    CHECK(r.status < 0 && s.status < 0);
    two_down(&t);
    s = (struct tally){0};
    begin_half(&t, &s, NULL); /* and what has no receive */
    weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL);
    UNTIL(&t, t.back_errors == 1);
    two_down(&t);
}

/* ---- a peer that says what it likes */

static struct raw raw;

static void fresh(void) {
    raw_hang_up(&raw);
    raw_dial(&raw, "shm");
    send_hello(&raw);
    open_half(&raw);
    raw.victim_errors = 0;
}
static void begin(uint32_t ep, uint32_t number, uint64_t len, size_t n) {
    unsigned char bytes[4096] = {0};
    weft__wire_tag_begin(bytes,
                         (struct wire_tag_begin){.tag = 5, .ep = ep, .number = number, .len = len});
    CHECK(send_msg(&raw, WIRE_TAG_BEGIN, bytes, WIRE_TAG_BEGIN_HEAD + n));
}
static void part(uint32_t ep, uint32_t number, uint64_t offset, size_t n) {
    unsigned char bytes[4096] = {0};
    weft__wire_tag_part(bytes,
                        (struct wire_tag_part){.ep = ep, .number = number, .offset = offset});
    CHECK(send_msg(&raw, WIRE_TAG_PART, bytes, WIRE_TAG_PART_HEAD + n));
}
static void costs(weft_status_t status) {
    RAW_UNTIL(&raw, raw.victim_errors == 1);
    CHECK_EQ(raw.victim_error, status);
    CHECK_EQ(raw.down, 0);
    fresh();
}
static void costs_nothing(void) {
    for (int i = 0; i < 30; i++) raw_turn(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    CHECK_EQ(raw.down, 0);
}
static void costs_the_lane(void) {
    RAW_UNTIL(&raw, raw.down == 1);
    fresh();
}

TEST(a_lying_peer_writes_nothing_beyond) {
    weft_tag_info_t info;
    raw_open(&raw, "shm", (const weft_setting_t[]){{"tag.unexpected_bytes", "64k"}}, 1);
    fresh();
    part(raw.half, 1, 0, 10); /* of nothing */
    part(raw.half, 1, 0, 0);
    costs_nothing();
    begin(raw.half, 1, 1000, 100);
    part(raw.half, 2, 100, 100); /* of another */
    part(raw.half + 1, 1, 100, 100);
    costs_nothing();
    part(raw.half, 1, 99, 100);
    costs(WEFT_ERR_PROTOCOL);
    begin(raw.half, 1, 1000, 100);
    part(raw.half, 1, UINT64_MAX - 10, 100);
    costs(WEFT_ERR_PROTOCOL);
    begin(raw.half, 1, 1000, 100);
    part(raw.half, 1, 100, 901);
    costs(WEFT_ERR_PROTOCOL);
    begin(raw.half, 1, UINT64_MAX, 100);
    costs(WEFT_ERR_QUOTA);
    begin(raw.half, 1, 65536, 100);
    costs(WEFT_ERR_QUOTA);
    begin(raw.half, 1, 100, 100); /* that would be whole */
    costs_the_lane();
    begin(raw.half, 1, 100, 0);
    costs_the_lane();
    /* each ends the one before */
    for (uint32_t i = 0; i < 100; i++) begin(raw.half, i, 40000, 100);
    part(raw.half, 99, 0, 0);
    begin(raw.half, 1, 200, 100);
    part(raw.half, 1, 100, 100);
    costs_nothing();
    CHECK_EQ(weft_tag_probe(raw.t.a, 5, UINT64_MAX, &info), WEFT_OK);
    CHECK_EQ(info.len, 200);
    raw_close(&raw);
}

static bool receives_parts(uint16_t flags) {
    struct tally s = {0};
    raw_open(&raw, "shm", NULL, 0);
    raw_dial(&raw, "shm");
    send_hello_of(&raw, flags);
    open_half(&raw);
    CHECK(weft_tag_send(raw.victim, 3, &(weft_iov_t){out, 60000}, 1, OP(&s)) >= 0);
    RAW_UNTIL(&raw, received(&raw, WIRE_TAG_BEGIN) || received(&raw, WIRE_TAG));
    bool in_parts = received(&raw, WIRE_TAG_BEGIN);
    raw_close(&raw);
    return in_parts;
}

TEST(only_a_peer_that_announces_parts_receives_them) {
    CHECK(receives_parts(WIRE_HELLO_PARTS));
    CHECK(!receives_parts(0));
}

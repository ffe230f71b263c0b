/*
 * A peer that does not read: deadlines, cancels and aborts are kept all the same. What has ended
 * gives its memory back at once: each test writes over it in the callback, lets the peer read
 * everything, and finds whole right messages or none.
 */
#include <tests/support/kill_child.h>

enum { N = 40, LEN = 60000, LARGE = 6 << 20, ID = 1, DEADLINE = 200, SOON = 20 };

/* ---- operations that write over their memory when they end */

struct sent {
    struct tally c;
    weft_request_t *request;
    char *bytes;
    size_t len;
};
static struct sent sends[N];
static char *memory;
static int n_ended;

static void on_end(weft_status_t status, void *arg) {
    struct sent *s = arg;
    memset(s->bytes, 0xee, s->len);
    n_ended++;
    tally(status, &s->c);
}

static weft_op_t op_of(struct sent *s, uint32_t deadline, uint32_t flags) {
    return (weft_op_t){.done = on_end,
                       .arg = s,
                       .flags = flags,
                       .deadline_ms = deadline,
                       .request_p = &s->request};
}

static void took(struct sent *s, weft_status_t st) {
    CHECK(st >= 0);
    if (st == WEFT_OK) on_end(st, s);
}

static int n_came;
static bool all_right;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    unsigned char first = am->len ? *(const unsigned char *)am->data : 0;
    all_right &= am->len == LEN && is_pattern(am->data, am->len, first);
    n_came++;
}
static bool last_came;
static void on_last(weft_ep_t *ep, weft_am_t *am, void *arg) {
    last_came = true;
}

static bool failover;
static void begin(struct two *t, const weft_setting_t *settings, size_t n) {
    two_workers(t, "tcp", settings, n);
    if (failover)
        dial_surviving(t);
    else
        two_dial(t);
    UNTIL(t, t->ready && t->back);
    CHECK_EQ(weft_am_handler_set(t->b, ID, on_message, NULL), 0);
    CHECK_EQ(weft_am_handler_set(t->b, ID + 1, on_last, NULL), 0);
    memory = malloc(LARGE);
    n_ended = n_came = 0;
    all_right = true;
    last_came = false;
    memset(sends, 0, sizeof sends);
}

/* The peer does not read meanwhile. */
static bool soon(struct two *t, int ended) {
    double end = test_now() + test_timeout(SOON);
    while (n_ended < ended && test_now() < end) weft_worker_progress(t->a, 0);
    return n_ended == ended;
}

/* It reads all, and what comes last is the proof that nothing is missing before it. */
static void reads_all(struct two *t) {
    CHECK(weft_am_send(t->ep, ID + 1, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(t, last_came);
    CHECK(all_right);
    CHECK_EQ(t->errors + t->back_errors, 0);
}

static void finish(struct two *t) {
    two_down(t);
    free(memory);
}

#define BOTH_MODES(name)                          \
    static void name(void);                       \
    TEST(name##_unless_the_connection_survives) { \
        failover = false;                         \
        name();                                   \
    }                                             \
    TEST(name##_when_the_connection_survives) {   \
        failover = true;                          \
        name();                                   \
    }                                             \
    static void name(void)

/* ---- messages */

static void send_messages(struct two *t, uint32_t deadline) {
    for (int i = 0; i < N; i++) {
        struct sent *s = &sends[i];
        s->bytes = memory + (size_t)i * LEN;
        s->len = LEN;
        pattern(s->bytes, LEN, (unsigned)i);
        weft_op_t op = op_of(s, deadline, WEFT_AM_EAGER);
        took(s, weft_am_send(t->ep, ID, NULL, 0, &(weft_iov_t){s->bytes, LEN}, 1, &op));
    }
    CHECK(n_ended < N);
}

BOTH_MODES(deadlines_of_messages_are_kept) {
    struct two t;
    begin(&t, NULL, 0);
    send_messages(&t, DEADLINE);
    CHECK(soon(&t, N));
    CHECK_EQ(sends[N - 1].c.status, WEFT_ERR_TIMED_OUT);
    reads_all(&t);
    finish(&t);
}

BOTH_MODES(cancelled_messages_end) {
    struct two t;
    begin(&t, NULL, 0);
    send_messages(&t, 0);
    for (int i = 0; i < N; i++)
        if (!sends[i].c.calls) weft_request_cancel(sends[i].request);
    CHECK(soon(&t, N));
    reads_all(&t);
    finish(&t);
}

/* Pieces of a message in several places are copied to one. */
TEST(a_message_of_many_pieces_stays_whole) {
    struct two t;
    failover = false;
    begin(&t, NULL, 0);
    for (int i = 0; i < N; i++) {
        struct sent *s = &sends[i];
        s->bytes = memory + (size_t)i * LEN;
        s->len = LEN;
        pattern(s->bytes, LEN, (unsigned)i);
        weft_iov_t iov[4] = {{s->bytes, 20000},
                             {s->bytes + 20000, 1},
                             {s->bytes + 20001, 9999},
                             {s->bytes + 30000, 30000}};
        weft_op_t op = op_of(s, DEADLINE, WEFT_AM_EAGER);
        took(s, weft_am_send(t.ep, ID, NULL, 0, iov, 4, &op));
    }
    CHECK(soon(&t, N));
    reads_all(&t);
    finish(&t);
}

BOTH_MODES(deadlines_of_tagged_messages_are_kept) {
    struct two t;
    static char in[LEN];
    const weft_setting_t settings[] = {{"tag.unexpected_bytes", "64m"}};
    begin(&t, settings, 1);
    for (int i = 0; i < N; i++) {
        struct sent *s = &sends[i];
        s->bytes = memory + (size_t)i * LEN;
        s->len = LEN;
        pattern(s->bytes, LEN, (unsigned)i);
        weft_op_t op = op_of(s, DEADLINE, 0);
        took(s, weft_tag_send(t.ep, 7, &(weft_iov_t){s->bytes, LEN}, 1, &op));
    }
    CHECK(n_ended < N);
    CHECK(soon(&t, N));
    reads_all(&t);
    for (weft_tag_info_t info; weft_tag_probe(t.b, 7, ~0ull, &info) == WEFT_OK;) {
        struct tally c = {0};
        weft_status_t st = weft_tag_recv(t.b, 7, ~0ull, &(weft_iov_t){in, LEN}, 1, &info, OP(&c));
        UNTIL(&t, st != WEFT_IN_PROGRESS || c.calls);
        if ((st == WEFT_OK || c.status == WEFT_OK) && !is_pattern(in, LEN, *(unsigned char *)in))
            CHECK(!"right bytes");
    }
    finish(&t);
}

/* ---- bytes that the peer asked for, and then does not read */

static char *into;
static struct tally received;
static bool asked;
static void on_large(weft_ep_t *ep, weft_am_t *am, void *arg) {
    asked = true;
    CHECK(!am->data);
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){into, LARGE}, 1, OP(&received)), WEFT_IN_PROGRESS);
}

BOTH_MODES(a_deadline_is_kept_half_way_through_a_large_message) {
    struct two t;
    begin(&t, NULL, 0);
    into = malloc(LARGE);
    received = (struct tally){0};
    CHECK_EQ(weft_am_handler_set(t.b, ID, on_large, NULL), 0);
    sends[0].bytes = memory;
    sends[0].len = LARGE;
    pattern(memory, LARGE, 3);
    weft_op_t op = op_of(&sends[0], DEADLINE, 0);
    took(&sends[0], weft_am_send(t.ep, ID, NULL, 0, &(weft_iov_t){memory, LARGE}, 1, &op));
    asked = false;
    UNTIL(&t, asked);
    weft_worker_progress(t.b, 0); /* its question leaves, and it reads no more */
    CHECK(soon(&t, 1));
    UNTIL(&t, received.calls == 1);
    if (received.status == WEFT_OK) CHECK(is_pattern(into, LARGE, 3));
    reads_all(&t);
    finish(&t);
    free(into);
}

BOTH_MODES(deadlines_of_streams_are_kept) {
    struct two t;
    const weft_setting_t settings[] = {{"stream.window", "16m"}};
    static char in[1 << 16];
    size_t len = 0, at = 0;
    begin(&t, settings, 1);
    sends[0].bytes = memory;
    sends[0].len = LARGE;
    pattern(memory, LARGE, 5);
    weft_op_t op = op_of(&sends[0], DEADLINE, 0);
    took(&sends[0], weft_stream_send(t.ep, &(weft_iov_t){memory, LARGE}, 1, &op));
    CHECK_EQ(n_ended, 0);
    CHECK(soon(&t, 1));
    CHECK_EQ(sends[0].c.status, WEFT_ERR_TIMED_OUT);
    char *right = malloc(LARGE);
    pattern(right, LARGE, 5);
    reads_all(&t);
    for (;;) {
        struct tally c = {0};
        weft_request_t *request = NULL;
        weft_op_t recv = {.done = tally, .arg = &c, .request_p = &request};
        weft_status_t st = weft_stream_recv(t.back, &(weft_iov_t){in, sizeof in}, 1, &len, &recv);
        /* Turns count, too: this process may stand still for all of the time. */
        double end = test_now() + 0.3;
        for (int n = 0; st == WEFT_IN_PROGRESS && !c.calls && (n < 1000 || test_now() < end); n++)
            two_turn(&t);
        if (st == WEFT_IN_PROGRESS && !c.calls) {
            weft_request_cancel(request);
            UNTIL(&t, c.calls);
        }
        if (st == WEFT_IN_PROGRESS && c.status != WEFT_OK) break;
        CHECK(at + len <= LARGE && memcmp(in, right + at, len) == 0);
        at += len;
    }
    CHECK(at > 0);
    free(right);
    finish(&t);
}

/* ---- one-sided operations, which go by message */

BOTH_MODES(deadlines_of_puts_and_gets_are_kept) {
    struct two t;
    begin(&t, NULL, 0);
    char *region = malloc(LARGE);
    memset(region, 0, LARGE);
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    CHECK_EQ(
        weft_mem_register(t.b, region, LARGE, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
        0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(t.ep, key, len, &rkey), 0);
    char *got = malloc(LARGE);
    sends[0] = (struct sent){.bytes = memory, .len = LARGE};
    sends[1] = (struct sent){.bytes = got, .len = LARGE};
    pattern(memory, LARGE, 9);
    weft_op_t put = op_of(&sends[0], DEADLINE, 0), get = op_of(&sends[1], DEADLINE, 0);
    took(&sends[0], weft_put(t.ep, memory, LARGE, (uint64_t)(uintptr_t)region, rkey, &put));
    took(&sends[1], weft_get(t.ep, got, LARGE, (uint64_t)(uintptr_t)region, rkey, &get));
    CHECK_EQ(n_ended, 0);
    CHECK(soon(&t, 2));
    CHECK_EQ(sends[0].c.status, WEFT_ERR_TIMED_OUT);
    CHECK_EQ(sends[1].c.status, WEFT_ERR_TIMED_OUT);
    reads_all(&t);
    char *right = malloc(LARGE);
    pattern(right, LARGE, 9);
    for (size_t i = 0; i < LARGE; i++)
        if (region[i] && region[i] != right[i]) {
            CHECK(!"bytes that were put are the right ones");
            break;
        }
    for (size_t i = 0; i < LARGE; i++)
        if (got[i] != (char)0xee) {
            CHECK(!"nothing lands in memory that was given back");
            break;
        }
    weft_rkey_release(rkey);
    free(right);
    finish(&t);
    free(got);
    free(region);
}

/* The peer asked for bytes of a region, and does not read them. */
TEST(a_region_is_released_though_its_reader_stopped_reading) {
    struct two t;
    failover = false;
    begin(&t, NULL, 0);
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    char key[WEFT_RKEY_MAX], *got = malloc(LARGE);
    size_t len = sizeof key;
    struct tally c = {0}, released = {0};
    CHECK_EQ(
        weft_mem_register(t.a, memory, LARGE, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
        0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(t.back, key, len, &rkey), 0);
    CHECK_EQ(weft_get(t.back, got, LARGE, (uint64_t)(uintptr_t)memory, rkey, OP(&c)),
             WEFT_IN_PROGRESS);
    for (int i = 0; i < 5; i++) weft_worker_progress(t.b, 0);
    for (double end = test_now() + 0.2; test_now() < end;) weft_worker_progress(t.a, 0);
    weft_status_t st = weft_mem_release(mem, OP(&released));
    for (double end = test_now() + test_timeout(SOON);
         st == WEFT_IN_PROGRESS && !released.calls && test_now() < end;)
        weft_worker_progress(t.a, 0);
    CHECK(st == WEFT_OK || released.calls == 1);
    memset(memory, 0xee, LARGE);
    UNTIL(&t, c.calls == 1);
    weft_rkey_release(rkey);
    finish(&t);
    free(got);
}

/* ---- the end of the endpoint */

BOTH_MODES(an_abort_gives_all_memory_back) {
    struct two t;
    struct tally closed = {0};
    begin(&t, NULL, 0);
    send_messages(&t, 0);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    CHECK(soon(&t, N));
    for (double end = test_now() + test_timeout(SOON); !closed.calls && test_now() < end;)
        weft_worker_progress(t.a, 0);
    CHECK_EQ(closed.calls, 1);
    CHECK_EQ(sends[N - 1].c.status, WEFT_ERR_CLOSED);
    UNTIL(&t, t.back_errors == 1);
    CHECK_EQ(t.back_error, WEFT_ERR_PEER_CLOSED);
    CHECK(all_right);
    finish(&t);
}

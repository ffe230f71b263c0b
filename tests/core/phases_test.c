/* A peer that is killed at any moment of a large message: what it had to do with ends once, and
 * says the truth. */
#include <tests/support/one_worker.h>

#include <signal.h>

enum { LARGE = 2 << 20 };

static bool exposes;            /* memory that is received into */
static uint64_t written, asked; /* for the one that dies, in bytes; and of it, in messages */

/* What is sent: made once, before any fork, and only read. */
static char pattern_bytes[LARGE];
static void make_pattern(void) {
    for (size_t i = 0; i < LARGE; i++) pattern_bytes[i] = (char)(i * 5 + (i >> 13));
}

static char *exposed_memory(weft_worker_t *worker) {
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE, .expose = 1};
    CHECK_EQ(weft_mem_alloc(worker, LARGE, &params, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    return info.base;
}

static void open_ends(struct side *s, const char *transport) {
    side_open(s, transport, NULL, 0);
    s->out = pattern_bytes;
    s->in = exposes ? exposed_memory(s->worker) : malloc(LARGE);
}

static weft_status_t begin(struct side *s, bool sends, struct tally *c) {
    weft_iov_t iov = {sends ? s->out : s->in, LARGE};
    return sends ? weft_tag_send(s->ep, 1, &iov, 1, OP(c))
                 : weft_tag_recv(s->worker, 1, UINT64_MAX, &iov, 1, NULL, OP(c));
}
static void post(struct side *s, bool sends, struct tally *c) {
    CHECK_EQ(begin(s, sends, c), WEFT_IN_PROGRESS);
}

/* To a peer that may be dead before: then the endpoint has said so, or refuses it and is about
 * to. */
static bool may_post(struct side *s, bool sends, struct tally *c) {
    weft_status_t st = s->errors ? WEFT_ERR_PEER_FAILED : begin(s, sends, c);
    CHECK(st == WEFT_IN_PROGRESS || st == WEFT_ERR_PEER_FAILED);
    return st == WEFT_IN_PROGRESS;
}

struct death {
    const char *transport;
    bool sends;
    int turns;
};

/* The first message goes through, and raises rails where there are to be any; in the second it
 * dies after `turns`. */
static void child(int out, const void *arg) {
    const struct death *death = arg;
    struct side s;
    struct tally first = {0}, received = {0}, second = {0};
    open_ends(&s, death->transport);
    side_meet(&s, out);
    post(&s, death->sends, &first);
    while (!first.calls) side_turn(&s);
    weft_status_t st = weft_tag_recv(s.worker, 2, UINT64_MAX, NULL, 0, NULL, OP(&received));
    while (st == WEFT_IN_PROGRESS && !received.calls) side_turn(&s);
    /* What goes by datagrams has been sent when this side has acknowledged it. */
    double acknowledged = test_now() + (strcmp(death->transport, "rdma_ud") ? 0 : 0.1);
    while (test_now() < acknowledged) side_turn(&s);
    post(&s, death->sends, &second);
    for (int i = 0; i < death->turns; i++) weft_worker_progress(s.worker, 1);
    kill(getpid(), SIGKILL);
}

static void die_after(const char *transport, bool child_sends, int turns) {
    struct child c;
    struct side s;
    struct tally first = {0}, second = {0};
    child_start(&c, child, &(struct death){transport, child_sends, turns});
    open_ends(&s, transport);
    child_dial(&c, &s);
    double end = test_now() + test_timeout(60);
    post(&s, !child_sends, &first);
    while (!first.calls && test_now() < end) side_turn(&s);
    CHECK_EQ(first.status, WEFT_OK);
    /* its sender knows no more than that it has left */
    CHECK(weft_tag_send(s.ep, 2, NULL, 0, NULL) >= 0);
    bool posted = may_post(&s, !child_sends, &second);
    while (!s.errors && test_now() < end) side_turn(&s);
    CHECK_EQ(s.errors, 1);
    while (!child_sends && posted && !second.calls && test_now() < end) side_turn(&s);
    if (!child_sends && posted) CHECK_EQ(second.calls, 1);
    CHECK(WIFSIGNALED(child_end(&c)));
    if (child_sends && second.calls && second.status == WEFT_OK)
        CHECK(memcmp(s.in, s.out, LARGE) == 0);
    written += weft_worker_count(s.worker, "shm.put_bytes");
    asked += weft_worker_count(s.worker, "protocol.put");
    side_close(&s);
    CHECK_EQ(second.calls, posted);
    if (!exposes) free(s.in);
}

static void die_at_every_phase(const char *transport) {
    static const int turns[] = {0, 1, 2, 3, 5, 8, 13, 30, 100};
    if (!pattern_bytes[1]) make_pattern();
    for (unsigned i = 0; i < sizeof turns / sizeof *turns; i++) {
        die_after(transport, false, turns[i]);
        die_after(transport, true, turns[i]);
    }
}

TEST(killed_in_pieces_over_shm) {
    setenv("WEFT_SHM_COPY", "staged", 1);
    die_at_every_phase("shm");
}

TEST(killed_in_a_read_of_its_memory) {
    setenv("WEFT_SHM_COPY", "vm", 1);
    die_at_every_phase("shm");
}

TEST(killed_while_it_writes_or_is_written_to) {
    setenv("WEFT_SHM_COPY", "staged", 1);
    exposes = true;
    double end = test_now() + test_timeout(60);
    do die_at_every_phase("shm");
    /* a survivor that had no processor did neither */
    while (!(written && asked) && test_now() < end);
    exposes = false;
    CHECK(written > 0 && asked > 0);
}

TEST(killed_in_pieces_over_tcp) {
    die_at_every_phase(test_network());
}

TEST(killed_in_pieces_over_rails) {
    setenv("WEFT_LINK_RAILS", "2", 1);
    die_at_every_phase("tcp");
    setenv("WEFT_LINK_RAILS", "1", 1);
}

/* More than 32 bits of length: the same memory again and again, on both sides. */
TEST(more_than_4_gib_in_one_message_over_shm) {
    enum { PIECE = 32 << 20, N = 129 };
    struct two t;
    struct tally sent = {0}, received = {0};
    static weft_iov_t out[N], in[N];
    char *from = malloc(PIECE), *to = calloc(1, PIECE);
    weft_tag_info_t info = {0};
    for (size_t i = 0; i < PIECE; i++) from[i] = (char)(i * 3 + (i >> 16));
    for (int i = 0; i < N; i++) {
        out[i] = (weft_iov_t){from, PIECE};
        in[i] = (weft_iov_t){to, PIECE};
    }
    out[N - 1].len = in[N - 1].len = 4097;
    size_t len = (size_t)(N - 1) * PIECE + 4097;
    setenv("WEFT_SHM_COPY", "staged", 1);
    two_up(&t, "shm");
    CHECK_EQ(weft_tag_recv(two_b(&t), 1, UINT64_MAX, in, N, &info, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, out, N, OP(&sent)), WEFT_IN_PROGRESS);
    double end = test_now() + test_timeout(200);
    while ((!sent.calls || !received.calls) && test_now() < end) two_turn(&t);
    CHECK(sent.calls == 1 && received.calls == 1);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    CHECK(info.len == len && len > UINT32_MAX);
    CHECK(memcmp(from, to, PIECE) == 0);
    two_down(&t);
    free(from);
    free(to);
}

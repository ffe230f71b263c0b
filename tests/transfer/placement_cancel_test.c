/*
 * X is stopped while a connection writes it to its place, and Z follows on the same connection. X
 * ends once and no byte of its memory changes after that. Z is reported when all of its bytes are
 * there, and not before. Each round is a random order of the same few steps, so that the rest of X
 * and the begin of Z come together, in every way that they can.
 */
#include <tests/support/kill_child.h>

enum {
    MOST = 140000,
    LEAST = 66000,
    ROUNDS = 1500,
    SEED_X = 3,
    SEED_Z = 5,
    AM_ID = 7,
    SETTLE = 200
};
#define A_TEST        0.6 /* seconds */
#define A_DEADLINE_MS 8

enum kind { TAG_WHOLE, TAG_OFFERED, AM_OFFERED, GET, PUT, N_KINDS };
enum stop { CANCEL, DEADLINE };

struct message {
    size_t len;
    unsigned seed;
    unsigned char *dst, *after; /* where it goes; the same when its end was reported */
    weft_request_t *request;
    struct tally got, sent, taken_back; /* taken_back: the region was */
    bool asked, early;                  /* early: reported with OK before all of it was there */
    double asked_at;
    weft_mem_t *mem; /* PUT: the region that dst is */
    weft_rkey_t *rkey;
};

static unsigned char src[2][MOST];
static struct round {
    struct two t;
    enum kind kind;
    enum stop stop;
    unsigned random;
    struct message x, z;
} now;

static unsigned draw(unsigned n) {
    now.random = now.random * 1664525 + 1013904223;
    return (now.random >> 8) % n;
}

static weft_worker_t *receiver(void) {
    return now.kind == GET ? now.t.a : now.t.b;
}
static weft_worker_t *sender(void) {
    return now.kind == GET ? now.t.b : now.t.a;
}
static const unsigned char *source(const struct message *m) {
    return src[m->seed == SEED_Z];
}

static void got(weft_status_t status, void *arg) {
    struct message *m = arg;
    tally(status, &m->got);
    if (!m->taken_back.calls) memcpy(m->after, m->dst, m->len);
    m->early = status == WEFT_OK && memcmp(m->dst, source(m), m->len) != 0;
}

/* ---- the kinds: what the receiver does first, and what the sender does ----------------------- */

static weft_op_t op_of(struct message *m) {
    m->asked_at = test_now();
    return (weft_op_t){.done = got,
                       .arg = m,
                       .request_p = &m->request,
                       .deadline_ms =
                           now.stop == DEADLINE && m->seed == SEED_X ? A_DEADLINE_MS : 0};
}

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct message *m = am->header_len && *(const char *)am->header == SEED_X ? &now.x : &now.z;
    weft_op_t op = op_of(m);
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){m->dst, m->len}, 1, &op), WEFT_IN_PROGRESS);
    m->asked = true;
}

static void expose(struct message *m, weft_worker_t *owner, void *base, unsigned rights) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    CHECK_EQ(
        weft_mem_register(owner, base, m->len, &(weft_mem_params_t){.rights = rights}, &m->mem), 0);
    CHECK_EQ(weft_mem_pack(m->mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(now.t.ep, key, len, &m->rkey), 0);
}

static void post(struct message *m, unsigned seed, uint64_t tag) {
    *m = (struct message){.len = LEAST + draw(MOST - LEAST), .seed = seed};
    m->dst = calloc(1, m->len);
    m->after = calloc(1, m->len);
    weft_op_t op = op_of(m);
    if (now.kind == TAG_WHOLE || now.kind == TAG_OFFERED)
        CHECK_EQ(
            weft_tag_recv(now.t.b, tag, UINT64_MAX, &(weft_iov_t){m->dst, m->len}, 1, NULL, &op),
            WEFT_IN_PROGRESS);
    if (now.kind == GET) expose(m, now.t.b, src[seed == SEED_Z], WEFT_MEM_READ);
    if (now.kind == PUT) expose(m, now.t.b, m->dst, WEFT_MEM_WRITE);
    m->asked = now.kind != AM_OFFERED;
}

static void count_sent(struct message *m, weft_status_t status) {
    CHECK(status == WEFT_OK || status == WEFT_IN_PROGRESS);
    if (status == WEFT_OK) m->sent.calls++;
}

static void send_one(struct message *m, uint64_t tag) {
    weft_iov_t iov = {(void *)source(m), m->len};
    weft_op_t op = {.done = tally, .arg = &m->sent}, own = op_of(m);
    char header = (char)m->seed;
    uint64_t at = (uint64_t)(uintptr_t)(now.kind == GET ? source(m) : m->dst);
    switch (now.kind) {
    case TAG_WHOLE: op.flags = WEFT_AM_EAGER; /* fall through */
    case TAG_OFFERED: count_sent(m, weft_tag_send(now.t.ep, tag, &iov, 1, &op)); break;
    case AM_OFFERED:
        op.flags = WEFT_AM_RENDEZVOUS;
        count_sent(m, weft_am_send(now.t.ep, AM_ID, &header, 1, &iov, 1, &op));
        break;
    case GET:
        CHECK_EQ(weft_get(now.t.ep, m->dst, m->len, at, m->rkey, &own), WEFT_IN_PROGRESS);
        m->sent.calls++;
        break;
    default:
        own.flags = WEFT_RMA_REMOTE;
        own.deadline_ms = 0; /* the region is taken back */
        CHECK_EQ(weft_put(now.t.ep, source(m), m->len, at, m->rkey, &own), WEFT_IN_PROGRESS);
        m->sent.calls++;
    }
}

static bool is_under_way(const struct message *m) {
    return m->asked && !m->got.calls && m->dst[0];
}

static void taken_back(weft_status_t status, void *arg) {
    struct message *m = arg;
    tally(status, &m->taken_back);
    memcpy(m->after, m->dst, m->len);
}

static void take_back(struct message *m) {
    weft_status_t st = weft_mem_revoke(m->mem, &(weft_op_t){.done = taken_back, .arg = m});
    CHECK(st >= 0);
    if (st == WEFT_OK) taken_back(st, m);
}

static void stop_one(struct message *m) {
    double left = m->asked_at + A_DEADLINE_MS * 1.02e-3 - test_now();
    struct timespec pause = {.tv_nsec = (long)(left > 0 ? left * 1e9 : 0)};
    if (now.kind == PUT)
        take_back(m);
    else if (now.stop == CANCEL)
        weft_request_cancel(m->request);
    else
        nanosleep(&pause, NULL);
}

/* Much of what follows may be in the socket by then, and is read before the worker's jobs run. */
static void stop_among_others(struct message *m) {
    for (unsigned k = draw(8); k > 0; k--) weft_worker_progress(sender(), 0);
    stop_one(m);
    weft_worker_progress(receiver(), 1 + draw(3));
}

/* ---- a round --------------------------------------------------------------------------------- */

static void steps(uint64_t tag, bool *stopped_p) {
    struct message *x = &now.x, *z = &now.z;
    bool x_sent = false, z_sent = false;
    for (int i = 0; i < 4000 && !(x->got.calls && z->got.calls); i++) {
        unsigned what = draw(8);
        if (what == 0 && !x_sent)
            send_one(x, tag), x_sent = true;
        else if (what == 1 && x_sent && !z_sent)
            send_one(z, tag + 1), z_sent = true;
        else if (what < 4)
            weft_worker_progress(sender(), 0);
        else if (what < 6 && !*stopped_p && is_under_way(x) && (z_sent || draw(8) == 0))
            stop_among_others(x), *stopped_p = true;
        else
            weft_worker_progress(receiver(), 1 + draw(3));
    }
    if (!x_sent) send_one(x, tag);
    if (!z_sent) send_one(z, tag + 1);
}

static void give_back(struct message *m) {
    struct tally gone = {0};
    if (m->rkey) weft_rkey_release(m->rkey);
    if (m->mem && weft_mem_release(m->mem, OP(&gone)) == WEFT_IN_PROGRESS)
        UNTIL(&now.t, gone.calls);
    free(m->dst);
    free(m->after);
}

/* A receive that ended before its message came leaves it to be taken. */
static void take_rest(uint64_t tag) {
    static unsigned char rest[MOST];
    struct tally taken = {0};
    if (now.kind > TAG_OFFERED || weft_tag_probe(now.t.b, tag, UINT64_MAX, NULL) != WEFT_OK) return;
    weft_status_t st =
        weft_tag_recv(now.t.b, tag, UINT64_MAX, &(weft_iov_t){rest, MOST}, 1, NULL, OP(&taken));
    if (st == WEFT_IN_PROGRESS) UNTIL(&now.t, taken.calls);
}

/* Was X stopped while it was under way? */
static bool round_of(uint64_t tag) {
    struct message *x = &now.x, *z = &now.z;
    bool stopped = false;
    post(x, SEED_X, tag);
    post(z, SEED_Z, tag + 1);
    steps(tag, &stopped);
    UNTIL(&now.t,
          x->got.calls && z->got.calls && (x->taken_back.calls || !stopped || now.kind != PUT));
    for (int i = 0; i < 4; i++) two_turn(&now.t), take_rest(tag);
    UNTIL(&now.t, (take_rest(tag), x->sent.calls && z->sent.calls));
    CHECK_EQ(z->got.status, WEFT_OK);
    CHECK(!x->early);
    CHECK(!z->early);
    CHECK(memcmp(x->dst, x->after, x->len) == 0);
    CHECK(memcmp(z->dst, z->after, z->len) == 0);
    CHECK_EQ(x->got.calls + z->got.calls, 2);
    bool ended_early = x->got.status != WEFT_OK;
    CHECK(stopped || !ended_early || now.stop == DEADLINE);
    give_back(x);
    give_back(z);
    return stopped && ended_early;
}

static void run(enum kind kind, enum stop stop, bool survives) {
    unsigned caught = 0;
    pattern(src[0], MOST, SEED_X);
    pattern(src[1], MOST, SEED_Z);
    now = (struct round){.kind = kind, .stop = stop, .random = kind * 2 + stop + 1};
    if (survives)
        surviving(&now.t, NULL, 0);
    else
        two_up(&now.t, "tcp");
    CHECK_EQ(weft_am_handler_set(now.t.b, AM_ID, on_am, NULL), 0);
    double end = test_now() + A_TEST;
    for (uint64_t i = 0; i < ROUNDS && (test_now() < end || caught < 3); i++)
        caught += round_of(16 * (i + 1));
    printf("# X was stopped on its way %u times\n", caught);
    CHECK(caught > 0);
    CHECK_EQ(now.t.errors + now.t.back_errors, 0);
    two_down(&now.t);
}

#define STOPPED(name, kind)                                                                                           \
    TEST(when_##name##_is_cancelled_on_its_way_the_next_is_reported_when_it_is_there) {                               \
        run(kind, CANCEL, false);                                                                                     \
    }                                                                                                                 \
    TEST(when_##name##_is_overdue_on_its_way_the_next_is_reported_when_it_is_there) {                                 \
        run(kind, DEADLINE, false);                                                                                   \
    }                                                                                                                 \
    TEST(                                                                                                             \
        when_##name##_is_cancelled_on_its_way_over_an_endpoint_that_survives_the_next_is_reported_when_it_is_there) { \
        run(kind, CANCEL, true);                                                                                      \
    }
STOPPED(a_tagged_message, TAG_WHOLE)
STOPPED(an_offered_tagged_message, TAG_OFFERED)
STOPPED(an_active_message, AM_OFFERED)
STOPPED(a_get, GET)

TEST(when_a_region_is_taken_back_while_a_put_places_the_next_put_is_reported_when_it_is_there) {
    run(PUT, CANCEL, false);
}
TEST(
    when_a_region_is_taken_back_over_an_endpoint_that_survives_the_next_put_is_reported_when_it_is_there) {
    run(PUT, CANCEL, true);
}

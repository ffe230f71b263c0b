/*
 * One-sided operations of every form, of every size around each limit, by every way there is: every
 * byte, and none beside. The limits are those that the code compares with: a transport's
 * attributes, less what a message has before its payload.
 */
#include <tests/support/op_forms.h>
#include <tests/support/rma_peers.h>
#include <tests/support/sim_workers.h>

enum {
    MOST = 1 << 20,
    ROOM = 4 << 20,
    MARGIN = 64,
    COUNT = 7 /* what form_start is to be asked with */
};
static char here[ROOM], packed[ROOM];
static struct tally tallied;

/* ---- the ways */

struct way {
    const char *transport;
    weft_setting_t setting[2];
    const struct sim_profile *sim; /* in virtual time, over this network */
    bool by_message;
};

struct world {
    struct rma r;
    struct reactor_clock *clock;
    size_t size[64];
    size_t n_sizes;
};

static void turn(struct world *w) {
    if (w->clock)
        weft__clock_turn(w->clock);
    else
        two_turn(&w->r.t);
}
#define TURNS_UNTIL(w, cond)                               \
    do {                                                   \
        double turns_end = test_now() + test_timeout(60);  \
        while (!(cond) && test_now() < turns_end) turn(w); \
        CHECK(cond);                                       \
    } while (0)

/* What the call answered, or what came later. */
static weft_status_t outcome(struct world *w, weft_status_t at_once) {
    if (at_once != WEFT_IN_PROGRESS) return at_once;
    TURNS_UNTIL(w, tallied.calls == 1);
    return tallied.status;
}
#define DO(w, call) (tallied = (struct tally){0}, outcome(w, call))

static void two_in_virtual_time(struct world *w, const struct way *way) {
    struct two *t = &w->r.t;
    weft_worker_params_t params = {.transports = "sim", .on_endpoint = two_on_endpoint, .arg = t};
    CHECK_EQ(weft_context_create(NULL, &t->context), 0);
    CHECK(w->clock = weft__clock_create(NULL, 1));
    weft__sim_use(weft__sim_create(w->clock, 1, way->sim));
    t->a = sim_worker(t->context, w->clock, &params);
    t->b = sim_worker(t->context, w->clock, &params);
}

/* ---- the limits */

static void add(struct world *w, size_t limit) {
    if (limit > MOST) limit = MOST;
    for (size_t n = limit - 1; n <= limit + 1; n++) {
        bool known = n == SIZE_MAX || n == 0;
        for (size_t i = 0; i < w->n_sizes; i++) known |= w->size[i] == n;
        if (!known) w->size[w->n_sizes++] = n;
        CHECK(w->n_sizes < sizeof w->size / sizeof *w->size);
    }
}

static void add_of_messages(struct world *w, const struct iface_attr *attr,
                            const struct protocol_limits *limits) {
    /* put together beside the lane */
    add(w, sizeof((struct wire_message *)NULL)->bytes - WIRE_PUT_HEAD);
    if (LANE_HEAD + attr->max_short > WIRE_PUT_HEAD)
        add(w, LANE_HEAD + attr->max_short - WIRE_PUT_HEAD);
    add(w, attr->max_bcopy - WIRE_PUT_HEAD);  /* a put in one message */
    add(w, attr->max_bcopy - WIRE_DATA_HEAD); /* a get's answer in one */
    add(w, attr->max_zcopy);
    add(w, limits->piece);
    add(w, 2 * limits->piece);
    if (attr->caps & CAP_PLACE) add(w, PLACE_HEAD + PLACE_LEAST - WIRE_PUT_HEAD);
    if (attr->caps & CAP_PLACE) add(w, PLACE_HEAD + PLACE_LEAST - WIRE_DATA_HEAD);
}

static void add_of_keys(struct world *w, const struct iface_attr *attr) {
    add(w, attr->max_put_short);
    add(w, attr->max_put_bcopy);
    add(w, attr->max_get_bcopy);
    add(w, attr->max_put_zcopy);
    add(w, attr->max_get_zcopy);
}

static void begin(struct world *w, const struct way *way) {
    struct rma *r = &w->r;
    size_t n_settings = 0;
    while (n_settings < 2 && way->setting[n_settings].name) n_settings++;
    memset(w, 0, sizeof *w);
    if (way->sim)
        two_in_virtual_time(w, way);
    else
        two_workers(&r->t, way->transport, way->setting, n_settings);
    two_dial(&r->t);
    TURNS_UNTIL(w, r->t.ready && r->t.back);
    CHECK_EQ(
        weft_mem_alloc(two_b(&r->t), ROOM, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &r->mem),
        0);
    CHECK_EQ(weft_mem_describe(r->mem, &r->info), 0);
    r->target = r->info.base;
    r->rkey = rma_key(r, r->mem);
    if (!way->by_message) TURNS_UNTIL(w, r->rkey->key->status == WEFT_OK);
    const struct link *link = r->t.ep->link;
    add(w, 2);
    if (way->by_message)
        add_of_messages(w, &weft__link_iface(link)->attr, weft__link_limits(link));
    else
        add_of_keys(w, &r->rkey->key->lane->iface->attr);
}

/* All went the way that was meant. */
static void end(struct world *w, const struct way *way) {
    struct two *t = &w->r.t;
    CHECK_EQ(weft_worker_count(t->a, "rma.messages") > 0, way->by_message);
    CHECK_EQ(weft_worker_count(t->a, "rma.native") > 0, !way->by_message);
    weft_rkey_release(w->r.rkey);
    CHECK_EQ(weft_worker_close(t->a, &(weft_op_t){.done = two_gone, .arg = &t->a}),
             WEFT_IN_PROGRESS);
    if (t->b)
        CHECK_EQ(weft_worker_close(t->b, &(weft_op_t){.done = two_gone, .arg = &t->b}),
                 WEFT_IN_PROGRESS);
    TURNS_UNTIL(w, !t->a && !t->b);
    for (int i = 0; w->clock && i < 10; i++) turn(w);
    if (w->clock) talloc_free(w->clock);
    CHECK_EQ(weft_context_destroy(t->context), 0);
}

/* ---- what is looked at */

static bool is_all(const char *from, size_t len, char value) {
    for (size_t i = 0; i < len; i++)
        if (from[i] != value) return false;
    return true;
}

/* The pattern, and around it what was there before. */
static bool stands_alone(const char *at, size_t len, unsigned seed) {
    return is_pattern(at, len, seed) && is_all(at - MARGIN, MARGIN, 'x') &&
           is_all(at + len, MARGIN, 'x');
}

static void wipe(char *memory, size_t len) {
    memset(memory, 'x', len + 4 * MARGIN < ROOM ? len + 4 * MARGIN : ROOM);
}

/* ---- the forms */

static void put_is_whole(struct world *w, size_t n) {
    struct rma *r = &w->r;
    for (int remote = 0; remote < 2; remote++) {
        size_t at = MARGIN + (n & 7) + (size_t)remote;
        char *from = here + (n & 3);
        wipe(r->target, n);
        pattern(from, n, (unsigned)n);
        const weft_op_t *op = remote ? RMA_REMOTE(&tallied) : OP(&tallied);
        CHECK_EQ(DO(w, weft_put(r->t.ep, from, n, rma_at(r, at), r->rkey, op)), 0);
        weft_op_t flush = {.done = tally, .arg = &tallied, .flags = WEFT_FLUSH_REMOTE};
        if (!remote) CHECK_EQ(DO(w, weft_ep_flush(r->t.ep, &flush)), 0);
        CHECK(stands_alone(r->target + at, n, (unsigned)n));
    }
}

static void get_is_whole(struct world *w, size_t n) {
    struct rma *r = &w->r;
    size_t at = n & 7;
    char *to = here + MARGIN + (n & 3);
    pattern(r->target + at, n, (unsigned)n);
    wipe(here, n);
    CHECK_EQ(DO(w, weft_get(r->t.ep, to, n, rma_at(r, at), r->rkey, OP(&tallied))), 0);
    CHECK(stands_alone(to, n, (unsigned)n));
}

enum { GAP = 5 };

/* Two blocks of ours and one more, each of that size; one range of the peer's. */
static void pieces_are_whole(struct world *w, size_t n) {
    struct rma *r = &w->r;
    size_t at = MARGIN + (n & 7), third = MARGIN + 2 * (n + GAP);
    weft_local_t ours[] = {{here + MARGIN, n, n + GAP, 2, NULL}, {here + third, n, 0, 0, NULL}};
    weft_remote_t theirs = {rma_at(r, at), 3 * n, 0, 0, r->rkey};
    pattern(packed, 3 * n, (unsigned)n);
    for (size_t i = 0; i < 3; i++) memcpy(here + MARGIN + i * (n + GAP), packed + i * n, n);
    wipe(r->target, 3 * n);
    CHECK_EQ(DO(w, weft_put_pieces(r->t.ep, ours, 2, &theirs, 1, RMA_REMOTE(&tallied))), 0);
    CHECK(stands_alone(r->target + at, 3 * n, (unsigned)n));
    wipe(here, 3 * (n + GAP));
    CHECK_EQ(DO(w, weft_get_pieces(r->t.ep, ours, 2, &theirs, 1, OP(&tallied))), 0);
    for (size_t i = 0; i < 3; i++) {
        CHECK(!memcmp(here + MARGIN + i * (n + GAP), packed + i * n, n));
        CHECK(is_all(here + MARGIN + i * (n + GAP) + n, GAP, 'x'));
    }
    CHECK(is_all(here, MARGIN, 'x'));
}

/* The other way about. */
static void the_peers_pieces_are_whole(struct world *w, size_t n) {
    struct rma *r = &w->r;
    char *range = here + MARGIN + (n & 3);
    weft_local_t ours = {range, 2 * n, 0, 0, NULL};
    weft_remote_t theirs = {rma_at(r, MARGIN), n, n + GAP, 2, r->rkey};
    pattern(range, 2 * n, (unsigned)n);
    memcpy(packed, range, 2 * n);
    wipe(r->target, 2 * (n + GAP));
    CHECK_EQ(DO(w, weft_put_pieces(r->t.ep, &ours, 1, &theirs, 1, RMA_REMOTE(&tallied))), 0);
    for (size_t i = 0; i < 2; i++) {
        CHECK(!memcmp(r->target + MARGIN + i * (n + GAP), packed + i * n, n));
        CHECK(is_all(r->target + MARGIN + i * (n + GAP) + n, GAP, 'x'));
    }
    wipe(here, 2 * n);
    CHECK_EQ(DO(w, weft_get_pieces(r->t.ep, &ours, 1, &theirs, 1, OP(&tallied))), 0);
    CHECK(stands_alone(range, 2 * n, (unsigned)n));
}

/* As many bytes in blocks, with gaps between them: the largest that there are, and the smallest
 * of some that are not too many. */
static void blocks_are_whole(struct world *w, size_t n, size_t block) {
    struct rma *r = &w->r;
    weft_layout_t l = {
        .kind = WEFT_LAYOUT_STRIDED, .block = block, .stride = block + 3, .count = n / block};
    size_t at = MARGIN + (n & 7);
    weft_op_t put = {.done = tally, .arg = &tallied, .layout = &l, .flags = WEFT_RMA_REMOTE};
    weft_op_t get = {.done = tally, .arg = &tallied, .layout = &l};
    pattern(packed, n, (unsigned)n);
    for (size_t i = 0; i < l.count; i++) memcpy(here + i * l.stride, packed + i * block, block);
    wipe(r->target, n);
    CHECK_EQ(DO(w, weft_put(r->t.ep, here, 0, rma_at(r, at), r->rkey, &put)), 0);
    CHECK(stands_alone(r->target + at, n, (unsigned)n));
    memset(here, 'x', l.count * l.stride);
    CHECK_EQ(DO(w, weft_get(r->t.ep, here, 0, rma_at(r, at), r->rkey, &get)), 0);
    for (size_t i = 0; i < l.count; i++) {
        CHECK(!memcmp(here + i * l.stride, packed + i * block, block));
        CHECK(is_all(here + i * l.stride + block, 3, 'x'));
    }
}

static void layouts_are_whole(struct world *w, size_t n) {
    enum { BLOCKS = 10000 };
    size_t least = n, most = 1; /* blocks of these sizes make n bytes */
    for (size_t d = 1; d < n; d++) {
        if (n % d) continue;
        most = d;
        if (least == n && n / d <= BLOCKS) least = d;
    }
    if (n / most <= BLOCKS) blocks_are_whole(w, n, most);
    if (least != most && least < n) blocks_are_whole(w, n, least);
}

static void a_programs_form_is_whole(struct world *w, size_t n) {
    struct rma *r = &w->r;
    struct form f = {.bytes = here + MARGIN, .len = n};
    size_t at = MARGIN + (n & 7);
    weft_op_t put = {
        .done = tally, .arg = &tallied, .layout = &form_layout, .flags = WEFT_RMA_REMOTE};
    weft_op_t get = {.done = tally, .arg = &tallied, .layout = &form_layout};
    pattern(f.bytes, n, (unsigned)n);
    wipe(r->target, n);
    CHECK_EQ(DO(w, weft_put(r->t.ep, &f, COUNT, rma_at(r, at), r->rkey, &put)), 0);
    CHECK(stands_alone(r->target + at, n, (unsigned)n));
    wipe(here, n);
    CHECK_EQ(DO(w, weft_get(r->t.ep, &f, COUNT, rma_at(r, at), r->rkey, &get)), 0);
    CHECK(stands_alone(f.bytes, n, (unsigned)n) && settled(&f, 2));
}

/* ---- each form by each way */

static void each_size(const struct way *way, void (*is_whole)(struct world *w, size_t n)) {
    static struct world w;
    begin(&w, way);
    for (size_t i = 0; i < w.n_sizes; i++) is_whole(&w, w.size[i]);
    end(&w, way);
}

static const struct way self = {.transport = "self"};
static const struct way self_by_message = {
    .transport = "self", .setting = {{"rma.max_keys", "0"}}, .by_message = true};
static const struct way mapped = {.transport = "shm", .setting = {{"shm.rma", "mapped"}}};
static const struct way process_vm = {.transport = "shm", .setting = {{"shm.rma", "vm"}}};
static const struct way ring = {
    .transport = "shm", .setting = {{"shm.rma", "message"}}, .by_message = true};
static const struct way mailbox = {.transport = "shm",
                                   .setting = {{"shm.rma", "message"}, {"shm.rings", "0"}},
                                   .by_message = true};
static const struct way sim = {.transport = "sim", .sim = &weft__sim_reliable, .by_message = true};
static const struct way sim_datagram = {
    .transport = "sim", .sim = &weft__sim_datagram, .by_message = true};

#define FORM_BY(way, name)     \
    TEST(name##_by_##way) {    \
        each_size(&way, name); \
    }
#define EACH_WAY(name)                                                                \
    FORM_BY(self, name)                                                               \
    FORM_BY(self_by_message, name)                                                    \
    FORM_BY(mapped, name)                                                             \
    FORM_BY(process_vm, name)                                                         \
    FORM_BY(ring, name)                                                               \
    FORM_BY(mailbox, name)                                                            \
    FORM_BY(sim, name)                                                                \
    FORM_BY(sim_datagram, name)                                                       \
    TEST(name##_by_tcp) {                                                             \
        struct way way = {test_network(), .by_message = !getenv("WEFT_TEST_NATIVE")}; \
        each_size(&way, name);                                                        \
    }
EACH_WAY(put_is_whole)
EACH_WAY(get_is_whole)
EACH_WAY(pieces_are_whole)
EACH_WAY(the_peers_pieces_are_whole)
EACH_WAY(layouts_are_whole)
EACH_WAY(a_programs_form_is_whole)

/* Staging memory for large messages: receivers that take nothing leave some for the others. */
#include "pair.h"
#include <poll.h>
#include <transports/shm/lane/shm.h>

enum { N_LANES = 8 };
static uint8_t bytes[100000];

/* Lanes from one worker to others. Only the reactors that a test drives take anything. */
struct fan {
    struct pair p[N_LANES];
    struct end from[N_LANES], to[N_LANES];
    size_t came[N_LANES]; /* messages */
};

static struct shm_iface *sender(const struct fan *f) {
    return (struct shm_iface *)f->p[0].iface_a;
}

static const struct mail_tx *tx_of(const struct fan *f, int i) {
    return &((struct shm_lane *)f->from[i].lane)->mail.tx;
}

static void count(struct end *end, uint8_t id, const void *data, size_t len) {
    CHECK(((const uint8_t *)data)[0] == 5 && ((const uint8_t *)data)[len - 1] == 5);
    ++*(size_t *)end->arg;
}

/* `staging` NULL: by default. */
static void fan_open_with(struct fan *f, const char *rings, const char *staging,
                          const char *close_timeout) {
    memset(f, 0, sizeof *f);
    memset(bytes, 5, sizeof bytes);
    weft_setting_t settings[] = {
        {"shm.rings", rings}, {"close.timeout", close_timeout}, {"shm.staging", staging}};
    pair_open_with(&f->p[0], &weft__transport_shm, 0, settings, staging ? 3 : 2);
    for (int i = 0; i < N_LANES; i++) {
        struct pair *p = &f->p[i];
        if (i) {
            *p = f->p[0];
            CHECK_EQ(weft__reactor_create(p->context, &(struct reactor_params){0}, &p->reactor_b),
                     WEFT_OK);
            CHECK_EQ(pair_iface(&f->p[0], p->reactor_b, 0xc0 + (uint64_t)i, &p->iface_b), WEFT_OK);
        }
        f->to[i].on_message = count;
        f->to[i].arg = &f->came[i];
        CHECK_EQ(pair_dial(p, &f->from[i], &f->to[i]), WEFT_OK);
        f->p[0].next_accepted = &f->to[i]; /* the first pair owns every iface */
        CHECK(pair_until(p, f->from[i].n_open && f->to[i].n_open));
    }
}

static void fan_open(struct fan *f, const char *rings, const char *staging) {
    fan_open_with(f, rings, staging, "10s");
}

static void fan_close(struct fan *f) {
    for (int i = 0; i < N_LANES; i++) {
        pair_end_close(&f->from[i], true);
        pair_end_close(&f->to[i], true);
        if (i == 0) continue;
        f->p[i].iface_b->ops->close(f->p[i].iface_b);
        weft__reactor_progress(f->p[i].reactor_b, 0);
        weft__reactor_destroy(f->p[i].reactor_b);
    }
    pair_close(&f->p[0]);
}

static weft_status_t send(struct fan *f, int i, size_t len) {
    struct lane *lane = f->from[i].lane;
    struct lane_zcopy msg = {.iov = &(weft_iov_t){bytes, len}, .n_iov = 1};
    return lane->ops->am_zcopy(lane, 1, &msg, NULL);
}

/* Sends until there is no room. Returns the number of messages. */
static size_t fill(struct fan *f, int i, size_t len) {
    weft_status_t st;
    size_t n = 0;
    while ((st = send(f, i, len)) == WEFT_OK) n++;
    CHECK_EQ(st, WEFT_NO_RESOURCE);
    return n;
}

/* Sends `n` messages to a receiver that takes them. */
static void goes(struct fan *f, int i, size_t len, size_t n) {
    size_t sent = 0, before = f->came[i];
    CHECK(pair_until(&f->p[i], ({
        if (sent < n && send(f, i, len) == WEFT_OK) sent++;
        f->came[i] - before == n;
    })));
}

static bool all_are_free(const struct fan *f) {
    const struct shm_staging *staging = &sender(f)->staging;
    return staging->n_free + (staging->open_chunk >= 0) == staging->n_chunks;
}

/* What is under way is taken in the end, and every chunk returns. */
static void all_returns(struct fan *f) {
    for (int i = 0; i < N_LANES; i++)
        CHECK(pair_until(&f->p[i], f->from[i].lane->ops->buffer->all_taken(f->from[i].lane)));
    for (int i = 0; i < N_LANES; i++) CHECK_EQ(tx_of(f, i)->n_staged + tx_of(f, i)->n_chunks, 0);
    CHECK(all_are_free(f));
}

/* By the mailbox, and by rings. */
#define TEST_WAYS(name)                  \
    static void name(const char *rings); \
    TEST(name##_by_mailbox) {            \
        name("0");                       \
    }                                    \
    TEST(name##_by_ring) {               \
        name("64");                      \
    }                                    \
    static void name(const char *rings)

TEST_WAYS(messages_to_some_that_take_nothing_hold_up_no_one_else) {
    struct fan f;
    fan_open(&f, rings, "4m");
    for (int i = 0; i < 5; i++) {
        CHECK(fill(&f, i, sizeof bytes) > 0);
        goes(&f, 6, sizeof bytes, 50);
    }
    for (int i = 0; i < 5; i++) CHECK_EQ(f.came[i], 0);
    all_returns(&f);
    fan_close(&f);
}

/* With the memory that a worker has by default, a lane's own limit is what ends it. */
TEST_WAYS(one_that_takes_nothing_holds_few_chunks_of_many) {
    struct fan f;
    fan_open(&f, rings, NULL);
    const struct shm_staging *staging = &sender(&f)->staging;
    for (int i = 0; i < N_LANES - 1; i++) {
        CHECK(fill(&f, i, sizeof bytes) > 0);
        CHECK_EQ(tx_of(&f, i)->n_chunks, SHM_CHUNKS_OF_LANE);
        goes(&f, N_LANES - 1, sizeof bytes, 50);
    }
    CHECK(staging->n_free > staging->n_chunks / 2);
    all_returns(&f);
    fan_close(&f);
}

/* Each chunk that the others fill gets a few bytes for the one that takes nothing. */
TEST_WAYS(short_ones_in_between_do_not_hold_every_chunk) {
    struct fan f;
    fan_open(&f, rings, "4m");
    for (int n = 0; n < 40; n++) {
        (void)send(&f, 0, SHM_BCOPY_MAX + 1);
        goes(&f, 1, sizeof bytes, 3);
    }
    const struct shm_staging *staging = &sender(&f)->staging;
    CHECK(2 * tx_of(&f, 0)->n_chunks <= staging->n_chunks);
    CHECK(tx_of(&f, 0)->n_staged >= tx_of(&f, 0)->n_chunks);
    all_returns(&f);
    fan_close(&f);
}

/* Its receivers have passed all, but the sender has not looked. */
TEST_WAYS(what_others_have_passed_does_not_count_as_held) {
    struct fan f;
    fan_open(&f, rings, "4m");
    size_t alone = fill(&f, 0, sizeof bytes);
    all_returns(&f);
    for (int i = 1; i < 5; i++) (void)fill(&f, i, sizeof bytes);
    for (int i = 1; i < 5; i++)
        for (int turns = 0; turns < 100; turns++) weft__reactor_progress(f.p[i].reactor_b, 0);
    for (int i = 1; i < 5; i++) CHECK(f.came[i] > 0);
    CHECK_EQ(fill(&f, 0, sizeof bytes), alone);
    all_returns(&f);
    fan_close(&f);
}

TEST_WAYS(a_single_chunk_serves_all_in_turn) {
    struct fan f;
    fan_open(&f, rings, "1");
    CHECK_EQ(sender(&f)->staging.n_chunks, 1);
    for (int i = 0; i < N_LANES; i++) {
        CHECK(fill(&f, i, sizeof bytes) >= 1); /* two, but the rest of an open chunk may be short */
        CHECK_EQ(send(&f, (i + 1) % N_LANES, sizeof bytes), WEFT_NO_RESOURCE);
        all_returns(&f);
        goes(&f, i, sizeof bytes, 5);
    }
    all_returns(&f);
    fan_close(&f);
}

/* The sender closes a lane to a receiver that takes nothing before the end of close.timeout. */
static size_t give_up(struct fan *f, int i, bool flush) {
    struct end *from = &f->from[i];
    size_t sent = fill(f, i, sizeof bytes);
    from->lane->ops->close(from->lane, flush);
    for (double over = test_now() + test_timeout(60); !from->n_closed && test_now() < over;)
        weft__reactor_progress(f->p[0].reactor_a, 0);
    CHECK_EQ(from->n_closed, 1);
    CHECK(!all_are_free(f));
    return sent;
}

/* The receiver reads them, or closes. Until then they are not written over. */
TEST_WAYS(what_a_receiver_held_beyond_a_close_returns_when_it_goes_on) {
    for (int way = 0; way < 4; way++) {
        struct fan f;
        fan_open_with(&f, rings, "4m", "50ms");
        size_t sent = give_up(&f, 0, way & 1);
        goes(&f, 1, sizeof bytes, 50);
        CHECK_EQ(f.came[0], 0);
        if (way & 2) f.to[0].lane->ops->close(f.to[0].lane, true);
        CHECK(pair_until(&f.p[0], way & 2 ? f.to[0].n_closed : f.to[0].n_down));
        if (way == 1) CHECK_EQ(f.came[0], sent);
        pair_end_close(&f.to[0], true);
        CHECK(pair_until(&f.p[0], all_are_free(&f)));
        CHECK(pair_until(&f.p[0], sender(&f)->table.n == N_LANES - 1));
        fan_close(&f);
    }
}

/* ---- liars ----------------------------------------------------------------------------------- */

/* The receiver claims to have passed more than it was sent. */
static void lie(const struct end *to) {
    struct shm_lane *lane = (struct shm_lane *)to->lane;
    if (lane->by_mail)
        atomic_fetch_add(&lane->mail.ours->consumed, 1000);
    else
        atomic_fetch_add(&shm_ring(lane)->ours->tail, 1000);
}

struct waiting {
    struct pending pending;
    struct fan *fan;
};

static weft_status_t send_again(struct pending *pending) {
    return send(((struct waiting *)pending)->fan, 1, sizeof bytes);
}

static bool sleeps(struct reactor *r) {
    struct pollfd look = {weft__reactor_fd(r), POLLIN, 0};
    double over = test_now() + test_timeout(60);
    do weft__reactor_progress(r, 0);
    while (poll(&look, 1, 0) == 1 && test_now() < over);
    return poll(&look, 1, 0) == 0;
}

/* Its chunk stays until it ends; another lane waits for that, asleep. */
TEST_WAYS(a_lie_about_what_was_passed_ends_the_lane_and_no_one_spins) {
    struct fan f;
    fan_open(&f, rings, "1");
    struct waiting w = {{.retry = send_again}, &f};
    CHECK(fill(&f, 0, sizeof bytes) > 0);
    lie(&f.to[0]);
    CHECK_EQ(send(&f, 1, sizeof bytes), WEFT_NO_RESOURCE);
    f.from[1].lane->ops->pending_add(f.from[1].lane, &w.pending);
    CHECK(sleeps(f.p[0].reactor_a));
    CHECK_EQ(f.from[0].n_down, 1);
    CHECK_EQ(f.from[0].down, WEFT_ERR_PROTOCOL);
    CHECK(pair_until(&f.p[0], f.to[0].n_down == 1));
    pair_end_close(&f.from[0], true);
    pair_end_close(&f.to[0], true);
    CHECK(pair_until(&f.p[1], f.came[1] == 1));
    fan_close(&f);
}

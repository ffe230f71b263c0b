/* The mailbox by itself, in plain memory: order, back-pressure, lies; and between processes,
 * every byte. */
#include "../harness.h"
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <transports/shm/queues/mailbox.h>

enum { SENDERS = 8, NODES = 64, BLOCKS = 4, ROOM = 16 };

/* What one sender owns. */
struct sender {
    struct mail_node nodes[NODES];
    uint8_t blocks[BLOCKS * 64];
    struct mail_control notified; /* written by the receiver */
};

struct post {
    _Atomic uint64_t newest;
    struct sender sender[SENDERS];
};

struct out {
    struct mail_note notes[NODES];
    uint32_t next_block[BLOCKS];
    struct mail_pool pool;
    struct mail_tx tx;
};

struct in {
    struct mail_shape shape;
    struct mail_view views[SENDERS];
    struct mail_desc descs[ROOM];
    struct mail_rx rx;
    uint32_t consumed[SENDERS];
};

static const struct mail_view *view_of(void *arg, uint32_t slot) {
    return slot < SENDERS ? &((struct in *)arg)->views[slot] : NULL;
}

static void out_open(struct out *o, struct post *post, unsigned slot) {
    struct sender *s = &post->sender[slot];
    memset(o, 0, sizeof *o);
    o->pool = (struct mail_pool){.nodes = s->nodes,
                                 .blocks = s->blocks,
                                 .notes = o->notes,
                                 .next_block = o->next_block,
                                 .node = {MAIL_NONE, 0, NODES, NODES},
                                 .block = {MAIL_NONE, 0, BLOCKS, BLOCKS}};
    o->tx = (struct mail_tx){.first = MAIL_NONE,
                             .slot = slot,
                             .limit = MAIL_WINDOW,
                             .newest = &post->newest,
                             .theirs = &s->notified};
}

static void in_open(struct in *i, struct post *post) {
    memset(i, 0, sizeof *i);
    size_t blocks = offsetof(struct sender, blocks) - offsetof(struct sender, nodes);
    i->shape = (struct mail_shape){NODES, 0, blocks, blocks, BLOCKS * 64, BLOCKS * 64};
    for (unsigned s = 0; s < SENDERS; s++)
        i->views[s] = (struct mail_view){post->sender[s].nodes, NULL, &i->shape};
    i->rx = (struct mail_rx){.descs = i->descs, .room = ROOM, .view = view_of, .arg = i};
}

static int no_chunks;
static void give_back(void *arg, int32_t chunk) {
    no_chunks++;
}
static int refresh(struct out *o) {
    return mail_refresh(&o->tx, &o->pool, give_back, NULL);
}

static void put(struct out *o, const void *data, size_t len) {
    uint32_t index = mail_node_get(&o->pool);
    memcpy(o->pool.nodes[index].data, data, len);
    mail_send(&o->tx, &o->pool, index, (struct mail_content){MAIL_IN_NODE, 3, len, MAIL_NONE, -1});
}

/* The next message, or what mail_next or mail_read answers instead. */
static int get(struct in *i, struct post *post, uint32_t *slot_p, struct mail_message *m) {
    int got = mail_next(&i->rx);
    if (got == 0) got = weft__mail_take(&i->rx, atomic_exchange(&post->newest, 0), SENDERS * NODES);
    if (got <= 0) return got;
    struct mail_desc desc = i->rx.descs[--i->rx.n];
    *slot_p = desc.slot;
    return mail_read(desc.node, i->consumed[desc.slot], &i->views[desc.slot], m);
}

static void pass(struct in *i, struct post *post, uint32_t slot) {
    atomic_store(&post->sender[slot].notified.consumed, ++i->consumed[slot]);
}

static struct post *plain(struct out *out, struct in *in) {
    static struct post post;
    memset(&post, 0, sizeof post);
    in_open(in, &post);
    for (unsigned s = 0; s < SENDERS; s++) out_open(&out[s], &post, s);
    return &post;
}

/* Chains from none to all that there may be, longer than there is room to note. */
TEST(each_senders_messages_arrive_in_its_order) {
    static struct out out[SENDERS];
    static struct in in;
    struct post *post = plain(out, &in);
    uint32_t x = 1, slot = 0, sent[SENDERS] = {0}, seen[SENDERS] = {0}, total = 0;
    struct mail_message m = {0};
    while (total < 50000) {
        x = x * 1664525 + 1013904223;
        for (unsigned n = (x >> 16) % (SENDERS * NODES); n; n--) {
            x = x * 1664525 + 1013904223;
            unsigned s = x >> 29;
            if (mail_blocked(&out[s].tx, &out[s].pool) && refresh(&out[s]) != MAIL_MOVED) continue;
            if (mail_blocked(&out[s].tx, &out[s].pool)) continue;
            put(&out[s], &sent[s], sizeof sent[s]);
            sent[s]++;
        }
        int got;
        while ((got = get(&in, post, &slot, &m)) > 0) {
            CHECK_EQ(m.len, 4);
            CHECK_EQ(*(const uint32_t *)m.data, seen[slot]);
            seen[slot]++, total++;
            pass(&in, post, slot);
        }
        CHECK_EQ(got, 0);
        CHECK_EQ(memcmp(sent, seen, sizeof sent), 0);
    }
}

TEST(no_more_is_under_way_than_the_window_and_what_is_notified_comes_back) {
    static struct out out[SENDERS];
    static struct in in;
    struct post *post = plain(out, &in);
    struct mail_message m = {0};
    uint32_t slot = 0, n = 0;
    while (!mail_blocked(&out[0].tx, &out[0].pool)) put(&out[0], &n, 4), n++;
    CHECK_EQ(n, NODES / 2); /* of a pool that small, half is kept for others */
    CHECK_EQ(refresh(&out[0]), MAIL_SAME);
    for (uint32_t k = 0; k < 5; k++) {
        CHECK_EQ(get(&in, post, &slot, &m), 1);
        pass(&in, post, slot);
    }
    CHECK_EQ(refresh(&out[0]), MAIL_MOVED);
    CHECK_EQ(mail_under_way(&out[0].tx), n - 5);
    CHECK(!mail_blocked(&out[0].tx, &out[0].pool));
    atomic_store(&post->sender[0].notified.consumed, n + 1); /* more than was sent */
    CHECK_EQ(refresh(&out[0]), MAIL_LIES);
    atomic_store(&post->sender[0].notified.consumed, 3); /* or less than before */
    CHECK_EQ(refresh(&out[0]), MAIL_LIES);
}

/* n receivers that take nothing leave 1/(n + 1) of the pool for another. */
TEST(receivers_that_take_nothing_leave_room_for_others) {
    static struct out out[SENDERS];
    static struct in in;
    plain(out, &in);
    struct mail_tx tx[NODES];
    struct mail_pool *pool = &out[0].pool;
    static _Atomic uint64_t words[NODES];
    for (unsigned r = 0; r < 7; r++) {
        tx[r] = out[0].tx;
        tx[r].newest = &words[r];
    }
    for (bool more = true; more;) {
        more = false;
        for (unsigned r = 0; r < 6; r++) {
            if (mail_blocked(&tx[r], pool)) continue;
            mail_send(&tx[r], pool, mail_node_get(pool),
                      (struct mail_content){MAIL_IN_NODE, 1, 0, MAIL_NONE, -1});
            more = true;
        }
    }
    CHECK(pool->node.free >= NODES / 7);
    CHECK(!mail_blocked(&tx[6], pool));
}

TEST(numbers_wrap) {
    static struct out out[SENDERS];
    static struct in in;
    struct post *post = plain(out, &in);
    struct mail_message m = {0};
    uint32_t slot = 0, start = UINT32_MAX - 100;
    out[1].tx.sent = out[1].tx.returned = start;
    out[1].tx.limit = start + MAIL_WINDOW;
    in.consumed[1] = start;
    post->sender[1].notified.consumed = start;
    for (uint32_t i = 0; i < 400; i++) {
        CHECK(!mail_blocked(&out[1].tx, &out[1].pool));
        put(&out[1], &i, 4);
        CHECK_EQ(get(&in, post, &slot, &m), 1);
        CHECK_EQ(*(const uint32_t *)m.data, i);
        pass(&in, post, slot);
        CHECK_EQ(refresh(&out[1]), MAIL_MOVED);
    }
}

TEST(nothing_is_sent_before_the_receiver_sends_open) {
    static struct out out[SENDERS];
    static struct in in;
    struct post *post = plain(out, &in);
    const uint32_t others[] = {0, 6, 8, MAIL_ENDED};
    out[2].tx.limit = 0;
    out[2].tx.opening = 7;
    CHECK(mail_blocked(&out[2].tx, &out[2].pool));
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        post->sender[2].notified.open = others[i];
        CHECK_EQ(refresh(&out[2]), MAIL_SAME);
    }
    post->sender[2].notified.open = 7;
    CHECK_EQ(refresh(&out[2]), MAIL_MOVED);
    CHECK(!mail_blocked(&out[2].tx, &out[2].pool));
}

/* ---- lies ------------------------------------------------------------------------------------ */

static struct post *three(struct out *out, struct in *in) {
    struct post *post = plain(out, in);
    for (uint32_t i = 0; i < 3; i++) put(&out[i], &i, 4);
    return post;
}

TEST(a_chain_that_leads_astray_is_reported_and_not_followed) {
    static struct out out[SENDERS];
    static struct in in;
    struct mail_message m = {0};
    uint32_t slot;
    const uint64_t lies[] = {mail_ref(SENDERS, 0), mail_ref(0, NODES), mail_ref(1, UINT32_MAX), 1,
                             UINT64_MAX,           mail_ref(1, 0), /* itself: a ring */
                             mail_ref(2, 0) /* a longer one */};
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct post *post = three(out, &in);
        post->sender[1].nodes[0].next = lies[i];
        CHECK_EQ(get(&in, post, &slot, &m), MAIL_LIES);
        CHECK(mail_all_read(&in.rx));
        CHECK_EQ(get(&in, post, &slot, &m), 0); /* and it is over */
        post = three(out, &in);
        if (i < 5) {
            post->newest = lies[i];
            CHECK_EQ(get(&in, post, &slot, &m), MAIL_LIES);
        }
    }
}

/* A chain that is changed while it is read in parts. */
TEST(a_chain_that_changes_is_noticed) {
    static struct out out[SENDERS];
    static struct in in;
    struct post *post = plain(out, &in);
    struct mail_message m = {0};
    uint32_t slot = 0, n = 0;
    int got = 1;
    for (; n < 2 * ROOM; n++) put(&out[0], &n, 4);
    for (uint32_t i = 0; i < ROOM; i++) {
        CHECK_EQ(get(&in, post, &slot, &m), 1);
        CHECK_EQ(*(const uint32_t *)m.data, i);
        pass(&in, post, slot);
    }
    post->sender[0].nodes[ROOM + 2].next = 0; /* it ends too soon */
    got = get(&in, post, &slot, &m);
    CHECK_EQ(got, MAIL_LIES);
    CHECK(mail_all_read(&in.rx));
}

TEST(lies_about_a_message_are_reported_and_never_followed) {
    static struct out out[SENDERS];
    static struct in in;
    static const struct {
        uint32_t number;
        unsigned kind, id, len;
        struct mail_place place;
    } lies[] = {
        {1, MAIL_IN_NODE, 1, 4, {0, 0}},
        {UINT32_MAX, MAIL_IN_NODE, 1, 4, {0, 0}},
        {0, MAIL_IN_NODE, 32, 4, {0, 0}},
        {0, MAIL_IN_NODE, 1, MAIL_INLINE + 1, {0, 0}},
        {0, 3, 1, 4, {0, 0}},
        {0, 255, 1, 4, {0, 0}},
        {0, MAIL_IN_BLOCK, 1, 0, {0, BLOCKS * 64 + 1}},
        {0, MAIL_IN_BLOCK, 1, 0, {BLOCKS * 64, 1}},
        {0, MAIL_IN_BLOCK, 1, 0, {UINT32_MAX, 1}},
        {0, MAIL_IN_BLOCK, 1, 0, {1, UINT32_MAX}},
        {0, MAIL_IN_STAGING, 1, 0, {1, BLOCKS * 64}},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct post *post = three(out, &in);
        struct mail_message m = {0};
        struct mail_node *node = &post->sender[0].nodes[0];
        uint32_t slot;
        memcpy(node->data, &lies[i].place, sizeof lies[i].place);
        node->word = mail_word(lies[i].number, (enum mail_kind)lies[i].kind, (uint8_t)lies[i].id,
                               lies[i].len);
        CHECK_EQ(get(&in, post, &slot, &m), MAIL_LIES);
        CHECK_EQ(slot, 0);
        CHECK_EQ(get(&in, post, &slot, &m), 1); /* the others' are not touched by it */
        CHECK_EQ(slot, 1);
    }
}

/* ---- between processes ----------------------------------------------------------------------- */

enum { STREAM = 40000 };

static uint64_t mix(uint64_t x) {
    x ^= x >> 33, x *= UINT64_C(0xff51afd7ed558ccd), x ^= x >> 33,
        x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static _Noreturn void produce(struct post *post, unsigned slot) {
    static struct out out;
    uint8_t bytes[MAIL_INLINE];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    out_open(&out, post, slot);
    for (uint64_t i = 0; i < STREAM;) {
        if (mail_blocked(&out.tx, &out.pool) &&
            (refresh(&out) != MAIL_MOVED || mail_blocked(&out.tx, &out.pool))) {
            sched_yield();
            continue;
        }
        size_t len = mix(slot << 20 | i) % (MAIL_INLINE / 8) * 8 + 8;
        for (size_t at = 0; at < len; at += 8) {
            uint64_t word = mix((uint64_t)slot << 40 | i << 8 | at);
            memcpy(bytes + at, &word, 8);
        }
        put(&out, bytes, len);
        i++;
    }
    _exit(0);
}

TEST(eight_processes_at_once_lose_and_mix_nothing) {
    static struct in in;
    struct post *post =
        mmap(NULL, sizeof *post, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(post != MAP_FAILED);
    in_open(&in, post);
    pid_t pids[SENDERS];
    for (unsigned s = 0; s < SENDERS; s++) {
        pids[s] = fork();
        CHECK(pids[s] >= 0);
        if (pids[s] == 0) produce(post, s);
    }
    uint64_t seen[SENDERS] = {0}, total = 0, wrong = 0;
    time_t give_up = time(NULL) + 60;
    while (total < (uint64_t)SENDERS * STREAM && time(NULL) < give_up) {
        struct mail_message m = {0};
        uint32_t slot = 0;
        int got = get(&in, post, &slot, &m);
        CHECK(got >= 0);
        if (got == 0) {
            sched_yield();
            continue;
        }
        uint64_t i = seen[slot]++, word;
        wrong += m.id != 3 || m.len != mix(slot << 20 | i) % (MAIL_INLINE / 8) * 8 + 8;
        for (size_t at = 0; at < m.len; at += 8) {
            memcpy(&word, (const uint8_t *)m.data + at, 8);
            wrong += word != mix((uint64_t)slot << 40 | i << 8 | at);
        }
        pass(&in, post, slot);
        total++;
    }
    CHECK_EQ(total, SENDERS * STREAM);
    CHECK_EQ(wrong, 0);
    for (unsigned s = 0; s < SENDERS; s++) CHECK(waitpid(pids[s], NULL, 0) == pids[s]);
    munmap(post, sizeof *post);
}

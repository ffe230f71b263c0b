/* Lanes by the mailbox: who gets a ring, many senders, a receiver that takes nothing, ends at
 * any time, and liars. */
#include "pair.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <transports/shm/lane/shm.h>

static struct shm_iface *shm_of(struct iface *iface) {
    return (struct shm_iface *)iface;
}

static bool goes_by(const struct end *end, const char *way) {
    char text[200];
    end->lane->ops->describe(end->lane, text, sizeof text);
    return strstr(text, way) != NULL;
}

static void open_without_rings(struct pair *p) {
    pair_open_with(p, &weft__transport_shm, 0, (weft_setting_t[]){{"shm.rings", "0"}}, 1);
}

/* Opens another worker for what p.iface_a dials, on a reactor of its own. */
static void open_another(const struct pair *p, struct pair *q) {
    *q = *p;
    CHECK_EQ(weft__reactor_create(p->context, &(struct reactor_params){0}, &q->reactor_b), WEFT_OK);
    CHECK_EQ(pair_iface((struct pair *)p, q->reactor_b, 0xc3, &q->iface_b), WEFT_OK);
}

static void close_another(struct pair *q) {
    q->iface_b->ops->close(q->iface_b);
    weft__reactor_progress(q->reactor_b, 0);
    weft__reactor_destroy(q->reactor_b);
}

/* ---- rings are scarce ------------------------------------------------------------------------ */

TEST(peers_beyond_the_rings_use_the_mailbox_until_one_is_free) {
    struct pair p;
    struct end a[4] = {0}, b[4] = {0};
    pair_open_with(&p, &weft__transport_shm, 0, (weft_setting_t[]){{"shm.rings", "2"}}, 1);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open && b[i].n_open));
        CHECK(goes_by(&a[i], i < 2 ? "by ring" : "by mailbox"));
        CHECK(goes_by(&b[i], i < 2 ? "by ring" : "by mailbox"));
    }
    for (int i = 0; i < 3; i++)
        CHECK_EQ(a[i].lane->ops->am_short(a[i].lane, 1, 7, "x", 1), WEFT_OK);
    for (int i = 0; i < 3; i++) CHECK(pair_until(&p, b[i].n_messages == 1));
    pair_end_close(&a[0], true);
    CHECK(pair_until(&p, b[0].n_down == 1));
    pair_end_close(&b[0], true);
    CHECK_EQ(pair_dial(&p, &a[3], &b[3]), WEFT_OK);
    CHECK(pair_until(&p, a[3].n_open && b[3].n_open));
    CHECK(goes_by(&a[3], "by ring") && goes_by(&b[3], "by ring"));
    for (int i = 1; i < 4; i++) {
        pair_end_close(&a[i], true);
        pair_end_close(&b[i], true);
    }
    CHECK_EQ(shm_of(p.iface_a)->rings.n + shm_of(p.iface_b)->rings.n, 0);
    pair_close(&p);
}

/* Every turn of b finds more in the mailbox than it may take. */
TEST(a_flooded_mailbox_leaves_turns_to_the_rings) {
    struct pair p;
    struct end ring_a = {0}, ring_b = {0};
    pair_open_with(&p, &weft__transport_shm, 0, (weft_setting_t[]){{"shm.rings", "1"}}, 1);
    CHECK_EQ(pair_dial(&p, &ring_a, &ring_b), WEFT_OK);
    CHECK(pair_until(&p, ring_a.n_open && ring_b.n_open));
    pair_connect(&p);
    CHECK(goes_by(&ring_a, "by ring") && goes_by(&p.a, "by mailbox"));
    for (unsigned budget = 1; budget <= MAIL_WINDOW; budget *= 4) {
        size_t before = ring_b.n_messages, mail = p.b.n_messages;
        CHECK_EQ(ring_a.lane->ops->am_short(ring_a.lane, 1, 1, "x", 1), WEFT_OK);
        for (int turns = 0; turns < 4; turns++) {
            while (p.a.lane->ops->am_short(p.a.lane, 1, 1, "x", 1) == WEFT_OK)
                ;
            weft__reactor_progress(p.reactor_b, budget);
        }
        CHECK_EQ(ring_b.n_messages, before + 1);
        CHECK(p.b.n_messages >= mail + 2 * budget);
    }
    pair_end_close(&ring_a, true);
    pair_end_close(&ring_b, true);
    pair_close(&p);
}

TEST(a_ring_takes_both) {
    struct pair p;
    struct end a[2] = {0}, b[2] = {0};
    pair_open(&p, &weft__transport_shm, 0);
    shm_of(p.iface_b)->rings.n = 1000; /* as if it had so many already */
    CHECK_EQ(pair_dial(&p, &a[0], &b[0]), WEFT_OK);
    CHECK(pair_until(&p, a[0].n_open && b[0].n_open));
    CHECK(goes_by(&a[0], "by mailbox") && goes_by(&b[0], "by mailbox"));
    CHECK_EQ(shm_of(p.iface_a)->rings.n, 0); /* what it offered is free again */
    shm_of(p.iface_b)->rings.n = 0;
    shm_of(p.iface_a)->rings.n = 1000;
    CHECK_EQ(pair_dial(&p, &a[1], &b[1]), WEFT_OK);
    CHECK(pair_until(&p, a[1].n_open && b[1].n_open));
    CHECK(goes_by(&a[1], "by mailbox") && goes_by(&b[1], "by mailbox"));
    CHECK_EQ(shm_of(p.iface_b)->rings.n, 0);
    shm_of(p.iface_a)->rings.n = 0;
    for (int i = 0; i < 2; i++) {
        pair_end_close(&a[i], true);
        pair_end_close(&b[i], true);
    }
    pair_close(&p);
}

TEST(descs_are_few_until_more_messages_wait_than_there_are) {
    struct pair p;
    open_without_rings(&p);
    pair_connect(&p);
    const struct mail_rx *rx = &shm_of(p.iface_b)->mail.rx;
    unsigned sent = 0;
    uint32_t few = rx->room;
    CHECK(few > 0 && few < MAIL_WINDOW);
    for (int round = 0; round < 3; round++) {
        while (p.a.lane->ops->am_short(p.a.lane, 1, sent, "x", 1) == WEFT_OK) sent++;
        CHECK_EQ(rx->room, round == 0 ? few : MAIL_WINDOW);
        CHECK(pair_until(&p, p.b.n_messages == sent));
        CHECK_EQ(rx->room, MAIL_WINDOW);
    }
    CHECK_EQ(sent, 3 * MAIL_WINDOW);
    pair_close(&p);
}

TEST(a_sleepers_wake_up_takes_one_look_at_the_kernel) {
    struct pair p;
    open_without_rings(&p);
    pair_connect(&p);
    int fd = weft__reactor_fd(p.reactor_b);
    do weft__reactor_progress(p.reactor_b, 0);
    while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0) == 1);
    for (unsigned i = 1; i <= 10; i++) {
        uint64_t looks = weft__count(p.reactor_b)->kernel_polls;
        CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, i, "x", 1), WEFT_OK);
        CHECK_EQ(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0), 1);
        weft__reactor_progress(p.reactor_b, 0);
        CHECK_EQ(p.b.n_messages, i);
        CHECK_EQ(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0), 0);
        CHECK_EQ(weft__count(p.reactor_b)->kernel_polls - looks, 1);
    }
    uint64_t signals;
    CHECK_EQ(read(shm_of(p.iface_b)->wakeup.event_fd, &signals, sizeof signals), 8);
    CHECK(signals >= 10); /* they need not be read */
    pair_close(&p);
}

TEST(a_sleeper_wakes_up_whatever_a_peer_wrote_into_its_eventfd) {
    struct pair p;
    open_without_rings(&p);
    pair_connect(&p);
    int fd = weft__reactor_fd(p.reactor_b);
    uint64_t most = UINT64_MAX - 1;
    do weft__reactor_progress(p.reactor_b, 0);
    while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0) == 1);
    for (unsigned i = 1; i <= 3; i++) {
        uint64_t count;
        ssize_t n = read(shm_of(p.iface_b)->wakeup.event_fd, &count, sizeof count);
        CHECK(n == 8 || (n < 0 && errno == EAGAIN)); /* it is at its beginning */
        CHECK_EQ(write(shm_of(p.iface_b)->wakeup.event_fd, &most, sizeof most), 8);
        do weft__reactor_progress(p.reactor_b, 0);
        while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0) == 1);
        CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, i, "x", 1), WEFT_OK);
        CHECK_EQ(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0), 1);
        weft__reactor_progress(p.reactor_b, 0);
        CHECK_EQ(p.b.n_messages, i);
    }
    pair_close(&p);
}

/* ---- streams --------------------------------------------------------------------------------- */

struct stream {
    struct pending pending;
    struct lane *lane;
    uint64_t next, until;
    unsigned seed;
};

static size_t len_of(uint64_t number) {
    return number % 7 == 0 ? 1000 + number % 3000 : number % 40;
}
static size_t pack(void *to, void *arg) {
    uint64_t number = *(uint64_t *)arg;
    memcpy(to, &number, 8);
    memset((char *)to + 8, (int)(number & 255), len_of(number));
    return 8 + len_of(number);
}
static weft_status_t stream_go(struct pending *pending) {
    struct stream *s = (struct stream *)pending;
    while (s->next < s->until) {
        char bytes[48];
        memset(bytes, (int)(s->next & 255), sizeof bytes);
        weft_status_t st =
            s->next % 7 == 0 || s->next % 5 == 0
                ? s->lane->ops->am_bcopy(s->lane, 1, pack, &s->next)
                : s->lane->ops->am_short(s->lane, 1, s->next, bytes, len_of(s->next));
        if (st != WEFT_OK) return st;
        s->next++;
    }
    return WEFT_OK;
}
static void stream_start(struct stream *s, struct lane *lane, uint64_t until) {
    *s = (struct stream){.pending.retry = stream_go, .lane = lane, .until = until};
    if (stream_go(&s->pending) == WEFT_NO_RESOURCE) lane->ops->pending_add(lane, &s->pending);
}

struct expect {
    uint64_t next, wrong;
};
static void check(struct end *end, uint8_t id, const void *data, size_t len) {
    struct expect *e = end->arg;
    uint64_t number;
    memcpy(&number, data, 8);
    e->wrong += number != e->next || len != 8 + len_of(number);
    for (size_t i = 8; i < len; i++) e->wrong += ((const uint8_t *)data)[i] != (uint8_t)number;
    e->next = number + 1;
}

/* Senders that share a receiver, each a worker of its own. */
enum { MANY = 64, EACH = 2000 };
TEST(sixty_four_senders_and_a_slow_receiver_lose_nothing_and_keep_each_order) {
    struct pair p[MANY] = {0};
    static struct end a[MANY], b[MANY];
    static struct stream streams[MANY];
    static struct expect expects[MANY];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    memset(expects, 0, sizeof expects);
    open_without_rings(&p[0]);
    for (int i = 0; i < MANY; i++) {
        if (i) {
            p[i] = p[0];
            CHECK_EQ(
                weft__reactor_create(p[0].context, &(struct reactor_params){0}, &p[i].reactor_a),
                WEFT_OK);
            CHECK_EQ(pair_iface(&p[i], p[i].reactor_a, 0x1000u + (unsigned)i, &p[i].iface_a),
                     WEFT_OK);
        }
        p[0].next_accepted = &b[i];
        CHECK_EQ(pair_dial(&p[i], &a[i], &b[i]), WEFT_OK);
        p[0].next_accepted = &b[i];
        CHECK(pair_until(&p[i], a[i].n_open && b[i].n_open));
        b[i].on_message = check;
        b[i].arg = &expects[i];
    }
    for (int i = 0; i < MANY; i++) stream_start(&streams[i], a[i].lane, EACH);
    double give_up = test_now() + test_timeout(60);
    for (uint64_t arrived = 0; arrived < (uint64_t)MANY * EACH && test_now() < give_up;) {
        weft__reactor_progress(p[0].reactor_b, 100); /* fewer than come */
        for (int i = 0; i < MANY; i++) weft__reactor_progress(p[i].reactor_a, 0);
        arrived = 0;
        for (int i = 0; i < MANY; i++) arrived += expects[i].next;
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(expects[i].next, EACH);
        CHECK_EQ(expects[i].wrong, 0);
    }
    for (int i = 0; i < MANY; i++) {
        a[i].lane->ops->close(a[i].lane, true);
        CHECK(pair_until(&p[i], a[i].n_closed == 1 && b[i].n_down == 1));
        b[i].pair = &p[i];
        pair_end_close(&b[i], true);
    }
    for (int i = 1; i < MANY; i++) {
        p[i].iface_a->ops->close(p[i].iface_a);
        weft__reactor_progress(p[i].reactor_a, 0);
        weft__reactor_destroy(p[i].reactor_a);
    }
    pair_close(&p[0]);
}

/* a has a lane to b, and another one to c. */
static void connect_to_b_and_c(struct pair *p, struct pair *q, struct end *to_c, struct end *c) {
    open_without_rings(p);
    pair_connect(p);
    open_another(p, q);
    CHECK_EQ(pair_dial(q, to_c, c), WEFT_OK);
    p->next_accepted = c;
    CHECK(pair_until(q, to_c->n_open && c->n_open));
}

/* c takes nothing at all: what a sends to b does not wait for it. */
TEST(who_takes_nothing_holds_up_no_one_else) {
    struct pair p, q;
    struct end to_c = {0}, c = {0};
    struct stream stuck, goes;
    struct expect e = {0};
    connect_to_b_and_c(&p, &q, &to_c, &c);
    stream_start(&stuck, to_c.lane, 100000);
    CHECK(stuck.next >= MAIL_BLOCKS && stuck.next <= MAIL_WINDOW);
    p.b.on_message = check;
    p.b.arg = &e;
    stream_start(&goes, p.a.lane, 20000);
    CHECK(pair_until(&p, e.next == 20000)); /* c's reactor has no turn */
    CHECK_EQ(e.wrong, 0);
    to_c.lane->ops->pending_remove(to_c.lane, &stuck.pending);
    pair_end_close(&to_c, true);
    c.pair = &q;
    pair_end_close(&c, true);
    close_another(&q);
    pair_close(&p);
}

/* ---- ends at any time ------------------------------------------------------------------------ */

/* Lanes come and go, with messages unread, while another goes on; in the end every node is back,
 * and every place. */
TEST(lanes_that_end_in_the_middle_of_traffic_leave_nothing_behind) {
    struct pair p;
    struct expect e = {0}, unused[2];
    struct stream goes, more[2];
    uint32_t x = 11;
    open_without_rings(&p);
    pair_connect(&p);
    p.b.on_message = check;
    p.b.arg = &e;
    for (int round = 0; round < 400; round++) {
        struct end a = {.on_message = check, .arg = &unused[0]},
                   b = {.on_message = check, .arg = &unused[1]};
        CHECK_EQ(pair_dial(&p, &a, &b), WEFT_OK);
        CHECK(pair_until(&p, a.n_open && b.n_open));
        stream_start(&more[0], a.lane, 1000);
        stream_start(&more[1], b.lane, 1000);
        stream_start(&goes, p.a.lane, 0);
        goes.next = (uint64_t)round * 100;
        goes.until = goes.next + 100;
        if (stream_go(&goes.pending) == WEFT_NO_RESOURCE)
            p.a.lane->ops->pending_add(p.a.lane, &goes.pending);
        for (x = x * 1664525 + 1013904223; x >> 28 > 8; x = x * 1664525 + 1013904223)
            weft__reactor_progress(x >> 27 & 1 ? p.reactor_a : p.reactor_b, x >> 20 & 31);
        bool a_first = x >> 17 & 1, both = x >> 16 & 1;
        if (a_first || both) a.lane->ops->close(a.lane, x >> 15 & 1);
        if (!a_first || both) b.lane->ops->close(b.lane, x >> 14 & 1);
        CHECK(pair_until(&p, a.n_closed + a.n_down && b.n_closed + b.n_down));
        pair_end_close(&a, x >> 13 & 1);
        pair_end_close(&b, x >> 12 & 1);
        CHECK(pair_until(&p, e.next == goes.until));
        CHECK_EQ(e.wrong, 0);
    }
    CHECK(pair_until(&p, shm_of(p.iface_a)->table.n == 1 && shm_of(p.iface_b)->table.n == 1));
    CHECK_EQ(p.a.n_down + p.b.n_down, 0);
    pair_end_close(&p.a, true);
    CHECK(pair_until(&p, p.b.n_down == 1));
    pair_end_close(&p.b, true);
    CHECK(pair_until(&p, shm_of(p.iface_a)->table.n == 0 && shm_of(p.iface_b)->table.n == 0));
    for (int i = 0; i < 2; i++) {
        const struct mail_pool *pool = &shm_of(i ? p.iface_a : p.iface_b)->mail.pool;
        CHECK_EQ(pool->node.free, SHM_NODES);
        CHECK_EQ(pool->block.free, SHM_BLOCKS);
    }
    pair_close(&p);
}

/* Its mailbox is not empty yet, so the lane stays as a zombie. The socket would report its end
 * with every look. */
TEST(the_end_of_a_socket_is_noticed_once) {
    struct pair p;
    struct end a = {0}, b = {0};
    struct stream goes;
    open_without_rings(&p);
    pair_connect(&p);
    CHECK_EQ(pair_dial(&p, &a, &b), WEFT_OK);
    CHECK(pair_until(&p, a.n_open && b.n_open));
    struct shm_lane *lane = (struct shm_lane *)a.lane, *peer = (struct shm_lane *)b.lane;
    stream_start(&goes, p.b.lane, 60);
    a.lane->ops->close(a.lane, true);
    shutdown(peer->watch.fd, SHUT_RDWR);
    for (int i = 0; i < 50 && !a.n_closed; i++) {
        weft__reactor_progress(p.reactor_a, 1);
        usleep(100);
    }
    CHECK(a.n_closed == 1 && lane->zombie && lane->received_eof);
    CHECK_EQ(lane->watch.events, 0);
    CHECK(pair_until(&p, b.n_down == 1 && shm_of(p.iface_a)->table.n == 1));
    pair_end_close(&b, true);
    pair_close(&p);
}

/* b has no turn while a gives up a lane: what lies in b's mailbox of it must stay as it is. */
TEST(what_a_hanging_peer_has_not_read_is_not_written_over) {
    struct pair p;
    struct end a = {0}, b = {0};
    struct expect e = {0};
    struct stream goes;
    weft_setting_t settings[] = {{"shm.rings", "0"}, {"close.timeout", "50ms"}};
    pair_open_with(&p, &weft__transport_shm, 0, settings, 2);
    pair_connect(&p);
    CHECK_EQ(pair_dial(&p, &a, &b), WEFT_OK);
    CHECK(pair_until(&p, a.n_open && b.n_open));
    p.b.on_message = check;
    p.b.arg = &e;
    for (uint64_t i = 0; i < 5; i++)
        CHECK_EQ(a.lane->ops->am_short(a.lane, 1, i, "left", 4), WEFT_OK);
    a.lane->ops->close(a.lane, true);
    for (double give_up = test_now() + test_timeout(60); !a.n_closed && test_now() < give_up;)
        weft__reactor_progress(p.reactor_a, 0);
    CHECK_EQ(a.n_closed, 1);
    stream_start(&goes, p.a.lane, 40);
    CHECK(pair_until(&p, e.next == 40 && b.n_down == 1));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(b.n_messages, 5);
    CHECK_EQ(b.down, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(p.a.n_down + p.b.n_down, 0);
    pair_end_close(&b, true);
    CHECK(pair_until(&p, shm_of(p.iface_a)->table.n == 1 && shm_of(p.iface_b)->table.n == 1));
    pair_close(&p);
}

/* ---- liars ----------------------------------------------------------------------------------- */

/* p.a lies to b; the others are lanes of the same two workers: by the mailbox, and by a ring. */
static void open_liars(struct pair *p, struct end *mail_a, struct end *mail_b, struct end *ring_a,
                       struct end *ring_b) {
    pair_open_with(p, &weft__transport_shm, 0, (weft_setting_t[]){{"shm.rings", "1"}}, 1);
    CHECK_EQ(pair_dial(p, ring_a, ring_b), WEFT_OK);
    CHECK(pair_until(p, ring_a->n_open && ring_b->n_open));
    pair_connect(p);
    CHECK_EQ(pair_dial(p, mail_a, mail_b), WEFT_OK);
    CHECK(pair_until(p, mail_a->n_open && mail_b->n_open));
}

static void still_works(struct pair *p, struct end *a, struct end *b) {
    size_t before = b->n_messages;
    CHECK_EQ(a->n_down + b->n_down, 0);
    CHECK_EQ(a->lane->ops->am_short(a->lane, 1, 9, "fine", 4), WEFT_OK);
    CHECK(pair_until(p, b->n_messages == before + 1));
}

static void close_liars(struct pair *p, struct end *mail_a, struct end *mail_b, struct end *ring_a,
                        struct end *ring_b) {
    pair_end_close(&p->a, false);
    pair_end_close(&p->b, false);
    pair_end_close(mail_a, false);
    pair_end_close(mail_b, false);
    struct end a = {0}, b = {0}; /* and new ones are as good as ever */
    CHECK_EQ(pair_dial(p, &a, &b), WEFT_OK);
    CHECK(pair_until(p, a.n_open && b.n_open));
    CHECK(goes_by(&a, "by mailbox"));
    still_works(p, &a, &b);
    still_works(p, ring_a, ring_b);
    struct end *all[] = {&a, &b, ring_a, ring_b};
    for (int i = 0; i < 4; i++) pair_end_close(all[i], false);
    pair_close(p);
}

TEST(a_lie_within_a_message_ends_its_lane_alone) {
    for (int lie = 0; lie < 4; lie++) {
        struct pair p;
        struct end mail_a = {0}, mail_b = {0}, ring_a = {0}, ring_b = {0};
        open_liars(&p, &mail_a, &mail_b, &ring_a, &ring_b);
        struct shm_lane *liar = (struct shm_lane *)p.a.lane;
        struct mail_pool *pool = &shm_of(p.iface_a)->mail.pool;
        CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, 1, "x", 1), WEFT_OK);
        struct mail_node *node = mail_node_at(pool, liar->mail.tx.last);
        /* another number */
        if (lie == 0) node->word += UINT64_C(1) << 32;
        /* an id that is none */
        if (lie == 1) node->word |= 0xff;
        /* longer than a node */
        if (lie == 2) node->word |= UINT64_C(0xffff) << 16;
        /* a place outside */
        if (lie == 3) node->word |= MAIL_IN_BLOCK << 8, memset(node->data, 0xee, 16);
        CHECK(pair_until(&p, p.b.n_down == 1));
        CHECK_EQ(p.b.down, WEFT_ERR_PROTOCOL);
        CHECK_EQ(p.b.n_messages, 0);
        still_works(&p, &mail_a, &mail_b);
        still_works(&p, &ring_a, &ring_b);
        CHECK(pair_until(&p, p.a.n_down == 1));
        close_liars(&p, &mail_a, &mail_b, &ring_a, &ring_b);
    }
}

/* Found when it is read; or at once, of one that is there more often than there are nodes. */
TEST(a_lie_to_a_paused_lane_ends_it_alone) {
    for (int lie = 0; lie < 2; lie++) {
        struct pair p;
        struct end mail_a = {0}, mail_b = {0}, ring_a = {0}, ring_b = {0};
        open_liars(&p, &mail_a, &mail_b, &ring_a, &ring_b);
        struct shm_lane *liar = (struct shm_lane *)p.a.lane;
        CHECK_EQ(p.b.lane->ops->pause(p.b.lane, true), WEFT_OK);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, 1, "x", 1), WEFT_OK);
            if (lie == 0 && i == 1)
                mail_node_at(&shm_of(p.iface_a)->mail.pool, liar->mail.tx.last)->word += UINT64_C(1)
                                                                                         << 32;
            pair_turns(&p, 3);
        }
        still_works(&p, &mail_a, &mail_b);
        CHECK_EQ(p.b.n_down + (int)p.b.n_messages, 0);
        for (int i = 0; lie == 1 && i < 2 * MAIL_WINDOW && !p.b.n_down; i++) {
            struct mail_node *node =
                mail_node_at(&shm_of(p.iface_a)->mail.pool, liar->mail.tx.last);
            mail_publish(liar->mail.tx.newest, node,
                         mail_ref(liar->mail.tx.slot, liar->mail.tx.last));
            pair_turns(&p, 3);
        }
        if (lie == 0) CHECK_EQ(p.b.lane->ops->pause(p.b.lane, false), WEFT_OK);
        CHECK(pair_until(&p, p.b.n_down == 1));
        CHECK_EQ(p.b.down, WEFT_ERR_PROTOCOL);
        CHECK_EQ(p.b.n_messages, lie == 0);
        still_works(&p, &mail_a, &mail_b);
        still_works(&p, &ring_a, &ring_b);
        CHECK(pair_until(&p, p.a.n_down == 1));
        close_liars(&p, &mail_a, &mail_b, &ring_a, &ring_b);
    }
}

/* b claims to have passed more than it was sent, while another lane waits for c to pass some. */
TEST(a_lie_about_what_was_passed_ends_its_lane_while_others_wait_asleep) {
    struct pair p, q;
    struct end to_c = {0}, c = {0};
    struct stream stuck;
    connect_to_b_and_c(&p, &q, &to_c, &c);
    CHECK_EQ(p.a.lane->ops->am_short(p.a.lane, 1, 1, "x", 1), WEFT_OK);
    atomic_fetch_add(&((struct shm_lane *)p.b.lane)->mail.ours->consumed, 1000);
    stream_start(&stuck, to_c.lane, 100000);
    struct pollfd look = {weft__reactor_fd(p.reactor_a), POLLIN, 0};
    double over = test_now() + test_timeout(60);
    do weft__reactor_progress(p.reactor_a, 0);
    while (poll(&look, 1, 0) == 1 && test_now() < over);
    CHECK_EQ(poll(&look, 1, 0), 0);
    CHECK_EQ(p.a.n_down, 1);
    CHECK_EQ(p.a.down, WEFT_ERR_PROTOCOL);
    to_c.lane->ops->pending_remove(to_c.lane, &stuck.pending);
    pair_end_close(&to_c, true);
    c.pair = &q;
    pair_end_close(&c, true);
    close_another(&q);
    pair_close(&p);
}

/* What b's mailbox held is lost, and its owner is unknown: its lanes say so, and no ring
 * notices. */
TEST(a_lie_in_the_mailbox_ends_its_lanes_and_no_ring) {
    for (int lie = 0; lie < 4; lie++) {
        struct pair p;
        struct end mail_a = {0}, mail_b = {0}, ring_a = {0}, ring_b = {0};
        open_liars(&p, &mail_a, &mail_b, &ring_a, &ring_b);
        struct shm_lane *liar = (struct shm_lane *)p.a.lane;
        const uint64_t lies[] = {UINT64_MAX, mail_ref(DOORBELL_LANES, 0),
                                 mail_ref(liar->mail.tx.slot, SHM_NODES),
                                 mail_ref(((struct shm_lane *)ring_a.lane)->mail.tx.slot, 0)};
        atomic_store(&shm_doorbell(liar)->mailbox, lies[lie]);
        CHECK(pair_until(&p, p.b.n_down == 1 && mail_b.n_down == 1));
        CHECK_EQ(p.b.down, WEFT_ERR_PROTOCOL);
        CHECK_EQ(mail_b.down, WEFT_ERR_PROTOCOL);
        CHECK(pair_until(&p, p.a.n_down == 1 && mail_a.n_down == 1));
        still_works(&p, &ring_a, &ring_b);
        close_liars(&p, &mail_a, &mail_b, &ring_a, &ring_b);
    }
}

TEST(random_bytes_in_what_a_liar_may_write_crash_no_one) {
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 60; round++) {
        struct pair p;
        struct end mail_a = {0}, mail_b = {0}, ring_a = {0}, ring_b = {0};
        open_liars(&p, &mail_a, &mail_b, &ring_a, &ring_b);
        struct shm_lane *liar = (struct shm_lane *)p.a.lane;
        struct mail_pool *pool = &shm_of(p.iface_a)->mail.pool;
        for (int i = 0; i < 40 && !p.b.n_down; i++) {
            p.a.lane->ops->am_short(p.a.lane, 1, 1, "x", 1);
            for (int k = 0; k < 4; k++) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                uint64_t *at = (uint64_t *)mail_node_at(pool, x % 64) + (x >> 8) % 3;
                if (x >> 16 & 1)
                    *at =
                        x >> 17 & 1 ? mail_ref(liar->mail.tx.slot, x >> 18 & 31) : *at ^ (x >> 40);
                if (x % 61 == 0)
                    atomic_store(&shm_doorbell(liar)->mailbox, mail_ref(x >> 20 & 3, x >> 30 & 63));
                if (x % 31 == 0) atomic_store(&liar->mail.ours->consumed, (uint32_t)(x >> 32));
                if (x % 29 == 0) atomic_store(&liar->mail.ours->wants, (uint32_t)(x >> 32));
                if (x % 23 == 0) atomic_store(&shm_doorbell(liar)->wanted, 1);
            }
            if (p.b.lane && !p.b.n_down) p.b.lane->ops->am_short(p.b.lane, 1, 1, "x", 1);
            if (round % 2 && p.b.lane && p.b.lane->ops->pause)
                CHECK_EQ(p.b.lane->ops->pause(p.b.lane, x >> 40 & 1), WEFT_OK);
            pair_turn(&p);
        }
        still_works(&p, &ring_a, &ring_b);
        struct end *all[] = {&p.a, &p.b, &mail_a, &mail_b, &ring_a, &ring_b};
        for (int i = 0; i < 6; i++) pair_end_close(all[i], false);
        pair_close(&p);
    }
}

/* ---- ends before the beginning --------------------------------------------------------------- */

/* b has accepted, and does not know yet that its dialer gave up. The dialer's next lane has the
 * number of the first, and another peer. */
TEST(what_was_accepted_too_late_sends_nothing_to_the_dialers_next_lane) {
    struct pair p, q;
    struct end first = {0}, b = {0}, next = {0}, c = {0};
    open_without_rings(&p);
    open_another(&p, &q);
    CHECK_EQ(pair_dial(&p, &first, &b), WEFT_OK);
    unsigned number = ((struct shm_lane *)first.lane)->index;
    for (double over = test_now() + test_timeout(60); !b.n_open && test_now() < over;)
        weft__reactor_progress(p.reactor_b, 0);
    CHECK_EQ(b.n_open, 1);
    first.lane->ops->close(first.lane, false);
    for (double over = test_now() + test_timeout(60); !first.n_closed && test_now() < over;)
        weft__reactor_progress(p.reactor_a, 0);
    CHECK_EQ(pair_dial(&q, &next, &c), WEFT_OK);
    p.next_accepted = &c;
    CHECK_EQ(((struct shm_lane *)next.lane)->index, number);
    CHECK(pair_until(&q, next.n_open && c.n_open));
    CHECK_EQ(b.lane->ops->am_short(b.lane, 1, 7, "late", 4), WEFT_NO_RESOURCE);
    CHECK(pair_until(&p, b.n_down == 1));
    pair_turns(&p, 10);
    CHECK_EQ(next.n_messages, 0);
    still_works(&q, &c, &next);
    still_works(&q, &next, &c);
    pair_end_close(&b, true);
    pair_end_close(&next, true);
    c.pair = next.pair = &q;
    pair_end_close(&c, true);
    close_another(&q);
    pair_close(&p);
}

/* Who is dialed, by address or by URI, and that many lanes to one peer do not mix. */
#include "conformance.h"

static void bad_addresses_are_refused(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags);
    if (!(p.iface_a->attr.caps & CAP_CONNECT_TO_IFACE)) {
        pair_close(&p);
        return;
    }
    uint8_t address[97];
    size_t len = 96;
    const char *why = NULL;
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    struct lane *lane = NULL;
    for (size_t n = 0; n < len; n++) {
        weft_status_t st = p.iface_a->ops->reachable(p.iface_a, address, n, &why);
        CHECK(st == WEFT_ERR_UNREACHABLE || st == WEFT_ERR_ADDRESS);
        CHECK(why && *why);
        CHECK(p.iface_a->ops->connect(p.iface_a, address, n, &lane) < 0);
    }
    for (size_t bit = 0; bit < 8 * len; bit++) {
        address[bit / 8] ^= (uint8_t)(1 << bit % 8);
        p.iface_a->ops->reachable(p.iface_a, address, len, &why);
        address[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    size_t small = 1;
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &small), WEFT_ERR_TRUNCATED);
    pair_close(&p);
}

static void a_name_is_listened_at_by_one(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags);
    if (!(p.iface_a->attr.caps & CAP_LISTEN)) {
        pair_close(&p);
        return;
    }
    const char *door = pair_where(s->transport);
    struct tl_listener *first = NULL, *second = NULL;
    struct iface *b = p.iface_b;
    CHECK_EQ(b->ops->listen(b, strcmp(door, "pair") == 0 ? "door" : door,
                            &(struct listen_how){.backlog = 4}, NULL, &first),
             WEFT_OK);
    char where[128];
    snprintf(where, sizeof where, "%s", strstr(b->ops->listener_uri(first), "://") + 3);
    CHECK_EQ(b->ops->listen(b, where, &(struct listen_how){.backlog = 4}, NULL, &second),
             WEFT_ERR_EXISTS);
    b->ops->listener_close(first);
    pair_turns(&p, 2);

    /* There is no listener: the call fails, or the lane goes down. */
    struct lane *lane = NULL;
    weft_status_t st = p.iface_a->ops->connect_uri(p.iface_a, where, &lane);
    if (st == WEFT_OK) {
        p.a.lane = lane;
        lane->owner = &p.a;
        CHECK(pair_until(&p, p.a.n_down == 1));
        st = p.a.down;
    }
    CHECK_EQ(st, WEFT_ERR_REFUSED);
    CHECK_EQ(p.a.n_open, 0);
    CHECK_EQ(b->ops->listen(b, where, &(struct listen_how){.backlog = 4}, NULL, &first),
             WEFT_OK); /* the name is free again */
    b->ops->listener_close(first);
    pair_close(&p);
}

static void a_uri_connects(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags | PAIR_BY_URI);
    if (!(p.iface_a->attr.caps & CAP_LISTEN)) {
        pair_close(&p);
        return;
    }
    pair_connect(&p);
    CHECK(p.b.listen_arg == &p.listener);
    one(&p, (struct spec){3, SHORT, 10, 0, 0});
    char text[128] = "";
    p.a.lane->ops->describe(p.a.lane, text, sizeof text);
    CHECK(text[0]);
    pair_close(&p);
}

enum { MANY = 40 };
static void many_lanes_do_not_mix(const struct subject *s) {
    struct pair p;
    static struct end a[MANY], b[MANY];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    begin(&p, s->transport, s->flags);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open && b[i].n_open));
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < MANY; i++) {
            CHECK_EQ(post(a[i].lane, &(struct spec){(uint64_t)i, SHORT, 20, 0, 0}, NULL), WEFT_OK);
            CHECK_EQ(post(b[i].lane, &(struct spec){(uint64_t)i + 1000, BCOPY, 500, 0, 0}, NULL),
                     WEFT_OK);
        }
    for (int i = 0; i < MANY; i++) {
        CHECK(pair_until(&p, a[i].n_messages == 3 && b[i].n_messages == 3));
        for (int round = 0; round < 3; round++) {
            CHECK_EQ(*(uint64_t *)b[i].messages[round].data, i);
            CHECK_EQ(*(uint64_t *)a[i].messages[round].data, i + 1000);
        }
    }
    for (int i = 0; i < MANY; i += 2) pair_end_close(&a[i], i % 4 == 0);
    for (int i = 1; i < MANY; i += 2) { /* the others are not disturbed */
        CHECK_EQ(post(a[i].lane, &(struct spec){7, SHORT, 20, 0, 0}, NULL), WEFT_OK);
        CHECK(pair_until(&p, b[i].n_messages == 4));
    }
    for (int i = 0; i < MANY; i++) {
        pair_end_close(&a[i], true);
        CHECK(pair_until(&p, b[i].n_down == 1));
        pair_end_close(&b[i], true);
    }
    pair_close(&p);
}

#define CASES(C, s)                    \
    C(s, bad_addresses_are_refused)    \
    C(s, a_name_is_listened_at_by_one) \
    C(s, a_uri_connects)               \
    C(s, many_lanes_do_not_mix)

SUBJECTS(TESTS_OF)

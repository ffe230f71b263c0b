/* Large payloads go where their owner says (CAP_PLACE): whole, in their turn, and with one last
 * word whatever ends them. */
#include "conformance.h"

enum { EDGE = 64, EACH = 40, TRIES = 50 };

/* One placement at a time: where it goes, and what became of it. */
static uint8_t target[EDGE + LARGEST + EDGE], whole[8 + LARGEST];
static struct {
    struct end *end;          /* which is notified */
    uint32_t placement, last; /* the id of the one under way; the last id that was given */
    uint8_t id, head[PLACE_HEAD];
    size_t skip, len;
    bool under_way, no_ext;
    int asked, placed, ended, overran;
    weft_status_t why;
    int ends_before; /* of its lane, when it was notified */
} now;

static void placed(struct lane *lane, uint32_t placement, weft_status_t status) {
    size_t rest = now.len - now.skip;
    for (size_t i = 0; i < EDGE; i++)
        now.overran += target[i] != 0xee || target[EDGE + rest + i] != 0xee;
    now.overran += placement != now.placement || !now.under_way;
    now.under_way = false;
    now.ends_before = now.end->n_down + now.end->n_closed;
    now.why = status;
    now.ended += status < 0;
    if (status < 0) {
        ((struct expect *)now.end->arg)->next++; /* it is lost, those behind it are not */
        return;
    }
    now.placed++;
    memcpy(whole, now.head, now.skip);
    memcpy(whole + now.skip, target + EDGE, rest);
    now.end->on_message(now.end, now.id, whole, now.len);
}

/* By turns refused, wrong by a byte, and in one to PLACE_IOV pieces of odd sizes. */
static bool place(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len,
                  struct placement *to) {
    unsigned way = (unsigned)now.asked++ % 10;
    now.overran += head_len != PLACE_HEAD || len < PLACE_HEAD + PLACE_LEAST || len > sizeof whole ||
                   now.under_way;
    if (way == 3 || now.no_ext) return false;
    memset(target, 0xee, sizeof target);
    memcpy(now.head, head, head_len);
    now.id = id;
    now.skip = way * 7;
    now.len = len;
    *to = (struct placement){.id = ++now.last, .skip = now.skip, .n_iov = 1 + way % PLACE_IOV};
    uint8_t *at = target + EDGE, *end = at + (len - now.skip);
    for (size_t i = 0; i < to->n_iov; i++) {
        size_t n = i + 1 < to->n_iov ? i * 1237 % (PLACE_LEAST / PLACE_IOV)
                                     : (size_t)(end - at) - (way == 5);
        to->iov[i] = (weft_iov_t){at, n};
        at += n;
    }
    now.under_way = way != 5;
    now.placement = to->id;
    return true;
}

static struct iface_up up_with_place;
static void open_placement(struct pair *p, const struct subject *s, struct expect *e) {
    open_pair(p, s);
    up_with_place = *p->iface_b->up;
    if (p->iface_b->attr.caps & CAP_PLACE) {
        up_with_place.place = place;
        up_with_place.placed = placed;
        p->iface_b->up = &up_with_place;
    }
    memset(&now, 0, sizeof now);
    now.end = &p->b;
    p->b.on_message = check_in_order;
    p->b.arg = e;
    *e = (struct expect){.len = (size_t)-1};
}

static void what_places_is_whole_and_in_its_turn(const struct subject *s) {
    struct pair p;
    struct expect e;
    open_placement(&p, s, &e);
    struct stream large = {.from = &p.a, .spec = zcopy_spec, .until = 30};
    stream_start(&large);
    CHECK(pair_until(&p, e.next == large.until));
    struct stream mixed = {.from = &p.a, .spec = mixed_spec, .at = 30, .until = 600};
    stream_start(&mixed);
    CHECK(pair_until(&p, e.next == mixed.until));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(large.failed | mixed.failed, WEFT_OK);
    CHECK(now.placed > 0 || !(p.iface_b->attr.caps & CAP_PLACE));
    CHECK_EQ(now.overran + now.ended, 0);
    pair_close(&p);
}

/* Sends large messages until one of them is being placed; false: this transport
 * lands none. */
static bool catch_one(struct pair *p, struct expect *e, struct stream *large) {
    *large = (struct stream){.from = &p->a, .spec = zcopy_spec};
    if (!(p->iface_b->attr.caps & CAP_PLACE)) return false;
    for (int i = 0; i < TRIES; i++) {
        large->until += EACH;
        stream_start(large);
        CHECK(pair_until(p, now.under_way || e->next == large->until));
        if (now.under_way) return true;
        completion_step(&large->zcopied.completion, WEFT_OK);
        CHECK(pair_until(p, large->zcopied.calls == 1));
    }
    CHECK(!"one was caught");
    return false;
}
static void all_sent(struct pair *p, struct stream *large) {
    completion_step(&large->zcopied.completion, WEFT_OK);
    CHECK(pair_until(p, large->zcopied.calls == 1));
}

static void one_that_is_stopped_writes_no_byte_more_and_is_notified_once(const struct subject *s) {
    static uint8_t shadow[sizeof target];
    struct pair p;
    struct expect e;
    struct stream large;
    open_placement(&p, s, &e);
    if (catch_one(&p, &e, &large)) {
        p.b.lane->ops->place_stop(p.b.lane, now.last + 1); /* another's */
        CHECK(now.under_way);
        now.no_ext = true;
        p.b.lane->ops->place_stop(p.b.lane, now.placement);
        CHECK_EQ(now.ended, 0); /* never within the call */
        memcpy(shadow, target, sizeof target);
        CHECK(pair_until(&p, e.next == large.until));
        CHECK_EQ(now.ended, 1);
        CHECK_EQ(now.why, WEFT_ERR_CANCELLED);
        CHECK_EQ(memcmp(shadow, target, sizeof target), 0);
        p.b.lane->ops->place_stop(p.b.lane, now.placement); /* it is over */
        pair_turns(&p, 3);
        CHECK_EQ(now.ended, 1);
        all_sent(&p, &large);
    }
    CHECK_EQ(e.wrong + (unsigned)now.overran, 0);
    pair_close(&p);
}

enum by { OWNER_CLOSES, OWNER_ABORTS, PEER_ABORTS };
static void ends(const struct subject *s, enum by by) {
    static uint8_t shadow[sizeof target];
    struct pair p;
    struct expect e;
    struct stream large;
    open_placement(&p, s, &e);
    if (catch_one(&p, &e, &large)) {
        struct end *ending = by == PEER_ABORTS ? &p.a : &p.b;
        ending->lane->ops->close(ending->lane, by == OWNER_CLOSES);
        CHECK_EQ(now.ended, 0);
        now.no_ext = true;
        memcpy(shadow, target, sizeof target);
        CHECK(pair_until(&p, !now.under_way));
        CHECK_EQ(now.ends_before, 0);
        /* What a peer had sent may still have come. */
        CHECK(by == PEER_ABORTS || now.why == WEFT_ERR_CLOSED);
        if (by == PEER_ABORTS) memcpy(shadow, target, sizeof target);
        pair_end_close(&p.b, false);
        all_sent(&p, &large);
        CHECK_EQ(memcmp(shadow, target, sizeof target), 0);
    }
    CHECK_EQ(e.wrong + (unsigned)now.overran, 0);
    pair_close(&p);
    CHECK(now.ended <= 1);
}
static void one_ends_when_its_owner_closes_the_lane(const struct subject *s) {
    ends(s, OWNER_CLOSES);
}
static void one_ends_when_its_owner_aborts_the_lane(const struct subject *s) {
    ends(s, OWNER_ABORTS);
}
static void one_ends_before_its_owner_receives_that_the_peer_is_gone(const struct subject *s) {
    ends(s, PEER_ABORTS);
}

#define CASES(C, s)                                                    \
    C(s, what_places_is_whole_and_in_its_turn)                         \
    C(s, one_that_is_stopped_writes_no_byte_more_and_is_notified_once) \
    C(s, one_ends_when_its_owner_closes_the_lane)                      \
    C(s, one_ends_when_its_owner_aborts_the_lane)                      \
    C(s, one_ends_before_its_owner_receives_that_the_peer_is_gone)
SUBJECTS(TESTS_OF)

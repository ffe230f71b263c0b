/* Messages keep their order across forms and through a full lane, and a flush says when they
 * have left. */
#include "conformance.h"

static void order_holds_across_forms(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct expect e = {.len = (size_t)-1};
    struct stream stream = {.from = &p.a, .spec = mixed_spec, .until = 3000};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    stream_start(&stream);
    CHECK(pair_until(&p, e.next == 3000));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(stream.failed, WEFT_OK);
    completion_step(&stream.zcopied.completion, WEFT_OK);
    CHECK(pair_until(&p, stream.zcopied.calls == 1));
    CHECK_EQ(stream.zcopied.status, WEFT_OK);
    pair_close(&p);
}

/* Three streams wait in one lane: each gets its turn only when those before it are through. */
static void exhaust(const struct subject *subject,
                    struct spec (*spec)(const struct stream *, uint64_t), size_t len,
                    uint64_t each) {
    struct pair p;
    open_pair(&p, subject);
    struct expect e = {.len = len ? len : p.iface_a->attr.max_zcopy};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    struct stream first = {.from = &p.a, .spec = spec, .until = 100000};
    stream_start(&first);
    CHECK_EQ(first.waits, 1); /* it ended by exhaustion */
    CHECK(first.at > 0);
    first.until = first.at + each;
    struct stream more[2];
    for (int i = 0; i < 2; i++) {
        uint64_t from = first.until + (uint64_t)i * each;
        more[i] = (struct stream){.from = &p.a, .spec = spec, .at = from, .until = from + each};
        more[i].pending.retry = stream_retry;
        more[i].zcopied = counted(1);
        p.a.lane->ops->pending_add(p.a.lane, &more[i].pending);
    }
    CHECK_EQ(first.retries + more[0].retries + more[1].retries, 0);
    CHECK(pair_until(&p, e.next == more[1].until));
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(first.failed | more[0].failed | more[1].failed, 0);
    CHECK(pair_until(&p, first.zcopied.completion.count + more[0].zcopied.completion.count +
                                 more[1].zcopied.completion.count ==
                             3));
    pair_close(&p);
}
static void short_exhaustion_keeps_order(const struct subject *s) {
    exhaust(s, short_spec, 32, 2000);
}
static void bcopy_exhaustion_keeps_order(const struct subject *s) {
    exhaust(s, bcopy_spec, 3000, 500);
}
static void zcopy_exhaustion_keeps_order(const struct subject *s) {
    exhaust(s, zcopy_spec, 0, 50);
}

static void what_was_removed_is_not_retried(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    p.b.on_message = check_in_order;
    struct expect e = {.len = 32};
    p.b.arg = &e;
    struct stream filling = {.from = &p.a, .spec = short_spec, .until = 100000};
    stream_start(&filling);
    CHECK_EQ(filling.waits, 1);
    struct stream removed = {.pending = {.retry = stream_retry}, .from = &p.a, .spec = short_spec};
    p.a.lane->ops->pending_remove(p.a.lane, &removed.pending); /* not there: nothing */
    p.a.lane->ops->pending_add(p.a.lane, &removed.pending);
    filling.until = filling.at + 10;
    struct stream last = {.pending = {.retry = stream_retry}, .from = &p.a, .spec = short_spec};
    last.at = filling.until;
    last.until = last.at + 10;
    last.zcopied = counted(1);
    p.a.lane->ops->pending_add(p.a.lane, &last.pending);
    p.a.lane->ops->pending_remove(p.a.lane, &removed.pending);
    CHECK(pair_until(&p, e.next == last.until));
    CHECK_EQ(removed.retries, 0);
    CHECK_EQ(e.wrong, 0);
    pair_close(&p);
}

static void before_it_is_up_a_lane_has_no_resource(const struct subject *s) {
    struct pair p;
    begin(&p, s->transport, s->flags);
    struct expect e = {.len = 32};
    p.b.on_message = check_in_order;
    p.b.arg = &e;
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    struct counted c = counted(1);
    struct spec z = {0, ZCOPY, 100, 0, 1};
    CHECK_EQ(post(p.a.lane, &z, &c.completion), WEFT_NO_RESOURCE);
    struct stream stream = {.from = &p.a, .spec = short_spec, .until = 5};
    stream_start(&stream);
    CHECK_EQ(stream.waits, 1);
    CHECK(pair_until(&p, e.next == 5));
    CHECK_EQ(p.a.n_open, 1);
    CHECK_EQ(e.wrong, 0);
    CHECK_EQ(c.calls, 0);
    pair_close(&p);
}

static void flush_sends_when_all_has_left(const struct subject *s) {
    struct pair p;
    open_pair(&p, s);
    struct counted all = counted(1), flushed = counted(1);
    weft_status_t st = p.a.lane->ops->flush(p.a.lane, &flushed.completion);
    if (st == WEFT_IN_PROGRESS) { /* the transport's own handshake */
        CHECK(pair_until(&p, flushed.calls == 1));
        flushed = counted(1);
    }
    /* nothing is under way */
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &flushed.completion), WEFT_OK);
    for (uint64_t i = 0; i < 5; i++) {
        struct spec z = {i, ZCOPY, 20000, 0, 1};
        all.completion.count++;
        if (post(p.a.lane, &z, &all.completion) != WEFT_IN_PROGRESS) all.completion.count--;
    }
    st = p.a.lane->ops->flush(p.a.lane, &flushed.completion);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
    CHECK_EQ(flushed.calls, 0);
    if (st == WEFT_IN_PROGRESS) {
        CHECK(pair_until(&p, flushed.calls == 1));
        CHECK_EQ(flushed.status, WEFT_OK);
    }
    CHECK_EQ(all.completion.count, 1);
    CHECK(pair_until(&p, p.b.n_messages == 5));
    pair_turns(&p, 20);
    CHECK(flushed.calls <= 1);
    pair_close(&p);
}

#define CASES(C, s)                              \
    C(s, order_holds_across_forms)               \
    C(s, short_exhaustion_keeps_order)           \
    C(s, bcopy_exhaustion_keeps_order)           \
    C(s, zcopy_exhaustion_keeps_order)           \
    C(s, what_was_removed_is_not_retried)        \
    C(s, before_it_is_up_a_lane_has_no_resource) \
    C(s, flush_sends_when_all_has_left)

SUBJECTS(TESTS_OF)

/* Traffic of all kinds between two workers, both ways at once: each message carries its place, and
 * what arrives is compared. */
#ifndef WEFT_TESTS_SUPPORT_FAILOVER_PEERS_H
#define WEFT_TESTS_SUPPORT_FAILOVER_PEERS_H

#include "worker_pair.h"

enum { LARGEST = 300000, WAITING = 16 };

struct side;
struct out {
    struct side *side;
    bool used;
    uint64_t old;
    unsigned char *bytes; /* LARGEST */
};

/* What one side sends, and what it takes. Payloads follow from their number, so that nothing
 * need be remembered. */
struct side {
    weft_worker_t *worker;
    weft_ep_t *ep;
    unsigned random;
    struct out out[WAITING];
    uint64_t am_sent, am_came, am_taken, tag_sent, tag_came, stream_sent, stream_came, added;
    uint64_t wrong;
    const char *what; /* the first thing that was wrong */
    unsigned char *in;
    weft_tag_info_t info;
    weft_mem_t *mem;
    weft_rkey_t *rkey; /* of the other's word */
    uint64_t *word;
    const uint64_t *other_word;
};

static inline void survive_wrong(struct side *s, const char *what) {
    if (s->wrong++ == 0) s->what = what;
}

static inline unsigned survive_draw(struct side *s) {
    s->random = s->random * 1664525 + 1013904223;
    return s->random >> 8;
}
static inline size_t survive_len(struct side *s) {
    unsigned kind = survive_draw(s) % 16;
    if (kind < 8) return survive_draw(s) % 64;
    if (kind < 12) return survive_draw(s) % 9000;
    return survive_draw(s) % (kind < 15 ? 70000 : LARGEST);
}
static inline unsigned char survive_byte(uint64_t at) {
    return (unsigned char)(at * 7 >> 3);
}

/* ---- sending */

static inline void survive_sent(weft_status_t status, void *arg) {
    struct out *o = arg;
    o->used = false;
    if (status != WEFT_OK) survive_wrong(o->side, weft_status_name(status));
}

static inline weft_status_t survive_send_one(struct side *s, struct out *o, const weft_op_t *op) {
    size_t len = survive_len(s);
    weft_iov_t iov = {o->bytes, len};
    uint64_t number, at = (uint64_t)(uintptr_t)s->other_word;
    switch (survive_draw(s) % 8) {
    case 0:
    case 1:
    case 2:
        number = s->am_sent++;
        pattern(o->bytes, len, (unsigned)number);
        return weft_am_send(s->ep, 5, &number, 8, &iov, 1, op);
    case 3:
    case 4:
        number = s->tag_sent++;
        pattern(o->bytes, len, (unsigned)number);
        return weft_tag_send(s->ep, number, &iov, 1, op);
    case 5:
        for (size_t i = 0; i < len; i++) o->bytes[i] = survive_byte(s->stream_sent + i);
        s->stream_sent += len;
        return weft_stream_send(s->ep, &iov, 1, op);
    case 6: s->added++; return weft_atomic_post(s->ep, WEFT_ATOMIC_ADD, 8, 1, at, s->rkey, op);
    default:
        s->added++;
        return weft_atomic_fetch(s->ep, WEFT_ATOMIC_ADD, 8, 1, 0, &o->old, at, s->rkey, op);
    }
}

static inline void survive_send(struct side *s) {
    struct out *o = s->out;
    while (o < s->out + WAITING && o->used) o++;
    if (o == s->out + WAITING) return;
    o->used = true;
    weft_status_t st = survive_send_one(s, o, &(weft_op_t){.done = survive_sent, .arg = o});
    if (st != WEFT_IN_PROGRESS) survive_sent(st, o);
}

static inline bool survive_idle(const struct side *s) {
    for (const struct out *o = s->out; o < s->out + WAITING; o++)
        if (o->used) return false;
    return true;
}

/* ---- receiving */

/* An offer's bytes come later than its number. */
struct taking {
    struct side *side;
    uint64_t number;
    size_t len;
    unsigned char *buf;
};
static inline void survive_taken(weft_status_t status, void *arg) {
    struct taking *t = arg;
    if (status != WEFT_OK || !is_pattern(t->buf, t->len, (unsigned)t->number))
        survive_wrong(t->side, "an offer");
    t->side->am_taken++;
    free(t->buf);
    free(t);
}

static inline void survive_on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct side *s = arg;
    uint64_t number = 0;
    if (am->header_len == 8) memcpy(&number, am->header, 8);
    if (number != s->am_came++) survive_wrong(s, "an active message's order");
    if (am->data || am->len == 0) {
        if (!is_pattern(am->data, am->len, (unsigned)number))
            survive_wrong(s, "an active message's bytes");
        s->am_taken++;
        return;
    }
    struct taking *t = malloc(sizeof *t);
    *t = (struct taking){s, number, am->len, malloc(am->len)};
    weft_op_t op = {.done = survive_taken, .arg = t};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){t->buf, t->len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) survive_taken(st, t);
}

static inline void survive_tag_came(weft_status_t status, void *arg);
static inline void survive_post_tag(struct side *s) {
    weft_op_t op = {.done = survive_tag_came, .arg = s};
    weft_status_t st =
        weft_tag_recv(s->worker, 0, 0, &(weft_iov_t){s->in, LARGEST}, 1, &s->info, &op);
    if (st != WEFT_IN_PROGRESS) survive_tag_came(st, s);
}
static inline void survive_tag_came(weft_status_t status, void *arg) {
    struct side *s = arg;
    if (status == WEFT_ERR_CLOSED) return;
    if (status != WEFT_OK || s->info.tag != s->tag_came)
        survive_wrong(s, "a tagged message's order");
    if (!is_pattern(s->in, s->info.len, (unsigned)s->tag_came))
        survive_wrong(s, "a tagged message's bytes");
    s->tag_came++;
    survive_post_tag(s);
}

static inline void survive_take_stream(struct side *s) {
    const void *data;
    size_t len;
    while (weft_stream_take(s->ep, &data, &len) == WEFT_OK) {
        const unsigned char *at = data;
        for (size_t i = 0; i < len; i++)
            if (at[i] != survive_byte(s->stream_came + i)) survive_wrong(s, "a stream's bytes");
        s->stream_came += len;
        weft_stream_release(s->worker, data);
    }
}

/* ---- both */

static inline void survive_begin(struct side *s, weft_worker_t *worker, weft_ep_t *ep,
                                 unsigned seed) {
    weft_mem_info_t info;
    *s = (struct side){.worker = worker, .ep = ep, .random = seed, .in = malloc(LARGEST)};
    for (int i = 0; i < WAITING; i++) s->out[i] = (struct out){.side = s, .bytes = malloc(LARGEST)};
    CHECK_EQ(weft_am_handler_set(worker, 5, survive_on_am, s), 0);
    CHECK_EQ(weft_mem_alloc(worker, 64, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &s->mem), 0);
    CHECK_EQ(weft_mem_describe(s->mem, &info), 0);
    s->word = info.base;
    survive_post_tag(s);
}
static inline void survive_meet(struct side *s, const struct side *other) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    CHECK_EQ(weft_mem_pack(other->mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(s->ep, key, len, &s->rkey), 0);
    s->other_word = other->word;
}

static inline bool survive_all_came(const struct side *from, const struct side *to) {
    return survive_idle(from) && to->am_taken == from->am_sent && to->tag_came == from->tag_sent &&
           to->stream_came == from->stream_sent && *to->word == from->added;
}

static inline void survive_end(struct side *s) {
    weft_rkey_release(s->rkey);
    for (int i = 0; i < WAITING; i++) free(s->out[i].bytes);
}

/* ---- two sides: a's, and b's */

static inline void survive_pair(struct side sides[2], struct two *t, unsigned seed) {
    survive_begin(&sides[0], t->a, t->ep, seed);
    survive_begin(&sides[1], two_b(t), t->back, seed * 77 + 1);
    survive_meet(&sides[0], &sides[1]);
    survive_meet(&sides[1], &sides[0]);
}

static inline void survive_turn(struct side sides[2], struct two *t) {
    two_turn(t);
    survive_take_stream(&sides[0]);
    survive_take_stream(&sides[1]);
}

static inline bool survive_both_came(const struct side sides[2]) {
    return survive_all_came(&sides[0], &sides[1]) && survive_all_came(&sides[1], &sides[0]);
}

/* All that was sent comes, and was right; both endpoints live. */
static inline void survive_settle(struct side sides[2], struct two *t) {
    for (double end = test_now() + test_timeout(60); test_now() < end && !survive_both_came(sides);)
        survive_turn(sides, t);
    for (int i = 0; i < 2; i++)
        if (sides[i].wrong) printf("  side %d: %s\n", i, sides[i].what);
    CHECK_EQ(sides[0].wrong + sides[1].wrong, 0);
    CHECK(survive_both_came(sides));
    CHECK_EQ(t->errors + t->back_errors, 0);
}

#endif

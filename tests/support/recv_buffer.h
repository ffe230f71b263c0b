/* A pair of workers of one process: one sends, of memory that it may expose, and the other exposes
 * what it receives into. */
#ifndef WEFT_TESTS_SUPPORT_RECV_BUFFER_H
#define WEFT_TESTS_SUPPORT_RECV_BUFFER_H

#include "exposed.h"

#include <endpoints/core/worker.h>
#include <transports/shm/rma/key.h>

enum { EDGE = 4096, RIGHTS = WEFT_MEM_READ | WEFT_MEM_WRITE };

struct into_pair {
    struct exposure_pair l;
    weft_mem_t *room; /* of the receiver */
    char *in;         /* in it, EDGE bytes from either end */
    uint32_t flags;   /* of what is sent */
};

/* Memory that is not exposed is offered like memory that is. */
static inline void into_up(struct into_pair *p, int expose, unsigned rights) {
    pair_up(&p->l, expose);
    p->room = region_for(p->l.t.b, LEN + 2 * EDGE, rights, 1);
    p->in = base_of(p->room) + EDGE;
    p->flags = expose ? 0 : WEFT_AM_RENDEZVOUS;
}
static inline void into_down(struct into_pair *p) {
    pair_down(&p->l);
}

/* Bytes that the sender wrote. */
static inline uint64_t put_done(const struct into_pair *p) {
    return weft_worker_count(p->l.t.a, "shm.put_bytes");
}

/* ---- messages into the room, from half of `offset` to `offset` */

static inline void post_from(struct into_pair *p, const weft_iov_t *from, size_t n, size_t room,
                             size_t offset, struct tally *sent, struct tally *received) {
    memset(p->in - EDGE, 0x5a, LEN + 2 * EDGE);
    *sent = *received = (struct tally){0};
    CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &(weft_iov_t){p->in + offset, room}, 1, NULL,
                           OP(received)),
             WEFT_IN_PROGRESS);
    weft_op_t op = {.done = tally, .arg = sent, .flags = p->flags};
    CHECK_EQ(weft_tag_send(p->l.t.ep, 1, from, n, &op), WEFT_IN_PROGRESS);
}
static inline void post(struct into_pair *p, size_t len, size_t offset, struct tally *sent,
                        struct tally *received) {
    post_from(p, &(weft_iov_t){p->l.out + offset / 2, len}, 1, len, offset, sent, received);
}

/* It is there, and nothing else was written. */
static inline void check_room(const struct into_pair *p, size_t len, size_t offset) {
    const char *begin = p->in + offset, *last = p->in + LEN + EDGE;
    CHECK(memcmp(begin, p->l.out + offset / 2, len) == 0);
    for (const char *at = p->in - EDGE; at < begin; at++) CHECK(*at == 0x5a);
    for (const char *at = begin + len; at < last; at++) CHECK(*at == 0x5a);
}

static inline void cross_into(struct into_pair *p, size_t len, size_t offset) {
    struct tally sent, received;
    post(p, len, offset, &sent, &received);
    UNTIL(&p->l.t, sent.calls && received.calls);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    check_room(p, len, offset);
}

/* Messages until the sender wrote one, or a part of it. */
static inline void until_put_done(struct into_pair *p) {
    uint64_t before = put_done(p);
    double end = test_now() + test_timeout(60);
    while (put_done(p) == before && test_now() < end) cross_into(p, LARGE, 0);
    CHECK(put_done(p) > before);
}

/* Before, during and after a switch of the link's messages to another lane. */
static inline void cross_while_messages_move(int expose) {
    struct into_pair p;
    struct small small;
    into_up(&p, expose, RIGHTS);
    until_put_done(&p);
    small_begin(&p.l.t, &small);
    while (small_more(&p.l.t, &small, 200)) cross_into(&p, LARGE, small.sent % 999);
    small_moved(&p.l.t, &small);
    until_put_done(&p);
    into_down(&p);
}

/* A message that is under way for that many turns. */
static inline void begin(struct into_pair *p, int expose, int turns, struct tally *sent,
                         struct tally *received) {
    into_up(p, expose, RIGHTS);
    until_put_done(p);
    post(p, LEN, 0, sent, received);
    for (int i = 0; i < turns; i++) two_turn(&p->l.t);
}

/* The room is the program's again. */
static inline void no_more_is_written(struct into_pair *p) {
    memset(p->in, 0x33, LEN);
    for (int i = 0; i < 100; i++) two_turn(&p->l.t);
    for (size_t i = 0; i < LEN; i++) CHECK(p->in[i] == 0x33);
}

/* Of the message that is under way: the test takes a piece in the sender's place, who is away. */
static inline struct split take_piece(struct into_pair *p, int *piece_p) {
    struct split helper;
    struct shm_iface *iface = (struct shm_iface *)p->l.t.b->iface[0];
    double end = test_now() + test_timeout(60);
    while (!iface->md->split_words && test_now() < end) weft_worker_progress(p->l.t.b, 1);
    CHECK_EQ(iface->md->split_words, 1);
    CHECK(split_init(&helper, weft__slot_table_copy_ctl(&iface->slot.place)->words,
                     iface->md->split_serial, LEN));
    *piece_p = split_from_back(&helper);
    CHECK_EQ(*piece_p, (int)helper.n - 1);
    return helper;
}

/* ---- how one ends early */

/* Who ends it, and after how many turns of both. The receiver's memory is its own when it was
 * reported it. */
static inline void cancel_after(struct into_pair *p, int turns, bool sender) {
    struct tally sent = {0}, received = {0}, again = {0};
    weft_request_t *send = NULL, *receive = NULL;
    weft_op_t out = {.done = tally, .arg = &sent, .request_p = &send};
    weft_op_t in = {.done = tally, .arg = &received, .request_p = &receive};
    weft_iov_t to = {p->in, LEN}, from = {p->l.out, LEN};
    CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &to, 1, NULL, &in), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(p->l.t.ep, 1, &from, 1, &out), WEFT_IN_PROGRESS);
    for (int i = 0; i < turns; i++) two_turn(&p->l.t);
    if (sender && !sent.calls) weft_request_cancel(send);
    if (!sender && !received.calls) weft_request_cancel(receive);
    for (int i = 0; i < 50; i++) two_turn(&p->l.t);
    if (sender && !received.calls) weft_request_cancel(receive);
    UNTIL(&p->l.t, received.calls == 1);
    if (received.status == WEFT_OK) CHECK(memcmp(p->in, p->l.out, LEN) == 0);
    no_more_is_written(p);
    if (!sent.calls) /* its receive was cancelled before it was found */
        CHECK_EQ(weft_tag_recv(p->l.t.b, 1, UINT64_MAX, &to, 1, NULL, OP(&again)),
                 WEFT_IN_PROGRESS);
    UNTIL(&p->l.t, sent.calls == 1);
    CHECK(sent.calls == 1 && received.calls == 1 && again.calls <= 1);
}

/* By the receiver, or by the sender. */
static inline void close_after(int expose, int turns, bool receiver) {
    struct into_pair p;
    struct tally sent, received, closed = {0};
    begin(&p, expose, turns, &sent, &received);
    CHECK(weft_ep_close(receiver ? p.l.t.back : p.l.t.ep, WEFT_CLOSE_ABORT, OP(&closed)) >= 0);
    UNTIL(&p.l.t, sent.calls);
    if (received.calls && received.status == WEFT_OK) check_room(&p, LEN, 0);
    if (received.calls) no_more_is_written(&p);
    into_down(&p);
    CHECK(sent.calls == 1 && received.calls == 1);
}

/* ---- more at once than the receiver has words for: every third from `third` */

static inline void many_at_once(struct into_pair *p, int rounds, const char *third) {
    enum { MANY = 150, EACH = 100001 };
    char *in = base_of(region_for(p->l.t.b, (size_t)MANY * EACH, RIGHTS, 1));
    for (int round = 0; round < rounds; round++) {
        struct tally sent = {0}, received = {0};
        memset(in, 0, (size_t)MANY * EACH);
        for (int i = 0; i < MANY; i++) {
            const char *out = i % 3 ? p->l.out : third;
            weft_iov_t to = {in + (size_t)i * EACH, EACH},
                       from = {(void *)(uintptr_t)(out + i * 4099), EACH};
            CHECK_EQ(weft_tag_recv(p->l.t.b, (uint64_t)i, UINT64_MAX, &to, 1, NULL, OP(&received)),
                     WEFT_IN_PROGRESS);
            CHECK_EQ(weft_tag_send(p->l.t.ep, (uint64_t)i, &from, 1, OP(&sent)), WEFT_IN_PROGRESS);
        }
        UNTIL(&p->l.t, sent.calls == MANY && received.calls == MANY);
        for (int i = 0; i < MANY; i++)
            CHECK(memcmp(in + (size_t)i * EACH, p->l.out + i * 4099, EACH) == 0);
    }
}

#endif

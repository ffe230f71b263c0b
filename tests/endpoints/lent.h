/* A pair of workers of one process, one of which lends memory to the other. */
#ifndef WEFT_TESTS_LENT_H
#define WEFT_TESTS_LENT_H

#include "two.h"

enum { LEN = 3 << 20, LARGE = 200000 };

struct loan_pair {
    struct two t;
    weft_mem_t *mem;
    char *out, *in;
};

/* Every word is another one, so that no piece passes for another. */
static inline void number(char *to, size_t len, uint32_t seed) {
    for (size_t i = 0; i + 4 <= len; i += 4) {
        uint32_t word = (uint32_t)(i / 4) * 2654435761u + seed;
        memcpy(to + i, &word, 4);
    }
}

static inline char *base_of(const weft_mem_t *mem) {
    weft_mem_info_t info;
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    return info.base;
}

static inline uint32_t peers_of(const weft_mem_t *mem) {
    weft_mem_info_t info;
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    return info.n_peers;
}

static inline weft_mem_t *region_for(weft_worker_t *worker, size_t len, unsigned rights, int lend) {
    weft_mem_t *mem;
    weft_mem_params_t params = {.rights = rights, .lend = lend};
    CHECK_EQ(weft_mem_alloc(worker, len, &params, &mem), 0);
    number(base_of(mem), len, 1);
    return mem;
}
static inline weft_mem_t *region_of(weft_worker_t *worker, size_t len, int lend) {
    return region_for(worker, len, WEFT_MEM_READ, lend);
}

/* By shared memory, where nothing else reads the sender's memory. */
static inline void pair_up(struct loan_pair *p, int lend) {
    weft_setting_t settings[] = {{"shm.copy", "staged"}};
    two_workers(&p->t, "shm", settings, 1);
    two_dial(&p->t);
    UNTIL(&p->t, p->t.ready && p->t.back);
    p->mem = region_of(p->t.a, LEN, lend);
    p->out = base_of(p->mem);
    p->in = calloc(1, LEN);
}

static inline void pair_down(struct loan_pair *p) {
    two_down(&p->t);
    free(p->in);
}

static inline uint64_t read_in_place(const struct loan_pair *p) {
    return weft_worker_count(p->t.b, "protocol.get");
}

static inline void cross_by(struct loan_pair *p, weft_ep_t *ep, const char *from, size_t len) {
    struct tally sent = {0}, received = {0};
    memset(p->in, 0, len);
    CHECK_EQ(weft_tag_recv(p->t.b, 1, UINT64_MAX, &(weft_iov_t){p->in, len}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    weft_status_t st = weft_tag_send(ep, 1, &(weft_iov_t){(void *)(uintptr_t)from, len}, 1, OP(&sent));
    if (st == WEFT_OK) sent.calls = 1;
    UNTIL(&p->t, sent.calls == 1 && received.calls == 1);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    CHECK(memcmp(p->in, from, len) == 0);
}
static inline void cross(struct loan_pair *p, size_t offset, size_t len) {
    cross_by(p, p->t.ep, p->out + offset, len);
}

/* Messages out of it until one was read in place; fails when none ever is. */
static inline void until_lent(struct loan_pair *p, weft_ep_t *ep) {
    uint64_t before = read_in_place(p);
    double end = two_now() + test_patience(20);
    while (read_in_place(p) == before && two_now() < end) cross_by(p, ep, p->out, LARGE);
    CHECK(read_in_place(p) > before);
}

/* ---- and the receiver lends, too */

enum { EDGE = 4096 };

struct into_pair {
    struct loan_pair l;
    weft_mem_t *room; /* of the receiver */
    char *in;         /* in it, EDGE bytes from either end */
};

static inline void into_up(struct into_pair *p, int lend, unsigned rights) {
    pair_up(&p->l, lend);
    p->room = region_for(p->l.t.b, LEN + 2 * EDGE, rights, 1);
    p->in = base_of(p->room) + EDGE;
}
static inline void into_down(struct into_pair *p) {
    pair_down(&p->l);
}

/* Bytes that the sender wrote. */
static inline uint64_t helped(const struct into_pair *p) {
    return weft_worker_count(p->l.t.a, "shm.helped");
}

/* And nothing else was written. */
static inline void check_room(const struct into_pair *p, size_t len, size_t offset) {
    const char *begin = p->in + offset, *last = p->in + LEN + EDGE;
    CHECK(memcmp(begin, p->l.out + offset / 2, len) == 0);
    for (const char *at = p->in - EDGE; at < begin; at++) CHECK(*at == 0x5a);
    for (const char *at = begin + len; at < last; at++) CHECK(*at == 0x5a);
}

#endif

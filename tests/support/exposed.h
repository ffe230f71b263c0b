/* A pair of workers of one process, one of which exposes memory to the other. */
#ifndef WEFT_TESTS_SUPPORT_EXPOSED_H
#define WEFT_TESTS_SUPPORT_EXPOSED_H

#include "worker_pair.h"

enum { LEN = 3 << 20, LARGE = 200000 };

struct exposure_pair {
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

static inline weft_mem_t *region_for(weft_worker_t *worker, size_t len, unsigned rights,
                                     int expose) {
    weft_mem_t *mem;
    weft_mem_params_t params = {.rights = rights, .expose = expose};
    CHECK_EQ(weft_mem_alloc(worker, len, &params, &mem), 0);
    number(base_of(mem), len, 1);
    return mem;
}
static inline weft_mem_t *region_of(weft_worker_t *worker, size_t len, int expose) {
    return region_for(worker, len, WEFT_MEM_READ, expose);
}

/* By shared memory, where nothing else reads the sender's memory. */
static inline void pair_up(struct exposure_pair *p, int expose) {
    weft_setting_t settings[] = {{"shm.copy", "staged"}};
    two_workers(&p->t, "shm", settings, 1);
    two_dial(&p->t);
    UNTIL(&p->t, p->t.ready && p->t.back);
    p->mem = region_of(p->t.a, LEN, expose);
    p->out = base_of(p->mem);
    p->in = calloc(1, LEN);
}

static inline void pair_down(struct exposure_pair *p) {
    two_down(&p->t);
    free(p->in);
}

static inline uint64_t read_in_place(const struct exposure_pair *p) {
    return weft_worker_count(p->t.b, "protocol.get");
}

static inline void cross_by(struct exposure_pair *p, weft_ep_t *ep, const char *from, size_t len) {
    struct tally sent = {0}, received = {0};
    memset(p->in, 0, len);
    CHECK_EQ(
        weft_tag_recv(p->t.b, 1, UINT64_MAX, &(weft_iov_t){p->in, len}, 1, NULL, OP(&received)),
        WEFT_IN_PROGRESS);
    weft_status_t st =
        weft_tag_send(ep, 1, &(weft_iov_t){(void *)(uintptr_t)from, len}, 1, OP(&sent));
    if (st == WEFT_OK) sent.calls = 1;
    UNTIL(&p->t, sent.calls == 1 && received.calls == 1);
    CHECK(sent.status == WEFT_OK && received.status == WEFT_OK);
    CHECK(memcmp(p->in, from, len) == 0);
}
static inline void cross(struct exposure_pair *p, size_t offset, size_t len) {
    cross_by(p, p->t.ep, p->out + offset, len);
}

/* Messages out of it until one was read in place; fails when none ever is. */
static inline void until_in_flight(struct exposure_pair *p, weft_ep_t *ep) {
    uint64_t before = read_in_place(p);
    double end = test_now() + test_timeout(60);
    while (read_in_place(p) == before && test_now() < end) cross_by(p, ep, p->out, LARGE);
    CHECK(read_in_place(p) > before);
}

/* ---- small messages, until they move to a ring: with their lane goes the one by which the
 * memory is mapped */

struct small {
    uint64_t sent, came;
    double end;
};

static inline void small_came(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ((struct small *)arg)->came++;
}

static inline void small_begin(struct two *t, struct small *s) {
    *s = (struct small){.end = test_now() + test_timeout(60)};
    CHECK_EQ(weft_am_handler_set(t->b, 3, small_came, s), 0);
}

/* Sends `n` more messages; false if the link was promoted, or if the test's time is over. */
static inline bool small_more(struct two *t, struct small *s, uint64_t n) {
    static char word[8];
    for (uint64_t until = s->sent + n; s->sent < until;) {
        if (weft_worker_count(t->a, "lanes.promoted") || test_now() > s->end) return false;
        if (weft_am_send(t->ep, 3, NULL, 0, &(weft_iov_t){word, sizeof word}, 1, NULL) >= 0)
            s->sent++;
        two_turn(t);
    }
    return true;
}

static inline void small_moved(struct two *t, const struct small *s) {
    CHECK_EQ(weft_worker_count(t->a, "lanes.promoted"), 1);
    UNTIL(t, s->came == s->sent);
}

#endif

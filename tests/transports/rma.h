/*
 * What transport.h promises of one-sided operations, for every transport that has them: SUBJECTS.
 * The promises are in rma_forms_test.c and rma_keys_test.c. The target's memory is compared, guards
 * included, with a shadow after every operation.
 */
#ifndef WEFT_TESTS_TRANSPORTS_RMA_H
#define WEFT_TESTS_TRANSPORTS_RMA_H

#include "counted.h"
#include "pair.h"
#include "rma_target.h"

struct subject {
    const struct transport *transport;
    unsigned flags;
    const char *way, *rings; /* of shm.rma and shm.rings */
    uint32_t caps;           /* what a key with all rights serves */
};

#define ALL (CAP_PUT | CAP_GET | CAP_ATOMIC)
#ifdef WEFT_HAVE_RDMA
#define RDMA_SUBJECTS(S) S(rdma_rc, rdma_rc, 0, "auto", "64", CAP_PUT | CAP_GET)
#else
#define RDMA_SUBJECTS(S)
#endif
/* S(name, transport, flags, shm.rma, shm.rings, caps of a key) */
#define SUBJECTS(S)                                    \
    S(self, self, PAIR_ONE_REACTOR, "auto", "64", ALL) \
    S(shm, shm, 0, "auto", "64", ALL)                  \
    S(shm_vm, shm, 0, "vm", "64", CAP_PUT | CAP_GET)   \
    S(shm_mailbox, shm, 0, "auto", "0", ALL)           \
    RDMA_SUBJECTS(S)

/* a is the importer, b the owner. */
struct world {
    struct pair p;
    struct target t;
    struct md_mem *mem; /* NULL: revoked */
    uint8_t packed[MD_KEY_MAX];
    size_t packed_len;
    struct lane_key *key;
};

static inline void register_target(struct world *w) {
    struct iface *b = w->p.iface_b;
    CHECK_EQ(b->ops->mem->mem_register(b, &w->t.region, &w->mem), WEFT_OK);
    CHECK_EQ(w->mem->n_open, 0);
    w->packed_len = b->ops->mem->key_pack(w->mem, w->packed);
    CHECK(w->packed_len <= MD_KEY_MAX);
}

static inline struct lane_key *ask(struct world *w, const struct remote_region *remote) {
    struct lane *lane = w->p.a.lane;
    struct lane_key *key = NULL;
    CHECK_EQ(lane->ops->rma->key_open(lane, remote, w->packed, w->packed_len, &key), WEFT_OK);
    CHECK(key && key->lane == lane);
    return key;
}
static inline struct lane_key *open_key(struct world *w) {
    struct lane_key *key = ask(w, &w->t.remote);
    CHECK(pair_until(&w->p, key->status == WEFT_OK));
    return key;
}

static inline bool is_rdma(const struct subject *s) {
    return strncmp(s->transport->name, "rdma", 4) == 0;
}

/* Of the worlds that begin from now on. */
static const char *close_timeout __attribute__((unused)) = "300ms";

static inline void begin_with(struct world *w, const struct subject *s, size_t len, unsigned rights,
                              bool shadow, const char *max_grants) {
    memset(w, 0, sizeof *w);
    if (is_rdma(s) && !pair_has_rdma()) SKIP("no RDMA device here");
    weft_setting_t settings[] = {
        {"shm.rma", s->way},     {"shm.max_grants", max_grants},  {"close.timeout", close_timeout},
        {"shm.rings", s->rings}, {"rdma.max_grants", max_grants}, {"rdma.insecure", "yes"}};
    pair_open_with(&w->p, s->transport, s->flags, settings, 6);
    pair_connect(&w->p);
    target_open(&w->t, len, rights, shadow);
    register_target(w);
}
static inline void begin(struct world *w, const struct subject *s) {
    begin_with(w, s, TARGET_LEN, WEFT_MEM_ALL, true, "128");
    w->key = open_key(w);
    CHECK_EQ(w->key->caps, s->caps);
    CHECK_EQ(w->mem->n_open, 1);
}

static inline void take_back(struct world *w) {
    struct counted c = counted(1);
    struct iface *b = w->p.iface_b;
    weft_status_t st = b->ops->mem->mem_revoke(w->mem, &c.completion);
    CHECK_EQ(c.calls, 0);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
    if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&w->p, c.calls == 1));
    CHECK_EQ(c.status, WEFT_OK);
    w->mem = NULL;
}

static inline void end(struct world *w) {
    if (w->t.shadow) CHECK(target_is_as_it_should(&w->t));
    if (w->key) w->key->lane->ops->rma->key_close(w->key);
    if (w->mem) take_back(w);
    pair_close(&w->p);
    target_close(&w->t);
}

static uint8_t source[(1 << 20) + 64], sink[(1 << 20) + 64];

static inline void source_make(uint32_t seed) {
    uint32_t x = seed;
    for (size_t i = 0; i < sizeof source; i++) {
        x = x * 1664525 + 1013904223;
        source[i] = (uint8_t)(x >> 24);
    }
}

struct bytes {
    uint8_t *at;
    size_t len;
};
static inline size_t pack(void *to, void *arg) {
    const struct bytes *b = arg;
    memcpy(to, b->at, b->len);
    return b->len;
}
static inline void unpack(void *arg, const void *data, size_t len) {
    const struct bytes *b = arg;
    CHECK_EQ(len, b->len);
    if (len) memcpy(b->at, data, len);
}

enum form { SHORT, BCOPY, ZCOPY };

/* An operation that may take its time is given it. */
static inline weft_status_t finish(struct world *w, struct counted *c, weft_status_t st) {
    CHECK_EQ(c->calls, 0);
    if (st != WEFT_IN_PROGRESS) return st;
    CHECK(pair_until(&w->p, c->calls == 1));
    return c->status;
}

/* Through a network it is done when a flush says so. */
static inline weft_status_t performed(struct world *w, weft_status_t st) {
    struct counted c = counted(1);
    struct lane *lane = w->p.a.lane;
    if (st != WEFT_OK || w->key->local || lane->iface->attr.done == RMA_DONE_VISIBLE) return st;
    return finish(w, &c, lane->ops->flush(lane, &c.completion));
}

static inline weft_status_t put(struct world *w, enum form form, uint8_t *from, size_t len,
                                size_t offset) {
    struct lane *lane = w->p.a.lane;
    struct counted c = counted(1);
    uint64_t remote = target_at(&w->t, offset);
    struct rma_piece piece = {from, len, 0, 1, NULL};
    switch (form) {
    case SHORT: return performed(w, lane->ops->rma->put_short(lane, from, len, remote, w->key));
    case BCOPY:
        return performed(w, lane->ops->rma->put_bcopy(lane, len, pack, &(struct bytes){from, len},
                                                      remote, w->key));
    default:
        return performed(
            w, finish(w, &c,
                      lane->ops->rma->put_zcopy(lane, &piece, 1, remote, w->key, &c.completion)));
    }
}
static inline weft_status_t get(struct world *w, enum form form, uint8_t *to, size_t len,
                                size_t offset) {
    struct lane *lane = w->p.a.lane;
    struct counted c = counted(1);
    uint64_t remote = target_at(&w->t, offset);
    struct rma_piece piece = {to, len, 0, 1, NULL};
    struct bytes bytes = {to, len};
    struct rma_unpack by = {unpack, &bytes, len};
    return finish(w, &c,
                  form == BCOPY
                      ? lane->ops->rma->get_bcopy(lane, &by, remote, w->key, &c.completion)
                      : lane->ops->rma->get_zcopy(lane, &piece, 1, remote, w->key, &c.completion));
}

static inline void put_checked(struct world *w, enum form form, size_t lead, size_t len,
                               size_t offset) {
    memcpy(target_shadow(&w->t, offset), source + lead, len);
    CHECK_EQ(put(w, form, source + lead, len, offset), WEFT_OK);
    CHECK(target_is_as_it_should(&w->t));
}
static inline void get_checked(struct world *w, enum form form, size_t lead, size_t len,
                               size_t offset) {
    memset(sink, 0xa5, sizeof sink);
    CHECK_EQ(get(w, form, sink + lead, len, offset), WEFT_OK);
    CHECK_EQ(memcmp(sink + lead, target_shadow(&w->t, offset), len), 0);
    for (size_t i = 0; i < lead; i++) CHECK_EQ(sink[i], 0xa5);
    for (size_t i = lead + len; i < lead + len + 16 && i < sizeof sink; i++)
        CHECK_EQ(sink[i], 0xa5);
}

/* A file of promises lists them in CASES(C, s), each as C(s, promise), and says
 * SUBJECTS(TESTS_OF). */
#define TEST_OF(s, promise)    \
    TEST(s##_##promise) {      \
        promise(&subject_##s); \
    }
#define TESTS_OF(s, transport, flags, way, rings, caps)                                         \
    static const struct subject subject_##s = {&weft__transport_##transport, flags, way, rings, \
                                               caps};                                           \
    CASES(TEST_OF, s)

#endif

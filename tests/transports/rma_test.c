/*
 * What transport.h promises of one-sided operations, for every transport that has them: SUBJECTS. The target's memory is
 * compared, guards included, with a shadow after every operation.
 */
#include "pair.h"
#include "rma_target.h"
#include <sys/uio.h>
#include <transports/shm/shm.h>

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

struct counted {
    struct completion completion;
    int calls;
    weft_status_t status;
};
static void counted_done(struct completion *c, weft_status_t status) {
    struct counted *counted = (struct counted *)c;
    counted->calls++;
    counted->status = status;
}
static struct counted counted(void) {
    return (struct counted){.completion = {counted_done, 1, WEFT_OK}};
}

static void register_target(struct world *w) {
    struct iface *b = w->p.iface_b;
    CHECK_EQ(b->ops->mem_register(b, &w->t.region, &w->mem), WEFT_OK);
    CHECK_EQ(w->mem->n_open, 0);
    w->packed_len = b->ops->key_pack(w->mem, w->packed);
    CHECK(w->packed_len <= MD_KEY_MAX);
}

static struct lane_key *ask(struct world *w, const struct remote_region *remote) {
    struct lane *lane = w->p.a.lane;
    struct lane_key *key = NULL;
    CHECK_EQ(lane->ops->key_open(lane, remote, w->packed, w->packed_len, &key), WEFT_OK);
    CHECK(key && key->lane == lane);
    return key;
}
static struct lane_key *open_key(struct world *w) {
    struct lane_key *key = ask(w, &w->t.remote);
    CHECK(pair_until(&w->p, key->status == WEFT_OK));
    return key;
}

static bool is_rdma(const struct subject *s) {
    return strncmp(s->transport->name, "rdma", 4) == 0;
}

static void begin_with(struct world *w, const struct subject *s, size_t len, unsigned rights, bool shadow,
                       const char *max_grants) {
    memset(w, 0, sizeof *w);
    if (is_rdma(s) && !pair_has_rdma()) SKIP("no RDMA device here");
    weft_setting_t settings[] = {
        {"shm.rma", s->way},     {"shm.max_grants", max_grants},  {"close.timeout", "300ms"},
        {"shm.rings", s->rings}, {"rdma.max_grants", max_grants}, {"rdma.insecure", "yes"}};
    pair_open_with(&w->p, s->transport, s->flags, settings, 6);
    pair_connect(&w->p);
    target_open(&w->t, len, rights, shadow);
    register_target(w);
}
static void begin(struct world *w, const struct subject *s) {
    begin_with(w, s, TARGET_LEN, WEFT_MEM_ALL, true, "128");
    w->key = open_key(w);
    CHECK_EQ(w->key->caps, s->caps);
    CHECK_EQ(w->mem->n_open, 1);
}

static void take_back(struct world *w) {
    struct counted c = counted();
    struct iface *b = w->p.iface_b;
    weft_status_t st = b->ops->mem_revoke(w->mem, &c.completion);
    CHECK_EQ(c.calls, 0);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
    if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&w->p, c.calls == 1));
    CHECK_EQ(c.status, WEFT_OK);
    w->mem = NULL;
}

static void end(struct world *w) {
    if (w->t.shadow) CHECK(target_is_as_it_should(&w->t));
    if (w->key) w->key->lane->ops->key_close(w->key);
    if (w->mem) take_back(w);
    pair_close(&w->p);
    target_close(&w->t);
}

/* ---- each form, around each limit ---------------------------------------------------------------------------------- */

static uint8_t source[(1 << 20) + 64], sink[(1 << 20) + 64];

static void source_make(uint32_t seed) {
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
static size_t pack(void *to, void *arg) {
    const struct bytes *b = arg;
    memcpy(to, b->at, b->len);
    return b->len;
}
static void unpack(void *arg, const void *data, size_t len) {
    const struct bytes *b = arg;
    CHECK_EQ(len, b->len);
    if (len) memcpy(b->at, data, len);
}

enum form { SHORT, BCOPY, ZCOPY };

/* An operation that may take its time is given it. */
static weft_status_t finish(struct world *w, struct counted *c, weft_status_t st) {
    CHECK_EQ(c->calls, 0);
    if (st != WEFT_IN_PROGRESS) return st;
    CHECK(pair_until(&w->p, c->calls == 1));
    return c->status;
}

/* Through a network it is done when a flush says so. */
static weft_status_t performed(struct world *w, weft_status_t st) {
    struct counted c = counted();
    struct lane *lane = w->p.a.lane;
    if (st != WEFT_OK || w->key->local || lane->iface->attr.done == RMA_DONE_VISIBLE) return st;
    return finish(w, &c, lane->ops->flush(lane, &c.completion));
}

static weft_status_t put(struct world *w, enum form form, uint8_t *from, size_t len, size_t offset) {
    struct lane *lane = w->p.a.lane;
    struct counted c = counted();
    uint64_t remote = target_at(&w->t, offset);
    struct rma_piece piece = {from, len, 0, 1, NULL};
    switch (form) {
    case SHORT: return performed(w, lane->ops->put_short(lane, from, len, remote, w->key));
    case BCOPY:
        return performed(w, lane->ops->put_bcopy(lane, len, pack, &(struct bytes){from, len}, remote, w->key));
    default:
        return performed(w, finish(w, &c, lane->ops->put_zcopy(lane, &piece, 1, remote, w->key, &c.completion)));
    }
}
static weft_status_t get(struct world *w, enum form form, uint8_t *to, size_t len, size_t offset) {
    struct lane *lane = w->p.a.lane;
    struct counted c = counted();
    uint64_t remote = target_at(&w->t, offset);
    struct rma_piece piece = {to, len, 0, 1, NULL};
    struct bytes bytes = {to, len};
    return finish(w, &c,
                  form == BCOPY ? lane->ops->get_bcopy(lane, len, unpack, &bytes, remote, w->key, &c.completion)
                                : lane->ops->get_zcopy(lane, &piece, 1, remote, w->key, &c.completion));
}

static void put_checked(struct world *w, enum form form, size_t lead, size_t len, size_t offset) {
    memcpy(target_shadow(&w->t, offset), source + lead, len);
    CHECK_EQ(put(w, form, source + lead, len, offset), WEFT_OK);
    CHECK(target_is_as_it_should(&w->t));
}
static void get_checked(struct world *w, enum form form, size_t lead, size_t len, size_t offset) {
    memset(sink, 0xa5, sizeof sink);
    CHECK_EQ(get(w, form, sink + lead, len, offset), WEFT_OK);
    CHECK_EQ(memcmp(sink + lead, target_shadow(&w->t, offset), len), 0);
    for (size_t i = 0; i < lead; i++) CHECK_EQ(sink[i], 0xa5);
    for (size_t i = lead + len; i < lead + len + 16 && i < sizeof sink; i++) CHECK_EQ(sink[i], 0xa5);
}

/* Of every length around each power and each limit; at the region's begin and end, and unaligned on either side. */
static void around(struct world *w, size_t limit,
                   void (*checked)(struct world *, enum form, size_t, size_t, size_t), enum form form) {
    size_t near[] = {0, 1, 4, 8, 16, 32, 64, 256, 1024, 4096, 8192, 65536, 262144, 1 << 20};
    size_t last = SIZE_MAX;
    for (size_t i = 0; i < sizeof near / sizeof *near; i++)
        for (int d = -1; d <= 1; d++) {
            size_t len = near[i] + (size_t)d;
            if (len > limit || len == last) continue;
            last = len;
            checked(w, form, len % 7, len, w->t.region.len - len);
            checked(w, form, 0, len, 0);
            if (len < 10000) checked(w, form, 3, len, 4093);
        }
    checked(w, form, 1, limit, 5);
}

static void every_form_of_every_size_arrives(const struct subject *s) {
    struct world w;
    begin(&w, s);
    source_make(1);
    const struct iface_attr *attr = &w.p.iface_a->attr;
    CHECK(attr->max_put_short >= 40);
    CHECK(attr->max_put_zcopy <= 1 << 20 && attr->max_get_zcopy <= 1 << 20);
    around(&w, attr->max_put_short, put_checked, SHORT);
    around(&w, attr->max_put_bcopy, put_checked, BCOPY);
    around(&w, attr->max_put_zcopy, put_checked, ZCOPY);
    around(&w, attr->max_get_bcopy, get_checked, BCOPY);
    around(&w, attr->max_get_zcopy, get_checked, ZCOPY);
    end(&w);
}

static void what_is_too_big_is_refused(const struct subject *s) {
    struct world w;
    begin(&w, s);
    const struct iface_attr *attr = &w.p.iface_a->attr;
    struct lane *lane = w.p.a.lane;
    struct counted c = counted();
    struct rma_piece wraps[2] = {{source, 1, 0, 1, NULL}, {source, SIZE_MAX, 0, 1, NULL}};
    struct rma_piece product = {source, (size_t)1 << 61, 0, 8, NULL};
    struct rma_piece sum[2] = {{source, 1 << 20, 0, 1, NULL}, {source, 1, 0, 1, NULL}}, many[64];
    for (int i = 0; i < 64; i++) many[i] = (struct rma_piece){source, 0, 0, 1, NULL};
    uint64_t at = target_at(&w.t, 0);
    CHECK_EQ(put(&w, SHORT, source, attr->max_put_short + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(put(&w, BCOPY, source, attr->max_put_bcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(put(&w, ZCOPY, source, attr->max_put_zcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(get(&w, BCOPY, sink, attr->max_get_bcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(get(&w, ZCOPY, sink, attr->max_get_zcopy + 1, 0), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->put_zcopy(lane, wraps, 2, at, w.key, &c.completion), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->get_zcopy(lane, &product, 1, at, w.key, &c.completion), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->put_zcopy(lane, sum, 2, at, w.key, &c.completion), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->put_zcopy(lane, many, attr->max_iov + 1, at, w.key, &c.completion), WEFT_ERR_TOO_BIG);
    CHECK_EQ(lane->ops->put_zcopy(lane, many, attr->max_iov, at, w.key, &c.completion), WEFT_OK);
    CHECK_EQ(c.calls, 0);
    end(&w);
}

static void nothing_may_be_at_null(const struct subject *s) {
    struct world w;
    begin(&w, s);
    for (enum form form = SHORT; form <= ZCOPY; form++) CHECK_EQ(put(&w, form, source, 0, 0), WEFT_OK);
    struct lane *lane = w.p.a.lane;
    struct counted c = counted();
    struct rma_piece nothing[3] = {{NULL, 0, 0, 1, NULL}, {NULL, 0, 9, 1000, NULL}, {NULL, 8, 8, 0, NULL}};
    uint64_t at = target_at(&w.t, w.t.region.len);
    CHECK_EQ(lane->ops->put_short(lane, NULL, 0, at, w.key), WEFT_OK);
    CHECK_EQ(lane->ops->put_zcopy(lane, nothing, 3, at, w.key, &c.completion), WEFT_OK);
    CHECK_EQ(lane->ops->get_zcopy(lane, nothing, 3, at, w.key, &c.completion), WEFT_OK);
    CHECK_EQ(lane->ops->put_zcopy(lane, NULL, 0, at, w.key, &c.completion), WEFT_OK);
    CHECK_EQ(c.calls, 0);
    end(&w);
}

/* ---- pieces ---------------------------------------------------------------------------------------------------------- */

/* Pieces of `source` or `sink` by a random plan; what a naive walk makes of them goes to *flat. */
static size_t plan(uint32_t *x, uint8_t *base, struct rma_piece *pieces, size_t n) {
    size_t total = 0, from = 0;
    for (size_t i = 0; i < n; i++) {
        *x = *x * 1664525 + 1013904223;
        size_t len = *x >> 8 & 1 ? *x >> 20 & 15 : *x >> 18 & 2047, count = 1 + (*x >> 28) * (len < 16 ? 30 : 1);
        size_t stride = len + (*x >> 12 & 63);
        pieces[i] = (struct rma_piece){base + from, len, count == 1 ? 0xdeadbeef : stride, count, NULL};
        from += stride * count;
        total += len * count;
    }
    CHECK(from < sizeof source);
    return total;
}
static void walk(uint8_t *flat, const struct rma_piece *pieces, size_t n, bool gather) {
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < pieces[i].count; k++) {
            uint8_t *block = (uint8_t *)pieces[i].base + (k ? k * pieces[i].stride : 0);
            for (size_t j = 0; j < pieces[i].len; j++, flat++)
                *(gather ? flat : block + j) = *(gather ? block + j : flat);
        }
}

static void pieces_with_strides_keep_their_order(const struct subject *s) {
    struct world w;
    static uint8_t want[sizeof sink];
    begin(&w, s);
    source_make(2);
    uint32_t x = 99;
    struct lane *lane = w.p.a.lane;
    for (int round = 0; round < 60; round++) {
        struct rma_piece pieces[16];
        struct counted c = counted();
        size_t n = 1 + (x >> 9) % w.p.iface_a->attr.max_iov, total = plan(&x, source, pieces, n);
        size_t offset = x % (w.t.region.len - total);
        walk(target_shadow(&w.t, offset), pieces, n, true);
        weft_status_t st = lane->ops->put_zcopy(lane, pieces, n, target_at(&w.t, offset), w.key, &c.completion);
        CHECK_EQ(performed(&w, finish(&w, &c, st)), WEFT_OK);
        CHECK(target_is_as_it_should(&w.t));
        total = plan(&x, sink, pieces, n);
        offset = x % (w.t.region.len - total);
        memset(sink, 0x5a, sizeof sink);
        walk(target_shadow(&w.t, offset), pieces, n, false);
        memcpy(want, sink, sizeof sink);
        memset(sink, 0x5a, sizeof sink);
        c = counted();
        CHECK_EQ(
            finish(&w, &c, lane->ops->get_zcopy(lane, pieces, n, target_at(&w.t, offset), w.key, &c.completion)),
            WEFT_OK);
        CHECK_EQ(memcmp(sink, want, sizeof sink), 0);
    }
    end(&w);
}

/* A put of what lies in the region itself moves it, as memmove does. */
static void what_overlaps_moves(const struct subject *s) {
    struct world w;
    begin(&w, s);
    if (w.key->local == w.t.region.base) {
        for (int back = 0; back < 2; back++)
            for (enum form form = SHORT; form <= ZCOPY; form++) {
                size_t from = back ? 100 : 37, to = back ? 37 : 100;
                if (form == BCOPY) continue; /* there the program copies */
                memmove(target_shadow(&w.t, to), target_shadow(&w.t, from), 5000);
                CHECK_EQ(put(&w, form, (uint8_t *)w.key->local + from, 5000, to), WEFT_OK);
                CHECK(target_is_as_it_should(&w.t));
                memmove(target_shadow(&w.t, to + 9), target_shadow(&w.t, from), 3000);
                CHECK_EQ(get(&w, ZCOPY, (uint8_t *)w.key->local + to + 9, 3000, from), WEFT_OK);
                CHECK(target_is_as_it_should(&w.t));
            }
    }
    end(&w);
}

/* Nothing is cut to 32 bits: a sparse region, touched on both sides of 4 GiB. */
static void beyond_four_gigabytes_is_reached(const struct subject *s) {
    struct world w;
    if (is_rdma(s)) SKIP("a device that registers a region pins all of it");
    size_t len = (4ull << 30) + (3 << 20) + 77, four = 4ull << 30;
    begin_with(&w, s, len, WEFT_MEM_ALL, false, "128");
    w.key = open_key(&w);
    source_make(3);
    size_t at[] = {0, four - 5000, four + 123, len - 9000};
    for (int i = 0; i < 4; i++) CHECK_EQ(put(&w, ZCOPY, source + i, 9000, at[i]), WEFT_OK);
    for (int i = 3; i >= 0; i--) {
        const uint8_t *there = (uint8_t *)w.t.region.base + at[i];
        size_t own = i == 1 ? 5123 : 9000; /* the third put overwrote the rest */
        CHECK_EQ(memcmp(there, source + i, own), 0);
        CHECK_EQ(get(&w, ZCOPY, sink, 9000, at[i]), WEFT_OK);
        CHECK_EQ(memcmp(sink, there, 9000), 0);
    }
    char *base = w.t.region.base;
    for (int i = 0; i < 4; i++) CHECK_EQ(base[9000 + (size_t)i * (1 << 30)], 0); /* and nowhere else */
    end(&w);
}

/* ---- atomics --------------------------------------------------------------------------------------------------------- */

static uint64_t after(enum rma_atomic op, uint64_t old, uint64_t operand, uint64_t compare) {
    switch (op) {
    case RMA_ADD: return old + operand;
    case RMA_AND: return old & operand;
    case RMA_OR: return old | operand;
    case RMA_XOR: return old ^ operand;
    case RMA_SWAP: return operand;
    default: return old == compare ? operand : old;
    }
}

static void atomics_do_what_they_say(const struct subject *s) {
    struct world w;
    begin(&w, s);
    struct lane *lane = w.p.a.lane;
    uint64_t x = 88172645463325252u;
    bool serves = w.key->caps & CAP_ATOMIC;
    for (int round = 0; serves && round < 2000; round++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        enum rma_atomic op = (enum rma_atomic)(round % 6);
        size_t size = round / 6 % 2 ? 4 : 8, offset = (x >> 20) % (w.t.region.len / size) * size;
        if (round % 97 == 0) offset = (w.t.region.len / size - 1) * size;
        struct counted c = counted();
        uint64_t old = 0, got = ~(uint64_t)0, operand = x * 3, remote = target_at(&w.t, offset);
        memcpy(&old, target_shadow(&w.t, offset), size);
        uint64_t mask = size == 4 ? 0xffffffff : ~(uint64_t)0,
                 compare = x & 256 ? old : old ^ (uint64_t)1 << (x & 31);
        uint64_t now = after(op, old, operand, compare & mask) & mask;
        memcpy(target_shadow(&w.t, offset), &now, size);
        if (op != RMA_CSWAP && x & 1) {
            CHECK_EQ(lane->ops->atomic_post(lane, op, size, operand, remote, w.key), WEFT_OK);
        } else {
            CHECK_EQ(finish(&w, &c,
                            lane->ops->atomic_fetch(lane, op, size, operand, compare, &got, remote, w.key,
                                                    &c.completion)),
                     WEFT_OK);
            CHECK_EQ(got & mask, old);
            CHECK_EQ(got & ~mask, ~mask); /* no byte beyond its size */
        }
        CHECK_EQ(memcmp((char *)w.t.region.base + offset, &now, size), 0);
    }
    if (serves) CHECK(lane->ops->atomic_post(lane, RMA_CSWAP, 8, 1, target_at(&w.t, 0), w.key) < 0);
    if (serves) CHECK(lane->ops->atomic_post(lane, RMA_ADD, 2, 1, target_at(&w.t, 0), w.key) < 0);
    CHECK_EQ(lane->ops->fence(lane), WEFT_OK);
    CHECK_EQ(lane->ops->flush(lane, NULL), WEFT_OK);
    end(&w);
}

/* ---- who may ------------------------------------------------------------------------------------------------------------ */

static void a_key_serves_its_rights_only(const struct subject *s) {
    for (unsigned rights = 1; rights <= WEFT_MEM_ALL; rights++) {
        struct world w;
        begin_with(&w, s, TARGET_LEN, rights, true, "128");
        w.key = open_key(&w);
        CHECK_EQ(w.key->caps, rights_caps(rights, s->caps));
        const char *how = is_rdma(s) ? "rdma" : strcmp(s->way, "vm") == 0 ? "process_vm" : "mapped";
        CHECK(strcmp(w.key->how, how) == 0);
        bool writes = rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC);
        /* Mapped to be read, it can be had in no other way. */
        if (w.key->local && w.key->local != w.t.region.base)
            CHECK_EQ(mprotect(w.key->local, TARGET_PAGE, PROT_READ | PROT_WRITE), writes ? 0 : -1);
        if (w.key->local) CHECK_EQ(memcmp(w.key->local, w.t.region.base, w.t.region.len), 0);
        end(&w);
    }
}

static void refused(struct world *w, const struct remote_region *remote, weft_status_t why) {
    struct lane_key *key = ask(w, remote);
    CHECK(pair_until(&w->p, key->status < 0));
    CHECK_EQ(key->status, why);
    CHECK_EQ(key->caps, 0);
    CHECK(!key->local);
    key->lane->ops->key_close(key);
    CHECK_EQ(w->mem->n_open, 0);
}

static void a_forged_key_opens_nothing(const struct subject *s) {
    struct world w;
    begin_with(&w, s, TARGET_LEN, WEFT_MEM_READ, true, "128");
    for (unsigned bit = 0; bit < 128; bit += 7) {
        struct remote_region forged = w.t.remote;
        forged.token[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused(&w, &forged, WEFT_ERR_REVOKED);
    }
    struct remote_region forged = w.t.remote;
    forged.epoch++;
    refused(&w, &forged, WEFT_ERR_REVOKED);
    forged.epoch -= 2;
    refused(&w, &forged, WEFT_ERR_REVOKED);
    forged = w.t.remote;
    forged.id ^= 64;
    refused(&w, &forged, WEFT_ERR_REVOKED);
    forged = w.t.remote;
    forged.rights |= WEFT_MEM_WRITE;
    refused(&w, &forged, WEFT_ERR_INVALID_PARAM);
    forged = w.t.remote;
    forged.len++;
    refused(&w, &forged, WEFT_ERR_INVALID_PARAM);
    forged.len = UINT64_MAX - forged.base; /* all there is */
    refused(&w, &forged, WEFT_ERR_INVALID_PARAM);
    forged = w.t.remote;
    forged.base -= 4096;
    refused(&w, &forged, WEFT_ERR_INVALID_PARAM);
    w.key = open_key(&w); /* and the real one opens */
    end(&w);
}

TEST(no_range_wraps) {
    static const struct {
        uint64_t base, len, at, n;
        bool covered;
    } cases[] = {{100, 50, 100, 50, true},
                 {100, 50, 100, 51, false},
                 {100, 50, 99, 1, false},
                 {100, 50, 150, 0, true},
                 {100, 50, 150, 1, false},
                 {100, 50, 151, 0, false},
                 {100, 50, 120, UINT64_MAX, false},
                 {100, 50, UINT64_MAX, 2, false},
                 {100, 50, UINT64_MAX - 10, 120, false},
                 {UINT64_MAX - 9, 10, UINT64_MAX - 9, 10, true},
                 {UINT64_MAX - 9, 10, UINT64_MAX, 2, false},
                 {0, UINT64_MAX, 1, UINT64_MAX - 1, true},
                 {0, UINT64_MAX, 1, UINT64_MAX, false}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_EQ(region_covers(cases[i].base, cases[i].len, cases[i].at, cases[i].n), cases[i].covered);
}

/* ---- taking it back ---------------------------------------------------------------------------------------------------- */

static void what_is_revoked_cannot_be_touched(const struct subject *s) {
    struct world w;
    begin(&w, s);
    char *was = w.key->local;
    struct counted c = counted();
    struct iface *b = w.p.iface_b;
    struct lane_key *second = open_key(&w);
    CHECK_EQ(w.mem->n_open, 2);
    weft_status_t st = b->ops->mem_revoke(w.mem, &c.completion);
    w.mem = NULL;
    CHECK_EQ(c.calls, 0); /* not inside the call */
    if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&w.p, c.calls == 1));
    CHECK_EQ(c.status, WEFT_OK);
    CHECK_EQ(w.key->status, WEFT_ERR_REVOKED); /* they let go before the owner heard of it */
    CHECK_EQ(second->status, WEFT_ERR_REVOKED);
    CHECK_EQ(w.key->caps, 0);
    CHECK(!w.key->local);
    unsigned char resident;
    if (was && was != w.t.region.base) CHECK_EQ(mincore(was, TARGET_PAGE, &resident), -1); /* nothing is there */
    second->lane->ops->key_close(second);
    struct lane_key *again = ask(&w, &w.t.remote);
    CHECK(pair_until(&w.p, again->status == WEFT_ERR_REVOKED));
    again->lane->ops->key_close(again);
    pair_turns(&w.p, 5);
    CHECK(c.calls <= 1);
    w.t.region.epoch = w.t.remote.epoch = 4; /* under a new epoch it may be had again */
    register_target(&w);
    again = open_key(&w);
    again->lane->ops->key_close(again);
    CHECK(pair_until(&w.p, w.mem->n_open == 0));
    CHECK_EQ(b->ops->mem_revoke(w.mem, &c.completion), WEFT_OK); /* nobody has it open */
    w.mem = NULL;
    end(&w);
}

/* Each of the four orders of asking, answering, closing and revoking. */
static void keys_may_be_closed_at_any_time(const struct subject *s) {
    for (int turns = 0; turns < 6; turns++)
        for (int revoked = 0; revoked < 3; revoked++) {
            struct world w;
            begin_with(&w, s, TARGET_LEN, WEFT_MEM_ALL, true, "128");
            struct lane_key *keys[40];
            struct counted c = counted();
            for (int i = 0; i < 40; i++) keys[i] = ask(&w, &w.t.remote);
            for (int i = 0; i < turns; i++) weft__reactor_progress(i % 2 ? w.p.reactor_a : w.p.reactor_b, 1);
            weft_status_t st = WEFT_OK;
            if (revoked == 1) st = w.p.iface_b->ops->mem_revoke(w.mem, &c.completion);
            for (int i = 0; i < 40; i++) w.p.a.lane->ops->key_close(keys[(i * 7) % 40]);
            if (revoked == 2) st = w.p.iface_b->ops->mem_revoke(w.mem, &c.completion);
            if (revoked) w.mem = NULL;
            if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&w.p, c.calls == 1));
            if (!revoked) CHECK(pair_until(&w.p, w.mem->n_open == 0));
            pair_turns(&w.p, 20);
            CHECK(c.calls <= 1);
            CHECK_EQ(w.p.a.n_down + w.p.b.n_down, 0);
            end(&w);
        }
}

static void a_peer_holds_no_more_than_its_quota(const struct subject *s) {
    struct world w;
    enum { N = 100, MOST = 9 };
    struct lane_key *keys[N];
    begin_with(&w, s, TARGET_LEN, WEFT_MEM_ALL, true, "9");
    int open = 0, refused = 0;
    for (int i = 0; i < N; i++) keys[i] = ask(&w, &w.t.remote);
    for (int i = 0; i < N; i++) {
        CHECK(pair_until(&w.p, keys[i]->status == WEFT_OK || strcmp(keys[i]->how, "asked for") != 0));
        open += keys[i]->status == WEFT_OK;
        refused += keys[i]->status == WEFT_NO_RESOURCE && strcmp(keys[i]->how, "WEFT_ERR_QUOTA") == 0;
    }
    bool bounded = w.p.reactor_a != w.p.reactor_b; /* self needs no bound */
    CHECK_EQ(open, bounded ? MOST : N);
    CHECK_EQ(refused, N - open);
    for (int i = 0; i < N; i++) keys[i]->lane->ops->key_close(keys[i]);
    CHECK(pair_until(&w.p, w.mem->n_open == 0));
    w.key = open_key(&w); /* there is room again */
    CHECK_EQ(put(&w, SHORT, source, 0, 0), WEFT_OK);
    end(&w);
}

/* ---- the end of a lane ------------------------------------------------------------------------------------------------- */

static void a_revocation_outlives_no_lane(const struct subject *s) {
    for (int who = 0; who < 4; who++) {
        struct world w;
        begin(&w, s);
        struct counted c = counted();
        weft_status_t st = w.p.iface_b->ops->mem_revoke(w.mem, &c.completion);
        w.mem = NULL;
        struct lane *lane = who & 1 ? w.p.b.lane : w.p.a.lane;
        lane->ops->close(lane, who & 2);
        CHECK_EQ(c.calls, 0);
        if (!(who & 1)) CHECK(w.key->status < 0); /* at once: it was this side that closed */
        if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&w.p, c.calls == 1));
        CHECK_EQ(c.status, WEFT_OK);
        if (who & 1) CHECK(pair_until(&w.p, w.p.a.n_down == 1));
        if (who & 1) CHECK(w.key->status < 0 && !w.key->local);
        if (!(who & 1)) w.key = NULL; /* gone with its lane */
        end(&w);
    }
}

static void keys_end_with_their_lane(const struct subject *s) {
    struct world w;
    begin(&w, s);
    struct lane *lane = w.p.a.lane;
    pair_end_close(&w.p.b, true);
    CHECK(pair_until(&w.p, w.p.a.n_down == 1));
    CHECK_EQ(w.key->status, w.p.a.down);
    CHECK(!w.key->local);
    CHECK_EQ(w.mem->n_open, 0);
    CHECK(lane->ops->put_short(lane, source, 8, target_at(&w.t, 0), w.key) < 0);
    struct lane_key *late = NULL;
    CHECK(lane->ops->key_open(lane, &w.t.remote, w.packed, w.packed_len, &late) < 0);
    CHECK(!late);
    end(&w);
}

static void before_it_is_up_a_lane_opens_no_key(const struct subject *s) {
    struct world w = {0};
    struct lane_key *key = NULL;
    if (is_rdma(s) && !pair_has_rdma()) SKIP("no RDMA device here");
    weft_setting_t settings[] = {{"shm.rings", s->rings}, {"rdma.insecure", "yes"}};
    pair_open_with(&w.p, s->transport, s->flags, settings, 2);
    CHECK_EQ(pair_dial(&w.p, &w.p.a, &w.p.b), WEFT_OK);
    target_open(&w.t, TARGET_LEN, WEFT_MEM_ALL, true);
    struct lane *lane = w.p.a.lane;
    CHECK_EQ(lane->ops->key_open(lane, &w.t.remote, "", 0, &key), WEFT_NO_RESOURCE);
    CHECK(!key);
    CHECK(pair_until(&w.p, w.p.a.n_open == 1 && w.p.b.n_open == 1));
    pair_close(&w.p);
    target_close(&w.t);
}

static void no_memory_fails_only_the_key(const struct subject *s) {
    uint64_t made = 1;
    for (uint64_t k = 1; k <= made && k < 100; k++) {
        struct world w;
        begin_with(&w, s, TARGET_LEN, WEFT_MEM_ALL, true, "128");
        struct lane *lane = w.p.a.lane;
        struct lane_key *key = NULL;
        weft__alloc_fail_at(k);
        weft_status_t st = lane->ops->key_open(lane, &w.t.remote, w.packed, w.packed_len, &key);
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        if (st == WEFT_OK)
            CHECK(pair_until(&w.p, key->status == WEFT_OK || strcmp(key->how, "WEFT_ERR_NO_MEMORY") == 0));
        if (st == WEFT_OK && key->status == WEFT_OK && s->caps == (CAP_PUT | CAP_GET)) {
            w.key = key;
            st = put(&w, BCOPY, target_shadow(&w.t, 0), 10, 0); /* the same as is there */
            CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        }
        made = weft__alloc_fail_at(0);
        if (key) lane->ops->key_close(key);
        w.key = NULL;
        CHECK_EQ(w.p.a.n_down + w.p.b.n_down, 0);
        w.key = open_key(&w);
        end(&w);
    }
}

#define CASES(C, s)                            \
    C(s, every_form_of_every_size_arrives)     \
    C(s, what_is_too_big_is_refused)           \
    C(s, nothing_may_be_at_null)               \
    C(s, pieces_with_strides_keep_their_order) \
    C(s, what_overlaps_moves)                  \
    C(s, beyond_four_gigabytes_is_reached)     \
    C(s, atomics_do_what_they_say)             \
    C(s, a_key_serves_its_rights_only)         \
    C(s, a_forged_key_opens_nothing)           \
    C(s, what_is_revoked_cannot_be_touched)    \
    C(s, keys_may_be_closed_at_any_time)       \
    C(s, a_peer_holds_no_more_than_its_quota)  \
    C(s, a_revocation_outlives_no_lane)        \
    C(s, keys_end_with_their_lane)             \
    C(s, before_it_is_up_a_lane_opens_no_key)  \
    C(s, no_memory_fails_only_the_key)

#define TEST_OF(s, promise)    \
    TEST(s##_##promise) {      \
        promise(&subject_##s); \
    }
#define TESTS_OF(s, transport, flags, way, rings, caps)                                                \
    static const struct subject subject_##s = {&weft__transport_##transport, flags, way, rings, caps}; \
    CASES(TEST_OF, s)
SUBJECTS(TESTS_OF)

/* ---- where neither way is open, messages serve: the key stays without, and says why --------------------------------- */

static void waits_without(struct world *w, const char *why) {
    struct lane_key *key = ask(w, &w->t.remote);
    pair_turns(&w->p, 20);
    CHECK_EQ(key->status, WEFT_NO_RESOURCE);
    CHECK_EQ(key->caps, 0);
    CHECK(strcmp(key->how, why) == 0);
    key->lane->ops->key_close(key);
    CHECK_EQ(w->p.a.n_down + w->p.b.n_down, 0);
    end(w);
}

TEST(a_key_that_the_kernel_forbids_says_so) {
    struct world w;
    begin_with(&w, &subject_shm_vm, TARGET_LEN, WEFT_MEM_ALL, true, "128");
    ((struct shm_lane *)w.p.a.lane)->vm_probe ^= 1; /* what is read there is not what the greeting named */
    waits_without(&w, "the kernel does not permit process_vm");
}

TEST(a_key_that_the_configuration_forbids_says_so) {
    struct world w;
    static const struct subject message = {&weft__transport_shm, 0, "message", "64", 0};
    begin_with(&w, &message, TARGET_LEN, WEFT_MEM_ALL, true, "128");
    CHECK_EQ(w.p.iface_a->attr.caps & (CAP_PUT | CAP_GET | CAP_ATOMIC | CAP_MAP), 0);
    waits_without(&w, "the owner offers no memory");
}

/* Who closes first is not bothered by answers that were under way. */
TEST(an_answer_that_meets_a_closing_lane_is_no_violation) {
    for (int revoked = 0; revoked < 2; revoked++) {
        struct world w;
        begin_with(&w, &subject_shm, TARGET_LEN, WEFT_MEM_ALL, true, "3");
        for (int i = 0; i < 5; i++) ask(&w, &w.t.remote);
        for (int i = 0; w.mem->n_open < 3 && i < 1000; i++) weft__reactor_progress(w.p.reactor_b, 0);
        CHECK_EQ(w.mem->n_open, 3);
        struct counted c = counted();
        if (revoked) CHECK_EQ(w.p.iface_b->ops->mem_revoke(w.mem, &c.completion), WEFT_IN_PROGRESS);
        if (revoked) w.mem = NULL;
        w.p.a.lane->ops->close(w.p.a.lane, true);
        CHECK(pair_until(&w.p, w.p.a.n_closed == 1 && w.p.b.n_down == 1));
        CHECK_EQ(w.p.b.down, WEFT_ERR_PEER_CLOSED);
        CHECK_EQ(weft__count(w.p.reactor_a)->violations + weft__count(w.p.reactor_b)->violations, 0);
        if (revoked) CHECK_EQ(c.calls, 1);
        end(&w);
    }
}

TEST(memory_that_is_not_the_transports_own_is_reached_by_process_vm_or_not_at_all) {
    for (int i = 0; i < 3; i++) {
        struct world w;
        static const char *const way[] = {"auto", "auto", "mapped"};
        struct subject s = {&weft__transport_shm, 0, way[i], "64", 0};
        begin_with(&w, &s, TARGET_LEN, WEFT_MEM_ALL, true, "128");
        take_back(&w);
        int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        w.t.region.fd = i == 1 ? unsealed : -1; /* it could shrink under the importer */
        register_target(&w);
        close(unsealed);
        if (i == 2) {
            waits_without(&w, "the owner offers no memory");
            continue;
        }
        w.key = open_key(&w);
        CHECK(strcmp(w.key->how, "process_vm") == 0);
        source_make(5);
        put_checked(&w, SHORT, 1, 999, 77);
        get_checked(&w, ZCOPY, 2, 5000, 77);
        end(&w);
    }
}

/* Whom a key lets in and what it serves; its end, by revocation, by closing and with its lane. */
#include "rma.h"
#include <transports/shm/lane/shm.h>

/* ---- who may --------------------------------------------------------------------------------- */

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
    key->lane->ops->rma->key_close(key);
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
        CHECK_EQ(region_covers(cases[i].base, cases[i].len, cases[i].at, cases[i].n),
                 cases[i].covered);
}

/* ---- taking it back -------------------------------------------------------------------------- */

static void what_is_revoked_cannot_be_touched(const struct subject *s) {
    struct world w;
    begin(&w, s);
    char *was = w.key->local;
    struct counted c = counted(1);
    struct iface *b = w.p.iface_b;
    struct lane_key *second = open_key(&w);
    CHECK_EQ(w.mem->n_open, 2);
    weft_status_t st = b->ops->mem->mem_revoke(w.mem, &c.completion);
    w.mem = NULL;
    CHECK_EQ(c.calls, 0); /* not inside the call */
    if (st == WEFT_IN_PROGRESS) CHECK(pair_until(&w.p, c.calls == 1));
    CHECK_EQ(c.status, WEFT_OK);
    CHECK_EQ(w.key->status, WEFT_ERR_REVOKED); /* they let go before the owner learned of it */
    CHECK_EQ(second->status, WEFT_ERR_REVOKED);
    CHECK_EQ(w.key->caps, 0);
    CHECK(!w.key->local);
    unsigned char resident;
    /* nothing is there */
    if (was && was != w.t.region.base) CHECK_EQ(mincore(was, TARGET_PAGE, &resident), -1);
    second->lane->ops->rma->key_close(second);
    struct lane_key *again = ask(&w, &w.t.remote);
    CHECK(pair_until(&w.p, again->status == WEFT_ERR_REVOKED));
    again->lane->ops->rma->key_close(again);
    pair_turns(&w.p, 5);
    CHECK(c.calls <= 1);
    w.t.region.epoch = w.t.remote.epoch = 4; /* under a new epoch it may be had again */
    register_target(&w);
    again = open_key(&w);
    again->lane->ops->rma->key_close(again);
    CHECK(pair_until(&w.p, w.mem->n_open == 0));
    CHECK_EQ(b->ops->mem->mem_revoke(w.mem, &c.completion), WEFT_OK); /* no peer has it open */
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
            struct counted c = counted(1);
            for (int i = 0; i < 40; i++) keys[i] = ask(&w, &w.t.remote);
            for (int i = 0; i < turns; i++)
                weft__reactor_progress(i % 2 ? w.p.reactor_a : w.p.reactor_b, 1);
            weft_status_t st = WEFT_OK;
            if (revoked == 1) st = w.p.iface_b->ops->mem->mem_revoke(w.mem, &c.completion);
            for (int i = 0; i < 40; i++) w.p.a.lane->ops->rma->key_close(keys[(i * 7) % 40]);
            if (revoked == 2) st = w.p.iface_b->ops->mem->mem_revoke(w.mem, &c.completion);
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
        CHECK(
            pair_until(&w.p, keys[i]->status == WEFT_OK || strcmp(keys[i]->how, "asked for") != 0));
        open += keys[i]->status == WEFT_OK;
        refused +=
            keys[i]->status == WEFT_NO_RESOURCE && strcmp(keys[i]->how, "WEFT_ERR_QUOTA") == 0;
    }
    bool bounded = w.p.reactor_a != w.p.reactor_b; /* self needs no bound */
    CHECK_EQ(open, bounded ? MOST : N);
    CHECK_EQ(refused, N - open);
    for (int i = 0; i < N; i++) keys[i]->lane->ops->rma->key_close(keys[i]);
    CHECK(pair_until(&w.p, w.mem->n_open == 0));
    w.key = open_key(&w); /* there is room again */
    CHECK_EQ(put(&w, SHORT, source, 0, 0), WEFT_OK);
    end(&w);
}

/* ---- the end of a lane ----------------------------------------------------------------------- */

static void a_revocation_outlives_no_lane(const struct subject *s) {
    for (int who = 0; who < 4; who++) {
        struct world w;
        begin(&w, s);
        struct counted c = counted(1);
        weft_status_t st = w.p.iface_b->ops->mem->mem_revoke(w.mem, &c.completion);
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
    CHECK(lane->ops->rma->put_short(lane, source, 8, target_at(&w.t, 0), w.key) < 0);
    struct lane_key *late = NULL;
    CHECK(lane->ops->rma->key_open(lane, &w.t.remote, w.packed, w.packed_len, &late) < 0);
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
    CHECK_EQ(lane->ops->rma->key_open(lane, &w.t.remote, "", 0, &key), WEFT_NO_RESOURCE);
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
        weft_status_t st =
            lane->ops->rma->key_open(lane, &w.t.remote, w.packed, w.packed_len, &key);
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        if (st == WEFT_OK)
            CHECK(pair_until(&w.p, key->status == WEFT_OK ||
                                       strcmp(key->how, "WEFT_ERR_NO_MEMORY") == 0));
        if (st == WEFT_OK && key->status == WEFT_OK && s->caps == (CAP_PUT | CAP_GET)) {
            w.key = key;
            st = put(&w, BCOPY, target_shadow(&w.t, 0), 10, 0); /* the same as is there */
            CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        }
        made = weft__alloc_fail_at(0);
        if (key) lane->ops->rma->key_close(key);
        w.key = NULL;
        CHECK_EQ(w.p.a.n_down + w.p.b.n_down, 0);
        w.key = open_key(&w);
        end(&w);
    }
}

#define CASES(C, s)                           \
    C(s, a_key_serves_its_rights_only)        \
    C(s, a_forged_key_opens_nothing)          \
    C(s, what_is_revoked_cannot_be_touched)   \
    C(s, keys_may_be_closed_at_any_time)      \
    C(s, a_peer_holds_no_more_than_its_quota) \
    C(s, a_revocation_outlives_no_lane)       \
    C(s, keys_end_with_their_lane)            \
    C(s, before_it_is_up_a_lane_opens_no_key) \
    C(s, no_memory_fails_only_the_key)

SUBJECTS(TESTS_OF)

/* ---- where neither way is open, messages serve: the key stays without, and says why ---------- */

static void waits_without(struct world *w, const char *why) {
    struct lane_key *key = ask(w, &w->t.remote);
    pair_turns(&w->p, 20);
    CHECK_EQ(key->status, WEFT_NO_RESOURCE);
    CHECK_EQ(key->caps, 0);
    CHECK(strcmp(key->how, why) == 0);
    key->lane->ops->rma->key_close(key);
    CHECK_EQ(w->p.a.n_down + w->p.b.n_down, 0);
    end(w);
}

TEST(a_key_that_the_kernel_forbids_reports_it) {
    struct world w;
    begin_with(&w, &subject_shm_vm, TARGET_LEN, WEFT_MEM_ALL, true, "128");
    /* what is read there is not what the handshake named */
    shm_process((struct shm_lane *)w.p.a.lane)->probe ^= 1;
    waits_without(&w, "the kernel does not permit process_vm");
}

TEST(a_key_that_the_configuration_forbids_reports_it) {
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
        for (int i = 0; w.mem->n_open < 3 && i < 1000; i++)
            weft__reactor_progress(w.p.reactor_b, 0);
        CHECK_EQ(w.mem->n_open, 3);
        struct counted c = counted(1);
        if (revoked)
            CHECK_EQ(w.p.iface_b->ops->mem->mem_revoke(w.mem, &c.completion), WEFT_IN_PROGRESS);
        if (revoked) w.mem = NULL;
        w.p.a.lane->ops->close(w.p.a.lane, true);
        CHECK(pair_until(&w.p, w.p.a.n_closed == 1 && w.p.b.n_down == 1));
        CHECK_EQ(w.p.b.down, WEFT_ERR_PEER_CLOSED);
        CHECK_EQ(weft__count(w.p.reactor_a)->violations + weft__count(w.p.reactor_b)->violations,
                 0);
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

/* What a peer may say of one-sided access, by mistake or on purpose: nothing is touched, and
 * only its own lane ends. */
#include "pair.h"
#include "rma_target.h"
#include "shm_send_raw.h"
#include <errno.h>
#include <transports/shm/rma/key.h>

/* ---- the decoder ----------------------------------------------------------------------------- */

static struct shm_head head_of(uint8_t kind) {
    return (struct shm_head){SHM_MAGIC, SHM_VERSION, kind, 0};
}
static struct shm_want a_want(uint32_t serial) {
    return (struct shm_want){.head = head_of(SHM_WANT),
                             .serial = serial,
                             .region = 7,
                             .epoch = 3,
                             .rights = WEFT_MEM_READ,
                             .base = 4096,
                             .len = 100,
                             .ways = SHM_WAYS};
}

static weft_status_t decode(const void *data, size_t len, struct shm_key_word *word) {
    void *exact = malloc(len ? len : 1); /* so that a sanitizer sees one byte too many */
    memcpy(exact, data, len);
    weft_status_t st = weft__shm_key_decode(exact, len, word);
    free(exact);
    if (st < 0) return st;
    if (word->kind == SHM_WANT) {
        CHECK(word->want.rights && rights_are_known(word->want.rights));
        CHECK(word->want.ways && word->want.ways <= SHM_WAYS);
        CHECK(word->want.base + word->want.len >= word->want.base);
    }
    if (word->kind == SHM_GRANT)
        CHECK(word->grant.way == SHM_WAY_MAP || word->grant.way == SHM_WAY_VM ||
              word->grant.way == SHM_WAY_DEVICE);
    if (word->kind == SHM_GRANT) CHECK_EQ(word->grant.offset % SHM_PAGE, 0);
    if (word->kind == SHM_DENY) CHECK(word->status < 0 && word->status >= WEFT_STATUS_LAST);
    return st;
}

TEST(a_word_is_read_at_its_own_length_only) {
    static const size_t size[] = {[SHM_WANT] = sizeof(struct shm_want),
                                  [SHM_GRANT] = sizeof(struct shm_grant_word),
                                  [SHM_DENY] = sizeof(struct shm_deny),
                                  [SHM_REVOKE] = sizeof(struct shm_serial),
                                  [SHM_DROP] = sizeof(struct shm_serial)};
    for (unsigned kind = 0; kind < 256; kind++)
        for (size_t len = 0; len <= 100; len++) {
            union {
                struct shm_want want;
                struct shm_grant_word grant;
                uint8_t bytes[128];
            } u = {.want = a_want(9)};
            struct shm_key_word word;
            bool ours = kind >= SHM_WANT && kind <= SHM_DROP;
            if (kind == SHM_GRANT)
                u.grant = (struct shm_grant_word){.serial = 9, .way = SHM_WAY_MAP, .offset = 8192};
            u.want.head = head_of((uint8_t)kind);
            CHECK_EQ(weft__shm_is_key_word(u.bytes, len), ours && len >= sizeof(struct shm_head));
            CHECK_EQ(decode(&u, len, &word),
                     ours && len == size[kind] ? WEFT_OK : WEFT_ERR_PROTOCOL);
            if (ours && len == size[kind]) CHECK_EQ(word.serial, 9);
        }
}

TEST(a_grant_of_a_device_comes_with_its_memory_and_no_other_does) {
    struct shm_device_grant grant = {.grant = {head_of(SHM_GRANT), 9, SHM_WAY_DEVICE, 0},
                                     .device = {.len = 77}};
    struct shm_key_word word;
    CHECK_EQ(decode(&grant, sizeof grant, &word), WEFT_OK);
    CHECK(word.serial == 9 && word.device.len == 77);
    for (size_t len = 0; len < sizeof grant; len++)
        CHECK_EQ(decode(&grant, len, &word), WEFT_ERR_PROTOCOL);
    grant.grant.way = SHM_WAY_MAP;
    CHECK_EQ(decode(&grant, sizeof grant, &word), WEFT_ERR_PROTOCOL);
}

TEST(every_bit_flip_is_refused_or_harmless) {
    struct shm_want want = a_want(1);
    struct shm_grant_word grant = {head_of(SHM_GRANT), 1, SHM_WAY_MAP, 4096};
    struct shm_key_word word;
    for (size_t bit = 0; bit < 8 * sizeof want; bit++) {
        ((uint8_t *)&want)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        weft_status_t st = decode(&want, sizeof want, &word);
        CHECK(st == WEFT_OK || st == WEFT_ERR_PROTOCOL);
        ((uint8_t *)&want)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * sizeof grant; bit++) {
        ((uint8_t *)&grant)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        weft_status_t st = decode(&grant, sizeof grant, &word);
        CHECK(st == WEFT_OK || st == WEFT_ERR_PROTOCOL);
        ((uint8_t *)&grant)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    want.len = UINT64_MAX; /* wraps */
    CHECK_EQ(decode(&want, sizeof want, &word), WEFT_ERR_PROTOCOL);
    struct shm_deny deny = {head_of(SHM_DENY), 1, 77};
    CHECK_EQ(decode(&deny, sizeof deny, &word), WEFT_OK);
    CHECK_EQ(word.status, WEFT_ERR_REJECTED); /* a refusal is an error, whatever it says */
}

TEST(no_short_input_is_a_word_or_a_key) {
    struct shm_key_word word;
    for (uint32_t x = 0; x < 1 << 24; x += x < 1 << 16 ? 1 : 251)
        for (size_t len = 0; len <= 3; len++) {
            CHECK(weft__shm_key_decode(&x, len, &word) == WEFT_ERR_PROTOCOL);
            uint32_t ways = weft__shm_key_ways(&x, len);
            CHECK((ways & ~(uint32_t)SHM_WAYS) == 0 && (len == SHM_KEY_LEN || ways == 0));
        }
    uint8_t key[SHM_KEY_LEN];
    for (uint32_t ways = 0; ways <= SHM_WAYS; ways++) {
        weft__shm_key_encode(ways, key);
        CHECK_EQ(weft__shm_key_ways(key, sizeof key), ways);
    }
}

/* ---- on a lane ------------------------------------------------------------------------------- */

/* a and b have a lane on which a peer lies, and another one that must go on; b owns the
 * target. */
struct world {
    struct pair p;
    struct end good_a, good_b;
    struct target t;
    struct md_mem *mem;
    uint8_t packed[SHM_KEY_LEN];
    int fds;
};

static void begin(struct world *w) {
    memset(w, 0, sizeof *w);
    pair_open_with(&w->p, &weft__transport_shm, 0, (weft_setting_t[]){{"close.timeout", "300ms"}},
                   1);
    pair_connect(&w->p);
    CHECK_EQ(pair_dial(&w->p, &w->good_a, &w->good_b), WEFT_OK);
    CHECK(pair_until(&w->p, w->good_a.n_open && w->good_b.n_open));
    target_open(&w->t, 3 * TARGET_PAGE, WEFT_MEM_ALL, true);
    CHECK_EQ(w->p.iface_b->ops->mem->mem_register(w->p.iface_b, &w->t.region, &w->mem), WEFT_OK);
    w->p.iface_b->ops->mem->key_pack(w->mem, w->packed);
    w->fds = n_descriptors();
}
static struct lane_key *ask(struct world *w, struct end *end) {
    struct lane_key *key = NULL;
    CHECK_EQ(
        end->lane->ops->rma->key_open(end->lane, &w->t.remote, w->packed, sizeof w->packed, &key),
        WEFT_OK);
    return key;
}
static void end(struct world *w) {
    struct lane_key *key = ask(w, &w->good_a);
    CHECK(pair_until(&w->p, key->status == WEFT_OK));
    CHECK_EQ(w->good_a.n_down + w->good_b.n_down, 0);
    CHECK(target_is_as_it_should(&w->t));
    pair_end_close(&w->good_a, true);
    pair_end_close(&w->good_b, true);
    pair_close(&w->p);
    target_close(&w->t);
}

static int socket_of(const struct end *end) {
    return ((struct shm_lane *)end->lane)->watch.fd;
}
static void send_msg(const struct end *from, const void *data, size_t len, const int *fds, int n) {
    send_on(socket_of(from), data, len, fds, n);
}
static void send_serial(const struct end *from, uint8_t kind, uint32_t serial) {
    send_msg(from, &(struct shm_serial){head_of(kind), serial, 0}, sizeof(struct shm_serial), NULL,
             0);
}
static void send_grant(const struct end *from, uint32_t serial, uint32_t way, uint64_t offset,
                       const int *fds, int n) {
    struct shm_grant_word grant = {head_of(SHM_GRANT), serial, way, offset};
    send_msg(from, &grant, sizeof grant, fds, n);
}
static struct lane_key *held(struct world *w) {
    struct lane_key *key = ask(w, &w->p.a);
    CHECK(pair_until(&w->p, key->status == WEFT_OK));
    return key;
}

TEST(an_importer_that_breaks_the_rules_ends_its_own_lane) {
    for (int what = 0; what < 6; what++) {
        struct world w;
        begin(&w);
        if (what >= 2) held(&w); /* serial 1 */
        struct shm_want want = a_want(1);
        if (what == 5) want.base = w.t.remote.base, want.len = w.t.remote.len;
        if (what == 5) memcpy(want.token, w.t.remote.token, 16);
        switch (what) {
        case 0: send_serial(&w.p.a, SHM_DROP, 1); break;
        case 1: send_serial(&w.p.a, SHM_REVOKE, 1); break;
        case 2: send_serial(&w.p.a, SHM_DROP, 2); break;
        case 3: send_grant(&w.p.a, 5, SHM_WAY_VM, 0, NULL, 0); break;
        default: send_msg(&w.p.a, &want, sizeof want, NULL, 0); break; /* the serial is taken */
        }
        CHECK(pair_until(&w.p, w.p.b.n_down == 1));
        CHECK_EQ(w.p.b.down, WEFT_ERR_PROTOCOL);
        CHECK(pair_until(&w.p, w.mem->n_open == 0)); /* its end of the socket is closed by now */
        end(&w);
    }
}

TEST(an_owner_that_breaks_the_rules_ends_its_own_lane) {
    for (int what = 0; what < 6; what++) {
        struct world w;
        begin(&w);
        struct lane_key *key = held(&w);
        char *was = key->local;
        struct shm_deny deny = {head_of(SHM_DENY), 1, WEFT_ERR_REVOKED};
        switch (what) {
        case 0: send_serial(&w.p.b, SHM_REVOKE, 2); break; /* of a key that was never asked for */
        case 1: send_grant(&w.p.b, 1, SHM_WAY_MAP, 0, &w.t.fd, 1); break;
        case 2: send_grant(&w.p.b, 9, SHM_WAY_VM, 0, NULL, 0); break;
        case 3: send_msg(&w.p.b, &deny, sizeof deny, NULL, 0); break;
        case 4: send_msg(&w.p.b, &deny, sizeof deny - 1, NULL, 0); break;
        default: send_serial(&w.p.b, SHM_DROP, 1); break;
        }
        CHECK(pair_until(&w.p, w.p.a.n_down == 1));
        CHECK_EQ(w.p.a.down, WEFT_ERR_PROTOCOL);
        CHECK_EQ(key->status, WEFT_ERR_PROTOCOL);
        CHECK(!key->local);
        unsigned char resident;
        CHECK_EQ(mincore(was, TARGET_PAGE, &resident), -1);
        end(&w);
    }
}

static int memory(size_t size, int seals) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(ftruncate(fd, (off_t)size), 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* b answers before its transport does. */
TEST(memory_that_could_end_in_a_fault_is_not_mapped) {
    size_t len = 3 * TARGET_PAGE;
    int short_of_it = memory(len - 1, F_SEAL_SHRINK), unsealed = memory(len, 0),
        good = memory(len, F_SEAL_SHRINK);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), both[2] = {good, good};
    struct {
        uint64_t offset;
        const int *fds;
        int n;
        bool ends; /* the lane, too */
    } cases[] = {{0, &short_of_it, 1, false},
                 {0, &unsealed, 1, false},
                 {0, &null, 1, false},
                 {4096, &good, 1, false},
                 {0, NULL, 0, false},
                 {0, both, 2, true},
                 {INT64_MAX - 4095, &good, 1, false},
                 {UINT64_MAX - 4095, &good, 1, true}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        begin(&w);
        struct lane_key *key = ask(&w, &w.p.a);
        send_grant(&w.p.b, 1, SHM_WAY_MAP, cases[i].offset, cases[i].fds, cases[i].n);
        double give_up = test_now() + test_timeout(60);
        while (strcmp(key->how, "asked for") == 0 && !w.p.a.n_down && test_now() < give_up)
            weft__reactor_progress(w.p.reactor_a, 0);
        CHECK_EQ(w.p.a.n_down, cases[i].ends);
        if (!cases[i].ends) CHECK_EQ(key->status, WEFT_NO_RESOURCE); /* messages will do */
        CHECK(!key->local);
        CHECK_EQ(key->caps, 0);
        if (!cases[i].ends) CHECK_EQ(n_descriptors(), w.fds);
        end(&w);
    }
    close(short_of_it);
    close(unsealed);
    close(good);
    close(null);
}

/* An offer by a way that was not asked for is a lie. */
TEST(a_way_that_was_not_asked_for_is_not_taken) {
    struct world w;
    begin(&w);
    weft__shm_key_encode(SHM_WAY_MAP, w.packed);
    struct lane_key *key = ask(&w, &w.p.a);
    send_grant(&w.p.b, 1, SHM_WAY_VM, 0, NULL, 0);
    double give_up = test_now() + test_timeout(60);
    while (!w.p.a.n_down && key->status != WEFT_OK && test_now() < give_up)
        weft__reactor_progress(w.p.reactor_a, 0);
    CHECK_EQ(w.p.a.n_down, 1);
    CHECK_EQ(w.p.a.down, WEFT_ERR_PROTOCOL);
    CHECK_EQ(key->caps, 0);
    end(&w);
}

/* With keys that are forged, or good ones. */
static void ask_without_reading(bool good) {
    struct world w;
    begin(&w);
    unsigned asked = 0;
    int least = 1;
    if (good)
        CHECK_EQ(setsockopt(socket_of(&w.p.b), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
    while (!w.p.b.n_down && asked < (good ? 100 : 100000)) {
        struct shm_want want = a_want(++asked);
        if (good) want.base = w.t.remote.base;
        if (good) want.len = w.t.remote.len;
        if (good) memcpy(want.token, w.t.remote.token, sizeof want.token);
        if (send(socket_of(&w.p.a), &want, sizeof want, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            CHECK(errno == EAGAIN);
        for (int i = 0; i < (good ? 100 : 1); i++) weft__reactor_progress(w.p.reactor_b, 0);
    }
    CHECK_EQ(w.p.b.n_down, 1);
    CHECK_EQ(w.p.b.down, WEFT_ERR_QUOTA);
    printf("  after %u questions\n", asked);
    CHECK(pair_until(&w.p, w.mem->n_open == 0));
    end(&w);
}
TEST(who_asks_and_does_not_read_the_answers_is_cut_off) {
    ask_without_reading(false);
    ask_without_reading(true);
}

/* Sockets that hold next to nothing: all is said in the end. */
TEST(words_wait_for_room_and_are_not_lost) {
    struct world w;
    enum { N = 60 };
    struct lane_key *keys[N];
    begin(&w);
    int least = 1;
    CHECK_EQ(setsockopt(socket_of(&w.p.a), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
    for (int i = 0; i < N; i++) keys[i] = ask(&w, &w.p.a);
    CHECK(((struct shm_lane *)w.p.a.lane)->more->keys->words.first); /* some wait */
    for (int i = 0; i < N; i++) CHECK(pair_until(&w.p, keys[i]->status == WEFT_OK));
    CHECK_EQ(setsockopt(socket_of(&w.p.b), SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
    /* and some pass each other */
    for (int i = 0; i < N; i += 3) keys[i]->lane->ops->rma->key_close(keys[i]);
    struct completion c = {.done = NULL, .count = 2};
    CHECK_EQ(w.p.iface_b->ops->mem->mem_revoke(w.mem, &c), WEFT_IN_PROGRESS);
    CHECK(((struct shm_lane *)w.p.b.lane)->more->keys->words.first);
    CHECK(pair_until(&w.p, c.count == 1));
    for (int i = 0; i < N; i++)
        if (i % 3) CHECK_EQ(keys[i]->status, WEFT_ERR_REVOKED);
    CHECK_EQ(w.p.a.n_down + w.p.b.n_down, 0);
    CHECK_EQ(w.p.iface_b->ops->mem->mem_register(w.p.iface_b, &w.t.region, &w.mem), WEFT_OK);
    end(&w);
}

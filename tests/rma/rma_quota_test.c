/* What one peer may open natively is bounded; beyond, messages serve it, and other peers do not
 * notice. */
#include <tests/support/rma_peers.h>

enum { REGIONS = 5, LEN = 8192 };

struct party {
    weft_worker_t *worker;
    weft_ep_t *ep;
    int ready;
    weft_rkey_t *rkey[REGIONS];
};

static struct two t;
static weft_mem_t *mem[REGIONS];
static char *memory[REGIONS];

static void party_ready(weft_ep_t *ep, void *arg) {
    ((struct party *)arg)->ready++;
}
static void turn(struct party *p, size_t n) {
    for (size_t i = 0; i < n; i++) weft_worker_progress(p[i].worker, 0);
    weft_worker_progress(t.b, 0);
}
#define UNTIL_ALL(p, n, cond)                                 \
    do {                                                      \
        double until_end = test_now() + test_timeout(60);     \
        while (!(cond) && test_now() < until_end) turn(p, n); \
        CHECK(cond);                                          \
    } while (0)

static weft_rkey_t *key_to(struct party *p, unsigned i) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_rkey_t *rkey = NULL;
    CHECK_EQ(weft_mem_pack(mem[i], key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(p->ep, key, len, &rkey), 0);
    return rkey;
}

static void party_come(struct party *p, weft_worker_t *worker) {
    char address[256];
    size_t len = sizeof address;
    p->worker = worker;
    CHECK_EQ(weft_worker_address(t.b, address, &len), 0);
    weft_ep_params_t params = {.on_ready = party_ready, .arg = p};
    CHECK_EQ(weft_connect_address(worker, address, len, &params, &p->ep), 0);
    UNTIL_ALL(p, 1, p->ready);
}

static bool is_mapped(const weft_rkey_t *rkey) {
    weft_rkey_info_t info;
    return weft_rkey_describe(rkey, &info) == WEFT_OK && !strcmp(info.put, "mapped");
}
static bool is_denied(const weft_rkey_t *rkey) {
    return !strcmp(rkey->key->how, weft_status_name(WEFT_ERR_QUOTA));
}

/* Each region takes bytes, whatever the way. */
static void put_to_all(struct party *p, size_t n, unsigned seed) {
    char bytes[LEN];
    for (unsigned i = 0; i < REGIONS; i++) {
        struct tally done = {0};
        pattern(bytes, LEN, seed + i);
        weft_status_t st = weft_put(p->ep, bytes, LEN, (uint64_t)(uintptr_t)memory[i], p->rkey[i],
                                    RMA_REMOTE(&done));
        if (st == WEFT_IN_PROGRESS) UNTIL_ALL(p, n, done.calls);
        CHECK_EQ(st == WEFT_IN_PROGRESS ? done.status : st, 0);
        CHECK(is_pattern(memory[i], LEN, seed + i));
    }
}

static unsigned mapped_of(const struct party *p) {
    unsigned n = 0;
    for (unsigned i = 0; i < REGIONS; i++) n += is_mapped(p->rkey[i]);
    return n;
}

/* `most` of a greedy peer's keys are native, by `setting`; a modest one's all are, and one that
 * goes makes room. */
static void so_many(const char *name, const char *value, unsigned most, bool denied) {
    weft_setting_t setting = {name, value};
    struct party p[2] = {0};
    weft_mem_info_t info;
    weft_worker_t *c;
    two_workers(&t, "shm", &setting, 1);
    CHECK_EQ(weft_worker_create(t.context, &(weft_worker_params_t){.transports = "shm"}, &c), 0);
    for (unsigned i = 0; i < REGIONS; i++) {
        CHECK_EQ(weft_mem_alloc(t.b, LEN, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem[i]),
                 0);
        CHECK_EQ(weft_mem_describe(mem[i], &info), 0);
        memory[i] = info.base;
    }
    party_come(&p[0], t.a);
    party_come(&p[1], c);
    for (unsigned i = 0; i < REGIONS; i++) p[0].rkey[i] = key_to(&p[0], i);
    UNTIL_ALL(p, 2, mapped_of(&p[0]) == most);
    for (int i = 0; i < 200; i++) turn(p, 2);
    CHECK_EQ(mapped_of(&p[0]), most);
    if (denied) CHECK(is_denied(p[0].rkey[most]) && is_denied(p[0].rkey[REGIONS - 1]));
    put_to_all(&p[0], 2, 10);

    for (unsigned i = 0; i < most; i++) p[1].rkey[i] = key_to(&p[1], i);
    UNTIL_ALL(p, 2, is_mapped(p[1].rkey[0]) && is_mapped(p[1].rkey[most - 1]));
    CHECK_EQ(weft_mem_describe(mem[0], &info), 0);
    CHECK_EQ(info.n_peers, 2);

    /* Room again, for the next that asks. */
    weft_rkey_release(p[0].rkey[0]);
    UNTIL_ALL(p, 2, weft_mem_describe(mem[0], &info) == 0 && info.n_peers == 1);
    p[0].rkey[0] = key_to(&p[0], 0);
    UNTIL_ALL(p, 2, is_mapped(p[0].rkey[0]));
    put_to_all(&p[0], 2, 20);
    for (unsigned i = 0; i < REGIONS; i++) {
        weft_rkey_release(p[0].rkey[i]);
        if (i < most) weft_rkey_release(p[1].rkey[i]);
    }
    weft_worker_destroy(c);
    two_down(&t);
}

TEST(a_peer_is_granted_so_many_keys_and_messages_serve_the_others) {
    so_many("shm.max_grants", "3", 3, true);
}
TEST(a_worker_opens_so_many_keys_of_a_peer_and_messages_serve_the_others) {
    so_many("rma.max_keys", "2", 2, false);
}

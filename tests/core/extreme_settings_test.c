/* With every setting at either end of its range, all kinds of operations end, and as they should:
 * what fails is what the setting limits. */
#include <tests/support/worker_pair.h>

enum { LARGE = 200000, SMALL = 32, MANY = 2000 };

struct talk {
    struct two two;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    weft_rkey_info_t at;
    uint32_t handled;
};

static char out[LARGE], in[LARGE];

static void on_question(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct talk *k = arg;
    k->handled++;
    CHECK(weft_am_recv(am, &(weft_iov_t){in, am->len}, 1, NULL) >= 0);
}

static bool begin(struct talk *k, const char *transport, weft_error_mode_t mode,
                  const weft_setting_t *setting) {
    char address[256], key[WEFT_RKEY_MAX];
    size_t len = sizeof address, key_len = sizeof key;
    *k = (struct talk){0};
    two_workers(&k->two, transport, setting, 1);
    CHECK_EQ(weft_am_handler_set(k->two.b, 1, on_question, k), 0);
    CHECK_EQ(weft_worker_address(k->two.b, address, &len), 0);
    weft_ep_params_t params = {
        .on_ready = two_on_ready, .on_error = two_on_error, .arg = &k->two, .error_mode = mode};
    CHECK_EQ(weft_connect_address(k->two.a, address, len, &params, &k->two.ep), 0);
    UNTIL(&k->two, k->two.ready || k->two.errors);
    if (k->two.errors) return false;
    weft_mem_params_t all = {.rights = WEFT_MEM_ALL};
    CHECK_EQ(weft_mem_alloc(k->two.b, LARGE, &all, &k->mem), 0);
    CHECK_EQ(weft_mem_pack(k->mem, key, &key_len), 0);
    CHECK_EQ(weft_rkey_unpack(k->two.ep, key, key_len, &k->rkey), 0);
    CHECK_EQ(weft_rkey_describe(k->rkey, &k->at), 0);
    return true;
}

static weft_status_t end_of(struct talk *k, weft_status_t st, const struct tally *c) {
    if (st != WEFT_IN_PROGRESS) return st;
    UNTIL(&k->two, c->calls);
    CHECK_EQ(c->calls, 1);
    return c->status;
}

static weft_status_t send_and_receive(struct talk *k, size_t len) {
    weft_iov_t from = {out, len}, to = {in, len};
    struct tally sent = {0}, received = {0};
    weft_status_t sends = weft_tag_send(k->two.ep, 7, &from, 1, OP(&sent));
    weft_status_t st = weft_tag_recv(k->two.b, 7, ~0ull, &to, 1, NULL, OP(&received));
    sends = end_of(k, sends, &sent);
    if (sends < 0) return sends; /* the receive ends with the worker */
    st = end_of(k, st, &received);
    if (st == WEFT_OK) CHECK(!memcmp(in, out, len));
    return st;
}

static weft_status_t all_kinds(struct talk *k, size_t len) {
    struct tally sent = {0}, put = {0}, flushed = {0}, got = {0};
    weft_ep_t *ep = k->two.ep;
    weft_op_t flush = {.done = tally, .arg = &flushed, .flags = WEFT_FLUSH_REMOTE};
    weft_status_t st;
    st = end_of(k, weft_am_send(ep, 1, NULL, 0, &(weft_iov_t){out, len}, 1, OP(&sent)), &sent);
    if (st == WEFT_OK) st = end_of(k, weft_put(ep, out, len, k->at.base, k->rkey, OP(&put)), &put);
    if (st == WEFT_OK) st = end_of(k, weft_ep_flush(ep, &flush), &flushed);
    memset(in, 0, len);
    if (st == WEFT_OK) st = end_of(k, weft_get(ep, in, len, k->at.base, k->rkey, OP(&got)), &got);
    if (st == WEFT_OK) CHECK(!memcmp(in, out, len));
    return st;
}

/* As many as make a connection busy, without waiting for any. */
static weft_status_t many(struct talk *k) {
    weft_completion_t all = {.done = tally, .arg = &(struct tally){0}, .count = 1};
    weft_op_t op = {.completion = &all};
    weft_status_t st = WEFT_OK;
    for (int i = 0; i < MANY && st >= 0; i++) {
        st = weft_am_send(k->two.ep, 1, NULL, 0, &(weft_iov_t){out, SMALL}, 1, &op);
        if (i % 50 == 0) two_turn(&k->two);
    }
    weft_completion_release(&all);
    return end_of(k, WEFT_IN_PROGRESS, all.arg);
}

static weft_status_t talk(struct talk *k) {
    static const size_t lens[] = {0, 8, 2000, 40000, LARGE};
    uint32_t n = sizeof lens / sizeof *lens;
    weft_status_t st = WEFT_OK;
    for (uint32_t i = 0; i < n && st == WEFT_OK; i++) {
        st = all_kinds(k, lens[i]);
        if (st == WEFT_OK) st = send_and_receive(k, lens[i]);
    }
    if (st == WEFT_OK) st = many(k);
    if (st == WEFT_OK) UNTIL(&k->two, k->handled == n + MANY || k->two.errors);
    return st;
}

/* A limit of none, and times, which may pass on a slow machine. */
static bool may_fail(const weft_setting_info_t *info) {
    static const char *const limits[] = {"peer.max_endpoints", "peers.max_endpoints",
                                         "peer.max_links"};
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++)
        if (!strcmp(info->name, limits[i])) return true;
    return !strcmp(info->unit, "ms");
}

static void play(const char *transport, weft_error_mode_t mode, const weft_setting_info_t *info,
                 const char *value) {
    weft_setting_t setting = {info->name, value};
    struct talk k;
    weft_status_t st = WEFT_OK;
    bool ready = begin(&k, transport, mode, &setting);
    if (ready) st = talk(&k);
    bool works = ready && st == WEFT_OK && !k.two.errors;
    if (!works && !may_fail(info))
        printf("  %s=%s: %s, %s\n", info->name, value, weft_status_name(st),
               weft_status_name(k.two.error));
    CHECK(works || may_fail(info));
    weft_rkey_release(k.rkey);
    two_down(&k.two);
}

static bool takes(const char *name, const char *value) {
    weft_context_t *context;
    weft_setting_t setting = {name, value};
    weft_context_params_t params = {.settings = &setting, .n_settings = 1};
    if (weft_context_create(&params, &context) < 0) return false;
    CHECK_EQ(weft_context_destroy(context), 0);
    return true;
}

static void extremes(const char *transport, weft_error_mode_t mode) {
    weft_context_t *context;
    weft_setting_info_t info;
    int numbers = 0;
    for (size_t i = 0; i < sizeof out; i++) out[i] = (char)(i * 7 + i / 256);
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    for (size_t i = 0; weft_context_setting(context, i, &info) == WEFT_OK; i++) {
        char least[64] = "0", most[64] = "18446744073709551615";
        const char *dots = strstr(info.range, "..");
        if (takes(info.name, "x")) continue; /* a text */
        if (dots && dots > info.range)
            snprintf(least, sizeof least, "%.*s", (int)(dots - info.range), info.range);
        if (dots && dots[2]) snprintf(most, sizeof most, "%s", dots + 2);
        if (!takes(info.name, least)) continue; /* one of some words */
        numbers++;
        play(transport, mode, &info, least);
        if (takes(info.name, most))
            play(transport, mode, &info, most);
        else
            CHECK(takes(info.name, "yes"));
    }
    CHECK(numbers > 50);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST_WIRES(operations_end_at_both_ends_of_every_setting) {
    extremes(transport, WEFT_ERRORS_PEER);
}

TEST(a_surviving_endpoint_works_at_both_ends_of_every_setting) {
    extremes(test_network(), WEFT_ERRORS_FAILOVER);
}

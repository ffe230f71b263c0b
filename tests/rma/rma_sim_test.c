/* One-sided operations over a network that loses, repeats and reorders, in virtual time: every
 * byte arrives, once. */
#include <stdbool.h>
#include <tests/support/sim_workers.h>

enum { ROOM = 200000 };
static weft_context_t *context;
static struct reactor_clock *now;
static struct sim_fabric *fabric;
static weft_worker_t *worker[2];
static weft_ep_t *ep;
static int ready, errors;

static void on_ready(weft_ep_t *e, void *arg) {
    ready++;
}
static void on_error(weft_ep_t *e, weft_status_t status, void *arg) {
    errors++;
}
static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

static void turns_until(const weft_status_t *status) {
    uint64_t end = weft__clock_now(now) + UINT64_C(60000000000);
    while (*status == WEFT_IN_PROGRESS && weft__clock_now(now) < end)
        if (!weft__clock_turn(now)) break;
    CHECK(*status != WEFT_IN_PROGRESS);
}
#define DO(call)                                          \
    ({                                                    \
        weft_status_t do_status = WEFT_IN_PROGRESS;       \
        weft_op_t op = {.done = note, .arg = &do_status}; \
        op.flags = WEFT_RMA_REMOTE;                       \
        weft_status_t at_once = (call);                   \
        if (at_once == WEFT_IN_PROGRESS)                  \
            turns_until(&do_status);                      \
        else                                              \
            do_status = at_once;                          \
        do_status;                                        \
    })

static void begin(const struct sim_profile *profile, uint64_t seed) {
    char address[256];
    size_t len = sizeof address;
    ready = errors = 0;
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK(now = weft__clock_create(NULL, seed));
    CHECK(fabric = weft__sim_create(now, seed, profile));
    weft__sim_use(fabric);
    weft_worker_params_t params = {.transports = "sim"};
    for (int i = 0; i < 2; i++) worker[i] = sim_worker(context, now, &params);
    CHECK_EQ(weft_worker_address(worker[1], address, &len), WEFT_OK);
    CHECK_EQ(weft_connect_address(worker[0], address, len,
                                  &(weft_ep_params_t){.on_ready = on_ready, .on_error = on_error},
                                  &ep),
             WEFT_OK);
    for (int i = 0; i < 1000000 && !ready; i++) weft__clock_turn(now);
    CHECK_EQ(ready, 1);
}

static void end(void) {
    sim_end(context, now, worker, 2);
}

static void bytes_arrive(const struct sim_profile *profile, uint64_t seed) {
    static const size_t sizes[] = {1, 8, 40, 41, 1000, 1400, 1500, 5000, 65536, 150001};
    static char out[ROOM], in[ROOM];
    char key[WEFT_RKEY_MAX];
    size_t key_len = sizeof key;
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_rkey_t *rkey;
    uint64_t old = 0;
    begin(profile, seed);
    CHECK_EQ(weft_mem_alloc(worker[1], ROOM, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
             0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, key, &key_len), 0);
    CHECK_EQ(weft_rkey_unpack(ep, key, key_len, &rkey), 0);
    uint64_t base = (uint64_t)(uintptr_t)info.base;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        for (size_t k = 0; k < n; k++) out[k] = (char)(k * 7 + i);
        CHECK_EQ(DO(weft_put(ep, out, n, base + i, rkey, &op)), 0);
        CHECK(!memcmp((char *)info.base + i, out, n));
        memset(in, 0, n);
        CHECK_EQ(DO(weft_get(ep, in, n, base + i, rkey, &op)), 0);
        CHECK(!memcmp(in, out, n));
    }
    /* An addition that is sent again is still one. */
    memset(info.base, 0, 8);
    for (uint64_t i = 0; i < 50; i++) {
        CHECK_EQ(DO(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, base, rkey, &op)), 0);
        CHECK_EQ(old, i);
    }
    CHECK_EQ(errors, 0);
    weft_rkey_release(rkey);
    end();
}

TEST(one_sided_operations_arrive_over_a_clean_network) {
    bytes_arrive(&weft__sim_datagram, 1);
    bytes_arrive(&weft__sim_reliable, 1);
}
TEST(one_sided_operations_arrive_once_over_one_that_loses_and_repeats) {
    struct sim_profile stormy = weft__sim_datagram;
    stormy.loss = stormy.duplicate = stormy.reorder = 100000; /* a tenth */
    stormy.reorder_ns = 20000;
    for (uint64_t seed = 1; seed < 6; seed++) bytes_arrive(&stormy, seed);
}

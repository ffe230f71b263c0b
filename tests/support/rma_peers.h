/* Two workers, a region of the second one, and the first one's key to it: by the transport, or
 * by messages alone. */
#ifndef WEFT_TESTS_SUPPORT_RMA_PEERS_H
#define WEFT_TESTS_SUPPORT_RMA_PEERS_H

#include "worker_pair.h"
#include <endpoints/memory/rkey.h>

struct rma {
    struct two t;
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_rkey_t *rkey;
    char *target; /* the region */
};

static inline weft_rkey_t *rma_key(struct rma *r, weft_mem_t *mem) {
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_rkey_t *rkey = NULL;
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(r->t.ep, key, len, &rkey), 0);
    return rkey;
}

static inline void rma_up(struct rma *r, const char *transport, bool messages, size_t len,
                          unsigned rights, const weft_setting_t *more, size_t n_more) {
    weft_setting_t settings[8] = {{"close.timeout", "4ms"},
                                  {"rma.max_keys", messages ? "0" : "1024"}};
    memset(r, 0, sizeof *r);
    for (size_t i = 0; i < n_more; i++) settings[2 + i] = more[i];
    two_workers(&r->t, transport, settings, 2 + n_more);
    two_dial(&r->t);
    UNTIL(&r->t, r->t.ready && r->t.back);
    CHECK_EQ(weft_mem_alloc(two_b(&r->t), len, &(weft_mem_params_t){.rights = rights}, &r->mem), 0);
    CHECK_EQ(weft_mem_describe(r->mem, &r->info), 0);
    r->target = r->info.base;
    r->rkey = rma_key(r, r->mem);
    /* A mapping takes a few turns. */
    if (!messages) UNTIL(&r->t, r->rkey->key->status != WEFT_NO_RESOURCE);
}

static inline uint64_t rma_at(const struct rma *r, size_t offset) {
    return (uint64_t)(uintptr_t)r->target + offset;
}

static inline void rma_down(struct rma *r) {
    weft_rkey_release(r->rkey);
    two_down(&r->t);
}

/* Returns the call's status, or the later one of its callback; drives both workers until then. */
#define RMA_WAIT(r, tally_p, call)                  \
    ({                                              \
        struct tally *wait_tally = (tally_p);       \
        *wait_tally = (struct tally){0};            \
        weft_status_t wait_status = (call);         \
        if (wait_status == WEFT_IN_PROGRESS) {      \
            UNTIL(&(r)->t, wait_tally->calls == 1); \
            wait_status = wait_tally->status;       \
        }                                           \
        wait_status;                                \
    })
#define RMA_REMOTE(tally_p) \
    (&(weft_op_t){.done = tally, .arg = (tally_p), .flags = WEFT_RMA_REMOTE})
#define RMA_FLUSH(r, tally_p)    \
    RMA_WAIT(                    \
        r, tally_p,              \
        weft_ep_flush((r)->t.ep, \
                      &(weft_op_t){.done = tally, .arg = (tally_p), .flags = WEFT_FLUSH_REMOTE}))

/* Each way: the transport's own where it has one, and messages. */
#define TEST_WAYS(name)                                     \
    static void name(const char *transport, bool messages); \
    TEST(name##_self) {                                     \
        name("self", false);                                \
    }                                                       \
    TEST(name##_self_by_message) {                          \
        name("self", true);                                 \
    }                                                       \
    TEST(name##_shm) {                                      \
        name("shm", false);                                 \
    }                                                       \
    TEST(name##_shm_by_message) {                           \
        name("shm", true);                                  \
    }                                                       \
    TEST(name##_tcp) {                                      \
        name(test_network(), !getenv("WEFT_TEST_NATIVE"));  \
    }                                                       \
    static void name(const char *transport, bool messages)

#endif

/*
 * Device memory that a child's messages come from, and a region of it that the parent puts to and
 * gets from. Contents are patterns of a seed.
 */
#ifndef WEFT_TESTS_CUDA_IPC_REGION_H
#define WEFT_TESTS_CUDA_IPC_REGION_H

#include <stdlib.h>
#include <tests/cuda/ipc_child.h>
#include <tests/support/rma_peers.h>

enum { IPC_FIRST_SEED = 40, IPC_REGION_SEED = 60, IPC_KEYS = 7 };

static inline void device_fill(char *at, size_t len, unsigned seed) {
    char *bytes = malloc(len);
    CHECK(bytes);
    pattern(bytes, len, seed);
    gpu.write(at, bytes, len);
    free(bytes);
}
static inline bool device_holds(const char *at, size_t len, unsigned seed) {
    char *bytes = malloc(len);
    CHECK(bytes);
    gpu.read(bytes, at, len);
    bool same = is_pattern(bytes, len, seed);
    free(bytes);
    return same;
}

/* ---- the child ------------------------------------------------------------------------------- */

/* Its message number i; false: the parent is gone. */
static inline bool child_sends(weft_worker_t *worker, const struct child *child, char *at,
                               size_t len, unsigned i) {
    struct tally sent = {0};
    device_fill(at, len, IPC_FIRST_SEED + i);
    weft_status_t st = weft_tag_send(child->ep, 1, &(weft_iov_t){at, len}, 1, OP(&sent));
    if (st == WEFT_IN_PROGRESS) child_waits(worker, child, &sent);
    return st >= 0 && !child->lost;
}

static inline void child_keeps_region(weft_worker_t *worker, const struct child *child, char *at,
                                      size_t len) {
    weft_mem_params_t params = {.rights = WEFT_MEM_READ | WEFT_MEM_WRITE};
    char key[WEFT_RKEY_MAX];
    size_t key_len = sizeof key;
    struct tally sent = {0};
    weft_mem_t *mem;
    device_fill(at, len, IPC_REGION_SEED);
    if (weft_mem_register(worker, at, len, &params, &mem) || weft_mem_pack(mem, key, &key_len))
        _exit(3);
    weft_iov_t packed = {key, key_len};
    if (weft_tag_send(child->ep, IPC_KEYS, &packed, 1, OP(&sent)) == WEFT_IN_PROGRESS)
        child_waits(worker, child, &sent);
    while (!child->lost) weft_worker_wait(worker, 20);
}

/* ---- the parent ------------------------------------------------------------------------------ */

/* Receives the child's message number i into device memory. */
static inline void ipc_receive(struct ipc *p, char *at, size_t len, unsigned i) {
    struct tally received = {0};
    weft_iov_t in = {at, len};
    CHECK_EQ(weft_tag_recv(p->worker, 1, ~0ull, &in, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
    IPC_UNTIL(p, received.calls);
    CHECK_EQ(received.status, WEFT_OK);
    CHECK(device_holds(at, len, IPC_FIRST_SEED + i));
}

static inline weft_rkey_t *ipc_region_key(struct ipc *p) {
    struct tally came = {0};
    char key[WEFT_RKEY_MAX];
    weft_iov_t in = {key, sizeof key};
    weft_tag_info_t tag;
    weft_rkey_t *rkey = NULL;
    weft_status_t st = weft_tag_recv(p->worker, IPC_KEYS, ~0ull, &in, 1, &tag, OP(&came));
    CHECK(st >= 0); /* OK: the message was there, and no callback is made */
    if (st == WEFT_IN_PROGRESS) IPC_UNTIL(p, came.calls);
    CHECK_EQ(came.status, WEFT_OK);
    CHECK_EQ(weft_rkey_unpack(p->ep, key, tag.len, &rkey), 0);
    IPC_UNTIL(p, rkey->key->status != WEFT_NO_RESOURCE);
    return rkey;
}

/* One get or put of all of the region, between it and `at`. */
static inline void ipc_move(struct ipc *p, bool put, char *at, size_t len, uint64_t region,
                            weft_rkey_t *rkey) {
    struct tally done = {0};
    weft_status_t st = put ? weft_put(p->ep, at, len, region, rkey, OP(&done))
                           : weft_get(p->ep, at, len, region, rkey, OP(&done));
    CHECK(st >= 0);
    if (st == WEFT_IN_PROGRESS) IPC_UNTIL(p, done.calls);
    CHECK_EQ(done.status, WEFT_OK);
}

/* The child's region serves puts and gets by CUDA IPC, and without a message. */
static inline void ipc_region_serves(struct ipc *p, char *at, size_t len) {
    weft_rkey_info_t info;
    weft_rkey_t *rkey = ipc_region_key(p);
    CHECK_EQ(weft_rkey_describe(rkey, &info), 0);
    CHECK(strcmp(info.put, "cuda ipc") == 0 && strcmp(info.get, "cuda ipc") == 0);
    ipc_move(p, false, at, len, info.base, rkey);
    CHECK(device_holds(at, len, IPC_REGION_SEED));
    device_fill(at, len, IPC_REGION_SEED + 1);
    ipc_move(p, true, at, len, info.base, rkey);
    device_fill(at, len, IPC_REGION_SEED + 2);
    ipc_move(p, false, at, len, info.base, rkey);
    CHECK(device_holds(at, len, IPC_REGION_SEED + 1));
    CHECK_EQ(weft_worker_count(p->worker, "rma.messages"), 0);
    weft_rkey_release(rkey);
}

#endif

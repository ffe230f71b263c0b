/*
 * The kinds of work whose instructions bench/instructions counts: messages and puts of 8 bytes over
 * shared memory, between two workers of one thread. By the public headers alone, so that it builds
 * with an earlier version, too.
 *
 *     instructions [ring|mailbox]     each kind's rounds under callgrind, by name
 */
#include "counting.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { TAKE = 1, ROUNDS = 2000, WARM = 200, BURST = 32, LINKS = 100 };

struct side {
    weft_worker_t *worker;
    weft_ep_t *ep; /* to the other side */
    uint64_t in;
};
static struct side a, b;
static weft_ep_t *quiet[LINKS];
static uint64_t received, remote, bytes = 7, mask = UINT64_MAX;
static weft_rkey_t *rkey;
static weft_context_t *context;

static void must(weft_status_t st, const char *what) {
    if (st >= 0) return;
    fprintf(stderr, "instructions: %s: %s\n", what, weft_status_name(st));
    exit(1);
}
static void progress_both(void) {
    weft_worker_progress(a.worker, 0);
    weft_worker_progress(b.worker, 0);
}
static void count_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
}
static void count_done(weft_status_t status, void *arg) {
    must(status, "operation");
    received++;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static weft_worker_t *open_worker(void) {
    weft_worker_t *worker;
    must(weft_worker_create(context, &(weft_worker_params_t){.transports = "shm"}, &worker),
         "worker");
    must(weft_am_handler_set(worker, TAKE, count_am, NULL), "handler");
    return worker;
}
static weft_ep_t *connect_to(weft_worker_t *from, weft_worker_t *to) {
    uint8_t address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    must(weft_worker_address(to, address, &len), "address");
    must(weft_connect_address(from, address, len, &(weft_ep_params_t){0}, &ep), "connect");
    return ep;
}
/* A message there and back again and again, until rings are earned and keys are exchanged. */
static void settle(void) {
    for (int i = 0; i < 100000; i++) {
        if (i % 16 == 0 && i < 40000) {
            must(weft_am_send(a.ep, TAKE, NULL, 0, NULL, 0, NULL), "send");
            must(weft_am_send(b.ep, TAKE, NULL, 0, NULL, 0, NULL), "send");
        }
        progress_both();
    }
}
static void open_sides(const char *rings) {
    const weft_setting_t settings[] = {{"shm.rings", rings}, {"close.timeout", "1"}};
    must(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2},
                             &context),
         "context");
    a.worker = open_worker();
    b.worker = open_worker();
    a.ep = connect_to(a.worker, b.worker);
    b.ep = connect_to(b.worker, a.worker);
    settle();
}

/* ---- kinds of work --------------------------------------------------------------------------- */

static void await(uint64_t n) {
    while (received < n) weft_worker_progress(b.worker, 0);
}
static void send_am(const struct side *side) {
    must(weft_am_send(side->ep, TAKE, NULL, 0, &(weft_iov_t){&bytes, 8}, 1, NULL), "send");
}
static void am_one_way(void) {
    uint64_t n = received + 1;
    send_am(&a);
    await(n);
}
static void am_header(void) {
    uint64_t n = received + 1;
    must(weft_am_send(a.ep, TAKE, &bytes, sizeof bytes, NULL, 0, NULL), "send");
    await(n);
}
static void am_round(void) {
    am_one_way();
    send_am(&b);
    for (uint64_t n = received + 1; received < n;) weft_worker_progress(a.worker, 0);
}
static void am_burst(void) {
    uint64_t n = received + BURST;
    for (int i = 0; i < BURST; i++) send_am(&a);
    await(n);
}
static void am_described(void) {
    uint64_t n = received + 1;
    must(weft_am_send(a.ep, TAKE, NULL, 0, &(weft_iov_t){&bytes, 8}, 1,
                      &(weft_op_t){.done = count_done}),
         "send");
    await(n);
}
static void nothing(void) {
    weft_worker_progress(b.worker, 0);
}

static const weft_op_t counted_op = {.done = count_done};
static void post(struct side *side) {
    must(weft_tag_recv(side->worker, 5, mask, &(weft_iov_t){&side->in, 8}, 1, NULL, &counted_op),
         "receive");
}
static void send_tag(struct side *side) {
    must(weft_tag_send(side->ep, 5, &(weft_iov_t){&bytes, 8}, 1, NULL), "send");
}
static void tag_round(void) {
    uint64_t n = received;
    post(&b);
    post(&a);
    send_tag(&a);
    await(n + 1);
    send_tag(&b);
    while (received < n + 2) weft_worker_progress(a.worker, 0);
}
static void tag_unexpected(void) {
    uint64_t n = received;
    send_tag(&a);
    weft_worker_progress(b.worker, 0);
    weft_worker_progress(b.worker, 0);
    weft_status_t st =
        weft_tag_recv(b.worker, 5, mask, &(weft_iov_t){&b.in, 8}, 1, NULL, &counted_op);
    must(st, "receive");
    if (st == WEFT_IN_PROGRESS) await(n + 1);
}
static void tag_burst(void) {
    uint64_t n = received;
    for (int i = 0; i < BURST; i++) post(&b);
    for (int i = 0; i < BURST; i++) send_tag(&a);
    await(n + BURST);
}
static void put(void) {
    must(weft_put(a.ep, &bytes, sizeof bytes, remote, rkey, NULL), "put");
}
static void put_described(void) {
    must(weft_put(a.ep, &bytes, sizeof bytes, remote, rkey, &(weft_op_t){.done = count_done}),
         "put");
}

static void map(void) {
    weft_mem_t *mem;
    uint8_t key[512];
    size_t len = sizeof key;
    weft_mem_info_t info;
    must(weft_mem_alloc(b.worker, 4096,
                        &(weft_mem_params_t){.rights = WEFT_MEM_READ | WEFT_MEM_WRITE}, &mem),
         "memory");
    must(weft_mem_describe(mem, &info), "memory");
    remote = (uintptr_t)info.base;
    must(weft_mem_pack(mem, key, &len), "key");
    must(weft_rkey_unpack(a.ep, key, len, &rkey), "key");
    put_described();
    settle();
    void *at;
    must(weft_rkey_pointer(rkey, remote, &at), "map");
}

static void count_kind(const char *name, void (*round)(void), int rounds) {
    for (int i = 0; i < WARM; i++) round();
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    CALLGRIND_TOGGLE_COLLECT;
    for (int i = 0; i < rounds; i++) round();
    CALLGRIND_TOGGLE_COLLECT;
    CALLGRIND_DUMP_STATS_AT(name);
    printf("%s %d\n", name, rounds);
}

int main(int argc, char **argv) {
    bool ring = argc < 2 || strcmp(argv[1], "mailbox") != 0;
    open_sides(ring ? "64" : "0");
    count_kind("nothing", nothing, ROUNDS);
    count_kind("am_one_way", am_one_way, ROUNDS);
    count_kind("am_round", am_round, ROUNDS);
    count_kind("am_header", am_header, ROUNDS);
    count_kind("am_described", am_described, ROUNDS);
    count_kind("am_burst", am_burst, ROUNDS / BURST);
    count_kind("tag_round", tag_round, ROUNDS);
    count_kind("tag_unexpected", tag_unexpected, ROUNDS);
    count_kind("tag_burst", tag_burst, ROUNDS / BURST);
    mask = 0;
    count_kind("tag_any", tag_round, ROUNDS);
    map();
    count_kind("put", put, ROUNDS);
    count_kind("put_described", put_described, ROUNDS);
    if (ring) return 0;
    for (int i = 0; i < LINKS; i++) quiet[i] = connect_to(b.worker, open_worker());
    settle();
    count_kind("nothing_100_links", nothing, ROUNDS);
    return 0;
}

/*
 * A container whose kernel forbids process_vm_readv and _writev, as older default profiles of
 * container runtimes do: it is detected, reported, and done without.
 */
#include <tests/support/rma_peers.h>

#include <errno.h>
#include <tests/support/call_filter.h>
#include <transports/vm_speed.h>

enum { LARGE = 4 << 20 };

/* For good, so each test of this file asks for it. False where the kernel has no filters. */
static bool forbid(void) {
    return filter_refuse(SYS_process_vm_readv, EPERM) &&
           filter_refuse(SYS_process_vm_writev, EPERM);
}

static char out[LARGE], in[LARGE], own[LARGE];

TEST(what_is_forbidden_has_no_speed) {
    if (!forbid()) SKIP("no seccomp filters here");
    CHECK_EQ(weft__vm_speed().read_ns, 0);
    CHECK(weft__vm_speed().copy_ns > 0);
}

TEST(memory_that_cannot_be_mapped_is_reached_by_message_and_the_endpoint_reports_why) {
    struct two t;
    struct rma r;
    struct tally op = {0};
    weft_ep_info_t ep;
    weft_rkey_info_t info;
    uint64_t old, at = (uint64_t)(uintptr_t)own;
    if (!forbid()) SKIP("no seccomp filters here");
    two_up(&t, "shm");
    r.t = t;
    CHECK_EQ(weft_ep_describe(t.ep, &ep), 0);
    CHECK(!strcmp(ep.one_sided, "by key: mapped where it was allocated, else message: the kernel "
                                "does not permit process_vm"));
    CHECK_EQ(
        weft_mem_register(t.b, own, LARGE, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &r.mem),
        0);
    r.rkey = rma_key(&r, r.mem);
    for (int i = 0; i < 50; i++) two_turn(&r.t);
    CHECK_EQ(weft_ep_describe(t.ep, &ep), 0);
    CHECK(!strcmp(ep.one_sided, "the kernel does not permit process_vm"));
    CHECK_EQ(weft_rkey_describe(r.rkey, &info), 0);
    CHECK(!strcmp(info.put, "message") && !strcmp(info.get, "message") &&
          !strcmp(info.atomic, "message"));

    pattern(out, LARGE, 3);
    CHECK_EQ(RMA_WAIT(&r, &op, weft_put(t.ep, out, LARGE, at, r.rkey, RMA_REMOTE(&op))), 0);
    CHECK_EQ(memcmp(own, out, LARGE), 0);
    CHECK_EQ(RMA_WAIT(&r, &op, weft_get(t.ep, in, LARGE, at, r.rkey, OP(&op))), 0);
    CHECK_EQ(memcmp(in, out, LARGE), 0);
    CHECK_EQ(
        RMA_WAIT(&r, &op,
                 weft_atomic_fetch(t.ep, WEFT_ATOMIC_SWAP, 8, 7, 0, &old, at, r.rkey, OP(&op))),
        0);
    CHECK(memcmp(&old, out, 8) == 0 && *(uint64_t *)(void *)own == 7);
    CHECK_EQ(weft_worker_count(t.a, "rma.native"), 0);
    weft_rkey_release(r.rkey);
    two_down(&r.t);
}

TEST(memory_of_the_librarys_is_mapped_all_the_same) {
    struct rma r;
    weft_ep_info_t ep;
    if (!forbid()) SKIP("no seccomp filters here");
    rma_up(&r, "shm", false, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_ep_describe(r.t.ep, &ep), 0);
    CHECK(!strcmp(ep.one_sided, "mapped"));
    rma_down(&r);
}

TEST(large_messages_that_were_to_be_read_come_in_pieces) {
    struct two t;
    struct tally received = {0}, sent = {0};
    weft_setting_t settings[] = {{"shm.copy", "vm"}};
    if (!forbid()) SKIP("no seccomp filters here");
    two_workers(&t, "shm", settings, 1);
    two_dial(&t);
    pattern(out, LARGE, 5);
    CHECK_EQ(weft_tag_recv(t.b, 1, UINT64_MAX, &(weft_iov_t){in, LARGE}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){out, LARGE}, 1, OP(&sent)), WEFT_IN_PROGRESS);
    UNTIL(&t, received.calls && sent.calls);
    CHECK(received.status == WEFT_OK && sent.status == WEFT_OK);
    CHECK_EQ(memcmp(in, out, LARGE), 0);
    CHECK_EQ(weft_worker_count(t.b, "protocol.get"), 0);
    two_down(&t);
}

/* Two libraries on one worker, separated by leases. */
#include "shared.h"

#include <ev.h>

static int program_calls, library_calls;
static void on_program(weft_ep_t *ep, weft_am_t *am, void *arg) {
    program_calls++;
}
static void on_library(weft_ep_t *ep, weft_am_t *am, void *arg) {
    library_calls++;
    if (arg) CHECK(weft_am_send(ep, 4, NULL, 0, &(weft_iov_t){"ab", 2}, 1, NULL) >= 0);
}

static void reset(void) {
    program_calls = library_calls = 0;
}

TEST(a_stub_answers_not_associated_and_keeps_its_handlers) {
    struct sharing s;
    reset();
    two_workers(&s.two, "self", NULL, 0);
    weft_context_t *context = associated_context();
    weft_worker_t *stub = stub_worker(context);
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    weft_mem_t *mem;
    CHECK_EQ(weft_worker_address(stub, address, &len), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_worker_progress(stub, 0), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_worker_wait(stub, 0), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_worker_fd(stub), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_connect(stub, "tcp://127.0.0.1:1", NULL, &ep), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_mem_alloc(stub, 100, NULL, &mem), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_tag_recv(stub, 1, ~0ull, NULL, 0, NULL, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_worker_post(stub, free, NULL), WEFT_ERR_NOT_ASSOCIATED);
    weft_worker_wake(stub);
    CHECK_EQ(weft_am_handler_set(stub, 3, on_library, NULL), 0);
    CHECK_EQ(strcmp(weft_association_state(context, WEFT_OBJECT_WORKER, stub), "STUB"), 0);

    weft_resource_t *resource = worker_resource(s.two.a);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, stub), 0);
    CHECK_EQ(strcmp(weft_association_state(context, WEFT_OBJECT_WORKER, stub), "READY"), 0);
    len = sizeof address;
    CHECK_EQ(weft_worker_address(stub, address, &len), 0);
    CHECK_EQ(weft_connect_address(stub, address, len, NULL, &ep), 0);
    CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"ab", 2}, 1, NULL) >= 0);
    UNTIL(&s.two, library_calls == 1);
    weft_worker_destroy(stub);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    two_down(&s.two);
}

TEST_EACH(ids_and_answers_stay_within_the_lease) {
    struct sharing s;
    reset();
    share_up(&s, transport);
    for (int i = 0; i < 2; i++) {
        weft_worker_t *worker = i ? two_b(&s.two) : s.two.a;
        CHECK_EQ(weft_am_handler_set(worker, 3, on_program, NULL), 0);
        CHECK_EQ(weft_am_handler_set(worker, 4, on_program, NULL), 0);
        CHECK_EQ(weft_am_handler_set(s.library[i], 4, on_library, NULL), 0);
    }
    int answer = 1;
    CHECK_EQ(weft_am_handler_set(s.library[1], 3, on_library, &answer), 0);
    if (strcmp(transport, "self") == 0) { /* both libraries are on one worker: two leases */
        weft_lease_t a, b;
        CHECK_EQ(weft_worker_lease(s.library[0], &a), 0);
        CHECK_EQ(weft_worker_lease(s.library[1], &b), 0);
        CHECK(a.am_first != b.am_first && a.tag_first != b.tag_first);
        share_down(&s);
        return;
    }
    share_dial(&s);
    CHECK(weft_am_send(s.ep, 3, NULL, 0, &(weft_iov_t){"ab", 2}, 1, NULL) >= 0);
    UNTIL(&s.two, library_calls == 2);
    CHECK_EQ(program_calls, 0);
    CHECK_EQ(weft_am_send(s.ep, 64, NULL, 0, NULL, 0, NULL), WEFT_ERR_INVALID_PARAM);
    share_down(&s);
}

TEST_EACH(tags_stay_within_the_lease) {
    struct sharing s;
    if (strcmp(transport, "self") == 0) return;
    share_up(&s, transport);
    share_dial(&s);
    char mine[8] = "", theirs[8] = "";
    struct tally got = {0}, program = {0};
    weft_tag_info_t info;
    weft_iov_t in = {mine, 8}, in_program = {theirs, 8};
    CHECK_EQ(weft_tag_recv(two_b(&s.two), 7, ~0ull, &in_program, 1, NULL, OP(&program)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_recv(s.library[1], 0, 0, &in, 1, &info, OP(&got)), WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(s.ep, 7, &(weft_iov_t){"hello", 6}, 1, NULL) >= 0);
    UNTIL(&s.two, got.calls == 1);
    CHECK_EQ(program.calls, 0);
    CHECK_EQ(info.tag, 7);
    CHECK(strcmp(mine, "hello") == 0);
    /* the answer comes back in the lease */
    CHECK_EQ(weft_tag_recv(s.library[0], 9, ~0ull, &in, 1, NULL, OP(&got)), WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(info.ep, 9, &(weft_iov_t){"again", 6}, 1, NULL) >= 0);
    UNTIL(&s.two, got.calls == 2);
    CHECK_EQ(weft_tag_send(s.ep, 1ull << 60, NULL, 0, NULL), WEFT_ERR_INVALID_PARAM);
    share_down(&s);
}

TEST(a_receive_of_any_tag_takes_no_message_of_the_library) {
    struct sharing s;
    share_up(&s, "shm");
    share_dial(&s);
    char any[8] = "", mine[8] = "";
    struct tally program = {0}, library = {0};
    weft_tag_info_t info;
    CHECK_EQ(weft_tag_recv(two_b(&s.two), 0, 0, &(weft_iov_t){any, 8}, 1, NULL, OP(&program)),
             WEFT_IN_PROGRESS);
    CHECK(weft_tag_send(s.ep, 7, &(weft_iov_t){"hello", 6}, 1, NULL) >= 0);
    UNTIL(&s.two, weft_tag_probe(s.library[1], 7, ~0ull, &info) == 0);
    CHECK_EQ(weft_tag_probe(two_b(&s.two), 0, 0, &info), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(program.calls, 0);
    CHECK_EQ(weft_tag_recv(s.library[1], 7, ~0ull, &(weft_iov_t){mine, 8}, 1, NULL, OP(&library)),
             0);
    CHECK(strcmp(mine, "hello") == 0);
    share_down(&s);
}

TEST(a_worker_runs_on_the_loop_of_the_program_and_gives_it_back) {
    weft_context_t *context = associated_context();
    weft_worker_t *worker = stub_worker(context);
    struct ev_loop *loop = ev_loop_new(0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, loop);
    weft_resource_t *resource = describe(WEFT_RESOURCE_LOOP, &value, 1);
    reset();
    CHECK_EQ(weft_am_handler_set(worker, 3, on_library, NULL), 0);
    for (int round = 1; round <= 2; round++) {
        char address[256];
        size_t len = sizeof address;
        weft_ep_t *ep;
        CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, worker), 0);
        CHECK_EQ(weft_worker_close(worker, NULL), WEFT_ERR_BUSY);
        CHECK_EQ(weft_worker_address(worker, address, &len), 0);
        CHECK_EQ(weft_connect_address(worker, address, len, NULL, &ep), 0);
        CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"ab", 2}, 1, NULL) >= 0);
        while (library_calls < round) ev_run(loop, EVRUN_ONCE);
        struct tally done = {0};
        CHECK_EQ(weft_disassociate_resources(resource, worker, OP(&done)), WEFT_IN_PROGRESS);
        CHECK_EQ(weft_disassociate_resources(resource, worker, OP(&done)), 0);
        while (!done.calls) ev_run(loop, EVRUN_ONCE);
        CHECK_EQ(done.calls, 1);
        CHECK_EQ(weft_worker_progress(worker, 0), WEFT_ERR_DISASSOCIATED);
        ev_run(loop, EVRUN_NOWAIT); /* it is the program's again */
    }
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    ev_loop_destroy(loop);
}

/* ---- where leases lie ------------------------------------------------------------------------ */

static weft_status_t take_lease(struct sharing *s, weft_worker_t *library, unsigned tag_bits,
                                uint64_t tag_first) {
    weft_lease_t lease = {.am_count = 8, .tag_bits = tag_bits, .tag_first = tag_first};
    weft_associate_params_t params = {.resource = s->resource[0], .lease = lease};
    return weft_associate_resources(s->context, WEFT_OBJECT_WORKER, &params, library);
}

TEST(a_short_range_of_tags_is_found_behind_long_ones) {
    static const unsigned bits[] = {62, 61, 60, 48, 8, 48, 59};
    enum { N = sizeof bits / sizeof *bits };
    struct sharing s;
    weft_worker_t *library[N];
    weft_lease_t lease[N];
    share_up(&s, "self");
    for (int i = 0; i < N; i++) {
        library[i] = stub_worker(s.context);
        CHECK_EQ(take_lease(&s, library[i], bits[i], 0), WEFT_OK);
        CHECK_EQ(weft_worker_lease(library[i], &lease[i]), WEFT_OK);
        CHECK_EQ(lease[i].tag_first & ((UINT64_C(1) << bits[i]) - 1), 0);
        CHECK_EQ(lease[i].tag_first >> 63, 1);
        for (int k = 0; k < i; k++) {
            unsigned longer = bits[i] > bits[k] ? bits[i] : bits[k];
            CHECK(lease[i].tag_first >> longer != lease[k].tag_first >> longer);
        }
    }
    weft_worker_t *more = stub_worker(s.context);
    CHECK_EQ(take_lease(&s, more, 62, 0), WEFT_ERR_LEASE_EXHAUSTED);
    weft_worker_destroy(more);
    for (int i = 0; i < N; i++) weft_worker_destroy(library[i]);
    share_down(&s);
}

TEST(a_range_of_tags_that_is_not_aligned_is_refused) {
    struct sharing s;
    share_up(&s, "self");
    weft_worker_t *library = stub_worker(s.context);
    uint64_t odd = (UINT64_C(1) << 63) + 1;
    CHECK_EQ(take_lease(&s, library, 0, odd), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(take_lease(&s, library, 16, odd), WEFT_ERR_INVALID_PARAM);
    weft_worker_destroy(library);
    share_down(&s);
}

TEST(a_description_with_an_impossible_lease_is_refused) {
    static const weft_lease_t wrong[] = {
        {.am_first = UINT32_MAX, .am_count = 2},
        {.am_first = 2, .am_count = UINT32_MAX},
        {.am_first = WEFT_AM_ID_MAX, .am_count = 2},
        {.am_first = 512, .am_count = 8, .tag_bits = 64},
        {.am_first = 512, .am_count = 8, .tag_first = (UINT64_C(1) << 63) + 1, .tag_bits = 60}};
    weft_resource_t *resource;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_resource_params_t params = {.kind = WEFT_RESOURCE_WORKER, .lease = wrong[i]};
        CHECK_EQ(weft_resource_describe(&params, &resource), WEFT_ERR_INVALID_PARAM);
    }
}

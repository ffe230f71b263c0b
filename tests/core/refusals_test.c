/* What a call may not be given is refused by the call, in whatever state the endpoint is, and
 * runs no callback. */
#include <tests/support/rma_peers.h>

#include <weft/collective.h>

static char bytes[100];

/* No callback reports what was refused. */
static struct tally never;

static void refuse_null(weft_ep_t *ep, weft_worker_t *worker) {
    weft_iov_t at_null = {NULL, 8}, second[2] = {{bytes, 8}, {NULL, 8}},
               endless[2] = {{bytes, SIZE_MAX}, {bytes, 2}};
    const weft_layout_t blocks = {.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 8, .count = 9};
    const weft_iov_t *const iov[] = {&at_null, second, endless, NULL};
    const weft_op_t ops[] = {{.done = tally, .arg = &never},
                             {.flags = WEFT_AM_EAGER, .done = tally, .arg = &never},
                             {.layout = &blocks}};
    size_t len;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            const weft_op_t *op = k ? &ops[k - 1] : NULL, *flagless = k == 2 ? NULL : op;
            size_t n = i == 1 || i == 2 ? 2 : 1;
            CHECK_EQ(weft_am_send(ep, 1, NULL, 0, iov[i], n, op), WEFT_ERR_INVALID_PARAM);
            CHECK_EQ(weft_am_send(ep, 1, bytes, 8, iov[i], n, op), WEFT_ERR_INVALID_PARAM);
            CHECK_EQ(weft_am_send(ep, 1, NULL, 8, &(weft_iov_t){bytes, 8}, 1, op),
                     WEFT_ERR_INVALID_PARAM);
            CHECK_EQ(weft_tag_send(ep, 1, iov[i], n, op), WEFT_ERR_INVALID_PARAM);
            CHECK_EQ(weft_tag_recv(worker, 1, 0, iov[i], n, NULL, flagless),
                     WEFT_ERR_INVALID_PARAM);
            CHECK_EQ(weft_stream_send(ep, iov[i], n, flagless), WEFT_ERR_INVALID_PARAM);
            CHECK_EQ(weft_stream_recv(ep, iov[i], n, &len, flagless), WEFT_ERR_INVALID_PARAM);
        }
}

TEST_EACH(bytes_at_null_are_refused) {
    struct two t;
    two_workers(&t, transport, NULL, 0);
    never.calls = 0;
    two_dial(&t);
    refuse_null(t.ep, t.a); /* not connected yet */
    UNTIL(&t, t.ready && t.back);
    refuse_null(t.ep, t.a);
    CHECK_EQ(never.calls, 0);
    two_down(&t);
}

TEST_EACH(nothing_at_null_is_legal) {
    struct two t;
    struct tally got[2] = {{0}};
    weft_iov_t nothing[2] = {{NULL, 0}, {NULL, 0}};
    size_t len;
    two_up(&t, transport);
    for (size_t n = 0; n <= 2; n++) {
        const weft_iov_t *iov = n ? nothing : NULL;
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, iov, n, NULL), WEFT_OK);
        CHECK_EQ(weft_stream_send(t.ep, iov, n, NULL), WEFT_OK);
        CHECK_EQ(weft_stream_recv(t.ep, iov, n, &len, NULL), WEFT_OK);
        got[0].calls = 0;
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, iov, n, NULL, OP(&got[0])), WEFT_IN_PROGRESS);
        CHECK_EQ(weft_tag_send(t.ep, 1, iov, n, NULL), WEFT_OK);
        UNTIL(&t, got[0].calls == 1);
        CHECK_EQ(got[0].status, WEFT_OK);
    }
    two_down(&t);
}

static int received;
static void take_at_null(weft_ep_t *ep, weft_am_t *am, void *arg) {
    received++;
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){NULL, am->len}, 1, OP(&never)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_recv(am, NULL, 1, OP(&never)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_recv(am, &(weft_iov_t){bytes, am->len}, 1, &(weft_op_t){.flags = 1}),
             WEFT_ERR_INVALID_PARAM);
}

TEST_EACH(a_message_is_not_received_at_null) {
    struct two t;
    struct tally sent = {0};
    two_up(&t, transport);
    received = never.calls = 0;
    CHECK_EQ(weft_am_handler_set(two_b(&t), 1, take_at_null, NULL), 0);
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){bytes, 100}, 1, NULL), WEFT_OK);
    weft_op_t waits = {.done = tally, .arg = &sent, .flags = WEFT_AM_RENDEZVOUS};
    CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &(weft_iov_t){bytes, 100}, 1, &waits),
             WEFT_IN_PROGRESS);
    UNTIL(&t, received == 2 && sent.calls == 1);
    CHECK_EQ(never.calls, 0);
    two_down(&t);
}

TEST_WAYS(one_sided_bytes_at_null_are_refused) {
    struct rma r;
    weft_mem_t *mem;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    weft_ep_t *ep = r.t.ep;
    weft_local_t at_null = {.len = 8};
    weft_remote_t there = {.base = rma_at(&r, 0), .len = 8, .rkey = r.rkey};
    const weft_layout_t blocks = {.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 8, .count = 9};
    const weft_op_t laid_out = {.layout = &blocks};
    CHECK_EQ(weft_put(ep, NULL, 8, rma_at(&r, 0), r.rkey, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_get(ep, NULL, 8, rma_at(&r, 0), r.rkey, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put(ep, NULL, 0, rma_at(&r, 0), r.rkey, &laid_out), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put_pieces(ep, &at_null, 1, &there, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put(ep, NULL, 0, rma_at(&r, 0), r.rkey, NULL), WEFT_OK);
    CHECK_EQ(weft_get(ep, NULL, 0, rma_at(&r, 0), r.rkey, NULL), WEFT_OK);
    CHECK_EQ(weft_mem_register(r.t.a, NULL, 8, NULL, &mem), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_get(r.t.a, NULL, 8, 0, &mem), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_invalidate(r.t.a, NULL, 8, NULL), WEFT_ERR_INVALID_PARAM);
    rma_down(&r);
}

/* Pieces of nothing, wherever they are said to be; but handles are looked at. */
TEST_WAYS(pieces_of_no_bytes_are_legal) {
    struct rma r;
    weft_mem_t *mine, *others;
    struct tally done = {0};
    static char here[64];
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    weft_ep_t *ep = r.t.ep;
    CHECK_EQ(weft_mem_register(r.t.a, here, sizeof here, NULL, &mine), 0);
    memset(here, 'h', sizeof here);
    const weft_local_t pieces[] = {{.mem = mine},
                                   {.base = here, .len = 8, .mem = mine},
                                   {.stride = 1000, .count = 5, .mem = mine},
                                   {.base = here + 8, .len = 8},
                                   {.count = SIZE_MAX, .stride = SIZE_MAX}};
    const weft_remote_t range = {.base = rma_at(&r, 100), .len = 16, .rkey = r.rkey};
    CHECK_EQ(RMA_WAIT(&r, &done, weft_put_pieces(ep, pieces, 5, &range, 1, RMA_REMOTE(&done))),
             WEFT_OK);
    CHECK(memcmp(r.target + 100, here, 16) == 0 && r.target[99] == 0 && r.target[116] == 0);

    const weft_remote_t ranges[] = {
        {.base = rma_at(&r, 0), .rkey = r.rkey},
        {.base = rma_at(&r, 100), .len = 8, .rkey = r.rkey},
        {.base = rma_at(&r, 4096), .stride = 7, .count = 9, .rkey = r.rkey}};
    const weft_local_t one = {.base = here + 32, .len = 8, .mem = mine};
    memset(here, 0, sizeof here);
    CHECK_EQ(RMA_WAIT(&r, &done, weft_get_pieces(ep, &one, 1, ranges, 3, OP(&done))), WEFT_OK);
    CHECK(here[31] == 0 && here[32] == 'h' && here[39] == 'h' && here[40] == 0);

    /* Nothing at all. */
    CHECK_EQ(weft_put_pieces(ep, pieces, 1, ranges, 1, OP(&never)), WEFT_OK);
    CHECK_EQ(weft_get_pieces(ep, NULL, 0, ranges, 1, OP(&never)), WEFT_OK);
    CHECK_EQ(weft_put_pieces(ep, pieces, 1, NULL, 0, RMA_REMOTE(&never)), WEFT_OK);
    CHECK_EQ(weft_put_pieces(ep, NULL, 0, NULL, 0, NULL), WEFT_OK);
    CHECK_EQ(weft_put_pieces(ep, NULL, 1, ranges, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put_pieces(ep, pieces, 1, NULL, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put_pieces(ep, pieces, 1, &(weft_remote_t){0}, 1, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put_pieces(ep, pieces, 1, &range, 1, NULL),
             WEFT_ERR_INVALID_PARAM); /* as many bytes here as there */
    if (r.t.b) {
        CHECK_EQ(weft_mem_register(r.t.b, here, sizeof here, NULL, &others), 0);
        CHECK_EQ(weft_put_pieces(ep, &(weft_local_t){.mem = others}, 1, ranges, 1, NULL),
                 WEFT_ERR_INVALID_PARAM);
    }
    rma_down(&r);
}

/* No blocks, or blocks of nothing. */
TEST_EACH(a_layout_of_no_bytes_is_legal_at_null) {
    struct two t;
    struct tally got = {0};
    const weft_layout_t none[] = {{.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 8},
                                  {.kind = WEFT_LAYOUT_STRIDED, .stride = 8, .count = 1000}};
    const weft_iov_t at_null = {NULL, 0};
    size_t len;
    two_up(&t, transport);
    for (int i = 0; i < 2; i++) {
        const weft_op_t op = {.layout = &none[i]},
                        receive = {.layout = &none[i], .done = tally, .arg = &got};
        got.calls = 0;
        CHECK(weft_am_send(t.ep, 1, NULL, 0, &at_null, 1, &op) >= 0);
        CHECK(weft_stream_send(t.ep, &at_null, 1, &op) >= 0);
        CHECK(weft_stream_recv(t.ep, &at_null, 1, &len, &op) >= 0);
        CHECK_EQ(weft_tag_recv(two_b(&t), 1, 0, &at_null, 1, NULL, &receive), WEFT_IN_PROGRESS);
        CHECK(weft_tag_send(t.ep, 1, &at_null, 1, &op) >= 0);
        UNTIL(&t, got.calls == 1);
        CHECK_EQ(got.status, WEFT_OK);
    }
    CHECK_EQ(t.errors + t.back_errors, 0);
    two_down(&t);
}

/* ---- flags */

enum { UNKNOWN = 1 << 20 };

static void refuse_flags(weft_ep_t *ep, weft_worker_t *worker) {
    const weft_op_t unknown = {.done = tally, .arg = &never, .flags = UNKNOWN}, none = {.flags = 1};
    const weft_iov_t iov = {bytes, 8};
    size_t len;
    CHECK_EQ(weft_am_send(ep, 1, NULL, 0, &iov, 1, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_am_send(ep, 1, NULL, 0, NULL, 0, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_send(ep, 1, &iov, 1, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_tag_recv(worker, 1, 0, &iov, 1, NULL, &none), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_send(ep, &iov, 1, &none), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_stream_recv(ep, &iov, 1, &len, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_ep_flush(ep, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_worker_flush(worker, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, &none), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_worker_close(worker, &none), WEFT_ERR_INVALID_PARAM);
}

TEST_EACH(flags_that_an_operation_does_not_have_are_refused) {
    struct two t;
    two_workers(&t, transport, NULL, 0);
    never.calls = 0;
    two_dial(&t);
    refuse_flags(t.ep, t.a); /* not connected yet */
    UNTIL(&t, t.ready && t.back);
    refuse_flags(t.ep, t.a);
    CHECK_EQ(never.calls, 0);
    two_down(&t);
}

TEST_WAYS(flags_that_a_one_sided_operation_does_not_have_are_refused) {
    struct rma r;
    uint64_t old;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    weft_ep_t *ep = r.t.ep;
    const weft_op_t unknown = {.flags = UNKNOWN};
    weft_local_t here = {.base = bytes, .len = 8};
    weft_remote_t there = {.base = rma_at(&r, 0), .len = 8, .rkey = r.rkey};
    uint64_t at = rma_at(&r, 0);
    CHECK_EQ(weft_put(ep, bytes, 8, at, r.rkey, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_get(ep, bytes, 8, at, r.rkey, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put_pieces(ep, &here, 1, &there, 1, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, at, r.rkey, &unknown),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, r.rkey, &unknown),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_revoke(r.mem, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_release(r.mem, &unknown), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_invalidate(r.t.a, bytes, 8, &unknown), WEFT_ERR_INVALID_PARAM);
    for (size_t i = 0; i < 4096; i++) CHECK_EQ(r.target[i], 0);
    rma_down(&r);
}

/* ---- fields that later versions may give a meaning */

static weft_status_t gather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                            void *all, weft_done_fn done, void *done_arg) {
    memcpy(all, mine, len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}

static weft_team_t *team_of_one(weft_worker_t *worker) {
    static const weft_exchange_t alone = {.size = 1, .allgather = gather};
    weft_team_t *team = NULL;
    CHECK_EQ(weft_team_create_wait(worker, &alone, &team), 0);
    return team;
}

static const weft_layout_t odd_layouts[] = {
    {.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 8, .count = 2, .reserved = {1}},
    {.kind = WEFT_LAYOUT_STRIDED, .block = 8, .stride = 8, .count = 1, .reserved = {0, 1}},
    {.kind = WEFT_LAYOUT_STRIDED, .reserved = {0, UINT64_C(1) << 63}}};
static const weft_op_t odd_ops[] = {{.done = tally, .arg = &never, .reserved = {1}},
                                    {.done = tally, .arg = &never, .reserved = {UINT64_C(1) << 63}},
                                    {.layout = &odd_layouts[0]},
                                    {.layout = &odd_layouts[1]},
                                    {.layout = &odd_layouts[2]}};
enum { N_ODD = sizeof odd_ops / sizeof *odd_ops, N_ODD_OPS = 2 };

static void refuse_reserved(weft_ep_t *ep, weft_worker_t *worker) {
    const weft_iov_t iov = {bytes, 8};
    size_t len;
    for (int i = 0; i < N_ODD; i++) {
        const weft_op_t *op = &odd_ops[i];
        weft_op_t flagged = *op;
        flagged.flags = WEFT_AM_EAGER;
        CHECK_EQ(weft_am_send(ep, 1, NULL, 0, &iov, 1, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_am_send(ep, 1, bytes, 8, &iov, 1, &flagged), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_tag_send(ep, 1, &iov, 1, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_tag_send(ep, 1, &iov, 1, &flagged), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_tag_recv(worker, 1, 0, &iov, 1, NULL, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_stream_send(ep, &iov, 1, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_stream_recv(ep, &iov, 1, &len, op), WEFT_ERR_INVALID_PARAM);
        if (i >= N_ODD_OPS) continue;
        CHECK_EQ(weft_ep_flush(ep, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_worker_flush(worker, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_worker_close(worker, op), WEFT_ERR_INVALID_PARAM);
    }
}

TEST_EACH(reserved_fields_that_are_set_are_refused) {
    struct two t;
    two_workers(&t, transport, NULL, 0);
    never.calls = 0;
    two_dial(&t);
    refuse_reserved(t.ep, t.a); /* not connected yet */
    UNTIL(&t, t.ready && t.back);
    refuse_reserved(t.ep, t.a);
    weft_team_t *team = team_of_one(t.a);
    CHECK_EQ(weft_barrier(team, &odd_ops[0]), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_bcast(team, bytes, 0, WEFT_INT8, 0, &odd_ops[1]), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_close(team, &odd_ops[0]), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_close_wait(team), 0);
    CHECK_EQ(never.calls, 0);
    two_down(&t);
}

/* No driver is loaded, so nothing is asked of what it names. */
TEST_EACH(a_stream_is_refused_without_the_driver) {
    struct two t;
    two_workers(&t, transport, NULL, 0);
    never.calls = 0;
    two_dial(&t);
    const weft_iov_t iov = {bytes, 8};
    const weft_op_t op = {.done = tally, .arg = &never, .stream = &t};
    size_t len;
    for (int ready = 0; ready < 2; ready++) {
        CHECK_EQ(weft_am_send(t.ep, 1, NULL, 0, &iov, 1, &op), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_tag_send(t.ep, 1, &iov, 1, &op), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_tag_recv(t.a, 1, 0, &iov, 1, NULL, &op), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_stream_send(t.ep, &iov, 1, &op), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_stream_recv(t.ep, &iov, 1, &len, &op), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_worker_flush(t.a, &op), WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_worker_close(t.a, &op), WEFT_ERR_UNSUPPORTED);
        UNTIL(&t, t.ready && t.back);
    }
    CHECK_EQ(never.calls, 0);
    two_down(&t);
}

TEST_WAYS(reserved_fields_of_a_one_sided_operation_that_are_set_are_refused) {
    struct rma r;
    uint64_t old;
    never.calls = 0;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    weft_ep_t *ep = r.t.ep;
    weft_local_t here = {.base = bytes, .len = 8};
    weft_remote_t there = {.base = rma_at(&r, 0), .len = 8, .rkey = r.rkey};
    uint64_t at = rma_at(&r, 0);
    for (int i = 0; i < N_ODD; i++) {
        CHECK_EQ(weft_put(ep, bytes, 8, at, r.rkey, &odd_ops[i]), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_get(ep, bytes, 8, at, r.rkey, &odd_ops[i]), WEFT_ERR_INVALID_PARAM);
    }
    for (int i = 0; i < N_ODD_OPS; i++) {
        const weft_op_t *op = &odd_ops[i];
        CHECK_EQ(weft_put_pieces(ep, &here, 1, &there, 1, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, at, r.rkey, op),
                 WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, r.rkey, op),
                 WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_mem_revoke(r.mem, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_mem_release(r.mem, op), WEFT_ERR_INVALID_PARAM);
        CHECK_EQ(weft_mem_invalidate(r.t.a, bytes, 8, op), WEFT_ERR_INVALID_PARAM);
    }
    for (size_t i = 0; i < 4096; i++) CHECK_EQ(r.target[i], 0);
    rma_down(&r);
    CHECK_EQ(never.calls, 0);
}

/* ---- what an operation cannot do for its descriptor (weft/base.h) */

static const weft_layout_t any = {.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 8, .count = 2};

TEST_WAYS(a_layout_is_refused_where_no_bytes_are_moved) {
    struct rma r;
    const weft_op_t laid_out = {.done = tally, .arg = &never, .layout = &any};
    weft_local_t here = {.base = bytes, .len = 8};
    uint64_t old;
    never.calls = 0;
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    weft_ep_t *ep = r.t.ep;
    weft_team_t *team = team_of_one(r.t.a);
    uint64_t at = rma_at(&r, 0);
    weft_remote_t there = {.base = at, .len = 8, .rkey = r.rkey};
    CHECK_EQ(weft_ep_flush(ep, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_flush(r.t.a, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_put_pieces(ep, &here, 1, &there, 1, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_atomic_post(ep, WEFT_ATOMIC_ADD, 8, 1, at, r.rkey, &laid_out),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_atomic_fetch(ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, at, r.rkey, &laid_out),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_mem_revoke(r.mem, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_mem_release(r.mem, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_mem_invalidate(r.t.a, bytes, 8, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_barrier(team, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_bcast(team, bytes, 0, WEFT_INT8, 0, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_allreduce(team, bytes, bytes, 8, WEFT_INT8, WEFT_SUM, &laid_out),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_allgather(team, bytes, bytes, 8, WEFT_INT8, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_team_close(team, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, &laid_out), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_close(r.t.a, &laid_out), WEFT_ERR_UNSUPPORTED);
    for (size_t i = 0; i < 4096; i++) CHECK_EQ(r.target[i], 0);
    CHECK_EQ(weft_team_close_wait(team), 0);
    rma_down(&r);
    CHECK_EQ(never.calls, 0);
}

TEST_EACH(a_close_cannot_be_taken_back_and_counts_nothing) {
    struct two t;
    struct tally closed[3] = {{0}};
    weft_completion_t completion = {.done = tally, .arg = &never, .count = 1};
    const weft_op_t counts = {.completion = &completion}, late = {.deadline_ms = 1000};
    two_up(&t, transport);
    weft_team_t *team = team_of_one(t.a);
    never.calls = 0;
    CHECK_EQ(weft_team_close(team, &counts), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_team_close(team, &late), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, &counts), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_close(t.a, &counts), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_close(t.a, &late), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(completion.count, 1);

    weft_request_t *request[3];
    memset(request, 0x5a, sizeof request);
    for (int i = 0; i < 3; i++) {
        weft_op_t op = {.done = tally, .arg = &closed[i], .request_p = &request[i]};
        weft_status_t st = i == 0   ? weft_team_close(team, &op)
                           : i == 1 ? weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, &op)
                                    : weft_worker_close(t.a, &op);
        CHECK_EQ(st, WEFT_IN_PROGRESS);
        CHECK(request[i] == NULL);
        weft_request_cancel(request[i]);
    }
    while (!closed[2].calls) weft_worker_progress(t.a, 0);
    CHECK(closed[0].calls == 1 && closed[1].calls == 1);
    t.a = NULL;
    two_down(&t);
    CHECK_EQ(never.calls, 0);
}

/* ---- parameters of a later version */

TEST(fields_beyond_this_version_are_refused_when_they_are_set) {
    struct two t;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_listener_t *listener;
    weft_mem_t *mem;
    weft_team_t *team;
    struct {
        union {
            weft_worker_params_t worker;
            weft_ep_params_t ep;
            weft_listen_params_t listen;
            weft_mem_params_t mem;
            weft_thread_params_t thread;
            weft_team_params_t team;
        } known;
        char later[8];
    } params = {.later = {1}};
    char address[256];
    size_t len = sizeof address;
    two_workers(&t, "self,tcp", NULL, 0);
    CHECK_EQ(weft_worker_address(t.a, address, &len), 0);
    CHECK_EQ(weft_worker_create_sized(sizeof params, t.context, &params.known.worker, &worker),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_connect_sized(sizeof params, t.a, "tcp://127.0.0.1:1", &params.known.ep, &ep),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_connect_address_sized(sizeof params, t.a, address, len, &params.known.ep, &ep),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(
        weft_listen_sized(sizeof params, t.a, "tcp://127.0.0.1:0", &params.known.listen, &listener),
        WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_alloc_sized(sizeof params, t.a, 100, &params.known.mem, &mem),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_register_sized(sizeof params, t.a, bytes, 100, &params.known.mem, &mem),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_worker_start_thread_sized(sizeof params, t.a, &params.known.thread),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_team_create_sized(sizeof params, t.a, &params.known.team, &team),
             WEFT_ERR_INVALID_PARAM);
    memset(params.later, 0, sizeof params.later);
    CHECK_EQ(
        weft_listen_sized(sizeof params, t.a, "tcp://127.0.0.1:0", &params.known.listen, &listener),
        WEFT_OK);
    two_down(&t);
}

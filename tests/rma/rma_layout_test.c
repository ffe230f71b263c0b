/* Puts and gets of memory that is laid out by blocks or by the program. */
#include <tests/support/op_forms.h>
#include <tests/support/rma_peers.h>

#include <reactor/reactor.h>

enum { ROOM = 1 << 20, COUNT = 7 /* what form_start is to be asked with */ };
static char here[2 * ROOM], bytes[ROOM];
static struct tally tallied;

#define LAID(layout_) (&(weft_op_t){.done = tally, .arg = &tallied, .layout = (layout_)})
#define LAID_REMOTE(layout_) \
    (&(weft_op_t){.done = tally, .arg = &tallied, .layout = (layout_), .flags = WEFT_RMA_REMOTE})

static const struct {
    size_t block, gap, count;
} shapes[] = {{1, 1, 300},  {8, 8, 3},       {8, 0, 64},  {40, 24, 1},      {24, 3, 1000},
              {100, 4, 50}, {5000, 64, 100}, {16, 16, 0}, {4096, 4096, 16}, {70000, 1, 7}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static size_t shape(weft_layout_t *l, int i) {
    *l = (weft_layout_t){.kind = WEFT_LAYOUT_STRIDED,
                         .block = shapes[i].block,
                         .stride = shapes[i].block + shapes[i].gap,
                         .count = shapes[i].count};
    return l->block * l->count;
}

/* The blocks of `base`, one after the other; all between them is `gap`. */
static bool holds(const char *base, const weft_layout_t *l, const char *packed, char gap) {
    for (size_t i = 0; i < l->count; i++, base += l->stride) {
        if (memcmp(base, packed + i * l->block, l->block) != 0) return false;
        for (size_t k = l->block; k < l->stride; k++)
            if (base[k] != gap) return false;
    }
    return true;
}

TEST_WAYS(blocks_are_put_together_and_got_apart) {
    struct rma r;
    weft_layout_t l;
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    for (int i = 0; i < N_SHAPES; i++) {
        size_t len = shape(&l, i);
        pattern(bytes, sizeof bytes, (unsigned)i);
        memset(here, 'x', sizeof here);
        memset(r.target, 'y', ROOM);
        for (size_t k = 0; k < l.count; k++)
            memcpy(here + k * l.stride, bytes + k * l.block, l.block);
        CHECK_EQ(RMA_WAIT(&r, &tallied,
                          weft_put(r.t.ep, here, 0, rma_at(&r, 3), r.rkey, LAID_REMOTE(&l))),
                 0);
        CHECK(memcmp(r.target + 3, bytes, len) == 0 && r.target[2] == 'y' &&
              r.target[3 + len] == 'y');
        memset(here, 'z', sizeof here);
        CHECK_EQ(RMA_WAIT(&r, &tallied, weft_get(r.t.ep, here, 0, rma_at(&r, 3), r.rkey, LAID(&l))),
                 0);
        CHECK(holds(here, &l, bytes, 'z'));
    }
    rma_down(&r);
}

TEST_WAYS(a_programs_form_is_put_and_got) {
    static const size_t sizes[] = {0, 1, 8, 41, 1000, 8192, 70001, ROOM - 3};
    struct rma r;
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct form f = {.bytes = bytes, .len = sizes[i]};
        pattern(bytes, f.len, (unsigned)i);
        memset(r.target, 'y', ROOM);
        CHECK_EQ(
            RMA_WAIT(&r, &tallied,
                     weft_put(r.t.ep, &f, COUNT, rma_at(&r, 1), r.rkey, LAID_REMOTE(&form_layout))),
            0);
        CHECK(settled(&f, 1) && f.at == f.len && !f.receives);
        CHECK(is_pattern(r.target + 1, f.len, (unsigned)i) && r.target[0] == 'y' &&
              r.target[1 + f.len] == 'y');
        memset(bytes, 'z', f.len);
        CHECK_EQ(RMA_WAIT(&r, &tallied,
                          weft_get(r.t.ep, &f, COUNT, rma_at(&r, 1), r.rkey, LAID(&form_layout))),
                 0);
        CHECK(settled(&f, 2) && f.at == f.len && f.receives);
        CHECK(is_pattern(bytes, f.len, (unsigned)i));
    }
    rma_down(&r);
}

TEST_WAYS(what_the_program_refuses_ends_with_its_answer) {
    struct rma r;
    rma_up(&r, transport, messages, ROOM, WEFT_MEM_ALL, NULL, 0);
    memset(r.target, 'y', ROOM);
    for (int large = 0; large < 2; large++) {
        struct form f = {
            .bytes = bytes, .len = large ? 300000 : 100, .start_refuses = WEFT_ERR_QUOTA};
        CHECK_EQ(weft_put(r.t.ep, &f, COUNT, rma_at(&r, 0), r.rkey, LAID(&form_layout)),
                 WEFT_ERR_QUOTA);
        CHECK(f.starts == 1 && f.ends == 0 && f.moves == 0);
        f = (struct form){.bytes = bytes, .len = f.len, .refuses = WEFT_ERR_NOT_FOUND};
        CHECK_EQ(weft_put(r.t.ep, &f, COUNT, rma_at(&r, 0), r.rkey, LAID(&form_layout)),
                 WEFT_ERR_NOT_FOUND);
        CHECK(settled(&f, 1));
        CHECK_EQ(RMA_WAIT(&r, &tallied,
                          weft_get(r.t.ep, &f, COUNT, rma_at(&r, 0), r.rkey, LAID(&form_layout))),
                 WEFT_ERR_NOT_FOUND);
        CHECK(settled(&f, 2));
    }
    CHECK_EQ(RMA_FLUSH(&r, &tallied), 0);
    CHECK_EQ(r.target[0], 'y');
    rma_down(&r);
}

/* Its length is what the layout says, not the call. */
TEST_WAYS(a_layout_beyond_the_region_changes_nothing) {
    struct rma r;
    weft_layout_t l = {.kind = WEFT_LAYOUT_STRIDED, .block = 8, .stride = 16, .count = 512};
    struct form f = {.bytes = bytes, .len = 4097};
    rma_up(&r, transport, messages, 4096, WEFT_MEM_ALL, NULL, 0);
    memset(r.target, 'y', 4096);
    CHECK_EQ(weft_put(r.t.ep, here, 8, rma_at(&r, 1), r.rkey, LAID(&l)), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_put(r.t.ep, &f, COUNT, rma_at(&r, 0), r.rkey, LAID(&form_layout)),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_get(r.t.ep, &f, COUNT, rma_at(&r, 0), r.rkey, LAID(&form_layout)),
             WEFT_ERR_INVALID_PARAM);
    CHECK(settled(&f, 2));
    l.count = SIZE_MAX / 4;
    CHECK_EQ(weft_put(r.t.ep, here, 8, rma_at(&r, 0), r.rkey, LAID(&l)), WEFT_ERR_INVALID_PARAM);
    l = (weft_layout_t){.kind = (weft_layout_kind_t)9};
    CHECK_EQ(weft_get(r.t.ep, here, 8, rma_at(&r, 0), r.rkey, LAID(&l)), WEFT_ERR_INVALID_PARAM);
    l = (weft_layout_t){.kind = WEFT_LAYOUT_USER, .user = &(weft_pack_ops_t){.start = form_start}};
    CHECK_EQ(weft_get(r.t.ep, &f, COUNT, rma_at(&r, 0), r.rkey, LAID(&l)), WEFT_ERR_INVALID_PARAM);
    l = (weft_layout_t){.kind = WEFT_LAYOUT_STRIDED, .block = 8, .stride = 16, .count = 2};
    CHECK_EQ(weft_put(r.t.ep, NULL, 0, rma_at(&r, 0), r.rkey, LAID(&l)), WEFT_ERR_INVALID_PARAM);
    weft_local_t local = {.base = here, .len = 8, .count = 1};
    weft_remote_t remote = {.base = rma_at(&r, 0), .len = 8, .count = 1, .rkey = r.rkey};
    CHECK_EQ(weft_put_pieces(r.t.ep, &local, 1, &remote, 1, LAID(&l)), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(RMA_FLUSH(&r, &tallied), 0);
    for (int i = 0; i < 4096; i++) CHECK_EQ(r.target[i], 'y');
    rma_down(&r);
}

/* Whichever side ends it, `end` comes before the callback. */
static struct form under_way;
static int ended_before;
static void on_end(weft_status_t status, void *arg) {
    ended_before += under_way.ends == 1;
    tally(status, arg);
}

TEST(an_operation_that_ends_early_is_let_go_once) {
    for (int how = 0; how < 3; how++)
        for (int gets = 0; gets < 2; gets++) {
            struct two t;
            weft_mem_t *mem;
            weft_mem_info_t info;
            char key[WEFT_RKEY_MAX];
            size_t len = sizeof key;
            weft_rkey_t *rkey;
            weft_request_t *req = NULL;
            two_workers(&t, "tcp", NULL, 0);
            two_dial(&t); /* it is not ready, so nothing begins */
            CHECK_EQ(weft_mem_alloc(t.b, 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
                     0);
            CHECK_EQ(weft_mem_describe(mem, &info), 0);
            CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
            CHECK_EQ(weft_rkey_unpack(t.ep, key, len, &rkey), 0);
            tallied = (struct tally){0};
            ended_before = 0;
            under_way = (struct form){.bytes = bytes, .len = 4096};
            weft_op_t op = {.done = on_end,
                            .arg = &tallied,
                            .layout = &form_layout,
                            .request_p = &req,
                            .deadline_ms = how == 1 ? 1 : 0};
            uint64_t at = (uint64_t)(uintptr_t)info.base;
            CHECK_EQ(gets ? weft_get(t.ep, &under_way, COUNT, at, rkey, &op)
                          : weft_put(t.ep, &under_way, COUNT, at, rkey, &op),
                     WEFT_IN_PROGRESS);
            if (how == 0) weft_request_cancel(req);
            if (how == 2) CHECK(weft_ep_close(t.ep, WEFT_CLOSE_ABORT, NULL) >= 0);
            double end = test_now() + test_timeout(60);
            /* b stands still */
            while (!tallied.calls && test_now() < end) weft_worker_progress(t.a, 0);
            CHECK_EQ(tallied.calls, 1);
            CHECK_EQ(tallied.status, how == 0   ? WEFT_ERR_CANCELLED
                                     : how == 1 ? WEFT_ERR_TIMED_OUT
                                                : WEFT_ERR_CLOSED);
            CHECK_EQ(ended_before, 1);
            CHECK(settled(&under_way, 1));
            weft_rkey_release(rkey);
            two_down(&t);
        }
}

TEST(each_allocation_of_a_laid_out_put_may_fail) {
    bool done = false;
    struct rma r;
    rma_up(&r, "tcp", true, 4096, WEFT_MEM_ALL, NULL, 0);
    for (uint64_t k = 1; !done; k++) {
        struct form f = {.bytes = bytes, .len = 4096};
        tallied = (struct tally){0};
        weft__alloc_fail_at(k);
        weft_status_t st =
            weft_put(r.t.ep, &f, COUNT, rma_at(&r, 0), r.rkey, LAID_REMOTE(&form_layout));
        done = weft__alloc_fail_at(0) < k;
        CHECK(st == WEFT_IN_PROGRESS || st == WEFT_ERR_NO_MEMORY);
        if (st == WEFT_IN_PROGRESS) UNTIL(&r.t, tallied.calls == 1);
        CHECK(settled(&f, 1));
    }
    CHECK_EQ(tallied.status, WEFT_OK);
    rma_down(&r);
}

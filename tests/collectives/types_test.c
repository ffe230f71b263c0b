/* Types and reductions of the program's own, in each kind of collective: contiguous, with a layout,
 * or packed and unpacked by the program. */
#include "each_kind.h"

/* An element of 8 bytes on the wire. In memory its halves lie apart, and what is between them is
 * not of the message. */
enum { N = 3, EACH = 7, HALF = 4, APART = 12, EXTENT = 24, OTHER = 0xab };
static uint8_t in[N][N * EACH * EXTENT], out[N][N * EACH * EXTENT];

static bool is_apart; /* else contiguous */

static size_t extent(void) {
    return is_apart ? EXTENT : sizeof(int64_t);
}
static void put_element(uint8_t *memory, uint32_t i, int64_t value) {
    uint8_t *at = memory + i * extent();
    memcpy(at, &value, HALF);
    memcpy(at + (is_apart ? APART : HALF), (const uint8_t *)&value + HALF, HALF);
}
static int64_t element(const uint8_t *memory, uint32_t i) {
    int64_t value;
    const uint8_t *at = memory + i * extent();
    memcpy(&value, at, HALF);
    memcpy((uint8_t *)&value + HALF, at + (is_apart ? APART : HALF), HALF);
    return value;
}
/* Bytes between the elements' parts. */
static bool is_untouched(const uint8_t *memory) {
    for (uint32_t i = 0; is_apart && i < N * EACH * EXTENT; i++)
        if ((i % EXTENT) / HALF % 3 && memory[i] != OTHER) return false;
    return true;
}

/* ---- packed by the program ------------------------------------------------------------------- */

static unsigned n_open, n_without_arg;

static uint8_t *byte_of(void *object, size_t offset) {
    size_t within = offset % 8;
    return (uint8_t *)object + offset / 8 * EXTENT +
           (within < HALF ? within : within - HALF + APART);
}
static weft_status_t start(void *object, size_t count, int receives, void **state_p,
                           size_t *len_p) {
    n_without_arg += *state_p != &n_open;
    *state_p = object;
    *len_p = count * 8;
    n_open++;
    return WEFT_OK;
}
static weft_status_t pack(void *state, size_t offset, void *to, size_t len) {
    for (size_t i = 0; i < len; i++) ((uint8_t *)to)[i] = *byte_of(state, offset + i);
    return WEFT_OK;
}
static weft_status_t unpack(void *state, size_t offset, const void *from, size_t len) {
    for (size_t i = 0; i < len; i++) *byte_of(state, offset + i) = ((const uint8_t *)from)[i];
    return WEFT_OK;
}
static void end(void *state) {
    n_open--;
}

static const weft_pack_ops_t by_program = {start, pack, unpack, end};
static const weft_layout_t layouts[] = {
    {.kind = WEFT_LAYOUT_STRIDED, .block = HALF, .stride = APART, .count = 2},
    {.kind = WEFT_LAYOUT_USER, .user = &by_program},
};

/* ---- each kind ------------------------------------------------------------------------------- */

static void add(void *to, const void *left, const void *right, size_t count, void *arg) {
    for (size_t i = 0; i < count; i++) {
        int64_t a, b;
        memcpy(&a, (const char *)left + 8 * i, 8);
        memcpy(&b, (const char *)right + 8 * i, 8);
        a += b;
        memcpy((char *)to + 8 * i, &a, 8);
    }
    ++*(unsigned *)arg;
}

static void prepare(struct crew *c) {
    memset(in, OTHER, sizeof in);
    memset(out, OTHER, sizeof out);
    for (uint32_t r = 0; r < N; r++) {
        expect_outcome(&c->rank[r]);
        for (uint32_t i = 0; i < N * EACH; i++) put_element(in[r], i, 1000 * (int64_t)r + i);
    }
}

static void check(struct crew *c, weft_coll_kind_t kind) {
    for (uint32_t r = 0; r < N; r++) {
        const uint8_t *got = kind == WEFT_COLL_BCAST ? in[r] : out[r];
        CHECK_EQ(c->rank[r].outcome, WEFT_OK);
        for (uint32_t i = 0; i < EACH && any_has_result(kind, r); i++)
            CHECK_EQ(element(got, i), any_result(kind, r, N, EACH, i));
        CHECK(is_untouched(in[r]) && is_untouched(out[r]));
    }
}

static void each_kind(const weft_layout_t *layout, uint32_t flags, const char *setting,
                      const char *value) {
    weft_datatype_params_t params = {
        .size = 8, .layout = layout, .extent = layout ? EXTENT : 0, .arg = &n_open};
    weft_datatype_t type[N];
    weft_reduction_t reduction[N];
    struct crew c;
    unsigned n_reduced = 0;
    is_apart = layout != NULL;
    crew_up(&c, N, "self,shm", setting, value);
    for (uint32_t r = 0; r < N; r++) {
        CHECK_EQ(weft_datatype_create(c.rank[r].team, &params, &type[r]), WEFT_OK);
        CHECK_EQ(weft_reduction_create(c.rank[r].team, add, &n_reduced, flags, &reduction[r]),
                 WEFT_OK);
    }
    for (int kind = 0; kind < WEFT_N_COLL_KINDS; kind++) {
        prepare(&c);
        for (uint32_t r = 0; r < N; r++) {
            weft_coll_args_t args =
                any_collective((weft_coll_kind_t)kind, r, N, (int64_t *)(void *)in[r],
                               (int64_t *)(void *)out[r], EACH);
            args.type = type[r];
            args.reduction = reduction[r];
            posted(&c.rank[r], weft_coll(c.rank[r].team, &args, OP_OF(&c.rank[r])));
        }
        UNTIL(&c, all_notified(&c));
        check(&c, (weft_coll_kind_t)kind);
        CHECK_EQ(n_open, 0);
    }
    CHECK(n_reduced > 0);
    CHECK_EQ(n_without_arg, 0);
    crew_down(&c);
}

static void each_way(const weft_layout_t *layout) {
    each_kind(layout, WEFT_REDUCTION_COMMUTES, NULL, NULL);
    each_kind(layout, WEFT_REDUCTION_COMMUTES, "coll.slot", "0");
    each_kind(layout, 0, NULL, NULL);
    each_kind(layout, 0, "coll.slot", "0");
}

TEST(each_kind_takes_contiguous_types_and_reductions_of_the_program) {
    each_way(NULL);
}
TEST(each_kind_takes_types_with_strides) {
    each_way(&layouts[0]);
}
TEST(each_kind_takes_types_that_the_program_packs) {
    each_way(&layouts[1]);
}

/* Nothing of it is packed, wherever it would lie. */
TEST(the_displacement_of_an_empty_block_of_strided_elements_has_no_effect) {
    struct crew c;
    uint64_t counts[N] = {1}, displs[N] = {0};
    weft_datatype_params_t params = {.size = 8, .layout = &layouts[0], .extent = EXTENT};
    crew_up(&c, N, "self,shm", NULL, NULL);
    for (uint32_t r = 1; r < N; r++) displs[r] = UINT64_C(1) << 40;
    prepare(&c);
    for (uint32_t r = 0; r < N; r++) {
        struct rank *me = &c.rank[r];
        weft_datatype_t type;
        CHECK_EQ(weft_datatype_create(me->team, &params, &type), WEFT_OK);
        posted(me, weft_allgatherv(me->team, in[r], out[r], counts, displs, type, OP_OF(me)));
    }
    UNTIL(&c, all_notified(&c));
    for (uint32_t r = 0; r < N; r++) {
        CHECK_EQ(c.rank[r].outcome, WEFT_OK);
        CHECK_EQ(element(out[r], 0), 0);
    }
    crew_down(&c);
}

/* ---- layouts that fail ----------------------------------------------------------------------- */

static weft_status_t fail_to_pack(void *state, size_t offset, void *to, size_t len) {
    return WEFT_ERR_IO;
}
static weft_status_t fail_to_unpack(void *state, size_t offset, const void *from, size_t len) {
    return WEFT_ERR_IO;
}

/* Of one member, so that the collective is done within the call. */
TEST(an_error_of_a_layout_is_returned_by_a_call_that_is_done_at_once) {
    static const weft_pack_ops_t cannot[] = {{start, fail_to_pack, unpack, end},
                                             {start, pack, fail_to_unpack, end}};
    struct crew c;
    crew_up(&c, 1, "self,shm", NULL, NULL);
    for (int i = 0; i < 2; i++) {
        weft_datatype_t type;
        weft_layout_t layout = {.kind = WEFT_LAYOUT_USER, .user = &cannot[i]};
        weft_datatype_params_t params = {
            .size = 8, .layout = &layout, .extent = EXTENT, .arg = &n_open};
        CHECK_EQ(weft_datatype_create(c.rank[0].team, &params, &type), WEFT_OK);
        for (int again = 0; again < 2; again++)
            CHECK_EQ(weft_allgather(c.rank[0].team, in[0], out[0], EACH, type, NULL), WEFT_ERR_IO);
        CHECK_EQ(n_open, 0);
    }
    crew_down(&c);
}

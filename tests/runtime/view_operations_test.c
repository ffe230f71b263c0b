/* What the processes of a view do together. */
#include "view_processes.h"
#include <sched.h>
#include <sys/mman.h>

static const weft_resource_set_t *set_of(weft_view_t *view, uint32_t rank) {
    const weft_resource_set_t *set = NULL;
    CHECK_EQ(weft_view_at_wait(view, rank, false, &set), WEFT_OK);
    return set;
}

/* Sets are fetched before a process may have released the view. */
static weft_view_t *join_and_look(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    for (uint32_t r = 0; r < size; r++) set_of(view, r);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    return view;
}

/* ---- to all, and to one -------------------------------------------------------------------- */

static void bytes_to_all(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    uint32_t mine = 100 + rank, all[8] = {0}, sum = 0, parts[8], got[8];
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_gather_wait(view, NULL, &mine, sizeof mine, all), WEFT_OK);
    for (uint32_t r = 0; r < size; r++) CHECK_EQ(all[r], 100 + r);
    CHECK_EQ(weft_view_reduce_wait(view, NULL, &mine, &sum, 1, WEFT_UINT32, WEFT_SUM), WEFT_OK);
    CHECK_EQ(sum, 100 * size + size * (size - 1) / 2);
    for (uint32_t r = 0; r < size; r++) parts[r] = rank * 10 + r;
    CHECK_EQ(weft_view_alltoall_wait(view, parts, sizeof *parts, got), WEFT_OK);
    for (uint32_t r = 0; r < size; r++) CHECK_EQ(got[r], r * 10 + rank);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(every_process_gets_what_all_gave) {
    in_processes(4, bytes_to_all);
}

static void rooted(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join_and_look(store, rank, size);
    for (uint32_t root = 0; root < size; root++) {
        const weft_resource_set_t *at = set_of(view, root);
        uint32_t mine = rank + 1, all[8] = {0}, sum = 0, part = 0, parts[8], word = root * 7;
        for (uint32_t r = 0; r < size; r++) parts[r] = root * 100 + r;
        CHECK_EQ(weft_view_gather_wait(view, at, &mine, sizeof mine, all), WEFT_OK);
        CHECK_EQ(weft_view_reduce_wait(view, at, &mine, &sum, 1, WEFT_UINT32, WEFT_SUM), WEFT_OK);
        for (uint32_t r = 0; r < size; r++) CHECK_EQ(all[r], rank == root ? r + 1 : 0);
        CHECK_EQ(sum, rank == root ? size * (size + 1) / 2 : 0);
        CHECK_EQ(weft_view_scatter_wait(view, at, parts, sizeof part, &part), WEFT_OK);
        CHECK_EQ(part, root * 100 + rank);
        if (rank != root) word = 0;
        CHECK_EQ(weft_view_bcast_wait(view, at, &word, sizeof word), WEFT_OK);
        CHECK_EQ(word, root * 7);
    }
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(only_the_root_gets_what_is_for_it) {
    in_processes(3, rooted);
}

/* The rule of rooted operations: each process's own set would be another root at each. */
static void own_set(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join_and_look(store, rank, size);
    const weft_resource_set_t *mine = weft_view_mine(view);
    uint32_t word = 1, all[8];
    weft_blocks_t *blocks;
    char text[512];
    CHECK_EQ(weft_view_gather_wait(view, mine, &word, sizeof word, all), WEFT_ERR_INVALID_PARAM);
    weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
    CHECK(strstr(text, "weft_view_at_wait") != NULL);
    CHECK_EQ(weft_view_gatherv_wait(view, mine, &word, 1, &blocks), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_bcast_wait(view, mine, &word, sizeof word), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_send_wait(view, set_of(view, rank), &word, 4, 0), WEFT_ERR_INVALID_PARAM);
    /* its set by its rank is as good a root as any */
    CHECK_EQ(weft_view_bcast_wait(view, set_of(view, 0), &word, sizeof word), WEFT_OK);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_rooted_operation_on_ones_own_set_is_refused_and_does_not_hang) {
    in_processes(2, own_set);
}

TEST(a_set_of_another_view_is_refused) {
    weft_view_t *view = view_of_one();
    weft_resource_set_t other = *set_of(view, 0);
    uint32_t word = 0;
    other.process_id++;
    CHECK_EQ(weft_view_bcast_wait(view, &other, &word, sizeof word), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_bcast_wait(view, NULL, &word, sizeof word), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_barrier_wait(NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

/* ---- one to one ---------------------------------------------------------------------------- */

static void note(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

static void in_a_ring(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join_and_look(store, rank, size);
    const weft_resource_set_t *next = set_of(view, (rank + 1) % size),
                              *before = set_of(view, (rank + size - 1) % size);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t mine = rank * 1000 + i, got = 0;
        weft_status_t sent = WEFT_IN_PROGRESS;
        weft_op_t op = {.done = note, .arg = &sent};
        weft_status_t st = weft_view_send(view, next, &mine, sizeof mine, 5, &op);
        if (st != WEFT_IN_PROGRESS) sent = st;
        CHECK_EQ(weft_view_receive_wait(view, before, &got, sizeof got, 5), WEFT_OK);
        CHECK_EQ(got, before->rank * 1000 + i);
        while (sent == WEFT_IN_PROGRESS) weft_worker_wait(weft_view_worker(view), 1000);
        CHECK_EQ(sent, WEFT_OK);
    }
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(processes_send_to_each_other_while_others_do_nothing) {
    in_processes(2, in_a_ring); /* both directions of one pair */
    in_processes(3, in_a_ring);
}

/* ---- blocks and objects -------------------------------------------------------------------- */

/* "", "1", "22", "333", … */
static size_t text_of(uint32_t rank, char text[16]) {
    memset(text, '0' + (int)rank, rank);
    text[rank] = 0;
    return rank;
}

static void check_texts(const weft_blocks_t *blocks, uint32_t size) {
    char text[16];
    CHECK_EQ(blocks->n, size);
    for (uint32_t r = 0; r < size; r++) {
        CHECK_EQ(blocks->len[r], text_of(r, text));
        CHECK(memcmp(blocks->data[r], text, blocks->len[r]) == 0);
    }
}

static void unequal(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join_and_look(store, rank, size);
    weft_blocks_t *all = NULL, *at_two = NULL;
    char text[16];
    size_t len = text_of(rank, text);
    CHECK_EQ(weft_view_gatherv_wait(view, NULL, text, len, &all), WEFT_OK);
    CHECK_EQ(weft_view_gatherv_wait(view, set_of(view, 2), text, len, &at_two), WEFT_OK);
    CHECK_EQ(at_two != NULL, rank == 2);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
    check_texts(all, size); /* they outlive the view */
    if (at_two) check_texts(at_two, size);
    weft_blocks_free(all);
    weft_blocks_free(at_two);
    weft_blocks_free(NULL);
}

TEST(texts_of_unequal_lengths_are_gathered) {
    in_processes(4, unequal);
}

/* A list of numbers, as the program has it. */
struct list_of_numbers {
    uint32_t n, number[8];
};
static size_t list_size(const void *object, void *arg) {
    return ((const struct list_of_numbers *)object)->n * 4;
}
static void list_pack(const void *object, void *bytes, void *arg) {
    const struct list_of_numbers *list = object;
    if (list->n) memcpy(bytes, list->number, list->n * 4);
}
static weft_status_t list_unpack(void *object, const void *bytes, size_t len, void *arg) {
    struct list_of_numbers *list = object;
    if (len % 4 || len > sizeof list->number) return WEFT_ERR_PROTOCOL;
    list->n = (uint32_t)len / 4;
    memcpy(list->number, bytes, len);
    return WEFT_OK;
}
static const weft_serializer_t lists = {list_size, list_pack, list_unpack, NULL};

static void objects(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join_and_look(store, rank, size);
    struct list_of_numbers mine = {.n = rank}, list[8], shared = {0};
    void *into[8];
    memset(list, 0xff, sizeof list);
    for (uint32_t i = 0; i < rank; i++) mine.number[i] = rank + i;
    for (uint32_t r = 0; r < size; r++) into[r] = &list[r];
    CHECK_EQ(weft_view_gather_objects_wait(view, NULL, &lists, &mine, into), WEFT_OK);
    for (uint32_t r = 0; r < size; r++) {
        CHECK_EQ(list[r].n, r);
        for (uint32_t i = 0; i < r; i++) CHECK_EQ(list[r].number[i], r + i);
    }
    CHECK_EQ(weft_view_gather_objects_wait(view, set_of(view, 1), &lists, &mine,
                                           rank == 1 ? into : NULL),
             WEFT_OK);
    if (rank == 2) shared = mine;
    CHECK_EQ(weft_view_bcast_object_wait(view, set_of(view, 2), &lists, &shared), WEFT_OK);
    CHECK_EQ(shared.n, 2);
    CHECK_EQ(shared.number[1], 3);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(objects_are_gathered_and_broadcast_by_their_serializer) {
    in_processes(3, objects);
}

TEST(what_a_serializer_lacks_is_named) {
    weft_view_t *view = view_of_one();
    struct list_of_numbers list = {0};
    weft_serializer_t half = {.size = list_size};
    void *into[1] = {&list};
    weft_request_t *request;
    weft_blocks_t *blocks;
    weft_op_t op = {.request_p = &request};
    CHECK_EQ(weft_view_gather_objects(view, NULL, &half, &list, into, NULL),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_gather_objects(view, NULL, NULL, &list, into, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_gather_objects(view, NULL, &lists, &list, NULL, NULL),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_gatherv(view, NULL, &list, 4, &blocks, &op), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_gatherv(view, NULL, NULL, 4, &blocks, NULL), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(an_operation_of_two_rounds_refuses_what_it_cannot_do) {
    weft_view_t *view = view_of_one();
    struct list_of_numbers list = {0};
    void *into[1] = {&list};
    weft_blocks_t *blocks;
    weft_completion_t completion = {.count = 1};
    weft_layout_t layout = {.kind = WEFT_LAYOUT_STRIDED, .block = 4, .stride = 4, .count = 1};
    const struct {
        weft_op_t op;
        weft_status_t status;
    } bad[] = {{{.completion = &completion}, WEFT_ERR_UNSUPPORTED},
               {{.layout = &layout}, WEFT_ERR_UNSUPPORTED},
               {{.stream = &list}, WEFT_ERR_UNSUPPORTED},
               {{.reserved = {1}}, WEFT_ERR_INVALID_PARAM},
               {{.flags = 1u << 31}, WEFT_ERR_INVALID_PARAM}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const weft_op_t *op = &bad[i].op;
        CHECK_EQ(weft_view_gatherv(view, NULL, &list, 4, &blocks, op), bad[i].status);
        CHECK_EQ(weft_view_gather_objects(view, NULL, &lists, &list, into, op), bad[i].status);
        CHECK_EQ(weft_view_bcast_object(view, set_of(view, 0), &lists, &list, op), bad[i].status);
    }
    CHECK_EQ(completion.count, 1);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

static weft_status_t unpack_nothing(void *object, const void *bytes, size_t len, void *arg) {
    return WEFT_ERR_TRUNCATED;
}

TEST(what_unpack_refuses_ends_the_operation) {
    weft_view_t *view = view_of_one();
    weft_serializer_t picky = {list_size, list_pack, unpack_nothing, NULL};
    struct list_of_numbers list = {.n = 1};
    void *into[1] = {&list};
    CHECK_EQ(weft_view_gather_objects_wait(view, NULL, &picky, &list, into), WEFT_ERR_TRUNCATED);
    CHECK_EQ(weft_view_barrier_wait(view), WEFT_OK); /* the view goes on */
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

/* ---- a death ------------------------------------------------------------------------------- */

static _Atomic uint32_t *n_there; /* of the processes of the test */

static void die_between(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = join(store, rank, size);
    weft_blocks_t *blocks;
    ++*n_there;
    while (rank == 1 && *n_there < size) sched_yield();
    if (rank == 1) _exit(0);
    weft_status_t st = weft_view_gatherv_wait(view, NULL, "x", 1, &blocks);
    CHECK(st == WEFT_ERR_PEER_FAILED || st == WEFT_ERR_PEER_CLOSED);
    CHECK(blocks == NULL);
    CHECK_EQ(weft_view_release_wait(view), WEFT_OK);
}

TEST(a_death_ends_both_rounds) {
    n_there =
        mmap(NULL, sizeof *n_there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    in_processes(3, die_between);
}

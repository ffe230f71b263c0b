/* Large blocks in exposed regions: the other members of the host map them. */
#include "processes.h"

#include <sys/stat.h>

static const char by_copies_only[] =
    "allreduce=single_copy,bcast=single_copy,allgather=single_copy,alltoall=single_copy,"
    "reduce=single_copy,reduce_scatter=single_copy,gather=single_copy,scatter=single_copy";

enum { N = 20000, MEMBERS = 3 };

/* ---- memory ---------------------------------------------------------------------------------- */

struct area {
    weft_mem_t *mem;
    int64_t *at;
    uint64_t inode;
};

static struct area allocate(struct process *p, int expose, size_t len) {
    struct area area;
    weft_mem_info_t info;
    struct stat stat;
    weft_mem_params_t params = {.rights = WEFT_MEM_READ, .expose = expose};
    if (weft_mem_alloc(p->worker, len, &params, &area.mem) < 0) _exit(40);
    if (weft_mem_describe(area.mem, &info) < 0) _exit(41);
    area.at = info.base;
    uint64_t offset;
    int fd;
    if (weft_mem_export(area.mem, &fd, &offset) < 0 || fstat(fd, &stat) < 0) _exit(42);
    area.inode = stat.st_ino;
    return area;
}

static void note_status(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

static void release(struct process *p, const struct area *area) {
    weft_status_t status = WEFT_IN_PROGRESS;
    weft_op_t op = {.done = note_status, .arg = &status};
    weft_status_t st = weft_mem_release(area->mem, &op);
    while (st == WEFT_IN_PROGRESS && status == WEFT_IN_PROGRESS) weft_worker_wait(p->worker, 100);
    if (st < 0 || (st == WEFT_IN_PROGRESS && status < 0)) _exit(43);
}

/* Of a memfd, in this process. */
static int mappings_of(uint64_t inode) {
    char line[512];
    int n = 0;
    FILE *in = fopen("/proc/self/maps", "re");
    if (!in) _exit(44);
    while (fgets(line, sizeof line, in)) {
        unsigned long long found;
        if (sscanf(line, "%*s %*s %*s %*s %llu", &found) == 1 && found == inode) n++;
    }
    fclose(in);
    return n;
}

static uint64_t mapped_by(const struct process *p) {
    return weft_worker_count(p->worker, "coll.mapped");
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void fill(int64_t *at, int64_t first, size_t n) {
    for (size_t i = 0; i < n; i++) at[i] = first + (int64_t)i;
}

static void expect(const int64_t *at, int64_t first, int64_t step, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (at[i] != first + step * (int64_t)i) _exit(45);
}

static void sum(struct process *p, int64_t *src, int64_t *dst) {
    int64_t ranks = p->size, all = ranks * (ranks - 1) / 2 * 1000;
    fill(src, p->rank * 1000, N);
    if (weft_allreduce_wait(p->team, src, dst, N, WEFT_INT64, WEFT_SUM) < 0) _exit(46);
    expect(dst, all, ranks, N);
    fill(dst, p->rank * 1000, N);
    if (weft_allreduce_wait(p->team, WEFT_IN_PLACE, dst, N, WEFT_INT64, WEFT_SUM) < 0) _exit(47);
    expect(dst, all, ranks, N);
}

static void move_all_kinds(struct process *p, int64_t *src, int64_t *dst) {
    int64_t rank = p->rank, ranks = p->size;
    sum(p, src, dst);
    fill(src, 5, N);
    if (rank != 1) memset(src, 0, N * sizeof *src);
    if (weft_bcast_wait(p->team, src, N, WEFT_INT64, 1) < 0) _exit(48);
    expect(src, 5, 1, N);
    fill(src, rank * 1000, N * MEMBERS);
    if (weft_allgather_wait(p->team, src, dst, N, WEFT_INT64) < 0) _exit(49);
    for (int64_t r = 0; r < ranks; r++) expect(dst + r * N, r * 1000, 1, N);
    if (weft_alltoall_wait(p->team, src, dst, N, WEFT_INT64) < 0) _exit(50);
    for (int64_t r = 0; r < ranks; r++) expect(dst + r * N, r * 1000 + rank * N, 1, N);
    if (weft_reduce_scatter_wait(p->team, src, dst, N, WEFT_INT64, WEFT_SUM) < 0) _exit(51);
    expect(dst, ranks * (ranks - 1) / 2 * 1000 + ranks * rank * N, ranks, N);
    if (weft_reduce_wait(p->team, src, dst, N, WEFT_INT64, WEFT_SUM, 2) < 0) _exit(52);
    if (rank == 2) expect(dst, ranks * (ranks - 1) / 2 * 1000, ranks, N);
    if (weft_gather_wait(p->team, src, dst, N, WEFT_INT64, 0) < 0) _exit(53);
    for (int64_t r = 0; rank == 0 && r < ranks; r++) expect(dst + r * N, r * 1000, 1, N);
    if (weft_scatter_wait(p->team, src, dst, N, WEFT_INT64, 1) < 0) _exit(54);
    expect(dst, 1000 + rank * N, 1, N);
}

static void move_in_regions(struct process *p, int expose) {
    size_t len = N * MEMBERS * sizeof(int64_t);
    struct area src = allocate(p, expose, len), dst = allocate(p, expose, len);
    move_all_kinds(p, src.at, dst.at);
    p->page->number[p->rank] = mapped_by(p);
    release(p, &src);
    release(p, &dst);
}

static void move_exposed(struct process *p) {
    move_in_regions(p, 1);
}
static void move_unexposed(struct process *p) {
    move_in_regions(p, 0);
}

TEST(members_read_exposed_regions_in_place) {
    struct page *page;
    CHECK_EQ(run_all_by(by_copies_only, MEMBERS, "self,shm", move_exposed, &page), 0);
    for (uint32_t r = 0; r < MEMBERS; r++) CHECK(page->number[r] > 0);
    munmap(page, sizeof *page);
}

TEST(members_map_no_region_that_is_not_exposed) {
    struct page *page;
    CHECK_EQ(run_all_by(by_copies_only, MEMBERS, "self,shm", move_unexposed, &page), 0);
    for (uint32_t r = 0; r < MEMBERS; r++) CHECK_EQ(page->number[r], 0);
    munmap(page, sizeof *page);
}

/* ---- from which size on? --------------------------------------------------------------------- */

enum { SMALL = (16 << 10) / sizeof(int64_t) };

/* The second team is made when all have exposed regions. */
static void read_small_blocks(struct process *p) {
    struct area src = allocate(p, 1, SMALL * sizeof(int64_t));
    struct area dst = allocate(p, 1, 2 * SMALL * sizeof(int64_t));
    weft_team_t *team;
    if (weft_team_split_wait(p->team, 0, p->rank, &team) < 0) _exit(55);
    fill(src.at, p->rank * 1000, SMALL);
    if (weft_allgather_wait(team, src.at, dst.at, SMALL, WEFT_INT64) < 0) _exit(56);
    for (int64_t r = 0; r < p->size; r++) expect(dst.at + r * SMALL, r * 1000, 1, SMALL);
    p->page->number[p->rank] = mapped_by(p);
    if (weft_team_close_wait(team) < 0) _exit(57);
    release(p, &src);
    release(p, &dst);
}

TEST(members_with_exposed_regions_read_blocks_of_16_kib) {
    struct page *page;
    process_per_core = 1;
    CHECK_EQ(run_all_by("", 2, "self,shm", read_small_blocks, &page), 0);
    process_per_core = 0;
    for (uint32_t r = 0; r < 2; r++) CHECK(page->number[r] > 0);
    munmap(page, sizeof *page);
}

/* ---- a buffer that goes on behind its region ------------------------------------------------- */

/* Memory of the program lies right behind a region: other pages than those of the memfd, which are
 * read by the kernel. */
static void sum_across_the_end(struct process *p) {
    size_t len = N / 2 / 512 * 4096, more = N * sizeof(int64_t);
    struct area hole = allocate(p, 1, more + 4096);
    struct area src = allocate(p, 1, len);
    release(p, &hole); /* the kernel places new memory below what is there */
    void *behind = mmap((char *)src.at + len, more, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    int64_t *dst = calloc(N, sizeof *dst), *own = src.at;
    bool there = behind == (char *)src.at + len;
    if (!there) own = calloc(N, sizeof *own); /* something else is there */
    sum(p, own, dst);
    p->page->number[p->rank] = there;
    if (there) munmap(behind, more);
    release(p, &src);
}

TEST(a_buffer_may_end_behind_its_region) {
    struct page *page;
    CHECK_EQ(run_all_by(by_copies_only, MEMBERS, "self,shm", sum_across_the_end, &page), 0);
    if (!page->number[0] && !page->number[1] && !page->number[2])
        printf("# no region had free addresses behind it\n");
    munmap(page, sizeof *page);
}

/* ---- the life of a mapping ------------------------------------------------------------------- */

static uint64_t inode_of_first(struct process *p, const struct area *area) {
    uint64_t inode = area->inode;
    if (weft_bcast_wait(p->team, &inode, 1, WEFT_UINT64, 0) < 0) _exit(55);
    return inode;
}

static void release_and_go_on(struct process *p) {
    size_t len = N * sizeof(int64_t);
    int64_t *plain = calloc(N, sizeof *plain);
    struct area first = allocate(p, 1, len);
    struct area second = allocate(p, 1, len);
    uint64_t one = inode_of_first(p, &first), other = inode_of_first(p, &second);
    bool mine = p->rank == 0;
    sum(p, first.at, plain);
    if (mappings_of(one) != 1) _exit(56);
    release(p, &first);
    sum(p, second.at, plain);
    if (mappings_of(one) != 0 || mappings_of(other) != 1) _exit(57);
    if (weft_barrier_wait(p->team) < 0) _exit(58);
    if (weft_team_close_wait(p->team) < 0) _exit(59);
    if (mappings_of(other) != mine) _exit(60);
    release(p, &second);
    weft_worker_destroy(p->worker);
    weft_context_destroy(p->context);
    _exit(0);
}

TEST(a_released_region_is_unmapped_by_the_next_collective_and_all_by_the_end) {
    struct page *page;
    CHECK_EQ(run_all_by(by_copies_only, MEMBERS, "self,shm", release_and_go_on, &page), 0);
    munmap(page, sizeof *page);
}

static void sum_in_many_regions(struct process *p) {
    enum { REGIONS = 9 };
    struct area src[REGIONS], dst[REGIONS];
    for (int i = 0; i < REGIONS; i++) {
        src[i] = allocate(p, 1, N * sizeof(int64_t));
        dst[i] = allocate(p, 1, N * sizeof(int64_t));
    }
    for (int i = 0; i < 3 * REGIONS; i++) sum(p, src[i % REGIONS].at, dst[i * 5 % REGIONS].at);
    if (mapped_by(p) == 0) _exit(61);
}

TEST(regions_are_mapped_by_turns_when_there_are_many) {
    struct page *page;
    CHECK_EQ(run_all_by(by_copies_only, MEMBERS, "self,shm", sum_in_many_regions, &page), 0);
    munmap(page, sizeof *page);
}

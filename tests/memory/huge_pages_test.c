/* Huge pages, of the pool and transparent ones, where the machine has them, and what stands in
 * for them where it has none. */
#include <fcntl.h>
#include <sys/mman.h>
#include <tests/support/rma_peers.h>

#define POOL        "/proc/sys/vm/nr_hugepages"
#define POOL_FREE   "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
#define TRANSPARENT "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

#define COMPACT "/proc/sys/vm/compact_memory"

enum { HUGE_PAGE = 2 << 20, SPARE = 8, TRANSPARENT_PAGES = 4, TRIES = 3 };

/* A line of the kernel's; false: there is no such file. */
static bool read_line(const char *path, char *line, int size) {
    FILE *file = fopen(path, "r");
    bool read = file && fgets(line, size, file);
    if (file) fclose(file);
    return read;
}

static bool write_line(const char *path, const char *line) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool written = write(fd, line, strlen(line)) == (ssize_t)strlen(line);
    close(fd);
    return written;
}

static long free_pages(void) {
    char line[64];
    return read_line(POOL_FREE, line, sizeof line) ? atol(line) : 0;
}

/* The pool has so many free pages more, if we may; it is as it was when the same number is taken
 * away. */
static void change_pool(long by) {
    char line[64];
    if (!read_line(POOL, line, sizeof line)) return;
    snprintf(line, sizeof line, "%ld", atol(line) + by);
    (void)write_line(POOL, line);
}

/* The word in brackets is the one that holds. */
static void chosen(const char *line, char *word, size_t size) {
    const char *from = strchr(line, '['), *to = from ? strchr(from, ']') : NULL;
    snprintf(word, size, "%.*s", to ? (int)(to - from - 1) : 0, to ? from + 1 : "");
}

/* kB of the mapping at `at` that huge pages hold, by what /proc/self/smaps calls `kind`. */
static long mapped_huge(const void *at, const char *kind) {
    char line[512];
    unsigned long from, to;
    bool inside = false;
    long kb = -1;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from <= (uintptr_t)at && (uintptr_t)at < to;
        if (inside && strncmp(line, kind, strlen(kind)) == 0) kb = atol(line + strlen(kind));
    }
    if (file) fclose(file);
    return kb;
}

/* kB of huge pages that a shared mapping of the test's own gets, which asks for them as Weft does.
 * 0: the kernel has none to give now, since its free memory is in smaller pieces. */
static long mapped_without_weft(void) {
    const size_t len = TRANSPARENT_PAGES * HUGE_PAGE, room = len + HUGE_PAGE;
    long kb = 0;
    int fd = memfd_create("control", MFD_CLOEXEC);
    char *where = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fd >= 0 && where != MAP_FAILED);
    char *base = where + (HUGE_PAGE - (uintptr_t)where % HUGE_PAGE) % HUGE_PAGE;
    CHECK_EQ(ftruncate(fd, (off_t)len), 0);
    CHECK(mmap(base, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == base);
    if (madvise(base, len, MADV_HUGEPAGE) == 0) {
        memset(base, 1, len);
        kb = mapped_huge(base, "ShmemPmdMapped:");
    }
    munmap(where, room);
    close(fd);
    return kb;
}

struct asked {
    struct rma r;
    weft_mem_t *mem;
    weft_mem_info_t info;
    long in_use, mapped; /* pages of the pool; kB of the mapping */
    long control;        /* kB of what the test mapped itself thereafter */
    weft_status_t st;
};

/* Asks for `len` bytes of such pages and writes to all of them; nothing is checked before what
 * is the machine's is put back. */
static void ask(struct asked *a, size_t len, weft_mem_pages_t pages) {
    long before = free_pages();
    a->st = weft_mem_alloc(a->r.t.b, len,
                           &(weft_mem_params_t){.rights = WEFT_MEM_ALL, .pages = pages}, &a->mem);
    if (a->st < 0 || (a->st = weft_mem_describe(a->mem, &a->info)) < 0) return;
    memset(a->info.base, 1, len);
    a->in_use = before - free_pages();
    a->mapped = mapped_huge(a->info.base, "ShmemPmdMapped:");
}

/* A peer writes and reads what lies there. */
static void check_use(struct asked *a) {
    static char out[100000], in[sizeof out];
    struct tally t;
    weft_rkey_t *key = rma_key(&a->r, a->mem);
    uint64_t at = (uint64_t)(uintptr_t)a->info.base + a->info.len - sizeof out;
    pattern(out, sizeof out, 3);
    CHECK_EQ(RMA_WAIT(&a->r, &t, weft_put(a->r.t.ep, out, sizeof out, at, key, RMA_REMOTE(&t))), 0);
    CHECK(memcmp((char *)(uintptr_t)at, out, sizeof out) == 0);
    CHECK_EQ(RMA_WAIT(&a->r, &t, weft_get(a->r.t.ep, in, sizeof in, at, key, OP(&t))), 0);
    CHECK(memcmp(in, out, sizeof out) == 0);
    weft_rkey_release(key);
}

static void up(struct asked *a) {
    memset(a, 0, sizeof *a);
    rma_up(&a->r, "shm", false, 4096, WEFT_MEM_ALL, NULL, 0);
}

TEST(huge_pages_come_out_of_the_pool_and_stay_while_the_region_does) {
    struct asked a;
    up(&a);
    change_pool(SPARE);
    long before = free_pages();
    if (before >= SPARE / 2) ask(&a, 2 * HUGE_PAGE + 1, WEFT_PAGES_HUGE);
    change_pool(-SPARE); /* those in use stay until they are free */
    if (before < SPARE / 2) {
        rma_down(&a.r);
        SKIP("no huge pages here");
    }
    CHECK_EQ(a.st, 0);
    CHECK_EQ(a.info.page, HUGE_PAGE);
    CHECK_EQ((uintptr_t)a.info.base % HUGE_PAGE, 0);
    CHECK_EQ(a.in_use, 3);
    check_use(&a);
    /* The pool has none to spare now: a page that left would never come back. */
    CHECK_EQ(weft_mem_advise(a.mem, 0, HUGE_PAGE, WEFT_ADVISE_DONT_NEED), 0);
    CHECK_EQ(((char *)a.info.base)[5], 0);
    CHECK_EQ(((char *)a.info.base)[HUGE_PAGE], 1);
    rma_down(&a.r);
}

TEST(normal_pages_stand_in_where_the_pool_is_too_small) {
    struct asked a;
    up(&a);
    size_t len = ((size_t)free_pages() + 16) * HUGE_PAGE; /* so many are not freed meanwhile */
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .pages = WEFT_PAGES_HUGE};
    CHECK_EQ(weft_mem_alloc(a.r.t.b, len, &params, &a.mem), 0);
    CHECK_EQ(weft_mem_describe(a.mem, &a.info), 0);
    CHECK_EQ(a.info.page, sysconf(_SC_PAGESIZE));
    check_use(&a);
    rma_down(&a.r);
}

/* As ask(), while the kernel gives shared memory huge pages `when`. False: we may not say so. */
static bool ask_while(struct asked *a, const char *when, size_t len, weft_mem_pages_t pages) {
    char line[256] = "", before[32];
    read_line(TRANSPARENT, line, sizeof line);
    chosen(line, before, sizeof before);
    if (!*before || (strcmp(before, when) != 0 && !write_line(TRANSPARENT, when))) return false;
    ask(a, len, pages);
    if (a->mapped <= 0) a->control = mapped_without_weft();
    if (strcmp(before, when) != 0) (void)write_line(TRANSPARENT, before);
    return true;
}

/* Where the kernel gives huge pages to a mapping of the test's own, the region gets them, too. */
static void look_for_transparent(weft_mem_pages_t pages) {
    struct asked a;
    int given = 0;
    a.mapped = 0;
    for (int i = 0; i < TRIES && a.mapped <= 0; i++) {
        up(&a);
        (void)write_line(COMPACT, "1");
        if (!ask_while(&a, "advise", TRANSPARENT_PAGES * HUGE_PAGE, pages)) {
            rma_down(&a.r);
            SKIP("no transparent huge pages of shared memory here");
        }
        CHECK_EQ(a.st, 0);
        check_use(&a);
        given += a.control > 0;
        rma_down(&a.r);
    }
    if (a.mapped <= 0 && given < TRIES) SKIP("the kernel has no free huge page");
    CHECK(a.mapped >= HUGE_PAGE / 1024);
}
TEST(transparent_huge_pages_are_used_where_the_kernel_gives_them) {
    look_for_transparent(WEFT_PAGES_TRANSPARENT);
}
TEST(large_regions_ask_for_transparent_huge_pages_by_themselves) {
    look_for_transparent(WEFT_PAGES_AUTO);
}

TEST(normal_pages_stand_in_where_the_kernel_gives_no_transparent_ones) {
    struct asked a;
    up(&a);
    if (!ask_while(&a, "never", TRANSPARENT_PAGES * HUGE_PAGE, WEFT_PAGES_TRANSPARENT)) {
        rma_down(&a.r);
        SKIP("no transparent huge pages of shared memory here");
    }
    CHECK_EQ(a.st, 0);
    CHECK_EQ(a.mapped, 0);
    check_use(&a);
    rma_down(&a.r);
}

TEST(normal_pages_are_normal_whatever_the_kernel_gives) {
    struct asked a;
    up(&a);
    if (!ask_while(&a, "advise", TRANSPARENT_PAGES * HUGE_PAGE, WEFT_PAGES_NORMAL)) {
        rma_down(&a.r);
        SKIP("no transparent huge pages of shared memory here");
    }
    CHECK_EQ(a.st, 0);
    CHECK_EQ(a.mapped, 0);
    CHECK_EQ(a.info.page, sysconf(_SC_PAGESIZE));
    rma_down(&a.r);
}

/* Memory for other processes: what it promises them, and us. */
#include "../harness.h"
#include <base/huge_pages.h>
#include <base/sealed.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { LEN = 64 * 1024 };

static int signals, refusals;
static bool large_blocks;

/* As on a system that gives shared memory huge pages by itself (shmem_enabled: always). */
__attribute__((visibility("default"))) int fstat(int fd, struct stat *st) {
    static int (*real)(int, struct stat *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fstat");
    int rc = real(fd, st);
    if (rc == 0 && large_blocks) st->st_blksize = 2 << 20;
    return rc;
}

/* The library's calls come here, too. */
__attribute__((visibility("default"))) int fallocate(int fd, int mode, off_t offset, off_t len) {
    if (signals == 0 && refusals == 0) return (int)syscall(SYS_fallocate, fd, mode, offset, len);
    errno = signals ? EINTR : ENOSPC;
    if (signals)
        signals--;
    else
        refusals--;
    return -1;
}

TEST(its_length_stays_and_only_who_shares_it_writes) {
    for (unsigned how = 0; how < 4; how++) {
        void *at = NULL;
        int fd = weft__sealed_make("test", LEN, how, 0, &at);
        CHECK(fd >= 0);
        memset(at, 7, LEN);
        CHECK_EQ(ftruncate(fd, LEN / 2), -1);
        CHECK_EQ(ftruncate(fd, 2 * LEN), -1);
        CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        void *again = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK_EQ(again == MAP_FAILED, (how & SEALED_MINE) != 0);
        if (again != MAP_FAILED) munmap(again, LEN);
        munmap(at, LEN);
        close(fd);
    }
}

TEST(a_signal_while_it_is_filled_does_no_harm) {
    void *at = NULL;
    signals = 3;
    int fd = weft__sealed_make("test", LEN, SEALED_FILLED, 0, &at);
    CHECK(fd >= 0);
    CHECK_EQ(signals, 0);
    signals = 3;
    CHECK_EQ(weft__sealed_fill(fd, 0, LEN), 0);
    CHECK_EQ(signals, 0);
    munmap(at, LEN);
    close(fd);
}

TEST(without_memory_for_it_there_is_none_and_no_descriptor) {
    void *at = NULL;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    refusals = 1;
    CHECK_EQ(weft__sealed_make("test", LEN, SEALED_FILLED, 0, &at), -1);
    CHECK_EQ(errno, ENOSPC);
    CHECK(!at);
    int again = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(again);
    CHECK_EQ(again, next);
}

TEST(a_part_begins_at_any_page_whatever_its_size_of_a_block) {
    enum { PAGES = 4 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct pages part;
    void *at = NULL;
    int fd = weft__sealed_make("test", PAGES * page, 0, 0, &at);
    CHECK(fd >= 0);
    memset(at, 7, PAGES * page);
    large_blocks = true;
    weft_status_t st = weft__pages_import(fd, page, 2 * page, true, &part);
    large_blocks = false;
    CHECK_EQ(st, 0);
    CHECK_EQ(part.map_len, 2 * page);
    CHECK_EQ(((char *)part.map)[0], 7);
    weft__pages_free(&part);
    munmap(at, PAGES * page);
    close(fd);
}

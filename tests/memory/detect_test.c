/* What a pointer points to is found without a walk through the pages of the process, on kernels
 * that can be asked and on others. */
#include "../harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <tests/support/call_filter.h>
#include <weft/weft.h>

enum { PAGE = 4096, HUGE = 2 << 20, MAPPING_QUERY_COMMAND = 'f' << 8 | 17 };

static int opened_smaps;

/* The library's own calls come here first. */
__attribute__((visibility("default"))) int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    opened_smaps += strstr(path, "smaps") != NULL;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* As on a kernel before 6.11: the command is not known. */
static bool without_the_query(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MAPPING_QUERY_COMMAND, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return filter_install(filter, sizeof filter / sizeof *filter);
}

enum { NO_FILTERS = 99 };
#define EXPECT(condition)                                        \
    if (!(condition)) {                                          \
        printf("  %s:%d: %s\n", __FILE__, __LINE__, #condition); \
        return 1;                                                \
    }

/* Mappings of each kind; 0: each is described as it is. */
static int describe_all(void) {
    weft_mem_info_t info;
    int fd = memfd_create("detect", MFD_CLOEXEC);
    EXPECT(fd >= 0 && ftruncate(fd, 4 * HUGE) == 0);
    char *anonymous =
        mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *file = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(anonymous != MAP_FAILED && file != MAP_FAILED);
    anonymous[PAGE] = 1;
    EXPECT(weft_mem_detect(anonymous + PAGE + 7, &info) == WEFT_OK);
    EXPECT((char *)info.base <= anonymous && (char *)info.base + info.len >= anonymous + 3 * HUGE);
    EXPECT(info.page == PAGE && info.numa_node >= -1);
    /* A page that is not there stays so. */
    EXPECT(weft_mem_detect(anonymous + HUGE, &info) == WEFT_OK && info.numa_node == -1);
    unsigned char in_core = 1;
    EXPECT(mincore(anonymous + HUGE, PAGE, &in_core) == 0 && !(in_core & 1));
    file[0] = 1;
    EXPECT(weft_mem_detect(file, &info) == WEFT_OK);
    EXPECT((char *)info.base <= file && (char *)info.base + info.len >= file + 3 * PAGE &&
           info.page == PAGE);
    munmap(file, 3 * PAGE);
    EXPECT(weft_mem_detect(file, &info) == WEFT_ERR_NOT_FOUND);
    munmap(anonymous, 3 * HUGE);
    close(fd);
    EXPECT(opened_smaps == 0);
    return 0;
}

/* Pages of 2 MiB, which the machine may not have. */
static int describe_huge(void) {
    weft_mem_info_t info;
    char *huge = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
    if (huge == MAP_FAILED) return NO_FILTERS;
    EXPECT(weft_mem_detect(huge, &info) == WEFT_OK);
    EXPECT(info.base == huge && info.len == HUGE && info.page == HUGE);
    return 0;
}

static int run_apart(int (*part)(void), bool old_kernel) {
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int code = old_kernel && !without_the_query() ? NO_FILTERS : part();
        fflush(stdout);
        _exit(code);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(a_pointer_is_described_without_reading_smaps) {
    CHECK_EQ(run_apart(describe_all, false), 0);
}

TEST(a_pointer_is_described_the_same_on_an_older_kernel) {
    int code = run_apart(describe_all, true);
    if (code == NO_FILTERS) SKIP("no seccomp filters here");
    CHECK_EQ(code, 0);
}

TEST(huge_pages_are_reported_on_any_kernel) {
    int here = run_apart(describe_huge, false), older = run_apart(describe_huge, true);
    if (here == NO_FILTERS || older == NO_FILTERS) SKIP("no huge pages here");
    CHECK(here == 0 && older == 0);
}

/* What an emulator of one process lacks of Linux: a name a line. lacks.txt has the tests that need
 * it. Built for aarch64 and run in the emulator by `run`. */
#include <errno.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static bool reads_a_process(void) {
    char from = 1, to = 0;
    struct iovec here = {&to, 1}, there = {&from, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 && to == 1;
}

/* Of shared memory, which has no pages before. */
static bool populates(void) {
    int fd = memfd_create("lacks", 0);
    struct stat stat;
    if (fd < 0 || ftruncate(fd, 65536) < 0) return false;
    void *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return madvise(at, 65536, MADV_POPULATE_WRITE) == 0 && fstat(fd, &stat) == 0 && stat.st_blocks;
}

static bool removes(void) {
    int fd = memfd_create("lacks", 0);
    if (fd < 0 || ftruncate(fd, 65536) < 0) return false;
    char *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *at = 1;
    return madvise(at, 65536, MADV_REMOVE) == 0 && *at == 0;
}

/* Where the pool is empty, the kernel knows them at least. */
static bool maps_huge_pages(void) {
    int fd = memfd_create("lacks", MFD_HUGETLB);
    if (fd < 0 || ftruncate(fd, 2 << 20) < 0) return false;
    void *at = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at != MAP_FAILED || errno == ENOMEM;
}

static bool paces(void) {
    uint64_t rate = 1 << 20;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0;
}

static bool child_succeeds(void (*what)(void)) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        what();
        _exit(1);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* What a child finds of a page that the parent gave this advice for. */
static char found;
static bool child_finds(int advice, char *at) {
    int status;
    *at = 1;
    if (madvise(at, 4096, advice) < 0) return false;
    pid_t pid = fork();
    if (pid == 0) _exit(mincore(at, 4096, (unsigned char *)&found) < 0 ? 2 : *at);
    return waitpid(pid, &status, 0) == pid &&
           WEXITSTATUS(status) == (advice == MADV_DONTFORK ? 2 : 0);
}
static char *page_of_its_own(void) {
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static bool wipes_on_fork(void) {
    return child_finds(MADV_WIPEONFORK, page_of_its_own());
}
static bool keeps_from_forks(void) {
    return child_finds(MADV_DONTFORK, page_of_its_own());
}

static bool knows_sockets(void) {
    return socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG) >= 0;
}

/* In a child of a process that has threads. */
static void *wait_for_a_signal(void *arg) {
    return pause() < 0 ? arg : NULL;
}
static void *end_at_once(void *arg) {
    return arg;
}
static void start_a_thread(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_at_once, NULL) == 0 && pthread_join(thread, NULL) == 0)
        _exit(0);
}
static bool forks_beside_threads(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, wait_for_a_signal, NULL) == 0 &&
           child_succeeds(start_a_thread);
}

static void be_traced(void) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0) _exit(0);
}
static void execute_itself(void) {
    execl("/proc/self/exe", "lacks", "quiet", (char *)NULL);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        bool (*has)(void);
        void (*does)(void);
    } calls[] = {{"process_vm_readv", reads_a_process, NULL},
                 {"populate", populates, NULL},
                 {"remove", removes, NULL},
                 {"pacing", paces, NULL},
                 {"wipeonfork", wipes_on_fork, NULL},
                 {"dontfork", keeps_from_forks, NULL},
                 {"sock_diag", knows_sockets, NULL},
                 {"hugetlb", maps_huge_pages, NULL},
                 {"ptrace", NULL, be_traced},
                 {"exec", NULL, execute_itself},
                 {"fork_beside_threads", forks_beside_threads, NULL}};
    if (argc > 1) return 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!(calls[i].has ? calls[i].has() : child_succeeds(calls[i].does))) puts(calls[i].name);
    return 0;
}

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t mix(uint64_t hash, const void *bytes, size_t len) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t weft__process_host(void) {
    char boot[64];
    struct stat pids;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, boot, sizeof boot);
    if (fd >= 0) close(fd);
    if (len <= 0 || stat("/proc/self/ns/pid", &pids) < 0) return 0;
    uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), boot, (size_t)len);
    hash = mix(hash, &pids.st_ino, sizeof pids.st_ino);
    return hash ? hash : 1;
}

void weft__process_own(const struct reactor *reactor, uint64_t *host_p, uint32_t *pid_p) {
    bool simulated = weft__reactor_virtual(reactor);
    *host_p = simulated ? 0 : weft__process_host();
    *pid_p = simulated ? 1 : (uint32_t)getpid();
}

static void ended(struct watch *watch, int events) {
    struct process *process = (struct process *)watch;
    process->ended(process);
}

bool weft__process_watch(struct reactor *reactor, struct process *process) {
    bool here = process->host && process->host == weft__process_host();
    bool own = process->pid == (uint32_t)getpid();
    process->known = here && (own || process->watched);
    if (!here || process->known) return true;
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (fd < 0) return errno != ESRCH;
    process->watch = (struct watch){.ready = ended};
    process->watched = weft__watch_start(reactor, &process->watch, fd, WATCH_READ) == WEFT_OK;
    process->known = process->watched;
    if (!process->watched) close(fd);
    return true;
}

void weft__process_unwatch(struct reactor *reactor, struct process *process) {
    if (!process->watched) return;
    process->watched = false;
    weft__watch_stop(reactor, &process->watch);
    close(process->watch.fd);
}

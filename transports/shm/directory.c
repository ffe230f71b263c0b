/* Where the sockets are: a directory that nobody else may enter. */
#include "shm.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <reactor/hash.h>
#include <reactor/host.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int directory_name(weft_context_t *context, char *buf, size_t size) {
    const char *set = weft__setting_str(context, SETTING_SHM_DIRECTORY),
               *runtime = secure_getenv("XDG_RUNTIME_DIR");
    if (set && *set) return snprintf(buf, size, "%s", set);
    if (runtime && *runtime == '/') return snprintf(buf, size, "%s/weft", runtime);
    return snprintf(buf, size, "/tmp/weft-%u", (unsigned)geteuid());
}

/* Made if it is not there; refused unless it is ours and closed to others. */
weft_status_t weft__shm_directory(struct shm_iface *iface) {
    char *name = iface->directory;
    struct stat st;
    int len = directory_name(weft__reactor_context(iface->iface.reactor), name, sizeof iface->directory);
    if (len < 0 || len >= (int)sizeof iface->directory || name[0] != '/')
        return weft__fail(WEFT_ERR_INVALID_PARAM, "shm.directory: an absolute path of at most %d bytes",
                          SHM_DIRECTORY_MAX);
    if (mkdir(name, 0700) < 0 && errno != EEXIST)
        return weft__fail(weft__errno_status(errno), "shm.directory %s: %s", name, strerror(errno));
    if (lstat(name, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return weft__fail(WEFT_ERR_INSECURE, "shm.directory %s must be a directory of yours with mode 0700", name);
    return WEFT_OK;
}

weft_status_t weft__shm_path(const struct shm_iface *iface, const char *directory, const char *name,
                             char path[108]) {
    if (!*name || *name == '.' || strchr(name, '/'))
        return weft__fail(WEFT_ERR_ADDRESS, "shm://%s: a name without slashes that begins with no dot", name);
    if (snprintf(path, 108, "%s/%s", directory, name) >= 108)
        return weft__fail(WEFT_ERR_ADDRESS, "shm://%s: the name is too long", name);
    return WEFT_OK;
}

/* This boot of this machine. */
weft_status_t weft__shm_host(uint8_t host[16]) {
    char text[HOST_BOOT_ROOM];
    unsigned filled = 0;
    weft__host_boot(text);
    for (const char *at = text; filled < 32 && *at; at++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, *at);
        if (!digit) continue;
        host[filled / 2] = (uint8_t)(host[filled / 2] << 4 | (digit - digits));
        filled++;
    }
    return filled == 32 ? WEFT_OK : weft__fail(WEFT_ERR_UNSUPPORTED, "shm: this machine has no boot id");
}

/* ---- binding -------------------------------------------------------------------------------------------------- */

static bool somebody_listens(const struct sockaddr_un *at) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return true;
    bool refused = connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

static int bind_fresh(int fd, const struct sockaddr_un *at) {
    int st = bind(fd, (const struct sockaddr *)at, sizeof *at);
    if (st == 0 || errno != EADDRINUSE) return st;
    if (somebody_listens(at)) {
        errno = EADDRINUSE;
        return -1;
    }
    unlink(at->sun_path); /* its process died */
    return bind(fd, (const struct sockaddr *)at, sizeof *at);
}

enum { LOCK_TRIES = 2000, LOCK_PAUSE_US = 1000 }; /* held for microseconds, but its holder may lose the processor */

/* Whoever finds a dead process's socket must be alone with it, or two may both replace it: hence the lock. */
static int bind_alone(int fd, const struct sockaddr_un *at, int backlog) {
    char directory[108];
    snprintf(directory, sizeof directory, "%s", at->sun_path);
    *strrchr(directory, '/') = 0;
    int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return -1;
    int st = -1;
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
            st = bind_fresh(fd, at);
            if (st == 0) st = listen(fd, backlog);
            break;
        }
        usleep(LOCK_PAUSE_US);
    }
    int error = errno;
    flock(lock, LOCK_UN); /* a child that was forked meanwhile has it, too */
    close(lock);
    errno = error;
    return st;
}

/* A worker's own name is like no other: nobody has to be kept from it. */
static int bind_own(int fd, const struct sockaddr_un *at, int backlog) {
    int st = bind(fd, (const struct sockaddr *)at, sizeof *at);
    return st == 0 ? listen(fd, backlog) : st;
}

weft_status_t weft__shm_bind(const char *path, bool own, int backlog, int *fd_p) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return weft__fail(weft__errno_status(errno), "shm: socket: %s", strerror(errno));
    if ((own ? bind_own : bind_alone)(fd, &at, backlog) < 0) {
        int error = errno;
        close(fd);
        return weft__fail(weft__errno_status(error), "shm: bind to %s: %s", path, strerror(error));
    }
    *fd_p = fd;
    return WEFT_OK;
}

/* ---- what the dead left behind ----------------------------------------------------------------------------------- */

static bool is_left_behind(const char *directory, const char *name, char path[108]) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int pid;
    if (sscanf(name, SHM_OWN_NAME_PID, &pid) != 1 || pid <= 0 || pid == getpid()) return false;
    if (kill(pid, 0) == 0 || errno != ESRCH) return false;
    if (snprintf(path, 108, "%s/%s", directory, name) >= 108) return false;
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    return !somebody_listens(&at); /* its process may live where we do not see it */
}

static unsigned sweep(DIR *dir, const char *directory) {
    char path[108];
    unsigned n = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL; n++)
        if (is_left_behind(directory, entry->d_name, path)) unlink(path);
    return n;
}

enum { SWEEP_ENTRIES = 16 }; /* looked at for each worker */

/* The more a look finds, the more of a process's workers come until the next: a thousand workers do not look at a thousand
 * sockets each. */
void weft__shm_sweep(const char *directory) {
    static _Atomic uint64_t last; /* the directory's hash, and how many may still come */
    uint64_t hash = hash_more(HASH_BEGIN, directory, strlen(directory)) << 32;
    uint64_t was = atomic_load_explicit(&last, memory_order_relaxed);
    if (was > hash && was - hash <= UINT32_MAX) {
        atomic_store_explicit(&last, was - 1, memory_order_relaxed); /* of two at once, one may count for both */
        return;
    }
    DIR *dir = opendir(directory);
    if (!dir) return;
    atomic_store_explicit(&last, hash + sweep(dir, directory) / SWEEP_ENTRIES, memory_order_relaxed);
    closedir(dir);
}

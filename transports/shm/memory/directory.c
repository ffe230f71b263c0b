/* Finds, checks and makes the directory of sockets, binds them, and removes those of dead
 * processes. */
#include "directory.h"
#include <base/hash.h>
#include <base/host.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

/*
 * The directories that may hold the sockets, in the order tried. Unless shm.directory is set, they
 * do not depend on the environment. So a service without XDG_RUNTIME_DIR, without HOME, or with its
 * own /tmp finds the listeners of a login shell of the same user, and the other way round.
 */
enum { PLACES = 3, PLACE_ROOM = SHM_DIRECTORY_MAX + 1 };

static weft_status_t read_setting(const char *set, char place[PLACE_ROOM]) {
    int len = snprintf(place, PLACE_ROOM, "%s", set);
    if (len < PLACE_ROOM && place[0] == '/') return WEFT_OK;
    return weft__fail(WEFT_ERR_INVALID_PARAM,
                      "shm.directory must be an absolute path of at most %d bytes",
                      SHM_DIRECTORY_MAX);
}

static weft_status_t list_places(weft_context_t *context, char place[PLACES][PLACE_ROOM],
                                 unsigned *n_p) {
    const char *set = weft__setting_str(context, SETTING_SHM_DIRECTORY);
    unsigned uid = (unsigned)geteuid();
    *n_p = 1;
    if (set && *set) return read_setting(set, place[0]);
    snprintf(place[0], PLACE_ROOM, "/dev/shm/weft-%u", uid);
    snprintf(place[1], PLACE_ROOM, "/run/user/%u/weft", uid);
    snprintf(place[2], PLACE_ROOM, "/tmp/weft-%u", uid);
    *n_p = PLACES;
    return WEFT_OK;
}

/* OK for a directory of this user that no other user can enter. */
static weft_status_t check_place(const char *name) {
    struct stat st;
    if (lstat(name, &st) < 0)
        return weft__fail(weft__errno_status(errno), "%s: %s", name, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return weft__fail(
            WEFT_ERR_INSECURE,
            "%s must be a directory owned by this user with mode 0700 (shm.directory)", name);
    return WEFT_OK;
}

static weft_status_t make_place(const char *name) {
    if (mkdir(name, 0700) < 0 && errno != EEXIST)
        return weft__fail(weft__errno_status(errno), "%s: %s (shm.directory)", name,
                          strerror(errno));
    return check_place(name);
}

/* Takes the first usable place. The error is that of the last place. */
weft_status_t weft__shm_directory(weft_context_t *context, char directory[PLACE_ROOM]) {
    char place[PLACES][PLACE_ROOM];
    unsigned n;
    weft_status_t st = list_places(context, place, &n);
    if (st < 0) return st;
    for (unsigned i = 0; i < n; i++) {
        st = make_place(place[i]);
        if (st < 0) continue;
        memcpy(directory, place[i], PLACE_ROOM);
        return WEFT_OK;
    }
    return st;
}

static weft_status_t not_found(const char *name, char place[PLACES][PLACE_ROOM], unsigned n) {
    char looked[PLACES * (PLACE_ROOM + 4)] = "";
    for (unsigned i = 0; i < n; i++) {
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof looked - used, "%s%s", i ? ", " : "", place[i]);
    }
    return weft__fail(WEFT_ERR_REFUSED,
                      "shm://%s: no listener of this user has that name; looked in %s", name,
                      looked);
}

/* Looks in all places: the listener's process may have chosen another place than this one. */
weft_status_t weft__shm_find(weft_context_t *context, const char *name, char path[108]) {
    char place[PLACES][PLACE_ROOM];
    struct stat st;
    unsigned n;
    weft_status_t status = list_places(context, place, &n);
    for (unsigned i = 0; status == WEFT_OK && i < n; i++) {
        status = weft__shm_path(place[i], name, path);
        if (status == WEFT_OK && check_place(place[i]) == WEFT_OK && stat(path, &st) == 0)
            return WEFT_OK;
    }
    return status < 0 ? status : not_found(name, place, n);
}

weft_status_t weft__shm_path(const char *directory, const char *name, char path[108]) {
    if (!*name || *name == '.' || strchr(name, '/'))
        return weft__fail(
            WEFT_ERR_ADDRESS,
            "shm://%s: a name must be non-empty, without a slash, and must not begin with a dot",
            name);
    if (snprintf(path, 108, "%s/%s", directory, name) >= 108)
        return weft__fail(WEFT_ERR_ADDRESS, "shm://%s: the name is too long", name);
    return WEFT_OK;
}

weft_status_t weft__shm_host(uint8_t host[16]) {
    char text[HOST_BOOT_ROOM];
    unsigned filled = 0;
    errno = 0;
    if (!weft__host_boot(text) && weft__lacks_room(weft__file_status(errno)))
        return weft__fail(weft__file_status(errno), "shm: the boot id: %s", strerror(errno));
    for (const char *at = text; filled < 32 && *at; at++) {
        const char *digits = "0123456789abcdef", *digit = strchr(digits, *at);
        if (!digit) continue;
        host[filled / 2] = (uint8_t)(host[filled / 2] << 4 | (digit - digits));
        filled++;
    }
    return filled == 32 ? WEFT_OK
                        : weft__fail(WEFT_ERR_UNSUPPORTED, "shm: this machine has no boot id");
}

/* ---- binding --------------------------------------------------------------------------------- */

static bool has_listener(const struct sockaddr_un *at) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return true;
    bool refused =
        connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

/* A name on which no one listens would be in the way of the next try. */
static int listen_at(int fd, const struct sockaddr_un *at, int backlog) {
    int st = listen(fd, backlog), error = errno;
    if (st < 0) unlink(at->sun_path);
    errno = error;
    return st;
}

static int bind_fresh(int fd, const struct sockaddr_un *at) {
    int st = bind(fd, (const struct sockaddr *)at, sizeof *at);
    if (st == 0 || errno != EADDRINUSE) return st;
    if (has_listener(at)) {
        errno = EADDRINUSE;
        return -1;
    }
    unlink(at->sun_path); /* its process died */
    return bind(fd, (const struct sockaddr *)at, sizeof *at);
}

enum {
    LOCK_TRIES = 2000,
    LOCK_PAUSE_US = 1000
}; /* the lock is held for microseconds, but its holder may lose the processor */

/* The lock of a directory: only its holder may replace or remove the socket of a dead process by
 * whose name others may listen. -1 with errno: it was not free in `tries` tries. */
static int lock_directory(const char *directory, unsigned tries) {
    int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return -1;
    while (flock(lock, LOCK_EX | LOCK_NB) < 0) {
        int error = errno;
        if (--tries > 0) {
            usleep(LOCK_PAUSE_US);
            continue;
        }
        close(lock);
        errno = error;
        return -1;
    }
    return lock;
}

/* A child that was forked since then shares the lock. Keeps errno. */
static void unlock_directory(int lock) {
    int error = errno;
    flock(lock, LOCK_UN);
    close(lock);
    errno = error;
}

static int bind_alone(int fd, const struct sockaddr_un *at, int backlog) {
    char directory[108];
    snprintf(directory, sizeof directory, "%s", at->sun_path);
    *strrchr(directory, '/') = 0;
    int lock = lock_directory(directory, LOCK_TRIES);
    if (lock < 0) return -1;
    int st = bind_fresh(fd, at);
    if (st == 0) st = listen_at(fd, at, backlog);
    unlock_directory(lock);
    return st;
}

/* No other process binds a worker's own name, so no lock is needed. */
static int bind_own(int fd, const struct sockaddr_un *at, int backlog) {
    int st = bind(fd, (const struct sockaddr *)at, sizeof *at);
    return st == 0 ? listen_at(fd, at, backlog) : st;
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

/* ---- sockets of dead processes ---- */

struct sweep {
    const char *directory;
    int lock;  /* -1: another process has it, and may be binding a name */
    int probe; /* a socket of another type than listeners have */
};

/* Linux answers a socket of another type that the place has one, without a word to its owner.
 * Other kernels may refuse it as they refuse all where none is, so a refusal is asked for twice. */
static bool is_bound(const struct sweep *sweep, const char *path) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, path);
    int st = connect(sweep->probe, (const struct sockaddr *)&at, sizeof at);
    return st == 0 || errno != ECONNREFUSED || has_listener(&at);
}

/* The process of a worker's own name; 0: a listener was given that name. */
static int pid_of_name(const char *name) {
    char own[SHM_OWN_NAME_SIZE];
    uint64_t id;
    int pid;
    if (sscanf(name, "w-%d-%" SCNx64, &pid, &id) != 2) return 0;
    snprintf(own, sizeof own, SHM_OWN_NAME, pid, id);
    return pid > 0 && strcmp(name, own) == 0 ? pid : 0;
}

/* A worker's own name has its pid, and is bound without the lock. */
static bool may_be_dead(const struct sweep *sweep, const char *name) {
    int pid = pid_of_name(name);
    if (pid == 0) return sweep->lock >= 0;
    return pid != getpid() && kill(pid, 0) < 0 && errno == ESRCH;
}

/* The process of a worker's own name may live in another pid namespace, so its socket decides. */
static bool is_left_behind(const struct sweep *sweep, const char *name, char path[108]) {
    struct stat st;
    if (*name == '.' || !may_be_dead(sweep, name)) return false;
    if (snprintf(path, 108, "%s/%s", sweep->directory, name) >= 108) return false;
    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && !is_bound(sweep, path);
}

static unsigned sweep_entries(DIR *dir, const struct sweep *sweep) {
    char path[108];
    unsigned n = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL; n++)
        if (is_left_behind(sweep, entry->d_name, path)) unlink(path);
    return n;
}

static unsigned sweep_directory(DIR *dir, const char *directory) {
    struct sweep sweep = {.directory = directory,
                          .probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    if (sweep.probe < 0) return 0;
    sweep.lock = lock_directory(directory, 1);
    unsigned n = sweep_entries(dir, &sweep);
    if (sweep.lock >= 0) unlock_directory(sweep.lock);
    close(sweep.probe);
    return n;
}

enum { SWEEP_ENTRIES = 16 }; /* directory entries for each listener between two sweeps */

/* The more entries a sweep finds, the more listeners of this process skip it afterwards. So a
 * thousand workers do not look at a thousand sockets each. */
void weft__shm_sweep(const char *directory) {
    /* the directory's hash, and how many calls may still skip the sweep */
    static _Atomic uint64_t last;
    uint64_t hash = hash_more(HASH_BEGIN, directory, strlen(directory)) << 32;
    uint64_t was = atomic_load_explicit(&last, memory_order_relaxed);
    if (was > hash && was - hash <= UINT32_MAX) {
        /* of two calls at once, one may count for both */
        atomic_store_explicit(&last, was - 1, memory_order_relaxed);
        return;
    }
    DIR *dir = opendir(directory);
    if (!dir) return;
    atomic_store_explicit(&last, hash + sweep_directory(dir, directory) / SWEEP_ENTRIES,
                          memory_order_relaxed);
    closedir(dir);
}

/* Reads and makes the key file, and computes and compares proofs. */
#define _GNU_SOURCE
#include "trust.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pwd.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_FILE_LEAST = 32, KEY_FILE_MOST = 4096, KEY_FILE_VARIETY = 12, PATH_ROOM = 512 };
/* Of text, which people may have made up: each guess costs 16 MiB and some 40 ms, as each key
 * that is read does. */
enum { SCRYPT_N = 1 << 14, SCRYPT_R = 8, SCRYPT_P = 1, SCRYPT_MEMORY = 64 << 20 };

/* ---- proofs ---------------------------------------------------------------------------------- */

weft_status_t weft__trust_prove(const struct trust_key *key, const char label[16], const void *sent,
                                size_t len, uint8_t proof[TRUST_PROOF]) {
    uint8_t all[16 + TRUST_HELLO];
    unsigned size = TRUST_PROOF;
    if (len > TRUST_HELLO) return weft__fail(WEFT_ERR_INTERNAL, "cannot prove %zu bytes", len);
    memcpy(all, label, 16);
    memcpy(all + 16, sent, len);
    int key_len = key->trust == TRUST_ANYONE ? 0 : TRUST_KEY;
    const void *bytes = key_len ? (const void *)key->bytes : "";
    if (HMAC(EVP_sha256(), bytes, key_len, all, 16 + len, proof, &size)) return WEFT_OK;
    return weft__fail(WEFT_ERR_NO_MEMORY, "could not compute a proof");
}

int weft__trust_proof_equal(const uint8_t a[TRUST_PROOF], const uint8_t b[TRUST_PROOF]) {
    return CRYPTO_memcmp(a, b, TRUST_PROOF) == 0;
}

weft_status_t weft__trust_secret_bytes(void *to, size_t len) {
    ssize_t n;
    do n = getrandom(to, len, 0);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)len ? WEFT_OK : weft__fail(WEFT_ERR_IO, "getrandom: %s", strerror(errno));
}

/* ---- the file -------------------------------------------------------------------------------- */

static weft_status_t complain(weft_context_t *context, weft_status_t st, const char *path,
                              const char *what) {
    weft__log_limited(context, WEFT_LOG_ERROR, "transports", "key file %s: %s", path, what);
    return weft__fail(st, "key file %s: %s", path, what);
}

static ssize_t read_all(int fd, uint8_t *to, size_t room) {
    size_t len = 0;
    while (len < room) {
        ssize_t n = read(fd, to + len, room - len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

/* ASCII, whatever the process's locale is: all processes derive one key from a file. */
static bool is_text(const uint8_t *bytes, size_t len) {
    for (size_t i = 0; i < len; i++) {
        bool prints = bytes[i] >= ' ' && bytes[i] <= '~',
             spaces = bytes[i] >= '\t' && bytes[i] <= '\r';
        if (!prints && !spaces) return false;
    }
    return true;
}

static unsigned variety(const uint8_t *bytes, size_t len) {
    bool seen[256] = {false};
    unsigned n = 0;
    for (size_t i = 0; i < len; i++) {
        n += !seen[bytes[i]];
        seen[bytes[i]] = true;
    }
    return n;
}

/* Anybody who connects gets a proof to try guesses on: a digest alone would make those cheap. */
static weft_status_t derive(const uint8_t *bytes, size_t len, uint8_t key[TRUST_KEY]) {
    static const uint8_t salt[] = "weft key file 1"; /* the same wherever the file is */
    unsigned size = TRUST_KEY;
    int ok = is_text(bytes, len)
                 ? EVP_PBE_scrypt((const char *)bytes, len, salt, sizeof salt, SCRYPT_N, SCRYPT_R,
                                  SCRYPT_P, SCRYPT_MEMORY, key, TRUST_KEY)
                 : EVP_Digest(bytes, len, key, &size, EVP_sha256(), NULL);
    return ok ? WEFT_OK
              : weft__fail(WEFT_ERR_NO_MEMORY, "could not derive a key from the key file");
}

weft_status_t weft__trust_key_read(weft_context_t *context, const char *path,
                                   uint8_t key_p[TRUST_KEY]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return complain(context, errno == ENOENT ? WEFT_ERR_NOT_FOUND : weft__file_status(errno),
                        path, strerror(errno));
    struct stat s;
    uint8_t text[KEY_FILE_MOST + 1];
    weft_status_t st;
    ssize_t len;
    if (fstat(fd, &s) < 0)
        st = complain(context, WEFT_ERR_IO, path, strerror(errno));
    else if (!S_ISREG(s.st_mode))
        st = complain(context, WEFT_ERR_AUTH, path, "not a regular file");
    else if (s.st_uid != geteuid())
        st = complain(context, WEFT_ERR_AUTH, path, "owned by another user");
    else if (s.st_mode & 077)
        st = complain(context, WEFT_ERR_AUTH, path,
                      "other users may read or write it; chmod 600 it");
    else if ((len = read_all(fd, text, sizeof text)) < 0)
        st = complain(context, WEFT_ERR_IO, path, strerror(errno));
    else if (len < KEY_FILE_LEAST || len > KEY_FILE_MOST)
        st = complain(context, WEFT_ERR_AUTH, path,
                      "a key must have 32 to 4096 bytes; weft-info --new-key makes one");
    else if (variety(text, (size_t)len) < KEY_FILE_VARIETY)
        st = complain(context, WEFT_ERR_AUTH, path,
                      "too easily guessed; weft-info --new-key makes a key");
    else
        st = derive(text, (size_t)len, key_p);
    OPENSSL_cleanse(text, sizeof text);
    close(fd);
    return st;
}

static weft_status_t write_key(int fd) {
    uint8_t bytes[TRUST_KEY];
    weft_status_t st = weft__trust_secret_bytes(bytes, sizeof bytes);
    if (st == WEFT_OK && write(fd, bytes, sizeof bytes) != sizeof bytes) st = WEFT_ERR_IO;
    /* A crash must not leave its name without its bytes. It may take the name: all processes of the
     * host end with it, and the next one makes another key. So the directory is not synced. */
    if (st == WEFT_OK && fsync(fd) < 0) st = WEFT_ERR_IO;
    OPENSSL_cleanse(bytes, sizeof bytes);
    return st;
}

/* Written under another name and linked to its own, so that no process reads half a key, and the
 * first writer wins. Returns OK also if another process was faster. */
weft_status_t weft__trust_key_make(weft_context_t *context, const char *path) {
    char draft[PATH_ROOM + 16];
    snprintf(draft, sizeof draft, "%s.XXXXXX", path);
    int fd = mkostemp(draft, O_CLOEXEC); /* 0600 */
    if (fd < 0) return complain(context, weft__file_status(errno), path, strerror(errno));
    weft_status_t st = write_key(fd);
    if (st == WEFT_OK && link(draft, path) < 0 && errno != EEXIST) st = WEFT_ERR_IO;
    if (st < 0) complain(context, st, path, strerror(errno));
    unlink(draft);
    close(fd);
    return st;
}

/* True if the directory is there, or was made, and is this user's alone to write. `path` is the
 * key's in it. */
static bool key_directory(const char *directory, char *path, size_t size) {
    struct stat s;
    int len = snprintf(path, size, "%s", directory);
    if (len < 0 || (size_t)len + sizeof "/key" > size || directory[0] != '/') return false;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return false;
    if (lstat(path, &s) < 0 || !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || s.st_mode & 022)
        return false;
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) < 0) return false;
    strcat(path, "/key");
    return true;
}

/* This user's home as the system knows it, for a process without HOME. Returns "" where there is
 * none. */
static const char *system_home(char *buf, size_t size) {
    struct passwd user, *found = NULL;
    return getpwuid_r(geteuid(), &user, buf, size, &found) == 0 && found ? user.pw_dir : "";
}

static bool in_home(const char *home, char *path, size_t size) {
    char directory[PATH_ROOM];
    if (!home || home[0] != '/' || strlen(home) + sizeof "/.config/weft" > sizeof directory)
        return false;
    snprintf(directory, sizeof directory, "%s/.config", home);
    mkdir(directory, 0700); /* should it fail, so does the next */
    strcat(directory, "/weft");
    return key_directory(directory, path, size);
}

weft_status_t weft__trust_key_path(weft_context_t *context, char *path, size_t size) {
    const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    static const char *const fixed[] = {"/dev/shm/weft-%u", "/run/user/%u/weft", "/tmp/weft-%u"};
    char directory[PATH_ROOM], entry[4096];
    int len = config ? snprintf(directory, sizeof directory, "%s/weft", config) : -1;
    if (len > 0 && len < (int)sizeof directory && key_directory(directory, path, size))
        return WEFT_OK;
    if (in_home(home, path, size) || in_home(system_home(entry, sizeof entry), path, size))
        return WEFT_OK;
    for (unsigned i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        snprintf(directory, sizeof directory, fixed[i], (unsigned)geteuid());
        if (key_directory(directory, path, size)) return WEFT_OK;
    }
    return complain(context, WEFT_ERR_IO, directory,
                    "no directory for the user's key is usable (looked in $XDG_CONFIG_HOME/weft, "
                    "~/.config/weft, "
                    "/dev/shm, /run/user and /tmp); set tcp.key_file");
}

static weft_status_t user_key(weft_context_t *context, uint8_t key_p[TRUST_KEY],
                              char from[TRUST_FROM]) {
    char path[PATH_ROOM];
    weft_status_t st = weft__trust_key_path(context, path, sizeof path);
    if (st == WEFT_OK && faccessat(AT_FDCWD, path, F_OK, AT_EACCESS) < 0)
        st = weft__trust_key_make(context, path);
    if (st == WEFT_OK) snprintf(from, TRUST_FROM, "%.*s", TRUST_FROM - 1, path);
    return st == WEFT_OK ? weft__trust_key_read(context, path, key_p) : st;
}

/* A kernel that does not wipe it leaves a child what it had before. */
static uint8_t *secret_page(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    (void)madvise(page, size, MADV_WIPEONFORK);
    (void)madvise(page, size, MADV_DONTDUMP);
    return page;
}

void weft__trust_key_end(struct trust_key *key) {
    if (!key->bytes) return;
    OPENSSL_cleanse(key->bytes, TRUST_KEY);
    munmap(key->bytes, (size_t)sysconf(_SC_PAGESIZE));
    key->bytes = NULL;
}

weft_status_t weft__trust_key_load(weft_context_t *context, bool insecure,
                                   struct trust_key *key_p) {
    const char *file = weft__setting_str(context, SETTING_TCP_KEY_FILE);
    struct trust_key key = {.trust = file && *file ? TRUST_CLUSTER
                                     : insecure    ? TRUST_ANYONE
                                                   : TRUST_USER};
    weft_status_t st = WEFT_OK;
    if (key.trust != TRUST_ANYONE && !(key.bytes = secret_page())) return WEFT_ERR_NO_MEMORY;
    if (key.trust == TRUST_CLUSTER) {
        st = weft__trust_key_read(context, file, key.bytes);
        snprintf(key.from, sizeof key.from, "%s", file);
    } else if (key.trust == TRUST_USER) {
        st = user_key(context, key.bytes, key.from);
    }
    if (st == WEFT_OK)
        *key_p = key;
    else
        weft__trust_key_end(&key);
    return st;
}

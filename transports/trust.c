#define _GNU_SOURCE
#include "trust.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_FILE_LEAST = 16, KEY_FILE_MOST = 4096, PATH_ROOM = 512 };

/* ---- proofs ---------------------------------------------------------------------------------------- */

weft_status_t trust_prove(const struct trust_key *key, const char label[16], const void *said, size_t len,
                          uint8_t proof[TRUST_PROOF]) {
    uint8_t all[16 + TRUST_SAID];
    unsigned size = TRUST_PROOF;
    if (len > TRUST_SAID) return weft__fail(WEFT_ERR_INTERNAL, "%zu bytes to be proved", len);
    memcpy(all, label, 16);
    memcpy(all + 16, said, len);
    int key_len = key->trust == TRUST_ANYONE ? 0 : TRUST_KEY;
    if (HMAC(EVP_sha256(), key->bytes, key_len, all, 16 + len, proof, &size)) return WEFT_OK;
    return weft__fail(WEFT_ERR_NO_MEMORY, "no proof could be made");
}

int trust_proof_equal(const uint8_t a[TRUST_PROOF], const uint8_t b[TRUST_PROOF]) {
    return CRYPTO_memcmp(a, b, TRUST_PROOF) == 0;
}

weft_status_t trust_secret_bytes(void *to, size_t len) {
    ssize_t n;
    do n = getrandom(to, len, 0);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)len ? WEFT_OK : weft__fail(WEFT_ERR_IO, "getrandom: %s", strerror(errno));
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static weft_status_t complain(weft_context_t *context, weft_status_t st, const char *path, const char *what) {
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

static weft_status_t digest(const uint8_t *text, size_t len, uint8_t key[TRUST_KEY]) {
    unsigned size = TRUST_KEY;
    int ok = EVP_Digest(text, len, key, &size, EVP_sha256(), NULL);
    return ok ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no digest could be made");
}

weft_status_t trust_key_read(weft_context_t *context, const char *path, uint8_t key_p[TRUST_KEY]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return complain(context, errno == ENOENT ? WEFT_ERR_NOT_FOUND : WEFT_ERR_IO, path, strerror(errno));
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
        st = complain(context, WEFT_ERR_AUTH, path, "others may use it; chmod 600 it");
    else if ((len = read_all(fd, text, sizeof text)) < 0)
        st = complain(context, WEFT_ERR_IO, path, strerror(errno));
    else if (len < KEY_FILE_LEAST || len > KEY_FILE_MOST)
        st = complain(context, WEFT_ERR_AUTH, path, "a key has 16 to 4096 bytes");
    else
        st = digest(text, (size_t)len, key_p);
    OPENSSL_cleanse(text, sizeof text);
    close(fd);
    return st;
}

static weft_status_t write_key(int fd) {
    uint8_t bytes[TRUST_KEY];
    weft_status_t st = trust_secret_bytes(bytes, sizeof bytes);
    if (st == WEFT_OK && write(fd, bytes, sizeof bytes) != sizeof bytes) st = WEFT_ERR_IO;
    OPENSSL_cleanse(bytes, sizeof bytes);
    return st;
}

/* Written under another name and linked to its own, so that nobody ever reads half a key and the first one wins:
 * OK too when another process was faster. */
static weft_status_t trust_key_make(weft_context_t *context, const char *path) {
    char draft[PATH_ROOM + 16];
    snprintf(draft, sizeof draft, "%s.XXXXXX", path);
    int fd = mkostemp(draft, O_CLOEXEC); /* 0600 */
    if (fd < 0) return complain(context, WEFT_ERR_IO, path, strerror(errno));
    weft_status_t st = write_key(fd);
    if (st == WEFT_OK && link(draft, path) < 0 && errno != EEXIST) st = WEFT_ERR_IO;
    if (st < 0) complain(context, st, path, strerror(errno));
    unlink(draft);
    close(fd);
    return st;
}

/* True if `dir`/weft is there, or was made, and is this user's alone to write. */
static bool key_directory(const char *dir, const char *leaf, char *path, size_t size) {
    struct stat s;
    int len = snprintf(path, size, "%s%s", dir, leaf);
    if (len < 0 || (size_t)len + sizeof "/key" > size) return false;
    if (mkdir(path, 0700) < 0 && errno != EEXIST) return false;
    if (lstat(path, &s) < 0 || !S_ISDIR(s.st_mode) || s.st_uid != geteuid() || s.st_mode & 022) return false;
    if (access(path, W_OK | X_OK) < 0) return false;
    strcat(path, "/key");
    return true;
}

weft_status_t trust_key_path(weft_context_t *context, char *path, size_t size) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME"), *run = getenv("XDG_RUNTIME_DIR");
    char dir[PATH_ROOM];
    if (config && config[0] == '/' && key_directory(config, "/weft", path, size)) return WEFT_OK;
    if (home && home[0] == '/' && strlen(home) + sizeof "/.config" <= sizeof dir) {
        snprintf(dir, sizeof dir, "%s/.config", home);
        mkdir(dir, 0700); /* should it fail, so does the next */
        if (key_directory(dir, "/weft", path, size)) return WEFT_OK;
    }
    if (run && run[0] == '/' && key_directory(run, "/weft", path, size)) return WEFT_OK;
    snprintf(dir, sizeof dir, "/tmp/weft-%u", (unsigned)geteuid());
    if (key_directory(dir, "", path, size)) return WEFT_OK;
    return complain(context, WEFT_ERR_IO, dir, "no directory for it could be made; set tcp.key_file");
}

static weft_status_t user_key(weft_context_t *context, uint8_t key_p[TRUST_KEY]) {
    char path[PATH_ROOM];
    weft_status_t st = trust_key_path(context, path, sizeof path);
    if (st == WEFT_OK && access(path, F_OK) < 0) st = trust_key_make(context, path);
    return st == WEFT_OK ? trust_key_read(context, path, key_p) : st;
}

weft_status_t trust_key_load(weft_context_t *context, bool insecure, struct trust_key *key_p) {
    const char *file = weft__setting_str(context, SETTING_TCP_KEY_FILE);
    struct trust_key key = {.trust = TRUST_USER};
    weft_status_t st = WEFT_OK;
    if (file && *file) {
        key.trust = TRUST_CLUSTER;
        st = trust_key_read(context, file, key.bytes);
    } else if (insecure) {
        key.trust = TRUST_ANYONE;
    } else {
        st = user_key(context, key.bytes);
    }
    if (st == WEFT_OK) *key_p = key;
    OPENSSL_cleanse(&key, sizeof key);
    return st;
}

/*
 * The key with which both ends of a connection authenticate, and the proofs. All transports that
 * leave the host share one key file.
 *
 * A proof shows that a holder of the key answered. It is not bound to addresses, it yields no
 * session key, and no MAC covers the later frames. An attacker on the path, or one that listens on
 * a port that a worker dials, can relay the proofs of two holders and then read and change all
 * data. On loopback, tcp asks the kernel which user owns the other end, unless the settings name a
 * key file. Elsewhere the administrator who names a key states that the network is trusted.
 */
#ifndef WEFT_TRANSPORTS_TRUST_H
#define WEFT_TRANSPORTS_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>
#include <weft/context.h>

enum { TRUST_KEY = 32, TRUST_PROOF = 32, TRUST_HELLO = 256, TRUST_FROM = 128 };

enum trust {
    TRUST_USER,    /* the user's own key: loopback only */
    TRUST_CLUSTER, /* "tcp.key_file" */
    TRUST_ANYONE   /* declared insecure: proofs use an empty key */
};

struct trust_key {
    enum trust trust;
    /* TRUST_KEY bytes in a page of its own, which a forked child and a core file have not; NULL:
     * TRUST_ANYONE */
    uint8_t *bytes;
    char from[TRUST_FROM]; /* the file, for error texts; "" without one */
};

/* Reads the key that the settings name. Creates the user's own key if it is missing.
 * WEFT_ERR_AUTH: another user owns or may read the file. WEFT_ERR_IO: it cannot be read or
 * created. Logs both errors. */
weft_status_t weft__trust_key_load(weft_context_t *context, bool insecure, struct trust_key *key_p);
/* Wipes it. */
void weft__trust_key_end(struct trust_key *key);

/* What weft__trust_key_load is made of. `path` names the file: 32 to 4096 bytes, 12 different
 * ones among them, or WEFT_ERR_AUTH. Text becomes a key by scrypt (some 40 ms), anything else by
 * SHA-256. */
weft_status_t weft__trust_key_read(weft_context_t *context, const char *path,
                                   uint8_t key_p[TRUST_KEY]);
/* Makes a file of 32 random bytes, mode 0600. OK too when a file of that name is there by then:
 * it stays as it is. */
weft_status_t weft__trust_key_make(weft_context_t *context, const char *path);
/* $XDG_CONFIG_HOME/weft/key, ~/.config/weft/key (of HOME, then of the user's entry in the
 * system), /dev/shm/weft-UID/key, /run/user/UID/weft/key, /tmp/weft-UID/key: the first whose
 * directory is there or can be made. Makes it (0700). */
weft_status_t weft__trust_key_path(weft_context_t *context, char *path, size_t size);

/* A MAC over a label of the role, so that no end's proof serves as the other's, and what both
 * have said: TRUST_HELLO bytes at most. */
weft_status_t weft__trust_prove(const struct trust_key *key, const char label[16], const void *sent,
                                size_t len, uint8_t proof[TRUST_PROOF]);
/* Compares in constant time. */
int weft__trust_proof_equal(const uint8_t a[TRUST_PROOF], const uint8_t b[TRUST_PROOF]);

/* Unpredictable bytes from the kernel. A seeded generator would repeat nonces. */
weft_status_t weft__trust_secret_bytes(void *to, size_t len);

#endif

/*
 * The key by which both ends of a connection prove themselves, and the proofs. One file serves all transports that leave the host.
 *
 * A proof authenticates the connect alone: what follows is plaintext, so whoever sits on the path can read and change it. On loopback
 * nobody does; beyond it the setting of a key is the administrator's word that the network is trusted, until connections are encrypted.
 */
#ifndef WEFT_TRANSPORTS_TRUST_H
#define WEFT_TRANSPORTS_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>
#include <weft/context.h>

enum { TRUST_KEY = 32, TRUST_PROOF = 32, TRUST_SAID = 256 };

enum trust {
    TRUST_USER,    /* the user's own key: loopback only */
    TRUST_CLUSTER, /* "tcp.key_file" */
    TRUST_ANYONE   /* said to be insecure, without a key: proofs are made with an empty one */
};

struct trust_key {
    enum trust trust;
    uint8_t bytes[TRUST_KEY];
};

/* Reads the key that the settings ask for, and makes the user's own when it is missing. WEFT_ERR_AUTH: a file that
 * others may read or that somebody else owns; WEFT_ERR_IO: one that cannot be read or made. Both are logged. */
weft_status_t trust_key_load(weft_context_t *context, bool insecure, struct trust_key *key_p);

/* What trust_key_load is made of. `path` names the file; a key is at least 16 bytes, anything to 4096. */
weft_status_t trust_key_read(weft_context_t *context, const char *path, uint8_t key_p[TRUST_KEY]);
/* $XDG_CONFIG_HOME/weft/key, ~/.config/weft/key, $XDG_RUNTIME_DIR/weft/key: the first whose directory is there or
 * can be made; then /tmp/weft-UID/key. Makes the directory (0700). */
weft_status_t trust_key_path(weft_context_t *context, char *path, size_t size);

/* A MAC over a label of the role, so that no end's proof serves as the other's, and what both have said: TRUST_SAID bytes at most. */
weft_status_t trust_prove(const struct trust_key *key, const char label[16], const void *said, size_t len,
                          uint8_t proof[TRUST_PROOF]);
/* In time that does not depend on where they differ. */
int trust_proof_equal(const uint8_t a[TRUST_PROOF], const uint8_t b[TRUST_PROOF]);

/* Bytes nobody can foresee; straight from the kernel, since a seeded generator would repeat nonces. */
weft_status_t trust_secret_bytes(void *to, size_t len);

#endif

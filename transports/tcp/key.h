/*
 * The key by which both ends of a connection prove themselves, and the proofs.
 *
 * The challenge authenticates the connect alone: what follows is plaintext, so whoever sits on the path can read and
 * change it. On loopback nobody does; beyond it the setting of a key is the administrator's word that the network is
 * trusted, until connections are encrypted.
 */
#ifndef WEFT_TCP_KEY_H
#define WEFT_TCP_KEY_H

#include "wire.h"

#include <weft/context.h>

enum { TCP_KEY = 32 };

enum tcp_trust {
    TCP_TRUST_USER,    /* the user's own key: loopback only */
    TCP_TRUST_CLUSTER, /* "tcp.key_file" */
    TCP_TRUST_ANYONE   /* "tcp.insecure" without a key: proofs are made with an empty key */
};

struct tcp_key {
    enum tcp_trust trust;
    uint8_t bytes[TCP_KEY];
};

/* Reads the key that the settings ask for, and makes the user's own when it is missing. WEFT_ERR_AUTH: a file that
 * others may read or that somebody else owns; WEFT_ERR_IO: one that cannot be read or made. Both are logged. */
weft_status_t tcp_key_load(weft_context_t *context, struct tcp_key *key_p);

/* What tcp_key_load is made of. `path` names the file; a key is at least 16 bytes, anything to 4096. */
weft_status_t tcp_key_read(weft_context_t *context, const char *path, uint8_t key_p[TCP_KEY]);
weft_status_t tcp_key_make(weft_context_t *context, const char *path); /* OK too when another process was faster */
/* $XDG_CONFIG_HOME/weft/key, ~/.config/weft/key, $XDG_RUNTIME_DIR/weft/key: the first whose directory is there or
 * can be made; then /tmp/weft-UID/key. Makes the directory (0700). */
weft_status_t tcp_key_path(weft_context_t *context, char *path, size_t size);

/* The roles have labels of their own, so that no end's proof serves as the other's. `hello` and `challenge` as they
 * were on the wire (of the latter the first 64 bytes count). */
enum tcp_role { TCP_ROLE_DIALER, TCP_ROLE_ACCEPTOR };
weft_status_t tcp_prove(const struct tcp_key *key, enum tcp_role role, const void *hello, const void *challenge,
                        uint8_t proof[TCP_PROOF]);
/* In time that does not depend on where they differ. */
int tcp_proof_equal(const uint8_t a[TCP_PROOF], const uint8_t b[TCP_PROOF]);

/* Bytes nobody can foresee; straight from the kernel, since a seeded generator would repeat nonces. */
weft_status_t tcp_secret_bytes(void *to, size_t len);

#endif

/*
 * What two rdma_rc interfaces say to each other while they connect (rdmacm carries it as private
 * data, the PROOF is the first message), their addresses, and the words about keys. Numbers are
 * little-endian; decoders take (pointer, length).
 */
#ifndef WEFT_TRANSPORTS_RDMA_RC_RC_WIRE_H
#define WEFT_TRANSPORTS_RDMA_RC_RC_WIRE_H

#include <transports/rdma/verbs/wire.h>

enum {
    RC_VERSION = 1,
    RC_NONCE = 16,
    RC_TOKEN = 16,
    RC_PROOF = 32,
    RC_HELLO_SIZE = 56,  /* all that a request can carry */
    RC_ANSWER_SENT = 28, /* without the proof */
    RC_ANSWER_SIZE = RC_ANSWER_SENT + RC_PROOF,
    RC_REFUSAL_SIZE = 8,
    RC_ADDRESS_SIZE = 68,
    RC_LANE_ADDRESS_SIZE = 40,
    RC_FLAG_KEYED = 1
};

/* Of the immediate data: 0 … 31 are messages of the owner's. */
enum rc_message {
    RC_PROVE = 32,
    RC_GOODBYE,
    RC_WANT,
    RC_GRANT,
    RC_DENY,
    RC_REVOKE,
    RC_DROP,
    RC_CREDIT,
    RC_N_MESSAGES
};

/* The dialer's first word. `token`: of the interface address; zeroes at a listener's URI. */
struct rc_hello {
    uint64_t worker;
    uint32_t buffer; /* bytes of a receive */
    uint8_t flags;
    uint8_t token[RC_TOKEN], nonce[RC_NONCE];
};
/* The acceptor's. */
struct rc_answer {
    uint64_t worker;
    uint8_t nonce[RC_NONCE], proof[RC_PROOF];
};

void weft__rc_hello_encode(const struct rc_hello *hello, uint8_t to[RC_HELLO_SIZE]);
void weft__rc_answer_encode(const struct rc_answer *answer, uint8_t to[RC_ANSWER_SIZE]);
void weft__rc_refusal_encode(weft_status_t why, uint8_t to[RC_REFUSAL_SIZE]);
/* PROTOCOL, VERSION. What follows is not looked at: rdmacm fills it up. */
weft_status_t weft__rc_hello_decode(const void *bytes, size_t len, struct rc_hello *hello_p);
weft_status_t weft__rc_answer_decode(const void *bytes, size_t len, struct rc_answer *answer_p);
/* The reason given; REFUSED where none is. */
weft_status_t weft__rc_refusal_decode(const void *bytes, size_t len);

/* What a device's atomics are atomic with: its own, or the processor's too. A region's key says
 * it of its owner's. */
enum rc_atomics { RC_ATOMICS_NONE, RC_ATOMICS_DEVICE, RC_ATOMICS_GLOBAL };
enum { RC_KEY_SIZE = 1 };
void weft__rc_key_atomics_encode(enum rc_atomics atomics, uint8_t to[RC_KEY_SIZE]);
/* ADDRESS: no such thing. */
weft_status_t weft__rc_key_atomics_decode(const void *bytes, size_t len,
                                          enum rc_atomics *atomics_p);

/* Where an interface's own listener is. */
struct rc_address {
    uint64_t worker;
    uint8_t token[RC_TOKEN];
    struct rd_place place;
    bool v6;
    uint16_t port;
    uint8_t ip[16]; /* the first four bytes of IPv4 */
};
void weft__rc_address_encode(const struct rc_address *address, uint8_t to[RC_ADDRESS_SIZE]);
weft_status_t weft__rc_address_decode(const void *bytes, size_t len, struct rc_address *address_p);

/* A queue pair that waits for its peer's address. */
struct rc_lane_address {
    struct rd_place place;
    uint32_t qp, psn; /* 24 bits each */
    uint32_t buffer;
    uint8_t reads; /* gets and atomics that its device takes, and sends, at once */
};
void weft__rc_lane_address_encode(const struct rc_lane_address *address,
                                  uint8_t to[RC_LANE_ADDRESS_SIZE]);
weft_status_t weft__rc_lane_address_decode(const void *bytes, size_t len,
                                           struct rc_lane_address *address_p);

/* Words about keys: WANT; GRANT (with rkey), DENY (with status), REVOKE and DROP. */
struct rc_want {
    uint32_t serial, region, epoch, rights;
    uint64_t base, len;
    uint8_t token[RC_TOKEN];
};
struct rc_word {
    uint32_t serial, value;
};
enum { RC_WANT_SIZE = 48, RC_WORD_SIZE = 8 };
void weft__rc_want_encode(const struct rc_want *want, uint8_t to[RC_WANT_SIZE]);
void weft__rc_word_encode(const struct rc_word *word, uint8_t to[RC_WORD_SIZE]);
weft_status_t weft__rc_want_decode(const void *bytes, size_t len, struct rc_want *want_p);
weft_status_t weft__rc_word_decode(const void *bytes, size_t len, struct rc_word *word_p);

/* "127.0.0.1:80", "[fe80::1%v0]:80", "*:80"; numeric hosts only. */
struct rc_where {
    char host[64]; /* "*" as it is; brackets removed */
    uint16_t port;
};
weft_status_t weft__rc_where_parse(const char *text, size_t len, struct rc_where *where_p);

#endif

/*
 * Messages between two workers: little-endian, packed by hand, decoded by (pointer, length).
 * docs/wire.md has the pictures.
 */
#ifndef WEFT_ENDPOINTS_WIRE_WIRE_H
#define WEFT_ENDPOINTS_WIRE_WIRE_H

#include <stdbool.h>
#include <string.h>
#include <weft/base.h>

enum { WIRE_VERSION = 1 };

/* Ids of lane messages. */
enum wire_id {
    WIRE_AM,            /* an active message, whole */
    WIRE_TAG,           /* a tagged message, whole */
    WIRE_RTS,           /* offers a message */
    WIRE_CTS,           /* requests an offered message */
    WIRE_DATA,          /* a piece of a requested message */
    WIRE_FIN,           /* ends an offer: the sender's memory is free */
    WIRE_CANCEL,        /* the offer is withdrawn */
    WIRE_GONE,          /* the requested bytes will not come */
    WIRE_CREDIT,        /* credit for unexpected messages */
    WIRE_HELLO,         /* the handshake */
    WIRE_OPEN,          /* asks for an endpoint */
    WIRE_ACCEPT,        /* accepts OPEN */
    WIRE_REJECT,        /* rejects OPEN */
    WIRE_CLOSE,         /* the sender's endpoint is gone */
    WIRE_PING,          /* empty; detects a dead connection */
    WIRE_PUT,           /* writes bytes into a region of the receiver */
    WIRE_GET,           /* reads bytes of a region, returned as DATA */
    WIRE_ATOMIC,        /* an atomic on a word of the receiver */
    WIRE_RMA_DONE,      /* status of a one-sided operation, and the old value */
    WIRE_FLUSH,         /* asks when all earlier operations are performed */
    WIRE_FLUSHED,       /* answers FLUSH */
    WIRE_STREAM,        /* bytes of a stream */
    WIRE_STREAM_CREDIT, /* credit for a stream */
    WIRE_RAIL,          /* asks for a rail, or grants one by a number for its HELLO */
    WIRE_RAIL_RATE,     /* measured rate of a lane, bytes per second */
    WIRE_LANE,          /* lane control; the first byte is the kind (lane_ctrl.h) */
    WIRE_TAG_BEGIN,     /* the first fragment of a tagged message */
    WIRE_TAG_PART,      /* the next fragment; without bytes: the message is given up */
    WIRE_EXPOSE,        /* the key to exposed memory */
    WIRE_PUT_REQ,       /* asks the sender to write the message, or its end */
    WIRE_PUT_DONE,      /* the requested bytes are written */
    WIRE_N_IDS
};

/* An active message's first word: receiver's endpoint, length of the user header, user id. */
static inline uint64_t wire_am_word(uint32_t ep, size_t header_len, unsigned id) {
    return (uint64_t)ep << 32 | (uint64_t)header_len << 16 | id;
}
static inline uint32_t wire_am_ep(uint64_t word) {
    return (uint32_t)(word >> 32);
}
static inline size_t wire_am_header_len(uint64_t word) {
    return word >> 16 & 0xffff;
}
/* Set instead of an endpoint: the sender wants no reply. A word of zeros is ignored. */
#define WIRE_AM_NO_REPLY (UINT64_C(0x8000) << 16)
static inline unsigned wire_am_id(uint64_t word) {
    return word & 0xffff;
}

/* Bytes of a stream begin with the receiver's endpoint. */
struct wire_stream {
    uint32_t ep;
    const char *bytes; /* within the message */
    size_t len;
};
static inline uint64_t wire_stream_word(uint32_t ep) {
    return (uint64_t)ep << 32;
}

/* A tagged message begins with the tag and the receiver's endpoint. */
enum { WIRE_TAG_HEAD = 12 };
struct wire_tag {
    uint64_t tag;
    uint32_t ep;
} __attribute__((packed));
_Static_assert(sizeof(struct wire_tag) == WIRE_TAG_HEAD, "what stands before the payload");

/* Fragments carry the endpoint and the message's number. */
enum { WIRE_TAG_BEGIN_HEAD = 24, WIRE_TAG_PART_HEAD = 16 };
struct wire_tag_begin {
    uint64_t tag, len; /* of the whole */
    uint32_t ep, number;
    const char *bytes; /* within the message: the first `n` of it */
    size_t n;
};
struct wire_tag_part {
    uint32_t ep, number;
    uint64_t offset;
    const char *bytes;
    size_t n;
    int32_t status; /* without bytes: why no more will come, as of GONE */
};

enum wire_offer { WIRE_OFFER_AM = 1, WIRE_OFFER_TAG = 2 };
struct wire_rts {
    uint32_t ep, request;
    uint8_t kind, memory; /* `memory`: a weft_mem_type_t, of the payload in the sender */
    uint16_t header_len, am_id, device_len;
    uint64_t tag, len;
    uint64_t address;   /* of the payload in the sender, for a bulk get; 0: not offered */
    const void *header; /* within the message */
    const void *device; /* within it, behind the header: what a CUDA export says */
};
enum { WIRE_IN_ORDER_BIT = 63 }; /* of a CTS's length: pieces by the link's own lane only */
struct wire_cts {
    uint32_t request, to;
    uint64_t len;
    bool in_order;
};
struct wire_data {
    uint32_t to, pad;
    uint64_t offset;
};
struct wire_fin {
    uint32_t request;
    int32_t status;
};
struct wire_empty {
    uint8_t none;
}; /* PING, PUT_DONE: the id says all */
struct wire_one {
    uint32_t request;
}; /* CANCEL: the offer's; CLOSE: the endpoint */
struct wire_gone {
    uint32_t to;    /* the asker's request */
    int32_t status; /* CANCELLED: the sender took it back. Other errors: that is why it failed */
};
struct wire_credit {
    uint32_t ep, pad;
    uint64_t bytes;
};
struct wire_expose {
    uint32_t ep;
    const void *key; /* as weft_mem_pack makes them; within the message */
    size_t len;
};
struct wire_put_req {
    uint32_t request; /* the offer's */
    /* The request for the whole message; it receives GONE if the write stops. 0: only the end is
     * written. */
    uint32_t to;
    uint64_t token; /* the transport's (lane_ops.bulk_split) */
    uint64_t address, len;
};
enum {
    WIRE_HELLO_EXTRA = 1,     /* dialed by URI: a separate link of the pair */
    WIRE_HELLO_RAIL = 2,      /* a rail; `listener` is its granted number */
    WIRE_HELLO_LANES = 4,     /* the side that sends it supports lane negotiation */
    WIRE_HELLO_LANE = 8,      /* another lane of a link; `listener` is its granted number */
    WIRE_HELLO_SURVIVES = 16, /* the link outlives its lane (retain.h); the answer has a ticket */
    WIRE_HELLO_RESUME = 32,   /* this lane continues the link of that ticket */
    /* heartbeats (heartbeat.h), and messages of where the peer runs (peer_process.h); for itself,
     * from both sides */
    WIRE_HELLO_ANSWERS = 64,
    /* may be sent a tagged message in parts (tag_fragments.h); for itself, from both sides */
    WIRE_HELLO_PARTS = 128,
    /* accepts offers of exposed memory (expose.h); each side sets it for itself */
    WIRE_HELLO_EXPOSURES = 256,
    /* reads offers that name device memory (device_fetch.h); each side sets it for itself */
    WIRE_HELLO_DEVICES = 512,
    /* reads an OPEN that names a lease; each side sets it for itself */
    WIRE_HELLO_LEASES = 1024,
    /* reads a GONE that says why; each side sets it for itself */
    WIRE_HELLO_CAUSES = 2048
};
enum { WIRE_TICKET = 16 };
struct wire_hello {
    uint16_t version, flags;
    uint32_t listener;
    uint64_t worker;
    /* With RESUME, and in the answer to SURVIVES; a hello with a ticket of zeros ends before it. */
    uint8_t ticket[WIRE_TICKET]; /* random secret, exchanged when the link began */
    uint64_t delivered;          /* messages received from the other side */
    uint32_t epoch;              /* of the attempt */
};
static inline bool weft__hello_has_ticket(const struct wire_hello *v) {
    static const uint8_t none[WIRE_TICKET];
    return memcmp(v->ticket, none, sizeof none) != 0;
}
struct wire_open {
    uint32_t from, listener;
    uint64_t credit;
    uint32_t stream; /* the stream window of the side that sends it */
    /* Of an endpoint that holds a lease (core/lease.h); both 0: it holds none. */
    uint32_t lease;    /* the receiver's lease, from the address that was dialed; 0: not known */
    uint32_t am_first; /* of the range at both ends; more than 0 */
};
struct wire_accept {
    uint32_t ep, from;
    uint64_t credit;
    uint32_t stream;
};
struct wire_reject {
    uint32_t ep;
    int32_t status;
};

/* ---- one-sided operations; each carries the sender's copy of the key */

struct wire_key {
    uint32_t region, epoch;
    uint8_t token[16];
};
enum { WIRE_PUT_LAST = 1 }; /* answer with RMA_DONE when performed; a refusal is always answered */
struct wire_put {
    uint32_t ep, request; /* 0: no answer is wanted */
    struct wire_key key;
    uint64_t address;
    uint32_t flags, pad;
};
struct wire_get {
    uint32_t ep, to;
    struct wire_key key;
    uint64_t address, len;
};
struct wire_atomic {
    uint32_t ep, request; /* 0: no answer is wanted */
    struct wire_key key;
    uint64_t address;
    uint8_t what, size, fetch;
    uint64_t operand, compare;
};
struct wire_rma_done {
    uint32_t request;
    int32_t status;
    uint64_t value;
};
struct wire_flush {
    uint32_t ep, request;
};
enum {
    WIRE_PUT_HEAD = 48,
    WIRE_GET_LEN = 48,
    WIRE_ATOMIC_LEN = 64,
    WIRE_RMA_DONE_LEN = 16,
    WIRE_RMA_WINDOW = 128 /* unanswered requests of one link that a worker always serves */
};
void weft__wire_put(void *to, const struct wire_put *v);
bool weft__wire_read_put(const void *p, size_t len, struct wire_put *v);

enum { WIRE_DATA_HEAD = 16, WIRE_RTS_HEAD = 40, WIRE_RTS_DEVICE_MOST = 192 };

/* A control message, packed. */
struct wire_message {
    uint8_t id;
    uint16_t len;
    uint8_t bytes[152]; /* LANE_ASK is the longest */
};
void weft__wire_cts(struct wire_message *m, struct wire_cts v);
void weft__wire_fin(struct wire_message *m, struct wire_fin v);
void weft__wire_one(struct wire_message *m, enum wire_id id, uint32_t request);
void weft__wire_gone(struct wire_message *m, struct wire_gone v);
void weft__wire_credit(struct wire_message *m, struct wire_credit v);
void weft__wire_stream_credit(struct wire_message *m, struct wire_credit v); /* read as credit is */
/* and this: number, bytes a second */
void weft__wire_rail_rate(struct wire_message *m, struct wire_credit v);
void weft__wire_expose(struct wire_message *m, struct wire_expose v);
void weft__wire_put_req(struct wire_message *m, struct wire_put_req v);
void weft__wire_put_done(struct wire_message *m);
void weft__wire_hello(struct wire_message *m, struct wire_hello v);
void weft__wire_open(struct wire_message *m, struct wire_open v);
void weft__wire_accept(struct wire_message *m, struct wire_accept v);
void weft__wire_reject(struct wire_message *m, struct wire_reject v);
void weft__wire_ping(struct wire_message *m);
void weft__wire_get(struct wire_message *m, const struct wire_get *v);
void weft__wire_atomic(struct wire_message *m, const struct wire_atomic *v);
void weft__wire_rma_done(struct wire_message *m, struct wire_rma_done v);
void weft__wire_flush(struct wire_message *m, struct wire_flush v);
void weft__wire_flushed(struct wire_message *m, struct wire_fin v);
/* Into at least WIRE_RTS_HEAD + header_len + device_len bytes; returns how many. */
size_t weft__wire_rts(void *to, const struct wire_rts *v);
void weft__wire_tag_begin(void *to, struct wire_tag_begin v);
bool weft__wire_read_tag_begin(const void *p, size_t len, struct wire_tag_begin *v);
void weft__wire_tag_part(void *to, struct wire_tag_part v);
bool weft__wire_read_tag_part(const void *p, size_t len, struct wire_tag_part *v);
void weft__wire_tag_give_up(struct wire_message *m, struct wire_tag_part v);
void weft__wire_data(void *to, struct wire_data v);

/* Each returns false if the bytes are not such a message. */
bool weft__wire_read_cts(const void *p, size_t len, struct wire_cts *v);
bool weft__wire_read_fin(const void *p, size_t len, struct wire_fin *v);
bool weft__wire_read_empty(const void *p, size_t len, struct wire_empty *v);
bool weft__wire_read_one(const void *p, size_t len, struct wire_one *v);
bool weft__wire_read_gone(const void *p, size_t len, struct wire_gone *v);
bool weft__wire_read_expose(const void *p, size_t len, struct wire_expose *v);
bool weft__wire_read_put_req(const void *p, size_t len, struct wire_put_req *v);
bool weft__wire_read_credit(const void *p, size_t len, struct wire_credit *v);
bool weft__wire_read_hello(const void *p, size_t len, struct wire_hello *v);
bool weft__wire_read_open(const void *p, size_t len, struct wire_open *v);
bool weft__wire_read_accept(const void *p, size_t len, struct wire_accept *v);
bool weft__wire_read_reject(const void *p, size_t len, struct wire_reject *v);
bool weft__wire_read_rts(const void *p, size_t len, struct wire_rts *v);
bool weft__wire_read_stream(const void *p, size_t len, struct wire_stream *v);
bool weft__wire_read_data(const void *p, size_t len, struct wire_data *v);
bool weft__wire_read_get(const void *p, size_t len, struct wire_get *v);
bool weft__wire_read_atomic(const void *p, size_t len, struct wire_atomic *v);
bool weft__wire_read_rma_done(const void *p, size_t len, struct wire_rma_done *v);
bool weft__wire_read_flush(const void *p, size_t len, struct wire_flush *v);
bool weft__wire_read_flushed(const void *p, size_t len, struct wire_fin *v);

#endif

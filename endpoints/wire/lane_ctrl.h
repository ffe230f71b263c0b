/*
 * What two workers say about the lanes of their link: the payload of WIRE_LANE. The first byte is
 * the kind, and four bytes of epoch follow it. docs/wire.md has the pictures, docs/switching.md the
 * conversation.
 *
 * An epoch names one attempt to give the link another lane, from the question to the lane's end.
 * The side that asks takes the next number of its own parity: odd for the worker with the smaller
 * id, even for the other. So no two questions have the same epoch, and when both sides ask at once
 * the larger epoch wins, which is that of the smaller id.
 */
#ifndef WEFT_ENDPOINTS_WIRE_LANE_CTRL_H
#define WEFT_ENDPOINTS_WIRE_LANE_CTRL_H

#include "wire.h"

enum lane_kind {
    /* negotiate.h: whether */
    LANE_ASK = 1, /* may this link have a lane of that transport? */
    LANE_GRANT,   /* yes: dial here, and send HELLO with this number */
    LANE_DENY,    /* no, and not again for a while */
    LANE_CANCEL,  /* nothing comes of it, or that lane is lost: forget it */
    LANE_BACK,    /* back to the lane that the link began with */
    LANE_SCORE,   /* how much the one who says it uses the link now */
    /* switch.h: this is my last message by this lane; I go on by the other one */
    LANE_END = 16,
    LANE_DRAINED,       /* I have all that you sent by the lane that you left */
    LANE_ACK = 32,      /* retain.h: how many messages of the link have arrived */
    LANE_ACK_ASK,       /* say so now */
    LANE_HEARTBEAT_ASK, /* heartbeat.h: a probe */
    LANE_HEARTBEAT,     /* yes */
    LANE_PROCESS,       /* peer_process.h: where I run */
    LANE_KINDS = 48
};

enum lane_denial {
    LANE_DENIED_FULL = 1,    /* all lanes of that kind are in better use */
    LANE_DENIED_BUSY,        /* a slot is being freed, or the rate limit applies */
    LANE_DENIED_UNREACHABLE, /* never by that transport */
    LANE_DENIED_MEMORY,
    LANE_DENIALS
};

enum { LANE_NAME_MAX = 16, LANE_ADDRESS_MAX = 96 };

struct lane_ask {
    uint32_t epoch;
    uint64_t score;
    uint8_t name_len, len;
    const char *name;    /* of the transport, within the message */
    const void *address; /* of the sender's iface, within the message */
};
struct lane_grant {
    uint32_t epoch, number;
    uint8_t len;
    const void *address; /* of the sender's iface, within the message */
};
struct lane_deny {
    uint32_t epoch, wait_ms;
    uint8_t why;
};
struct lane_score {
    uint32_t epoch;
    uint64_t score;
};
struct lane_end {
    uint32_t epoch;
    uint64_t sent; /* messages of the link's endpoints, ever */
};
struct lane_count {
    uint32_t epoch; /* 0 */
    uint64_t count; /* ACK: of messages; others: 0 */
};
struct lane_process {
    uint32_t epoch; /* 0 */
    uint64_t host;  /* where pids mean the same; 0: not known */
    uint32_t pid;
};
struct lane_one {
    uint32_t epoch;
}; /* CANCEL, BACK, DRAINED */

/* Lengths are within LANE_NAME_MAX and LANE_ADDRESS_MAX. */
void weft__lane_ask(struct wire_message *m, const struct lane_ask *v);
void weft__lane_grant(struct wire_message *m, const struct lane_grant *v);
void weft__lane_deny(struct wire_message *m, struct lane_deny v);
void weft__lane_score(struct wire_message *m, struct lane_score v);
void weft__lane_end(struct wire_message *m, struct lane_end v);
void weft__lane_count(struct wire_message *m, enum lane_kind kind, uint64_t count);
void weft__lane_process(struct wire_message *m, struct lane_process v);
void weft__lane_one(struct wire_message *m, enum lane_kind kind, uint32_t epoch);

/* 0: no such thing. */
static inline enum lane_kind weft__lane_kind(const void *p, size_t len) {
    return len > 0 && *(const uint8_t *)p < LANE_KINDS ? (enum lane_kind) * (const uint8_t *)p
                                                       : (enum lane_kind)0;
}
/* Each is false when the bytes are not such a message. The kind is the caller's to look at. */
bool weft__lane_read_ask(const void *p, size_t len, struct lane_ask *v);
bool weft__lane_read_grant(const void *p, size_t len, struct lane_grant *v);
bool weft__lane_read_deny(const void *p, size_t len, struct lane_deny *v);
bool weft__lane_read_score(const void *p, size_t len, struct lane_score *v);
bool weft__lane_read_end(const void *p, size_t len, struct lane_end *v);
bool weft__lane_read_count(const void *p, size_t len, struct lane_count *v);
bool weft__lane_read_process(const void *p, size_t len, struct lane_process *v);
bool weft__lane_read_one(const void *p, size_t len, struct lane_one *v);

#endif

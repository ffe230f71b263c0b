/*
 * A raw peer: one connection to the victim whose messages are made by hand. Over tcp it is a bare
 * socket, and a frame may be sent in parts; over shm it is a lane of an interface of its own. It
 * notes what the victim sends, so that its own messages can name endpoints, requests, tickets,
 * numbers and epochs that exist.
 */
#ifndef WEFT_TESTS_FUZZ_LIVE_PEER_H
#define WEFT_TESTS_FUZZ_LIVE_PEER_H

#include <endpoints/wire/lane_ctrl.h>
#include <transports/tcp/wire.h>

#include "world.h"

enum { PEERS = 8, KNOWN = 16, DEBTS = 32, RAW_WORKER = 0x5eed };

/* what is awaited */
enum peer_stage { PEER_NONE, PEER_HELLO, PEER_CHALLENGE, PEER_PROOF, PEER_UP };

/* A message of the victim that asks for an answer. */
struct debt {
    uint8_t id;       /* of the victim's message */
    uint8_t kind;     /* of LANE */
    uint32_t a, b;    /* its ids: what the answer names */
    uint64_t len, at; /* bytes asked for; of them sent */
};

/* The last values of one kind that a connection has seen. */
struct known {
    uint32_t value[KNOWN];
    unsigned n;
};

struct peer {
    enum peer_stage stage;
    unsigned number;
    bool dialed; /* by this side */
    uint64_t id; /* of the worker that it says to be */
    /* tcp */
    int fd;
    uint8_t hello[TCP_HANDSHAKE_MAX], *out, *in;
    size_t out_len, out_room, in_len, in_room;
    /* shm */
    struct raw_lane *raw;

    struct known eps, requests, epochs, numbers, offers; /* offers: of this side's own messages */
    struct debt debt[DEBTS];
    unsigned n_debts;
    bool ended;          /* the victim has closed the connection */
    bool shaken;         /* the victim's HELLO has come */
    uint64_t came, sent; /* messages that count where a link survives */
    uint8_t ticket[WIRE_TICKET];
    bool has_ticket;
    uint32_t tries;
    struct wire_tag_begin parts; /* the message in parts that is under way; len 0: none */
    uint64_t parts_at;
};
extern struct peer peers[PEERS];

/* begin: a listening socket for the victim's dials. end: closes all. */
void peers_begin(void);
void peers_end(void);
uint16_t peers_port(void);
struct peer *peer_free(void); /* a slot, or NULL */
struct peer *peer_any(void);  /* one that is up, or NULL */
void peer_dial(bool shm);
void peer_drop(struct peer *p, bool reset);
void peer_read(struct peer *p); /* what is here; nothing waits */
void peers_accept(void);
/* A frame. `now`: of tcp, so many bytes of all that waits go at once (SIZE_MAX: all), the others
 * by peer_push. */
void peer_send(struct peer *p, uint8_t id, const void *bytes, size_t len, size_t now);
void peer_send_bytes(struct peer *p, const void *bytes, size_t len);
void peer_push(struct peer *p, size_t n);

void known_add(struct known *k, uint32_t value);
uint32_t known_any(const struct known *k); /* or 0 */

/* messages.c: one message, of a kind that is drawn, or the answer to one of the victim's */
void message_send(struct peer *p);
void message_handshake(struct peer *p, uint16_t flags);
void message_open(struct peer *p);
void message_answer(struct peer *p);
void message_resume(struct peer *p, const struct peer *of);
void message_flood(struct peer *p);
/* one with a payload, of which `now` bytes go at once */
void message_payload(struct peer *p, size_t now);

#endif

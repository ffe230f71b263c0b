/* What members of a team say to each other: little-endian, packed by hand, read by (pointer,
 * length). */
#ifndef WEFT_COLLECTIVES_WIRE_H
#define WEFT_COLLECTIVES_WIRE_H

#include <stdbool.h>
#include <weft/base.h>

/* Reserved ids of active messages; all have the same header. */
enum coll_wire_id {
    COLL_WIRE_DATA = 1024, /* the payload of a send step */
    COLL_WIRE_GO,          /* the receive for a large one is posted: send it */
    COLL_WIRE_NOTICE,      /* the team has failed: `seq` is the member to blame, `tag` the status */
    /* nothing: a first message, which opens the way; or a question, whose answer is NOTICE or LEAVE
     * if the team has failed or is closed there */
    COLL_WIRE_OPEN,
    /* this member closes in good order: what it said before is all; `seq` is the rank of the one
     * that receives it; the payload has a bit for each member that learns it by this message */
    COLL_WIRE_LEAVE,
    COLL_WIRE_RELEASE, /* the answer: all that you sent to this member has arrived */
    COLL_WIRE_AGREE,   /* of agreement number `seq`; `tag` is one of those below */
    COLL_WIRE_LEFT,    /* the LEAVE of member `seq`, passed on to those that it has not notified */
    /* A worker that joins to the member that invited it, `seq` its number, and the answers. */
    COLL_WIRE_JOIN,    /* its address; it asks for a rank when the team grows */
    COLL_WIRE_WELCOME, /* `tag` 0: `from` is the rank, `stream` the new size; else the status */
    COLL_WIRE_RECORD,  /* its record */
    COLL_WIRE_RECORDS, /* those of all members; or `tag` is the status */
    COLL_WIRE_FORGET   /* it does not join */
};
enum coll_wire_agree { AGREE_CONTRIBUTE, AGREE_PROPOSE, AGREE_CONFIRM, AGREE_DECIDE };

struct coll_wire {
    uint64_t team;
    uint32_t epoch, seq, tag, from;
    uint32_t stream; /* 0: ordered by calls; else those of one tag and set of members */
};
enum { COLL_WIRE_BYTES = 28 };
void weft__coll_wire_write(uint8_t to[COLL_WIRE_BYTES], const struct coll_wire *v);
bool weft__coll_wire_read(const void *p, size_t len, struct coll_wire *v);

/* Before the lost members and the blobs of a value that members agree about. */
struct agree_head {
    uint64_t flags;
    uint32_t ballot; /* rank of the coordinator that proposed it, plus one; 0: no proposal */
    uint32_t blob_len;
};
enum { AGREE_HEAD_BYTES = 16 };
void weft__agree_head_write(uint8_t to[AGREE_HEAD_BYTES], const struct agree_head *v);
bool weft__agree_head_read(const void *p, size_t len, struct agree_head *v); /* of `len` or more */

/* What a program carries to a worker that is to join a team. */
enum { INVITATION_HEAD = 16, INVITATION_ADDRESS_MOST = 256 };
struct coll_invitation {
    uint64_t team;
    uint32_t epoch;
    const uint8_t *address; /* of the member's worker; within the bytes */
    size_t address_len;
};
void weft__invitation_write(uint8_t to[INVITATION_HEAD], const struct coll_invitation *v);
bool weft__invitation_read(const void *p, size_t len, struct coll_invitation *v);
enum { JOIN_MEMBERS_MOST = 1 << 20, JOINERS_MOST = 4096 };

/* What each member puts into the exchange that makes a team. */
struct member_record {
    uint16_t address_len, flags;
    uint64_t nonce;       /* random: makes the team's identity */
    uint64_t host;        /* equal for those who share cores, and may share memory; 0: not known */
    uint32_t cores, core; /* how many it may run on; if that is one, which, plus one */
    uint32_t ranks_per_core;
    uint32_t pid, fd;              /* its process, and of the shared segment, if flags say so */
    uint64_t probe;                /* where its nonce stands in the memory of its process */
    uint64_t eager, slot, choices; /* settings that must agree */
    uint8_t address[256];
};
enum {
    MEMBER_RECORD_BYTES = 336,
    MEMBER_MAPS = 1 /* wants shared slots */,
    MEMBER_SEGMENT = 2 /* offers the segment */,
    MEMBER_LONG_DOUBLE = 256 /* times the bits of a long double's mantissa */
};
void weft__member_write(uint8_t to[MEMBER_RECORD_BYTES], const struct member_record *v);
bool weft__member_read(const void *p, size_t len, struct member_record *v);

#endif

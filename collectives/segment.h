/*
 * Memory that all members of a team on one host have mapped: a few channels, each with a place for
 * every member and one for the result (slots.c), with a line and an annex for every member
 * (oneshot.c), with an offer of every member (single_copy.c), and with a block of each for each
 * (blocks.c). Use number n takes channel
 * n % SEGMENT_CHANNELS; slots, lines and offers each count their own. What is counted only ever
 * grows, so that nothing is reset and no member can be a lap behind unnoticed.
 *
 * It is a memfd, opened by the others through /proc: nothing is left behind by a death at any time,
 * no other user can open it, its size is sealed and its pages are reserved, so that no access can
 * fail.
 *
 * With it goes a doorbell: a pipe that all members watch while they sleep. One write wakes all.
 */
#ifndef WEFT_COLLECTIVES_SEGMENT_H
#define WEFT_COLLECTIVES_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <transports/cuda/peer_memory.h>
#include <weft/base.h>

enum { SEGMENT_CHANNELS = 4, SEGMENT_LINE = 64, SEGMENT_PART = 48, SEGMENT_MOST_MEMBERS = 256 };
enum { SEGMENT_LINES = 16 }; /* of a member: use number n of the lines takes n % SEGMENT_LINES */
/* An annex has what a line has no room for; larger teams have none. */
enum { SEGMENT_ANNEX = 8 << 10, SEGMENT_ANNEX_MEMBERS = 16 };
/* The blocks of a member in a channel, in such a team: 1 KiB each has room in a team of eight. A
 * larger block than the second is faster read where it lies. */
enum { SEGMENT_BLOCKS = 10 << 10, SEGMENT_BLOCK = 2560 };
/* A short block stands in the line of its head. In a team of more than two, whose members may share
 * cores and go on in turns, use number n of the heads takes n % SEGMENT_HEADS. */
enum { SEGMENT_SHORT = 32, SEGMENT_HEADS = 16 };
enum { SEGMENT_WORD = 64, SEGMENT_WORDS = SEGMENT_MOST_MEMBERS / SEGMENT_WORD };

/* What a member sleeps for: anything that another writes, or only room to go on. */
enum segment_sleep { FOR_NEWS, FOR_SPACE, N_SLEEPS };

struct segment_channel {
    _Alignas(SEGMENT_LINE) _Atomic uint64_t arrived;   /* members who have put in their part */
    _Alignas(SEGMENT_LINE) _Atomic uint64_t published; /* uses whose result stands in its place */
    _Alignas(SEGMENT_LINE) _Atomic uint64_t left;      /* members who are through with it */
};

/* What a member alone writes, so that its line stays with it. */
struct segment_member {
    /* uses of slots that it has put its part into */
    _Alignas(SEGMENT_LINE) _Atomic uint64_t entered;
    _Atomic uint64_t left; /* uses of lines that it is through with */
    /* Collectives, in the order of their calls: all below `calls` it has begun, and written a
     * record of those with device memory; of all below `calls_left` it needs no record more. */
    _Atomic uint64_t calls, calls_left;
    /* uses of offers in which it has read all that it reads, and those in which its slice stands */
    _Atomic uint64_t read, reduced;
    _Atomic uint32_t withdrawn; /* its offers do not stand any more */
};
_Static_assert(sizeof(struct segment_member) == SEGMENT_LINE, "a line is a line");

/* The device memory of a member in one collective (peer.c). */
struct segment_peer {
    _Alignas(SEGMENT_LINE) _Atomic uint64_t call; /* its number, plus one: written last; 0: none */
    _Atomic uint32_t stage, withdrawn;
    uint32_t flags;
    struct cuda_export src, dst; /* `len` 0: it has none */
};

/* Where a buffer lies: in the process of its member, and in a memfd that others may map. */
struct segment_place {
    uint64_t address;
    uint64_t inode;       /* of the memfd; 0: in none */
    uint64_t offset, len; /* there, and as far as the region goes */
    uint32_t fd;          /* in the process of its member */
};

/* The memory that a member lets the others read in one use. */
struct segment_offer {
    _Alignas(SEGMENT_LINE) _Atomic uint64_t use; /* its number, plus one: written last */
    uint64_t blocks, len;                        /* an address; bytes of a block */
    uint64_t released;                           /* exposed regions of the member, so far */
    struct segment_place src, dst;
};

/* The head of the block of a v-form that a member gives to another in one use. A block that has no
 * room in the segment lies in what the member offers. */
struct segment_block {
    _Alignas(SEGMENT_LINE) _Atomic uint64_t use; /* its number, plus one: written last */
    uint64_t read;                               /* as its writer's `read` was then */
    uint64_t offset, len;
    uint8_t bytes[SEGMENT_SHORT]; /* segment_block_bytes() */
};
_Static_assert(sizeof(struct segment_block) == SEGMENT_LINE, "a line is a line");

/* A member's part of one use, whole in one line of the cache; or in its annex. */
struct segment_line {
    uint8_t part[SEGMENT_PART];
    _Atomic uint64_t left; /* as its writer's `left` was then */
    _Atomic uint64_t use;  /* the number of the use, plus one: written last */
};
_Static_assert(sizeof(struct segment_line) == SEGMENT_LINE, "a line is a line");

struct segment_head {
    uint64_t magic, nonce, size, slot, bytes;
    struct segment_channel channel[SEGMENT_CHANNELS];
    /* A bit for each member: does it sleep? Does it sleep until there is room? Few do that, and
     * each member that leaves looks: so it has a line of its own. */
    struct {
        _Alignas(SEGMENT_LINE) _Atomic uint64_t word[SEGMENT_WORDS];
    } asleep[N_SLEEPS];
    uint64_t doorbell_inode;
    uint32_t doorbell;       /* the descriptor of its maker */
    _Atomic uint32_t filled; /* a member has allocated the pages of the slots, for all */
    _Atomic uint32_t peers;  /* a member waits, now and then, for what others say in `calls` */
};

struct segment {
    struct segment_head *head;
    struct segment_member *member; /* behind the head, */
    struct segment_line *line;     /* behind them, */
    struct segment_peer *peer;     /* behind those, */
    struct segment_offer *offer;   /* behind those, */
    uint8_t *block;                /* behind these, */
    uint8_t *room;                 /* behind the heads of blocks, in a team of more than two, */
    uint8_t *annex;                /* behind those, */
    uint8_t *data;                 /* and behind these */
    uint64_t bytes, slot;
    uint32_t size;
    /* From head to head, and how many there are of a pair, less one; from block to block. */
    uint32_t head_stride, head_mask, block_stride;
    int fd; /* of its maker, until all have opened it; -1 */
    int doorbell;
    bool has_slots; /* their pages are there, and mapped: see weft__team_segment_fill */
};

/* The maker's side. WEFT_ERR_UNSUPPORTED or WEFT_ERR_NO_MEMORY: the team goes without. */
weft_status_t weft__team_segment_create(const void *parent, uint32_t size, uint64_t slot,
                                        uint64_t nonce, struct segment **segment_p);
/* The others': descriptor `fd` of process `pid`, by the maker's record; must be what the maker
 * says it is. */
struct member_record;
weft_status_t weft__team_segment_open(const void *parent, uint32_t size,
                                      const struct member_record *maker,
                                      struct segment **segment_p);
/*
 * Each member's, before it touches a slot for the first time: after it that cannot end in SIGBUS.
 * The rest of the segment is there from the beginning. WEFT_ERR_NO_MEMORY: one may ask again.
 */
weft_status_t weft__team_segment_fill(struct segment *segment);
void weft__team_segment_opened(struct segment *segment); /* by all: it can be opened no more */
void weft__team_segment_close(struct segment *segment);
/* All members that sleep on the doorbell wake up. */
void weft__team_segment_ring(const struct segment *segment);

/* Where member `index` of a channel puts its part; index `size` is the result's place. */
static inline uint8_t *segment_slot(const struct segment *s, uint32_t channel, uint32_t index) {
    return s->data + ((uint64_t)channel * (s->size + 1) + index) * s->slot;
}

/* What member `index` says in use number `use` of the lines. */
static inline struct segment_line *segment_line(const struct segment *s, uint64_t use,
                                                uint32_t index) {
    return &s->line[use % SEGMENT_LINES * s->size + index];
}

/* The rest of what it says there, from its beginning, if the line has no room for it. */
static inline uint8_t *segment_annex(const struct segment *s, uint64_t use, uint32_t index) {
    return s->annex + (use % SEGMENT_CHANNELS * s->size + index) * SEGMENT_ANNEX;
}

/* The records of member `index`: SEGMENT_CHANNELS of them. */
static inline struct segment_peer *segment_peer(const struct segment *s, uint32_t channel,
                                                uint32_t index) {
    return &s->peer[index * SEGMENT_CHANNELS + channel];
}

/* What member `index` offers in use number `use` of the offers. */
static inline struct segment_offer *segment_offer(const struct segment *s, uint64_t use,
                                                  uint32_t index) {
    return &s->offer[use % SEGMENT_CHANNELS * s->size + index];
}

/* Has the team a place for each block of a v-form? */
static inline bool segment_has_blocks(const struct segment *s) {
    return s->size <= SEGMENT_ANNEX_MEMBERS;
}

/* Of two members a block follows its head, and there are as many heads as channels: one line less
 * goes between them. */
static inline bool segment_has_heads(uint32_t size) {
    return size > 2;
}

/* How many uses a member may be ahead of another, at most. */
static inline uint64_t segment_heads(const struct segment *s) {
    return s->head_mask + 1;
}

static inline uint32_t segment_block_stride(uint32_t size) {
    uint32_t share = SEGMENT_BLOCKS / size / SEGMENT_LINE * SEGMENT_LINE;
    return share < SEGMENT_BLOCK ? share : SEGMENT_BLOCK;
}

/* Bytes of a block that stands there itself, at most. */
static inline uint64_t segment_block_room(const struct segment *s) {
    uint64_t head = segment_has_heads(s->size) ? 0 : offsetof(struct segment_block, bytes);
    return s->block_stride - head;
}

static inline uint64_t segment_pair(const struct segment *s, uint64_t number, uint32_t from,
                                    uint32_t to) {
    return (number * s->size + from) * s->size + to;
}

/* What member `from` gives to member `to` in use number `use` of the offers. */
static inline struct segment_block *segment_block(const struct segment *s, uint64_t use,
                                                  uint32_t from, uint32_t to) {
    uint64_t pair = segment_pair(s, use & s->head_mask, from, to);
    return (struct segment_block *)(s->block + pair * s->head_stride);
}

/* Its bytes, if it has room there. */
static inline uint8_t *segment_block_bytes(const struct segment *s, uint64_t use, uint32_t from,
                                           uint32_t to, uint64_t len) {
    if (len <= SEGMENT_SHORT || !segment_has_heads(s->size))
        return (uint8_t *)segment_block(s, use, from, to) + offsetof(struct segment_block, bytes);
    uint64_t number = use % SEGMENT_CHANNELS;
    return s->room + segment_pair(s, number, from, to) * s->block_stride;
}

/* Of those who may share memory: the same boot of the same machine, the same user and namespace
 * of processes. 0: not known. */
uint64_t weft__team_host(void);

#endif

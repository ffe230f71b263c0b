/*
 * Memory at one fixed address: what goes over the wire is the same in every process, whatever the
 * kernel's mood.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "world.h"

enum { CLASSES = 32, SMALLEST = 6 };
static const uintptr_t BASE = UINT64_C(0x200000000000);
static const size_t ROOM = UINT64_C(4) << 30;

struct standby {
    struct standby *next;
};
static uint8_t *base, *at;
static struct standby *standby[CLASSES];
uint8_t arena_pattern[2 * PATTERN];

static void open_arena(void) {
    base = mmap((void *)BASE, ROOM, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (base != (void *)BASE) abort();
    for (size_t i = 0; i < PATTERN; i += sizeof(uint64_t)) {
        uint64_t word = draw(0, DRAW_PATTERN, 0, i);
        memcpy(arena_pattern + i, &word, sizeof word);
    }
    memcpy(arena_pattern + PATTERN, arena_pattern, PATTERN);
}

void arena_begin(void) {
    if (!base) open_arena();
    at = base;
    memset(standby, 0, sizeof standby);
}

static uint8_t *more_arena(size_t len) {
    uint8_t *mine = at;
    at += (len + 63) & ~(size_t)63;
    if (at > base + ROOM) abort();
    return mine;
}

void *arena_alloc(size_t len) {
    return memset(more_arena(len), 0, len);
}

static unsigned class_of(size_t len) {
    unsigned class = SMALLEST;
    while ((size_t)1 << class < len) class ++;
    return class;
}

uint8_t *arena_take(size_t len) {
    unsigned class = class_of(len);
    struct standby *mine = standby[class];
    if (!mine) return more_arena((size_t)1 << class);
    standby[class] = mine->next;
    return (uint8_t *)mine;
}

void arena_give(uint8_t *buf, size_t len, size_t sent) {
    unsigned class = class_of(len);
    if (sent) memset(buf, 0xdd, sent);
    struct standby *mine = (struct standby *)buf;
    mine->next = standby[class];
    standby[class] = mine;
}

const uint8_t *pattern_of(const struct half *from, enum asked_kind kind, uint64_t n) {
    const struct connection *c = from->connection;
    uint64_t actor = (uint64_t)c->serial << 8 | (uint64_t)(from - c->half) << 7 | (uint64_t)kind;
    return arena_pattern + draw_below(c->world->plan->seed, DRAW_PATTERN, actor, n, PATTERN);
}

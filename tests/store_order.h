/*
 * Total store order (x86), for models of what processors do to memory they share: each processor's
 * stores wait in a FIFO buffer that only itself reads through, and reach memory at any later
 * moment. All states that a model comes to are kept, in the order in which they were found.
 *
 * To be defined before: N_VARIABLES, N_PROCESSORS; BUFFER, how many stores wait at most; ROOM, for
 * so many states; OWN_STATE, the fields of a state that are the model's own, of bytes alone.
 */
#ifndef WEFT_TESTS_STORE_ORDER_H
#define WEFT_TESTS_STORE_ORDER_H

#include <base/hash.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct state {
    uint8_t memory[N_VARIABLES];
    OWN_STATE
    uint8_t n_stored[N_PROCESSORS];
    struct store {
        uint8_t variable, value;
    } stored[N_PROCESSORS][BUFFER];
};

static inline uint8_t load(const struct state *s, int p, int v) {
    for (int i = s->n_stored[p]; i-- > 0;)
        if (s->stored[p][i].variable == v) return s->stored[p][i].value;
    return s->memory[v];
}

/* False: the buffer is full, and the instruction waits. */
static inline bool store(struct state *s, int p, int v, uint8_t value) {
    if (s->n_stored[p] == BUFFER) return false;
    s->stored[p][s->n_stored[p]++] = (struct store){(uint8_t)v, value};
    return true;
}

static inline bool drain_one(struct state *s, int p) {
    if (!s->n_stored[p]) return false;
    s->memory[s->stored[p][0].variable] = s->stored[p][0].value;
    memmove(s->stored[p], s->stored[p] + 1, sizeof(struct store) * (BUFFER - 1));
    s->stored[p][--s->n_stored[p]] = (struct store){0, 0};
    return true;
}

/* ---- the states, remembered in a table of open addressing */

static struct state seen[ROOM];
static uint32_t slot[2 * ROOM], n_seen; /* 1 + index into seen; 0: free */

static inline void visit(const struct state *s) {
    uint32_t at = (uint32_t)(hash_more(HASH_BEGIN, s, sizeof *s) % (2 * ROOM));
    for (; slot[at]; at = (at + 1) % (2 * ROOM))
        if (!memcmp(&seen[slot[at] - 1], s, sizeof *s)) return;
    if (n_seen == ROOM) abort();
    seen[n_seen++] = *s;
    slot[at] = n_seen;
}

static inline void visit_first(void) {
    memset(slot, 0, sizeof slot);
    n_seen = 0;
    visit(&(struct state){.memory = {0}});
}

#endif

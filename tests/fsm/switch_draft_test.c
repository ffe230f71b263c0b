/*
 * Why the words of a switch wait with their lane: the marker of the way back, by a fast lane,
 * overtakes the one of the way there. One direction, explored by two drafts of the rules.
 */
#include "tests/harness.h"

#include <stdbool.h>
#include <stdint.h>

enum { QUEUE = 12 };
enum word { DATA = 1, END };
#define WORD(kind, value) ((uint8_t)((kind) << 4 | (value)))
struct queue {
    uint8_t n, at[QUEUE];
};
static void push(struct queue *q, uint8_t word) {
    q->at[q->n++] = word;
}
static uint8_t pop(struct queue *q) {
    uint8_t word = q->at[0];
    memmove(q->at, q->at + 1, --q->n);
    q->at[q->n] = 0;
    return word;
}

/* One direction, by drafts of the rules. The first had markers that are read when they come; what
 * decides is that a word waits with its lane, and that neither side goes back before the peer has
 * come. */
struct draft {
    bool words_wait;
    bool waits_for_drained;
};
struct way {
    uint8_t out, in, sent, seen, moves, outstanding; /* outstanding: DRAINED not received */
    struct queue lane[2], held[2];
    uint8_t order_broken;
};

static void read_lane(struct way *w, const struct draft *d, unsigned lane, uint8_t word);
static void read_held(struct way *w, const struct draft *d) {
    while (w->held[w->in].n) read_lane(w, d, w->in, pop(&w->held[w->in]));
}
static void read_lane(struct way *w, const struct draft *d, unsigned lane, uint8_t word) {
    bool is_word = word >> 4 == END;
    if (lane != w->in && !(is_word && !d->words_wait)) {
        push(&w->held[lane], word);
    } else if (is_word) {
        w->in = (uint8_t)!lane;
        w->outstanding = 0;
        read_held(w, d);
    } else {
        w->order_broken |= (word & 15) != w->seen++;
    }
}

static const char *refuted(const struct draft *d, unsigned *n_p) {
    static struct way list[200000];
    unsigned n = 1;
    list[0] = (struct way){0};
    for (unsigned at = 0; at < n; at++) {
        bool moved = false;
        for (unsigned m = 0; m < 4; m++) {
            struct way w = list[at];
            if (m < 2 && w.lane[m].n) {
                read_lane(&w, d, m, pop(&w.lane[m]));
            } else if (m == 2 && w.sent < 3) {
                push(&w.lane[w.out], WORD(DATA, w.sent++));
            } else if (m == 3 && w.moves < 3 && !(w.outstanding && d->waits_for_drained)) {
                push(&w.lane[w.out], WORD(END, 0));
                w.out ^= 1, w.outstanding = 1, w.moves++;
            } else {
                continue;
            }
            moved = true;
            bool known = false;
            for (unsigned i = at; i < n && !known; i++) known = memcmp(&list[i], &w, sizeof w) == 0;
            if (!known && n < 200000) list[n++] = w;
        }
        *n_p = n;
        if (list[at].order_broken) return "messages out of order";
        if (!moved && list[at].seen != 3) return "messages that are never delivered";
    }
    return NULL;
}

TEST(a_marker_that_overtakes_another_is_what_the_naive_draft_dies_of) {
    unsigned n;
    const char *why = refuted(&(struct draft){0}, &n);
    printf("  markers read as they come: %s, after %u states\n", why ? why : "nothing", n);
    CHECK(why);
    why = refuted(&(struct draft){.words_wait = true, .waits_for_drained = true}, &n);
    printf("  words wait with their lane: %s, %u states\n", why ? why : "all delivered in order",
           n);
    CHECK(!why);
}

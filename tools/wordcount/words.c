#include "words.h"
#include <stdlib.h>
#include <string.h>

/* ---- words ----------------------------------------------------------------------------------- */

static int desc(unsigned char c) {
    if (c >= 'A' && c <= 'Z') return c + ('a' - 'A');
    return (c >= 'a' && c <= 'z') || c >= 0x80 ? c : 0;
}

void scanner_end(struct scanner *s) {
    if (s->len > 0) s->found(s->word, s->len, s->arg);
    s->len = 0;
}

void scanner_feed(struct scanner *s, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        int c = desc((unsigned char)text[i]);
        if (!c || s->len == WORD_MAX) scanner_end(s);
        if (c) s->word[s->len++] = (char)c;
    }
}

/*
 * FNV-1a, its bits mixed once more, since the upper half selects owners and the lower half slots.
 */
uint64_t word_hash(const char *word, size_t len) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++) h = (h ^ (unsigned char)word[i]) * 0x100000001b3u;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    return h ^ h >> 33;
}

uint64_t word_fingerprint(uint64_t hash, uint64_t count) {
    uint64_t x = hash ^ count * 0x9e3779b97f4a7c15u;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ x >> 29;
}

/* ---- the table ------------------------------------------------------------------------------- */

bool table_open(struct table *t, size_t n_slots) {
    *t = (struct table){.slots = calloc(n_slots, sizeof t->slots[0]), .n_slots = n_slots};
    return t->slots != NULL;
}

void table_close(struct table *t) {
    free(t->slots);
}

void table_clear(struct table *t) {
    memset(t->slots, 0, t->n_slots * sizeof t->slots[0]);
    t->n = 0;
}

static struct count *slot_of(const struct table *t, const char *word, size_t len, uint64_t hash) {
    for (size_t i = hash;; i++) {
        struct count *slot = &t->slots[i & (t->n_slots - 1)];
        if (slot->len == 0) return slot;
        if (slot->hash == hash && slot->len == len && memcmp(slot->word, word, len) == 0)
            return slot;
    }
}

static bool grow_words(struct table *t) {
    struct table wide;
    if (!table_open(&wide, 2 * t->n_slots)) return false;
    for (size_t i = 0; i < t->n_slots; i++) {
        const struct count *c = &t->slots[i];
        if (c->len > 0) *slot_of(&wide, c->word, c->len, c->hash) = *c;
    }
    wide.n = t->n;
    free(t->slots);
    *t = wide;
    return true;
}

bool table_add(struct table *t, const char *word, size_t len, uint64_t hash, uint64_t count) {
    struct count *slot = slot_of(t, word, len, hash);
    if (slot->len == 0) {
        if (2 * t->n >= t->n_slots) {
            if (!grow_words(t)) return false;
            slot = slot_of(t, word, len, hash);
        }
        slot->hash = hash;
        slot->len = (uint8_t)len;
        memcpy(slot->word, word, len);
        t->n++;
    }
    slot->count += count;
    return true;
}

int count_compare(const void *a, const void *b) {
    const struct count *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->word, y->word, len);
    return order ? order : (int)x->len - (int)y->len;
}

/* `top` stays sorted: most words do not come near it. */
size_t table_top(const struct table *t, struct count *top, size_t most) {
    size_t n = 0;
    for (size_t i = 0; i < t->n_slots; i++) {
        const struct count *c = &t->slots[i];
        if (c->len == 0 || (n == most && count_compare(c, &top[n - 1]) > 0)) continue;
        size_t at = n < most ? n++ : n - 1;
        for (; at > 0 && count_compare(c, &top[at - 1]) < 0; at--) top[at] = top[at - 1];
        top[at] = *c;
    }
    return n;
}

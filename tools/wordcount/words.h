/* What a word is, and a table that counts them. */
#ifndef WEFT_TOOLS_WORDCOUNT_WORDS_H
#define WEFT_TOOLS_WORDCOUNT_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A run of A to Z, a to z and bytes beyond ASCII, in lower case; a longer run is cut into several
 * words.
 */
enum { WORD_MAX = 55 };

typedef void (*word_fn)(const char *word, size_t len, void *arg);

/* Text comes in pieces of any size; a word may span them. */
struct scanner {
    word_fn found;
    void *arg;
    size_t len;
    char word[WORD_MAX];
};
void scanner_feed(struct scanner *s, const char *text, size_t len);
void scanner_end(struct scanner *s); /* of a file: so is the last word's */

uint64_t word_hash(const char *word, size_t len);
/* Adds up, over words in any order, to a number that distinguishes tables. */
uint64_t word_fingerprint(uint64_t hash, uint64_t count);

struct count {
    uint64_t hash, count;
    uint8_t len; /* 0: the slot is free */
    char word[WORD_MAX];
};

/* Open addressing, at most half full. */
struct table {
    struct count *slots;
    size_t n_slots, n; /* n_slots is a power of two */
};
bool table_open(struct table *t, size_t n_slots);
/* False when memory runs out. */
bool table_add(struct table *t, const char *word, size_t len, uint64_t hash, uint64_t count);
void table_clear(struct table *t);
void table_close(struct table *t);

/* More frequent first, then by spelling. */
int count_compare(const void *a, const void *b);
/* The first `most` by that order into `top`; returns how many there were. */
size_t table_top(const struct table *t, struct count *top, size_t most);

#endif

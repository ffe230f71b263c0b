/*
 * The plain count in one process, in another way: all words in one array, sorted, equal ones
 * counted.
 */
#ifndef WEFT_TOOLS_WORDCOUNT_SERIAL_H
#define WEFT_TOOLS_WORDCOUNT_SERIAL_H

#include "files.h"
#include "words.h"

enum { TOP = 20 };

/* What a count comes to. */
struct result {
    uint64_t words, distinct, fingerprint;
    size_t n_top;
    struct count top[TOP];
};

/* False after a message. */
bool serial_count(const struct files *files, struct result *result_p);

/* Writes to standard error in what they differ; true when in nothing. */
bool results_equal(const struct result *a, const struct result *b);

#endif

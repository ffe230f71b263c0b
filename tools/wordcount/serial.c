#include "serial.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word in the heap; the key orders most pairs without a look at them. */
struct ref {
    uint64_t key; /* the first 8 bytes, big-endian */
    const char *word;
    uint8_t len;
};

struct heap {
    char *text; /* all files: where the words point */
    size_t text_len;
    struct ref *refs;
    size_t n, room;
    bool failed;
};

static uint64_t key_of(const char *word, size_t len) {
    uint64_t key = 0;
    for (size_t i = 0; i < 8; i++) key = key << 8 | (i < len ? (unsigned char)word[i] : 0);
    return key;
}

/*
 * `word` lies in the scanner; its copy takes the place of the text it was made of, which is never
 * shorter.
 */
static void keep_word(const char *word, size_t len, void *arg) {
    struct heap *h = arg;
    if (h->n == h->room) {
        size_t room = h->room ? 2 * h->room : 1 << 16;
        struct ref *more = realloc(h->refs, room * sizeof h->refs[0]);
        if (!more) {
            h->failed = true;
            return;
        }
        h->refs = more;
        h->room = room;
    }
    char *copy = memcpy(h->text + h->text_len, word, len);
    h->text_len += len;
    h->refs[h->n++] = (struct ref){key_of(word, len), copy, (uint8_t)len};
}

static int by_spelling(const void *a, const void *b) {
    const struct ref *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    int order = memcmp(x->word, y->word, x->len < y->len ? x->len : y->len);
    return order ? order : (int)x->len - (int)y->len;
}

static bool read_file(struct heap *h, const struct text_file *file) {
    char piece[65536];
    struct scanner scanner = {.found = keep_word, .arg = h};
    uint64_t left = file->size; /* a file that grows is counted as it was found */
    FILE *from = fopen(file->path, "rb");
    size_t n = 1;
    while (from && left > 0 && n > 0) {
        n = fread(piece, 1, left < sizeof piece ? left : sizeof piece, from);
        scanner_feed(&scanner, piece, n);
        left -= n;
    }
    scanner_end(&scanner);
    bool ok = from && left == 0 && !h->failed;
    if (!ok) fprintf(stderr, "wordcount: %s: cannot be read\n", file->path);
    if (from) fclose(from);
    return ok;
}

static void tally(const struct heap *h, struct result *r) {
    for (size_t begin = 0, end; begin < h->n; begin = end) {
        for (end = begin + 1; end < h->n && by_spelling(&h->refs[begin], &h->refs[end]) == 0;)
            end++;
        struct count c = {.count = end - begin, .len = h->refs[begin].len};
        memcpy(c.word, h->refs[begin].word, c.len);
        c.hash = word_hash(c.word, c.len);
        r->distinct++;
        r->fingerprint += word_fingerprint(c.hash, c.count);
        if (r->n_top < TOP)
            r->top[r->n_top++] = c;
        else if (count_compare(&c, &r->top[TOP - 1]) < 0)
            r->top[TOP - 1] = c;
        else
            continue;
        qsort(r->top, r->n_top, sizeof r->top[0], count_compare);
    }
}

bool serial_count(const struct files *files, struct result *result_p) {
    struct heap heap = {.text = malloc(files->bytes + 1)};
    bool ok = heap.text != NULL;
    for (size_t i = 0; ok && i < files->n; i++) ok = read_file(&heap, &files->list[i]);
    if (ok) {
        struct result result = {.words = heap.n};
        qsort(heap.refs, heap.n, sizeof heap.refs[0], by_spelling);
        tally(&heap, &result);
        *result_p = result;
    }
    free(heap.refs);
    free(heap.text);
    return ok;
}

static bool same(const char *what, uint64_t a, uint64_t b) {
    if (a != b)
        fprintf(stderr, "wordcount: %s: %" PRIu64 ", but serially %" PRIu64 "\n", what, a, b);
    return a == b;
}

bool results_equal(const struct result *a, const struct result *b) {
    bool equal = same("words", a->words, b->words);
    equal &= same("different words", a->distinct, b->distinct);
    equal &= same("fingerprint of all counts", a->fingerprint, b->fingerprint);
    equal &= same("words at the top", a->n_top, b->n_top);
    for (size_t i = 0; equal && i < a->n_top; i++) {
        equal = count_compare(&a->top[i], &b->top[i]) == 0;
        if (!equal) fprintf(stderr, "wordcount: number %zu of the top differs\n", i + 1);
    }
    return equal;
}

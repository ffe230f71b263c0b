/* Regions and keys to them: each key has a plot that no other touches, and an image of what
 * has to be there. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "world.h"

/* ---- regions --------------------------------------------------------------------------------- */

enum { FIELD = FIELD_HEAD + PLOTS * PLOT };

/* What another process would be given. */
static weft_status_t import(struct node *node, const weft_mem_params_t *params,
                            weft_mem_t **mem_p) {
    weft_mem_t *first;
    uint64_t offset;
    int fd;
    weft_status_t st = weft_mem_alloc(node->worker, FIELD, params, &first);
    if (st < 0) return st;
    st = weft_mem_export(first, &fd, &offset);
    if (st < 0) return st;
    if (percent(50)) st = weft_mem_release(first, NULL);
    if (st == WEFT_OK) st = weft_mem_import(node->worker, fd, offset, FIELD, params, mem_p);
    close(fd);
    return st;
}

static weft_status_t make(struct field *f, const weft_mem_params_t *params) {
    weft_worker_t *worker = f->node->worker;
    uint32_t which = below(10);
    if (which < 4) return weft_mem_alloc(worker, FIELD, params, &f->mem);
    if (which < 5) return import(f->node, params, &f->mem);
    if (posix_memalign((void **)&f->own, 64, FIELD) != 0) abort();
    memset(f->own, 0, FIELD);
    if (which < 8) return weft_mem_register(worker, f->own, FIELD, params, &f->mem);
    f->cached = true;
    return weft_mem_get(worker, f->own, FIELD, params->rights, &f->mem);
}

static void on_invalid(weft_mem_t *mem, void *arg) {
    struct field *f = arg;
    CALLED((uint64_t)(f - world->field) << 8 | 11);
    if (!f->harmed) wrong("a region is invalid, without a reason");
    RETURNS;
}

static void field_new(struct node *node) {
    struct field *f = world->field;
    weft_mem_info_t info;
    while (f < world->field + FIELDS && f->node) f++;
    if (f == world->field + FIELDS) return;
    f->node = node;
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL,
                                .pages = (weft_mem_pages_t)below(4),
                                .on_invalid = on_invalid,
                                .arg = f};
    weft_status_t st = make(f, &params);
    if (st < 0 || weft_mem_describe(f->mem, &info) < 0)
        wrong("no region: %s", weft_status_name(st));
    if (info.len < FIELD || (f->own && info.base != f->own)) wrong("a region is another one");
    f->base = info.base;
    f->key_len = sizeof f->key;
    st = weft_mem_pack(f->mem, f->key, &f->key_len);
    if (st < 0) wrong("no key: %s", weft_status_name(st));
    trace("node %u has region %zu", node->n, f - world->field);
}

/* ---- revoked, released ----------------------------------------------------------------------- */

static void revoked(weft_status_t status, void *arg) {
    CALLED(12);
    world->waiting--;
    RETURNS;
}
static void released(weft_status_t status, void *arg) {
    struct field *f = arg;
    CALLED((uint64_t)(f - world->field) << 8 | 13);
    if (f->gone) wrong("a region is gone twice");
    f->gone = true;
    world->waiting--;
    RETURNS;
}

static void field_harm(struct field *f) {
    weft_op_t gone = {.done = released, .arg = f}, shut = {.done = revoked};
    weft_status_t st;
    uint32_t which = below(3);
    if (f->harmed) return;
    f->harmed = true;
    if (which == 0) {
        st = weft_mem_revoke(f->mem, &shut);
    } else if (f->cached) {
        st = weft_mem_invalidate(f->node->worker, f->base, FIELD, &shut);
        weft_mem_put(f->mem);
    } else {
        st = weft_mem_release(f->mem, &gone);
        f->gone = st == WEFT_OK;
    }
    trace("region %zu is %s: %s", f - world->field,
          which == 0  ? "revoked"
          : f->cached ? "invalid"
                      : "released",
          weft_status_name(st));
    if (st < 0 && st != WEFT_ERR_BUSY) wrong("a region is not given up: %s", weft_status_name(st));
    world->waiting += st == WEFT_IN_PROGRESS;
}

void field_act(void) {
    struct node *node = any_node();
    if (!node || !owns(node)) return;
    struct field *f = &world->field[below(FIELDS)];
    if (may(MAY_REVOKE) && f->node == node && f->mem && percent(50))
        field_harm(f);
    else if (percent(30))
        field_new(node);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static struct field *field_for(const struct end *end) {
    for (int i = 0; i < 12; i++) {
        struct field *f = &world->field[below(FIELDS)];
        if (f->node && f->node == end->to && f->key_len && !f->harmed && f->n_plots < PLOTS)
            return f;
    }
    return NULL;
}

static void grip_new(void) {
    struct end *end = any_end();
    struct field *f = end && owns(end->node) && end->to ? field_for(end) : NULL;
    struct grip *g = world->grip;
    while (g < world->grip + GRIPS && g->field) g++;
    if (!f || g == world->grip + GRIPS) return;
    weft_status_t st = weft_rkey_unpack(end->ep, f->key, f->key_len, &g->rkey);
    trace("end %u has a key to region %zu: %s", end->n, f - world->field, weft_status_name(st));
    if (st < 0 && end_is_safe(end)) wrong("no key: %s", weft_status_name(st));
    if (st < 0) return;
    g->field = f;
    g->end = end;
    g->at = FIELD_HEAD + f->n_plots++ * (size_t)PLOT;
    g->image = calloc(1, PLOT);
    if (!g->image) abort();
}

void grip_act(void) {
    struct grip *g = &world->grip[below(GRIPS)];
    if (percent(20) && g->rkey && g->end->author == here && owns(g->end->node) &&
        !g->end->node->closing) {
        weft_rkey_t *rkey = g->rkey;
        g->rkey = NULL; /* operations under way go on */
        weft_rkey_release(rkey);
    } else {
        grip_new();
    }
}

/* ---- what is there --------------------------------------------------------------------------- */

void grip_tear(struct grip *g, struct stretch s) {
    enum { MOST = sizeof g->torn / sizeof *g->torn };
    if (g->n_torn == MOST)
        g->lost = true;
    else
        g->torn[g->n_torn++] = s;
}

bool grip_knows(const struct grip *g, struct stretch s) {
    bool knows = !g->lost;
    for (uint32_t i = 0; i < g->n_torn; i++)
        knows &= g->torn[i].to <= s.from || s.to <= g->torn[i].from;
    return knows;
}

/* It is not kept for others any more. */
static bool is_gone(const struct field *f) {
    return f->gone || f->harmed || f->node->closing;
}

void grip_check(const struct grip *g, struct stretch s) {
    if (!grip_knows(g, s) || is_gone(g->field)) return;
    const uint8_t *there = g->field->base + g->at;
    for (size_t i = s.from; i < s.to; i++)
        if (there[i] != g->image[i])
            wrong("byte %zu of [%zu, %zu) of plot %zu of region %zu is another", i, s.from, s.to,
                  (g->at - FIELD_HEAD) / PLOT, g->field - world->field);
    world->n_checked += s.to - s.from;
}

static void check_words(const struct grip *g) {
    const uint64_t *word = (const uint64_t *)(g->field->base + g->at + PLOT - PLOT_WORDS);
    if (!g->sum_torn && word[0] != g->sum)
        wrong("a sum is %llu, not %llu", (unsigned long long)word[0], (unsigned long long)g->sum);
    if (!g->bits_torn && word[1] != g->bits) wrong("a word of bits is another");
    if (!g->word_torn && word[2] != g->word) wrong("a word is another");
    if (!g->half_torn && (uint32_t)word[3] != g->half_word) wrong("half a word is another");
}

static void grip_check_all(const struct grip *g) {
    size_t at = 0;
    if (g->lost || is_gone(g->field)) return;
    while (at < PLOT - PLOT_WORDS) { /* between what is torn */
        size_t to = at + 512 < PLOT - PLOT_WORDS ? at + 512 : PLOT - PLOT_WORDS;
        grip_check(g, (struct stretch){at, to});
        at = to;
    }
    check_words(g);
}

void fields_check(void) {
    for (struct grip *g = world->grip; g < world->grip + GRIPS; g++)
        if (g->field) grip_check_all(g);
    for (struct field *f = world->field; f < world->field + FIELDS; f++) {
        uint64_t sum;
        if (!f->base || is_gone(f)) continue;
        memcpy(&sum, f->base, sizeof sum);
        if (sum < f->added_surely || sum > f->added_surely + f->added_maybe)
            wrong("%llu was added, not %llu", (unsigned long long)sum,
                  (unsigned long long)f->added_surely);
    }
}

void fields_end(void) {
    for (struct grip *g = world->grip; g < world->grip + GRIPS; g++) free(g->image);
    for (struct field *f = world->field; f < world->field + FIELDS; f++) free(f->own);
}

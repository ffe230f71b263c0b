/* Reading a statistics page of another process, whose contents are untrusted. */
#include <string.h>

#include "stats_page.h"

/* ---- the copy */

static void copy_words(const void *page, void *to, size_t at, size_t len) {
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)((const char *)page + at);
    uint64_t *word = (uint64_t *)((char *)to + at);
    for (size_t i = 0; i < len / sizeof *word; i++)
        word[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
}

/* Copies a row; marks it LIVE_TORN if the writer did not finish. */
static void copy_row(const void *page, void *to, size_t at, size_t len) {
    const struct stats_row *from = (const struct stats_row *)((const char *)page + at);
    struct stats_row *row = (struct stats_row *)((char *)to + at);
    for (int tries = 0; tries < 1000; tries++) {
        uint32_t before = atomic_load_explicit(&from->sequence, memory_order_acquire);
        copy_words(page, to, at, len);
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && atomic_load_explicit(&from->sequence, memory_order_relaxed) == before)
            return;
    }
    row->flags |= LIVE_TORN;
}

bool weft__stats_copy(const void *page, size_t len, void *to) {
    struct stats_view view;
    if (len < sizeof(struct stats_head) || len > LIVE_MOST || len % sizeof(uint64_t)) return false;
    copy_words(page, to, 0, len);
    if (!weft__stats_read(to, len, &view)) return false;
    /* a copy, as a hostile page may place a row over the head */
    const struct stats_head head = *view.head;
    for (uint32_t i = 0; i < head.n_rows; i++)
        copy_row(page, to, head.rows_at + i * head.row_size, head.row_size);
    return weft__stats_read(to, len, &view);
}

/* ---- the decoder */

static bool within(uint64_t at, uint64_t n, uint64_t each, size_t len) {
    return at % sizeof(uint64_t) == 0 && at <= len && n * each <= len - at;
}

/* True if the names are exactly one string per counter. */
static bool are_names(const char *names, size_t len, uint32_t n) {
    for (size_t i = 0; i < len; i++)
        if (names[i] == 0) n--;
    return n == 0 && (len == 0 || names[len - 1] == 0);
}

bool weft__stats_read(const void *bytes, size_t len, struct stats_view *view) {
    const struct stats_head *h = bytes;
    if (len < sizeof *h || memcmp(h->magic, LIVE_MAGIC, sizeof h->magic) != 0) return false;
    if (h->version != LIVE_VERSION || h->size != len) return false;
    if (h->n_counters > LIVE_NUMBER || h->n_rows > LIVE_NUMBER) return false;
    if (!within(h->counters_at, h->n_counters, sizeof(uint64_t), len)) return false;
    if (!within(h->names_at, h->names_len, 1, len)) return false;
    if (h->row_size != sizeof(struct stats_row) || !within(h->rows_at, h->n_rows, h->row_size, len))
        return false;
    if (h->rows_at < sizeof *h || h->counters_at < sizeof *h || h->names_at < sizeof *h)
        return false;
    if (!are_names((const char *)bytes + h->names_at, h->names_len, h->n_counters)) return false;
    *view = (struct stats_view){h, bytes};
    return true;
}

bool weft__stats_counter(const struct stats_view *view, uint32_t index, const char **name_p,
                         uint64_t *value_p) {
    const struct stats_head *h = view->head;
    if (index >= h->n_counters) return false;
    const char *name = view->bytes + h->names_at;
    for (uint32_t i = 0; i < index; i++) name += strlen(name) + 1;
    *name_p = name;
    memcpy(value_p, view->bytes + h->counters_at + index * sizeof *value_p, sizeof *value_p);
    return true;
}

bool weft__stats_row(const struct stats_view *view, uint32_t index, struct stats_row *row_p) {
    const struct stats_head *h = view->head;
    if (index >= h->n_rows) return false;
    memcpy(row_p, view->bytes + h->rows_at + (size_t)index * h->row_size, sizeof *row_p);
    char *strings[] = {row_p->transport, row_p->link, row_p->negotiation, row_p->switching};
    for (unsigned i = 0; i < 4; i++) strings[i][LIVE_STRING - 1] = 0;
    row_p->where[LIVE_WHERE - 1] = 0;
    return true;
}

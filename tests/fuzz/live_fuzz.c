/* A page that another process shows: any bytes, copied and decoded as weft-info does. */
#include "fuzz.h"
#include <endpoints/inspect/stats_page.h>

/* All that can be asked of it, read to its last byte. */
static size_t read_all(const void *bytes, size_t len) {
    struct stats_view view;
    struct stats_row row;
    const char *name;
    uint64_t value;
    size_t n = 0;
    if (!weft__stats_read(bytes, len, &view)) return 0;
    for (uint32_t i = 0; i < 1000 && weft__stats_counter(&view, i, &name, &value); i++)
        n += strlen(name) + value;
    for (uint32_t i = 0; i < 1000 && weft__stats_row(&view, i, &row); i++)
        n += strlen(row.transport) + strlen(row.link) + strlen(row.negotiation) +
             strlen(row.switching) + strlen(row.where);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t words = (size + 7) / 8 * 8;
    void *page = calloc(1, words + 8), *copy = calloc(1, words + 8);
    if (!page || !copy) abort();
    if (size) memcpy(page, data, size);
    if (size >= 16) { /* or hardly any input would be one */
        const uint32_t head[] = {LIVE_VERSION, (uint32_t)words};
        memcpy(page, LIVE_MAGIC, 8);
        memcpy((char *)page + 8, head, sizeof head);
    }
    volatile size_t n = read_all(page, words);
    if (weft__stats_copy(page, words, copy)) n = read_all(copy, words);
    (void)n;
    free(page);
    free(copy);
    return 0;
}

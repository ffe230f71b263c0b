/* The progress of a run as one line on stderr. */
#ifndef WEFT_RUNTIME_GRAPH_BAR_H
#define WEFT_RUNTIME_GRAPH_BAR_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/base.h>

struct progress_bar {
    bool shown;
    uint64_t drawn; /* ns, when it was drawn last */
};

/* `when`: weft_graph_params_t.progress_bar. */
void weft__bar_begin(struct progress_bar *bar, int when);
/* Draws it, unless that was less than a tenth of a second ago. */
void weft__bar_draw(struct progress_bar *bar, uint32_t done, uint32_t total);
/* Ends the line. */
void weft__bar_end(struct progress_bar *bar, weft_status_t status);

#endif

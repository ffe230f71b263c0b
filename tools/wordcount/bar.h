/* A progress bar, where there is a terminal. */
#ifndef WEFT_TOOLS_WORDCOUNT_BAR_H
#define WEFT_TOOLS_WORDCOUNT_BAR_H

#include <stdint.h>

struct bar {
    int fd; /* -1: no terminal */
    uint64_t drawn_at;
};

/* Under weft-run our output is a pipe, but there may be a terminal behind it. */
void bar_open(struct bar *bar);
void bar_draw(struct bar *bar, uint64_t now_ns, uint64_t done, uint64_t all);
void bar_close(struct bar *bar); /* wipes it */

#endif

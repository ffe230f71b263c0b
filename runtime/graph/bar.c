/* The progress of a run as one line on stderr. */
#include "bar.h"
#include "graph.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_COLUMNS = 30, BAR_PERIOD_NS = 100000000 };

void weft__bar_begin(struct progress_bar *bar, int when) {
    bar->drawn = 0;
    bar->shown = when == WEFT_BAR_ALWAYS || (when == WEFT_BAR_ON_TERMINAL && isatty(STDERR_FILENO));
}

/* One write, so that lines of several processes do not mix. */
static void put(const char *text, int len) {
    ssize_t n = write(STDERR_FILENO, text, (size_t)len);
    (void)n; /* a failed write to stderr cannot be reported */
}

/* What a terminal has room for beside `len` characters: a line that wraps cannot be overwritten. */
static unsigned columns_beside(unsigned len) {
    struct winsize size;
    unsigned all = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
    return all < len + 4 ? 0 : all - len - 4 < BAR_COLUMNS ? all - len - 4 : BAR_COLUMNS;
}

void weft__bar_draw(struct progress_bar *bar, uint32_t done, uint32_t total) {
    static const char full[] = "##############################";
    char numbers[64], line[128];
    if (!bar->shown) return;
    uint64_t now = weft__graph_now();
    if (done < total && bar->drawn && now - bar->drawn < BAR_PERIOD_NS) return;
    bar->drawn = now;
    int len = snprintf(numbers, sizeof numbers, "%u %%, %u of %u tasks",
                       (unsigned)((uint64_t)done * 100 / total), done, total);
    unsigned columns = columns_beside((unsigned)len);
    unsigned filled = (unsigned)((uint64_t)done * columns / total);
    len = snprintf(line, sizeof line, "\r[%.*s%*s] %s", (int)filled, full, (int)(columns - filled),
                   "", numbers);
    put(line, len);
}

void weft__bar_end(struct progress_bar *bar, weft_status_t status) {
    if (!bar->shown || !bar->drawn) return;
    if (status < 0)
        put(", stopped\n", 10);
    else
        put("\n", 1);
}

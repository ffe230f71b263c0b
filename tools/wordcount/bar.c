#include "bar.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 40 };
static const uint64_t pause_ns = 40000000;

void bar_open(struct bar *bar) {
    *bar = (struct bar){.fd = -1};
    if (isatty(2) || getenv("WEFT_RUN_TERMINAL"))
        bar->fd = open("/dev/tty", O_WRONLY | O_CLOEXEC | O_NOCTTY);
}

void bar_draw(struct bar *bar, uint64_t now_ns, uint64_t done, uint64_t all) {
    char cells[WIDTH + 1];
    if (bar->fd < 0 || now_ns - bar->drawn_at < pause_ns) return;
    bar->drawn_at = now_ns;
    size_t full = all ? (size_t)(WIDTH * done / all) : WIDTH;
    if (full > WIDTH) full = WIDTH;
    memset(cells, '.', WIDTH);
    memset(cells, '#', full);
    cells[WIDTH] = 0;
    dprintf(bar->fd, "\r[%s] %.1f of %.1f MB\033[K", cells, (double)done / 1e6, (double)all / 1e6);
}

void bar_close(struct bar *bar) {
    if (bar->fd < 0) return;
    if (bar->drawn_at) dprintf(bar->fd, "\r\033[K");
    close(bar->fd);
    bar->fd = -1;
}

/*
 * What the processes write, forwarded line by line with the rank in front. Processes print what
 * their peers sent, and a terminal obeys control characters: for a terminal each of them becomes a
 * question mark, but for tabs and ends of lines. A file or a pipe gets every byte.
 */
#ifndef WEFT_TOOLS_RUN_OUTPUT_H
#define WEFT_TOOLS_RUN_OUTPUT_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct outputs;

/*
 * Where lines go: written when the descriptor takes them, so that a slow reader never stops the
 * loop.
 */
struct sink {
    ev_io watcher;
    struct outputs *outputs;
    char *bytes;
    size_t len, room;
    int error;     /* errno of the write that failed; 0: none */
    bool terminal; /* it obeys control characters */
    bool paused;   /* it is far behind, and its sources are not read */
};

/* One stream of one process. */
struct source {
    ev_io watcher;
    struct outputs *outputs;
    struct sink *sink;
    uint32_t rank;
    bool open;
    size_t len;
    char line[8192]; /* the last one, until its end comes; a longer one goes in pieces */
};

struct outputs {
    struct ev_loop *loop;
    struct sink sinks[2];   /* standard output, standard error */
    struct source *sources; /* two a rank */
    uint32_t n;
    void (*broken)(struct outputs *outputs); /* a sink takes nothing any more */
};

/* False when memory runs out. */
bool outputs_open(struct outputs *o, struct ev_loop *loop, uint32_t n_ranks,
                  void (*broken)(struct outputs *));
/*
 * Forwards `fd`, the read end of a pipe that it owns from now on, to our descriptor `to` (1 or 2).
 */
void outputs_forward(struct outputs *o, uint32_t rank, int to, int fd);
/*
 * A line of our own to standard error, behind what is waiting to be written there. It never waits
 * for the reader; where it cannot be written it is dropped.
 */
__attribute__((format(printf, 2, 3))) void outputs_report(struct outputs *o, const char *format,
                                                          ...);
/* errno of the first sink that failed; 0: none. */
int outputs_error(const struct outputs *o);
/* Takes what the pipes still hold, writes everything and closes. */
void outputs_close(struct outputs *o);

#endif

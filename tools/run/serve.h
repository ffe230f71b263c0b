/* The exchange's sockets: one a rank, between the processes and the server in runtime/. */
#ifndef WEFT_TOOLS_RUN_SERVE_H
#define WEFT_TOOLS_RUN_SERVE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

struct serving;

/* NULL when memory runs out. */
struct serving *serving_open(struct ev_loop *loop, const char *tool, uint32_t n_ranks);
/* `fd` is this side's end for `rank`, owned from now on. */
void serving_add(struct serving *s, uint32_t rank, int fd);
void serving_close(struct serving *s);

#endif

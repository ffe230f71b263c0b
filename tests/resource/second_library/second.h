/* A small library that exchanges numbers with its peer. It uses the worker that it is given. */
#ifndef SECOND_H
#define SECOND_H

#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

struct second;

/* `worker` is the resource of a worker; `own` (may be NULL): a worker of the library's own. */
weft_status_t second_open(weft_resource_t *worker, weft_worker_t *own, struct second **second_p);
weft_status_t second_address(struct second *second, void *to, size_t *len_p);
weft_status_t second_connect(struct second *second, const void *address, size_t len);

/* Sends the next number: even ones as active messages, odd ones by tag. BUSY: later. */
weft_status_t second_send(struct second *second);
/* Numbers that arrived in order; SIZE_MAX: one that is not the peer's did. */
size_t second_received(const struct second *second);
size_t second_sent(const struct second *second);

/* A region of the library's on memory that it is given, and a team over a team that it is given. */
weft_status_t second_use_region(struct second *second, weft_resource_t *memory, weft_mem_t **mem_p);
weft_status_t second_use_team(struct second *second, weft_resource_t *team, weft_team_t **team_p);
int second_team_is_ready(const struct second *second);
/* Gives those back. */
weft_status_t second_return(struct second *second, weft_resource_t *resource, void *object);

/* What the library gives out: its own worker, a region of it with a text in it, and a team of its
 * own workers, which `exchange` connects. */
weft_status_t second_export(struct second *second, weft_resource_t **resource_p);
weft_status_t second_export_region(struct second *second, const char *text,
                                   weft_resource_t **resource_p);
weft_status_t second_begin_team(struct second *second, const weft_exchange_t *exchange);
weft_status_t second_export_team(struct second *second, weft_resource_t **resource_p);
/* Ends them, once nothing uses them any more. */
weft_status_t second_free_region(struct second *second);
weft_status_t second_close_team(struct second *second, weft_done_fn done, void *arg);

/* The worker that was given is given back first. */
void second_close(struct second *second);

#endif

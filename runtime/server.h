/*
 * The server of the exchange, without I/O: it takes the bytes of each rank and produces frames for
 * each rank. weft-run, weft-perf and the store carry them over sockets.
 */
#ifndef WEFT_RUNTIME_SERVER_H
#define WEFT_RUNTIME_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

struct run_answer;
struct run_server;

/* Sends a frame to `rank`, behind earlier ones. `answer` (answer.h) is valid during the call, and
 * longer for those that become its users. */
typedef void (*run_send_fn)(void *arg, uint32_t rank, struct run_answer *answer);

/* A talloc child of `parent`. NULL: no memory. */
struct run_server *weft__run_server_create(const void *parent, uint32_t size, run_send_fn send,
                                           void *arg);

/*
 * Takes bytes from `rank`, in pieces of any size. After an error (PROTOCOL, VERSION, TOO_BIG,
 * QUOTA, NO_MEMORY) close the connection of this rank and call weft__run_server_gone.
 */
weft_status_t weft__run_server_bytes(struct run_server *server, uint32_t rank, const void *data,
                                     size_t len);

/* `rank` is gone: rounds that wait for it are refused, and all later rounds. */
void weft__run_server_gone(struct run_server *server, uint32_t rank);
bool weft__run_server_is_gone(const struct run_server *server, uint32_t rank);

/* The number of rounds that only some ranks have joined. */
unsigned weft__run_server_open(const struct run_server *server);

#endif

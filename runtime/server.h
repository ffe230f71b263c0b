/*
 * The side of the exchange that serves it, without any I/O: bytes of each rank go in, frames for each rank come
 * out. weft-run and weft-perf carry them over sockets.
 */
#ifndef WEFT_RUNTIME_SERVER_H
#define WEFT_RUNTIME_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

struct run_server;

/* Bytes for `rank`, to be carried in order; valid during the call. */
typedef void (*run_send_fn)(void *arg, uint32_t rank, const void *data, size_t len);

/* Below `parent` (talloc); NULL when memory runs out. */
struct run_server *weft__run_server_create(const void *parent, uint32_t size, run_send_fn send, void *arg);

/*
 * What came from `rank`, in pieces of any size. An error (PROTOCOL, VERSION, TOO_BIG, QUOTA, NO_MEMORY) says that this
 * rank is not to be listened to any more: hang up and call weft__run_server_gone.
 */
weft_status_t weft__run_server_bytes(struct run_server *server, uint32_t rank, const void *data, size_t len);

/* `rank` will contribute no more: rounds that wait for it are refused, as are all that begin later. */
void weft__run_server_gone(struct run_server *server, uint32_t rank);

/* Rounds that some rank has joined and some other not. */
unsigned weft__run_server_open(const struct run_server *server);

#endif

/*
 * The store: rank 0's side of the engine "store". It serves the exchange (runtime/server.h) at a
 * TCP address, on rank 0's reactor, and to rank 0 itself over a socket pair.
 */
#ifndef WEFT_RUNTIME_VIEW_STORE_SERVER_H
#define WEFT_RUNTIME_VIEW_STORE_SERVER_H

#include <netdb.h>
#include <reactor/reactor.h>
#include <weft/base.h>

/* What a rank says first: its rank and the size it believes in, little-endian. */
enum { STORE_HELLO = 12 };
void weft__store_hello(uint8_t hello[STORE_HELLO], uint32_t rank, uint32_t size);

/*
 * What the store answers once it has the rank, or will never have it: a status, little-endian. It
 * closes a connection without an answer if it has no room for it, or the hello is none.
 * INVALID_PARAM: the rank or the size is not the store's. EXISTS: it has that rank already.
 * PEER_FAILED: it had that rank, whose connection has ended.
 */
enum { STORE_ANSWER = 4 };
/* A number that is no status is PROTOCOL. */
weft_status_t weft__store_answer(const uint8_t answer[STORE_ANSWER]);

struct store_server;

/*
 * Listens. `*own_fd_p` is rank 0's connection, and belongs to the caller. A talloc child of
 * `parent`. Errors: EXISTS if the address is in use; INVALID_PARAM if it is not this host's;
 * NO_MEMORY; NO_FDS; IO.
 */
weft_status_t weft__store_server_start(const void *parent, struct reactor *reactor,
                                       const struct addrinfo *at, uint32_t size, int *own_fd_p,
                                       struct store_server **server_p);
/* Closes every connection. Before its memory is freed. */
void weft__store_server_stop(struct store_server *server);

#endif

/*
 * Finds the user that owns the other end of a connection within this host. It queries the kernel by
 * sock_diag, with both addresses of the connection. Query after the other end has sent something: a
 * socket that is not accepted yet, or closed, belongs to uid 0, and neither can take part in a
 * handshake.
 */
#ifndef WEFT_TRANSPORTS_TCP_OWNER_H
#define WEFT_TRANSPORTS_TCP_OWNER_H

#include "name.h"

enum tcp_owner {
    TCP_OWNER_SELF,  /* this process's effective user, or root */
    TCP_OWNER_OTHER, /* another user; or the kernel knows our end and not the other */
    /* the kernel does not answer such questions here: no sock_diag, or a filter of system calls */
    TCP_OWNER_UNKNOWN,
    TCP_OWNER_FAILED /* no descriptor, or no memory, to ask */
};

/* The same host and port, also where one of them is an IPv4 address in IPv6. */
bool weft__tcp_same_address(const union tcp_sockaddr *a, const union tcp_sockaddr *b);
/* Of the connection of this socket with `peer`, a loopback address. */
enum tcp_owner weft__tcp_owner_of_peer(int fd, const union tcp_sockaddr *peer);

#endif

/*
 * Converts "host:port" to socket addresses without a name server: numeric addresses, "*", and the
 * names in /etc/hosts. The parsers take (pointer, length).
 */
#ifndef WEFT_TRANSPORTS_TCP_NAME_H
#define WEFT_TRANSPORTS_TCP_NAME_H

#include "wire.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { TCP_HOST_ROOM = 256, TCP_MAX_SOCKADDRS = 4, TCP_NAME_ROOM = 80 };

union tcp_sockaddr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct tcp_where {
    char host[TCP_HOST_ROOM]; /* "*" as it is; brackets of IPv6 removed */
    uint16_t port;
};
/* "host:port", "[v6]:port", "*:port". WEFT_ERR_ADDRESS with the reason noted. */
weft_status_t weft__tcp_where_parse(const char *text, size_t len, struct tcp_where *where);

/* A numeric host ("127.0.0.1", "::1", "fe80::1%eth0"). */
bool weft__tcp_host_numeric(const char *host, uint16_t port, union tcp_sockaddr *to);
/* All addresses of `host` in the text of a hosts file, `room` at most; returns how many. */
size_t weft__tcp_hosts_find(const char *text, size_t len, const char *host, uint16_t port,
                            union tcp_sockaddr *to, size_t room);
/* All of it. `*n_p`: room in (at least 1), found out. "*" is IPv6's any address.
 * WEFT_ERR_ADDRESS: no such name here. */
weft_status_t weft__tcp_resolve(const struct tcp_where *where, union tcp_sockaddr *to, size_t *n_p);

socklen_t weft__tcp_sockaddr_len(const union tcp_sockaddr *a);
uint16_t weft__tcp_sockaddr_port(const union tcp_sockaddr *a);
bool weft__tcp_sockaddr_equal(const union tcp_sockaddr *a, const union tcp_sockaddr *b);
bool weft__tcp_is_loopback(const union tcp_sockaddr *a); /* ::ffff:127.0.0.1 too */
bool weft__tcp_is_any(const union tcp_sockaddr *a);
/* "127.0.0.1:80", "[::1]:80"; into TCP_NAME_ROOM bytes. */
void weft__tcp_sockaddr_text(const union tcp_sockaddr *a, char *buf, size_t size);

void weft__tcp_sockaddr_to_place(const union tcp_sockaddr *a, struct tcp_place *to);
void weft__tcp_place_to_sockaddr(const struct tcp_place *a, union tcp_sockaddr *to);

/* This host's first address that others may reach, where there is one. */
bool weft__tcp_outward_address(union tcp_sockaddr *a);
/* The first address of that interface. */
bool weft__tcp_interface_address(const char *name, union tcp_sockaddr *a);

#endif

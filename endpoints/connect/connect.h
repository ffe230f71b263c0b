/* Addresses, choice of transport, dialing, handshakes and listeners. */
#ifndef WEFT_ENDPOINTS_CONNECT_CONNECT_H
#define WEFT_ENDPOINTS_CONNECT_CONNECT_H

#include <endpoints/core/endpoint.h>

struct wire_accept;
struct wire_one;
struct wire_open;
struct wire_reject;

struct stub;

/* A decoded worker address. Its entries, one per transport, point into the encoded address. */
enum { ADDRESS_ENTRIES = 8, ADDRESS_MAX = 256 };
struct address_entry {
    const char *name;
    const uint8_t *bytes;
    uint8_t name_len, len;
};
struct address {
    uint64_t worker;
    uint32_t lease; /* of a worker that works by another one (core/lease.h); 0: it holds none */
    uint32_t n;
    struct address_entry entry[ADDRESS_ENTRIES];
};
weft_status_t weft__address_read(const void *bytes, size_t len, struct address *address_p);

/* Splits "scheme://where". WEFT_ERR_ADDRESS: no URI. WEFT_ERR_UNSUPPORTED: the worker has no
 * transport for the scheme. */
weft_status_t weft__uri_read(struct weft_worker *worker, const char *uri, struct iface **iface_p,
                             const char **where_p);

/* handshake.c: sends HELLO. */
void weft__link_handshake(struct link *link);
void weft__link_on_hello(struct lane *lane, unsigned id, const void *data, size_t len);
struct wire_empty;
void weft__link_on_ping(struct link *link, struct lane *lane, const struct wire_empty *ping);

/* accept.c */
void weft__ep_on_open(struct link *link, struct lane *lane, const struct wire_open *open);
void weft__ep_on_accept(struct link *link, struct lane *lane, const struct wire_accept *accept);
void weft__ep_on_reject(struct link *link, struct lane *lane, const struct wire_reject *reject);
void weft__ep_on_close(struct link *link, struct lane *lane, const struct wire_one *one);

void weft__listeners_close(struct weft_worker *worker);
struct lease;
/* The same, of those that a holder of this lease opened. */
void weft__leased_listeners_close(struct weft_worker *worker, const struct lease *lease);
/* An endpoint in associated mode works: over the connection of another endpoint. */
weft_status_t weft__ep_stub_connect(struct stub *stub, const weft_ep_t *beside);
/* The same, by a link of its own, which ends with it. */
weft_status_t weft__ep_stub_dial(struct stub *stub, const char *uri);
/* The rest of a connect, for an endpoint that exists. */
weft_status_t weft__ep_connect(struct weft_ep *ep, const void *to, size_t len,
                               const weft_ep_params_t *params);
/* Checks whether the listener accepts an endpoint of this peer. WEFT_OK, WEFT_ERR_REJECTED or
 * WEFT_ERR_REFUSED. */
weft_status_t weft__ep_admit(struct link *link, uint32_t listener);
/* Gives an accepted endpoint the callbacks of its listener; 0: of the worker that holds the lease;
 * NULL: of its own worker. */
weft_status_t weft__ep_adopt(struct weft_ep *ep, uint32_t listener, const struct lease *lease);
/* Asks the peer of the link for heartbeats if the listener wants them. */
weft_status_t weft__ep_heartbeats(struct link *link, uint32_t listener);

#endif

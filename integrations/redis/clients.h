/* The module's clients, an endpoint each, and how much is held for each of them. */
#ifndef WEFT_REDIS_CLIENTS_H
#define WEFT_REDIS_CLIENTS_H

#include <stdbool.h>
#include <time.h>
#include <weft/weft.h>

struct client {
    weft_ep_t *ep;
    size_t held;       /* bytes: requests that wait, replies that it has not taken */
    time_t over_since; /* above the soft limit; 0: it is not */
    bool closing;
    struct waiting *oldest, *newest; /* requests that wait (requests.c) */
    struct client *next, **prev;
};

/* `closing` is called when a client begins to close: nothing may refer to it after that but its
 * operations in progress, which end before it is freed. */
void clients_begin(void (*closing)(struct client *client));
/* Frees all. Their endpoints are gone. */
void clients_end(void);

/* The endpoint's client, made when there is none. NULL: it is closing, as one is for which there is
 * no memory. */
struct client *client_of(weft_ep_t *ep);
/* Aborts its endpoint. */
void client_close(struct client *client);
/* The on_error of an endpoint: closes it. */
void client_on_error(weft_ep_t *ep, weft_status_t status, void *arg);

/* Counts bytes as held until they are let go. False: they are too many, and the client is being
 * closed, as the server closes an ordinary client that does not read. */
bool client_hold(struct client *client, size_t bytes);
void client_let_go(struct client *client, size_t bytes);
/* Clients that were closed since too much was held for them. */
unsigned long long clients_closed_for_limit(void);

#endif

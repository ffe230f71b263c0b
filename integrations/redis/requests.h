/* Requests of clients: active messages, whose large payloads are fetched. Each client's are served
 * in their order: those that come behind a payload that is being fetched wait for it. */
#ifndef WEFT_REDIS_REQUESTS_H
#define WEFT_REDIS_REQUESTS_H

#include "clients.h"
#include "leases.h"

/* The handler of REDIS_REQUEST_ID. */
void requests_on_message(weft_ep_t *ep, weft_am_t *am, void *arg);
/* The server is in the middle of something: requests are refused as BUSY. */
void requests_set_busy(bool busy);
/* Where leases come from; NULL: they are refused as CLOSED. */
void requests_set_leases(struct leases *leases);
/* The client is closing. */
void requests_forget(struct client *client);
/* All that came. */
unsigned long long requests_count(void);

#endif

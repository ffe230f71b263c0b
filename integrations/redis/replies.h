/* Replies to clients. A client that is closing gets none. A client whose reply cannot be sent, as
 * without memory, is closed. */
#ifndef WEFT_REDIS_REPLIES_H
#define WEFT_REDIS_REPLIES_H

#include "clients.h"
#include "protocol.h"

/* Frees what the bytes of a reply lie in, when they have left. */
typedef void (*reply_release_fn)(void *bytes);

void reply_status(struct client *client, uint32_t number, weft_status_t status);
/* Of a GET: the value is not copied. True: `release` will be called with `bytes`, later. */
bool reply_value(struct client *client, uint32_t number, const void *value, size_t len,
                 reply_release_fn release, void *bytes);
/* Of a LEASE: the remote key is copied. */
void reply_lease(struct client *client, const struct redis_reply *head, const void *packed,
                 size_t len);

/* Frees what is kept for further replies. */
void replies_end(void);

#endif

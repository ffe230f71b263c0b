/* The server's own commands, as the module calls them: expiry, replication and persistence are the
 * server's. */
#ifndef WEFT_REDIS_COMMANDS_H
#define WEFT_REDIS_COMMANDS_H

#include "redis_module.h"
#include <weft/weft.h>

/* The value of a key; NULL: there is no such key, or no string. It lies in a reply that the caller
 * frees; *reply_p is NULL if the server refuses. */
const char *command_get(const char *key, size_t key_len, struct redis_call_reply **reply_p,
                        size_t *len_p);
/* Why the reply has no value: NOT_FOUND or REJECTED. */
weft_status_t command_no_value(const struct redis_call_reply *reply);
/* The values of `n` keys, an element each, in a reply that the caller frees. NULL: the server
 * refuses. */
struct redis_call_reply *command_mget(struct redis_string **keys, size_t n);
/* REJECTED if the server refuses; NOT_FOUND of a DEL of no key. */
weft_status_t command_set(const char *key, size_t key_len, const char *value, size_t len);
weft_status_t command_delete(const char *key, size_t key_len);

/* To be called after a read that found no value, since the key may have expired: writes that to the
 * log and to replicas. */
void commands_write_out(void);
/* Adds the command that does it. */
bool commands_add(struct redis_context *ctx);

#endif

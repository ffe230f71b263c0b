/*
 * GETs that one turn of the worker brings: one MGET serves them, for less than a GET for each.
 * Replies that are sent within the turn leave with it, and later ones wake the worker once more.
 * So as many as the last turn had are not waited beyond: clients tend to ask for as many again.
 * One MGET is one reply of the server, so it has at most one value that may be long.
 */
#ifndef WEFT_REDIS_GETS_H
#define WEFT_REDIS_GETS_H

#include "clients.h"

/* The key is copied, unless the GET is served at once. */
void gets_add(struct client *client, uint32_t number, const char *key, size_t key_len);
/* Serves those that wait. */
void gets_serve(void);
/* The same, at the end of a turn. Returns whether replies wait for the next turn. */
bool gets_end_turn(void);
/* The client is closing. */
void gets_forget(const struct client *client);
/* From now on each GET is served at once. A worker that closes frees its endpoints without a
 * callback, so none may wait. */
void gets_wait_no_more(void);

#endif

/*
 * A client of the Weft module of redis-server. All calls are made by the thread that drives the
 * worker. A client is used with one endpoint to one server.
 */
#ifndef WEFT_REDIS_H
#define WEFT_REDIS_H

#include <weft/weft.h>

typedef struct weft_redis weft_redis_t;
typedef struct weft_redis_lease weft_redis_lease_t;

/*
 * Connects to a module that listens at `uri`. A worker has one client at a time, which uses active
 * message id 901. Errors: as of weft_connect; EXISTS if the worker has a client.
 */
weft_status_t weft_redis_connect(weft_worker_t *worker, const char *uri, weft_redis_t **redis_p);

/* Ends requests under way as CLOSED, closes the endpoint, and frees the client. Not from within one
 * of its callbacks. */
void weft_redis_close(weft_redis_t *redis);

/*
 * Called once for each request that returned WEFT_IN_PROGRESS, in a turn of the worker, or in
 * weft_redis_close (CLOSED). `data` is valid during the call.
 *
 * NOT_FOUND: there is no such key, or it holds no string. REJECTED: the server refuses the command
 * (a read-only replica, no memory). BUSY: it loads its data, or a script runs, or its clients are
 * paused; ask again later. NO_MEMORY, here or there. VERSION: the module is of another version. Or
 * the status that the server was lost with: PEER_CLOSED also if it held too much for this client,
 * which did not drive its worker (docs/redis.md).
 */
typedef void (*weft_redis_done_fn)(weft_status_t status, const void *data, size_t len, void *arg);

/*
 * GET, SET and DEL. Key and value are copied or sent before the call returns. They return
 * WEFT_IN_PROGRESS. Errors: TOO_BIG for a key above 64 KiB or a value above 64 MiB; CLOSED if the
 * server is lost; NO_MEMORY.
 */
weft_status_t weft_redis_get(weft_redis_t *redis, const void *key, size_t key_len,
                             weft_redis_done_fn done, void *arg);
weft_status_t weft_redis_set(weft_redis_t *redis, const void *key, size_t key_len,
                             const void *value, size_t len, weft_redis_done_fn done, void *arg);
weft_status_t weft_redis_delete(weft_redis_t *redis, const void *key, size_t key_len,
                                weft_redis_done_fn done, void *arg);

/*
 * They drive the worker until the reply is here. `get`: `*len_p` holds the room and receives the
 * value's length. Errors: those of the request, as above; also those of weft_worker_wait, of which
 * BUSY (within a callback) and WRONG_THREAD send no request; TRUNCATED if the value is larger.
 */
weft_status_t weft_redis_get_wait(weft_redis_t *redis, const void *key, size_t key_len, void *value,
                                  size_t *len_p);
weft_status_t weft_redis_set_wait(weft_redis_t *redis, const void *key, size_t key_len,
                                  const void *value, size_t len);
weft_status_t weft_redis_delete_wait(weft_redis_t *redis, const void *key, size_t key_len);

/*
 * A lease of a value lets the client read it one-sidedly, without the server's processor where the
 * transport can. The lease ends when the server changes the key, deletes it (also since it has
 * expired), or needs the place: a read then ends as REVOKED, and the client leases again. A read
 * that is under way at the change may still return the old value. Both forms drive the worker as
 * those above.
 *
 * A lease is read while its client is open. It may be released after that, before the worker is
 * closed.
 */
weft_status_t weft_redis_lease_wait(weft_redis_t *redis, const void *key, size_t key_len,
                                    weft_redis_lease_t **lease_p);
size_t weft_redis_lease_len(const weft_redis_lease_t *lease);
/* Reads the value's first `len` bytes into `to`. INVALID_PARAM beyond its length. */
weft_status_t weft_redis_lease_read_wait(weft_redis_lease_t *lease, void *to, size_t len);
void weft_redis_lease_release(weft_redis_lease_t *lease);

#endif

/* Values that clients may read one-sidedly: a region for each, until its key changes. */
#ifndef WEFT_REDIS_LEASES_H
#define WEFT_REDIS_LEASES_H

#include <weft/weft.h>

struct leases;

struct leases *leases_create(weft_worker_t *worker);
void leases_free(struct leases *leases);

/*
 * The region of the key's value, made when there is none: its address and packed key. Clients of
 * one key share it. The oldest lease ends when there are too many. Errors: as of weft_mem_alloc.
 */
weft_status_t leases_give(struct leases *leases, const void *key, size_t key_len, const void *value,
                          size_t len, uint64_t *address_p, void *packed, size_t *packed_len_p);
/* The key has changed, or is gone. */
void leases_end(struct leases *leases, const void *key, size_t key_len);
/* Any key may have changed. */
void leases_end_all(struct leases *leases);

unsigned leases_count(const struct leases *leases);
unsigned long long leases_ended(const struct leases *leases);

#endif

/* Values that clients may read one-sidedly: a region for each, until its key changes. */
#ifndef WEFT_REDIS_LEASES_H
#define WEFT_REDIS_LEASES_H

#include <weft/weft.h>

struct leases;

struct leases *leases_create(weft_worker_t *worker);
void leases_free(struct leases *leases);

/*
 * The region of the key's value, made when there is none: its address and packed key. Clients of
 * one key share it. The oldest leases end when there are too many, or their regions would take more
 * than `room` bytes. Errors: as of weft_mem_alloc; REJECTED if this one has no place in `room`.
 */
weft_status_t leases_give(struct leases *leases, const void *key, size_t key_len, const void *value,
                          size_t len, uint64_t *address_p, void *packed, size_t *packed_len_p,
                          size_t room);
/* The oldest end until the regions take at most `room` bytes. */
void leases_fit(struct leases *leases, size_t room);
/* The key has changed, or is gone. */
void leases_end(struct leases *leases, const void *key, size_t key_len);
/* Any key may have changed. */
void leases_end_all(struct leases *leases);

unsigned leases_count(const struct leases *leases);
unsigned long long leases_ended(const struct leases *leases);
/* Of their regions, whole pages. */
size_t leases_bytes(const struct leases *leases);

#endif

/* Ranges of a worker's ids and tags: first fit, and free again after use. */
#include <endpoints/core/lease.h>
#include <endpoints/core/worker.h>

#include "resource.h"

enum { LEASE_IDS = 64, LEASE_TAG_BITS = 48, WHOLE_FIRST = 512 };

static const weft_lease_t whole_of_worker = {.am_first = WHOLE_FIRST,
                                             .am_count = WHOLE_FIRST,
                                             .tag_first = UINT64_C(1) << 63,
                                             .tag_bits = 63};

static bool overlap(uint64_t a, uint64_t n, uint64_t b, uint64_t m) {
    return a < b + m && b < a + n;
}

/* The lease that takes one of these ids or tags; NULL: they are free. */
static const struct lease *find_user(const struct leases *all, const struct lease *wanted,
                                     bool ids) {
    for (unsigned i = 0; i < WORKER_LEASES; i++) {
        const struct lease *l = &all->lease[i];
        if (!l->number) continue;
        if (ids && overlap(l->am_first, l->am_count, wanted->am_first, wanted->am_count)) return l;
        unsigned bits = l->tag_bits > wanted->tag_bits ? l->tag_bits : wanted->tag_bits;
        if (!ids && l->tag_first >> bits == wanted->tag_first >> bits) return l;
    }
    return NULL;
}

static weft_status_t place_ids(const struct leases *all, const weft_lease_t *whole, unsigned first,
                               struct lease *to) {
    unsigned end = whole->am_first + whole->am_count;
    to->am_first = (uint16_t)(first ? first : whole->am_first);
    while (to->am_first >= whole->am_first && to->am_first + to->am_count <= end) {
        const struct lease *user = find_user(all, to, true);
        if (!user) return WEFT_OK;
        if (first) break;
        to->am_first = (uint16_t)(user->am_first + user->am_count);
    }
    return weft__fail(WEFT_ERR_LEASE_EXHAUSTED, "no %u ids of active messages are free",
                      to->am_count);
}

/* Ranges of tags are aligned: where two overlap, the longer one contains the other. */
static weft_status_t place_tags(const struct leases *all, const weft_lease_t *whole, uint64_t first,
                                struct lease *to) {
    uint64_t step = UINT64_C(1) << to->tag_bits;
    to->tag_first = first ? first : whole->tag_first;
    while (to->tag_bits <= whole->tag_bits &&
           to->tag_first >> whole->tag_bits == whole->tag_first >> whole->tag_bits) {
        const struct lease *user = find_user(all, to, false);
        if (!user) return WEFT_OK;
        uint64_t next = user->tag_bits > to->tag_bits ? lease_tag_mask(user) + 1 + user->tag_first
                                                      : to->tag_first + step;
        if (first || next < to->tag_first) break;
        to->tag_first = next;
    }
    return weft__fail(WEFT_ERR_LEASE_EXHAUSTED, "no range of %u bits of tags is free",
                      to->tag_bits);
}

static weft_status_t check_wanted(const weft_lease_t *wanted) {
    if (wanted->am_count > WEFT_AM_ID_MAX + 1u || wanted->am_first > WEFT_AM_ID_MAX)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "lease.am_first or lease.am_count is too big");
    unsigned bits = wanted->tag_bits ? wanted->tag_bits : LEASE_TAG_BITS;
    if (bits > 63 || wanted->tag_first & ((UINT64_C(1) << bits) - 1))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "lease.tag_bits or lease.tag_first is wrong");
    return WEFT_OK;
}

static struct lease *free_lease(struct leases *all) {
    for (unsigned i = 0; i < WORKER_LEASES; i++)
        if (!all->lease[i].number) {
            all->lease[i] = (struct lease){0};
            return &all->lease[i];
        }
    return NULL;
}

weft_status_t weft__lease_take(weft_worker_t *provider, const weft_lease_t *whole,
                               const weft_lease_t *wanted, struct lease **lease_p) {
    weft_status_t st = check_wanted(wanted);
    if (st < 0) return st;
    if (!whole->am_count) whole = &whole_of_worker;
    if (!provider->leases) provider->leases = weft__new(provider, struct leases);
    if (!provider->leases) return WEFT_ERR_NO_MEMORY;
    struct lease *lease = free_lease(provider->leases);
    if (!lease) return weft__fail(WEFT_ERR_LEASE_EXHAUSTED, "%d leases are in use", WORKER_LEASES);
    lease->am_count = (uint16_t)(wanted->am_count ? wanted->am_count : LEASE_IDS);
    lease->tag_bits = (uint8_t)(wanted->tag_bits ? wanted->tag_bits : LEASE_TAG_BITS);
    st = place_ids(provider->leases, whole, wanted->am_first, lease);
    if (st == WEFT_OK) st = place_tags(provider->leases, whole, wanted->tag_first, lease);
    if (st < 0) return st;
    lease->number = (uint8_t)(lease - provider->leases->lease + 1);
    lease->id = ++provider->leases->last_id;
    *lease_p = lease;
    return WEFT_OK;
}

weft_status_t weft_worker_lease(weft_worker_t *worker, weft_lease_t *lease_p) {
    if (!worker || !lease_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or lease_p is NULL");
    const struct lease *lease = worker->lease;
    if (!lease) return weft__fail(WEFT_ERR_NOT_FOUND, "the worker holds no lease");
    weft_status_t st = weft__worker_check(weft__worker_itself(worker));
    if (st < 0) return st;
    *lease_p = (weft_lease_t){lease->am_first, lease->am_count, lease->tag_first, lease->tag_bits};
    return WEFT_OK;
}

/*
 * The limits of peers' unexpected data: "peer.max_unexpected" for all endpoints of a link
 * together, and "peers.max_unexpected" for all endpoints of a worker. OPEN or ACCEPT gives each
 * endpoint the smaller of its two shares, so that a peer that keeps to what it received never meets
 * a bound.
 *
 * A whole share is "tag.unexpected_bytes" and "stream.window". Half of the bound is for the first F
 * endpoints, whole. Beyond, the one that has F 2^j others beside it, or more, but less than twice
 * as many, gets 2^-(j+4) of a whole one; so the F 2^j of that kind have a sixteenth of the other
 * half, and there are at most sixteen kinds. Endpoints come and go; but the n-th oldest had n - 1
 * others beside it when it came, so that its share is at most that of an n-th.
 *
 * No share is below 1 KiB of each, or nothing would move. With that, and the defaults, the promise
 * ends beyond 100,000 endpoints of one link; then, and for what closed endpoints left, the
 * receiver's count decides (weft__match_may_leave).
 */
#ifndef WEFT_ENDPOINTS_CORE_QUOTA_H
#define WEFT_ENDPOINTS_CORE_QUOTA_H

#include <assert.h>
#include <stdint.h>

enum { QUOTA_LEAST = 1024, QUOTA_KINDS = 16, SHARE_FIRST_KIND = 4 };

/* How often the n-th endpoint's share is divided by two, when `whole` of them are undivided. */
static inline uint8_t weft__quota_shift(uint32_t whole, uint32_t n) {
    assert(whole > 0);
    if (n <= whole) return 0;
    unsigned kind = 31 - (unsigned)__builtin_clz((n - 1) / whole);
    return (uint8_t)(SHARE_FIRST_KIND + (kind < QUOTA_KINDS ? kind : QUOTA_KINDS - 1));
}

static inline uint32_t weft__quota_of(uint32_t whole, uint8_t quota_shift) {
    uint32_t least = whole < QUOTA_LEAST ? whole : QUOTA_LEAST, share = whole >> quota_shift;
    return share > least ? share : least;
}

#endif

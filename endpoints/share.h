/*
 * What a peer may leave here that nobody has asked for: "peer.max_unread" by all endpoints of a link together, of which OPEN
 * or ACCEPT tells each its own share, so that a peer that keeps to what it was told never meets the bound.
 *
 * A whole share is "tag.unexpected_bytes" and "stream.window". Half of the bound is for the first F endpoints, whole. Beyond,
 * the one that has F 2^j others beside it, or more, but less than twice as many, gets 2^-(j+4) of a whole one; so the F 2^j of
 * that kind have a sixteenth of the other half, and there are at most sixteen kinds. Endpoints come and go; but whoever is the
 * n-th oldest had n - 1 others beside it when it came, so that its share is at most that of an n-th.
 *
 * No share is below 1 KiB of each, or nothing would move. With that, and the defaults, the promise ends beyond 100,000
 * endpoints of one link; then, and for what closed endpoints left, the receiver's count decides (weft__link_may_leave).
 */
#ifndef WEFT_ENDPOINTS_SHARE_H
#define WEFT_ENDPOINTS_SHARE_H

#include <stdint.h>

enum { SHARE_LEAST = 1024, SHARE_KINDS = 16, SHARE_FIRST_KIND = 4 };

/* How often the n-th endpoint's share is halved, when `whole` of them are not. */
static inline uint8_t weft__share_halved(uint32_t whole, uint32_t n) {
    if (n <= whole) return 0;
    unsigned kind = 31 - (unsigned)__builtin_clz((n - 1) / whole);
    return (uint8_t)(SHARE_FIRST_KIND + (kind < SHARE_KINDS ? kind : SHARE_KINDS - 1));
}

static inline uint32_t weft__share_of(uint32_t whole, uint8_t halved) {
    uint32_t least = whole < SHARE_LEAST ? whole : SHARE_LEAST, share = whole >> halved;
    return share > least ? share : least;
}

#endif

/* Checks arrays of pieces, and copies between them and one buffer. */
#include "iov.h"

#include <reactor/reactor.h>
#include <transports/copy.h>

weft_status_t weft__iov_refused(const weft_iov_t *iov, size_t n) {
    weft_status_t st = weft__check_memory("iov", iov, n);
    for (size_t i = 0; i < n && st == WEFT_OK; i++)
        st = weft__check_memory("base of a piece of iov", iov[i].base, iov[i].len);
    return st < 0 ? st
                  : weft__fail(WEFT_ERR_INVALID_PARAM,
                               "iov names more bytes than there are addresses");
}

/* How many of `len` bytes a piece has from `*offset` in it on. None: they begin that much later,
 * in what follows it. */
static inline size_t part_of(const weft_iov_t *piece, size_t *offset, size_t len) {
    if (*offset >= piece->len) {
        *offset -= piece->len;
        return 0;
    }
    size_t there = piece->len - *offset;
    return there < len ? there : len;
}

void weft__iov_scatter(const weft_iov_t *iov, size_t n, size_t offset, const void *from,
                       size_t len) {
    const char *at = from;
    for (size_t i = 0; i < n && len; i++) {
        size_t part = part_of(&iov[i], &offset, len);
        if (part == 0) continue;
        weft__copy((char *)iov[i].base + offset, at, part);
        at += part;
        len -= part;
        offset = 0;
    }
}

void weft__iov_gather(void *to, const weft_iov_t *iov, size_t n, size_t offset, size_t len) {
    char *at = to;
    for (size_t i = 0; i < n && len; i++) {
        size_t part = part_of(&iov[i], &offset, len);
        if (part == 0) continue;
        weft__copy(at, (const char *)iov[i].base + offset, part);
        at += part;
        len -= part;
        offset = 0;
    }
}

size_t weft__iov_slice(weft_iov_t *to, size_t room, const weft_iov_t *iov, size_t n, size_t offset,
                       size_t *len_p) {
    size_t made = 0, taken = 0;
    for (size_t i = 0; i < n && made < room && taken < *len_p; i++) {
        size_t part = part_of(&iov[i], &offset, *len_p - taken);
        if (part == 0) continue;
        to[made++] = (weft_iov_t){(char *)iov[i].base + offset, part};
        taken += part;
        offset = 0;
    }
    *len_p = taken;
    return made;
}

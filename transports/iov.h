/* Arrays of pieces of the program's memory: their length, and parts of them. */
#ifndef WEFT_TRANSPORTS_IOV_H
#define WEFT_TRANSPORTS_IOV_H

#include <stdbool.h>
#include <weft/base.h>

/* Reports the error in an iov from the program. */
weft_status_t weft__iov_refused(const weft_iov_t *iov, size_t n);
/* Checks an iov from the program and adds up its length. */
static inline weft_status_t weft__iov_measure(const weft_iov_t *iov, size_t n, size_t *len_p) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        if (!iov || (!iov[i].base && iov[i].len) || __builtin_add_overflow(len, iov[i].len, &len))
            return weft__iov_refused(iov, n);
    *len_p = len;
    return WEFT_OK;
}
/* Returns true for one piece that weft__iov_measure accepts. */
static inline bool weft__iov_is_plain(const weft_iov_t *iov, size_t n) {
    return n == 1 && iov && iov->base;
}

static inline size_t weft__iov_len(const weft_iov_t *iov, size_t n) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++) len += iov[i].len;
    return len;
}
/* Copies `len` bytes between memory and an iov, starting at `offset` in the iov. */
void weft__iov_scatter(const weft_iov_t *iov, size_t n, size_t offset, const void *from,
                       size_t len);
void weft__iov_gather(void *to, const weft_iov_t *iov, size_t n, size_t offset, size_t len);
/* Returns the range [offset, offset + *len_p) of an iov as at most `room` pieces. Shortens
 * *len_p to their length. */
size_t weft__iov_slice(weft_iov_t *to, size_t room, const weft_iov_t *iov, size_t n, size_t offset,
                       size_t *len_p);

#endif

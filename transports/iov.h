/* Arrays of pieces of the program's memory: how many bytes they name, and a part of those. */
#ifndef WEFT_TRANSPORTS_IOV_H
#define WEFT_TRANSPORTS_IOV_H

#include <stdbool.h>
#include <weft/base.h>

/* What is wrong with an iov of the program's. */
weft_status_t weft__iov_refused(const weft_iov_t *iov, size_t n);
/* How many bytes the program's iov names, if all of them are there. */
static inline weft_status_t weft__iov_measure(const weft_iov_t *iov, size_t n, size_t *len_p) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        if (!iov || (!iov[i].base && iov[i].len) || __builtin_add_overflow(len, iov[i].len, &len))
            return weft__iov_refused(iov, n);
    *len_p = len;
    return WEFT_OK;
}
/* One piece, and it is there: nothing that weft__iov_measure would refuse. */
static inline bool weft__iov_is_plain(const weft_iov_t *iov, size_t n) {
    return n == 1 && iov && iov->base;
}

static inline size_t weft__iov_len(const weft_iov_t *iov, size_t n) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++) len += iov[i].len;
    return len;
}
/* Copies `len` bytes between memory and an iov, from `offset` in it on. */
void weft__iov_scatter(const weft_iov_t *iov, size_t n, size_t offset, const void *from, size_t len);
void weft__iov_gather(void *to, const weft_iov_t *iov, size_t n, size_t offset, size_t len);
/* The part [offset, offset + len) of an iov, at most `room` pieces of it; shortens *len_p to what they hold. */
size_t weft__iov_slice(weft_iov_t *to, size_t room, const weft_iov_t *iov, size_t n, size_t offset, size_t *len_p);

#endif

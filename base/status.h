/* Causes of failures. A call that fails notes why; weft_status_describe reports it. */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <weft/base.h>

/* A status of transports, beside those of weft/base.h: there is no room at the moment. No public
 * call returns it. */
#define WEFT_NO_RESOURCE ((weft_status_t)2)

/* Notes why a call is about to fail, for weft_status_describe; returns `status`, so it can stand
 * in a return. */
weft_status_t weft__fail(weft_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The status that says what errno does: of sockets, descriptors and memory; IO: of anything
 * else. */
weft_status_t weft__errno_status(int error);
/* The same of a file that does not open or that is not written: only what the process lacks is said
 * so, and all else, as a full disk, is IO. */
weft_status_t weft__file_status(int error);
/* Is it one of those that go away when descriptors or memory are given back? */
static inline bool weft__lacks_room(weft_status_t status) {
    return status == WEFT_ERR_NO_FDS || status == WEFT_ERR_NO_MEMORY;
}
/* Adds to what the call below has noted: "connecting to tcp://…". Starts again if that was about
 * another status. */
weft_status_t weft__fail_in(weft_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Forgets the causes, so that what is described next is not another failure's. */
void weft__causes_clear(void);
/* The causes of `status` in one line, outermost first, joined by ": ". Returns false, and writes
 * "", where there are none. */
bool weft__causes_line(weft_status_t status, char *buf, size_t size);
/* The text of weft_status_describe, as one line of the log. */
enum { STATUS_LINE = 896 };
void weft__status_line(weft_status_t status, char line[STATUS_LINE]);

#endif

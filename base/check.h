/* Checks of what programs pass: parameter structs, memory, operation descriptors. */
#ifndef WEFT_BASE_CHECK_H
#define WEFT_BASE_CHECK_H

#include "compiler.h"
#include <base/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

/* Leaves the function: what the program passed in `field` is not allowed (INVALID_PARAM). */
#define REFUSE(field, why) return weft__fail(WEFT_ERR_INVALID_PARAM, field ": " why)

/* A parameter struct of a program that may be of another version. It may know more fields than
 * we do; as long as it leaves them zero we agree. */
weft_status_t weft__params_read(void *params, size_t known, const void *given, size_t size);
/* A struct that a program of another version is given: it gets as much as it has room for, and
 * zero in the fields that we do not know. */
void weft__info_write(void *given, size_t size, const void *info, size_t known);

/* What a program names, refused in one place each: memory that is not there (NULL with nothing
 * in it is legal) … */
weft_status_t weft__fail_null(const char *name, size_t len);
weft_status_t weft__fail_rank(const char *name, uint32_t rank, uint32_t size);
static inline weft_status_t weft__check_memory(const char *name, const void *base, size_t len) {
    return LIKELY(base || !len) ? WEFT_OK : weft__fail_null(name, len);
}
/* … and what a descriptor has beyond what the operation knows: a stream, flags, and reserved
 * fields, to which later versions may give a meaning. */
static inline uint64_t weft__op_reserved(const weft_op_t *op, uint64_t and_this) {
    return and_this | (uintptr_t)op->stream | op->reserved[0];
}
weft_status_t weft__fail_op(const weft_op_t *op, uint32_t flags);
static inline weft_status_t weft__check_op(const weft_op_t *op, uint32_t flags) {
    return UNLIKELY(op && weft__op_reserved(op, op->flags & ~flags)) ? weft__fail_op(op, flags)
                                                                     : WEFT_OK;
}
/* The same of an operation that takes a stream: the caller sees to it. */
static inline weft_status_t weft__check_streamed_op(const weft_op_t *op, uint32_t flags) {
    return UNLIKELY(op && (op->reserved[0] | (op->flags & ~flags))) ? weft__fail_op(op, flags)
                                                                    : WEFT_OK;
}
/* It asks for more than some of these flags, and word of the end. */
static inline bool weft__op_is_extended(const weft_op_t *op, uint32_t flags) {
    return weft__op_reserved(op, (op->flags & ~flags) | (uintptr_t)op->layout) != 0;
}
/* A layout, where no bytes of the program's own are moved. */
weft_status_t weft__fail_layout(void);
static inline weft_status_t weft__check_no_layout(const weft_op_t *op) {
    return UNLIKELY(op && op->layout) ? weft__fail_layout() : WEFT_OK;
}
/* The descriptor of an operation that reports by op->done alone and moves no bytes of the program:
 * a callback, a deadline, and these flags. */
weft_status_t weft__check_plain_op(const weft_op_t *op, uint32_t flags);
/* Checks the descriptor of a close: its callback and, if `bounded`, its deadline. */
weft_status_t weft__check_close(const weft_op_t *op, bool bounded);

#endif

/*
 * The structures of DLPack's ABI (dmlc/dlpack, versions 0 and 1 to 1.3), and how blocks become
 * tensors.
 */
#ifndef WEFT_PYTHON_DLPACK_H
#define WEFT_PYTHON_DLPACK_H

#include "core.h"

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 3 };
enum { DLPACK_READ_ONLY = 1, DLPACK_PADDED = 4 };
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_COMPLEX = 5, CODE_BOOL = 6 };

struct tensor {
    void *data;
    struct device device;
    int32_t ndim;
    struct dtype dtype;
    int64_t *shape, *strides; /* in elements; NULL: in C order */
    uint64_t byte_offset;
};

struct managed {
    struct tensor tensor;
    void *context;
    void (*deleter)(struct managed *self);
};

struct dlpack_version {
    uint32_t major, minor;
};

struct versioned {
    struct dlpack_version version;
    void *context;
    void (*deleter)(struct versioned *self);
    uint64_t flags;
    struct tensor tensor;
};

/* A block's or region's memory as a tensor that keeps it alive. NULL and an exception. */
struct versioned *weft__py_versioned_of(PyObject *object);
/* A block over a tensor that it deletes in the end; the tensor is the caller's on failure. */
PyObject *weft__py_block_of_versioned(struct state *state, struct versioned *v);

/* A format of the struct module. Of a type that has none there it is bytes: "2s". */
struct format {
    char text[16];
};
void weft__py_format_of(struct dtype dtype, struct format *format);

/* ---- exchange.c ---- */

/* Sets __dlpack_c_exchange_api__ of the types that have it. */
int weft__py_add_exchange(PyObject *module, struct state *state);

#endif

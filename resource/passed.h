/* What one message says that gives a resource to another process of this host. */
#ifndef WEFT_RESOURCE_PASSED_H
#define WEFT_RESOURCE_PASSED_H

#include <transports/cuda/peer_memory.h>
#include <weft/resource.h>

/* As it is sent, with one descriptor (of VERBS, that of the device's context); device memory has
 * none. */
struct passed {
    char magic[8];
    uint32_t abi, kind;
    uint64_t len, offset; /* of SEGMENT; `len` of MEMORY, too */
    uint32_t pd, zero;    /* of VERBS: the number of the domain in the context */
    char name[64];
    struct cuda_export device; /* of MEMORY */
};

/* The key of the descriptor of this kind; NULL: it is not sent with one. */
const char *weft__passed_fd_key(weft_resource_kind_t kind);
/* A message of this kind; its other members are 0. */
void weft__passed_init(struct passed *passed, weft_resource_kind_t kind, const char *name);
/*
 * What `len` bytes say that came with `n_fds` descriptors: a kind that is sent, a name that ends,
 * and, of device memory, one length. PROTOCOL: they are no resource. VERSION_MISMATCH.
 */
weft_status_t weft__passed_read(const void *bytes, size_t len, unsigned n_fds,
                                struct passed *passed_p);

#endif

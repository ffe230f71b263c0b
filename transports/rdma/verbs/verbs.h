/*
 * libibverbs and librdmacm, loaded at the first use of RDMA. The library is not linked with them,
 * so programs without RDMA do not need them and do not pay for their start. Include this header,
 * never theirs.
 */
#ifndef WEFT_TRANSPORTS_RDMA_VERBS_VERBS_H
#define WEFT_TRANSPORTS_RDMA_VERBS_VERBS_H

#include <sys/types.h>
#include <weft/base.h>

/* Each function of verbs.def has the symbol weft__NAME in this library. Its source name stays
 * that of the header. */
#define RENAME_BY(text)                                      _Pragma(#text)
#define RENAME(name)                                         RENAME_BY(redefine_extname name weft__##name)
#define FUNCTION(library, type, name, parameters, arguments) RENAME(name)
#include "verbs.def"
#undef FUNCTION

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* Loads both, once a process. Precedes the first call of any of their functions. Any thread may
 * call it. UNSUPPORTED, with the cause noted: a library or one of its functions is not on this
 * machine. */
weft_status_t weft__rd_verbs_load(void);

/* A function of one of the libraries; NULL: it has none of that name. Tests replace it. */
void *weft__rd_verbs_symbol(void *library, const char *name);

#endif

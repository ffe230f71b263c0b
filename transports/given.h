/*
 * What the program made and a worker's transports use in place of objects of their own. It is
 * constant, and stays until the worker's reactor is gone. A member that is NULL is not given.
 */
#ifndef WEFT_TRANSPORTS_GIVEN_H
#define WEFT_TRANSPORTS_GIVEN_H

#include <stddef.h>

struct ibv_pd;
struct ibv_cq;
struct ibv_srq;
struct ibv_qp;
struct CUctx_st;
struct CUstream_st;

struct given {
    /* Of verbs. The others belong to the device of `pd`. */
    struct ibv_pd *pd;
    struct ibv_cq *cq;   /* has a completion channel */
    struct ibv_srq *srq; /* with `cq` only */
    struct ibv_qp **qp;  /* of type RC, in RESET, made with pd, cq and srq */
    size_t n_qp;
    /* Completions of queue pairs, and events of objects, that are not the worker's. */
    void (*completion)(const void *wc, void *arg);
    void (*event)(const void *event, void *arg);
    void *arg;
    /* Of CUDA: device memory is copied in this context only, and in the order of this stream. */
    struct CUctx_st *cuda_context;
    struct CUstream_st *cuda_stream;
};

#endif

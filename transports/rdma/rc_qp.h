/* The machine of a queue pair (rc_qp.fsm): its enums and its plain data. */
#ifndef WEFT_RDMA_RC_QP_H
#define WEFT_RDMA_RC_QP_H

#include "rc_qp.fsm"
#define FSM_NAME   rc_qp
#define FSM_PREFIX RC_QP
#include <fsm/declare.h>

enum { RC_TOLD_UP = 1, RC_TOLD_DOWN = 2, RC_TOLD_CLOSED = 4 };

struct rc_qp {
    struct fsm fsm;
    uint8_t told; /* what the owner was told so far, for the invariants */
};

#endif

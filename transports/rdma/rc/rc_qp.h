/* The machine of a queue pair (rc_qp.fsm): its enums and its plain data. */
#ifndef WEFT_TRANSPORTS_RDMA_RC_RC_QP_H
#define WEFT_TRANSPORTS_RDMA_RC_RC_QP_H

#include "rc_qp.fsm"
#define FSM_NAME   rc_qp
#define FSM_PREFIX RC_QP
#define FSM_SETS   RC_QP_SETS
#include <fsm/declare.h>

enum { RC_NOTIFIED_UP = 1, RC_NOTIFIED_DOWN = 2, RC_NOTIFIED_CLOSED = 4 };

struct rc_qp {
    struct fsm fsm;
    uint8_t notified; /* what was reported to the owner so far, for the invariants */
};

#endif

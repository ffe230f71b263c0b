/* The machines of this room, with the plain data that their actions read and write. */
#ifndef WEFT_ENDPOINTS_CORE_MACHINES_H
#define WEFT_ENDPOINTS_CORE_MACHINES_H

#include <fsm/fsm.h>

#include "endpoint.fsm"
#define FSM_NAME   ep
#define FSM_PREFIX EP
#define FSM_SETS   EP_SETS
#include <fsm/declare.h>

struct ep_core {
    struct fsm fsm;
    uint32_t peer; /* the peer's half; 0: not known, or gone */
};

#include "link.fsm"
#define FSM_NAME   link
#define FSM_PREFIX LINK
#define FSM_SETS   LINK_SETS
#include <fsm/declare.h>

struct link_core {
    struct fsm fsm;
};

#include "request.fsm"
#define FSM_NAME   request
#define FSM_PREFIX REQ
#define FSM_SETS   REQ_SETS
#include <fsm/declare.h>

struct request_core {
    struct fsm fsm;
};

#include "worker.fsm"
#define FSM_NAME   worker
#define FSM_PREFIX WORKER
#define FSM_SETS   WORKER_SETS
#include <fsm/declare.h>

struct worker_core {
    struct fsm fsm;
};

#endif

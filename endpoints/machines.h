/* The machines of this room, with the plain data that their actions read and write. */
#ifndef WEFT_ENDPOINTS_MACHINES_H
#define WEFT_ENDPOINTS_MACHINES_H

#include <fsm/fsm.h>

#include "endpoint.fsm"
#define FSM_NAME   ep
#define FSM_PREFIX EP
#include <fsm/declare.h>

struct ep_core {
    struct fsm fsm;
    uint32_t peer; /* the peer's half; 0: not known, or gone */
};

#include "link.fsm"
#define FSM_NAME   link
#define FSM_PREFIX LINK
#include <fsm/declare.h>

struct link_core {
    struct fsm fsm;
};

#include "request.fsm"
#define FSM_NAME   request
#define FSM_PREFIX REQ
#include <fsm/declare.h>

struct request_core {
    struct fsm fsm;
};

#include "worker.fsm"
#define FSM_NAME   worker
#define FSM_PREFIX WORKER
#include <fsm/declare.h>

struct worker_core {
    struct fsm fsm;
};

#include "memory.fsm"
#define FSM_NAME   memory
#define FSM_PREFIX MEMORY
#include <fsm/declare.h>

struct memory_core {
    struct fsm fsm;
};

#endif

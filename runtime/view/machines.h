/* The machines of a view, with the plain data that their actions read and write. */
#ifndef WEFT_RUNTIME_VIEW_MACHINES_H
#define WEFT_RUNTIME_VIEW_MACHINES_H

#include <fsm/fsm.h>
#include <weft/base.h>

#include "finalizers.fsm"
#define FSM_NAME   finalizers
#define FSM_PREFIX FINALIZERS
#define FSM_SETS   FINALIZERS_SETS
#include <fsm/declare.h>

struct finalizers_core {
    struct fsm fsm;
};

#include "store_dial.fsm"
#define FSM_NAME   store_dial
#define FSM_PREFIX STORE_DIAL
#define FSM_SETS   STORE_DIAL_SETS
#include <fsm/declare.h>

struct store_dial_core {
    struct fsm fsm;
    bool asked; /* an allgather waits for the connection */
};

#include "view.fsm"
#define FSM_NAME   view
#define FSM_PREFIX VIEW
#define FSM_SETS   VIEW_SETS
#include <fsm/declare.h>

struct view_core {
    struct fsm fsm;
};

#endif

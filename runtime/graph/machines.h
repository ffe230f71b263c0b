/* The machines of a graph, with the plain data that its actions read and write. */
#ifndef WEFT_RUNTIME_GRAPH_MACHINES_H
#define WEFT_RUNTIME_GRAPH_MACHINES_H

#include <fsm/fsm.h>

#include "task.fsm"
#define FSM_NAME   task
#define FSM_PREFIX TASK
#define FSM_SETS   TASK_SETS
#include <fsm/declare.h>

struct task_core {
    struct fsm fsm;
};

#include "recovery.fsm"
#define FSM_NAME   recovery
#define FSM_PREFIX RECOVERY
#define FSM_SETS   RECOVERY_SETS
#include <fsm/declare.h>

struct recovery_core {
    struct fsm fsm;
};

#endif

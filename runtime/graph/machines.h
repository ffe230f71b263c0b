/* The machine of a task, with the plain data that its actions read and write. */
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

#endif

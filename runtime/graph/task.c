/* A task: what its machine's effects do. */
#include "graph.h"
#include "results.h"

#include <base/status.h>

static void queue_task(struct task *task) {
    struct graph_thread *by = task->by;
    if (task->pool) {
        weft__crew_give(task->graph, task);
    } else if (!by->next) {
        by->next = task;
    } else {
        deque_push(&by->deque, task);
        by->n_pushed++;
    }
}

/* The results of its inputs are complete: their threads released this task by `missing`. */
static weft_status_t call_function(struct task *task, weft_task_call_t *call) {
    if (task->lacks)
        return weft__fail(WEFT_ERR_NOT_FOUND,
                          "task %u of a lost member: no processor, GPU or threads for it here",
                          task->id);
    for (uint32_t i = 0; i < task->n_inputs; i++) {
        const struct task *input = task->graph->task[task->params.inputs[i]];
        task->input[i] = input->result;
        task->input_len[i] = input->result_len;
    }
    call->inputs = task->input;
    call->input_lens = task->input_len;
    return task->params.fn(call);
}

static void call_task(struct task *task) {
    weft_graph_t *graph = task->graph;
    bool has_gpu = task->params.on_gpu && task->pool;
    weft_task_call_t call = {.arg = task->params.arg,
                             .n_inputs = task->n_inputs,
                             .result = task->result,
                             .result_len = task->params.result_size,
                             .thread = task->by->index,
                             .gpu = has_gpu ? task->by->index - 1 : WEFT_NO_GPU,
                             .n_cores = task->cores ? task->cores->n : 1,
                             .cpus = task->cores ? task->cores->cpu : &task->by->cpu};
    if (task->cores) weft__cores_collect(task, task->by);
    if (graph->params.trace) task->begun = weft__graph_now();
    weft_status_t st = call_function(task, &call);
    if (graph->params.trace) task->ended = weft__graph_now();
    if (task->cores) weft__cores_release(task);
    task->thread = task->by->index;
    task->result_len =
        call.result_len < task->params.result_size ? call.result_len : task->params.result_size;
    if (st >= 0) {
        weft__fsm_step(&task->core.fsm, TASK_EV_RETURNED);
        return;
    }
    if (!task->lacks && task->tries < task->params.retries &&
        atomic_load(&graph->stop) == WEFT_OK) {
        task->tries++;
        weft__fsm_step(&task->core.fsm, TASK_EV_AGAIN);
        return;
    }
    weft__graph_stop(graph, st, task->id);
    weft__fsm_step(&task->core.fsm, TASK_EV_ERROR);
}

static void release_task(struct task *task) {
    weft_graph_t *graph = task->graph;
    bool own = weft__graph_is_own(graph, task);
    if (own && task_is_done(&task->core.fsm)) weft__graph_ranks_done(task);
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++) {
        struct task *successor = graph->task[graph->successor[i]];
        if (!weft__graph_is_own(graph, successor) || successor->finished) continue;
        if (atomic_fetch_sub(&successor->missing, 1) != 1) continue;
        successor->by = task->by;
        weft__fsm_step(&successor->core.fsm, TASK_EV_INPUTS);
    }
    for (uint32_t i = 0; own && i < task->n_inputs; i++) {
        struct task *input = graph->task[task->params.inputs[i]];
        if (input->params.transient) weft__result_used(input);
    }
    if (own)
        weft__graph_task_ended(graph);
    else
        weft__graph_left(graph);
}

static void task_effect(struct fsm *m, unsigned effect) {
    struct task *task = (struct task *)m;
    switch ((enum task_effect)effect) {
    case TASK_FX_QUEUE: queue_task(task); break;
    case TASK_FX_RELEASE: release_task(task); break;
    case TASK_N_EFFECTS: break;
    }
}

/* No thread steps a task that is not its own: an event that does not fit is a defect. */
static void task_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct task *task = (struct task *)m;
    int ok = WEFT_OK;
    (void)event, (void)why;
    (void)atomic_compare_exchange_strong(&task->graph->stop, &ok, WEFT_ERR_INTERNAL);
}

const struct fsm_port weft__task_port = {&weft__task_machine, task_effect, task_fail};

/* In one process, a run waits for nothing but its tasks: a deadline ends it where one would begin,
 * and needs no timer. */
static bool is_too_late(weft_graph_t *graph) {
    return graph->deadline && weft__graph_now() >= graph->deadline;
}

void weft__task_run(struct task *task, struct graph_thread *by) {
    weft_graph_t *graph = task->graph;
    task->by = by;
    if (is_too_late(graph)) weft__graph_stop(graph, WEFT_ERR_TIMED_OUT, WEFT_NO_TASK);
    if (atomic_load(&graph->stop) != WEFT_OK) {
        weft__fsm_step(&task->core.fsm, TASK_EV_SKIP);
        return;
    }
    weft__fsm_step(&task->core.fsm, TASK_EV_TAKE);
    call_task(task);
}

void weft__task_begin(struct task *task, struct graph_thread *by) {
    task->by = by;
    weft__fsm_step(&task->core.fsm, TASK_EV_INPUTS);
}

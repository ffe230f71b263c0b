/* What is known of the last run: a trace, and its longest chain. */
#include "graph.h"

#include <base/alloc.h>
#include <base/status.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static weft_status_t check_trace(const weft_graph_t *graph) {
    if (!graph) return weft__fail(WEFT_ERR_INVALID_PARAM, "graph: NULL");
    if (graph->pid != getpid()) return weft__fail(WEFT_ERR_FORKED, "the graph is the parent's");
    if (!graph->params.trace)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "the graph was created without a trace");
    return atomic_load(&graph->running) ? weft__fail(WEFT_ERR_BUSY, "the graph runs") : WEFT_OK;
}

static void write_text(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', file);
        if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, file);
    }
    fputc('"', file);
}

/* In microseconds. A floating-point number would have the decimal point of the program's locale. */
static void write_time(FILE *file, const char *name, uint64_t ns) {
    fprintf(file, ",\"%s\":%" PRIu64 ".%03u", name, ns / 1000, (unsigned)(ns % 1000));
}

/* Times are microseconds from the first task on. */
static void write_task(FILE *file, const struct task *task, uint64_t origin, bool first) {
    char number[32];
    snprintf(number, sizeof number, "task %" PRIu32, task->id);
    fputs(first ? "\n{\"name\":" : ",\n{\"name\":", file);
    write_text(file, task->params.name ? task->params.name : number);
    fprintf(file, ",\"ph\":\"X\",\"pid\":1,\"tid\":%" PRIu32, task->thread);
    write_time(file, "ts", task->begun - origin);
    write_time(file, "dur", task->ended - task->begun);
    fprintf(file, ",\"args\":{\"task\":%" PRIu32 ",\"state\":\"%s\"}}", task->id,
            fsm_state_name(&task->core.fsm));
}

weft_status_t weft_graph_write_trace(const weft_graph_t *graph, const char *path) {
    weft_status_t st = check_trace(graph);
    if (st < 0) return st;
    if (!path) return weft__fail(WEFT_ERR_INVALID_PARAM, "path is NULL");
    FILE *file = fopen(path, "we");
    if (!file) return weft__fail(weft__file_status(errno), "%s: %s", path, strerror(errno));
    uint64_t origin = UINT64_MAX;
    bool first = true;
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        if (graph->task[i]->ended && graph->task[i]->begun < origin) origin = graph->task[i]->begun;
    fputs("{\"traceEvents\":[", file);
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        if (!graph->task[i]->ended) continue; /* skipped */
        write_task(file, graph->task[i], origin, first);
        first = false;
    }
    fputs("\n]}\n", file);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) return weft__fail(WEFT_ERR_IO, "%s: not written", path);
    return WEFT_OK;
}

/* Inputs have smaller numbers, so that one pass finds the longest chain that ends at each task. */
weft_status_t weft_graph_critical_path(const weft_graph_t *graph, weft_task_t *tasks, uint32_t *n_p,
                                       uint64_t *ns_p) {
    weft_status_t st = check_trace(graph);
    if (st < 0) return st;
    if (!n_p || !ns_p || (!tasks && *n_p))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "tasks, n_p or ns_p is NULL");
    struct chain {
        uint64_t ns;
        weft_task_t before;
        uint32_t len;
    } *chain = weft__alloc(NULL, (graph->n_tasks + 1) * sizeof *chain, "chains");
    if (!chain) return WEFT_ERR_NO_MEMORY;
    weft_task_t last = WEFT_NO_TASK;
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        const struct task *task = graph->task[i];
        chain[i] = (struct chain){.before = WEFT_NO_TASK, .len = 1};
        for (uint32_t k = 0; k < task->n_inputs; k++) {
            const struct chain *input = &chain[task->params.inputs[k]];
            if (chain[i].before != WEFT_NO_TASK && input->ns <= chain[i].ns) continue;
            chain[i] = (struct chain){input->ns, task->params.inputs[k], input->len + 1};
        }
        chain[i].ns += task->ended - task->begun;
        if (last == WEFT_NO_TASK || chain[i].ns > chain[last].ns) last = i;
    }
    uint32_t len = last == WEFT_NO_TASK ? 0 : chain[last].len, room = *n_p;
    *n_p = len;
    st = len > room ? weft__fail(WEFT_ERR_TRUNCATED, "the chain has %u tasks", len) : WEFT_OK;
    if (st == WEFT_OK) *ns_p = last == WEFT_NO_TASK ? 0 : chain[last].ns;
    for (uint32_t i = len; st == WEFT_OK && i > 0; last = chain[last].before) tasks[--i] = last;
    talloc_free(chain);
    return st;
}

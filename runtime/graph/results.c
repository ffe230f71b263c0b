/* The memory of results, and their way from the producer to its consumers. */
#include "results.h"

#include <base/alloc.h>
#include <base/settings.h>
#include <base/status.h>
#include <endpoints/messages/am.h>
#include <endpoints/worker/drive.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/rma.h>

enum { RESULT_ALIGN = 64 };

/* Memory that peers may read, with the results of several tasks. */
struct result_region {
    struct list of_graph;
    weft_mem_t *mem;
    uint32_t key_len;
    uint8_t key[WEFT_RKEY_MAX];
};

/* The key of a region of another member. */
struct result_key {
    struct list of_graph;
    weft_ep_t *ep;
    weft_rkey_t *rkey;
    uint32_t len;
    uint8_t bytes[WEFT_RKEY_MAX];
};

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t round_up(size_t size, size_t to) {
    return (size + to - 1) / to * to;
}

static size_t page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* A transient one has pages of its own. */
static size_t padded(const struct task *task) {
    return round_up(task->params.result_size, task->params.transient ? page_size() : RESULT_ALIGN);
}

static bool needs_memory(const weft_graph_t *graph, const struct task *task) {
    return task->params.result_size && !task->result &&
           (weft__graph_is_own(graph, task) || weft__graph_awaits(graph, task));
}

static bool is_large(const struct graph_ranks *ranks, size_t bytes) {
    return bytes > ranks->inline_most;
}

static weft_status_t make_region(struct graph_ranks *ranks, size_t bytes,
                                 struct result_region **region_p, uint8_t **base_p) {
    weft_mem_info_t info;
    size_t len = WEFT_RKEY_MAX;
    struct result_region *region = weft__new(ranks, struct result_region);
    if (!region) return WEFT_ERR_NO_MEMORY;
    weft_mem_params_t params = {.rights = WEFT_MEM_READ};
    weft_status_t st = weft_mem_alloc(ranks->worker, bytes, &params, &region->mem);
    if (st == WEFT_OK) st = weft_mem_describe(region->mem, &info);
    if (st == WEFT_OK) st = weft_mem_pack(region->mem, region->key, &len);
    if (st < 0) {
        if (region->mem) weft_mem_release(region->mem, NULL);
        talloc_free(region);
        return st;
    }
    region->key_len = (uint32_t)len;
    list_append(&ranks->regions, &region->of_graph);
    *region_p = region;
    *base_p = info.base;
    return WEFT_OK;
}

/* A device that has the memory registered would go on with the pages of before. It has regions, and
 * may have what it sent. */
bool weft__results_pinned(weft_worker_t *worker) {
    weft_memory_info_t domain;
    for (size_t i = 0; weft_worker_memory(worker, i, &domain) == WEFT_OK; i++)
        if (strncmp(domain.name, "rdma", 4) == 0) return true;
    return false;
}

/* The kernel gives a page when it is first touched, so what no task writes costs nothing. */
weft_status_t weft__results_reserve(weft_graph_t *graph) {
    struct graph_ranks *ranks = graph->ranks;
    struct result_region *region = NULL;
    uint8_t *at = NULL;
    size_t large = 0;
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        const struct task *task = graph->task[i];
        if (!needs_memory(graph, task) || !is_large(ranks, task->params.result_size)) continue;
        size_t bytes = padded(task) + (task->params.transient ? page_size() : 0);
        if (bytes < task->params.result_size || bytes > SIZE_MAX - large)
            return weft__fail(WEFT_ERR_NO_MEMORY, "task %u: a result of %zu bytes", i,
                              task->params.result_size);
        large += bytes;
    }
    weft_status_t st = large ? make_region(ranks, large, &region, &at) : WEFT_OK;
    for (uint32_t i = 0; i < graph->n_tasks && st == WEFT_OK; i++) {
        struct task *task = graph->task[i];
        if (!needs_memory(graph, task)) continue;
        if (is_large(ranks, task->params.result_size)) {
            if (task->params.transient) at = (uint8_t *)round_up((uintptr_t)at, page_size());
            task->result = at;
            task->region = region;
            at += padded(task);
        } else {
            task->result = weft__alloc(task, task->params.result_size, "result");
            if (!task->result) st = WEFT_ERR_NO_MEMORY;
        }
    }
    return st;
}

void weft__results_forget_keys(struct graph_ranks *ranks) {
    list_for_each_safe(at, after, &ranks->keys) {
        struct result_key *key = list_of(at, struct result_key, of_graph);
        list_remove(&key->of_graph);
        weft_rkey_release(key->rkey);
        talloc_free(key);
    }
}

/* The worker keeps a region until no peer can access it. */
void weft__results_release(struct graph_ranks *ranks) {
    weft__results_forget_keys(ranks);
    list_for_each_safe(at, after, &ranks->regions) {
        struct result_region *region = list_of(at, struct result_region, of_graph);
        list_remove(&region->of_graph);
        weft_mem_release(region->mem, NULL);
        talloc_free(region);
    }
}

/* ---- successors ------------------------------------------------------------------------------ */

static bool has_successor_on(const struct task *task, uint32_t rank) {
    const weft_graph_t *graph = task->graph;
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++) {
        const struct task *successor = graph->task[graph->successor[i]];
        if (successor->rank == rank && !successor->finished) return true;
    }
    return false;
}

static bool has_remote_successor(const struct task *task) {
    const weft_graph_t *graph = task->graph;
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++) {
        const struct task *successor = graph->task[graph->successor[i]];
        if (successor->rank != task->rank && !successor->finished) return true;
    }
    return false;
}

/* ---- transient results ----------------------------------------------------------------------- */

/* The pages that hold nothing else. They read as zero, and come back when they are written. */
static void give_back(struct task *task) {
    uintptr_t page = page_size(), begin = round_up((uintptr_t)task->result, page);
    uintptr_t end = (uintptr_t)task->result + task->params.result_size;
    if (task->region) end = round_up(end, page);
    end = end / page * page;
    atomic_store(&task->given_back, true);
    if (begin >= end || (task->graph->ranks && task->graph->ranks->pinned)) return;
    (void)madvise((void *)begin, end - begin, task->region ? MADV_REMOVE : MADV_DONTNEED);
}

void weft__result_used(struct task *task) {
    unsigned n = atomic_load(&task->uses);
    while (n > 0 && !atomic_compare_exchange_weak(&task->uses, &n, n - 1)) {
    }
    if (n == 1) give_back(task);
}

static uint32_t count_uses(const weft_graph_t *graph, const struct task *task) {
    uint32_t n = 0;
    for (uint32_t i = graph->first[task->id]; i < graph->first[task->id + 1]; i++) {
        const struct task *successor = graph->task[graph->successor[i]];
        n += weft__graph_is_own(graph, successor) && !successor->finished;
    }
    for (uint32_t r = 0; graph->ranks && task->rank == graph->ranks->rank && r < graph->ranks->size;
         r++)
        n += r != graph->ranks->rank && has_successor_on(task, r);
    return n;
}

void weft__results_count_uses(weft_graph_t *graph) {
    for (uint32_t i = 0; i < graph->n_tasks; i++) {
        struct task *task = graph->task[i];
        if (!task->params.transient) continue;
        if (!task->finished) atomic_store(&task->given_back, false);
        atomic_store(&task->uses, count_uses(graph, task));
    }
}

static void send_taken(struct task *task) {
    static const weft_op_t copied = {.flags = WEFT_AM_EAGER};
    struct graph_ranks *ranks = task->graph->ranks;
    struct graph_wire wire = weft__graph_wire(ranks, task->id);
    weft_ep_t *ep = weft__team_ep(ranks->team, task->rank);
    struct am_send_args args = {GRAPH_WIRE_TAKEN, &wire, sizeof wire, .op = &copied};
    if (ep) weft__am_send(ep, &args);
}

/* ---- results go out -------------------------------------------------------------------------- */

static void results_sent(weft_status_t status, void *arg) {
    weft__graph_left(arg);
}

/* The payload stays until it is sent: it is the result, or the key of its region. */
static void send_message(struct graph_ranks *ranks, weft_ep_t *ep, unsigned id,
                         const struct graph_wire *wire, weft_iov_t payload) {
    weft_op_t op = {.done = results_sent,
                    .arg = ranks->graph,
                    .flags = id == GRAPH_WIRE_READY ? WEFT_AM_EAGER : 0};
    atomic_fetch_add(&ranks->graph->n_left, 1);
    struct am_send_args args = {id, wire, sizeof *wire, &payload, payload.len > 0, &op};
    weft_status_t st = weft__am_send(ep, &args);
    if (st != WEFT_IN_PROGRESS) results_sent(st, ranks->graph);
}

static void send_inline(struct graph_ranks *ranks, weft_ep_t *ep, const struct task *task) {
    struct graph_wire wire = weft__graph_wire(ranks, task->id);
    send_message(ranks, ep, GRAPH_WIRE_RESULT, &wire, (weft_iov_t){task->result, task->result_len});
}

static void send_place(struct graph_ranks *ranks, weft_ep_t *ep, const struct task *task) {
    struct graph_wire wire = weft__graph_wire(ranks, task->id);
    wire.len = task->result_len;
    wire.remote = (uintptr_t)task->result;
    send_message(ranks, ep, GRAPH_WIRE_READY, &wire,
                 (weft_iov_t){task->region->key, task->region->key_len});
}

/* A member that is not reached is lost, and the team's failure says so. */
static void send_result(void *arg) {
    struct task *task = arg;
    struct graph_ranks *ranks = task->graph->ranks;
    for (uint32_t r = 0; r < ranks->size; r++) {
        weft_ep_t *ep =
            r != ranks->rank && has_successor_on(task, r) ? weft__team_ep(ranks->team, r) : NULL;
        if (!ep) continue;
        if (is_large(ranks, task->result_len))
            send_place(ranks, ep, task);
        else
            send_inline(ranks, ep, task);
    }
    weft__graph_left(task->graph);
}

void weft__graph_ranks_done(struct task *task) {
    weft_graph_t *graph = task->graph;
    if (!graph->ranks || !has_remote_successor(task)) return;
    atomic_fetch_add(&graph->n_left, 1);
    if (weft_worker_post(graph->ranks->worker, send_result, task) < 0) weft__graph_left(graph);
}

/* ---- results come in ------------------------------------------------------------------------- */

/* On the worker's thread, which is thread 0 of the graph. */
static void end_remote(struct task *task, unsigned event) {
    struct graph_thread *t = &task->graph->thread[0];
    t->n_pushed = 0;
    task->by = t;
    weft__fsm_step(&task->core.fsm, event);
    if (t->next) {
        deque_push(&t->deque, t->next);
        t->next = NULL;
        t->n_pushed++;
    }
    weft__crew_wake(task->graph, t->n_pushed);
}

void weft__result_lost(struct task *task) {
    end_remote(task, TASK_EV_LOST);
}

/* The run stops before the task ends, so that no successor runs without its input. */
static void results_received(weft_status_t status, void *arg) {
    struct task *task = arg;
    if (status < 0) weft__graph_unreadable(task, status);
    bool good = status == WEFT_OK && atomic_load(&task->graph->stop) == WEFT_OK;
    task->arrives = false;
    if (good && task->params.transient) send_taken(task);
    end_remote(task, good ? TASK_EV_ARRIVED : TASK_EV_LOST);
}

/* Only the first message about a task counts. */
static bool begin_arrival(struct task *task, uint64_t len) {
    if (!task_is_waiting(&task->core.fsm) || task->arrives) return false;
    task->arrives = true;
    task->result_len = len;
    if (len <= task->params.result_size) return true;
    results_received(weft__fail(WEFT_ERR_PROTOCOL,
                                "rank %u sent a result of %llu bytes for task %u", task->rank,
                                (unsigned long long)len, task->id),
                     task);
    return false;
}

void weft__result_take(struct task *task, weft_am_t *am) {
    if (!begin_arrival(task, am->len)) return;
    weft_iov_t iov = {task->result, am->len};
    if (am->data) memcpy(task->result, am->data, am->len);
    weft_status_t st =
        am->data || am->len == 0
            ? WEFT_OK
            : weft_am_recv(am, &iov, 1, &(weft_op_t){.done = results_received, .arg = task});
    if (st != WEFT_IN_PROGRESS) results_received(st, task);
}

/* A member has few regions, so most keys are known. */
static weft_status_t key_of(struct graph_ranks *ranks, weft_ep_t *ep, const weft_am_t *am,
                            weft_rkey_t **rkey_p) {
    if (!am->data || am->len > WEFT_RKEY_MAX)
        return weft__fail(WEFT_ERR_PROTOCOL, "a key of %zu bytes", am->len);
    list_for_each(at, &ranks->keys) {
        const struct result_key *key = list_of(at, struct result_key, of_graph);
        if (key->ep != ep || key->len != am->len || memcmp(key->bytes, am->data, am->len) != 0)
            continue;
        *rkey_p = key->rkey;
        return WEFT_OK;
    }
    struct result_key *key = weft__new(ranks, struct result_key);
    if (!key) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft_rkey_unpack(ep, am->data, am->len, &key->rkey);
    if (st < 0) {
        talloc_free(key);
        return st;
    }
    key->ep = ep;
    key->len = (uint32_t)am->len;
    memcpy(key->bytes, am->data, am->len);
    list_append(&ranks->keys, &key->of_graph);
    *rkey_p = key->rkey;
    return WEFT_OK;
}

void weft__result_ready(struct task *task, const struct graph_wire *wire, const weft_am_t *am) {
    if (!begin_arrival(task, wire->len)) return;
    struct graph_ranks *ranks = task->graph->ranks;
    weft_ep_t *ep = weft__team_ep(ranks->team, task->rank);
    weft_op_t op = {.done = results_received, .arg = task};
    weft_rkey_t *rkey = NULL;
    weft_status_t st = ep ? key_of(ranks, ep, am, &rkey) : WEFT_ERR_PEER_FAILED;
    if (st == WEFT_OK) st = weft_get(ep, task->result, wire->len, wire->remote, rkey, &op);
    if (st != WEFT_IN_PROGRESS) results_received(st, task);
}

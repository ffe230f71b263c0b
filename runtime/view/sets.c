/* Resource sets: each lies in memory of its owner that the others read one-sidedly. */
#include "host.h"
#include "view.h"

#include <base/check.h>
#include <base/settings.h>
#include <base/status.h>
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <talloc.h>

/* ---- this process's ------------------------------------------------------------------------ */

static const struct topology *topology_of(const weft_view_t *view) {
    return weft__topology(weft__setting_str(view->worker->context, SETTING_HARDWARE_TOPOLOGY));
}

/* Others may read it at any moment, so it is measured elsewhere: what does not change stays as it
 * is. */
static void measure_mine(weft_view_t *view) {
    weft_resource_set_t now = {.rank = view->session->exchange.rank};
    weft__resource_set_measure(&now, topology_of(view));
    *view->mine = now;
}

weft_status_t weft__view_expose(weft_view_t *view) {
    weft_mem_params_t params = {.rights = WEFT_MEM_READ};
    weft_mem_info_t info;
    weft_status_t st = weft_mem_alloc(view->worker, sizeof *view->mine, &params, &view->mem);
    if (st == WEFT_OK) st = weft_mem_describe(view->mem, &info);
    if (st < 0) return st;
    size_t len = sizeof view->me.key;
    view->mine = info.base;
    measure_mine(view);
    st = weft_mem_pack(view->mem, view->me.key, &len);
    view->me.key_len = (uint32_t)len;
    view->me.remote = (uintptr_t)view->mine;
    view->me.host = view->mine->host_id;
    view->me.process = view->mine->process_id;
    return st;
}

const weft_resource_set_t *weft_view_mine(weft_view_t *view) {
    if (!view || !view->mem || weft__worker_check(view->worker) < 0) return NULL;
    measure_mine(view);
    return view->mine;
}

/* ---- the others' --------------------------------------------------------------------------- */

static weft_status_t open_set(weft_view_t *view, uint32_t rank, weft_ep_t **ep_p,
                              weft_rkey_t **key_p) {
    const struct view_member *member = &view->member[rank];
    *ep_p = weft_team_ep(view->team, rank);
    if (!*ep_p) return weft__fail(WEFT_ERR_PEER_FAILED, "rank %u cannot be reached", rank);
    if (member->key_len > sizeof member->key)
        return weft__fail(WEFT_ERR_PROTOCOL, "rank %u sent a malformed key", rank);
    return weft_rkey_unpack(*ep_p, member->key, member->key_len, key_p);
}

static void limit(uint32_t *n, uint32_t most) {
    if (*n > most) *n = most;
}

static void check_devices(weft_device_info_t *devices, uint32_t *n) {
    limit(n, WEFT_MAX_DEVICES);
    for (uint32_t i = 0; i < WEFT_MAX_DEVICES; i++) {
        devices[i].name[sizeof devices[i].name - 1] = 0;
        devices[i].address[sizeof devices[i].address - 1] = 0;
    }
}

/* A peer may have written anything. All who read the set count on what this leaves: no count is
 * beyond its array, and each text ends. */
static weft_status_t check_set(weft_resource_set_t *set, uint32_t rank) {
    set->host[sizeof set->host - 1] = 0;
    set->topology[sizeof set->topology - 1] = 0;
    limit(&set->n_cpus, WEFT_MAX_CPUS);
    limit(&set->n_cores, WEFT_MAX_CPUS);
    limit(&set->n_numa_nodes, WEFT_MAX_NODES);
    limit(&set->n_caches, WEFT_MAX_CACHES);
    check_devices(set->gpu, &set->n_gpus);
    check_devices(set->rdma_device, &set->n_rdma_devices);
    check_devices(set->network_device, &set->n_network_devices);
    return set->rank == rank
               ? WEFT_OK
               : weft__fail(WEFT_ERR_PROTOCOL, "rank %u sent the set of another", rank);
}

/* Also this process's own set is another than that of weft_view_mine, which no rooted operation
 * takes. */
static weft_status_t fetch(weft_view_t *view, uint32_t rank, weft_resource_set_t *set) {
    if (rank == weft_view_rank(view)) {
        *set = *weft_view_mine(view);
        return WEFT_OK;
    }
    weft_ep_t *ep;
    weft_rkey_t *key;
    weft_status_t st = open_set(view, rank, &ep, &key);
    if (st < 0) return st;
    st = weft_get_wait(ep, set, sizeof *set, view->member[rank].remote, key);
    weft_rkey_release(key);
    return st < 0 ? st : check_set(set, rank);
}

static weft_status_t keep_set(weft_view_t *view, uint32_t rank, const weft_resource_set_t *set) {
    weft_resource_set_t **kept = &view->set[rank];
    if (!*kept) *kept = weft__alloc(view, sizeof **kept, "weft_resource_set_t");
    if (!*kept) return WEFT_ERR_NO_MEMORY;
    **kept = *set;
    return WEFT_OK;
}

/* The program may be reading the set that it has, so what comes is checked first. */
static weft_status_t fetch_into_cache(weft_view_t *view, uint32_t rank) {
    weft_resource_set_t set;
    weft_status_t st = fetch(view, rank, &set);
    return st == WEFT_OK ? keep_set(view, rank, &set) : st;
}

weft_status_t weft_view_at_wait(weft_view_t *view, uint32_t rank, bool refresh,
                                const weft_resource_set_t **set_p) {
    if (!set_p) REFUSE("set_p", "NULL");
    if (rank >= weft_view_size(view)) REFUSE("rank", "not below the view's size");
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = weft__worker_check_wait(view->worker);
    if (st == WEFT_OK) st = weft__view_usable(view);
    if (st < 0) return st;
    if (refresh || !view->set[rank]) st = fetch_into_cache(view, rank);
    if (st == WEFT_OK) *set_p = view->set[rank];
    return st;
}

/* A set on its way. Its memory is the worker's, since the view may end before the get has. */
struct set_fetch {
    struct list link;  /* of the view's fetches */
    weft_view_t *view; /* NULL: it has ended */
    uint32_t rank;
    weft_resource_set_t set;
    weft_done_fn done;
    void *arg;
};

void weft__view_forget_fetches(weft_view_t *view) {
    for (struct list *node; (node = list_pop(&view->fetches));)
        list_of(node, struct set_fetch, link)->view = NULL;
}

static weft_status_t end_fetch(struct set_fetch *fetch, weft_status_t st) {
    list_remove(&fetch->link);
    if (st == WEFT_OK && !fetch->view) st = weft__fail(WEFT_ERR_CLOSED, "the view has ended");
    if (st == WEFT_OK) st = check_set(&fetch->set, fetch->rank);
    if (st == WEFT_OK) st = keep_set(fetch->view, fetch->rank, &fetch->set);
    talloc_free(fetch);
    return st;
}

static void fetched(weft_status_t status, void *arg) {
    struct set_fetch *fetch = arg;
    weft_done_fn done = fetch->done;
    void *done_arg = fetch->arg;
    status = end_fetch(fetch, status);
    if (done) done(status, done_arg);
}

static weft_status_t begin_fetch(weft_view_t *view, uint32_t rank, const weft_op_t *op) {
    weft_ep_t *ep;
    weft_rkey_t *key;
    struct set_fetch *fetch = weft__new(view->worker, struct set_fetch);
    if (!fetch) return WEFT_ERR_NO_MEMORY;
    fetch->view = view, fetch->rank = rank;
    fetch->done = op->done, fetch->arg = op->arg;
    list_append(&view->fetches, &fetch->link);
    weft_status_t st = open_set(view, rank, &ep, &key);
    if (st < 0) return end_fetch(fetch, st);
    weft_op_t get = {
        .done = fetched, .arg = fetch, .request_p = op->request_p, .deadline_ms = op->deadline_ms};
    st = weft_get(ep, &fetch->set, sizeof fetch->set, view->member[rank].remote, key, &get);
    weft_rkey_release(key);
    return st == WEFT_IN_PROGRESS ? st : end_fetch(fetch, st);
}

weft_status_t weft_view_fetch(weft_view_t *view, uint32_t rank, bool refresh, const weft_op_t *op) {
    static const weft_op_t none;
    if (rank >= weft_view_size(view)) REFUSE("rank", "not below the view's size");
    weft_status_t st = weft__worker_check(view->worker);
    if (st == WEFT_OK) st = weft__check_plain_op(op, 0);
    if (st == WEFT_OK) st = weft__view_usable(view);
    if (st < 0 || (view->set[rank] && !refresh)) return st;
    if (rank == weft_view_rank(view)) return fetch_into_cache(view, rank);
    return begin_fetch(view, rank, op ? op : &none);
}

bool weft_view_has(const weft_view_t *view, const weft_resource_set_t *set) {
    if (!view || !set || weft__view_usable(view) < 0) return false;
    for (uint32_t r = 0; r < weft_view_size(view); r++)
        if (view->member[r].process == set->process_id) return true;
    return false;
}

/* ---- sharers ------------------------------------------------------------------------------- */

static bool shares_gpu(const weft_resource_set_t *set, uint64_t id) {
    for (uint32_t i = 0; i < set->n_gpus; i++)
        if (id && set->gpu[i].id == id) return true;
    return false;
}

static bool shares_ram(const weft_resource_set_t *set, uint64_t id) {
    return id && set->ram_id == id;
}

static bool shares_node(const weft_resource_set_t *set, uint64_t id) {
    for (uint32_t i = 0; i < set->n_numa_nodes; i++)
        if (id && set->node[i].ram_id == id) return true;
    return false;
}

static weft_status_t set_count(weft_view_t *view,
                               bool (*shares)(const weft_resource_set_t *, uint64_t), uint64_t id,
                               uint32_t *count_p) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < weft_view_size(view); r++) {
        const weft_resource_set_t *other;
        weft_status_t st = weft_view_at_wait(view, r, false, &other);
        if (st < 0) return st;
        n += shares(other, id);
    }
    *count_p = n;
    return WEFT_OK;
}

weft_status_t weft_view_count_ram_wait(weft_view_t *view, const weft_resource_set_t *set,
                                       uint32_t *count_p) {
    if (!set) REFUSE("set", "NULL");
    if (!count_p) REFUSE("count_p", "NULL");
    return set_count(view, shares_ram, set->ram_id, count_p);
}

weft_status_t weft_view_count_node_wait(weft_view_t *view, const weft_resource_set_t *set,
                                        uint32_t node, uint32_t *count_p) {
    if (!set) REFUSE("set", "NULL");
    if (!count_p) REFUSE("count_p", "NULL");
    if (node >= set->n_numa_nodes) REFUSE("node", "the set has no such node");
    return set_count(view, shares_node, set->node[node].ram_id, count_p);
}

weft_status_t weft_view_count_gpu_wait(weft_view_t *view, const weft_resource_set_t *set,
                                       uint32_t gpu, uint32_t *count_p) {
    if (!set) REFUSE("set", "NULL");
    if (!count_p) REFUSE("count_p", "NULL");
    if (gpu >= set->n_gpus) REFUSE("gpu", "the set has no such GPU");
    return set_count(view, shares_gpu, set->gpu[gpu].id, count_p);
}

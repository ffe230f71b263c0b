/* Resource sets: each lies in memory of its owner that the others read one-sidedly. */
#include "host.h"
#include "view.h"

#include <base/settings.h>
#include <base/status.h>
#include <endpoints/core/worker.h>
#include <endpoints/worker/drive.h>
#include <talloc.h>

#define REFUSE(field, why) return weft__fail(WEFT_ERR_INVALID_PARAM, field ": " why)

/* ---- this process's ------------------------------------------------------------------------ */

static const struct topology *topology_of(const weft_view_t *view) {
    return weft__topology(weft__setting_str(view->worker->context, SETTING_HARDWARE_TOPOLOGY));
}

weft_status_t weft__view_expose(weft_view_t *view) {
    weft_mem_params_t params = {.rights = WEFT_MEM_READ};
    weft_mem_info_t info;
    weft_status_t st = weft_mem_alloc(view->worker, sizeof *view->mine, &params, &view->mem);
    if (st == WEFT_OK) st = weft_mem_describe(view->mem, &info);
    if (st < 0) return st;
    size_t len = sizeof view->me.key;
    view->mine = info.base;
    view->mine->rank = view->session->exchange.rank;
    weft__resource_set_measure(view->mine, topology_of(view));
    st = weft_mem_pack(view->mem, view->me.key, &len);
    view->me.key_len = (uint32_t)len;
    view->me.remote = (uintptr_t)view->mine;
    view->me.host = view->mine->host_id;
    view->me.process = view->mine->process_id;
    return st;
}

const weft_resource_set_t *weft_view_mine(weft_view_t *view) {
    if (!view || !view->mem || weft__worker_check(view->worker) < 0) return NULL;
    weft__resource_set_measure(view->mine, topology_of(view));
    return view->mine;
}

/* ---- the others' --------------------------------------------------------------------------- */

/* Also this process's own set is another than that of weft_view_mine, which no rooted operation
 * takes. */
static weft_status_t fetch(weft_view_t *view, uint32_t rank, weft_resource_set_t *set) {
    if (rank == weft_view_rank(view)) {
        *set = *weft_view_mine(view);
        return WEFT_OK;
    }
    const struct view_member *member = &view->member[rank];
    weft_ep_t *ep = weft_team_ep(view->team, rank);
    weft_rkey_t *key;
    if (!ep) return weft__fail(WEFT_ERR_PEER_FAILED, "rank %u cannot be reached", rank);
    if (member->key_len > sizeof member->key)
        return weft__fail(WEFT_ERR_PROTOCOL, "rank %u sent a malformed key", rank);
    weft_status_t st = weft_rkey_unpack(ep, member->key, member->key_len, &key);
    if (st < 0) return st;
    st = weft_get_wait(ep, set, sizeof *set, member->remote, key);
    weft_rkey_release(key);
    if (st == WEFT_OK && set->rank != rank)
        return weft__fail(WEFT_ERR_PROTOCOL, "rank %u sent the set of another", rank);
    set->host[sizeof set->host - 1] = 0;
    return st;
}

static weft_status_t fetch_into_cache(weft_view_t *view, uint32_t rank) {
    weft_resource_set_t *set = view->set[rank];
    if (!set) set = weft__alloc(view, sizeof *set, "weft_resource_set_t");
    if (!set) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = fetch(view, rank, set);
    if (st == WEFT_OK)
        view->set[rank] = set;
    else if (set != view->set[rank])
        talloc_free(set);
    return st;
}

weft_status_t weft_view_at_wait(weft_view_t *view, uint32_t rank, bool refresh,
                                const weft_resource_set_t **set_p) {
    if (!set_p) REFUSE("set_p", "NULL");
    if (rank >= weft_view_size(view)) REFUSE("rank", "not below the view's size");
    weft_status_t st = weft__worker_may_wait(view->worker);
    if (st == WEFT_OK) st = weft__view_usable(view);
    if (st < 0) return st;
    if (refresh || !view->set[rank]) st = fetch_into_cache(view, rank);
    if (st == WEFT_OK) *set_p = view->set[rank];
    return st;
}

bool weft_view_has(const weft_view_t *view, const weft_resource_set_t *set) {
    if (!view || !set || weft__view_usable(view) < 0) return false;
    for (uint32_t r = 0; r < weft_view_size(view); r++)
        if (view->member[r].process == set->process_id) return true;
    return false;
}

/* ---- sharers ------------------------------------------------------------------------------- */

static bool shares_gpu(const weft_resource_set_t *set, uint64_t id) {
    for (uint32_t i = 0; i < set->n_gpus && i < WEFT_MAX_DEVICES; i++)
        if (set->gpu[i].id == id) return true;
    return false;
}

static bool shares_ram(const weft_resource_set_t *set, uint64_t id) {
    return id && set->ram_id == id;
}

static bool shares_node(const weft_resource_set_t *set, uint64_t id) {
    for (uint32_t i = 0; i < set->n_numa_nodes && i < WEFT_MAX_NODES; i++)
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
    if (node >= set->n_numa_nodes || node >= WEFT_MAX_NODES)
        REFUSE("node", "the set has no such node");
    return set_count(view, shares_node, set->node[node].ram_id, count_p);
}

weft_status_t weft_view_count_gpu_wait(weft_view_t *view, const weft_resource_set_t *set,
                                       uint32_t gpu, uint32_t *count_p) {
    if (!set) REFUSE("set", "NULL");
    if (!count_p) REFUSE("count_p", "NULL");
    if (gpu >= set->n_gpus || gpu >= WEFT_MAX_DEVICES) REFUSE("gpu", "the set has no such GPU");
    return set_count(view, shares_gpu, set->gpu[gpu].id, count_p);
}

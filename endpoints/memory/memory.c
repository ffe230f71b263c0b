/* Regions of a worker: the port of memory.fsm, registration with each transport, revocation and
 * release. */
#include "memory.h"

#include <base/counters.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <transports/cuda/dmabuf.h>
#include <transports/given.h>
#include <transports/region.h>
#include <unistd.h>

#include <endpoints/core/op_group.h>
#include <endpoints/core/worker.h>

/* The handle is the program's until all who waited for it have been notified. */
static void free_reported(weft_mem_t *mem) {
    if (mem->n_unreported) return;
    if (mem->outlives)
        mem->rested = true;
    else
        weft__free_later(mem->worker->reactor, mem);
}

static void mem_end(weft_mem_t *mem) {
    struct weft_worker *worker = mem->worker;
    weft__region_cache_remove(&worker->memory.cache, &mem->cached);
    weft__region_cache_remove(&worker->memory.exposed, &mem->exposed);
    weft__job_drop(worker->reactor, &mem->notify_invalid);
    list_remove(&mem->held);
    weft__idmap_remove(&worker->memory.regions, mem->region.id);
    list_remove(&mem->of_worker);
    weft__pages_free(&mem->pages);
    if (mem->region.dmabuf >= 0) close(mem->region.dmabuf);
    free_reported(mem);
}

static void memory_effect(struct fsm *m, unsigned effect);
static void memory_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port memory_port = {&weft__memory_machine, memory_effect, memory_fail};

/* ---- the machine */

static bool is_zero_based(const weft_mem_t *mem) {
    return mem->region.origin != (uint64_t)(uintptr_t)mem->region.base;
}

/* The dma-buf is made for the first transport that takes device memory, and kept for others. */
static bool takes_memory(const struct iface *iface, weft_mem_t *mem) {
    struct region *region = &mem->region;
    if (!mem->on_device || iface->attr.caps & CAP_DEVICE_IPC) return true;
    if (!(iface->attr.caps & CAP_DEVICE_MEMORY)) return false;
    if (region->dmabuf >= 0) return true;
    return weft__cuda_dmabuf(region->base, region->len, &region->dmabuf, &region->dmabuf_offset) ==
           WEFT_OK;
}

/* A transport that cannot is done without: its peers send messages. */
static void make_known(weft_mem_t *mem) {
    if (!mem->region.rights || mem->invalid) return;
    for (uint32_t i = 0; i < mem->worker->n_ifaces; i++) {
        struct iface *iface = mem->worker->iface[i];
        mem->md[i] = NULL;
        if (!HAS_OP(iface->ops, mem, mem_register) || !takes_memory(iface, mem)) continue;
        if (is_zero_based(mem) && !iface->ops->mem->any_origin) continue;
        weft_status_t st = iface->ops->mem->mem_register(iface, &mem->region, &mem->md[i]);
        if (st < 0) mem->md[i] = NULL;
    }
}

/* A registration of the program is used, or the region is refused: it would be registered twice. */
static weft_status_t check_given(const weft_mem_t *mem) {
    if (!mem->region.mr) return WEFT_OK;
    for (uint32_t i = 0; i < mem->worker->n_ifaces; i++) {
        const struct iface *iface = mem->worker->iface[i];
        if (HAS_OP(iface->ops, mem, reuses) && iface->ops->mem->reuses(iface, &mem->region))
            return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_UNSUPPORTED, "no transport of the worker uses the protection domain "
                                            "of this MR, or the MR does not contain the region");
}

static void new_token(weft_mem_t *mem) {
    for (unsigned i = 0; i < sizeof mem->region.token; i += 8) {
        uint64_t random = weft__random(mem->worker->reactor);
        memcpy(mem->region.token + i, &random, 8);
    }
}

/* The old token and epoch are invalid at once. Accesses in progress are stopped where the
 * transport can, and waited for where it cannot. */
static void withdraw(weft_mem_t *mem) {
    mem->region.epoch++;
    new_token(mem);
    mem->withdrawal.count = 1;
    for (uint32_t i = 0; i < MEMORY_IFACES; i++) {
        struct md_mem *md = mem->md[i];
        if (!md) continue;
        mem->md[i] = NULL;
        mem->withdrawal.count++;
        if (md->iface->ops->mem->mem_revoke(md, &mem->withdrawal) != WEFT_IN_PROGRESS)
            mem->withdrawal.count--;
    }
    mem->withdrawal.count--;
    mem->worker->memory.users->revoked(mem);
}

static void notify_waiting(weft_mem_t *mem, weft_status_t status) {
    while (!list_empty(&mem->waiting))
        weft__request_finish(list_of(mem->waiting.next, struct weft_request, queued), status);
}

static void memory_effect(struct fsm *m, unsigned effect) {
    weft_mem_t *mem = list_of(m, weft_mem_t, core.fsm);
    switch ((enum memory_effect)effect) {
    case MEMORY_FX_WITHDRAW: withdraw(mem); break;
    case MEMORY_FX_RENEW: make_known(mem); break;
    case MEMORY_FX_NOTIFY: notify_waiting(mem, WEFT_OK); break;
    case MEMORY_FX_END: mem_end(mem); break;
    case MEMORY_N_EFFECTS: break;
    }
}

static void memory_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    weft_mem_t *mem = list_of(m, weft_mem_t, core.fsm);
    weft__log(mem->worker->context, WEFT_LOG_ERROR, "endpoints", "memory: %s in %s",
              weft__memory_machine.event_name[event], fsm_state_name(m));
}

bool weft__mem_settle(weft_mem_t *mem) {
    if (mem->withdrawal.count || mem->serving) return false;
    weft__fsm_step(&mem->core.fsm, MEMORY_EV_SETTLED);
    return true;
}

static bool is_withdrawn(const weft_mem_t *mem) {
    return memory_is_withdrawn(&mem->core.fsm);
}

static void withdrawn(struct completion *c, weft_status_t status) {
    weft_mem_t *mem = list_of(c, weft_mem_t, withdrawal);
    if (is_withdrawn(mem)) (void)weft__mem_settle(mem);
}

void weft__mem_served(weft_mem_t *mem) {
    mem->serving--;
    if (is_withdrawn(mem)) (void)weft__mem_settle(mem);
}

/* ---- life */

/* As other callbacks, this one waits for a program that is not there now. */
static void notify_invalid(struct job *job) {
    weft_mem_t *mem = list_of(job, weft_mem_t, notify_invalid);
    struct weft_worker *worker = mem->worker;
    if (worker->callbacks.deliverable == NOTICE_ALL) {
        mem->on_invalid(mem, mem->arg);
        weft__program_returned(worker->reactor);
        return;
    }
    list_append(&worker->memory.held_invalid, &mem->held);
    worker->features->callbacks_pending(worker);
}

unsigned weft__memory_notify(struct weft_worker *worker, unsigned most) {
    struct list *node;
    unsigned n = 0;
    for (; n < most && (node = list_pop(&worker->memory.held_invalid)) != NULL; n++) {
        weft_mem_t *mem = list_of(node, weft_mem_t, held);
        mem->on_invalid(mem, mem->arg);
        weft__program_returned(worker->reactor);
    }
    return n;
}

static bool is_mappable(const struct weft_worker *worker, const weft_mem_t *mem) {
    bool any = mem->pages.map != NULL;
    for (uint32_t i = 0; i < worker->n_ifaces; i++) any |= worker->iface[i]->attr.maps_any;
    return any;
}

/* Only what peers can map; all other memory is sent as any. */
static weft_status_t expose_region(struct weft_worker *worker, weft_mem_t *mem) {
    uintptr_t begin = (uintptr_t)mem->region.base;
    struct stat stat;
    if (!is_mappable(worker, mem)) return WEFT_OK;
    bool in_memfd = mem->region.fd >= 0 && fstat(mem->region.fd, &stat) == 0;
    mem->inode = in_memfd ? stat.st_ino : 0;
    mem->exposed = (struct cached){.base = begin, .end = begin + mem->region.len};
    list_init(&mem->exposed.unused);
    return weft__region_cache_add(&worker->memory.exposed, worker, &mem->exposed);
}

weft_mem_t *weft__mem_exposed(struct weft_worker *worker, const void *at, size_t len) {
    struct region_cache *exposed = &worker->memory.exposed;
    uintptr_t begin = (uintptr_t)at;
    struct cached *found =
        exposed->n ? weft__region_cache_find(exposed, begin, begin + len, 0) : NULL;
    return found ? list_of(found, weft_mem_t, exposed) : NULL;
}

bool weft__mem_is_there(const struct weft_worker *worker, const weft_mem_t *mem) {
    const struct list *all = &worker->memory.all;
    list_for_each(n, all) {
        if (n == &mem->of_worker) return true;
    }
    return false;
}

static void mem_describe_new(weft_mem_t *mem, void *base, size_t len, unsigned rights,
                             const struct pages *pages) {
    mem->pages = pages ? *pages : (struct pages){.fd = -1};
    mem->region.base = base;
    mem->region.origin = (uint64_t)(uintptr_t)base;
    mem->region.len = len;
    mem->region.rights = rights;
    mem->region.epoch = 1;
    mem->region.fd = mem->pages.fd;
    mem->region.fd_offset = mem->pages.offset;
    mem->region.dmabuf = -1;
}

static weft_status_t find_device(weft_mem_t *mem) {
    struct cuda_memory found;
    if (mem->pages.map || !weft__cuda_find(mem->region.base, &found) || found.managed)
        return WEFT_OK;
    mem->on_device = mem->region.on_device = true;
    const struct given *given = weft__reactor_given(mem->worker->reactor);
    bool is_late = !found.context && !(given && given->cuda_context);
    return is_late ? WEFT_OK : weft__cuda_place(given, &found, &mem->place);
}

/* Memory of no context is copied in the one that is current then. */
static weft_status_t mem_place(const weft_mem_t *mem, uint64_t at, struct cuda_place *place_p) {
    struct cuda_memory found;
    *place_p = mem->place;
    if (mem->place.context || !weft__cuda_find((void *)(uintptr_t)at, &found)) return WEFT_OK;
    return weft__cuda_place(weft__reactor_given(mem->worker->reactor), &found, place_p);
}

weft_status_t weft__mem_write(const weft_mem_t *mem, uint64_t at, const void *from, size_t len) {
    void *to = (void *)(uintptr_t)at;
    struct cuda_place place;
    if (mem->on_device) {
        weft_status_t st = mem_place(mem, at, &place);
        return st < 0 ? st : weft__cuda_write(place, to, from, len);
    }
    memcpy(to, from, len);
    return WEFT_OK;
}

weft_status_t weft__mem_read(const weft_mem_t *mem, void *to, uint64_t at, size_t len) {
    const void *from = (const void *)(uintptr_t)at;
    struct cuda_place place;
    if (mem->on_device) {
        weft_status_t st = mem_place(mem, at, &place);
        return st < 0 ? st : weft__cuda_read(place, to, from, len);
    }
    memcpy(to, from, len);
    return WEFT_OK;
}

/* Makes a region in zeroed memory. */
static weft_status_t mem_begin(weft_mem_t *mem, struct weft_worker *worker, void *base, size_t len,
                               const weft_mem_params_t *params, const struct pages *pages) {
    weft_status_t st = weft__idmap_add(worker, &worker->memory.regions, mem, &mem->region.id);
    if (st < 0) return st;
    mem->worker = worker;
    mem_describe_new(mem, base, len, params->rights, pages);
    if (params->zero_based) mem->region.origin = 0;
    st = find_device(mem);
    if (st == WEFT_OK) st = check_given(mem);
    new_token(mem);
    if (st == WEFT_OK && params->expose) st = expose_region(worker, mem);
    if (st < 0) {
        weft__idmap_remove(&worker->memory.regions, mem->region.id);
        return st;
    }
    mem->on_invalid = params->on_invalid;
    mem->arg = params->arg;
    mem->notify_invalid.run = notify_invalid;
    mem->withdrawal.done = withdrawn;
    list_init(&mem->waiting);
    list_init(&mem->placements);
    list_init(&mem->served);
    list_init(&mem->held);
    list_append(&worker->memory.all, &mem->of_worker);
    fsm_init(&mem->core.fsm, &memory_port, MEMORY_LIVE, mem->region.id);
    make_known(mem);
    return WEFT_OK;
}

weft_status_t weft__mem_new(struct weft_worker *worker, void *base, size_t len,
                            const weft_mem_params_t *params, const struct pages *pages,
                            weft_mem_t **mem_p) {
    weft_mem_t *mem = weft__new(worker, weft_mem_t);
    if (!mem) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = mem_begin(mem, worker, base, len, params, pages);
    if (st < 0)
        talloc_free(mem);
    else
        *mem_p = mem;
    return st;
}

/* ---- in associated mode */

void weft__mem_stub_rest(struct stub *stub, weft_status_t status) {
    weft_mem_t *mem = stub->object;
    memset(mem, 0, sizeof *mem);
    mem->worker = weft__stub_worker(status);
    mem->stub = stub;
}

weft_status_t weft__mem_stub_new(weft_worker_t *worker, size_t params_size,
                                 const weft_mem_params_t *given, weft_mem_t **mem_p) {
    weft_mem_params_t params;
    struct stub *stub;
    weft_status_t st = weft__params_read(&params, sizeof params, given, params_size);
    if (st < 0) return st;
    if (!rights_are_known(params.rights) || params.rights & WEFT_MEM_ATOMIC_DEVICE)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "rights are %u", params.rights);
    weft_mem_t *mem = weft__new(weft__worker_itself(worker), weft_mem_t);
    if (!mem) return WEFT_ERR_NO_MEMORY;
    st = weft__worker_stub_new(worker, STUB_MEMORY, mem, &params, sizeof params, &stub);
    if (st < 0) {
        talloc_free(mem);
        return st;
    }
    stub->closing = weft__stub_free_object;
    weft__mem_stub_rest(stub, WEFT_ERR_NOT_ASSOCIATED);
    *mem_p = mem;
    return WEFT_OK;
}

weft_status_t weft__mem_stub_begin_given(struct stub *stub, void *base, size_t len,
                                         struct ibv_mr *mr) {
    weft_mem_t *mem = stub->object;
    mem->region.mr = mr;
    return weft__mem_stub_begin(stub, base, len, -1, 0);
}

weft_status_t weft__mem_stub_begin(struct stub *stub, void *base, size_t len, int fd,
                                   uint64_t offset) {
    weft_mem_t *mem = stub->object;
    weft_worker_t *worker = stub->worker;
    const weft_mem_params_t *params = stub->params;
    bool write = params->rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC);
    struct pages pages;
    weft_status_t st = base ? WEFT_OK : weft__pages_import(fd, offset, len, write, &pages);
    if (st < 0) return st;
    st = base ? mem_begin(mem, worker, base, len, params, NULL)
              : mem_begin(mem, worker, pages.map, len, params, &pages);
    if (st == WEFT_OK) return st;
    if (!base) weft__pages_free(&pages);
    weft__mem_stub_rest(stub, atomic_load(&stub->status));
    return st;
}

void weft__mem_stub_use(struct stub *stub, weft_mem_t *of) {
    weft_mem_t *mem = stub->object;
    mem->worker = of->worker;
    mem->of = of;
    of->users++;
}

void weft__mem_stub_leave(struct stub *stub) {
    weft_mem_t *mem = stub->object;
    mem->of->users--;
    mem->of = NULL;
}

static void leave_region(struct weft_request *req) {
    weft_mem_t *mem = req->recv.mem;
    if (mem && --mem->n_unreported == 0 && memory_is_gone(&mem->core.fsm)) free_reported(mem);
    if (req->group) weft__op_group_one_less(req->group, WEFT_OK);
}

/* The handle of a region that has ended is the program's until its callback. */
static const struct request_kind memory_kind = {.name = "release or revocation of a region",
                                                .moves_none = true,
                                                .release = leave_region,
                                                .releases_late = true};

/* Revokes the keys that peers hold. WEFT_OK, or IN_PROGRESS and `op` completes when that is
 * done. */
weft_status_t weft__mem_withdraw(weft_mem_t *mem, bool for_good, const weft_op_t *op) {
    struct weft_request *req = weft__request_new(mem->worker, &memory_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_accept(req, NULL, op);
    if (st < 0) return st;
    weft__fsm_step(&mem->core.fsm, for_good ? MEMORY_EV_RELEASE : MEMORY_EV_REVOKE);
    if (weft__mem_settle(mem)) {
        weft__request_discard(req);
        return WEFT_OK;
    }
    req->recv.mem = mem;
    mem->n_unreported++;
    weft__request_queue(req, &mem->waiting);
    return WEFT_IN_PROGRESS;
}

void weft__memory_init(struct weft_worker *worker) {
    struct memory *memory = &worker->memory;
    memory->max_served = (uint32_t)weft__setting_u64(worker->context, SETTING_RMA_MAX_SERVED);
    assert(memory->max_served >= WIRE_RMA_WINDOW);
    uint32_t regions = weft__setting_u32(worker->context, SETTING_MEMORY_CACHE_REGIONS, UINT32_MAX);
    weft__region_cache_init(&memory->exposed, UINT32_MAX, SIZE_MAX);
    weft__region_cache_init(&memory->cache, regions,
                            weft__setting_u64(worker->context, SETTING_MEMORY_CACHE_BYTES));
    list_init(&memory->all);
    list_init(&memory->held_invalid);
}

void weft__memory_close(struct weft_worker *worker) {
    list_for_each_safe(n, next, &worker->memory.all) {
        weft_mem_t *mem = list_of(n, weft_mem_t, of_worker);
        if (!memory_is_ending(&mem->core.fsm)) weft__fsm_step(&mem->core.fsm, MEMORY_EV_RELEASE);
        if (!weft__mem_settle(mem)) notify_waiting(mem, weft__worker_end_status(worker));
    }
}

void weft__memory_end(struct weft_worker *worker) {
    struct list *all = &worker->memory.all;
    weft__job_drop(worker->reactor, &worker->memory.copy_job);
    while (!list_empty(all)) mem_end(list_of(all->next, weft_mem_t, of_worker));
}

/* ---- what a peer shows */

weft_status_t weft__mem_admit(struct weft_worker *worker, const struct wire_key *key,
                              unsigned rights, uint64_t *at_p, uint64_t len, weft_mem_t **mem_p) {
    weft_mem_t *mem = weft__idmap_find(&worker->memory.regions, key->region);
    if (!mem) return WEFT_ERR_REVOKED;
    const struct region *own = &mem->region;
    struct remote_region shown = {
        .base = own->origin, .len = own->len, .rights = rights, .epoch = key->epoch};
    memcpy(shown.token, key->token, sizeof shown.token);
    weft_status_t st = region_admits(own, &shown);
    if (st < 0) return st;
    if (mem->invalid) return WEFT_ERR_REVOKED;
    if (!region_covers(shown.base, shown.len, *at_p, len)) return WEFT_ERR_INVALID_PARAM;
    *at_p += (uint64_t)(uintptr_t)own->base - own->origin;
    *mem_p = mem;
    return WEFT_OK;
}

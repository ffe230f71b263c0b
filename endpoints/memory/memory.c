#include "memory.h"

#include <base/counters.h>
#include <fcntl.h>
#include <transports/cuda/dmabuf.h>
#include <transports/region.h>
#include <unistd.h>

#include <endpoints/core/op_group.h>
#include <endpoints/core/worker.h>

/* The handle is the program's until all who waited for it have been notified. */
static void free_reported(weft_mem_t *mem) {
    if (mem->untold) return;
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

/* True when that was the last; the region may be gone then. */
static bool settle_region(weft_mem_t *mem) {
    if (mem->withdrawal.count || mem->serving) return false;
    weft__fsm_step(&mem->core.fsm, MEMORY_EV_SETTLED);
    return true;
}

static bool is_withdrawn(const weft_mem_t *mem) {
    return memory_is_withdrawn(&mem->core.fsm);
}

static void withdrawn(struct completion *c, weft_status_t status) {
    weft_mem_t *mem = list_of(c, weft_mem_t, withdrawal);
    if (is_withdrawn(mem)) (void)settle_region(mem);
}

void weft__mem_served(weft_mem_t *mem) {
    mem->serving--;
    if (is_withdrawn(mem)) (void)settle_region(mem);
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
    if (!is_mappable(worker, mem)) return WEFT_OK;
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
    for (const struct list *n = all->next; n != all; n = n->next)
        if (n == &mem->of_worker) return true;
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
    return weft__cuda_place(weft__reactor_given(mem->worker->reactor), found.context, &mem->place);
}

weft_status_t weft__mem_write(const weft_mem_t *mem, uint64_t at, const void *from, size_t len) {
    void *to = (void *)(uintptr_t)at;
    if (mem->on_device) return weft__cuda_write(mem->place, to, from, len);
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

static weft_status_t mem_new(struct weft_worker *worker, void *base, size_t len,
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

static void free_stub(struct stub *stub) {
    talloc_free(stub->object);
}

void weft__mem_stub_rest(struct stub *stub, weft_status_t status) {
    weft_mem_t *mem = stub->object;
    memset(mem, 0, sizeof *mem);
    mem->worker = weft__stub_worker(status);
    mem->arg = stub;
}

static weft_status_t mem_stub(weft_worker_t *worker, size_t params_size,
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
    stub->closing = free_stub;
    weft__mem_stub_rest(stub, WEFT_ERR_NOT_ASSOCIATED);
    *mem_p = mem;
    return WEFT_OK;
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

static void part_region(struct weft_request *req) {
    weft_mem_t *mem = req->recv.mem;
    if (mem && --mem->untold == 0 && memory_is_gone(&mem->core.fsm)) free_reported(mem);
    if (req->group) weft__op_group_one_less(req->group, WEFT_OK);
}

static const struct request_kind memory_kind = {
    .name = "memory", .moves_none = true, .release = part_region};

/* Revokes the keys that peers hold. WEFT_OK, or IN_PROGRESS and `op` completes when that is
 * done. */
static weft_status_t mem_withdraw(weft_mem_t *mem, bool for_good, const weft_op_t *op) {
    struct weft_request *req = weft__request_new(mem->worker, &memory_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_accept(req, NULL, op);
    if (st < 0) return st;
    weft__fsm_step(&mem->core.fsm, for_good ? MEMORY_EV_RELEASE : MEMORY_EV_REVOKE);
    if (settle_region(mem)) {
        weft__request_discard(req);
        return WEFT_OK;
    }
    req->recv.mem = mem;
    mem->untold++;
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
    for (struct list *n = worker->memory.all.next, *next; n != &worker->memory.all; n = next) {
        next = n->next;
        weft_mem_t *mem = list_of(n, weft_mem_t, of_worker);
        if (!memory_is_ending(&mem->core.fsm)) weft__fsm_step(&mem->core.fsm, MEMORY_EV_RELEASE);
        if (!settle_region(mem)) notify_waiting(mem, WEFT_ERR_CLOSED);
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

/* ---- the program's calls */

static bool has_device_atomics(const weft_worker_t *worker) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (worker->iface[i]->attr.caps & CAP_ATOMIC_DEVICE) return true;
    return false;
}

static weft_status_t check_new(const weft_worker_t *worker, size_t len, weft_mem_t **mem_p,
                               size_t params_size, const weft_mem_params_t *params,
                               weft_mem_params_t *own) {
    if (!worker || !mem_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or mem_p is NULL");
    if (len == 0) return weft__fail(WEFT_ERR_INVALID_PARAM, "len is 0");
    weft_status_t st = weft__params_read(own, sizeof *own, params, params_size);
    if (st < 0) return st;
    if (!rights_are_known(own->rights))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "rights are %u", own->rights);
    if (own->rights & WEFT_MEM_ATOMIC_DEVICE && !has_device_atomics(worker))
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "no transport of this worker has a device with atomics");
    if (own->expose && !(own->rights & WEFT_MEM_READ))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "expose is set without WEFT_MEM_READ");
    if (own->zero_based && (own->expose || own->rights & WEFT_MEM_ATOMIC_DEVICE))
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "zero_based is set with expose or WEFT_MEM_ATOMIC_DEVICE");
    if (own->pages > WEFT_PAGES_HUGE)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "pages is %d", own->pages);
    st = weft__worker_check(worker);
    if (st == WEFT_OK && !worker_is_open(&worker->core.fsm))
        return weft__fail(WEFT_ERR_CLOSED, "the worker is closing");
    return st;
}

static weft_status_t check_range(const void *base, size_t len) {
    if (len > UINTPTR_MAX - (uintptr_t)base)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%zu bytes at %p", len, base);
    return weft__check_memory("base", base, len);
}

static weft_status_t of_pages(weft_worker_t *worker, size_t len, const weft_mem_params_t *params,
                              struct pages *pages, weft_mem_t **mem_p) {
    weft_status_t st = mem_new(worker, pages->map, len, params, pages, mem_p);
    if (st < 0) weft__pages_free(pages);
    return st;
}

weft_status_t weft_mem_alloc_sized(size_t params_size, weft_worker_t *worker, size_t len,
                                   const weft_mem_params_t *params, weft_mem_t **mem_p) {
    weft_mem_params_t own = {0};
    struct pages pages;
    worker = weft__worker_itself(worker);
    weft_status_t st = check_new(worker, len, mem_p, params_size, params, &own);
    if (st == WEFT_OK) st = weft__pages_alloc(len, own.pages, &pages);
    return st < 0 ? st : of_pages(worker, len, &own, &pages, mem_p);
}

weft_status_t weft_mem_register_sized(size_t params_size, weft_worker_t *worker, void *base,
                                      size_t len, const weft_mem_params_t *params,
                                      weft_mem_t **mem_p) {
    weft_mem_params_t own = {0};
    if (worker && mem_p && !base && !len && worker->stub && params &&
        params_size > offsetof(weft_mem_params_t, associated) && params->associated)
        return mem_stub(worker, params_size, params, mem_p);
    worker = weft__worker_itself(worker);
    weft_status_t st = check_new(worker, len, mem_p, params_size, params, &own);
    if (st < 0) return st;
    if (own.associated)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "worker: the parent was not created in associated mode");
    st = check_range(base, len);
    if (st < 0) return st;
    if (own.zero_based && (uintptr_t)base % 8)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "a zero_based region begins at a multiple of 8");
    weft__cuda_notice();
    return mem_new(worker, base, len, &own, NULL, mem_p);
}

weft_status_t weft_mem_import_sized(size_t params_size, weft_worker_t *worker, int fd,
                                    uint64_t offset, size_t len, const weft_mem_params_t *params,
                                    weft_mem_t **mem_p) {
    weft_mem_params_t own = {0};
    struct pages pages;
    worker = weft__worker_itself(worker);
    weft_status_t st = check_new(worker, len, mem_p, params_size, params, &own);
    bool write = own.rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC);
    if (st == WEFT_OK) st = weft__pages_import(fd, offset, len, write, &pages);
    return st < 0 ? st : of_pages(worker, len, &own, &pages, mem_p);
}

static weft_status_t check_region(const weft_mem_t *mem) {
    if (!mem) return weft__fail(WEFT_ERR_INVALID_PARAM, "mem is NULL");
    weft_status_t st = weft__worker_check(mem->worker);
    if (st < 0) return st;
    if (mem->of) return check_region(mem->of);
    /* Who asked for its release is about to be notified. */
    return memory_is_gone(&mem->core.fsm)
               ? weft__fail(WEFT_ERR_BUSY, "the region is being released")
               : WEFT_OK;
}

weft_status_t weft_mem_export(const weft_mem_t *mem, int *fd_p, uint64_t *offset_p) {
    weft_status_t st = check_region(mem);
    if (st < 0) return st;
    if (st == WEFT_OK && mem->of) mem = mem->of;
    if (!fd_p || !offset_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "fd_p or offset_p is NULL");
    if (mem->pages.fd < 0)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "memory of the program has no descriptor");
    int fd = fcntl(mem->pages.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return weft__fail(WEFT_ERR_NO_FDS, "could not duplicate the region's descriptor");
    *fd_p = fd;
    *offset_p = mem->pages.offset;
    return WEFT_OK;
}

weft_status_t weft_mem_release(weft_mem_t *mem, const weft_op_t *op) {
    if (mem && weft__is_stub_worker(mem->worker)) {
        struct stub *stub = mem->arg;
        free_stub(stub);
        weft__worker_stub_gone(stub);
        return WEFT_OK;
    }
    weft_status_t st = check_region(mem);
    if (st < 0) return st;
    if (mem->of || mem->associated)
        return weft__fail(WEFT_ERR_BUSY, "the region is associated; disassociate it");
    if (mem->cached.end)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "the registration is the cache's; use weft_mem_put");
    if (mem->users)
        return weft__fail(WEFT_ERR_BUSY, "%u operations of this side use the region", mem->users);
    if (memory_is_ending(&mem->core.fsm))
        return weft__fail(WEFT_ERR_BUSY, "the region is being released");
    return mem_withdraw(mem, true, op);
}

weft_status_t weft_mem_revoke(weft_mem_t *mem, const weft_op_t *op) {
    weft_status_t st = check_region(mem);
    if (st == WEFT_OK && mem->of) mem = mem->of;
    return st < 0 ? st : mem_withdraw(mem, false, op);
}

weft_status_t weft_mem_advise(weft_mem_t *mem, size_t offset, size_t len,
                              weft_mem_advice_t advice) {
    weft_status_t st = check_region(mem);
    if (st < 0) return st;
    if (st == WEFT_OK && mem->of) mem = mem->of;
    if (mem->on_device)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "the kernel takes no advice on device memory");
    if (!region_covers(0, mem->region.len, offset, len))
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "%zu bytes at offset %zu exceed the region of %zu bytes", len, offset,
                          mem->region.len);
    return weft__pages_advise(&mem->pages, (char *)mem->region.base + offset, len, advice);
}

weft_status_t weft_mem_describe(const weft_mem_t *mem, weft_mem_info_t *info_p) {
    weft_mem_info_t info = {.numa_node = -1};
    weft_status_t st = check_region(mem);
    if (st < 0) return st;
    if (st == WEFT_OK && mem->of) mem = mem->of;
    if (!info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "info_p is NULL");
    (void)weft_mem_detect(mem->region.base, &info);
    info.base = mem->region.base;
    info.len = mem->region.len;
    info.rights = mem->region.rights;
    info.epoch = mem->region.epoch;
    if (mem->pages.map) info.page = mem->pages.page;
    for (uint32_t i = 0; i < MEMORY_IFACES; i++)
        if (mem->md[i]) info.n_peers += mem->md[i]->n_open;
    *info_p = info;
    return WEFT_OK;
}

/* ---- through the cache */

static void drop_region(weft_mem_t *mem) {
    weft__region_cache_remove(&mem->worker->memory.cache, &mem->cached);
    if (memory_is_ending(&mem->core.fsm)) return;
    weft__fsm_step(&mem->core.fsm, MEMORY_EV_RELEASE);
    (void)settle_region(mem);
}

static void shrink(struct memory *memory) {
    struct cached *oldest;
    while ((oldest = weft__region_cache_surplus(&memory->cache)) != NULL)
        drop_region(list_of(oldest, weft_mem_t, cached));
}

weft_status_t weft_mem_get(weft_worker_t *worker, void *base, size_t len, unsigned rights,
                           weft_mem_t **mem_p) {
    weft_mem_params_t own = {0};
    worker = weft__worker_itself(worker);
    if (rights & WEFT_MEM_ATOMIC_DEVICE)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "cached registrations do not support atomics by a device");
    weft_status_t st =
        check_new(worker, len, mem_p, sizeof own, &(weft_mem_params_t){.rights = rights}, &own);
    if (st < 0) return st;
    st = check_range(base, len);
    if (st < 0) return st;
    struct memory *memory = &worker->memory;
    uintptr_t begin = (uintptr_t)base;
    struct cached *found = weft__region_cache_find(&memory->cache, begin, begin + len, rights);
    weft_mem_t *mem = found ? list_of(found, weft_mem_t, cached) : NULL;
    if (mem) {
        worker->count->memory_cache_hits++;
        if (mem->users++ == 0) weft__region_cache_use(&memory->cache, found);
        *mem_p = mem;
        return WEFT_OK;
    }
    weft__cuda_notice();
    st = mem_new(worker, base, len, &own, NULL, &mem);
    if (st < 0) return st;
    mem->cached = (struct cached){.base = begin, .end = begin + len, .rights = rights};
    st = weft__region_cache_add(&memory->cache, worker, &mem->cached);
    if (st < 0) {
        list_init(&mem->cached.unused);
        drop_region(mem);
        return st;
    }
    mem->users = 1;
    shrink(memory);
    *mem_p = mem;
    return WEFT_OK;
}

void weft_mem_put(weft_mem_t *mem) {
    if (!mem || check_region(mem) < 0 || !mem->cached.end || mem->users == 0 || --mem->users)
        return;
    if (!mem->cached.in) {
        drop_region(mem);
        return;
    }
    weft__region_cache_rest(&mem->worker->memory.cache, &mem->cached);
    shrink(&mem->worker->memory);
}

static weft_status_t invalidate(weft_mem_t *mem) {
    bool again = mem->invalid;
    mem->invalid = true;
    if (!again && mem->on_invalid) weft__job_post(mem->worker->reactor, &mem->notify_invalid);
    return mem_withdraw(
        mem, mem->cached.end && mem->users == 0 && !memory_is_ending(&mem->core.fsm), NULL);
}

static bool overlaps(const weft_mem_t *mem, uintptr_t base, uintptr_t end) {
    uintptr_t begin = (uintptr_t)mem->region.base;
    return begin < end && begin + mem->region.len > base;
}

static const struct request_kind invalidate_kind = {
    .name = "invalidate", .moves_none = true, .withdraw = weft__op_group_leave};

static void invalidate_all(weft_worker_t *worker, uintptr_t base, uintptr_t end,
                           struct op_group *all) {
    struct memory *memory = &worker->memory;
    while (weft__region_cache_cut(&memory->cache, base, end)) continue;
    for (struct list *n = memory->all.next, *next; n != &memory->all; n = next) {
        next = n->next;
        weft_mem_t *mem = list_of(n, weft_mem_t, of_worker);
        if (mem->pages.map || !overlaps(mem, base, end)) continue;
        weft_status_t st = invalidate(mem);
        if (st == WEFT_IN_PROGRESS) /* it was queued just now, as the last of those that wait */
            op_group_add(all, list_of(mem->waiting.prev, struct weft_request, queued));
        op_group_note(all, st);
    }
}

weft_status_t weft_mem_invalidate(weft_worker_t *worker, const void *base, size_t len,
                                  const weft_op_t *op) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = check_range(base, len);
    if (st == WEFT_OK) st = weft__worker_check(worker);
    if (st < 0) return st;
    struct op_group *all;
    st = weft__op_group_begin(worker, &invalidate_kind, op, &all);
    if (st < 0) return st;
    invalidate_all(worker, (uintptr_t)base, (uintptr_t)base + len, all);
    return weft__op_group_started(all);
}

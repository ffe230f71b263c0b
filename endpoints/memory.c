#include "memory.h"

#include <fcntl.h>
#include <reactor/counters.h>
#include <transports/region.h>

#include "rma.h"
#include "several.h"
#include "thread.h"
#include "worker.h"

/* The handle is the program's until all who waited for it have been told. */
static void bury_told(weft_mem_t *mem) {
    if (mem->untold == 0) weft__bury(mem->worker->reactor, mem);
}

static void mem_end(weft_mem_t *mem) {
    struct weft_worker *worker = mem->worker;
    weft__region_cache_remove(&worker->memory.cache, &mem->cached);
    weft__region_cache_remove(&worker->memory.lent, &mem->lent);
    weft__job_drop(worker->reactor, &mem->tell_invalid);
    list_remove(&mem->held);
    weft__idmap_remove(&worker->memory.regions, mem->region.id);
    list_remove(&mem->of_worker);
    weft__pages_free(&mem->pages);
    bury_told(mem);
}

static void memory_effect(struct fsm *m, unsigned effect);
static void memory_fail(struct fsm *m, unsigned event, enum fsm_verb why);
static const struct fsm_port memory_port = {&weft__memory_machine, memory_effect, memory_fail};

/* ---- the machine */

/* A transport that cannot is done without: its peers send messages. */
static void make_known(weft_mem_t *mem) {
    if (!mem->region.rights || mem->invalid) return;
    for (uint32_t i = 0; i < mem->worker->n_ifaces; i++) {
        struct iface *iface = mem->worker->iface[i];
        mem->md[i] = NULL;
        if (!iface->ops->mem_register) continue;
        weft_status_t st = iface->ops->mem_register(iface, &mem->region, &mem->md[i]);
        if (st < 0) mem->md[i] = NULL;
    }
}

static void new_token(weft_mem_t *mem) {
    for (unsigned i = 0; i < sizeof mem->region.token; i += 8) {
        uint64_t random = weft__random(mem->worker->reactor);
        memcpy(mem->region.token + i, &random, 8);
    }
}

/* The old token and epoch are worth nothing at once; who is inside already is waited for, or thrown out where that goes. */
static void withdraw(weft_mem_t *mem) {
    mem->region.epoch++;
    new_token(mem);
    mem->withdrawal.count = 1;
    for (uint32_t i = 0; i < MEMORY_IFACES; i++) {
        struct md_mem *md = mem->md[i];
        if (!md) continue;
        mem->md[i] = NULL;
        mem->withdrawal.count++;
        if (md->iface->ops->mem_revoke(md, &mem->withdrawal) != WEFT_IN_PROGRESS) mem->withdrawal.count--;
    }
    mem->withdrawal.count--;
    weft__rma_evict(mem);
}

static void tell_waiting(weft_mem_t *mem, weft_status_t status) {
    while (!list_empty(&mem->waiting))
        weft__request_finish(list_of(mem->waiting.next, struct weft_request, queued), status);
}

static void memory_effect(struct fsm *m, unsigned effect) {
    weft_mem_t *mem = list_of(m, weft_mem_t, core.fsm);
    switch ((enum memory_effect)effect) {
    case MEMORY_FX_WITHDRAW: withdraw(mem); break;
    case MEMORY_FX_RENEW: make_known(mem); break;
    case MEMORY_FX_TELL: tell_waiting(mem, WEFT_OK); break;
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
static bool settle(weft_mem_t *mem) {
    if (mem->withdrawal.count || mem->serving) return false;
    fsm_step(&mem->core.fsm, MEMORY_EV_SETTLED);
    return true;
}

static bool is_withdrawn(const weft_mem_t *mem) {
    return mem->core.fsm.state == MEMORY_REVOKING || mem->core.fsm.state == MEMORY_ENDING;
}

static void withdrawn(struct completion *c, weft_status_t status) {
    weft_mem_t *mem = list_of(c, weft_mem_t, withdrawal);
    if (is_withdrawn(mem)) (void)settle(mem);
}

void weft__mem_served(weft_mem_t *mem) {
    mem->serving--;
    if (is_withdrawn(mem)) (void)settle(mem);
}

/* ---- life */

/* As other callbacks, this one waits for a program that is not there now. */
static void tell_invalid(struct job *job) {
    weft_mem_t *mem = list_of(job, weft_mem_t, tell_invalid);
    struct weft_worker *worker = mem->worker;
    if (worker->tellable == NOTICE_ALL) {
        mem->on_invalid(mem, mem->arg);
        weft__program_returned(worker->reactor);
        return;
    }
    list_append(&worker->memory.held_invalid, &mem->held);
    weft__thread_news(worker);
}

unsigned weft__memory_tell(struct weft_worker *worker, unsigned most) {
    struct list *node;
    unsigned n = 0;
    for (; n < most && (node = list_pop(&worker->memory.held_invalid)) != NULL; n++) {
        weft_mem_t *mem = list_of(node, weft_mem_t, held);
        mem->on_invalid(mem, mem->arg);
        weft__program_returned(worker->reactor);
    }
    return n;
}

/* Only what peers can map; all other memory is sent as any. */
static weft_status_t lend(struct weft_worker *worker, weft_mem_t *mem) {
    uintptr_t begin = (uintptr_t)mem->region.base;
    if (!mem->pages.map) return WEFT_OK;
    mem->lent = (struct cached){.base = begin, .end = begin + mem->region.len};
    list_init(&mem->lent.unused);
    return weft__region_cache_add(&worker->memory.lent, worker, &mem->lent);
}

weft_mem_t *weft__mem_lent(struct weft_worker *worker, const void *at, size_t len) {
    struct region_cache *lent = &worker->memory.lent;
    uintptr_t begin = (uintptr_t)at;
    struct cached *found = lent->n ? weft__region_cache_find(lent, begin, begin + len, 0) : NULL;
    return found ? list_of(found, weft_mem_t, lent) : NULL;
}

bool weft__mem_is_there(const struct weft_worker *worker, const weft_mem_t *mem) {
    const struct list *all = &worker->memory.all;
    for (const struct list *n = all->next; n != all; n = n->next)
        if (n == &mem->of_worker) return true;
    return false;
}

static weft_status_t mem_new(struct weft_worker *worker, void *base, size_t len, const weft_mem_params_t *params,
                             const struct pages *pages, weft_mem_t **mem_p) {
    weft_mem_t *mem = weft__new(worker, weft_mem_t);
    if (!mem) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__idmap_add(worker, &worker->memory.regions, mem, &mem->region.id);
    if (st < 0) {
        talloc_free(mem);
        return st;
    }
    mem->worker = worker;
    mem->pages = pages ? *pages : (struct pages){.fd = -1};
    mem->region.base = base;
    mem->region.len = len;
    mem->region.rights = params->rights;
    mem->region.epoch = 1;
    mem->region.fd = mem->pages.fd;
    mem->region.fd_offset = mem->pages.offset;
    new_token(mem);
    st = params->lend ? lend(worker, mem) : WEFT_OK;
    if (st < 0) {
        weft__idmap_remove(&worker->memory.regions, mem->region.id);
        talloc_free(mem);
        return st;
    }
    mem->on_invalid = params->on_invalid;
    mem->arg = params->arg;
    mem->tell_invalid.run = tell_invalid;
    mem->withdrawal.done = withdrawn;
    list_init(&mem->waiting);
    list_init(&mem->landings);
    list_init(&mem->served);
    list_init(&mem->held);
    list_append(&worker->memory.all, &mem->of_worker);
    fsm_init(&mem->core.fsm, &memory_port, MEMORY_LIVE, mem->region.id);
    make_known(mem);
    *mem_p = mem;
    return WEFT_OK;
}

static void part(struct weft_request *req) {
    weft_mem_t *mem = (weft_mem_t *)(uintptr_t)req->remote;
    if (mem && --mem->untold == 0 && mem->core.fsm.state == MEMORY_GONE) bury_told(mem);
    if (req->group) weft__several_less(req->group, WEFT_OK);
}

static const struct request_kind memory_kind = {.name = "memory", .moves_none = true, .release = part};

/* It becomes worthless to peers. WEFT_OK, or IN_PROGRESS and `op` is told when that is done. */
static weft_status_t mem_withdraw(weft_mem_t *mem, bool for_good, const weft_op_t *op) {
    struct weft_request *req = weft__request_new(mem->worker, &memory_kind);
    if (!req) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__request_accept(req, NULL, op);
    if (st < 0) return st;
    fsm_step(&mem->core.fsm, for_good ? MEMORY_EV_RELEASE : MEMORY_EV_REVOKE);
    if (settle(mem)) {
        weft__request_discard(req);
        return WEFT_OK;
    }
    req->remote = (uint64_t)(uintptr_t)mem;
    mem->untold++;
    weft__request_queue(req, &mem->waiting);
    return WEFT_IN_PROGRESS;
}

void weft__memory_init(struct weft_worker *worker) {
    struct memory *memory = &worker->memory;
    memory->max_served = (uint32_t)weft__setting_u64(worker->context, SETTING_RMA_MAX_SERVED);
    assert(memory->max_served >= WIRE_RMA_WINDOW);
    uint32_t regions = weft__setting_u32(worker->context, SETTING_MEMORY_CACHE_REGIONS, UINT32_MAX);
    weft__region_cache_init(&memory->lent, UINT32_MAX, SIZE_MAX);
    weft__region_cache_init(&memory->cache, regions,
                            weft__setting_u64(worker->context, SETTING_MEMORY_CACHE_BYTES));
    list_init(&memory->all);
    list_init(&memory->held_invalid);
    list_init(&memory->owed);
    list_init(&memory->spare_landings);
    weft__rma_mover_init(memory);
}

void weft__memory_close(struct weft_worker *worker) {
    for (struct list *n = worker->memory.all.next, *next; n != &worker->memory.all; n = next) {
        next = n->next;
        weft_mem_t *mem = list_of(n, weft_mem_t, of_worker);
        if (mem->core.fsm.state != MEMORY_ENDING) fsm_step(&mem->core.fsm, MEMORY_EV_RELEASE);
        if (!settle(mem)) tell_waiting(mem, WEFT_ERR_CLOSED);
    }
}

void weft__memory_end(struct weft_worker *worker) {
    struct list *all = &worker->memory.all;
    weft__job_drop(worker->reactor, &worker->memory.mover);
    while (!list_empty(all)) mem_end(list_of(all->next, weft_mem_t, of_worker));
}

/* ---- what a peer shows */

weft_status_t weft__mem_admit(struct weft_worker *worker, const struct wire_key *key, unsigned rights, uint64_t at,
                              uint64_t len, weft_mem_t **mem_p) {
    weft_mem_t *mem = weft__idmap_find(&worker->memory.regions, key->region);
    if (!mem) return WEFT_ERR_REVOKED;
    const struct region *own = &mem->region;
    struct remote_region shown = {
        .base = (uint64_t)(uintptr_t)own->base, .len = own->len, .rights = rights, .epoch = key->epoch};
    memcpy(shown.token, key->token, sizeof shown.token);
    weft_status_t st = region_admits(own, &shown);
    if (st < 0) return st;
    if (mem->invalid) return WEFT_ERR_REVOKED;
    if (!region_covers(shown.base, shown.len, at, len)) return WEFT_ERR_INVALID_PARAM;
    *mem_p = mem;
    return WEFT_OK;
}

/* ---- the program's calls */

static bool has_device_atomics(const weft_worker_t *worker) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (worker->iface[i]->attr.caps & CAP_ATOMIC_DEVICE) return true;
    return false;
}

static weft_status_t check_new(const weft_worker_t *worker, size_t len, weft_mem_t **mem_p, size_t params_size,
                               const weft_mem_params_t *params, weft_mem_params_t *own) {
    if (!worker || !mem_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or mem_p is NULL");
    if (len == 0) return weft__fail(WEFT_ERR_INVALID_PARAM, "len is 0");
    weft_status_t st = weft__params_read(own, sizeof *own, params, params_size);
    if (st < 0) return st;
    if (!rights_are_known(own->rights)) return weft__fail(WEFT_ERR_INVALID_PARAM, "rights are %u", own->rights);
    if (own->rights & WEFT_MEM_ATOMIC_DEVICE && !has_device_atomics(worker))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "no transport of this worker has a device that performs atomics");
    if (own->lend && !(own->rights & WEFT_MEM_READ))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "memory is lent that peers may not read");
    if (own->pages > WEFT_PAGES_HUGE) return weft__fail(WEFT_ERR_INVALID_PARAM, "pages is %d", own->pages);
    st = weft__worker_check(worker);
    if (st == WEFT_OK && worker->core.fsm.state != WORKER_OPEN)
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
    weft_status_t st = check_new(worker, len, mem_p, params_size, params, &own);
    if (st == WEFT_OK) st = weft__pages_alloc(len, own.pages, &pages);
    return st < 0 ? st : of_pages(worker, len, &own, &pages, mem_p);
}

weft_status_t weft_mem_register_sized(size_t params_size, weft_worker_t *worker, void *base, size_t len,
                                      const weft_mem_params_t *params, weft_mem_t **mem_p) {
    weft_mem_params_t own = {0};
    weft_status_t st = check_new(worker, len, mem_p, params_size, params, &own);
    if (st < 0) return st;
    st = check_range(base, len);
    if (st < 0) return st;
    return mem_new(worker, base, len, &own, NULL, mem_p);
}

weft_status_t weft_mem_import_sized(size_t params_size, weft_worker_t *worker, int fd, uint64_t offset, size_t len,
                                    const weft_mem_params_t *params, weft_mem_t **mem_p) {
    weft_mem_params_t own = {0};
    struct pages pages;
    weft_status_t st = check_new(worker, len, mem_p, params_size, params, &own);
    bool write = own.rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC);
    if (st == WEFT_OK) st = weft__pages_import(fd, offset, len, write, &pages);
    return st < 0 ? st : of_pages(worker, len, &own, &pages, mem_p);
}

static weft_status_t check(const weft_mem_t *mem) {
    if (!mem) return weft__fail(WEFT_ERR_INVALID_PARAM, "mem is NULL");
    weft_status_t st = weft__worker_check(mem->worker);
    if (st < 0) return st;
    /* Who asked for its release is about to be told. */
    return mem->core.fsm.state == MEMORY_GONE ? weft__fail(WEFT_ERR_BUSY, "it is being released") : WEFT_OK;
}

weft_status_t weft_mem_export(const weft_mem_t *mem, int *fd_p, uint64_t *offset_p) {
    weft_status_t st = check(mem);
    if (st < 0) return st;
    if (!fd_p || !offset_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "fd_p or offset_p is NULL");
    if (mem->pages.fd < 0) return weft__fail(WEFT_ERR_UNSUPPORTED, "the program's own memory has no descriptor");
    int fd = fcntl(mem->pages.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return weft__fail(WEFT_ERR_NO_FDS, "a duplicate of the region's fd");
    *fd_p = fd;
    *offset_p = mem->pages.offset;
    return WEFT_OK;
}

weft_status_t weft_mem_release(weft_mem_t *mem, const weft_op_t *op) {
    weft_status_t st = check(mem);
    if (st < 0) return st;
    if (mem->cached.end) return weft__fail(WEFT_ERR_INVALID_PARAM, "it is the cache's: weft_mem_put");
    if (mem->users) return weft__fail(WEFT_ERR_BUSY, "%u operations of this side use it", mem->users);
    if (mem->core.fsm.state == MEMORY_ENDING) return weft__fail(WEFT_ERR_BUSY, "it is being released");
    return mem_withdraw(mem, true, op);
}

weft_status_t weft_mem_revoke(weft_mem_t *mem, const weft_op_t *op) {
    weft_status_t st = check(mem);
    return st < 0 ? st : mem_withdraw(mem, false, op);
}

weft_status_t weft_mem_advise(weft_mem_t *mem, size_t offset, size_t len, weft_mem_advice_t advice) {
    weft_status_t st = check(mem);
    if (st < 0) return st;
    if (!region_covers(0, mem->region.len, offset, len))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%zu bytes at %zu of %zu", len, offset, mem->region.len);
    return weft__pages_advise(&mem->pages, (char *)mem->region.base + offset, len, advice);
}

weft_status_t weft_mem_describe(const weft_mem_t *mem, weft_mem_info_t *info_p) {
    weft_mem_info_t info = {.numa_node = -1};
    weft_status_t st = check(mem);
    if (st < 0) return st;
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

static void drop(weft_mem_t *mem) {
    weft__region_cache_remove(&mem->worker->memory.cache, &mem->cached);
    if (mem->core.fsm.state == MEMORY_ENDING) return;
    fsm_step(&mem->core.fsm, MEMORY_EV_RELEASE);
    (void)settle(mem);
}

static void shrink(struct memory *memory) {
    struct cached *oldest;
    while ((oldest = weft__region_cache_surplus(&memory->cache)) != NULL) drop(list_of(oldest, weft_mem_t, cached));
}

weft_status_t weft_mem_get(weft_worker_t *worker, void *base, size_t len, unsigned rights, weft_mem_t **mem_p) {
    weft_mem_params_t own = {0};
    if (rights & WEFT_MEM_ATOMIC_DEVICE)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "the cache is shared with who knows nothing of a device's atomics");
    weft_status_t st = check_new(worker, len, mem_p, sizeof own, &(weft_mem_params_t){.rights = rights}, &own);
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
    st = mem_new(worker, base, len, &own, NULL, &mem);
    if (st < 0) return st;
    mem->cached = (struct cached){.base = begin, .end = begin + len, .rights = rights};
    st = weft__region_cache_add(&memory->cache, worker, &mem->cached);
    if (st < 0) {
        list_init(&mem->cached.unused);
        drop(mem);
        return st;
    }
    mem->users = 1;
    shrink(memory);
    *mem_p = mem;
    return WEFT_OK;
}

void weft_mem_put(weft_mem_t *mem) {
    if (!mem || check(mem) < 0 || !mem->cached.end || mem->users == 0 || --mem->users) return;
    if (!mem->cached.in) {
        drop(mem);
        return;
    }
    weft__region_cache_rest(&mem->worker->memory.cache, &mem->cached);
    shrink(&mem->worker->memory);
}

static weft_status_t invalidate(weft_mem_t *mem) {
    bool again = mem->invalid;
    mem->invalid = true;
    if (!again && mem->on_invalid) weft__job_post(mem->worker->reactor, &mem->tell_invalid);
    return mem_withdraw(mem, mem->cached.end && mem->users == 0 && mem->core.fsm.state != MEMORY_ENDING, NULL);
}

static bool overlaps(const weft_mem_t *mem, uintptr_t base, uintptr_t end) {
    uintptr_t begin = (uintptr_t)mem->region.base;
    return begin < end && begin + mem->region.len > base;
}

static const struct request_kind invalidate_kind = {
    .name = "invalidate", .moves_none = true, .withdraw = weft__several_leave};

static void invalidate_all(weft_worker_t *worker, uintptr_t base, uintptr_t end, struct several *all) {
    struct memory *memory = &worker->memory;
    while (weft__region_cache_cut(&memory->cache, base, end)) continue;
    for (struct list *n = memory->all.next, *next; n != &memory->all; n = next) {
        next = n->next;
        weft_mem_t *mem = list_of(n, weft_mem_t, of_worker);
        if (mem->pages.map || !overlaps(mem, base, end)) continue;
        weft_status_t st = invalidate(mem);
        if (st == WEFT_IN_PROGRESS) /* it was queued just now, as the last of those that wait */
            several_add(all, list_of(mem->waiting.prev, struct weft_request, queued));
        several_note(all, st);
    }
}

weft_status_t weft_mem_invalidate(weft_worker_t *worker, const void *base, size_t len, const weft_op_t *op) {
    if (!worker) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker is NULL");
    weft_status_t st = check_range(base, len);
    if (st == WEFT_OK) st = weft__worker_check(worker);
    if (st < 0) return st;
    struct several *all;
    st = weft__several_begin(worker, &invalidate_kind, op, &all);
    if (st < 0) return st;
    invalidate_all(worker, (uintptr_t)base, (uintptr_t)base + len, all);
    return weft__several_begun(all);
}

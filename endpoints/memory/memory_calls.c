/* What a program calls about regions: checks of its arguments, and the registration cache. */
#include "memory.h"

#include <base/check.h>
#include <base/counters.h>
#include <fcntl.h>
#include <transports/region.h>

#include <endpoints/core/op_group.h>
#include <endpoints/core/worker.h>

/* ---- regions */

static bool has_device_atomics(const weft_worker_t *worker) {
    for (uint32_t i = 0; i < worker->n_ifaces; i++)
        if (worker->iface[i]->attr.caps & CAP_ATOMIC_DEVICE) return true;
    return false;
}

static weft_status_t check_new(const weft_worker_t *worker, size_t len, weft_mem_t **mem_p,
                               size_t params_size, const weft_mem_params_t *params,
                               weft_mem_params_t *own) {
    if (!worker || !mem_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or mem_p is NULL");
    weft_status_t st = weft__params_read(own, sizeof *own, params, params_size);
    if (st < 0) return st;
    if (own->associated && !worker->stub)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "worker: the parent was not created in associated mode");
    if (own->associated)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "associated is for weft_mem_register, with base NULL and len 0");
    if (len == 0) return weft__fail(WEFT_ERR_INVALID_PARAM, "len is 0");
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
    if (st == WEFT_OK && !worker_is_open(&worker->core.fsm)) return weft__worker_refuse(worker);
    return st;
}

static weft_status_t check_range(const void *base, size_t len) {
    if (len > UINTPTR_MAX - (uintptr_t)base)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "%zu bytes at %p", len, base);
    return weft__check_memory("base", base, len);
}

static weft_status_t of_pages(weft_worker_t *worker, size_t len, const weft_mem_params_t *params,
                              struct pages *pages, weft_mem_t **mem_p) {
    weft_status_t st = weft__mem_new(worker, pages->map, len, params, pages, mem_p);
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
        return weft__mem_stub_new(worker, params_size, params, mem_p);
    worker = weft__worker_itself(worker);
    weft_status_t st = check_new(worker, len, mem_p, params_size, params, &own);
    if (st < 0) return st;
    st = check_range(base, len);
    if (st < 0) return st;
    if (own.zero_based && (uintptr_t)base % 8)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "a zero_based region begins at a multiple of 8");
    weft__cuda_notice();
    return weft__mem_new(worker, base, len, &own, NULL, mem_p);
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
    if (mem->of) mem = mem->of;
    if (!fd_p || !offset_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "fd_p or offset_p is NULL");
    if (mem->pages.fd < 0)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "memory of the program has no descriptor");
    int fd = fcntl(mem->pages.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return weft__fail(WEFT_ERR_NO_FDS, "could not duplicate the region's descriptor");
    *fd_p = fd;
    *offset_p = mem->pages.offset;
    return WEFT_OK;
}

static weft_status_t release_stub(struct stub *stub) {
    weft_status_t st = weft__worker_check(stub->worker);
    if (st < 0) return st;
    stub->closing(stub);
    weft__worker_stub_gone(stub);
    return WEFT_OK;
}

weft_status_t weft_mem_release(weft_mem_t *mem, const weft_op_t *op) {
    if (mem && weft__is_stub_worker(mem->worker)) return release_stub(mem->stub);
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
    return weft__mem_withdraw(mem, true, op);
}

weft_status_t weft_mem_revoke(weft_mem_t *mem, const weft_op_t *op) {
    weft_status_t st = check_region(mem);
    if (st < 0) return st;
    return weft__mem_withdraw(mem->of ? mem->of : mem, false, op);
}

weft_status_t weft_mem_advise(weft_mem_t *mem, size_t offset, size_t len,
                              weft_mem_advice_t advice) {
    weft_status_t st = check_region(mem);
    if (st < 0) return st;
    if (mem->of) mem = mem->of;
    if (mem->on_device)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "the kernel takes no advice on device memory");
    if (!region_covers(0, mem->region.len, offset, len))
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "%zu bytes at offset %zu exceed the region of %zu bytes", len, offset,
                          mem->region.len);
    return weft__pages_advise(&mem->pages, (char *)mem->region.base + offset, len, advice);
}

weft_status_t weft_mem_describe_sized(size_t info_size, const weft_mem_t *mem,
                                      weft_mem_info_t *info_p) {
    weft_mem_info_t info = {.numa_node = -1};
    weft_status_t st = check_region(mem);
    if (st < 0) return st;
    if (mem->of) mem = mem->of;
    if (!info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "info_p is NULL");
    (void)weft_mem_detect(mem->region.base, &info);
    info.base = mem->region.base;
    info.len = mem->region.len;
    info.rights = mem->region.rights;
    info.epoch = mem->region.epoch;
    if (mem->pages.map) info.page = mem->pages.page;
    for (uint32_t i = 0; i < MEMORY_IFACES; i++)
        if (mem->md[i]) info.n_peers += mem->md[i]->n_open;
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}

/* ---- through the cache */

static void drop_region(weft_mem_t *mem) {
    weft__region_cache_remove(&mem->worker->memory.cache, &mem->cached);
    if (memory_is_ending(&mem->core.fsm)) return;
    weft__fsm_step(&mem->core.fsm, MEMORY_EV_RELEASE);
    (void)weft__mem_settle(mem);
}

static void shrink(struct memory *memory) {
    struct cached *oldest;
    while ((oldest = weft__region_cache_surplus(&memory->cache)) != NULL)
        drop_region(list_of(oldest, weft_mem_t, cached));
}

static weft_mem_t *use_cached(weft_worker_t *worker, struct cached *found) {
    weft_mem_t *mem = list_of(found, weft_mem_t, cached);
    worker->count->memory_cache_hits++;
    if (mem->users++ == 0) weft__region_cache_use(&worker->memory.cache, found);
    return mem;
}

static weft_status_t register_cached(weft_worker_t *worker, void *base, size_t len,
                                     const weft_mem_params_t *params, weft_mem_t **mem_p) {
    weft_mem_t *mem;
    uintptr_t begin = (uintptr_t)base;
    weft__cuda_notice();
    weft_status_t st = weft__mem_new(worker, base, len, params, NULL, &mem);
    if (st < 0) return st;
    mem->cached = (struct cached){.base = begin, .end = begin + len, .rights = params->rights};
    st = weft__region_cache_add(&worker->memory.cache, worker, &mem->cached);
    if (st < 0) {
        list_init(&mem->cached.unused);
        drop_region(mem);
        return st;
    }
    mem->users = 1;
    shrink(&worker->memory);
    *mem_p = mem;
    return WEFT_OK;
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
    uintptr_t begin = (uintptr_t)base;
    struct cached *found =
        weft__region_cache_find(&worker->memory.cache, begin, begin + len, rights);
    if (!found) return register_cached(worker, base, len, &own, mem_p);
    *mem_p = use_cached(worker, found);
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
    return weft__mem_withdraw(
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
    list_for_each_safe(n, next, &memory->all) {
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

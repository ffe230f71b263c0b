/* Packs the keys of regions, and unpacks, follows and releases those of peers. */
#include "rkey.h"

#include <transports/region.h>

#include <base/check.h>
#include <endpoints/core/worker.h>

/* Stands where a link has no key of its own: messages do it. */
static struct lane_key no_key = {.status = WEFT_NO_RESOURCE, .refused = true, .how = "message"};

/* ---- the owner's side */

size_t weft__mem_key(const weft_mem_t *mem, unsigned rights, const struct iface *only, void *to) {
    struct rkey_packed key = {.worker = mem->worker->id};
    uint8_t blob[RKEY_ENTRIES][MD_KEY_MAX];
    const struct region *own = &mem->region;
    key.region = (struct remote_region){own->origin, own->len, rights, own->id, own->epoch, {0}};
    memcpy(key.region.token, own->token, sizeof own->token);
    for (uint32_t i = 0; i < mem->worker->n_ifaces; i++) {
        struct md_mem *md = mem->md[i];
        if (!md || (only && md->iface != only)) continue;
        size_t len = md->iface->ops->mem->key_pack(md, blob[key.n]);
        const char *name = md->iface->transport->name;
        key.entry[key.n] =
            (struct rkey_entry){name, blob[key.n], (uint8_t)strlen(name), (uint8_t)len};
        key.n++;
    }
    return weft__rkey_write(to, &key);
}

weft_status_t weft_mem_pack(const weft_mem_t *mem, void *buf, size_t *len_p) {
    if (!mem || !len_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "mem or len_p is NULL");
    weft_status_t st = weft__check_memory("buf", buf, *len_p);
    if (st == WEFT_OK) st = weft__worker_check(mem->worker);
    if (st < 0) return st;
    if (mem->of) mem = mem->of;
    if (!mem->region.rights)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the region grants peers no rights");
    if (mem->invalid) return weft__fail(WEFT_ERR_REVOKED, "the region's memory was unmapped");
    if (!memory_is_live(&mem->core.fsm))
        return weft__fail(WEFT_ERR_BUSY, "the region is being revoked");
    uint8_t packed[WEFT_RKEY_MAX];
    size_t len = weft__mem_key(mem, mem->region.rights, NULL, packed);
    size_t room = *len_p;
    *len_p = len;
    if (len > room) return weft__fail(WEFT_ERR_TRUNCATED, "the key takes %zu bytes", len);
    memcpy(buf, packed, len);
    return WEFT_OK;
}

/* ---- the peer's side */

static const struct rkey_entry *entry_for(const struct rkey_packed *packed,
                                          const struct iface *iface) {
    const char *name = iface->transport->name;
    for (uint32_t i = 0; i < packed->n; i++) {
        const struct rkey_entry *e = &packed->entry[i];
        if (e->name_len == strlen(name) && memcmp(e->name, name, e->name_len) == 0) return e;
    }
    return NULL;
}

/* Where the transport cannot, or the link has as many as it may, messages do it. */
static void open_key(struct weft_rkey *rkey) {
    struct link *link = rkey->ep->link;
    struct rkey_packed packed = {0};
    struct lane_key *key;
    if (link->peer != rkey->worker) {
        rkey->status = WEFT_ERR_UNREACHABLE;
        return;
    }
    struct lane *lane = weft__link_key_lane(link);
    if (!lane || !HAS_OP(lane->ops, rma, key_open) || rkey->key != &no_key ||
        weft__rkey_read(rkey->packed, rkey->packed_len, &packed) < 0)
        return;
    const struct rkey_entry *entry = entry_for(&packed, lane->iface);
    uint64_t most = weft__setting_u64(link->worker->context, SETTING_RMA_MAX_KEYS);
    if (!entry || link->more->n_keys >= most || !weft__link_ext(link)) return;
    if (lane->ops->rma->key_open(lane, &packed.region, entry->bytes, entry->len, &key) != WEFT_OK)
        return;
    link->more->n_keys++;
    rkey->key = key;
    rkey->max_short = lane->iface->attr.max_put_short;
}

static void close_one(struct weft_rkey *rkey, struct lane_key *key) {
    struct link *link = rkey->ep ? rkey->ep->link : NULL;
    if (key->status < 0 && rkey->status == WEFT_OK) rkey->status = key->status;
    key->lane->ops->rma->key_close(key);
    if (link) link->more->n_keys--;
}

static void close_left(struct weft_rkey *rkey) {
    if (rkey->left) close_one(rkey, rkey->left);
    rkey->left = NULL;
}

static void close_key(struct weft_rkey *rkey) {
    close_left(rkey);
    if (rkey->key != &no_key) close_one(rkey, rkey->key);
    rkey->key = &no_key;
}

/* `keys_of(ep)` is an empty list if the endpoint never had a key. */
static struct list *keys_of(const struct weft_ep *ep) {
    static struct list none = {&none, &none};
    return ep->keys ? ep->keys : &none;
}

void weft__rkeys_open(struct weft_ep *ep) {
    struct weft_rkey *rkey;
    list_for_each_entry(rkey, keys_of(ep), of_ep) open_key(rkey);
}

void weft__rkeys_close(struct weft_ep *ep) {
    struct weft_rkey *rkey;
    list_for_each_entry(rkey, keys_of(ep), of_ep) close_key(rkey);
}

void weft__rkeys_leave(struct weft_ep *ep, const struct lane *lane) {
    struct weft_rkey *rkey;
    list_for_each_entry(rkey, keys_of(ep), of_ep) {
        if (rkey->key == &no_key || rkey->key->lane != lane || rkey->left) continue;
        rkey->left = rkey->key;
        rkey->key = &no_key;
    }
}

/* A lost lane does not change the status of the region. */
void weft__rkeys_left(struct weft_ep *ep, const struct lane *gone) {
    struct weft_rkey *rkey;
    list_for_each_entry(rkey, keys_of(ep), of_ep) {
        weft_status_t status = rkey->status;
        close_left(rkey);
        if (!gone || rkey->key == &no_key || rkey->key->lane != gone) continue;
        close_key(rkey);
        rkey->status = status;
    }
}

void weft__rkeys_end(struct weft_ep *ep) {
    struct list *node;
    while (ep->keys && (node = list_pop(ep->keys)) != NULL) {
        struct weft_rkey *rkey = list_of(node, struct weft_rkey, of_ep);
        if (rkey->status == WEFT_OK) rkey->status = weft__worker_end_status(ep->worker);
        rkey->ep = NULL;
        if (rkey->exposed) weft__rkey_drop(rkey);
    }
}

bool weft__rkeys_init(struct weft_ep *ep) {
    return ep->keys || ep->worker->memory.users->first_key(ep);
}

weft_status_t weft__rkey_status(const struct weft_rkey *rkey) {
    if (rkey->status < 0) return rkey->status;
    return rkey->key->status < 0 ? rkey->key->status : WEFT_OK;
}

weft_status_t weft__rkey_check(const struct weft_rkey *rkey, uint64_t remote, size_t len,
                               unsigned right) {
    const struct remote_region *region = &rkey->region;
    if (!(region->rights & right))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "the key does not grant this right");
    if (!region_covers(region->base, region->len, remote, len))
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "%zu bytes at %#llx are outside the key's region, %llu bytes at %#llx",
                          len, (unsigned long long)remote, (unsigned long long)region->len,
                          (unsigned long long)region->base);
    weft_status_t st = weft__rkey_status(rkey);
    return st < 0 ? weft__fail(st, "the key is no longer valid") : WEFT_OK;
}

void weft__rkey_drop(struct weft_rkey *rkey) {
    if (--rkey->uses) return;
    if (rkey->ep) list_remove(&rkey->of_ep);
    close_key(rkey);
    talloc_free(rkey);
}

weft_status_t weft_rkey_unpack(weft_ep_t *ep, const void *key, size_t len, weft_rkey_t **rkey_p) {
    struct rkey_packed packed = {0};
    if (!ep || !key || !rkey_p)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "ep, key or rkey_p is NULL");
    weft_status_t st = weft__worker_check(ep->worker);
    if (st == WEFT_OK) st = weft__rkey_read(key, len, &packed);
    if (st < 0) return st;
    if (ep->link && ep->link->peer && ep->link->peer != packed.worker)
        return weft__fail(
            WEFT_ERR_ADDRESS,
            "the key belongs to worker %016llx, but the endpoint's peer is worker %016llx",
            (unsigned long long)packed.worker, (unsigned long long)ep->link->peer);
    if (!weft__rkeys_init(ep)) return WEFT_ERR_NO_MEMORY;
    struct weft_rkey *rkey = weft__alloc(ep->worker, sizeof *rkey + len, "struct weft_rkey");
    if (!rkey) return WEFT_ERR_NO_MEMORY;
    *rkey = (struct weft_rkey){.ep = ep,
                               .key = &no_key,
                               .region = packed.region,
                               .worker = packed.worker,
                               .user = ep->worker,
                               .uses = 1,
                               .packed_len = (uint16_t)len};
    memcpy(rkey->packed, key, len);
    list_append(ep->keys, &rkey->of_ep);
    if (ep->link && weft__ep_goes(ep)) open_key(rkey);
    *rkey_p = rkey;
    return WEFT_OK;
}

static void released(struct remote *remote) {
    weft__rkey_drop(list_of(remote, struct weft_rkey, released));
}

/* Operations that other threads have handed over name it, and are under way although they hold
 * no use yet. */
void weft_rkey_release(weft_rkey_t *rkey) {
    if (!rkey || weft__worker_check(rkey->user) < 0) return;
    if (rkey->user->driver.thread_mode != WEFT_THREAD_MULTIPLE) {
        weft__rkey_drop(rkey);
        return;
    }
    rkey->released.run = released;
    weft__reactor_submit(rkey->user->reactor, &rkey->released);
}

weft_status_t weft_rkey_pointer(weft_rkey_t *rkey, uint64_t remote, void **at_p) {
    if (!rkey || !at_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "rkey or at_p is NULL");
    weft_status_t st = weft__worker_check(rkey->user);
    if (st == WEFT_OK) st = weft__rkey_check(rkey, remote, 0, WEFT_MEM_ALL);
    if (st < 0) return st;
    const struct lane_key *key = rkey->key;
    if (key->status == WEFT_OK && key->local) {
        *at_p = key->local + (remote - rkey->region.base);
        return WEFT_OK;
    }
    if (key != &no_key && key->status == WEFT_NO_RESOURCE) return WEFT_ERR_BUSY;
    return weft__fail(WEFT_ERR_UNSUPPORTED, "the region is not mapped in this process");
}

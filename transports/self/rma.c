/* One-sided operations on the worker's own memory, all inline: the reference for those of other
 * transports. */
#include "self.h"
#include <string.h>
#include <transports/atomics.h>
#include <transports/pieces.h>
#include <transports/region.h>

/* ---- regions --------------------------------------------------------------------------------- */

weft_status_t weft__self_mem_register(struct iface *i, const struct region *region,
                                      struct md_mem **mem_p) {
    struct self_iface *iface = (struct self_iface *)i;
    struct self_mem *mem = weft__new(iface, struct self_mem);
    if (!mem) return WEFT_ERR_NO_MEMORY;
    mem->mem = (struct md_mem){.region = region, .iface = i};
    mem->next = iface->mems;
    iface->mems = mem;
    *mem_p = &mem->mem;
    return WEFT_OK;
}

static void key_end(struct self_key *key, weft_status_t status) {
    key->key.status = status;
    key->key.caps = 0;
    key->key.local = NULL;
    if (!key->mem) return;
    key->mem->mem.n_open--;
    key->mem = NULL;
}

weft_status_t weft__self_mem_revoke(struct md_mem *m, struct completion *completion) {
    struct self_iface *iface = (struct self_iface *)m->iface;
    struct self_mem **at = &iface->mems;
    while (&(*at)->mem != m) at = &(*at)->next;
    struct self_mem *mem = *at;
    *at = mem->next;
    for (struct self_key *key = iface->keys; key; key = key->next)
        if (key->mem == mem) key_end(key, WEFT_ERR_REVOKED);
    talloc_free(mem);
    return WEFT_OK;
}

size_t weft__self_key_pack(const struct md_mem *mem, void *to) {
    return 0; /* the region says it all */
}

/* ---- keys ------------------------------------------------------------------------------------ */

static struct self_mem *find_rma(const struct self_iface *iface, uint32_t id) {
    struct self_mem *mem = iface->mems;
    while (mem && mem->mem.region->id != id) mem = mem->next;
    return mem;
}

static void key_grant(struct self_key *key, struct self_mem *mem) {
    key->mem = mem;
    mem->mem.n_open++;
    key->key.caps = rights_caps(key->key.region.rights, CAP_PUT | CAP_GET | CAP_ATOMIC);
    key->key.how = "mapped";
    key->key.local = mem->mem.region->base;
}

weft_status_t weft__self_key_open(struct lane *l, const struct remote_region *region,
                                  const void *packed, size_t len, struct lane_key **key_p) {
    struct self_iface *iface = self_iface(l);
    struct self_key *key = weft__new(l, struct self_key);
    if (!key) return WEFT_ERR_NO_MEMORY;
    struct self_mem *mem = find_rma(iface, region->id);
    key->key = (struct lane_key){.lane = l, .region = *region, .how = "refused"};
    key->key.status = mem ? region_admits(mem->mem.region, region) : WEFT_ERR_REVOKED;
    if (key->key.status == WEFT_OK) key_grant(key, mem);
    key->next = iface->keys;
    iface->keys = key;
    *key_p = &key->key;
    return WEFT_OK;
}

static void unlink_key(struct self_key **at) {
    struct self_key *key = *at;
    key_end(key, WEFT_ERR_CLOSED);
    *at = key->next;
}

void weft__self_key_close(struct lane_key *k) {
    struct self_key **at = &self_iface(k->lane)->keys;
    while (&(*at)->key != k) at = &(*at)->next;
    unlink_key(at);
    talloc_free(k);
}

void weft__self_keys_end(struct self_lane *lane, weft_status_t status) {
    for (struct self_key *key = self_iface(&lane->pair.lane)->keys; key; key = key->next)
        if (key->key.lane == &lane->pair.lane) key_end(key, status);
}

/* They are freed with the lane. */
void weft__self_keys_forget(struct self_lane *lane) {
    struct self_key **at = &self_iface(&lane->pair.lane)->keys;
    while (*at)
        if ((*at)->key.lane == &lane->pair.lane)
            unlink_key(at);
        else
            at = &(*at)->next;
}

/* ---- operations ------------------------------------------------------------------------------ */

static char *place_rma(const struct lane_key *key, uint64_t remote) {
    return key->local + (remote - key->region.base);
}

weft_status_t weft__self_put_short(struct lane *l, const void *data, size_t len, uint64_t remote,
                                   struct lane_key *key) {
    if (len > SELF_RMA_SHORT)
        return weft__fail(WEFT_ERR_TOO_BIG, "put_short of %zu bytes over self", len);
    if (len) memmove(place_rma(key, remote), data, len);
    return WEFT_OK;
}

weft_status_t weft__self_put_bcopy(struct lane *l, size_t len, size_t (*pack)(void *, void *),
                                   void *arg, uint64_t remote, struct lane_key *key) {
    if (len > SELF_RMA_BCOPY)
        return weft__fail(WEFT_ERR_TOO_BIG, "put_bcopy of %zu bytes over self", len);
    if (len) pack(place_rma(key, remote), arg);
    return WEFT_OK;
}

static weft_status_t too_big(const char *what) {
    return weft__fail(WEFT_ERR_TOO_BIG, "%s over self: at most %d bytes in %d pieces", what,
                      SELF_RMA_ZCOPY, SELF_IOV);
}

weft_status_t weft__self_put_zcopy(struct lane *l, const struct rma_piece *from, size_t n_from,
                                   uint64_t remote, struct lane_key *key,
                                   struct completion *completion) {
    size_t total;
    if (!pieces_fit(from, n_from, SELF_RMA_ZCOPY, SELF_IOV, &total)) return too_big("put_zcopy");
    pieces_gather(place_rma(key, remote), from, n_from);
    return WEFT_OK;
}

weft_status_t weft__self_get_bcopy(struct lane *l, const struct rma_unpack *to, uint64_t remote,
                                   struct lane_key *key, struct completion *completion) {
    if (to->len > SELF_RMA_BCOPY)
        return weft__fail(WEFT_ERR_TOO_BIG, "get_bcopy of %zu bytes over self", to->len);
    to->fn(to->arg, place_rma(key, remote), to->len);
    return WEFT_OK;
}

weft_status_t weft__self_get_zcopy(struct lane *l, const struct rma_piece *to, size_t n_to,
                                   uint64_t remote, struct lane_key *key,
                                   struct completion *completion) {
    size_t total;
    if (!pieces_fit(to, n_to, SELF_RMA_ZCOPY, SELF_IOV, &total)) return too_big("get_zcopy");
    pieces_scatter(to, n_to, place_rma(key, remote));
    return WEFT_OK;
}

weft_status_t weft__self_atomic_post(struct lane *l, const struct lane_atomic *atomic,
                                     struct lane_key *key) {
    if (!atomic_is_one(atomic->op, atomic->size, true)) return WEFT_ERR_INVALID_PARAM;
    atomic_post_at(atomic->op, atomic->size, place_rma(key, atomic->remote), atomic->operand);
    return WEFT_OK;
}

weft_status_t weft__self_atomic_fetch(struct lane *l, const struct lane_atomic *atomic, void *old_p,
                                      struct lane_key *key, struct completion *completion) {
    if (!atomic_is_one(atomic->op, atomic->size, false)) return WEFT_ERR_INVALID_PARAM;
    atomic_fetch_at(atomic->op, atomic->size, place_rma(key, atomic->remote), atomic->operand,
                    atomic->compare, old_p);
    return WEFT_OK;
}

weft_status_t weft__self_fence(struct lane *l) {
    return WEFT_OK;
}

/* Puts and gets of device memory by the CUDA driver. */
#include "device.h"
#include <base/settings.h>
#include <transports/cuda/transfer.h>

struct shm_copy {
    struct cuda_transfer transfer;
    struct list of_key;
    struct shm_key *key;
    struct cuda_import *import; /* NULL: of a mapped region */
    struct completion *completion;
};

bool weft__shm_needs_device(const struct lane_key *key, const struct rma_piece *piece) {
    return key->is_of_device || weft__is_device_memory(piece->base);
}

static struct cuda_copies *copies_of(struct shm_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    struct shm_md *md = iface->md;
    if (!md->copies)
        (void)weft__cuda_copies_open(
            iface->iface.reactor, (size_t)weft__setting_u64(context, SETTING_CUDA_CHUNK),
            (size_t)weft__setting_u64(context, SETTING_CUDA_STAGING), &md->copies);
    return md->copies;
}

/* ---- its end --------------------------------------------------------------------------------- */

static struct completion *end_copy(struct shm_copy *copy) {
    struct completion *completion = copy->completion;
    list_remove(&copy->of_key);
    if (copy->import) weft__cuda_import_end(copy->import);
    talloc_free(copy);
    return completion;
}

static void device_copied(struct cuda_transfer *transfer, weft_status_t status) {
    struct shm_copy *copy = container_of(transfer, struct shm_copy, transfer);
    struct shm_key *key = copy->key;
    completion_step(end_copy(copy), status);
    if (list_empty(&key->copies) && shm_key_is_in_use(&key->fsm))
        weft__fsm_step(&key->fsm, SHM_KEY_EV_IDLE);
}

void weft__shm_device_leave(struct shm_key *key, weft_status_t status) {
    while (!list_empty(&key->copies)) {
        struct shm_copy *copy = list_of(key->copies.next, struct shm_copy, of_key);
        weft__cuda_transfer_stop(&copy->transfer);
        completion_step(end_copy(copy), status);
    }
    if (key->device) weft__cuda_import_forget(key->device);
}

/* ---- beginning one --------------------------------------------------------------------------- */

/* Where the copy runs: in the context of this side's memory; for memory of the host, in the one
 * that is given or current. */
static weft_status_t find_place(const struct shm_lane *lane, const void *local,
                                struct cuda_place *place_p, bool *on_device_p) {
    const struct given *given = weft__reactor_given(lane->lane.iface->reactor);
    struct cuda_memory found;
    bool on_device = weft__cuda_find(local, &found) && !found.managed;
    weft_status_t st = weft__cuda_place(given, on_device ? &found : NULL, place_p);
    if (st < 0) return st;
    if (!place_p->context) place_p->context = weft__cuda_current();
    *on_device_p = on_device;
    return place_p->context ? WEFT_OK : WEFT_ERR_UNSUPPORTED;
}

static enum cuda_way way_of(bool from_device, bool to_device) {
    if (from_device && to_device) return CUDA_WITHIN;
    return to_device ? CUDA_IN : CUDA_OUT;
}

/* The address of remote memory for copies in that place. */
static weft_status_t reach(struct shm_copy *copy, uint64_t remote, size_t len, char **at_p) {
    const struct shm_key *key = copy->key;
    uint64_t offset = remote - key->key.region.base;
    void *at;
    if (key->key.local) {
        *at_p = key->key.local + offset;
        return WEFT_OK;
    }
    struct cuda_export part = *key->device;
    part.address += offset;
    part.len = len;
    if (weft__cuda_import(&part, copy->transfer.place.context, &copy->import, &at) < 0)
        return WEFT_ERR_UNSUPPORTED; /* messages need no handle */
    *at_p = at;
    return WEFT_OK;
}

static weft_status_t describe(struct shm_copy *copy, bool put, const struct rma_piece *piece,
                              uint64_t remote) {
    struct cuda_transfer *t = &copy->transfer;
    struct shm_key *key = copy->key;
    bool on_device;
    char *there;
    weft_status_t st =
        find_place((struct shm_lane *)key->key.lane, piece->base, &t->place, &on_device);
    if (st == WEFT_OK) st = reach(copy, remote, piece->len * piece->count, &there);
    if (st < 0) return st;
    bool there_on_device = key->key.is_of_device;
    t->way = put ? way_of(on_device, there_on_device) : way_of(there_on_device, on_device);
    t->to = put ? there : piece->base;
    t->from = put ? piece->base : there;
    t->len = piece->len * piece->count;
    if (piece->count == 1) return WEFT_OK;
    t->block = piece->len;
    t->to_pitch = put ? piece->len : piece->stride;
    t->from_pitch = put ? piece->stride : piece->len;
    bool is_one_copy = t->way == CUDA_WITHIN && piece->stride <= INT32_MAX;
    return is_one_copy ? WEFT_OK : WEFT_ERR_UNSUPPORTED; /* messages stage strides */
}

weft_status_t weft__shm_device_copy(struct lane_key *k, bool put, const struct rma_piece *piece,
                                    size_t n, uint64_t remote, struct completion *completion) {
    struct shm_key *key = (struct shm_key *)k;
    struct shm_iface *iface = shm_iface((struct shm_lane *)k->lane);
    if (n != 1) return WEFT_ERR_UNSUPPORTED;
    struct cuda_copies *copies = copies_of(iface);
    struct shm_copy *copy = copies ? weft__new(iface, struct shm_copy) : NULL;
    if (!copy) return WEFT_ERR_NO_MEMORY;
    uint64_t depth =
        weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_CUDA_DEPTH);
    *copy = (struct shm_copy){
        .transfer = {.copies = copies, .depth = (uint32_t)depth, .done = device_copied},
        .key = key,
        .completion = completion};
    list_append(&key->copies, &copy->of_key);
    weft_status_t st = describe(copy, put, piece, remote);
    if (st == WEFT_OK) st = weft__cuda_transfer_start(&copy->transfer);
    if (st == WEFT_OK) return WEFT_IN_PROGRESS;
    (void)end_copy(copy);
    return st;
}

/* Announces exposed regions to the peer, and opens those that the peer announced. */
#include "expose.h"

#include <endpoints/core/worker.h>
#include <endpoints/memory/rkey.h>

enum {
    NOTIFIED = 8, /* regions that a link knows it has announced to the peer */
    /* messages that the peer could not read in place, after which it is notified again */
    AGAIN = 64,
    HELD = 16 /* keys that an endpoint holds of the peer's exposures; beyond, the oldest goes */
};

/* The records of a link whose messages came from exposed memory. */
struct exposures {
    unsigned next; /* to be forgotten for another one */
    struct exposure {
        uint32_t region, epoch; /* epoch 0: none */
        unsigned right;
        uint32_t asked; /* messages since it was first announced */
    } notified[NOTIFIED];
};

/* ---- lending */

static struct exposures *exposures_of(struct link *link) {
    struct link_ext *more = weft__link_ext(link);
    if (more && !more->exposures) more->exposures = weft__new(link->worker, struct exposures);
    return more ? more->exposures : NULL;
}

static struct exposure *exposure_of(struct exposures *exposures, const struct region *region,
                                    unsigned right) {
    for (unsigned i = 0; i < NOTIFIED; i++) {
        struct exposure *exposure = &exposures->notified[i];
        if (exposure->region == region->id && exposure->epoch == region->epoch &&
            exposure->right == right)
            return exposure;
    }
    struct exposure *exposure = &exposures->notified[exposures->next++ % NOTIFIED];
    *exposure = (struct exposure){.region = region->id, .epoch = region->epoch, .right = right};
    return exposure;
}

_Static_assert(sizeof(uint32_t) + RKEY_HEAD + 2 + 16 + MD_KEY_MAX <=
                   sizeof((struct wire_message){0}.bytes),
               "a key for one transport, whose name has 16 bytes at most, fits a message");

/* It never waits: a request may be on its way to the lane just now, and nothing is lost when a
 * later message announces it. */
static void notify_exposure(struct weft_ep *ep, const weft_mem_t *mem, const struct iface *iface,
                            unsigned right) {
    struct exposures *exposures = exposures_of(ep->link);
    struct exposure *exposure = exposures ? exposure_of(exposures, &mem->region, right) : NULL;
    struct wire_message m;
    uint8_t key[WEFT_RKEY_MAX];
    if (!exposure) return;
    if (exposure->asked % AGAIN == 0) {
        size_t len = weft__mem_key(mem, right, iface, key);
        weft__wire_expose(&m, (struct wire_expose){ep->core.peer, key, len});
        if (weft__link_send_ctrl(ep->link, ep->link->tx, &m) != WEFT_OK) return;
    }
    exposure->asked++;
}

bool weft__try_expose(struct weft_ep *ep, const void *at, size_t len, unsigned right) {
    struct link *link = ep->link;
    if (!(link->peer_flags & WIRE_HELLO_EXPOSURES)) return false;
    weft_mem_t *mem = weft__mem_exposed(link->worker, at, len);
    struct lane *lane = mem && mem->region.rights & right ? weft__link_key_lane(link) : NULL;
    if (!lane || !HAS_OP(lane->ops, rma, exposes)) return false;
    struct md_mem *md = mem->md[weft__worker_number(link->worker, lane->iface)];
    if (!md) return false;
    if (lane->ops->rma->exposes(lane, md, right)) return true;
    notify_exposure(ep, mem, lane->iface, right);
    return false;
}

void weft__exposures_free(struct link *link) {
    talloc_free(link->more->exposures);
}

/* ---- borrowing */

static bool is_same(const struct weft_rkey *rkey, const struct remote_region *region) {
    return rkey->region.id == region->id && rkey->region.epoch == region->epoch &&
           rkey->region.rights == region->rights;
}

/* It may be granted now, since its owner announces it again. */
static bool is_over(const struct weft_rkey *rkey, const struct remote_region *region) {
    return weft__rkey_status(rkey) < 0 || (is_same(rkey, region) && rkey->key->refused);
}

/* Lets go of exposures that are over, and of the oldest where there are too many. False: this one
 * is held, or asked for. */
static bool make_room(struct weft_ep *ep, const struct remote_region *region) {
    struct weft_rkey *oldest = NULL;
    unsigned n = 0;
    list_for_each_safe(at, next, ep->keys) {
        struct weft_rkey *rkey = list_of(at, struct weft_rkey, of_ep);
        if (!rkey->exposed) continue;
        if (is_over(rkey, region)) {
            weft__rkey_drop(rkey);
            continue;
        }
        if (is_same(rkey, region)) return false;
        if (n++ == 0) oldest = rkey;
    }
    if (n >= HELD) weft__rkey_drop(oldest);
    return true;
}

void weft__on_expose(struct link *link, struct lane *lane, const struct wire_expose *expose) {
    struct rkey_packed packed = {0};
    struct weft_rkey *rkey;
    if (weft__rkey_read(expose->key, expose->len, &packed) < 0 || packed.worker != link->peer) {
        weft__link_violation(link, "expose");
        return;
    }
    struct weft_ep *ep = weft__ep_lookup(lane, expose->ep, "expose");
    if (!ep || !weft__rkeys_init(ep) || !make_room(ep, &packed.region)) return;
    if (weft_rkey_unpack(ep, expose->key, expose->len, &rkey) == WEFT_OK) rkey->exposed = true;
}

#include "loan.h"

#include "rma.h"
#include "switch.h"
#include "worker.h"

enum {
    TOLD = 8,   /* regions of which a link knows that it told the peer */
    AGAIN = 64, /* every so many messages that the peer could not read in place, it is told again */
    HELD = 16   /* keys that an endpoint holds of the peer's loans; beyond, the oldest goes */
};

/* Of a link whose messages came out of lent memory. */
struct loans {
    unsigned next; /* to be forgotten for another one */
    struct loan {
        uint32_t region, epoch; /* epoch 0: none */
        unsigned right;
        uint32_t asked; /* messages since it was first told */
    } told[TOLD];
};

/* ---- lending */

static struct loans *loans_of(struct link *link) {
    struct link_more *more = weft__link_more(link);
    if (more && !more->loans) more->loans = weft__new(link->worker, struct loans);
    return more ? more->loans : NULL;
}

static struct loan *loan_of(struct loans *loans, const struct region *region, unsigned right) {
    for (unsigned i = 0; i < TOLD; i++) {
        struct loan *loan = &loans->told[i];
        if (loan->region == region->id && loan->epoch == region->epoch && loan->right == right) return loan;
    }
    struct loan *loan = &loans->told[loans->next++ % TOLD];
    *loan = (struct loan){.region = region->id, .epoch = region->epoch, .right = right};
    return loan;
}

_Static_assert(sizeof(uint32_t) + RKEY_HEAD + 2 + 16 + MD_KEY_MAX <= sizeof((struct wire_message){0}.bytes),
               "a key for one transport, whose name has 16 bytes at most, fits a message");

/* It never waits: a request may be on its way to the lane just now, and nothing is lost when a later message tells. */
static void tell(struct weft_ep *ep, const weft_mem_t *mem, const struct iface *iface, unsigned right) {
    struct loans *loans = loans_of(ep->link);
    struct loan *loan = loans ? loan_of(loans, &mem->region, right) : NULL;
    struct wire_message m;
    uint8_t key[WEFT_RKEY_MAX];
    if (!loan) return;
    if (loan->asked % AGAIN == 0) {
        size_t len = weft__mem_key(mem, right, iface, key);
        weft__wire_lend(&m, (struct wire_lend){ep->core.peer, key, len});
        if (weft__link_say(ep->link, ep->link->tx, &m) != WEFT_OK) return;
    }
    loan->asked++;
}

bool weft__loan_stands(struct weft_ep *ep, const void *at, size_t len, unsigned right) {
    struct link *link = ep->link;
    if (!(link->peer_flags & WIRE_HELLO_LOANS)) return false;
    weft_mem_t *mem = weft__mem_lent(link->worker, at, len);
    struct lane *lane = mem && mem->region.rights & right ? weft__switch_key_lane(link) : NULL;
    if (!lane || !lane->ops->lends) return false;
    struct md_mem *md = mem->md[weft__worker_number(link->worker, lane->iface)];
    if (!md) return false;
    if (lane->ops->lends(lane, md, right)) return true;
    tell(ep, mem, lane->iface, right);
    return false;
}

void weft__loans_free(struct link *link) {
    talloc_free(link->more->loans);
}

/* ---- borrowing */

static bool is_same(const struct weft_rkey *rkey, const struct remote_region *region) {
    return rkey->region.id == region->id && rkey->region.epoch == region->epoch &&
           rkey->region.rights == region->rights;
}

/* It may be granted now, since its owner tells it again. */
static bool is_over(const struct weft_rkey *rkey, const struct remote_region *region) {
    return weft__rkey_status(rkey) < 0 || (is_same(rkey, region) && rkey->key->refused);
}

/* Lets go of loans that are over, and of the oldest where there are too many. False: this one is held, or asked for. */
static bool make_room(struct weft_ep *ep, const struct remote_region *region) {
    struct weft_rkey *oldest = NULL;
    unsigned n = 0;
    for (struct list *at = ep->rma->keys.next, *next; at != &ep->rma->keys; at = next) {
        next = at->next;
        struct weft_rkey *rkey = list_of(at, struct weft_rkey, of_ep);
        if (!rkey->lent) continue;
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

void weft__on_lend(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "lend before hello");
    struct wire_lend lend;
    struct rkey_packed packed = {0};
    struct weft_rkey *rkey;
    if (!link) return;
    if (!weft__wire_read_lend(data, len, &lend) || weft__rkey_read(lend.key, lend.len, &packed) < 0 ||
        packed.worker != link->peer) {
        weft__link_violation(link, "lend");
        return;
    }
    struct weft_ep *ep = weft__ep_heard(lane, lend.ep, "lend");
    if (!ep || !weft__ep_rma(ep) || !make_room(ep, &packed.region)) return;
    if (weft_rkey_unpack(ep, lend.key, lend.len, &rkey) == WEFT_OK) rkey->lent = true;
}

/*
 * The owner's side of one-sided access: regions, who was granted them, and taking them back. A
 * region is registered with the device when a peer first wants it. Where the device has memory
 * windows of type 2, each grant is a window of its own, bound to the one queue pair it was asked
 * for on: no other queue pair can use its key, and it can be revoked alone. Elsewhere the region's
 * own key is given, which serves on any queue pair of the worker's protection domain: that is, to
 * those peers that were let in and guess it.
 */
#include "rc.h"

#include <errno.h>
#include <transports/region.h>

#define OF_FSM(m) container_of(m, struct rc_grant, fsm)

#define FSM_NAME   rc_grant
#define FSM_PREFIX RC_GRANT
#include <fsm/define.h>

static void rc_grant_act_grant(struct fsm *m) {
    fsm_effect(m, RC_GRANT_FX_SEND_GRANT);
}

static void rc_grant_act_deny(struct fsm *m) {
    fsm_effect(m, RC_GRANT_FX_SEND_DENY);
    fsm_effect(m, RC_GRANT_FX_END);
}

static void rc_grant_act_revoke(struct fsm *m) {
    fsm_effect(m, RC_GRANT_FX_SEND_REVOKE);
}

static void rc_grant_act_end(struct fsm *m) {
    fsm_effect(m, RC_GRANT_FX_TAKE_BACK);
    fsm_effect(m, RC_GRANT_FX_END);
}

static void rc_grant_act_force(struct fsm *m) {
    fsm_effect(m, RC_GRANT_FX_TAKE_BACK);
}

static void rc_grant_act_forget(struct fsm *m) {
    fsm_effect(m, RC_GRANT_FX_END);
}

/* ---- regions --------------------------------------------------------------------------------- */

static int access_of(const struct rc_iface *iface, unsigned rights) {
    int access = rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC) ? IBV_ACCESS_LOCAL_WRITE : 0;
    if (iface->device->windows) return access | IBV_ACCESS_MW_BIND;
    if (rights & WEFT_MEM_READ) access |= IBV_ACCESS_REMOTE_READ;
    if (rights & WEFT_MEM_WRITE) access |= IBV_ACCESS_REMOTE_WRITE;
    if (rc_device_may(rights, iface->atomics)) access |= IBV_ACCESS_REMOTE_ATOMIC;
    return access;
}

/* A region whose atomics are done by the processor refuses atomics of the device, whatever the peer
 * asks for. */
static unsigned window_access(const struct rc_iface *iface, unsigned rights) {
    return (rights & WEFT_MEM_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
           (rights & WEFT_MEM_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u) |
           (rc_device_may(rights, iface->atomics) ? IBV_ACCESS_REMOTE_ATOMIC : 0u);
}

/* Device memory is its network device's as a dma-buf; its addresses are those of the program. */
static struct ibv_mr *register_region(const struct rc_iface *iface, const struct region *region) {
    struct ibv_pd *pd = iface->device->pd;
    int access = access_of(iface, region->rights);
    if (!region->on_device) return ibv_reg_mr(pd, region->base, region->len, access);
    return ibv_reg_dmabuf_mr(pd, region->dmabuf_offset, region->len,
                             (uint64_t)(uintptr_t)region->base, region->dmabuf, access);
}

static weft_status_t make_known(struct rc_iface *iface, struct rc_mem *mem) {
    const struct region *region = mem->mem.region;
    if (mem->mr) return WEFT_OK;
    mem->mr = register_region(iface, region);
    if (!mem->mr) return weft__rd_fail("ibv_reg_mr of a region (see ulimit -l)", errno);
    return WEFT_OK;
}

static void dereg_mem(struct rc_mem *mem) {
    if (mem->mr && !mem->given) ibv_dereg_mr(mem->mr);
    mem->mr = NULL;
}

static struct rc_mem *find_known(const struct rc_iface *iface, const void *base, size_t len,
                                 bool writes) {
    uint64_t at = (uint64_t)(uintptr_t)base;
    if (iface->n_known == 0) return NULL;
    for (unsigned i = 0; i < RC_MEM_BUCKETS; i++)
        for (struct rc_mem *mem = iface->mem[i]; mem; mem = mem->next) {
            const struct region *r = mem->mem.region;
            if (!mem->mr || !region_covers((uint64_t)(uintptr_t)r->base, r->len, at, len)) continue;
            if (!writes || r->rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC)) return mem;
        }
    return NULL;
}

struct rd_buf_ref *weft__rc_mem_hold(const struct rc_iface *iface, const void *base, size_t len,
                                     bool writes) {
    struct rc_mem *mem = find_known(iface, base, len, writes);
    if (!mem) return NULL;
    mem->local.mr = mem->mr;
    mem->local.refs++;
    return &mem->local;
}

static void unlink_mem(struct rc_mem **at, struct rc_mem *mem) {
    while (*at != mem) at = &(*at)->next;
    *at = mem->next;
}

static void mem_free(struct rc_mem *mem) {
    struct rc_iface *iface = (struct rc_iface *)mem->mem.iface;
    struct completion *revoked = mem->revoked;
    weft__timer_stop(iface->iface.reactor, &mem->give_up);
    if (mem->mr) iface->n_known--;
    dereg_mem(mem);
    unlink_mem(mem->revoked ? &iface->revoking : &iface->mem[mem->id % RC_MEM_BUCKETS], mem);
    weft__free_later(iface->iface.reactor, mem);
    if (revoked) completion_step(revoked, WEFT_OK);
}

/* Does a peer, or an operation of this side, need the registration? */
static bool is_used(const struct rc_mem *mem) {
    return mem->grants || mem->local.refs;
}

static void local_idle(struct rd_buf_ref *local) {
    struct rc_mem *mem = container_of(local, struct rc_mem, local);
    if (mem->revoked && !is_used(mem)) mem_free(mem);
}

bool weft__rc_mem_reuses(const struct iface *i, const struct region *region) {
    const struct rc_iface *iface = (const struct rc_iface *)i;
    const struct ibv_mr *mr = region->mr;
    return iface->device && mr->pd == iface->device->pd &&
           region_covers((uint64_t)(uintptr_t)mr->addr, mr->length,
                         (uint64_t)(uintptr_t)region->base, region->len);
}

weft_status_t weft__rc_mem_register(struct iface *i, const struct region *region,
                                    struct md_mem **mem_p) {
    struct rc_iface *iface = (struct rc_iface *)i;
    struct rc_mem *mem = weft__new(iface, struct rc_mem);
    if (!mem) return WEFT_ERR_NO_MEMORY;
    mem->mem = (struct md_mem){.region = region, .iface = i};
    mem->local.idle = local_idle;
    mem->id = region->id;
    if (region->mr && weft__rc_mem_reuses(i, region)) {
        mem->mr = region->mr;
        mem->given = true;
        iface->n_known++;
    }
    mem->next = iface->mem[region->id % RC_MEM_BUCKETS];
    iface->mem[region->id % RC_MEM_BUCKETS] = mem;
    *mem_p = &mem->mem;
    return WEFT_OK;
}

/* The hardware's key is sent on the connection on which the peer asked for it. */
size_t weft__rc_key_pack(const struct md_mem *mem, void *to) {
    weft__rc_key_atomics_encode(((const struct rc_iface *)mem->iface)->atomics, to);
    return RC_KEY_SIZE;
}

/* A peer that hangs does not delay the release: the hardware refuses its accesses, and breaks
 * its connection if it tries one. */
static void give_up_due(struct timer *timer) {
    struct rc_mem *mem = container_of(timer, struct rc_mem, give_up);
    for (struct rc_grant *grant = mem->grants, *next; grant; grant = next) {
        next = grant->mem_next;
        weft__fsm_step(&grant->fsm, RC_GRANT_EV_FORCE);
    }
}

weft_status_t weft__rc_mem_revoke(struct md_mem *m, struct completion *completion) {
    struct rc_mem *mem = (struct rc_mem *)m;
    struct rc_iface *iface = (struct rc_iface *)m->iface;
    struct reactor *r = iface->iface.reactor;
    uint64_t ms = weft__setting_u64(weft__reactor_context(r), SETTING_CLOSE_TIMEOUT);
    if (!is_used(mem)) {
        mem_free(mem);
        return WEFT_OK;
    }
    unlink_mem(&iface->mem[mem->id % RC_MEM_BUCKETS], mem); /* no further grant finds it */
    mem->next = iface->revoking;
    iface->revoking = mem;
    mem->revoked = completion;
    mem->give_up.fire = give_up_due;
    weft_status_t st = weft__timer_start(r, &mem->give_up, weft__now(r) + ms * NS_PER_MS);
    for (struct rc_grant *grant = mem->grants, *next; grant; grant = next) {
        next = grant->mem_next;
        weft__fsm_step(&grant->fsm, RC_GRANT_EV_REVOKE);
    }
    if (st < 0)
        weft__log(weft__reactor_context(r), WEFT_LOG_WARN, "rdma",
                  "no memory to bound a revocation");
    return WEFT_IN_PROGRESS;
}

/* The device goes, or the interface does. */
void weft__rc_mems_end(struct rc_iface *iface, bool free_them) {
    for (unsigned i = 0; i < RC_MEM_BUCKETS; i++) {
        for (struct rc_mem *mem = iface->mem[i], *next; mem; mem = next) {
            next = mem->next;
            dereg_mem(mem);
            if (free_them) talloc_free(mem);
        }
        if (free_them) iface->mem[i] = NULL;
    }
    for (struct rc_mem *mem = iface->revoking, *next; mem && free_them; mem = next) {
        next = mem->next;
        weft__timer_stop(iface->iface.reactor, &mem->give_up);
        dereg_mem(mem);
        talloc_free(mem);
    }
    if (free_them) iface->revoking = NULL;
    iface->n_known = 0;
}

/* ---- effects --------------------------------------------------------------------------------- */

static void enter_grant(struct rc_grant *grant, struct rc_lane *lane, struct rc_mem *mem) {
    grant->next = lane->grants;
    grant->at = &lane->grants;
    if (grant->next) grant->next->at = &grant->next;
    lane->grants = grant;
    lane->n_grants++;
    grant->mem = mem;
    grant->mem_next = mem->grants;
    grant->mem_at = &mem->grants;
    if (grant->mem_next) grant->mem_next->mem_at = &grant->mem_next;
    mem->grants = grant;
    mem->mem.n_open++;
}

static void take_back(struct rc_grant *grant) {
    struct rc_mem *mem = grant->mem;
    if (grant->window) ibv_dealloc_mw(grant->window);
    grant->window = NULL;
    *grant->mem_at = grant->mem_next;
    if (grant->mem_next) grant->mem_next->mem_at = grant->mem_at;
    grant->mem = NULL;
    mem->mem.n_open--;
    if (mem->revoked && !is_used(mem)) mem_free(mem);
}

static void end_grant(struct rc_grant *grant) {
    grant->ended = true;
    if (grant->at) {
        *grant->at = grant->next;
        if (grant->next) grant->next->at = grant->at;
        grant->at = NULL;
        grant->lane->n_grants--;
    }
    if (!grant->word.queued) weft__free_later(rc_reactor(grant->lane), grant);
}

/* What was not reported yet is denied in place of being granted and revoked. */
static void send_revoke(struct rc_grant *grant) {
    if (!grant->word.queued) {
        weft__rc_send(grant->lane, &grant->word, RC_REVOKE);
        return;
    }
    grant->word.kind = RC_DENY;
    grant->why = WEFT_ERR_REVOKED;
}

void weft__rc_grant_sent(struct rc_lane *lane, struct rc_grant *grant) {
    lane->n_wanted -= grant->word.kind != RC_REVOKE;
    if (grant->ended)
        weft__free_later(rc_reactor(lane), grant);
    else if (grant->word.kind == RC_DENY)
        weft__fsm_step(&grant->fsm, RC_GRANT_EV_DROP);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct rc_grant *grant = OF_FSM(m);
    switch ((enum rc_grant_effect)effect) {
    case RC_GRANT_FX_SEND_GRANT: weft__rc_send(grant->lane, &grant->word, RC_GRANT); break;
    case RC_GRANT_FX_SEND_DENY: weft__rc_send(grant->lane, &grant->word, RC_DENY); break;
    case RC_GRANT_FX_SEND_REVOKE: send_revoke(grant); break;
    case RC_GRANT_FX_TAKE_BACK: take_back(grant); break;
    case RC_GRANT_FX_END: end_grant(grant); break;
    case RC_GRANT_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct rc_lane *lane = OF_FSM(m)->lane;
    weft__log_limited(rc_context(lane), WEFT_LOG_WARN, "rdma", "grant %u: unexpected %s (%s)",
                      m->id, m->port->machine->event_name[event], fsm_state_name(m));
    weft__rc_lane_fault(lane, why);
}

static const struct fsm_port port = {&weft__rc_grant_machine, on_effect, on_fail};

/* A window is opened by a request before the message with its key, once: the message may find no
 * room behind it. */
void weft__rc_grant_bind(struct rc_lane *lane, struct rc_grant *grant) {
    const struct region *region = grant->mem->mem.region;
    if (!grant->window || grant->bound) return;
    grant->bound = true;
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW,
                             .bind_mw = {.mw = grant->window,
                                         .rkey = grant->rkey,
                                         .bind_info = {.mr = grant->mem->mr,
                                                       .addr = (uintptr_t)region->base,
                                                       .length = region->len,
                                                       .mw_access_flags = window_access(
                                                           rc_iface_of(lane), grant->rights)}}};
    weft__rc_post(lane, &wr, &(struct rc_work){.what = RC_PLAIN}, true);
}

size_t weft__rc_grant_word(const struct rc_grant *grant, void *to) {
    uint32_t value = grant->word.kind == RC_GRANT  ? grant->rkey
                     : grant->word.kind == RC_DENY ? (uint32_t)-grant->why
                                                   : 0;
    weft__rc_word_encode(&(struct rc_word){grant->serial, value}, to);
    return RC_WORD_SIZE;
}

/* ---- what importers say ---------------------------------------------------------------------- */

static struct rc_grant *find_grant(const struct rc_lane *lane, uint32_t serial) {
    struct rc_grant *grant = lane->grants;
    while (grant && grant->serial != serial) grant = grant->next;
    return grant;
}

static struct rc_mem *find_mem(const struct rc_iface *iface, uint32_t id) {
    struct rc_mem *mem = iface->mem[id % RC_MEM_BUCKETS];
    while (mem && mem->id != id) mem = mem->next;
    return mem;
}

static struct rc_mem *judge_want(struct rc_lane *lane, const struct rc_want *want,
                                 weft_status_t *why_p) {
    struct rc_iface *iface = rc_iface_of(lane);
    struct remote_region shown = {want->base,   want->len,   want->rights,
                                  want->region, want->epoch, {0}};
    memcpy(shown.token, want->token, sizeof shown.token);
    struct rc_mem *mem = find_mem(iface, want->region);
    *why_p = mem ? region_admits(mem->mem.region, &shown) : WEFT_ERR_REVOKED;
    if (*why_p == WEFT_OK && lane->n_grants >= iface->max_grants) *why_p = WEFT_ERR_QUOTA;
    if (*why_p == WEFT_OK && !mem->mr) {
        *why_p = make_known(iface, mem);
        iface->n_known += *why_p == WEFT_OK;
    }
    return *why_p == WEFT_OK ? mem : NULL;
}

static weft_status_t open_window(struct rc_lane *lane, struct rc_grant *grant,
                                 const struct rc_mem *mem) {
    const struct rd_device *device = rc_iface_of(lane)->device;
    grant->rkey = mem->mr->rkey;
    if (!device->windows) return WEFT_OK;
    grant->window = ibv_alloc_mw(device->pd, IBV_MW_TYPE_2);
    if (!grant->window) return weft__rd_fail("ibv_alloc_mw", errno);
    grant->rkey = ibv_inc_rkey(grant->window->rkey);
    return WEFT_OK;
}

/* Without memory for a record the answer is sent at once, or the connection ends. A missing
 * answer would block the peer. */
static void deny_now(struct rc_lane *lane, uint32_t serial) {
    uint8_t bytes[RC_WORD_SIZE];
    weft__rc_word_encode(&(struct rc_word){serial, (uint32_t)-WEFT_ERR_NO_MEMORY}, bytes);
    if (!rc_has_room(lane, 4) ||
        !weft__rc_post_word(lane, RC_DENY, bytes, sizeof bytes, false, RC_PLAIN))
        weft__rc_lane_break(lane, weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a grant"));
}

void weft__rc_wanted(struct rc_lane *lane, const struct rc_want *want) {
    struct rc_grant *grant = find_grant(lane, want->serial);
    if (grant) {
        weft__fsm_step(&grant->fsm, RC_GRANT_EV_GOOD); /* not twice */
        return;
    }
    if (lane->n_wanted >= RC_ASKS) {
        weft__rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "more keys are asked for than may be at once");
        return;
    }
    grant = weft__new(rc_iface_of(lane), struct rc_grant);
    if (!grant) {
        deny_now(lane, want->serial);
        return;
    }
    lane->n_wanted++;
    fsm_init(&grant->fsm, &port, RC_GRANT_NEW, want->serial);
    grant->lane = lane;
    grant->serial = want->serial;
    grant->rights = want->rights;
    struct rc_mem *mem = judge_want(lane, want, &grant->why);
    if (mem) grant->why = open_window(lane, grant, mem);
    if (mem && grant->why == WEFT_OK)
        enter_grant(grant, lane, mem);
    else
        mem = NULL;
    weft__fsm_step(&grant->fsm, mem ? RC_GRANT_EV_GOOD : RC_GRANT_EV_BAD);
}

/* A peer lets go of a grant that was sent to it, and of no other. */
void weft__rc_dropped(struct rc_lane *lane, const struct rc_word *word) {
    struct rc_grant *grant = find_grant(lane, word->serial);
    bool was_sent = grant && (!grant->word.queued || grant->word.kind == RC_REVOKE);
    if (was_sent)
        weft__fsm_step(&grant->fsm, RC_GRANT_EV_DROP);
    else
        weft__rc_lane_bad(lane, WEFT_ERR_PROTOCOL, "that was not granted");
}

/* The queue pair goes next: its peer reaches nothing from then on. */
void weft__rc_grants_end(struct rc_lane *lane) {
    for (struct queued_word *word; (word = lane->words.first) != NULL;) {
        struct rc_grant *grant = container_of(word, struct rc_grant, word);
        words_remove(&lane->words, word); /* those of keys are gone before */
        if (grant->ended) weft__free_later(rc_reactor(lane), grant);
    }
    while (lane->grants) weft__fsm_step(&lane->grants->fsm, RC_GRANT_EV_PARTED);
}

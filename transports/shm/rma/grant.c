/* The owner's side of one-sided access: regions, their grants, and revocation. */
#include "key.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <transports/region.h>
#include <unistd.h>

#define FSM_NAME   shm_grant
#define FSM_PREFIX SHM_GRANT
#include <fsm/define.h>

static void shm_grant_act_grant(struct fsm *m) {
    fsm_effect(m, SHM_GRANT_FX_SEND_GRANT);
}

static void shm_grant_act_deny(struct fsm *m) {
    fsm_effect(m, SHM_GRANT_FX_SEND_DENY);
    fsm_effect(m, SHM_GRANT_FX_END);
}

static void shm_grant_act_revoke(struct fsm *m) {
    fsm_effect(m, SHM_GRANT_FX_SEND_REVOKE);
}

static void shm_grant_act_end(struct fsm *m) {
    fsm_effect(m, SHM_GRANT_FX_END);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void enter_grant(struct shm_grant *grant, struct shm_grant **list) {
    grant->next = *list;
    grant->at = list;
    if (grant->next) grant->next->at = &grant->next;
    *list = grant;
}

static void enter_mem(struct shm_grant *grant, struct shm_mem *mem) {
    grant->mem = mem;
    grant->mem_next = mem->grants;
    grant->mem_at = &mem->grants;
    if (grant->mem_next) grant->mem_next->mem_at = &grant->mem_next;
    mem->grants = grant;
    mem->mem.n_open++;
}

static void leave_all(struct shm_grant *grant) {
    *grant->at = grant->next;
    if (grant->next) grant->next->at = grant->at;
    if (grant->lane) {
        grant->lane->more->keys->n_grants--;
        words_remove(&grant->lane->more->keys->words, &grant->word);
    }
    *grant->mem_at = grant->mem_next;
    if (grant->mem_next) grant->mem_next->mem_at = grant->mem_at;
    grant->mem->mem.n_open--;
}

/* ---- effects --------------------------------------------------------------------------------- */

/* A read-only descriptor of the file. It protects from errors, not from malice: a process of the
 * same user may open the file again, as it may trace this process. */
static int read_only(int fd) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void send_grant(struct shm_grant *grant) {
    const struct region *region = grant->mem->mem.region;
    bool maps = grant->way == SHM_WAY_MAP,
         writes = grant->rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC);
    struct shm_device_grant word = {.grant = {.head = {SHM_MAGIC, SHM_VERSION, SHM_GRANT, 0},
                                              .serial = grant->serial,
                                              .way = grant->way,
                                              .offset = maps ? region->fd_offset : 0},
                                    .device = grant->mem->device};
    size_t len = grant->way == SHM_WAY_DEVICE ? sizeof word : sizeof word.grant;
    int exposed = maps && !writes ? read_only(region->fd) : -1;
    int fd = maps && writes ? region->fd : exposed;
    if (!weft__shm_send_now(grant->lane, &word, len, fd))
        grant->lane->more->keys->fault = WEFT_ERR_QUOTA;
    if (exposed >= 0) close(exposed);
}

bool weft__shm_deny(struct shm_lane *lane, uint32_t serial, weft_status_t why) {
    struct shm_deny deny = {{SHM_MAGIC, SHM_VERSION, SHM_DENY, 0}, serial, why};
    return weft__shm_send_now(lane, &deny, sizeof deny, -1);
}

static void send_deny(struct shm_lane *lane, uint32_t serial, weft_status_t why) {
    if (!weft__shm_deny(lane, serial, why)) lane->more->keys->fault = WEFT_ERR_QUOTA;
}

static void mem_free(struct shm_mem *mem) {
    struct completion *revoked = mem->revoked;
    talloc_free(mem);
    if (revoked) completion_step(revoked, WEFT_OK);
}

static void end_grant(struct shm_grant *grant, struct reactor *r) {
    struct shm_mem *mem = grant->mem;
    weft__free_later(r, grant);
    if (!mem) return;
    leave_all(grant);
    if (mem->revoked && !mem->grants) mem_free(mem);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct shm_grant *grant = container_of(m, struct shm_grant, fsm);
    switch ((enum shm_grant_effect)effect) {
    case SHM_GRANT_FX_SEND_GRANT: send_grant(grant); break;
    case SHM_GRANT_FX_SEND_DENY: send_deny(grant->lane, grant->serial, grant->why); break;
    case SHM_GRANT_FX_SEND_REVOKE:
        if (grant->lane && shm_is_up(grant->lane))
            weft__shm_send(grant->lane, &grant->word, SHM_REVOKE);
        break; /* otherwise the end of the lane revokes it */
    case SHM_GRANT_FX_END:
        end_grant(grant,
                  grant->mem ? grant->mem->mem.iface->reactor : grant->lane->lane.iface->reactor);
        break;
    case SHM_GRANT_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct shm_lane *lane = container_of(m, struct shm_grant, fsm)->lane;
    if (!lane) return;
    weft__log_limited(weft__reactor_context(lane->lane.iface->reactor), WEFT_LOG_WARN, "shm",
                      "grant %u of process %d: unexpected %s (%s)", m->id, (int)shm_pid(lane),
                      m->port->machine->event_name[event], fsm_state_name(m));
    lane->more->keys->fault = why == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL;
}

static const struct fsm_port port = {&weft__shm_grant_machine, on_effect, on_fail};

size_t weft__shm_grant_word(const struct shm_grant *grant, void *to) {
    struct shm_serial revoke = {.head = {SHM_MAGIC, SHM_VERSION, SHM_REVOKE, 0},
                                .serial = grant->serial};
    memcpy(to, &revoke, sizeof revoke);
    return sizeof revoke;
}

/* ---- regions --------------------------------------------------------------------------------- */

/* Only memory that cannot shrink may be mapped. */
static bool mappable(const struct region *region) {
    int seals = region->fd >= 0 ? fcntl(region->fd, F_GET_SEALS) : -1;
    return seals >= 0 && seals & F_SEAL_SHRINK && region->fd_offset % SHM_PAGE == 0 &&
           region->len > 0;
}

static uint32_t ways_to_region(const struct region *region) {
    if (region->on_device) return SHM_WAY_DEVICE;
    return mappable(region) ? SHM_WAY_MAP | SHM_WAY_VM : SHM_WAY_VM;
}

weft_status_t weft__shm_mem_register(struct iface *i, const struct region *region,
                                     struct md_mem **mem_p) {
    struct shm_md *md = ((struct shm_iface *)i)->md;
    struct shm_mem *mem = weft__new(i, struct shm_mem);
    if (!mem) return WEFT_ERR_NO_MEMORY;
    mem->mem = (struct md_mem){.region = region, .iface = i};
    mem->ways = md->ways & ways_to_region(region);
    if (region->on_device &&
        (!mem->ways || weft__cuda_export(region->base, region->len, &mem->device) < 0)) {
        talloc_free(mem);
        return WEFT_ERR_UNSUPPORTED; /* by messages */
    }
    if (region->origin != (uint64_t)(uintptr_t)region->base)
        mem->ways &= ~(uint32_t)SHM_WAY_VM; /* it needs the address */
    mem->next = md->mem[region->id % SHM_MEM_BUCKETS];
    md->mem[region->id % SHM_MEM_BUCKETS] = mem;
    *mem_p = &mem->mem;
    return WEFT_OK;
}

size_t weft__shm_key_pack(const struct md_mem *mem, void *to) {
    weft__shm_key_encode(((const struct shm_mem *)mem)->ways, to);
    return SHM_KEY_LEN;
}

weft_status_t weft__shm_mem_revoke(struct md_mem *m, struct completion *completion) {
    struct shm_mem *mem = (struct shm_mem *)m, **at;
    struct shm_md *md = ((struct shm_iface *)m->iface)->md;
    at = &md->mem[m->region->id % SHM_MEM_BUCKETS];
    while (*at != mem) at = &(*at)->next;
    *at = mem->next; /* no new grants */
    for (struct shm_grant *grant = mem->grants; grant; grant = grant->mem_next)
        weft__fsm_step(&grant->fsm, SHM_GRANT_EV_REVOKE);
    if (!mem->grants) {
        mem_free(mem);
        return WEFT_OK;
    }
    mem->revoked = completion;
    return WEFT_IN_PROGRESS;
}

static struct shm_mem *find_mem(const struct shm_md *md, uint32_t id) {
    struct shm_mem *mem = md->mem[id % SHM_MEM_BUCKETS];
    while (mem && mem->mem.region->id != id) mem = mem->next;
    return mem;
}

bool weft__shm_exposes(struct lane *l, const struct md_mem *m, unsigned right) {
    const struct shm_keys *keys = shm_keys((struct shm_lane *)l);
    const struct shm_grant *grant = keys ? keys->grants : NULL;
    for (; grant; grant = grant->next)
        if (&grant->mem->mem == m && grant->way == SHM_WAY_MAP && grant->rights & right) break;
    return grant && shm_grant_is_granted(&grant->fsm);
}

/* ---- messages of importers ------------------------------------------------------------------- */

static struct shm_grant *find_grant(const struct shm_keys *keys, uint32_t serial) {
    struct shm_grant *grant = keys->grants;
    while (grant && grant->serial != serial) grant = grant->next;
    return grant;
}

static struct shm_mem *judge_want(struct shm_lane *lane, const struct shm_want *want,
                                  weft_status_t *why_p) {
    struct shm_md *md = shm_iface(lane)->md;
    struct remote_region shown = {want->base,   want->len,   want->rights,
                                  want->region, want->epoch, {0}};
    memcpy(shown.token, want->token, sizeof shown.token);
    struct shm_mem *mem = find_mem(md, want->region);
    *why_p = mem ? region_admits(mem->mem.region, &shown) : WEFT_ERR_REVOKED;
    if (*why_p == WEFT_OK && !(mem->ways & want->ways)) *why_p = WEFT_ERR_UNSUPPORTED;
    if (*why_p == WEFT_OK && lane->more->keys->n_grants >= md->max_grants) *why_p = WEFT_ERR_QUOTA;
    return *why_p == WEFT_OK ? mem : NULL;
}

static struct shm_grant *grant_new(struct shm_lane *lane, const struct shm_want *want) {
    struct shm_keys *keys = shm_keys(lane);
    struct shm_iface *iface = shm_iface(lane);
    if (!keys->orphan) keys->orphan = weft__new(iface, struct shm_orphan);
    struct shm_grant *grant = keys->orphan ? weft__new(iface, struct shm_grant) : NULL;
    if (!grant) return NULL;
    fsm_init(&grant->fsm, &port, SHM_GRANT_NEW, want->serial);
    grant->lane = lane;
    grant->serial = want->serial;
    grant->rights = want->rights;
    return grant;
}

static void take_want(struct shm_lane *lane, const struct shm_want *want) {
    struct shm_keys *keys = shm_keys(lane);
    struct shm_grant *grant = find_grant(keys, want->serial);
    if (grant) {
        weft__fsm_step(&grant->fsm, SHM_GRANT_EV_GOOD); /* a second WANT is a violation */
        return;
    }
    grant = grant_new(lane, want);
    if (!grant) {
        send_deny(lane, want->serial, WEFT_ERR_NO_MEMORY);
        return;
    }
    struct shm_mem *mem = judge_want(lane, want, &grant->why);
    if (mem) {
        uint32_t ways = mem->ways & want->ways;
        grant->way = ways & SHM_WAY_DEVICE ? SHM_WAY_DEVICE
                     : ways & SHM_WAY_MAP  ? SHM_WAY_MAP
                                           : SHM_WAY_VM;
        enter_grant(grant, &keys->grants);
        enter_mem(grant, mem);
        keys->n_grants++;
    }
    weft__fsm_step(&grant->fsm, mem ? SHM_GRANT_EV_GOOD : SHM_GRANT_EV_BAD);
}

void weft__shm_grant_received(struct shm_lane *lane, const struct shm_key_word *word) {
    if (word->kind == SHM_WANT) {
        take_want(lane, &word->want);
        return;
    }
    struct shm_grant *grant = find_grant(lane->more->keys, word->serial);
    if (grant)
        weft__fsm_step(&grant->fsm, SHM_GRANT_EV_DROP);
    else
        lane->more->keys->fault = WEFT_ERR_PROTOCOL;
}

/* ---- the end of a lane ----------------------------------------------------------------------- */

static void all_parted(struct shm_grant **list) {
    while (*list) weft__fsm_step(&(*list)->fsm, SHM_GRANT_EV_PARTED);
}

static void orphan_end(struct shm_orphan *orphan) {
    struct reactor *r = orphan->iface->iface.reactor;
    if (orphan->watch.events) weft__watch_stop(r, &orphan->watch);
    if (orphan->death.events) weft__watch_stop(r, &orphan->death);
    if (orphan->fd >= 0) close(orphan->fd);
    if (orphan->pid_fd >= 0) close(orphan->pid_fd);
    *orphan->at = orphan->next;
    if (orphan->next) orphan->next->at = orphan->at;
    weft__free_later(r, orphan);
}

static void orphan_parted(struct shm_orphan *orphan) {
    orphan_end(orphan);
    all_parted(&orphan->grants);
}

/* Only the end of the socket matters; other messages are dropped. */
static void orphan_received(struct watch *watch, int events) {
    struct shm_orphan *orphan = container_of(watch, struct shm_orphan, watch);
    char rest[SHM_MESSAGE_MAX];
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(orphan->fd, rest, sizeof rest, MSG_DONTWAIT);
        if (n > 0) continue;
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        orphan_parted(orphan);
        return;
    }
}

static void orphan_died(struct watch *watch, int events) {
    orphan_parted(container_of(watch, struct shm_orphan, death));
}

static weft_status_t orphan_watch(struct shm_orphan *orphan) {
    struct reactor *r = orphan->iface->iface.reactor;
    orphan->watch.ready = orphan_received;
    orphan->death.ready = orphan_died;
    weft_status_t st = weft__watch_start(r, &orphan->watch, orphan->fd, WATCH_READ);
    if (st == WEFT_OK && orphan->pid_fd >= 0)
        st = weft__watch_start(r, &orphan->death, orphan->pid_fd, WATCH_READ);
    return st;
}

/* A peer that hangs may still use granted memory. So the socket outlives the lane until the peer
 * closes its end or dies. */
static void adopt_orphan(struct shm_lane *lane, struct shm_keys *keys) {
    struct shm_orphan *orphan = keys->orphan;
    struct shm_md *md = shm_iface(lane)->md;
    keys->orphan = NULL;
    *orphan = (struct shm_orphan){.iface = shm_iface(lane), .fd = lane->watch.fd, .pid_fd = -1};
    int death = shm_process(lane)->death.fd;
    if (death >= 0) orphan->pid_fd = fcntl(death, F_DUPFD_CLOEXEC, 0);
    bool watched = death < 0 || orphan->pid_fd >= 0;
    lane->watch.fd = -1;
    orphan->next = md->orphans;
    orphan->at = &md->orphans;
    if (orphan->next) orphan->next->at = &orphan->next;
    md->orphans = orphan;
    for (struct shm_grant *grant = keys->grants, *next; grant; grant = next) {
        next = grant->next;
        grant->lane = NULL;
        enter_grant(grant, &orphan->grants);
    }
    keys->grants = NULL;
    keys->n_grants = 0;
    shutdown(orphan->fd, SHUT_WR);
    if (watched && orphan_watch(orphan) == WEFT_OK) return;
    weft__log(weft__reactor_context(lane->lane.iface->reactor), WEFT_LOG_WARN, "shm",
              "process %d may keep memory mapped that it was granted", (int)shm_pid(lane));
    orphan_parted(orphan);
}

void weft__shm_grants_part(struct shm_lane *lane) {
    struct shm_keys *keys = shm_keys(lane);
    if (!keys) return;
    if (keys->grants && !keys->parted && lane->watch.fd >= 0) adopt_orphan(lane, keys);
    all_parted(&keys->grants);
    if (keys->orphan) weft__free_later(lane->lane.iface->reactor, keys->orphan);
    keys->orphan = NULL;
}

void weft__shm_parted(struct shm_lane *lane) {
    if (shm_keys(lane)) shm_keys(lane)->parted = true;
}

/* ---- of the iface ---------------------------------------------------------------------------- */

static uint32_t ways_named(const char *name) {
    if (strcmp(name, "mapped") == 0) return SHM_WAY_MAP;
    if (strcmp(name, "vm") == 0) return SHM_WAY_VM;
    return strcmp(name, "message") == 0 ? 0 : SHM_WAYS;
}

weft_status_t weft__shm_md_open(struct shm_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    iface->md = weft__new(iface, struct shm_md);
    if (!iface->md) return WEFT_ERR_NO_MEMORY;
    iface->md->ways = ways_named(weft__setting_str(context, SETTING_SHM_RMA));
    if (!weft__setting_u64(context, SETTING_CUDA_IPC)) iface->md->ways &= ~(uint32_t)SHM_WAY_DEVICE;
    iface->md->max_grants = weft__setting_u64(context, SETTING_SHM_MAX_GRANTS);
    return WEFT_OK;
}

/* Does not wait for peers that hang: their grants end without notice to the program. */
void weft__shm_md_close(struct shm_iface *iface) {
    if (!iface->md) return;
    while (iface->md->orphans) orphan_end(iface->md->orphans);
    weft__cuda_copies_close(iface->md->copies);
    iface->md->copies = NULL;
}

void weft__shm_md_attributes(const struct shm_iface *iface, struct iface_attr *attr) {
    if (!iface->md->ways) return;
    attr->caps |= CAP_PUT | CAP_GET;
    if (iface->md->ways & SHM_WAY_DEVICE) attr->caps |= CAP_DEVICE_IPC;
    if (iface->md->ways & SHM_WAY_MAP) attr->caps |= CAP_ATOMIC | CAP_MAP | CAP_EXPOSE;
    attr->max_put_short = SHM_RMA_SHORT;
    attr->max_put_bcopy = attr->max_get_bcopy = SHM_RMA_BCOPY;
    attr->max_put_zcopy = attr->max_get_zcopy = SHM_RMA_ZCOPY;
    attr->order = RMA_ORDER_PUTS;
    attr->done = RMA_DONE_VISIBLE;
}

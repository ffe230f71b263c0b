/* The importer's side of one-sided access: it asks for a key, maps the region, and drops the
 * key. */
#include "device.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define OF_KEY(k)  ((struct shm_key *)(k))
#define LANE_OF(k) ((struct shm_lane *)(k)->key.lane)

#define FSM_NAME   shm_key
#define FSM_PREFIX SHM_KEY
#define FSM_STARTS 1 << SHM_KEY_WAITING | 1 << SHM_KEY_REFUSED
#include <fsm/define.h>

static void shm_key_act_ask(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_SEND_WANT);
}

static void shm_key_act_serve(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_SERVE);
}

static void shm_key_act_reject(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_SEND_DROP);
    fsm_effect(m, SHM_KEY_FX_REFUSE);
}

static void shm_key_act_refuse(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_REFUSE);
}

/* Nothing is under way: copies have ended, and all other operations end within their calls. */
static void shm_key_act_let_go(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_UNMAP);
    fsm_effect(m, SHM_KEY_FX_REFUSE);
    fsm_effect(m, SHM_KEY_FX_SEND_DROP);
}

static void shm_key_act_close(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_UNMAP);
    fsm_effect(m, SHM_KEY_FX_SEND_DROP);
    fsm_effect(m, SHM_KEY_FX_FREE);
}

static void shm_key_act_down(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_UNMAP);
    fsm_effect(m, SHM_KEY_FX_DOWN);
}

static void shm_key_act_gone(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_FREE);
}

/* The grant came after the close. */
static void shm_key_act_release(struct fsm *m) {
    fsm_effect(m, SHM_KEY_FX_UNMAP);
    fsm_effect(m, SHM_KEY_FX_SEND_DROP);
    fsm_effect(m, SHM_KEY_FX_FREE);
}

/* ---- effects --------------------------------------------------------------------------------- */

static void unmap(struct shm_key *key) {
    weft__shm_device_leave(key, key->why < 0 ? key->why : WEFT_ERR_CANCELLED);
    if (key->map) munmap(key->map, key->map_len);
    key->map = NULL;
    key->key.local = NULL;
    key->key.caps = 0;
}

static void serve_key(struct shm_key *key) {
    bool mapped = key->map != NULL;
    key->key.status = WEFT_OK;
    key->key.is_of_device = key->device != NULL;
    key->key.copies_devices = mapped || key->device;
    key->key.how = mapped ? "mapped" : key->device ? "cuda ipc" : "process_vm";
    key->key.caps =
        rights_caps(key->key.region.rights, CAP_PUT | CAP_GET | (mapped ? CAP_ATOMIC : 0u));
}

static void key_free(struct shm_key *key) {
    struct shm_keys *keys = LANE_OF(key)->more->keys;
    if (keys->read == key) keys->read = NULL;
    if (keys->written == key) keys->written = NULL;
    *key->at = key->next;
    if (key->next) key->next->at = key->at;
    key->at = NULL;
    if (!key->word.queued) weft__free_later(key->key.lane->iface->reactor, key);
}

/* Its DROP is sent: a key that was kept only for that is freed. */
void weft__shm_key_sent(struct shm_lane *lane, struct shm_key *key) {
    if (!key->at) weft__free_later(lane->lane.iface->reactor, key);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct shm_key *key = container_of(m, struct shm_key, fsm);
    switch ((enum shm_key_effect)effect) {
    case SHM_KEY_FX_SEND_WANT: weft__shm_send(LANE_OF(key), &key->word, SHM_WANT); break;
    case SHM_KEY_FX_SEND_DROP: weft__shm_send(LANE_OF(key), &key->word, SHM_DROP); break;
    case SHM_KEY_FX_SERVE: serve_key(key); break;
    case SHM_KEY_FX_UNMAP: unmap(key); break;
    case SHM_KEY_FX_REFUSE: key_refuse(&key->key, key->why); break;
    case SHM_KEY_FX_DOWN: key->key.status = key->why; break;
    case SHM_KEY_FX_FREE: key_free(key); break;
    case SHM_KEY_N_EFFECTS: break;
    }
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct shm_lane *lane = LANE_OF(container_of(m, struct shm_key, fsm));
    weft__log_limited(weft__reactor_context(lane->lane.iface->reactor), WEFT_LOG_WARN, "shm",
                      "key %u of process %d: unexpected %s (%s)", m->id, (int)shm_pid(lane),
                      m->port->machine->event_name[event], fsm_state_name(m));
    lane->more->keys->fault = why == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL;
}

static const struct fsm_port port = {&weft__shm_key_machine, on_effect, on_fail};

/* ---- asking ---------------------------------------------------------------------------------- */

size_t weft__shm_key_word(const struct shm_key *key, void *to) {
    const struct remote_region *r = &key->key.region;
    struct shm_want want = {.head = {SHM_MAGIC, SHM_VERSION, key->word.kind, 0},
                            .serial = key->serial,
                            .region = r->id,
                            .epoch = r->epoch,
                            .rights = r->rights,
                            .base = r->base,
                            .len = r->len,
                            .ways = key->ways};
    struct shm_serial drop = {.head = want.head, .serial = key->serial};
    memcpy(want.token, r->token, sizeof want.token);
    bool asks = key->word.kind == SHM_WANT;
    memcpy(to, asks ? (const void *)&want : &drop, asks ? sizeof want : sizeof drop);
    return asks ? sizeof want : sizeof drop;
}

static void ask_on(struct shm_keys *keys) {
    while (keys->n_asked < SHM_ASKS && keys->waiting.first) {
        struct shm_key *key = container_of(keys->waiting.first, struct shm_key, word);
        words_remove(&keys->waiting, &key->word);
        keys->n_asked++;
        weft__fsm_step(&key->fsm, SHM_KEY_EV_ASK);
    }
}

/* The reason why a key is refused without asking the owner. */
static const char *why_not(uint32_t ways, const struct shm_md *md) {
    if (ways == 0) return "the owner offers no memory";
    if ((ways & md->ways) == 0) return "not by shm.rma";
    if (ways & SHM_WAY_DEVICE) return "device memory, and no CUDA driver here";
    return "the kernel does not permit process_vm";
}

static uint32_t ways_to(struct shm_lane *lane, uint32_t offered) {
    uint32_t ways = offered & shm_iface(lane)->md->ways;
    if (ways & SHM_WAY_VM && !weft__shm_vm_allowed(lane)) ways &= ~(uint32_t)SHM_WAY_VM;
    if (!weft__cuda_active) ways &= ~(uint32_t)SHM_WAY_DEVICE;
    return ways;
}

const char *weft__shm_reach(struct lane *l) {
    struct shm_lane *lane = (struct shm_lane *)l;
    const struct shm_md *md = shm_iface(lane)->md;
    uint32_t ways = shm_process(lane) ? ways_to(lane, md->ways) : 0;
    if (!(ways & SHM_WAY_MAP))
        return ways & SHM_WAY_VM ? "by key: process_vm" : why_not(SHM_WAY_MAP | SHM_WAY_VM, md);
    if (ways & SHM_WAY_VM) return "by key: mapped where it was allocated, else process_vm";
    return md->ways & SHM_WAY_VM ? "by key: mapped where it was allocated, else message: the "
                                   "kernel does not permit process_vm"
                                 : "by key: mapped where it was allocated, else message";
}

weft_status_t weft__shm_key_open(struct lane *l, const struct remote_region *region,
                                 const void *packed, size_t len, struct lane_key **key_p) {
    struct shm_lane *lane = (struct shm_lane *)l;
    uint32_t offered = weft__shm_key_ways(packed, len);
    if (!key_is_askable(region))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "shm: the key is malformed");
    struct shm_keys *keys = weft__shm_keys_of(lane);
    struct shm_key *key = keys ? weft__new(keys, struct shm_key) : NULL;
    if (!key) return WEFT_ERR_NO_MEMORY;
    key->key = (struct lane_key){
        .lane = l, .region = *region, .status = WEFT_NO_RESOURCE, .how = "asked for"};
    list_init(&key->copies);
    key->serial = ++keys->last_serial;
    key->ways = ways_to(lane, offered);
    key->next = keys->keys;
    key->at = &keys->keys;
    if (key->next) key->next->at = &key->next;
    keys->keys = key;
    fsm_init(&key->fsm, &port, key->ways ? SHM_KEY_WAITING : SHM_KEY_REFUSED, key->serial);
    if (key->ways)
        words_add(&keys->waiting, &key->word);
    else
        key->key.how = why_not(offered, shm_iface(lane)->md);
    key->key.refused = !key->ways;
    ask_on(keys);
    *key_p = &key->key;
    return WEFT_OK;
}

void weft__shm_key_close(struct lane_key *k) {
    struct shm_key *key = OF_KEY(k);
    words_remove(&LANE_OF(key)->more->keys->waiting, &key->word);
    weft__fsm_step(&key->fsm, SHM_KEY_EV_CLOSE);
}

/* The lane sends and receives no more. Its keys stay until `closed`. */
void weft__shm_keys_end(struct shm_lane *lane, weft_status_t status) {
    struct shm_keys *keys = shm_keys(lane);
    if (!keys) return;
    while (keys->waiting.first) words_remove(&keys->waiting, keys->waiting.first);
    while (keys->words.first) {
        struct queued_word *word = keys->words.first;
        words_remove(&keys->words, word);
        if (word->kind == SHM_DROP)
            weft__shm_key_sent(lane, container_of(word, struct shm_key, word));
    }
    for (struct shm_key *key = keys->keys, *next; key; key = next) {
        next = key->next;
        key->why = status;
        weft__fsm_step(&key->fsm, SHM_KEY_EV_LOST);
    }
}

static bool reaches(const struct shm_key *key, uint64_t remote, size_t len, uint32_t cap) {
    const struct remote_region *region = &key->key.region;
    return key->key.local && key->key.caps & cap &&
           region_covers(region->base, region->len, remote, len);
}

char *weft__shm_mapped_at(const struct shm_lane *lane, uint64_t remote, size_t len, uint32_t cap) {
    struct shm_keys *keys = shm_keys(lane);
    if (!keys) return NULL;
    struct shm_key **last = cap == CAP_GET ? &keys->read : &keys->written;
    struct shm_key *key = *last && reaches(*last, remote, len, cap) ? *last : keys->keys;
    while (key && !reaches(key, remote, len, cap)) key = key->next;
    *last = key;
    return key ? key->key.local + (remote - key->key.region.base) : NULL;
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct shm_key *find_key(const struct shm_keys *keys, uint32_t serial) {
    struct shm_key *key = keys->keys;
    while (key && key->serial != serial) key = key->next;
    return key;
}

/* The page size of the file: mappings begin and end at its multiples. */
static uint64_t page_of(const struct stat *st) {
    uint64_t page = (uint64_t)st->st_blksize;
    return page > SHM_PAGE && (page & (page - 1)) == 0 ? page : SHM_PAGE;
}

/* Checks size and seals first: the owner may lie about its memory, but it cannot make this
 * process fault. */
static weft_status_t map_key(struct shm_key *key, int fd, uint64_t offset) {
    const struct remote_region *r = &key->key.region;
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
        !region_covers(0, (uint64_t)st.st_size, offset, r->len))
        return weft__fail(WEFT_ERR_REJECTED,
                          "shm: the peer's region is not sealed, or smaller than it claims");
    uint64_t page = page_of(&st), from = offset & ~(page - 1), lead = offset - from;
    size_t len = (lead + r->len + page - 1) & ~(page - 1);
    int writable = r->rights & (WEFT_MEM_WRITE | WEFT_MEM_ATOMIC) ? PROT_WRITE : 0;
    void *at = mmap(NULL, len, PROT_READ | writable, MAP_SHARED, fd, (off_t)from);
    if (at == MAP_FAILED)
        return weft__fail(weft__errno_status(errno), "shm: mmap of a region: %s", strerror(errno));
    madvise(at, len, MADV_DONTFORK); /* a child would keep the mapping beyond a revocation */
    key->map = at;
    key->map_len = len;
    key->key.local = (char *)at + lead;
    return WEFT_OK;
}

/* The range that was granted has to be the region. weft__cuda_import checks the rest. */
static weft_status_t take_device(struct shm_key *key, const struct cuda_export *device) {
    if (device->len != key->key.region.len) return WEFT_ERR_PROTOCOL;
    key->device = weft__alloc(key, sizeof *key->device, "exported memory");
    if (!key->device) return WEFT_ERR_NO_MEMORY;
    *key->device = *device;
    return WEFT_OK;
}

static weft_status_t take_key(struct shm_key *key, const struct shm_key_word *word, const int *fds,
                              int n_fds) {
    const struct shm_grant_word *grant = &word->grant;
    if (!(grant->way & key->ways)) return WEFT_ERR_PROTOCOL;
    if (grant->way == SHM_WAY_VM) return WEFT_OK;
    if (grant->way == SHM_WAY_DEVICE) return take_device(key, &word->device);
    if (n_fds == 0 || n_fds == SHM_FDS_LOST)
        return weft__fail(WEFT_ERR_NO_FDS,
                          "shm: the peer granted a key without passing its memory");
    return n_fds == 1 ? map_key(key, fds[0], grant->offset) : WEFT_ERR_PROTOCOL;
}

/* True: the machine acts on a grant now. Then the memory is mapped before the step. */
static bool expects_grant(const struct shm_key *key) {
    return fsm_verb(&key->fsm, SHM_KEY_EV_GRANT) == FSM_DO;
}

static unsigned event_of(struct shm_key *key, const struct shm_key_word *word, const int *fds,
                         int n_fds) {
    switch (word->kind) {
    case SHM_GRANT:
        if (!expects_grant(key)) return SHM_KEY_EV_GRANT;
        key->why = take_key(key, word, fds, n_fds);
        return key->why < 0 ? SHM_KEY_EV_USELESS : SHM_KEY_EV_GRANT;
    case SHM_DENY: key->why = word->status; return SHM_KEY_EV_DENY;
    default:
        key->why = WEFT_ERR_REVOKED;
        return list_empty(&key->copies) || shm_key_is_in_use(&key->fsm) ? SHM_KEY_EV_REVOKE
                                                                        : SHM_KEY_EV_RECALL;
    }
}

void weft__shm_key_received(struct shm_lane *lane, const struct shm_key_word *word, const int *fds,
                            int n_fds) {
    struct shm_keys *keys = shm_keys(lane);
    struct shm_key *key = find_key(keys, word->serial);
    if (!key) {
        /* A REVOKE and our DROP may cross. Any other message about an unknown key is a
         * violation. */
        if (word->kind != SHM_REVOKE || word->serial > keys->last_serial)
            keys->fault = WEFT_ERR_PROTOCOL;
        return;
    }
    unsigned event = event_of(key, word, fds, n_fds);
    if (key->why == WEFT_ERR_PROTOCOL) keys->fault = WEFT_ERR_PROTOCOL;
    weft__fsm_step(&key->fsm, event);
    if (word->kind == SHM_REVOKE || keys->fault < 0) return;
    keys->n_asked--;
    ask_on(keys);
}

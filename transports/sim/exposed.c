/*
 * Exposed memory over a reliable fabric with `profile.exposes`: the ends of a lane are on one host.
 * The importer asks for a key (WANT), the owner answers (GRANT or DENY), takes it back (REVOKE),
 * and the importer lets go (DROP). These words cross the network as messages do. An importer that
 * holds a key accesses the owner's memory in place, since all workers are in one process.
 */
#include "local.h"
#include <base/compiler.h>
#include <string.h>
#include <transports/keys.h>

enum sim_word_kind { SIM_WANT = 1, SIM_GRANT, SIM_DENY, SIM_REVOKE, SIM_DROP };

struct sim_word {
    uint32_t kind, serial;
    int32_t status;
    struct remote_region region; /* of a WANT */
};

#define OF_KEY(k)  ((struct sim_key *)(k))
#define LANE_OF(k) ((struct sim_lane *)(k)->key.lane)

/* `p` was made with the key or the grant, so that no word needs memory when it is due. */
static void send_word(struct sim_lane *lane, struct sim_packet **p_p, struct sim_word word) {
    struct sim_packet *p = *p_p;
    *p_p = NULL;
    p->kind = SIM_KEY_WORD;
    p->len = sizeof word;
    memcpy(p->data, &word, sizeof word);
    weft__sim_send(lane, p);
}

static bool two_words(struct sim_fabric *f, struct sim_packet *word[2]) {
    word[0] = weft__sim_packet_new(f, sizeof(struct sim_word));
    word[1] = word[0] ? weft__sim_packet_new(f, sizeof(struct sim_word)) : NULL;
    if (word[0] && !word[1]) weft__sim_packet_free(f, word[0]);
    return word[1] != NULL;
}

static void free_words(struct sim_fabric *f, struct sim_packet *word[2]) {
    for (int i = 0; i < 2; i++)
        if (word[i]) weft__sim_packet_free(f, word[i]);
    word[0] = word[1] = NULL;
}

/* ---- the importer ---------------------------------------------------------------------------- */

static void key_free(struct sim_key *key) {
    *key->at = key->next;
    if (key->next) key->next->at = key->at;
    free_words(LANE_OF(key)->fabric, key->word);
    weft__free_later(key->key.lane->iface->reactor, key);
}

static void drop_key(struct sim_key *key) {
    struct sim_lane *lane = LANE_OF(key);
    weft__sim_write_taken(lane);
    key->key.local = NULL;
    if (sim_is_up(lane) && key->word[1])
        send_word(lane, &key->word[1], (struct sim_word){.kind = SIM_DROP, .serial = key->serial});
}

weft_status_t weft__sim_key_open(struct lane *l, const struct remote_region *region,
                                 const void *packed, size_t len, struct lane_key **key_p) {
    struct sim_lane *lane = (struct sim_lane *)l;
    if (!key_is_askable(region))
        return weft__fail(WEFT_ERR_INVALID_PARAM, "sim: the key is malformed");
    if (!lane->fabric->profile.exposes)
        return weft__fail(WEFT_ERR_UNSUPPORTED, "sim: the network exposes no memory");
    struct sim_key *key = weft__new(l->iface, struct sim_key);
    if (!key || !two_words(lane->fabric, key->word)) {
        talloc_free(key);
        return WEFT_ERR_NO_MEMORY;
    }
    key->key = (struct lane_key){
        .lane = l, .region = *region, .status = WEFT_NO_RESOURCE, .how = "asked for"};
    key->serial = ++lane->n_keys;
    key->asked = true;
    key->next = lane->keys;
    key->at = &lane->keys;
    if (key->next) key->next->at = &key->next;
    lane->keys = key;
    send_word(lane, &key->word[0],
              (struct sim_word){.kind = SIM_WANT, .serial = key->serial, .region = *region});
    *key_p = &key->key;
    return WEFT_OK;
}

/* One that is still asked for is dropped when it is granted. */
void weft__sim_key_close(struct lane_key *k) {
    struct sim_key *key = OF_KEY(k);
    key->closed = true;
    if (key->asked) return;
    if (key->key.local) drop_key(key);
    key_free(key);
}

static void key_answered(struct sim_key *key, const struct sim_word *word) {
    key->asked = false;
    bool granted = word->kind == SIM_GRANT;
    if (granted) key->key.local = (char *)(uintptr_t)key->key.region.base;
    if (key->closed) {
        if (granted) drop_key(key);
        key_free(key);
    } else if (granted) {
        key->key.status = WEFT_OK;
        key->key.how = "mapped";
    } else {
        key_refuse(&key->key, (weft_status_t)word->status);
    }
}

/* Reads and copies under way find no key from now on. */
static void key_revoked(struct sim_key *key) {
    if (!key->key.local) return;
    drop_key(key);
    key_refuse(&key->key, WEFT_ERR_REVOKED);
}

static void to_importer(struct sim_lane *lane, const struct sim_word *word) {
    struct sim_key *key = lane->keys;
    while (key && key->serial != word->serial) key = key->next;
    if (!key) return; /* a REVOKE and our DROP cross */
    if (word->kind == SIM_REVOKE)
        key_revoked(key);
    else
        key_answered(key, word);
}

char *weft__sim_mapped_at(const struct sim_lane *lane, uint64_t remote, size_t len,
                          unsigned right) {
    for (const struct sim_key *key = lane->keys; key; key = key->next) {
        const struct remote_region *region = &key->key.region;
        if (key->key.local && region->rights & right &&
            region_covers(region->base, region->len, remote, len))
            return key->key.local + (remote - region->base);
    }
    return NULL;
}

/* ---- the owner ------------------------------------------------------------------------------- */

static struct sim_iface *iface_of(const struct sim_mem *mem) {
    return (struct sim_iface *)mem->mem.iface;
}

static void mem_free(struct sim_mem *mem) {
    struct completion *revoked = mem->revoked;
    talloc_free(mem);
    if (revoked) completion_step(revoked, WEFT_OK);
}

static void grant_end(struct sim_grant *grant) {
    struct sim_mem *mem = grant->mem;
    *grant->at = grant->next;
    if (grant->next) grant->next->at = grant->at;
    free_words(iface_of(mem)->fabric, grant->word);
    talloc_free(grant);
    if (--mem->mem.n_open == 0 && mem->revoked) mem_free(mem);
}

weft_status_t weft__sim_mem_register(struct iface *i, const struct region *region,
                                     struct md_mem **mem_p) {
    struct sim_iface *iface = (struct sim_iface *)i;
    struct sim_mem *mem = weft__new(i, struct sim_mem);
    if (!mem) return WEFT_ERR_NO_MEMORY;
    mem->mem = (struct md_mem){.region = region, .iface = i};
    mem->next = iface->mems;
    iface->mems = mem;
    *mem_p = &mem->mem;
    return WEFT_OK;
}

size_t weft__sim_key_pack(const struct md_mem *mem, void *to) {
    return 0;
}

static void send_revoke(struct sim_grant *grant) {
    struct sim_lane *lane = weft__sim_lane(iface_of(grant->mem)->fabric, grant->lane);
    if (!lane || !sim_is_up(lane)) return; /* the end of the lane revokes it */
    send_word(lane, &grant->word[1],
              (struct sim_word){.kind = SIM_REVOKE, .serial = grant->serial});
}

weft_status_t weft__sim_mem_revoke(struct md_mem *m, struct completion *completion) {
    struct sim_mem *mem = (struct sim_mem *)m;
    struct sim_mem **at = &iface_of(mem)->mems;
    while (*at != mem) at = &(*at)->next;
    *at = mem->next; /* no new grants */
    if (m->n_open == 0) {
        mem_free(mem);
        return WEFT_OK;
    }
    mem->revoked = completion;
    for (struct sim_grant *grant = iface_of(mem)->grants; grant; grant = grant->next)
        if (grant->mem == mem) send_revoke(grant);
    return WEFT_IN_PROGRESS;
}

bool weft__sim_exposes(struct lane *l, const struct md_mem *mem, unsigned right) {
    const struct sim_lane *lane = (const struct sim_lane *)l;
    for (const struct sim_grant *grant = ((struct sim_iface *)l->iface)->grants; grant;
         grant = grant->next)
        if (grant->lane == lane->id && &grant->mem->mem == mem && grant->rights & right &&
            !grant->mem->revoked)
            return true;
    return false;
}

static struct sim_mem *admits(struct sim_iface *iface, const struct remote_region *shown,
                              weft_status_t *why_p) {
    struct sim_mem *mem = iface->mems;
    while (mem && mem->mem.region->id != shown->id) mem = mem->next;
    *why_p = mem ? region_admits(mem->mem.region, shown) : WEFT_ERR_REVOKED;
    return *why_p == WEFT_OK ? mem : NULL;
}

static void grant_begin(struct sim_grant *grant, struct sim_lane *lane, struct sim_mem *mem,
                        const struct sim_word *want) {
    struct sim_iface *iface = sim_iface(lane);
    grant->mem = mem;
    grant->lane = lane->id;
    grant->remote = lane->remote;
    grant->serial = want->serial;
    grant->rights = want->region.rights;
    grant->next = iface->grants;
    grant->at = &iface->grants;
    if (grant->next) grant->next->at = &grant->next;
    iface->grants = grant;
    mem->mem.n_open++;
}

/* Without memory for an answer the lane breaks. */
static void wanted(struct sim_lane *lane, const struct sim_word *want) {
    struct sim_grant *grant = weft__new(lane->lane.iface, struct sim_grant);
    if (!grant || !two_words(lane->fabric, grant->word)) {
        talloc_free(grant);
        weft__sim_lane_post(lane, SIM_LANE_EV_LOST, WEFT_ERR_NO_MEMORY);
        return;
    }
    weft_status_t why;
    struct sim_mem *mem = admits(sim_iface(lane), &want->region, &why);
    send_word(lane, &grant->word[0],
              (struct sim_word){
                  .kind = mem ? SIM_GRANT : SIM_DENY, .serial = want->serial, .status = why});
    if (mem) return grant_begin(grant, lane, mem, want);
    free_words(lane->fabric, grant->word);
    talloc_free(grant);
}

static void dropped(struct sim_lane *lane, const struct sim_word *word) {
    struct sim_grant *grant = sim_iface(lane)->grants;
    while (grant && !(grant->lane == lane->id && grant->serial == word->serial))
        grant = grant->next;
    if (grant) grant_end(grant);
}

/* ---- words that arrive, and the end of a lane ------------------------------------------------ */

void weft__sim_key_word(struct sim_lane *lane, const struct sim_packet *p) {
    struct sim_word word;
    memcpy(&word, p->data, sizeof word);
    if (!sim_is_up(lane)) return;
    if (word.kind == SIM_WANT)
        wanted(lane, &word);
    else if (word.kind == SIM_DROP)
        dropped(lane, &word);
    else
        to_importer(lane, &word);
}

/* A process that has let go closes its end of the connection, which its peer sees however long the
 * network stands still. */
static void part(struct sim_lane *lane) {
    struct sim_iface *owner = lane->fabric->node[lane->remote_node];
    if (!owner || owner->incarnation != lane->remote_incarnation) return;
    for (struct sim_grant *grant = owner->grants; grant; grant = grant->next)
        if (grant->remote == lane->id) grant->parted = true;
    weft__job_post(owner->iface.reactor, &owner->parting);
}

void weft__sim_parting(struct job *job) {
    struct sim_iface *iface = container_of(job, struct sim_iface, parting);
    struct sim_grant *grant = iface->grants;
    while (grant && !grant->parted) grant = grant->next;
    if (!grant) return;
    weft__job_post(iface->iface.reactor, job); /* its end may call the owner */
    grant_end(grant);
}

/* The lane sends and receives no more. Its keys stay until it is closed. */
void weft__sim_keys_end(struct sim_lane *lane, weft_status_t status) {
    weft__sim_write_taken(lane);
    for (struct sim_key *key = lane->keys, *next; key; key = next) {
        next = key->next;
        key->key.local = NULL;
        key->key.caps = 0;
        key->key.status = status;
        key->asked = false;
        if (key->closed) key_free(key);
    }
    part(lane);
}

void weft__sim_keys_free(struct sim_lane *lane) {
    while (lane->keys) key_free(lane->keys);
}

/* The importer may hold keys still, and learns of this end as one does of a closed socket. */
void weft__sim_grants_end(struct sim_lane *lane) {
    struct sim_iface *iface = sim_iface(lane);
    struct sim_lane *other = weft__sim_lane(lane->fabric, lane->remote);
    bool gone = !other || other->ended;
    for (struct sim_grant *grant = iface->grants; grant; grant = grant->next) {
        if (grant->lane != lane->id) continue;
        if (gone)
            grant->parted = true;
        else
            weft__sim_lane_post(other, SIM_LANE_EV_LOST, WEFT_ERR_PEER_CLOSED);
    }
    if (gone) weft__job_post(iface->iface.reactor, &iface->parting);
}

/* Does not wait for peers: they read memory that is the program's again. */
void weft__sim_mem_close(struct sim_iface *iface) {
    weft__job_drop(iface->iface.reactor, &iface->parting);
    for (struct sim_grant *grant = iface->grants; grant; grant = grant->next)
        free_words(iface->fabric, grant->word);
    iface->grants = NULL;
}

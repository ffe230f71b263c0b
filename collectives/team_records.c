/*
 * The records that the members exchange when a team is made: how a member describes itself, and
 * what follows from the records of all: the team's identity, its hosts, the ranks of each core.
 */
#include <base/affinity.h>
#include <base/hash.h>
#include <endpoints/connect/connect.h>
#include <float.h>
#include <string.h>
#include <unistd.h>

#include "team.h"

/* ---- this member's own ----------------------------------------------------------------------- */

static bool has_shared_memory(weft_worker_t *worker, const char *transports) {
    const struct iface *shm = weft__worker_iface(worker, "shm", 3);
    return shm && weft__iface_is_named(shm, transports);
}

static void describe_cores(struct member_record *record) {
    struct affinity set;
    record->cores = 1;
    if (!weft__affinity_read(&set)) return;
    record->cores = weft__affinity_count(&set);
    if (record->cores == 1) record->core = (uint32_t)weft__affinity_next(&set, 0) + 1;
}

/* Asked once a worker: it takes 10 us. The namespace of a process stays, its user may not. */
static uint64_t host_of(struct team_registry *registry) {
    uid_t user = geteuid();
    if (!registry->host || registry->host_user != user) registry->host = weft__team_host();
    registry->host_user = user;
    return registry->host;
}

weft_status_t weft__team_describe(weft_team_t *team, const weft_team_params_t *params) {
    weft_context_t *context = team->worker->context;
    struct member_record record = {.nonce = weft__random(team->reactor),
                                   .host = host_of(team->registry),
                                   .ranks_per_core = params->ranks_per_core,
                                   .eager = team->eager,
                                   .slot = weft__setting_u64(context, SETTING_COLL_SLOT) /
                                           SEGMENT_LINE * SEGMENT_LINE,
                                   .choices = team->choices.hash ^ team->segment_bytes};
    record.flags = (uint16_t)(LDBL_MANT_DIG * MEMBER_LONG_DOUBLE);
    describe_cores(&record);
    size_t len = sizeof record.address;
    weft_status_t st =
        weft__worker_address_by(team->worker, params->transports, record.address, &len);
    if (st < 0) return st;
    record.address_len = (uint16_t)len;
    if (record.slot && team->size > 1 && has_shared_memory(team->worker, params->transports)) {
        record.flags |= MEMBER_MAPS;
        record.pid = (uint32_t)getpid();
        record.probe = (uintptr_t)&team->offers.nonce;
        team->offers.nonce = record.nonce;
    }
    if (team->rank == 0 && record.flags & MEMBER_MAPS &&
        weft__team_segment_create(team, team->size, record.slot, record.nonce, &team->segment) ==
            WEFT_OK) {
        record.flags |= MEMBER_SEGMENT;
        record.fd = (uint32_t)team->segment->fd;
    }
    weft__member_write(team->mine, &record);
    return WEFT_OK;
}

uint64_t weft__team_one_piece(const weft_worker_t *worker, const char *transports) {
    uint64_t most = UINT64_MAX;
    for (uint32_t i = 0; i < worker->n_ifaces; i++) {
        if (!weft__iface_is_named(worker->iface[i], transports)) continue;
        const struct iface_attr *attr = &worker->iface[i]->attr;
        uint64_t head = 8 + COLL_WIRE_BYTES,
                 copied = attr->max_bcopy > head ? attr->max_bcopy - head : 0;
        uint64_t here = attr->max_zcopy > copied ? attr->max_zcopy : copied;
        if (here < most) most = here;
    }
    return most;
}

/* ---- those of all ---------------------------------------------------------------------------- */

static bool decode(weft_team_t *team) {
    for (uint32_t r = 0; r < team->size; r++) {
        struct member_record *record = &team->record[r];
        struct address address;
        if (!weft__member_read(team->all + (size_t)r * MEMBER_RECORD_BYTES, MEMBER_RECORD_BYTES,
                               record) ||
            weft__address_read(record->address, record->address_len, &address) < 0)
            return false;
        team->member[r].worker = address.worker;
    }
    return true;
}

static weft_status_t check_records(weft_team_t *team) {
    const struct member_record *mine = &team->record[team->rank];
    if (!decode(team))
        return weft__fail(WEFT_ERR_PROTOCOL, "the exchange returned malformed records");
    if (memcmp(team->mine, team->all + (size_t)team->rank * MEMBER_RECORD_BYTES,
               MEMBER_RECORD_BYTES) != 0)
        return weft__fail(WEFT_ERR_PROTOCOL, "the exchange returned a wrong record for rank %u",
                          team->rank);
    for (uint32_t r = 0; r < team->size; r++) {
        const struct member_record *other = &team->record[r];
        if (other->slot != mine->slot || other->choices != mine->choices)
            return weft__fail(WEFT_ERR_INVALID_PARAM, "rank %u has different coll.* settings", r);
        if (r != team->rank && other->address_len == mine->address_len &&
            memcmp(other->address, mine->address, mine->address_len) == 0)
            return weft__fail(WEFT_ERR_UNSUPPORTED, "rank %u is the same worker", r);
    }
    return WEFT_OK;
}

_Static_assert(MEMBER_RECORD_BYTES % 8 == 0, "records are whole words");
static uint64_t word_at(const uint8_t *p) {
    uint64_t word = 0;
    for (unsigned i = 0; i < 8; i++) word |= (uint64_t)p[i] << 8 * i;
    return word;
}

/* Every member gets the same, for all of it comes from the exchange; the nonces make it this
 * team's alone. */
static uint64_t identity(const weft_team_t *team) {
    uint64_t h = HASH_BEGIN;
    for (size_t at = 0; at < (size_t)team->size * MEMBER_RECORD_BYTES; at += 8) {
        h = (h ^ word_at(team->all + at)) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h ? h : 1;
}

/* Members of a host whose identity is not known (0) are hosts of their own. */
static void find_hosts(weft_team_t *team) {
    for (uint32_t r = 0; r < team->size; r++) {
        uint32_t first = 0;
        while (first < r &&
               !(team->record[r].host && team->record[first].host == team->record[r].host))
            first++;
        team->host_of[r] = first;
        team->n_hosts += first == r;
    }
}

/* Both sides of a pair find the same. */
static void find_sharers(weft_team_t *team) {
    const struct member_record *mine = &team->record[team->rank];
    for (uint32_t r = 0; r < team->size; r++) {
        const struct member_record *other = &team->record[r];
        bool map = mine->flags & other->flags & MEMBER_MAPS;
        team->member[r].shares = map && mine->host && mine->host == other->host;
    }
}

static bool is_first_of_host(const weft_team_t *team, uint32_t rank) {
    for (uint32_t r = 0; r < rank; r++)
        if (team->record[r].host == team->record[rank].host) return false;
    return true;
}

/* Those that are bound to one core, a core counted once. */
static bool is_first_on_core(const weft_team_t *team, uint32_t rank) {
    const struct member_record *record = team->record, *mine = &record[rank];
    for (uint32_t r = 0; r < rank; r++)
        if (record[r].host == mine->host && record[r].core == mine->core) return false;
    return mine->core != 0;
}

/* Cores are as many as a member may run on, or as members are bound to. */
static uint32_t per_core_of_host(const weft_team_t *team, uint64_t host) {
    uint32_t here = 0, cores = 1, bound = 0;
    for (uint32_t r = 0; r < team->size; r++) {
        if (team->record[r].host != host) continue;
        here++;
        bound += is_first_on_core(team, r);
        if (team->record[r].cores > cores) cores = team->record[r].cores;
    }
    if (bound > cores) cores = bound;
    return (here + cores - 1) / cores;
}

static uint32_t most_per_core(const weft_team_t *team) {
    uint32_t most = 1;
    if (team->record[0].ranks_per_core) return team->record[0].ranks_per_core;
    for (uint32_t r = 0; r < team->size; r++) {
        uint32_t here =
            is_first_of_host(team, r) ? per_core_of_host(team, team->record[r].host) : 0;
        if (here > most) most = here;
    }
    return most;
}

static bool same_long_double(const weft_team_t *team) {
    for (uint32_t r = 0; r < team->size; r++)
        if (team->record[r].flags / MEMBER_LONG_DOUBLE != LDBL_MANT_DIG) return false;
    return true;
}

weft_status_t weft__team_read_records(weft_team_t *team) {
    weft_status_t st = check_records(team);
    if (st < 0) return st;
    for (uint32_t r = 0; r < team->size; r++)
        if (team->record[r].eager < team->eager) team->eager = team->record[r].eager;
    team->per_core = most_per_core(team);
    find_hosts(team);
    find_sharers(team);
    team->same_long_double = same_long_double(team);
    team->id = identity(team);
    return WEFT_OK;
}

/* What a program asks about a team and its members, and teams of members that it names. */
#include <base/check.h>
#include <stdio.h>

#include "call.h"
#include "collective.h"
#include "team_split.h"

/* ---- attributes ------------------------------------------------------------------------------ */

weft_status_t weft_team_describe_sized(size_t info_size, weft_team_t *team,
                                       weft_team_info_t *info_p) {
    weft_team_info_t info = {0};
    if (!team) REFUSE("team", "NULL");
    if (!info_p) REFUSE("info_p", "NULL");
    weft_status_t st = weft__worker_check(team->worker);
    if (st < 0) return st;
    info.rank = team->rank;
    info.size = team->size;
    info.epoch = team->epoch;
    info.status = team->status < 0 ? team->status : team->all_came ? WEFT_OK : WEFT_IN_PROGRESS;
    info.blamed = team->blamed;
    info.why = team->why;
    if (team->id) {
        info.n_hosts = team->n_hosts;
        info.ranks_per_core = team->per_core;
        info.shares_memory = team->segment != NULL;
        for (uint32_t r = 0; r < team->size; r++) info.n_endpoints += team->member[r].ep != NULL;
    }
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}

weft_status_t weft_team_member_sized(size_t member_size, weft_team_t *team, uint32_t rank,
                                     weft_team_member_t *member_p) {
    weft_team_member_t member = {0};
    if (!team) REFUSE("team", "NULL");
    if (!member_p) REFUSE("member_p", "NULL");
    weft_status_t st = weft__worker_check(team->worker);
    if (st < 0) return st;
    if (rank >= team->size) return weft__fail_rank("rank", rank, team->size);
    if (!team->id) return weft__fail(WEFT_ERR_BUSY, "the team's exchange is in progress");
    member.host = team->record[rank].host;
    member.leader = team->host_of[rank];
    for (uint32_t r = 0; r < team->size; r++) {
        bool same = team->host_of[r] == team->host_of[rank];
        member.ranks_of_host += same;
        member.host_rank += r < rank && same;
    }
    member.cores = team->record[rank].cores;
    member.address = team->record[rank].address;
    member.address_len = team->record[rank].address_len;
    member.left = member_is_gone(&team->member[rank]);
    member.n_late = team->member[rank].n_late;
    member.late_ms = team->member[rank].late_ns / NS_PER_MS;
    weft__info_write(member_p, member_size, &member, sizeof member);
    return WEFT_OK;
}

weft_status_t weft_team_algorithm(weft_team_t *team, weft_coll_kind_t kind, uint64_t bytes,
                                  uint32_t flags, const char **name_p) {
    if (!team) REFUSE("team", "NULL");
    if (!name_p) REFUSE("name_p", "NULL");
    if ((unsigned)kind >= WEFT_N_COLL_KINDS) REFUSE("kind", "not a collective");
    if (flags & ~(uint32_t)(WEFT_COLL_FIXED_ORDER | WEFT_COLL_SAFE)) REFUSE("flags", "not known");
    weft_status_t st = weft__worker_check(team->worker);
    if (st == WEFT_OK) st = weft__team_usable(team);
    if (st < 0) return st;
    struct coll_call call = {.kind = (enum coll_kind)kind,
                             .count = bytes,
                             .width = 1,
                             .fixed_order = flags & WEFT_COLL_FIXED_ORDER};
    *name_p = weft__algorithm_name(weft__collective_choice(team, &call));
    return WEFT_OK;
}

/* ---- members that the program names ---------------------------------------------------------- */

static bool is_listed(const weft_team_map_t *map, uint32_t size) {
    for (uint32_t i = 0; i < map->n; i++) {
        if (map->list[i] >= size) return false;
        for (uint32_t j = 0; j < i; j++)
            if (map->list[j] == map->list[i]) return false;
    }
    return true;
}

static weft_status_t check_map(const weft_team_map_t *map, uint32_t size) {
    switch (map->kind) {
    case WEFT_MAP_LIST:
        if (!map->list || !map->n) REFUSE("map->list", "NULL or empty");
        if (!is_listed(map, size)) REFUSE("map->list", "a rank is out of range or named twice");
        return WEFT_OK;
    case WEFT_MAP_STRIDED:
        if (!map->n || !map->stride) REFUSE("map->n, map->stride", "0");
        if (map->start >= size ||
            (uint64_t)map->start + (uint64_t)(map->n - 1) * map->stride >= size)
            REFUSE("map", "a rank is out of range");
        return WEFT_OK;
    case WEFT_MAP_CALLBACK:
        if (!map->contains) REFUSE("map->contains", "NULL");
        return WEFT_OK;
    case WEFT_MAP_FULL: return WEFT_OK;
    }
    REFUSE("map->kind", "unknown");
}

/* The place of a rank in the new team, or WEFT_NO_COLOUR. A callback keeps the parent's order. */
static uint32_t place_in(const weft_team_map_t *map, uint32_t rank) {
    uint32_t far = rank - map->start;
    switch (map->kind) {
    case WEFT_MAP_LIST:
        for (uint32_t i = 0; i < map->n; i++)
            if (map->list[i] == rank) return i;
        return WEFT_NO_COLOUR;
    case WEFT_MAP_STRIDED:
        return rank >= map->start && far % map->stride == 0 && far / map->stride < map->n
                   ? far / map->stride
                   : WEFT_NO_COLOUR;
    case WEFT_MAP_CALLBACK: return map->contains(rank, map->arg) ? rank : WEFT_NO_COLOUR;
    case WEFT_MAP_FULL: return rank;
    }
    return WEFT_NO_COLOUR;
}

weft_status_t weft_team_subset_sized(size_t params_size, weft_team_t *parent,
                                     const weft_team_map_t *map, const weft_team_params_t *params) {
    if (!parent) REFUSE("parent", "NULL");
    if (!map) REFUSE("map", "NULL");
    weft_status_t st = weft__worker_check(parent->worker);
    if (st == WEFT_OK) st = check_map(map, parent->size);
    if (st < 0) return st;
    uint32_t place = place_in(map, parent->rank);
    uint32_t colour = place == WEFT_NO_COLOUR ? WEFT_NO_COLOUR : 0;
    return weft_team_split_sized(params_size, parent, colour, place, params);
}

/* ---- revoking -------------------------------------------------------------------------------- */

weft_status_t weft_team_revoke(weft_team_t *team) {
    if (!team) REFUSE("team", "NULL");
    weft_status_t st = weft__worker_check(team->worker);
    if (st < 0) return st;
    if (team->status < 0) return WEFT_OK; /* its members know */
    if (!team_is_ready(&team->core.fsm)) return weft__fail(WEFT_ERR_BUSY, "the team is not ready");
    snprintf(team->why, sizeof team->why, "rank %u revoked the team", team->rank);
    weft__team_fail(team, WEFT_ERR_REVOKED, team->rank);
    return WEFT_OK;
}

/*
 * The memory that members share, and the first collective of a team, which settles it. A team on
 * one host has one segment. Of a team on several hosts the members of each host have one: their
 * leader, the lowest rank, makes it and sends them where it can be opened. Then all agree whether
 * everybody has what its host should have; and on one host, from which size on members read each
 * other's memory.
 */
#include <string.h>
#include <unistd.h>

#include "collective.h"
#include "offered.h"

/*
 * A slot of this size stays in the cache between two cores that work at once. Ranks that share a
 * core change places once a slot, which is dearer, so theirs are as large as the setting says.
 */
enum { SLOT_OF_A_CORE = 8 << 10 };

void weft__team_unshare(weft_team_t *team) {
    struct coll_share *share = &team->share;
    weft__offered_unmap(team);
    if (share->segment) weft__aux_watch_stop(team->reactor, &share->doorbell);
    weft__team_segment_close(share->segment ? share->segment : team->segment);
    team->segment = share->segment = NULL;
}

/* That it rang is all: this turn looks at the segment. */
static void rang(struct aux_watch *doorbell, int events) {}

static bool watch_doorbell(weft_team_t *team, const struct segment *segment) {
    struct aux_watch *doorbell = &team->share.doorbell;
    *doorbell = (struct aux_watch){.ready = rang, .fd = segment->doorbell, .notified_once = true};
    return weft__aux_watch_open(team->reactor) == WEFT_OK &&
           weft__aux_watch_start(team->reactor, doorbell, WATCH_READ) == WEFT_OK;
}

static void take_segment(weft_team_t *team, struct segment *segment) {
    if (segment && !watch_doorbell(team, segment)) {
        weft__team_segment_close(segment);
        segment = NULL;
    }
    team->share.segment = segment;
    if (segment && team->per_core == 1 && segment->slot > SLOT_OF_A_CORE)
        segment->slot = SLOT_OF_A_CORE;
}

static void open_segment(weft_team_t *team, uint32_t size, const struct member_record *maker) {
    struct segment *segment = NULL;
    weft_status_t st = weft__team_segment_open(team, size, maker, &segment);
    if (st < 0)
        weft__log(team->worker->context, WEFT_LOG_INFO, "collectives", "no shared segment: %s",
                  weft_status_name(st));
    take_segment(team, segment);
}

/* ---- all on one host, all willing, and the first of them has made it ------------------------- */

static bool is_of_one_host(const weft_team_t *team) {
    const struct member_record *first = &team->record[0];
    bool all = first->flags & MEMBER_SEGMENT && first->host != 0;
    for (uint32_t r = 0; r < team->size; r++)
        all = all && (team->record[r].flags & MEMBER_MAPS) && team->record[r].host == first->host;
    return all;
}

static void share_among_all(weft_team_t *team) {
    team->share = (struct coll_share){.rank = team->rank, .size = team->size};
    if (team->rank == 0)
        take_segment(team, team->segment);
    else
        open_segment(team, team->size, &team->record[0]);
    team->segment = team->share.segment;
    if (!team->segment) return;
    size_t bytes = team->size * sizeof(uint64_t);
    team->lines.left_by = weft__alloc(team->segment, bytes, "lines");
    team->offers.read_by = weft__alloc(team->segment, bytes, "offers");
    if (!team->lines.left_by || !team->offers.read_by) {
        weft__team_unshare(team);
        return;
    }
    memset(team->lines.left_by, 0, bytes);
    memset(team->offers.read_by, 0, bytes);
}

/* ---- those of this host ---------------------------------------------------------------------- */

/* Of several, all willing; else they go without. */
static bool find_mates(weft_team_t *team) {
    struct coll_share *share = &team->share;
    bool all = team->record[team->rank].host != 0;
    *share = (struct coll_share){0};
    for (uint32_t r = 0; r < team->size; r++) {
        if (team->host_of[r] != team->host_of[team->rank]) continue;
        if (r == team->rank) share->rank = share->size;
        share->size++;
        all = all && team->record[r].flags & MEMBER_MAPS;
    }
    if (!all || share->size < 2 || share->size > SEGMENT_MOST_MEMBERS) return false;
    share->member = weft__alloc(team, share->size * sizeof *share->member, "mates");
    for (uint32_t r = 0, n = 0; share->member && r < team->size; r++)
        if (team->host_of[r] == team->host_of[team->rank]) share->member[n++] = r;
    return true;
}

static bool leads(const struct coll_share *share) {
    return share->rank == 0;
}

static void share_within_host(weft_team_t *team) {
    struct coll_share *share = &team->share;
    const struct member_record *own = &team->record[team->rank];
    struct segment *segment = NULL;
    team->mates = find_mates(team);
    if (!team->mates || !share->member || !leads(share)) return;
    if (weft__team_segment_create(team, share->size, own->slot, own->nonce, &segment) < 0) return;
    take_segment(team, segment);
    if (share->segment) team->opens = (uint64_t)getpid() << 32 | (uint32_t)segment->fd;
}

void weft__team_share(weft_team_t *team) {
    if (is_of_one_host(team)) {
        share_among_all(team);
        return;
    }
    weft__team_unshare(team);
    if (team->n_hosts > 1) share_within_host(team);
}

/* ---- the last one: what do all have? --------------------------------------------------------- */

/* Of what the members say the largest counts: from which power of two on a single copy pays, or
 * that one has no segment where it should have one. */
enum { NO_SEGMENT = SINGLE_COPY_NEVER + 1 };

/* The cost of a read is that of the parent's members. Whether the next member of this team can be
 * read is tried once more. */
static uint32_t single_copy_least(const weft_team_t *team) {
    uint32_t known = team->of_parent, next = (team->rank + 1) % team->size;
    uint64_t nonce;
    if (!known || known == SINGLE_COPY_EXPOSED || team->worker->memory.exposed.n)
        return weft__single_copy_least(team);
    bool can_read = known != SINGLE_COPY_NEVER &&
                    !weft__offered_read(team, next, team->record[next].probe, &nonce, sizeof nonce);
    return can_read ? known : SINGLE_COPY_NEVER;
}

static uint32_t what_it_has(const weft_team_t *team) {
    bool needs_none = team->n_hosts > 1 && !team->mates;
    if (!needs_none && !team->share.segment) return NO_SEGMENT;
    return team->segment ? single_copy_least(team) : 0;
}

void weft__team_agreed(weft_team_t *team, uint32_t agreed) {
    team->agreed = agreed;
    team->all_came = true;
    if (team->agreed == NO_SEGMENT)
        weft__team_unshare(team);
    else if (team->share.segment)
        weft__team_segment_opened(team->share.segment);
    if (team->segment && agreed < SINGLE_COPY_NEVER) {
        team->offers.exposed = agreed == SINGLE_COPY_EXPOSED;
        team->offers.least = team->offers.exposed ? SINGLE_COPY_BYTES : UINT64_C(1) << agreed;
    }
    weft__fsm_step(&team->core.fsm, TEAM_EV_AGREED);
}

static void agreed(weft_team_t *team, weft_status_t status) {
    if (status < 0 || team->status < 0) return; /* the team has failed, with it or after it */
    weft__team_agreed(team, team->agreed);
}

static weft_status_t agree(weft_team_t *team) {
    team->agreed = what_it_has(team);
    if (team->meeting) {
        team->meeting->agree(team->meeting);
        return WEFT_OK;
    }
    struct coll_call call = {.kind = COLL_ALLREDUCE,
                             .src = &team->agreed,
                             .dst = &team->agreed,
                             .count = 1,
                             .width = sizeof team->agreed,
                             .reduce = weft__reduction(WEFT_UINT32, WEFT_MAX),
                             .algorithm = ALGORITHM_ALLREDUCE_doubling};
    return weft__collective_start(team, &call, NULL, agreed);
}

/* ---- before that, of several hosts: the leaders say where their segments are ----------------- */

static void place_received(weft_team_t *team, weft_status_t status) {
    struct coll_share *share = &team->share;
    if (status < 0 || team->status < 0) return;
    if (team->mates && share->member && !leads(share) && team->opens) {
        struct member_record maker = team->record[share->member[0]];
        maker.pid = (uint32_t)(team->opens >> 32);
        maker.fd = (uint32_t)team->opens;
        open_segment(team, share->size, &maker);
    }
    weft_status_t st = agree(team);
    if (st < 0) weft__team_fail(team, st, team->rank);
}

/* Along the edges from the leader of each host to its mates. */
static weft_status_t send_place(weft_team_t *team) {
    const struct coll_share *share = &team->share;
    uint32_t leader = team->host_of[team->rank], n = team->mates ? share->size - 1 : 0;
    uint64_t *counts = weft__alloc(team, (2 * (size_t)n + 2) * sizeof *counts, "edges");
    if (!counts || (n && !share->member)) return WEFT_ERR_NO_MEMORY;
    for (uint32_t i = 0; i <= n; i++) counts[i] = 1; /* the rest are offsets: 0 */
    struct coll_vector one_each = {counts, counts + n + 1};
    struct coll_call call = {.kind = COLL_NEIGHBOR_ALLTOALLV,
                             .src = &team->opens,
                             .dst = &team->opens,
                             .width = sizeof team->opens,
                             .src_blocks = one_each,
                             .dst_blocks = one_each,
                             .n_sources = n && !leads(share),
                             .source = &leader,
                             .n_destinations = n && leads(share) ? n : 0,
                             .destination = n ? share->member + 1 : &leader,
                             .algorithm = ALGORITHM_NEIGHBOR_ALLTOALLV_linear};
    weft_status_t st = weft__collective_start(team, &call, NULL, place_received);
    talloc_free(counts);
    return st;
}

weft_status_t weft__team_meet(weft_team_t *team) {
    return team->n_hosts > 1 ? send_place(team) : agree(team);
}

/* The shape of a call, as its schedule and its blocks are built by it. */
#include "collective.h"

/* The setting coll.per_host comes first. */
static bool groups_by_host(const weft_team_t *team, const struct coll_call *call) {
    return team->n_hosts > 1 && !team->choices.per_group && !call->set.size;
}

/* The segment of this host serves untagged collectives, whose order is the same everywhere. */
static uint64_t slot_of(const weft_team_t *team, const struct coll_call *call) {
    bool has = groups_by_host(team, call) && !call->tagged && team->share.segment;
    return has ? team->share.segment->slot : 0;
}

struct coll_shape weft__coll_shape(const weft_team_t *team, const struct coll_call *call) {
    return (struct coll_shape){.kind = call->kind,
                               .size = coll_size(team, call),
                               .rank = coll_index(call, team->rank),
                               .root = call->root,
                               .count = call->count,
                               .width = call->width,
                               .segment = team->segment_bytes > call->width ? team->segment_bytes
                                                                            : call->width,
                               .in_place = call->in_place,
                               .memory = call->memory,
                               .radix = team->choices.radix,
                               .group_of = groups_by_host(team, call) ? team->host_of : NULL,
                               .per_group = team->choices.per_group,
                               .choices = &team->choices,
                               .per_core = team->per_core,
                               .slot = slot_of(team, call),
                               .src = call->src_blocks,
                               .dst = call->dst_blocks,
                               .n_sources = call->n_sources,
                               .n_destinations = call->n_destinations,
                               .source = call->source,
                               .destination = call->destination};
}

/* Groups of ranks, for schedules of two levels: within them, and between one leader of each. */
#ifndef WEFT_COLLECTIVES_ALGORITHMS_GROUPS_H
#define WEFT_COLLECTIVES_ALGORITHMS_GROUPS_H

#include <collectives/schedule.h>

struct groups {
    uint32_t *mine, n_mine, place, head; /* this rank's group, it and its leader in that */
    uint32_t *leader, n_leaders, turn;   /* and its leader among all */
    uint32_t *first;                     /* of each group, of neighbours only: its first rank */
    bool leads, rows;                    /* rows: each group's ranks are neighbours */
};

/* False: memory is short, and the schedule's status says so. */
bool weft__groups_find(struct schedule *s, struct groups *g);

/* A part within the group, its root the leader. `usual`, unless another one is chosen. */
struct coll_part weft__part_within(const struct schedule *s, const struct groups *g,
                                   enum coll_kind kind, enum coll_algorithm usual, uint32_t number);
/* A part between leaders; its root is the leader of the root's group. */
struct coll_part weft__part_between(const struct schedule *s, const struct groups *g,
                                    enum coll_kind kind, enum coll_algorithm usual,
                                    uint32_t number);
/* Adds it, and a gate behind it. */
void weft__part_add(struct schedule *s, bool takes_part, struct coll_part *part);

/* Blocks that differ, of which a rank knows all: of each rank, and then of each group: counts, and
 * where they begin in a row, in elements. False: groups are no neighbours, or memory is short. */
struct row {
    uint64_t *count, *offset, *groups_count, *groups_offset, total;
};
bool weft__groups_row(struct schedule *s, const struct groups *g, struct coll_vector blocks,
                      struct row *row);

#endif

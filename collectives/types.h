/* Types and reductions of the program's own, and the packed memory of types with a layout. */
#ifndef WEFT_COLLECTIVES_TYPES_H
#define WEFT_COLLECTIVES_TYPES_H

#include "collective.h"

struct coll_type {
    uint32_t size;
    size_t extent;
    bool has_layout;
    weft_layout_t layout;
    void *arg;                 /* for the functions of the program's own layout */
    const struct given *given; /* of its staging: to the worker (transports/given.h) */
};

struct coll_reduction {
    weft_reduce_fn reduce;
    void *arg;
    uint32_t flags;
};

/* A team's. */
struct coll_types {
    struct coll_type *type;
    struct coll_reduction *reduction;
    uint32_t n_types, n_reductions;
};

/* Bytes of an element on the wire, 0: no such type; and in memory. */
uint32_t weft__type_width(const weft_team_t *team, weft_datatype_t type);
size_t weft__type_extent(const weft_team_t *team, weft_datatype_t type);
/* NULL: it is none of the program's. */
const struct coll_reduction *weft__user_reduction(const weft_team_t *team,
                                                  weft_reduction_t reduction);

/* For a type with a layout, and for device memory that peer memory does not serve: packs SRC, and
 * puts packed memory of the host in the place of both buffers. */
weft_status_t weft__stage(const weft_team_t *team, weft_datatype_t type,
                          const struct coll_shape *shape, struct coll_call *call);

#endif

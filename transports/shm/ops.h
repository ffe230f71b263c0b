/* The tables of lane operations: the rooms define the functions, ops.c puts them together. */
#ifndef WEFT_TRANSPORTS_SHM_OPS_H
#define WEFT_TRANSPORTS_SHM_OPS_H

#include <transports/shm/lane/shm.h>

extern const struct shm_lane_ops weft__shm_lane_ops;

#endif

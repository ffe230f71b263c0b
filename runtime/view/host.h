/* What a process has of its host. */
#ifndef WEFT_RUNTIME_VIEW_HOST_H
#define WEFT_RUNTIME_VIEW_HOST_H

#include "topology.h"

/* Fills the set of this process; keeps `rank`. What the kernel does not say stays 0. */
void weft__resource_set_measure(weft_resource_set_t *set, const struct topology *topology);
/* Lowers its memory to the limits of a control group. `groups`: as in /proc/self/cgroup, and is
 * overwritten. `root`: where their files are. */
void weft__ram_limit(weft_resource_set_t *set, char *groups, const char *root);
/* devices.c: its GPUs, RDMA devices and network devices. Needs `host_id`. */
void weft__devices_measure(weft_resource_set_t *set);

#endif

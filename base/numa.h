/* The NUMA nodes of a device, and of this process. */
#ifndef WEFT_BASE_NUMA_H
#define WEFT_BASE_NUMA_H

#define DEVICE_CLASS "/sys/class/infiniband"
#define PROCESSORS   "/sys/devices/system/cpu"

/*
 * The NUMA node of `device` in a class of sysfs. -1: sysfs has no such device, or the kernel does
 * not know its node.
 */
int weft__device_node(const char *class, const char *device);

/* The NUMA node of the first processor that this process may run on, by a folder of sysfs
 * (PROCESSORS). -1: it is not known. */
int weft__own_node(const char *processors);

#endif

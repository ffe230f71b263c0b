/* The NUMA node of a device. */
#ifndef WEFT_BASE_NUMA_H
#define WEFT_BASE_NUMA_H

#define DEVICE_CLASS "/sys/class/infiniband"

/*
 * The NUMA node of `device` in a class of sysfs. -1: sysfs has no such device, or the kernel does
 * not know its node.
 */
int weft__device_node(const char *class, const char *device);

#endif

/* Where a device is. */
#ifndef WEFT_ENDPOINTS_DETECT_H
#define WEFT_ENDPOINTS_DETECT_H

#define DEVICE_CLASS "/sys/class/infiniband"

/* The NUMA node of a device of that class of sysfs; -1: it is none, or the kernel does not say. */
int weft__device_node(const char *class, const char *device);

#endif

/* Reads the NUMA node of a device from sysfs. */
#include "numa.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A device is a name of sysfs, whatever follows it ("mlx5_0:1"). */
int weft__device_node(const char *class, const char *device) {
    char path[256], text[16] = "";
    int name = (int)strcspn(device, "/:"), node = -1;
    int size = snprintf(path, sizeof path, "%s/%.*s/device/numa_node", class, name, device);
    int fd =
        name && device[0] != '.' && size < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return -1;
    if (read(fd, text, sizeof text - 1) > 0) node = (int)strtol(text, NULL, 10);
    close(fd);
    return node < 0 ? -1 : node;
}

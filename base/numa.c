/* Reads the NUMA nodes of devices and processors from sysfs. */
#include "numa.h"

#include "affinity.h"

#include <dirent.h>
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

static int first_processor(void) {
    struct affinity cpus;
    return weft__affinity_read(&cpus) ? weft__affinity_next(&cpus, 0) : -1;
}

/* The folder of a processor has one entry "node" with the number of its node. */
int weft__own_node(const char *processors) {
    char path[256];
    int node = -1, cpu = first_processor();
    if (snprintf(path, sizeof path, "%s/cpu%d", processors, cpu) >= (int)sizeof path) return -1;
    DIR *folder = cpu < 0 ? NULL : opendir(path);
    for (const struct dirent *at; folder && (at = readdir(folder));)
        if (sscanf(at->d_name, "node%d", &node) == 1) break;
    if (folder) closedir(folder);
    return node;
}

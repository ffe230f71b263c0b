/* Reads the identity of this host, of its boot and of its namespaces from the kernel. */
#include "host.h"
#include "hash.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

size_t weft__host_boot(char text[HOST_BOOT_ROOM]) {
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, HOST_BOOT_ROOM - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

uint64_t weft__host_id(const char *namespace) {
    char boot[HOST_BOOT_ROOM], path[64];
    struct stat st;
    size_t len = weft__host_boot(boot);
    snprintf(path, sizeof path, "/proc/self/ns/%s", namespace);
    if (len == 0 || stat(path, &st) < 0) return 0;
    uint64_t hash = hash_more(hash_more(HASH_BEGIN, boot, len), &st.st_ino, sizeof st.st_ino);
    return hash ? hash : 1;
}

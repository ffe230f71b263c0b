/* The identity of this host and of this boot of it. */
#ifndef WEFT_BASE_HOST_H
#define WEFT_BASE_HOST_H

#include <stddef.h>
#include <stdint.h>

enum { HOST_BOOT_ROOM = 64 };

/* The kernel's name of this boot, and a 0 behind it. Its length; 0: not known. */
size_t weft__host_boot(char text[HOST_BOOT_ROOM]);
/* The same in all processes of this boot that share that namespace ("net", "pid"), of whatever
 * version: peers compare it. 0: not known. */
uint64_t weft__host_id(const char *namespace);

#endif

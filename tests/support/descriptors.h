/* How many descriptors this process has: for tests that none stays. */
#ifndef WEFT_TESTS_DESCRIPTORS_H
#define WEFT_TESTS_DESCRIPTORS_H

#include <dirent.h>

/* With the one that this looks by, so only a difference says something. */
static inline int n_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir)) n++;
    if (dir) closedir(dir);
    return n;
}

#endif

/*
 * What Weft uses of hwloc 2 (libhwloc.so.15), which is loaded at run time. The layout is that of
 * its header; tests/runtime/hwloc_layout_test.sh checks that.
 */
#ifndef WEFT_RUNTIME_VIEW_HWLOC_LIBRARY_H
#define WEFT_RUNTIME_VIEW_HWLOC_LIBRARY_H

#include <stdint.h>

enum own_hwloc_type {
    OWN_HWLOC_PACKAGE = 1,
    OWN_HWLOC_CORE = 2,
    OWN_HWLOC_L1 = 4,
    OWN_HWLOC_NODE = 13
};

struct own_hwloc_attr {
    uint64_t size; /* of a cache, or of a NUMA node */
};

struct own_hwloc_obj {
    int type;
    char *subtype;
    unsigned os_index;
    char *name;
    uint64_t total_memory;
    struct own_hwloc_attr *attr;
    int depth;
    unsigned logical_index;
    void *cousins[2], *parent;
    unsigned sibling_rank;
    void *siblings[2];
    unsigned arity;
    void *children, *first_child, *last_child;
    int symmetric_subtree;
    unsigned memory_arity;
    void *memory_first_child;
    unsigned io_arity;
    void *io_first_child;
    unsigned misc_arity;
    void *misc_first_child;
    const void *cpuset;
};

struct hwloc_library {
    int (*init)(void **topology);
    int (*load)(void *topology);
    void (*destroy)(void *topology);
    int (*depth_of)(void *topology, int type);
    unsigned (*count)(void *topology, int depth);
    struct own_hwloc_obj *(*object)(void *topology, int depth, unsigned index);
    int (*next)(const void *set, int previous); /* -1: before the first, behind the last */
};

#endif

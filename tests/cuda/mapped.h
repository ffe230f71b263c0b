/* Memory of virtual memory management, as a program makes it: addresses are reserved, and one
 * handle after another is mapped there. */
#ifndef WEFT_TESTS_CUDA_MAPPED_H
#define WEFT_TESTS_CUDA_MAPPED_H

#include <tests/cuda/device.h>

enum { MAPPED_ROOM = 2 * 1024 * 1024, MAPPED_MOST = 70 };

struct mapped_location {
    unsigned kind;
    int id;
};
struct mapped_properties { /* CUmemAllocationProp */
    unsigned kind, handle_types;
    struct mapped_location location;
    void *win32;
    unsigned char flags[16];
};
struct mapped_access {
    struct mapped_location location;
    unsigned flags;
};

/* `n` mappings of MAPPED_ROOM bytes each; as much again is reserved behind them. */
struct mapped {
    unsigned handle_types, n;
    unsigned long long handle[MAPPED_MOST], at;
};

static inline char *mapped_at(const struct mapped *m) {
    return (char *)(uintptr_t)m->at;
}

static inline void mapped_map(struct mapped *m, unsigned i) {
    unsigned (*create)(unsigned long long *, size_t, const struct mapped_properties *,
                       unsigned long long);
    unsigned (*map)(unsigned long long, size_t, size_t, unsigned long long, unsigned long long);
    unsigned (*set_access)(unsigned long long, size_t, const struct mapped_access *, size_t);
    struct mapped_properties properties = {1, m->handle_types, {1, 0}, NULL, {0}};
    struct mapped_access access = {{1, 0}, 3};
    unsigned long long at = m->at + (unsigned long long)i * MAPPED_ROOM;
    *(void **)&create = gpu_symbol(RTLD_DEFAULT, "cuMemCreate");
    *(void **)&map = gpu_symbol(RTLD_DEFAULT, "cuMemMap");
    *(void **)&set_access = gpu_symbol(RTLD_DEFAULT, "cuMemSetAccess");
    CHECK_EQ(create(&m->handle[i], MAPPED_ROOM, &properties, 0), 0);
    CHECK_EQ(map(at, MAPPED_ROOM, 0, m->handle[i], 0), 0);
    CHECK_EQ(set_access(at, MAPPED_ROOM, &access, 1), 0);
}

static inline void mapped_unmap(const struct mapped *m, unsigned i) {
    unsigned (*unmap)(unsigned long long, size_t), (*release)(unsigned long long);
    *(void **)&unmap = gpu_symbol(RTLD_DEFAULT, "cuMemUnmap");
    *(void **)&release = gpu_symbol(RTLD_DEFAULT, "cuMemRelease");
    CHECK_EQ(unmap(m->at + (unsigned long long)i * MAPPED_ROOM, MAPPED_ROOM), 0);
    CHECK_EQ(release(m->handle[i]), 0);
}

static inline struct mapped mapped_new(unsigned handle_types, unsigned n) {
    unsigned (*reserve)(unsigned long long *, size_t, size_t, unsigned long long,
                        unsigned long long);
    struct mapped m = {.handle_types = handle_types, .n = n};
    gpu_load();
    *(void **)&reserve = gpu_symbol(RTLD_DEFAULT, "cuMemAddressReserve");
    CHECK_EQ(reserve(&m.at, (size_t)(n + 1) * MAPPED_ROOM, 0, 0, 0), 0);
    for (unsigned i = 0; i < n; i++) mapped_map(&m, i);
    return m;
}

static inline void mapped_end(const struct mapped *m) {
    unsigned (*free_address)(unsigned long long, size_t);
    *(void **)&free_address = gpu_symbol(RTLD_DEFAULT, "cuMemAddressFree");
    for (unsigned i = 0; i < m->n; i++) mapped_unmap(m, i);
    CHECK_EQ(free_address(m->at, (size_t)(m->n + 1) * MAPPED_ROOM), 0);
}

#endif

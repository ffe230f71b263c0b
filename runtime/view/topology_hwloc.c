/* The topology by hwloc, which is loaded for one call. */
#include "hwloc_library.h"
#include "topology.h"

#include <dlfcn.h>
#include <string.h>

static bool load_library(struct hwloc_library *hwloc, void *library) {
    *(void **)&hwloc->init = dlsym(library, "hwloc_topology_init");
    *(void **)&hwloc->load = dlsym(library, "hwloc_topology_load");
    *(void **)&hwloc->destroy = dlsym(library, "hwloc_topology_destroy");
    *(void **)&hwloc->depth_of = dlsym(library, "hwloc_get_type_depth");
    *(void **)&hwloc->count = dlsym(library, "hwloc_get_nbobjs_by_depth");
    *(void **)&hwloc->object = dlsym(library, "hwloc_get_obj_by_depth");
    *(void **)&hwloc->next = dlsym(library, "hwloc_bitmap_next");
    return hwloc->init && hwloc->load && hwloc->destroy && hwloc->depth_of && hwloc->count &&
           hwloc->object && hwloc->next;
}

/* What each processor of an object has by it. */
static void note(struct topology *topology, const struct own_hwloc_obj *object, int32_t first,
                 int cpu) {
    struct topology_cpu *c = &topology->cpu[cpu];
    int level = object->type - OWN_HWLOC_L1;
    if (object->type == OWN_HWLOC_PACKAGE) c->package = (int32_t)object->os_index;
    if (object->type == OWN_HWLOC_NODE) c->node = (int32_t)object->os_index;
    if (object->type == OWN_HWLOC_CORE) c->core = first, c->known = true;
    if (level < 0 || level >= WEFT_MAX_CACHES) return;
    c->cache[level] = first;
    c->cache_size[level] = object->attr ? object->attr->size : 0;
}

static void read_type(struct topology *topology, const struct hwloc_library *hwloc, void *all,
                      int type) {
    int depth = hwloc->depth_of(all, type);
    for (unsigned i = 0; i < hwloc->count(all, depth); i++) {
        const struct own_hwloc_obj *object = hwloc->object(all, depth, i);
        if (!object || !object->cpuset || object->type != type) continue;
        int first = hwloc->next(object->cpuset, -1);
        for (int cpu = first; cpu >= 0 && cpu < WEFT_MAX_CPUS;
             cpu = hwloc->next(object->cpuset, cpu))
            note(topology, object, first, cpu);
    }
}

static bool read_all(struct topology *topology, const struct hwloc_library *hwloc) {
    void *all;
    if (hwloc->init(&all) != 0) return false;
    bool loaded = hwloc->load(all) == 0;
    for (int level = 0; loaded && level < WEFT_MAX_CACHES; level++)
        read_type(topology, hwloc, all, OWN_HWLOC_L1 + level);
    for (int type = OWN_HWLOC_PACKAGE; loaded && type <= OWN_HWLOC_CORE; type++)
        read_type(topology, hwloc, all, type);
    if (loaded) read_type(topology, hwloc, all, OWN_HWLOC_NODE);
    hwloc->destroy(all);
    topology->source = "hwloc";
    return loaded;
}

bool weft__topology_by_hwloc(struct topology *topology) {
    struct hwloc_library hwloc;
    void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    weft__topology_forget(topology);
    bool read = load_library(&hwloc, library) && read_all(topology, &hwloc);
    dlclose(library);
    return read;
}

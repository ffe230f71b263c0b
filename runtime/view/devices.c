/* The devices that a process reaches: network and RDMA devices by the kernel, GPUs by NVML. */
#include "host.h"

#include <arpa/inet.h>
#include <base/hash.h>
#include <base/numa.h>
#include <dirent.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void copy_name(weft_device_info_t *device, const char *name) {
    snprintf(device->name, sizeof device->name, "%.31s", name);
}

/* A name that its host makes distinct. */
static uint64_t id_on(const weft_resource_set_t *set, const char *name) {
    return hash_more(hash_more(HASH_BEGIN, &set->host_id, sizeof set->host_id), name, strlen(name));
}

/* ---- network ------------------------------------------------------------------------------- */

static weft_device_info_t *network_device(weft_resource_set_t *set, const char *name) {
    for (uint32_t i = 0; i < set->n_network_devices; i++)
        if (strcmp(set->network_device[i].name, name) == 0) return &set->network_device[i];
    if (set->n_network_devices == WEFT_MAX_DEVICES) return NULL;
    weft_device_info_t *device = &set->network_device[set->n_network_devices++];
    copy_name(device, name);
    device->id = id_on(set, name);
    device->numa_node = weft__device_node("/sys/class/net", name);
    return device;
}

static void add_address(weft_resource_set_t *set, const struct ifaddrs *at) {
    bool is_ip =
        at->ifa_addr && (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
    if (!is_ip || (at->ifa_flags & IFF_LOOPBACK) || !(at->ifa_flags & IFF_UP)) return;
    weft_device_info_t *device = network_device(set, at->ifa_name);
    if (!device || device->address[0]) return;
    const void *address = at->ifa_addr->sa_family == AF_INET
                              ? (const void *)&((struct sockaddr_in *)at->ifa_addr)->sin_addr
                              : (const void *)&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr;
    inet_ntop(at->ifa_addr->sa_family, address, device->address, sizeof device->address);
}

static void measure_network(weft_resource_set_t *set) {
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0) return;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) add_address(set, at);
    freeifaddrs(all);
}

/* ---- RDMA ---------------------------------------------------------------------------------- */

static void measure_rdma(weft_resource_set_t *set) {
    DIR *devices = opendir(DEVICE_CLASS);
    if (!devices) return;
    for (const struct dirent *at;
         (at = readdir(devices)) && set->n_rdma_devices < WEFT_MAX_DEVICES;) {
        if (at->d_name[0] == '.') continue;
        weft_device_info_t *device = &set->rdma_device[set->n_rdma_devices++];
        copy_name(device, at->d_name);
        device->id = id_on(set, at->d_name);
        device->numa_node = weft__device_node(DEVICE_CLASS, at->d_name);
    }
    closedir(devices);
}

/* ---- GPUs: the functions of NVML that are used, by its documented interface ---------------- */

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned index, void **device);
    int (*name)(void *device, char *text, unsigned size);
    int (*uuid)(void *device, char *text, unsigned size);
    int (*memory)(void *device, struct nvml_memory *memory);
};

/* Its driver is there if this file is; the library is not looked for otherwise. */
static bool load_nvml(struct nvml *nvml) {
    if (access("/dev/nvidiactl", F_OK) != 0) return false;
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library) return false;
    *(void **)&nvml->init = dlsym(nvml->library, "nvmlInit_v2");
    *(void **)&nvml->shutdown = dlsym(nvml->library, "nvmlShutdown");
    *(void **)&nvml->count = dlsym(nvml->library, "nvmlDeviceGetCount_v2");
    *(void **)&nvml->handle = dlsym(nvml->library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml->name = dlsym(nvml->library, "nvmlDeviceGetName");
    *(void **)&nvml->uuid = dlsym(nvml->library, "nvmlDeviceGetUUID");
    *(void **)&nvml->memory = dlsym(nvml->library, "nvmlDeviceGetMemoryInfo");
    return nvml->init && nvml->shutdown && nvml->count && nvml->handle && nvml->name &&
           nvml->uuid && nvml->memory && nvml->init() == 0;
}

static void add_gpu(weft_resource_set_t *set, const struct nvml *nvml, unsigned index) {
    char name[96] = "", uuid[96] = "";
    struct nvml_memory memory = {0};
    void *handle;
    if (nvml->handle(index, &handle) != 0) return;
    nvml->name(handle, name, sizeof name);
    nvml->uuid(handle, uuid, sizeof uuid);
    nvml->memory(handle, &memory);
    weft_device_info_t *device = &set->gpu[set->n_gpus++];
    copy_name(device, name);
    device->memory = memory.total;
    device->id = hash_more(HASH_BEGIN, uuid, strlen(uuid));
    device->numa_node = -1;
}

static void measure_gpus(weft_resource_set_t *set) {
    struct nvml nvml = {0};
    unsigned n = 0;
    if (load_nvml(&nvml)) {
        nvml.count(&n);
        for (unsigned i = 0; i < n && i < WEFT_MAX_DEVICES; i++) add_gpu(set, &nvml, i);
        nvml.shutdown();
    }
    if (nvml.library) dlclose(nvml.library);
}

void weft__devices_measure(weft_resource_set_t *set) {
    measure_network(set);
    measure_rdma(set);
    measure_gpus(set);
}

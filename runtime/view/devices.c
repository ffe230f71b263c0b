/* The devices that a process reaches: network and RDMA devices by the kernel, GPUs by the CUDA
 * driver where the program uses it, else by NVML. */
#include "host.h"
#include "kernel_text.h"

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
#include <transports/cuda/driver.h>
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

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* A GPU is known by its place on the bus of its host: "0000:3b:00.0", which others write with more
 * zeros and in capitals. */
static void add_gpu(weft_resource_set_t *set, const char *name, uint64_t memory, const char *bus) {
    char path[96], place[32] = "";
    unsigned domain, number, device, function;
    weft_device_info_t *gpu = &set->gpu[set->n_gpus++];
    copy_name(gpu, name);
    gpu->memory = memory;
    gpu->numa_node = -1;
    if (sscanf(bus, "%x:%x:%x.%x", &domain, &number, &device, &function) != 4) return;
    snprintf(place, sizeof place, "%04x:%02x:%02x.%x", domain, number, device, function);
    gpu->id = id_on(set, place);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", place);
    gpu->numa_node = (int32_t)read_number(path, UINT64_MAX);
}

/* As CUDA numbers them, of those that are visible. False: the program has not initialized it. */
static bool measure_by_cuda(weft_resource_set_t *set) {
    const struct cuda_driver *cuda = weft__cuda_driver();
    int n = 0;
    if (!cuda || cuda->device_count(&n) != 0) return false;
    for (int i = 0; i < n && i < WEFT_MAX_DEVICES; i++) {
        char name[96] = "", bus[32] = "";
        size_t memory = 0;
        cuda_device device;
        if (cuda->device_get(&device, i) != 0) continue;
        cuda->device_name(name, sizeof name, device);
        cuda->device_memory(&memory, device);
        cuda->device_bus(bus, sizeof bus, device);
        add_gpu(set, name, memory, bus);
    }
    return true;
}

/* The functions of NVML that are used, by its documented interface. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_place {
    char old_text[16];
    unsigned number[5];
    char text[32];
};
struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned index, void **device);
    int (*name)(void *device, char *text, unsigned size);
    int (*place)(void *device, struct nvml_place *place);
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
    *(void **)&nvml->place = dlsym(nvml->library, "nvmlDeviceGetPciInfo_v3");
    *(void **)&nvml->memory = dlsym(nvml->library, "nvmlDeviceGetMemoryInfo");
    return nvml->init && nvml->shutdown && nvml->count && nvml->handle && nvml->name &&
           nvml->place && nvml->memory && nvml->init() == 0;
}

static void measure_by_nvml(weft_resource_set_t *set) {
    struct nvml nvml = {0};
    unsigned n = 0;
    if (load_nvml(&nvml)) {
        nvml.count(&n);
        for (unsigned i = 0; i < n && i < WEFT_MAX_DEVICES; i++) {
            char name[96] = "";
            struct nvml_memory memory = {0};
            struct nvml_place place = {0};
            void *device;
            if (nvml.handle(i, &device) != 0) continue;
            nvml.name(device, name, sizeof name);
            nvml.place(device, &place);
            nvml.memory(device, &memory);
            place.text[sizeof place.text - 1] = 0;
            add_gpu(set, name, memory.total, place.text);
        }
        nvml.shutdown();
    }
    if (nvml.library) dlclose(nvml.library);
}

void weft__devices_measure(weft_resource_set_t *set) {
    measure_network(set);
    measure_rdma(set);
    if (!measure_by_cuda(set)) measure_by_nvml(set);
}

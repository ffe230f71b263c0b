/* Asks libibverbs and sysfs for devices, ports and GIDs. */
#include "list.h"

#include <arpa/inet.h>
#include <endian.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "device.h"

static void *many(const void *parent, size_t n, size_t size, const char *name) {
    return weft__alloc(parent, n ? n * size : 1, name);
}

/* ---- GIDs */

static const char *gid_type(uint32_t type) {
    static const char *const names[] = {[IBV_GID_TYPE_IB] = "IB",
                                        [IBV_GID_TYPE_ROCE_V1] = "RoCE v1",
                                        [IBV_GID_TYPE_ROCE_V2] = "RoCE v2"};
    return type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

static void describe_gid(const struct ibv_gid_entry *entry, struct rd_listed_gid *gid) {
    const uint8_t *raw = entry->gid.raw;
    bool v4 = entry->gid_type == IBV_GID_TYPE_ROCE_V2 && weft__rd_gid_is_v4(raw);
    gid->index = entry->gid_index;
    gid->type = gid_type(entry->gid_type);
    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? raw + 12 : raw, gid->address, sizeof gid->address);
    if (!entry->ndev_ifindex || !if_indextoname(entry->ndev_ifindex, gid->interface))
        gid->interface[0] = 0;
}

/* Those of one port, of a device's. */
static weft_status_t list_gids(const struct ibv_gid_entry *entry, size_t n,
                               struct rd_listed_port *port, const void *parent) {
    port->gid = many(parent, n, sizeof *port->gid, "RDMA GIDs");
    if (!port->gid) return WEFT_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (entry[i].port_num == port->number) describe_gid(&entry[i], &port->gid[port->n_gids++]);
    return WEFT_OK;
}

/* ---- ports */

static const char *port_state(enum ibv_port_state state) {
    switch (state) {
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "initializing";
    case IBV_PORT_ARMED: return "armed";
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_ACTIVE_DEFER: return "deferred";
    default: return "unknown";
    }
}

static const char *link_name(uint8_t link) {
    return link == IBV_LINK_LAYER_ETHERNET     ? "Ethernet"
           : link == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
                                               : "unspecified";
}

/* Both are one bit of a mask; speeds are of a single lane, in bits per second. */
static double link_rate(uint8_t width, uint8_t speed) {
    static const struct {
        uint8_t bit;
        double of;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}},
      speeds[] = {{1, 2.5e9}, {2, 5e9},   {4, 10e9},  {8, 10e9},
                  {16, 14e9}, {32, 25e9}, {64, 50e9}, {128, 100e9}};
    double lanes = 0, each = 0;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        if (width == widths[i].bit) lanes = widths[i].of;
    for (size_t i = 0; i < sizeof speeds / sizeof speeds[0]; i++)
        if (speed == speeds[i].bit) each = speeds[i].of;
    return lanes * each;
}

static void describe_port(unsigned number, const struct ibv_port_attr *attr,
                          struct rd_listed_port *port) {
    *port = (struct rd_listed_port){
        .number = number,
        .state = port_state(attr->state),
        .link = link_name(attr->link_layer),
        .active_mtu = rd_mtu_bytes(attr->active_mtu),
        .max_mtu = rd_mtu_bytes(attr->max_mtu),
        .bits_per_second = link_rate(attr->active_width, attr->active_speed),
        .lid = attr->lid,
    };
}

/* All entries in use, of all ports, by one question: tables have room for hundreds. */
static struct ibv_gid_entry *ask_gids(struct ibv_context *context, size_t room, const void *parent,
                                      size_t *n_p) {
    struct ibv_gid_entry *entry = many(parent, room, sizeof *entry, "RDMA GID entries");
    ssize_t n = entry && room ? ibv_query_gid_table(context, entry, room, 0) : 0;
    *n_p = n > 0 ? (size_t)n : 0;
    return entry;
}

static weft_status_t list_ports(struct ibv_context *context, unsigned n,
                                struct rd_listed_device *device, const void *parent) {
    struct ibv_port_attr attr;
    size_t room = 0, n_entries;
    weft_status_t st = WEFT_OK;
    device->port = many(parent, n, sizeof *device->port, "RDMA ports");
    if (!device->port) return WEFT_ERR_NO_MEMORY;
    for (unsigned number = 1; number <= n; number++) {
        if (ibv_query_port(context, (uint8_t)number, &attr)) continue;
        describe_port(number, &attr, &device->port[device->n_ports++]);
        room += attr.gid_tbl_len > 0 ? (size_t)attr.gid_tbl_len : 0;
    }
    struct ibv_gid_entry *entry = ask_gids(context, room, parent, &n_entries);
    if (!entry) return WEFT_ERR_NO_MEMORY;
    for (unsigned i = 0; i < device->n_ports && st == WEFT_OK; i++)
        st = list_gids(entry, n_entries, &device->port[i], parent);
    talloc_free(entry);
    return st;
}

/* ---- devices */

static const char *atomics_name(enum ibv_atomic_cap cap) {
    return cap == IBV_ATOMIC_NONE ? "none" : cap == IBV_ATOMIC_HCA ? "hca" : "global";
}

static void describe_device(const char *name, const struct ibv_device_attr *attr,
                            struct rd_listed_device *device) {
    *device = (struct rd_listed_device){
        .guid = be64toh(attr->node_guid),
        .vendor = attr->vendor_id,
        .part = attr->vendor_part_id,
        .software = rd_attr_is_software(attr),
        .windows = attr->device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        .atomics = atomics_name(attr->atomic_cap),
        .queue_pairs = (uint32_t)attr->max_qp,
        .shared_queues = (uint32_t)attr->max_srq,
        .regions = (uint32_t)attr->max_mr,
    };
    snprintf(device->name, sizeof device->name, "%s", name);
    snprintf(device->firmware, sizeof device->firmware, "%.63s", attr->fw_ver);
}

static weft_status_t list_device(struct ibv_device *found, struct rd_list *list) {
    struct ibv_device_attr attr;
    weft_status_t st = WEFT_OK;
    struct ibv_context *context = ibv_open_device(found);
    if (!context) return WEFT_OK;
    if (ibv_query_device(context, &attr) == 0) {
        struct rd_listed_device *device = &list->device[list->n++];
        describe_device(ibv_get_device_name(found), &attr, device);
        st = list_ports(context, attr.phys_port_cnt, device, list);
    }
    ibv_close_device(context);
    return st;
}

weft_status_t weft__rd_list(const void *parent, struct rd_list **list_p) {
    int n = 0;
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    struct rd_list *list = weft__new(parent, struct rd_list);
    struct ibv_device **found =
        list && weft__rd_verbs_load() == WEFT_OK ? ibv_get_device_list(&n) : NULL;
    if (list)
        list->device = many(list, found ? (size_t)n : 0, sizeof *list->device, "RDMA devices");
    if (list && list->device) st = WEFT_OK;
    for (int i = 0; found && i < n && st == WEFT_OK; i++) st = list_device(found[i], list);
    if (found) ibv_free_device_list(found);
    if (st == WEFT_OK)
        *list_p = list;
    else
        talloc_free(list);
    return st;
}

#include "devices.h"

#ifdef WEFT_HAVE_RDMA
#include <inttypes.h>
#include <stdio.h>
#include <transports/rdma/verbs/list.h>

#include "../json/json.h"

struct rd_list *info_devices_of(weft_context_t *context) {
    struct rd_list *list;
    return weft__rd_list(context, &list) == WEFT_OK && list->n ? list : NULL;
}

/* ---- for people */

static const char *yes(bool is) {
    return is ? "yes" : "no";
}

static void print_gid(const struct rd_listed_gid *gid) {
    printf("    gid %-4u %s %s", gid->index, gid->type, gid->address);
    if (gid->interface[0]) printf(" of %s", gid->interface);
    printf("\n");
}

static void print_port(const struct rd_listed_port *port) {
    printf("  port %-8u %s, %s, MTU %u of %u", port->number, port->state, port->link,
           port->active_mtu, port->max_mtu);
    if (port->bits_per_second > 0) printf(", %.1f Gbit/s", port->bits_per_second / 1e9);
    if (port->lid) printf(", LID %u", port->lid);
    printf("\n");
    for (size_t i = 0; i < port->n_gids; i++) print_gid(&port->gid[i]);
}

static void print_device(const struct rd_listed_device *device) {
    printf("RDMA device %s%s\n", device->name, device->software ? ", in software" : "");
    printf("  made by       vendor %#" PRIx32 ", part %" PRIu32 ", firmware %s, GUID %016" PRIx64
           "\n",
           device->vendor, device->part, device->firmware[0] ? device->firmware : "unknown",
           device->guid);
    printf("  limits        queue pairs %" PRIu32 ", shared receive queues %" PRIu32
           ", regions %" PRIu32 ", memory windows %s, atomics %s\n",
           device->queue_pairs, device->shared_queues, device->regions, yes(device->windows),
           device->atomics);
    for (unsigned i = 0; i < device->n_ports; i++) print_port(&device->port[i]);
}

void info_devices(const struct rd_list *list) {
    for (size_t i = 0; list && i < list->n; i++) print_device(&list->device[i]);
}

/* ---- for programs */

static void json_word(const char *key, const char *value) {
    printf("\"%s\":", key);
    json_text(stdout, value);
    putchar(',');
}

static void json_gid(const struct rd_listed_gid *gid) {
    putchar('{');
    json_word("type", gid->type);
    json_word("address", gid->address);
    json_word("interface", gid->interface);
    printf("\"index\":%u}", gid->index);
}

static void json_port(const struct rd_listed_port *port) {
    putchar('{');
    json_word("state", port->state);
    json_word("link_layer", port->link);
    printf("\"number\":%u,\"active_mtu\":%u,\"max_mtu\":%u,\"lid\":%u,\"bits_per_second\":",
           port->number, port->active_mtu, port->max_mtu, port->lid);
    json_number(stdout, port->bits_per_second, 12);
    printf(",\"gids\":[");
    for (size_t i = 0; i < port->n_gids; i++) {
        if (i > 0) putchar(',');
        json_gid(&port->gid[i]);
    }
    printf("]}");
}

static void json_device(const struct rd_listed_device *device) {
    putchar('{');
    json_word("name", device->name);
    json_word("firmware", device->firmware);
    json_word("atomics", device->atomics);
    printf("\"guid\":\"%016" PRIx64 "\",\"vendor\":%" PRIu32 ",\"part\":%" PRIu32, device->guid,
           device->vendor, device->part);
    printf(",\"software\":%s,\"memory_windows\":%s", device->software ? "true" : "false",
           device->windows ? "true" : "false");
    printf(",\"queue_pairs\":%" PRIu32 ",\"shared_receive_queues\":%" PRIu32 ",\"regions\":%" PRIu32
           ",\"ports\":[",
           device->queue_pairs, device->shared_queues, device->regions);
    for (unsigned i = 0; i < device->n_ports; i++) {
        if (i > 0) putchar(',');
        json_port(&device->port[i]);
    }
    printf("]}");
}

void info_devices_json(const struct rd_list *list) {
    putchar('[');
    for (size_t i = 0; i < list->n; i++) {
        if (i > 0) putchar(',');
        json_device(&list->device[i]);
    }
    putchar(']');
}

#else
struct rd_list *info_devices_of(weft_context_t *context) {
    return NULL;
}
void info_devices(const struct rd_list *list) {}
void info_devices_json(const struct rd_list *list) {}
#endif

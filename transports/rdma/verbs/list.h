/* Lists the RDMA devices of this machine with their ports and GIDs, for people. */
#ifndef WEFT_TRANSPORTS_RDMA_VERBS_LIST_H
#define WEFT_TRANSPORTS_RDMA_VERBS_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

struct rd_listed_gid {
    unsigned index;
    const char *type;   /* "RoCE v2", "RoCE v1", "IB" */
    char address[46];   /* of IP where it is an IPv4 or an IPv6 one, else as one */
    char interface[16]; /* of the network; "" for none */
};

struct rd_listed_port {
    unsigned number;
    const char *state, *link; /* "active"; "Ethernet", "InfiniBand" */
    unsigned active_mtu, max_mtu;
    double bits_per_second; /* of the link; 0: of a kind that is not known here */
    uint16_t lid;
    size_t n_gids;
    struct rd_listed_gid *gid;
};

struct rd_listed_device {
    char name[64], firmware[64];
    uint64_t guid;
    uint32_t vendor, part;
    bool software, windows; /* memory windows of type 2 */
    const char *atomics;    /* "none", "hca": among its own, "global" */
    uint32_t queue_pairs, shared_queues, regions;
    unsigned n_ports; /* that could be asked */
    struct rd_listed_port *port;
};

struct rd_list {
    size_t n;
    struct rd_listed_device *device;
};

/* `list_p` is of `parent`, as talloc has it, with all that is in it. A device that cannot be
 * opened is left out; none is no error. */
weft_status_t weft__rd_list(const void *parent, struct rd_list **list_p);

#endif

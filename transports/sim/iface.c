/* A node of the simulated network: addresses, listeners, and lanes dialled in both forms. */
#include "local.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <transports/common.h>

enum { MAGIC = 0x6d695331 }; /* "1Sim" */

/* ---- addresses ------------------------------------------------------------------------------- */

static weft_status_t write_address(const struct sim_iface *iface, uint32_t lane, void *buf,
                                   size_t *len_p) {
    struct sim_address address = {MAGIC, iface->node, iface->incarnation, lane};
    if (*len_p < sizeof address)
        return weft__fail(WEFT_ERR_TRUNCATED, "a sim address takes %zu bytes", sizeof address);
    memcpy(buf, &address, sizeof address);
    *len_p = sizeof address;
    return WEFT_OK;
}

/* A node's address has no lane, and a lane's has one. */
static bool read_address(const void *bytes, size_t len, bool of_lane, struct sim_address *address) {
    if (len != sizeof *address) return false;
    memcpy(address, bytes, sizeof *address);
    return address->magic == MAGIC && address->node < SIM_NODES && (address->lane != 0) == of_lane;
}

unsigned weft__sim_node_of(const void *bytes, size_t len) {
    struct sim_address address;
    return read_address(bytes, len, false, &address) ? address.node : SIM_NODES;
}

static weft_status_t iface_address(struct iface *i, void *buf, size_t *len_p) {
    return write_address((struct sim_iface *)i, 0, buf, len_p);
}

weft_status_t weft__sim_lane_address(struct lane *l, void *buf, size_t *len_p) {
    return write_address((struct sim_iface *)l->iface, ((struct sim_lane *)l)->id, buf, len_p);
}

static weft_status_t reachable_iface(struct iface *i, const void *bytes, size_t len,
                                     const char **why_p) {
    struct sim_fabric *f = ((struct sim_iface *)i)->fabric;
    struct sim_address address;
    *why_p = "not the address of a sim node";
    if (!read_address(bytes, len, false, &address)) return WEFT_ERR_UNREACHABLE;
    *why_p = "that sim node is gone";
    const struct sim_iface *peer = f->node[address.node];
    if (!peer || peer->incarnation != address.incarnation) return WEFT_ERR_UNREACHABLE;
    return WEFT_OK;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static struct sim_lane *lane_new(struct sim_iface *iface, bool scarce) {
    return weft__sim_lane_new(iface, scarce, (uint64_t)iface->node << 32 | ++iface->n_dialled,
                              weft__sim_announce_up);
}

/* Over datagrams a lane needs no answer; `up` comes by the lane's job. */
static void dial_lane(struct sim_lane *lane, uint32_t node, uint32_t incarnation, uint32_t remote) {
    lane->remote_node = (uint16_t)node;
    lane->remote_incarnation = incarnation;
    lane->remote = remote;
    if (lane->fabric->profile.reliable) {
        struct sim_packet *hello = lane->hello;
        lane->hello = NULL;
        hello->kind = SIM_CONNECT;
        weft__sim_send(lane, hello);
    } else {
        weft__sim_lane_post(lane, SIM_LANE_EV_ANSWERED, WEFT_OK);
    }
    weft__fsm_step(&lane->fsm, SIM_LANE_EV_DIAL);
    weft__job_post(lane->lane.iface->reactor, &lane->job);
}

static weft_status_t connect_kind(struct sim_iface *iface, bool scarce, const void *bytes,
                                  size_t len, struct lane **lane_p) {
    struct sim_address address;
    if (!read_address(bytes, len, false, &address))
        return weft__fail(WEFT_ERR_ADDRESS, "not the address of a sim node");
    struct sim_lane *lane = lane_new(iface, scarce);
    if (!lane) return WEFT_ERR_NO_MEMORY;
    dial_lane(lane, address.node, address.incarnation, 0);
    *lane_p = &lane->lane;
    return WEFT_OK;
}

static weft_status_t connect_iface(struct iface *i, const void *bytes, size_t len,
                                   struct lane **lane_p) {
    return connect_kind((struct sim_iface *)i, false, bytes, len, lane_p);
}

static weft_status_t connect_scarce(struct iface *i, const void *bytes, size_t len,
                                    struct lane **lane_p) {
    struct sim_iface *iface = (struct sim_iface *)i;
    if (!sim_has_room(iface, true))
        return weft__fail(WEFT_ERR_QUOTA, "all %u scarce lanes of this sim node are in use",
                          i->attr.scarce);
    return connect_kind(iface, true, bytes, len, lane_p);
}

static weft_status_t lane_create(struct iface *i, struct lane **lane_p) {
    struct sim_lane *lane = lane_new((struct sim_iface *)i, false);
    if (!lane) return WEFT_ERR_NO_MEMORY;
    *lane_p = &lane->lane;
    return WEFT_OK;
}

weft_status_t weft__sim_lane_connect(struct lane *l, const void *bytes, size_t len) {
    struct sim_lane *lane = (struct sim_lane *)l;
    struct sim_address address;
    if (!read_address(bytes, len, true, &address))
        return weft__fail(WEFT_ERR_ADDRESS, "not the address of a sim lane");
    if (!sim_lane_is_new(&lane->fsm) || (lane->remote && lane->remote != address.lane))
        return weft__fail(WEFT_ERR_BUSY, "this sim lane was connected before");
    dial_lane(lane, address.node, address.incarnation, address.lane);
    return WEFT_OK;
}

/* ---- listeners: names are known to the whole network ----------------------------------------- */

struct tl_listener *weft__sim_listener(const struct sim_fabric *f, uint32_t id) {
    struct tl_listener *l = f->listeners;
    while (l && l->id != id) l = l->next;
    return l;
}

static struct tl_listener *find_listener(const struct sim_fabric *f, const char *name) {
    struct tl_listener *l = f->listeners;
    while (l && strcmp(l->name, name) != 0) l = l->next;
    return l;
}

static weft_status_t connect_uri(struct iface *i, const char *where, struct lane **lane_p) {
    struct sim_iface *iface = (struct sim_iface *)i;
    struct tl_listener *l = find_listener(iface->fabric, where);
    struct sim_lane *lane = lane_new(iface, false);
    if (!lane) return WEFT_ERR_NO_MEMORY;
    if (l) {
        lane->listener = l->id;
        dial_lane(lane, l->iface->node, l->iface->incarnation, 0);
    } else {
        weft__fsm_step(&lane->fsm, SIM_LANE_EV_DIAL);
        weft__sim_lane_post(lane, SIM_LANE_EV_REFUSED, WEFT_ERR_REFUSED);
    }
    *lane_p = &lane->lane;
    return WEFT_OK;
}

static weft_status_t name_listener(struct tl_listener *l, const char *where) {
    bool any = strcmp(where, "0") == 0;
    l->name = any ? talloc_asprintf(l, "%u", 1000000 + l->id) : talloc_strdup(l, where);
    if (l->name) l->uri = talloc_asprintf(l, "sim://%s", l->name);
    return l->uri ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

static weft_status_t listen_uri(struct iface *i, const char *where, const struct listen_how *how,
                                void *arg, struct tl_listener **listener_p) {
    struct sim_iface *iface = (struct sim_iface *)i;
    struct sim_fabric *f = iface->fabric;
    if (find_listener(f, where)) return weft__fail(WEFT_ERR_EXISTS, "sim://%s is taken", where);
    struct tl_listener *l = weft__new(iface, struct tl_listener);
    if (!l) return WEFT_ERR_NO_MEMORY;
    l->iface = iface;
    l->id = ++f->n_listeners;
    l->arg = arg;
    if (name_listener(l, where) < 0) {
        talloc_free(l);
        return WEFT_ERR_NO_MEMORY;
    }
    l->next = f->listeners;
    f->listeners = l;
    *listener_p = l;
    return WEFT_OK;
}

static const char *listener_uri(const struct tl_listener *listener) {
    return listener->uri;
}

static void listener_close(struct tl_listener *listener) {
    struct tl_listener **at = &listener->iface->fabric->listeners;
    while (*at != listener) at = &(*at)->next;
    *at = listener->next;
    talloc_free(listener);
}

/* ---- the iface ------------------------------------------------------------------------------- */

static void iface_close(struct iface *i) {
    struct sim_iface *iface = (struct sim_iface *)i;
    iface->fabric->node[iface->node] = NULL;
    /* accepted, and left alone by a window */
    while (iface->lanes) weft__sim_lane_free(iface->lanes);
    weft__sim_mem_close(iface);
    weft__sim_arrivals_drop(iface);
    weft__timer_stop(i->reactor, &iface->arrival);
    weft__job_drop(i->reactor, &iface->rearm);
    weft__free_later(i->reactor, iface);
}

static const struct iface_mem_ops mem_ops = {.mem_register = weft__sim_mem_register,
                                             .mem_revoke = weft__sim_mem_revoke,
                                             .key_pack = weft__sim_key_pack};
static const struct iface_bulk_ops bulk_ops = {.put_done = weft__sim_put_done,
                                               .put_stop = weft__sim_put_stop};

#define OPS(scarce, mem_, bulk_)                                                          \
    {                                                                                     \
        .address = iface_address, .reachable = reachable_iface, .connect = connect_iface, \
        .connect_scarce = scarce, .connect_uri = connect_uri, .listen = listen_uri,       \
        .listener_uri = listener_uri, .listener_close = listener_close,                   \
        .lane_create = lane_create, .close = iface_close, .mem = mem_, .bulk = bulk_      \
    }
/* by whether there are scarce lanes, and exposed memory */
static const struct iface_ops ops_of[2][2] = {
    {OPS(NULL, NULL, NULL), OPS(NULL, &mem_ops, &bulk_ops)},
    {OPS(connect_scarce, NULL, NULL), OPS(connect_scarce, &mem_ops, &bulk_ops)}};

static struct iface_attr attr_of(const struct sim_profile *is) {
    struct iface_attr attr = {.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY |
                                      CAP_CONNECT_TO_IFACE | CAP_CONNECT_TO_LANE | CAP_LISTEN |
                                      CAP_WAKEUP | CAP_INTER_NODE,
                              .max_short = SIM_HEADER - 8,
                              .max_bcopy = SIM_BCOPY,
                              .max_zcopy = SIM_ZCOPY,
                              .max_zcopy_header = SIM_HEADER,
                              .max_iov = SIM_IOV,
                              .latency_ns = (double)is->latency_ns,
                              .bandwidth = 10e9,
                              .overhead_ns = 100,
                              .scarce = is->scarce};
    if (is->reliable) {
        attr.caps |= CAP_RELIABLE | CAP_PEER_DEATH | CAP_PLACE;
        attr.runs = true;
        if (is->exposes) attr.caps |= CAP_EXPOSE;
        attr.maps_any = is->exposes;
        return attr;
    }
    if (attr.max_short > is->mtu - 8) attr.max_short = is->mtu - 8;
    if (attr.max_zcopy_header > is->mtu - 128) attr.max_zcopy_header = is->mtu - 128;
    attr.max_bcopy = is->mtu;
    attr.max_zcopy = is->mtu - attr.max_zcopy_header;
    return attr;
}

static void rearm(struct job *job) {
    weft__sim_expect(container_of(job, struct sim_iface, rearm));
}

static weft_status_t open_on(bool fast, struct reactor *r, const struct iface_params *params,
                             struct iface **iface_p) {
    struct sim_fabric *f = weft__sim_in_use(fast);
    unsigned node = 0;
    if (!f)
        return weft__fail(WEFT_ERR_UNREACHABLE, "no simulated network was chosen on this thread");
    while (node < SIM_NODES && f->node[node]) node++;
    if (node == SIM_NODES)
        return weft__fail(WEFT_ERR_TOO_BIG, "a sim network has %d nodes at most", SIM_NODES);
    struct sim_iface *iface = weft__new(r, struct sim_iface);
    if (!iface) return WEFT_ERR_NO_MEMORY;
    iface_init(&iface->iface, &ops_of[f->profile.scarce != 0][f->profile.exposes],
               fast ? &weft__transport_simfast : &weft__transport_sim,
               f->profile.reliable ? "reliable" : "datagram", r, params);
    iface->iface.attr = attr_of(&f->profile);
    iface->fabric = f;
    iface->node = (uint16_t)node;
    iface->incarnation = ++f->n_incarnations;
    iface->arrival.fire = weft__sim_arrival;
    iface->rearm.run = rearm;
    iface->parting.run = weft__sim_parting;
    f->node[node] = iface;
    f->dead[node] = false;
    *iface_p = &iface->iface;
    return WEFT_OK;
}

static weft_status_t open_base(struct reactor *r, const struct iface_params *params,
                               struct iface **iface_p) {
    return open_on(false, r, params, iface_p);
}
static weft_status_t open_fast(struct reactor *r, const struct iface_params *params,
                               struct iface **iface_p) {
    return open_on(true, r, params, iface_p);
}

const struct transport weft__transport_sim = {.name = "sim", .open = open_base};
const struct transport weft__transport_simfast = {.name = "simfast", .open = open_fast};

/* Finds a device, opens it for a worker, and detects its removal. */
#include "device.h"

#include <base/numa.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static LIST_HEAD(, rd_device) all = LIST_HEAD_INITIALIZER(all);
/* Workers of other threads have devices of their own in the list. Taken on opening and closing
 * only. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t all_once = PTHREAD_ONCE_INIT;

static void lock_all(void) {
    pthread_mutex_lock(&all_lock);
}

static void unlock_all(void) {
    pthread_mutex_unlock(&all_lock);
}

/* No child inherits the lock from a thread that did not come with it. */
static void heed_forks(void) {
    pthread_atfork(lock_all, unlock_all, unlock_all);
}

/* ---- what went wrong ------------------------------------------------------------------------- */

weft_status_t weft__rd_status_of_errno(int error) {
    switch (error) {
    case EAGAIN: return WEFT_ERR_NO_MEMORY;
    case ENODEV:
    case ENOSYS:
    case EOPNOTSUPP: return WEFT_ERR_UNSUPPORTED;
    case EFAULT: return WEFT_ERR_INVALID_PARAM;
    default: return weft__errno_status(error);
    }
}

weft_status_t weft__rd_status_of_wc(enum ibv_wc_status status) {
    switch (status) {
    case IBV_WC_SUCCESS: return WEFT_OK;
    case IBV_WC_WR_FLUSH_ERR: return WEFT_ERR_CANCELLED;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_REM_OP_ERR: return WEFT_ERR_PEER_FAILED;
    case IBV_WC_REM_ACCESS_ERR: return WEFT_ERR_REVOKED;
    default: return WEFT_ERR_IO;
    }
}

weft_status_t weft__rd_fail(const char *what, int error) {
    return weft__fail(weft__rd_status_of_errno(error), "%s: %s", what, strerror(error));
}

static bool set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* ---- which device, port and GID -------------------------------------------------------------- */

/* RoCE v2 is routed; an IPv4 address is what most hosts have. 0: of no use. */
static int verdict(const struct ibv_gid_entry *entry) {
    const uint8_t *gid = entry->gid.raw;
    switch (entry->gid_type) {
    case IBV_GID_TYPE_ROCE_V2:
        return weft__rd_gid_is_v4(gid) ? 4 : weft__rd_gid_is_link_local(gid) ? 2 : 3;
    case IBV_GID_TYPE_ROCE_V1: return 1;
    default: return entry->gid_index == 0;
    }
}

/* All entries in use, by one question: a table has room for hundreds. To be freed. */
static struct ibv_gid_entry *ask_gids(const struct rd_device *d, ssize_t *n_p) {
    size_t room = (size_t)d->attr.phys_port_cnt * (size_t)d->port_attr.gid_tbl_len;
    struct ibv_gid_entry *entry =
        room ? weft__alloc(d, room * sizeof *entry, "RDMA GID entries") : NULL;
    *n_p = entry ? ibv_query_gid_table(d->context, entry, room, 0) : 0;
    return entry;
}

/* An address vector can name it. */
static bool is_of_port(const struct rd_device *d, const struct ibv_gid_entry *entry) {
    return entry->port_num == d->port && entry->gid_index <= UINT8_MAX;
}

static void take_gid(struct rd_device *d, const struct ibv_gid_entry *entry) {
    bool local = weft__rd_gid_is_link_local(entry->gid.raw);
    d->gid_index = (uint8_t)entry->gid_index;
    d->gid_type = entry->gid_type;
    memcpy(d->place.gid, entry->gid.raw, sizeof d->place.gid);
    if (weft__rd_gid_is_v4(entry->gid.raw)) {
        d->ip = (union rd_sockaddr){.v4.sin_family = AF_INET};
        memcpy(&d->ip.v4.sin_addr, entry->gid.raw + 12, 4);
    } else {
        d->ip = (union rd_sockaddr){.v6.sin6_family = AF_INET6,
                                    .v6.sin6_scope_id = local ? entry->ndev_ifindex : 0};
        memcpy(&d->ip.v6.sin6_addr, entry->gid.raw, 16);
    }
}

static bool choose_gid(struct rd_device *d) {
    const struct ibv_gid_entry *best = NULL;
    ssize_t n;
    struct ibv_gid_entry *entry = ask_gids(d, &n);
    for (ssize_t i = 0; i < n; i++)
        if (is_of_port(d, &entry[i]) && verdict(&entry[i]) > (best ? verdict(best) : 0))
            best = &entry[i];
    if (best) take_gid(d, best);
    talloc_free(entry);
    return best;
}

static bool is_ours(const struct rd_device *d, const struct ibv_gid_entry *entry) {
    return is_of_port(d, entry) && entry->gid_type == d->gid_type &&
           memcmp(entry->gid.raw, d->place.gid, sizeof d->place.gid) == 0;
}

/* An address that goes and comes back, as IPv6's do with their interface, may have another place
 * in the table: the old one is not free before the last queue pair and address handle made by
 * it. While it is away its index stays as it was. */
static void find_gid_again(struct rd_device *d) {
    ssize_t n;
    uint32_t index = d->gid_index;
    struct ibv_gid_entry *entry = ask_gids(d, &n);
    for (ssize_t i = 0; i < n; i++) {
        if (!is_ours(d, &entry[i])) continue;
        index = entry[i].gid_index;
        if (index == d->gid_index) break; /* it never left */
    }
    d->gid_index = (uint8_t)index;
    talloc_free(entry);
}

static bool choose_port(struct rd_device *d, unsigned wanted) {
    for (unsigned port = 1; port <= d->attr.phys_port_cnt; port++) {
        if ((wanted && port != wanted) || ibv_query_port(d->context, (uint8_t)port, &d->port_attr))
            continue;
        bool infiniband = d->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET;
        if (d->port_attr.state != IBV_PORT_ACTIVE) continue;
        d->port = (uint8_t)port;
        d->place.link = infiniband ? RD_LINK_INFINIBAND : RD_LINK_ROCE;
        d->place.lid = infiniband ? d->port_attr.lid : 0;
        d->place.mtu = (uint8_t)d->port_attr.active_mtu;
        if (!choose_gid(d)) continue;
        if (infiniband) memset(&d->ip, 0, sizeof d->ip); /* a GID there is no IP address */
        return true;
    }
    return false;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void close_context(struct rd_device *d) {
    struct reactor *r = d->reactor;
    weft__rd_cm_end(&d->guard);
    weft__watch_stop(r, &d->cm_watch);
    if (d->channel) rdma_destroy_event_channel(d->channel);
    weft__watch_stop(r, &d->async);
    if (d->pd && !d->given && ibv_dealloc_pd(d->pd))
        weft__log(weft__reactor_context(r), WEFT_LOG_ERROR, "rdma",
                  "%s: objects of the device could not be freed", d->name);
    if (d->context && !d->given) ibv_close_device(d->context);
    d->channel = NULL;
    d->pd = NULL;
    d->context = NULL;
}

/* librdmacm has a context of its own for the device, once for the process, and closes it when it
 * looks for devices and finds others. The kernel would wait for that one, too, perhaps for ever:
 * so when the last of our ids is gone its files are made files of nothing. */
static void release_from_rdmacm(struct rd_device *d) {
    struct ibv_context *kept;
    struct rd_device *other;
    int nothing = -1;
    lock_all();
    kept = d->kept;
    d->kept = NULL;
    LIST_FOREACH(other, &all, of_all)
    if (other->kept == kept) break;
    if (kept && !other) nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing >= 0) {
        dup3(nothing, kept->cmd_fd, O_CLOEXEC);
        dup3(nothing, kept->async_fd, O_CLOEXEC);
        close(nothing);
    }
    unlock_all();
}

static void device_gone(struct rd_device *d) {
    struct rd_user *user, *next;
    if (d->gone) return;
    d->gone = true;
    d->refs++; /* until this is over */
    weft__log(weft__reactor_context(d->reactor), WEFT_LOG_WARN, "rdma", "device %s was removed",
              d->name);
    for (user = LIST_FIRST(&d->users); user; user = next) {
        next = LIST_NEXT(user, of_device);
        user->gone(user);
    }
    close_context(d); /* the kernel waits for that */
    release_from_rdmacm(d);
    weft__rd_device_drop(d, NULL);
}

void weft__rd_device_reports(struct rd_device *d, const struct ibv_async_event *event) {
    struct rd_user *user, *next;
    weft__log(weft__reactor_context(d->reactor), WEFT_LOG_INFO, "rdma", "%s: %s", d->name,
              ibv_event_type_str(event->event_type));
    if (event->event_type == IBV_EVENT_DEVICE_FATAL) return device_gone(d);
    if (event->event_type == IBV_EVENT_GID_CHANGE || event->event_type == IBV_EVENT_PORT_ACTIVE)
        find_gid_again(d);
    for (user = LIST_FIRST(&d->users); user; user = next) {
        next = LIST_NEXT(user, of_device);
        user->event(user, event);
    }
    if (d->given && d->given->event) d->given->event(event, d->given->arg);
}

static void async_ready(struct watch *watch, int events) {
    struct rd_device *d = container_of(watch, struct rd_device, async);
    struct ibv_async_event event;
    while (d->context && ibv_get_async_event(d->context, &event) == 0) {
        ibv_ack_async_event(&event);
        weft__rd_device_reports(d, &event);
    }
}

static void guard_event(struct rd_cm *cm, const struct rdma_cm_event *event) {
    if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
        device_gone(container_of(cm, struct rd_device, guard));
}

/* ---- rdmacm ---------------------------------------------------------------------------------- */

static void cm_ready(struct watch *watch, int events) {
    struct rd_device *d = container_of(watch, struct rd_device, cm_watch);
    struct rdma_cm_event *event;
    while (d->channel && rdma_get_cm_event(d->channel, &event) == 0) {
        struct rdma_cm_event copy = *event;
        uint8_t data[256]; /* its length is a byte */
        bool datagram = event->id->ps == RDMA_PS_UDP;
        const void *from = datagram ? event->param.ud.private_data : event->param.conn.private_data;
        uint8_t len =
            datagram ? event->param.ud.private_data_len : event->param.conn.private_data_len;
        if (from && len) memcpy(data, from, len);
        if (datagram)
            copy.param.ud.private_data = data;
        else
            copy.param.conn.private_data = data;
        struct rd_cm *cm =
            (event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id)->context;
        rdma_ack_cm_event(event);
        cm->event(cm, &copy);
    }
}

weft_status_t weft__rd_cm_open(struct rd_device *d, struct rd_cm *cm, enum rdma_port_space space) {
    if (!d->channel)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "librdmacm has no device file (load the kernel module rdma_ucm)");
    if (rdma_create_id(d->channel, &cm->id, cm, space)) {
        cm->id = NULL;
        return weft__rd_fail("rdma_create_id", errno);
    }
    return WEFT_OK;
}

void weft__rd_cm_adopt(struct rd_cm *cm, struct rdma_cm_id *id) {
    cm->id = id;
    id->context = cm;
}

void weft__rd_cm_end(struct rd_cm *cm) {
    if (cm->id) rdma_destroy_id(cm->id);
    cm->id = NULL;
}

/* Without rdmacm a removal is reported by DEVICE_FATAL only, and connections by its addresses
 * are not available. */
static weft_status_t open_channel(struct rd_device *d) {
    d->channel = rdma_create_event_channel();
    if (!d->channel) return WEFT_OK;
    if (!set_nonblocking(d->channel->fd)) return weft__rd_fail("fcntl", errno);
    d->cm_watch.ready = cm_ready;
    weft_status_t st = weft__watch_start(d->reactor, &d->cm_watch, d->channel->fd, WATCH_READ);
    if (st < 0 || !d->ip.any.sa_family) return st;
    d->guard.event = guard_event;
    st = weft__rd_cm_open(d, &d->guard, RDMA_PS_TCP);
    if (st == WEFT_OK && rdma_bind_addr(d->guard.id, &d->ip.any)) weft__rd_cm_end(&d->guard);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The program's context, which has its PD, or a new one. */
static weft_status_t open_context(struct rd_device *d, struct ibv_device *found) {
    d->given = weft__reactor_given(d->reactor);
    if (d->given && !d->given->pd) d->given = NULL;
    d->context = d->given ? d->given->pd->context : ibv_open_device(found);
    int error = d->context ? ibv_query_device(d->context, &d->attr) : errno;
    return error ? weft__rd_fail(ibv_get_device_name(found), error) : WEFT_OK;
}

/* Asynchronous events of the program's context are read only if it asked for that. */
static weft_status_t watch_events(struct rd_device *d) {
    if (d->given && !d->given->event) return WEFT_OK;
    if (!set_nonblocking(d->context->async_fd)) return weft__rd_fail("fcntl", errno);
    d->async.ready = async_ready;
    return weft__watch_start(d->reactor, &d->async, d->context->async_fd, WATCH_READ);
}

static weft_status_t open_one(struct reactor *r, struct ibv_device *found, unsigned port,
                              struct rd_device **device_p) {
    struct rd_device *d = weft__new(r, struct rd_device);
    if (!d) return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a device");
    d->reactor = r;
    LIST_INIT(&d->users);
    weft_status_t st = open_context(d, found);
    if (st < 0) goto fail;
    if (!choose_port(d, port)) {
        st = weft__fail(WEFT_ERR_UNREACHABLE, "%s has no active port with an address",
                        ibv_get_device_name(found));
        goto fail;
    }
    snprintf(d->name, sizeof d->name, "%s:%u", ibv_get_device_name(found), d->port);
    d->windows = d->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    d->pd = d->given ? d->given->pd : ibv_alloc_pd(d->context);
    st = d->pd ? watch_events(d) : weft__rd_fail("ibv_alloc_pd", errno);
    if (st == WEFT_OK) st = open_channel(d);
    if (st < 0) goto fail;
    *device_p = d;
    return WEFT_OK;

fail:
    close_context(d);
    talloc_free(d);
    return st;
}

/* "name" or "name:port"; empty: any. */
static bool is_wanted(const char *wanted, const char *name, unsigned *port_p) {
    size_t len = strcspn(wanted, ":");
    *port_p = wanted[len] ? (unsigned)strtoul(wanted + len + 1, NULL, 10) : 0;
    return !*wanted || (strlen(name) == len && memcmp(name, wanted, len) == 0);
}

/* "near": those beside the first processor of this process come before the others. */
static bool comes_in(int pass, bool near, const char *name, int node) {
    bool beside = near && node >= 0 && weft__device_node(DEVICE_CLASS, name) == node;
    return near ? beside == (pass == 0) : pass == 0;
}

static weft_status_t open_one_of(struct reactor *r, struct ibv_device **list, int n,
                                 const char *wanted, struct rd_device **device_p) {
    bool near = strcmp(wanted, "near") == 0;
    int node = near ? weft__own_node(PROCESSORS) : -1;
    for (int i = 0; i < 2 * n; i++) {
        unsigned port = 0;
        const char *name = ibv_get_device_name(list[i % n]);
        if (!comes_in(i / n, near, name, node) || (!near && !is_wanted(wanted, name, &port)))
            continue;
        weft_status_t st = open_one(r, list[i % n], port, device_p);
        if (st == WEFT_OK || st == WEFT_ERR_NO_MEMORY) return st;
    }
    return WEFT_ERR_UNSUPPORTED;
}

static weft_status_t open_first(struct reactor *r, struct rd_device **device_p) {
    const char *wanted = weft__setting_str(weft__reactor_context(r), SETTING_RDMA_DEVICE);
    int n = 0;
    weft_status_t st = weft__rd_verbs_load();
    if (st < 0) {
        weft__log(weft__reactor_context(r), WEFT_LOG_INFO, "rdma",
                  "RDMA's libraries cannot be loaded");
        return st;
    }
    const struct given *given = weft__reactor_given(r);
    unsigned of_setting;
    if (given && given->pd) {
        struct ibv_device *of = given->pd->context->device;
        bool names = is_wanted(wanted, ibv_get_device_name(of), &of_setting);
        return open_one(r, of, names ? of_setting : 0, device_p);
    }
    struct ibv_device **list = ibv_get_device_list(&n);
    st = WEFT_ERR_UNSUPPORTED;
    if (n == 0) weft__fail(st, "there is no RDMA device");
    if (list) st = open_one_of(r, list, n, wanted, device_p);
    if (list) ibv_free_device_list(list);
    if (st == WEFT_ERR_UNSUPPORTED) {
        weft__log(weft__reactor_context(r), WEFT_LOG_INFO, "rdma", "%s",
                  n == 0 ? "there is no RDMA device"
                         : "no RDMA device is usable (see rdma.device)");
        if (n)
            weft__fail_in(st, "none of %d RDMA devices is usable; rdma.device is \"%s\"", n,
                          wanted);
    }
    return st;
}

weft_status_t weft__rd_device_hold(struct reactor *r, struct rd_user *user,
                                   struct rd_device **device_p) {
    struct rd_device *d;
    weft_status_t st = WEFT_OK;
    pthread_once(&all_once, heed_forks);
    lock_all();
    LIST_FOREACH(d, &all, of_all)
    if (d->reactor == r && !d->gone) break;
    if (!d) {
        st = open_first(r, &d);
        if (st == WEFT_OK) {
            d->kept = d->guard.id ? d->guard.id->verbs : NULL;
            LIST_INSERT_HEAD(&all, d, of_all);
        }
    }
    unlock_all();
    if (st < 0) return st;
    d->refs++;
    LIST_INSERT_HEAD(&d->users, user, of_device);
    *device_p = d;
    return WEFT_OK;
}

void weft__rd_device_drop(struct rd_device *d, struct rd_user *user) {
    if (!d) return;
    if (user) LIST_REMOVE(user, of_device);
    if (--d->refs) return;
    close_context(d);
    lock_all();
    LIST_REMOVE(d, of_all);
    unlock_all();
    weft__free_later(d->reactor, d);
}

/* ---- reaching a peer ------------------------------------------------------------------------- */

bool weft__rd_reach(const struct rd_device *d, const struct rd_place *peer,
                    struct ibv_ah_attr *attr_p) {
    if (peer->link != d->place.link) return false;
    bool roce = peer->link == RD_LINK_ROCE, other_subnet = memcmp(peer->gid, d->place.gid, 8) != 0;
    *attr_p = (struct ibv_ah_attr){.dlid = peer->lid, .port_num = d->port};
    if (!roce && !other_subnet) return true;
    attr_p->is_global = 1;
    attr_p->grh.sgid_index = d->gid_index;
    attr_p->grh.hop_limit = 64;
    memcpy(attr_p->grh.dgid.raw, peer->gid, sizeof peer->gid);
    return true;
}

enum ibv_mtu weft__rd_mtu(const struct rd_device *d, const struct rd_place *peer) {
    return (enum ibv_mtu)(peer->mtu < d->place.mtu ? peer->mtu : d->place.mtu);
}

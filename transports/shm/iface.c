/* The interface: its memory, its address, its listeners. */
#include "cost.h"
#include "ops.h"
#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <transports/common.h>
#include <transports/shm/attach/attach.h>
#include <transports/shm/attach/handshake.h>
#include <transports/shm/memory/process_globals.h>
#include <transports/shm/rma/key.h>
#include <unistd.h>

enum { REST_MS = 50, SLOT_SHARE = 2, ACCEPTED_AT_ONCE = 16 };

struct tl_listener {
    struct shm_iface *iface;
    struct watch watch;
    struct timer rest; /* until it accepts again, after it ran out of descriptors */
    int fd;
    unsigned at_once; /* connections that one event accepts, at most */
    void *arg;
    char path[SHM_PATH_SIZE];
    char uri[120];
};

/* ---- listeners ------------------------------------------------------------------------------- */

static void begin_handshake(struct tl_listener *listener, int fd) {
    struct shm_iface *iface = listener->iface;
    struct shm_lane *lane = weft__shm_lane_new(iface);
    if (!lane) {
        weft__shm_send_word(fd, SHM_NO, WEFT_ERR_NO_MEMORY);
        close(fd);
        return;
    }
    lane->more->listener = listener;
    lane->more->listen_arg = listener->arg;
    weft_status_t st = weft__shm_handshake(lane, fd);
    if (st == WEFT_OK) {
        weft__shm_read(&lane->watch, WATCH_READ); /* usually the handshake is there already */
        return;
    }
    weft__log_limited(weft__reactor_context(iface->iface.reactor), WEFT_LOG_WARN, "shm",
                      "refused a connection: %s", weft_status_name(st));
    weft__shm_send_word(fd, SHM_NO, st);
    weft__shm_lane_free(lane);
}

/* No connection can be accepted now. Stops the watch until a timer fires, if a timer can be had. */
static void pause_accepting(struct tl_listener *listener) {
    struct reactor *r = listener->iface->iface.reactor;
    if (weft__timer_start(r, &listener->rest, weft__now(r) + REST_MS * NS_PER_MS) == WEFT_OK)
        weft__watch_change(r, &listener->watch, 0);
}

/* Usually one connection comes alone. While more come, one event accepts more. */
static void accept_ready(struct watch *watch, int events) {
    struct tl_listener *listener = container_of(watch, struct tl_listener, watch);
    struct reactor *r = listener->iface->iface.reactor;
    /* A callback of the first connection may close the listener. */
    for (unsigned left = listener->at_once; left > 0 && watch->events; left--) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            begin_handshake(listener, fd);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR) continue;
        if (errno == EAGAIN) {
            listener->at_once = 1;
            return;
        }
        weft__log_limited(weft__reactor_context(r), WEFT_LOG_WARN, "shm", "accept: %s",
                          strerror(errno));
        pause_accepting(listener);
        return;
    }
    if (listener->at_once < ACCEPTED_AT_ONCE) listener->at_once *= 2;
}

static void rested(struct timer *timer) {
    struct tl_listener *listener = container_of(timer, struct tl_listener, rest);
    if (weft__watch_change(listener->iface->iface.reactor, &listener->watch, WATCH_READ) < 0)
        pause_accepting(listener);
}

/* Unlinks the name first: after the close, another process may have the name. */
static void hang_up(struct tl_listener *listener) {
    unlink(listener->path);
    shutdown(listener->fd, SHUT_RDWR); /* a child that no fork handler saw shares it */
    weft__fork_closes(listener->fd, false);
    close(listener->fd);
}

static weft_status_t listener_open(struct shm_iface *iface, const char *name, bool own, int backlog,
                                   void *arg, struct tl_listener **listener_p) {
    struct tl_listener *listener = weft__new(iface, struct tl_listener);
    if (!listener) return WEFT_ERR_NO_MEMORY;
    *listener = (struct tl_listener){.iface = iface, .fd = -1, .at_once = 1, .arg = arg};
    listener->watch.ready = accept_ready;
    listener->rest.fire = rested;
    snprintf(listener->uri, sizeof listener->uri, "shm://%s", name);
    weft_status_t st =
        weft__shm_directory(weft__reactor_context(iface->iface.reactor), iface->self.directory);
    if (st == WEFT_OK) st = weft__shm_path(iface->self.directory, name, listener->path);
    if (st == WEFT_OK) st = weft__shm_bind(listener->path, own, backlog, &listener->fd);
    if (st == WEFT_OK) {
        weft__fork_closes(listener->fd, true);
        st = weft__watch_start(iface->iface.reactor, &listener->watch, listener->fd, WATCH_READ);
        if (st < 0) hang_up(listener);
    }
    if (st < 0) {
        talloc_free(listener);
        return st;
    }
    weft__shm_sweep(iface->self.directory);
    *listener_p = listener;
    return WEFT_OK;
}

static weft_status_t listen_uri(struct iface *i, const char *where, const struct listen_how *how,
                                void *arg, struct tl_listener **listener_p) {
    return listener_open((struct shm_iface *)i, where, false, how->backlog, arg, listener_p);
}

static const char *listener_uri(const struct tl_listener *listener) {
    return listener->uri;
}

static bool came_by(const struct shm_lane *lane, const struct tl_listener *listener) {
    return lane && lane->more && lane->more->listener == listener;
}

/* Peers that are about to be accepted see their socket close. */
static void listener_close(struct tl_listener *listener) {
    struct shm_iface *iface = listener->iface;
    for (unsigned i = 0; i <= iface->table.last_index; i++)
        if (came_by(iface->table.lanes[i], listener)) weft__shm_lane_free(iface->table.lanes[i]);
    weft__timer_stop(iface->iface.reactor, &listener->rest);
    weft__watch_stop(iface->iface.reactor, &listener->watch);
    hang_up(listener);
    weft__free_later(iface->iface.reactor, listener);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void own_name(uint32_t pid, uint64_t worker_id, char name[SHM_OWN_NAME_SIZE]) {
    snprintf(name, SHM_OWN_NAME_SIZE, SHM_OWN_NAME, (int)pid, worker_id);
}

static weft_status_t address_iface(struct iface *i, void *buf, size_t *len_p) {
    struct shm_iface *iface = (struct shm_iface *)i;
    char name[SHM_OWN_NAME_SIZE];
    own_name((uint32_t)getpid(), iface->self.worker_id, name);
    if (!iface->self.own) {
        int backlog = (int)weft__setting_u32(weft__reactor_context(i->reactor),
                                             SETTING_LISTEN_BACKLOG, INT32_MAX);
        weft_status_t st = listener_open(iface, name, true, backlog, NULL, &iface->self.own);
        if (st < 0) return st;
    }
    struct shm_address a = {.version = SHM_VERSION,
                            .uid = geteuid(),
                            .pid = (uint32_t)getpid(),
                            .worker_id = iface->self.worker_id};
    memcpy(a.host, iface->self.host, sizeof a.host);
    memcpy(a.directory, iface->self.directory, sizeof iface->self.directory);
    size_t len = weft__shm_address_encode(&a, buf, *len_p);
    if (len == 0)
        return weft__fail(WEFT_ERR_TRUNCATED, "%zu bytes are too few for a shm address", *len_p);
    *len_p = len;
    return WEFT_OK;
}

static weft_status_t socket_of(const struct shm_address *a, char path[108]) {
    char name[SHM_OWN_NAME_SIZE];
    own_name(a->pid, a->worker_id, name);
    return weft__shm_path(a->directory, name, path);
}

/* Not access(2), which allocates credentials for each call. */
static bool is_our_users(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & S_IWUSR);
}

/* The path of an address's socket, without a look at the file. */
static weft_status_t near(const struct shm_iface *iface, const void *bytes, size_t len,
                          struct shm_address *address_p, char path[108], const char **why_p) {
    *why_p = "not an address of shm";
    if (weft__shm_address_decode(bytes, len, address_p) < 0) return WEFT_ERR_UNREACHABLE;
    *why_p = "another machine";
    if (memcmp(address_p->host, iface->self.host, sizeof iface->self.host) != 0)
        return WEFT_ERR_UNREACHABLE;
    *why_p = "another user";
    if (address_p->uid != geteuid()) return WEFT_ERR_UNREACHABLE;
    *why_p = "its socket cannot be seen from here";
    return socket_of(address_p, path) < 0 ? WEFT_ERR_UNREACHABLE : WEFT_OK;
}

static weft_status_t reachable_iface(struct iface *i, const void *bytes, size_t len,
                                     const char **why_p) {
    struct shm_address a;
    char path[108];
    if (near((struct shm_iface *)i, bytes, len, &a, path, why_p) < 0 || !is_our_users(path))
        return WEFT_ERR_UNREACHABLE;
    *why_p = NULL;
    return WEFT_OK;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static weft_status_t dial_iface(struct shm_iface *iface, const char *path, uint64_t target,
                                enum shm_opts opts, struct lane **lane_p) {
    struct shm_lane *lane = weft__shm_lane_new(iface);
    if (!lane)
        return weft__fail(
            WEFT_ERR_NO_MEMORY,
            "shm: no memory for a connection, or the limit of connections is reached");
    memcpy(lane->more->where, path, strlen(path) + 1);
    lane->more->target = target;
    lane->more->opts = (uint8_t)opts;
    weft_status_t st = weft__shm_offer(lane);
    if (st == WEFT_OK) st = weft__shm_dial(lane);
    if (st < 0) {
        weft__shm_lane_free(lane);
        return st;
    }
    *lane_p = &lane->lane;
    return WEFT_OK;
}

static weft_status_t connect_by(struct iface *i, const void *bytes, size_t len, enum shm_opts opts,
                                struct lane **lane_p) {
    struct shm_address a;
    char path[108];
    const char *why = NULL;
    weft_status_t st = near((struct shm_iface *)i, bytes, len, &a, path, &why);
    if (st < 0) return weft__fail(st, "shm: %s", why);
    return dial_iface((struct shm_iface *)i, path, a.worker_id, opts,
                      lane_p); /* the connect finds out whether it exists */
}

/* Where rings are earned, every lane begins by the mailbox. */
static enum shm_opts usual(const struct shm_iface *iface) {
    return weft__shm_rings_are_earned(iface) ? SHM_OPTS_MAIL : SHM_OPTS_ANY;
}

static weft_status_t connect_address(struct iface *i, const void *bytes, size_t len,
                                     struct lane **lane_p) {
    return connect_by(i, bytes, len, usual((struct shm_iface *)i), lane_p);
}

static weft_status_t connect_scarce(struct iface *i, const void *bytes, size_t len,
                                    struct lane **lane_p) {
    return connect_by(i, bytes, len, SHM_OPTS_RING, lane_p);
}

static weft_status_t connect_uri(struct iface *i, const char *where, struct lane **lane_p) {
    struct shm_iface *iface = (struct shm_iface *)i;
    char path[108];
    weft_status_t st = weft__shm_find(weft__reactor_context(i->reactor), where, path);
    return st < 0 ? st : dial_iface(iface, path, 0, usual(iface), lane_p);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void event_ready(struct watch *watch, int events) {
    struct shm_iface *iface = container_of(watch, struct shm_iface, wakeup.event);
    if (weft__reactor_notifies_once(iface->iface.reactor)) return;
    if (iface->wakeup.signalled || weft__reactor_has_fd(iface->iface.reactor))
        weft__shm_take_signal(iface);
    else
        iface->wakeup.signalled = true;
}

static void iface_free(struct shm_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    if (iface->wakeup.event.events) weft__watch_stop(r, &iface->wakeup.event);
    if (iface->wakeup.event_fd >= 0) close(iface->wakeup.event_fd);
    weft__shm_zombies_end(iface);
    weft__shm_mail_close(iface);
    weft__job_drop(r, &iface->table.sender);
    weft__slab_end(&iface->table.slab);
    weft__slab_end(&iface->table.ext_slab);
    weft__slot_table_give(&iface->slot.place, !iface->slot.poisoned);
}

static void iface_close(struct iface *i) {
    struct shm_iface *iface = (struct shm_iface *)i;
    if (iface->self.own) listener_close(iface->self.own);
    weft__shm_md_close(iface);
    weft__poller_remove(i->reactor, &iface->poller);
    iface_free(iface);
    weft__free_later(i->reactor, iface);
}

static const struct iface_mem_ops mem_ops = {.mem_register = weft__shm_mem_register,
                                             .mem_revoke = weft__shm_mem_revoke,
                                             .key_pack = weft__shm_key_pack,
                                             .any_origin = true};
static const struct iface_bulk_ops bulk_ops = {.put_done = weft__shm_put_done,
                                               .put_stop = weft__shm_put_stop};
static const struct iface_ops ops = {.address = address_iface,
                                     .reachable = reachable_iface,
                                     .connect = connect_address,
                                     .connect_scarce = connect_scarce,
                                     .connect_uri = connect_uri,
                                     .listen = listen_uri,
                                     .listener_uri = listener_uri,
                                     .listener_close = listener_close,
                                     .close = iface_close,
                                     .mem = &mem_ops,
                                     .bulk = &bulk_ops};

static uint32_t power_below(uint64_t size, uint32_t least, uint32_t most) {
    uint32_t power = least;
    while (power < most && (uint64_t)power * 2 <= size) power *= 2;
    return power;
}

static void geometry(struct shm_iface *iface) {
    uint64_t ring =
        weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_SHM_RING);
    iface->payload_size = power_below(ring, 4096, SHM_MAX_PAYLOAD);
    iface->n_slots = power_below(iface->payload_size / SLOT_SHARE / RING_LINE, 16, SHM_MAX_SLOTS);
}

static struct iface_attr attributes_iface(const struct shm_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    uint64_t rings = weft__setting_u64(context, SETTING_SHM_RINGS);
    uint64_t split = weft__setting_u64(context, SETTING_SHM_SPLIT_COPY);
    if (rings > UINT32_MAX) rings = UINT32_MAX;
    uint32_t bcopy =
        iface->payload_size / 4 < SHM_BCOPY_MAX ? iface->payload_size / 4 : SHM_BCOPY_MAX;
    return (struct iface_attr){.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY | CAP_RELIABLE |
                                       CAP_CONNECT_TO_IFACE | CAP_LISTEN | CAP_WAKEUP |
                                       CAP_PEER_DEATH | (iface->vm ? CAP_BULK_GET : 0u),
                               .scarce = (uint32_t)rings,
                               .max_short = SHM_SHORT,
                               .max_bcopy = bcopy,
                               .max_zcopy = SHM_ZCOPY,
                               .max_zcopy_header = SHM_ZCOPY_HEADER,
                               .max_iov = SHM_IOV,
                               .packs_in_place = true,
                               .overlap = SHM_BCOPY_MAX,
                               .split_from = split ? split : SIZE_MAX,
                               .latency_ns = 80,
                               .bandwidth = 15e9,
                               .overhead_ns = 10,
                               .message_rate = 25e6};
}

static bool membarriers(void) {
    long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return known > 0 && (known & MEMBARRIER_CMD_GLOBAL_EXPEDITED) &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

static const uint64_t *probe_of(struct reactor *r) {
    struct process_globals *process_globals = weft__process_globals_enter();
    while (!process_globals->probe) process_globals->probe = weft__random(r);
    weft__process_globals_leave();
    return &process_globals->probe;
}

static weft_status_t set_up(struct shm_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    weft_status_t st = weft__shm_host(iface->self.host);
    if (st == WEFT_OK) st = weft__slot_table_take(&iface->slot.place);
    if (st == WEFT_OK) st = weft__shm_staging_size(iface);
    if (st == WEFT_OK) st = weft__shm_mail_open(iface);
    if (st == WEFT_OK && !weft__shm_grow_lanes(iface)) st = WEFT_ERR_NO_MEMORY;
    if (st == WEFT_OK) st = weft__shm_md_open(iface);
    if (st < 0) return st;
    iface->slot.doorbell = iface->slot.place.doorbell;
    iface->wakeup.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (iface->wakeup.event_fd < 0)
        return weft__fail(weft__errno_status(errno), "shm: eventfd: %s", strerror(errno));
    st = weft__aux_watch_open(r);
    if (st < 0) return st;
    return weft__watch_start(r, &iface->wakeup.event, iface->wakeup.event_fd, WATCH_READ);
}

static weft_status_t open_iface(struct reactor *r, const struct iface_params *params,
                                struct iface **iface_p) {
    struct shm_iface *iface = weft__new(r, struct shm_iface);
    if (!iface) return WEFT_ERR_NO_MEMORY;
    iface_init(&iface->iface, &ops, &weft__transport_shm, "memory", r, params);
    iface->self.worker_id = params->worker_id;
    iface->wakeup.event_fd = iface->mail.segment.fd = -1;
    iface->wakeup.event.ready = event_ready;
    iface->wakeup.event.notified_once = true;
    iface->self.probe = probe_of(r);
    iface->lane_ops = &weft__shm_lane_ops;
    iface->events = &weft__shm_lane_events;
    iface->table.sender.run = weft__shm_send_due;
    weft__slab_init(&iface->table.slab, r, iface, sizeof(struct shm_lane), "shm lanes");
    weft__slab_init(&iface->table.ext_slab, r, iface, sizeof(struct shm_ext), "shm more");
    iface->poller =
        (struct poller){.poll = weft__shm_poll, .arm = weft__shm_arm, .disarm = weft__shm_disarm};
    geometry(iface);
    iface->wakeup.fenced = membarriers();
    weft_status_t st = set_up(iface);
    if (st < 0) {
        weft__log(weft__reactor_context(r), WEFT_LOG_WARN, "shm",
                  "the transport could not be opened: %s", weft_status_name(st));
        iface_free(iface);
        talloc_free(iface);
        return st;
    }
    iface->vm = weft__shm_vm_pays(weft__setting_str(weft__reactor_context(r), SETTING_SHM_COPY));
    iface->iface.attr = attributes_iface(iface);
    weft__shm_md_attributes(iface, &iface->iface.attr);
    weft__poller_add(r, &iface->poller);
    *iface_p = &iface->iface;
    return WEFT_OK;
}

const struct transport weft__transport_shm = {
    .name = "shm", .open = open_iface, .measure = weft__shm_measure};

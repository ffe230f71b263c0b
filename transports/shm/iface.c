/* The interface: its memory, its address, its listeners. */
#include "commons.h"
#include "shm.h"
#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REST_MS = 50, SLOT_SHARE = 2, ACCEPTED_AT_ONCE = 16 };

/* ---- listeners ---------------------------------------------------------------------------------------------- */

static void greet(struct tl_listener *listener, int fd) {
    struct shm_iface *iface = listener->iface;
    struct shm_lane *lane = weft__shm_lane_new(iface);
    if (!lane) {
        weft__shm_send_word(fd, SHM_NO, WEFT_ERR_NO_MEMORY);
        close(fd);
        return;
    }
    lane->more->listener = listener;
    lane->more->listen_arg = listener->arg;
    weft_status_t st = weft__shm_greet(lane, fd);
    if (st == WEFT_OK) {
        weft__shm_read(&lane->watch, WATCH_READ); /* its greeting came with it, mostly */
        return;
    }
    weft__log_limited(weft__reactor_context(iface->iface.reactor), WEFT_LOG_WARN, "shm",
                      "a peer was turned away: %s", weft_status_name(st));
    weft__shm_send_word(fd, SHM_NO, st);
    weft__shm_lane_free(lane);
}

/* Nobody can be accepted for now: it is not to be told of that again and again, if only it can go on later. */
static void rest(struct tl_listener *listener) {
    struct reactor *r = listener->iface->iface.reactor;
    if (weft__timer_start(r, &listener->rest, weft__now(r) + REST_MS * NS_PER_MS) == WEFT_OK)
        weft__watch_change(r, &listener->watch, 0);
}

/* Mostly one comes alone. While more do, more are looked for. */
static void accept_ready(struct watch *watch, int events) {
    struct tl_listener *listener = (struct tl_listener *)((char *)watch - offsetof(struct tl_listener, watch));
    struct reactor *r = listener->iface->iface.reactor;
    /* Whoever hears of the first may close the listener. */
    for (unsigned left = listener->at_once; left > 0 && watch->events; left--) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            greet(listener, fd);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR) continue;
        if (errno == EAGAIN) {
            listener->at_once = 1;
            return;
        }
        weft__log_limited(weft__reactor_context(r), WEFT_LOG_WARN, "shm", "accept: %s", strerror(errno));
        rest(listener);
        return;
    }
    if (listener->at_once < ACCEPTED_AT_ONCE) listener->at_once *= 2;
}

static void rested(struct timer *timer) {
    struct tl_listener *listener = (struct tl_listener *)((char *)timer - offsetof(struct tl_listener, rest));
    if (weft__watch_change(listener->iface->iface.reactor, &listener->watch, WATCH_READ) < 0) rest(listener);
}

/* Its name goes first: where nobody listens any more, another may have the name by then. */
static void hang_up(struct tl_listener *listener) {
    unlink(listener->path);
    close(listener->fd);
}

static weft_status_t listener_open(struct shm_iface *iface, const char *name, bool own, int backlog, void *arg,
                                   struct tl_listener **listener_p) {
    struct tl_listener *listener = weft__new(iface, struct tl_listener);
    if (!listener) return WEFT_ERR_NO_MEMORY;
    *listener = (struct tl_listener){.iface = iface, .fd = -1, .at_once = 1, .arg = arg};
    listener->watch.ready = accept_ready;
    listener->rest.fire = rested;
    snprintf(listener->uri, sizeof listener->uri, "shm://%s", name);
    weft_status_t st = weft__shm_directory(iface);
    if (st == WEFT_OK) st = weft__shm_path(iface, iface->directory, name, listener->path);
    if (st == WEFT_OK) st = weft__shm_bind(listener->path, own, backlog, &listener->fd);
    if (st == WEFT_OK) {
        st = weft__watch_start(iface->iface.reactor, &listener->watch, listener->fd, WATCH_READ);
        if (st < 0) hang_up(listener);
    }
    if (st < 0) {
        talloc_free(listener);
        return st;
    }
    *listener_p = listener;
    return WEFT_OK;
}

static weft_status_t listen_uri(struct iface *i, const char *where, int backlog, void *arg,
                                struct tl_listener **listener_p) {
    return listener_open((struct shm_iface *)i, where, false, backlog, arg, listener_p);
}

static const char *listener_uri(const struct tl_listener *listener) {
    return listener->uri;
}

static bool came_by(const struct shm_lane *lane, const struct tl_listener *listener) {
    return lane && lane->more && lane->more->listener == listener;
}

/* Those who were about to be accepted see the socket close. */
static void listener_close(struct tl_listener *listener) {
    struct shm_iface *iface = listener->iface;
    for (unsigned i = 0; i <= iface->last_index; i++)
        if (came_by(iface->lanes[i], listener)) weft__shm_lane_free(iface->lanes[i]);
    weft__timer_stop(iface->iface.reactor, &listener->rest);
    weft__watch_stop(iface->iface.reactor, &listener->watch);
    hang_up(listener);
    weft__bury(iface->iface.reactor, listener);
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */

static void own_name(uint32_t pid, uint64_t worker_id, char name[SHM_OWN_NAME_SIZE]) {
    snprintf(name, SHM_OWN_NAME_SIZE, SHM_OWN_NAME, (int)pid, worker_id);
}

static weft_status_t address(struct iface *i, void *buf, size_t *len_p) {
    struct shm_iface *iface = (struct shm_iface *)i;
    char name[SHM_OWN_NAME_SIZE];
    own_name((uint32_t)getpid(), iface->worker_id, name);
    if (!iface->own) {
        int backlog = (int)weft__setting_u32(weft__reactor_context(i->reactor), SETTING_LISTEN_BACKLOG, INT32_MAX);
        weft_status_t st = listener_open(iface, name, true, backlog, NULL, &iface->own);
        if (st < 0) return st;
        weft__shm_sweep(iface->directory);
    }
    struct shm_address a = {
        .version = SHM_VERSION, .uid = geteuid(), .pid = (uint32_t)getpid(), .worker_id = iface->worker_id};
    memcpy(a.host, iface->host, sizeof a.host);
    memcpy(a.directory, iface->directory, sizeof iface->directory);
    size_t len = weft__shm_address_encode(&a, buf, *len_p);
    if (len == 0) return weft__fail(WEFT_ERR_TRUNCATED, "a shm address does not fit into %zu bytes", *len_p);
    *len_p = len;
    return WEFT_OK;
}

static weft_status_t socket_of(const struct shm_iface *iface, const struct shm_address *a, char path[108]) {
    char name[SHM_OWN_NAME_SIZE];
    own_name(a->pid, a->worker_id, name);
    return weft__shm_path(iface, a->directory, name, path);
}

/* Asked so, and not by access(2), which makes credentials for each answer. */
static bool is_our_users(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & S_IWUSR);
}

/* By the address alone: where its socket would be. */
static weft_status_t near(const struct shm_iface *iface, const void *bytes, size_t len,
                          struct shm_address *address_p, char path[108], const char **why_p) {
    *why_p = "not an address of shm";
    if (weft__shm_address_decode(bytes, len, address_p) < 0) return WEFT_ERR_UNREACHABLE;
    *why_p = "another machine";
    if (memcmp(address_p->host, iface->host, sizeof iface->host) != 0) return WEFT_ERR_UNREACHABLE;
    *why_p = "another user";
    if (address_p->uid != geteuid()) return WEFT_ERR_UNREACHABLE;
    *why_p = "its socket cannot be seen from here";
    return socket_of(iface, address_p, path) < 0 ? WEFT_ERR_UNREACHABLE : WEFT_OK;
}

static weft_status_t reachable(struct iface *i, const void *bytes, size_t len, const char **why_p) {
    struct shm_address a;
    char path[108];
    if (near((struct shm_iface *)i, bytes, len, &a, path, why_p) < 0 || !is_our_users(path))
        return WEFT_ERR_UNREACHABLE;
    *why_p = NULL;
    return WEFT_OK;
}

/* ---- connecting ------------------------------------------------------------------------------------------------- */

static weft_status_t dial(struct shm_iface *iface, const char *path, uint64_t target, enum shm_wish wish,
                          struct lane **lane_p) {
    struct shm_lane *lane = weft__shm_lane_new(iface);
    if (!lane) return weft__fail(WEFT_ERR_NO_MEMORY, "shm: no lane left");
    memcpy(lane->more->where, path, strlen(path) + 1);
    lane->more->target = target;
    lane->more->wish = (uint8_t)wish;
    weft_status_t st = weft__shm_offer(lane);
    if (st == WEFT_OK) st = weft__shm_dial(lane);
    if (st < 0) {
        weft__shm_lane_free(lane);
        return st;
    }
    *lane_p = &lane->lane;
    return WEFT_OK;
}

static weft_status_t connect_by(struct iface *i, const void *bytes, size_t len, enum shm_wish wish,
                                struct lane **lane_p) {
    struct shm_address a;
    char path[108];
    const char *why = NULL;
    weft_status_t st = near((struct shm_iface *)i, bytes, len, &a, path, &why);
    if (st < 0) return weft__fail(st, "shm: %s", why);
    return dial((struct shm_iface *)i, path, a.worker_id, wish, lane_p); /* which finds out whether it is there */
}

/* Where rings are earned, no lane begins with one. */
static enum shm_wish usual(const struct shm_iface *iface) {
    return weft__shm_rings_are_earned(iface) ? SHM_WISH_MAIL : SHM_WISH_ANY;
}

static weft_status_t connect_address(struct iface *i, const void *bytes, size_t len, struct lane **lane_p) {
    return connect_by(i, bytes, len, usual((struct shm_iface *)i), lane_p);
}

static weft_status_t connect_scarce(struct iface *i, const void *bytes, size_t len, struct lane **lane_p) {
    return connect_by(i, bytes, len, SHM_WISH_RING, lane_p);
}

static weft_status_t connect_uri(struct iface *i, const char *where, struct lane **lane_p) {
    struct shm_iface *iface = (struct shm_iface *)i;
    char path[108];
    weft_status_t st = weft__shm_directory(iface);
    if (st == WEFT_OK) st = weft__shm_path(iface, iface->directory, where, path);
    return st < 0 ? st : dial(iface, path, 0, usual(iface), lane_p);
}

/* ---- life --------------------------------------------------------------------------------------------------------- */

/*
 * A signal only ends the sleep: the turn's poll sees why it came. It stays where it is told once; else it is taken before the next
 * sleep, when the peer that waits for an answer has it, or when the kernel tells of it once more; at once where a host would be told
 * meanwhile.
 */
void weft__shm_take_signal(struct shm_iface *iface) {
    uint64_t count;
    iface->signalled = read(iface->event_fd, &count, sizeof count) < 0 && errno == EINTR;
}

static void event_ready(struct watch *watch, int events) {
    struct shm_iface *iface = (struct shm_iface *)((char *)watch - offsetof(struct shm_iface, event));
    if (weft__reactor_tells_once(iface->iface.reactor)) return;
    if (iface->signalled || weft__reactor_has_fd(iface->iface.reactor))
        weft__shm_take_signal(iface);
    else
        iface->signalled = true;
}

static void iface_free(struct shm_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    if (iface->event.events) weft__watch_stop(r, &iface->event);
    if (iface->event_fd >= 0) close(iface->event_fd);
    weft__shm_mail_close(iface);
    weft__job_drop(r, &iface->speaker);
    weft__slab_end(&iface->lane_slab);
    weft__slab_end(&iface->more_slab);
    weft__hall_give(&iface->place, !iface->spoilt);
}

static void iface_close(struct iface *i) {
    struct shm_iface *iface = (struct shm_iface *)i;
    if (iface->own) listener_close(iface->own);
    weft__shm_md_close(iface);
    weft__poller_remove(i->reactor, &iface->poller);
    iface_free(iface);
    weft__bury(i->reactor, iface);
}

static const struct iface_ops ops = {.address = address,
                                     .reachable = reachable,
                                     .connect = connect_address,
                                     .connect_scarce = connect_scarce,
                                     .connect_uri = connect_uri,
                                     .listen = listen_uri,
                                     .listener_uri = listener_uri,
                                     .listener_close = listener_close,
                                     .mem_register = weft__shm_mem_register,
                                     .mem_revoke = weft__shm_mem_revoke,
                                     .key_pack = weft__shm_key_pack,
                                     .helped = weft__shm_helped,
                                     .put_stop = weft__shm_put_stop,
                                     .close = iface_close};

static uint32_t power_below(uint64_t size, uint32_t least, uint32_t most) {
    uint32_t power = least;
    while (power < most && (uint64_t)power * 2 <= size) power *= 2;
    return power;
}

static void geometry(struct shm_iface *iface) {
    uint64_t ring = weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_SHM_RING);
    iface->payload_size = power_below(ring, 4096, SHM_MAX_PAYLOAD);
    iface->n_slots = power_below(iface->payload_size / SLOT_SHARE / RING_LINE, 16, SHM_MAX_SLOTS);
}

static struct iface_attr attributes(const struct shm_iface *iface) {
    weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    uint64_t rings = weft__setting_u64(context, SETTING_SHM_RINGS);
    uint64_t joint = weft__setting_u64(context, SETTING_SHM_JOINT);
    if (rings > UINT32_MAX) rings = UINT32_MAX;
    uint32_t bcopy = iface->payload_size / 4 < SHM_BCOPY_MAX ? iface->payload_size / 4 : SHM_BCOPY_MAX;
    return (struct iface_attr){.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY | CAP_RELIABLE |
                                       CAP_CONNECT_TO_IFACE | CAP_LISTEN | CAP_WAKEUP | CAP_PEER_DEATH |
                                       (iface->vm ? CAP_BULK_GET : 0u),
                               .scarce = (uint32_t)rings,
                               .max_short = SHM_SHORT,
                               .max_bcopy = bcopy,
                               .max_zcopy = SHM_ZCOPY,
                               .max_zcopy_header = SHM_ZCOPY_HEADER,
                               .max_iov = SHM_IOV,
                               .packs_in_place = true,
                               .overlap = SHM_BCOPY_MAX,
                               .joint_from = joint ? joint : SIZE_MAX,
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
    struct commons *commons = weft__commons_enter();
    while (!commons->probe) commons->probe = weft__random(r);
    weft__commons_leave();
    return &commons->probe;
}

static weft_status_t set_up(struct shm_iface *iface) {
    struct reactor *r = iface->iface.reactor;
    weft_status_t st = weft__shm_host(iface->host);
    if (st == WEFT_OK) st = weft__hall_take(&iface->place);
    if (st == WEFT_OK) st = weft__shm_staging_size(iface);
    if (st == WEFT_OK) st = weft__shm_mail_open(iface);
    if (st == WEFT_OK && !weft__shm_more_room(iface)) st = WEFT_ERR_NO_MEMORY;
    if (st == WEFT_OK) st = weft__shm_md_open(iface);
    if (st < 0) return st;
    iface->bell = iface->place.bell;
    iface->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (iface->event_fd < 0) return weft__fail(weft__errno_status(errno), "shm: eventfd: %s", strerror(errno));
    st = weft__cold_open(r);
    if (st < 0) return st;
    return weft__watch_start(r, &iface->event, iface->event_fd, WATCH_READ);
}

static weft_status_t open_iface(struct reactor *r, const struct iface_params *params, struct iface **iface_p) {
    struct shm_iface *iface = weft__new(r, struct shm_iface);
    if (!iface) return WEFT_ERR_NO_MEMORY;
    iface->iface = (struct iface){.ops = &ops,
                                  .transport = &weft__transport_shm,
                                  .reactor = r,
                                  .up = params->up,
                                  .owner = params->owner,
                                  .device = "memory"};
    iface->worker_id = params->worker_id;
    iface->event_fd = iface->mail.segment.fd = -1;
    iface->event.ready = event_ready;
    iface->event.told_once = true;
    iface->probe = probe_of(r);
    iface->speaker.run = weft__shm_speak;
    weft__slab_init(&iface->lane_slab, r, iface, sizeof(struct shm_lane), "shm lanes");
    weft__slab_init(&iface->more_slab, r, iface, sizeof(struct shm_more), "shm more");
    iface->poller = (struct poller){.poll = weft__shm_poll, .arm = weft__shm_arm, .disarm = weft__shm_disarm};
    geometry(iface);
    iface->fenced = membarriers();
    weft_status_t st = set_up(iface);
    if (st < 0) {
        weft__log(weft__reactor_context(r), WEFT_LOG_WARN, "shm", "not opened: %s", weft_status_name(st));
        iface_free(iface);
        talloc_free(iface);
        return st;
    }
    iface->vm = weft__shm_vm_pays(weft__setting_str(weft__reactor_context(r), SETTING_SHM_COPY));
    iface->iface.attr = attributes(iface);
    weft__shm_md_attributes(iface, &iface->iface.attr);
    weft__poller_add(r, &iface->poller);
    *iface_p = &iface->iface;
    return WEFT_OK;
}

const struct transport weft__transport_shm = {.name = "shm", .open = open_iface, .measure = weft__shm_measure};

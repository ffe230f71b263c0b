/* The messages on the socket of an attachment: HELLO and WELCOME with the memory of both sides,
 * BYE and QUIT at the end. */
#include "handshake.h"
#include "attach.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <transports/shm/rma/key.h>
#include <transports/shm/wire/key_wire.h>
#include <unistd.h>

/* ---- our side -------------------------------------------------------------------------------- */

static size_t ring_size(uint32_t n_slots, uint32_t payload_size) {
    return SHM_CONTROL + (size_t)n_slots * RING_LINE + payload_size;
}

/* Makes room in the list of active lanes for one more ring: all may be active at once. */
static bool room_for_rings(struct shm_iface *iface) {
    unsigned room = iface->rings.active_room ? 2 * iface->rings.active_room : 16;
    if (iface->rings.n < iface->rings.active_room) return true;
    struct shm_lane **more =
        weft__realloc(iface, iface->rings.active, room * sizeof *more, "shm active");
    if (!more) return false;
    iface->rings.active = more;
    iface->rings.active_room = room;
    return true;
}

static weft_status_t ring_make(struct shm_lane *lane) {
    struct shm_iface *iface = shm_iface(lane);
    struct shm_ring *ring = &lane->more->ring;
    if (!room_for_rings(iface)) return WEFT_ERR_NO_MEMORY;
    ring->exposures =
        weft__alloc(iface, iface->n_slots * sizeof *ring->exposures, "struct ring_claim");
    if (!ring->exposures) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = weft__segment_create(
        &ring->mine, "weft-ring", ring_size(iface->n_slots, iface->payload_size), SEGMENT_MINE);
    if (st < 0) return st;
    ring->ours = ring->mine.at;
    iface->rings.n++;
    ring->counted = true;
    return WEFT_OK;
}

void weft__shm_ring_uncount(struct shm_lane *lane) {
    if (!lane->more || !lane->more->ring.counted) return;
    shm_iface(lane)->rings.n--;
    lane->more->ring.counted = false;
}

/* The list of lanes that share the doorbell's bit with this lane. */
static struct shm_lane **rung_by(struct shm_lane *lane) {
    return &shm_iface(lane)->rings.rung[lane->index % DOORBELL_BITS];
}

static void list(struct shm_lane *lane) {
    lane->more->ring.next_rung = *rung_by(lane);
    *rung_by(lane) = lane;
}

static void unlist(struct shm_lane *lane) {
    struct shm_lane **at = rung_by(lane);
    while (*at && *at != lane) at = &(*at)->more->ring.next_rung;
    if (*at) *at = lane->more->ring.next_rung;
}

static void drop_ring(struct shm_lane *lane) {
    if (!lane->more) return;
    struct shm_ring *ring = &lane->more->ring;
    weft__shm_ring_uncount(lane);
    unlist(lane);
    ring->ours = NULL;
    ring->theirs = NULL;
    weft__segment_close(&ring->mine);
    weft__segment_close(&ring->peers);
    weft__shm_pool_put(shm_process(lane), ring->pool);
    ring->pool = NULL;
    talloc_free(ring->exposures);
    ring->exposures = NULL;
}

static bool ring_is_left(const struct shm_iface *iface) {
    return iface->rings.n <
           weft__setting_u64(weft__reactor_context(iface->iface.reactor), SETTING_SHM_RINGS);
}

weft_status_t weft__shm_offer(struct shm_lane *lane) {
    bool left = ring_is_left(shm_iface(lane));
    if (lane->more->opts == SHM_OPTS_RING && !left) return WEFT_ERR_QUOTA;
    weft_status_t st = weft__shm_mail_offer(lane);
    return st == WEFT_OK && left && lane->more->opts != SHM_OPTS_MAIL ? ring_make(lane) : st;
}

static struct shm_hello hello_of(const struct shm_lane *lane, uint8_t kind) {
    const struct shm_iface *iface = shm_iface(lane);
    return (struct shm_hello){.head = {SHM_MAGIC, SHM_VERSION, kind, 0},
                              .worker_id = iface->self.worker_id,
                              .target = lane->more->target,
                              .lane = lane->index,
                              .place = iface->slot.place.index,
                              .n_slots = lane->more->ring.ours ? iface->n_slots : 0,
                              .payload_size = lane->more->ring.ours ? iface->payload_size : 0,
                              .staging_size = iface->staging.size,
                              .n_nodes = SHM_NODES,
                              .n_blocks = SHM_BLOCKS,
                              .fenced = iface->wakeup.fenced,
                              .only_ring = lane->more->opts == SHM_OPTS_RING,
                              .opening = lane->more->opening,
                              .probe_at = (uint64_t)(uintptr_t)iface->self.probe,
                              .probe = *iface->self.probe};
}

/* Sends it, with as many descriptors as `fds_size` bytes hold. */
static bool send_with_fds(int socket, struct shm_hello *hello, const int *fds, size_t fds_size) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(SHM_N_FDS * sizeof *fds)];
    } control = {.head = {.cmsg_len = CMSG_LEN(fds_size),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.head), fds, fds_size);
    struct iovec iov = {hello, sizeof *hello};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(fds_size)};
    return sendmsg(socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *hello;
}

weft_status_t weft__shm_send_hello(struct shm_lane *lane, uint8_t kind) {
    const struct shm_iface *iface = shm_iface(lane);
    struct shm_hello hello = hello_of(lane, kind);
    const struct slot_table *slot_table = iface->slot.place.slot_table;
    int fds[SHM_N_FDS] = {slot_table->doorbells.fd, slot_table->tx_slots.fd, iface->mail.segment.fd,
                          iface->wakeup.event_fd, lane->more->ring.mine.fd};
    size_t n_fds = lane->more->ring.ours ? SHM_N_FDS : SHM_N_FDS - 1;
    if (!send_with_fds(lane->watch.fd, &hello, fds, n_fds * sizeof *fds))
        return weft__fail(errno == ETOOMANYREFS ? WEFT_ERR_NO_FDS : WEFT_ERR_PEER_FAILED,
                          "shm: sendmsg: %s", strerror(errno));
    lane->shown = true;
    if (lane->more->ring.mine.fd >= 0)
        close(lane->more->ring.mine.fd); /* both sides map the memory and need no descriptor */
    lane->more->ring.mine.fd = -1;
    return WEFT_OK;
}

weft_status_t weft__shm_send_word(int fd, uint8_t kind, weft_status_t status) {
    struct shm_no no = {{SHM_MAGIC, SHM_VERSION, kind, 0}, status};
    size_t len = kind == SHM_NO ? sizeof no : sizeof no.head;
    if (send(fd, &no, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len) return WEFT_OK;
    return WEFT_ERR_PEER_FAILED;
}

/* ---- the peer's side ------------------------------------------------------------------------- */

static weft_status_t adopt_ring(struct shm_lane *lane, const struct shm_hello *hello, int *fds) {
    struct shm_iface *iface = shm_iface(lane);
    struct shm_ring *ring = &lane->more->ring;
    size_t size = ring_size(hello->n_slots, hello->payload_size);
    weft_status_t st = weft__segment_map(&ring->peers, fds[SHM_FD_RING], size, false);
    if (st == WEFT_OK) st = weft__shm_pool_get(shm_process(lane), fds[SHM_FD_POOL], &ring->pool);
    if (st < 0) return st;
    uint8_t *slots = (uint8_t *)ring->mine.at + SHM_CONTROL,
            *their_slots = (uint8_t *)ring->peers.at + SHM_CONTROL;
    const uint8_t *staging = (const uint8_t *)ring->pool + shm_process(lane)->shape.staging;
    struct ring_memory own = {slots, iface->n_slots, slots + (size_t)iface->n_slots * RING_LINE,
                              iface->payload_size};
    struct ring_memory peers = {their_slots, hello->n_slots,
                                their_slots + (size_t)hello->n_slots * RING_LINE,
                                hello->payload_size};
    ring->theirs = ring->peers.at;
    ring->attendable = hello->fenced;
    tactics_init(&ring->tactics, (uint32_t)weft__ticks());
    ring_tx_init(&ring->tx, &own, ring->exposures, &ring->theirs->tail);
    ring_rx_init(&ring->rx, &peers, staging, hello->staging_size, &ring->ours->tail);
    list(lane);
    lane->lane.scarce = true;
    return WEFT_OK;
}

static weft_status_t adopt_mail(struct shm_lane *lane, const struct shm_hello *hello, int *fds) {
    const void *pool;
    drop_ring(lane);
    weft_status_t st = weft__shm_pool_get(shm_process(lane), fds[SHM_FD_POOL], &pool);
    if (st < 0) return st;
    lane->mail.view.nodes = pool;
    return weft__shm_mail_begin(lane);
}

bool weft__shm_rings_are_earned(const struct shm_iface *iface) {
    const weft_context_t *context = weft__reactor_context(iface->iface.reactor);
    return weft__setting_u64(context, SETTING_LANES_SWITCH) &&
           weft__setting_u64(context, SETTING_LANES_CAPACITY);
}

/* Where rings are earned, only a peer that insists on a ring gets one. */
static bool may_have_ring(const struct shm_iface *iface, bool only_ring) {
    return ring_is_left(iface) && (only_ring || !weft__shm_rings_are_earned(iface));
}

/*
 * A lane goes by rings if both sides have one left: the dialer offers its ring, and the acceptor
 * answers with its own. Otherwise the lane goes by the mailboxes.
 */
static weft_status_t adopt_handshake(struct shm_lane *lane, const struct shm_hello *hello,
                                     int *fds) {
    struct shm_ring *ring = &lane->more->ring;
    weft_status_t st = weft__shm_meet(lane, hello, fds);
    if (st < 0) return st;
    bool dialed = hello->head.kind == SHM_WELCOME,
         only_ring = dialed ? lane->more->opts == SHM_OPTS_RING : hello->only_ring == 1;
    if (!dialed && hello->n_slots && may_have_ring(shm_iface(lane), only_ring))
        st = ring_make(lane);
    if (st < 0) return st;
    bool has_ring = hello->n_slots && ring->ours;
    if (only_ring && !has_ring) return WEFT_ERR_QUOTA;
    lane->more->target = hello->worker_id;
    return has_ring ? adopt_ring(lane, hello, fds) : adopt_mail(lane, hello, fds);
}

static weft_status_t adopt_hello(struct shm_lane *lane, const struct shm_hello *hello, int *fds,
                                 int n_fds) {
    uint64_t me = shm_iface(lane)->self.worker_id;
    int due = hello->n_slots ? SHM_N_FDS : SHM_N_FDS - 1;
    if (n_fds == SHM_FDS_LOST)
        return weft__fail(WEFT_ERR_NO_FDS, "shm: no free file descriptors for the peer's memory");
    if (n_fds != due)
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer passed %d descriptors, expected %d",
                          n_fds, due);
    if (hello->lane >= DOORBELL_LANES)
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer's lane number %u is out of range",
                          hello->lane);
    if (hello->head.kind == SHM_WELCOME && hello->n_slots && !lane->more->ring.ours)
        return weft__fail(WEFT_ERR_PROTOCOL, "shm: the peer offered a ring that was not requested");
    if (hello->head.kind == SHM_HELLO && hello->target != 0 && hello->target != me)
        return weft__fail(WEFT_ERR_REFUSED, "shm: the connection is meant for another worker");
    if (hello->head.kind == SHM_WELCOME && lane->more->target != 0 &&
        hello->worker_id != lane->more->target)
        return weft__fail(WEFT_ERR_REFUSED, "shm: another worker answered at that address");
    return adopt_handshake(lane, hello, fds);
}

/* ---- reading --------------------------------------------------------------------------------- */

enum { FDS_ROOM = 8 }; /* the most descriptors of one message; the kernel drops the rest */

/* Returns the number of descriptors that came, and closes those beyond SHM_N_FDS. SHM_FDS_LOST:
 * this process had no free descriptors for them. */
static int fds_of(struct msghdr *m, int *fds) {
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int more = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < more; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + (size_t)i * sizeof fd, sizeof fd);
            if (n < SHM_N_FDS)
                fds[n] = fd;
            else
                close(fd);
            n++;
        }
    }
    return m->msg_flags & MSG_CTRUNC && n < FDS_ROOM ? SHM_FDS_LOST : n;
}

static const unsigned event_of[] = {[SHM_HELLO] = SHM_ATTACH_EV_HELLO,
                                    [SHM_WELCOME] = SHM_ATTACH_EV_WELCOME,
                                    [SHM_NO] = SHM_ATTACH_EV_NO,
                                    [SHM_BYE] = SHM_ATTACH_EV_BYE,
                                    [SHM_QUIT] = SHM_ATTACH_EV_QUIT};

/* A message about one-sided access. The machine only checks that it may come now. */
static void received_of_key(struct shm_lane *lane, const void *data, size_t len, int *fds,
                            int n_fds) {
    weft__shm_step(lane, SHM_ATTACH_EV_KEY);
    if (lane->watch.fd < 0) return;
    weft_status_t st = weft__shm_words_received(lane, data, len, fds, n_fds);
    if (st < 0) weft__shm_failed(lane, st);
}

/* True: the machine acts on this message now. Then the memory is mapped before the step. */
static bool expects(const struct shm_lane *lane, enum shm_kind kind) {
    return fsm_verb(&lane->fsm, event_of[kind]) == FSM_DO;
}

static void shm_handshake_received(struct shm_lane *lane, const void *data, size_t len, int *fds,
                                   int n_fds) {
    enum shm_kind kind;
    struct shm_hello hello;
    weft_status_t status = WEFT_ERR_PEER_CLOSED,
                  st = weft__shm_decode(data, len, &kind, &hello, &status);
    if (st == WEFT_OK && (kind == SHM_HELLO || kind == SHM_WELCOME) && expects(lane, kind))
        st = adopt_hello(lane, &hello, fds, n_fds);
    if (st < 0) {
        weft__shm_failed(lane, st);
        return;
    }
    if (kind >= SHM_NO) lane->received_end = true;
    if (kind >= SHM_BYE) weft__shm_parted(lane);
    if (lane->status == WEFT_OK && expects(lane, kind))
        lane->status = kind >= SHM_NO ? (int8_t)status : WEFT_OK;
    weft__shm_step(lane, event_of[kind]);
}

static void lost(struct shm_lane *lane) {
    lane->received_eof = true;
    weft__shm_parted(lane);
    if (lane->status == WEFT_OK) lane->status = WEFT_ERR_PEER_FAILED;
    weft__shm_step(lane, SHM_ATTACH_EV_LOST);
}

/* The acceptor reads the handshake before it watches the socket. Otherwise the socket would wake
 * it for a handshake that it has read. */
static weft_status_t keep_watching(struct shm_lane *lane) {
    return lane->watch.events
               ? WEFT_OK
               : weft__aux_watch_start(lane->lane.iface->reactor, &lane->watch, WATCH_READ);
}

void weft__shm_read(struct aux_watch *watch, int events) {
    struct shm_lane *lane = container_of(watch, struct shm_lane, watch);
    uint8_t data[SHM_MESSAGE_MAX + 1];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS_ROOM * sizeof(int))];
    } control;
    int fds[SHM_N_FDS];
    for (int i = 0; i < SHM_N_FDS; i++) fds[i] = -1;
    if (events & WATCH_WRITE) {
        weft__shm_words_flush(lane);
        weft__shm_goodbye(lane);
    }
    struct iovec iov = {data, sizeof data};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n = recvmsg(lane->watch.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    bool nothing_yet = n < 0 && (errno == EAGAIN || errno == EINTR);
    int n_fds = n > 0 ? fds_of(&m, fds) : 0;
    weft_status_t st = keep_watching(lane);
    if (st < 0) {
        weft__shm_failed(lane, st);
    } else if (n > 0) {
        bool of_key = weft__shm_is_key_word(data, (size_t)n);
        (of_key ? received_of_key : shm_handshake_received)(lane, data, (size_t)n, fds, n_fds);
    } else if (!nothing_yet) {
        lost(lane);
    }
    for (int i = 0; i < SHM_N_FDS; i++)
        if (fds[i] >= 0) close(fds[i]);
}

/* Closes the socket and unmaps all memory. */
void weft__shm_close_all(struct shm_lane *lane) {
    struct reactor *r = lane->lane.iface->reactor;
    weft__aux_watch_stop(r, &lane->watch);
    weft__shm_grants_part(lane);
    if (lane->shown && !lane->received_end && !lane->received_eof)
        shm_iface(lane)->slot.poisoned = true;
    lane->shown = false;
    if (lane->watch.fd >= 0) close(lane->watch.fd);
    lane->watch.fd = -1;
    drop_ring(lane);
    weft__shm_pool_leave(lane);
    if (lane->event_fd >= 0) close(lane->event_fd);
    lane->event_fd = -1;
    weft__shm_process_put(lane);
    lane->by_mail = false; /* the mailbox holds no message of it */
}

/* Releases the lane on this side. What the peer may still read of it goes later (teardown.c). */
void weft__shm_release(struct shm_lane *lane) {
    shm_way(lane)->leave(lane);
    if (!lane->parting) weft__timer_stop(lane->lane.iface->reactor, &lane->timer);
    if (shm_outlives_release(lane))
        weft__shm_part_leave(lane);
    else
        weft__shm_close_all(lane);
}

/* The self transport: lanes from a worker to itself, made in pairs. */
#include "self.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <transports/common.h>

#define OF_FSM(m) container_of(m, struct self_lane, fsm)

/* ---- the machine ----------------------------------------------------------------------------- */

#define FSM_NAME   self_lane
#define FSM_PREFIX SELF_LANE
#include <fsm/define.h>

static void self_lane_act_open(struct fsm *m) {
    fsm_effect(m, SELF_LANE_FX_NOTIFY_OPEN);
}

/* Accepted messages leave before the FIN. */
static void self_lane_act_leave(struct fsm *m) {
    fsm_effect(m, SELF_LANE_FX_PURGE);
    fsm_effect(m, SELF_LANE_FX_SEND_FIN);
}

static void self_lane_act_cut(struct fsm *m) {
    fsm_effect(m, SELF_LANE_FX_PURGE);
    fsm_effect(m, SELF_LANE_FX_CANCEL_QUEUE);
    fsm_effect(m, SELF_LANE_FX_SEND_FIN);
}

static void self_lane_act_hurry(struct fsm *m) {
    fsm_effect(m, SELF_LANE_FX_CANCEL_QUEUE);
}

static void self_lane_act_down(struct fsm *m) {
    fsm_effect(m, SELF_LANE_FX_NOTIFY_DOWN);
}

static void self_lane_act_closed(struct fsm *m) {
    fsm_effect(m, SELF_LANE_FX_NOTIFY_CLOSED);
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct self_lane *lane = OF_FSM(m);
    switch ((enum self_lane_effect)effect) {
    case SELF_LANE_FX_PURGE:
        lane->pair.lane.ops = &weft__self_ops_closed;
        lane->take = weft__self_refuse;
        weft__self_resume(lane);
        weft__self_purge(lane);
        weft__self_keys_end(lane, WEFT_ERR_CLOSED);
        break;
    case SELF_LANE_FX_CANCEL_QUEUE: weft__self_cancel_queue(lane); break;
    case SELF_LANE_FX_SEND_FIN: weft__self_queue(lane, &lane->fin); break;
    case SELF_LANE_FX_NOTIFY_OPEN: lane->notices |= NOTIFY_OPEN; break;
    case SELF_LANE_FX_NOTIFY_DOWN: lane->notices |= NOTIFY_DOWN; break;
    case SELF_LANE_FX_NOTIFY_CLOSED: lane->notices |= NOTIFY_CLOSED; break;
    case SELF_LANE_N_EFFECTS: break;
    }
}

static void notify_open(struct self_lane *lane) {
    lane->pair.lane.ops = &weft__self_ops_up;
    lane->take = weft__self_take;
    pair_announce(&lane->pair);
    weft__self_retry(lane);
}

/* If the owner has closed the lane by then, only `closed` follows. */
static void notify_down(struct self_lane *lane) {
    if (lane->pair.lane.ops == &weft__self_ops_closed) return;
    lane->pair.lane.ops = &weft__self_ops_peer_closed;
    lane->take = weft__self_refuse;
    weft__self_purge(lane);
    weft__self_keys_end(lane, WEFT_ERR_PEER_CLOSED);
    weft__self_drop_queue(lane, WEFT_ERR_PEER_CLOSED);
    if (lane->pair.lane.ops == &weft__self_ops_closed) return;
    weft__causes_clear();
    lane->pair.lane.iface->up->down(&lane->pair.lane, WEFT_ERR_PEER_CLOSED);
}

static void notify_closed(struct self_lane *lane) {
    struct reactor *r = lane->pair.lane.iface->reactor;
    weft__job_drop(r, &lane->pair.job);
    weft__self_keys_forget(lane);
    lane->pair.lane.iface->up->closed(&lane->pair.lane);
    weft__free_later(r, lane);
}

/* Steps the machine within a turn, then makes the calls to the owner. A callback may close the
 * lane. */
void weft__self_step(struct self_lane *lane, unsigned event) {
    weft__fsm_step(&lane->fsm, event);
    unsigned notices = lane->notices;
    lane->notices = 0;
    if (notices & NOTIFY_OPEN) notify_open(lane);
    if (notices & NOTIFY_DOWN) notify_down(lane);
    if (notices & NOTIFY_CLOSED) notify_closed(lane);
}

static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    struct self_lane *lane = OF_FSM(m);
    weft__log(weft__reactor_context(lane->pair.lane.iface->reactor), WEFT_LOG_ERROR, "self",
              "lane %u: %s in state %s", m->id, m->port->machine->event_name[event],
              fsm_state_name(m));
}

static const struct fsm_port port = {&weft__self_lane_machine, on_effect, on_fail};

/* ---- a pair of lanes ------------------------------------------------------------------------- */

static void open_run(struct job *job) {
    weft__self_step((struct self_lane *)pair_of_job(job), SELF_LANE_EV_OPEN);
}

static void lane_init(struct self_lane *lane) {
    static _Thread_local uint32_t next_id;
    fsm_init(&lane->fsm, &port, SELF_LANE_NEW, ++next_id);
}

static weft_status_t pair(struct self_iface *iface, void *listen_arg, struct lane **lane_p) {
    struct pair_lane *dialed;
    weft_status_t st = weft__pair_new(&iface->iface, sizeof(struct self_lane), &weft__self_ops_new,
                                      open_run, listen_arg, &dialed);
    if (st != WEFT_OK) return st;
    lane_init((struct self_lane *)dialed);
    lane_init((struct self_lane *)dialed->peer);
    *lane_p = &dialed->lane;
    return WEFT_OK;
}

void weft__self_close(struct lane *l, bool flush) {
    weft__fsm_step(&((struct self_lane *)l)->fsm, flush ? SELF_LANE_EV_CLOSE : SELF_LANE_EV_ABORT);
}

/* ---- the interface --------------------------------------------------------------------------- */

static weft_status_t connect_address(struct iface *i, const void *bytes, size_t len,
                                     struct lane **lane_p) {
    weft_status_t st = weft__own_check(i, bytes, len);
    return st < 0 ? st : pair((struct self_iface *)i, NULL, lane_p);
}

static struct tl_listener *find_listener(struct self_iface *iface, const char *where) {
    struct tl_listener *l = iface->listeners;
    while (l && strcmp(l->uri + strlen("self://"), where) != 0) l = l->next;
    return l;
}

static weft_status_t connect_uri(struct iface *i, const char *where, struct lane **lane_p) {
    struct self_iface *iface = (struct self_iface *)i;
    struct tl_listener *l = find_listener(iface, where);
    if (!l) return weft__fail(WEFT_ERR_REFUSED, "this worker has no listener at self://%s", where);
    return pair(iface, l->arg, lane_p);
}

static weft_status_t listen_uri(struct iface *i, const char *where, const struct listen_how *how,
                                void *arg, struct tl_listener **listener_p) {
    struct self_iface *iface = (struct self_iface *)i;
    if (find_listener(iface, where))
        return weft__fail(WEFT_ERR_EXISTS, "this worker already has a listener at self://%s",
                          where);
    struct tl_listener *l = weft__new(iface, struct tl_listener);
    if (!l) return WEFT_ERR_NO_MEMORY;
    l->uri = talloc_asprintf(l, "self://%s", where);
    if (!l->uri) {
        talloc_free(l);
        return WEFT_ERR_NO_MEMORY;
    }
    l->iface = iface;
    l->arg = arg;
    l->next = iface->listeners;
    iface->listeners = l;
    *listener_p = l;
    return WEFT_OK;
}

static const char *listener_uri(const struct tl_listener *listener) {
    return listener->uri;
}

static void listener_close(struct tl_listener *listener) {
    struct tl_listener **at = &listener->iface->listeners;
    while (*at != listener) at = &(*at)->next;
    *at = listener->next;
    talloc_free(listener);
}

static void iface_close(struct iface *i) {
    struct self_iface *iface = (struct self_iface *)i;
    weft__poller_remove(i->reactor, &iface->poller);
    weft__free_later(i->reactor, iface);
}

static const struct iface_mem_ops mem_ops = {.mem_register = weft__self_mem_register,
                                             .mem_revoke = weft__self_mem_revoke,
                                             .key_pack = weft__self_key_pack,
                                             .any_origin = true};
static const struct iface_ops ops = {.address = weft__own_address,
                                     .reachable = weft__own_reachable,
                                     .connect = connect_address,
                                     .connect_uri = connect_uri,
                                     .listen = listen_uri,
                                     .listener_uri = listener_uri,
                                     .listener_close = listener_close,
                                     .close = iface_close,
                                     .mem = &mem_ops};

static bool arm_poller(struct poller *poller) {
    return container_of(poller, struct self_iface, poller)->ready == NULL;
}

static const struct iface_attr attr = {.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY |
                                               CAP_RELIABLE | CAP_CONNECT_TO_IFACE | CAP_LISTEN |
                                               CAP_BULK_GET | CAP_WAKEUP | CAP_PEER_DEATH |
                                               CAP_PUT | CAP_GET | CAP_ATOMIC | CAP_MAP,
                                       .max_short = SELF_SHORT,
                                       .max_bcopy = SELF_BCOPY,
                                       .max_zcopy = SELF_ZCOPY,
                                       .max_zcopy_header = SELF_ZCOPY_HEADER,
                                       .max_iov = SELF_IOV,
                                       .packs_in_place = true,
                                       .latency_ns = 20,
                                       .bandwidth = 20e9,
                                       .overhead_ns = 10,
                                       .message_rate = 18e6,
                                       .max_put_short = SELF_RMA_SHORT,
                                       .max_put_bcopy = SELF_RMA_BCOPY,
                                       .max_get_bcopy = SELF_RMA_BCOPY,
                                       .max_put_zcopy = SELF_RMA_ZCOPY,
                                       .max_get_zcopy = SELF_RMA_ZCOPY,
                                       .order = RMA_ORDER_ALL,
                                       .done = RMA_DONE_VISIBLE};

static weft_status_t open_iface(struct reactor *r, const struct iface_params *params,
                                struct iface **iface_p) {
    struct self_iface *iface = weft__new(r, struct self_iface);
    if (!iface) return WEFT_ERR_NO_MEMORY;
    iface->scratch = weft__alloc(iface, SELF_ZCOPY_HEADER + SELF_ZCOPY, "self zcopy scratch");
    if (!iface->scratch) {
        talloc_free(iface);
        return WEFT_ERR_NO_MEMORY;
    }
    iface_init(&iface->iface, &ops, &weft__transport_self, "memory", r, params);
    iface->iface.attr = attr;
    iface->ready_last = &iface->ready;
    iface->poller = (struct poller){.poll = weft__self_poll, .arm = arm_poller};
    *iface_p = &iface->iface;
    return WEFT_OK;
}

const struct transport weft__transport_self = {.name = "self", .open = open_iface};

/* The life cycle of a lane: the port of its machine, and its calls to the owner. */
#include "rc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

enum {
    RNR_TIMER = 12,   /* 0.64 ms */
    ACK_TIMEOUT = 16, /* 0.27 s, where both lane addresses connect it */
    RETRIES = 6,      /* of messages; one more, and soft-RoCE sends to the dead for ever */
    FOREVER = 7       /* of receives that are not there */
};

static struct rc_lane *lane_of(struct fsm *m) {
    return container_of(m, struct rc_lane, machine.fsm);
}

void weft__rc_lane_todo(struct rc_lane *lane, unsigned what) {
    lane->todo |= what;
    weft__job_post(rc_reactor(lane), &lane->job);
}

void weft__rc_lane_why(struct rc_lane *lane, weft_status_t why) {
    if (lane->why == WEFT_OK) lane->why = why;
}

void weft__rc_lane_noted(struct rc_lane *lane, weft_status_t why) {
    if (lane->why != WEFT_OK) return;
    lane->why = why;
    (void)weft__causes_line(why, lane->cause, sizeof lane->cause);
}

void weft__rc_lane_break(struct rc_lane *lane, weft_status_t why) {
    weft__rc_lane_noted(lane, why);
    weft__rc_lane_todo(lane, RC_TODO_BREAK);
}

void weft__rc_lane_fault(struct rc_lane *lane, enum fsm_verb verb) {
    weft_status_t why = verb == FSM_VIOL ? WEFT_ERR_PROTOCOL : WEFT_ERR_INTERNAL;
    const char *text = verb == FSM_VIOL ? "it sent what is not due" : "an unexpected event";
    weft__rc_lane_break(lane, weft__fail(why, "%s", text));
}

static weft_status_t note_cause(const struct rc_lane *lane) {
    if (*lane->cause) return weft__fail(lane->why, "%s", lane->cause);
    weft__causes_clear();
    return lane->why;
}

/* ---- the queue pair -------------------------------------------------------------------------- */

struct rc_lane *weft__rc_lane_find(const struct rc_iface *iface, uint32_t qp_num) {
    struct rc_lane *lane;
    LIST_FOREACH(lane, &iface->bucket[qp_num % RC_BUCKETS], of_bucket)
    if (lane->qp->qp_num == qp_num) return lane;
    return NULL;
}

static weft_status_t rc_lane_create(struct rc_lane *lane) {
    struct rc_iface *iface = rc_iface_of(lane);
    if (!iface->device) return weft__fail(WEFT_ERR_UNREACHABLE, "the RDMA device was removed");
    struct ibv_qp_init_attr init = {.qp_context = lane,
                                    .send_cq = iface->cq.cq,
                                    .recv_cq = iface->cq.cq,
                                    .srq = iface->srq,
                                    .cap = {.max_send_wr = lane->depth,
                                            .max_send_sge = iface->iface.attr.max_iov + 1,
                                            .max_inline_data = iface->max_inline},
                                    .qp_type = IBV_QPT_RC};
    bool given = weft__rc_given(iface)->n_qp;
    lane->qp = given ? weft__rc_given_take(iface) : ibv_create_qp(iface->device->pd, &init);
    if (!lane->qp) return weft__rd_fail("ibv_create_qp", errno);
    LIST_INSERT_HEAD(&iface->bucket[lane->qp->qp_num % RC_BUCKETS], lane, of_bucket);
    return WEFT_OK;
}

static void destroy(struct rc_lane *lane) {
    if (!lane->qp) return;
    LIST_REMOVE(lane, of_bucket);
    bool given = weft__rc_given(rc_iface_of(lane))->n_qp;
    int error = given ? weft__rc_given_return(lane->qp) : ibv_destroy_qp(lane->qp);
    if (error)
        weft__log(rc_context(lane), WEFT_LOG_ERROR, "rdma", "%s: errno %d",
                  given ? "ibv_modify_qp to RESET" : "ibv_destroy_qp", error);
    lane->qp = NULL;
}

/* The route as rdmacm resolved it. */
static bool ask_cm(struct rc_lane *lane, enum ibv_qp_state to, struct ibv_qp_attr *attr,
                   int *mask) {
    *attr = (struct ibv_qp_attr){.qp_state = to};
    return rdma_init_qp_attr(lane->cm.id, attr, mask) == 0;
}

/* The same without it. */
static void by_address(struct rc_lane *lane, enum ibv_qp_state to, struct ibv_qp_attr *attr,
                       int *mask) {
    const struct rc_iface *iface = rc_iface_of(lane);
    const struct rd_device *d = iface->device;
    *attr = (struct ibv_qp_attr){.qp_state = to};
    if (to == IBV_QPS_INIT) {
        attr->port_num = d->port;
        *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    } else if (to == IBV_QPS_RTR) {
        (void)weft__rd_reach(d, &lane->peer.place, &attr->ah_attr);
        attr->path_mtu = weft__rd_mtu(d, &lane->peer.place);
        attr->dest_qp_num = lane->peer.qp;
        attr->rq_psn = lane->peer.psn;
        attr->max_dest_rd_atomic = lane->reads_in;
        *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    } else {
        attr->sq_psn = lane->psn;
        attr->timeout = ACK_TIMEOUT;
        attr->max_rd_atomic = lane->reads_out;
        *mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    }
}

/* One step of the queue pair's own states. After one that failed the others are not tried: the
 * job ends the lane. */
static void modify(struct rc_lane *lane, enum ibv_qp_state to) {
    struct ibv_qp_attr attr;
    int mask = 0;
    if (!lane->qp || lane->todo & RC_TODO_BREAK) return;
    if (!lane->cm.id) {
        by_address(lane, to, &attr, &mask);
    } else if (!ask_cm(lane, to, &attr, &mask)) {
        weft__rc_lane_break(lane, weft__rd_fail("rdma_init_qp_attr", errno));
        return;
    }
    if (mask & IBV_QP_ACCESS_FLAGS)
        attr.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    /* rdmacm has the peer's word, and before ours is said, that alone. */
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr.max_rd_atomic > lane->reads_out)
        attr.max_rd_atomic = lane->reads_out;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr.max_dest_rd_atomic > lane->reads_in)
        attr.max_dest_rd_atomic = lane->reads_in;
    attr.min_rnr_timer = RNR_TIMER;
    attr.retry_cnt = RETRIES;
    attr.rnr_retry = FOREVER;
    int error = ibv_modify_qp(lane->qp, &attr, mask);
    if (error) weft__rc_lane_break(lane, weft__rd_fail("ibv_modify_qp", error));
}

/* The marker comes back behind all that is flushed. */
static void to_error(struct rc_lane *lane) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    lane->lane.ops = &weft__rc_ops_ended;
    lane->take = weft__rc_take_nothing;
    pending_queue_init(&lane->pending);
    weft__rc_keys_end(lane, lane->why ? lane->why : WEFT_ERR_CLOSED);
    if (!lane->qp) return;
    if (ibv_modify_qp(lane->qp, &attr, IBV_QP_STATE) == 0 &&
        lane->posted - lane->done < lane->depth)
        weft__rc_post_nothing(lane, &(struct rc_work){.what = RC_MARKER});
}

/* Its sends are back, and no receive comes any more: the queue pair may go. */
void weft__rc_lane_drained(struct rc_lane *lane) {
    if (!lane->marked || !lane->last_received || lane->posted != lane->done) return;
    lane->marked = false;
    weft__fsm_step(&lane->machine.fsm, RC_QP_EV_DRAINED);
}

static void release_lane(struct rc_lane *lane) {
    weft_status_t why = lane->why ? lane->why : WEFT_ERR_CLOSED;
    bool had = lane->qp != NULL;
    lane->lane.ops = &weft__rc_ops_ended;
    lane->take = weft__rc_take_nothing;
    pending_queue_init(&lane->pending);
    weft__timer_stop(rc_reactor(lane), &lane->deadline);
    weft__rc_keys_end(lane, why);
    weft__rc_grants_end(lane); /* first: a window that is bound to it holds the queue pair */
    destroy(lane);
    weft__rd_cm_end(&lane->cm);
    weft__rc_works_strip(lane);
    lane->todo &= RC_TODO_ACCEPTED;
    if (had) weft__rc_enlist(lane, NULL);
}

/* ---- the port -------------------------------------------------------------------------------- */

/* Its place was reserved: a close must not fail, nor a wait have no bound. */
static void arm_lane(struct rc_lane *lane, uint64_t ms) {
    struct reactor *r = rc_reactor(lane);
    (void)weft__timer_start(r, &lane->deadline, weft__now(r) + ms * NS_PER_MS);
}

static bool take_todo(struct rc_lane *lane, unsigned what) {
    bool was = lane->todo & what;
    lane->todo &= ~what;
    return was;
}

static void hand_over(struct rc_lane *lane) {
    void *arg = lane->listener->own ? NULL : lane->listener->arg;
    lane->listener = NULL;
    lane->lane.iface->up->accepted(&lane->lane, arg);
}

/* It may be there before the job has notified the owner of the lane; the owner may close it
 * then. */
static void take_first(struct rc_lane *lane, uint8_t kind, const uint8_t *data, size_t len) {
    lane->take = weft__rc_take_messages;
    if (take_todo(lane, RC_TODO_ACCEPTED)) hand_over(lane);
    lane->take(lane, kind, data, len);
}

static void open_lane(struct rc_lane *lane, unsigned notify) {
    lane->lane.ops = &weft__rc_ops_open;
    lane->take = notify == RC_TODO_ACCEPTED ? take_first : weft__rc_take_messages;
    weft__rc_lane_todo(lane, notify);
}

static void send_goodbye(struct rc_lane *lane) {
    lane->lane.ops = &weft__rc_ops_ended;
    lane->take = weft__rc_take_nothing;
    weft__rc_keys_end(lane, lane->why ? lane->why : WEFT_ERR_CLOSED);
    if (!rc_has_room(lane, 1) || !weft__rc_post_word(lane, RC_GOODBYE, NULL, 0, true, RC_BYE))
        weft__rc_lane_todo(lane, RC_TODO_BREAK);
}

static void create_effect(struct rc_lane *lane) {
    weft_status_t st = rc_lane_create(lane);
    if (st < 0) weft__rc_lane_break(lane, st);
}

/* Whether what an effect says can still be said. */
static void send_msg(struct rc_lane *lane, weft_status_t (*what)(struct rc_lane *lane)) {
    if (lane->todo & RC_TODO_BREAK) return;
    weft_status_t st = what(lane);
    if (st < 0) weft__rc_lane_break(lane, st);
}

static weft_status_t establish(struct rc_lane *lane) {
    return rdma_establish(lane->cm.id) ? weft__rd_fail("rdma_establish", errno) : WEFT_OK;
}

static weft_status_t send_proof(struct rc_lane *lane) {
    bool sent =
        weft__rc_post_word(lane, RC_PROVE, lane->proof, sizeof lane->proof, false, RC_PLAIN);
    return sent ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the proof of the key");
}

static void on_effect(struct fsm *m, unsigned effect) {
    struct rc_lane *lane = lane_of(m);
    uint64_t close_ms = weft__setting_u64(rc_context(lane), SETTING_CLOSE_TIMEOUT);
    switch ((enum rc_qp_effect)effect) {
    case RC_QP_FX_CREATE: create_effect(lane); break;
    case RC_QP_FX_TO_INIT: modify(lane, IBV_QPS_INIT); break;
    case RC_QP_FX_TO_RTR: modify(lane, IBV_QPS_RTR); break;
    case RC_QP_FX_TO_RTS: modify(lane, IBV_QPS_RTS); break;
    case RC_QP_FX_TO_ERR: to_error(lane); break;
    case RC_QP_FX_SEND_REQUEST: send_msg(lane, weft__rc_send_request); break;
    case RC_QP_FX_SEND_ANSWER:
        lane->take = weft__rc_take_proof;
        send_msg(lane, weft__rc_send_answer);
        break;
    case RC_QP_FX_ESTABLISH: send_msg(lane, establish); break;
    case RC_QP_FX_SEND_PROOF: send_msg(lane, send_proof); break;
    case RC_QP_FX_SEND_GOODBYE: send_goodbye(lane); break;
    case RC_QP_FX_DISCONNECT:
        if (lane->cm.id) rdma_disconnect(lane->cm.id);
        break;
    case RC_QP_FX_ARM_CLOSE:
    case RC_QP_FX_ARM_DRAIN: arm_lane(lane, close_ms); break;
    case RC_QP_FX_DISARM: weft__timer_stop(rc_reactor(lane), &lane->deadline); break;
    case RC_QP_FX_RELEASE: release_lane(lane); break;
    case RC_QP_FX_NOTIFY_UP: open_lane(lane, RC_TODO_UP); break;
    case RC_QP_FX_NOTIFY_ACCEPTED: open_lane(lane, RC_TODO_ACCEPTED); break;
    case RC_QP_FX_NOTIFY_DOWN: weft__rc_lane_todo(lane, RC_TODO_DOWN); break;
    case RC_QP_FX_NOTIFY_CLOSED: weft__rc_lane_todo(lane, RC_TODO_CLOSED); break;
    case RC_QP_N_EFFECTS: break;
    }
}

/* The machine stands where it stood; the connection ends by the job, since we may be inside of
 * anything. */
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb verb) {
    struct rc_lane *lane = lane_of(m);
    weft__log_limited(rc_context(lane), verb == FSM_VIOL ? WEFT_LOG_WARN : WEFT_LOG_ERROR, "rdma",
                      "queue pair %u: %s in state %s", m->id, weft__rc_qp_machine.event_name[event],
                      fsm_state_name(m));
    rc_count(lane)->violations += verb == FSM_VIOL;
    lane->take = weft__rc_take_nothing;
    weft__rc_lane_fault(lane, verb);
}

static const struct fsm_port port = {&weft__rc_qp_machine, on_effect, on_fail};

void weft__rc_lane_bad(struct rc_lane *lane, weft_status_t why, const char *what) {
    char name[80];
    weft__rc_lane_describe(&lane->lane, name, sizeof name);
    weft__log_limited(rc_context(lane), WEFT_LOG_WARN, "rdma", "%s: %s (%s)", name, what,
                      weft_status_name(why));
    rc_count(lane)->violations++;
    weft__rc_lane_noted(lane, weft__fail(why, "%s", what));
    weft__fsm_step(&lane->machine.fsm, RC_QP_EV_BAD);
}

/* ---- notifications of the owner -------------------------------------------------------------- */

static void lane_gone(struct rc_lane *lane) {
    struct rc_iface *iface = rc_iface_of(lane);
    TAILQ_REMOVE(&iface->lanes, lane, of_iface);
    iface->n_lanes--;
    weft__rc_enlist(lane, NULL);
    weft__rc_keys_free(lane);
    weft__rc_backlog_drop(lane);
    talloc_free(lane->work);
    weft__job_drop(iface->iface.reactor, &lane->job);
    weft__timer_release(iface->iface.reactor, &lane->deadline);
    weft__slab_free_later(&iface->lane_slab, lane);
}

/* The lane is released: the owner, if it has one, gets `closed`, its last callback. */
static void finish_lane(struct rc_lane *lane) {
    bool known = lane->listener == NULL;
    weft__rc_works_notify(lane, lane->why ? lane->why : WEFT_ERR_CLOSED);
    if (known) lane->lane.iface->up->closed(&lane->lane);
    lane_gone(lane);
}

static void lane_job(struct job *job) {
    struct rc_lane *lane = container_of(job, struct rc_lane, job);
    const struct iface_up *up = lane->lane.iface->up;
    if (take_todo(lane, RC_TODO_ACCEPTED)) hand_over(lane);
    if (take_todo(lane, RC_TODO_UP)) {
        up->up(&lane->lane);
        weft__rc_retry(lane);
    }
    if (take_todo(lane, RC_TODO_BREAK)) {
        weft__rc_lane_why(lane, WEFT_ERR_PEER_FAILED);
        weft__fsm_step(&lane->machine.fsm, RC_QP_EV_BROKEN);
    }
    if (take_todo(lane, RC_TODO_GO_ON)) weft__rc_go_on(lane);
    if (take_todo(lane, RC_TODO_RETRY)) weft__rc_retry(lane);
    if (take_todo(lane, RC_TODO_KEYED) && up->keyed) up->keyed(&lane->lane);
    if (take_todo(lane, RC_TODO_DOWN)) {
        weft__rc_receive_rest(lane);
        weft__rc_works_notify(lane, lane->why);
        pending_queue_init(&lane->pending);
        if (!(lane->todo & RC_TODO_CLOSED)) up->down(&lane->lane, note_cause(lane));
    }
    if (take_todo(lane, RC_TODO_CLOSED)) finish_lane(lane);
}

static void deadline_passed(struct timer *timer) {
    struct rc_lane *lane = container_of(timer, struct rc_lane, deadline);
    weft__rc_lane_why(lane, WEFT_ERR_TIMED_OUT);
    weft__fsm_step(&lane->machine.fsm, RC_QP_EV_TIMEOUT);
}

void weft__rc_lane_reads(struct rc_lane *lane, uint8_t in, uint8_t out) {
    if (lane->reads_in > in) lane->reads_in = in;
    if (lane->reads_out > out) lane->reads_out = out;
}

/* ---- birth and death ------------------------------------------------------------------------- */

static void init_lane(struct rc_iface *iface, bool acceptor, struct rc_lane *lane) {
    lane->lane = (struct lane){.ops = &weft__rc_ops_early, .iface = &iface->iface, .scarce = true};
    lane->acceptor = acceptor;
    /* Where that event does not come, it is not waited for. */
    lane->last_received =
        iface->software || (weft__rc_given(iface)->pd && !weft__rc_given(iface)->event);
    lane->depth = iface->depth;
    lane->reads_in = lane->reads_out = iface->reads;
    lane->take = weft__rc_take_nothing;
    lane->job.run = lane_job;
    lane->deadline.fire = deadline_passed;
    lane->credit = RC_CREDITS;
    lane->backlog_last = &lane->backlog;
    pending_queue_init(&lane->pending);
    words_init(&lane->words);
    words_init(&lane->waiting);
    fsm_init(&lane->machine.fsm, &port, RC_QP_RESET, ++iface->next_id);
}

weft_status_t weft__rc_lane_new(struct rc_iface *iface, bool acceptor, struct rc_lane **lane_p) {
    struct reactor *r = iface->iface.reactor;
    if (iface->n_lanes >= iface->most_lanes)
        return weft__fail(WEFT_ERR_QUOTA, "all %u queue pairs are in use (rdma.queue_pairs)",
                          iface->most_lanes);
    struct rc_lane *lane = weft__slab_take(&iface->lane_slab);
    struct rc_work *work =
        lane ? weft__alloc(iface, iface->depth * sizeof *work, "rc requests") : NULL;
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    if (!work) {
        weft__fail(st, "no memory for a connection");
        goto fail;
    }
    lane->work = work;
    init_lane(iface, acceptor, lane);
    st = weft__timer_reserve(r, &lane->deadline);
    if (st < 0) goto fail;
    /* The acceptor has the same limit: rdmacm repeats a lost message of its own after 4 s. */
    arm_lane(lane, weft__setting_u64(weft__reactor_context(r), SETTING_CONNECT_TIMEOUT));
    TAILQ_INSERT_TAIL(&iface->lanes, lane, of_iface);
    iface->n_lanes++;
    *lane_p = lane;
    return WEFT_OK;

fail:
    talloc_free(work);
    if (lane) weft__slab_put(&iface->lane_slab, lane);
    return st;
}

void weft__rc_lane_free(struct rc_lane *lane) {
    release_lane(lane);
    lane_gone(lane);
}

void weft__rc_lane_end(struct rc_lane *lane) {
    weft__fsm_step(&lane->machine.fsm, RC_QP_EV_GONE);
    weft__rc_works_notify(lane, WEFT_ERR_CLOSED);
    lane_gone(lane);
}

void weft__rc_lane_close(struct lane *l, bool flush) {
    struct rc_lane *lane = rc_lane(l);
    pending_queue_init(&lane->pending);
    if (!flush) weft__rc_lane_why(lane, WEFT_ERR_CLOSED);
    weft__fsm_step(&lane->machine.fsm, flush ? RC_QP_EV_FLUSH : RC_QP_EV_ABORT);
}

/* `hello` is the dialer's, `answer` the acceptor's: one of them is ours. */
uint64_t weft__rc_lane_peer_id(const struct lane *l) {
    const struct rc_lane *lane = (const struct rc_lane *)l;
    uint64_t ours = l->iface->worker_id;
    return lane->hello.worker == ours ? lane->answer.worker : lane->hello.worker;
}

void weft__rc_lane_describe(struct lane *l, char *buf, size_t size) {
    const struct rc_lane *lane = rc_lane(l);
    char ip[INET6_ADDRSTRLEN] = "?";
    if (lane->peer_ip.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &lane->peer_ip.v4.sin_addr, ip, sizeof ip);
        snprintf(buf, size, "%s:%u", ip, ntohs(lane->peer_ip.v4.sin_port));
    } else if (lane->peer_ip.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &lane->peer_ip.v6.sin6_addr, ip, sizeof ip);
        snprintf(buf, size, "[%s]:%u", ip, ntohs(lane->peer_ip.v6.sin6_port));
    } else {
        snprintf(buf, size, "lid %u, queue pair %u", lane->peer.place.lid, lane->peer.qp);
    }
}

/* ---- by lane addresses ----------------------------------------------------------------------- */

weft_status_t weft__rc_lane_create(struct iface *i, struct lane **lane_p) {
    struct rc_lane *lane;
    weft_status_t st = weft__rc_lane_new((struct rc_iface *)i, false, &lane);
    if (st < 0) return st;
    lane->psn = (uint32_t)weft__random(i->reactor) & RC_PSN;
    weft__fsm_step(&lane->machine.fsm, RC_QP_EV_MAKE);
    if (lane->todo & RC_TODO_BREAK) {
        st = lane->why;
        weft__rc_lane_free(lane);
        return st;
    }
    *lane_p = &lane->lane;
    return WEFT_OK;
}

weft_status_t weft__rc_lane_address(struct lane *l, void *buf, size_t *len_p) {
    struct rc_lane *lane = rc_lane(l);
    const struct rc_iface *iface = rc_iface_of(lane);
    if (*len_p < RC_LANE_ADDRESS_SIZE)
        return weft__fail(WEFT_ERR_TRUNCATED, "the address of an rdma_rc lane has %d bytes",
                          RC_LANE_ADDRESS_SIZE);
    if (!lane->qp) return weft__fail(WEFT_ERR_BUSY, "this lane has no queue pair");
    struct rc_lane_address address = {iface->device->place, lane->qp->qp_num, lane->psn,
                                      iface->buffer, iface->reads};
    weft__rc_lane_address_encode(&address, buf);
    *len_p = RC_LANE_ADDRESS_SIZE;
    return WEFT_OK;
}

weft_status_t weft__rc_lane_connect(struct lane *l, const void *bytes, size_t len) {
    struct rc_lane *lane = rc_lane(l);
    struct rc_lane_address peer;
    struct ibv_ah_attr attr;
    weft_status_t st = weft__rc_lane_address_decode(bytes, len, &peer);
    if (st < 0) return weft__fail(st, "not the address of an rdma_rc lane");
    if (lane->cm.id || !rc_qp_is_init(&lane->machine.fsm) || !lane->qp)
        return weft__fail(WEFT_ERR_BUSY, "this lane is already connected");
    if (peer.buffer != rc_iface_of(lane)->buffer)
        return weft__fail(WEFT_ERR_REFUSED, "the peer has another rdma.buffer");
    if (!weft__rd_reach(rc_iface_of(lane)->device, &peer.place, &attr))
        return weft__fail(WEFT_ERR_UNREACHABLE, "the peer uses another link layer");
    lane->peer = peer;
    weft__rc_lane_reads(lane, peer.reads, peer.reads);
    weft__fsm_step(&lane->machine.fsm, RC_QP_EV_MEET);
    return WEFT_OK;
}

/* Frames that come in: distinguished, put in their place, delivered once. */
#include "window_local.h"
#include <stdio.h>
#include <string.h>

/* ---- memory for what is not yet whole -------------------------------------------------------- */

static struct window_held *held_new(struct window_iface *iface) {
    struct window_held *h = iface->frames;
    if (!h) return weft__alloc(iface, sizeof *h + iface->fragment, "struct window_held");
    iface->frames = h->next;
    return h;
}

static void held_free(struct window_iface *iface, struct window_held *h) {
    h->next = iface->frames;
    iface->frames = h;
}

static bool keep_frame(struct window_lane *wl, const struct window_frame *f) {
    struct window_held *h = held_new(window_iface(wl));
    if (!h) return false;
    h->frame = *f;
    h->frame.data = h->data;
    if (f->len) memcpy(h->data, f->data, f->len);
    wl->held[f->seq % WINDOW_FRAMES] = h;
    return true;
}

static struct window_held *take_held(struct window_lane *wl, uint32_t seq) {
    struct window_held *h = wl->held[seq % WINDOW_FRAMES];
    wl->held[seq % WINDOW_FRAMES] = NULL;
    return h;
}

static void release_frame(struct window_lane *wl, uint32_t seq) {
    struct window_held *h = take_held(wl, seq);
    if (h) held_free(window_iface(wl), h);
}

void weft__window_release_held(struct window_lane *wl) {
    for (unsigned i = 0; i < WINDOW_FRAMES; i++) release_frame(wl, i);
}

/* Before the first fragment is taken, so that none is acknowledged that has no place. */
static bool reserve_whole(struct window_lane *wl) {
    if (!wl->whole) wl->whole = weft__alloc(wl, window_iface(wl)->whole, "window message");
    return wl->whole != NULL;
}

/* ---- in its place ---------------------------------------------------------------------------- */

static void violate(struct window_lane *wl, const char *what) {
    weft__log_limited(weft__reactor_context(window_reactor(wl)), WEFT_LOG_WARN, "window",
                      "the peer sent %s", what);
    char cause[WINDOW_CAUSE];
    snprintf(cause, sizeof cause, "it sent %s", what);
    weft__window_why(wl, WEFT_ERR_PROTOCOL, cause);
    weft__count(window_reactor(wl))->violations++;
    weft__window_step(wl, CONN_EV_BROKEN);
}

static void add_fragment(struct window_lane *wl, const struct window_frame *f) {
    size_t len = wl->whole_len + f->len;
    if (len > window_iface(wl)->whole) return violate(wl, "a message beyond the limit");
    if (wl->whole_len && (f->id != wl->whole_id || f->more + 1 != wl->whole_more))
        return violate(wl, "fragments out of line");
    if (f->len == 0) return violate(wl, "an empty fragment");
    memcpy(wl->whole + wl->whole_len, f->data, f->len);
    wl->whole_len = len;
    wl->whole_more = f->more;
    wl->whole_id = f->id;
    if (f->more) return;
    wl->whole_len = 0;
    lane_handlers(&wl->lane)[f->id](&wl->lane, f->id, wl->whole, len);
}

void weft__window_deliver(struct window_lane *wl, const struct window_frame *f) {
    if (f->kind == WINDOW_FIN) {
        weft__window_why(wl, WEFT_ERR_PEER_CLOSED, "");
        weft__window_step(wl, CONN_EV_FIN);
    } else if (f->more || wl->whole_len) {
        add_fragment(wl, f);
    } else {
        lane_handlers(&wl->lane)[f->id](&wl->lane, f->id, f->data, f->len);
    }
}

void weft__window_discard(struct window_lane *wl, const struct window_frame *f) {}

/* The frame, and those that waited for it. A handler may close the lane; `deliver` knows. */
static void deliver_frame(struct window_lane *wl, const struct window_frame *f, uint32_t seq) {
    wl->deliver(wl, f);
    while (++seq != wl->win.expected) {
        struct window_held *h = take_held(wl, seq);
        if (!h) continue; /* the lane went down in a handler, and freed them */
        wl->deliver(wl, &h->frame);
        held_free(window_iface(wl), h);
    }
}

static void take_ack(struct window_lane *wl, const struct window_frame *f) {
    enum window_event event = weft__window_ack(&wl->win, f->ack, f->sack);
    if (fsm_verb(&wl->win.fsm, event) == FSM_SKIP) return; /* as most that come with data are */
    uint32_t last = f->ack - 1;
    bool settles = event == WINDOW_EV_ACK || event == WINDOW_EV_ACK_ALL;
    if (settles && last + 1 != wl->win.una && !(wl->again & window_bit(last)))
        window_time_sample(&wl->time,
                           weft__now(window_reactor(wl)) - wl->sent_at[last % WINDOW_FRAMES]);
    weft__fsm_step(&wl->win.fsm, event);
    weft__window_release(wl);
}

/*
 * A paused lane leaves the next frame where it would be if it had come early, and does not
 * acknowledge it. So its peer keeps that one and sends no more than a window behind it, asks by it
 * now and then, and each answer makes it wait on.
 */
static void put_off(struct window_lane *wl, const struct window_frame *f) {
    if (!wl->held[f->seq % WINDOW_FRAMES]) (void)keep_frame(wl, f); /* it comes again */
    wl->words |= 1u << WINDOW_ACK;
}

weft_status_t weft__window_pause(struct lane *lane, bool on) {
    struct window_lane *wl = (struct window_lane *)lane;
    wl->paused = on;
    wl->holding |= on;
    if (!on) weft__job_post(window_reactor(wl), &wl->job);
    return WEFT_OK;
}

void weft__window_go_on(struct window_lane *wl) {
    if (!wl->holding || wl->paused) return;
    struct window_held *h = take_held(wl, wl->win.expected);
    wl->holding = false;
    if (!h) return;
    wl->take(wl, &h->frame);
    held_free(window_iface(wl), h);
}

void weft__window_unpause(struct window_lane *wl) {
    wl->paused = false;
    if (wl->holding) release_frame(wl, wl->win.expected);
    wl->holding = false;
}

/* The peer holds frames back on purpose. That is no sign of a broken path: the failure timer starts
 * again. */
static void be_patient(struct window_lane *wl) {
    wl->progress_at = weft__now(window_reactor(wl));
    wl->again = UINT64_MAX;
}

static void take_numbered(struct window_lane *wl, const struct window_frame *f) {
    enum window_event event = weft__window_frame(&wl->win, f->seq);
    bool next = event == WINDOW_EV_FRAME || event == WINDOW_EV_FRAME_FILLS;
    if (f->more && !reserve_whole(wl)) return;
    if (wl->holding && next) return put_off(wl, f);
    if (event == WINDOW_EV_FRAME_EARLY && !keep_frame(wl, f)) return;
    weft__count(window_reactor(wl))->duplicates += event == WINDOW_EV_FRAME_OLD;
    wl->unacked++;
    weft__fsm_step(&wl->win.fsm, event);
    if (next) deliver_frame(wl, f, f->seq);
}

void weft__window_take(struct window_lane *wl, const struct window_frame *f) {
    wl->violated = false;
    take_ack(wl, f);
    if (f->paused) be_patient(wl);
    if (f->kind != WINDOW_ACK && !wl->violated) take_numbered(wl, f);
    if (wl->violated) violate(wl, "a number out of the window");
}

/* ---- by state -------------------------------------------------------------------------------- */

void weft__window_ignore(struct window_lane *wl, const struct window_frame *f) {}

/* Its owner learns of the lane before the message is delivered. */
void weft__window_prove(struct window_lane *wl, const struct window_frame *f) {
    weft__window_step(wl, CONN_EV_PROOF);
    weft__window_settle(wl);
    wl->take(wl, f);
}

/* ---- every frame ----------------------------------------------------------------------------- */

/* The reason that the owner gets if these frames bring its lane down. */
static void note_reason(struct window_lane *wl, int event) {
    if (event == CONN_EV_RST)
        weft__window_why(wl, WEFT_ERR_PEER_CLOSED, "");
    else if (event == CONN_EV_ECHO && wl->conn.peer_tag)
        weft__window_why(wl, WEFT_ERR_PEER_FAILED,
                         "the worker there does not know this connection any more");
    else if (event == CONN_EV_ECHO)
        weft__window_why(wl, WEFT_ERR_REFUSED, "");
}

void weft__window_on_frame(struct lane *raw, unsigned id, const void *data, size_t len) {
    struct window_lane *wl = raw->owner;
    struct window_frame f;
    if (!wl) return; /* there was no memory for it */
    if (!weft__window_decode(data, len, &f) || f.len > window_iface(wl)->fragment) {
        weft__count(window_reactor(wl))->violations++;
        return;
    }
    int event = weft__conn_recv(&wl->conn, &f);
    note_reason(wl, event);
    wl->received = true;
    if (event == CONN_EV_PROOF)
        wl->take(wl, &f); /* a conversation under way steps no machine for it */
    else if (event != CONN_NO_EVENT)
        weft__window_step(wl, (enum conn_event)event);
    weft__window_settle(wl);
}

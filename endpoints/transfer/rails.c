/* Rails of a link: asking for them, granting and losing them, and splitting a message among
 * them. */
#include "rails.h"

#include <base/counters.h>

#include "layout.h"
#include "rendezvous.h"
#include <endpoints/core/worker.h>

/* WIRE_RAIL: 0: may I have one (dialer), or no (its answer); else a number: send HELLO with
 * it, or that rail is gone. */
static const uint32_t rail_gone = UINT32_C(1) << 31;

/* Of a link that has rails, or may have. */
struct rails {
    struct link *rail[RAILS_MAX - 1];
    uint32_t n;
    uint32_t asked;  /* dialed: rails asked for, at most once each */
    uint32_t dialed; /* of those */
    uint32_t
        granted[RAILS_MAX - 1]; /* accepted: numbers that a handshake may show, once; 0: none */
    uint32_t messages;          /* that were split */
    /* a rail that was left out did better: the next message looks again */
    bool look;
    void *address; /* that the link's lane was dialed to; NULL: by URI */
    size_t address_len;
};

/* Beside the link's own lane. */
static uint32_t wanted_rail(const struct link *link) {
    uint64_t n = weft__setting_u64(link->worker->context, SETTING_LINK_RAILS);
    assert(n > 0 && n <= RAILS_MAX);
    return (uint32_t)n - 1;
}

static struct rails *rails_of(struct link *link) {
    struct link_ext *more = weft__link_ext(link);
    if (more && !more->rails) more->rails = weft__new(link->worker, struct rails);
    return more ? more->rails : NULL;
}

uint32_t weft__rails_count(const struct link *link) {
    return link->more->rails ? link->more->rails->n : 0;
}

/* ---- getting them ---------------------------------------------------------------------------- */

static void send_msg(struct link *link, uint32_t number) {
    struct wire_message m;
    weft__wire_one(&m, WIRE_RAIL, number);
    weft__link_answer(link, &m);
}

void weft__rails_want(struct link *link, size_t len) {
    uint32_t n = len < RAILS_LEAST ? 0 : wanted_rail(link);
    if (n == 0 || !link->dialed || link->more->main || link->more->retain ||
        link->at != link->home || link->peer == link->worker->id)
        return;
    if (!rails_of(link)) return;
    for (; link->more->rails->asked < n; link->more->rails->asked++) send_msg(link, 0);
}

void weft__rails_dialed(struct link *link, const void *address, size_t len) {
    struct rails *rails = wanted_rail(link) ? rails_of(link) : NULL;
    if (!rails) return;
    rails->address = weft__alloc(rails, len, "address");
    if (!rails->address) return; /* no rails, then */
    memcpy(rails->address, address, len);
    rails->address_len = len;
}

void weft__rails_free(struct link *link) {
    if (!link->more->rails) return;
    talloc_free(link->more->rails);
    link->more->rails = NULL;
}

/* To where the link's own lane was dialed, or beside it where that peer has several places. */
static weft_status_t dial_this_rail(struct link *link, struct lane **lane_p) {
    struct iface *home = weft__link_home(link);
    const struct iface_ops *ops = home->ops;
    struct rails *rails = link->more->rails;
    uint32_t nth = ++rails->dialed;
    if (link->uri) return ops->connect_uri(home, strstr(link->uri, "://") + 3, lane_p);
    if (!rails->address) return WEFT_ERR_UNSUPPORTED;
    if (!ops->connect_nth) return ops->connect(home, rails->address, rails->address_len, lane_p);
    return ops->connect_nth(home, rails->address, rails->address_len, nth, lane_p);
}

/* Without a rail the link does what it did before. */
static void dial_rail(struct link *link, uint32_t number) {
    struct lane *lane;
    struct link *rail;
    if (dial_this_rail(link, &lane) < 0 ||
        weft__link_dial(link->worker, lane, link->peer, NULL, "a rail", &rail) < 0)
        return;
    rail->flags = WIRE_HELLO_EXTRA | WIRE_HELLO_RAIL;
    if (!weft__link_ext(rail)) {
        weft__link_close(rail);
        return;
    }
    rail->listener = rail->more->rail_number = number;
    rail->role = LINK_RAIL;
    rail->more->main = link;
}

static void grant(struct link *link) {
    struct rails *rails = wanted_rail(link) && !link->more->retain ? rails_of(link) : NULL;
    for (uint32_t i = 0; rails && rails->n + i < wanted_rail(link) && i < RAILS_MAX - 1; i++) {
        if (rails->granted[i]) continue;
        do rails->granted[i] = (uint32_t)weft__random(link->worker->reactor) & ~rail_gone;
        while (rails->granted[i] == 0);
        send_msg(link, rails->granted[i]);
        return;
    }
    send_msg(link, 0); /* no */
}

/* The peer lost it while nothing was on it, or so it seemed to the peer. */
static void gone(struct link *link, uint32_t number) {
    for (uint32_t i = 0; link->more->rails && i < link->more->rails->n; i++) {
        if (link->more->rails->rail[i]->more->rail_number != number) continue;
        weft__link_lose(link->more->rails->rail[i],
                        weft__fail(WEFT_ERR_PEER_FAILED, "the peer lost this rail"));
        return;
    }
}

void weft__on_rail(struct link *link, struct lane *lane, const struct wire_one *one) {
    const struct rails *rails = link->more->rails;
    bool dialed = link->dialed, asked = dialed && rails && rails->asked > 0;
    if (one->request & rail_gone)
        gone(link, one->request & ~rail_gone);
    else if (!dialed && one->request == 0)
        grant(link);
    else if (asked && one->request && rails->dialed < rails->asked)
        dial_rail(link, one->request);
    else if (!asked || one->request)
        weft__link_violation(link, "rail");
}

static bool take_grant(struct link *link, uint32_t number) {
    for (uint32_t i = 0; link->more->rails && number && i < RAILS_MAX - 1; i++) {
        if (link->more->rails->granted[i] != number) continue;
        link->more->rails->granted[i] = 0;
        return true;
    }
    return false;
}

bool weft__rail_handshakes(struct link *accepted, const struct wire_hello *hello) {
    struct list *links = &accepted->worker->links;
    list_for_each(n, links) {
        struct link *link = list_of(n, struct link, of_worker);
        if (link->peer != hello->worker || link == accepted || !link_is_up(&link->core.fsm))
            continue;
        if (!take_grant(link, hello->listener)) continue;
        accepted->more->main = link;
        accepted->more->rail_number = hello->listener;
        accepted->listener = 0;
        return true;
    }
    return false;
}

void weft__rail_up(struct link *rail) {
    struct link *link = rail->more->main;
    if (!link || !link->more->rails) return;
    if (link->more->rails->n < RAILS_MAX - 1)
        link->more->rails->rail[link->more->rails->n++] = rail;
    rail->worker->count->rails++;
}

/* ---- losing them ----------------------------------------------------------------------------- */

/* Some of this request's bytes may have been on a rail. */
static bool rides(const struct weft_request *req) {
    if (request_is_done(&req->core.fsm)) return false;
    if (req->rails.bytes) return true;
    return req->kind->places && req->id && request_is_waiting(&req->core.fsm) &&
           req->len >= RAILS_LEAST;
}

static bool busy(const struct link *link) {
    list_for_each(e, &link->endpoints) {
        struct weft_ep *ep = list_of(e, struct weft_ep, of_link);
        list_for_each(n, &ep->requests) {
            if (rides(list_of(n, struct weft_request, of_ep))) return true;
        }
    }
    return false;
}

/* It is unknown which bytes were on it: a message that was under way may miss some, so that its
 * link is lost. Otherwise the peer is notified on the link, before it is asked for a message of
 * which it might put a part there. */
static void leave_rail(struct link *rail) {
    struct link *link = rail->more->main;
    struct rails *rails = link->more->rails;
    rail->more->main = NULL;
    for (uint32_t i = 0; i < rails->n; i++) {
        if (rails->rail[i] != rail) continue;
        rails->rail[i] = rails->rail[--rails->n];
        if (busy(link))
            weft__link_lose(
                link, weft__fail(rail->status == WEFT_OK ? WEFT_ERR_PEER_FAILED : rail->status,
                                 "one of its rails was lost"));
        else
            send_msg(link, rail->more->rail_number | rail_gone);
        return;
    }
}

static void end_rails(struct link *link, bool abort) {
    struct list *links = &link->worker->links;
    list_for_each_safe(n, next, links) {
        struct link *rail = list_of(n, struct link, of_worker);
        if (rail->more->main != link) continue;
        rail->more->main = NULL;
        if (abort)
            weft__link_lose(rail, link->status);
        else
            weft__link_close(rail);
    }
}

void weft__rails_end(struct link *link, bool abort) {
    if (link->more->main) leave_rail(link);
    if (!link->more->rails) return;
    link->more->rails->n = 0;
    end_rails(link, abort);
}

/* ---- sending: parts -------------------------------------------------------------------------- */

static weft_status_t advance_part(struct weft_request *part) {
    struct weft_request *whole = part->other;
    char head[WIRE_DATA_HEAD];
    if (request_is_ending(&whole->core.fsm)) return WEFT_ERR_CANCELLED;
    struct lane *lane = part->rails.link->lane;
    size_t len = part->len - part->offset, room = weft__link_limits(part->rails.link)->piece;
    weft_iov_t slice[PLACE_IOV];
    if (len > room) len = room;
    size_t most = lane->iface->attr.max_iov < PLACE_IOV ? lane->iface->attr.max_iov : PLACE_IOV;
    size_t n = weft__iov_slice(slice, most, part->iov, part->n_iov, part->offset, &len);
    weft__wire_data(
        head, (struct wire_data){.to = part->peer_id, .offset = part->rails.base + part->offset});
    part->in_flight.count++;
    weft_status_t st = lane->ops->am_zcopy(
        lane, WIRE_DATA, &(struct lane_zcopy){head, sizeof head, slice, n}, &part->in_flight);
    if (st != WEFT_IN_PROGRESS) part->in_flight.count--;
    if (st != WEFT_OK && st != WEFT_IN_PROGRESS) return st;
    part->offset += len;
    whole->rails.sent += len;
    part->worker->count->rail_bytes += len;
    if (part->offset < part->len) return WEFT_IN_PROGRESS;
    if (part->in_flight.count == 0) return WEFT_OK;
    weft__request_hand_over(part);
    return WEFT_IN_PROGRESS;
}

static void part_returned(struct weft_request *part, weft_status_t status) {
    if (request_is_in_flight(&part->core.fsm) || status < 0) weft__request_finish(part, status);
}

static void release_part(struct weft_request *part) {
    if (part->other) completion_step(&part->other->in_flight, part->status);
}

static const struct request_kind part_kind = {
    .name = "part",
    .advance = advance_part,
    .returned = part_returned,
    .release = release_part,
};

/* A request like any other, in the rail's queue; it holds one of the whole's exposures until it is
 * done. */
static bool give_part(struct link *rail, struct weft_request *whole, size_t base, size_t len) {
    struct weft_request *part = weft__request_new(whole->worker, &part_kind);
    if (!part) return false;
    size_t n_iov = whole->n_iov, got = len;
    weft_iov_t *iov = n_iov > REQUEST_IOV_INLINE ? weft__alloc(part, n_iov * sizeof *iov, "iov")
                                                 : part->iov_inline;
    if (!iov) {
        weft__request_discard(part);
        return false;
    }
    part->iov = iov;
    part->n_iov = (uint32_t)weft__iov_slice(iov, n_iov, whole->iov, n_iov, base, &got);
    part->len = len;
    part->rails.base = base;
    part->peer_id = whole->peer_id;
    part->other = whole;
    part->rails.link = rail;
    whole->in_flight.count++;
    whole->rails.bytes += len;
    weft__link_submit(rail, part);
    return true;
}

static double rate_of(const struct link *link, double unknown) {
    return link->more->rate > 0 ? link->more->rate : unknown;
}

static double best_rate(const struct link *link) {
    const struct rails *rails = link->more->rails;
    double best = link->more->rate;
    for (uint32_t i = 0; i < rails->n; i++)
        if (rails->rail[i]->more->rate > best) best = rails->rail[i]->more->rate;
    return best > 0 ? best : 1;
}

/* Too slow to be waited for. From then on what it carried last is what counts. */
static void judge_rail(struct link *rail, double best) {
    bool slow = rate_of(rail, best) * RAILS_SLOW <= best;
    if (slow && !rail->left_out && rail->more->rate_last > 0 &&
        rail->more->rate_last < rail->more->rate)
        rail->more->rate = rail->more->rate_last;
    rail->left_out = slow;
}

/* From the end of the message to its beginning, so that the link's own part is what is left,
 * even where memory runs out. Shares are rounded up to pages, so that there is one to look at
 * however slow a rail was. */
void weft__rails_split(struct link *link, struct weft_request *req) {
    struct rails *rails = link->more->rails;
    if (!rails || rails->n == 0 || req->len < RAILS_LEAST || req->layout) return;
    bool look = rails->messages++ % RAILS_LOOK_AGAIN == 0 || rails->look;
    double best = best_rate(link), sum = rate_of(link, best);
    struct link *use[RAILS_MAX - 1]; /* giving may lose one */
    uint32_t n = 0;
    rails->look = false;
    for (uint32_t i = 0; i < rails->n; i++) {
        judge_rail(rails->rail[i], best);
        if (rails->rail[i]->left_out && !look) continue;
        sum += rate_of(rails->rail[i], best);
        use[n++] = rails->rail[i];
    }
    size_t end = req->len;
    for (uint32_t i = 0; i < n; i++) {
        size_t share =
            (size_t)((double)req->len * (rate_of(use[i], best) / sum) + 4095) & ~(size_t)4095;
        if (share >= end) /* the link's own lane has some, so that it is looked at too */
            share = (end - 1) & ~(size_t)4095;
        if (share == 0) continue;
        if (!give_part(use[i], req, end - share, share)) break;
        end -= share;
    }
}

/* ---- what they carry: seen by the receiver, since a socket takes bytes that are far from there
 * yet */

void weft__rails_notify_rate(struct link *link, uint32_t number, size_t bytes, uint64_t ns) {
    struct wire_message m;
    double rate = ns ? (double)bytes * 1e9 / (double)ns : 0;
    if (rate < 1 || rate > 1e18) return; /* in no time, or never: that says nothing */
    weft__wire_rail_rate(&m, (struct wire_credit){.ep = number, .bytes = (uint64_t)rate});
    weft__link_answer(link, &m);
}

/* Of a rail that is left out only the last time counts. When that was better, the next share
 * will be larger, and measure better. */
static void note_rate(struct link *link, struct link *of, uint64_t bytes_per_second) {
    double now = (double)bytes_per_second / 1e9, old = of->more->rate;
    of->more->rate_last = (float)now;
    of->more->rate = (float)(old > 0 && !of->left_out ? (old + now) / 2 : now);
    if (of->left_out && now > old * 1.1) link->more->rails->look = true;
}

void weft__on_rail_rate(struct link *link, struct lane *lane, const struct wire_credit *rate) {
    if (rate->bytes == 0) {
        weft__link_violation(link, "rail rate");
        return;
    }
    if (!link->more->rails) return; /* not any more */
    if (rate->ep == 0) note_rate(link, link, rate->bytes);
    for (uint32_t i = 0; i < link->more->rails->n; i++)
        if (link->more->rails->rail[i]->more->rail_number == rate->ep)
            note_rate(link, link->more->rails->rail[i], rate->bytes);
}

/* ---- the end of a send ----------------------------------------------------------------------- */

bool weft__rails_all_sent(const struct weft_request *req) {
    return req->offset + req->rails.bytes == req->len && req->rails.sent == req->rails.bytes;
}

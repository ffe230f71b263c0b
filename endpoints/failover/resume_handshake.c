/* Handshakes that come by a lane of a link with failover: of the first one, and of those that
 * replace a dead one. */
#include "resume_steps.h"
#include <endpoints/core/worker.h>

/* In the same time whatever it is. */
static bool same_ticket(const uint8_t *a, const uint8_t *b) {
    uint8_t differ = 0;
    for (unsigned i = 0; i < WIRE_TICKET; i++) differ |= a[i] ^ b[i];
    return differ == 0;
}

/* The peer's handshake has no support for failover: the lane is an ordinary one. */
static void undo(struct link *link) {
    struct retain *r = link->more->retain;
    link->lanes[0] = link->lane = r->raw;
    if (link->tx == &r->lane) link->tx = r->raw;
    r->raw->ops->recv_msg(r->raw, NULL);
    /* The queue of a lane holds no entry that is freed. */
    if (r->waits) r->raw->ops->pending_remove(r->raw, &r->raw_pending);
    weft__retain_free(link);
}

void weft__retain_handshake(const struct link *link, struct wire_hello *hello) {
    if (!link->more->retain || link->dialed) return;
    hello->flags |= WIRE_HELLO_SURVIVES;
    memcpy(hello->ticket, link->more->retain->ticket, sizeof hello->ticket);
}

void weft__retain_shaken(struct link *link, const struct wire_hello *hello) {
    if (!link->more->retain) return;
    if (weft__hello_has_ticket(hello))
        memcpy(link->more->retain->ticket, hello->ticket, sizeof hello->ticket);
    else
        undo(link);
    if (link->more->retain) link->more->retain->back_off = 0;
}

void weft__retain_lane_shaken(struct lane *fresh, unsigned id, const void *data, size_t len) {
    struct wire_hello hello;
    struct retain *r = retain_of_raw(fresh);
    if (!r || fresh != r->fresh) return;
    if (!weft__wire_read_hello(data, len, &hello)) {
        r->missed = true; /* anything else breaks it */
        retain_later(r);
        return;
    }
    bool is_it = hello.version == WIRE_VERSION && hello.worker == r->link->peer &&
                 hello.flags & WIRE_HELLO_RESUME && same_ticket(hello.ticket, r->ticket) &&
                 hello.epoch == r->core.epoch;
    step_resume(r, is_it ? weft__resume_answered(&r->core, hello.delivered) : RESUME_EV_REFUSED);
    weft__retain_pump(r);
}

/* Only a lane like the first: the log has messages as long as that one sends, and is sent as a run
 * where that one has runs. */
static struct retain *wanted_resume(const struct link *accepted, const struct wire_hello *hello) {
    struct list *links = &accepted->worker->links;
    if (accepted->peer && accepted->peer != hello->worker) return NULL;
    list_for_each(n, links) {
        struct link *link = list_of(n, struct link, of_worker);
        struct retain *r = link->more->retain;
        if (!r || link->dialed || link->peer != hello->worker || r->dead) continue;
        if (accepted->lane->iface != r->iface) continue;
        if (same_ticket(r->ticket, hello->ticket)) return r;
    }
    return NULL;
}

/* It receives our own handshake and no more, and no link notices. */
static void turn_away(struct link *accepted, const char *reason) {
    weft__log_limited(accepted->worker->context, WEFT_LOG_INFO, "endpoints",
                      "a connection that resumes another %s", reason);
    accepted->status = WEFT_ERR_PEER_FAILED;
    weft__fsm_step(&accepted->core.fsm, LINK_EV_HELLO_STALE);
}

/* The machine takes the accepted link's lane, or it does not: either link may be about to end, or
 * the accepted one comes late. */
void weft__retain_accepted(struct link *accepted, const struct wire_hello *hello) {
    struct retain *r = wanted_resume(accepted, hello);
    if (!r) {
        turn_away(accepted, "names a connection that this worker does not have");
        return;
    }
    r->accepted = accepted;
    step_resume(r, weft__resume_asked(&r->core, hello->epoch, hello->delivered));
    if (!r->accepted) {
        weft__retain_pump(r);
        return;
    }
    r->accepted = NULL;
    turn_away(accepted, "is late, or acknowledges messages that were not sent");
}

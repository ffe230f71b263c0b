/* Texts of failures, shared by the endpoints of a lost link, with the name of the peer. */
#include "cause.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "endpoint.h"
#include "worker.h"

struct cause *weft__cause_join(const void *worker, struct cause *before, weft_status_t status,
                               const char *text) {
    static const char then[] = "; then ";
    size_t own = before ? strlen(before->text) + strlen(then) : 0, size = own + strlen(text) + 1;
    struct cause *cause = weft__alloc(worker, sizeof *cause + size, "cause");
    if (!cause) return NULL;
    *cause = (struct cause){
        .users = 1, .status = status, .before = weft__cause_hold(before), .own = own};
    snprintf(cause->text, size, "%s%s%s", before ? before->text : "", before ? then : "", text);
    return cause;
}

struct cause *weft__cause_new(const void *worker, weft_status_t status, const char *text) {
    return weft__cause_join(worker, NULL, status, text);
}

struct cause *weft__cause_hold(struct cause *cause) {
    if (cause) cause->users++;
    return cause;
}

void weft__cause_drop(struct cause *cause) {
    if (!cause || --cause->users) return;
    weft__cause_drop(cause->before);
    talloc_free(cause);
}

void weft__cause_note(weft_status_t status, const struct cause *cause) {
    weft__causes_clear();
    if (!cause || cause->status != status) return;
    for (; cause; cause = cause->before)
        (void)weft__fail_in(status, "%s", cause->text + cause->own);
}

void weft__peer_text(const struct link *link, char buf[PEER_ROOM]) {
    char at[128];
    const char *transport = weft__link_iface(link)->transport->name;
    link->lane->ops->describe(link->lane, at, sizeof at);
    if (link->peer)
        snprintf(buf, PEER_ROOM, "worker %016" PRIx64 " at %s (%s)", link->peer, at, transport);
    else
        snprintf(buf, PEER_ROOM, "%s (%s)", at, transport);
}

const char *weft__usual_cause(weft_status_t status) {
    switch (status) {
    case WEFT_ERR_PEER_CLOSED: return "the peer closed the connection";
    case WEFT_ERR_PEER_FAILED: return "the connection ended, and the peer had not closed it";
    case WEFT_ERR_TIMED_OUT: return "the peer did not answer in time";
    case WEFT_ERR_REFUSED: return "no worker listens there";
    case WEFT_ERR_CLOSED: return "it was closed on this side";
    default: return weft_status_sentence(status);
    }
}

struct cause *weft__cause_of_link(const struct link *link) {
    char peer[PEER_ROOM], why[CAUSE_ROOM], text[PEER_ROOM + CAUSE_ROOM + 32];
    weft__peer_text(link, peer);
    bool known = weft__causes_line(link->status, why, sizeof why);
    snprintf(text, sizeof text, "connection to %s: %s", peer,
             known ? why : weft__usual_cause(link->status));
    return weft__cause_new(link->worker, link->status, text);
}

void weft__ep_cause(struct weft_ep *ep, weft_status_t status, const char *what) {
    char peer[PEER_ROOM] = "endpoint without a connection", text[PEER_ROOM + CAUSE_ROOM + 8];
    if (ep->cause) return;
    if (ep->link) weft__peer_text(ep->link, peer);
    snprintf(text, sizeof text, "%s: %.*s", peer, CAUSE_ROOM, what);
    ep->cause = weft__cause_join(ep->worker, ep->start ? ep->start->tries.why : NULL, status, text);
}

/* Control messages of a link: sent at once, or queued where its lane is full. */
#include "control.h"
#include "link_local.h"
#include "worker.h"

static size_t pack_message(void *to, void *arg) {
    const struct wire_message *m = arg;
    memcpy(to, m->bytes, m->len);
    return m->len;
}

weft_status_t weft__lane_send_ctrl(struct lane *lane, const struct wire_message *m) {
    return lane->ops->am_bcopy(lane, m->id, pack_message, (void *)(uintptr_t)m);
}

/* A retained lane recognises HELLO, which it must not retain, when it packs the message. */
weft_status_t weft__link_send_control(const struct link *link, struct lane *lane,
                                      const struct wire_message *m) {
    bool packed = m->id == WIRE_HELLO && link->more->retain;
    return packed ? weft__lane_send_ctrl(lane, m) : weft__link_send_ctrl(link, lane, m);
}

/* The peer would be inconsistent without the message. The link is lost in a later turn, since a
 * machine may be within a step. */
void weft__link_ctrl_failed(struct link *link, weft_status_t status) {
    if (link->status == WEFT_OK) link->status = status;
    link->ctrl_failed = true;
    weft__job_post(link->worker->reactor, &link->worker->ctrl_failed);
}

static void send_control(struct link *link, const struct wire_message *m, bool is_answer) {
    weft_status_t st = weft__link_send_control(link, link->tx, m);
    if (st == WEFT_NO_RESOURCE) st = weft__control_queue(link, m, is_answer);
    if (st < 0) weft__link_ctrl_failed(link, st);
}

void weft__link_control(struct link *link, const struct wire_message *m) {
    send_control(link, m, false);
}

void weft__link_answer(struct link *link, const struct wire_message *m) {
    send_control(link, m, true);
}

static struct link *first_ctrl_failed(const struct weft_worker *worker) {
    struct link *link;
    list_for_each_entry(link, &worker->links, of_worker) {
        if (link->ctrl_failed) return link;
    }
    return NULL;
}

/* The control message that failed was another call's. */
static weft_status_t why_ctrl_failed(weft_status_t status) {
    const char *what = "a control message could not be sent";
    if (status == WEFT_ERR_QUOTA)
        what = "it does not read the answers to what it asks (peer.max_answers)";
    if (status == WEFT_ERR_NO_MEMORY) what = "no memory for a control message";
    return weft__fail(status, "%s", what);
}

/* Failures are rare, so each search visits all links. It restarts each time, as one loss may end
 * other links. */
void weft__links_ctrl_failed(struct job *job) {
    struct weft_worker *worker = list_of(job, struct weft_worker, ctrl_failed);
    for (struct link *link; (link = first_ctrl_failed(worker)) != NULL;) {
        link->ctrl_failed = false;
        weft__link_lose(link, why_ctrl_failed(link->status));
    }
}

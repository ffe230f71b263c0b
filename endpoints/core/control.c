/* The queue of control messages that wait for a lane, and the bound on answers among them. */
#include "control.h"

#include <base/counters.h>

#include "link_local.h"
#include "worker.h"

enum { FIRST_ROOM = 64, MOST_ROOM = 16 << 10 };

struct head {
    uint16_t len;
    uint8_t id, is_answer;
};

/* The header of a control request: messages in [begin, end), each behind its head. */
struct batch {
    uint32_t begin, end, room;
    uint8_t bytes[];
};

/* ---- out */

static weft_status_t send_first(struct link *link, struct batch *b) {
    struct wire_message m;
    struct head head;
    memcpy(&head, b->bytes + b->begin, sizeof head);
    memcpy(m.bytes, b->bytes + b->begin + sizeof head, head.len);
    m.id = head.id;
    m.len = head.len;
    weft_status_t st = weft__link_send_control(link, link->lane, &m);
    if (st != WEFT_OK) return st;
    b->begin += (uint32_t)sizeof head + head.len;
    if (head.is_answer) link->answers -= (uint32_t)sizeof head + head.len;
    if (weft__control_is_heartbeat(&m)) link->heartbeat_waits = false;
    return WEFT_OK;
}

static weft_status_t advance_control(struct weft_request *req) {
    struct link *link = req->link;
    struct batch *b = req->batch;
    while (b->begin < b->end) {
        weft_status_t st = send_first(link, b);
        if (st < 0) weft__link_ctrl_failed(link, st);
        if (st != WEFT_OK) return st;
    }
    return WEFT_OK;
}

static const struct request_kind control_kind = {.name = "control", .advance = advance_control};

/* ---- in */

static void pack_control(struct batch *b, const struct wire_message *m, bool is_answer) {
    struct head head = {.len = m->len, .id = m->id, .is_answer = is_answer};
    memcpy(b->bytes + b->end, &head, sizeof head);
    memcpy(b->bytes + b->end + sizeof head, m->bytes, m->len);
    b->end += (uint32_t)sizeof head + m->len;
}

static uint32_t size_of(const struct wire_message *m) {
    return (uint32_t)sizeof(struct head) + m->len;
}

/* The last request of the backlog, if it is a batch that may take `need` more bytes; else NULL. */
static struct weft_request *open_batch(struct link *link, uint32_t need) {
    if (list_empty(&link->backlog)) return NULL;
    struct weft_request *req = list_of(link->backlog.prev, struct weft_request, queued);
    if (req->kind != &control_kind) return NULL;
    const struct batch *b = req->batch;
    return b->end + need <= MOST_ROOM ? req : NULL;
}

static weft_status_t make_room(struct weft_request *req, uint32_t need) {
    struct batch *b = req->batch;
    uint32_t room = b->room;
    while (room < b->end + need) room *= 2;
    if (room == b->room) return WEFT_OK;
    b = weft__realloc(req, b, sizeof *b + room, "control");
    if (!b) return WEFT_ERR_NO_MEMORY;
    b->room = room;
    req->batch = b;
    return WEFT_OK;
}

static weft_status_t new_batch(struct link *link, uint32_t need, struct weft_request **req_p) {
    uint32_t room = need > FIRST_ROOM ? need : FIRST_ROOM;
    struct weft_request *req = weft__request_new(link->worker, &control_kind);
    struct batch *b = req ? weft__alloc(req, sizeof *b + room, "control") : NULL;
    if (!b) {
        if (req) weft__request_discard(req);
        return WEFT_ERR_NO_MEMORY;
    }
    *b = (struct batch){.room = room};
    req->batch = b;
    req->link = link;
    *req_p = req;
    return WEFT_OK;
}

static weft_status_t too_many(struct link *link) {
    char peer[128];
    link->lane->ops->describe(link->lane, peer, sizeof peer);
    weft__count(link->worker->reactor)->violations++;
    weft__log_limited(
        link->worker->context, WEFT_LOG_WARN, "endpoints",
        "%s: the peer does not read the answers to what it asks; %u bytes of them wait", peer,
        link->answers);
    return WEFT_ERR_QUOTA;
}

weft_status_t weft__control_queue(struct link *link, const struct wire_message *m, bool is_answer) {
    uint32_t need = size_of(m);
    struct weft_request *req = open_batch(link, need);
    /* the link is about to be lost, and the answer with it */
    if (is_answer && link->ctrl_failed) return WEFT_OK;
    if (weft__control_is_heartbeat(m) && link->heartbeat_waits) return WEFT_OK;
    if (is_answer && need > link->worker->limit.answers - link->answers) return too_many(link);
    bool fresh = !req;
    weft_status_t st = fresh ? new_batch(link, need, &req) : make_room(req, need);
    if (st < 0) return st;
    pack_control(req->batch, m, is_answer);
    if (is_answer) link->answers += need;
    if (weft__control_is_heartbeat(m)) link->heartbeat_waits = true;
    if (fresh) weft__link_submit(link, req);
    return WEFT_OK;
}

/* The teams of one worker, and the four messages that find them. */
#include <reactor/counters.h>

#include "collective.h"

static const char room_key;
enum { ORPHANS_MOST = 4096, ORPHAN_BYTES_MOST = 4096 };

static weft_team_t *find(struct coll_room *room, uint64_t id) {
    for (struct list *at = room->teams.next; at != &room->teams; at = at->next) {
        weft_team_t *team = list_of(at, weft_team_t, of_room);
        if (team->id == id) return team;
    }
    return NULL;
}

/* Is there a team whose identity is not known yet? */
static bool in_exchange(const struct coll_room *room) {
    for (struct list *at = room->teams.next; at != &room->teams; at = at->next) {
        const weft_team_t *team = list_of(at, weft_team_t, of_room);
        if (!team->id && team->status == WEFT_OK) return true;
    }
    return false;
}

/* ---- messages of teams that this side does not know yet --------------------------------------------------------------- */

struct orphan {
    struct early early;
    uint64_t team;
    uint32_t epoch;
};

/* Members whose exchange ended sooner speak first. What they say before all have agreed is short and little. */
static void adopt_later(struct coll_room *room, unsigned id, const struct coll_wire *wire, weft_am_t *am) {
    struct orphan *orphan = NULL;
    if (id != COLL_WIRE_LEAVE && in_exchange(room) && room->n_orphans < ORPHANS_MOST &&
        am->len <= ORPHAN_BYTES_MOST)
        orphan = weft__new(room, struct orphan);
    if (!orphan) {
        weft__count(room->reactor)->coll_dropped++;
        return;
    }
    orphan->team = wire->team;
    orphan->epoch = wire->epoch;
    orphan->early =
        (struct early){.id = id, .seq = wire->seq, .tag = wire->tag, .from = wire->from, .len = am->len};
    list_init(&orphan->early.of);
    if (am->len && weft_am_keep(am, &orphan->early.data) < 0) {
        talloc_free(orphan);
        return;
    }
    list_append(&room->orphans, &orphan->early.of);
    room->n_orphans++;
}

static void notice(weft_team_t *team, uint32_t status, uint32_t blamed) {
    int32_t value = (int32_t)status;
    bool known = value < 0 && value >= WEFT_STATUS_LAST;
    if (team->status == WEFT_OK) {
        team->status = known ? (weft_status_t)value : WEFT_ERR_PROTOCOL;
        team->blamed = blamed;
    }
    fsm_step(&team->core.fsm, TEAM_EV_NOTICE);
}

void weft__room_adopt(struct coll_room *room, weft_team_t *team) {
    for (struct list *at = room->orphans.next, *next; at != &room->orphans; at = next) {
        struct orphan *orphan = list_of(at, struct orphan, early.of);
        next = at->next;
        if (orphan->team != team->id || orphan->epoch != team->epoch || orphan->early.from >= team->size) continue;
        list_remove(&orphan->early.of);
        room->n_orphans--;
        if (orphan->early.id == COLL_WIRE_NOTICE) {
            uint32_t status = orphan->early.tag, blamed = orphan->early.seq;
            weft__early_drop(room->worker, &orphan->early);
            notice(team, status, blamed);
        } else {
            talloc_steal(team, orphan);
            weft__collective_early(team, &orphan->early);
        }
    }
}

/* Nobody's any more. */
void weft__room_forget(struct coll_room *room) {
    if (in_exchange(room)) return;
    struct list *at;
    while ((at = list_pop(&room->orphans)) != NULL) {
        weft__count(room->reactor)->coll_dropped++;
        weft__early_drop(room->worker, list_of(at, struct early, of));
    }
    room->n_orphans = 0;
}

/* ---- handlers ----------------------------------------------------------------------------------------------------------- */

static void on_message(struct coll_room *room, unsigned id, weft_am_t *am) {
    struct coll_wire wire;
    if (!weft__coll_wire_read(am->header, am->header_len, &wire)) {
        weft__count(room->reactor)->violations++;
        return;
    }
    weft_team_t *team = find(room, wire.team);
    if (!team) {
        adopt_later(room, id, &wire, am);
        return;
    }
    /* Stale, or said in another's name: it concerns nobody here. */
    if (wire.epoch != team->epoch || wire.from >= team->size || wire.from == team->rank) {
        weft__count(room->reactor)->coll_dropped++;
        return;
    }
    if (id == COLL_WIRE_NOTICE)
        notice(team, wire.tag, wire.seq);
    else if (id == COLL_WIRE_LEAVE)
        weft__team_without(team, wire.from);
    else
        weft__collective_message(team, id, &wire, am);
}

static void on_data(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_DATA, am);
}
static void on_go(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_GO, am);
}
static void on_notice(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_NOTICE, am);
}
static void on_leave(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_LEAVE, am);
}
/* That it came is all: this turn looks at the segment. */
static void on_wake(weft_ep_t *ep, weft_am_t *am, void *arg) {}

/* ---- its life ----------------------------------------------------------------------------------------------------------- */

static void set_handlers(weft_worker_t *worker, struct coll_room *room) {
    weft__am_handler_set(worker, COLL_WIRE_DATA, room ? on_data : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_GO, room ? on_go : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_NOTICE, room ? on_notice : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_WAKE, room ? on_wake : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_LEAVE, room ? on_leave : NULL, room);
}

static void last_team_left(struct coll_room *room) {
    void (*closed)(weft_worker_t *) = room->closed;
    weft_worker_t *worker = room->worker;
    weft__room_forget(room);
    set_handlers(worker, NULL);
    weft__bury(room->reactor, room);
    closed(worker);
}

void weft__room_leave(struct coll_room *room, weft_team_t *team) {
    list_remove(&team->of_room);
    if (room->closed && list_empty(&room->teams)) last_team_left(room);
}

static void close_room(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *worker)) {
    struct coll_room *room = object;
    room->closed = closed;
    for (struct list *at = room->teams.next, *next; at != &room->teams; at = next) {
        next = at->next;
        weft__team_close(list_of(at, weft_team_t, of_room), NULL); /* BUSY: closing already */
    }
    if (list_empty(&room->teams)) last_team_left(room);
}

weft_status_t weft__coll_room(weft_worker_t *worker, struct coll_room **room_p) {
    struct coll_room *room = weft__worker_attached(worker, &room_key);
    if (!room) {
        struct reactor *reactor = weft__worker_reactor(worker);
        room = weft__new(reactor, struct coll_room);
        if (!room) return WEFT_ERR_NO_MEMORY;
        room->worker = worker;
        room->reactor = reactor;
        list_init(&room->teams);
        list_init(&room->orphans);
        weft_status_t st = weft__worker_attach(worker, &room_key, room, close_room);
        if (st < 0) {
            talloc_free(room);
            return st;
        }
        set_handlers(worker, room);
    }
    if (room->closed) return weft__fail(WEFT_ERR_CLOSED, "the worker is closing");
    *room_p = room;
    return WEFT_OK;
}

/* The teams of one worker, and the messages that find them. */
#include <base/counters.h>
#include <stdio.h>
#include <string.h>

#include "agreement.h"
#include "collective.h"
#include "joining.h"
#include <endpoints/core/link.h>
#include <endpoints/messages/am.h>

static const char room_key;
enum { ORPHANS_MOST = 4096, ORPHANS_OF_ONE = 1024, ORPHAN_BYTES_MOST = 4096 };

/* 0 names none: that of a team whose exchange is in progress is not known. */
static weft_team_t *find_team(struct team_registry *room, uint64_t id) {
    if (!id) return NULL;
    list_for_each(at, &room->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_room);
        if (team->id == id) return team;
    }
    return NULL;
}

/* Is there a team whose identity is not known yet? */
static bool in_exchange(const struct team_registry *room) {
    list_for_each(at, &room->teams) {
        const weft_team_t *team = list_of(at, weft_team_t, of_room);
        if (!team->id && team->status == WEFT_OK) return true;
    }
    return false;
}

/* ---- messages of teams that this side does not know yet -------------------------------------- */

struct orphan {
    struct early early;
    uint64_t team;
    uint32_t epoch;
    uint64_t sender; /* id of its worker */
};

/* 0: not known, for the connection is gone already. */
static uint64_t sender_of(const weft_ep_t *ep) {
    return ep && ep->link ? ep->link->peer : 0;
}

/* Another peer of the worker may know the team's identity. */
static bool speaks_for(const weft_team_t *team, uint64_t sender, uint32_t rank) {
    return rank < team->size && rank != team->rank &&
           (!sender || sender == team->member[rank].worker);
}

/* A part of it is the most that one worker may take. */
static bool has_place(const struct team_registry *room, uint64_t sender) {
    uint32_t n = 0;
    if (room->n_orphans < ORPHANS_OF_ONE) return true;
    if (room->n_orphans == ORPHANS_MOST) return false;
    list_for_each(at, &room->orphans) n += list_of(at, struct orphan, early.of)->sender == sender;
    return n < ORPHANS_OF_ONE;
}

/* Members whose exchange ended sooner speak first. What they say before all have agreed is short
 * and little. */
static void adopt_later(struct team_registry *room, unsigned id, const weft_ep_t *ep,
                        const struct coll_wire *wire, weft_am_t *am) {
    struct orphan *orphan = NULL;
    if (id != COLL_WIRE_LEAVE && id != COLL_WIRE_RELEASE && id != COLL_WIRE_LEFT &&
        in_exchange(room) && has_place(room, sender_of(ep)) && am->len <= ORPHAN_BYTES_MOST)
        orphan = weft__new(room, struct orphan);
    if (!orphan) {
        weft__count(room->reactor)->coll_dropped++;
        return;
    }
    orphan->team = wire->team;
    orphan->epoch = wire->epoch;
    orphan->sender = sender_of(ep);
    orphan->early = (struct early){.id = id,
                                   .seq = wire->seq,
                                   .tag = wire->tag,
                                   .from = wire->from,
                                   .len = am->len,
                                   .stream = wire->stream};
    list_init(&orphan->early.of);
    if (am->len && weft_am_retain(am, &orphan->early.data) < 0) {
        talloc_free(orphan);
        return;
    }
    list_append(&room->orphans, &orphan->early.of);
    room->n_orphans++;
}

/* What this side notes of a failure that `from` reports. */
static void note_report(weft_team_t *team, weft_status_t status, uint32_t blamed, uint32_t from) {
    char what[100];
    if (blamed == from)
        snprintf(what, sizeof what, "rank %u ended the team (%s)", from, weft_status_name(status));
    else
        snprintf(what, sizeof what, "rank %u reports rank %u (%s)", from, blamed,
                 weft_status_name(status));
    weft__late_note(team, NO_RANK, what);
}

static void notice(weft_team_t *team, uint32_t status, uint32_t blamed, uint32_t from) {
    int32_t value = (int32_t)status;
    bool known = value < 0 && value >= WEFT_STATUS_LAST;
    if (team->status == WEFT_OK) {
        weft_status_t reported = known ? (weft_status_t)value : WEFT_ERR_PROTOCOL;
        note_report(team, reported, blamed, from);
        team->status = reported;
        team->blamed = blamed;
    }
    weft__fsm_step(&team->core.fsm, TEAM_EV_NOTICE);
}

void weft__team_registry_adopt(struct team_registry *room, weft_team_t *team) {
    list_for_each_safe(at, next, &room->orphans) {
        struct orphan *orphan = list_of(at, struct orphan, early.of);
        if (orphan->team != team->id || orphan->epoch != team->epoch ||
            !speaks_for(team, orphan->sender, orphan->early.from))
            continue;
        list_remove(&orphan->early.of);
        room->n_orphans--;
        if (orphan->early.id == COLL_WIRE_NOTICE) {
            uint32_t status = orphan->early.tag, blamed = orphan->early.seq;
            uint32_t from = orphan->early.from;
            weft__early_drop(room->worker, &orphan->early);
            notice(team, status, blamed, from);
        } else {
            talloc_steal(team, orphan);
            weft__collective_early(team, &orphan->early);
        }
    }
}

/* It has no owner any more. */
void weft__team_registry_forget(struct team_registry *room) {
    if (in_exchange(room)) return;
    struct list *at;
    while ((at = list_pop(&room->orphans)) != NULL) {
        weft__count(room->reactor)->coll_dropped++;
        weft__early_drop(room->worker, list_of(at, struct early, of));
    }
    room->n_orphans = 0;
}

/* ---- answers over the endpoint by which a message came --------------------------------------- */

static void copy_sent(weft_status_t status, void *copy) {
    talloc_free(copy);
}

void weft__coll_send_copy(struct team_registry *room, weft_ep_t *ep, enum coll_wire_id id,
                          const struct coll_wire *wire, const void *bytes, size_t len) {
    uint8_t header[COLL_WIRE_BYTES];
    void *copy = len ? weft__alloc(room->reactor, len, "payload") : NULL;
    if (len && !copy) return; /* who waits for it has a deadline */
    if (copy) memcpy(copy, bytes, len);
    weft_iov_t iov = {copy, len};
    weft_op_t op = {.done = copy_sent, .arg = copy};
    weft__coll_wire_write(header, wire);
    weft__count(room->reactor)->coll_messages++;
    weft_status_t st =
        weft__am_send(ep, &(struct am_send_args){id, header, sizeof header, &iov, len > 0, &op});
    if (st != WEFT_IN_PROGRESS) copy_sent(st, copy);
}

void weft__team_release(struct team_registry *room, weft_ep_t *ep, uint64_t team, uint32_t epoch,
                        uint32_t from) {
    struct coll_wire wire = {.team = team, .epoch = epoch, .from = from};
    weft__coll_send_copy(room, ep, COLL_WIRE_RELEASE, &wire, NULL, 0);
}

/* A member that this side did not notify asks for what cannot be any more. */
static bool answer_departed(struct team_registry *room, weft_ep_t *ep, unsigned id,
                            const struct coll_wire *wire) {
    if (id != COLL_WIRE_DATA && id != COLL_WIRE_GO && id != COLL_WIRE_AGREE && id != COLL_WIRE_OPEN)
        return false;
    for (uint32_t i = 0; i < DEPARTED_KEPT; i++) {
        const struct departed *it = &room->departed[i];
        if (it->team != wire->team || it->epoch != wire->epoch || !it->team) continue;
        struct coll_wire left = {
            .team = it->team, .epoch = it->epoch, .from = it->rank, .seq = wire->from};
        weft__coll_send_copy(room, ep, COLL_WIRE_LEAVE, &left, NULL, 0);
        return true;
    }
    return false;
}

/* A member that waits, and that this side could not notify. */
static void answer_open(weft_team_t *team, weft_ep_t *ep) {
    struct coll_wire failed = {.team = team->id,
                               .epoch = team->epoch,
                               .from = team->rank,
                               .seq = team->blamed,
                               .tag = (uint32_t)weft__team_notice_status(team)};
    if (!team_is_failed(&team->core.fsm)) return;
    weft__coll_send_copy(team->room, ep, COLL_WIRE_NOTICE, &failed, NULL, 0);
}

/* ---- handlers -------------------------------------------------------------------------------- */

static void on_message(struct team_registry *room, unsigned id, weft_ep_t *ep, weft_am_t *am) {
    struct coll_wire wire;
    if (!weft__coll_wire_read(am->header, am->header_len, &wire)) {
        weft__count(room->reactor)->violations++;
        return;
    }
    weft_team_t *team = find_team(room, wire.team);
    if (!team) {
        if (!answer_departed(room, ep, id, &wire) && id != COLL_WIRE_OPEN)
            adopt_later(room, id, ep, &wire, am);
        return;
    }
    /* Stale, or sent in another's name: ignored. */
    if (wire.epoch != team->epoch || !speaks_for(team, sender_of(ep), wire.from)) {
        weft__count(room->reactor)->coll_dropped++;
        return;
    }
    if (id == COLL_WIRE_NOTICE)
        notice(team, wire.tag, wire.seq, wire.from);
    else if (id == COLL_WIRE_LEAVE)
        weft__team_left(team, wire.from, ep, am->data, am->len);
    else if (id == COLL_WIRE_LEFT)
        weft__team_left_elsewhere(team, wire.seq, am->data, am->len);
    else if (id == COLL_WIRE_RELEASE)
        weft__team_released(team, wire.from);
    else if (id == COLL_WIRE_AGREE)
        weft__agreement_message(team, &wire, am);
    else if (id == COLL_WIRE_OPEN)
        answer_open(team, ep);
    else
        weft__collective_message(team, id, &wire, am);
}

static void on_data(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_DATA, ep, am);
}
static void on_go(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_GO, ep, am);
}
static void on_notice(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_NOTICE, ep, am);
}
static void on_leave(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct coll_wire wire;
    /* Of a team that is closed here already nothing is in flight any more. */
    if (weft__coll_wire_read(am->header, am->header_len, &wire) && !find_team(arg, wire.team))
        weft__team_release(arg, ep, wire.team, wire.epoch, wire.seq);
    else
        on_message(arg, COLL_WIRE_LEAVE, ep, am);
}
static void on_release(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_RELEASE, ep, am);
}
static void on_agree(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_AGREE, ep, am);
}
static void on_left(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_LEFT, ep, am);
}
static void on_open(weft_ep_t *ep, weft_am_t *am, void *arg) {
    on_message(arg, COLL_WIRE_OPEN, ep, am);
}

/* ---- handlers of those that join, and of the member that invited them ------------------------ */

static void to_member(struct team_registry *room, unsigned id, weft_ep_t *ep, weft_am_t *am) {
    struct coll_wire wire;
    if (weft__coll_wire_read(am->header, am->header_len, &wire))
        weft__grow_message(room, id, &wire, ep, am);
    else
        weft__count(room->reactor)->violations++;
}
static void to_join(struct team_registry *room, unsigned id, weft_am_t *am) {
    struct coll_wire wire;
    if (weft__coll_wire_read(am->header, am->header_len, &wire))
        weft__join_message(room, id, &wire, am);
    else
        weft__count(room->reactor)->violations++;
}
static void on_join(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_member(arg, COLL_WIRE_JOIN, ep, am);
}
static void on_record(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_member(arg, COLL_WIRE_RECORD, ep, am);
}
static void on_forget(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_member(arg, COLL_WIRE_FORGET, ep, am);
}
static void on_welcome(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_join(arg, COLL_WIRE_WELCOME, am);
}
static void on_records(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_join(arg, COLL_WIRE_RECORDS, am);
}

/* ---- its life -------------------------------------------------------------------------------- */

static void set_handlers(weft_worker_t *worker, struct team_registry *room) {
    weft__am_handler_set(worker, COLL_WIRE_DATA, room ? on_data : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_GO, room ? on_go : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_NOTICE, room ? on_notice : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_OPEN, room ? on_open : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_LEAVE, room ? on_leave : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_RELEASE, room ? on_release : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_AGREE, room ? on_agree : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_LEFT, room ? on_left : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_JOIN, room ? on_join : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_WELCOME, room ? on_welcome : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_RECORD, room ? on_record : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_RECORDS, room ? on_records : NULL, room);
    weft__am_handler_set(worker, COLL_WIRE_FORGET, room ? on_forget : NULL, room);
}

static void last_team_left(struct team_registry *room) {
    void (*closed)(weft_worker_t *) = room->closed;
    weft_worker_t *worker = room->worker;
    weft__team_registry_forget(room);
    weft__agreements_forget(room);
    set_handlers(worker, NULL);
    weft__free_later(room->reactor, room);
    closed(worker);
}

void weft__team_registry_leave(struct team_registry *room, weft_team_t *team) {
    list_remove(&team->of_room);
    if (team->id)
        room->departed[room->n_departed++ % DEPARTED_KEPT] =
            (struct departed){team->id, team->epoch, team->rank};
    weft__team_registry_settle(room);
}

void weft__team_registry_settle(struct team_registry *room) {
    if (room->closed && list_empty(&room->teams) && list_empty(&room->joins)) last_team_left(room);
}

static void close_room(weft_worker_t *worker, void *object, void (*closed)(weft_worker_t *worker)) {
    struct team_registry *room = object;
    room->closed = closed;
    list_for_each_safe(at, next, &room->teams) {
        weft__team_close(list_of(at, weft_team_t, of_room), NULL); /* BUSY: closing already */
    }
    weft__joins_stop(room);
    weft__team_registry_settle(room);
}

weft_status_t weft__team_registry(weft_worker_t *worker, struct team_registry **room_p) {
    struct team_registry *room = weft__worker_attached(worker, &room_key);
    if (!room) {
        struct reactor *reactor = weft__worker_reactor(worker);
        room = weft__new(reactor, struct team_registry);
        if (!room) return WEFT_ERR_NO_MEMORY;
        room->worker = worker;
        room->reactor = reactor;
        list_init(&room->teams);
        list_init(&room->joins);
        list_init(&room->orphans);
        list_init(&room->incoming);
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

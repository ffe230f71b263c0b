/* The teams of one worker, and the messages that find them. */
#include <base/counters.h>
#include <stdio.h>
#include <string.h>

#include "agreement.h"
#include "collective.h"
#include "joining.h"
#include <endpoints/core/link.h>
#include <endpoints/messages/am.h>

static const char registry_key;
enum { ORPHANS_MOST = 4096, ORPHANS_OF_ONE = 1024, ORPHAN_BYTES_MOST = 4096 };

/* 0 names none: that of a team whose exchange is in progress is not known. */
weft_team_t *weft__team_find(struct team_registry *registry, uint64_t id) {
    if (!id) return NULL;
    list_for_each(at, &registry->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_registry);
        if (team->id == id) return team;
    }
    return NULL;
}

/* Is there a team whose identity is not known yet? */
static bool in_exchange(const struct team_registry *registry) {
    list_for_each(at, &registry->teams) {
        const weft_team_t *team = list_of(at, weft_team_t, of_registry);
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
static bool has_place(const struct team_registry *registry, uint64_t sender) {
    uint32_t n = 0;
    if (registry->n_orphans < ORPHANS_OF_ONE) return true;
    if (registry->n_orphans == ORPHANS_MOST) return false;
    list_for_each(at, &registry->orphans) n +=
        list_of(at, struct orphan, early.of)->sender == sender;
    return n < ORPHANS_OF_ONE;
}

static void drop_early(struct team_registry *registry, bool for_memory) {
    registry->lost_orphan = registry->lost_orphan || for_memory;
    weft__count(registry->reactor)->coll_dropped++;
}

/* Members whose exchange ended sooner speak first. What they say before all have agreed is short
 * and little. */
static void adopt_later(struct team_registry *registry, unsigned id, const weft_ep_t *ep,
                        const struct coll_wire *wire, weft_am_t *am) {
    bool may = id != COLL_WIRE_LEAVE && id != COLL_WIRE_RELEASE && id != COLL_WIRE_LEFT &&
               in_exchange(registry) && has_place(registry, sender_of(ep)) &&
               am->len <= ORPHAN_BYTES_MOST;
    struct orphan *orphan = may ? weft__new(registry, struct orphan) : NULL;
    if (!orphan) {
        drop_early(registry, may);
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
        drop_early(registry, true);
        talloc_free(orphan);
        return;
    }
    list_append(&registry->orphans, &orphan->early.of);
    registry->n_orphans++;
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
    if (blamed >= team->size) blamed = from;
    if (team->status == WEFT_OK) {
        weft_status_t reported = known ? (weft_status_t)value : WEFT_ERR_PROTOCOL;
        note_report(team, reported, blamed, from);
        team->status = reported;
        team->blamed = blamed;
        team->blames_itself = blamed == from;
    }
    weft__fsm_step(&team->core.fsm, TEAM_EV_NOTICE);
}

void weft__team_registry_adopt(struct team_registry *registry, weft_team_t *team) {
    list_for_each_safe(at, next, &registry->orphans) {
        struct orphan *orphan = list_of(at, struct orphan, early.of);
        if (orphan->team != team->id || orphan->epoch != team->epoch ||
            !speaks_for(team, orphan->sender, orphan->early.from))
            continue;
        list_remove(&orphan->early.of);
        registry->n_orphans--;
        if (orphan->early.id == COLL_WIRE_NOTICE) {
            uint32_t status = orphan->early.tag, blamed = orphan->early.seq;
            uint32_t from = orphan->early.from;
            weft__early_drop(registry->worker, &orphan->early);
            notice(team, status, blamed, from);
        } else {
            talloc_steal(team, orphan);
            weft__collective_early(team, &orphan->early);
        }
    }
}

/* It has no owner any more. */
void weft__team_registry_forget(struct team_registry *registry) {
    if (in_exchange(registry)) return;
    struct list *at;
    while ((at = list_pop(&registry->orphans)) != NULL) {
        weft__count(registry->reactor)->coll_dropped++;
        weft__early_drop(registry->worker, list_of(at, struct early, of));
    }
    registry->n_orphans = 0;
    registry->lost_orphan = false;
}

/* ---- answers over the endpoint by which a message came --------------------------------------- */

static void copy_sent(weft_status_t status, void *copy) {
    talloc_free(copy);
}

void weft__coll_send_copy(struct team_registry *registry, weft_ep_t *ep, enum coll_wire_id id,
                          const struct coll_wire *wire, const void *bytes, size_t len) {
    uint8_t header[COLL_WIRE_BYTES];
    void *copy = len ? weft__alloc(registry->reactor, len, "payload") : NULL;
    if (len && !copy) return; /* who waits for it has a deadline */
    if (copy) memcpy(copy, bytes, len);
    weft_iov_t iov = {copy, len};
    weft_op_t op = {.done = copy_sent, .arg = copy};
    weft__coll_wire_write(header, wire);
    weft__count(registry->reactor)->coll_messages++;
    weft_status_t st =
        weft__am_send(ep, &(struct am_send_args){id, header, sizeof header, &iov, len > 0, &op});
    if (st != WEFT_IN_PROGRESS) copy_sent(st, copy);
}

void weft__team_release(struct team_registry *registry, weft_ep_t *ep, uint64_t team,
                        uint32_t epoch, uint32_t from) {
    struct coll_wire wire = {.team = team, .epoch = epoch, .from = from};
    weft__coll_send_copy(registry, ep, COLL_WIRE_RELEASE, &wire, NULL, 0);
}

/* A member that this side did not notify asks for what cannot be any more. */
static bool answer_departed(struct team_registry *registry, weft_ep_t *ep, unsigned id,
                            const struct coll_wire *wire) {
    if (id != COLL_WIRE_DATA && id != COLL_WIRE_GO && id != COLL_WIRE_AGREE && id != COLL_WIRE_OPEN)
        return false;
    for (uint32_t i = 0; i < DEPARTED_KEPT; i++) {
        const struct departed *it = &registry->departed[i];
        if (it->team != wire->team || it->epoch != wire->epoch || !it->team) continue;
        struct coll_wire left = {
            .team = it->team, .epoch = it->epoch, .from = it->rank, .seq = wire->from};
        weft__coll_send_copy(registry, ep, COLL_WIRE_LEAVE, &left, NULL, 0);
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
    weft__coll_send_copy(team->registry, ep, COLL_WIRE_NOTICE, &failed, NULL, 0);
}

/* ---- handlers -------------------------------------------------------------------------------- */

/* A message, and the team whose member sent it. */
struct from_member {
    weft_team_t *team;
    struct coll_wire wire;
};

static bool read_wire(struct team_registry *registry, const weft_am_t *am, struct coll_wire *wire) {
    if (weft__coll_wire_read(am->header, am->header_len, wire)) return true;
    weft__count(registry->reactor)->violations++;
    return false;
}

/* False: there is no such team, or the sender does not speak for this member. The message was
 * answered, kept until its team is known, or dropped. */
static bool find_sender(struct team_registry *registry, unsigned id, weft_ep_t *ep, weft_am_t *am,
                        struct from_member *m) {
    if (!read_wire(registry, am, &m->wire)) return false;
    m->team = weft__team_find(registry, m->wire.team);
    if (!m->team) {
        if (!answer_departed(registry, ep, id, &m->wire) && id != COLL_WIRE_OPEN)
            adopt_later(registry, id, ep, &m->wire, am);
        return false;
    }
    /* Stale, or sent in another's name. */
    if (m->wire.epoch == m->team->epoch && speaks_for(m->team, sender_of(ep), m->wire.from))
        return true;
    weft__count(registry->reactor)->coll_dropped++;
    return false;
}

static void on_data(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    if (find_sender(arg, COLL_WIRE_DATA, ep, am, &m))
        weft__collective_message(m.team, COLL_WIRE_DATA, &m.wire, am);
}
static void on_go(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    if (find_sender(arg, COLL_WIRE_GO, ep, am, &m))
        weft__collective_message(m.team, COLL_WIRE_GO, &m.wire, am);
}
static void on_notice(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    if (find_sender(arg, COLL_WIRE_NOTICE, ep, am, &m))
        notice(m.team, m.wire.tag, m.wire.seq, m.wire.from);
}
static void on_leave(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    /* Of a team that is closed here already nothing is in flight any more. */
    if (weft__coll_wire_read(am->header, am->header_len, &m.wire) &&
        !weft__team_find(arg, m.wire.team))
        weft__team_release(arg, ep, m.wire.team, m.wire.epoch, m.wire.seq);
    else if (find_sender(arg, COLL_WIRE_LEAVE, ep, am, &m))
        weft__team_left(m.team, m.wire.from, ep, am->data, am->len);
}
static void on_left(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    if (find_sender(arg, COLL_WIRE_LEFT, ep, am, &m))
        weft__team_left_elsewhere(m.team, m.wire.seq, am->data, am->len);
}
static void on_release(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    if (find_sender(arg, COLL_WIRE_RELEASE, ep, am, &m)) weft__team_released(m.team, m.wire.from);
}
static void on_agree(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    if (find_sender(arg, COLL_WIRE_AGREE, ep, am, &m)) weft__agreement_message(m.team, &m.wire, am);
}
static void on_open(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct from_member m;
    if (find_sender(arg, COLL_WIRE_OPEN, ep, am, &m)) answer_open(m.team, ep);
}

/* ---- handlers of those that join, and of the member that invited them ------------------------ */

static void to_inviter(struct team_registry *registry, unsigned id, weft_ep_t *ep, weft_am_t *am) {
    struct coll_wire wire;
    if (read_wire(registry, am, &wire)) weft__grow_message(registry, id, &wire, ep, am);
}
static void to_joiner(struct team_registry *registry, unsigned id, weft_am_t *am) {
    struct coll_wire wire;
    if (read_wire(registry, am, &wire)) weft__join_message(registry, id, &wire, am);
}
static void on_join(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_inviter(arg, COLL_WIRE_JOIN, ep, am);
}
static void on_record(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_inviter(arg, COLL_WIRE_RECORD, ep, am);
}
static void on_forget(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_inviter(arg, COLL_WIRE_FORGET, ep, am);
}
static void on_welcome(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_joiner(arg, COLL_WIRE_WELCOME, am);
}
static void on_records(weft_ep_t *ep, weft_am_t *am, void *arg) {
    to_joiner(arg, COLL_WIRE_RECORDS, am);
}

/* ---- its life -------------------------------------------------------------------------------- */

/* NULL: none any more. */
static void set_handlers(weft_worker_t *worker, struct team_registry *registry) {
    static const struct {
        enum coll_wire_id id;
        weft_am_fn fn;
    } handlers[] = {
        {COLL_WIRE_DATA, on_data},       {COLL_WIRE_GO, on_go},
        {COLL_WIRE_NOTICE, on_notice},   {COLL_WIRE_OPEN, on_open},
        {COLL_WIRE_LEAVE, on_leave},     {COLL_WIRE_LEFT, on_left},
        {COLL_WIRE_RELEASE, on_release}, {COLL_WIRE_AGREE, on_agree},
        {COLL_WIRE_JOIN, on_join},       {COLL_WIRE_WELCOME, on_welcome},
        {COLL_WIRE_RECORD, on_record},   {COLL_WIRE_RECORDS, on_records},
        {COLL_WIRE_FORGET, on_forget},
    };
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        weft__am_handler_set(worker, handlers[i].id, registry ? handlers[i].fn : NULL, registry);
}

static void last_team_left(struct team_registry *registry) {
    void (*closed)(weft_worker_t *) = registry->closed;
    weft_worker_t *worker = registry->worker;
    weft__team_registry_forget(registry);
    weft__agreements_forget(registry);
    set_handlers(worker, NULL);
    weft__free_later(registry->reactor, registry);
    closed(worker);
}

void weft__team_registry_leave(struct team_registry *registry, weft_team_t *team) {
    list_remove(&team->of_registry);
    if (team->id)
        registry->departed[registry->n_departed++ % DEPARTED_KEPT] =
            (struct departed){team->id, team->epoch, team->rank};
    weft__team_registry_settle(registry);
}

void weft__team_registry_settle(struct team_registry *registry) {
    if (registry->closed && list_empty(&registry->teams) && list_empty(&registry->joins))
        last_team_left(registry);
}

static void close_registry(weft_worker_t *worker, void *object,
                           void (*closed)(weft_worker_t *worker)) {
    struct team_registry *registry = object;
    registry->closed = closed;
    list_for_each_safe(at, next, &registry->teams) {
        weft__team_close(list_of(at, weft_team_t, of_registry), NULL); /* BUSY: closing already */
    }
    weft__joins_stop(registry);
    weft__team_registry_settle(registry);
}

/* One in associated mode ends with its own association. */
static bool is_opened_by(const weft_team_t *team, const weft_worker_t *opener) {
    return team->opener == opener && !team->stub;
}

void weft__teams_unworked(weft_worker_t *worker, const weft_worker_t *opener,
                          weft_status_t status) {
    const struct team_registry *registry = weft__worker_attached(worker, &registry_key);
    if (!registry) return;
    list_for_each_safe(at, next, &registry->teams) {
        weft_team_t *team = list_of(at, weft_team_t, of_registry);
        bool open = team_is_open(&team->core.fsm);
        if (!is_opened_by(team, opener)) continue;
        if (open || team_is_leaving(&team->core.fsm)) weft__team_unworked(team, status);
        if (open) (void)weft__team_close(team, NULL);
    }
}

uint32_t weft__teams_of(weft_worker_t *worker, const weft_worker_t *opener) {
    const struct team_registry *registry = weft__worker_attached(worker, &registry_key);
    uint32_t n = 0;
    if (!registry) return 0;
    list_for_each(at, &registry->teams) {
        n += is_opened_by(list_of(at, weft_team_t, of_registry), opener);
    }
    return n;
}

weft_status_t weft__team_registry(weft_worker_t *worker, struct team_registry **registry_p) {
    struct team_registry *registry = weft__worker_attached(worker, &registry_key);
    if (!registry) {
        struct reactor *reactor = weft__worker_reactor(worker);
        registry = weft__new(reactor, struct team_registry);
        if (!registry) return WEFT_ERR_NO_MEMORY;
        registry->worker = worker;
        registry->reactor = reactor;
        list_init(&registry->teams);
        list_init(&registry->joins);
        list_init(&registry->orphans);
        list_init(&registry->incoming);
        weft_status_t st = weft__worker_attach(worker, &registry_key, registry, close_registry);
        if (st < 0) {
            talloc_free(registry);
            return st;
        }
        set_handlers(worker, registry);
    }
    if (registry->closed) return weft__worker_refuse(worker);
    *registry_p = registry;
    return WEFT_OK;
}

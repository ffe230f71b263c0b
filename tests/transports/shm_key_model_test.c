/* A key and its grant over a socket in order that breaks at any moment, and each against a peer
 * that says anything. */
#include "../harness.h"
#include "../model.h"
#include <fsm/explore/explorer.h>
#include <transports/shm/rma/key.h>

enum { IMPORTER, OWNER };
#define KEY(s)   (1u << SHM_KEY_##s)
#define GRANT(s) (1u << SHM_GRANT_##s)

/* What the importer has, what the grant brings, and whether copies of devices are under way. */
static bool key_is_good, memory_is_usable, it_copies;

static bool is_in(const struct explore_world *w, unsigned peer, unsigned states) {
    return states >> w->peer[peer]->state & 1;
}
static bool receives_lies(const struct explore_world *w, unsigned peer) {
    return w->hostile >> !peer & 1;
}
/* The importer closes its end of the socket when its lane is down; by then it has let go. */
static bool importer_closed_socket(const struct explore_world *w, unsigned peer) {
    return receives_lies(w, OWNER) || explore_notified(w, IMPORTER, SHM_KEY_FX_DOWN) ||
           (is_in(w, IMPORTER, KEY(GONE)) && w->n_messages == 0);
}
static void lane_ends(struct explore_world *w, unsigned peer) {
    explore_drop(w, peer, true);
}

static const struct explore_local importer_locals[] = {
    {.event = SHM_KEY_EV_ASK, .states = KEY(WAITING)},
    {.event = SHM_KEY_EV_CLOSE,
     .budget = 1,
     .states = KEY(WAITING) | KEY(ASKED) | KEY(HELD) | KEY(IN_USE) | KEY(REFUSED)},
    {.event = SHM_KEY_EV_IDLE, .states = KEY(IN_USE)},
    {.event = SHM_KEY_EV_LOST,
     .budget = 1,
     .rescue = true,
     .states = KEY(WAITING) | KEY(ASKED) | KEY(HELD) | KEY(IN_USE) | KEY(LEAVING) | KEY(REFUSED),
     .after = lane_ends},
};
static const struct explore_local owner_locals[] = {
    {.event = SHM_GRANT_EV_REVOKE, .budget = 1, .rescue = true, .states = GRANT(GRANTED)},
    {.event = SHM_GRANT_EV_PARTED,
     .states = GRANT(GRANTED) | GRANT(REVOKING),
     .when = importer_closed_socket},
};

/* On the channel each message is named by what the hearer makes of it. */
static const struct explore_effect importer_effects[SHM_KEY_N_EFFECTS] = {
    [SHM_KEY_FX_SEND_WANT] = {EXPLORE_SEND, SHM_GRANT_EV_GOOD},
    [SHM_KEY_FX_SEND_DROP] = {EXPLORE_SEND, SHM_GRANT_EV_DROP},
    [SHM_KEY_FX_SERVE] = {EXPLORE_NOTIFY, 0},
    [SHM_KEY_FX_UNMAP] = {EXPLORE_NOTIFY, 0},
    [SHM_KEY_FX_DOWN] = {EXPLORE_NOTIFY, 0},
    [SHM_KEY_FX_FREE] = {EXPLORE_NOTIFY, 0},
    [SHM_KEY_FX_REFUSE] = {EXPLORE_NOTIFY, 0},
};
static const struct explore_effect owner_effects[SHM_GRANT_N_EFFECTS] = {
    [SHM_GRANT_FX_SEND_GRANT] = {EXPLORE_SEND, SHM_KEY_EV_GRANT},
    [SHM_GRANT_FX_SEND_DENY] = {EXPLORE_SEND, SHM_KEY_EV_DENY},
    [SHM_GRANT_FX_SEND_REVOKE] = {EXPLORE_SEND, SHM_KEY_EV_REVOKE},
    [SHM_GRANT_FX_END] = {EXPLORE_NOTIFY, 0},
};

/* As the transport does: a look at what came names the event; what names no key or grant that is
 * there reaches no machine. */
static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    *event_p = msg->event;
    if (to->port->machine == &weft__shm_key_machine) {
        bool polled_at = to->state == SHM_KEY_ASKED || to->state == SHM_KEY_LEAVING;
        if (msg->event == SHM_KEY_EV_GRANT && polled_at && !memory_is_usable)
            *event_p = SHM_KEY_EV_USELESS;
        if (msg->event == SHM_KEY_EV_REVOKE && to->state == SHM_KEY_HELD && it_copies)
            *event_p = SHM_KEY_EV_RECALL;
        return to->state != SHM_KEY_GONE;
    }
    if (msg->event == SHM_GRANT_EV_GOOD && to->state == SHM_GRANT_NEW && !key_is_good)
        *event_p = SHM_GRANT_EV_BAD;
    return to->state != SHM_GRANT_ENDED &&
           (to->state != SHM_GRANT_NEW || msg->event != SHM_GRANT_EV_DROP);
}

static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    static const uint8_t to_importer[] = {SHM_KEY_EV_GRANT, SHM_KEY_EV_DENY, SHM_KEY_EV_REVOKE};
    static const uint8_t to_owner[] = {SHM_GRANT_EV_GOOD, SHM_GRANT_EV_DROP};
    bool importer = to->port->machine == &weft__shm_key_machine;
    if (choice >= (importer ? sizeof to_importer : sizeof to_owner)) return false;
    msg->event = importer ? to_importer[choice] : to_owner[choice];
    return true;
}

static const struct explore_role importer = {.machine = &weft__shm_key_machine,
                                             .size = sizeof(struct fsm),
                                             .start = SHM_KEY_WAITING,
                                             EXPLORE_LOCALS_OF(importer_locals),
                                             .effects = importer_effects,
                                             .after_violation = 1 + SHM_KEY_EV_LOST};
static const struct explore_role owner = {.machine = &weft__shm_grant_machine,
                                          .size = sizeof(struct fsm),
                                          .start = SHM_GRANT_NEW,
                                          EXPLORE_LOCALS_OF(owner_locals),
                                          .effects = owner_effects,
                                          .after_violation = 1 + SHM_GRANT_EV_PARTED};

static const char *invariant(const struct explore_world *w) {
    bool ended = is_in(w, OWNER, GRANT(ENDED));
    if (!(w->hostile & 1 << OWNER) && ended != (explore_notified(w, OWNER, SHM_GRANT_FX_END) == 1))
        return "ENDED if and only if it was notified, once";
    if (!(w->hostile & 1 << IMPORTER) && explore_notified(w, IMPORTER, SHM_KEY_FX_FREE) > 1)
        return "freed once";
    if (w->hostile) return NULL;
    if (is_in(w, IMPORTER, KEY(HELD) | KEY(IN_USE)) && ended)
        return "what is held was not given up by its owner";
    if (is_in(w, IMPORTER, KEY(HELD) | KEY(IN_USE)) &&
        !is_in(w, OWNER, GRANT(GRANTED) | GRANT(REVOKING)))
        return "what is held was granted";
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    if (w->hostile & 1 << OWNER) return is_in(w, IMPORTER, KEY(GONE) | KEY(REFUSED) | KEY(HELD));
    if (w->hostile & 1 << IMPORTER)
        return is_in(w, OWNER, GRANT(ENDED) | GRANT(GRANTED) | GRANT(NEW));
    if (is_in(w, IMPORTER, KEY(HELD))) return is_in(w, OWNER, GRANT(GRANTED)) && w->n_messages == 0;
    return is_in(w, IMPORTER, KEY(REFUSED) | KEY(GONE)) &&
           is_in(w, OWNER, GRANT(ENDED) | GRANT(NEW));
}

static void holds(uint8_t hostile) {
    struct explore_model model = {.name = "shm_key",
                                  .role = {&importer, &owner},
                                  .n_peers = 2,
                                  .hostile = hostile,
                                  .channel = {.capacity = 8},
                                  .recv_msg = recv_msg,
                                  .lie = lie,
                                  .invariant = invariant,
                                  .agreed = agreed};
    CHECK(model_holds(&model));
}
static void holds_for_all(uint8_t hostile) {
    for (int i = 0; i < 8; i++) {
        key_is_good = i & 1;
        memory_is_usable = i & 2;
        it_copies = i & 4;
        holds(hostile);
    }
}

TEST(what_is_taken_back_was_let_go) {
    holds_for_all(0);
}
TEST(an_importer_that_lies_reaches_no_bug) {
    holds_for_all(1 << IMPORTER);
}
TEST(an_owner_that_lies_reaches_no_bug) {
    holds_for_all(1 << OWNER);
}

TEST(every_cell_is_reached_or_has_a_reason) {
    weft__fsm_coverage_reset();
    bool before = weft__fsm_coverage(true);
    holds_for_all(0);
    holds_for_all(1 << IMPORTER);
    holds_for_all(1 << OWNER);
    weft__fsm_coverage(before);
    CHECK_EQ(explore_unreached(&weft__shm_key_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__shm_grant_machine, stdout), 0);
}

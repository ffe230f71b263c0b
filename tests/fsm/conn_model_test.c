/*
 * The conversation that a window holds over a channel with every frame ever sent in it. D dials. G is what the other
 * side makes for D's first frame; H is what it makes for D's next frame when G is gone: a second generation, that all
 * frames of the first reach too. Tags tell them apart. What is heard becomes events as in endpoints/window_receive.c.
 */
#include "tests/harness.h"

#include "shipped.h"

#include <endpoints/window_local.h>
#include <fsm/explorer.h>

enum { D, G, H };
enum { ACK = CONN_EV_PROOF, FIN_ACK = CONN_EV_DRAINED }; /* frames with a number */
#define IN(state) (1u << CONN_##state)
#define ALL       ((1u << CONN_N_STATES) - 1)
#define KNOWN     (IN(CROSSED) | IN(UP) | IN(DOWN) | IN(FINISH) | IN(RESET) | IN(ENDING))

struct side {
    struct window_conn conn;
    uint8_t echo_tag, lost;
    uint8_t dials;
};
static struct side *side_of(const struct explore_world *w, unsigned peer) {
    return (struct side *)w->peer[peer];
}
static bool is_in(const struct explore_world *w, unsigned peer, unsigned states) {
    return states >> (peer < w->n_peers ? w->peer[peer]->state : CONN_NEW) & 1;
}
static void init(struct fsm *m, unsigned peer) {
    ((struct side *)m)->conn.my_tag = 1 + peer;
    ((struct side *)m)->dials = peer == D;
}
static void init_dialer(struct fsm *m, unsigned peer) {
    init(m, peer);
    ((struct side *)m)->dials = 1;
}

/* ---- frames */

struct tags {
    uint8_t tag, my_tag;
};

static bool say(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    const struct side *s = (const struct side *)from;
    struct tags t = {(uint8_t)s->conn.peer_tag, 0};
    if (effect == CONN_FX_SEND_HELLO || effect == CONN_FX_SEND_WELCOME) t.my_tag = (uint8_t)s->conn.my_tag;
    if (effect == CONN_FX_SEND_HELLO) t.tag = 0;
    if (effect == CONN_FX_SEND_ECHO) t.tag = s->echo_tag;
    memcpy(msg->payload, &t, sizeof t);
    return msg->from == D || msg->to == D; /* D's frames come to whoever is there */
}

static bool stranger(struct side *s, uint8_t tag, unsigned *event_p) {
    s->echo_tag = tag;
    *event_p = CONN_EV_STRANGER;
    return true;
}

/* weft__window_take: the FIN is acknowledged, whatever comes of it. */
static bool take(struct side *s, const struct explore_message *msg, unsigned *event_p) {
    unsigned state = s->conn.fsm.state;
    bool listens = state == CONN_UP || state == CONN_DOWN || state == CONN_FINISH;
    if (msg->event == FIN_ACK && state == CONN_FINISH) return *event_p = CONN_EV_DRAINED, true;
    if (msg->event != CONN_EV_FIN || !listens) return false;
    struct explore_message ack = {.from = msg->to, .to = msg->from, .event = FIN_ACK};
    memcpy(ack.payload, &(struct tags){(uint8_t)s->conn.peer_tag, 0}, sizeof(struct tags));
    explore_say(&ack);
    return state == CONN_UP;
}

static bool numbered(struct side *s, const struct explore_message *msg, uint8_t tag, unsigned *event_p) {
    struct fsm *m = &s->conn.fsm;
    if (tag != s->conn.my_tag) return stranger(s, tag, event_p);
    if (m->state == CONN_FRESH) return stranger(s, tag, event_p);
    if (m->state == CONN_GREETED || m->state == CONN_CROSSED) fsm_step(m, CONN_EV_PROOF);
    return take(s, msg, event_p);
}

static bool hear(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct side *s = (struct side *)to;
    struct tags t;
    memcpy(&t, msg->payload, sizeof t);
    switch (msg->event) {
    case CONN_EV_HELLO:
        if (s->conn.peer_tag && s->conn.peer_tag != t.my_tag) return false;
        s->conn.heard_tag = t.my_tag;
        *event_p = s->conn.peer_tag ? CONN_EV_HELLO_AGAIN : CONN_EV_HELLO;
        return true;
    case CONN_EV_WELCOME:
        if (t.tag != s->conn.my_tag) return stranger(s, t.tag, event_p);
        if (s->conn.peer_tag && s->conn.peer_tag != t.my_tag) return false;
        s->conn.heard_tag = t.my_tag;
        return true;
    case CONN_EV_RST:
        if (t.tag != s->conn.my_tag) return stranger(s, t.tag, event_p);
        s->echo_tag = (uint8_t)s->conn.peer_tag;
        return true;
    case CONN_EV_ECHO: return t.tag == s->conn.my_tag || t.tag == s->conn.peer_tag;
    default: return numbered(s, msg, t.tag, event_p);
    }
}

/* ---- what happens at one side */

static bool is_dialer(const struct explore_world *w, unsigned peer) {
    return side_of(w, peer)->dials;
}
static bool spoken_to(const struct explore_world *w, unsigned peer) {
    if (is_dialer(w, peer) || (peer == H && !is_in(w, G, IN(CLOSED)))) return false;
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].to == peer) return true;
    return w->hostile != 0;
}
static bool owner_knows(const struct explore_world *w, unsigned peer) {
    return is_dialer(w, peer) || explore_told(w, peer, CONN_FX_TELL_ACCEPTED);
}
static void lose(struct explore_world *w, unsigned peer) {
    side_of(w, peer)->lost = 1;
}
static bool other_lost(const struct explore_world *w, unsigned peer) {
    return peer == D ? side_of(w, G)->lost || (w->n_peers > H && side_of(w, H)->lost) : side_of(w, D)->lost;
}
static bool listens(const struct explore_world *w, unsigned peer) {
    return !is_in(w, peer, IN(NEW) | IN(CLOSED));
}

/* One guest more would find D's frames strange, and say so. */
static bool is_alone(const struct explore_world *w, unsigned peer) {
    bool gone = is_dialer(w, peer);
    for (unsigned i = D; i < w->n_peers; i++) gone = gone && (i == peer || is_in(w, i, IN(CLOSED)));
    return gone;
}

static const struct explore_local locals[] = {
    {.event = CONN_EV_ECHO, .states = IN(UP) | IN(FINISH) | IN(RESET), .when = is_alone},
    {.event = CONN_EV_RAW_UP, .states = IN(NEW), .when = is_dialer, .rescue = true},
    {.event = CONN_EV_GUEST, .states = IN(NEW), .when = spoken_to},
    {.event = CONN_EV_TIMEOUT, .armed = true},
    {.event = CONN_EV_GIVE_UP, .states = IN(SYN) | IN(GREETED) | IN(CROSSED) | IN(RESET)},
    {.event = CONN_EV_GIVE_UP,
     .states = IN(UP) | IN(FINISH),
     .after = lose,
     .rescue = true}, /* the channel is dead */
    {.event = CONN_EV_BROKEN, .states = IN(UP) | IN(FINISH), .rescue = true},
    {.event = CONN_EV_RAW_LOST, .states = ALL & ~(IN(NEW) | IN(CLOSED)), .after = lose, .rescue = true},
    {.event = CONN_EV_RAW_LOST, .states = ALL & ~(IN(NEW) | IN(CLOSED)), .when = other_lost, .after = lose},
    {.event = CONN_EV_CLOSE, .states = KNOWN | IN(SYN) | IN(NEW), .when = owner_knows, .rescue = true},
    {.event = CONN_EV_ABORT, .states = KNOWN | IN(SYN) | IN(NEW), .when = owner_knows, .rescue = true},
    {.event = CONN_EV_CLOSE, .states = IN(DOWN), .when = owner_knows}, /* every owner closes what went down */
    {.event = CONN_EV_LATE, .states = IN(FINISH) | IN(RESET)},
    {.event = CONN_EV_RAW_CLOSED, .armed = true},
};

static const struct explore_effect effects[CONN_N_EFFECTS] = {
    [CONN_FX_SEND_HELLO] = {EXPLORE_SEND, CONN_EV_HELLO},
    [CONN_FX_SEND_WELCOME] = {EXPLORE_SEND, CONN_EV_WELCOME},
    [CONN_FX_SEND_ACK] = {EXPLORE_SEND, ACK},
    [CONN_FX_SEND_RST] = {EXPLORE_SEND, CONN_EV_RST},
    [CONN_FX_SEND_ECHO] = {EXPLORE_SEND, CONN_EV_ECHO},
    [CONN_FX_SEND_FIN] = {EXPLORE_SEND, CONN_EV_FIN},
    [CONN_FX_ARM] = {EXPLORE_ARM, CONN_EV_TIMEOUT},
    [CONN_FX_BACK_OFF] = {EXPLORE_ARM, CONN_EV_TIMEOUT},
    [CONN_FX_DISARM] = {EXPLORE_DISARM, CONN_EV_TIMEOUT},
    [CONN_FX_TELL_UP] = {EXPLORE_TELL, 0},
    [CONN_FX_TELL_ACCEPTED] = {EXPLORE_TELL, 0},
    [CONN_FX_TELL_DOWN] = {EXPLORE_TELL, 0},
    [CONN_FX_TELL_CLOSED] = {EXPLORE_TELL, 0},
    [CONN_FX_FORGET] = {EXPLORE_TELL, 0},
    [CONN_FX_CLOSE_RAW] = {EXPLORE_ARM, CONN_EV_RAW_CLOSED},
};

/* ---- what must hold */

static const char *invariant_of(const struct explore_world *w, unsigned i) {
    unsigned up = explore_told(w, i, CONN_FX_TELL_UP), accepted = explore_told(w, i, CONN_FX_TELL_ACCEPTED);
    unsigned down = explore_told(w, i, CONN_FX_TELL_DOWN), closed = explore_told(w, i, CONN_FX_TELL_CLOSED);
    unsigned forgotten = explore_told(w, i, CONN_FX_FORGET);
    if (up + accepted > 1 || down > 1) return "each is told once";
    if (closed + forgotten != is_in(w, i, IN(CLOSED))) return "CLOSED if and only if that was the last word, once";
    if (forgotten && (up || accepted || down)) return "forgotten, and its owner knows it";
    if (!is_dialer(w, i) && (down || closed) && !accepted)
        return "an owner hears of a lane that it was never given";
    if (is_in(w, i, IN(UP) | IN(FINISH)) && !up && !accepted) return "UP implies that the owner was told";
    return NULL;
}

/* Generations never mix: who was accepted is the one that D talks to. */
static const char *invariant(const struct explore_world *w) {
    for (unsigned i = D; i < w->n_peers; i++) {
        const char *broken = w->hostile >> i & 1 ? NULL : invariant_of(w, i);
        if (broken) return broken;
        if (i == D || w->hostile || !explore_told(w, i, CONN_FX_TELL_ACCEPTED)) continue;
        if (side_of(w, D)->conn.peer_tag != side_of(w, i)->conn.my_tag)
            return "accepted, and the dialer talks to another";
    }
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    bool rest[3];
    for (unsigned i = D; i <= H; i++) rest[i] = is_in(w, i, IN(NEW) | IN(DOWN) | IN(CLOSED));
    if (rest[D] && rest[G] && rest[H]) return true;
    if (!is_in(w, D, IN(UP))) return false;
    return (is_in(w, G, IN(UP)) && rest[H]) || (is_in(w, H, IN(UP)) && rest[G]);
}

static const struct explore_role role = {.machine = &weft__conn_machine,
                                         .size = sizeof(struct side),
                                         .start = CONN_NEW,
                                         EXPLORE_LOCALS_OF(locals),
                                         .effects = effects,
                                         .init = init};
static const struct explore_model model = {.name = "conn",
                                           .role = {&role, &role, &role},
                                           .n_peers = 3,
                                           .channel = {.soup = true, .room = 32},
                                           .payload = sizeof(struct tags),
                                           .say = say,
                                           .hear = hear,
                                           .listens = listens,
                                           .invariant = invariant,
                                           .agreed = agreed};

static bool holds(const struct explore_model *m) {
    static struct explore_result result;
    bool ok = explore(m, &result);
    printf("  "), explore_print(&result, stdout);
    return ok && result.truncated == 0;
}

TEST(one_generation_of_guests) {
    struct explore_model one = model;
    one.n_peers = 2;
    CHECK(holds(&one));
}

TEST(frames_of_an_earlier_conversation_mislead_nobody) {
    CHECK(holds(&model));
}

/* The model can see: without tags an old frame opens a new conversation. */
static bool hear_without_tags(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct explore_message any = *msg;
    if (msg->event != CONN_EV_HELLO) any.payload[0] = (uint8_t)((struct side *)to)->conn.my_tag;
    return hear(to, &any, event_p);
}
TEST(without_tags_generations_mix) {
    struct explore_model untagged = model;
    struct explore_result result;
    untagged.hear = hear_without_tags;
    CHECK(!explore(&untagged, &result));
    CHECK(strcmp(result.why, "broken: accepted, and the dialer talks to another") == 0);
    printf("  %s\n", result.trace);
}

TEST(two_that_dial_each_other_agree) {
    struct explore_model crossing = model;
    struct explore_role both = role;
    both.init = init_dialer;
    crossing.role[0] = crossing.role[1] = &both, crossing.n_peers = 2;
    CHECK(holds(&crossing));
}

/* Any frame, with the tag that is expected or another. */
static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    const struct side *s = (const struct side *)to;
    struct tags t = {choice & 1 ? 99 : (uint8_t)s->conn.my_tag, choice & 2 ? 98 : 97};
    memcpy(msg->payload, &t, sizeof t);
    return choice < 4;
}

TEST(a_hostile_dialer_breaks_nothing) {
    struct explore_model hostile = model;
    hostile.n_peers = 2, hostile.hostile = 1 << D, hostile.agreed = NULL, hostile.lie = lie;
    CHECK(holds(&hostile));
}

TEST(a_hostile_guest_breaks_nothing) {
    struct explore_model hostile = model;
    hostile.n_peers = 2, hostile.hostile = 1 << G, hostile.agreed = NULL, hostile.lie = lie;
    CHECK(holds(&hostile));
}

TEST(the_explored_table_is_the_shipped_one) {
    CHECK(links_shipped("conn", "window_lane.c"));
}

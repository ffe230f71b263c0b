/*
 * Two windows that connect and disconnect over a channel that holds every message ever sent: each
 * may come at any time, any number of times, or never. A raw lane that is gone answers as the
 * transport's next one would: it does not know the peer.
 */
#include "tests/harness.h"
#include "tests/model.h"

#include "shipped.h"

#include <fsm/explore/explorer.h>
#include <transports/reliable/window_conn.h>

enum { A, B };
#define IN(state) (UINT32_C(1) << CONN_##state)
#define GONE      (IN(ENDING) | IN(HIDING) | IN(CLOSED))
#define OWNED \
    (IN(NEW) | IN(SYN) | IN(CROSSED) | IN(UP) | IN(DOWN) | IN(EXPELLED) | IN(FINISH) | IN(RESET))

struct side {
    struct window_conn conn;
    uint8_t gave_up; /* without a word to the peer */
    uint8_t fin_in;  /* the peer's FIN was taken */
};

static struct side *side_of(const struct explore_world *w, unsigned peer) {
    return (struct side *)w->peer[peer];
}
static bool is_in(const struct explore_world *w, unsigned peer, uint32_t states) {
    return states >> w->peer[peer]->state & 1;
}

static void init(struct fsm *m, unsigned peer) {
    ((struct side *)m)->conn.my_tag = 1 + peer;
}

/* ---- words ----------------------------------------------------------------------------------- */

struct payload {
    uint8_t kind, tag, my_tag;
};

static enum window_kind kind_of(unsigned effect) {
    switch (effect) {
    case CONN_FX_SEND_HELLO: return WINDOW_HELLO;
    case CONN_FX_SEND_WELCOME: return WINDOW_WELCOME;
    case CONN_FX_SEND_ACK: return WINDOW_ACK;
    case CONN_FX_SEND_RST: return WINDOW_RST;
    case CONN_FX_SEND_ECHO: return WINDOW_ECHO;
    default: return WINDOW_FIN;
    }
}

/* As send_word of window_send.c. */
static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    const struct window_conn *c = (const struct window_conn *)from;
    enum window_kind kind = kind_of(effect);
    struct payload p = {(uint8_t)kind, (uint8_t)(kind == WINDOW_ECHO ? c->echo_tag : c->peer_tag),
                        0};
    if (kind == WINDOW_HELLO || kind == WINDOW_WELCOME) p.my_tag = (uint8_t)c->my_tag;
    memcpy(msg->payload, &p, sizeof p);
    return true;
}

static bool is_sent(const struct explore_message *msg) {
    const struct explore_world *w = explore_now();
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].to == msg->to &&
            memcmp(w->message[i].payload, msg->payload, sizeof(struct payload)) == 0)
            return true;
    return false;
}

/* What finds no raw lane makes one, which disowns it. */
static void disown(const struct explore_message *msg, const struct payload *p) {
    struct explore_message echo = {.from = msg->to, .to = msg->from, .event = CONN_EV_ECHO};
    struct payload answer = {WINDOW_ECHO, p->kind == WINDOW_HELLO ? p->my_tag : p->tag, 0};
    memcpy(echo.payload, &answer, sizeof answer);
    if (p->kind != WINDOW_ECHO && !is_sent(&echo)) explore_send(&echo);
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct side *side = (struct side *)to;
    struct payload p;
    memcpy(&p, msg->payload, sizeof p);
    if (GONE >> to->state & 1) {
        disown(msg, &p);
        return false;
    }
    struct window_frame f = {
        .kind = p.kind, .tag = p.tag, .my_tag = p.my_tag, .version = WINDOW_VERSION};
    int event = weft__conn_recv(&side->conn, &f);
    if (event == CONN_NO_EVENT) return false;
    /* FIN is numbered, and proves first; the window resends it and takes it once. */
    bool in_place = p.kind == WINDOW_FIN && event == CONN_EV_PROOF && to->state != CONN_SYN &&
                    to->state != CONN_NEW;
    if (in_place && (IN(UP) | IN(FINISH)) >> to->state & 1) {
        side->fin_in = 1;
        event = CONN_EV_FIN;
    }
    *event_p = (unsigned)event;
    return true;
}

/* ---- what happens here ----------------------------------------------------------------------- */

static void gives_up(struct explore_world *w, unsigned peer) {
    side_of(w, peer)->gave_up = 1;
}

/* The peer has our FIN, and all that we sent before. */
static bool fin_is_taken(const struct explore_world *w, unsigned peer) {
    return side_of(w, !peer)->fin_in;
}

/* A timer that is set well fires when nothing is under way. */
static bool all_is_quiet(const struct explore_world *w, unsigned peer) {
    return w->n_messages == 0;
}

/* clang-format off */
#define QUITS \
    {.event = CONN_EV_GIVE_UP, .budget = 1, .before = gives_up, .rescue = true, \
     .states = IN(SYN) | IN(SHAKEN) | IN(CROSSED) | IN(UP) | IN(FINISH) | IN(RESET)}, \
    {.event = CONN_EV_RAW_LOST, .budget = 1, .states = ~(GONE | IN(NEW)), .before = gives_up, .rescue = true}
#define BREAKS \
    {.event = CONN_EV_BROKEN, .budget = 1, .states = IN(UP) | IN(FINISH), .rescue = true}
#define EITHER(timely, ...) \
    {.event = CONN_EV_TIMEOUT, .armed = true, .when = timely}, __VA_ARGS__, \
    {.event = CONN_EV_CLOSE, .states = IN(DOWN) | IN(EXPELLED)}, /* an owner closes what went down */ \
    {.event = CONN_EV_DRAINED, .states = IN(FINISH), .when = fin_is_taken}, \
    {.event = CONN_EV_LATE, .armed = true, .states = IN(FINISH) | IN(RESET), .before = gives_up}, \
    {.event = CONN_EV_RAW_CLOSED, .armed = true}
#define DIALLER(timely, fault) { \
    {.event = CONN_EV_RAW_UP, .budget = 1, .states = IN(NEW)}, \
    {.event = CONN_EV_CLOSE, .budget = 1, .states = OWNED & ~(IN(DOWN) | IN(EXPELLED)), .rescue = true}, \
    {.event = CONN_EV_ABORT, .budget = 1, .states = OWNED & ~(IN(DOWN) | IN(EXPELLED)), .rescue = true}, EITHER(timely, fault)}
/* Its raw lane comes with the first frame, and only a side that knows of it closes it. */
#define ACCEPTOR(timely, fault) { \
    {.event = CONN_EV_ACCEPTED, .budget = 1, .states = IN(NEW)}, \
    {.event = CONN_EV_CLOSE, .budget = 1, .states = IN(UP) | IN(FINISH) | IN(RESET), .rescue = true}, \
    {.event = CONN_EV_ABORT, .budget = 1, .states = IN(UP) | IN(FINISH) | IN(RESET), .rescue = true}, EITHER(timely, fault)}
/* clang-format on */
static const struct explore_local dialler[] = DIALLER(NULL, QUITS),
                                  acceptor[] = ACCEPTOR(NULL, QUITS);
static const struct explore_local patient_dialler[] = DIALLER(all_is_quiet, BREAKS),
                                  patient_acceptor[] = ACCEPTOR(all_is_quiet, BREAKS);

static const struct explore_effect effects[CONN_N_EFFECTS] = {
    [CONN_FX_SEND_HELLO] = {EXPLORE_SEND, CONN_EV_HELLO},
    [CONN_FX_SEND_WELCOME] = {EXPLORE_SEND, CONN_EV_WELCOME},
    [CONN_FX_SEND_ACK] = {EXPLORE_SEND, CONN_EV_PROOF},
    [CONN_FX_SEND_RST] = {EXPLORE_SEND, CONN_EV_RST},
    [CONN_FX_SEND_ECHO] = {EXPLORE_SEND, CONN_EV_ECHO},
    [CONN_FX_SEND_FIN] = {EXPLORE_SEND, CONN_EV_FIN},
    [CONN_FX_ARM] = {EXPLORE_ARM, CONN_EV_TIMEOUT},
    [CONN_FX_BACK_OFF] = {EXPLORE_ARM, CONN_EV_TIMEOUT},
    [CONN_FX_DISARM] = {EXPLORE_DISARM, CONN_EV_TIMEOUT},
    [CONN_FX_ARM_CLOSE] = {EXPLORE_ARM, CONN_EV_LATE},
    [CONN_FX_CLOSE_RAW] = {EXPLORE_ARM, CONN_EV_RAW_CLOSED},
    [CONN_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},
    [CONN_FX_NOTIFY_ACCEPTED] = {EXPLORE_NOTIFY, 0},
    [CONN_FX_NOTIFY_DOWN] = {EXPLORE_NOTIFY, 0},
    [CONN_FX_NOTIFY_CLOSED] = {EXPLORE_NOTIFY, 0},
    [CONN_FX_FORGET] = {EXPLORE_NOTIFY, 0}};

/* ---- what must hold -------------------------------------------------------------------------- */

static unsigned opened(const struct explore_world *w, unsigned peer) {
    return explore_notified(w, peer, CONN_FX_NOTIFY_UP) +
           explore_notified(w, peer, CONN_FX_NOTIFY_ACCEPTED);
}

static const char *one_side(const struct explore_world *w, unsigned peer) {
    const struct window_conn *c = &side_of(w, peer)->conn;
    unsigned last_words = explore_notified(w, peer, CONN_FX_NOTIFY_CLOSED) +
                          explore_notified(w, peer, CONN_FX_FORGET);
    if (opened(w, peer) > 1) return "notified open twice";
    if (explore_notified(w, peer, CONN_FX_NOTIFY_DOWN) > 1) return "notified down twice";
    if (last_words != (c->fsm.state == CONN_CLOSED)) return "one last word, at the end";
    if (is_in(w, peer, IN(UP) | IN(FINISH)) && !opened(w, peer))
        return "open, and no notification came";
    if (is_in(w, peer, IN(UP) | IN(FINISH)) && c->peer_tag != 2u - peer)
        return "open to an unverified peer";
    if (explore_notified(w, peer, CONN_FX_FORGET) && opened(w, peer))
        return "hid what the owner knows";
    return NULL;
}

static const char *invariant(const struct explore_world *w) {
    for (unsigned peer = A; peer <= B; peer++)
        if (one_side(w, peer)) return one_side(w, peer);
    if (explore_notified(w, B, CONN_FX_NOTIFY_ACCEPTED) && !opened(w, A))
        return "accepted before the dialler was up";
    return NULL;
}

/* Both are up, or both have come to rest; one may be alone when the other gave up without a
 * word, or never was. */
static bool agreed(const struct explore_world *w) {
    const uint32_t rest = IN(CLOSED) | IN(NEW) | IN(FRESH);
    if (is_in(w, A, IN(UP)) && is_in(w, B, IN(UP))) return true;
    bool a = is_in(w, A, rest), b = is_in(w, B, rest);
    if (a && b) return true;
    bool alone = (a && is_in(w, B, IN(UP)) && side_of(w, A)->gave_up) ||
                 (b && is_in(w, A, IN(UP)) && side_of(w, B)->gave_up);
    return alone;
}

#define ROLE(list)                                                                      \
    {                                                                                   \
        .machine = &weft__conn_machine, .size = sizeof(struct side), .start = CONN_NEW, \
        .locals = list, .n_locals = sizeof(list) / sizeof *(list), .effects = effects,  \
        .init = init                                                                    \
    }
static const struct explore_role dials = ROLE(dialler), accepts = ROLE(acceptor);
static const struct explore_role dials_patiently = ROLE(patient_dialler),
                                 accepts_patiently = ROLE(patient_acceptor);

TEST(one_dials_and_one_is_found) {
    static const struct explore_model model = {.name = "conn",
                                               .role = {&dials, &accepts},
                                               .n_peers = 2,
                                               .channel = {.soup = true},
                                               .payload = sizeof(struct payload),
                                               .send_msg = send_msg,
                                               .recv_msg = recv_msg,
                                               .invariant = invariant,
                                               .agreed = agreed};
    CHECK(links_shipped("conn", "window_conn.c"));
    CHECK(model_holds(&model));
}

static const char *invariant_of_equals(const struct explore_world *w) {
    const char *why = one_side(w, A);
    return why ? why : one_side(w, B);
}

TEST(both_dial_each_others_lane) {
    static const struct explore_model model = {.name = "conn_crossed",
                                               .role = {&dials, &dials},
                                               .n_peers = 2,
                                               .channel = {.soup = true},
                                               .payload = sizeof(struct payload),
                                               .send_msg = send_msg,
                                               .recv_msg = recv_msg,
                                               .invariant = invariant_of_equals,
                                               .agreed = agreed};
    CHECK(model_holds(&model));
}

/* What is lost here is lost: it has to be said again. */
TEST(words_that_are_lost_are_sent_again) {
    static const struct explore_role *const second[] = {&accepts_patiently, &dials_patiently};
    for (unsigned i = 0; i < 2; i++) {
        const struct explore_model model = {
            .name = "conn_losing",
            .role = {&dials_patiently, second[i]},
            .n_peers = 2,
            .channel = {.reorder = i == 0, .losses = 1, .room = 4 - i},
            .payload = sizeof(struct payload),
            .send_msg = send_msg,
            .recv_msg = recv_msg,
            .invariant = i ? invariant_of_equals : invariant,
            .agreed = agreed};
        CHECK(model_holds(&model));
    }
}

/* A peer that says anything, with any tag, to one who dials and to one who is found. */
static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    enum { TAGS = 4 };
    unsigned kind = WINDOW_HELLO + choice / (TAGS * 2);
    if (kind >= WINDOW_N_KINDS) return false;
    struct payload p = {(uint8_t)kind, (uint8_t)(choice / 2 % TAGS), (uint8_t)(choice % 2 ? 2 : 9)};
    memcpy(msg->payload, &p, sizeof p);
    return true;
}

static const char *sane(const struct explore_world *w) {
    const struct window_conn *c = &side_of(w, A)->conn;
    if (opened(w, A) > 1 || explore_notified(w, A, CONN_FX_NOTIFY_DOWN) > 1)
        return "notified twice";
    if (is_in(w, A, IN(UP)) && !c->peer_tag) return "open to no peer";
    return NULL;
}

TEST(a_hostile_peer_opens_and_ends_a_conversation_and_nothing_else) {
    const struct explore_role *const roles[] = {&dials, &accepts};
    for (unsigned i = 0; i < 2; i++) {
        const struct explore_model model = {.name = "conn_hostile",
                                            .role = {roles[i], &dials},
                                            .n_peers = 2,
                                            .hostile = 1 << B,
                                            .payload = sizeof(struct payload),
                                            .channel = {.room = 1},
                                            .send_msg = send_msg,
                                            .recv_msg = recv_msg,
                                            .lie = lie,
                                            .invariant = sane};
        CHECK(model_holds(&model));
    }
}

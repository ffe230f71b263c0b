/* The shipped machines of the exchange against each other: two or three ranks, and one round at
 * the side that serves. */
#include "../harness.h"
#include "../model.h"
#include <fsm/explore/explorer.h>
#include <runtime/exchange.h>
#include <runtime/round.h>

enum { NOOP = 99 };
static unsigned ranks, server_id; /* the server comes after the ranks */

/* The server's part of the state: the round, and what the server knows besides. */
struct served {
    struct round round;
    uint8_t joined, joiner; /* bits; the rank whose message is read */
    uint8_t odd;            /* the length of the first contribution */
};

static bool odd_lengths; /* rank 1 contributes another length */

/* What is said: payload[0] is the round, payload[1] whether the length is another. */
static bool send_msg(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    if (from->id != server_id) {
        msg->payload[0] = (uint8_t)((const struct exchange *)from)->round;
        msg->payload[1] = odd_lengths && from->id == 1;
        return msg->to == server_id;
    }
    const struct served *s = (const struct served *)from;
    msg->payload[0] = 1;
    if (effect == ROUND_FX_REFUSE_ALL) return (s->joined >> msg->to & 1) && msg->to != s->joiner;
    if (effect == ROUND_FX_REFUSE_ONE) return msg->to == s->joiner;
    return true;
}

static bool server_receives(struct served *s, const struct explore_message *msg,
                            unsigned *event_p) {
    if (msg->payload[0] != 1) return false;       /* another round is another machine */
    if (s->joined >> msg->from & 1) return false; /* a round out of order: that rank is hung up */
    bool last = s->round.n_joined + 1 == ranks;
    s->joiner = msg->from;
    s->joined |= (uint8_t)(1 << msg->from);
    if (s->round.n_joined == 0) s->odd = msg->payload[1];
    *event_p = msg->payload[1] != s->odd ? ROUND_EV_ODD : last ? ROUND_EV_LAST : ROUND_EV_JOIN;
    return true;
}

static bool recv_msg(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    if (to->id == server_id) return server_receives((struct served *)to, msg, event_p);
    struct exchange *x = (struct exchange *)to;
    if (to->state != EXCHANGE_GATHER) return false; /* nothing is read then */
    bool denied = msg->event == EXCHANGE_EV_DENIED;
    *event_p = weft__exchange_classify(x, msg->payload[0], denied, !msg->payload[1]);
    if (denied) x->status = WEFT_ERR_PEER_FAILED;
    return true;
}

/* Any round number near those that are, of the right length or another. */
static bool lie(const struct fsm *to, unsigned choice, struct explore_message *msg) {
    (void)to;
    msg->payload[0] = (uint8_t)(choice / 2);
    msg->payload[1] = choice % 2;
    return choice < 8;
}

static void hung_up(struct explore_world *w, unsigned peer) {
    explore_drop(w, peer, false);
}

static void hung_up_before_it_was_sent(struct explore_world *w, unsigned peer) {
    explore_drop(w, peer, true);
}

/* A rank, and what its program has done beside what the machine knows of it. */
struct asking {
    struct exchange x;
    uint8_t refused; /* how often a round began in vain */
    uint8_t waits;   /* for a round that it has cancelled */
};
static void begin(struct explore_world *w, unsigned peer) {
    ((struct asking *)w->peer[peer])->refused += w->peer[peer]->state != EXCHANGE_IDLE;
}
static void cancelled(struct explore_world *w, unsigned peer) {
    ((struct asking *)w->peer[peer])->waits |= w->peer[peer]->state == EXCHANGE_GATHER;
}

static void lost_because(struct explore_world *w, unsigned peer) {
    ((struct exchange *)w->peer[peer])->status = WEFT_ERR_PEER_FAILED;
}

/* The server reads what a rank sent before it sees the end. */
static bool someone_is_gone(const struct explore_world *w, unsigned peer) {
    (void)peer;
    for (unsigned rank = 0; rank < ranks; rank++) {
        bool pending = false;
        for (unsigned i = 0; i < w->n_messages; i++) pending |= w->message[i].from == rank;
        bool joined = ((const struct served *)w->peer[server_id])->joined >> rank & 1;
        if (w->peer[rank]->state == EXCHANGE_BROKEN && !pending && !joined) return true;
    }
    return false;
}

static void no_one_joins(struct explore_world *w, unsigned peer) {
    ((struct served *)w->peer[peer])->joiner = NOOP;
}

static const struct explore_local client_locals[] = {
    {.event = EXCHANGE_EV_START, .budget = 2, .before = begin},
    {.event = EXCHANGE_EV_CANCEL, .budget = 1, .rescue = true, .after = cancelled},
    {.event = EXCHANGE_EV_LOST,
     .budget = 1,
     .rescue = true,
     .states = 1 << EXCHANGE_GATHER,
     .before = lost_because,
     .after = hung_up},
    {.event = EXCHANGE_EV_LOST,
     .budget = 1,
     .rescue = true,
     .states = 1 << EXCHANGE_GATHER,
     .before = lost_because,
     .after = hung_up_before_it_was_sent},
};
static const struct explore_effect client_effects[EXCHANGE_N_EFFECTS] = {
    [EXCHANGE_FX_SEND] = {EXPLORE_SEND, ROUND_EV_JOIN},
    [EXCHANGE_FX_REFUSE] = {EXPLORE_NOTIFY, 0},
    [EXCHANGE_FX_DONE] = {EXPLORE_NOTIFY, 0},
    [EXCHANGE_FX_HANG_UP] = {EXPLORE_NOTIFY, 0},
};
static const struct explore_role client = {&weft__exchange_machine, sizeof(struct asking),
                                           EXCHANGE_IDLE,           EXPLORE_LIST(client_locals),
                                           client_effects,          NULL,
                                           1 + EXCHANGE_EV_LOST};

/* Of three there are too many states, unless each begins one round and cancels nothing. */
static const struct explore_local brief_locals[] = {
    {.event = EXCHANGE_EV_START, .budget = 1, .before = begin},
    {.event = EXCHANGE_EV_LOST,
     .budget = 1,
     .rescue = true,
     .states = 1 << EXCHANGE_GATHER,
     .before = lost_because,
     .after = hung_up_before_it_was_sent},
};
static const struct explore_role brief_client = {
    &weft__exchange_machine,    sizeof(struct asking), EXCHANGE_IDLE,
    EXPLORE_LIST(brief_locals), client_effects,        NULL,
    1 + EXCHANGE_EV_LOST};

static const struct explore_local server_locals[] = {
    {.event = ROUND_EV_GONE,
     .budget = 1,
     .states = 1 << ROUND_COLLECT,
     .when = someone_is_gone,
     .before = no_one_joins},
    {.event = ROUND_EV_GONE,
     .budget = 1,
     .states = 1 << ROUND_REFUSED,
     .when = someone_is_gone,
     .before = no_one_joins},
};
static const struct explore_effect server_effects[ROUND_N_EFFECTS] = {
    [ROUND_FX_ANSWER] = {EXPLORE_SEND, EXCHANGE_EV_ANSWER},
    [ROUND_FX_REFUSE_ALL] = {EXPLORE_SEND, EXCHANGE_EV_DENIED},
    [ROUND_FX_REFUSE_ONE] = {EXPLORE_SEND, EXCHANGE_EV_DENIED},
};
static const struct explore_role server = {&weft__round_machine,
                                           sizeof(struct served),
                                           ROUND_COLLECT,
                                           EXPLORE_LIST(server_locals),
                                           server_effects,
                                           NULL,
                                           0};

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < ranks; i++) {
        const struct exchange *x = (const struct exchange *)w->peer[i];
        if (w->hostile >> i & 1) continue;
        unsigned done = explore_notified(w, i, EXCHANGE_FX_DONE);
        if (done > x->round) return "a round is reported once at most";
        if (explore_notified(w, i, EXCHANGE_FX_HANG_UP) != (x->fsm.state == EXCHANGE_BROKEN))
            return "hung up if and only if broken";
        const struct asking *a = (const struct asking *)x;
        if (explore_notified(w, i, EXCHANGE_FX_REFUSE) != a->refused)
            return "who begins a round in vain is refused";
        if (a->waits) return "a round goes on that was cancelled";
    }
    return NULL;
}

/* No rank waits for round 1. Later rounds are other machines of the server. */
static bool agreed(const struct explore_world *w) {
    for (unsigned i = 0; i < ranks; i++)
        if (((const struct exchange *)w->peer[i])->awaited == 1) return false;
    return true;
}

static struct explore_model model(unsigned n) {
    const struct explore_role *rank = n == 2 ? &client : &brief_client;
    ranks = server_id = n;
    struct explore_model m = {
        .name = "exchange",
        .role = {rank, rank, n == 2 ? &server : rank, n == 2 ? NULL : &server},
        .n_peers = ranks + 1,
        .send_msg = send_msg,
        .recv_msg = recv_msg,
        .lie = lie,
        .invariant = invariant,
        .agreed = agreed};
    return m;
}

TEST(a_round_ends_for_everyone_whichever_cancels_or_dies) {
    struct explore_model m = model(2);
    odd_lengths = false;
    CHECK(model_holds(&m));
}

TEST(so_it_does_when_lengths_differ) {
    struct explore_model m = model(2);
    odd_lengths = true;
    CHECK(model_holds(&m));
}

TEST(so_it_does_for_three) {
    struct explore_model m = model(3);
    for (int odd = 0; odd < 2; odd++) {
        odd_lengths = odd;
        CHECK(model_holds(&m));
    }
}

TEST(a_hostile_server_breaks_its_clients_in_good_order) {
    struct explore_model m = model(2);
    m.hostile = 1 << server_id;
    m.agreed = NULL;
    CHECK(model_holds(&m));
}

TEST(a_hostile_rank_cannot_wedge_the_round) {
    struct explore_model m = model(2);
    odd_lengths = false;
    m.hostile = 1 << 0;
    m.agreed = NULL;
    CHECK(model_holds(&m));
}

TEST(every_cell_is_reached_or_has_a_reason) {
    struct explore_model m = model(2);
    weft__fsm_coverage_reset();
    weft__fsm_coverage(true);
    for (int run = 0; run < 4; run++) {
        odd_lengths = run % 2;
        m = model(run < 2 ? 2 : 3);
        CHECK(model_holds(&m));
    }
    m = model(2);
    m.hostile = 1 << server_id;
    m.agreed = NULL;
    CHECK(model_holds(&m));
    CHECK_EQ(explore_unreached(&weft__exchange_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__round_machine, stdout), 0);
}

/* The shipped machines of teams and collectives, explored: every order of events within the
 * bounds. */
#include <collectives/machines.h>
#include <fsm/explore/explorer.h>
#include <tests/harness.h>
#include <tests/model.h>

#define IN(state) (1u << (state))

/* ---- collective ------------------------------------------------------------------------------ */

static bool is_done(const struct explore_world *w) {
    return w->peer[0]->state == COLL_DONE;
}

static const char *settled_once(const struct explore_world *w) {
    if (explore_notified(w, 0, COLL_FX_SETTLE) > 1) return "its outcome is notified once";
    if ((w->peer[0]->state == COLL_DONE) != (explore_notified(w, 0, COLL_FX_LEAVE) == 1))
        return "done is out of the list";
    return NULL;
}

TEST(a_collective_settles_once_whatever_stops_it) {
    static const struct explore_effect effects[COLL_N_EFFECTS] = {
        [COLL_FX_RECALL] = {EXPLORE_ARM, COLL_EV_RETURNED},
        [COLL_FX_SETTLE] = {EXPLORE_NOTIFY, 0},
        [COLL_FX_LEAVE] = {EXPLORE_NOTIFY, 0},
    };
    static const struct explore_local locals[] = {
        {.event = COLL_EV_FINISH, .budget = 1, .states = IN(COLL_RUNNING)},
        {.event = COLL_EV_STOP,
         .budget = 3,
         .states = IN(COLL_RUNNING) | IN(COLL_DRAINING) | IN(COLL_SETTLED)},
        {.event = COLL_EV_RETURNED, .budget = 3, .states = IN(COLL_RUNNING)},
        {.event = COLL_EV_RETURNED, .armed = true},
        {.event = COLL_EV_NOTIFIED, .budget = 1, .states = IN(COLL_SETTLED)},
    };
    static const struct explore_role role = {.machine = &weft__collective_machine,
                                             .size = sizeof(struct collective_core),
                                             .start = COLL_RUNNING,
                                             .locals = locals,
                                             .n_locals = sizeof locals / sizeof *locals,
                                             .effects = effects};
    static const struct explore_model model = {.name = "collective",
                                               .role = {&role},
                                               .n_peers = 1,
                                               .invariant = settled_once,
                                               .agreed = is_done};
    CHECK(model_holds(&model));
}

/* ---- agreement ------------------------------------------------------------------------------- */

static bool agreement_is_notified(const struct explore_world *w) {
    return w->peer[0]->state == AGREE_OVER;
}

static const char *agreement_notified_once(const struct explore_world *w) {
    uint32_t notified = explore_notified(w, 0, AGREE_FX_NOTIFY);
    uint32_t announced = explore_notified(w, 0, AGREE_FX_ANNOUNCE);
    if (notified > 1 || announced > 1) return "an agreement ends once";
    if ((w->peer[0]->state == AGREE_OVER) != (notified == 1)) return "over is reported";
    if (announced && !explore_notified(w, 0, AGREE_FX_PROPOSE))
        return "only what was proposed is announced";
    return NULL;
}

/* Proposals and decisions of others come at any time, and so does the end of this side. */
TEST(an_agreement_ends_once_whichever_decides) {
    static const struct explore_effect effects[AGREE_N_EFFECTS] = {
        [AGREE_FX_PROPOSE] = {EXPLORE_NOTIFY, 0},
        [AGREE_FX_CONFIRM] = {EXPLORE_NOTIFY, 0},
        [AGREE_FX_ANNOUNCE] = {EXPLORE_NOTIFY, 0},
        [AGREE_FX_NOTIFY] = {EXPLORE_NOTIFY, 0},
    };
    static const struct explore_local locals[] = {
        {.event = AGREE_EV_COLLECTED, .budget = 1, .states = IN(AGREE_OPEN) | IN(AGREE_HELD)},
        {.event = AGREE_EV_CONFIRMED, .budget = 1, .states = IN(AGREE_PROPOSED)},
        {.event = AGREE_EV_PROPOSAL, .budget = 3, .states = ~0u},
        {.event = AGREE_EV_DECISION, .budget = 2, .states = ~0u},
        {.event = AGREE_EV_STOP, .budget = 2, .states = ~0u},
    };
    static const struct explore_role role = {.machine = &weft__agreement_machine,
                                             .size = sizeof(struct agreement_core),
                                             .start = AGREE_OPEN,
                                             .locals = locals,
                                             .n_locals = sizeof locals / sizeof *locals,
                                             .effects = effects};
    static const struct explore_model model = {.name = "agreement",
                                               .role = {&role},
                                               .n_peers = 1,
                                               .invariant = agreement_notified_once,
                                               .agreed = agreement_is_notified};
    CHECK(model_holds(&model));
}

/* ---- joining, and the member that invites ---------------------------------------------------- */

static bool join_is_notified(const struct explore_world *w) {
    return w->peer[0]->state == JOIN_OVER;
}

static const char *join_notified_once(const struct explore_world *w) {
    uint32_t given = explore_notified(w, 0, JOIN_FX_GIVE),
             failed = explore_notified(w, 0, JOIN_FX_FAIL);
    bool over = w->peer[0]->state == JOIN_OVER;
    if (given + failed != over) return "a join ends once, with a team or without";
    if (explore_notified(w, 0, JOIN_FX_CLOSE) != over) return "its endpoint is closed once";
    if (given && !explore_notified(w, 0, JOIN_FX_MAKE))
        return "records are for a team that is made";
    return NULL;
}

TEST(a_join_ends_once_whatever_the_member_sends) {
    static const struct explore_effect effects[JOIN_N_EFFECTS] = {
        [JOIN_FX_MAKE] = {EXPLORE_NOTIFY, 0},  [JOIN_FX_GIVE] = {EXPLORE_NOTIFY, 0},
        [JOIN_FX_FAIL] = {EXPLORE_NOTIFY, 0},  [JOIN_FX_FORGET] = {EXPLORE_NOTIFY, 0},
        [JOIN_FX_CLOSE] = {EXPLORE_NOTIFY, 0},
    };
    static const struct explore_local locals[] = {
        {.event = JOIN_EV_WELCOME, .budget = 2, .states = ~0u},
        {.event = JOIN_EV_REFUSAL, .budget = 2, .states = ~0u},
        {.event = JOIN_EV_RECORDS, .budget = 2, .states = ~IN(JOIN_ASKING)},
        {.event = JOIN_EV_STOP, .budget = 2, .states = ~0u},
    };
    static const struct explore_role role = {.machine = &weft__join_machine,
                                             .size = sizeof(struct join_core),
                                             .start = JOIN_ASKING,
                                             .locals = locals,
                                             .n_locals = sizeof locals / sizeof *locals,
                                             .effects = effects};
    static const struct explore_model model = {.name = "join",
                                               .role = {&role},
                                               .n_peers = 1,
                                               .invariant = join_notified_once,
                                               .agreed = join_is_notified};
    CHECK(model_holds(&model));
}

static bool joiner_has_gone(const struct explore_world *w) {
    return w->peer[0]->state == JOINER_OVER;
}

static const char *joiner_closed_once(const struct explore_world *w) {
    bool over = w->peer[0]->state == JOINER_OVER;
    if (explore_notified(w, 0, JOINER_FX_CLOSE) != over) return "a joiner is let go once";
    if (explore_notified(w, 0, JOINER_FX_ANSWER) + explore_notified(w, 0, JOINER_FX_LOST) > 1)
        return "it is lost, or answered";
    if (explore_notified(w, 0, JOINER_FX_COUNT) > explore_notified(w, 0, JOINER_FX_WELCOME))
        return "only one that has a rank is counted";
    return NULL;
}

TEST(a_joiner_is_let_go_once_whatever_it_sends) {
    static const struct explore_effect effects[JOINER_N_EFFECTS] = {
        [JOINER_FX_WELCOME] = {EXPLORE_NOTIFY, 0}, [JOINER_FX_COUNT] = {EXPLORE_NOTIFY, 0},
        [JOINER_FX_LOST] = {EXPLORE_NOTIFY, 0},    [JOINER_FX_ANSWER] = {EXPLORE_NOTIFY, 0},
        [JOINER_FX_CLOSE] = {EXPLORE_NOTIFY, 0},
    };
    static const struct explore_local locals[] = {
        {.event = JOINER_EV_TAKE, .budget = 1, .states = IN(JOINER_WAITING)},
        {.event = JOINER_EV_END, .budget = 1, .states = ~IN(JOINER_OVER)},
        {.event = JOINER_EV_RECORD, .budget = 2, .states = ~IN(JOINER_WAITING)},
        {.event = JOINER_EV_GONE, .budget = 2, .states = ~0u},
    };
    static const struct explore_role role = {.machine = &weft__joiner_machine,
                                             .size = sizeof(struct joiner_core),
                                             .start = JOINER_WAITING,
                                             .locals = locals,
                                             .n_locals = sizeof locals / sizeof *locals,
                                             .effects = effects};
    static const struct explore_model model = {.name = "joiner",
                                               .role = {&role},
                                               .n_peers = 1,
                                               .invariant = joiner_closed_once,
                                               .agreed = joiner_has_gone};
    CHECK(model_holds(&model));
}

/* ---- team ------------------------------------------------------------------------------------ */

static const struct explore_effect team_effects[TEAM_N_EFFECTS] = {
    [TEAM_FX_CONNECT] = {EXPLORE_ARM, TEAM_EV_AGREED},
    [TEAM_FX_NOTIFY] = {EXPLORE_NOTIFY, 0},
    [TEAM_FX_WARN] = {EXPLORE_SEND, TEAM_EV_NOTICE},
    [TEAM_FX_AWAIT] = {EXPLORE_ARM, TEAM_EV_RELEASED},
    [TEAM_FX_CLOSE_ALL] = {EXPLORE_ARM, TEAM_EV_QUIET},
    [TEAM_FX_GONE] = {EXPLORE_NOTIFY, 0},
};

static bool agreeing(const struct explore_world *w, unsigned peer) {
    return w->peer[peer]->state == TEAM_AGREE;
}

static const struct explore_local team_locals[] = {
    /* An exchange without a cancel ends even when its owner wants it no more. */
    {.event = TEAM_EV_EXCHANGED,
     .budget = 1,
     .states = IN(TEAM_EXCHANGE) | IN(TEAM_FAILED) | IN(TEAM_CLOSING)},
    {.event = TEAM_EV_AGREED, .armed = true, .when = agreeing},
    {.event = TEAM_EV_FAIL, .budget = 2, .states = ~IN(TEAM_CLOSED)},
    {.event = TEAM_EV_CLOSE, .budget = 1, .states = IN(TEAM_READY) | IN(TEAM_FAILED)},
    {.event = TEAM_EV_RELEASED, .armed = true, .states = IN(TEAM_LEAVING) | IN(TEAM_CLOSING)},
    {.event = TEAM_EV_QUIET, .armed = true},
};
static const struct explore_role team_role = {.machine = &weft__team_machine,
                                              .size = sizeof(struct team_core),
                                              .start = TEAM_EXCHANGE,
                                              .locals = team_locals,
                                              .n_locals = sizeof team_locals / sizeof *team_locals,
                                              .effects = team_effects};

/* Until a member knows the team's identity, notices wait in its room. */
static bool recv_notice(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    *event_p = msg->event;
    return to->state != TEAM_EXCHANGE;
}

static const char *notified_once(const struct explore_world *w) {
    for (unsigned i = 0; i < w->n_peers; i++) {
        if (w->hostile >> i & 1 || w->out >> i & 1) continue;
        unsigned notified = explore_notified(w, i, TEAM_FX_NOTIFY), state = w->peer[i]->state;
        if (notified > 1) return "on_ready comes once";
        if (notified == 0 && state >= TEAM_READY) return "ready, failed and closed are notified";
        if (explore_notified(w, i, TEAM_FX_GONE) != (state == TEAM_CLOSED)) return "closed is gone";
    }
    return NULL;
}

static bool all_gone(const struct explore_world *w) {
    for (unsigned i = 0; i < w->n_peers; i++)
        if (!(w->hostile >> i & 1) && !(w->out >> i & 1) && w->peer[i]->state != TEAM_CLOSED)
            return false;
    return true;
}

TEST(members_of_a_team_are_notified_once_and_can_always_close) {
    static const struct explore_model model = {.name = "team",
                                               .role = {&team_role, &team_role, &team_role},
                                               .n_peers = 3,
                                               .equal_peers = true,
                                               .channel = {.soup = true},
                                               .recv_msg = recv_notice,
                                               .invariant = notified_once,
                                               .agreed = all_gone};
    CHECK(model_holds(&model));
}

TEST(a_hostile_member_ends_nothing_but_the_team) {
    static const struct explore_model model = {.name = "team and a liar",
                                               .role = {&team_role, &team_role},
                                               .n_peers = 2,
                                               .hostile = 2,
                                               .channel = {.soup = true},
                                               .invariant = notified_once,
                                               .agreed = all_gone};
    CHECK(model_holds(&model));
}

/* ---- another member -------------------------------------------------------------------------- */

static bool member_is_known_to_have_left(const struct explore_world *w) {
    return w->peer[0]->state == MEMBER_LEFT;
}

static const char *member_left_once(const struct explore_world *w) {
    bool left = w->peer[0]->state == MEMBER_LEFT;
    if (explore_notified(w, 0, MEMBER_FX_WITHOUT) != left) return "one that left is missed once";
    if (explore_notified(w, 0, MEMBER_FX_SETTLE) > 1) return "an answer counts once";
    return NULL;
}

TEST(a_member_leaves_once_however_that_is_learned) {
    static const struct explore_effect effects[MEMBER_N_EFFECTS] = {
        [MEMBER_FX_WITHOUT] = {EXPLORE_NOTIFY, 0},
        [MEMBER_FX_SETTLE] = {EXPLORE_NOTIFY, 0},
        [MEMBER_FX_LOSE] = {EXPLORE_NOTIFY, 0},
    };
    static const struct explore_local locals[] = {
        {.event = MEMBER_EV_ASK, .budget = 1, .states = IN(MEMBER_HERE)},
        {.event = MEMBER_EV_LEAVE, .budget = 2, .states = ~0u},
        {.event = MEMBER_EV_RELEASE, .budget = 2, .states = ~IN(MEMBER_HERE)},
        {.event = MEMBER_EV_ENDED, .budget = 1, .states = ~0u},
        {.event = MEMBER_EV_CUT, .budget = 1, .states = ~0u},
    };
    static const struct explore_role role = {.machine = &weft__member_machine,
                                             .size = sizeof(struct member_core),
                                             .start = MEMBER_HERE,
                                             .locals = locals,
                                             .n_locals = sizeof locals / sizeof *locals,
                                             .effects = effects};
    static const struct explore_model model = {.name = "member",
                                               .role = {&role},
                                               .n_peers = 1,
                                               .invariant = member_left_once,
                                               .agreed = member_is_known_to_have_left};
    CHECK(model_holds(&model));
}

/* ---- a member leaves as soon as it has its result -------------------------------------------- */

/* Messages that are no events of the machine's: the data of the last collective, and the two of
 * a close in good order. They may overtake each other, as over several connections. */
enum { LAST_DATA = TEAM_EV_EXCHANGED, LAST_LEAVE = TEAM_EV_AGREED, LAST_RELEASE = TEAM_EV_CLOSE };
enum { MEMBERS = 3 };

struct leaver {
    struct team_core core;
    struct member_core member[MEMBERS];
    uint8_t has, outstanding; /* bits of members */
    bool dead, lost_one, broke;
};

static struct leaver *leaver(const struct explore_world *w, unsigned peer) {
    return (struct leaver *)w->peer[peer];
}
static struct leaver *leaver_of(struct fsm *member) {
    struct member_core *first = (struct member_core *)member - member->id;
    return (struct leaver *)((char *)first - offsetof(struct leaver, member));
}

static void on_member_effect(struct fsm *m, unsigned effect) {
    if (effect == MEMBER_FX_LOSE) leaver_of(m)->lost_one = true;
}
static void on_member_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    leaver_of(m)->broke = true;
}
static void init_leaver(struct fsm *m, unsigned peer) {
    static const struct fsm_port port = {&weft__member_machine, on_member_effect, on_member_fail};
    for (uint32_t r = 0; r < MEMBERS; r++)
        fsm_init(&((struct leaver *)m)->member[r].fsm, &port, MEMBER_HERE, r);
}

/* It has begun the last collective: what it sends is under way. */
static void send_data(struct explore_world *w, unsigned peer) {
    for (uint8_t r = 0; r < w->n_peers; r++)
        if (r != peer)
            explore_send(
                &(struct explore_message){.from = (uint8_t)peer, .to = r, .event = LAST_DATA});
}
static bool has_result(const struct explore_world *w, unsigned peer) {
    return leaver(w, peer)->has == (((1u << w->n_peers) - 1) & ~(1u << peer));
}
static bool may_close(const struct explore_world *w, unsigned peer) {
    return w->peer[peer]->state == TEAM_FAILED || has_result(w, peer);
}
static bool is_released(const struct explore_world *w, unsigned peer) {
    for (unsigned r = 0; r < w->n_peers; r++)
        if (r != peer && !member_may_end(&leaver(w, peer)->member[r].fsm)) return false;
    return true;
}

static void answer(unsigned from, unsigned to) {
    explore_send(
        &(struct explore_message){.from = (uint8_t)from, .to = (uint8_t)to, .event = LAST_RELEASE});
}
/* Each LEAVE is under way. Those that still wait for an answer get it. */
static void ask_the_others(struct explore_world *w, unsigned peer) {
    struct leaver *m = leaver(w, peer);
    for (unsigned r = 0; r < w->n_peers; r++) {
        if (m->outstanding >> r & 1) answer(peer, r);
        if (r != peer && !member_has_left(&m->member[r].fsm))
            weft__fsm_step(&m->member[r].fsm, MEMBER_EV_ASK);
    }
    m->outstanding = 0;
}

/* Its process ends. Its data that has not arrived is lost; the rest went before the end of its
 * endpoints, which is answered. */
static void cut(struct explore_world *w, unsigned peer) {
    unsigned kept = 0, n = w->n_messages;
    for (unsigned i = 0; i < n; i++)
        if (w->message[i].from != peer || w->message[i].event != LAST_DATA)
            w->message[kept++] = w->message[i];
    memset(&w->message[kept], 0, (n - kept) * sizeof *w->message);
    w->n_messages = kept;
}

/* The end of an endpoint comes behind all that went over it. Which end is a failure is the member's
 * machine to say: any end, of a process that closed or died. */
static unsigned whose_end_fails(const struct explore_world *w, unsigned peer) {
    unsigned ended = 0;
    for (unsigned r = 0; r < w->n_peers; r++)
        if (r != peer && w->peer[r]->state == TEAM_CLOSED &&
            fsm_verb(&leaver(w, peer)->member[r].fsm, MEMBER_EV_CUT) == FSM_DO)
            ended |= 1u << r;
    for (unsigned i = 0; i < w->n_messages; i++)
        if (w->message[i].to == peer) ended &= ~(1u << w->message[i].from);
    return ended;
}
static bool sees_an_end(const struct explore_world *w, unsigned peer) {
    return whose_end_fails(w, peer) != 0;
}
static void lose(struct explore_world *w, unsigned peer) {
    unsigned r = (unsigned)__builtin_ctz(whose_end_fails(w, peer));
    weft__fsm_step(&leaver(w, peer)->member[r].fsm, MEMBER_EV_CUT);
}

static bool send_leave_to(const struct fsm *from, unsigned effect, struct explore_message *msg) {
    return !member_has_left(&((const struct leaver *)from)->member[msg->to].fsm);
}

static bool recv_leaver(struct fsm *to, const struct explore_message *msg, unsigned *event_p) {
    struct leaver *m = (struct leaver *)to;
    uint8_t from = (uint8_t)(1u << msg->from);
    if (m->dead) return false;
    if (msg->event == LAST_RELEASE) weft__fsm_step(&m->member[msg->from].fsm, MEMBER_EV_RELEASE);
    if (msg->event == LAST_DATA) m->has |= from;
    if (msg->event == LAST_LEAVE) {
        weft__fsm_step(&m->member[msg->from].fsm, MEMBER_EV_LEAVE);
        m->outstanding |= from;
    }
    /* A member whose team has failed, or that leaves, expects nothing more. */
    if (m->outstanding & from && (m->has & from || to->state >= TEAM_FAILED)) {
        m->outstanding &= (uint8_t)~from;
        answer(msg->to, msg->from);
    }
    return false;
}

/* A team that failed had a reason: a member that died and had neither answered nor left. */
static bool lost_for_a_reason(const struct explore_world *w, unsigned peer) {
    for (unsigned r = 0; r < w->n_peers; r++)
        if (leaver(w, r)->dead && !member_may_end(&leaver(w, peer)->member[r].fsm)) return true;
    return false;
}

static const char *all_end_well(const struct explore_world *w) {
    for (unsigned i = 0; i < w->n_peers; i++) {
        const struct leaver *m = leaver(w, i);
        unsigned state = w->peer[i]->state;
        if (m->dead) continue;
        if (m->broke) return "only what was asked for is answered";
        if (m->lost_one && !lost_for_a_reason(w, i))
            return "the end of a member that has answered fails no member";
        if (state == TEAM_FAILED && !m->lost_one) return "a close in good order fails no member";
        if (state >= TEAM_LEAVING && !m->lost_one && !has_result(w, i))
            return "a member that leaves has its result";
        if (explore_notified(w, i, TEAM_FX_GONE) != (state == TEAM_CLOSED)) return "closed is gone";
    }
    return NULL;
}

static const struct explore_effect leaver_effects[TEAM_N_EFFECTS] = {
    [TEAM_FX_CONNECT] = {EXPLORE_ARM, TEAM_EV_AGREED},
    [TEAM_FX_NOTIFY] = {EXPLORE_NOTIFY, 0},
    [TEAM_FX_LEAVE] = {EXPLORE_SEND, LAST_LEAVE},
    [TEAM_FX_AWAIT] = {EXPLORE_ARM, TEAM_EV_RELEASED},
    [TEAM_FX_CLOSE_ALL] = {EXPLORE_ARM, TEAM_EV_QUIET},
    [TEAM_FX_GONE] = {EXPLORE_NOTIFY, 0},
};

/* Its process is killed when it has answered a member that leaves: it has closed nothing. */
static bool has_answered(const struct explore_world *w, unsigned peer) {
    const struct leaver *m = leaver(w, peer);
    for (unsigned r = 0; r < w->n_peers; r++)
        if (member_has_left(&m->member[r].fsm) && !(m->outstanding >> r & 1)) return true;
    return false;
}
static void die(struct explore_world *w, unsigned peer) {
    leaver(w, peer)->dead = true;
    w->peer[peer]->state = TEAM_CLOSED; /* in which the event that stands for it changes nothing */
    cut(w, peer);
}

/* The last one is a death, which only some models have. */
static struct explore_local leaver_locals[] = {
    {.event = TEAM_EV_EXCHANGED, .budget = 1},
    {.event = TEAM_EV_AGREED, .armed = true, .after = send_data},
    {.event = TEAM_EV_CLOSE,
     .budget = 1,
     .states = IN(TEAM_READY) | IN(TEAM_FAILED),
     .when = may_close,
     .after = ask_the_others},
    {.event = TEAM_EV_RELEASED, .armed = true, .states = IN(TEAM_LEAVING), .when = is_released},
    {.event = TEAM_EV_QUIET, .armed = true, .after = cut},
    {.event = TEAM_EV_FAIL,
     .budget = 1,
     .states = IN(TEAM_READY) | IN(TEAM_LEAVING),
     .when = sees_an_end,
     .before = lose},
    {.event = TEAM_EV_NOTICE,
     .budget = 1,
     .states = IN(TEAM_READY),
     .when = has_answered,
     .before = die},
};
enum { N_LEAVER_LOCALS = sizeof leaver_locals / sizeof *leaver_locals };
#define LEAVER(count)                                                                       \
    {                                                                                       \
        .machine = &weft__team_machine, .size = sizeof(struct leaver), .init = init_leaver, \
        .start = TEAM_EXCHANGE, .locals = leaver_locals, .n_locals = (count),               \
        .effects = leaver_effects                                                           \
    }
static const struct explore_role leaver_role = LEAVER(N_LEAVER_LOCALS - 1);
static const struct explore_role mortal_role = LEAVER(N_LEAVER_LOCALS);
#define LEAVING(title, one)                                                               \
    {                                                                                     \
        .name = (title), .role = {&leaver_role, (one), &leaver_role}, .n_peers = MEMBERS, \
        .channel = {.reorder = true}, .send_msg = send_leave_to, .recv_msg = recv_leaver, \
        .invariant = all_end_well, .agreed = all_gone                                     \
    }
static const struct explore_model leaving = LEAVING("the last collective", &leaver_role);

TEST(a_member_leaves_as_soon_as_it_may_and_the_others_have_their_result) {
    CHECK(model_holds(&leaving));
}

TEST(a_member_that_dies_after_its_answer_ends_no_close) {
    static const struct explore_model model = LEAVING("a death after an answer", &mortal_role);
    CHECK(model_holds(&model));
}

/* The model can see: a member that closes without the others' answers takes with it what they
 * still need. */
TEST(a_member_that_awaits_no_answer_is_found) {
    static struct explore_result result;
    leaver_locals[3].when = NULL;
    CHECK(!explore(&leaving, &result));
    leaver_locals[3].when = is_released;
    CHECK(strcmp(result.why, "no agreed state can be reached any more") == 0);
    printf("  %s\n", result.trace);
}

/* The machines of consumer and provider, joined by a channel that loses and repeats notices. */
#include <fsm/explore/explorer.h>
#include <resource/machines.h>
#include <tests/harness.h>
#include <tests/model.h>

#define IN(state) (1u << (state))
enum { CONSUMER, PROVIDER };

/* ---- the consumer ---------------------------------------------------------------------------- */

static const struct explore_effect consumer_effects[ASSOC_N_EFFECTS] = {
    [ASSOC_FX_DRAIN] = {EXPLORE_ARM, ASSOC_EV_DRAINED},
    [ASSOC_FX_ABORT] = {EXPLORE_ARM, ASSOC_EV_DRAINED},
    [ASSOC_FX_DETACH] = {EXPLORE_NOTIFY, 0},
    [ASSOC_FX_RETURN] = {EXPLORE_SEND, GRANT_EV_RETURNED},
    [ASSOC_FX_NOTIFY_LOST] = {EXPLORE_NOTIFY, 0},
    [ASSOC_FX_NOTIFY] = {EXPLORE_NOTIFY, 0},
};

static bool is_granted(const struct explore_world *w, unsigned peer) {
    return w->peer[PROVIDER]->state != GRANT_FREE;
}
/* The consumer finds a dead provider by itself, whatever becomes of its notice. */
static bool provider_is_dead(const struct explore_world *w, unsigned peer) {
    return w->peer[PROVIDER]->state >= GRANT_LOSING;
}
/* What was drained once does not drain again. */
static bool is_undrained(const struct explore_world *w, unsigned peer) {
    return explore_notified(w, CONSUMER, ASSOC_FX_NOTIFY) == 0;
}

static const struct explore_local consumer_locals[] = {
    {.event = ASSOC_EV_ATTACH, .budget = 1, .states = IN(ASSOC_STUB)},
    {.event = ASSOC_EV_UNDO, .budget = 1, .states = IN(ASSOC_PARTIAL)},
    {.event = ASSOC_EV_COMPLETE, .budget = 1, .states = IN(ASSOC_PARTIAL)},
    {.event = ASSOC_EV_DISASSOCIATE, .budget = 2, .states = ~IN(ASSOC_PARTIAL), .when = is_granted},
    {.event = ASSOC_EV_DRAINED, .armed = true, .when = is_undrained},
    {.event = ASSOC_EV_EXPIRED,
     .budget = 1,
     .states = IN(ASSOC_DRAINING) | IN(ASSOC_DISASSOCIATED) | IN(ASSOC_LOST)},
    {.event = ASSOC_EV_LOSE, .budget = 1, .states = ~IN(ASSOC_PARTIAL), .when = provider_is_dead},
};
static const struct explore_role consumer = {.machine = &weft__association_machine,
                                             .size = sizeof(struct association_core),
                                             .start = ASSOC_STUB,
                                             EXPLORE_LOCALS_OF(consumer_locals),
                                             .effects = consumer_effects};

/* ---- the provider ---------------------------------------------------------------------------- */

static const struct explore_effect provider_effects[GRANT_N_EFFECTS] = {
    [GRANT_FX_SEND_RECALL] = {EXPLORE_SEND, ASSOC_EV_RECALL},
    [GRANT_FX_SEND_LOSE] = {EXPLORE_SEND, ASSOC_EV_LOSE},
    [GRANT_FX_ARM] = {EXPLORE_ARM, GRANT_EV_EXPIRED},
    [GRANT_FX_NOTIFY_TAKEN] = {EXPLORE_NOTIFY, 0},
    [GRANT_FX_NOTIFY_RETURNED] = {EXPLORE_NOTIFY, 0},
};

static bool is_taken(const struct explore_world *w, unsigned peer) {
    return w->peer[CONSUMER]->state >= ASSOC_READY;
}

static const struct explore_local provider_locals[] = {
    {.event = GRANT_EV_TAKE, .budget = 1, .states = IN(GRANT_FREE), .when = is_taken},
    {.event = GRANT_EV_WITHDRAW, .budget = 2, .states = ~IN(GRANT_FREE)},
    {.event = GRANT_EV_DIE, .budget = 2, .states = ~IN(GRANT_FREE)},
    {.event = GRANT_EV_EXPIRED, .armed = true},
};
static const struct explore_role provider = {.machine = &weft__grant_machine,
                                             .size = sizeof(struct grant_core),
                                             .start = GRANT_FREE,
                                             EXPLORE_LOCALS_OF(provider_locals),
                                             .effects = provider_effects};

/* ---- both ------------------------------------------------------------------------------------ */

static const char *ends_once(const struct explore_world *w) {
    unsigned state = w->peer[CONSUMER]->state;
    unsigned done = explore_notified(w, CONSUMER, ASSOC_FX_NOTIFY);
    unsigned detached = explore_notified(w, CONSUMER, ASSOC_FX_DETACH);
    if (done > 1) return "the end is notified once";
    if (detached > 1) return "what was acquired is released once";
    unsigned lost = explore_notified(w, CONSUMER, ASSOC_FX_NOTIFY_LOST);
    if (lost != (state == ASSOC_LOST)) return "each loss is notified once, and nothing else is";
    if (state == ASSOC_DISASSOCIATED && !done) return "disassociated is notified";
    if (explore_notified(w, PROVIDER, GRANT_FX_NOTIFY_RETURNED) && !detached)
        return "the provider is notified after the release";
    return NULL;
}

static bool all_over(const struct explore_world *w) {
    unsigned state = w->peer[CONSUMER]->state;
    bool undone = state == ASSOC_STUB;
    bool ended = state == ASSOC_DISASSOCIATED || state == ASSOC_LOST;
    bool notified = explore_notified(w, CONSUMER, ASSOC_FX_NOTIFY) == 1;
    return undone || (ended && notified);
}

static const struct explore_model model = {.name = "association",
                                           .role = {&consumer, &provider},
                                           .n_peers = 2,
                                           .channel = {.reorder = true, .losses = 2, .repeats = 2},
                                           .invariant = ends_once,
                                           .agreed = all_over};

TEST(provider_and_consumer_end_in_any_order_over_a_lossy_channel) {
    CHECK(model_holds(&model));
    CHECK_EQ(explore_unreached(&weft__grant_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__association_machine, stdout), 0);
}
